/* SPDX-License-Identifier: Apache-2.0 */

/* union-csi volume create, list, show, delete. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csi/cli.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/size.h"
#include "lib/base/str.h"

/* ------------------------------------------------------------- describing one */

static json_t *map_to_json(size_t n, Csi__V1__Volume__VolumeContextEntry *const *map)
{
	cleanup_json json_t *o = json_object();

	for (size_t i = 0; o && i < n; i++)
		if (json_object_set_new(o, map[i]->key, json_string(map[i]->value)) < 0)
			return NULL;
	return take_ptr(&o);
}

static json_t *topology_to_json(const Csi__V1__Volume *v)
{
	cleanup_json json_t *list = json_array();

	for (size_t i = 0; list && i < v->n_accessible_topology; i++) {
		const Csi__V1__Topology *t = v->accessible_topology[i];
		cleanup_json json_t *o = json_object();

		for (size_t k = 0; o && k < t->n_segments; k++)
			if (json_object_set_new(o, t->segments[k]->key,
						json_string(t->segments[k]->value)) < 0)
				return NULL;
		if (!o || json_array_append(list, o) < 0)
			return NULL;
	}
	return take_ptr(&list);
}

static json_t *volume_to_json(const Csi__V1__Volume *v, char *const *nodes, size_t n_nodes)
{
	cleanup_json json_t *list = json_array();

	for (size_t i = 0; list && i < n_nodes; i++)
		if (json_array_append_new(list, json_string(nodes[i])) < 0)
			return NULL;
	return json_pack("{s:s, s:I, s:o, s:o, s:O}", "id", v->volume_id, "capacity",
			 (json_int_t)v->capacity_bytes, "context",
			 map_to_json(v->n_volume_context, v->volume_context), "topology",
			 topology_to_json(v), "nodes", list);
}

static void describe(const Csi__V1__Volume *v, char *const *nodes, size_t n_nodes,
		     struct uc_buf *text)
{
	char size[UC_SIZE_TEXT_MAX];

	uc_buf_printf(text, "id        %s\n", UC_PRINTABLE(v->volume_id));
	uc_buf_printf(text, "capacity  %s (%lld bytes)\n",
		      uc_size_format((uint64_t)v->capacity_bytes, size),
		      (long long)v->capacity_bytes);
	for (size_t i = 0; i < v->n_accessible_topology; i++)
		for (size_t k = 0; k < v->accessible_topology[i]->n_segments; k++)
			uc_buf_printf(text, "where     %s=%s\n",
				      UC_PRINTABLE(v->accessible_topology[i]->segments[k]->key),
				      UC_PRINTABLE(v->accessible_topology[i]->segments[k]->value));
	for (size_t i = 0; i < v->n_volume_context; i++)
		uc_buf_printf(text, "context   %s=%s\n", UC_PRINTABLE(v->volume_context[i]->key),
			      UC_PRINTABLE(v->volume_context[i]->value));
	for (size_t i = 0; i < n_nodes; i++)
		uc_buf_printf(text, "node      %s\n", UC_PRINTABLE(nodes[i]));
}

static int print_volume(struct csi_cli *cli, const Csi__V1__Volume *v, char *const *nodes,
			size_t n_nodes, struct uc_err *err)
{
	cleanup_buf struct uc_buf text = UC_BUF_INIT;

	describe(v, nodes, n_nodes, &text);
	return csi_cli_print(cli, volume_to_json(v, nodes, n_nodes), uc_buf_str(&text), err);
}

/* -------------------------------------------------------------------- create */

typedef Csi__V1__CreateVolumeRequest__ParametersEntry Entry;

/* "key=value" strings as a map; the strings are cut in copies that @ret_copies owns. */
static int fill_params(const struct csi_cli *cli, Entry *entries, Entry **list, char **copies)
{
	for (size_t i = 0; i < cli->n_params; i++) {
		char *eq;

		copies[i] = strdup(cli->params[i]);
		if (!copies[i])
			return -ENOMEM;
		eq = strchr(copies[i], '=');
		*eq = '\0';
		csi__v1__create_volume_request__parameters_entry__init(&entries[i]);
		entries[i].key = copies[i];
		entries[i].value = eq + 1;
		list[i] = &entries[i];
	}
	return 0;
}

static int create(struct csi_cli *cli, Entry **params, struct uc_err *err)
{
	Csi__V1__CreateVolumeRequest q = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
	Csi__V1__CapacityRange range = CSI__V1__CAPACITY_RANGE__INIT;
	cleanup_message ProtobufCMessage *resp = NULL;
	struct csi_cli_capability c;
	Csi__V1__VolumeCapability *capabilities[] = { &c.capability };
	char doing[200];
	int r;

	r = csi_cli_capability(cli, &c, err);
	if (r < 0)
		return r;
	range.required_bytes = (int64_t)cli->size;
	q.name = cli->args[0];
	q.capacity_range = &range;
	q.volume_capabilities = capabilities;
	q.n_volume_capabilities = 1;
	q.parameters = params;
	q.n_parameters = cli->n_params;
	snprintf(doing, sizeof(doing), "creating `%.140s`", cli->args[0]);
	r = csi_cli_call(cli, &csi__v1__controller__descriptor, "CreateVolume", &q.base, doing,
			 &resp, err);
	if (r < 0)
		return r;
	return print_volume(cli, ((Csi__V1__CreateVolumeResponse *)resp)->volume, NULL, 0, err);
}

int csi_cli_create(struct csi_cli *cli, struct uc_err *err)
{
	cleanup_free Entry *entries = calloc(cli->n_params + 1, sizeof(*entries));
	cleanup_free Entry **list = calloc(cli->n_params + 1, sizeof(*list));
	cleanup_strv char **copies = calloc(cli->n_params + 1, sizeof(*copies));

	if (!entries || !list || !copies || fill_params(cli, entries, list, copies) < 0)
		return uc_fail(err, ENOMEM, "create a volume");
	return create(cli, list, err);
}

/* ---------------------------------------------------------------- list, show */

/* Calls @fn for each volume, page by page. */
static int each(struct csi_cli *cli,
		int (*fn)(void *data, const Csi__V1__ListVolumesResponse__Entry *e), void *data,
		struct uc_err *err)
{
	cleanup_free char *token = strdup("");

	while (token) {
		Csi__V1__ListVolumesRequest q = CSI__V1__LIST_VOLUMES_REQUEST__INIT;
		cleanup_message ProtobufCMessage *resp = NULL;
		const Csi__V1__ListVolumesResponse *a;
		int r;

		q.max_entries = 500;
		q.starting_token = token;
		r = csi_cli_call(cli, &csi__v1__controller__descriptor, "ListVolumes", &q.base,
				 "listing the volumes", &resp, err);
		if (r < 0)
			return r;
		a = (const Csi__V1__ListVolumesResponse *)resp;
		for (size_t i = 0; i < a->n_entries; i++) {
			if (!a->entries[i]->volume)
				continue;
			r = fn(data, a->entries[i]);
			if (r != 0)
				return r;
		}
		free(token);
		token = NULL;
		if (!*a->next_token)
			return 0;
		token = strdup(a->next_token);
	}
	return uc_fail(err, ENOMEM, "list the volumes");
}

struct listing {
	json_t *array;
	struct uc_buf text;
};

static int add(void *data, const Csi__V1__ListVolumesResponse__Entry *e)
{
	struct listing *l = data;
	char **nodes = e->status ? e->status->published_node_ids : NULL;
	size_t n = e->status ? e->status->n_published_node_ids : 0;
	char size[UC_SIZE_TEXT_MAX];

	uc_buf_printf(&l->text, "%-44s %14s  ", UC_PRINTABLE(e->volume->volume_id),
		      uc_size_format((uint64_t)e->volume->capacity_bytes, size));
	for (size_t i = 0; i < n; i++)
		uc_buf_printf(&l->text, "%s%s", i ? "," : "", UC_PRINTABLE(nodes[i]));
	uc_buf_puts(&l->text, n ? "\n" : "-\n");
	return json_array_append_new(l->array, volume_to_json(e->volume, nodes, n)) < 0 ? -ENOMEM
											: 0;
}

int csi_cli_list(struct csi_cli *cli, struct uc_err *err)
{
	struct listing l = { .array = json_array(), .text = UC_BUF_INIT };
	int r;

	uc_buf_printf(&l.text, "%-44s %14s  %s\n", "ID", "CAPACITY", "NODES");
	r = l.array ? each(cli, add, &l, err) : -ENOMEM;
	if (r == -ENOMEM)
		uc_fail(err, ENOMEM, "list the volumes");
	if (r == 0)
		r = csi_cli_print(cli, json_pack("{s:O}", "volumes", l.array), uc_buf_str(&l.text),
				  err);
	json_decref(l.array);
	uc_buf_done(&l.text);
	return r;
}

struct search {
	const char *id;
	ProtobufCMessage *found; /* a ListVolumesResponse with the one entry */
};

/* Copies by packing: the page that @e lies in goes away. */
static int match(void *data, const Csi__V1__ListVolumesResponse__Entry *e)
{
	struct search *s = data;
	Csi__V1__ListVolumesResponse one = CSI__V1__LIST_VOLUMES_RESPONSE__INIT;
	Csi__V1__ListVolumesResponse__Entry *entries[] = { (
		Csi__V1__ListVolumesResponse__Entry *)(uintptr_t)e };
	cleanup_free uint8_t *packed = NULL;
	size_t n;

	if (strcmp(e->volume->volume_id, s->id) != 0)
		return 0;
	one.entries = entries;
	one.n_entries = 1;
	n = protobuf_c_message_get_packed_size(&one.base);
	packed = malloc(n + 1);
	if (!packed)
		return -ENOMEM;
	protobuf_c_message_pack(&one.base, packed);
	s->found = protobuf_c_message_unpack(one.base.descriptor, NULL, n, packed);
	return s->found ? 1 : -ENOMEM;
}

static int find_in_list(struct csi_cli *cli, const char *id, ProtobufCMessage **ret_resp,
			const Csi__V1__Volume **ret_volume, char ***ret_nodes, size_t *ret_n_nodes,
			struct uc_err *err)
{
	struct search s = { .id = id };
	const Csi__V1__ListVolumesResponse__Entry *e;
	int r;

	r = each(cli, match, &s, err);
	if (r < 0)
		return r;
	if (r == 0)
		return uc_fail_as(err, ENOENT, UC_GRPC_NOT_FOUND, "there is no volume `%s`",
				  UC_PRINTABLE(id));
	e = ((Csi__V1__ListVolumesResponse *)s.found)->entries[0];
	*ret_resp = s.found;
	*ret_volume = e->volume;
	*ret_nodes = e->status ? e->status->published_node_ids : NULL;
	*ret_n_nodes = e->status ? e->status->n_published_node_ids : 0;
	return 0;
}

int csi_cli_find(struct csi_cli *cli, const char *id, ProtobufCMessage **ret_resp,
		 const Csi__V1__Volume **ret_volume, char ***ret_nodes, size_t *ret_n_nodes,
		 struct uc_err *err)
{
	Csi__V1__ControllerGetVolumeRequest q = CSI__V1__CONTROLLER_GET_VOLUME_REQUEST__INIT;
	const Csi__V1__ControllerGetVolumeResponse *a;
	char doing[200];
	int r;

	r = csi_cli_has_controller(
		cli, CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__GET_VOLUME, err);
	if (r == 0)
		return find_in_list(cli, id, ret_resp, ret_volume, ret_nodes, ret_n_nodes, err);
	if (r < 0)
		return r;
	q.volume_id = (char *)(uintptr_t)id;
	snprintf(doing, sizeof(doing), "looking `%.140s` up", id);
	r = csi_cli_call(cli, &csi__v1__controller__descriptor, "ControllerGetVolume", &q.base,
			 doing, ret_resp, err);
	if (r < 0)
		return err->status == UC_GRPC_NOT_FOUND ? -ENOENT : r;
	a = (const Csi__V1__ControllerGetVolumeResponse *)*ret_resp;
	if (!a->volume)
		return uc_fail_as(err, EPROTO, 0, "the driver does not describe `%s`",
				  UC_PRINTABLE(id));
	*ret_volume = a->volume;
	*ret_nodes = a->status ? a->status->published_node_ids : NULL;
	*ret_n_nodes = a->status ? a->status->n_published_node_ids : 0;
	return 0;
}

static const char *unit_str(const Csi__V1__VolumeUsage *u)
{
	return u->unit == CSI__V1__VOLUME_USAGE__UNIT__INODES ? "inodes" : "bytes";
}

/* What the node says of the volume's usage at a directory, as JSON and as text. */
static int ask_usage(struct csi_cli *cli, const char *id, const char *path, json_t **ret_usage,
		     struct uc_buf *text, struct uc_err *err)
{
	Csi__V1__NodeGetVolumeStatsRequest q = CSI__V1__NODE_GET_VOLUME_STATS_REQUEST__INIT;
	cleanup_message ProtobufCMessage *resp = NULL;
	cleanup_json json_t *o = json_object();
	const Csi__V1__NodeGetVolumeStatsResponse *a;
	int r;

	q.volume_id = (char *)(uintptr_t)id;
	q.volume_path = (char *)(uintptr_t)path;
	r = csi_cli_call(cli, &csi__v1__node__descriptor, "NodeGetVolumeStats", &q.base,
			 "asking for the usage", &resp, err);
	if (r < 0)
		return r;
	a = (const Csi__V1__NodeGetVolumeStatsResponse *)resp;
	for (size_t i = 0; i < a->n_usage; i++) {
		const Csi__V1__VolumeUsage *u = a->usage[i];

		if (json_object_set_new(o, unit_str(u),
					json_pack("{s:I, s:I, s:I}", "total", (json_int_t)u->total,
						  "used", (json_int_t)u->used, "available",
						  (json_int_t)u->available)) < 0)
			return uc_fail(err, ENOMEM, "describe the usage");
		uc_buf_printf(text, "%-8s  %lld total, %lld used, %lld available\n", unit_str(u),
			      (long long)u->total, (long long)u->used, (long long)u->available);
	}
	*ret_usage = take_ptr(&o);
	return 0;
}

int csi_cli_show(struct csi_cli *cli, struct uc_err *err)
{
	cleanup_message ProtobufCMessage *resp = NULL;
	cleanup_buf struct uc_buf text = UC_BUF_INIT;
	cleanup_json json_t *object = NULL;
	cleanup_free char *path = NULL;
	json_t *usage = NULL;
	const Csi__V1__Volume *v;
	char **nodes;
	size_t n;
	int r;

	r = csi_cli_find(cli, cli->args[0], &resp, &v, &nodes, &n, err);
	if (r < 0)
		return r;
	describe(v, nodes, n, &text);
	object = volume_to_json(v, nodes, n);
	if (cli->n_args == 2) {
		r = csi_cli_absolute(cli->args[1], &path, err);
		if (r == 0)
			r = ask_usage(cli, cli->args[0], path, &usage, &text, err);
		if (r < 0)
			return r;
		json_object_set_new(object, "usage", usage);
	}
	return csi_cli_print(cli, take_ptr(&object), uc_buf_str(&text), err);
}

/* -------------------------------------------------------------------- delete */

int csi_cli_delete(struct csi_cli *cli, struct uc_err *err)
{
	Csi__V1__DeleteVolumeRequest q = CSI__V1__DELETE_VOLUME_REQUEST__INIT;
	cleanup_message ProtobufCMessage *resp = NULL, *found = NULL;
	const Csi__V1__Volume *v;
	char **nodes, text[220];
	size_t n;
	int r;

	/* CSI's DeleteVolume is content with any id; a person who mistypes one is not. */
	r = csi_cli_find(cli, cli->args[0], &found, &v, &nodes, &n, err);
	if (r < 0)
		return r;
	q.volume_id = cli->args[0];
	snprintf(text, sizeof(text), "deleting `%.140s`", cli->args[0]);
	r = csi_cli_call(cli, &csi__v1__controller__descriptor, "DeleteVolume", &q.base, text,
			 &resp, err);
	if (r < 0)
		return r;
	snprintf(text, sizeof(text), "deleted %s\n", UC_PRINTABLE(cli->args[0]));
	return csi_cli_print(cli, json_pack("{s:s}", "deleted", cli->args[0]), text, err);
}
