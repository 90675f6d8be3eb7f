/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A blocking gRPC client for unary calls on a Unix socket: the command line's half. */

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

#include "lib/base/cleanup.h"
#include "lib/base/err.h"
#include "lib/rpc/status.h"

struct uc_client;

/**
 * uc_client_open() - Connect
 * @endpoint:	"unix:///path", "unix:path" or a path
 * @ret_client:	Result
 * @err:	Error detail, or NULL
 *
 * Return: 0 or a negative errno
 */
int uc_client_open(const char *endpoint, struct uc_client **ret_client, struct uc_err *err);

/** uc_client_close() - Disconnect; NULL is allowed */
void uc_client_close(struct uc_client *client);

UC_DEFINE_CLEANUP(struct uc_client *, uc_client_close)

/**
 * uc_client_set_progress() - Have a function called while a call waits
 * @fn:		Called about ten times a second with the time the call has taken so far; NULL: none
 * @data:	Passed to it
 */
void uc_client_set_progress(struct uc_client *client, void (*fn)(void *data, uint64_t ms),
			    void *data);

/**
 * uc_client_call() - Make one call and wait for its end
 * @desc:	Service
 * @method:	Method's name
 * @req:	Request (borrowed)
 * @timeout_ms:	Deadline, sent as grpc-timeout; 0: none
 * @ret_resp:	Response; free with protobuf_c_message_free_unpacked(…, NULL).  Untouched on failure
 * @err:	On failure the server's message; its status in err->status
 *
 * A connection that was lost, or given up by the server, since the last call is made anew.
 *
 * Return: 0; -EPROTO where the server answered with a status (err->status tells which);
 * another negative errno where no answer came: err->status is UNAVAILABLE,
 * DEADLINE_EXCEEDED, or what a reset or a broken answer amounts to (INTERNAL, …)
 */
int uc_client_call(struct uc_client *client, const ProtobufCServiceDescriptor *desc,
		   const char *method, const ProtobufCMessage *req, uint64_t timeout_ms,
		   ProtobufCMessage **ret_resp, struct uc_err *err);
