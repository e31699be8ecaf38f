/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fd.h"
#include "sandbox/sys.h"

/* By number where the C library's headers are older than the kernel may be. */
#define FS_REFER       (UINT64_C(1) << 13) /* ABI 2 */
#define FS_TRUNCATE    (UINT64_C(1) << 14) /* ABI 3 */
#define NET_TCP        UINT64_C(3)         /* ABI 4: bind, connect */
#define SCOPE          UINT64_C(3)         /* ABI 6: abstract Unix sockets, signals */
#define FS_WRITE_ABI_1 (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | \
			LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | \
			LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO | \
			LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM)

struct ruleset_attr {
	uint64_t fs;
	uint64_t net;
	uint64_t scoped;
};

int landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	return abi < 0 ? 0 : (int)abi;
}

static int allow(int ruleset, const char *path, uint64_t access)
{
	struct landlock_path_beneath_attr rule = { .allowed_access = access };
	auto_fd int fd = open(path, O_PATH | O_CLOEXEC);

	if (fd < 0)
		return -1;
	rule.parent_fd = fd;
	return (int)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

int landlock_restrict(int no_tcp)
{
	static const char *const devices[] = { "/dev/null", "/dev/zero", "/dev/full" };
	struct ruleset_attr attr = { .fs = FS_WRITE_ABI_1 | FS_REFER };
	uint64_t device = LANDLOCK_ACCESS_FS_WRITE_FILE;
	size_t size = sizeof(attr.fs);
	int abi = landlock_abi();
	auto_fd int ruleset = -1;

	if (abi < 2) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if (abi >= 3) {
		attr.fs |= FS_TRUNCATE;
		device |= FS_TRUNCATE;
	}
	if (abi >= 4) {
		attr.net = no_tcp ? NET_TCP : 0;
		size = offsetof(struct ruleset_attr, scoped);
	}
	if (abi >= 6) {
		attr.scoped = SCOPE;
		size = sizeof(attr);
	}
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (ruleset < 0 || allow(ruleset, "/tmp", attr.fs) < 0 || allow(ruleset, "/dev/shm", attr.fs) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		if (allow(ruleset, devices[i], device) < 0 && errno != ENOENT)
			return -1;
	}
	return (int)syscall(SYS_landlock_restrict_self, ruleset, 0);
}
