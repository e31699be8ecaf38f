/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs scripts cold and warm in the same kind of sandbox and tells, as JSON lines, what came of each.
 *
 *   zygote-harness [-p PATH]... [-m MODULES] [-n TIMES] [-e NAME=VALUE]... EXTENSION PYTHON SCRIPT...
 *
 * -p  a folder that the interpreter needs beyond /usr      -m  modules to preload, separated by commas
 * -e  one more variable of the environment, the zygote's and the scripts'
 * -n  measure: run each script so often, tell the times instead
 * A script whose name has "buffered" in it is run without PYTHONUNBUFFERED.  It is a small supervisor: a home
 * (sandbox/home.h), one zygote in it, one sandbox after the other.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/macro.h"
#include "harness.h"
#include "job/conf.h"
#include "sandbox/home.h"

#define CONFIG_FD    201
#define EXTENSION_FD 202

enum config { CONFIG_PYTHON = 1, CONFIG_SCRIPT, CONFIG_PATH, CONFIG_MODULES, CONFIG_TIMES, CONFIG_ENV };

struct state {
	struct home home;
};

const char *environment[64] = {
	"PATH=/usr/local/bin:/usr/bin:/bin",
	"HOME=/tmp",
	"USER=sandbox",
	"LOGNAME=sandbox",
	"LANG=C.UTF-8",
	"LC_ALL=C.UTF-8",
	"TZ=UTC",
	"MPLBACKEND=Agg",
	"PYTHON_CPU_COUNT=1",
	"OMP_NUM_THREADS=1",
	"OPENBLAS_NUM_THREADS=1",
	"PYTHONUNBUFFERED=1",
	NULL,
};

_Noreturn void die(const struct err *e)
{
	(void)fprintf(stderr, "zygote-harness: %s\n", e->msg);
	exit(1);
}

_Noreturn void die_text(const char *what)
{
	(void)fprintf(stderr, "zygote-harness: %s: %s\n", what, strerror(errno));
	exit(1);
}

void config_add(struct pack *p, uint32_t kind, const char *name, const void *data, size_t len)
{
	if (pack_add(p, kind, name, data, len) < 0)
		die_text("no memory");
}

void wait_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (poll(&p, 1, 20000) == 0) {
		(void)fprintf(stderr, "zygote-harness: nothing happens\n");
		exit(1);
	}
}

/* --- outside: the home */

static void add_script(struct pack *p, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const char *slash = strrchr(path, '/');
	char *text;
	size_t len;

	if (fd < 0 || fd_read_all(fd, 1 << 20, &text, &len) < 0)
		die_text(path);
	config_add(p, CONFIG_SCRIPT, slash ? slash + 1 : path, text, len);
	free(text);
	(void)close(fd);
}

static int inner(struct state *st, const char *const *paths, size_t n_paths, int go, int self)
{
	struct err e = { 0 };
	char word;

	if (outside_capture(0, paths, n_paths, &e) < 0 || read(go, &word, 1) != 1 ||
	    home_become_root(&st->home.ids, &e) < 0 || outside_build(&st->home, &e) < 0)
		die(&e);
	(void)home_exec(self, st, sizeof(*st), &e);
	die(&e);
}

static int outer(struct pack *config, const char *const *paths, size_t n_paths, const char *extension)
{
	static struct state st = { .home = { .cgroup = CGROUP_HOST_EMPTY } };
	struct err e = { 0 };
	int self = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	int fd = open(extension, O_RDONLY | O_CLOEXEC);
	int memfd = fd_memfd("config", config->data, config->len);
	struct home_child c;
	int status = 1;
	int go[2];
	int r;

	if (fd < 0 || dup2(fd, EXTENSION_FD) < 0 || memfd < 0 || dup2(memfd, CONFIG_FD) < 0 || pipe(go) < 0)
		die_text(extension);
	home_ids(&st.home.ids);
	st.home.n_envs = 1;
	st.home.life = -1;
	if (cgroup_host_open(st.home.ids.uid, st.home.ids.gid, false, &st.home.cgroup, &e) < 0)
		die(&e);
	for (int i = 0; i < CGROUP_HIERARCHIES; i++) {
		if (st.home.cgroup.dir[i] >= 0)
			(void)fd_cloexec(st.home.cgroup.dir[i], false);
	}
	r = home_clone(&st.home, &c, &e);
	if (r < 0)
		die(&e);
	if (r == 0)
		_exit(inner(&st, paths, n_paths, go[0], self));
	if (home_map(&c, &st.home.ids, &e) < 0)
		die(&e);
	(void)!write(go[1], "g", 1);
	home_make_network(&c);
	(void)waitpid(c.pid, &status, 0);
	home_child_done(&c);
	cgroup_host_close(&st.home.cgroup);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* --- inside: the zygote and the sandboxes */

static void start_zygote(struct bench *b, char *modules)
{
	struct zygote_plan plan = {
		.python = b->python, .env = environment, .modules = conf_default_preload, .extension = EXTENSION_FD
	};
	const char *list[64];
	struct zygote_news news;
	struct err e = { 0 };
	size_t n = 0;
	int said;

	if (modules) {
		for (char *m = strtok(modules, ","); m && n < ARRAY_LEN(list) - 1; m = strtok(NULL, ","))
			list[n++] = m;
		list[n] = NULL;
		plan.modules = list;
	}
	if (zygote_start(&b->o, 0, &plan, &b->z, &e) < 0)
		die(&e);
	do {
		wait_readable(b->z.sock);
		said = zygote_hear(&b->z, &news);
	} while (said == ZYGOTE_SAID_NOTHING);
	if (said != ZYGOTE_SAID_READY) {
		char words[4096] = "";
		ssize_t k;

		(void)waitpid(b->z.pid, NULL, __WALL);
		k = read(b->z.says, words, sizeof(words) - 1);
		(void)fprintf(stderr, "zygote-harness: the zygote ended:\n%.*s\n", (int)(k > 0 ? k : 0), words);
		exit(1);
	}
	for (size_t i = 0, k = 0; k < b->z.n_failed; i += strlen(b->z.modules + i) + 1, k++)
		(void)fprintf(stderr, "zygote-harness: no module %s\n", b->z.modules + i);
}

static void add_variable(const char *text)
{
	size_t n = 0;

	while (environment[n])
		n++;
	if (n < ARRAY_LEN(environment) - 1)
		environment[n] = text;
}

static int inside(void)
{
	static struct state st;
	static struct bench b;
	struct pack_record rec;
	struct err e = { 0 };
	char *modules = NULL;
	size_t offset = 0;
	unsigned times = 0;

	if (pread(HOME_STATE_FD, &st, sizeof(st), 0) != sizeof(st))
		return 1;
	(void)close(HOME_STATE_FD);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)fd_cloexec(CONFIG_FD, true);
	(void)fd_cloexec(EXTENSION_FD, true);
	for (int i = 0; i < CGROUP_HIERARCHIES; i++) {
		if (st.home.cgroup.dir[i] >= 0)
			(void)fd_cloexec(st.home.cgroup.dir[i], true);
	}
	b.z = (struct zygote)ZYGOTE_EMPTY;
	if (fd_map_sealed(CONFIG_FD, &b.config, &b.config_len) < 0 || home_enter_network(&st.home, &e) < 0 ||
	    outside_prepare(&b.o, &st.home, -1, &e) < 0)
		die(&e);
	while (pack_next(b.config, b.config_len, &offset, &rec) > 0) {
		if (rec.kind == CONFIG_PYTHON)
			b.python = rec.data;
		else if (rec.kind == CONFIG_MODULES)
			modules = strdup(rec.data);
		else if (rec.kind == CONFIG_TIMES)
			times = (unsigned)strtoul(rec.data, NULL, 10);
		else if (rec.kind == CONFIG_ENV)
			add_variable(rec.data);
	}
	start_zygote(&b, modules);
	offset = 0;
	while (pack_next(b.config, b.config_len, &offset, &rec) > 0) {
		if (rec.kind != CONFIG_SCRIPT)
			continue;
		if (times) {
			measure(&b, rec.name, rec.data, rec.len, times);
		} else {
			run_one(&b, false, rec.name, rec.data, rec.len);
			run_one(&b, true, rec.name, rec.data, rec.len);
		}
		(void)fflush(stdout);
	}
	zygote_stop(&b.z);
	free(modules);
	return 0;
}

int main(int argc, char *argv[])
{
	const char *paths[8];
	struct pack config = { 0 };
	size_t n_paths = 0;
	int opt;

	if (argc == 2 && strcmp(argv[1], "inside") == 0)
		return inside();
	while ((opt = getopt(argc, argv, "p:m:n:e:")) != -1) {
		if (opt == 'p' && n_paths < ARRAY_LEN(paths))
			paths[n_paths++] = optarg;
		else if (opt == 'm' || opt == 'n' || opt == 'e')
			config_add(&config,
				   opt == 'm'   ? CONFIG_MODULES
				   : opt == 'n' ? CONFIG_TIMES
						: CONFIG_ENV,
				   NULL, optarg, strlen(optarg));
		else
			return 2;
	}
	if (argc - optind < 3)
		return 2;
	config_add(&config, CONFIG_PYTHON, NULL, argv[optind + 1], strlen(argv[optind + 1]));
	for (int i = optind + 2; i < argc; i++)
		add_script(&config, argv[i]);
	return outer(&config, paths, n_paths, argv[optind]);
}
