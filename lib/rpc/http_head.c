/* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

#include "lib/rpc/http_head.h"

/* A line, and where the next one begins. */
struct line {
	const char *p, *end;
	const char *next;
};

/* Takes a line off; false if its end is not there.  A lone LF is one too (RFC 9112, 2.2). */
static bool next_line(const char *p, const char *end, struct line *ret)
{
	const char *lf = memchr(p, '\n', (size_t)(end - p));

	if (!lf)
		return false;
	*ret = (struct line){ .p = p, .end = lf, .next = lf + 1 };
	if (ret->end > p && ret->end[-1] == '\r')
		ret->end--;
	return true;
}

static bool is_token_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_printable(const char *p, const char *end)
{
	for (; p < end; p++)
		if (*p <= ' ' || *p > '~')
			return false;
	return true;
}

/* "name: value", as far as it matters that it is one. */
static bool is_field(const struct line *l)
{
	const char *p = l->p;

	while (p < l->end && is_token_char(*p))
		p++;
	if (p == l->p || p == l->end || *p != ':')
		return false;
	for (; p < l->end; p++)
		if (*p == '\0' || *p == '\r')
			return false;
	return true;
}

static int parse_version(const char *p, const char *end)
{
	static const char http1[] = "HTTP/1.";

	if (end - p != 8 || memcmp(p, "HTTP/", 5) != 0 || p[5] < '0' || p[5] > '9' || p[6] != '.' ||
	    p[7] < '0' || p[7] > '9')
		return 400;
	return memcmp(p, http1, sizeof(http1) - 1) == 0 ? 200 : 505;
}

static int parse_request_line(const struct line *l, struct uc_http_head *ret)
{
	size_t n = (size_t)(l->end - l->p);
	const char *sp1 = memchr(l->p, ' ', n);
	const char *sp2 = sp1 ? memchr(sp1 + 1, ' ', (size_t)(l->end - sp1 - 1)) : NULL;
	const char *query;
	int status;

	if (!sp2 || sp1 == l->p || !is_printable(l->p, sp1))
		return 400;
	for (const char *p = l->p; p < sp1; p++)
		if (!is_token_char(*p))
			return 400;
	status = parse_version(sp2 + 1, l->end);
	if (status != 200)
		return status;
	if (!is_printable(sp1 + 1, sp2))
		return 400;
	ret->is_head = sp1 - l->p == 4 && memcmp(l->p, "HEAD", 4) == 0;
	if (!ret->is_head && !(sp1 - l->p == 3 && memcmp(l->p, "GET", 3) == 0))
		return 405;
	if (sp1[1] != '/')
		return 400;
	ret->path = sp1 + 1;
	query = memchr(ret->path, '?', (size_t)(sp2 - ret->path));
	ret->n_path = (size_t)((query ? query : sp2) - ret->path);
	return 200;
}

int uc_http_parse_head(const char *p, size_t n, struct uc_http_head *ret_head)
{
	const char *end = p + (n < UC_HTTP_HEAD_MAX ? n : UC_HTTP_HEAD_MAX);
	struct line request, l;
	bool fields_ok = true;
	int status;

	/* An empty line in front is to be skipped (RFC 9112, 2.2). */
	if (!next_line(p, end, &request) ||
	    (request.p == request.end && !next_line(request.next, end, &request)))
		return n < UC_HTTP_HEAD_MAX ? 0 : 431;
	for (l = request;;) {
		if (!next_line(l.next, end, &l))
			return n < UC_HTTP_HEAD_MAX ? 0 : 431;
		if (l.p == l.end)
			break;
		if (!is_field(&l))
			fields_ok = false;
	}
	status = parse_request_line(&request, ret_head);
	return status == 200 && !fields_ok ? 400 : status;
}
