/* SPDX-License-Identifier: Apache-2.0 */

/* Open directories. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "union-fs/attr.h"
#include "union-fs/clone.h"
#include "union-fs/listing.h"
#include "union-fs/ops.h"
#include "union-fs/view.h"

enum {
	DOTS = 2, /* "." and "..", which every listing begins with */
};

int ufs_op_opendir(struct ufs_req *req)
{
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, req->in->nodeid);
	struct ufs_open_out *out = ufs_req_out(req, sizeof(*out));

	if (!node)
		return -ESTALE;
	if (!node->is_dir)
		return -ENOTDIR;
	return ufs_opendir_new(node, &out->fh);
}

int ufs_op_releasedir(struct ufs_req *req)
{
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, req->in->nodeid);
	const struct fuse_release_in *in = req->arg;

	return node ? ufs_opendir_close(req->fs, in->fh, node) : -ESTALE;
}

/** struct output - a reply to READDIR or READDIRPLUS while it is filled */
struct output {
	struct ufs_req *req;
	struct ufs_node *dir;
	struct ufs_view *v;
	size_t max;
	bool plus;
};

static size_t entry_size(const struct output *o, size_t name_len)
{
	size_t head = o->plus ? offsetof(struct fuse_direntplus, dirent.name)
			      : offsetof(struct fuse_dirent, name);

	return FUSE_DIRENT_ALIGN(head + name_len);
}

/* Appends an entry; @entry may be NULL: the kernel learns no more than the name.  False: it does
 * not fit. */
static bool put(struct output *o, const char *name, const struct fuse_dirent *head,
		const struct fuse_entry_out *entry)
{
	size_t size = entry_size(o, head->namelen);
	unsigned char *p = o->req->out + o->req->out_len;

	if (o->req->out_len + size > o->max)
		return false;
	memset(p, 0, size);
	if (o->plus) {
		if (entry)
			memcpy(p, entry, sizeof(*entry));
		p += offsetof(struct fuse_direntplus, dirent);
	}
	memcpy(p, head, offsetof(struct fuse_dirent, name));
	memcpy(p + offsetof(struct fuse_dirent, name), name, head->namelen);
	o->req->out_len += size;
	return true;
}

static uint64_t ino_of(struct ufs *fs, struct ufs_node *dir)
{
	cleanup_view struct ufs_view v = { 0 };
	const struct ufs_pin *pin;

	if (ufs_view_open(fs, dir, &v) < 0)
		return 1; /* removed at this moment; 0 would mean "no entry" */
	pin = ufs_view_identity(&v);
	return ufs_ino(&fs->branch[pin->branch], pin->branch, pin->lower->dev, pin->lower->ino);
}

/* "." and ".."; the root is its own parent. */
static bool put_dots(struct output *o, uint64_t at)
{
	cleanup_node struct ufs_node *parent = NULL;
	cleanup_free char *name = NULL;
	struct fuse_dirent head = { .off = at + 1, .namelen = at ? 2 : 1, .type = DT_DIR };
	struct ufs_node *node = o->dir;

	if (at && ufs_node_where(o->dir, &parent, &name) == 0)
		node = parent;
	head.ino = ino_of(o->req->fs, node);
	return put(o, at ? ".." : ".", &head, NULL);
}

/* The number of a directory that has several copies is the oldest one's. */
static uint64_t merged_ino(struct output *o, const char *name, uint64_t fallback)
{
	cleanup_finds struct ufs_finds f = { 0 };
	struct fuse_attr attr;

	if (ufs_find(o->req->fs, o->v, name, &f) < 0)
		return fallback;
	ufs_attr_found(o->req->fs, &f, &attr);
	return attr.ino;
}

static bool put_name(struct output *o, const struct ufs_listing *l, size_t i)
{
	const struct ufs_dent *d = &l->dent[i];
	const char *name = l->names + d->name;
	struct fuse_entry_out entry = { 0 };
	struct fuse_dirent head = {
		.ino = d->ino,
		.off = i + DOTS + 1,
		.namelen = d->len,
		.type = d->type,
	};

	if (o->req->out_len + entry_size(o, d->len) > o->max)
		return false;
	if (o->plus && ufs_lookup(o->dir, o->v, name, &entry, NULL) == 0) {
		head.ino = entry.attr.ino;
		head.type = (entry.attr.mode & S_IFMT) >> 12;
	} else if (d->merged) {
		head.ino = merged_ino(o, name, d->ino);
	}
	return put(o, name, &head, entry.nodeid ? &entry : NULL);
}

/* Fills in what there is at a position, and gives the one behind it. */
static int fill(struct output *o, const struct ufs_listing *l, uint64_t *at)
{
	for (; *at < DOTS; ++*at)
		if (!put_dots(o, *at))
			return 0;
	for (; *at - DOTS < l->n; ++*at)
		if (!put_name(o, l, *at - DOTS))
			return 0;
	/* All that could be read was told; now what could not. */
	return o->req->out_len ? 0 : l->error;
}

/* The position may be another one in a new listing. */
static int listing_for(struct ufs_opendir *d, const struct ufs_view *v, uint64_t *at,
		       struct ufs_listing **ret)
{
	struct ufs_listing *l = *at ? ufs_opendir_listing(d) : NULL;
	int r;

	if (!l) {
		r = ufs_listing_read(d->node->fs, v, &l);
		if (r < 0)
			return r;
		if (*at > DOTS)
			*at = DOTS + ufs_opendir_set_listing(d, l, *at - DOTS);
		else
			(void)ufs_opendir_set_listing(d, l, 0);
	}
	*ret = l;
	return 0;
}

static int read_dir(struct ufs_req *req, bool plus)
{
	const struct fuse_read_in *in = req->arg;
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, req->in->nodeid);
	cleanup_with(ufs_opendir_putp) struct ufs_opendir *d = NULL;
	cleanup_view struct ufs_view v = { 0 };
	struct output o = {
		.req = req,
		.dir = node,
		.v = &v,
		.max = in->size < UFS_REPLY_MAX ? in->size : UFS_REPLY_MAX,
		.plus = plus,
	};
	struct ufs_listing *l = NULL;
	uint64_t at = in->offset;
	int r;

	d = node ? ufs_opendir_get(req->fs, in->fh, node) : NULL;
	if (!d)
		return -EBADF;
	r = ufs_view_open(req->fs, node, &v);
	if (r == 0)
		r = listing_for(d, &v, &at, &l);
	if (r == 0)
		r = fill(&o, l, &at);
	if (r == 0)
		ufs_opendir_told(d, at > DOTS ? at - DOTS : 0);
	ufs_listing_unref(req->fs, l);
	return r;
}

int ufs_op_readdir(struct ufs_req *req)
{
	return read_dir(req, false);
}

int ufs_op_readdirplus(struct ufs_req *req)
{
	return read_dir(req, true);
}

int ufs_op_fsyncdir(struct ufs_req *req)
{
	cleanup_node struct ufs_node *node = ufs_node_get(req->fs, req->in->nodeid);
	cleanup_view struct ufs_view v = { 0 };
	int r, failure;

	if (!node)
		return -ESTALE;
	r = ufs_view_open(req->fs, node, &v);
	if (r < 0)
		return r;
	failure = v.error;
	for (unsigned i = 0; i < v.n; i++) {
		r = ufs_sync_copy(node, &v.pin[i]);
		failure = failure ? failure : r;
	}
	return failure;
}

int ufs_op_syncfs(struct ufs_req *req)
{
	int failure = 0;

	for (unsigned i = 0; i < req->fs->n_branches; i++)
		if (syncfs(req->fs->branch[i].root_fd) < 0)
			failure = -errno;
	return failure;
}
