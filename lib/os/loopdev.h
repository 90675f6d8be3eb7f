/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Loop devices, found again by what they are backed by.
 *
 * A device is identified by its backing file's inode and by offset and size
 * limit 0; its number says nothing, it may belong to somebody else a moment
 * later.
 */

#include <stdbool.h>
#include <sys/types.h>

#include "lib/base/err.h"

enum {
	UC_LOOPDEV_PATH_SIZE = 32,
};

/** struct uc_loopdev - a loop device and the file behind it */
struct uc_loopdev {
	int number; /* /dev/loop<number>; -1: none */
	dev_t dev;  /* of the backing file's filesystem */
	ino_t ino;  /* the backing file's inode */
};

#define UC_LOOPDEV_NONE      \
	{                    \
		.number = -1 \
	}

/** uc_loopdev_path() - "/dev/loopN"; returns @to */
const char *uc_loopdev_path(const struct uc_loopdev *loop, char to[static UC_LOOPDEV_PATH_SIZE]);

/** UC_LOOPDEV_PATH() - uc_loopdev_path() into a buffer of the enclosing block */
#define UC_LOOPDEV_PATH(loop) uc_loopdev_path((loop), (char[UC_LOOPDEV_PATH_SIZE]){ 0 })

/**
 * uc_loopdev_find() - Find the device that has a file behind it
 * @dev, @ino:	The file
 * @name:	Its name: a device whose file has it is found without asking the others
 * @ret_loop:	Result
 *
 * Return: 0, -ENOENT (none), -EUCLEAN (one with another offset or size), another negative errno
 */
int uc_loopdev_find(dev_t dev, ino_t ino, const char *name, struct uc_loopdev *ret_loop,
		    struct uc_err *err);

/**
 * uc_loopdev_attach() - Put a file behind a free loop device, with direct I/O
 * @fd:		The file, open for reading and writing (borrowed)
 * @name:	Shown by `losetup -l`, cut to 63 bytes
 * @ret_loop:	Result: the new device, or the one that was there already
 * @err:	Error detail, or NULL
 *
 * A new device allows discards.
 *
 * Return: 0 or a negative errno
 */
int uc_loopdev_attach(int fd, const char *name, struct uc_loopdev *ret_loop, struct uc_err *err);

/**
 * uc_loopdev_forbid_discard() - Let nothing punch holes into the file
 * @loop:	Device
 *
 * From then on discards fail, and zeroes are written out, until the device is detached.
 *
 * Return: 0 or a negative errno
 */
int uc_loopdev_forbid_discard(const struct uc_loopdev *loop, struct uc_err *err);

/**
 * uc_loopdev_detach() - Take a device away from its file
 * @loop:	Device: nothing happens unless it still has this very file behind it
 * @err:	Error detail, or NULL
 *
 * The device's next user finds discards allowed, as they are by default.
 *
 * Return: 0 (also if it was not attached any more), -EBUSY (in use), another negative errno
 */
int uc_loopdev_detach(const struct uc_loopdev *loop, struct uc_err *err);
