/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * A directory's copies can come and go: cloning adds one, and on branches that
 * others change too, a lookup finds what is there now and makes the node agree.
 * Which node that is when the found copies are known as parts of different ones
 * (somebody has moved them about) is decided by the oldest copy.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "union-fs/attr.h"
#include "union-fs/node.h"
#include "union-fs/objmap.h"

enum {
	DEPTH_MAX = 1 << 20, /* directories above each other; more is a loop */
};

/** struct entrance - what entering a directory may need, allocated before the lock is taken */
struct entrance {
	struct ufs_node *node;
	struct ufs_lower **fresh, **copy; /* one for each that was found */
	char *name;
	unsigned n;
};

static void entrance_done(struct entrance *e)
{
	ufs_node_free(e->node);
	for (unsigned i = 0; e->fresh && i < e->n; i++)
		ufs_lower_free(e->fresh[i]);
	free(e->fresh);
	free(e->copy);
	free(e->name);
}

static int entrance_init(struct entrance *e, struct ufs *fs, const char *name,
			 const struct ufs_finds *f)
{
	e->n = f->n;
	e->node = ufs_node_new(fs, S_IFDIR);
	e->fresh = calloc(f->n, sizeof(struct ufs_lower *));
	e->copy = calloc(f->n, sizeof(struct ufs_lower *));
	e->name = strdup(name);
	if (!e->node || !e->fresh || !e->copy || !e->name)
		return -ENOMEM;
	for (unsigned i = 0; i < f->n; i++) {
		e->fresh[i] = ufs_node_new_lower(&f->found[i]);
		if (!e->fresh[i])
			return -ENOMEM;
	}
	return 0;
}

/* --- under the lock --- */

static void remove_copy(struct ufs_dir *dir, const struct ufs_lower *l)
{
	for (unsigned i = 0; i < dir->n; i++)
		if (dir->copy[i] == l) {
			dir->n--;
			memmove(&dir->copy[i], &dir->copy[i + 1],
				(dir->n - i) * sizeof(struct ufs_lower *));
			return;
		}
}

/*
 * Gives copies that have no descriptor the ones that were found, if there may be more: both are
 * in the order of branches.
 */
static void adopt_fds(struct ufs *fs, struct ufs_node *node, struct ufs_finds *f)
{
	for (unsigned i = 0; i < node->dir->n; i++) {
		struct ufs_lower *l = node->dir->copy[i];

		if (l->fd >= 0)
			ufs_lower_touch(fs, l);
		else if (!l->handle_size || fs->n_dir_fds < fs->max_dir_fds)
			ufs_lower_set_fd(fs, l, take_fd(&f->found[i].fd));
	}
}

/* The node that is known to have exactly the found copies, parent and name. */
static struct ufs_node *find_dir(const struct ufs_node *parent, const char *name,
				 const struct ufs_finds *f)
{
	struct ufs_node *node = NULL;

	for (unsigned i = 0; i < f->n; i++) {
		const struct ufs_ident id = ufs_found_ident(&f->found[i]);
		struct ufs_lower *l = ufs_objmap_find(&parent->fs->objects, &id);

		if (!l || !l->copy || (node && l->node != node))
			return NULL;
		node = l->node;
	}
	if (!node || node->dir->n != f->n || node->dir->parent != parent ||
	    strcmp(node->dir->name, name) != 0)
		return NULL;
	return node;
}

static unsigned oldest(const struct ufs_finds *f)
{
	unsigned best = 0;

	for (unsigned i = 1; i < f->n; i++)
		if (!ufs_older(&f->found[best].st, &f->found[i].st))
			best = i;
	return best;
}

/* Fills e->copy with known objects, else with new ones, and chooses the node. */
static struct ufs_node *choose_node(struct entrance *e, struct ufs *fs, const struct ufs_finds *f)
{
	struct ufs_node *node = NULL;

	for (unsigned i = 0; i < f->n; i++) {
		const struct ufs_ident id = ufs_found_ident(&f->found[i]);
		struct ufs_lower *l = ufs_objmap_find(&fs->objects, &id);

		e->copy[i] = l ? l : e->fresh[i];
		if (l && !node)
			node = l->node;
	}
	if (e->copy[oldest(f)]->node)
		node = e->copy[oldest(f)]->node;
	return node ? node : e->node;
}

static bool is_above(const struct ufs_node *node, const struct ufs_node *below)
{
	for (unsigned depth = 0; below && depth < DEPTH_MAX; depth++) {
		if (below == node)
			return true;
		below = below->dir->parent;
	}
	return below != NULL;
}

static bool has(struct ufs_lower *const *copy, unsigned n, const struct ufs_lower *l)
{
	for (unsigned i = 0; i < n; i++)
		if (copy[i] == l)
			return true;
	return false;
}

/* Makes the node's copies those in e->copy. */
static void replace_copies(struct entrance *e, struct ufs_node *node, struct ufs_dead *dead)
{
	struct ufs_dir *dir = node->dir;
	struct ufs_lower **old = dir->copy;
	unsigned n_old = dir->n;

	dir->copy = take_ptr(&e->copy);
	dir->n = e->n;
	for (unsigned i = 0; i < dir->n; i++) {
		struct ufs_lower *l = dir->copy[i];

		if (l->node && l->node != node)
			remove_copy(l->node->dir, l);
		if (l == e->fresh[i]) {
			ufs_objmap_add(&node->fs->objects, l);
			e->fresh[i] = NULL;
		}
		l->node = node;
	}
	for (unsigned i = 0; i < n_old; i++)
		if (!has(dir->copy, dir->n, old[i]))
			ufs_lower_abandon(node->fs, old[i], dead);
	free(old);
}

/* Exchanges *@name for the former one. */
static void set_place(struct ufs_node *node, struct ufs_node *parent, char **name,
		      struct ufs_dead *dead)
{
	struct ufs_node *former = node->dir->parent;
	char *former_name = node->dir->name;

	node->dir->name = *name;
	*name = former_name;
	if (former == parent)
		return;
	parent->refs++;
	node->dir->parent = parent;
	if (former) {
		former->refs--;
		ufs_node_reap(former, dead);
	}
}

static bool too_many_kept(const struct ufs *fs, const struct ufs_finds *f)
{
	for (unsigned i = 0; i < f->n; i++)
		if (!f->found[i].has_handle && !f->found[i].made &&
		    fs->n_kept_fds >= fs->max_kept_fds)
			return true;
	return false;
}

static void count_lookup(struct ufs_node *node, const struct ufs_finds *f)
{
	node->nlookup++;
	node->refs++;
	node->dir->error = f->error;
	node->dir->gone = false;
}

static int enter_locked(struct entrance *e, struct ufs_node *parent, struct ufs_finds *f,
			struct ufs_dead *dead, struct ufs_node **ret)
{
	struct ufs *fs = parent->fs;
	struct ufs_node *node = choose_node(e, fs, f);
	int r;

	if (too_many_kept(fs, f))
		return -ENFILE;
	if (node == e->node) {
		r = ufs_node_insert(node);
		if (r < 0)
			return r;
		e->node = NULL;
	} else if (is_above(node, parent)) {
		return -ELOOP;
	}
	count_lookup(node, f);
	replace_copies(e, node, dead);
	set_place(node, parent, &e->name, dead);
	adopt_fds(fs, node, f);
	*ret = node;
	return 0;
}

static bool tree_has_changed(const struct ufs *fs, const uint64_t *seq)
{
	return seq && (*seq != fs->tree_seq || *seq & 1);
}

/* --- not under the lock --- */

int ufs_node_enter_dir(struct ufs_node *parent, const char *name, struct ufs_finds *f,
		       const uint64_t *seq, struct ufs_node **ret)
{
	__attribute__((cleanup(entrance_done))) struct entrance e = { 0 };
	cleanup_dead struct ufs_dead dead = { 0 };
	struct ufs *fs = parent->fs;
	struct ufs_node *node;
	bool changed;
	int r;

	ufs_lock(fs);
	changed = tree_has_changed(fs, seq);
	node = changed ? NULL : find_dir(parent, name, f);
	if (node) {
		count_lookup(node, f);
		adopt_fds(fs, node, f);
		*ret = node;
	}
	ufs_unlock(fs);
	if (node || changed)
		return node ? 0 : -EAGAIN;

	r = entrance_init(&e, fs, name, f);
	if (r < 0)
		return r;
	ufs_lock(fs);
	r = tree_has_changed(fs, seq) ? -EAGAIN : enter_locked(&e, parent, f, &dead, ret);
	ufs_unlock(fs);
	return r;
}

void ufs_node_move(struct ufs_node *node, struct ufs_node *parent, char *name)
{
	cleanup_dead struct ufs_dead dead = { 0 };
	struct ufs *fs = node->fs;

	ufs_lock(fs);
	set_place(node, parent, &name, &dead);
	ufs_unlock(fs);
	free(name);
}

int ufs_node_where(struct ufs_node *node, struct ufs_node **ret_parent, char **ret_name)
{
	struct ufs *fs = node->fs;
	int r = -ENOENT;

	ufs_lock(fs);
	if (node->dir->parent) {
		*ret_name = strdup(node->dir->name);
		r = *ret_name ? 0 : -ENOMEM;
	}
	if (r == 0) {
		*ret_parent = node->dir->parent;
		(*ret_parent)->refs++;
	}
	ufs_unlock(fs);
	return r;
}

bool ufs_node_is_partial(struct ufs_node *node)
{
	bool partial;

	ufs_lock(node->fs);
	partial = node->is_dir && node->dir->error;
	ufs_unlock(node->fs);
	return partial;
}

void ufs_node_set_gone(struct ufs_node *node)
{
	ufs_lock(node->fs);
	node->dir->gone = true;
	ufs_unlock(node->fs);
}

bool ufs_node_is_gone(struct ufs_node *node)
{
	bool gone;

	ufs_lock(node->fs);
	gone = node->dir->gone;
	ufs_unlock(node->fs);
	return gone;
}

bool ufs_node_has_copy(struct ufs_node *node, unsigned branch)
{
	bool found = false;

	ufs_lock(node->fs);
	for (unsigned i = 0; i < node->dir->n && !found; i++)
		found = node->dir->copy[i]->branch == branch;
	ufs_unlock(node->fs);
	return found;
}

/* Under the lock; takes @l, which is in no map, if it succeeds. */
static int insert_copy(struct ufs_node *node, struct ufs_lower *l, struct ufs_dead *dead)
{
	struct ufs_dir *dir = node->dir;
	struct ufs_lower **grown = reallocarray(dir->copy, dir->n + 1, sizeof(struct ufs_lower *));
	unsigned i = 0;

	if (!grown)
		return -ENOMEM;
	dir->copy = grown;
	while (i < dir->n && grown[i]->branch < l->branch)
		i++;
	if (i < dir->n && grown[i]->branch == l->branch) {
		ufs_lower_abandon(node->fs, grown[i], dead); /* what was there before is gone */
	} else {
		memmove(&grown[i + 1], &grown[i], (dir->n - i) * sizeof(struct ufs_lower *));
		dir->n++;
	}
	grown[i] = l;
	l->node = node;
	ufs_objmap_add(&node->fs->objects, l);
	return 0;
}

int ufs_node_add_copy(struct ufs_node *node, struct ufs_found *f, bool aligned, bool unsynced)
{
	const struct ufs_ident id = ufs_found_ident(f);
	cleanup_dead struct ufs_dead dead = { 0 };
	struct ufs_lower *l = ufs_node_new_lower(f), *known;
	struct ufs *fs = node->fs;
	int r;

	if (!l)
		return -ENOMEM;
	ufs_lock(fs);
	known = ufs_objmap_find(&fs->objects, &id);
	if (known && known->node == node) {
		remove_copy(node->dir, known);
		ufs_lower_abandon(fs, known, &dead);
		known = NULL;
	}
	/* What another directory has can only change hands when it is looked up. */
	r = known ? -ESTALE : insert_copy(node, l, &dead);
	if (r == 0) {
		l->copy->aligned = aligned;
		l->copy->unsynced = unsynced;
		ufs_lower_set_fd(fs, l, take_fd(&f->fd));
	}
	ufs_unlock(fs);
	if (r < 0)
		ufs_lower_free(l);
	return r;
}

/* Under the lock. */
static void drop_locked(struct ufs_node *node, struct ufs_lower *lower, struct ufs_dead *dead)
{
	if (lower->node != node || node->index == UFS_ROOT_INDEX)
		return;
	remove_copy(node->dir, lower);
	ufs_lower_abandon(node->fs, lower, dead);
}

void ufs_node_drop_copy(struct ufs_node *node, struct ufs_lower *lower)
{
	cleanup_dead struct ufs_dead dead = { 0 };

	ufs_lock(node->fs);
	drop_locked(node, lower, &dead);
	ufs_unlock(node->fs);
}

void ufs_node_drop_found(struct ufs_node *node, const struct ufs_found *f)
{
	const struct ufs_ident id = ufs_found_ident(f);
	cleanup_dead struct ufs_dead dead = { 0 };
	struct ufs_lower *l;

	ufs_lock(node->fs);
	l = ufs_objmap_find(&node->fs->objects, &id);
	if (l)
		drop_locked(node, l, &dead);
	ufs_unlock(node->fs);
}
