/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Mounts, on descriptors (the mount API of Linux 5.2 and later).
 *
 * A mount is made detached, checked, and only then moved to where others see
 * it; it is removed through the directory that holds it.  A detached mount is
 * gone when its descriptor is closed: a crash leaves nothing behind.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

/** struct uc_mount_opts - mount options, split by who understands them */
struct uc_mount_opts {
	uint64_t attr_set; /* MOUNT_ATTR_* of the mount: ro, nosuid, nodev, noexec, noatime, … */
	uint64_t attr_clr; /* MOUNT_ATTR_* that an option takes away: rw, suid, dev, exec, … */
	char **fs; /* options of the filesystem: "key" or "key=value"; ended by NULL; owned */
};

/** UC_MOUNT_NOSUID_NODEV … the attributes that callers outside lib/os name */
enum uc_mount_attr {
	UC_MOUNT_RDONLY = 0x1,
	UC_MOUNT_NOSUID = 0x2,
	UC_MOUNT_NODEV = 0x4,
	UC_MOUNT_NOEXEC = 0x8,
};

/**
 * uc_mount_opts_parse() - Split options with libmount
 * @flags:	List ended by NULL, or NULL: each element is one option or several with commas
 * @ret_opts:	Result; release with uc_mount_opts_done().  Untouched on failure
 * @err:	Error detail, or NULL
 *
 * Options that only user space knows (_netdev, nofail, user, x-*, …), those that turn a mount
 * into something else (bind, remount, move, propagation), loop devices, and what would stop the
 * machine (errors=panic) or use a further device of it (journal_dev, …) are refused by name.
 *
 * Return: 0, -EINVAL or -ENOMEM
 */
int uc_mount_opts_parse(char *const *flags, struct uc_mount_opts *ret_opts, struct uc_err *err);

/**
 * uc_mount_opts_check() - Ask the kernel whether a filesystem knows options, mounting nothing
 * @opts:	From uc_mount_opts_parse()
 * @fstype:	"ext4", …
 * @err:	Error detail that names the option, or NULL
 *
 * Return: 0, -EINVAL, or another negative errno where the kernel cannot be asked
 */
int uc_mount_opts_check(const struct uc_mount_opts *opts, const char *fstype, struct uc_err *err);

/** uc_mount_opts_done() - Release what uc_mount_opts_parse() gave; zeroed options are allowed */
void uc_mount_opts_done(struct uc_mount_opts *opts);

/**
 * uc_mount_fs() - Mount a filesystem, detached
 * @fstype:	"ext4", "fuse", …
 * @subtype:	As in "fuse.<subtype>", or NULL
 * @source:	Device or name that the mount table shows
 * @opts:	Options (borrowed), or NULL
 * @read_only:	Also the superblock is read-only
 * @ret_fd:	O_PATH descriptor of the mount's root (owned)
 * @err:	Error detail with the filesystem's own words, or NULL
 *
 * Return: 0 or a negative errno
 */
int uc_mount_fs(const char *fstype, const char *subtype, const char *source,
		const struct uc_mount_opts *opts, bool read_only, int *ret_fd, struct uc_err *err);

/**
 * uc_mount_clone() - Make a detached bind mount of what @fd has open
 * @fd:		File or directory on a mount (borrowed)
 * @attr_set:	MOUNT_ATTR_* to set on the clone
 * @attr_clr:	MOUNT_ATTR_* to clear
 * @ret_fd:	O_PATH descriptor of the clone (owned)
 *
 * Return: 0, -EINVAL if the mount is not mounted any more (or may not be cloned), or another
 * negative errno
 */
int uc_mount_clone(int fd, uint64_t attr_set, uint64_t attr_clr, int *ret_fd, struct uc_err *err);

/**
 * uc_mount_attach() - Move a detached mount onto a target
 * @mount_fd:	Detached mount (borrowed; refers to the attached one afterwards)
 * @target_fd:	Directory, or file for a file's mount (borrowed)
 *
 * Return: 0 or a negative errno
 */
int uc_mount_attach(int mount_fd, int target_fd, struct uc_err *err);

/**
 * uc_unmount_at() - Unmount the topmost mount on an entry of a directory
 * @parent_fd:	Directory that holds the mount point (borrowed)
 * @name:	Mount point's name in it; never followed if it is a symlink
 * @flags:	0 or MNT_DETACH | MNT_FORCE
 *
 * Return: 0, -EINVAL (not a mount point), -ENOENT, -EBUSY, or another negative errno
 */
int uc_unmount_at(int parent_fd, const char *name, int flags, struct uc_err *err);

/** struct uc_mount_info - what the kernel says of one mount */
struct uc_mount_info {
	uint64_t id;
	bool read_only; /* the mount or its superblock is */
	dev_t dev;      /* of the superblock */
	char *root;     /* path of the mount's root within its filesystem */
	char *target;   /* where it is mounted, as this process sees it */
	char *fstype;   /* "fuse.union-fs" */
	char *source;
};

/** uc_mount_info_done() - Release; a zeroed one is allowed */
void uc_mount_info_done(struct uc_mount_info *info);

#define cleanup_mount_info __attribute__((cleanup(uc_mount_info_done)))

/**
 * uc_mount_look() - Look at what is mounted where a descriptor lies
 * @fd:		Descriptor (borrowed; may be O_PATH)
 * @ret_info:	If positive, the mount; release with uc_mount_info_done()
 *
 * Touches no filesystem: a dead or hung one is described like any other.
 *
 * Return: positive if the descriptor is the root of a mount, 0 if it is not, or not any more
 * (the mount is not in this process' table: detached), or a negative errno
 */
int uc_mount_look(int fd, struct uc_mount_info *ret_info, struct uc_err *err);

/**
 * uc_mount_id() - Which mount a descriptor lies on
 * @fd:		Descriptor (borrowed; may be O_PATH)
 * @ret_id:	The mount's id
 * @ret_is_root: Whether the descriptor is its root; or NULL
 *
 * Touches no filesystem.
 *
 * Return: 0 or a negative errno
 */
int uc_mount_id(int fd, uint64_t *ret_id, bool *ret_is_root);

/**
 * uc_mount_each() - Go through this process' mount table
 * @fn:		Called with each mount (borrowed), last mounted first; a value other
 * than 0 ends the walk
 *
 * Return: what @fn returned, 0 at the end, or a negative errno
 */
int uc_mount_each(int (*fn)(void *data, const struct uc_mount_info *info), void *data,
		  struct uc_err *err);
