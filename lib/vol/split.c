/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>

#include "lib/base/size.h"
#include "lib/vol/split.h"

uint64_t uc_split_branch_size(const struct uc_split *split, uint64_t i)
{
	return i + 1 == split->n ? split->last : split->size;
}

static uint64_t unit(const struct uc_split_request *q)
{
	return q->stripe_size ? q->stripe_size : UC_BRANCH_UNIT;
}

/* The smallest N ≥ branches for which no branch, the last one included, exceeds the maximum. */
static uint64_t count(const struct uc_split_request *q, uint64_t total)
{
	uint64_t max = q->max_branch_size - q->max_branch_size % unit(q);
	uint64_t n = q->branches;

	if (max && total / max + (total % max != 0) > n)
		n = total / max + (total % max != 0);
	return n;
}

/*
 * The volume is `blocks` units.  Branches get ⌊blocks / n⌋ units, the last one
 * also the remainder (< n units): with a maximum that remainder may not fit, then
 * each of the others takes one more and the last one what is left.
 */
static void divide(const struct uc_split_request *q, uint64_t total, struct uc_split *s)
{
	uint64_t blocks = total / UC_BRANCH_UNIT, n = s->n, each = blocks / n;

	if (q->stripe_size) {
		s->size = s->last = uc_round_up(total / n + (total % n != 0), q->stripe_size);
		s->capacity = s->size * n;
		return;
	}
	s->size = each * UC_BRANCH_UNIT;
	s->last = total - s->size * (n - 1);
	if (q->max_branch_size && s->last > q->max_branch_size) {
		s->size = (each + 1) * UC_BRANCH_UNIT;
		s->last = total > s->size * (n - 1) ? total - s->size * (n - 1) : 0;
	}
	s->capacity = total;
}

static int check_request(const struct uc_split_request *q, struct uc_err *err)
{
	if (q->required > INT64_MAX || q->limit > INT64_MAX)
		return uc_fail_as(err, ERANGE, 0, "capacity_range exceeds 2^63 - 1 bytes");
	if (q->limit && q->required > q->limit)
		return uc_fail_as(err, ERANGE, 0,
				  "capacity_range.required_bytes %llu is above limit_bytes %llu",
				  (unsigned long long)q->required, (unsigned long long)q->limit);
	if (q->branches < 1 || q->branches > UC_BRANCHES_MAX)
		return uc_fail_as(err, ERANGE, 0, "branches %llu is not within 1…%d",
				  (unsigned long long)q->branches, UC_BRANCHES_MAX);
	if (q->max_branch_size &&
	    (q->max_branch_size < q->min_branch_size || q->max_branch_size < unit(q)))
		return uc_fail_as(err, ERANGE, 0,
				  "maxBranchSize %llu is less than the filesystem's smallest, %llu",
				  (unsigned long long)q->max_branch_size,
				  (unsigned long long)(q->min_branch_size > unit(q)
							       ? q->min_branch_size
							       : unit(q)));
	return 0;
}

/* The volume's size: what is required or, where nothing is, the default fitted to the limits. */
static uint64_t total_size(const struct uc_split_request *q)
{
	uint64_t step = q->stripe_size ? q->stripe_size * q->branches : UC_BRANCH_UNIT;
	uint64_t total = q->required;

	if (!total) {
		total = q->default_size;
		if (total < q->branches * q->min_branch_size)
			total = q->branches * q->min_branch_size;
		if (q->limit && total > q->limit)
			total = q->limit - q->limit % step;
	}
	return uc_round_up(total, UC_BRANCH_UNIT);
}

int uc_split_plan(const struct uc_split_request *q, struct uc_split *ret_split, struct uc_err *err)
{
	struct uc_split s = { 0 };
	uint64_t total, smallest;
	int r;

	r = check_request(q, err);
	if (r < 0)
		return r;
	total = total_size(q);
	if (total > INT64_MAX) /* by rounding */
		return uc_fail_as(err, ERANGE, 0, "%llu bytes, in multiples of %d, exceed 2^63 - 1",
				  (unsigned long long)q->required, UC_BRANCH_UNIT);
	if (q->limit && total > q->limit)
		return uc_fail_as(err, ERANGE, 0,
				  "capacity_range.limit_bytes %llu leaves no room for %llu bytes "
				  "in multiples of %d",
				  (unsigned long long)q->limit, (unsigned long long)total,
				  UC_BRANCH_UNIT);
	s.n = count(q, total);
	if (s.n > UC_BRANCHES_MAX)
		return uc_fail_as(err, ERANGE, 0,
				  "%llu bytes in branches of at most %llu would be %llu branches, "
				  "more than %d",
				  (unsigned long long)total, (unsigned long long)q->max_branch_size,
				  (unsigned long long)s.n, UC_BRANCHES_MAX);
	divide(q, total, &s);
	if (s.capacity > INT64_MAX || (q->limit && s.capacity > q->limit))
		return uc_fail_as(err, ERANGE, 0,
				  "%llu bytes in %llu branches of whole stripes of %llu are %llu, "
				  "above capacity_range.limit_bytes",
				  (unsigned long long)total, (unsigned long long)s.n,
				  (unsigned long long)q->stripe_size,
				  (unsigned long long)s.capacity);
	smallest = s.size < s.last ? s.size : s.last;
	if (smallest < q->min_branch_size)
		return uc_fail_as(err, ERANGE, 0,
				  "%llu bytes in %llu branches leave %llu for a branch; the "
				  "filesystem needs %llu",
				  (unsigned long long)total, (unsigned long long)s.n,
				  (unsigned long long)smallest,
				  (unsigned long long)q->min_branch_size);
	*ret_split = s;
	return 0;
}
