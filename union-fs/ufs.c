/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "union-fs/branch.h"
#include "union-fs/file.h"
#include "union-fs/freed.h"
#include "union-fs/node.h"
#include "union-fs/ufs.h"

enum {
	FDS_ASSUMED = 1024, /* where the limit cannot be read */
};

void ufs_lock(struct ufs *fs)
{
	pthread_mutex_lock(&fs->lock);
}

void ufs_unlock(struct ufs *fs)
{
	pthread_mutex_unlock(&fs->lock);
}

void ufs_tree_lock(struct ufs *fs)
{
	pthread_mutex_lock(&fs->tree);
}

void ufs_tree_unlock(struct ufs *fs)
{
	pthread_mutex_unlock(&fs->tree);
}

void ufs_tree_begin(struct ufs *fs)
{
	ufs_lock(fs);
	fs->tree_seq++;
	ufs_unlock(fs);
}

void ufs_tree_end(struct ufs *fs)
{
	ufs_tree_begin(fs);
}

int ufs_slots_add(struct ufs_slots *s, void *object, uint32_t *ret_index)
{
	uint32_t i;

	if (s->free) {
		i = s->free - 1;
		s->free = s->slot[i].next_free;
	} else {
		if (s->n == s->cap) {
			uint32_t cap = s->cap ? s->cap * 2 : 256;
			struct ufs_slot *grown;

			if (cap < s->cap)
				return -ENOMEM;
			grown = reallocarray(s->slot, cap, sizeof(*s->slot));
			if (!grown)
				return -ENOMEM;
			s->slot = grown;
			s->cap = cap;
		}
		i = s->n++;
		s->slot[i] = (struct ufs_slot){ 0 };
	}
	s->slot[i].object = object;
	s->slot[i].next_free = 0;
	*ret_index = i;
	return 0;
}

void *ufs_slots_get(const struct ufs_slots *s, uint64_t index)
{
	return index < s->n ? s->slot[index].object : NULL;
}

uint64_t ufs_slots_handle(const struct ufs_slots *s, uint32_t index)
{
	return (uint64_t)s->slot[index].generation << 32 | index;
}

void *ufs_slots_of_handle(const struct ufs_slots *s, uint64_t handle)
{
	uint32_t index = (uint32_t)handle;

	if (index >= s->n || s->slot[index].generation != handle >> 32)
		return NULL;
	return s->slot[index].object;
}

void ufs_slots_remove(struct ufs_slots *s, uint32_t index)
{
	s->slot[index].object = NULL;
	s->slot[index].generation++;
	s->slot[index].next_free = s->free;
	s->free = index + 1;
}

static void set_fd_budget(struct ufs *fs)
{
	struct rlimit limit = { .rlim_cur = FDS_ASSUMED };
	size_t n;

	getrlimit(RLIMIT_NOFILE, &limit);
	n = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > 1048576 ? 1048576 : limit.rlim_cur;
	/* The rest is for open files. */
	fs->max_dir_fds = n / 4;
	fs->max_kept_fds = n / 2;
}

static int init_locks(struct ufs *fs)
{
	pthread_mutexattr_t attr;
	int r;

	r = pthread_mutexattr_init(&attr);
	if (r)
		return -r;
	/* Held for so short a time that spinning is cheaper than a wake-up on another CPU. */
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	r = pthread_mutex_init(&fs->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	if (!r)
		r = pthread_mutex_init(&fs->tree, NULL);
	return -r;
}

int ufs_new(const struct ufs_config *cfg, struct ufs_branch *branch, unsigned n,
	    struct ufs **ret_fs, struct uc_err *err)
{
	struct ufs *fs = calloc(1, sizeof(*fs));
	int r;

	if (!fs) {
		ufs_branches_free(branch, n);
		return uc_fail(err, ENOMEM, "make a union");
	}
	fs->cfg = *cfg;
	fs->branch = branch;
	fs->n_branches = n;
	fs->dev_fd = -1;
	fs->intent_branch = -1;
	set_fd_budget(fs);
	r = init_locks(fs);
	if (r == 0)
		r = ufs_freed_init(fs);
	if (r == 0)
		r = ufs_nodes_init(fs);
	if (r < 0) {
		ufs_free(fs);
		return uc_fail(err, -r, "make a union");
	}
	*ret_fs = fs;
	return 0;
}

void ufs_free(struct ufs *fs)
{
	if (!fs)
		return;
	ufs_files_done(fs);
	ufs_nodes_done(fs);
	ufs_freed_done(fs);
	uc_closep(&fs->dev_fd);
	ufs_branches_free(fs->branch, fs->n_branches);
	pthread_mutex_destroy(&fs->lock);
	pthread_mutex_destroy(&fs->tree);
	free(fs);
}
