/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/node.h"

#include "lib/os/statfs.h"

static int statfs_result;

int __wrap_uc_statfs_bounded(int fd, uint64_t timeout_ms, struct uc_statfs *ret,
			     struct uc_err *err);
int __wrap_uc_statfs_bounded(int fd, uint64_t timeout_ms, struct uc_statfs *ret, struct uc_err *err)
{
	assert_true(fcntl(fd, F_GETFD) >= 0);
	assert_true(timeout_ms > 0);
	if (statfs_result < 0)
		return uc_fail(err, -statfs_result, "ask for the usage");
	*ret = (struct uc_statfs){ .total = 3000, .available = 1000, .used = 2000 };
	return 0;
}

static int set_up(void **state)
{
	(void)state;
	statfs_result = 0;
	node_begin();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	node_end();
	return 0;
}

/* -------------------------------------------------------------------------- publishing */

static void a_volume_is_published_and_unpublished(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	must(stage(&err), &err);
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < 2; k++) {
			must(publish(&err), &err);
			check_staged(1);
			assert_non_null(fake_mount_at("k/pod1/mount"));
		}
		assert_int_equal(fake_mounts.attr_set | fake_mounts.attr_clr, 0);
		for (int k = 0; k < 2; k++) {
			must(unpublish(&err), &err);
			check_not_published();
		}
	}
	assert_int_equal(fake_mounts.clones, 3);
}

static void several_targets_have_the_volume_each_by_itself(void **state)
{
	(void)state;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	assert_int_equal(publish_at("k/pod2/mount", true, NULL), 0);
	assert_int_equal(fake_mounts.attr_set, UC_MOUNT_RDONLY);
	check_staged(2);
	assert_int_equal(unpublish(NULL), 0);
	assert_non_null(fake_mount_at("k/pod2/mount"));
	assert_null(fake_mount_at("k/pod1/mount"));
}

static void what_is_not_staged_is_not_published(void **state)
{
	const struct csi_publish_request elsewhere = {
		.id = "v1",
		.staging_path = absolute("k/pod2/stage"),
		.target = absolute("k/pod1/mount"),
		.capability = &capability,
	};
	struct uc_err err = { 0 };

	(void)state;
	assert_true(publish(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_int_equal(stage(NULL), 0);
	assert_true(csi_node_publish(&node, &node_op, &elsewhere, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(strstr(err.msg, "k/pod2/stage`"));
	assert_true(publish_at("k/pod3/mount", false, &err) < 0); /* kubelet makes the parent */
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_true(publish_at("outside", false, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_INVALID_ARGUMENT);
	check_not_published();
}

static void a_volume_that_does_not_work_is_brought_up_again(void **state)
{
	unsigned n;

	(void)state;
	assert_int_equal(stage(NULL), 0);
	for (n = 1; n < 100; n++) {
		struct uc_err err = { 0 };
		int r;

		fake.dead = true;
		fail_step(n, true);
		r = publish(&err);
		fail_nothing();
		must(publish(&err), &err);
		assert_non_null(fake_mount_at("k/pod1/mount"));
		assert_int_equal(unpublish(&err), 0);
		if (r == 0)
			break;
	}
	assert_in_range(n, 8, 40);
	assert_int_equal(fake.downs, 0);
	assert_int_equal(fake.ups, n + 1);
}

static void a_publish_that_differs_is_refused(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	assert_true(publish_at("k/pod1/mount", true, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_ALREADY_EXISTS);
	assert_non_null(strstr(err.msg, "for writing"));
	capability.access_mode = MODE(SINGLE_NODE_MULTI_WRITER);
	assert_true(publish(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_ALREADY_EXISTS);
	capability.access_mode = MODE(SINGLE_NODE_WRITER);
	uc_strv_push(&capability.mount_flags, "noexec");
	assert_true(publish(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_ALREADY_EXISTS);
	csi_capability_done(&capability);
	check_staged(1);
}

static void a_single_writer_has_one_target(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(stage(NULL), 0);
	capability.access_mode = MODE(SINGLE_NODE_SINGLE_WRITER);
	assert_int_equal(publish(NULL), 0);
	assert_int_equal(publish(NULL), 0); /* the same one */
	assert_true(publish_at("k/pod2/mount", false, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(strstr(err.msg, "SINGLE_NODE_SINGLE_WRITER"));
	capability.access_mode = MODE(SINGLE_NODE_WRITER);
	assert_true(publish_at("k/pod2/mount", false, &err) < 0);
	assert_int_equal(unpublish(NULL), 0);
	assert_int_equal(publish_at("k/pod2/mount", false, NULL), 0);
	capability.access_mode = MODE(SINGLE_NODE_SINGLE_WRITER);
	assert_true(publish(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	check_staged(1);
}

static void who_only_reads_gets_a_read_only_mount(void **state)
{
	struct uc_volume v;

	(void)state;
	assert_int_equal(stage(NULL), 0);
	capability.access_mode = MODE(SINGLE_NODE_READER_ONLY);
	assert_int_equal(publish(NULL), 0);
	assert_int_equal(fake_mounts.attr_set, UC_MOUNT_RDONLY);
	assert_int_equal(unpublish(NULL), 0);
	/* `rw` does not help. */
	uc_strv_push(&capability.mount_flags, "rw");
	assert_int_equal(publish(NULL), 0);
	assert_int_equal(fake_mounts.attr_set, UC_MOUNT_RDONLY);
	assert_int_equal(fake_mounts.attr_clr & UC_MOUNT_RDONLY, 0);
	assert_int_equal(unpublish(NULL), 0);
	csi_capability_done(&capability);
	/* Attached read-only. */
	v = load();
	uc_volume_add_attachment(&v, "node-1", true, 1);
	store_volume(&v);
	capability = (struct csi_capability){ .fstype = "",
					      .group = "",
					      .access_mode = MODE(SINGLE_NODE_WRITER) };
	assert_int_equal(publish(NULL), 0);
	assert_int_equal(fake_mounts.attr_set, UC_MOUNT_RDONLY);
}

static void flags_of_a_target_are_its_mounts(void **state)
{
	(void)state;
	assert_int_equal(stage(NULL), 0);
	uc_strv_push(&capability.mount_flags, "noexec,nosuid");
	assert_int_equal(publish(NULL), 0);
	assert_int_equal(fake_mounts.attr_set, UC_MOUNT_NOEXEC | UC_MOUNT_NOSUID);
	csi_capability_done(&capability);
}

static void a_group_is_applied_to_what_is_published(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(stage(NULL), 0);
	capability.group = "77";
	assert_int_equal(publish(NULL), 0);
	assert_int_equal(fake.last_gid, 77);
	capability.group = "x";
	assert_int_equal(publish_at("k/pod2/mount", false, &err), -EINVAL);
	check_staged(1);
	assert_false(file_exists("k/pod2/mount"));
}

static void a_publish_that_fails_at_any_step_leaves_nothing(void **state)
{
	unsigned n;

	(void)state;
	assert_int_equal(stage(NULL), 0);
	capability.group = "1000";
	for (n = 1; n < 100; n++) {
		struct uc_err err = { 0 };
		int r;

		fail_step(n, false);
		r = publish(&err);
		fail_nothing();
		if (r == 0)
			break;
		assert_int_equal(r, -EIO);
		fake_mounts_forget_detached();
		assert_null(fake_mount_at("k/pod1/mount"));
		assert_false(file_exists("k/pod1/mount"));
		/* Where only the last sync failed the target may be recorded. */
		if (strstr(file_text("s/volumes/v1/state.json"), "pod1"))
			assert_int_equal(unpublish(NULL), 0);
		check_not_published();
	}
	assert_in_range(n, 8, 30);
	check_staged(1);
}

static int publish_and_unpublish(struct uc_err *err)
{
	must(publish(err), err);
	check_staged(1);
	return unpublish(err);
}

static void a_publish_that_is_cut_off_at_any_step_is_made_by_the_retry(void **state)
{
	(void)state;
	assert_int_equal(stage(NULL), 0);
	cut_off_each_step(publish, 8, 30, publish_and_unpublish, check_not_published);
}

static void a_publish_that_is_cut_off_at_any_step_can_be_unpublished(void **state)
{
	(void)state;
	assert_int_equal(stage(NULL), 0);
	cut_off_each_step(publish, 8, 30, unpublish, check_not_published);
}

static void a_repeated_publish_that_fails_leaves_the_target_as_it_was(void **state)
{
	unsigned n;

	(void)state;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	for (n = 1; n < 100; n++) {
		int r;

		fail_step(n, true);
		r = publish(NULL);
		fail_nothing();
		check_staged(1);
		if (r == 0)
			break;
	}
	assert_in_range(n, 2, 30);
}

/* ------------------------------------------------------------------------ unpublishing */

static void an_unpublish_that_fails_at_any_step_is_finished_by_the_retry(void **state)
{
	(void)state;
	assert_int_equal(stage(NULL), 0);
	for (int all = 0; all < 2; all++) {
		unsigned n;

		for (n = 1; n < 100; n++) {
			struct uc_err err = { 0 };
			int r;

			must(publish(&err), &err);
			fail_step(n, all);
			r = unpublish(&err);
			fail_nothing();
			must(unpublish(&err), &err);
			check_not_published();
			if (r == 0)
				break;
			assert_int_equal(r, -EIO);
		}
		assert_in_range(n, 5, 30);
	}
}

static void a_target_that_is_gone_is_unpublished(void **state)
{
	(void)state;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	fake_mount_remove(fake_mount_at("k/pod1/mount"));
	remove_tree("k/pod1");
	assert_int_equal(unpublish(NULL), 0);
	check_not_published();
}

static void a_target_that_holds_data_is_left_alone(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(stage(NULL), 0);
	make_dir("k/pod1/mount");
	write_file("k/pod1/mount/data", "x");
	assert_true(publish(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_true(unpublish(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_string_equal(file_text("k/pod1/mount/data"), "x");
}

static void a_mount_in_use_stays_published(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	fake_mounts.busy = 1;
	assert_true(unpublish(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	check_staged(1);
	assert_int_equal(unpublish(NULL), 0);
	check_not_published();
}

static void of_an_unknown_volume_only_its_own_union_is_taken_away(void **state)
{
	const char *target = absolute("k/pod1/mount");
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(csi_node_unpublish(&node, &node_op, "gone", target, NULL), 0);
	make_dir("k/pod1/mount");
	fake_mount_add("k/pod1/mount", "fuse.union-fs", "other");
	assert_true(csi_node_unpublish(&node, &node_op, "gone", target, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	fake_mounts_reset();
	fake_mount_add("k/pod1/mount", "fuse.union-fs", "gone");
	assert_int_equal(csi_node_unpublish(&node, &node_op, "gone", target, NULL), 0);
	assert_int_equal(fake_mounts_attached(), 0);
	assert_false(file_exists("k/pod1/mount"));
	assert_true(csi_node_unpublish(&node, &node_op, "gone", "/etc", &err) < 0);
	assert_int_equal(err.status, UC_GRPC_INVALID_ARGUMENT);
}

/* -------------------------------------------------------------------------- statistics */

static int stats(const char *id, const char *rel, struct uc_statfs *ret, struct uc_err *err)
{
	*err = (struct uc_err){ 0 };
	return csi_node_stats(&node, &node_op, id, absolute(rel), ret, err);
}

static void usage_is_told_where_the_volume_is(void **state)
{
	struct uc_statfs usage;
	struct uc_err err;

	(void)state;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	assert_int_equal(stats("v1", "k/plugin/stage", &usage, &err), 0);
	assert_int_equal(stats("v1", "k/pod1/mount", &usage, &err), 0);
	assert_int_equal(usage.total, 3000);
	statfs_result = -ETIMEDOUT;
	assert_int_equal(stats("v1", "k/pod1/mount", &usage, &err), -ETIMEDOUT);
	assert_non_null(strstr(err.msg, "volume `v1` at"));
}

static void usage_is_not_told_of_anything_else(void **state)
{
	static const char *const paths[] = { "k/pod2/mount", "k/pod1", "k", "outside" };
	struct uc_statfs usage;
	struct uc_err err;

	(void)state;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		assert_true(stats("v1", paths[i], &usage, &err) < 0);
		assert_int_equal(err.status, UC_GRPC_NOT_FOUND);
	}
	assert_true(stats("v2", "k/pod1/mount", &usage, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_NOT_FOUND);
	assert_true(stats("../v1", "k/pod1/mount", &usage, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_NOT_FOUND);
	/* It was there. */
	fake_mount_remove(fake_mount_at("k/pod1/mount"));
	assert_true(stats("v1", "k/pod1/mount", &usage, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_NOT_FOUND);
	assert_non_null(strstr(err.msg, "any more"));
	fake_mount_add("k/pod1/mount", "tmpfs", "foreign");
	assert_true(stats("v1", "k/pod1/mount", &usage, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_NOT_FOUND);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_volume_is_published_and_unpublished),
		T(several_targets_have_the_volume_each_by_itself),
		T(what_is_not_staged_is_not_published),
		T(a_volume_that_does_not_work_is_brought_up_again),
		T(a_publish_that_differs_is_refused),
		T(a_single_writer_has_one_target),
		T(who_only_reads_gets_a_read_only_mount),
		T(flags_of_a_target_are_its_mounts),
		T(a_group_is_applied_to_what_is_published),
		T(a_publish_that_fails_at_any_step_leaves_nothing),
		T(a_publish_that_is_cut_off_at_any_step_is_made_by_the_retry),
		T(a_publish_that_is_cut_off_at_any_step_can_be_unpublished),
		T(a_repeated_publish_that_fails_leaves_the_target_as_it_was),
		T(an_unpublish_that_fails_at_any_step_is_finished_by_the_retry),
		T(a_target_that_is_gone_is_unpublished),
		T(a_target_that_holds_data_is_left_alone),
		T(a_mount_in_use_stays_published),
		T(of_an_unknown_volume_only_its_own_union_is_taken_away),
		T(usage_is_told_where_the_volume_is),
		T(usage_is_not_told_of_anything_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
