/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"

#include "tests/lib/local.h"
#include "tests/lib/steps_sync.h"

#include "csi/status.h"
#include "lib/base/macros.h"
#include "lib/os/blk.h"
#include "lib/os/mkfs.h"

/* ------------------------------------------------------------- what changes disks */

static unsigned reserved; /* calls of fallocate() */

int __wrap_fallocate64(int fd, int mode, off_t offset, off_t n);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t n)
{
	(void)fd;
	assert_int_equal(mode, 0);
	assert_int_equal(offset, 0);
	assert_int_equal(n, 1 << 24);
	reserved++;
	return fails() ? -1 : 0;
}

/* ------------------------------------------------ the device: a file of this test */

const char *__wrap_uc_loopdev_path(const struct uc_loopdev *loop, char *to);
const char *__wrap_uc_loopdev_path(const struct uc_loopdev *loop, char *to)
{
	snprintf(to, UC_LOOPDEV_PATH_SIZE, "device%d", loop->number);
	return to;
}

static struct uc_blk_content content; /* what is on it */
static int probe_result;
static struct uc_mkfs last_mkfs;
static char last_uuid[64];
static unsigned mkfs_calls;
static enum uc_format format_at_mkfs; /* as the state on disk had it */

int __wrap_uc_blk_probe(int fd, struct uc_blk_content *ret_content, struct uc_err *err);
int __wrap_uc_blk_probe(int fd, struct uc_blk_content *ret_content, struct uc_err *err)
{
	assert_true(fcntl(fd, F_GETFD) >= 0);
	if (probe_result < 0)
		return uc_fail(err, -probe_result, "probe");
	*ret_content = content;
	return 0;
}

int __wrap_uc_mkfs_run(const struct uc_mkfs *mkfs, struct uc_err *err);
int __wrap_uc_mkfs_run(const struct uc_mkfs *mkfs, struct uc_err *err)
{
	cleanup_volume struct uc_volume v = local_load("v1");

	mkfs_calls++;
	last_mkfs = *mkfs;
	snprintf(last_uuid, sizeof(last_uuid), "%s", mkfs->uuid);
	assert_string_equal(mkfs->device, "device7");
	assert_string_equal(mkfs->fstype, "ext4");
	format_at_mkfs = v.branches[1].format;
	if (fails())
		return uc_fail(err, EIO, "mkfs");
	content.kind = UC_BLK_FILESYSTEM;
	strcpy(content.type, "ext4");
	strcpy(content.uuid, last_uuid);
	return 0;
}

static int loop_result;
static unsigned forbidden;

int __wrap_uc_loopdev_forbid_discard(const struct uc_loopdev *loop, struct uc_err *err);
int __wrap_uc_loopdev_forbid_discard(const struct uc_loopdev *loop, struct uc_err *err)
{
	(void)loop;
	forbidden++;
	return fails() ? uc_fail(err, EIO, "forbid") : 0;
}

static dev_t loop_dev; /* of the file behind the device, and its inode; 0: none */
static ino_t loop_ino;
static char loop_name[128];

int __wrap_uc_loopdev_attach(int fd, const char *name, struct uc_loopdev *ret_loop,
			     struct uc_err *err);
int __wrap_uc_loopdev_attach(int fd, const char *name, struct uc_loopdev *ret_loop,
			     struct uc_err *err)
{
	struct stat st;

	if (loop_result < 0)
		return uc_fail(err, -loop_result, "attach");
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
	assert_int_equal(fstat(fd, &st), 0);
	loop_dev = st.st_dev;
	loop_ino = st.st_ino;
	snprintf(loop_name, sizeof(loop_name), "%s", name);
	*ret_loop = (struct uc_loopdev){ .number = 7, .dev = loop_dev, .ino = loop_ino };
	return 0;
}

int __wrap_uc_loopdev_find(dev_t dev, ino_t ino, const char *name, struct uc_loopdev *ret_loop,
			   struct uc_err *err);
int __wrap_uc_loopdev_find(dev_t dev, ino_t ino, const char *name, struct uc_loopdev *ret_loop,
			   struct uc_err *err)
{
	(void)name;
	(void)err;
	if (!loop_ino || dev != loop_dev || ino != loop_ino)
		return -ENOENT;
	*ret_loop = (struct uc_loopdev){ .number = 7, .dev = loop_dev, .ino = loop_ino };
	return 0;
}

/* Each test has volume v1 of two branches, whose second one is looked at. */
static const struct uc_loopdev loop = { .number = 7 };
static struct uc_volume volume;

static int set_up(void **state)
{
	(void)state;
	probe_result = loop_result = 0;
	mkfs_calls = reserved = forbidden = 0;
	loop_ino = 0;
	content = (struct uc_blk_content){ .kind = UC_BLK_BLANK };
	local_begin(true);
	local_have("v1", 2);
	volume = local_load("v1");
	write_file("device7", "");
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	uc_volume_done(&volume);
	local_end();
	return 0;
}

static int format(struct uc_err *err)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	struct csi_op op = local_op("v1");

	assert_int_equal(uc_volume_lock(&store, "v1", false, &lock, NULL), 0);
	return csi_branch_format(local, &op, &lock, &volume, 1, UC_LOOPDEV_PATH(&loop), err);
}

static enum uc_format stored_format(void)
{
	cleanup_volume struct uc_volume v = local_load("v1");

	return v.branches[1].format;
}

static void store_format(enum uc_format f)
{
	struct uc_volume v = local_load("v1");

	v.branches[1].format = volume.branches[1].format = f;
	local_store(&v);
}

/* ---------------------------------------------------------------- what is formatted */

#define OURS "our UUID"

static void the_table_of_what_is_formatted(void **state)
{
	static const struct {
		enum uc_format recorded;
		enum uc_blk_kind kind;
		const char *type, *uuid;
		int result; /* 0: nothing is done; 1: formatted; 2: also over what is there;
			       -1: refused */
	} rows[] = {
		{ UC_FORMAT_NEVER, UC_BLK_BLANK, "", "", 1 },
		{ UC_FORMAT_NEVER, UC_BLK_FILESYSTEM, "ext4", OURS, -1 },
		{ UC_FORMAT_NEVER, UC_BLK_FILESYSTEM, "ext4", "another", -1 },
		{ UC_FORMAT_NEVER, UC_BLK_FILESYSTEM, "vfat", "", -1 },
		{ UC_FORMAT_NEVER, UC_BLK_OTHER, "LVM2_member", "", -1 },
		{ UC_FORMAT_NEVER, UC_BLK_OTHER, "dos", "", -1 },
		{ UC_FORMAT_NEVER, UC_BLK_AMBIVALENT, "", "", -1 },

		{ UC_FORMAT_STARTED, UC_BLK_BLANK, "", "", 2 },
		{ UC_FORMAT_STARTED, UC_BLK_FILESYSTEM, "ext4", OURS, 2 },
		{ UC_FORMAT_STARTED, UC_BLK_FILESYSTEM, "ext4", "another", -1 },
		{ UC_FORMAT_STARTED, UC_BLK_FILESYSTEM, "xfs", "", -1 },
		{ UC_FORMAT_STARTED, UC_BLK_OTHER, "crypto_LUKS", OURS, -1 },
		{ UC_FORMAT_STARTED, UC_BLK_AMBIVALENT, "", OURS, -1 },

		{ UC_FORMAT_DONE, UC_BLK_FILESYSTEM, "ext4", OURS, 0 },
		{ UC_FORMAT_DONE, UC_BLK_FILESYSTEM, "xfs", OURS, -1 },
		{ UC_FORMAT_DONE, UC_BLK_FILESYSTEM, "ext4", "another", -1 },
		{ UC_FORMAT_DONE, UC_BLK_BLANK, "", "", -1 },
		{ UC_FORMAT_DONE, UC_BLK_OTHER, "ext4", OURS, -1 },
		{ UC_FORMAT_DONE, UC_BLK_AMBIVALENT, "ext4", OURS, -1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_err err = { 0 };
		int r;

		store_format(rows[i].recorded);
		content = (struct uc_blk_content){ .kind = rows[i].kind };
		strcpy(content.type, rows[i].type);
		strcpy(content.uuid,
		       strcmp(rows[i].uuid, OURS) == 0 ? volume.branches[1].uuid : rows[i].uuid);
		mkfs_calls = 0;
		r = format(&err);
		if ((r < 0) != (rows[i].result < 0) || mkfs_calls != (rows[i].result > 0))
			fail_msg("row %zu: %d, formatted %u times: %s", i, r, mkfs_calls, err.msg);
		if (rows[i].result < 0) {
			assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
			assert_int_equal(stored_format(), rows[i].recorded);
			assert_non_null(strstr(err.msg, "branch 1"));
			if (*rows[i].type && rows[i].kind != UC_BLK_AMBIVALENT)
				assert_non_null(strstr(err.msg, rows[i].type));
		} else {
			assert_int_equal(stored_format(), UC_FORMAT_DONE);
			assert_int_equal(volume.branches[1].format, UC_FORMAT_DONE);
		}
		if (rows[i].result > 0) {
			assert_int_equal(last_mkfs.force, rows[i].result == 2);
			assert_int_equal(format_at_mkfs, UC_FORMAT_STARTED);
			assert_string_equal(last_uuid, volume.branches[1].uuid);
		}
	}
}

static void a_device_that_cannot_be_read_is_not_blank(void **state)
{
	(void)state;
	for (int f = 0; f < UC_FORMAT_COUNT; f++) {
		store_format((enum uc_format)f);
		probe_result = -EIO;
		assert_int_equal(format(NULL), -EIO);
		assert_int_equal(stored_format(), f);
	}
	probe_result = 0;
	unlink("device7");
	assert_int_equal(format(NULL), -ENOENT);
	assert_int_equal(mkfs_calls, 0);
}

static void space_of_a_thick_volume_stays_with_it(void **state)
{
	(void)state;
	assert_int_equal(format(NULL), 0);
	assert_false(last_mkfs.keep_allocated);
	assert_int_equal(csi_branch_reserve(local, &volume, 1, &loop, NULL), 0);
	assert_int_equal(forbidden + reserved, 0);

	content.kind = UC_BLK_BLANK;
	store_format(UC_FORMAT_NEVER);
	volume.thin = false;
	assert_int_equal(format(NULL), 0);
	assert_true(last_mkfs.keep_allocated);
	assert_int_equal(csi_branch_reserve(local, &volume, 1, &loop, NULL), 0);
	assert_int_equal(forbidden, 1);
	assert_int_equal(reserved, 1);
	for (unsigned n = 1; n <= 2; n++) {
		fail_step(n, false);
		assert_int_equal(csi_branch_reserve(local, &volume, 1, &loop, NULL), -EIO);
		fail_nothing();
	}
}

/* Steps: twice sync, rename, sync of the state; between them mkfs and the same of the file beside. */
static void a_formatting_that_fails_at_any_step_is_taken_up_again(void **state)
{
	for (int all = 0; all < 2; all++) {
		unsigned n;

		(void)state;
		for (n = 1; n < 50; n++) {
			int r;

			content = (struct uc_blk_content){ .kind = UC_BLK_BLANK };
			store_format(UC_FORMAT_NEVER);
			fail_step(n, all);
			r = format(NULL);
			fail_nothing();
			/* Never formatted without its being recorded. */
			if (mkfs_calls)
				assert_int_not_equal(stored_format(), UC_FORMAT_NEVER);
			/* As a new process would find it. */
			volume.branches[1].format = stored_format();
			if (r == 0)
				break;
			assert_int_equal(r, -EIO);
			assert_int_equal(format(NULL), 0);
			assert_int_equal(stored_format(), UC_FORMAT_DONE);
			assert_string_equal(content.uuid, volume.branches[1].uuid);
			mkfs_calls = 0;
		}
		assert_int_equal(n, 11);
		mkfs_calls = 0;
	}
}

/* ------------------------------------------------------------------------ attaching */

static void a_branch_is_attached_and_found_again(void **state)
{
	struct uc_loopdev found = UC_LOOPDEV_NONE;
	struct stat st;

	(void)state;
	assert_int_equal(csi_branch_find(local, &volume, 1, &found, NULL), -ENOENT);
	assert_int_equal(csi_branch_attach(local, &volume, 1, &found, NULL), 0);
	assert_string_equal(loop_name, "v1.1.img");
	assert_int_equal(stat("p1/v1.1.img", &st), 0);
	assert_int_equal(volume.branches[1].file_ino, st.st_ino);
	assert_int_equal(volume.branches[1].file_dev, st.st_dev);
	found.number = -1;
	assert_int_equal(csi_branch_find(local, &volume, 1, &found, NULL), 0);
	assert_int_equal(found.number, 7);
	/* Without its pool, too: the state knows the file. */
	assert_int_equal(rename("p1/.union-csi-pool", "marker"), 0);
	assert_int_equal(csi_branch_find(local, &volume, 1, &found, NULL), 0);
	/* With neither there is no telling; with the pool there is. */
	volume.branches[1].file_ino = 0;
	assert_int_equal(csi_branch_find(local, &volume, 1, &found, NULL), -ENOENT);
	assert_int_equal(rename("marker", "p1/.union-csi-pool"), 0);
	assert_int_equal(csi_branch_find(local, &volume, 1, &found, NULL), 0);
}

static void a_crash_before_the_file_was_noted_does_not_hide_its_device(void **state)
{
	struct uc_loopdev found = UC_LOOPDEV_NONE;

	(void)state;
	assert_int_equal(csi_branch_attach(local, &volume, 1, &found, NULL), 0);
	volume.branches[1].file_dev = volume.branches[1].file_ino = 0;
	assert_int_equal(csi_branch_find(local, &volume, 1, &found, NULL), 0);
	unlink("p1/v1.1.img");
	assert_int_equal(csi_branch_find(local, &volume, 1, &found, NULL), -ENOENT);
}

static void a_file_that_is_not_the_branch_is_not_attached(void **state)
{
	struct uc_loopdev found = UC_LOOPDEV_NONE;
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(truncate("p1/v1.1.img", 4096), 0);
	assert_int_equal(csi_branch_attach(local, &volume, 1, &found, &err), -EPERM);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_non_null(strstr(err.msg, "`v1.1.img` is not a file of 16777216 bytes"));
	unlink("p1/v1.1.img");
	assert_int_equal(csi_branch_attach(local, &volume, 1, &found, &err), -EPERM);
	assert_int_equal(err.status, UC_GRPC_FAILED_PRECONDITION);
	assert_int_equal(symlink("../p0/v1.0.img", "p1/v1.1.img"), 0);
	assert_int_equal(csi_branch_attach(local, &volume, 1, &found, &err), -ELOOP);
	unlink("p1/.union-csi-pool");
	assert_true(csi_branch_attach(local, &volume, 1, &found, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_UNAVAILABLE);
	assert_int_equal(found.number, -1);
	assert_int_equal(volume.branches[1].file_ino, 0);
}

static void a_lack_of_devices_is_told(void **state)
{
	struct uc_loopdev found = UC_LOOPDEV_NONE;
	struct uc_err err = { 0 };

	(void)state;
	loop_result = -ENODEV;
	assert_int_equal(csi_branch_attach(local, &volume, 1, &found, &err), -ENODEV);
	assert_non_null(strstr(err.msg, "attach branch 1"));
	assert_int_equal(volume.branches[1].file_ino, 0);
}

/* ------------------------------------------------------------ the file beside a branch */

static void a_damaged_description_is_an_error(void **state)
{
	static const char *const texts[] = {
		"",
		"garbage",
		"[]",
		"{}",
		"{\"version\": 1, \"index\": 0}",
		"{\"version\": 1, \"index\": 0, \"volume\": {}}",
		"{\"version\": 1, \"index\": 0, \"volume\": 7}",
		"{\"version\": 2, \"index\": 0, \"volume\": {}}",
		"{\"version\": 1, \"index\": 5000, \"volume\": {}}",
	};
	int fd = open_dir(".");

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct uc_volume v = { .n_branches = 99 };
		struct uc_err err = { 0 };
		size_t index = 77;

		write_file("x.json", texts[i]);
		assert_int_equal(csi_sidecar_read(fd, "x.json", &v, &index, &err), -EINVAL);
		assert_non_null(strstr(err.msg, "`x.json`"));
		assert_int_equal(index, 77);
	}
	unlink("x.json");
	assert_int_equal(csi_sidecar_read(fd, "x.json", NULL, NULL, NULL), -ENOENT);
	close(fd);
}

static void an_index_beyond_the_branches_is_an_error(void **state)
{
	const char *text = file_text("p1/v1.1.json");
	struct uc_volume v = { .n_branches = 0 };
	char changed[8192], *at;
	size_t index = 0;
	int fd = open_dir(".");

	(void)state;
	snprintf(changed, sizeof(changed), "%s", text);
	at = strstr(changed, "\"index\"");
	assert_non_null(at);
	at = strchr(at, '1');
	*at = '2';
	write_file("x.json", changed);
	assert_int_equal(csi_sidecar_read(fd, "x.json", &v, &index, NULL), -EINVAL);
	close(fd);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(the_table_of_what_is_formatted),
		T(a_device_that_cannot_be_read_is_not_blank),
		T(space_of_a_thick_volume_stays_with_it),
		T(a_formatting_that_fails_at_any_step_is_taken_up_again),
		T(a_branch_is_attached_and_found_again),
		T(a_crash_before_the_file_was_noted_does_not_hide_its_device),
		T(a_file_that_is_not_the_branch_is_not_attached),
		T(a_lack_of_devices_is_told),
		T(a_damaged_description_is_an_error),
		T(an_index_beyond_the_branches_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
