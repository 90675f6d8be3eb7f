/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "union-fs/dev.h"
#include "union-fs/file.h"
#include "union-fs/listing.h"

enum {
	FILLING_S = 30, /* by then the branch's free space tells what a file takes */
};

/* Such a file is empty when it is opened, and what it will take nobody knows. */
#define FLAGS_FILLING (O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY))

static unsigned *filling_of(struct ufs *fs, const struct ufs_file *file)
{
	return &fs->branch[file->node->lower->branch].filling;
}

/* Under the lock, as the next one. */
static void add_filling(struct ufs *fs, struct ufs_file *file)
{
	file->filling = true;
	file->fill_prev = fs->filling_last;
	*(fs->filling_last ? &fs->filling_last->fill_next : &fs->filling_first) = file;
	fs->filling_last = file;
	++*filling_of(fs, file);
}

static void remove_filling(struct ufs *fs, struct ufs_file *file)
{
	if (!file->filling)
		return;
	*(file->fill_prev ? &file->fill_prev->fill_next : &fs->filling_first) = file->fill_next;
	*(file->fill_next ? &file->fill_next->fill_prev : &fs->filling_last) = file->fill_prev;
	file->filling = false;
	--*filling_of(fs, file);
}

void ufs_files_age(struct ufs *fs, int64_t now)
{
	while (fs->filling_first && now - fs->filling_first->opened >= FILLING_S)
		remove_filling(fs, fs->filling_first);
}

/* Registers a backing file: its id, or 0 where the kernel cannot or will not. */
static int backing_open(struct ufs *fs, int fd)
{
	struct ufs_backing_map map = { .fd = fd };
	int id;

	if (!__atomic_load_n(&fs->passthrough, __ATOMIC_RELAXED))
		return 0;
	id = ioctl(fs->dev_fd, UFS_IOC_BACKING_OPEN, &map);
	if (id > 0)
		return id;
	if (id < 0 && (errno == EPERM || errno == ENOTTY || errno == EOPNOTSUPP) &&
	    __atomic_exchange_n(&fs->passthrough, false, __ATOMIC_RELAXED))
		log_warn("passthrough is off from now on: the kernel refuses to register a file: "
			 "%m");
	return 0;
}

static void backing_close(struct ufs *fs, int id)
{
	uint32_t arg = (uint32_t)id;

	if (id > 0 && ioctl(fs->dev_fd, UFS_IOC_BACKING_CLOSE, &arg) < 0)
		log_debug("release backing file %d: %m", id);
}

/* Adds @file to its node; under the lock. */
static int link_file(struct ufs *fs, struct ufs_file *file)
{
	struct ufs_io *io = file->node->io;
	int r;

	r = ufs_slots_add(&fs->files, file, &file->index);
	if (r < 0)
		return r;
	file->refs = 1;
	file->next = io->first;
	if (io->first)
		io->first->prev = file;
	io->first = file;
	io->opens++;
	io->writers += file->writer;
	file->node->refs++;
	return 0;
}

static void unlink_file(struct ufs_file *file)
{
	struct ufs_io *io = file->node->io;

	*(file->prev ? &file->prev->next : &io->first) = file->next;
	if (file->next)
		file->next->prev = file->prev;
	file->prev = file->next = NULL;
	io->opens--;
	io->writers -= file->writer;
	remove_filling(file->node->fs, file);
}

/*
 * Joins the node's other opens, or decides the mode as the first one.
 *
 * Registering a backing file is a system call, so it is done without the lock and
 * thrown away if another open was faster.
 */
static int join(struct ufs *fs, struct ufs_file *file, int flags, struct ufs_open_out *ret,
		bool *ret_attrs)
{
	struct ufs_io *io = file->node->io;
	bool tried = false;
	int id = 0, r;

	for (;;) {
		ufs_lock(fs);
		if (io->opens || tried)
			break;
		ufs_unlock(fs);
		id = backing_open(fs, file->fd);
		tried = true;
	}
	r = link_file(fs, file);
	if (r == 0) {
		if (file->writer && flags & FLAGS_FILLING)
			add_filling(fs, file);
		if (io->opens == 1) {
			io->backing_id = id;
			id = 0;
		}
		*ret_attrs = io->backing_id && file->writer && io->writers == 1;
		ret->fh = ufs_slots_handle(&fs->files, file->index);
		ret->backing_id = io->backing_id;
	}
	ufs_unlock(fs);
	backing_close(fs, id);
	return r;
}

/* Allocates what a node needs to be open. */
static int prepare_io(struct ufs *fs, struct ufs_node *node)
{
	struct ufs_io *io = calloc(1, sizeof(*io));

	if (!io)
		return -ENOMEM;
	ufs_lock(fs);
	if (!node->io)
		node->io = take_ptr(&io);
	ufs_unlock(fs);
	free(io);
	return 0;
}

int ufs_file_open(struct ufs *fs, struct ufs_node *node, int fd, int flags,
		  struct ufs_open_out *ret)
{
	cleanup_free struct ufs_file *file = calloc(1, sizeof(*file));
	cleanup_fd int owned = fd;
	struct timespec now;
	bool attrs = false;
	int r;

	if (!file)
		return -ENOMEM;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	r = prepare_io(fs, node);
	if (r < 0)
		return r;
	file->node = node;
	file->fd = fd;
	file->opened = now.tv_sec;
	file->writer = (flags & O_ACCMODE) != O_RDONLY;
	*ret = (struct ufs_open_out){ 0 };
	r = join(fs, file, flags, ret, &attrs);
	if (r < 0)
		return r;
	take_fd(&owned);
	take_ptr(&file);
	/* A write through a mapping tells the kernel nothing about the file's times. */
	if (attrs)
		ufs_notify_attr(fs, node);
	if (ret->backing_id)
		ret->open_flags |= UFS_FOPEN_PASSTHROUGH;
	else if (fs->cfg.exclusive)
		ret->open_flags |= FOPEN_KEEP_CACHE;
	if (!fs->branch[node->lower->branch].flush)
		ret->open_flags |= FOPEN_NOFLUSH;
	return 0;
}

struct ufs_file *ufs_file_get(struct ufs *fs, uint64_t handle, const struct ufs_node *node)
{
	struct ufs_file *file;

	ufs_lock(fs);
	file = ufs_slots_of_handle(&fs->files, handle);
	if (file && file->node == node)
		file->refs++;
	else
		file = NULL;
	ufs_unlock(fs);
	return file;
}

struct ufs_file *ufs_file_of(struct ufs_node *node)
{
	struct ufs_file *file;

	ufs_lock(node->fs);
	file = node->io ? node->io->first : NULL;
	if (file)
		file->refs++;
	ufs_unlock(node->fs);
	return file;
}

void ufs_file_put(struct ufs *fs, struct ufs_file *file)
{
	bool last;

	if (!file)
		return;
	ufs_lock(fs);
	last = !--file->refs;
	ufs_unlock(fs);
	if (!last)
		return;
	close(file->fd);
	ufs_node_put(file->node);
	free(file);
}

int ufs_file_close(struct ufs *fs, uint64_t handle, const struct ufs_node *node)
{
	struct ufs_file *file;
	int id = 0;

	ufs_lock(fs);
	file = ufs_slots_of_handle(&fs->files, handle);
	if (file && file->node == node) {
		struct ufs_io *io = file->node->io;

		ufs_slots_remove(&fs->files, file->index);
		unlink_file(file);
		if (!io->opens) {
			id = io->backing_id;
			io->backing_id = 0;
		}
	} else {
		file = NULL;
	}
	ufs_unlock(fs);
	if (!file)
		return -EBADF;
	backing_close(fs, id);
	ufs_file_put(fs, file);
	return 0;
}

bool ufs_file_is_written(struct ufs_node *node)
{
	bool written;

	ufs_lock(node->fs);
	written = node->io && node->io->backing_id && node->io->writers;
	ufs_unlock(node->fs);
	return written;
}

bool ufs_file_may_be_dirty(struct ufs_node *node)
{
	bool may;

	/* A mapping that is written keeps a writer open until its pages are. */
	ufs_lock(node->fs);
	may = node->io && !node->io->backing_id && node->io->writers;
	ufs_unlock(node->fs);
	return may;
}

void ufs_files_done(struct ufs *fs)
{
	for (uint32_t i = 0; i < fs->files.n; i++) {
		struct ufs_file *file = fs->files.slot[i].object;

		if (!file)
			continue;
		close(file->fd);
		free(file);
	}
	free(fs->files.slot);
	for (uint32_t i = 0; i < fs->dirs.n; i++)
		ufs_opendir_free(fs->dirs.slot[i].object);
	free(fs->dirs.slot);
}
