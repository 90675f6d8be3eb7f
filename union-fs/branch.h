/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Opening the directories that are merged, and asking them for space. */

#include "lib/vol/spec.h"
#include "union-fs/ufs.h"

#define UFS_BRANCH_NONE                                   \
	{                                                 \
		.root_fd = -1, .home_fd = -1, .fs_fd = -1 \
	}

/** ufs_branch_done() - Release a branch; one that was never opened is allowed */
void ufs_branch_done(struct ufs_branch *b);

/** ufs_branches_free() - Release an array of branches from malloc(); NULL is allowed */
void ufs_branches_free(struct ufs_branch *b, unsigned n);

/**
 * ufs_branch_open_plain() - Open a directory that is a branch as it is
 * @path:	Directory
 * @ret:	Result, UFS_BRANCH_NONE before; mode and min_free are left alone
 *
 * Return: 0 or a negative errno
 */
int ufs_branch_open_plain(const char *path, struct ufs_branch *ret, struct uc_err *err);

/**
 * ufs_branch_open_spec() - Open a branch of a volume, mounting its device where it has one
 * @spec:	Volume
 * @index:	Which branch
 * @opts:	Options for the mount of a device
 * @ret:	Result, UFS_BRANCH_NONE before
 *
 * Return: 0 or a negative errno
 */
int ufs_branch_open_spec(const struct uc_union_spec *spec, unsigned index,
			 const struct uc_mount_opts *opts, struct ufs_branch *ret,
			 struct uc_err *err);

/** ufs_branches_check() - Refuse a directory that is there twice; 0 or -EINVAL */
int ufs_branches_check(const struct ufs_branch *b, unsigned n, struct uc_err *err);

/** ufs_branch_space() - Bytes that are free on it for everybody; 0 or a negative errno */
int ufs_branch_space(const struct ufs_branch *b, uint64_t *ret_bytes);
