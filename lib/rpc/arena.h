/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory that is released all at once: what belongs to one request. */

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

struct uc_arena_chunk;

/** struct uc_arena - embedded in its owner; one thread at a time */
struct uc_arena {
	struct uc_arena_chunk *chunks; /* owned; the first is the one in use */
	size_t used, cap;              /* of the first */
	size_t total;                  /* bytes taken from the system */
	size_t max;                    /* most of them; 0: no limit */
	bool failed;                   /* an allocation was refused */
};

#define UC_ARENA_INIT          \
	{                      \
		.chunks = NULL \
	}

/** uc_arena_done() - Release everything; the arena may be used again */
void uc_arena_done(struct uc_arena *arena);

/**
 * uc_arena_alloc() - Zeroed memory, aligned for anything
 * Return: memory that lives until uc_arena_done(), or NULL (then @arena->failed)
 */
void *uc_arena_alloc(struct uc_arena *arena, size_t n);

/** uc_arena_strdup() - Copy of a string; NULL where memory ran out */
char *uc_arena_strdup(struct uc_arena *arena, const char *s);

/** uc_arena_allocator() - The arena for protobuf-c, as an initialiser; freeing does nothing */
#define UC_ARENA_ALLOCATOR(arena)                                                               \
	{                                                                                       \
		.alloc = uc_arena_pb_alloc, .free = uc_arena_pb_free, .allocator_data = (arena) \
	}

void *uc_arena_pb_alloc(void *arena, size_t n);
void uc_arena_pb_free(void *arena, void *p);

#define cleanup_arena __attribute__((cleanup(uc_arena_done)))
