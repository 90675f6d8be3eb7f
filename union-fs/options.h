/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Options and lists of branches as mergerfs writes them. */

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/os/mount.h"
#include "union-fs/ufs.h"

/** struct ufs_options - what -o says */
struct ufs_options {
	struct ufs_config cfg;
	uint64_t min_free;          /* bytes */
	char *fsname;               /* owned; NULL: not given */
	struct uc_mount_opts mount; /* owned */
};

/** ufs_options_init() - Set the defaults */
void ufs_options_init(struct ufs_options *o);

/** ufs_options_done() - Release */
void ufs_options_done(struct ufs_options *o);

#define cleanup_options __attribute__((cleanup(ufs_options_done)))

/**
 * ufs_options_parse() - Read options
 * @lists:	List ended by NULL (or NULL), each a list with commas
 * @o:		Initialised; set as the lists say
 * @err:	Error detail that names the option, or NULL
 *
 * Return: 0, -EINVAL or -ENOMEM
 */
int ufs_options_parse(char *const *lists, struct ufs_options *o, struct uc_err *err);

/** struct ufs_branch_arg - a branch as it was given */
struct ufs_branch_arg {
	char *path; /* owned */
	enum ufs_branch_mode mode;
	uint64_t min_free;
	bool has_min_free;
};

/** struct ufs_branch_args - a list of them */
struct ufs_branch_args {
	struct ufs_branch_arg *arg;
	unsigned n;
};

/** ufs_branch_args_done() - Release; a zeroed list is allowed */
void ufs_branch_args_done(struct ufs_branch_args *list);

#define cleanup_branch_args __attribute__((cleanup(ufs_branch_args_done)))

/**
 * ufs_branch_args_add() - Add what one element of a list names
 * @text:	A directory or a pattern such as /branches/b?, perhaps with =RW, =RO or =NC, and
 *,SIZE behind that (the space that must be free)
 *
 * A pattern stands for the directories that match it, in the order of their bytes.
 *
 * Return: 0, -EINVAL, -ENOENT (nothing matches), -ENOMEM
 */
int ufs_branch_args_add(struct ufs_branch_args *list, const char *text, struct uc_err *err);

/** ufs_branch_args_parse() - Add all elements of a list with colons; -EINVAL also for an empty one
 */
int ufs_branch_args_parse(struct ufs_branch_args *list, const char *text, struct uc_err *err);

/** ufs_branch_args_open() - Open them: an array of branches for ufs_new(); 0 or a negative errno */
int ufs_branch_args_open(const struct ufs_branch_args *list, const struct ufs_options *o,
			 struct ufs_branch **ret, struct uc_err *err);

/** ufs_parse_size() - Read bytes as mergerfs does: digits, and K, M, G or T for powers of 1024; 0,
 * -EINVAL or -ERANGE */
int ufs_parse_size(const char *s, uint64_t *ret_bytes);
