/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * publish:    record the target -> mount -> record that it is done
 * unpublish:  unmount, remove the directory -> forget the target
 *
 * A target that is recorded but not done may or may not be mounted: the retry
 * goes on with it, start-up undoes it.
 */

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "csi/group.h"
#include "csi/inventory.h"
#include "csi/node.h"
#include "csi/status.h"
#include "lib/base/log.h"
#include "lib/base/str.h"

#define MODE(m) CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__##m

/* ------------------------------------------------------------------ publishing */

static bool is_read_only(const struct uc_volume *v, const struct csi_publish_request *q)
{
	bool read_only = q->read_only || csi_access_mode_is_read_only(q->capability->access_mode);

	for (size_t i = 0; i < v->n_attachments; i++)
		read_only |= v->attachments[i].read_only;
	return read_only;
}

static int check_staged(const struct uc_volume *v, const struct csi_publish_request *q,
			struct uc_err *err)
{
	if (v->stage.phase != UC_STAGE_STAGED)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION, "volume `%s` is not staged",
				v->id);
	if (strcmp(v->stage.path, q->staging_path) != 0)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"volume `%s` is staged at `%s`, not at staging_target_path `%s`",
				v->id, UC_PRINTABLE(v->stage.path), UC_PRINTABLE(q->staging_path));
	return 0;
}

/* Whether a further target may be added. */
static int check_further(const struct uc_volume *v, const struct csi_publish_request *q,
			 struct uc_err *err)
{
	for (size_t i = 0; i < v->n_publishes; i++) {
		const struct uc_publish *p = &v->publishes[i];

		if (p->access_mode == MODE(SINGLE_NODE_SINGLE_WRITER) ||
		    q->capability->access_mode == MODE(SINGLE_NODE_SINGLE_WRITER))
			return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
					"volume `%s` is published at `%s`, and access mode %s "
					"allows one target",
					v->id, UC_PRINTABLE(p->target),
					csi_access_mode_to_str(MODE(SINGLE_NODE_SINGLE_WRITER)));
	}
	return 0;
}

static int check_same(const struct uc_volume *v, const struct uc_publish *p,
		      const struct csi_publish_request *q, struct uc_err *err)
{
	if (p->read_only != is_read_only(v, q) || p->access_mode != q->capability->access_mode ||
	    !uc_strv_equal(p->mount_flags, q->capability->mount_flags))
		return csi_fail(err, UC_GRPC_ALREADY_EXISTS,
				"volume `%s` is published at `%s` %s with access mode %s", v->id,
				UC_PRINTABLE(p->target), p->read_only ? "read-only" : "for writing",
				csi_access_mode_to_str(p->access_mode));
	return 0;
}

static int record(const struct csi_op *op, struct uc_volume_lock *lock, struct uc_volume *v,
		  const struct csi_publish_request *q, struct uc_err *err)
{
	struct uc_publish *p = uc_volume_add_publish(v, q->target);
	int r = p ? 0 : -ENOMEM;

	for (char **f = q->capability->mount_flags; f && *f && r == 0; f++)
		r = uc_strv_push(&p->mount_flags, *f);
	if (r < 0)
		return uc_fail(err, ENOMEM, "publish volume `%s`", v->id);
	p->read_only = is_read_only(v, q);
	p->access_mode = q->capability->access_mode;
	r = csi_step(op, err, "record the target");
	return r < 0 ? r : csi_store(lock, v, err);
}

enum {
	RESTRICTIONS = UC_MOUNT_RDONLY | UC_MOUNT_NOSUID | UC_MOUNT_NODEV | UC_MOUNT_NOEXEC,
};

/* What the volume was staged with is not taken back, as it is for all its targets. */
static int get_attrs(const struct uc_volume *v, const struct csi_publish_request *q,
		     uint64_t *ret_set, uint64_t *ret_clr, struct uc_err *err)
{
	uint64_t staged = 0, unused = 0;
	int r;

	r = csi_node_attrs(q->capability->mount_flags, ret_set, ret_clr, err);
	if (r == 0)
		r = csi_node_attrs(v->stage.mount_flags, &staged, &unused, err);
	if (r < 0)
		return r;
	if (is_read_only(v, q) || staged & UC_MOUNT_RDONLY)
		*ret_set |= UC_MOUNT_RDONLY;
	*ret_clr &= ~((*ret_set | staged) & RESTRICTIONS);
	return 0;
}

static int mount_target(struct csi_node *n, const struct csi_op *op, struct uc_volume_lock *lock,
			const struct uc_volume *v, const struct csi_publish_request *q,
			const struct csi_target *t, struct uc_err *err)
{
	cleanup_fd int merged = -1;
	uint64_t set, clr;
	int r;

	merged = csi_node_open_merged(n, v, lock, err);
	if (merged < 0)
		return merged;
	r = get_attrs(v, q, &set, &clr, err);
	if (r == 0 && !(set & UC_MOUNT_RDONLY))
		r = csi_node_apply_group(op, merged, q->capability->group, err);
	if (r == 0)
		r = csi_step(op, err, "mount at the target path");
	return r < 0 ? r : csi_target_mount(t, n->backend, v, merged, set, clr, err);
}

/* The target was not there before, so nothing is there after. */
static void undo(struct csi_node *n, const struct csi_op *op, struct uc_volume_lock *lock,
		 struct uc_volume *v, const char *target)
{
	struct uc_err err = { .num = 0 };
	int r = csi_step(op, &err, "unmount the target path");

	if (r == 0)
		r = csi_node_unmount_publish(n, v, target, &err);
	if (r == 0) {
		uc_volume_remove_publish(v, uc_volume_find_publish(v, target));
		r = csi_store(lock, v, &err);
	}
	if (r < 0)
		log_warn("volume `%s` was not published at `%s`, and that is not wholly undone: %s",
			 v->id, UC_PRINTABLE(target), err.msg);
}

int csi_node_publish(struct csi_node *n, const struct csi_op *op,
		     const struct csi_publish_request *request, struct uc_err *err)
{
	struct csi_publish_request canonical = *request, *q = &canonical;
	cleanup_free char *target = NULL, *staging = NULL;
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	cleanup_target struct csi_target t = CSI_TARGET_INIT;
	struct uc_publish *p;
	bool was_done;
	int r;

	r = csi_target_check(&n->roots, "target_path", request->target, &target, err);
	if (r == 0)
		r = csi_target_check(&n->roots, "staging_target_path", request->staging_path,
				     &staging, err);
	canonical.target = target;
	canonical.staging_path = staging;
	if (r == 0)
		r = csi_node_lock(n, q->id, &lock, &v, err);
	if (r < 0)
		return r;
	csi_node_forget_boot(n, &v);
	r = check_staged(&v, q, err);
	if (r == 0) /* what cannot be reached is not recorded either */
		r = csi_target_open(&n->roots, "target_path", q->target, &t, err);
	if (r < 0)
		return r;
	p = uc_volume_find_publish(&v, q->target);
	was_done = p && p->done;
	r = p ? check_same(&v, p, q, err) : check_further(&v, q, err);
	if (r == 0) /* kubelet does not stage again what others on the node use already */
		r = csi_node_ensure_up(n, op, &lock, &v, err);
	if (r == 0 && !p)
		r = record(op, &lock, &v, q, err);
	if (r < 0)
		return r;
	r = mount_target(n, op, &lock, &v, q, &t, err);
	if (r == 0 && !was_done) {
		uc_volume_find_publish(&v, q->target)->done = true;
		r = csi_store(&lock, &v, err);
	}
	if (r < 0 && !was_done)
		undo(n, op, &lock, &v, q->target);
	if (r < 0)
		return uc_wrap(err, r, "publish volume `%s`", q->id);
	if (!was_done)
		log_info("volume `%s`: published at `%s`", v.id, UC_PRINTABLE(q->target));
	return 0;
}

/* ---------------------------------------------------------------- unpublishing */

int csi_node_unmount_publish(struct csi_node *n, const struct uc_volume *v, const char *target,
			     struct uc_err *err)
{
	cleanup_target struct csi_target t = CSI_TARGET_INIT;
	int r;

	r = csi_target_open(&n->roots, "target_path", target, &t, err);
	if (r == 0)
		r = csi_target_unmount(&t, n->backend, v, v->id, true, err);
	return r == -ENOENT ? 0 : r;
}

/* A volume that is not known: only a union of that very name is taken away. */
static int unpublish_unknown(struct csi_node *n, const char *id, const char *target,
			     struct uc_err *err)
{
	cleanup_target struct csi_target t = CSI_TARGET_INIT;
	int r;

	r = csi_target_open(&n->roots, "target_path", target, &t, err);
	if (r == 0)
		r = csi_target_unmount(&t, n->backend, NULL, id, true, err);
	return r == -ENOENT ? 0 : r;
}

int csi_node_unpublish(struct csi_node *n, const struct csi_op *op, const char *id,
		       const char *given, struct uc_err *err)
{
	cleanup_free char *target = NULL;
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	struct uc_publish *p;
	int r;

	r = csi_target_check(&n->roots, "target_path", given, &target, err);
	if (r == 0)
		r = csi_node_lock(n, id, &lock, &v, err);
	if (r == -ENOENT)
		return unpublish_unknown(n, id, target, err);
	if (r == 0)
		r = csi_step(op, err, "unmount the target path");
	if (r == 0)
		r = csi_node_unmount_publish(n, &v, target, err);
	if (r < 0)
		return uc_wrap(err, r, "unpublish volume `%s`", id);
	p = uc_volume_find_publish(&v, target);
	if (!p)
		return 0;
	uc_volume_remove_publish(&v, p);
	r = csi_store(&lock, &v, err);
	if (r < 0)
		return uc_wrap(err, r, "unpublish volume `%s`", id);
	log_info("volume `%s`: unpublished from `%s`", id, UC_PRINTABLE(target));
	return 0;
}

/* ------------------------------------------------------------------ statistics */

enum {
	STATFS_MS = 5000,
};

int csi_node_stats(struct csi_node *n, const struct csi_op *op, const char *id, const char *given,
		   struct uc_statfs *ret, struct uc_err *err)
{
	cleanup_free char *canonical = NULL;
	const char *path = given; /* what is not a path of ours is nowhere */
	cleanup_mount_info struct uc_mount_info info = { .id = 0 };
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	cleanup_target struct csi_target t = CSI_TARGET_INIT;
	cleanup_fd int fd = -1;
	int r;

	if (!uc_volume_id_is_valid(id))
		return csi_fail(err, UC_GRPC_NOT_FOUND, "there is no volume `%s`",
				UC_PRINTABLE(id));
	r = uc_volume_load(n->store, id, &v, err);
	if (r < 0)
		return r == -ENOENT ? csi_as(err, r, UC_GRPC_NOT_FOUND) : r;
	if (csi_target_check(&n->roots, "volume_path", given, &canonical, NULL) == 0)
		path = canonical;
	if (!uc_volume_find_publish(&v, path) &&
	    !(v.stage.phase == UC_STAGE_STAGED && strcmp(v.stage.path, path) == 0))
		return csi_fail(err, UC_GRPC_NOT_FOUND, "volume `%s` is not at volume_path `%s`",
				id, UC_PRINTABLE(path));
	r = csi_step(op, err, "ask for the usage");
	if (r == 0)
		r = csi_target_open(&n->roots, "volume_path", path, &t, err);
	if (r == 0)
		r = csi_target_look(&t, &info, err);
	if (r == -ENOENT || r == 0 ||
	    (r > 0 && !n->backend->ops->owns_mount(n->backend, &v, &info)))
		return csi_fail(err, UC_GRPC_NOT_FOUND,
				"volume `%s` is not mounted at volume_path `%s` any more", id,
				UC_PRINTABLE(path));
	if (r < 0)
		return r;
	fd = uc_openat_beneath(t.parent_fd, t.name, O_PATH | O_DIRECTORY);
	if (fd == -ENOENT) /* unpublished in this very moment */
		return csi_fail(err, UC_GRPC_NOT_FOUND,
				"volume `%s` is not at volume_path `%s` any more", id,
				UC_PRINTABLE(path));
	if (fd < 0)
		return uc_fail(err, -fd, "open volume_path `%s`", UC_PRINTABLE(path));
	r = uc_statfs_bounded(fd, STATFS_MS, ret, err);
	return r < 0 ? uc_wrap(err, r, "volume `%s` at `%s`", id, UC_PRINTABLE(path)) : 0;
}
