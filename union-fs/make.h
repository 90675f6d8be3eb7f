/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Making something new: on which branch, in which copy of the directory, as whom. */

#include "union-fs/dev.h"
#include "union-fs/node.h"
#include "union-fs/view.h"

/** struct ufs_making - what to make */
struct ufs_making {
	/* Makes it: a descriptor of it if it is open then, else 0; or a negative errno. */
	int (*fn)(const struct ufs_making *m, int dirfd, const char *name);
	bool nameless; /* it gets no name (O_TMPFILE) */
	bool is_dir;
	mode_t mode;
	uint32_t umask;
	dev_t rdev;
	int flags;          /* of open() */
	const char *target; /* of a symlink */
};

/** struct ufs_made - what was made */
struct ufs_made {
	struct ufs_finds f; /* the one object */
	int fd;             /* open, if fn opens it; else -1; owned */
};

/** ufs_made_done() - Release; a zeroed one with fd -1 is allowed */
void ufs_made_done(struct ufs_made *made);

#define cleanup_made __attribute__((cleanup(ufs_made_done)))
#define UFS_MADE_NONE    \
	{                \
		.fd = -1 \
	}

/**
 * ufs_make() - Make something on the branch that the policy chooses
 * @req:	For whom
 * @parent:	Directory
 * @name:	Name in it
 * @m:		What
 * @ret:	Result, UFS_MADE_NONE before; release with ufs_made_done(), also on failure
 *
 * A branch that turns out to be full, read-only or broken gives way to the next best, unless it
 * may have the name.
 *
 * Return: 0; -EEXIST; -ENOSPC (no branch has room, or may be used); another negative errno
 */
int ufs_make(struct ufs_req *req, struct ufs_node *parent, const char *name,
	     const struct ufs_making *m, struct ufs_made *ret);

/**
 * ufs_copy_for_new() - Find the copy of a directory that something new goes into
 * @w:		Worker
 * @dir:	Directory
 * @branch:	Branch; the directory is cloned there if it must be
 * @v:		The directory, open; looked at again if it is cloned
 * @ret_pin:	The copy, in @v, fit to inherit from
 *
 * Return: 0; 1 (@v was looked at again: it may have names that it did not have); a negative errno
 * (-ENOTDIR: something else has the directory's name on that branch)
 */
int ufs_copy_for_new(struct ufs_worker *w, struct ufs_node *dir, unsigned branch,
		     struct ufs_view *v, const struct ufs_pin **ret_pin);

/** ufs_check_absent() - 0 if a directory has no such name, -EEXIST, or another negative errno */
int ufs_check_absent(const struct ufs_view *v, const char *name);
