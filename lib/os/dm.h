/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Device-mapper: several block devices as one.
 *
 * A mapped device is identified by its UUID, which no other one can have; its
 * name is for people, and may be somebody else's.  All sizes and offsets are in
 * bytes, and multiples of 512.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

enum {
	UC_DM_NAME_MAX = 127, /* bytes of a name, and of a UUID */
	UC_DM_PATH_SIZE = 32,
};

/** struct uc_dm_piece - where a segment lies on one of the devices below */
struct uc_dm_piece {
	dev_t dev;
	uint64_t offset;
};

/** struct uc_dm_segment - a part of the mapped device; what is in it is borrowed */
struct uc_dm_segment {
	uint64_t start, length; /* of the mapped device; the first starts at 0, without gaps */
	const struct uc_dm_piece *pieces;
	size_t n_pieces; /* 1: linear */
	uint64_t chunk;  /* of several: how much of one comes before some of the next; a power of
			    two that @length / @n_pieces is a multiple of */
};

/** uc_dm_path() - "/dev/dm-N"; returns @to */
const char *uc_dm_path(dev_t dev, char to[static UC_DM_PATH_SIZE]);

/** UC_DM_PATH() - uc_dm_path() into a buffer of the enclosing block */
#define UC_DM_PATH(dev) uc_dm_path((dev), (char[UC_DM_PATH_SIZE]){ 0 })

/**
 * uc_dm_find() - Find a mapped device
 * @uuid:	Its UUID
 * @ret_dev:	Result
 * @err:	Error detail, or NULL
 *
 * Return: 0, -ENOENT (none), -EOPNOTSUPP (the kernel has no device-mapper), or another negative
 * errno
 */
int uc_dm_find(const char *uuid, dev_t *ret_dev, struct uc_err *err);

/**
 * uc_dm_create() - Have a mapped device
 * @name:	For /dev/mapper and `dmsetup ls`
 * @uuid:	Its identity
 * @segments:	The table
 * @n:		How many
 * @ret_dev:	The new device, or the one that was there already with this very table
 * @err:	Error detail, or NULL
 *
 * What a crash has left without a table gets it.
 *
 * Return: 0, -EEXIST (there is one with another table, or another UUID has the name), -EBUSY (one
 * of the devices below is in use), -EOPNOTSUPP (as above), or another negative errno
 */
int uc_dm_create(const char *name, const char *uuid, const struct uc_dm_segment *segments, size_t n,
		 dev_t *ret_dev, struct uc_err *err);

/**
 * uc_dm_remove() - Take a mapped device away
 * @uuid:	Its UUID
 * @timeout_ms:	How long it may still be open: whoever looks at new devices opens it for a moment
 * @err:	Error detail, or NULL
 *
 * Return: 0 (also if there is none), -EBUSY (it is open), or another negative errno
 */
int uc_dm_remove(const char *uuid, uint64_t timeout_ms, struct uc_err *err);
