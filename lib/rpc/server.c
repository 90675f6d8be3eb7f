/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/macros.h"
#include "lib/base/size.h"
#include "lib/base/str.h"
#include "lib/rpc/grpc_head.h"
#include "lib/rpc/pbcheck.h"
#include "lib/rpc/pbdigest.h"
#include "lib/rpc/server_impl.h"

/*
 * Theory of operation
 *
 * listener.c accepts, conn.c moves bytes, h2_server.c speaks the protocol,
 * jobs.c runs handlers.  This file joins them: a request becomes a job, and the
 * end of a job an answer.
 *
 * A job and its stream know each other.  The stream's token is the job; the job
 * has the number of the connection (never used twice) and of the stream.  The
 * link is cut on both sides at once: by the answer, or when the stream is gone or
 * its deadline has passed.  A job whose waiter is nobody goes on, and can be joined.
 *
 * Memory: what requests hold, from their first byte until their job is done, and
 * what responses hold until they are sent, is taken from one budget.
 *
 * malloc() adapts: after a first large message it takes such blocks from its heaps
 * instead of the kernel, one heap per thread, and keeps them for the next one.
 * Most of our messages are small, and a process of two megabytes that stays at
 * forty because of one is not what we want: so its thresholds are fixed.
 */

enum {
	MALLOC_LARGE = 128 * 1024, /* its own initial value */
	MALLOC_HEAPS = 2,
	UNPACK_MAX = 32 * 1024 * 1024, /* what one request may grow to when it is unpacked */
};

static struct uc_server *from_drain(struct uc_timer *t)
{
	return uc_container_of(t, struct uc_server, drain);
}

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

void uc_server_count(const struct uc_server *server, const struct uc_route *route, int status,
		     uint64_t usec)
{
	if (server->config.on_done)
		server->config.on_done(server->config.on_done_data,
				       route ? route->service->desc->name : "",
				       route ? route->method->name : "", status, usec);
}

/* The connection that waits for a job, or NULL if it has gone. */
static struct uc_conn *find_conn(const struct uc_server *server, uint64_t id)
{
	struct uc_conn *c;

	for (c = id ? server->conns : NULL; c; c = c->next)
		if (c->id == id)
			break;
	return c;
}

/* Lets the shutdown come to its end, if there is one and nothing is left to wait for. */
static void drain_if_idle(struct uc_server *server)
{
	if (server->draining && !server->conns && uc_jobs_busy(server->jobs) == 0)
		uc_loop_set_timer(server->loop, &server->drain, uc_loop_now_ms(server->loop));
}

static void job_done(void *data, struct uc_call *call)
{
	struct uc_server *server = data;
	struct uc_conn *c = find_conn(server, call->waiter.conn);
	struct uc_route route = { .service = call->service, .method = call->method };

	/* Responses that are not read: their clients, and others, are not given more. */
	if (c && call->status == UC_GRPC_OK && server->budget.used > server->budget.max)
		(void)uc_call_fail(call, UC_GRPC_UNAVAILABLE,
				   "responses in flight take all the memory that they may");
	uc_server_count(server, &route, call->status, now_us() - call->begun_us);
	drain_if_idle(server);
	if (!c)
		return;
	/* That the stream is gone is no error; what is one, uc_conn_run() sees as well. */
	if (call->status == UC_GRPC_OK)
		(void)uc_h2s_respond(c->h2, call->waiter.stream, take_ptr(&call->frame),
				     call->n_frame, uc_loop_now_ms(server->loop));
	else
		(void)uc_h2s_fail(c->h2, call->waiter.stream, call->status, call->message,
				  uc_loop_now_ms(server->loop));
	uc_conn_run(c);
}

static void job_lost(void *data, struct uc_call *call)
{
	struct uc_server *server = data;
	struct uc_conn *c = find_conn(server, call->waiter.conn);
	char text[UC_JOB_TEXT_SIZE], msg[UC_JOB_TEXT_SIZE + 64];
	uint64_t now = uc_loop_now_ms(server->loop);

	if (!c)
		return;
	snprintf(msg, sizeof(msg), "given up, for want of progress: %s",
		 uc_job_describe(call, now, text));
	(void)uc_h2s_fail(c->h2, call->waiter.stream, UC_GRPC_ABORTED, msg, now);
	uc_conn_run(c);
}

static const struct uc_jobs_ops jobs_ops = {
	.done = job_done,
	.lost = job_lost,
};

/* Unpacks the request into the job's arena. */
static int unpack(struct uc_server *server, struct uc_call *call, const struct uc_h2s_request *req,
		  ProtobufCMessage **ret_msg, struct uc_err *err)
{
	ProtobufCAllocator allocator = UC_ARENA_ALLOCATOR(&call->arena);
	size_t left = server->budget.max > server->budget.used
			      ? server->budget.max - server->budget.used
			      : 1;
	int r;

	r = uc_pbcheck(call->desc->input, req->msg, req->n, UC_PBCHECK_ELEMENTS, err);
	if (r < 0)
		return r;
	call->arena.max = left < UNPACK_MAX ? left : UNPACK_MAX;
	*ret_msg = protobuf_c_message_unpack(call->desc->input, &allocator, req->n, req->msg);
	call->arena.max = 0;
	if (!*ret_msg && call->arena.failed)
		return uc_fail_as(err, ENOBUFS, UC_GRPC_UNAVAILABLE,
				  "requests in flight take all the memory that they may");
	if (!*ret_msg)
		return uc_fail_as(err, EBADMSG, UC_GRPC_INTERNAL, "the message is not a `%s`",
				  call->desc->input->name);
	return 0;
}

/* What others find the job by: its key, and a digest of what is asked for. */
static int identify(struct uc_call *call, ProtobufCMessage *msg, struct uc_err *err)
{
	const char *key = call->method->key ? call->method->key(msg) : NULL;

	if (!key)
		return 0;
	/* The method may have returned a buffer of its own that the next request changes. */
	call->key = uc_arena_strdup(&call->arena, key);
	if (!call->key || uc_pbdigest(msg, call->digest) < 0)
		return uc_fail_as(err, ENOMEM, UC_GRPC_UNAVAILABLE, "out of memory");
	return 0;
}

/* Makes a job of a request. */
static int make_job(struct uc_server *server, const struct uc_h2s_request *req,
		    struct uc_call **ret_call, struct uc_err *err)
{
	cleanup_with(uc_job_freep) struct uc_call *call = calloc(1, sizeof(*call));
	const struct uc_route *route = req->route;
	ProtobufCMessage *msg = NULL;
	int r;

	if (!call)
		return uc_fail_as(err, ENOMEM, UC_GRPC_UNAVAILABLE, "out of memory");
	call->service = route->service;
	call->method = route->method;
	call->desc = route->desc;
	call->budget = &server->budget;
	call->begun_us = now_us();
	r = unpack(server, call, req, &msg, err);
	if (r == 0)
		r = identify(call, msg, err);
	if (r < 0)
		return r;
	call->req = msg;
	call->charged = call->arena.total;
	uc_budget_force(&server->budget, call->charged);
	*ret_call = take_ptr(&call);
	return 0;
}

void uc_server_call(struct uc_conn *conn, const struct uc_h2s_request *req)
{
	cleanup_with(uc_job_freep) struct uc_call *call = NULL;
	struct uc_server *server = conn->server;
	uint64_t now = uc_loop_now_ms(server->loop);
	struct uc_call *job = NULL;
	struct uc_err err = { 0 };
	int r;

	r = make_job(server, req, &call, &err);
	free(req->msg);
	uc_budget_give(&server->budget, req->n);
	if (r == 0) {
		call->waiter = (struct uc_waiter){ .conn = conn->id, .stream = req->stream };
		r = uc_jobs_submit(server->jobs, call, now, &job, &err);
	}
	if (r < 0) {
		(void)uc_h2s_fail(conn->h2, req->stream, err.status, err.msg, now);
		uc_server_count(server, req->route, err.status, 0);
		return;
	}
	call = NULL;
	uc_h2s_set_token(conn->h2, req->stream, job);
}

static void set_defaults(struct uc_server_config *c)
{
	c->workers = c->workers ? c->workers : 8;
	c->max_workers = c->max_workers ? c->max_workers : 64;
	if (c->max_workers < c->workers)
		c->max_workers = c->workers;
	c->max_queue = c->max_queue ? c->max_queue : 1024;
	c->max_connections = c->max_connections ? c->max_connections : 64;
	c->max_streams = c->max_streams ? c->max_streams : 128;
	c->max_header_bytes = c->max_header_bytes ? c->max_header_bytes : 16 * UC_KIB;
	c->max_message_bytes = c->max_message_bytes ? c->max_message_bytes : 4 * UC_MIB;
	c->max_memory_bytes = c->max_memory_bytes ? c->max_memory_bytes : 64 * UC_MIB;
	c->stream_ms = c->stream_ms ? c->stream_ms : 30000;
	c->hang_ms = c->hang_ms ? c->hang_ms : 300000;
}

static void fix_malloc(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, MALLOC_LARGE);
	(void)mallopt(M_TRIM_THRESHOLD, MALLOC_LARGE);
	(void)mallopt(M_ARENA_MAX, MALLOC_HEAPS);
}

static void drain_ended(struct uc_timer *t)
{
	struct uc_server *server = from_drain(t);

	/* The last that is done with the server here: it may be freed by this. */
	server->drained(server->drained_data);
}

int uc_server_new(struct uc_loop *loop, const struct uc_server_config *config,
		  struct uc_server **ret_server)
{
	cleanup_with(uc_server_freep) struct uc_server *server = calloc(1, sizeof(*server));
	struct uc_jobs_config jobs;
	int r;

	if (!server)
		return -ENOMEM;
	fix_malloc();
	server->loop = loop;
	server->config = *config;
	set_defaults(&server->config);
	server->budget.max = server->config.max_memory_bytes;
	server->drain.fn = drain_ended;
	jobs = (struct uc_jobs_config){
		.workers = server->config.workers,
		.max_workers = server->config.max_workers,
		.max_queue = server->config.max_queue,
		.hang_ms = server->config.hang_ms,
		.ops = &jobs_ops,
		.data = server,
	};
	r = uc_jobs_new(loop, &jobs, &server->jobs);
	if (r < 0)
		return r;
	*ret_server = take_ptr(&server);
	return 0;
}

static void listener_free(struct uc_listener *l)
{
	uc_listener_close(l);
	for (size_t i = 0; i < l->n_routes; i++)
		free(l->routes[i].path);
	free(l->routes);
	free(l);
}

UC_DEFINE_CLEANUP(struct uc_listener *, listener_free)

void uc_server_free(struct uc_server *server)
{
	struct uc_listener *l;

	if (!server)
		return;
	while (server->conns)
		uc_conn_free(server->conns);
	while ((l = server->listeners)) {
		server->listeners = l->next;
		listener_free(l);
	}
	uc_jobs_free(server->jobs);
	uc_loop_clear_timer(server->loop, &server->drain);
	free(server);
}

static int add_route(struct uc_listener *l, const struct uc_rpc_service *service,
		     const struct uc_rpc_method *method, struct uc_err *err)
{
	struct uc_route *route = &l->routes[l->n_routes];

	route->service = service;
	route->method = method;
	route->desc = protobuf_c_service_descriptor_get_method_by_name(service->desc, method->name);
	if (!route->desc)
		return uc_fail_as(err, EINVAL, 0, "service `%s` has no method `%s`",
				  service->desc->name, method->name);
	if (asprintf(&route->path, "/%s/%s", service->desc->name, method->name) < 0) {
		route->path = NULL;
		return uc_fail(err, ENOMEM, "add method `%s`", method->name);
	}
	l->n_routes++;
	/* A longer one would never be found. */
	if (strlen(route->path) >= UC_GRPC_PATH_SIZE)
		return uc_fail(err, ENAMETOOLONG, "add method `%s`", method->name);
	return 0;
}

static int add_routes(struct uc_listener *l, const struct uc_rpc_service *services,
		      size_t n_services, struct uc_err *err)
{
	size_t n = 0;
	int r;

	for (size_t i = 0; i < n_services; i++)
		n += services[i].n_methods;
	l->routes = calloc(n ? n : 1, sizeof(*l->routes));
	if (!l->routes)
		return uc_fail(err, ENOMEM, "add %zu methods", n);
	for (size_t i = 0; i < n_services; i++) {
		for (size_t j = 0; j < services[i].n_methods; j++) {
			r = add_route(l, &services[i], &services[i].methods[j], err);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

int uc_server_listen_unix(struct uc_server *server, const char *path,
			  const struct uc_rpc_service *services, size_t n_services,
			  struct uc_err *err)
{
	cleanup_with(listener_freep) struct uc_listener *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return uc_fail(err, ENOMEM, "listen on `%s`", path);
	l->server = server;
	l->sock = (struct uc_unix_listener)UC_UNIX_LISTENER_INIT;
	l->source.fd = -1;
	r = add_routes(l, services, n_services, err);
	if (r == 0)
		r = uc_listener_open(l, path, err);
	if (r < 0)
		return r;
	l->next = server->listeners;
	server->listeners = take_ptr(&l);
	return 0;
}

void uc_server_conn_closed(struct uc_server *server, struct uc_listener *listener)
{
	uc_listener_resume(listener);
	drain_if_idle(server);
}

void uc_server_shutdown(struct uc_server *server, uint64_t grace_ms, void (*done)(void *data),
			void *data)
{
	uint64_t now = uc_loop_now_ms(server->loop);
	struct uc_conn *c, *next;

	if (server->draining)
		return;
	server->draining = true;
	server->drained = done;
	server->drained_data = data;
	for (struct uc_listener *l = server->listeners; l; l = l->next)
		uc_listener_close(l);
	uc_loop_set_timer(server->loop, &server->drain,
			  now > UINT64_MAX - grace_ms ? UINT64_MAX : now + grace_ms);
	for (c = server->conns; c; c = next) {
		next = c->next;
		uc_h2s_shutdown(c->h2, now);
		uc_conn_run(c);
	}
	drain_if_idle(server);
}

struct each {
	struct uc_server *server;
	void (*fn)(void *data, const char *what);
	void *data;
};

static void describe(void *data, struct uc_call *call)
{
	char text[UC_JOB_TEXT_SIZE], what[2 * UC_JOB_TEXT_SIZE];
	struct each *each = data;

	(void)uc_job_describe(call, uc_loop_now_ms(each->server->loop), text);
	snprintf(what, sizeof(what), "`%s`: %s", call->key ? UC_PRINTABLE(call->key) : "-", text);
	each->fn(each->data, what);
}

void uc_server_each_job(struct uc_server *server, void (*fn)(void *data, const char *what),
			void *data)
{
	struct each each = { .server = server, .fn = fn, .data = data };

	uc_jobs_each(server->jobs, describe, &each);
}

unsigned uc_server_busy(const struct uc_server *server)
{
	return uc_jobs_busy(server->jobs);
}

unsigned uc_server_hung(const struct uc_server *server)
{
	return uc_jobs_lost(server->jobs);
}
