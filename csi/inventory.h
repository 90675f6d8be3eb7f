/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which volumes this process knows of and in what state, in memory: for
 * metrics, which must not read disks.  Safe from any thread.
 */

#include <stddef.h>

#include "lib/vol/store.h"

/** struct csi_inventory_counts - number of volumes by state */
struct csi_inventory_counts {
	size_t creating, ready, deleting; /* by the controller's phase */
	size_t staged;                    /* of the ready ones: up on this node */
	size_t publishes;                 /* target paths in all */
};

/** csi_inventory_count() - Count */
void csi_inventory_count(struct csi_inventory_counts *ret);

/** csi_store() - uc_volume_store(), and note the state */
int csi_store(struct uc_volume_lock *lock, const struct uc_volume *v, struct uc_err *err);

/** csi_forget() - uc_volume_forget(), and forget the volume */
int csi_forget(const struct uc_store *store, struct uc_volume_lock *lock, const char *id,
	       struct uc_err *err);

/** csi_inventory_note() - Note a volume that was read, not written */
void csi_inventory_note(const struct uc_volume *v);
