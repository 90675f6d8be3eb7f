/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/rpc/grpc.h"
#include "lib/rpc/status.h"

/* Nanoseconds, from the finest unit to the coarsest. */
static const struct {
	char unit;
	uint64_t ns;
} units[] = {
	{ 'n', 1 },
	{ 'u', 1000 },
	{ 'm', 1000000 },
	{ 'S', UINT64_C(1000000000) },
	{ 'M', UINT64_C(60000000000) },
	{ 'H', UINT64_C(3600000000000) },
};

enum {
	NS_PER_MS = 1000000,
	TIMEOUT_MAX = 99999999,
	FIRST_UNIT_SENT = 2, /* milliseconds: what callers count in */
};

int uc_grpc_parse_timeout(const void *p, size_t n, uint64_t *ret_ms)
{
	const char *s = p;
	uint64_t v = 0;

	if (n < 2 || n > 9)
		return -EINVAL;
	for (size_t i = 0; i < n - 1; i++) {
		if (s[i] < '0' || s[i] > '9')
			return -EINVAL;
		v = v * 10 + (uint64_t)(s[i] - '0');
	}
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (units[i].unit != s[n - 1])
			continue;
		/* 10^8 hours are 3.6e20 ns, too many for 64 bits: scale down first. */
		if (units[i].ns >= NS_PER_MS)
			*ret_ms = v * (units[i].ns / NS_PER_MS);
		else
			*ret_ms = (v * units[i].ns + NS_PER_MS - 1) / NS_PER_MS;
		return 0;
	}
	return -EINVAL;
}

const char *uc_grpc_format_timeout(uint64_t ms, char to[static UC_GRPC_TIMEOUT_SIZE])
{
	uint64_t v = TIMEOUT_MAX;
	size_t i;

	for (i = FIRST_UNIT_SENT; i < ARRAY_SIZE(units); i++) {
		uint64_t per = units[i].ns / NS_PER_MS;

		v = ms / per + (ms % per ? 1 : 0);
		if (v <= TIMEOUT_MAX)
			break;
	}
	if (i == ARRAY_SIZE(units)) {
		v = TIMEOUT_MAX;
		i--;
	}
	snprintf(to, UC_GRPC_TIMEOUT_SIZE, "%u%c", (unsigned)v, units[i].unit);
	return to;
}

static size_t utf8_char_len(const char *s, size_t n)
{
	size_t len = 1;

	while (len < n && ((unsigned char)s[len] & 0xc0) == 0x80)
		len++;
	return len;
}

/* Appends one character, escaped as far as it must be; 0 if it does not fit. */
static size_t encode_char(const char *s, size_t len, char *to, size_t room)
{
	bool plain = len == 1 && *s >= 0x20 && *s <= 0x7e && *s != '%';

	if ((plain ? 1 : 3 * len) + 1 > room)
		return 0;
	if (plain) {
		*to = *s;
		return 1;
	}
	for (size_t i = 0; i < len; i++)
		snprintf(to + 3 * i, 4, "%%%02X", (unsigned char)s[i]);
	return 3 * len;
}

size_t uc_grpc_encode_message(const char *s, char *to, size_t size)
{
	size_t left = strlen(s), valid = uc_str_utf8_len(s, left), used = 0;

	while (left > 0) {
		size_t len = valid ? utf8_char_len(s, valid) : 1;
		size_t k = valid ? encode_char(s, len, to + used, size - used)
				 : encode_char("\xef\xbf\xbd", 3, to + used, size - used);

		if (k == 0)
			break;
		used += k;
		s += len;
		left -= len;
		if (valid)
			valid -= len;
		if (!valid)
			valid = uc_str_utf8_len(s, left);
	}
	to[used] = '\0';
	return used;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

size_t uc_grpc_decode_message(const void *p, size_t n, char *to, size_t size)
{
	const char *s = p;
	size_t used = 0, valid = 0;

	for (size_t i = 0; i < n && used + 1 < size; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c == '%' && n - i > 2 && hex_digit(s[i + 1]) >= 0 && hex_digit(s[i + 2]) >= 0) {
			c = (unsigned char)(hex_digit(s[i + 1]) * 16 + hex_digit(s[i + 2]));
			i += 2;
		}
		to[used++] = (char)((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f ? '?' : c);
	}
	/* A character that the end has cut in half goes; other invalid bytes are replaced. */
	while ((valid += uc_str_utf8_len(to + valid, used - valid)) < used) {
		if (used + 1 >= size && used - valid < 4)
			used = valid;
		else
			to[valid] = '?';
	}
	to[used] = '\0';
	return used;
}

bool uc_grpc_is_content_type(const void *p, size_t n)
{
	static const char grpc[] = "application/grpc", proto[] = "+proto";
	const char *s = p;

	if (n < sizeof(grpc) - 1 || strncasecmp(s, grpc, sizeof(grpc) - 1) != 0)
		return false;
	s += sizeof(grpc) - 1;
	n -= sizeof(grpc) - 1;
	if (n >= sizeof(proto) - 1 && strncasecmp(s, proto, sizeof(proto) - 1) == 0) {
		s += sizeof(proto) - 1;
		n -= sizeof(proto) - 1;
	}
	return n == 0 || *s == ';' || *s == ' ';
}

int uc_grpc_status_from_http(int http)
{
	switch (http) {
	case 400:
		return UC_GRPC_INTERNAL;
	case 401:
		return UC_GRPC_UNAUTHENTICATED;
	case 403:
		return UC_GRPC_PERMISSION_DENIED;
	case 404:
		return UC_GRPC_UNIMPLEMENTED;
	case 429:
	case 502:
	case 503:
	case 504:
		return UC_GRPC_UNAVAILABLE;
	default:
		return UC_GRPC_UNKNOWN;
	}
}

int uc_grpc_status_from_h2(uint32_t code)
{
	switch (code) {
	case NGHTTP2_REFUSED_STREAM:
		return UC_GRPC_UNAVAILABLE;
	case NGHTTP2_CANCEL:
		return UC_GRPC_CANCELLED;
	case NGHTTP2_ENHANCE_YOUR_CALM:
		return UC_GRPC_RESOURCE_EXHAUSTED;
	case NGHTTP2_INADEQUATE_SECURITY:
		return UC_GRPC_PERMISSION_DENIED;
	default:
		return UC_GRPC_INTERNAL;
	}
}

void uc_grpc_put_prefix(uint8_t to[static UC_GRPC_PREFIX], uint32_t n)
{
	to[0] = 0;
	to[1] = (uint8_t)(n >> 24);
	to[2] = (uint8_t)(n >> 16);
	to[3] = (uint8_t)(n >> 8);
	to[4] = (uint8_t)n;
}

static void drop_data(struct uc_deframer *d)
{
	free(d->data);
	d->data = NULL;
	if (d->budget)
		uc_budget_give(d->budget, d->cap);
	d->cap = 0;
}

void uc_deframer_done(struct uc_deframer *d)
{
	drop_data(d);
	d->n = 0;
	d->n_prefix = 0;
}

/* Judges a prefix before a byte of what it announces is kept. */
static int check_prefix(struct uc_deframer *d, struct uc_err *err)
{
	const uint8_t *p = d->prefix;

	d->len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
	if (p[0] == 1 && !d->encoding_known)
		return uc_fail_as(err, ENOTSUP, UC_GRPC_UNIMPLEMENTED,
				  "the message is compressed; only identity is understood");
	if (p[0] == 1)
		return uc_fail_as(err, EPROTO, UC_GRPC_INTERNAL,
				  "the message has the compressed flag, but no grpc-encoding");
	if (p[0] != 0)
		return uc_fail_as(err, EPROTO, UC_GRPC_INTERNAL,
				  "the message has an unknown flag: %u", p[0]);
	if (d->len > d->max)
		return uc_fail_as(err, EMSGSIZE, UC_GRPC_RESOURCE_EXHAUSTED,
				  "the message has %zu bytes; at most %zu are accepted", d->len,
				  d->max);
	return 0;
}

/* Grows with what arrives, not with what was announced. */
static int reserve(struct uc_deframer *d, size_t n, struct uc_err *err)
{
	size_t cap = d->cap < 1024 ? 1024 : 2 * d->cap;
	uint8_t *p;

	if (n <= d->cap)
		return 0;
	if (cap < n)
		cap = n;
	if (cap > d->len)
		cap = d->len;
	if (d->budget && !uc_budget_take(d->budget, cap - d->cap))
		return uc_fail_as(err, ENOBUFS, UC_GRPC_UNAVAILABLE,
				  "requests in flight take all the memory that they may");
	p = realloc(d->data, cap);
	if (!p) {
		if (d->budget)
			uc_budget_give(d->budget, cap - d->cap);
		return uc_fail_as(err, ENOBUFS, UC_GRPC_UNAVAILABLE, "out of memory");
	}
	d->data = p;
	d->cap = cap;
	return 0;
}

int uc_deframer_feed(struct uc_deframer *d, const void *p, size_t n, struct uc_err *err)
{
	const uint8_t *in = p;
	int r;

	while (n > 0 && d->n_prefix < UC_GRPC_PREFIX) {
		d->prefix[d->n_prefix++] = *in++;
		n--;
		if (d->n_prefix < UC_GRPC_PREFIX)
			continue;
		r = check_prefix(d, err);
		if (r < 0)
			return r;
	}
	if (n == 0)
		return 0;
	if (n > d->len - d->n)
		return uc_fail_as(err, EPROTO, UC_GRPC_INTERNAL,
				  "a unary call has one message, but more than one was sent");
	r = reserve(d, d->n + n, err);
	if (r < 0)
		return r;
	memcpy(d->data + d->n, in, n);
	d->n += n;
	return 0;
}

int uc_deframer_end(struct uc_deframer *d, uint8_t **ret_data, size_t *ret_n, struct uc_err *err)
{
	if (d->n_prefix == 0)
		return uc_fail_as(err, EPROTO, UC_GRPC_INTERNAL,
				  "a unary call has one message, but none was sent");
	if (d->n_prefix < UC_GRPC_PREFIX || d->n < d->len)
		return uc_fail_as(err, EPROTO, UC_GRPC_INTERNAL, "the message was cut short");
	/* What is taken is as long as the message: reserve() never goes beyond it. */
	*ret_data = d->data;
	*ret_n = d->n;
	d->data = NULL;
	d->cap = 0;
	d->n = 0;
	d->n_prefix = 0;
	return 0;
}
