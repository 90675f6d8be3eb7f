/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which branch gets something new. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/vol/spec.h"
#include "union-fs/ufs.h"

/** struct ufs_candidate - a branch as the policy sees it */
struct ufs_candidate {
	unsigned branch;
	enum ufs_branch_mode mode;
	uint64_t space;    /* bytes that are free */
	uint64_t min_free; /* bytes that must be */
	unsigned filling;  /* new files that will take some of it */
	bool avoided;      /* it has failed a short time ago */
	bool has_parent;   /* the directory exists on it */
};

/**
 * ufs_policy_order() - Sort out and order the branches that may get something new
 * @c:		Candidates, in the order of branches; those that may are moved to the front, best
 * first
 * @n:		How many
 *
 * mfs: most space first.  epmfs: the same among those that have the parent directory.
 * A new file shares a branch's space with those that are being filled, in equal parts: its part
 * is what counts.  Of equals, the lower branch.  Those that have failed come last.
 *
 * Return: how many may
 */
size_t ufs_policy_order(enum uc_policy policy, struct ufs_candidate *c, size_t n);
