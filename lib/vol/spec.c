/* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/vol/spec.h"
#include "lib/vol/split.h"

enum {
	SPEC_VERSION = 1,
	TEXT_MAX = 4096, /* of any string in a spec */
};

static const char *const policy_str[] = {
	[UC_POLICY_MFS] = "mfs",
	[UC_POLICY_EPMFS] = "epmfs",
};
static_assert(ARRAY_SIZE(policy_str) == UC_POLICY_COUNT, "every policy has a name");

static const char *const spec_keys[] = { "version",  "volumeId",     "branches",
					 "policy",   "minFreeSpace", "mountFlags",
					 "readOnly", "initialise",   NULL };
static const char *const branch_keys[] = { "device", "fsType", "uuid", "directory", NULL };

const char *uc_policy_to_str(enum uc_policy policy)
{
	return policy_str[policy];
}

int uc_policy_parse(const char *s, enum uc_policy *ret_policy, struct uc_err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(policy_str); i++)
		if (strcmp(s, policy_str[i]) == 0) {
			*ret_policy = (enum uc_policy)i;
			return 0;
		}
	return uc_fail_as(err, EINVAL, 0, "policy `%s` is not known (there are: mfs, epmfs)",
			  UC_PRINTABLE(s));
}

static void branch_done(struct uc_branch_spec *b)
{
	free(b->device);
	free(b->fstype);
	free(b->uuid);
	free(b->directory);
	*b = (struct uc_branch_spec){ 0 };
}

void uc_union_spec_done(struct uc_union_spec *spec)
{
	for (size_t i = 0; i < spec->n_branches; i++)
		branch_done(&spec->branches[i]);
	free(spec->branches);
	free(spec->volume_id);
	uc_strv_free(spec->mount_flags);
	*spec = (struct uc_union_spec){ 0 };
}

/* Sets a string that may be absent; 0 or -1, as jansson. */
static int set_str(json_t *o, const char *key, const char *value)
{
	return value ? json_object_set_new(o, key, json_string(value)) : 0;
}

static json_t *branch_to_json(const struct uc_branch_spec *b)
{
	cleanup_json json_t *o = json_object();

	if (!o || set_str(o, "device", b->device) < 0 || set_str(o, "fsType", b->fstype) < 0 ||
	    set_str(o, "uuid", b->uuid) < 0 || set_str(o, "directory", b->directory) < 0)
		return NULL;
	return take_ptr(&o);
}

static json_t *branches_to_json(const struct uc_union_spec *spec)
{
	cleanup_json json_t *array = json_array();

	for (size_t i = 0; array && i < spec->n_branches; i++)
		if (json_array_append_new(array, branch_to_json(&spec->branches[i])) < 0)
			return NULL;
	return take_ptr(&array);
}

json_t *uc_union_spec_to_json(const struct uc_union_spec *spec)
{
	cleanup_json json_t *o = json_object();

	if (!o || json_object_set_new(o, "version", json_integer(SPEC_VERSION)) < 0 ||
	    set_str(o, "volumeId", spec->volume_id) < 0 ||
	    json_object_set_new(o, "branches", branches_to_json(spec)) < 0 ||
	    set_str(o, "policy", policy_str[spec->policy]) < 0 ||
	    json_object_set_new(o, "minFreeSpace", json_integer((json_int_t)spec->min_free_space)) <
		    0 ||
	    json_object_set_new(o, "mountFlags", uc_json_from_strv(spec->mount_flags)) < 0 ||
	    json_object_set_new(o, "readOnly", json_boolean(spec->read_only)) < 0 ||
	    json_object_set_new(o, "initialise", json_boolean(spec->initialise)) < 0)
		return NULL;
	return take_ptr(&o);
}

static int check_keys(const json_t *object, const char *const *known, struct uc_err *err)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)object, key, value)
	{
		const char *const *k = known;

		while (*k && strcmp(*k, key) != 0)
			k++;
		if (!*k)
			return uc_fail_as(err, EINVAL, 0, "field `%s` is not known",
					  UC_PRINTABLE(key));
	}
	return 0;
}

/* Reads a string that is not empty and not endless, and copies it; absent ones leave NULL. */
static int read_str(const json_t *object, const char *key, bool required, char **ret,
		    struct uc_err *err)
{
	const char *s = NULL;
	int r;

	r = uc_json_get_str(object, key, required, &s, err);
	if (r < 0 || !s)
		return r;
	if (!*s || strlen(s) > TEXT_MAX)
		return uc_fail_as(err, EINVAL, 0, "field `%s` is %s", key,
				  *s ? "too long" : "empty");
	*ret = strdup(s);
	return *ret ? 0 : uc_fail(err, ENOMEM, "field `%s`", key);
}

static int check_path(const char *key, const char *path, struct uc_err *err)
{
	if (path && *path != '/')
		return uc_fail_as(err, EINVAL, 0, "field `%s`: `%s` is not an absolute path", key,
				  UC_PRINTABLE(path));
	return 0;
}

static int branch_from_json(const json_t *o, struct uc_branch_spec *b, struct uc_err *err)
{
	int r;

	if (!json_is_object(o))
		return uc_fail_as(err, EINVAL, 0, "not an object");
	r = check_keys(o, branch_keys, err);
	if (r < 0)
		return r;
	if ((r = read_str(o, "device", false, &b->device, err)) < 0 ||
	    (r = read_str(o, "directory", false, &b->directory, err)) < 0 ||
	    (r = read_str(o, "fsType", b->device != NULL, &b->fstype, err)) < 0 ||
	    (r = read_str(o, "uuid", b->device != NULL, &b->uuid, err)) < 0)
		return r;
	if (!b->device == !b->directory)
		return uc_fail_as(err, EINVAL, 0,
				  "either field `device` or field `directory` is needed");
	if (b->directory && (b->fstype || b->uuid))
		return uc_fail_as(err, EINVAL, 0, "fields `fsType` and `uuid` are for a device");
	r = check_path("device", b->device, err);
	return r < 0 ? r : check_path("directory", b->directory, err);
}

static const char *branch_source(const struct uc_branch_spec *b)
{
	return b->device ? b->device : b->directory;
}

static int check_distinct(const struct uc_union_spec *spec, struct uc_err *err)
{
	for (size_t i = 0; i < spec->n_branches; i++)
		for (size_t j = 0; j < i; j++)
			if (strcmp(branch_source(&spec->branches[i]),
				   branch_source(&spec->branches[j])) == 0)
				return uc_fail_as(err, EINVAL, 0,
						  "branches %zu and %zu are both `%s`", j, i,
						  UC_PRINTABLE(branch_source(&spec->branches[i])));
	return 0;
}

static int branches_from_json(const json_t *o, struct uc_union_spec *spec, struct uc_err *err)
{
	json_t *array = NULL;
	size_t n;
	int r;

	r = uc_json_get_array(o, "branches", true, &array, err);
	if (r < 0)
		return r;
	n = json_array_size(array);
	if (n < 1 || n > UC_BRANCHES_MAX)
		return uc_fail_as(err, EINVAL, 0, "field `branches` has %zu elements, not 1…%d", n,
				  UC_BRANCHES_MAX);
	spec->branches = calloc(n, sizeof(*spec->branches));
	if (!spec->branches)
		return uc_fail(err, ENOMEM, "field `branches`");
	spec->n_branches = n;
	for (size_t i = 0; i < n; i++) {
		r = branch_from_json(json_array_get(array, i), &spec->branches[i], err);
		if (r < 0)
			return uc_wrap(err, r, "branch %zu", i);
	}
	return check_distinct(spec, err);
}

static int scalars_from_json(const json_t *o, struct uc_union_spec *spec, struct uc_err *err)
{
	const char *policy = NULL;
	uint64_t version = 0;
	int r;

	r = uc_json_get_u64(o, "version", true, UINT32_MAX, &version, err);
	if (r < 0)
		return r;
	if (version != SPEC_VERSION)
		return uc_fail_as(err, EINVAL, 0, "field `version` is %llu; this program knows %d",
				  (unsigned long long)version, SPEC_VERSION);
	if ((r = read_str(o, "volumeId", true, &spec->volume_id, err)) < 0 ||
	    (r = uc_json_get_str(o, "policy", false, &policy, err)) < 0 ||
	    (policy && (r = uc_policy_parse(policy, &spec->policy, err)) < 0) ||
	    (r = uc_json_get_u64(o, "minFreeSpace", false, INT64_MAX, &spec->min_free_space, err)) <
		    0 ||
	    (r = uc_json_get_strv(o, "mountFlags", false, &spec->mount_flags, err)) < 0 ||
	    (r = uc_json_get_bool(o, "readOnly", false, &spec->read_only, err)) < 0)
		return r;
	return uc_json_get_bool(o, "initialise", false, &spec->initialise, err);
}

int uc_union_spec_from_json(const json_t *object, struct uc_union_spec *ret_spec,
			    struct uc_err *err)
{
	cleanup_union_spec struct uc_union_spec spec = { .policy = UC_POLICY_MFS };
	int r;

	r = check_keys(object, spec_keys, err);
	if (r < 0)
		return r;
	r = scalars_from_json(object, &spec, err);
	if (r < 0)
		return r;
	r = branches_from_json(object, &spec, err);
	if (r < 0)
		return r;
	*ret_spec = spec;
	spec = (struct uc_union_spec){ 0 };
	return 0;
}
