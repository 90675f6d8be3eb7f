/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One operation on a volume: a request's, or start-up's own. */

#include "lib/base/err.h"
#include "lib/rpc/server.h"

/** struct csi_op - what an operation reports its progress to */
struct csi_op {
	struct uc_call *call;  /* NULL: no request waits for it */
	const char *volume_id; /* for the log */
};

/**
 * csi_step() - Say what is done next, and ask whether the operation still owns its volume
 * @err:	Error detail, or NULL
 * @fmt:	e.g. "format branch 1"
 *
 * Before every step that may block or that changes anything outside the process.
 *
 * Return: 0, or -ECANCELED: the operation has hung for so long that others may work on the volume;
 * stop
 */
int csi_step(const struct csi_op *op, struct uc_err *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/** csi_beat() - Say that a long step goes on, and ask as csi_step() does; 0 or -ECANCELED */
int csi_beat(const struct csi_op *op);
