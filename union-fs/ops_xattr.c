/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Extended attributes.
 *
 * A descriptor that is O_PATH, and all of symlinks', has no f*xattr() calls; the path
 * in /proc that names it does.  A directory's attributes are those of its oldest copy;
 * changes go to all copies, to that one last.
 */

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/xattr.h>

#include "lib/base/buf.h"
#include "lib/os/fd.h"
#include "union-fs/clone.h"
#include "union-fs/ops.h"
#include "union-fs/view.h"

#define TRUSTED "trusted."

static int reply_size(struct ufs_req *req, ssize_t n)
{
	struct fuse_getxattr_out *out = ufs_req_out(req, sizeof(*out));

	out->size = (uint32_t)n;
	return 0;
}

static int read_value(struct ufs_req *req, int fd)
{
	const struct fuse_getxattr_in *in = req->arg;
	size_t size = in->size < UFS_XATTR_MAX ? in->size : UFS_XATTR_MAX;
	ssize_t n;

	n = getxattr(UC_FD_PATH(fd), req->name, size ? req->out : NULL, size);
	if (n < 0)
		return -errno;
	if (!size)
		return reply_size(req, n);
	req->out_len = (size_t)n;
	return 0;
}

/* Takes out of a list what only root may see; we see it all. */
static size_t drop_trusted(char *list, size_t n)
{
	size_t kept = 0, len;

	for (size_t at = 0; at < n; at += len) {
		len = strnlen(list + at, n - at) + 1;
		if (len > n - at)
			break;
		if (strncmp(list + at, TRUSTED, strlen(TRUSTED)) == 0)
			continue;
		memmove(list + kept, list + at, len);
		kept += len;
	}
	return kept;
}

static int read_list(struct ufs_req *req, int fd)
{
	const struct fuse_getxattr_in *in = req->arg;
	ssize_t n = listxattr(UC_FD_PATH(fd), (char *)req->out, UFS_XATTR_MAX);
	size_t len;

	if (n < 0)
		return -errno;
	len = req->in->uid == 0 ? (size_t)n : drop_trusted((char *)req->out, (size_t)n);
	if (!in->size)
		return reply_size(req, (ssize_t)len);
	if (len > in->size)
		return -ERANGE;
	req->out_len = len;
	return 0;
}

/* Reads into the reply: the attribute, or the list where there is no name. */
static int read_from(struct ufs_req *req, int fd)
{
	return req->name ? read_value(req, fd) : read_list(req, fd);
}

/* --- UFS_XATTR_BRANCHES --- */

static bool is_branches(const char *name)
{
	return name && strcmp(name, UFS_XATTR_BRANCHES) == 0;
}

static void add_branch(struct uc_buf *b, const struct ufs *fs, unsigned branch)
{
	uc_buf_printf(b, "%u %s\n", branch, fs->branch[branch].name);
}

static int reply_branches(struct ufs_req *req, const struct uc_buf *b)
{
	const struct fuse_getxattr_in *in = req->arg;

	if (uc_buf_error(b) < 0)
		return uc_buf_error(b);
	if (b->len > UFS_XATTR_MAX)
		return -E2BIG;
	if (!in->size)
		return reply_size(req, (ssize_t)b->len);
	if (b->len > in->size)
		return -ERANGE;
	memcpy(req->out, b->data, b->len);
	req->out_len = b->len;
	return 0;
}

static int read_branches(struct ufs_req *req, struct ufs_node *node)
{
	cleanup_view struct ufs_view v = { 0 };
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	int r;

	if (node->is_dir) {
		r = ufs_view_open(req->fs, node, &v);
		if (r < 0)
			return r;
		for (unsigned i = 0; i < v.n; i++)
			add_branch(&b, req->fs, v.pin[i].branch);
	} else {
		add_branch(&b, req->fs, node->lower->branch);
	}
	return reply_branches(req, &b);
}

/* --- the branches' attributes --- */

static int read_xattr(struct ufs_req *req)
{
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, req->in->nodeid);
	cleanup_view struct ufs_view v = { 0 };
	cleanup_fd int fd = -1;
	int r;

	if (!node)
		return -ESTALE;
	if (is_branches(req->name))
		return read_branches(req, node);
	if (node->is_dir) {
		r = ufs_view_open(req->fs, node, &v);
		return r < 0 ? r : read_from(req, ufs_view_identity(&v)->fd);
	}
	fd = ufs_node_path_fd(req->fs, node);
	return fd < 0 ? fd : read_from(req, fd);
}

int ufs_op_getxattr(struct ufs_req *req)
{
	return read_xattr(req);
}

int ufs_op_listxattr(struct ufs_req *req)
{
	return read_xattr(req);
}

/** struct change - setting or removing an attribute */
struct change {
	const char *name;
	const void *value; /* NULL: remove it */
	size_t size;
	int flags;
};

static int apply(int fd, const struct change *c)
{
	int r;

	if (c->value)
		r = setxattr(UC_FD_PATH(fd), c->name, c->value, c->size, c->flags);
	else
		r = removexattr(UC_FD_PATH(fd), c->name);
	return r < 0 ? -errno : 0;
}

/* Whether the oldest copy will take it, as far as that depends on what it has. */
static int check_dir(int fd, const struct change *c)
{
	bool has = getxattr(UC_FD_PATH(fd), c->name, NULL, 0) >= 0;

	if (has && c->value && c->flags & XATTR_CREATE)
		return -EEXIST;
	if (!has && (!c->value || c->flags & XATTR_REPLACE))
		return errno == ENODATA ? -ENODATA : -errno;
	return 0;
}

static int change_copies(struct ufs_req *req, struct ufs_node *node, const struct change *c)
{
	const struct change other = { .name = c->name, .value = c->value, .size = c->size };
	cleanup_view struct ufs_view v = { 0 };
	const struct ufs_pin *identity;
	int r;

	r = ufs_view_open(req->fs, node, &v);
	if (r < 0)
		return r;
	if (v.error)
		return v.error;
	for (unsigned i = 0; i < v.n; i++)
		if (req->fs->branch[v.pin[i].branch].mode == UFS_BRANCH_RO)
			return -EROFS;
	identity = ufs_view_identity(&v);
	r = check_dir(identity->fd, c);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < v.n && r == 0; i++) {
		r = &v.pin[i] == identity ? 0 : apply(v.pin[i].fd, &other);
		if (r == -ENODATA)
			r = 0;
	}
	if (r == 0)
		r = apply(identity->fd, c);
	if (r < 0)
		ufs_unalign(&v);
	return r;
}

static int change_xattr(struct ufs_req *req, const struct change *c)
{
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, req->in->nodeid);
	cleanup_fd int fd = -1;
	int r;

	if (!node)
		return -ESTALE;
	if (is_branches(c->name))
		return -EPERM;
	if (node->is_dir) {
		ufs_tree_lock(req->fs);
		r = change_copies(req, node, c);
		ufs_tree_unlock(req->fs);
		return r;
	}
	if (req->fs->branch[node->lower->branch].mode == UFS_BRANCH_RO)
		return -EROFS;
	fd = ufs_node_path_fd(req->fs, node);
	return fd < 0 ? fd : apply(fd, c);
}

int ufs_op_setxattr(struct ufs_req *req)
{
	const struct fuse_setxattr_in *in = req->arg;
	const struct change c = {
		.name = req->name,
		.value = req->data,
		.size = in->size,
		.flags = (int)in->flags,
	};

	if (in->size > req->data_len)
		return -EINVAL;
	/* An ACL may clear the set-group-id bit: whether it does, the kernel has decided; and that the
	 * caller is not of the file's group is part of it. */
	ufs_creds_charge(&req->w->creds, req->in->uid, req->in->gid);
	ufs_creds_fsetid(&req->w->creds, !(in->setxattr_flags & FUSE_SETXATTR_ACL_KILL_SGID));
	return change_xattr(req, &c);
}

int ufs_op_removexattr(struct ufs_req *req)
{
	const struct change c = { .name = req->name };

	return change_xattr(req, &c);
}
