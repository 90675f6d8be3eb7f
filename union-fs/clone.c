/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * A clone is made with nobody's permissions and gets owner, extended attributes,
 * mode and times of the directory's oldest copy, which goes on to speak for it: the
 * clone is younger.  (The clock may have to move on for that: outlast_birth().)  If we
 * are interrupted the clone is incomplete, but nothing shows of it, and ufs_align()
 * completes it before anything is made in it.
 *
 * Nobody who calls fsync() on a directory knows that we have made another one above
 * it.  So a clone remembers that its own entry may not be on disk, and syncing it
 * syncs the directories above.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "lib/os/fd.h"
#include "union-fs/clone.h"
#include "union-fs/freed.h"

enum {
	TICKS_MAX = 20, /* that a clone waits for */
	TICK_NSEC = 1000 * 1000,
};

/* --- attributes --- */

/* Names of extended attributes, each ended by a NUL. */
struct names {
	char *p;
	size_t n;
};

static int list_names(int fd, struct names *ret)
{
	char *buf = malloc(UFS_XATTR_MAX);
	ssize_t n;

	if (!buf)
		return -ENOMEM;
	n = listxattr(UC_FD_PATH(fd), buf, UFS_XATTR_MAX);
	if (n < 0 && errno == EOPNOTSUPP)
		n = 0;
	if (n < 0) {
		free(buf);
		return -errno;
	}
	*ret = (struct names){ .p = buf, .n = (size_t)n };
	return 0;
}

static bool has_name(const struct names *names, const char *name)
{
	for (size_t at = 0; at < names->n; at += strlen(names->p + at) + 1)
		if (strcmp(names->p + at, name) == 0)
			return true;
	return false;
}

/* What a branch's filesystem does not have, it cannot take over. */
static int tolerate(int error)
{
	return error == EOPNOTSUPP || error == ENODATA || error == EPERM ? 0 : -error;
}

static int copy_xattr(int from, int to, const char *name, char *buf, char *have)
{
	ssize_t n = getxattr(UC_FD_PATH(from), name, buf, UFS_XATTR_MAX);

	if (n < 0)
		return tolerate(errno);
	if (getxattr(UC_FD_PATH(to), name, have, UFS_XATTR_MAX) == n &&
	    memcmp(buf, have, (size_t)n) == 0)
		return 0;
	return setxattr(UC_FD_PATH(to), name, buf, (size_t)n, 0) < 0 ? tolerate(errno) : 0;
}

static int copy_xattrs(int from, int to)
{
	cleanup_free char *buf = malloc(2 * (size_t)UFS_XATTR_MAX);
	struct names want = { 0 }, have = { 0 };
	int r;

	if (!buf)
		return -ENOMEM;
	r = list_names(from, &want);
	if (r == 0)
		r = list_names(to, &have);
	for (size_t at = 0; r == 0 && at < have.n; at += strlen(have.p + at) + 1)
		if (!has_name(&want, have.p + at) && removexattr(UC_FD_PATH(to), have.p + at) < 0)
			r = tolerate(errno);
	for (size_t at = 0; r == 0 && at < want.n; at += strlen(want.p + at) + 1)
		r = copy_xattr(from, to, want.p + at, buf, buf + UFS_XATTR_MAX);
	free(want.p);
	free(have.p);
	return r;
}

static int stat_copy(int fd, struct stat *ret)
{
	return fstatat(fd, "", ret, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

/* Owner, extended attributes and mode, in this order: each may undo a part of the next. */
static int copy_attrs(struct ufs_worker *w, int from, int to, struct stat *ret_from)
{
	struct stat st = { 0 };
	int r;

	r = stat_copy(from, ret_from);
	if (r == 0)
		r = stat_copy(to, &st);
	if (r < 0)
		return r;
	if ((st.st_uid != ret_from->st_uid || st.st_gid != ret_from->st_gid) &&
	    fchownat(to, "", ret_from->st_uid, ret_from->st_gid, AT_EMPTY_PATH) < 0)
		return -errno;
	r = copy_xattrs(from, to);
	if (r < 0)
		return r;
	ufs_creds_fsetid(&w->creds, true);
	if (chmod(UC_FD_PATH(to), ret_from->st_mode & 07777) < 0)
		return -errno;
	return 0;
}

static int copy_times(const struct stat *from, int to)
{
	const struct timespec t[2] = { from->st_atim, from->st_mtim };

	return utimensat(to, "", t, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

int ufs_align(struct ufs_worker *w, const struct ufs_view *v, const struct ufs_pin *pin)
{
	const struct ufs_pin *identity = ufs_view_identity(v);
	struct stat st;
	bool aligned;
	int r;

	ufs_lock(v->fs);
	aligned = pin->lower->copy->aligned;
	ufs_unlock(v->fs);
	if (aligned)
		return 0;
	r = identity == pin ? 0 : copy_attrs(w, identity->fd, pin->fd, &st);
	if (r < 0)
		return r;
	ufs_lock(v->fs);
	pin->lower->copy->aligned = true;
	ufs_unlock(v->fs);
	return 0;
}

void ufs_unalign(const struct ufs_view *v)
{
	ufs_lock(v->fs);
	for (unsigned i = 0; i < v->n; i++)
		v->pin[i].lower->copy->aligned = false;
	ufs_unlock(v->fs);
}

/* --- clones --- */

int ufs_clone_make(struct ufs_worker *w, const struct ufs_pin *parent, const char *name, int from,
		   struct ufs_found *ret)
{
	struct stat st;
	int r;

	if (mkdirat(parent->fd, name, 0700) < 0) {
		if (errno != EEXIST)
			return -errno;
		r = ufs_probe(w->fs, parent->branch, parent->fd, name, ret);
		if (r == 0 && !ufs_found_is_dir(ret)) {
			uc_closep(&ret->fd);
			r = -ENOTDIR;
		}
		return r < 0 ? r : 1;
	}
	r = ufs_probe(w->fs, parent->branch, parent->fd, name, ret);
	if (r == 0) {
		r = copy_attrs(w, from, ret->fd, &st);
		if (r == 0)
			r = copy_times(&st, ret->fd);
		if (r < 0)
			uc_closep(&ret->fd);
	}
	if (r < 0)
		(void)unlinkat(parent->fd, name, AT_REMOVEDIR);
	return r;
}

static bool is_after_birth(const struct timespec *t, const struct ufs_copy *c)
{
	return t->tv_sec != c->btime_sec ? t->tv_sec > c->btime_sec : t->tv_nsec > c->btime_nsec;
}

/*
 * Of two copies that are as old as each other the one on the lower branch speaks for the directory.
 * So a clone there is only made when the clock that files are stamped with has moved on.  It ticks
 * every few milliseconds, and since Linux 6.13 also when an inode changes whose ctime was asked for.
 * That of a network filesystem may be another one, or somebody has set it back: no long wait helps
 * then.
 */
static void outlast_birth(const struct ufs_pin *parent, const struct ufs_pin *identity)
{
	const struct ufs_copy *c = identity->lower->copy;
	struct timespec now;
	struct stat st;

	if (!c->has_btime || parent->branch > identity->branch)
		return;
	for (int i = 0; i < TICKS_MAX; i++) {
		clock_gettime(CLOCK_REALTIME_COARSE, &now);
		if (is_after_birth(&now, c) || now.tv_sec + 1 < c->btime_sec)
			return;
		if (stat_copy(parent->fd, &st) == 0 &&
		    fchownat(parent->fd, "", (uid_t)-1, (gid_t)-1, AT_EMPTY_PATH) == 0 &&
		    stat_copy(parent->fd, &st) == 0 && is_after_birth(&st.st_ctim, c))
			return;
		(void)nanosleep(&(struct timespec){ .tv_nsec = TICK_NSEC }, NULL);
	}
}

/* Under fs->tree; the parent has a copy on the branch. */
static int clone_one(struct ufs_worker *w, struct ufs_node *dir, unsigned branch)
{
	cleanup_view struct ufs_view parent_v = { 0 }, v = { 0 };
	cleanup_node struct ufs_node *parent = NULL;
	cleanup_free char *name = NULL;
	const struct ufs_pin *pin;
	struct ufs_found f = { .fd = -1 };
	int r;

	r = ufs_node_where(dir, &parent, &name);
	if (r == 0)
		r = ufs_view_open(w->fs, parent, &parent_v);
	if (r == 0)
		r = ufs_view_open(w->fs, dir, &v);
	if (r < 0)
		return r;
	pin = ufs_view_at(&parent_v, branch);
	if (!pin)
		return parent_v.error ? parent_v.error : -ESTALE;
	r = ufs_align(w, &parent_v, pin);
	if (r == 0)
		r = ufs_freed_settle(&parent_v, branch, name);
	if (r < 0)
		return r;
	outlast_birth(pin, ufs_view_identity(&v));
	ufs_tree_begin(w->fs);
	r = ufs_clone_make(w, pin, name, ufs_view_identity(&v)->fd, &f);
	if (r >= 0)
		r = ufs_node_add_copy(dir, &f, r == 0, true);
	ufs_tree_end(w->fs);
	uc_closep(&f.fd);
	if (r < 0)
		return r;
	/* It may have had subdirectories to count, as one copy. */
	ufs_notify_attr(w->fs, dir);
	/*
	 * The time of the parent is that of the clone, though nothing shows in it: if it was set
	 * back, somebody could miss what others have made there meanwhile.
	 */
	ufs_notify_attr(w->fs, parent);
	return 0;
}

/** struct chain - directories that a branch lacks, the lowest one first */
struct chain {
	struct ufs_node **node; /* each with a reference */
	size_t n, cap;
};

static void chain_done(struct chain *c)
{
	for (size_t i = 0; i < c->n; i++)
		ufs_node_put(c->node[i]);
	free(c->node);
}

/* Takes the reference, also on failure. */
static int chain_add(struct chain *c, struct ufs_node *node)
{
	if (c->n == c->cap) {
		size_t cap = c->cap ? 2 * c->cap : 16;
		struct ufs_node **grown = reallocarray(c->node, cap, sizeof(struct ufs_node *));

		if (!grown) {
			ufs_node_put(node);
			return -ENOMEM;
		}
		c->node = grown;
		c->cap = cap;
	}
	c->node[c->n++] = node;
	return 0;
}

static int find_lacking(struct ufs_node *dir, unsigned branch, struct chain *ret)
{
	struct ufs_node *node = ufs_node_get(dir->fs, ufs_node_id(dir));

	while (!ufs_node_has_copy(node, branch)) {
		cleanup_free char *name = NULL;
		struct ufs_node *parent = NULL;
		int r = chain_add(ret, node);

		if (r == 0 && ufs_node_is_gone(node))
			return -ENOENT;
		if (r == 0)
			r = ufs_node_where(node, &parent, &name);
		if (r < 0)
			return r == -ENOENT ? -ESTALE : r;
		node = parent;
	}
	ufs_node_put(node);
	return 0;
}

int ufs_clone_locked(struct ufs_worker *w, struct ufs_node *dir, unsigned branch)
{
	__attribute__((cleanup(chain_done))) struct chain c = { 0 };
	int r;

	r = find_lacking(dir, branch, &c);
	for (size_t i = c.n; i-- > 0 && r >= 0;)
		r = clone_one(w, c.node[i], branch);
	return r < 0 ? r : 0;
}

int ufs_clone(struct ufs_worker *w, struct ufs_node *dir, unsigned branch)
{
	int r;

	ufs_tree_lock(w->fs);
	r = ufs_clone_locked(w, dir, branch);
	ufs_tree_unlock(w->fs);
	return r;
}

/* --- syncing --- */

int ufs_sync_fd(int path_fd)
{
	cleanup_fd int fd = openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return fsync(fd) < 0 ? -errno : 0;
}

static bool is_unsynced(struct ufs *fs, const struct ufs_lower *l)
{
	bool unsynced;

	ufs_lock(fs);
	unsynced = l->copy->unsynced;
	ufs_unlock(fs);
	return unsynced;
}

static int sync_above(struct ufs *fs, struct ufs_lower *l, const struct ufs_pin *up)
{
	(void)fs;
	(void)l;
	return ufs_sync_fd(up->fd);
}

static int note_synced(struct ufs *fs, struct ufs_lower *l, const struct ufs_pin *up)
{
	(void)up;
	ufs_lock(fs);
	l->copy->unsynced = false;
	ufs_unlock(fs);
	return 0;
}

/* Calls @fn for a copy, and the one above it, and so on, as long as they are unsynced. */
static int go_up(struct ufs_node *dir, const struct ufs_pin *pin,
		 int (*fn)(struct ufs *fs, struct ufs_lower *l, const struct ufs_pin *up))
{
	struct ufs_node *at = ufs_node_get(dir->fs, ufs_node_id(dir));
	struct ufs_view v[2] = { 0 }; /* of a directory, and of the one above it */
	const unsigned branch = pin->branch;
	struct ufs *fs = dir->fs;
	int r = 0;

	for (unsigned i = 0; r == 0 && is_unsynced(fs, pin->lower); i ^= 1) {
		cleanup_free char *name = NULL;
		struct ufs_node *parent = NULL;
		const struct ufs_pin *up = NULL;

		ufs_view_close(&v[i]);
		r = ufs_node_where(at, &parent, &name);
		if (r < 0)
			break;
		r = ufs_view_open(fs, parent, &v[i]);
		if (r == 0)
			up = ufs_view_at(&v[i], branch);
		if (r == 0)
			r = up ? fn(fs, pin->lower, up) : -ESTALE;
		ufs_node_put(at);
		at = parent;
		pin = up;
	}
	ufs_view_close(&v[0]);
	ufs_view_close(&v[1]);
	ufs_node_put(at);
	return r;
}

/*
 * Syncs the entry of a copy in its parent, and so on.  What is synced is noted when all of it
 * is, or the next one who asks would not get to what has failed.
 */
static int sync_entry(struct ufs_node *dir, const struct ufs_pin *pin)
{
	int r = go_up(dir, pin, sync_above);

	if (r == 0)
		(void)go_up(dir, pin, note_synced);
	return r;
}

int ufs_sync_copy_locked(struct ufs_node *dir, const struct ufs_pin *pin)
{
	int r = ufs_sync_fd(pin->fd);

	return r < 0 ? r : sync_entry(dir, pin);
}

int ufs_sync_copy(struct ufs_node *dir, const struct ufs_pin *pin)
{
	int r = ufs_sync_fd(pin->fd);

	if (r < 0 || !is_unsynced(dir->fs, pin->lower))
		return r;
	ufs_tree_lock(dir->fs);
	r = sync_entry(dir, pin);
	ufs_tree_unlock(dir->fs);
	return r;
}
