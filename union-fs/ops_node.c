/* SPDX-License-Identifier: Apache-2.0 */

/* Names and attributes. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/os/fd.h"
#include "union-fs/attr.h"
#include "union-fs/clone.h"
#include "union-fs/file.h"
#include "union-fs/ops.h"
#include "union-fs/view.h"

enum {
	BLOCK_MIN = 512, /* smallest unit of statfs */
};

static uint64_t attr_ms(struct ufs_node *node)
{
	if (!node->is_dir && ufs_file_is_written(node))
		return 0;
	return node->fs->cfg.attr_ms;
}

void ufs_fill_entry(struct ufs_node *node, const struct fuse_attr *attr, struct fuse_entry_out *ret)
{
	*ret = (struct fuse_entry_out){
		.nodeid = ufs_node_id(node),
		.generation = node->generation,
		.attr = *attr,
	};
	ufs_set_valid(node->is_dir && ufs_node_is_partial(node) ? 0 : node->fs->cfg.entry_ms,
		      &ret->entry_valid, &ret->entry_valid_nsec);
	ufs_set_valid(attr_ms(node), &ret->attr_valid, &ret->attr_valid_nsec);
}

static int lookup_once(struct ufs_node *parent, struct ufs_view *v, const char *name,
		       const uint64_t *seq, struct fuse_attr *ret_attr, struct ufs_node **ret)
{
	cleanup_finds struct ufs_finds f = { 0 };
	int r;

	r = ufs_find(parent->fs, v, name, &f);
	if (r < 0)
		return r;
	ufs_attr_found(parent->fs, &f, ret_attr);
	return ufs_node_enter(parent, name, &f, seq, ret);
}

/* While the tree does not change, which it cannot under fs->tree. */
static int lookup_locked(struct ufs_node *parent, struct ufs_view *v, const char *name,
			 struct fuse_attr *ret_attr, struct ufs_node **ret)
{
	struct ufs *fs = parent->fs;
	int r;

	ufs_tree_lock(fs);
	ufs_view_close(v);
	r = ufs_view_open(fs, parent, v);
	if (r == 0)
		r = lookup_once(parent, v, name, NULL, ret_attr, ret);
	ufs_tree_unlock(fs);
	return r;
}

int ufs_lookup(struct ufs_node *parent, struct ufs_view *v, const char *name,
	       struct fuse_entry_out *ret, struct ufs_node **ret_node)
{
	cleanup_node struct ufs_node *node = NULL;
	const uint64_t seq = v->seq;
	struct fuse_attr attr;
	int r;

	r = lookup_once(parent, v, name, &seq, &attr, &node);
	if (r == -EAGAIN)
		r = lookup_locked(parent, v, name, &attr, &node);
	if (r != 0)
		return r;
	ufs_fill_entry(node, &attr, ret);
	if (ret_node)
		*ret_node = take_ptr(&node);
	return 0;
}

int ufs_op_lookup(struct ufs_req *req)
{
	cleanup_node struct ufs_node *parent = ufs_node_get(req->fs, req->in->nodeid);
	struct fuse_entry_out *out = ufs_req_out(req, sizeof(*out));
	cleanup_view struct ufs_view v = { 0 };
	int r;

	if (!parent)
		return -ESTALE;
	r = ufs_view_open(req->fs, parent, &v);
	if (r == 0)
		r = ufs_lookup(parent, &v, req->name, out, NULL);
	if (r == -ENOENT && req->fs->cfg.negative_ms) {
		/* "There is none", and the kernel may remember it. */
		*out = (struct fuse_entry_out){ 0 };
		ufs_set_valid(req->fs->cfg.negative_ms, &out->entry_valid, &out->entry_valid_nsec);
		return 0;
	}
	return r;
}

int ufs_op_forget(struct ufs_req *req)
{
	const struct fuse_forget_in *in = req->arg;

	ufs_node_forget(req->fs, req->in->nodeid, in->nlookup);
	return 0;
}

int ufs_op_batch_forget(struct ufs_req *req)
{
	const struct fuse_batch_forget_in *in = req->arg;
	struct fuse_forget_one one;

	if (in->count > req->data_len / sizeof(one))
		return -EINVAL;
	for (uint32_t i = 0; i < in->count; i++) {
		memcpy(&one, req->data + i * sizeof(one), sizeof(one));
		ufs_node_forget(req->fs, one.nodeid, one.nlookup);
	}
	return 0;
}

static int reply_attr(struct ufs_req *req, struct ufs_node *node, int fh_fd)
{
	struct fuse_attr_out *out = ufs_req_out(req, sizeof(*out));
	int r;

	r = ufs_attr_node(req->fs, node, fh_fd, &out->attr, NULL);
	ufs_set_valid(attr_ms(node), &out->attr_valid, &out->attr_valid_nsec);
	return r;
}

int ufs_op_getattr(struct ufs_req *req)
{
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, req->in->nodeid);
	const struct fuse_getattr_in *in = req->arg;
	cleanup_file struct ufs_file *file = NULL;

	if (!node)
		return -ESTALE;
	if (in->getattr_flags & FUSE_GETATTR_FH)
		file = ufs_file_get(req->fs, in->fh, node);
	return reply_attr(req, node, file ? file->fd : -1);
}

static struct ufs_sx_time sx_time(uint64_t sec, uint32_t nsec)
{
	return (struct ufs_sx_time){ .tv_sec = (int64_t)sec, .tv_nsec = nsec };
}

int ufs_op_statx(struct ufs_req *req)
{
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, req->in->nodeid);
	struct ufs_statx_out *out = ufs_req_out(req, sizeof(*out));
	const struct ufs_statx_in *in = req->arg;
	cleanup_file struct ufs_file *file = NULL;
	struct statx_timestamp btime;
	struct fuse_attr a;
	int r;

	if (!node)
		return -ESTALE;
	if (in->getattr_flags & FUSE_GETATTR_FH)
		file = ufs_file_get(req->fs, in->fh, node);
	r = ufs_attr_node(req->fs, node, file ? file->fd : -1, &a, &btime);
	if (r < 0)
		return r;
	out->stat = (struct ufs_statx){
		.mask = STATX_BASIC_STATS | (btime.tv_sec || btime.tv_nsec ? STATX_BTIME : 0),
		.blksize = a.blksize,
		.nlink = a.nlink,
		.uid = a.uid,
		.gid = a.gid,
		.mode = (uint16_t)a.mode,
		.ino = a.ino,
		.size = a.size,
		.blocks = a.blocks,
		.atime = sx_time(a.atime, a.atimensec),
		.btime = sx_time((uint64_t)btime.tv_sec, btime.tv_nsec),
		.ctime = sx_time(a.ctime, a.ctimensec),
		.mtime = sx_time(a.mtime, a.mtimensec),
		.rdev_major = (a.rdev & 0xfff00) >> 8,
		.rdev_minor = (a.rdev & 0xff) | ((a.rdev >> 12) & 0xfff00),
	};
	ufs_set_valid(attr_ms(node), &out->attr_valid, &out->attr_valid_nsec);
	return 0;
}

/* --- SETATTR --- */

static struct timespec new_time(uint32_t valid, uint32_t set, uint32_t now, uint64_t sec,
				uint32_t nsec)
{
	if (valid & now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	if (valid & set)
		return (struct timespec){ .tv_sec = (time_t)sec, .tv_nsec = nsec };
	return (struct timespec){ .tv_nsec = UTIME_OMIT };
}

static int set_times(int fd, const struct fuse_setattr_in *in)
{
	const struct timespec t[2] = {
		new_time(in->valid, FATTR_ATIME, FATTR_ATIME_NOW, in->atime, in->atimensec),
		new_time(in->valid, FATTR_MTIME, FATTR_MTIME_NOW, in->mtime, in->mtimensec),
	};

	return utimensat(fd, "", t, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

/* Owner, mode and times of what @fd (perhaps O_PATH) has open. */
static int set_attrs(struct ufs_req *req, int fd, const struct fuse_setattr_in *in)
{
	if (in->valid & (FATTR_UID | FATTR_GID)) {
		ufs_creds_fsetid(&req->w->creds, req->in->uid == 0);
		if (fchownat(fd, "", in->valid & FATTR_UID ? in->uid : (uid_t)-1,
			     in->valid & FATTR_GID ? in->gid : (gid_t)-1, AT_EMPTY_PATH) < 0)
			return -errno;
	}
	if (in->valid & FATTR_MODE) {
		/* Whether the caller may set the set-group-id bit, the kernel has decided. */
		ufs_creds_fsetid(&req->w->creds, true);
		if (chmod(UC_FD_PATH(fd), in->mode & 07777) < 0)
			return -errno;
	}
	if (in->valid & (FATTR_ATIME | FATTR_MTIME | FATTR_ATIME_NOW | FATTR_MTIME_NOW))
		return set_times(fd, in);
	return 0;
}

static int set_size(struct ufs_req *req, struct ufs_node *node, const struct ufs_file *file,
		    const struct fuse_setattr_in *in)
{
	cleanup_fd int opened = -1;
	int fd = file && file->writer ? file->fd : -1;

	ufs_creds_fsetid(&req->w->creds, !(in->valid & FATTR_KILL_SUIDGID));
	if (fd < 0) {
		opened = ufs_node_open(req->fs, node, O_WRONLY);
		fd = opened;
	}
	if (fd < 0)
		return fd;
	return ftruncate(fd, (off_t)in->size) < 0 ? -errno : 0;
}

static int setattr_file(struct ufs_req *req, struct ufs_node *node,
			const struct fuse_setattr_in *in)
{
	cleanup_file struct ufs_file *file = NULL;
	cleanup_fd int fd = -1;
	int r = 0;

	if (req->fs->branch[node->lower->branch].mode == UFS_BRANCH_RO)
		return -EROFS;
	/* Whether a set-group-id bit stays may depend on the caller's group. */
	ufs_creds_charge(&req->w->creds, req->in->uid, req->in->gid);
	if (in->valid & FATTR_FH)
		file = ufs_file_get(req->fs, in->fh, node);
	if (in->valid & FATTR_SIZE)
		r = node->type == S_IFREG ? set_size(req, node, file, in) : -EINVAL;
	if (r < 0)
		return r;
	fd = ufs_node_path_fd(req->fs, node);
	if (fd < 0)
		return fd;
	r = set_attrs(req, fd, in);
	return r < 0 ? r : reply_attr(req, node, fd);
}

/*
 * All copies of a directory, the one that speaks for it last: that is when the change
 * shows.  Should we be interrupted, the others are made to agree before they are used.
 */
static int setattr_copies(struct ufs_req *req, struct ufs_node *node,
			  const struct fuse_setattr_in *in)
{
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
	for (unsigned i = 0; i < v.n; i++) {
		r = &v.pin[i] == identity ? 0 : set_attrs(req, v.pin[i].fd, in);
		if (r < 0)
			break;
	}
	if (r == 0)
		r = set_attrs(req, identity->fd, in);
	if (r < 0)
		ufs_unalign(&v);
	return r;
}

int ufs_op_setattr(struct ufs_req *req)
{
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, req->in->nodeid);
	const struct fuse_setattr_in *in = req->arg;
	int r;

	if (!node)
		return -ESTALE;
	if (!node->is_dir)
		return setattr_file(req, node, in);
	ufs_tree_lock(req->fs);
	r = setattr_copies(req, node, in);
	ufs_tree_unlock(req->fs);
	return r < 0 ? r : reply_attr(req, node, -1);
}

int ufs_op_readlink(struct ufs_req *req)
{
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, req->in->nodeid);
	cleanup_fd int fd = -1;
	ssize_t n;

	if (!node)
		return -ESTALE;
	if (node->type != S_IFLNK)
		return -EINVAL;
	fd = ufs_node_path_fd(req->fs, node);
	if (fd < 0)
		return fd;
	n = readlinkat(fd, "", (char *)req->out, PATH_MAX);
	if (n < 0)
		return -errno;
	req->out_len = (size_t)n;
	return 0;
}

/* --- STATFS --- */

static bool is_counted(const struct ufs *fs, unsigned i)
{
	for (unsigned j = 0; j < i; j++)
		if (fs->branch[j].dev == fs->branch[i].dev)
			return true;
	return false;
}

int ufs_op_statfs(struct ufs_req *req)
{
	struct fuse_statfs_out *out = ufs_req_out(req, sizeof(*out));
	uint64_t blocks = 0, bfree = 0, bavail = 0, unit = 0;
	struct ufs *fs = req->fs;
	int failure = 0;

	out->st.namelen = UINT32_MAX;
	for (unsigned i = 0; i < fs->n_branches; i++) {
		struct statvfs st;

		if (is_counted(fs, i))
			continue;
		if (fstatvfs(fs->branch[i].root_fd, &st) < 0) {
			failure = -errno;
			continue;
		}
		blocks += (uint64_t)st.f_blocks * st.f_frsize;
		bfree += (uint64_t)st.f_bfree * st.f_frsize;
		bavail += (uint64_t)st.f_bavail * st.f_frsize;
		out->st.files += st.f_files;
		out->st.ffree += st.f_ffree;
		if (!unit || st.f_frsize < unit)
			unit = st.f_frsize;
		if (st.f_namemax < out->st.namelen)
			out->st.namelen = (uint32_t)st.f_namemax;
	}
	if (!unit && failure)
		return failure;
	if (unit < BLOCK_MIN)
		unit = BLOCK_MIN;
	out->st.bsize = out->st.frsize = (uint32_t)unit;
	out->st.blocks = blocks / unit;
	out->st.bfree = bfree / unit;
	out->st.bavail = bavail / unit;
	return 0;
}
