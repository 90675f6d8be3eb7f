/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/scarce.h"
#include "tests/lib/unit.h"
#include "tests/lib/volume.h"
#include <errno.h>

#include "lib/base/macros.h"
#include "lib/vol/split.h"

static json_t *full_json(void)
{
	cleanup_volume struct uc_volume v = make_full_volume("v1");
	json_t *o = uc_volume_to_json(&v);

	assert_non_null(o);
	return o;
}

static int read_volume(const json_t *o, struct uc_err *err)
{
	struct uc_volume v = { .capacity = 99 };
	int r = uc_volume_from_json(o, &v, err);

	if (r == 0)
		uc_volume_done(&v);
	else
		assert_int_equal(v.capacity, 99);
	return r;
}

/* ------------------------------------------------------------------ round trip */

static void what_is_written_is_read_back(void **state)
{
	cleanup_volume struct uc_volume v = make_full_volume("v1"), r = { .n_branches = 0 };
	cleanup_json json_t *o = uc_volume_to_json(&v);
	struct uc_err err = { 0 };

	(void)state;
	if (uc_volume_from_json(o, &r, &err) < 0)
		fail_msg("%s", err.msg);
	assert_string_equal(r.id, "v1");
	assert_string_equal(r.name, v.name);
	assert_int_equal(r.phase, UC_VOLUME_READY);
	assert_int_equal(r.capacity, 2 << 24);
	assert_string_equal(r.fstype, "ext4");
	assert_int_equal(r.params.branches, 2);
	assert_int_equal(r.params.max_branch_size, 1 << 24);
	assert_int_equal(r.params.policy, UC_POLICY_EPMFS);
	assert_int_equal(r.params.min_free_space, 4096);
	assert_true(r.thin);
	assert_true(r.initialised);

	assert_int_equal(r.n_branches, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_string_equal(r.branches[i].pool, v.branches[i].pool);
		assert_string_equal(r.branches[i].uuid, v.branches[i].uuid);
		assert_int_equal(r.branches[i].size, 1 << 24);
		assert_int_equal(r.branches[i].format, v.branches[i].format);
		assert_int_equal(r.branches[i].file_dev, v.branches[i].file_dev);
		assert_int_equal(r.branches[i].file_ino, v.branches[i].file_ino);
	}

	assert_int_equal(r.n_attachments, 2);
	assert_string_equal(r.attachments[0].node_id, "node-1");
	assert_false(r.attachments[0].read_only);
	assert_int_equal(r.attachments[0].access_mode, 1);
	assert_string_equal(r.attachments[1].node_id, "node-2");
	assert_true(r.attachments[1].read_only);
	assert_int_equal(r.attachments[1].access_mode, 2);

	assert_int_equal(r.stage.phase, UC_STAGE_STAGED);
	assert_string_equal(r.stage.path, v.stage.path);
	assert_true(uc_strv_equal(r.stage.mount_flags, STRV("noatime", "data=journal")));
	assert_string_equal(r.stage.group, "1000");
	assert_int_equal(r.stage.access_mode, 7);
	assert_string_equal(r.stage.boot_id, "boot-1");

	assert_int_equal(r.n_publishes, 2);
	assert_string_equal(r.publishes[0].target, v.publishes[0].target);
	assert_true(r.publishes[0].read_only);
	assert_int_equal(r.publishes[0].access_mode, 7);
	assert_true(uc_strv_equal(r.publishes[0].mount_flags, STRV("noexec")));
	assert_true(r.publishes[0].done);
	assert_string_equal(r.publishes[1].target, v.publishes[1].target);
	assert_false(r.publishes[1].read_only);
	assert_false(r.publishes[1].done);
	assert_int_equal(uc_strv_len(r.publishes[1].mount_flags), 0);
}

static void every_phase_and_format_is_read_back(void **state)
{
	(void)state;
	for (int phase = 0; phase < UC_VOLUME_PHASE_COUNT; phase++)
		for (int stage = 0; stage < UC_STAGE_PHASE_COUNT; stage++)
			for (int format = 0; format < UC_FORMAT_COUNT; format++) {
				cleanup_volume struct uc_volume v = make_full_volume("v1"),
								r = { .n_branches = 0 };
				cleanup_json json_t *o = NULL;

				v.phase = (enum uc_volume_phase)phase;
				v.stage.phase = (enum uc_stage_phase)stage;
				v.branches[1].format = (enum uc_format)format;
				o = uc_volume_to_json(&v);
				assert_int_equal(uc_volume_from_json(o, &r, NULL), 0);
				assert_int_equal(r.phase, phase);
				assert_int_equal(r.stage.phase, stage);
				assert_int_equal(r.branches[1].format, format);
			}
}

static void the_largest_numbers_are_read_back(void **state)
{
	cleanup_volume struct uc_volume v = make_volume("v1", 1), r = { .n_branches = 0 };
	cleanup_json json_t *o = NULL;

	(void)state;
	v.capacity = v.branches[0].size = v.branches[0].file_dev = v.branches[0].file_ino =
		INT64_MAX;
	v.params.max_branch_size = v.params.min_free_space = INT64_MAX;
	o = uc_volume_to_json(&v);
	assert_int_equal(uc_volume_from_json(o, &r, NULL), 0);
	assert_int_equal(r.capacity, INT64_MAX);
	assert_int_equal(r.branches[0].size, INT64_MAX);
	assert_int_equal(r.branches[0].file_dev, INT64_MAX);
	assert_int_equal(r.branches[0].file_ino, INT64_MAX);
	assert_int_equal(r.params.max_branch_size, INT64_MAX);
	assert_int_equal(r.params.min_free_space, INT64_MAX);
}

static void an_inode_may_have_any_number(void **state)
{
	static const uint64_t rows[] = { (uint64_t)INT64_MAX + 1, UINT64_MAX };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_volume struct uc_volume v = make_full_volume("v1"), r = { .n_branches = 0 };
		cleanup_json json_t *o = NULL;

		v.branches[0].file_dev = v.branches[0].file_ino = rows[i];
		o = uc_volume_to_json(&v);
		assert_int_equal(uc_volume_from_json(o, &r, NULL), 0);
		assert_true(r.branches[0].file_dev == rows[i]);
		assert_true(r.branches[0].file_ino == rows[i]);
	}
}

static struct uc_volume make_mapped(enum uc_layout layout)
{
	struct uc_volume v = make_volume("v1", 3);

	v.params.layout = layout;
	v.params.stripe_size = 65536;
	for (size_t i = 0; i < 3; i++)
		v.branches[i].size = 64 << 20;
	assert_int_equal(uc_volume_set_segments(&v), 0);
	return v;
}

static void segments_are_laid_out_and_kept(void **state)
{
	for (int layout = UC_LAYOUT_LINEAR; layout < UC_LAYOUT_COUNT; layout++) {
		cleanup_volume struct uc_volume v = make_mapped((enum uc_layout)layout);
		cleanup_volume struct uc_volume r = { .n_branches = 0 };
		cleanup_json json_t *o = uc_volume_to_json(&v);
		uint64_t start = 0;

		(void)state;
		assert_int_equal(v.n_segments, layout == UC_LAYOUT_LINEAR ? 3 : 1);
		assert_false(uc_volume_is_union(&v));
		assert_int_equal(uc_volume_from_json(o, &r, NULL), 0);
		assert_int_equal(r.params.layout, layout);
		assert_int_equal(r.n_segments, v.n_segments);
		assert_memory_equal(r.segments, v.segments, v.n_segments * sizeof(*v.segments));
		for (size_t i = 0; i < r.n_segments; i++) {
			assert_int_equal(r.segments[i].start, start);
			start += r.segments[i].length;
		}
		assert_int_equal(start, 3 * (64 << 20));
	}
}

static void one_branch_and_a_union_have_no_segments(void **state)
{
	cleanup_volume struct uc_volume one = make_volume("v1", 1), many = make_volume("v1", 2);

	(void)state;
	one.params.layout = UC_LAYOUT_STRIPED;
	assert_int_equal(uc_volume_set_segments(&one), 0);
	assert_int_equal(one.n_segments, 0);
	assert_false(uc_volume_is_union(&one));
	assert_int_equal(uc_volume_set_segments(&many), 0);
	assert_int_equal(many.n_segments, 0);
	assert_true(uc_volume_is_union(&many));
}

/* What is not within the branches is never made a table of. */
static void segments_that_lead_elsewhere_are_refused(void **state)
{
	static const struct {
		enum uc_layout layout;
		const char *key;
		json_int_t value;
	} rows[] = {
		{ UC_LAYOUT_LINEAR, "start", 4096 },
		{ UC_LAYOUT_LINEAR, "length", 0 },
		{ UC_LAYOUT_LINEAR, "length", (64 << 20) + 4096 },
		{ UC_LAYOUT_LINEAR, "length", 512 },
		{ UC_LAYOUT_LINEAR, "length", INT64_MAX },
		{ UC_LAYOUT_LINEAR, "branch", 3 },
		{ UC_LAYOUT_LINEAR, "branches", 0 },
		{ UC_LAYOUT_LINEAR, "offset", 4096 },
		{ UC_LAYOUT_LINEAR, "offset", 1 },
		{ UC_LAYOUT_LINEAR, "offset", INT64_MAX },
		{ UC_LAYOUT_STRIPED, "branch", 1 },
		{ UC_LAYOUT_STRIPED, "branches", 4 },
		{ UC_LAYOUT_STRIPED, "branches", 2 },
		{ UC_LAYOUT_STRIPED, "stripeSize", 0 },
		{ UC_LAYOUT_STRIPED, "stripeSize", 12288 },
		{ UC_LAYOUT_STRIPED, "length", 3 * (32 << 20) + 3 * 4096 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_volume struct uc_volume v = make_mapped(rows[i].layout), r = { 0 };
		cleanup_json json_t *o = uc_volume_to_json(&v);
		json_t *segment = json_array_get(json_object_get(o, "segments"), 0);
		struct uc_err err = { 0 };

		json_object_set_new(segment, rows[i].key, json_integer(rows[i].value));
		if (uc_volume_from_json(o, &r, &err) != -EINVAL)
			fail_msg("row %zu (%s) is accepted", i, rows[i].key);
		assert_non_null(strstr(err.msg, "segments["));
	}
}

static void a_volume_that_is_not_staged_needs_no_stage(void **state)
{
	cleanup_volume struct uc_volume v = make_volume("v1", 1), r = { .n_branches = 0 };
	cleanup_json json_t *o = uc_volume_to_json(&v);

	(void)state;
	assert_null(json_object_get(json_object_get(o, "stage"), "path"));
	assert_int_equal(uc_volume_from_json(o, &r, NULL), 0);
	assert_int_equal(r.stage.phase, UC_STAGE_NONE);
	assert_null(r.stage.path);
	assert_null(r.stage.group);
	assert_null(r.stage.boot_id);
}

/* -------------------------------------------------------------------- strictness */

/* Values of each type, to be put in the place of others. */
static const char wrong_values[] =
	"{\"object\":{},\"array\":[1],\"string\":\"\\u0001?\",\"integer\":-7,"
	"\"real\":1.5,\"true\":true,\"null\":null}";

static bool is_optional(const char *path)
{
	static const char *const optional[] = {
		"stage.group",
		"params.layout",
		"params.stripeSize",
		"segments",
	};

	for (size_t i = 0; i < ARRAY_SIZE(optional); i++)
		if (strcmp(path, optional[i]) == 0)
			return true;
	return false;
}

/* The error names the field, and the element or object that it is in. */
static void check_named(const char *path, const struct uc_err *err)
{
	const char *key = strrchr(path, '.') ? strrchr(path, '.') + 1 : path;
	char where[64];

	if (!strstr(err->msg, key))
		fail_msg("%s: the error is: %s", path, err->msg);
	if (key == path)
		return;
	snprintf(where, sizeof(where), "%.*s: ", (int)(key - path - 1), path);
	if (strncmp(err->msg, where, strlen(where)) != 0)
		fail_msg("%s: the error is: %s", path, err->msg);
}

/* Takes each field of @o away, and replaces it by what it must not be. */
static unsigned spoil(json_t *root, json_t *o, const char *prefix)
{
	json_t *wrong = json_loads(wrong_values, 0, NULL), *value, *bad;
	cleanup_strv char **keys = NULL;
	const char *key, *type;
	unsigned n = 0;

	json_object_foreach(o, key, value) uc_strv_push(&keys, key);
	for (char **k = keys; *k; k++) {
		char path[128];

		key = *k;
		snprintf(path, sizeof(path), "%s%s", prefix, key);
		value = json_incref(json_object_get(o, key));
		json_object_del(o, key);
		{
			struct uc_err err = { 0 };
			int r = read_volume(root, &err);

			assert_int_equal(r, is_optional(path) ? 0 : -EINVAL);
			if (r < 0)
				check_named(path, &err);
		}
		json_object_foreach(wrong, type, bad)
		{
			struct uc_err err = { 0 };
			int r;

			if (json_typeof(bad) == json_typeof(value) && !json_is_integer(bad) &&
			    !json_is_string(bad) && !json_is_array(bad))
				continue;
			if (json_is_boolean(bad) && json_is_boolean(value))
				continue;
			/* Any text is a name, a path, an id of a node or of a boot. */
			if (json_is_string(bad) && json_is_string(value) &&
			    (strstr("name", key) ||
			     strstr("stage.path stage.group stage.bootId fsType", path) ||
			     strcmp(key, "nodeId") == 0 || strcmp(key, "target") == 0))
				continue;
			json_object_set(o, key, bad);
			r = read_volume(root, &err);
			if (r == 0 && !(is_optional(path) && json_is_null(bad)))
				fail_msg("%s may be %s", path, type);
			if (r < 0) {
				assert_int_equal(r, -EINVAL);
				if (!(json_is_array(bad) && json_is_array(value)))
					check_named(path, &err);
			}
			n++;
		}
		json_object_set_new(o, key, value);
		assert_int_equal(read_volume(root, NULL), 0);
	}
	json_decref(wrong);
	return n;
}

static void every_field_that_is_missing_or_wrong_is_named(void **state)
{
	static const struct {
		const char *key; /* of an object, or of an array whose second element is taken */
		const char *prefix;
	} rows[] = {
		{ NULL, "" },
		{ "params", "params." },
		{ "stage", "stage." },
		{ "branches", "branches[1]." },
		{ "attachments", "attachments[1]." },
		{ "publishes", "publishes[1]." },
	};
	unsigned n = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_json json_t *root = full_json();
		json_t *o = rows[i].key ? json_object_get(root, rows[i].key) : root;

		if (json_is_array(o))
			o = json_array_get(o, 1);
		n += spoil(root, o, rows[i].prefix);
	}
	assert_true(n > 150);
}

static void values_that_mean_nothing_are_refused(void **state)
{
	static const struct {
		const char *path, *value, *named;
	} rows[] = {
		{ "version", "0", "`version` is 0, not 1" },
		{ "version", "2", "`version` is 2, not 1" }, /* a later driver's */
		{ "id", "\"..\"", "`id` is `..`" },
		{ "id", "\"a/b\"", "`id` is `a/b`" },
		{ "id", "\"\"", "`id` is ``" },
		{ "phase", "\"gone\"", "`phase` is `gone`" },
		{ "phase", "\"\"", "`phase` is ``" },
		{ "fsType", "\"0123456789abcdef\"", "`fsType` is `0123456789abcdef`" },
		{ "capacity", "-1", "`capacity` is -1" },
		{ "branches", "[]", "`branches` has 0" },
		{ "params.branches", "1025", "`branches` is 1025" },
		{ "params.policy", "\"rand\"", "`rand`" },
		{ "stage.phase", "\"STAGED\"", "`phase` is `STAGED`" },
		{ "stage.accessMode", "2147483648", "`accessMode` is 2147483648" },
		{ "stage.mountFlags", "[1]", "`mountFlags`[0]" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_json json_t *root = full_json();
		const char *dot = strchr(rows[i].path, '.');
		json_t *o = root;
		struct uc_err err = { 0 };
		char parent[32];

		if (dot) {
			snprintf(parent, sizeof(parent), "%.*s", (int)(dot - rows[i].path),
				 rows[i].path);
			o = json_object_get(root, parent);
		}
		json_object_set_new(o, dot ? dot + 1 : rows[i].path,
				    json_loads(rows[i].value, JSON_DECODE_ANY, NULL));
		assert_int_equal(read_volume(root, &err), -EINVAL);
		if (!strstr(err.msg, rows[i].named))
			fail_msg("`%s` lacks `%s`", err.msg, rows[i].named);
	}
}

static void values_of_a_branch_that_mean_nothing_are_refused(void **state)
{
	static const struct {
		const char *key, *value, *named;
	} rows[] = {
		{ "pool", "\"x\"", "branches[1]: field `pool` is `x`, not a UUID" },
		{ "uuid", "\"00112233-4455-6677-8899-AABBCCDDEEFF\"", "`uuid`" },
		{ "format", "\"maybe\"", "`format` is `maybe`" },
		{ "size", "-1", "`size` is -1" },
		{ "fileIno", "-1", "`fileIno` is -1" },
		{ "fileIno", "\"-1\"", "`fileIno` is `-1`, not a number" },
		{ "fileIno", "\"\"", "`fileIno` is ``, not a number" },
		{ "fileDev", "\"18446744073709551616\"", "not a number" },
		{ "fileDev", "1.5", "`fileDev` is" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_json json_t *root = full_json();
		struct uc_err err = { 0 };

		json_object_set_new(json_array_get(json_object_get(root, "branches"), 1),
				    rows[i].key, json_loads(rows[i].value, JSON_DECODE_ANY, NULL));
		assert_int_equal(read_volume(root, &err), -EINVAL);
		assert_non_null(strstr(err.msg, rows[i].named));
	}
}

static void there_are_no_more_branches_than_the_most(void **state)
{
	cleanup_json json_t *root = full_json();
	json_t *array = json_object_get(root, "branches");
	struct uc_err err = { 0 };

	(void)state;
	while (json_array_size(array) < UC_BRANCHES_MAX)
		json_array_append(array, json_array_get(array, 0));
	assert_int_equal(read_volume(root, NULL), 0);
	json_array_append(array, json_array_get(array, 0));
	assert_int_equal(read_volume(root, &err), -EINVAL);
	assert_string_equal(err.msg, "field `branches` has 1025 elements");
}

static void what_is_staged_says_where_and_by_which_kernel(void **state)
{
	static const char *const keys[] = { "path", "bootId" };

	(void)state;
	for (int phase = 0; phase < UC_STAGE_PHASE_COUNT; phase++)
		for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
			cleanup_json json_t *root = full_json();
			json_t *stage = json_object_get(root, "stage");

			json_object_set_new(
				stage, "phase",
				json_string(uc_stage_phase_to_str((enum uc_stage_phase)phase)));
			json_object_del(stage, keys[i]);
			assert_int_equal(read_volume(root, NULL),
					 phase == UC_STAGE_NONE ? 0 : -EINVAL);
		}
}

static void what_is_no_object_is_no_volume(void **state)
{
	cleanup_json json_t *array = json_array();

	(void)state;
	assert_int_equal(read_volume(array, NULL), -EINVAL);
}

static void phases_have_names(void **state)
{
	(void)state;
	assert_string_equal(uc_volume_phase_to_str(UC_VOLUME_CREATING), "creating");
	assert_string_equal(uc_volume_phase_to_str(UC_VOLUME_READY), "ready");
	assert_string_equal(uc_volume_phase_to_str(UC_VOLUME_DELETING), "deleting");
	assert_string_equal(uc_stage_phase_to_str(UC_STAGE_NONE), "none");
	assert_string_equal(uc_stage_phase_to_str(UC_STAGE_STAGING), "staging");
	assert_string_equal(uc_stage_phase_to_str(UC_STAGE_STAGED), "staged");
	assert_string_equal(uc_stage_phase_to_str(UC_STAGE_UNSTAGING), "unstaging");
}

/* ------------------------------------------------------- attachments, publishes */

static void attachments_are_found_by_node_and_removed_one_by_one(void **state)
{
	cleanup_volume struct uc_volume v = make_volume("v1", 1);

	(void)state;
	assert_null(uc_volume_find_attachment(&v, "a"));
	assert_int_equal(uc_volume_add_attachment(&v, "a", false, 1), 0);
	assert_int_equal(uc_volume_add_attachment(&v, "b", true, 2), 0);
	assert_int_equal(uc_volume_add_attachment(&v, "c", false, 3), 0);
	assert_ptr_equal(uc_volume_find_attachment(&v, "b"), &v.attachments[1]);
	assert_null(uc_volume_find_attachment(&v, "B"));
	uc_volume_remove_attachment(&v, uc_volume_find_attachment(&v, "a"));
	assert_int_equal(v.n_attachments, 2);
	assert_null(uc_volume_find_attachment(&v, "a"));
	assert_int_equal(uc_volume_find_attachment(&v, "b")->access_mode, 2);
	assert_int_equal(uc_volume_find_attachment(&v, "c")->access_mode, 3);
	uc_volume_remove_attachment(&v, uc_volume_find_attachment(&v, "b"));
	uc_volume_remove_attachment(&v, uc_volume_find_attachment(&v, "c"));
	assert_int_equal(v.n_attachments, 0);
}

static void publishes_are_found_by_target_and_removed_one_by_one(void **state)
{
	cleanup_volume struct uc_volume v = make_volume("v1", 1);
	struct uc_publish *p;

	(void)state;
	assert_null(uc_volume_find_publish(&v, "/a"));
	p = uc_volume_add_publish(&v, "/a");
	assert_false(p->done);
	assert_false(p->read_only);
	assert_null(p->mount_flags);
	assert_int_equal(uc_strv_push(&p->mount_flags, "x"), 0);
	assert_non_null(uc_volume_add_publish(&v, "/b"));
	assert_non_null(uc_volume_add_publish(&v, "/c"));
	uc_volume_remove_publish(&v, uc_volume_find_publish(&v, "/a"));
	assert_int_equal(v.n_publishes, 2);
	assert_null(uc_volume_find_publish(&v, "/a"));
	assert_string_equal(uc_volume_find_publish(&v, "/b")->target, "/b");
	assert_string_equal(uc_volume_find_publish(&v, "/c")->target, "/c");
	uc_volume_remove_publish(&v, uc_volume_find_publish(&v, "/c"));
	uc_volume_remove_publish(&v, uc_volume_find_publish(&v, "/b"));
	assert_int_equal(v.n_publishes, 0);
}

static void a_released_volume_has_nothing(void **state)
{
	struct uc_volume v = make_full_volume("v1");

	(void)state;
	uc_stage_done(&v.stage);
	assert_int_equal(v.stage.phase, UC_STAGE_NONE);
	assert_null(v.stage.path);
	assert_null(v.stage.mount_flags);
	uc_volume_done(&v);
	assert_null(v.name);
	assert_int_equal(v.n_branches + v.n_attachments + v.n_publishes, 0);
	uc_volume_done(&v);
}

/* ---------------------------------------------------------------------- memory */

static void a_volume_is_read_whole_or_not_at_all(void **state)
{
	cleanup_json json_t *o = full_json();
	unsigned n;

	(void)state;
	for (n = 0; n < 1000; n++) {
		struct uc_err err = { 0 };
		int r;

		allocations_left = n;
		r = read_volume(o, &err);
		allocations_left = UINT_MAX;
		if (r == 0)
			break;
		assert_int_equal(r, -ENOMEM);
		assert_non_null(strstr(err.msg, "Cannot allocate memory"));
	}
	assert_in_range(n, 15, 999);
}

static void a_volume_is_written_whole_or_not_at_all(void **state)
{
	cleanup_volume struct uc_volume v = make_full_volume("v1");
	cleanup_json json_t *whole = uc_volume_to_json(&v);
	unsigned n;

	(void)state;
	json_set_alloc_funcs(scarce_malloc, free);
	for (n = 0; n < 1000; n++) {
		json_t *o;

		allocations_left = n;
		o = uc_volume_to_json(&v);
		allocations_left = UINT_MAX;
		if (!o)
			continue;
		assert_true(json_equal(o, whole));
		json_decref(o);
		break;
	}
	json_set_alloc_funcs(malloc, free);
	assert_in_range(n, 50, 999);
}

static void an_entry_is_added_whole_or_not_at_all(void **state)
{
	cleanup_volume struct uc_volume v = make_full_volume("v1");

	(void)state;
	for (unsigned n = 0; n < 2; n++) {
		allocations_left = n;
		assert_int_equal(uc_volume_add_attachment(&v, "node-3", false, 1), -ENOMEM);
		allocations_left = n;
		assert_null(uc_volume_add_publish(&v, "/x"));
		allocations_left = UINT_MAX;
		assert_int_equal(v.n_attachments, 2);
		assert_int_equal(v.n_publishes, 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read_back),
		cmocka_unit_test(an_inode_may_have_any_number),
		cmocka_unit_test(every_phase_and_format_is_read_back),
		cmocka_unit_test(the_largest_numbers_are_read_back),
		cmocka_unit_test(segments_are_laid_out_and_kept),
		cmocka_unit_test(one_branch_and_a_union_have_no_segments),
		cmocka_unit_test(segments_that_lead_elsewhere_are_refused),
		cmocka_unit_test(a_volume_that_is_not_staged_needs_no_stage),
		cmocka_unit_test(every_field_that_is_missing_or_wrong_is_named),
		cmocka_unit_test(values_that_mean_nothing_are_refused),
		cmocka_unit_test(values_of_a_branch_that_mean_nothing_are_refused),
		cmocka_unit_test(there_are_no_more_branches_than_the_most),
		cmocka_unit_test(what_is_staged_says_where_and_by_which_kernel),
		cmocka_unit_test(what_is_no_object_is_no_volume),
		cmocka_unit_test(phases_have_names),
		cmocka_unit_test(attachments_are_found_by_node_and_removed_one_by_one),
		cmocka_unit_test(publishes_are_found_by_target_and_removed_one_by_one),
		cmocka_unit_test(a_released_volume_has_nothing),
		cmocka_unit_test(a_volume_is_read_whole_or_not_at_all),
		cmocka_unit_test(a_volume_is_written_whole_or_not_at_all),
		cmocka_unit_test(an_entry_is_added_whole_or_not_at_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
