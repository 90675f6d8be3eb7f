/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * stage:    record STAGING -> backend up() -> group -> mount at the staging path -> record STAGED
 * unstage:  record UNSTAGING -> unmount the staging path -> backend down() -> record NONE
 *
 * A stage that fails is undone at once; what a crash leaves of one is undone by
 * whoever finds STAGING or UNSTAGING: the retry, or start-up.  A volume that is
 * STAGED by a kernel that does not run any more is not staged.  One that is STAGED
 * but whose server has died is brought up again as it is if it is published, and
 * anew, from the ground, if it is not.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csi/group.h"
#include "csi/inventory.h"
#include "csi/node.h"
#include "csi/status.h"
#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/os/fd.h"
#include "lib/vol/ctl.h"

int csi_node_init(struct csi_node *n, const struct uc_store *store, struct csi_backend *backend,
		  struct uc_err *err)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	int r;

	r = uc_read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &b);
	if (r < 0)
		return uc_fail(err, -r, "read the boot id");
	*n = (struct csi_node){ .store = store, .backend = backend };
	strncat(n->boot_id, uc_buf_str(&b), UC_UUID_TEXT_SIZE - 1);
	return 0;
}

void csi_node_done(struct csi_node *n)
{
	csi_roots_done(&n->roots);
}

int csi_node_lock(struct csi_node *n, const char *id, struct uc_volume_lock *lock,
		  struct uc_volume *v, struct uc_err *err)
{
	int r;

	if (!uc_volume_id_is_valid(id))
		return csi_fail(err, UC_GRPC_NOT_FOUND, "there is no volume `%s`",
				UC_PRINTABLE(id));
	r = uc_volume_lock(n->store, id, false, lock, err);
	if (r == 0)
		r = uc_volume_load(n->store, id, v, err);
	if (r == -ENOENT)
		return csi_as(err, r, UC_GRPC_NOT_FOUND);
	if (r == 0 && v->phase != UC_VOLUME_READY)
		return csi_fail(err, UC_GRPC_NOT_FOUND, "volume `%s` is %s", id,
				uc_volume_phase_to_str(v->phase));
	return r;
}

int csi_node_open_merged(struct csi_node *n, const struct uc_volume *v,
			 const struct uc_volume_lock *lock, struct uc_err *err)
{
	cleanup_mount_info struct uc_mount_info info = { .id = 0 };
	cleanup_fd int fd = -1;
	int r;

	fd = openat(lock->fd, UC_CTL_MERGED, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return uc_fail(err, errno, "open the volume's mount");
	r = uc_mount_look(fd, &info, err);
	if (r < 0)
		return r;
	if (r == 0 || !n->backend->ops->owns_mount(n->backend, v, &info))
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION, "volume `%s` is not mounted",
				v->id);
	return take_fd(&fd);
}

int csi_node_attrs(char *const *mount_flags, uint64_t *ret_set, uint64_t *ret_clr,
		   struct uc_err *err)
{
	struct uc_mount_opts opts = { .fs = NULL };
	int r = uc_mount_opts_parse(mount_flags, &opts, err);

	if (r < 0)
		return r;
	*ret_set = opts.attr_set;
	*ret_clr = opts.attr_clr;
	uc_mount_opts_done(&opts);
	return 0;
}

int csi_node_apply_group(const struct csi_op *op, int merged, const char *group, struct uc_err *err)
{
	uint64_t gid;

	if (!group || !*group)
		return 0;
	if (uc_str_parse_u64(group, UINT32_MAX - 1, &gid) < 0)
		return uc_fail(err, EINVAL, "volume_mount_group");
	return csi_group_apply(op, merged, (gid_t)gid, err);
}

bool csi_node_forget_boot(const struct csi_node *n, struct uc_volume *v)
{
	if (v->stage.phase == UC_STAGE_NONE || uc_streq(v->stage.boot_id, n->boot_id))
		return false;
	uc_stage_done(&v->stage);
	while (v->n_publishes)
		uc_volume_remove_publish(v, &v->publishes[0]);
	for (size_t i = 0; i < v->n_branches; i++)
		v->branches[i].file_dev = v->branches[i].file_ino = 0;
	return true;
}

int csi_node_unmount_stage(struct csi_node *n, const struct uc_volume *v, struct uc_err *err)
{
	cleanup_target struct csi_target t = CSI_TARGET_INIT;
	int r;

	r = csi_target_open(&n->roots, "staging_target_path", v->stage.path, &t, err);
	if (r == 0)
		/* The directory is the CO's. */
		r = csi_target_unmount(&t, n->backend, v, v->id, false, err);
	return r == -ENOENT ? 0 : r;
}

/* --------------------------------------------------------------------- staging */

static int check_fstype(const struct uc_volume *v, const struct csi_capability *c,
			struct uc_err *err)
{
	if (*c->fstype && strcmp(c->fstype, v->fstype) != 0)
		return csi_fail(
			err, UC_GRPC_INVALID_ARGUMENT,
			"volume_capability.mount.fs_type is `%s`, but volume `%s` is made for %s",
			c->fstype, v->id, v->fstype);
	return 0;
}

/* Whether a volume that is staged is so as it is asked for. */
static int check_same(const struct uc_volume *v, const struct csi_stage_request *q,
		      struct uc_err *err)
{
	const struct csi_capability *c = q->capability;
	const struct uc_stage *s = &v->stage;

	if (strcmp(s->path, q->path) != 0)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION, "volume `%s` is staged at `%s`",
				v->id, UC_PRINTABLE(s->path));
	if (s->access_mode != c->access_mode || !uc_strv_equal(s->mount_flags, c->mount_flags) ||
	    strcmp(s->group ? s->group : "", c->group) != 0)
		return csi_fail(err, UC_GRPC_ALREADY_EXISTS,
				"volume `%s` is staged at `%s` with another capability (%s)", v->id,
				UC_PRINTABLE(s->path), csi_access_mode_to_str(s->access_mode));
	return 0;
}

static int fill(const struct csi_node *n, const struct csi_stage_request *q, struct uc_stage *s)
{
	uc_stage_done(s);
	s->phase = UC_STAGE_STAGING;
	s->access_mode = q->capability->access_mode;
	s->path = strdup(q->path);
	s->boot_id = strdup(n->boot_id);
	if (*q->capability->group)
		s->group = strdup(q->capability->group);
	for (char **f = q->capability->mount_flags; f && *f; f++)
		if (uc_strv_push(&s->mount_flags, *f) < 0)
			return -ENOMEM;
	return !s->path || !s->boot_id || (*q->capability->group && !s->group) ? -ENOMEM : 0;
}

/* @group: to be applied before; NULL: it has been */
static int mount_stage(struct csi_node *n, const struct csi_op *op, struct uc_volume_lock *lock,
		       const struct uc_volume *v, const char *group, struct uc_err *err)
{
	cleanup_target struct csi_target t = CSI_TARGET_INIT;
	cleanup_fd int merged = -1;
	uint64_t set, clr;
	int r;

	merged = csi_node_open_merged(n, v, lock, err);
	if (merged < 0)
		return merged;
	r = csi_node_attrs(v->stage.mount_flags, &set, &clr, err);
	if (r == 0 && !(set & UC_MOUNT_RDONLY))
		r = csi_node_apply_group(op, merged, group, err);
	if (r < 0)
		return r;
	r = csi_target_open(&n->roots, "staging_target_path", v->stage.path, &t, err);
	if (r == 0)
		r = csi_step(op, err, "mount at the staging path");
	return r < 0 ? r : csi_target_mount(&t, n->backend, v, merged, 0, 0, err);
}

static int clear(struct csi_node *n, const struct csi_op *op, struct uc_volume_lock *lock,
		 struct uc_volume *v, struct uc_err *err)
{
	int r = csi_step(op, err, "unmount the staging path");

	if (r == 0 && v->stage.path)
		r = csi_node_unmount_stage(n, v, err);
	return r < 0 ? r : n->backend->ops->down(n->backend, op, lock, v, err);
}

/* Undoes a stage that failed; the state says STAGING until nothing is left. */
static void undo(struct csi_node *n, const struct csi_op *op, struct uc_volume_lock *lock,
		 struct uc_volume *v)
{
	struct uc_err err = { .num = 0 };
	int r = clear(n, op, lock, v, &err);

	if (r == 0) {
		uc_stage_done(&v->stage);
		r = csi_store(lock, v, &err);
	}
	if (r < 0)
		log_warn("volume `%s` was not staged and is not wholly undone; that is tried "
			 "again: %s",
			 v->id, err.msg);
}

static int make(struct csi_node *n, const struct csi_op *op, struct uc_volume_lock *lock,
		struct uc_volume *v, const struct csi_stage_request *q, struct uc_err *err)
{
	int r;

	if (fill(n, q, &v->stage) < 0) {
		uc_stage_done(&v->stage);
		return uc_fail(err, ENOMEM, "stage volume `%s`", v->id);
	}
	r = csi_step(op, err, "record the staging");
	if (r == 0)
		r = csi_store(lock, v, err);
	if (r < 0)
		return r;
	r = n->backend->ops->up(n->backend, op, lock, v, err);
	if (r == 0)
		r = mount_stage(n, op, lock, v, v->stage.group, err);
	if (r == 0) {
		v->stage.phase = UC_STAGE_STAGED;
		r = csi_store(lock, v, err);
		if (r < 0)
			v->stage.phase = UC_STAGE_STAGING;
	}
	if (r < 0)
		undo(n, op, lock, v);
	return r;
}

int csi_node_ensure_up(struct csi_node *n, const struct csi_op *op, struct uc_volume_lock *lock,
		       struct uc_volume *v, struct uc_err *err)
{
	int r = n->backend->ops->check_up(n->backend, v, err);

	if (r == -ENOTCONN) {
		log_warn("volume `%s` was staged but is not there any more, it is brought up "
			 "again",
			 v->id);
		r = n->backend->ops->up(n->backend, op, lock, v, err);
	}
	return r; /* if it may only be slow nothing is taken away */
}

/* Positive: it is staged already, as it is asked for, and works. */
static int is_staged(struct csi_node *n, const struct csi_op *op, struct uc_volume_lock *lock,
		     struct uc_volume *v, const struct csi_stage_request *q, struct uc_err *err)
{
	int r;

	if (v->stage.phase != UC_STAGE_STAGED)
		return 0;
	r = check_same(v, q, err);
	if (r < 0)
		return r;
	if (!v->n_publishes && n->backend->ops->check_up(n->backend, v, NULL) == -ENOTCONN)
		return 0; /* nobody uses it: anew, from the ground */
	r = csi_node_ensure_up(n, op, lock, v, err);
	if (r == 0) /* somebody may have unmounted it */
		r = mount_stage(n, op, lock, v, NULL, err);
	return r < 0 ? r : 1;
}

int csi_node_stage(struct csi_node *n, const struct csi_op *op,
		   const struct csi_stage_request *request, struct uc_err *err)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	struct csi_stage_request canonical = *request, *q = &canonical;
	cleanup_free char *path = NULL;
	int r;

	r = csi_target_check(&n->roots, "staging_target_path", request->path, &path, err);
	canonical.path = path;
	if (r == 0)
		r = csi_node_lock(n, q->id, &lock, &v, err);
	if (r == 0)
		r = check_fstype(&v, q->capability, err);
	if (r < 0)
		return r;
	csi_node_forget_boot(n, &v);
	r = is_staged(n, op, &lock, &v, q, err);
	if (r != 0)
		return r < 0 ? r : 0;
	if (v.stage.phase != UC_STAGE_NONE)
		r = clear(n, op, &lock, &v, err);
	if (r == 0)
		r = make(n, op, &lock, &v, q, err);
	if (r < 0)
		return uc_wrap(err, r, "stage volume `%s`", q->id);
	log_info("volume `%s`: staged at `%s`", v.id, UC_PRINTABLE(q->path));
	return 0;
}

/* ------------------------------------------------------------------- unstaging */

/* Target paths that nobody unpublished, but where the volume is not mounted any more. */
static int drop_stale_publishes(struct csi_node *n, struct uc_volume *v, struct uc_err *err)
{
	size_t i = 0;

	while (i < v->n_publishes) {
		cleanup_mount_info struct uc_mount_info info = { .id = 0 };
		cleanup_target struct csi_target t = CSI_TARGET_INIT;
		struct uc_publish *p = &v->publishes[i];
		int r;

		r = csi_target_open(&n->roots, "target_path", p->target, &t, err);
		if (r == 0)
			r = csi_target_look(&t, &info, err);
		if (r < 0 && r != -ENOENT &&
		    r != -EINVAL) /* EINVAL: the path leads elsewhere now */
			return r;
		if (r > 0 && n->backend->ops->owns_mount(n->backend, v, &info)) {
			i++;
			continue;
		}
		log_warn("volume `%s` is not mounted at `%s` any more", v->id,
			 UC_PRINTABLE(p->target));
		uc_volume_remove_publish(v, p);
	}
	return 0;
}

/* A volume that is not known: only a union of that very name is taken away. */
static int unstage_unknown(struct csi_node *n, const char *id, const char *path, struct uc_err *err)
{
	cleanup_target struct csi_target t = CSI_TARGET_INIT;
	int r;

	r = csi_target_open(&n->roots, "staging_target_path", path, &t, err);
	if (r == 0)
		r = csi_target_unmount(&t, n->backend, NULL, id, false, err);
	return r == -ENOENT ? 0 : r;
}

/* Not staged there, as far as the state knows: a state that was lost may have known of it. */
static int unstage_unrecorded(struct csi_node *n, const struct uc_volume *v, const char *path,
			      struct uc_err *err)
{
	cleanup_target struct csi_target t = CSI_TARGET_INIT;
	int r;

	if (uc_volume_find_publish(v, path))
		return 0;
	r = csi_target_open(&n->roots, "staging_target_path", path, &t, err);
	if (r == 0)
		r = csi_target_unmount(&t, n->backend, v, v->id, false, err);
	return r == -ENOENT ? 0 : r;
}

int csi_node_unstage(struct csi_node *n, const struct csi_op *op, const char *id, const char *given,
		     struct uc_err *err)
{
	cleanup_free char *path = NULL;
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	int r;

	r = csi_target_check(&n->roots, "staging_target_path", given, &path, err);
	if (r < 0)
		return r;
	r = csi_node_lock(n, id, &lock, &v, err);
	if (r == -ENOENT)
		return unstage_unknown(n, id, path, err);
	if (r < 0)
		return r;
	csi_node_forget_boot(n, &v);
	if (v.stage.phase == UC_STAGE_NONE || strcmp(v.stage.path, path) != 0)
		return unstage_unrecorded(n, &v, path, err);
	r = drop_stale_publishes(n, &v, err);
	if (r < 0)
		return r;
	if (v.n_publishes)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"volume `%s` is published at `%s`", id,
				UC_PRINTABLE(v.publishes[0].target));
	v.stage.phase = UC_STAGE_UNSTAGING;
	r = csi_step(op, err, "record the unstaging");
	if (r == 0)
		r = csi_store(&lock, &v, err);
	if (r == 0)
		r = clear(n, op, &lock, &v, err);
	if (r == 0) {
		uc_stage_done(&v.stage);
		r = csi_store(&lock, &v, err);
	}
	if (r < 0)
		return uc_wrap(err, r, "unstage volume `%s`", id);
	log_info("volume `%s`: unstaged", id);
	return 0;
}

/* ---------------------------------------------------------------------- repair */

static int undo_half_publishes(struct csi_node *n, const struct csi_op *op, struct uc_volume *v,
			       bool *ret_changed, struct uc_err *err)
{
	size_t i = 0;

	while (i < v->n_publishes) {
		struct uc_publish *p = &v->publishes[i];
		int r;

		if (p->done) {
			i++;
			continue;
		}
		r = csi_step(op, err, "unmount a target path");
		if (r == 0)
			r = csi_node_unmount_publish(n, v, p->target, err);
		if (r < 0)
			return r;
		log_info("volume `%s`: an interrupted mount at `%s` is undone", v->id,
			 UC_PRINTABLE(p->target));
		uc_volume_remove_publish(v, p);
		*ret_changed = true;
	}
	return 0;
}

int csi_node_repair(struct csi_node *n, const struct csi_op *op, struct uc_volume_lock *lock,
		    struct uc_volume *v, struct uc_err *err)
{
	struct csi_backend *b = n->backend;
	bool changed = csi_node_forget_boot(n, v);
	struct uc_err why = { .num = 0 };
	int r = 0;

	if (changed)
		log_info("volume `%s` was staged before the machine was restarted: it is not any "
			 "more",
			 v->id);
	if (v->stage.phase == UC_STAGE_STAGED)
		r = undo_half_publishes(n, op, v, &changed, err);
	else if (v->stage.phase != UC_STAGE_NONE || b->ops->has_leftovers(b, v)) {
		r = clear(n, op, lock, v, err);
		if (r == 0)
			log_info("volume `%s`: an interrupted %s is undone", v->id,
				 uc_stage_phase_to_str(v->stage.phase == UC_STAGE_NONE
							       ? UC_STAGE_STAGING
							       : v->stage.phase));
		if (r == 0)
			uc_stage_done(&v->stage);
		changed = true;
	}
	if (r == 0 && changed)
		r = csi_store(lock, v, err);
	if (r == 0 && v->stage.phase == UC_STAGE_STAGED && b->ops->check_up(b, v, &why) < 0)
		log_warn("volume `%s` is staged but does not work: %s", v->id, why.msg);
	return r < 0 ? uc_wrap(err, r, "repair volume `%s`", v->id) : 0;
}
