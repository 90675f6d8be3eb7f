/* SPDX-License-Identifier: Apache-2.0 */

/* Questions to a union that is being served: union-fs status, union-fs where. */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "lib/base/buf.h"
#include "lib/base/json.h"
#include "lib/base/size.h"
#include "lib/base/str.h"
#include "lib/vol/ctl.h"
#include "union-fs/cmd.h"
#include "union-fs/daemon.h"
#include "union-fs/ops.h"

enum {
	STATUS_MS = 5000, /* the server answers in 3 s, whatever its disks do */
	BRANCHES_MAX = 64 * 1024,
};

static const char status_help[] =
	"usage: union-fs status [-o text|json] DIR\n"
	"\n"
	"Shows the volume whose server has its socket, ctl.sock, in DIR.  See union-fs(8).\n";

static const char where_help[] = "usage: union-fs where FILE…\n"
				 "\n"
				 "Shows which branch of its union each file is on; of a directory, "
				 "all branches that have it.\n"
				 "See union-fs(8).\n";

/* --- status --- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static const char *size_of(const json_t *o, const char *key, char to[static UC_SIZE_TEXT_MAX])
{
	json_int_t n = json_integer_value(json_object_get(o, key));

	return uc_size_format(n > 0 ? (uint64_t)n : 0, to);
}

static void add_branch(struct uc_buf *text, const json_t *o)
{
	char total[UC_SIZE_TEXT_MAX], available[UC_SIZE_TEXT_MAX];

	uc_buf_printf(text, "%-6lld  ", json_integer_value(json_object_get(o, "index")));
	if (json_object_get(o, "error"))
		uc_buf_printf(text, "%12s  %12s  %s: %s\n", "?", "?",
			      UC_PRINTABLE(text_of(o, "source")),
			      UC_PRINTABLE(text_of(o, "error")));
	else
		uc_buf_printf(text, "%12s  %12s  %s\n", size_of(o, "total", total),
			      size_of(o, "available", available),
			      UC_PRINTABLE(text_of(o, "source")));
}

static void add_status(struct uc_buf *text, const json_t *o)
{
	const json_t *branches = json_object_get(o, "branches");

	uc_buf_printf(text, "volume       %s\n", UC_PRINTABLE(text_of(o, "volumeId")));
	uc_buf_printf(text, "state        %s\n", UC_PRINTABLE(text_of(o, "state")));
	uc_buf_printf(text, "process      %lld (union-fs %s)\n",
		      json_integer_value(json_object_get(o, "pid")),
		      UC_PRINTABLE(text_of(o, "version")));
	uc_buf_printf(text, "policy       %s\n", UC_PRINTABLE(text_of(o, "policy")));
	uc_buf_printf(text, "passthrough  %s\n",
		      json_is_true(json_object_get(o, "passthrough")) ? "yes" : "no");
	uc_buf_printf(text, "\n%-6s  %12s  %12s  %s\n", "BRANCH", "TOTAL", "AVAILABLE", "SOURCE");
	for (size_t i = 0; i < json_array_size(branches); i++)
		add_branch(text, json_array_get(branches, i));
}

/* Writes what @text holds; an exit status. */
static int put(struct uc_buf *text)
{
	if (uc_buf_error(text) < 0 || fputs(uc_buf_str(text), stdout) < 0 || fflush(stdout) < 0) {
		fprintf(stderr, "union-fs: write the answer: %m\n");
		return UFS_EXIT_FAILED;
	}
	return UFS_EXIT_OK;
}

static int show_status(const char *dir, bool json)
{
	cleanup_buf struct uc_buf text = UC_BUF_INIT;
	cleanup_json json_t *reply = NULL;
	cleanup_free char *dump = NULL;
	struct uc_err err = { 0 };
	int r;

	r = uc_ctl_call(dir, "status", STATUS_MS, &reply, &err);
	if (r < 0) {
		(void)uc_wrap(&err, r, "ask for the status of `%s`", UC_PRINTABLE(dir));
		return ufs_fail(&err);
	}
	if (json) {
		(void)json_object_del(reply, "ok");
		dump = json_dumps(reply, JSON_INDENT(2));
		uc_buf_printf(&text, "%s\n", dump ? dump : "");
	} else {
		add_status(&text, reply);
	}
	return put(&text);
}

int ufs_cmd_status(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' },
					       { "output", required_argument, NULL, 'o' },
					       { NULL, 0, NULL, 0 } };
	bool json = false;
	int c;

	while ((c = getopt_long(argc, argv, "ho:", longs, NULL)) >= 0) {
		switch (c) {
		case 'h':
			fputs(status_help, stdout);
			return UFS_EXIT_OK;
		case 'o':
			json = strcmp(optarg, "json") == 0;
			if (!json && strcmp(optarg, "text") != 0)
				return ufs_usage_error("-o is text or json, not `%s`",
						       UC_PRINTABLE(optarg));
			break;
		default:
			return ufs_usage_error("see above");
		}
	}
	if (argc - optind != 1)
		return ufs_usage_error("one directory is needed");
	return show_status(argv[optind], json);
}

/* --- where --- */

static int show_where(const char *path)
{
	cleanup_free char *value = malloc(BRANCHES_MAX);
	struct uc_err err = { 0 };
	ssize_t n = -1;

	if (value)
		n = getxattr(path, UFS_XATTR_BRANCHES, value, BRANCHES_MAX - 1);
	if (n < 0 && (errno == ENODATA || errno == EOPNOTSUPP))
		(void)uc_fail_as(&err, EINVAL, 0, "`%s` is not in a union", UC_PRINTABLE(path));
	else if (n < 0)
		(void)uc_fail(&err, errno, "ask where `%s` is", UC_PRINTABLE(path));
	if (n < 0)
		return ufs_fail(&err);
	value[n] = '\0';
	for (char *save = NULL, *line = strtok_r(value, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		printf("%s  %s\n", UC_PRINTABLE(line), UC_PRINTABLE(path));
	return fflush(stdout) < 0 ? UFS_EXIT_FAILED : UFS_EXIT_OK;
}

int ufs_cmd_where(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' },
					       { NULL, 0, NULL, 0 } };
	int c, status = UFS_EXIT_OK;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) >= 0) {
		if (c != 'h')
			return ufs_usage_error("see above");
		fputs(where_help, stdout);
		return UFS_EXIT_OK;
	}
	if (optind == argc)
		return ufs_usage_error("a file is needed");
	for (int i = optind; i < argc; i++)
		if (show_where(argv[i]) != UFS_EXIT_OK)
			status = UFS_EXIT_FAILED;
	return status;
}
