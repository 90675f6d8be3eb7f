/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/scarce.h"
#include "tests/lib/unit.h"
#include <errno.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/base/str.h"

char *__real_strndup(const char *s, size_t n);
char *__wrap_strndup(const char *s, size_t n);
char *__wrap_strndup(const char *s, size_t n)
{
	return may_allocate() ? __real_strndup(s, n) : NULL;
}

/* ------------------------------------------------------------------ comparison */

static void null_equals_only_null(void **state)
{
	(void)state;
	assert_true(uc_streq(NULL, NULL));
	assert_false(uc_streq(NULL, ""));
	assert_false(uc_streq("", NULL));
	assert_true(uc_streq("", ""));
	assert_true(uc_streq("ab", "ab"));
	assert_false(uc_streq("ab", "a"));
}

static void null_and_the_empty_string_are_empty(void **state)
{
	(void)state;
	assert_true(uc_str_is_empty(NULL));
	assert_true(uc_str_is_empty(""));
	assert_false(uc_str_is_empty(" "));
}

static void a_prefix_is_at_the_start_and_a_suffix_at_the_end(void **state)
{
	static const struct {
		const char *s, *part;
		bool prefix, suffix;
	} rows[] = {
		{ "abc", "", true, true },     { "abc", "a", true, false },
		{ "abc", "abc", true, true },  { "abc", "abcd", false, false },
		{ "abc", "bc", false, true },  { "abc", "b", false, false },
		{ "", "", true, true },        { "", "a", false, false },
		{ "aXa", "a", true, true },    { "abab", "ab", true, true },
		{ "bc", "abc", false, false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(uc_str_has_prefix(rows[i].s, rows[i].part), rows[i].prefix);
		assert_int_equal(uc_str_has_suffix(rows[i].s, rows[i].part), rows[i].suffix);
	}
}

/* --------------------------------------------------------------------- numbers */

static void digits_up_to_the_maximum_are_a_number(void **state)
{
	static const struct {
		const char *s;
		uint64_t max, value;
	} rows[] = {
		{ "0", 0, 0 },
		{ "7", 7, 7 },
		{ "007", 7, 7 },
		{ "1234567890", UINT64_MAX, 1234567890 },
		{ "9223372036854775807", INT64_MAX, INT64_MAX },
		{ "18446744073709551615", UINT64_MAX, UINT64_MAX },
		{ "00000000000000000000000000000001", 1, 1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t v = 99;

		assert_int_equal(uc_str_parse_u64(rows[i].s, rows[i].max, &v), 0);
		assert_int_equal(v, rows[i].value);
	}
}

static void what_is_not_only_digits_is_no_number(void **state)
{
	static const char *const rows[] = { "",   "-1", "+1",  " 1", "1 ",  "0x1",
					    "1a", "a",  "1.0", "-",  "1\n", "\xd9\xa1" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t v = 99;

		assert_int_equal(uc_str_parse_u64(rows[i], UINT64_MAX, &v), -EINVAL);
		assert_int_equal(v, 99);
	}
}

static void numbers_above_the_maximum_are_out_of_range(void **state)
{
	static const struct {
		const char *s;
		uint64_t max;
	} rows[] = {
		{ "1", 0 },
		{ "8", 7 },
		{ "9223372036854775808", INT64_MAX },
		{ "18446744073709551616", UINT64_MAX },
		{ "18446744073709551620", UINT64_MAX },
		{ "99999999999999999999999999", UINT64_MAX },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t v = 99;

		assert_int_equal(uc_str_parse_u64(rows[i].s, rows[i].max, &v), -ERANGE);
		assert_int_equal(v, 99);
	}
}

/* ----------------------------------------------------------------------- UTF-8 */

static void utf8_ends_at_the_first_invalid_byte(void **state)
{
	static const struct {
		const char *bytes;
		size_t n, valid;
	} rows[] = {
		{ "", 0, 0 },
		{ "abc", 3, 3 },
		{ "a\0b", 3, 3 }, /* NUL is a character like any other */
		{ "\x7f", 1, 1 },
		{ "\xc2\x80", 2, 2 }, /* U+0080, the smallest of two bytes */
		{ "\xdf\xbf", 2, 2 },
		{ "\xe0\xa0\x80", 3, 3 }, /* U+0800 */
		{ "\xed\x9f\xbf", 3, 3 }, /* U+D7FF, below the surrogates */
		{ "\xee\x80\x80", 3, 3 }, /* U+E000, above them */
		{ "\xef\xbf\xbf", 3, 3 },
		{ "\xf0\x90\x80\x80", 4, 4 }, /* U+10000 */
		{ "\xf4\x8f\xbf\xbf", 4, 4 }, /* U+10FFFF, the last */
		{ "ok\x80", 3, 2 },           /* a continuation alone */
		{ "\xbf", 1, 0 },
		{ "\xc0\x80", 2, 0 },     /* overlong NUL */
		{ "\xc1\xbf", 2, 0 },     /* overlong DEL */
		{ "\xe0\x80\xaf", 3, 0 }, /* overlong / */
		{ "\xe0\x9f\xbf", 3, 0 },
		{ "\xf0\x80\x80\xaf", 4, 0 },
		{ "\xf0\x8f\xbf\xbf", 4, 0 },
		{ "\xed\xa0\x80", 3, 0 }, /* surrogates, U+D800 and U+DFFF */
		{ "\xed\xbf\xbf", 3, 0 },
		{ "\xf4\x90\x80\x80", 4, 0 }, /* U+110000 */
		{ "\xf5\x80\x80\x80", 4, 0 },
		{ "\xf8\x88\x80\x80\x80", 5, 0 },
		{ "\xfe", 1, 0 },
		{ "\xff", 1, 0 },
		{ "ab\xc3", 3, 2 }, /* cut short */
		{ "ab\xe2\x82", 4, 2 },
		{ "ab\xf0\x9f\x98", 5, 2 },
		{ "\xc3"
		  "a",
		  2, 0 }, /* another character inside */
		{ "\xe2\x82"
		  "a",
		  3, 0 },
		{ "\xf0\x9f\x98"
		  "a",
		  4, 0 },
		{ "\xe2"
		  "a\x82",
		  3, 0 },
		{ "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80!\xff", 11, 10 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(uc_str_utf8_len(rows[i].bytes, rows[i].n), rows[i].valid);
}

/* Every code point, encoded by the book, and nothing else of that lead byte. */
static void every_scalar_value_is_valid_and_nothing_else(void **state)
{
	(void)state;
	for (uint32_t c = 0x80; c < 0x120000; c++) {
		unsigned char b[4];
		size_t n;
		bool ok = c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);

		if (c < 0x800) {
			n = 2;
			b[0] = (unsigned char)(0xc0 | c >> 6);
		} else if (c < 0x10000) {
			n = 3;
			b[0] = (unsigned char)(0xe0 | c >> 12);
		} else {
			n = 4;
			b[0] = (unsigned char)(0xf0 | c >> 18);
		}
		for (size_t i = 1; i < n; i++)
			b[i] = (unsigned char)(0x80 | ((c >> (6 * (n - 1 - i))) & 0x3f));
		if ((uc_str_utf8_len(b, n) == n) != ok)
			fail_msg("U+%04X", c);
	}
}

static void a_cut_never_splits_a_character(void **state)
{
	static const char s[] = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z"; /* 1 2 3 4 1 */
	static const size_t expected[] = { 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11, 11 };

	(void)state;
	for (size_t max = 0; max < ARRAY_SIZE(expected); max++)
		assert_int_equal(uc_str_utf8_cut(s, sizeof(s) - 1, max), expected[max]);
	assert_int_equal(uc_str_utf8_cut("", 0, 0), 0);
	assert_int_equal(uc_str_utf8_cut("", 0, 5), 0);
}

/* ------------------------------------------------------------------- printable */

static void harmless_text_is_printed_as_it_is(void **state)
{
	static const char *const rows[] = { "", "plain text",
					    "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z",
					    "back\\slash `quoted` \"so\"" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char to[64];

		assert_ptr_equal(uc_str_printable(to, sizeof(to), rows[i]), to);
		assert_string_equal(to, rows[i]);
	}
}

static void null_is_printed_as_nothing(void **state)
{
	(void)state;
	assert_string_equal(UC_PRINTABLE(NULL), "");
}

static void control_characters_and_invalid_utf8_are_made_visible(void **state)
{
	static const struct {
		const char *s, *printed;
	} rows[] = {
		{ "a\nb", "a\\x0ab" },
		{ "\x01\x1f\x7f", "\\x01\\x1f\\x7f" },
		{ "\t\r\x1b[31m", "\\x09\\x0d\\x1b[31m" },
		{ "\xff\xfe", "\\xff\\xfe" },
		{ "\xc3", "\\xc3" },
		{ "\xf0\x9f\x98x", "\\xf0\\x9f\\x98x" },
		{ "\xc0\x80", "\\xc0\\x80" },
		{ "\xed\xa0\x80", "\\xed\\xa0\\x80" },
		{ "\xc2\x9b"
		  "31m",
		  "\\xc2\\x9b31m" }, /* U+009B starts a terminal's escape as well */
		{ "\xc2\x80\xc2\x9f\xc2\xa0", "\\xc2\\x80\\xc2\\x9f\xc2\xa0" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(UC_PRINTABLE(rows[i].s), rows[i].printed);
}

static void text_that_just_fits_is_not_cut(void **state)
{
	char to[11];

	(void)state;
	assert_string_equal(uc_str_printable(to, sizeof(to), "0123456789"), "0123456789");
	assert_string_equal(uc_str_printable(to, sizeof(to), "012345\n"), "012345\\x0a");
}

static void text_that_does_not_fit_is_cut_between_characters(void **state)
{
	static const char s[] = "ab\xf0\x9f\x98\x80\n\xc3\xa4xyzab\xff"
				"cdef";

	(void)state;
	for (size_t size = 4; size < 40; size++) {
		char to[64], whole[64];
		size_t n;

		memset(to, '#', sizeof(to));
		uc_str_printable(to, size, s);
		uc_str_printable(whole, sizeof(whole), s);
		n = strlen(to);
		assert_true(n < size);
		assert_int_equal(to[size], '#');
		assert_int_equal(uc_str_utf8_len(to, n), n);
		if (strlen(whole) < size) {
			assert_string_equal(to, whole);
		} else {
			assert_true(n >= 3);
			assert_string_equal(to + n - 3, "\xe2\x80\xa6");
			assert_memory_equal(to, whole, n - 3);
			/* Not one character shorter than need be: the longest here takes four
			 * bytes. */
			assert_true(n + 4 >= size);
		}
	}
}

static void a_tiny_buffer_is_not_overrun(void **state)
{
	(void)state;
	for (size_t size = 1; size < 5; size++) {
		char to[8];

		memset(to, '#', sizeof(to));
		uc_str_printable(to, size, "abcdefgh");
		assert_true(strlen(to) < size);
		assert_int_equal(to[size], '#');
	}
}

/* ----------------------------------------------------------------------- lists */

static void a_list_is_cut_at_each_separator(void **state)
{
	static const struct {
		const char *s;
		const char *parts[5];
	} rows[] = {
		{ "", { NULL } },
		{ "a", { "a" } },
		{ "a,b", { "a", "b" } },
		{ "a,,b", { "a", "", "b" } },
		{ ",", { "", "" } },
		{ ",a,", { "", "a", "" } },
		{ "ab:c,de f", { "ab:c", "de f" } },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_strv char **list = NULL;
		int n = uc_str_split(rows[i].s, ',', &list);

		assert_int_equal(n, uc_strv_len(list));
		assert_true(uc_strv_equal(list, (char *const *)(uintptr_t)rows[i].parts));
	}
}

static void a_pushed_string_is_a_copy_at_the_end(void **state)
{
	cleanup_strv char **list = NULL;
	char s[] = "one";

	(void)state;
	assert_int_equal(uc_strv_len(NULL), 0);
	assert_int_equal(uc_strv_push(&list, s), 0);
	s[0] = 'X';
	assert_int_equal(uc_strv_push(&list, "two"), 0);
	assert_int_equal(uc_strv_push(&list, ""), 0);
	assert_int_equal(uc_strv_len(list), 3);
	assert_string_equal(list[0], "one");
	assert_string_equal(list[1], "two");
	assert_string_equal(list[2], "");
	assert_null(list[3]);
}

static void a_list_has_what_was_pushed(void **state)
{
	char *const *list = STRV("one", "two");

	(void)state;
	assert_true(uc_strv_has(list, "one"));
	assert_true(uc_strv_has(list, "two"));
	assert_false(uc_strv_has(list, "on"));
	assert_false(uc_strv_has(list, ""));
	assert_false(uc_strv_has(NULL, "one"));
}

static void lists_are_equal_in_content_and_order(void **state)
{
	char *none[] = { NULL };
	char *const *a = STRV("a"), *const *ab = STRV("a", "b"), *const *ba = STRV("b", "a"),
		    *const *ac = STRV("a", "c");

	(void)state;
	assert_true(uc_strv_equal(NULL, NULL));
	assert_true(uc_strv_equal(NULL, none));
	assert_true(uc_strv_equal(none, NULL));
	assert_true(uc_strv_equal(ab, ab));
	assert_false(uc_strv_equal(a, NULL));
	assert_false(uc_strv_equal(NULL, a));
	assert_false(uc_strv_equal(a, ab));
	assert_false(uc_strv_equal(ab, a));
	assert_false(uc_strv_equal(ab, ba));
	assert_false(uc_strv_equal(ab, ac));
}

static void a_split_without_memory_leaves_nothing(void **state)
{
	(void)state;
	for (unsigned n = 0;; n++) {
		char **list = (char **)&list;
		int r;

		allocations_left = n;
		r = uc_str_split("a,b,c", ',', &list);
		allocations_left = UINT_MAX;
		if (r >= 0) {
			assert_int_equal(n, 4);
			uc_strv_free(list);
			break;
		}
		assert_int_equal(r, -ENOMEM);
		assert_ptr_equal(list, &list);
	}
}

static void a_push_without_memory_leaves_the_list_as_it_was(void **state)
{
	cleanup_strv char **list = NULL;

	(void)state;
	assert_int_equal(uc_strv_push(&list, "one"), 0);
	for (unsigned n = 0; n < 2; n++) {
		allocations_left = n;
		assert_int_equal(uc_strv_push(&list, "two"), -ENOMEM);
		allocations_left = UINT_MAX;
		assert_int_equal(uc_strv_len(list), 1);
		assert_string_equal(list[0], "one");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(null_equals_only_null),
		cmocka_unit_test(null_and_the_empty_string_are_empty),
		cmocka_unit_test(a_prefix_is_at_the_start_and_a_suffix_at_the_end),
		cmocka_unit_test(digits_up_to_the_maximum_are_a_number),
		cmocka_unit_test(what_is_not_only_digits_is_no_number),
		cmocka_unit_test(numbers_above_the_maximum_are_out_of_range),
		cmocka_unit_test(utf8_ends_at_the_first_invalid_byte),
		cmocka_unit_test(every_scalar_value_is_valid_and_nothing_else),
		cmocka_unit_test(a_cut_never_splits_a_character),
		cmocka_unit_test(harmless_text_is_printed_as_it_is),
		cmocka_unit_test(null_is_printed_as_nothing),
		cmocka_unit_test(control_characters_and_invalid_utf8_are_made_visible),
		cmocka_unit_test(text_that_just_fits_is_not_cut),
		cmocka_unit_test(text_that_does_not_fit_is_cut_between_characters),
		cmocka_unit_test(a_tiny_buffer_is_not_overrun),
		cmocka_unit_test(a_list_is_cut_at_each_separator),
		cmocka_unit_test(a_pushed_string_is_a_copy_at_the_end),
		cmocka_unit_test(a_list_has_what_was_pushed),
		cmocka_unit_test(lists_are_equal_in_content_and_order),
		cmocka_unit_test(a_split_without_memory_leaves_nothing),
		cmocka_unit_test(a_push_without_memory_leaves_the_list_as_it_was),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
