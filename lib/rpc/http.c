/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/os/unixsock.h"
#include "lib/rpc/http.h"
#include "lib/rpc/http_head.h"

/*
 * Theory of operation
 *
 * A connection reads the head of one request, writes one response, and closes:
 * first its sending side, and all of it when the client has closed too, since
 * closing with unread input makes the kernel reset the connection, and may take
 * the response with it.  All this within five seconds.
 *
 * With as many connections as may be, a new one takes the place of one that
 * lingers, else of the one that has been reading its request for longest: whoever
 * connects and says nothing cannot keep a probe out.  Where all are being written
 * to, new ones wait in the listener's queue, and the time limit sees to it that
 * their turn comes.
 */

enum {
	MAX_CONNS = 16,
	TIME_LIMIT_MS = 5000,
	RETRY_MS = 200,
	BACKLOG = 16,
};

/*
 * READ   the request's head is not complete
 * WRITE  the response is being sent
 * LINGER it is sent; waiting for the client to close
 */
enum http_state {
	HTTP_READ,
	HTTP_WRITE,
	HTTP_LINGER,
};

struct http_conn {
	struct uc_http *http;
	struct http_conn *next, **link;
	struct uc_source source;
	struct uc_timer timer;
	enum http_state state;
	struct uc_buf in, out;
};

struct uc_http {
	struct uc_loop *loop;
	const struct uc_http_route *routes;
	size_t n_routes;
	void *data;
	struct uc_unix_listener unix_sock;
	int tcp_fd;
	struct uc_source source;
	struct uc_timer retry;
	struct http_conn *conns;
	unsigned n_conns;
};

static struct http_conn *from_source(struct uc_source *s)
{
	return uc_container_of(s, struct http_conn, source);
}

static struct http_conn *from_timer(struct uc_timer *t)
{
	return uc_container_of(t, struct http_conn, timer);
}

static void resume(struct uc_http *http)
{
	uc_loop_clear_timer(http->loop, &http->retry);
	(void)uc_loop_modify(http->loop, &http->source, EPOLLIN);
}

static void conn_free(struct http_conn *c)
{
	struct uc_http *http = c->http;

	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	http->n_conns--;
	uc_loop_clear_timer(http->loop, &c->timer);
	uc_loop_remove(http->loop, &c->source);
	uc_closep(&c->source.fd);
	uc_buf_done(&c->in);
	uc_buf_done(&c->out);
	free(c);
	resume(http);
}

static const char *reason(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 400:
		return "Bad Request";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 431:
		return "Request Header Fields Too Large";
	case 500:
		return "Internal Server Error";
	case 503:
		return "Service Unavailable";
	case 505:
		return "HTTP Version Not Supported";
	default:
		return "Status";
	}
}

static const struct uc_http_route *find_route(const struct uc_http *http,
					      const struct uc_http_head *head)
{
	for (size_t i = 0; i < http->n_routes; i++) {
		const char *path = http->routes[i].path;

		if (strlen(path) == head->n_path && memcmp(path, head->path, head->n_path) == 0)
			return &http->routes[i];
	}
	return NULL;
}

static void respond(struct http_conn *c, int status, const struct uc_http_head *head)
{
	const struct uc_http_route *route = status == 200 ? find_route(c->http, head) : NULL;
	const char *type = "text/plain; charset=utf-8";
	cleanup_buf struct uc_buf body = UC_BUF_INIT;

	if (route)
		status = route->fn(c->http->data, &body, &type);
	else if (status == 200)
		status = 404;
	if (uc_buf_error(&body) < 0) {
		uc_buf_done(&body);
		status = 500;
	}
	if (body.len == 0 && status != 200)
		uc_buf_printf(&body, "%s\n", reason(status));
	uc_buf_printf(&c->out,
		      "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s"
		      "Connection: close\r\n\r\n",
		      status, reason(status), type, body.len,
		      status == 405 ? "Allow: GET, HEAD\r\n" : "");
	if (!head->is_head)
		uc_buf_append(&c->out, body.data, body.len);
	c->state = HTTP_WRITE;
	uc_buf_done(&c->in);
}

/* What follows are steps: 0, or a negative errno after which the connection is to be closed. */
static int receive(struct http_conn *c)
{
	struct uc_http_head head = { 0 };
	char bytes[1024];
	ssize_t n = recv(c->source.fd, bytes, sizeof(bytes), 0);
	int status;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -ECONNRESET;
	if (c->state == HTTP_LINGER)
		return 0;
	uc_buf_append(&c->in, bytes, (size_t)n);
	if (uc_buf_error(&c->in) < 0)
		return -ENOMEM;
	status = uc_http_parse_head(c->in.data, c->in.len, &head);
	if (status)
		respond(c, status, &head);
	return 0;
}

static int transmit(struct http_conn *c)
{
	if (uc_buf_error(&c->out) < 0)
		return -ENOMEM;
	while (c->out.len > 0) {
		ssize_t n = send(c->source.fd, c->out.data, c->out.len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? uc_loop_modify(c->http->loop, &c->source, EPOLLOUT)
					       : -errno;
		uc_buf_consume(&c->out, (size_t)n);
	}
	uc_buf_done(&c->out);
	c->state = HTTP_LINGER;
	if (shutdown(c->source.fd, SHUT_WR) < 0)
		return -errno;
	return uc_loop_modify(c->http->loop, &c->source, EPOLLIN);
}

static void ready(struct uc_source *s, uint32_t revents)
{
	struct http_conn *c = from_source(s);
	int r = 0;

	(void)revents;
	if (c->state != HTTP_WRITE)
		r = receive(c);
	if (r == 0 && c->state == HTTP_WRITE)
		r = transmit(c);
	if (r < 0)
		conn_free(c);
}

static void time_is_over(struct uc_timer *t)
{
	conn_free(from_timer(t));
}

static int conn_new(struct uc_http *http, int fd)
{
	struct http_conn *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		uc_closep(&fd);
		return -ENOMEM;
	}
	c->http = http;
	c->source = (struct uc_source){ .fd = fd, .events = EPOLLIN, .fn = ready };
	c->timer.fn = time_is_over;
	r = uc_loop_add(http->loop, &c->source);
	if (r < 0) {
		uc_closep(&fd);
		free(c);
		return r;
	}
	uc_loop_set_timer(http->loop, &c->timer, uc_loop_now_ms(http->loop) + TIME_LIMIT_MS);
	c->next = http->conns;
	c->link = &http->conns;
	if (c->next)
		c->next->link = &c->next;
	http->conns = c;
	http->n_conns++;
	return 0;
}

static struct http_conn *find_oldest(struct uc_http *http, enum http_state state)
{
	struct http_conn *found = NULL;

	for (struct http_conn *c = http->conns; c; c = c->next)
		if (c->state == state)
			found = c; /* the newest come first */
	return found;
}

static bool make_room(struct uc_http *http)
{
	struct http_conn *c = find_oldest(http, HTTP_LINGER);

	if (!c)
		c = find_oldest(http, HTTP_READ);
	if (c)
		conn_free(c);
	return c != NULL;
}

/*
 * One at a time: the loop comes back for the next, and serves meanwhile those whose request has
 * come, before they are taken for the oldest that say nothing.
 */
static void accept_ready(struct uc_source *s, uint32_t revents)
{
	struct uc_http *http = uc_container_of(s, struct uc_http, source);
	int fd, r;

	(void)revents;
	if (http->n_conns >= MAX_CONNS && !make_room(http)) {
		/* Watched again when a connection has closed. */
		(void)uc_loop_modify(http->loop, s, 0);
		return;
	}
	fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	r = fd < 0 ? -errno : conn_new(http, fd);
	if (r == 0 || r == -EAGAIN || r == -EINTR || r == -ECONNABORTED)
		return;
	log_debug("http: accept: %s", strerrordesc_np(-r));
	(void)uc_loop_modify(http->loop, s, 0);
	uc_loop_set_timer(http->loop, &http->retry, uc_loop_now_ms(http->loop) + RETRY_MS);
}

static void retry(struct uc_timer *t)
{
	resume(uc_container_of(t, struct uc_http, retry));
}

/* Cuts "host:port", ":port" or "[host]:port" in two, in place. */
static int split_address(char *address, char **ret_host, char **ret_port)
{
	char *colon = strrchr(address, ':'), *host = address;
	uint64_t port;

	/* getaddrinfo() takes 99999 for a port, and makes another one of it. */
	if (!colon || uc_str_parse_u64(colon + 1, UINT16_MAX, &port) < 0)
		return -EINVAL;
	*colon = '\0';
	if (*host == '[') {
		size_t n = strlen(host);

		if (n < 3 || host[n - 1] != ']')
			return -EINVAL;
		host[n - 1] = '\0';
		host++;
	} else if (strchr(host, ':')) {
		return -EINVAL;
	}
	*ret_host = *host ? host : NULL;
	*ret_port = colon + 1;
	return 0;
}

static int open_tcp_socket(const struct addrinfo *ai)
{
	cleanup_fd int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1, off = 0;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
		return -errno;
	/* "::" is to mean IPv4 too, whatever the system's default. */
	if (ai->ai_family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	return take_fd(&fd);
}

static int listen_tcp(const char *address, struct uc_err *err)
{
	int families[] = { AF_INET, AF_INET6 };
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
	cleanup_free char *copy = strdup(address);
	struct addrinfo *found = NULL;
	int r = -EAFNOSUPPORT, gai = 0;
	char *host, *port;

	if (!copy)
		return uc_fail(err, ENOMEM, "listen on `%s`", address);
	if (split_address(copy, &host, &port) < 0)
		return uc_fail_as(err, EINVAL, 0,
				  "`%s` is not an address such as :8080 or [::1]:8080",
				  UC_PRINTABLE(address));
	/* Without a host both are meant, and a socket of IPv6 can serve both. */
	if (!host) {
		families[0] = AF_INET6;
		families[1] = AF_INET;
	}
	for (size_t i = 0; r < 0 && i < ARRAY_SIZE(families); i++) {
		hints.ai_family = families[i];
		gai = getaddrinfo(host, port, &hints, &found);
		if (gai != 0)
			continue;
		r = open_tcp_socket(found);
		freeaddrinfo(found);
		/* Not half of it, then. */
		if (r == -EADDRINUSE)
			break;
	}
	if (r < 0 && gai != 0 && r == -EAFNOSUPPORT)
		return uc_fail_as(err, EINVAL, 0, "listen on `%s`: %s", UC_PRINTABLE(address),
				  gai_strerror(gai));
	return r < 0 ? uc_fail(err, -r, "listen on `%s`", address) : r;
}

/* Opens the socket; 0 or a negative errno. */
static int open_socket(struct uc_http *http, const char *address, struct uc_err *err)
{
	int r;

	if (uc_str_has_prefix(address, "unix://")) {
		r = uc_unix_listen(address + strlen("unix://"), &http->unix_sock, err);
		if (r < 0)
			return r;
		http->source.fd = http->unix_sock.fd;
	} else {
		r = listen_tcp(address, err);
		if (r < 0)
			return r;
		http->tcp_fd = http->source.fd = r;
	}
	r = uc_loop_add(http->loop, &http->source);
	return r < 0 ? uc_fail(err, -r, "watch `%s`", address) : 0;
}

int uc_http_listen(struct uc_loop *loop, const char *address, const struct uc_http_route *routes,
		   size_t n_routes, void *data, struct uc_http **ret_http, struct uc_err *err)
{
	cleanup_with(uc_http_freep) struct uc_http *http = calloc(1, sizeof(*http));
	int r;

	if (!http)
		return uc_fail(err, ENOMEM, "listen on `%s`", address);
	*http = (struct uc_http){
		.loop = loop,
		.routes = routes,
		.n_routes = n_routes,
		.data = data,
		.unix_sock = UC_UNIX_LISTENER_INIT,
		.tcp_fd = -1,
		.source = { .fd = -1, .events = EPOLLIN, .fn = accept_ready },
		.retry = { .fn = retry },
	};
	r = open_socket(http, address, err);
	if (r < 0)
		return r;
	*ret_http = take_ptr(&http);
	return 0;
}

void uc_http_free(struct uc_http *http)
{
	if (!http)
		return;
	while (http->conns)
		conn_free(http->conns);
	uc_loop_clear_timer(http->loop, &http->retry);
	if (http->source.fd >= 0)
		uc_loop_remove(http->loop, &http->source);
	uc_unix_unlisten(&http->unix_sock);
	uc_closep(&http->tcp_fd);
	free(http);
}
