/* SPDX-License-Identifier: Apache-2.0 */

/* The command line of mergerfs. */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/buf.h"
#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/base/version.h"
#include "lib/os/notify.h"
#include "union-fs/branch.h"
#include "union-fs/cmd.h"
#include "union-fs/daemon.h"
#include "union-fs/options.h"

enum {
	SOURCE_MAX = 200, /* bytes of the branches' names that the mount table shows; the kernel
			     takes 255 */
};

static const char help[] =
	"usage: union-fs [-o options] [-f] [-v] branch[:branch…] target\n"
	"       union-fs serve --dir=DIR [--spec=FILE|-] …\n"
	"       union-fs status [-o text|json] DIR\n"
	"       union-fs where FILE…\n"
	"       gogomergerfs mergerfs --branches=LIST --target=DIR …\n"
	"\n"
	"Merges directories (the branches) into one tree, mounted at target.\n"
	"\n"
	"  branch        a directory, or a pattern of some; with =RO (nothing on it is changed) "
	"or\n"
	"                =NC (nothing new is created on it), and ,SIZE for its minfreespace\n"
	"  -o options    a list with commas; may be repeated:\n"
	"      category.create=, func.create=, policy=   mfs (default) or epmfs: where new files "
	"go\n"
	"      minfreespace=SIZE        branches with less get no new files (default 0)\n"
	"      fsname=NAME              source in the mount table\n"
	"      cache.entry=, cache.attr=, cache.negative_entry=   seconds (default 1, 1, 0)\n"
	"      passthrough=auto|on|off  let the kernel read and write by itself (Linux 6.9)\n"
	"      threads=N                threads to begin with (0: as fits the machine)\n"
	"      ro, nosuid, nodev, noexec, noatime, sync, …   as for any mount\n"
	"  -f            stay in the foreground\n"
	"  -v            log every request (with -f)\n"
	"  -h, --help    this text\n"
	"  -V, --version what this is\n"
	"\n"
	"See union-fs(8).\n";

static char *make_source(const struct ufs_mount_args *args)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	const char *fsname = args->options->fsname;
	size_t n;

	for (unsigned i = 0; !fsname && i < args->branches->n; i++)
		uc_buf_printf(&b, "%s%s", i ? ":" : "", args->branches->arg[i].path);
	if (fsname)
		uc_buf_puts(&b, fsname);
	if (uc_buf_error(&b) < 0 || b.len <= SOURCE_MAX)
		return uc_buf_take(&b);
	n = uc_str_utf8_cut(uc_buf_str(&b), b.len, SOURCE_MAX);
	return strndup(uc_buf_str(&b), n);
}

/* All that can fail before the process may say that it is ready. */
static int set_up(struct ufs_daemon *d, const struct ufs_mount_args *args, struct uc_err *err)
{
	cleanup_free char *source = make_source(args);
	struct ufs_branch *branches = NULL;
	int r;

	if (!source)
		return uc_fail(err, ENOMEM, "mount");
	r = ufs_target_open(args->target, &d->target, err);
	if (r == 0)
		r = ufs_target_clear(&d->target, NULL, err);
	if (r == 0)
		r = ufs_branch_args_open(args->branches, args->options, &branches, err);
	if (r == 0)
		r = ufs_new(&args->options->cfg, branches, args->branches->n, &d->fs, err);
	if (r == 0)
		r = ufs_daemon_mount(d, source, &args->options->mount, err);
	if (r == 0)
		r = ufs_daemon_ready(d, err);
	return r;
}

int ufs_mount_and_serve(const struct ufs_mount_args *args)
{
	struct uc_err err = { 0 };
	struct ufs_daemon d;
	int r;

	r = ufs_daemon_init(&d, args->foreground, &err);
	if (r == 0)
		r = set_up(&d, args, &err);
	if (r < 0) {
		(void)ufs_fail(&err);
		ufs_daemon_done(&d);
		return UFS_EXIT_FAILED;
	}
	if (args->announce)
		log_info("merged %u branches at `%s`", args->branches->n,
			 UC_PRINTABLE(d.target.path));
	(void)uc_notify("READY=1");
	r = ufs_daemon_run(&d, &err);
	if (r < 0)
		log_err("%s", err.msg);
	else if (args->announce)
		log_info("unmerged `%s`", UC_PRINTABLE(d.target.path));
	ufs_daemon_done(&d);
	return r < 0 ? UFS_EXIT_FAILED : UFS_EXIT_OK;
}

int ufs_cmd_mount(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' },
					       { "version", no_argument, NULL, 'V' },
					       { NULL, 0, NULL, 0 } };
	cleanup_branch_args struct ufs_branch_args branches = { 0 };
	cleanup_options struct ufs_options options;
	cleanup_strv char **lists = NULL;
	struct ufs_mount_args args = { .branches = &branches, .options = &options };
	enum uc_log_level level = UC_LOG_INFO;
	struct uc_err err = { 0 };
	int c;

	ufs_options_init(&options);
	while ((c = getopt_long(argc, argv, "fho:vV", longs, NULL)) >= 0) {
		switch (c) {
		case 'f':
			args.foreground = true;
			break;
		case 'h':
			fputs(help, stdout);
			return UFS_EXIT_OK;
		case 'o':
			if (uc_strv_push(&lists, optarg) < 0)
				return ufs_usage_error("out of memory");
			break;
		case 'v':
			level = UC_LOG_DEBUG;
			break;
		case 'V':
			printf("union-fs %s\n", uc_version);
			return UFS_EXIT_OK;
		default:
			return ufs_usage_error("see above");
		}
	}
	if (argc - optind != 2)
		return ufs_usage_error("branches and a target are needed");
	if (ufs_options_parse(lists, &options, &err) < 0 ||
	    ufs_branch_args_parse(&branches, argv[optind], &err) < 0)
		return ufs_usage_error("%s", err.msg);
	args.target = argv[optind + 1];
	uc_log_init(level, UC_LOG_TEXT);
	return ufs_mount_and_serve(&args);
}
