/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * Each question runs on a detached thread of its own.  Asker and thread share a
 * struct question with two references; the asker waits on its condition with a
 * time limit and then lets go.  A question whose asker has gone stays in the
 * list of hung ones, keyed by the mount's id, until the kernel answers: as long
 * as it is there, nobody asks that mount again.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/os/mount.h"
#include "lib/os/statfs.h"

struct question {
	int fd;
	uint64_t mount_id;
	int result; /* 0 or negative errno */
	bool answered, abandoned;
	struct statvfs st;
	struct question *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered; /* broadcast: few ask at a time */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct question *questions; /* lock */

static void init(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&answered, &attr);
	pthread_condattr_destroy(&attr);
}

/* Takes @q off the list and releases it; under the lock. */
static void forget(struct question *q)
{
	for (struct question **p = &questions; *p; p = &(*p)->next)
		if (*p == q) {
			*p = q->next;
			break;
		}
	uc_closep(&q->fd);
	free(q);
}

static void *ask(void *arg)
{
	struct question *q = arg;
	struct statvfs st;
	int r = fstatvfs(q->fd, &st) < 0 ? -errno : 0;

	pthread_mutex_lock(&lock);
	if (q->abandoned) {
		forget(q);
	} else {
		q->result = r;
		q->st = st;
		q->answered = true;
		pthread_cond_broadcast(&answered);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static int start(struct question *q)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN + 64 * 1024);
	r = pthread_create(&thread, &attr, ask, q);
	pthread_attr_destroy(&attr);
	return -r;
}

/* Under the lock; -EALREADY where a question to this mount hangs. */
static int add(int fd, uint64_t mount_id, struct question **ret_q)
{
	struct question *q;
	int r;

	for (q = questions; q; q = q->next)
		if (q->mount_id == mount_id && q->abandoned)
			return -EALREADY;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->mount_id = mount_id;
	q->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (q->fd < 0) {
		r = -errno;
		free(q);
		return r;
	}
	q->next = questions;
	questions = q;
	r = start(q);
	if (r < 0) {
		forget(q);
		return r;
	}
	*ret_q = q;
	return 0;
}

static void convert(const struct statvfs *st, struct uc_statfs *ret)
{
	*ret = (struct uc_statfs){
		.total = st->f_blocks * st->f_frsize,
		.used = (st->f_blocks - st->f_bfree) * st->f_frsize,
		.available = st->f_bavail * st->f_frsize,
		.inodes = st->f_files,
		.inodes_used = st->f_files - st->f_ffree,
		.inodes_free = st->f_ffree,
	};
}

int uc_statfs_bounded(int fd, uint64_t timeout_ms, struct uc_statfs *ret, struct uc_err *err)
{
	struct question *q = NULL;
	struct timespec end;
	uint64_t mount_id;
	int r;

	pthread_once(&once, init);
	r = uc_mount_id(fd, &mount_id, NULL);
	if (r < 0)
		return uc_fail(err, -r, "ask a filesystem for its usage");
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += (time_t)(timeout_ms / 1000);
	end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000;
	}

	pthread_mutex_lock(&lock);
	r = add(fd, mount_id, &q);
	while (r == 0 && q && !q->answered)
		r = -pthread_cond_timedwait(&answered, &lock, &end);
	if (q && q->answered) { /* perhaps in the very moment that the time was over */
		r = q->result;
		if (r == 0)
			convert(&q->st, ret);
		forget(q);
	} else if (q) {
		q->abandoned = true;
	}
	pthread_mutex_unlock(&lock);

	if (r == -EALREADY)
		return uc_fail_as(
			err, ETIMEDOUT, 0,
			"the filesystem does not answer: an earlier question still waits");
	if (r < 0)
		return uc_fail(err, -r, "ask a filesystem for its usage");
	return 0;
}
