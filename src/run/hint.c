/* SPDX-License-Identifier: Apache-2.0 */
#include "run/hint.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define NAME_SIZE 100

/* The module that the last line complains about, its first component.  Return: is there one */
static bool missing_module(const char *err, size_t len, char name[NAME_SIZE])
{
	static const char words[] = "ModuleNotFoundError: No module named '";
	const char *line;
	size_t n;

	while (len > 0 && (err[len - 1] == '\n' || err[len - 1] == '\r'))
		len--;
	line = len > 0 ? memrchr(err, '\n', len) : NULL;
	line = line ? line + 1 : err;
	len -= (size_t)(line - err);
	if (len < sizeof(words) || memcmp(line, words, sizeof(words) - 1) != 0)
		return false;
	line += sizeof(words) - 1;
	len -= sizeof(words) - 1;
	for (n = 0; n < len && n < NAME_SIZE - 1 && line[n] != '\'' && line[n] != '.'; n++) {
		char c = line[n];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'))
			return false;
		name[n] = c;
	}
	name[n] = '\0';
	return n > 0 && n < len;
}

static bool has_module(const struct conf_environment *v, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < v->preload.n; i++) {
		const char *item = v->preload.items[i];

		if (strncmp(item, name, len) == 0 && (item[len] == '\0' || item[len] == '.'))
			return true;
	}
	return false;
}

int hint_missing_module(const struct conf *c, const char *environment, const char *err, size_t len, struct result *r)
{
	char name[NAME_SIZE];
	char where[300] = "";
	size_t used = 0;

	if (r->status != STATUS_ERROR || len == 0 || !missing_module(err, len, name))
		return 0;
	for (size_t i = 0; i < c->n_environments && used < sizeof(where); i++) {
		const struct conf_environment *v = &c->environments[i];

		if (strcmp(v->name, environment) == 0 || !has_module(v, name))
			continue;
		used += (size_t)snprintf(where + used, sizeof(where) - used, "%s\"%s\"", used ? ", " : "", v->name);
	}
	if (!used)
		return 0;
	return result_set_message(r, "%s; environment \"%s\" has no module %s, but this one has it: %s",
				  r->message ? r->message : "", environment, name, where);
}
