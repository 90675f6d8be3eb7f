/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a volume server (`union-fs serve`) is told of its volume: a JSON object,
 * written by the driver, read by the server.
 *
 *     {"version": 1, "volumeId": "v1",
 *      "branches": [{"device": "/dev/loop3", "fsType": "ext4", "uuid": "…"}, …],
 *      "policy": "mfs", "minFreeSpace": 0, "mountFlags": ["noatime"],
 *      "initialise": true}
 *
 * The order of the branches is their index.  A branch has either a device (with
 * filesystem type and UUID) or a directory on a filesystem that is mounted already.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum uc_policy {
	UC_POLICY_MFS,   /* create on the branch that has most space */
	UC_POLICY_EPMFS, /* the same among the branches that have the parent directory */
	UC_POLICY_COUNT,
};

/** uc_policy_to_str() - "mfs", "epmfs" */
const char *uc_policy_to_str(enum uc_policy policy);

/** uc_policy_parse() - The reverse; 0 or -EINVAL with an error that lists the policies */
int uc_policy_parse(const char *s, enum uc_policy *ret_policy, struct uc_err *err);

/** struct uc_branch_spec - one branch; strings are owned, NULL where they do not apply */
struct uc_branch_spec {
	char *device;
	char *fstype;
	char *uuid; /* the filesystem's, as libblkid prints it */
	char *directory;
};

/** struct uc_union_spec - a volume as its server needs it */
struct uc_union_spec {
	char *volume_id;
	struct uc_branch_spec *branches;
	size_t n_branches;
	enum uc_policy policy;
	uint64_t min_free_space; /* bytes that a branch must have free to get new files */
	char **mount_flags;      /* ended by NULL, or NULL */
	bool read_only;          /* mount the branches' filesystems and the union read-only */
	bool initialise;         /* an empty filesystem may become a branch; else it must carry its
				    union.json */
};

/** uc_union_spec_done() - Release what the spec owns; a zeroed one is allowed */
void uc_union_spec_done(struct uc_union_spec *spec);

#define cleanup_union_spec __attribute__((cleanup(uc_union_spec_done)))

/** uc_union_spec_to_json() - Write a spec; a new reference, or NULL where memory ran out */
json_t *uc_union_spec_to_json(const struct uc_union_spec *spec);

/**
 * uc_union_spec_from_json() - Read a spec, strictly
 * @object:	JSON (borrowed)
 * @ret_spec:	Result; release with uc_union_spec_done().  Untouched on failure
 *
 * Return: 0, -EINVAL (the error names the field) or -ENOMEM
 */
int uc_union_spec_from_json(const json_t *object, struct uc_union_spec *ret_spec,
			    struct uc_err *err);
