/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deny RULE... -- COMMAND [ARG...] - run a command on a host that has less
 *
 * For tests: takes a wall away from outside, as some container, kernel or administrator would, without touching the
 * machine's own settings.  The rules:
 *   sysctl:NAME=N           /proc/sys/user/NAME is N, in a user namespace of its own ("sysctl:max_pid_namespaces=0")
 *   syscall:NAME=ERRNO      the call fails ("syscall:landlock_create_ruleset=ENOSYS")
 *   syscall:NAME:A=ERRNO    only with first argument A ("syscall:prctl:38=EPERM")
 *   proc-masked             parts of /proc are covered, as container engines do: the kernel then refuses a fresh proc
 *   no-sys                  /sys is empty
 *   sys-ro                  everything below /sys is read-only
 *   chroot                  the root is no mount namespace's root: the kernel then refuses user namespaces
 *   one-uid                 a user namespace that maps the caller alone
 * Exit status 125: a rule could not be applied; else the command's.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MAX_CODE 256
#define MAX_RULES 32

static const struct {
	const char *name;
	uint32_t number;
} calls[] = {
	{ "landlock_create_ruleset", SYS_landlock_create_ruleset }, { "landlock_restrict_self", SYS_landlock_restrict_self },
	{ "seccomp", SYS_seccomp },             { "prctl", SYS_prctl },           { "mount", SYS_mount },
	{ "umount2", SYS_umount2 },             { "fsopen", SYS_fsopen },         { "fsconfig", SYS_fsconfig },
	{ "fsmount", SYS_fsmount },             { "open_tree", SYS_open_tree },   { "move_mount", SYS_move_mount },
	{ "mount_setattr", SYS_mount_setattr }, { "clone", SYS_clone },           { "pivot_root", SYS_pivot_root },
	{ "unshare", SYS_unshare },             { "setns", SYS_setns },           { "clone3", SYS_clone3 },
	{ "capset", SYS_capset },               { "setgroups", SYS_setgroups },   { "setresuid", SYS_setresuid },
	{ "setresgid", SYS_setresgid },         { "prlimit64", SYS_prlimit64 },   { "memfd_create", SYS_memfd_create },
	{ "pidfd_open", SYS_pidfd_open },       { "sethostname", SYS_sethostname }, { "close_range", SYS_close_range },
	{ "sched_setaffinity", SYS_sched_setaffinity }, { "setsid", SYS_setsid }, { "execveat", SYS_execveat },
};

static const struct {
	const char *name;
	uint32_t number;
} errors[] = { { "EPERM", EPERM }, { "ENOSYS", ENOSYS }, { "EINVAL", EINVAL }, { "ENOSPC", ENOSPC }, { "EACCES", EACCES } };

static struct sock_filter code[MAX_CODE];
static unsigned short code_len;

static void fail(const char *what)
{
	(void)fprintf(stderr, "deny: %s: %s\n", what, strerror(errno));
	exit(125);
}

static void put(uint16_t op, uint8_t yes, uint8_t no, uint32_t k)
{
	if (code_len == MAX_CODE) {
		errno = E2BIG;
		fail("too many rules");
	}
	code[code_len++] = (struct sock_filter){ op, yes, no, k };
}

/* "NAME[:A]=ERRNO" to a few instructions */
static void add_call(const char *rule)
{
	const char *equal = strchr(rule, '=');
	size_t len = strcspn(rule, ":=");
	uint32_t number = UINT32_MAX;
	uint32_t error = 0;

	for (size_t i = 0; i < LEN(calls); i++) {
		if (strlen(calls[i].name) == len && strncmp(calls[i].name, rule, len) == 0)
			number = calls[i].number;
	}
	for (size_t i = 0; equal && i < LEN(errors); i++) {
		if (strcmp(errors[i].name, equal + 1) == 0)
			error = errors[i].number;
	}
	errno = EINVAL;
	if (number == UINT32_MAX || error == 0)
		fail(rule);
	put(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
	if (rule[len] == ':') {
		put(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, number);
		put(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, args[0]));
		put(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (uint32_t)strtoul(rule + len + 1, NULL, 0));
	} else {
		put(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, number);
	}
	put(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | error);
}

/* An ordinary user needs no_new_privs for a filter; root keeps the bit clear, so that setting it can be what is denied. */
static void load_calls(void)
{
	struct sock_fprog prog = { .len = code_len, .filter = code };

	if (code_len == 0)
		return;
	put(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
	prog.len = code_len;
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) == 0)
		return;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) < 0)
		fail("load the filter");
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		fail(path);
	(void)close(fd);
}

/* The same ids inside as outside, all that the caller has: written from outside, as only that may map more than one. */
static void map_all(const char *from, pid_t pid, const char *name)
{
	char path[64];
	char text[4096] = "";
	unsigned long inside;
	unsigned long outside;
	unsigned long count;
	size_t used = 0;
	FILE *f = fopen(from, "re");

	if (!f)
		fail(from);
	while (fscanf(f, "%lu %lu %lu", &inside, &outside, &count) == 3 && used < sizeof(text) - 64)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%lu %lu %lu\n", inside, inside, count);
	(void)fclose(f);
	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	write_text(path, text);
}

/* enter_user() - a user namespace of our own, with one id or with all */
static void enter_user(int is_one)
{
	char map[64];
	int pipe_fd[2];
	pid_t helper = 0;
	pid_t self = getpid();
	uid_t uid = getuid();
	gid_t gid = getgid();
	int status;
	char c;

	is_one = is_one || uid != 0;
	if (pipe2(pipe_fd, O_CLOEXEC) < 0)
		fail("pipe");
	if (!is_one)
		helper = fork();
	if (!is_one && helper == 0) {
		(void)close(pipe_fd[1]);
		(void)!read(pipe_fd[0], &c, 1);
		map_all("/proc/self/uid_map", self, "uid_map");
		map_all("/proc/self/gid_map", self, "gid_map");
		_exit(0);
	}
	if (unshare(CLONE_NEWUSER) < 0)
		fail("make a user namespace");
	(void)close(pipe_fd[1]);
	if (is_one) {
		write_text("/proc/self/setgroups", "deny");
		(void)snprintf(map, sizeof(map), "%u %u 1\n", uid, uid);
		write_text("/proc/self/uid_map", map);
		(void)snprintf(map, sizeof(map), "%u %u 1\n", gid, gid);
		write_text("/proc/self/gid_map", map);
	} else if (waitpid(helper, &status, 0) < 0 || status != 0) {
		fail("map the ids");
	}
}

static void own_mounts(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		fail("make a mount namespace");
}

/* What container engines cover; what this kernel does not have is left out. */
static void mask_proc(void)
{
	static const char *const folders[] = { "/proc/acpi", "/proc/scsi", "/proc/asound", "/proc/fs", "/proc/bus" };
	static const char *const files[] = { "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug" };
	int n = 0;

	own_mounts();
	for (size_t i = 0; i < LEN(folders); i++)
		n += mount("tmpfs", folders[i], "tmpfs", MS_RDONLY, NULL) == 0;
	for (size_t i = 0; i < LEN(files); i++)
		n += mount("/dev/null", files[i], NULL, MS_BIND, NULL) == 0;
	if (n == 0)
		fail("cover /proc");
}

static void freeze_sys(void)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };

	own_mounts();
	if (syscall(SYS_mount_setattr, AT_FDCWD, "/sys", AT_RECURSIVE, &attr, sizeof(attr)) < 0)
		fail("make /sys read-only");
}

static void change_root(void)
{
	own_mounts();
	if (mount("/", "/mnt", NULL, MS_BIND | MS_REC, NULL) < 0 || chroot("/mnt") < 0 || chdir("/") < 0)
		fail("change the root");
}

static void set_sysctl(const char *rule)
{
	char path[128];
	const char *equal = strchr(rule, '=');

	errno = EINVAL;
	if (!equal)
		fail(rule);
	(void)snprintf(path, sizeof(path), "/proc/sys/user/%.*s", (int)(equal - rule), rule);
	write_text(path, equal + 1);
}

static void apply(const char *rule)
{
	errno = EINVAL;
	if (strncmp(rule, "sysctl:", 7) == 0)
		set_sysctl(rule + 7);
	else if (strncmp(rule, "syscall:", 8) == 0)
		add_call(rule + 8);
	else if (strcmp(rule, "proc-masked") == 0)
		mask_proc();
	else if (strcmp(rule, "sys-ro") == 0)
		freeze_sys();
	else if (strcmp(rule, "chroot") == 0)
		change_root();
	else if (strcmp(rule, "no-sys") != 0 && strcmp(rule, "one-uid") != 0)
		fail(rule);
	if (strcmp(rule, "no-sys") == 0) {
		own_mounts();
		if (mount("tmpfs", "/sys", "tmpfs", MS_RDONLY, NULL) < 0)
			fail("cover /sys");
	}
}

int main(int argc, char **argv)
{
	int end = 1;
	int needs_user = 0;
	int is_one = 0;

	while (end < argc && strcmp(argv[end], "--") != 0) {
		is_one |= strcmp(argv[end], "one-uid") == 0;
		needs_user |= is_one | (strncmp(argv[end], "sysctl:", 7) == 0) |
			      (getuid() != 0 && strncmp(argv[end], "syscall:", 8) != 0);
		end++;
	}
	if (end + 1 >= argc || end > MAX_RULES) {
		(void)fprintf(stderr, "usage: deny RULE... -- COMMAND [ARG...]\n");
		return 125;
	}
	if (needs_user)
		enter_user(is_one);
	for (int i = 1; i < end; i++)
		apply(argv[i]);
	load_calls();
	(void)execvp(argv[end + 1], argv + end + 1);
	fail(argv[end + 1]);
	return 125;
}
