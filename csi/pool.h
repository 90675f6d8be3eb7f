/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pools: directories on this machine's disks that hold the branches of the
 * local backend.
 *
 * A pool carries `.union-csi-pool` with a UUID, and the state directory knows
 * the UUIDs (pools.json).  So a disk that is not mounted is a missing pool and
 * never an empty one, and a disk that came from elsewhere is a foreign one.
 *
 * Nothing of a pool is kept open: its disk can be unmounted at any time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/cleanup.h"
#include "lib/base/err.h"
#include "lib/base/uuid.h"
#include "lib/vol/store.h"

struct csi_pools;

/** enum csi_pools_mode - what may be done with a directory that the state does not know */
enum csi_pools_mode {
	CSI_POOLS_LOOK,   /* nothing is written anywhere; with a marker it is a pool */
	CSI_POOLS_RECORD, /* with a marker it is a pool, and recorded */
	CSI_POOLS_ADOPT,  /* and an empty one is made a pool */
};

/**
 * csi_pools_new() - Set the pools up
 * @dirs:	Directories as the user gave them, ended by NULL
 * @store:	Borrowed; must outlive the pools
 * @mode:	What may be done with them
 * @ret_pools:	Result
 *
 * A pool that is not there is no error here: it may come.
 *
 * Return: 0 or a negative errno
 */
int csi_pools_new(char *const *dirs, const struct uc_store *store, enum csi_pools_mode mode,
		  struct csi_pools **ret_pools, struct uc_err *err);

/** csi_pools_free() - Release; NULL is allowed */
void csi_pools_free(struct csi_pools *pools);

UC_DEFINE_CLEANUP(struct csi_pools *, csi_pools_free)

/** csi_pools_count() - Number of pools */
size_t csi_pools_count(const struct csi_pools *pools);

/** csi_pools_dir() - The directory of pool @i, for messages */
const char *csi_pools_dir(const struct csi_pools *pools, size_t i);

/**
 * csi_pools_open() - Open pool @i, if it is the one that it should be
 * @ret_uuid:	Its UUID; or NULL
 *
 * A directory that the state has never seen is taken as the mode says: one with a marker is a
 * pool whose state was lost.  Safe from any thread.
 *
 * Return: descriptor of the directory (owned), or a negative errno with status UNAVAILABLE
 */
int csi_pools_open(struct csi_pools *pools, size_t i, char ret_uuid[static UC_UUID_TEXT_SIZE],
		   struct uc_err *err);

/**
 * csi_pools_open_uuid() - Open the pool that has a UUID
 * Return: as csi_pools_open()
 */
int csi_pools_open_uuid(struct csi_pools *pools, const char *uuid, struct uc_err *err);

/**
 * csi_pools_ready() - Whether every pool is there, also those that only the state knows
 * @is_used:	Asked of a pool that is not among the directories: whether any volume has a branch
 * there
 *
 * Return: 0, or a negative errno with status UNAVAILABLE
 */
int csi_pools_ready(struct csi_pools *pools, bool (*is_used)(void *data, const char *uuid),
		    void *data, struct uc_err *err);

/**
 * csi_pools_forget() - Have the state forget a pool: what is at its place then is like any directory
 * @uuid:	The pool; no volume may have a branch there
 *
 * Other processes on the same state directory see it at their next look at that place.
 *
 * Return: 0, -ENOENT (the state does not know it), or another negative errno
 */
int csi_pools_forget(struct csi_pools *pools, const char *uuid, struct uc_err *err);

/** struct csi_space - what a pool's disk has */
struct csi_space {
	uint64_t available; /* bytes, for others than root */
	uint64_t device;    /* pools on the same disk share it */
};

/** csi_pools_space() - Ask pool @i for its space; 0 or a negative errno with status UNAVAILABLE */
int csi_pools_space(struct csi_pools *pools, size_t i, struct csi_space *ret, struct uc_err *err);
