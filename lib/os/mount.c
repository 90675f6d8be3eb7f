/* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libmount/libmount.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/os/fd.h"
#include "lib/os/mount.h"

static_assert(UC_MOUNT_RDONLY == MOUNT_ATTR_RDONLY && UC_MOUNT_NOSUID == MOUNT_ATTR_NOSUID &&
		      UC_MOUNT_NODEV == MOUNT_ATTR_NODEV && UC_MOUNT_NOEXEC == MOUNT_ATTR_NOEXEC,
	      "enum uc_mount_attr has the kernel's values");

/* Options of a mount.  Those of atime are a field of three bits, not flags. */
static const struct {
	const char *name;
	uint64_t set, clr;
} attrs[] = {
	{ "ro", MOUNT_ATTR_RDONLY, 0 },
	{ "rw", 0, MOUNT_ATTR_RDONLY },
	{ "nosuid", MOUNT_ATTR_NOSUID, 0 },
	{ "suid", 0, MOUNT_ATTR_NOSUID },
	{ "nodev", MOUNT_ATTR_NODEV, 0 },
	{ "dev", 0, MOUNT_ATTR_NODEV },
	{ "noexec", MOUNT_ATTR_NOEXEC, 0 },
	{ "exec", 0, MOUNT_ATTR_NOEXEC },
	{ "noatime", MOUNT_ATTR_NOATIME, MOUNT_ATTR__ATIME },
	{ "relatime", MOUNT_ATTR_RELATIME, MOUNT_ATTR__ATIME },
	{ "atime", MOUNT_ATTR_RELATIME, MOUNT_ATTR__ATIME },
	{ "strictatime", MOUNT_ATTR_STRICTATIME, MOUNT_ATTR__ATIME },
	{ "nodiratime", MOUNT_ATTR_NODIRATIME, 0 },
	{ "diratime", 0, MOUNT_ATTR_NODIRATIME },
	{ "nosymfollow", MOUNT_ATTR_NOSYMFOLLOW, 0 },
	{ "symfollow", 0, MOUNT_ATTR_NOSYMFOLLOW },
	{ "defaults", 0, 0 },
};

/* Flags that every superblock understands and fsconfig() takes by name. */
static const char *const sb_flags[] = { "sync", "async", "dirsync", "lazytime", "nolazytime" };

/* Whether one of libmount's tables has it, also as what takes a flag away ("nouser"). */
static bool is_in_map(const char *name, int map)
{
	const struct libmnt_optmap *m = mnt_get_builtin_optmap(map);
	unsigned long none = 0, all = ULONG_MAX;

	mnt_optstr_get_flags(name, &none, m);
	mnt_optstr_get_flags(name, &all, m);
	return none != 0 || all != ULONG_MAX;
}

static bool is_sb_flag(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(sb_flags); i++)
		if (strcmp(sb_flags[i], name) == 0)
			return true;
	return false;
}

/* A value may be quoted, for its commas: kubelet's context="…". */
static char *unquote(const char *value)
{
	size_t n = strlen(value);

	return n >= 2 && value[0] == '"' && value[n - 1] == '"' ? strndup(value + 1, n - 2)
								: strdup(value);
}

/* Options of ext4, xfs and btrfs that would stop the machine, or use another device of it. */
static const struct {
	const char *name, *value; /* NULL: any */
} forbidden[] = {
	{ "errors", "panic" },    { "fatal_errors", "panic" }, { "journal_dev", NULL },
	{ "journal_path", NULL }, { "logdev", NULL },          { "rtdev", NULL },
	{ "device", NULL },
};

/* Positive: it is; or -ENOMEM. */
static int is_forbidden(const char *name, const char *whole)
{
	const char *eq = strchr(whole, '=');
	cleanup_free char *value = unquote(eq ? eq + 1 : "");

	if (!value)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(forbidden); i++)
		if (strcmp(forbidden[i].name, name) == 0 &&
		    (!forbidden[i].value || strcmp(forbidden[i].value, value) == 0))
			return 1;
	return 0;
}

static int take_option(struct uc_mount_opts *opts, const char *name, const char *whole,
		       struct uc_err *err)
{
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(attrs); i++) {
		if (strcmp(attrs[i].name, name) != 0 || strcmp(name, whole) != 0)
			continue;
		opts->attr_set = (opts->attr_set & ~attrs[i].clr) | attrs[i].set;
		opts->attr_clr = (opts->attr_clr & ~attrs[i].set) | attrs[i].clr;
		return 0;
	}
	r = is_forbidden(name, whole);
	if (r < 0)
		return uc_fail(err, ENOMEM, "mount option `%s`", UC_PRINTABLE(whole));
	if (r > 0 || is_in_map(name, MNT_USERSPACE_MAP) || strcmp(name, "move") == 0 ||
	    (is_in_map(name, MNT_LINUX_MAP) && !is_sb_flag(name)))
		return uc_fail_as(err, EINVAL, 0, "mount option `%s` is not allowed",
				  UC_PRINTABLE(whole));
	if (uc_strv_push(&opts->fs, whole) < 0)
		return uc_fail(err, ENOMEM, "mount option `%s`", UC_PRINTABLE(whole));
	return 0;
}

static int take_options(struct uc_mount_opts *opts, const char *list, struct uc_err *err)
{
	char *p = (char *)(uintptr_t)list, *name, *value;
	size_t name_len, value_len;
	int r;

	while ((r = mnt_optstr_next_option(&p, &name, &name_len, &value, &value_len)) == 0) {
		cleanup_free char *key = strndup(name, name_len);
		cleanup_free char *whole = NULL;

		if (value)
			whole = strndup(name, (size_t)(value + value_len - name));
		else
			whole = strndup(name, name_len);
		if (!key || !whole)
			return uc_fail(err, ENOMEM, "mount options");
		if (*key == '=') { /* it has no name */
			r = -EINVAL;
			break;
		}
		r = take_option(opts, key, whole, err);
		if (r < 0)
			return r;
	}
	/* A quote that is not closed is an end for libmount. */
	if (r < 0 || p[strspn(p, ",")])
		return uc_fail_as(err, EINVAL, 0, "mount options `%s` are malformed",
				  UC_PRINTABLE(list));
	return 0;
}

int uc_mount_opts_parse(char *const *flags, struct uc_mount_opts *ret_opts, struct uc_err *err)
{
	struct uc_mount_opts opts = { 0 };

	for (; flags && *flags; flags++) {
		int r = take_options(&opts, *flags, err);

		if (r < 0) {
			uc_mount_opts_done(&opts);
			return r;
		}
	}
	*ret_opts = opts;
	return 0;
}

void uc_mount_opts_done(struct uc_mount_opts *opts)
{
	uc_strv_free(opts->fs);
	*opts = (struct uc_mount_opts){ 0 };
}

/* Records a failure of the mount API together with what the filesystem says of it. */
static int fail_context(struct uc_err *err, int num, int fs_fd, const char *what)
{
	char text[256];
	ssize_t n = read(fs_fd, text, sizeof(text) - 1);

	if (n <= 2) /* "e <text>": nothing was said */
		return uc_fail(err, num, "%s", what);
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	return uc_fail(err, num, "%s: %s", what, UC_PRINTABLE(text + 2));
}

static int configure(int fs_fd, const char *option, struct uc_err *err)
{
	const char *eq = strchr(option, '=');
	cleanup_free char *key = strndup(option, eq ? (size_t)(eq - option) : strlen(option));
	cleanup_free char *value = eq ? unquote(eq + 1) : NULL;
	char what[128];
	int r;

	if (!key || (eq && !value))
		return uc_fail(err, ENOMEM, "mount option");
	if (eq)
		r = fsconfig(fs_fd, FSCONFIG_SET_STRING, key, value, 0);
	else
		r = fsconfig(fs_fd, FSCONFIG_SET_FLAG, key, NULL, 0);
	if (r == 0)
		return 0;
	r = errno;
	snprintf(what, sizeof(what), "mount option `%.80s`", option);
	return fail_context(err, r, fs_fd, what);
}

int uc_mount_opts_check(const struct uc_mount_opts *opts, const char *fstype, struct uc_err *err)
{
	cleanup_fd int fs_fd = -1;
	int r = 0;

	if (!opts->fs)
		return 0;
	fs_fd = fsopen(fstype, FSOPEN_CLOEXEC);
	if (fs_fd < 0)
		return uc_fail(err, errno, "filesystem `%s`", fstype);
	for (char **o = opts->fs; *o && r == 0; o++)
		r = configure(fs_fd, *o, err);
	return r;
}

int uc_mount_fs(const char *fstype, const char *subtype, const char *source,
		const struct uc_mount_opts *opts, bool read_only, int *ret_fd, struct uc_err *err)
{
	cleanup_fd int fs_fd = fsopen(fstype, FSOPEN_CLOEXEC);
	uint64_t attr = opts ? opts->attr_set : 0;
	char what[160];
	int fd, r;

	snprintf(what, sizeof(what), "mount `%.100s` (%s)", source, fstype);
	if (fs_fd < 0)
		return uc_fail(err, errno, "%s", what);
	if (fsconfig(fs_fd, FSCONFIG_SET_STRING, "source", source, 0) < 0 ||
	    (subtype && fsconfig(fs_fd, FSCONFIG_SET_STRING, "subtype", subtype, 0) < 0) ||
	    (read_only && fsconfig(fs_fd, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0))
		return fail_context(err, errno, fs_fd, what);
	for (char **o = opts ? opts->fs : NULL; o && *o; o++) {
		r = configure(fs_fd, *o, err);
		if (r < 0)
			return uc_wrap(err, r, "%s", what);
	}
	if (fsconfig(fs_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return fail_context(err, errno, fs_fd, what);
	if (read_only)
		attr |= MOUNT_ATTR_RDONLY;
	fd = fsmount(fs_fd, FSMOUNT_CLOEXEC, (unsigned)attr);
	if (fd < 0)
		return fail_context(err, errno, fs_fd, what);
	*ret_fd = fd;
	return 0;
}

int uc_mount_clone(int fd, uint64_t attr_set, uint64_t attr_clr, int *ret_fd, struct uc_err *err)
{
	cleanup_fd int clone = -1;

	clone = open_tree(fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	if (clone < 0)
		return uc_fail(err, errno, "clone a mount");
	if (attr_set || attr_clr) {
		struct mount_attr attr = { .attr_set = attr_set, .attr_clr = attr_clr };

		if (mount_setattr(clone, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
			return uc_fail(err, errno, "set the attributes of a mount");
	}
	*ret_fd = take_fd(&clone);
	return 0;
}

int uc_mount_attach(int mount_fd, int target_fd, struct uc_err *err)
{
	if (move_mount(mount_fd, "", target_fd, "",
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return uc_fail(err, errno, "attach a mount");
	return 0;
}

int uc_unmount_at(int parent_fd, const char *name, int flags, struct uc_err *err)
{
	cleanup_free char *path = NULL;

	if (asprintf(&path, "%s/%s", UC_FD_PATH(parent_fd), name) < 0) {
		path = NULL;
		return uc_fail(err, ENOMEM, "unmount `%s`", UC_PRINTABLE(name));
	}
	if (umount2(path, flags | UMOUNT_NOFOLLOW) < 0)
		return uc_fail(err, errno, "unmount `%s`", UC_PRINTABLE(name));
	return 0;
}

void uc_mount_info_done(struct uc_mount_info *info)
{
	free(info->root);
	free(info->target);
	free(info->fstype);
	free(info->source);
	*info = (struct uc_mount_info){ 0 };
}

int uc_mount_id(int fd, uint64_t *ret_id, bool *ret_is_root)
{
	struct statx st;

	/* AT_STATX_DONT_SYNC: FUSE answers from its cache, or it would ask a dead server. */
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &st) < 0)
		return -errno;
	*ret_id = st.stx_mnt_id;
	if (ret_is_root)
		*ret_is_root = st.stx_attributes & STATX_ATTR_MOUNT_ROOT;
	return 0;
}

UC_DEFINE_CLEANUP(struct libmnt_table *, mnt_unref_table)
UC_DEFINE_CLEANUP(struct libmnt_iter *, mnt_free_iter)

static int silent(struct libmnt_table *table, const char *file, int line)
{
	(void)table;
	(void)file;
	(void)line;
	return 1; /* skip the line */
}

static int read_table(struct libmnt_table **ret_table, struct uc_err *err)
{
	cleanup_with(mnt_unref_tablep) struct libmnt_table *table = mnt_new_table();
	int r;

	if (!table)
		return uc_fail(err, ENOMEM, "read the mount table");
	mnt_table_set_parser_errcb(table, silent);
	r = mnt_table_parse_file(table, "/proc/self/mountinfo");
	if (r != 0)
		return uc_fail(err, r < 0 ? -r : EIO, "read the mount table");
	*ret_table = take_ptr(&table);
	return 0;
}

/* Fields that libmount does not know are NULL; a copy has "" for them. */
static int copy(char **to, const char *from)
{
	*to = strdup(from ? from : "");
	return *to ? 0 : -ENOMEM;
}

static int fill(struct uc_mount_info *info, struct libmnt_fs *fs)
{
	unsigned long flags = 0;

	info->id = (uint64_t)mnt_fs_get_id(fs);
	info->dev = mnt_fs_get_devno(fs);
	mnt_optstr_get_flags(mnt_fs_get_options(fs), &flags, mnt_get_builtin_optmap(MNT_LINUX_MAP));
	info->read_only = flags & MS_RDONLY;
	if (copy(&info->root, mnt_fs_get_root(fs)) < 0 ||
	    copy(&info->target, mnt_fs_get_target(fs)) < 0 ||
	    copy(&info->fstype, mnt_fs_get_fstype(fs)) < 0 ||
	    copy(&info->source, mnt_fs_get_source(fs)) < 0)
		return -ENOMEM;
	return 0;
}

/* The last one mounted comes first. */
static int open_table(struct libmnt_table **ret_table, struct libmnt_iter **ret_iter,
		      struct uc_err *err)
{
	int r = read_table(ret_table, err);

	if (r < 0)
		return r;
	*ret_iter = mnt_new_iter(MNT_ITER_BACKWARD);
	return *ret_iter ? 0 : uc_fail(err, ENOMEM, "read the mount table");
}

int uc_mount_each(int (*fn)(void *data, const struct uc_mount_info *info), void *data,
		  struct uc_err *err)
{
	cleanup_with(mnt_unref_tablep) struct libmnt_table *table = NULL;
	cleanup_with(mnt_free_iterp) struct libmnt_iter *iter = NULL;
	struct libmnt_fs *fs;
	int r;

	r = open_table(&table, &iter, err);
	while (r == 0 && mnt_table_next_fs(table, iter, &fs) == 0) {
		cleanup_mount_info struct uc_mount_info info = { .id = 0 };

		if (fill(&info, fs) < 0)
			return uc_fail(err, ENOMEM, "read the mount table");
		r = fn(data, &info);
	}
	return r;
}

int uc_mount_look(int fd, struct uc_mount_info *ret_info, struct uc_err *err)
{
	cleanup_with(mnt_unref_tablep) struct libmnt_table *table = NULL;
	cleanup_with(mnt_free_iterp) struct libmnt_iter *iter = NULL;
	struct libmnt_fs *fs;
	bool is_root = false;
	uint64_t id = 0;
	int r;

	r = uc_mount_id(fd, &id, &is_root);
	if (r < 0)
		return uc_fail(err, -r, "look at a mount");
	if (!is_root)
		return 0;
	r = open_table(&table, &iter, err);
	while (r == 0 && mnt_table_next_fs(table, iter, &fs) == 0) {
		cleanup_mount_info struct uc_mount_info info = { .id = 0 };

		if ((uint64_t)mnt_fs_get_id(fs) != id)
			continue;
		if (fill(&info, fs) < 0)
			return uc_fail(err, ENOMEM, "look at a mount");
		*ret_info = info;
		info = (struct uc_mount_info){ .id = 0 };
		return 1;
	}
	return r;
}
