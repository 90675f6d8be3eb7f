/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What both ends of an HTTP/2 connection share: bytes through nghttp2, and its errors as ours. */

#include <nghttp2/nghttp2.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"

/** UC_H2_NV() - A header field of two constants (or of strings that outlive the call) */
#define UC_H2_NV(name_, value_)                                                                 \
	{                                                                                       \
		.name = (uint8_t *)(uintptr_t)(name_), .value = (uint8_t *)(uintptr_t)(value_), \
		.namelen = strlen(name_), .valuelen = strlen(value_),                           \
		.flags = NGHTTP2_NV_FLAG_NONE                                                   \
	}

/** uc_h2_errno() - A negative errno for a negative error of nghttp2 */
int uc_h2_errno(int ng);

/**
 * uc_h2_callbacks_new() - Callbacks with those set that both ends share: debug lines
 * Return: callbacks that the caller extends and deletes, or NULL where memory ran out
 */
nghttp2_session_callbacks *uc_h2_callbacks_new(void);

/**
 * uc_h2_feed() - Have the session read bytes
 * Return: 0 or a negative errno after which the connection is to be closed
 */
int uc_h2_feed(nghttp2_session *session, const void *p, size_t n);

/**
 * uc_h2_drain() - Append what the session has to send
 * @session:	Session
 * @out:	Buffer
 * @enough:	Stop when @out has this many bytes: the rest waits in the session
 *
 * Return: 0 or a negative errno after which the connection is to be closed
 */
int uc_h2_drain(nghttp2_session *session, struct uc_buf *out, size_t enough);
