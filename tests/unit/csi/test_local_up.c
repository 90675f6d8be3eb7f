/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"

#include "tests/lib/local.h"
#include "tests/lib/mounts.h"
#include "tests/lib/steps_dirs.h"
#include "tests/lib/steps_sync.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>

#include "csi/status.h"
#include "lib/base/macros.h"
#include "lib/os/blk.h"
#include "lib/os/clock.h"
#include "lib/os/mkfs.h"
#include "lib/os/proc.h"
#include "lib/vol/ctl.h"
#include "lib/vol/spec.h"

/* ------------------------------------------------------------------------ the clock */

static uint64_t now_ms;

uint64_t __wrap_uc_now_ms(void);
uint64_t __wrap_uc_now_ms(void)
{
	return now_ms;
}

void __wrap_uc_sleep_ms(uint64_t ms);
void __wrap_uc_sleep_ms(uint64_t ms)
{
	now_ms += ms;
}

/* ---------------------------------------------- loop devices, and what is on them */

#define DEVICE "/proc/self/cwd/device" /* and its number */

static struct device {
	dev_t dev;
	ino_t ino; /* of the file; 0: free */
	struct uc_blk_content content;
	bool claimed;
} devices[8];

static size_t n_attached(void)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
		n += devices[i].ino != 0;
	return n;
}

const char *__wrap_uc_loopdev_path(const struct uc_loopdev *loop, char *to);
const char *__wrap_uc_loopdev_path(const struct uc_loopdev *loop, char *to)
{
	snprintf(to, UC_LOOPDEV_PATH_SIZE, DEVICE "%d", loop->number);
	return to;
}

int __wrap_uc_loopdev_find(dev_t dev, ino_t ino, const char *name, struct uc_loopdev *ret_loop,
			   struct uc_err *err);
int __wrap_uc_loopdev_find(dev_t dev, ino_t ino, const char *name, struct uc_loopdev *ret_loop,
			   struct uc_err *err)
{
	(void)name;
	(void)err;
	for (int i = 0; i < (int)ARRAY_SIZE(devices); i++)
		if (devices[i].ino == ino && devices[i].dev == dev) {
			*ret_loop = (struct uc_loopdev){ .number = i, .dev = dev, .ino = ino };
			return 0;
		}
	return -ENOENT;
}

int __wrap_uc_loopdev_attach(int fd, const char *name, struct uc_loopdev *ret_loop,
			     struct uc_err *err);
int __wrap_uc_loopdev_attach(int fd, const char *name, struct uc_loopdev *ret_loop,
			     struct uc_err *err)
{
	struct stat st;
	int i = 0;

	if (fails())
		return uc_fail(err, EIO, "attach `%s`", name);
	assert_int_equal(fstat(fd, &st), 0);
	if (__wrap_uc_loopdev_find(st.st_dev, st.st_ino, NULL, ret_loop, NULL) == 0)
		return 0;
	while (devices[i].ino)
		i++;
	devices[i].dev = st.st_dev;
	devices[i].ino = st.st_ino;
	*ret_loop = (struct uc_loopdev){ .number = i, .dev = st.st_dev, .ino = st.st_ino };
	return 0;
}

int __wrap_uc_loopdev_detach(const struct uc_loopdev *loop, struct uc_err *err);
int __wrap_uc_loopdev_detach(const struct uc_loopdev *loop, struct uc_err *err)
{
	if (fails())
		return uc_fail(err, EIO, "detach");
	assert_false(devices[loop->number].claimed);
	devices[loop->number].ino = 0;
	return 0;
}

int __wrap_uc_loopdev_forbid_discard(const struct uc_loopdev *loop, struct uc_err *err);
int __wrap_uc_loopdev_forbid_discard(const struct uc_loopdev *loop, struct uc_err *err)
{
	(void)loop;
	return fails() ? uc_fail(err, EIO, "forbid discards") : 0;
}

int __wrap_uc_blk_wait_unclaimed(const char *path, uint64_t timeout_ms, struct uc_err *err);
int __wrap_uc_blk_wait_unclaimed(const char *path, uint64_t timeout_ms, struct uc_err *err)
{
	assert_true(timeout_ms > 0);
	if (fails())
		return uc_fail(err, EIO, "wait");
	return devices[atoi(path + strlen(DEVICE))].claimed ? -EBUSY : 0;
}

/* --------------------------------------------- the device that is mapped over all others */

enum {
	MAPPED = 7,
};

static enum uc_layout layout;
static bool is_mapped;

static void claim_branches(const struct uc_volume *v, bool claimed)
{
	for (size_t i = 0; i < v->n_branches; i++) {
		struct uc_loopdev loop = UC_LOOPDEV_NONE;

		assert_int_equal(__wrap_uc_loopdev_find(v->branches[i].file_dev,
							v->branches[i].file_ino, NULL, &loop, NULL),
				 0);
		devices[loop.number].claimed = claimed;
	}
}

const char *__wrap_uc_dm_path(dev_t dev, char *to);
const char *__wrap_uc_dm_path(dev_t dev, char *to)
{
	snprintf(to, UC_DM_PATH_SIZE, DEVICE "%u", minor(dev));
	return to;
}

int __wrap_csi_map_find(const struct uc_volume *v, dev_t *ret_dev, struct uc_err *err);
int __wrap_csi_map_find(const struct uc_volume *v, dev_t *ret_dev, struct uc_err *err)
{
	(void)err;
	assert_true(v->n_segments > 0);
	*ret_dev = makedev(253, MAPPED);
	return is_mapped ? 0 : -ENOENT;
}

int __wrap_csi_map_up(const struct uc_volume *v, const struct uc_loopdev *loops, dev_t *ret_dev,
		      struct uc_err *err);
int __wrap_csi_map_up(const struct uc_volume *v, const struct uc_loopdev *loops, dev_t *ret_dev,
		      struct uc_err *err)
{
	assert_true(v->n_segments > 0);
	if (fails())
		return uc_fail(err, EIO, "map");
	for (size_t i = 0; i < v->n_branches; i++)
		assert_int_equal(loops[i].ino, v->branches[i].file_ino);
	claim_branches(v, true);
	is_mapped = true;
	*ret_dev = makedev(253, MAPPED);
	return fails() ? uc_fail(err, EIO, "map") : 0; /* it is there already */
}

int __wrap_csi_map_down(const struct uc_volume *v, struct uc_err *err);
int __wrap_csi_map_down(const struct uc_volume *v, struct uc_err *err)
{
	assert_false(devices[MAPPED].claimed);
	if (fails())
		return uc_fail(err, EIO, "unmap");
	if (is_mapped)
		claim_branches(v, false);
	is_mapped = false;
	return 0;
}

/* The file's content goes with it, whatever its device. */
static int number_of(int fd)
{
	char path[64], target[4096];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, target, sizeof(target) - 1);
	assert_true(n > 0);
	target[n] = '\0';
	return atoi(strrchr(target, '/') + 1 + strlen("device"));
}

int __wrap_uc_blk_probe(int fd, struct uc_blk_content *ret_content, struct uc_err *err);
int __wrap_uc_blk_probe(int fd, struct uc_blk_content *ret_content, struct uc_err *err)
{
	if (fails())
		return uc_fail(err, EIO, "probe");
	*ret_content = devices[number_of(fd)].content;
	return 0;
}

static unsigned mkfs_calls;

int __wrap_uc_mkfs_run(const struct uc_mkfs *mkfs, struct uc_err *err);
int __wrap_uc_mkfs_run(const struct uc_mkfs *mkfs, struct uc_err *err)
{
	struct uc_blk_content *c = &devices[atoi(mkfs->device + strlen(DEVICE))].content;

	mkfs_calls++;
	c->kind = UC_BLK_FILESYSTEM;
	strcpy(c->type, mkfs->fstype);
	snprintf(c->uuid, sizeof(c->uuid), "%s", mkfs->uuid);
	return fails() ? uc_fail(err, EIO, "mkfs") : 0; /* after it has begun */
}

int __wrap_fallocate64(int fd, int mode, off_t offset, off_t n);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t n)
{
	(void)mode;
	(void)offset;
	return fails() ? -1 : ftruncate(fd, n);
}

/* ---------------------------------------------------------------------------- mounts */

static char mount_flags[128];

int __wrap_uc_mount_fs(const char *fstype, const char *subtype, const char *source,
		       const struct uc_mount_opts *opts, bool read_only, int *ret_fd,
		       struct uc_err *err);
int __wrap_uc_mount_fs(const char *fstype, const char *subtype, const char *source,
		       const struct uc_mount_opts *opts, bool read_only, int *ret_fd,
		       struct uc_err *err)
{
	struct fake_mount *m = &fake_mounts.list[fake_mounts.n];

	assert_null(subtype);
	assert_false(read_only);
	if (fails())
		return uc_fail(err, EIO, "mount `%s`", source);
	snprintf(mount_flags, sizeof(mount_flags), "%s", opts->fs ? opts->fs[0] : "");
	*m = (struct fake_mount){ .clone_fd = open("/dev/null", O_PATH | O_CLOEXEC) };
	snprintf(m->fstype, sizeof(m->fstype), "%s", fstype);
	snprintf(m->source, sizeof(m->source), "%s", source);
	fake_mounts.n++;
	devices[atoi(source + strlen(DEVICE))].claimed = true;
	*ret_fd = m->clone_fd;
	return 0;
}

static void unclaim(const char *source)
{
	if (uc_str_has_prefix(source, DEVICE))
		devices[atoi(source + strlen(DEVICE))].claimed = false;
}

int __wrap_uc_mount_attach(int mount_fd, int target_fd, struct uc_err *err);
int __wrap_uc_mount_attach(int mount_fd, int target_fd, struct uc_err *err)
{
	if (fails()) {
		unclaim(fake_mounts.list[fake_mounts.n - 1].source);
		fake_mounts_forget_detached();
		return uc_fail(err, EIO, "attach a mount");
	}
	return fake_mount_attach(mount_fd, target_fd);
}

int __wrap_uc_unmount_at(int parent_fd, const char *name, int flags, struct uc_err *err);
int __wrap_uc_unmount_at(int parent_fd, const char *name, int flags, struct uc_err *err)
{
	struct fake_mount *m = fake_mount_at("s/volumes/v1/merged");
	int r;

	if (m && !fake_mounts.busy)
		unclaim(m->source);
	r = fails() ? -EIO : fake_unmount_at(parent_fd, name, flags);
	return r < 0 ? uc_fail(err, -r, "unmount `%s`", name) : 0;
}

/* -------------------------------------------------------------------- the volume server */

static struct {
	bool alive, hangs, stops_late;
	unsigned starts;
	const char *id, *state; /* as it says */
	int stop_result;
	bool killed;
	unsigned places;           /* where its union is mounted */
	struct uc_union_spec spec; /* as it was told */
} server;

static void server_ends(void)
{
	struct fake_mount *m = fake_mount_at("s/volumes/v1/merged");

	server.alive = false;
	if (m && strcmp(m->fstype, "fuse.union-fs") == 0)
		fake_mount_remove(m);
	for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
		devices[i].claimed = false;
}

int __wrap_uc_proc_run(const struct uc_proc *proc, struct uc_buf *output, struct uc_err *err);
int __wrap_uc_proc_run(const struct uc_proc *proc, struct uc_buf *output, struct uc_err *err)
{
	char dir[4200];
	cleanup_json json_t *object = NULL;

	assert_null(output);
	assert_string_equal(proc->argv[0], "union-fs");
	assert_string_equal(proc->argv[1], "serve");
	snprintf(dir, sizeof(dir), "--dir=%s/volumes/v1", store.path);
	assert_string_equal(proc->argv[2], dir);
	assert_true(proc->timeout_ms > 0);
	if (fails())
		return uc_fail(err, EIO, "run `union-fs`");
	server.starts++;
	assert_int_equal(uc_json_parse(proc->input, strlen(proc->input), &object, NULL), 0);
	uc_union_spec_done(&server.spec);
	assert_int_equal(uc_union_spec_from_json(object, &server.spec, NULL), 0);
	assert_true(mkdir("s/volumes/v1/merged", 0700) == 0 || errno == EEXIST);
	write_file("s/volumes/v1/ctl.sock", "");
	write_file("s/volumes/v1/server.log", "");
	fake_mount_add("s/volumes/v1/merged", "fuse.union-fs", "v1");
	server.alive = true;
	server.state = "ready";
	for (size_t i = 0; i < server.spec.n_branches; i++)
		devices[atoi(server.spec.branches[i].device + strlen(DEVICE))].claimed = true;
	return fails() ? uc_fail(err, ETIMEDOUT, "run `union-fs`") : 0; /* it is there already */
}

int __wrap_uc_ctl_call(const char *dir, const char *op, uint64_t timeout_ms, json_t **ret_reply,
		       struct uc_err *err);
int __wrap_uc_ctl_call(const char *dir, const char *op, uint64_t timeout_ms, json_t **ret_reply,
		       struct uc_err *err)
{
	assert_true(uc_str_has_suffix(dir, "/volumes/v1"));
	assert_true(timeout_ms > 0);
	if (!server.alive)
		return uc_fail(err, ECONNREFUSED, "nobody serves");
	if (server.hangs)
		return uc_fail(err, ETIMEDOUT, "it does not answer");
	if (fails())
		return uc_fail(err, EIO, "ask the server");
	if (strcmp(op, "status") == 0) {
		*ret_reply = json_pack("{s:s, s:s}", "volumeId", server.id, "state", server.state);
		if (strcmp(server.state, "stopping") == 0 && !server.stops_late)
			server_ends();
		return 0;
	}
	assert_string_equal(op, "stop");
	if (server.stop_result < 0)
		return uc_fail(err, -server.stop_result, "it is mounted elsewhere");
	server.state = "stopping";
	if (ret_reply)
		*ret_reply = json_object();
	return 0;
}

int __wrap_uc_ctl_kill(const char *dir, struct uc_err *err);
int __wrap_uc_ctl_kill(const char *dir, struct uc_err *err)
{
	assert_true(uc_str_has_suffix(dir, "/volumes/v1"));
	if (fails())
		return uc_fail(err, EIO, "kill the server");
	server.killed = true;
	server_ends();
	return 0;
}

int __wrap_uc_ctl_claim(int dir_fd, int *ret_fd, struct uc_err *err);
int __wrap_uc_ctl_claim(int dir_fd, int *ret_fd, struct uc_err *err)
{
	if (fails())
		return uc_fail(err, EIO, "lock `merged`");
	if (server.alive)
		return uc_fail(err, EBUSY, "another server serves this directory");
	if (faccessat(dir_fd, "merged", F_OK, 0) < 0)
		return uc_fail(err, ENOENT, "open `merged`");
	*ret_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return 0;
}

int __wrap_uc_mount_each(int (*fn)(void *data, const struct uc_mount_info *info), void *data,
			 struct uc_err *err);
int __wrap_uc_mount_each(int (*fn)(void *data, const struct uc_mount_info *info), void *data,
			 struct uc_err *err)
{
	const struct uc_mount_info info = {
		.dev = fake_mount_at("s/volumes/v1/merged")->dev,
	};

	if (fails())
		return uc_fail(err, EIO, "read the mount table");
	for (unsigned i = 0; i < server.places; i++)
		fn(data, &info);
	return 0;
}

/* ------------------------------------------------------------------------------- tests */

static int set_up(void **state)
{
	(void)state;
	fake_mounts_reset();
	memset(devices, 0, sizeof(devices));
	memset(&server, 0, sizeof(server));
	server.id = "v1";
	server.state = "ready";
	layout = UC_LAYOUT_UNION;
	is_mapped = false;
	now_ms = 1000;
	mkfs_calls = 0;
	for (int i = 0; i < (int)ARRAY_SIZE(devices); i++) {
		char name[16];

		snprintf(name, sizeof(name), "device%d", i);
		write_file(name, "");
	}
	local_begin(true);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	uc_union_spec_done(&server.spec);
	local_end();
	return 0;
}

/* Has v1 of @n branches, being staged; @thick: with all its space. */
static void have_staging(uint64_t n, bool thick)
{
	struct csi_create c = local_want("v1", n);
	struct uc_err err = { 0 };
	struct uc_volume v;

	c.params.layout = layout;
	c.params.stripe_size = UC_STRIPE_SIZE;
	if (local_create(&c, &err) < 0)
		fail_msg("%s", err.msg);
	v = local_load("v1");
	v.thin = !thick;
	uc_stage_done(&v.stage);
	v.stage = (struct uc_stage){ .phase = UC_STAGE_STAGING,
				     .path = strdup("/stage"),
				     .boot_id = strdup("b"),
				     .access_mode = 1 };
	uc_strv_push(&v.stage.mount_flags, "data=journal");
	local_store(&v);
}

static int run(bool down, struct uc_err *err)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = local_load("v1");
	struct csi_op op = local_op("v1");
	int r;

	assert_int_equal(uc_volume_lock(&store, "v1", false, &lock, NULL), 0);
	if (!down)
		return local->base.ops->up(&local->base, &op, &lock, &v, err);
	r = local->base.ops->down(&local->base, &op, &lock, &v, err);
	return r < 0 ? r : uc_volume_store(&lock, &v, err); /* as the node does */
}

static int up(struct uc_err *err)
{
	return run(false, err);
}

static int down(struct uc_err *err)
{
	return run(true, err);
}

static int check_up(struct uc_err *err)
{
	cleanup_volume struct uc_volume v = local_load("v1");

	return local->base.ops->check_up(&local->base, &v, err);
}

static bool has_leftovers(void)
{
	cleanup_volume struct uc_volume v = local_load("v1");

	return local->base.ops->has_leftovers(&local->base, &v);
}

/* Unstaged, and removed; the devices are blank again. */
static void be_rid_of_it(void)
{
	struct uc_volume v = local_load("v1");

	uc_stage_done(&v.stage);
	local_store(&v);
	assert_int_equal(local_remove("v1", NULL), 0);
	memset(devices, 0, sizeof(devices));
	mkfs_calls = 0;
}

static void must(int r, const struct uc_err *err)
{
	if (r < 0)
		fail_msg("%s", err->msg);
}

static void check_is_up(uint64_t n)
{
	cleanup_volume struct uc_volume v = local_load("v1");
	struct uc_err err = { 0 };

	must(check_up(&err), &err);
	assert_int_equal(n_attached(), n);
	assert_int_equal(fake_mounts_attached(), 1);
	assert_int_equal(server.alive, n > 1 && layout == UC_LAYOUT_UNION);
	assert_int_equal(is_mapped, n > 1 && layout != UC_LAYOUT_UNION);
	assert_true(v.initialised);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(v.branches[i].format,
				 i > 0 && is_mapped ? UC_FORMAT_NEVER : UC_FORMAT_DONE);
		assert_int_not_equal(v.branches[i].file_ino, 0);
	}
	assert_true(has_leftovers());
}

static void check_nothing_is_left(void)
{
	fake_mounts_forget_detached();
	assert_int_equal(n_attached(), 0);
	assert_int_equal(fake_mounts_attached(), 0);
	assert_false(server.alive);
	assert_false(is_mapped);
	assert_false(file_exists("s/volumes/v1/merged"));
	assert_false(file_exists("s/volumes/v1/ctl.sock"));
	assert_false(has_leftovers());
	assert_true(check_up(NULL) < 0);
}

static void up_and_down_and_up_again(void **state)
{
	static const uint64_t sizes[] = { 1, 2, 5 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct uc_err err = { 0 };

		have_staging(sizes[i], i % 2);
		check_nothing_is_left();
		for (int k = 0; k < 2; k++) {
			must(up(&err), &err);
			check_is_up(sizes[i]);
			must(down(&err), &err);
			check_nothing_is_left();
			must(down(&err), &err); /* nothing is down already */
			check_nothing_is_left();
		}
		assert_int_equal(mkfs_calls, sizes[i]);
		be_rid_of_it();
	}
}

static void what_is_up_is_left_as_it_is(void **state)
{
	(void)state;
	for (uint64_t n = 1; n <= 2; n++) {
		have_staging(n, true);
		assert_int_equal(up(NULL), 0);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(up(NULL), 0);
			check_is_up(n);
		}
		assert_int_equal(server.starts, n - 1);
		assert_int_equal(mkfs_calls, n);
		assert_int_equal(down(NULL), 0);
		be_rid_of_it();
	}
}

/* @then: what follows the failure at once, before the volume must be whole. */
static void fail_each_step_of_up(uint64_t branches, bool all, int (*then)(struct uc_err *err))
{
	unsigned n;

	for (n = 1; n < 500; n++) {
		struct uc_err err = { 0 };
		bool reached;
		int r;

		have_staging(branches, true);
		fail_step(n, all);
		r = up(&err);
		reached = steps >= n;
		fail_nothing();
		if (r < 0) {
			must(then(&err), &err);
			if (then == down)
				check_nothing_is_left();
			must(up(&err), &err);
		}
		check_is_up(branches);
		must(down(&err), &err);
		check_nothing_is_left();
		be_rid_of_it();
		if (!reached)
			break;
	}
	assert_in_range(n, 20, 200);
}

static void fail_each_step_of_down(void)
{
	for (int all = 0; all < 2; all++) {
		unsigned n;

		for (n = 1; n < 200; n++) {
			struct uc_err err = { 0 };
			bool reached;

			must(up(&err), &err);
			fail_step(n, all);
			(void)down(&err);
			reached = steps >= n;
			fail_nothing();
			must(down(&err), &err);
			check_nothing_is_left();
			if (!reached)
				break;
		}
		assert_in_range(n, 5, 60);
	}
}

static void an_up_that_fails_at_any_step_goes_on_where_it_ended(void **state)
{
	(void)state;
	for (uint64_t branches = 1; branches <= 3; branches++) {
		fail_each_step_of_up(branches, false, up);
		fail_each_step_of_up(branches, true, up);
	}
}

static void an_up_that_fails_at_any_step_is_undone_by_down(void **state)
{
	(void)state;
	for (uint64_t branches = 1; branches <= 3; branches++) {
		fail_each_step_of_up(branches, false, down);
		fail_each_step_of_up(branches, true, down);
	}
}

static void so_it_is_with_one_device_over_all_branches(void **state)
{
	(void)state;
	for (int l = UC_LAYOUT_LINEAR; l < UC_LAYOUT_COUNT; l++) {
		layout = (enum uc_layout)l;
		for (uint64_t branches = 1; branches <= 3; branches++) {
			fail_each_step_of_up(branches, true, up);
			fail_each_step_of_up(branches, false, down);
			fail_each_step_of_up(branches, true, down);
		}
		have_staging(3, true);
		assert_int_equal(up(NULL), 0);
		assert_int_equal(up(NULL), 0);
		assert_int_equal(mkfs_calls, 1);
		assert_int_equal(server.starts, 0);
		fail_each_step_of_down();
		be_rid_of_it();
	}
}

static void a_down_that_fails_at_any_step_is_finished_by_the_retry(void **state)
{
	(void)state;
	for (uint64_t branches = 1; branches <= 2; branches++) {
		have_staging(branches, true);
		fail_each_step_of_down();
		be_rid_of_it();
	}
}

/* -------------------------------------------------------------------- the volume server */

static void a_server_is_told_its_volume(void **state)
{
	cleanup_volume struct uc_volume v = { .n_branches = 0 };

	(void)state;
	have_staging(3, false);
	assert_int_equal(up(NULL), 0);
	v = local_load("v1");
	assert_string_equal(server.spec.volume_id, "v1");
	assert_int_equal(server.spec.n_branches, 3);
	assert_true(server.spec.initialise);
	assert_false(server.spec.read_only);
	assert_string_equal(server.spec.mount_flags[0], "data=journal");
	for (size_t i = 0; i < 3; i++) {
		struct uc_loopdev loop = UC_LOOPDEV_NONE;
		char path[40];

		assert_int_equal(__wrap_uc_loopdev_find(v.branches[i].file_dev,
							v.branches[i].file_ino, NULL, &loop, NULL),
				 0);
		snprintf(path, sizeof(path), DEVICE "%d", loop.number);
		assert_string_equal(server.spec.branches[i].device, path);
		assert_string_equal(server.spec.branches[i].uuid, v.branches[i].uuid);
		assert_string_equal(server.spec.branches[i].fstype, "ext4");
	}
	/* An empty filesystem may become a branch only once. */
	assert_int_equal(down(NULL), 0);
	assert_int_equal(up(NULL), 0);
	assert_false(server.spec.initialise);
}

static void a_server_that_died_is_replaced(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	have_staging(2, false);
	assert_int_equal(up(NULL), 0);
	server.alive = false; /* its mount is dead, and stays */
	assert_true(check_up(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_int_equal(up(NULL), 0);
	assert_int_equal(fake_mounts.last_unmount_flags, MNT_DETACH);
	check_is_up(2);
	assert_int_equal(server.starts, 2);

	server.alive = false;
	for (size_t i = 0; i < 2; i++)
		devices[i].claimed = false;
	assert_int_equal(down(NULL), 0);
	check_nothing_is_left();
}

static void a_server_that_does_not_answer_is_not_built_upon_but_killed_by_down(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	have_staging(2, false);
	assert_int_equal(up(NULL), 0);
	server.hangs = true;
	assert_true(up(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_ABORTED);
	assert_int_equal(server.starts, 1);
	assert_true(check_up(&err) < 0);
	assert_int_equal(down(NULL), 0);
	assert_true(server.killed);
	check_nothing_is_left();
}

static void a_server_that_is_in_use_stays(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	have_staging(2, false);
	assert_int_equal(up(NULL), 0);
	server.stop_result = -EBUSY;
	assert_true(down(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(strstr(err.msg, "still in use: it is mounted elsewhere"));
	check_is_up(2);
	/* It stops, but somebody has a file open. */
	server.stop_result = 0;
	server.stops_late = true;
	assert_true(down(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_true(now_ms >= 30000);
	assert_int_equal(n_attached(), 2);
	/* Until it has gone nothing is started either. */
	assert_true(up(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_ABORTED);
	server.stops_late = false;
	assert_int_equal(down(NULL), 0);
	check_nothing_is_left();
}

static void a_server_of_another_volume_is_left_alone(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	have_staging(2, false);
	assert_int_equal(up(NULL), 0);
	server.id = "v2";
	assert_true(check_up(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(strstr(err.msg, "serves `v2`"));
	assert_true(up(NULL) < 0);
	assert_int_equal(server.starts, 1);
}

/* ------------------------------------------------------------------------ what is mounted */

static void a_foreign_mount_is_not_taken_away(void **state)
{
	(void)state;
	for (uint64_t n = 1; n <= 2; n++) {
		struct uc_err err = { 0 };

		have_staging(n, false);
		assert_true(mkdir("s/volumes/v1/merged", 0700) == 0 || errno == EEXIST);
		fake_mount_add("s/volumes/v1/merged", "tmpfs", "foreign");
		assert_true(up(&err) < 0);
		assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
		assert_non_null(strstr(err.msg, "`foreign`"));
		assert_true(down(&err) < 0);
		assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
		assert_int_equal(fake_mounts_attached(), 1);
		assert_true(has_leftovers());
		fake_mounts_reset();
		assert_int_equal(down(NULL), 0);
		check_nothing_is_left();
		be_rid_of_it();
	}
}

static void a_mount_in_use_stays(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	have_staging(1, false);
	assert_int_equal(up(NULL), 0);
	fake_mounts.busy = 1;
	assert_true(down(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	check_is_up(1);
	assert_int_equal(down(NULL), 0);
	check_nothing_is_left();
}

static void a_device_in_use_stays(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	have_staging(1, false);
	assert_int_equal(up(NULL), 0);
	fake_mounts_reset(); /* unmounted lazily, by somebody */
	assert_true(down(&err) < 0);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(strstr(err.msg, "branch 0 (`" DEVICE "0`) is still in use"));
	assert_int_equal(n_attached(), 1);
	devices[0].claimed = false;
	assert_int_equal(down(NULL), 0);
	check_nothing_is_left();
}

static void a_single_branch_is_mounted_with_its_flags(void **state)
{
	(void)state;
	have_staging(1, false);
	assert_int_equal(up(NULL), 0);
	assert_string_equal(mount_flags, "data=journal");
	assert_string_equal(fake_mount_at("s/volumes/v1/merged")->fstype, "ext4");
	assert_string_equal(fake_mount_at("s/volumes/v1/merged")->source, DEVICE "0");
}

static bool owns(const char *fstype, const char *source)
{
	cleanup_volume struct uc_volume v = local_load("v1");
	char f[32], s[32];
	struct uc_mount_info info = { .fstype = f, .source = s };

	snprintf(f, sizeof(f), "%s", fstype);
	snprintf(s, sizeof(s), "%s", source);
	return local->base.ops->owns_mount(&local->base, &v, &info);
}

static void a_volume_knows_its_mounts(void **state)
{
	(void)state;
	have_staging(2, false);
	assert_int_equal(up(NULL), 0);
	assert_true(owns("fuse.union-fs", "v1"));
	assert_false(owns("fuse.union-fs", "v11"));
	assert_false(owns("fuse.mergerfs", "v1"));
	assert_false(owns("ext4", DEVICE "0"));
	assert_int_equal(down(NULL), 0);
	be_rid_of_it();
	have_staging(1, false);
	assert_int_equal(up(NULL), 0);
	assert_true(owns("ext4", DEVICE "0"));
	assert_false(owns("ext4", DEVICE "1"));
	assert_false(owns("xfs", DEVICE "0"));
	assert_false(owns("fuse.union-fs", "v1"));
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(up_and_down_and_up_again),
		T(what_is_up_is_left_as_it_is),
		T(an_up_that_fails_at_any_step_goes_on_where_it_ended),
		T(an_up_that_fails_at_any_step_is_undone_by_down),
		T(so_it_is_with_one_device_over_all_branches),
		T(a_down_that_fails_at_any_step_is_finished_by_the_retry),
		T(a_server_is_told_its_volume),
		T(a_server_that_died_is_replaced),
		T(a_server_that_does_not_answer_is_not_built_upon_but_killed_by_down),
		T(a_server_that_is_in_use_stays),
		T(a_server_of_another_volume_is_left_alone),
		T(a_foreign_mount_is_not_taken_away),
		T(a_mount_in_use_stays),
		T(a_device_in_use_stays),
		T(a_single_branch_is_mounted_with_its_flags),
		T(a_volume_knows_its_mounts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
