/* SPDX-License-Identifier: Apache-2.0 */
/* What a run's processes and descriptors say, turned into the events of supervise.c. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fd.h"
#include "run/look.h"
#include "run/pool.h"
#include "run/work.h"
#include "sandbox/probe.h"

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
	n = read(w->helper.fd, w->findings + w->findings_len, FINDINGS_MAX - 1 - w->findings_len);
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

	/* before they are closed: a process that was just cloned has copies of them, and what is watched lives as long */
	watch_clear(w->s, &w->watch[WATCH_MAIN]);
	watch_clear(w->s, &w->watch[WATCH_STATUS]);
	watch_clear(w->s, &w->watch[WATCH_SOCKET]);
	if (sandbox_reap(&w->child, &info, &usage) != 1) { /* it is said to have ended */
		struct err e = { 0 };

		(void)err_set(&e, ERR_BUG, 0, "a process that ended can't be reaped");
		work_fail(w, &e); /* it is tried again, see on_ending_late() */
		return;
	}
	while (w->state == WORK_SCREENING && w->helper.fd >= 0 && helper_said(w)) /* its last words */
		;
	w->is_parked = false;
	if (w->state == WORK_COLLECTING) {
		w->outcome.is_artifacts_cut |= info.si_code != CLD_EXITED || info.si_status != 0;
	} else if (w->state == WORK_RUNNING || w->state == WORK_KILLING || w->state == WORK_SCREENING) {
		w->outcome.code = info.si_code;
		w->outcome.status = info.si_status;
		w->usage_ns += look_usage_ns(&usage);
	}
	work_event(w, EVENT_CHILD_ENDED);
}

/* A zygote's child, until it has its job: it parks, or a step of its lock-down fails. */
static void parking_said(struct work *w)
{
	struct err e = { 0 };
	int r = zygote_parked(&w->child, &e);

	if (r > 0)
		w->is_parked = true;
	if (r > 0 && w->child.listener >= 0) {
		w->box.is_watched = w->box.spec.has_loopback;
		r = watch_set(w->s, &w->watch[WATCH_SOCKET], w->child.listener, EPOLLIN);
	}
	if (r < 0) {
		(void)snprintf(w->pool->why, sizeof(w->pool->why), "%.190s", e.msg);
		watch_clear(w->s, &w->watch[WATCH_STATUS]);
		work_event(w, EVENT_NO_FORK);
	} else if (w->is_parked && w->child.pid > 0) {
		work_event(w, EVENT_PARKED);
	}
}

void work_forked(struct work *w, const struct zygote_news *news)
{
	struct err e = { 0 };

	if (news->pid == 0 || zygote_adopt(&w->child, news->pid, &e) < 0 ||
	    watch_set(w->s, &w->watch[WATCH_MAIN], w->child.pidfd, EPOLLIN) < 0) {
		(void)snprintf(w->pool->why, sizeof(w->pool->why), "a fork failed: %.150s", e.msg[0] ? e.msg : strerror(news->sys));
		work_event(w, EVENT_NO_FORK);
		return;
	}
	if (w->is_parked) /* it was faster than the answer */
		work_event(w, EVENT_PARKED);
}

/* Has exec succeeded, or a step of the lock-down failed? */
static void status_said(struct work *w)
{
	struct err e = { 0 };
	struct step_fail f;
	int r;

	if (w->state == WORK_FORKING) {
		parking_said(w);
		return;
	}
	r = sandbox_told(&w->child, &f);
	if (r == 0)
		return;
	watch_clear(w->s, &w->watch[WATCH_STATUS]);
	if (r > 0) {
		fd_close(&w->child.status);
		work_event(w, EVENT_EXECUTED);
		return;
	}
	if (w->state == WORK_COLLECTING && !w->is_probe) { /* it costs the artifacts, not the result */
		w->outcome.is_artifacts_cut = 1;
		return;
	}
	if (strcmp(f.step, "exec") == 0)
		(void)err_set(&e, f.sys == ENOENT ? ERR_NOT_FOUND : f.sys == EACCES || f.sys == ENOEXEC ? ERR_ACCESS : ERR_HOST,
			      f.sys, "execute the interpreter");
	else if (strcmp(f.step, "files") == 0)
		(void)err_set(&e, ERR_HOST, f.sys, "write the script and its files (they must fit in disk_bytes and disk_files)");
	else
		(void)err_set(&e, ERR_HOST, f.sys, "lock the sandbox down: step %s", f.step);
	work_blame(w, probe_wall_of_step(f.step), &e);
	work_fail(w, &e);
}

/* main may have come and gone before its status was looked at; a warm one's is looked at then only */
static void status_rest(struct work *w)
{
	bool is_warm = w->outcome.is_warm && (w->state == WORK_RUNNING || w->state == WORK_KILLING);

	if (w->watch[WATCH_STATUS].fd >= 0 || (is_warm && w->child.status >= 0))
		status_said(w);
}

static void main_said(struct work *w)
{
	status_rest(w);
	if (w->listen_ns)
		pump_listen(w);
	if (w->child.pidfd >= 0)
		child_ended(w);
}

static void init_said(struct work *w)
{
	struct err e = { 0 };
	char step[24] = "";
	int said = sandbox_hear(&w->s->outside, &w->box, step, &e);

	if (said < 0) {
		watch_clear(w->s, &w->watch[WATCH_INIT_SOCK]);
		work_blame(w, probe_wall_of_step(step), &e);
		work_fail(w, &e);
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

	if (sandbox_reap_init(&w->s->outside, &w->box, &usage) != 1)
		return;
	watch_clear(w->s, &w->watch[WATCH_INIT]);
	w->usage_ns += look_usage_ns(&usage);
	w->usage_ns -= w->usage_ns < w->box.init_cpu_ns ? w->usage_ns : w->box.init_cpu_ns;
	pump_resume(w); /* now that nobody can write any more */
	work_event(w, EVENT_INIT_ENDED);
}

/* Whether it got as far as its script comes first: a step that failed has a status, too. */
static void leaving(struct work *w)
{
	status_rest(w);
	if (w->state == WORK_RUNNING && w->child.status < 0 &&
	    sandbox_foresee(&w->s->outside, &w->child, &w->left_status) > 0)
		work_event(w, EVENT_LEAVING);
}

/* The first socket of a run; those after it are not our business.  Or all processes have ended that could make one. */
static void socket_said(struct work *w, uint32_t events)
{
	watch_clear(w->s, &w->watch[WATCH_SOCKET]);
	if (events & EPOLLIN)
		sandbox_let_socket(&w->box, &w->child);
	else
		leaving(w);
}

void supervise_event(struct supervise *s, struct watch *watch, uint32_t events)
{
	struct work *w = watch->work;

	if (watch->kind == WATCH_CLOCK) {
		due_now(s);
		return;
	}
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
	case WATCH_SOCKET:
		socket_said(w, events);
		break;
	case WATCH_HELPER_OUT:
		(void)helper_said(w);
		break;
	case WATCH_OOM:
		look_oom(w);
		break;
	case WATCH_CONTROL:
	case WATCH_LIFE:
	case WATCH_MAX:
	case WATCH_CLOCK:
	case WATCH_ZYGOTE:
	case WATCH_TICK:
		break;
	}
	work_finish(w);
}
