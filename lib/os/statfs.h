/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* statfs() with a time limit: a hung filesystem costs one thread for ever, not one per question. */

#include <stdint.h>

#include "lib/base/err.h"

/** struct uc_statfs - usage of a filesystem, as df shows it */
struct uc_statfs {
	uint64_t total, used, available;           /* bytes */
	uint64_t inodes, inodes_used, inodes_free; /* 0 where the filesystem has no such limit */
};

/**
 * uc_statfs_bounded() - Ask a filesystem for its usage
 * @fd:		Descriptor on it (borrowed; may be O_PATH)
 * @timeout_ms:	How long
 * @ret:	Result
 * @err:	Error detail, or NULL
 *
 * Safe from any thread.  While an earlier question to the same superblock hangs, further
 * ones fail at once.
 *
 * Return: 0, -ETIMEDOUT, or another negative errno
 */
int uc_statfs_bounded(int fd, uint64_t timeout_ms, struct uc_statfs *ret, struct uc_err *err);
