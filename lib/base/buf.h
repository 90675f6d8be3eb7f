/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A growable byte buffer.
 *
 * Running out of memory is remembered: appending goes on as a no-op, and
 * uc_buf_error() says at the end what happened, so that a sequence of appends
 * is checked once.
 */

#include <stdbool.h>
#include <stddef.h>

struct uc_buf {
	char *data; /* owned; NUL-terminated whenever it is not NULL */
	size_t len; /* without the NUL */
	size_t cap;
	bool failed;
};

#define UC_BUF_INIT                                               \
	{                                                         \
		.data = NULL, .len = 0, .cap = 0, .failed = false \
	}

/** uc_buf_done() - Release what the buffer holds; it may be used again */
void uc_buf_done(struct uc_buf *b);

/** uc_buf_clear() - Forget the content, keep the memory */
void uc_buf_clear(struct uc_buf *b);

/**
 * uc_buf_reserve() - Make room for @n more bytes
 * Return: 0 or -ENOMEM
 */
int uc_buf_reserve(struct uc_buf *b, size_t n);

/** uc_buf_append() - Append @n bytes (borrowed) */
void uc_buf_append(struct uc_buf *b, const void *p, size_t n);

/** uc_buf_puts() - Append a string (borrowed) */
void uc_buf_puts(struct uc_buf *b, const char *s);

/** uc_buf_printf() - Append formatted text */
void uc_buf_printf(struct uc_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** uc_buf_consume() - Drop the first @n bytes (at most all) */
void uc_buf_consume(struct uc_buf *b, size_t n);

/** uc_buf_str() - The content as a string; "" for an empty buffer */
const char *uc_buf_str(const struct uc_buf *b);

/**
 * uc_buf_take() - Hand the content over
 * Return: a string that the caller frees, or NULL where memory ran out
 */
char *uc_buf_take(struct uc_buf *b);

/**
 * uc_buf_error() - Whether an append was lost
 * Return: 0 or -ENOMEM
 */
int uc_buf_error(const struct uc_buf *b);

#define cleanup_buf __attribute__((cleanup(uc_buf_done)))
