/* SPDX-License-Identifier: Apache-2.0 */
#include "run/look.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"

#define SAMPLE_NS   (20 * NS_PER_MS)
#define LOOK_MIN_NS (5 * NS_PER_MS)

uint64_t look_usage_ns(const struct rusage *u)
{
	return (uint64_t)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * NS_PER_SEC +
	       (uint64_t)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) * 1000;
}

/* One for all works: nearly every deadline is given up before it comes, and to set a timer is a system call. */
static int make_clock(struct supervise *s)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	s->clock = calloc(1, sizeof(*s->clock));
	if (fd < 0 || !s->clock)
		return -1;
	*s->clock = (struct watch){ .kind = WATCH_CLOCK, .fd = -1 };
	return watch_set(s, s->clock, fd, EPOLLIN);
}

int due_prepare(struct supervise *s)
{
	return s->clock || make_clock(s) == 0 ? 0 : -ENOMEM;
}

void due_by(struct supervise *s, uint64_t when_ns)
{
	struct itimerspec t = { .it_value = { .tv_sec = (time_t)(when_ns / NS_PER_SEC),
					      .tv_nsec = (long)(when_ns % NS_PER_SEC) } };

	if (when_ns == 0 || (s->clock_ns && s->clock_ns <= when_ns))
		return;
	s->clock_ns = when_ns;
	(void)timerfd_settime(s->clock->fd, TFD_TIMER_ABSTIME, &t, NULL);
}

static void look_again(struct work *w);

static bool is_due(uint64_t *when_ns, uint64_t now)
{
	bool is = *when_ns && *when_ns <= now;

	if (is)
		*when_ns = 0;
	return is;
}

static void sooner(uint64_t *next, uint64_t when_ns)
{
	if (when_ns && (*next == 0 || when_ns < *next))
		*next = when_ns;
}

void due_now(struct supervise *s)
{
	uint64_t next = 0;
	uint64_t ticks;
	uint64_t now;

	(void)!read(s->clock->fd, &ticks, sizeof(ticks));
	now = clock_now_ns();
	s->clock_ns = 0;
	for (unsigned i = 0; i < s->n_slots; i++) {
		struct work *w = s->works[i];

		if (!w || w->is_done)
			continue;
		if (is_due(&w->listen_ns, now))
			pump_listen(w);
		if (is_due(&w->look_ns, now)) {
			look_again(w);
			work_finish(w);
		}
		if (!w->is_done && is_due(&w->deadline_ns, now)) {
			work_event(w, EVENT_DEADLINE);
			work_finish(w);
		}
		sooner(&next, w->listen_ns);
		sooner(&next, w->look_ns);
		sooner(&next, w->deadline_ns);
	}
	due_by(s, next);
}

/* The next look: what is left of the CPU time can't be used up sooner than all allowed CPUs could do it. */
static void arm_next(struct work *w, uint64_t used_ns)
{
	uint64_t ns = 0;

	if (w->job.spec.cpu_ns) {
		ns = (w->job.spec.cpu_ns - used_ns) * 1000 / w->job.spec.cpu_milli;
		if (ns < LOOK_MIN_NS)
			ns = LOOK_MIN_NS;
	}
	if (sandbox_is_sampled(&w->box) && w->box.has_proc && (ns == 0 || ns > SAMPLE_NS))
		ns = SAMPLE_NS;
	w->look_ns = ns ? clock_now_ns() + ns : 0;
	due_by(w->s, w->look_ns);
}

int look_start(struct work *w)
{
	if (w->box.cgroup.oom_fd >= 0) {
		int r = watch_set(w->s, &w->watch[WATCH_OOM], w->box.cgroup.oom_fd, w->box.cgroup.oom_events);

		if (r < 0)
			return r;
	}
	arm_next(w, 0);
	return 0;
}

static uint64_t cpu_used(const struct work *w, const struct sample *sample)
{
	struct cgroup_usage usage;

	sandbox_usage(&w->box, &usage);
	if (usage.has_cpu)
		return usage.cpu_ns;
	return sample->cpu_ns;
}

static void look_again(struct work *w)
{
	bool is_sampled = sandbox_is_sampled(&w->box) && w->box.has_proc;
	struct sample sample = { 0 };
	uint64_t used;

	if (w->box.has_proc && (is_sampled || !(w->box.cgroup.has & CGROUP_CPUACCT)))
		(void)!sandbox_sample(&w->box, false, &sample);
	if (is_sampled && sample.resident_bytes > w->job.spec.memory_bytes) {
		if (sandbox_sample(&w->box, true, &sample) < 0) /* half of it gone meanwhile: the next look decides */
			sample.fair_bytes = 0;
		if (sample.fair_bytes > w->peak_sampled)
			w->peak_sampled = sample.fair_bytes;
		if (sample.fair_bytes > w->job.spec.memory_bytes) {
			work_event(w, EVENT_MEMORY);
			return;
		}
	} else if (sample.resident_bytes > w->peak_sampled) {
		w->peak_sampled = sample.resident_bytes;
	}
	used = cpu_used(w, &sample);
	if (w->job.spec.cpu_ns && used >= w->job.spec.cpu_ns)
		work_event(w, EVENT_CPU);
	else
		arm_next(w, used);
}

void look_oom(struct work *w)
{
	if (cgroup_is_oom(&w->box.cgroup)) /* both kinds also wake for less than that */
		work_event(w, EVENT_MEMORY);
}

bool look_is_counted(const struct work *w)
{
	return w->box.cgroup.kind == CGROUP_V2 || (w->box.cgroup.has & CGROUP_CPUACCT);
}

void look_final(struct work *w)
{
	struct wire_outcome *o = &w->outcome;
	struct cgroup_usage usage;

	sandbox_usage(&w->box, &usage);
	o->cpu_ns = usage.has_cpu ? usage.cpu_ns : w->usage_ns;
	o->oom_kills = usage.oom_kills;
	o->processes_refused = usage.pids_refused;
	o->has_peak = usage.has_peak || w->peak_sampled > 0;
	o->peak_bytes = usage.has_peak ? usage.peak_bytes : w->peak_sampled;
}
