/* SPDX-License-Identifier: Apache-2.0 */
/* How the pools stand, for `cloche env`. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "run/pool.h"
#include "run/work.h"

static uint64_t memory_of(const struct supervise *s, pid_t pid)
{
	char path[48];
	char text[2048];
	unsigned long long kib = 0;
	const char *at;

	(void)snprintf(path, sizeof(path), "%d/smaps_rollup", (int)pid);
	if (fd_read_at(s->outside.proc, path, text, sizeof(text)) <= 0)
		return 0;
	at = strstr(text, "\nPss:");
	return at && sscanf(at, "\nPss: %llu", &kib) == 1 ? kib << 10 : 0;
}

static uint32_t parked(const struct supervise *s, const struct pool *p)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < SANDBOX_SLOTS; i++) {
		const struct work *w = s->works[i];

		n += w && w->pool == p && w->state == WORK_PARKED && !w->is_done;
	}
	return n;
}

size_t pool_state(const struct supervise *s, struct run_pool_state *ret, size_t max)
{
	size_t n = 0;

	for (unsigned i = 0; i < s->n_pools && n < max; i++) {
		const struct pool *p = &s->pools[i];
		bool is_ready = pool_is_ready(p);

		ret[n++] = (struct run_pool_state){
			.environment = p->env,
			.is_ready = is_ready,
			.parked = parked(s, p),
			.runs = is_ready ? (uint32_t)p->zygote.forks : 0,
			.age_ns = is_ready ? clock_now_ns() - p->zygote.started_ns : 0,
			.memory_bytes = is_ready ? memory_of(s, p->zygote.pid) : 0,
		};
	}
	return n;
}
