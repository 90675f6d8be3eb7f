/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The parts of a server, for its own files: server.c, listener.c, conn.c. */

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/os/unixsock.h"
#include "lib/rpc/budget.h"
#include "lib/rpc/h2_server.h"
#include "lib/rpc/job.h"
#include "lib/rpc/loop.h"
#include "lib/rpc/server.h"

/** struct uc_route - a method that can be called */
struct uc_route {
	char *path; /* owned: "/package.Service/Method" */
	const struct uc_rpc_service *service;
	const struct uc_rpc_method *method;
	const ProtobufCMethodDescriptor *desc;
};

/** struct uc_listener - a socket, and what is served there */
struct uc_listener {
	struct uc_server *server;
	struct uc_listener *next;
	struct uc_unix_listener sock;
	struct uc_source source; /* fd -1: closed */
	struct uc_timer retry;   /* after accept() ran out of something */
	struct uc_route *routes; /* owned */
	size_t n_routes;
	unsigned n_conns;
};

/** struct uc_conn - a connection */
struct uc_conn {
	struct uc_server *server;
	struct uc_listener *listener;
	struct uc_conn *next, **link;
	uint64_t id; /* never used twice */
	struct uc_source source;
	struct uc_timer timer;
	struct uc_h2s *h2;
	struct uc_buf out;      /* what the socket did not take */
	uint64_t clock_ms;      /* when output began to wait, or the last whole batch was taken */
	size_t taken;           /* since then */
	uint64_t idle_since_ms; /* UINT64_MAX: it has streams */
};

struct uc_server {
	struct uc_loop *loop;
	struct uc_server_config config; /* nothing in it is 0 that means a default */
	struct uc_budget budget;
	struct uc_jobs *jobs;
	struct uc_listener *listeners;
	struct uc_conn *conns;
	uint64_t last_conn_id;

	bool draining;
	struct uc_timer drain; /* uc_server_shutdown() comes to its end */
	void (*drained)(void *data);
	void *drained_data;
};

/** uc_listener_open() - Listen, and serve @listener->routes; 0 or a negative errno */
int uc_listener_open(struct uc_listener *listener, const char *path, struct uc_err *err);

/** uc_listener_close() - Listen no longer; the routes stay, for the connections */
void uc_listener_close(struct uc_listener *listener);

/** uc_listener_resume() - There may be a descriptor again for accept() */
void uc_listener_resume(struct uc_listener *listener);

/** uc_conn_new() - Serve a connection; takes @fd in every case; 0 or a negative errno */
int uc_conn_new(struct uc_listener *listener, int fd);

/** uc_conn_free() - Close a connection; its jobs go on */
void uc_conn_free(struct uc_conn *conn);

/** uc_conn_run() - Send what there is to send.  It may free the connection, and no other */
void uc_conn_run(struct uc_conn *conn);

/** uc_conn_evict() - Close an idle connection, with a word to its client */
void uc_conn_evict(struct uc_conn *conn);

/** uc_server_call() - A call has come in: make it a job, or answer it */
void uc_server_call(struct uc_conn *conn, const struct uc_h2s_request *req);

/** uc_server_conn_closed() - A connection is about to be freed, and off the list */
void uc_server_conn_closed(struct uc_server *server, struct uc_listener *listener);

/** uc_server_count() - Tell on_done(); @route may be NULL */
void uc_server_count(const struct uc_server *server, const struct uc_route *route, int status,
		     uint64_t usec);
