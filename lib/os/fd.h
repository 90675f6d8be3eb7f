/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files and descriptors: whole reads and writes, and replacement that a crash cannot tear. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

/**
 * uc_write_all() - Write everything, across short writes and EINTR
 * Return: 0 or a negative errno
 */
int uc_write_all(int fd, const void *p, size_t n);

/**
 * uc_read_fd() - Read to the end
 * @fd:		Descriptor (borrowed), read from where it stands
 * @max:	Most bytes that are accepted
 * @ret:	Buffer to append to; on failure it has what it had before
 *
 * Return: 0, -EFBIG (more than @max), or another negative errno
 */
int uc_read_fd(int fd, size_t max, struct uc_buf *ret);

/**
 * uc_read_file_at() - Read a whole file
 * @dirfd:	Directory (borrowed) or AT_FDCWD
 * @name:	Path below it; the last component is not followed if it is a symlink
 * @max:	Most bytes that are accepted
 * @ret:	Buffer to append to; on failure it has what it had before
 *
 * Return: 0, -ENOENT, -EFBIG, or another negative errno
 */
int uc_read_file_at(int dirfd, const char *name, size_t max, struct uc_buf *ret);

/**
 * uc_write_file_at() - Write into an existing file, as into sysfs: one write(), no creation
 * Return: 0 or a negative errno
 */
int uc_write_file_at(int dirfd, const char *name, const char *text);

/**
 * uc_replace_file_at() - Write a file so that a crash leaves the old or the new content
 * @dirfd:	Directory (borrowed; not O_PATH)
 * @name:	Name in it
 * @p:		Content (borrowed)
 * @n:		Its length
 * @mode:	Permissions
 * @err:	Error detail, or NULL
 *
 * Temporary file, fsync, rename, fsync of the directory.  The temporary file is
 * called ".<name>.tmp": one that a crash has left is overwritten by the next call, and
 * removed by uc_remove_file_at().
 *
 * Return: 0 or a negative errno; on failure the old content is in place, except
 * that after a failed last fsync either may be
 */
int uc_replace_file_at(int dirfd, const char *name, const void *p, size_t n, mode_t mode,
		       struct uc_err *err);

/**
 * uc_remove_file_at() - Remove a file for good, and what a crash in uc_replace_file_at() left of it
 *
 * The directory is synced.
 *
 * Return: 0 (also if it was not there) or a negative errno
 */
int uc_remove_file_at(int dirfd, const char *name, struct uc_err *err);

/**
 * uc_open_dir_at() - Open a directory for reading, not following a symlink in the last component
 * Return: descriptor (owned) or a negative errno
 */
int uc_open_dir_at(int dirfd, const char *name);

/**
 * uc_make_dir_at() - Create a directory if it is not there, and open it
 * @mode:	Permissions if it is created
 *
 * A new directory is durable: its parent is synced.  On failure there is no new one.
 *
 * Return: descriptor (owned) or a negative errno (-ENOTDIR where something else has the name)
 */
int uc_make_dir_at(int dirfd, const char *name, mode_t mode);

/**
 * uc_dir_is_empty() - Whether a directory has no entry except those in @ignore
 * @dirfd:	Directory (borrowed, not O_PATH)
 * @ignore:	List ended by NULL, or NULL
 *
 * Return: 1, 0 or a negative errno
 */
int uc_dir_is_empty(int dirfd, const char *const *ignore);

/**
 * uc_dir_each() - Call @fn for every entry but "." and ".."
 * @dirfd:	Directory (borrowed, not O_PATH)
 * @fn:		Called with the entry's name; a value other than 0 ends the walk
 *
 * Return: what @fn returned, 0 at the end, or a negative errno
 */
int uc_dir_each(int dirfd, int (*fn)(void *data, const char *name), void *data);

/** UC_FD_PATH_SIZE - room for "/proc/self/fd/N" */
#define UC_FD_PATH_SIZE 32

/** UC_FD_PATH() - A path that names what @fd has open, in a buffer of the enclosing block */
#define UC_FD_PATH(fd) uc_fd_path((char[UC_FD_PATH_SIZE]){ 0 }, (fd))

/** uc_fd_path() - See UC_FD_PATH(); returns @to */
const char *uc_fd_path(char to[static UC_FD_PATH_SIZE], int fd);
