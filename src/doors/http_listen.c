/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets to listen on, made while there may be root's rights, and the end of those rights. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "base/place.h"
#include "doors/door.h"

#define BACKLOG 512

/* Root's goes to its group, a user's is his alone. */
static int settle_mode(const char *path, const char *group, struct err *e)
{
	const struct group *g = geteuid() == 0 && group ? getgrnam(group) : NULL;

	if (geteuid() != 0)
		return 0;
	if (group && !g)
		return err_set(e, ERR_INVALID, 0, "server.group: there is no group %s", group);
	if (g && chown(path, (uid_t)-1, g->gr_gid) < 0)
		return err_set(e, ERR_HOST, errno, "%s: give to group %s", path, group);
	return chmod(path, 0660) < 0 ? err_set(e, ERR_HOST, errno, "%s", path) : 0;
}

int listen_unix(const char *path, const char *group, int *ret_fd, struct err *e)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	auto_fd int fd = -1;
	mode_t old;
	int r;

	if (strlen(path) >= sizeof(at.sun_path))
		return err_set(e, ERR_INVALID, ENAMETOOLONG, "--http-socket %.200s", path);
	memcpy(at.sun_path, path, strlen(path) + 1);
	r = place_clear(&at, SOCK_STREAM, e);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(e, ERR_HOST, errno, "make a socket");
	old = umask(0177);
	r = bind(fd, (struct sockaddr *)&at, sizeof(at));
	(void)umask(old);
	if (r < 0)
		return err_set(e, ERR_HOST, errno, "%s", path);
	r = settle_mode(path, group, e);
	if (r < 0)
		return r;
	if (listen(fd, BACKLOG) < 0)
		return err_set(e, ERR_HOST, errno, "%s", path);
	*ret_fd = take_fd(&fd);
	return 0;
}

static bool is_loopback(const struct sockaddr *a)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;

	if (a->sa_family == AF_INET) {
		memcpy(&v4, a, sizeof(v4));
		return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
	}
	memcpy(&v6, a, sizeof(v6));
	return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

/* "[::1]:7411" to "::1" and "7411" */
static int cut_address(const char *address, char host[256], char port[8], struct err *e)
{
	const char *colon = strrchr(address, ':');
	size_t len = colon ? (size_t)(colon - address) : 0;
	uint64_t number;

	if (!colon || len == 0 || len >= 256 || parse_u64(colon + 1, 0, 65535, &number) < 0)
		return err_set(e, ERR_INVALID, 0, "--listen %.200s: HOST:PORT, as in 127.0.0.1:7411", address);
	(void)snprintf(port, 8, "%u", (unsigned)number);
	if (address[0] == '[' && address[len - 1] == ']') {
		address++;
		len -= 2;
	}
	memcpy(host, address, len);
	host[len] = '\0';
	return 0;
}

static int bind_tcp(const struct addrinfo *at, const char *address, int *ret_fd, struct err *e)
{
	auto_fd int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1;

	if (fd < 0)
		return err_set(e, ERR_HOST, errno, "make a socket");
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (at->ai_family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, at->ai_addr, at->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
		return err_set(e, ERR_HOST, errno, "--listen %.200s", address);
	*ret_fd = take_fd(&fd);
	return 0;
}

int listen_tcp(const char *address, bool is_behind_tls_proxy, int *ret_fd, char **ret_host, struct err *e)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	struct addrinfo *found = NULL;
	char host[256];
	char port[8];
	char *shown = NULL;
	int r = cut_address(address, host, port, e);

	if (r < 0)
		return r;
	r = getaddrinfo(host, port, &hints, &found);
	if (r != 0)
		return err_set(e, ERR_INVALID, 0, "--listen %.200s: %s", address, gai_strerror(r));
	if (!is_loopback(found->ai_addr) && !is_behind_tls_proxy)
		r = err_set(e, ERR_INVALID, 0,
			    "--listen %.200s: not this machine's loopback: tokens and scripts would cross the network "
			    "readable; put a proxy that speaks TLS in front and say --behind-tls-proxy",
			    address);
	else
		r = bind_tcp(found, address, ret_fd, e);
	freeaddrinfo(found);
	if (r == 0 && asprintf(&shown, strchr(host, ':') ? "[%s]" : "%s", host) < 0)
		shown = NULL;
	if (r == 0)
		*ret_host = shown;
	return r;
}

static int drop_capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { .effective = 0 } };

	return syscall(SYS_capset, &head, none) < 0 ? -errno : 0;
}

/*
 * After:   what listens is open, the first token is written      Before: the first byte of a client
 * Should:  be the user that cloched believes (it is that user itself), with no other group, no capability, nor a way to
 * either
 */
int privileges_drop(gid_t group, struct err *e)
{
	uid_t uid = 0;
	gid_t gid = 0;
	int r;

	if (geteuid() == 0) {
		if (tokens_door_user(&uid, &gid) < 0)
			return err_set(e, ERR_HOST, 0,
				       "root's server is asked over HTTP by way of the user " DOOR_USER
				       ", which is not there: useradd --system " DOOR_USER);
		if (setgroups(group ? 1 : 0, &group) < 0 || setresgid(gid, gid, gid) < 0)
			return err_set(e, ERR_HOST, errno, "become group %u", gid);
	}
	for (int cap = 0; geteuid() == 0 && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	r = uid && setresuid(uid, uid, uid) < 0 ? -errno : drop_capabilities();
	if (r < 0)
		return err_set(e, ERR_HOST, -r, "become user %u", uid);
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? err_set(e, ERR_HOST, errno, "no_new_privs") : 0;
}
