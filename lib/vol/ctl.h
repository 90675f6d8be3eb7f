/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The control socket of a volume server: one JSON object on a line asks, one
 * answers.
 *
 *     {"op": "status"}  {"ok": true, "volumeId": "v1", "pid": 4711, "version": "…",
 *                        "state": "ready", "mountDev": "0:43", "passthrough": true, "policy": "mfs",
 *                        "branches": [{"index": 0, "source": "/dev/loop3", "total": …,
 *                                      "available": …}, …]}
 *     {"op": "stop"}    {"ok": true}, and the server unmounts the union, releases the branches
 *                       and ends; or {"ok": false, "errno": 16, "error": "…"} if the union is
 *                       mounted elsewhere or in use
 *
 * `state` is "ready", or "stopping" from a stop until the last user has gone.
 */

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

/** UC_CTL_SOCKET - the socket's name in a volume's directory; UC_CTL_MERGED - the union's mount
 * point in it */
#define UC_CTL_SOCKET "ctl.sock"
#define UC_CTL_MERGED "merged"

/**
 * uc_ctl_call() - Ask a volume server
 * @dir:	The volume's directory
 * @op:		"status", "stop", …
 * @timeout_ms:	How long the whole exchange may take
 * @ret_reply:	The answer, if it is ok (owned by the caller); or NULL
 * @ret_pid:	The server's process, as the kernel knows the socket's peer; or NULL
 * @err:	Error detail, the server's own where it answered; or NULL
 *
 * Return: 0; -ECONNREFUSED (nobody serves: no socket, or a stale one); -ETIMEDOUT; the server's
 * negative errno; another negative errno
 */
int uc_ctl_call(const char *dir, const char *op, uint64_t timeout_ms, json_t **ret_reply,
		pid_t *ret_pid, struct uc_err *err);
