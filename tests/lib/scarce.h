/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory for so many allocations, and no more. */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static unsigned allocations_left = UINT_MAX; /* that: all */

static inline bool may_allocate(void)
{
	return allocations_left == UINT_MAX || (allocations_left && allocations_left--);
}

/* For who takes a function, as jansson does. */
static inline void *scarce_malloc(size_t n)
{
	return may_allocate() ? malloc(n) : NULL;
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return may_allocate() ? __real_calloc(n, size) : NULL;
}

void *__real_reallocarray(void *p, size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return may_allocate() ? __real_reallocarray(p, n, size) : NULL;
}

char *__real_strdup(const char *s);
char *__wrap_strdup(const char *s);
char *__wrap_strdup(const char *s)
{
	return may_allocate() ? __real_strdup(s) : NULL;
}
