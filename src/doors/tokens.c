/* SPDX-License-Identifier: Apache-2.0 */
#include "doors/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fd.h"

#define FILE_MAX ((size_t)1 << 20)

bool tokens_name_ok(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len <= TOKEN_NAME_MAX &&
	       strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == len;
}

void tokens_hex(char *to, const unsigned char *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		(void)snprintf(to + 2 * i, 3, "%02x", from[i]);
}

void token_hash(const char *secret, unsigned char hash[TOKEN_HASH_BYTES])
{
	SHA2_CTX ctx;

	SHA256Init(&ctx);
	SHA256Update(&ctx, (const uint8_t *)secret, strlen(secret));
	SHA256Final(hash, &ctx);
}

int token_make(char ret[TOKEN_TEXT_SIZE], unsigned char hash[TOKEN_HASH_BYTES])
{
	unsigned char bits[32];

	if (getrandom(bits, sizeof(bits), 0) != (ssize_t)sizeof(bits))
		return -EIO;
	memcpy(ret, TOKEN_PREFIX, sizeof(TOKEN_PREFIX));
	tokens_hex(ret + sizeof(TOKEN_PREFIX) - 1, bits, sizeof(bits));
	explicit_bzero(bits, sizeof(bits));
	token_hash(ret, hash);
	return 0;
}

bool token_equal(const unsigned char a[TOKEN_HASH_BYTES], const unsigned char b[TOKEN_HASH_BYTES])
{
	volatile unsigned char differs = 0;

	for (size_t i = 0; i < TOKEN_HASH_BYTES; i++)
		differs |= a[i] ^ b[i];
	return differs == 0;
}

bool token_allows(const struct token *t, const char *environment)
{
	for (size_t i = 0; i < t->environments.n; i++)
		if (strcmp(t->environments.items[i], environment) == 0)
			return true;
	return t->environments.n == 0;
}

static void strings_free(struct conf_strings *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->items[i]);
	free(l->items);
	*l = (struct conf_strings) { 0 };
}

static void items_free(struct token *items, size_t n)
{
	for (size_t i = 0; i < n; i++)
		strings_free(&items[i].environments);
	free(items);
}

void tokens_done(struct tokens *t)
{
	items_free(t->items, t->n);
	free(t->path);
	*t = (struct tokens) { 0 };
}

static int unhex(const char *text, unsigned char *to, size_t n)
{
	if (!text || strlen(text) != 2 * n || strspn(text, "0123456789abcdef") != 2 * n)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		char pair[3] = { text[2 * i], text[2 * i + 1], '\0' };

		to[i] = (unsigned char)strtoul(pair, NULL, 16);
	}
	return 0;
}

static int take_environments(json_t *list, struct conf_strings *ret)
{
	size_t n = json_array_size(list);

	if (!list)
		return 0;
	/* an empty list is none, and none means all: it must not come from a list of something else */
	if (!json_is_array(list) || n == 0)
		return -EINVAL;
	ret->items = calloc(n, sizeof(*ret->items));
	if (!ret->items)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const char *name = json_string_value(json_array_get(list, i));

		ret->items[i] = name ? strdup(name) : NULL;
		if (!ret->items[i])
			return name ? -ENOMEM : -EINVAL;
		ret->n++;
	}
	return 0;
}

/* Return: 0, -EINVAL or -ENOMEM; what @ret holds is to be freed in every case */
static int take_token(json_t *o, struct token *ret)
{
	const char *name = NULL;
	const char *hash = NULL;
	json_t *environments = NULL;
	json_int_t created = 0;
	json_int_t expires = 0;
	json_int_t most = 0;

	if (json_unpack(o, "{s:s, s:s, s?I, s?I, s?I, s?F, s?o !}", "name", &name, "sha256", &hash, "created", &created,
			"expires", &expires, "max_concurrent", &most, "rate", &ret->rate, "environments",
			&environments) < 0)
		return -EINVAL;
	if (!tokens_name_ok(name) || unhex(hash, ret->hash, sizeof(ret->hash)) < 0 || most < 0 || most > UINT32_MAX ||
	    expires < 0 || ret->rate < 0)
		return -EINVAL;
	memcpy(ret->name, name, strlen(name) + 1);
	ret->created = created;
	ret->expires = expires;
	ret->max_concurrent = (uint32_t)most;
	return take_environments(environments, &ret->environments);
}

static int take_list(json_t *list, struct token **ret, size_t *ret_n)
{
	size_t n = json_array_size(list);
	struct token *items = n <= TOKENS_MAX ? calloc(n + 1, sizeof(*items)) : NULL;
	int r = items ? 0 : n <= TOKENS_MAX ? -ENOMEM : -EINVAL;

	if (!json_is_array(list))
		r = -EINVAL;
	for (size_t i = 0; i < n && r == 0; i++)
		r = take_token(json_array_get(list, i), &items[i]);
	if (r < 0) {
		items_free(items, items ? n : 0);
		return r;
	}
	*ret = items;
	*ret_n = n;
	return 0;
}

static int read_file(const char *path, struct token **ret, size_t *ret_n, struct stat *ret_seen, struct err *e)
{
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	auto_free char *text = NULL;
	struct stat seen;
	size_t len;
	json_t *o;
	int r;

	if (fd < 0 && errno == ENOENT) {
		memset(ret_seen, 0, sizeof(*ret_seen));
		*ret = NULL;
		*ret_n = 0;
		return 0;
	}
	if (fd < 0 || fstat(fd, &seen) < 0)
		return err_set(e, ERR_ACCESS, errno, "tokens: %s", path);
	if (!S_ISREG(seen.st_mode) || (seen.st_uid != 0 && seen.st_uid != geteuid()) ||
	    (seen.st_mode & (S_IWGRP | S_IWOTH)))
		return err_set(e, ERR_ACCESS, 0, "tokens: %s: no file that you or root alone can write", path);
	r = fd_read_all(fd, FILE_MAX, &text, &len);
	if (r < 0)
		return err_set(e, ERR_ACCESS, -r, "tokens: %s", path);
	o = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	r = o ? take_list(json_object_get(o, "tokens"), ret, ret_n) : -EINVAL;
	json_decref(o);
	if (r == -EINVAL)
		return err_set(e, ERR_INVALID, 0, "tokens: %s: not as `cloche token` writes it", path);
	if (r < 0)
		return err_set(e, ERR_HOST, -r, "tokens: %s", path);
	*ret_seen = seen;
	return 0;
}

static int reload(struct tokens *t, struct err *e)
{
	struct token *items = NULL;
	struct stat seen;
	size_t n = 0;
	int r = read_file(t->path, &items, &n, &seen, e);

	if (r < 0)
		return r;
	items_free(t->items, t->n);
	t->items = items;
	t->n = n;
	t->seen = seen;
	return 0;
}

int tokens_open(struct tokens *t, const char *path, struct err *e)
{
	*t = (struct tokens) { .path = strdup(path) };
	if (!t->path)
		return err_set(e, ERR_HOST, ENOMEM, "tokens");
	return reload(t, e);
}

int tokens_refresh(struct tokens *t, struct err *e)
{
	struct stat now;

	if (stat(t->path, &now) < 0)
		memset(&now, 0, sizeof(now));
	if (now.st_ino == t->seen.st_ino && now.st_dev == t->seen.st_dev && now.st_size == t->seen.st_size &&
	    now.st_mtim.tv_sec == t->seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == t->seen.st_mtim.tv_nsec)
		return 0;
	return reload(t, e);
}

const struct token *tokens_find(const struct tokens *t, const char *secret, int64_t now)
{
	const struct token *found = NULL;
	unsigned char hash[TOKEN_HASH_BYTES];

	token_hash(secret, hash);
	for (size_t i = 0; i < t->n; i++) {
		if (token_equal(t->items[i].hash, hash))
			found = &t->items[i];
	}
	return found && (!found->expires || now < found->expires) ? found : NULL;
}

const struct token *tokens_by_name(const struct tokens *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++)
		if (strcmp(t->items[i].name, name) == 0)
			return &t->items[i];
	return NULL;
}
