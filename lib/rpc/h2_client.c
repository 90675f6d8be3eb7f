/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/rpc/grpc.h"
#include "lib/rpc/h2.h"
#include "lib/rpc/h2_client.h"
#include "lib/rpc/status.h"

/*
 * Theory of operation
 *
 * One struct call inside the connection; its stream's number tells frames of
 * this call from those of one that was cancelled.  A call ends when nghttp2
 * closes its stream.  What it came to is decided then, in this order: what we
 * found wrong with the response, the server's grpc-status, the HTTP status, the
 * code of RST_STREAM.
 */

enum {
	MESSAGE_SIZE = 1024,
};

struct call {
	int32_t id; /* 0: none yet */
	bool ended;
	uint32_t h2_code;
	int http; /* 0: no head yet */
	bool is_grpc;
	int status; /* -1: none */
	char message[MESSAGE_SIZE];
	struct uc_deframer in;
	struct uc_err wrong; /* what we found */
	uint8_t *out;        /* owned */
	size_t n_out, out_at;
};

struct uc_h2c {
	nghttp2_session *session;
	size_t max_message_bytes;
	bool going_away;
	struct call call;
};

static struct call *find_call(struct uc_h2c *h2, int32_t id)
{
	return id != 0 && h2->call.id == id && !h2->call.ended ? &h2->call : NULL;
}

static bool equals(const uint8_t *p, size_t n, const char *s)
{
	return strlen(s) == n && memcmp(p, s, n) == 0;
}

/* A number of one to three digits, or -1. */
static int parse_code(const uint8_t *p, size_t n)
{
	int v = 0;

	if (n < 1 || n > 3)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return -1;
		v = v * 10 + (p[i] - '0');
	}
	return v;
}

static int header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		  size_t n_name, const uint8_t *value, size_t n_value, uint8_t flags, void *data)
{
	struct call *c = find_call(data, frame->hd.stream_id);

	(void)session;
	(void)flags;
	if (!c)
		return 0;
	if (equals(name, n_name, ":status")) {
		c->http = parse_code(value, n_value);
	} else if (equals(name, n_name, "content-type")) {
		c->is_grpc = uc_grpc_is_content_type(value, n_value);
	} else if (equals(name, n_name, "grpc-encoding")) {
		c->in.encoding_known = equals(value, n_value, "identity");
	} else if (equals(name, n_name, "grpc-status")) {
		int status = parse_code(value, n_value);

		c->status = status >= 0 && status < UC_GRPC_STATUS_COUNT ? status : UC_GRPC_UNKNOWN;
	} else if (equals(name, n_name, "grpc-message")) {
		uc_grpc_decode_message(value, n_value, c->message, sizeof(c->message));
	}
	return 0;
}

static int data_received(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
			 size_t n, void *data)
{
	struct call *c = find_call(data, id);

	(void)flags;
	if (!c || c->wrong.status || c->http != 200 || !c->is_grpc)
		return 0;
	if (uc_deframer_feed(&c->in, p, n, &c->wrong) < 0 &&
	    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL) != 0)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	return 0;
}

static int frame_received(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
	struct uc_h2c *h2 = data;

	(void)session;
	if (frame->hd.type == NGHTTP2_GOAWAY)
		h2->going_away = true;
	return 0;
}

static int stream_closed(nghttp2_session *session, int32_t id, uint32_t code, void *data)
{
	struct call *c = find_call(data, id);

	(void)session;
	if (!c)
		return 0;
	c->ended = true;
	c->h2_code = code;
	return 0;
}

/* A request that the session could not send, say because of a GOAWAY that came in between. */
static int not_sent(nghttp2_session *session, const nghttp2_frame *frame, int code, void *data)
{
	struct call *c = find_call(data, frame->hd.stream_id);

	(void)session;
	(void)code;
	if (c && frame->hd.type == NGHTTP2_HEADERS) {
		c->ended = true;
		c->h2_code = NGHTTP2_REFUSED_STREAM;
	}
	return 0;
}

static ssize_t read_request(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
			    uint32_t *flags, nghttp2_data_source *source, void *data)
{
	struct call *c = source->ptr;
	size_t n = c->n_out - c->out_at < room ? c->n_out - c->out_at : room;

	(void)session;
	(void)data;
	if (c->id != id)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	memcpy(to, c->out + c->out_at, n);
	c->out_at += n;
	if (c->out_at == c->n_out)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

static int session_new(struct uc_h2c *h2)
{
	nghttp2_session_callbacks *cb = uc_h2_callbacks_new();
	nghttp2_option *opt = NULL;
	int r = NGHTTP2_ERR_NOMEM;

	if (cb && nghttp2_option_new(&opt) == 0) {
		nghttp2_session_callbacks_set_on_header_callback(cb, header);
		nghttp2_session_callbacks_set_on_frame_recv_callback(cb, frame_received);
		nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, data_received);
		nghttp2_session_callbacks_set_on_stream_close_callback(cb, stream_closed);
		nghttp2_session_callbacks_set_on_frame_not_send_callback(cb, not_sent);
		nghttp2_option_set_no_closed_streams(opt, 1);
		r = nghttp2_session_client_new2(&h2->session, cb, h2, opt);
	}
	nghttp2_option_del(opt);
	nghttp2_session_callbacks_del(cb);
	return r;
}

int uc_h2c_new(size_t max_message_bytes, struct uc_h2c **ret_h2)
{
	cleanup_with(uc_h2c_freep) struct uc_h2c *h2 = NULL;
	nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 0 },
	};
	int r;

	h2 = calloc(1, sizeof(*h2));
	if (!h2)
		return -ENOMEM;
	h2->max_message_bytes = max_message_bytes;
	h2->call.ended = true;
	r = session_new(h2);
	if (r == 0)
		r = nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, settings,
					    ARRAY_SIZE(settings));
	if (r != 0)
		return uc_h2_errno(r);
	*ret_h2 = take_ptr(&h2);
	return 0;
}

static void call_done(struct call *c)
{
	uc_deframer_done(&c->in);
	free(c->out);
	c->out = NULL;
}

void uc_h2c_free(struct uc_h2c *h2)
{
	if (!h2)
		return;
	nghttp2_session_del(h2->session);
	call_done(&h2->call);
	free(h2);
}

int uc_h2c_start(struct uc_h2c *h2, const char *path, uint64_t timeout_ms, uint8_t *frame, size_t n)
{
	char timeout[UC_GRPC_TIMEOUT_SIZE] = "";
	nghttp2_nv nv[] = {
		UC_H2_NV(":method", "POST"),
		UC_H2_NV(":scheme", "http"),
		UC_H2_NV(":path", path),
		UC_H2_NV(":authority", "localhost"),
		UC_H2_NV("te", "trailers"),
		UC_H2_NV("content-type", "application/grpc"),
		UC_H2_NV("user-agent", "union-csi"),
		UC_H2_NV("grpc-timeout", timeout),
	};
	nghttp2_data_provider provider = { .source.ptr = &h2->call, .read_callback = read_request };
	int32_t id;

	call_done(&h2->call);
	h2->call = (struct call){ .status = -1, .out = frame, .n_out = n, .ended = true };
	h2->call.in = (struct uc_deframer){ .max = h2->max_message_bytes, .encoding_known = true };
	if (!uc_h2c_is_usable(h2))
		return -ENOTCONN;
	if (timeout_ms)
		nv[7].valuelen = strlen(uc_grpc_format_timeout(timeout_ms, timeout));
	id = nghttp2_submit_request(h2->session, NULL, nv, ARRAY_SIZE(nv) - (timeout_ms ? 0 : 1),
				    &provider, NULL);
	if (id == NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE)
		return -ENOTCONN;
	if (id < 0)
		return uc_h2_errno(id);
	h2->call.id = id;
	h2->call.ended = false;
	return 0;
}

void uc_h2c_cancel(struct uc_h2c *h2)
{
	if (!h2->call.ended)
		(void)nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, h2->call.id,
						NGHTTP2_CANCEL);
}

int uc_h2c_feed(struct uc_h2c *h2, const void *p, size_t n)
{
	return uc_h2_feed(h2->session, p, n);
}

int uc_h2c_drain(struct uc_h2c *h2, struct uc_buf *out, size_t enough)
{
	return uc_h2_drain(h2->session, out, enough);
}

bool uc_h2c_has_ended(const struct uc_h2c *h2)
{
	return h2->call.ended;
}

bool uc_h2c_is_usable(const struct uc_h2c *h2)
{
	return !h2->going_away && nghttp2_session_want_read(h2->session);
}

/* The stream has ended without a status. */
static int without_status(const struct call *c, struct uc_err *err)
{
	if (c->http == 0 || c->h2_code != NGHTTP2_NO_ERROR)
		return uc_fail_as(err, ECONNRESET, uc_grpc_status_from_h2(c->h2_code),
				  "the server has reset the call: %s",
				  nghttp2_http2_strerror(c->h2_code));
	if (c->http != 200)
		return uc_fail_as(err, EPROTO, uc_grpc_status_from_http(c->http),
				  "the server has answered with HTTP status %d", c->http);
	return uc_fail_as(err, ECONNRESET, UC_GRPC_INTERNAL, "the answer has no grpc-status");
}

int uc_h2c_result(struct uc_h2c *h2, uint8_t **ret_data, size_t *ret_n, struct uc_err *err)
{
	struct call *c = &h2->call;

	if (c->wrong.status)
		return uc_fail_as(err, ECONNRESET, c->wrong.status, "the answer: %s", c->wrong.msg);
	if (c->status < 0)
		return without_status(c, err);
	if (c->status != UC_GRPC_OK && *c->message)
		return uc_fail_as(err, EPROTO, c->status, "%s", c->message);
	if (c->status != UC_GRPC_OK)
		return uc_fail_as(err, EPROTO, c->status, "%s", uc_grpc_status_to_str(c->status));
	if (uc_deframer_end(&c->in, ret_data, ret_n, &c->wrong) < 0)
		return uc_fail_as(err, ECONNRESET, c->wrong.status, "the answer: %s", c->wrong.msg);
	return 0;
}
