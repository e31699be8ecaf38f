/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/macro.h"
#include "job/request.h"

/* Inside job alone: what is around the JSON library. */

/* job_json_add_text() - @data as a JSON string; it must be valid UTF-8.  Return: 0 or -ENOMEM */
int job_json_add_text(struct buf *b, const char *data, size_t len) MUST_CHECK;

/* job_json_add_bytes() - any bytes as a JSON string, with U+FFFD where they are no UTF-8.  Return: 0 or -ENOMEM */
int job_json_add_bytes(struct buf *b, const char *data, size_t len, bool *ret_errors) MUST_CHECK;

/* job_json_add_seconds() - nanoseconds as seconds, rounded to microseconds, always with a point.  Return: 0 or -ENOMEM */
int job_json_add_seconds(struct buf *b, uint64_t ns) MUST_CHECK;

/*
 * job_json_scan() - refuse before parsing what would cost a parser dear: deep nesting and very many values
 *
 * Return: 0, or -EINVAL with @e filled.
 */
int job_json_scan(const char *json, size_t len, struct job_error *e) MUST_CHECK;

/*
 * job_json_where() - the field that the text at @end belongs to: "timeout", "env[\"A\"]", "args[3]"; "" for none
 *
 * Return: @buf (of struct job_error's field's size)
 */
const char *job_json_where(const char *json, size_t end, char *buf, size_t size);
