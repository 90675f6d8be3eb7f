/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where the union is mounted: an entry of a directory, so that no path is followed twice. */

#include "lib/base/err.h"
#include "union-fs/ufs.h"

/** struct ufs_target - a mount point */
struct ufs_target {
	int parent_fd; /* O_PATH: the directory that holds it */
	char *name;    /* in it */
	char *path;    /* for messages */
};

#define UFS_TARGET_NONE         \
	{                       \
		.parent_fd = -1 \
	}

/** ufs_target_done() - Release; one that was never opened is allowed */
void ufs_target_done(struct ufs_target *t);

#define cleanup_target __attribute__((cleanup(ufs_target_done)))

/** ufs_target_open() - Resolve a path, whose last component may be a dead union; 0 or a negative
 * errno */
int ufs_target_open(const char *path, struct ufs_target *ret, struct uc_err *err);

/**
 * ufs_target_clear() - Detach dead unions that are mounted there
 * @volume_id:	Refuse whatever else is mounted there, and unions of another volume; or NULL: leave
 * it alone
 *
 * A dead union is one whose process has gone.
 *
 * Return: 0, -EBUSY (something else is mounted there), another negative errno
 */
int ufs_target_clear(const struct ufs_target *t, const char *volume_id, struct uc_err *err);

/** ufs_target_dir() - Open the directory to mount on (O_PATH, owned); a negative errno where it is
 * none */
int ufs_target_dir(const struct ufs_target *t, struct uc_err *err);

/**
 * ufs_target_unmount() - Unmount the union there
 * @dev:	The union's superblock
 * @flags:	0 or MNT_DETACH
 *
 * Return: 0, -EINVAL (it is not mounted there, or something else covers it), -EBUSY, another
 * negative errno
 */
int ufs_target_unmount(const struct ufs_target *t, dev_t dev, int flags, struct uc_err *err);

/** ufs_target_is_at() - Whether the union whose superblock is @dev is what shows there */
bool ufs_target_is_at(const struct ufs_target *t, dev_t dev);

/** ufs_target_count() - How often this process' mount table has the union; or a negative errno */
int ufs_target_count(dev_t dev, struct uc_err *err);
