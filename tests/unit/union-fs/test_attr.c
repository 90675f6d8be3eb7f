/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ufs.h"

#include <sys/sysmacros.h>

#include "lib/base/macros.h"

static int set_up(void **state)
{
	(void)state;
	fresh_branches(3);
	union_open(3);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	union_close();
	return 0;
}

/* ------------------------------------------------------------------------------- numbers */

static void a_number_is_the_branch_and_its_own_number(void **state)
{
	const struct ufs_branch b = { .dev = 7 };

	(void)state;
	assert_int_equal(ufs_ino(&b, 0, 7, 2), 2);
	assert_int_equal(ufs_ino(&b, 1, 7, 2), (UINT64_C(1) << 48) + 2);
	assert_int_equal(ufs_ino(&b, 1023, 7, (UINT64_C(1) << 48) - 1), (UINT64_C(1024) << 48) - 1);
}

static void numbers_that_do_not_fit_are_computed_and_marked(void **state)
{
	const struct ufs_branch b = { .dev = 7 };
	const uint64_t big = ufs_ino(&b, 0, 7, UINT64_C(1) << 48), other = ufs_ino(&b, 0, 8, 2);

	(void)state;
	assert_true(big >> 63);
	assert_true(other >> 63);
	assert_int_equal(ufs_ino(&b, 0, 7, UINT64_C(1) << 48), big);
	assert_int_not_equal(ufs_ino(&b, 0, 7, (UINT64_C(1) << 48) + 1), big);
	assert_int_not_equal(ufs_ino(&b, 0, 9, 2), other);
	assert_int_not_equal(ufs_ino(&b, 0, 8, 3), other);
}

/* -------------------------------------------------------------------------- who is older */

static struct statx born(int64_t sec, uint32_t nsec)
{
	return (struct statx){ .stx_mask = STATX_BTIME,
			       .stx_btime = { .tv_sec = sec, .tv_nsec = nsec } };
}

static void the_copy_that_was_made_first_speaks(void **state)
{
	static const struct {
		int64_t a_sec;
		uint32_t a_nsec;
		int64_t b_sec;
		uint32_t b_nsec;
		bool older;
	} cases[] = {
		{ 1, 0, 2, 0, true },  { 2, 0, 1, 0, false }, { 1, 5, 1, 6, true },
		{ 1, 6, 1, 5, false }, { 1, 5, 1, 5, true },  { -5, 0, 1, 0, true },
		{ 1, 9, 2, 1, true },  { 2, 1, 1, 9, false },
	};
	struct statx none = { .stx_mask = 0 }, some = born(1, 0);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct statx a = born(cases[i].a_sec, cases[i].a_nsec),
				   b = born(cases[i].b_sec, cases[i].b_nsec);

		assert_int_equal(ufs_older(&a, &b), cases[i].older);
	}
	/* Where one does not know, the lower branch. */
	assert_true(ufs_older(&none, &some));
	assert_true(ufs_older(&some, &none));
	assert_true(ufs_older(&none, &none));
}

/* ------------------------------------------------------------------------------- merging */

static struct statx copy(int64_t born_at, uint16_t mode, int64_t mtime, uint32_t mnsec)
{
	struct statx st = born(born_at, 0);

	st.stx_mode = S_IFDIR | mode;
	st.stx_uid = 1000 + mode;
	st.stx_ino = 10;
	st.stx_nlink = 5;
	st.stx_size = 4096;
	st.stx_dev_major = major(fs->branch[0].dev);
	st.stx_dev_minor = minor(fs->branch[0].dev);
	st.stx_mtime = (struct statx_timestamp){ .tv_sec = mtime, .tv_nsec = mnsec };
	st.stx_atime = (struct statx_timestamp){ .tv_sec = -mtime };
	st.stx_ctime = (struct statx_timestamp){ .tv_sec = 2 * mtime };
	return st;
}

static void one_copy_is_shown_as_it_is(void **state)
{
	const struct statx st = copy(1, 0755, 100, 7);
	struct ufs_attr_merge m = { 0 };
	struct fuse_attr attr;

	(void)state;
	ufs_attr_merge_add(&m, 0, &st);
	ufs_attr_merge_end(fs, &m, &attr);
	assert_int_equal(attr.ino, 10);
	assert_int_equal(attr.mode, S_IFDIR | 0755);
	assert_int_equal(attr.nlink, 5);
	assert_int_equal(attr.mtime, 100);
	assert_int_equal(attr.mtimensec, 7);
	assert_int_equal((int64_t)attr.atime, -100);
	assert_int_equal(attr.ctime, 200);
}

static void owner_and_mode_are_the_oldest_ones_and_times_the_latest(void **state)
{
	/* Which of three copies is the oldest, in all orders. */
	static const int64_t births[][3] = { { 1, 2, 3 }, { 2, 1, 3 }, { 3, 2, 1 }, { 3, 1, 2 } };
	static const unsigned expected[] = { 0, 1, 2, 1 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(births); i++) {
		struct ufs_attr_merge m = { 0 };
		struct fuse_attr attr;

		for (unsigned k = 0; k < 3; k++) {
			const struct statx st =
				copy(births[i][k], (uint16_t)(0700 + k), 100 + k % 2, 10 * k);

			ufs_attr_merge_add(&m, k, &st);
		}
		ufs_attr_merge_end(fs, &m, &attr);
		assert_int_equal(attr.mode, S_IFDIR | (0700 + expected[i]));
		assert_int_equal(attr.uid, 1000 + 0700 + expected[i]);
		assert_int_equal(m.branch, expected[i]);
		assert_int_equal(attr.mtime, 101);
		assert_int_equal(attr.mtimensec, 10);
		assert_int_equal((int64_t)attr.atime, -100);
		assert_int_equal(attr.ctime, 202);
		/* Links are not counted over the branches. */
		assert_int_equal(attr.nlink, 1);
	}
}

static void numbers_of_devices_are_as_the_kernel_wants_them(void **state)
{
	static const struct {
		unsigned major, minor;
		uint32_t rdev;
	} cases[] = {
		{ 1, 3, 0x103 },
		{ 8, 17, 0x811 },
		{ 259, 0x12345, 0x12310345 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct statx st = { .stx_mode = S_IFBLK,
				    .stx_rdev_major = cases[i].major,
				    .stx_rdev_minor = cases[i].minor };
		struct fuse_attr attr;

		ufs_attr_file(fs, 0, &st, &attr);
		assert_int_equal(attr.rdev, cases[i].rdev);
	}
}

/* ---------------------------------------------------------------------------- real nodes */

static void a_file_has_its_own_attributes(void **state)
{
	struct statx_timestamp btime;
	struct fuse_attr attr;
	struct stat st;

	(void)state;
	write_file("b1/f", "hello");
	{
		cleanup_node struct ufs_node *root = ufs_node_get(fs, 1);
		cleanup_node struct ufs_node *f = enter(root, "f");
		int fd = open("b1/f", O_RDONLY | O_CLOEXEC);

		assert_int_equal(stat("b1/f", &st), 0);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(ufs_attr_node(fs, f, i ? fd : -1, &attr, &btime), 0);
			assert_int_equal(attr.size, 5);
			assert_int_equal(attr.mode, st.st_mode);
			assert_int_equal(attr.ino, (UINT64_C(1) << 48) + st.st_ino);
		}
		close(fd);
	}
}

static void a_merged_directory_has_one_number_whatever_it_is_asked_by(void **state)
{
	struct fuse_attr by_node, by_find;

	(void)state;
	make_dir("b2/d"); /* the oldest, or the times are equal */
	make_dir("b0/d");
	{
		cleanup_node struct ufs_node *root = ufs_node_get(fs, 1);
		cleanup_node struct ufs_node *d = enter(root, "d");
		cleanup_view struct ufs_view v = { 0 };
		cleanup_finds struct ufs_finds f = { 0 };

		assert_int_equal(ufs_attr_node(fs, d, -1, &by_node, NULL), 0);
		assert_int_equal(ufs_view_open(fs, root, &v), 0);
		assert_int_equal(ufs_find(fs, &v, "d", &f), 0);
		ufs_attr_found(fs, &f, &by_find);
	}
	assert_int_equal(by_node.ino, by_find.ino);
	assert_int_equal(by_node.nlink, 1);
}

static void a_directory_that_is_gone_everywhere_is_stale(void **state)
{
	struct fuse_attr attr = { .size = 77 };

	(void)state;
	make_dir("b0/d");
	{
		cleanup_node struct ufs_node *root = ufs_node_get(fs, 1);
		cleanup_node struct ufs_node *d = enter(root, "d");

		ufs_node_drop_copy(d, d->dir->copy[0]);
		assert_int_equal(ufs_attr_node(fs, d, -1, &attr, NULL), -ESTALE);
	}
	assert_int_equal(attr.size, 77);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_number_is_the_branch_and_its_own_number),
		T(numbers_that_do_not_fit_are_computed_and_marked),
		T(the_copy_that_was_made_first_speaks),
		T(one_copy_is_shown_as_it_is),
		T(owner_and_mode_are_the_oldest_ones_and_times_the_latest),
		T(numbers_of_devices_are_as_the_kernel_wants_them),
		T(a_file_has_its_own_attributes),
		T(a_merged_directory_has_one_number_whatever_it_is_asked_by),
		T(a_directory_that_is_gone_everywhere_is_stale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
