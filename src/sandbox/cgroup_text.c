/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of what the kernel writes about control groups: pure functions.
 */
#include "sandbox/cgroup_impl.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NAME_HEX 8 /* random digits in a folder's name */

/* The next field of a line of mountinfo.  Return: false at the end of the line. */
static bool next_field(const char **p, const char *end, const char **ret, size_t *ret_len)
{
	const char *start = *p;
	const char *stop;

	if (start >= end)
		return false;
	stop = memchr(start, ' ', (size_t)(end - start));
	if (!stop)
		stop = end;
	*ret = start;
	*ret_len = (size_t)(stop - start);
	*p = stop < end ? stop + 1 : end;
	return true;
}

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* mountinfo writes blanks, newlines and backslashes as \ooo.  Return: false when @ret is too small. */
static bool unescape(const char *s, size_t len, char *ret, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < len; i++) {
		char c = s[i];

		if (c == '\\' && len - i >= 4 && s[i + 1] <= '3' && is_octal(s[i + 1]) && is_octal(s[i + 2]) &&
		    is_octal(s[i + 3])) {
			c = (char)((s[i + 1] - '0') * 64 + (s[i + 2] - '0') * 8 + (s[i + 3] - '0'));
			i += 3;
		}
		if (used + 1 >= size)
			return false;
		ret[used++] = c;
	}
	ret[used] = '\0';
	return true;
}

bool cgroup_read_mount(const char *line, size_t len, struct cgroup_mount *ret)
{
	const char *end = line + len;
	const char *field[4] = { NULL };
	size_t field_len[4] = { 0 };
	const char *root = NULL, *point = NULL;
	size_t root_len = 0, point_len = 0;
	struct cgroup_mount m;

	for (unsigned i = 0; i < 5; i++) { /* id, parent, device, root, mount point */
		if (!next_field(&line, end, &field[0], &field_len[0]))
			return false;
		if (i == 3) {
			root = field[0];
			root_len = field_len[0];
		}
		point = field[0];
		point_len = field_len[0];
	}
	do { /* options, then any number of optional fields up to a dash */
		if (!next_field(&line, end, &field[0], &field_len[0]))
			return false;
	} while (field_len[0] != 1 || field[0][0] != '-');
	for (unsigned i = 1; i < 4; i++) /* type, source, options of the super block */
		if (!next_field(&line, end, &field[i], &field_len[i]))
			return false;
	if (field_len[1] == 7 && memcmp(field[1], "cgroup2", 7) == 0)
		m.is_v2 = true;
	else if (field_len[1] == 6 && memcmp(field[1], "cgroup", 6) == 0)
		m.is_v2 = false;
	else
		return false;
	if (!unescape(root, root_len, m.root, sizeof(m.root)) ||
	    !unescape(point, point_len, m.point, sizeof(m.point)) ||
	    !unescape(field[3], field_len[3], m.options, sizeof(m.options)))
		return false;
	if (m.root[0] != '/' || m.point[0] != '/')
		return false;
	*ret = m;
	return true;
}

/* Is the word of @len bytes at @word in the list of @list_len bytes? */
static bool has_word(const char *list, size_t list_len, const char *word)
{
	size_t word_len = strlen(word);
	const char *end = list + list_len;

	while (list < end) {
		size_t n = 0;

		while (list + n < end && list[n] != ' ' && list[n] != ',' && list[n] != '\n')
			n++;
		if (n == word_len && n > 0 && memcmp(list, word, n) == 0)
			return true;
		list += n + 1;
	}
	return false;
}

bool cgroup_has_word(const char *list, const char *word)
{
	return has_word(list, strlen(list), word);
}

int cgroup_read_own(const char *text, const char *controller, char *ret)
{
	for (const char *line = text; *line != '\0';) { /* "4:memory:/path"; a path may hold colons */
		size_t len = strcspn(line, "\n");
		const char *list = memchr(line, ':', len);
		const char *path = list ? memchr(list + 1, ':', len - (size_t)(list + 1 - line)) : NULL;

		if (path && path[1] == '/') {
			size_t list_len = (size_t)(path - list - 1);
			size_t path_len = len - (size_t)(path + 1 - line);
			bool is_v2 = list_len == 0 && list - line == 1 && line[0] == '0';

			if (controller ? has_word(list + 1, list_len, controller) : is_v2) {
				if (path_len >= CGROUP_PATH)
					return -ENAMETOOLONG;
				memcpy(ret, path + 1, path_len);
				ret[path_len] = '\0';
				return 0;
			}
		}
		line += len + (line[len] == '\n');
	}
	return -ENODEV;
}

/* Digits up to the end of the line. */
static int read_digits(const char *s, uint64_t *ret)
{
	uint64_t v = 0;
	size_t i;

	for (i = 0; s[i] >= '0' && s[i] <= '9'; i++) {
		uint64_t digit = (uint64_t)(s[i] - '0');

		if (v > (UINT64_MAX - digit) / 10)
			return -ERANGE;
		v = v * 10 + digit;
	}
	if (i == 0 || (s[i] != '\0' && s[i] != '\n'))
		return -EINVAL;
	*ret = v;
	return 0;
}

int cgroup_read_count(const char *text, uint64_t *ret)
{
	if (strcmp(text, "max") == 0 || strcmp(text, "max\n") == 0) {
		*ret = UINT64_MAX;
		return 0;
	}
	return read_digits(text, ret);
}

int cgroup_read_key(const char *text, const char *key, uint64_t *ret)
{
	size_t key_len = strlen(key);

	for (const char *line = text; *line != '\0';) {
		size_t len = strcspn(line, "\n");

		if (len > key_len && memcmp(line, key, key_len) == 0 && line[key_len] == ' ')
			return read_digits(line + key_len + 1, ret);
		line += len + (line[len] == '\n');
	}
	return -ENOENT;
}

bool cgroup_read_name(const char *name, pid_t *ret_pid)
{
	const char *p = name + strlen(CGROUP_NAME_HEAD);
	long pid = 0;
	size_t n;

	if (strncmp(name, CGROUP_NAME_HEAD, strlen(CGROUP_NAME_HEAD)) != 0)
		return false;
	for (n = 0; n < 9 && isdigit((unsigned char)p[n]); n++)
		pid = pid * 10 + (p[n] - '0');
	if (pid <= 0 || p[n] != '-')
		return false;
	p += n + 1;
	if (strspn(p, "0123456789abcdef") != NAME_HEX || p[NAME_HEX] != '\0')
		return false;
	*ret_pid = (pid_t)pid;
	return true;
}

int cgroup_place(const struct cgroup_mount *m, const char *own, char *ret)
{
	const char *rest = own;
	const char *point = strcmp(m->point, "/") == 0 ? "" : m->point;
	size_t root_len = strlen(m->root);
	int n;

	/* "/.." is a group above our cgroup namespace: its real name is hidden from us, so it can't be found here. */
	if (own[0] != '/' || strcmp(own, "/..") == 0 || strncmp(own, "/../", 4) == 0)
		return -ENOENT;
	if (strcmp(m->root, "/") != 0) {
		if (strncmp(own, m->root, root_len) != 0 || (own[root_len] != '\0' && own[root_len] != '/'))
			return -ENOENT;
		rest = own + root_len;
	}
	if (strcmp(rest, "/") == 0)
		rest = "";
	if (strlen(point) + strlen(rest) + 1 >= CGROUP_PATH - CGROUP_NAME) /* our folder's name comes behind it */
		return -ENAMETOOLONG;
	n = snprintf(ret, CGROUP_PATH, "%s%s", point, rest);
	return n > 0 ? 0 : -ENOENT;
}

void cgroup_cpu_quota(uint32_t cpu_milli, uint64_t *ret_quota_us, uint32_t *ret_period_us)
{
	uint32_t period_us = 100000;

	if (cpu_milli < 10) /* 100 ms would make it less than the kernel's least quota of 1 ms */
		period_us = 1000000 / (cpu_milli ? cpu_milli : 1);
	*ret_period_us = period_us;
	*ret_quota_us = cpu_milli < 10 ? 1000 : (uint64_t)cpu_milli * 100;
}

uint64_t cgroup_risen(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

bool cgroup_touched_limit(const struct cgroup *g, uint64_t highest)
{
	/* The kernel charges in batches: the last 1 MiB below the limit can have been the limit. */
	return g->now.memory_bytes > 0 && highest + (1U << 20) >= g->now.memory_bytes;
}

uint64_t cgroup_peak(const struct cgroup *g, uint64_t highest)
{
	return cgroup_touched_limit(g, highest) ? highest : cgroup_risen(highest, g->left_over_bytes);
}
