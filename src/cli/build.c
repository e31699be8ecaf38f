/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/build.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"

enum unit { UNIT_SIZE, UNIT_TIME, UNIT_MILLI, UNIT_COUNT, UNIT_MAX };

static const char *const unit_forms[UNIT_MAX] = {
	[UNIT_SIZE] = "bytes, with k, m or g behind them: 512m, 1.5g",
	[UNIT_TIME] = "seconds, or with a unit: 10, 1.5, 250ms, 2m, 1h",
	[UNIT_MILLI] = "a number: 0.5, 2",
	[UNIT_COUNT] = "a whole number",
};

/* Options that are a limit of cloche.ini(5). */
static const struct limit_option {
	enum option_id id;
	const char *limit;
	enum unit unit;
} limit_options[] = {
	{ OPT_MEMORY, "memory_bytes", UNIT_SIZE },
	{ OPT_CPUS, "cpus", UNIT_MILLI },
	{ OPT_CPU_TIME, "cpu_seconds", UNIT_TIME },
	{ OPT_PIDS_LIMIT, "processes", UNIT_COUNT },
	{ OPT_DISK, "disk_bytes", UNIT_SIZE },
	{ OPT_OPEN_FILES, "open_files", UNIT_COUNT },
	{ OPT_OUTPUT_LIMIT, "output_bytes_hard", UNIT_SIZE },
};

struct build {
	const struct job_rules *rules; /* borrowed */
	struct job job;
	bool has_server;
	struct refusal *no;
};

/* 2^53: beyond it a double no longer counts bytes, and no limit is that large */
#define WHOLE_MAX (UINT64_C(1) << 53)

static int read_number(enum unit unit, const char *value, double *ret)
{
	uint64_t v = 0;
	int r = -EINVAL;

	switch (unit) {
	case UNIT_SIZE:
		r = parse_size(value, 0, WHOLE_MAX, &v);
		break;
	case UNIT_TIME:
		r = parse_duration_ns(value, 0, UINT64_MAX / 2, &v);
		break;
	case UNIT_MILLI:
		r = parse_milli(value, 0, UINT32_MAX, &v);
		break;
	case UNIT_COUNT:
		r = parse_u64(value, 0, WHOLE_MAX, &v);
		break;
	case UNIT_MAX:
		break;
	}
	if (r < 0)
		return r;
	*ret = (double)v / (unit == UNIT_TIME ? (double)NS_PER_SEC : unit == UNIT_MILLI ? 1000.0 : 1.0);
	return 0;
}

static int set_limit(struct build *b, const struct limit_option *l, const char *value)
{
	double number = 0;
	int r;

	if (read_number(l->unit, value, &number) < 0)
		return refuse(b->no, option_name(l->id), value, "%s", unit_forms[l->unit]);
	r = job_set_limit(&b->job, b->rules, l->limit, number, &b->no->why);
	return r < 0 ? refuse_as(b->no, r, option_name(l->id), value) : 0;
}

static int set_timeout(struct build *b, const char *value)
{
	uint64_t ns = 0;
	int r;

	if (parse_duration_ns(value, 0, UINT64_MAX / 2, &ns) < 0)
		return refuse(b->no, "--timeout", value, "%s", unit_forms[UNIT_TIME]);
	r = job_set_timeout_ns(&b->job, b->rules, ns, &b->no->why);
	return r < 0 ? refuse_as(b->no, r, "--timeout", value) : 0;
}

static int add_env(struct build *b, const char *value)
{
	const char *equals = strchr(value, '=');
	auto_free char *name = NULL;
	int r;

	if (!equals)
		return refuse(b->no, "--env", value, "NAME=VALUE");
	name = strndup(value, (size_t)(equals - value));
	if (!name)
		return refuse_memory(b->no);
	r = job_add_env(&b->job, name, equals + 1, &b->no->why);
	return r < 0 ? refuse_as(b->no, r, "--env", value) : 0;
}

/* SRC[:NAME]; without NAME, the last part of SRC.  A SRC that holds a colon is found as it is first. */
static int add_file(struct build *b, const char *value)
{
	auto_free char *path = strdup(value);
	auto_free char *data = NULL;
	const char *name = strrchr(value, '/') ? strrchr(value, '/') + 1 : value;
	char *colon = path ? strrchr(path, ':') : NULL;
	auto_fd int fd = open(value, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t len = 0;
	int r;

	if (!path)
		return refuse_memory(b->no);
	if (fd < 0 && colon) {
		*colon = 0;
		name = value + (colon - path) + 1;
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	}
	if (fd < 0)
		return refuse_option_file(b->no, "--file", path, errno);
	r = fd_read_all(fd, b->job.limits.disk_bytes, &data, &len);
	if (r == -EFBIG)
		return refuse(b->no, "--file", value, "at most %llu bytes in all (--disk)",
			      (unsigned long long)b->job.limits.disk_bytes);
	if (r < 0)
		return refuse_option_file(b->no, "--file", path, -r);
	r = job_add_file(&b->job, name, data, len, &b->no->why);
	return r < 0 ? refuse_as(b->no, r, "--file", value) : 0;
}

static int set_network(struct build *b, const char *value)
{
	int r = job_set_network(&b->job, value, &b->no->why);

	return r < 0 ? refuse_as(b->no, r, "--network", value) : 0;
}

static int set_mode(struct build *b, const char *value)
{
	int r = job_set_mode(&b->job, value, &b->no->why);

	if (r < 0)
		return refuse(b->no, "--mode", value, "auto, warm or cold");
	r = b->has_server ? 0 : setup_settle(&b->job, b->no);
	return r < 0 ? refuse_as(b->no, r, "--mode", value) : 0;
}

static int add_artifact(struct build *b, const char *value)
{
	int r = job_add_artifact(&b->job, value, &b->no->why);

	return r < 0 ? refuse_as(b->no, r, "--artifact", value) : 0;
}

static int apply_option(struct build *b, enum option_id id, const char *value)
{
	for (size_t i = 0; i < ARRAY_LEN(limit_options); i++) {
		if (limit_options[i].id == id)
			return set_limit(b, &limit_options[i], value);
	}
	if (id == OPT_TIMEOUT)
		return set_timeout(b, value);
	if (id == OPT_ENV)
		return add_env(b, value);
	if (id == OPT_ARTIFACT)
		return add_artifact(b, value);
	if (id == OPT_NETWORK)
		return set_network(b, value);
	if (id == OPT_MODE)
		return set_mode(b, value);
	if (id == OPT_BUFFERED)
		b->job.is_buffered = true;
	return 0; /* OPT_FILE comes later; the others are not the job's */
}

static int apply_options(struct build *b, const struct options *o)
{
	int r = 0;

	for (size_t i = 0; i < o->n && r == 0; i++)
		r = apply_option(b, o->items[i].id, o->items[i].value);
	/* files are bounded by --disk, which may stand behind them */
	for (size_t i = 0; i < o->n && r == 0; i++) {
		if (o->items[i].id == OPT_FILE)
			r = add_file(b, o->items[i].value);
	}
	if (r == 0 && options_have(o, OPT_OUTPUT) && !options_have(o, OPT_ARTIFACT))
		r = add_artifact(b, "**");
	else if (r == 0 && options_have(o, OPT_ARTIFACT) && !options_have(o, OPT_OUTPUT) && !options_have(o, OPT_JSON))
		r = refuse(b->no, "--artifact", options_last(o, OPT_ARTIFACT), "together with --output DIR or --json");
	return r;
}

/* The script as a file: byte for byte, named like the file it came from. */
static int read_script(struct build *b, const char *path)
{
	bool is_stdin = strcmp(path, "-") == 0;
	auto_fd int fd = is_stdin ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	auto_free char *text = NULL;
	const char *slash = strrchr(path, '/');
	struct stat st;
	size_t len = 0;
	int r;

	if (!is_stdin && fd < 0)
		return refuse_file(b->no, "SCRIPT", path, errno);
	if (!is_stdin && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
		return refuse_file(b->no, "SCRIPT", path, EISDIR);
	r = fd_read_all(is_stdin ? STDIN_FILENO : fd, b->rules->max_script_bytes, &text, &len);
	if (r == -EFBIG)
		return refuse(b->no, "SCRIPT", path, "1 to %llu bytes", (unsigned long long)b->rules->max_script_bytes);
	if (r < 0)
		return refuse_file(b->no, "SCRIPT", is_stdin ? "standard input" : path, -r);
	r = job_set_script(&b->job, b->rules, text, len, &b->no->why);
	if (r == 0 && !is_stdin)
		r = job_set_script_name(&b->job, slash ? slash + 1 : path, &b->no->why);
	return r < 0 ? refuse_as(b->no, r, "SCRIPT", path) : 0;
}

static int set_environment(struct build *b, const char *name)
{
	int r = 0;

	if (name)
		r = job_set_environment(&b->job, name, &b->no->why);
	if (r < 0)
		return refuse_as(b->no, r, "--environment", name);
	r = job_apply_profile(&b->job, b->rules, &b->no->why);
	if (r < 0 && r != -ENOMEM) {
		r = refuse_as(b->no, r, "--environment", b->job.environment);
		b->no->status = CLI_NOT_FOUND;
	}
	return r == -ENOMEM ? refuse_memory(b->no) : r;
}

static int fill(struct build *b, const struct options *o)
{
	/* First what the environment sets, then what was asked for. */
	int r = set_environment(b, options_last(o, OPT_ENVIRONMENT));

	if (r == 0)
		r = apply_options(b, o);
	if (r == 0)
		r = read_script(b, o->operands[0]);
	for (int i = 1; i < o->n_operands && r == 0; i++) {
		r = job_add_arg(&b->job, o->operands[i], &b->no->why);
		if (r < 0)
			r = refuse_as(b->no, r, "ARGS", o->operands[i]);
	}
	if (r < 0)
		return r;
	r = job_check(&b->job, b->rules, &b->no->why);
	return r == -ENOMEM ? refuse_memory(b->no) : r;
}

int build_job(const struct options *o, const struct settings *s, bool has_server, struct job *ret, struct refusal *no)
{
	struct build b = { .rules = &s->conf.rules, .has_server = has_server, .no = no };
	int r;

	if (o->n_operands < 1)
		return refuse(no, "SCRIPT", NULL, "a file, or - for standard input (cloche run --help)");
	*no = (struct refusal){ .status = CLI_USAGE };
	if (job_init(&b.job, b.rules) < 0)
		return refuse_memory(no);
	r = fill(&b, o);
	if (r < 0) {
		job_done(&b.job);
		return r;
	}
	*ret = b.job;
	return 0;
}
