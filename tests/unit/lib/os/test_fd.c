/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/unit.h"
#include <stdarg.h>
#include <sys/stat.h>

#include "lib/base/cleanup.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/os/fd.h"

/*
 * The calls that lib/os/fd.c makes, each a step: the n-th fails, and what was
 * called is written down.
 */
static unsigned steps, fail_at;
static char trace[512];
static size_t most_at_once = SIZE_MAX; /* of write() and read() */
static bool interrupt;                 /* the next write() or read() by a signal */

static void arm(unsigned n)
{
	steps = 0;
	fail_at = n;
	trace[0] = '\0';
}

static bool fails(const char *name)
{
	size_t n = strlen(trace);

	snprintf(trace + n, sizeof(trace) - n, "%s ", name);
	if (++steps != fail_at)
		return false;
	errno = EIO;
	return true;
}

int __real_openat64(int dirfd, const char *path, int flags, ...);
int __wrap_openat64(int dirfd, const char *path, int flags, ...);
int __wrap_openat64(int dirfd, const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	va_start(ap, flags);
	if (flags & O_CREAT)
		mode = va_arg(ap, mode_t);
	va_end(ap);
	assert_true(flags & O_CLOEXEC);
	return fails("open") ? -1 : __real_openat64(dirfd, path, flags, mode);
}

static bool is_interrupted(void)
{
	bool was = interrupt;

	interrupt = false;
	errno = EINTR;
	return was;
}

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
	if (is_interrupted() || fails("write"))
		return -1;
	return __real_write(fd, p, n < most_at_once ? n : most_at_once);
}

ssize_t __real_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n)
{
	if (is_interrupted() || fails("read"))
		return -1;
	return __real_read(fd, p, n < most_at_once ? n : most_at_once);
}

int __real_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode)
{
	return fails("fchmod") ? -1 : __real_fchmod(fd, mode);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return fails(S_ISDIR(st.st_mode) ? "syncdir" : "sync") ? -1 : __real_fsync(fd);
}

int __real_renameat(int from, const char *a, int to, const char *b);
int __wrap_renameat(int from, const char *a, int to, const char *b);
int __wrap_renameat(int from, const char *a, int to, const char *b)
{
	return fails("rename") ? -1 : __real_renameat(from, a, to, b);
}

int __real_mkdirat(int dirfd, const char *name, mode_t mode);
int __wrap_mkdirat(int dirfd, const char *name, mode_t mode);
int __wrap_mkdirat(int dirfd, const char *name, mode_t mode)
{
	return fails("mkdir") ? -1 : __real_mkdirat(dirfd, name, mode);
}

int __real_unlinkat(int dirfd, const char *name, int flags);
int __wrap_unlinkat(int dirfd, const char *name, int flags);
int __wrap_unlinkat(int dirfd, const char *name, int flags)
{
	return fails("unlink") ? -1 : __real_unlinkat(dirfd, name, flags);
}

/* Each test has an empty directory d/, open as `dir`. */
static int dir = -1;
static size_t fds_before;

static int set_up(void **state)
{
	(void)state;
	fresh_dir("d");
	dir = open_dir("d");
	most_at_once = SIZE_MAX;
	interrupt = false;
	arm(0);
	fds_before = open_fds();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	arm(0);
	assert_int_equal(open_fds(), fds_before);
	close(dir);
	return 0;
}

static int replace(const char *text, struct uc_err *err)
{
	return uc_replace_file_at(dir, "f", text, strlen(text), 0640, err);
}

/* ------------------------------------------------------------------- replacing */

static void a_replaced_file_has_the_content_and_the_mode(void **state)
{
	mode_t was = umask(077);
	struct stat st;

	(void)state;
	assert_int_equal(uc_replace_file_at(dir, "f", "a\0b", 3, 0644, NULL), 0);
	umask(was);
	assert_int_equal(stat("d/f", &st), 0);
	assert_int_equal(st.st_size, 3);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_int_equal(uc_replace_file_at(dir, "f", "", 0, 0600, NULL), 0);
	assert_int_equal(stat("d/f", &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_string_equal(listing("d"), "f ");
}

static void the_file_is_synced_before_the_rename_and_the_directory_after_it(void **state)
{
	(void)state;
	assert_int_equal(replace("new", NULL), 0);
	assert_string_equal(trace, "open write fchmod sync rename syncdir ");
}

static void a_replacement_that_fails_leaves_the_old_content_and_no_other_file(void **state)
{
	static const struct {
		const char *step;
		bool is_last;
	} rows[] = { { "open ", false }, { "write ", false },  { "fchmod ", false },
		     { "sync ", false }, { "rename ", false }, { "syncdir ", true } };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_err err = { 0 };

		assert_int_equal(replace("old", NULL), 0);
		arm(i + 1);
		assert_int_equal(replace("new", &err), -EIO);
		assert_non_null(strstr(trace, rows[i].step));
		assert_non_null(strstr(err.msg, "`f`: Input/output error"));
		assert_string_equal(listing("d"), "f ");
		/* After the rename either may outlast a crash. */
		assert_string_equal(file_text("d/f"), rows[i].is_last ? "new" : "old");
		arm(0);
		assert_int_equal(replace("newer", &err), 0);
		assert_string_equal(file_text("d/f"), "newer");
	}
}

static void a_first_file_that_fails_leaves_nothing(void **state)
{
	(void)state;
	for (unsigned n = 1; n <= 5; n++) {
		arm(n);
		assert_int_equal(replace("new", NULL), -EIO);
		assert_string_equal(listing("d"), "");
	}
}

static void what_a_crash_has_left_is_overwritten(void **state)
{
	struct stat st;

	(void)state;
	write_file("d/.f.tmp", "a longer text of an interrupted replacement");
	assert_int_equal(chmod("d/.f.tmp", 0777), 0);
	assert_int_equal(replace("new", NULL), 0);
	assert_string_equal(file_text("d/f"), "new");
	assert_string_equal(listing("d"), "f ");
	assert_int_equal(stat("d/f", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
}

static void a_symlink_in_the_place_of_the_temporary_file_is_not_followed(void **state)
{
	(void)state;
	write_file("elsewhere", "untouched");
	assert_int_equal(symlink("../elsewhere", "d/.f.tmp"), 0);
	assert_int_equal(replace("new", NULL), -ELOOP);
	assert_string_equal(file_text("elsewhere"), "untouched");
	assert_int_equal(replace("new", NULL), 0);
	assert_string_equal(file_text("elsewhere"), "untouched");
	assert_string_equal(file_text("d/f"), "new");
}

static void a_symlink_of_the_name_is_replaced_not_followed(void **state)
{
	struct stat st;

	(void)state;
	write_file("elsewhere", "untouched");
	assert_int_equal(symlink("../elsewhere", "d/f"), 0);
	assert_int_equal(replace("new", NULL), 0);
	assert_string_equal(file_text("elsewhere"), "untouched");
	assert_int_equal(lstat("d/f", &st), 0);
	assert_true(S_ISREG(st.st_mode));
}

static void short_and_interrupted_writes_are_continued(void **state)
{
	(void)state;
	most_at_once = 3;
	interrupt = true;
	assert_int_equal(replace("0123456789", NULL), 0);
	assert_string_equal(trace, "open write write write write fchmod sync rename syncdir ");
	assert_string_equal(file_text("d/f"), "0123456789");
}

/* --------------------------------------------------------------------- reading */

static void a_file_is_appended_to_the_buffer(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;

	(void)state;
	write_file("d/f", "content");
	write_file("d/empty", "");
	uc_buf_puts(&b, "had ");
	assert_int_equal(uc_read_file_at(dir, "f", 7, &b), 0);
	assert_int_equal(uc_read_file_at(dir, "empty", 0, &b), 0);
	assert_string_equal(uc_buf_str(&b), "had content");
}

static void an_empty_file_is_an_empty_string(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;

	(void)state;
	write_file("d/f", "");
	assert_int_equal(uc_read_file_at(dir, "f", 10, &b), 0);
	assert_non_null(b.data);
	assert_int_equal(b.len, 0);
}

static void a_file_above_the_limit_is_refused_and_the_buffer_is_as_before(void **state)
{
	static char big[10001];

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	write_file("d/f", big);
	for (size_t max = 0; max < sizeof(big) + 10; max += max < 3 || max > 9990 ? 1 : 1111) {
		cleanup_buf struct uc_buf b = UC_BUF_INIT;
		bool fits = max >= strlen(big);

		uc_buf_puts(&b, "had");
		assert_int_equal(uc_read_file_at(dir, "f", max, &b), fits ? 0 : -EFBIG);
		assert_int_equal(b.len, fits ? 3 + strlen(big) : 3);
		assert_int_equal(strlen(b.data), b.len);
	}
}

static void short_and_interrupted_reads_are_continued(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;

	(void)state;
	write_file("d/f", "0123456789");
	most_at_once = 3;
	interrupt = true;
	assert_int_equal(uc_read_file_at(dir, "f", 10, &b), 0);
	assert_string_equal(uc_buf_str(&b), "0123456789");
}

static void a_read_error_leaves_the_buffer_as_before(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;

	(void)state;
	write_file("d/f", "0123456789");
	uc_buf_puts(&b, "had");
	most_at_once = 3;
	arm(3); /* open, read, read */
	assert_int_equal(uc_read_file_at(dir, "f", 10, &b), -EIO);
	assert_string_equal(uc_buf_str(&b), "had");
}

static void only_a_file_that_is_there_is_read_and_no_symlink(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;

	(void)state;
	write_file("elsewhere", "secret");
	assert_int_equal(symlink("../elsewhere", "d/link"), 0);
	make_dir("d/sub");
	assert_int_equal(uc_read_file_at(dir, "absent", 10, &b), -ENOENT);
	assert_int_equal(uc_read_file_at(dir, "link", 10, &b), -ELOOP);
	assert_int_equal(uc_read_file_at(dir, "sub", 10, &b), -EISDIR);
	assert_int_equal(b.len, 0);
}

/* --------------------------------------------------------------------- writing */

static void an_existing_file_is_written_with_one_write(void **state)
{
	(void)state;
	write_file("d/f", "0123");
	arm(0);
	assert_int_equal(uc_write_file_at(dir, "f", "ab"), 0);
	assert_string_equal(trace, "open write ");
	assert_string_equal(file_text("d/f"), "ab23");
}

static void a_file_is_not_made_by_writing_into_it(void **state)
{
	(void)state;
	assert_int_equal(uc_write_file_at(dir, "f", "ab"), -ENOENT);
	assert_string_equal(listing("d"), "");
}

static void a_refused_write_is_reported(void **state)
{
	(void)state;
	write_file("d/f", "0123");
	arm(2);
	assert_int_equal(uc_write_file_at(dir, "f", "ab"), -EIO);
}

/* -------------------------------------------------------------------- removing */

static void a_removed_file_is_gone_for_good(void **state)
{
	(void)state;
	write_file("d/f", "x");
	arm(0);
	assert_int_equal(uc_remove_file_at(dir, "f", NULL), 0);
	assert_true(uc_str_has_suffix(trace, "unlink syncdir "));
	assert_string_equal(listing("d"), "");
}

static void removing_what_is_not_there_is_success_and_durable_too(void **state)
{
	(void)state;
	assert_int_equal(uc_remove_file_at(dir, "f", NULL), 0);
	assert_true(uc_str_has_suffix(trace, "unlink syncdir "));
}

static void what_a_crash_left_of_a_file_is_removed_with_it(void **state)
{
	(void)state;
	write_file("d/.f.tmp", "x");
	assert_int_equal(uc_remove_file_at(dir, "f", NULL), 0);
	assert_string_equal(listing("d"), "");
	write_file("d/f", "x");
	write_file("d/.f.tmp", "x");
	assert_int_equal(uc_remove_file_at(dir, "f", NULL), 0);
	assert_string_equal(listing("d"), "");
}

static void a_failed_removal_names_the_file(void **state)
{
	(void)state;
	for (unsigned n = 1; n <= 3; n++) {
		struct uc_err err = { 0 };

		write_file("d/f", "x");
		arm(n);
		assert_int_equal(uc_remove_file_at(dir, "f", &err), -EIO);
		assert_non_null(strstr(err.msg, "`f`"));
		assert_int_equal(file_exists("d/f"), n < 3);
	}
}

/* ----------------------------------------------------------------- directories */

static void a_directory_is_opened_and_nothing_else(void **state)
{
	cleanup_fd int fd = -1;

	(void)state;
	make_dir("d/sub");
	write_file("d/f", "x");
	assert_int_equal(symlink("sub", "d/link"), 0);
	fd = uc_open_dir_at(dir, "sub");
	assert_true(fd >= 0);
	assert_int_equal(uc_open_dir_at(dir, "absent"), -ENOENT);
	assert_int_equal(uc_open_dir_at(dir, "f"), -ENOTDIR);
	assert_int_equal(uc_open_dir_at(dir, "link"), -ENOTDIR);
}

static void a_new_directory_is_durable(void **state)
{
	cleanup_fd int fd = -1;
	struct stat st;

	(void)state;
	fd = uc_make_dir_at(dir, "sub", 0700);
	assert_true(fd >= 0);
	assert_string_equal(trace, "mkdir open open syncdir ");
	assert_int_equal(stat("d/sub", &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(st.st_mode & 0777, 0700);
}

static void a_directory_that_is_there_is_opened_as_it_is(void **state)
{
	cleanup_fd int fd = -1;
	struct stat st;

	(void)state;
	make_dir("d/sub");
	write_file("d/sub/f", "x");
	fd = uc_make_dir_at(dir, "sub", 0700);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0755);
	assert_string_equal(listing("d/sub"), "f ");
}

static void what_is_no_directory_is_not_made_one(void **state)
{
	(void)state;
	write_file("d/f", "x");
	assert_int_equal(symlink(".", "d/link"), 0);
	assert_int_equal(uc_make_dir_at(dir, "f", 0700), -ENOTDIR);
	assert_int_equal(uc_make_dir_at(dir, "link", 0700), -ENOTDIR);
	assert_int_equal(uc_make_dir_at(dir, "absent/sub", 0700), -ENOENT);
}

static void a_directory_that_could_not_be_made_durable_is_not_there(void **state)
{
	(void)state;
	for (unsigned n = 1; n <= 4; n++) {
		cleanup_fd int fd = -1;

		arm(n);
		assert_int_equal(uc_make_dir_at(dir, "sub", 0700), -EIO);
		assert_string_equal(listing("d"), "");
		arm(0);
		fd = uc_make_dir_at(dir, "sub", 0700);
		assert_true(fd >= 0);
		assert_non_null(strstr(trace, "syncdir"));
		assert_int_equal(rmdir("d/sub"), 0);
	}
}

static int collect(void *data, const char *name)
{
	return uc_strv_push(data, name);
}

static int stop_at_b(void *data, const char *name)
{
	++*(int *)data;
	return strcmp(name, "b") == 0 ? -EXDEV : 0;
}

static int order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void every_entry_is_visited_once_on_each_walk(void **state)
{
	(void)state;
	write_file("d/a", "");
	write_file("d/..b", "");
	write_file("d/.c", "");
	make_dir("d/sub");
	write_file("d/sub/not-me", "");
	for (int i = 0; i < 2; i++) {
		cleanup_strv char **names = NULL;

		assert_int_equal(uc_dir_each(dir, collect, &names), 0);
		assert_int_equal(uc_strv_len(names), 4);
		qsort(names, 4, sizeof(*names), order);
		assert_true(uc_strv_equal(names, STRV("..b", ".c", "a", "sub")));
	}
}

static void a_walk_ends_where_it_is_told_to(void **state)
{
	int visits = 0;

	(void)state;
	write_file("d/b", "");
	assert_int_equal(uc_dir_each(dir, stop_at_b, &visits), -EXDEV);
	assert_int_equal(visits, 1);
}

static void what_is_no_directory_is_not_walked(void **state)
{
	cleanup_fd int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int visits = 0;

	(void)state;
	assert_int_equal(uc_dir_each(fd, stop_at_b, &visits), -ENOTDIR);
	assert_int_equal(visits, 0);
}

static void a_directory_is_empty_but_for_what_is_ignored(void **state)
{
	static const char *const ignored[] = { "lost+found", ".tmp", NULL };

	(void)state;
	assert_int_equal(uc_dir_is_empty(dir, NULL), 1);
	assert_int_equal(uc_dir_is_empty(dir, ignored), 1);
	make_dir("d/lost+found");
	write_file("d/.tmp", "");
	assert_int_equal(uc_dir_is_empty(dir, NULL), 0);
	assert_int_equal(uc_dir_is_empty(dir, ignored), 1);
	write_file("d/.tmp2", "");
	assert_int_equal(uc_dir_is_empty(dir, ignored), 0);
	arm(1);
	assert_int_equal(uc_dir_is_empty(dir, ignored), -EIO);
}

static void a_descriptor_has_a_path(void **state)
{
	cleanup_fd int fd = -1;

	(void)state;
	write_file("d/f", "x");
	fd = open("d/f", O_PATH | O_CLOEXEC);
	assert_string_equal(file_text(UC_FD_PATH(fd)), "x");
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_replaced_file_has_the_content_and_the_mode),
		T(the_file_is_synced_before_the_rename_and_the_directory_after_it),
		T(a_replacement_that_fails_leaves_the_old_content_and_no_other_file),
		T(a_first_file_that_fails_leaves_nothing),
		T(what_a_crash_has_left_is_overwritten),
		T(a_symlink_in_the_place_of_the_temporary_file_is_not_followed),
		T(a_symlink_of_the_name_is_replaced_not_followed),
		T(short_and_interrupted_writes_are_continued),
		T(a_file_is_appended_to_the_buffer),
		T(an_empty_file_is_an_empty_string),
		T(a_file_above_the_limit_is_refused_and_the_buffer_is_as_before),
		T(short_and_interrupted_reads_are_continued),
		T(a_read_error_leaves_the_buffer_as_before),
		T(only_a_file_that_is_there_is_read_and_no_symlink),
		T(an_existing_file_is_written_with_one_write),
		T(a_file_is_not_made_by_writing_into_it),
		T(a_refused_write_is_reported),
		T(a_removed_file_is_gone_for_good),
		T(removing_what_is_not_there_is_success_and_durable_too),
		T(what_a_crash_left_of_a_file_is_removed_with_it),
		T(a_failed_removal_names_the_file),
		T(a_directory_is_opened_and_nothing_else),
		T(a_new_directory_is_durable),
		T(a_directory_that_is_there_is_opened_as_it_is),
		T(what_is_no_directory_is_not_made_one),
		T(a_directory_that_could_not_be_made_durable_is_not_there),
		T(every_entry_is_visited_once_on_each_walk),
		T(a_walk_ends_where_it_is_told_to),
		T(what_is_no_directory_is_not_walked),
		T(a_directory_is_empty_but_for_what_is_ignored),
		T(a_descriptor_has_a_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
