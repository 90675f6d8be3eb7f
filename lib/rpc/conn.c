/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/rpc/server_impl.h"

/*
 * Theory of operation
 *
 * A connection moves bytes between its socket and its uc_h2s.  Whatever happens
 * (the socket is ready, time has passed, a job has ended) leads to uc_conn_run(),
 * which lets time pass for the streams, sends what there is to send, and decides:
 * go on, or close.  Only there, and where the owner says so, is a connection freed;
 * the callbacks of uc_h2s never do.
 *
 * Backpressure: while the socket has not taken all output, nothing is read.  So a
 * peer that does not read can make us hold one batch of output, and no more: what
 * nghttp2 would queue as answers to further frames is never asked for.  And it has
 * to take such a batch within stream_ms, or is closed: a byte now and then is not
 * reading.
 *
 * Between bursts a connection holds no buffer of its own.
 */

enum {
	READ_SIZE = 32 * 1024,
	SEND_SIZE = 32 * 1024,
};

/* What a step comes to that is no error: the connection has come to its proper end. */
enum {
	CONN_OVER = 1,
};

static struct uc_conn *from_source(struct uc_source *s)
{
	return uc_container_of(s, struct uc_conn, source);
}

static struct uc_conn *from_timer(struct uc_timer *t)
{
	return uc_container_of(t, struct uc_conn, timer);
}

static uint64_t now_ms(const struct uc_conn *c)
{
	return uc_loop_now_ms(c->server->loop);
}

/* 0, CONN_OVER, or a negative errno after which the connection is to be closed. */
static int receive(struct uc_conn *c)
{
	uint8_t bytes[READ_SIZE];
	ssize_t n = recv(c->source.fd, bytes, sizeof(bytes), 0);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return CONN_OVER;
	return uc_h2s_feed(c->h2, bytes, (size_t)n, now_ms(c));
}

static void restart_clock(struct uc_conn *c)
{
	c->clock_ms = now_ms(c);
	c->taken = 0;
}

static int transmit(struct uc_conn *c)
{
	if (c->out.len == 0)
		restart_clock(c);
	for (;;) {
		ssize_t n;
		int r;

		r = uc_h2s_drain(c->h2, &c->out, SEND_SIZE);
		if (r < 0)
			return r;
		if (c->out.len == 0)
			break;
		n = send(c->source.fd, c->out.data, c->out.len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0)
			return -errno;
		uc_buf_consume(&c->out, (size_t)n);
		c->taken += (size_t)n;
		if (c->taken >= SEND_SIZE)
			restart_clock(c);
	}
	uc_buf_done(&c->out);
	return 0;
}

static uint64_t after(uint64_t ms, uint64_t by)
{
	return ms > UINT64_MAX - by ? UINT64_MAX : ms + by;
}

/* Ends what is overdue; *@ret_next is when to look again. */
static int pass_time(struct uc_conn *c, uint64_t *ret_next)
{
	const struct uc_server_config *config = &c->server->config;
	uint64_t now = now_ms(c), due;
	int r;

	r = uc_h2s_tick(c->h2, now, ret_next);
	if (r < 0)
		return r;
	if (c->out.len > 0) {
		due = after(c->clock_ms, config->stream_ms);
		if (due <= now)
			return -ETIMEDOUT;
		if (due < *ret_next)
			*ret_next = due;
	}
	if (uc_h2s_streams(c->h2) > 0)
		c->idle_since_ms = UINT64_MAX;
	else if (c->idle_since_ms == UINT64_MAX)
		c->idle_since_ms = now;
	if (config->idle_ms && c->idle_since_ms != UINT64_MAX) {
		due = after(c->idle_since_ms, config->idle_ms);
		if (due <= now)
			uc_h2s_shutdown(c->h2, now);
		else if (due < *ret_next)
			*ret_next = due;
	}
	return 0;
}

/* One round; returns as receive() does. */
static int run(struct uc_conn *c, bool readable)
{
	uint32_t events = EPOLLIN;
	uint64_t next;
	int r = 0;

	if (readable && c->out.len == 0)
		r = receive(c);
	if (r == 0)
		r = pass_time(c, &next);
	if (r == 0)
		r = transmit(c);
	/* Again: sending closes streams, and starts and stops clocks. */
	if (r == 0)
		r = pass_time(c, &next);
	if (r != 0)
		return r;
	if (c->out.len == 0 && uc_h2s_is_over(c->h2))
		return CONN_OVER;
	if (c->out.len > 0)
		events = EPOLLOUT;
	if (next == UINT64_MAX)
		uc_loop_clear_timer(c->server->loop, &c->timer);
	else
		uc_loop_set_timer(c->server->loop, &c->timer, next);
	return uc_loop_modify(c->server->loop, &c->source, events);
}

static void run_or_close(struct uc_conn *c, bool readable)
{
	int r = run(c, readable);

	if (r == 0)
		return;
	if (r < 0)
		log_debug("rpc: connection %llu: %s", (unsigned long long)c->id,
			  strerrordesc_np(-r));
	uc_conn_free(c);
}

void uc_conn_run(struct uc_conn *conn)
{
	run_or_close(conn, false);
}

static void ready(struct uc_source *s, uint32_t revents)
{
	/* EPOLLHUP and EPOLLERR come unasked: reading, or sending, finds out what they mean. */
	run_or_close(from_source(s), revents & (EPOLLIN | EPOLLHUP | EPOLLERR));
}

static void time_has_come(struct uc_timer *t)
{
	run_or_close(from_timer(t), false);
}

static const void *route(void *data, const char *path)
{
	struct uc_conn *c = data;
	struct uc_listener *l = c->listener;

	for (size_t i = 0; i < l->n_routes; i++)
		if (strcmp(l->routes[i].path, path) == 0)
			return &l->routes[i];
	return NULL;
}

static void request(void *data, const struct uc_h2s_request *req)
{
	uc_server_call(data, req);
}

static void expired(void *data, int32_t stream, void *token)
{
	char text[UC_JOB_TEXT_SIZE], msg[UC_JOB_TEXT_SIZE + 64];
	struct uc_conn *c = data;
	bool goes_on;

	(void)uc_job_describe(token, now_ms(c), text);
	goes_on = uc_jobs_detach(c->server->jobs, token);
	snprintf(msg, sizeof(msg), "the deadline has passed; %s, and %s", text,
		 goes_on ? "goes on" : "was dropped");
	(void)uc_h2s_fail(c->h2, stream, UC_GRPC_DEADLINE_EXCEEDED, msg, now_ms(c));
}

static void gone(void *data, int32_t stream, void *token)
{
	struct uc_conn *c = data;

	(void)stream;
	(void)uc_jobs_detach(c->server->jobs, token);
}

static void refused(void *data, const void *which, int status)
{
	struct uc_conn *c = data;

	uc_server_count(c->server, which, status, 0);
}

static const struct uc_h2s_ops ops = {
	.route = route,
	.request = request,
	.expired = expired,
	.gone = gone,
	.refused = refused,
};

static int open_session(struct uc_conn *c)
{
	const struct uc_server_config *config = &c->server->config;
	struct uc_h2s_config h2 = {
		.ops = &ops,
		.data = c,
		.budget = &c->server->budget,
		.max_streams = config->max_streams,
		.max_header_bytes = config->max_header_bytes,
		.max_message_bytes = config->max_message_bytes,
		.stream_ms = config->stream_ms,
	};

	return uc_h2s_new(&h2, now_ms(c), &c->h2);
}

int uc_conn_new(struct uc_listener *listener, int fd)
{
	struct uc_server *server = listener->server;
	struct uc_conn *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		uc_closep(&fd);
		return -ENOMEM;
	}
	c->server = server;
	c->listener = listener;
	c->source = (struct uc_source){ .fd = fd, .events = EPOLLIN, .fn = ready };
	c->timer.fn = time_has_come;
	c->idle_since_ms = now_ms(c);
	r = open_session(c);
	if (r == 0)
		r = uc_loop_add(server->loop, &c->source);
	if (r < 0) {
		uc_h2s_free(c->h2);
		uc_closep(&fd);
		free(c);
		return r;
	}
	c->id = ++server->last_conn_id;
	c->next = server->conns;
	c->link = &server->conns;
	if (c->next)
		c->next->link = &c->next;
	server->conns = c;
	listener->n_conns++;
	uc_conn_run(c);
	return 0;
}

void uc_conn_free(struct uc_conn *conn)
{
	struct uc_server *server = conn->server;
	struct uc_listener *listener = conn->listener;

	*conn->link = conn->next;
	if (conn->next)
		conn->next->link = conn->link;
	listener->n_conns--;
	uc_loop_clear_timer(server->loop, &conn->timer);
	uc_loop_remove(server->loop, &conn->source);
	uc_closep(&conn->source.fd);
	uc_h2s_free(conn->h2);
	uc_buf_done(&conn->out);
	free(conn);
	uc_server_conn_closed(server, listener);
}

void uc_conn_evict(struct uc_conn *conn)
{
	uc_h2s_shutdown(conn->h2, now_ms(conn));
	(void)transmit(conn);
	log_debug("rpc: connection %llu was idle and makes room", (unsigned long long)conn->id);
	uc_conn_free(conn);
}
