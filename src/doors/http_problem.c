/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "doors/door.h"
#include "doors/http_status.h"
#include "job/json.h"

int problem_add_error(struct buf *b, const char *error, size_t len)
{
	const char *from = len ? memchr(error, '{', len) : NULL;
	const char *to = len ? memrchr(error, '}', len) : NULL;
	int r;

	if (!from || !to || to <= from + 1)
		return 0;
	r = buf_add(b, ", ", 2);
	return r < 0 ? r : buf_add(b, from + 1, (size_t)(to - from) - 1);
}

static char *write_problem(const struct problem *p)
{
	const char *title = http_status_reason(p->status);
	const char *detail = p->detail ? p->detail : title;
	bool ignored;
	struct buf b;
	int r;

	buf_init(&b, (size_t)1 << 20);
	r = buf_printf(&b, "{\"type\": \"%s%s\", \"title\": \"%s\", \"status\": %d, \"detail\": ",
		       p->type ? "urn:cloche:problem:" : "about:blank", p->type ? p->type : "", title, p->status);
	if (r == 0)
		r = job_json_add_bytes(&b, detail, strlen(detail), &ignored);
	if (r == 0 && p->error)
		r = problem_add_error(&b, p->error, strlen(p->error));
	if (r == 0)
		r = buf_add(&b, "}", 1);
	if (r < 0)
		buf_done(&b);
	return b.data;
}

void problem_reply(struct http_conn *c, const struct problem *p)
{
	char *text = write_problem(p);
	struct http_answer a = {
		.status = p->status,
		.type = "application/problem+json",
		.headers = p->headers,
		.body = text,
		.len = text ? strlen(text) : 0,
		.frees_body = true,
	};

	http_reply(c, &a);
}

void answer_json(struct http_conn *c, int status, char *owned)
{
	struct http_answer a = {
		.status = status,
		.type = "application/json",
		.body = owned,
		.len = owned ? strlen(owned) : 0,
		.frees_body = true,
	};

	if (owned)
		http_reply(c, &a);
	else
		problem_reply(c, &(struct problem) { .status = 503, .detail = "no memory", .headers = RETRY_SOON });
}

void problem_refusal(struct http_conn *c, const struct runner_answer *a)
{
	json_t *o = a->json ? json_loadb(a->json, a->len, JSON_ALLOW_NUL, NULL) : NULL;
	const char *message = json_string_value(json_object_get(json_object_get(o, "error"), "message"));
	struct problem p = { .status = 422, .type = "request-refused", .detail = message, .error = a->json };

	if (a->kind == ERR_BUSY)
		p = (struct problem) { .status = 503, .type = "busy", .detail = message, .headers = RETRY_SOON };
	problem_reply(c, &p);
	json_decref(o);
}

void problem_start(struct http_conn *c, const struct err *e)
{
	struct problem p = { .status = 500, .type = "internal", .detail = e->msg };

	if (e->kind == ERR_BUSY || e->kind == ERR_HOST)
		p = (struct problem) {
			.status = 503,
			.type = "no-server",
			.detail = "no server that makes runs answers; try again",
			.headers = RETRY_SOON,
		};
	problem_reply(c, &p);
}
