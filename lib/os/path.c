/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"
#include "lib/os/path.h"

/* The next component of *@p, whatever it is; false at the end. */
static bool next_component(const char **p, const char **ret_start, size_t *ret_len)
{
	const char *s = *p + strspn(*p, "/");

	*ret_start = s;
	*ret_len = strcspn(s, "/");
	*p = s + *ret_len;
	return *ret_len > 0;
}

static bool is_dot(const char *s, size_t n)
{
	return n == 1 && s[0] == '.';
}

static bool is_dot_dot(const char *s, size_t n)
{
	return n == 2 && s[0] == '.' && s[1] == '.';
}

/* As next_component(); -EINVAL for "." and "..". */
static int component(const char **p, const char **ret_start, size_t *ret_len)
{
	if (!next_component(p, ret_start, ret_len))
		return 0;
	return is_dot(*ret_start, *ret_len) || is_dot_dot(*ret_start, *ret_len) ? -EINVAL : 1;
}

/* Returns an absolute path without "//", "." and "..", which the caller frees, or NULL. */
static char *normalise(const char *path)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	cleanup_free char *full = NULL, *cwd = NULL;
	const char *p, *s;
	size_t n;

	if (*path != '/') {
		cwd = getcwd(NULL, 0);
		if (!cwd || asprintf(&full, "%s/%s", cwd, path) < 0)
			return NULL;
		path = full;
	}
	p = path;
	while (next_component(&p, &s, &n)) {
		if (is_dot_dot(s, n)) {
			while (b.len && b.data[--b.len] != '/')
				;
		} else if (!is_dot(s, n)) {
			uc_buf_puts(&b, "/");
			uc_buf_append(&b, s, n);
		}
	}
	if (!b.len)
		uc_buf_puts(&b, "/");
	else
		b.data[b.len] = '\0';
	errno = ENOMEM;
	return uc_buf_take(&b);
}

int uc_root_init(struct uc_root *ret_root, const char *path, struct uc_err *err)
{
	char *full = *path ? normalise(path) : NULL;

	if (!full)
		return uc_fail(err, *path ? errno : EINVAL, "resolve directory `%s`",
			       UC_PRINTABLE(path));
	*ret_root = (struct uc_root){ .path = full, .fd = -1 };
	return 0;
}

static void close_root(struct uc_root *root)
{
	free(root->real);
	root->real = NULL;
	uc_closep(&root->fd);
}

/* Whether the directory is still in its filesystem, which is not waited for. */
static bool is_there(int fd)
{
	struct statx stx;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_NLINK, &stx) < 0 ||
	       stx.stx_nlink > 0;
}

int uc_root_open(struct uc_root *root, struct uc_err *err)
{
	if (root->fd >= 0 && is_there(root->fd))
		return 0;
	close_root(root);
	root->real = realpath(root->path, NULL);
	if (!root->real)
		return uc_fail(err, errno, "resolve directory `%s`", UC_PRINTABLE(root->path));
	root->fd = open(root->real, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (root->fd < 0) {
		int num = errno;

		close_root(root);
		return uc_fail(err, num, "open directory `%s`", UC_PRINTABLE(root->path));
	}
	return 0;
}

void uc_root_done(struct uc_root *root)
{
	close_root(root);
	free(root->path);
	root->path = NULL;
}

static char *below(const char *root, const char *path)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	const char *p = path, *r = root, *s, *t;
	size_t n, m;
	char *out;

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

char *uc_path_below(const struct uc_root *root, const char *path)
{
	char *rel;

	errno = 0;
	if (*path != '/')
		return NULL;
	rel = below(root->path, path);
	if (!rel && errno == 0 && root->real)
		rel = below(root->real, path);
	return rel;
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
