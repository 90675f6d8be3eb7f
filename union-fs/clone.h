/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A directory's copy on one more branch, and what keeps copies alike and on disk. */

#include <errno.h>
#include <stdbool.h>

#include "union-fs/dev.h"
#include "union-fs/node.h"
#include "union-fs/view.h"

/**
 * ufs_clone() - Make sure that a directory exists on a branch, and all directories above it
 * @w:		Worker
 * @dir:	Directory
 * @branch:	Where
 *
 * Takes fs->tree.
 *
 * Return: 0; -ENOENT (the directory was removed); -ENOTDIR (something else has the name there); another
 * negative errno
 */
int ufs_clone(struct ufs_worker *w, struct ufs_node *dir, unsigned branch);

/** ufs_clone_locked() - The same under fs->tree */
int ufs_clone_locked(struct ufs_worker *w, struct ufs_node *dir, unsigned branch);

/** ufs_clone_is_impossible() - Whether a failure of these means that the branch cannot have the
 * directory: something else has its name, or there is no room.  What was to go there may be copied */
static inline bool ufs_clone_is_impossible(int r)
{
	return r == -ENOTDIR || r == -ENOSPC || r == -EDQUOT;
}

/**
 * ufs_clone_make() - Make a directory that looks like another one
 * @parent:	Where
 * @name:	Name
 * @from:	A directory to take owner, mode, attributes and times from (O_PATH)
 * @ret:	What was made, or what is there
 *
 * Return: 0; 1 (there is a directory of that name); -ENOTDIR (there is something else); another
 * negative errno
 */
int ufs_clone_make(struct ufs_worker *w, const struct ufs_pin *parent, const char *name, int from,
		   struct ufs_found *ret);

/**
 * ufs_align() - Make sure that a copy looks like the one that speaks for the directory
 * @v:		The directory
 * @pin:	One of its copies
 *
 * What is made in a copy inherits from it: group, default ACL.  A copy that an
 * interruption has left behind is mended here, before it is first used.
 *
 * Return: 0 or a negative errno
 */
int ufs_align(struct ufs_worker *w, const struct ufs_view *v, const struct ufs_pin *pin);

/** ufs_unalign() - The copies may look different from now on, as a change of all of them has failed */
void ufs_unalign(const struct ufs_view *v);

/** ufs_sync_fd() - Write the directory that @path_fd (O_PATH) has open to disk; 0 or a negative errno */
int ufs_sync_fd(int path_fd);

/**
 * ufs_sync_copy() - Write a copy of a directory to disk, and the entries above it that we have made
 * @dir:	Directory
 * @pin:	Its copy
 *
 * Takes fs->tree if there is something to be done above it.
 *
 * Return: 0 or a negative errno
 */
int ufs_sync_copy(struct ufs_node *dir, const struct ufs_pin *pin);

/** ufs_sync_copy_locked() - The same under fs->tree */
int ufs_sync_copy_locked(struct ufs_node *dir, const struct ufs_pin *pin);
