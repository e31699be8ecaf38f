/* SPDX-License-Identifier: Apache-2.0 */
/* What holds on this host, for doctor: what the set-up showed, and a sandbox in which everything is tried. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "run/front.h"

/* A sandbox like any other, but doctor's look runs in it instead of a script. */
static int probe(struct supervisor *s, uint8_t *seen, size_t max, size_t *ret_n, struct wire_outcome *o, struct err *e)
{
	struct wire_job m = {
		.head = { .type = WIRE_PROBE },
		.spec = { .memory_bytes = 64 << 20, .disk_bytes = 1 << 20, .cpu_milli = 1000, .processes = 16,
			  .disk_files = 64, .open_files = 64, .has_loopback = 1 },
		.timeout_ns = 10 * NS_PER_SEC,
		.output_max = 1 << 20,
		.arrived_ns = clock_now_ns(),
	};
	struct {
		struct wire_head head;
		char data[WIRE_DATA_MAX];
	} in;
	auto_fd int channel = -1;
	auto_fd int theirs = -1;
	int pair[2];
	int r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(e, ERR_HOST, errno, "make a channel");
	channel = pair[0];
	theirs = pair[1];
	r = fd_send(s->control, &m, sizeof(m), &theirs, 1);
	fd_close(&theirs);
	if (r < 0)
		return err_set(e, ERR_HOST, -r, "ask for a probe");
	*ret_n = 0;
	for (;;) {
		ssize_t n = fd_take(channel, &in, sizeof(in), true); /* each alone: only a script's end sends several at once */

		if (n < (ssize_t)sizeof(in.head))
			return err_set(e, ERR_HOST, 0, "the supervisor ended while it tried a sandbox");
		n -= (ssize_t)sizeof(in.head);
		if (in.head.type == WIRE_FINDINGS && *ret_n + (size_t)n <= max) {
			memcpy(seen + *ret_n, in.data, (size_t)n);
			*ret_n += (size_t)n;
		} else if (in.head.type == WIRE_OUTCOME) {
			memcpy(o, &in, sizeof(*o));
			if (o->cause == WIRE_CAUSE_FAILED)
				*e = o->err;
			return o->cause == WIRE_CAUSE_FAILED ? -EPROTO : 0;
		}
	}
}

static void set(struct wall_report *w, const char *detail, const char *remedy)
{
	w->state = WALL_MISSING;
	(void)snprintf(w->detail, sizeof(w->detail), "%.199s", detail);
	(void)snprintf(w->remedy, sizeof(w->remedy), "%.319s", remedy);
}

int supervisor_walls(struct supervisor *s, struct wall_report *ret, size_t max, size_t *ret_n, struct err *e)
{
	uint8_t seen[WALL_REPORTS_MAX];
	struct wire_outcome o = { .wall = -1 };
	size_t n_seen = 0;
	int r = 0;

	supervisor_hear(s, true);
	*ret_n = s->n_walls < max ? s->n_walls : max;
	memcpy(ret, s->walls, *ret_n * sizeof(*ret));
	if (s->has_failed) {
		*e = s->err;
		return -EPROTO;
	}
	r = probe(s, seen, sizeof(seen), &n_seen, &o, e);
	if (r < 0 && o.wall >= 0 && (size_t)o.wall < *ret_n) {
		set(&ret[o.wall], o.err.msg, o.remedy);
		(void)snprintf(e->msg, sizeof(e->msg), "%.170s; remedy: %.319s", o.err.msg, o.remedy);
	}
	if (r < 0)
		return r;
	for (size_t i = 0; i < *ret_n; i++) { /* what is seen from inside counts when it is worse */
		if (i < n_seen && seen[i] <= (uint8_t)ret[i].state)
			continue;
		set(&ret[i], "tried from inside: it does not hold", "report this as a fault of cloche");
	}
	return 0;
}
