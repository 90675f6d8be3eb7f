/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What requests are made of: text, and a capability that is fine until a test spoils it. */

#include "csi.pb-c.h"

#define MODE(m) CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__##m

static Csi__V1__VolumeCapability capability;
static Csi__V1__VolumeCapability__MountVolume mount_volume;
static Csi__V1__VolumeCapability__AccessMode access_mode;

static inline void capability_init(void)
{
	csi__v1__volume_capability__init(&capability);
	csi__v1__volume_capability__mount_volume__init(&mount_volume);
	csi__v1__volume_capability__access_mode__init(&access_mode);
	access_mode.mode = MODE(SINGLE_NODE_WRITER);
	capability.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
	capability.mount = &mount_volume;
	capability.access_mode = &access_mode;
}

/* A constant as messages want it; nobody writes to it. */
static inline char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}
