/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/rpc/server_impl.h"

/*
 * Theory of operation
 *
 * epoll reports a listener for as long as a client waits in its queue.  So where
 * accept() fails for want of descriptors or memory, the listener is not watched
 * until a connection has closed, or a moment has passed; otherwise the loop would
 * spin.  The clients wait in the queue meanwhile.
 *
 * With as many connections as may be, the one that has been idle for the longest
 * time makes room: a client that leaks connections does not lock others out.
 * Where all are in use, the new one is closed.
 */

enum {
	ACCEPT_BATCH = 16,
	RETRY_MS = 200,
	EVICT_AFTER_MS = 1000, /* a connection that was just made is given time to be used */
};

static struct uc_listener *from_source(struct uc_source *s)
{
	return uc_container_of(s, struct uc_listener, source);
}

static struct uc_listener *from_retry(struct uc_timer *t)
{
	return uc_container_of(t, struct uc_listener, retry);
}

static bool make_room(struct uc_listener *l)
{
	uint64_t now = uc_loop_now_ms(l->server->loop);
	struct uc_conn *oldest = NULL;

	if (l->n_conns < l->server->config.max_connections)
		return true;
	/* The newest is the first on the list: of several that are equal, the last is meant. */
	for (struct uc_conn *c = l->server->conns; c; c = c->next)
		if (c->listener == l && (!oldest || c->idle_since_ms <= oldest->idle_since_ms))
			oldest = c;
	if (!oldest || oldest->idle_since_ms > now || now - oldest->idle_since_ms < EVICT_AFTER_MS)
		return false;
	uc_conn_evict(oldest);
	return true;
}

static void accept_one(struct uc_listener *l, int fd)
{
	int r;

	if (!uc_unix_is_trusted(fd)) {
		log_debug("rpc: a peer of another user was sent away");
		uc_closep(&fd);
		return;
	}
	if (!make_room(l)) {
		log_debug("rpc: %u connections are in use; another one was closed", l->n_conns);
		uc_closep(&fd);
		return;
	}
	r = uc_conn_new(l, fd);
	if (r < 0)
		log_debug("rpc: accept a connection: %s", strerrordesc_np(-r));
}

static void pause_accepting(struct uc_listener *l)
{
	log_debug("rpc: accept: %s", strerrordesc_np(errno));
	(void)uc_loop_modify(l->server->loop, &l->source, 0);
	uc_loop_set_timer(l->server->loop, &l->retry, uc_loop_now_ms(l->server->loop) + RETRY_MS);
}

static void ready(struct uc_source *s, uint32_t revents)
{
	struct uc_listener *l = from_source(s);

	(void)revents;
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		int fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			accept_one(l, fd);
			continue;
		}
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			pause_accepting(l);
		break;
	}
}

void uc_listener_resume(struct uc_listener *listener)
{
	uc_loop_clear_timer(listener->server->loop, &listener->retry);
	if (listener->source.fd >= 0)
		(void)uc_loop_modify(listener->server->loop, &listener->source, EPOLLIN);
}

static void retry(struct uc_timer *t)
{
	uc_listener_resume(from_retry(t));
}

int uc_listener_open(struct uc_listener *listener, const char *path, struct uc_err *err)
{
	int r;

	listener->retry.fn = retry;
	r = uc_unix_listen(path, &listener->sock, err);
	if (r < 0)
		return r;
	listener->source = (struct uc_source){
		.fd = listener->sock.fd,
		.events = EPOLLIN,
		.fn = ready,
	};
	r = uc_loop_add(listener->server->loop, &listener->source);
	if (r < 0) {
		listener->source.fd = -1;
		uc_unix_unlisten(&listener->sock);
		return uc_fail(err, -r, "watch `%s`", path);
	}
	return 0;
}

void uc_listener_close(struct uc_listener *listener)
{
	if (listener->source.fd < 0)
		return;
	uc_loop_clear_timer(listener->server->loop, &listener->retry);
	uc_loop_remove(listener->server->loop, &listener->source);
	listener->source.fd = -1;
	uc_unix_unlisten(&listener->sock);
}
