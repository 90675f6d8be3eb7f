/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/size.h"
#include "lib/base/str.h"
#include "lib/os/clock.h"
#include "lib/os/unixsock.h"
#include "lib/rpc/client.h"
#include "lib/rpc/grpc.h"
#include "lib/rpc/h2_client.h"
#include "lib/rpc/pbcheck.h"

enum {
	READ_SIZE = 16 * 1024,
	SEND_SIZE = 32 * 1024,
	PROGRESS_MS = 100,
	/* The server answers at the deadline as well, and says what it was doing. */
	LAST_WORD_MS = 500,
};

#define RESPONSE_MAX (64 * UC_MIB)

struct uc_client {
	char *path;
	int fd; /* -1: not connected */
	struct uc_h2c *h2;
	struct uc_buf out; /* what the socket did not take */
	void (*progress)(void *data, uint64_t ms);
	void *progress_data;
};

static void hang_up(struct uc_client *client)
{
	uc_h2c_free(client->h2);
	client->h2 = NULL;
	uc_buf_done(&client->out);
	uc_closep(&client->fd);
}

static int unavailable(struct uc_err *err, int r)
{
	if (err)
		err->status = UC_GRPC_UNAVAILABLE;
	return r;
}

static int dial(struct uc_client *client, struct uc_err *err)
{
	int r;

	hang_up(client);
	r = uc_unix_connect(client->path, err);
	if (r < 0)
		return unavailable(err, r);
	client->fd = r;
	r = uc_h2c_new(RESPONSE_MAX, &client->h2);
	if (r < 0) {
		hang_up(client);
		return unavailable(err, uc_fail(err, -r, "connect to `%s`", client->path));
	}
	return 0;
}

/* "unix:///path", "unix:path", or a path; NULL for another scheme. */
static const char *endpoint_path(const char *endpoint)
{
	if (uc_str_has_prefix(endpoint, "unix://"))
		endpoint += strlen("unix://");
	else if (uc_str_has_prefix(endpoint, "unix:"))
		endpoint += strlen("unix:");
	else if (strstr(endpoint, "://"))
		return NULL;
	return *endpoint ? endpoint : NULL;
}

static struct uc_client *client_new(const char *path)
{
	struct uc_client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	client->fd = -1;
	client->path = strdup(path);
	if (!client->path) {
		free(client);
		return NULL;
	}
	return client;
}

int uc_client_open(const char *endpoint, struct uc_client **ret_client, struct uc_err *err)
{
	cleanup_with(uc_client_closep) struct uc_client *client = NULL;
	const char *path = endpoint_path(endpoint);
	int r;

	if (!path)
		return uc_fail_as(err, EINVAL, UC_GRPC_INVALID_ARGUMENT,
				  "`%s` is not the address of a Unix socket",
				  UC_PRINTABLE(endpoint));
	client = client_new(path);
	if (!client)
		return uc_fail(err, ENOMEM, "connect to `%s`", path);
	r = dial(client, err);
	if (r < 0)
		return r;
	*ret_client = take_ptr(&client);
	return 0;
}

void uc_client_close(struct uc_client *client)
{
	if (!client)
		return;
	hang_up(client);
	free(client->path);
	free(client);
}

void uc_client_set_progress(struct uc_client *client, void (*fn)(void *data, uint64_t ms),
			    void *data)
{
	client->progress = fn;
	client->progress_data = data;
}

static int transmit(struct uc_client *client)
{
	for (;;) {
		int r = uc_h2c_drain(client->h2, &client->out, SEND_SIZE);
		ssize_t n;

		if (r < 0)
			return r;
		if (client->out.len == 0)
			return 0;
		n = send(client->fd, client->out.data, client->out.len,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		uc_buf_consume(&client->out, (size_t)n);
	}
}

/* Takes what has arrived. */
static int receive(struct uc_client *client)
{
	uint8_t bytes[READ_SIZE];

	for (;;) {
		ssize_t n = recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (n == 0)
			return -ECONNRESET;
		r = uc_h2c_feed(client->h2, bytes, (size_t)n);
		if (r < 0)
			return r;
	}
}

/* Makes sure that there is a connection which the server has not given up. */
static int connect_again(struct uc_client *client, struct uc_err *err)
{
	if (client->fd >= 0 && receive(client) == 0 && uc_h2c_is_usable(client->h2))
		return 0;
	return dial(client, err);
}

static int wait_for(struct uc_client *client, uint64_t until_ms)
{
	struct pollfd p = { .fd = client->fd, .events = POLLIN };
	uint64_t now = uc_now_ms(), left = until_ms > now ? until_ms - now : 0;

	if (client->out.len > 0)
		p.events |= POLLOUT;
	if (client->progress && left > PROGRESS_MS)
		left = PROGRESS_MS;
	else if (left > INT_MAX)
		left = INT_MAX;
	if (poll(&p, 1, (int)left) < 0 && errno != EINTR)
		return -errno;
	return 0;
}

static int expired(struct uc_client *client, uint64_t ms, struct uc_err *err)
{
	uc_h2c_cancel(client->h2);
	(void)transmit(client);
	return uc_fail_as(err, ETIMEDOUT, UC_GRPC_DEADLINE_EXCEEDED,
			  "no answer from `%s` within %llu.%03llu s", client->path,
			  (unsigned long long)(ms / 1000), (unsigned long long)(ms % 1000));
}

/* Drives the connection until the call has its end. */
static int finish(struct uc_client *client, uint64_t timeout_ms, struct uc_err *err)
{
	uint64_t begun = uc_now_ms(), told = begun, until = UINT64_MAX;
	int r;

	if (timeout_ms && timeout_ms < UINT64_MAX - begun - LAST_WORD_MS)
		until = begun + timeout_ms + LAST_WORD_MS;
	for (;;) {
		uint64_t now;

		/* In this order: reading makes window updates to be sent, and what the
		 * server said before it hung up counts. */
		r = receive(client);
		if (r == 0)
			r = transmit(client);
		if (r == -EPIPE)
			r = receive(client);
		if (uc_h2c_has_ended(client->h2))
			return 0;
		if (r < 0)
			break;
		now = uc_now_ms();
		if (now >= until)
			return expired(client, timeout_ms, err);
		if (client->progress && now - told >= PROGRESS_MS) {
			told = now;
			client->progress(client->progress_data, now - begun);
		}
		r = wait_for(client, until);
		if (r < 0)
			break;
	}
	hang_up(client);
	return unavailable(err, uc_fail(err, -r, "the connection to `%s` was lost", client->path));
}

static int pack(const ProtobufCMessage *req, uint8_t **ret_frame, size_t *ret_n, struct uc_err *err)
{
	size_t n = protobuf_c_message_get_packed_size(req);
	uint8_t *frame;

	if (n > INT32_MAX)
		return uc_fail_as(err, EMSGSIZE, UC_GRPC_RESOURCE_EXHAUSTED,
				  "the request is too large");
	frame = malloc(UC_GRPC_PREFIX + n);
	if (!frame)
		return uc_fail(err, ENOMEM, "pack a `%s`", req->descriptor->name);
	uc_grpc_put_prefix(frame, (uint32_t)n);
	protobuf_c_message_pack(req, frame + UC_GRPC_PREFIX);
	*ret_frame = frame;
	*ret_n = UC_GRPC_PREFIX + n;
	return 0;
}

static int take_response(struct uc_client *client, const ProtobufCMessageDescriptor *desc,
			 ProtobufCMessage **ret_resp, struct uc_err *err)
{
	cleanup_free uint8_t *data = NULL;
	ProtobufCMessage *resp;
	size_t n = 0;
	int r;

	r = uc_h2c_result(client->h2, &data, &n, err);
	if (r < 0)
		return r;
	r = uc_pbcheck(desc, data, n, SIZE_MAX, err);
	if (r < 0)
		return uc_wrap(err, r, "the answer");
	resp = protobuf_c_message_unpack(desc, NULL, n, data);
	if (!resp)
		return uc_fail_as(err, EBADMSG, UC_GRPC_INTERNAL, "the answer is not a `%s`",
				  desc->name);
	*ret_resp = resp;
	return 0;
}

int uc_client_call(struct uc_client *client, const ProtobufCServiceDescriptor *desc,
		   const char *method, const ProtobufCMessage *req, uint64_t timeout_ms,
		   ProtobufCMessage **ret_resp, struct uc_err *err)
{
	const ProtobufCMethodDescriptor *m =
		protobuf_c_service_descriptor_get_method_by_name(desc, method);
	cleanup_free char *path = NULL;
	uint8_t *frame = NULL;
	size_t n = 0;
	int r;

	if (!m)
		return uc_fail_as(err, EINVAL, UC_GRPC_UNIMPLEMENTED, "`%s` has no method `%s`",
				  desc->name, method);
	r = connect_again(client, err);
	if (r < 0)
		return r;
	if (asprintf(&path, "/%s/%s", desc->name, method) < 0) {
		path = NULL;
		return uc_fail(err, ENOMEM, "call `%s`", method);
	}
	r = pack(req, &frame, &n, err);
	if (r < 0)
		return r;
	r = uc_h2c_start(client->h2, path, timeout_ms, frame, n);
	if (r < 0)
		return unavailable(err, uc_fail(err, -r, "call `%s`", method));
	r = finish(client, timeout_ms, err);
	if (r < 0)
		return r;
	return take_response(client, m->output, ret_resp, err);
}
