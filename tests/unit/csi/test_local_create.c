/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"

#include "tests/lib/call.h"
#include "tests/lib/local.h"
#include "tests/lib/no_loopdevs.h"
#include "tests/lib/steps_dirs.h"
#include "tests/lib/steps_sync.h"
#include "tests/lib/steps_write.h"

#include "csi/status.h"
#include "lib/base/macros.h"
#include "lib/base/size.h"
#include "lib/os/statfs.h"

/* ------------------------------------------------------------ what changes disks */

static int fallocate_errno; /* of a filesystem that cannot */

int __wrap_fallocate64(int fd, int mode, off_t offset, off_t n);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t n)
{
	assert_int_equal(mode, 0);
	assert_int_equal(offset, 0);
	if (fallocate_errno) {
		errno = fallocate_errno;
		return -1;
	}
	return fails() ? -1 : ftruncate(fd, n);
}

int __real_openat64(int dirfd, const char *path, int flags, ...);
int __wrap_openat64(int dirfd, const char *path, int flags, ...);
int __wrap_openat64(int dirfd, const char *path, int flags, ...)
{
	if (flags & O_CREAT && fails())
		return -1;
	return __real_openat64(dirfd, path, flags, 0600);
}

static uint64_t available;

int __wrap_uc_statfs_bounded(int fd, uint64_t timeout_ms, struct uc_statfs *ret,
			     struct uc_err *err);
int __wrap_uc_statfs_bounded(int fd, uint64_t timeout_ms, struct uc_statfs *ret, struct uc_err *err)
{
	(void)fd;
	(void)timeout_ms;
	(void)err;
	*ret = (struct uc_statfs){ .available = available };
	return 0;
}

static struct uc_call call;

static int set_up(void **state)
{
	(void)state;
	fallocate_errno = 0;
	loopdev_find_result = -ENOENT;
	available = UC_GIB;
	local_begin(false);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	local_end();
	return 0;
}

/* The files of volume v1 with four branches on three pools. */
#define FOUR "v1.0.img v1.0.json v1.3.img v1.3.json | v1.1.img v1.1.json | v1.2.img v1.2.json | v1 "

static void check_refused(const struct csi_create *c, enum uc_grpc_status status,
			  const char *reason)
{
	struct uc_err err = { 0 };

	assert_true(local_create(c, &err) < 0);
	assert_int_equal(csi_status(&err), status);
	if (!strstr(err.msg, reason))
		fail_msg("`%s` lacks `%s`", err.msg, reason);
}

static void check_volume(void)
{
	cleanup_volume struct uc_volume v = local_load("v1");
	uint64_t sum = 0;

	assert_string_equal(local_files(), FOUR);
	assert_int_equal(v.phase, UC_VOLUME_READY);
	assert_int_equal(v.n_branches, 4);
	for (size_t i = 0; i < v.n_branches; i++) {
		char path[128];
		struct stat st;

		snprintf(path, sizeof(path), "p%zu/v1.%zu.img", i % 3, i);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_size, v.branches[i].size);
		assert_int_equal(st.st_mode, S_IFREG | 0600);
		assert_int_equal(v.branches[i].format, UC_FORMAT_NEVER);
		sum += v.branches[i].size;
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(v.branches[i].uuid, v.branches[k].uuid);
	}
	assert_int_equal(sum, v.capacity);
	assert_int_equal(v.capacity, 4 << 24);
}

/* --------------------------------------------------------------------- creation */

static void a_volume_is_its_files_and_its_state(void **state)
{
	struct csi_create c = local_want("v1", 4);
	cleanup_volume_info struct csi_volume_info info = { .capacity = 0 };
	struct csi_op op = local_op("v1");

	(void)state;
	assert_int_equal(local->base.ops->create(&local->base, &op, &c, &info, NULL), 0);
	assert_string_equal(info.id, "v1");
	assert_int_equal(info.capacity, 4 << 24);
	assert_null(info.node_ids);
	check_volume();
}

static void the_file_beside_each_branch_describes_the_volume(void **state)
{
	cleanup_volume struct uc_volume v = { .n_branches = 0 }, found = { .n_branches = 0 };
	size_t index = 99;
	int fd = open_dir("p1");

	(void)state;
	local_have("v1", 4);
	v = local_load("v1");
	assert_int_equal(csi_sidecar_read(fd, "v1.1.json", &found, &index, NULL), 0);
	close(fd);
	assert_int_equal(index, 1);
	assert_string_equal(found.id, "v1");
	assert_int_equal(found.phase, UC_VOLUME_READY);
	assert_int_equal(found.n_branches, 4);
	for (size_t k = 0; k < 4; k++)
		assert_string_equal(found.branches[k].uuid, v.branches[k].uuid);
}

static void a_creation_that_fails_at_any_step_leaves_nothing(void **state)
{
	struct csi_create c = local_want("v1", 4);
	unsigned n;

	(void)state;
	for (n = 1; n < 500; n++) {
		struct uc_err err = { 0 };
		int r;

		fail_step(n, false);
		r = local_create(&c, &err);
		fail_nothing();
		if (r == 0)
			break;
		assert_int_equal(r, -EIO);
		if (strcmp(local_files(), NO_FILES) != 0)
			fail_msg("step %u: %s", n, local_files());
	}
	assert_in_range(n, 40, 200);
	check_volume();
}

static void a_creation_that_is_cut_off_at_any_step_is_made_by_the_retry(void **state)
{
	struct csi_create c = local_want("v1", 4);
	unsigned n;

	(void)state;
	for (n = 1; n < 500; n++) {
		int r;

		fail_step(n, true);
		r = local_create(&c, NULL);
		fail_nothing();
		if (r == 0)
			break;
		local_have("v1", 4);
		check_volume();
		assert_int_equal(local_remove("v1", NULL), 0);
		assert_string_equal(local_files(), NO_FILES);
	}
	assert_in_range(n, 40, 200);
}

static void what_is_cut_off_is_nobodys_and_can_be_removed(void **state)
{
	struct csi_create c = local_want("v1", 4);
	unsigned n;

	(void)state;
	for (n = 1; n < 500; n++) {
		struct csi_volume_info info;
		struct uc_err err = { 0 };
		int r;

		fail_step(n, true);
		r = local_create(&c, NULL);
		fail_nothing();
		if (r == 0)
			break;
		/* Unless only the last sync was missing. */
		if (local->base.ops->get(&local->base, "v1", &info, &err) < 0)
			assert_int_equal(err.status, UC_GRPC_NOT_FOUND);
		else
			csi_volume_info_done(&info);
		assert_int_equal(local_remove("v1", NULL), 0);
		assert_string_equal(local_files(), NO_FILES);
	}
	assert_in_range(n, 40, 200);
}

static void a_creation_that_is_given_up_at_any_step_leaves_nothing(void **state)
{
	struct csi_create c = local_want("v1", 4);
	struct csi_op op = { .call = &call, .volume_id = "v1" };
	unsigned n;

	(void)state;
	for (n = 1; n < 50; n++) {
		struct csi_volume_info info;
		struct uc_err err = { 0 };

		fake_call_init(&call, NULL, "CreateVolume");
		call.cancel_at = n;
		if (local->base.ops->create(&local->base, &op, &c, &info, &err) == 0) {
			csi_volume_info_done(&info);
			break;
		}
		assert_int_equal(err.status, UC_GRPC_ABORTED);
		assert_string_equal(local_files(), NO_FILES);
	}
	assert_int_equal(n, 6); /* record, and four branches */
}

static void a_repeated_call_finds_the_volume(void **state)
{
	struct csi_create c = local_want("v1", 4);
	const char *before;

	(void)state;
	local_have("v1", 4);
	before = file_text("s/volumes/v1/state.json");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(local_create(&c, NULL), 0);
		check_volume();
	}
	assert_string_equal(file_text("s/volumes/v1/state.json"), before);
	/* Also one that is wider. */
	c.required = 0;
	assert_int_equal(local_create(&c, NULL), 0);
	c.required = 3 << 24;
	c.limit = 5 << 24;
	assert_int_equal(local_create(&c, NULL), 0);
}

static void a_volume_that_differs_is_refused_and_stays(void **state)
{
	static const struct {
		const char *name, *fstype;
		uint64_t required, limit;
		struct uc_params params;
		const char *reason;
	} cases[] = {
		{ .name = "other", .reason = "is taken by the volume named `v1`" },
		{ .required = (4 << 24) + 1, .reason = "67108865" },
		{ .required = 1, .limit = (4 << 24) - 1, .reason = "67108863" },
		{ .fstype = "xfs", .reason = "filesystem ext4, not xfs" },
		{ .params = { .branches = 5 }, .reason = "other parameters" },
		{ .params = { .branches = 4, .max_branch_size = 1 << 30 },
		  .reason = "other parameters" },
		{ .params = { .branches = 4, .policy = UC_POLICY_EPMFS },
		  .reason = "other parameters" },
		{ .params = { .branches = 4, .min_free_space = 1 }, .reason = "other parameters" },
	};

	(void)state;
	local_have("v1", 4);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct csi_create c = local_want("v1", 4);

		c.name = cases[i].name ? cases[i].name : c.name;
		c.fstype = cases[i].fstype ? cases[i].fstype : c.fstype;
		c.required = cases[i].required ? cases[i].required : c.required;
		c.limit = cases[i].limit;
		c.params = cases[i].params.branches ? cases[i].params : c.params;
		check_refused(&c, UC_GRPC_ALREADY_EXISTS, cases[i].reason);
		check_volume();
	}
}

static void sizes_that_cannot_be_are_out_of_range(void **state)
{
	struct csi_create c = local_want("v1", 4);

	(void)state;
	c.required = 4096; /* four branches of the smallest size are more than the limit */
	c.limit = 8192;
	check_refused(&c, UC_GRPC_OUT_OF_RANGE, "create volume `v1`");
	c = local_want("v1", 4);
	c.limit = c.required - 1;
	check_refused(&c, UC_GRPC_OUT_OF_RANGE, "");
	c = local_want("v1", 1);
	c.required = UC_GIB;
	c.params.max_branch_size =
		UC_GIB / 2000; /* more branches than there may be, or too small */
	check_refused(&c, UC_GRPC_OUT_OF_RANGE, "");
	assert_string_equal(local_files(), NO_FILES);
}

static void no_more_is_taken_than_a_disk_has(void **state)
{
	struct csi_create c = local_want("v1", 4);

	(void)state;
	/* The pools are on one disk here, so that it needs all four. */
	available = (4 << 24) + 4 * CSI_BRANCH_OVERHEAD - 1;
	check_refused(&c, UC_GRPC_RESOURCE_EXHAUSTED,
		      "has 71303167 bytes free, 71303168 are needed");
	assert_string_equal(local_files(), NO_FILES);
	available++;
	assert_int_equal(local_create(&c, NULL), 0);
}

static void a_thin_volume_takes_nothing_yet(void **state)
{
	struct csi_create c = local_want("v1", 4);
	struct stat st;

	(void)state;
	local_close();
	local_open(true);
	available = 0;
	fallocate_errno = ENOSPC;
	assert_int_equal(local_create(&c, NULL), 0);
	check_volume();
	assert_int_equal(stat("p0/v1.0.img", &st), 0);
	assert_int_equal(st.st_blocks, 0);
}

static void a_disk_that_cannot_reserve_says_so(void **state)
{
	struct csi_create c = local_want("v1", 4);

	(void)state;
	fallocate_errno = EOPNOTSUPP;
	check_refused(&c, UC_GRPC_FAILED_PRECONDITION, "use --thin");
	fallocate_errno = ENOSPC;
	available = 80 << 20;
	check_refused(&c, UC_GRPC_RESOURCE_EXHAUSTED,
		      "allocate 16777216 bytes for `v1.0.img`: the pool has 83886080 bytes free");
	fallocate_errno = EFBIG;
	check_refused(&c, UC_GRPC_OUT_OF_RANGE, "allocate 16777216 bytes for `v1.0.img`");
	assert_string_equal(local_files(), NO_FILES);
}

static void files_whose_state_is_lost_are_not_built_upon(void **state)
{
	static const char *const names[] = { "p0/v1.0.img", "p2/v1.3.img", "p1/v1.0.json" };
	struct csi_create c = local_want("v1", 4);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		write_file(names[i], "data");
		check_refused(&c, UC_GRPC_FAILED_PRECONDITION, names[i] + 3);
		assert_string_equal(file_text(names[i]), "data");
		unlink(names[i]);
		assert_string_equal(local_files(), NO_FILES);
	}
	/* Another volume's do not matter. */
	write_file("p0/v1.4.img", "data");
	write_file("p0/v11.0.img", "data");
	assert_int_equal(local_create(&c, NULL), 0);
}

static void a_missing_pool_lets_nothing_be_created(void **state)
{
	struct csi_create c = local_want("v1", 2);

	(void)state;
	unlink("p2/.union-csi-pool");
	check_refused(&c, UC_GRPC_UNAVAILABLE, "p2");
	assert_string_equal(local_files(), NO_FILES);
}

static void a_volume_that_somebody_works_on_is_busy(void **state)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	struct csi_create c = local_want("v1", 2);

	(void)state;
	assert_int_equal(uc_volume_lock(&store, "v1", true, &lock, NULL), 0);
	check_refused(&c, UC_GRPC_ABORTED, "busy");
	assert_int_equal(local_remove("v1", NULL), -EBUSY);
}

/* ---------------------------------------------------------------------- removal */

static void a_removal_leaves_nothing_and_may_be_repeated(void **state)
{
	(void)state;
	local_have("v1", 4);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(local_remove("v1", NULL), 0);
		assert_string_equal(local_files(), NO_FILES);
	}
	assert_int_equal(local_remove("never", NULL), 0);
	assert_int_equal(local_remove("../../etc", NULL), 0);
}

static void a_removal_that_fails_at_any_step_is_finished_by_the_retry(void **state)
{
	for (int all = 0; all < 2; all++) {
		unsigned n;

		(void)state;
		for (n = 1; n < 500; n++) {
			int r;

			local_have("v1", 4);
			fail_step(n, all);
			r = local_remove("v1", NULL);
			fail_nothing();
			assert_int_equal(local_remove("v1", NULL), 0);
			assert_string_equal(local_files(), NO_FILES);
			if (r == 0)
				break;
			assert_int_equal(r, -EIO);
		}
		assert_in_range(n, 15, 100);
	}
}

static void a_removal_that_was_begun_is_not_taken_back_by_a_creation(void **state)
{
	struct csi_create c = local_want("v1", 4);
	cleanup_volume struct uc_volume before = { .n_branches = 0 }, after = { .n_branches = 0 };

	(void)state;
	local_have("v1", 4);
	before = local_load("v1");
	fail_step(12, true);
	assert_int_equal(local_remove("v1", NULL), -EIO);
	fail_nothing();
	assert_int_equal(local_create(&c, NULL), 0);
	check_volume();
	after = local_load("v1");
	assert_string_not_equal(before.branches[0].uuid, after.branches[0].uuid);
}

static void a_volume_in_use_is_not_removed(void **state)
{
	struct uc_volume v;
	struct uc_err err = { 0 };

	(void)state;
	local_have("v1", 4);
	v = local_load("v1");
	uc_volume_add_attachment(&v, "node-1", false, 1);
	local_store(&v);
	assert_int_equal(local_remove("v1", &err), -EPERM);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(strstr(err.msg, "`node-1`"));

	v = local_load("v1");
	uc_volume_remove_attachment(&v, &v.attachments[0]);
	v.stage.phase = UC_STAGE_UNSTAGING;
	v.stage.path = strdup("/stage");
	v.stage.boot_id = strdup("b");
	v.stage.access_mode = 1;
	local_store(&v);
	assert_int_equal(local_remove("v1", &err), -EPERM);
	assert_non_null(strstr(err.msg, "unstaging at `/stage`"));

	v = local_load("v1");
	uc_stage_done(&v.stage);
	local_store(&v);
	check_volume();
	assert_int_equal(local_remove("v1", NULL), 0);
}

static void a_volume_of_which_something_is_up_is_not_removed(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	local_have("v1", 4);
	loopdev_find_result = -EIO; /* who knows whether it has a device */
	for (int i = 0; i < 2; i++) {
		assert_true(local_remove("v1", &err) < 0);
		assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
		check_volume();
	}
	loopdev_find_result = -ENOENT;
	assert_int_equal(local_remove("v1", NULL), 0);
	assert_string_equal(local_files(), NO_FILES);
}

static void files_of_another_volume_of_that_name_are_not_removed(void **state)
{
	struct uc_err err = { 0 };
	struct uc_volume v;

	(void)state;
	local_have("v1", 4);
	v = local_load("v1");
	v.branches[2].uuid[0] = v.branches[2].uuid[0] == '0' ? '1' : '0';
	local_store(&v);
	assert_int_equal(local_remove("v1", &err), -EPERM);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(strstr(err.msg, "`v1.2.img` belongs to another volume"));
	assert_string_equal(listing("p2"), ".union-csi-pool v1.2.img v1.2.json ");
}

static void a_branch_without_its_description_is_not_removed(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	local_have("v1", 4);
	unlink("p1/v1.1.json");
	assert_int_equal(local_remove("v1", &err), -EPERM);
	assert_non_null(strstr(err.msg, "`v1.1.img` has no `v1.1.json` beside it"));
	assert_true(file_exists("p1/v1.1.img"));
	write_file("p1/v1.1.json", "{}");
	assert_true(local_remove("v1", &err) < 0);
	assert_true(file_exists("p1/v1.1.img"));
}

static void branches_that_are_gone_already_do_not_matter(void **state)
{
	(void)state;
	local_have("v1", 4);
	unlink("p0/v1.0.img");
	unlink("p1/v1.1.img");
	unlink("p1/v1.1.json");
	assert_int_equal(local_remove("v1", NULL), 0);
	assert_string_equal(local_files(), NO_FILES);
}

static void a_removal_waits_for_a_pool_that_is_missing(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	local_have("v1", 4);
	assert_int_equal(rename("p2/.union-csi-pool", "marker"), 0);
	assert_true(local_remove("v1", &err) < 0);
	assert_int_equal(err.status, UC_GRPC_UNAVAILABLE);
	assert_true(file_exists("p2/v1.2.img"));
	assert_true(file_exists("s/volumes/v1/state.json"));
	assert_int_equal(rename("marker", "p2/.union-csi-pool"), 0);
	assert_int_equal(local_remove("v1", NULL), 0);
	assert_string_equal(local_files(), NO_FILES);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_volume_is_its_files_and_its_state),
		T(the_file_beside_each_branch_describes_the_volume),
		T(a_creation_that_fails_at_any_step_leaves_nothing),
		T(a_creation_that_is_cut_off_at_any_step_is_made_by_the_retry),
		T(what_is_cut_off_is_nobodys_and_can_be_removed),
		T(a_creation_that_is_given_up_at_any_step_leaves_nothing),
		T(a_repeated_call_finds_the_volume),
		T(a_volume_that_differs_is_refused_and_stays),
		T(sizes_that_cannot_be_are_out_of_range),
		T(no_more_is_taken_than_a_disk_has),
		T(a_thin_volume_takes_nothing_yet),
		T(a_disk_that_cannot_reserve_says_so),
		T(files_whose_state_is_lost_are_not_built_upon),
		T(a_missing_pool_lets_nothing_be_created),
		T(a_volume_that_somebody_works_on_is_busy),
		T(a_removal_leaves_nothing_and_may_be_repeated),
		T(a_removal_that_fails_at_any_step_is_finished_by_the_retry),
		T(a_removal_that_was_begun_is_not_taken_back_by_a_creation),
		T(a_volume_in_use_is_not_removed),
		T(a_volume_of_which_something_is_up_is_not_removed),
		T(files_of_another_volume_of_that_name_are_not_removed),
		T(a_branch_without_its_description_is_not_removed),
		T(branches_that_are_gone_already_do_not_matter),
		T(a_removal_waits_for_a_pool_that_is_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
