/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/buf.h"
#include "lib/base/json.h"
#include "lib/base/str.h"

int uc_json_parse(const char *text, size_t n, json_t **ret_object, struct uc_err *err)
{
	cleanup_json json_t *o = NULL;
	json_error_t e = { .line = 0 };

	o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
	/* It gives a code to whatever is wrong with the text; of a lack of memory it says nothing,
	 * in most places. */
	if (!o && (json_error_code(&e) == json_error_unknown ||
		   json_error_code(&e) == json_error_out_of_memory))
		return uc_fail(err, ENOMEM, "parse JSON");
	if (!o)
		return uc_fail_as(err, EINVAL, 0, "not valid JSON: line %d: %s", e.line,
				  UC_PRINTABLE(e.text));
	if (!json_is_object(o))
		return uc_fail_as(err, EINVAL, 0, "not a JSON object");
	*ret_object = take_ptr(&o);
	return 0;
}

static const char *type_str(json_type type)
{
	switch (type) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "an array";
	case JSON_STRING:
		return "a string";
	case JSON_INTEGER:
		return "an integer";
	case JSON_REAL:
		return "a real number";
	case JSON_TRUE:
	case JSON_FALSE:
		return "a boolean";
	case JSON_NULL:
		return "null";
	}
	return "?";
}

/* Positive: the field is there, in *ret_value.  0: it is absent and may be. */
static int get(const json_t *object, const char *key, bool required, json_type type,
	       json_t **ret_value, struct uc_err *err)
{
	json_t *v = json_object_get(object, key);
	bool ok;

	if (!v || json_is_null(v)) {
		if (required)
			return uc_fail_as(err, EINVAL, 0, "field `%s` is missing", key);
		return 0;
	}
	ok = type == JSON_TRUE ? json_is_boolean(v) : json_typeof(v) == type;
	if (!ok)
		return uc_fail_as(err, EINVAL, 0, "field `%s` is %s, not %s", key,
				  type_str(json_typeof(v)), type_str(type));
	*ret_value = v;
	return 1;
}

int uc_json_get_str(const json_t *object, const char *key, bool required, const char **ret_value,
		    struct uc_err *err)
{
	json_t *v = NULL;
	int r;

	r = get(object, key, required, JSON_STRING, &v, err);
	if (r <= 0)
		return r;
	if (strlen(json_string_value(v)) != json_string_length(v))
		return uc_fail_as(err, EINVAL, 0, "field `%s` holds a NUL", key);
	*ret_value = json_string_value(v);
	return 0;
}

int uc_json_get_u64(const json_t *object, const char *key, bool required, uint64_t max,
		    uint64_t *ret_value, struct uc_err *err)
{
	json_int_t i;
	json_t *v = NULL;
	int r;

	r = get(object, key, required, JSON_INTEGER, &v, err);
	if (r <= 0)
		return r;
	i = json_integer_value(v);
	if (i < 0 || (uint64_t)i > max)
		return uc_fail_as(err, EINVAL, 0, "field `%s` is %lld, not within 0…%llu", key,
				  (long long)i, (unsigned long long)max);
	*ret_value = (uint64_t)i;
	return 0;
}

json_t *uc_json_id(uint64_t id)
{
	return id <= INT64_MAX ? json_integer((json_int_t)id)
			       : json_sprintf("%llu", (unsigned long long)id);
}

int uc_json_get_id(const json_t *object, const char *key, uint64_t *ret_id, struct uc_err *err)
{
	const char *s;
	int r;

	if (!json_is_string(json_object_get(object, key)))
		return uc_json_get_u64(object, key, true, INT64_MAX, ret_id, err);
	r = uc_json_get_str(object, key, true, &s, err);
	if (r == 0 && uc_str_parse_u64(s, UINT64_MAX, ret_id) < 0)
		r = uc_fail_as(err, EINVAL, 0, "field `%s` is `%s`, not a number", key,
			       UC_PRINTABLE(s));
	return r;
}

int uc_json_get_bool(const json_t *object, const char *key, bool required, bool *ret_value,
		     struct uc_err *err)
{
	json_t *v = NULL;
	int r;

	r = get(object, key, required, JSON_TRUE, &v, err);
	if (r <= 0)
		return r;
	*ret_value = json_is_true(v);
	return 0;
}

int uc_json_get_array(const json_t *object, const char *key, bool required, json_t **ret_value,
		      struct uc_err *err)
{
	int r = get(object, key, required, JSON_ARRAY, ret_value, err);

	return r < 0 ? r : 0;
}

int uc_json_get_object(const json_t *object, const char *key, bool required, json_t **ret_value,
		       struct uc_err *err)
{
	int r = get(object, key, required, JSON_OBJECT, ret_value, err);

	return r < 0 ? r : 0;
}

int uc_json_get_strv(const json_t *object, const char *key, bool required, char ***ret_list,
		     struct uc_err *err)
{
	cleanup_strv char **list = NULL;
	json_t *array = NULL, *v;
	size_t i;
	int r;

	r = get(object, key, required, JSON_ARRAY, &array, err);
	if (r <= 0)
		return r;
	list = calloc(1, sizeof(*list));
	if (!list)
		return uc_fail(err, ENOMEM, "field `%s`", key);
	json_array_foreach(array, i, v)
	{
		if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
			return uc_fail_as(err, EINVAL, 0, "field `%s`[%zu] is not a string", key,
					  i);
		if (uc_strv_push(&list, json_string_value(v)) < 0)
			return uc_fail(err, ENOMEM, "field `%s`", key);
	}
	*ret_list = take_ptr(&list);
	return 0;
}

json_t *uc_json_from_strv(char *const *list)
{
	cleanup_json json_t *array = json_array();

	for (; array && list && *list; list++)
		if (json_array_append_new(array, json_string(*list)) < 0)
			return NULL;
	return take_ptr(&array);
}

static int append(const char *p, size_t n, void *to)
{
	uc_buf_append(to, p, n);
	return 0;
}

char *uc_json_format(const json_t *object)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;

	if (json_dump_callback(object, append, &b, JSON_INDENT(2)) < 0)
		return NULL;
	uc_buf_puts(&b, "\n");
	return uc_buf_error(&b) < 0 ? NULL : uc_buf_take(&b);
}
