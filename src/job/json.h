/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/macro.h"
#include "job/request.h"

/* What is around the JSON library; also for who writes or passes on requests and results as JSON. */
struct json_t;

/* job_json_add_text() - @data as a JSON string; it must be valid UTF-8.  Return: 0 or -ENOMEM */
int job_json_add_text(struct buf *b, const char *data, size_t len) MUST_CHECK;

/* job_json_add_bytes() - any bytes as a JSON string, with U+FFFD where they are no UTF-8.  Return: 0 or -ENOMEM */
int job_json_add_bytes(struct buf *b, const char *data, size_t len, bool *ret_errors) MUST_CHECK;

/* job_json_add_seconds() - nanoseconds as seconds, rounded to microseconds, always with a point.  Return: 0 or -ENOMEM */
int job_json_add_seconds(struct buf *b, uint64_t ns) MUST_CHECK;

/*
 * job_json_load() - a request's text, or what holds one: depth and number of values are bounded, names are there once,
 * every number is a real one
 * @ret: any value, owned (json_decref())
 *
 * Return: 0; -EINVAL with @e filled: a field's name as far as there is one; -ENOMEM.
 */
int job_json_load(const char *json, size_t len, struct json_t **ret, struct job_error *e) MUST_CHECK;
