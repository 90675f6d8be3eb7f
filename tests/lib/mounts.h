/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A mount table without root: directories are mounted on in memory, by inode.  A look at a mount
 * is a step.  What changes the table is in tests/lib/mounting.h, unless a test wraps that itself,
 * by what is here.  A "mount" hides nothing of the directory.
 */

#include "tests/lib/unit.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/os/mount.h"
#include "tests/lib/steps.h"

struct fake_mount {
	dev_t dir_dev;
	ino_t dir_ino; /* where; 0: detached */
	int clone_fd;  /* of a detached one */
	char fstype[32], source[64];
	uint64_t attr_set, attr_clr;
	dev_t dev; /* of its superblock */
};

static struct {
	struct fake_mount list[64]; /* the last one of a place is on top */
	size_t n;
	dev_t last_dev;
	unsigned clones, unmounts;
	uint64_t attr_set, attr_clr;                     /* of the last clone */
	int clone_result, attach_result, unmount_result; /* negative errno: fails */
	int last_unmount_flags;
	int busy; /* so many unmounts without MNT_DETACH are -EBUSY */
} fake_mounts;

static inline void fake_mounts_reset(void)
{
	memset(&fake_mounts, 0, sizeof(fake_mounts));
}

static inline struct fake_mount *fake_mount_on(const struct stat *st)
{
	for (size_t i = fake_mounts.n; i-- > 0;)
		if (fake_mounts.list[i].dir_ino == st->st_ino &&
		    fake_mounts.list[i].dir_dev == st->st_dev)
			return &fake_mounts.list[i];
	return NULL;
}

static inline struct fake_mount *fake_mount_at(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 ? fake_mount_on(&st) : NULL;
}

/* Has something mounted at @path, as mount(8) would. */
static inline void fake_mount_add(const char *path, const char *fstype, const char *source)
{
	struct fake_mount *m = &fake_mounts.list[fake_mounts.n++];
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	*m = (struct fake_mount){ .dir_dev = st.st_dev,
				  .dir_ino = st.st_ino,
				  .clone_fd = -1,
				  .dev = ++fake_mounts.last_dev };
	snprintf(m->fstype, sizeof(m->fstype), "%s", fstype);
	snprintf(m->source, sizeof(m->source), "%s", source);
}

static inline void fake_mount_remove(struct fake_mount *m)
{
	size_t i = (size_t)(m - fake_mounts.list);

	memmove(m, m + 1, (fake_mounts.n - i - 1) * sizeof(*m));
	fake_mounts.n--;
}

/* Number of mounts that are attached anywhere. */
static inline size_t fake_mounts_attached(void)
{
	size_t n = 0;

	for (size_t i = 0; i < fake_mounts.n; i++)
		n += fake_mounts.list[i].dir_ino != 0;
	return n;
}

int __wrap_uc_mount_id(int fd, uint64_t *ret_id, bool *ret_is_root);
int __wrap_uc_mount_id(int fd, uint64_t *ret_id, bool *ret_is_root)
{
	struct fake_mount *m;
	struct stat st;

	if (fails())
		return -EIO;
	if (fstat(fd, &st) < 0)
		return -errno;
	m = fake_mount_on(&st);
	*ret_id = m ? (uint64_t)(m - fake_mounts.list) + 100 : 1;
	if (ret_is_root)
		*ret_is_root = m != NULL;
	return 0;
}

int __wrap_uc_mount_look(int fd, struct uc_mount_info *ret_info, struct uc_err *err);
int __wrap_uc_mount_look(int fd, struct uc_mount_info *ret_info, struct uc_err *err)
{
	struct fake_mount *m;
	struct stat st;

	if (fails())
		return uc_fail(err, EIO, "look at a mount");
	if (fstat(fd, &st) < 0)
		return uc_fail(err, errno, "look at a mount");
	m = fake_mount_on(&st);
	if (!m)
		return 0;
	*ret_info = (struct uc_mount_info){
		.id = (uint64_t)(m - fake_mounts.list) + 100,
		.read_only = m->attr_set & UC_MOUNT_RDONLY,
		.dev = m->dev,
		.root = strdup("/"),
		.target = strdup("?"),
		.fstype = strdup(m->fstype),
		.source = strdup(m->source),
	};
	return 1;
}

/* What was cloned and not attached is gone with its descriptor. */
static inline void fake_mounts_forget_detached(void)
{
	for (size_t i = fake_mounts.n; i-- > 0;)
		if (!fake_mounts.list[i].dir_ino)
			fake_mount_remove(&fake_mounts.list[i]);
}

static inline int fake_mount_attach(int mount_fd, int target_fd)
{
	struct stat st;

	if (fake_mounts.attach_result < 0) {
		fake_mounts_forget_detached();
		return fake_mounts.attach_result;
	}
	assert_int_equal(fstat(target_fd, &st), 0);
	for (size_t i = 0; i < fake_mounts.n; i++)
		if (!fake_mounts.list[i].dir_ino && fake_mounts.list[i].clone_fd == mount_fd) {
			struct fake_mount m = fake_mounts.list[i];

			fake_mount_remove(&fake_mounts.list[i]);
			m.dir_dev = st.st_dev;
			m.dir_ino = st.st_ino;
			m.clone_fd = -1;
			fake_mounts.list[fake_mounts.n++] = m;
			return 0;
		}
	return -EINVAL;
}

static inline int fake_unmount_at(int parent_fd, const char *name, int flags)
{
	struct fake_mount *m;
	struct stat st;

	fake_mounts.unmounts++;
	fake_mounts.last_unmount_flags = flags;
	if (fake_mounts.unmount_result < 0)
		return fake_mounts.unmount_result;
	if (fstatat(parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	m = fake_mount_on(&st);
	if (!m)
		return -EINVAL;
	if (!(flags & 2 /* MNT_DETACH */) && fake_mounts.busy > 0) {
		fake_mounts.busy--;
		return -EBUSY;
	}
	fake_mount_remove(m);
	return 0;
}
