/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <string.h>
#include <time.h>

#include "lib/os/clock.h"

/* What the kernel says, and what it is asked for. */
static struct timespec now;
static unsigned interruptions, sleeps;
static struct timespec asked;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	assert_int_equal(clock, CLOCK_MONOTONIC);
	*ts = now;
	return 0;
}

int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *ts,
			   struct timespec *left);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *ts,
			   struct timespec *left)
{
	assert_int_equal(clock, CLOCK_MONOTONIC);
	assert_int_equal(flags, 0);
	if (!sleeps++)
		asked = *ts;
	if (!interruptions)
		return 0;
	interruptions--;
	left->tv_sec = ts->tv_sec / 2;
	left->tv_nsec = ts->tv_nsec / 2;
	return EINTR;
}

static void the_clock_counts_milliseconds(void **state)
{
	(void)state;
	now = (struct timespec){ .tv_sec = 5, .tv_nsec = 7999999 };
	assert_int_equal(uc_now_ms(), 5007);
	now = (struct timespec){ .tv_sec = INT64_C(10000000000), .tv_nsec = 0 };
	assert_int_equal(uc_now_ms(), UINT64_C(10000000000000));
}

static void a_sleep_is_as_long_as_asked_for(void **state)
{
	(void)state;
	sleeps = interruptions = 0;
	uc_sleep_ms(2345);
	assert_int_equal(sleeps, 1);
	assert_int_equal(asked.tv_sec, 2);
	assert_int_equal(asked.tv_nsec, 345000000);
}

static void an_interrupted_sleep_goes_on_with_what_is_left(void **state)
{
	(void)state;
	sleeps = 0;
	interruptions = 3;
	uc_sleep_ms(8000);
	assert_int_equal(sleeps, 4);
	assert_int_equal(interruptions, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_clock_counts_milliseconds),
		cmocka_unit_test(a_sleep_is_as_long_as_asked_for),
		cmocka_unit_test(an_interrupted_sleep_goes_on_with_what_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
