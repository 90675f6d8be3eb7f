/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Attributes of branches' objects as the union shows them. */

#include <sys/stat.h>

#include "union-fs/find.h"
#include "union-fs/fuse_abi.h"
#include "union-fs/ufs.h"

/**
 * ufs_ino() - An object's inode number in the union
 * @b:		Its branch
 * @index:	The branch's index
 * @dev, @ino:	The object
 *
 * (index << 48) + ino where that fits, which it does on all usual filesystems: the same after
 * every mount.  Else, and for what lies on another filesystem than its branch, a number with
 * the highest bit set that is computed from both.
 */
uint64_t ufs_ino(const struct ufs_branch *b, unsigned index, dev_t dev, ino_t ino);

/** ufs_older() - Whether copy @a speaks for a directory rather than @b, which is on a higher branch
 */
bool ufs_older(const struct statx *a, const struct statx *b);

/** ufs_attr_file() - Attributes of an object that has no copies */
void ufs_attr_file(const struct ufs *fs, unsigned branch, const struct statx *st,
		   struct fuse_attr *ret);

/** struct ufs_attr_merge - a directory's attributes while its copies are gone through, in the order
 * of branches */
struct ufs_attr_merge {
	unsigned n;
	unsigned branch; /* of the oldest copy so far */
	struct statx st; /* of the oldest copy, with the latest of all times */
};

/** ufs_attr_merge_add() - One more copy; @m was zeroed before the first one */
void ufs_attr_merge_add(struct ufs_attr_merge *m, unsigned branch, const struct statx *st);

/** ufs_attr_merge_end() - The result of at least one copy */
void ufs_attr_merge_end(const struct ufs *fs, const struct ufs_attr_merge *m,
			struct fuse_attr *ret);

/** ufs_attr_found() - Attributes of what ufs_find() found */
void ufs_attr_found(const struct ufs *fs, const struct ufs_finds *f, struct fuse_attr *ret);

/** ufs_attr_node() - Attributes of a node; @fh_fd is an open descriptor of it, or -1.  0 or a
 * negative errno */
int ufs_attr_node(struct ufs *fs, struct ufs_node *node, int fh_fd, struct fuse_attr *ret,
		  struct statx_timestamp *ret_btime);
