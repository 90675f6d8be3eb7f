/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A branch's identity, on the branch itself.
 *
 * The filesystem (or directory) of a branch holds two entries of ours:
 *
 *     union.json   {"version": 1, "volumeId": "v1", "index": 0, "branches": 2, "uuid": "…"}
 *     union/       the branch's data: what the union merges
 *
 * so lost+found never shows, a branch that is not mounted cannot be mistaken for
 * an empty one, and identity and order are checked at every mount.
 *
 * union/ is made first and union.json is the commit: a directory that holds
 * nothing but an empty union/ is one that a crash has left half-initialised,
 * and counts as empty.  Anything else without union.json is somebody else's
 * and is refused by name.
 */

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

#define UC_BRANCH_ID_FILE "union.json"
#define UC_BRANCH_DATA "union"

/** struct uc_branch_id - which branch of which volume */
struct uc_branch_id {
	char *volume_id; /* owned */
	char *uuid; /* of the filesystem; NULL for a directory on somebody's filesystem; owned */
	uint32_t index;    /* 0…branches-1 */
	uint32_t branches; /* how many the volume has */
};

/** uc_branch_id_done() - Release; a zeroed one is allowed */
void uc_branch_id_done(struct uc_branch_id *id);

#define cleanup_branch_id __attribute__((cleanup(uc_branch_id_done)))

/**
 * uc_branch_id_load() - Read union.json
 * @dirfd:	The branch's filesystem or directory (borrowed)
 * @ret_id:	Result; release with uc_branch_id_done().  Untouched on failure
 * @err:	Error detail, or NULL
 *
 * Return: 0, -ENOENT (there is none), -EUCLEAN (it is not valid), another negative errno
 */
int uc_branch_id_load(int dirfd, struct uc_branch_id *ret_id, struct uc_err *err);

/**
 * uc_branch_id_check() - Whether a branch is the one that is wanted
 * @want:	What the spec says
 * @have:	What the branch says
 *
 * Return: 0, or -EUCLEAN with an error that names both values
 */
int uc_branch_id_check(const struct uc_branch_id *want, const struct uc_branch_id *have,
		       struct uc_err *err);

/**
 * uc_branch_open() - Open a branch's data, and make it first if that is wanted
 * @dirfd:	The branch's filesystem or directory, open for reading (borrowed)
 * @want:	Which branch it must be (borrowed)
 * @initialise:	An empty filesystem may become the branch
 * @ret_fd:	Directory union/, open for reading (owned)
 * @err:	Error detail, or NULL
 *
 * Idempotent, and safe to be interrupted anywhere.
 *
 * Return: 0; -ENOENT (empty, and @initialise is not set); -ENOTEMPTY (holds something that is not
 * ours); -EUCLEAN (another branch, or a damaged one); another negative errno
 */
int uc_branch_open(int dirfd, const struct uc_branch_id *want, bool initialise, int *ret_fd,
		   struct uc_err *err);
