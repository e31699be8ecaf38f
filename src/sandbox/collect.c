/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files out of a sandbox, as a stream of frames.
 *
 * Theory of operation.  The walk is a loop over a stack of folders, each with its sorted entries and, for each pattern,
 * the state that its path led to (glob.h): an entry that no pattern can need is not even remembered, so a pattern
 * without wildcards walks nothing but its own path.  One folder is open at a time; on the way up it is opened again
 * from the root, component by component, so depth costs no descriptors.  Everything here was made by the script:
 * names, sizes, modes and depth are hostile, and each cap ends in a note, never in silence.
 */
#include "sandbox/collect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/pack.h"
#include "sandbox/glob.h"
#include "sandbox/spec.h"

struct entry {
	bool is_folder;
	char name[];
};

struct level {
	struct entry **entries; /* owned, each owned */
	size_t n;
	size_t size;
	size_t next;
	size_t path_len;  /* of this folder within collector.path; 0: the root */
	uint64_t *states; /* owned; one for each pattern */
};

struct collector {
	int root; /* borrowed */
	int out;  /* borrowed */
	int dir;  /* owned: the folder of the deepest level; -1: to be opened again */
	dev_t dev;
	const char *bundle;
	size_t bundle_len;
	struct glob *globs; /* owned */
	size_t n_globs;
	struct level levels[COLLECT_DEPTH + 1];
	unsigned depth; /* levels in use */
	size_t looked;
	bool is_full; /* COLLECT_LOOKED was reached: no further folder is read */
	uint64_t deadline_ns;
	unsigned n_files;
	unsigned n_notes;
	size_t n_unlisted;
	uint64_t bytes;
	char path[COLLECT_NAME_MAX + 1];
	char buf[65536];
};

static int send_frame(struct collector *c, uint32_t kind, const char *name, const char *reason, uint64_t size)
{
	size_t name_len = strnlen(name, COLLECT_NAME_MAX);
	size_t reason_len = reason ? strlen(reason) + 1 : 0;
	struct collect_frame f = { .kind = kind, .name_len = (uint32_t)(name_len + reason_len), .size = size };
	int r = fd_write_all(c->out, &f, sizeof(f));

	if (r == 0)
		r = fd_write_all(c->out, name, name_len);
	if (r == 0 && reason) {
		r = fd_write_all(c->out, "", 1);
		if (r == 0)
			r = fd_write_all(c->out, reason, reason_len - 1);
	}
	return r;
}

/* Tell what is left out and why; the last note is kept for the number of those that were not told. */
static int PRINTF_LIKE(4, 5) note(struct collector *c, const char *name, uint64_t size, const char *fmt, ...)
{
	char reason[COLLECT_REASON_MAX];
	va_list ap;

	if (c->n_notes == COLLECT_NOTES - 1) {
		c->n_unlisted++;
		return 0;
	}
	c->n_notes++;
	va_start(ap, fmt);
	(void)vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	return send_frame(c, COLLECT_LEFT_OUT, name[0] ? name : ".", reason, size);
}

/* The script's input @path (relative, plain), whose record may spell it with "./" and "//". */
static bool is_same_path(const char *spelled, const char *path)
{
	for (;;) {
		size_t len;

		while (spelled[0] == '/' || (spelled[0] == '.' && (spelled[1] == '/' || spelled[1] == '\0')))
			spelled++;
		while (path[0] == '/')
			path++;
		if (!spelled[0] || !path[0])
			return spelled[0] == path[0];
		len = strcspn(spelled, "/");
		if (strcspn(path, "/") != len || memcmp(spelled, path, len) != 0)
			return false;
		spelled += len;
		path += len;
	}
}

static bool has_content(struct collector *c, int fd, const char *data, size_t len)
{
	size_t at = 0;

	while (at < len) {
		size_t want = len - at < sizeof(c->buf) ? len - at : sizeof(c->buf);
		ssize_t n = pread(fd, c->buf, want, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || memcmp(c->buf, data + at, (size_t)n) != 0)
			return false;
		at += (size_t)n;
	}
	return true;
}

static bool is_unchanged_input(struct collector *c, int fd, uint64_t size)
{
	struct pack_record rec;
	size_t offset = 0;

	while (pack_next(c->bundle, c->bundle_len, &offset, &rec) == 1) {
		if (rec.kind == SANDBOX_FILE && is_same_path(rec.name, c->path))
			return rec.len == size && has_content(c, fd, rec.data, rec.len);
	}
	return false;
}

/* The size is told first, so it is kept to: what can't be read any more is made up by zeros and then declared void. */
static int send_body(struct collector *c, int fd, uint64_t size)
{
	int r = send_frame(c, COLLECT_FILE, c->path, NULL, size);
	const char *fault = NULL;
	uint64_t left = size;
	struct stat st;

	while (r == 0 && left > 0) {
		size_t want = left < sizeof(c->buf) ? (size_t)left : sizeof(c->buf);
		ssize_t n = fault ? (ssize_t)want : read(fd, c->buf, want);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			fault = n < 0 ? strerror(errno) : "it became shorter while it was read";
			memset(c->buf, 0, sizeof(c->buf));
			continue;
		}
		r = fd_write_all(c->out, c->buf, (size_t)n);
		left -= (uint64_t)n;
	}
	if (r < 0)
		return r;
	if (!fault && (fstat(fd, &st) < 0 || (uint64_t)st.st_size != size))
		fault = "its size changed while it was read";
	return fault ? send_frame(c, COLLECT_LEFT_OUT, c->path, fault, size) : 0;
}

/* The file at c->path, @name in the open folder. */
static int send_file(struct collector *c, const char *name)
{
	auto_fd int fd = openat(c->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	uint64_t size;

	if (fd < 0)
		return note(c, c->path, 0, "it can't be opened: %s", strerror(errno));
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_dev != c->dev)
		return 0;
	size = (uint64_t)st.st_size;
	if (is_unchanged_input(c, fd, size))
		return 0;
	if (size > COLLECT_FILE_BYTES)
		return note(c, c->path, size, "%" PRIu64 " bytes: more than the %" PRIu64 " that one file may have",
			    size, COLLECT_FILE_BYTES);
	if (c->n_files == COLLECT_FILES)
		return note(c, c->path, size, "%d files are handed back already, the most there may be", COLLECT_FILES);
	if (size > COLLECT_ALL_BYTES - c->bytes)
		return note(c, c->path, size,
			    "%" PRIu64 " bytes: with those before it more than the %" PRIu64
			    " that all files together may have",
			    size, COLLECT_ALL_BYTES);
	c->n_files++;
	c->bytes += size;
	return send_body(c, fd, size);
}

/* By bytes of the whole path: a folder sorts as what is in it, with its slash. */
static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = *(struct entry *const *)a;
	const struct entry *y = *(struct entry *const *)b;
	const unsigned char *p = (const unsigned char *)x->name;
	const unsigned char *q = (const unsigned char *)y->name;

	while (*p && *p == *q) {
		p++;
		q++;
	}
	return (*p ? *p : x->is_folder ? '/' : 0) - (*q ? *q : y->is_folder ? '/' : 0);
}

static bool is_needed(const struct collector *c, const struct level *l, const char *name, bool is_folder)
{
	for (size_t i = 0; i < c->n_globs; i++) {
		uint64_t state = glob_step(&c->globs[i], l->states[i], name, strlen(name));

		if (is_folder ? glob_goes_on(&c->globs[i], state) : glob_is_match(&c->globs[i], state))
			return true;
	}
	return false;
}

static int add_entry(struct level *l, const char *name, bool is_folder)
{
	size_t len = strlen(name);
	struct entry *e;

	if (l->n == l->size) {
		size_t size = l->size ? l->size * 2 : 16;
		struct entry **bigger = realloc(l->entries, size * sizeof(struct entry *));

		if (!bigger)
			return -ENOMEM;
		l->entries = bigger;
		l->size = size;
	}
	e = malloc(sizeof(*e) + len + 1);
	if (!e)
		return -ENOMEM;
	e->is_folder = is_folder;
	memcpy(e->name, name, len + 1);
	l->entries[l->n++] = e;
	return 0;
}

static int take_entry(struct collector *c, struct level *l, const struct dirent *d)
{
	unsigned char type = d->d_type;
	struct stat st;

	if (type == DT_UNKNOWN && fstatat(c->dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		type = S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_UNKNOWN;
	if ((type != DT_DIR && type != DT_REG) || !is_needed(c, l, d->d_name, type == DT_DIR))
		return 0;
	return add_entry(l, d->d_name, type == DT_DIR);
}

static int read_entries(struct collector *c, struct level *l, DIR *d)
{
	int r = 0;

	while (r == 0) {
		const struct dirent *e;

		errno = 0;
		e = readdir(d);
		if (!e)
			return errno ? note(c, c->path, 0, "the folder can't be read: %s", strerror(errno)) : 0;
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (c->looked == COLLECT_LOOKED) {
			c->is_full = true;
			return note(c, c->path, 0,
				    "%d entries of folders were looked at, the most there may be: "
				    "what is left here and in further folders is left out",
				    COLLECT_LOOKED);
		}
		c->looked++;
		r = take_entry(c, l, e);
	}
	return r;
}

static int read_folder(struct collector *c, struct level *l)
{
	int fd = fcntl(c->dir, F_DUPFD_CLOEXEC, 3);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	int r;

	if (!d) {
		r = note(c, c->path, 0, "the folder can't be read: %s", strerror(errno));
		fd_close(&fd);
		return r;
	}
	r = read_entries(c, l, d);
	(void)closedir(d);
	if (l->n > 1)
		qsort(l->entries, l->n, sizeof(struct entry *), compare_entries);
	return r;
}

static int open_folder(int dir, const char *name)
{
	return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

/* Open the deepest level's folder again, from the root; c->path begins with it. */
static int reopen_folder(struct collector *c)
{
	size_t len = c->levels[c->depth - 1].path_len;
	auto_fd int fd = open_folder(c->root, ".");
	size_t at = 0;

	while (fd >= 0 && at < len) {
		size_t part = strcspn(c->path + at, "/");
		char name[NAME_MAX + 1];
		int next;

		memcpy(name, c->path + at, part);
		name[part] = '\0';
		next = open_folder(fd, name);
		fd_close(&fd);
		fd = next;
		at += part + 1;
	}
	if (fd < 0)
		return -errno;
	c->dir = take_fd(&fd);
	return 0;
}

/* One level more: the folder c->path, open as c->dir; @name: its last component, NULL for the root. */
static int push(struct collector *c, const char *name)
{
	struct level *l = &c->levels[c->depth];

	*l = (struct level) { .path_len = strlen(c->path), .states = calloc(c->n_globs, sizeof(uint64_t)) };
	if (!l->states)
		return -ENOMEM;
	for (size_t i = 0; i < c->n_globs; i++)
		l->states[i] =
			name ? glob_step(&c->globs[i], l[-1].states[i], name, strlen(name)) : glob_start(&c->globs[i]);
	c->depth++;
	return read_folder(c, l);
}

static void pop(struct collector *c)
{
	struct level *l = &c->levels[--c->depth];

	for (size_t i = 0; i < l->n; i++)
		free(l->entries[i]);
	free(l->entries);
	free(l->states);
	fd_close(&c->dir);
}

static int enter_folder(struct collector *c, const char *name)
{
	struct stat st;
	int fd;

	if (c->is_full)
		return 0;
	if (c->depth > COLLECT_DEPTH)
		return note(c, c->path, 0, "it is more than %d folders deep", COLLECT_DEPTH);
	fd = open_folder(c->dir, name);
	if (fd < 0)
		return note(c, c->path, 0, "the folder can't be opened: %s", strerror(errno));
	if (fstat(fd, &st) < 0 || st.st_dev != c->dev) {
		fd_close(&fd);
		return 0;
	}
	fd_close(&c->dir);
	c->dir = fd;
	return push(c, name);
}

static int take_next(struct collector *c, struct level *l)
{
	const struct entry *e = l->entries[l->next++];
	size_t at = l->path_len;
	size_t len = strlen(e->name);
	int r;

	c->path[at] = '\0';
	if (c->dir < 0) {
		r = reopen_folder(c);
		if (r < 0) {
			l->next = l->n;
			return note(c, c->path, 0, "the folder can't be opened again: %s", strerror(-r));
		}
	}
	if (at + 1 + len > COLLECT_NAME_MAX)
		return note(c, c->path, 0, "a path in it is longer than %d bytes", COLLECT_NAME_MAX);
	if (at > 0)
		c->path[at++] = '/';
	memcpy(c->path + at, e->name, len + 1);
	return e->is_folder ? enter_folder(c, e->name) : send_file(c, e->name);
}

static int walk(struct collector *c)
{
	struct stat st;
	int r;

	c->dir = open_folder(c->root, ".");
	if (c->dir < 0 || fstat(c->dir, &st) < 0)
		return note(c, ".", 0, "the folder can't be opened: %s", strerror(errno));
	c->dev = st.st_dev;
	r = push(c, NULL);
	while (r == 0 && c->depth > 0) {
		struct level *l = &c->levels[c->depth - 1];

		if (l->next == l->n) {
			pop(c);
			continue;
		}
		if (clock_now_ns() > c->deadline_ns) {
			c->path[l->path_len] = '\0';
			return note(c, c->path, 0,
				    "looking for files took more than %d seconds: "
				    "what is left here and in further folders is left out",
				    (int)(COLLECT_TIME_NS / NS_PER_SEC));
		}
		r = take_next(c, l);
	}
	return r;
}

static int read_patterns(struct collector *c)
{
	struct pack_record rec;
	size_t offset = 0;
	size_t n = 0;
	int r;

	while ((r = pack_next(c->bundle, c->bundle_len, &offset, &rec)) == 1)
		n += rec.kind == SANDBOX_ARTIFACT;
	if (r < 0 || n == 0)
		return r;
	c->globs = calloc(n, sizeof(*c->globs));
	if (!c->globs)
		return -ENOMEM;
	offset = 0;
	while (r == 0 && pack_next(c->bundle, c->bundle_len, &offset, &rec) == 1) {
		int bad;

		if (rec.kind != SANDBOX_ARTIFACT)
			continue;
		bad = glob_compile(rec.data, rec.len, &c->globs[c->n_globs]);
		c->n_globs += bad == 0;
		if (bad == -E2BIG)
			r = note(c, rec.data, 0, "the pattern has more than %d parts", GLOB_PARTS);
		else if (bad < 0)
			r = note(c, rec.data, 0, "the pattern names no file below the folder of the script");
	}
	return r;
}

int collect_artifacts(int root, const char *bundle, size_t bundle_len, int out)
{
	struct collector *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->root = root;
	c->out = out;
	c->dir = -1;
	c->bundle = bundle;
	c->bundle_len = bundle_len;
	c->deadline_ns = clock_now_ns() + COLLECT_TIME_NS;
	r = read_patterns(c);
	if (r == 0 && c->n_globs > 0)
		r = walk(c);
	if (r == 0 && c->n_unlisted > 0) {
		(void)snprintf(c->buf, sizeof(c->buf), "%zu more were left out and are not listed", c->n_unlisted);
		r = send_frame(c, COLLECT_LEFT_OUT, ".", c->buf, 0);
	}
	if (r == 0)
		r = send_frame(c, COLLECT_END, "", NULL, 0);
	while (c->depth > 0)
		pop(c);
	fd_close(&c->dir);
	free(c->globs);
	free(c);
	return r;
}
