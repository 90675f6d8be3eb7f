/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csi/inventory.h"
#include "csi/local.h"
#include "csi/status.h"
#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/os/mkfs.h"
#include "lib/vol/split.h"

void csi_volume_info_done(struct csi_volume_info *info)
{
	uc_strv_free(info->node_ids);
	*info = (struct csi_volume_info){ .capacity = 0 };
}

int csi_local_info(const struct uc_volume *v, struct csi_volume_info *ret_info, struct uc_err *err)
{
	struct csi_volume_info info = { .capacity = v->capacity, .params = v->params };

	snprintf(info.id, sizeof(info.id), "%s", v->id);
	snprintf(info.fstype, sizeof(info.fstype), "%s", v->fstype);
	for (size_t i = 0; i < v->n_attachments; i++)
		if (uc_strv_push(&info.node_ids, v->attachments[i].node_id) < 0) {
			csi_volume_info_done(&info);
			return uc_fail(err, ENOMEM, "describe volume `%s`", v->id);
		}
	*ret_info = info;
	return 0;
}

/* ------------------------------------------------------------------ readiness */

struct uses {
	const struct uc_store *store;
	const char *pool;
};

static int uses_pool(void *data, const char *id)
{
	const struct uses *uses = data;
	cleanup_volume struct uc_volume v = { .n_branches = 0 };

	if (uc_volume_load(uses->store, id, &v, NULL) < 0)
		return 0;
	for (size_t i = 0; i < v.n_branches; i++)
		if (strcmp(v.branches[i].pool, uses->pool) == 0)
			return 1;
	return 0;
}

static bool is_used(void *data, const char *uuid)
{
	struct csi_local *l = data;
	struct uses uses = { .store = l->store, .pool = uuid };

	return uc_store_each(l->store, uses_pool, &uses, NULL) > 0;
}

static int ready(struct csi_backend *b, struct uc_err *err)
{
	struct csi_local *l = (struct csi_local *)b;

	return csi_pools_ready(l->pools, is_used, l, err);
}

/* ------------------------------------------------------------------ attaching */

/* Loads a volume that may be used; NOT_FOUND for one that is not (yet, or any more). */
static int load_ready(struct csi_local *l, const char *id, struct uc_volume *v, struct uc_err *err)
{
	int r;

	if (!uc_volume_id_is_valid(id))
		return csi_fail(err, UC_GRPC_NOT_FOUND, "there is no volume `%s`",
				UC_PRINTABLE(id));
	r = uc_volume_load(l->store, id, v, err);
	if (r == -ENOENT)
		return csi_as(err, r, UC_GRPC_NOT_FOUND);
	if (r == 0 && v->phase != UC_VOLUME_READY)
		return csi_fail(err, UC_GRPC_NOT_FOUND, "volume `%s` is %s", id,
				uc_volume_phase_to_str(v->phase));
	return r;
}

static int lock_ready(struct csi_local *l, const char *id, struct uc_volume_lock *lock,
		      struct uc_volume *v, struct uc_err *err)
{
	int r;

	if (!uc_volume_id_is_valid(id))
		return csi_fail(err, UC_GRPC_NOT_FOUND, "there is no volume `%s`",
				UC_PRINTABLE(id));
	r = uc_volume_lock(l->store, id, false, lock, err);
	if (r == -ENOENT)
		return csi_as(err, r, UC_GRPC_NOT_FOUND);
	return r < 0 ? r : load_ready(l, id, v, err);
}

static int attach(struct csi_backend *b, const struct csi_op *op, const char *id,
		  const char *node_id, int access_mode, bool read_only, struct uc_err *err)
{
	struct csi_local *l = (struct csi_local *)b;
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	const struct uc_attachment *a;
	int r;

	r = lock_ready(l, id, &lock, &v, err);
	if (r < 0)
		return r;
	if (strcmp(node_id, l->node_id) != 0)
		return csi_fail(err, UC_GRPC_NOT_FOUND,
				"there is no node `%s`: volumes of the local backend are on `%s`",
				UC_PRINTABLE(node_id), l->node_id);
	a = uc_volume_find_attachment(&v, node_id);
	if (a && a->read_only == read_only && a->access_mode == access_mode)
		return 0;
	if (a)
		return csi_fail(err, UC_GRPC_ALREADY_EXISTS,
				"volume `%s` is published to node `%s` %s with access mode %s", id,
				UC_PRINTABLE(node_id), a->read_only ? "read-only" : "for writing",
				csi_access_mode_to_str(a->access_mode));
	if (uc_volume_add_attachment(&v, node_id, read_only, access_mode) < 0)
		return uc_fail(err, ENOMEM, "publish volume `%s`", id);
	r = csi_step(op, err, "record the node");
	return r < 0 ? r : csi_store(&lock, &v, err);
}

static int detach(struct csi_backend *b, const struct csi_op *op, const char *id,
		  const char *node_id, struct uc_err *err)
{
	struct csi_local *l = (struct csi_local *)b;
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	struct uc_attachment *a;
	size_t before;
	int r;

	if (!uc_volume_id_is_valid(id))
		return 0;
	r = uc_volume_lock(l->store, id, false, &lock, err);
	if (r == 0)
		r = uc_volume_load(l->store, id, &v, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	before = v.n_attachments;
	for (;;) {
		a = node_id           ? uc_volume_find_attachment(&v, node_id)
		    : v.n_attachments ? &v.attachments[0]
				      : NULL;
		if (!a)
			break;
		uc_volume_remove_attachment(&v, a);
	}
	if (v.n_attachments == before)
		return 0;
	if (v.stage.phase != UC_STAGE_NONE)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION, "volume `%s` is %s at `%s`", id,
				uc_stage_phase_to_str(v.stage.phase), UC_PRINTABLE(v.stage.path));
	r = csi_step(op, err, "record the node");
	return r < 0 ? r : csi_store(&lock, &v, err);
}

/* -------------------------------------------------------------------- looking */

static int get(struct csi_backend *b, const char *id, struct csi_volume_info *ret_info,
	       struct uc_err *err)
{
	struct csi_local *l = (struct csi_local *)b;
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	int r;

	r = load_ready(l, id, &v, err);
	return r < 0 ? r : csi_local_info(&v, ret_info, err);
}

struct list {
	struct csi_local *local;
	const char *after;
	int (*fn)(void *data, const struct csi_volume_info *info);
	void *data;
	struct uc_err *err;
};

static int list_one(void *data, const char *id)
{
	struct list *list = data;
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	cleanup_volume_info struct csi_volume_info info = { .capacity = 0 };
	struct uc_err why = { .num = 0 };
	int r;

	if (strcmp(id, list->after) <= 0)
		return 0;
	r = uc_volume_load(list->local->store, id, &v, &why);
	if (r == -ENOENT || (r == 0 && v.phase != UC_VOLUME_READY))
		return 0;
	if (r == -EUCLEAN || r == -EFBIG) { /* one that is damaged must not hide the others */
		log_warn("volume `%s` is not listed: %s", id, why.msg);
		return 0;
	}
	if (r < 0 && list->err)
		*list->err = why;
	if (r == 0)
		r = csi_local_info(&v, &info, list->err);
	return r < 0 ? r : list->fn(list->data, &info);
}

static int list(struct csi_backend *b, const char *after,
		int (*fn)(void *data, const struct csi_volume_info *info), void *data,
		struct uc_err *err)
{
	struct csi_local *l = (struct csi_local *)b;
	struct list walk = { .local = l, .after = after, .fn = fn, .data = data, .err = err };

	return uc_store_each(l->store, list_one, &walk, err);
}

/* ------------------------------------------------------------------- capacity */

/* Number of branches that a volume of @n branches has on the disk of pool @i. */
static uint64_t branches_on(const struct csi_space *space, size_t pools, uint64_t n, size_t i)
{
	uint64_t count = 0;

	for (size_t k = 0; k < pools; k++)
		if (space[k].device == space[i].device)
			count += n / pools + (k < n % pools);
	return count;
}

/* The largest of @n branches of one size on a disk. */
static uint64_t branch_that_fits(const struct csi_space *space, uint64_t n)
{
	uint64_t each = space->available / n;

	return each > CSI_BRANCH_OVERHEAD ? each - CSI_BRANCH_OVERHEAD : 0;
}

/*
 * The largest volume: as many branches as asked for, each as large as the
 * tightest disk allows.  A maximum for branches makes larger volumes of more
 * branches; n of them are used only for what n - 1 cannot hold.
 */
static uint64_t largest(const struct csi_space *space, size_t pools, const struct uc_params *params,
			uint64_t smallest)
{
	uint64_t max = params->max_branch_size, best = 0;

	for (uint64_t n = params->branches; n > 0 && n <= UC_BRANCHES_MAX; n++) {
		uint64_t each = max ? max : INT64_MAX;

		for (size_t i = 0; i < pools; i++) {
			uint64_t on = branches_on(space, pools, n, i);

			if (on && branch_that_fits(&space[i], on) < each)
				each = branch_that_fits(&space[i], on);
		}
		each -= each % UC_BRANCH_UNIT;
		if (each > INT64_MAX / n)
			each = INT64_MAX / n;
		if (each >= smallest && each * n > best &&
		    (n == params->branches || each * n > (n - 1) * max))
			best = each * n;
		if (!max)
			break;
	}
	return best;
}

static int capacity(struct csi_backend *b, const struct uc_params *params, const char *fstype,
		    struct csi_capacity *ret, struct uc_err *err)
{
	struct csi_local *l = (struct csi_local *)b;
	size_t n = csi_pools_count(l->pools);
	cleanup_free struct csi_space *space = calloc(n, sizeof(*space));
	uint64_t smallest = uc_mkfs_min_size(fstype);
	int r;

	if (!space)
		return uc_fail(err, ENOMEM, "sum the capacity up");
	for (size_t i = 0; i < n; i++) {
		r = csi_pools_space(l->pools, i, &space[i], err);
		if (r < 0)
			return r;
	}
	ret->minimum = smallest * params->branches;
	ret->maximum = largest(space, n, params, smallest);
	ret->available = ret->maximum;
	return 0;
}

/* ------------------------------------------------------------------- lifetime */

static const struct csi_backend_ops ops = {
	.name = "local",
	.ready = ready,
	.create = csi_local_create,
	.remove = csi_local_remove,
	.attach = attach,
	.detach = detach,
	.get = get,
	.list = list,
	.capacity = capacity,
	.up = csi_local_up,
	.down = csi_local_down,
	.check_up = csi_local_check_up,
	.owns_mount = csi_local_owns_mount,
	.has_leftovers = csi_local_has_leftovers,
	.repair = csi_local_repair,
	.report_orphans = csi_local_report_orphans,
};

int csi_local_new(const struct csi_local_config *config, const struct uc_store *store,
		  struct csi_local **ret_local, struct uc_err *err)
{
	cleanup_with(csi_local_freep) struct csi_local *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return uc_fail(err, ENOMEM, "set the local backend up");
	l->base.ops = &ops;
	l->store = store;
	l->thin = config->thin;
	l->has_controller = config->has_controller;
	l->has_node = config->has_node;
	l->union_fs = strdup(config->union_fs);
	l->node_id = strdup(config->node_id);
	if (!l->union_fs || !l->node_id)
		return uc_fail(err, ENOMEM, "set the local backend up");
	r = csi_pools_new(config->pools, store, CSI_POOLS_ADOPT, &l->pools, err);
	if (r < 0)
		return r;
	*ret_local = take_ptr(&l);
	return 0;
}

void csi_local_free(struct csi_local *l)
{
	if (!l)
		return;
	csi_pools_free(l->pools);
	free(l->union_fs);
	free(l->node_id);
	free(l);
}
