/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which folders an interpreter needs: a venv and the Python that it was made from, a pyenv or uv version.
 *
 * Found by looking at names and pyvenv.cfg only; the interpreter is not run, since it is not in a sandbox yet.  Only a
 * folder that looks like a Python installation is taken: "python" in somebody's home folder must not open the home folder.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "run/front.h"

void python_paths_done(struct python_paths *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->path[i]);
	p->n = 0;
}

static bool is_below(const char *path, const char *folder)
{
	size_t len = strlen(folder);

	return strncmp(path, folder, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static int add(struct python_paths *p, const char *path, struct err *e)
{
	char pattern[PATH_MAX + 32];
	glob_t found = { 0 };
	bool looks_right;

	/* what the sandbox has anyway */
	if (is_below(path, "/usr") || is_below(path, "/bin") || is_below(path, "/lib") || strcmp(path, "") == 0)
		return 0;
	for (size_t i = 0; i < p->n; i++) {
		if (is_below(path, p->path[i]))
			return 0;
	}
	(void)snprintf(pattern, sizeof(pattern), "%s/pyvenv.cfg", path);
	looks_right = access(pattern, F_OK) == 0;
	(void)snprintf(pattern, sizeof(pattern), "%s/lib/python3*", path);
	looks_right = looks_right || glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
	globfree(&found);
	if (!looks_right)
		return err_set(e, ERR_INVALID, 0, "%s does not look like a Python installation (no pyvenv.cfg, no lib/python3*), "
						  "so it is not shown to scripts; name its folder in the environment's paths",
			       path);
	if (p->n == PYTHON_PATHS_MAX)
		return err_set(e, ERR_INVALID, 0, "too many folders for one interpreter");
	p->path[p->n] = strdup(path);
	if (!p->path[p->n])
		return err_set(e, ERR_HOST, ENOMEM, "interpreter's folders");
	p->n++;
	return 0;
}

/* "/a/b/bin/python" -> "/a/b" */
static void prefix_of(const char *program, char *ret, size_t size)
{
	(void)snprintf(ret, size, "%s", program);
	for (int i = 0; i < 2; i++) {
		char *slash = strrchr(ret, '/');

		if (slash)
			*slash = '\0';
	}
}

/* "home = /x/bin" of a venv: /x is where its standard library is */
static int add_home(struct python_paths *p, const char *prefix, struct err *e)
{
	char path[PATH_MAX + 16];
	char text[4096];
	char *save = NULL;

	(void)snprintf(path, sizeof(path), "%s/pyvenv.cfg", prefix);
	if (fd_read_at(AT_FDCWD, path, text, sizeof(text)) < 0)
		return 0;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char home[PATH_MAX];
		char real[PATH_MAX];
		char *slash;
		int r;

		if (sscanf(line, " home = %4095[^\n]", home) != 1 || home[0] != '/')
			continue;
		slash = strrchr(home, '/');
		*slash = '\0';
		r = add(p, home, e);
		if (r == 0 && realpath(home, real))
			r = add(p, real, e);
		if (r < 0)
			return r;
	}
	return 0;
}

int python_paths(const char *python, struct python_paths *ret, struct err *e)
{
	struct python_paths p = { .n = 0 };
	char prefix[PATH_MAX];
	char real[PATH_MAX];
	struct stat st;
	int r;

	if (python[0] != '/')
		return err_set(e, ERR_INVALID, 0, "python: %.200s is not allowed: an absolute path", python);
	if (!realpath(python, real))
		return err_set(e, errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_ACCESS, errno,
			       "the interpreter %.200s can't be used (set python = PATH in the configuration)", python);
	if (stat(real, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(e, ERR_ACCESS, EACCES, "the interpreter %.200s is not a file", python);
	if (access(real, X_OK) < 0)
		return err_set(e, ERR_ACCESS, errno, "the interpreter %.200s can't be executed", python);
	prefix_of(python, prefix, sizeof(prefix));
	r = add(&p, prefix, e);
	if (r == 0)
		r = add_home(&p, prefix, e);
	if (r == 0) {
		prefix_of(real, prefix, sizeof(prefix));
		r = add(&p, prefix, e);
	}
	if (r < 0) {
		python_paths_done(&p);
		return r;
	}
	*ret = p;
	return 0;
}
