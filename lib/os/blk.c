/* SPDX-License-Identifier: Apache-2.0 */

#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/str.h"
#include "lib/os/blk.h"
#include "lib/os/clock.h"
#include "lib/os/fd.h"

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

/*
 * Where the signatures are that libblkid knows: on a device without any it reads nothing
 * but the first 4 MiB and 512 bytes, and the last 1.6 MB.
 */
enum {
	HEAD_BYTES = 5 << 20,
	TAIL_BYTES = 2 << 20,
	CHUNK_BYTES = 256 << 10,
};

static int read_range(int fd, off_t at, off_t end, char *buf)
{
	while (at < end) {
		ssize_t n = pread(fd, buf, CHUNK_BYTES, at);

		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		at += n;
	}
	return 0;
}

static int check_readable(int fd)
{
	cleanup_free char *buf = malloc(CHUNK_BYTES);
	off_t size = lseek(fd, 0, SEEK_END);
	int r;

	if (!buf)
		return -ENOMEM;
	if (size < 0)
		return -errno;
	r = read_range(fd, 0, size < HEAD_BYTES ? size : HEAD_BYTES, buf);
	if (r == 0)
		r = read_range(fd, size < TAIL_BYTES ? 0 : size - TAIL_BYTES, size, buf);
	return r;
}

static int probe_once(int fd, struct uc_blk_content *ret)
{
	cleanup_with(blkid_free_probep) blkid_probe probe = blkid_new_probe();
	int r;

	*ret = (struct uc_blk_content){ .kind = UC_BLK_BLANK };
	if (!probe)
		return -ENOMEM;
	r = set_up(probe, fd);
	if (r < 0)
		return r;
	errno = 0;
	r = blkid_do_safeprobe(probe);
	/* For several signatures libblkid 2.41 gives -1 as for an error, but no errno. */
	if (r == -2 || (r < 0 && !errno)) {
		ret->kind = UC_BLK_AMBIVALENT;
	} else if (r < 0) {
		return -errno;
	} else if (r == 0) {
		const char *type = value(probe, "TYPE"), *usage = value(probe, "USAGE");
		bool table = *value(probe, "PTTYPE");

		ret->kind = strcmp(usage, "filesystem") == 0 && !table ? UC_BLK_FILESYSTEM
								       : UC_BLK_OTHER;
		snprintf(ret->type, sizeof(ret->type), "%s", *type ? type : value(probe, "PTTYPE"));
		snprintf(ret->uuid, sizeof(ret->uuid), "%s", value(probe, "UUID"));
	}
	return 0;
}

/*
 * libblkid takes a block that cannot be read for one without a signature, here and there.
 * So a device is only blank if it is so after all that matters could be read, and lies
 * in the page cache.
 */
int uc_blk_probe(int fd, struct uc_blk_content *ret_content, struct uc_err *err)
{
	struct uc_blk_content content;
	int r;

	r = probe_once(fd, &content);
	if (r == 0 && content.kind == UC_BLK_BLANK) {
		r = check_readable(fd);
		if (r == 0)
			r = probe_once(fd, &content);
	}
	if (r < 0)
		return uc_fail(err, -r, "probe a device");
	*ret_content = content;
	return 0;
}

struct holders {
	char allowed[32];
	char found[64];
};

static int see_holder(void *data, const char *name)
{
	struct holders *h = data;

	if (strcmp(name, h->allowed) == 0)
		return 0;
	snprintf(h->found, sizeof(h->found), "%s", name);
	return 1;
}

int uc_blk_check_holders(dev_t dev, dev_t allowed, struct uc_err *err)
{
	struct holders h = { .found = "" };
	cleanup_fd int fd = -1;
	char path[64];
	int r;

	if (allowed)
		snprintf(h.allowed, sizeof(h.allowed), "dm-%u", minor(allowed));
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/holders", major(dev), minor(dev));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return uc_fail(err, errno, "open `%s`", path);
	r = uc_dir_each(fd, see_holder, &h);
	if (r > 0)
		return uc_fail_as(err, EBUSY, 0, "device %u:%u is also mapped by `%s`", major(dev),
				  minor(dev), UC_PRINTABLE(h.found));
	return r < 0 ? uc_fail(err, -r, "read `%s`", path) : 0;
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
