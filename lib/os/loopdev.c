/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/str.h"
#include "lib/os/bounded.h"
#include "lib/os/clock.h"
#include "lib/os/fd.h"
#include "lib/os/loopdev.h"

enum {
	ATTACH_TRIES = 1000, /* of a race with others who also take the first free device */
	DETACH_MS = 5000,
	FOREIGN_STATUS_MS = 1000,
};

const char *uc_loopdev_path(const struct uc_loopdev *loop, char to[static UC_LOOPDEV_PATH_SIZE])
{
	snprintf(to, UC_LOOPDEV_PATH_SIZE, "/dev/loop%d", loop->number);
	return to;
}

/* 0: has a file behind it, whose identity is in @st; -ENXIO: has none. */
static int get_status(int fd, struct loop_info64 *st)
{
	return ioctl(fd, LOOP_GET_STATUS64, st) < 0 ? -errno : 0;
}

/* lo_device is encoded like a dev_t of user space. */
static bool has_file(const struct loop_info64 *st, dev_t dev, ino_t ino)
{
	return st->lo_device == dev && st->lo_inode == ino;
}

/* A question to a device whose file's filesystem may hang. */
struct question {
	int fd, result;
	struct loop_info64 st;
};

static void ask(void *data)
{
	struct question *q = data;

	q->result = get_status(q->fd, &q->st);
}

static void release(void *data)
{
	struct question *q = data;

	if (!q)
		return;
	uc_closep(&q->fd);
	free(q);
}

/* get_status() with a time limit; takes @fd. */
static int get_status_bounded(int number, int fd, struct loop_info64 *st)
{
	struct question *q = malloc(sizeof(*q));
	char key[64];
	int r;

	if (!q) {
		close(fd);
		return -ENOMEM;
	}
	*q = (struct question){ .fd = fd };
	snprintf(key, sizeof(key), "status of loop device %d", number);
	r = uc_bounded_run(key, FOREIGN_STATUS_MS, ask, q, release);
	if (r == -ETIMEDOUT)
		return r;
	if (r == 0)
		r = q->result;
	if (r == 0)
		*st = q->st;
	release(q);
	return r;
}

struct find {
	dev_t dev;
	ino_t ino;
	const char *name; /* of the file */
	bool with_name;   /* look at devices with a file of that name, or at the others */
	struct uc_loopdev *ret_loop;
};

/* The path of the file behind a device, as sysfs has it without asking the file's filesystem. */
static int read_path(int number, struct uc_buf *ret)
{
	char path[UC_LOOPDEV_PATH_SIZE + 32];
	int r;

	snprintf(path, sizeof(path), "/sys/block/loop%d/loop/backing_file", number);
	r = uc_read_file_at(AT_FDCWD, path, PATH_MAX + 64, ret);
	if (r == 0 && ret->len && ret->data[ret->len - 1] == '\n')
		ret->data[--ret->len] = '\0';
	return r;
}

static bool has_name(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');

	return strcmp(slash ? slash + 1 : path, name) == 0;
}

static int is_file(void *data, const char *name)
{
	struct find *find = data;
	cleanup_buf struct uc_buf path = UC_BUF_INIT;
	cleanup_fd int fd = -1;
	struct uc_loopdev loop;
	struct loop_info64 st = { 0 };
	uint64_t number;
	int r;

	if (!uc_str_has_prefix(name, "loop") || uc_str_parse_u64(name + 4, 1 << 20, &number) < 0)
		return 0;
	/* Only devices with a file have this; opening every other one would cost more. */
	if (read_path((int)number, &path) < 0 ||
	    has_name(uc_buf_str(&path), find->name) != find->with_name)
		return 0;
	loop = (struct uc_loopdev){ .number = (int)number, .dev = find->dev, .ino = find->ino };
	fd = open(UC_LOOPDEV_PATH(&loop), O_RDONLY | O_CLOEXEC);
	r = fd < 0 ? -errno : 0;
	if (r == 0 && find->with_name)
		r = get_status(fd, &st);
	else if (r == 0 && get_status_bounded((int)number, take_fd(&fd), &st) < 0)
		return 0;                /* another's, on a filesystem that hangs or is gone */
	if (r == -ENXIO || r == -ENOENT) /* it lost its file in the meantime */
		return 0;
	if (r < 0) /* then nobody knows whether it is the one */
		return r;
	if (!has_file(&st, find->dev, find->ino))
		return 0;
	*find->ret_loop = loop;
	return st.lo_offset || st.lo_sizelimit ? -EUCLEAN : 1;
}

int uc_loopdev_find(dev_t dev, ino_t ino, const char *name, struct uc_loopdev *ret_loop,
		    struct uc_err *err)
{
	struct uc_loopdev loop = UC_LOOPDEV_NONE;
	struct find find = { .dev = dev, .ino = ino, .name = name, .ret_loop = &loop };
	cleanup_fd int sys = uc_open_dir_at(AT_FDCWD, "/sys/block");
	int r;

	if (sys < 0)
		return uc_fail(err, -sys, "list loop devices");
	/* A device's status asks the filesystem of its file, and another one's may hang. */
	find.with_name = true;
	r = uc_dir_each(sys, is_file, &find);
	if (r == 0) {
		find.with_name = false; /* it may have been renamed */
		r = uc_dir_each(sys, is_file, &find);
	}
	if (r == -EUCLEAN)
		return uc_fail_as(err, EUCLEAN, 0,
				  "`%s` is attached to the file with an offset or a size limit",
				  UC_LOOPDEV_PATH(&loop));
	if (r < 0)
		return uc_fail(err, -r, "list loop devices");
	if (r == 0)
		return -ENOENT;
	*ret_loop = loop;
	return 0;
}

/* Of the files in /sys/block/loopN/queue. */
static int read_queue(const struct uc_loopdev *loop, const char *name, uint64_t *ret_value)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	char path[UC_LOOPDEV_PATH_SIZE + 64];
	int r;

	snprintf(path, sizeof(path), "/sys/block/loop%d/queue/%s", loop->number, name);
	r = uc_read_file_at(AT_FDCWD, path, 64, &b);
	if (r < 0)
		return r;
	if (b.len && b.data[b.len - 1] == '\n')
		b.data[b.len - 1] = '\0';
	return uc_str_parse_u64(uc_buf_str(&b), UINT64_MAX, ret_value);
}

int uc_loopdev_forbid_discard(const struct uc_loopdev *loop, struct uc_err *err)
{
	char path[UC_LOOPDEV_PATH_SIZE + 64];
	int r;

	snprintf(path, sizeof(path), "/sys/block/loop%d/queue/discard_max_bytes", loop->number);
	r = uc_write_file_at(AT_FDCWD, path, "0\n");
	return r < 0 ? uc_fail(err, -r, "forbid discards on `%s`", UC_LOOPDEV_PATH(loop)) : 0;
}

/*
 * Whether discards are forbidden on a device that could do them.  The setting outlives
 * the file, and the kernel (6.18) takes no other value once it is 0: the device's unit of
 * discard is 0 then as well, and nothing is a multiple of that.
 */
static bool is_stuck(const struct uc_loopdev *loop)
{
	uint64_t max = 1, hardware = 0;

	return read_queue(loop, "discard_max_bytes", &max) == 0 && max == 0 &&
	       read_queue(loop, "discard_max_hw_bytes", &hardware) == 0 && hardware > 0;
}

/* A device that nobody uses is made anew, with the default settings. */
static void renew(const struct uc_loopdev *loop)
{
	cleanup_fd int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	if (control >= 0 && ioctl(control, LOOP_CTL_REMOVE, loop->number) == 0)
		(void)ioctl(control, LOOP_CTL_ADD, loop->number);
}

static int configure(int fd, const char *name, const struct stat *st, struct uc_loopdev *loop)
{
	struct loop_config config = {
		.fd = (uint32_t)fd,
		.info = { .lo_flags = LO_FLAGS_DIRECT_IO },
	};
	cleanup_fd int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	cleanup_fd int dev = -1;

	if (control < 0)
		return -errno;
	snprintf((char *)config.info.lo_file_name, LO_NAME_SIZE, "%s", name);
	loop->number = ioctl(control, LOOP_CTL_GET_FREE);
	if (loop->number < 0)
		return -errno;
	loop->dev = st->st_dev;
	loop->ino = st->st_ino;
	dev = open(UC_LOOPDEV_PATH(loop), O_RDWR | O_CLOEXEC);
	if (dev < 0)
		/* devtmpfs makes the node before GET_FREE returns; gone again: somebody removed it.
		 */
		return errno == ENXIO || errno == ENOENT ? -EBUSY : -errno;
	return ioctl(dev, LOOP_CONFIGURE, &config) < 0 ? -errno : 0;
}

/*
 * A device that was detached while somebody had it open is cleared when that one closes it, which
 * must not happen under us.  0, or -ENOENT: it was in the meantime.
 */
static int keep(const struct uc_loopdev *loop)
{
	cleanup_fd int fd = open(UC_LOOPDEV_PATH(loop), O_RDWR | O_CLOEXEC);
	struct loop_info64 st = { 0 };
	int r = fd < 0 ? -errno : get_status(fd, &st);

	if (r == -ENXIO || r == -ENOENT || (r == 0 && !has_file(&st, loop->dev, loop->ino)))
		return -ENOENT;
	if (r < 0 || !(st.lo_flags & LO_FLAGS_AUTOCLEAR))
		return r;
	st.lo_flags &= ~(uint32_t)LO_FLAGS_AUTOCLEAR;
	return ioctl(fd, LOOP_SET_STATUS64, &st) < 0 ? -errno : 0;
}

int uc_loopdev_attach(int fd, const char *name, struct uc_loopdev *ret_loop, struct uc_err *err)
{
	struct uc_loopdev loop = UC_LOOPDEV_NONE;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return uc_fail(err, errno, "attach a loop device to `%s`", name);
	r = uc_loopdev_find(st.st_dev, st.st_ino, name, &loop, err);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0) {
		r = keep(&loop);
		if (r < 0 && r != -ENOENT)
			return uc_fail(err, -r, "keep `%s` of `%s`", UC_LOOPDEV_PATH(&loop), name);
	}
	if (r == -ENOENT) {
		for (int i = 0; i < ATTACH_TRIES; i++) {
			r = configure(fd, name, &st, &loop);
			if (r == 0 && is_stuck(&loop)) { /* by somebody who did not clean up */
				r = uc_loopdev_detach(&loop, err);
				if (r < 0)
					return r;
				r = -EBUSY;
			}
			if (r != -EBUSY)
				break;
		}
		if (r < 0)
			return uc_fail(err, -r, "attach a loop device to `%s`", name);
	}
	*ret_loop = loop;
	return 0;
}

/* 0: it has the file no more; positive: it may still have, as somebody has it open. */
static int try_detach(const struct uc_loopdev *loop, struct uc_err *err)
{
	struct loop_info64 st = { 0 };
	cleanup_fd int fd = -1;
	bool busy = false;
	int r;

	/* O_EXCL: LOOP_CLR_FD of a device in use would only mark it for later. */
	fd = open(UC_LOOPDEV_PATH(loop), O_RDWR | O_EXCL | O_CLOEXEC);
	if (fd < 0 && errno == EBUSY) {
		fd = open(UC_LOOPDEV_PATH(loop), O_RDONLY | O_CLOEXEC);
		busy = true;
	}
	r = fd < 0 ? -errno : get_status(fd, &st);
	if (r == -ENXIO || r == -ENOENT || (r == 0 && !has_file(&st, loop->dev, loop->ino)))
		return 0;
	if (r < 0)
		return uc_fail(err, -r, "look at `%s`", UC_LOOPDEV_PATH(loop));
	if (busy)
		return 1;
	if (ioctl(fd, LOOP_CLR_FD) < 0)
		return errno == ENXIO ? 0
				      : uc_fail(err, errno, "detach `%s`", UC_LOOPDEV_PATH(loop));
	return 1; /* it may have to wait for somebody who has it open: look again */
}

int uc_loopdev_detach(const struct uc_loopdev *loop, struct uc_err *err)
{
	uint64_t end = uc_now_ms() + DETACH_MS;
	bool stuck = is_stuck(loop);

	for (bool first = true;; first = false) {
		int r = try_detach(loop, err);

		if (r == 0 && stuck)
			renew(loop);
		if (r <= 0)
			return r;
		if (uc_now_ms() >= end)
			return uc_fail(err, EBUSY, "detach `%s`", UC_LOOPDEV_PATH(loop));
		if (!first)
			uc_sleep_ms(20);
	}
}
