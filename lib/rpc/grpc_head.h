/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The head of a gRPC request, field by field, and what is to be thought of it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum {
	UC_GRPC_PATH_SIZE = 256, /* longest path that is told from others, with the NUL */
};

/** struct uc_grpc_head - embedded in its owner; zeroed but for @max_bytes before the first field */
struct uc_grpc_head {
	size_t max_bytes;
	size_t bytes;   /* as RFC 9113, 6.5.2 counts: 32 for each field on top of its text */
	bool malformed; /* not HTTP/2 */
	bool regular;   /* a field that is no pseudo-header was there */
	bool has_method, has_path, has_scheme, has_authority;
	bool is_post;
	bool has_type, is_grpc; /* content-type */
	bool has_timeout, bad_timeout;
	bool encoded; /* grpc-encoding names something but identity */
	uint64_t timeout_ms;
	char path[UC_GRPC_PATH_SIZE]; /* cut if too long */
};

/** uc_grpc_head_add() - Take one field; values that nobody asks for are not kept */
void uc_grpc_head_add(struct uc_grpc_head *head, const void *name, size_t n_name, const void *value,
		      size_t n_value);

/**
 * uc_grpc_head_judge() - The head is complete: may the request go on?
 * @head:	Head
 * @err:	Error detail; err->status is the gRPC code
 *
 * Return: 0; a positive HTTP status to answer with (405, 415); -EPROTO (no request
 * of HTTP/2: the stream is to be reset); -EINVAL, -E2BIG (answer with err)
 */
int uc_grpc_head_judge(const struct uc_grpc_head *head, struct uc_err *err);

/**
 * uc_grpc_head_is_regular() - Whether a field may stand behind the body
 *
 * Trailers of a request mean nothing to us, but they must be fields: no
 * pseudo-headers, names in lower case, no line breaks in values.
 */
bool uc_grpc_head_is_regular(const void *name, size_t n_name, const void *value, size_t n_value);
