/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job/artifacts.h"

struct stream {
	char data[65536];
	size_t len;
};

static void add_bytes(struct stream *s, const void *data, size_t len)
{
	assert_true(len <= sizeof(s->data) - s->len);
	memcpy(s->data + s->len, data, len);
	s->len += len;
}

static void add_head(struct stream *s, uint32_t kind, size_t name_len, uint64_t size)
{
	struct collect_frame f = { .kind = kind, .name_len = (uint32_t)name_len, .size = size };

	add_bytes(s, &f, sizeof(f));
}

static void add_file(struct stream *s, const char *name, const char *body)
{
	add_head(s, COLLECT_FILE, strlen(name), strlen(body));
	add_bytes(s, name, strlen(name));
	add_bytes(s, body, strlen(body));
}

static void add_left_out(struct stream *s, const char *name, const char *reason, uint64_t size)
{
	add_head(s, COLLECT_LEFT_OUT, strlen(name) + 1 + strlen(reason), size);
	add_bytes(s, name, strlen(name) + 1);
	add_bytes(s, reason, strlen(reason));
}

static void forget(struct result *res)
{
	for (size_t i = 0; i < res->n_artifacts; i++) {
		free(res->artifacts[i].name);
		free(res->artifacts[i].left_out);
		free(res->artifacts[i].body.data);
	}
	free(res->artifacts);
	res->artifacts = NULL;
	res->n_artifacts = 0;
}

/* Feed the whole in parts of @part bytes.  Return: what feeding said; *@ret_taken: what taking said */
static int read_stream(const struct stream *s, size_t part, struct result *res, int *ret_taken)
{
	struct artifacts_reader r;
	int e = 0;

	artifacts_init(&r);
	for (size_t at = 0; at < s->len && e == 0; at += part)
		e = artifacts_feed(&r, s->data + at, s->len - at < part ? s->len - at : part);
	*ret_taken = artifacts_take(&r, res);
	artifacts_done(&r);
	return e;
}

static void test_cut_anywhere(void **state)
{
	struct stream s = { .len = 0 };

	(void)state;
	add_file(&s, "a/b.txt", "content");
	add_file(&s, "empty", "");
	add_left_out(&s, "big", "too big", 1 << 30);
	add_file(&s, "\xff\n", "x");
	add_head(&s, COLLECT_END, 0, 0);
	for (size_t part = 1; part <= s.len; part++) {
		struct result res = { .n_artifacts = 0 };
		int taken;

		assert_int_equal(read_stream(&s, part, &res, &taken), 0);
		assert_int_equal(taken, 0);
		assert_int_equal(res.n_artifacts, 4);
		assert_string_equal(res.artifacts[0].name, "a/b.txt");
		assert_int_equal(res.artifacts[0].size, 7);
		assert_int_equal(res.artifacts[0].body.len, 7);
		assert_string_equal(res.artifacts[0].body.data, "content");
		assert_null(res.artifacts[0].left_out);
		assert_int_equal(res.artifacts[1].body.len, 0);
		assert_string_equal(res.artifacts[1].body.data, "");
		assert_string_equal(res.artifacts[2].name, "big");
		assert_string_equal(res.artifacts[2].left_out, "too big");
		assert_int_equal(res.artifacts[2].size, 1 << 30);
		assert_null(res.artifacts[2].body.data);
		assert_string_equal(res.artifacts[3].name, "\xff\n");
		forget(&res);
	}
}

static void test_cut_short(void **state)
{
	struct stream s = { .len = 0 };
	size_t first;

	(void)state;
	add_file(&s, "a", "1");
	first = s.len;
	add_file(&s, "b", "2");
	add_head(&s, COLLECT_END, 0, 0);
	for (; s.len > 0; s.len--) {
		struct result res = { .n_artifacts = 0 };
		int taken;

		assert_int_equal(read_stream(&s, 7, &res, &taken), 0);
		assert_int_equal(taken, s.len == 2 * first + sizeof(struct collect_frame) ? 0 : -EBADMSG);
		assert_int_equal(res.n_artifacts, s.len / first > 2 ? 2 : s.len / first);
		forget(&res);
	}
}

/* One good file, then @s: it must break the reader, and the file must stay. */
static void expect_broken(const struct stream *bad)
{
	struct stream s = { .len = 0 };
	struct artifacts_reader r;
	struct result res = { .n_artifacts = 0 };

	add_file(&s, "good", "1");
	add_bytes(&s, bad->data, bad->len);
	artifacts_init(&r);
	assert_int_equal(artifacts_feed(&r, s.data, s.len), -EBADMSG);
	assert_int_equal(artifacts_feed(&r, s.data, s.len), -EBADMSG);
	assert_int_equal(artifacts_take(&r, &res), -EBADMSG);
	assert_int_equal(res.n_artifacts, 1);
	assert_string_equal(res.artifacts[0].name, "good");
	forget(&res);
}

static void test_bad_names(void **state)
{
	static const char *const bad[] = {
		"/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", "./a", "a/./b", "/"
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct stream s = { .len = 0 };

		add_file(&s, bad[i], "x");
		expect_broken(&s);
	}
	{
		struct stream s = { .len = 0 };

		add_head(&s, COLLECT_FILE, 3, 0);
		add_bytes(&s, "a\0b", 3);
		expect_broken(&s);
	}
	{
		struct stream s = { .len = 0 };

		add_file(&s, "good", "twice");
		expect_broken(&s);
	}
}

static void test_bad_heads(void **state)
{
	static const struct collect_frame bad[] = {
		{ 0, 1, 1 },
		{ 4, 0, 0 },
		{ UINT32_MAX, UINT32_MAX, UINT64_MAX },
		{ COLLECT_END, 1, 0 },
		{ COLLECT_END, 0, 1 },
		{ COLLECT_FILE, 0, 1 },
		{ COLLECT_FILE, COLLECT_NAME_MAX + 1, 1 },
		{ COLLECT_FILE, UINT32_MAX, 1 },
		{ COLLECT_FILE, 1, COLLECT_FILE_BYTES + 1 },
		{ COLLECT_FILE, 1, UINT64_MAX },
		{ COLLECT_LEFT_OUT, 0, 0 },
		{ COLLECT_LEFT_OUT, 2, 0 },
		{ COLLECT_LEFT_OUT, COLLECT_NAME_MAX + COLLECT_REASON_MAX + 2, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct stream s = { .len = 0 };

		add_bytes(&s, &bad[i], sizeof(bad[i]));
		expect_broken(&s);
	}
}

static void test_bad_reasons(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
	} bad[] = { { "abc", 3 }, { "ab\0", 3 }, { "\0ab", 3 }, { "a\0b\0", 4 }, { "a\0b\0c", 5 } };
	struct stream s = { .len = 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		s.len = 0;
		add_head(&s, COLLECT_LEFT_OUT, bad[i].len, 0);
		add_bytes(&s, bad[i].bytes, bad[i].len);
		expect_broken(&s);
	}
	{
		char reason[COLLECT_REASON_MAX + 2];

		memset(reason, 'r', sizeof(reason));
		reason[sizeof(reason) - 1] = '\0';
		s.len = 0;
		add_left_out(&s, "a", reason, 0);
		expect_broken(&s);
	}
}

static void test_nothing_behind_the_end(void **state)
{
	struct artifacts_reader r;
	struct stream s = { .len = 0 };

	(void)state;
	add_head(&s, COLLECT_END, 0, 0);
	add_bytes(&s, "x", 1);
	expect_broken(&s);
	artifacts_init(&r);
	assert_int_equal(artifacts_feed(&r, s.data, s.len - 1), 0);
	assert_int_equal(artifacts_feed(&r, "", 0), 0);
	artifacts_done(&r);
}

static void test_too_many(void **state)
{
	struct artifacts_reader r;
	struct stream s = { .len = 0 };
	struct result res = { .n_artifacts = 0 };
	char name[2] = { 0 };

	(void)state;
	for (int i = 0; i < COLLECT_FILES; i++) {
		name[0] = (char)('0' + i);
		add_file(&s, name, "x");
	}
	for (int i = 0; i < COLLECT_NOTES; i++)
		add_left_out(&s, ".", "and more", 0);
	artifacts_init(&r);
	assert_int_equal(artifacts_feed(&r, s.data, s.len), 0);
	s.len = 0;
	add_left_out(&s, "n", "one too many", 0);
	assert_int_equal(artifacts_feed(&r, s.data, s.len), -EBADMSG);
	assert_int_equal(artifacts_take(&r, &res), -EBADMSG);
	assert_int_equal(res.n_artifacts, COLLECT_FILES + COLLECT_NOTES);
	forget(&res);

	artifacts_init(&r);
	for (int i = 0; i <= COLLECT_FILES; i++) {
		s.len = 0;
		name[0] = (char)('0' + i);
		add_file(&s, name, "x");
		assert_int_equal(artifacts_feed(&r, s.data, s.len), i < COLLECT_FILES ? 0 : -EBADMSG);
	}
	artifacts_done(&r);
}

static void test_bodies_together(void **state)
{
	static char zeros[1 << 20];
	struct artifacts_reader r;
	struct stream s = { .len = 0 };
	char name[2] = { 0 };

	(void)state;
	artifacts_init(&r);
	for (int i = 0; i < 4; i++) {
		s.len = 0;
		name[0] = (char)('a' + i);
		add_head(&s, COLLECT_FILE, 1, COLLECT_FILE_BYTES);
		add_bytes(&s, name, 1);
		assert_int_equal(artifacts_feed(&r, s.data, s.len), 0);
		for (size_t sent = 0; sent < COLLECT_FILE_BYTES; sent += sizeof(zeros))
			assert_int_equal(artifacts_feed(&r, zeros, sizeof(zeros)), 0);
	}
	assert_int_equal(r.n, 4);
	s.len = 0;
	add_head(&s, COLLECT_FILE, 1, 1);
	assert_int_equal(artifacts_feed(&r, s.data, s.len), -EBADMSG);
	assert_int_equal(r.n, 4);
	artifacts_done(&r);
}

static void test_a_body_is_voided(void **state)
{
	struct stream s = { .len = 0 };
	struct result res = { .n_artifacts = 0 };
	int taken;

	(void)state;
	add_file(&s, "a", "1");
	add_file(&s, "b", "00");
	add_left_out(&s, "b", "it changed", 2);
	add_left_out(&s, "a", "a folder of that name", 0); /* not the frame just before: no effect on the file */
	add_file(&s, "c", "3");
	add_head(&s, COLLECT_END, 0, 0);
	assert_int_equal(read_stream(&s, s.len, &res, &taken), 0);
	assert_int_equal(taken, 0);
	assert_int_equal(res.n_artifacts, 4);
	assert_string_equal(res.artifacts[0].body.data, "1");
	assert_string_equal(res.artifacts[1].name, "b");
	assert_string_equal(res.artifacts[1].left_out, "it changed");
	assert_null(res.artifacts[1].body.data);
	assert_string_equal(res.artifacts[2].left_out, "a folder of that name");
	assert_string_equal(res.artifacts[3].body.data, "3");
	forget(&res);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_anywhere),     cmocka_unit_test(test_cut_short),
		cmocka_unit_test(test_bad_names),        cmocka_unit_test(test_bad_heads),
		cmocka_unit_test(test_bad_reasons),      cmocka_unit_test(test_nothing_behind_the_end),
		cmocka_unit_test(test_too_many),         cmocka_unit_test(test_bodies_together),
		cmocka_unit_test(test_a_body_is_voided),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
