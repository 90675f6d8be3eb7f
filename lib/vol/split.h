/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How one size becomes the sizes of N branches. */

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum {
	UC_BRANCHES_MAX = 1024,
	UC_BRANCH_UNIT = 4096, /* every branch is a multiple: the block of the filesystems and of
				  direct I/O */
};

/** struct uc_split_request - what is asked for; sizes in bytes */
struct uc_split_request {
	uint64_t required;        /* the volume has at least this much; 0: no wish */
	uint64_t limit;           /* and at most this much; 0: no limit */
	uint64_t default_size;    /* where there is no wish */
	uint64_t branches;        /* at least so many branches, ≥ 1 */
	uint64_t max_branch_size; /* and so many that none is larger; 0: no limit */
	uint64_t min_branch_size; /* the filesystem's smallest */
	uint64_t stripe_size;     /* all branches are equal, and multiples of it; 0: not striped */
};

/** struct uc_split - the result */
struct uc_split {
	uint64_t capacity; /* sum of the branches */
	uint64_t n;        /* number of branches */
	uint64_t size;     /* of each branch but the last */
	uint64_t last;     /* of the last one: it gets the remainder of the division */
};

/**
 * uc_split_plan() - Split a volume into branches
 * @request:	What is asked for
 * @ret_split:	Result; untouched on failure
 * @err:	Error detail with the numbers, or NULL
 *
 * Nothing is lost to rounding: capacity ≥ required, capacity − required < UC_BRANCH_UNIT (striped:
 * < N stripes).
 * (Except that the volume's smallest size is @branches times @min_branch_size where there is no
 * wish.)
 *
 * Return: 0, or -ERANGE (too small for the filesystem, above the limit, too many branches)
 */
int uc_split_plan(const struct uc_split_request *request, struct uc_split *ret_split,
		  struct uc_err *err);

/** uc_split_branch_size() - Size of branch @i (< split->n) */
uint64_t uc_split_branch_size(const struct uc_split *split, uint64_t i);
