/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a run, and why it ends: a table of state x event.
 *
 * A verdict is made of facts only: the cause that was written down before our first SIGKILL, what waitid said of the main
 * process, and the control group's counters.  The words for it are the front's (verdict.c).
 */
#include "run/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "run/look.h"
#include "run/work.h"

#define BUILD_NS   (10 * NS_PER_SEC) /* a sandbox that is not built by then never will be */
#define SCREEN_NS  (2 * NS_PER_SEC)
#define SWEEP_NS   (2 * NS_PER_SEC)
#define COLLECT_NS (10 * NS_PER_SEC)

static int clock_arm(int timer, uint64_t ns)
{
	struct itimerspec t = { .it_value = { .tv_sec = (time_t)(ns / NS_PER_SEC), .tv_nsec = (long)(ns % NS_PER_SEC) } };

	return timerfd_settime(timer, 0, &t, NULL) < 0 ? -errno : 0;
}

/* Enter a state; it has @ns to get on. */
static void enter(struct work *w, enum work_state state, uint64_t ns)
{
	w->state = state;
	(void)clock_arm(w->clock, ns);
}

/* Our fault, or the host's: nothing is claimed about the script. */
static void fail(struct work *w, const struct err *e)
{
	if (w->outcome.cause != WIRE_CAUSE_NONE)
		return;
	w->outcome.cause = WIRE_CAUSE_FAILED;
	w->outcome.err = *e;
}

/* Everything in the sandbox dies; what remains is reaping, and the pipes' ends. */
static void end(struct work *w)
{
	if (w->has_box)
		sandbox_kill(&w->box);
	enter(w, WORK_ENDING, 0);
}

static void end_failed(struct work *w, const struct err *e)
{
	fail(w, e);
	end(w);
}

static void end_cancelled(struct work *w)
{
	w->outcome.cause = WIRE_CAUSE_CANCELLED;
	end(w);
}

/* The main process is to end now, for @cause. */
static void kill_main(struct work *w, enum wire_cause cause)
{
	w->outcome.cause = cause;
	if (w->child.pidfd >= 0)
		(void)sandbox_signal(&w->child, SIGKILL);
	if (!w->job.has_artifacts)
		sandbox_kill(&w->box);
	enter(w, WORK_KILLING, SWEEP_NS);
}

static int child_watch(struct work *w)
{
	int r = watch_set(w->s, &w->watch[WATCH_MAIN], w->child.pidfd, EPOLLIN);

	return r == 0 ? watch_set(w->s, &w->watch[WATCH_STATUS], w->child.status, EPOLLIN) : r;
}

/* A process of ours in the sandbox: its output goes to the helper pump. */
static void start_helper(struct work *w, enum sandbox_role role, enum work_state state, uint64_t ns)
{
	bool is_screen = role == SANDBOX_SCREEN;
	struct sandbox_task task = {
		.role = role,
		.bundle = is_screen ? w->screen : w->bundle,
		.bundle_len = is_screen ? w->screen_len : w->bundle_len,
		.fds = { is_screen ? w->script : w->s->nothing, -1, w->s->nothing },
	};
	struct err e = { 0 };
	int pair[2];
	int r;

	if (pipe2(pair, O_CLOEXEC) < 0) {
		(void)err_set(&e, ERR_HOST, errno, "make a pipe");
		end_failed(w, &e);
		return;
	}
	watch_clear(w->s, &w->watch[WATCH_HELPER_OUT]);
	fd_close(&w->helper.fd);
	w->helper.fd = pair[0];
	w->helper.type = role == SANDBOX_COLLECT ? WIRE_ARTIFACTS : WIRE_FINDINGS;
	task.fds[1] = pair[1];
	(void)fcntl(pair[0], F_SETFL, O_NONBLOCK);
	r = sandbox_spawn(&w->s->outside, &w->box, &task, &w->child, &e);
	fd_close(&pair[1]);
	if (r == 0)
		r = child_watch(w);
	if (r == 0)
		r = watch_set(w->s, &w->watch[WATCH_HELPER_OUT], w->helper.fd, EPOLLIN);
	if (r < 0) {
		if (e.kind == ERR_NONE)
			(void)err_set(&e, ERR_HOST, -r, "watch a helper");
		end_failed(w, &e);
		return;
	}
	enter(w, state, ns);
}

static void start_main(struct work *w)
{
	struct sandbox_task task = {
		.role = SANDBOX_MAIN,
		.bundle = w->bundle,
		.bundle_len = w->bundle_len,
		.fds = { w->pipes[0], w->pipes[1], w->pipes[2] },
	};
	struct err e = { 0 };
	int r;

	r = sandbox_spawn(&w->s->outside, &w->box, &task, &w->child, &e);
	if (r == 0) {
		r = child_watch(w);
		if (r == 0)
			r = pump_start(w);
		if (r < 0)
			(void)err_set(&e, ERR_HOST, -r, "watch the script");
	}
	if (r < 0)
		end_failed(w, &e);
	else
		enter(w, WORK_STARTING, BUILD_NS);
}

static void on_ready(struct work *w)
{
	struct err e = { 0 };
	int r = pump_open(w);

	if (r < 0) {
		(void)err_set(&e, ERR_HOST, -r, "make the script's pipes");
		end_failed(w, &e);
		return;
	}
	pump_watch(w);
	if (w->is_probe)
		start_helper(w, SANDBOX_PROBE, WORK_COLLECTING, COLLECT_NS);
	else if (w->job.is_screened)
		start_helper(w, SANDBOX_SCREEN, WORK_SCREENING, SCREEN_NS);
	else
		start_main(w);
}

static void on_build_late(struct work *w)
{
	struct err e = { 0 };

	(void)err_set(&e, ERR_HOST, ETIMEDOUT, "build the sandbox");
	end_failed(w, &e);
}

static void on_broken(struct work *w)
{
	struct err e = { 0 };

	(void)err_set(&e, ERR_HOST, 0, "the sandbox's init is gone");
	end_failed(w, &e);
}

/* What the screen found, as far as it decides: its first rules reject.  Its words are hostile: only numbers are taken. */
static bool screen_rejects(struct work *w)
{
	char *save = NULL;
	char text[sizeof(w->findings)];

	memcpy(text, w->findings, w->findings_len);
	text[w->findings_len] = '\0';
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *rest;
		unsigned long rule = strtoul(line, &rest, 10);

		if (rest != line && *rest == ' ' && rule < w->job.n_reject)
			return true;
	}
	return false;
}

static void on_screened(struct work *w)
{
	static const char last[] = "end\n";
	struct {
		struct wire_head head;
		char text[sizeof(w->findings)];
	} m = { .head = { .type = WIRE_FINDINGS } };
	bool is_whole = w->outcome.code == CLD_EXITED && w->outcome.status == 0 && w->findings_len >= 4 &&
			memcmp(w->findings + w->findings_len - 4, last, 4) == 0;

	w->outcome.code = 0;
	w->outcome.status = 0;
	w->outcome.is_screen_dead = !is_whole;
	memcpy(m.text, w->findings, w->findings_len);
	(void)!pump_send(w, &m, sizeof(m.head) + w->findings_len); /* the channel's first message: there is room */
	if (is_whole ? !screen_rejects(w) : w->job.n_reject == 0) {
		start_main(w);
		return;
	}
	w->outcome.cause = WIRE_CAUSE_REJECTED;
	end(w);
}

/* A screen that takes too long is a dead one. */
static void on_screen_late(struct work *w)
{
	(void)sandbox_signal(&w->child, SIGKILL);
}

static void on_executed(struct work *w)
{
	struct err e = { 0 };

	w->started_ns = clock_now_ns();
	w->outcome.queue_ns = w->started_ns - w->job.arrived_ns;
	enter(w, WORK_RUNNING, w->job.timeout_ns);
	if (look_start(w) < 0) {
		(void)err_set(&e, ERR_HOST, errno, "watch the script's limits");
		fail(w, &e);
		kill_main(w, w->outcome.cause);
	}
}

/* Killed or ended before it could execute the interpreter: a message came, or it should have. */
static void on_not_started(struct work *w)
{
	struct err e = { 0 };

	(void)err_set(&e, ERR_HOST, 0, "the script's process ended before it was started");
	end_failed(w, &e);
}

static void on_ended(struct work *w)
{
	w->outcome.execution_ns = clock_now_ns() - w->started_ns;
	watch_clear(w->s, &w->watch[WATCH_LOOK]);
	watch_clear(w->s, &w->watch[WATCH_OOM]);
	if (!w->job.has_artifacts || w->outcome.cause == WIRE_CAUSE_CANCELLED || sandbox_sweep(&w->box) < 0)
		end(w);
	else
		enter(w, WORK_SWEEPING, SWEEP_NS);
}

static void on_deadline(struct work *w)
{
	kill_main(w, WIRE_CAUSE_TIMEOUT);
}

static void on_cpu(struct work *w)
{
	kill_main(w, WIRE_CAUSE_CPU);
}

static void on_memory(struct work *w)
{
	kill_main(w, WIRE_CAUSE_MEMORY);
}

static void on_output(struct work *w)
{
	kill_main(w, WIRE_CAUSE_OUTPUT);
}

static void on_cancel(struct work *w)
{
	kill_main(w, WIRE_CAUSE_CANCELLED);
}

/* SIGKILL was sent and main is still there: the whole sandbox goes. */
static void on_stuck(struct work *w)
{
	sandbox_kill(&w->box);
}

static void on_swept(struct work *w)
{
	start_helper(w, SANDBOX_COLLECT, WORK_COLLECTING, COLLECT_NS);
}

static void on_collected(struct work *w)
{
	end(w);
}

static void on_collect_late(struct work *w)
{
	w->outcome.is_artifacts_cut = 1;
	end(w);
}

static void on_nothing(struct work *w)
{
	(void)w;
}

/* An empty slot is impossible; were it to happen, the run ends as our fault (work_event()). */
static void (*const table[WORK_STATES][EVENTS])(struct work *) = {
	[WORK_BUILDING] = {
		[EVENT_READY] = on_ready,
		[EVENT_BROKEN] = on_broken,
		[EVENT_INIT_ENDED] = on_broken,
		[EVENT_DEADLINE] = on_build_late,
		[EVENT_CANCEL] = end_cancelled,
	},
	[WORK_SCREENING] = {
		[EVENT_BROKEN] = on_broken,
		[EVENT_INIT_ENDED] = on_broken,
		[EVENT_EXECUTED] = on_nothing,
		[EVENT_CHILD_ENDED] = on_screened,
		[EVENT_DEADLINE] = on_screen_late,
		[EVENT_DRAINED] = on_nothing,
		[EVENT_CANCEL] = end_cancelled,
	},
	[WORK_STARTING] = {
		[EVENT_BROKEN] = on_broken,
		[EVENT_INIT_ENDED] = on_broken,
		[EVENT_EXECUTED] = on_executed,
		[EVENT_CHILD_ENDED] = on_not_started,
		[EVENT_DEADLINE] = on_build_late,
		[EVENT_OUTPUT] = on_nothing,
		[EVENT_DRAINED] = on_nothing,
		[EVENT_CANCEL] = end_cancelled,
	},
	[WORK_RUNNING] = {
		[EVENT_BROKEN] = on_broken,
		[EVENT_INIT_ENDED] = on_broken,
		[EVENT_CHILD_ENDED] = on_ended,
		[EVENT_DEADLINE] = on_deadline,
		[EVENT_CPU] = on_cpu,
		[EVENT_MEMORY] = on_memory,
		[EVENT_OUTPUT] = on_output,
		[EVENT_CANCEL] = on_cancel,
		[EVENT_DRAINED] = on_nothing,
	},
	[WORK_KILLING] = {
		[EVENT_BROKEN] = on_nothing,
		[EVENT_INIT_ENDED] = on_nothing,
		[EVENT_CHILD_ENDED] = on_ended,
		[EVENT_DEADLINE] = on_stuck,
		[EVENT_CPU] = on_nothing,
		[EVENT_MEMORY] = on_nothing,
		[EVENT_OUTPUT] = on_nothing,
		[EVENT_CANCEL] = on_nothing,
		[EVENT_DRAINED] = on_nothing,
	},
	[WORK_SWEEPING] = {
		[EVENT_BROKEN] = on_collect_late,
		[EVENT_INIT_ENDED] = on_collect_late,
		[EVENT_SWEPT] = on_swept,
		[EVENT_DEADLINE] = on_collect_late,
		[EVENT_OUTPUT] = on_nothing,
		[EVENT_CANCEL] = end,
		[EVENT_DRAINED] = on_nothing,
	},
	[WORK_COLLECTING] = {
		[EVENT_BROKEN] = on_collect_late,
		[EVENT_INIT_ENDED] = on_collect_late,
		[EVENT_EXECUTED] = on_nothing,
		[EVENT_CHILD_ENDED] = on_collected,
		[EVENT_DEADLINE] = on_collect_late,
		[EVENT_OUTPUT] = on_nothing,
		[EVENT_CANCEL] = end,
		[EVENT_DRAINED] = on_nothing,
	},
	[WORK_ENDING] = {
		[EVENT_READY] = on_nothing,
		[EVENT_BROKEN] = on_nothing,
		[EVENT_EXECUTED] = on_nothing,
		[EVENT_CHILD_ENDED] = on_nothing,
		[EVENT_DEADLINE] = on_nothing,
		[EVENT_OUTPUT] = on_nothing,
		[EVENT_SWEPT] = on_nothing,
		[EVENT_INIT_ENDED] = on_nothing,
		[EVENT_CANCEL] = on_nothing,
		[EVENT_DRAINED] = on_nothing,
	},
};

void work_event(struct work *w, enum work_event ev)
{
	struct err e = { 0 };

	if (w->is_done)
		return;
	if (table[w->state][ev]) {
		table[w->state][ev](w);
		return;
	}
	(void)err_set(&e, ERR_BUG, 0, "event %d in state %d", (int)ev, (int)w->state);
	end_failed(w, &e);
}

/*
 * The screen's words are kept for the decision; everything else of a helper goes to the channel.
 * Return: whether there may be more at once.
 */
static bool helper_said(struct work *w)
{
	ssize_t n;

	if (w->state != WORK_SCREENING) {
		pump_output(w, &w->helper, &w->watch[WATCH_HELPER_OUT]);
		return false;
	}
	n = read(w->helper.fd, w->findings + w->findings_len, sizeof(w->findings) - 1 - w->findings_len);
	if (n < 0)
		return false;
	w->findings_len += (size_t)n;
	if (n == 0) { /* its end, or more than a screen may say */
		watch_clear(w->s, &w->watch[WATCH_HELPER_OUT]);
		fd_close(&w->helper.fd);
	}
	return true;
}

/* The child of this state has ended: what it was is in the outcome, for the script it is the verdict. */
static void child_ended(struct work *w)
{
	struct rusage usage;
	siginfo_t info;

	if (sandbox_reap(&w->child, &info, &usage) != 1)
		return;
	watch_clear(w->s, &w->watch[WATCH_MAIN]);
	watch_clear(w->s, &w->watch[WATCH_STATUS]);
	while (w->state == WORK_SCREENING && w->helper.fd >= 0 && helper_said(w)) /* its last words */
		;
	if (w->state == WORK_COLLECTING) {
		w->outcome.is_artifacts_cut |= info.si_code != CLD_EXITED || info.si_status != 0;
	} else if (w->state == WORK_RUNNING || w->state == WORK_KILLING || w->state == WORK_SCREENING) {
		w->outcome.code = info.si_code;
		w->outcome.status = info.si_status;
		w->usage_ns += look_usage_ns(&usage);
	}
	work_event(w, EVENT_CHILD_ENDED);
}

/* The status pipe: its end means that exec has succeeded; else a step of the lock-down has failed. */
static void status_said(struct work *w)
{
	struct err e = { 0 };
	struct step_fail f;
	ssize_t n = read(w->child.status, &f, sizeof(f));

	if (n < 0)
		return;
	watch_clear(w->s, &w->watch[WATCH_STATUS]);
	if (n == 0) {
		work_event(w, EVENT_EXECUTED);
		return;
	}
	f.step[sizeof(f.step) - 1] = '\0';
	if (strcmp(f.step, "exec") == 0)
		(void)err_set(&e, f.sys == ENOENT ? ERR_NOT_FOUND : f.sys == EACCES || f.sys == ENOEXEC ? ERR_ACCESS : ERR_HOST,
			      f.sys, "execute the interpreter");
	else if (strcmp(f.step, "files") == 0)
		(void)err_set(&e, ERR_HOST, f.sys, "write the script and its files (they must fit in disk_bytes and disk_files)");
	else
		(void)err_set(&e, ERR_HOST, f.sys, "lock the sandbox down: step %s", f.step);
	end_failed(w, &e);
}

/* main may have come and gone before its status was looked at */
static void main_said(struct work *w)
{
	if (w->watch[WATCH_STATUS].fd >= 0)
		status_said(w);
	if (w->child.pidfd >= 0)
		child_ended(w);
}

static void init_said(struct work *w)
{
	struct err e = { 0 };
	int said = sandbox_hear(&w->box, &e);

	if (said < 0) {
		watch_clear(w->s, &w->watch[WATCH_INIT_SOCK]);
		end_failed(w, &e);
	} else if (said == SANDBOX_SAID_READY) {
		work_event(w, EVENT_READY);
	} else if (said == SANDBOX_SAID_SWEPT) {
		work_event(w, EVENT_SWEPT);
	} else if (said == SANDBOX_SAID_END) {
		watch_clear(w->s, &w->watch[WATCH_INIT_SOCK]);
		work_event(w, EVENT_BROKEN);
	}
}

static void init_ended(struct work *w)
{
	struct rusage usage = { 0 };

	if (sandbox_reap_init(&w->box, &usage) != 1)
		return;
	watch_clear(w->s, &w->watch[WATCH_INIT]);
	w->usage_ns += look_usage_ns(&usage);
	w->usage_ns -= w->usage_ns < w->box.init_cpu_ns ? w->usage_ns : w->box.init_cpu_ns;
	work_event(w, EVENT_INIT_ENDED);
}

void supervise_event(struct supervise *s, struct watch *watch, uint32_t events)
{
	struct work *w = watch->work;
	uint64_t ticks;

	if (w->is_done || watch->fd < 0)
		return;
	switch (watch->kind) {
	case WATCH_CHANNEL:
		pump_channel(w, events);
		break;
	case WATCH_INIT_SOCK:
		init_said(w);
		break;
	case WATCH_INIT:
		init_ended(w);
		break;
	case WATCH_MAIN:
		main_said(w);
		break;
	case WATCH_STATUS:
		status_said(w);
		break;
	case WATCH_STDIN:
		pump_input(w);
		break;
	case WATCH_STDOUT:
		pump_output(w, &w->out[0], watch);
		break;
	case WATCH_STDERR:
		pump_output(w, &w->out[1], watch);
		break;
	case WATCH_HELPER_OUT:
		(void)helper_said(w);
		break;
	case WATCH_CLOCK:
		if (read(w->clock, &ticks, sizeof(ticks)) == sizeof(ticks))
			work_event(w, EVENT_DEADLINE);
		break;
	case WATCH_LOOK:
		look_again(w);
		break;
	case WATCH_OOM:
		look_oom(w);
		break;
	case WATCH_CONTROL:
	case WATCH_LIFE:
	case WATCH_MAX:
		break;
	}
	work_finish(w);
	(void)s;
}
