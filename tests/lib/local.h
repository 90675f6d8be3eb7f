/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A local backend on three directories of the test's own: s/ is the state, p0/ … p2/ are pools. */

#include "tests/lib/files.h"
#include "tests/lib/steps.h"
#include "tests/lib/unit.h"

#include "csi/local.h"
#include "lib/base/log.h"
#include "lib/base/str.h"

static struct uc_store store = UC_STORE_INIT;
static struct csi_local *local;
static size_t fds_before;

static inline void local_open(bool thin)
{
	const struct csi_local_config config = {
		.pools = STRV("p0", "p1", "p2"),
		.thin = thin,
		.union_fs = "union-fs",
		.node_id = "node-1",
		.has_controller = true,
		.has_node = true,
	};
	struct uc_err err = { 0 };

	if (uc_store_open("s", &store, &err) < 0 ||
	    csi_local_new(&config, &store, &local, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(local->base.ops->ready(&local->base, NULL), 0);
}

static inline void local_close(void)
{
	csi_local_free(local);
	local = NULL;
	uc_store_close(&store);
}

/* As a new process: on empty pools. */
static inline void local_begin(bool thin)
{
	fds_before = open_fds();
	fail_nothing();
	uc_log_init(UC_LOG_ERR, UC_LOG_TEXT);
	remove_tree("s");
	fresh_dir("p0");
	fresh_dir("p1");
	fresh_dir("p2");
	local_open(thin);
}

static inline void local_end(void)
{
	fail_nothing();
	local_close();
	assert_int_equal(open_fds(), fds_before);
}

static inline struct csi_op local_op(const char *id)
{
	return (struct csi_op){ .call = NULL, .volume_id = id };
}

/* A volume of @branches branches of 16 MiB. */
static inline struct csi_create local_want(const char *id, uint64_t branches)
{
	struct csi_create c = {
		.name = id,
		.required = branches << 24,
		.params = { .branches = branches },
		.fstype = "ext4",
	};

	snprintf(c.id, sizeof(c.id), "%s", id);
	return c;
}

static inline int local_create(const struct csi_create *c, struct uc_err *err)
{
	cleanup_volume_info struct csi_volume_info info = { .capacity = 0 };
	struct csi_op op = local_op(c->id);

	return local->base.ops->create(&local->base, &op, c, &info, err);
}

static inline int local_remove(const char *id, struct uc_err *err)
{
	struct csi_op op = local_op(id);

	return local->base.ops->remove(&local->base, &op, id, err);
}

/* A volume of @branches branches that is there. */
static inline void local_have(const char *id, uint64_t branches)
{
	struct csi_create c = local_want(id, branches);
	struct uc_err err = { 0 };

	if (local_create(&c, &err) < 0)
		fail_msg("%s", err.msg);
}

static inline struct uc_volume local_load(const char *id)
{
	struct uc_volume v = { .n_branches = 0 };
	struct uc_err err = { 0 };

	if (uc_volume_load(&store, id, &v, &err) < 0)
		fail_msg("%s", err.msg);
	return v;
}

/* Writes a volume's state as it is in memory, and releases that. */
static inline void local_store(struct uc_volume *v)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;

	assert_int_equal(uc_volume_lock(&store, v->id, true, &lock, NULL), 0);
	assert_int_equal(uc_volume_store(&lock, v, NULL), 0);
	uc_volume_done(v);
}

/* What is there of any volume: "p0's files | p1's | p2's | the state's".  Good until the next call
 * but one. */
static inline const char *local_files(void)
{
	static const char *const dirs[] = { "p0", "p1", "p2", "s/volumes" };
	static char buffers[2][8192];
	static unsigned turn;
	char *to = buffers[turn++ % 2];
	size_t n = 0;

	for (size_t i = 0; i < 4; i++) {
		const char *names = listing(dirs[i]);

		if (uc_str_has_prefix(names, ".union-csi-pool "))
			names += strlen(".union-csi-pool ");
		n += (size_t)snprintf(to + n, sizeof(buffers[0]) - n, "%s%s", i ? "| " : "", names);
	}
	return to;
}

#define NO_FILES "| | | "
