/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/store.h"
#include <pthread.h>
#include <sys/file.h>

/* Somebody else, while a state is written. */
static void (*in_fsync)(void);

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	void (*meanwhile)(void) = in_fsync;

	in_fsync = NULL;
	if (meanwhile)
		meanwhile();
	assert_true(fcntl(fd, F_GETFD) >= 0);
	return 0; /* no test needs the disk to have it */
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

static int set_up(void **state)
{
	(void)state;
	store_begin();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	before_flock = NULL;
	store_end();
	return 0;
}

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

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
