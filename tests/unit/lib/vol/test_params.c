/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/base/size.h"
#include "lib/vol/params.h"

static struct uc_params parse(const struct uc_param *list, size_t n)
{
	struct uc_params p = { .branches = 99 };
	struct uc_err err = { 0 };

	if (uc_params_parse(list, n, &p, &err) < 0)
		fail_msg("%s", err.msg);
	return p;
}

static void nothing_asked_for_is_the_default(void **state)
{
	struct uc_params p = parse(NULL, 0);

	(void)state;
	assert_int_equal(p.branches, 2);
	assert_int_equal(p.max_branch_size, 0);
	assert_int_equal(p.policy, UC_POLICY_MFS);
	assert_int_equal(p.min_free_space, 0);
}

static void every_key_is_understood(void **state)
{
	static const struct uc_param list[] = {
		{ "branches", "7" },   { "maxBranchSize", "1.5Gi" },
		{ "policy", "epmfs" }, { "minFreeSpace", "64Mi" },
		{ "layout", "union" }, { "directAssign", "never" },
	};
	struct uc_params p = parse(list, ARRAY_SIZE(list));

	(void)state;
	assert_int_equal(p.branches, 7);
	assert_int_equal(p.max_branch_size, 3 * UC_GIB / 2);
	assert_int_equal(p.policy, UC_POLICY_EPMFS);
	assert_int_equal(p.min_free_space, 64 * UC_MIB);
}

static void layouts_have_parameters_of_their_own(void **state)
{
	static const struct {
		struct uc_param list[2];
		const char *refused;
	} rows[] = {
		{ { { "layout", "linear" }, { "branches", "3" } }, NULL },
		{ { { "stripeSize", "4Ki" }, { "layout", "striped" } }, NULL },
		{ { { "stripeSize", "64Mi" }, { "layout", "striped" } }, NULL },
		{ { { "stripeSize", "64Ki" }, { "branches", "2" } }, "`stripeSize`" },
		{ { { "stripeSize", "64Ki" }, { "layout", "linear" } }, "`stripeSize`" },
		{ { { "layout", "linear" }, { "policy", "mfs" } }, "`policy`" },
		{ { { "minFreeSpace", "0" }, { "layout", "striped" } }, "`minFreeSpace`" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_params p = { .branches = 99 };
		struct uc_err err = { 0 };
		int r = uc_params_parse(rows[i].list, 2, &p, &err);

		assert_int_equal(r, rows[i].refused ? -EINVAL : 0);
		if (rows[i].refused)
			assert_non_null(strstr(err.msg, rows[i].refused));
	}
	assert_int_equal(parse(NULL, 0).layout, UC_LAYOUT_UNION);
	assert_int_equal(parse(rows[0].list, 2).layout, UC_LAYOUT_LINEAR);
	assert_int_equal(parse(rows[0].list, 2).stripe_size, UC_STRIPE_SIZE);
	assert_int_equal(parse(rows[1].list, 2).layout, UC_LAYOUT_STRIPED);
	assert_int_equal(parse(rows[1].list, 2).stripe_size, 4096);
}

static void values_at_the_bounds_are_accepted(void **state)
{
	static const struct uc_param list[] = {
		{ "branches", "1024" },
		{ "maxBranchSize", "1" },
		{ "policy", "mfs" },
		{ "minFreeSpace", "0" },
	};
	struct uc_params p = parse(list, ARRAY_SIZE(list));

	(void)state;
	assert_int_equal(p.branches, 1024);
	assert_int_equal(p.max_branch_size, 1);
	assert_int_equal(parse(&(struct uc_param){ "branches", "1" }, 1).branches, 1);
}

static void the_provisioners_keys_mean_nothing(void **state)
{
	static const struct uc_param list[] = {
		{ "csi.storage.k8s.io/pvc/name", "claim" },
		{ "csi.storage.k8s.io/pvc/namespace", "../x" },
		{ "csi.storage.k8s.io/pv/name", "" },
	};
	struct uc_params p = parse(list, ARRAY_SIZE(list)), none = parse(NULL, 0);

	(void)state;
	assert_int_equal(p.branches, none.branches);
	assert_int_equal(p.max_branch_size, none.max_branch_size);
	assert_int_equal(p.policy, none.policy);
	assert_int_equal(p.min_free_space, none.min_free_space);
}

static void of_a_key_that_comes_twice_the_last_counts(void **state)
{
	static const struct uc_param list[] = {
		{ "branches", "3" },
		{ "policy", "epmfs" },
		{ "branches", "5" },
		{ "policy", "mfs" },
	};
	struct uc_params p = parse(list, ARRAY_SIZE(list));

	(void)state;
	assert_int_equal(p.branches, 5);
	assert_int_equal(p.policy, UC_POLICY_MFS);
}

static void a_key_that_is_not_known_is_refused_by_name(void **state)
{
	static const char *const keys[] = {
		"",
		"Branches",
		"branches ",
		"lowerStorageClassName",
		"stripesize",
		"fsType",
		"csi.storage.k8s.io/fstype",
		"csi.storage.k8s.io/provisioner-secret-name",
		"csi.storage.k8s.io/pv/namespace",
		"csi.storage.k8s.io/",
		"union.io/branches",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		struct uc_param list[] = { { "branches", "3" }, { keys[i], "x" } };
		struct uc_params p = { .branches = 99 };
		struct uc_err err = { 0 };
		char expected[128];

		snprintf(expected, sizeof(expected), "parameter `%s` is not known", keys[i]);
		assert_int_equal(uc_params_parse(list, 2, &p, &err), -EINVAL);
		assert_string_equal(err.msg, expected);
		assert_int_equal(p.branches, 99);
	}
}

static void a_value_that_does_not_fit_is_refused_with_its_key(void **state)
{
	static const struct uc_param rows[] = {
		{ "branches", "" },
		{ "branches", "0" },
		{ "branches", "1025" },
		{ "branches", "-1" },
		{ "branches", "two" },
		{ "branches", "2.0" },
		{ "branches", "99999999999999999999" },
		{ "maxBranchSize", "" },
		{ "maxBranchSize", "0" },
		{ "maxBranchSize", "big" },
		{ "maxBranchSize", "-1Gi" },
		{ "maxBranchSize", "8192Pi" },
		{ "policy", "" },
		{ "policy", "MFS" },
		{ "policy", "rand" },
		{ "minFreeSpace", "" },
		{ "minFreeSpace", "x" },
		{ "layout", "" },
		{ "layout", "raid1" },
		{ "layout", "Linear" },
		{ "stripeSize", "" },
		{ "stripeSize", "2Ki" },
		{ "stripeSize", "65Ki" },
		{ "stripeSize", "128Mi" },
		{ "directAssign", "auto" },
		{ "directAssign", "always" },
		{ "directAssign", "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_params p = { .branches = 99 };
		struct uc_err err = { 0 };
		char key[64], value[64];

		snprintf(key, sizeof(key), "parameter `%s`: ", rows[i].key);
		snprintf(value, sizeof(value), "`%s`", rows[i].value);
		assert_int_equal(uc_params_parse(&rows[i], 1, &p, &err), -EINVAL);
		assert_int_equal(strncmp(err.msg, key, strlen(key)), 0);
		assert_non_null(strstr(err.msg, value));
		assert_int_equal(p.branches, 99);
		assert_int_equal(err.num, EINVAL);
	}
}

static void a_volume_is_compared_with_what_is_asked_for(void **state)
{
	static const struct uc_params have = {
		.branches = 3,
		.max_branch_size = 64 * UC_MIB,
		.policy = UC_POLICY_EPMFS,
		.min_free_space = UC_MIB,
	};
	static const struct {
		struct uc_param param;
		const char *reason; /* NULL: it matches */
	} rows[] = {
		{ { "branches", "3" }, NULL },
		{ { "branches", "2" }, "parameter `branches`: the volume was not made with `2`" },
		{ { "branches", "none" }, "parameter `branches`" },
		{ { "maxBranchSize", "64Mi" }, NULL },
		{ { "maxBranchSize", "67108864" }, NULL },
		{ { "maxBranchSize", "1Gi" }, "not made with `1Gi`" },
		{ { "policy", "epmfs" }, NULL },
		{ { "policy", "mfs" }, "not made with `mfs`" },
		{ { "minFreeSpace", "1Mi" }, NULL },
		{ { "minFreeSpace", "0" }, "not made with `0`" },
		{ { "layout", "union" }, NULL },
		{ { "layout", "striped" }, "parameter `layout`" },
		{ { "csi.storage.k8s.io/pv/name", "x" }, NULL },
		{ { "brunches", "3" }, "parameter `brunches` is not known" },
	};

	(void)state;
	assert_int_equal(uc_params_match(NULL, 0, &have, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_err err = { 0 };
		int r = uc_params_match(&rows[i].param, 1, &have, &err);

		assert_int_equal(r, rows[i].reason ? -EINVAL : 0);
		if (rows[i].reason && !strstr(err.msg, rows[i].reason))
			fail_msg("`%s` lacks `%s`", err.msg, rows[i].reason);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_asked_for_is_the_default),
		cmocka_unit_test(every_key_is_understood),
		cmocka_unit_test(layouts_have_parameters_of_their_own),
		cmocka_unit_test(values_at_the_bounds_are_accepted),
		cmocka_unit_test(the_provisioners_keys_mean_nothing),
		cmocka_unit_test(of_a_key_that_comes_twice_the_last_counts),
		cmocka_unit_test(a_key_that_is_not_known_is_refused_by_name),
		cmocka_unit_test(a_value_that_does_not_fit_is_refused_with_its_key),
		cmocka_unit_test(a_volume_is_compared_with_what_is_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
