/* SPDX-License-Identifier: Apache-2.0 */
#include "job/artifacts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void artifacts_init(struct artifacts_reader *r)
{
	*r = (struct artifacts_reader) { 0 };
}

static void drop_frame(struct artifacts_reader *r)
{
	free(r->name);
	free(r->body);
	r->name = NULL;
	r->name_len = 0;
	r->body = NULL;
	r->body_len = 0;
	r->frame_len = 0;
}

static void artifact_done(struct artifact *a)
{
	free(a->name);
	free(a->left_out);
	free(a->body.data);
	*a = (struct artifact) { 0 };
}

void artifacts_done(struct artifacts_reader *r)
{
	drop_frame(r);
	for (size_t i = 0; i < r->n; i++)
		artifact_done(&r->items[i]);
	free(r->items);
	artifacts_init(r);
}

static int begin_frame(struct artifacts_reader *r)
{
	const struct collect_frame *f = &r->frame;

	switch (f->kind) {
	case COLLECT_FILE:
		if (f->name_len == 0 || f->name_len > COLLECT_NAME_MAX || r->n_files == COLLECT_FILES ||
		    f->size > COLLECT_FILE_BYTES || f->size > COLLECT_ALL_BYTES - r->bytes)
			return -EBADMSG;
		r->n_files++;
		r->bytes += f->size;
		r->body = malloc((size_t)f->size + 1);
		if (!r->body)
			return -ENOMEM;
		break;
	case COLLECT_LEFT_OUT:
		if (f->name_len < 3 || f->name_len > COLLECT_NAME_MAX + 1 + COLLECT_REASON_MAX)
			return -EBADMSG;
		break;
	case COLLECT_END:
		return f->name_len == 0 && f->size == 0 ? 0 : -EBADMSG;
	default:
		return -EBADMSG;
	}
	r->name = malloc((size_t)f->name_len + 1);
	if (!r->name)
		return -ENOMEM;
	r->name[f->name_len] = '\0';
	return 0;
}

/* A path that may be joined to a folder: relative, of plain components, no NUL. */
static bool is_plain_path(const char *name, size_t len)
{
	if (memchr(name, '\0', len))
		return false;
	for (const char *p = name;; p++) {
		size_t part = strcspn(p, "/");

		if (part == 0 || (p[0] == '.' && (part == 1 || (part == 2 && p[1] == '.'))))
			return false;
		p += part;
		if (!*p)
			return true;
	}
}

static bool has_file(const struct artifacts_reader *r, const char *name)
{
	for (size_t i = 0; i < r->n; i++) {
		if (!r->items[i].left_out && strcmp(r->items[i].name, name) == 0)
			return true;
	}
	return false;
}

static struct artifact *add(struct artifacts_reader *r)
{
	if (!r->items) {
		r->items = calloc(COLLECT_FILES + COLLECT_NOTES, sizeof(r->items[0]));
		if (!r->items)
			return NULL;
	}
	return &r->items[r->n++];
}

static int end_file(struct artifacts_reader *r)
{
	struct artifact *a;

	r->name[r->name_len] = '\0';
	r->body[r->body_len] = '\0';
	if (!is_plain_path(r->name, r->name_len) || has_file(r, r->name))
		return -EBADMSG;
	a = add(r);
	if (!a)
		return -ENOMEM;
	*a = (struct artifact) { .name = r->name, .size = r->body_len };
	a->body = (struct job_blob) { .data = r->body, .len = (size_t)r->body_len };
	r->name = NULL;
	r->body = NULL;
	return 0;
}

static int end_left_out(struct artifacts_reader *r)
{
	const char *nul = memchr(r->name, '\0', r->name_len);
	size_t reason_len = nul ? r->name_len - (size_t)(nul - r->name) - 1 : 0;
	struct artifact *a;
	char *reason;

	if (!nul || nul == r->name || reason_len == 0 || reason_len > COLLECT_REASON_MAX ||
	    memchr(nul + 1, '\0', reason_len))
		return -EBADMSG;
	a = r->n > 0 ? &r->items[r->n - 1] : NULL;
	if (a && (a->left_out || strcmp(a->name, r->name) != 0))
		a = NULL; /* not about the body just before it: one more entry */
	if (!a && r->n_notes == COLLECT_NOTES)
		return -EBADMSG;
	reason = strdup(nul + 1);
	if (!reason)
		return -ENOMEM;
	if (a) {
		artifact_done(a);
	} else {
		r->n_notes++;
		a = add(r);
	}
	if (!a) {
		free(reason);
		return -ENOMEM;
	}
	*a = (struct artifact) { .name = r->name, .size = r->frame.size, .left_out = reason };
	r->name = NULL;
	return 0;
}

static int end_frame(struct artifacts_reader *r)
{
	int e = 0;

	if (r->frame.kind == COLLECT_FILE)
		e = end_file(r);
	else if (r->frame.kind == COLLECT_LEFT_OUT)
		e = end_left_out(r);
	else
		r->is_ended = true;
	drop_frame(r);
	return e;
}

static size_t take(char *to, uint64_t have, uint64_t want, const char *data, size_t len)
{
	size_t n = want - have < len ? (size_t)(want - have) : len;

	memcpy(to + have, data, n);
	return n;
}

/* One step of the frame under way.  @ret_n: bytes that it used */
static int step(struct artifacts_reader *r, const char *data, size_t len, size_t *ret_n)
{
	size_t n;
	int e;

	if (r->is_ended)
		return -EBADMSG;
	if (r->frame_len < sizeof(r->frame)) {
		n = take((char *)&r->frame, r->frame_len, sizeof(r->frame), data, len);
		r->frame_len += n;
		*ret_n = n;
		if (r->frame_len < sizeof(r->frame))
			return 0;
		e = begin_frame(r);
		if (e < 0)
			return e;
	} else if (r->name_len < r->frame.name_len) {
		n = take(r->name, r->name_len, r->frame.name_len, data, len);
		r->name_len += n;
		*ret_n = n;
	} else {
		n = take(r->body, r->body_len, r->frame.size, data, len);
		r->body_len += n;
		*ret_n = n;
	}
	if (r->name_len < r->frame.name_len || (r->frame.kind == COLLECT_FILE && r->body_len < r->frame.size))
		return 0;
	return end_frame(r);
}

int artifacts_feed(struct artifacts_reader *r, const void *data, size_t len)
{
	const char *p = data;

	if (r->is_broken)
		return -EBADMSG;
	while (len > 0) {
		size_t n = 0;
		int e = step(r, p, len, &n);

		if (e < 0) {
			r->is_broken = true;
			drop_frame(r);
			return e;
		}
		p += n;
		len -= n;
	}
	return 0;
}

int artifacts_take(struct artifacts_reader *r, struct result *ret)
{
	int e = r->is_broken || !r->is_ended ? -EBADMSG : 0;

	ret->artifacts = r->items;
	ret->n_artifacts = r->n;
	r->items = NULL;
	r->n = 0;
	artifacts_done(r);
	return e;
}
