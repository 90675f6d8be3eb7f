/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>

#include "tests/lib/call.h"

#include "csi/driver.h"
#include "csi/status.h"
#include "lib/base/log.h"

static enum uc_log_level logged;
static unsigned n_logged;
static char log_text[2048];

void __wrap_uc_log(enum uc_log_level level, const char *fmt, ...);
void __wrap_uc_log(enum uc_log_level level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(log_text, sizeof(log_text), fmt, ap);
	va_end(ap);
	logged = level;
	n_logged++;
}

static struct uc_call call;
static const struct csi_op op = { .call = &call, .volume_id = "v\n1" };

static int set_up(void **state)
{
	(void)state;
	fake_call_init(&call, NULL, "NodeStageVolume");
	n_logged = 0;
	return 0;
}

static void a_handler_that_succeeded_ends_well_and_silently(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(csi_end(&call, &op, 0, &err), 0);
	assert_int_equal(csi_end(&call, &op, 7, &err), 0);
	assert_int_equal(call.status, UC_GRPC_OK);
	assert_int_equal(n_logged, 0);
}

static void a_handler_that_failed_ends_with_the_errors_status_and_text(void **state)
{
	struct uc_err err = { 0 };
	int r = csi_fail(&err, UC_GRPC_OUT_OF_RANGE, "100%% %s", "%s%n");

	(void)state;
	assert_true(csi_end(&call, &op, r, &err) < 0);
	assert_int_equal(call.status, UC_GRPC_OUT_OF_RANGE);
	assert_string_equal(call.message, "100% %s%n");
	assert_int_equal(n_logged, 1);
	assert_string_equal(log_text,
			    "NodeStageVolume of volume `v\\x0a1`: OUT_OF_RANGE: 100% %s%n");
}

static void only_our_own_trouble_is_logged_as_an_error(void **state)
{
	(void)state;
	for (int status = 1; status < UC_GRPC_STATUS_COUNT; status++) {
		struct uc_err err = { 0 };
		int r = csi_fail(&err, (enum uc_grpc_status)status, "x");

		csi_end(&call, &op, r, &err);
		assert_int_equal(logged, status == UC_GRPC_INTERNAL || status == UC_GRPC_UNAVAILABLE
						 ? UC_LOG_ERR
						 : UC_LOG_INFO);
	}
}

static void ids_are_checked_for_requests(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(csi_check_id("another/driver's", &err), 0);
	assert_int_equal(csi_check_id("", &err), -EINVAL);
	assert_int_equal(csi_status(&err), UC_GRPC_INVALID_ARGUMENT);
	assert_string_equal(err.msg, "volume_id is missing");
	assert_int_equal(csi_check_id("a\nb", &err), -EINVAL);
}

static void node_ids_are_limited(void **state)
{
	struct uc_err err = { 0 };
	char id[258];

	(void)state;
	memset(id, 'x', sizeof(id));
	id[256] = '\0';
	assert_int_equal(csi_check_node_id(id, &err), 0);
	id[256] = 'x';
	id[257] = '\0';
	assert_int_equal(csi_check_node_id(id, &err), -EINVAL);
	assert_int_equal(csi_status(&err), UC_GRPC_INVALID_ARGUMENT);
	assert_string_equal(err.msg, "node_id has 257 bytes, more than 256");
	assert_int_equal(csi_check_node_id("", NULL), 0);
}

static void maps_are_limited_in_all(void **state)
{
	static char big[4096];
	struct uc_param list[] = { { "key", "value" }, { "k", big } };
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(csi_check_map("parameters", NULL, 0, NULL), 0);
	memset(big, 'x', 4096 - 9);
	assert_int_equal(csi_check_map("parameters", list, 2, NULL), 0);
	big[4096 - 9] = 'x';
	assert_int_equal(csi_check_map("parameters", list, 2, &err), -EINVAL);
	assert_int_equal(csi_status(&err), UC_GRPC_INVALID_ARGUMENT);
	assert_string_equal(err.msg, "parameters has 4097 bytes, more than 4096");
}

int main(void)
{
#define T(test) cmocka_unit_test_setup(test, set_up)
	const struct CMUnitTest tests[] = {
		T(a_handler_that_succeeded_ends_well_and_silently),
		T(a_handler_that_failed_ends_with_the_errors_status_and_text),
		T(only_our_own_trouble_is_logged_as_an_error),
		T(ids_are_checked_for_requests),
		T(node_ids_are_limited),
		T(maps_are_limited_in_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
