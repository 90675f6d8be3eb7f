/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "lib/os/fd.h"
#include "union-fs/attr.h"
#include "union-fs/branch.h"
#include "union-fs/clone.h"
#include "union-fs/freed.h"
#include "union-fs/remove.h"

enum {
	KEPT_SIZE = 1024 * 1024, /* bytes that any file may take when it has no name */
	KEPT_PART = 16,          /* or this part of the branch's free space */
};

/* The first copy, in the order of branches, that has the name, and what it is. */
static int find_visible(const struct ufs_view *v, const char *name, int *ret_type)
{
	for (unsigned i = 0; i < v->n; i++) {
		int type = ufs_type_at(v->pin[i].fd, name);

		if (type == -ENOENT)
			continue;
		*ret_type = type;
		return type < 0 ? type : (int)i;
	}
	return -ENOENT;
}

static int unlink_on(struct ufs *fs, const struct ufs_pin *p, const char *name)
{
	if (fs->branch[p->branch].mode == UFS_BRANCH_RO)
		return -EROFS;
	if (unlinkat(p->fd, name, 0) < 0)
		return -errno;
	ufs_freed_note(fs, p, name);
	return 0;
}

/* Removes what does not show.  Directories stay. */
static int unlink_hidden(struct ufs *fs, const struct ufs_pin *p, const char *name)
{
	int type = ufs_type_at(p->fd, name);

	if (type == -ENOENT || type == S_IFDIR)
		return 0;
	return type < 0 ? type : unlink_on(fs, p, name);
}

/*
 * What is kept takes its space until the kernel has forgotten it, a moment later, when the next
 * program may have found the branch full: so no file is kept that is large for what is free.
 */
static bool is_kept(const struct ufs *fs, const struct ufs_found *f)
{
	const uint64_t size = f->st.stx_blocks * 512;
	uint64_t space = 0;

	return size <= KEPT_SIZE ||
	       (ufs_branch_space(&fs->branch[f->branch], &space) == 0 && size <= space / KEPT_PART);
}

/*
 * What has no name any more must go on where it is in use without our knowledge: a FIFO or a device
 * that is open; a file that is mounted (kubelet does that with one of a volume's) or open as O_PATH.
 */
static int unlink_visible(struct ufs *fs, const struct ufs_pin *p, const char *name)
{
	cleanup_node struct ufs_node *node = NULL;
	struct ufs_found f;
	int r;

	r = ufs_probe(fs, p->branch, p->fd, name, &f);
	if (r < 0)
		return r;
	node = is_kept(fs, &f) ? ufs_node_of(fs, &f) : NULL;
	r = unlink_on(fs, p, name);
	if (r == 0 && node)
		ufs_node_keep(node, take_fd(&f.fd));
	uc_closep(&f.fd);
	return r;
}

int ufs_unlink(struct ufs_node *parent, const char *name)
{
	cleanup_view struct ufs_view v = { 0 };
	struct ufs *fs = parent->fs;
	int visible, type = 0, r;

	r = ufs_view_open(fs, parent, &v);
	if (r < 0)
		return r;
	/* A branch that cannot be looked at might bring the name back. */
	if (v.error)
		return v.error;
	visible = find_visible(&v, name, &type);
	if (visible < 0)
		return visible;
	if (type == S_IFDIR)
		return -EISDIR;
	for (unsigned i = v.n; i-- > (unsigned)visible + 1;) {
		r = unlink_hidden(fs, &v.pin[i], name);
		if (r < 0)
			return r;
	}
	/* Or it would show after a crash that undoes this, but not the removal of what hides it. */
	r = ufs_freed_settle(&v, v.pin[visible].branch, name);
	if (r < 0)
		return r;
	return unlink_visible(fs, &v.pin[visible], name);
}

int ufs_is_empty_dir(int path_fd)
{
	cleanup_fd int fd = openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : uc_dir_is_empty(fd, NULL);
}

static int check_removable(struct ufs *fs, const struct ufs_finds *f)
{
	if (!ufs_found_is_dir(&f->found[0]))
		return -ENOTDIR;
	for (unsigned i = 0; i < f->n; i++) {
		int r = ufs_is_empty_dir(f->found[i].fd);

		if (r < 0)
			return r;
		if (r == 0)
			return -ENOTEMPTY;
		if (fs->branch[f->found[i].branch].mode == UFS_BRANCH_RO)
			return -EROFS;
	}
	return 0;
}

/* Forgets a copy that was removed, if the kernel knows the directory. */
static void drop(struct ufs *fs, const struct ufs_found *f)
{
	cleanup_node struct ufs_node *node = ufs_node_of(fs, f);

	if (node)
		ufs_node_drop_found(node, f);
}

static int remove_copy(const struct ufs_view *v, const struct ufs_found *f, const char *name)
{
	const struct ufs_pin *pin = ufs_view_at(v, f->branch);

	if (unlinkat(pin->fd, name, AT_REMOVEDIR) < 0)
		return errno == ENOENT ? 0 : -errno;
	ufs_freed_note(v->fs, pin, name);
	return 0;
}

static void set_gone(struct ufs *fs, const struct ufs_found *f)
{
	cleanup_node struct ufs_node *node = ufs_node_of(fs, f);

	if (node)
		ufs_node_set_gone(node);
}

/*
 * The copy that speaks for the directory goes last, and stays known: who has the
 * directory open can still ask for its attributes.
 */
static int remove_copies(struct ufs *fs, const struct ufs_view *v, const struct ufs_finds *f,
			 const char *name)
{
	unsigned last = 0;
	int r;

	for (unsigned i = 1; i < f->n; i++)
		if (!ufs_older(&f->found[last].st, &f->found[i].st))
			last = i;
	for (unsigned i = 0; i < f->n; i++) {
		if (i == last)
			continue;
		r = remove_copy(v, &f->found[i], name);
		if (r < 0)
			return r;
		drop(fs, &f->found[i]);
	}
	r = remove_copy(v, &f->found[last], name);
	if (r == 0)
		set_gone(fs, &f->found[last]);
	return r;
}

/* What is no directory would show when the directory has gone. */
static int remove_hidden(struct ufs *fs, const struct ufs_view *v, const char *name)
{
	int r = 0;

	for (unsigned i = v->n; i-- > 0 && r == 0;)
		r = unlink_hidden(fs, &v->pin[i], name);
	return r;
}

static int rmdir_locked(struct ufs_node *parent, const char *name)
{
	cleanup_view struct ufs_view v = { 0 };
	cleanup_finds struct ufs_finds f = { 0 };
	struct ufs *fs = parent->fs;
	int r;

	r = ufs_view_open(fs, parent, &v);
	if (r == 0)
		r = v.error;
	if (r == 0)
		r = ufs_find(fs, &v, name, &f);
	if (r == 0)
		r = f.error;
	if (r == 0)
		r = check_removable(fs, &f);
	if (r == 0)
		r = remove_hidden(fs, &v, name);
	if (r == 0)
		r = ufs_freed_settle(&v, f.found[0].branch, name);
	if (r != 0)
		return r;
	ufs_tree_begin(fs);
	r = remove_copies(fs, &v, &f, name);
	ufs_tree_end(fs);
	return r;
}

int ufs_rmdir(struct ufs_node *parent, const char *name)
{
	int r;

	ufs_tree_lock(parent->fs);
	r = rmdir_locked(parent, name);
	ufs_tree_unlock(parent->fs);
	return r;
}
