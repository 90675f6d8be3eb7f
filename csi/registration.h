/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kubelet's plugin registration: a node needs no registrar beside the driver. */

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/rpc/loop.h"
#include "lib/rpc/server.h"

struct csi_registration;

/**
 * csi_registration_new() - Serve the registration socket
 * @server:	Serves it beside the CSI socket (borrowed)
 * @loop:	The server's
 * @dir:	kubelet's directory of registration sockets
 * @driver_name: The driver's name; the socket is <dir>/<name>-reg.sock
 * @endpoint:	Path of the CSI socket as kubelet sees it
 * @refused:	Called on the loop's thread when kubelet refuses the plugin
 * @ret:	Result; strings are borrowed
 *
 * Return: 0 or a negative errno
 */
int csi_registration_new(struct uc_server *server, struct uc_loop *loop, const char *dir,
			 const char *driver_name, const char *endpoint, void (*refused)(void *data),
			 void *data, struct csi_registration **ret, struct uc_err *err);

/** csi_registration_free() - Release, after the server; NULL is allowed */
void csi_registration_free(struct csi_registration *r);

/** csi_registration_is_done() - Whether kubelet has registered the plugin */
bool csi_registration_is_done(const struct csi_registration *r);
