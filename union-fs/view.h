/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A directory as one request sees it: its copies, each with an open descriptor.
 *
 * Copies that come or go meanwhile do not change a view.  Descriptors are shared
 * with the directory and kept open for later; the least used ones are closed
 * when there are too many, and opened again by handle.
 */

#include "union-fs/node.h"
#include "union-fs/ufs.h"

enum {
	UFS_VIEW_INLINE = 8,
};

/** struct ufs_pin - one copy */
struct ufs_pin {
	struct ufs_lower *lower;
	int fd; /* O_PATH; borrowed from @lower */
	unsigned branch;
};

/** struct ufs_view - the copies of a directory in the order of branches */
struct ufs_view {
	struct ufs *fs;
	struct ufs_pin *pin;
	unsigned n;
	uint64_t seq; /* fs->tree_seq when it was opened */
	int error;    /* why a copy that exists is not among them; 0: all are */
	struct ufs_pin some[UFS_VIEW_INLINE];
};

/**
 * ufs_view_open() - Look at a directory
 * @node:	Directory (the caller's reference keeps it)
 * @ret:	Result, zeroed before; release with ufs_view_close(), also on failure
 *
 * Return: 0; -ESTALE (no copy is left); -ENOTDIR; another negative errno
 */
int ufs_view_open(struct ufs *fs, struct ufs_node *node, struct ufs_view *ret);

/** ufs_view_close() - Let go of the copies; a zeroed view is allowed */
void ufs_view_close(struct ufs_view *v);

#define cleanup_view __attribute__((cleanup(ufs_view_close)))

/** ufs_view_at() - The copy on a branch, or NULL */
const struct ufs_pin *ufs_view_at(const struct ufs_view *v, unsigned branch);

/** ufs_view_identity() - The copy that speaks for the directory: the oldest one */
const struct ufs_pin *ufs_view_identity(const struct ufs_view *v);
