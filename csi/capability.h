/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A VolumeCapability of a request, checked. */

#include <stdbool.h>
#include <stddef.h>

#include "csi.pb-c.h"
#include "lib/base/err.h"

/** struct csi_capability - what of a VolumeCapability concerns us; borrowed from the request but
 * for mount_flags */
struct csi_capability {
	const char *fstype; /* "" where the request leaves it to us */
	char **mount_flags; /* ended by NULL, or NULL; owned */
	const char *group;  /* volume_mount_group: decimal gid, or "" */
	int access_mode;    /* CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__… */
};

/** csi_capability_done() - Release; a zeroed one is allowed */
void csi_capability_done(struct csi_capability *c);

#define cleanup_capability __attribute__((cleanup(csi_capability_done)))

/**
 * csi_capability_parse() - Check a capability
 * @c:		From the request, or NULL
 * @field:	Its field's name, for the error
 * @ret:	Result; release with csi_capability_done().  Untouched on failure
 *
 * Block volumes, access modes of several nodes, filesystems that we do not make, unknown mount
 * options and groups that are no number are refused by name.
 *
 * Return: 0, or a negative errno with status INVALID_ARGUMENT
 */
int csi_capability_parse(const Csi__V1__VolumeCapability *c, const char *field,
			 struct csi_capability *ret, struct uc_err *err);

/** csi_access_mode_to_str() - "SINGLE_NODE_WRITER", …; "UNKNOWN" for what CSI does not know */
const char *csi_access_mode_to_str(int mode);

/** csi_access_mode_is_read_only() - Whether volumes of that mode are never written */
bool csi_access_mode_is_read_only(int mode);

/** csi_default_fstype - of a volume whose capability names none */
#define CSI_DEFAULT_FSTYPE "ext4"
