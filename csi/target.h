/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Staging and target paths: where requests have volumes appear.
 *
 * They lie below one of the driver's roots and are reached without following a
 * symlink; mounts are attached to a descriptor and removed through the parent's
 * descriptor and the name.
 */

#include <stdbool.h>
#include <stddef.h>

#include "csi/backend.h"
#include "lib/base/err.h"
#include "lib/os/path.h"

/** struct csi_roots - below which paths may lie */
struct csi_roots {
	struct uc_root *roots;
	size_t n;
};

/**
 * csi_roots_add() - Add a further root
 *
 * One that is not there is added all the same, and opened when it is there.
 *
 * Return: 0, -ENOENT if it is not there, or another negative errno
 */
int csi_roots_add(struct csi_roots *roots, const char *path, struct uc_err *err);

/** csi_roots_done() - Release; zeroed ones are allowed */
void csi_roots_done(struct csi_roots *roots);

/** struct csi_target - a path of a request, opened */
struct csi_target {
	char *rel;        /* below its root; owned */
	const char *name; /* last component, inside rel */
	int parent_fd;    /* directory that holds it; owned */
};

#define CSI_TARGET_INIT                      \
	{                                    \
		.rel = NULL, .parent_fd = -1 \
	}

/** csi_target_done() - Release; CSI_TARGET_INIT is allowed */
void csi_target_done(struct csi_target *t);

#define cleanup_target __attribute__((cleanup(csi_target_done)))

/**
 * csi_target_open() - Open the directory that holds a path
 * @field:	The path's field in the request, for the error
 * @path:	As the request gives it
 * @ret_target:	Result; release with csi_target_done()
 *
 * Return: 0; -ENOENT, with status FAILED_PRECONDITION (the directory above it is missing); another
 * negative errno, with status INVALID_ARGUMENT for a path that is relative, too long, outside the
 * roots, or leads through a symlink
 */
int csi_target_open(const struct csi_roots *roots, const char *field, const char *path,
		    struct csi_target *ret_target, struct uc_err *err);

/**
 * csi_target_check() - The lexical half of csi_target_open(): for requests that are refused before
 * anything is done
 * @ret_path:	The path in its one spelling, for what is recorded and compared: below the root as it
 * was configured, without "//" and a trailing "/" (owned by the caller)
 */
int csi_target_check(const struct csi_roots *roots, const char *field, const char *path,
		     char **ret_path, struct uc_err *err);

/**
 * csi_target_mount() - Have a clone of a mount at a target
 * @t:		Target
 * @b, @v:	Whose it is
 * @source_fd:	The mount to clone (borrowed)
 * @attr_set, @attr_clr: MOUNT_ATTR_* to change on the clone
 *
 * The directory is made if it is not there.  One that is there must be empty.  A clone of
 * @source_fd that is there already is left as it is; a mount of the volume that is another one (its
 * server has died and was replaced, or it is writable and should not be) is replaced.
 *
 * Return: 0, or a negative errno (FAILED_PRECONDITION where something else is there)
 */
int csi_target_mount(const struct csi_target *t, struct csi_backend *b, const struct uc_volume *v,
		     int source_fd, uint64_t attr_set, uint64_t attr_clr, struct uc_err *err);

/**
 * csi_target_look() - What is mounted at a target
 * @ret_info:	Result, if positive; release with uc_mount_info_done()
 *
 * Return: positive: a mount; 0: a directory, or nothing; negative errno
 */
int csi_target_look(const struct csi_target *t, struct uc_mount_info *ret_info, struct uc_err *err);

/**
 * csi_target_unmount() - Remove a volume's mounts from a target, and the directory
 * @b, @v:	Whose they must be; @v NULL: of a volume that is not known, so only its own union
 * @id:		The volume's id
 * @remove:	Also remove the directory
 *
 * A target that is missing, not a mount, or dead is fine.
 *
 * Return: 0, or a negative errno (FAILED_PRECONDITION where something else is mounted, or the
 * directory is not empty)
 */
int csi_target_unmount(const struct csi_target *t, struct csi_backend *b, const struct uc_volume *v,
		       const char *id, bool remove, struct uc_err *err);
