/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A union of plain directories b0/, b1/, … of the test's own, without a kernel. */

#include "tests/lib/files.h"
#include "tests/lib/unit.h"

#include "union-fs/attr.h"
#include "union-fs/branch.h"
#include "union-fs/find.h"
#include "union-fs/node.h"
#include "union-fs/ufs.h"
#include "union-fs/view.h"

static struct ufs *fs;

/* Merges @n directories, which must be there. */
static inline void union_open(unsigned n)
{
	const struct ufs_config cfg = { .policy = UC_POLICY_MFS };
	struct ufs_branch *branch = calloc(n, sizeof(*branch));
	struct uc_err err = { 0 };

	for (unsigned i = 0; i < n; i++) {
		char path[16];

		snprintf(path, sizeof(path), "b%u", i);
		branch[i] = (struct ufs_branch)UFS_BRANCH_NONE;
		if (ufs_branch_open_plain(path, &branch[i], &err) < 0)
			fail_msg("%s", err.msg);
	}
	if (ufs_new(&cfg, branch, n, &fs, &err) < 0)
		fail_msg("%s", err.msg);
}

static inline void union_close(void)
{
	ufs_free(fs);
	fs = NULL;
}

static inline void fresh_branches(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		char path[16];

		snprintf(path, sizeof(path), "b%u", i);
		fresh_dir(path);
	}
}

/* Looks @name up in @parent as the kernel does: a node with a lookup more, and a reference.  NULL if
 * it is not there. */
static inline struct ufs_node *enter(struct ufs_node *parent, const char *name)
{
	cleanup_view struct ufs_view v = { 0 };
	cleanup_finds struct ufs_finds f = { 0 };
	struct ufs_node *node = NULL;
	int r;

	assert_int_equal(ufs_view_open(fs, parent, &v), 0);
	r = ufs_find(fs, &v, name, &f);
	if (r == -ENOENT)
		return NULL;
	assert_int_equal(r, 0);
	r = ufs_node_enter(parent, name, &f, NULL, &node);
	if (r < 0)
		fail_msg("enter `%s`: %d", name, r);
	return node;
}

/* The same without the reference: its number; 0 if it is not there. */
static inline uint64_t lookup(uint64_t parent_id, const char *name)
{
	cleanup_node struct ufs_node *parent = ufs_node_get(fs, parent_id);
	cleanup_node struct ufs_node *node = enter(parent, name);

	return node ? ufs_node_id(node) : 0;
}
