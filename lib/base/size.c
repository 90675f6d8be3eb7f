/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/base/size.h"
#include "lib/base/str.h"

static const struct {
	const char *suffix;
	uint64_t factor;
} units[] = {
	{ "", 1 },
	{ "Ki", UC_KIB },
	{ "Mi", UC_MIB },
	{ "Gi", UC_GIB },
	{ "Ti", UC_GIB << 10 },
	{ "Pi", UC_GIB << 20 },
	{ "k", 1000 },
	{ "K", 1000 },
	{ "M", 1000000 },
	{ "G", 1000000000 },
	{ "T", UINT64_C(1000000000000) },
	{ "P", UINT64_C(1000000000000000) },
};

static uint64_t unit_factor(const char *s)
{
	size_t n = strlen(s);

	if (n && s[n - 1] == 'B')
		n--;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (strlen(units[i].suffix) == n && memcmp(units[i].suffix, s, n) == 0)
			return units[i].factor;
	return 0;
}

int uc_size_parse(const char *s, uint64_t *ret_bytes, struct uc_err *err)
{
	const char *p = s;
	uint64_t scale = 1, factor;
	unsigned __int128 v = 0;
	int digits = 0;
	bool point = false;

	for (; (*p >= '0' && *p <= '9') || (*p == '.' && !point); p++) {
		if (*p == '.') {
			point = true;
			continue;
		}
		if (++digits > 20)
			return uc_fail(err, ERANGE, "size `%s`", UC_PRINTABLE(s));
		v = v * 10 + (unsigned)(*p - '0');
		if (point) {
			if (scale > UINT64_MAX / 10 / 10)
				return uc_fail(err, ERANGE, "size `%s`", UC_PRINTABLE(s));
			scale *= 10;
		}
	}
	factor = unit_factor(p);
	if (!digits || !factor)
		return uc_fail_as(err, EINVAL, 0,
				  "`%s` is not a size such as 1073741824, 10Gi or 1.5GiB",
				  UC_PRINTABLE(s));
	/* v < 10^20 and factor ≤ 2^50: the product fits 128 bits. */
	v = (v * factor + scale - 1) / scale;
	if (v > INT64_MAX)
		return uc_fail(err, ERANGE, "size `%s`", UC_PRINTABLE(s));
	*ret_bytes = (uint64_t)v;
	return 0;
}

const char *uc_size_format(uint64_t bytes, char to[static UC_SIZE_TEXT_MAX])
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double v = (double)bytes;
	size_t i = 0;

	for (; v >= 1023.995 && i + 1 < ARRAY_SIZE(names); i++)
		v /= 1024;
	if (i == 0)
		snprintf(to, UC_SIZE_TEXT_MAX, "%d B", (int)bytes);
	else
		snprintf(to, UC_SIZE_TEXT_MAX, "%.2f %s", v, names[i]);
	return to;
}

uint64_t uc_round_up(uint64_t v, uint64_t unit)
{
	uint64_t over = v % unit;

	if (!over)
		return v;
	return v > UINT64_MAX - (unit - over) ? UINT64_MAX : v + (unit - over);
}
