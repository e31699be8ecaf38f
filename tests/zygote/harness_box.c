/* SPDX-License-Identifier: Apache-2.0 */
/* The harness's sandboxes: a script is run in one, cold or warm, or again and again for its times. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "harness.h"

static int make_bundle(const struct bench *b, const char *name, const char *text, size_t len)
{
	bool is_buffered = strstr(name, "buffered");
	struct pack p = { 0 };
	char path[300];
	int fd;

	(void)snprintf(path, sizeof(path), "/tmp/%s", name);
	config_add(&p, SANDBOX_EXEC, NULL, b->python, strlen(b->python));
	config_add(&p, SANDBOX_ARG, NULL, b->python, strlen(b->python));
	config_add(&p, SANDBOX_ARG, NULL, path, strlen(path));
	if (strstr(name, "args")) {
		config_add(&p, SANDBOX_ARG, NULL, "one", 3);
		config_add(&p, SANDBOX_ARG, NULL, "\xff two", 5);
	}
	for (size_t i = 0; environment[i]; i++) {
		if (!is_buffered || strncmp(environment[i], "PYTHONUNBUFFERED", 16) != 0)
			config_add(&p, SANDBOX_ENV, NULL, environment[i], strlen(environment[i]));
	}
	if (strstr(name, "environ"))
		config_add(&p, SANDBOX_ENV, NULL, "EXTRA=\xffx=y", 9);
	config_add(&p, SANDBOX_FILE, name, text, len);
	fd = fd_memfd("bundle", p.data, p.len);
	pack_done(&p);
	if (fd < 0)
		die_text("bundle");
	return fd;
}

static void make_box(struct bench *b, unsigned slot, struct sandbox *box)
{
	struct sandbox_spec spec = { .memory_bytes = 512 << 20,
				     .disk_bytes = 64 << 20,
				     .cpu_milli = 1000,
				     .processes = 64,
				     .disk_files = 1000,
				     .open_files = 256,
				     .has_loopback = 1 };
	struct err e = { 0 };

	if (sandbox_create(&b->o, slot, 0, &spec, box, &e) < 0)
		die(&e);
	while (!box->is_ready) {
		char step[24] = "";
		int said;

		wait_readable(box->init_sock);
		said = sandbox_hear(&b->o, box, step, &e);
		if (said < 0 || said == SANDBOX_SAID_END)
			die(&e);
	}
}

struct ends {
	int theirs[3];
	int ours[3];
};

static void make_pipes(const struct bench *b, const struct sandbox *box, struct ends *p)
{
	for (int i = 0; i < 3; i++) {
		int pair[2];

		if (pipe2(pair, O_CLOEXEC) < 0)
			die_text("pipe");
		if (sandbox_pipe_owner(&b->o, box, pair[0]) < 0 || sandbox_pipe_owner(&b->o, box, pair[1]) < 0)
			die_text("fchown");
		p->theirs[i] = pair[i == 0 ? 0 : 1];
		p->ours[i] = pair[i == 0 ? 1 : 0];
	}
}

/* A parked process of the zygote's. */
static void park(struct bench *b, struct sandbox *box, const struct ends *p, struct sandbox_child *c)
{
	struct zygote_news news = { 0 };
	struct err e = { 0 };
	int said = ZYGOTE_SAID_NOTHING;
	int r = 0;

	if (zygote_ask(&b->o, &b->z, box, 7, true, p->theirs, c, &e) < 0)
		die(&e);
	while (said == ZYGOTE_SAID_NOTHING) {
		wait_readable(b->z.sock);
		said = zygote_hear(&b->z, &news);
	}
	if (said != ZYGOTE_SAID_FORKED || news.tag != 7 || news.pid == 0) {
		char words[256];

		zygote_last_words(&b->z, words, sizeof(words));
		(void)err_set(&e, ERR_HOST, news.sys, "no fork (%s)", words);
		die(&e);
	}
	if (zygote_adopt(c, news.pid, &e) < 0)
		die(&e);
	while (r == 0) {
		wait_readable(c->status);
		r = zygote_parked(c, &e);
	}
	if (r < 0)
		die(&e);
	if (c->listener >= 0)
		sandbox_let_socket(box, c); /* its init lets every socket be made: nothing is used again here */
}

static void drain(struct ends *p, struct buf out[2], int pidfd)
{
	uint64_t until = clock_now_ns() + 30 * NS_PER_SEC;

	for (int open_ends = 2; open_ends > 0;) {
		struct pollfd f[] = { { .fd = p->ours[1], .events = POLLIN }, { .fd = p->ours[2], .events = POLLIN } };

		if (poll(f, 2, 1000) == 0 && clock_now_ns() > until) {
			(void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
			return;
		}
		for (int i = 0; i < 2; i++) {
			char data[4096];
			ssize_t n;

			if (!f[i].revents)
				continue;
			n = read(p->ours[i + 1], data, sizeof(data));
			if (n > 0 && buf_add(&out[i], data, (size_t)n) == 0)
				continue;
			fd_close(&p->ours[i + 1]);
			open_ends--;
		}
	}
}

static void say_hex(const char *key, const struct buf *b)
{
	(void)printf(", \"%s\": \"", key);
	for (size_t i = 0; i < b->len; i++)
		(void)printf("%02x", (unsigned char)b->data[i]);
	(void)printf("\"");
}

static void finish(struct bench *b, struct sandbox *box, struct sandbox_child *c, struct ends *p, siginfo_t *ret,
		   struct rusage *usage)
{
	for (int i = 0; i < 3; i++)
		fd_close(&p->ours[i]);
	for (int r = 0; r == 0;) {
		wait_readable(c->pidfd);
		r = sandbox_reap(c, ret, usage);
		if (r < 0)
			die_text("reap");
	}
	sandbox_destroy(&b->o, box);
}

void run_one(struct bench *b, bool is_warm, const char *name, const char *text, size_t len)
{
	int bundle = make_bundle(b, name, text, len);
	struct sandbox_child c = SANDBOX_CHILD_EMPTY;
	struct sandbox box = SANDBOX_EMPTY;
	struct err e = { 0 };
	struct buf out[2];
	const char *mapped;
	const char *why;
	size_t mapped_len;
	siginfo_t info;
	struct rusage usage;
	struct ends p;
	bool is_buffered = false;

	buf_init(&out[0], 1 << 20);
	buf_init(&out[1], 1 << 20);
	make_box(b, 0, &box);
	make_pipes(b, &box, &p);
	if (fd_map_sealed(bundle, &mapped, &mapped_len) < 0)
		die_text("map");
	why = zygote_fits(&b->z, mapped, mapped_len, &is_buffered);
	if (why) {
		(void)fprintf(stderr, "zygote-harness: %s: %s\n", name, why);
		exit(1);
	}
	if (is_warm) {
		park(b, &box, &p, &c);
		if (zygote_go(&c, bundle, NULL, 0, is_buffered) < 0)
			die_text("go");
	} else {
		struct sandbox_task task = { .role = SANDBOX_MAIN, .bundle = mapped, .bundle_len = mapped_len };

		memcpy(task.fds, p.theirs, sizeof(task.fds));
		if (sandbox_spawn(&b->o, &box, &task, &c, &e) < 0)
			die(&e);
	}
	for (int i = 0; i < 3; i++)
		fd_close(&p.theirs[i]);
	(void)!write(p.ours[0], "input line\nanother\n", 19);
	fd_close(&p.ours[0]);
	drain(&p, out, c.pidfd);
	finish(b, &box, &c, &p, &info, &usage);
	(void)printf("{\"name\": \"%s\", \"mode\": \"%s\", \"code\": %d, \"status\": %d", name,
		     is_warm ? "warm" : "cold", info.si_code, info.si_status);
	say_hex("out", &out[0]);
	say_hex("err", &out[1]);
	(void)printf("}\n");
	buf_done(&out[0]);
	buf_done(&out[1]);
	(void)munmap((void *)(uintptr_t)mapped, mapped_len);
	(void)close(bundle);
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* "Private_Dirty" and "Pss" of a parked process, in KiB. */
static void say_memory(const struct bench *b, pid_t pid)
{
	static const char *const keys[] = { "Pss", "Private_Dirty" };
	char path[64];
	char text[2048];

	(void)snprintf(path, sizeof(path), "%d/smaps_rollup", (int)pid);
	if (fd_read_at(b->o.proc, path, text, sizeof(text)) < 0)
		return;
	for (int i = 0; i < 2; i++) {
		const char *at = strstr(text, keys[i]);

		if (at)
			(void)printf(", \"%s_kb\": %ld", keys[i], strtol(at + strlen(keys[i]) + 1, NULL, 10));
	}
}

void measure(struct bench *b, const char *name, const char *text, size_t len, unsigned times)
{
	uint64_t *took[2] = { calloc(times, sizeof(uint64_t)), calloc(times, sizeof(uint64_t)) };
	int bundle = make_bundle(b, name, text, len);
	uint64_t cpu_us = 0;
	long faults = 0;

	(void)printf("{\"name\": \"%s\"", name);
	for (unsigned i = 0; i < times; i++) {
		struct sandbox_child c = SANDBOX_CHILD_EMPTY;
		struct sandbox box = SANDBOX_EMPTY;
		struct buf out[2];
		struct ends p;
		siginfo_t info;
		struct rusage usage;
		uint64_t t;

		buf_init(&out[0], 1 << 20);
		buf_init(&out[1], 1 << 20);
		make_box(b, 0, &box);
		make_pipes(b, &box, &p);
		t = clock_now_ns();
		park(b, &box, &p, &c);
		took[0][i] = clock_now_ns() - t;
		if (i == times / 2)
			say_memory(b, c.pid);
		for (int k = 0; k < 3; k++)
			fd_close(&p.theirs[k]);
		t = clock_now_ns();
		if (zygote_go(&c, bundle, NULL, 0, false) < 0)
			die_text("go");
		drain(&p, out, c.pidfd);
		wait_readable(c.pidfd);
		took[1][i] = clock_now_ns() - t;
		finish(b, &box, &c, &p, &info, &usage);
		faults += usage.ru_minflt;
		cpu_us += (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
			  (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
		buf_done(&out[0]);
		buf_done(&out[1]);
	}
	for (int k = 0; k < 2; k++) {
		qsort(took[k], times, sizeof(uint64_t), by_size);
		(void)printf(", \"%s_us\": {\"min\": %.0f, \"p50\": %.0f, \"p99\": %.0f}",
			     k ? "go_to_exit" : "ask_to_parked", (double)took[k][0] / 1e3,
			     (double)took[k][times / 2] / 1e3, (double)took[k][times * 99 / 100] / 1e3);
		free(took[k]);
	}
	(void)printf(", \"faults\": %ld, \"cpu_us\": %llu}\n", faults / (long)times,
		     (unsigned long long)cpu_us / times);
	(void)close(bundle);
}
