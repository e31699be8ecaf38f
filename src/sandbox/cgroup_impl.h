/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Between cgroup.c, cgroup_host.c, cgroup_v1.c and cgroup_v2.c (and their tests) only. */

#include "sandbox/cgroup.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/macro.h"

#define CGROUP_NAME      64 /* room for the name of a folder of ours */
#define CGROUP_NAME_HEAD "cloche-"

/* A cgroup mount as mountinfo tells it, unescaped. */
struct cgroup_mount {
	bool is_v2;
	char root[CGROUP_PATH];  /* which group is mounted there, as our cgroup namespace sees it */
	char point[CGROUP_PATH]; /* where */
	char options[256];       /* of the super block: the controllers, for v1 */
};

/* What the kernel says about us: /proc/self/cgroup and /proc/self/mountinfo. */
struct cgroup_texts {
	const char *own;
	const char *mounts;
};

/*
 * cgroup_text.c, readers of kernel texts: pure, no text makes them read past its end, and what does not have the right
 * form counts as not there.  Outputs are written only on success.
 */

/* cgroup_read_mount() - one line of mountinfo.  Return: is it a cgroup mount (that fits struct cgroup_mount)? */
bool cgroup_read_mount(const char *line, size_t len, struct cgroup_mount *ret);

/*
 * cgroup_read_own() - our own group in /proc/self/cgroup
 * @controller: of v1; NULL: the group in v2
 * @ret:        CGROUP_PATH bytes
 *
 * Return: 0, -ENODEV (no such line), -ENAMETOOLONG.
 */
int cgroup_read_own(const char *text, const char *controller, char *ret) MUST_CHECK;

/* cgroup_read_key() - "key 123" at the start of a line.  Return: 0, -ENOENT, -EINVAL, -ERANGE */
int cgroup_read_key(const char *text, const char *key, uint64_t *ret) MUST_CHECK;

/* cgroup_read_count() - digits and a newline; "max" is UINT64_MAX.  Return: 0, -EINVAL, -ERANGE */
int cgroup_read_count(const char *text, uint64_t *ret) MUST_CHECK;

/* cgroup_has_word() - is @word in a list separated by blanks, commas or newlines? */
bool cgroup_has_word(const char *list, const char *word);

/* cgroup_read_name() - is @name a folder of ours, "cloche-<pid>-<8 hex digits>"? */
bool cgroup_read_name(const char *name, pid_t *ret_pid);

/* cgroup_place() - the path of group @own below @m; @ret: CGROUP_PATH bytes.  Return: 0, -ENOENT, -ENAMETOOLONG */
int cgroup_place(const struct cgroup_mount *m, const char *own, char *ret) MUST_CHECK;

/* cgroup_cpu_quota() - the kernel wants 1 ms of quota at least and 1 s of period at most */
void cgroup_cpu_quota(uint32_t cpu_milli, uint64_t *ret_quota_us, uint32_t *ret_period_us);

/*
 * cgroup.c and cgroup_host.c, what both implementations use
 *
 * cgroup_find() - the absolute path of our own group, looked at
 * @controller: of v1; NULL: v2
 *
 * Return: 0, -ENODEV (the kernel has no such controller), -ENOENT (not mounted in our sight), -ENAMETOOLONG.
 */
int cgroup_find(const struct cgroup_texts *t, const char *controller, char *ret) MUST_CHECK;

/*
 * cgroup_make_top() - make our folder below @parent
 * @files: NULL-terminated: which of its files @uid must be able to write
 *
 * Return: the folder, locked and given to @uid, or -errno with nothing left behind.
 */
int cgroup_make_top(const char *parent, const char *name, uid_t uid, gid_t gid, const char *const *files) MUST_CHECK;

/* cgroup_remove() - remove the folder @name and all folders below it.  Return: 0 (also: was not there) or -errno */
int cgroup_remove(int parent, const char *name);

/* cgroup_remove_by() - the same until @deadline_ns: a process that was just reaped may still be on its way out */
int cgroup_remove_by(int parent, const char *name, uint64_t deadline_ns);
void cgroup_pause_ms(long ms);

/* cgroup_each_folder() - call @each for every folder right below @dir */
void cgroup_each_folder(int dir, void (*each)(int dir, const char *name, void *arg), void *arg);

/* cgroup_read_file_key(), cgroup_read_file_count() - the same of a file; 0 when it can't be had */
uint64_t cgroup_read_file_key(int dir, const char *file, const char *key);
uint64_t cgroup_read_file_count(int dir, const char *file);

/* cgroup_write() - fd_write_at() with an error that names the file */
int cgroup_write(int dir, const char *file, const char *text, struct err *e) MUST_CHECK;

/* cgroup_dir_of() - the slot's or host's folder that holds @controller, or -1 */
int cgroup_dir_of(const int *dirs, const uint32_t *controllers, enum cgroup_controller controller);

/* cgroup_say() - append to h->why_not, "; " between */
void cgroup_say(struct cgroup_host *h, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* cgroup_note_swap() - tell in why_not when @file is not in @dir though this host swaps */
void cgroup_note_swap(struct cgroup_host *h, int dir, const char *file);

/* cgroup_risen() - the difference of a counter, never below 0 */
uint64_t cgroup_risen(uint64_t now, uint64_t before);

/*
 * cgroup_peak() - this run's own share of the highest usage that the kernel saw
 *
 * What earlier runs left (page cache) stays charged and is no part of it.  Where the limit was touched the kernel may
 * have thrown that out meanwhile: then the whole counts.
 */
uint64_t cgroup_peak(const struct cgroup *g, uint64_t highest);

/* cgroup_touched_limit() - did the usage come so near to the limit that it can have struck? */
bool cgroup_touched_limit(const struct cgroup *g, uint64_t highest);

/* cgroup_slot_name() - "s<slot>"; @ret: CGROUP_NAME bytes */
void cgroup_slot_name(unsigned slot, char *ret);

/* The two implementations.  cgroup.c has read and checked the arguments, and closes what they leave half-made in @g. */
void cgroup_v1_host(struct cgroup_host *h, const struct cgroup_texts *t, const char *name, uid_t uid, gid_t gid);
int cgroup_v1_open(struct cgroup *g, struct err *e) MUST_CHECK;
int cgroup_v1_open_tasks(struct cgroup *g, struct err *e) MUST_CHECK;
int cgroup_v1_set(struct cgroup *g, const struct cgroup_limits *l, struct err *e) MUST_CHECK;
int cgroup_v1_start(struct cgroup *g, struct err *e) MUST_CHECK;
bool cgroup_v1_is_oom(const struct cgroup *g);
bool cgroup_v1_is_empty(const struct cgroup *g);
void cgroup_v1_usage(const struct cgroup *g, struct cgroup_usage *ret);

void cgroup_v2_host(struct cgroup_host *h, const struct cgroup_texts *t, const char *name, uid_t uid, gid_t gid);
void cgroup_v2_host_leave(struct cgroup_host *h);

/*
 * cgroup_v2_renew() - a slot's group from before, made anew if its memory.peak can't be reset (5.19 to 6.11)
 *
 * Return: 0; -EEXIST: it stays as it was; -errno (-EBUSY: somebody is still on his way out).
 */
int cgroup_v2_renew(int dir, const char *name) MUST_CHECK;
int cgroup_v2_open(struct cgroup *g, struct err *e) MUST_CHECK;
int cgroup_v2_set(struct cgroup *g, const struct cgroup_limits *l, struct err *e) MUST_CHECK;
void cgroup_v2_start(struct cgroup *g);
void cgroup_v2_usage(const struct cgroup *g, struct cgroup_usage *ret);
