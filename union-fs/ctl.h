/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The server's end of the control socket (lib/vol/ctl.h is the other one). */

#include <jansson.h>

#include "lib/base/err.h"
#include "lib/rpc/loop.h"

/** struct ufs_ctl_ops - what the server does when it is asked */
struct ufs_ctl_ops {
	json_t *(*status)(void *data); /* the answer without "ok"; NULL where memory ran out */
	int (*stop)(void *data, struct uc_err *err); /* begins to; 0 or a negative errno */
	void *data;
};

struct ufs_ctl;

/**
 * ufs_ctl_open() - Make the socket and answer on it
 * @loop:	Event loop that it belongs to
 * @ops:	What to do (borrowed)
 * @dirfd:	The volume's directory (borrowed); nobody else may serve there
 * @ret:	Result; release with ufs_ctl_free()
 *
 * Who asks for a stop is answered when the union is gone, or a second later.
 *
 * Return: 0 or a negative errno
 */
int ufs_ctl_open(struct uc_loop *loop, const struct ufs_ctl_ops *ops, int dirfd,
		 struct ufs_ctl **ret, struct uc_err *err);

/** ufs_ctl_close() - Remove the socket's name; who is connected stays */
void ufs_ctl_close(struct ufs_ctl *ctl);

/** ufs_ctl_free() - Tell those who wait for it that the server has ended, and release; NULL is
 * allowed */
void ufs_ctl_free(struct ufs_ctl *ctl);
