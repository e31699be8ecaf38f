/* SPDX-License-Identifier: Apache-2.0 */
/* The file of tokens is written whole, beside the one there is, and takes its place: whoever reads has one or the
 * other. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "doors/tokens.h"

int tokens_door_user(uid_t *ret_uid, gid_t *ret_gid)
{
	const struct passwd *p = getpwnam(DOOR_USER);

	if (!p || p->pw_uid == 0)
		return -ENOENT;
	*ret_uid = p->pw_uid;
	*ret_gid = p->pw_gid;
	return 0;
}

int tokens_path(uid_t uid, char **ret, struct err *e)
{
	const char *config = getenv("XDG_CONFIG_HOME");
	const char *home = getenv("HOME");
	char *path = NULL;
	int n;

	if (uid == 0) {
		path = strdup(TOKENS_SYSTEM_PATH);
	} else {
		bool has_config = config && *config == '/';

		if (!has_config && (!home || *home != '/'))
			return err_set(e, ERR_NOT_FOUND, 0,
				       "tokens: neither XDG_CONFIG_HOME nor HOME says where they are");
		n = has_config ? asprintf(&path, "%s/cloche/tokens.json", config)
			       : asprintf(&path, "%s/.config/cloche/tokens.json", home);
		if (n < 0)
			path = NULL;
	}
	if (!path)
		return err_set(e, ERR_HOST, ENOMEM, "tokens");
	*ret = path;
	return 0;
}

static json_t *to_json(const struct token *t)
{
	char hash[2 * TOKEN_HASH_BYTES + 1];
	json_t *o;

	tokens_hex(hash, t->hash, TOKEN_HASH_BYTES);
	o = json_pack("{s:s, s:s, s:I}", "name", t->name, "sha256", hash, "created", (json_int_t)t->created);
	if (t->expires)
		(void)json_object_set_new(o, "expires", json_integer(t->expires));
	if (t->max_concurrent)
		(void)json_object_set_new(o, "max_concurrent", json_integer(t->max_concurrent));
	if (t->rate > 0)
		(void)json_object_set_new(o, "rate", json_real(t->rate));
	if (t->environments.n) {
		json_t *list = json_array();

		for (size_t i = 0; i < t->environments.n; i++)
			(void)json_array_append_new(list, json_string(t->environments.items[i]));
		(void)json_object_set_new(o, "environments", list);
	}
	return o;
}

static char *to_text(const struct tokens *t, const struct token *more, const struct token *less)
{
	json_t *list = json_array();
	json_t *o = json_pack("{s:o}", "tokens", list);
	char *text;

	for (size_t i = 0; i < t->n; i++)
		if (&t->items[i] != less)
			(void)json_array_append_new(list, to_json(&t->items[i]));
	if (more)
		(void)json_array_append_new(list, to_json(more));
	text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
	json_decref(o);
	return text;
}

/* Every folder on the way to @path that is missing.  Return: of the last one, opened and locked, or -errno */
static int open_folder(const char *path)
{
	char folder[PATH_MAX];
	char *slash;
	int fd;

	if (snprintf(folder, sizeof(folder), "%s", path) >= (int)sizeof(folder))
		return -ENAMETOOLONG;
	slash = strrchr(folder, '/');
	if (!slash || slash == folder)
		return -EINVAL;
	*slash = '\0';
	for (char *p = strchr(folder + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		(void)mkdir(folder, 0755);
		*p = '/';
	}
	(void)mkdir(folder, geteuid() == 0 ? 0755 : 0700);
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && flock(fd, LOCK_EX) < 0)
		fd_close(&fd);
	return fd < 0 ? -errno : fd;
}

/* Owner alone; root's also the group of the user as whom a root's door works. */
static int settle_owner(int fd)
{
	uid_t uid;
	gid_t gid;

	if (geteuid() != 0 || tokens_door_user(&uid, &gid) < 0)
		return fchmod(fd, 0600) < 0 ? -errno : 0;
	if (fchown(fd, 0, gid) < 0 || fchmod(fd, 0640) < 0)
		return -errno;
	return 0;
}

static int write_file(int folder, const char *path, const char *text)
{
	auto_free char *temporary = NULL;
	auto_fd int fd = -1;
	int r;

	if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
		temporary = NULL;
		return -ENOMEM;
	}
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = settle_owner(fd);
	if (r == 0)
		r = fd_write_all(fd, text, strlen(text));
	if (r == 0)
		r = fd_write_all(fd, "\n", 1);
	if (r == 0 && (fsync(fd) < 0 || rename(temporary, path) < 0))
		r = -errno;
	if (r < 0)
		(void)unlink(temporary);
	else
		(void)fsync(folder);
	return r;
}

static int store(struct tokens *t, int folder, const struct token *more, const struct token *less, struct err *e)
{
	auto_free char *text = to_text(t, more, less);
	int r = text ? write_file(folder, t->path, text) : -ENOMEM;

	if (r < 0)
		return err_set(e, ERR_ACCESS, -r, "tokens: %s", t->path);
	return tokens_refresh(t, e);
}

int tokens_add(struct tokens *t, struct token *new, char ret[TOKEN_TEXT_SIZE], struct err *e)
{
	auto_fd int folder = open_folder(t->path);
	char secret[TOKEN_TEXT_SIZE];
	int r;

	if (folder < 0)
		return err_set(e, ERR_ACCESS, -folder, "tokens: the folder of %s", t->path);
	r = tokens_refresh(t, e); /* somebody may have been quicker */
	if (r < 0)
		return r;
	if (tokens_by_name(t, new->name))
		return err_set(e, ERR_INVALID, 0, "token %s: there is one already", new->name);
	if (t->n >= TOKENS_MAX)
		return err_set(e, ERR_INVALID, 0, "there are %d tokens already, which is the most", TOKENS_MAX);
	new->created = time(NULL);
	r = token_make(secret, new->hash);
	if (r < 0)
		return err_set(e, ERR_HOST, -r, "random bits");
	r = store(t, folder, new, NULL, e);
	if (r == 0)
		memcpy(ret, secret, sizeof(secret));
	explicit_bzero(secret, sizeof(secret));
	return r;
}

int tokens_remove(struct tokens *t, const char *name, struct err *e)
{
	auto_fd int folder = open_folder(t->path);
	const struct token *less;
	int r;

	if (folder < 0)
		return err_set(e, ERR_ACCESS, -folder, "tokens: the folder of %s", t->path);
	r = tokens_refresh(t, e);
	if (r < 0)
		return r;
	less = tokens_by_name(t, name);
	if (!less)
		return err_set(e, ERR_NOT_FOUND, 0, "token %s: there is none", name);
	return store(t, folder, NULL, less, e);
}
