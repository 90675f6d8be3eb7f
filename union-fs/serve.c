/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * The volume server of one directory, DIR: it holds the branches of one volume, mounts
 * the union at DIR/merged and answers on DIR/ctl.sock.
 *
 * While it lives it holds uc_ctl_claim()'s lock.
 */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/base/version.h"
#include "lib/os/clock.h"
#include "lib/os/fd.h"
#include "lib/os/mount.h"
#include "lib/os/notify.h"
#include "lib/os/statfs.h"
#include "lib/vol/ctl.h"
#include "lib/vol/spec.h"
#include "union-fs/branch.h"
#include "union-fs/cmd.h"
#include "union-fs/ctl.h"
#include "union-fs/daemon.h"
#include "union-fs/rename.h"

enum {
	SPEC_MAX = 8 * 1024 * 1024, /* 1024 branches with the longest paths */
	CACHE_MS = 3600 * 1000,     /* nobody else changes the branches */
	STATUS_MS = 1000,           /* how long one branch may take to tell its space */
	STATUS_TOTAL_MS = 3000,     /* and all of them together */
};

static const char help[] =
	"usage: union-fs serve --dir=DIR [--spec=FILE|-] [--foreground] [--log-file=FILE]\n"
	"                      [--log-format=text|json] [--passthrough=auto|on|off] [--threads=N] "
	"[-v]\n"
	"\n"
	"Serves one volume: mounts its branches and their union, at DIR/merged, and answers on\n"
	"DIR/ctl.sock.  FILE (default -, standard input) describes the volume in JSON.\n"
	"Returns when the union is mounted, unless --foreground is given.  See union-fs(8).\n";

/** struct serve - the server of a volume */
struct serve {
	const char *dir, *spec_file, *log_file;
	bool foreground;
	struct ufs_config cfg;
	struct uc_union_spec spec;
	struct uc_mount_opts opts; /* of the branches' mounts */
	int dir_fd, lock_fd;
	struct ufs_ctl *ctl;
	struct ufs_daemon d;
};

/* --- command line --- */

static int take_number(const char *text, unsigned max, unsigned *ret)
{
	uint64_t n;

	if (uc_str_parse_u64(text, max, &n) < 0)
		return -EINVAL;
	*ret = (unsigned)n;
	return 0;
}

static int take_passthrough(const char *text, enum ufs_passthrough *ret)
{
	static const char *const values[] = { "auto", "on", "off" };

	for (int i = 0; i < 3; i++)
		if (strcmp(text, values[i]) == 0) {
			*ret = (enum ufs_passthrough)i;
			return 0;
		}
	return -EINVAL;
}

static int take_format(const char *text, enum uc_log_format *ret)
{
	if (strcmp(text, "text") != 0 && strcmp(text, "json") != 0)
		return -EINVAL;
	*ret = *text == 't' ? UC_LOG_TEXT : UC_LOG_JSON;
	return 0;
}

/* -1: go on; else an exit status. */
static int parse_args(struct serve *s, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "dir", required_argument, NULL, 'd' },
		{ "foreground", no_argument, NULL, 'f' },
		{ "help", no_argument, NULL, 'h' },
		{ "log-file", required_argument, NULL, 'l' },
		{ "log-format", required_argument, NULL, 'F' },
		{ "passthrough", required_argument, NULL, 'p' },
		{ "spec", required_argument, NULL, 's' },
		{ "threads", required_argument, NULL, 't' },
		{ NULL, 0, NULL, 0 },
	};
	enum uc_log_format format = UC_LOG_TEXT;
	enum uc_log_level level = UC_LOG_INFO;
	int c, r = 0;

	while (r == 0 && (c = getopt_long(argc, argv, "hv", longs, NULL)) >= 0) {
		switch (c) {
		case 'd':
			s->dir = optarg;
			break;
		case 'f':
			s->foreground = true;
			break;
		case 'h':
			fputs(help, stdout);
			return UFS_EXIT_OK;
		case 'l':
			s->log_file = optarg;
			break;
		case 'F':
			r = take_format(optarg, &format);
			break;
		case 'p':
			r = take_passthrough(optarg, &s->cfg.passthrough);
			break;
		case 's':
			s->spec_file = optarg;
			break;
		case 't':
			r = take_number(optarg, UFS_THREADS_MAX, &s->cfg.threads);
			break;
		case 'v':
			level = UC_LOG_DEBUG;
			break;
		default:
			return ufs_usage_error("see above");
		}
	}
	if (r < 0)
		return ufs_usage_error("value `%s` is not possible", UC_PRINTABLE(optarg));
	if (optind < argc)
		return ufs_usage_error("argument `%s` is not known", UC_PRINTABLE(argv[optind]));
	if (!s->dir)
		return ufs_usage_error("--dir is needed");
	uc_log_init(level, format);
	return -1;
}

static int read_spec(struct serve *s, struct uc_err *err)
{
	cleanup_buf struct uc_buf text = UC_BUF_INIT;
	cleanup_json json_t *o = NULL;
	int r;

	if (strcmp(s->spec_file, "-") == 0)
		r = uc_read_fd(STDIN_FILENO, SPEC_MAX, &text);
	else
		r = uc_read_file_at(AT_FDCWD, s->spec_file, SPEC_MAX, &text);
	if (r < 0)
		return uc_fail(err, -r, "read the volume's description (%s)",
			       UC_PRINTABLE(s->spec_file));
	r = uc_json_parse(uc_buf_str(&text), text.len, &o, err);
	if (r == 0)
		r = uc_union_spec_from_json(o, &s->spec, err);
	if (r == 0)
		r = uc_mount_opts_parse(s->spec.mount_flags, &s->opts, err);
	if (r < 0)
		return uc_wrap(err, r, "the volume's description");
	s->spec.read_only = s->spec.read_only || s->opts.attr_set & UC_MOUNT_RDONLY;
	s->cfg.read_only = s->spec.read_only;
	s->cfg.policy = s->spec.policy;
	return 0;
}

/* --- the volume's directory --- */

static int take_lock(struct serve *s, struct uc_err *err)
{
	if (mkdirat(s->dir_fd, UC_CTL_MERGED, 0700) < 0 && errno != EEXIST)
		return uc_fail(err, errno, "make `%s`", UC_CTL_MERGED);
	return uc_ctl_claim(s->dir_fd, &s->lock_fd, err);
}

static int open_dir(struct serve *s, struct uc_err *err)
{
	struct ufs_target *t = &s->d.target;
	int r;

	s->dir_fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->dir_fd < 0)
		return uc_fail(err, errno, "open it");
	t->parent_fd = fcntl(s->dir_fd, F_DUPFD_CLOEXEC, 0);
	t->name = strdup(UC_CTL_MERGED);
	if (t->parent_fd < 0 || !t->name || asprintf(&t->path, "%s/%s", s->dir, UC_CTL_MERGED) < 0)
		return uc_fail(err, ENOMEM, "open it");
	r = take_lock(s, err);
	return r < 0 ? r : ufs_target_clear(t, s->spec.volume_id, err);
}

static int open_log(struct serve *s, struct uc_err *err)
{
	if (!s->log_file)
		return 0;
	s->d.log_fd =
		open(s->log_file, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	return s->d.log_fd < 0
		       ? uc_fail(err, errno, "open log file `%s`", UC_PRINTABLE(s->log_file))
		       : 0;
}

/* --- the control socket --- */

static json_t *branch_status(const struct ufs_branch *b, unsigned index, uint64_t end_ms)
{
	uint64_t now = uc_now_ms(), left = end_ms > now ? end_ms - now : 1;
	json_t *o = json_pack("{s:i, s:s}", "index", (int)index, "source", b->name);
	struct uc_err err = { 0 };
	struct uc_statfs st;

	if (!o)
		return NULL;
	if (uc_statfs_bounded(b->root_fd, left < STATUS_MS ? left : STATUS_MS, &st, &err) < 0) {
		json_object_set_new(o, "error", json_string(err.msg));
		return o;
	}
	json_object_set_new(o, "total", json_integer((json_int_t)st.total));
	json_object_set_new(o, "available", json_integer((json_int_t)st.available));
	return o;
}

static json_t *status(void *data)
{
	const struct serve *s = data;
	const struct ufs *fs = s->d.fs;
	uint64_t end_ms = uc_now_ms() + STATUS_TOTAL_MS;
	cleanup_json json_t *branches = json_array();
	char dev[32];

	for (unsigned i = 0; branches && i < fs->n_branches; i++)
		if (json_array_append_new(branches, branch_status(&fs->branch[i], i, end_ms)) < 0)
			return NULL;
	if (!branches)
		return NULL;
	snprintf(dev, sizeof(dev), "%u:%u", major(fs->dev), minor(fs->dev));
	return json_pack("{s:s, s:i, s:s, s:s, s:s, s:b, s:s, s:O}", "volumeId", s->spec.volume_id,
			 "pid", (int)getpid(), "version", uc_version, "state",
			 s->d.stopping ? "stopping" : "ready", "mountDev", dev, "passthrough",
			 (int)__atomic_load_n(&fs->passthrough, __ATOMIC_RELAXED), "policy",
			 uc_policy_to_str(s->spec.policy), "branches", branches);
}

static int stop(void *data, struct uc_err *err)
{
	struct serve *s = data;
	int n;

	if (s->d.stopping)
		return 0;
	n = ufs_target_count(s->d.fs->dev, err);
	if (n < 0)
		return n;
	if (n > 1)
		return uc_fail_as(err, EBUSY, 0, "the union is mounted at %d places", n);
	return ufs_daemon_unmount(&s->d, false, err);
}

/* --- from the beginning to the end --- */

/* Files that were open when the last server died are written past us. */
static void share(struct serve *s, unsigned branch)
{
	log_warn("branch %u is in use by who has files of a union before this one open: the kernel "
		 "keeps no attributes",
		 branch);
	s->cfg.exclusive = false;
	s->cfg.attr_ms = 0;
}

static int open_branches(struct serve *s, struct uc_err *err)
{
	unsigned n = (unsigned)s->spec.n_branches;
	struct ufs_branch *b = calloc(n, sizeof(*b));
	int r = 0;

	if (!b)
		return uc_fail(err, ENOMEM, "open the branches");
	for (unsigned i = 0; i < n; i++)
		b[i] = (struct ufs_branch)UFS_BRANCH_NONE;
	for (unsigned i = 0; i < n && r == 0; i++)
		r = ufs_branch_open_spec(&s->spec, i, &s->opts, &b[i], err);
	if (r == 0)
		r = ufs_branches_check(b, n, err);
	for (unsigned i = 0; i < n && r == 0; i++)
		if (b[i].shared)
			share(s, i);
	if (r < 0) {
		ufs_branches_free(b, n);
		return r;
	}
	r = ufs_new(&s->cfg, b, n, &s->d.fs, err);
	return r < 0 ? r : ufs_rename_recover(s->d.fs, err);
}

static int set_up(struct serve *s, const struct ufs_ctl_ops *ops, struct uc_err *err)
{
	const struct uc_mount_opts union_opts = {
		.attr_set = s->opts.attr_set,
		.attr_clr = s->opts.attr_clr,
	};
	int r;

	r = open_dir(s, err);
	if (r == 0)
		r = open_log(s, err);
	if (r == 0)
		r = open_branches(s, err);
	if (r == 0)
		r = ufs_daemon_mount(&s->d, s->spec.volume_id, &union_opts, err);
	if (r == 0)
		r = ufs_ctl_open(s->d.loop, ops, s->dir_fd, &s->ctl, err);
	if (r == 0)
		r = ufs_daemon_ready(&s->d, err);
	return r < 0 ? uc_wrap(err, r, "serve volume `%s` in `%s`", UC_PRINTABLE(s->spec.volume_id),
			       UC_PRINTABLE(s->dir))
		     : 0;
}

/* Whoever runs out of memory on this machine, it should not be what holds a volume. */
static void spare_from_oom(void)
{
	if (uc_write_file_at(AT_FDCWD, "/proc/self/oom_score_adj", "-999") < 0)
		log_debug("protect the process from lack of memory: not allowed");
}

static int serve(struct serve *s)
{
	const struct ufs_ctl_ops ops = { .status = status, .stop = stop, .data = s };
	struct uc_err err = { 0 };
	int r;

	r = ufs_daemon_init(&s->d, s->foreground, &err);
	if (r == 0) {
		spare_from_oom();
		r = set_up(s, &ops, &err);
	}
	if (r < 0) {
		(void)ufs_fail(&err);
	} else {
		log_info("volume `%s` is mounted at `%s`", UC_PRINTABLE(s->spec.volume_id),
			 UC_PRINTABLE(s->d.target.path));
		(void)uc_notify("READY=1");
		r = ufs_daemon_run(&s->d, &err);
		if (r < 0)
			log_err("volume `%s`: %s", UC_PRINTABLE(s->spec.volume_id), err.msg);
		else
			log_info("volume `%s` is not mounted any more",
				 UC_PRINTABLE(s->spec.volume_id));
	}
	ufs_ctl_close(s->ctl);
	/* Who has asked for the end is told when the branches are free. */
	ufs_daemon_release(&s->d);
	ufs_ctl_free(s->ctl);
	ufs_daemon_done(&s->d);
	return r < 0 ? UFS_EXIT_FAILED : UFS_EXIT_OK;
}

int ufs_cmd_serve(int argc, char **argv)
{
	struct serve s = {
		.spec_file = "-",
		.cfg = {
			.exclusive = true,
			.entry_ms = CACHE_MS,
			.attr_ms = CACHE_MS,
			.negative_ms = CACHE_MS,
		},
		.dir_fd = -1,
		.lock_fd = -1,
	};
	struct uc_err err = { 0 };
	int status_code;

	status_code = parse_args(&s, argc, argv);
	if (status_code >= 0)
		return status_code;
	status_code = read_spec(&s, &err) < 0 ? ufs_fail(&err) : serve(&s);
	uc_union_spec_done(&s.spec);
	uc_mount_opts_done(&s.opts);
	uc_closep(&s.lock_fd);
	uc_closep(&s.dir_fd);
	return status_code;
}
