/* SPDX-License-Identifier: Apache-2.0 */
/* A process in a sandbox from its birth to its work: one lock-down, four kinds of work. */
#include "sandbox/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/collect.h"
#include "sandbox/probe.h"

static _Noreturn void fail_at(const struct step_fail *f)
{
	(void)!write(INSIDE_STATUS_FD, f, sizeof(*f));
	_exit(127);
}

/* A failed lock-down: until its descriptors were put in order the status socket has another number. */
static _Noreturn void fail_early(const struct inside *in, const struct step_fail *f)
{
	if (fcntl(in->status, F_GETFD) < 0)
		fail_at(f);
	(void)!write(in->status, f, sizeof(*f));
	_exit(127);
}

static _Noreturn void fail_with(const char *step, int r)
{
	struct step_fail f;

	step_fail_set(&f, step, -r);
	fail_at(&f);
}

static _Noreturn void collect(const char *bundle, size_t len)
{
	int tmp;

	(void)signal(SIGPIPE, SIG_IGN);
	tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (tmp < 0 && errno == EACCES && chmod("/tmp", 0700) == 0) /* the script closed it; it belongs to us both */
		tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (tmp < 0)
		_exit(1);
	_exit(collect_artifacts(tmp, bundle, len, 1) < 0 ? 1 : 0);
}

_Noreturn void child_main(const struct inside *in, enum sandbox_role role, const char *bundle, size_t len)
{
	struct step_fail f;
	int r = 0;

	if (inside_lock_down(in, &f) < 0)
		fail_early(in, &f);
	switch (role) {
	case SANDBOX_MAIN:
		r = step_is_failed_on_purpose("files") ? -errno : inside_write_files(bundle, len);
		if (r < 0)
			fail_with("files", r);
		/* if it gets through (a user's descriptors on their way are bounded): it makes the answer sooner, no more */
		if (in->ret_listener && *in->ret_listener >= 0)
			(void)!fd_send(INSIDE_STATUS_FD, "l", 1, in->ret_listener, 1);
		break;
	case SANDBOX_SCREEN:
		break;
	case SANDBOX_COLLECT:
		collect(bundle, len);
	case SANDBOX_PROBE:
		_exit(probe_inside(in->home, 1) < 0 ? 1 : 0);
	}
	r = step_is_failed_on_purpose("exec") ? -errno : inside_exec(bundle, len);
	fail_with("exec", r);
}
