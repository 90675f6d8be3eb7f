/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "csi/op.h"
#include "csi/status.h"
#include "lib/base/log.h"
#include "lib/vol/store.h"

int csi_step(const struct csi_op *op, struct uc_err *err, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_debug("%s: %s: %s", op->volume_id, op->call ? uc_call_method(op->call) : "start-up",
		  text);
	if ((op->call && uc_call_step(op->call, "%s", text) < 0) || uc_volume_lock_beat() < 0)
		return uc_fail_as(err, ECANCELED, UC_GRPC_ABORTED,
				  "the operation took too long and was given up before: %s", text);
	return 0;
}

int csi_beat(const struct csi_op *op)
{
	/* Both, though the first fails: the volume's lock has its own clock. */
	int r = op->call ? uc_call_beat(op->call) : 0, s = uc_volume_lock_beat();

	return r < 0 ? r : s;
}
