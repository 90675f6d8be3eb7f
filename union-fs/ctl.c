/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * All of it runs on the main thread, which serves no request of the kernel: it answers
 * also when every worker waits for a disk.  Nothing here blocks: connections are
 * non-blocking, few, and closed when they are idle.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/os/fd.h"
#include "lib/os/unixsock.h"
#include "lib/vol/ctl.h"
#include "union-fs/ctl.h"

enum {
	CLIENTS_MAX = 32,
	REQUEST_MAX = 4096, /* bytes of a question */
	IDLE_MS = 10000,
	STOP_MS = 1000, /* how long the answer to a stop waits for the end */
	BACKLOG = 16,
};

struct client {
	struct uc_source source;
	struct uc_timer timer;
	struct ufs_ctl *ctl;
	struct uc_buf in, out;
	bool stops; /* has asked for a stop, and waits for it */
	struct client *next;
};

struct ufs_ctl {
	struct uc_source source;
	struct uc_loop *loop;
	const struct ufs_ctl_ops *ops;
	int dirfd;
	bool named; /* the socket has its name */
	struct client *clients;
	unsigned n_clients;
};

/* --- clients --- */

static void drop(struct client *c)
{
	struct ufs_ctl *ctl = c->ctl;

	for (struct client **p = &ctl->clients; *p; p = &(*p)->next)
		if (*p == c) {
			*p = c->next;
			break;
		}
	ctl->n_clients--;
	uc_loop_remove(ctl->loop, &c->source);
	uc_loop_clear_timer(ctl->loop, &c->timer);
	uc_closep(&c->source.fd);
	uc_buf_done(&c->in);
	uc_buf_done(&c->out);
	free(c);
}

/* Sends what there is; false: the client is gone. */
static bool flush(struct client *c)
{
	while (c->out.len) {
		ssize_t n =
			send(c->source.fd, c->out.data, c->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			drop(c);
			return false;
		}
		if (n < 0)
			break;
		uc_buf_consume(&c->out, (size_t)n);
	}
	uc_loop_modify(c->ctl->loop, &c->source, c->out.len ? EPOLLIN | EPOLLOUT : EPOLLIN);
	return true;
}

/* Queues an answer; takes the reference, NULL is memory that ran out. */
static void answer(struct client *c, json_t *reply)
{
	cleanup_json json_t *owned = reply;
	cleanup_free char *text = reply ? json_dumps(reply, JSON_COMPACT) : NULL;

	if (text)
		uc_buf_printf(&c->out, "%s\n", text);
	else
		uc_buf_puts(&c->out, "{\"ok\":false,\"errno\":12,\"error\":\"out of memory\"}\n");
}

static json_t *failure(int r, const char *text)
{
	return json_pack("{s:b, s:i, s:s}", "ok", 0, "errno", -r, "error", text);
}

static json_t *stop_reply(const char *state)
{
	return json_pack("{s:b, s:s}", "ok", 1, "state", state);
}

static json_t *status(struct ufs_ctl *ctl)
{
	cleanup_json json_t *o = ctl->ops->status(ctl->ops->data);

	if (!o || json_object_set_new(o, "ok", json_true()) < 0)
		return NULL;
	return take_ptr(&o);
}

static void stop(struct client *c)
{
	struct uc_err err = { 0 };
	int r = c->ctl->ops->stop(c->ctl->ops->data, &err);

	if (r < 0) {
		answer(c, failure(r, err.msg));
		return;
	}
	c->stops = true;
	uc_loop_set_timer(c->ctl->loop, &c->timer, uc_loop_now_ms(c->ctl->loop) + STOP_MS);
}

/* One question, without its newline. */
static void ask(struct client *c, const char *line, size_t n)
{
	cleanup_json json_t *o = NULL;
	struct uc_err err = { 0 };
	const char *op = NULL;

	if (uc_json_parse(line, n, &o, &err) < 0 || uc_json_get_str(o, "op", true, &op, &err) < 0)
		answer(c, failure(-EINVAL, err.msg));
	else if (strcmp(op, "status") == 0)
		answer(c, status(c->ctl));
	else if (strcmp(op, "stop") == 0)
		stop(c);
	else
		answer(c, failure(-EOPNOTSUPP, "this op is not known (there are: status, stop)"));
}

static void take_lines(struct client *c)
{
	char *end;

	while (!c->stops && c->in.len && (end = memchr(c->in.data, '\n', c->in.len))) {
		ask(c, c->in.data, (size_t)(end - c->in.data));
		uc_buf_consume(&c->in, (size_t)(end - c->in.data) + 1);
	}
}

static void on_client(struct uc_source *s, uint32_t revents)
{
	struct client *c = uc_container_of(s, struct client, source);
	ssize_t n;

	if (revents & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
		if (uc_buf_reserve(&c->in, REQUEST_MAX) < 0) {
			drop(c);
			return;
		}
		n = recv(s->fd, c->in.data + c->in.len, REQUEST_MAX, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
			drop(c);
			return;
		}
		c->in.len += n > 0 ? (size_t)n : 0;
		take_lines(c);
		if (c->in.len > REQUEST_MAX) {
			drop(c);
			return;
		}
		if (!c->stops)
			uc_loop_set_timer(c->ctl->loop, &c->timer,
					  uc_loop_now_ms(c->ctl->loop) + IDLE_MS);
	}
	(void)flush(c);
}

static void on_timer(struct uc_timer *t)
{
	struct client *c = uc_container_of(t, struct client, timer);

	if (!c->stops) {
		drop(c);
		return;
	}
	c->stops = false;
	answer(c, stop_reply("stopping"));
	uc_loop_set_timer(c->ctl->loop, &c->timer, uc_loop_now_ms(c->ctl->loop) + IDLE_MS);
	(void)flush(c);
}

static void add_client(struct ufs_ctl *ctl, int fd)
{
	struct client *c = calloc(1, sizeof(*c));

	if (!c || ctl->n_clients >= CLIENTS_MAX || !uc_unix_is_trusted(fd)) {
		close(fd);
		free(c);
		return;
	}
	c->ctl = ctl;
	c->source = (struct uc_source){ .fd = fd, .events = EPOLLIN, .fn = on_client };
	c->timer.fn = on_timer;
	if (uc_loop_add(ctl->loop, &c->source) < 0) {
		close(fd);
		free(c);
		return;
	}
	uc_loop_set_timer(ctl->loop, &c->timer, uc_loop_now_ms(ctl->loop) + IDLE_MS);
	c->next = ctl->clients;
	ctl->clients = c;
	ctl->n_clients++;
}

static void on_listener(struct uc_source *s, uint32_t revents)
{
	struct ufs_ctl *ctl = uc_container_of(s, struct ufs_ctl, source);
	int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)revents;
	if (fd >= 0)
		add_client(ctl, fd);
}

/* --- the socket --- */

/*
 * Not uc_unix_listen(): that locks the directory, which the driver holds locked while it
 * waits for us.  We are alone here by the lock that serve.c takes, so a socket that is
 * there is stale.
 */
static int listen_at(int dirfd, struct uc_err *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat st;

	if (fd < 0)
		return uc_fail(err, errno, "make a socket");
	if (fstatat(dirfd, UC_CTL_SOCKET, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!S_ISSOCK(st.st_mode))
			return uc_fail_as(err, EEXIST, 0, "`%s` is there and is no socket",
					  UC_CTL_SOCKET);
		if (unlinkat(dirfd, UC_CTL_SOCKET, 0) < 0)
			return uc_fail(err, errno, "remove the stale `%s`", UC_CTL_SOCKET);
	}
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s", UC_FD_PATH(dirfd), UC_CTL_SOCKET);
	/* The name gets the mode that the socket has. */
	if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return uc_fail(err, errno, "bind `%s`", UC_CTL_SOCKET);
	if (listen(fd, BACKLOG) < 0) {
		int num = errno;

		(void)unlinkat(dirfd, UC_CTL_SOCKET, 0);
		return uc_fail(err, num, "listen on `%s`", UC_CTL_SOCKET);
	}
	return take_fd(&fd);
}

int ufs_ctl_open(struct uc_loop *loop, const struct ufs_ctl_ops *ops, int dirfd,
		 struct ufs_ctl **ret, struct uc_err *err)
{
	struct ufs_ctl *ctl = calloc(1, sizeof(*ctl));
	int fd, r;

	if (!ctl)
		return uc_fail(err, ENOMEM, "make the control socket");
	*ctl = (struct ufs_ctl){ .loop = loop, .ops = ops, .dirfd = dirfd };
	ctl->source = (struct uc_source){ .fd = -1, .events = EPOLLIN, .fn = on_listener };
	fd = listen_at(dirfd, err);
	if (fd < 0) {
		free(ctl);
		return fd;
	}
	ctl->source.fd = fd;
	ctl->named = true;
	r = uc_loop_add(loop, &ctl->source);
	if (r < 0) {
		ctl->loop = NULL;
		ufs_ctl_free(ctl);
		return uc_fail(err, -r, "make the control socket");
	}
	*ret = ctl;
	return 0;
}

void ufs_ctl_close(struct ufs_ctl *ctl)
{
	if (!ctl || !ctl->named)
		return;
	if (unlinkat(ctl->dirfd, UC_CTL_SOCKET, 0) < 0 && errno != ENOENT)
		log_warn("remove `%s`: %m", UC_CTL_SOCKET);
	ctl->named = false;
	if (ctl->loop)
		uc_loop_remove(ctl->loop, &ctl->source);
	uc_closep(&ctl->source.fd);
}

void ufs_ctl_free(struct ufs_ctl *ctl)
{
	if (!ctl)
		return;
	ufs_ctl_close(ctl);
	while (ctl->clients) {
		struct client *c = ctl->clients;

		if (c->stops)
			answer(c, stop_reply("ended"));
		if (flush(c))
			drop(c);
	}
	free(ctl);
}
