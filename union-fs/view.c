/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "union-fs/view.h"

/* Takes a pin on every copy. */
static int pin_all(struct ufs_node *node, struct ufs_view *v)
{
	struct ufs *fs = node->fs;
	int r = -ESTALE;

	ufs_lock(fs);
	v->seq = fs->tree_seq;
	v->error = node->dir->error;
	for (unsigned i = 0; i < node->dir->n; i++) {
		struct ufs_lower *l = node->dir->copy[i];

		ufs_lower_pin(fs, l);
		v->pin[v->n++] = (struct ufs_pin){ .lower = l, .fd = l->fd, .branch = l->branch };
		r = 0;
	}
	ufs_unlock(fs);
	return r;
}

static void unpin(struct ufs *fs, struct ufs_lower *l)
{
	cleanup_dead struct ufs_dead dead = { 0 };

	ufs_lock(fs);
	ufs_lower_unpin(fs, l, &dead);
	ufs_unlock(fs);
}

/* Gives a pinned object a descriptor, unless another request was faster; returns the one that
 * counts. */
static int adopt(struct ufs *fs, struct ufs_lower *l, int fd)
{
	cleanup_fd int spare = fd;

	ufs_lock(fs);
	if (l->fd < 0)
		ufs_lower_set_fd(fs, l, take_fd(&spare));
	fd = l->fd;
	ufs_unlock(fs);
	return fd;
}

static int open_pin(struct ufs *fs, struct ufs_pin *p)
{
	int fd = ufs_lower_open(fs, p->lower, O_PATH | O_DIRECTORY | O_NOFOLLOW);

	if (fd < 0)
		return fd;
	p->fd = adopt(fs, p->lower, fd);
	return 0;
}

int ufs_view_open(struct ufs *fs, struct ufs_node *node, struct ufs_view *ret)
{
	unsigned n = 0;
	int r;

	if (!node->is_dir)
		return -ENOTDIR;
	ret->fs = fs;
	ret->pin = ret->some;
	if (fs->n_branches > UFS_VIEW_INLINE)
		ret->pin = calloc(fs->n_branches, sizeof(*ret->pin));
	if (!ret->pin)
		return -ENOMEM;
	r = pin_all(node, ret);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < ret->n; i++) {
		struct ufs_pin p = ret->pin[i];

		r = p.fd < 0 ? open_pin(fs, &p) : 0;
		if (r == 0) {
			ret->pin[n++] = p;
			continue;
		}
		if (r == -ESTALE || r == -ENOENT)
			ufs_node_drop_copy(node, p.lower);
		else
			ret->error = r;
		unpin(fs, p.lower);
	}
	ret->n = n;
	if (!n)
		return ret->error ? ret->error : -ESTALE;
	return 0;
}

void ufs_view_close(struct ufs_view *v)
{
	while (v->n) {
		cleanup_dead struct ufs_dead dead = { 0 };

		/* As many as may be closed in one go: or their number would grow and grow. */
		ufs_lock(v->fs);
		for (unsigned i = 0; i < UFS_EVICT_MAX && v->n; i++)
			ufs_lower_unpin(v->fs, v->pin[--v->n].lower, &dead);
		ufs_unlock(v->fs);
	}
	if (v->pin != v->some)
		free(v->pin);
	v->pin = NULL;
}

const struct ufs_pin *ufs_view_at(const struct ufs_view *v, unsigned branch)
{
	for (unsigned i = 0; i < v->n; i++)
		if (v->pin[i].branch == branch)
			return &v->pin[i];
	return NULL;
}

/* The same order as ufs_older(). */
static bool is_younger(const struct ufs_copy *a, const struct ufs_copy *than)
{
	if (!a->has_btime || !than->has_btime)
		return true;
	if (a->btime_sec != than->btime_sec)
		return a->btime_sec > than->btime_sec;
	return a->btime_nsec >= than->btime_nsec;
}

const struct ufs_pin *ufs_view_identity(const struct ufs_view *v)
{
	const struct ufs_pin *best = &v->pin[0];

	for (unsigned i = 1; i < v->n; i++)
		if (!is_younger(v->pin[i].lower->copy, best->lower->copy))
			best = &v->pin[i];
	return best;
}
