/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "lib/base/macros.h"
#include "lib/base/size.h"
#include "lib/base/str.h"
#include "lib/vol/split.h"
#include "union-fs/branch.h"
#include "union-fs/options.h"

enum {
	CACHE_MS = 1000, /* as mergerfs: others may change the branches */
	SECONDS_MAX = 365 * 24 * 3600,
};

void ufs_options_init(struct ufs_options *o)
{
	*o = (struct ufs_options){
		.cfg = {
			.policy = UC_POLICY_MFS,
			.passthrough = UFS_PASSTHROUGH_AUTO,
			.entry_ms = CACHE_MS,
			.attr_ms = CACHE_MS,
		},
	};
}

void ufs_options_done(struct ufs_options *o)
{
	free(o->fsname);
	uc_mount_opts_done(&o->mount);
	*o = (struct ufs_options){ 0 };
}

int ufs_parse_size(const char *s, uint64_t *ret_bytes)
{
	static const char units[] = "KMGT";
	size_t n = strspn(s, "0123456789");
	cleanup_free char *digits = strndup(s, n);
	const char *unit = s[n] ? strchr(units, s[n] & ~0x20) : NULL;
	uint64_t v = 0;
	int shift, r;

	if (!digits)
		return -ENOMEM;
	r = uc_str_parse_u64(digits, INT64_MAX, &v);
	if (r < 0)
		return r;
	if (s[n] && (!unit || s[n + 1]))
		return -EINVAL;
	shift = unit ? 10 * (int)(unit - units + 1) : 0;
	if (v > (uint64_t)INT64_MAX >> shift)
		return -ERANGE;
	*ret_bytes = v << shift;
	return 0;
}

/* --- options --- */

static int take_policy(struct ufs_options *o, const char *value, struct uc_err *err)
{
	return uc_policy_parse(value, &o->cfg.policy, err);
}

static int take_min_free(struct ufs_options *o, const char *value, struct uc_err *err)
{
	int r = ufs_parse_size(value, &o->min_free);

	return r < 0 ? uc_fail_as(err, -r, 0, "`%s` is not a size", UC_PRINTABLE(value)) : 0;
}

static int take_fsname(struct ufs_options *o, const char *value, struct uc_err *err)
{
	free(o->fsname);
	o->fsname = strdup(value);
	return o->fsname ? 0 : uc_fail(err, ENOMEM, "fsname");
}

static int take_seconds(const char *value, uint64_t *ret_ms, struct uc_err *err)
{
	uint64_t s;
	int r = uc_str_parse_u64(value, SECONDS_MAX, &s);

	if (r < 0)
		return uc_fail_as(err, -r, 0, "`%s` is not a number of seconds",
				  UC_PRINTABLE(value));
	*ret_ms = s * 1000;
	return 0;
}

static int take_entry(struct ufs_options *o, const char *value, struct uc_err *err)
{
	return take_seconds(value, &o->cfg.entry_ms, err);
}

static int take_attr(struct ufs_options *o, const char *value, struct uc_err *err)
{
	return take_seconds(value, &o->cfg.attr_ms, err);
}

static int take_negative(struct ufs_options *o, const char *value, struct uc_err *err)
{
	return take_seconds(value, &o->cfg.negative_ms, err);
}

static int take_threads(struct ufs_options *o, const char *value, struct uc_err *err)
{
	uint64_t n;
	int r = uc_str_parse_u64(value, UFS_THREADS_MAX, &n);

	if (r < 0)
		return uc_fail_as(err, -r, 0, "`%s` is not a number of threads (0…%d)",
				  UC_PRINTABLE(value), UFS_THREADS_MAX);
	o->cfg.threads = (unsigned)n;
	return 0;
}

static int take_passthrough(struct ufs_options *o, const char *value, struct uc_err *err)
{
	static const struct {
		const char *value;
		enum ufs_passthrough passthrough;
	} values[] = {
		{ "auto", UFS_PASSTHROUGH_AUTO },
		{ "on", UFS_PASSTHROUGH_ON },
		{ "off", UFS_PASSTHROUGH_OFF },
		{ "rw", UFS_PASSTHROUGH_AUTO }, /* mergerfs' passthrough.io */
	};

	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		if (strcmp(value, values[i].value) == 0) {
			o->cfg.passthrough = values[i].passthrough;
			return 0;
		}
	return uc_fail_as(err, EINVAL, 0, "`%s` is not one of auto, on, off", UC_PRINTABLE(value));
}

static const struct {
	const char *name;
	int (*take)(struct ufs_options *o, const char *value, struct uc_err *err);
} options[] = {
	{ "attr_timeout", take_attr },       { "cache.attr", take_attr },
	{ "cache.entry", take_entry },       { "cache.negative_entry", take_negative },
	{ "category.create", take_policy },  { "entry_timeout", take_entry },
	{ "fsname", take_fsname },           { "func.create", take_policy },
	{ "minfreespace", take_min_free },   { "negative_timeout", take_negative },
	{ "passthrough", take_passthrough }, { "passthrough.io", take_passthrough },
	{ "policy", take_policy },           { "read-thread-count", take_threads },
	{ "threads", take_threads },
};

/* They change nothing in mergerfs, or say what is always so here. */
static const char *const ignored[] = {
	"allow_other", "atomic_o_trunc", "big_writes",     "default_permissions", "defaults",
	"hard_remove", "no_splice_move", "no_splice_read", "no_splice_write",     "nonempty",
	"posix_acl",   "splice_move",    "splice_read",    "splice_write",        "use_ino",
};

/* Those that any filesystem's superblock has. */
static const char *const superblock[] = { "async", "lazytime", "nolazytime" };

/* What is made of names is the branches' filesystems' to write: these would be promises. */
static const char *const of_branches[] = { "dirsync", "sync" };

static bool is_among(const char *const *names, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

/* 1: it is for the mount. */
static int take_option(struct ufs_options *o, const char *text, struct uc_err *err)
{
	const char *eq = strchr(text, '=');
	cleanup_free char *name = eq ? strndup(text, (size_t)(eq - text)) : strdup(text);

	if (!name)
		return uc_fail(err, ENOMEM, "read options");
	if (is_among(ignored, ARRAY_SIZE(ignored), text))
		return 0;
	if (is_among(of_branches, ARRAY_SIZE(of_branches), text))
		return uc_fail_as(err, EINVAL, 0,
				  "option `%s` is one for the mounts of the branches", text);
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		int r;

		if (strcmp(options[i].name, name) != 0)
			continue;
		if (!eq)
			return uc_fail_as(err, EINVAL, 0, "option `%s` needs a value", name);
		r = options[i].take(o, eq + 1, err);
		return r < 0 ? uc_wrap(err, r, "option `%s`", name) : 0;
	}
	return 1;
}

static int take_list(struct ufs_options *o, const char *list, char ***mount_flags,
		     struct uc_err *err)
{
	cleanup_strv char **elements = NULL;

	if (uc_str_split(list, ',', &elements) < 0)
		return uc_fail(err, ENOMEM, "read options");
	for (char **e = elements; *e; e++) {
		int r = **e ? take_option(o, *e, err) : 0;

		if (r > 0 && uc_strv_push(mount_flags, *e) < 0)
			return uc_fail(err, ENOMEM, "read options");
		if (r < 0)
			return r;
	}
	return 0;
}

int ufs_options_parse(char *const *lists, struct ufs_options *o, struct uc_err *err)
{
	cleanup_strv char **flags = NULL;
	struct uc_mount_opts mount = { 0 };
	int r = 0;

	for (; lists && *lists && r == 0; lists++)
		r = take_list(o, *lists, &flags, err);
	if (r == 0)
		r = uc_mount_opts_parse(flags, &mount, err);
	if (r < 0)
		return r;
	uc_mount_opts_done(&o->mount);
	o->mount = mount;
	for (char **f = mount.fs; f && *f; f++)
		if (!is_among(superblock, ARRAY_SIZE(superblock), *f))
			return uc_fail_as(err, EINVAL, 0, "option `%s` is not known",
					  UC_PRINTABLE(*f));
	o->cfg.read_only = mount.attr_set & UC_MOUNT_RDONLY;
	return 0;
}

/* --- branches --- */

void ufs_branch_args_done(struct ufs_branch_args *list)
{
	for (unsigned i = 0; i < list->n; i++)
		free(list->arg[i].path);
	free(list->arg);
	*list = (struct ufs_branch_args){ 0 };
}

static int add_branch(struct ufs_branch_args *list, const struct ufs_branch_arg *like,
		      const char *path, struct uc_err *err)
{
	struct ufs_branch_arg *grown;

	if (list->n == UC_BRANCHES_MAX)
		return uc_fail_as(err, EINVAL, 0, "there are more than %d branches",
				  UC_BRANCHES_MAX);
	grown = reallocarray(list->arg, list->n + 1, sizeof(*grown));
	if (!grown)
		return uc_fail(err, ENOMEM, "read the branches");
	list->arg = grown;
	list->arg[list->n] = *like;
	list->arg[list->n].path = strdup(path);
	if (!list->arg[list->n].path)
		return uc_fail(err, ENOMEM, "read the branches");
	list->n++;
	return 0;
}

/* Reads "RW", "RO" or "NC", perhaps with ",SIZE" behind; false: it is no such thing. */
static bool parse_mode(const char *text, struct ufs_branch_arg *arg)
{
	static const char modes[][3] = { "RW", "RO", "NC" };

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		if (strncasecmp(text, modes[i], 2) != 0)
			continue;
		arg->mode = (enum ufs_branch_mode)i;
		if (!text[2])
			return true;
		arg->has_min_free = true;
		return text[2] == ',' && ufs_parse_size(text + 3, &arg->min_free) == 0;
	}
	return false;
}

static bool is_dir(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int add_matches(struct ufs_branch_args *list, const struct ufs_branch_arg *arg, glob_t *g,
		       struct uc_err *err)
{
	unsigned before = list->n;
	int r = 0;

	r = glob(arg->path, GLOB_ONLYDIR, NULL, g);
	if (r != 0 && r != GLOB_NOMATCH)
		return uc_fail(err, r == GLOB_NOSPACE ? ENOMEM : EIO, "read pattern `%s`",
			       UC_PRINTABLE(arg->path));
	r = 0;
	for (size_t i = 0; i < g->gl_pathc && r == 0; i++)
		if (is_dir(g->gl_pathv[i]))
			r = add_branch(list, arg, g->gl_pathv[i], err);
	if (r == 0 && list->n == before)
		return uc_fail_as(err, ENOENT, 0, "no directory matches branch `%s`",
				  UC_PRINTABLE(arg->path));
	return r;
}

int ufs_branch_args_add(struct ufs_branch_args *list, const char *text, struct uc_err *err)
{
	struct ufs_branch_arg arg = { .mode = UFS_BRANCH_RW };
	cleanup_free char *path = strdup(text);
	char *eq = path ? strrchr(path, '=') : NULL;
	glob_t g = { 0 };
	int r;

	if (!path)
		return uc_fail(err, ENOMEM, "read the branches");
	if (eq && parse_mode(eq + 1, &arg))
		*eq = '\0';
	else
		arg = (struct ufs_branch_arg){ .mode = UFS_BRANCH_RW };
	if (!*path)
		return uc_fail_as(err, EINVAL, 0, "a branch is empty in the list");
	if (!strpbrk(path, "*?["))
		return add_branch(list, &arg, path, err);
	arg.path = path;
	r = add_matches(list, &arg, &g, err);
	globfree(&g);
	return r;
}

int ufs_branch_args_parse(struct ufs_branch_args *list, const char *text, struct uc_err *err)
{
	cleanup_strv char **elements = NULL;
	int n = uc_str_split(text, ':', &elements), r = 0;

	if (n < 0)
		return uc_fail(err, ENOMEM, "read the branches");
	if (n == 0)
		return uc_fail_as(err, EINVAL, 0, "there is no branch");
	for (int i = 0; i < n && r == 0; i++)
		r = ufs_branch_args_add(list, elements[i], err);
	return r;
}

int ufs_branch_args_open(const struct ufs_branch_args *list, const struct ufs_options *o,
			 struct ufs_branch **ret, struct uc_err *err)
{
	struct ufs_branch *b = calloc(list->n ? list->n : 1, sizeof(*b));
	int r = 0;

	if (!b)
		return uc_fail(err, ENOMEM, "open the branches");
	for (unsigned i = 0; i < list->n; i++)
		b[i] = (struct ufs_branch)UFS_BRANCH_NONE;
	for (unsigned i = 0; i < list->n && r == 0; i++) {
		b[i].mode = list->arg[i].mode;
		b[i].min_free = list->arg[i].has_min_free ? list->arg[i].min_free : o->min_free;
		r = ufs_branch_open_plain(list->arg[i].path, &b[i], err);
	}
	if (r == 0)
		r = ufs_branches_check(b, list->n, err);
	if (r < 0) {
		ufs_branches_free(b, list->n);
		return r;
	}
	*ret = b;
	return 0;
}
