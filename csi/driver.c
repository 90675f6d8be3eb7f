/* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <string.h>

#include "csi/driver.h"
#include "csi/status.h"
#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/vol/name.h"

enum {
	MAP_MAX = 4096, /* bytes; CSI 1.13, size limits */
	NODE_ID_MAX = 256,
};

int csi_end(struct uc_call *call, const struct csi_op *op, int r, const struct uc_err *err)
{
	enum uc_grpc_status status;
	char of[220] = "";

	if (r >= 0)
		return 0;
	status = csi_status(err);
	if (*op->volume_id)
		snprintf(of, sizeof(of), " of volume `%s`", UC_PRINTABLE(op->volume_id));
	/* Pending and refused calls are the CO's everyday business; our own trouble is the
	 * operator's. */
	if (status == UC_GRPC_INTERNAL || status == UC_GRPC_UNAVAILABLE)
		log_err("%s%s: %s: %s", uc_call_method(call), of,
			uc_grpc_status_to_str((int)status), err->msg);
	else
		log_info("%s%s: %s: %s", uc_call_method(call), of,
			 uc_grpc_status_to_str((int)status), err->msg);
	return uc_call_fail(call, (int)status, "%s", err->msg);
}

int csi_check_id(const char *id, struct uc_err *err)
{
	return csi_as(err, uc_volume_id_check(id, err), UC_GRPC_INVALID_ARGUMENT);
}

int csi_check_node_id(const char *id, struct uc_err *err)
{
	if (strlen(id) > NODE_ID_MAX)
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT,
				"node_id has %zu bytes, more than %d", strlen(id), NODE_ID_MAX);
	return 0;
}

int csi_check_map(const char *field, const struct uc_param *list, size_t n, struct uc_err *err)
{
	size_t total = 0;

	for (size_t i = 0; i < n; i++)
		total += strlen(list[i].key) + strlen(list[i].value);
	if (total > MAP_MAX)
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT, "%s has %zu bytes, more than %d",
				field, total, MAP_MAX);
	return 0;
}
