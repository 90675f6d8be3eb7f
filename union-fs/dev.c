/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * A request is a header, a fixed part, some strings, and the rest.  The table below
 * says for each kind what there must be; parse() checks it against the length that
 * was read, so that nothing behind it looks outside the request.  A name must be one
 * component of a path: nothing that it is joined to can lead out of a branch.
 *
 * A WRITE's data lies on a page: header and fixed part are put right before one.
 */

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "union-fs/dev.h"
#include "union-fs/ops.h"

enum {
	PAGE = 4096,
	WRITE_HEAD = sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in),
};

enum {
	NO_REPLY = 1,  /* not even an error */
	NAME = 2,      /* the strings are names in directories */
	QUICK = 4,     /* does not wait for a disk, as a rule */
	AS_CALLER = 8, /* may be served as whoever the last one was served for; others as root */
};

static const struct op {
	const char *name;
	int (*fn)(struct ufs_req *req);
	uint16_t arg; /* size of the fixed part */
	uint8_t strings;
	uint8_t flags;
} ops[] = {
	[FUSE_LOOKUP] = { "LOOKUP", ufs_op_lookup, 0, 1, NAME },
	[FUSE_FORGET] = { "FORGET", ufs_op_forget, sizeof(struct fuse_forget_in), 0,
			  NO_REPLY | QUICK },
	[FUSE_GETATTR] = { "GETATTR", ufs_op_getattr, sizeof(struct fuse_getattr_in), 0, 0 },
	[FUSE_SETATTR] = { "SETATTR", ufs_op_setattr, sizeof(struct fuse_setattr_in), 0, 0 },
	[FUSE_READLINK] = { "READLINK", ufs_op_readlink, 0, 0, 0 },
	[FUSE_SYMLINK] = { "SYMLINK", ufs_op_symlink, 0, 2, NAME },
	[FUSE_MKNOD] = { "MKNOD", ufs_op_mknod, sizeof(struct fuse_mknod_in), 1, NAME },
	[FUSE_MKDIR] = { "MKDIR", ufs_op_mkdir, sizeof(struct fuse_mkdir_in), 1, NAME },
	[FUSE_UNLINK] = { "UNLINK", ufs_op_unlink, 0, 1, NAME },
	[FUSE_RMDIR] = { "RMDIR", ufs_op_rmdir, 0, 1, NAME },
	[FUSE_RENAME] = { "RENAME", ufs_op_rename, sizeof(struct fuse_rename_in), 2, NAME },
	[FUSE_LINK] = { "LINK", ufs_op_link, sizeof(struct fuse_link_in), 1, NAME },
	[FUSE_OPEN] = { "OPEN", ufs_op_open, sizeof(struct fuse_open_in), 0, 0 },
	[FUSE_READ] = { "READ", ufs_op_read, sizeof(struct fuse_read_in), 0, AS_CALLER },
	[FUSE_WRITE] = { "WRITE", ufs_op_write, sizeof(struct fuse_write_in), 0, AS_CALLER },
	[FUSE_STATFS] = { "STATFS", ufs_op_statfs, 0, 0, 0 },
	[FUSE_RELEASE] = { "RELEASE", ufs_op_release, sizeof(struct fuse_release_in), 0, 0 },
	[FUSE_FSYNC] = { "FSYNC", ufs_op_fsync, sizeof(struct fuse_fsync_in), 0, 0 },
	[FUSE_SETXATTR] = { "SETXATTR", ufs_op_setxattr, sizeof(struct fuse_setxattr_in), 1, 0 },
	[FUSE_GETXATTR] = { "GETXATTR", ufs_op_getxattr, sizeof(struct fuse_getxattr_in), 1, 0 },
	[FUSE_LISTXATTR] = { "LISTXATTR", ufs_op_listxattr, sizeof(struct fuse_getxattr_in), 0, 0 },
	[FUSE_REMOVEXATTR] = { "REMOVEXATTR", ufs_op_removexattr, 0, 1, 0 },
	[FUSE_FLUSH] = { "FLUSH", ufs_op_flush, sizeof(struct fuse_flush_in), 0, 0 },
	[FUSE_OPENDIR] = { "OPENDIR", ufs_op_opendir, sizeof(struct fuse_open_in), 0, QUICK },
	[FUSE_READDIR] = { "READDIR", ufs_op_readdir, sizeof(struct fuse_read_in), 0, 0 },
	[FUSE_RELEASEDIR] = { "RELEASEDIR", ufs_op_releasedir, sizeof(struct fuse_release_in), 0,
			      QUICK },
	[FUSE_FSYNCDIR] = { "FSYNCDIR", ufs_op_fsyncdir, sizeof(struct fuse_fsync_in), 0, 0 },
	[FUSE_CREATE] = { "CREATE", ufs_op_create, sizeof(struct fuse_create_in), 1, NAME },
	/* Requests are served to their end: their calls cannot be interrupted. */
	[FUSE_INTERRUPT] = { "INTERRUPT", NULL, sizeof(struct fuse_interrupt_in), 0,
			     NO_REPLY | QUICK },
	[FUSE_BATCH_FORGET] = { "BATCH_FORGET", ufs_op_batch_forget,
				sizeof(struct fuse_batch_forget_in), 0, NO_REPLY | QUICK },
	[FUSE_FALLOCATE] = { "FALLOCATE", ufs_op_fallocate, sizeof(struct fuse_fallocate_in), 0,
			     0 },
	[FUSE_READDIRPLUS] = { "READDIRPLUS", ufs_op_readdirplus, sizeof(struct fuse_read_in), 0,
			       0 },
	[FUSE_RENAME2] = { "RENAME2", ufs_op_rename2, sizeof(struct fuse_rename2_in), 2, NAME },
	[FUSE_LSEEK] = { "LSEEK", ufs_op_lseek, sizeof(struct fuse_lseek_in), 0, 0 },
	[FUSE_COPY_FILE_RANGE] = { "COPY_FILE_RANGE", ufs_op_copy_file_range,
				   sizeof(struct fuse_copy_file_range_in), 0, 0 },
	[FUSE_SYNCFS] = { "SYNCFS", ufs_op_syncfs, sizeof(struct fuse_syncfs_in), 0, 0 },
	[FUSE_TMPFILE] = { "TMPFILE", ufs_op_tmpfile, sizeof(struct fuse_create_in), 1, 0 },
	[UFS_OP_STATX] = { "STATX", ufs_op_statx, sizeof(struct ufs_statx_in), 0, 0 },
};

static const struct op *find_op(uint32_t opcode)
{
	return opcode < ARRAY_SIZE(ops) && ops[opcode].name ? &ops[opcode] : NULL;
}

bool ufs_dev_is_quick(uint32_t opcode)
{
	const struct op *op = find_op(opcode);

	return !op || op->flags & QUICK;
}

void *ufs_req_out(struct ufs_req *req, size_t size)
{
	memset(req->out, 0, size);
	req->out_len = size;
	return req->out;
}

struct ufs_caller ufs_req_caller(const struct ufs_req *req, uint32_t umask)
{
	return (struct ufs_caller){
		.uid = req->in->uid,
		.gid = req->in->gid,
		.umask = umask & 0777,
		.group = req->has_group ? &req->group : NULL,
	};
}

void ufs_set_valid(uint64_t ms, uint64_t *ret_sec, uint32_t *ret_nsec)
{
	*ret_sec = ms / 1000;
	*ret_nsec = (uint32_t)(ms % 1000) * 1000000;
}

int ufs_worker_init(struct ufs_worker *w, struct ufs *fs)
{
	const size_t in_size = PAGE + UFS_REQUEST_MAX;

	*w = (struct ufs_worker){ .fs = fs, .map_size = in_size + UFS_REPLY_MAX };
	w->map = mmap(NULL, w->map_size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (w->map == MAP_FAILED) {
		w->map = NULL;
		return -ENOMEM;
	}
	w->in = (unsigned char *)w->map + PAGE - WRITE_HEAD;
	w->out = (unsigned char *)w->map + in_size;
	return 0;
}

void ufs_worker_done(struct ufs_worker *w)
{
	if (w->map)
		munmap(w->map, w->map_size);
	w->map = NULL;
}

ssize_t ufs_dev_read(struct ufs_worker *w)
{
	for (;;) {
		ssize_t n = read(w->fs->dev_fd, w->in, UFS_REQUEST_MAX);

		if (n >= 0)
			return n;
		/* ENOENT: the program was killed while its request was being read. */
		if (errno != EINTR && errno != EAGAIN && errno != ENOENT)
			return -errno;
	}
}

static bool is_name(const char *s)
{
	if (!*s || strchr(s, '/'))
		return false;
	return strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

/* Takes a string off the front of the request's rest. */
static const char *take_string(struct ufs_req *req)
{
	const unsigned char *s = req->data,
			    *end = req->data_len ? memchr(s, 0, req->data_len) : NULL;

	if (!end)
		return NULL;
	req->data_len -= (size_t)(end + 1 - s);
	req->data = end + 1;
	return (const char *)s;
}

static int take_strings(const struct op *op, struct ufs_req *req)
{
	if (op->strings >= 1 && !(req->name = take_string(req)))
		return -EINVAL;
	if (op->strings >= 2 && !(req->name2 = take_string(req)))
		return -EINVAL;
	if (!(op->flags & NAME))
		return 0;
	if (!req->name || !is_name(req->name))
		return -EINVAL;
	/* A symlink's second string is what it points to. */
	if (req->name2 && op->fn != ufs_op_symlink && !is_name(req->name2))
		return -EINVAL;
	return 0;
}

/*
 * Extensions stand at the request's end; each is a header of size and type, and a
 * multiple of 8 bytes long.  They are not aligned: a name stands in front of them.
 */
static int take_extensions(struct ufs_req *req)
{
	size_t left = (size_t)req->in->total_extlen * 8;
	const unsigned char *p;

	if (left > req->data_len)
		return -EINVAL;
	req->data_len -= left;
	p = req->data + req->data_len;
	while (left > 0) {
		struct fuse_ext_header h;
		uint32_t n;

		if (left < sizeof(h))
			return -EINVAL;
		memcpy(&h, p, sizeof(h));
		if (h.size < sizeof(h) || h.size > left || h.size % 8)
			return -EINVAL;
		if (h.type == UFS_EXT_GROUPS && h.size >= sizeof(h) + 2 * sizeof(n)) {
			memcpy(&n, p + sizeof(h), sizeof(n));
			memcpy(&req->group, p + sizeof(h) + sizeof(n), sizeof(req->group));
			req->has_group = n >= 1;
		}
		p += h.size;
		left -= h.size;
	}
	return 0;
}

int ufs_dev_parse(struct ufs_worker *w, size_t n, struct ufs_req *ret)
{
	const struct fuse_in_header *in = (const void *)w->in;
	const struct op *op;
	int r;

	*ret = (struct ufs_req){ .fs = w->fs, .w = w, .in = in, .out = w->out };
	if (n < sizeof(*in))
		return -EPROTO;
	if (in->len != n)
		return -EINVAL;
	op = find_op(in->opcode);
	if (!op)
		return -ENOSYS;
	ret->data = w->in + sizeof(*in);
	ret->data_len = n - sizeof(*in);
	if (ret->data_len < op->arg)
		return -EINVAL;
	ret->arg = ret->data;
	ret->data += op->arg;
	ret->data_len -= op->arg;
	r = take_extensions(ret);
	return r < 0 ? r : take_strings(op, ret);
}

static int send_message(struct ufs *fs, uint64_t unique, int error, const void *body, size_t n)
{
	struct fuse_out_header h = {
		.len = (uint32_t)(sizeof(h) + n),
		.error = error,
		.unique = unique,
	};
	const struct iovec iov[2] = {
		{ .iov_base = &h, .iov_len = sizeof(h) },
		{ .iov_base = (void *)(uintptr_t)body, .iov_len = n },
	};

	return writev(fs->dev_fd, iov, n ? 2 : 1) < 0 ? -errno : 0;
}

int ufs_dev_reply(struct ufs *fs, uint64_t unique, int error, const void *body, size_t n)
{
	return send_message(fs, unique, error, body, error ? 0 : n);
}

void ufs_notify_attr(struct ufs *fs, const struct ufs_node *node)
{
	const struct fuse_notify_inval_inode_out body = { .ino = ufs_node_id(node), .off = -1 };

	/* -ENOENT: the kernel does not know the node, so it has no attributes of it. */
	(void)send_message(fs, 0, FUSE_NOTIFY_INVAL_INODE, &body, sizeof(body));
}

/* Errors that the protocol knows; the kernel takes others for a broken reply. */
static int clean_error(int r)
{
	return r > 0 || r <= -512 ? -EIO : r;
}

void ufs_dev_serve(struct ufs_worker *w, size_t n)
{
	const struct op *op;
	struct ufs_req req;
	int r;

	r = ufs_dev_parse(w, n, &req);
	if (r == -EPROTO) {
		log_err("a request of %zu bytes is no request", n);
		return;
	}
	op = find_op(req.in->opcode);
	if (r == 0 && !(op->flags & AS_CALLER))
		ufs_creds_root(&w->creds);
	if (r == 0 && op->fn)
		r = clean_error(op->fn(&req));
	log_debug("%s node %llu: %d", op ? op->name : "?", (unsigned long long)req.in->nodeid, r);
	if (op && op->flags & NO_REPLY)
		return;
	r = ufs_dev_reply(w->fs, req.in->unique, r, req.out, req.out_len);
	if (r < 0 && r != -ENOENT && r != -ENODEV)
		log_err("answer to %s was refused: error %d", op ? op->name : "?", -r);
}
