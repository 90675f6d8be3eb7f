/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/sha256.h"
#include "lib/base/str.h"
#include "lib/vol/name.h"

enum {
	HASH_DIGITS = 40,
};

static const char hash_prefix[] = "h-";

static bool is_alnum(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_hashed(const char *id)
{
	size_t n = strlen(hash_prefix);

	return strncmp(id, hash_prefix, n) == 0 && strlen(id) == n + HASH_DIGITS &&
	       strspn(id + n, "0123456789abcdef") == HASH_DIGITS;
}

static bool is_plain(const char *id)
{
	size_t n = strlen(id);

	if (n == 0 || n > UC_VOLUME_ID_MAX || !is_alnum(id[0]) || !is_alnum(id[n - 1]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_alnum(id[i]) && !strchr("-_.", id[i]))
			return false;
	return true;
}

/* C0, DEL, and C1 (U+0080–U+009F, in UTF-8 c2 80…9f). */
static bool has_control(const char *s)
{
	for (const unsigned char *c = (const unsigned char *)s; *c; c++)
		if (*c < 0x20 || *c == 0x7f || (c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f))
			return true;
	return false;
}

static int check(const char *what, const char *s, struct uc_err *err)
{
	size_t n = strlen(s);

	if (n == 0)
		return uc_fail_as(err, EINVAL, 0, "%s is missing", what);
	if (n > UC_VOLUME_NAME_MAX)
		return uc_fail_as(err, EINVAL, 0, "%s `%s` has %zu bytes, more than %d", what,
				  UC_PRINTABLE(s), n, UC_VOLUME_NAME_MAX);
	if (uc_str_utf8_len(s, n) != n)
		return uc_fail_as(err, EINVAL, 0, "%s `%s` is not valid UTF-8", what,
				  UC_PRINTABLE(s));
	if (has_control(s))
		return uc_fail_as(err, EINVAL, 0, "%s `%s` holds a control character", what,
				  UC_PRINTABLE(s));
	return 0;
}

int uc_volume_name_check(const char *name, struct uc_err *err)
{
	return check("name", name, err);
}

int uc_volume_id_check(const char *id, struct uc_err *err)
{
	return check("volume_id", id, err);
}

void uc_volume_id_from_name(const char *name, char ret_id[static UC_VOLUME_ID_SIZE])
{
	char hex[UC_SHA256_HEX_SIZE];

	if (is_plain(name) && !is_hashed(name)) {
		snprintf(ret_id, UC_VOLUME_ID_SIZE, "%s", name);
		return;
	}
	uc_sha256_hex(name, strlen(name), hex);
	snprintf(ret_id, UC_VOLUME_ID_SIZE, "%s%.*s", hash_prefix, HASH_DIGITS, hex);
}

bool uc_volume_id_is_valid(const char *id)
{
	return is_plain(id);
}
