/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/steps_dirs.h"
#include "tests/lib/steps_sync.h"
#include "tests/lib/steps_write.h"
#include "tests/lib/store.h"
#include <stdarg.h>
#include <sys/file.h>

#include "lib/base/macros.h"

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
	return flags & O_CREAT && fails() ? -1 : __real_openat64(dirfd, path, flags, mode);
}

int __real_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode)
{
	return fails() ? -1 : __real_fchmod(fd, mode);
}

static int set_up(void **state)
{
	(void)state;
	fail_nothing();
	store_begin();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fail_nothing();
	store_end();
	return 0;
}

static int count(void *data, const char *id)
{
	(void)id;
	++*(unsigned *)data;
	return 0;
}

static void a_look_makes_nothing(void **state)
{
	struct uc_store look = UC_STORE_INIT;
	unsigned n = 0;

	(void)state;
	assert_int_equal(uc_store_look("nowhere", &look, NULL), 0);
	assert_int_equal(uc_store_each(&look, count, &n, NULL), 0);
	assert_int_equal(n, 0);
	uc_store_close(&look);
	assert_false(file_exists("nowhere"));

	make_dir("s/volumes/v1");
	assert_int_equal(uc_store_look("s", &look, NULL), 0);
	assert_string_equal(look.path, store.path);
	assert_int_equal(uc_store_each(&look, count, &n, NULL), 0);
	assert_int_equal(n, 1);
	uc_store_close(&look);

	write_file("file", "");
	assert_int_equal(uc_store_look("file", &look, NULL), -ENOTDIR);
}

/* ------------------------------------------------------------------------ store */

static void a_state_directory_is_made_for_its_owner_alone(void **state)
{
	char *cwd = getcwd(NULL, 0), path[4096];
	struct stat st;

	(void)state;
	snprintf(path, sizeof(path), "%s/s", cwd);
	free(cwd);
	assert_string_equal(store.path, path);
	assert_string_equal(listing("s"), "volumes ");
	assert_int_equal(stat("s", &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(stat("s/volumes", &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
}

static void a_state_directory_that_is_there_is_used(void **state)
{
	struct uc_store again = UC_STORE_INIT, link = UC_STORE_INIT;

	(void)state;
	write_file("s/pools.json", "x");
	assert_int_equal(uc_store_open("s/", &again, NULL), 0);
	assert_string_equal(again.path, store.path);
	unlink("link");
	assert_int_equal(symlink("s", "link"), 0);
	assert_int_equal(uc_store_open("link", &link, NULL), 0);
	assert_string_equal(link.path, store.path);
	assert_string_equal(listing("s"), "pools.json volumes ");
	uc_store_close(&again);
	uc_store_close(&again);
	uc_store_close(&link);
}

static void what_cannot_be_a_state_directory_is_refused_by_name(void **state)
{
	static const struct {
		const char *path;
		int r;
	} rows[] = { { "file", -ENOTDIR }, { "absent/s", -ENOENT }, { "broken", -ENOENT } };

	(void)state;
	write_file("file", "x");
	unlink("broken");
	assert_int_equal(symlink("nowhere", "broken"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_store s = UC_STORE_INIT;
		struct uc_err err = { 0 };

		assert_int_equal(uc_store_open(rows[i].path, &s, &err), rows[i].r);
		assert_non_null(strstr(err.msg, rows[i].path));
		assert_int_equal(s.fd, -1);
		assert_null(s.path);
	}
}

static void a_state_directory_that_cannot_be_made_leaves_no_descriptor(void **state)
{
	unsigned n;

	(void)state;
	for (n = 1;; n++) {
		struct uc_store s = UC_STORE_INIT;
		int r;

		remove_tree("s2");
		fail_step(n, false);
		r = uc_store_open("s2", &s, NULL);
		if (steps < n) {
			assert_int_equal(r, 0);
			uc_store_close(&s);
			break;
		}
		assert_int_equal(r, -EIO);
		assert_int_equal(s.fd, -1);
		assert_int_equal(open_fds(), fds_before);
	}
	assert_int_equal(n, 5); /* mkdir, sync; mkdir, sync */
}

/* -------------------------------------------------------------- loading, storing */

static void what_is_stored_is_loaded(void **state)
{
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	struct stat st;

	(void)state;
	store_volume("v1", 1 << 25);
	assert_int_equal(uc_volume_load(&store, "v1", &v, NULL), 0);
	assert_string_equal(v.id, "v1");
	assert_int_equal(v.capacity, 1 << 25);
	assert_int_equal(v.n_publishes, 2);
	assert_int_equal(stat("s/volumes/v1/state.json", &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_string_equal(listing("s/volumes/v1"), "state.json ");
}

static void a_volume_without_a_state_is_not_found(void **state)
{
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(uc_volume_load(&store, "v1", &v, &err), -ENOENT);
	assert_string_equal(err.msg, "there is no volume `v1`");
	make_dir("s/volumes/v1");
	assert_int_equal(uc_volume_load(&store, "v1", &v, &err), -ENOENT);
}

static void a_torn_state_is_never_taken_for_one(void **state)
{
	char text[64 * 1024];
	size_t n;

	(void)state;
	store_volume("v1", 1 << 25);
	snprintf(text, sizeof(text), "%s", file_text("s/volumes/v1/state.json"));
	n = strlen(text);
	assert_int_equal(text[n - 2], '}');
	for (size_t k = 0; k < n - 1; k += k < 64 || k > n - 64 ? 1 : 7) {
		struct uc_volume v = { .capacity = 99 };
		struct uc_err err = { 0 };

		assert_int_equal(truncate("s/volumes/v1/state.json", (off_t)k), 0);
		assert_int_equal(uc_volume_load(&store, "v1", &v, &err), -EUCLEAN);
		assert_int_equal(v.capacity, 99);
		assert_int_equal(strncmp(err.msg, "state of volume `v1`: ", 22), 0);
		assert_int_equal(err.num, EUCLEAN);
		write_file("s/volumes/v1/state.json", text);
	}
	assert_int_equal(stored("v1"), 1 << 25);
}

static void garbage_is_never_taken_for_a_state(void **state)
{
	static const char *const rows[] = {
		"",     "\n",   "garbage",         "[]",       "{}",
		"null", "\"\"", "{\"version\":1}", "\xff\xfe", "{\"version\":1,\"version\":1}"
	};

	(void)state;
	make_dir("s/volumes/v1");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		write_file("s/volumes/v1/state.json", rows[i]);
		assert_int_equal(stored("v1"), -EUCLEAN);
	}
	write_file("s/volumes/v1/state.json", "");
	assert_int_equal(truncate("s/volumes/v1/state.json", 4096), 0); /* zeroes after a crash */
	assert_int_equal(stored("v1"), -EUCLEAN);
}

static void the_state_of_another_volume_or_version_is_not_taken(void **state)
{
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	cleanup_json json_t *o = NULL;
	struct uc_err err = { 0 };

	(void)state;
	store_volume("v1", 1 << 25);
	make_dir("s/volumes/v2");
	assert_int_equal(rename("s/volumes/v1/state.json", "s/volumes/v2/state.json"), 0);
	assert_int_equal(uc_volume_load(&store, "v2", &v, &err), -EUCLEAN);
	assert_string_equal(err.msg, "state of volume `v2` is that of another one");

	o = json_load_file("s/volumes/v2/state.json", 0, NULL);
	json_object_set_new(o, "id", json_string("v2"));
	json_object_set_new(o, "version", json_integer(2));
	assert_int_equal(json_dump_file(o, "s/volumes/v2/state.json", 0), 0);
	assert_int_equal(uc_volume_load(&store, "v2", &v, &err), -EUCLEAN);
	assert_string_equal(err.msg, "state of volume `v2`: field `version` is 2, not 1");
}

static void a_state_that_cannot_be_read_is_told_from_a_bad_one(void **state)
{
	(void)state;
	make_dir("s/volumes/v1");
	assert_int_equal(symlink("elsewhere", "s/volumes/v1/state.json"), 0);
	assert_int_equal(stored("v1"), -ELOOP);
	unlink("s/volumes/v1/state.json");
	make_dir("s/volumes/v1/state.json");
	assert_int_equal(stored("v1"), -EISDIR);
	rmdir("s/volumes/v1/state.json");
	write_file("s/volumes/v1/state.json", "");
	assert_int_equal(truncate("s/volumes/v1/state.json", 1 << 30), 0);
	assert_int_equal(stored("v1"), -EFBIG);
}

static void a_store_that_fails_leaves_the_old_state(void **state)
{
	unsigned n;

	(void)state;
	store_volume("v1", 1000);
	for (n = 1;; n++) {
		cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
		cleanup_volume struct uc_volume v = make_full_volume("v1");
		struct uc_err err = { 0 };
		int r;

		lock_volume("v1", &lock);
		v.capacity = 2000;
		fail_step(n, false);
		r = uc_volume_store(&lock, &v, &err);
		if (steps < n) {
			assert_int_equal(r, 0);
			assert_int_equal(stored("v1"), 2000);
			break;
		}
		assert_int_equal(r, -EIO);
		assert_int_equal(strncmp(err.msg, "write the state of volume `v1`: ", 32), 0);
		fail_nothing();
		/* After the rename a crash may leave either. */
		if (stored("v1") == 2000) {
			v.capacity = 1000;
			assert_int_equal(uc_volume_store(&lock, &v, NULL), 0);
		}
		assert_int_equal(stored("v1"), 1000);
		assert_string_equal(listing("s/volumes/v1"), "state.json ");
	}
	assert_int_equal(n, 7); /* open, write, fchmod, fsync, rename, fsync */
}

/* ------------------------------------------------------------------- forgetting */

/* Only root may clone a mount; nothing is mounted here. */
int __wrap_uc_mount_clone(int fd, uint64_t attr_set, uint64_t attr_clr, int *ret_fd,
			  struct uc_err *err);
int __wrap_uc_mount_clone(int fd, uint64_t attr_set, uint64_t attr_clr, int *ret_fd,
			  struct uc_err *err)
{
	assert_true(attr_set == 0 && attr_clr == 0);
	*ret_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return *ret_fd < 0 ? uc_fail(err, errno, "clone a mount") : 0;
}

static void fill_v1(void)
{
	store_volume("v1", 1000);
	write_file("s/volumes/v1/ctl.sock", "");
	write_file("s/volumes/v1/server.log", "x");
	write_file("s/volumes/v1/.state.json.tmp", "x");
	make_dir("s/volumes/v1/merged");
}

static void a_forgotten_volume_is_gone_with_what_its_server_left(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;

	(void)state;
	fill_v1();
	lock_volume("v1", &lock);
	assert_int_equal(uc_volume_forget(&store, &lock, "v1", NULL), 0);
	assert_int_equal(lock.fd, -1);
	assert_string_equal(listing("s/volumes"), "");
	assert_int_equal(stored("v1"), -ENOENT);
}

static void what_a_server_serves_is_not_forgotten(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	struct uc_err err = { 0 };
	int server;

	(void)state;
	fill_v1();
	server = open("s/volumes/v1/merged", O_RDONLY | O_CLOEXEC);
	assert_int_equal(flock(server, LOCK_EX), 0);
	lock_volume("v1", &lock);
	assert_int_equal(uc_volume_forget(&store, &lock, "v1", &err), -EBUSY);
	assert_non_null(strstr(err.msg, "another server"));
	assert_int_equal(stored("v1"), 1000);
	assert_true(file_exists("s/volumes/v1/ctl.sock"));
	close(server);
	assert_int_equal(uc_volume_forget(&store, &lock, "v1", NULL), 0);
}

static void a_volume_that_has_nothing_is_forgotten_too(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;

	(void)state;
	lock_volume("v1", &lock);
	assert_int_equal(uc_volume_forget(&store, &lock, "v1", NULL), 0);
	assert_string_equal(listing("s/volumes"), "");
}

static void forgetting_goes_on_where_it_has_failed(void **state)
{
	unsigned n;

	(void)state;
	for (n = 1; n < 100; n++) {
		struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
		struct uc_err err = { 0 };
		int r;

		remove_tree("s/volumes/v1");
		fill_v1();
		lock_volume("v1", &lock);
		fail_step(n, false);
		r = uc_volume_forget(&store, &lock, "v1", &err);
		if (steps < n) {
			assert_int_equal(r, 0);
			break;
		}
		assert_int_equal(r, -EIO);
		assert_true(*err.msg);
		fail_nothing();
		/* Nothing else goes before the state is gone. */
		if (stored("v1") == 1000)
			assert_string_equal(
				listing("s/volumes/v1"),
				file_exists("s/volumes/v1/.state.json.tmp")
					? ".state.json.tmp ctl.sock merged server.log state.json "
					: "ctl.sock merged server.log state.json ");
		else
			assert_int_equal(stored("v1"), -ENOENT);
		uc_volume_unlock(&lock);
		if (uc_volume_lock(&store, "v1", false, &lock, NULL) == 0)
			assert_int_equal(uc_volume_forget(&store, &lock, "v1", NULL), 0);
		assert_string_equal(listing("s/volumes"), "");
	}
	assert_in_range(n, 7, 20);
}

static void what_is_not_a_servers_keeps_the_directory(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	struct uc_err err = { 0 };

	(void)state;
	fill_v1();
	write_file("s/volumes/v1/somebodys", "precious");
	lock_volume("v1", &lock);
	assert_int_equal(uc_volume_forget(&store, &lock, "v1", &err), -ENOTEMPTY);
	assert_non_null(strstr(err.msg, "`v1`"));
	uc_volume_unlock(&lock);
	assert_string_equal(listing("s/volumes/v1"), "somebodys ");
	assert_int_equal(stored("v1"), -ENOENT);
}

static void what_lies_under_the_mount_point_is_kept(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;

	(void)state;
	fill_v1();
	write_file("s/volumes/v1/merged/data", "precious");
	lock_volume("v1", &lock);
	assert_int_equal(uc_volume_forget(&store, &lock, "v1", NULL), -ENOTEMPTY);
	uc_volume_unlock(&lock);
	assert_string_equal(file_text("s/volumes/v1/merged/data"), "precious");
}

/* ---------------------------------------------------------------------- listing */

static int collect(void *data, const char *id)
{
	size_t n = strlen(data);

	snprintf((char *)data + n, 200 - n, "%s ", id);
	return strcmp(id, "stop") == 0 ? -EXDEV : 0;
}

static void volumes_are_listed_in_byte_order_and_nothing_else(void **state)
{
	static const char *const names[] = { "b", "B",    "a",  "a-1", "a.1", "a1", "0",
					     "z", ".tmp", "a.", "-a",  "a b", "_a", "\xff" };
	char seen[200] = "";

	(void)state;
	assert_int_equal(uc_store_each(&store, collect, seen, NULL), 0);
	assert_string_equal(seen, "");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char path[64];

		snprintf(path, sizeof(path), "s/volumes/%s", names[i]);
		make_dir(path);
	}
	assert_int_equal(uc_store_each(&store, collect, seen, NULL), 0);
	assert_string_equal(seen, "0 B a a-1 a.1 a1 b z ");
}

static void a_listing_ends_where_it_is_told_to(void **state)
{
	char seen[200] = "";

	(void)state;
	make_dir("s/volumes/a");
	make_dir("s/volumes/stop");
	make_dir("s/volumes/z");
	assert_int_equal(uc_store_each(&store, collect, seen, NULL), -EXDEV);
	assert_string_equal(seen, "a stop ");
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_look_makes_nothing),
		T(a_state_directory_is_made_for_its_owner_alone),
		T(a_state_directory_that_is_there_is_used),
		T(what_cannot_be_a_state_directory_is_refused_by_name),
		T(a_state_directory_that_cannot_be_made_leaves_no_descriptor),
		T(what_is_stored_is_loaded),
		T(a_volume_without_a_state_is_not_found),
		T(a_torn_state_is_never_taken_for_one),
		T(garbage_is_never_taken_for_a_state),
		T(the_state_of_another_volume_or_version_is_not_taken),
		T(a_state_that_cannot_be_read_is_told_from_a_bad_one),
		T(a_store_that_fails_leaves_the_old_state),
		T(a_forgotten_volume_is_gone_with_what_its_server_left),
		T(what_a_server_serves_is_not_forgotten),
		T(a_volume_that_has_nothing_is_forgotten_too),
		T(forgetting_goes_on_where_it_has_failed),
		T(what_is_not_a_servers_keeps_the_directory),
		T(what_lies_under_the_mount_point_is_kept),
		T(volumes_are_listed_in_byte_order_and_nothing_else),
		T(a_listing_ends_where_it_is_told_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
