/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/rpc/grpc.h"
#include "lib/rpc/grpc_head.h"
#include "lib/rpc/h2.h"
#include "lib/rpc/h2_server.h"
#include "lib/rpc/status.h"

/*
 * Theory of operation
 *
 * nghttp2 owns framing, header compression, flow control and the states of
 * HTTP/2 streams.  This file owns what a stream means: one struct stream for
 * each, from nghttp2's begin_headers to its stream_close callback.  It is found
 * as the stream's user data, so a number that nghttp2 no longer knows leads
 * nowhere, and nothing is ever submitted for a closed stream.
 *
 * An answer that is given before the request has ended (unknown method, message
 * too large) is followed by RST_STREAM(NO_ERROR), which asks the client to stop
 * sending (RFC 9113, 8.1).  It is submitted only when the answer has been handed
 * out: nghttp2 drops what is queued for a stream that is being reset.
 *
 * What a hostile peer is held to:
 *   - headers are counted, not kept (grpc_head.c); CONTINUATION frames are few
 *   - bodies come out of a budget that all connections share (grpc.c)
 *   - a request, a handshake or the reading of a response takes at most stream_ms
 *   - RST_STREAM in either direction takes a token from a bucket: opening and
 *     resetting streams, or making us reset them, ends the connection
 *   - what nghttp2 queues as answers to PING and SETTINGS is limited by the
 *     owner, who feeds nothing while output is waiting
 *
 * Shutting down: GOAWAY(2^31-1) and a PING.  The peer's answer to the PING proves
 * that it has seen the GOAWAY; the final GOAWAY then names the last stream.  Which
 * one that is, is decided when frames are handed out: until then nghttp2 accepts
 * new streams, and one that we serve while we say that we do not is run twice.
 */

enum {
	RESET_BURST = 500,
	RESET_PER_S = 33,
	MAX_CONTINUATIONS = 8,
	PING_WAIT_MS = 100,
};

/* The only PING that we send. */
static const uint8_t shutdown_ping[8] = { 'g', 'o', 'a', 'w', 'a', 'y', '0', '1' };

/*
 * HEAD   the header block is not complete
 * BODY   waiting for the rest of the message; may be answered (refused)
 * CALL   handed to the owner, who answers it; gone() if it is closed before
 * ENDED  answered or reset; what still arrives is dropped
 */
enum state {
	STATE_HEAD,
	STATE_BODY,
	STATE_CALL,
	STATE_ENDED,
};

struct stream {
	struct uc_h2s *h2;
	struct stream *next, **link;
	int32_t id;
	enum state state;
	bool remote_closed; /* the request has ended */
	struct uc_grpc_head head;
	uint64_t begun_ms;
	uint64_t answered_ms; /* ENDED: since when the answer waits */
	const void *route;
	void *token;
	struct uc_deframer in;
	uint8_t *out; /* owned: the response with its prefix */
	size_t n_out, out_at;
};

struct uc_h2s {
	struct uc_h2s_config config;
	nghttp2_session *session;
	struct stream *streams;
	unsigned n_streams;
	uint64_t now_ms, begun_ms;
	bool settings_seen; /* the handshake is complete */
	bool out_of_memory; /* inside a callback that cannot say so */
	bool shutdown;
	bool last_goaway_due, last_goaway_sent;
	uint64_t shutdown_ms;
	uint64_t tokens, tokens_ms; /* thousandths of a reset */
};

static struct stream *find_stream(struct uc_h2s *h2, int32_t id)
{
	return nghttp2_session_get_stream_user_data(h2->session, id);
}

/* Remembers that nghttp2 failed; the owner learns it from what it calls. */
static int submitted(struct uc_h2s *h2, int r)
{
	if (r >= 0)
		return 0;
	if (nghttp2_is_fatal(r))
		h2->out_of_memory = true;
	return uc_h2_errno(r);
}

static void stream_free(struct stream *s)
{
	*s->link = s->next;
	if (s->next)
		s->next->link = s->link;
	s->h2->n_streams--;
	uc_deframer_done(&s->in);
	uc_budget_give(s->h2->config.budget, s->n_out);
	free(s->out);
	free(s);
}

static struct stream *stream_new(struct uc_h2s *h2, int32_t id)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->h2 = h2;
	s->id = id;
	s->state = STATE_HEAD;
	s->begun_ms = h2->now_ms;
	s->head.max_bytes = h2->config.max_header_bytes;
	s->in = (struct uc_deframer){ .max = h2->config.max_message_bytes,
				      .budget = h2->config.budget };
	s->next = h2->streams;
	s->link = &h2->streams;
	if (s->next)
		s->next->link = &s->next;
	h2->streams = s;
	h2->n_streams++;
	return s;
}

static void ended(struct stream *s)
{
	s->state = STATE_ENDED;
	s->answered_ms = s->h2->now_ms;
	s->token = NULL;
	uc_deframer_done(&s->in);
}

static void reset(struct stream *s, uint32_t code)
{
	ended(s);
	(void)submitted(s->h2,
			nghttp2_submit_rst_stream(s->h2->session, NGHTTP2_FLAG_NONE, s->id, code));
}

static int answer_http(struct stream *s, int http)
{
	char text[8] = "";
	nghttp2_nv nv[] = { UC_H2_NV(":status", text) };

	nv[0].valuelen = (size_t)snprintf(text, sizeof(text), "%d", http);
	ended(s);
	return submitted(s->h2, nghttp2_submit_response(s->h2->session, s->id, nv, 1, NULL));
}

/* Trailers-Only: one HEADERS frame with everything. */
static int answer_status(struct stream *s, int status, const char *msg)
{
	char code[8], encoded[UC_GRPC_MESSAGE_MAX];
	nghttp2_nv nv[] = {
		UC_H2_NV(":status", "200"),
		UC_H2_NV("content-type", "application/grpc"),
		UC_H2_NV("grpc-status", ""),
		UC_H2_NV("grpc-message", ""),
		UC_H2_NV("grpc-accept-encoding", "identity"),
	};
	bool encoding = status == UC_GRPC_UNIMPLEMENTED;

	nv[2].value = (uint8_t *)code;
	nv[2].valuelen = (size_t)snprintf(code, sizeof(code), "%d", status);
	nv[3].value = (uint8_t *)encoded;
	nv[3].valuelen = uc_grpc_encode_message(msg, encoded, sizeof(encoded));
	ended(s);
	return submitted(s->h2, nghttp2_submit_response(s->h2->session, s->id, nv,
							ARRAY_SIZE(nv) - (encoding ? 0 : 1), NULL));
}

/* An answer that the owner did not give. */
static void refuse(struct stream *s, int status, const char *msg)
{
	(void)answer_status(s, status, msg);
	s->h2->config.ops->refused(s->h2->config.data, s->route, status);
}

static void refuse_http(struct stream *s, int http)
{
	(void)answer_http(s, http);
	s->h2->config.ops->refused(s->h2->config.data, NULL, uc_grpc_status_from_http(http));
}

static ssize_t read_response(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
			     uint32_t *flags, nghttp2_data_source *source, void *data)
{
	struct stream *s = source->ptr;
	size_t n = s->n_out - s->out_at < room ? s->n_out - s->out_at : room;

	(void)data;
	memcpy(to, s->out + s->out_at, n);
	s->out_at += n;
	if (s->out_at == s->n_out) {
		nghttp2_nv nv[] = { UC_H2_NV("grpc-status", "0") };

		*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
		if (nghttp2_submit_trailer(session, id, nv, 1) != 0)
			return NGHTTP2_ERR_CALLBACK_FAILURE;
	}
	return (ssize_t)n;
}

static int begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
	struct uc_h2s *h2 = data;
	struct stream *s;

	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	s = stream_new(h2, frame->hd.stream_id);
	if (!s)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	(void)nghttp2_session_set_stream_user_data(session, s->id, s);
	return 0;
}

static int header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		  size_t n_name, const uint8_t *value, size_t n_value, uint8_t flags, void *data)
{
	struct stream *s = find_stream(data, frame->hd.stream_id);

	(void)session;
	(void)flags;
	if (!s)
		return 0;
	if (s->state == STATE_HEAD)
		uc_grpc_head_add(&s->head, name, n_name, value, n_value);
	else if (s->state == STATE_BODY && !uc_grpc_head_is_regular(name, n_name, value, n_value))
		reset(s, NGHTTP2_PROTOCOL_ERROR);
	return 0;
}

static void head_complete(struct stream *s)
{
	struct uc_h2s *h2 = s->h2;
	struct uc_err err = { 0 };
	int r = uc_grpc_head_judge(&s->head, &err);

	s->state = STATE_BODY;
	s->in.encoding_known = !s->head.encoded;
	if (r == -EPROTO) {
		log_debug("grpc: stream %d: %s", s->id, err.msg);
		reset(s, NGHTTP2_PROTOCOL_ERROR);
		return;
	}
	if (r > 0) {
		refuse_http(s, r);
		return;
	}
	if (r == 0)
		s->route = h2->config.ops->route(h2->config.data, s->head.path);
	if (r == 0 && !s->route)
		(void)uc_fail_as(&err, ENOENT, UC_GRPC_UNIMPLEMENTED, "unknown method `%s`",
				 UC_PRINTABLE(s->head.path));
	if (err.status)
		refuse(s, err.status, err.msg);
}

static void body_complete(struct stream *s)
{
	struct uc_h2s *h2 = s->h2;
	struct uc_h2s_request req = { .stream = s->id, .route = s->route };
	struct uc_err err = { 0 };

	if (uc_deframer_end(&s->in, &req.msg, &req.n, &err) < 0) {
		refuse(s, err.status, err.msg);
		return;
	}
	s->state = STATE_CALL;
	h2->config.ops->request(h2->config.data, &req);
}

static void headers_received(struct stream *s, const nghttp2_frame *frame)
{
	if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
		head_complete(s);
	else if (!s->remote_closed && s->state != STATE_ENDED)
		reset(s, NGHTTP2_PROTOCOL_ERROR); /* trailers end a request */
}

/* Takes a token for a reset in either direction. */
static void count_reset(struct uc_h2s *h2)
{
	uint64_t passed = h2->now_ms - h2->tokens_ms;

	if (passed > RESET_BURST * UINT64_C(1000) / RESET_PER_S)
		h2->tokens = RESET_BURST * UINT64_C(1000);
	else
		h2->tokens += passed * RESET_PER_S;
	if (h2->tokens > RESET_BURST * UINT64_C(1000))
		h2->tokens = RESET_BURST * UINT64_C(1000);
	h2->tokens_ms = h2->now_ms;
	if (h2->tokens >= 1000) {
		h2->tokens -= 1000;
		return;
	}
	log_debug("grpc: the peer has streams reset too often");
	(void)submitted(h2,
			nghttp2_session_terminate_session(h2->session, NGHTTP2_ENHANCE_YOUR_CALM));
}

static void send_last_goaway(struct uc_h2s *h2)
{
	int32_t last = nghttp2_session_get_last_proc_stream_id(h2->session);

	if (!h2->last_goaway_due || h2->last_goaway_sent)
		return;
	h2->last_goaway_sent = true;
	(void)submitted(h2, nghttp2_submit_goaway(h2->session, NGHTTP2_FLAG_NONE, last,
						  NGHTTP2_NO_ERROR, NULL, 0));
}

static int frame_received(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
	struct uc_h2s *h2 = data;
	struct stream *s = find_stream(h2, frame->hd.stream_id);

	(void)session;
	switch (frame->hd.type) {
	case NGHTTP2_HEADERS:
	case NGHTTP2_DATA:
		if (!s)
			break;
		if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
			s->remote_closed = true;
		if (frame->hd.type == NGHTTP2_HEADERS)
			headers_received(s, frame);
		if (s->remote_closed && s->state == STATE_BODY)
			body_complete(s);
		break;
	case NGHTTP2_SETTINGS:
		h2->settings_seen = true;
		break;
	case NGHTTP2_PING:
		if (frame->hd.flags & NGHTTP2_FLAG_ACK && h2->shutdown &&
		    memcmp(frame->ping.opaque_data, shutdown_ping, sizeof(shutdown_ping)) == 0)
			h2->last_goaway_due = true;
		break;
	case NGHTTP2_RST_STREAM:
		count_reset(h2);
		break;
	case NGHTTP2_GOAWAY:
		log_debug("grpc: the client says GOAWAY(%u)", frame->goaway.error_code);
		break;
	default:
		break;
	}
	return 0;
}

static int data_received(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *p,
			 size_t n, void *data)
{
	struct stream *s = find_stream(data, id);
	struct uc_err err = { 0 };

	(void)session;
	(void)flags;
	if (s && s->state == STATE_BODY && uc_deframer_feed(&s->in, p, n, &err) < 0)
		refuse(s, err.status, err.msg);
	return 0;
}

static int frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
	struct uc_h2s *h2 = data;
	struct stream *s;

	if (frame->hd.type == NGHTTP2_RST_STREAM) {
		if (frame->rst_stream.error_code != NGHTTP2_NO_ERROR)
			count_reset(h2);
		return 0;
	}
	if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return 0;
	s = find_stream(h2, frame->hd.stream_id);
	if (s && !s->remote_closed)
		(void)submitted(h2, nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id,
							      NGHTTP2_NO_ERROR));
	return 0;
}

static int stream_closed(nghttp2_session *session, int32_t id, uint32_t code, void *data)
{
	struct uc_h2s *h2 = data;
	struct stream *s = find_stream(h2, id);
	bool was_call;
	void *token;

	(void)code;
	if (!s)
		return 0;
	was_call = s->state == STATE_CALL;
	token = s->token;
	(void)nghttp2_session_set_stream_user_data(session, id, NULL);
	stream_free(s);
	if (was_call)
		h2->config.ops->gone(h2->config.data, id, token);
	return 0;
}

static int session_new(struct uc_h2s *h2)
{
	nghttp2_session_callbacks *cb = uc_h2_callbacks_new();
	nghttp2_option *opt = NULL;
	int r = NGHTTP2_ERR_NOMEM;

	if (cb && nghttp2_option_new(&opt) == 0) {
		nghttp2_session_callbacks_set_on_begin_headers_callback(cb, begin_headers);
		nghttp2_session_callbacks_set_on_header_callback(cb, header);
		nghttp2_session_callbacks_set_on_frame_recv_callback(cb, frame_received);
		nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, data_received);
		nghttp2_session_callbacks_set_on_frame_send_callback(cb, frame_sent);
		nghttp2_session_callbacks_set_on_stream_close_callback(cb, stream_closed);
		nghttp2_option_set_no_http_messaging(opt, 1);
		nghttp2_option_set_no_closed_streams(opt, 1);
		nghttp2_option_set_max_continuations(opt, MAX_CONTINUATIONS);
		/* nghttp2's own limit has its own clock, and does not see what we reset. */
		nghttp2_option_set_stream_reset_rate_limit(opt, UINT32_MAX, UINT32_MAX);
		r = nghttp2_session_server_new2(&h2->session, cb, h2, opt);
	}
	nghttp2_option_del(opt);
	nghttp2_session_callbacks_del(cb);
	return r;
}

int uc_h2s_new(const struct uc_h2s_config *config, uint64_t now_ms, struct uc_h2s **ret_h2)
{
	cleanup_with(uc_h2s_freep) struct uc_h2s *h2 = NULL;
	nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, config->max_streams },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, config->max_header_bytes },
		{ NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1 },
	};
	int r;

	h2 = calloc(1, sizeof(*h2));
	if (!h2)
		return -ENOMEM;
	h2->config = *config;
	h2->now_ms = h2->begun_ms = h2->tokens_ms = now_ms;
	h2->tokens = RESET_BURST * UINT64_C(1000);
	r = session_new(h2);
	if (r == 0)
		r = nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, settings,
					    ARRAY_SIZE(settings));
	if (r != 0)
		return uc_h2_errno(r);
	*ret_h2 = take_ptr(&h2);
	return 0;
}

void uc_h2s_free(struct uc_h2s *h2)
{
	if (!h2)
		return;
	while (h2->streams) {
		struct stream *s = h2->streams;
		bool was_call = s->state == STATE_CALL;
		int32_t id = s->id;
		void *token = s->token;

		(void)nghttp2_session_set_stream_user_data(h2->session, id, NULL);
		stream_free(s);
		if (was_call)
			h2->config.ops->gone(h2->config.data, id, token);
	}
	nghttp2_session_del(h2->session);
	free(h2);
}

int uc_h2s_feed(struct uc_h2s *h2, const void *p, size_t n, uint64_t now_ms)
{
	int r;

	h2->now_ms = now_ms;
	r = uc_h2_feed(h2->session, p, n);
	return r == 0 && h2->out_of_memory ? -ENOMEM : r;
}

int uc_h2s_drain(struct uc_h2s *h2, struct uc_buf *out, size_t enough)
{
	int r;

	send_last_goaway(h2);
	r = uc_h2_drain(h2->session, out, enough);
	return r == 0 && h2->out_of_memory ? -ENOMEM : r;
}

static uint64_t later(uint64_t ms, uint64_t by)
{
	return ms > UINT64_MAX - by ? UINT64_MAX : ms + by;
}

/* When a stream is overdue. */
static uint64_t due(const struct stream *s)
{
	uint64_t limit = later(s->begun_ms, s->h2->config.stream_ms);
	uint64_t deadline =
		s->head.has_timeout ? later(s->begun_ms, s->head.timeout_ms) : UINT64_MAX;

	switch (s->state) {
	case STATE_HEAD:
		return limit;
	case STATE_BODY:
		return deadline < limit ? deadline : limit;
	case STATE_CALL:
		return deadline;
	case STATE_ENDED:
		return later(s->answered_ms, s->h2->config.stream_ms);
	}
	return UINT64_MAX;
}

static int overdue(struct stream *s)
{
	struct uc_h2s *h2 = s->h2;
	int32_t id = s->id;

	switch (s->state) {
	case STATE_HEAD:
		/* Nothing can be said to a peer that is in the middle of a header block. */
		return -ETIMEDOUT;
	case STATE_BODY:
		refuse(s, UC_GRPC_DEADLINE_EXCEEDED, "the request was not complete in time");
		break;
	case STATE_CALL:
		h2->config.ops->expired(h2->config.data, id, s->token);
		s = find_stream(h2, id);
		if (s && s->state == STATE_CALL)
			(void)answer_status(s, UC_GRPC_DEADLINE_EXCEEDED,
					    "the deadline has passed");
		break;
	case STATE_ENDED:
		/* The answer is not being read. */
		reset(s, NGHTTP2_CANCEL);
		break;
	}
	return 0;
}

int uc_h2s_tick(struct uc_h2s *h2, uint64_t now_ms, uint64_t *ret_next_ms)
{
	uint64_t next = UINT64_MAX;
	struct stream *s, *following;
	int r;

	h2->now_ms = now_ms;
	/* None of this closes a stream: that happens when its frames are handed out. */
	for (s = h2->streams; s; s = following) {
		following = s->next;
		if (due(s) <= now_ms) {
			r = overdue(s);
			if (r < 0)
				return r;
		}
		if (due(s) < next)
			next = due(s);
	}
	if (!h2->settings_seen && later(h2->begun_ms, h2->config.stream_ms) <= now_ms)
		return -ETIMEDOUT;
	if (!h2->settings_seen && later(h2->begun_ms, h2->config.stream_ms) < next)
		next = later(h2->begun_ms, h2->config.stream_ms);
	if (h2->shutdown && !h2->last_goaway_sent) {
		if (later(h2->shutdown_ms, PING_WAIT_MS) <= now_ms)
			h2->last_goaway_due = true;
		else if (later(h2->shutdown_ms, PING_WAIT_MS) < next)
			next = later(h2->shutdown_ms, PING_WAIT_MS);
	}
	*ret_next_ms = next;
	return 0;
}

void uc_h2s_set_token(struct uc_h2s *h2, int32_t stream, void *token)
{
	struct stream *s = find_stream(h2, stream);

	if (s && s->state == STATE_CALL)
		s->token = token;
}

int uc_h2s_respond(struct uc_h2s *h2, int32_t stream, uint8_t *frame, size_t n, uint64_t now_ms)
{
	nghttp2_nv nv[] = {
		UC_H2_NV(":status", "200"),
		UC_H2_NV("content-type", "application/grpc"),
	};
	struct stream *s = find_stream(h2, stream);
	nghttp2_data_provider provider = { .source.ptr = s, .read_callback = read_response };

	h2->now_ms = now_ms;
	if (!s || s->state != STATE_CALL) {
		free(frame);
		return -ENOENT;
	}
	s->out = frame;
	s->n_out = n;
	uc_budget_force(h2->config.budget, n);
	ended(s);
	return submitted(
		h2, nghttp2_submit_response(h2->session, stream, nv, ARRAY_SIZE(nv), &provider));
}

int uc_h2s_fail(struct uc_h2s *h2, int32_t stream, int status, const char *msg, uint64_t now_ms)
{
	struct stream *s = find_stream(h2, stream);

	h2->now_ms = now_ms;
	if (!s || s->state != STATE_CALL)
		return -ENOENT;
	return answer_status(s, status, msg);
}

void uc_h2s_shutdown(struct uc_h2s *h2, uint64_t now_ms)
{
	if (h2->shutdown)
		return;
	h2->shutdown = true;
	h2->shutdown_ms = h2->now_ms = now_ms;
	(void)submitted(h2, nghttp2_submit_shutdown_notice(h2->session));
	(void)submitted(h2, nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, shutdown_ping));
}

unsigned uc_h2s_streams(const struct uc_h2s *h2)
{
	return h2->n_streams;
}

bool uc_h2s_is_over(const struct uc_h2s *h2)
{
	return !nghttp2_session_want_read(h2->session) && !nghttp2_session_want_write(h2->session);
}
