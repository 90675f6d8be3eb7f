/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One function per request.  Each fills req->out, or returns a negative errno; the
 * dispatcher answers.  Source of what they must do: Documentation/filesystems/fuse and
 * fs/fuse of Linux 6.18; libfuse's fuse_lowlevel.h.
 */

#include "union-fs/dev.h"

/* ops_node.c: names and attributes */
int ufs_op_lookup(struct ufs_req *req);
int ufs_op_forget(struct ufs_req *req);
int ufs_op_batch_forget(struct ufs_req *req);
int ufs_op_getattr(struct ufs_req *req);
int ufs_op_statx(struct ufs_req *req);
int ufs_op_setattr(struct ufs_req *req);
int ufs_op_readlink(struct ufs_req *req);
int ufs_op_statfs(struct ufs_req *req);

/* ops_make.c: creation and removal */
int ufs_op_mkdir(struct ufs_req *req);
int ufs_op_mknod(struct ufs_req *req);
int ufs_op_symlink(struct ufs_req *req);
int ufs_op_link(struct ufs_req *req);
int ufs_op_create(struct ufs_req *req);
int ufs_op_tmpfile(struct ufs_req *req);
int ufs_op_unlink(struct ufs_req *req);
int ufs_op_rmdir(struct ufs_req *req);
int ufs_op_rename(struct ufs_req *req);
int ufs_op_rename2(struct ufs_req *req);

/* ops_file.c: open files */
int ufs_op_open(struct ufs_req *req);
int ufs_op_read(struct ufs_req *req);
int ufs_op_write(struct ufs_req *req);
int ufs_op_flush(struct ufs_req *req);
int ufs_op_release(struct ufs_req *req);
int ufs_op_fsync(struct ufs_req *req);
int ufs_op_fallocate(struct ufs_req *req);
int ufs_op_lseek(struct ufs_req *req);
int ufs_op_copy_file_range(struct ufs_req *req);

/* ops_dir.c: open directories */
int ufs_op_opendir(struct ufs_req *req);
int ufs_op_readdir(struct ufs_req *req);
int ufs_op_readdirplus(struct ufs_req *req);
int ufs_op_releasedir(struct ufs_req *req);
int ufs_op_fsyncdir(struct ufs_req *req);
int ufs_op_syncfs(struct ufs_req *req);

/* ops_xattr.c */
int ufs_op_setxattr(struct ufs_req *req);
int ufs_op_getxattr(struct ufs_req *req);
int ufs_op_listxattr(struct ufs_req *req);
int ufs_op_removexattr(struct ufs_req *req);

/**
 * UFS_XATTR_BRANCHES - an attribute that every file and directory seems to have, and that is not listed
 *
 * Its value is the branches that it is on: a line for each, of the index and the branch's name.
 */
#define UFS_XATTR_BRANCHES "user.union-fs.branches"

/* Between them */

/**
 * ufs_lookup() - Look a name up and count the kernel's lookup of it
 * @parent:	Directory
 * @v:		Its copies; looked at again if the tree changes meanwhile
 * @ret:	Reply
 * @ret_node:	The node, with a reference; or NULL
 *
 * Return: 0, -ENOENT, another negative errno
 */
int ufs_lookup(struct ufs_node *parent, struct ufs_view *v, const char *name,
	       struct fuse_entry_out *ret, struct ufs_node **ret_node);

/** ufs_fill_entry() - The reply for a node that was entered */
void ufs_fill_entry(struct ufs_node *node, const struct fuse_attr *attr,
		    struct fuse_entry_out *ret);
