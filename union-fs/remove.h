/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Removing names. */

#include "union-fs/node.h"
#include "union-fs/view.h"

/**
 * ufs_unlink() - Remove a name that is no directory's, on every branch that has it
 *
 * Hidden ones first, the one that shows last: that is when it is gone.
 *
 * Return: 0 or a negative errno
 */
int ufs_unlink(struct ufs_node *parent, const char *name);

/**
 * ufs_rmdir() - Remove a directory, on every branch that has it
 *
 * Nothing is removed unless every copy is empty.
 *
 * Return: 0, -ENOTEMPTY, another negative errno
 */
int ufs_rmdir(struct ufs_node *parent, const char *name);

/** ufs_is_empty_dir() - Whether the directory that @fd (O_PATH) has open is empty: 1, 0 or a
 * negative errno */
int ufs_is_empty_dir(int fd);
