/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the kernel's facts to the words of cloche(1).
 *
 * If the main process ended by itself, that is the verdict, whatever timer fired meanwhile; else the cause that the
 * supervisor wrote down before its first SIGKILL; else the record of the OOM killer; else `signaled`.  A number is never
 * guessed from: 137 is an exit code like any other.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "run/front.h"

static enum status status_of_cause(uint32_t cause)
{
	switch ((enum wire_cause)cause) {
	case WIRE_CAUSE_TIMEOUT:
		return STATUS_TIMEOUT;
	case WIRE_CAUSE_CPU:
		return STATUS_CPU_LIMIT;
	case WIRE_CAUSE_MEMORY:
		return STATUS_MEMORY_LIMIT;
	case WIRE_CAUSE_OUTPUT:
		return STATUS_OUTPUT_LIMIT;
	case WIRE_CAUSE_CANCELLED:
		return STATUS_CANCELLED;
	case WIRE_CAUSE_REJECTED:
		return STATUS_REJECTED;
	case WIRE_CAUSE_NONE:
	case WIRE_CAUSE_FAILED:
		break;
	}
	return STATUS_INTERNAL_ERROR;
}

static enum status decide(const struct run *r)
{
	const struct wire_outcome *o = &r->outcome;

	if (!r->is_done || o->cause == WIRE_CAUSE_FAILED)
		return STATUS_INTERNAL_ERROR;
	if (o->code == CLD_EXITED)
		return o->status == 0 ? STATUS_OK : STATUS_ERROR;
	if (o->cause != WIRE_CAUSE_NONE)
		return status_of_cause(o->cause);
	if (o->code != CLD_KILLED && o->code != CLD_DUMPED)
		return STATUS_INTERNAL_ERROR;
	if (o->status == SIGXCPU && r->job->limits.cpu_ns && o->cpu_ns >= r->job->limits.cpu_ns)
		return STATUS_CPU_LIMIT; /* the backstop was first */
	if (o->oom_kills > 0 && o->status == SIGKILL)
		return STATUS_MEMORY_LIMIT;
	return STATUS_SIGNALED;
}

/* "1.5 seconds", without noise */
static void seconds(char *buf, size_t size, uint64_t ns)
{
	(void)snprintf(buf, size, "%.6g second%s", (double)ns / 1e9, ns == NS_PER_SEC ? "" : "s");
}

static void bytes(char *buf, size_t size, uint64_t n)
{
	if (n >= 1 << 20 && n % (1 << 20) == 0)
		(void)snprintf(buf, size, "%" PRIu64 " MiB", n >> 20);
	else
		(void)snprintf(buf, size, "%" PRIu64 " bytes", n);
}

/* What a Python that can't start a thread or process says is not what happened to it. */
static int say_error(struct run *r)
{
	const struct wire_outcome *o = &r->outcome;

	if (o->processes_refused > 0)
		return result_set_message(&r->result,
					  "the script exited with status %d; the kernel refused %" PRIu64
					  " new processes or threads at the limit of %u (processes)",
					  o->status, o->processes_refused, r->job->limits.processes);
	return result_set_message(&r->result, o->output_bytes[1] ? "the script exited with status %d; its stderr tells why"
								 : "the script exited with status %d", o->status);
}

/* Findings are lines "RULE LINE" out of a sandbox: numbers within bounds are taken, everything else is dropped. */
static bool next_finding(const struct run *r, const char **at, unsigned *ret_rule, unsigned *ret_line)
{
	while (**at) {
		const char *line = *at;

		*at = strchrnul(line, '\n');
		*at += **at == '\n';
		if (sscanf(line, "%5u %8u", ret_rule, ret_line) == 2 && *ret_rule < r->s->n_screen)
			return true;
	}
	return false;
}

static int say_rejected(struct run *r)
{
	const char *at = r->findings;
	unsigned rule, line;

	while (next_finding(r, &at, &rule, &line)) {
		if (rule < r->s->n_reject)
			return result_set_message(&r->result, "not run: line %u uses %s, which the screening policy rejects", line,
						  r->s->screen[rule] + strlen("reject:"));
	}
	return result_set_message(&r->result, "not run: the screening could not look through the script (too deep, too large or "
					      "too slow), and a rule would reject");
}

static int say(struct run *r)
{
	const struct job_limits *l = &r->job->limits;
	const struct wire_outcome *o = &r->outcome;
	char limit[48], reached[48], name[24];

	switch (r->result.status) {
	case STATUS_OK:
		return 0;
	case STATUS_ERROR:
		return say_error(r);
	case STATUS_SIGNALED:
		return result_set_message(&r->result, "the script was ended by %s, which cloche did not send",
					  signal_name(o->status, name, sizeof(name)));
	case STATUS_TIMEOUT:
		seconds(limit, sizeof(limit), r->job->timeout_ns);
		seconds(reached, sizeof(reached), o->execution_ns);
		return result_set_message(&r->result, "stopped after %s: the timeout is %s (timeout); what it had written is kept",
					  reached, limit);
	case STATUS_CPU_LIMIT:
		seconds(limit, sizeof(limit), l->cpu_ns);
		seconds(reached, sizeof(reached), o->cpu_ns);
		return result_set_message(&r->result, "stopped after %s of CPU time: the limit is %s (cpu_seconds)", reached, limit);
	case STATUS_MEMORY_LIMIT:
		bytes(limit, sizeof(limit), l->memory_bytes);
		bytes(reached, sizeof(reached), o->peak_bytes);
		return result_set_message(&r->result, "stopped: the sandbox reached its memory limit of %s (memory_bytes)%s%s", limit,
					  o->has_peak ? "; peak " : "", o->has_peak ? reached : "");
	case STATUS_OUTPUT_LIMIT:
		bytes(limit, sizeof(limit), l->output_bytes_hard);
		bytes(reached, sizeof(reached), o->output_bytes[0] + o->output_bytes[1]);
		return result_set_message(&r->result, "stopped after writing %s: the limit is %s in all (output_bytes_hard)", reached,
					  limit);
	case STATUS_CANCELLED:
		return result_set_message(&r->result, "stopped: the caller asked for it or went away");
	case STATUS_REJECTED:
		return say_rejected(r);
	case STATUS_INTERNAL_ERROR:
		break;
	}
	if (!r->is_done)
		return result_set_message(&r->result, "not the script's fault, safe to retry: %s", r->err.msg);
	return result_set_message(&r->result, "not the script's fault, safe to retry: %s%s%.319s",
				  o->err.msg[0] ? o->err.msg : "an outcome that can't be", o->remedy[0] ? "; remedy: " : "",
				  o->remedy);
}

static int warn_findings(struct run *r)
{
	const char *at = r->findings;
	unsigned rule, line;
	int k = 0;

	while (k == 0 && next_finding(r, &at, &rule, &line))
		k = result_warn(&r->result, "screening: line %u uses %s (%.6s)", line, r->s->screen[rule] + strlen("report:"),
				r->s->screen[rule]);
	if (k == 0 && r->outcome.is_screen_dead && r->result.status != STATUS_REJECTED)
		k = result_warn(&r->result, "screening: the script could not be looked through (too deep, too large or too slow)");
	return k;
}

static int warn_walls(struct run *r)
{
	int k = 0;

	for (size_t i = 0; i < r->s->n_walls && k == 0; i++) {
		const struct wall_report *w = &r->s->walls[i];

		if (w->state != WALL_FULL)
			k = result_warn(&r->result, "%s: %s", w->name, w->detail);
	}
	return k;
}

static int take_artifacts(struct run *r)
{
	/* figures are collected without being asked for */
	bool was_collected = r->job->artifacts.n || r->artifacts.n || r->artifacts.is_ended || r->outcome.is_artifacts_cut;
	int k;

	if (!was_collected || !r->is_done || r->result.status == STATUS_INTERNAL_ERROR ||
	    r->result.status == STATUS_REJECTED)
		return 0;
	k = artifacts_take(&r->artifacts, &r->result);
	if (k == -ENOMEM)
		return k;
	if (k < 0 || r->outcome.is_artifacts_cut)
		return result_warn(&r->result, "artifacts: collecting ended early; files may be missing");
	return 0;
}

int verdict_make(struct run *r)
{
	const struct wire_outcome *o = &r->outcome;
	struct result *res = &r->result;
	int k;

	supervisor_hear(r->s, false);
	res->status = decide(r);
	res->mode = o->is_warm ? JOB_MODE_WARM : JOB_MODE_COLD;
	res->execution_ns = o->execution_ns;
	res->queue_ns = o->queue_ns;
	res->cpu_ns = o->cpu_ns;
	res->has_peak_memory = o->has_peak;
	res->peak_memory_bytes = o->peak_bytes;
	if (res->status == STATUS_OK || res->status == STATUS_ERROR) {
		res->return_code = o->status;
	} else if (res->status == STATUS_REJECTED || res->status == STATUS_INTERNAL_ERROR) {
		res->return_code = RETURN_CODE_NOT_RUN;
	} else {
		res->signal = res->status == STATUS_SIGNALED ? o->status : SIGKILL;
		res->return_code = -res->signal;
	}
	k = say(r);
	if (k == 0)
		k = warn_findings(r);
	if (k == 0)
		k = warn_walls(r);
	if (k == 0 && o->note[0])
		k = result_warn(&r->result, "mode: cold, because %.*s", (int)sizeof(o->note), o->note);
	return k < 0 ? k : take_artifacts(r);
}
