/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/rpc/grpc.h"
#include "lib/rpc/grpc_head.h"
#include "lib/rpc/status.h"

/*
 * Theory of operation
 *
 * Sessions run with nghttp2's HTTP checks off, because these reject what clients
 * of gRPC on Unix sockets put into :authority (empty, a percent-encoded path,
 * underscores).  What remains of the checks is here:
 *
 *   - pseudo-headers: known ones only, each once, before all other fields;
 *     :method and :path must be there.  A missing :scheme is tolerated.
 *     :authority is not looked at.
 *   - names in lower case, no NUL, CR or LF in values.
 *
 * Breaking these makes a request malformed (RFC 9113, 8.1.1).  Fields about the
 * connection ("connection", "transfer-encoding") mean nothing here and are
 * ignored, as is content-length: gRPC's own framing says how long a message is.
 */

enum {
	FIELD_OVERHEAD = 32,
};

struct field {
	const char *name;
	void (*fn)(struct uc_grpc_head *head, const char *value, size_t n);
};

/* True the first time. */
static bool once(struct uc_grpc_head *head, bool *seen)
{
	if (*seen)
		head->malformed = true;
	*seen = true;
	return !head->malformed;
}

static void add_method(struct uc_grpc_head *head, const char *value, size_t n)
{
	if (once(head, &head->has_method))
		head->is_post = n == 4 && memcmp(value, "POST", 4) == 0;
}

static void add_path(struct uc_grpc_head *head, const char *value, size_t n)
{
	size_t keep = n < sizeof(head->path) ? n : sizeof(head->path) - 1;

	for (size_t i = 0; i < n; i++)
		if (value[i] <= ' ' || value[i] > '~')
			head->malformed = true;
	if (n == 0)
		head->malformed = true;
	if (once(head, &head->has_path))
		memcpy(head->path, value, keep);
}

static void add_scheme(struct uc_grpc_head *head, const char *value, size_t n)
{
	(void)value;
	(void)n;
	(void)once(head, &head->has_scheme);
}

static void add_authority(struct uc_grpc_head *head, const char *value, size_t n)
{
	(void)value;
	(void)n;
	(void)once(head, &head->has_authority);
}

static void add_content_type(struct uc_grpc_head *head, const char *value, size_t n)
{
	bool ok = uc_grpc_is_content_type(value, n);

	head->is_grpc = head->has_type ? head->is_grpc && ok : ok;
	head->has_type = true;
}

static void add_encoding(struct uc_grpc_head *head, const char *value, size_t n)
{
	if (n != 8 || memcmp(value, "identity", 8) != 0)
		head->encoded = true;
}

static void add_timeout(struct uc_grpc_head *head, const char *value, size_t n)
{
	if (head->has_timeout || uc_grpc_parse_timeout(value, n, &head->timeout_ms) < 0)
		head->bad_timeout = true;
	head->has_timeout = true;
}

static const struct field pseudo[] = {
	{ ":method", add_method },
	{ ":path", add_path },
	{ ":scheme", add_scheme },
	{ ":authority", add_authority },
};

static const struct field regular[] = {
	{ "content-type", add_content_type },
	{ "grpc-encoding", add_encoding },
	{ "grpc-timeout", add_timeout },
};

static const struct field *find(const struct field *fields, size_t n_fields, const char *name,
				size_t n)
{
	for (size_t i = 0; i < n_fields; i++)
		if (strlen(fields[i].name) == n && memcmp(fields[i].name, name, n) == 0)
			return &fields[i];
	return NULL;
}

static bool is_value(const char *s, size_t n)
{
	return !memchr(s, '\0', n) && !memchr(s, '\r', n) && !memchr(s, '\n', n);
}

bool uc_grpc_head_is_regular(const void *name, size_t n_name, const void *value, size_t n_value)
{
	const char *s = name;

	if (n_name == 0 || !is_value(value, n_value))
		return false;
	for (size_t i = 0; i < n_name; i++)
		if (s[i] <= ' ' || s[i] > '~' || s[i] == ':' || (s[i] >= 'A' && s[i] <= 'Z'))
			return false;
	return true;
}

void uc_grpc_head_add(struct uc_grpc_head *head, const void *name, size_t n_name, const void *value,
		      size_t n_value)
{
	bool is_pseudo = n_name > 0 && *(const char *)name == ':';
	const struct field *f;

	head->bytes += n_name + n_value + FIELD_OVERHEAD;
	if (head->malformed || head->bytes > head->max_bytes)
		return;
	if (is_pseudo) {
		f = find(pseudo, ARRAY_SIZE(pseudo), name, n_name);
		if (!f || head->regular || !is_value(value, n_value)) {
			head->malformed = true;
			return;
		}
	} else {
		head->regular = true;
		f = find(regular, ARRAY_SIZE(regular), name, n_name);
		if (!uc_grpc_head_is_regular(name, n_name, value, n_value)) {
			head->malformed = true;
			return;
		}
	}
	if (f)
		f->fn(head, value, n_value);
}

int uc_grpc_head_judge(const struct uc_grpc_head *head, struct uc_err *err)
{
	if (head->malformed)
		return uc_fail_as(err, EPROTO, UC_GRPC_INTERNAL, "the request is malformed");
	if (head->bytes > head->max_bytes)
		return uc_fail_as(err, E2BIG, UC_GRPC_RESOURCE_EXHAUSTED,
				  "the request's headers take %zu bytes; at most %zu are accepted",
				  head->bytes, head->max_bytes);
	if (!head->has_method || !head->has_path)
		return uc_fail_as(err, EPROTO, UC_GRPC_INTERNAL, "the request is malformed");
	if (!head->is_post)
		return 405;
	if (!head->is_grpc)
		return 415;
	if (head->bad_timeout)
		return uc_fail_as(err, EINVAL, UC_GRPC_INTERNAL, "grpc-timeout is malformed");
	return 0;
}
