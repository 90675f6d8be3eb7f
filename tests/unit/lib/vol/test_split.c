/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/base/size.h"
#include "lib/vol/split.h"

#define U ((uint64_t)UC_BRANCH_UNIT)

static struct uc_split plan(const struct uc_split_request *q)
{
	struct uc_split s = { 0 };
	struct uc_err err = { 0 };

	if (uc_split_plan(q, &s, &err) < 0)
		fail_msg("%s", err.msg);
	return s;
}

/* What the header promises of every split. */
static void check(const struct uc_split_request *q, const struct uc_split *s)
{
	uint64_t sum = 0;

	assert_true(s->n >= q->branches);
	assert_true(s->n <= UC_BRANCHES_MAX);
	for (uint64_t i = 0; i < s->n; i++) {
		uint64_t size = uc_split_branch_size(s, i);

		assert_int_equal(size % U, 0);
		assert_true(size > 0);
		assert_true(size >= q->min_branch_size);
		assert_true(!q->max_branch_size || size <= q->max_branch_size);
		sum += size;
	}
	assert_int_equal(sum, s->capacity);
	assert_true(s->capacity <= INT64_MAX);
	assert_true(s->capacity >= q->required);
	assert_true(!q->required || s->capacity - q->required < U);
	assert_true(!q->limit || s->capacity <= q->limit);
	/* No fewer branches would do. */
	if (s->n > q->branches)
		assert_true((s->n - 1) * (q->max_branch_size / U * U) < s->capacity);
}

static void striped_branches_are_equal_and_of_whole_stripes(void **state)
{
	(void)state;
	for (uint64_t n = 1; n <= 7; n++)
		for (uint64_t stripe = 4096; stripe <= 1 << 20; stripe *= 4)
			for (uint64_t required = 1; required < UINT64_C(1) << 40;
			     required = required * 3 + 4095) {
				struct uc_split_request q = { .required = required,
							      .branches = n,
							      .stripe_size = stripe };
				struct uc_split s = plan(&q);

				assert_int_equal(s.n, n);
				assert_int_equal(s.size, s.last);
				assert_int_equal(s.size % stripe, 0);
				assert_int_equal(s.capacity, s.size * n);
				assert_true(s.capacity >= required);
				assert_true(s.capacity - required < n * stripe);
			}
}

static void stripes_keep_within_the_limits(void **state)
{
	const uint64_t stripe = 1 << 20;
	struct uc_split s = { 0 };
	struct uc_err err = { 0 };

	(void)state;
	/* no branch above the maximum, in whole stripes */
	s = plan(&(struct uc_split_request){ .required = 10 * stripe,
					     .branches = 2,
					     .max_branch_size = 3 * stripe + 5 * U,
					     .stripe_size = stripe });
	assert_int_equal(s.n, 4);
	assert_int_equal(s.size, 3 * stripe);
	/* no wish but a limit: as many whole stripes as there is room for */
	s = plan(&(struct uc_split_request){ .default_size = 100 * stripe,
					     .limit = 9 * stripe,
					     .branches = 2,
					     .stripe_size = stripe });
	assert_int_equal(s.capacity, 8 * stripe);
	assert_int_equal(uc_split_plan(&(struct uc_split_request){ .required = 9 * stripe,
								   .limit = 9 * stripe,
								   .branches = 2,
								   .stripe_size = stripe },
				       &s, &err),
			 -ERANGE);
	assert_non_null(strstr(err.msg, "limit_bytes"));
	assert_int_equal(uc_split_plan(&(struct uc_split_request){ .required = stripe,
								   .branches = 1,
								   .max_branch_size = stripe - U,
								   .stripe_size = stripe },
				       &s, &err),
			 -ERANGE);
	assert_non_null(strstr(err.msg, "maxBranchSize"));
}

static void sizes_are_split_as_the_table_says(void **state)
{
	static const struct {
		struct uc_split_request q;
		uint64_t n, size, last;
	} rows[] = {
		/* the remainder goes to the last branch */
		{ { .required = 10 * U, .branches = 2 }, 2, 5 * U, 5 * U },
		{ { .required = 11 * U, .branches = 2 }, 2, 5 * U, 6 * U },
		{ { .required = 11 * U, .branches = 3 }, 3, 3 * U, 5 * U },
		{ { .required = 10 * U, .branches = 1 }, 1, 10 * U, 10 * U },
		/* not a multiple: rounded up, and no more */
		{ { .required = 10 * U + 1, .branches = 2 }, 2, 5 * U, 6 * U },
		{ { .required = 11 * U - 1, .branches = 2 }, 2, 5 * U, 6 * U },
		/* a maximum makes more branches, and keeps the last one in bounds too */
		{ { .required = 10 * U, .branches = 1, .max_branch_size = 5 * U },
		  2,
		  5 * U,
		  5 * U },
		{ { .required = 11 * U, .branches = 1, .max_branch_size = 5 * U },
		  3,
		  3 * U,
		  5 * U },
		{ { .required = 11 * U, .branches = 1, .max_branch_size = 4 * U },
		  3,
		  4 * U,
		  3 * U },
		{ { .required = 10 * U, .branches = 1, .max_branch_size = 5 * U + 4095 },
		  2,
		  5 * U,
		  5 * U },
		{ { .required = 10 * U, .branches = 4, .max_branch_size = 5 * U },
		  4,
		  2 * U,
		  4 * U },
		/* no wish: the default, at least what the branches need, fitted to the limit */
		{ { .branches = 2, .default_size = 10 * U }, 2, 5 * U, 5 * U },
		{ { .branches = 2, .default_size = 10 * U, .min_branch_size = 7 * U },
		  2,
		  7 * U,
		  7 * U },
		{ { .branches = 2, .default_size = 10 * U, .limit = 8 * U + 5 }, 2, 4 * U, 4 * U },
		{ { .branches = 2, .default_size = 10 * U, .limit = 20 * U }, 2, 5 * U, 5 * U },
		/* exactly at the limits */
		{ { .required = 10 * U,
		    .limit = 10 * U,
		    .branches = 2,
		    .min_branch_size = 5 * U,
		    .max_branch_size = 5 * U },
		  2,
		  5 * U,
		  5 * U },
		{ { .required = 1024 * U, .branches = 1024 }, 1024, U, U },
		{ { .required = 1024 * U, .branches = 1, .max_branch_size = U }, 1024, U, U },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_split s = plan(&rows[i].q);

		check(&rows[i].q, &s);
		assert_int_equal(s.n, rows[i].n);
		assert_int_equal(s.size, rows[i].size);
		assert_int_equal(s.last, rows[i].last);
	}
}

static void the_last_branch_has_the_last_size(void **state)
{
	struct uc_split s = { .capacity = 9, .n = 3, .size = 2, .last = 5 };
	struct uc_split one = { .capacity = 5, .n = 1, .size = 2, .last = 5 };

	(void)state;
	assert_int_equal(uc_split_branch_size(&s, 0), 2);
	assert_int_equal(uc_split_branch_size(&s, 1), 2);
	assert_int_equal(uc_split_branch_size(&s, 2), 5);
	assert_int_equal(uc_split_branch_size(&one, 0), 5);
}

static void what_is_impossible_is_refused_with_the_numbers(void **state)
{
	static const struct {
		struct uc_split_request q;
		const char *reason;
	} rows[] = {
		{ { .required = 11 * U, .limit = 10 * U, .branches = 1 },
		  "required_bytes 45056 is above limit_bytes 40960" },
		{ { .required = 10 * U + 1, .limit = 10 * U + 2, .branches = 1 },
		  "limit_bytes 40962 leaves no room for 45056 bytes" },
		{ { .required = 1, .limit = 4095, .branches = 1 }, "limit_bytes 4095" },
		{ { .required = 10 * U, .branches = 0 }, "branches 0" },
		{ { .required = 10 * U, .branches = 1025 }, "branches 1025" },
		{ { .required = 10 * U, .branches = UINT64_MAX }, "branches 18446744073709551615" },
		{ { .required = 10 * U, .branches = 1, .max_branch_size = 4095 },
		  "maxBranchSize 4095" },
		{ { .required = 10 * U,
		    .branches = 1,
		    .max_branch_size = 3 * U,
		    .min_branch_size = 4 * U },
		  "maxBranchSize 12288" },
		{ { .required = 10 * U, .branches = 3, .min_branch_size = 4 * U }, "leave 12288" },
		{ { .required = 1, .branches = 2, .min_branch_size = 4 * U },
		  "the filesystem needs 16384" },
		{ { .required = 9 * U,
		    .branches = 1,
		    .max_branch_size = 5 * U,
		    .min_branch_size = 5 * U },
		  "leave 16384" },
		{ { .branches = 2,
		    .default_size = 100 * U,
		    .limit = 7 * U,
		    .min_branch_size = 4 * U },
		  "leave 12288" },
		{ { .branches = 1, .default_size = 100 * U, .limit = 1, .min_branch_size = 4 * U },
		  "leave 0" },
		{ { .required = 1025 * U, .branches = 1, .max_branch_size = U }, "1025 branches" },
		{ { .required = INT64_MAX - 4095, .branches = 1, .max_branch_size = UC_GIB },
		  "more than 1024" },
		{ { .required = UINT64_C(1) << 63, .branches = 1 }, "2^63" },
		{ { .required = UINT64_MAX, .branches = 1 }, "2^63" },
		{ { .required = 1, .limit = UINT64_C(1) << 63, .branches = 1 }, "2^63" },
		/* would be 2^63 when it is rounded up */
		{ { .required = INT64_MAX, .branches = 1 }, "2^63" },
		{ { .required = INT64_MAX - 4094, .branches = 4 }, "2^63" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_split s = { .n = 99 };
		struct uc_err err = { 0 };

		assert_int_equal(uc_split_plan(&rows[i].q, &s, &err), -ERANGE);
		assert_int_equal(s.n, 99);
		if (!strstr(err.msg, rows[i].reason))
			fail_msg("`%s` lacks `%s`", err.msg, rows[i].reason);
	}
}

static void the_largest_volume_is_split_without_overflow(void **state)
{
	struct uc_split_request q = { .required = INT64_MAX - 4095, .branches = 1 };
	struct uc_split s;

	(void)state;
	for (; q.branches <= UC_BRANCHES_MAX; q.branches++) {
		s = plan(&q);
		check(&q, &s);
	}
	q.branches = 1;
	q.max_branch_size = INT64_MAX;
	s = plan(&q);
	assert_int_equal(s.n, 1);
	check(&q, &s);
}

/* ---------------------------------------------------------------- properties */

static uint64_t seed;

static uint64_t next(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* A number of any magnitude below 2^bits, often near a multiple of the unit. */
static uint64_t any(unsigned bits)
{
	uint64_t v = next() & ((UINT64_C(1) << (1 + next() % bits)) - 1);

	switch (next() % 4) {
	case 0:
		return v / U * U;
	case 1:
		return v / U * U + 1;
	case 2:
		return v >= U ? v / U * U - 1 : v;
	default:
		return v;
	}
}

/*
 * Whether some split into equal branches and a last one keeps every promise, found
 * by trying: what plan() refuses must be impossible by its own rule.
 */
static bool is_possible(const struct uc_split_request *q, uint64_t blocks)
{
	uint64_t max = q->max_branch_size ? q->max_branch_size / U : INT64_MAX;
	uint64_t min = (q->min_branch_size + U - 1) / U;
	uint64_t n = q->branches;

	if (blocks > n * max && max < INT64_MAX / 1024)
		n = (blocks + max - 1) / max;
	if (n > UC_BRANCHES_MAX || (blocks * U > INT64_MAX) || (q->limit && blocks * U > q->limit))
		return false;
	for (uint64_t more = 0; more < 2; more++) {
		uint64_t each = blocks / n + more;

		if (each * (n - 1) > blocks)
			continue;
		if (each >= min && each <= max && each > 0 && blocks - each * (n - 1) >= min &&
		    blocks - each * (n - 1) <= max && blocks - each * (n - 1) > 0)
			return true;
	}
	return false;
}

static void random_requests_keep_every_promise(void **state)
{
	unsigned granted = 0, refused = 0;

	(void)state;
	seed = 42;
	for (int i = 0; i < 20000; i++) {
		struct uc_split_request q = {
			.required = 1 + any(44),
			.limit = next() % 2 ? any(45) : 0,
			.branches = 1 + next() % (next() % 4 ? 8 : 1024),
			.max_branch_size = next() % 2 ? U + any(38) : 0,
			.min_branch_size = U * (1 + (next() & 0xfff) % (1 + (next() & 0xfff))),
		};
		struct uc_split s = { 0 };
		struct uc_err err = { 0 };
		int r;

		if (q.limit && next() % 4)
			q.limit = q.required + next() % (2 * U);
		if (q.max_branch_size && next() % 2)
			q.max_branch_size += q.min_branch_size;
		r = uc_split_plan(&q, &s, &err);
		if (r == 0) {
			granted++;
			check(&q, &s);
			continue;
		}
		refused++;
		assert_int_equal(r, -ERANGE);
		assert_true(*err.msg);
		if ((q.limit && q.required > q.limit) ||
		    (q.max_branch_size && q.max_branch_size < q.min_branch_size))
			continue;
		if (is_possible(&q, (q.required + U - 1) / U))
			fail_msg("possible, but: %s", err.msg);
	}
	/* Both kinds are there. */
	assert_true(granted > 4000);
	assert_true(refused > 4000);
}

static void requests_without_a_wish_are_fitted_to_the_limit(void **state)
{
	(void)state;
	seed = 7;
	for (int i = 0; i < 5000; i++) {
		struct uc_split_request q = {
			.default_size = UC_GIB,
			.limit = next() % 3 ? 1 + any(34) : 0,
			.branches = 1 + next() % 16,
			.min_branch_size = U * (1 + next() % 80000),
		};
		uint64_t wanted = q.branches * q.min_branch_size;
		struct uc_split s = { 0 };

		if (wanted < UC_GIB)
			wanted = UC_GIB;
		if (uc_split_plan(&q, &s, NULL) < 0) {
			assert_true(q.limit && q.limit / U / q.branches * U < q.min_branch_size);
			continue;
		}
		check(&q, &s);
		if (q.limit && q.limit < wanted)
			assert_int_equal(s.capacity, q.limit / U * U);
		else
			assert_int_equal(s.capacity, wanted);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(striped_branches_are_equal_and_of_whole_stripes),
		cmocka_unit_test(stripes_keep_within_the_limits),
		cmocka_unit_test(sizes_are_split_as_the_table_says),
		cmocka_unit_test(the_last_branch_has_the_last_size),
		cmocka_unit_test(what_is_impossible_is_refused_with_the_numbers),
		cmocka_unit_test(the_largest_volume_is_split_without_overflow),
		cmocka_unit_test(random_requests_keep_every_promise),
		cmocka_unit_test(requests_without_a_wish_are_fitted_to_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
