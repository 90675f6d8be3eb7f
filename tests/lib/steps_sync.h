/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Each fsync() and renameat() is a step: what makes a file's new content last. */

#include "tests/lib/unit.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>

#include "tests/lib/steps.h"

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	assert_true(fcntl(fd, F_GETFD) >= 0);
	return fails() ? -1 : 0; /* no test needs the disk to have it */
}

int __real_renameat(int from, const char *name, int to, const char *new_name);
int __wrap_renameat(int from, const char *name, int to, const char *new_name);
int __wrap_renameat(int from, const char *name, int to, const char *new_name)
{
	return fails() ? -1 : __real_renameat(from, name, to, new_name);
}
