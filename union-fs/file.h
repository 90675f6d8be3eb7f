/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Open files.
 *
 * Each open has a descriptor of its own, even where the kernel reads and writes
 * without us: fsync() on it reports the errors since this open, and an unlinked
 * file can be reached only through it.
 *
 * Passthrough: the kernel gets a backing file for the node and then serves read(),
 * write() and mmap() from it.  All opens of a node at one time are of the same
 * mode, passthrough or cached; the first one decides.
 */

#include "union-fs/fuse_abi.h"
#include "union-fs/node.h"
#include "union-fs/ufs.h"

/** struct ufs_io - the opens of a node */
struct ufs_io {
	struct ufs_file *first;  /* lock */
	unsigned opens, writers; /* lock */
	int backing_id;          /* lock; the kernel's; 0: cached mode */
};

/** struct ufs_file - an open file */
struct ufs_file {
	struct ufs_file *prev, *next; /* lock; of the same node */
	struct ufs_node *node;        /* holds a reference */
	uint32_t refs;                /* lock; the table's, and the requests' that use it */
	uint32_t index;
	int fd;
	bool writer;
	bool filling;                           /* lock; it is in the list of fs->filling_first */
	struct ufs_file *fill_prev, *fill_next; /* lock */
	int64_t opened;                         /* CLOCK_MONOTONIC, seconds */
};

/**
 * ufs_file_open() - A node is open once more
 * @node:	Regular file
 * @fd:		Its descriptor (taken, also on failure)
 * @flags:	As the program opened it
 * @ret:	What the kernel is told
 *
 * Return: 0 or a negative errno
 */
int ufs_file_open(struct ufs *fs, struct ufs_node *node, int fd, int flags,
		  struct ufs_open_out *ret);

/** ufs_file_get() - The open file of that handle, with a reference; NULL unless it is one of @node.
 * Any handle is allowed */
struct ufs_file *ufs_file_get(struct ufs *fs, uint64_t handle, const struct ufs_node *node);

/** ufs_file_of() - Any of a node's open files, with a reference, or NULL */
struct ufs_file *ufs_file_of(struct ufs_node *node);

/** ufs_file_put() - Drop a reference; NULL is allowed */
void ufs_file_put(struct ufs *fs, struct ufs_file *file);

static inline void ufs_file_putp(struct ufs_file **file)
{
	if (*file)
		ufs_file_put((*file)->node->fs, *file);
}

#define cleanup_file cleanup_with(ufs_file_putp)

/** ufs_file_close() - The kernel releases a handle; -EBADF if it is none of @node */
int ufs_file_close(struct ufs *fs, uint64_t handle, const struct ufs_node *node);

/** ufs_file_is_written() - Whether a node is written behind our back: then the kernel must not keep
 * its attributes */
bool ufs_file_is_written(struct ufs_node *node);

/** ufs_file_may_be_dirty() - Whether the kernel may have pages of a node, written through a mapping,
 * that its branch has not */
bool ufs_file_may_be_dirty(struct ufs_node *node);

/** ufs_files_age() - Count those no longer as being filled that have been open for some time.
 * Under fs->lock */
void ufs_files_age(struct ufs *fs, int64_t now);

/** ufs_files_done() - Release all open files and directories */
void ufs_files_done(struct ufs *fs);
