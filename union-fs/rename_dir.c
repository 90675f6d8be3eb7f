/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * A directory is renamed on every branch that has a copy of it; a target that exists
 * is empty on every branch, and goes.  One branch: one rename, which cannot be half
 * done.  Several: while we run, lookups of directories wait for the end (fs->tree_seq),
 * and a failure is undone; against a crash there is an intent (intent.h):
 *
 *     1  the target's directory exists on all branches concerned, and is synced
 *     2  the intent is written
 *     3  the copies are renamed
 *     4  copies of the empty target on other branches are removed
 *     5  the directories on both sides are synced
 *     6  the intent is removed
 *
 * Carrying it out again does what is left of 3 to 6: a copy that is still under the old
 * name (told by its inode number) is renamed, a target that is still there removed.
 *
 * Branches without a union/ of their own (plain directories) have no intent: there,
 * an interruption between two branches leaves the directory under both names.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/str.h"
#include "union-fs/clone.h"
#include "union-fs/freed.h"
#include "union-fs/intent.h"
#include "union-fs/ops.h"
#include "union-fs/remove.h"
#include "union-fs/rename.h"

static bool moves_on(const struct ufs_move *m, unsigned branch)
{
	return m->src[branch] == S_IFDIR;
}

static bool is_obsolete_on(const struct ufs_move *m, unsigned branch)
{
	return m->dst[branch] == S_IFDIR && !moves_on(m, branch);
}

static unsigned count_branches(const struct ufs_move *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m->fs->n_branches; i++)
		n += moves_on(m, i) || is_obsolete_on(m, i);
	return n;
}

/* The target must be absent or an empty directory, wherever anything of it is. */
static int check_target_on(const struct ufs_move *m, const struct ufs_pin *pin)
{
	const int type = m->dst[pin->branch];
	cleanup_fd int fd = -1;
	int r;

	if (type != S_IFDIR) /* a file that the target hides may be in the way */
		return type && moves_on(m, pin->branch) ? -EXDEV : 0;
	fd = openat(pin->fd, m->new_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = ufs_is_empty_dir(fd);
	return r > 0 ? 0 : r < 0 ? r : -ENOTEMPTY;
}

static int check_target(const struct ufs_move *m)
{
	if (m->target < 0)
		return 0;
	if (m->flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (m->dst[m->target] != S_IFDIR)
		return -ENOTDIR;
	for (unsigned i = 0; i < m->to_v.n; i++) {
		int r = check_target_on(m, &m->to_v.pin[i]);

		if (r < 0)
			return r;
	}
	return 0;
}

/* Step 1, but for the syncing. */
static int clone_to_all(struct ufs_move *m)
{
	for (unsigned i = 0; i < m->fs->n_branches; i++) {
		int r = moves_on(m, i) ? ufs_move_clone_to(m, i, true) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

/* What was removed of both names on other branches must not come back, and be merged. */
static int settle(const struct ufs_move *m)
{
	int r = ufs_freed_settle(&m->to_v, (unsigned)m->source, m->new_name);

	return r < 0 ? r : ufs_freed_settle(&m->from_v, (unsigned)m->source, m->name);
}

static int sync_view(struct ufs_node *dir, const struct ufs_view *v, const struct ufs_move *m)
{
	for (unsigned i = 0; i < v->n; i++) {
		unsigned b = v->pin[i].branch;
		int r = moves_on(m, b) || is_obsolete_on(m, b)
				? ufs_sync_copy_locked(dir, &v->pin[i])
				: 0;

		if (r < 0)
			return r;
	}
	return 0;
}

/* --- the intent --- */

/* "a/b/c" for a directory's entry, from the root. */
static char *path_of(struct ufs_node *dir, const char *name)
{
	cleanup_free char *path = strdup(name);
	struct ufs_node *node = ufs_node_get(dir->fs, ufs_node_id(dir));

	while (path) {
		cleanup_free char *above = NULL;
		struct ufs_node *parent = NULL;
		char *longer = NULL;
		int r = ufs_node_where(node, &parent, &above);

		if (r == -ENOENT)
			break;
		if (r == 0 && asprintf(&longer, "%s/%s", above, path) < 0)
			longer = NULL;
		free(path);
		path = longer;
		ufs_node_put(node);
		node = parent;
	}
	ufs_node_put(node);
	return take_ptr(&path);
}

static int fill_branches(const struct ufs_move *m, struct ufs_intent *intent)
{
	intent->branch = calloc(m->fs->n_branches, sizeof(*intent->branch));
	if (!intent->branch)
		return -ENOMEM;
	for (unsigned i = 0; i < m->fs->n_branches; i++) {
		struct stat st = { 0 };

		if (!moves_on(m, i) && !is_obsolete_on(m, i))
			continue;
		if (moves_on(m, i) &&
		    fstatat(ufs_view_at(&m->from_v, i)->fd, m->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		intent->branch[intent->n++] =
			(struct ufs_intent_branch){ .branch = i, .ino = st.st_ino };
	}
	return 0;
}

/* Where the intent goes: -1 where there is none. */
static int home_of(const struct ufs_move *m)
{
	for (unsigned i = 0; i < m->fs->n_branches; i++)
		if (moves_on(m, i) || is_obsolete_on(m, i))
			return m->fs->branch[i].home_fd >= 0 ? (int)i : -1;
	return -1;
}

static int write_intent(const struct ufs_move *m, int home)
{
	cleanup_intent struct ufs_intent intent = { 0 };
	int r;

	if (home < 0)
		return 0;
	intent.from = path_of(m->from, m->name);
	intent.to = path_of(m->to, m->new_name);
	if (!intent.from || !intent.to)
		return -ENOMEM;
	r = fill_branches(m, &intent);
	return r < 0 ? r : ufs_intent_store(m->fs->branch[home].home_fd, &intent);
}

/* --- steps 3 and 4 --- */

static int rename_on(const struct ufs_move *m, unsigned branch, bool back)
{
	const struct ufs_pin *from = ufs_view_at(&m->from_v, branch),
			     *to = ufs_view_at(&m->to_v, branch);
	int r;

	if (back)
		r = renameat2(to->fd, m->new_name, from->fd, m->name, RENAME_NOREPLACE);
	else
		r = renameat2(from->fd, m->name, to->fd, m->new_name, 0);
	if (r < 0)
		return -errno;
	ufs_freed_note(m->fs, back ? to : from, back ? m->new_name : m->name);
	return 0;
}

/* Renames every copy, or none. */
static int rename_copies(const struct ufs_move *m, bool *ret_torn)
{
	unsigned i;
	int r = 0;

	for (i = 0; i < m->fs->n_branches; i++) {
		r = moves_on(m, i) ? rename_on(m, i, false) : 0;
		if (r < 0)
			break;
	}
	if (r == 0)
		return 0;
	while (i-- > 0)
		if (moves_on(m, i) && rename_on(m, i, true) < 0)
			*ret_torn = true;
	return r;
}

/* The target may have been replaced on one branch before another failed: make it again. */
static void restore_target(struct ufs_move *m, const struct ufs_finds *target)
{
	struct ufs_found f;
	int r;

	if (!target->n || ufs_move_survey(m) < 0 || m->target >= 0)
		return;
	r = ufs_clone_make(m->w, ufs_view_at(&m->to_v, target->found[0].branch), m->new_name,
			   target->found[0].fd, &f);
	if (r >= 0)
		uc_closep(&f.fd);
	else
		log_warn("undo a rename: make the empty target again: error %d", -r);
}

static int remove_obsolete(const struct ufs_move *m)
{
	int failure = 0;

	for (unsigned i = 0; i < m->to_v.n; i++) {
		const struct ufs_pin *pin = &m->to_v.pin[i];

		if (!is_obsolete_on(m, pin->branch))
			continue;
		if (unlinkat(pin->fd, m->new_name, AT_REMOVEDIR) == 0)
			ufs_freed_note(m->fs, pin, m->new_name);
		else if (errno != ENOENT)
			failure = -errno;
	}
	return failure;
}

static void update_node(const struct ufs_move *m, struct ufs_node *node)
{
	char *name = node ? strdup(m->new_name) : NULL;

	if (name)
		ufs_node_move(node, m->to, name);
}

static int sync_and_forget(struct ufs_move *m, int home)
{
	int r;

	r = sync_view(m->from, &m->from_v, m);
	if (r == 0)
		r = sync_view(m->to, &m->to_v, m);
	if (r == 0)
		r = ufs_intent_remove(m->fs->branch[home].home_fd);
	return r;
}

/* The intent stays, and no other may take its place: it is for the next start. */
static void keep_intent(struct ufs_move *m, int home, const char *why, int r)
{
	log_err("rename a directory: %s: error %d%s", why, -r,
		home < 0 ? "" : "; it will be completed at the next start");
	m->fs->intent_branch = home;
}

/* Steps 3 to 6; under fs->tree. */
static int carry_out(struct ufs_move *m, int home, struct ufs_node *node,
		     const struct ufs_finds *target)
{
	cleanup_node struct ufs_node *replaced =
		target->n ? ufs_node_of(m->fs, &target->found[0]) : NULL;
	bool torn = false;
	int r, later;

	r = rename_copies(m, &torn);
	if (torn) {
		keep_intent(m, home, "one branch failed, and another could not be undone", r);
		return r;
	}
	if (r < 0) {
		restore_target(m, target);
		if (home >= 0)
			(void)ufs_intent_remove(m->fs->branch[home].home_fd);
		return r;
	}
	/* It has been renamed: what fails now does not change that. */
	update_node(m, node);
	if (replaced)
		ufs_node_set_gone(replaced);
	later = remove_obsolete(m);
	if (later == 0 && home >= 0)
		later = sync_and_forget(m, home);
	if (later < 0)
		keep_intent(m, home, "an empty directory is left, or the disk is not up to date",
			    later);
	return 0;
}

int ufs_rename_dir(struct ufs_move *m)
{
	cleanup_finds struct ufs_finds source = { 0 }, target = { 0 };
	cleanup_node struct ufs_node *node = NULL;
	int home = -1, r;

	if (m->fs->intent_branch >= 0)
		return -EIO; /* an earlier one could not be completed: it comes first, at the next
				start */
	r = check_target(m);
	if (r == 0)
		r = clone_to_all(m);
	if (r == 0) /* what is found there now was hidden before */
		r = check_target(m);
	if (r == 0)
		r = ufs_find(m->fs, &m->from_v, m->name, &source);
	if (r == 0 && m->target >= 0)
		r = ufs_find(m->fs, &m->to_v, m->new_name, &target);
	if (r == 0)
		r = source.error ? source.error : target.error;
	if (r < 0)
		return r;
	r = settle(m);
	if (r < 0)
		return r;
	node = ufs_node_of(m->fs, &source.found[0]);
	if (count_branches(m) > 1) {
		home = home_of(m);
		r = home < 0 ? 0 : sync_view(m->to, &m->to_v, m);
		if (r == 0)
			r = write_intent(m, home);
		if (r < 0)
			return r;
	}
	ufs_tree_begin(m->fs);
	r = carry_out(m, home, node, &target);
	ufs_tree_end(m->fs);
	return r;
}

/* --- recovery --- */

/* The node of a directory's path; the kernel has not looked anything up, so lookups are ours to
 * forget. */
static int walk(struct ufs *fs, const char *path, struct ufs_node **ret)
{
	cleanup_node struct ufs_node *node = ufs_node_get(fs, FUSE_ROOT_ID);
	cleanup_strv char **names = NULL;

	if (uc_str_split(path, '/', &names) < 0)
		return -ENOMEM;
	for (char **name = names; *name; name++) {
		cleanup_view struct ufs_view v = { 0 };
		struct ufs_node *next = NULL;
		struct fuse_entry_out entry;
		int r;

		if (!**name || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0)
			return -EUCLEAN;
		r = ufs_view_open(fs, node, &v);
		if (r == 0)
			r = ufs_lookup(node, &v, *name, &entry, &next);
		if (r != 0)
			return r;
		ufs_node_forget(fs, entry.nodeid, 1);
		ufs_node_put(node);
		node = next;
		if (!node->is_dir)
			return -ENOTDIR;
	}
	*ret = take_ptr(&node);
	return 0;
}

/* Splits "a/b/c" into the directory a/b and the name c. */
static int walk_parent(struct ufs *fs, const char *path, struct ufs_node **ret,
		       const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup("");

	if (!dir)
		return -ENOMEM;
	*ret_name = slash ? slash + 1 : path;
	return walk(fs, dir, ret);
}

/* What is left to be done on one branch. */
static int recover_on(struct ufs_move *m, const struct ufs_intent_branch *b)
{
	const struct ufs_pin *from = ufs_view_at(&m->from_v, b->branch);
	struct stat st;
	int r;

	if (!b->ino) {
		const struct ufs_pin *to = ufs_view_at(&m->to_v, b->branch);

		if (to && unlinkat(to->fd, m->new_name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			return -errno;
		return 0;
	}
	if (!from || fstatat(from->fd, m->name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    st.st_ino != b->ino)
		return 0; /* it was renamed before the interruption */
	r = ufs_move_clone_to(m, b->branch, true);
	if (r == -ENOENT) /* a survey finds nothing under the old name on the others: fine */
		r = ufs_view_at(&m->to_v, b->branch) ? 0 : -ENOENT;
	return r < 0 ? r : rename_on(m, b->branch, false);
}

static int recover_branches(struct ufs *fs, struct ufs_worker *w, const struct ufs_intent *intent)
{
	cleanup_free int *types = calloc(2 * (size_t)fs->n_branches, sizeof(*types));
	cleanup_node struct ufs_node *from = NULL, *to = NULL;
	struct ufs_move m = { .w = w, .fs = fs };
	int r;

	if (!types)
		return -ENOMEM;
	r = walk_parent(fs, intent->from, &from, &m.name);
	if (r == 0)
		r = walk_parent(fs, intent->to, &to, &m.new_name);
	if (r < 0)
		return r;
	m.from = from;
	m.to = to;
	m.src = types;
	m.dst = types + fs->n_branches;
	ufs_tree_lock(fs);
	r = ufs_move_survey(&m);
	if (r == -ENOENT)
		r = 0;
	for (size_t i = 0; i < intent->n && r == 0; i++)
		r = recover_on(&m, &intent->branch[i]);
	for (unsigned i = 0; i < m.from_v.n && r == 0; i++)
		r = ufs_sync_copy_locked(from, &m.from_v.pin[i]);
	for (unsigned i = 0; i < m.to_v.n && r == 0; i++)
		r = ufs_sync_copy_locked(to, &m.to_v.pin[i]);
	ufs_tree_unlock(fs);
	ufs_view_close(&m.from_v);
	ufs_view_close(&m.to_v);
	return r;
}

static int recover_one(struct ufs *fs, unsigned branch, struct uc_err *err)
{
	struct ufs_worker w = { .fs = fs, .creds = { .fsetid = true } };
	cleanup_intent struct ufs_intent intent = { 0 };
	int r;

	r = ufs_intent_load(fs->branch[branch].home_fd, fs->n_branches, &intent, err);
	if (r < 0)
		return r;
	r = recover_branches(fs, &w, &intent);
	if (r == -ENOENT) /* a directory on the way was never made durable: then nothing was renamed
			     either */
		r = 0;
	if (r == 0)
		r = ufs_intent_remove(fs->branch[branch].home_fd);
	if (r < 0)
		return uc_fail(err, -r, "complete the rename of directory `%s` to `%s`",
			       UC_PRINTABLE(intent.from), UC_PRINTABLE(intent.to));
	log_info("the interrupted rename of directory `%s` to `%s` is complete",
		 UC_PRINTABLE(intent.from), UC_PRINTABLE(intent.to));
	return 0;
}

int ufs_rename_recover(struct ufs *fs, struct uc_err *err)
{
	for (unsigned i = 0; i < fs->n_branches; i++) {
		int r;

		if (fs->branch[i].home_fd < 0)
			continue;
		if (fs->cfg.read_only) {
			if (faccessat(fs->branch[i].home_fd, UFS_INTENT_FILE, F_OK, 0) == 0)
				log_warn("a directory's rename was interrupted: it is completed at "
					 "the next start that is not read-only");
			continue;
		}
		r = recover_one(fs, i, err);
		if (r < 0 && r != -ENOENT)
			return uc_wrap(err, r, "branch %u (`%s`)", i,
				       UC_PRINTABLE(fs->branch[i].name));
	}
	return 0;
}
