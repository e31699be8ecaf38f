/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cloche-supervisor: the program that builds sandboxes and watches what runs in them.
 *
 * It is started with a control socket as descriptor 3 and nothing else, and it is three processes one after the other:
 *   outer   the caller's ids: prepares control groups, makes the home (home.h), waits for its end, cleans up
 *   inner   in the new namespaces: captures the allowed files, becomes their root, executes this program again
 *   inside  PID 1 of the home: one epoll loop over the control socket and every run
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/place.h"
#include "run/pool.h"
#include "run/prompt.h"
#include "run/setup.h"
#include "run/supervise.h"
#include "run/wire.h"
#include "sandbox/probe.h"

/* What survives the second exec. */
struct state {
	struct home home;
	int32_t setup;     /* the set-up's memfd */
	int32_t extension; /* of zygotes; -1: none is installed */
	int32_t go;        /* outer's word */
	struct probe_report reports[PROBE_WALLS];
};

static void say_walls(const struct probe_report *reports)
{
	static struct wire_walls m = { .head = { .type = WIRE_WALLS } };

	_Static_assert(PROBE_WALLS <= WALL_REPORTS_MAX, "every wall has room in the message");
	for (int i = 0; i < PROBE_WALLS; i++) {
		struct wall_report *w = &m.walls[i];

		w->state = reports[i].state;
		(void)snprintf(w->name, sizeof(w->name), "%s", probe_name((enum probe_wall)i));
		(void)snprintf(w->what, sizeof(w->what), "%s", probe_what((enum probe_wall)i));
		(void)snprintf(w->detail, sizeof(w->detail), "%s", reports[i].detail);
		(void)snprintf(w->remedy, sizeof(w->remedy), "%s", reports[i].remedy);
	}
	(void)fd_send(WIRE_CONTROL, &m, sizeof(m), NULL, 0);
}

static int say_failed(const struct err *e)
{
	struct wire_failed m = { .head = { .type = WIRE_FAILED }, .err = *e };

	(void)fd_send(WIRE_CONTROL, &m, sizeof(m), NULL, 0);
	return 1;
}

static int capture_all(const struct setup *s, struct err *e)
{
	const char *paths[OUTSIDE_PATHS_MAX];
	int r = 0;

	for (int i = 0; i < s->n_envs && r == 0; i++)
		r = outside_capture(i, paths, setup_paths(s, i, paths, ARRAY_LEN(paths)), e);
	setup_covers(s);
	return r;
}

/* What is asked for comes after we do, when our ids are mapped.  Return: 0; 1: it never came; -errno with @e set */
static int take_setup(struct setup *s, struct state *st, int go, struct err *e)
{
	int fds[FD_MAX_PASSED];
	size_t n_fds;
	char word;
	int r;

	if (fd_recv(go, &word, 1, fds, &n_fds) != 1 || n_fds != 1)
		return 1;
	s->fd = fds[0];
	st->setup =
		fcntl(s->fd, F_DUPFD, 50); /* it survives the exec, out of the way of WIRE_CONTROL and HOME_STATE_FD */
	r = st->setup < 0 ? err_set(e, ERR_HOST, errno, "keep the set-up") : setup_read(s, e);
	st->home.n_envs = s->n_envs;
	return r;
}

#define AGAIN 3 /* inner's exit status: not with this many ids */

/*
 * The child in the new namespaces; returns only on failure.
 *
 * Maps of several ids are written through a proc of our own: where none can be mounted, all is done again with one id.
 */
static int inner(struct state *st, int go, int self)
{
	static struct setup s;
	int wall = probe_wall_of_step("capture");
	struct err e = { 0 };
	int r;

	prompt_be();
	r = take_setup(&s, st, go, &e);
	if (r != 0)
		return r < 0 ? say_failed(&e) : 1;
	r = capture_all(&s, &e);
	if (e.kind == ERR_NOT_FOUND || e.kind == ERR_ACCESS)
		return say_failed(&e); /* not a wall: a folder that was asked for */
	if (r == 0) {
		wall = probe_wall_of_step("ids-home");
		r = home_become_root(&st->home.ids, &e);
	}
	if (r == 0) {
		wall = probe_wall_of_step("root");
		r = outside_build(&st->home, &e);
	}
	if (r == 0 && !st->home.has_proc && st->home.ids.count > 1)
		return AGAIN;
	if (r < 0) {
		probe_failed(wall, st->reports, &e);
		say_walls(st->reports);
		return say_failed(&e);
	}
	(void)fd_send(go, "k", 1, NULL, 0); /* no other try: the control socket is ours */
	st->go = fcntl(go, F_DUPFD, 50);
	if (st->go < 0)
		(void)err_set(&e, ERR_HOST, errno, "keep the way to the outer supervisor");
	else
		(void)home_exec(self, st, sizeof(*st), &e);
	return say_failed(&e);
}

static const int ending[] = { SIGTERM, SIGINT, SIGHUP };
static pid_t inner_pid;

static void on_signal(int sig)
{
	(void)sig;
	(void)kill(inner_pid, SIGKILL); /* the home dies with it; the clean-up goes on */
}

static int wait_for(pid_t pid)
{
	siginfo_t info;
	int status = 0;

	while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
		;
	for (size_t i = 0; i < ARRAY_LEN(ending); i++)
		(void)signal(ending[i], SIG_IGN); /* its pid will be somebody else's; what is left is the clean-up */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* What inner does now is waited for, and the kernel would keep us on its CPU: elsewhere, if there is one. */
static void make_way(void)
{
	cpu_set_t all;
	cpu_set_t others;
	int cpu = sched_getcpu();

	if (cpu < 0 || sched_getaffinity(0, sizeof(all), &all) < 0)
		return;
	others = all;
	CPU_CLR((size_t)cpu, &others);
	if (sched_setaffinity(0, sizeof(others), &others) == 0) /* or there is no other */
		(void)sched_setaffinity(0, sizeof(all), &all);
}

/* The child has its ids and, as soon as they are ready, its control groups (a v2 child was born in one of them). */
static int help(struct home_child *c, struct home *home, struct setup *s, int go, struct err *e)
{
	struct sigaction act = { .sa_handler = on_signal };
	int r = 0;

	inner_pid = c->pid;
	for (size_t i = 0; i < ARRAY_LEN(ending); i++)
		(void)sigaction(ending[i], &act, NULL);
	home_make_network(c);
	if (s->n_envs == 0)
		r = setup_take(s, e);
	if (r == 0)
		r = home_map(c, &home->ids, e);
	if (r == 0)
		(void)!fd_send(go, "m", 1, &s->fd, 1);
	make_way();
	home_reap_maker(c);
	if (r == 0 && home->cgroup.kind == CGROUP_NONE)
		r = cgroup_host_open(home->ids.uid, home->ids.gid, s->is_single, &home->cgroup, e);
	if (r == 0)
		(void)!cgroup_host_send(&home->cgroup, go); /* a child that is gone has told why itself */
	else
		(void)kill(c->pid, SIGKILL);
	return r;
}

/* The ends of outer's life: nobody else holds @life's other end, so its closing tells inner. */
static int outer_run(struct setup *s, struct state *st, int self, struct err *e)
{
	int life[2];
	int go[2];
	struct home_child c;
	char word;
	int code;
	int r;

	if (pipe2(life, O_CLOEXEC) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, go) < 0)
		return err_set(e, ERR_HOST, errno, "make a pipe");
	(void)fd_cloexec(life[0], false); /* it is to survive the exec */
	st->home.life = life[0];
	r = home_clone(&st->home, &c, e);
	if (r == 0) {
		(void)close(life[1]);
		(void)close(go[1]);
		_exit(inner(st, go[0], self));
	}
	if (r < 0) {
		probe_why_no_home(-r, st->reports, e);
		say_walls(st->reports);
		return r;
	}
	(void)close(go[0]);
	(void)close(life[0]);
	r = help(&c, &st->home, s, go[1], e);
	if (r == 0 && !s->is_single)
		cgroup_host_sweep(&st->home.cgroup);
	if (r == 0 && read(go[1], &word, 1) == 1) /* it stays */
		(void)close(WIRE_CONTROL); /* inner's alone: its death is heard at once, whatever clean-up is left */
	(void)close(go[1]);
	code = wait_for(c.pid);
	if (r == 0 && code != AGAIN && s->is_single) /* not before: it would take a CPU from what is waited for */
		cgroup_host_sweep(&st->home.cgroup);
	home_child_done(&c);
	return r < 0 ? r : code;
}

/* The module that zygotes load, beside our own program.  Return: a descriptor that survives the exec; -1: none */
static int open_extension(void)
{
	char path[4096];
	auto_fd int fd = -1;

	if (place_beside("_cloche.abi3.so", path, sizeof(path)) == 0)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -1 : fcntl(fd, F_DUPFD, 50);
}

static int outer(void)
{
	static struct state st = { .home = { .cgroup = CGROUP_HOST_EMPTY } };
	static struct setup s;
	struct err e = { 0 };
	int self = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	int r = 0;

	if (self < 0)
		r = err_set(&e, ERR_HOST, errno, "open /proc/self/exe");
	home_ids(&st.home.ids);
	st.extension = open_extension();
	if (r == 0 && cgroup_host_is_v2())                    /* or it would have to be moved, which is slow */
		r = cgroup_host_open(st.home.ids.uid, st.home.ids.gid, false, &st.home.cgroup, &e);
	if (r == 0)
		r = outer_run(&s, &st, self, &e);
	if (r == AGAIN) {
		st.home.ids.count = 1;
		r = outer_run(&s, &st, self, &e);
	}
	if (r < 0)
		r = say_failed(&e);
	cgroup_host_close(&st.home.cgroup);
	return r;
}

static void say_state(const struct supervise *s)
{
	struct wire_state m = { .head = { .type = WIRE_STATE } };

	m.n = (uint32_t)pool_state(s, m.pools, ARRAY_LEN(m.pools));
	(void)fd_send(WIRE_CONTROL, &m, sizeof(m), NULL, 0);
}

/* The front's end of the control socket: no more jobs come.  A front that died takes its runs' channels with it. */
static void take_control(struct supervise *s, struct watch *control)
{
	static struct wire_job_message m;
	const struct wire_head *head = &m.job.head;
	int fds[FD_MAX_PASSED];
	size_t n_fds;
	ssize_t n;

	n = fd_recv(WIRE_CONTROL, &m, sizeof(m), fds, &n_fds);
	if (n == -EAGAIN || n == -EMSGSIZE)
		return;
	if (n <= 0) {
		watch_clear(s, control);
		return;
	}
	if ((size_t)n >= sizeof(m.job) && (head->type == WIRE_JOB || head->type == WIRE_PROBE)) {
		supervise_job(s, &m, (size_t)n - sizeof(m.job), fds, n_fds);
		return;
	}
	if ((size_t)n == sizeof(*head) && head->type == WIRE_STATE)
		say_state(s);
	for (size_t i = 0; i < n_fds; i++)
		fd_close(&fds[i]);
}

static bool has_jobs(const struct supervise *s)
{
	for (unsigned i = 0, left = s->n_works; i < SANDBOX_SLOTS && left > 0; i++) {
		if (!s->works[i])
			continue;
		if (work_has_job(s->works[i]))
			return true;
		left--;
	}
	return false;
}

static void take_tick(struct supervise *s, const struct watch *tick)
{
	uint64_t n;

	if (read(tick->fd, &n, sizeof(n)) == sizeof(n))
		pool_tick(s);
}

static void loop(struct supervise *s, struct watch *control)
{
	struct epoll_event events[64];
	bool is_over = false;

	while (!is_over && (control->fd >= 0 || has_jobs(s))) {
		int n = epoll_wait(s->epoll, events, ARRAY_LEN(events), -1);

		for (int i = 0; i < n; i++) {
			struct watch *w = events[i].data.ptr;

			if (w->kind == WATCH_LIFE)
				is_over = true;
			else if (w->kind == WATCH_ZYGOTE)
				pool_event(s, w, events[i].events);
			else if (w->kind == WATCH_TICK)
				take_tick(s, w);
			else if (w->kind == WATCH_CONTROL && control->fd >= 0)
				take_control(s, control);
			else if (w->kind == WATCH_CONTROL)
				continue;
			else
				supervise_event(s, w, events[i].events);
		}
		supervise_reap(s);
		if (control->fd >= 0)
			pool_refill(s);
	}
}

/* Descriptors that came over the exec: closed in every child from here on. */
static void close_on_exec(const struct state *st)
{
	const struct home *h = &st->home;

	(void)fd_cloexec(WIRE_CONTROL, true);
	(void)fd_cloexec(st->setup, true);
	if (st->extension >= 0)
		(void)fd_cloexec(st->extension, true);
	(void)fd_cloexec(h->life, true);
	(void)fd_cloexec(st->go, true);
	(void)fd_cloexec(h->network, true);
	for (int i = 0; i < h->n_envs; i++) {
		if (h->mnt[i] >= 0)
			(void)fd_cloexec(h->mnt[i], true);
	}
}

/* What holds here, now that all is known; and whether it is enough. */
static int find_walls(struct supervise *s, struct state *st, const struct setup *setup, struct err *e)
{
	int r = outside_know_groups(&s->outside, e);

	if (r < 0)
		return r;
	probe_home(&st->home, st->reports);
	r = probe_demand(st->reports, setup->require, setup->allow, e);
	say_walls(st->reports);
	return r;
}

/* The first step on our own: the network namespace was made for us meanwhile. */
static int enter_network(struct state *st, struct err *e)
{
	int r = home_enter_network(&st->home, e);

	if (r < 0) {
		probe_failed(PROBE_NETWORK, st->reports, e);
		say_walls(st->reports);
	}
	return r;
}

/* What is kept ready, and the second hand that looks after it. */
static int start_pools(struct supervise *s, const struct setup *setup, int extension, struct watch *tick, struct err *e)
{
	struct itimerspec second = { .it_value = { .tv_sec = 1 }, .it_interval = { .tv_sec = 1 } };
	int timer;
	int r;

	r = pool_start(s, setup->pack, setup->len, extension, e);
	if (r < 0 || s->n_pools == 0)
		return r;
	s->outside.has_fresh_network = false; /* it is the zygotes' */
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (timer < 0 || timerfd_settime(timer, 0, &second, NULL) < 0 || watch_set(s, tick, timer, EPOLLIN) < 0)
		return err_set(e, ERR_HOST, errno, "make a timer");
	return 0;
}

static int inside(void)
{
	static struct supervise s = { .epoll = -1, .nothing = -1 };
	struct watch control = { .kind = WATCH_CONTROL, .fd = -1 };
	struct watch life = { .kind = WATCH_LIFE, .fd = -1 };
	struct watch tick = { .kind = WATCH_TICK, .fd = -1 };
	struct wire_head ready = { .type = WIRE_READY };
	struct pollfd asked = { .fd = WIRE_CONTROL, .events = POLLIN };
	static struct setup setup;
	static struct state st;
	struct err e = { 0 };
	int r;

	if (pread(HOME_STATE_FD, &st, sizeof(st), 0) != sizeof(st))
		return 1;
	(void)close(HOME_STATE_FD);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a race with the parent's end is seen on the life pipe */
	close_on_exec(&st);
	r = enter_network(&st, &e);
	if (r == 0)
		r = outside_prepare(&s.outside, &st.home, st.go, &e);
	s.epoll = epoll_create1(EPOLL_CLOEXEC);
	s.nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (r == 0 && (s.epoll < 0 || s.nothing < 0))
		r = err_set(&e, ERR_HOST, errno, "prepare the supervisor");
	if (r == 0)
		r = watch_set(&s, &control, WIRE_CONTROL, EPOLLIN);
	if (r == 0)
		r = watch_set(&s, &life, st.home.life, EPOLLIN);
	setup.fd = st.setup;
	if (r == 0)
		r = setup_read(&setup, &e); /* stays mapped: the pools' names are in it */
	s.max_works = setup.is_single ? 1 : 0;
	if (r == 0 && !setup.has_pools && poll(&asked, 1, 0) == 1)
		take_control(&s, &control); /* the first job's sandbox is begun while what holds here is found out */
	if (r == 0)
		r = find_walls(&s, &st, &setup, &e);
	if (r == 0)
		r = start_pools(&s, &setup, st.extension, &tick, &e);
	if (r < 0)
		return say_failed(&e);
	(void)fd_send(WIRE_CONTROL, &ready, sizeof(ready), NULL, 0);
	loop(&s, &control);
	(void)close(WIRE_CONTROL); /* before the channels of what is under way: who misses a run knows then why */
	pool_end(&s);
	supervise_end(&s);
	return 0;
}

int main(int argc, char *argv[])
{
	if (argc == 2 && strcmp(argv[1], "inside") == 0)
		return inside();
	if (argc == 1)
		return outer();
	(void)fprintf(stderr, "cloche-supervisor is started by cloche, not by hand\n");
	return 2;
}
