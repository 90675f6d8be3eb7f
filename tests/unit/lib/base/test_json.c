/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"

static unsigned allocations_left = UINT_MAX;

static void *scarce_malloc(size_t n)
{
	if (allocations_left != UINT_MAX && !allocations_left--) {
		allocations_left = 0;
		return NULL;
	}
	return malloc(n);
}

static json_t *parse(const char *text)
{
	json_t *o = NULL;

	assert_int_equal(uc_json_parse(text, strlen(text), &o, NULL), 0);
	return o;
}

/* --------------------------------------------------------------------- parsing */

static void an_object_is_parsed(void **state)
{
	cleanup_json json_t *o = parse(" {\"a\": [1, {\"b\": null}], \"\": \"x\"}\n");

	(void)state;
	assert_int_equal(json_object_size(o), 2);
}

static void what_is_not_exactly_one_strict_object_is_refused(void **state)
{
	static const struct {
		const char *text;
		size_t n; /* 0: its length */
	} rows[] = {
		{ "", 0 },
		{ " ", 0 },
		{ "[]", 0 },
		{ "1", 0 },
		{ "\"a\"", 0 },
		{ "null", 0 },
		{ "{", 0 },
		{ "{}}", 0 },
		{ "{} {}", 0 },
		{ "{}x", 0 },
		{ "{\"a\":1,}", 0 },
		{ "{a:1}", 0 },
		{ "{\"a\":1 \"b\":2}", 0 },
		{ "{\"a\":01}", 0 },
		{ "{\"a\":NaN}", 0 },
		{ "{\"a\":9223372036854775808}", 0 }, /* would be a real number */
		{ "{\"a\":1, \"a\":1}", 0 },          /* which of the two? */
		{ "{\"o\":{\"a\":1,\"a\":2}}", 0 },
		{ "{\"a\":\"\xff\"}", 0 },
		{ "{\"a\":\"\xc0\x80\"}", 0 },
		{ "{\"a\":\"\\ud800\"}", 0 },
		{ "{\"a\":\"b\\u0000c\"}", 0 }, /* a NUL would hide what is behind it */
		{ "{\"a\\u0000b\":1}", 0 },
		{ "{\"a\":\"line\nbreak\"}", 0 },
		{ "{\"a\":\"b\0c\"}", 11 },
		{ "{}\0", 3 },
		{ "{}\0{}", 5 },
		{ "\xef\xbb\xbf{}", 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t n = rows[i].n ? rows[i].n : strlen(rows[i].text);
		json_t *o = (json_t *)&o;
		struct uc_err err = { 0 };

		if (uc_json_parse(rows[i].text, n, &o, &err) != -EINVAL)
			fail_msg("`%s` (%zu) is not refused", rows[i].text, i);
		assert_ptr_equal(o, &o);
		assert_non_null(strstr(err.msg, "JSON"));
	}
}

static void only_the_given_length_is_looked_at(void **state)
{
	json_t *o = NULL;

	(void)state;
	assert_int_equal(uc_json_parse("{}garbage", 2, &o, NULL), 0);
	json_decref(o);
}

static void endless_nesting_is_refused(void **state)
{
	static char text[200000];
	json_t *o = NULL;

	(void)state;
	memset(text, '[', sizeof(text));
	memcpy(text, "{\"a\":", 5);
	assert_int_equal(uc_json_parse(text, sizeof(text), &o, NULL), -EINVAL);
}

static void a_lack_of_memory_is_not_taken_for_bad_json(void **state)
{
	static const char text[] = "{\"a\":[\"b\",1,{}]}";
	unsigned n;

	(void)state;
	json_set_alloc_funcs(scarce_malloc, free);
	for (n = 0; n < 100; n++) {
		struct uc_err err = { 0 };
		json_t *o = NULL;
		int r;

		allocations_left = n;
		r = uc_json_parse(text, strlen(text), &o, &err);
		allocations_left = UINT_MAX;
		if (r == 0) {
			json_decref(o);
			break;
		}
		/* jansson itself takes a string that it has no memory for for a bad one. */
		if (!strstr(err.msg, "near '\""))
			assert_int_equal(r, -ENOMEM);
		assert_null(o);
	}
	json_set_alloc_funcs(malloc, free);
	assert_in_range(n, 3, 99);
}

/* --------------------------------------------------------------------- getters */

static const char all_types[] =
	"{\"str\":\"s\",\"empty\":\"\",\"int\":7,\"neg\":-1,\"real\":7.0,\"yes\":true,\"no\":false,"
	"\"null\":null,\"list\":[\"a\",\"b\"],\"none\":[],\"mixed\":[\"a\",1],\"obj\":{\"k\":1}}";

union result {
	const char *s;
	uint64_t u;
	bool b;
	json_t *j;
	char **list;
};

static int get_str(const json_t *o, const char *k, bool required, union result *to,
		   struct uc_err *err)
{
	return uc_json_get_str(o, k, required, &to->s, err);
}

static int get_u64(const json_t *o, const char *k, bool required, union result *to,
		   struct uc_err *err)
{
	return uc_json_get_u64(o, k, required, 100, &to->u, err);
}

static int get_bool(const json_t *o, const char *k, bool required, union result *to,
		    struct uc_err *err)
{
	return uc_json_get_bool(o, k, required, &to->b, err);
}

static int get_array(const json_t *o, const char *k, bool required, union result *to,
		     struct uc_err *err)
{
	return uc_json_get_array(o, k, required, &to->j, err);
}

static int get_object(const json_t *o, const char *k, bool required, union result *to,
		      struct uc_err *err)
{
	return uc_json_get_object(o, k, required, &to->j, err);
}

static int get_strv(const json_t *o, const char *k, bool required, union result *to,
		    struct uc_err *err)
{
	return uc_json_get_strv(o, k, required, &to->list, err);
}

static const struct {
	const char *type; /* in the error */
	int (*get)(const json_t *o, const char *k, bool required, union result *to,
		   struct uc_err *err);
	const char *good; /* fields that it takes, each in front of a space */
} getters[] = {
	{ "a string", get_str, "str empty " }, { "an integer", get_u64, "int " },
	{ "a boolean", get_bool, "yes no " },  { "an array", get_array, "list none mixed " },
	{ "an object", get_object, "obj " },   { "an array", get_strv, "list none " },
};

/* A result that no getter gives. */
static union result untouched(void)
{
	union result r;

	memset(&r, 0x5a, sizeof(r));
	return r;
}

static void each_getter_takes_its_own_type_only_and_names_the_field(void **state)
{
	cleanup_json json_t *o = parse(all_types);
	const char *key;
	json_t *v;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(getters); i++) {
		json_object_foreach(o, key, v)
		{
			union result to = untouched(), was = to;
			struct uc_err err = { 0 };
			char wanted[32], named[32];
			int r;

			if (json_is_null(v))
				continue;
			snprintf(wanted, sizeof(wanted), "%s ", key);
			snprintf(named, sizeof(named), "`%s`", key);
			r = getters[i].get(o, key, true, &to, &err);
			if (strstr(getters[i].good, wanted)) {
				assert_int_equal(r, 0);
				assert_memory_not_equal(&to, &was, sizeof(to));
				if (getters[i].get == get_strv)
					uc_strv_free(to.list);
				continue;
			}
			assert_int_equal(r, -EINVAL);
			assert_memory_equal(&to, &was, sizeof(to));
			assert_non_null(strstr(err.msg, named));
			if (json_typeof(v) != JSON_INTEGER && json_typeof(v) != JSON_ARRAY)
				assert_non_null(strstr(err.msg, getters[i].type));
		}
	}
}

static void an_absent_or_null_field_leaves_the_default_unless_it_is_required(void **state)
{
	cleanup_json json_t *o = parse(all_types);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(getters); i++)
		for (int null = 0; null < 2; null++) {
			const char *key = null ? "null" : "absent";
			union result to = untouched(), was = to;
			struct uc_err err = { 0 };

			assert_int_equal(getters[i].get(o, key, false, &to, &err), 0);
			assert_string_equal(err.msg, "");
			assert_int_equal(getters[i].get(o, key, true, &to, &err), -EINVAL);
			assert_memory_equal(&to, &was, sizeof(to));
			assert_non_null(strstr(err.msg, key));
			assert_non_null(strstr(err.msg, "missing"));
		}
}

static void a_field_of_what_is_no_object_is_missing(void **state)
{
	cleanup_json json_t *array = json_pack("[s]", "str");

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(getters); i++) {
		union result to = untouched();

		assert_int_equal(getters[i].get(array, "str", true, &to, NULL), -EINVAL);
	}
}

static void values_are_given_as_they_are(void **state)
{
	cleanup_json json_t *o = parse(all_types);
	const char *s = NULL;
	bool b = false;
	uint64_t u = 0;
	json_t *j;

	(void)state;
	assert_int_equal(uc_json_get_str(o, "str", true, &s, NULL), 0);
	assert_string_equal(s, "s");
	assert_int_equal(uc_json_get_u64(o, "int", true, 7, &u, NULL), 0);
	assert_int_equal(u, 7);
	assert_int_equal(uc_json_get_bool(o, "yes", true, &b, NULL), 0);
	assert_true(b);
	assert_int_equal(uc_json_get_bool(o, "no", true, &b, NULL), 0);
	assert_false(b);
	assert_int_equal(uc_json_get_array(o, "list", true, &j, NULL), 0);
	assert_ptr_equal(j, json_object_get(o, "list"));
	assert_int_equal(uc_json_get_object(o, "obj", true, &j, NULL), 0);
	assert_ptr_equal(j, json_object_get(o, "obj"));
}

static void an_integer_outside_its_range_is_refused_with_the_range(void **state)
{
	static const struct {
		const char *text;
		uint64_t max;
		int r;
		uint64_t value;
	} rows[] = {
		{ "{\"n\":0}", 0, 0, 0 },
		{ "{\"n\":1}", 0, -EINVAL, 0 },
		{ "{\"n\":-1}", UINT64_MAX, -EINVAL, 0 },
		{ "{\"n\":-9223372036854775808}", UINT64_MAX, -EINVAL, 0 },
		{ "{\"n\":9223372036854775807}", INT64_MAX, 0, INT64_MAX },
		{ "{\"n\":9223372036854775807}", UINT64_MAX, 0, INT64_MAX },
		{ "{\"n\":9223372036854775807}", INT64_MAX - 1, -EINVAL, 0 },
		{ "{\"n\":1e2}", 1000, -EINVAL, 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_json json_t *o = parse(rows[i].text);
		struct uc_err err = { 0 };
		uint64_t v = 99;

		assert_int_equal(uc_json_get_u64(o, "n", true, rows[i].max, &v, &err), rows[i].r);
		assert_int_equal(v, rows[i].r ? 99 : rows[i].value);
		if (rows[i].r)
			assert_non_null(strstr(err.msg, "field `n` is "));
	}
}

static void a_nul_inside_a_string_is_refused(void **state)
{
	cleanup_json json_t *o = json_object();
	struct uc_err err = { 0 };
	const char *s = "was";
	char **list = NULL;

	(void)state;
	json_object_set_new(o, "s", json_stringn("a\0b", 3));
	json_object_set_new(o, "list", json_pack("[o]", json_stringn("a\0b", 3)));
	assert_int_equal(uc_json_get_str(o, "s", true, &s, &err), -EINVAL);
	assert_string_equal(s, "was");
	assert_string_equal(err.msg, "field `s` holds a NUL");
	assert_int_equal(uc_json_get_strv(o, "list", true, &list, &err), -EINVAL);
	assert_null(list);
}

static void a_list_is_copied_in_order(void **state)
{
	cleanup_json json_t *o = parse(all_types);
	cleanup_strv char **list = NULL, **none = NULL;

	(void)state;
	assert_int_equal(uc_json_get_strv(o, "list", true, &list, NULL), 0);
	assert_true(uc_strv_equal(list, STRV("a", "b")));
	assert_int_equal(uc_json_get_strv(o, "none", true, &none, NULL), 0);
	assert_non_null(none);
	assert_int_equal(uc_strv_len(none), 0);
}

static void the_wrong_element_of_a_list_is_named_by_its_place(void **state)
{
	cleanup_json json_t *o = parse(all_types);
	struct uc_err err = { 0 };
	char **list = NULL;

	(void)state;
	assert_int_equal(uc_json_get_strv(o, "mixed", true, &list, &err), -EINVAL);
	assert_string_equal(err.msg, "field `mixed`[1] is not a string");
	assert_null(list);
}

/* --------------------------------------------------------------------- writing */

static void a_list_becomes_an_array(void **state)
{
	cleanup_json json_t *a = uc_json_from_strv(STRV("x", "")), *none = uc_json_from_strv(NULL);

	(void)state;
	assert_int_equal(json_array_size(a), 2);
	assert_string_equal(json_string_value(json_array_get(a, 0)), "x");
	assert_string_equal(json_string_value(json_array_get(a, 1)), "");
	assert_true(json_is_array(none));
	assert_int_equal(json_array_size(none), 0);
}

static void formatted_text_is_read_back_equal(void **state)
{
	cleanup_json json_t *o = parse(all_types), *again = NULL;
	char *text = uc_json_format(o);

	(void)state;
	assert_non_null(text);
	assert_int_equal(text[strlen(text) - 1], '\n');
	assert_non_null(strstr(text, "\n  \"str\": \"s\","));
	again = parse(text);
	assert_true(json_equal(o, again));
	free(text);
}

static void what_cannot_be_written_gives_no_text(void **state)
{
	(void)state;
	assert_null(uc_json_format(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_object_is_parsed),
		cmocka_unit_test(what_is_not_exactly_one_strict_object_is_refused),
		cmocka_unit_test(only_the_given_length_is_looked_at),
		cmocka_unit_test(endless_nesting_is_refused),
		cmocka_unit_test(a_lack_of_memory_is_not_taken_for_bad_json),
		cmocka_unit_test(each_getter_takes_its_own_type_only_and_names_the_field),
		cmocka_unit_test(an_absent_or_null_field_leaves_the_default_unless_it_is_required),
		cmocka_unit_test(a_field_of_what_is_no_object_is_missing),
		cmocka_unit_test(values_are_given_as_they_are),
		cmocka_unit_test(an_integer_outside_its_range_is_refused_with_the_range),
		cmocka_unit_test(a_nul_inside_a_string_is_refused),
		cmocka_unit_test(a_list_is_copied_in_order),
		cmocka_unit_test(the_wrong_element_of_a_list_is_named_by_its_place),
		cmocka_unit_test(a_list_becomes_an_array),
		cmocka_unit_test(formatted_text_is_read_back_equal),
		cmocka_unit_test(what_cannot_be_written_gives_no_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
