/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* No file has a loop device. */

#include <errno.h>

#include "lib/os/loopdev.h"

static int loopdev_find_result = -ENOENT;

int __wrap_uc_loopdev_find(dev_t dev, ino_t ino, const char *name, struct uc_loopdev *ret_loop,
			   struct uc_err *err);
int __wrap_uc_loopdev_find(dev_t dev, ino_t ino, const char *name, struct uc_loopdev *ret_loop,
			   struct uc_err *err)
{
	(void)name;
	(void)dev;
	(void)ino;
	(void)ret_loop;
	(void)err;
	return loopdev_find_result;
}
