/* SPDX-License-Identifier: Apache-2.0 */
/* cloche token: who may ask over the network. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parse.h"
#include "doors/doors.h"
#include "doors/tokens.h"

#define CONCURRENT_MAX 1000000
#define RATE_MAX       1000000
#define EXPIRES_MAX_NS (UINT64_C(3650) * 24 * 3600 * NS_PER_SEC)

static int refuse(struct err *e, const char *option, const char *given, const char *allowed)
{
	return err_set(e, ERR_INVALID, 0, "%s: \"%.100s\" is not allowed: %s", option, given, allowed);
}

/* "100", "100/s", "0.5/s", "30/m" */
static int parse_rate(const char *s, double *ret, struct err *e)
{
	const char *words = "runs a second, more than 0: 100/s, 0.5/s, 30/m";
	char *end = NULL;
	double rate = strtod(s, &end);

	if (end == s || strspn(s, "0123456789.") != (size_t)(end - s))
		return refuse(e, "--rate", s, words);
	if (strcmp(end, "/m") == 0)
		rate /= 60;
	else if (*end && strcmp(end, "/s") != 0)
		return refuse(e, "--rate", s, words);
	if (!isfinite(rate) || rate < 1e-4 || rate > RATE_MAX)
		return refuse(e, "--rate", s, words);
	*ret = rate;
	return 0;
}

static int parse_expires(const char *s, int64_t *ret, struct err *e)
{
	uint64_t ns = 0;

	if (parse_duration_ns(s, NS_PER_SEC, EXPIRES_MAX_NS, &ns) < 0)
		return refuse(e, "--expires", s, "how long it is good for: 30d, 12h; at most ten years");
	*ret = (int64_t)time(NULL) + (int64_t)(ns / NS_PER_SEC);
	return 0;
}

static int parse_environments(const char *s, struct conf_strings *ret, struct err *e)
{
	const char *p = s;

	for (p += strspn(p, ", "); *p; p += strspn(p, ", ")) {
		size_t n = strcspn(p, ", ");
		char **items = reallocarray(ret->items, ret->n + 1, sizeof(*items));

		if (!items)
			return err_set(e, ERR_HOST, ENOMEM, "token");
		ret->items = items;
		items[ret->n] = strndup(p, n);
		if (!items[ret->n])
			return err_set(e, ERR_HOST, ENOMEM, "token");
		ret->n++;
		p += n;
	}
	return ret->n ? 0 : refuse(e, "--environments", s, "names with \",\" between them");
}

static int take_option(int option, const char *value, struct token *t, struct err *e)
{
	uint64_t number = 0;

	switch (option) {
	case 'c':
		if (parse_u64(value, 1, CONCURRENT_MAX, &number) < 0)
			return refuse(e, "--max-concurrent", value, "a whole number, at least 1");
		t->max_concurrent = (uint32_t)number;
		return 0;
	case 'r':
		return parse_rate(value, &t->rate, e);
	case 'e':
		return parse_environments(value, &t->environments, e);
	case 'x':
		return parse_expires(value, &t->expires, e);
	default:
		return err_set(e, ERR_INVALID, 0, "token: an unknown option");
	}
}

static int add(struct tokens *all, struct token *t, const char *name)
{
	struct err e = { .kind = ERR_NONE };
	char secret[TOKEN_TEXT_SIZE];
	int r = 0;

	if (!tokens_name_ok(name))
		r = refuse(&e, "NAME", name, "1 to 48 of A-Z, a-z, 0-9, \".\", \"_\", \"-\"");
	if (r == 0) {
		memcpy(t->name, name, strlen(name) + 1);
		r = tokens_add(all, t, secret, &e);
	}
	if (r < 0)
		return door_fail(&e);
	(void)printf("%s\n", secret);
	explicit_bzero(secret, sizeof(secret));
	if (isatty(STDERR_FILENO))
		(void)fputs("This is the only time that it is shown: Authorization: Bearer ...\n", stderr);
	return fflush(stdout) == 0 ? DOOR_OK : DOOR_COULD_NOT;
}

static void print_time(const char *before, int64_t at)
{
	time_t t = (time_t)at;
	struct tm tm;
	char text[32] = "";

	(void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &tm));
	(void)printf("%s%s", before, text);
}

static void print_one(const struct token *t)
{
	bool is_over = t->expires && time(NULL) >= t->expires;

	(void)printf("%s", t->name);
	print_time("  created ", t->created);
	if (t->expires)
		print_time(is_over ? "  expired " : "  expires ", t->expires);
	if (t->max_concurrent)
		(void)printf("  max-concurrent %u", t->max_concurrent);
	if (t->rate > 0)
		(void)printf("  rate %g/s", t->rate);
	for (size_t i = 0; i < t->environments.n; i++)
		(void)printf("%s%s", i ? "," : "  environments ", t->environments.items[i]);
	(void)printf("\n");
}

/* Everything but the hash, which is nobody's business. */
static void print_json(const struct tokens *all)
{
	json_t *list = json_array();
	char *text;

	for (size_t i = 0; i < all->n; i++) {
		const struct token *t = &all->items[i];
		json_t *names = json_array();

		for (size_t k = 0; k < t->environments.n; k++)
			(void)json_array_append_new(names, json_string(t->environments.items[k]));
		(void)json_array_append_new(
			list,
			json_pack("{s:s, s:I, s:o, s:o, s:o, s:o}", "name", t->name, "created", (json_int_t)t->created,
				  "expires", t->expires ? json_integer(t->expires) : json_null(), "max_concurrent",
				  t->max_concurrent ? json_integer(t->max_concurrent) : json_null(), "rate",
				  t->rate > 0 ? json_real(t->rate) : json_null(), "environments", names));
	}
	text = json_dumps(list, 0);
	json_decref(list);
	(void)printf("{\"tokens\": %s}\n", text ? text : "[]");
	free(text);
}

static int list(const struct tokens *all, bool is_json)
{
	if (is_json)
		print_json(all);
	for (size_t i = 0; !is_json && i < all->n; i++)
		print_one(&all->items[i]);
	return fflush(stdout) == 0 ? DOOR_OK : DOOR_COULD_NOT;
}

static int dispatch(struct tokens *all, struct token *t, bool is_json, char **operands, int n)
{
	struct err e = { .kind = ERR_NONE };

	if (n == 2 && strcmp(operands[0], "add") == 0)
		return add(all, t, operands[1]);
	if (n == 1 && strcmp(operands[0], "list") == 0)
		return list(all, is_json);
	if (n == 2 && strcmp(operands[0], "remove") == 0)
		return tokens_remove(all, operands[1], &e) < 0 ? door_fail(&e) : DOOR_OK;
	(void)err_set(&e, ERR_INVALID, 0, "token: add NAME, list, or remove NAME");
	return door_fail(&e);
}

int door_token(int argc, char **argv)
{
	static const struct option options[] = {
		{ "max-concurrent", required_argument, NULL, 'c' },
		{ "rate", required_argument, NULL, 'r' },
		{ "environments", required_argument, NULL, 'e' },
		{ "expires", required_argument, NULL, 'x' },
		{ "json", no_argument, NULL, 'j' },
		{ NULL, 0, NULL, 0 },
	};
	struct err e = { .kind = ERR_NONE };
	struct token t = { .name = "" };
	struct tokens all = { .path = NULL };
	bool is_json = false;
	char *path = NULL;
	int status;
	int option;
	int r = 0;

	while (r == 0 && (option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (option == 'j')
			is_json = true;
		else
			r = take_option(option, optarg, &t, &e);
	}
	if (r == 0)
		r = tokens_path(geteuid(), &path, &e);
	if (r == 0)
		r = tokens_open(&all, path, &e);
	status = r < 0 ? door_fail(&e) : dispatch(&all, &t, is_json, argv + optind, argc - optind);
	for (size_t i = 0; i < t.environments.n; i++)
		free(t.environments.items[i]);
	free(t.environments.items);
	tokens_done(&all);
	free(path);
	return status;
}
