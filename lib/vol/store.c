/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/os/clock.h"
#include "lib/os/fd.h"
#include "lib/os/mount.h"
#include "lib/vol/ctl.h"
#include "lib/vol/store.h"

enum {
	STATE_MAX = 4 << 20, /* bytes: 1024 branches and some thousand publishes */
};

int uc_store_open(const char *path, struct uc_store *ret_store, struct uc_err *err)
{
	struct uc_store s = UC_STORE_INIT;

	s.fd = uc_make_dir_at(AT_FDCWD, path, 0700);
	if (s.fd == -ELOOP || s.fd == -ENOTDIR) { /* a symlink to a directory is fine, here */
		s.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (s.fd < 0)
			s.fd = -errno;
	}
	if (s.fd < 0)
		return uc_fail(err, -s.fd, "open state directory `%s`", UC_PRINTABLE(path));
	s.path = realpath(path, NULL);
	s.volumes_fd = uc_make_dir_at(s.fd, "volumes", 0700);
	if (!s.path || s.volumes_fd < 0) {
		int num = s.path ? -s.volumes_fd : errno;

		uc_store_close(&s);
		return uc_fail(err, num, "open state directory `%s`", UC_PRINTABLE(path));
	}
	*ret_store = s;
	return 0;
}

int uc_store_look(const char *path, struct uc_store *ret_store, struct uc_err *err)
{
	struct uc_store s = UC_STORE_INIT;
	int r = 0;

	s.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s.fd < 0) {
		r = -errno;
	} else {
		s.path = realpath(path, NULL);
		r = s.path ? uc_open_dir_at(s.fd, "volumes") : -errno;
	}
	if (r >= 0)
		s.volumes_fd = r;
	else if (r != -ENOENT) {
		uc_store_close(&s);
		return uc_fail(err, -r, "open state directory `%s`", UC_PRINTABLE(path));
	}
	*ret_store = s;
	return 0;
}

void uc_store_close(struct uc_store *store)
{
	free(store->path);
	store->path = NULL;
	uc_closep(&store->fd);
	uc_closep(&store->volumes_fd);
}

/* Whether @fd is still what volumes/<id> names. */
static bool is_current(const struct uc_store *store, const char *id, int fd)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && fstatat(store->volumes_fd, id, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static pthread_mutex_t locks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct uc_volume_lock *locks; /* held by this process; locks_lock */
static uint64_t hang_ms = 300 * 1000;
static __thread struct uc_volume_lock *own; /* the one that this thread holds */

void uc_volume_lock_set_hang(uint64_t ms)
{
	hang_ms = ms;
}

/* Takes the lock away from a thread of this process that hangs with it. */
static void take_over(const struct stat *st, const char *id)
{
	pthread_mutex_lock(&locks_lock);
	for (struct uc_volume_lock *l = locks; l; l = l->next)
		if (l->dev == st->st_dev && l->ino == st->st_ino && !l->lost && !l->storing &&
		    uc_now_ms() - l->beat_ms >= hang_ms) {
			l->lost = true;
			flock(l->fd, LOCK_UN);
			log_debug("volume `%s`: its lock is taken from an operation that hangs",
				  id);
		}
	pthread_mutex_unlock(&locks_lock);
}

static int lock_dir(int fd, const char *id)
{
	struct stat st;

	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK || fstat(fd, &st) < 0)
		return -errno;
	take_over(&st, id);
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	return errno == EWOULDBLOCK ? -EBUSY : -errno;
}

static void enter(struct uc_volume_lock *lock, int fd)
{
	struct stat st;

	(void)fstat(fd, &st);
	*lock = (struct uc_volume_lock){
		.fd = fd,
		.dev = st.st_dev,
		.ino = st.st_ino,
		.beat_ms = uc_now_ms(),
	};
	pthread_mutex_lock(&locks_lock);
	lock->next = locks;
	locks = lock;
	pthread_mutex_unlock(&locks_lock);
	own = lock;
}

int uc_volume_lock(const struct uc_store *store, const char *id, bool create,
		   struct uc_volume_lock *ret_lock, struct uc_err *err)
{
	for (;;) {
		cleanup_fd int fd = -1;
		int r;

		fd = create ? uc_make_dir_at(store->volumes_fd, id, 0700)
			    : uc_open_dir_at(store->volumes_fd, id);
		if (fd == -ENOENT && !create)
			return uc_fail_as(err, ENOENT, 0, "there is no volume `%s`", id);
		if (fd < 0)
			return uc_fail(err, -fd, "open the directory of volume `%s`", id);
		r = lock_dir(fd, id);
		if (r == -EBUSY)
			return uc_fail_as(err, EBUSY, 0,
					  "volume `%s` is busy: another operation has it", id);
		if (r < 0)
			return uc_fail(err, -r, "lock volume `%s`", id);
		/* The one that had the lock may have removed the directory. */
		if (is_current(store, id, fd)) {
			enter(ret_lock, take_fd(&fd));
			return 0;
		}
	}
}

void uc_volume_unlock(struct uc_volume_lock *lock)
{
	if (lock->fd < 0)
		return;
	pthread_mutex_lock(&locks_lock);
	for (struct uc_volume_lock **l = &locks; *l; l = &(*l)->next)
		if (*l == lock) {
			*l = lock->next;
			break;
		}
	pthread_mutex_unlock(&locks_lock);
	own = NULL;
	uc_closep(&lock->fd);
}

int uc_volume_lock_beat(void)
{
	bool lost;

	if (!own)
		return 0;
	pthread_mutex_lock(&locks_lock);
	lost = own->lost;
	own->beat_ms = uc_now_ms();
	pthread_mutex_unlock(&locks_lock);
	return lost ? -ECANCELED : 0;
}

/* While the state is written the lock cannot be taken over. */
static int begin_storing(struct uc_volume_lock *lock)
{
	int r = 0;

	pthread_mutex_lock(&locks_lock);
	if (lock->lost)
		r = -ECANCELED;
	else
		lock->storing = true;
	pthread_mutex_unlock(&locks_lock);
	return r;
}

static void end_storing(struct uc_volume_lock *lock)
{
	pthread_mutex_lock(&locks_lock);
	lock->storing = false;
	lock->beat_ms = uc_now_ms();
	pthread_mutex_unlock(&locks_lock);
}

int uc_volume_load(const struct uc_store *store, const char *id, struct uc_volume *ret_v,
		   struct uc_err *err)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	cleanup_json json_t *object = NULL;
	cleanup_fd int dir = -1;
	struct uc_volume v;
	int r;

	dir = uc_open_dir_at(store->volumes_fd, id);
	r = dir < 0 ? dir : uc_read_file_at(dir, UC_STATE_FILE, STATE_MAX, &b);
	if (r == -ENOENT)
		return uc_fail_as(err, ENOENT, 0, "there is no volume `%s`", id);
	if (r < 0)
		return uc_fail(err, -r, "read the state of volume `%s`", id);
	r = uc_json_parse(b.data, b.len, &object, err);
	if (r == 0)
		r = uc_volume_from_json(object, &v, err);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		return uc_wrap(err, -EUCLEAN, "state of volume `%s`", id);
	if (strcmp(v.id, id) != 0) {
		uc_volume_done(&v);
		return uc_fail_as(err, EUCLEAN, 0, "state of volume `%s` is that of another one",
				  id);
	}
	*ret_v = v;
	return 0;
}

int uc_volume_store(struct uc_volume_lock *lock, const struct uc_volume *v, struct uc_err *err)
{
	cleanup_json json_t *object = uc_volume_to_json(v);
	cleanup_free char *text = object ? uc_json_format(object) : NULL;
	int r;

	if (!text)
		return uc_fail(err, ENOMEM, "write the state of volume `%s`", v->id);
	r = begin_storing(lock);
	if (r < 0)
		return uc_fail(err, -r, "write the state of volume `%s`", v->id);
	r = uc_replace_file_at(lock->fd, UC_STATE_FILE, text, strlen(text), 0600, err);
	end_storing(lock);
	return r < 0 ? uc_wrap(err, r, "write the state of volume `%s`", v->id) : 0;
}

/* Whether anybody still serves what the state says nothing of. */
static int check_unserved(int dir_fd, struct uc_err *err)
{
	cleanup_fd int claim = -1, fd = -1;
	bool is_root;
	uint64_t id;
	int r;

	fd = openat(dir_fd, UC_CTL_MERGED, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : uc_fail(err, errno, "open `%s`", UC_CTL_MERGED);
	r = uc_ctl_claim(dir_fd, &claim, err);
	if (r < 0)
		return r;
	r = uc_mount_id(fd, &id, &is_root);
	if (r < 0)
		return uc_fail(err, -r, "look at `%s`", UC_CTL_MERGED);
	return is_root ? uc_fail_as(err, EBUSY, 0, "something is mounted at its `%s`",
				    UC_CTL_MERGED)
		       : 0;
}

int uc_volume_forget(const struct uc_store *store, struct uc_volume_lock *lock, const char *id,
		     struct uc_err *err)
{
	static const char *const leavings[] = { UC_CTL_SOCKET, UC_STATE_BAD, "server.log" };
	int r;

	r = check_unserved(lock->fd, err);
	if (r < 0)
		return uc_wrap(err, r, "forget volume `%s`", id);
	r = begin_storing(lock);
	if (r < 0)
		return uc_fail(err, -r, "forget volume `%s`", id);
	r = uc_remove_file_at(lock->fd, UC_STATE_FILE, err);
	end_storing(lock);
	if (r < 0)
		return uc_wrap(err, r, "forget volume `%s`", id);
	for (size_t i = 0; i < sizeof(leavings) / sizeof(leavings[0]); i++)
		if (unlinkat(lock->fd, leavings[i], 0) < 0 && errno != ENOENT)
			return uc_fail(err, errno, "remove `%s` of volume `%s`", leavings[i], id);
	if (unlinkat(lock->fd, UC_CTL_MERGED, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return uc_fail(err, errno, "remove the mount point of volume `%s`", id);
	if (unlinkat(store->volumes_fd, id, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return uc_fail(err, errno, "remove the directory of volume `%s`", id);
	uc_volume_unlock(lock);
	if (fsync(store->volumes_fd) < 0)
		return uc_fail(err, errno, "sync the state directory");
	return 0;
}

static int collect(void *data, const char *name)
{
	if (!uc_volume_id_is_valid(name))
		return 0;
	return uc_strv_push(data, name);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int uc_store_each(const struct uc_store *store, int (*fn)(void *data, const char *id), void *data,
		  struct uc_err *err)
{
	cleanup_strv char **ids = NULL;
	int r;

	if (store->volumes_fd < 0)
		return 0;
	r = uc_dir_each(store->volumes_fd, collect, &ids);
	if (r < 0)
		return uc_fail(err, -r, "list the volumes");
	if (ids)
		qsort(ids, uc_strv_len(ids), sizeof(*ids), compare);
	for (char **id = ids; id && *id; id++) {
		r = fn(data, *id);
		if (r != 0)
			return r;
	}
	return 0;
}
