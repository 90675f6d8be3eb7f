/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <string.h>

#include "csi/status.h"
#include "lib/base/macros.h"

static void a_failure_has_its_status_and_a_fitting_errno(void **state)
{
	static const struct {
		enum uc_grpc_status status;
		int num;
	} rows[] = {
		{ UC_GRPC_INVALID_ARGUMENT, EINVAL },
		{ UC_GRPC_NOT_FOUND, ENOENT },
		{ UC_GRPC_ALREADY_EXISTS, EEXIST },
		{ UC_GRPC_RESOURCE_EXHAUSTED, ENOSPC },
		{ UC_GRPC_FAILED_PRECONDITION, EPERM },
		{ UC_GRPC_ABORTED, EBUSY },
		{ UC_GRPC_OUT_OF_RANGE, ERANGE },
		{ UC_GRPC_UNAVAILABLE, EAGAIN },
		{ UC_GRPC_DEADLINE_EXCEEDED, ETIMEDOUT },
		{ UC_GRPC_INTERNAL, EIO },
		{ UC_GRPC_DATA_LOSS, EIO },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_err err = { 0 };

		assert_int_equal(csi_fail(&err, rows[i].status, "volume `%s`", "v%s1"),
				 -rows[i].num);
		assert_int_equal(err.status, rows[i].status);
		assert_int_equal(err.num, rows[i].num);
		assert_string_equal(err.msg, "volume `v%s1`"); /* no errno text, formatted once */
		assert_int_equal(csi_status(&err), rows[i].status);
		assert_int_equal(csi_fail(NULL, rows[i].status, "x"), -rows[i].num);
	}
}

static void long_text_is_cut(void **state)
{
	char big[2 * UC_ERR_MSG_MAX];
	struct uc_err err = { 0 };

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	csi_fail(&err, UC_GRPC_INTERNAL, "%s", big);
	assert_int_equal(strlen(err.msg), UC_ERR_MSG_MAX - 1);
}

static void an_error_without_a_status_gets_one_and_keeps_it(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(csi_as(&err, uc_fail(&err, EIO, "x"), UC_GRPC_UNAVAILABLE), -EIO);
	assert_int_equal(csi_status(&err), UC_GRPC_UNAVAILABLE);
	assert_int_equal(csi_as(&err, -EIO, UC_GRPC_NOT_FOUND), -EIO);
	assert_int_equal(csi_status(&err), UC_GRPC_UNAVAILABLE);
	assert_int_equal(csi_as(NULL, -EIO, UC_GRPC_NOT_FOUND), -EIO);
}

static void success_gets_no_status(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(csi_as(&err, 0, UC_GRPC_NOT_FOUND), 0);
	assert_int_equal(csi_as(&err, 7, UC_GRPC_NOT_FOUND), 7);
	assert_int_equal(err.status, 0);
}

static void an_errno_alone_is_our_own_trouble_but_for_a_few(void **state)
{
	(void)state;
	for (int num = 1; num < 134; num++) {
		enum uc_grpc_status expected = num == ENOSPC ? UC_GRPC_RESOURCE_EXHAUSTED
					       : num == EBUSY || num == ECANCELED ? UC_GRPC_ABORTED
					       : num == ENOMEM    ? UC_GRPC_UNAVAILABLE
					       : num == ETIMEDOUT ? UC_GRPC_DEADLINE_EXCEEDED
								  : UC_GRPC_INTERNAL;
		struct uc_err err = { 0 };

		uc_fail(&err, num, "x");
		assert_int_equal(csi_status(&err), expected);
	}
}

static void context_keeps_the_status(void **state)
{
	struct uc_err err = { 0 };
	int r = csi_fail(&err, UC_GRPC_OUT_OF_RANGE, "too large");

	(void)state;
	assert_int_equal(uc_wrap(&err, r, "create volume `v1`"), -ERANGE);
	assert_int_equal(csi_status(&err), UC_GRPC_OUT_OF_RANGE);
	assert_string_equal(err.msg, "create volume `v1`: too large");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failure_has_its_status_and_a_fitting_errno),
		cmocka_unit_test(long_text_is_cut),
		cmocka_unit_test(an_error_without_a_status_gets_one_and_keeps_it),
		cmocka_unit_test(success_gets_no_status),
		cmocka_unit_test(an_errno_alone_is_our_own_trouble_but_for_a_few),
		cmocka_unit_test(context_keeps_the_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
