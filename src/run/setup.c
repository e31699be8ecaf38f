/* SPDX-License-Identifier: Apache-2.0 */
#include "run/setup.h"

#include <string.h>

#include "base/fd.h"
#include "base/pack.h"
#include "job/conf.h"
#include "run/wire.h"
#include "sandbox/outside.h"

static int collect_names(const struct setup *s, uint32_t kind, const char **list, size_t max, struct err *e)
{
	struct pack_record rec;
	size_t offset = 0;
	size_t n = 0;
	int r;

	while ((r = pack_next(s->pack, s->len, &offset, &rec)) > 0) {
		if (rec.kind != kind)
			continue;
		if (n == max - 1)
			return err_set(e, ERR_INVALID, 0, "too many names of protections");
		list[n++] = rec.data;
	}
	list[n] = NULL;
	return r < 0 ? err_set(e, ERR_BUG, -r, "the set-up's pack") : 0;
}

int setup_read(struct setup *s, struct err *e)
{
	struct pack_record rec;
	size_t offset = 0;
	int r;

	r = fd_map_sealed(s->fd, &s->pack, &s->len);
	if (r < 0)
		return err_set(e, ERR_BUG, -r, "map the set-up");
	while (pack_next(s->pack, s->len, &offset, &rec) > 0) {
		struct pool_plan plan;

		s->n_envs += rec.kind == WIRE_SETUP_ENVIRONMENT;
		s->is_single |= rec.kind == WIRE_SETUP_SINGLE;
		if (rec.kind != WIRE_SETUP_POOL || rec.len != sizeof(plan))
			continue;
		memcpy(&plan, rec.data, sizeof(plan));
		s->has_pools |= plan.max > 0;
	}
	if (s->n_envs < 1 || s->n_envs > HOME_ENVS_MAX)
		return err_set(e, ERR_INVALID, 0, "%d environments: 1 to %d are allowed", s->n_envs, HOME_ENVS_MAX);
	r = collect_names(s, WIRE_SETUP_REQUIRE, s->require, ARRAY_LEN(s->require), e);
	return r < 0 ? r : collect_names(s, WIRE_SETUP_ALLOW, s->allow, ARRAY_LEN(s->allow), e);
}

_Static_assert(HOME_ENVS_MAX == CONF_ENVIRONMENTS_MAX, "what the configuration allows");

int setup_take(struct setup *s, struct err *e)
{
	int fds[FD_MAX_PASSED];
	struct wire_head head;
	size_t n_fds;
	ssize_t n;

	n = fd_recv(WIRE_CONTROL, &head, sizeof(head), fds, &n_fds);
	if (n != sizeof(head) || head.type != WIRE_SETUP || n_fds != 1)
		return err_set(e, ERR_BUG, 0, "the first message is not a set-up");
	s->fd = fds[0];
	return setup_read(s, e);
}

size_t setup_paths(const struct setup *s, int env, const char **paths, size_t max)
{
	struct pack_record rec;
	size_t offset = 0;
	size_t n = 0;
	int at = -1;

	while (pack_next(s->pack, s->len, &offset, &rec) > 0) {
		if (rec.kind == WIRE_SETUP_ENVIRONMENT)
			at++;
		else if (rec.kind == WIRE_SETUP_PATH && at == env && n < max)
			paths[n++] = rec.data;
	}
	return n;
}

void setup_covers(const struct setup *s)
{
	struct pack_record rec;
	size_t offset = 0;
	int env = -1;

	while (pack_next(s->pack, s->len, &offset, &rec) > 0) {
		if (rec.kind == WIRE_SETUP_ENVIRONMENT)
			env++;
		else if (rec.kind == WIRE_SETUP_COVER && env >= 0)
			outside_cover(env, rec.name, rec.data, rec.len);
	}
}
