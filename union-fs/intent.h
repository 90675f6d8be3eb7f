/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a crash must not leave half done: a directory's rename on several branches.
 *
 * The intent is a file beside union/ of one branch, on disk before the first branch is
 * touched and removed, on disk, after the last one is synced.  At the next start an
 * intent that is found is carried out to its end.  Only branches with a union/ have one.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"
#include "union-fs/ufs.h"

#define UFS_INTENT_FILE ".union-rename.json"

/** struct ufs_intent_branch - what is to be done on one branch */
struct ufs_intent_branch {
	unsigned branch;
	ino_t ino; /* of the directory that is renamed there; 0: the empty target is removed there
		    */
};

/** struct ufs_intent - a rename of a directory */
struct ufs_intent {
	char *from, *to;                  /* paths from the root, without leading '/'; owned */
	struct ufs_intent_branch *branch; /* owned */
	size_t n;
};

/** ufs_intent_done() - Release; a zeroed one is allowed */
void ufs_intent_done(struct ufs_intent *intent);

#define cleanup_intent __attribute__((cleanup(ufs_intent_done)))

/** ufs_intent_store() - Write an intent, durably; 0 or a negative errno */
int ufs_intent_store(int home_fd, const struct ufs_intent *intent);

/** ufs_intent_load() - Read one; 0, -ENOENT, -EUCLEAN (damaged), another negative errno */
int ufs_intent_load(int home_fd, unsigned n_branches, struct ufs_intent *ret, struct uc_err *err);

/** ufs_intent_remove() - Remove it, durably; 0 or a negative errno */
int ufs_intent_remove(int home_fd);

/** ufs_intent_escape() - A path with everything but letters, digits and ._-/ as %XX; NULL where
 * memory ran out */
char *ufs_intent_escape(const char *path);

/** ufs_intent_unescape() - The reverse; NULL where memory ran out or it is not such a path */
char *ufs_intent_unescape(const char *text);
