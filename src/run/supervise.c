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
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "run/look.h"
#include "run/work.h"

#define SCREEN_NS  (2 * NS_PER_SEC)
#define SWEEP_NS   (2 * NS_PER_SEC)
#define COLLECT_NS (10 * NS_PER_SEC)
#define STRAY_NS   (100 * NS_PER_MS)

void work_enter(struct work *w, enum work_state state, uint64_t ns)
{
	w->state = state;
	w->deadline_ns = ns ? clock_now_ns() + ns : 0;
	due_by(w->s, w->deadline_ns);
}

/* Our fault, or the host's: nothing is claimed about the script. */
static void fail(struct work *w, const struct err *e)
{
	if (w->outcome.cause != WIRE_CAUSE_NONE)
		return;
	w->outcome.cause = WIRE_CAUSE_FAILED;
	w->outcome.err = *e;
}

/* Everything in the sandbox dies; what remains is reaping, and the pipes' ends.  Where only init is left, it is the answer's turn first. */
static void end(struct work *w)
{
	w->is_init_due = w->has_box && w->is_empty;
	if (w->has_box && !w->is_empty)
		sandbox_kill(&w->box);
	work_enter(w, WORK_ENDING, STRAY_NS);
}

void work_fail(struct work *w, const struct err *e)
{
	fail(w, e);
	end(w);
}

static void end_cancelled(struct work *w)
{
	w->outcome.cause = WIRE_CAUSE_CANCELLED;
	end(w);
}

/* Is anything to be collected?  Decided once: figures that come later stay where they are. */
static void settle_artifacts(struct work *w)
{
	if (w->job.has_figures && !w->job.has_artifacts)
		w->job.has_artifacts = sandbox_has_file(&w->box, FIGURE_FIRST);
	w->job.has_figures = 0;
}

/* The main process is to end now, for @cause. */
static void kill_main(struct work *w, enum wire_cause cause)
{
	w->outcome.cause = cause;
	if (w->child.pidfd >= 0)
		(void)sandbox_signal(&w->child, SIGKILL);
	settle_artifacts(w);
	if (!w->job.has_artifacts)
		sandbox_kill(&w->box);
	work_enter(w, WORK_KILLING, SWEEP_NS);
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

	if (is_screen && !w->findings)
		w->findings = malloc(FINDINGS_MAX);
	if ((is_screen && !w->findings) || pipe2(pair, O_CLOEXEC) < 0) {
		(void)err_set(&e, ERR_HOST, errno, "make a pipe");
		work_fail(w, &e);
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
		watch_clear(w->s, &w->watch[WATCH_HELPER_OUT]);
		fd_close(&w->helper.fd); /* nobody would see its end */
		if (e.kind == ERR_NONE)
			(void)err_set(&e, ERR_HOST, -r, "watch a helper");
		work_fail(w, &e);
		return;
	}
	work_enter(w, state, ns);
}

void work_start_main(struct work *w)
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
		if (r < 0)
			(void)err_set(&e, ERR_HOST, -r, "watch the script");
	}
	if (r < 0) {
		work_fail(w, &e);
		return;
	}
	work_enter(w, WORK_STARTING, BUILD_NS);
	pump_start(w, 0);
}

static void on_ready(struct work *w)
{
	struct err e = { 0 };
	int r = pump_open(w);

	if (r < 0) {
		(void)err_set(&e, ERR_HOST, -r, "make the script's pipes");
		work_fail(w, &e);
		return;
	}
	pump_watch(w);
	if (w->pool)
		warm_fork(w);
	else if (w->is_probe)
		start_helper(w, SANDBOX_PROBE, WORK_COLLECTING, COLLECT_NS);
	else if (w->job.is_screened)
		start_helper(w, SANDBOX_SCREEN, WORK_SCREENING, SCREEN_NS);
	else
		work_start_main(w);
}

void work_build_late(struct work *w)
{
	struct err e = { 0 };

	(void)err_set(&e, ERR_HOST, ETIMEDOUT, "build the sandbox");
	work_fail(w, &e);
}

static void on_broken(struct work *w)
{
	struct err e = { 0 };

	(void)err_set(&e, ERR_HOST, 0, "the sandbox's init is gone");
	work_fail(w, &e);
}

/* What the screen found, as far as it decides: its first rules reject.  Its words are hostile: only numbers are taken. */
static bool screen_rejects(struct work *w)
{
	char *save = NULL;
	char text[FINDINGS_MAX];

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
		char text[FINDINGS_MAX];
	} m = { .head = { .type = WIRE_FINDINGS } };
	bool is_whole = w->outcome.code == CLD_EXITED && w->outcome.status == 0 && w->findings_len >= 4 &&
			memcmp(w->findings + w->findings_len - 4, last, 4) == 0;

	w->outcome.code = 0;
	w->outcome.status = 0;
	w->outcome.is_screen_dead = !is_whole;
	memcpy(m.text, w->findings, w->findings_len);
	(void)!pump_send(w, &m, sizeof(m.head) + w->findings_len); /* the channel's first message: there is room */
	if (is_whole ? !screen_rejects(w) : w->job.n_reject == 0) {
		work_start_main(w);
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

void work_begin(struct work *w, uint64_t now)
{
	struct err e = { 0 };

	w->started_ns = now;
	w->outcome.queue_ns = now - w->job.arrived_ns;
	work_enter(w, WORK_RUNNING, w->job.timeout_ns);
	if (w->child.listener >= 0 && look_is_counted(w) && !w->job.has_artifacts) /* for on_leaving() */
		sandbox_watch_end(&w->s->outside, &w->child);
	if (look_start(w) < 0) {
		(void)err_set(&e, ERR_HOST, errno, "watch the script's limits");
		fail(w, &e);
		kill_main(w, w->outcome.cause);
	}
}

static void on_executed(struct work *w)
{
	work_begin(w, clock_now_ns());
	if (w->child.listener >= 0) /* else, and without a watch: its end decides, as ever */
		(void)!watch_set(w->s, &w->watch[WATCH_SOCKET], w->child.listener, EPOLLIN);
}

/* Killed or ended before it could execute the interpreter: a message came, or it should have. */
static void on_not_started(struct work *w)
{
	struct err e = { 0 };

	(void)err_set(&e, ERR_HOST, 0, "the script's process ended before it was started");
	work_fail(w, &e);
}

static void main_is_over(struct work *w, bool is_empty)
{
	w->outcome.execution_ns = clock_now_ns() - w->started_ns;
	w->look_ns = 0;
	watch_clear(w->s, &w->watch[WATCH_OOM]);
	w->is_empty = is_empty;
	if (!w->job.has_artifacts || w->outcome.cause == WIRE_CAUSE_CANCELLED || sandbox_sweep(&w->box) < 0)
		end(w);
	else
		work_enter(w, WORK_SWEEPING, SWEEP_NS);
}

static void on_ended(struct work *w)
{
	settle_artifacts(w);
	/* to end, an init takes its mounts apart: nobody has to wait for that whose processes are all gone */
	main_is_over(w, !w->job.has_artifacts && look_is_counted(w) && sandbox_is_empty(&w->box));
}

/*
 * Main's memory is still being taken apart, which takes longer than many a script.  What it exited with stands already, nothing can be
 * written any more, and that nothing else is running is what we were told: nobody has to wait for the rest (ADR 27).
 */
static void on_leaving(struct work *w)
{
	settle_artifacts(w);
	if (!WIFEXITED(w->left_status) || w->job.has_artifacts || !look_is_counted(w))
		return; /* its end decides */
	pump_hold(w);
	if (!pump_rest(w)) {
		pump_release(w);
		return;
	}
	w->outcome.code = CLD_EXITED;
	w->outcome.status = WEXITSTATUS(w->left_status);
	main_is_over(w, true);
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

static void on_collect_late(struct work *w)
{
	w->outcome.is_artifacts_cut = 1;
	end(w);
}

/*
 * An init ends only when all in its sandbox are reaped, and some may be our children without our knowing: those of a zygote
 * that died before it could tell.  And a child may be there that could not be watched.
 */
static void on_ending_late(struct work *w)
{
	if (w->box.init == 0 && w->child.pidfd < 0)
		return;
	if (w->child.pidfd >= 0)
		(void)!watch_set(w->s, &w->watch[WATCH_MAIN], w->child.pidfd, EPOLLIN);
	if (w->is_init_due)
		sandbox_kill(&w->box);
	supervise_reap_strays(w->s);
	work_enter(w, WORK_ENDING, STRAY_NS);
}

static void on_nothing(struct work *w)
{
	(void)w;
}

/* An empty slot is impossible; were it to happen, the run ends as our fault (work_event()). */
static void (*const table[WORK_STATES][EVENTS])(struct work *) = {
	[WORK_BUILDING] = {
		[EVENT_READY] = on_ready,
		[EVENT_JOB] = on_nothing,
		[EVENT_BROKEN] = on_broken,
		[EVENT_INIT_ENDED] = on_broken,
		[EVENT_DEADLINE] = work_build_late,
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
	[WORK_FORKING] = {
		[EVENT_PARKED] = warm_parked,
		[EVENT_NO_FORK] = warm_lost,
		[EVENT_JOB] = on_nothing,
		[EVENT_BROKEN] = on_broken,
		[EVENT_INIT_ENDED] = on_broken,
		[EVENT_CHILD_ENDED] = warm_lost,
		[EVENT_DEADLINE] = warm_late,
		[EVENT_DRAINED] = on_nothing,
		[EVENT_CANCEL] = end_cancelled,
	},
	[WORK_PARKED] = {
		[EVENT_JOB] = warm_hand_over,
		[EVENT_BROKEN] = on_broken,
		[EVENT_INIT_ENDED] = on_broken,
		[EVENT_CHILD_ENDED] = on_broken,
		[EVENT_DEADLINE] = on_nothing,
		[EVENT_CANCEL] = end_cancelled,
	},
	[WORK_STARTING] = {
		[EVENT_BROKEN] = on_broken,
		[EVENT_INIT_ENDED] = on_broken,
		[EVENT_EXECUTED] = on_executed,
		[EVENT_CHILD_ENDED] = on_not_started,
		[EVENT_DEADLINE] = work_build_late,
		[EVENT_OUTPUT] = on_nothing,
		[EVENT_DRAINED] = on_nothing,
		[EVENT_CANCEL] = end_cancelled,
	},
	[WORK_RUNNING] = {
		[EVENT_EXECUTED] = on_nothing,
		[EVENT_BROKEN] = on_broken,
		[EVENT_INIT_ENDED] = on_broken,
		[EVENT_LEAVING] = on_leaving,
		[EVENT_CHILD_ENDED] = on_ended,
		[EVENT_DEADLINE] = on_deadline,
		[EVENT_CPU] = on_cpu,
		[EVENT_MEMORY] = on_memory,
		[EVENT_OUTPUT] = on_output,
		[EVENT_CANCEL] = on_cancel,
		[EVENT_DRAINED] = on_nothing,
	},
	[WORK_KILLING] = {
		[EVENT_EXECUTED] = on_nothing,
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
		[EVENT_CHILD_ENDED] = end,
		[EVENT_DEADLINE] = on_collect_late,
		[EVENT_OUTPUT] = on_nothing,
		[EVENT_CANCEL] = end,
		[EVENT_DRAINED] = on_nothing,
	},
	[WORK_ENDING] = {
		[EVENT_READY] = on_nothing,
		[EVENT_PARKED] = on_nothing,
		[EVENT_NO_FORK] = on_nothing,
		[EVENT_BROKEN] = on_nothing,
		[EVENT_EXECUTED] = on_nothing,
		[EVENT_CHILD_ENDED] = on_nothing,
		[EVENT_DEADLINE] = on_ending_late,
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
	work_fail(w, &e);
}
