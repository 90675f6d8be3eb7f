/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/str.h"
#include "lib/os/clock.h"
#include "lib/os/fd.h"
#include "lib/os/mount.h"
#include "lib/os/unixsock.h"
#include "lib/vol/ctl.h"

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

enum {
	REPLY_MAX = 1024 * 1024, /* 1024 branches with long paths */
	CUT_MS = 10,
};

/* Waits for @events; 0, -ETIMEDOUT or another negative errno. */
static int wait_for(int fd, short events, uint64_t end_ms)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		uint64_t now = uc_now_ms(), left = end_ms > now ? end_ms - now : 0;
		int r = poll(&p, 1, left < INT32_MAX ? (int)left : INT32_MAX);

		if (r > 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return -errno;
		if (r == 0 && uc_now_ms() >= end_ms)
			return -ETIMEDOUT;
	}
}

static int send_line(int fd, const char *line, uint64_t end_ms)
{
	size_t n = strlen(line);

	while (n > 0) {
		ssize_t k = send(fd, line, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		int r;

		if (k >= 0) {
			line += k;
			n -= (size_t)k;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		r = wait_for(fd, POLLOUT, end_ms);
		if (r < 0)
			return r;
	}
	return 0;
}

static int receive_line(int fd, struct uc_buf *b, uint64_t end_ms)
{
	for (;;) {
		ssize_t k;
		int r;

		r = uc_buf_reserve(b, 4096);
		if (r < 0)
			return r;
		r = wait_for(fd, POLLIN, end_ms);
		if (r < 0)
			return r;
		k = recv(fd, b->data + b->len, 4096, MSG_DONTWAIT);
		if (k < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			return -ECONNRESET; /* it has ended in the middle */
		b->len += (size_t)k;
		b->data[b->len] = '\0';
		if (memchr(b->data + b->len - (size_t)k, '\n', (size_t)k))
			return 0;
		if (b->len > REPLY_MAX)
			return -EMSGSIZE;
	}
}

static int exchange(int fd, const char *op, uint64_t end_ms, json_t **ret_reply, struct uc_err *err)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	cleanup_json json_t *ask = json_pack("{s:s}", "op", op);
	cleanup_free char *text = ask ? json_dumps(ask, JSON_COMPACT) : NULL;
	cleanup_free char *line = NULL;
	int r;

	if (!text || asprintf(&line, "%s\n", text) < 0) {
		line = NULL;
		return uc_fail(err, ENOMEM, "ask");
	}
	r = send_line(fd, line, end_ms);
	if (r == 0)
		r = receive_line(fd, &b, end_ms);
	if (r < 0)
		return uc_fail(err, -r, "wait for its answer");
	r = uc_json_parse(b.data, b.len, ret_reply, err);
	return r == -EINVAL ? uc_wrap(err, -EPROTO, "its answer") : r;
}

/* The server's verdict: 0, or the errno that it names. */
static int check_reply(const json_t *reply, struct uc_err *err)
{
	const char *text = "it gives no reason";
	uint64_t num = EPROTO;
	bool ok = false;

	if (uc_json_get_bool(reply, "ok", true, &ok, err) < 0)
		return uc_wrap(err, -EPROTO, "its answer");
	if (ok)
		return 0;
	if (uc_json_get_u64(reply, "errno", false, 4095, &num, err) < 0 ||
	    uc_json_get_str(reply, "error", false, &text, err) < 0)
		return uc_wrap(err, -EPROTO, "its answer");
	return uc_fail_as(err, num ? (int)num : EPROTO, 0, "%s", UC_PRINTABLE(text));
}

static int connect_to(const char *dir, struct uc_err *err)
{
	cleanup_free char *path = NULL;
	int fd;

	if (asprintf(&path, "%s/%s", dir, UC_CTL_SOCKET) < 0) {
		path = NULL;
		return uc_fail(err, ENOMEM, "connect");
	}
	fd = uc_unix_connect(path, err);
	if (fd == -ENOENT) {
		fd = -ECONNREFUSED;
		if (err)
			err->num = ECONNREFUSED;
	}
	return fd;
}

int uc_ctl_claim(int dir_fd, int *ret_fd, struct uc_err *err)
{
	cleanup_fd int bare = -1, fd = -1;
	int r;

	r = uc_mount_clone(dir_fd, 0, 0, &bare, err);
	if (r < 0)
		return r;
	fd = uc_open_dir_at(bare, UC_CTL_MERGED);
	if (fd < 0)
		return uc_fail(err, -fd, "open `%s`", UC_CTL_MERGED);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK
			       ? uc_fail_as(err, EBUSY, 0, "another server serves this directory")
			       : uc_fail(err, errno, "lock `%s`", UC_CTL_MERGED);
	*ret_fd = take_fd(&fd);
	return 0;
}

/* The process that listens, as the kernel knows it. */
static int peer_pidfd(int fd)
{
	struct ucred peer;
	socklen_t n = sizeof(int);
	int pidfd;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &n) == 0)
		return pidfd;
	n = sizeof(peer);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
		return -errno;
	pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	return pidfd < 0 ? -errno : pidfd;
}

int uc_ctl_kill(const char *dir, struct uc_err *err)
{
	cleanup_fd int fd = -1, pidfd = -1;

	fd = connect_to(dir, err);
	if (fd < 0)
		return fd;
	pidfd = peer_pidfd(fd);
	if (pidfd < 0)
		return uc_fail(err, -pidfd, "identify the volume server");
	if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
		return uc_fail(err, errno, "kill the volume server");
	return 0;
}

static int ask_once(const char *dir, const char *op, uint64_t end_ms, json_t **ret_reply,
		    struct uc_err *err)
{
	cleanup_fd int fd = connect_to(dir, err);

	return fd < 0 ? fd : exchange(fd, op, end_ms, ret_reply, err);
}

int uc_ctl_call(const char *dir, const char *op, uint64_t timeout_ms, json_t **ret_reply,
		struct uc_err *err)
{
	uint64_t end_ms = uc_now_ms() + timeout_ms;
	cleanup_json json_t *reply = NULL;
	int r;

	for (;;) {
		r = ask_once(dir, op, end_ms, &reply, err);
		if ((r != -ECONNRESET && r != -EPIPE) || uc_now_ms() >= end_ms)
			break;
		uc_sleep_ms(CUT_MS); /* it is ending: then nobody listens any more */
	}
	if (r == 0)
		r = check_reply(reply, err);
	if (r < 0)
		return uc_wrap(err, r, "ask the volume server (%s)", op);
	if (ret_reply)
		*ret_reply = take_ptr(&reply);
	return 0;
}
