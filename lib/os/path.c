/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"
#include "lib/os/path.h"

int uc_root_open(const char *path, struct uc_root *ret_root, struct uc_err *err)
{
	cleanup_free char *real = realpath(path, NULL);
	int fd;

	if (!real)
		return uc_fail(err, errno, "resolve directory `%s`", UC_PRINTABLE(path));
	fd = open(real, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return uc_fail(err, errno, "open directory `%s`", UC_PRINTABLE(real));
	ret_root->path = take_ptr(&real);
	ret_root->fd = fd;
	return 0;
}

void uc_root_close(struct uc_root *root)
{
	free(root->path);
	root->path = NULL;
	uc_closep(&root->fd);
}

/* Appends the next component of *@p to @b; 0 at the end, -EINVAL for "." and "..". */
static int component(const char **p, const char **ret_start, size_t *ret_len)
{
	const char *s = *p;

	while (*s == '/')
		s++;
	*ret_start = s;
	*ret_len = strcspn(s, "/");
	*p = s + *ret_len;
	if ((*ret_len == 1 && s[0] == '.') || (*ret_len == 2 && s[0] == '.' && s[1] == '.'))
		return -EINVAL;
	return *ret_len > 0;
}

char *uc_path_below(const struct uc_root *root, const char *path)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	const char *p = path, *r = root->path, *s, *t;
	size_t n, m;
	char *out;

	errno = 0;
	if (*path != '/')
		return NULL;
	while (component(&r, &t, &m) > 0)
		if (component(&p, &s, &n) <= 0 || n != m || memcmp(s, t, n) != 0)
			return NULL;
	for (;;) {
		int c = component(&p, &s, &n);

		if (c < 0)
			return NULL;
		if (c == 0)
			break;
		if (b.len)
			uc_buf_puts(&b, "/");
		uc_buf_append(&b, s, n);
	}
	if (!b.len && !uc_buf_error(&b))
		return NULL;
	out = uc_buf_take(&b);
	if (!out)
		errno = ENOMEM;
	return out;
}

int uc_openat_beneath(int dirfd, const char *rel, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd;

	do
		fd = syscall(SYS_openat2, dirfd, rel, &how, sizeof(how));
	while (fd < 0 && (errno == EINTR || errno == EAGAIN)); /* EAGAIN: a rename raced */
	return fd < 0 ? -errno : (int)fd;
}

int uc_open_parent_beneath(int dirfd, const char *rel, const char **ret_name)
{
	cleanup_fd int dir = -1;
	const char *p = rel, *s;
	size_t n;

	dir = openat(dirfd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	while (component(&p, &s, &n) > 0) {
		cleanup_free char *name = NULL;
		int next;

		if (!*p) {
			*ret_name = s;
			return take_fd(&dir);
		}
		name = strndup(s, n);
		if (!name)
			return -ENOMEM;
		next = uc_openat_beneath(dir, name, O_PATH | O_DIRECTORY);
		if (next < 0)
			return next;
		uc_closep(&dir);
		dir = next;
	}
	return -EINVAL;
}
