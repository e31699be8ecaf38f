/* SPDX-License-Identifier: Apache-2.0 */
#include "run/failed.h"

#include <stdio.h>

#include "run/run.h"

int run_failed_result(const struct job *j, const char *run_id, const struct err *why, struct result *ret)
{
	result_init(ret, j);
	ret->mode = JOB_MODE_COLD;
	if (run_id)
		(void)snprintf(ret->run_id, sizeof(ret->run_id), "%s", run_id);
	else if (run_make_id(ret->run_id) < 0)
		ret->run_id[0] = '\0'; /* no random bits: it has no name */
	return result_set_message(ret, "%s", why->msg);
}
