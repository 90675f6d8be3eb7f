/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The memory that all requests of a server may take together.  Loop's thread only.
 *
 * Limits per connection, stream and message multiply to gigabytes; this one is
 * what holds the process in its bounds.
 */

#include <stdbool.h>
#include <stddef.h>

/** struct uc_budget - embedded in its owner; must outlive whoever takes from it */
struct uc_budget {
	size_t used;
	size_t max;
};

/** uc_budget_force() - Account for @n bytes that exist already, above the limit if need be */
static inline void uc_budget_force(struct uc_budget *b, size_t n)
{
	b->used += n;
}

/** uc_budget_take() - Ask for @n bytes; false if they are not there */
static inline bool uc_budget_take(struct uc_budget *b, size_t n)
{
	if (b->used > b->max || n > b->max - b->used)
		return false;
	uc_budget_force(b, n);
	return true;
}

/** uc_budget_give() - Return @n bytes */
static inline void uc_budget_give(struct uc_budget *b, size_t n)
{
	b->used -= n;
}
