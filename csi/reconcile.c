/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>

#include "csi/inventory.h"
#include "csi/reconcile.h"
#include "lib/base/log.h"

static int repair(struct csi_driver *d, const char *id, struct uc_err *err)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	struct csi_op op = { .call = NULL, .volume_id = id };
	int r;

	r = uc_volume_lock(d->node.store, id, false, &lock, err);
	if (r < 0)
		return r == -ENOENT || r == -EBUSY ? 0 : r; /* gone, or a request repairs it */
	r = uc_volume_load(d->node.store, id, &v, err);
	if (r == -ENOENT) { /* a crash came before the state was written, or after it was removed */
		log_info("volume `%s`: the directory of an interrupted creation or removal is "
			 "removed",
			 id);
		return csi_forget(d->node.store, &lock, id, err);
	}
	if (r < 0)
		return r;
	csi_inventory_note(&v);
	if (d->has_controller) {
		r = d->backend->ops->repair(d->backend, &op, &lock, &v, err);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	return d->has_node && v.phase == UC_VOLUME_READY
		       ? csi_node_repair(&d->node, &op, &lock, &v, err)
		       : 0;
}

static int each(void *data, const char *id)
{
	struct uc_err err = { .num = 0 };

	if (repair(data, id, &err) < 0)
		log_err("volume `%s` could not be repaired: %s", id, err.msg);
	return 0;
}

void csi_reconcile(struct csi_driver *d)
{
	struct uc_err err = { .num = 0 };

	if (uc_store_each(d->node.store, each, d, &err) < 0)
		log_err("%s", err.msg);
	if (d->has_controller)
		d->backend->ops->report_orphans(d->backend);
}
