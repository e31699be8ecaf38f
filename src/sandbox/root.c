/* SPDX-License-Identifier: Apache-2.0 */
/* What a script can see of files: an allow-list on an empty tmpfs (see root.h). */
#include "sandbox/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/kernel.h"
#include "sandbox/step.h"
#include "sandbox/sys.h"

enum kind { FOLDER, COPY, DEVICE };

/* Of the host's files, these and nothing else.  What is absent on a host is left out. */
static const struct {
	const char *path;
	enum kind kind;
} allowed[] = {
	{ "/usr", FOLDER },
	{ "/lib", FOLDER }, /* real folders only where /usr is not merged; links are made as links */
	{ "/lib64", FOLDER },
	{ "/bin", FOLDER },
	{ "/sbin", FOLDER },
	{ "/etc/alternatives", FOLDER }, /* numpy's BLAS and LAPACK are links through it */
	{ "/etc/fonts", FOLDER },
	{ "/etc/ld.so.cache", COPY }, /* small files are copied: each mount makes every namespace dearer */
	{ "/etc/matplotlibrc", COPY },
	{ "/etc/mime.types", COPY },
	{ "/etc/protocols", COPY }, /* names and numbers for getprotobyname() and getservbyname() */
	{ "/etc/services", COPY },
	{ "/dev/null", DEVICE },
	{ "/dev/zero", DEVICE },
	{ "/dev/full", DEVICE },
	{ "/dev/urandom", DEVICE }, /* and /dev/random, a link to it: they differ only while a machine boots */
};

static const struct {
	const char *path;
	const char *text;
} made[] = {
	{ "etc/passwd", "root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:1000:1000:sandbox:/tmp:/bin/sh\n"
			"nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n" },
	{ "etc/group", "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n" },
	{ "etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n" },
	{ "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n" },
	{ "etc/resolv.conf", "" },
	{ "etc/hostname", "sandbox\n" },
	{ "etc/timezone", "Etc/UTC\n" },
	{ "sys/devices/system/cpu/online", "0\n" },
};

static const struct {
	const char *path;
	const char *target;
} links[] = {
	{ "dev/random", "urandom" },         { "dev/fd", "/proc/self/fd" },
	{ "dev/stdin", "/proc/self/fd/0" },  { "dev/stdout", "/proc/self/fd/1" },
	{ "dev/stderr", "/proc/self/fd/2" }, { "etc/localtime", "/usr/share/zoneinfo/Etc/UTC" },
	{ "etc/mtab", "/proc/self/mounts" },
};

static const char *const folders[] = {
	"dev", "dev/shm", "etc", "proc", "sys", "sys/devices", "sys/devices/system", "sys/devices/system/cpu", "tmp"
};

void root_plan_init(struct root_plan *p)
{
	p->n = 0;
	p->n_covers = 0;
}

void root_cover(struct root_plan *p, const struct root_cover *c)
{
	if (p->n_covers < ARRAY_LEN(p->covers))
		p->covers[p->n_covers++] = *c;
}

void root_plan_done(struct root_plan *p)
{
	for (size_t i = 0; i < p->n; i++)
		fd_close(&p->trees[i].fd);
	p->n = 0;
}

/* One detached copy, made read-only before anything can be reached through it. */
static int capture(struct root_plan *p, const char *path, bool is_device, struct err *e)
{
	/* private: what the host mounts below it later must not come in */
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, .propagation = MS_PRIVATE };
	struct root_tree *t = &p->trees[p->n];
	auto_fd int fd = -1;
	struct stat st;

	if (p->n == ARRAY_LEN(p->trees) || strlen(path) > sizeof(t->path))
		return err_set(e, ERR_INVALID, E2BIG, "too many or too long read-only paths: %s", path);
	fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_NO_AUTOMOUNT);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(e, ERR_HOST, errno, "open %s", path);
	attr.attr_set |= is_device ? MOUNT_ATTR_NOEXEC : MOUNT_ATTR_NODEV;
	if (mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
		return err_set(e, ERR_HOST, errno, "make %s read-only", path);
	*t = (struct root_tree) { .is_device = is_device, .is_folder = S_ISDIR(st.st_mode) };
	(void)snprintf(t->path, sizeof(t->path), "%s", path + 1);
	t->fd = take_fd(&fd);
	p->n++;
	return 0;
}

/* A copy is a tree as well until root_build(): an open file whose content is taken over. */
static int capture_copy(struct root_plan *p, const char *path, struct err *e)
{
	struct root_tree *t = &p->trees[p->n];
	auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return 0;
	if (p->n == ARRAY_LEN(p->trees))
		return err_set(e, ERR_BUG, E2BIG, "allow-list too long");
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > 4 << 20)
		return 0;
	*t = (struct root_tree) { .fd = take_fd(&fd) };
	(void)snprintf(t->path, sizeof(t->path), "%s", path + 1);
	p->n++;
	return 0;
}

int root_capture(struct root_plan *p, const char *const *paths, size_t n_paths, struct err *e)
{
	int r;

	if (step_is_failed_on_purpose("capture"))
		return err_set(e, ERR_HOST, errno, "capture");
	for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
		struct stat st;

		if (lstat(allowed[i].path, &st) < 0)
			continue;
		if (allowed[i].kind == COPY)
			r = capture_copy(p, allowed[i].path, e);
		else if (S_ISLNK(st.st_mode))
			continue; /* made as a link by root_build() */
		else
			r = capture(p, allowed[i].path, allowed[i].kind == DEVICE, e);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < n_paths; i++) {
		r = capture(p, paths[i], false, e);
		if (r < 0) {
			e->kind = e->sys == ENOENT ? ERR_NOT_FOUND : e->sys == EACCES ? ERR_ACCESS : e->kind;
			return r;
		}
	}
	return 0;
}

/* mkdir -p of everything before the last component, and of the last one if asked. */
static int make_parents(int root, const char *path, bool whole)
{
	char part[512];
	size_t len = strlen(path);

	if (len >= sizeof(part))
		return -ENAMETOOLONG;
	for (size_t i = 1; i <= len; i++) {
		if (path[i] != '/' && !(i == len && whole))
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (mkdirat(root, part, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static int make_file(int root, const char *path, const char *text, size_t len)
{
	auto_fd int fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0)
		return -errno;
	return fd_write_all(fd, text, len);
}

static int place(int root, struct root_tree *t)
{
	int r;

	r = make_parents(root, t->path, t->is_folder);
	if (r < 0)
		return r;
	if (!t->is_folder) {
		r = make_file(root, t->path, "", 0);
		if (r < 0)
			return r;
	}
	if (move_mount(t->fd, "", root, t->path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -errno;
	fd_close(&t->fd);
	return 0;
}

static int place_copy(int root, struct root_tree *t)
{
	auto_fd int to = openat(root, t->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	ssize_t n = 1;

	if (to < 0)
		return -errno;
	while (n > 0) /* until its end, also when it grows meanwhile: the root's size bounds it */
		n = sendfile(to, t->fd, NULL, 4 << 20);
	if (n < 0)
		return -errno;
	fd_close(&t->fd);
	return 0;
}

static bool is_copied(const struct root_tree *t)
{
	return !t->is_folder && !t->is_device && strncmp(t->path, "etc/", 4) == 0;
}

/*
 * A file of ours over one of the host's; its own name is gone at once, so that it is seen nowhere else.
 * What is not there inside needs no cover: a link may lead to where nothing was captured.
 */
static int place_cover(int root, const struct root_cover *c)
{
	static const char name[] = ".cover";
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };
	auto_fd int target = sys_openat2(root, c->path, &how);
	auto_fd int tree = -1;
	int r;

	if (target < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
	r = make_file(root, name, c->text, c->len);
	if (r < 0)
		return r;
	tree = open_tree(root, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return -errno;
	if (move_mount(tree, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return -errno;
	return unlinkat(root, name, 0) < 0 ? -errno : 0; /* not before: what has no name is not mounted */
}

/* The links of a merged /usr, as the host has them. */
static int make_usr_links(int root)
{
	static const char *const names[] = { "lib", "lib64", "bin", "sbin" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char target[64];
		char path[16];
		ssize_t n;

		(void)snprintf(path, sizeof(path), "/%s", names[i]);
		n = readlink(path, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = '\0';
		if (symlinkat(target, root, names[i]) < 0)
			return -errno;
	}
	return 0;
}

static int populate(int root, struct root_plan *p, struct err *e)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		if (mkdirat(root, folders[i], 0755) < 0)
			return err_set(e, ERR_HOST, errno, "make /%s", folders[i]);
	}
	for (size_t i = 0; i < p->n; i++) {
		struct root_tree *t = &p->trees[i];

		r = is_copied(t) ? place_copy(root, t) : place(root, t);
		if (r < 0)
			return err_set(e, ERR_HOST, -r, "place /%s", t->path);
	}
	for (size_t i = 0; i < ARRAY_LEN(made); i++) {
		r = make_file(root, made[i].path, made[i].text, strlen(made[i].text));
		if (r < 0)
			return err_set(e, ERR_HOST, -r, "make /%s", made[i].path);
	}
	for (size_t i = 0; i < ARRAY_LEN(links); i++) {
		if (symlinkat(links[i].target, root, links[i].path) < 0)
			return err_set(e, ERR_HOST, errno, "make /%s", links[i].path);
	}
	r = make_usr_links(root);
	if (r < 0)
		return err_set(e, ERR_HOST, -r, "make the links of /usr");
	for (size_t i = 0; i < p->n_covers; i++) {
		r = place_cover(root, &p->covers[i]);
		if (r < 0)
			return err_set(e, ERR_HOST, -r, "cover %s", p->covers[i].path);
	}
	return 0;
}

/* A proc of our own process namespace; where the host's is masked (as in Docker) the kernel refuses a new one. */
static int mount_proc(int root, bool *ret_has_proc)
{
	auto_fd int context = fsopen("proc", FSOPEN_CLOEXEC);
	auto_fd int proc = -1;

	if (context < 0)
		return -errno;
	if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		proc = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	*ret_has_proc = proc >= 0;
	if (proc < 0)
		proc = open_tree(AT_FDCWD, "/proc", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
	if (proc < 0 || move_mount(proc, "", root, "proc", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

/* Where the new root is hung before it becomes the root: any folder will do, in a namespace of our own. */
static int attach(int tree)
{
	static const char *const places[] = { "/tmp", "/mnt", "/usr", "/etc" };

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		if (move_mount(tree, "", AT_FDCWD, places[i], MOVE_MOUNT_F_EMPTY_PATH) == 0)
			return 0;
	}
	return -errno;
}

int root_build(struct root_plan *p, bool *ret_has_proc, struct err *e)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
	auto_fd int context = -1;
	auto_fd int root = -1;
	int r;

	if (step_is_failed_on_purpose("root"))
		return err_set(e, ERR_HOST, errno, "root");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_set(e, ERR_HOST, errno, "make the mounts private");
	context = fsopen("tmpfs", FSOPEN_CLOEXEC);
	if (context < 0 || fsconfig(context, FSCONFIG_SET_STRING, "mode", "755", 0) < 0 ||
	    fsconfig(context, FSCONFIG_SET_STRING, "size", "8m", 0) < 0 ||
	    fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return err_set(e, ERR_HOST, errno, "make an empty root");
	root = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (root < 0)
		return err_set(e, ERR_HOST, errno, "make an empty root");
	r = attach(root);
	if (r < 0)
		return err_set(e, ERR_HOST, -r, "mount an empty root");
	r = populate(root, p, e);
	if (r < 0)
		return r;
	r = mount_proc(root, ret_has_proc);
	if (r < 0)
		return err_set(e, ERR_HOST, -r, "mount /proc");
	/* the old root is stacked below the new one, and let go */
	if (fchdir(root) < 0 || sys_pivot_root(".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return err_set(e, ERR_HOST, errno, "enter the new root");
	if (mount_setattr(AT_FDCWD, "/", 0, &attr, sizeof(attr)) < 0)
		return err_set(e, ERR_HOST, errno, "make the new root read-only");
	return 0;
}
