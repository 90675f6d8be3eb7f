/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>

#include "tests/lib/call.h"
#include "tests/lib/request.h"

#include "csi/driver.h"
#include "csi/status.h"
#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/size.h"
#include "lib/base/str.h"

/* -------------------------------------------------------------- a fake backend */

static struct {
	unsigned calls;
	enum uc_grpc_status refuses; /* OK: it does not */
	struct csi_create create;
	char id[200], node_id[300], after[100];
	bool no_node, read_only;
	int access_mode;
	struct uc_params params;
	char fstype[16];
	size_t n_volumes; /* that list() has: "v000", "v001", … */
} b;

static int answer(struct uc_err *err)
{
	b.calls++;
	return b.refuses ? csi_fail(err, b.refuses, "the backend refuses") : 0;
}

static void fill_info(struct csi_volume_info *info, const char *id)
{
	*info = (struct csi_volume_info){
		.capacity = 1 << 30,
		.fstype = "ext4",
		.params = { .branches = 3 },
	};
	snprintf(info->id, sizeof(info->id), "%s", id);
	uc_strv_push(&info->node_ids, "node-1");
}

static int create(struct csi_backend *backend, const struct csi_op *op, const struct csi_create *c,
		  struct csi_volume_info *ret_info, struct uc_err *err)
{
	int r = answer(err);

	(void)backend;
	assert_string_equal(op->volume_id, c->id);
	b.create = *c;
	snprintf(b.fstype, sizeof(b.fstype), "%s", c->fstype);
	if (r == 0)
		fill_info(ret_info, c->id);
	return r;
}

static int remove_volume(struct csi_backend *backend, const struct csi_op *op, const char *id,
			 struct uc_err *err)
{
	(void)backend;
	assert_string_equal(op->volume_id, id);
	snprintf(b.id, sizeof(b.id), "%s", id);
	return answer(err);
}

static int attach(struct csi_backend *backend, const struct csi_op *op, const char *id,
		  const char *node_id, int mode, bool read_only, struct uc_err *err)
{
	(void)backend;
	(void)op;
	snprintf(b.id, sizeof(b.id), "%s", id);
	snprintf(b.node_id, sizeof(b.node_id), "%s", node_id);
	b.access_mode = mode;
	b.read_only = read_only;
	return answer(err);
}

static int detach(struct csi_backend *backend, const struct csi_op *op, const char *id,
		  const char *node_id, struct uc_err *err)
{
	(void)backend;
	(void)op;
	snprintf(b.id, sizeof(b.id), "%s", id);
	b.no_node = !node_id;
	snprintf(b.node_id, sizeof(b.node_id), "%s", node_id ? node_id : "");
	return answer(err);
}

static int get(struct csi_backend *backend, const char *id, struct csi_volume_info *ret_info,
	       struct uc_err *err)
{
	int r = answer(err);

	(void)backend;
	if (r == 0)
		fill_info(ret_info, id);
	return r;
}

static int list(struct csi_backend *backend, const char *after,
		int (*fn)(void *data, const struct csi_volume_info *info), void *data,
		struct uc_err *err)
{
	int r = answer(err);

	(void)backend;
	snprintf(b.after, sizeof(b.after), "%s", after);
	for (size_t i = 0; i < b.n_volumes && r == 0; i++) {
		cleanup_volume_info struct csi_volume_info info = { .capacity = 0 };
		char id[32];

		snprintf(id, sizeof(id), "v%03zu", i);
		if (strcmp(id, after) <= 0)
			continue;
		fill_info(&info, id);
		r = fn(data, &info);
	}
	return r;
}

static int capacity(struct csi_backend *backend, const struct uc_params *params, const char *fstype,
		    struct csi_capacity *ret, struct uc_err *err)
{
	(void)backend;
	b.params = *params;
	snprintf(b.fstype, sizeof(b.fstype), "%s", fstype);
	*ret = (struct csi_capacity){ .available = 5, .maximum = 4, .minimum = 3 };
	return answer(err);
}

static const struct csi_backend_ops ops = {
	.create = create,
	.remove = remove_volume,
	.attach = attach,
	.detach = detach,
	.get = get,
	.list = list,
	.capacity = capacity,
};
static struct csi_backend backend = { .ops = &ops };
static struct csi_driver driver = {
	.name = "d",
	.node_id = "node-1",
	.topology_key = "topology.d/node",
	.backend = &backend,
};

/* ---------------------------------------------------------------------- a call */

static struct uc_call call;
static size_t memory_left;

static const struct uc_rpc_method *method(const char *name)
{
	return find_method(csi_controller_methods, csi_n_controller_methods, name);
}

static int run(const char *name, const void *req, void *resp)
{
	return fake_call_run(&call, method(name), &driver, memory_left, req, resp);
}

static Csi__V1__VolumeCapability *capabilities[2] = { &capability, &capability };

static int set_up(void **state)
{
	(void)state;
	uc_log_init(UC_LOG_ERR, UC_LOG_TEXT);
	memset(&b, 0, sizeof(b));
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

/* --------------------------------------------------------------- CreateVolume */

static Csi__V1__CreateVolumeRequest create_request(void)
{
	Csi__V1__CreateVolumeRequest q;

	csi__v1__create_volume_request__init(&q);
	q.name = text("a name");
	q.volume_capabilities = capabilities;
	q.n_volume_capabilities = 1;
	return q;
}

static int run_create(const Csi__V1__CreateVolumeRequest *q, Csi__V1__CreateVolumeResponse *resp)
{
	csi__v1__create_volume_response__init(resp);
	return run("CreateVolume", q, resp);
}

static void check_create_refused(const Csi__V1__CreateVolumeRequest *q, int status,
				 const char *reason)
{
	Csi__V1__CreateVolumeResponse resp;

	assert_int_equal(run_create(q, &resp), status);
	if (!strstr(call.message, reason))
		fail_msg("`%s` lacks `%s`", call.message, reason);
	assert_int_equal(b.calls, 0);
}

static void a_volume_is_created_as_it_is_asked_for(void **state)
{
	Csi__V1__CreateVolumeRequest q = create_request();
	Csi__V1__CapacityRange range;
	Csi__V1__CreateVolumeRequest__ParametersEntry entry, *entries[] = { &entry };
	Csi__V1__CreateVolumeResponse resp;
	char id[UC_VOLUME_ID_SIZE];

	(void)state;
	csi__v1__capacity_range__init(&range);
	range.required_bytes = 1000;
	range.limit_bytes = 2000;
	q.capacity_range = &range;
	csi__v1__create_volume_request__parameters_entry__init(&entry);
	entry.key = text("branches");
	entry.value = text("5");
	q.parameters = entries;
	q.n_parameters = 1;
	mount_volume.fs_type = text("xfs");
	assert_int_equal(run_create(&q, &resp), UC_GRPC_OK);
	uc_volume_id_from_name("a name", id);
	assert_string_equal(b.create.id, id);
	assert_string_equal(b.create.name, "a name");
	assert_int_equal(b.create.required, 1000);
	assert_int_equal(b.create.limit, 2000);
	assert_int_equal(b.create.params.branches, 5);
	assert_string_equal(b.fstype, "xfs");

	assert_string_equal(resp.volume->volume_id, id);
	assert_int_equal(resp.volume->capacity_bytes, 1 << 30);
	assert_int_equal(resp.volume->n_accessible_topology, 1);
	assert_int_equal(resp.volume->accessible_topology[0]->n_segments, 1);
	assert_string_equal(resp.volume->accessible_topology[0]->segments[0]->key,
			    "topology.d/node");
	assert_string_equal(resp.volume->accessible_topology[0]->segments[0]->value, "node-1");
}

static void what_is_not_asked_for_is_the_default(void **state)
{
	Csi__V1__CreateVolumeRequest q = create_request();
	Csi__V1__CreateVolumeResponse resp;

	(void)state;
	assert_int_equal(run_create(&q, &resp), UC_GRPC_OK);
	assert_int_equal(b.create.required, 0);
	assert_int_equal(b.create.limit, 0);
	assert_int_equal(b.create.params.branches, 2);
	assert_string_equal(b.fstype, "ext4");
}

static void a_request_without_a_name_or_capability_is_refused(void **state)
{
	Csi__V1__CreateVolumeRequest q = create_request();

	(void)state;
	q.name = text("");
	check_create_refused(&q, UC_GRPC_INVALID_ARGUMENT, "name is missing");
	q.name = text("a\nb");
	check_create_refused(&q, UC_GRPC_INVALID_ARGUMENT, "name `a\\x0ab`");
	q = create_request();
	q.n_volume_capabilities = 0;
	check_create_refused(&q, UC_GRPC_INVALID_ARGUMENT, "volume_capabilities is missing");
	q = create_request();
	access_mode.mode = MODE(MULTI_NODE_MULTI_WRITER);
	check_create_refused(&q, UC_GRPC_INVALID_ARGUMENT, "MULTI_NODE_MULTI_WRITER");
}

static void capabilities_must_agree_on_the_filesystem(void **state)
{
	Csi__V1__VolumeCapability__MountVolume other_mount = mount_volume;
	Csi__V1__VolumeCapability other = capability, *both[] = { &capability, &other };
	Csi__V1__CreateVolumeRequest q = create_request();
	Csi__V1__CreateVolumeResponse resp;

	(void)state;
	other.mount = &other_mount;
	q.volume_capabilities = both;
	q.n_volume_capabilities = 2;
	mount_volume.fs_type = text("ext4");
	other_mount.fs_type = text("xfs");
	check_create_refused(&q, UC_GRPC_INVALID_ARGUMENT, "fs_type ext4 and xfs");
	mount_volume.fs_type = text(""); /* does not mind */
	assert_int_equal(run_create(&q, &resp), UC_GRPC_OK);
	assert_string_equal(b.fstype, "xfs");
}

static void a_negative_size_is_refused(void **state)
{
	Csi__V1__CreateVolumeRequest q = create_request();
	Csi__V1__CapacityRange range;

	(void)state;
	csi__v1__capacity_range__init(&range);
	q.capacity_range = &range;
	range.required_bytes = -1;
	check_create_refused(&q, UC_GRPC_INVALID_ARGUMENT, "required_bytes -1");
	range.required_bytes = 1;
	range.limit_bytes = INT64_MIN;
	check_create_refused(&q, UC_GRPC_INVALID_ARGUMENT, "limit_bytes -9223372036854775808");
}

static void parameters_are_checked(void **state)
{
	static char big[5000];
	Csi__V1__CreateVolumeRequest q = create_request();
	Csi__V1__CreateVolumeRequest__ParametersEntry entry, *entries[] = { &entry };

	(void)state;
	csi__v1__create_volume_request__parameters_entry__init(&entry);
	q.parameters = entries;
	q.n_parameters = 1;
	entry.key = text("colour");
	entry.value = text("red");
	check_create_refused(&q, UC_GRPC_INVALID_ARGUMENT, "parameter `colour` is not known");
	entry.key = text("branches");
	entry.value = text("none");
	check_create_refused(&q, UC_GRPC_INVALID_ARGUMENT, "parameter `branches`");
	memset(big, '1', sizeof(big) - 1);
	entry.value = big;
	check_create_refused(&q, UC_GRPC_INVALID_ARGUMENT, "more than 4096");
}

static void what_is_not_supported_is_refused_by_name(void **state)
{
	Csi__V1__CreateVolumeRequest q = create_request();
	Csi__V1__CreateVolumeRequest__MutableParametersEntry entry, *entries[] = { &entry };
	Csi__V1__VolumeContentSource source;

	(void)state;
	csi__v1__create_volume_request__mutable_parameters_entry__init(&entry);
	entry.key = text("iops");
	entry.value = text("1");
	q.mutable_parameters = entries;
	q.n_mutable_parameters = 1;
	check_create_refused(&q, UC_GRPC_INVALID_ARGUMENT,
			     "mutable_parameters are not supported (`iops`)");
	q = create_request();
	csi__v1__volume_content_source__init(&source);
	q.volume_content_source = &source;
	check_create_refused(&q, UC_GRPC_INVALID_ARGUMENT, "volume_content_source");
}

static void a_volume_that_is_wanted_elsewhere_is_refused(void **state)
{
	static const struct {
		const char *requisite[3], *preferred[3]; /* node ids; "-": a topology without any */
		bool ok;
	} rows[] = {
		{ { NULL }, { NULL }, true },
		{ { "node-1" }, { NULL }, true },
		{ { "node-2", "node-1" }, { "node-2" }, true },
		{ { "node-2" }, { "node-1" }, false },
		{ { "node-2", "node-3" }, { NULL }, false },
		{ { NULL }, { "node-2" }, false },
		{ { NULL }, { "node-2", "node-1" }, true },
		{ { "-" }, { NULL }, true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		Csi__V1__CreateVolumeRequest q = create_request();
		Csi__V1__CreateVolumeResponse resp;
		Csi__V1__TopologyRequirement requirement;
		Csi__V1__Topology topologies[6], *lists[2][3];
		Csi__V1__Topology__SegmentsEntry segments[6], *segment_lists[6][1];
		size_t n[2] = { 0, 0 }, k = 0;

		csi__v1__topology_requirement__init(&requirement);
		for (size_t which = 0; which < 2; which++)
			for (const char *const *node = which ? rows[i].preferred
							     : rows[i].requisite;
			     *node; node++, k++) {
				csi__v1__topology__init(&topologies[k]);
				csi__v1__topology__segments_entry__init(&segments[k]);
				segments[k].key = text(**node == '-' ? "zone" : "topology.d/node");
				segments[k].value = text(*node);
				segment_lists[k][0] = &segments[k];
				topologies[k].segments = segment_lists[k];
				topologies[k].n_segments = 1;
				lists[which][n[which]++] = &topologies[k];
			}
		requirement.requisite = lists[0];
		requirement.n_requisite = n[0];
		requirement.preferred = lists[1];
		requirement.n_preferred = n[1];
		q.accessibility_requirements = &requirement;
		b.calls = 0;
		assert_int_equal(run_create(&q, &resp),
				 rows[i].ok ? UC_GRPC_OK : UC_GRPC_RESOURCE_EXHAUSTED);
		assert_int_equal(b.calls, rows[i].ok);
		if (!rows[i].ok)
			assert_non_null(strstr(call.message, "topology.d/node=node-1"));
	}
}

static void the_backends_refusal_is_the_answer(void **state)
{
	static const enum uc_grpc_status refusals[] = { UC_GRPC_ALREADY_EXISTS,
							UC_GRPC_OUT_OF_RANGE,
							UC_GRPC_RESOURCE_EXHAUSTED,
							UC_GRPC_UNAVAILABLE, UC_GRPC_ABORTED };
	Csi__V1__CreateVolumeRequest q = create_request();
	Csi__V1__CreateVolumeResponse resp;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
		b.refuses = refusals[i];
		assert_int_equal(run_create(&q, &resp), refusals[i]);
		assert_string_equal(call.message, "the backend refuses");
	}
}

static void the_key_of_a_creation_is_the_volumes_id(void **state)
{
	Csi__V1__CreateVolumeRequest q = create_request();
	Csi__V1__DeleteVolumeRequest d;
	char id[UC_VOLUME_ID_SIZE];

	(void)state;
	uc_volume_id_from_name("a name", id);
	assert_string_equal(method("CreateVolume")->key(&q), id);
	csi__v1__delete_volume_request__init(&d);
	d.volume_id = id;
	assert_string_equal(method("DeleteVolume")->key(&d), id);
	d.volume_id = text("");
	assert_null(method("DeleteVolume")->key(&d));
}

/* ------------------------------------------ delete, publish, unpublish, get */

static void a_volume_is_deleted_by_its_id(void **state)
{
	Csi__V1__DeleteVolumeRequest q;

	(void)state;
	csi__v1__delete_volume_request__init(&q);
	assert_int_equal(run("DeleteVolume", &q, NULL), UC_GRPC_INVALID_ARGUMENT);
	assert_string_equal(call.message, "volume_id is missing");
	q.volume_id = text("not/one/of/ours");
	assert_int_equal(run("DeleteVolume", &q, NULL), UC_GRPC_OK);
	assert_string_equal(b.id, "not/one/of/ours");
	b.refuses = UC_GRPC_FAILED_PRECONDITION;
	assert_int_equal(run("DeleteVolume", &q, NULL), UC_GRPC_FAILED_PRECONDITION);
}

static void a_volume_is_published_to_a_node_as_asked_for(void **state)
{
	Csi__V1__ControllerPublishVolumeRequest q;

	(void)state;
	csi__v1__controller_publish_volume_request__init(&q);
	q.volume_id = text("v1");
	q.node_id = text("node-1");
	q.volume_capability = &capability;
	q.readonly = 1;
	assert_int_equal(run("ControllerPublishVolume", &q, NULL), UC_GRPC_OK);
	assert_string_equal(b.id, "v1");
	assert_string_equal(b.node_id, "node-1");
	assert_int_equal(b.access_mode, MODE(SINGLE_NODE_WRITER));
	assert_true(b.read_only);
}

static void a_publish_request_that_lacks_anything_is_refused(void **state)
{
	Csi__V1__ControllerPublishVolumeRequest good, q;
	char big[300];

	(void)state;
	csi__v1__controller_publish_volume_request__init(&good);
	good.volume_id = text("v1");
	good.node_id = text("node-1");
	good.volume_capability = &capability;

	q = good;
	q.volume_id = text("");
	assert_int_equal(run("ControllerPublishVolume", &q, NULL), UC_GRPC_INVALID_ARGUMENT);
	q = good;
	q.node_id = text("");
	assert_int_equal(run("ControllerPublishVolume", &q, NULL), UC_GRPC_INVALID_ARGUMENT);
	assert_string_equal(call.message, "node_id is missing");
	memset(big, 'x', 299);
	big[299] = '\0';
	q.node_id = big;
	assert_int_equal(run("ControllerPublishVolume", &q, NULL), UC_GRPC_INVALID_ARGUMENT);
	q = good;
	q.volume_capability = NULL;
	assert_int_equal(run("ControllerPublishVolume", &q, NULL), UC_GRPC_INVALID_ARGUMENT);
	assert_string_equal(call.message, "volume_capability is missing");
	assert_int_equal(b.calls, 0);
}

static void a_volume_is_unpublished_from_one_node_or_from_all(void **state)
{
	Csi__V1__ControllerUnpublishVolumeRequest q;

	(void)state;
	csi__v1__controller_unpublish_volume_request__init(&q);
	assert_int_equal(run("ControllerUnpublishVolume", &q, NULL), UC_GRPC_INVALID_ARGUMENT);
	q.volume_id = text("v1");
	assert_int_equal(run("ControllerUnpublishVolume", &q, NULL), UC_GRPC_OK);
	assert_true(b.no_node);
	q.node_id = text("node-1");
	assert_int_equal(run("ControllerUnpublishVolume", &q, NULL), UC_GRPC_OK);
	assert_false(b.no_node);
	assert_string_equal(b.node_id, "node-1");
}

static void a_volume_is_described_with_its_nodes(void **state)
{
	Csi__V1__ControllerGetVolumeRequest q;
	Csi__V1__ControllerGetVolumeResponse resp;

	(void)state;
	csi__v1__controller_get_volume_request__init(&q);
	csi__v1__controller_get_volume_response__init(&resp);
	q.volume_id = text("v1");
	assert_int_equal(run("ControllerGetVolume", &q, &resp), UC_GRPC_OK);
	assert_string_equal(resp.volume->volume_id, "v1");
	assert_int_equal(resp.status->n_published_node_ids, 1);
	assert_string_equal(resp.status->published_node_ids[0], "node-1");
	b.refuses = UC_GRPC_NOT_FOUND;
	assert_int_equal(run("ControllerGetVolume", &q, &resp), UC_GRPC_NOT_FOUND);
}

/* ------------------------------------------------ ValidateVolumeCapabilities */

static void supported_capabilities_are_confirmed_as_they_were_asked(void **state)
{
	Csi__V1__ValidateVolumeCapabilitiesRequest q;
	Csi__V1__ValidateVolumeCapabilitiesResponse resp;
	Csi__V1__ValidateVolumeCapabilitiesRequest__VolumeContextEntry context,
		*contexts[] = { &context };
	Csi__V1__ValidateVolumeCapabilitiesRequest__ParametersEntry param, *params[] = { &param };

	(void)state;
	csi__v1__validate_volume_capabilities_request__init(&q);
	csi__v1__validate_volume_capabilities_response__init(&resp);
	csi__v1__validate_volume_capabilities_request__volume_context_entry__init(&context);
	csi__v1__validate_volume_capabilities_request__parameters_entry__init(&param);
	context.key = text("storage.kubernetes.io/csiProvisionerIdentity");
	context.value = text("d");
	param.key = text("branches");
	param.value = text("3");
	q.volume_id = text("v1");
	q.volume_capabilities = capabilities;
	q.n_volume_capabilities = 2;
	q.volume_context = contexts;
	q.n_volume_context = 1;
	q.parameters = params;
	q.n_parameters = 1;
	assert_int_equal(run("ValidateVolumeCapabilities", &q, &resp), UC_GRPC_OK);
	assert_non_null(resp.confirmed);
	assert_string_equal(resp.message, "");
	assert_int_equal(resp.confirmed->n_volume_capabilities, 2);
	assert_ptr_equal(resp.confirmed->volume_capabilities[0], &capability);
	assert_int_equal(resp.confirmed->n_volume_context, 1);
	assert_string_equal(resp.confirmed->volume_context[0]->key, context.key);
	assert_string_equal(resp.confirmed->volume_context[0]->value, "d");
	assert_int_equal(resp.confirmed->n_parameters, 1);
	assert_string_equal(resp.confirmed->parameters[0]->key, "branches");
	assert_string_equal(resp.confirmed->parameters[0]->value, "3");
}

static void what_is_not_supported_is_not_confirmed_and_no_error(void **state)
{
	Csi__V1__ValidateVolumeCapabilitiesRequest q;
	Csi__V1__ValidateVolumeCapabilitiesResponse resp;

	(void)state;
	csi__v1__validate_volume_capabilities_request__init(&q);
	csi__v1__validate_volume_capabilities_response__init(&resp);
	q.volume_id = text("v1");
	q.volume_capabilities = capabilities;
	q.n_volume_capabilities = 1;
	access_mode.mode = MODE(MULTI_NODE_MULTI_WRITER);
	assert_int_equal(run("ValidateVolumeCapabilities", &q, &resp), UC_GRPC_OK);
	assert_null(resp.confirmed);
	assert_non_null(strstr(resp.message, "MULTI_NODE_MULTI_WRITER"));
}

static void a_validation_needs_a_volume_and_capabilities(void **state)
{
	Csi__V1__ValidateVolumeCapabilitiesRequest q;
	Csi__V1__ValidateVolumeCapabilitiesResponse resp;

	(void)state;
	csi__v1__validate_volume_capabilities_request__init(&q);
	csi__v1__validate_volume_capabilities_response__init(&resp);
	assert_int_equal(run("ValidateVolumeCapabilities", &q, &resp), UC_GRPC_INVALID_ARGUMENT);
	q.volume_id = text("v1");
	assert_int_equal(run("ValidateVolumeCapabilities", &q, &resp), UC_GRPC_INVALID_ARGUMENT);
	assert_string_equal(call.message, "volume_capabilities is missing");
	q.volume_capabilities = capabilities;
	q.n_volume_capabilities = 1;
	b.refuses = UC_GRPC_NOT_FOUND;
	assert_int_equal(run("ValidateVolumeCapabilities", &q, &resp), UC_GRPC_NOT_FOUND);
}

/* --------------------------------------------------------------- ListVolumes */

static Csi__V1__ListVolumesResponse listed;

static int run_list(int32_t max, const char *token)
{
	Csi__V1__ListVolumesRequest q;

	csi__v1__list_volumes_request__init(&q);
	csi__v1__list_volumes_response__init(&listed);
	q.max_entries = max;
	q.starting_token = text(token);
	return run("ListVolumes", &q, &listed);
}

static void all_volumes_are_listed_with_their_nodes(void **state)
{
	(void)state;
	assert_int_equal(run_list(0, ""), UC_GRPC_OK);
	assert_int_equal(listed.n_entries, 0);
	assert_string_equal(listed.next_token, "");
	b.n_volumes = 200; /* more than the list has room for at first */
	assert_int_equal(run_list(0, ""), UC_GRPC_OK);
	assert_int_equal(listed.n_entries, 200);
	assert_string_equal(listed.next_token, "");
	for (size_t i = 0; i < 200; i++) {
		char id[16];

		snprintf(id, sizeof(id), "v%03zu", i);
		assert_string_equal(listed.entries[i]->volume->volume_id, id);
		assert_int_equal(listed.entries[i]->status->n_published_node_ids, 1);
	}
}

static void pages_follow_one_another_to_the_end(void **state)
{
	(void)state;
	b.n_volumes = 10;
	for (int32_t max = 1; max <= 12; max++) {
		char token[100] = "";
		size_t seen = 0;

		for (;;) {
			assert_int_equal(run_list(max, token), UC_GRPC_OK);
			assert_true(listed.n_entries <= (size_t)max);
			for (size_t i = 0; i < listed.n_entries; i++) {
				char id[16];

				snprintf(id, sizeof(id), "v%03zu", seen++);
				assert_string_equal(listed.entries[i]->volume->volume_id, id);
			}
			snprintf(token, sizeof(token), "%s", listed.next_token);
			if (!*token)
				break;
			assert_int_equal(listed.n_entries, max);
		}
		assert_int_equal(seen, 10);
	}
}

static void a_token_that_is_not_ours_is_aborted(void **state)
{
	static const char *const tokens[] = { "x",        "after:", "after:../x",
					      "After:v1", "v001",   "after:a b" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(tokens); i++) {
		assert_int_equal(run_list(0, tokens[i]), UC_GRPC_ABORTED);
		assert_non_null(strstr(call.message, tokens[i]));
	}
	assert_int_equal(run_list(-1, ""), UC_GRPC_INVALID_ARGUMENT);
	assert_int_equal(b.calls, 0);
}

/* --------------------------------------------------------------- GetCapacity */

static void capacity_is_asked_of_the_backend(void **state)
{
	Csi__V1__GetCapacityRequest q;
	Csi__V1__GetCapacityResponse resp;

	(void)state;
	csi__v1__get_capacity_request__init(&q);
	csi__v1__get_capacity_response__init(&resp);
	mount_volume.fs_type = text("btrfs");
	q.volume_capabilities = capabilities;
	q.n_volume_capabilities = 1;
	assert_int_equal(run("GetCapacity", &q, &resp), UC_GRPC_OK);
	assert_string_equal(b.fstype, "btrfs");
	assert_int_equal(b.params.branches, 2);
	assert_int_equal(resp.available_capacity, 5);
	assert_int_equal(resp.maximum_volume_size->value, 4);
	assert_int_equal(resp.minimum_volume_size->value, 3);
}

static void there_is_no_capacity_for_what_is_not_supported_or_elsewhere(void **state)
{
	Csi__V1__GetCapacityRequest q;
	Csi__V1__GetCapacityResponse resp;
	Csi__V1__Topology topology;
	Csi__V1__Topology__SegmentsEntry segment, *segments[] = { &segment };
	Csi__V1__GetCapacityRequest__ParametersEntry entry, *entries[] = { &entry };

	(void)state;
	csi__v1__get_capacity_request__init(&q);
	csi__v1__get_capacity_response__init(&resp);
	access_mode.mode = MODE(MULTI_NODE_READER_ONLY);
	q.volume_capabilities = capabilities;
	q.n_volume_capabilities = 1;
	assert_int_equal(run("GetCapacity", &q, &resp), UC_GRPC_OK);
	assert_int_equal(resp.available_capacity, 0);

	q.n_volume_capabilities = 0;
	csi__v1__topology__init(&topology);
	csi__v1__topology__segments_entry__init(&segment);
	segment.key = text("topology.d/node");
	segment.value = text("node-2");
	topology.segments = segments;
	topology.n_segments = 1;
	q.accessible_topology = &topology;
	assert_int_equal(run("GetCapacity", &q, &resp), UC_GRPC_OK);
	assert_int_equal(resp.available_capacity, 0);
	assert_int_equal(b.calls, 0);
	segment.value = text("node-1");
	assert_int_equal(run("GetCapacity", &q, &resp), UC_GRPC_OK);
	assert_int_equal(resp.available_capacity, 5);

	csi__v1__get_capacity_request__parameters_entry__init(&entry);
	entry.key = text("colour");
	entry.value = text("red");
	q.parameters = entries;
	q.n_parameters = 1;
	assert_int_equal(run("GetCapacity", &q, &resp), UC_GRPC_INVALID_ARGUMENT);
}

/* -------------------------------------------------------------- capabilities */

static void what_is_advertised_is_there(void **state)
{
	Csi__V1__ControllerGetCapabilitiesRequest q;
	Csi__V1__ControllerGetCapabilitiesResponse resp;
	static const int expected[] = { 1, 2, 3, 4, 8, 10, 12, 13 };

	(void)state;
	csi__v1__controller_get_capabilities_request__init(&q);
	csi__v1__controller_get_capabilities_response__init(&resp);
	assert_int_equal(run("ControllerGetCapabilities", &q, &resp), UC_GRPC_OK);
	assert_int_equal(resp.n_capabilities, ARRAY_SIZE(expected));
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		bool found = false;

		for (size_t k = 0; k < resp.n_capabilities; k++)
			found |= (int)resp.capabilities[k]->rpc->type == expected[i];
		if (!found)
			fail_msg("%d is missing", expected[i]);
	}
}

/* -------------------------------------------------------------------- memory */

static void without_memory_every_answer_is_unavailable(void **state)
{
	Csi__V1__CreateVolumeRequest create_q = create_request();
	Csi__V1__ControllerGetVolumeRequest get_q;
	Csi__V1__ListVolumesRequest list_q;
	Csi__V1__GetCapacityRequest capacity_q;
	Csi__V1__ControllerGetCapabilitiesRequest capabilities_q;
	Csi__V1__ValidateVolumeCapabilitiesRequest validate_q;
	const struct {
		const char *name;
		const void *req;
		const ProtobufCMessageDescriptor *resp;
	} rows[] = {
		{ "CreateVolume", &create_q, &csi__v1__create_volume_response__descriptor },
		{ "ControllerGetVolume", &get_q,
		  &csi__v1__controller_get_volume_response__descriptor },
		{ "ListVolumes", &list_q, &csi__v1__list_volumes_response__descriptor },
		{ "GetCapacity", &capacity_q, &csi__v1__get_capacity_response__descriptor },
		{ "ControllerGetCapabilities", &capabilities_q,
		  &csi__v1__controller_get_capabilities_response__descriptor },
		{ "ValidateVolumeCapabilities", &validate_q,
		  &csi__v1__validate_volume_capabilities_response__descriptor },
	};

	(void)state;
	csi__v1__controller_get_volume_request__init(&get_q);
	get_q.volume_id = text("v1");
	csi__v1__list_volumes_request__init(&list_q);
	list_q.max_entries = 2;
	b.n_volumes = 3;
	csi__v1__get_capacity_request__init(&capacity_q);
	csi__v1__controller_get_capabilities_request__init(&capabilities_q);
	csi__v1__validate_volume_capabilities_request__init(&validate_q);
	validate_q.volume_id = text("v1");
	validate_q.volume_capabilities = capabilities;
	validate_q.n_volume_capabilities = 1;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (size_t n = 0;; n++) {
			union {
				ProtobufCMessage base;
				char room[4096];
			} resp;
			int status;

			protobuf_c_message_init(rows[i].resp, &resp);
			memory_left = n;
			status = run(rows[i].name, rows[i].req, &resp);
			if (status == UC_GRPC_OK && call.memory_left > 0) {
				assert_true(n > 1);
				break;
			}
			/* The last row's message may be the last thing there is memory for. */
			if (status != UC_GRPC_OK)
				assert_int_equal(status, UC_GRPC_UNAVAILABLE);
		}
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_volume_is_created_as_it_is_asked_for),
		T(what_is_not_asked_for_is_the_default),
		T(a_request_without_a_name_or_capability_is_refused),
		T(capabilities_must_agree_on_the_filesystem),
		T(a_negative_size_is_refused),
		T(parameters_are_checked),
		T(what_is_not_supported_is_refused_by_name),
		T(a_volume_that_is_wanted_elsewhere_is_refused),
		T(the_backends_refusal_is_the_answer),
		T(the_key_of_a_creation_is_the_volumes_id),
		T(a_volume_is_deleted_by_its_id),
		T(a_volume_is_published_to_a_node_as_asked_for),
		T(a_publish_request_that_lacks_anything_is_refused),
		T(a_volume_is_unpublished_from_one_node_or_from_all),
		T(a_volume_is_described_with_its_nodes),
		T(supported_capabilities_are_confirmed_as_they_were_asked),
		T(what_is_not_supported_is_not_confirmed_and_no_error),
		T(a_validation_needs_a_volume_and_capabilities),
		T(all_volumes_are_listed_with_their_nodes),
		T(pages_follow_one_another_to_the_end),
		T(a_token_that_is_not_ours_is_aborted),
		T(capacity_is_asked_of_the_backend),
		T(there_is_no_capacity_for_what_is_not_supported_or_elsewhere),
		T(what_is_advertised_is_there),
		T(without_memory_every_answer_is_unavailable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
