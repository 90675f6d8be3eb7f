/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * Each branch has a set of the freed names, as hashes of directory and name.  A hash
 * that is wrongly found costs a needless fsync().  Nothing tells when a filesystem
 * has written a removal of its own accord, so names stay until they are used again
 * or there are many.  Then the branch is synced as a whole, by a thread that has just
 * answered a request: the names so far are put aside as the old generation, and
 * forgotten when it is done.  While a set is full, any name may be in it.
 */

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "union-fs/clone.h"
#include "union-fs/freed.h"

enum {
	SLOTS = 1 << 16,
	KEYS_MANY = SLOTS / 2,    /* time for a sync */
	KEYS_MAX = SLOTS * 3 / 4, /* the set is full */
	KEY_NONE = 0,
	KEY_TAKEN_BACK,
	KEY_MIN,
};

/** struct keys - a set of 32-bit hashes, by open addressing */
struct keys {
	uint32_t *slot; /* SLOTS of them, or NULL: none yet */
	uint32_t n;     /* used slots */
	bool full;      /* any name may be in it */
};

/** struct ufs_freed - the freed names of a branch */
struct ufs_freed {
	pthread_mutex_t lock;
	struct keys young, old; /* lock; old ones are being synced */
};

static uint32_t key_of(const struct ufs_pin *pin, const char *name)
{
	uint64_t h = (uint64_t)pin->lower->ino * UINT64_C(0x9e3779b97f4a7c15);

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	h ^= h >> 32;
	h = h * UINT64_C(0xd6e8feb86659fd93) >> 32;
	return h < KEY_MIN ? KEY_MIN : (uint32_t)h;
}

/* The slot that has the key, or the free one where it belongs: there always is one. */
static uint32_t *find(const struct keys *k, uint32_t key)
{
	uint32_t i = key & (SLOTS - 1);

	while (k->slot[i] != KEY_NONE && k->slot[i] != key)
		i = (i + 1) & (SLOTS - 1);
	return &k->slot[i];
}

static bool has(const struct keys *k, uint32_t key)
{
	return k->full || (k->slot && *find(k, key) == key);
}

static void add(struct keys *k, uint32_t key)
{
	uint32_t *slot;

	if (!k->slot)
		k->slot = calloc(SLOTS, sizeof(*k->slot));
	slot = k->slot ? find(k, key) : NULL;
	if (slot && *slot == key)
		return;
	if (!slot || k->n == KEYS_MAX) {
		k->full = true;
		return;
	}
	*slot = key;
	k->n++;
}

static void take_back(struct keys *k, uint32_t key)
{
	uint32_t *slot = k->slot ? find(k, key) : NULL;

	if (slot && *slot == key)
		*slot = KEY_TAKEN_BACK;
}

static bool are_many(const struct keys *k)
{
	return k->full || k->n >= KEYS_MANY;
}

static void clear(struct keys *k)
{
	free(k->slot);
	*k = (struct keys){ 0 };
}

int ufs_freed_init(struct ufs *fs)
{
	fs->freed = calloc(fs->n_branches, sizeof(*fs->freed));
	if (!fs->freed)
		return -ENOMEM;
	for (unsigned i = 0; i < fs->n_branches; i++)
		pthread_mutex_init(&fs->freed[i].lock, NULL);
	return 0;
}

void ufs_freed_done(struct ufs *fs)
{
	for (unsigned i = 0; fs->freed && i < fs->n_branches; i++) {
		clear(&fs->freed[i].young);
		clear(&fs->freed[i].old);
		pthread_mutex_destroy(&fs->freed[i].lock);
	}
	free(fs->freed);
	fs->freed = NULL;
}

void ufs_freed_note(struct ufs *fs, const struct ufs_pin *pin, const char *name)
{
	struct ufs_freed *f = &fs->freed[pin->branch];
	const uint32_t key = key_of(pin, name);
	bool many;

	pthread_mutex_lock(&f->lock);
	add(&f->young, key);
	many = are_many(&f->young);
	pthread_mutex_unlock(&f->lock);
	if (many)
		__atomic_store_n(&fs->many_freed, true, __ATOMIC_RELEASE);
}

bool ufs_freed_has(struct ufs *fs, const struct ufs_pin *pin, const char *name)
{
	struct ufs_freed *f = &fs->freed[pin->branch];
	const uint32_t key = key_of(pin, name);
	bool found;

	pthread_mutex_lock(&f->lock);
	found = has(&f->young, key) || has(&f->old, key);
	pthread_mutex_unlock(&f->lock);
	return found;
}

static void forget(struct ufs *fs, const struct ufs_pin *pin, const char *name)
{
	struct ufs_freed *f = &fs->freed[pin->branch];
	const uint32_t key = key_of(pin, name);

	pthread_mutex_lock(&f->lock);
	take_back(&f->young, key);
	take_back(&f->old, key);
	pthread_mutex_unlock(&f->lock);
}

int ufs_freed_settle(const struct ufs_view *v, unsigned branch, const char *name)
{
	for (unsigned i = 0; i < v->n; i++) {
		const struct ufs_pin *pin = &v->pin[i];
		int r;

		if (pin->branch == branch || !ufs_freed_has(v->fs, pin, name))
			continue;
		r = ufs_sync_fd(pin->fd);
		if (r < 0 && r != -ENOENT) /* the copy itself was removed by somebody */
			return r;
		forget(v->fs, pin, name);
	}
	return 0;
}

static void relieve(struct ufs *fs, unsigned branch)
{
	struct ufs_freed *f = &fs->freed[branch];
	bool start;
	int r = 0;

	pthread_mutex_lock(&f->lock);
	start = are_many(&f->young);
	if (start) {
		f->old = f->young;
		f->young = (struct keys){ 0 };
	}
	pthread_mutex_unlock(&f->lock);
	if (!start)
		return;
	if (syncfs(fs->branch[branch].root_fd) < 0)
		r = -errno;
	pthread_mutex_lock(&f->lock);
	clear(&f->old);
	if (r < 0)
		f->young.full = true;
	pthread_mutex_unlock(&f->lock);
	if (r < 0)
		log_warn("sync branch %u: error %d", branch, -r);
}

void ufs_freed_relieve(struct ufs *fs)
{
	/* One thread at a time: the others have requests to serve. */
	if (!__atomic_load_n(&fs->many_freed, __ATOMIC_RELAXED) ||
	    __atomic_exchange_n(&fs->relieving, true, __ATOMIC_ACQUIRE))
		return;
	__atomic_store_n(&fs->many_freed, false, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < fs->n_branches; i++)
		relieve(fs, i);
	__atomic_store_n(&fs->relieving, false, __ATOMIC_RELEASE);
}
