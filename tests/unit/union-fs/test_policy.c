/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/macros.h"
#include "union-fs/policy.h"

/* A branch: letters for its mode (w, r, n), then space, then "p" if it has the parent. */
struct row {
	enum ufs_branch_mode mode;
	uint64_t space, min_free;
	bool has_parent;
};

/* "2 0 1": who may get something new, best first. */
static const char *order(enum uc_policy policy, const struct row *rows, size_t n)
{
	static char text[256];
	struct ufs_candidate c[16];
	size_t k, at = 0;

	for (size_t i = 0; i < n; i++)
		c[i] = (struct ufs_candidate){
			.branch = (unsigned)i,
			.mode = rows[i].mode,
			.space = rows[i].space,
			.min_free = rows[i].min_free,
			.has_parent = rows[i].has_parent,
		};
	k = ufs_policy_order(policy, c, n);
	assert_true(k <= n);
	text[0] = '\0';
	for (size_t i = 0; i < k; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%u", i ? " " : "",
				       c[i].branch);
	return text;
}

#define ORDER(policy, ...)                                             \
	order(UC_POLICY_##policy, (const struct row[]){ __VA_ARGS__ }, \
	      sizeof((const struct row[]){ __VA_ARGS__ }) / sizeof(struct row))

#define RW UFS_BRANCH_RW
#define RO UFS_BRANCH_RO
#define NC UFS_BRANCH_NC

static void mfs_takes_the_branch_with_most_space(void **state)
{
	(void)state;
	assert_string_equal(
		ORDER(MFS, { RW, 10, 0, true }, { RW, 30, 0, true }, { RW, 20, 0, true }), "1 2 0");
	/* Whether or not it has the directory. */
	assert_string_equal(ORDER(MFS, { RW, 10, 0, true }, { RW, 30, 0, false }), "1 0");
}

static void epmfs_takes_only_branches_that_have_the_directory(void **state)
{
	(void)state;
	assert_string_equal(
		ORDER(EPMFS, { RW, 10, 0, true }, { RW, 30, 0, false }, { RW, 20, 0, true }),
		"2 0");
	assert_string_equal(ORDER(EPMFS, { RW, 10, 0, false }, { RW, 30, 0, false }), "");
	assert_string_equal(ORDER(EPMFS, { RO, 10, 0, true }, { RW, 30, 0, false }), "");
}

static void of_equals_the_lower_branch_comes_first(void **state)
{
	(void)state;
	assert_string_equal(ORDER(MFS, { RW, 5, 0, true }, { RW, 7, 0, true }, { RW, 5, 0, true },
				  { RW, 7, 0, true }),
			    "1 3 0 2");
	assert_string_equal(ORDER(MFS, { RW, 0, 0, true }, { RW, 0, 0, true }), "0 1");
}

static void files_that_are_being_filled_share_the_space(void **state)
{
	/* Parts of 10, 15, 0 and 12.  The minimum is what must be free, not what is shared. */
	struct ufs_candidate c[] = {
		{ .branch = 0, .space = 40, .filling = 3, .min_free = 40 },
		{ .branch = 1, .space = 30, .filling = 1 },
		{ .branch = 2, .space = 40, .filling = UINT_MAX },
		{ .branch = 3, .space = 12 },
	};

	(void)state;
	assert_int_equal(ufs_policy_order(UC_POLICY_MFS, c, 4), 4);
	assert_int_equal(c[0].branch, 1);
	assert_int_equal(c[1].branch, 3);
	assert_int_equal(c[2].branch, 0);
}

static void branches_that_have_failed_come_last(void **state)
{
	struct ufs_candidate c[] = {
		{ .branch = 0, .space = 30, .avoided = true },
		{ .branch = 1, .space = 10 },
		{ .branch = 2, .space = 40, .avoided = true },
	};

	(void)state;
	assert_int_equal(ufs_policy_order(UC_POLICY_MFS, c, 3), 3);
	assert_int_equal(c[0].branch, 1);
	assert_int_equal(c[1].branch, 2);
	assert_int_equal(c[2].branch, 0);
}

static void spaces_that_differ_in_high_bits_only_are_told_apart(void **state)
{
	(void)state;
	assert_string_equal(ORDER(MFS, { RW, 1, 0, true }, { RW, UINT64_C(1) << 32, 0, true },
				  { RW, UINT64_MAX, 0, true }),
			    "2 1 0");
}

static void branches_without_room_are_left_out(void **state)
{
	(void)state;
	/* Exactly the minimum is enough. */
	assert_string_equal(
		ORDER(MFS, { RW, 9, 10, true }, { RW, 10, 10, true }, { RW, 11, 10, true }), "2 1");
	/* Each branch has a minimum of its own. */
	assert_string_equal(ORDER(MFS, { RW, 100, 200, true }, { RW, 50, 0, true }), "1");
	assert_string_equal(ORDER(MFS, { RW, 9, 10, true }, { RW, 0, 1, true }), "");
}

static void read_only_and_no_create_branches_get_nothing(void **state)
{
	(void)state;
	assert_string_equal(
		ORDER(MFS, { RO, 100, 0, true }, { NC, 90, 0, true }, { RW, 1, 0, true }), "2");
	assert_string_equal(
		ORDER(EPMFS, { RO, 100, 0, true }, { NC, 90, 0, true }, { RW, 1, 0, true }), "2");
	assert_string_equal(ORDER(MFS, { RO, 100, 0, true }, { NC, 90, 0, true }), "");
}

static void no_branch_at_all_is_no_choice(void **state)
{
	(void)state;
	assert_int_equal(ufs_policy_order(UC_POLICY_MFS, NULL, 0), 0);
}

/* Whatever there is: the chosen ones may, are in order, and none is missing. */
static void any_set_of_branches_is_ordered(void **state)
{
	unsigned long long seed = 1;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		struct ufs_candidate c[12], all[12];
		enum uc_policy policy = round % 2 ? UC_POLICY_EPMFS : UC_POLICY_MFS;
		size_t may = 0, k;

		for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
			seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
			all[i] = c[i] = (struct ufs_candidate){
				.branch = i,
				.mode = (enum ufs_branch_mode)(seed >> 33) % 3,
				.space = (seed >> 40) % 8,
				.min_free = (seed >> 50) % 4,
				.has_parent = seed >> 60 & 1,
			};
			may += c[i].mode == UFS_BRANCH_RW && c[i].space >= c[i].min_free &&
			       (policy == UC_POLICY_MFS || c[i].has_parent);
		}
		k = ufs_policy_order(policy, c, ARRAY_SIZE(c));
		assert_int_equal(k, may);
		for (size_t i = 0; i < k; i++) {
			assert_memory_equal(&c[i], &all[c[i].branch], sizeof(c[i]));
			assert_int_equal(c[i].mode, UFS_BRANCH_RW);
			if (i > 0)
				assert_true(c[i - 1].space > c[i].space ||
					    (c[i - 1].space == c[i].space &&
					     c[i - 1].branch < c[i].branch));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mfs_takes_the_branch_with_most_space),
		cmocka_unit_test(epmfs_takes_only_branches_that_have_the_directory),
		cmocka_unit_test(of_equals_the_lower_branch_comes_first),
		cmocka_unit_test(files_that_are_being_filled_share_the_space),
		cmocka_unit_test(branches_that_have_failed_come_last),
		cmocka_unit_test(spaces_that_differ_in_high_bits_only_are_told_apart),
		cmocka_unit_test(branches_without_room_are_left_out),
		cmocka_unit_test(read_only_and_no_create_branches_get_nothing),
		cmocka_unit_test(no_branch_at_all_is_no_choice),
		cmocka_unit_test(any_set_of_branches_is_ordered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
