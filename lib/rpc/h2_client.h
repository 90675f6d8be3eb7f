/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The client's end of one gRPC connection, one call at a time: bytes in, bytes out. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/err.h"

struct uc_h2c;

/**
 * uc_h2c_new() - Make the client's end of a connection
 * @max_message_bytes:	Largest response that is accepted
 * @ret_h2:	Result
 *
 * Return: 0 or a negative errno
 */
int uc_h2c_new(size_t max_message_bytes, struct uc_h2c **ret_h2);

/** uc_h2c_free() - Release; NULL is allowed */
void uc_h2c_free(struct uc_h2c *h2);

UC_DEFINE_CLEANUP(struct uc_h2c *, uc_h2c_free)

/**
 * uc_h2c_start() - Begin a call; the one before must have ended
 * @path:	"/package.Service/Method" (borrowed)
 * @timeout_ms:	Sent as grpc-timeout; 0: none
 * @frame:	Prefix and message (taken in every case)
 * @n:		Length of both
 *
 * Return: 0, -ENOTCONN where the server takes no more calls on this connection, or
 * another negative errno
 */
int uc_h2c_start(struct uc_h2c *h2, const char *path, uint64_t timeout_ms, uint8_t *frame,
		 size_t n);

/** uc_h2c_cancel() - Give the call up; uc_h2c_drain() has what tells the server so */
void uc_h2c_cancel(struct uc_h2c *h2);

/**
 * uc_h2c_feed() - Bytes have arrived
 * Return: 0 or a negative errno after which the connection is to be closed
 */
int uc_h2c_feed(struct uc_h2c *h2, const void *p, size_t n);

/**
 * uc_h2c_drain() - Append what is to be sent
 * @enough:	Stop when @out has this many bytes
 * Return: 0 or a negative errno after which the connection is to be closed
 */
int uc_h2c_drain(struct uc_h2c *h2, struct uc_buf *out, size_t enough);

/** uc_h2c_has_ended() - Whether the call has its end */
bool uc_h2c_has_ended(const struct uc_h2c *h2);

/** uc_h2c_is_usable() - Whether another call can be made on this connection */
bool uc_h2c_is_usable(const struct uc_h2c *h2);

/**
 * uc_h2c_result() - What the call came to, once it has ended
 * @ret_data:	Message of the response (owned by the caller; NULL if it has no bytes)
 * @ret_n:	Its length
 * @err:	On failure the server's message, or what is wrong; err->status is the gRPC code
 *
 * Return: 0; -EPROTO where the server gave a status; -ECONNRESET where it gave none
 */
int uc_h2c_result(struct uc_h2c *h2, uint8_t **ret_data, size_t *ret_n, struct uc_err *err);
