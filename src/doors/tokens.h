/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"
#include "job/conf.h"
#include "run/native.h"

/*
 * Who may ask over the network: a file of tokens.
 *
 * A token is "cloche_" and 64 hexadecimal digits of 256 random bits.  Only its SHA-256 is kept: a file that is read by
 * somebody gives nobody away.  {"tokens": [{"name", "sha256", "created", "expires"?, "max_concurrent"?, "rate"?,
 * "environments"?}, ...]}, times in seconds since 1970, rate in runs a second.  It is its owner's alone (0600); root's
 * can also be read by the group of the user as whom a root's door works.
 */
#define TENANT_SIZE      (NATIVE_TENANT_MAX + 1)
#define TOKEN_NAME_MAX   48
#define TOKEN_PREFIX     "cloche_"
#define TOKEN_TEXT_SIZE  (sizeof(TOKEN_PREFIX) + 64)
#define TOKEN_HASH_BYTES 32
#define TOKENS_MAX       1000

struct token {
	char name[TOKEN_NAME_MAX + 1]; /* [A-Za-z0-9._-] */
	unsigned char hash[TOKEN_HASH_BYTES];
	int64_t created;
	int64_t expires;                  /* 0: never */
	uint32_t max_concurrent;          /* runs at the same time; 0: no limit */
	double rate;                      /* runs a second; 0: no limit */
	struct conf_strings environments; /* none: all */
};

struct tokens {
	char *path;          /* owned */
	struct token *items; /* owned */
	size_t n;
	struct stat seen; /* of the file that was read; all zeros: there was none */
};

/*
 * tokens_path() - where the file is: root's is TOKENS_SYSTEM_PATH, a user's $XDG_CONFIG_HOME/cloche/tokens.json, by
 * default ~/.config/cloche/tokens.json
 *
 * Return: 0, *@ret is heap; -errno with @e set
 */
int tokens_path(uid_t uid, char **ret, struct err *e) MUST_CHECK;
#define TOKENS_SYSTEM_PATH "/etc/cloche/tokens.json"

/* tokens_open() - read @path; no file is no tokens.  Return: 0 or -errno with @e set; tokens_done() in every case */
int tokens_open(struct tokens *t, const char *path, struct err *e) MUST_CHECK;
void tokens_done(struct tokens *t);

/* tokens_refresh() - read the file again if it is another one.  Return: as tokens_open(); on an error @t is as it was
 */
int tokens_refresh(struct tokens *t, struct err *e) MUST_CHECK;

/* tokens_find() - whose @secret is; NULL: nobody's, or it has expired.  Takes the same time for each that is not there
 */
const struct token *tokens_find(const struct tokens *t, const char *secret, int64_t now);
const struct token *tokens_by_name(const struct tokens *t, const char *name);

/* tokens_name_ok() - 1 to TOKEN_NAME_MAX of A-Z a-z 0-9 . _ - */
bool tokens_name_ok(const char *name);

/*
 * tokens_add() - make a secret for @new (its hash and created are filled here) and write the file
 * @ret: the secret, for the one time that it is seen
 *
 * Return: 0 or -errno with @e set (ERR_INVALID: the name is taken).
 */
int tokens_add(struct tokens *t, struct token *new, char ret[TOKEN_TEXT_SIZE], struct err *e) MUST_CHECK;

/* tokens_door_user() - as whom root's door works.  Return: 0 or -ENOENT */
int tokens_door_user(uid_t *ret_uid, gid_t *ret_gid) MUST_CHECK;
#define DOOR_USER "cloche"

/* tokens_remove() - Return: 0 or -errno with @e set (ERR_NOT_FOUND: no such token) */
int tokens_remove(struct tokens *t, const char *name, struct err *e) MUST_CHECK;

/* token_make() - a new secret and its hash.  Return: 0 or -errno */
int token_make(char ret[TOKEN_TEXT_SIZE], unsigned char hash[TOKEN_HASH_BYTES]) MUST_CHECK;

/* tokens_hex() - @n bytes as digits, and a NUL */
void tokens_hex(char *to, const unsigned char *from, size_t n);

/* token_hash() - of a secret as it was given; whatever its form */
void token_hash(const char *secret, unsigned char hash[TOKEN_HASH_BYTES]);

/* token_equal() - in a time that does not depend on what differs */
bool token_equal(const unsigned char a[TOKEN_HASH_BYTES], const unsigned char b[TOKEN_HASH_BYTES]);

/* token_allows() - whether its runs may use @environment */
bool token_allows(const struct token *t, const char *environment);
