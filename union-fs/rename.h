/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Renaming, so that a crash at any moment leaves the old or the new. */

#include "union-fs/dev.h"
#include "union-fs/node.h"
#include "union-fs/view.h"

/**
 * ufs_rename() - Rename
 * @w:		Worker
 * @from, @name: What
 * @to, @new_name: To what
 * @flags:	0, RENAME_NOREPLACE or RENAME_EXCHANGE
 *
 * Return: 0; -EXDEV (the branches do not allow it: programs copy then); -EINVAL (other flags, or an
 * exchange between branches); another negative errno
 */
int ufs_rename(struct ufs_worker *w, struct ufs_node *from, const char *name, struct ufs_node *to,
	       const char *new_name, unsigned flags);

/* Between rename.c and rename_dir.c */

/** struct ufs_move - a rename while it is made */
struct ufs_move {
	struct ufs_worker *w;
	struct ufs *fs;
	struct ufs_node *from, *to;
	const char *name, *new_name;
	unsigned flags;
	struct ufs_view from_v, to_v;
	int *src, *dst; /* for each branch: S_IFMT bits of what has the name there; 0: nothing */
	int source, target; /* lowest branch that has the name: what shows; -1: none */
	bool linked;        /* the new name is a second link so far, and hidden */
};

/** ufs_move_survey() - Look (again) at what the branches have; 0 or a negative errno */
int ufs_move_survey(struct ufs_move *m);

/** ufs_move_clone_to() - Make sure that the target's directory exists on a branch, and look again.
 * Under fs->tree if @locked */
int ufs_move_clone_to(struct ufs_move *m, unsigned branch, bool locked);

/** ufs_rename_dir() - Rename a directory; under fs->tree, surveyed */
int ufs_rename_dir(struct ufs_move *m);

/**
 * ufs_rename_recover() - Complete a rename of a directory that was interrupted
 * @fs:		Union that nobody uses yet
 *
 * Return: 0 or a negative errno
 */
int ufs_rename_recover(struct ufs *fs, struct uc_err *err);
