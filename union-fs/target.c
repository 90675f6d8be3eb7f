/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/os/mount.h"
#include "lib/os/statfs.h"
#include "union-fs/target.h"

enum {
	LAYERS_MAX = 64, /* mounts on top of each other */
	STATFS_MS = 2000,
};

void ufs_target_done(struct ufs_target *t)
{
	uc_closep(&t->parent_fd);
	free(t->name);
	free(t->path);
	t->name = t->path = NULL;
}

/* The canonical path, also where the last component is a dead mount, which cannot be looked at. */
static char *canonical(const char *path)
{
	cleanup_free char *copy = NULL, *parent = NULL;
	char *real = realpath(path, NULL), *slash;
	size_t n = strlen(path);

	if (real || errno != ENOTCONN)
		return real;
	while (n > 1 && path[n - 1] == '/')
		n--;
	copy = strndup(path, n);
	slash = copy ? strrchr(copy, '/') : NULL;
	if (!copy)
		return NULL;
	if (slash)
		*slash = '\0';
	parent = realpath(slash ? (*copy ? copy : "/") : ".", NULL);
	if (!parent)
		return NULL;
	if (asprintf(&real, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent,
		     slash ? slash + 1 : copy) < 0)
		return NULL;
	return real;
}

int ufs_target_open(const char *path, struct ufs_target *ret, struct uc_err *err)
{
	char *slash;

	ret->path = canonical(path);
	if (!ret->path)
		return uc_fail(err, errno, "target `%s`", UC_PRINTABLE(path));
	slash = strrchr(ret->path, '/');
	if (!slash || !slash[1])
		return uc_fail_as(err, EINVAL, 0, "target `%s` is the root directory",
				  UC_PRINTABLE(path));
	ret->name = strdup(slash + 1);
	if (!ret->name)
		return uc_fail(err, ENOMEM, "target `%s`", UC_PRINTABLE(path));
	*slash = '\0';
	ret->parent_fd = open(*ret->path ? ret->path : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	*slash = '/';
	if (ret->parent_fd < 0)
		return uc_fail(err, errno, "target `%s`", UC_PRINTABLE(path));
	return 0;
}

static bool is_dead(int fd)
{
	struct uc_statfs st;

	return uc_statfs_bounded(fd, STATFS_MS, &st, NULL) == -ENOTCONN;
}

/* 1: there was a dead union on top, and it is gone now. */
static int clear_top(const struct ufs_target *t, const char *volume_id, struct uc_err *err)
{
	cleanup_fd int fd = openat(t->parent_fd, t->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	cleanup_mount_info struct uc_mount_info info = { 0 };
	int r;

	if (fd < 0)
		return errno == ENOENT ? 0
				       : uc_fail(err, errno, "look at `%s`", UC_PRINTABLE(t->path));
	r = uc_mount_look(fd, &info, err);
	if (r <= 0)
		return r;
	if (strcmp(info.fstype, "fuse.union-fs") != 0 ||
	    (volume_id && strcmp(info.source, volume_id) != 0) || !is_dead(fd)) {
		if (!volume_id)
			return 0;
		return uc_fail_as(err, EBUSY, 0, "`%s` (%s) is mounted at `%s`",
				  UC_PRINTABLE(info.source), UC_PRINTABLE(info.fstype),
				  UC_PRINTABLE(t->path));
	}
	log_info("detach the union `%s` at `%s`: its process has gone", UC_PRINTABLE(info.source),
		 UC_PRINTABLE(t->path));
	uc_closep(&fd);
	r = uc_unmount_at(t->parent_fd, t->name, MNT_DETACH, err);
	return r < 0 ? r : 1;
}

int ufs_target_clear(const struct ufs_target *t, const char *volume_id, struct uc_err *err)
{
	int r = 1;

	for (int i = 0; i < LAYERS_MAX && r > 0; i++)
		r = clear_top(t, volume_id, err);
	return r < 0 ? r : 0;
}

int ufs_target_dir(const struct ufs_target *t, struct uc_err *err)
{
	int fd = openat(t->parent_fd, t->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? uc_fail(err, errno, "target `%s`", UC_PRINTABLE(t->path)) : fd;
}

bool ufs_target_is_at(const struct ufs_target *t, dev_t dev)
{
	cleanup_fd int fd = openat(t->parent_fd, t->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct statx st;

	/* Without asking the filesystem: it may be us. */
	return fd >= 0 && statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) == 0 &&
	       makedev(st.stx_dev_major, st.stx_dev_minor) == dev;
}

int ufs_target_unmount(const struct ufs_target *t, dev_t dev, int flags, struct uc_err *err)
{
	cleanup_fd int fd = openat(t->parent_fd, t->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct statx st;

	/* Without asking the filesystem: it may be us. */
	if (fd < 0 || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) < 0)
		return uc_fail(err, errno == ENOENT ? EINVAL : errno, "unmount `%s`",
			       UC_PRINTABLE(t->path));
	if (makedev(st.stx_dev_major, st.stx_dev_minor) != dev)
		return uc_fail_as(err, EINVAL, 0, "`%s` is not where the union is mounted",
				  UC_PRINTABLE(t->path));
	uc_closep(&fd);
	return uc_unmount_at(t->parent_fd, t->name, flags, err);
}

struct count {
	dev_t dev;
	int n;
};

static int count_one(void *data, const struct uc_mount_info *info)
{
	struct count *c = data;

	c->n += info->dev == c->dev;
	return 0;
}

int ufs_target_count(dev_t dev, struct uc_err *err)
{
	struct count c = { .dev = dev };
	int r = uc_mount_each(count_one, &c, err);

	return r < 0 ? r : c.n;
}
