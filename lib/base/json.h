/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Strict reading of JSON on top of jansson: a missing or wrong field is an
 * error that names it.
 *
 * Getters borrow: what they return lives as long as the object.  With
 * `required` false an absent (or null) field leaves the result untouched, so
 * that the caller's initial value is the default.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/cleanup.h"
#include "lib/base/err.h"

#define cleanup_json cleanup_with(json_decrefp)

/**
 * uc_json_parse() - Parse one JSON object
 * @text:	Text (borrowed)
 * @n:		Its length in bytes
 * @ret_object:	Result (owned by the caller)
 * @err:	Error detail, or NULL
 *
 * Duplicate keys, anything behind the object, and what is not an object are errors.
 *
 * Return: 0, -EINVAL (not such JSON) or -ENOMEM
 */
int uc_json_parse(const char *text, size_t n, json_t **ret_object, struct uc_err *err);

/** uc_json_get_str() - Get a string; -EINVAL if it is absent but required, or not a string */
int uc_json_get_str(const json_t *object, const char *key, bool required, const char **ret_value,
		    struct uc_err *err);

/** uc_json_get_u64() - Get an integer of 0…@max; else as uc_json_get_str() */
int uc_json_get_u64(const json_t *object, const char *key, bool required, uint64_t max,
		    uint64_t *ret_value, struct uc_err *err);

/** uc_json_id() - A number that may be any, such as an inode's: a string where JSON's integers end
 * (INT64_MAX); NULL where memory ran out */
json_t *uc_json_id(uint64_t id);

/** uc_json_get_id() - Get what uc_json_id() made; -EINVAL if it is absent or no such number */
int uc_json_get_id(const json_t *object, const char *key, uint64_t *ret_id, struct uc_err *err);

/** uc_json_get_bool() - Get a boolean; else as uc_json_get_str() */
int uc_json_get_bool(const json_t *object, const char *key, bool required, bool *ret_value,
		     struct uc_err *err);

/** uc_json_get_array() - Get an array (borrowed); else as uc_json_get_str() */
int uc_json_get_array(const json_t *object, const char *key, bool required, json_t **ret_value,
		      struct uc_err *err);

/** uc_json_get_object() - Get an object (borrowed); else as uc_json_get_str() */
int uc_json_get_object(const json_t *object, const char *key, bool required, json_t **ret_value,
		       struct uc_err *err);

/**
 * uc_json_get_strv() - Get an array of strings as a list
 * @ret_list:	List ended by NULL (owned by the caller); an absent field that is not required
 * leaves it untouched
 *
 * Return: 0, -EINVAL or -ENOMEM
 */
int uc_json_get_strv(const json_t *object, const char *key, bool required, char ***ret_list,
		     struct uc_err *err);

/**
 * uc_json_from_strv() - Make an array of strings
 * @list:	List ended by NULL, or NULL for an empty one (borrowed)
 *
 * Return: a new reference, or NULL where memory ran out
 */
json_t *uc_json_from_strv(char *const *list);

/**
 * uc_json_format() - Write an object as indented text that ends in a newline
 * Return: a string that the caller frees, or NULL where memory ran out
 */
char *uc_json_format(const json_t *object);
