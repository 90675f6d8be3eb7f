/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * create:  state CREATING (durable) -> each branch's two files -> state READY
 * remove:  state DELETING (durable) -> each branch's two files -> no state
 *
 * A CREATING volume is nobody's: whoever finds one (the failed call itself, a
 * retry, start-up) erases it, and a retry begins anew.  A DELETING one is
 * finished by whoever finds it.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csi/inventory.h"
#include "csi/local.h"
#include "csi/status.h"
#include "lib/base/log.h"
#include "lib/base/size.h"
#include "lib/base/str.h"
#include "lib/os/mkfs.h"
#include "lib/vol/split.h"

/* ------------------------------------------------------------------ use of a volume */

/*
 * A state that was lost and written anew says nothing of who uses the volume: what is there of
 * it counts.  What nobody uses is taken down.
 */
static int check_unused(struct csi_local *l, const struct csi_op *op, struct uc_volume_lock *lock,
			struct uc_volume *v, struct uc_err *err)
{
	cleanup_free char *place = NULL;
	int r;

	if (!csi_local_has_leftovers(&l->base, v))
		return 0;
	r = csi_local_find_use(l, lock->fd, v, &place, err);
	if (r < 0)
		return r;
	if (r > 0 || !l->has_node)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"volume `%s` is in use%s%s, although its state does not say so",
				v->id, place ? " at " : "", place ? UC_PRINTABLE(place) : "");
	return csi_as(err, csi_local_down(&l->base, op, lock, v, err), UC_GRPC_FAILED_PRECONDITION);
}

int csi_local_erase(struct csi_local *l, const struct csi_op *op, struct uc_volume_lock *lock,
		    struct uc_volume *v, struct uc_err *err)
{
	int r;

	r = check_unused(l, op, lock, v, err);
	if (r < 0)
		return uc_wrap(err, r, "remove volume `%s`", v->id);
	for (size_t i = 0; i < v->n_branches; i++) {
		r = csi_step(op, err, "remove branch %zu of %zu", i, v->n_branches);
		if (r == 0)
			r = csi_branch_remove(l, v, i, err);
		if (r < 0)
			return uc_wrap(err, r, "remove volume `%s`", v->id);
	}
	r = csi_forget(l->store, lock, v->id, err);
	return r < 0 ? uc_wrap(err, r, "remove volume `%s`", v->id) : 0;
}

/* ------------------------------------------------------------------ creation */

static int plan(const struct csi_create *c, struct uc_split *ret_split, struct uc_err *err)
{
	struct uc_split_request q = {
		.required = c->required,
		.limit = c->limit,
		.default_size = UC_GIB,
		.branches = c->params.branches,
		.max_branch_size = c->params.max_branch_size,
		.min_branch_size = uc_mkfs_min_size(c->fstype),
	};

	if (c->params.layout == UC_LAYOUT_STRIPED)
		q.stripe_size = c->params.stripe_size;

	return csi_as(err, uc_split_plan(&q, ret_split, err), UC_GRPC_OUT_OF_RANGE);
}

/* Whether a volume that exists is what is asked for. */
static int check_same(const struct uc_volume *v, const struct csi_create *c, struct uc_err *err)
{
	if (strcmp(v->name, c->name) != 0)
		return csi_fail(err, UC_GRPC_ALREADY_EXISTS,
				"the id of name `%s` is taken by the volume named `%s`",
				UC_PRINTABLE(c->name), UC_PRINTABLE(v->name));
	if (v->capacity < c->required || (c->limit && v->capacity > c->limit))
		return csi_fail(
			err, UC_GRPC_ALREADY_EXISTS,
			"volume `%s` exists with %llu bytes; asked for are %llu, at most %llu",
			v->id, (unsigned long long)v->capacity, (unsigned long long)c->required,
			(unsigned long long)c->limit);
	if (strcmp(v->fstype, c->fstype) != 0)
		return csi_fail(err, UC_GRPC_ALREADY_EXISTS,
				"volume `%s` exists with filesystem %s, not %s", v->id, v->fstype,
				c->fstype);
	if (!uc_params_equal(&v->params, &c->params))
		return csi_fail(err, UC_GRPC_ALREADY_EXISTS,
				"volume `%s` exists with other parameters", v->id);
	return 0;
}

/* What the branches take from each disk must be there: fallocate() as root would also eat its
 * reserve. */
static int check_space(struct csi_local *l, const struct uc_split *split, struct uc_err *err)
{
	size_t n = csi_pools_count(l->pools);
	cleanup_free struct csi_space *space = calloc(n, sizeof(*space));
	cleanup_free uint64_t *need = calloc(n, sizeof(*need));
	int r;

	if (!space || !need)
		return uc_fail(err, ENOMEM, "check the space");
	for (size_t i = 0; i < n; i++) {
		r = csi_pools_space(l->pools, i, &space[i], err);
		if (r < 0)
			return r;
	}
	for (uint64_t i = 0; i < split->n; i++) {
		size_t first = i % n;

		/* Pools on one disk share its space: all is booked on the first of them. */
		for (size_t k = 0; k < first; k++)
			if (space[k].device == space[first].device)
				first = k;
		need[first] += uc_split_branch_size(split, i) + CSI_BRANCH_OVERHEAD;
	}
	for (size_t i = 0; i < n; i++)
		if (need[i] > space[i].available)
			return csi_fail(err, UC_GRPC_RESOURCE_EXHAUSTED,
					"pool `%s` has %llu bytes free, %llu are needed",
					csi_pools_dir(l->pools, i),
					(unsigned long long)space[i].available,
					(unsigned long long)need[i]);
	return 0;
}

/* Files of a volume of that id whose state is lost are somebody's data. */
static int check_no_files(struct csi_local *l, const char *id, uint64_t n_branches,
			  struct uc_err *err)
{
	static const char *const suffixes[] = { CSI_IMAGE, CSI_SIDECAR };

	for (size_t p = 0; p < csi_pools_count(l->pools); p++) {
		char uuid[UC_UUID_TEXT_SIZE], name[CSI_BRANCH_NAME_SIZE];
		cleanup_fd int fd = csi_pools_open(l->pools, p, uuid, err);

		if (fd < 0)
			return fd;
		for (uint64_t i = 0; i < 2 * n_branches; i++) {
			csi_branch_name(name, id, i / 2, suffixes[i % 2]);
			if (faccessat(fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
				return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
						"pool `%s` holds `%s` of a volume whose state is "
						"not there: see union-csi recover",
						csi_pools_dir(l->pools, p), name);
		}
	}
	return 0;
}

static int fill(struct csi_local *l, const struct csi_create *c, const struct uc_split *split,
		struct uc_volume *v, struct uc_err *err)
{
	size_t n = csi_pools_count(l->pools);
	int r = 0;

	snprintf(v->id, sizeof(v->id), "%s", c->id);
	snprintf(v->fstype, sizeof(v->fstype), "%s", c->fstype);
	v->name = strdup(c->name);
	v->branches = calloc(split->n, sizeof(*v->branches));
	if (!v->name || !v->branches)
		return uc_fail(err, ENOMEM, "create volume `%s`", c->id);
	v->phase = UC_VOLUME_CREATING;
	v->n_branches = split->n;
	v->capacity = split->capacity;
	v->params = c->params;
	v->thin = l->thin;
	for (size_t i = 0; i < split->n && r == 0; i++) {
		struct uc_branch *b = &v->branches[i];
		cleanup_fd int fd = csi_pools_open(l->pools, i % n, b->pool, err);

		if (fd < 0)
			return fd;
		b->size = uc_split_branch_size(split, i);
		r = uc_uuid_random(b->uuid);
	}
	if (r < 0)
		return uc_fail(err, -r, "make a UUID");
	if (uc_volume_set_segments(v) < 0)
		return uc_fail(err, ENOMEM, "create volume `%s`", c->id);
	return 0;
}

static int make_files(struct csi_local *l, const struct csi_op *op, const struct uc_volume *v,
		      struct uc_err *err)
{
	for (size_t i = 0; i < v->n_branches; i++) {
		int r = csi_step(op, err, "make branch %zu of %zu", i, v->n_branches);

		if (r == 0)
			r = csi_branch_make(l, v, i, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Undoes a creation that failed; the state says CREATING until nothing is left. */
static void undo(struct csi_local *l, const struct csi_op *op, struct uc_volume_lock *lock,
		 struct uc_volume *v)
{
	struct uc_err err = { .num = 0 };

	if (csi_local_erase(l, op, lock, v, &err) < 0)
		log_warn("volume `%s` was not created and is not wholly removed; that is tried "
			 "again: %s",
			 v->id, err.msg);
}

static int make(struct csi_local *l, const struct csi_op *op, const struct csi_create *c,
		struct uc_volume_lock *lock, struct uc_volume *v, struct uc_err *err)
{
	struct uc_split split;
	int r;

	r = plan(c, &split, err);
	if (r == 0)
		r = l->base.ops->ready(&l->base, err);
	if (r == 0)
		r = check_no_files(l, c->id, split.n, err);
	if (r == 0 && !l->thin)
		r = check_space(l, &split, err);
	if (r == 0)
		r = fill(l, c, &split, v, err);
	if (r == 0)
		r = csi_step(op, err, "record the volume");
	if (r < 0) {
		(void)csi_forget(l->store, lock, c->id, NULL); /* the empty directory */
		return r;
	}
	r = csi_store(lock, v, err);
	if (r == 0)
		r = make_files(l, op, v, err);
	if (r == 0) {
		v->phase = UC_VOLUME_READY;
		r = csi_store(lock, v, err);
		if (r < 0)
			v->phase = UC_VOLUME_CREATING;
	}
	if (r < 0)
		undo(l, op, lock, v);
	return r;
}

int csi_local_create(struct csi_backend *b, const struct csi_op *op, const struct csi_create *c,
		     struct csi_volume_info *ret_info, struct uc_err *err)
{
	struct csi_local *l = (struct csi_local *)b;
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	int r;

	r = uc_volume_lock(l->store, c->id, true, &lock, err);
	if (r < 0)
		return r;
	r = uc_volume_load(l->store, c->id, &v, err);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0 && v.phase == UC_VOLUME_READY) {
		r = check_same(&v, c, err);
		return r < 0 ? r : csi_local_info(&v, ret_info, err);
	}
	if (r == 0) { /* what a crash has left */
		r = csi_local_erase(l, op, &lock, &v, err);
		uc_volume_done(&v);
		if (r == 0)
			r = uc_volume_lock(l->store, c->id, true, &lock, err);
		if (r < 0)
			return r;
	}
	r = make(l, op, c, &lock, &v, err);
	if (r < 0)
		return uc_wrap(err, r, "create volume `%s`", c->id);
	log_info("volume `%s`: created with %llu bytes in %zu branches", v.id,
		 (unsigned long long)v.capacity, v.n_branches);
	return csi_local_info(&v, ret_info, err);
}

/* ------------------------------------------------------------------- removal */

int csi_local_remove(struct csi_backend *b, const struct csi_op *op, const char *id,
		     struct uc_err *err)
{
	struct csi_local *l = (struct csi_local *)b;
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	int r;

	if (!uc_volume_id_is_valid(id))
		return 0; /* no volume has such an id */
	r = uc_volume_lock(l->store, id, false, &lock, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = uc_volume_load(l->store, id, &v, err);
	if (r == -ENOENT) /* a crash came before the state was written */
		return csi_forget(l->store, &lock, id, err);
	if (r < 0)
		return r;
	if (v.n_attachments)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"volume `%s` is published to node `%s`", id,
				UC_PRINTABLE(v.attachments[0].node_id));
	if (v.stage.phase != UC_STAGE_NONE || v.n_publishes)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION, "volume `%s` is %s at `%s`", id,
				uc_stage_phase_to_str(v.stage.phase),
				UC_PRINTABLE(v.stage.path ? v.stage.path : v.publishes[0].target));
	if (v.phase == UC_VOLUME_READY) {
		r = check_unused(l, op, &lock, &v, err);
		if (r < 0)
			return uc_wrap(err, r, "remove volume `%s`", id);
		v.phase = UC_VOLUME_DELETING;
		r = csi_step(op, err, "record the removal");
		if (r == 0)
			r = csi_store(&lock, &v, err);
		if (r < 0)
			return r;
	}
	r = csi_local_erase(l, op, &lock, &v, err);
	if (r == 0)
		log_info("volume `%s`: removed", id);
	return r;
}
