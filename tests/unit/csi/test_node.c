/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>

#include "tests/lib/call.h"
#include "tests/lib/request.h"

#include "csi/driver.h"
#include "csi/status.h"
#include "lib/base/log.h"
#include "lib/base/macros.h"

/* ------------------------------------------------- the node's half: what it was asked */

static struct {
	unsigned calls;
	enum uc_grpc_status refuses; /* OK: it does not */
	char what[32], id[200], path[200], staging[200], group[32], fstype[32], flag[32];
	int access_mode;
	bool read_only;
	uint64_t inodes;
	int options_result; /* of the kernel */
} n;

static int answer(const char *what, const char *id, const char *path, struct uc_err *err)
{
	n.calls++;
	snprintf(n.what, sizeof(n.what), "%s", what);
	snprintf(n.id, sizeof(n.id), "%s", id);
	snprintf(n.path, sizeof(n.path), "%s", path);
	return n.refuses ? csi_fail(err, n.refuses, "the node refuses") : 0;
}

static void note_capability(const struct csi_capability *c)
{
	n.access_mode = c->access_mode;
	snprintf(n.group, sizeof(n.group), "%s", c->group);
	snprintf(n.fstype, sizeof(n.fstype), "%s", c->fstype);
	snprintf(n.flag, sizeof(n.flag), "%s", c->mount_flags ? c->mount_flags[0] : "");
}

int __wrap_csi_node_stage(struct csi_node *node, const struct csi_op *op,
			  const struct csi_stage_request *q, struct uc_err *err);
int __wrap_csi_node_stage(struct csi_node *node, const struct csi_op *op,
			  const struct csi_stage_request *q, struct uc_err *err)
{
	(void)node;
	assert_non_null(op->call);
	assert_string_equal(op->volume_id, q->id);
	note_capability(q->capability);
	return answer("stage", q->id, q->path, err);
}

int __wrap_csi_node_unstage(struct csi_node *node, const struct csi_op *op, const char *id,
			    const char *path, struct uc_err *err);
int __wrap_csi_node_unstage(struct csi_node *node, const struct csi_op *op, const char *id,
			    const char *path, struct uc_err *err)
{
	(void)node;
	assert_string_equal(op->volume_id, id);
	return answer("unstage", id, path, err);
}

int __wrap_csi_node_publish(struct csi_node *node, const struct csi_op *op,
			    const struct csi_publish_request *q, struct uc_err *err);
int __wrap_csi_node_publish(struct csi_node *node, const struct csi_op *op,
			    const struct csi_publish_request *q, struct uc_err *err)
{
	(void)node;
	assert_string_equal(op->volume_id, q->id);
	note_capability(q->capability);
	n.read_only = q->read_only;
	snprintf(n.staging, sizeof(n.staging), "%s", q->staging_path);
	return answer("publish", q->id, q->target, err);
}

int __wrap_csi_node_unpublish(struct csi_node *node, const struct csi_op *op, const char *id,
			      const char *target, struct uc_err *err);
int __wrap_csi_node_unpublish(struct csi_node *node, const struct csi_op *op, const char *id,
			      const char *target, struct uc_err *err)
{
	(void)node;
	assert_string_equal(op->volume_id, id);
	return answer("unpublish", id, target, err);
}

int __wrap_csi_node_stats(struct csi_node *node, const struct csi_op *op, const char *id,
			  const char *path, struct uc_statfs *ret, struct uc_err *err);
int __wrap_csi_node_stats(struct csi_node *node, const struct csi_op *op, const char *id,
			  const char *path, struct uc_statfs *ret, struct uc_err *err)
{
	(void)node;
	(void)op;
	*ret = (struct uc_statfs){ .total = 30,
				   .used = 20,
				   .available = 10,
				   .inodes = n.inodes,
				   .inodes_used = 2,
				   .inodes_free = 3 };
	return answer("stats", id, path, err);
}

/* -------------------------------------------------------------------------------- a call */

static int get(struct csi_backend *b, const char *id, struct csi_volume_info *ret_info,
	       struct uc_err *err)
{
	(void)b;
	(void)id;
	if (n.refuses)
		return csi_fail(err, n.refuses, "the backend refuses");
	snprintf(ret_info->fstype, sizeof(ret_info->fstype), "ext4");
	return 0;
}

int __wrap_uc_mount_opts_check(const struct uc_mount_opts *opts, const char *fstype,
			       struct uc_err *err);
int __wrap_uc_mount_opts_check(const struct uc_mount_opts *opts, const char *fstype,
			       struct uc_err *err)
{
	assert_string_equal(fstype, "ext4");
	return n.options_result < 0
		       ? uc_fail(err, -n.options_result, "mount option `%s`", opts->fs[0])
		       : 0;
}

static const struct csi_backend_ops ops = { .get = get };
static struct csi_backend backend = { .ops = &ops };

static struct csi_driver driver = {
	.backend = &backend,
	.name = "d",
	.node_id = "node-1",
	.topology_key = "topology.d/node",
};
static struct uc_call call;
static size_t memory_left;

static const struct uc_rpc_method *method(const char *name)
{
	return find_method(csi_node_methods, csi_n_node_methods, name);
}

static int run(const char *name, const void *req, void *resp)
{
	return fake_call_run(&call, method(name), &driver, memory_left, req, resp);
}

static int set_up(void **state)
{
	(void)state;
	uc_log_init(UC_LOG_ERR, UC_LOG_TEXT);
	memset(&n, 0, sizeof(n));
	memory_left = SIZE_MAX;
	capability_init();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fake_call_done(&call);
	return 0;
}

/* What the five have in common: a request that is right but for one field. */
union request {
	Csi__V1__NodeStageVolumeRequest stage;
	Csi__V1__NodeUnstageVolumeRequest unstage;
	Csi__V1__NodePublishVolumeRequest publish;
	Csi__V1__NodeUnpublishVolumeRequest unpublish;
	Csi__V1__NodeGetVolumeStatsRequest stats;
};

union response {
	Csi__V1__NodeStageVolumeResponse stage;
	Csi__V1__NodeUnstageVolumeResponse unstage;
	Csi__V1__NodePublishVolumeResponse publish;
	Csi__V1__NodeUnpublishVolumeResponse unpublish;
	Csi__V1__NodeGetVolumeStatsResponse stats;
};

static const char *const methods[] = {
	"NodeStageVolume",     "NodeUnstageVolume",  "NodePublishVolume",
	"NodeUnpublishVolume", "NodeGetVolumeStats",
};

static int run_with(size_t i, const char *id, const char *path)
{
	union request q;
	union response out;

	memset(&out, 0, sizeof(out));
	switch (i) {
	case 0:
		csi__v1__node_stage_volume_request__init(&q.stage);
		q.stage.volume_id = text(id);
		q.stage.staging_target_path = text(path);
		q.stage.volume_capability = &capability;
		break;
	case 1:
		csi__v1__node_unstage_volume_request__init(&q.unstage);
		q.unstage.volume_id = text(id);
		q.unstage.staging_target_path = text(path);
		break;
	case 2:
		csi__v1__node_publish_volume_request__init(&q.publish);
		q.publish.volume_id = text(id);
		q.publish.staging_target_path = text("/stage");
		q.publish.target_path = text(path);
		q.publish.volume_capability = &capability;
		q.publish.readonly = true;
		break;
	case 3:
		csi__v1__node_unpublish_volume_request__init(&q.unpublish);
		q.unpublish.volume_id = text(id);
		q.unpublish.target_path = text(path);
		break;
	default:
		csi__v1__node_get_volume_stats_request__init(&q.stats);
		csi__v1__node_get_volume_stats_response__init(&out.stats);
		q.stats.volume_id = text(id);
		q.stats.volume_path = text(path);
	}
	return run(methods[i], &q, &out);
}

static void a_request_that_is_right_is_passed_on(void **state)
{
	static const char *const whats[] = { "stage", "unstage", "publish", "unpublish", "stats" };
	char *flags[] = { text("noatime") };

	(void)state;
	mount_volume.fs_type = text("ext4");
	mount_volume.volume_mount_group = text("1000");
	mount_volume.mount_flags = flags;
	mount_volume.n_mount_flags = 1;
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		memset(&n, 0, sizeof(n));
		assert_int_equal(run_with(i, "v1", "/path"), UC_GRPC_OK);
		assert_int_equal(n.calls, 1);
		assert_string_equal(n.what, whats[i]);
		assert_string_equal(n.id, "v1");
		assert_string_equal(n.path, "/path");
		if (i != 0 && i != 2)
			continue;
		assert_string_equal(n.group, "1000");
		assert_string_equal(n.fstype, "ext4");
		assert_string_equal(n.flag, "noatime");
		assert_int_equal(n.access_mode, MODE(SINGLE_NODE_WRITER));
		assert_int_equal(n.read_only, i == 2);
		assert_string_equal(n.staging, i == 2 ? "/stage" : "");
	}
}

static void what_is_missing_is_named(void **state)
{
	static const char *const fields[] = { "staging_target_path", "staging_target_path",
					      "target_path", "target_path", "volume_path" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		assert_int_equal(run_with(i, "", "/path"), UC_GRPC_INVALID_ARGUMENT);
		assert_non_null(strstr(call.message, "volume_id"));
		assert_int_equal(run_with(i, "v1", ""), UC_GRPC_INVALID_ARGUMENT);
		assert_non_null(strstr(call.message, fields[i]));
	}
	capability.access_mode = NULL;
	assert_int_equal(run_with(0, "v1", "/path"), UC_GRPC_INVALID_ARGUMENT);
	assert_non_null(strstr(call.message, "volume_capability"));
	assert_int_equal(run_with(2, "v1", "/path"), UC_GRPC_INVALID_ARGUMENT);
	assert_int_equal(n.calls, 0);
}

static void a_publish_needs_its_staging_path(void **state)
{
	Csi__V1__NodePublishVolumeRequest q;
	Csi__V1__NodePublishVolumeResponse out;

	(void)state;
	csi__v1__node_publish_volume_request__init(&q);
	csi__v1__node_publish_volume_response__init(&out);
	q.volume_id = text("v1");
	q.target_path = text("/target");
	q.volume_capability = &capability;
	assert_int_equal(run("NodePublishVolume", &q, &out), UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(strstr(call.message, "staging_target_path"));
	assert_int_equal(n.calls, 0);
}

static void what_the_node_refuses_is_told(void **state)
{
	(void)state;
	n.refuses = UC_GRPC_FAILED_PRECONDITION;
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		assert_int_equal(run_with(i, "v1", "/path"), UC_GRPC_FAILED_PRECONDITION);
		assert_string_equal(call.message, "the node refuses");
	}
}

static void calls_for_one_volume_exclude_each_other(void **state)
{
	union request q;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		csi__v1__node_stage_volume_request__init(&q.stage);
		if (i == 1)
			csi__v1__node_unstage_volume_request__init(&q.unstage);
		if (i == 2)
			csi__v1__node_publish_volume_request__init(&q.publish);
		if (i == 3)
			csi__v1__node_unpublish_volume_request__init(&q.unpublish);
		assert_null(method(methods[i])->key(&q));
		(*(char **[]){ &q.stage.volume_id, &q.unstage.volume_id, &q.publish.volume_id,
			       &q.unpublish.volume_id }[i]) = text("v1");
		assert_string_equal(method(methods[i])->key(&q), "v1");
	}
	assert_null(method("NodeGetVolumeStats")->key);
	assert_null(method("NodeGetInfo")->key);
}

static void usage_is_in_bytes_and_inodes_where_there_are_any(void **state)
{
	Csi__V1__NodeGetVolumeStatsRequest q;
	Csi__V1__NodeGetVolumeStatsResponse out;

	(void)state;
	csi__v1__node_get_volume_stats_request__init(&q);
	q.volume_id = text("v1");
	q.volume_path = text("/path");
	for (n.inodes = 0; n.inodes <= 5; n.inodes += 5) {
		csi__v1__node_get_volume_stats_response__init(&out);
		assert_int_equal(run("NodeGetVolumeStats", &q, &out), UC_GRPC_OK);
		assert_int_equal(out.n_usage, n.inodes ? 2 : 1);
		assert_int_equal(out.usage[0]->unit, CSI__V1__VOLUME_USAGE__UNIT__BYTES);
		assert_int_equal(out.usage[0]->total, 30);
		assert_int_equal(out.usage[0]->used, 20);
		assert_int_equal(out.usage[0]->available, 10);
	}
	assert_int_equal(out.usage[1]->unit, CSI__V1__VOLUME_USAGE__UNIT__INODES);
	assert_int_equal(out.usage[1]->total, 5);
	assert_int_equal(out.usage[1]->used, 2);
	assert_int_equal(out.usage[1]->available, 3);
}

static void a_node_says_who_and_where_it_is(void **state)
{
	Csi__V1__NodeGetInfoResponse out;

	(void)state;
	csi__v1__node_get_info_response__init(&out);
	assert_int_equal(run("NodeGetInfo", NULL, &out), UC_GRPC_OK);
	assert_string_equal(out.node_id, "node-1");
	assert_int_equal(out.accessible_topology->n_segments, 1);
	assert_string_equal(out.accessible_topology->segments[0]->key, "topology.d/node");
	assert_string_equal(out.accessible_topology->segments[0]->value, "node-1");
	assert_int_equal(out.max_volumes_per_node, 0);
}

static void a_node_advertises_what_it_serves(void **state)
{
	Csi__V1__NodeGetCapabilitiesResponse out;

	(void)state;
	csi__v1__node_get_capabilities_response__init(&out);
	assert_int_equal(run("NodeGetCapabilities", NULL, &out), UC_GRPC_OK);
	assert_int_equal(out.n_capabilities, 4);
	assert_int_equal(out.capabilities[0]->rpc->type,
			 CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__STAGE_UNSTAGE_VOLUME);
}

/* Every allocation fails in turn. */
static void a_lack_of_memory_is_told(void **state)
{
	static const char *const asking[] = { "NodeGetInfo", "NodeGetCapabilities",
					      "NodeGetVolumeStats" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(asking); i++) {
		int status = -1;

		for (size_t k = 0; k < 20 && status != UC_GRPC_OK; k++) {
			Csi__V1__NodeGetVolumeStatsRequest q;
			union {
				Csi__V1__NodeGetInfoResponse info;
				Csi__V1__NodeGetCapabilitiesResponse capabilities;
				Csi__V1__NodeGetVolumeStatsResponse stats;
			} out;

			memset(&out, 0, sizeof(out));
			csi__v1__node_get_volume_stats_request__init(&q);
			q.volume_id = text("v1");
			q.volume_path = text("/path");
			memory_left = k;
			status = run(asking[i], &q, &out);
			if (k == 0 || status != UC_GRPC_OK)
				assert_int_equal(status, UC_GRPC_UNAVAILABLE);
		}
		assert_int_equal(status, UC_GRPC_OK);
	}
}

static void an_option_that_the_filesystem_does_not_know_is_the_callers_mistake(void **state)
{
	char *flags[] = { text("noatime"), text("discrad") };

	(void)state;
	mount_volume.mount_flags = flags;
	mount_volume.n_mount_flags = 2;
	n.options_result = -EINVAL;
	assert_int_equal(run_with(0, "v1", "/stage"), UC_GRPC_INVALID_ARGUMENT);
	assert_non_null(strstr(call.message, "mount_flags: mount option `discrad`"));
	n.options_result = -EPERM;
	assert_int_equal(run_with(0, "v1", "/stage"), UC_GRPC_INTERNAL);
	assert_int_equal(n.calls, 0);
	n.options_result = 0;
	assert_int_equal(run_with(0, "v1", "/stage"), UC_GRPC_OK);
	n.refuses = UC_GRPC_NOT_FOUND;
	assert_int_equal(run_with(0, "v1", "/stage"), UC_GRPC_NOT_FOUND);
	assert_int_equal(n.calls, 1);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_request_that_is_right_is_passed_on),
		T(an_option_that_the_filesystem_does_not_know_is_the_callers_mistake),
		T(what_is_missing_is_named),
		T(a_publish_needs_its_staging_path),
		T(what_the_node_refuses_is_told),
		T(calls_for_one_volume_exclude_each_other),
		T(usage_is_in_bytes_and_inodes_where_there_are_any),
		T(a_node_says_who_and_where_it_is),
		T(a_node_advertises_what_it_serves),
		T(a_lack_of_memory_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
