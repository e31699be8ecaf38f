/* SPDX-License-Identifier: Apache-2.0 */
/* A job's bodies, packed for the supervisor: what is executed, with which arguments, environment and files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/pack.h"
#include "run/front.h"
#include "run/screen_text.h"

struct bundle {
	struct pack pack;
	bool has_failed;
	uint32_t env; /* the kind of environment variables */
};

static void put(struct bundle *b, uint32_t kind, const char *name, const void *data, size_t len)
{
	if (!b->has_failed && pack_add(&b->pack, kind, name, data, len) < 0)
		b->has_failed = true;
}

static void put_text(struct bundle *b, uint32_t kind, const char *text)
{
	put(b, kind, NULL, text, strlen(text));
}

static int seal(struct bundle *b, struct err *e)
{
	int fd = b->has_failed ? -ENOMEM : fd_memfd("bundle", b->pack.data, b->pack.len);

	pack_done(&b->pack);
	return fd < 0 ? err_set(e, ERR_HOST, -fd, "pack the job") : fd;
}

/* Return: how much of @room is used now; 0: it is more than that, or is none */
static size_t fit(struct bundle *b, char room[WIRE_BODY_MAX])
{
	size_t len = b->pack.len;

	if (b->has_failed || len > WIRE_BODY_MAX)
		return 0;
	memcpy(room, b->pack.data, len);
	pack_done(&b->pack);
	return len;
}

/* NAME=... is set by the caller, by the environment's configuration, or (last) by us. */
static bool is_set(const struct job *j, const struct front_environment *env, const char *text)
{
	size_t len = strcspn(text, "=");

	for (size_t i = 0; i < j->env.n; i++) {
		if (strncmp(j->env.items[i].name, text, len) == 0 && j->env.items[i].name[len] == '\0')
			return true;
	}
	for (size_t i = 0; env->env[i]; i++) {
		if (env->env[i] != text && strncmp(env->env[i], text, len + 1) == 0)
			return true;
	}
	return false;
}

static void put_ours(struct bundle *b, const struct job *j, const struct front_environment *env, const char *text)
{
	if (!is_set(j, env, text))
		put_text(b, b->env, text);
}

/* The clean environment: nothing of the host's. */
static void put_environment(struct bundle *b, const struct job *j, const struct front_environment *env)
{
	static const char *const fixed[] = {
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "USER=sandbox", "LOGNAME=sandbox", "LANG=C.UTF-8",
		"LC_ALL=C.UTF-8", "TZ=UTC",
	};
	static const char *const threads[] = { "PYTHON_CPU_COUNT", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
					       "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS" };
	char text[64];

	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		put_ours(b, j, env, fixed[i]);
	put_ours(b, j, env, env->has_figures ? FIGURE_VARIABLE : "MPLBACKEND=Agg");
	for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
		(void)snprintf(text, sizeof(text), "%s=%u", threads[i], (j->limits.cpu_milli + 999) / 1000);
		put_ours(b, j, env, text);
	}
	if (!j->is_buffered)
		put_ours(b, j, env, "PYTHONUNBUFFERED=1");
	for (size_t i = 0; env->env[i]; i++) {
		if (!is_set(j, env, env->env[i]))
			put_text(b, b->env, env->env[i]);
	}
	for (size_t i = 0; i < j->env.n; i++) {
		const struct job_named *v = &j->env.items[i];
		size_t len = strlen(v->name) + 1 + v->body.len;
		char *both = malloc(len + 1);

		if (!both) {
			b->has_failed = true;
			return;
		}
		(void)snprintf(both, len + 1, "%s=", v->name);
		memcpy(both + strlen(v->name) + 1, v->body.data, v->body.len);
		put(b, b->env, NULL, both, len);
		free(both);
	}
}

void bundle_spec(const struct job_limits *l, enum job_network network, struct sandbox_spec *ret)
{
	*ret = (struct sandbox_spec){
		.memory_bytes = l->memory_bytes,
		.cpu_ns = l->cpu_ns,
		.disk_bytes = l->disk_bytes,
		.cpu_milli = l->cpu_milli,
		.processes = l->processes,
		.disk_files = l->disk_files,
		.open_files = l->open_files,
		.has_loopback = network == JOB_NETWORK_LOOPBACK,
	};
}

int bundle_environment(struct pack *p, const struct front_environment *env)
{
	struct job j = { .limits = env->limits };
	struct bundle b = { .pack = *p, .env = WIRE_SETUP_ENV };

	put_environment(&b, &j, env);
	*p = b.pack;
	return b.has_failed ? -ENOMEM : 0;
}

/* Into the sandbox, and out of it. */
static void put_files(struct bundle *b, const struct job *j)
{
	put(b, SANDBOX_FILE, j->script_name, j->script.data, j->script.len);
	for (size_t i = 0; i < j->files.n; i++)
		put(b, SANDBOX_FILE, j->files.items[i].name, j->files.items[i].body.data, j->files.items[i].body.len);
	for (size_t i = 0; i < j->artifacts.n; i++)
		put(b, SANDBOX_ARTIFACT, NULL, j->artifacts.items[i].body.data, j->artifacts.items[i].body.len);
}

int bundle_job(const struct job *j, const struct front_environment *env, char *room, size_t *ret_len, struct err *e)
{
	struct bundle b = { .env = SANDBOX_ENV };
	char path[300];

	(void)snprintf(path, sizeof(path), "/tmp/%s", j->script_name);
	put_text(&b, SANDBOX_EXEC, env->python);
	put_text(&b, SANDBOX_ARG, env->python); /* as the shell does it: sys.executable and a venv are found by it */
	put_text(&b, SANDBOX_ARG, path);
	for (size_t i = 0; i < j->args.n; i++)
		put(&b, SANDBOX_ARG, NULL, j->args.items[i].body.data, j->args.items[i].body.len);
	put_environment(&b, j, env);
	put_files(&b, j);
	if (env->has_figures)
		put_text(&b, SANDBOX_ARTIFACT, FIGURE_PATTERN);
	*ret_len = room ? fit(&b, room) : 0;
	return *ret_len ? 0 : seal(&b, e);
}

int bundle_screen(const struct supervisor *s, const struct front_environment *env, struct err *e)
{
	static const char *const args[] = { "-I", "-S", "-c" };
	struct bundle b = { .env = SANDBOX_ENV };

	put_text(&b, SANDBOX_EXEC, env->python);
	put_text(&b, SANDBOX_ARG, env->python);
	for (size_t i = 0; i < ARRAY_LEN(args); i++)
		put_text(&b, SANDBOX_ARG, args[i]);
	put_text(&b, SANDBOX_ARG, screen_text);
	for (size_t i = 0; i < s->n_screen; i++)
		put_text(&b, SANDBOX_ARG, s->screen[i]);
	put_text(&b, SANDBOX_ENV, "LC_ALL=C.UTF-8");
	return seal(&b, e);
}
