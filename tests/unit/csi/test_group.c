/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/unit.h"
#include <stdarg.h>
#include <sys/resource.h>

#include "csi/group.h"
#include "lib/base/cleanup.h"
#include "lib/base/str.h"

enum {
	GROUP = 54321, /* not ours */
};

/* chown() is only written down: "a b/c ." for the names and "." for the root's descriptor. */
static char **chowned;
static size_t fail_at;
static const char *move_from; /* to away/d, when `leaf` is changed */

static int note(const char *name, uid_t uid, gid_t gid)
{
	assert_int_equal(uid, (uid_t)-1);
	assert_int_equal(gid, GROUP);
	if (uc_strv_len(chowned) + 1 == fail_at) {
		errno = EROFS;
		return -1;
	}
	assert_int_equal(uc_strv_push(&chowned, name), 0);
	if (move_from && strcmp(name, "leaf") == 0)
		assert_int_equal(rename(move_from, "away/d"), 0);
	return 0;
}

int __wrap_fchownat(int dirfd, const char *name, uid_t uid, gid_t gid, int flags);
int __wrap_fchownat(int dirfd, const char *name, uid_t uid, gid_t gid, int flags)
{
	assert_true(dirfd >= 0);
	assert_int_equal(flags, AT_SYMLINK_NOFOLLOW);
	return note(name, uid, gid);
}

int __wrap_fchown(int fd, uid_t uid, gid_t gid);
int __wrap_fchown(int fd, uid_t uid, gid_t gid)
{
	assert_true(fd >= 0);
	return note(".", uid, gid);
}

static unsigned steps, cancel_at;

int __wrap_csi_step(const struct csi_op *op, struct uc_err *err, const char *fmt, ...);
int __wrap_csi_step(const struct csi_op *op, struct uc_err *err, const char *fmt, ...)
{
	(void)op;
	(void)fmt;
	return ++steps == cancel_at ? uc_fail(err, ECANCELED, "given up") : 0;
}

static int root = -1;
static size_t fds_before;
static const struct csi_op op = { .volume_id = "v1" };

static int set_up(void **state)
{
	(void)state;
	steps = cancel_at = 0;
	fail_at = 0;
	umask(022);
	fresh_dir("v");
	root = open("v", O_PATH | O_DIRECTORY | O_CLOEXEC);
	fds_before = open_fds();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	assert_int_equal(open_fds(), fds_before);
	close(root);
	uc_strv_free(chowned);
	chowned = NULL;
	return 0;
}

static void make_file(const char *path, mode_t mode)
{
	write_file(path, "x");
	assert_int_equal(chmod(path, mode), 0);
}

static unsigned mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

static int apply(struct uc_err *err)
{
	return csi_group_apply(&op, root, GROUP, err);
}

static void everything_gets_the_group_and_the_root_gets_it_last(void **state)
{
	(void)state;
	make_file("v/f", 0644);
	make_dir("v/d");
	make_file("v/d/g", 0600);
	make_dir("v/d/e");
	assert_int_equal(symlink("f", "v/link"), 0);
	assert_int_equal(mkfifo("v/fifo", 0600), 0);
	assert_int_equal(apply(NULL), 0);
	assert_int_equal(uc_strv_len(chowned), 7);
	for (const char *const *name =
		     (const char *const[]){ "f", "d", "g", "e", "link", "fifo", NULL };
	     *name; name++)
		assert_true(uc_strv_has(chowned, *name));
	assert_string_equal(chowned[6], ".");
}

static void the_group_may_write_files_and_enter_directories(void **state)
{
	(void)state;
	make_file("v/f", 0600);
	make_file("v/x", 0755);
	make_file("v/setuid", 04755);
	make_dir("v/d");
	assert_int_equal(chmod("v/d", 01700), 0);
	assert_int_equal(mkfifo("v/fifo", 0600), 0);
	assert_int_equal(apply(NULL), 0);
	assert_int_equal(mode_of("v/f"), 0660);
	assert_int_equal(mode_of("v/x"), 0775);
	assert_int_equal(mode_of("v/setuid"), 04775);
	assert_int_equal(mode_of("v/d"), 03770);
	assert_int_equal(mode_of("v/fifo"), 0660);
	assert_int_equal(mode_of("v"), 02775);
}

static void symlinks_are_not_followed(void **state)
{
	(void)state;
	fresh_dir("outside");
	make_file("outside/f", 0600);
	assert_int_equal(symlink("../outside", "v/dir"), 0);
	assert_int_equal(symlink("../outside/f", "v/file"), 0);
	assert_int_equal(symlink("nowhere", "v/broken"), 0);
	assert_int_equal(apply(NULL), 0);
	assert_int_equal(mode_of("outside/f"), 0600);
	assert_int_equal(mode_of("outside"), 0755);
	assert_false(uc_strv_has(chowned, "f"));
	assert_true(uc_strv_has(chowned, "broken"));
}

static void a_root_that_has_the_group_is_not_touched(void **state)
{
	struct stat st;

	(void)state;
	make_file("v/f", 0600);
	assert_int_equal(stat("v", &st), 0);
	assert_int_equal(csi_group_apply(&op, root, st.st_gid, NULL), 0);
	assert_null(chowned);
	assert_int_equal(mode_of("v/f"), 0600);
	assert_int_equal(mode_of("v"), 0755);
}

static void a_change_that_fails_leaves_the_root_for_the_next_try(void **state)
{
	(void)state;
	for (size_t n = 1; n <= 4; n++) {
		struct uc_err err = { 0 };

		fresh_dir("v");
		close(root);
		root = open("v", O_PATH | O_DIRECTORY | O_CLOEXEC);
		make_dir("v/d");
		make_file("v/d/f", 0600);
		make_file("v/g", 0600);
		uc_strv_free(chowned);
		chowned = NULL;
		fail_at = n;
		assert_int_equal(apply(&err), -EROFS);
		assert_false(uc_strv_has(chowned, "."));
		assert_non_null(strstr(err.msg, n < 4 ? "volume_mount_group: change the group of `"
						      : "change the group of the volume's root"));
		assert_int_equal(open_fds(), fds_before);
	}
}

static void a_large_volume_is_reported_on_and_given_up_if_it_must(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	for (int i = 0; i < 1010; i++) {
		char path[32];

		snprintf(path, sizeof(path), "v/%d", i);
		assert_int_equal(symlink("x", path), 0);
	}
	assert_int_equal(apply(NULL), 0);
	assert_int_equal(steps, 2); /* at first, and every thousand */
	uc_strv_free(chowned);
	chowned = NULL;
	steps = 0;
	cancel_at = 2;
	assert_int_equal(apply(&err), -ECANCELED);
	assert_in_range(uc_strv_len(chowned), 900, 1000);
	steps = 0;
	cancel_at = 1;
	uc_strv_free(chowned);
	chowned = NULL;
	assert_int_equal(apply(&err), -ECANCELED);
	assert_null(chowned);
}

/* v/d/d/…, with two files in each, and v/d/d/…/leaf. */
static void make_deep_tree(int depth)
{
	char path[4096] = "v";

	for (int i = 0; i < depth; i++) {
		size_t n = strlen(path);

		strcpy(path + n, "/a");
		make_file(path, 0600);
		strcpy(path + n, "/z");
		make_file(path, 0600);
		strcpy(path + n, "/d");
		make_dir(path);
	}
	strcat(path, "/leaf");
	make_file(path, 0600);
}

static void a_deep_tree_is_walked_to_its_end_with_few_files_open(void **state)
{
	struct rlimit all, few;

	(void)state;
	make_deep_tree(200);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	few = (struct rlimit){ .rlim_cur = (rlim_t)root + 64, .rlim_max = all.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(apply(NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
	assert_int_equal(uc_strv_len(chowned), 3 * 200 + 2);
}

static void a_tree_that_is_moved_meanwhile_is_left_for_the_next_try(void **state)
{
	struct uc_err err = { 0 };
	char path[4096] = "v";

	(void)state;
	make_deep_tree(200);
	for (int i = 0; i < 100; i++)
		strcat(path, "/d");
	move_from = path;
	fresh_dir("away");
	assert_int_equal(apply(&err), -EBUSY);
	assert_non_null(strstr(err.msg, "a directory has been moved meanwhile"));
	assert_false(uc_strv_has(chowned, "."));
	move_from = NULL;
}

static void an_empty_volume_needs_its_root_only(void **state)
{
	(void)state;
	assert_int_equal(apply(NULL), 0);
	assert_true(uc_strv_equal(chowned, STRV(".")));
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(everything_gets_the_group_and_the_root_gets_it_last),
		T(the_group_may_write_files_and_enter_directories),
		T(symlinks_are_not_followed),
		T(a_root_that_has_the_group_is_not_touched),
		T(a_change_that_fails_leaves_the_root_for_the_next_try),
		T(a_large_volume_is_reported_on_and_given_up_if_it_must),
		T(a_deep_tree_is_walked_to_its_end_with_few_files_open),
		T(a_tree_that_is_moved_meanwhile_is_left_for_the_next_try),
		T(an_empty_volume_needs_its_root_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
