/* SPDX-License-Identifier: Apache-2.0 */

/* CSI's Node service: requests checked, then passed to the node's half. */

#include <errno.h>
#include <stdlib.h>

#include "csi/driver.h"
#include "csi/status.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"

#define VOLUME_KEY(fn, type)                                     \
	static const char *fn(const void *req)                   \
	{                                                        \
		const char *id = ((const type *)req)->volume_id; \
		return *id ? id : NULL;                          \
	}

VOLUME_KEY(stage_key, Csi__V1__NodeStageVolumeRequest)
VOLUME_KEY(unstage_key, Csi__V1__NodeUnstageVolumeRequest)
VOLUME_KEY(publish_key, Csi__V1__NodePublishVolumeRequest)
VOLUME_KEY(unpublish_key, Csi__V1__NodeUnpublishVolumeRequest)

static int check_path(const char *field, const char *path, struct uc_err *err)
{
	if (!*path)
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT, "%s is missing", field);
	return 0;
}

/* Before anything is done: that the filesystem would refuse an option is the caller's mistake. */
static int check_options(const struct csi_driver *d, const char *id, const struct csi_capability *c,
			 struct uc_err *err)
{
	cleanup_volume_info struct csi_volume_info info = { .capacity = 0 };
	struct uc_mount_opts opts = { .fs = NULL };
	int r;

	if (!c->mount_flags)
		return 0;
	r = d->backend->ops->get(d->backend, id, &info, err);
	if (r == 0)
		r = uc_mount_opts_parse(c->mount_flags, &opts, err);
	if (r < 0)
		return r;
	r = uc_mount_opts_check(&opts, info.fstype, err);
	uc_mount_opts_done(&opts);
	if (r < 0)
		uc_wrap(err, r, "volume_capability: mount_flags");
	return r == -EINVAL ? csi_as(err, r, UC_GRPC_INVALID_ARGUMENT) : r;
}

static int stage(struct uc_call *call, const void *req, void *resp)
{
	struct csi_driver *d = uc_call_data(call);
	const Csi__V1__NodeStageVolumeRequest *q = req;
	cleanup_capability struct csi_capability c = { .fstype = NULL };
	struct csi_stage_request s = {
		.id = q->volume_id,
		.path = q->staging_target_path,
		.capability = &c,
	};
	struct csi_op op = { .call = call, .volume_id = q->volume_id };
	struct uc_err err = { .num = 0 };
	int r;

	(void)resp;
	r = csi_check_id(q->volume_id, &err);
	if (r == 0)
		r = check_path("staging_target_path", q->staging_target_path, &err);
	if (r == 0)
		r = csi_capability_parse(q->volume_capability, "volume_capability", &c, &err);
	if (r == 0)
		r = check_options(d, q->volume_id, &c, &err);
	if (r == 0)
		r = csi_node_stage(&d->node, &op, &s, &err);
	return csi_end(call, &op, r, &err);
}

static int unstage(struct uc_call *call, const void *req, void *resp)
{
	struct csi_driver *d = uc_call_data(call);
	const Csi__V1__NodeUnstageVolumeRequest *q = req;
	struct csi_op op = { .call = call, .volume_id = q->volume_id };
	struct uc_err err = { .num = 0 };
	int r;

	(void)resp;
	r = csi_check_id(q->volume_id, &err);
	if (r == 0)
		r = check_path("staging_target_path", q->staging_target_path, &err);
	if (r == 0)
		r = csi_node_unstage(&d->node, &op, q->volume_id, q->staging_target_path, &err);
	return csi_end(call, &op, r, &err);
}

static int publish(struct uc_call *call, const void *req, void *resp)
{
	struct csi_driver *d = uc_call_data(call);
	const Csi__V1__NodePublishVolumeRequest *q = req;
	cleanup_capability struct csi_capability c = { .fstype = NULL };
	struct csi_publish_request p = {
		.id = q->volume_id,
		.staging_path = q->staging_target_path,
		.target = q->target_path,
		.capability = &c,
		.read_only = q->readonly,
	};
	struct csi_op op = { .call = call, .volume_id = q->volume_id };
	struct uc_err err = { .num = 0 };
	int r;

	(void)resp;
	r = csi_check_id(q->volume_id, &err);
	if (r == 0)
		r = check_path("target_path", q->target_path, &err);
	if (r == 0)
		r = csi_capability_parse(q->volume_capability, "volume_capability", &c, &err);
	if (r == 0 && !*q->staging_target_path) /* the plugin has STAGE_UNSTAGE_VOLUME */
		r = csi_fail(&err, UC_GRPC_FAILED_PRECONDITION, "staging_target_path is missing");
	if (r == 0)
		r = csi_node_publish(&d->node, &op, &p, &err);
	return csi_end(call, &op, r, &err);
}

static int unpublish(struct uc_call *call, const void *req, void *resp)
{
	struct csi_driver *d = uc_call_data(call);
	const Csi__V1__NodeUnpublishVolumeRequest *q = req;
	struct csi_op op = { .call = call, .volume_id = q->volume_id };
	struct uc_err err = { .num = 0 };
	int r;

	(void)resp;
	r = csi_check_id(q->volume_id, &err);
	if (r == 0)
		r = check_path("target_path", q->target_path, &err);
	if (r == 0)
		r = csi_node_unpublish(&d->node, &op, q->volume_id, q->target_path, &err);
	return csi_end(call, &op, r, &err);
}

static int put_usage(struct uc_call *call, const struct uc_statfs *usage,
		     Csi__V1__NodeGetVolumeStatsResponse *out, struct uc_err *err)
{
	struct {
		Csi__V1__VolumeUsage bytes, inodes, *list[2];
	} *m = uc_call_alloc(call, sizeof(*m));

	if (!m)
		return csi_fail(err, UC_GRPC_UNAVAILABLE, "no memory");
	csi__v1__volume_usage__init(&m->bytes);
	csi__v1__volume_usage__init(&m->inodes);
	m->bytes.unit = CSI__V1__VOLUME_USAGE__UNIT__BYTES;
	m->bytes.total = (int64_t)usage->total;
	m->bytes.used = (int64_t)usage->used;
	m->bytes.available = (int64_t)usage->available;
	m->inodes.unit = CSI__V1__VOLUME_USAGE__UNIT__INODES;
	m->inodes.total = (int64_t)usage->inodes;
	m->inodes.used = (int64_t)usage->inodes_used;
	m->inodes.available = (int64_t)usage->inodes_free;
	m->list[0] = &m->bytes;
	m->list[1] = &m->inodes;
	out->usage = m->list;
	out->n_usage = usage->inodes ? 2 : 1; /* btrfs has no limit of inodes */
	return 0;
}

static int stats(struct uc_call *call, const void *req, void *resp)
{
	struct csi_driver *d = uc_call_data(call);
	const Csi__V1__NodeGetVolumeStatsRequest *q = req;
	struct csi_op op = { .call = call, .volume_id = q->volume_id };
	struct uc_statfs usage = { .total = 0 };
	struct uc_err err = { .num = 0 };
	int r;

	r = csi_check_id(q->volume_id, &err);
	if (r == 0)
		r = check_path("volume_path", q->volume_path, &err);
	if (r == 0)
		r = csi_node_stats(&d->node, &op, q->volume_id, q->volume_path, &usage, &err);
	if (r == 0)
		r = put_usage(call, &usage, resp, &err);
	return csi_end(call, &op, r, &err);
}

static int get_info(struct uc_call *call, const void *req, void *resp)
{
	const struct csi_driver *d = uc_call_data(call);
	Csi__V1__NodeGetInfoResponse *out = resp;
	struct {
		Csi__V1__Topology topology;
		Csi__V1__Topology__SegmentsEntry entry, *segments[1];
	} *m = uc_call_alloc(call, sizeof(*m));

	(void)req;
	if (!m)
		return uc_call_fail(call, UC_GRPC_UNAVAILABLE, "no memory");
	csi__v1__topology__init(&m->topology);
	csi__v1__topology__segments_entry__init(&m->entry);
	m->entry.key = uc_call_strdup(call, d->topology_key);
	m->entry.value = uc_call_strdup(call, d->node_id);
	out->node_id = uc_call_strdup(call, d->node_id);
	if (!m->entry.key || !m->entry.value || !out->node_id)
		return uc_call_fail(call, UC_GRPC_UNAVAILABLE, "no memory");
	m->segments[0] = &m->entry;
	m->topology.segments = m->segments;
	m->topology.n_segments = 1;
	out->accessible_topology = &m->topology;
	return 0;
}

#define CAPABILITY(c) CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__##c

static int get_capabilities(struct uc_call *call, const void *req, void *resp)
{
	static const int types[] = {
		CAPABILITY(STAGE_UNSTAGE_VOLUME),
		CAPABILITY(GET_VOLUME_STATS),
		CAPABILITY(SINGLE_NODE_MULTI_WRITER),
		CAPABILITY(VOLUME_MOUNT_GROUP),
	};
	Csi__V1__NodeGetCapabilitiesResponse *out = resp;
	struct item {
		Csi__V1__NodeServiceCapability capability;
		Csi__V1__NodeServiceCapability__RPC rpc;
	} * items;

	(void)req;
	items = uc_call_alloc(call, ARRAY_SIZE(types) * sizeof(*items));
	out->capabilities = uc_call_alloc(call, ARRAY_SIZE(types) * sizeof(*out->capabilities));
	if (!items || !out->capabilities)
		return uc_call_fail(call, UC_GRPC_UNAVAILABLE, "no memory");
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		csi__v1__node_service_capability__init(&items[i].capability);
		csi__v1__node_service_capability__rpc__init(&items[i].rpc);
		items[i].rpc.type = types[i];
		items[i].capability.type_case = CSI__V1__NODE_SERVICE_CAPABILITY__TYPE_RPC;
		items[i].capability.rpc = &items[i].rpc;
		out->capabilities[i] = &items[i].capability;
	}
	out->n_capabilities = ARRAY_SIZE(types);
	return 0;
}

const struct uc_rpc_method csi_node_methods[] = {
	{ "NodeStageVolume", stage, stage_key },
	{ "NodeUnstageVolume", unstage, unstage_key },
	{ "NodePublishVolume", publish, publish_key },
	{ "NodeUnpublishVolume", unpublish, unpublish_key },
	{ "NodeGetVolumeStats", stats, NULL },
	{ "NodeGetInfo", get_info, NULL },
	{ "NodeGetCapabilities", get_capabilities, NULL },
};
const size_t csi_n_node_methods = ARRAY_SIZE(csi_node_methods);
