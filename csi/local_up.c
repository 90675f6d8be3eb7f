/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * up:    files -> loop devices -> filesystems -> one branch:  a mount at merged/
 *                                             -> several:     the volume server, which mounts the
 *                                                             branches and the union at merged/
 *                              -> one mapped device -> one filesystem -> a mount at merged/
 * down:  the same backwards.
 *
 * Each step looks first at what is there, so up() after a crash goes on where
 * the first try ended, and down() undoes any part of it.  The server is a
 * process of its own that outlives this one; it is found by its socket.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "csi/inventory.h"
#include "csi/local.h"
#include "csi/status.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/os/blk.h"
#include "lib/os/clock.h"
#include "lib/os/fd.h"
#include "lib/os/mount.h"
#include "lib/os/proc.h"
#include "lib/vol/ctl.h"
#include "lib/vol/spec.h"

enum {
	SERVER_START_MS = 120 * 1000,
	SERVER_STATUS_MS = 5 * 1000,
	SERVER_STOP_MS = 60 * 1000,
	SERVER_HANG_MS = 15 * 1000,
	DEVICE_SIZE = 32,
	RELEASE_MS = 30 * 1000, /* of a device by a filesystem that was just unmounted */
};

static const char fuse_type[] = "fuse.union-fs";

static int volume_dir(struct csi_local *l, const struct uc_volume *v, char **ret_dir,
		      struct uc_err *err)
{
	if (asprintf(ret_dir, "%s/volumes/%s", l->store->path, v->id) < 0) {
		*ret_dir = NULL;
		return uc_fail(err, ENOMEM, "volume `%s`", v->id);
	}
	return 0;
}

/* ------------------------------------------------------------ what is mounted */

/* Positive: something is mounted at merged/, described in @ret_info; 0: nothing is. */
static int look_at_merged(int dir_fd, struct uc_mount_info *ret_info, struct uc_err *err)
{
	cleanup_fd int fd =
		openat(dir_fd, UC_CTL_MERGED, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return errno == ENOENT ? 0 : uc_fail(err, errno, "open `%s`", UC_CTL_MERGED);
	return uc_mount_look(fd, ret_info, err);
}

/* The one device of a volume that is no union: 0, -ENOENT or another negative errno. */
static int find_device(struct csi_local *l, const struct uc_volume *v, char to[static DEVICE_SIZE])
{
	struct uc_loopdev loop = UC_LOOPDEV_NONE;
	dev_t dev = 0;
	int r;

	r = v->n_segments ? csi_map_find(v, &dev, NULL) : csi_branch_find(l, v, 0, &loop, NULL);
	if (r == 0)
		snprintf(to, DEVICE_SIZE, "%s",
			 v->n_segments ? UC_DM_PATH(dev) : UC_LOOPDEV_PATH(&loop));
	return r;
}

bool csi_local_owns_mount(struct csi_backend *b, const struct uc_volume *v,
			  const struct uc_mount_info *info)
{
	char device[DEVICE_SIZE];

	if (uc_volume_is_union(v))
		return strcmp(info->fstype, fuse_type) == 0 && strcmp(info->source, v->id) == 0;
	return strcmp(info->fstype, v->fstype) == 0 &&
	       find_device((struct csi_local *)b, v, device) == 0 &&
	       strcmp(info->source, device) == 0;
}

struct use {
	struct csi_backend *backend;
	const struct uc_volume *volume;
	const struct uc_mount_info *merged; /* NULL: it is not mounted */
	char *place;                        /* owned */
};

/* Another driver's volume may have the same id: it is the superblock that tells, if it is known. */
static int find_use(void *data, const struct uc_mount_info *info)
{
	struct use *use = data;
	bool is_use = use->merged ? info->dev == use->merged->dev &&
					    strcmp(info->target, use->merged->target) != 0
				  : csi_local_owns_mount(use->backend, use->volume, info);

	if (!is_use)
		return 0;
	use->place = strdup(info->target);
	return use->place ? 1 : -ENOMEM;
}

int csi_local_find_use(struct csi_local *l, int dir_fd, const struct uc_volume *v, char **ret_place,
		       struct uc_err *err)
{
	cleanup_mount_info struct uc_mount_info merged = { .id = 0 };
	struct use use = { .backend = &l->base, .volume = v };
	int r;

	r = look_at_merged(dir_fd, &merged, err);
	if (r < 0)
		return r;
	if (r > 0 && csi_local_owns_mount(&l->base, v, &merged))
		use.merged = &merged;
	r = uc_mount_each(find_use, &use, err);
	*ret_place = use.place;
	return r == -ENOMEM ? uc_fail(err, ENOMEM, "look for users of volume `%s`", v->id) : r;
}

static int fail_foreign(const struct uc_volume *v, const struct uc_mount_info *info,
			struct uc_err *err)
{
	return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
			"`%s` (%s) is mounted at `%s` of volume `%s`: it is not the volume's",
			UC_PRINTABLE(info->source), UC_PRINTABLE(info->fstype),
			UC_PRINTABLE(info->target), v->id);
}

/* Unmounts whatever of ours is at merged/, also in layers. */
static int clear_merged(struct csi_local *l, struct uc_volume_lock *lock, const struct uc_volume *v,
			int flags, struct uc_err *err)
{
	for (;;) {
		cleanup_mount_info struct uc_mount_info info = { .id = 0 };
		int r = look_at_merged(lock->fd, &info, err);

		if (r <= 0)
			return r;
		if (!csi_local_owns_mount(&l->base, v, &info))
			return fail_foreign(v, &info, err);
		r = uc_unmount_at(lock->fd, UC_CTL_MERGED, flags, err);
		if (r == -EBUSY)
			return csi_as(err, r, UC_GRPC_FAILED_PRECONDITION);
		if (r < 0 && r != -EINVAL)
			return r;
	}
}

/* ----------------------------------------------------------------- the server */

static int fill_spec(struct uc_volume *v, const struct uc_loopdev *loops,
		     struct uc_union_spec *spec, struct uc_err *err)
{
	spec->volume_id = strdup(v->id);
	spec->branches = calloc(v->n_branches, sizeof(*spec->branches));
	spec->policy = v->params.policy;
	spec->min_free_space = v->params.min_free_space;
	spec->initialise = !v->initialised;
	if (!spec->volume_id || !spec->branches)
		return uc_fail(err, ENOMEM, "describe volume `%s`", v->id);
	spec->n_branches = v->n_branches;
	for (char **f = v->stage.mount_flags; f && *f; f++)
		if (uc_strv_push(&spec->mount_flags, *f) < 0)
			return uc_fail(err, ENOMEM, "describe volume `%s`", v->id);
	for (size_t i = 0; i < v->n_branches; i++) {
		struct uc_branch_spec *b = &spec->branches[i];

		b->device = strdup(UC_LOOPDEV_PATH(&loops[i]));
		b->fstype = strdup(v->fstype);
		b->uuid = strdup(v->branches[i].uuid);
		if (!b->device || !b->fstype || !b->uuid)
			return uc_fail(err, ENOMEM, "describe volume `%s`", v->id);
	}
	return 0;
}

static int spawn_server(struct csi_local *l, struct uc_volume *v, const struct uc_loopdev *loops,
			struct uc_err *err)
{
	cleanup_union_spec struct uc_union_spec spec = { .n_branches = 0 };
	cleanup_free char *dir = NULL, *dir_option = NULL, *log_option = NULL, *text = NULL;
	cleanup_json json_t *object = NULL;
	const char *argv[] = { l->union_fs, "serve", NULL, NULL, NULL };
	struct uc_proc proc = { .argv = argv, .timeout_ms = SERVER_START_MS };
	int r;

	r = volume_dir(l, v, &dir, err);
	if (r == 0)
		r = fill_spec(v, loops, &spec, err);
	if (r < 0)
		return r;
	object = uc_union_spec_to_json(&spec);
	text = object ? uc_json_format(object) : NULL;
	if (!text || asprintf(&dir_option, "--dir=%s", dir) < 0 ||
	    asprintf(&log_option, "--log-file=%s/server.log", dir) < 0)
		return uc_fail(err, ENOMEM, "start the server of volume `%s`", v->id);
	argv[2] = dir_option;
	argv[3] = log_option;
	proc.input = text;
	r = uc_proc_run(&proc, NULL, err);
	return r < 0 ? uc_wrap(err, r, "start the volume server") : 0;
}

/* 0: it serves this volume; -ECONNREFUSED: nobody does. */
static int ask_server(struct csi_local *l, const struct uc_volume *v, const char *op,
		      uint64_t timeout_ms, struct uc_err *err)
{
	cleanup_json json_t *reply = NULL;
	cleanup_free char *dir = NULL;
	const char *id = NULL, *state = NULL;
	int r;

	r = volume_dir(l, v, &dir, err);
	if (r == 0)
		r = uc_ctl_call(dir, op, timeout_ms, &reply, err);
	if (r < 0 || strcmp(op, "status") != 0)
		return r;
	r = uc_json_get_str(reply, "volumeId", true, &id, err);
	if (r == 0)
		r = uc_json_get_str(reply, "state", true, &state, err);
	if (r < 0)
		return uc_wrap(err, r, "status of the server of volume `%s`", v->id);
	if (strcmp(id, v->id) != 0)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"the server in the directory of volume `%s` serves `%s`", v->id,
				UC_PRINTABLE(id));
	if (strcmp(state, "ready") != 0)
		return csi_fail(err, UC_GRPC_ABORTED, "the server of volume `%s` is %s", v->id,
				UC_PRINTABLE(state));
	return 0;
}

/*
 * Unmounts the union of a server that died; one that lives keeps it, whether it answers or not.
 * One that is ending lives a little longer than its socket.
 */
static int clear_dead(struct csi_local *l, struct uc_volume_lock *lock, const struct uc_volume *v,
		      int flags, struct uc_err *err)
{
	uint64_t end = uc_now_ms() + RELEASE_MS;
	cleanup_fd int claim = -1;
	int r;

	for (;;) {
		r = uc_ctl_claim(lock->fd, &claim, err);
		if (r != -EBUSY || uc_now_ms() >= end)
			break;
		uc_sleep_ms(10);
	}
	if (r == -EBUSY)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"volume `%s` has a server that lives but cannot be asked", v->id);
	return r == 0 ? clear_merged(l, lock, v, flags, err) : r == -ENOENT ? 0 : r;
}

static int up_union(struct csi_local *l, const struct csi_op *op, struct uc_volume_lock *lock,
		    struct uc_volume *v, const struct uc_loopdev *loops, struct uc_err *err)
{
	int r;

	r = ask_server(l, v, "status", SERVER_STATUS_MS, NULL);
	if (r == 0 && csi_local_check_up(&l->base, v, NULL) == 0)
		return 0;
	if (r == 0)
		return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
				"volume `%s` has a server, but is not mounted at `%s` any more: "
				"unpublish and unstage it",
				v->id, UC_CTL_MERGED);
	if (r != -ECONNREFUSED) /* it hangs or stops: not to be built on */
		return csi_fail(err, UC_GRPC_ABORTED, "volume `%s` has a server that is not ready",
				v->id);
	r = clear_dead(l, lock, v, MNT_DETACH, err);
	if (r == 0)
		r = csi_step(op, err, "start the volume server");
	if (r == 0)
		r = spawn_server(l, v, loops, err);
	if (r == 0)
		r = csi_local_check_up(&l->base, v, err);
	return r;
}

/* -------------------------------------------------------------- a single mount */

static int up_single(struct csi_local *l, const struct csi_op *op, struct uc_volume_lock *lock,
		     const struct uc_volume *v, const char *device, struct uc_err *err)
{
	cleanup_mount_info struct uc_mount_info info = { .id = 0 };
	struct uc_mount_opts opts = { .fs = NULL };
	cleanup_fd int mount_fd = -1, target = -1;
	int r;

	r = look_at_merged(lock->fd, &info, err);
	if (r > 0 && csi_local_owns_mount(&l->base, v, &info))
		return 0;
	if (r > 0)
		return fail_foreign(v, &info, err);
	if (r == 0)
		r = csi_step(op, err, "mount `%s`", device);
	if (r < 0)
		return r;
	target = uc_make_dir_at(lock->fd, UC_CTL_MERGED, 0700);
	if (target < 0)
		return uc_fail(err, -target, "make `%s`", UC_CTL_MERGED);
	r = uc_mount_opts_parse(v->stage.mount_flags, &opts, err);
	if (r == 0)
		r = uc_mount_fs(v->fstype, NULL, device, &opts, false, &mount_fd, err);
	uc_mount_opts_done(&opts);
	return r < 0 ? r : uc_mount_attach(mount_fd, target, err);
}

/* ------------------------------------------------------------------------- up */

static int up_devices(struct csi_local *l, const struct csi_op *op, struct uc_volume_lock *lock,
		      struct uc_volume *v, struct uc_loopdev *loops, struct uc_err *err)
{
	for (size_t i = 0; i < v->n_branches; i++) {
		int r = csi_step(op, err, "attach branch %zu of %zu", i, v->n_branches);

		if (r == 0)
			r = csi_branch_attach(l, v, i, &loops[i], err);
		if (r < 0)
			return r;
	}
	return csi_store(lock, v, err); /* which files: down() must find them without the pools */
}

/* Each branch its own, or one on all of them; @ret_device is that of a volume that has only one. */
static int up_filesystems(struct csi_local *l, const struct csi_op *op, struct uc_volume_lock *lock,
			  struct uc_volume *v, const struct uc_loopdev *loops,
			  char ret_device[static DEVICE_SIZE], struct uc_err *err)
{
	size_t n = v->n_segments ? 1 : v->n_branches;
	dev_t dev = 0;
	int r = 0;

	if (v->n_segments) {
		r = csi_step(op, err, "map %zu branches", v->n_branches);
		if (r == 0)
			r = csi_map_up(v, loops, &dev, err);
	}
	snprintf(ret_device, DEVICE_SIZE, "%s",
		 v->n_segments ? UC_DM_PATH(dev) : UC_LOOPDEV_PATH(&loops[0]));
	for (size_t i = 0; i < n && r == 0; i++)
		r = csi_branch_format(l, op, lock, v, i,
				      n == 1 ? ret_device : UC_LOOPDEV_PATH(&loops[i]), err);
	for (size_t i = 0; i < v->n_branches && r == 0; i++)
		r = csi_branch_reserve(l, v, i, &loops[i], err);
	return r;
}

int csi_local_up(struct csi_backend *b, const struct csi_op *op, struct uc_volume_lock *lock,
		 struct uc_volume *v, struct uc_err *err)
{
	struct csi_local *l = (struct csi_local *)b;
	cleanup_free struct uc_loopdev *loops = calloc(v->n_branches, sizeof(*loops));
	char device[DEVICE_SIZE];
	int r;

	if (!loops)
		return uc_fail(err, ENOMEM, "bring volume `%s` up", v->id);
	r = up_devices(l, op, lock, v, loops, err);
	if (r == 0)
		r = up_filesystems(l, op, lock, v, loops, device, err);
	if (r == 0)
		r = uc_volume_is_union(v) ? up_union(l, op, lock, v, loops, err)
					  : up_single(l, op, lock, v, device, err);
	if (r == 0 && !v->initialised) {
		v->initialised = true;
		r = csi_store(lock, v, err);
	}
	return r;
}

int csi_local_check_up(struct csi_backend *b, const struct uc_volume *v, struct uc_err *err)
{
	struct csi_local *l = (struct csi_local *)b;
	cleanup_mount_info struct uc_mount_info info = { .id = 0 };
	cleanup_fd int dir_fd = -1;
	int r;

	dir_fd = uc_open_dir_at(l->store->volumes_fd, v->id);
	if (dir_fd < 0)
		return uc_fail(err, -dir_fd, "open the directory of volume `%s`", v->id);
	if (uc_volume_is_union(v)) {
		r = ask_server(l, v, "status", SERVER_STATUS_MS, err);
		if (r == -ECONNREFUSED)
			return uc_fail_as(err, ENOTCONN, UC_GRPC_FAILED_PRECONDITION,
					  "the server of volume `%s` has gone", v->id);
		if (r < 0)
			return csi_as(err, uc_wrap(err, r, "the volume server does not work"),
				      UC_GRPC_ABORTED);
	}
	r = look_at_merged(dir_fd, &info, err);
	if (r < 0)
		return r;
	if (r == 0)
		return uc_fail_as(err, ENOTCONN, UC_GRPC_FAILED_PRECONDITION,
				  "volume `%s` is not mounted", v->id);
	return csi_local_owns_mount(b, v, &info) ? 0 : fail_foreign(v, &info, err);
}

/* ----------------------------------------------------------------------- down */

/* The server has been asked to end; a process cannot be waited for that is not our child. */
static int await_server(struct csi_local *l, const struct uc_volume *v, struct uc_err *err)
{
	uint64_t end = uc_now_ms() + RELEASE_MS;

	for (;;) {
		struct uc_err answer = { .num = 0 };
		int r = ask_server(l, v, "status", SERVER_STATUS_MS, &answer);

		if (r == -ECONNREFUSED)
			return 0;
		if (uc_now_ms() >= end)
			return csi_fail(
				err, UC_GRPC_FAILED_PRECONDITION,
				"volume `%s` is still in use: its server waits for the last user",
				v->id);
		uc_sleep_ms(10);
	}
}

/* A server that does not answer, and that nobody needs any more. */
static int kill_server(struct csi_local *l, const struct csi_op *op, int dir_fd,
		       const struct uc_volume *v, struct uc_err *err)
{
	cleanup_free char *dir = NULL, *place = NULL;
	int r;

	r = csi_local_find_use(l, dir_fd, v, &place, err);
	if (r > 0)
		return uc_fail_as(err, EBUSY, 0,
				  "its server does not answer, and it is mounted at `%s`",
				  UC_PRINTABLE(place));
	if (r == 0)
		r = csi_step(op, err, "kill the volume server");
	if (r == 0)
		r = volume_dir(l, v, &dir, err);
	if (r < 0)
		return r;
	log_warn("volume `%s`: its server does not answer and is killed", v->id);
	return uc_ctl_kill(dir, err);
}

static int down_union(struct csi_local *l, const struct csi_op *op, struct uc_volume_lock *lock,
		      const struct uc_volume *v, struct uc_err *err)
{
	struct uc_err answer = { .num = 0 };
	int r;

	r = csi_step(op, err, "stop the volume server");
	if (r < 0)
		return r;
	/* Only one that says nothing at all hangs; an unmount may take its time. */
	r = ask_server(l, v, "status", SERVER_HANG_MS, &answer);
	if (r == -ETIMEDOUT)
		r = kill_server(l, op, lock->fd, v, &answer);
	else if (r != -ECONNREFUSED)
		r = ask_server(l, v, "stop", SERVER_STOP_MS, &answer);
	if (r == 0)
		r = await_server(l, v, err);
	else if (r == -ECONNREFUSED)
		r = 0;
	else
		r = csi_fail(err, UC_GRPC_FAILED_PRECONDITION, "volume `%s` is still in use: %s",
			     v->id, answer.msg);
	if (r < 0)
		return r;
	r = clear_dead(l, lock, v, MNT_DETACH | MNT_FORCE, err);
	if (r == 0 && unlinkat(lock->fd, UC_CTL_SOCKET, 0) < 0 && errno != ENOENT)
		r = uc_fail(err, errno, "remove `%s`", UC_CTL_SOCKET);
	return r;
}

static int down_device(struct csi_local *l, const struct csi_op *op, struct uc_volume *v, size_t i,
		       struct uc_err *err)
{
	struct uc_loopdev loop = UC_LOOPDEV_NONE;
	int r;

	r = csi_step(op, err, "detach branch %zu of %zu", i, v->n_branches);
	if (r == 0)
		r = csi_branch_find(l, v, i, &loop, err);
	if (r == 0) {
		r = uc_blk_wait_unclaimed(UC_LOOPDEV_PATH(&loop), RELEASE_MS, err);
		if (r == -EBUSY)
			return csi_fail(err, UC_GRPC_FAILED_PRECONDITION,
					"branch %zu (`%s`) is still in use", i,
					UC_LOOPDEV_PATH(&loop));
	}
	if (r == 0)
		r = uc_loopdev_detach(&loop, err);
	if (r < 0 && r != -ENOENT)
		return uc_wrap(err, r, "detach branch %zu", i);
	v->branches[i].file_dev = 0;
	v->branches[i].file_ino = 0;
	return 0;
}

int csi_local_down(struct csi_backend *b, const struct csi_op *op, struct uc_volume_lock *lock,
		   struct uc_volume *v, struct uc_err *err)
{
	struct csi_local *l = (struct csi_local *)b;
	int r;

	r = uc_volume_is_union(v) ? down_union(l, op, lock, v, err)
				  : clear_merged(l, lock, v, 0, err);
	if (r == 0 && v->n_segments) {
		r = csi_step(op, err, "unmap the branches");
		if (r == 0)
			r = csi_map_down(v, err);
	}
	for (size_t i = 0; i < v->n_branches && r == 0; i++)
		r = down_device(l, op, v, i, err);
	if (r == 0 && unlinkat(lock->fd, UC_CTL_MERGED, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = uc_fail(err, errno, "remove `%s`", UC_CTL_MERGED);
	return r;
}

bool csi_local_has_leftovers(struct csi_backend *b, const struct uc_volume *v)
{
	struct csi_local *l = (struct csi_local *)b;
	cleanup_mount_info struct uc_mount_info info = { .id = 0 };
	cleanup_fd int dir_fd = uc_open_dir_at(l->store->volumes_fd, v->id);
	struct uc_loopdev loop;
	dev_t dev;

	if (v->n_segments && csi_map_find(v, &dev, NULL) != -ENOENT)
		return true;
	if (dir_fd >= 0 && (faccessat(dir_fd, UC_CTL_SOCKET, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
			    look_at_merged(dir_fd, &info, NULL) > 0))
		return true;
	for (size_t i = 0; i < v->n_branches; i++)
		if (csi_branch_find(l, v, i, &loop, NULL) != -ENOENT)
			return true;
	return false;
}
