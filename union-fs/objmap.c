/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * A linear hash table: it has `base` buckets, a power of two, of which the first
 * n_buckets - base are split into two.  Adding an object splits one more, so that
 * growing never stops everybody while a large table is rehashed.
 */

#include <errno.h>
#include <stdlib.h>

#include "union-fs/objmap.h"

enum {
	BUCKETS_MIN = 256, /* a power of two */
};

static uint64_t hash(dev_t dev, ino_t ino, uint16_t branch)
{
	uint64_t x = (uint64_t)ino * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)dev << 17 ^ branch;

	x ^= x >> 32;
	x *= UINT64_C(0xd6e8feb86659fd93);
	return x ^ x >> 32;
}

static size_t bucket_of(const struct ufs_objmap *m, dev_t dev, ino_t ino, uint16_t branch)
{
	uint64_t h = hash(dev, ino, branch);
	size_t i = (size_t)(h & (2 * m->base - 1));

	return i < m->n_buckets ? i : i - m->base;
}

int ufs_objmap_init(struct ufs_objmap *m)
{
	*m = (struct ufs_objmap){ .n_buckets = BUCKETS_MIN,
				  .cap = BUCKETS_MIN,
				  .base = BUCKETS_MIN };
	m->bucket = calloc(m->cap, sizeof(struct ufs_lower *));
	return m->bucket ? 0 : -ENOMEM;
}

void ufs_objmap_done(struct ufs_objmap *m)
{
	for (size_t i = 0; i < m->n_buckets; i++)
		while (m->bucket[i]) {
			struct ufs_lower *l = m->bucket[i];

			m->bucket[i] = l->next;
			ufs_lower_free(l);
		}
	free(m->bucket);
	*m = (struct ufs_objmap){ 0 };
}

struct ufs_lower *ufs_objmap_find(const struct ufs_objmap *m, const struct ufs_ident *id)
{
	struct ufs_lower *l = m->bucket[bucket_of(m, id->dev, id->ino, id->branch)];

	while (l && !ufs_lower_is(l, id))
		l = l->next;
	return l;
}

/* Splits the next bucket, if there is room for it. */
static void grow(struct ufs_objmap *m)
{
	struct ufs_lower *l, *next;
	size_t from = m->n_buckets - m->base;

	if (m->n_buckets == m->cap) {
		struct ufs_lower **grown =
			reallocarray(m->bucket, m->cap, 2 * sizeof(struct ufs_lower *));

		if (!grown)
			return;
		m->bucket = grown;
		m->cap *= 2;
	}
	l = m->bucket[from];
	m->bucket[from] = m->bucket[m->n_buckets] = NULL;
	m->n_buckets++;
	for (; l; l = next) {
		size_t i = bucket_of(m, l->dev, l->ino, l->branch);

		next = l->next;
		l->next = m->bucket[i];
		m->bucket[i] = l;
	}
	if (m->n_buckets == 2 * m->base)
		m->base *= 2;
}

void ufs_objmap_add(struct ufs_objmap *m, struct ufs_lower *l)
{
	size_t i;

	m->n++;
	if (m->n > m->n_buckets)
		grow(m);
	i = bucket_of(m, l->dev, l->ino, l->branch);
	l->next = m->bucket[i];
	m->bucket[i] = l;
}

void ufs_objmap_remove(struct ufs_objmap *m, struct ufs_lower *l)
{
	struct ufs_lower **p = &m->bucket[bucket_of(m, l->dev, l->ino, l->branch)];

	while (*p != l)
		p = &(*p)->next;
	*p = l->next;
	l->next = NULL;
	m->n--;
}
