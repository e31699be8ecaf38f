/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/macro.h"
#include "job/conf.h"

/* Inside job alone: the containers of a configuration, and one setting laid into it. */

/* conf_strings_add() - a copy of @len bytes at the end.  Return: 0 or -ENOMEM */
int conf_strings_add(struct conf_strings *l, const char *s, size_t len) MUST_CHECK;
void conf_strings_done(struct conf_strings *l);

/* conf_copy() - a deep copy; @ret is untouched on failure.  Return: 0 or -ENOMEM */
int conf_copy(const struct conf *c, struct conf *ret) MUST_CHECK;

/* conf_environment_get() - the environment of that name, made when it isn't there.  Return: 0 or -ENOMEM */
int conf_environment_get(struct conf *c, const char *name, struct conf_environment **ret) MUST_CHECK;

/* conf_refresh() - make c->profiles and c->rules' view of them agree with the environments.  Return: 0 or -ENOMEM */
int conf_refresh(struct conf *c) MUST_CHECK;

/*
 * struct conf_setting - one setting on its way into a configuration
 * @is_first:   false: continues a list that this source began
 * @is_trusted: may set maxima
 */
struct conf_setting {
	const char *section;
	const char *key;
	const char *value;
	bool is_first;
	bool is_trusted;
};

/*
 * What was wrong with a setting, without where it stood: "limits.memory_bytes: \"5q\" is not allowed: ..."
 */
struct conf_fault {
	char msg[360];
};

/* conf_apply() - Return: 0; -EINVAL with @f filled; -ENOMEM */
int conf_apply(struct conf *c, const struct conf_setting *s, struct conf_fault *f) MUST_CHECK;

/* conf_refuse(), conf_refuse_unknown() - fill @f: the value is not @allowed; the key is none of the @n @known.  Return: -EINVAL */
int conf_refuse(const struct conf_setting *s, struct conf_fault *f, const char *allowed, ...) PRINTF_LIKE(3, 4);
int conf_refuse_unknown(const struct conf_setting *s, struct conf_fault *f, const char *const *known, size_t n);

/* conf_put_bool(), conf_put_text() - the value into its place; a text that was there is freed.  Return: as conf_apply() */
int conf_put_bool(bool *ret, const struct conf_setting *s, struct conf_fault *f) MUST_CHECK;
int conf_put_text(char **ret, const struct conf_setting *s) MUST_CHECK;

/* [history], in conf_history.c.  Return: as conf_apply(), conf_copy() */
void conf_history_init(struct conf_history *h);
void conf_history_done(struct conf_history *h);
int conf_history_copy(const struct conf_history *from, struct conf_history *to) MUST_CHECK;
int conf_history_apply(struct conf_history *h, const struct conf_setting *s, struct conf_fault *f) MUST_CHECK;

/* conf_section_ok() - a known section's name; @f is filled when not */
bool conf_section_ok(const char *section, struct conf_fault *f);

/* conf_is_list() - whether that key may be given again to add to it */
bool conf_is_list(const char *key);
