/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A mounted union: the connection to the kernel and the threads that serve it.
 *
 * The mount is made detached and answers before anybody sees it.  The session ends
 * when the last mount of the union and the last user of it have gone.
 */

#include <stdbool.h>
#include <stdint.h>

#include "lib/os/mount.h"
#include "union-fs/ufs.h"

struct ufs_session;

/**
 * ufs_session_start() - Mount a union, detached, and serve it
 * @fs:		Union (borrowed)
 * @source:	What the mount table shows as source
 * @opts:	Options of the mount; those of a filesystem may only be such as any superblock has
 * (sync, …)
 * @ret:	Result; release with ufs_session_free()
 * @err:	Error detail, or NULL
 *
 * Return: 0 or a negative errno
 */
int ufs_session_start(struct ufs *fs, const char *source, const struct uc_mount_opts *opts,
		      struct ufs_session **ret, struct uc_err *err);

/** ufs_session_attach() - Move the mount onto a directory (borrowed); 0 or a negative errno */
int ufs_session_attach(struct ufs_session *s, int target_fd, struct uc_err *err);

/** ufs_session_fd() - A descriptor (borrowed) that becomes readable when the session has ended */
int ufs_session_fd(const struct ufs_session *s);

/** ufs_session_has_ended() - Whether it has */
bool ufs_session_has_ended(const struct ufs_session *s);

/**
 * ufs_session_free() - Release a session that has ended, or was never attached
 * Return: 0, or -ETIMEDOUT: a thread waits for a branch that does not answer, nothing it uses may
 * be released
 */
int ufs_session_free(struct ufs_session *s);
