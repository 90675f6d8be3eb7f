/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/base/sha256.h"
#include "lib/base/str.h"
#include "lib/vol/name.h"

#define X10 "xxxxxxxxxx"
#define X60 X10 X10 X10 X10 X10 X10
#define X120 X60 X60
#define HEX40 "0123456789abcdef0123456789abcdef01234567"

/* "h-" and the first 40 digits of the hash. */
static const char *hashed(const char *name)
{
	static char id[UC_VOLUME_ID_SIZE];
	char hex[UC_SHA256_HEX_SIZE];

	uc_sha256_hex(name, strlen(name), hex);
	snprintf(id, sizeof(id), "h-%.40s", hex);
	return id;
}

/* ------------------------------------------------------------------------ names */

static void what_a_co_may_call_a_volume_is_accepted(void **state)
{
	static const char *const rows[] = {
		"v",
		"pvc-2f1b6c0e-7d1a-4a0b-9f0d-1c2b3a4d5e6f",
		"..",
		".",
		"/",
		"../../etc/passwd",
		"/dev/sda",
		"a/b",
		" ",
		" a ",
		"-rf",
		"--help",
		"$(reboot)",
		"`reboot`",
		"a;b|c&d",
		"'\"\\",
		"*?[",
		"%s%n",
		"%00",
		"CON",
		"state.json",
		".state.json.tmp",
		"lost+found",
		"h-" HEX40,
		"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
		"\xc2\xa0", /* the first behind C1 */
		"\xe2\x80\xae"
		"txt.exe",       /* right-to-left override: not a control character of CSI's list */
		X120 "12345678", /* 128 */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_err err = { 0 };

		if (uc_volume_name_check(rows[i], &err) < 0)
			fail_msg("`%s`: %s", rows[i], err.msg);
		assert_int_equal(uc_volume_id_check(rows[i], NULL), 0);
	}
}

static void what_a_co_may_not_is_refused_with_the_reason(void **state)
{
	static const struct {
		const char *name, *reason;
	} rows[] = {
		{ "", "is missing" },
		{ X120 "123456789", "has 129 bytes, more than 128" },
		{ X120 "1234567\xc3\xa4", "has 129 bytes" }, /* 128 characters, but bytes count */
		{ "\x01", "control character" },
		{ "a\tb", "control character" },
		{ "a\n", "control character" },
		{ "\ra", "control character" },
		{ "\x1b[31m", "control character" },
		{ "a\x1f", "control character" },
		{ "a\x7f", "control character" },
		{ "a\xc2\x80", "control character" },
		{ "\xc2\x9f"
		  "b",
		  "control character" },
		{ "\xff", "not valid UTF-8" },
		{ "a\xc0\xaf", "not valid UTF-8" },
		{ "\xed\xa0\x80", "not valid UTF-8" },
		{ "a\xc3", "not valid UTF-8" },
		{ "a\xc2", "not valid UTF-8" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_err err = { 0 };

		assert_int_equal(uc_volume_name_check(rows[i].name, &err), -EINVAL);
		assert_non_null(strstr(err.msg, rows[i].reason));
		assert_int_equal(strncmp(err.msg, "name ", 5), 0);
		assert_int_equal(uc_volume_id_check(rows[i].name, &err), -EINVAL);
		assert_non_null(strstr(err.msg, rows[i].reason));
		assert_int_equal(strncmp(err.msg, "volume_id ", 10), 0);
		assert_int_equal(uc_str_utf8_len(err.msg, strlen(err.msg)), strlen(err.msg));
		assert_null(strpbrk(err.msg, "\n\r\t\x1b\x7f"));
	}
}

static void every_control_character_is_refused_and_no_other(void **state)
{
	(void)state;
	for (unsigned c = 1; c < 0x120; c++) {
		char name[8] = "a";
		bool control = c < 0x20 || (c >= 0x7f && c <= 0x9f);

		if (c < 0x80) {
			name[1] = (char)c;
		} else {
			name[1] = (char)(0xc0 | c >> 6);
			name[2] = (char)(0x80 | (c & 0x3f));
		}
		assert_int_equal(uc_volume_name_check(name, NULL), control ? -EINVAL : 0);
	}
}

/* -------------------------------------------------------------------------- ids */

static void a_name_that_is_fit_itself_is_its_own_id(void **state)
{
	static const char *const rows[] = {
		"v",
		"0",
		"Z",
		"pvc-2f1b6c0e-7d1a-4a0b-9f0d-1c2b3a4d5e6f",
		"a.b_c-d",
		"a..b",
		"a--b",
		X60 "123", /* 63 */
		"h",
		"h-",
		"h-1",
		"H-" HEX40,
		"h-" HEX40 "0",                              /* too long for a hashed one */
		"h-0123456789abcdef0123456789abcdef0123456", /* and too short */
		"h-0123456789abcdef0123456789abcdef0123456g",
		"h-0123456789ABCDEF0123456789ABCDEF01234567",
		"CON",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char id[UC_VOLUME_ID_SIZE];

		uc_volume_id_from_name(rows[i], id);
		if (strcmp(rows[i], "h-") == 0) /* ends in a dash */
			assert_string_equal(id, hashed(rows[i]));
		else
			assert_string_equal(id, rows[i]);
		assert_true(uc_volume_id_is_valid(id));
	}
}

static void every_hostile_name_is_hashed(void **state)
{
	static const char *const rows[] = {
		"",
		"..",
		".",
		"/",
		"a/b",
		"../../etc/passwd",
		"/dev/sda",
		"-rf",
		"--help",
		".hidden",
		"a.",
		"a-",
		"_a",
		"a_",
		" ",
		"a b",
		"a\nb",
		"a,b",
		"a:b",
		"a=b",
		"a\\b",
		"a'b",
		"$(x)",
		"*",
		"%s",
		"~",
		"a~",
		"lost+found",
		"\x01",
		"\x7f",
		"\xc3\xa4",
		"\xff",
		"a\xf0\x9f\x98\x80",
		"h-" HEX40, /* or somebody could name another's volume */
		X60 "1234",
		X120 "12345678",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char id[UC_VOLUME_ID_SIZE];

		uc_volume_id_from_name(rows[i], id);
		assert_string_equal(id, hashed(rows[i]));
		assert_true(uc_volume_id_is_valid(id));
		assert_int_equal(strlen(id), 42);
	}
}

static void an_id_is_valid_if_it_is_safe_in_a_path(void **state)
{
	static const char *const bad[] = {
		"",       "..",  ".",   "/",    "a/b", "../a",     "a/",      ".a",  "a.",
		"-a",     "a-",  "_a",  "a_",   "a b", "a\n",      "a:b",     "a%b", "\xc3\xa4",
		"a\x01b", "a,b", "a=b", "a\\b", "$a",  X60 "1234", X120 X120,
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(uc_volume_id_is_valid(bad[i]));
	assert_true(uc_volume_id_is_valid("a"));
	assert_true(uc_volume_id_is_valid("a.b"));
	assert_true(uc_volume_id_is_valid(X60 "123"));
	assert_true(uc_volume_id_is_valid("h-" HEX40));
}

static void every_single_byte_and_pair_has_a_safe_id(void **state)
{
	(void)state;
	for (int a = 1; a < 256; a++)
		for (int b = 0; b < 256; b++) {
			char name[] = { (char)a, (char)b, '\0' }, id[UC_VOLUME_ID_SIZE];

			uc_volume_id_from_name(name, id);
			assert_true(uc_volume_id_is_valid(id));
			assert_null(strpbrk(id, "/ \n"));
			assert_string_not_equal(id, "..");
		}
}

static uint64_t seed = 1;

static uint64_t next(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

struct pair {
	char name[132];
	char id[UC_VOLUME_ID_SIZE];
};

static int by_id(const void *a, const void *b)
{
	const struct pair *p = a, *q = b;
	int r = strcmp(p->id, q->id);

	return r ? r : strcmp(p->name, q->name);
}

static void two_names_never_share_an_id(void **state)
{
	static const char alphabet[] = "ab.-_/h0\xc3\xa4 ";
	enum { N = 40000 };
	struct pair *pairs = calloc(N, sizeof(*pairs));

	(void)state;
	assert_non_null(pairs);
	for (size_t i = 0; i < N; i++) {
		struct pair *p = &pairs[i];

		if (i % 4 == 0) { /* looks like a hashed one, nearly */
			snprintf(p->name, sizeof(p->name), "h-%016llx%016llx%08x",
				 (unsigned long long)next(), (unsigned long long)next(),
				 (unsigned)next());
		} else if (i % 4 == 1) { /* the id of another name */
			snprintf(p->name, sizeof(p->name), "%s", pairs[i - 1].id);
		} else {
			size_t n = 1 + next() % (i % 4 == 2 ? 6 : 128);

			for (size_t k = 0; k < n; k++)
				p->name[k] = alphabet[next() % (sizeof(alphabet) - 1)];
		}
		uc_volume_id_from_name(p->name, p->id);
		assert_true(uc_volume_id_is_valid(p->id));
	}
	qsort(pairs, N, sizeof(*pairs), by_id);
	for (size_t i = 1; i < N; i++)
		if (strcmp(pairs[i - 1].id, pairs[i].id) == 0)
			assert_string_equal(pairs[i - 1].name, pairs[i].name);
	free(pairs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_co_may_call_a_volume_is_accepted),
		cmocka_unit_test(what_a_co_may_not_is_refused_with_the_reason),
		cmocka_unit_test(every_control_character_is_refused_and_no_other),
		cmocka_unit_test(a_name_that_is_fit_itself_is_its_own_id),
		cmocka_unit_test(every_hostile_name_is_hashed),
		cmocka_unit_test(an_id_is_valid_if_it_is_safe_in_a_path),
		cmocka_unit_test(every_single_byte_and_pair_has_a_safe_id),
		cmocka_unit_test(two_names_never_share_an_id),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
