/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>

#include "tests/lib/call.h"

#include "csi/op.h"
#include "csi/status.h"
#include "lib/base/log.h"
#include "lib/vol/store.h"

static int beat_result;
static unsigned beats;

int __wrap_uc_volume_lock_beat(void);
int __wrap_uc_volume_lock_beat(void)
{
	beats++;
	return beat_result;
}

static int call_beat_result;
static unsigned call_beats;

int __wrap_uc_call_beat(struct uc_call *c);
int __wrap_uc_call_beat(struct uc_call *c)
{
	(void)c;
	call_beats++;
	return call_beat_result;
}

static struct uc_call call;

static int set_up(void **state)
{
	(void)state;
	uc_log_init(UC_LOG_WARN, UC_LOG_TEXT);
	fake_call_init(&call, NULL, "NodeStageVolume");
	beat_result = call_beat_result = 0;
	beats = call_beats = 0;
	return 0;
}

static void a_step_is_told_to_the_call_and_to_the_lock(void **state)
{
	struct csi_op op = { .call = &call, .volume_id = "v1" };

	(void)state;
	assert_int_equal(csi_step(&op, NULL, "format branch %d of %d", 1, 2), 0);
	assert_string_equal(call.last_step, "format branch 1 of 2");
	assert_int_equal(call.steps, 1);
	assert_int_equal(beats, 1);
}

static void a_step_without_a_request_is_told_to_the_lock_alone(void **state)
{
	struct csi_op op = { .volume_id = "v1" };

	(void)state;
	assert_int_equal(csi_step(&op, NULL, "x"), 0);
	assert_int_equal(beats, 1);
}

static void a_step_of_an_operation_that_was_given_up_is_refused(void **state)
{
	struct csi_op op = { .call = &call, .volume_id = "v1" };
	struct uc_err err = { 0 };

	(void)state;
	call.cancel_at = 1;
	assert_int_equal(csi_step(&op, &err, "mount %s", "it"), -ECANCELED);
	assert_int_equal(csi_status(&err), UC_GRPC_ABORTED);
	assert_string_equal(err.msg,
			    "the operation took too long and was given up before: mount it");
}

static void a_step_of_an_operation_that_lost_its_lock_is_refused(void **state)
{
	struct csi_op op = { .call = &call, .volume_id = "v1" }, start = { .volume_id = "v1" };
	struct uc_err err = { 0 };

	(void)state;
	beat_result = -ECANCELED;
	assert_int_equal(csi_step(&op, &err, "x"), -ECANCELED);
	assert_int_equal(csi_status(&err), UC_GRPC_ABORTED);
	assert_int_equal(csi_step(&start, NULL, "x"), -ECANCELED);
}

static void a_beat_reaches_the_call_and_the_lock_though_one_refuses(void **state)
{
	struct csi_op op = { .call = &call, .volume_id = "v1" }, start = { .volume_id = "v1" };

	(void)state;
	assert_int_equal(csi_beat(&op), 0);
	call_beat_result = -ECANCELED;
	assert_int_equal(csi_beat(&op), -ECANCELED);
	call_beat_result = 0;
	beat_result = -ESTALE;
	assert_int_equal(csi_beat(&op), -ESTALE);
	assert_int_equal(call_beats, 3);
	assert_int_equal(beats, 3);
	assert_int_equal(csi_beat(&start), -ESTALE);
	assert_int_equal(call_beats, 3);
}

static void endless_text_is_cut(void **state)
{
	struct csi_op op = { .call = &call, .volume_id = "v1" };
	char big[1000];

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	assert_int_equal(csi_step(&op, NULL, "%s", big), 0);
	assert_in_range(strlen(call.last_step), 100, 199);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup(test, set_up)
	const struct CMUnitTest tests[] = {
		T(a_step_is_told_to_the_call_and_to_the_lock),
		T(a_step_without_a_request_is_told_to_the_lock_alone),
		T(a_step_of_an_operation_that_was_given_up_is_refused),
		T(a_step_of_an_operation_that_lost_its_lock_is_refused),
		T(a_beat_reaches_the_call_and_the_lock_though_one_refuses),
		T(endless_text_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
