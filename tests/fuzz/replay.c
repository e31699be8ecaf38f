/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over the files of a corpus, so that any compiler and every test run replays it. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

#define FILE_MAX (16 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* replay() - each input is an exact heap block, so that a sanitizer sees the first step behind it */
static int replay(int dir, const char *name)
{
	auto_fd int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	auto_free char *text = NULL;
	auto_free uint8_t *exact = NULL;
	size_t len = 0;

	if (fd < 0 || fd_read_all(fd, FILE_MAX, &text, &len) < 0) {
		(void)fprintf(stderr, "can't read %s\n", name);
		return -1;
	}
	exact = malloc(len ? len : 1);
	if (!exact)
		return -1;
	memcpy(exact, text, len);
	(void)printf("%s\n", name); /* the last line before a crash names its input */
	(void)fflush(stdout);
	return LLVMFuzzerTestOneInput(exact, len);
}

int main(int argc, char **argv)
{
	DIR *d = argc == 2 ? opendir(argv[1]) : NULL;
	const struct dirent *entry;
	int n = 0;

	if (!d) {
		(void)fprintf(stderr, "usage: %s CORPUS-FOLDER\n", argv[0]);
		return 2;
	}
	while ((entry = readdir(d))) {
		if (entry->d_name[0] == '.')
			continue;
		if (replay(dirfd(d), entry->d_name) != 0)
			return 1;
		n++;
	}
	(void)closedir(d);
	(void)printf("%d inputs\n", n);
	return n > 0 ? 0 : 1;
}
