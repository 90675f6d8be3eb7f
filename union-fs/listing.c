/* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "union-fs/attr.h"
#include "union-fs/listing.h"
#include "union-fs/view.h"

enum {
	READ_SIZE = 64 * 1024, /* bytes of a getdents64() */
	SLOTS_MIN = 256,       /* a power of two */
	BYTES_MAX = 64 << 20,  /* of all listings; a single one may be larger */
};

static uint64_t seed;

static void make_seed(void)
{
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = (uint64_t)(uintptr_t)&seed ^ (uint64_t)getpid();
}

struct ufs_listing *ufs_listing_new(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct ufs_listing *l = calloc(1, sizeof(*l));

	pthread_once(&once, make_seed);
	if (l)
		l->refs = 1;
	return l;
}

void ufs_listing_free(struct ufs_listing *l)
{
	if (!l)
		return;
	free(l->dent);
	free(l->names);
	free(l->slot);
	free(l);
}

static uint64_t fold(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Depends on a number that nobody knows, so that nobody can choose names that collide. */
static uint64_t hash(const char *name, size_t len)
{
	uint64_t h = seed ^ len, word;

	for (; len >= sizeof(word); len -= sizeof(word), name += sizeof(word)) {
		memcpy(&word, name, sizeof(word));
		h = fold(h ^ word, UINT64_C(0x9e3779b97f4a7c15));
	}
	word = 0;
	memcpy(&word, name, len);
	return fold(fold(h ^ word, UINT64_C(0x9e3779b97f4a7c15)) ^ seed,
		    UINT64_C(0xd6e8feb86659fd93));
}

/* The slot that has @name, or the free one where it belongs. */
static uint32_t *find_slot(const struct ufs_listing *l, const char *name, size_t len)
{
	size_t i = hash(name, len) & (l->n_slots - 1);

	while (l->slot[i] && strcmp(l->names + l->dent[l->slot[i] - 1].name, name) != 0)
		i = (i + 1) & (l->n_slots - 1);
	return &l->slot[i];
}

/* Keeps the hash table at most half full. */
static int grow_slots(struct ufs_listing *l)
{
	size_t n = l->n_slots ? l->n_slots * 2 : SLOTS_MIN;
	uint32_t *slot;

	if (l->n * 2 < l->n_slots)
		return 0;
	slot = calloc(n, sizeof(*slot));
	if (!slot)
		return -ENOMEM;
	free(l->slot);
	l->slot = slot;
	l->n_slots = n;
	for (size_t i = 0; i < l->n; i++)
		*find_slot(l, l->names + l->dent[i].name, l->dent[i].len) = (uint32_t)i + 1;
	return 0;
}

static int grow_arrays(struct ufs_listing *l, size_t len)
{
	if (l->n >= UINT32_MAX - 1)
		return -ENOMEM;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		struct ufs_dent *grown = reallocarray(l->dent, cap, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		l->dent = grown;
		l->cap = cap;
	}
	if (l->names_len + len + 1 > l->names_cap) {
		size_t cap = 2 * l->names_cap + len + 1024;
		char *grown = realloc(l->names, cap);

		if (!grown)
			return -ENOMEM;
		l->names = grown;
		l->names_cap = cap;
	}
	return 0;
}

int ufs_listing_add(struct ufs_listing *l, const char *name, uint64_t ino, uint8_t type)
{
	size_t len = strlen(name);
	uint32_t *slot;

	if (grow_slots(l) < 0 || grow_arrays(l, len) < 0)
		return -ENOMEM;
	slot = find_slot(l, name, len);
	if (*slot) {
		struct ufs_dent *known = &l->dent[*slot - 1];

		/* A filesystem that does not tell types leaves it to a look at the copies. */
		if ((known->type == DT_DIR || known->type == DT_UNKNOWN) &&
		    (type == DT_DIR || type == DT_UNKNOWN))
			known->merged = true;
		return 0;
	}
	memcpy(l->names + l->names_len, name, len + 1);
	l->dent[l->n] = (struct ufs_dent){
		.ino = ino,
		.name = l->names_len,
		.len = (uint16_t)len,
		.type = type,
	};
	l->names_len += len + 1;
	*slot = (uint32_t)++l->n;
	return 0;
}

static bool is_dots(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

static int read_copy(struct ufs *fs, const struct ufs_pin *p, char *buf, struct ufs_listing *l)
{
	cleanup_fd int fd = openat(p->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	while ((n = getdents64(fd, buf, READ_SIZE)) > 0) {
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *e = (const void *)(buf + at);
			uint64_t ino =
				ufs_ino(&fs->branch[p->branch], p->branch, p->lower->dev, e->d_ino);

			at += e->d_reclen;
			if (!is_dots(e->d_name) &&
			    ufs_listing_add(l, e->d_name, ino, e->d_type) < 0)
				return -ENOMEM;
		}
	}
	return n < 0 ? -errno : 0;
}

/* To what a complete one needs. */
static void shrink(struct ufs_listing *l)
{
	struct ufs_dent *dent = l->n ? reallocarray(l->dent, l->n, sizeof(*dent)) : NULL;
	char *names = l->n ? realloc(l->names, l->names_len) : NULL;

	if (dent) {
		l->dent = dent;
		l->cap = l->n;
	}
	if (names) {
		l->names = names;
		l->names_cap = l->names_len;
	}
	free(take_ptr(&l->slot));
	l->n_slots = 0;
	l->bytes = sizeof(*l) + l->cap * sizeof(*l->dent) + l->names_cap;
}

int ufs_listing_read(struct ufs *fs, const struct ufs_view *v, struct ufs_listing **ret)
{
	cleanup_with(ufs_listing_freep) struct ufs_listing *l = ufs_listing_new();
	cleanup_free char *buf = malloc(READ_SIZE);

	if (!l || !buf)
		return -ENOMEM;
	l->error = v->error;
	for (unsigned i = 0; i < v->n; i++) {
		int r = read_copy(fs, &v->pin[i], buf, l);

		if (r == -ENOMEM)
			return r;
		/* Removed at this moment: it was empty. */
		if (r < 0 && r != -ENOENT && r != -ESTALE)
			l->error = r;
	}
	shrink(l);
	*ret = take_ptr(&l);
	return 0;
}

void ufs_listing_unref(struct ufs *fs, struct ufs_listing *l)
{
	bool last;

	if (!l)
		return;
	ufs_lock(fs);
	last = !--l->refs;
	ufs_unlock(fs);
	if (last)
		ufs_listing_free(l);
}

/* Under the lock. */
static void list_remove(struct ufs *fs, struct ufs_opendir *d)
{
	*(d->prev ? &d->prev->next : &fs->listed_first) = d->next;
	*(d->next ? &d->next->prev : &fs->listed_last) = d->prev;
	d->prev = d->next = NULL;
}

/* Under the lock. */
static void list_add(struct ufs *fs, struct ufs_opendir *d)
{
	d->next = fs->listed_first;
	*(fs->listed_first ? &fs->listed_first->prev : &fs->listed_last) = d;
	fs->listed_first = d;
}

/* Takes a directory's listing from it, under the lock; what is to be released goes to @dead. */
static void drop_listing(struct ufs_opendir *d, struct ufs_listing **dead)
{
	struct ufs *fs = d->node->fs;
	struct ufs_listing *l = d->listing;

	if (!l)
		return;
	list_remove(fs, d);
	fs->listed_bytes -= l->bytes;
	d->listing = NULL;
	if (--l->refs)
		return;
	l->next = *dead;
	*dead = l;
}

/* The same, for want of memory.  Without memory for the name, it will be read from the start. */
static void give_up(struct ufs_opendir *d, struct ufs_listing **dead)
{
	const struct ufs_listing *l = d->listing;

	free(take_ptr(&d->last));
	if (l && d->told && d->told <= l->n)
		d->last = strdup(l->names + l->dent[d->told - 1].name);
	drop_listing(d, dead);
}

static void free_all(struct ufs_listing *dead)
{
	while (dead) {
		struct ufs_listing *l = dead;

		dead = l->next;
		ufs_listing_free(l);
	}
}

int ufs_opendir_new(struct ufs_node *node, uint64_t *ret_handle)
{
	struct ufs_opendir *d = calloc(1, sizeof(*d));
	struct ufs *fs = node->fs;
	int r;

	if (!d)
		return -ENOMEM;
	d->node = node;
	d->refs = 1;
	ufs_lock(fs);
	r = ufs_slots_add(&fs->dirs, d, &d->index);
	if (r == 0) {
		node->refs++;
		*ret_handle = ufs_slots_handle(&fs->dirs, d->index);
	}
	ufs_unlock(fs);
	if (r < 0)
		free(d);
	return r;
}

struct ufs_opendir *ufs_opendir_get(struct ufs *fs, uint64_t handle, const struct ufs_node *node)
{
	struct ufs_opendir *d;

	ufs_lock(fs);
	d = ufs_slots_of_handle(&fs->dirs, handle);
	if (d && d->node == node)
		d->refs++;
	else
		d = NULL;
	ufs_unlock(fs);
	return d;
}

void ufs_opendir_put(struct ufs_opendir *d)
{
	struct ufs_listing *dead = NULL;
	struct ufs *fs;
	bool last;

	if (!d)
		return;
	fs = d->node->fs;
	ufs_lock(fs);
	last = !--d->refs;
	ufs_unlock(fs);
	if (!last)
		return;
	ufs_lock(fs);
	drop_listing(d, &dead);
	ufs_unlock(fs);
	free_all(dead);
	ufs_node_put(d->node);
	free(d->last);
	free(d);
}

int ufs_opendir_close(struct ufs *fs, uint64_t handle, const struct ufs_node *node)
{
	struct ufs_opendir *d;

	ufs_lock(fs);
	d = ufs_slots_of_handle(&fs->dirs, handle);
	if (d && d->node == node)
		ufs_slots_remove(&fs->dirs, d->index);
	else
		d = NULL;
	ufs_unlock(fs);
	if (!d)
		return -EBADF;
	ufs_opendir_put(d);
	return 0;
}

/* Where to go on in a new listing of a directory that has given its own up. */
static size_t resume(const struct ufs_opendir *d, const struct ufs_listing *l)
{
	for (size_t i = 0; d->last && i < l->n; i++)
		if (strcmp(l->names + l->dent[i].name, d->last) == 0)
			return i + 1;
	return 0;
}

struct ufs_listing *ufs_opendir_listing(struct ufs_opendir *d)
{
	struct ufs *fs = d->node->fs;
	struct ufs_listing *l;

	ufs_lock(fs);
	l = d->listing;
	if (l) {
		l->refs++;
		list_remove(fs, d);
		list_add(fs, d);
	}
	ufs_unlock(fs);
	return l;
}

size_t ufs_opendir_set_listing(struct ufs_opendir *d, struct ufs_listing *l, size_t at)
{
	struct ufs *fs = d->node->fs;
	struct ufs_listing *dead = NULL;

	ufs_lock(fs);
	/* Any other position is one that the program has chosen. */
	if (at && at == d->told && !d->listing)
		at = resume(d, l);
	drop_listing(d, &dead);
	free(take_ptr(&d->last));
	d->listing = l;
	d->told = at;
	l->refs++;
	list_add(fs, d);
	fs->listed_bytes += l->bytes;
	while (fs->listed_bytes > BYTES_MAX && fs->listed_last != d)
		give_up(fs->listed_last, &dead);
	ufs_unlock(fs);
	free_all(dead);
	return at;
}

void ufs_opendir_told(struct ufs_opendir *d, size_t n)
{
	ufs_lock(d->node->fs);
	d->told = n;
	ufs_unlock(d->node->fs);
}

void ufs_opendir_free(struct ufs_opendir *d)
{
	if (!d)
		return;
	ufs_listing_free(d->listing);
	free(d->last);
	free(d);
}
