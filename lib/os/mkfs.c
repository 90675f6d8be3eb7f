/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/base/size.h"
#include "lib/os/mkfs.h"
#include "lib/os/proc.h"

enum {
	MAX_ARGS = 16,
	MKFS_MS = 30 * 60 * 1000,
};

struct args {
	const char *v[MAX_ARGS + 1];
	size_t n;
	char uuid_option[64]; /* "uuid=…" */
};

static void add(struct args *a, const char *s)
{
	if (a->n < MAX_ARGS)
		a->v[a->n++] = s;
}

static void ext4_args(const struct uc_mkfs *mkfs, struct args *a)
{
	add(a, "mkfs.ext4");
	add(a, "-q");
	/* 4 KiB whatever the size: smaller blocks would lose a small branch a tenth of its space.
	 */
	add(a, "-b");
	add(a, "4096");
	add(a, "-i");
	add(a, "16384");
	add(a, "-m");
	add(a, "0");
	add(a, "-U");
	add(a, mkfs->uuid);
	if (mkfs->keep_allocated) {
		/* The kernel's lazy initialisation would punch its zeroes into the file behind the
		 * device. */
		add(a, "-E");
		add(a, "nodiscard,lazy_itable_init=0,lazy_journal_init=0");
	}
	if (mkfs->force)
		add(a, "-F");
}

static void xfs_args(const struct uc_mkfs *mkfs, struct args *a)
{
	add(a, "mkfs.xfs");
	add(a, "-q");
	if (mkfs->keep_allocated)
		add(a, "-K");
	if (mkfs->force)
		add(a, "-f");
	add(a, "-m");
	add(a, a->uuid_option);
}

static void btrfs_args(const struct uc_mkfs *mkfs, struct args *a)
{
	add(a, "mkfs.btrfs");
	add(a, "-q");
	if (mkfs->keep_allocated)
		add(a, "-K");
	if (mkfs->force)
		add(a, "-f");
	add(a, "-U");
	add(a, mkfs->uuid);
}

static const struct {
	const char *name;
	uint64_t min_size;
	void (*args)(const struct uc_mkfs *mkfs, struct args *a);
} types[] = {
	{ "ext4", 16 * UC_MIB, ext4_args },
	{ "xfs", 300 * UC_MIB, xfs_args },
	{ "btrfs", 128 * UC_MIB, btrfs_args },
};

uint64_t uc_mkfs_min_size(const char *fstype)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (strcmp(types[i].name, fstype) == 0)
			return types[i].min_size;
	return 0;
}

int uc_mkfs_run(const struct uc_mkfs *mkfs, struct uc_err *err)
{
	struct args a = { .n = 0 };
	struct uc_proc proc = {
		.argv = a.v,
		.timeout_ms = MKFS_MS,
		.tick = mkfs->tick,
		.tick_data = mkfs->tick_data,
	};
	int r;

	snprintf(a.uuid_option, sizeof(a.uuid_option), "uuid=%s", mkfs->uuid);
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (strcmp(types[i].name, mkfs->fstype) == 0)
			types[i].args(mkfs, &a);
	if (!a.n)
		return uc_fail(err, EINVAL, "make a filesystem of type `%s`", mkfs->fstype);
	add(&a, mkfs->device);
	r = uc_proc_run(&proc, NULL, err);
	if (r < 0)
		return uc_wrap(err, r, "make a filesystem on `%s`", mkfs->device);
	return 0;
}
