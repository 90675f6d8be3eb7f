/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The node's half: volumes brought up, staged and published on this machine.
 *
 * The volume's own filesystem is mounted at merged/ by the backend; a staging
 * path and each target path are clones of that mount.
 */

#include "csi/backend.h"
#include "csi/target.h"
#include "lib/base/uuid.h"
#include "lib/os/statfs.h"
#include "lib/vol/store.h"

/** struct csi_node - the node service */
struct csi_node {
	const struct uc_store *store;
	struct csi_backend *backend;
	struct csi_roots roots;
	char boot_id[UC_UUID_TEXT_SIZE];
};

/** struct csi_stage_request - NodeStageVolume, checked; borrowed */
struct csi_stage_request {
	const char *id;
	const char *path;
	const struct csi_capability *capability;
};

/** struct csi_publish_request - NodePublishVolume, checked; borrowed */
struct csi_publish_request {
	const char *id;
	const char *staging_path;
	const char *target;
	const struct csi_capability *capability;
	bool read_only;
};

/** csi_node_init() - Read the boot id; the roots are the caller's to add.  0 or a negative errno */
int csi_node_init(struct csi_node *n, const struct uc_store *store, struct csi_backend *backend,
		  struct uc_err *err);

/** csi_node_done() - Release */
void csi_node_done(struct csi_node *n);

/** csi_node_stage() - NodeStageVolume; on failure nothing of it is left, or the state says STAGING
 */
int csi_node_stage(struct csi_node *n, const struct csi_op *op, const struct csi_stage_request *q,
		   struct uc_err *err);

/** csi_node_unstage() - NodeUnstageVolume */
int csi_node_unstage(struct csi_node *n, const struct csi_op *op, const char *id, const char *path,
		     struct uc_err *err);

/** csi_node_publish() - NodePublishVolume */
int csi_node_publish(struct csi_node *n, const struct csi_op *op,
		     const struct csi_publish_request *q, struct uc_err *err);

/** csi_node_unpublish() - NodeUnpublishVolume */
int csi_node_unpublish(struct csi_node *n, const struct csi_op *op, const char *id,
		       const char *target, struct uc_err *err);

/** csi_node_stats() - NodeGetVolumeStats; NOT_FOUND where the volume is not at @path */
int csi_node_stats(struct csi_node *n, const struct csi_op *op, const char *id, const char *path,
		   struct uc_statfs *ret, struct uc_err *err);

/**
 * csi_node_repair() - Bring what a crash or a reboot has left of a volume into a clean state
 * @lock:	Held
 * @v:		Its state
 *
 * Reports what it repaired in the log.
 */
int csi_node_repair(struct csi_node *n, const struct csi_op *op, struct uc_volume_lock *lock,
		    struct uc_volume *v, struct uc_err *err);

/*
 * Among the node's files.
 */

/** csi_node_lock() - Lock and load a volume that may be used; NOT_FOUND where there is none */
int csi_node_lock(struct csi_node *n, const char *id, struct uc_volume_lock *lock,
		  struct uc_volume *v, struct uc_err *err);

/**
 * csi_node_ensure_up() - Have a volume that is staged work, also if its server has died
 *
 * It is brought up on what is there, not taken down before: pods may still have its files open,
 * and with them the kernel its branches.  Its staging path and its targets show the dead server
 * until they are staged and published again.  Locks that a pod has on its files from before are
 * not known to the new server.
 *
 * Return: 0 or a negative errno
 */
int csi_node_ensure_up(struct csi_node *n, const struct csi_op *op, struct uc_volume_lock *lock,
		       struct uc_volume *v, struct uc_err *err);

/**
 * csi_node_open_merged() - The volume's mount at merged/, and nothing else
 *
 * The descriptor is looked at, not the name: what is cloned from it is the volume, though somebody
 * unmounts it meanwhile.
 *
 * Return: O_PATH descriptor (owned) or a negative errno
 */
int csi_node_open_merged(struct csi_node *n, const struct uc_volume *v,
			 const struct uc_volume_lock *lock, struct uc_err *err);

/** csi_node_attrs() - What mount flags ask of a mount itself; @ret_set and @ret_clr are UC_MOUNT_* */
int csi_node_attrs(char *const *mount_flags, uint64_t *ret_set, uint64_t *ret_clr,
		   struct uc_err *err);

/** csi_node_apply_group() - Give a volume's files to a group ("" or NULL: nothing is done) */
int csi_node_apply_group(const struct csi_op *op, int merged, const char *group,
			 struct uc_err *err);

/** csi_node_forget_boot() - Drop what the state says of a kernel that does not run any more (not
 * stored) */
bool csi_node_forget_boot(const struct csi_node *n, struct uc_volume *v);

/** csi_node_unmount_stage() - Remove the staging mount */
int csi_node_unmount_stage(struct csi_node *n, const struct uc_volume *v, struct uc_err *err);

/** csi_node_unmount_publish() - Remove a target's mount and directory */
int csi_node_unmount_publish(struct csi_node *n, const struct uc_volume *v, const char *target,
			     struct uc_err *err);
