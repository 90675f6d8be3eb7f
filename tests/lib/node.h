/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The node's half on a backend that has one volume, v1: up() is a mount at merged/ in
 * memory.  s/ is the state, k/ kubelet's directory.  Whatever changes anything is a step.
 */

#include "tests/lib/files.h"
#include "tests/lib/mounting.h"
#include "tests/lib/steps_dirs.h"
#include "tests/lib/steps_sync.h"
#include "tests/lib/unit.h"
#include "tests/lib/volume.h"

#include "csi/group.h"
#include "csi/node.h"
#include "csi/status.h"
#include "lib/base/log.h"
#include "lib/base/str.h"

#define MODE(m) CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__##m
#define MERGED "s/volumes/v1/merged"

static struct uc_store store = UC_STORE_INIT;
static struct csi_node node;
static struct csi_capability capability;
static char node_cwd[2000];
static size_t fds_before;
static struct {
	unsigned ups, downs;
	unsigned groups; /* calls that applied one */
	gid_t last_gid;
	bool dead;      /* it was up, and does not work any more */
	bool leftovers; /* of a stage that the state does not know */
} fake;

static inline bool is_up(void)
{
	return fake_mount_at(MERGED) != NULL;
}

/* Each can fail with its work done, too. */
static inline int b_up(struct csi_backend *backend, const struct csi_op *op,
		       struct uc_volume_lock *lock, struct uc_volume *v, struct uc_err *err)
{
	(void)backend;
	assert_string_equal(op->volume_id, "v1");
	assert_true(lock->fd >= 0);
	assert_int_equal(v->stage.phase, fake.dead ? UC_STAGE_STAGED : UC_STAGE_STAGING);
	if (fails())
		return uc_fail(err, EIO, "up");
	while (fake.dead && is_up())
		fake_mount_remove(fake_mount_at(MERGED));
	if (!is_up()) {
		assert_true(mkdir(MERGED, 0700) == 0 || errno == EEXIST);
		fake_mount_add(MERGED, "ext4", "v1");
		fake.ups++;
	}
	fake.dead = false;
	return fails() ? uc_fail(err, EIO, "up") : 0;
}

static inline int b_down(struct csi_backend *backend, const struct csi_op *op,
			 struct uc_volume_lock *lock, struct uc_volume *v, struct uc_err *err)
{
	(void)backend;
	(void)op;
	assert_true(lock->fd >= 0);
	assert_string_equal(v->id, "v1");
	fake.downs++;
	if (fails())
		return uc_fail(err, EIO, "down");
	while (is_up())
		fake_mount_remove(fake_mount_at(MERGED));
	rmdir(MERGED);
	fake.leftovers = fake.dead = false;
	return fails() ? uc_fail(err, EIO, "down") : 0;
}

static inline int b_check_up(struct csi_backend *backend, const struct uc_volume *v,
			     struct uc_err *err)
{
	(void)backend;
	(void)v;
	return is_up() && !fake.dead
		       ? 0
		       : uc_fail_as(err, ENOTCONN, UC_GRPC_FAILED_PRECONDITION, "it is not up");
}

static inline bool b_owns_mount(struct csi_backend *backend, const struct uc_volume *v,
				const struct uc_mount_info *info)
{
	(void)backend;
	return strcmp(info->fstype, "ext4") == 0 && strcmp(info->source, v->id) == 0;
}

static inline bool b_has_leftovers(struct csi_backend *backend, const struct uc_volume *v)
{
	(void)backend;
	(void)v;
	return fake.leftovers || is_up();
}

static const struct csi_backend_ops b_ops = {
	.up = b_up,
	.down = b_down,
	.check_up = b_check_up,
	.owns_mount = b_owns_mount,
	.has_leftovers = b_has_leftovers,
};
static struct csi_backend backend = { .ops = &b_ops };

int __wrap_csi_group_apply(const struct csi_op *op, int root_fd, gid_t gid, struct uc_err *err);
int __wrap_csi_group_apply(const struct csi_op *op, int root_fd, gid_t gid, struct uc_err *err)
{
	(void)op;
	assert_true(fcntl(root_fd, F_GETFD) >= 0);
	fake.groups++;
	fake.last_gid = gid;
	return fails() ? uc_fail(err, EIO, "apply the group") : 0;
}

static inline struct uc_volume load(void)
{
	struct uc_volume v = { .n_branches = 0 };
	struct uc_err err = { 0 };

	if (uc_volume_load(&store, "v1", &v, &err) < 0)
		fail_msg("%s", err.msg);
	return v;
}

/* Writes v1's state, and releases it in memory. */
static inline void store_volume(struct uc_volume *v)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;

	assert_int_equal(uc_volume_lock(&store, v->id, true, &lock, NULL), 0);
	assert_int_equal(uc_volume_store(&lock, v, NULL), 0);
	uc_volume_done(v);
}

/* "k/a" -> its absolute path.  Good until the next call but seven. */
static inline const char *absolute(const char *rel)
{
	static char buffers[8][4096];
	static unsigned turn;
	char *to = buffers[turn++ % 8];

	snprintf(to, sizeof(buffers[0]), "%s/%s", node_cwd, rel);
	return to;
}

static inline void node_begin(void)
{
	struct uc_volume v = make_volume("v1", 2);

	fds_before = open_fds();
	uc_log_init(UC_LOG_ERR, UC_LOG_TEXT);
	assert_non_null(getcwd(node_cwd, sizeof(node_cwd)));
	fail_nothing();
	fake_mounts_reset();
	memset(&fake, 0, sizeof(fake));
	capability = (struct csi_capability){
		.fstype = "",
		.group = "",
		.access_mode = MODE(SINGLE_NODE_WRITER),
	};
	remove_tree("s");
	fresh_dir("k");
	make_dir("k/plugin");
	make_dir("k/pod1");
	make_dir("k/pod2");
	assert_int_equal(uc_store_open("s", &store, NULL), 0);
	assert_int_equal(csi_node_init(&node, &store, &backend, NULL), 0);
	assert_int_equal(csi_roots_add(&node.roots, absolute("k"), NULL), 0);
	store_volume(&v);
}

static inline void node_end(void)
{
	fail_nothing();
	csi_node_done(&node);
	uc_store_close(&store);
	assert_int_equal(open_fds(), fds_before);
}

static const struct csi_op node_op = { .call = NULL, .volume_id = "v1" };

static inline int stage_at(const char *rel, struct uc_err *err)
{
	const struct csi_stage_request q = {
		.id = "v1",
		.path = absolute(rel),
		.capability = &capability,
	};

	return csi_node_stage(&node, &node_op, &q, err);
}

static inline int stage(struct uc_err *err)
{
	return stage_at("k/plugin/stage", err);
}

static inline int unstage(struct uc_err *err)
{
	return csi_node_unstage(&node, &node_op, "v1", absolute("k/plugin/stage"), err);
}

static inline int publish_at(const char *rel, bool read_only, struct uc_err *err)
{
	const struct csi_publish_request q = {
		.id = "v1",
		.staging_path = absolute("k/plugin/stage"),
		.target = absolute(rel),
		.capability = &capability,
		.read_only = read_only,
	};

	return csi_node_publish(&node, &node_op, &q, err);
}

static inline int publish(struct uc_err *err)
{
	return publish_at("k/pod1/mount", false, err);
}

static inline int unpublish(struct uc_err *err)
{
	return csi_node_unpublish(&node, &node_op, "v1", absolute("k/pod1/mount"), err);
}

static inline void must(int r, const struct uc_err *err)
{
	if (r < 0)
		fail_msg("%s", err->msg);
}

/* It is staged; with @targets targets. */
static inline void check_staged(size_t targets)
{
	cleanup_volume struct uc_volume v = load();

	assert_int_equal(v.stage.phase, UC_STAGE_STAGED);
	assert_true(is_up());
	assert_non_null(fake_mount_at("k/plugin/stage"));
	assert_int_equal(fake_mounts_attached(), 2 + targets);
	assert_int_equal(v.n_publishes, targets);
	for (size_t i = 0; i < targets; i++)
		assert_true(v.publishes[i].done);
}

static inline void check_not_staged(void)
{
	cleanup_volume struct uc_volume v = load();

	fake_mounts_forget_detached();
	assert_int_equal(v.stage.phase, UC_STAGE_NONE);
	assert_null(v.stage.path);
	assert_int_equal(v.n_publishes, 0);
	assert_false(is_up());
	assert_int_equal(fake_mounts.n, 0);
	assert_false(file_exists(MERGED));
}

static inline void check_not_published(void)
{
	check_staged(0);
	assert_false(file_exists("k/pod1/mount"));
}

/*
 * Cuts @op off at each of its steps, until it succeeds at the n-th go: from @least to @most.  Each
 * time @then must succeed behind it, and @check be content.
 */
static inline void cut_off_each_step(int (*op)(struct uc_err *err), unsigned least, unsigned most,
				     int (*then)(struct uc_err *err), void (*check)(void))
{
	unsigned n;

	for (n = 1; n < 100; n++) {
		struct uc_err err = { 0 };
		int r;

		fail_step(n, true);
		r = op(&err);
		fail_nothing();
		fake_mounts_forget_detached();
		must(then(&err), &err);
		check();
		if (r == 0)
			break;
	}
	assert_in_range(n, least, most);
}
