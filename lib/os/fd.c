/* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/os/fd.h"

int uc_write_all(int fd, const void *p, size_t n)
{
	const char *c = p;

	while (n > 0) {
		ssize_t k = write(fd, c, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		c += k;
		n -= (size_t)k;
	}
	return 0;
}

int uc_read_fd(int fd, size_t max, struct uc_buf *ret)
{
	size_t start = ret->len;
	int r = 0;

	for (;;) {
		ssize_t k;

		r = uc_buf_reserve(ret, 4096);
		if (r < 0)
			break;
		k = read(fd, ret->data + ret->len, 4096);
		if (k < 0 && errno == EINTR)
			continue;
		r = k < 0 ? -errno : 0;
		if (k <= 0)
			break;
		ret->len += (size_t)k;
		if (ret->len - start > max) {
			r = -EFBIG;
			break;
		}
	}
	if (r < 0)
		ret->len = start;
	if (ret->data)
		ret->data[ret->len] = '\0';
	return r;
}

int uc_read_file_at(int dirfd, const char *name, size_t max, struct uc_buf *ret)
{
	cleanup_fd int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	return uc_read_fd(fd, max, ret);
}

int uc_write_file_at(int dirfd, const char *name, const char *text)
{
	cleanup_fd int fd = openat(dirfd, name, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return uc_write_all(fd, text, strlen(text));
}

static int write_temp(int dirfd, const char *temp, const void *p, size_t n, mode_t mode)
{
	cleanup_fd int fd = -1;
	int r;

	fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
	if (fd < 0)
		return -errno;
	r = uc_write_all(fd, p, n);
	if (r < 0)
		return r;
	/* What a crash left may have other permissions. */
	if (fchmod(fd, mode) < 0 || fsync(fd) < 0)
		return -errno;
	return 0;
}

static char *temp_name(const char *name)
{
	char *temp = NULL;

	return asprintf(&temp, ".%s.tmp", name) < 0 ? NULL : temp;
}

int uc_replace_file_at(int dirfd, const char *name, const void *p, size_t n, mode_t mode,
		       struct uc_err *err)
{
	cleanup_free char *temp = temp_name(name);
	int r;

	if (!temp)
		return uc_fail(err, ENOMEM, "write `%s`", name);
	r = write_temp(dirfd, temp, p, n, mode);
	if (r == 0 && renameat(dirfd, temp, dirfd, name) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(dirfd, temp, 0);
		return uc_fail(err, -r, "write `%s`", name);
	}
	if (fsync(dirfd) < 0)
		return uc_fail(err, errno, "sync the directory of `%s`", name);
	return 0;
}

int uc_remove_file_at(int dirfd, const char *name, struct uc_err *err)
{
	cleanup_free char *temp = temp_name(name);

	if (!temp)
		return uc_fail(err, ENOMEM, "remove `%s`", name);
	if ((unlinkat(dirfd, temp, 0) < 0 && errno != ENOENT) ||
	    (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT))
		return uc_fail(err, errno, "remove `%s`", name);
	if (fsync(dirfd) < 0)
		return uc_fail(err, errno, "sync the directory of `%s`", name);
	return 0;
}

int uc_open_dir_at(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

static int sync_parent(int fd)
{
	cleanup_fd int parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return parent < 0 || fsync(parent) < 0 ? -errno : 0;
}

int uc_make_dir_at(int dirfd, const char *name, mode_t mode)
{
	cleanup_fd int fd = -1;
	int r;

	if (mkdirat(dirfd, name, mode) < 0)
		return errno == EEXIST ? uc_open_dir_at(dirfd, name) : -errno;
	fd = uc_open_dir_at(dirfd, name);
	r = fd < 0 ? fd : sync_parent(fd);
	if (r < 0) {
		/* The next call would take it for one that is durable. */
		(void)unlinkat(dirfd, name, AT_REMOVEDIR);
		return r;
	}
	return take_fd(&fd);
}

int uc_dir_each(int dirfd, int (*fn)(void *data, const char *name), void *data)
{
	struct dirent *e;
	DIR *dir;
	int fd, r = 0;

	fd = uc_open_dir_at(dirfd, "."); /* its own position */
	if (fd < 0)
		return fd;
	dir = fdopendir(fd);
	if (!dir) {
		r = -errno;
		close(fd);
		return r;
	}
	while (r == 0) {
		errno = 0;
		e = readdir(dir);
		if (!e) {
			r = -errno;
			break;
		}
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			r = fn(data, e->d_name);
	}
	closedir(dir);
	return r;
}

static int is_not_ignored(void *data, const char *name)
{
	for (const char *const *p = data; p && *p; p++)
		if (strcmp(*p, name) == 0)
			return 0;
	return 1;
}

int uc_dir_is_empty(int dirfd, const char *const *ignore)
{
	int r = uc_dir_each(dirfd, is_not_ignored, (void *)(uintptr_t)ignore);

	return r < 0 ? r : !r;
}

const char *uc_fd_path(char to[static UC_FD_PATH_SIZE], int fd)
{
	snprintf(to, UC_FD_PATH_SIZE, "/proc/self/fd/%d", fd);
	return to;
}
