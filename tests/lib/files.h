/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files in the current directory, which is a test's own: made, read and listed in one line each. */

#include "tests/lib/unit.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_int_equal(fputs(text, f) < 0, 0);
	assert_int_equal(fclose(f), 0);
}

/* Its content; NULL if there is none.  Good until the next call but three. */
static inline const char *file_text(const char *path)
{
	static char buffers[4][64 * 1024];
	static unsigned turn;
	char *to = buffers[turn++ % 4];
	FILE *f = fopen(path, "re");
	size_t n;

	if (!f)
		return NULL;
	n = fread(to, 1, sizeof(buffers[0]) - 1, f);
	to[n] = '\0';
	fclose(f);
	return to;
}

static inline bool file_exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static inline int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static inline int is_entry(const struct dirent *e)
{
	return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

/* "a b c ": the names in a directory, sorted.  Good until the next call but three. */
static inline const char *listing(const char *path)
{
	static char buffers[4][8 * 1024];
	static unsigned turn;
	char *to = buffers[turn++ % 4];
	struct dirent **list = NULL;
	size_t len = 0;
	int n = scandir(path, &list, is_entry, alphasort);

	assert_true(n >= 0);
	to[0] = '\0';
	for (int i = 0; i < n; i++) {
		len += (size_t)snprintf(to + len, sizeof(buffers[0]) - len, "%s ", list[i]->d_name);
		assert_true(len < sizeof(buffers[0]));
		free(list[i]);
	}
	free(list);
	return to;
}

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

/* rm -rf */
static inline void remove_tree(const char *path)
{
	assert_true(nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT);
}

static inline void make_dir(const char *path)
{
	assert_int_equal(mkdir(path, 0755), 0);
}

/* An empty directory, whatever was there. */
static inline void fresh_dir(const char *path)
{
	remove_tree(path);
	make_dir(path);
}

/* Number of descriptors that this process has open. */
static inline size_t open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}
