/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Theory of operation
 *
 * union-fs merges N directories, the branches, into one tree.  It speaks the FUSE
 * protocol itself: worker threads read a request each from /dev/fuse, serve it from
 * start to finish, and answer once.
 *
 *     session.c   the mount, INIT, the worker threads
 *     dev.c       reads, validates and dispatches requests; ops_*.c has one function for each
 *     node.c      what the kernel knows by number
 *     view.c      a directory's copies, with descriptors; find.c a name in them
 *     make.c      creation: where, as whom; clone.c a directory's copy on one more branch
 *     rename.c    renaming files; rename_dir.c directories; intent.c what a crash must not half do
 *     freed.c     names that another branch must not use again before a disk is up to date
 *     branch.c    the branches; policy.c which one gets a file
 *     creds.c     the caller's identity in a thread
 *     daemon.c    signals and the end; serve.c, cli.c, gogo.c the command lines; ctl.c the socket
 *
 * Identity.  A node is what the kernel has a number for.  It stands for objects of the
 * branches, never for a path: one object for a file, one for each branch that has a copy
 * for a directory.  Objects are found again by file handle, so a rename of an ancestor
 * by anybody cannot make us touch another file; all work is done by *at() calls on
 * directories.  Only a directory knows its parent and name, because its path must be
 * made on branches that lack it.
 *
 * What shows.  The lowest branch that has a name decides what it is; directories of the
 * same name on other branches are merged with it, everything else there is hidden.
 * A merged directory has the number, owner, mode and attributes of its oldest copy.
 *
 * Locks, in the order in which they are taken
 *
 *     fs->tree   The shape of the tree: cloning, moving and removing directories, and changing
 *                their attributes, all of which take several steps on several branches.
 *     fs->lock   The node table and all that hangs on it; held for a few instructions.
 *
 * fs->lock is a leaf, as are the locks inside freed.c: no system call on a branch and no reply is made under it.
 * fs->tree is held across system calls, as the one exception: such a change must be
 * seen whole.  It is never waited for by reads, writes, opens or lookups of files.
 * A lookup of a directory does not take it either: it compares fs->tree_seq before and
 * after, as with a sequence lock, and looks again if the tree has changed under it.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/cleanup.h"
#include "lib/base/err.h"
#include "lib/os/mount.h"
#include "lib/vol/spec.h"

struct ufs_file;
struct ufs_freed;
struct ufs_listing;
struct ufs_opendir;
struct ufs_node;
struct ufs_lower;
struct ufs_session;

enum ufs_branch_mode {
	UFS_BRANCH_RW,
	UFS_BRANCH_RO, /* nothing on it is changed */
	UFS_BRANCH_NC, /* nothing new is created on it */
};

/** struct ufs_branch - one of the merged directories; constant while the union is served, except
 * where it says "lock" */
struct ufs_branch {
	char *name;  /* the device or directory, for messages */
	int root_fd; /* the merged directory, open for reading: open_by_handle_at() does not take
			O_PATH */
	int home_fd; /* where union/ and union.json lie (open for reading); -1 for a plain directory
		      */
	int fs_fd;   /* the detached mount of a device; else -1 */
	dev_t dev;
	int mount_id;
	enum ufs_branch_mode mode;
	uint64_t min_free; /* bytes that must be free for it to get new files */
	bool handles;      /* its filesystem has file handles that we may open */
	bool shared;       /* its device was in use before: by a union whose server has died */
	bool flush;        /* close() on it may report errors: a network filesystem */
	unsigned filling;  /* lock; files in fs->filling_first that lie on it */
	int64_t avoided;   /* lock; it has failed: nothing new goes there before this second, if
			      others have room (CLOCK_MONOTONIC) */
};

enum ufs_passthrough {
	UFS_PASSTHROUGH_AUTO,
	UFS_PASSTHROUGH_ON, /* fail without it */
	UFS_PASSTHROUGH_OFF,
};

/** struct ufs_config - how a union behaves; constant while it is served */
struct ufs_config {
	enum uc_policy policy;
	enum ufs_passthrough passthrough;
	uint64_t entry_ms, attr_ms, negative_ms; /* how long the kernel may keep what it was told */
	unsigned threads; /* 0: as many as fit the machine, more when they are needed */
	bool exclusive;   /* nobody else changes the branches */
	bool read_only;
};

enum {
	UFS_THREADS_MAX = 64,
	UFS_MAX_WRITE = 1024 * 1024, /* bytes in one READ or WRITE */
	UFS_ROOT_INDEX = 0,
};

struct ufs_slot {
	void *object;
	uint32_t generation;
	uint32_t next_free;
};

/** struct ufs_slots - small numbers for objects */
struct ufs_slots {
	struct ufs_slot *slot;
	uint32_t n, cap;
	uint32_t free; /* first free one + 1; 0: none */
};

/** struct ufs_objmap - lower objects by identity: a linear hash table, which grows by one bucket at
 * a time */
struct ufs_objmap {
	struct ufs_lower **bucket;
	size_t n_buckets, cap; /* used; allocated */
	size_t base;           /* largest power of two ≤ n_buckets */
	size_t n;
};

/** struct ufs - a union */
struct ufs {
	struct ufs_config cfg;
	struct ufs_branch *branch;
	unsigned n_branches;

	int dev_fd;          /* /dev/fuse */
	uint32_t minor;      /* of the protocol */
	uint64_t init_flags; /* what both sides have agreed on */
	bool passthrough;    /* atomic: the kernel does the reading and writing; may be turned off
				while we run */
	dev_t dev;           /* of the union's own superblock */
	int intent_branch;   /* tree: which branch holds an intent that could not be completed; -1:
				none */
	struct ufs_freed *freed;    /* one for each branch; see freed.h */
	bool many_freed, relieving; /* atomic; freed.c's */

	pthread_mutex_t tree;
	pthread_mutex_t lock;

	/* All below: lock */
	uint64_t tree_seq;      /* odd while a change under fs->tree is being made */
	struct ufs_slots nodes; /* slot i is node id i + 1 */
	struct ufs_slots files; /* open ones; the slot's number and generation are the handle */
	struct ufs_slots dirs;  /* the same for open directories */
	struct ufs_opendir *listed_first, *listed_last; /* those that have a listing; latest use
							   first */
	size_t listed_bytes;                            /* what these take */
	struct ufs_file *filling_first, *filling_last;  /* open since they were empty, a short time
							  ago; the oldest first */
	struct ufs_objmap objects;
	struct ufs_lower *lru_first,
		*lru_last; /* directories whose descriptor may be closed; latest use first */
	size_t n_dir_fds, max_dir_fds;
	size_t n_kept_fds, max_kept_fds; /* of objects without file handle */
};

/**
 * ufs_new() - Make a union of branches
 * @cfg:	How it behaves
 * @branch:	Branches, an array from malloc(); taken over, also on failure
 * @n:		How many, ≥ 1
 * @ret_fs:	Result; release with ufs_free()
 * @err:	Error detail, or NULL
 *
 * Return: 0 or a negative errno
 */
int ufs_new(const struct ufs_config *cfg, struct ufs_branch *branch, unsigned n,
	    struct ufs **ret_fs, struct uc_err *err);

/** ufs_free() - Release a union that nobody serves any more; NULL is allowed */
void ufs_free(struct ufs *fs);

UC_DEFINE_CLEANUP(struct ufs *, ufs_free)

/** ufs_lock(), ufs_unlock() - fs->lock */
void ufs_lock(struct ufs *fs);
void ufs_unlock(struct ufs *fs);

/** ufs_tree_lock(), ufs_tree_unlock() - fs->tree */
void ufs_tree_lock(struct ufs *fs);
void ufs_tree_unlock(struct ufs *fs);

/** ufs_tree_begin(), ufs_tree_end() - Around a change of the tree's shape, under fs->tree */
void ufs_tree_begin(struct ufs *fs);
void ufs_tree_end(struct ufs *fs);

/** ufs_slots_add() - Give @object a slot; 0 or -ENOMEM.  Under fs->lock */
int ufs_slots_add(struct ufs_slots *s, void *object, uint32_t *ret_index);

/** ufs_slots_get() - The object in a slot, or NULL; any @index is allowed.  Under fs->lock */
void *ufs_slots_get(const struct ufs_slots *s, uint64_t index);

/** ufs_slots_handle() - What the kernel gets to call an open file by: number and generation of its
 * slot.  Under fs->lock */
uint64_t ufs_slots_handle(const struct ufs_slots *s, uint32_t index);

/** ufs_slots_of_handle() - The object of a handle, or NULL; any @handle is allowed.  Under fs->lock
 */
void *ufs_slots_of_handle(const struct ufs_slots *s, uint64_t handle);

/** ufs_slots_remove() - Free a slot; its generation changes.  Under fs->lock */
void ufs_slots_remove(struct ufs_slots *s, uint32_t index);
