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
 * uc_ctl_claim() - Take the place of a volume's server
 * @dir_fd:	The volume's directory
 * @ret_fd:	Closing it leaves the place (owned)
 *
 * The lock is an flock on the directory merged itself, as it is without what is mounted on it,
 * which is seen through a clone of the mount that @dir_fd lies on.  So it ends with its process,
 * leaves no file behind, and does not meet the driver's, which is on the volume's directory.  Who
 * has it may remove a stale socket and a dead union.
 *
 * Return: 0; -ENOENT (there is no merged, so nobody serves); -EBUSY (a server lives, whether or not
 * it answers); another negative errno
 */
int uc_ctl_claim(int dir_fd, int *ret_fd, struct uc_err *err);

/**
 * uc_ctl_kill() - Kill the server that listens in a volume's directory, though it may be hung
 * Return: 0, -ECONNREFUSED (nobody serves), another negative errno
 */
int uc_ctl_kill(const char *dir, struct uc_err *err);

/**
 * uc_ctl_call() - Ask a volume server
 * @dir:	The volume's directory
 * @op:		"status", "stop", …
 * @timeout_ms:	How long the whole exchange may take
 * @ret_reply:	The answer, if it is ok (owned by the caller); or NULL
 * @err:	Error detail, the server's own where it answered; or NULL
 *
 * One that ends before it has answered is asked again: then nobody serves, or its successor does.
 *
 * Return: 0; -ECONNREFUSED (nobody serves: no socket, or a stale one); -ETIMEDOUT; the server's
 * negative errno; another negative errno
 */
int uc_ctl_call(const char *dir, const char *op, uint64_t timeout_ms, json_t **ret_reply,
		struct uc_err *err);
