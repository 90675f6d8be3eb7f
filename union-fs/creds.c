/* SPDX-License-Identifier: Apache-2.0 */

/*
 * System calls are made directly where libc's wrapper would change all threads of
 * the process (setgroups) or does not exist (capget, capset).
 */

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "union-fs/creds.h"

enum {
	NOBODY = 65534,
};

static int set_caps(uint32_t set, uint32_t clear)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, data) < 0)
		return -errno;
	data[0].effective = (data[0].effective & ~clear) | (set & data[0].permitted);
	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static int set_group(const uint32_t *group)
{
	gid_t g = group ? *group : 0;

	return syscall(SYS_setgroups, group ? 1 : 0, &g) < 0 ? -errno : 0;
}

int ufs_creds_init(struct ufs_creds *c)
{
	int r;

	*c = (struct ufs_creds){ 0 };
	if (unshare(CLONE_FS) < 0)
		return -errno;
	umask(0);
	/* The thread that started this one may have been somebody just then. */
	setfsgid(0);
	setfsuid(0);
	/* Or capabilities would go with the user id. */
	c->keeps_caps = prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) == 0;
	if (!c->keeps_caps)
		log_debug("keep capabilities: %m: the branches check permissions as well");
	r = set_caps(0, 1U << CAP_FSETID | 1U << CAP_SYS_RESOURCE);
	if (r < 0)
		return r;
	r = set_group(NULL);
	if (r < 0)
		log_debug("drop supplementary groups: error %d", -r);
	return 0;
}

/* Failure of setfsuid() shows only in what it is afterwards. */
static int set_ids(struct ufs_creds *c, uid_t uid, gid_t gid)
{
	if (c->gid != gid) {
		setfsgid(gid);
		if ((gid_t)setfsgid((gid_t)-1) != gid)
			return -EPERM;
		c->gid = gid;
	}
	if (c->uid != uid) {
		setfsuid(uid);
		if ((uid_t)setfsuid((uid_t)-1) != uid)
			return -EPERM;
		c->uid = uid;
	}
	return 0;
}

int ufs_creds_as(struct ufs_creds *c, const struct ufs_caller *caller)
{
	int r;

	if (c->umask != caller->umask)
		umask(caller->umask);
	c->umask = caller->umask;
	if (caller->group) {
		c->group = true;
		r = set_group(caller->group);
		if (r < 0)
			return r;
	}
	return set_ids(c, caller->uid, caller->gid);
}

void ufs_creds_charge(struct ufs_creds *c, uid_t uid, gid_t gid)
{
	if (c->keeps_caps && set_ids(c, uid, gid) < 0)
		ufs_creds_root(c);
}

void ufs_creds_nobody(struct ufs_creds *c)
{
	ufs_creds_fsetid(c, false);
	ufs_creds_charge(c, NOBODY, NOBODY);
}

void ufs_creds_root(struct ufs_creds *c)
{
	if (set_ids(c, 0, 0) < 0)
		log_err("a worker cannot become root again");
	if (c->group && set_group(NULL) == 0)
		c->group = false;
	if (c->umask)
		umask(0);
	c->umask = 0;
}

void ufs_creds_fsetid(struct ufs_creds *c, bool on)
{
	int r;

	if (c->fsetid == on)
		return;
	r = set_caps(on ? 1U << CAP_FSETID : 0, on ? 0 : 1U << CAP_FSETID);
	if (r < 0)
		log_err("change a worker's capabilities: error %d", -r);
	else
		c->fsetid = on;
}
