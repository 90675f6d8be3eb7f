/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Paths that come from a request.
 *
 * A root is opened once.  Everything below it is opened by openat2() relative
 * to it: no component may be a symlink, none may lead out of it.
 */

#include <sys/types.h>

#include "lib/base/cleanup.h"
#include "lib/base/err.h"

/**
 * struct uc_root - a directory below which requests may name paths
 *
 * Whoever names a path may know the directory by the name that it was configured with, or by the
 * one that this leads to: where it is a symlink, they differ, and both are below the root.
 */
struct uc_root {
	char *path; /* as configured, absolute and without "//", "." and ".." */
	char *real; /* canonical; NULL while not open */
	int fd;     /* O_PATH; -1 while not open */
};

#define UC_ROOT_INIT                                 \
	{                                            \
		.path = NULL, .real = NULL, .fd = -1 \
	}

/**
 * uc_root_init() - Name a root, which need not be there
 * @path:	Absolute or relative; ".." takes the component before it away, as in kubelet
 * @ret_root:	Result, not open; release with uc_root_done()
 * @err:	Error detail, or NULL
 *
 * Return: 0 or a negative errno
 */
int uc_root_init(struct uc_root *ret_root, const char *path, struct uc_err *err);

/**
 * uc_root_open() - Follow the symlinks of a root's path, and open where they lead
 *
 * One that is open stays as it is, unless its directory has been removed.
 *
 * Return: 0 or a negative errno; the root is then not open
 */
int uc_root_open(struct uc_root *root, struct uc_err *err);

/** uc_root_done() - Release a root; UC_ROOT_INIT is allowed */
void uc_root_done(struct uc_root *root);

/**
 * uc_path_below() - The part of a path below a root
 * @root:	Root
 * @path:	Absolute path as a request gives it
 *
 * Purely lexical, below either name of the root.  "//" and a trailing "/" mean nothing; "." and
 * ".." as components, and the root itself, are not below it.
 *
 * Return: relative path that the caller frees, or NULL if @path does not lie below
 * @root (or memory ran out: errno is then ENOMEM, else 0)
 */
char *uc_path_below(const struct uc_root *root, const char *path);

/**
 * uc_openat_beneath() - Open what lies below a directory, following no symlink
 * @dirfd:	Directory (borrowed)
 * @rel:	Relative path, as from uc_path_below()
 * @flags:	As for open(); O_CLOEXEC is added
 *
 * Return: descriptor (owned); -ELOOP where a component is a symlink, -EXDEV where it leads out;
 * other negative errno
 */
int uc_openat_beneath(int dirfd, const char *rel, int flags);

/**
 * uc_open_parent_beneath() - Open the directory that holds the last component
 * @dirfd:	Directory (borrowed)
 * @rel:	Relative path
 * @ret_name:	Points to the last component, inside @rel
 *
 * Return: O_PATH descriptor (owned) or a negative errno
 */
int uc_open_parent_beneath(int dirfd, const char *rel, const char **ret_name);
