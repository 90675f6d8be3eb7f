/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A small HTTP/1.1 server for probes and metrics: GET and HEAD, one request per
 * connection, no body.  Handlers run on the loop's thread and must not block.
 */

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/err.h"
#include "lib/rpc/loop.h"

struct uc_http;

/** struct uc_http_route - one path */
struct uc_http_route {
	const char *path; /* without query */
	/*
	 * Fills @body, and *@ret_type: a constant, "text/plain; charset=utf-8" unless set.
	 * Returns the HTTP status.
	 */
	int (*fn)(void *data, struct uc_buf *body, const char **ret_type);
};

/**
 * uc_http_listen() - Serve routes
 * @loop:	Borrowed
 * @address:	"host:port", ":port", "[::1]:port" or "unix:///path"
 * @routes:	Table (borrowed; must outlive the server)
 * @n_routes:	Its rows
 * @data:	Passed to the handlers
 * @ret_http:	Result
 * @err:	Error detail, or NULL
 *
 * Return: 0 or a negative errno
 */
int uc_http_listen(struct uc_loop *loop, const char *address, const struct uc_http_route *routes,
		   size_t n_routes, void *data, struct uc_http **ret_http, struct uc_err *err);

/** uc_http_free() - Close everything; NULL is allowed */
void uc_http_free(struct uc_http *http);

UC_DEFINE_CLEANUP(struct uc_http *, uc_http_free)
