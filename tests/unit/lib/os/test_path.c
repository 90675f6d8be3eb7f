/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/unit.h"
#include <linux/openat2.h>
#include <sys/syscall.h>

#include "lib/base/macros.h"
#include "lib/os/path.h"

/* How often openat2() answers with an errno that is no answer. */
static unsigned interruptions;
static int interruption;

long __real_syscall(long n, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long n, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long n, long a, long b, long c, long d, long e, long f)
{
	if (n == SYS_openat2 && interruptions) {
		interruptions--;
		errno = interruption;
		return -1;
	}
	return __real_syscall(n, a, b, c, d, e, f);
}

static bool no_memory;

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n)
{
	if (!no_memory)
		return __real_realloc(p, n);
	errno = ENOMEM;
	return NULL;
}

/* ----------------------------------------------------------------------- roots */

static void a_roots_path_is_absolute_and_normalised(void **state)
{
	static const struct {
		const char *path, *expected;
	} rows[] = {
		{ "/var/lib/kubelet", "/var/lib/kubelet" },
		{ "//var/./lib//kubelet/.//", "/var/lib/kubelet" },
		{ "/var/lib/x/../kubelet", "/var/lib/kubelet" },
		{ "/a/b/c/../../..", "/" },
		{ "/a/../../../b", "/b" },
		{ "/", "/" },
		{ "//", "/" },
		{ "/..", "/" },
		{ "/...", "/..." },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_root root = UC_ROOT_INIT;

		assert_int_equal(uc_root_init(&root, rows[i].path, NULL), 0);
		assert_string_equal(root.path, rows[i].expected);
		assert_null(root.real);
		assert_int_equal(root.fd, -1);
		uc_root_done(&root);
	}
}

static void check_is(int fd, const char *dir)
{
	struct stat a, b;

	assert_int_equal(fstat(fd, &a), 0);
	assert_int_equal(stat(dir, &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
}

static void an_open_root_has_the_name_it_was_given_and_the_canonical_one(void **state)
{
	struct uc_root root = UC_ROOT_INIT;
	char *cwd = getcwd(NULL, 0), path[4096];

	(void)state;
	fresh_dir("real");
	unlink("link");
	assert_int_equal(symlink("real", "link"), 0);
	assert_int_equal(uc_root_init(&root, "./link//../link/", NULL), 0);
	assert_int_equal(uc_root_open(&root, NULL), 0);
	snprintf(path, sizeof(path), "%s/link", cwd);
	assert_string_equal(root.path, path);
	snprintf(path, sizeof(path), "%s/real", cwd);
	assert_string_equal(root.real, path);
	check_is(root.fd, "real");
	assert_true(fcntl(root.fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(root.fd, F_GETFL) & O_PATH);
	uc_root_done(&root);
	assert_null(root.path);
	assert_null(root.real);
	assert_int_equal(root.fd, -1);
	uc_root_done(&root);
	free(cwd);
}

static void an_open_root_stays_where_it_is_until_its_directory_is_removed(void **state)
{
	struct uc_root root = UC_ROOT_INIT;
	size_t fds = open_fds();

	(void)state;
	fresh_dir("real");
	fresh_dir("other");
	unlink("link");
	assert_int_equal(symlink("real", "link"), 0);
	assert_int_equal(uc_root_init(&root, "link", NULL), 0);
	assert_int_equal(uc_root_open(&root, NULL), 0);
	unlink("link");
	assert_int_equal(symlink("other", "link"), 0);
	assert_int_equal(uc_root_open(&root, NULL), 0);
	check_is(root.fd, "real");

	assert_int_equal(rmdir("real"), 0);
	assert_int_equal(uc_root_open(&root, NULL), 0);
	check_is(root.fd, "other");

	assert_int_equal(rmdir("other"), 0);
	assert_int_equal(uc_root_open(&root, NULL), -ENOENT);
	assert_int_equal(root.fd, -1);
	assert_null(root.real);
	fresh_dir("other");
	assert_int_equal(uc_root_open(&root, NULL), 0);
	uc_root_done(&root);
	assert_int_equal(open_fds(), fds);
}

static void what_is_no_directory_is_no_root(void **state)
{
	static const struct {
		const char *path;
		int r;
	} rows[] = { { "absent", -ENOENT }, { "file", -ENOTDIR } };

	(void)state;
	write_file("file", "x");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_root root = UC_ROOT_INIT;
		struct uc_err err = { 0 };

		assert_int_equal(uc_root_init(&root, rows[i].path, &err), 0);
		assert_int_equal(uc_root_open(&root, &err), rows[i].r);
		assert_non_null(strstr(err.msg, rows[i].path));
		assert_null(root.real);
		assert_int_equal(root.fd, -1);
		uc_root_done(&root);
	}
}

static void a_root_without_a_name_is_refused(void **state)
{
	struct uc_root root = UC_ROOT_INIT;

	(void)state;
	assert_int_equal(uc_root_init(&root, "", NULL), -EINVAL);
	assert_null(root.path);
	no_memory = true;
	assert_int_equal(uc_root_init(&root, "/a", NULL), -ENOMEM);
	no_memory = false;
	assert_null(root.path);
}

/* ----------------------------------------------------------------------- below */

static void the_part_below_a_root_is_found_lexically(void **state)
{
	static const struct {
		const char *root, *path, *rel; /* NULL: not below */
	} rows[] = {
		{ "/var/lib/kubelet", "/var/lib/kubelet/pods/1", "pods/1" },
		{ "/var/lib/kubelet", "/var/lib/kubelet/a", "a" },
		{ "/var/lib/kubelet", "/var/lib/kubelet/a/", "a" },
		{ "/var/lib/kubelet", "//var///lib/kubelet//a//b//", "a/b" },
		{ "/var/lib/kubelet", "/var/lib/kubelet/...", "..." },
		{ "/var/lib/kubelet", "/var/lib/kubelet/..a/b..", "..a/b.." },
		{ "/var/lib/kubelet", "/var/lib/kubelet/.a", ".a" },
		{ "/var/lib/kubelet", "/var/lib/kubelet/a b\n", "a b\n" },
		/* the root itself */
		{ "/var/lib/kubelet", "/var/lib/kubelet", NULL },
		{ "/var/lib/kubelet", "/var/lib/kubelet/", NULL },
		{ "/var/lib/kubelet", "/var/lib/kubelet//", NULL },
		/* beside it */
		{ "/var/lib/kubelet", "/var/lib/kubelet-evil/a", NULL },
		{ "/var/lib/kubelet", "/var/lib/kubelet.d", NULL },
		{ "/var/lib/kubelet", "/var/lib/kubele/a", NULL },
		{ "/var/lib/kubelet", "/var/lib/kubelat/a", NULL },
		{ "/var/lib/kubelet", "/var/lib", NULL },
		{ "/var/lib/kubelet", "/var/lib/a", NULL },
		{ "/var/lib/kubelet", "/", NULL },
		{ "/var/lib/kubelet", "", NULL },
		{ "/var/lib/kubelet", "/a/var/lib/kubelet/b", NULL },
		/* relative */
		{ "/var/lib/kubelet", "var/lib/kubelet/a", NULL },
		{ "/var/lib/kubelet", "./var/lib/kubelet/a", NULL },
		{ "/", "a", NULL },
		/* dots, wherever they are */
		{ "/var/lib/kubelet", "/var/lib/kubelet/..", NULL },
		{ "/var/lib/kubelet", "/var/lib/kubelet/../a", NULL },
		{ "/var/lib/kubelet", "/var/lib/kubelet/a/..", NULL },
		{ "/var/lib/kubelet", "/var/lib/kubelet/a/../b", NULL },
		{ "/var/lib/kubelet", "/var/lib/kubelet/a/.", NULL },
		{ "/var/lib/kubelet", "/var/lib/kubelet/.", NULL },
		{ "/var/lib/kubelet", "/var/lib/kubelet/./a", NULL },
		{ "/var/lib/kubelet", "/var/./lib/kubelet/a", NULL },
		{ "/var/lib/kubelet", "/var/lib/x/../kubelet/a", NULL },
		{ "/var/lib/kubelet", "/var/lib/kubelet/a/../../kubelet/b", NULL },
		/* the root of all */
		{ "/", "/a", "a" },
		{ "/", "//a", "a" },
		{ "/", "/a/b/", "a/b" },
		{ "/", "/", NULL },
		{ "/", "//", NULL },
		{ "/", "/..", NULL },
		{ "/", "/.", NULL },
		{ "//", "/a", "a" },
		{ "//", "//", NULL },
		/* a root of one letter */
		{ "/a", "/a/a", "a" },
		{ "/a", "/aa", NULL },
		{ "/a", "/aa/a", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_root root = { .path = (char *)(uintptr_t)rows[i].root, .fd = -1 };
		char *rel;

		errno = EXDEV;
		rel = uc_path_below(&root, rows[i].path);
		if (!rows[i].rel) {
			if (rel)
				fail_msg("`%s` is taken to be below `%s`", rows[i].path,
					 rows[i].root);
			assert_int_equal(errno, 0);
		} else {
			assert_non_null(rel);
			assert_string_equal(rel, rows[i].rel);
		}
		free(rel);
	}
}

static void what_is_below_either_name_is_below_the_root(void **state)
{
	const struct uc_root root = {
		.path = (char *)(uintptr_t) "/var/lib/kubelet",
		.real = (char *)(uintptr_t) "/data/kubelet",
		.fd = -1,
	};
	static const struct {
		const char *path, *rel;
	} rows[] = {
		{ "/var/lib/kubelet/pods/1", "pods/1" },
		{ "/data/kubelet/pods/1", "pods/1" },
		{ "/data/kubelet", NULL },
		{ "/data/kubelet/../a", NULL },
		{ "/data/a", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *rel = uc_path_below(&root, rows[i].path);

		assert_int_equal(rel != NULL, rows[i].rel != NULL);
		if (rel)
			assert_string_equal(rel, rows[i].rel);
		free(rel);
	}
}

static void a_lack_of_memory_is_told_from_a_path_elsewhere(void **state)
{
	struct uc_root root = { .path = (char *)(uintptr_t) "/a", .fd = -1 };
	char *rel;

	(void)state;
	no_memory = true;
	rel = uc_path_below(&root, "/a/b");
	no_memory = false;
	assert_null(rel);
	assert_int_equal(errno, ENOMEM);
}

/* --------------------------------------------------------------------- beneath */

/* t/: a/b/f, and symlinks of all kinds. */
static int tree = -1;

static int make_tree(void **state)
{
	char outside[4096];
	char *cwd = getcwd(NULL, 0);

	(void)state;
	fresh_dir("t");
	fresh_dir("outside");
	write_file("outside/f", "x");
	make_dir("t/a");
	make_dir("t/a/b");
	write_file("t/a/b/f", "x");
	snprintf(outside, sizeof(outside), "%s/outside", cwd);
	free(cwd);
	assert_int_equal(symlink("a", "t/inside"), 0);
	assert_int_equal(symlink("../outside", "t/up"), 0);
	assert_int_equal(symlink(outside, "t/away"), 0);
	assert_int_equal(symlink("absent", "t/broken"), 0);
	assert_int_equal(symlink("b/f", "t/a/file"), 0);
	tree = open_dir("t");
	return 0;
}

static int drop_tree(void **state)
{
	(void)state;
	close(tree);
	return 0;
}

static void only_what_lies_beneath_is_opened_and_no_symlink_followed(void **state)
{
	static const struct {
		const char *rel;
		int r;
	} rows[] = {
		{ "a", 0 },
		{ "a/b", 0 },
		{ "a/b/f", 0 },
		{ ".", 0 },
		{ "a/..", 0 }, /* still beneath; uc_path_below() keeps it away */
		{ "absent", -ENOENT },
		{ "a/absent/b", -ENOENT },
		{ "a/b/f/x", -ENOTDIR },
		{ "inside", -ELOOP },
		{ "inside/b", -ELOOP },
		{ "a/file", -ELOOP },
		{ "broken", -ELOOP },
		{ "up/f", -ELOOP },
		{ "away/f", -ELOOP },
		{ "..", -EXDEV },
		{ "../outside/f", -EXDEV },
		{ "a/../../outside/f", -EXDEV },
		{ "/", -EXDEV },
		{ "/etc", -EXDEV },
		{ "", -ENOENT },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int fd = uc_openat_beneath(tree, rows[i].rel, O_RDONLY);

		if (fd < 0) {
			assert_int_equal(fd, rows[i].r);
			continue;
		}
		assert_int_equal(rows[i].r, 0);
		assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
		close(fd);
	}
}

static void an_open_that_raced_a_rename_is_made_again(void **state)
{
	static const int nums[] = { EAGAIN, EINTR };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(nums); i++) {
		int fd;

		interruption = nums[i];
		interruptions = 3;
		fd = uc_openat_beneath(tree, "a", O_PATH);
		assert_true(fd >= 0);
		assert_int_equal(interruptions, 0);
		close(fd);
	}
	interruption = ENOSYS;
	interruptions = 1;
	assert_int_equal(uc_openat_beneath(tree, "a", O_PATH), -ENOSYS);
}

static void the_parent_is_opened_and_the_last_name_left(void **state)
{
	static const struct {
		const char *rel, *parent, *name;
	} rows[] = {
		{ "a", "t", "a" },
		{ "a/b", "t/a", "b" },
		{ "a/b/f", "t/a/b", "f" },
		{ "a//b///new", "t/a/b", "new" },
		{ "new", "t", "new" },
		{ "a/file", "t/a", "file" }, /* the last one is the caller's to open */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *name = NULL;
		struct stat is, expected;
		int fd = uc_open_parent_beneath(tree, rows[i].rel, &name);

		assert_true(fd >= 0);
		assert_string_equal(name, rows[i].name);
		assert_in_range((uintptr_t)name, (uintptr_t)rows[i].rel,
				(uintptr_t)rows[i].rel + strlen(rows[i].rel));
		assert_int_equal(fstat(fd, &is), 0);
		assert_int_equal(stat(rows[i].parent, &expected), 0);
		assert_int_equal(is.st_ino, expected.st_ino);
		assert_true(fcntl(fd, F_GETFL) & O_PATH);
		close(fd);
	}
}

static void no_parent_is_reached_through_a_symlink_a_file_or_dots(void **state)
{
	static const struct {
		const char *rel;
		int r;
	} rows[] = {
		{ "inside/b", -ELOOP },  { "up/f", -ELOOP },        { "away/f", -ELOOP },
		{ "a/b/f/x", -ENOTDIR }, { "a/absent/x", -ENOENT }, { "../outside/f", -EINVAL },
		{ "a/../b", -EINVAL },   { "..", -EINVAL },         { "a/..", -EINVAL },
		{ ".", -EINVAL },        { "", -EINVAL },           { "a/./b", -EINVAL },
		{ "a/", -EINVAL },
	};
	size_t fds = open_fds();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *name = "untouched";

		assert_int_equal(uc_open_parent_beneath(tree, rows[i].rel, &name), rows[i].r);
		assert_string_equal(name, "untouched");
	}
	assert_int_equal(open_fds(), fds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_roots_path_is_absolute_and_normalised),
		cmocka_unit_test(an_open_root_has_the_name_it_was_given_and_the_canonical_one),
		cmocka_unit_test(an_open_root_stays_where_it_is_until_its_directory_is_removed),
		cmocka_unit_test(a_root_without_a_name_is_refused),
		cmocka_unit_test(what_is_below_either_name_is_below_the_root),
		cmocka_unit_test(what_is_no_directory_is_no_root),
		cmocka_unit_test(the_part_below_a_root_is_found_lexically),
		cmocka_unit_test(a_lack_of_memory_is_told_from_a_path_elsewhere),
		cmocka_unit_test_setup_teardown(
			only_what_lies_beneath_is_opened_and_no_symlink_followed, make_tree,
			drop_tree),
		cmocka_unit_test_setup_teardown(an_open_that_raced_a_rename_is_made_again,
						make_tree, drop_tree),
		cmocka_unit_test_setup_teardown(the_parent_is_opened_and_the_last_name_left,
						make_tree, drop_tree),
		cmocka_unit_test_setup_teardown(
			no_parent_is_reached_through_a_symlink_a_file_or_dots, make_tree,
			drop_tree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
