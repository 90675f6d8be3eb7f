/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An operation of many steps, made to fail at each of them.  What a test wraps asks
 * fails(): the n-th step fails with EIO once, or from the n-th on all do, as if the
 * disk were gone or the process killed there.
 */

#include <errno.h>
#include <stdbool.h>

static unsigned steps, fail_at, fail_from;

static inline bool fails(void)
{
	steps++;
	if (steps != fail_at && (!fail_from || steps < fail_from))
		return false;
	errno = EIO;
	return true;
}

static inline void fail_nothing(void)
{
	steps = fail_at = fail_from = 0;
}

/* The @n-th step from here on fails, and with @all those behind it. */
static inline void fail_step(unsigned n, bool all)
{
	fail_nothing();
	*(all ? &fail_from : &fail_at) = n;
}
