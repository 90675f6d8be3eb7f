/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <string.h>

#include "csi/capability.h"
#include "csi/status.h"
#include "lib/base/cleanup.h"
#include "lib/base/str.h"
#include "lib/os/mkfs.h"
#include "lib/os/mount.h"

#define MODE(m) CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__##m

void csi_capability_done(struct csi_capability *c)
{
	uc_strv_free(c->mount_flags);
	*c = (struct csi_capability){ .fstype = NULL };
}

const char *csi_access_mode_to_str(int mode)
{
	const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(
		&csi__v1__volume_capability__access_mode__mode__descriptor, mode);

	return v ? v->name : "UNKNOWN";
}

bool csi_access_mode_is_read_only(int mode)
{
	return mode == MODE(SINGLE_NODE_READER_ONLY);
}

static int check_mode(const Csi__V1__VolumeCapability__AccessMode *mode, struct uc_err *err)
{
	if (!mode)
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT, "access_mode is missing");
	switch (mode->mode) {
	case MODE(SINGLE_NODE_WRITER):
	case MODE(SINGLE_NODE_READER_ONLY):
	case MODE(SINGLE_NODE_SINGLE_WRITER):
	case MODE(SINGLE_NODE_MULTI_WRITER):
		return 0;
	default:
		return csi_fail(
			err, UC_GRPC_INVALID_ARGUMENT,
			"access_mode %s (%d) is not supported: a volume is on one node at a time",
			csi_access_mode_to_str((int)mode->mode), (int)mode->mode);
	}
}

static int check_mount_flags(const Csi__V1__VolumeCapability__MountVolume *m, char ***ret_flags,
			     struct uc_err *err)
{
	struct uc_mount_opts opts = { 0 };
	cleanup_strv char **flags = NULL;
	int r;

	for (size_t i = 0; i < m->n_mount_flags; i++)
		if (uc_strv_push(&flags, m->mount_flags[i]) < 0)
			return uc_fail(err, ENOMEM, "mount_flags");
	r = uc_mount_opts_parse(flags, &opts, err);
	uc_mount_opts_done(&opts);
	if (r < 0)
		return csi_as(err, uc_wrap(err, r, "mount_flags"), UC_GRPC_INVALID_ARGUMENT);
	*ret_flags = take_ptr(&flags);
	return 0;
}

static int parse(const Csi__V1__VolumeCapability *c, struct csi_capability *ret, struct uc_err *err)
{
	const Csi__V1__VolumeCapability__MountVolume *m = c->mount;
	uint64_t gid;
	int r;

	if (c->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK)
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT,
				"access_type block is not supported, only mount");
	if (c->access_type_case != CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT)
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT, "access_type is missing");
	r = check_mode(c->access_mode, err);
	if (r < 0)
		return r;
	if (*m->fs_type && !uc_mkfs_min_size(m->fs_type))
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT,
				"fs_type `%s` is not supported, only ext4, xfs and btrfs",
				UC_PRINTABLE(m->fs_type));
	if (*m->volume_mount_group &&
	    uc_str_parse_u64(m->volume_mount_group, UINT32_MAX - 1, &gid) < 0)
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT,
				"volume_mount_group `%s` is not a gid",
				UC_PRINTABLE(m->volume_mount_group));
	r = check_mount_flags(m, &ret->mount_flags, err);
	if (r < 0)
		return r;
	ret->fstype = m->fs_type;
	ret->group = m->volume_mount_group;
	ret->access_mode = (int)c->access_mode->mode;
	return 0;
}

int csi_capability_parse(const Csi__V1__VolumeCapability *c, const char *field,
			 struct csi_capability *ret, struct uc_err *err)
{
	struct csi_capability parsed = { .fstype = NULL };
	int r;

	if (!c)
		return csi_fail(err, UC_GRPC_INVALID_ARGUMENT, "%s is missing", field);
	r = parse(c, &parsed, err);
	if (r < 0)
		return uc_wrap(err, r, "%s", field);
	*ret = parsed;
	return 0;
}
