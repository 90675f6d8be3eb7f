/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What protobuf-c does not check before it unpacks a message.
 *
 * protobuf-c takes strings as they come, and cuts them at the first NUL: what a
 * handler sees is then not what was sent, or checked, or will be sent on.
 */

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "lib/base/err.h"

/** UC_PBCHECK_ELEMENTS - most elements of a request: each takes more memory than it has bytes */
#define UC_PBCHECK_ELEMENTS ((size_t)1 << 16)

/**
 * uc_pbcheck() - Check the bytes of a message
 * @desc:	Type
 * @p:		Bytes (borrowed)
 * @n:		How many
 * @elements:	Most fields and packed values, in all messages within; SIZE_MAX: no limit
 * @err:	Error detail; err->status is the gRPC code
 *
 * Every field of type string, keys and values of maps included, must be UTF-8
 * and hold no NUL.  A message field that is not repeated must not occur twice:
 * protobuf-c merges such messages wrongly.  Nesting is limited to 64.
 *
 * Errors name the field: "field `volume_capabilities[0].mount.fs_type` holds a NUL".
 *
 * Return: 0; -EINVAL (INVALID_ARGUMENT) for content, -EBADMSG (INTERNAL) for bytes
 * that are no message of the type, -E2BIG (RESOURCE_EXHAUSTED) above a limit
 */
int uc_pbcheck(const ProtobufCMessageDescriptor *desc, const void *p, size_t n, size_t elements,
	       struct uc_err *err);
