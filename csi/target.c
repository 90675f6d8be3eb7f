/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "csi/status.h"
#include "csi/target.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/str.h"
#include "lib/os/fd.h"
#include "lib/os/statfs.h"

enum {
	STATFS_MS = 5000,
};

/* Roots that are opened late, and whoever uses them meanwhile. */
static pthread_mutex_t roots_lock = PTHREAD_MUTEX_INITIALIZER;

int csi_roots_add(struct csi_roots *roots, const char *path, struct uc_err *err)
{
	struct uc_root root = UC_ROOT_INIT, *grown;
	int r;

	r = uc_root_init(&root, path, err);
	if (r < 0)
		return r;
	r = uc_root_open(&root, err);
	if (r < 0 && r != -ENOENT) {
		uc_root_done(&root);
		return r;
	}
	grown = reallocarray(roots->roots, roots->n + 1, sizeof(*grown));
	if (!grown) {
		uc_root_done(&root);
		return uc_fail(err, ENOMEM, "open `%s`", UC_PRINTABLE(path));
	}
	roots->roots = grown;
	roots->roots[roots->n++] = root;
	return r;
}

void csi_roots_done(struct csi_roots *roots)
{
	for (size_t i = 0; i < roots->n; i++)
		uc_root_done(&roots->roots[i]);
	free(roots->roots);
	*roots = (struct csi_roots){ .n = 0 };
}

void csi_target_done(struct csi_target *t)
{
	free(t->rel);
	t->rel = NULL;
	uc_closep(&t->parent_fd);
}

static int check_lengths(const char *field, const char *path, struct uc_err *err)
{
	if (strlen(path) >= PATH_MAX)
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT, "%s has %zu bytes, more than %d",
				field, strlen(path), PATH_MAX - 1);
	for (const char *p = path; *p; p += strspn(p, "/")) {
		size_t n = strcspn(p, "/");

		if (n > NAME_MAX)
			return csi_fail(err, UC_GRPC_INVALID_ARGUMENT,
					"%s has a component of %zu bytes, more than %d", field, n,
					NAME_MAX);
		p += n;
	}
	return 0;
}

/* Finds the root that @path lies below. */
static int find_root(const struct csi_roots *roots, const char *field, const char *path,
		     struct uc_root **ret_root, char **ret_rel, struct uc_err *err)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;

	for (size_t i = 0; i < roots->n; i++) {
		struct uc_root *root = &roots->roots[i];
		char *rel;

		(void)uc_root_open(root, NULL); /* where it is missing, its path still counts */
		rel = uc_path_below(root, path);
		if (rel) {
			*ret_root = root;
			*ret_rel = rel;
			return 0;
		}
		if (errno == ENOMEM)
			return uc_fail(err, ENOMEM, "%s", field);
		uc_buf_printf(&b, "%s`%s`", i ? ", " : "", root->path);
	}
	return csi_fail(err, UC_GRPC_INVALID_ARGUMENT,
			"%s `%s` is not a path below %s, without `.` and `..`", field,
			UC_PRINTABLE(path), uc_buf_str(&b));
}

/* @ret_root_fd is -1 for a root that is missing. */
static int resolve(const struct csi_roots *roots, const char *field, const char *path,
		   int *ret_root_fd, const char **ret_root_path, char **ret_rel, struct uc_err *err)
{
	struct uc_root *root = NULL;
	int r;

	if (!*path)
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT, "%s is missing", field);
	r = check_lengths(field, path, err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&roots_lock);
	r = find_root(roots, field, path, &root, ret_rel, err);
	if (r == 0)
		*ret_root_path = root->path;
	if (r == 0 && root->fd >= 0) {
		*ret_root_fd = fcntl(root->fd, F_DUPFD_CLOEXEC, 0);
		if (*ret_root_fd < 0)
			r = uc_fail(err, errno, "%s `%s`", field, UC_PRINTABLE(path));
	}
	pthread_mutex_unlock(&roots_lock);
	return r;
}

int csi_target_check(const struct csi_roots *roots, const char *field, const char *path,
		     char **ret_path, struct uc_err *err)
{
	cleanup_free char *rel = NULL;
	const char *root_path = NULL;
	cleanup_fd int root = -1;
	int r;

	r = resolve(roots, field, path, &root, &root_path, &rel, err);
	if (r == 0 &&
	    asprintf(ret_path, "%s/%s", uc_streq(root_path, "/") ? "" : root_path, rel) < 0) {
		*ret_path = NULL;
		r = uc_fail(err, ENOMEM, "%s", field);
	}
	return r;
}

static int fail_parent(int r, const char *field, const char *path, struct uc_err *err)
{
	switch (-r) {
	case ELOOP:
	case EXDEV:
	case ENOTDIR:
	case ENAMETOOLONG:
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT,
				"%s `%s` leads through something that is not a directory (%s)",
				field, UC_PRINTABLE(path), strerrordesc_np(-r));
	case ENOENT:
		return uc_fail_as(err, ENOENT, UC_GRPC_FAILED_PRECONDITION,
				  "%s `%s`: the directory above it is missing", field,
				  UC_PRINTABLE(path));
	default:
		return uc_fail(err, -r, "%s `%s`", field, UC_PRINTABLE(path));
	}
}

int csi_target_open(const struct csi_roots *roots, const char *field, const char *path,
		    struct csi_target *ret_target, struct uc_err *err)
{
	cleanup_free char *rel = NULL;
	const char *root_path = NULL;
	cleanup_fd int root = -1;
	const char *name;
	int r;

	r = resolve(roots, field, path, &root, &root_path, &rel, err);
	if (r < 0)
		return r;
	r = root < 0 ? -ENOENT : uc_open_parent_beneath(root, rel, &name);
	if (r < 0)
		return fail_parent(r, field, path, err);
	*ret_target = (struct csi_target){ .rel = take_ptr(&rel), .name = name, .parent_fd = r };
	return 0;
}

static int open_point(const struct csi_target *t, struct uc_err *err)
{
	int fd = uc_openat_beneath(t->parent_fd, t->name, O_PATH | O_NOFOLLOW);

	if (fd == -ENOENT)
		return fd;
	if (fd < 0)
		return uc_fail(err, -fd, "open `%s`", UC_PRINTABLE(t->name));
	return fd;
}

int csi_target_look(const struct csi_target *t, struct uc_mount_info *ret_info, struct uc_err *err)
{
	cleanup_fd int fd = open_point(t, err);

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	return uc_mount_look(fd, ret_info, err);
}

static int fail_foreign(const struct csi_target *t, const char *id,
			const struct uc_mount_info *info, struct uc_err *err)
{
	return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
			"`%s` (%s) is mounted at `%s`: it is not volume `%s`",
			UC_PRINTABLE(info->source), UC_PRINTABLE(info->fstype),
			UC_PRINTABLE(t->name), UC_PRINTABLE(id));
}

static int check_empty(const struct csi_target *t, int fd, struct uc_err *err)
{
	cleanup_fd int dir = -1;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return uc_fail(err, errno, "stat `%s`", UC_PRINTABLE(t->name));
	if (!S_ISDIR(st.st_mode))
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION, "`%s` is not a directory",
				UC_PRINTABLE(t->name));
	dir = uc_open_dir_at(fd, ".");
	r = dir < 0 ? dir : uc_dir_is_empty(dir, NULL);
	if (r < 0)
		return uc_fail(err, -r, "look into `%s`", UC_PRINTABLE(t->name));
	if (r == 0)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"`%s` is not empty: a mount would hide what it holds",
				UC_PRINTABLE(t->name));
	return 0;
}

static int fail_not_mounted(const struct uc_volume *v, struct uc_err *err)
{
	return csi_fail(err, UC_GRPC_FAILED_PRECONDITION, "volume `%s` is not mounted", v->id);
}

/* Whether what is mounted is what would be mounted now. */
static int is_current(const struct uc_volume *v, const struct uc_mount_info *info, int source_fd,
		      uint64_t attr_set, struct uc_err *err)
{
	cleanup_mount_info struct uc_mount_info source = { .id = 0 };
	int r = uc_mount_look(source_fd, &source, err);

	if (r < 0)
		return r;
	if (r == 0)
		return fail_not_mounted(v, err);
	return info->dev == source.dev && (info->read_only || !(attr_set & UC_MOUNT_RDONLY));
}

int csi_target_mount(const struct csi_target *t, struct csi_backend *b, const struct uc_volume *v,
		     int source_fd, uint64_t attr_set, uint64_t attr_clr, struct uc_err *err)
{
	cleanup_mount_info struct uc_mount_info info = { .id = 0 };
	cleanup_fd int fd = -1, clone = -1;
	int r;

	if (mkdirat(t->parent_fd, t->name, 0750) < 0 && errno != EEXIST)
		return uc_fail(err, errno, "make `%s`", UC_PRINTABLE(t->name));
	fd = open_point(t, err);
	if (fd < 0)
		return fd;
	r = uc_mount_look(fd, &info, err);
	if (r < 0)
		return r;
	if (r > 0) {
		if (!b->ops->owns_mount(b, v, &info))
			return fail_foreign(t, v->id, &info, err);
		r = is_current(v, &info, source_fd, attr_set, err);
		if (r != 0)
			return r < 0 ? r : 0;
		uc_closep(&fd);
		r = csi_target_unmount(t, b, v, v->id, false, err);
		if (r < 0)
			return r;
		fd = open_point(t, err);
		if (fd < 0)
			return fd;
	}
	r = check_empty(t, fd, err);
	if (r < 0)
		return r;
	r = uc_mount_clone(source_fd, attr_set, attr_clr, &clone, err);
	if (r == -EINVAL) /* unmounted in this very moment */
		return fail_not_mounted(v, err);
	if (r == 0)
		r = uc_mount_attach(clone, fd, err);
	return r;
}

/* Whether a filesystem is dead, or hangs: perhaps with a question of ours, which keeps it busy. */
static bool is_useless(const struct csi_target *t)
{
	struct uc_statfs usage;
	cleanup_fd int fd = open_point(t, NULL);
	int r = fd < 0 ? fd : uc_statfs_bounded(fd, STATFS_MS, &usage, NULL);

	return r == -ENOTCONN || r == -ETIMEDOUT;
}

/*
 * Nobody may have the mount open here, or it would be busy.  A useless filesystem may
 * be busy for ever; one that works is not taken from under its users.
 */
static int unmount(const struct csi_target *t, struct uc_err *err)
{
	int r = uc_unmount_at(t->parent_fd, t->name, 0, err);

	if (r == -EBUSY && is_useless(t))
		r = uc_unmount_at(t->parent_fd, t->name, MNT_DETACH, err);
	if (r == -EBUSY)
		return csi_as(err, r, UC_GRPC_FAILED_PRECONDITION);
	return r == -EINVAL || r == -ENOENT ? 0 : r;
}

static bool is_own(struct csi_backend *b, const struct uc_volume *v, const char *id,
		   const struct uc_mount_info *info)
{
	if (v)
		return b->ops->owns_mount(b, v, info);
	return strcmp(info->fstype, "fuse.union-fs") == 0 && strcmp(info->source, id) == 0;
}

int csi_target_unmount(const struct csi_target *t, struct csi_backend *b, const struct uc_volume *v,
		       const char *id, bool remove, struct uc_err *err)
{
	int r;

	for (;;) {
		cleanup_mount_info struct uc_mount_info info = { .id = 0 };

		r = csi_target_look(t, &info, err);
		if (r < 0)
			return r;
		if (r == 0)
			break;
		if (!is_own(b, v, id, &info))
			return fail_foreign(t, id, &info, err);
		r = unmount(t, err);
		if (r < 0)
			return r;
	}
	if (!remove || unlinkat(t->parent_fd, t->name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno == ENOTEMPTY || errno == ENOTDIR)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"`%s` is not an empty directory: it is left alone",
				UC_PRINTABLE(t->name));
	return uc_fail(err, errno, "remove `%s`", UC_PRINTABLE(t->name));
}
