/* SPDX-License-Identifier: Apache-2.0 */
/* A row as JSON, and times as text. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/parse.h"
#include "history/history.h"
#include "history/shape.h"
#include "job/json.h"

#define YEARS_NS (UINT64_C(100) * 365 * 86400 * NS_PER_SEC)

int shape_add_string(struct buf *b, const char *name, const char *text)
{
	bool ignored;
	int r = buf_printf(b, ", \"%s\": ", name);

	if (r == 0 && !text)
		return buf_add(b, "null", 4);
	if (r == 0)
		r = job_json_add_bytes(b, text, strlen(text), &ignored);
	return r;
}

static int add_seconds(struct buf *b, const char *name, uint64_t ns)
{
	int r = buf_printf(b, ", \"%s\": ", name);

	return r < 0 ? r : job_json_add_seconds(b, ns);
}

int shape_add_row(struct buf *b, const struct history_row *row)
{
	const struct {
		const char *name;
		const char *text;
	} texts[] = {
		{ "tenant", row->tenant }, { "script_name", row->script_name }, { "environment", row->environment },
		{ "mode", row->mode },     { "status", row->status },
	};
	char time[HISTORY_TIME_TEXT];
	int r = buf_add(b, "{\"run_id\": ", 11);

	if (r == 0)
		r = job_json_add_text(b, row->run_id, strlen(row->run_id));
	if (r == 0)
		r = buf_printf(b, ", \"time\": \"%s\"", history_time_text(row->time_us, time));
	for (size_t i = 0; i < ARRAY_LEN(texts) && r == 0; i++)
		r = shape_add_string(b, texts[i].name, texts[i].text);
	if (r == 0)
		r = buf_printf(b, ", \"return_code\": %" PRId64, row->return_code);
	if (r == 0)
		r = shape_add_string(b, "signal", row->signal);
	if (r == 0)
		r = add_seconds(b, "execution_time", row->execution_ns);
	if (r == 0)
		r = add_seconds(b, "cpu_time", row->cpu_ns);
	if (r == 0)
		r = add_seconds(b, "queue_time", row->queue_ns);
	if (r == 0 && row->peak_memory_bytes < 0)
		r = buf_printf(b, ", \"peak_memory_bytes\": null");
	else if (r == 0)
		r = buf_printf(b, ", \"peak_memory_bytes\": %" PRId64, row->peak_memory_bytes);
	if (r == 0)
		r = buf_printf(b, ", \"stdout_bytes\": %" PRIu64 ", \"stderr_bytes\": %" PRIu64, row->stdout_bytes,
			       row->stderr_bytes);
	if (r == 0)
		r = shape_add_string(b, "message", row->message);
	return r;
}

char *history_row_json(const struct history_row *row)
{
	struct buf b;
	int r;

	buf_init(&b, SIZE_MAX / 2);
	r = shape_add_row(&b, row);
	if (r == 0)
		r = buf_add(&b, "}", 1);
	if (r < 0)
		buf_done(&b);
	return b.data;
}

const char *history_time_text(int64_t us, char buf[HISTORY_TIME_TEXT])
{
	time_t seconds = us / US_PER_SEC - (us % US_PER_SEC < 0);
	struct tm tm = { 0 };

	if (!gmtime_r(&seconds, &tm) || tm.tm_year + 1900 > 9999 || tm.tm_year < -1900) {
		(void)snprintf(buf, HISTORY_TIME_TEXT, "1970-01-01T00:00:00.000000Z");
		return buf;
	}
	(void)snprintf(buf, HISTORY_TIME_TEXT, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ",
		       (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)(tm.tm_mon + 1) % 100,
		       (unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100,
		       (unsigned)tm.tm_sec % 100, (unsigned)(us - (int64_t)seconds * US_PER_SEC) % 1000000);
	return buf;
}

/* number() - exactly @n digits at *@s, at least @min, at most @max.  Return: it, or -1 */
static int number(const char **s, int n, int min, int max)
{
	int v = 0;

	for (int i = 0; i < n; i++) {
		if ((*s)[i] < '0' || (*s)[i] > '9')
			return -1;
		v = v * 10 + ((*s)[i] - '0');
	}
	*s += n;
	return v >= min && v <= max ? v : -1;
}

static bool skip(const char **s, char c)
{
	if (**s != c)
		return false;
	++*s;
	return true;
}

/* fraction() - ".5" in microseconds; digits beyond are nothing to us.  Return: it, or -1 */
static int fraction(const char **s)
{
	int us = 0;
	int scale = 100000;

	if (**s < '0' || **s > '9')
		return -1;
	for (; **s >= '0' && **s <= '9'; ++*s) {
		us += (**s - '0') * scale;
		scale /= 10;
	}
	return us;
}

/* zone() - "", "Z", "+01:00".  Return: 0 with seconds east of Greenwich in *@ret, or -EINVAL */
static int zone(const char *s, int *ret)
{
	int sign = *s == '-' ? -1 : 1;
	int hours;
	int minutes;

	*ret = 0;
	if (*s == '\0' || strcmp(s, "Z") == 0 || strcmp(s, "z") == 0)
		return 0;
	if (*s != '+' && *s != '-')
		return -EINVAL;
	s++;
	hours = number(&s, 2, 0, 23);
	(void)(hours >= 0 && skip(&s, ':'));
	minutes = hours < 0 ? -1 : number(&s, 2, 0, 59);
	if (minutes < 0 || *s)
		return -EINVAL;
	*ret = sign * (hours * 3600 + minutes * 60);
	return 0;
}

static int parse_clock(const char **s, struct tm *tm, int *ret_us)
{
	if (!skip(s, 'T') && !skip(s, 't') && !skip(s, ' '))
		return -EINVAL;
	tm->tm_hour = number(s, 2, 0, 23);
	if (tm->tm_hour < 0 || !skip(s, ':'))
		return -EINVAL;
	tm->tm_min = number(s, 2, 0, 59);
	if (tm->tm_min < 0)
		return -EINVAL;
	if (!skip(s, ':'))
		return 0;
	tm->tm_sec = number(s, 2, 0, 60);
	if (tm->tm_sec < 0)
		return -EINVAL;
	if (skip(s, '.'))
		*ret_us = fraction(s);
	return *ret_us < 0 ? -EINVAL : 0;
}

static int parse_date(const char *s, int64_t *ret)
{
	struct tm tm = { .tm_year = number(&s, 4, 1, 9999) };
	int day;
	int us = 0;
	int east;

	if (tm.tm_year < 0 || !skip(&s, '-'))
		return -EINVAL;
	tm.tm_year -= 1900;
	tm.tm_mon = number(&s, 2, 1, 12);
	if (tm.tm_mon < 0 || !skip(&s, '-'))
		return -EINVAL;
	tm.tm_mon--;
	day = number(&s, 2, 1, 31);
	if (day < 0)
		return -EINVAL;
	tm.tm_mday = day;
	if (*s && parse_clock(&s, &tm, &us) < 0)
		return -EINVAL;
	if (zone(s, &east) < 0)
		return -EINVAL;
	*ret = ((int64_t)timegm(&tm) - east) * US_PER_SEC + us;
	return tm.tm_mday == day ? 0 : -EINVAL; /* 31 February */
}

int history_time_parse(const char *text, int64_t now_us, int64_t *ret_us)
{
	uint64_t value;
	int64_t us;

	if (parse_u64(text, 0, UINT64_C(253402300799), &value) == 0) { /* the last second of the year 9999 */
		*ret_us = (int64_t)value * US_PER_SEC;
		return 0;
	}
	if (parse_duration_ns(text, 0, YEARS_NS, &value) == 0) {
		*ret_us = now_us - (int64_t)(value / 1000);
		return 0;
	}
	if (parse_date(text, &us) < 0)
		return -EINVAL;
	*ret_us = us;
	return 0;
}
