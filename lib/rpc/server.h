/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A gRPC server for unary calls.
 *
 * The loop's thread owns every connection and the table of running jobs.  A
 * request is unpacked there, checked, and becomes a job; a bounded pool of
 * worker threads runs the handlers; the answer returns to the loop's thread.
 *
 * A job outlives the call that started it: when the client cancels, or its
 * deadline passes, the job goes on.  At most one job per key runs:
 *   - the same method with the same message (a map's order does not count), while
 *     nobody waits for the running job any more, joins it and gets its answer;
 *   - everything else on a busy key is ABORTED, and the text says what runs and
 *     since when.
 * A job that makes no progress (uc_call_step()) for the server's hang time
 * loses its key: its next uc_call_step() fails, and others may work on the
 * object in the meantime.  Who waits for it is told so (ABORTED), and its worker
 * is replaced.
 *
 * A job that still waits for a worker, has no key, and has lost its client is dropped.
 */

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/cleanup.h"
#include "lib/base/err.h"
#include "lib/rpc/loop.h"
#include "lib/rpc/status.h"

struct uc_server;
struct uc_call;

/**
 * uc_rpc_fn - a handler, on a worker thread (256 KiB of stack, all signals blocked)
 * @call:	The request's context (borrowed until it returns)
 * @req:	The unpacked request (borrowed; immutable)
 * @resp:	The initialised response, to be filled; what it points to must live as
 *		long as the call: uc_call_alloc(), constants
 *
 * Return: 0, or any negative number after uc_call_fail()
 */
typedef int (*uc_rpc_fn)(struct uc_call *call, const void *req, void *resp);

/** struct uc_rpc_method - one row of a service's table */
struct uc_rpc_method {
	const char *name; /* as in the .proto file */
	uc_rpc_fn fn;
	/* Names the object that the job owns; NULL, or NULL returned: none. */
	const char *(*key)(const void *req);
};

/** struct uc_rpc_service - a service; methods that are not in its table are UNIMPLEMENTED */
struct uc_rpc_service {
	const ProtobufCServiceDescriptor *desc;
	const struct uc_rpc_method *methods;
	size_t n_methods;
	void *data; /* uc_call_data() */
};

/** struct uc_server_config - limits; 0 means the default */
struct uc_server_config {
	unsigned workers;          /* threads for handlers: 8 */
	unsigned max_workers;      /* with replacements for hung ones: 64 */
	unsigned max_queue;        /* jobs that wait for a worker: 1024; above: UNAVAILABLE */
	unsigned max_connections;  /* per listener: 64 */
	unsigned max_streams;      /* per connection: 128 */
	unsigned max_header_bytes; /* per request: 16 KiB */
	size_t max_message_bytes;  /* per request: 4 MiB */
	size_t max_memory_bytes;   /* of all requests and responses in flight: 64 MiB */
	uint64_t idle_ms;          /* a connection without streams is closed after: 0 = never */
	uint64_t stream_ms;        /* for a request to be complete, a response to be read: 30 s */
	uint64_t hang_ms;          /* a job without progress loses its key after: 300 s */
	/*
	 * Called on the loop's thread when a job or a refused request has its status;
	 * it must not free the server.  A job counts once, when its handler returns,
	 * whoever still waits for it then.  Names are the tables'; both are "" for a
	 * method that is not known.
	 */
	void (*on_done)(void *data, const char *service, const char *method, int status,
			uint64_t usec);
	void *on_done_data;
};

/**
 * uc_server_new() - Make a server
 * @loop:	Borrowed; must outlive the server
 * @config:	Copied
 * @ret_server:	Result
 *
 * Fixes malloc()'s thresholds (mallopt()) for the whole process, so that a large
 * message leaves nothing behind.
 *
 * Return: 0 or a negative errno
 */
int uc_server_new(struct uc_loop *loop, const struct uc_server_config *config,
		  struct uc_server **ret_server);

/**
 * uc_server_free() - Close everything at once and wait for the workers that are not hung; NULL is
 * allowed
 *
 * From the loop's thread, but not from a handler's or on_done()'s call.  Jobs that
 * wait for a worker are dropped; those that run come to their end, or become hung.
 * A hung handler may return later: what services point to must outlive it.
 */
void uc_server_free(struct uc_server *server);

UC_DEFINE_CLEANUP(struct uc_server *, uc_server_free)

/**
 * uc_server_listen_unix() - Serve services on a Unix socket
 * @path:	Absolute path; its directory must exist
 * @services:	Table (borrowed; must outlive the server)
 * @n_services:	Its rows
 * @err:	Error detail, or NULL
 *
 * The socket has mode 0600, and only peers of the effective user (or root) are
 * let in.  A stale socket (nobody listens) is replaced; a live one is -EADDRINUSE.
 * uc_server_free() and uc_server_shutdown() unlink it only if it is still the one made here.
 * Several listeners may share a server, each with its own services.
 *
 * Return: 0 or a negative errno
 */
int uc_server_listen_unix(struct uc_server *server, const char *path,
			  const struct uc_rpc_service *services, size_t n_services,
			  struct uc_err *err);

/**
 * uc_server_shutdown() - Stop gracefully
 * @grace_ms:	How long what runs may take
 * @done:	Called on the loop's thread when all jobs are done and answered or the time
 *		is over, never from within this call; it may free the server
 *
 * No new connection, GOAWAY on the others, streams that are open are answered.
 * A second call does nothing.
 */
void uc_server_shutdown(struct uc_server *server, uint64_t grace_ms, void (*done)(void *data),
			void *data);

/**
 * uc_server_each_job() - Say what is queued, runs or hangs; on the loop's thread
 * @fn:		Called with "`v1`: NodeStageVolume has been running for 12 s (format branch 1)"
 */
void uc_server_each_job(struct uc_server *server, void (*fn)(void *data, const char *what),
			void *data);

/** uc_server_busy() - Number of jobs that are queued or running; on the loop's thread */
unsigned uc_server_busy(const struct uc_server *server);

/** uc_server_hung() - Number of jobs that hang: lost, and not returned; on the loop's thread */
unsigned uc_server_hung(const struct uc_server *server);

/** uc_call_data() - The service's data pointer */
void *uc_call_data(const struct uc_call *call);

/** uc_call_method() - The method's name */
const char *uc_call_method(const struct uc_call *call);

/**
 * uc_call_alloc() - Zeroed memory that lives as long as the call; from the handler's thread
 * Return: memory, or NULL where it ran out (then return uc_call_fail(… UNAVAILABLE …))
 */
void *uc_call_alloc(struct uc_call *call, size_t n);

/** uc_call_strdup() - Copy of a string that lives as long as the call; NULL where memory ran out */
char *uc_call_strdup(struct uc_call *call, const char *s);

/**
 * uc_call_fail() - Set the status of a call that fails
 * @status:	enum uc_grpc_status, not OK
 * @fmt:	For the person who reads the event; invalid UTF-8 is replaced, long text cut
 *
 * Return: -1, so that a handler can `return uc_call_fail(…)`
 */
int uc_call_fail(struct uc_call *call, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/**
 * uc_call_step() - Say what the job does next, and ask whether it may
 * @fmt:	e.g. "format branch 1"; shown to those who find the key busy
 *
 * Return: 0, or -ECANCELED if the job was taken for hung and has lost its key:
 * it must then stop without touching the object
 */
int uc_call_step(struct uc_call *call, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** uc_call_beat() - Say that the step goes on, and ask as uc_call_step() does */
int uc_call_beat(struct uc_call *call);
