/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What gRPC puts into HTTP/2 (grpc/grpc: doc/PROTOCOL-HTTP2.md): values of
 * headers, and messages in a body.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/rpc/budget.h"

enum {
	UC_GRPC_PREFIX = 5,         /* in front of each message: a flag, and its length */
	UC_GRPC_MESSAGE_MAX = 3072, /* of a grpc-message, encoded; peers take 8 KiB of headers */
	UC_GRPC_TIMEOUT_SIZE = 10,  /* 8 digits, a unit, a NUL */
};

/**
 * uc_grpc_parse_timeout() - Read a grpc-timeout
 * @p:		1 to 8 digits and one of H M S m u n (borrowed)
 * @n:		Its length
 * @ret_ms:	Result, rounded up
 *
 * Return: 0 or -EINVAL
 */
int uc_grpc_parse_timeout(const void *p, size_t n, uint64_t *ret_ms);

/**
 * uc_grpc_format_timeout() - Write a grpc-timeout: never less than @ms, save for the largest value
 * Return: @to
 */
const char *uc_grpc_format_timeout(uint64_t ms, char to[static UC_GRPC_TIMEOUT_SIZE]);

/**
 * uc_grpc_encode_message() - Percent-encode a grpc-message
 * @s:		Text; what is not UTF-8 in it becomes U+FFFD
 * @to:		Result, with a NUL
 * @size:	Room; what does not fit is cut, at the end of a character
 *
 * Return: length of the result
 */
size_t uc_grpc_encode_message(const char *s, char *to, size_t size);

/**
 * uc_grpc_decode_message() - Undo uc_grpc_encode_message()
 * @p:		Value (borrowed); broken escapes stay as they are
 * @n:		Its length
 * @to:		Result, with a NUL: valid UTF-8 without control characters but line feed and tab
 * @size:	Room; what does not fit is cut, at the end of a character
 *
 * Return: length of the result
 */
size_t uc_grpc_decode_message(const void *p, size_t n, char *to, size_t size);

/** uc_grpc_is_content_type() - Whether a content-type is gRPC with protobuf */
bool uc_grpc_is_content_type(const void *p, size_t n);

/** uc_grpc_status_from_http() - What an HTTP status other than 200 amounts to */
int uc_grpc_status_from_http(int http);

/** uc_grpc_status_from_h2() - The status of a stream that ended with an HTTP/2 error code */
int uc_grpc_status_from_h2(uint32_t code);

/** struct uc_deframer - takes one message out of a body; embedded in its owner */
struct uc_deframer {
	size_t max;               /* largest message that is accepted */
	struct uc_budget *budget; /* or NULL */
	bool encoding_known;      /* whether the header grpc-encoding named nothing or identity */
	uint8_t prefix[UC_GRPC_PREFIX];
	size_t n_prefix; /* bytes of it that are there */
	size_t len;      /* of the message, once the prefix is there */
	uint8_t *data;   /* owned */
	size_t n;        /* bytes of it that are there */
	size_t cap;      /* taken from the budget */
};

/** uc_deframer_done() - Release what the deframer holds */
void uc_deframer_done(struct uc_deframer *d);

/**
 * uc_deframer_feed() - Take bytes of a body, however they were cut
 * @d:		Deframer
 * @p:		Bytes (borrowed)
 * @n:		How many
 * @err:	Error detail; err->status is the gRPC code
 *
 * Return: 0; -EMSGSIZE (above the limit: found before anything is buffered), -ENOTSUP
 * (compressed in a way that we do not know: UNIMPLEMENTED), -EPROTO (INTERNAL),
 * -ENOBUFS (no memory, or the budget is used up: UNAVAILABLE)
 */
int uc_deframer_feed(struct uc_deframer *d, const void *p, size_t n, struct uc_err *err);

/**
 * uc_deframer_end() - The body has ended: take the message
 * @d:		Deframer
 * @ret_data:	Message (owned by the caller; NULL if it has no bytes).  The part of the
 *		budget that it uses, @ret_n bytes, goes with it
 * @ret_n:	Its length
 * @err:	Error detail; err->status is the gRPC code
 *
 * Return: 0, or -EPROTO where there was no message, or not all of it
 */
int uc_deframer_end(struct uc_deframer *d, uint8_t **ret_data, size_t *ret_n, struct uc_err *err);

/** uc_grpc_put_prefix() - Write the prefix of an uncompressed message of @n bytes */
void uc_grpc_put_prefix(uint8_t to[static UC_GRPC_PREFIX], uint32_t n);
