/* SPDX-License-Identifier: Apache-2.0 */

/*
 * libdevmapper keeps what it does in variables of its own, so one thread at a time
 * is in it.  No call of it here waits for I/O on a device.
 *
 * Nothing here waits for udev: its cookies are semaphores, and those of a container are
 * not the machine's.  The kernel itself makes /dev/dm-N, libdevmapper the name in
 * /dev/mapper, whether udev does so, too, or not.
 */

#include <errno.h>
#include <inttypes.h>
#include <libdevmapper.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/os/clock.h"
#include "lib/os/dm.h"

enum {
	SECTOR = 512,
	TICK_MS = 20,
};

UC_DEFINE_CLEANUP(struct dm_task *, dm_task_destroy)

static pthread_mutex_t library = PTHREAD_MUTEX_INITIALIZER;
static char complaint[256]; /* the last one of the library, under its lock */

static void unlockp(pthread_mutex_t **m)
{
	pthread_mutex_unlock(*m);
}

static pthread_mutex_t *lock(void)
{
	pthread_mutex_lock(&library);
	complaint[0] = '\0';
	return &library;
}

#define LOCKED(var) pthread_mutex_t *var __attribute__((cleanup(unlockp), unused)) = lock()

__attribute__((format(printf, 5, 6))) static void note(int level, const char *file, int line,
						       int error, const char *fmt, ...)
{
	char text[sizeof(complaint)];
	va_list ap;

	(void)line;
	(void)error;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if ((level & 7) <= 3) /* LOG_ERR */
		memcpy(complaint, text, sizeof(complaint));
	log_debug("libdevmapper: %s: %s", file, text);
}

static struct dm_task *new_task(int type, const char *uuid)
{
	cleanup_with(dm_task_destroyp) struct dm_task *t = NULL;

	dm_log_with_errno_init(note);
	dm_udev_set_sync_support(0);
	t = dm_task_create(type);
	if (!t || (uuid && !dm_task_set_uuid(t, uuid)))
		return NULL;
	return take_ptr(&t);
}

static bool kernel_has_dm(void)
{
	char version[64];

	return dm_driver_version(version, sizeof(version)) == 1;
}

static int fail_library(int num, struct uc_err *err)
{
	char text[sizeof(complaint)];

	memcpy(text, complaint, sizeof(text));
	if (!kernel_has_dm())
		return uc_fail_as(err, EOPNOTSUPP, 0,
				  "the kernel has no device-mapper (its module is dm_mod)");
	return uc_fail(err, num ? num : EIO, "device-mapper: %s", UC_PRINTABLE(text));
}

/* 0, -ENXIO (there is no such device) or another negative errno. */
static int run(struct dm_task *t, struct uc_err *err)
{
	int num;

	if (dm_task_run(t)) {
		dm_task_update_nodes(); /* what is to change in /dev/mapper waits for that */
		return 0;
	}
	num = dm_task_get_errno(t);
	return num == ENXIO ? -ENXIO : fail_library(num, err);
}

const char *uc_dm_path(dev_t dev, char to[static UC_DM_PATH_SIZE])
{
	snprintf(to, UC_DM_PATH_SIZE, "/dev/dm-%u", minor(dev));
	return to;
}

/* @ret_name: room for UC_DM_NAME_MAX + 1; or NULL */
static int find(const char *uuid, struct dm_info *ret_info, char *ret_name, struct uc_err *err)
{
	cleanup_with(dm_task_destroyp) struct dm_task *t = new_task(DM_DEVICE_INFO, uuid);
	int r;

	if (!t)
		return fail_library(ENOMEM, err);
	r = run(t, err);
	if (r < 0)
		return r;
	if (!dm_task_get_info(t, ret_info) || !ret_info->exists)
		return -ENOENT;
	if (ret_name)
		snprintf(ret_name, UC_DM_NAME_MAX + 1, "%s", dm_task_get_name(t));
	return 0;
}

int uc_dm_find(const char *uuid, dev_t *ret_dev, struct uc_err *err)
{
	struct dm_info info = { 0 };
	LOCKED(l);
	int r = find(uuid, &info, NULL, err);

	if (r < 0)
		return r == -ENOENT ? uc_fail(err, ENOENT, "mapped device `%s`", uuid) : r;
	*ret_dev = makedev(info.major, info.minor);
	return 0;
}

/* ---------------------------------------------------------------------- tables */

/* The arguments of one line, as the kernel also prints them. */
static const char *arguments(const struct uc_dm_segment *s, struct uc_buf *text)
{
	uc_buf_clear(text);
	if (s->n_pieces > 1)
		uc_buf_printf(text, "%zu %" PRIu64 " ", s->n_pieces, s->chunk / SECTOR);
	for (size_t i = 0; i < s->n_pieces; i++)
		uc_buf_printf(text, "%s%u:%u %" PRIu64, i ? " " : "", major(s->pieces[i].dev),
			      minor(s->pieces[i].dev), s->pieces[i].offset / SECTOR);
	return uc_buf_str(text);
}

static const char *type_of(const struct uc_dm_segment *s)
{
	return s->n_pieces > 1 ? "striped" : "linear";
}

static int set_table(struct dm_task *t, const struct uc_dm_segment *segments, size_t n)
{
	cleanup_buf struct uc_buf text = UC_BUF_INIT;

	for (size_t i = 0; i < n; i++)
		if (!dm_task_add_target(t, segments[i].start / SECTOR, segments[i].length / SECTOR,
					type_of(&segments[i]), arguments(&segments[i], &text)) ||
		    uc_buf_error(&text) < 0)
			return -ENOMEM;
	return 0;
}

static bool is_line(const struct uc_dm_segment *s, uint64_t start, uint64_t length,
		    const char *type, const char *params, struct uc_buf *text)
{
	return type && params && s->start / SECTOR == start && s->length / SECTOR == length &&
	       strcmp(type, type_of(s)) == 0 && strcmp(params, arguments(s, text)) == 0;
}

/* Positive: the device has this very table. */
static int has_table(const char *uuid, const struct uc_dm_segment *segments, size_t n,
		     struct uc_err *err)
{
	cleanup_with(dm_task_destroyp) struct dm_task *t = new_task(DM_DEVICE_TABLE, uuid);
	cleanup_buf struct uc_buf text = UC_BUF_INIT;
	char *type = NULL, *params = NULL;
	uint64_t start = 0, length = 0;
	void *next = NULL;
	size_t i = 0;
	int r;

	if (!t)
		return fail_library(ENOMEM, err);
	r = run(t, err);
	if (r < 0)
		return r;
	do {
		next = dm_get_next_target(t, next, &start, &length, &type, &params);
		if (i == n || !is_line(&segments[i], start, length, type, params, &text))
			return 0;
		i++;
	} while (next);
	return i == n;
}

/* -------------------------------------------------------------------- creation */

static int resume(const char *uuid, struct uc_err *err)
{
	cleanup_with(dm_task_destroyp) struct dm_task *t = new_task(DM_DEVICE_RESUME, uuid);

	return t ? run(t, err) : fail_library(ENOMEM, err);
}

static int load(const char *uuid, const struct uc_dm_segment *segments, size_t n,
		struct uc_err *err)
{
	cleanup_with(dm_task_destroyp) struct dm_task *t = new_task(DM_DEVICE_RELOAD, uuid);
	int r;

	if (!t || set_table(t, segments, n) < 0)
		return fail_library(ENOMEM, err);
	r = run(t, err);
	return r < 0 ? r : resume(uuid, err);
}

static int make(const char *name, const char *uuid, const struct uc_dm_segment *segments, size_t n,
		struct uc_err *err)
{
	cleanup_with(dm_task_destroyp) struct dm_task *t = new_task(DM_DEVICE_CREATE, uuid);

	if (!t || !dm_task_set_name(t, name) || set_table(t, segments, n) < 0)
		return fail_library(ENOMEM, err);
	return run(t, err);
}

int uc_dm_create(const char *name, const char *uuid, const struct uc_dm_segment *segments, size_t n,
		 dev_t *ret_dev, struct uc_err *err)
{
	struct dm_info info = { 0 };
	LOCKED(l);
	int r;

	r = find(uuid, &info, NULL, err);
	if (r == -ENOENT) {
		r = make(name, uuid, segments, n, err);
		if (r == 0)
			r = find(uuid, &info, NULL, err);
	} else if (r == 0 && !info.live_table) {
		r = load(uuid, segments, n, err);
	} else if (r == 0) {
		r = has_table(uuid, segments, n, err);
		if (r == 0)
			return uc_fail_as(err, EEXIST, 0,
					  "mapped device `%s` is there with another table", name);
		r = r > 0 && info.suspended ? resume(uuid, err) : r < 0 ? r : 0;
	}
	if (r < 0)
		return uc_wrap(err, r, "make mapped device `%s`", name);
	*ret_dev = makedev(info.major, info.minor);
	return 0;
}

/* Who removes a device by its UUID does not tell libdevmapper the name that it has made for it. */
static void remove_node(const char *name, const struct dm_info *info)
{
	char path[UC_DM_NAME_MAX + 32];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dm_dir(), name);
	if (lstat(path, &st) == 0 && S_ISBLK(st.st_mode) &&
	    st.st_rdev == makedev(info->major, info->minor))
		(void)unlink(path);
}

static int remove_once(const char *uuid, struct uc_err *err)
{
	LOCKED(l);
	cleanup_with(dm_task_destroyp) struct dm_task *t = NULL;
	char name[UC_DM_NAME_MAX + 1];
	struct dm_info info = { 0 };
	int r;

	r = find(uuid, &info, name, err);
	if (r < 0)
		return r;
	t = new_task(DM_DEVICE_REMOVE, uuid);
	r = t ? run(t, err) : fail_library(ENOMEM, err);
	if (r == 0)
		remove_node(name, &info);
	return r == -ENXIO ? -ENOENT : r;
}

int uc_dm_remove(const char *uuid, uint64_t timeout_ms, struct uc_err *err)
{
	uint64_t end = uc_now_ms() + timeout_ms;
	int r;

	for (;;) {
		r = remove_once(uuid, err);
		if (r != -EBUSY || uc_now_ms() >= end)
			break;
		uc_sleep_ms(TICK_MS);
	}
	if (r == -ENOENT)
		return 0;
	return r < 0 ? uc_wrap(err, r, "remove mapped device `%s`", uuid) : 0;
}
