/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"

/* What was written to standard error since capture(). */
static char captured[64 * 1024];
static size_t n_captured;
static unsigned n_writes;
static bool capturing, is_closed;

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
	if (!capturing || fd != STDERR_FILENO)
		return __real_write(fd, p, n);
	if (is_closed) {
		errno = EBADF;
		return -1;
	}
	assert_true(n_captured + n < sizeof(captured));
	memcpy(captured + n_captured, p, n);
	n_captured += n;
	captured[n_captured] = '\0';
	n_writes++;
	return (ssize_t)n;
}

static void capture(enum uc_log_level max, enum uc_log_format format)
{
	unsetenv("JOURNAL_STREAM");
	uc_log_init(max, format);
	n_captured = 0;
	captured[0] = '\0';
	n_writes = 0;
	capturing = true;
}

static int stop_capture(void **state)
{
	(void)state;
	capturing = is_closed = false;
	return 0;
}

/* The message of the one line that was written; asserts that it is one. */
static const char *text_of_line(void)
{
	static char text[sizeof(captured)];
	size_t n = n_captured;

	assert_int_equal(n_writes, 1);
	assert_true(n > 0);
	assert_int_equal(captured[n - 1], '\n');
	assert_int_equal(strcspn(captured, "\n"), n - 1);
	assert_int_equal(uc_str_utf8_len(captured, n), n);
	snprintf(text, sizeof(text), "%.*s", (int)(n - 1), captured);
	return text;
}

static json_t *json_of_line(void)
{
	const char *line = text_of_line();
	json_t *o = NULL;

	assert_int_equal(uc_json_parse(line, strlen(line), &o, NULL), 0);
	return o;
}

static const char *message(json_t *o)
{
	const char *s = NULL;

	assert_int_equal(uc_json_get_str(o, "msg", true, &s, NULL), 0);
	return s;
}

static void a_line_has_time_level_and_text(void **state)
{
	int year, month, day, hour, minute, second, ms, end = -1;
	char level[8], zone;

	(void)state;
	capture(UC_LOG_INFO, UC_LOG_TEXT);
	log_info("hello %d", 7);
	sscanf(text_of_line(), "%4d-%2d-%2dT%2d:%2d:%2d.%3d%c %7s  hello 7%n", &year, &month, &day,
	       &hour, &minute, &second, &ms, &zone, level, &end);
	assert_int_equal(end, n_captured - 1);
	assert_in_range(year, 2020, 2200);
	assert_in_range(month, 1, 12);
	assert_in_range(ms, 0, 999);
	assert_int_equal(zone, 'Z');
	assert_string_equal(level, "info");
}

static void each_level_has_its_name_and_priority(void **state)
{
	static const struct {
		enum uc_log_level level;
		const char *name, *journal;
	} rows[] = {
		{ UC_LOG_ERR, " error x", "<3>x" },
		{ UC_LOG_WARN, " warn  x", "<4>x" },
		{ UC_LOG_INFO, " info  x", "<6>x" },
		{ UC_LOG_DEBUG, " debug x", "<7>x" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		capture(UC_LOG_DEBUG, UC_LOG_TEXT);
		uc_log(rows[i].level, "x");
		assert_true(uc_str_has_suffix(text_of_line(), rows[i].name));

		capture(UC_LOG_DEBUG, UC_LOG_TEXT);
		setenv("JOURNAL_STREAM", "8:1", 1);
		uc_log_init(UC_LOG_DEBUG, UC_LOG_TEXT);
		uc_log(rows[i].level, "x");
		assert_string_equal(text_of_line(), rows[i].journal);
	}
}

static void only_what_is_important_enough_is_printed(void **state)
{
	(void)state;
	for (int max = UC_LOG_ERR; max <= UC_LOG_DEBUG; max++) {
		capture((enum uc_log_level)max, UC_LOG_TEXT);
		log_err("x");
		log_warn("x");
		log_info("x");
		log_debug("x");
		assert_int_equal(n_writes, max + 1);
		for (int level = UC_LOG_ERR; level <= UC_LOG_DEBUG; level++)
			assert_int_equal(uc_log_enabled((enum uc_log_level)level), level <= max);
	}
}

static int calls;

static int count(void)
{
	return ++calls;
}

static void a_debug_line_that_is_not_printed_costs_nothing(void **state)
{
	(void)state;
	capture(UC_LOG_INFO, UC_LOG_TEXT);
	calls = 0;
	log_debug("%d", count());
	assert_int_equal(calls, 0);
	log_info("%d", count());
	assert_int_equal(calls, 1);
}

/* Texts from outside, and how they must look in a line. */
static const struct {
	const char *text, *line, *json;
} hostile[] = {
	{ "", "", "" },
	{ "plain", "plain", "plain" },
	{ "two\nlines", "two\\x0alines", "two\nlines" },
	{ "\r\t\x01\x1f\x7f", "\\x0d\\x09\\x01\\x1f\\x7f", "\r\t\x01\x1f\x7f" },
	{ "\x1b[2J", "\\x1b[2J", "\x1b[2J" },
	{ "\xc2\x9b"
	  "2J\xc2\x80",
	  "\\xc2\\x9b2J\\xc2\\x80",
	  "\xc2\x9b"
	  "2J\xc2\x80" },
	{ "\xc2\xa0\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
	  "\xc2\xa0\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
	  "\xc2\xa0\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80" },
	{ "quote\"back\\slash", "quote\"back\\slash", "quote\"back\\slash" },
	{ "\",\"level\":\"error", "\",\"level\":\"error", "\",\"level\":\"error" },
	{ "a\xff"
	  "b\xc3",
	  "a\\xff"
	  "b\\xc3",
	  "a\\xff"
	  "b\\xc3" },
	{ "\xed\xa0\x80\xc3\xa4", "\\xed\\xa0\\x80\xc3\xa4", "\\xed\\xa0\\x80\xc3\xa4" },
	{ "\xc2", "\\xc2", "\\xc2" },
};

static void hostile_text_stays_one_line(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++) {
		capture(UC_LOG_INFO, UC_LOG_TEXT);
		setenv("JOURNAL_STREAM", "8:1", 1);
		uc_log_init(UC_LOG_INFO, UC_LOG_TEXT);
		log_info("%s", hostile[i].text);
		assert_string_equal(text_of_line() + strlen("<6>"), hostile[i].line);
	}
}

static void hostile_text_stays_valid_json(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++) {
		cleanup_json json_t *o = NULL;

		capture(UC_LOG_INFO, UC_LOG_JSON);
		log_info("%s", hostile[i].text);
		o = json_of_line();
		assert_string_equal(message(o), hostile[i].json);
		/* No control character is there raw, C1 ones neither. */
		for (size_t k = 0; k + 1 < n_captured; k++) {
			assert_in_range((unsigned char)captured[k], 0x20, 0xff);
			assert_int_not_equal(captured[k], 0x7f);
			assert_false((unsigned char)captured[k] == 0xc2 &&
				     (unsigned char)captured[k + 1] < 0xa0);
		}
	}
}

static void a_json_line_has_time_level_and_text(void **state)
{
	cleanup_json json_t *o = NULL;
	const char *level = NULL, *when = NULL;

	(void)state;
	capture(UC_LOG_INFO, UC_LOG_JSON);
	log_warn("hello");
	o = json_of_line();
	assert_int_equal(json_object_size(o), 3);
	assert_int_equal(uc_json_get_str(o, "level", true, &level, NULL), 0);
	assert_string_equal(level, "warn");
	assert_int_equal(uc_json_get_str(o, "time", true, &when, NULL), 0);
	assert_int_equal(strlen(when), strlen("2026-11-21T09:50:01.123Z"));
	assert_string_equal(message(o), "hello");
}

static void endless_text_is_cut_and_stays_one_line(void **state)
{
	static const char *const units[] = {
		"x", "\n", "\"", "\xff", "\xc2\x80", "\xf0\x9f\x98\x80"
	};
	static char big[16 * 1024];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		for (size_t shift = 0; shift < 4; shift++) {
			size_t unit = strlen(units[i]);
			cleanup_json json_t *o = NULL;

			memset(big, 'a', shift);
			for (size_t n = shift; n + unit < sizeof(big); n += unit)
				strcpy(big + n, units[i]);
			capture(UC_LOG_INFO, UC_LOG_TEXT);
			log_info("%s", big);
			assert_true(strlen(text_of_line()) >= 1500);
			capture(UC_LOG_INFO, UC_LOG_JSON);
			log_info("%s", big);
			o = json_of_line();
			assert_true(strlen(message(o)) >= 1500);
		}
}

static void errno_survives(void **state)
{
	(void)state;
	capture(UC_LOG_INFO, UC_LOG_TEXT);
	is_closed = true;
	errno = EXDEV;
	log_info("nobody reads this");
	assert_int_equal(errno, EXDEV);
	log_debug("nor this");
	assert_int_equal(errno, EXDEV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_line_has_time_level_and_text, stop_capture),
		cmocka_unit_test_teardown(each_level_has_its_name_and_priority, stop_capture),
		cmocka_unit_test_teardown(only_what_is_important_enough_is_printed, stop_capture),
		cmocka_unit_test_teardown(a_debug_line_that_is_not_printed_costs_nothing,
					  stop_capture),
		cmocka_unit_test_teardown(hostile_text_stays_one_line, stop_capture),
		cmocka_unit_test_teardown(hostile_text_stays_valid_json, stop_capture),
		cmocka_unit_test_teardown(a_json_line_has_time_level_and_text, stop_capture),
		cmocka_unit_test_teardown(endless_text_is_cut_and_stays_one_line, stop_capture),
		cmocka_unit_test_teardown(errno_survives, stop_capture),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
