/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "lib/os/bounded.h"
#include "lib/os/clock.h"

struct work {
	atomic_bool hangs, ended, released;
	sem_t go_on;
};

static void do_work(void *data)
{
	struct work *w = data;

	if (atomic_load(&w->hangs))
		while (sem_wait(&w->go_on) < 0)
			;
	atomic_store(&w->ended, true);
}

static void release(void *data)
{
	struct work *w = data;

	atomic_store(&w->released, true);
}

static struct work work, other;

static int set_up(void **state)
{
	(void)state;
	atomic_store(&work.hangs, false);
	atomic_store(&work.ended, false);
	atomic_store(&work.released, false);
	sem_init(&work.go_on, 0, 0);
	return 0;
}

static int run(const char *key, struct work *w, uint64_t timeout_ms)
{
	return uc_bounded_run(key, timeout_ms, do_work, w, release);
}

static void what_ends_in_time_is_the_callers(void **state)
{
	(void)state;
	assert_int_equal(run("a", &work, 10000), 0);
	assert_true(atomic_load(&work.ended));
	assert_false(atomic_load(&work.released));
}

static void what_hangs_is_left_and_keeps_only_its_own_key(void **state)
{
	uint64_t end = uc_now_ms() + 10000;

	(void)state;
	atomic_store(&work.hangs, true);
	assert_int_equal(run("a", &work, 10), -ETIMEDOUT);
	assert_int_equal(run("a", &other, 10000), -EALREADY);
	assert_int_equal(run("b", &other, 10000), 0);
	assert_false(atomic_load(&work.released));
	sem_post(&work.go_on);
	while (!atomic_load(&work.released) && uc_now_ms() < end)
		sched_yield();
	assert_true(atomic_load(&work.released));
	assert_int_equal(run("a", &other, 10000), 0);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup(test, set_up)
	const struct CMUnitTest tests[] = {
		T(what_ends_in_time_is_the_callers),
		T(what_hangs_is_left_and_keeps_only_its_own_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
