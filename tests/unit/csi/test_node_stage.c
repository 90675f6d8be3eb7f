/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/node.h"

static int set_up(void **state)
{
	(void)state;
	node_begin();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	node_end();
	return 0;
}

/* ---------------------------------------------------------------------------- staging */

static void a_volume_is_staged_and_unstaged(void **state)
{
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	struct uc_err err = { 0 };

	(void)state;
	uc_strv_push(&capability.mount_flags, "noatime");
	for (int i = 0; i < 2; i++) {
		must(stage(&err), &err);
		check_staged(0);
		uc_volume_done(&v);
		v = load();
		assert_string_equal(v.stage.path, absolute("k/plugin/stage"));
		assert_string_equal(v.stage.boot_id, node.boot_id);
		assert_string_equal(v.stage.mount_flags[0], "noatime");
		assert_null(v.stage.group);
		must(unstage(&err), &err);
		check_not_staged();
		must(unstage(&err), &err);
		check_not_staged();
	}
	csi_capability_done(&capability);
}

static void a_repeated_call_changes_nothing(void **state)
{
	const char *before;

	(void)state;
	assert_int_equal(stage(NULL), 0);
	before = file_text("s/volumes/v1/state.json");
	for (int i = 0; i < 2; i++)
		assert_int_equal(stage(NULL), 0);
	check_staged(0);
	assert_int_equal(fake.ups, 1);
	assert_string_equal(file_text("s/volumes/v1/state.json"), before);
	/* Somebody has unmounted the staging path. */
	fake_mount_remove(fake_mount_at("k/plugin/stage"));
	assert_int_equal(stage(NULL), 0);
	check_staged(0);
}

static void a_call_that_differs_is_refused(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	capability.group = "1000";
	assert_int_equal(stage(NULL), 0);
	assert_true(stage_at("k/plugin/other", &err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(strstr(err.msg, "k/plugin/stage`"));
	capability.group = "1001";
	assert_true(stage(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_ALREADY_EXISTS);
	capability.group = "";
	assert_true(stage(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_ALREADY_EXISTS);
	capability.group = "1000";
	capability.access_mode = MODE(SINGLE_NODE_READER_ONLY);
	assert_true(stage(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_ALREADY_EXISTS);
	capability.access_mode = MODE(SINGLE_NODE_WRITER);
	uc_strv_push(&capability.mount_flags, "noatime");
	assert_true(stage(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_ALREADY_EXISTS);
	csi_capability_done(&capability);
	check_staged(0);
}

static void what_cannot_be_staged_is_refused_before_anything_is_done(void **state)
{
	struct uc_err err = { 0 };
	struct uc_volume v;

	(void)state;
	assert_true(stage_at("outside", &err) < 0);
	assert_int_equal(err.status, UC_GRPC_INVALID_ARGUMENT);
	assert_true(stage_at("k/plugin/../../x", &err) < 0);
	assert_int_equal(err.status, UC_GRPC_INVALID_ARGUMENT);
	capability.fstype = "xfs";
	assert_true(stage(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_INVALID_ARGUMENT);
	assert_non_null(strstr(err.msg, "`xfs`"));
	capability.fstype = "ext4";
	v = load();
	v.phase = UC_VOLUME_DELETING;
	store_volume(&v);
	assert_true(stage(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_NOT_FOUND);
	v = load();
	v.phase = UC_VOLUME_READY;
	store_volume(&v);
	check_not_staged();
	assert_int_equal(fake.ups + fake.downs, 0);
	assert_int_equal(stage(NULL), 0);
}

static void a_stage_that_fails_at_any_step_leaves_nothing(void **state)
{
	unsigned n;

	(void)state;
	capability.group = "1000";
	for (n = 1; n < 100; n++) {
		struct uc_err err = { 0 };
		int r;

		fail_step(n, false);
		r = stage(&err);
		fail_nothing();
		if (r == 0)
			break;
		assert_int_equal(r, -EIO);
		assert_false(is_up());
		assert_int_equal(fake_mounts_attached(), 0);
		/* Where only the last sync failed the state may say that something is. */
		if (strstr(file_text("s/volumes/v1/state.json"), "\"staging\""))
			assert_int_equal(unstage(NULL), 0);
		check_not_staged();
	}
	assert_in_range(n, 10, 40);
	check_staged(0);
}

static int stage_and_unstage(struct uc_err *err)
{
	must(stage(err), err);
	check_staged(0);
	return unstage(err);
}

static void a_stage_that_is_cut_off_at_any_step_is_made_by_the_retry(void **state)
{
	(void)state;
	cut_off_each_step(stage, 10, 40, stage_and_unstage, check_not_staged);
}

static void a_stage_that_is_cut_off_at_any_step_can_be_unstaged(void **state)
{
	(void)state;
	cut_off_each_step(stage, 10, 40, unstage, check_not_staged);
}

static void an_unstage_that_fails_at_any_step_is_finished_by_the_retry(void **state)
{
	(void)state;
	for (int all = 0; all < 2; all++) {
		unsigned n;

		for (n = 1; n < 100; n++) {
			struct uc_err err = { 0 };
			int r;

			must(stage(&err), &err);
			fail_step(n, all);
			r = unstage(&err);
			fail_nothing();
			must(unstage(&err), &err);
			check_not_staged();
			if (r == 0)
				break;
			assert_int_equal(r, -EIO);
		}
		assert_in_range(n, 8, 40);
	}
}

static void a_volume_that_is_half_unstaged_can_be_staged_again(void **state)
{
	unsigned n;

	(void)state;
	for (n = 1; n < 100; n++) {
		struct uc_err err = { 0 };
		int r;

		must(stage(&err), &err);
		fail_step(n, true);
		r = unstage(&err);
		fail_nothing();
		must(stage(&err), &err);
		check_staged(0);
		if (r == 0)
			break;
	}
	assert_in_range(n, 8, 40);
}

/* Whoever uses it still has the old mount, and would not let it go down. */
static void a_volume_that_does_not_work_is_brought_up_again_but_not_down(void **state)
{
	unsigned n;

	(void)state;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	for (n = 1; n < 100; n++) {
		struct uc_err err = { 0 };
		int r;

		fake.dead = true;
		fail_step(n, true);
		r = stage(&err);
		fail_nothing();
		assert_true(strstr(file_text("s/volumes/v1/state.json"), "\"staged\""));
		must(stage(&err), &err);
		check_staged(1);
		if (r == 0)
			break;
	}
	assert_in_range(n, 4, 40);
	assert_int_equal(fake.downs, 0);
	assert_int_equal(fake.ups, n + 1);
}

static void a_volume_that_does_not_work_and_nobody_uses_is_staged_anew(void **state)
{
	(void)state;
	assert_int_equal(stage(NULL), 0);
	fake.dead = true;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(fake.downs, 1);
	check_staged(0);
}

static void a_group_is_applied_before_anybody_sees_the_volume(void **state)
{
	cleanup_volume struct uc_volume v = { .n_branches = 0 };

	(void)state;
	capability.group = "1000";
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(fake.groups, 1);
	assert_int_equal(fake.last_gid, 1000);
	v = load();
	assert_string_equal(v.stage.group, "1000");
}

/* -------------------------------------------------------------------------- unstaging */

static void a_volume_that_is_published_is_not_unstaged(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	assert_true(unstage(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(strstr(err.msg, "k/pod1/mount`"));
	check_staged(1);
	/* The pod's directory is gone, and nobody will ever unpublish it. */
	fake_mount_remove(fake_mount_at("k/pod1/mount"));
	remove_tree("k/pod1");
	assert_int_equal(unstage(NULL), 0);
	check_not_staged();
}

static void what_another_volume_has_at_a_target_does_not_hold_ours(void **state)
{
	(void)state;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	fake_mount_remove(fake_mount_at("k/pod1/mount"));
	fake_mount_add("k/pod1/mount", "ext4", "v2");
	assert_int_equal(unstage(NULL), 0);
	assert_int_equal(fake_mounts_attached(), 1);
}

static void a_volume_staged_elsewhere_is_left_alone(void **state)
{
	(void)state;
	assert_int_equal(stage_at("k/pod2/stage", NULL), 0);
	assert_int_equal(unstage(NULL), 0);
	assert_true(is_up());
	assert_non_null(fake_mount_at("k/pod2/stage"));
}

static void of_an_unknown_volume_only_its_own_union_is_taken_away(void **state)
{
	const char *path = absolute("k/plugin/stage");
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(csi_node_unstage(&node, &node_op, "gone", path, NULL), 0);
	assert_int_equal(csi_node_unstage(&node, &node_op, "../../x", path, NULL), 0);
	make_dir("k/plugin/stage");
	assert_int_equal(csi_node_unstage(&node, &node_op, "gone", path, NULL), 0);
	fake_mount_add("k/plugin/stage", "fuse.union-fs", "other");
	assert_true(csi_node_unstage(&node, &node_op, "gone", path, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_int_equal(fake_mounts_attached(), 1);
	fake_mounts_reset();
	fake_mount_add("k/plugin/stage", "fuse.union-fs", "gone");
	assert_int_equal(csi_node_unstage(&node, &node_op, "gone", path, NULL), 0);
	assert_int_equal(fake_mounts_attached(), 0);
	assert_true(file_exists("k/plugin/stage")); /* the directory is the CO's */
}

static void a_foreign_mount_at_the_staging_path_is_left_alone(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	make_dir("k/plugin/stage");
	fake_mount_add("k/plugin/stage", "tmpfs", "foreign");
	assert_true(stage(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(fake_mount_at("k/plugin/stage"));
	fake_mount_remove(fake_mount_at("k/plugin/stage"));
	assert_int_equal(unstage(NULL), 0);
	check_not_staged();
}

/* -------------------------------------------------------------------------- a new boot */

static void reboot(void)
{
	fake_mounts_reset();
	node.boot_id[0] = node.boot_id[0] == 'a' ? 'b' : 'a';
}

static void after_a_reboot_a_volume_is_not_staged(void **state)
{
	(void)state;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	reboot();
	assert_int_equal(unstage(NULL), 0);
	assert_true(publish(NULL) < 0);
	assert_int_equal(stage_at("k/pod2/stage", NULL), 0); /* elsewhere, too */
	{
		cleanup_volume struct uc_volume v = load();

		assert_int_equal(v.n_publishes, 0);
		assert_string_equal(v.stage.boot_id, node.boot_id);
	}
	assert_int_equal(fake_mounts_attached(), 2);
}

/* ------------------------------------------------------------------------------ repair */

static int repair(struct uc_err *err)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = load();

	assert_int_equal(uc_volume_lock(&store, "v1", false, &lock, NULL), 0);
	return csi_node_repair(&node, &node_op, &lock, &v, err);
}

static void what_is_whole_is_left_alone_by_repair(void **state)
{
	(void)state;
	assert_int_equal(repair(NULL), 0);
	check_not_staged();
	assert_int_equal(fake.downs, 0);
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	assert_int_equal(repair(NULL), 0);
	check_staged(1);
	fake.dead = true; /* only told */
	assert_int_equal(repair(NULL), 0);
	check_staged(1);
}

static int repair_and_unstage(struct uc_err *err)
{
	cleanup_volume struct uc_volume v = { .n_branches = 0 };

	must(repair(err), err);
	v = load();
	if (v.stage.phase != UC_STAGE_STAGED)
		return 0;
	check_staged(0); /* only the last sync was missing */
	return unstage(err);
}

static void an_interrupted_stage_is_undone_by_repair(void **state)
{
	(void)state;
	cut_off_each_step(stage, 10, 40, repair_and_unstage, check_not_staged);
}

static void a_repair_that_fails_at_any_step_is_made_again(void **state)
{
	unsigned n;

	(void)state;
	for (n = 1; n < 100; n++) {
		struct uc_err err = { 0 };
		struct uc_volume v;
		int r;

		assert_int_equal(stage(NULL), 0);
		v = load();
		v.stage.phase = UC_STAGE_UNSTAGING;
		store_volume(&v);
		fail_step(n, true);
		r = repair(&err);
		fail_nothing();
		must(repair(&err), &err);
		check_not_staged();
		if (r == 0)
			break;
		assert_non_null(strstr(err.msg, "repair volume `v1`"));
	}
	assert_in_range(n, 5, 40);
}

static void a_half_publish_is_undone_and_a_whole_one_stays(void **state)
{
	struct uc_volume v;

	(void)state;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	assert_int_equal(publish_at("k/pod2/mount", false, NULL), 0);
	v = load();
	uc_volume_find_publish(&v, absolute("k/pod1/mount"))->done = false;
	store_volume(&v);
	assert_int_equal(repair(NULL), 0);
	check_staged(1);
	assert_false(file_exists("k/pod1/mount"));
	assert_non_null(fake_mount_at("k/pod2/mount"));
}

static void what_the_state_does_not_know_is_cleared(void **state)
{
	(void)state;
	fake.leftovers = true;
	assert_int_equal(repair(NULL), 0);
	assert_int_equal(fake.downs, 1);
	check_not_staged();
}

static void repair_forgets_what_was_before_a_reboot(void **state)
{
	(void)state;
	assert_int_equal(stage(NULL), 0);
	assert_int_equal(publish(NULL), 0);
	reboot();
	rmdir(MERGED);
	assert_int_equal(repair(NULL), 0);
	check_not_staged();
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_volume_is_staged_and_unstaged),
		T(a_repeated_call_changes_nothing),
		T(a_call_that_differs_is_refused),
		T(what_cannot_be_staged_is_refused_before_anything_is_done),
		T(a_stage_that_fails_at_any_step_leaves_nothing),
		T(a_stage_that_is_cut_off_at_any_step_is_made_by_the_retry),
		T(a_stage_that_is_cut_off_at_any_step_can_be_unstaged),
		T(an_unstage_that_fails_at_any_step_is_finished_by_the_retry),
		T(a_volume_that_is_half_unstaged_can_be_staged_again),
		T(a_volume_that_does_not_work_is_brought_up_again_but_not_down),
		T(a_volume_that_does_not_work_and_nobody_uses_is_staged_anew),
		T(a_group_is_applied_before_anybody_sees_the_volume),
		T(a_volume_that_is_published_is_not_unstaged),
		T(what_another_volume_has_at_a_target_does_not_hold_ours),
		T(a_volume_staged_elsewhere_is_left_alone),
		T(of_an_unknown_volume_only_its_own_union_is_taken_away),
		T(a_foreign_mount_at_the_staging_path_is_left_alone),
		T(after_a_reboot_a_volume_is_not_staged),
		T(what_is_whole_is_left_alone_by_repair),
		T(an_interrupted_stage_is_undone_by_repair),
		T(a_repair_that_fails_at_any_step_is_made_again),
		T(a_half_publish_is_undone_and_a_whole_one_stays),
		T(what_the_state_does_not_know_is_cleared),
		T(repair_forgets_what_was_before_a_reboot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
