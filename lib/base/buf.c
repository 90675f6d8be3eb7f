/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/buf.h"

void uc_buf_done(struct uc_buf *b)
{
	free(b->data);
	*b = (struct uc_buf)UC_BUF_INIT;
}

void uc_buf_clear(struct uc_buf *b)
{
	b->len = 0;
	b->failed = false;
	if (b->data)
		b->data[0] = '\0';
}

int uc_buf_reserve(struct uc_buf *b, size_t n)
{
	size_t cap = b->cap ? b->cap : 64;
	char *p;

	if (b->failed)
		return -ENOMEM;
	if (n > SIZE_MAX / 2 - b->len - 1)
		goto fail;
	if (b->len + n + 1 <= b->cap)
		return 0;
	while (cap < b->len + n + 1)
		cap *= 2;
	p = realloc(b->data, cap);
	if (!p)
		goto fail;
	b->data = p;
	b->cap = cap;
	b->data[b->len] = '\0';
	return 0;
fail:
	b->failed = true;
	return -ENOMEM;
}

void uc_buf_append(struct uc_buf *b, const void *p, size_t n)
{
	if (uc_buf_reserve(b, n) < 0)
		return;
	if (n)
		memcpy(b->data + b->len, p, n);
	b->len += n;
	b->data[b->len] = '\0';
}

void uc_buf_puts(struct uc_buf *b, const char *s)
{
	uc_buf_append(b, s, strlen(s));
}

void uc_buf_printf(struct uc_buf *b, const char *fmt, ...)
{
	va_list ap, again;
	int n;

	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		b->failed = true;
	else if (uc_buf_reserve(b, (size_t)n) == 0)
		b->len += (size_t)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
	va_end(again);
}

void uc_buf_consume(struct uc_buf *b, size_t n)
{
	if (n >= b->len) {
		b->len = 0;
	} else {
		memmove(b->data, b->data + n, b->len - n);
		b->len -= n;
	}
	if (b->data)
		b->data[b->len] = '\0';
}

const char *uc_buf_str(const struct uc_buf *b)
{
	return b->data ? b->data : "";
}

char *uc_buf_take(struct uc_buf *b)
{
	char *p;

	if (uc_buf_reserve(b, 0) < 0)
		return NULL;
	p = b->data;
	*b = (struct uc_buf)UC_BUF_INIT;
	return p;
}

int uc_buf_error(const struct uc_buf *b)
{
	return b->failed ? -ENOMEM : 0;
}
