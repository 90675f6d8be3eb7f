/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/os/blk.h"
#include "lib/os/fd.h"
#include "lib/vol/branch_id.h"
#include "union-fs/branch.h"
#include "union-fs/find.h"

/* Filesystems whose close() has nothing to say: the data is in this machine's page cache. */
static const unsigned long local_fs[] = {
	EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,      BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
	F2FS_SUPER_MAGIC, EROFS_SUPER_MAGIC_V1, SQUASHFS_MAGIC,    OVERLAYFS_SUPER_MAGIC,
};

void ufs_branch_done(struct ufs_branch *b)
{
	uc_closep(&b->root_fd);
	uc_closep(&b->home_fd);
	uc_closep(&b->fs_fd); /* the last one: a device's mount goes with it */
	free(b->name);
	b->name = NULL;
}

void ufs_branches_free(struct ufs_branch *b, unsigned n)
{
	for (unsigned i = 0; b && i < n; i++)
		ufs_branch_done(&b[i]);
	free(b);
}

static bool is_local(int fd)
{
	struct statfs st;

	if (fstatfs(fd, &st) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(local_fs); i++)
		if ((unsigned long)st.f_type == local_fs[i])
			return true;
	return false;
}

/* Fills what is known once root_fd is open. */
static int describe(struct ufs_branch *b, struct uc_err *err)
{
	struct ufs_handle_buf h;
	struct stat st;
	int fd;

	if (fstat(b->root_fd, &st) < 0)
		return uc_fail(err, errno, "stat");
	b->dev = st.st_dev;
	b->flush = !is_local(b->root_fd);
	b->handles = false;
	if (ufs_handle_get(b->root_fd, &h) < 0)
		return 0;
	b->mount_id = h.mount_id;
	fd = open_by_handle_at(b->root_fd, &h.handle, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return 0; /* not allowed, or the filesystem gives handles that it does not take */
	close(fd);
	b->handles = true;
	return 0;
}

int ufs_branch_open_plain(const char *path, struct ufs_branch *ret, struct uc_err *err)
{
	int r;

	ret->name = strdup(path);
	if (!ret->name)
		return uc_fail(err, ENOMEM, "branch `%s`", UC_PRINTABLE(path));
	ret->root_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ret->root_fd < 0)
		return uc_fail(err, errno, "branch `%s`", UC_PRINTABLE(path));
	r = describe(ret, err);
	return r < 0 ? uc_wrap(err, r, "branch `%s`", UC_PRINTABLE(path)) : 0;
}

/* What is on the device must be what the spec says, before anything is mounted. */
static int check_device(const struct uc_branch_spec *s, struct uc_err *err)
{
	cleanup_fd int fd = open(s->device, O_RDONLY | O_CLOEXEC);
	struct uc_blk_content c;
	int r;

	if (fd < 0)
		return uc_fail(err, errno, "open");
	r = uc_blk_probe(fd, &c, err);
	if (r < 0)
		return r;
	if (c.kind != UC_BLK_FILESYSTEM)
		return uc_fail_as(err, EUCLEAN, 0, "it holds no filesystem (%s)",
				  *c.type ? c.type : "no signature that is known");
	if (strcmp(c.type, s->fstype) != 0)
		return uc_fail_as(err, EUCLEAN, 0, "it holds filesystem %s, not %s", c.type,
				  UC_PRINTABLE(s->fstype));
	if (strcmp(c.uuid, s->uuid) != 0)
		return uc_fail_as(err, EUCLEAN, 0, "its filesystem has UUID `%s`, not `%s`", c.uuid,
				  UC_PRINTABLE(s->uuid));
	return 0;
}

/* The kernel keeps a filesystem for who has files of it open, and gives it to us, too. */
static bool is_in_use(const char *device)
{
	cleanup_fd int fd = open(device, O_RDONLY | O_EXCL | O_CLOEXEC);

	return fd < 0 && errno == EBUSY;
}

static int open_home(const struct uc_branch_spec *s, const struct uc_mount_opts *opts,
		     bool read_only, struct ufs_branch *b, struct uc_err *err)
{
	int r;

	if (s->directory) {
		b->home_fd = open(s->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		return b->home_fd < 0 ? uc_fail(err, errno, "open") : 0;
	}
	r = check_device(s, err);
	if (r < 0)
		return r;
	b->shared = is_in_use(s->device);
	r = uc_mount_fs(s->fstype, NULL, s->device, opts, read_only, &b->fs_fd, err);
	if (r < 0)
		return r;
	b->home_fd = uc_open_dir_at(b->fs_fd, ".");
	return b->home_fd < 0 ? uc_fail(err, -b->home_fd, "open its root") : 0;
}

/*
 * Two servers would know nothing of each other's renames: who writes has a branch alone.  Other
 * programs cannot get at the home to lock it; the lock ends with this process.
 */
static int claim(int home_fd, bool read_only, struct uc_err *err)
{
	if (flock(home_fd, (read_only ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0)
		return 0;
	if (errno == EWOULDBLOCK)
		return uc_fail_as(err, EBUSY, 0, "another server serves it");
	if (errno != EOPNOTSUPP && errno != ENOSYS && errno != ENOLCK)
		return uc_fail(err, errno, "lock its root");
	log_warn("a branch's filesystem has no locks; nothing keeps a second server from it");
	return 0;
}

int ufs_branch_open_spec(const struct uc_union_spec *spec, unsigned index,
			 const struct uc_mount_opts *opts, struct ufs_branch *ret,
			 struct uc_err *err)
{
	const struct uc_branch_spec *s = &spec->branches[index];
	const struct uc_branch_id want = {
		.volume_id = spec->volume_id,
		.uuid = s->uuid,
		.index = index,
		.branches = (uint32_t)spec->n_branches,
	};
	int r;

	ret->name = strdup(s->device ? s->device : s->directory);
	if (!ret->name)
		return uc_fail(err, ENOMEM, "branch %u", index);
	ret->min_free = spec->min_free_space;
	r = open_home(s, opts, spec->read_only, ret, err);
	if (r == 0)
		r = claim(ret->home_fd, spec->read_only, err);
	if (r == 0)
		r = uc_branch_open(ret->home_fd, &want, spec->initialise && !spec->read_only,
				   &ret->root_fd, err);
	if (r == 0)
		r = describe(ret, err);
	return r < 0 ? uc_wrap(err, r, "branch %u (`%s`)", index, UC_PRINTABLE(ret->name)) : 0;
}

int ufs_branches_check(const struct ufs_branch *b, unsigned n, struct uc_err *err)
{
	struct stat st[2];

	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < i; j++) {
			if (b[i].dev != b[j].dev)
				continue;
			if (fstat(b[i].root_fd, &st[0]) < 0 || fstat(b[j].root_fd, &st[1]) < 0)
				return uc_fail(err, errno, "stat the branches");
			if (st[0].st_ino == st[1].st_ino)
				return uc_fail_as(err, EINVAL, 0,
						  "branches `%s` and `%s` are the same directory",
						  UC_PRINTABLE(b[j].name), UC_PRINTABLE(b[i].name));
		}
	return 0;
}

int ufs_branch_space(const struct ufs_branch *b, uint64_t *ret_bytes)
{
	struct statvfs st;

	if (fstatvfs(b->root_fd, &st) < 0)
		return -errno;
	*ret_bytes = (uint64_t)st.f_bavail * st.f_frsize;
	return 0;
}
