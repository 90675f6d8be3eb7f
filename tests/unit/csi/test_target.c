/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/mounting.h"
#include "tests/lib/unit.h"
#include "tests/lib/volume.h"
#include <limits.h>
#include <sys/mount.h>

#include "csi/target.h"
#include "lib/base/macros.h"
#include "lib/os/statfs.h"
#include "lib/rpc/status.h"

/* ------------------------------------------------------------------ a fake world */

static int statfs_result;

int __wrap_uc_statfs_bounded(int fd, uint64_t timeout_ms, struct uc_statfs *ret,
			     struct uc_err *err);
int __wrap_uc_statfs_bounded(int fd, uint64_t timeout_ms, struct uc_statfs *ret, struct uc_err *err)
{
	(void)fd;
	(void)timeout_ms;
	(void)ret;
	(void)err;
	return statfs_result;
}

static bool owns_mount(struct csi_backend *b, const struct uc_volume *v,
		       const struct uc_mount_info *info)
{
	(void)b;
	return strcmp(info->fstype, "ext4") == 0 && strcmp(info->source, v->id) == 0;
}

static const struct csi_backend_ops ops = { .owns_mount = owns_mount };
static struct csi_backend backend = { .ops = &ops };

/* Each test has the roots k/ and m/, the volume v1, and its mount at merged/. */
static struct csi_roots roots;
static struct uc_volume volume;
static int merged = -1;
static char cwd[2000];
static size_t fds_before;

static int set_up(void **state)
{
	(void)state;
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	fake_mounts_reset();
	statfs_result = 0;
	fresh_dir("k");
	fresh_dir("m");
	fresh_dir("merged");
	make_dir("k/pods");
	fds_before = open_fds();
	assert_int_equal(csi_roots_add(&roots, "k", NULL), 0);
	assert_int_equal(csi_roots_add(&roots, "m/", NULL), 0);
	volume = make_volume("v1", 1);
	fake_mount_add("merged", "ext4", "v1");
	merged = open("merged", O_PATH | O_CLOEXEC);
	return 0;
}

/* What check() gave last. */
static char *spelling;

static int tear_down(void **state)
{
	(void)state;
	free(spelling);
	spelling = NULL;
	close(merged);
	uc_volume_done(&volume);
	csi_roots_done(&roots);
	csi_roots_done(&roots);
	assert_int_equal(open_fds(), fds_before);
	return 0;
}

/* "k/a" -> its absolute path.  Good until the next call but three. */
static const char *absolute(const char *rel)
{
	static char buffers[4][8192];
	static unsigned turn;
	char *to = buffers[turn++ % 4];

	snprintf(to, sizeof(buffers[0]), "%s/%s", cwd, rel);
	return to;
}

static struct csi_target open_target(const char *rel)
{
	struct csi_target t = CSI_TARGET_INIT;
	struct uc_err err = { 0 };

	if (csi_target_open(&roots, "target_path", absolute(rel), &t, &err) < 0)
		fail_msg("%s", err.msg);
	return t;
}

static void check_status(const struct uc_err *err, enum uc_grpc_status status, const char *reason)
{
	assert_int_equal(err->status, status);
	if (!strstr(err->msg, reason))
		fail_msg("`%s` lacks `%s`", err->msg, reason);
}

/* ----------------------------------------------------------------------- opening */

static void what_is_not_a_directory_is_no_root(void **state)
{
	(void)state;
	write_file("file", "x");
	assert_int_equal(csi_roots_add(&roots, "file", NULL), -ENOTDIR);
	assert_int_equal(csi_roots_add(&roots, "", NULL), -EINVAL);
	assert_int_equal(roots.n, 2);
}

static int check(const char *path, struct uc_err *err)
{
	free(spelling);
	spelling = NULL;
	return csi_target_check(&roots, "target_path", path, &spelling, err);
}

static void a_path_has_one_spelling(void **state)
{
	(void)state;
	assert_int_equal(check(absolute("k//pods///1/"), NULL), 0);
	assert_string_equal(spelling, absolute("k/pods/1"));
	unlink("name");
	assert_int_equal(symlink("m", "name"), 0);
	assert_int_equal(csi_roots_add(&roots, "name", NULL), 0);
	assert_int_equal(check(absolute("name/a/"), NULL), 0);
	assert_string_equal(spelling, absolute("name/a"));
	assert_int_equal(check("", NULL), -EINVAL);
	assert_null(spelling);
}

static void a_root_that_is_made_later_is_used_then(void **state)
{
	struct csi_target t = CSI_TARGET_INIT;
	struct uc_err err = { 0 };

	(void)state;
	remove_tree("late");
	assert_int_equal(csi_roots_add(&roots, "late", NULL), -ENOENT);
	assert_int_equal(check(absolute("late/a"), &err), 0);
	assert_int_equal(csi_target_open(&roots, "target_path", absolute("late/a"), &t, &err),
			 -ENOENT);
	check_status(&err, UC_GRPC_FAILED_PRECONDITION, "the directory above it is missing");
	make_dir("late");
	t = open_target("late/a");
	csi_target_done(&t);
	remove_tree("late");
	make_dir("late");
	make_dir("late/pods");
	t = open_target("late/pods/a");
	csi_target_done(&t);
}

static void a_root_that_is_a_symlink_is_known_by_both_names(void **state)
{
	struct csi_target t;

	(void)state;
	unlink("name");
	assert_int_equal(symlink("k", "name"), 0);
	assert_int_equal(csi_roots_add(&roots, "name", NULL), 0);
	t = open_target("name/pods/a");
	csi_target_done(&t);
	t = open_target("k/pods/a");
	csi_target_done(&t);
}

static void a_path_below_any_root_is_accepted(void **state)
{
	static const char *const rows[] = {
		"k/a", "m/a", "k/pods/1", "k/absent/anything", "k//pods/", "/k/pods/x//", "k/..."
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(check(absolute(rows[i]), NULL), 0);
}

static void a_path_that_is_not_below_a_root_is_refused_by_field_and_value(void **state)
{
	static const char *const rows[] = { "k",           "k/",       "m",     "",
					    "other/a",     "k-evil/a", "kk/a",  "k/..",
					    "k/../merged", "k/a/../b", "k/./a", "./k/a",
					    "k/a/." };
	struct uc_err err = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct csi_target t = CSI_TARGET_INIT;

		assert_int_equal(check(absolute(rows[i]), &err), -EINVAL);
		check_status(&err, UC_GRPC_INVALID_ARGUMENT, "target_path `");
		assert_int_equal(
			csi_target_open(&roots, "target_path", absolute(rows[i]), &t, &err),
			-EINVAL);
		assert_int_equal(t.parent_fd, -1);
		assert_null(t.rel);
	}
	assert_int_equal(check("k/a", &err), -EINVAL);
	check_status(&err, UC_GRPC_INVALID_ARGUMENT, "target_path `k/a`");
	assert_int_equal(check("", &err), -EINVAL);
	check_status(&err, UC_GRPC_INVALID_ARGUMENT, "target_path is missing");
}

static void a_path_that_is_too_long_is_refused(void **state)
{
	static char path[2 * PATH_MAX];
	struct uc_err err = { 0 };
	size_t n;

	(void)state;
	snprintf(path, sizeof(path), "%s/", absolute("k"));
	for (n = strlen(path); n < PATH_MAX; n++)
		path[n] = n % 100 ? 'x' : '/';
	assert_int_equal(check(path, &err), -EINVAL);
	check_status(&err, UC_GRPC_INVALID_ARGUMENT, "target_path has 4096 bytes, more than 4095");
	path[PATH_MAX - 1] = '\0';
	assert_int_equal(check(path, NULL), 0);
}

static void the_parent_of_a_target_is_open(void **state)
{
	struct csi_target t = open_target("k/pods//1/");
	struct stat is, expected;

	(void)state;
	assert_string_equal(t.name, "1");
	assert_int_equal(fstat(t.parent_fd, &is), 0);
	assert_int_equal(stat("k/pods", &expected), 0);
	assert_int_equal(is.st_ino, expected.st_ino);
	csi_target_done(&t);
	assert_int_equal(t.parent_fd, -1);
	csi_target_done(&t);
}

static void what_leads_through_a_symlink_or_a_file_is_refused(void **state)
{
	static const struct {
		const char *path;
		int r;
		enum uc_grpc_status status;
		const char *reason;
	} rows[] = {
		{ "k/link/a", -EINVAL, UC_GRPC_INVALID_ARGUMENT, "leads through" },
		{ "k/away/a", -EINVAL, UC_GRPC_INVALID_ARGUMENT, "leads through" },
		{ "k/file/a", -EINVAL, UC_GRPC_INVALID_ARGUMENT, "leads through" },
		{ "k/absent/a", -ENOENT, UC_GRPC_FAILED_PRECONDITION,
		  "the directory above it is missing" },
	};

	(void)state;
	assert_int_equal(symlink("pods", "k/link"), 0);
	assert_int_equal(symlink(absolute("merged"), "k/away"), 0);
	write_file("k/file", "x");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct csi_target t = CSI_TARGET_INIT;
		struct uc_err err = { 0 };

		assert_int_equal(
			csi_target_open(&roots, "target_path", absolute(rows[i].path), &t, &err),
			rows[i].r);
		check_status(&err, rows[i].status, rows[i].reason);
		if (strlen(absolute(rows[i].path)) < 190) /* longer ones are cut */
			assert_non_null(strstr(err.msg, rows[i].path));
		assert_null(t.rel);
	}
}

static void a_name_that_is_too_long_is_refused(void **state)
{
	char path[1000] = "k/";
	struct csi_target t = CSI_TARGET_INIT;
	struct uc_err err = { 0 };

	(void)state;
	memset(path + 2, 'x', NAME_MAX);
	assert_int_equal(check(absolute(path), &err), 0);
	path[2 + NAME_MAX] = 'x';
	assert_int_equal(csi_target_open(&roots, "target_path", absolute(path), &t, &err), -EINVAL);
	check_status(&err, UC_GRPC_INVALID_ARGUMENT,
		     "target_path has a component of 256 bytes, more than 255");
	strcat(path, "/a");
	assert_int_equal(check(absolute(path), NULL), -EINVAL);
}

/* ---------------------------------------------------------------------- mounting */

static int mount_at(const char *rel, struct uc_err *err)
{
	cleanup_target struct csi_target t = open_target(rel);

	return csi_target_mount(&t, &backend, &volume, merged, 1, 2, err);
}

static void a_target_is_made_and_mounted_with_its_attributes(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(mount_at("k/pods/1", NULL), 0);
	assert_string_equal(fake_mount_at("k/pods/1")->source, "v1");
	assert_int_equal(fake_mount_at("k/pods/1")->attr_set, 1);
	assert_int_equal(fake_mount_at("k/pods/1")->attr_clr, 2);
	assert_int_equal(stat("k/pods/1", &st), 0);
	assert_int_equal(st.st_mode & 0027, 0); /* nothing for others */
}

static void a_directory_that_is_there_and_empty_is_mounted_on(void **state)
{
	(void)state;
	make_dir("k/pods/1");
	assert_int_equal(mount_at("k/pods/1", NULL), 0);
	assert_non_null(fake_mount_at("k/pods/1"));
}

static void a_target_that_is_mounted_already_is_left_as_it_is(void **state)
{
	(void)state;
	assert_int_equal(mount_at("k/pods/1", NULL), 0);
	assert_int_equal(mount_at("k/pods/1", NULL), 0);
	assert_int_equal(fake_mounts.clones, 1);
	assert_int_equal(fake_mounts_attached(), 2);
}

static void something_else_at_the_target_is_refused_and_named(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	make_dir("k/pods/1");
	fake_mount_add("k/pods/1", "nfs", "server:/export");
	assert_true(mount_at("k/pods/1", &err) < 0);
	check_status(&err, UC_GRPC_FAILED_PRECONDITION, "`server:/export` (nfs) is mounted at `1`");
	assert_int_equal(fake_mounts.clones, 0);
}

static void what_a_mount_would_hide_is_refused(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	make_dir("k/pods/1");
	write_file("k/pods/1/data", "precious");
	assert_true(mount_at("k/pods/1", &err) < 0);
	check_status(&err, UC_GRPC_FAILED_PRECONDITION, "`1` is not empty");
	write_file("k/pods/2", "a file");
	assert_true(mount_at("k/pods/2", &err) < 0);
	check_status(&err, UC_GRPC_FAILED_PRECONDITION, "`2` is not a directory");
	assert_int_equal(symlink(absolute("m"), "k/pods/3"), 0);
	assert_true(mount_at("k/pods/3", &err) < 0);
	check_status(&err, UC_GRPC_FAILED_PRECONDITION, "`3` is not a directory");
	assert_int_equal(fake_mounts_attached(), 1);
}

static void a_mount_that_fails_leaves_no_mount_and_no_descriptor(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	fake_mounts.clone_result = -EINVAL;
	assert_true(mount_at("k/pods/1", &err) < 0);
	check_status(&err, UC_GRPC_FAILED_PRECONDITION, "volume `v1` is not mounted");
	fake_mounts.clone_result = -EPERM;
	assert_int_equal(mount_at("k/pods/1", NULL), -EPERM);
	fake_mounts.clone_result = 0;
	fake_mounts.attach_result = -ENOMEM;
	assert_int_equal(mount_at("k/pods/1", NULL), -ENOMEM);
	fake_mounts.attach_result = 0;
	assert_int_equal(fake_mounts_attached(), 1);
	assert_int_equal(mount_at("k/pods/1", NULL), 0);
}

/* ----------------------------------------------------------------------- looking */

static void a_look_tells_mounts_from_directories_and_nothing(void **state)
{
	cleanup_mount_info struct uc_mount_info info = { 0 };
	cleanup_target struct csi_target t = open_target("k/pods/1");

	(void)state;
	assert_int_equal(csi_target_look(&t, &info, NULL), 0);
	make_dir("k/pods/1");
	assert_int_equal(csi_target_look(&t, &info, NULL), 0);
	fake_mount_add("k/pods/1", "ext4", "v1");
	assert_int_equal(csi_target_look(&t, &info, NULL), 1);
	assert_string_equal(info.source, "v1");
}

/* -------------------------------------------------------------------- unmounting */

static int unmount_at(const char *rel, const struct uc_volume *v, bool remove, struct uc_err *err)
{
	cleanup_target struct csi_target t = open_target(rel);

	return csi_target_unmount(&t, &backend, v, "v1", remove, err);
}

static void a_target_is_unmounted_and_its_directory_removed_if_asked_for(void **state)
{
	(void)state;
	assert_int_equal(mount_at("k/pods/1", NULL), 0);
	assert_int_equal(unmount_at("k/pods/1", &volume, false, NULL), 0);
	assert_null(fake_mount_at("k/pods/1"));
	assert_true(file_exists("k/pods/1"));
	assert_int_equal(mount_at("k/pods/1", NULL), 0);
	assert_int_equal(unmount_at("k/pods/1", &volume, true, NULL), 0);
	assert_false(file_exists("k/pods/1"));
	assert_int_equal(fake_mounts.last_unmount_flags, 0); /* not from under anybody */
}

static void a_target_that_is_not_mounted_or_not_there_is_fine(void **state)
{
	(void)state;
	assert_int_equal(unmount_at("k/pods/1", &volume, true, NULL), 0);
	make_dir("k/pods/1");
	assert_int_equal(unmount_at("k/pods/1", &volume, true, NULL), 0);
	assert_false(file_exists("k/pods/1"));
	assert_int_equal(fake_mounts.unmounts, 0);
}

static void all_layers_of_the_volume_are_removed(void **state)
{
	(void)state;
	make_dir("k/pods/1");
	for (int i = 0; i < 3; i++)
		fake_mount_add("k/pods/1", "ext4", "v1");
	assert_int_equal(unmount_at("k/pods/1", &volume, true, NULL), 0);
	assert_int_equal(fake_mounts.unmounts, 3);
	assert_int_equal(fake_mounts_attached(), 1);
}

static void what_is_not_the_volumes_is_left_mounted(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	make_dir("k/pods/1");
	fake_mount_add("k/pods/1", "ext4", "v1");
	fake_mount_add("k/pods/1", "tmpfs", "tmpfs");
	assert_true(unmount_at("k/pods/1", &volume, true, &err) < 0);
	check_status(&err, UC_GRPC_FAILED_PRECONDITION, "it is not volume `v1`");
	assert_int_equal(fake_mounts.unmounts, 0);
}

static void of_an_unknown_volume_only_its_own_union_is_removed(void **state)
{
	static const struct {
		const char *fstype, *source;
		bool own;
	} rows[] = {
		{ "fuse.union-fs", "v1", true },
		{ "fuse.union-fs", "v2", false },
		{ "fuse", "v1", false },
		{ "ext4", "v1", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_err err = { 0 };

		fresh_dir("k/pods/1");
		fake_mount_add("k/pods/1", rows[i].fstype, rows[i].source);
		if (rows[i].own) {
			assert_int_equal(unmount_at("k/pods/1", NULL, true, NULL), 0);
			assert_false(file_exists("k/pods/1"));
			continue;
		}
		assert_true(unmount_at("k/pods/1", NULL, true, &err) < 0);
		check_status(&err, UC_GRPC_FAILED_PRECONDITION, "it is not volume `v1`");
		fake_mount_remove(fake_mount_at("k/pods/1"));
	}
}

static void a_directory_that_is_not_empty_is_left_alone(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	make_dir("k/pods/1");
	write_file("k/pods/1/data", "precious");
	assert_true(unmount_at("k/pods/1", &volume, true, &err) < 0);
	check_status(&err, UC_GRPC_FAILED_PRECONDITION, "left alone");
	assert_string_equal(file_text("k/pods/1/data"), "precious");
	write_file("k/pods/2", "a file");
	assert_true(unmount_at("k/pods/2", &volume, true, &err) < 0);
	check_status(&err, UC_GRPC_FAILED_PRECONDITION, "left alone");
	assert_string_equal(file_text("k/pods/2"), "a file");
}

static void a_living_mount_that_is_in_use_is_not_taken_away(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(mount_at("k/pods/1", NULL), 0);
	fake_mounts.busy = 1;
	assert_int_equal(unmount_at("k/pods/1", &volume, true, &err), -EBUSY);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(fake_mount_at("k/pods/1"));
}

static void a_dead_or_hung_mount_that_is_in_use_is_detached(void **state)
{
	static const int results[] = { -ENOTCONN, -ETIMEDOUT };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(results); i++) {
		assert_int_equal(mount_at("k/pods/1", NULL), 0);
		statfs_result = results[i];
		fake_mounts.busy = 1;
		assert_int_equal(unmount_at("k/pods/1", &volume, true, NULL), 0);
		assert_int_equal(fake_mounts.last_unmount_flags, MNT_DETACH);
		assert_null(fake_mount_at("k/pods/1"));
	}
}

static void a_mount_of_a_server_that_was_replaced_is_replaced(void **state)
{
	(void)state;
	assert_int_equal(mount_at("k/pods/1", NULL), 0);
	fake_mount_remove(fake_mount_at("merged"));
	fake_mount_add("merged", "ext4", "v1");
	assert_int_equal(mount_at("k/pods/1", NULL), 0);
	assert_int_equal(fake_mount_at("k/pods/1")->dev, fake_mount_at("merged")->dev);
	assert_int_equal(fake_mounts_attached(), 2);
}

static void a_failed_unmount_is_reported(void **state)
{
	(void)state;
	assert_int_equal(mount_at("k/pods/1", NULL), 0);
	fake_mounts.unmount_result = -EPERM;
	assert_int_equal(unmount_at("k/pods/1", &volume, true, NULL), -EPERM);
	assert_true(file_exists("k/pods/1"));
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(what_is_not_a_directory_is_no_root),
		T(a_root_that_is_made_later_is_used_then),
		T(a_root_that_is_a_symlink_is_known_by_both_names),
		T(a_path_has_one_spelling),
		T(a_path_below_any_root_is_accepted),
		T(a_path_that_is_not_below_a_root_is_refused_by_field_and_value),
		T(a_path_that_is_too_long_is_refused),
		T(the_parent_of_a_target_is_open),
		T(what_leads_through_a_symlink_or_a_file_is_refused),
		T(a_name_that_is_too_long_is_refused),
		T(a_target_is_made_and_mounted_with_its_attributes),
		T(a_directory_that_is_there_and_empty_is_mounted_on),
		T(a_target_that_is_mounted_already_is_left_as_it_is),
		T(something_else_at_the_target_is_refused_and_named),
		T(what_a_mount_would_hide_is_refused),
		T(a_mount_that_fails_leaves_no_mount_and_no_descriptor),
		T(a_look_tells_mounts_from_directories_and_nothing),
		T(a_target_is_unmounted_and_its_directory_removed_if_asked_for),
		T(a_target_that_is_not_mounted_or_not_there_is_fine),
		T(all_layers_of_the_volume_are_removed),
		T(what_is_not_the_volumes_is_left_mounted),
		T(of_an_unknown_volume_only_its_own_union_is_removed),
		T(a_directory_that_is_not_empty_is_left_alone),
		T(a_living_mount_that_is_in_use_is_not_taken_away),
		T(a_dead_or_hung_mount_that_is_in_use_is_detached),
		T(a_mount_of_a_server_that_was_replaced_is_replaced),
		T(a_failed_unmount_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
