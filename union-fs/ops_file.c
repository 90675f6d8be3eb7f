/* SPDX-License-Identifier: Apache-2.0 */

/* Open files. */

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "union-fs/file.h"
#include "union-fs/ops.h"

/*
 * Our descriptor is opened without them.  Each WRITE says how it is to be done: a program
 * may change its flags, and the kernel may write a mapping's pages through any descriptor.
 * O_DIRECT would want our buffers, and the kernel's offsets, aligned as the disk has it.
 */
#define FLAGS_NOT_OURS \
	(O_CREAT | O_EXCL | O_NOCTTY | O_APPEND | O_DIRECT | O_SYNC | O_NONBLOCK | O_ASYNC)

int ufs_op_open(struct ufs_req *req)
{
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, req->in->nodeid);
	struct ufs_open_out *out = ufs_req_out(req, sizeof(*out));
	const struct fuse_open_in *in = req->arg;
	int fd;

	if (!node)
		return -ESTALE;
	if (node->type != S_IFREG)
		return node->is_dir ? -EISDIR : -EINVAL;
	if (((in->flags & O_ACCMODE) != O_RDONLY || in->flags & O_TRUNC) &&
	    req->fs->branch[node->lower->branch].mode == UFS_BRANCH_RO)
		return -EROFS;
	/* O_TRUNC clears set-id bits unless the caller may keep them. */
	ufs_creds_fsetid(&req->w->creds,
			 in->flags & O_TRUNC && !(in->open_flags & FUSE_OPEN_KILL_SUIDGID));
	ufs_creds_charge(&req->w->creds, req->in->uid, req->in->gid);
	fd = ufs_node_open(req->fs, node, (int)in->flags & ~FLAGS_NOT_OURS);
	if (fd < 0)
		return fd;
	/*
	 * The kernel writes through a backing file as whoever we are when we register it.  Were that
	 * the first one who opens it, others would use what is reserved for him.
	 */
	ufs_creds_nobody(&req->w->creds);
	return ufs_file_open(req->fs, node, fd, (int)in->flags, out);
}

/* The open file that a request names. */
static struct ufs_file *file_of(struct ufs_req *req, uint64_t nodeid, uint64_t fh)
{
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, nodeid);

	return node ? ufs_file_get(req->fs, fh, node) : NULL;
}

int ufs_op_read(struct ufs_req *req)
{
	const struct fuse_read_in *in = req->arg;
	cleanup_file struct ufs_file *file = file_of(req, req->in->nodeid, in->fh);
	size_t size = in->size < UFS_REPLY_MAX ? in->size : UFS_REPLY_MAX;
	ssize_t n;

	if (!file)
		return -EBADF;
	/* A short answer is the end of the file, so an error in its middle must be told. */
	while (req->out_len < size) {
		n = pread(file->fd, req->out + req->out_len, size - req->out_len,
			  (off_t)(in->offset + req->out_len));
		if (n == 0)
			break;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		req->out_len += (size_t)n;
	}
	return 0;
}

/* How the program wants it written: its flags now, not those of open(). */
static int write_flags(const struct fuse_write_in *in)
{
	int flags = 0;

	/* Pages of a mapping have their place, whatever descriptor they come through. */
	if (in->write_flags & FUSE_WRITE_CACHE)
		return 0;
	if (in->flags & O_APPEND)
		flags |= RWF_APPEND;
	if ((in->flags & O_SYNC) == O_SYNC)
		flags |= RWF_SYNC;
	else if (in->flags & O_DSYNC)
		flags |= RWF_DSYNC;
	return flags;
}

int ufs_op_write(struct ufs_req *req)
{
	const struct fuse_write_in *in = req->arg;
	cleanup_file struct ufs_file *file = file_of(req, req->in->nodeid, in->fh);
	struct fuse_write_out *out = ufs_req_out(req, sizeof(*out));
	struct iovec iov = { .iov_base = (void *)(uintptr_t)req->data, .iov_len = in->size };
	ssize_t n;

	if (in->size > req->data_len)
		return -EINVAL;
	if (!file)
		return -EBADF;
	ufs_creds_fsetid(&req->w->creds, !(in->write_flags & FUSE_WRITE_KILL_SUIDGID));
	ufs_creds_charge(&req->w->creds, req->in->uid, req->in->gid);
	do
		n = pwritev2(file->fd, &iov, 1, (off_t)in->offset, write_flags(in));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	out->size = (uint32_t)n;
	return 0;
}

int ufs_op_flush(struct ufs_req *req)
{
	const struct fuse_flush_in *in = req->arg;
	cleanup_file struct ufs_file *file = file_of(req, req->in->nodeid, in->fh);
	int fd;

	if (!file)
		return -EBADF;
	/* A program closes one of its descriptors: a network filesystem may report errors. */
	fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	return close(fd) < 0 && errno != EINTR ? -errno : 0;
}

int ufs_op_release(struct ufs_req *req)
{
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, req->in->nodeid);
	const struct fuse_release_in *in = req->arg;

	return node ? ufs_file_close(req->fs, in->fh, node) : -ESTALE;
}

int ufs_op_fsync(struct ufs_req *req)
{
	const struct fuse_fsync_in *in = req->arg;
	cleanup_file struct ufs_file *file = file_of(req, req->in->nodeid, in->fh);
	int r;

	if (!file)
		return -EBADF;
	r = in->fsync_flags & FUSE_FSYNC_FDATASYNC ? fdatasync(file->fd) : fsync(file->fd);
	return r < 0 ? -errno : 0;
}

int ufs_op_fallocate(struct ufs_req *req)
{
	const struct fuse_fallocate_in *in = req->arg;
	cleanup_file struct ufs_file *file = file_of(req, req->in->nodeid, in->fh);

	if (!file)
		return -EBADF;
	ufs_creds_fsetid(&req->w->creds, req->in->uid == 0);
	ufs_creds_charge(&req->w->creds, req->in->uid, req->in->gid);
	if (fallocate(file->fd, (int)in->mode, (off_t)in->offset, (off_t)in->length) < 0)
		return -errno;
	return 0;
}

/*
 * Data and holes of a file.  Where the kernel may have data that the branch has not, all of the
 * file counts as data: what a program takes for a hole it does not copy.
 */
static off_t seek(const struct ufs_file *file, off_t offset, int whence)
{
	struct stat st;
	off_t at;

	if (!ufs_file_may_be_dirty(file->node)) {
		at = lseek(file->fd, offset, whence);
		return at < 0 ? -errno : at;
	}
	if (fstat(file->fd, &st) < 0)
		return -errno;
	if (offset < 0 || offset >= st.st_size)
		return -ENXIO;
	return whence == SEEK_DATA ? offset : st.st_size;
}

int ufs_op_lseek(struct ufs_req *req)
{
	const struct fuse_lseek_in *in = req->arg;
	cleanup_file struct ufs_file *file = file_of(req, req->in->nodeid, in->fh);
	struct fuse_lseek_out *out = ufs_req_out(req, sizeof(*out));
	off_t at;

	if (!file)
		return -EBADF;
	/* Our descriptor's own position means nothing: reads and writes name theirs. */
	if (in->whence != SEEK_DATA && in->whence != SEEK_HOLE)
		return -EINVAL;
	at = seek(file, (off_t)in->offset, (int)in->whence);
	if (at < 0)
		return (int)at;
	out->offset = (uint64_t)at;
	return 0;
}

int ufs_op_copy_file_range(struct ufs_req *req)
{
	const struct fuse_copy_file_range_in *in = req->arg;
	cleanup_file struct ufs_file *from = file_of(req, req->in->nodeid, in->fh_in);
	cleanup_file struct ufs_file *to = file_of(req, in->nodeid_out, in->fh_out);
	struct fuse_write_out *out = ufs_req_out(req, sizeof(*out));
	off_t off_in = (off_t)in->off_in, off_out = (off_t)in->off_out;
	size_t len = in->len < INT32_MAX ? in->len : INT32_MAX;
	ssize_t n;

	if (!from || !to)
		return -EBADF;
	ufs_creds_fsetid(&req->w->creds, req->in->uid == 0);
	ufs_creds_charge(&req->w->creds, req->in->uid, req->in->gid);
	n = copy_file_range(from->fd, &off_in, to->fd, &off_out, len, (unsigned)in->flags);
	if (n < 0)
		/* Between branches the kernel copies by reading and writing. */
		return errno == ENOSYS || errno == EINVAL ? -EOPNOTSUPP : -errno;
	out->size = (uint32_t)n;
	return 0;
}
