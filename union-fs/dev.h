/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Requests: read from /dev/fuse, validated, dispatched, answered once. */

#include "union-fs/creds.h"
#include "union-fs/fuse_abi.h"
#include "union-fs/node.h"
#include "union-fs/ufs.h"

enum {
	UFS_XATTR_MAX = 65536, /* the kernel's XATTR_SIZE_MAX and XATTR_LIST_MAX */
	/* Largest request: a WRITE, or whatever the kernel puts beside names. */
	UFS_REQUEST_MAX = UFS_MAX_WRITE + 4096,
	UFS_REPLY_MAX = UFS_MAX_WRITE,
};

/** struct ufs_worker - a thread that serves requests */
struct ufs_worker {
	struct ufs *fs;
	struct ufs_creds creds;
	unsigned char *in; /* UFS_REQUEST_MAX bytes, placed so that a WRITE's data lies on a page */
	unsigned char *out; /* UFS_REPLY_MAX bytes, on a page */
	void *map;          /* both */
	size_t map_size;
};

/** struct ufs_req - one request */
struct ufs_req {
	struct ufs *fs;
	struct ufs_worker *w;
	const struct fuse_in_header *in;
	const void *arg; /* the fixed part, complete */
	const char *name,
		*name2; /* strings that follow it: as many as the table says, within the request */
	const unsigned char *data; /* what follows those */
	size_t data_len;
	uint32_t group; /* a supplementary group of the caller that matters */
	bool has_group;
	unsigned char *out; /* the reply's body */
	size_t out_len;     /* how much of it; at most UFS_REPLY_MAX */
};

/** ufs_req_out() - The reply's body as a zeroed structure of @size bytes */
void *ufs_req_out(struct ufs_req *req, size_t size);

/** ufs_req_caller() - Who asks, for ufs_creds_as() */
struct ufs_caller ufs_req_caller(const struct ufs_req *req, uint32_t umask);

/** ufs_worker_init() - Allocate a worker's buffers; 0 or -ENOMEM.  Credentials are the thread's to
 * set */
int ufs_worker_init(struct ufs_worker *w, struct ufs *fs);

/** ufs_worker_done() - Release them; a zeroed worker is allowed */
void ufs_worker_done(struct ufs_worker *w);

/**
 * ufs_dev_read() - Wait for a request
 * Return: its length; -ENODEV: the session is over; another negative errno
 */
ssize_t ufs_dev_read(struct ufs_worker *w);

/** ufs_dev_serve() - Serve the request of @n bytes that lies in @w->in, and answer it */
void ufs_dev_serve(struct ufs_worker *w, size_t n);

/**
 * ufs_dev_parse() - Validate a request
 * @w:		Worker; the request lies in @w->in
 * @n:		How many bytes were read
 * @ret:	Result, for ufs_dev_call()
 *
 * Return: 0; -ENOSYS (not served); -EINVAL (malformed: only the header may be used); -EPROTO (not
 * even a header)
 */
int ufs_dev_parse(struct ufs_worker *w, size_t n, struct ufs_req *ret);

/** ufs_dev_reply() - Answer: @error is 0 or a negative errno.  0 or a negative errno (-ENOENT:
 * nobody waits any more) */
int ufs_dev_reply(struct ufs *fs, uint64_t unique, int error, const void *body, size_t n);

/** ufs_notify_attr() - Make the kernel forget a node's attributes */
void ufs_notify_attr(struct ufs *fs, const struct ufs_node *node);

/** ufs_set_valid() - Split a time in milliseconds as the protocol wants it */
void ufs_set_valid(uint64_t ms, uint64_t *ret_sec, uint32_t *ret_nsec);

/** ufs_dev_is_quick() - Whether requests of a kind end at once, so that nobody else must be there
 * to serve others */
bool ufs_dev_is_quick(uint32_t opcode);
