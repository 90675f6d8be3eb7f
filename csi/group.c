/* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "csi/group.h"
#include "lib/base/cleanup.h"
#include "lib/base/str.h"
#include "lib/os/fd.h"

enum {
	STEP_EVERY = 1000, /* entries between two reports */
};

/* The directories from the root down to where the walk is.  A heap stack: a tree may be deep. */
struct walk {
	const struct csi_op *op;
	gid_t gid;
	DIR **dirs;
	size_t n, cap;
	unsigned long seen;
};

static int push(struct walk *w, int parent_fd, const char *name)
{
	int fd, r;

	if (w->n == w->cap) {
		DIR **grown = reallocarray(w->dirs, w->cap + 32, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		w->dirs = grown;
		w->cap += 32;
	}
	fd = uc_open_dir_at(parent_fd, name);
	if (fd < 0)
		return fd;
	w->dirs[w->n] = fdopendir(fd);
	if (!w->dirs[w->n]) {
		r = -errno;
		close(fd);
		return r;
	}
	w->n++;
	return 0;
}

/*
 * By a descriptor: between a look at the name and chmod(), which follows symlinks,
 * a process that has the volume could replace the file.
 */
static int set_mode(int dirfd, const char *name)
{
	cleanup_fd int fd = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	mode_t mode;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode))
		return 0;
	mode = st.st_mode & 07777;
	mode |= S_ISDIR(st.st_mode) ? S_ISGID | 0770 : 0660;
	if (mode == (st.st_mode & 07777))
		return 0;
	return chmod(UC_FD_PATH(fd), mode) < 0 ? -errno : 0;
}

static int change(const struct walk *w, int dirfd, const char *name, const struct stat *st)
{
	/* chown clears setuid and setgid bits, so the mode comes second. */
	if (st->st_gid != w->gid &&
	    fchownat(dirfd, name, (uid_t)-1, w->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISLNK(st->st_mode) ? 0 : set_mode(dirfd, name);
}

static int visit(struct walk *w, const char *name, struct uc_err *err)
{
	int dir = dirfd(w->dirs[w->n - 1]);
	struct stat st;
	int r;

	if (++w->seen % STEP_EVERY == 0) {
		r = csi_step(w->op, err, "change the group of %lu files", w->seen);
		if (r < 0)
			return r;
	}
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : uc_fail(err, errno, "stat `%s`", UC_PRINTABLE(name));
	r = change(w, dir, name, &st);
	if (r == 0 && S_ISDIR(st.st_mode))
		r = push(w, dir, name);
	if (r < 0)
		return uc_fail(err, -r, "change the group of `%s`", UC_PRINTABLE(name));
	return 0;
}

static int walk(struct walk *w, struct uc_err *err)
{
	struct dirent *e;
	int r;

	while (w->n) {
		errno = 0;
		e = readdir(w->dirs[w->n - 1]);
		if (!e && errno)
			return uc_fail(err, errno, "read a directory");
		if (!e) {
			closedir(w->dirs[--w->n]);
			continue;
		}
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		r = visit(w, e->d_name, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int csi_group_apply(const struct csi_op *op, int root_fd, gid_t gid, struct uc_err *err)
{
	struct walk w = { .op = op, .gid = gid };
	cleanup_fd int fd = uc_open_dir_at(root_fd, ".");
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return uc_fail(err, fd < 0 ? -fd : errno, "open the volume's root");
	if (st.st_gid == gid)
		return 0;
	r = csi_step(op, err, "change the group of the volume");
	if (r == 0) {
		r = push(&w, fd, ".");
		if (r < 0)
			uc_fail(err, -r, "open the volume's root");
	}
	if (r == 0)
		r = walk(&w, err);
	while (w.n)
		closedir(w.dirs[--w.n]);
	free(w.dirs);
	if (r < 0)
		return uc_wrap(err, r, "volume_mount_group");
	/* root may keep setgid across a chown of a directory; the group, the mark that all is done,
	 * comes last. */
	if (fchmod(fd, (st.st_mode & 07777) | S_ISGID | 0770) < 0 || fchown(fd, (uid_t)-1, gid) < 0)
		return uc_fail(err, errno, "change the group of the volume's root");
	return 0;
}
