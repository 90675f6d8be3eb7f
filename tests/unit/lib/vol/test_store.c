/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/unit.h"
#include "tests/lib/volume.h"
#include <pthread.h>
#include <stdarg.h>
#include <sys/file.h>

#include "lib/base/macros.h"
#include "lib/vol/store.h"

/* What changes the disk: the n-th call fails. */
static unsigned steps, fail_at;

static void arm(unsigned n)
{
	steps = 0;
	fail_at = n;
}

static bool fails(void)
{
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
	return flags & O_CREAT && fails() ? -1 : __real_openat64(dirfd, path, flags, mode);
}

int __real_mkdirat(int dirfd, const char *name, mode_t mode);
int __wrap_mkdirat(int dirfd, const char *name, mode_t mode);
int __wrap_mkdirat(int dirfd, const char *name, mode_t mode)
{
	return fails() ? -1 : __real_mkdirat(dirfd, name, mode);
}

int __real_unlinkat(int dirfd, const char *name, int flags);
int __wrap_unlinkat(int dirfd, const char *name, int flags);
int __wrap_unlinkat(int dirfd, const char *name, int flags)
{
	return fails() ? -1 : __real_unlinkat(dirfd, name, flags);
}

int __real_renameat(int from, const char *a, int to, const char *b);
int __wrap_renameat(int from, const char *a, int to, const char *b);
int __wrap_renameat(int from, const char *a, int to, const char *b)
{
	return fails() ? -1 : __real_renameat(from, a, to, b);
}

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
	return fails() ? -1 : __real_write(fd, p, n);
}

int __real_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode)
{
	return fails() ? -1 : __real_fchmod(fd, mode);
}

static void (*in_fsync)(void);

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	void (*meanwhile)(void) = in_fsync;

	in_fsync = NULL;
	if (meanwhile)
		meanwhile();
	assert_true(fcntl(fd, F_GETFD) >= 0);
	return fails() ? -1 : 0; /* no test needs the disk to have it */
}

static uint64_t now = 1000;

uint64_t __wrap_uc_now_ms(void);
uint64_t __wrap_uc_now_ms(void)
{
	return now;
}

/* Somebody else, between the opening of a volume's directory and its locking. */
static void (*before_flock)(void);

int __real_flock(int fd, int op);
int __wrap_flock(int fd, int op);
int __wrap_flock(int fd, int op)
{
	void (*race)(void) = before_flock;

	before_flock = NULL;
	if (race)
		race();
	return __real_flock(fd, op);
}

static struct uc_store store = UC_STORE_INIT;
static size_t fds_before;

static int set_up(void **state)
{
	(void)state;
	arm(0);
	remove_tree("s");
	assert_int_equal(uc_store_open("s", &store, NULL), 0);
	fds_before = open_fds();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	arm(0);
	before_flock = NULL;
	assert_int_equal(open_fds(), fds_before);
	uc_store_close(&store);
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

static void lock_volume(const char *id, struct uc_volume_lock *lock)
{
	assert_int_equal(uc_volume_lock(&store, id, true, lock, NULL), 0);
}

static void store_volume(const char *id, uint64_t capacity)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = make_full_volume(id);

	lock_volume(id, &lock);
	v.capacity = capacity;
	assert_int_equal(uc_volume_store(&lock, &v, NULL), 0);
}

/* The capacity that is on disk, or what loading returns. */
static int64_t stored(const char *id)
{
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	int r = uc_volume_load(&store, id, &v, NULL);

	return r < 0 ? r : (int64_t)v.capacity;
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
	(void)state;
	for (unsigned n = 1;; n++) {
		struct uc_store s = UC_STORE_INIT;
		int r;

		remove_tree("s2");
		arm(n);
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
}

/* ------------------------------------------------------------------------- lock */

static void a_volume_that_is_not_there_cannot_be_locked_unless_it_is_made(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	struct uc_err err = { 0 };
	struct stat st;

	(void)state;
	assert_int_equal(uc_volume_lock(&store, "v1", false, &lock, &err), -ENOENT);
	assert_string_equal(err.msg, "there is no volume `v1`");
	assert_int_equal(lock.fd, -1);
	assert_int_equal(uc_volume_lock(&store, "v1", true, &lock, NULL), 0);
	assert_int_equal(stat("s/volumes/v1", &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	uc_volume_unlock(&lock);
	uc_volume_unlock(&lock);
}

static void a_locked_volume_is_busy_for_everybody_else(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE, other = UC_VOLUME_LOCK_NONE;
	struct uc_store second = UC_STORE_INIT;
	struct uc_err err = { 0 };

	(void)state;
	lock_volume("v1", &lock);
	assert_int_equal(uc_store_open("s", &second, NULL), 0);
	for (int create = 0; create < 2; create++) {
		assert_int_equal(uc_volume_lock(&second, "v1", create, &other, &err), -EBUSY);
		assert_int_equal(strncmp(err.msg, "volume `v1` is busy", 19), 0);
		assert_int_equal(uc_volume_lock(&store, "v1", create, &other, &err), -EBUSY);
		assert_int_equal(other.fd, -1);
	}
	assert_int_equal(uc_volume_lock(&second, "v2", true, &other, NULL), 0);
	uc_volume_unlock(&other);
	uc_volume_unlock(&lock);
	assert_int_equal(uc_volume_lock(&second, "v1", false, &other, NULL), 0);
	uc_volume_unlock(&other);
	uc_store_close(&second);
}

static void what_is_no_directory_is_not_locked(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;

	(void)state;
	write_file("s/volumes/f", "x");
	make_dir("s/volumes/v1");
	assert_int_equal(symlink("v1", "s/volumes/link"), 0);
	assert_int_equal(uc_volume_lock(&store, "f", true, &lock, NULL), -ENOTDIR);
	assert_int_equal(uc_volume_lock(&store, "link", false, &lock, NULL), -ENOTDIR);
	assert_int_equal(lock.fd, -1);
}

static void remove_v1(void)
{
	assert_int_equal(rmdir("s/volumes/v1"), 0);
}

static void replace_v1(void)
{
	remove_v1();
	make_dir("s/volumes/v1");
	write_file("s/volumes/v1/new", "x");
}

static void a_lock_of_a_directory_that_was_removed_meanwhile_is_no_lock(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE, other = UC_VOLUME_LOCK_NONE;

	(void)state;
	make_dir("s/volumes/v1");
	before_flock = remove_v1;
	assert_int_equal(uc_volume_lock(&store, "v1", false, &lock, NULL), -ENOENT);
	assert_int_equal(lock.fd, -1);

	make_dir("s/volumes/v1");
	before_flock = remove_v1;
	assert_int_equal(uc_volume_lock(&store, "v1", true, &lock, NULL), 0);
	assert_int_equal(uc_volume_lock(&store, "v1", true, &other, NULL), -EBUSY);
	uc_volume_unlock(&lock);
}

static void a_directory_that_was_replaced_meanwhile_is_locked_anew(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;

	(void)state;
	make_dir("s/volumes/v1");
	before_flock = replace_v1;
	assert_int_equal(uc_volume_lock(&store, "v1", false, &lock, NULL), 0);
	assert_int_equal(faccessat(lock.fd, "new", F_OK, 0), 0);
	uc_volume_unlock(&lock);
}

/* ----------------------------------------------------- operations that hang */

enum {
	HANG_MS = 5000,
};

/* Another thread tries to lock v1; what came of it. */
static void *try_lock(void *ret)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;

	*(int *)ret = uc_volume_lock(&store, "v1", false, &lock, NULL);
	uc_volume_unlock(&lock);
	return NULL;
}

static int lock_from_elsewhere(void)
{
	pthread_t thread;
	int r = -1;

	assert_int_equal(pthread_create(&thread, NULL, try_lock, &r), 0);
	pthread_join(thread, NULL);
	return r;
}

static void an_operation_that_gives_signs_of_life_keeps_its_lock(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;

	(void)state;
	uc_volume_lock_set_hang(HANG_MS);
	lock_volume("v1", &lock);
	for (int i = 0; i < 5; i++) {
		now += HANG_MS - 1;
		assert_int_equal(lock_from_elsewhere(), -EBUSY);
		assert_int_equal(uc_volume_lock_beat(), 0);
	}
	uc_volume_unlock(&lock);
}

static void an_operation_that_hangs_loses_its_lock_and_can_store_nothing(void **state)
{
	cleanup_volume struct uc_volume v = make_full_volume("v1");
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;

	(void)state;
	uc_volume_lock_set_hang(HANG_MS);
	store_volume("v1", 1000);
	lock_volume("v1", &lock);
	now += HANG_MS;
	assert_int_equal(lock_from_elsewhere(), 0);
	assert_int_equal(uc_volume_lock_beat(), -ECANCELED);
	v.capacity = 2000;
	assert_int_equal(uc_volume_store(&lock, &v, NULL), -ECANCELED);
	assert_int_equal(uc_volume_forget(&store, &lock, "v1", NULL), -ECANCELED);
	assert_int_equal(stored("v1"), 1000);
	uc_volume_unlock(&lock);
	assert_int_equal(uc_volume_lock_beat(), 0); /* this thread holds none */
}

static void a_lost_lock_that_is_released_takes_nothing_from_its_new_holder(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE, next = UC_VOLUME_LOCK_NONE;

	(void)state;
	uc_volume_lock_set_hang(HANG_MS);
	lock_volume("v1", &lock);
	now += HANG_MS;
	lock_volume("v1", &next);
	uc_volume_unlock(&lock);
	assert_int_equal(lock_from_elsewhere(), -EBUSY);
	uc_volume_unlock(&next);
	assert_int_equal(lock_from_elsewhere(), 0);
}

static int result_in_fsync;

static void hang_in_fsync(void)
{
	now += 10 * HANG_MS;
	result_in_fsync = lock_from_elsewhere();
}

static void a_lock_is_not_taken_away_while_the_state_is_written(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = make_full_volume("v1");

	(void)state;
	uc_volume_lock_set_hang(HANG_MS);
	lock_volume("v1", &lock);
	in_fsync = hang_in_fsync;
	assert_int_equal(uc_volume_store(&lock, &v, NULL), 0);
	assert_int_equal(result_in_fsync, -EBUSY);
	assert_int_equal(lock_from_elsewhere(), -EBUSY); /* the time begins anew */
	assert_int_equal(uc_volume_lock_beat(), 0);
	uc_volume_unlock(&lock);
}

static void a_process_that_hangs_is_not_robbed_by_another(void **state)
{
	struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	int fd;

	(void)state;
	uc_volume_lock_set_hang(HANG_MS);
	make_dir("s/volumes/v1");
	fd = open_dir("s/volumes/v1"); /* as another process has it */
	assert_int_equal(flock(fd, LOCK_EX), 0);
	now += 10 * HANG_MS;
	assert_int_equal(uc_volume_lock(&store, "v1", false, &lock, NULL), -EBUSY);
	close(fd);
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
		arm(n);
		r = uc_volume_store(&lock, &v, &err);
		if (steps < n) {
			assert_int_equal(r, 0);
			assert_int_equal(stored("v1"), 2000);
			break;
		}
		assert_int_equal(r, -EIO);
		assert_int_equal(strncmp(err.msg, "write the state of volume `v1`: ", 32), 0);
		arm(0);
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
		arm(n);
		r = uc_volume_forget(&store, &lock, "v1", &err);
		if (steps < n) {
			assert_int_equal(r, 0);
			break;
		}
		assert_int_equal(r, -EIO);
		assert_true(*err.msg);
		arm(0);
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
		T(a_volume_that_is_not_there_cannot_be_locked_unless_it_is_made),
		T(a_locked_volume_is_busy_for_everybody_else),
		T(what_is_no_directory_is_not_locked),
		T(a_lock_of_a_directory_that_was_removed_meanwhile_is_no_lock),
		T(a_directory_that_was_replaced_meanwhile_is_locked_anew),
		T(an_operation_that_gives_signs_of_life_keeps_its_lock),
		T(an_operation_that_hangs_loses_its_lock_and_can_store_nothing),
		T(a_lost_lock_that_is_released_takes_nothing_from_its_new_holder),
		T(a_lock_is_not_taken_away_while_the_state_is_written),
		T(a_process_that_hangs_is_not_robbed_by_another),
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
