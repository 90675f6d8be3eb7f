/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "csi/status.h"

#undef csi_fail

static int errno_of(enum uc_grpc_status status)
{
	switch (status) {
	case UC_GRPC_INVALID_ARGUMENT:
		return EINVAL;
	case UC_GRPC_NOT_FOUND:
		return ENOENT;
	case UC_GRPC_ALREADY_EXISTS:
		return EEXIST;
	case UC_GRPC_RESOURCE_EXHAUSTED:
		return ENOSPC;
	case UC_GRPC_FAILED_PRECONDITION:
		return EPERM;
	case UC_GRPC_ABORTED:
		return EBUSY;
	case UC_GRPC_OUT_OF_RANGE:
		return ERANGE;
	case UC_GRPC_UNAVAILABLE:
		return EAGAIN;
	case UC_GRPC_DEADLINE_EXCEEDED:
		return ETIMEDOUT;
	default:
		return EIO;
	}
}

int csi_fail(struct uc_err *err, enum uc_grpc_status status, const char *fmt, ...)
{
	char msg[UC_ERR_MSG_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	return uc_fail_as(err, errno_of(status), (int)status, "%s", msg);
}

int csi_as(struct uc_err *err, int r, enum uc_grpc_status status)
{
	if (r < 0 && err && !err->status)
		err->status = (int)status;
	return r;
}

enum uc_grpc_status csi_status(const struct uc_err *err)
{
	if (err->status)
		return (enum uc_grpc_status)err->status;
	switch (err->num) {
	case ENOSPC:
		return UC_GRPC_RESOURCE_EXHAUSTED;
	case ENOMEM:
		return UC_GRPC_UNAVAILABLE;
	case EBUSY:
	case ECANCELED:
		return UC_GRPC_ABORTED;
	case ETIMEDOUT:
		return UC_GRPC_DEADLINE_EXCEEDED;
	default:
		return UC_GRPC_INTERNAL;
	}
}
