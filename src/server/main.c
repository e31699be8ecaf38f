/* SPDX-License-Identifier: Apache-2.0 */
/* cloched: the programs that stay.  `cloche serve` executes it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/server.h"

int main(int argc, char *argv[])
{
	/* what of 0, 1, 2 is closed must not become something of ours */
	for (int fd = 0; fd <= 2; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) /* NOLINT(android-cloexec-open) */
			return 125;
	}
	if ((argc == 2 || argc == 3) && strcmp(argv[1], "serve") == 0)
		return serve(argv[2]);
	(void)fprintf(stderr, "cloched is started by cloche serve, not by hand\n");
	return 2;
}
