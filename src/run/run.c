/* SPDX-License-Identifier: Apache-2.0 */
/* A run, from the caller's side: a job out, bytes and an outcome in, a result. */
#include "run/run.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "run/front.h"

#define STEP_MESSAGES 8 /* in one run_step() */
#define TAKE_MS       10000 /* dozens of jobs are waiting for a supervisor that takes none */
#ifdef CLOCHE_FAIL_STEPS
#define PATIENCE_NS (2 * NS_PER_SEC) /* as below: tests have no time */
#else
#define PATIENCE_NS (40 * NS_PER_SEC) /* beyond a run's timeout: building, clean-up, and thirty seconds for a busy host */
#endif

static const struct front_environment *environment_of(const struct supervisor *s, const char *name, uint32_t *ret_index)
{
	for (size_t i = 0; i < s->n_environments; i++) {
		if (strcmp(s->environments[i].name, name) == 0) {
			*ret_index = (uint32_t)i;
			return &s->environments[i];
		}
	}
	return NULL;
}

int run_make_id(char ret[33])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t bits[16];

	if (getrandom(bits, sizeof(bits), 0) != sizeof(bits))
		return -EIO;
	for (size_t i = 0; i < sizeof(bits); i++) {
		ret[2 * i] = digits[bits[i] >> 4];
		ret[2 * i + 1] = digits[bits[i] & 15];
	}
	ret[32] = '\0';
	return 0;
}

static bool takes_jobs(const struct supervisor *s, int wait_ms)
{
	struct pollfd p = { .fd = s->control, .events = POLLOUT };

	return s->control < 0 || poll(&p, 1, wait_ms) != 0; /* of one that has ended it is fd_send() that tells */
}

bool supervisor_takes_jobs(const struct supervisor *s)
{
	return takes_jobs(s, 0);
}

/* The screen's bodies, behind those that every job has. */
static int screen_bodies(const struct run *r, const struct front_environment *env, int fds[2], struct err *e)
{
	fds[0] = bundle_screen(r->s, env, e);
	if (fds[0] < 0)
		return fds[0];
	fds[1] = fd_memfd("script", r->job->script.data, r->job->script.len);
	if (fds[1] < 0 || lseek(fds[1], 0, SEEK_SET) < 0)
		return err_set(e, ERR_HOST, errno, "pack the job");
	return 0;
}

/* The job and its bodies, with the supervisor's end of the run's channel. */
static int send_job(struct run *r, const struct front_environment *env, const struct wire_job *j, int theirs, struct err *e)
{
	struct wire_job_message m = { .job = *j };
	int fds[4] = { theirs, -1, -1, -1 };
	size_t n = 1;
	size_t len;
	int ret;

	/* who starts many at once, and waits where the socket is full, sends small messages */
	ret = bundle_job(r->job, env, r->hooks.is_hasty && !j->is_screened ? m.body : NULL, &len, e);
	if (ret >= 0 && len == 0) {
		fds[n++] = ret;
		ret = 0;
	}
	if (ret == 0 && j->is_screened) {
		n = 4;
		ret = screen_bodies(r, env, fds + 2, e);
	}
	if (ret == 0 && !r->hooks.is_hasty && !takes_jobs(r->s, TAKE_MS))
		ret = err_set(e, ERR_HOST, ETIMEDOUT, "the supervisor does not take the job");
	if (ret == 0) {
		ret = fd_send(r->s->control, &m, sizeof(m.job) + len, fds, n);
		/* a supervisor that is gone already has said why, or its silence is told by run_step() */
		if (ret == -EPIPE || ret == -ECONNRESET)
			ret = 0;
		else if (ret < 0)
			ret = err_set(e, ERR_HOST, -ret, "send the job");
	}
	for (size_t i = 1; i < ARRAY_LEN(fds); i++)
		fd_close(&fds[i]);
	return ret;
}

/* Where runs come one behind the other the next one's is there already: it is made when nobody waits for it. */
static int make_channel(struct run *r, int *ret_theirs)
{
	int pair[2];

	if (r->hooks.is_hasty && r->s->spare[0] >= 0) {
		r->channel = take_fd(&r->s->spare[0]);
		*ret_theirs = take_fd(&r->s->spare[1]);
		return 0;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	r->channel = pair[0];
	*ret_theirs = pair[1];
	return 0;
}

static int start(struct run *r, struct err *e)
{
	const struct job *j = r->job;
	struct wire_job m = {
		.head = { .type = WIRE_JOB },
		.has_artifacts = j->artifacts.n > 0,
		.is_screened = r->s->n_screen > 0,
		.mode = j->mode == JOB_MODE_COLD ? WIRE_COLD : j->mode == JOB_MODE_WARM ? WIRE_WARM : WIRE_AUTO,
		.n_reject = (uint16_t)r->s->n_reject,
		.has_no_input = !r->is_streamed && j->input.len == 0,
		.timeout_ns = j->timeout_ns,
		.output_max = j->limits.output_bytes_hard,
		.arrived_ns = r->hooks.arrived_ns ? r->hooks.arrived_ns : clock_now_ns(),
	};
	const struct front_environment *env = environment_of(r->s, j->environment, &m.environment);
	auto_fd int theirs = -1;
	int ret;

	if (!env)
		return err_set(e, ERR_NOT_FOUND, 0, "environment: %.100s is not configured", j->environment);
	m.has_figures = env->has_figures;
	if (r->hooks.run_id)
		(void)snprintf(r->result.run_id, sizeof(r->result.run_id), "%s", r->hooks.run_id);
	else if (run_make_id(r->result.run_id) < 0)
		return err_set(e, ERR_HOST, errno, "make a run_id");
	bundle_spec(&j->limits, j->network, &m.spec);
	r->is_input_over = m.has_no_input;
	ret = make_channel(r, &theirs);
	if (ret < 0)
		return err_set(e, ERR_HOST, -ret, "make the run's channel");
	ret = send_job(r, env, &m, theirs, e);
	if (r->hooks.is_hasty && r->s->spare[0] < 0 &&
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, r->s->spare) < 0)
		r->s->spare[0] = r->s->spare[1] = -1;
	return ret;
}

static void run_free(struct run *r)
{
	fd_close(&r->channel);
	artifacts_done(&r->artifacts);
	result_done(&r->result);
	free(r);
}

ssize_t run_input(struct run *r, const void *data, size_t len)
{
	struct wire_head head = { .type = WIRE_INPUT };
	struct iovec iov[] = { { .iov_base = &head, .iov_len = sizeof(head) }, { .iov_base = (void *)(uintptr_t)data } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = ARRAY_LEN(iov) };
	ssize_t n;

	if (r->is_input_over)
		return -EPIPE;
	if (len > WIRE_DATA_MAX)
		len = WIRE_DATA_MAX;
	iov[1].iov_len = len;
	do {
		n = sendmsg(r->channel, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN)
		r->is_input_over = true;
	if (n < 0)
		return errno == EAGAIN ? -EAGAIN : -EPIPE;
	if (len == 0)
		r->is_input_over = true;
	return (ssize_t)len;
}

/* The job's own standard input, as far as the channel takes it now. */
static void feed(struct run *r)
{
	const struct job_blob *b = &r->job->input;

	while (!r->is_streamed && !r->is_input_over) {
		ssize_t n = run_input(r, b->data + r->input_sent, b->len - r->input_sent);

		if (n < 0)
			return;
		r->input_sent += (size_t)n;
	}
}

int run_start(struct supervisor *s, const struct job *j, bool is_streamed, const struct run_hooks *hooks, struct run **ret,
	      struct err *e)
{
	struct run *r = malloc(sizeof(*r));
	int k;

	if (!r)
		return err_set(e, ERR_HOST, ENOMEM, "start a run");
	memset(r, 0, offsetof(struct run, findings));
	r->findings[0] = '\0';
	r->s = s;
	r->job = j;
	r->channel = -1;
	r->is_streamed = is_streamed;
	if (hooks)
		r->hooks = *hooks;
	result_init(&r->result, j);
	artifacts_init(&r->artifacts);
	k = start(r, e);
	if (k < 0) {
		run_free(r);
		return k;
	}
	feed(r);
	r->patience_ns = clock_now_ns() + j->timeout_ns + PATIENCE_NS;
	*ret = r;
	return 0;
}

int run_fd(const struct run *r)
{
	return r->channel;
}

short run_events(const struct run *r)
{
	return r->is_input_over || r->is_streamed ? POLLIN : POLLIN | POLLOUT;
}

void run_cancel(struct run *r)
{
	r->is_cancel_asked = true;
	(void)shutdown(r->channel, SHUT_WR);
}

static int take_output(struct run *r, uint32_t stream, const char *data, size_t len)
{
	struct keep *k = stream == 1 ? &r->result.out : &r->result.err;
	int ret;

	if (!r->hooks.on_output)
		return keep_add(k, data, len);
	k->total += len;
	if (r->is_cancel_asked)
		return 0;
	ret = r->hooks.on_output(r->hooks.userdata, (int)stream, data, len);
	if (ret < 0)
		run_cancel(r);
	return 0;
}

static int take(struct run *r, const struct wire_head *head, size_t len)
{
	const char *data = (const char *)(head + 1);

	switch (head->type) {
	case WIRE_OUTPUT:
		return take_output(r, head->stream, data, len);
	case WIRE_ARTIFACTS:
		(void)!artifacts_feed(&r->artifacts, data, len); /* broken streams are told at the end */
		return 0;
	case WIRE_FINDINGS:
		if (len > sizeof(r->findings) - 1 - r->findings_len)
			len = sizeof(r->findings) - 1 - r->findings_len;
		memcpy(r->findings + r->findings_len, data, len);
		r->findings_len += len;
		r->findings[r->findings_len] = '\0';
		return 0;
	case WIRE_OUTCOME:
		if (len + sizeof(*head) != sizeof(r->outcome))
			return -EBADMSG;
		memcpy((char *)&r->outcome + sizeof(*head), data, len);
		r->is_done = true;
		return 0;
	default:
		return -EBADMSG;
	}
}

/* One message of the supervisor's, or its last ones.  What comes out of a sandbox inside it is hostile; the frame is not. */
static int take_all(struct run *r, ssize_t len)
{
	const struct wire_head *head;
	size_t at = 0;
	ssize_t n;
	int k = 0;

	if (len < (ssize_t)sizeof(*head))
		return -EPIPE;
	while (k == 0 && (n = wire_next(&r->message, (size_t)len, &at, &head)) != 0)
		k = n < 0 ? (int)n : take(r, head, (size_t)n - sizeof(*head));
	return k;
}

int run_wait_ms(struct run *r)
{
	uint64_t now = clock_now_ns();

	if (r->is_cancel_asked && !r->is_cancel_timed) {
		r->is_cancel_timed = true;
		if (r->patience_ns > now + PATIENCE_NS)
			r->patience_ns = now + PATIENCE_NS;
	}
	return now < r->patience_ns ? (int)((r->patience_ns - now) / NS_PER_MS) + 1 : 0;
}

/* There is nothing to take.  Return: whether there still may be */
static bool may_come(struct run *r, bool has_come)
{
	uint64_t soonest = clock_now_ns() + PATIENCE_NS;

	if (has_come && r->patience_ns < soonest) /* our reader was slow, or the end is long */
		r->patience_ns = soonest;
	if (run_wait_ms(r) > 0)
		return true;
	r->is_lost = true;
	(void)err_set(&r->err, ERR_HOST, ETIMEDOUT, "the supervisor does not answer");
	return false;
}

int run_step(struct run *r, struct err *e)
{
	feed(r);
	for (int taken = 0; !r->is_done && !r->is_lost; taken++) {
		ssize_t n;
		int k;

		if (taken == STEP_MESSAGES) /* others have their turn, and our reader too */
			return 0;
		n = fd_take(r->channel, &r->message, sizeof(r->message), false);
		if (n == -EAGAIN && may_come(r, taken > 0))
			return 0;
		if (n == -EAGAIN)
			break;
		k = take_all(r, n);
		if (k == 0)
			continue;
		r->is_lost = true;
		supervisor_hear(r->s, true); /* it may have said why */
		if (k == -EPIPE && r->s->has_failed)
			r->err = r->s->err;
		else if (k == -EPIPE)
			(void)err_set(&r->err, ERR_HOST, 0, "the supervisor ended in the middle of a run");
		else
			(void)err_set(&r->err, k == -ENOMEM ? ERR_HOST : ERR_BUG, -k, "take what the supervisor sends");
	}
	if (!r->is_lost)
		return 1;
	*e = r->err;
	return r->err.sys ? -r->err.sys : -EPROTO;
}

int run_finish(struct run *r, struct result *ret, struct err *e)
{
	const struct err *why = r->is_done ? &r->outcome.err : &r->err;
	int k;

	if (why->kind == ERR_INVALID) { /* what was asked can't be had here: a refusal, not a result */
		*e = *why;
		run_free(r);
		return -EINVAL;
	}
	k = verdict_make(r);

	if (k < 0) {
		(void)err_set(e, ERR_HOST, -k, "make the result");
	} else {
		*ret = r->result;
		memset(&r->result, 0, sizeof(r->result));
	}
	run_free(r);
	return k;
}

int run_job(struct supervisor *s, const struct job *j, struct result *ret, struct err *e)
{
	struct err lost = { 0 };
	struct run *r = NULL;
	int k;

	k = run_start(s, j, false, NULL, &r, e);
	if (!r) /* nothing was started: k and e tell why */
		return k;
	while (run_step(r, &lost) == 0) {
		struct pollfd p = { .fd = run_fd(r), .events = run_events(r) };

		(void)poll(&p, 1, run_wait_ms(r));
	}
	return run_finish(r, ret, e);
}
