/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <sys/sysmacros.h>

#include "union-fs/find.h"
#include "union-fs/view.h"

int ufs_handle_get(int fd, struct ufs_handle_buf *ret)
{
	ret->handle.handle_bytes = MAX_HANDLE_SZ;
	if (name_to_handle_at(fd, "", &ret->handle, &ret->mount_id, AT_EMPTY_PATH) < 0)
		return -errno;
	return 0;
}

struct ufs_ident ufs_found_ident(const struct ufs_found *f)
{
	return (struct ufs_ident){
		.dev = makedev(f->st.stx_dev_major, f->st.stx_dev_minor),
		.ino = f->st.stx_ino,
		.branch = (uint16_t)f->branch,
		.handle_size = f->has_handle ? (uint8_t)f->h.handle.handle_bytes : 0,
		.handle_type = f->has_handle ? f->h.handle.handle_type : 0,
		.handle = f->h.handle.f_handle,
	};
}

bool ufs_found_is_dir(const struct ufs_found *f)
{
	return S_ISDIR(f->st.stx_mode);
}

/*
 * A mount below a branch may be this union itself.  Asking it for a file's
 * attributes would have to be answered by us; where it lies can be told without.
 */
static int check_not_own(const struct ufs *fs, int fd)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) < 0)
		return -errno;
	return makedev(st.stx_dev_major, st.stx_dev_minor) == fs->dev ? -ELOOP : 0;
}

int ufs_probe_fd(struct ufs *fs, unsigned branch, int fd, struct ufs_found *ret)
{
	const struct ufs_branch *b = &fs->branch[branch];
	int r = 0;

	ret->fd = fd;
	ret->branch = branch;
	ret->made = false;
	/* A handle of another mount that lies below the branch cannot be opened through the branch.
	 */
	ret->has_handle =
		b->handles && ufs_handle_get(fd, &ret->h) == 0 && ret->h.mount_id == b->mount_id;
	if (!ret->has_handle)
		r = check_not_own(fs, fd);
	if (r == 0 && statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT,
			    STATX_BASIC_STATS | STATX_BTIME, &ret->st) < 0)
		r = -errno;
	if (r < 0)
		uc_closep(&ret->fd);
	return r;
}

int ufs_probe(struct ufs *fs, unsigned branch, int dirfd, const char *name, struct ufs_found *ret)
{
	int fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	ret->fd = -1;
	return fd < 0 ? -errno : ufs_probe_fd(fs, branch, fd, ret);
}

void ufs_finds_done(struct ufs_finds *f)
{
	for (unsigned i = 0; i < f->n; i++)
		uc_closep(&f->found[i].fd);
	if (f->found != f->some)
		free(f->found);
	f->n = 0;
	f->found = NULL;
}

int ufs_find(struct ufs *fs, const struct ufs_view *v, const char *name, struct ufs_finds *ret)
{
	int failure = v->error;

	ret->n = 0;
	ret->error = 0;
	ret->found = v->n <= UFS_FINDS_INLINE ? ret->some : calloc(v->n, sizeof(*ret->found));
	if (!ret->found)
		return -ENOMEM;
	for (unsigned i = 0; i < v->n; i++) {
		struct ufs_found *f = &ret->found[ret->n];
		int r = ufs_probe(fs, v->pin[i].branch, v->pin[i].fd, name, f);

		if (r == -ENOENT)
			continue;
		if (r == -ENAMETOOLONG)
			return r;
		if (r < 0) {
			failure = failure ? failure : r;
			continue;
		}
		if (ret->n && !ufs_found_is_dir(f)) { /* hidden by the directory */
			uc_closep(&f->fd);
			continue;
		}
		ret->n++;
		if (!ufs_found_is_dir(f))
			break;
	}
	if (!ret->n)
		return failure ? failure : -ENOENT;
	/* This union itself, mounted below a branch, is nothing that could be merged. */
	ret->error = failure == -ELOOP ? 0 : failure;
	return 0;
}

int ufs_type_at(int dirfd, const char *name)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
		return -errno;
	return (int)(st.st_mode & S_IFMT);
}
