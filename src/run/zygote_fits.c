/* SPDX-License-Identifier: Apache-2.0 */
/* Which jobs a fork of a started interpreter could be told apart in: those are started cold. */
#include "run/zygote.h"

#include <string.h>

#include "base/pack.h"

#define VERSION_CPU_COUNT 0x030d0000u /* the first that reads PYTHON_CPU_COUNT */

static bool starts(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* The length of NAME in "NAME=VALUE". */
static size_t name_len(const char *text)
{
	return strcspn(text, "=");
}

static bool ends(const char *text, size_t len, const char *with)
{
	size_t n = strlen(with);

	return len >= n && memcmp(text + len - n, with, n) == 0;
}

/* Read once, when an interpreter or one of its libraries starts; afterwards nobody looks at it again. */
static bool is_read_at_start(const struct zygote *z, const char *text)
{
	static const char *const prefixes[] = { "PYTHON", "LD_", "GLIBC_TUNABLES=", "MALLOC_", "LC_",
						"LANG",   "TZ=", "OPENSSL_",        "HOME=",   "MPL" };

	if (starts(text, "PYTHON_CPU_COUNT=") && z->version < VERSION_CPU_COUNT)
		return false;
	if (ends(text, name_len(text), "_THREADS"))
		return !z->is_plain; /* numbers for libraries that are not in the standard library */
	for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
		if (starts(text, prefixes[i]))
			return true;
	}
	return !z->is_plain && (starts(text, "MATPLOTLIBRC=") || starts(text, "XDG_"));
}

static const char *value_in(char *const *env, const char *text)
{
	size_t len = name_len(text);

	for (size_t i = 0; env[i]; i++) {
		if (strncmp(env[i], text, len) == 0 && env[i][len] == '=')
			return env[i] + len + 1;
	}
	return NULL;
}

/* The same the other way round: what the zygote was started with, the job has too. */
static bool is_in_bundle(const char *bundle, size_t len, const char *text)
{
	struct pack_record rec;
	size_t offset = 0;

	while (pack_next(bundle, len, &offset, &rec) > 0) {
		if (rec.kind == SANDBOX_ENV && strncmp(rec.data, text, name_len(text) + 1) == 0)
			return true;
	}
	return false;
}

static const char *check_variable(const struct zygote *z, const char *text, bool *is_unbuffered)
{
	const char *value;

	if (starts(text, "PYTHONUNBUFFERED=")) {
		*is_unbuffered = true;
		return strcmp(text, "PYTHONUNBUFFERED=1") == 0 ? NULL : "env sets PYTHONUNBUFFERED";
	}
	if (!is_read_at_start(z, text))
		return NULL;
	value = value_in(z->env, text);
	if (value && strcmp(value, text + name_len(text) + 1) == 0)
		return NULL;
	return "env sets a variable that is read only when an interpreter starts";
}

/* The first component of a name, without ".py": what "import" would find there. */
static bool is_module(const struct zygote *z, const char *name)
{
	size_t len = strcspn(name, "/");

	if (name[len] == '\0')
		len = strcspn(name, ".");
	for (size_t i = 0; i < z->modules_len; i += strlen(z->modules + i) + 1) {
		const char *module = z->modules + i;

		if (strncmp(module, name, len) == 0 && (module[len] == '\0' || module[len] == '.'))
			return true;
	}
	return false;
}

static const char *check_file(const struct zygote *z, const char *name)
{
	if (is_module(z, name))
		return "a file has the name of a module that is imported beforehand";
	if (starts(name, ".local/") || (!z->is_plain && (name[0] == '.' || strcmp(name, "matplotlibrc") == 0)))
		return "a file is where an interpreter or a module looks when it starts";
	return NULL;
}

const char *zygote_fits(const struct zygote *z, const char *bundle, size_t len, bool *ret_is_buffered)
{
	bool is_unbuffered = false;
	const char *why = NULL;
	struct pack_record rec;
	size_t offset = 0;
	unsigned n_args = 0;
	int r = 0;

	while (!why && (r = pack_next(bundle, len, &offset, &rec)) > 0) {
		if (rec.kind == SANDBOX_ENV)
			why = check_variable(z, rec.data, &is_unbuffered);
		else if (rec.kind == SANDBOX_FILE)
			why = check_file(z, rec.name);
		else if (rec.kind == SANDBOX_ARG && n_args++ == 1 && ends(rec.data, rec.len, ".pyc"))
			why = "the script's name ends in .pyc";
		else if (rec.kind == SANDBOX_EXEC && strcmp(rec.data, z->python) != 0)
			why = "another interpreter";
	}
	for (size_t i = 0; !why && z->env[i]; i++) {
		if (!starts(z->env[i], "PYTHONUNBUFFERED=") && is_read_at_start(z, z->env[i]) &&
		    !is_in_bundle(bundle, len, z->env[i]))
			why = "env lacks a variable that is read only when an interpreter starts";
	}
	if (!why && (r < 0 || n_args < 2))
		why = "no bundle";
	if (!why)
		*ret_is_buffered = !is_unbuffered;
	return why;
}
