/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * The table has two ways in: by number (fs->nodes), for the kernel, and by lower
 * object (fs->objects), for lookups.  Finding and inserting is one critical
 * section, so two threads that look up the same name get the same node.
 *
 * What must be released is gathered in a struct ufs_dead under the lock and let go
 * after it.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/os/fd.h"
#include "union-fs/file.h"
#include "union-fs/node.h"
#include "union-fs/objmap.h"

uint64_t ufs_node_id(const struct ufs_node *node)
{
	return (uint64_t)node->index + 1;
}

struct ufs_node *ufs_node_new(struct ufs *fs, uint16_t type)
{
	struct ufs_node *node = calloc(1, sizeof(*node));

	if (!node)
		return NULL;
	node->fs = fs;
	node->type = type;
	node->is_dir = S_ISDIR(type);
	if (node->is_dir) {
		node->dir = calloc(1, sizeof(*node->dir));
		if (!node->dir) {
			free(node);
			return NULL;
		}
	}
	return node;
}

void ufs_node_free(struct ufs_node *node)
{
	if (!node)
		return;
	if (node->is_dir) {
		free(node->dir->name);
		free(node->dir->copy);
		free(node->dir);
	}
	free(node->io);
	free(node);
}

int ufs_node_insert(struct ufs_node *node)
{
	int r = ufs_slots_add(&node->fs->nodes, node, &node->index);

	if (r == 0)
		node->generation = node->fs->nodes.slot[node->index].generation;
	return r;
}

void ufs_node_reap(struct ufs_node *node, struct ufs_dead *dead)
{
	while (node && !node->nlookup && !node->refs) {
		struct ufs_node *parent = NULL;
		struct ufs *fs = node->fs;

		if (node->is_dir) {
			parent = node->dir->parent;
			while (node->dir->n)
				ufs_lower_abandon(fs, node->dir->copy[--node->dir->n], dead);
		} else {
			ufs_lower_abandon(fs, node->lower, dead);
		}
		ufs_slots_remove(&fs->nodes, node->index);
		ufs_node_free(node);
		if (parent)
			parent->refs--;
		node = parent;
	}
}

struct ufs_node *ufs_node_get(struct ufs *fs, uint64_t id)
{
	struct ufs_node *node;

	ufs_lock(fs);
	node = ufs_slots_get(&fs->nodes, id - 1);
	if (node)
		node->refs++;
	ufs_unlock(fs);
	return node;
}

void ufs_node_put(struct ufs_node *node)
{
	cleanup_dead struct ufs_dead dead = { 0 };
	struct ufs *fs;

	if (!node)
		return;
	fs = node->fs;
	ufs_lock(fs);
	node->refs--;
	ufs_node_reap(node, &dead);
	ufs_unlock(fs);
}

void ufs_node_forget(struct ufs *fs, uint64_t id, uint64_t n)
{
	cleanup_dead struct ufs_dead dead = { 0 };
	struct ufs_node *node;

	ufs_lock(fs);
	node = ufs_slots_get(&fs->nodes, id - 1);
	if (node && node->index != UFS_ROOT_INDEX) {
		node->nlookup -= n < node->nlookup ? n : node->nlookup;
		ufs_node_reap(node, &dead);
	}
	ufs_unlock(fs);
}

struct ufs_lower *ufs_node_new_lower(const struct ufs_found *f)
{
	const struct ufs_ident id = ufs_found_ident(f);
	struct ufs_lower *l = ufs_lower_new(&id, ufs_found_is_dir(f));

	if (l && l->copy && f->st.stx_mask & STATX_BTIME) {
		l->copy->has_btime = true;
		l->copy->btime_sec = f->st.stx_btime.tv_sec;
		l->copy->btime_nsec = f->st.stx_btime.tv_nsec;
	}
	return l;
}

/* Under the lock; counts a lookup and a reference. */
static struct ufs_node *find_file(struct ufs *fs, const struct ufs_ident *id)
{
	struct ufs_lower *l = ufs_objmap_find(&fs->objects, id);

	if (!l || l->copy)
		return NULL;
	l->node->nlookup++;
	l->node->refs++;
	return l->node;
}

/* Under the lock; takes @lower, and counts a lookup and a reference, if it succeeds. */
static int insert_file(struct ufs_node *node, struct ufs_lower *lower, struct ufs_found *f)
{
	struct ufs *fs = node->fs;
	int r;

	if (!lower->handle_size && !f->made && fs->n_kept_fds >= fs->max_kept_fds)
		return -ENFILE;
	r = ufs_node_insert(node);
	if (r < 0)
		return r;
	node->lower = lower;
	lower->node = node;
	ufs_objmap_add(&fs->objects, lower);
	if (!lower->handle_size)
		ufs_lower_set_fd(fs, lower, take_fd(&f->fd));
	node->nlookup = 1;
	node->refs = 1;
	return 0;
}

int ufs_node_enter_file(struct ufs *fs, struct ufs_found *f, struct ufs_node **ret)
{
	const struct ufs_ident id = ufs_found_ident(f);
	struct ufs_node *node, *fresh;
	struct ufs_lower *lower;
	int r = 0;

	ufs_lock(fs);
	node = find_file(fs, &id);
	ufs_unlock(fs);
	if (node) {
		*ret = node;
		return 0;
	}
	fresh = ufs_node_new(fs, f->st.stx_mode & S_IFMT);
	lower = ufs_node_new_lower(f);
	if (!fresh || !lower) {
		ufs_node_free(fresh);
		ufs_lower_free(lower);
		return -ENOMEM;
	}
	ufs_lock(fs);
	node = find_file(fs, &id);
	if (!node) {
		r = insert_file(fresh, lower, f);
		if (r == 0) {
			node = take_ptr(&fresh);
			lower = NULL;
		}
	}
	ufs_unlock(fs);
	ufs_node_free(fresh);
	ufs_lower_free(lower);
	if (r == 0)
		*ret = node;
	return r;
}

int ufs_node_enter(struct ufs_node *parent, const char *name, struct ufs_finds *f,
		   const uint64_t *seq, struct ufs_node **ret)
{
	if (ufs_found_is_dir(&f->found[0]))
		return ufs_node_enter_dir(parent, name, f, seq, ret);
	return ufs_node_enter_file(parent->fs, &f->found[0], ret);
}

bool ufs_node_has_room(struct ufs *fs)
{
	bool has;

	ufs_lock(fs);
	has = fs->n_kept_fds < fs->max_kept_fds;
	ufs_unlock(fs);
	return has;
}

struct ufs_node *ufs_node_of(struct ufs *fs, const struct ufs_found *f)
{
	const struct ufs_ident id = ufs_found_ident(f);
	struct ufs_node *node = NULL;
	struct ufs_lower *l;

	ufs_lock(fs);
	l = ufs_objmap_find(&fs->objects, &id);
	if (l) {
		node = l->node;
		node->refs++;
	}
	ufs_unlock(fs);
	return node;
}

void ufs_node_keep(struct ufs_node *node, int fd)
{
	cleanup_fd int spare = fd;
	struct stat st;

	if (fstatat(fd, "", &st, AT_EMPTY_PATH) < 0 || st.st_nlink)
		return;
	ufs_lock(node->fs);
	if (!node->is_dir && node->lower->fd < 0)
		ufs_lower_set_fd(node->fs, node->lower, take_fd(&spare));
	ufs_unlock(node->fs);
}

/* What was kept when its last name went. */
static int kept_fd(struct ufs *fs, struct ufs_node *node)
{
	int fd;

	ufs_lock(fs);
	fd = node->lower->fd;
	ufs_unlock(fs);
	if (fd < 0)
		return -ESTALE;
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* it stays open as long as the node lives */
	return fd < 0 ? -errno : fd;
}

int ufs_node_path_fd(struct ufs *fs, struct ufs_node *node)
{
	struct ufs_file *file = ufs_file_of(node);
	int fd;

	if (!file) {
		fd = ufs_lower_open(fs, node->lower, O_PATH);
		return fd == -ESTALE ? kept_fd(fs, node) : fd;
	}
	fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		fd = -errno;
	ufs_file_put(fs, file);
	return fd;
}

int ufs_node_open(struct ufs *fs, struct ufs_node *node, int flags)
{
	struct ufs_file *file;
	int fd;

	fd = ufs_lower_open(fs, node->lower, flags);
	if (fd != -ESTALE)
		return fd;
	/* It has no name any more, but it may still be open, or kept. */
	file = ufs_file_of(node);
	if (!file) {
		cleanup_fd int kept = kept_fd(fs, node);

		if (kept < 0)
			return kept;
		fd = open(UC_FD_PATH(kept), flags | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	}
	fd = open(UC_FD_PATH(file->fd), flags | O_CLOEXEC);
	if (fd < 0)
		fd = -errno;
	ufs_file_put(fs, file);
	return fd;
}

/* The root's copies stay whatever may happen to the branches' directories. */
static int add_root_copy(struct ufs_node *root, unsigned branch)
{
	struct ufs *fs = root->fs;
	struct ufs_found f;
	int fd, r;

	fd = openat(fs->branch[branch].root_fd, ".", O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = ufs_probe_fd(fs, branch, fd, &f);
	if (r < 0)
		return r;
	r = ufs_node_add_copy(root, &f, false, false);
	uc_closep(&f.fd);
	if (r < 0)
		return r;
	ufs_lock(fs);
	ufs_lower_pin(fs, root->dir->copy[branch]);
	ufs_unlock(fs);
	return 0;
}

int ufs_nodes_init(struct ufs *fs)
{
	struct ufs_node *root;
	int r;

	r = ufs_objmap_init(&fs->objects);
	if (r < 0)
		return r;
	root = ufs_node_new(fs, S_IFDIR);
	if (!root)
		return -ENOMEM;
	r = ufs_node_insert(root);
	if (r < 0) {
		ufs_node_free(root);
		return r;
	}
	root->refs = 1;
	for (unsigned i = 0; i < fs->n_branches && r == 0; i++)
		r = add_root_copy(root, i);
	return r;
}

void ufs_nodes_done(struct ufs *fs)
{
	ufs_objmap_done(&fs->objects);
	for (uint32_t i = 0; i < fs->nodes.n; i++)
		ufs_node_free(fs->nodes.slot[i].object);
	free(fs->nodes.slot);
}
