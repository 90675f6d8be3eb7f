/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/os/bounded.h"
#include "lib/os/mount.h"
#include "lib/os/statfs.h"

struct question {
	int fd;
	int result; /* 0 or negative errno */
	struct statvfs st;
};

static void ask(void *data)
{
	struct question *q = data;

	q->result = fstatvfs(q->fd, &q->st) < 0 ? -errno : 0;
}

static void release(void *data)
{
	struct question *q = data;

	if (!q)
		return;
	uc_closep(&q->fd);
	free(q);
}

static struct uc_statfs convert(const struct statvfs *st)
{
	return (struct uc_statfs){
		.total = st->f_blocks * st->f_frsize,
		.used = (st->f_blocks - st->f_bfree) * st->f_frsize,
		.available = st->f_bavail * st->f_frsize,
		.inodes = st->f_files,
		.inodes_used = st->f_files - st->f_ffree,
		.inodes_free = st->f_ffree,
	};
}

/* A copy of the descriptor: the caller may close his own while the question hangs. */
static struct question *new_question(int fd)
{
	struct question *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (q->fd < 0) {
		free(q);
		return NULL;
	}
	return q;
}

int uc_statfs_bounded(int fd, uint64_t timeout_ms, struct uc_statfs *ret, struct uc_err *err)
{
	struct question *q;
	uint64_t mount_id;
	char key[64];
	int r;

	r = uc_mount_id(fd, &mount_id, NULL);
	if (r < 0)
		return uc_fail(err, -r, "ask a filesystem for its usage");
	q = new_question(fd);
	if (!q)
		return uc_fail(err, errno, "ask a filesystem for its usage");
	snprintf(key, sizeof(key), "statfs of mount %llu", (unsigned long long)mount_id);
	r = uc_bounded_run(key, timeout_ms, ask, q, release);
	if (r == -ETIMEDOUT)
		return uc_fail(err, ETIMEDOUT, "ask a filesystem for its usage");
	if (r == 0)
		r = q->result;
	if (r == 0)
		*ret = convert(&q->st);
	release(q);
	if (r == -EALREADY)
		return uc_fail_as(
			err, ETIMEDOUT, 0,
			"the filesystem does not answer: an earlier question still waits");
	return r < 0 ? uc_fail(err, -r, "ask a filesystem for its usage") : 0;
}
