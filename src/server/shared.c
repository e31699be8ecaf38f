/* SPDX-License-Identifier: Apache-2.0 */
/* The settings in force, shared by the supervisors that were started with them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/server.h"

struct shared *shared_load(struct server *s, struct err *e)
{
	bool is_split = s->launch.sock >= 0;
	struct shared *sh = calloc(1, sizeof(*sh));
	int r;

	if (!sh) {
		(void)err_set(e, ERR_HOST, ENOMEM, "configuration");
		return NULL;
	}
	r = is_split ? settings_load_by(&sh->settings, environ, launch_settings, &s->launch, e)
		     : settings_load(&sh->settings, environ, e);
	if (r == 0)
		r = settings_finish(&sh->settings, e);
	if (r < 0) {
		settings_done(&sh->settings);
		free(sh);
		return NULL;
	}
	sh->settings.options.pool = (struct run_pool) { .min = sh->settings.conf.server.pool_min,
							.max = sh->settings.conf.server.pool_max,
							.max_runs = sh->settings.conf.server.zygote_max_runs };
	sh->digest = settings_digest(&sh->settings);
	sh->refs = 1;
	return sh;
}

void shared_leave(struct shared *sh)
{
	if (!sh || --sh->refs > 0)
		return;
	settings_done(&sh->settings);
	free(sh);
}

/* What root could read, and the user that its server has become can't. */
void shared_explain(const struct server *s, struct err *e)
{
	struct err why = *e;

	if (s->launch.sock < 0 || why.sys != EACCES)
		return;
	(void)snprintf(e->msg, sizeof(e->msg), "%.400s (root's server reads it as user %u)", why.msg, geteuid());
}
