/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

#include "csi/op.h"
#include "lib/base/err.h"

/**
 * csi_group_apply() - Make everything in a volume belong to a group (volume_mount_group)
 * @root_fd:	The volume's root (borrowed; may be O_PATH)
 * @gid:	Group
 *
 * As kubelet does it for fsGroup: the group of everything, rw for the group on files, rwx and
 * setgid on directories; symlinks keep their mode.  Nothing is done if the root has the group
 * already: it gets it last, so that an interrupted change is taken up again.
 *
 * Return: 0 or a negative errno
 */
int csi_group_apply(const struct csi_op *op, int root_fd, gid_t gid, struct uc_err *err);
