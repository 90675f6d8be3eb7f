/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * Descriptors of directories are kept in a list by their last use and closed from
 * its end when there are more than fs->max_dir_fds.  Pinned ones, and those of
 * objects without a file handle, are not in the list: they stay open.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/os/fd.h"
#include "union-fs/find.h"
#include "union-fs/lower.h"
#include "union-fs/objmap.h"

struct ufs_lower *ufs_lower_new(const struct ufs_ident *id, bool is_dir)
{
	struct ufs_lower *l = calloc(1, sizeof(*l) + id->handle_size);

	if (!l)
		return NULL;
	if (is_dir) {
		l->copy = calloc(1, sizeof(*l->copy));
		if (!l->copy) {
			free(l);
			return NULL;
		}
	}
	l->dev = id->dev;
	l->ino = id->ino;
	l->fd = -1;
	l->branch = id->branch;
	l->handle_size = id->handle_size;
	l->handle_type = id->handle_type;
	if (id->handle_size)
		memcpy(l->handle, id->handle, id->handle_size);
	return l;
}

void ufs_lower_free(struct ufs_lower *l)
{
	if (!l)
		return;
	uc_closep(&l->fd);
	free(l->copy);
	free(l);
}

bool ufs_lower_is(const struct ufs_lower *l, const struct ufs_ident *id)
{
	return l->ino == id->ino && l->dev == id->dev && l->branch == id->branch &&
	       l->handle_size == id->handle_size && l->handle_type == id->handle_type &&
	       (!l->handle_size || memcmp(l->handle, id->handle, l->handle_size) == 0);
}

/*
 * ENOMEM for a handle means that its inode number is being given to a new file (ext4 makes that of
 * the inode cache's `not yet`), and so that the object is gone.
 */
int ufs_lower_open(struct ufs *fs, const struct ufs_lower *l, int flags)
{
	struct ufs_handle_buf h;
	int fd;

	if (l->handle_size) {
		h.handle.handle_bytes = l->handle_size;
		h.handle.handle_type = l->handle_type;
		memcpy(h.handle.f_handle, l->handle, l->handle_size);
		fd = open_by_handle_at(fs->branch[l->branch].root_fd, &h.handle, flags | O_CLOEXEC);
	} else if (flags & O_PATH) {
		fd = fcntl(l->fd, F_DUPFD_CLOEXEC, 0);
	} else {
		fd = open(UC_FD_PATH(l->fd), flags | O_CLOEXEC);
	}
	if (fd < 0 && errno == ENOMEM && l->handle_size)
		return -ESTALE;
	return fd < 0 ? -errno : fd;
}

void ufs_dead_done(struct ufs_dead *dead)
{
	while (dead->first) {
		struct ufs_lower *l = dead->first;

		dead->first = l->next;
		ufs_lower_free(l);
	}
	while (dead->n_fds)
		uc_closep(&dead->fd[--dead->n_fds]);
}

static void list_remove(struct ufs *fs, struct ufs_lower *l)
{
	struct ufs_copy *c = l->copy;

	if (!c->listed)
		return;
	*(c->lru_prev ? &c->lru_prev->copy->lru_next : &fs->lru_first) = c->lru_next;
	*(c->lru_next ? &c->lru_next->copy->lru_prev : &fs->lru_last) = c->lru_prev;
	c->lru_prev = c->lru_next = NULL;
	c->listed = false;
}

void ufs_lower_touch(struct ufs *fs, struct ufs_lower *l)
{
	struct ufs_copy *c = l->copy;

	list_remove(fs, l);
	if (l->fd < 0 || c->pins || !l->handle_size)
		return;
	c->lru_next = fs->lru_first;
	*(fs->lru_first ? &fs->lru_first->copy->lru_prev : &fs->lru_last) = l;
	fs->lru_first = l;
	c->listed = true;
}

/* Takes out descriptors that are too many. */
static void evict(struct ufs *fs, struct ufs_dead *dead)
{
	while (dead->n_fds < UFS_EVICT_MAX && fs->n_dir_fds > fs->max_dir_fds && fs->lru_last) {
		struct ufs_lower *l = fs->lru_last;

		list_remove(fs, l);
		dead->fd[dead->n_fds++] = take_fd(&l->fd);
		fs->n_dir_fds--;
	}
}

void ufs_lower_set_fd(struct ufs *fs, struct ufs_lower *l, int fd)
{
	l->fd = fd;
	fs->n_kept_fds += !l->handle_size;
	if (!l->copy)
		return;
	fs->n_dir_fds++;
	ufs_lower_touch(fs, l);
}

static void bury(struct ufs *fs, struct ufs_lower *l, struct ufs_dead *dead)
{
	if (l->fd >= 0) {
		fs->n_kept_fds -= !l->handle_size;
		fs->n_dir_fds -= l->copy != NULL;
	}
	l->next = dead->first;
	dead->first = l;
}

void ufs_lower_abandon(struct ufs *fs, struct ufs_lower *l, struct ufs_dead *dead)
{
	ufs_objmap_remove(&fs->objects, l);
	l->node = NULL;
	if (l->copy)
		list_remove(fs, l);
	if (!l->copy || !l->copy->pins)
		bury(fs, l, dead);
}

void ufs_lower_pin(struct ufs *fs, struct ufs_lower *l)
{
	l->copy->pins++;
	list_remove(fs, l);
}

void ufs_lower_unpin(struct ufs *fs, struct ufs_lower *l, struct ufs_dead *dead)
{
	if (--l->copy->pins)
		return;
	if (!l->node) {
		bury(fs, l, dead);
		return;
	}
	ufs_lower_touch(fs, l);
	evict(fs, dead);
}
