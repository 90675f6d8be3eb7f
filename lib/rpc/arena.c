/* SPDX-License-Identifier: Apache-2.0 */

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/rpc/arena.h"

enum {
	ALIGN = alignof(max_align_t),
	CHUNK_MIN = 1024,
	CHUNK_MAX = 64 * 1024, /* what does not fit in one gets a chunk of its own size */
};

/* Where the sanitizer can see an access behind the end of each allocation. */
#ifdef __SANITIZE_ADDRESS__
#define EVERY_ALLOCATION_ALONE true
#else
#define EVERY_ALLOCATION_ALONE false
#endif

struct uc_arena_chunk {
	struct uc_arena_chunk *next;
	alignas(max_align_t) char data[];
};

void uc_arena_done(struct uc_arena *arena)
{
	struct uc_arena_chunk *c, *next;

	for (c = arena->chunks; c; c = next) {
		next = c->next;
		free(c);
	}
	*arena = (struct uc_arena){ .max = arena->max };
}

static bool grow(struct uc_arena *arena, size_t n)
{
	struct uc_arena_chunk *c;
	size_t cap = arena->cap ? 2 * arena->cap : CHUNK_MIN;

	if (cap > CHUNK_MAX)
		cap = CHUNK_MAX;
	if (cap < n || EVERY_ALLOCATION_ALONE)
		cap = n;
	if (arena->max && cap + sizeof(*c) > arena->max - arena->total) {
		/* Not a whole chunk, then, but what is asked for. */
		cap = n;
		if (cap + sizeof(*c) > arena->max - arena->total)
			return false;
	}
	c = malloc(sizeof(*c) + cap);
	if (!c)
		return false;
	c->next = arena->chunks;
	arena->chunks = c;
	arena->used = 0;
	arena->cap = cap;
	arena->total += sizeof(*c) + cap;
	return true;
}

static void *alloc(struct uc_arena *arena, size_t n)
{
	void *p;

	if (n > SIZE_MAX / 4)
		goto fail;
	n = (n + ALIGN - 1) / ALIGN * ALIGN;
	if (n == 0)
		n = ALIGN;
	if (n > arena->cap - arena->used && !grow(arena, n))
		goto fail;
	p = arena->chunks->data + arena->used;
	arena->used += n;
	return p;
fail:
	arena->failed = true;
	return NULL;
}

void *uc_arena_alloc(struct uc_arena *arena, size_t n)
{
	void *p = alloc(arena, n);

	return p ? memset(p, 0, n) : NULL;
}

char *uc_arena_strdup(struct uc_arena *arena, const char *s)
{
	size_t n = strlen(s) + 1;
	char *p = alloc(arena, n);

	return p ? memcpy(p, s, n) : NULL;
}

void *uc_arena_pb_alloc(void *arena, size_t n)
{
	return alloc(arena, n);
}

void uc_arena_pb_free(void *arena, void *p)
{
	(void)arena;
	(void)p;
}
