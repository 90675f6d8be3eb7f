/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * The branch that the source shows on, s, keeps the file: it only gets another name.
 * What has the target's name on other branches must go, and at no moment may the
 * target be missing, or an old file come back once the new one was seen and its
 * directory synced.  Branches are filesystems of their own, so what is done on one
 * may reach the disk before what was done earlier on another, unless it is synced.
 *
 * No branch below s has the target ("replace"):
 *     the rename on s shows the new file at once, and everything above s is hidden by
 *     it.  If there is anything, the contents are synced before, and the new name
 *     before the old copies above s are removed.
 *
 * A branch below s has it ("uncover"):
 *     the contents are synced; the file on s gets the new name as a second link,
 *     hidden by the old file; that is synced; old copies that do not show are removed;
 *     that is synced; the old file is removed, which is the moment when the new one
 *     shows; that is synced; the old name goes.
 *
 * The tables below list the steps.  A failure before the new file shows is undone; of
 * one after that moment it depends on the step whether the caller learns of it.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/os/fd.h"
#include "union-fs/clone.h"
#include "union-fs/freed.h"
#include "union-fs/rename.h"

/* --- what there is --- */

/* Notes what each branch has under a name, and returns the lowest one's index, or -1. */
static int survey_name(const struct ufs_view *v, const char *name, int *types, int *ret_first)
{
	*ret_first = -1;
	for (unsigned i = 0; i < v->n; i++) {
		int type = ufs_type_at(v->pin[i].fd, name);

		if (type == -ENOENT)
			continue;
		if (type < 0)
			return type;
		types[v->pin[i].branch] = type;
		if (*ret_first < 0)
			*ret_first = (int)v->pin[i].branch;
	}
	return 0;
}

int ufs_move_survey(struct ufs_move *m)
{
	int r;

	ufs_view_close(&m->from_v);
	ufs_view_close(&m->to_v);
	memset(m->src, 0, m->fs->n_branches * sizeof(*m->src));
	memset(m->dst, 0, m->fs->n_branches * sizeof(*m->dst));
	if ((r = ufs_view_open(m->fs, m->from, &m->from_v)) < 0 ||
	    (r = ufs_view_open(m->fs, m->to, &m->to_v)) < 0 ||
	    /* A branch that cannot be looked at might have either name. */
	    (r = m->from_v.error) < 0 || (r = m->to_v.error) < 0 ||
	    (r = survey_name(&m->from_v, m->name, m->src, &m->source)) < 0 ||
	    (r = survey_name(&m->to_v, m->new_name, m->dst, &m->target)) < 0)
		return r;
	return m->source < 0 ? -ENOENT : 0;
}

int ufs_move_clone_to(struct ufs_move *m, unsigned branch, bool locked)
{
	int r;

	if (ufs_view_at(&m->to_v, branch))
		return 0;
	r = locked ? ufs_clone_locked(m->w, m->to, branch) : ufs_clone(m->w, m->to, branch);
	if (r < 0)
		return ufs_clone_is_impossible(r) ? -EXDEV : r;
	r = ufs_move_survey(m);
	return r == 0 && !ufs_view_at(&m->to_v, branch) ? -ESTALE : r;
}

static const struct ufs_pin *from_pin(const struct ufs_move *m, int branch)
{
	return ufs_view_at(&m->from_v, (unsigned)branch);
}

static const struct ufs_pin *to_pin(const struct ufs_move *m, int branch)
{
	return ufs_view_at(&m->to_v, (unsigned)branch);
}

static int from_fd(const struct ufs_move *m, int branch)
{
	return from_pin(m, branch)->fd;
}

static int to_fd(const struct ufs_move *m, int branch)
{
	return to_pin(m, branch)->fd;
}

static bool is_file(int type)
{
	return type && type != S_IFDIR;
}

static int sync_to(struct ufs_move *m, int branch)
{
	return ufs_sync_copy(m->to, to_pin(m, branch));
}

/* Removes a name that a copy may have. */
static int remove_name(struct ufs_move *m, const struct ufs_pin *pin, const char *name, int flags)
{
	if (unlinkat(pin->fd, name, flags) < 0)
		return errno == ENOENT ? 0 : -errno;
	ufs_freed_note(m->fs, pin, name);
	return 0;
}

/* --- steps --- */

static int clone_to(struct ufs_move *m)
{
	return ufs_move_clone_to(m, (unsigned)m->source, false);
}

/* What was removed on other branches must not come back: it would hide a file, or show. */
static int sync_removed_targets(struct ufs_move *m)
{
	return ufs_freed_settle(&m->to_v, (unsigned)m->source, m->new_name);
}

static int sync_removed_names(struct ufs_move *m)
{
	int r = sync_removed_targets(m);

	return r < 0 ? r : ufs_freed_settle(&m->from_v, (unsigned)m->source, m->name);
}

/*
 * Its new name is going to be on disk at once: so must be its contents, or both the old file and the
 * new one could be lost.  (Within one filesystem, ext4 and others see to that themselves.)
 */
static int sync_contents(struct ufs_move *m)
{
	cleanup_fd int fd = -1;

	if (m->src[m->source] != S_IFREG)
		return 0;
	fd = openat(from_fd(m, m->source), m->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return fdatasync(fd) < 0 ? -errno : 0;
}

static bool has_stale(const struct ufs_move *m)
{
	for (unsigned t = (unsigned)m->source + 1; t < m->fs->n_branches; t++)
		if (is_file(m->dst[t]))
			return true;
	return false;
}

static int sync_replacing(struct ufs_move *m)
{
	return has_stale(m) ? sync_contents(m) : 0;
}

/* Replace: on s, at once. */
static int rename_source(struct ufs_move *m)
{
	const struct ufs_pin *from = from_pin(m, m->source);

	if (renameat2(from->fd, m->name, to_fd(m, m->source), m->new_name, m->flags) < 0)
		return -errno;
	ufs_freed_note(m->fs, from, m->name);
	return 0;
}

static int sync_replaced(struct ufs_move *m)
{
	return has_stale(m) ? sync_to(m, m->source) : 0;
}

/* Old copies above s, which do not show. */
static int remove_stale(struct ufs_move *m)
{
	int failure = 0;

	for (int t = (int)m->fs->n_branches - 1; t > m->source; t--) {
		int r = is_file(m->dst[t]) ? remove_name(m, to_pin(m, t), m->new_name, 0) : 0;

		failure = r < 0 ? r : failure;
	}
	return failure;
}

/* Uncover: what s itself has there is hidden by the old file. */
static int remove_hidden_target(struct ufs_move *m)
{
	const int s = m->source, type = m->dst[s];
	int r;

	r = type ? remove_name(m, to_pin(m, s), m->new_name, type == S_IFDIR ? AT_REMOVEDIR : 0)
		 : 0;
	return r == -ENOTEMPTY || r == -EEXIST ? -EXDEV : r;
}

static int link_source(struct ufs_move *m)
{
	const int s = m->source;

	if (linkat(from_fd(m, s), m->name, to_fd(m, s), m->new_name, 0) < 0)
		/* No links on this filesystem, or no more of this file. */
		return errno == EPERM || errno == EMLINK || errno == EOPNOTSUPP ? -EXDEV : -errno;
	m->linked = true;
	return 0;
}

static int sync_linked(struct ufs_move *m)
{
	return sync_to(m, m->source);
}

/* Old copies that the one that shows hides: none of them may show when that has gone. */
static int remove_hidden_targets(struct ufs_move *m)
{
	for (int t = (int)m->fs->n_branches - 1; t > m->target; t--) {
		int r = t != m->source && is_file(m->dst[t])
				? remove_name(m, to_pin(m, t), m->new_name, 0)
				: 0;

		if (r < 0)
			return r;
	}
	return 0;
}

static int remove_target(struct ufs_move *m)
{
	int r = remove_name(m, to_pin(m, m->target), m->new_name, 0);

	if (r == 0)
		m->linked = false; /* nothing to be undone any more */
	return r;
}

/* Copies of the source that did not show go along, hidden as they were; or else they go. */
static int move_hidden_sources(struct ufs_move *m)
{
	for (unsigned h = (unsigned)m->source + 1; h < m->fs->n_branches; h++) {
		const struct ufs_pin *from = ufs_view_at(&m->from_v, h), *to;
		int r = 0;

		if (!from || !is_file(m->src[h]))
			continue;
		to = ufs_view_at(&m->to_v, h);
		if (to && renameat2(from->fd, m->name, to->fd, m->new_name, 0) == 0)
			ufs_freed_note(m->fs, from, m->name);
		else
			r = remove_name(m, from, m->name, 0);
		if (r < 0)
			return r;
	}
	return 0;
}

static int remove_source(struct ufs_move *m)
{
	return remove_name(m, from_pin(m, m->source), m->name, 0);
}

/* --- sequences of steps --- */

enum on_failure {
	UNDO,  /* nothing shows yet: take back what was done, and fail */
	FAIL,  /* the new file shows, but the old name must stay: it may be all that is left after a
		  crash */
	STOP,  /* the new file shows: succeed, and leave the rest: what is not on disk must not
		  replace what is */
	GO_ON, /* the new file shows, and what this leaves behind is hidden by it: succeed */
};

struct step {
	int (*run)(struct ufs_move *m);
	enum on_failure on_failure;
	const char *what;
};

static const struct step replace[] = {
	{ clone_to, UNDO, "clone the directory" },
	{ sync_removed_names, UNDO, "sync what was removed before" },
	{ sync_replacing, UNDO, "sync the contents" },
	{ rename_source, UNDO, "rename" }, /* the new file shows */
	{ sync_replaced, STOP, "sync the new name" },
	{ remove_stale, GO_ON, "remove old copies" },
	{ move_hidden_sources, GO_ON, "move hidden copies" },
	{ 0 },
};

static const struct step uncover[] = {
	{ clone_to, UNDO, "clone the directory" },
	{ sync_removed_names, UNDO, "sync what was removed before" },
	{ remove_hidden_target, UNDO, "remove what is hidden under the new name" },
	{ sync_contents, UNDO, "sync the contents" },
	{ link_source, UNDO, "link the new name" },
	{ sync_linked, UNDO, "sync the new name" },
	{ remove_hidden_targets, UNDO, "remove old copies" },
	{ sync_removed_targets, UNDO, "sync their removal" },
	{ remove_target, UNDO, "remove the old file" }, /* the new file shows */
	{ sync_removed_targets, FAIL, "sync its removal" },
	{ move_hidden_sources, GO_ON, "move hidden copies" },
	{ remove_source, FAIL, "remove the old name" },
	{ 0 },
};

static void undo(struct ufs_move *m)
{
	int r = m->linked ? remove_name(m, to_pin(m, m->source), m->new_name, 0) : 0;

	if (r < 0)
		log_warn("undo a rename: remove a hidden link: error %d", -r);
}

static int run(struct ufs_move *m, const struct step *steps)
{
	for (const struct step *s = steps; s->run; s++) {
		int r = s->run(m);

		if (r == 0)
			continue;
		log_debug("rename: %s: error %d", s->what, -r);
		if (s->on_failure == UNDO)
			undo(m);
		if (s->on_failure != GO_ON)
			return s->on_failure == STOP ? 0 : r;
	}
	return 0;
}

/* --- which sequence --- */

static int check_writable(const struct ufs_move *m)
{
	for (unsigned i = 0; i < m->fs->n_branches; i++)
		if ((m->src[i] || m->dst[i]) && m->fs->branch[i].mode == UFS_BRANCH_RO)
			return -EROFS;
	return 0;
}

/*
 * A file that is replaced stays open while the kernel knows it: who has just looked the name up
 * goes on to open it, and must get the old file or the new one.
 */
static struct ufs_node *hold_target(struct ufs_move *m, struct ufs_found *ret)
{
	const struct ufs_pin *pin = ufs_view_at(&m->to_v, (unsigned)m->target);

	if (ufs_probe(m->fs, pin->branch, pin->fd, m->new_name, ret) < 0)
		return NULL;
	return !ufs_found_is_dir(ret) ? ufs_node_of(m->fs, ret) : NULL;
}

static int replace_file(struct ufs_move *m)
{
	cleanup_node struct ufs_node *node = NULL;
	struct ufs_found f = { .fd = -1 };
	int r;

	node = hold_target(m, &f);
	r = run(m, m->target < m->source ? uncover : replace);
	if (r == 0 && node)
		ufs_node_keep(node, take_fd(&f.fd));
	uc_closep(&f.fd);
	return r;
}

static int rename_file(struct ufs_move *m)
{
	if (m->target >= 0 && m->flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (m->target >= 0 && m->dst[m->target] == S_IFDIR)
		return -EISDIR;
	return m->target >= 0 ? replace_file(m) : run(m, replace);
}

/* Directories exchange their places. */
static int exchange_places(struct ufs_node *a, struct ufs_node *b, struct ufs_move *m)
{
	cleanup_free char *name = strdup(m->name), *new_name = strdup(m->new_name);

	if (!name || !new_name)
		return -ENOMEM;
	if (a && a->is_dir)
		ufs_node_move(a, m->to, take_ptr(&new_name));
	if (b && b->is_dir)
		ufs_node_move(b, m->from, take_ptr(&name));
	return 0;
}

/* Under fs->tree. */
static int exchange(struct ufs_move *m)
{
	cleanup_finds struct ufs_finds f = { 0 }, g = { 0 };
	cleanup_node struct ufs_node *a = NULL, *b = NULL;
	int r;

	if (m->target < 0)
		return -ENOENT;
	r = ufs_find(m->fs, &m->from_v, m->name, &f);
	if (r == 0)
		r = ufs_find(m->fs, &m->to_v, m->new_name, &g);
	if (r == 0)
		r = f.error ? f.error : g.error;
	if (r < 0)
		return r;
	if (m->source != m->target || f.n > 1 || g.n > 1)
		return -EINVAL;
	a = ufs_node_of(m->fs, &f.found[0]);
	b = ufs_node_of(m->fs, &g.found[0]);
	ufs_tree_begin(m->fs);
	if (renameat2(from_fd(m, m->source), m->name, to_fd(m, m->source), m->new_name,
		      RENAME_EXCHANGE) < 0)
		r = -errno;
	else
		r = exchange_places(a, b, m);
	ufs_tree_end(m->fs);
	return r;
}

static int rename_locked(struct ufs_move *m)
{
	int r;

	ufs_tree_lock(m->fs);
	r = ufs_move_survey(m);
	if (r == 0)
		r = check_writable(m);
	if (r == 0)
		r = m->flags & RENAME_EXCHANGE ? exchange(m) : ufs_rename_dir(m);
	ufs_tree_unlock(m->fs);
	return r;
}

int ufs_rename(struct ufs_worker *w, struct ufs_node *from, const char *name, struct ufs_node *to,
	       const char *new_name, unsigned flags)
{
	cleanup_free int *types = calloc(2 * (size_t)w->fs->n_branches, sizeof(*types));
	struct ufs_move m = {
		.w = w,
		.fs = w->fs,
		.from = from,
		.to = to,
		.name = name,
		.new_name = new_name,
		.flags = flags,
	};
	int r;

	if (!types)
		return -ENOMEM;
	m.src = types;
	m.dst = types + w->fs->n_branches;
	if (flags != 0 && flags != RENAME_NOREPLACE && flags != RENAME_EXCHANGE)
		return -EINVAL;
	r = ufs_move_survey(&m);
	if (r == 0)
		r = check_writable(&m);
	if (r == 0 && (flags & RENAME_EXCHANGE || m.src[m.source] == S_IFDIR))
		r = rename_locked(&m);
	else if (r == 0)
		r = rename_file(&m);
	ufs_view_close(&m.from_v);
	ufs_view_close(&m.to_v);
	return r;
}
