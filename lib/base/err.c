/* SPDX-License-Identifier: Apache-2.0 */

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/err.h"

#undef uc_fail
#undef uc_fail_as

int uc_fail(struct uc_err *err, int num, const char *fmt, ...)
{
	const char *desc = strerrordesc_np(num);
	va_list ap;
	int n;

	if (!err)
		return -num;

	va_start(ap, fmt);
	n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);

	if (n >= 0 && (size_t)n < sizeof(err->msg))
		snprintf(err->msg + n, sizeof(err->msg) - (size_t)n, ": %s",
			 desc ? desc : "unknown error");
	err->num = num;
	err->status = 0;
	return -num;
}

int uc_fail_as(struct uc_err *err, int num, int status, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return -num;

	va_start(ap, fmt);
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	err->num = num;
	err->status = status;
	return -num;
}

int uc_wrap(struct uc_err *err, int r, const char *fmt, ...)
{
	char inner[UC_ERR_MSG_MAX];
	va_list ap;
	int n;

	if (!err)
		return r;

	memcpy(inner, err->msg, sizeof(inner));
	va_start(ap, fmt);
	n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof(err->msg))
		snprintf(err->msg + n, sizeof(err->msg) - (size_t)n, ": %.*s",
			 (int)(sizeof(err->msg) - (size_t)n), inner);
	err->num = -r;
	return r;
}
