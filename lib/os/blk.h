/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Block devices: what is on them, how large they are, who holds them. */

#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

enum uc_blk_kind {
	UC_BLK_BLANK, /* no signature of anything, and every byte that was looked at could be read
		       */
	UC_BLK_FILESYSTEM, /* exactly one filesystem */
	UC_BLK_OTHER,      /* another signature: partition table, RAID member, LVM, LUKS, … */
	UC_BLK_AMBIVALENT, /* several signatures that exclude each other */
};

/** struct uc_blk_content - what a probe found */
struct uc_blk_content {
	enum uc_blk_kind kind;
	char type[32]; /* "ext4", "LVM2_member", "dos", …; "" where blank */
	char uuid[64]; /* of a filesystem, as libblkid prints it; else "" */
};

/**
 * uc_blk_probe() - Look for signatures of anything on a device
 * @fd:		Device, open for reading (borrowed)
 * @ret_content: Result
 * @err:	Error detail, or NULL
 *
 * Source: libblkid, with superblocks, partition tables and bad checksums.
 *
 * Return: 0, or a negative errno (a read error is never taken for blank)
 */
int uc_blk_probe(int fd, struct uc_blk_content *ret_content, struct uc_err *err);

/**
 * uc_blk_check_holders() - Whether nobody maps a device, but perhaps one mapped device
 * @dev:	Device
 * @allowed:	What may map it; 0: nothing
 * @err:	Error detail that names the holder, or NULL
 *
 * What maps a device with device-mapper keeps others from mounting it, but not from mapping it
 * once more.
 *
 * Return: 0, -EBUSY, or another negative errno
 */
int uc_blk_check_holders(dev_t dev, dev_t allowed, struct uc_err *err);

/** uc_blk_size() - Size of a device in bytes; 0 or a negative errno */
int uc_blk_size(int fd, uint64_t *ret_bytes);

/**
 * uc_blk_wait_unclaimed() - Wait until nobody holds a device exclusively
 * @path:	Device
 * @timeout_ms:	How long
 *
 * The last unmount of a detached or lazily unmounted filesystem ends some time after the
 * last descriptor is closed.
 *
 * Return: 0, -EBUSY (still held), or another negative errno
 */
int uc_blk_wait_unclaimed(const char *path, uint64_t timeout_ms, struct uc_err *err);
