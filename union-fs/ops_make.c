/* SPDX-License-Identifier: Apache-2.0 */

/* Creation and removal. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/os/fd.h"
#include "union-fs/attr.h"
#include "union-fs/clone.h"
#include "union-fs/file.h"
#include "union-fs/freed.h"
#include "union-fs/make.h"
#include "union-fs/ops.h"
#include "union-fs/remove.h"
#include "union-fs/rename.h"

/* Flags of open() that are the kernel's business, or told anew with each request. */
#define FLAGS_NOT_OURS \
	(O_CREAT | O_EXCL | O_NOCTTY | O_APPEND | O_DIRECT | O_SYNC | O_NONBLOCK | O_ASYNC)

/* Enters what was made. */
static int enter_made(struct ufs_node *parent, const char *name, struct ufs_made *made,
		      struct fuse_entry_out *ret, struct ufs_node **ret_node)
{
	struct fuse_attr attr;
	int r;

	ufs_attr_found(parent->fs, &made->f, &attr);
	r = ufs_node_enter(parent, name, &made->f, NULL, ret_node);
	if (r < 0)
		return r;
	ufs_fill_entry(*ret_node, &attr, ret);
	return 0;
}

static int make_entry(struct ufs_req *req, const struct ufs_making *m)
{
	cleanup_node struct ufs_node *parent = ufs_node_get(req->fs, req->in->nodeid);
	struct fuse_entry_out *out = ufs_req_out(req, sizeof(*out));
	cleanup_made struct ufs_made made = UFS_MADE_NONE;
	cleanup_node struct ufs_node *node = NULL;
	int r;

	if (!parent)
		return -ESTALE;
	r = ufs_make(req, parent, req->name, m, &made);
	return r < 0 ? r : enter_made(parent, req->name, &made, out, &node);
}

static int make_dir(const struct ufs_making *m, int dirfd, const char *name)
{
	return mkdirat(dirfd, name, m->mode) < 0 ? -errno : 0;
}

int ufs_op_mkdir(struct ufs_req *req)
{
	const struct fuse_mkdir_in *in = req->arg;
	const struct ufs_making m = {
		.fn = make_dir,
		.is_dir = true,
		.mode = in->mode & 07777,
		.umask = in->umask,
	};

	return make_entry(req, &m);
}

static int make_node(const struct ufs_making *m, int dirfd, const char *name)
{
	return mknodat(dirfd, name, m->mode, m->rdev) < 0 ? -errno : 0;
}

int ufs_op_mknod(struct ufs_req *req)
{
	const struct fuse_mknod_in *in = req->arg;
	const struct ufs_making m = {
		.fn = make_node,
		.mode = in->mode,
		.umask = in->umask,
		/* The kernel's new_decode_dev(). */
		.rdev = makedev((in->rdev & 0xfff00) >> 8,
				(in->rdev & 0xff) | ((in->rdev >> 12) & 0xfff00)),
	};

	if (S_ISDIR(in->mode))
		return -EINVAL;
	return make_entry(req, &m);
}

static int make_symlink(const struct ufs_making *m, int dirfd, const char *name)
{
	return symlinkat(m->target, dirfd, name) < 0 ? -errno : 0;
}

int ufs_op_symlink(struct ufs_req *req)
{
	const struct ufs_making m = { .fn = make_symlink, .target = req->name2 };

	return make_entry(req, &m);
}

/* --- files that are open when they are made --- */

static int make_file(const struct ufs_making *m, int dirfd, const char *name)
{
	int fd = openat(dirfd, name, m->flags | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, m->mode);

	return fd < 0 ? -errno : fd;
}

static int make_tmpfile(const struct ufs_making *m, int dirfd, const char *name)
{
	int fd = openat(dirfd, ".", m->flags | O_TMPFILE | O_CLOEXEC, m->mode);

	(void)name;
	return fd < 0 ? -errno : fd;
}

static int reply_created(struct ufs_req *req, struct ufs_node *node, int fd, int flags,
			 struct ufs_create_out *out)
{
	const struct fuse_attr attr = out->entry.attr;
	int r;

	ufs_creds_nobody(&req->w->creds);
	r = ufs_file_open(req->fs, node, fd, flags, &out->open);
	if (r < 0) {
		ufs_node_forget(req->fs, ufs_node_id(node), 1);
		return r;
	}
	/* Now it may be one that the kernel writes behind our back. */
	ufs_fill_entry(node, &attr, &out->entry);
	return 0;
}

static int create(struct ufs_req *req, const struct ufs_making *m, const struct fuse_create_in *in)
{
	cleanup_node struct ufs_node *parent = ufs_node_get(req->fs, req->in->nodeid);
	struct ufs_create_out *out = ufs_req_out(req, sizeof(*out));
	cleanup_made struct ufs_made made = UFS_MADE_NONE;
	cleanup_node struct ufs_node *node = NULL;
	int r;

	if (!parent)
		return -ESTALE;
	r = ufs_make(req, parent, req->name, m, &made);
	/*
	 * The name is there after all, which the kernel did not know: it has not asked whether
	 * the caller may open it.  So it looks the name up again, and opens what it finds.
	 */
	if (r == -EEXIST && !(in->flags & O_EXCL))
		return -ESTALE;
	if (r == 0)
		r = enter_made(parent, req->name, &made, &out->entry, &node);
	return r < 0 ? r : reply_created(req, node, take_fd(&made.fd), (int)in->flags, out);
}

int ufs_op_create(struct ufs_req *req)
{
	const struct fuse_create_in *in = req->arg;
	const struct ufs_making m = {
		.fn = make_file,
		.mode = in->mode & 07777,
		.umask = in->umask,
		.flags = (int)in->flags & ~FLAGS_NOT_OURS,
	};

	return create(req, &m, in);
}

int ufs_op_tmpfile(struct ufs_req *req)
{
	const struct fuse_create_in *in = req->arg;
	const struct ufs_making m = {
		.fn = make_tmpfile,
		.nameless = true,
		.mode = in->mode & 07777,
		.umask = in->umask,
		/* With O_EXCL it can never get a name. */
		.flags = ((int)in->flags & ~FLAGS_NOT_OURS) | ((int)in->flags & O_EXCL),
	};

	return create(req, &m, in);
}

/* --- further names, and none --- */

static int link_to(struct ufs_req *req, struct ufs_node *node, struct ufs_node *parent,
		   struct ufs_view *v)
{
	const unsigned branch = node->lower->branch;
	const struct ufs_pin *pin = NULL;
	cleanup_fd int fd = -1;
	int r;

	if (req->fs->branch[branch].mode == UFS_BRANCH_RO)
		return -EROFS;
	r = ufs_copy_for_new(req->w, parent, branch, v, &pin);
	if (ufs_clone_is_impossible(r))
		return -EXDEV;
	if (r >= 0)
		r = ufs_check_absent(v, req->name);
	if (r == 0)
		r = ufs_freed_settle(v, branch, req->name);
	if (r < 0)
		return r;
	fd = ufs_node_path_fd(req->fs, node);
	if (fd < 0)
		return fd;
	return linkat(fd, "", pin->fd, req->name, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

int ufs_op_link(struct ufs_req *req)
{
	const struct fuse_link_in *in = req->arg;
	cleanup_node struct ufs_node *parent = ufs_node_get(req->fs, req->in->nodeid);
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, in->oldnodeid);
	struct fuse_entry_out *out = ufs_req_out(req, sizeof(*out));
	cleanup_view struct ufs_view v = { 0 };
	int r;

	if (!parent || !node)
		return -ESTALE;
	if (node->is_dir)
		return -EPERM;
	r = ufs_view_open(req->fs, parent, &v);
	if (r == 0)
		r = link_to(req, node, parent, &v);
	return r < 0 ? r : ufs_lookup(parent, &v, req->name, out, NULL);
}

int ufs_op_unlink(struct ufs_req *req)
{
	cleanup_node struct ufs_node *parent = ufs_node_get(req->fs, req->in->nodeid);

	return parent ? ufs_unlink(parent, req->name) : -ESTALE;
}

int ufs_op_rmdir(struct ufs_req *req)
{
	cleanup_node struct ufs_node *parent = ufs_node_get(req->fs, req->in->nodeid);

	return parent ? ufs_rmdir(parent, req->name) : -ESTALE;
}

static int do_rename(struct ufs_req *req, uint64_t newdir, uint32_t flags)
{
	cleanup_node struct ufs_node *from = ufs_node_get(req->fs, req->in->nodeid);
	cleanup_node struct ufs_node *to = ufs_node_get(req->fs, newdir);

	if (!from || !to)
		return -ESTALE;
	return ufs_rename(req->w, from, req->name, to, req->name2, flags);
}

int ufs_op_rename(struct ufs_req *req)
{
	const struct fuse_rename_in *in = req->arg;

	return do_rename(req, in->newdir, 0);
}

int ufs_op_rename2(struct ufs_req *req)
{
	const struct fuse_rename2_in *in = req->arg;

	return do_rename(req, in->newdir, in->flags);
}
