/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Each write() is a step, except to the log. */

#include <unistd.h>

#include "tests/lib/steps.h"

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
	if (fd == STDERR_FILENO)
		return (ssize_t)n;
	return fails() ? -1 : __real_write(fd, p, n);
}
