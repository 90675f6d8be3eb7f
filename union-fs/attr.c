/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "union-fs/attr.h"
#include "union-fs/file.h"
#include "union-fs/node.h"
#include "union-fs/view.h"

#define INO_BITS 48
#define MIXED (UINT64_C(1) << 63)

uint64_t ufs_ino(const struct ufs_branch *b, unsigned index, dev_t dev, ino_t ino)
{
	uint64_t x;

	if (dev == b->dev && ino < UINT64_C(1) << INO_BITS)
		return (uint64_t)index << INO_BITS | ino;
	x = (uint64_t)ino ^ (uint64_t)dev * UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (x ^ x >> 31) | MIXED;
}

static int compare_time(const struct statx_timestamp *a, const struct statx_timestamp *b)
{
	if (a->tv_sec != b->tv_sec)
		return a->tv_sec < b->tv_sec ? -1 : 1;
	return a->tv_nsec == b->tv_nsec ? 0 : a->tv_nsec < b->tv_nsec ? -1 : 1;
}

bool ufs_older(const struct statx *a, const struct statx *b)
{
	/* Without times of birth, the order of the branches is all there is. */
	if (!(a->stx_mask & STATX_BTIME) || !(b->stx_mask & STATX_BTIME))
		return true;
	return compare_time(&a->stx_btime, &b->stx_btime) <= 0;
}

static void later(struct statx_timestamp *t, const struct statx_timestamp *other)
{
	if (compare_time(t, other) < 0)
		*t = *other;
}

void ufs_attr_file(const struct ufs *fs, unsigned branch, const struct statx *st,
		   struct fuse_attr *ret)
{
	*ret = (struct fuse_attr){
		.ino = ufs_ino(&fs->branch[branch], branch,
			       makedev(st->stx_dev_major, st->stx_dev_minor), st->stx_ino),
		.size = st->stx_size,
		.blocks = st->stx_blocks,
		.atime = (uint64_t)st->stx_atime.tv_sec,
		.mtime = (uint64_t)st->stx_mtime.tv_sec,
		.ctime = (uint64_t)st->stx_ctime.tv_sec,
		.atimensec = st->stx_atime.tv_nsec,
		.mtimensec = st->stx_mtime.tv_nsec,
		.ctimensec = st->stx_ctime.tv_nsec,
		.mode = st->stx_mode,
		.nlink = st->stx_nlink,
		.uid = st->stx_uid,
		.gid = st->stx_gid,
		/* The kernel's new_encode_dev(). */
		.rdev = (st->stx_rdev_minor & 0xff) | st->stx_rdev_major << 8 |
			(st->stx_rdev_minor & ~0xffU) << 12,
		.blksize = st->stx_blksize,
	};
}

void ufs_attr_merge_add(struct ufs_attr_merge *m, unsigned branch, const struct statx *st)
{
	if (!m->n++) {
		m->branch = branch;
		m->st = *st;
		return;
	}
	if (ufs_older(&m->st, st)) {
		later(&m->st.stx_atime, &st->stx_atime);
		later(&m->st.stx_mtime, &st->stx_mtime);
		later(&m->st.stx_ctime, &st->stx_ctime);
	} else {
		struct statx so_far = m->st;

		m->st = *st;
		m->branch = branch;
		later(&m->st.stx_atime, &so_far.stx_atime);
		later(&m->st.stx_mtime, &so_far.stx_mtime);
		later(&m->st.stx_ctime, &so_far.stx_ctime);
	}
}

void ufs_attr_merge_end(const struct ufs *fs, const struct ufs_attr_merge *m, struct fuse_attr *ret)
{
	ufs_attr_file(fs, m->branch, &m->st, ret);
	/* Subdirectories are not counted over the branches; 1 tells programs not to rely on it. */
	if (m->n > 1)
		ret->nlink = 1;
}

void ufs_attr_found(const struct ufs *fs, const struct ufs_finds *f, struct fuse_attr *ret)
{
	struct ufs_attr_merge m = { 0 };

	for (unsigned i = 0; i < f->n; i++)
		ufs_attr_merge_add(&m, f->found[i].branch, &f->found[i].st);
	ufs_attr_merge_end(fs, &m, ret);
}

static int stat_fd(int fd, struct statx *ret)
{
	if (statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_BTIME, ret) <
	    0)
		return -errno;
	return 0;
}

static int attr_dir(struct ufs *fs, struct ufs_node *node, struct ufs_attr_merge *m)
{
	cleanup_view struct ufs_view v = { 0 };
	int r, failure = 0;

	r = ufs_view_open(fs, node, &v);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < v.n; i++) {
		struct statx st;

		r = stat_fd(v.pin[i].fd, &st);
		if (r == 0)
			ufs_attr_merge_add(m, v.pin[i].branch, &st);
		else
			failure = r;
	}
	return m->n ? 0 : failure;
}

int ufs_attr_node(struct ufs *fs, struct ufs_node *node, int fh_fd, struct fuse_attr *ret,
		  struct statx_timestamp *ret_btime)
{
	struct ufs_attr_merge m = { 0 };
	int r;

	if (node->is_dir) {
		r = attr_dir(fs, node, &m);
	} else {
		cleanup_fd int opened = fh_fd < 0 ? ufs_node_path_fd(fs, node) : -1;
		int fd = fh_fd < 0 ? opened : fh_fd;

		m.n = 1;
		m.branch = node->lower->branch;
		r = fd < 0 ? fd : stat_fd(fd, &m.st);
	}
	if (r < 0)
		return r;
	ufs_attr_merge_end(fs, &m, ret);
	if (ret_btime)
		*ret_btime = m.st.stx_mask & STATX_BTIME ? m.st.stx_btime
							 : (struct statx_timestamp){ 0 };
	return 0;
}
