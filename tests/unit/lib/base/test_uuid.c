/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/types.h>

#include "lib/base/macros.h"
#include "lib/base/uuid.h"

static enum { REAL, FIXED, BROKEN } randomness;

ssize_t __real_getrandom(void *p, size_t n, unsigned flags);
ssize_t __wrap_getrandom(void *p, size_t n, unsigned flags);
ssize_t __wrap_getrandom(void *p, size_t n, unsigned flags)
{
	if (randomness == REAL)
		return __real_getrandom(p, n, flags);
	if (randomness == BROKEN) {
		errno = ENOSYS;
		return -1;
	}
	for (size_t i = 0; i < n; i++)
		((unsigned char *)p)[i] = (unsigned char)(0xff - i);
	return (ssize_t)n;
}

static void a_random_uuid_is_of_version_4_in_lower_case(void **state)
{
	char seen[100][UC_UUID_TEXT_SIZE];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(seen); i++) {
		assert_int_equal(uc_uuid_random(seen[i]), 0);
		assert_true(uc_uuid_is_valid(seen[i]));
		assert_int_equal(seen[i][14], '4');
		assert_non_null(strchr("89ab", seen[i][19]));
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(seen[k], seen[i]);
	}
}

static void every_random_byte_is_in_the_text(void **state)
{
	char uuid[UC_UUID_TEXT_SIZE];

	(void)state;
	randomness = FIXED;
	assert_int_equal(uc_uuid_random(uuid), 0);
	randomness = REAL;
	assert_string_equal(uuid, "fffefdfc-fbfa-49f8-b7f6-f5f4f3f2f1f0");
}

static void a_kernel_without_random_bytes_is_an_error(void **state)
{
	char uuid[UC_UUID_TEXT_SIZE];

	(void)state;
	randomness = BROKEN;
	assert_int_equal(uc_uuid_random(uuid), -ENOSYS);
	randomness = REAL;
}

static void only_lower_case_text_of_the_usual_form_is_valid(void **state)
{
	static const struct {
		const char *s;
		bool valid;
	} rows[] = {
		{ "00112233-4455-6677-8899-aabbccddeeff", true },
		{ "00000000-0000-0000-0000-000000000000", true },
		{ "", false },
		{ "00112233-4455-6677-8899-aabbccddeef", false },
		{ "00112233-4455-6677-8899-aabbccddeeff0", false },
		{ "00112233-4455-6677-8899-AABBCCDDEEFF", false },
		{ "00112233-4455-6677-8899-aabbccddeefg", false },
		{ "0011223304455-6677-8899-aabbccddeeff", false },
		{ "00112233-4455-6677-8899aaabbccddeeff", false },
		{ "0011223--4455-6677-8899-aabbccddeeff", false },
		{ "{0112233-4455-6677-8899-aabbccddeef}", false },
		{ "00112233-4455-6677-8899-aabbccddee/.", false },
		{ "00112233_4455_6677_8899_aabbccddeeff", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(uc_uuid_is_valid(rows[i].s), rows[i].valid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_random_uuid_is_of_version_4_in_lower_case),
		cmocka_unit_test(every_random_byte_is_in_the_text),
		cmocka_unit_test(a_kernel_without_random_bytes_is_an_error),
		cmocka_unit_test(only_lower_case_text_of_the_usual_form_is_valid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
