/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>

#include "lib/base/log.h"
#include "lib/rpc/h2.h"

int uc_h2_errno(int ng)
{
	switch (ng) {
	case NGHTTP2_ERR_NOMEM:
		return -ENOMEM;
	case NGHTTP2_ERR_BAD_CLIENT_MAGIC:
		return -EPROTONOSUPPORT;
	case NGHTTP2_ERR_FLOODED:
		return -EOVERFLOW;
	default:
		return -EPROTO;
	}
}

static int on_error(nghttp2_session *session, int code, const char *msg, size_t len, void *data)
{
	(void)session;
	(void)data;
	/* A peer's closing GOAWAY ends up here as well: grpc-go puts its own last
	 * stream into it, which nghttp2 takes for an error. */
	log_debug("http/2: %s: %.*s", nghttp2_strerror(code), (int)len, msg);
	return 0;
}

static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code,
			    void *data)
{
	(void)session;
	(void)data;
	log_debug("http/2: invalid frame of type %u on stream %d: %s", frame->hd.type,
		  frame->hd.stream_id, nghttp2_strerror(code));
	return 0;
}

nghttp2_session_callbacks *uc_h2_callbacks_new(void)
{
	nghttp2_session_callbacks *cb = NULL;

	if (nghttp2_session_callbacks_new(&cb) != 0)
		return NULL;
	nghttp2_session_callbacks_set_error_callback2(cb, on_error);
	nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cb, on_invalid_frame);
	return cb;
}

int uc_h2_feed(nghttp2_session *session, const void *p, size_t n)
{
	ssize_t r = nghttp2_session_mem_recv(session, p, n);

	return r < 0 ? uc_h2_errno((int)r) : 0;
}

int uc_h2_drain(nghttp2_session *session, struct uc_buf *out, size_t enough)
{
	while (out->len < enough) {
		const uint8_t *p;
		ssize_t n = nghttp2_session_mem_send(session, &p);

		if (n < 0)
			return uc_h2_errno((int)n);
		if (n == 0)
			break;
		uc_buf_append(out, p, (size_t)n);
	}
	return uc_buf_error(out);
}
