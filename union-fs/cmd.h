/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The command lines.  Each returns what the process exits with. */

#include "union-fs/options.h"

/** ufs_cmd_mount() - union-fs [-o options] branches target */
int ufs_cmd_mount(int argc, char **argv);

/** ufs_cmd_serve() - union-fs serve --dir=DIR …; argv[0] is "serve" */
int ufs_cmd_serve(int argc, char **argv);

/** ufs_cmd_status() - union-fs status DIR; argv[0] is "status" */
int ufs_cmd_status(int argc, char **argv);

/** ufs_cmd_where() - union-fs where FILE…; argv[0] is "where" */
int ufs_cmd_where(int argc, char **argv);

/** ufs_cmd_gogo() - gogomergerfs mergerfs --branches=… --target=… */
int ufs_cmd_gogo(int argc, char **argv);

/** struct ufs_mount_args - what ufs_mount_and_serve() is to do */
struct ufs_mount_args {
	const struct ufs_branch_args *branches;
	const struct ufs_options *options;
	const char *target;
	bool foreground;
	bool announce; /* log what is mounted where, as gogomergerfs does */
};

/** ufs_mount_and_serve() - Mount a union of plain directories and serve it to its end; an exit
 * status */
int ufs_mount_and_serve(const struct ufs_mount_args *args);
