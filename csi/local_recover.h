/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "csi/pool.h"
#include "lib/base/err.h"
#include "lib/vol/store.h"

/** struct csi_recovery - a volume without a state that could be read */
struct csi_recovery {
	char *id;          /* the volume's, as the files are named */
	size_t n_branches; /* that it has */
	size_t n_found;    /* whose files are there, whole */
	uint64_t capacity; /* bytes */
	char *damage;      /* what is wrong with its state; NULL: there is none */
	char *problem;     /* why it cannot be recovered; NULL: it can be, or was */
};

/** csi_recovery_list - the result of csi_local_find_orphans() */
struct csi_recovery_list {
	struct csi_recovery *items;
	size_t n;
};

/** csi_recovery_list_done() - Release; a zeroed one is allowed */
void csi_recovery_list_done(struct csi_recovery_list *list);

/**
 * csi_local_find_orphans() - Look for volumes whose files are in the pools, but whose state is not
 * there, and for volumes whose state is damaged
 * @pools:	Pools
 * @store:	State
 * @recover:	Write the state of those that are complete; a damaged one is kept as UC_STATE_BAD
 * @ret_list:	What was found; release with csi_recovery_list_done()
 *
 * Nothing in the pools is changed or removed.
 */
int csi_local_find_orphans(struct csi_pools *pools, const struct uc_store *store, bool recover,
			   struct csi_recovery_list *ret_list, struct uc_err *err);

/**
 * csi_local_forget_pool() - Forget a pool whose disk is gone for good
 * @pools:	Pools
 * @store:	State
 * @uuid:	The pool
 *
 * Return: 0, -EBUSY (a volume has a branch there, or its state cannot be read), or another negative
 * errno
 */
int csi_local_forget_pool(struct csi_pools *pools, const struct uc_store *store, const char *uuid,
			  struct uc_err *err);
