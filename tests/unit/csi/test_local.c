/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"

#include "tests/lib/local.h"
#include "tests/lib/no_loopdevs.h"
#include "tests/lib/steps_sync.h"
#include "tests/lib/steps_write.h"

#include "csi/status.h"
#include "lib/base/macros.h"
#include "lib/base/size.h"
#include "lib/os/mkfs.h"
#include "lib/os/statfs.h"

static uint64_t available;
static int statfs_result;

int __wrap_uc_statfs_bounded(int fd, uint64_t timeout_ms, struct uc_statfs *ret,
			     struct uc_err *err);
int __wrap_uc_statfs_bounded(int fd, uint64_t timeout_ms, struct uc_statfs *ret, struct uc_err *err)
{
	(void)fd;
	(void)timeout_ms;
	if (statfs_result < 0)
		return uc_fail(err, -statfs_result, "ask for the space");
	*ret = (struct uc_statfs){ .available = available };
	return 0;
}

/* Pools' own disks: each says how much it has. */
static uint64_t space[3], device[3];
static bool own_disks;

int __real_csi_pools_space(struct csi_pools *pools, size_t i, struct csi_space *ret,
			   struct uc_err *err);
int __wrap_csi_pools_space(struct csi_pools *pools, size_t i, struct csi_space *ret,
			   struct uc_err *err);
int __wrap_csi_pools_space(struct csi_pools *pools, size_t i, struct csi_space *ret,
			   struct uc_err *err)
{
	if (!own_disks)
		return __real_csi_pools_space(pools, i, ret, err);
	*ret = (struct csi_space){ .available = space[i], .device = device[i] };
	return 0;
}

static int set_up(void **state)
{
	(void)state;
	available = UC_GIB;
	statfs_result = 0;
	own_disks = false;
	local_begin(true);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	local_end();
	return 0;
}

/* ------------------------------------------------------------------------ nodes */

static int attach(const char *id, const char *node, int mode, bool read_only, struct uc_err *err)
{
	struct csi_op op = local_op(id);

	*err = (struct uc_err){ 0 };
	return local->base.ops->attach(&local->base, &op, id, node, mode, read_only, err);
}

static int detach(const char *id, const char *node, struct uc_err *err)
{
	struct csi_op op = local_op(id);

	*err = (struct uc_err){ 0 };
	return local->base.ops->detach(&local->base, &op, id, node, err);
}

/* "node-1" or "": what get() says. */
static const char *attached_to(const char *id)
{
	static char text[512];
	cleanup_volume_info struct csi_volume_info info = { .capacity = 0 };

	text[0] = '\0';
	assert_int_equal(local->base.ops->get(&local->base, id, &info, NULL), 0);
	assert_string_equal(info.id, id);
	for (char **n = info.node_ids; n && *n; n++)
		strcat(text, *n);
	return text;
}

static void a_volume_is_attached_once_and_may_be_so_again(void **state)
{
	struct uc_err err;

	(void)state;
	local_have("v1", 2);
	assert_string_equal(attached_to("v1"), "");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(attach("v1", "node-1", 1, false, &err), 0);
		assert_string_equal(attached_to("v1"), "node-1");
	}
	for (int i = 0; i < 3; i++) {
		assert_int_equal(detach("v1", "node-1", &err), 0);
		assert_string_equal(attached_to("v1"), "");
	}
}

static void an_attachment_that_differs_is_refused(void **state)
{
	struct uc_err err;

	(void)state;
	local_have("v1", 2);
	assert_int_equal(attach("v1", "node-1", 1, false, &err), 0);
	assert_true(attach("v1", "node-1", 1, true, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_ALREADY_EXISTS);
	assert_true(attach("v1", "node-1", 7, false, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_ALREADY_EXISTS);
	assert_non_null(strstr(err.msg, "SINGLE_NODE_WRITER"));
	assert_string_equal(attached_to("v1"), "node-1");
}

static void only_what_exists_is_attached(void **state)
{
	struct uc_volume v;
	struct uc_err err;

	(void)state;
	local_have("v1", 2);
	assert_true(attach("v1", "node-2", 1, false, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_NOT_FOUND);
	assert_non_null(strstr(err.msg, "`node-2`"));
	assert_true(attach("v2", "node-1", 1, false, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_NOT_FOUND);
	assert_true(attach("../v1", "node-1", 1, false, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_NOT_FOUND);
	/* A volume on its way in or out does not exist for others. */
	for (int phase = 0; phase < UC_VOLUME_PHASE_COUNT; phase++) {
		struct csi_volume_info info;

		if (phase == UC_VOLUME_READY)
			continue;
		v = local_load("v1");
		v.phase = (enum uc_volume_phase)phase;
		local_store(&v);
		assert_true(attach("v1", "node-1", 1, false, &err) < 0);
		assert_int_equal(err.status, UC_GRPC_NOT_FOUND);
		assert_true(local->base.ops->get(&local->base, "v1", &info, &err) < 0);
		assert_int_equal(err.status, UC_GRPC_NOT_FOUND);
	}
}

static void what_is_not_attached_is_detached_already(void **state)
{
	struct uc_err err;

	(void)state;
	local_have("v1", 2);
	assert_int_equal(detach("v1", "node-1", &err), 0);
	assert_int_equal(detach("v1", NULL, &err), 0);
	assert_int_equal(detach("v2", "node-1", &err), 0);
	assert_int_equal(detach("../v1", "node-1", &err), 0);
	assert_int_equal(attach("v1", "node-1", 1, false, &err), 0);
	assert_int_equal(detach("v1", "node-2", &err), 0);
	assert_string_equal(attached_to("v1"), "node-1");
	assert_int_equal(detach("v1", NULL, &err), 0); /* from all nodes */
	assert_string_equal(attached_to("v1"), "");
}

static void a_volume_that_is_staged_is_not_detached(void **state)
{
	struct uc_err err;
	struct uc_volume v;

	(void)state;
	local_have("v1", 2);
	assert_int_equal(attach("v1", "node-1", 1, false, &err), 0);
	v = local_load("v1");
	uc_stage_done(&v.stage);
	v.stage = (struct uc_stage){ .phase = UC_STAGE_STAGED,
				     .path = strdup("/stage"),
				     .boot_id = strdup("b"),
				     .access_mode = 1 };
	local_store(&v);
	assert_true(detach("v1", "node-1", &err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(strstr(err.msg, "staged at `/stage`"));
	assert_string_equal(attached_to("v1"), "node-1");
}

static void attaching_and_detaching_fail_whole(void **state)
{
	struct uc_err err;
	unsigned n;
	int r;

	(void)state;
	local_have("v1", 2);
	for (n = 1; n < 50; n++) {
		fail_step(n, true);
		r = attach("v1", "node-1", 1, false, &err);
		fail_nothing();
		/* Only a last sync that failed leaves it open which it is. */
		assert_int_equal(attach("v1", "node-1", 1, false, &err), 0);
		assert_string_equal(attached_to("v1"), "node-1");
		fail_step(n, true);
		assert_int_equal(detach("v1", "node-1", &err), r);
		fail_nothing();
		assert_int_equal(detach("v1", "node-1", &err), 0);
		assert_string_equal(attached_to("v1"), "");
		if (r == 0)
			break;
		assert_int_equal(r, -EIO);
	}
	assert_int_equal(n, 5); /* write, sync, rename, sync */
}

/* ------------------------------------------------------------------------- list */

static char listed[512];
static int stop_result;

static int note(void *data, const struct csi_volume_info *info)
{
	assert_ptr_equal(data, listed);
	strcat(listed, info->id);
	strcat(listed, " ");
	return stop_result;
}

static const char *list_after(const char *after)
{
	listed[0] = '\0';
	assert_int_equal(local->base.ops->list(&local->base, after, note, listed, NULL),
			 stop_result);
	return listed;
}

static void volumes_are_listed_in_order_from_anywhere(void **state)
{
	struct uc_volume v;

	(void)state;
	stop_result = 0;
	assert_string_equal(list_after(""), "");
	local_have("b", 1);
	local_have("a", 1);
	local_have("c", 1);
	assert_string_equal(list_after(""), "a b c ");
	assert_string_equal(list_after("a"), "b c ");
	assert_string_equal(list_after("aa"), "b c ");
	assert_string_equal(list_after("c"), "");
	/* Neither what is being made, nor what cannot be read, nor an empty directory. */
	v = local_load("b");
	v.phase = UC_VOLUME_DELETING;
	local_store(&v);
	write_file("s/volumes/a/state.json", "garbage");
	make_dir("s/volumes/d");
	assert_string_equal(list_after(""), "c ");
}

static void a_list_ends_where_the_caller_wants(void **state)
{
	(void)state;
	local_have("a", 1);
	local_have("b", 1);
	stop_result = 7;
	assert_string_equal(list_after(""), "a ");
}

/* --------------------------------------------------------------------- capacity */

static uint64_t maximum(uint64_t branches, uint64_t max_branch, uint64_t a, uint64_t b, uint64_t c)
{
	const struct uc_params params = { .branches = branches, .max_branch_size = max_branch };
	struct csi_capacity cap = { 0 };

	own_disks = true;
	space[0] = a;
	space[1] = b;
	space[2] = c;
	assert_int_equal(local->base.ops->capacity(&local->base, &params, "ext4", &cap, NULL), 0);
	assert_int_equal(cap.maximum, cap.available);
	assert_int_equal(cap.minimum, branches * uc_mkfs_min_size("ext4"));
	return cap.maximum;
}

static void the_largest_volume_fits_the_tightest_disk(void **state)
{
	const uint64_t g = UC_GIB, o = CSI_BRANCH_OVERHEAD;

	(void)state;
	for (size_t i = 0; i < 3; i++)
		device[i] = i + 1;
	/* Branch i is in pool i mod 3. */
	assert_int_equal(maximum(1, 0, 5 * g + o, g, g), 5 * g);
	assert_int_equal(maximum(2, 0, 5 * g, 2 * g + o, g), 2 * 2 * g);
	assert_int_equal(maximum(3, 0, 5 * g, 2 * g, g + o), 3 * g);
	assert_int_equal(maximum(4, 0, 4 * g + 2 * o, 9 * g, 9 * g), 4 * 2 * g);
	assert_int_equal(maximum(1, 0, 0, g, g), 0);
	assert_int_equal(maximum(1, 0, o - 1, g, g), 0);
	assert_int_equal(maximum(2, 0, g, 4095, g), 0);
	/* Whole blocks only. */
	assert_int_equal(maximum(1, 0, g + o + 4095, g, g), g);
}

static void pools_on_one_disk_share_its_space(void **state)
{
	const uint64_t g = UC_GIB, o = CSI_BRANCH_OVERHEAD;

	(void)state;
	device[0] = device[1] = 1;
	device[2] = 2;
	assert_int_equal(maximum(2, 0, 4 * g + 2 * o, 4 * g + 2 * o, 9 * g), 4 * g);
	assert_int_equal(maximum(3, 0, 4 * g + 2 * o, 4 * g + 2 * o, 9 * g), 3 * 2 * g);
}

static void a_largest_branch_makes_more_branches(void **state)
{
	const uint64_t g = UC_GIB, o = CSI_BRANCH_OVERHEAD;

	(void)state;
	for (size_t i = 0; i < 3; i++)
		device[i] = i + 1;
	assert_int_equal(maximum(2, g, 4 * (g + o), 4 * (g + o), 4 * (g + o)), 12 * g);
	assert_int_equal(maximum(1, g, 2 * (g + o), g + o, g + o), 4 * g);
	assert_int_equal(maximum(1, 8 * g, 2 * g + o, g, g), 2 * g);
}

static void what_is_promised_can_be_made(void **state)
{
	struct csi_create c = local_want("v1", 3);
	uint64_t most;

	(void)state;
	local_close();
	local_open(false);
	device[0] = device[1] = 1;
	device[2] = 2;
	most = maximum(3, 0, 100 << 20, 100 << 20, 50 << 20);
	assert_int_equal(most, 3 * ((50 << 20) - CSI_BRANCH_OVERHEAD));
	c.required = most + 1;
	assert_true(local_create(&c, NULL) < 0);
	assert_string_equal(local_files(), NO_FILES);
	c.required = most;
	assert_int_equal(local_create(&c, NULL), 0);
}

static void a_disk_that_does_not_answer_has_no_capacity(void **state)
{
	const struct uc_params params = { .branches = 1 };
	struct csi_capacity cap = { .available = 7 };
	struct uc_err err = { 0 };

	(void)state;
	statfs_result = -ETIMEDOUT;
	assert_true(local->base.ops->capacity(&local->base, &params, "ext4", &cap, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_UNAVAILABLE);
	assert_int_equal(cap.available, 7);
}

/* -------------------------------------------------------------------- readiness */

static void a_pool_that_was_left_out_is_missed_while_a_volume_uses_it(void **state)
{
	const struct csi_local_config config = {
		.pools = STRV("p0", "p1"),
		.union_fs = "u",
		.node_id = "node-1",
	};
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	struct csi_local *two = NULL;
	struct uc_err err = { 0 };

	(void)state;
	local_have("v1", 3);
	assert_int_equal(csi_local_new(&config, &store, &two, NULL), 0);
	assert_true(two->base.ops->ready(&two->base, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_UNAVAILABLE);
	v = local_load("v1");
	assert_non_null(strstr(err.msg, v.branches[2].pool));
	assert_int_equal(local->base.ops->ready(&local->base, NULL), 0);
	assert_int_equal(local_remove("v1", NULL), 0);
	local_have("v1", 2);
	assert_int_equal(two->base.ops->ready(&two->base, &err), 0);
	csi_local_free(two);
}

/* ----------------------------------------------------------------------- repair */

/* What repair() makes of v1 in a phase; its lock is held. */
static int repair(enum uc_volume_phase phase)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = local_load("v1");
	struct csi_op op = local_op("v1");

	v.phase = phase;
	assert_int_equal(uc_volume_lock(&store, "v1", false, &lock, NULL), 0);
	assert_int_equal(uc_volume_store(&lock, &v, NULL), 0);
	return local->base.ops->repair(&local->base, &op, &lock, &v, NULL);
}

static void what_a_crash_interrupted_is_removed_and_nothing_else(void **state)
{
	(void)state;
	for (int phase = 0; phase < UC_VOLUME_PHASE_COUNT; phase++) {
		const char *before;

		local_have("v1", 4);
		before = local_files();
		assert_int_equal(repair((enum uc_volume_phase)phase),
				 phase == UC_VOLUME_READY ? 0 : 1);
		assert_string_equal(local_files(), phase == UC_VOLUME_READY ? before : NO_FILES);
		assert_int_equal(local_remove("v1", NULL), 0);
	}
}

static void a_repair_that_fails_is_made_again(void **state)
{
	(void)state;
	local_have("v1", 4);
	assert_int_equal(rename("p2/.union-csi-pool", "marker"), 0);
	assert_true(repair(UC_VOLUME_CREATING) < 0);
	assert_int_equal(rename("marker", "p2/.union-csi-pool"), 0);
	assert_int_equal(repair(UC_VOLUME_CREATING), 1);
	assert_string_equal(local_files(), NO_FILES);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_volume_is_attached_once_and_may_be_so_again),
		T(an_attachment_that_differs_is_refused),
		T(only_what_exists_is_attached),
		T(what_is_not_attached_is_detached_already),
		T(a_volume_that_is_staged_is_not_detached),
		T(attaching_and_detaching_fail_whole),
		T(volumes_are_listed_in_order_from_anywhere),
		T(a_list_ends_where_the_caller_wants),
		T(the_largest_volume_fits_the_tightest_disk),
		T(pools_on_one_disk_share_its_space),
		T(a_largest_branch_makes_more_branches),
		T(what_is_promised_can_be_made),
		T(a_disk_that_does_not_answer_has_no_capacity),
		T(a_pool_that_was_left_out_is_missed_while_a_volume_uses_it),
		T(what_a_crash_interrupted_is_removed_and_nothing_else),
		T(a_repair_that_fails_is_made_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
