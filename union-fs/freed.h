/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Names that were freed: removed, or moved away, perhaps not on disk yet.
 *
 * One filesystem keeps the order of what is done in it over a power cut; two do not.  When a name
 * that was freed on one branch is used again on another, the new file could be on disk, and the
 * old one still be there, and hide it.  So the first branch is brought up to date before.
 */

#include "union-fs/ufs.h"
#include "union-fs/view.h"

/** ufs_freed_init() - Nothing is freed yet on any branch; 0 or -ENOMEM */
int ufs_freed_init(struct ufs *fs);

/** ufs_freed_done() - Release it; a union whose ufs_freed_init() failed or was not called is allowed
 */
void ufs_freed_done(struct ufs *fs);

/** ufs_freed_note() - A name was removed from a copy of a directory, or moved away */
void ufs_freed_note(struct ufs *fs, const struct ufs_pin *pin, const char *name);

/** ufs_freed_has() - Whether a name may have been freed in that copy, and not be on disk */
bool ufs_freed_has(struct ufs *fs, const struct ufs_pin *pin, const char *name);

/**
 * ufs_freed_settle() - Before a name is made on a branch, or what hides others of it is removed
 * @v:		The directory
 * @branch:	Where; what was done there before is on disk before
 * @name:	Name in it
 *
 * Return: 0 or a negative errno
 */
int ufs_freed_settle(const struct ufs_view *v, unsigned branch, const char *name);

/**
 * ufs_freed_relieve() - Bring branches up to date of which many names are remembered
 *
 * For a thread that nobody waits for.  Does nothing nearly always.
 */
void ufs_freed_relieve(struct ufs *fs);
