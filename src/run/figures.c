/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures without a screen: where an environment has matplotlib, its own example of a backend is covered by ours.
 *
 * Found by names only, as python.c does it.  sys.path stays as it is, and so does all of matplotlib but that one file.
 */
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/pack.h"
#include "run/figures_text.h"
#include "run/front.h"

#define EXAMPLE "/matplotlib/backends/backend_template.py"

struct search {
	struct pack *pack; /* borrowed */
	bool has_found;
};

static int look(struct search *s, const char *folder)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof(path), "%s" EXAMPLE, folder) >= sizeof(path) || access(path, R_OK) < 0)
		return 0;
	s->has_found = true;
	return pack_add(s->pack, WIRE_SETUP_COVER, path, figures_text, strlen(figures_text));
}

/* Of the system's Python, without a look through all of /usr/lib. */
static int look_in_system(struct search *s, const char *python)
{
	char real[PATH_MAX];
	char folder[PATH_MAX];
	const char *name = realpath(python, real) ? strrchr(real, '/') : NULL;
	int r;

	r = look(s, "/usr/lib/python3/dist-packages");
	if (r < 0 || !name || strncmp(name, "/python3.", 9) != 0)
		return r;
	(void)snprintf(folder, sizeof(folder), "/usr/local/lib%.32s/dist-packages", name);
	r = look(s, folder);
	(void)snprintf(folder, sizeof(folder), "/usr/lib%.32s/site-packages", name);
	return r < 0 ? r : look(s, folder);
}

/* Of a venv or an installation of its own. */
static int look_in_prefix(struct search *s, const char *prefix)
{
	char pattern[PATH_MAX];
	glob_t found = { 0 };
	int r = 0;

	if ((size_t)snprintf(pattern, sizeof(pattern), "%s/lib/python3*/site-packages", prefix) >= sizeof(pattern))
		return 0;
	if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc && r == 0; i++)
			r = look(s, found.gl_pathv[i]);
	}
	globfree(&found);
	return r;
}

int figures_put(struct pack *p, const struct run_environment *env, const struct python_paths *paths, bool *ret)
{
	struct search s = { .pack = p };
	int r = 0;

	if (env->keeps_figures)
		r = look_in_system(&s, env->python);
	for (size_t i = 0; env->keeps_figures && i < paths->n && r == 0; i++)
		r = look_in_prefix(&s, paths->path[i]);
	for (size_t i = 0; env->keeps_figures && env->paths && env->paths[i] && r == 0; i++)
		r = look(&s, env->paths[i]);
	if (r == 0)
		*ret = s.has_found;
	return r;
}
