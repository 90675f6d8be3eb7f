/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/base/size.h"
#include "lib/base/str.h"

#define GB UINT64_C(1000000000)

static void every_unit_is_understood(void **state)
{
	static const struct {
		const char *unit;
		uint64_t factor;
	} rows[] = {
		{ "", 1 },        { "Ki", UC_KIB },        { "Mi", UC_MIB },
		{ "Gi", UC_GIB }, { "Ti", UC_GIB * 1024 }, { "Pi", UC_GIB * 1024 * 1024 },
		{ "k", 1000 },    { "K", 1000 },           { "M", 1000000 },
		{ "G", GB },      { "T", GB * 1000 },      { "P", GB * 1000000 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (int with_b = 0; with_b < 2; with_b++) {
			char text[32];
			uint64_t v = 0;

			snprintf(text, sizeof(text), "3%s%s", rows[i].unit, with_b ? "B" : "");
			assert_int_equal(uc_size_parse(text, &v, NULL), 0);
			assert_int_equal(v, 3 * rows[i].factor);
		}
}

static void fractions_are_rounded_up_to_a_byte(void **state)
{
	static const struct {
		const char *s;
		uint64_t bytes;
	} rows[] = {
		{ "0", 0 },          { "0.0", 0 },
		{ "1.5Ki", 1536 },   { "1.6GiB", 1717986919 }, /* 1717986918.4 */
		{ "0.1", 1 },        { "0.5Ki", 512 },
		{ ".5Ki", 512 },     { "1.", 1 },
		{ "0.0001K", 1 },    { "1.0000000000000001", 2 },
		{ "0.001K", 1 },     { "1.001K", 1001 },
		{ "1.0001K", 1001 }, { "2.25Pi", UC_GIB * 1024 * 1024 * 9 / 4 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t v = 99;

		assert_int_equal(uc_size_parse(rows[i].s, &v, NULL), 0);
		assert_int_equal(v, rows[i].bytes);
	}
}

static void what_is_no_size_is_refused_and_named(void **state)
{
	static const char *const rows[] = { "",     "G",     "Gi",   ".",   ".Gi",   "-1",  "+1",
					    " 1",   "1 ",    "1 Gi", "1gi", "1kiB",  "1Bi", "1BB",
					    "1GB1", "1.2.3", "1,5",  "0x1", "1e3",   "1b",  "1Gib",
					    "Gi1",  "1Ei",   "1\n",  "ten", "1.5.Gi" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_err err = { 0 };
		uint64_t v = 99;

		assert_int_equal(uc_size_parse(rows[i], &v, &err), -EINVAL);
		assert_int_equal(v, 99);
		assert_non_null(strstr(err.msg, UC_PRINTABLE(rows[i])));
		assert_non_null(strstr(err.msg, "is not a size"));
	}
}

static void the_largest_size_is_that_of_an_int64(void **state)
{
	uint64_t v = 0;

	(void)state;
	assert_int_equal(uc_size_parse("9223372036854775807", &v, NULL), 0);
	assert_int_equal(v, INT64_MAX);
	assert_int_equal(uc_size_parse("8191Pi", &v, NULL), 0);
	assert_int_equal(v, UINT64_C(8191) << 50);
	assert_int_equal(uc_size_parse("9223372036854775806.1", &v, NULL), 0);
	assert_int_equal(v, INT64_MAX);
}

static void what_is_larger_is_out_of_range(void **state)
{
	static const char *const rows[] = { "9223372036854775808",
					    "9223372036854775807.1",
					    "18446744073709551616",
					    "8192Pi",
					    "18446744073709551617Ki", /* would wrap to 1 KiB */
					    "99999999999999999999Pi",
					    "100000000000000000000000000",
					    "9224P" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_err err = { 0 };
		uint64_t v = 99;

		assert_int_equal(uc_size_parse(rows[i], &v, &err), -ERANGE);
		assert_int_equal(v, 99);
		assert_non_null(strstr(err.msg, rows[i]));
	}
}

static void endless_fractions_do_not_overflow(void **state)
{
	uint64_t v = 99;

	(void)state;
	assert_int_equal(uc_size_parse("0.00000000000000001", &v, NULL), 0);
	assert_int_equal(v, 1);
	v = 99;
	assert_int_equal(uc_size_parse("0.0000000000000000000000000001", &v, NULL), -ERANGE);
	assert_int_equal(uc_size_parse("1.000000000000000000000000000", &v, NULL), -ERANGE);
	assert_int_equal(v, 99);
}

static void sizes_are_written_for_people(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} rows[] = {
		{ 0, "0 B" },
		{ 1, "1 B" },
		{ 1023, "1023 B" },
		{ 1024, "1.00 KiB" },
		{ 1536, "1.50 KiB" },
		{ 1717986919, "1.60 GiB" },
		{ UC_MIB - 1, "1.00 MiB" }, /* never 1024.00 KiB */
		{ UC_MIB, "1.00 MiB" },
		{ UC_GIB - 1, "1.00 GiB" },
		{ UC_MIB - 10, "1023.99 KiB" },
		{ UC_GIB << 10, "1.00 TiB" },
		{ UC_GIB << 20, "1.00 PiB" },
		{ UC_GIB << 30, "1.00 EiB" },
		{ INT64_MAX, "8.00 EiB" },
		{ UINT64_MAX, "16.00 EiB" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[UC_SIZE_TEXT_MAX];

		assert_ptr_equal(uc_size_format(rows[i].bytes, text), text);
		assert_string_equal(text, rows[i].text);
	}
}

static void rounding_up_stops_at_the_largest_number(void **state)
{
	static const struct {
		uint64_t v, unit, expected;
	} rows[] = {
		{ 0, 4096, 0 },
		{ 1, 4096, 4096 },
		{ 4095, 4096, 4096 },
		{ 4096, 4096, 4096 },
		{ 4097, 4096, 8192 },
		{ 7, 1, 7 },
		{ 7, 3, 9 },
		{ UINT64_MAX, 1, UINT64_MAX },
		{ UINT64_MAX - 4095, 4096, UINT64_MAX - 4095 },
		{ UINT64_MAX - 4094, 4096, UINT64_MAX },
		{ UINT64_MAX - 5, 10, UINT64_MAX - 5 }, /* …610 is a multiple */
		{ UINT64_MAX - 4, 10, UINT64_MAX },
		{ UINT64_MAX, UINT64_MAX, UINT64_MAX },
		{ 1, UINT64_MAX, UINT64_MAX },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(uc_round_up(rows[i].v, rows[i].unit), rows[i].expected);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_unit_is_understood),
		cmocka_unit_test(fractions_are_rounded_up_to_a_byte),
		cmocka_unit_test(what_is_no_size_is_refused_and_named),
		cmocka_unit_test(the_largest_size_is_that_of_an_int64),
		cmocka_unit_test(what_is_larger_is_out_of_range),
		cmocka_unit_test(endless_fractions_do_not_overflow),
		cmocka_unit_test(sizes_are_written_for_people),
		cmocka_unit_test(rounding_up_stops_at_the_largest_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
