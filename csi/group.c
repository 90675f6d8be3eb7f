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
	OPEN_LEVELS = 32,
};

/* A directory between the root and where the walk is. */
struct level {
	DIR *dir; /* NULL while it is not open */
	long at;  /* then: where to go on in it */
	dev_t dev;
	ino_t ino;
};

/*
 * A tree may be deeper than files may be open: only the lowest OPEN_LEVELS are.  One above them is
 * opened again, as the ".." of the one below it, when the walk comes back; if that is not the same
 * directory, somebody has moved a part of the tree.
 */
struct walk {
	const struct csi_op *op;
	gid_t gid;
	struct level *levels; /* on the heap, as a tree may be deep */
	size_t n, cap;
	unsigned long seen;
};

static int open_level(int dirfd, const char *name, struct level *ret_level)
{
	cleanup_fd int fd = uc_open_dir_at(dirfd, name);
	struct stat st;
	DIR *dir;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir)
		return -errno;
	(void)take_fd(&fd); /* it is the stream's */
	*ret_level = (struct level){ .dir = dir, .dev = st.st_dev, .ino = st.st_ino };
	return 0;
}

static void close_level(struct level *l)
{
	if (l->dir)
		closedir(l->dir);
	l->dir = NULL;
}

static void suspend(struct level *l)
{
	if (l->dir)
		l->at = telldir(l->dir);
	close_level(l);
}

static int resume(struct level *l, int dirfd_below, struct uc_err *err)
{
	struct level again = { .dir = NULL };
	int r = open_level(dirfd_below, "..", &again);

	if (r < 0)
		return uc_fail(err, -r, "open a directory again");
	if (again.dev != l->dev || again.ino != l->ino) {
		close_level(&again);
		return uc_fail(err, EBUSY, "a directory has been moved meanwhile");
	}
	seekdir(again.dir, l->at);
	*l = again;
	return 0;
}

static int push(struct walk *w, int dirfd, const char *name)
{
	int r;

	if (w->n == w->cap) {
		size_t cap = w->cap ? 2 * w->cap : OPEN_LEVELS;
		struct level *grown = reallocarray(w->levels, cap, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		w->levels = grown;
		w->cap = cap;
	}
	r = open_level(dirfd, name, &w->levels[w->n]);
	if (r < 0)
		return r;
	w->n++;
	if (w->n > OPEN_LEVELS)
		suspend(&w->levels[w->n - OPEN_LEVELS - 1]);
	return 0;
}

static int pop(struct walk *w, struct uc_err *err)
{
	struct level *l = &w->levels[--w->n];
	int r = 0;

	if (w->n && !l[-1].dir)
		r = resume(l - 1, dirfd(l->dir), err);
	close_level(l);
	return r;
}

static void walk_done(struct walk *w)
{
	while (w->n)
		close_level(&w->levels[--w->n]);
	free(w->levels);
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
	int dir = dirfd(w->levels[w->n - 1].dir);
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
		e = readdir(w->levels[w->n - 1].dir);
		if (!e && errno)
			return uc_fail(err, errno, "read a directory");
		if (!e)
			r = pop(w, err);
		else if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		else
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
	walk_done(&w);
	if (r < 0)
		return uc_wrap(err, r, "volume_mount_group");
	/* root may keep setgid across a chown of a directory; the group, the mark that all is done,
	 * comes last. */
	if (fchmod(fd, (st.st_mode & 07777) | S_ISGID | 0770) < 0 || fchown(fd, (uid_t)-1, gid) < 0)
		return uc_fail(err, errno, "change the group of the volume's root");
	return 0;
}
