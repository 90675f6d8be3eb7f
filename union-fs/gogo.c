/* SPDX-License-Identifier: Apache-2.0 */

/* The command line of gogomergerfs (Union CSI's thesis, Table 4.1 and Listings 3.4 and 4.3–4.5). */

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/base/version.h"
#include "union-fs/cmd.h"
#include "union-fs/daemon.h"

static const char help[] =
	"usage: gogomergerfs mergerfs --branches=LIST --target=DIR [-o LIST] "
	"[--block[=true|false]]\n"
	"\n"
	"  --branches LIST   directories to merge, separated by commas; patterns as /branches/* "
	"are\n"
	"                    expanded here.  May be repeated\n"
	"  --target DIR      where the union is mounted\n"
	"  -o, --options LIST  options of union-fs(8), separated by commas.  May be repeated\n"
	"  --block           stay in the foreground; on SIGINT or SIGTERM unmount, and exit.  A "
	"second\n"
	"                    signal exits at once, with 1.  Default false: exit when it is "
	"mounted\n"
	"  -h, --help        this text\n"
	"  --version         what this is\n";

/** struct gogo - the command line */
struct gogo {
	struct ufs_branch_args branches;
	struct ufs_options options;
	char **lists;
	const char *target;
	bool block;
};

static void gogo_done(struct gogo *g)
{
	ufs_branch_args_done(&g->branches);
	ufs_options_done(&g->options);
	uc_strv_free(g->lists);
}

/* What Go's strconv.ParseBool() takes. */
static int parse_bool(const char *s, bool *ret)
{
	static const char *const yes[] = { "1", "t", "T", "TRUE", "true", "True" };
	static const char *const no[] = { "0", "f", "F", "FALSE", "false", "False" };

	for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
		if (strcmp(s, yes[i]) != 0 && strcmp(s, no[i]) != 0)
			continue;
		*ret = strcmp(s, yes[i]) == 0;
		return 0;
	}
	return -1;
}

static int add_branches(struct gogo *g, const char *list, struct uc_err *err)
{
	cleanup_strv char **elements = NULL;
	int r = 0;

	if (uc_str_split(list, ',', &elements) < 0)
		return uc_fail(err, ENOMEM, "read the branches");
	for (char **e = elements; *e && r == 0; e++)
		r = ufs_branch_args_add(&g->branches, *e, err);
	return r;
}

/* One option; 0, 1 (the program has said what it was asked, and may exit), or -1: *err says why. */
static int take(struct gogo *g, int c, struct uc_err *err)
{
	switch (c) {
	case 'B':
		return add_branches(g, optarg, err) < 0 ? -1 : 0;
	case 't':
		g->target = optarg;
		return 0;
	case 'o':
		return uc_strv_push(&g->lists, optarg) < 0 ? uc_fail(err, ENOMEM, "read options")
							   : 0;
	case 'b':
		g->block = true;
		if (optarg && parse_bool(optarg, &g->block) < 0)
			return uc_fail_as(err, EINVAL, 0, "--block=%s is neither true nor false",
					  UC_PRINTABLE(optarg));
		return 0;
	case 'h':
		fputs(help, stdout);
		return 1;
	case 'V':
		printf("gogomergerfs (union-fs) %s\n", uc_version);
		return 1;
	default:
		return uc_fail_as(err, EINVAL, 0, "see above");
	}
}

static int run(struct gogo *g, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "branches", required_argument, NULL, 'B' },
		{ "target", required_argument, NULL, 't' },
		{ "options", required_argument, NULL, 'o' },
		{ "block", optional_argument, NULL, 'b' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	struct ufs_mount_args args = { .branches = &g->branches, .options = &g->options };
	struct uc_err err = { 0 };
	int c;

	ufs_options_init(&g->options);
	while ((c = getopt_long(argc, argv, "ho:", longs, NULL)) >= 0) {
		int r = take(g, c, &err);

		if (r != 0)
			return r > 0 ? UFS_EXIT_OK : ufs_usage_error("%s", err.msg);
	}
	if (optind < argc)
		return ufs_usage_error("argument `%s` is not known", UC_PRINTABLE(argv[optind]));
	if (!g->branches.n)
		return ufs_usage_error("--branches is needed");
	if (uc_str_is_empty(g->target))
		return ufs_usage_error("--target is needed");
	if (ufs_options_parse(g->lists, &g->options, &err) < 0)
		return ufs_usage_error("%s", err.msg);
	args.target = g->target;
	args.foreground = args.announce = g->block;
	return ufs_mount_and_serve(&args);
}

int ufs_cmd_gogo(int argc, char **argv)
{
	struct gogo g = { .block = false };
	int r;

	if (argc >= 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) {
		fputs(help, stdout);
		return UFS_EXIT_OK;
	}
	if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
		printf("gogomergerfs (union-fs) %s\n", uc_version);
		return UFS_EXIT_OK;
	}
	if (argc < 2 || strcmp(argv[1], "mergerfs") != 0)
		return ufs_usage_error("the command is needed, which is `mergerfs`");
	argv[1] = argv[0];
	r = run(&g, argc - 1, argv + 1);
	gogo_done(&g);
	return r;
}
