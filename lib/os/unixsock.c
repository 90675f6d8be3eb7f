/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/os/clock.h"
#include "lib/os/fd.h"
#include "lib/os/unixsock.h"

/*
 * Theory of operation
 *
 * A name is always "entry in a directory that is open".  sockaddr_un has room
 * for 107 bytes; a longer path is bound and connected as /proc/self/fd/N/name.
 * Short paths are used as they are, because `ss` shows them.
 *
 * Mode: the kernel gives the file the mode of the socket's inode less the umask
 * (unix_bind_bsd()), so fchmod() before bind() leaves no moment with a wider one,
 * and does not touch the umask, which all threads share.
 *
 * Taking over a stale name is test, unlink, bind, listen: two processes that do
 * this at the same time could each unlink what the other has just bound.  So the
 * directory is locked (flock) meanwhile.
 *
 * Removing: the name is ours as long as it has our device and inode number.
 * The inode cannot be reused meanwhile: the socket, which is closed last, holds
 * it.  Nobody takes the name over meanwhile: the socket still listens.
 */

enum {
	BACKLOG = 128,
	CONNECT_WAIT_S = 5,
	LOCK_TRIES = 100,
	LOCK_PAUSE_MS = 10,
};

/* An open directory and a name in it. */
struct place {
	int dirfd;
	char *name;
};

static void place_done(struct place *p)
{
	uc_closep(&p->dirfd);
	free(p->name);
}

static int open_place(const char *path, int flags, struct place *ret)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *dir = NULL;

	if (!*path || (slash && !slash[1]) || strlen(path) >= PATH_MAX)
		return -EINVAL;
	if (!slash)
		dir = strdup(".");
	else if (slash == path)
		dir = strdup("/");
	else
		dir = strndup(path, (size_t)(slash - path));
	ret->name = strdup(slash ? slash + 1 : path);
	if (!dir || !ret->name)
		return -ENOMEM;
	ret->dirfd = open(dir, flags | O_DIRECTORY | O_CLOEXEC);
	return ret->dirfd < 0 ? -errno : 0;
}

/* The address of a place, which @path names as well. */
static int make_address(const char *path, const struct place *place, struct sockaddr_un *ret)
{
	int n;

	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s", path);
	if ((size_t)n < sizeof(ret->sun_path))
		return 0;
	n = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/%s", UC_FD_PATH(place->dirfd),
		     place->name);
	return (size_t)n < sizeof(ret->sun_path) ? 0 : -ENAMETOOLONG;
}

/* Whether somebody listens.  A queue that is full and a socket of another type are somebody. */
static int is_live(const struct sockaddr_un *address)
{
	cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
		return 1;
	switch (errno) {
	case ECONNREFUSED:
	case ENOENT:
		return 0;
	case EAGAIN:
	case EPROTOTYPE:
		return 1;
	default:
		return -errno;
	}
}

static int remove_stale(const struct place *place, const struct sockaddr_un *address,
			const char *path, struct uc_err *err)
{
	struct stat st;
	int live;

	if (fstatat(place->dirfd, place->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT)
			return 0;
		return uc_fail(err, errno, "look at `%s`", path);
	}
	if (!S_ISSOCK(st.st_mode))
		return uc_fail_as(err, EEXIST, 0, "`%s` is there and is not a socket", path);
	live = is_live(address);
	if (live < 0)
		return uc_fail(err, -live, "find out whether somebody listens on `%s`", path);
	if (live)
		return uc_fail_as(err, EADDRINUSE, 0, "another process listens on `%s`", path);
	if (unlinkat(place->dirfd, place->name, 0) < 0 && errno != ENOENT)
		return uc_fail(err, errno, "remove the stale socket `%s`", path);
	return 0;
}

static int bind_and_listen(int fd, const struct place *place, const struct sockaddr_un *address,
			   const char *path, struct stat *ret_st, struct uc_err *err)
{
	int num;

	if (fchmod(fd, 0600) < 0)
		return uc_fail(err, errno, "set the mode of a socket");
	if (bind(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		return uc_fail(err, errno, "bind `%s`", path);
	if (fstatat(place->dirfd, place->name, ret_st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    listen(fd, BACKLOG) == 0)
		return 0;
	num = errno;
	(void)unlinkat(place->dirfd, place->name, 0);
	return uc_fail(err, num, "listen on `%s`", path);
}

/* The lock is held for a moment only, but not waited for without end. */
static int lock_dir(int dirfd)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		if (flock(dirfd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK)
			return -errno;
		uc_sleep_ms(LOCK_PAUSE_MS);
	}
	return -EADDRINUSE;
}

int uc_unix_listen(const char *path, struct uc_unix_listener *ret_listener, struct uc_err *err)
{
	cleanup_with(place_done) struct place place = { .dirfd = -1 };
	struct sockaddr_un address;
	cleanup_fd int fd = -1;
	struct stat st = { 0 };
	int r;

	r = open_place(path, O_RDONLY, &place);
	if (r < 0)
		return uc_fail(err, -r, "open the directory of `%s`", path);
	r = make_address(path, &place, &address);
	if (r < 0)
		return uc_fail(err, -r, "bind `%s`", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return uc_fail(err, errno, "make a socket");
	r = lock_dir(place.dirfd);
	if (r < 0)
		return uc_fail(err, -r, "lock the directory of `%s`", path);
	r = remove_stale(&place, &address, path, err);
	if (r == 0)
		r = bind_and_listen(fd, &place, &address, path, &st, err);
	(void)flock(place.dirfd, LOCK_UN);
	if (r < 0)
		return r;
	ret_listener->fd = take_fd(&fd);
	ret_listener->dirfd = take_fd(&place.dirfd);
	ret_listener->name = take_ptr(&place.name);
	ret_listener->dev = st.st_dev;
	ret_listener->ino = st.st_ino;
	return 0;
}

void uc_unix_unlisten(struct uc_unix_listener *listener)
{
	int saved = errno;
	struct stat st;

	if (listener->fd >= 0 &&
	    fstatat(listener->dirfd, listener->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_dev == listener->dev && st.st_ino == listener->ino)
		(void)unlinkat(listener->dirfd, listener->name, 0);
	uc_closep(&listener->fd);
	uc_closep(&listener->dirfd);
	free(listener->name);
	listener->name = NULL;
	errno = saved;
}

int uc_unix_connect(const char *path, struct uc_err *err)
{
	cleanup_with(place_done) struct place place = { .dirfd = -1 };
	struct timeval wait = { .tv_sec = CONNECT_WAIT_S }, forever = { 0 };
	struct sockaddr_un address;
	cleanup_fd int fd = -1;
	int r;

	r = open_place(path, O_PATH, &place);
	if (r == 0)
		r = make_address(path, &place, &address);
	if (r < 0)
		return uc_fail(err, -r, "connect to `%s`", path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return uc_fail(err, errno, "make a socket");
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0)
		return uc_fail(err, errno, "set a socket's time limit");
	do
		r = connect(fd, (const struct sockaddr *)&address, sizeof(address));
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return uc_fail(err, errno == EAGAIN ? ETIMEDOUT : errno, "connect to `%s`", path);
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &forever, sizeof(forever));
	return take_fd(&fd);
}

bool uc_unix_is_trusted(int fd)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
		return false;
	return peer.uid == 0 || peer.uid == geteuid();
}
