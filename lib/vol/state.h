/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A volume's state on disk: one file, volumes/<id>/state.json, replaced as a
 * whole.  A crash at any instant leaves the old or the new state; reading it
 * again is the only recovery there is, and so the normal path too.
 *
 * The file has what the controller knows of the volume and what the node does
 * with it.  Whoever changes it holds the volume's lock and works on what it
 * has read under that lock.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/uuid.h"
#include "lib/vol/name.h"
#include "lib/vol/params.h"

/**
 * enum uc_volume_phase - what the controller has made of a volume
 *
 *    CREATING - branch files may exist, whole, in part or not at all
 *        - may be removed, with its files: nobody was told that the volume exists
 *        - nothing may use it
 *    READY - all of it exists
 *        - may be published, staged, listed
 *        - no file of it is ever removed
 *    DELETING - nobody uses it and somebody asked for its removal
 *        - may only be removed; files may be missing
 */
enum uc_volume_phase {
	UC_VOLUME_CREATING,
	UC_VOLUME_READY,
	UC_VOLUME_DELETING,
	UC_VOLUME_PHASE_COUNT,
};

/**
 * enum uc_format - whether a branch's device carries its filesystem
 *
 *    NEVER - nothing was done; a device that is not blank is not ours to format
 *    STARTED - mkfs has begun; blank, or a filesystem with our UUID, may be made again
 *    DONE - it carries the filesystem, for good: it is never formatted again
 */
enum uc_format {
	UC_FORMAT_NEVER,
	UC_FORMAT_STARTED,
	UC_FORMAT_DONE,
	UC_FORMAT_COUNT,
};

/**
 * enum uc_stage_phase - what the node has made of a volume
 *
 *    NONE - no device, no mount, no server
 *    STAGING - any of them may exist; may be undone
 *    STAGED - all of them exist (until a reboot or the server's death)
 *    UNSTAGING - any of them may exist; may only be undone
 */
enum uc_stage_phase {
	UC_STAGE_NONE,
	UC_STAGE_STAGING,
	UC_STAGE_STAGED,
	UC_STAGE_UNSTAGING,
	UC_STAGE_PHASE_COUNT,
};

/** struct uc_branch - one branch of a volume of the local backend */
struct uc_branch {
	char pool[UC_UUID_TEXT_SIZE]; /* UUID of the pool that holds the file */
	char uuid[UC_UUID_TEXT_SIZE]; /* of the filesystem on it, chosen when the volume is made */
	uint64_t size;                /* bytes */
	enum uc_format format;
	uint64_t file_dev,
		file_ino; /* the file behind its loop device while the volume is up; else 0 */
};

/**
 * struct uc_segment - a part of the device of a volume of layout linear or striped, in bytes
 *
 * It lies on @n_branches branches from @branch on, on each at the same @offset.  What was recorded
 * once never moves: the device's table is always made from this.
 */
struct uc_segment {
	uint64_t start, length; /* of the device */
	uint64_t branch, n_branches;
	uint64_t offset;
	uint64_t stripe_size; /* of several branches */
};

/** struct uc_attachment - a node that the volume is published to (ControllerPublishVolume) */
struct uc_attachment {
	char *node_id;
	bool read_only;
	int access_mode; /* CSI's AccessMode.Mode */
};

/** struct uc_publish - a target path (NodePublishVolume) */
struct uc_publish {
	char *target;
	bool read_only;
	int access_mode;
	char **mount_flags;
	bool done; /* false: the mount may or may not exist, and is undone after a crash */
};

/** struct uc_stage - what NodeStageVolume was asked for */
struct uc_stage {
	enum uc_stage_phase phase;
	char *path; /* staging_target_path */
	char **mount_flags;
	char *group; /* volume_mount_group, or NULL */
	int access_mode;
	char *boot_id; /* of the kernel that holds it: another one holds nothing */
};

/** struct uc_volume - a volume's state; release with uc_volume_done() */
struct uc_volume {
	char id[UC_VOLUME_ID_SIZE];
	char *name; /* as the CO gave it */
	enum uc_volume_phase phase;
	uint64_t capacity; /* bytes */
	char fstype[16];
	struct uc_params params;
	bool thin;        /* the branches' files are sparse */
	bool initialised; /* each branch has its union.json */
	struct uc_branch *branches;
	size_t n_branches;
	struct uc_segment *segments; /* none: a union, or one branch */
	size_t n_segments;
	struct uc_attachment *attachments;
	size_t n_attachments;
	struct uc_stage stage;
	struct uc_publish *publishes;
	size_t n_publishes;
};

/** uc_volume_phase_to_str() - "creating", "ready", "deleting" */
const char *uc_volume_phase_to_str(enum uc_volume_phase phase);

/** uc_stage_phase_to_str() - "none", "staging", "staged", "unstaging" */
const char *uc_stage_phase_to_str(enum uc_stage_phase phase);

/** uc_volume_done() - Release what a volume owns; a zeroed one is allowed */
void uc_volume_done(struct uc_volume *v);

#define cleanup_volume __attribute__((cleanup(uc_volume_done)))

/**
 * uc_volume_set_segments() - Lay a new volume's branches out as its parameters say
 * Return: 0 or -ENOMEM
 */
int uc_volume_set_segments(struct uc_volume *v);

/** uc_volume_is_union() - Its branches are filesystems that a server merges */
bool uc_volume_is_union(const struct uc_volume *v);

/** uc_volume_to_json() - A new reference, or NULL where memory ran out */
json_t *uc_volume_to_json(const struct uc_volume *v);

/** uc_volume_from_json() - Read strictly; 0, -EINVAL (names the field) or -ENOMEM.  Untouched on
 * failure */
int uc_volume_from_json(const json_t *object, struct uc_volume *ret_v, struct uc_err *err);

/** uc_volume_find_attachment() - The attachment to a node, or NULL */
struct uc_attachment *uc_volume_find_attachment(const struct uc_volume *v, const char *node_id);

/** uc_volume_add_attachment() - Append an attachment; 0 or -ENOMEM */
int uc_volume_add_attachment(struct uc_volume *v, const char *node_id, bool read_only,
			     int access_mode);

/** uc_volume_remove_attachment() - Remove one that uc_volume_find_attachment() gave */
void uc_volume_remove_attachment(struct uc_volume *v, struct uc_attachment *a);

/** uc_volume_find_publish() - The publish to a target, or NULL */
struct uc_publish *uc_volume_find_publish(const struct uc_volume *v, const char *target);

/** uc_volume_add_publish() - Append one that is not done yet, for the caller to fill; NULL where
 * memory ran out */
struct uc_publish *uc_volume_add_publish(struct uc_volume *v, const char *target);

/** uc_volume_remove_publish() - Remove one that uc_volume_find_publish() gave */
void uc_volume_remove_publish(struct uc_volume *v, struct uc_publish *p);

/** uc_stage_done() - Back to UC_STAGE_NONE, releasing what it owns */
void uc_stage_done(struct uc_stage *stage);
