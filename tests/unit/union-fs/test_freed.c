/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ufs.h"

#include <errno.h>

#include "union-fs/clone.h"
#include "union-fs/freed.h"

enum {
	MANY = 100 * 1000,
};

static struct ufs_node *root;
static struct ufs_view v; /* of the root: a copy on each of three branches */

/* What was synced: directories by descriptor, branches as a whole. */
static unsigned n_dirs, n_branches;
static int synced_fd, failure;
static const char *freed_meanwhile;

int __wrap_ufs_sync_fd(int path_fd);
int __wrap_syncfs(int fd);

int __wrap_ufs_sync_fd(int path_fd)
{
	n_dirs++;
	synced_fd = path_fd;
	return -failure;
}

int __wrap_syncfs(int fd)
{
	assert_int_equal(fd, fs->branch[1].root_fd);
	n_branches++;
	if (freed_meanwhile)
		ufs_freed_note(fs, &v.pin[1], freed_meanwhile);
	errno = failure;
	return failure ? -1 : 0;
}

static int set_up(void **state)
{
	(void)state;
	fresh_branches(3);
	union_open(3);
	root = ufs_node_get(fs, 1);
	v = (struct ufs_view){ 0 };
	assert_int_equal(ufs_view_open(fs, root, &v), 0);
	n_dirs = n_branches = 0;
	failure = 0;
	freed_meanwhile = NULL;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	ufs_view_close(&v);
	ufs_node_put(root);
	union_close();
	return 0;
}

static void free_many(const struct ufs_pin *pin)
{
	for (unsigned i = 0; i < MANY; i++) {
		char name[16];

		snprintf(name, sizeof(name), "n%u", i);
		ufs_freed_note(fs, pin, name);
	}
}

static void a_freed_name_is_synced_once_before_another_branch_uses_it(void **state)
{
	(void)state;
	ufs_freed_note(fs, &v.pin[1], "f");
	assert_int_equal(ufs_freed_settle(&v, 0, "f"), 0);
	assert_int_equal(n_dirs, 1);
	assert_int_equal(synced_fd, v.pin[1].fd);
	assert_int_equal(ufs_freed_settle(&v, 0, "f"), 0);
	assert_int_equal(n_dirs, 1);
	ufs_freed_note(fs, &v.pin[1], "f");
	assert_int_equal(ufs_freed_settle(&v, 2, "f"), 0);
	assert_int_equal(n_dirs, 2);
}

static void other_names_and_the_same_branch_cost_nothing(void **state)
{
	(void)state;
	ufs_freed_note(fs, &v.pin[1], "f");
	assert_int_equal(ufs_freed_settle(&v, 1, "f"), 0);
	assert_int_equal(ufs_freed_settle(&v, 0, "g"), 0);
	assert_true(ufs_freed_has(fs, &v.pin[1], "f"));
	assert_false(ufs_freed_has(fs, &v.pin[0], "f"));
	ufs_freed_relieve(fs);
	assert_int_equal(n_dirs + n_branches, 0);
}

static void a_sync_that_fails_is_reported_and_done_again(void **state)
{
	(void)state;
	ufs_freed_note(fs, &v.pin[1], "f");
	failure = EIO;
	assert_int_equal(ufs_freed_settle(&v, 0, "f"), -EIO);
	failure = 0;
	assert_int_equal(ufs_freed_settle(&v, 0, "f"), 0);
	assert_int_equal(n_dirs, 2);
}

static void more_names_than_are_remembered_count_as_all_until_the_branch_is_synced(void **state)
{
	(void)state;
	free_many(&v.pin[1]);
	assert_true(ufs_freed_has(fs, &v.pin[1], "never seen"));
	assert_false(ufs_freed_has(fs, &v.pin[0], "never seen"));
	ufs_freed_relieve(fs);
	assert_int_equal(n_branches, 1);
	assert_false(ufs_freed_has(fs, &v.pin[1], "never seen"));
	assert_false(ufs_freed_has(fs, &v.pin[1], "n1"));
	ufs_freed_relieve(fs);
	assert_int_equal(n_branches, 1);
}

static void what_is_freed_while_the_branch_is_synced_stays(void **state)
{
	(void)state;
	free_many(&v.pin[1]);
	freed_meanwhile = "late";
	ufs_freed_relieve(fs);
	assert_true(ufs_freed_has(fs, &v.pin[1], "late"));
	assert_false(ufs_freed_has(fs, &v.pin[1], "n1"));
}

static void nothing_is_forgotten_when_the_branch_cannot_be_synced(void **state)
{
	(void)state;
	free_many(&v.pin[1]);
	failure = EIO;
	ufs_freed_relieve(fs);
	assert_true(ufs_freed_has(fs, &v.pin[1], "n1"));
	failure = 0;
	ufs_freed_note(fs, &v.pin[1], "f");
	ufs_freed_relieve(fs);
	assert_int_equal(n_branches, 2);
	assert_false(ufs_freed_has(fs, &v.pin[1], "n1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(a_freed_name_is_synced_once_before_another_branch_uses_it),
		T(other_names_and_the_same_branch_cost_nothing),
		T(a_sync_that_fails_is_reported_and_done_again),
		T(more_names_than_are_remembered_count_as_all_until_the_branch_is_synced),
		T(what_is_freed_while_the_branch_is_synced_stays),
		T(nothing_is_forgotten_when_the_branch_cannot_be_synced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
