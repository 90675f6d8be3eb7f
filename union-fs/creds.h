/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The identity in which a worker thread makes files.
 *
 * Credentials, capabilities and umask belong to the thread: what is made is made as
 * the caller by the branch's own filesystem, with its set-group-id directories, default
 * ACLs and quotas.  The thread keeps its capabilities meanwhile: whether the caller may
 * do it, the kernel has decided (default_permissions).
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/** struct ufs_creds - what the thread is now */
struct ufs_creds {
	uid_t uid;
	gid_t gid;
	mode_t umask;
	bool fsetid;
	bool group;      /* one supplementary group is set */
	bool keeps_caps; /* another user id leaves the capabilities alone */
};

/** struct ufs_caller - what it is to become */
struct ufs_caller {
	uid_t uid;
	gid_t gid;
	mode_t umask;
	const uint32_t *group; /* the one supplementary group that matters here, or NULL */
};

/**
 * ufs_creds_init() - Make the calling thread a worker
 *
 * It gets a umask of its own and drops CAP_FSETID (or a write would not clear set-id
 * bits) and CAP_SYS_RESOURCE (or it would use reserved blocks and exceed quotas).
 *
 * Return: 0 or a negative errno
 */
int ufs_creds_init(struct ufs_creds *c);

/** ufs_creds_as() - Become the caller of a request; 0, or -EPERM: then nothing may be made */
int ufs_creds_as(struct ufs_creds *c, const struct ufs_caller *caller);

/**
 * ufs_creds_charge() - Become the caller for what is charged to somebody: reserved blocks, quotas
 *
 * Only where the capabilities stay, which opening by handle needs.
 */
void ufs_creds_charge(struct ufs_creds *c, uid_t uid, gid_t gid);

/**
 * ufs_creds_nobody() - Become nobody in particular: whom a file that all its openers share is
 * written as
 *
 * Where ufs_creds_charge() does something.
 */
void ufs_creds_nobody(struct ufs_creds *c);

/** ufs_creds_root() - Become root again */
void ufs_creds_root(struct ufs_creds *c);

/** ufs_creds_fsetid() - Raise or drop CAP_FSETID: whether set-id bits survive what would clear them
 */
void ufs_creds_fsetid(struct ufs_creds *c, bool on);
