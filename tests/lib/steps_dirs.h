/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Each mkdirat() and unlinkat() is a step. */

#include <sys/types.h>

#include "tests/lib/steps.h"

int __real_mkdirat(int dirfd, const char *name, mode_t mode);
int __wrap_mkdirat(int dirfd, const char *name, mode_t mode);
int __wrap_mkdirat(int dirfd, const char *name, mode_t mode)
{
	return fails() ? -1 : __real_mkdirat(dirfd, name, mode);
}

int __real_unlinkat(int dirfd, const char *name, int flags);
int __wrap_unlinkat(int dirfd, const char *name, int flags);
int __wrap_unlinkat(int dirfd, const char *name, int flags)
{
	return fails() ? -1 : __real_unlinkat(dirfd, name, flags);
}
