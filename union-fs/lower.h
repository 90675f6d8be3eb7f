/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Lower objects: what branches have, told by branch, device, inode number and,
 * where the filesystem has them, file handle.  (An inode number alone is used
 * again for another file; a handle is not.)
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "union-fs/ufs.h"

/** struct ufs_ident - what an object is told by */
struct ufs_ident {
	dev_t dev;
	ino_t ino;
	uint16_t branch;
	uint8_t handle_size; /* 0: no handle; an open descriptor keeps the object's number from
				being used again */
	int32_t handle_type;
	const unsigned char *handle; /* borrowed */
};

/** struct ufs_copy - what only directories have */
struct ufs_copy {
	struct ufs_lower *lru_prev, *lru_next; /* lock */
	int64_t btime_sec; /* when it was made: the oldest copy speaks for the directory */
	uint32_t btime_nsec;
	uint32_t pins; /* lock: the descriptor stays open, and the object allocated, while there are
			  any */
	bool has_btime;
	bool listed;   /* lock: among those whose descriptor may be closed */
	bool aligned;  /* lock: owner, mode and attributes were seen to be those of the oldest copy
			*/
	bool unsynced; /* lock: its entry in its parent may not be on disk yet */
};

/** struct ufs_lower - an object of a branch */
struct ufs_lower {
	struct ufs_lower *next; /* lock; in its bucket */
	struct ufs_node
		*node; /* lock; whose it is; NULL: nobody's any more, freed with its last pin */
	struct ufs_copy *copy; /* of a directory; else NULL */
	dev_t dev;
	ino_t ino;
	int fd; /* lock; O_PATH, or -1; stays open if there is no handle */
	int32_t handle_type;
	uint16_t branch;
	uint8_t handle_size;
	unsigned char handle[];
};

/** ufs_lower_new() - Make an object; NULL where memory ran out.  It is nobody's, in no map, and has
 * no descriptor */
struct ufs_lower *ufs_lower_new(const struct ufs_ident *id, bool is_dir);

/** ufs_lower_free() - Release an object and its descriptor; NULL is allowed.  Not under the lock */
void ufs_lower_free(struct ufs_lower *l);

/** ufs_lower_is() - Whether @l is what @id tells */
bool ufs_lower_is(const struct ufs_lower *l, const struct ufs_ident *id);

/** ufs_lower_open() - Open an object; flags as for open(), O_PATH included.  A descriptor (owned)
 * or a negative errno */
int ufs_lower_open(struct ufs *fs, const struct ufs_lower *l, int flags);

enum {
	UFS_EVICT_MAX = 8, /* descriptors closed in one go */
};

/** struct ufs_dead - what is to be released once fs->lock is dropped */
struct ufs_dead {
	struct ufs_lower *first;
	int fd[UFS_EVICT_MAX];
	unsigned n_fds;
};

/** ufs_dead_done() - Release it; not under the lock */
void ufs_dead_done(struct ufs_dead *dead);

#define cleanup_dead __attribute__((cleanup(ufs_dead_done)))

/* All below: under fs->lock. */

/** ufs_lower_set_fd() - Give an object without descriptor one (taken) */
void ufs_lower_set_fd(struct ufs *fs, struct ufs_lower *l, int fd);

/** ufs_lower_abandon() - Nobody's any more: out of the map, and released with its last pin */
void ufs_lower_abandon(struct ufs *fs, struct ufs_lower *l, struct ufs_dead *dead);

/** ufs_lower_touch() - A directory was used just now */
void ufs_lower_touch(struct ufs *fs, struct ufs_lower *l);

/** ufs_lower_pin() - Keep a directory's descriptor open and @l allocated */
void ufs_lower_pin(struct ufs *fs, struct ufs_lower *l);

/** ufs_lower_unpin() - The reverse */
void ufs_lower_unpin(struct ufs *fs, struct ufs_lower *l, struct ufs_dead *dead);
