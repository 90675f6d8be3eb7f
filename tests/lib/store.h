/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A store at s/, and volumes in it that are told from one another by their capacity. */

#include "tests/lib/files.h"
#include "tests/lib/unit.h"
#include "tests/lib/volume.h"

#include "lib/vol/store.h"

static struct uc_store store = UC_STORE_INIT;
static size_t fds_before;

static inline void store_begin(void)
{
	remove_tree("s");
	assert_int_equal(uc_store_open("s", &store, NULL), 0);
	fds_before = open_fds();
}

static inline void store_end(void)
{
	assert_int_equal(open_fds(), fds_before);
	uc_store_close(&store);
}

static inline void lock_volume(const char *id, struct uc_volume_lock *lock)
{
	assert_int_equal(uc_volume_lock(&store, id, true, lock, NULL), 0);
}

static inline void store_volume(const char *id, uint64_t capacity)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = make_full_volume(id);

	lock_volume(id, &lock);
	v.capacity = capacity;
	assert_int_equal(uc_volume_store(&lock, &v, NULL), 0);
}

/* The capacity that is on disk, or what loading returns. */
static inline int64_t stored(const char *id)
{
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	int r = uc_volume_load(&store, id, &v, NULL);

	return r < 0 ? r : (int64_t)v.capacity;
}
