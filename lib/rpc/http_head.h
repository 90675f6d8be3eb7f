/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The head of an HTTP/1.x request: bytes in, a verdict out. */

#include <stdbool.h>
#include <stddef.h>

enum {
	UC_HTTP_HEAD_MAX = 8192, /* longest head, with the empty line that ends it */
};

/** struct uc_http_head - what a request asks for */
struct uc_http_head {
	const char *path; /* in the parsed buffer: without the query, percent-decoded by nobody */
	size_t n_path;
	bool is_head; /* HEAD instead of GET */
};

/**
 * uc_http_parse_head() - Read the head of a request
 * @p:		What has arrived so far (borrowed)
 * @n:		How many bytes
 * @ret_head:	Result
 *
 * Return: 0 where more bytes are needed, else an HTTP status: 200, 400 (not HTTP),
 * 405 (neither GET nor HEAD), 431 (too long), 505 (another version)
 */
int uc_http_parse_head(const char *p, size_t n, struct uc_http_head *ret_head);
