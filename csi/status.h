/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The one place where an error becomes a gRPC status. */

#include "lib/base/err.h"
#include "lib/rpc/status.h"

/**
 * csi_fail() - Fail with a status that the CSI specification asks for
 * @err:	Where to record it, or NULL
 * @status:	Status
 * @fmt:	The whole sentence; it names the field and the value
 *
 * Return: a negative errno that fits the status
 */
int csi_fail(struct uc_err *err, enum uc_grpc_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/**
 * csi_as() - Give a library's error its status
 * @r:		What the library returned; positive and 0 are passed on
 * @status:	Status for @err if it has none yet
 *
 * Return: @r
 */
int csi_as(struct uc_err *err, int r, enum uc_grpc_status status);

/**
 * csi_status() - The status of an error
 *
 * The one it was given, else by errno: ENOSPC RESOURCE_EXHAUSTED, ENOMEM UNAVAILABLE, EBUSY
 * and ECANCELED ABORTED, ETIMEDOUT DEADLINE_EXCEEDED, all others INTERNAL: a caller must not take
 * our own trouble for its own.
 */
enum uc_grpc_status csi_status(const struct uc_err *err);

#ifdef __clang_analyzer__
/* As in lib/base/err.h. */
#define csi_fail(err, status, ...) (csi_fail(err, status, __VA_ARGS__), -1)
#endif
