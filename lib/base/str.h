/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Strings: comparison, numbers, lists, UTF-8, and text from outside made printable. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** uc_streq() - Whether two strings are equal; NULL equals only NULL */
bool uc_streq(const char *a, const char *b);

/** uc_str_is_empty() - Whether @s is NULL or "" */
bool uc_str_is_empty(const char *s);

/** uc_str_has_prefix() - Whether @s begins with @prefix */
bool uc_str_has_prefix(const char *s, const char *prefix);

/** uc_str_has_suffix() - Whether @s ends with @suffix */
bool uc_str_has_suffix(const char *s, const char *suffix);

/**
 * uc_str_parse_u64() - Read a decimal number, nothing before or behind it
 * @s:		Digits only: no sign, no space, no prefix
 * @max:	Largest value that is accepted
 * @ret_value:	Result; untouched on failure
 *
 * Return: 0, -EINVAL (not a number) or -ERANGE (above @max)
 */
int uc_str_parse_u64(const char *s, uint64_t max, uint64_t *ret_value);

/**
 * uc_str_utf8_len() - Length of the valid UTF-8 at the start of @p
 * @p:	Bytes (borrowed); NUL is a character like any other
 * @n:	How many
 *
 * Overlong forms, surrogates and what lies above U+10FFFF are invalid.
 *
 * Return: @n if all is valid, else the offset of the first invalid byte
 */
size_t uc_str_utf8_len(const void *p, size_t n);

/**
 * uc_str_utf8_cut() - Largest length ≤ @max that does not split a character
 * @s:	Valid UTF-8 (borrowed)
 * @n:	Its length in bytes
 * @max:	Limit in bytes
 */
size_t uc_str_utf8_cut(const char *s, size_t n, size_t max);

/**
 * uc_str_printable() - Make text from outside fit for a message
 * @to:		Buffer
 * @size:	Its size; what does not fit is cut and ends in "…"
 * @s:		Anything, or NULL
 *
 * Control characters and invalid UTF-8 become \xNN.
 *
 * Return: @to
 */
const char *uc_str_printable(char *to, size_t size, const char *s);

/** UC_PRINTABLE() - uc_str_printable() into a buffer of the enclosing block, for one message */
#define UC_PRINTABLE(s) uc_str_printable((char[200]){ 0 }, 200, (s))

/**
 * uc_str_split() - Cut a list at a separator
 * @s:		List (borrowed), e.g. "a,b,c"; "" is an empty list
 * @sep:	Separator
 * @ret_list:	Array of strings, ended by NULL; free with uc_strv_free()
 *
 * Empty elements are kept: "a,,b" has three.
 *
 * Return: number of elements, or -ENOMEM
 */
int uc_str_split(const char *s, char sep, char ***ret_list);

/** uc_strv_free() - Free a list of strings ended by NULL; NULL is allowed */
void uc_strv_free(char **list);

/** uc_strv_len() - Number of strings in a list ended by NULL; 0 for NULL */
size_t uc_strv_len(char *const *list);

/**
 * uc_strv_push() - Append a copy of @s to a list
 * @list:	List ended by NULL, or NULL for an empty one; replaced
 * @s:		String (borrowed)
 *
 * Return: 0, or -ENOMEM with the list as it was
 */
int uc_strv_push(char ***list, const char *s);

/** uc_strv_has() - Whether the list has @s */
bool uc_strv_has(char *const *list, const char *s);

/** uc_strv_equal() - Whether two lists have the same strings in the same order */
bool uc_strv_equal(char *const *a, char *const *b);

static inline void uc_strv_freep(char ***list)
{
	uc_strv_free(*list);
}

#define cleanup_strv __attribute__((cleanup(uc_strv_freep)))
