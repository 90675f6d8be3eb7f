/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* gRPC status codes (grpc/grpc: doc/statuscodes.md). */

enum uc_grpc_status {
	UC_GRPC_OK = 0,
	UC_GRPC_CANCELLED = 1,
	UC_GRPC_UNKNOWN = 2,
	UC_GRPC_INVALID_ARGUMENT = 3,
	UC_GRPC_DEADLINE_EXCEEDED = 4,
	UC_GRPC_NOT_FOUND = 5,
	UC_GRPC_ALREADY_EXISTS = 6,
	UC_GRPC_PERMISSION_DENIED = 7,
	UC_GRPC_RESOURCE_EXHAUSTED = 8,
	UC_GRPC_FAILED_PRECONDITION = 9,
	UC_GRPC_ABORTED = 10,
	UC_GRPC_OUT_OF_RANGE = 11,
	UC_GRPC_UNIMPLEMENTED = 12,
	UC_GRPC_INTERNAL = 13,
	UC_GRPC_UNAVAILABLE = 14,
	UC_GRPC_DATA_LOSS = 15,
	UC_GRPC_UNAUTHENTICATED = 16,
	UC_GRPC_STATUS_COUNT,
};

/** uc_grpc_status_to_str() - "OK", "CANCELLED", …; unknown codes are "UNKNOWN" */
const char *uc_grpc_status_to_str(int status);
