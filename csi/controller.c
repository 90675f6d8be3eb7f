/* SPDX-License-Identifier: Apache-2.0 */

/* CSI's Controller service: requests checked, then passed to the backend. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csi/driver.h"
#include "csi/status.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/vol/params.h"

/* ----------------------------------------------------------------- answers */

static int fail_memory(struct uc_err *err)
{
	return csi_fail(err, UC_GRPC_UNAVAILABLE, "no memory");
}

/* A list with this node's topology, where the backend's volumes are bound to the node. */
static int put_topology(struct uc_call *call, size_t *ret_n, Csi__V1__Topology ***ret_list)
{
	const struct csi_driver *d = uc_call_data(call);
	struct {
		Csi__V1__Topology topology, *list[1];
		Csi__V1__Topology__SegmentsEntry entry, *segments[1];
	} *m = uc_call_alloc(call, sizeof(*m));

	if (!m)
		return -ENOMEM;
	csi__v1__topology__init(&m->topology);
	csi__v1__topology__segments_entry__init(&m->entry);
	m->entry.key = uc_call_strdup(call, d->topology_key);
	m->entry.value = uc_call_strdup(call, d->node_id);
	if (!m->entry.key || !m->entry.value)
		return -ENOMEM;
	m->segments[0] = &m->entry;
	m->topology.segments = m->segments;
	m->topology.n_segments = 1;
	m->list[0] = &m->topology;
	*ret_list = m->list;
	*ret_n = 1;
	return 0;
}

static Csi__V1__Volume *put_volume(struct uc_call *call, const struct csi_volume_info *info)
{
	Csi__V1__Volume *v = uc_call_alloc(call, sizeof(*v));

	if (!v)
		return NULL;
	csi__v1__volume__init(v);
	v->volume_id = uc_call_strdup(call, info->id);
	v->capacity_bytes = (int64_t)info->capacity;
	if (!v->volume_id ||
	    put_topology(call, &v->n_accessible_topology, &v->accessible_topology) < 0)
		return NULL;
	return v;
}

static int put_node_ids(struct uc_call *call, const struct csi_volume_info *info, size_t *ret_n,
			char ***ret_ids)
{
	size_t n = uc_strv_len(info->node_ids);
	char **ids = uc_call_alloc(call, (n + 1) * sizeof(*ids));

	for (size_t i = 0; ids && i < n; i++) {
		ids[i] = uc_call_strdup(call, info->node_ids[i]);
		if (!ids[i])
			return -ENOMEM;
	}
	*ret_ids = ids;
	*ret_n = n;
	return ids ? 0 : -ENOMEM;
}

/* ------------------------------------------------------------ CreateVolume */

/* The filesystem that all capabilities agree on. */
static int check_capabilities(Csi__V1__VolumeCapability *const *list, size_t n,
			      const char **ret_fstype, struct uc_err *err)
{
	const char *fstype = NULL;

	if (!n)
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT, "volume_capabilities is missing");
	for (size_t i = 0; i < n; i++) {
		cleanup_capability struct csi_capability c = { .fstype = NULL };
		int r = csi_capability_parse(list[i], "volume_capabilities", &c, err);

		if (r < 0)
			return r;
		if (*c.fstype && fstype && strcmp(c.fstype, fstype) != 0)
			return csi_fail(err, UC_GRPC_INVALID_ARGUMENT,
					"volume_capabilities ask for fs_type %s and %s", fstype,
					c.fstype);
		if (*c.fstype)
			fstype = c.fstype;
	}
	*ret_fstype = fstype ? fstype : CSI_DEFAULT_FSTYPE;
	return 0;
}

static int check_range(const Csi__V1__CapacityRange *range, uint64_t *ret_required,
		       uint64_t *ret_limit, struct uc_err *err)
{
	if (!range)
		return 0;
	if (range->required_bytes < 0 || range->limit_bytes < 0)
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT, "capacity_range.%s %lld is negative",
				range->required_bytes < 0 ? "required_bytes" : "limit_bytes",
				(long long)(range->required_bytes < 0 ? range->required_bytes
								      : range->limit_bytes));
	*ret_required = (uint64_t)range->required_bytes;
	*ret_limit = (uint64_t)range->limit_bytes;
	return 0;
}

static bool is_here(const struct csi_driver *d, const Csi__V1__Topology *t)
{
	for (size_t i = 0; i < t->n_segments; i++)
		if (strcmp(t->segments[i]->key, d->topology_key) == 0)
			return strcmp(t->segments[i]->value, d->node_id) == 0;
	return true; /* says nothing of nodes */
}

/* Whether a volume on this node is accessible from where it is wanted. */
static int check_topology(const struct csi_driver *d, const Csi__V1__TopologyRequirement *q,
			  struct uc_err *err)
{
	size_t n = q ? q->n_requisite : 0;
	Csi__V1__Topology **list = q ? q->requisite : NULL;

	if (q && !n) {
		n = q->n_preferred;
		list = q->preferred;
	}
	for (size_t i = 0; i < n; i++)
		if (is_here(d, list[i]))
			return 0;
	if (!n)
		return 0;
	return csi_fail(
		err, UC_GRPC_RESOURCE_EXHAUSTED,
		"accessibility_requirements do not include %s=%s, where this driver's disks are",
		d->topology_key, d->node_id);
}

static int check_create(struct uc_call *call, const Csi__V1__CreateVolumeRequest *q,
			struct csi_create *c, struct uc_err *err)
{
	const struct csi_driver *d = uc_call_data(call);
	struct uc_param *params = CSI_MAP(call, q, parameters);
	int r;

	if (!params)
		return fail_memory(err);
	r = csi_as(err, uc_volume_name_check(q->name, err), UC_GRPC_INVALID_ARGUMENT);
	if (r == 0)
		r = check_capabilities(q->volume_capabilities, q->n_volume_capabilities, &c->fstype,
				       err);
	if (r == 0)
		r = check_range(q->capacity_range, &c->required, &c->limit, err);
	if (r == 0)
		r = csi_check_map("parameters", params, q->n_parameters, err);
	if (r == 0)
		r = csi_as(err, uc_params_parse(params, q->n_parameters, &c->params, err),
			   UC_GRPC_INVALID_ARGUMENT);
	if (r == 0 && q->n_mutable_parameters)
		r = csi_fail(err, UC_GRPC_INVALID_ARGUMENT,
			     "mutable_parameters are not supported (`%s`)",
			     UC_PRINTABLE(q->mutable_parameters[0]->key));
	if (r == 0 && q->volume_content_source)
		r = csi_fail(
			err, UC_GRPC_INVALID_ARGUMENT,
			"volume_content_source is not supported: neither snapshots nor clones");
	if (r == 0)
		r = check_topology(d, q->accessibility_requirements, err);
	c->name = q->name;
	if (r == 0)
		uc_volume_id_from_name(q->name, c->id);
	return r;
}

static const char *create_key(const void *req)
{
	static char id[UC_VOLUME_ID_SIZE]; /* of the loop's thread */

	uc_volume_id_from_name(((const Csi__V1__CreateVolumeRequest *)req)->name, id);
	return id;
}

static int create_volume(struct uc_call *call, const void *req, void *resp)
{
	const struct csi_driver *d = uc_call_data(call);
	const Csi__V1__CreateVolumeRequest *q = req;
	Csi__V1__CreateVolumeResponse *out = resp;
	cleanup_volume_info struct csi_volume_info info = { .capacity = 0 };
	struct csi_create c = { .name = q->name };
	struct csi_op op = { .call = call, .volume_id = c.id };
	struct uc_err err = { .num = 0 };
	int r;

	r = check_create(call, q, &c, &err);
	if (r < 0)
		op.volume_id = q->name; /* an id may not have been made of it */
	if (r == 0)
		r = d->backend->ops->create(d->backend, &op, &c, &info, &err);
	if (r == 0) {
		out->volume = put_volume(call, &info);
		if (!out->volume)
			r = fail_memory(&err);
	}
	return csi_end(call, &op, r, &err);
}

/* ------------------------------------------------------------ DeleteVolume */

#define VOLUME_KEY(fn, type)                                     \
	static const char *fn(const void *req)                   \
	{                                                        \
		const char *id = ((const type *)req)->volume_id; \
		return *id ? id : NULL;                          \
	}

VOLUME_KEY(delete_key, Csi__V1__DeleteVolumeRequest)
VOLUME_KEY(publish_key, Csi__V1__ControllerPublishVolumeRequest)
VOLUME_KEY(unpublish_key, Csi__V1__ControllerUnpublishVolumeRequest)

static int delete_volume(struct uc_call *call, const void *req, void *resp)
{
	const struct csi_driver *d = uc_call_data(call);
	const Csi__V1__DeleteVolumeRequest *q = req;
	struct csi_op op = { .call = call, .volume_id = q->volume_id };
	struct uc_err err = { .num = 0 };
	int r;

	(void)resp;
	r = csi_check_id(q->volume_id, &err);
	if (r == 0)
		r = d->backend->ops->remove(d->backend, &op, q->volume_id, &err);
	return csi_end(call, &op, r, &err);
}

/* ------------------------------------------- ControllerPublish and -Unpublish */

static int publish_volume(struct uc_call *call, const void *req, void *resp)
{
	const struct csi_driver *d = uc_call_data(call);
	const Csi__V1__ControllerPublishVolumeRequest *q = req;
	cleanup_capability struct csi_capability c = { .fstype = NULL };
	struct csi_op op = { .call = call, .volume_id = q->volume_id };
	struct uc_err err = { .num = 0 };
	int r;

	(void)resp;
	r = csi_check_id(q->volume_id, &err);
	if (r == 0 && !*q->node_id)
		r = csi_fail(&err, UC_GRPC_INVALID_ARGUMENT, "node_id is missing");
	if (r == 0)
		r = csi_check_node_id(q->node_id, &err);
	if (r == 0)
		r = csi_capability_parse(q->volume_capability, "volume_capability", &c, &err);
	if (r == 0)
		r = d->backend->ops->attach(d->backend, &op, q->volume_id, q->node_id,
					    c.access_mode, q->readonly, &err);
	return csi_end(call, &op, r, &err);
}

static int unpublish_volume(struct uc_call *call, const void *req, void *resp)
{
	const struct csi_driver *d = uc_call_data(call);
	const Csi__V1__ControllerUnpublishVolumeRequest *q = req;
	struct csi_op op = { .call = call, .volume_id = q->volume_id };
	struct uc_err err = { .num = 0 };
	int r;

	(void)resp;
	r = csi_check_id(q->volume_id, &err);
	if (r == 0)
		r = csi_check_node_id(q->node_id, &err);
	if (r == 0)
		r = d->backend->ops->detach(d->backend, &op, q->volume_id,
					    *q->node_id ? q->node_id : NULL, &err);
	return csi_end(call, &op, r, &err);
}

/* ----------------------------------------------- ValidateVolumeCapabilities */

/* Copies a map field of the request into one of the response: the entries' types differ. */
#define COPY_MAP(call, to, from, field, init)                                           \
	({                                                                              \
		size_t n_ = (from)->n_##field;                                          \
		(to)->field = uc_call_alloc((call), (n_ + 1) * sizeof(*(to)->field));   \
		for (size_t i_ = 0; (to)->field && i_ < n_; i_++) {                     \
			(to)->field[i_] = uc_call_alloc((call), sizeof(**(to)->field)); \
			if (!(to)->field[i_]) {                                         \
				(to)->field = NULL;                                     \
				break;                                                  \
			}                                                               \
			init((to)->field[i_]);                                          \
			(to)->field[i_]->key = (from)->field[i_]->key;                  \
			(to)->field[i_]->value = (from)->field[i_]->value;              \
		}                                                                       \
		(to)->n_##field = (to)->field ? n_ : 0;                                 \
		(to)->field != NULL;                                                    \
	})

typedef Csi__V1__ValidateVolumeCapabilitiesResponse__Confirmed Confirmed;

/* The request lives as long as the response does, so its strings need no copy. */
static int confirm(struct uc_call *call, const Csi__V1__ValidateVolumeCapabilitiesRequest *q,
		   Confirmed **ret_confirmed, struct uc_err *err)
{
	Confirmed *ok = uc_call_alloc(call, sizeof(*ok));

	if (!ok)
		return fail_memory(err);
	csi__v1__validate_volume_capabilities_response__confirmed__init(ok);
	ok->n_volume_capabilities = q->n_volume_capabilities;
	ok->volume_capabilities = q->volume_capabilities;
	if (!COPY_MAP(
		    call, ok, q, volume_context,
		    csi__v1__validate_volume_capabilities_response__confirmed__volume_context_entry__init) ||
	    !COPY_MAP(
		    call, ok, q, parameters,
		    csi__v1__validate_volume_capabilities_response__confirmed__parameters_entry__init))
		return fail_memory(err);
	*ret_confirmed = ok;
	return 0;
}

static int check_filesystem(const Csi__V1__ValidateVolumeCapabilitiesRequest *q,
			    const struct csi_volume_info *info, struct uc_err *err)
{
	for (size_t i = 0; i < q->n_volume_capabilities; i++) {
		const char *asked = q->volume_capabilities[i]->mount->fs_type;

		if (*asked && strcmp(asked, info->fstype) != 0)
			return csi_fail(err, UC_GRPC_INVALID_ARGUMENT,
					"volume_capabilities ask for fs_type %s, but the volume "
					"is made for %s",
					asked, info->fstype);
	}
	return 0;
}

/* Our volumes have no context; that key is of the provisioner, which puts it into each. */
static int check_context(const Csi__V1__ValidateVolumeCapabilitiesRequest *q, struct uc_err *err)
{
	for (size_t i = 0; i < q->n_volume_context; i++)
		if (strcmp(q->volume_context[i]->key,
			   "storage.kubernetes.io/csiProvisionerIdentity") != 0)
			return csi_fail(err, UC_GRPC_INVALID_ARGUMENT,
					"volume_context `%s` is not the volume's",
					UC_PRINTABLE(q->volume_context[i]->key));
	return 0;
}

/* 0: the volume is all that is asked for; else @err says what it is not. */
static int check_supported(struct uc_call *call,
			   const Csi__V1__ValidateVolumeCapabilitiesRequest *q,
			   const struct csi_volume_info *info, struct uc_err *err)
{
	struct uc_param *params = CSI_MAP(call, q, parameters);
	const char *fstype;
	int r;

	if (!params)
		return fail_memory(err);
	r = check_capabilities(q->volume_capabilities, q->n_volume_capabilities, &fstype, err);
	if (r == 0)
		r = check_filesystem(q, info, err);
	if (r == 0)
		r = check_context(q, err);
	if (r == 0)
		r = uc_params_match(params, q->n_parameters, &info->params, err);
	if (r == 0 && q->n_mutable_parameters)
		r = csi_fail(err, UC_GRPC_INVALID_ARGUMENT,
			     "mutable_parameters are not supported (`%s`)",
			     UC_PRINTABLE(q->mutable_parameters[0]->key));
	return r;
}

static int validate_capabilities(struct uc_call *call, const void *req, void *resp)
{
	const struct csi_driver *d = uc_call_data(call);
	const Csi__V1__ValidateVolumeCapabilitiesRequest *q = req;
	Csi__V1__ValidateVolumeCapabilitiesResponse *out = resp;
	cleanup_volume_info struct csi_volume_info info = { .capacity = 0 };
	struct csi_op op = { .call = call, .volume_id = q->volume_id };
	struct uc_err err = { .num = 0 };
	int r;

	r = csi_check_id(q->volume_id, &err);
	if (r == 0 && !q->n_volume_capabilities)
		r = csi_fail(&err, UC_GRPC_INVALID_ARGUMENT, "volume_capabilities is missing");
	if (r == 0)
		r = d->backend->ops->get(d->backend, q->volume_id, &info, &err);
	if (r < 0)
		return csi_end(call, &op, r, &err);
	/* What the volume is not is an answer here, not an error. */
	if (check_supported(call, q, &info, &err) < 0) {
		out->message = uc_call_strdup(call, err.msg);
		r = out->message ? 0 : fail_memory(&err);
	} else {
		r = confirm(call, q, &out->confirmed, &err);
	}
	return csi_end(call, &op, r, &err);
}

/* ------------------------------------------- ListVolumes, ControllerGetVolume */

static const char token_prefix[] = "after:"; /* and the id of the last volume of the page before */

enum {
	PAGE_MAX = 10000, /* volumes in one answer, if the CO sets no limit */
};

struct page {
	struct uc_call *call;
	Csi__V1__ListVolumesResponse *out;
	size_t max, cap;
};

static int add_entry(void *data, const struct csi_volume_info *info)
{
	struct page *page = data;
	Csi__V1__ListVolumesResponse *out = page->out;
	struct {
		Csi__V1__ListVolumesResponse__Entry entry;
		Csi__V1__ListVolumesResponse__VolumeStatus status;
	} * m;

	if (out->n_entries == page->max) { /* there is one more: a token leads to it */
		size_t n = sizeof(token_prefix) + UC_VOLUME_ID_SIZE;

		out->next_token = uc_call_alloc(page->call, n);
		if (!out->next_token)
			return -ENOMEM;
		snprintf(out->next_token, n, "%s%s", token_prefix,
			 out->entries[page->max - 1]->volume->volume_id);
		return 1;
	}
	if (out->n_entries == page->cap) {
		size_t cap = page->cap ? 2 * page->cap : 64;
		Csi__V1__ListVolumesResponse__Entry **grown = uc_call_alloc(
			page->call, cap * sizeof(Csi__V1__ListVolumesResponse__Entry *));

		if (!grown)
			return -ENOMEM;
		if (out->n_entries)
			memcpy(grown, out->entries, out->n_entries * sizeof(*grown));
		out->entries = grown;
		page->cap = cap;
	}
	m = uc_call_alloc(page->call, sizeof(*m));
	if (!m)
		return -ENOMEM;
	csi__v1__list_volumes_response__entry__init(&m->entry);
	csi__v1__list_volumes_response__volume_status__init(&m->status);
	m->entry.volume = put_volume(page->call, info);
	m->entry.status = &m->status;
	if (!m->entry.volume || put_node_ids(page->call, info, &m->status.n_published_node_ids,
					     &m->status.published_node_ids) < 0)
		return -ENOMEM;
	out->entries[out->n_entries++] = &m->entry;
	return 0;
}

static int check_list(const Csi__V1__ListVolumesRequest *q, const char **ret_after,
		      struct uc_err *err)
{
	if (q->max_entries < 0)
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT, "max_entries %d is negative",
				(int)q->max_entries);
	if (!*q->starting_token) {
		*ret_after = "";
		return 0;
	}
	if (!uc_str_has_prefix(q->starting_token, token_prefix) ||
	    !uc_volume_id_is_valid(q->starting_token + strlen(token_prefix)))
		return csi_fail(err, UC_GRPC_ABORTED, "starting_token `%s` is not one of ours",
				UC_PRINTABLE(q->starting_token));
	*ret_after = q->starting_token + strlen(token_prefix);
	return 0;
}

static int list_volumes(struct uc_call *call, const void *req, void *resp)
{
	const struct csi_driver *d = uc_call_data(call);
	const Csi__V1__ListVolumesRequest *q = req;
	struct page page = { .call = call, .out = resp };
	struct csi_op op = { .call = call, .volume_id = "" };
	struct uc_err err = { .num = 0 };
	const char *after = "";
	int r;

	page.max =
		q->max_entries > 0 && q->max_entries < PAGE_MAX ? (size_t)q->max_entries : PAGE_MAX;
	r = check_list(q, &after, &err);
	if (r == 0)
		r = d->backend->ops->list(d->backend, after, add_entry, &page, &err);
	if (r == -ENOMEM)
		r = fail_memory(&err);
	return csi_end(call, &op, r, &err);
}

static int get_volume(struct uc_call *call, const void *req, void *resp)
{
	const struct csi_driver *d = uc_call_data(call);
	const Csi__V1__ControllerGetVolumeRequest *q = req;
	Csi__V1__ControllerGetVolumeResponse *out = resp;
	cleanup_volume_info struct csi_volume_info info = { .capacity = 0 };
	struct csi_op op = { .call = call, .volume_id = q->volume_id };
	struct uc_err err = { .num = 0 };
	int r;

	r = csi_check_id(q->volume_id, &err);
	if (r == 0)
		r = d->backend->ops->get(d->backend, q->volume_id, &info, &err);
	if (r == 0) {
		out->volume = put_volume(call, &info);
		out->status = uc_call_alloc(call, sizeof(*out->status));
		if (!out->volume || !out->status)
			r = fail_memory(&err);
	}
	if (r == 0) {
		csi__v1__controller_get_volume_response__volume_status__init(out->status);
		if (put_node_ids(call, &info, &out->status->n_published_node_ids,
				 &out->status->published_node_ids) < 0)
			r = fail_memory(&err);
	}
	return csi_end(call, &op, r, &err);
}

/* ------------------------------------------------------------- GetCapacity */

static int capacity(struct uc_call *call, const Csi__V1__GetCapacityRequest *q,
		    struct csi_capacity *ret, struct uc_err *err)
{
	const struct csi_driver *d = uc_call_data(call);
	struct uc_param *list = CSI_MAP(call, q, parameters);
	const char *fstype = CSI_DEFAULT_FSTYPE;
	struct uc_params params;
	int r;

	if (!list)
		return fail_memory(err);
	r = csi_as(err, uc_params_parse(list, q->n_parameters, &params, err),
		   UC_GRPC_INVALID_ARGUMENT);
	if (r < 0)
		return r;
	if (q->n_volume_capabilities &&
	    check_capabilities(q->volume_capabilities, q->n_volume_capabilities, &fstype, NULL) < 0)
		return 0; /* no room for what is not supported */
	if (q->accessible_topology && !is_here(d, q->accessible_topology))
		return 0;
	return d->backend->ops->capacity(d->backend, &params, fstype, ret, err);
}

static int get_capacity(struct uc_call *call, const void *req, void *resp)
{
	Csi__V1__GetCapacityResponse *out = resp;
	struct csi_op op = { .call = call, .volume_id = "" };
	struct csi_capacity c = { .available = 0 };
	struct uc_err err = { .num = 0 };
	struct {
		Google__Protobuf__Int64Value maximum, minimum;
	} *m = uc_call_alloc(call, sizeof(*m));
	int r;

	r = m ? capacity(call, req, &c, &err) : fail_memory(&err);
	if (r == 0) {
		google__protobuf__int64_value__init(&m->maximum);
		google__protobuf__int64_value__init(&m->minimum);
		m->maximum.value = (int64_t)c.maximum;
		m->minimum.value = (int64_t)c.minimum;
		out->available_capacity = (int64_t)c.available;
		out->maximum_volume_size = &m->maximum;
		out->minimum_volume_size = c.minimum ? &m->minimum : NULL;
	}
	return csi_end(call, &op, r, &err);
}

/* ------------------------------------------------- ControllerGetCapabilities */

#define CAPABILITY(c) CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__##c

static int get_capabilities(struct uc_call *call, const void *req, void *resp)
{
	static const int types[] = {
		CAPABILITY(CREATE_DELETE_VOLUME), CAPABILITY(PUBLISH_UNPUBLISH_VOLUME),
		CAPABILITY(LIST_VOLUMES),         CAPABILITY(GET_CAPACITY),
		CAPABILITY(PUBLISH_READONLY),     CAPABILITY(LIST_VOLUMES_PUBLISHED_NODES),
		CAPABILITY(GET_VOLUME),           CAPABILITY(SINGLE_NODE_MULTI_WRITER),
	};
	Csi__V1__ControllerGetCapabilitiesResponse *out = resp;
	struct item {
		Csi__V1__ControllerServiceCapability capability;
		Csi__V1__ControllerServiceCapability__RPC rpc;
	} * items;

	(void)req;
	items = uc_call_alloc(call, ARRAY_SIZE(types) * sizeof(*items));
	out->capabilities = uc_call_alloc(call, ARRAY_SIZE(types) * sizeof(*out->capabilities));
	if (!items || !out->capabilities)
		return uc_call_fail(call, UC_GRPC_UNAVAILABLE, "no memory");
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		csi__v1__controller_service_capability__init(&items[i].capability);
		csi__v1__controller_service_capability__rpc__init(&items[i].rpc);
		items[i].rpc.type = types[i];
		items[i].capability.type_case = CSI__V1__CONTROLLER_SERVICE_CAPABILITY__TYPE_RPC;
		items[i].capability.rpc = &items[i].rpc;
		out->capabilities[i] = &items[i].capability;
	}
	out->n_capabilities = ARRAY_SIZE(types);
	return 0;
}

const struct uc_rpc_method csi_controller_methods[] = {
	{ "CreateVolume", create_volume, create_key },
	{ "DeleteVolume", delete_volume, delete_key },
	{ "ControllerPublishVolume", publish_volume, publish_key },
	{ "ControllerUnpublishVolume", unpublish_volume, unpublish_key },
	{ "ValidateVolumeCapabilities", validate_capabilities, NULL },
	{ "ListVolumes", list_volumes, NULL },
	{ "GetCapacity", get_capacity, NULL },
	{ "ControllerGetCapabilities", get_capabilities, NULL },
	{ "ControllerGetVolume", get_volume, NULL },
};
const size_t csi_n_controller_methods = ARRAY_SIZE(csi_controller_methods);
