/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/rpc/grpc.h"
#include "lib/rpc/status.h"

static void every_unit_of_a_timeout_is_read(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint64_t ms;
	} cases[] = {
		{ "1H", 0, 3600000 },   { "99999999H", 0, UINT64_C(359999996400000) },
		{ "2M", 0, 120000 },    { "15S", 0, 15000 },
		{ "1500m", 0, 1500 },   { "1u", 0, 1 },
		{ "1000u", 0, 1 },      { "1001u", 0, 2 },
		{ "1n", 0, 1 },         { "99999999n", 0, 100 },
		{ "0n", 0, 0 },         { "00000001S", 0, 1000 },
		{ "", -EINVAL, 0 },     { "S", -EINVAL, 0 },
		{ "1", -EINVAL, 0 },    { "1s", -EINVAL, 0 },
		{ "1h", -EINVAL, 0 },   { "-1S", -EINVAL, 0 },
		{ "+1S", -EINVAL, 0 },  { " 1S", -EINVAL, 0 },
		{ "1 S", -EINVAL, 0 },  { "1SS", -EINVAL, 0 },
		{ "1.5S", -EINVAL, 0 }, { "100000000S", -EINVAL, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t ms = 4711;

		assert_int_equal(uc_grpc_parse_timeout(cases[i].text, strlen(cases[i].text), &ms),
				 cases[i].r);
		assert_int_equal(ms, cases[i].r < 0 ? 4711 : cases[i].ms);
	}
}

static void timeout_is_written_and_never_shortened(void **state)
{
	static const struct {
		uint64_t ms;
		const char *text;
	} cases[] = {
		{ 1, "1m" },
		{ 99999999, "99999999m" },
		{ 100000000, "100000S" },
		{ 100000001, "100001S" },
		{ UINT64_C(99999999001), "1666667M" },
		{ UINT64_C(359999996400000), "99999999H" },
		{ UINT64_MAX, "99999999H" },
	};
	char text[UC_GRPC_TIMEOUT_SIZE];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t back;

		assert_string_equal(uc_grpc_format_timeout(cases[i].ms, text), cases[i].text);
		assert_int_equal(uc_grpc_parse_timeout(text, strlen(text), &back), 0);
		assert_true(back >= cases[i].ms || cases[i].ms == UINT64_MAX);
	}
}

static void message_is_escaped_and_read_back(void **state)
{
	static const struct {
		const char *plain, *encoded, *back; /* NULL: as it was */
	} cases[] = {
		{ "", "", NULL },
		{ "plain text, with ~ and !", "plain text, with ~ and !", NULL },
		{ "100 %", "100 %25", NULL },
		{ "two\nlines\tand a tab", "two%0Alines%09and a tab", NULL },
		{ "\x7f\x01", "%7F%01", "??" },
		{ "gr\xc3\xb6\xc3\x9f"
		  "er",
		  "gr%C3%B6%C3%9Fer", NULL },
		{ "\xf0\x9f\x92\xbe", "%F0%9F%92%BE", NULL },
		/* Not UTF-8: each byte becomes U+FFFD. */
		{ "a\xff"
		  "b",
		  "a%EF%BF%BDb",
		  "a\xef\xbf\xbd"
		  "b" },
		{ "\xc3", "%EF%BF%BD", "\xef\xbf\xbd" },
		{ "\xc0\x80", "%EF%BF%BD%EF%BF%BD", "\xef\xbf\xbd\xef\xbf\xbd" },
		{ "\xed\xa0\x80!", "%EF%BF%BD%EF%BF%BD%EF%BF%BD!",
		  "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd!" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char encoded[200], back[200];
		size_t n = uc_grpc_encode_message(cases[i].plain, encoded, sizeof(encoded));

		assert_string_equal(encoded, cases[i].encoded);
		assert_int_equal(n, strlen(encoded));
		n = uc_grpc_decode_message(encoded, n, back, sizeof(back));
		assert_string_equal(back, cases[i].back ? cases[i].back : cases[i].plain);
		assert_int_equal(n, strlen(back));
	}
}

/* For every room there is: a whole number of characters, and as many as fit. */
static void message_is_cut_between_characters(void **state)
{
	static const char text[] = "a\xc3\xb6%\xe2\x82\xac\n\xf0\x9f\x92\xbez";
	static const size_t ends[] = { 0, 1, 7, 10, 19, 22, 34, 35 };
	char whole[100], part[100], *exact;

	(void)state;
	assert_int_equal(uc_grpc_encode_message(text, whole, sizeof(whole)), 35);
	for (size_t size = 1; size < 40; size++) {
		size_t expect = 0, n;

		for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
			if (ends[i] < size)
				expect = ends[i];
		exact = malloc(size); /* so that the sanitizer sees one byte too many */
		n = uc_grpc_encode_message(text, exact, size);
		assert_int_equal(n, expect);
		assert_memory_equal(exact, whole, n);
		assert_int_equal(exact[n], '\0');
		n = uc_grpc_decode_message(exact, n, part, sizeof(part));
		assert_memory_equal(part, text, n);
		assert_int_equal(uc_str_utf8_len(part, n), n);
		free(exact);
	}
}

static void decoded_message_is_cut_between_characters_too(void **state)
{
	static const char encoded[] = "a%C3%B6%E2%82%AC";
	static const char *const plain[] = {
		"", "a", "a", "a\xc3\xb6", "a\xc3\xb6", "a\xc3\xb6", "a\xc3\xb6\xe2\x82\xac"
	};

	(void)state;
	for (size_t size = 1; size <= ARRAY_SIZE(plain); size++) {
		char *exact = malloc(size);

		assert_int_equal(uc_grpc_decode_message(encoded, strlen(encoded), exact, size),
				 strlen(plain[size - 1]));
		assert_string_equal(exact, plain[size - 1]);
		free(exact);
	}
}

static void broken_escapes_stay_as_they_are(void **state)
{
	static const struct {
		const char *encoded, *plain;
	} cases[] = {
		{ "%", "%" },       { "%4", "%4" },         { "%zz", "%zz" },
		{ "100%", "100%" }, { "%%41", "%A" },       { "%c3%b6", "\xc3\xb6" },
		{ "%ff", "?" },     { "%c3x", "?x" },       { "\xc3\xb6", "\xc3\xb6" },
		{ "%00x", "?x" },   { "%1b[31m", "?[31m" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char plain[100];

		uc_grpc_decode_message(cases[i].encoded, strlen(cases[i].encoded), plain,
				       sizeof(plain));
		assert_string_equal(plain, cases[i].plain);
	}
}

static void decoded_message_is_text_whatever_came(void **state)
{
	(void)state;
	for (unsigned seed = 0; seed < 5000; seed++) {
		char in[64], *out;
		size_t n, size;

		srand(seed);
		for (size_t i = 0; i < sizeof(in); i++)
			in[i] = rand() % 3 ? "%0123456789abcdefABCDEF"[rand() % 23] : (char)rand();
		size = 1 + (size_t)rand() % 80;
		out = malloc(size);
		n = uc_grpc_decode_message(in, sizeof(in), out, size);
		assert_true(n < size);
		assert_int_equal(strlen(out), n);
		assert_int_equal(uc_str_utf8_len(out, n), n);
		free(out);
	}
}

static void statuses_of_http_and_http2_are_translated(void **state)
{
	(void)state;
	assert_int_equal(uc_grpc_status_from_http(401), UC_GRPC_UNAUTHENTICATED);
	assert_int_equal(uc_grpc_status_from_http(404), UC_GRPC_UNIMPLEMENTED);
	assert_int_equal(uc_grpc_status_from_http(415), UC_GRPC_UNKNOWN);
	assert_int_equal(uc_grpc_status_from_http(503), UC_GRPC_UNAVAILABLE);
	assert_int_equal(uc_grpc_status_from_h2(NGHTTP2_REFUSED_STREAM), UC_GRPC_UNAVAILABLE);
	assert_int_equal(uc_grpc_status_from_h2(NGHTTP2_CANCEL), UC_GRPC_CANCELLED);
	assert_int_equal(uc_grpc_status_from_h2(NGHTTP2_ENHANCE_YOUR_CALM),
			 UC_GRPC_RESOURCE_EXHAUSTED);
	assert_int_equal(uc_grpc_status_from_h2(NGHTTP2_PROTOCOL_ERROR), UC_GRPC_INTERNAL);
	assert_int_equal(uc_grpc_status_from_h2(UINT32_MAX), UC_GRPC_INTERNAL);
}

static void statuses_have_names(void **state)
{
	(void)state;
	assert_string_equal(uc_grpc_status_to_str(UC_GRPC_OK), "OK");
	assert_string_equal(uc_grpc_status_to_str(UC_GRPC_UNAUTHENTICATED), "UNAUTHENTICATED");
	assert_string_equal(uc_grpc_status_to_str(17), "UNKNOWN");
	assert_string_equal(uc_grpc_status_to_str(-1), "UNKNOWN");
}

/* The deframer's verdicts are tested through the server; here, what only it can show. */
static void memory_grows_with_what_arrives(void **state)
{
	struct uc_budget budget = { .max = 1 << 20 };
	struct uc_deframer d = { .max = 1 << 20, .budget = &budget, .encoding_known = true };
	struct uc_err err = { 0 };
	char bytes[3000] = { 0 };
	uint8_t *data;
	size_t n;

	(void)state;
	assert_int_equal(uc_deframer_feed(&d, "\0\0\x0f\0\0", 5, &err), 0);
	assert_int_equal(budget.used, 0);
	assert_int_equal(uc_deframer_feed(&d, bytes, 1, &err), 0);
	assert_in_range(budget.used, 1, 4096);
	for (size_t fed = 1; fed < 0xf0000; fed += n) {
		n = 0xf0000 - fed < sizeof(bytes) ? 0xf0000 - fed : sizeof(bytes);
		assert_int_equal(uc_deframer_feed(&d, bytes, n, &err), 0);
		assert_true(budget.used <= 2 * (fed + n) + 1024);
	}
	/* And is, in the end, what the message has. */
	assert_int_equal(uc_deframer_end(&d, &data, &n, &err), 0);
	assert_int_equal(n, 0xf0000);
	assert_int_equal(budget.used, n);
	free(data);
	uc_deframer_done(&d);
	assert_int_equal(budget.used, 0xf0000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_unit_of_a_timeout_is_read),
		cmocka_unit_test(timeout_is_written_and_never_shortened),
		cmocka_unit_test(message_is_escaped_and_read_back),
		cmocka_unit_test(message_is_cut_between_characters),
		cmocka_unit_test(decoded_message_is_cut_between_characters_too),
		cmocka_unit_test(broken_escapes_stay_as_they_are),
		cmocka_unit_test(decoded_message_is_text_whatever_came),
		cmocka_unit_test(statuses_of_http_and_http2_are_translated),
		cmocka_unit_test(statuses_have_names),
		cmocka_unit_test(memory_grows_with_what_arrives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
