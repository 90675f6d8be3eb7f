/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What changes the mount table of tests/lib/mounts.h: each is a step. */

#include "tests/lib/mounts.h"

int __wrap_uc_mount_clone(int fd, uint64_t attr_set, uint64_t attr_clr, int *ret_fd,
			  struct uc_err *err);
int __wrap_uc_mount_clone(int fd, uint64_t attr_set, uint64_t attr_clr, int *ret_fd,
			  struct uc_err *err)
{
	struct fake_mount *m = &fake_mounts.list[fake_mounts.n], *from;
	struct stat st;

	fake_mounts.attr_set = attr_set;
	fake_mounts.attr_clr = attr_clr;
	if (fails())
		return uc_fail(err, EIO, "clone a mount");
	fake_mounts.clones++;
	if (fake_mounts.clone_result < 0)
		return uc_fail(err, -fake_mounts.clone_result, "clone a mount");
	assert_int_equal(fstat(fd, &st), 0);
	from = fake_mount_on(&st);
	assert_non_null(from);
	*m = *from;
	m->dir_ino = 0;
	m->attr_set = attr_set;
	m->attr_clr = attr_clr;
	m->clone_fd = *ret_fd = open("/dev/null", O_PATH | O_CLOEXEC);
	fake_mounts.n++;
	return 0;
}

int __wrap_uc_mount_attach(int mount_fd, int target_fd, struct uc_err *err);
int __wrap_uc_mount_attach(int mount_fd, int target_fd, struct uc_err *err)
{
	int r = -EIO;

	if (fails())
		fake_mounts_forget_detached();
	else
		r = fake_mount_attach(mount_fd, target_fd);
	return r < 0 ? uc_fail(err, -r, "attach a mount") : 0;
}

int __wrap_uc_unmount_at(int parent_fd, const char *name, int flags, struct uc_err *err);
int __wrap_uc_unmount_at(int parent_fd, const char *name, int flags, struct uc_err *err)
{
	int r = fails() ? -EIO : fake_unmount_at(parent_fd, name, flags);

	return r < 0 ? uc_fail(err, -r, "unmount `%s`", name) : 0;
}
