/* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/vol/split.h"
#include "lib/vol/state.h"

enum {
	STATE_VERSION = 1,
};

static const char *const volume_phase_str[] = {
	[UC_VOLUME_CREATING] = "creating",
	[UC_VOLUME_READY] = "ready",
	[UC_VOLUME_DELETING] = "deleting",
};
static_assert(ARRAY_SIZE(volume_phase_str) == UC_VOLUME_PHASE_COUNT, "a name for each phase");

static const char *const format_str[] = {
	[UC_FORMAT_NEVER] = "never",
	[UC_FORMAT_STARTED] = "formatting",
	[UC_FORMAT_DONE] = "formatted",
};
static_assert(ARRAY_SIZE(format_str) == UC_FORMAT_COUNT, "a name for each format");

static const char *const stage_phase_str[] = {
	[UC_STAGE_NONE] = "none",
	[UC_STAGE_STAGING] = "staging",
	[UC_STAGE_STAGED] = "staged",
	[UC_STAGE_UNSTAGING] = "unstaging",
};
static_assert(ARRAY_SIZE(stage_phase_str) == UC_STAGE_PHASE_COUNT, "a name for each phase");

const char *uc_volume_phase_to_str(enum uc_volume_phase phase)
{
	return volume_phase_str[phase];
}

const char *uc_stage_phase_to_str(enum uc_stage_phase phase)
{
	return stage_phase_str[phase];
}

void uc_stage_done(struct uc_stage *stage)
{
	free(stage->path);
	uc_strv_free(stage->mount_flags);
	free(stage->group);
	free(stage->boot_id);
	*stage = (struct uc_stage){ .phase = UC_STAGE_NONE };
}

static void publish_done(struct uc_publish *p)
{
	free(p->target);
	uc_strv_free(p->mount_flags);
}

void uc_volume_done(struct uc_volume *v)
{
	free(v->name);
	free(v->branches);
	free(v->segments);
	for (size_t i = 0; i < v->n_attachments; i++)
		free(v->attachments[i].node_id);
	free(v->attachments);
	uc_stage_done(&v->stage);
	for (size_t i = 0; i < v->n_publishes; i++)
		publish_done(&v->publishes[i]);
	free(v->publishes);
	*v = (struct uc_volume){ .n_branches = 0 };
}

bool uc_volume_is_union(const struct uc_volume *v)
{
	return v->n_branches > 1 && !v->n_segments;
}

int uc_volume_set_segments(struct uc_volume *v)
{
	bool striped = v->params.layout == UC_LAYOUT_STRIPED;
	size_t n = striped ? 1 : v->n_branches;
	uint64_t start = 0;

	if (v->params.layout == UC_LAYOUT_UNION || v->n_branches < 2)
		return 0;
	v->segments = calloc(n, sizeof(*v->segments));
	if (!v->segments)
		return -ENOMEM;
	v->n_segments = n;
	for (size_t i = 0; i < n; i++) {
		struct uc_segment *s = &v->segments[i];

		s->start = start;
		s->branch = i;
		s->n_branches = striped ? v->n_branches : 1;
		s->length = v->branches[i].size * s->n_branches;
		s->stripe_size = striped ? v->params.stripe_size : 0;
		start += s->length;
	}
	return 0;
}

struct uc_attachment *uc_volume_find_attachment(const struct uc_volume *v, const char *node_id)
{
	for (size_t i = 0; i < v->n_attachments; i++)
		if (strcmp(v->attachments[i].node_id, node_id) == 0)
			return &v->attachments[i];
	return NULL;
}

int uc_volume_add_attachment(struct uc_volume *v, const char *node_id, bool read_only,
			     int access_mode)
{
	struct uc_attachment *grown;
	char *copy;

	grown = reallocarray(v->attachments, v->n_attachments + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	v->attachments = grown;
	copy = strdup(node_id);
	if (!copy)
		return -ENOMEM;
	v->attachments[v->n_attachments++] = (struct uc_attachment){
		.node_id = copy,
		.read_only = read_only,
		.access_mode = access_mode,
	};
	return 0;
}

void uc_volume_remove_attachment(struct uc_volume *v, struct uc_attachment *a)
{
	free(a->node_id);
	*a = v->attachments[--v->n_attachments];
}

struct uc_publish *uc_volume_find_publish(const struct uc_volume *v, const char *target)
{
	for (size_t i = 0; i < v->n_publishes; i++)
		if (strcmp(v->publishes[i].target, target) == 0)
			return &v->publishes[i];
	return NULL;
}

struct uc_publish *uc_volume_add_publish(struct uc_volume *v, const char *target)
{
	struct uc_publish *grown;
	char *copy;

	grown = reallocarray(v->publishes, v->n_publishes + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	v->publishes = grown;
	copy = strdup(target);
	if (!copy)
		return NULL;
	v->publishes[v->n_publishes] = (struct uc_publish){ .target = copy };
	return &v->publishes[v->n_publishes++];
}

void uc_volume_remove_publish(struct uc_volume *v, struct uc_publish *p)
{
	publish_done(p);
	*p = v->publishes[--v->n_publishes];
}

/* ------------------------------------------------------------------ writing */

static json_t *branches_to_json(const struct uc_volume *v)
{
	cleanup_json json_t *array = json_array();

	for (size_t i = 0; array && i < v->n_branches; i++) {
		const struct uc_branch *b = &v->branches[i];

		if (json_array_append_new(array, json_pack("{s:s, s:s, s:I, s:s, s:o, s:o}", "pool",
							   b->pool, "uuid", b->uuid, "size",
							   (json_int_t)b->size, "format",
							   format_str[b->format], "fileDev",
							   uc_json_id(b->file_dev), "fileIno",
							   uc_json_id(b->file_ino))) < 0)
			return NULL;
	}
	return take_ptr(&array);
}

static json_t *segments_to_json(const struct uc_volume *v)
{
	cleanup_json json_t *array = json_array();

	for (size_t i = 0; array && i < v->n_segments; i++) {
		const struct uc_segment *s = &v->segments[i];

		if (json_array_append_new(array, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}",
							   "start", (json_int_t)s->start, "length",
							   (json_int_t)s->length, "branch",
							   (json_int_t)s->branch, "branches",
							   (json_int_t)s->n_branches, "offset",
							   (json_int_t)s->offset, "stripeSize",
							   (json_int_t)s->stripe_size)) < 0)
			return NULL;
	}
	return take_ptr(&array);
}

static json_t *attachments_to_json(const struct uc_volume *v)
{
	cleanup_json json_t *array = json_array();

	for (size_t i = 0; array && i < v->n_attachments; i++) {
		const struct uc_attachment *a = &v->attachments[i];

		if (json_array_append_new(array, json_pack("{s:s, s:b, s:i}", "nodeId", a->node_id,
							   "readOnly", a->read_only, "accessMode",
							   a->access_mode)) < 0)
			return NULL;
	}
	return take_ptr(&array);
}

static json_t *publishes_to_json(const struct uc_volume *v)
{
	cleanup_json json_t *array = json_array();

	for (size_t i = 0; array && i < v->n_publishes; i++) {
		const struct uc_publish *p = &v->publishes[i];

		if (json_array_append_new(
			    array,
			    json_pack("{s:s, s:b, s:i, s:o, s:b}", "target", p->target, "readOnly",
				      p->read_only, "accessMode", p->access_mode, "mountFlags",
				      uc_json_from_strv(p->mount_flags), "done", p->done)) < 0)
			return NULL;
	}
	return take_ptr(&array);
}

static json_t *stage_to_json(const struct uc_stage *s)
{
	return json_pack("{s:s, s:s*, s:o, s:s*, s:i, s:s*}", "phase", stage_phase_str[s->phase],
			 "path", s->path, "mountFlags", uc_json_from_strv(s->mount_flags), "group",
			 s->group, "accessMode", s->access_mode, "bootId", s->boot_id);
}

static json_t *params_to_json(const struct uc_params *p)
{
	return json_pack("{s:I, s:I, s:s, s:I, s:s, s:I}", "branches", (json_int_t)p->branches,
			 "maxBranchSize", (json_int_t)p->max_branch_size, "policy",
			 uc_policy_to_str(p->policy), "minFreeSpace", (json_int_t)p->min_free_space,
			 "layout", uc_layout_to_str(p->layout), "stripeSize",
			 (json_int_t)p->stripe_size);
}

json_t *uc_volume_to_json(const struct uc_volume *v)
{
	/* "o" with NULL makes json_pack() fail and release the others: that is ENOMEM. */
	return json_pack("{s:i, s:s, s:s, s:s, s:I, s:s, s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o}",
			 "version", STATE_VERSION, "id", v->id, "name", v->name, "phase",
			 volume_phase_str[v->phase], "capacity", (json_int_t)v->capacity, "fsType",
			 v->fstype, "params", params_to_json(&v->params), "thin", v->thin,
			 "initialised", v->initialised, "branches", branches_to_json(v), "segments",
			 segments_to_json(v), "attachments", attachments_to_json(v), "stage",
			 stage_to_json(&v->stage), "publishes", publishes_to_json(v));
}

/* ------------------------------------------------------------------ reading */

static int get_enum(const json_t *o, const char *key, const char *const *names, size_t n,
		    int *ret_value, struct uc_err *err)
{
	const char *s;
	int r;

	r = uc_json_get_str(o, key, true, &s, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		if (strcmp(names[i], s) == 0) {
			*ret_value = (int)i;
			return 0;
		}
	return uc_fail_as(err, EINVAL, 0, "field `%s` is `%s`, which is not known", key,
			  UC_PRINTABLE(s));
}

static int get_int(const json_t *o, const char *key, int *ret_value, struct uc_err *err)
{
	uint64_t v = 0;
	int r = uc_json_get_u64(o, key, true, INT32_MAX, &v, err);

	if (r == 0)
		*ret_value = (int)v;
	return r;
}

/* A string that the volume owns; NULL where it may be absent and is. */
static int get_owned(const json_t *o, const char *key, bool required, char **ret_value,
		     struct uc_err *err)
{
	const char *s = NULL;
	int r = uc_json_get_str(o, key, required, &s, err);

	if (r < 0 || !s)
		return r;
	*ret_value = strdup(s);
	return *ret_value ? 0 : uc_fail(err, ENOMEM, "field `%s`", key);
}

static int get_uuid(const json_t *o, const char *key, char to[static UC_UUID_TEXT_SIZE],
		    struct uc_err *err)
{
	const char *s;
	int r;

	r = uc_json_get_str(o, key, true, &s, err);
	if (r < 0)
		return r;
	if (!uc_uuid_is_valid(s))
		return uc_fail_as(err, EINVAL, 0, "field `%s` is `%s`, not a UUID", key,
				  UC_PRINTABLE(s));
	snprintf(to, UC_UUID_TEXT_SIZE, "%s", s);
	return 0;
}

static int branch_from_json(const json_t *o, struct uc_branch *b, struct uc_err *err)
{
	int r, format = 0;

	r = get_uuid(o, "pool", b->pool, err);
	if (r == 0)
		r = get_uuid(o, "uuid", b->uuid, err);
	if (r == 0)
		r = uc_json_get_u64(o, "size", true, INT64_MAX, &b->size, err);
	if (r == 0)
		r = get_enum(o, "format", format_str, UC_FORMAT_COUNT, &format, err);
	if (r == 0)
		r = uc_json_get_id(o, "fileDev", &b->file_dev, err);
	if (r == 0)
		r = uc_json_get_id(o, "fileIno", &b->file_ino, err);
	b->format = (enum uc_format)format;
	return r;
}

static int branches_from_json(const json_t *o, struct uc_volume *v, struct uc_err *err)
{
	json_t *array, *item;
	size_t i;
	int r;

	r = uc_json_get_array(o, "branches", true, &array, err);
	if (r < 0)
		return r;
	if (json_array_size(array) < 1 || json_array_size(array) > UC_BRANCHES_MAX)
		return uc_fail_as(err, EINVAL, 0, "field `branches` has %zu elements",
				  json_array_size(array));
	v->branches = calloc(json_array_size(array), sizeof(*v->branches));
	if (!v->branches)
		return uc_fail(err, ENOMEM, "field `branches`");
	v->n_branches = json_array_size(array);
	json_array_foreach(array, i, item)
	{
		r = branch_from_json(item, &v->branches[i], err);
		if (r < 0)
			return uc_wrap(err, r, "branches[%zu]", i);
	}
	return 0;
}

/* What a table is made of must not lead outside the branches, whatever the file says. */
static bool is_sound(const struct uc_volume *v, const struct uc_segment *s, uint64_t start)
{
	uint64_t each;

	if (s->start != start || s->n_branches < 1 || s->n_branches > v->n_branches ||
	    s->branch > v->n_branches - s->n_branches || !s->length || s->length % s->n_branches)
		return false;
	each = s->length / s->n_branches;
	if (s->n_branches > 1 &&
	    (!uc_stripe_size_is_valid(s->stripe_size) || each % s->stripe_size))
		return false;
	if (s->offset % UC_BRANCH_UNIT || each % UC_BRANCH_UNIT)
		return false;
	for (uint64_t i = s->branch; i < s->branch + s->n_branches; i++)
		if (s->offset > v->branches[i].size || each > v->branches[i].size - s->offset)
			return false;
	return true;
}

static int segment_from_json(const json_t *o, struct uc_segment *s, struct uc_err *err)
{
	int r = uc_json_get_u64(o, "start", true, INT64_MAX, &s->start, err);

	if (r == 0)
		r = uc_json_get_u64(o, "length", true, INT64_MAX, &s->length, err);
	if (r == 0)
		r = uc_json_get_u64(o, "branch", true, UC_BRANCHES_MAX, &s->branch, err);
	if (r == 0)
		r = uc_json_get_u64(o, "branches", true, UC_BRANCHES_MAX, &s->n_branches, err);
	if (r == 0)
		r = uc_json_get_u64(o, "offset", true, INT64_MAX, &s->offset, err);
	if (r == 0)
		r = uc_json_get_u64(o, "stripeSize", true, UC_STRIPE_SIZE_MAX, &s->stripe_size,
				    err);
	return r;
}

static int segments_from_json(const json_t *o, struct uc_volume *v, struct uc_err *err)
{
	json_t *array = NULL, *item;
	uint64_t start = 0;
	size_t i;
	int r;

	r = uc_json_get_array(o, "segments", false, &array, err);
	if (r < 0 || json_array_size(array) == 0)
		return r;
	v->segments = calloc(json_array_size(array), sizeof(*v->segments));
	if (!v->segments)
		return uc_fail(err, ENOMEM, "field `segments`");
	v->n_segments = json_array_size(array);
	json_array_foreach(array, i, item)
	{
		r = segment_from_json(item, &v->segments[i], err);
		if (r == 0 && !is_sound(v, &v->segments[i], start))
			r = uc_fail_as(err, EINVAL, 0, "it does not lie within the branches");
		if (r < 0)
			return uc_wrap(err, r, "segments[%zu]", i);
		start += v->segments[i].length;
	}
	return 0;
}

static int attachments_from_json(const json_t *o, struct uc_volume *v, struct uc_err *err)
{
	json_t *array, *item;
	size_t i;
	int r;

	r = uc_json_get_array(o, "attachments", true, &array, err);
	if (r < 0)
		return r;
	json_array_foreach(array, i, item)
	{
		const char *node_id = NULL;
		bool read_only = false;
		int mode = 0;

		r = uc_json_get_str(item, "nodeId", true, &node_id, err);
		if (r == 0)
			r = uc_json_get_bool(item, "readOnly", true, &read_only, err);
		if (r == 0)
			r = get_int(item, "accessMode", &mode, err);
		if (r < 0)
			return uc_wrap(err, r, "attachments[%zu]", i);
		if (uc_volume_add_attachment(v, node_id, read_only, mode) < 0)
			return uc_fail(err, ENOMEM, "attachments[%zu]", i);
	}
	return 0;
}

static int publishes_from_json(const json_t *o, struct uc_volume *v, struct uc_err *err)
{
	json_t *array, *item;
	size_t i;
	int r;

	r = uc_json_get_array(o, "publishes", true, &array, err);
	if (r < 0)
		return r;
	json_array_foreach(array, i, item)
	{
		struct uc_publish *p;
		const char *target;

		r = uc_json_get_str(item, "target", true, &target, err);
		if (r < 0)
			return uc_wrap(err, r, "publishes[%zu]", i);
		p = uc_volume_add_publish(v, target);
		if (!p)
			return uc_fail(err, ENOMEM, "publishes[%zu]", i);
		r = uc_json_get_bool(item, "readOnly", true, &p->read_only, err);
		if (r == 0)
			r = get_int(item, "accessMode", &p->access_mode, err);
		if (r == 0)
			r = uc_json_get_strv(item, "mountFlags", true, &p->mount_flags, err);
		if (r == 0)
			r = uc_json_get_bool(item, "done", true, &p->done, err);
		if (r < 0)
			return uc_wrap(err, r, "publishes[%zu]", i);
	}
	return 0;
}

static int stage_from_json(const json_t *o, struct uc_stage *s, struct uc_err *err)
{
	json_t *object;
	int r, phase = 0;

	r = uc_json_get_object(o, "stage", true, &object, err);
	if (r < 0)
		return r;
	r = get_enum(object, "phase", stage_phase_str, UC_STAGE_PHASE_COUNT, &phase, err);
	s->phase = (enum uc_stage_phase)phase;
	if (r == 0)
		r = get_owned(object, "path", phase != UC_STAGE_NONE, &s->path, err);
	if (r == 0)
		r = uc_json_get_strv(object, "mountFlags", true, &s->mount_flags, err);
	if (r == 0)
		r = get_owned(object, "group", false, &s->group, err);
	if (r == 0)
		r = get_int(object, "accessMode", &s->access_mode, err);
	if (r == 0)
		r = get_owned(object, "bootId", phase != UC_STAGE_NONE, &s->boot_id, err);
	return r < 0 ? uc_wrap(err, r, "stage") : 0;
}

static int params_from_json(const json_t *o, struct uc_params *p, struct uc_err *err)
{
	const char *policy = NULL, *layout = "union";
	json_t *object;
	int r;

	r = uc_json_get_object(o, "params", true, &object, err);
	if (r < 0)
		return r;
	r = uc_json_get_u64(object, "branches", true, UC_BRANCHES_MAX, &p->branches, err);
	if (r == 0)
		r = uc_json_get_u64(object, "maxBranchSize", true, INT64_MAX, &p->max_branch_size,
				    err);
	if (r == 0)
		r = uc_json_get_str(object, "policy", true, &policy, err);
	if (r == 0)
		r = uc_policy_parse(policy, &p->policy, err);
	if (r == 0)
		r = uc_json_get_u64(object, "minFreeSpace", true, INT64_MAX, &p->min_free_space,
				    err);
	if (r == 0)
		r = uc_json_get_str(object, "layout", false, &layout, err);
	if (r == 0)
		r = uc_layout_parse(layout, &p->layout, err);
	p->stripe_size = UC_STRIPE_SIZE;
	if (r == 0)
		r = uc_json_get_u64(object, "stripeSize", false, UC_STRIPE_SIZE_MAX,
				    &p->stripe_size, err);
	return r < 0 ? uc_wrap(err, r, "params") : 0;
}

static int volume_from_json(const json_t *o, struct uc_volume *v, struct uc_err *err)
{
	const char *id = NULL, *fstype = NULL;
	int r, version = 0, phase = 0;

	r = get_int(o, "version", &version, err);
	if (r < 0)
		return r;
	if (version != STATE_VERSION)
		return uc_fail_as(err, EINVAL, 0, "field `version` is %d, not %d", version,
				  STATE_VERSION);
	r = uc_json_get_str(o, "id", true, &id, err);
	if (r == 0 && !uc_volume_id_is_valid(id))
		r = uc_fail_as(err, EINVAL, 0, "field `id` is `%s`", UC_PRINTABLE(id));
	if (r < 0)
		return r;
	snprintf(v->id, sizeof(v->id), "%s", id);
	r = get_owned(o, "name", true, &v->name, err);
	if (r == 0)
		r = get_enum(o, "phase", volume_phase_str, UC_VOLUME_PHASE_COUNT, &phase, err);
	if (r == 0)
		r = uc_json_get_u64(o, "capacity", true, INT64_MAX, &v->capacity, err);
	if (r == 0)
		r = uc_json_get_str(o, "fsType", true, &fstype, err);
	if (r == 0 && strlen(fstype) >= sizeof(v->fstype))
		r = uc_fail_as(err, EINVAL, 0, "field `fsType` is `%s`", UC_PRINTABLE(fstype));
	if (r < 0)
		return r;
	v->phase = (enum uc_volume_phase)phase;
	snprintf(v->fstype, sizeof(v->fstype), "%s", fstype);
	r = params_from_json(o, &v->params, err);
	if (r == 0)
		r = uc_json_get_bool(o, "thin", true, &v->thin, err);
	if (r == 0)
		r = uc_json_get_bool(o, "initialised", true, &v->initialised, err);
	if (r == 0)
		r = branches_from_json(o, v, err);
	if (r == 0)
		r = segments_from_json(o, v, err);
	if (r == 0)
		r = attachments_from_json(o, v, err);
	if (r == 0)
		r = stage_from_json(o, &v->stage, err);
	if (r == 0)
		r = publishes_from_json(o, v, err);
	return r;
}

int uc_volume_from_json(const json_t *object, struct uc_volume *ret_v, struct uc_err *err)
{
	struct uc_volume v = { .n_branches = 0 };
	int r;

	r = volume_from_json(object, &v, err);
	if (r < 0) {
		uc_volume_done(&v);
		return r;
	}
	*ret_v = v;
	return 0;
}
