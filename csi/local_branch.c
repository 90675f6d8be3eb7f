/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation: what may be formatted
 *
 * A branch's device gets its filesystem once.  The state records, durably,
 * `formatting` before mkfs begins and `formatted` after it has ended; the
 * filesystem's UUID is chosen before.  The file beside the branch says
 * `formatted` too, for the day on which the state is lost.
 *
 *    recorded     device carries              done
 *    never        nothing                     record `formatting`, mkfs, record `formatted`
 *    never        anything                    refused: not ours
 *    formatting   nothing, or our UUID        mkfs again, record `formatted`
 *    formatting   anything else               refused
 *    formatted    our filesystem and UUID     nothing
 *    formatted    nothing, or anything else   refused: the device was lost or replaced
 *
 * A probe that could not read, or that found several signatures, is never
 * "nothing".
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "csi/inventory.h"
#include "csi/local.h"
#include "csi/status.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/os/blk.h"
#include "lib/os/fd.h"
#include "lib/os/mkfs.h"
#include "lib/os/statfs.h"
#include "lib/vol/split.h"

enum {
	SIDECAR_VERSION = 1,
	SIDECAR_MAX = 4 << 20,
	STATFS_MS = 10000,
};

const char *csi_branch_name(char to[static CSI_BRANCH_NAME_SIZE], const char *id, size_t i,
			    const char *suffix)
{
	snprintf(to, CSI_BRANCH_NAME_SIZE, "%s.%zu%s", id, i, suffix);
	return to;
}

/*
 * The volume as the file beside branch @i describes it: what never changes, and whether
 * that branch is formatted.
 */
static json_t *sidecar_to_json(const struct uc_volume *v, size_t i)
{
	cleanup_free struct uc_branch *branches = calloc(v->n_branches, sizeof(*branches));
	struct uc_volume plain = *v;

	if (!branches)
		return NULL;
	memcpy(branches, v->branches, v->n_branches * sizeof(*branches));
	for (size_t k = 0; k < v->n_branches; k++)
		branches[k].file_dev = branches[k].file_ino = 0;
	plain.branches = branches;
	plain.phase = UC_VOLUME_READY;
	plain.n_attachments = 0;
	plain.n_publishes = 0;
	plain.initialised = false;
	plain.stage = (struct uc_stage){ .phase = UC_STAGE_NONE };
	return json_pack("{s:i, s:I, s:o}", "version", SIDECAR_VERSION, "index", (json_int_t)i,
			 "volume", uc_volume_to_json(&plain));
}

static int write_sidecar(int pool_fd, const struct uc_volume *v, size_t i, struct uc_err *err)
{
	cleanup_json json_t *object = sidecar_to_json(v, i);
	cleanup_free char *text = object ? uc_json_format(object) : NULL;
	char name[CSI_BRANCH_NAME_SIZE];

	csi_branch_name(name, v->id, i, CSI_SIDECAR);
	if (!text)
		return uc_fail(err, ENOMEM, "write `%s`", name);
	return uc_replace_file_at(pool_fd, name, text, strlen(text), 0600, err);
}

int csi_sidecar_read(int pool_fd, const char *name, struct uc_volume *ret_v, size_t *ret_index,
		     struct uc_err *err)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	cleanup_json json_t *object = NULL;
	uint64_t version = 0, index = 0;
	json_t *volume;
	int r;

	r = uc_read_file_at(pool_fd, name, SIDECAR_MAX, &b);
	if (r < 0)
		return r == -ENOENT ? r : uc_fail(err, -r, "read `%s`", name);
	r = uc_json_parse(b.data, b.len, &object, err);
	if (r == 0)
		r = uc_json_get_u64(object, "version", true, INT32_MAX, &version, err);
	if (r == 0 && version != SIDECAR_VERSION)
		r = uc_fail_as(err, EINVAL, 0, "field `version` is %llu",
			       (unsigned long long)version);
	if (r == 0)
		r = uc_json_get_u64(object, "index", true, UC_BRANCHES_MAX - 1, &index, err);
	if (r == 0)
		r = uc_json_get_object(object, "volume", true, &volume, err);
	if (r == 0)
		r = uc_volume_from_json(volume, ret_v, err);
	if (r < 0)
		return uc_wrap(err, r == -ENOENT ? -EINVAL : r, "read `%s`", name);
	if (index >= ret_v->n_branches) {
		uc_volume_done(ret_v);
		return uc_fail_as(err, EINVAL, 0, "read `%s`: index %llu of too few branches", name,
				  (unsigned long long)index);
	}
	*ret_index = index;
	return 0;
}

/* Says why, by errno, a file does not get its size. */
static int fail_allocate(int fd, const char *name, uint64_t size, struct uc_err *err)
{
	unsigned long long bytes = size;
	struct uc_statfs usage;
	int num = errno;

	if (num == EOPNOTSUPP)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"allocate `%s`: the pool's filesystem cannot reserve space; use "
				"--thin",
				name);
	if (num == EFBIG)
		return csi_fail(err, UC_GRPC_OUT_OF_RANGE,
				"allocate %llu bytes for `%s`: the pool's filesystem has no files "
				"that large",
				bytes, name);
	/* What it got before there was no more must not count as taken. */
	if (num == ENOSPC && ftruncate(fd, 0) == 0 &&
	    uc_statfs_bounded(fd, STATFS_MS, &usage, NULL) == 0)
		return csi_fail(err, UC_GRPC_RESOURCE_EXHAUSTED,
				"allocate %llu bytes for `%s`: the pool has %llu bytes free", bytes,
				name, (unsigned long long)usage.available);
	return uc_fail(err, num, "allocate %llu bytes for `%s`", bytes, name);
}

static int make_image(int pool_fd, const char *name, uint64_t size, bool thin, struct uc_err *err)
{
	cleanup_fd int fd = -1;

	fd = openat(pool_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return uc_fail(err, errno, "create `%s`", name);
	if (thin ? ftruncate(fd, (off_t)size) < 0 : fallocate(fd, 0, 0, (off_t)size) < 0)
		return fail_allocate(fd, name, size, err);
	if (fsync(fd) < 0 || fsync(pool_fd) < 0)
		return uc_fail(err, errno, "sync `%s`", name);
	return 0;
}

int csi_branch_make(struct csi_local *l, const struct uc_volume *v, size_t i, struct uc_err *err)
{
	char name[CSI_BRANCH_NAME_SIZE];
	cleanup_fd int pool_fd = -1;
	int r;

	pool_fd = csi_pools_open_uuid(l->pools, v->branches[i].pool, err);
	if (pool_fd < 0)
		return pool_fd;
	r = write_sidecar(pool_fd, v, i, err);
	if (r == 0)
		r = make_image(pool_fd, csi_branch_name(name, v->id, i, CSI_IMAGE),
			       v->branches[i].size, v->thin, err);
	return r < 0 ? uc_wrap(err, r, "make branch %zu", i) : 0;
}

int csi_branch_remove(struct csi_local *l, const struct uc_volume *v, size_t i, struct uc_err *err)
{
	char image[CSI_BRANCH_NAME_SIZE], sidecar[CSI_BRANCH_NAME_SIZE];
	cleanup_volume struct uc_volume found = { .n_branches = 0 };
	cleanup_fd int pool_fd = -1;
	size_t index = 0;
	int r;

	csi_branch_name(image, v->id, i, CSI_IMAGE);
	csi_branch_name(sidecar, v->id, i, CSI_SIDECAR);
	pool_fd = csi_pools_open_uuid(l->pools, v->branches[i].pool, err);
	if (pool_fd < 0)
		return pool_fd;
	r = csi_sidecar_read(pool_fd, sidecar, &found, &index, err);
	if (r == -ENOENT) {
		/* The image is made after, and removed before, its JSON file. */
		if (faccessat(pool_fd, image, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
					"`%s` has no `%s` beside it: not removed", image, sidecar);
		return uc_remove_file_at(pool_fd, sidecar, err); /* what was not wholly written */
	}
	if (r < 0)
		return r;
	if (index != i || strcmp(found.branches[i].uuid, v->branches[i].uuid) != 0)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"`%s` belongs to another volume of that name: not removed", image);
	r = uc_remove_file_at(pool_fd, image, err);
	if (r == 0)
		r = uc_remove_file_at(pool_fd, sidecar, err);
	return r < 0 ? uc_wrap(err, r, "remove branch %zu", i) : 0;
}

static int open_image(struct csi_local *l, const struct uc_volume *v, size_t i, struct stat *ret_st,
		      struct uc_err *err)
{
	char name[CSI_BRANCH_NAME_SIZE];
	cleanup_fd int pool_fd = -1, fd = -1;

	pool_fd = csi_pools_open_uuid(l->pools, v->branches[i].pool, err);
	if (pool_fd < 0)
		return pool_fd;
	csi_branch_name(name, v->id, i, CSI_IMAGE);
	fd = openat(pool_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION, "`%s` is missing in its pool",
				name);
	if (fd < 0 || fstat(fd, ret_st) < 0)
		return uc_fail(err, errno, "open `%s`", name);
	if (!S_ISREG(ret_st->st_mode) || (uint64_t)ret_st->st_size != v->branches[i].size)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"`%s` is not a file of %llu bytes", name,
				(unsigned long long)v->branches[i].size);
	return take_fd(&fd);
}

/*
 * A pool that was mounted anew may give its files other numbers: a second device on what is the
 * same file would be a second filesystem on it.
 */
static int check_not_attached(struct csi_local *l, const struct uc_volume *v, size_t i,
			      const struct stat *st, struct uc_err *err)
{
	const struct uc_branch *b = &v->branches[i];
	struct uc_loopdev loop;
	int r;

	if (!b->file_ino || (b->file_dev == st->st_dev && b->file_ino == st->st_ino))
		return 0;
	r = csi_branch_find(l, v, i, &loop, err);
	if (r == 0)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"`%s` has another file behind it than is in the pool now: unstage "
				"the volume",
				UC_LOOPDEV_PATH(&loop));
	return r == -ENOENT ? 0 : r;
}

int csi_branch_attach(struct csi_local *l, struct uc_volume *v, size_t i,
		      struct uc_loopdev *ret_loop, struct uc_err *err)
{
	char name[CSI_BRANCH_NAME_SIZE];
	cleanup_fd int fd = -1;
	struct stat st;
	int r;

	fd = open_image(l, v, i, &st, err);
	if (fd < 0)
		return uc_wrap(err, fd, "attach branch %zu", i);
	r = check_not_attached(l, v, i, &st, err);
	if (r == 0)
		r = uc_loopdev_attach(fd, csi_branch_name(name, v->id, i, CSI_IMAGE), ret_loop,
				      err);
	if (r < 0)
		return uc_wrap(err, r, "attach branch %zu", i);
	v->branches[i].file_dev = st.st_dev;
	v->branches[i].file_ino = st.st_ino;
	return 0;
}

int csi_branch_reserve(struct csi_local *l, const struct uc_volume *v, size_t i,
		       const struct uc_loopdev *loop, struct uc_err *err)
{
	cleanup_fd int fd = -1;
	struct stat st;
	int r;

	if (v->thin)
		return 0;
	r = uc_loopdev_forbid_discard(loop, err);
	if (r < 0)
		return r;
	fd = open_image(l, v, i, &st, err);
	if (fd < 0)
		return fd;
	/* Fills what was punched before; nothing to do otherwise. */
	if (fallocate(fd, 0, 0, st.st_size) == 0)
		return 0;
	/* XFS asks for the whole size to be free, also where the file has all of its blocks. */
	if (errno == ENOSPC && st.st_blocks * 512 >= st.st_size)
		return 0;
	return uc_fail(err, errno, "reserve the space of branch %zu", i);
}

int csi_branch_find(struct csi_local *l, const struct uc_volume *v, size_t i,
		    struct uc_loopdev *ret_loop, struct uc_err *err)
{
	const struct uc_branch *b = &v->branches[i];
	char name[CSI_BRANCH_NAME_SIZE];
	cleanup_fd int pool_fd = -1;
	struct uc_err ignored;
	struct stat st;

	csi_branch_name(name, v->id, i, CSI_IMAGE);
	if (b->file_ino)
		return uc_loopdev_find(b->file_dev, b->file_ino, name, ret_loop, err);
	/* Not noted: a crash came between attaching and storing the state, or it is not attached.
	 */
	pool_fd = csi_pools_open_uuid(l->pools, b->pool, &ignored);
	if (pool_fd < 0)
		return -ENOENT;
	if (fstatat(pool_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -ENOENT : uc_fail(err, errno, "stat `%s`", name);
	return uc_loopdev_find(st.st_dev, st.st_ino, name, ret_loop, err);
}

/* 0: nothing to do; positive: format, the value 2 also over what is there; else refused. */
static int judge(const struct uc_volume *v, size_t i, const struct uc_blk_content *content,
		 struct uc_err *err)
{
	const struct uc_branch *b = &v->branches[i];
	bool blank = content->kind == UC_BLK_BLANK;
	bool ours = content->kind == UC_BLK_FILESYSTEM && strcmp(content->uuid, b->uuid) == 0;

	if (b->format == UC_FORMAT_DONE && ours && strcmp(content->type, v->fstype) == 0)
		return 0;
	if (b->format == UC_FORMAT_NEVER && blank)
		return 1;
	if (b->format == UC_FORMAT_STARTED && (blank || ours))
		return 2;
	if (content->kind == UC_BLK_AMBIVALENT)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"branch %zu carries several signatures that exclude each other", i);
	return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
			"branch %zu carries %s %s, but %s %s %s was expected: it is not touched", i,
			blank ? "nothing" : UC_PRINTABLE(content->type),
			blank ? "" : UC_PRINTABLE(content->uuid),
			b->format == UC_FORMAT_NEVER ? "nothing rather than" : "", v->fstype,
			b->uuid);
}

static int describe(struct csi_local *l, const struct uc_volume *v, size_t i, struct uc_err *err)
{
	cleanup_fd int pool_fd = csi_pools_open_uuid(l->pools, v->branches[i].pool, err);

	return pool_fd < 0 ? pool_fd : write_sidecar(pool_fd, v, i, err);
}

static int set_format(struct csi_local *l, struct uc_volume_lock *lock, struct uc_volume *v,
		      size_t i, enum uc_format format, struct uc_err *err)
{
	enum uc_format was = v->branches[i].format;
	int r = 0;

	v->branches[i].format = format;
	if (format == UC_FORMAT_DONE) /* first: nobody has data on it yet */
		r = describe(l, v, i, err);
	if (r == 0)
		r = csi_store(lock, v, err);
	if (r < 0)
		v->branches[i].format = was;
	return r;
}

static int beat(void *data)
{
	return csi_beat(data);
}

int csi_branch_format(struct csi_local *l, const struct csi_op *op, struct uc_volume_lock *lock,
		      struct uc_volume *v, size_t i, const char *device, struct uc_err *err)
{
	struct uc_mkfs mkfs = {
		.device = device,
		.fstype = v->fstype,
		.uuid = v->branches[i].uuid,
		.keep_allocated = !v->thin,
		.tick = beat,
		.tick_data = (void *)(uintptr_t)op,
	};
	struct uc_blk_content content;
	cleanup_fd int fd = -1;
	int r;

	fd = open(mkfs.device, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return uc_fail(err, errno, "open `%s`", mkfs.device);
	r = uc_blk_probe(fd, &content, err);
	if (r < 0)
		return uc_wrap(err, r, "branch %zu", i);
	uc_closep(&fd);
	r = judge(v, i, &content, err);
	if (r <= 0)
		return r;
	mkfs.force = r == 2;
	r = csi_step(op, err, "format branch %zu of %zu", i, v->n_branches);
	if (r == 0 && v->branches[i].format != UC_FORMAT_STARTED)
		r = set_format(l, lock, v, i, UC_FORMAT_STARTED, err);
	if (r == 0)
		r = uc_mkfs_run(&mkfs, err);
	if (r == 0)
		r = set_format(l, lock, v, i, UC_FORMAT_DONE, err);
	return r < 0 ? uc_wrap(err, r, "format branch %zu", i) : 0;
}
