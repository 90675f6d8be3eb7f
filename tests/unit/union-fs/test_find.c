/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ufs.h"

#include "lib/base/macros.h"

static struct ufs_node *root;
static size_t fds_before;

static int set_up(void **state)
{
	(void)state;
	fresh_branches(4);
	fds_before = open_fds();
	union_open(4);
	root = ufs_node_get(fs, 1);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	ufs_node_put(root);
	union_close();
	assert_int_equal(open_fds(), fds_before);
	return 0;
}

/* What is found: "0d 2d", the branch and d, f or l; or "error -2". */
static const char *found(const char *name, int bad_branch)
{
	static char text[128];
	cleanup_view struct ufs_view v = { 0 };
	cleanup_finds struct ufs_finds f = { 0 };
	size_t n = 0;
	int r;

	assert_int_equal(ufs_view_open(fs, root, &v), 0);
	for (unsigned i = 0; i < v.n; i++)
		if ((int)v.pin[i].branch == bad_branch)
			v.pin[i].fd = 1 << 20; /* no descriptor: as a branch that fails */
	r = ufs_find(fs, &v, name, &f);
	if (r < 0) {
		snprintf(text, sizeof(text), "error %d", r);
		return text;
	}
	text[0] = '\0';
	for (unsigned i = 0; i < f.n; i++) {
		mode_t mode = f.found[i].st.stx_mode & S_IFMT;

		assert_true(f.found[i].fd >= 0);
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%u%c", i ? " " : "",
				      f.found[i].branch,
				      mode == S_IFDIR   ? 'd'
				      : mode == S_IFREG ? 'f'
							: 'l');
	}
	return text;
}

#define NOT_FOUND "error -2"

static void the_lowest_branch_decides_what_a_name_is(void **state)
{
	(void)state;
	assert_string_equal(found("x", -1), NOT_FOUND);
	write_file("b3/x", "");
	assert_string_equal(found("x", -1), "3f");
	make_dir("b2/x"); /* a directory hides the file above it */
	assert_string_equal(found("x", -1), "2d");
	write_file("b1/x", "");
	assert_string_equal(found("x", -1), "1f");
	make_dir("b0/x"); /* and is merged with those that it can be */
	assert_string_equal(found("x", -1), "0d 2d");
}

static void all_copies_of_a_directory_are_found(void **state)
{
	(void)state;
	for (int i = 3; i >= 0; i--) {
		static const char *const expected[] = { "0d 1d 2d 3d", "1d 2d 3d", "2d 3d", "3d" };
		char path[16];

		snprintf(path, sizeof(path), "b%d/d", i);
		make_dir(path);
		assert_string_equal(found("d", -1), expected[i]);
	}
}

static void symlinks_are_not_followed(void **state)
{
	(void)state;
	make_dir("b0/dir");
	assert_int_equal(symlink("dir", "b0/link"), 0);
	assert_int_equal(symlink("nowhere", "b1/broken"), 0);
	make_dir("b2/link");
	assert_string_equal(found("link", -1), "0l");
	assert_string_equal(found("broken", -1), "1l");
}

static void a_branch_that_fails_hides_nothing_and_is_not_taken_for_empty(void **state)
{
	(void)state;
	assert_string_equal(found("x", 1), "error -9"); /* EBADF: nobody knows */
	write_file("b3/x", "");
	assert_string_equal(found("x", 1), "3f");
	make_dir("b0/d");
	make_dir("b2/d");
	assert_string_equal(found("d", 1), "0d 2d");
	assert_string_equal(found("d", 0), "2d");
}

static void a_name_that_is_too_long_is_told(void **state)
{
	char name[300];

	(void)state;
	memset(name, 'x', sizeof(name));
	name[255] = '\0';
	assert_string_equal(found(name, -1), NOT_FOUND);
	name[255] = 'x';
	name[256] = '\0';
	assert_string_equal(found(name, -1), "error -36");
}

static void what_was_not_looked_for_is_released(void **state)
{
	struct ufs_finds f = { 0 };

	(void)state;
	ufs_finds_done(&f);
	ufs_finds_done(&f);
}

static void an_object_is_told_by_what_it_is(void **state)
{
	struct ufs_found a = { .fd = -1 }, again = { .fd = -1 }, other = { .fd = -1 };
	struct ufs_ident ia, ib, ic;
	int dir = open_dir("b0");
	struct stat st;

	(void)state;
	write_file("b0/a", "");
	assert_int_equal(link("b0/a", "b0/b"), 0);
	write_file("b0/c", "");
	assert_int_equal(ufs_probe(fs, 0, dir, "a", &a), 0);
	assert_int_equal(ufs_probe(fs, 0, dir, "b", &again), 0);
	assert_int_equal(ufs_probe(fs, 0, dir, "c", &other), 0);
	ia = ufs_found_ident(&a);
	ib = ufs_found_ident(&again);
	ic = ufs_found_ident(&other);
	assert_int_equal(stat("b0/a", &st), 0);
	assert_int_equal(ia.ino, st.st_ino);
	assert_int_equal(ia.dev, st.st_dev);
	assert_int_equal(ia.ino, ib.ino);
	assert_int_equal(ia.handle_size, ib.handle_size);
	if (ia.handle_size) {
		assert_memory_equal(ia.handle, ib.handle, ia.handle_size);
		assert_memory_not_equal(ia.handle, ic.handle, ia.handle_size);
	}
	uc_closep(&other.fd);
	assert_int_equal(ufs_probe(fs, 0, dir, "none", &other), -ENOENT);
	close(dir);
	uc_closep(&a.fd);
	uc_closep(&again.fd);
	assert_int_equal(other.fd, -1);
}

static void a_type_is_told_without_following(void **state)
{
	int dir = open_dir("b0");

	(void)state;
	make_dir("b0/d");
	write_file("b0/f", "");
	assert_int_equal(symlink("d", "b0/l"), 0);
	assert_int_equal(mkfifo("b0/p", 0600), 0);
	assert_int_equal(ufs_type_at(dir, "d"), S_IFDIR);
	assert_int_equal(ufs_type_at(dir, "f"), S_IFREG);
	assert_int_equal(ufs_type_at(dir, "l"), S_IFLNK);
	assert_int_equal(ufs_type_at(dir, "p"), S_IFIFO);
	assert_int_equal(ufs_type_at(dir, "x"), -ENOENT);
	assert_int_equal(ufs_type_at(dir, "f/x"), -ENOTDIR);
	close(dir);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(the_lowest_branch_decides_what_a_name_is),
		T(all_copies_of_a_directory_are_found),
		T(symlinks_are_not_followed),
		T(a_branch_that_fails_hides_nothing_and_is_not_taken_for_empty),
		T(a_name_that_is_too_long_is_told),
		T(what_was_not_looked_for_is_released),
		T(an_object_is_told_by_what_it_is),
		T(a_type_is_told_without_following),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
