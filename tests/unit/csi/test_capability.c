/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/request.h"

#include "csi/capability.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/rpc/status.h"

static int set_up(void **state)
{
	(void)state;
	capability_init();
	return 0;
}

static void check_refused(const char *reason)
{
	struct csi_capability c = { .fstype = "untouched" };
	struct uc_err err = { 0 };

	assert_int_equal(csi_capability_parse(&capability, "field", &c, &err), -EINVAL);
	assert_int_equal(err.status, UC_GRPC_INVALID_ARGUMENT);
	assert_int_equal(strncmp(err.msg, "field: ", 7), 0);
	if (!strstr(err.msg, reason))
		fail_msg("`%s` lacks `%s`", err.msg, reason);
	assert_string_equal(c.fstype, "untouched");
	assert_null(c.mount_flags);
}

static void check_accepted(void)
{
	struct csi_capability c = { .fstype = NULL };
	struct uc_err err = { 0 };

	if (csi_capability_parse(&capability, "field", &c, &err) < 0)
		fail_msg("%s", err.msg);
	csi_capability_done(&c);
}

static void a_capability_is_taken_over(void **state)
{
	char *flags[] = { text("noatime"), text("data=journal,discard") };
	struct csi_capability c = { .fstype = NULL };

	(void)state;
	mount_volume.fs_type = text("xfs");
	mount_volume.mount_flags = flags;
	mount_volume.n_mount_flags = 2;
	mount_volume.volume_mount_group = text("1000");
	assert_int_equal(csi_capability_parse(&capability, "field", &c, NULL), 0);
	assert_string_equal(c.fstype, "xfs");
	assert_true(uc_strv_equal(c.mount_flags, STRV("noatime", "data=journal,discard")));
	assert_string_equal(c.group, "1000");
	assert_int_equal(c.access_mode, MODE(SINGLE_NODE_WRITER));
	csi_capability_done(&c);
	assert_null(c.mount_flags);
	csi_capability_done(&c);
}

static void what_the_request_leaves_open_is_empty(void **state)
{
	struct csi_capability c = { .fstype = NULL };

	(void)state;
	assert_int_equal(csi_capability_parse(&capability, "field", &c, NULL), 0);
	assert_string_equal(c.fstype, "");
	assert_string_equal(c.group, "");
	assert_int_equal(uc_strv_len(c.mount_flags), 0);
	csi_capability_done(&c);
}

static void a_missing_capability_is_refused_by_its_field(void **state)
{
	struct csi_capability c = { .fstype = "untouched" };
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(csi_capability_parse(NULL, "volume_capability", &c, &err), -EINVAL);
	assert_string_equal(err.msg, "volume_capability is missing");
	assert_int_equal(err.status, UC_GRPC_INVALID_ARGUMENT);
}

static void modes_of_one_node_are_accepted_and_all_others_refused_by_name(void **state)
{
	static const struct {
		int mode;
		const char *refused; /* NULL: accepted */
	} rows[] = {
		{ MODE(SINGLE_NODE_WRITER), NULL },
		{ MODE(SINGLE_NODE_READER_ONLY), NULL },
		{ MODE(SINGLE_NODE_SINGLE_WRITER), NULL },
		{ MODE(SINGLE_NODE_MULTI_WRITER), NULL },
		{ MODE(UNKNOWN), "UNKNOWN (0)" },
		{ MODE(MULTI_NODE_READER_ONLY), "MULTI_NODE_READER_ONLY (3)" },
		{ MODE(MULTI_NODE_SINGLE_WRITER), "MULTI_NODE_SINGLE_WRITER (4)" },
		{ MODE(MULTI_NODE_MULTI_WRITER), "MULTI_NODE_MULTI_WRITER (5)" },
		{ 99, "UNKNOWN (99)" },
		{ -1, "UNKNOWN (-1)" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		access_mode.mode = rows[i].mode;
		if (rows[i].refused)
			check_refused(rows[i].refused);
		else
			check_accepted();
	}
	capability.access_mode = NULL;
	check_refused("access_mode is missing");
}

static void block_volumes_and_none_at_all_are_refused(void **state)
{
	Csi__V1__VolumeCapability__BlockVolume block;

	(void)state;
	csi__v1__volume_capability__block_volume__init(&block);
	capability.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK;
	capability.block = &block;
	check_refused("block is not supported");
	capability.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE__NOT_SET;
	capability.block = NULL;
	check_refused("access_type is missing");
}

static void only_filesystems_that_are_made_here_are_accepted(void **state)
{
	static const char *const good[] = { "", "ext4", "xfs", "btrfs" };
	static const char *const bad[] = { "ext3", "EXT4", "vfat", "ext4 ", "../ext4", "ext4\n" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		mount_volume.fs_type = text(good[i]);
		check_accepted();
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char reason[64];

		snprintf(reason, sizeof(reason), "fs_type `%s`", UC_PRINTABLE(bad[i]));
		mount_volume.fs_type = text(bad[i]);
		check_refused(reason);
	}
}

static void only_a_number_is_a_group(void **state)
{
	static const char *const good[] = { "", "0", "1000", "4294967294" };
	static const char *const bad[] = {
		"root", "-1", "4294967295", "4294967296", " 1", "1000x"
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		mount_volume.volume_mount_group = text(good[i]);
		check_accepted();
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char reason[64];

		snprintf(reason, sizeof(reason), "volume_mount_group `%s`", bad[i]);
		mount_volume.volume_mount_group = text(bad[i]);
		check_refused(reason);
	}
}

static void mount_flags_that_are_not_allowed_are_refused_by_name(void **state)
{
	static const char *const bad[] = { "bind", "_netdev", "x-foo", "loop", "remount,ro" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char *flags[] = { text("noatime"), text(bad[i]) };

		mount_volume.mount_flags = flags;
		mount_volume.n_mount_flags = 2;
		check_refused("mount_flags: mount option `");
	}
}

static void access_modes_have_the_names_of_csi(void **state)
{
	(void)state;
	assert_string_equal(csi_access_mode_to_str(MODE(SINGLE_NODE_WRITER)), "SINGLE_NODE_WRITER");
	assert_string_equal(csi_access_mode_to_str(MODE(SINGLE_NODE_MULTI_WRITER)),
			    "SINGLE_NODE_MULTI_WRITER");
	assert_string_equal(csi_access_mode_to_str(1234), "UNKNOWN");
}

static void only_the_readers_mode_is_read_only(void **state)
{
	(void)state;
	for (int mode = 0; mode < 10; mode++)
		assert_int_equal(csi_access_mode_is_read_only(mode),
				 mode == MODE(SINGLE_NODE_READER_ONLY));
}

int main(void)
{
#define T(test) cmocka_unit_test_setup(test, set_up)
	const struct CMUnitTest tests[] = {
		T(a_capability_is_taken_over),
		T(what_the_request_leaves_open_is_empty),
		T(a_missing_capability_is_refused_by_its_field),
		T(modes_of_one_node_are_accepted_and_all_others_refused_by_name),
		T(block_volumes_and_none_at_all_are_refused),
		T(only_filesystems_that_are_made_here_are_accepted),
		T(only_a_number_is_a_group),
		T(mount_flags_that_are_not_allowed_are_refused_by_name),
		T(access_modes_have_the_names_of_csi),
		T(only_the_readers_mode_is_read_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
