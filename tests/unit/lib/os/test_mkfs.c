/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/macros.h"
#include "lib/base/size.h"
#include "lib/os/blk.h"
#include "lib/os/mkfs.h"
#include "lib/os/proc.h"

#define UUID "00112233-4455-6677-8899-aabbccddeeff"

static char command[512];
static int result;
static bool for_real;

int __real_uc_proc_run(const struct uc_proc *proc, struct uc_buf *output, struct uc_err *err);
int __wrap_uc_proc_run(const struct uc_proc *proc, struct uc_buf *output, struct uc_err *err);
int __wrap_uc_proc_run(const struct uc_proc *proc, struct uc_buf *output, struct uc_err *err)
{
	size_t n = 0;

	if (for_real)
		return __real_uc_proc_run(proc, output, err);
	assert_null(output);
	assert_null(proc->input);
	assert_true(proc->timeout_ms > 0);
	for (const char *const *a = proc->argv; *a; a++)
		n += (size_t)snprintf(command + n, sizeof(command) - n, "%s ", *a);
	return result < 0 ? uc_fail_as(err, -result, 0, "the tool's last words") : 0;
}

static void each_filesystem_is_made_with_its_own_tool(void **state)
{
	static const struct {
		const char *fstype;
		bool force, keep;
		const char *command;
	} rows[] = {
		{ "ext4", false, false, "mkfs.ext4 -q -b 4096 -i 16384 -m 0 -U " UUID " /dev/x " },
		{ "ext4", true, false,
		  "mkfs.ext4 -q -b 4096 -i 16384 -m 0 -U " UUID " -F /dev/x " },
		{ "ext4", true, true,
		  "mkfs.ext4 -q -b 4096 -i 16384 -m 0 -U " UUID
		  " -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 -F /dev/x " },
		{ "xfs", false, false, "mkfs.xfs -q -m uuid=" UUID " /dev/x " },
		{ "xfs", true, true, "mkfs.xfs -q -K -f -m uuid=" UUID " /dev/x " },
		{ "btrfs", false, false, "mkfs.btrfs -q -U " UUID " /dev/x " },
		{ "btrfs", true, true, "mkfs.btrfs -q -K -f -U " UUID " /dev/x " },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_mkfs mkfs = {
			.device = "/dev/x",
			.fstype = rows[i].fstype,
			.uuid = UUID,
			.force = rows[i].force,
			.keep_allocated = rows[i].keep,
		};

		result = 0;
		assert_int_equal(uc_mkfs_run(&mkfs, NULL), 0);
		assert_string_equal(command, rows[i].command);
	}
}

static void a_tool_that_fails_is_reported_with_the_device(void **state)
{
	struct uc_mkfs mkfs = { .device = "/dev/x", .fstype = "xfs", .uuid = UUID };
	struct uc_err err = { 0 };

	(void)state;
	result = -ETIMEDOUT;
	assert_int_equal(uc_mkfs_run(&mkfs, &err), -ETIMEDOUT);
	assert_string_equal(err.msg, "make a filesystem on `/dev/x`: the tool's last words");
}

static void nothing_is_run_for_a_filesystem_that_is_not_made_here(void **state)
{
	static const char *const rows[] = { "", "ext3", "ext", "ext44", "EXT4", "vfat" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_mkfs mkfs = { .device = "/dev/x", .fstype = rows[i], .uuid = UUID };

		command[0] = '\0';
		result = 0;
		assert_int_equal(uc_mkfs_run(&mkfs, NULL), -EINVAL);
		assert_string_equal(command, "");
		assert_int_equal(uc_mkfs_min_size(rows[i]), 0);
	}
}

static void each_filesystem_has_its_smallest_size(void **state)
{
	(void)state;
	assert_int_equal(uc_mkfs_min_size("ext4"), 16 * UC_MIB);
	assert_int_equal(uc_mkfs_min_size("btrfs"), 128 * UC_MIB);
	assert_int_equal(uc_mkfs_min_size("xfs"), 300 * UC_MIB);
}

static void the_tools_make_it_on_a_device_of_the_smallest_size(void **state)
{
	static const char *const types[] = { "ext4", "xfs", "btrfs" };

	(void)state;
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		cleanup_fd int fd = open("image", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		struct uc_mkfs mkfs = {
			.device = "image",
			.fstype = types[i],
			.uuid = UUID,
			.keep_allocated = true,
		};
		struct uc_blk_content content;
		struct uc_err err = { 0 };

		assert_int_equal(ftruncate(fd, (off_t)uc_mkfs_min_size(types[i])), 0);
		for_real = true;
		if (uc_mkfs_run(&mkfs, &err) < 0)
			fail_msg("%s", err.msg);
		/* Again, over what is there: that takes force. */
		mkfs.force = true;
		if (uc_mkfs_run(&mkfs, &err) < 0)
			fail_msg("%s", err.msg);
		for_real = false;
		assert_int_equal(uc_blk_probe(fd, &content, NULL), 0);
		assert_int_equal(content.kind, UC_BLK_FILESYSTEM);
		assert_string_equal(content.type, types[i]);
		assert_string_equal(content.uuid, UUID);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_filesystem_is_made_with_its_own_tool),
		cmocka_unit_test(a_tool_that_fails_is_reported_with_the_device),
		cmocka_unit_test(nothing_is_run_for_a_filesystem_that_is_not_made_here),
		cmocka_unit_test(each_filesystem_has_its_smallest_size),
		cmocka_unit_test(the_tools_make_it_on_a_device_of_the_smallest_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
