/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/unit.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/statvfs.h>

#include "lib/base/cleanup.h"
#include "lib/os/clock.h"
#include "lib/os/mount.h"
#include "lib/os/statfs.h"

/* A filesystem that answers what it is told to, once it may. */
static atomic_bool hangs;
static atomic_int answer_errno;
static atomic_uint questions;
static sem_t may_answer;

int __wrap_fstatvfs64(int fd, struct statvfs64 *st);
int __wrap_fstatvfs64(int fd, struct statvfs64 *st)
{
	atomic_fetch_add(&questions, 1);
	if (!(fcntl(fd, F_GETFD) & FD_CLOEXEC))
		abort(); /* not cmocka's thread */
	if (atomic_load(&hangs))
		while (sem_wait(&may_answer) < 0)
			;
	if (atomic_load(&answer_errno)) {
		errno = atomic_load(&answer_errno);
		return -1;
	}
	*st = (struct statvfs64){
		.f_bsize = 1 << 20, /* what a transfer should have; not the unit */
		.f_frsize = 512,
		.f_blocks = 1000,
		.f_bfree = 600,
		.f_bavail = 550,
		.f_files = 100,
		.f_ffree = 90,
		.f_favail = 80,
	};
	return 0;
}

/* The mount that a descriptor lies on, as the test wants it. */
static _Thread_local uint64_t mount_id;
static int mount_errno;

int __wrap_uc_mount_id(int fd, uint64_t *ret_id, bool *ret_is_root);
int __wrap_uc_mount_id(int fd, uint64_t *ret_id, bool *ret_is_root)
{
	(void)fd;
	(void)ret_is_root;
	*ret_id = mount_id;
	return -mount_errno;
}

static int thread_errno;

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	return thread_errno ? thread_errno : __real_pthread_create(t, a, fn, arg);
}

static int dup_errno;

int __real_fcntl64(int fd, int cmd, ...);
int __wrap_fcntl64(int fd, int cmd, ...);
int __wrap_fcntl64(int fd, int cmd, ...)
{
	long arg = 0;
	va_list ap;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	if (cmd == F_DUPFD_CLOEXEC && dup_errno) {
		errno = dup_errno;
		return -1;
	}
	return __real_fcntl64(fd, cmd, arg);
}

static int here = -1;
static size_t fds_before;

static int set_up(void **state)
{
	(void)state;
	atomic_store(&hangs, false);
	atomic_store(&answer_errno, 0);
	atomic_store(&questions, 0);
	mount_id = 1;
	mount_errno = thread_errno = dup_errno = 0;
	sem_init(&may_answer, 0, 0);
	here = open(".", O_PATH | O_CLOEXEC);
	fds_before = open_fds();
	return 0;
}

/* Threads end a moment after their answer is taken; then nothing of them is left. */
static void await_end_of_threads(void)
{
	uint64_t end = uc_now_ms() + 10000;

	while (open_fds() > fds_before && uc_now_ms() < end)
		sched_yield();
	assert_int_equal(open_fds(), fds_before);
}

static int tear_down(void **state)
{
	(void)state;
	await_end_of_threads();
	close(here);
	return 0;
}

static int ask(uint64_t id, uint64_t timeout_ms, struct uc_err *err)
{
	struct uc_statfs usage;

	mount_id = id;
	return uc_statfs_bounded(here, timeout_ms, &usage, err);
}

static void usage_is_in_bytes_as_df_shows_it(void **state)
{
	struct uc_statfs u;

	(void)state;
	assert_int_equal(uc_statfs_bounded(here, 10000, &u, NULL), 0);
	assert_int_equal(u.total, 512000);
	assert_int_equal(u.used, 400 * 512);
	assert_int_equal(u.available, 550 * 512);
	assert_int_equal(u.inodes, 100);
	assert_int_equal(u.inodes_used, 10);
	assert_int_equal(u.inodes_free, 90);
}

static void an_error_of_the_filesystem_is_passed_on(void **state)
{
	struct uc_statfs u = { .total = 7 };
	struct uc_err err = { 0 };

	(void)state;
	atomic_store(&answer_errno, ENOTCONN);
	assert_int_equal(uc_statfs_bounded(here, 10000, &u, &err), -ENOTCONN);
	assert_int_equal(u.total, 7);
	assert_non_null(strstr(err.msg, "Transport endpoint is not connected"));
}

static void a_filesystem_that_hangs_is_given_up_in_time(void **state)
{
	uint64_t begin = uc_now_ms();
	struct uc_err err = { 0 };
	struct uc_statfs u = { .total = 7 };

	(void)state;
	atomic_store(&hangs, true);
	assert_int_equal(uc_statfs_bounded(here, 30, &u, &err), -ETIMEDOUT);
	assert_in_range(uc_now_ms() - begin, 29, 10000);
	assert_int_equal(u.total, 7);
	assert_non_null(strstr(err.msg, "timed out"));
	sem_post(&may_answer);
}

static void a_second_question_to_it_fails_at_once(void **state)
{
	uint64_t begin = uc_now_ms();
	struct uc_err err = { 0 };

	(void)state;
	atomic_store(&hangs, true);
	assert_int_equal(ask(1, 10, NULL), -ETIMEDOUT);
	for (int i = 0; i < 5; i++)
		assert_int_equal(ask(1, 60000, &err), -ETIMEDOUT);
	assert_true(uc_now_ms() - begin < 30000);
	assert_non_null(strstr(err.msg, "earlier question"));
	assert_int_equal(atomic_load(&questions), 1);
	sem_post(&may_answer);
}

static void other_mounts_answer_meanwhile(void **state)
{
	(void)state;
	atomic_store(&hangs, true);
	assert_int_equal(ask(1, 10, NULL), -ETIMEDOUT);
	assert_int_equal(ask(2, 10, NULL), -ETIMEDOUT);
	atomic_store(&hangs, false);
	assert_int_equal(ask(3, 10000, NULL), 0);
	assert_int_equal(ask(1, 10000, NULL), -ETIMEDOUT);
	assert_int_equal(ask(2, 10000, NULL), -ETIMEDOUT);
	sem_post(&may_answer);
	sem_post(&may_answer);
}

static void after_a_late_answer_it_is_asked_again(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		atomic_store(&hangs, true);
		assert_int_equal(ask(1, 10, NULL), -ETIMEDOUT);
		sem_post(&may_answer);
		await_end_of_threads();
		atomic_store(&hangs, false);
		assert_int_equal(ask(1, 10000, NULL), 0);
	}
}

static void no_time_at_all_is_no_reason_to_wait(void **state)
{
	(void)state;
	atomic_store(&hangs, true);
	assert_int_equal(ask(1, 0, NULL), -ETIMEDOUT);
	sem_post(&may_answer);
}

static void what_cannot_be_asked_is_an_error_and_leaves_nothing(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	thread_errno = EAGAIN;
	assert_int_equal(ask(1, 10000, &err), -EAGAIN);
	assert_non_null(strstr(err.msg, "ask a filesystem"));
	thread_errno = 0;
	dup_errno = EMFILE;
	assert_int_equal(ask(1, 10000, &err), -EMFILE);
	dup_errno = 0;
	mount_errno = EBADF;
	assert_int_equal(ask(1, 10000, &err), -EBADF);
	mount_errno = 0;
	assert_int_equal(atomic_load(&questions), 0);
	assert_int_equal(ask(1, 10000, NULL), 0);
}

static void *ask_often(void *arg)
{
	for (uint64_t i = 0; i < 50; i++)
		if (ask(1 + (i + (uintptr_t)arg) % 3, 60000, NULL) < 0)
			return arg;
	return NULL;
}

static void many_threads_may_ask(void **state)
{
	pthread_t threads[8];

	(void)state;
	for (uintptr_t i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, ask_often, (void *)(i + 1)), 0);
	for (size_t i = 0; i < 8; i++) {
		void *failed = NULL;

		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(atomic_load(&questions), 8 * 50);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(usage_is_in_bytes_as_df_shows_it),
		T(an_error_of_the_filesystem_is_passed_on),
		T(a_filesystem_that_hangs_is_given_up_in_time),
		T(a_second_question_to_it_fails_at_once),
		T(other_mounts_answer_meanwhile),
		T(after_a_late_answer_it_is_asked_again),
		T(no_time_at_all_is_no_reason_to_wait),
		T(what_cannot_be_asked_is_an_error_and_leaves_nothing),
		T(many_threads_may_ask),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
