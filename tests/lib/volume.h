/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A volume's state with something in every field, for tests. */

#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/str.h"
#include "lib/vol/state.h"

/* "00000000-0000-0000-0000-0000000000NN" */
static inline void make_uuid(char to[static UC_UUID_TEXT_SIZE], unsigned n)
{
	snprintf(to, UC_UUID_TEXT_SIZE, "00000000-0000-0000-0000-%012u", n);
}

/* A volume that is READY and not staged, of @n branches of 16 MiB. */
static inline struct uc_volume make_volume(const char *id, size_t n)
{
	struct uc_volume v = {
		.name = strdup(id),
		.phase = UC_VOLUME_READY,
		.capacity = n << 24,
		.fstype = "ext4",
		.params = { .branches = n },
		.branches = calloc(n, sizeof(*v.branches)),
		.n_branches = n,
	};

	snprintf(v.id, sizeof(v.id), "%s", id);
	for (unsigned i = 0; i < n; i++) {
		make_uuid(v.branches[i].pool, 100 + i);
		make_uuid(v.branches[i].uuid, 200 + i);
		v.branches[i].size = 1 << 24;
	}
	return v;
}

/* The same, and something in every field. */
static inline struct uc_volume make_full_volume(const char *id)
{
	struct uc_volume v = make_volume(id, 2);
	struct uc_publish *p;

	free(v.name);
	v.name = strdup("a name / of \xc3\xa4 volume");
	v.params = (struct uc_params){
		.branches = 2,
		.max_branch_size = 1 << 24,
		.policy = UC_POLICY_EPMFS,
		.min_free_space = 4096,
	};
	v.thin = true;
	v.initialised = true;
	v.branches[0].format = UC_FORMAT_DONE;
	v.branches[0].file_dev = 2049;
	v.branches[0].file_ino = 4711;
	v.branches[1].format = UC_FORMAT_STARTED;
	uc_volume_add_attachment(&v, "node-1", false, 1);
	uc_volume_add_attachment(&v, "node-2", true, 2);
	v.stage.phase = UC_STAGE_STAGED;
	v.stage.path = strdup("/var/lib/kubelet/globalmount");
	uc_strv_push(&v.stage.mount_flags, "noatime");
	uc_strv_push(&v.stage.mount_flags, "data=journal");
	v.stage.group = strdup("1000");
	v.stage.access_mode = 7;
	v.stage.boot_id = strdup("boot-1");
	p = uc_volume_add_publish(&v, "/var/lib/kubelet/pods/1/mount");
	p->read_only = true;
	p->access_mode = 7;
	uc_strv_push(&p->mount_flags, "noexec");
	p->done = true;
	p = uc_volume_add_publish(&v, "/var/lib/kubelet/pods/2/mount");
	p->access_mode = 1;
	return v;
}
