/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The FUSE protocol as far as <linux/fuse.h> of Debian 12 (7.38) does not know it.
 *
 * Names are ours, so that a newer header changes nothing; layouts and numbers are
 * the kernel's.  Source: include/uapi/linux/fuse.h of Linux 6.18 (7.45).
 */

#include <assert.h>
#include <linux/fuse.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>

enum {
	UFS_FUSE_MINOR = 40,     /* highest version that we speak: 7.40 has passthrough */
	UFS_FUSE_MINOR_MIN = 36, /* Linux 5.17; every layout that is read here exists since */
};

/* INIT flags: bits 32 and up travel in flags2 */
#define UFS_INIT_CREATE_SUPP_GROUP (UINT64_C(1) << 34) /* 7.38 */
#define UFS_INIT_PASSTHROUGH (UINT64_C(1) << 37)       /* 7.40 */

/* OPEN reply flags */
#define UFS_FOPEN_PASSTHROUGH (UINT32_C(1) << 7) /* 7.40 */

enum {
	UFS_OP_STATX = 52,   /* 7.39 */
	UFS_EXT_GROUPS = 32, /* extension: one of the caller's supplementary groups, 7.38 */
};

struct ufs_init_out {
	uint32_t major, minor;
	uint32_t max_readahead;
	uint32_t flags;
	uint16_t max_background, congestion_threshold;
	uint32_t max_write;
	uint32_t time_gran;
	uint16_t max_pages, map_alignment;
	uint32_t flags2;
	uint32_t max_stack_depth; /* 7.40 */
	uint16_t request_timeout; /* 7.43 */
	uint16_t unused[11];
};
static_assert(sizeof(struct ufs_init_out) == sizeof(struct fuse_init_out), "as the kernel's");

struct ufs_open_out {
	uint64_t fh;
	uint32_t open_flags;
	int32_t backing_id; /* 7.40 */
};
static_assert(sizeof(struct ufs_open_out) == sizeof(struct fuse_open_out), "as the kernel's");

struct ufs_create_out {
	struct fuse_entry_out entry;
	struct ufs_open_out open;
};

struct ufs_statx_in {
	uint32_t getattr_flags, reserved;
	uint64_t fh;
	uint32_t sx_flags, sx_mask;
};

struct ufs_sx_time {
	int64_t tv_sec;
	uint32_t tv_nsec;
	int32_t reserved;
};

struct ufs_statx {
	uint32_t mask, blksize;
	uint64_t attributes;
	uint32_t nlink, uid, gid;
	uint16_t mode, spare0;
	uint64_t ino, size, blocks, attributes_mask;
	struct ufs_sx_time atime, btime, ctime, mtime;
	uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
	uint64_t spare2[14];
};
static_assert(sizeof(struct ufs_statx) == 256, "as the kernel's");

struct ufs_statx_out {
	uint64_t attr_valid;
	uint32_t attr_valid_nsec, flags;
	uint64_t spare[2];
	struct ufs_statx stat;
};

struct ufs_supp_groups {
	uint32_t nr_groups;
	uint32_t groups[];
};

/* Registering a file that the kernel reads and writes by itself. */
struct ufs_backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};

#define UFS_IOC_BACKING_OPEN _IOW(229, 1, struct ufs_backing_map)
#define UFS_IOC_BACKING_CLOSE _IOW(229, 2, uint32_t)
