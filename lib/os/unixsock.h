/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Unix stream sockets with names in the filesystem, of any length. */

#include <stdbool.h>
#include <sys/types.h>

#include "lib/base/cleanup.h"
#include "lib/base/err.h"

/** struct uc_unix_listener - a socket that listens, and the name that it has */
struct uc_unix_listener {
	int fd;     /* non-blocking; -1: none */
	int dirfd;  /* O_RDONLY: the directory of the name */
	char *name; /* in it */
	dev_t dev;  /* of the socket's file */
	ino_t ino;
};

#define UC_UNIX_LISTENER_INIT                       \
	{                                           \
		.fd = -1, .dirfd = -1, .name = NULL \
	}

/**
 * uc_unix_listen() - Make a socket and listen on it
 * @path:	Its directory must exist
 * @ret_listener:	Result; release with uc_unix_unlisten()
 * @err:	Error detail, or NULL
 *
 * The socket has mode 0600 from the moment it has a name.  A stale one (nobody
 * listens) is replaced.
 *
 * Return: 0; -EADDRINUSE where somebody listens there; -EEXIST where
 * something that is no socket has the name; another negative errno
 */
int uc_unix_listen(const char *path, struct uc_unix_listener *ret_listener, struct uc_err *err);

/**
 * uc_unix_unlisten() - Close the socket, and remove its name if it is still this socket's
 *
 * A listener that was never opened is allowed.
 */
void uc_unix_unlisten(struct uc_unix_listener *listener);

/**
 * uc_unix_connect() - Connect
 * @path:	Name of the socket
 * @err:	Error detail, or NULL
 *
 * Waits at most five seconds for a server whose queue is full.
 *
 * Return: blocking descriptor (owned); -ECONNREFUSED where nobody listens; -ETIMEDOUT;
 * another negative errno
 */
int uc_unix_connect(const char *path, struct uc_err *err);

/**
 * uc_unix_is_trusted() - Whether the peer runs as root or as the user that we run as
 * @fd:		Connected socket (borrowed)
 *
 * Says who the peer was when it connected.
 */
bool uc_unix_is_trusted(int fd);

#define cleanup_unix_listener cleanup_with(uc_unix_unlisten)
