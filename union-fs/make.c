/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/os/fd.h"
#include "union-fs/branch.h"
#include "union-fs/clone.h"
#include "union-fs/file.h"
#include "union-fs/freed.h"
#include "union-fs/make.h"
#include "union-fs/policy.h"

enum {
	ATTEMPTS = 4, /* when others change the branches under our hands */
	ABOUT = 16,   /* branches that differ by less than one part of so many are about as free */
	AVOID_S = 30, /* a branch that has failed */
};

void ufs_made_done(struct ufs_made *made)
{
	ufs_finds_done(&made->f);
	uc_closep(&made->fd);
}

int ufs_check_absent(const struct ufs_view *v, const char *name)
{
	/* The branch that cannot be looked at might have it. */
	int failure = v->error;

	for (unsigned i = 0; i < v->n; i++) {
		int r = ufs_type_at(v->pin[i].fd, name);

		if (r >= 0)
			return -EEXIST;
		if (r != -ENOENT)
			failure = r;
	}
	return failure;
}

int ufs_copy_for_new(struct ufs_worker *w, struct ufs_node *dir, unsigned branch,
		     struct ufs_view *v, const struct ufs_pin **ret_pin)
{
	const struct ufs_pin *pin = ufs_view_at(v, branch);
	bool cloned = !pin;
	int r;

	if (cloned) {
		r = ufs_clone(w, dir, branch);
		if (r < 0)
			return r;
		ufs_view_close(v);
		r = ufs_view_open(w->fs, dir, v);
		if (r < 0)
			return r;
		pin = ufs_view_at(v, branch);
		if (!pin)
			return -ESTALE;
	}
	r = ufs_align(w, v, pin);
	if (r < 0)
		return r;
	*ret_pin = pin;
	return cloned;
}

/* Describes what was made; takes it away again if that fails. */
static int describe(struct ufs *fs, const struct ufs_pin *pin, const char *name,
		    const struct ufs_making *m, struct ufs_made *ret)
{
	int fd, r;

	ret->f.found = ret->f.some;
	if (ret->fd >= 0) {
		fd = open(UC_FD_PATH(ret->fd), O_PATH | O_CLOEXEC);
		r = fd < 0 ? -errno : ufs_probe_fd(fs, pin->branch, fd, &ret->f.some[0]);
	} else {
		r = ufs_probe(fs, pin->branch, pin->fd, name, &ret->f.some[0]);
	}
	ret->f.some[0].made = r == 0;
	if (r == 0)
		ret->f.n = 1;
	else if (!m->nameless)
		(void)unlinkat(pin->fd, name, m->is_dir ? AT_REMOVEDIR : 0);
	return r;
}

static int64_t seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return t.tv_sec;
}

/* The branch has failed: new files need not find that out one by one. */
static void avoid(struct ufs *fs, unsigned branch, int r)
{
	struct ufs_branch *b = &fs->branch[branch];
	const int64_t now = seconds();
	bool known;

	ufs_lock(fs);
	known = b->avoided > now;
	b->avoided = now + AVOID_S;
	ufs_unlock(fs);
	if (!known)
		log_warn("branch `%s` fails (%s): new files go to others", UC_PRINTABLE(b->name),
			 strerror(-r));
}

/* Not its being full, or the caller's quota. */
static bool is_broken(int r)
{
	return r == -EIO || r == -ENODEV || r == -EROFS;
}

/* @v is open and has no such name. */
static int make_on(struct ufs_req *req, struct ufs_node *parent, struct ufs_view *v,
		   const char *name, unsigned branch, const struct ufs_making *m,
		   struct ufs_made *ret)
{
	const struct ufs_caller caller = ufs_req_caller(req, m->umask);
	const struct ufs_pin *pin = NULL;
	int r;

	if (!req->fs->branch[branch].handles && !ufs_node_has_room(req->fs))
		return -ENFILE; /* or it would be made, and lost */
	r = ufs_copy_for_new(req->w, parent, branch, v, &pin);
	if (r == -EROFS) /* other errors may be those of a copy that was to be cloned */
		avoid(req->fs, branch, r);
	if (r > 0)
		r = m->nameless ? 0 : ufs_check_absent(v, name);
	if (r == 0 && !m->nameless)
		r = ufs_freed_settle(v, branch, name);
	if (r < 0)
		return r;
	/* In a set-group-id directory only members of its group make set-group-id files, and root. */
	ufs_creds_fsetid(&req->w->creds, req->in->uid == 0);
	r = ufs_creds_as(&req->w->creds, &caller);
	if (r == 0)
		r = m->fn(m, pin->fd, name);
	ufs_creds_root(&req->w->creds);
	if (r == -ENOENT && ufs_node_is_gone(parent))
		return r;
	if ((r == -ENOENT || r == -ESTALE) && parent->index == UFS_ROOT_INDEX)
		r = -ENODEV; /* the branch itself has gone */
	if (r == -ENOENT || r == -ESTALE) {
		/* The copy was removed by somebody: the next attempt makes another one. */
		ufs_node_drop_copy(parent, pin->lower);
		return -ESTALE;
	}
	if (is_broken(r))
		avoid(req->fs, branch, r);
	if (r < 0)
		return r;
	ret->fd = r > 0 ? r : -1;
	return describe(req->fs, pin, name, m, ret);
}

/* Fills @c, in the order of branches. */
static void gather(struct ufs *fs, const struct ufs_view *v, struct ufs_candidate *c)
{
	const int64_t now = seconds();

	for (unsigned i = 0; i < fs->n_branches; i++) {
		const struct ufs_branch *b = &fs->branch[i];

		c[i] = (struct ufs_candidate){
			.branch = i,
			.mode = b->mode,
			.min_free = b->min_free,
			.has_parent = ufs_view_at(v, i) != NULL,
		};
		/* One that does not answer cannot be written to. */
		if (b->mode == UFS_BRANCH_RW && ufs_branch_space(b, &c[i].space) < 0)
			c[i].mode = UFS_BRANCH_NC;
	}
	ufs_lock(fs);
	ufs_files_age(fs, now);
	for (unsigned i = 0; i < fs->n_branches; i++) {
		c[i].filling = fs->branch[i].filling;
		c[i].avoided = fs->branch[i].avoided > now;
	}
	ufs_unlock(fs);
}

/* Whether another branch may do better. */
static bool is_about_branch(int r)
{
	return r == -ENOSPC || r == -EDQUOT || r == -ENOTDIR || r == -ENOENT || r == -ENFILE ||
	       is_broken(r);
}

/* A branch that has failed may have made it nevertheless. */
static bool may_have(const struct ufs_view *v, unsigned branch, const char *name)
{
	const struct ufs_pin *pin = ufs_view_at(v, branch);

	return pin && ufs_type_at(pin->fd, name) != -ENOENT;
}

/*
 * Puts the branch on which the name was freed first, if it is about as free as any: there the name
 * can be used again without waiting for a disk.
 */
static void prefer_former(struct ufs *fs, const struct ufs_view *v, const char *name,
			  struct ufs_candidate *c, size_t n)
{
	uint64_t most = 0;

	for (size_t i = 0; i < n; i++)
		most = c[i].space > most ? c[i].space : most;
	for (size_t i = 0; i < n; i++) {
		const struct ufs_pin *pin = ufs_view_at(v, c[i].branch);
		const struct ufs_candidate former = c[i];

		if (!pin || former.avoided || former.space < most - most / ABOUT ||
		    !ufs_freed_has(fs, pin, name))
			continue;
		memmove(&c[1], &c[0], i * sizeof(*c));
		c[0] = former;
		return;
	}
}

static int make_once(struct ufs_req *req, struct ufs_node *parent, const char *name,
		     const struct ufs_making *m, struct ufs_made *ret)
{
	cleanup_free struct ufs_candidate *c = calloc(req->fs->n_branches, sizeof(*c));
	cleanup_view struct ufs_view v = { 0 };
	int r, failure = -ENOSPC;
	size_t n;

	if (!c)
		return -ENOMEM;
	r = ufs_view_open(req->fs, parent, &v);
	if (r == 0)
		r = m->nameless ? v.error : ufs_check_absent(&v, name);
	if (r < 0)
		return r;
	gather(req->fs, &v, c);
	n = ufs_policy_order(req->fs->cfg.policy, c, req->fs->n_branches);
	if (!m->nameless)
		prefer_former(req->fs, &v, name, c, n);
	for (size_t i = 0; i < n; i++) {
		r = make_on(req, parent, &v, name, c[i].branch, m, ret);
		if (!is_about_branch(r) || (r == -ENOENT && ufs_node_is_gone(parent)))
			return r;
		if (is_broken(r) && !m->nameless && may_have(&v, c[i].branch, name))
			return r;
		/* The best one's reason is the one that tells most. */
		if (i == 0 && r != -ENOTDIR)
			failure = r;
	}
	return failure;
}

int ufs_make(struct ufs_req *req, struct ufs_node *parent, const char *name,
	     const struct ufs_making *m, struct ufs_made *ret)
{
	int r = -ESTALE;

	if (!parent->is_dir)
		return -ENOTDIR;
	for (int i = 0; i < ATTEMPTS && r == -ESTALE; i++) {
		ufs_made_done(ret);
		r = make_once(req, parent, name, m, ret);
	}
	return r;
}
