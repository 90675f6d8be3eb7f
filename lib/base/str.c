/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/str.h"

bool uc_streq(const char *a, const char *b)
{
	if (!a || !b)
		return a == b;
	return strcmp(a, b) == 0;
}

bool uc_str_is_empty(const char *s)
{
	return !s || !*s;
}

bool uc_str_has_prefix(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool uc_str_has_suffix(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

int uc_str_parse_u64(const char *s, uint64_t max, uint64_t *ret_value)
{
	uint64_t v = 0;

	if (!*s)
		return -EINVAL;
	for (; *s; s++) {
		uint64_t digit;

		if (*s < '0' || *s > '9')
			return -EINVAL;
		digit = (uint64_t)(*s - '0');
		if (v > (UINT64_MAX - digit) / 10)
			return -ERANGE;
		v = v * 10 + digit;
	}
	if (v > max)
		return -ERANGE;
	*ret_value = v;
	return 0;
}

/* Length of the valid character at @p, of which @n bytes are there; 0 if it is not valid. */
static size_t utf8_char(const unsigned char *p, size_t n)
{
	static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t len;
	uint32_t c;

	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xc2 && p[0] <= 0xdf)
		len = 2;
	else if (p[0] >= 0xe0 && p[0] <= 0xef)
		len = 3;
	else if (p[0] >= 0xf0 && p[0] <= 0xf4)
		len = 4;
	else
		return 0;
	if (len > n)
		return 0;
	c = p[0] & (0x7fU >> len);
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3fU);
	}
	if (c < smallest[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	return len;
}

size_t uc_str_utf8_len(const void *p, size_t n)
{
	const unsigned char *c = p;
	size_t i = 0;

	while (i < n) {
		size_t len = utf8_char(c + i, n - i);

		if (!len)
			break;
		i += len;
	}
	return i;
}

size_t uc_str_utf8_cut(const char *s, size_t n, size_t max)
{
	if (n <= max)
		return n;
	while (max > 0 && ((unsigned char)s[max] & 0xc0) == 0x80)
		max--;
	return max;
}

/* C0, DEL and C1 (U+0080–U+009F), whose U+009B starts a terminal's escape sequence like ESC [. */
static bool is_control(const unsigned char *c, size_t len)
{
	return *c < 0x20 || *c == 0x7f || (len == 2 && c[0] == 0xc2 && c[1] < 0xa0);
}

const char *uc_str_printable(char *to, size_t size, const char *s)
{
	static const char dots[] = "…";
	size_t left = s ? strlen(s) : 0, n = 0, cut = 0;

	while (left > 0) {
		const unsigned char *c = (const unsigned char *)s;
		size_t len = utf8_char(c, left);
		bool hidden = len == 0 || is_control(c, len);
		size_t need = hidden ? 4 : len;

		if (n + sizeof(dots) <= size)
			cut = n;
		if (n + need >= size) {
			if (size >= sizeof(dots)) {
				memcpy(to + cut, dots, sizeof(dots));
				return to;
			}
			break;
		}
		if (hidden) {
			n += (size_t)snprintf(to + n, size - n, "\\x%02x", *c);
			len = 1;
		} else {
			memcpy(to + n, s, len);
			n += len;
		}
		s += len;
		left -= len;
	}
	to[n] = '\0';
	return to;
}

int uc_str_split(const char *s, char sep, char ***ret_list)
{
	char **list = NULL;
	size_t n = 0;

	if (*s) {
		n = 1;
		for (const char *p = s; *p; p++)
			n += *p == sep;
	}
	list = calloc(n + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		size_t len = strcspn(s, (char[]){ sep, '\0' });

		list[i] = strndup(s, len);
		if (!list[i]) {
			uc_strv_free(list);
			return -ENOMEM;
		}
		s += len + 1;
	}
	*ret_list = list;
	return (int)n;
}

void uc_strv_free(char **list)
{
	for (char **p = list; p && *p; p++)
		free(*p);
	free(list);
}

size_t uc_strv_len(char *const *list)
{
	size_t n = 0;

	while (list && list[n])
		n++;
	return n;
}

int uc_strv_push(char ***list, const char *s)
{
	size_t n = uc_strv_len(*list);
	char *copy = strdup(s);
	char **grown;

	if (!copy)
		return -ENOMEM;
	grown = reallocarray(*list, n + 2, sizeof(**list));
	if (!grown) {
		free(copy);
		return -ENOMEM;
	}
	grown[n] = copy;
	grown[n + 1] = NULL;
	*list = grown;
	return 0;
}

bool uc_strv_has(char *const *list, const char *s)
{
	for (; list && *list; list++)
		if (strcmp(*list, s) == 0)
			return true;
	return false;
}

bool uc_strv_equal(char *const *a, char *const *b)
{
	size_t n = uc_strv_len(a);

	if (n != uc_strv_len(b))
		return false;
	for (size_t i = 0; i < n; i++)
		if (strcmp(a[i], b[i]) != 0)
			return false;
	return true;
}
