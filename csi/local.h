/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The local backend: several of this machine's disks become one volume.
 *
 * Branch i of a volume is the file <id>.<i>.img in pool i mod n, beside it
 * <id>.<i>.json from which a lost state directory is rebuilt.  The files are
 * attached as loop devices, formatted when the volume is first staged, and
 * mounted by the volume server; a volume of one device (one branch, or the mapped
 * device of the layouts linear and striped) is mounted by us.
 */

#include "csi/backend.h"
#include "csi/pool.h"
#include "lib/base/cleanup.h"
#include "lib/os/dm.h"
#include "lib/os/loopdev.h"
#include "lib/vol/store.h"

/** struct csi_local_config - how to set it up; strings are borrowed for the call */
struct csi_local_config {
	char *const *pools;   /* directories, ended by NULL */
	bool thin;            /* sparse files: space is taken when it is written */
	const char *union_fs; /* the volume server's program */
	const char *node_id;
	bool has_controller, has_node; /* which halves run in this process */
};

/** struct csi_local - the backend; its files' own */
struct csi_local {
	struct csi_backend base;
	const struct uc_store *store;
	struct csi_pools *pools;
	bool thin;
	char *union_fs;
	char *node_id;
	bool has_controller, has_node;
};

/**
 * csi_local_new() - Set the local backend up
 * @config:	How
 * @store:	Borrowed; must outlive the backend
 * @ret_local:	Result
 */
int csi_local_new(const struct csi_local_config *config, const struct uc_store *store,
		  struct csi_local **ret_local, struct uc_err *err);

/** csi_local_free() - Release; NULL is allowed */
void csi_local_free(struct csi_local *l);

UC_DEFINE_CLEANUP(struct csi_local *, csi_local_free)

/*
 * Within the backend.  What each does is described where it stands in struct
 * csi_backend_ops; those of a branch are below.
 */
int csi_local_create(struct csi_backend *b, const struct csi_op *op,
		     const struct csi_create *create, struct csi_volume_info *ret_info,
		     struct uc_err *err);
int csi_local_remove(struct csi_backend *b, const struct csi_op *op, const char *id,
		     struct uc_err *err);
int csi_local_up(struct csi_backend *b, const struct csi_op *op, struct uc_volume_lock *lock,
		 struct uc_volume *v, struct uc_err *err);
int csi_local_down(struct csi_backend *b, const struct csi_op *op, struct uc_volume_lock *lock,
		   struct uc_volume *v, struct uc_err *err);
int csi_local_check_up(struct csi_backend *b, const struct uc_volume *v, struct uc_err *err);
bool csi_local_owns_mount(struct csi_backend *b, const struct uc_volume *v,
			  const struct uc_mount_info *info);
bool csi_local_has_leftovers(struct csi_backend *b, const struct uc_volume *v);
int csi_local_repair(struct csi_backend *b, const struct csi_op *op, struct uc_volume_lock *lock,
		     struct uc_volume *v, struct uc_err *err);
void csi_local_report_orphans(struct csi_backend *b);

/** csi_local_erase() - Remove a volume's files and state; phase CREATING or DELETING only; releases
 * @lock.  FAILED_PRECONDITION if anything of the volume is still up and cannot be taken down */
int csi_local_erase(struct csi_local *l, const struct csi_op *op, struct uc_volume_lock *lock,
		    struct uc_volume *v, struct uc_err *err);

/**
 * csi_local_find_use() - Where a volume's filesystem is mounted, besides merged/
 * @dir_fd:	The volume's directory (borrowed)
 * @ret_place:	One such place (owned); NULL if there is none
 *
 * Return: 0, positive if there is such a place, or a negative errno
 */
int csi_local_find_use(struct csi_local *l, int dir_fd, const struct uc_volume *v, char **ret_place,
		       struct uc_err *err);

/** csi_local_info() - What a CO is told of a volume; 0 or -ENOMEM */
int csi_local_info(const struct uc_volume *v, struct csi_volume_info *ret_info, struct uc_err *err);

/** CSI_BRANCH_NAME_SIZE - room for a branch file's name */
#define CSI_BRANCH_NAME_SIZE (UC_VOLUME_ID_SIZE + 16)

/** csi_branch_name() - "<id>.<i><suffix>"; returns @to */
const char *csi_branch_name(char to[static CSI_BRANCH_NAME_SIZE], const char *id, size_t i,
			    const char *suffix);

/** csi_branch_make() - Make a branch's two files, durably; on failure some of it may exist */
int csi_branch_make(struct csi_local *l, const struct uc_volume *v, size_t i, struct uc_err *err);

/** csi_branch_remove() - Remove a branch's files; 0 also if they are gone; FAILED_PRECONDITION if
 * they are another volume's */
int csi_branch_remove(struct csi_local *l, const struct uc_volume *v, size_t i, struct uc_err *err);

/** csi_branch_attach() - Have a branch's file behind a loop device; notes the file in the volume's
 * state (not stored) */
int csi_branch_attach(struct csi_local *l, struct uc_volume *v, size_t i,
		      struct uc_loopdev *ret_loop, struct uc_err *err);

/**
 * csi_branch_reserve() - See to it that a branch's file has all its space, and keeps it (unless the
 * volume is thin)
 *
 * To be called after formatting: zeroes that mkfs wants are then ranges of the file, not written
 * blocks.
 */
int csi_branch_reserve(struct csi_local *l, const struct uc_volume *v, size_t i,
		       const struct uc_loopdev *loop, struct uc_err *err);

/** csi_branch_find() - The loop device of a branch that is attached; -ENOENT if it has none */
int csi_branch_find(struct csi_local *l, const struct uc_volume *v, size_t i,
		    struct uc_loopdev *ret_loop, struct uc_err *err);

/**
 * csi_branch_format() - Have a filesystem on a branch's device, by the rule of lib/vol/state.h;
 * stores the state, and says so in the file beside the branch
 * @device:	The branch's device; for branch 0 of a volume with segments, the device over all of
 * them, whose filesystem is recorded there
 */
int csi_branch_format(struct csi_local *l, const struct csi_op *op, struct uc_volume_lock *lock,
		      struct uc_volume *v, size_t i, const char *device, struct uc_err *err);

/** csi_map_up() - Have the device of a volume with segments, over @loops; FAILED_PRECONDITION where
 * the kernel has no device-mapper or a branch is in use */
int csi_map_up(const struct uc_volume *v, const struct uc_loopdev *loops, dev_t *ret_dev,
	       struct uc_err *err);

/** csi_map_find() - The device of a volume with segments; -ENOENT if it has none */
int csi_map_find(const struct uc_volume *v, dev_t *ret_dev, struct uc_err *err);

/** csi_map_down() - Take the device of a volume with segments away; 0 also if there is none;
 * FAILED_PRECONDITION if it is in use */
int csi_map_down(const struct uc_volume *v, struct uc_err *err);

/** csi_sidecar_read() - Read the volume that a branch's JSON file describes; -ENOENT if there is
 * none */
int csi_sidecar_read(int pool_fd, const char *name, struct uc_volume *ret_v, size_t *ret_index,
		     struct uc_err *err);

/**
 * CSI_BRANCH_OVERHEAD - what a branch may take of a pool besides its size
 *
 * Its JSON file, twice while that is replaced, and what the pool's filesystem notes of the
 * image's blocks, also where these are in many pieces.
 */
#define CSI_BRANCH_OVERHEAD (1 << 20)

/** CSI_IMAGE, CSI_SIDECAR - suffixes of a branch's two files */
#define CSI_IMAGE ".img"
#define CSI_SIDECAR ".json"
