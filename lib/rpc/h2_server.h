/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The server's end of one gRPC connection: bytes in, bytes out.  No socket, no
 * clock, no thread: the owner feeds it what arrived and the time, and sends what
 * comes out.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/rpc/budget.h"

struct uc_h2s;

/** struct uc_h2s_request - a request whose one message is complete */
struct uc_h2s_request {
	int32_t stream;
	const void *route; /* what ops->route() said */
	uint8_t *msg;      /* owned by the receiver, with @n bytes of the budget; NULL if empty */
	size_t n;
};

/**
 * struct uc_h2s_ops - what the owner does
 *
 * All are called from within uc_h2s_feed(), uc_h2s_tick() or uc_h2s_free(); they
 * may answer streams, and must not free the connection.
 */
struct uc_h2s_ops {
	/* Which method is called?  NULL: none that is known, and the call is UNIMPLEMENTED. */
	const void *(*route)(void *data, const char *path);
	/* A call to be answered, now or later, by uc_h2s_respond() or uc_h2s_fail(). */
	void (*request)(void *data, const struct uc_h2s_request *req);
	/* The deadline of a call has passed: it is to be answered now. */
	void (*expired)(void *data, int32_t stream, void *token);
	/* A call that was not answered is gone: the client has reset it, or the connection ends. */
	void (*gone)(void *data, int32_t stream, void *token);
	/* A call was answered without a request() for it; @route may be NULL. */
	void (*refused)(void *data, const void *route, int status);
};

/** struct uc_h2s_config - limits, and who is to be called */
struct uc_h2s_config {
	const struct uc_h2s_ops *ops; /* borrowed */
	void *data;                   /* passed to them */
	struct uc_budget *budget;     /* borrowed */
	unsigned max_streams;
	unsigned max_header_bytes;
	size_t max_message_bytes;
	uint64_t stream_ms; /* for a request, a handshake, or a response, to the last byte */
};

/**
 * uc_h2s_new() - Make the server's end of a connection
 * @config:	Copied
 * @now_ms:	Time
 * @ret_h2:	Result
 *
 * Return: 0 or a negative errno
 */
int uc_h2s_new(const struct uc_h2s_config *config, uint64_t now_ms, struct uc_h2s **ret_h2);

/** uc_h2s_free() - Give the connection up; NULL is allowed.  Calls that wait are gone() */
void uc_h2s_free(struct uc_h2s *h2);

UC_DEFINE_CLEANUP(struct uc_h2s *, uc_h2s_free)

/**
 * uc_h2s_feed() - Bytes have arrived
 * Return: 0 or a negative errno after which the connection is to be closed
 */
int uc_h2s_feed(struct uc_h2s *h2, const void *p, size_t n, uint64_t now_ms);

/**
 * uc_h2s_drain() - Append what is to be sent
 * @enough:	Stop when @out has this many bytes
 * Return: 0 or a negative errno after which the connection is to be closed
 */
int uc_h2s_drain(struct uc_h2s *h2, struct uc_buf *out, size_t enough);

/**
 * uc_h2s_tick() - Time has passed: end what is overdue
 * @ret_next_ms:	When to call next; UINT64_MAX: no need to
 * Return: 0, or -ETIMEDOUT where the connection is to be closed
 */
int uc_h2s_tick(struct uc_h2s *h2, uint64_t now_ms, uint64_t *ret_next_ms);

/**
 * uc_h2s_set_token() - Have expired() and gone() get a pointer for a call
 *
 * A stream that is not there, or not a call, is left alone.
 */
void uc_h2s_set_token(struct uc_h2s *h2, int32_t stream, void *token);

/**
 * uc_h2s_respond() - Answer a call with a message
 * @frame:	Prefix and message (taken in every case)
 * @n:		Length of both
 *
 * Return: 0, -ENOENT if there is no such call any more, or another negative errno
 * after which the connection is to be closed
 */
int uc_h2s_respond(struct uc_h2s *h2, int32_t stream, uint8_t *frame, size_t n, uint64_t now_ms);

/**
 * uc_h2s_fail() - Answer a call with a status
 * @status:	Not OK
 * @msg:	For the person who reads it (borrowed)
 *
 * Return: as uc_h2s_respond()
 */
int uc_h2s_fail(struct uc_h2s *h2, int32_t stream, int status, const char *msg, uint64_t now_ms);

/**
 * uc_h2s_shutdown() - Stop gracefully: no new streams, those that are open are answered
 *
 * GOAWAY in two steps, so that no request that is on its way gets lost: the first
 * asks for no more streams; the second, once the peer has seen the first, says
 * which were the last.
 */
void uc_h2s_shutdown(struct uc_h2s *h2, uint64_t now_ms);

/** uc_h2s_streams() - How many streams are open */
unsigned uc_h2s_streams(const struct uc_h2s *h2);

/** uc_h2s_is_over() - Whether both sides have said all: the connection is to be closed */
bool uc_h2s_is_over(const struct uc_h2s *h2);
