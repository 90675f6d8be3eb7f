/* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "union-fs/policy.h"

/* What a new file may hope for. */
static uint64_t part(const struct ufs_candidate *c)
{
	return c->space / ((uint64_t)c->filling + 1);
}

static int compare(const void *pa, const void *pb)
{
	const struct ufs_candidate *a = pa, *b = pb;

	if (a->avoided != b->avoided)
		return a->avoided ? 1 : -1;
	if (part(a) != part(b))
		return part(a) > part(b) ? -1 : 1;
	return a->branch < b->branch ? -1 : 1;
}

static bool may(enum uc_policy policy, const struct ufs_candidate *c)
{
	if (c->mode != UFS_BRANCH_RW || c->space < c->min_free)
		return false;
	return policy != UC_POLICY_EPMFS || c->has_parent;
}

size_t ufs_policy_order(enum uc_policy policy, struct ufs_candidate *c, size_t n)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		if (may(policy, &c[i]))
			c[k++] = c[i];
	if (k > 1)
		qsort(c, k, sizeof(*c), compare);
	return k;
}
