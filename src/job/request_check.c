/* SPDX-License-Identifier: Apache-2.0 */
/* The rules between the fields of a job, and what its environment adds. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "job/refuse.h"
#include "job/request.h"

#define PAGE           UINT64_C(4096) /* what tmpfs counts in; with larger pages its own ENOSPC still holds the line */
#define PROFILES_SHOWN 16

static const struct job_profile *profile_find(const struct job_rules *rules, const char *name)
{
	for (size_t i = 0; i < rules->n_profiles; i++)
		if (strcmp(rules->profiles[i].name, name) == 0)
			return &rules->profiles[i];
	return NULL;
}

int job_apply_profile(struct job *j, const struct job_rules *rules, struct job_error *e)
{
	const struct job_profile *p = profile_find(rules, j->environment);
	const char *names[PROFILES_SHOWN];
	size_t n = 0;

	if (rules->n_profiles == 0)
		return 0;
	for (; n < rules->n_profiles && n < PROFILES_SHOWN; n++)
		names[n] = rules->profiles[n].name;
	if (!p)
		return job_refuse_unknown(e, "environment", j->environment, NULL, names, n);
	for (size_t i = 0; i < LIMIT_DEFS; i++) {
		uint64_t value = limit_get(&p->limits, &limit_defs[i]);

		if (value != 0 && !(j->limits_given >> i & 1))
			limit_put(&j->limits, &limit_defs[i], value);
	}
	if (j->mode == JOB_MODE_AUTO)
		j->mode = (enum job_mode)p->mode;
	return 0;
}

static int check_strings(const struct job *j, struct job_error *e)
{
	uint64_t sum = 0;
	char given[48];

	for (size_t i = 0; i < j->args.n; i++)
		sum += j->args.items[i].body.len + JOB_STRING_COST;
	for (size_t i = 0; i < j->env.n; i++)
		sum += strlen(j->env.items[i].name) + 1 + j->env.items[i].body.len + JOB_STRING_COST;
	if (sum <= JOB_ARGS_ENV_MAX)
		return 0;
	(void)snprintf(given, sizeof(given), "%" PRIu64 " bytes", sum);
	return job_refuse(e, "args and env", given, "together at most %" PRIu64 " bytes, %d for each string included",
			  JOB_ARGS_ENV_MAX, JOB_STRING_COST);
}

static unsigned char rank(char c)
{
	return c == '/' ? 1 : (unsigned char)c;
}

/* by_path() - "/" below every other byte (names have no control characters): what is in a folder follows it at once */
static int by_path(const void *a, const void *b)
{
	const char *x = *(const char *const *)a;
	const char *y = *(const char *const *)b;

	while (*x && *x == *y) {
		x++;
		y++;
	}
	return (int)rank(*x) - (int)rank(*y);
}

/* new_folders() - folders on the way to @path that are not on the way to @before, its neighbour in order */
static size_t new_folders(const char *before, const char *path)
{
	size_t same = 0;
	size_t n = 0;

	while (path[same] && path[same] == before[same])
		same++;
	for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/'))
		n += (size_t)(p - path) >= same;
	return n;
}

static int refuse_pair(const struct job *j, const char *first, const char *second, struct job_error *e)
{
	/* the name that is not the script's is the one to change */
	const char *name = second == j->script_name ? first : second;
	char field[FIELD_SIZE];
	char given[GIVEN_SIZE];

	job_field_of(field, "files", name, strlen(name));
	if (strcmp(first, second) == 0)
		return job_refuse(e, field, "the script's own name", "any other name than script_name");
	return job_refuse(e, field, job_show_text(given, sizeof(given), second, strlen(second)),
			  "no file below a name that is itself a file");
}

/* check_tree() - script and files can stand in one folder, and within disk_files */
static int check_tree(const struct job *j, struct job_error *e)
{
	const char *names[JOB_FILES_MAX + 1];
	size_t n = 0;
	size_t inodes = 1; /* the folder itself */
	char given[48];

	names[n++] = j->script_name;
	for (size_t i = 0; i < j->files.n && n < ARRAY_LEN(names); i++)
		names[n++] = j->files.items[i].name;
	qsort(names, n, sizeof(names[0]), by_path);
	for (size_t i = 0; i < n; i++) {
		const char *before = i ? names[i - 1] : "";
		size_t len = strlen(before);

		if (i && strncmp(before, names[i], len) == 0 && (names[i][len] == '\0' || names[i][len] == '/'))
			return refuse_pair(j, before, names[i], e);
		inodes += 1 + new_folders(before, names[i]);
	}
	if (inodes <= j->limits.disk_files)
		return 0;
	(void)snprintf(given, sizeof(given), "%zu files and folders", inodes);
	return job_refuse(e, "files", given, "at most %" PRIu32 " (limits.disk_files), script and its folder included",
			  j->limits.disk_files);
}

static uint64_t pages(size_t len)
{
	return (len + PAGE - 1) / PAGE * PAGE;
}

static int check_disk(const struct job *j, struct job_error *e)
{
	uint64_t sum = pages(j->script.len);
	char given[48];

	for (size_t i = 0; i < j->files.n; i++)
		sum += pages(j->files.items[i].body.len);
	if (sum <= j->limits.disk_bytes)
		return 0;
	(void)snprintf(given, sizeof(given), "%" PRIu64 " bytes", sum);
	return job_refuse(e, "files", given,
			  "with the script at most %" PRIu64 " bytes (limits.disk_bytes), in whole pages of %" PRIu64,
			  j->limits.disk_bytes, PAGE);
}

int job_check(const struct job *j, const struct job_rules *rules, struct job_error *e)
{
	int r = 0;

	if (!j->script.data)
		r = job_refuse_missing(e, "script_content", "a string of 1 to %" PRIu64 " bytes",
				       rules->max_script_bytes);
	if (r == 0)
		r = check_strings(j, e);
	if (r == 0)
		r = check_tree(j, e);
	return r < 0 ? r : check_disk(j, e);
}
