/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A backend: where volumes come from.
 *
 * The Controller service asks it to make, remove, attach and list volumes; the
 * Node service asks it to bring a volume up on this node, that is: to have the
 * volume's one filesystem mounted at volumes/<id>/merged of the state
 * directory, and to take it down again.
 *
 * All functions run on worker threads, several at a time, but never two on the
 * same volume.  Errors carry the status that the CSI specification asks for.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csi/capability.h"
#include "csi/op.h"
#include "lib/base/err.h"
#include "lib/os/mount.h"
#include "lib/vol/params.h"
#include "lib/vol/state.h"
#include "lib/vol/store.h"

struct csi_backend;

/** struct csi_create - CreateVolume, checked */
struct csi_create {
	const char *name;
	char id[UC_VOLUME_ID_SIZE];
	uint64_t required, limit; /* bytes; 0: no wish */
	struct uc_params params;
	const char *fstype;
};

/** struct csi_volume_info - what a CO is told of a volume */
struct csi_volume_info {
	char id[UC_VOLUME_ID_SIZE];
	uint64_t capacity; /* bytes */
	char fstype[16];
	struct uc_params params; /* it was made with */
	char **node_ids;         /* where it is published; ended by NULL, or NULL; owned */
};

/** csi_volume_info_done() - Release; a zeroed one is allowed */
void csi_volume_info_done(struct csi_volume_info *info);

#define cleanup_volume_info __attribute__((cleanup(csi_volume_info_done)))

/** struct csi_capacity - GetCapacity's answer, bytes */
struct csi_capacity {
	uint64_t available, maximum, minimum;
};

/** struct csi_backend_ops - what a backend does */
struct csi_backend_ops {
	const char *name; /* of --backend= */

	/* 0, or UNAVAILABLE: nothing can be created, and Probe says so. */
	int (*ready)(struct csi_backend *b, struct uc_err *err);

	/* ALREADY_EXISTS where a volume of that name differs; OUT_OF_RANGE; RESOURCE_EXHAUSTED;
	 * UNAVAILABLE. */
	int (*create)(struct csi_backend *b, const struct csi_op *op,
		      const struct csi_create *create, struct csi_volume_info *ret_info,
		      struct uc_err *err);

	/* 0 also for what does not exist; FAILED_PRECONDITION while it is attached or staged. */
	int (*remove)(struct csi_backend *b, const struct csi_op *op, const char *id,
		      struct uc_err *err);

	/* NOT_FOUND for a volume or node that does not exist; ALREADY_EXISTS where attached
	 * otherwise. */
	int (*attach)(struct csi_backend *b, const struct csi_op *op, const char *id,
		      const char *node_id, int access_mode, bool read_only, struct uc_err *err);

	/* @node_id NULL: from all nodes.  0 also for what is not attached or does not exist. */
	int (*detach)(struct csi_backend *b, const struct csi_op *op, const char *id,
		      const char *node_id, struct uc_err *err);

	/* NOT_FOUND. */
	int (*get)(struct csi_backend *b, const char *id, struct csi_volume_info *ret_info,
		   struct uc_err *err);

	/* Calls @fn for each volume whose id is behind @after ("": all), in byte order, until it
	 * returns other than 0. */
	int (*list)(struct csi_backend *b, const char *after,
		    int (*fn)(void *data, const struct csi_volume_info *info), void *data,
		    struct uc_err *err);

	int (*capacity)(struct csi_backend *b, const struct uc_params *params, const char *fstype,
			struct csi_capacity *ret, struct uc_err *err);

	/*
	 * Has the volume's filesystem mounted at merged/.  @lock is held, @v is its state,
	 * stage.phase is STAGING, or STAGED if it was up; may change and store the state.  To be
	 * called again after any failure or crash.
	 */
	int (*up)(struct csi_backend *b, const struct csi_op *op, struct uc_volume_lock *lock,
		  struct uc_volume *v, struct uc_err *err);

	/* Undoes up(), whole or in part: nothing of it is left.  Also for a volume that was never
	 * up. */
	int (*down)(struct csi_backend *b, const struct csi_op *op, struct uc_volume_lock *lock,
		    struct uc_volume *v, struct uc_err *err);

	/* 0 if the volume is up; -ENOTCONN (FAILED_PRECONDITION) if it is not, or not any more;
	 * another negative errno if it may be. */
	int (*check_up)(struct csi_backend *b, const struct uc_volume *v, struct uc_err *err);

	/* Whether a mount is one of the volume's own filesystem. */
	bool (*owns_mount)(struct csi_backend *b, const struct uc_volume *v,
			   const struct uc_mount_info *info);

	/* Whether anything of up() is there, for a volume whose state says that nothing is. */
	bool (*has_leftovers)(struct csi_backend *b, const struct uc_volume *v);

	/*
	 * Finishes what a crash has interrupted of create() and remove(); @lock is held.
	 * Positive: the volume is gone, and the lock released.
	 */
	int (*repair)(struct csi_backend *b, const struct csi_op *op, struct uc_volume_lock *lock,
		      struct uc_volume *v, struct uc_err *err);

	/* Reports, in the log, what lies in the backend and belongs to no volume. */
	void (*report_orphans)(struct csi_backend *b);
};

/** struct csi_backend - embedded in the backend's own struct */
struct csi_backend {
	const struct csi_backend_ops *ops;
};
