/* SPDX-License-Identifier: Apache-2.0 */
#include "job/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/macro.h"

#define KIB(n) (UINT64_C(n) << 10)
#define MIB(n) (UINT64_C(n) << 20)
#define GIB(n) (UINT64_C(n) << 30)

#define FIELD(f) sizeof(((struct job_limits *)NULL)->f) == sizeof(uint64_t), offsetof(struct job_limits, f)

/* A new limit is a field of struct job_limits and one line here.  Ceilings: what nobody has, so that nothing overflows. */
const struct limit_def limit_defs[LIMIT_DEFS] = {
	{ "memory_bytes", "bytes", LIMIT_BYTES, FIELD(memory_bytes), MIB(512), MIB(16), GIB(1048576) },
	{ "cpu_seconds", "seconds", LIMIT_SECONDS, FIELD(cpu_ns), 0, NS_PER_MS, TIMEOUT_CEILING_NS },
	{ "cpus", "CPUs", LIMIT_CPUS, FIELD(cpu_milli), 1000, 10, 1024000 },
	{ "processes", "processes", LIMIT_COUNT, FIELD(processes), 64, 1, 4194304 },
	{ "disk_bytes", "bytes", LIMIT_BYTES, FIELD(disk_bytes), MIB(64), KIB(64), GIB(1048576) },
	{ "disk_files", "files", LIMIT_COUNT, FIELD(disk_files), 4096, 16, 1000000000 },
	{ "open_files", "open files", LIMIT_COUNT, FIELD(open_files), 256, 16, 1048576 },
	{ "output_bytes", "bytes", LIMIT_BYTES, FIELD(output_bytes), MIB(1), 0, GIB(1) },
	{ "output_bytes_hard", "bytes", LIMIT_BYTES, FIELD(output_bytes_hard), MIB(64), 1, GIB(1048576) },
};

void job_rules_init(struct job_rules *r)
{
	*r = (struct job_rules) { .timeout_ns = 60 * NS_PER_SEC,
				  .max_timeout_ns = 3600 * NS_PER_SEC,
				  .max_script_bytes = MIB(1) };
	for (size_t i = 0; i < LIMIT_DEFS; i++)
		limit_put(&r->defaults, &limit_defs[i], limit_defs[i].initial);
}

const struct limit_def *limit_find(const char *name)
{
	for (size_t i = 0; i < LIMIT_DEFS; i++)
		if (strcmp(limit_defs[i].name, name) == 0)
			return &limit_defs[i];
	return NULL;
}

uint64_t limit_get(const struct job_limits *l, const struct limit_def *d)
{
	uint64_t wide;
	uint32_t narrow;

	if (d->is_wide) {
		memcpy(&wide, (const char *)l + d->offset, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, (const char *)l + d->offset, sizeof(narrow));
	return narrow;
}

void limit_put(struct job_limits *l, const struct limit_def *d, uint64_t value)
{
	uint32_t narrow = (uint32_t)value; /* every ceiling of a narrow field fits */

	if (d->is_wide)
		memcpy((char *)l + d->offset, &value, sizeof(value));
	else
		memcpy((char *)l + d->offset, &narrow, sizeof(narrow));
}

uint64_t limit_max(const struct job_rules *r, const struct limit_def *d)
{
	uint64_t max = limit_get(&r->max, d);

	return max ? max : d->ceiling;
}

uint64_t limit_scale(enum limit_unit u)
{
	switch (u) {
	case LIMIT_SECONDS:
		return NS_PER_SEC;
	case LIMIT_CPUS:
		return 1000;
	case LIMIT_BYTES:
	case LIMIT_COUNT:
		break;
	}
	return 1;
}

const char *scaled_text(uint64_t value, uint64_t scale, char *buf, size_t size)
{
	char digits[24] = "";
	size_t n = 0;
	uint64_t rest = value % scale;

	for (uint64_t place = scale / 10; place > 0 && rest > 0 && n < sizeof(digits) - 1; place /= 10) {
		digits[n++] = (char)('0' + rest / place);
		rest %= place;
	}
	(void)snprintf(buf, size, "%" PRIu64 "%s%s", value / scale, n ? "." : "", digits);
	return buf;
}

void limit_words(const struct limit_def *d, uint64_t max, char *buf, size_t size)
{
	const char *kind = d->unit == LIMIT_BYTES || d->unit == LIMIT_COUNT ? "a whole number" : "a number";
	uint64_t scale = limit_scale(d->unit);
	char low[48];
	char high[48];

	(void)snprintf(buf, size, "%s, at least %s, at most %s %s", kind, scaled_text(d->min, scale, low, sizeof(low)),
		       scaled_text(max, scale, high, sizeof(high)), d->words);
}
