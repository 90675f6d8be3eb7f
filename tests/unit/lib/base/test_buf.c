/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/buf.h"

static bool no_memory;

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n)
{
	return no_memory ? NULL : __real_realloc(p, n);
}

static void an_empty_buffer_is_an_empty_string(void **state)
{
	struct uc_buf b = UC_BUF_INIT;

	(void)state;
	assert_string_equal(uc_buf_str(&b), "");
	assert_int_equal(uc_buf_error(&b), 0);
	uc_buf_clear(&b);
	uc_buf_consume(&b, 5);
	assert_int_equal(b.len, 0);
	uc_buf_done(&b);
}

static void appended_bytes_are_followed_by_a_nul(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;

	(void)state;
	uc_buf_append(&b, "a\0b", 3);
	uc_buf_append(&b, NULL, 0);
	uc_buf_puts(&b, "cd");
	assert_int_equal(b.len, 5);
	assert_memory_equal(b.data, "a\0bcd", 6);
}

static void growth_keeps_what_is_there(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;

	(void)state;
	for (int i = 0; i < 5000; i++) {
		char c = (char)('a' + i % 26);

		uc_buf_append(&b, &c, 1);
		assert_true(b.cap > b.len);
		assert_int_equal(b.data[b.len], '\0');
	}
	assert_int_equal(b.len, 5000);
	for (int i = 0; i < 5000; i++)
		assert_int_equal(b.data[i], 'a' + i % 26);
}

static void reserved_room_is_there_and_changes_nothing(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;

	(void)state;
	uc_buf_puts(&b, "x");
	assert_int_equal(uc_buf_reserve(&b, 63), 0);
	assert_true(b.cap >= 65);
	assert_int_equal(uc_buf_reserve(&b, 1000), 0);
	assert_true(b.cap >= 1002);
	assert_string_equal(b.data, "x");
	assert_int_equal(b.len, 1);
}

static void formatted_text_is_appended_whatever_its_length(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	char big[1000];

	(void)state;
	memset(big, 'z', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	uc_buf_printf(&b, "%d-%s", 7, "seven");
	assert_string_equal(uc_buf_str(&b), "7-seven");
	uc_buf_printf(&b, "%s", "");
	uc_buf_printf(&b, "[%s]", big);
	assert_int_equal(b.len, 7 + 999 + 2);
	assert_int_equal(strlen(b.data), b.len);
	assert_memory_equal(b.data, "7-seven[zz", 10);
	assert_string_equal(b.data + b.len - 2, "z]");
}

static void consumed_bytes_are_dropped_from_the_front(void **state)
{
	static const struct {
		size_t n;
		const char *left;
	} rows[] = { { 0, "abcdef" }, { 2, "cdef" }, { 5, "f" }, { 6, "" }, { 7, "" } };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		cleanup_buf struct uc_buf b = UC_BUF_INIT;

		uc_buf_puts(&b, "abcdef");
		uc_buf_consume(&b, rows[i].n);
		assert_string_equal(uc_buf_str(&b), rows[i].left);
		assert_int_equal(b.len, strlen(rows[i].left));
	}
}

static void a_taken_string_is_the_callers_and_the_buffer_starts_anew(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	char *s;

	(void)state;
	uc_buf_puts(&b, "mine");
	s = uc_buf_take(&b);
	assert_string_equal(s, "mine");
	free(s);
	assert_null(b.data);
	assert_int_equal(b.len, 0);
	assert_int_equal(b.cap, 0);
	s = uc_buf_take(&b);
	assert_string_equal(s, "");
	free(s);
}

static void a_lost_append_is_remembered_until_the_buffer_is_cleared(void **state)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	char big[200] = { 'x' };

	(void)state;
	uc_buf_puts(&b, "kept");
	no_memory = true;
	uc_buf_append(&b, big, sizeof(big));
	no_memory = false;
	uc_buf_puts(&b, "lost");
	uc_buf_printf(&b, "%s", "lost");
	assert_int_equal(uc_buf_error(&b), -ENOMEM);
	assert_int_equal(uc_buf_reserve(&b, 1), -ENOMEM);
	assert_null(uc_buf_take(&b));
	assert_string_equal(uc_buf_str(&b), "kept");
	uc_buf_clear(&b);
	assert_int_equal(uc_buf_error(&b), 0);
	assert_string_equal(uc_buf_str(&b), "");
	uc_buf_puts(&b, "again");
	assert_string_equal(uc_buf_str(&b), "again");
}

static void a_size_that_overflows_is_a_lack_of_memory(void **state)
{
	static const size_t sizes[] = { SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2, SIZE_MAX / 2 - 1 };

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		cleanup_buf struct uc_buf b = UC_BUF_INIT;

		uc_buf_puts(&b, "x");
		assert_int_equal(uc_buf_reserve(&b, sizes[i]), -ENOMEM);
		assert_int_equal(uc_buf_error(&b), -ENOMEM);
		assert_string_equal(uc_buf_str(&b), "x");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_buffer_is_an_empty_string),
		cmocka_unit_test(appended_bytes_are_followed_by_a_nul),
		cmocka_unit_test(growth_keeps_what_is_there),
		cmocka_unit_test(reserved_room_is_there_and_changes_nothing),
		cmocka_unit_test(formatted_text_is_appended_whatever_its_length),
		cmocka_unit_test(consumed_bytes_are_dropped_from_the_front),
		cmocka_unit_test(a_taken_string_is_the_callers_and_the_buffer_starts_anew),
		cmocka_unit_test(a_lost_append_is_remembered_until_the_buffer_is_cleared),
		cmocka_unit_test(a_size_that_overflows_is_a_lack_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
