/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A process that serves a union, from its beginning to its end. */

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/rpc/loop.h"
#include "union-fs/session.h"
#include "union-fs/target.h"
#include "union-fs/ufs.h"

/** enum ufs_exit - what the three command lines exit with */
enum ufs_exit {
	UFS_EXIT_OK,
	UFS_EXIT_FAILED,
	UFS_EXIT_USAGE,
};

/** struct ufs_daemon - the process */
struct ufs_daemon {
	struct uc_loop *loop;
	struct ufs *fs;
	struct ufs_session *session;
	struct ufs_target target;
	struct uc_source signals, end;
	int ready_fd; /* tells the process that was started that all is well; -1: it is this one */
	int log_fd;   /* where stderr goes then; -1: it stays where it is */
	bool foreground;
	bool stopping; /* asked to end, or unmounted: the last user ends it */
	bool dead;     /* the session has ended, and the union is still mounted */
};

/**
 * ufs_daemon_init() - Become a process that serves
 * @foreground:	Stay the process that was started; else it waits, and exits when this one is ready
 * or fails
 *
 * Raises limits, blocks the signals that ufs_daemon_run() takes, makes the event loop.
 * To be called before there are threads.
 *
 * Return: 0 or a negative errno
 */
int ufs_daemon_init(struct ufs_daemon *d, bool foreground, struct uc_err *err);

/** ufs_daemon_mount() - Serve d->fs, and attach it to d->target; 0 or a negative errno */
int ufs_daemon_mount(struct ufs_daemon *d, const char *source, const struct uc_mount_opts *opts,
		     struct uc_err *err);

/** ufs_daemon_ready() - All is well: the started process may exit; 0, or -EPIPE: it has gone, so
 * nobody wants us */
int ufs_daemon_ready(struct ufs_daemon *d, struct uc_err *err);

/**
 * ufs_daemon_unmount() - Take the union from its mount point
 * @lazily:	Also if it is in use: it is served until the last user has gone
 *
 * Return: 0; -EBUSY; another negative errno.  Not being mounted any more is no error
 */
int ufs_daemon_unmount(struct ufs_daemon *d, bool lazily, struct uc_err *err);

/** ufs_daemon_run() - Serve until the session ends: 0; -ECONNABORTED (the union is still mounted, and
 * dead: ufs_daemon_release() detaches it); another negative errno */
int ufs_daemon_run(struct ufs_daemon *d, struct uc_err *err);

/** ufs_daemon_release() - Unmount what is still mounted, and release the union and its branches */
void ufs_daemon_release(struct ufs_daemon *d);

/** ufs_daemon_done() - Release all; after ufs_daemon_init(), also if that failed */
void ufs_daemon_done(struct ufs_daemon *d);

/** ufs_fail() - Say on stderr, in one line, why the program fails; the exit status: UFS_EXIT_FAILED
 */
int ufs_fail(const struct uc_err *err);

/** ufs_usage_error() - The same for a wrong command line: UFS_EXIT_USAGE */
int ufs_usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
