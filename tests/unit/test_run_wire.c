/* SPDX-License-Identifier: Apache-2.0 */
/* Several messages in one, and what is none. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "run/wire.h"

static union {
	struct wire_head head;
	char bytes[256];
} m;

static size_t begin(void)
{
	memset(&m, 0xee, sizeof(m));
	m.head = (struct wire_head){ .type = WIRE_LAST };
	return sizeof(m.head);
}

/* Return: where the next one is to be */
static size_t add(size_t at, uint32_t type, uint32_t len)
{
	struct wire_part part = { .len = len };
	struct wire_head head = { .type = type, .stream = len };

	memcpy(m.bytes + at, &part, sizeof(part));
	memcpy(m.bytes + at + sizeof(part), &head, sizeof(head));
	return at + sizeof(part) + WIRE_ALIGNED(len);
}

static void test_one_alone(void **state)
{
	const struct wire_head *head = NULL;
	size_t at = 0;

	(void)state;
	m.head = (struct wire_head){ .type = WIRE_OUTPUT };
	assert_int_equal(wire_next(&m, 20, &at, &head), 20);
	assert_ptr_equal(head, &m);
	assert_int_equal(wire_next(&m, 20, &at, &head), 0);
}

static void test_several(void **state)
{
	const struct wire_head *head = NULL;
	size_t at = 0;
	size_t len = add(add(add(begin(), WIRE_OUTPUT, 9), WIRE_OUTPUT, 16), WIRE_OUTCOME, 23);

	(void)state;
	assert_int_equal(wire_next(&m, len, &at, &head), 9);
	assert_int_equal(head->type, WIRE_OUTPUT);
	assert_int_equal(wire_next(&m, len, &at, &head), 16);
	assert_int_equal(head->stream, 16);
	assert_int_equal(wire_next(&m, len, &at, &head), 23);
	assert_int_equal(head->type, WIRE_OUTCOME);
	assert_int_equal(wire_next(&m, len, &at, &head), 0);
}

static void test_what_is_none(void **state)
{
	const struct wire_head *head;
	size_t at = 0;
	size_t len;

	(void)state;
	assert_int_equal(wire_next(&m, sizeof(m.head) - 1, &at, &head), -EBADMSG);
	len = add(begin(), WIRE_OUTPUT, 7); /* shorter than a head */
	at = 0;
	assert_int_equal(wire_next(&m, len, &at, &head), -EBADMSG);
	len = add(begin(), WIRE_LAST, 16); /* one in another */
	at = 0;
	assert_int_equal(wire_next(&m, len, &at, &head), -EBADMSG);
	len = add(begin(), WIRE_OUTPUT, UINT32_MAX);
	at = 0;
	assert_int_equal(wire_next(&m, sizeof(m), &at, &head), -EBADMSG);
	len = add(add(begin(), WIRE_OUTPUT, 9), WIRE_OUTCOME, 23);
	for (size_t rest = sizeof(m.head); rest < len; rest++) { /* nothing of what was cut off is looked at */
		at = 0;
		if (rest >= 32)
			assert_int_equal(wire_next(&m, rest, &at, &head), 9);
		assert_int_equal(wire_next(&m, rest, &at, &head), rest == 32 ? 0 : -EBADMSG);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_alone),
		cmocka_unit_test(test_several),
		cmocka_unit_test(test_what_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
