/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The other end of an HTTP/2 connection, by hand: frames are made byte by byte,
 * so that they can be wrong, and what comes back is read into one line of text.
 *
 *   1:H[:status=200 grpc-status=0]E   HEADERS on stream 1, END_STREAM
 *   1:D(7)                            DATA of 7 bytes
 *   1:RST(8)   GOAWAY(5,0)   PING-ACK(01)
 *
 * SETTINGS and WINDOW_UPDATE are left out.
 */

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/buf.h"

enum {
	PEER_DATA = 0,
	PEER_HEADERS = 1,
	PEER_RST = 3,
	PEER_SETTINGS = 4,
	PEER_PING = 6,
	PEER_GOAWAY = 7,
	PEER_WINDOW_UPDATE = 8,
	PEER_CONTINUATION = 9,

	PEER_END_STREAM = 1,
	PEER_ACK = 1,
	PEER_END_HEADERS = 4,
};

static inline void peer_frame(struct uc_buf *b, int type, int flags, int32_t stream, const void *p,
			      size_t n)
{
	uint8_t head[9] = {
		(uint8_t)(n >> 16),      (uint8_t)(n >> 8),      (uint8_t)n,
		(uint8_t)type,           (uint8_t)flags,         (uint8_t)(stream >> 24),
		(uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream,
	};

	uc_buf_append(b, head, sizeof(head));
	uc_buf_append(b, p, n);
}

static inline void peer_u32_frame(struct uc_buf *b, int type, int32_t stream, uint32_t v)
{
	uint8_t p[4] = { (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v };

	peer_frame(b, type, 0, stream, p, sizeof(p));
}

/* What a client, or a server, says first. */
static inline void peer_hello(struct uc_buf *b, bool client)
{
	if (client)
		uc_buf_puts(b, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
	peer_frame(b, PEER_SETTINGS, 0, 0, NULL, 0);
	peer_frame(b, PEER_SETTINGS, PEER_ACK, 0, NULL, 0);
}

static inline void peer_string(struct uc_buf *b, const char *s, size_t n)
{
	uint8_t byte;
	size_t rest;

	byte = (uint8_t)(n < 127 ? n : 127);
	uc_buf_append(b, &byte, 1);
	for (rest = n - 127; n >= 127; rest /= 128) {
		byte = (uint8_t)(rest % 128 + (rest >= 128 ? 128 : 0));
		uc_buf_append(b, &byte, 1);
		if (rest < 128)
			break;
	}
	uc_buf_append(b, s, n);
}

/* A field: literal, never indexed (RFC 7541, 6.2.3). */
static inline void peer_field(struct uc_buf *b, const char *name, size_t n_name, const char *value,
			      size_t n_value)
{
	uc_buf_append(b, "\x10", 1);
	peer_string(b, name, n_name);
	peer_string(b, value, n_value);
}

/* Fields from lines "name=value"; the first `=` behind the first character divides. */
static inline void peer_block(struct uc_buf *b, const char *lines)
{
	while (*lines) {
		const char *end = strchr(lines, '\n'), *eq = strchr(lines + 1, '=');

		if (!end)
			end = lines + strlen(lines);
		peer_field(b, lines, (size_t)(eq - lines), eq + 1, (size_t)(end - eq - 1));
		lines = *end ? end + 1 : end;
	}
}

static inline void peer_headers(struct uc_buf *b, int32_t stream, const char *lines, int flags)
{
	struct uc_buf block = UC_BUF_INIT;

	peer_block(&block, lines);
	peer_frame(b, PEER_HEADERS, flags | PEER_END_HEADERS, stream, block.data, block.len);
	uc_buf_done(&block);
}

/* A message with its prefix. */
static inline void peer_message(struct uc_buf *b, int flag, size_t announced, const void *p,
				size_t n)
{
	uint8_t prefix[5] = { (uint8_t)flag, (uint8_t)(announced >> 24), (uint8_t)(announced >> 16),
			      (uint8_t)(announced >> 8), (uint8_t)announced };

	uc_buf_append(b, prefix, sizeof(prefix));
	uc_buf_append(b, p, n);
}

/* Reads what the other end says. */
struct peer_reader {
	nghttp2_hd_inflater *inflater;
	struct uc_buf in; /* not read yet */
	struct uc_buf text;
	struct uc_buf data;   /* payloads of DATA, of all streams */
	size_t largest_block; /* header block, as it came */
};

static inline void peer_reader_init(struct peer_reader *r)
{
	*r = (struct peer_reader){ .inflater = NULL };
	nghttp2_hd_inflate_new(&r->inflater);
}

static inline void peer_reader_done(struct peer_reader *r)
{
	nghttp2_hd_inflate_del(r->inflater);
	uc_buf_done(&r->in);
	uc_buf_done(&r->text);
	uc_buf_done(&r->data);
}

static inline void peer_read_block(struct peer_reader *r, const uint8_t *p, size_t n)
{
	const char *sep = "";

	if (n > r->largest_block)
		r->largest_block = n;
	for (;;) {
		nghttp2_nv nv;
		int flags = 0;
		ssize_t k = nghttp2_hd_inflate_hd2(r->inflater, &nv, &flags, p, n, 1);

		if (k < 0)
			break;
		p += k;
		n -= (size_t)k;
		if (flags & NGHTTP2_HD_INFLATE_EMIT) {
			uc_buf_printf(&r->text, "%s%.*s=%.*s", sep, (int)nv.namelen, nv.name,
				      (int)nv.valuelen, nv.value);
			sep = " ";
		}
		if (flags & NGHTTP2_HD_INFLATE_FINAL)
			break;
	}
	nghttp2_hd_inflate_end_headers(r->inflater);
}

static inline uint32_t peer_u32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline void peer_read_frame(struct peer_reader *r, int type, int flags, uint32_t stream,
				   const uint8_t *p, size_t n)
{
	const char *sep = r->text.len ? " " : "", *end = flags & PEER_END_STREAM ? "E" : "";

	switch (type) {
	case PEER_HEADERS:
		uc_buf_printf(&r->text, "%s%u:H[", sep, stream);
		peer_read_block(r, p, n);
		uc_buf_printf(&r->text, "]%s", end);
		break;
	case PEER_DATA:
		uc_buf_printf(&r->text, "%s%u:D(%zu)%s", sep, stream, n, end);
		uc_buf_append(&r->data, p, n);
		break;
	case PEER_RST:
		uc_buf_printf(&r->text, "%s%u:RST(%u)", sep, stream, peer_u32(p));
		break;
	case PEER_GOAWAY:
		uc_buf_printf(&r->text, "%sGOAWAY(%u,%u)", sep, peer_u32(p), peer_u32(p + 4));
		break;
	case PEER_PING:
		uc_buf_printf(&r->text, "%sPING%s(%.*s)", sep, flags & PEER_ACK ? "-ACK" : "", 8,
			      (const char *)p);
		break;
	case PEER_SETTINGS:
	case PEER_WINDOW_UPDATE:
		break;
	default:
		uc_buf_printf(&r->text, "%s%u:FRAME%d", sep, stream, type);
		break;
	}
}

/* Reads the frames that are complete. */
static inline void peer_read(struct peer_reader *r, const void *bytes, size_t n_bytes)
{
	uc_buf_append(&r->in, bytes, n_bytes);
	while (r->in.len >= 9) {
		const uint8_t *p = (const uint8_t *)r->in.data;
		size_t n = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];

		if (r->in.len < 9 + n)
			break;
		peer_read_frame(r, p[3], p[4], peer_u32(p + 5) & 0x7fffffff, p + 9, n);
		uc_buf_consume(&r->in, 9 + n);
	}
}
