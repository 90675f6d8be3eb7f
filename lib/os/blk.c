/* SPDX-License-Identifier: Apache-2.0 */

#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/str.h"
#include "lib/os/blk.h"
#include "lib/os/clock.h"

UC_DEFINE_CLEANUP(blkid_probe, blkid_free_probe)

static const char *value(blkid_probe probe, const char *name)
{
	const char *v = NULL;

	return blkid_probe_lookup_value(probe, name, &v, NULL) == 0 && v ? v : "";
}

static int set_up(blkid_probe probe, int fd)
{
	if (blkid_probe_set_device(probe, fd, 0, 0) || blkid_probe_enable_superblocks(probe, 1) ||
	    blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_UUID |
							     BLKID_SUBLKS_USAGE |
							     BLKID_SUBLKS_BADCSUM) ||
	    blkid_probe_enable_partitions(probe, 1) ||
	    blkid_probe_set_partitions_flags(probe, BLKID_PARTS_MAGIC))
		return -EIO;
	return 0;
}

/* libblkid takes a block that cannot be read for one without a signature. */
static int check_readable(int fd)
{
	static const off_t probed[] = { 0, 64 * 1024, 1024 * 1024 };
	char buf[4096];

	for (size_t i = 0; i < sizeof(probed) / sizeof(probed[0]); i++)
		if (pread(fd, buf, sizeof(buf), probed[i]) < 0)
			return -errno;
	return 0;
}

int uc_blk_probe(int fd, struct uc_blk_content *ret_content, struct uc_err *err)
{
	cleanup_with(blkid_free_probep) blkid_probe probe = blkid_new_probe();
	struct uc_blk_content content = { .kind = UC_BLK_BLANK };
	int r;

	if (!probe)
		return uc_fail(err, ENOMEM, "probe a device");
	r = set_up(probe, fd);
	if (r < 0)
		return uc_fail(err, -r, "probe a device");
	errno = 0;
	r = blkid_do_safeprobe(probe);
	if (r == -2) {
		content.kind = UC_BLK_AMBIVALENT;
	} else if (r < 0) {
		return uc_fail(err, errno ? errno : EIO, "probe a device");
	} else if (r == 0) {
		const char *type = value(probe, "TYPE"), *usage = value(probe, "USAGE");
		bool table = *value(probe, "PTTYPE");

		content.kind = strcmp(usage, "filesystem") == 0 && !table ? UC_BLK_FILESYSTEM
									  : UC_BLK_OTHER;
		snprintf(content.type, sizeof(content.type), "%s",
			 *type ? type : value(probe, "PTTYPE"));
		snprintf(content.uuid, sizeof(content.uuid), "%s", value(probe, "UUID"));
	} else {
		r = check_readable(fd);
		if (r < 0)
			return uc_fail(err, -r, "probe a device");
	}
	*ret_content = content;
	return 0;
}

int uc_blk_size(int fd, uint64_t *ret_bytes)
{
	return ioctl(fd, BLKGETSIZE64, ret_bytes) < 0 ? -errno : 0;
}

int uc_blk_wait_unclaimed(const char *path, uint64_t timeout_ms, struct uc_err *err)
{
	uint64_t end = uc_now_ms() + timeout_ms;

	for (uint64_t pause = 1;; pause = pause < 50 ? pause * 2 : 50) {
		cleanup_fd int fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);

		if (fd >= 0)
			return 0;
		if (errno != EBUSY || uc_now_ms() >= end)
			return uc_fail(err, errno, "wait for `%s` to be free", UC_PRINTABLE(path));
		uc_sleep_ms(pause);
	}
}
