/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What branches have under a name. */

#include <fcntl.h>
#include <sys/stat.h>

#include "union-fs/objmap.h"
#include "union-fs/ufs.h"

struct ufs_view;

/** struct ufs_handle_buf - a file handle with room for the largest one */
struct ufs_handle_buf {
	int mount_id;
	union {
		struct file_handle handle;
		unsigned char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
	};
};

/** ufs_handle_get() - The file handle of what @fd has open; 0 or a negative errno (-EOPNOTSUPP:
 * there are none) */
int ufs_handle_get(int fd, struct ufs_handle_buf *ret);

/** struct ufs_found - an object of a branch, held by a descriptor */
struct ufs_found {
	int fd; /* O_PATH; owned */
	unsigned branch;
	struct statx st;
	bool has_handle;
	bool made; /* just now: whether its node has room was asked before */
	struct ufs_handle_buf h;
};

/** ufs_found_ident() - What @f is told by; borrows from it */
struct ufs_ident ufs_found_ident(const struct ufs_found *f);

/** ufs_found_is_dir() - Whether it is a directory */
bool ufs_found_is_dir(const struct ufs_found *f);

/**
 * ufs_probe_fd() - Describe what a descriptor has open
 * @fd:		O_PATH (taken, also on failure)
 * @ret:	Result; release with uc_closep(&ret->fd)
 *
 * Return: 0, -ELOOP (it lies on this very union), another negative errno
 */
int ufs_probe_fd(struct ufs *fs, unsigned branch, int fd, struct ufs_found *ret);

/**
 * ufs_probe() - Look for a name in one copy of a directory
 * @dirfd:	The copy (borrowed)
 * @name:	One component; never followed if it is a symlink
 *
 * Return: 0, -ENOENT, another negative errno
 */
int ufs_probe(struct ufs *fs, unsigned branch, int dirfd, const char *name, struct ufs_found *ret);

enum {
	UFS_FINDS_INLINE = 2,
};

/** struct ufs_finds - a file on the branch that decides, or a directory's copies in the order of
 * branches */
struct ufs_finds {
	unsigned n;
	int error; /* why a branch could not be asked, which may have a copy; 0: all were */
	struct ufs_found *found; /* @n of them */
	struct ufs_found some[UFS_FINDS_INLINE];
};

/** ufs_finds_done() - Release; a zeroed one is allowed */
void ufs_finds_done(struct ufs_finds *f);

#define cleanup_finds __attribute__((cleanup(ufs_finds_done)))

/**
 * ufs_find() - Look a name up in a directory
 * @v:		The directory's copies
 * @name:	One component
 * @ret:	Result, zeroed before; release with ufs_finds_done(), also on failure
 *
 * A branch that fails does not hide what others have, but where nothing is found its failure
 * is the answer: nobody may take a file for absent because a disk is.  For the same reason a
 * directory that is found elsewhere remembers it (ret->error, ufs_dir.error).
 *
 * Return: 0, -ENOENT, another negative errno
 */
int ufs_find(struct ufs *fs, const struct ufs_view *v, const char *name, struct ufs_finds *ret);

/**
 * ufs_type_at() - What a copy of a directory has under a name
 * Return: S_IFMT bits, -ENOENT, another negative errno
 */
int ufs_type_at(int dirfd, const char *name);
