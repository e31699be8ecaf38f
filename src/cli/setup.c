/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/setup.h"

#include <errno.h>
#include <unistd.h>

#include "base/buf.h"

#define LIST_MAX ((size_t)1 << 20)

/* A list option may be given several times: its values are one list. */
static int load_list(struct conf *c, const struct options *o, enum option_id id, const char *section, const char *key,
		     struct refusal *no)
{
	struct err e = { .kind = ERR_NONE };
	struct buf b;
	int r = 0;

	buf_init(&b, LIST_MAX);
	for (size_t i = 0; i < o->n && r == 0; i++) {
		if (o->items[i].id == id)
			r = buf_printf(&b, "%s%s", b.len ? "," : "", o->items[i].value);
	}
	if (r < 0) {
		r = refuse_memory(no);
	} else if (b.len) {
		r = conf_set(c, section, key, b.data, option_name(id), false, &e);
		if (r < 0)
			r = refuse_err(no, r, option_name(id), &e);
	}
	buf_done(&b);
	return r;
}

static int load_lists(struct conf *c, const struct options *o, struct refusal *no)
{
	int r = load_list(c, o, OPT_REQUIRE, "protect", "require", no);

	if (r == 0)
		r = load_list(c, o, OPT_ALLOW_MISSING, "protect", "allow_missing", no);
	if (r == 0)
		r = load_list(c, o, OPT_SCREEN_REPORT, "screen", "report", no);
	if (r == 0)
		r = load_list(c, o, OPT_SCREEN_REJECT, "screen", "reject", no);
	return r;
}

int setup_load(struct settings *ret, const struct options *o, struct refusal *no)
{
	struct err e = { .kind = ERR_NONE };
	int r = settings_load(ret, environ, &e);

	if (r < 0)
		return refuse_err(no, r, "configuration", &e);
	r = load_lists(&ret->conf, o, no);
	if (r < 0)
		return r;
	r = settings_finish(ret, &e);
	return r < 0 ? refuse_err(no, r, "configuration", &e) : 0;
}

int setup_load_files(struct settings *ret, char **files, struct refusal *no)
{
	struct err e = { .kind = ERR_NONE };
	int r = settings_load_files(ret, files, &e);

	if (r == 0)
		r = settings_finish(ret, &e);
	return r < 0 ? refuse_err(no, r, "configuration", &e) : 0;
}

int setup_settle(const struct job *j, struct refusal *no)
{
	if (j->mode == JOB_MODE_WARM)
		return refuse(no, "mode", "warm", "auto or cold: warm needs a server, and there is no server");
	return 0;
}

int setup_parse(const struct settings *s, const char *json, size_t len, struct job *ret, struct refusal *no)
{
	struct job j;
	int r;

	*no = (struct refusal){ .status = CLI_USAGE };
	r = job_parse(json, len, &s->conf.rules, &j, &no->why);
	if (r < 0)
		return r == -ENOMEM ? refuse_memory(no) : r;
	r = setup_settle(&j, no);
	if (r < 0)
		job_done(&j);
	else
		*ret = j;
	return r;
}
