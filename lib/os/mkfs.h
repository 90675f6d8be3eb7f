/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Making filesystems, with the distribution's own tools. */

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

/** struct uc_mkfs - what to make */
struct uc_mkfs {
	const char *device;
	const char *fstype;  /* one that uc_mkfs_min_size() knows */
	const char *uuid;    /* the filesystem's UUID */
	bool force;          /* overwrite a filesystem that is there; else the tools refuse */
	bool keep_allocated; /* no discard, and zeroes are written as such: the device's space is
				reserved */
	int (*tick)(void *data); /* as in struct uc_proc: a large device takes minutes; or NULL */
	void *tick_data;
};

/**
 * uc_mkfs_min_size() - Smallest device that is accepted for a filesystem
 * @fstype:	Type
 *
 * Return: bytes, or 0 if the type is not one that is made here (ext4, xfs, btrfs)
 */
uint64_t uc_mkfs_min_size(const char *fstype);

/**
 * uc_mkfs_run() - Make a filesystem
 * @mkfs:	What
 * @err:	Error detail with the tool's last words, or NULL
 *
 * ext4 reserves nothing for root.
 *
 * Return: 0 or a negative errno
 */
int uc_mkfs_run(const struct uc_mkfs *mkfs, struct uc_err *err);
