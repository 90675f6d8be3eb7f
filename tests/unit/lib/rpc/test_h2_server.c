/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/rpc/grpc.h"
#include "lib/rpc/h2_server.h"
#include "lib/rpc/status.h"
#include "tests/lib/h2_peer.h"

#define HEAD(path, rest)                                                     \
	":method=POST\n:scheme=http\n:path=" path "\n:authority=localhost\n" \
	"content-type=application/grpc\nte=trailers\n" rest
#define OK_HEAD HEAD("/t.S/M", "")
#define REPLY_HEAD ":status=200 content-type=application/grpc"
#define CALL_1 "CALL(1,/t.S/M,3:abc)"

enum {
	MAX_STREAMS = 600,
	MAX_HEADER_BYTES = 4096,
	MAX_MESSAGE_BYTES = 100000,
	STREAM_MS = 30000,
	BUDGET = 400000,
};

/* A connection, and all that happened on it in the order of its happening. */
struct fixture {
	struct uc_budget budget;
	struct uc_h2s *h2;
	struct uc_buf in;        /* what feed() is to send */
	struct peer_reader peer; /* its text is the log */
	uint64_t now;
	int token;         /* counts calls; its value is the token */
	bool answer;       /* at once */
	struct uc_buf msg; /* of the last call */
	int split;         /* 0: all at once, 1: byte by byte, else: seed */
};

static void note(struct fixture *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void note(struct fixture *f, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	uc_buf_printf(&f->peer.text, "%s%s", f->peer.text.len ? " " : "", text);
}

static const void *on_route(void *data, const char *path)
{
	(void)data;
	return strcmp(path, "/t.S/M") == 0 ? "/t.S/M" : NULL;
}

static uint8_t *make_frame(const char *s, size_t n)
{
	uint8_t *p = malloc(UC_GRPC_PREFIX + n);

	uc_grpc_put_prefix(p, (uint32_t)n);
	memcpy(p + UC_GRPC_PREFIX, s, n);
	return p;
}

static int respond(struct fixture *f, int32_t stream, const char *s)
{
	return uc_h2s_respond(f->h2, stream, make_frame(s, strlen(s)), UC_GRPC_PREFIX + strlen(s),
			      f->now);
}

static void on_request(void *data, const struct uc_h2s_request *req)
{
	struct fixture *f = data;

	note(f, "CALL(%d,%s,%zu:%.*s)", req->stream, (const char *)req->route, req->n,
	     (int)(req->n < 20 ? req->n : 20), req->msg ? (const char *)req->msg : "");
	uc_buf_clear(&f->msg);
	uc_buf_append(&f->msg, req->msg, req->n);
	free(req->msg);
	uc_budget_give(&f->budget, req->n);
	f->token++;
	uc_h2s_set_token(f->h2, req->stream, (void *)(intptr_t)f->token);
	if (f->answer)
		assert_int_equal(respond(f, req->stream, "ok"), 0);
}

static void on_expired(void *data, int32_t stream, void *token)
{
	struct fixture *f = data;

	note(f, "EXPIRED(%d,%d)", stream, (int)(intptr_t)token);
	if (f->answer)
		assert_int_equal(
			uc_h2s_fail(f->h2, stream, UC_GRPC_DEADLINE_EXCEEDED, "late", f->now), 0);
}

static void on_gone(void *data, int32_t stream, void *token)
{
	note(data, "GONE(%d,%d)", stream, (int)(intptr_t)token);
}

static void on_refused(void *data, const void *route, int status)
{
	note(data, "REFUSED(%s,%d)", route ? (const char *)route : "", status);
}

static const struct uc_h2s_ops ops = {
	.route = on_route,
	.request = on_request,
	.expired = on_expired,
	.gone = on_gone,
	.refused = on_refused,
};

static void begin_with(struct fixture *f, unsigned max_streams)
{
	struct uc_h2s_config config = {
		.ops = &ops,
		.data = f,
		.budget = &f->budget,
		.max_streams = max_streams,
		.max_header_bytes = MAX_HEADER_BYTES,
		.max_message_bytes = MAX_MESSAGE_BYTES,
		.stream_ms = STREAM_MS,
	};

	*f = (struct fixture){ .budget.max = BUDGET, .now = 1000 };
	peer_reader_init(&f->peer);
	assert_int_equal(uc_h2s_new(&config, f->now, &f->h2), 0);
	peer_hello(&f->in, true);
}

static void begin(struct fixture *f)
{
	begin_with(f, MAX_STREAMS);
}

static void end(struct fixture *f)
{
	uc_h2s_free(f->h2);
	/* Whatever happened: nothing is left, and nothing was returned twice. */
	assert_int_equal(f->budget.used, 0);
	peer_reader_done(&f->peer);
	uc_buf_done(&f->in);
	uc_buf_done(&f->msg);
}

static int drain(struct fixture *f)
{
	struct uc_buf out = UC_BUF_INIT;
	int r = uc_h2s_drain(f->h2, &out, SIZE_MAX);

	peer_read(&f->peer, out.data, out.len);
	uc_buf_done(&out);
	return r;
}

/* Feeds what is in f->in, in one of the ways of cutting it, and reads what comes back. */
static int feed(struct fixture *f)
{
	size_t at = 0;
	int r = 0;

	while (r == 0 && at < f->in.len) {
		size_t left = f->in.len - at, n = left;

		if (f->split == 1)
			n = 1;
		else if (f->split > 1)
			n = 1 + (size_t)rand() % (left < 40 ? left : 40);
		r = uc_h2s_feed(f->h2, f->in.data + at, n, f->now);
		at += n;
		if (r == 0)
			r = drain(f);
	}
	uc_buf_clear(&f->in);
	return r;
}

static int tick(struct fixture *f, uint64_t now, uint64_t *ret_next)
{
	int r;

	f->now = now;
	r = uc_h2s_tick(f->h2, now, ret_next);
	return r == 0 ? drain(f) : r;
}

static void clear_log(struct fixture *f)
{
	uc_buf_clear(&f->peer.text);
}

static void assert_log(struct fixture *f, const char *expected)
{
	assert_string_equal(uc_buf_str(&f->peer.text), expected);
	clear_log(f);
}

static void send_request(struct fixture *f, int32_t stream, const char *head, const char *msg)
{
	struct uc_buf body = UC_BUF_INIT;

	peer_message(&body, 0, strlen(msg), msg, strlen(msg));
	peer_headers(&f->in, stream, head, 0);
	peer_frame(&f->in, PEER_DATA, PEER_END_STREAM, stream, body.data, body.len);
	uc_buf_done(&body);
}

static const int splits[] = { 0, 1, 2, 3, 4 };

/* ------------------------------------------------------------- requests */

static void every_authority_is_accepted(void **state)
{
	static const char *const authorities[] = {
		"localhost",
		"",
		"%2Fvar%2Flib%2Fkubelet%2Fplugins%2Fcsi.sock",
		"/var/lib/kubelet/plugins/csi.sock",
		"under_score",
		"unix:///csi.sock",
		"a b",
		"[::1]:80",
		"user@host",
		"\xc3\xa4",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(authorities); i++) {
		struct fixture f;
		char head[512];

		begin(&f);
		snprintf(head, sizeof(head),
			 ":method=POST\n:scheme=http\n:path=/t.S/M\n:authority=%s\n"
			 "content-type=application/grpc",
			 authorities[i]);
		send_request(&f, 1, head, "abc");
		assert_int_equal(feed(&f), 0);
		assert_log(&f, CALL_1);
		end(&f);
	}
}

struct head_case {
	const char *name, *head, *expect;
};

#define MALFORMED "1:RST(1)"
#define BASE ":method=POST\n:scheme=http\n:path=/t.S/M\ncontent-type=application/grpc"

static const struct head_case head_cases[] = {
	{ "no :method", ":scheme=http\n:path=/t.S/M\ncontent-type=application/grpc", MALFORMED },
	{ "no :path", ":method=POST\n:scheme=http\ncontent-type=application/grpc", MALFORMED },
	{ "empty :path", ":method=POST\n:path=\ncontent-type=application/grpc", MALFORMED },
	{ "space in :path", ":method=POST\n:path=/t.S/M x\ncontent-type=application/grpc",
	  MALFORMED },
	{ "two :path", ":path=/t.S/M\n" BASE, MALFORMED },
	{ "two :method", ":method=POST\n" BASE, MALFORMED },
	{ "two :authority", ":authority=a\n:authority=b\n" BASE, MALFORMED },
	{ "two :scheme", ":scheme=http\n" BASE, MALFORMED },
	{ "unknown pseudo", ":protocol=x\n" BASE, MALFORMED },
	{ "response's pseudo", ":status=200\n" BASE, MALFORMED },
	{ "pseudo behind regular", BASE "\n:authority=a", MALFORMED },
	{ "upper case", BASE "\nX-Y=1", MALFORMED },
	{ "space in name", BASE "\nx y=1", MALFORMED },
	{ "CR in value", BASE "\nx=a\rb", MALFORMED },
	{ "no :scheme", ":method=POST\n:path=/t.S/M\ncontent-type=application/grpc", CALL_1 },
	{ "no :authority", BASE, CALL_1 },
	{ "no te", BASE, CALL_1 },
	{ "fields about the connection", BASE "\nconnection=close\ntransfer-encoding=x", CALL_1 },
	{ "wrong content-length", BASE "\ncontent-length=4711", CALL_1 },
	{ "GET", ":method=GET\n:path=/t.S/M\ncontent-type=application/grpc",
	  "REFUSED(,2) 1:H[:status=405]E 1:RST(0)" },
	{ "lower-case method", ":method=post\n:path=/t.S/M\ncontent-type=application/grpc",
	  "REFUSED(,2) 1:H[:status=405]E 1:RST(0)" },
	{ "no content-type", ":method=POST\n:path=/t.S/M",
	  "REFUSED(,2) 1:H[:status=415]E 1:RST(0)" },
	{ "JSON", ":method=POST\n:path=/t.S/M\ncontent-type=application/json",
	  "REFUSED(,2) 1:H[:status=415]E 1:RST(0)" },
	{ "gRPC-Web", ":method=POST\n:path=/t.S/M\ncontent-type=application/grpc-web",
	  "REFUSED(,2) 1:H[:status=415]E 1:RST(0)" },
	{ "gRPC with JSON", ":method=POST\n:path=/t.S/M\ncontent-type=application/grpc+json",
	  "REFUSED(,2) 1:H[:status=415]E 1:RST(0)" },
	{ "one good type, one bad", BASE "\ncontent-type=text/plain",
	  "REFUSED(,2) 1:H[:status=415]E 1:RST(0)" },
	{ "one bad type, one good",
	  ":method=POST\n:path=/t.S/M\ncontent-type=text/plain\ncontent-type=application/grpc",
	  "REFUSED(,2) 1:H[:status=415]E 1:RST(0)" },
	{ "+proto", ":method=POST\n:path=/t.S/M\ncontent-type=application/grpc+proto", CALL_1 },
	{ "parameters", ":method=POST\n:path=/t.S/M\ncontent-type=Application/gRPC; charset=utf-8",
	  CALL_1 },
	{ "unknown method", HEAD("/t.S/Other", ""),
	  "REFUSED(,12) 1:H[" REPLY_HEAD " grpc-status=12 grpc-message=unknown method `/t.S/Other` "
	  "grpc-accept-encoding=identity]E 1:RST(0)" },
	{ "other case of the path", HEAD("/t.s/M", ""),
	  "REFUSED(,12) 1:H[" REPLY_HEAD " grpc-status=12 grpc-message=unknown method `/t.s/M` "
	  "grpc-accept-encoding=identity]E 1:RST(0)" },
	{ "path of OPTIONS", HEAD("*", ""),
	  "REFUSED(,12) 1:H[" REPLY_HEAD " grpc-status=12 grpc-message=unknown method `*` "
	  "grpc-accept-encoding=identity]E 1:RST(0)" },
	{ "timeout without a unit", BASE "\ngrpc-timeout=100",
	  "REFUSED(,13) 1:H[" REPLY_HEAD " grpc-status=13 grpc-message=grpc-timeout is malformed]E "
	  "1:RST(0)" },
	{ "two timeouts", BASE "\ngrpc-timeout=1S\ngrpc-timeout=2S",
	  "REFUSED(,13) 1:H[" REPLY_HEAD " grpc-status=13 grpc-message=grpc-timeout is malformed]E "
	  "1:RST(0)" },
	{ "a long timeout", BASE "\ngrpc-timeout=99999999H", CALL_1 },
	{ "an encoding that is not used", BASE "\ngrpc-encoding=gzip", CALL_1 },
};

static void heads_are_judged_however_they_are_cut(void **state)
{
	(void)state;
	for (size_t s = 0; s < ARRAY_SIZE(splits); s++) {
		for (size_t i = 0; i < ARRAY_SIZE(head_cases); i++) {
			const struct head_case *c = &head_cases[i];
			struct fixture f;

			begin(&f);
			f.split = splits[s];
			peer_headers(&f.in, 1, c->head, 0);
			assert_int_equal(feed(&f), 0);
			/* The body comes after the answer, if there is one already. */
			peer_frame(&f.in, PEER_DATA, PEER_END_STREAM, 1, "\0\0\0\0\3abc", 8);
			assert_int_equal(feed(&f), 0);
			if (strcmp(uc_buf_str(&f.peer.text), c->expect) != 0)
				print_error("case: %s\n", c->name);
			assert_log(&f, c->expect);
			/* The connection is as good as before. */
			send_request(&f, 3, OK_HEAD, "abc");
			assert_int_equal(feed(&f), 0);
			assert_log(&f, "CALL(3,/t.S/M,3:abc)");
			clear_log(&f);
			end(&f);
		}
	}
}

static void head_that_is_too_large_is_refused_and_not_kept(void **state)
{
	struct fixture f;
	struct uc_buf head = UC_BUF_INIT;

	(void)state;
	begin(&f);
	uc_buf_puts(&head, OK_HEAD "x=");
	for (int i = 0; i < MAX_HEADER_BYTES; i++)
		uc_buf_puts(&head, "a");
	send_request(&f, 1, head.data, "abc");
	assert_int_equal(feed(&f), 0);
	assert_non_null(strstr(f.peer.text.data, "REFUSED(,8)"));
	assert_non_null(strstr(f.peer.text.data, "at most 4096 are accepted]E"));
	uc_buf_done(&head);
	end(&f);
}

static void path_that_is_too_long_is_an_unknown_method(void **state)
{
	struct fixture f;
	char head[1024] = ":method=POST\n:path=/t.S/M";
	size_t n = strlen(head);

	(void)state;
	begin(&f);
	memset(head + n, 'x', 500);
	strcpy(head + n + 500, "\ncontent-type=application/grpc");
	send_request(&f, 1, head, "abc");
	assert_int_equal(feed(&f), 0);
	assert_non_null(strstr(f.peer.text.data, "REFUSED(,12)"));
	end(&f);
}

/* --------------------------------------------------------------- bodies */

struct body_case {
	const char *name, *fields, *body;
	size_t n;
	const char *expect;
};

#define INTERNAL(text) \
	"REFUSED(/t.S/M,13) 1:H[" REPLY_HEAD " grpc-status=13 grpc-message=" text "]E"

static const struct body_case body_cases[] = {
	{ "nothing", "", "", 0, INTERNAL("a unary call has one message, but none was sent") },
	{ "half a prefix", "", "\0\0\0", 3, INTERNAL("the message was cut short") },
	{ "a prefix only", "", "\0\0\0\0\3", 5, INTERNAL("the message was cut short") },
	{ "half a message", "", "\0\0\0\0\3ab", 7, INTERNAL("the message was cut short") },
	{ "two messages", "", "\0\0\0\0\3abc\0\0\0\0\1x", 14,
	  INTERNAL("a unary call has one message, but more than one was sent") },
	{ "two empty messages", "", "\0\0\0\0\0\0\0\0\0\0", 10,
	  INTERNAL("a unary call has one message, but more than one was sent") },
	{ "a byte too many", "", "\0\0\0\0\3abcd", 9,
	  INTERNAL("a unary call has one message, but more than one was sent") },
	{ "unknown flag", "", "\2\0\0\0\3abc", 8, INTERNAL("the message has an unknown flag: 2") },
	{ "compressed without an encoding", "", "\1\0\0\0\3abc", 8,
	  INTERNAL("the message has the compressed flag, but no grpc-encoding") },
	{ "compressed with identity", "grpc-encoding=identity", "\1\0\0\0\3abc", 8,
	  INTERNAL("the message has the compressed flag, but no grpc-encoding") },
	{ "compressed with gzip", "grpc-encoding=gzip", "\1\0\0\0\3abc", 8,
	  "REFUSED(/t.S/M,12) 1:H[" REPLY_HEAD " grpc-status=12 grpc-message=the message is "
	  "compressed; only identity is understood grpc-accept-encoding=identity]E" },
	{ "not compressed, with gzip", "grpc-encoding=gzip", "\0\0\0\0\3abc", 8, CALL_1 },
	{ "an empty message", "", "\0\0\0\0\0", 5, "CALL(1,/t.S/M,0:)" },
	{ "a message", "", "\0\0\0\0\3abc", 8, CALL_1 },
};

/* @how: 0: END_STREAM with the last byte; 1: in an empty DATA behind it; 2: as trailers. */
static void run_body_case(const struct body_case *c, int split, int how)
{
	struct fixture f;
	char head[512];

	begin(&f);
	f.split = split;
	snprintf(head, sizeof(head), OK_HEAD "%s", c->fields);
	if (c->n == 0 && how == 0) {
		peer_headers(&f.in, 1, head, PEER_END_STREAM);
	} else {
		peer_headers(&f.in, 1, head, 0);
		/* A frame for each byte: no boundary means anything. */
		for (size_t i = 0; i < c->n; i++)
			peer_frame(&f.in, PEER_DATA,
				   how == 0 && i + 1 == c->n ? PEER_END_STREAM : 0, 1, c->body + i,
				   1);
		if (how == 1)
			peer_frame(&f.in, PEER_DATA, PEER_END_STREAM, 1, NULL, 0);
		if (how == 2)
			peer_headers(&f.in, 1, "x-trailer=1", PEER_END_STREAM);
	}
	assert_int_equal(feed(&f), 0);
	if (strncmp(uc_buf_str(&f.peer.text), c->expect, strlen(c->expect)) != 0)
		print_error("case: %s: %s\n", c->name, uc_buf_str(&f.peer.text));
	assert_int_equal(strncmp(uc_buf_str(&f.peer.text), c->expect, strlen(c->expect)), 0);
	clear_log(&f);
	send_request(&f, 3, OK_HEAD, "xyz");
	assert_int_equal(feed(&f), 0);
	assert_log(&f, "CALL(3,/t.S/M,3:xyz)");
	end(&f);
}

static void a_body_is_one_message_however_it_is_cut(void **state)
{
	(void)state;
	for (size_t s = 0; s < ARRAY_SIZE(splits); s++)
		for (size_t i = 0; i < ARRAY_SIZE(body_cases); i++)
			for (int how = 0; how < 3; how++)
				run_body_case(&body_cases[i], splits[s], how);
}

static void trailers_must_end_the_request_and_be_fields(void **state)
{
	static const struct {
		const char *fields;
		int flags;
		const char *expect;
	} cases[] = {
		{ "x=1", 0, "1:RST(1)" },
		{ ":path=/x", PEER_END_STREAM, "1:RST(1)" },
		{ "X=1", PEER_END_STREAM, "1:RST(1)" },
		{ "x=1", PEER_END_STREAM, CALL_1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct fixture f;

		begin(&f);
		peer_headers(&f.in, 1, OK_HEAD, 0);
		peer_frame(&f.in, PEER_DATA, 0, 1, "\0\0\0\0\3abc", 8);
		peer_headers(&f.in, 1, cases[i].fields, cases[i].flags);
		assert_int_equal(feed(&f), 0);
		assert_log(&f, cases[i].expect);
		end(&f);
	}
}

static void large_message_is_refused_before_it_is_buffered(void **state)
{
	char zeros[16384] = { 0 };
	struct fixture f;

	(void)state;
	begin(&f);
	peer_headers(&f.in, 1, OK_HEAD, 0);
	peer_frame(&f.in, PEER_DATA, 0, 1, "\0\0\x01\x86\xa1", 5);
	assert_int_equal(feed(&f), 0);
	assert_int_equal(f.budget.used, 0);
	assert_log(&f,
		   "REFUSED(/t.S/M,8) 1:H[" REPLY_HEAD " grpc-status=8 grpc-message=the message "
		   "has 100001 bytes; at most 100000 are accepted]E 1:RST(0)");
	/* What is on its way all the same is dropped. */
	for (int i = 0; i < 3; i++)
		peer_frame(&f.in, PEER_DATA, 0, 1, zeros, sizeof(zeros));
	assert_int_equal(feed(&f), 0);
	assert_int_equal(f.budget.used, 0);
	assert_int_equal(uc_h2s_streams(f.h2), 0);
	end(&f);
}

static void large_message_arrives_whole(void **state)
{
	(void)state;
	for (int seed = 2; seed < 12; seed++) {
		struct uc_buf body = UC_BUF_INIT;
		char msg[MAX_MESSAGE_BYTES];
		struct fixture f;
		size_t at = 0;

		srand((unsigned)seed);
		begin(&f);
		f.split = seed;
		for (size_t i = 0; i < sizeof(msg); i++)
			msg[i] = (char)rand();
		peer_message(&body, 0, sizeof(msg), msg, sizeof(msg));
		peer_headers(&f.in, 1, OK_HEAD, 0);
		while (at < body.len) {
			size_t n = (size_t)rand() % 16385;

			if (n > body.len - at)
				n = body.len - at;
			at += n;
			peer_frame(&f.in, PEER_DATA, at == body.len ? PEER_END_STREAM : 0, 1,
				   body.data + at - n, n);
		}
		assert_int_equal(feed(&f), 0);
		assert_int_equal(f.msg.len, sizeof(msg));
		assert_memory_equal(f.msg.data, msg, sizeof(msg));
		uc_buf_done(&body);
		end(&f);
	}
}

static void bodies_share_one_budget(void **state)
{
	char half[MAX_MESSAGE_BYTES / 2] = { 0 };
	struct fixture f;

	(void)state;
	begin(&f);
	/* Each keeps 50 kB of 100 kB that it has announced; the budget has room for some of them.
	 */
	for (int32_t id = 1; id < 40; id += 2) {
		peer_headers(&f.in, id, OK_HEAD, 0);
		peer_frame(&f.in, PEER_DATA, 0, id, "\0\0\x01\x86\xa0", 5);
		for (int i = 0; i < 5; i++)
			peer_frame(&f.in, PEER_DATA, 0, id, half, sizeof(half) / 5);
		assert_int_equal(feed(&f), 0);
		assert_true(f.budget.used <= BUDGET);
	}
	assert_non_null(strstr(f.peer.text.data, "REFUSED(/t.S/M,14)"));
	assert_non_null(strstr(f.peer.text.data, "take all the memory that they may]E"));
	end(&f);
}

/* -------------------------------------------------------------- answers */

static void answer_is_head_message_and_trailers(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	f.answer = true;
	send_request(&f, 1, OK_HEAD, "abc");
	assert_int_equal(feed(&f), 0);
	assert_log(&f, CALL_1 " 1:H[" REPLY_HEAD "] 1:D(7) 1:H[grpc-status=0]E");
	assert_memory_equal(f.peer.data.data, "\0\0\0\0\2ok", 7);
	assert_int_equal(uc_h2s_streams(f.h2), 0);
	end(&f);
}

static void failure_is_one_frame(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	send_request(&f, 1, OK_HEAD, "abc");
	assert_int_equal(feed(&f), 0);
	assert_int_equal(uc_h2s_fail(f.h2, 1, UC_GRPC_NOT_FOUND, "100 % weg\n\xc3\xa4", f.now), 0);
	drain(&f);
	assert_log(&f,
		   CALL_1 " 1:H[" REPLY_HEAD " grpc-status=5 grpc-message=100 %25 weg%0A%C3%A4]E");
	end(&f);
}

static void long_text_leaves_the_header_block_small(void **state)
{
	static char text[20001];
	struct fixture f;

	(void)state;
	begin(&f);
	for (size_t i = 0; i + 4 < sizeof(text); i += 4)
		memcpy(text + i, "\xf0\x9f\x92\xbe", 4);
	send_request(&f, 1, OK_HEAD, "abc");
	assert_int_equal(feed(&f), 0);
	assert_int_equal(uc_h2s_fail(f.h2, 1, UC_GRPC_INTERNAL, text, f.now), 0);
	drain(&f);
	assert_in_range(f.peer.largest_block, 1000, 4096);
	/* The last character is whole: its four bytes are twelve characters. */
	assert_non_null(strstr(f.peer.text.data, "%F0%9F%92%BE]E"));
	end(&f);
}

static void answers_come_in_any_order(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	send_request(&f, 1, OK_HEAD, "a");
	send_request(&f, 3, OK_HEAD, "b");
	send_request(&f, 5, OK_HEAD, "c");
	assert_int_equal(feed(&f), 0);
	clear_log(&f);
	assert_int_equal(respond(&f, 5, "C"), 0);
	assert_int_equal(respond(&f, 1, "A"), 0);
	drain(&f);
	/* Which goes out first is nghttp2's choice. */
	assert_non_null(strstr(f.peer.text.data, "5:D(6) 5:H[grpc-status=0]E"));
	assert_non_null(strstr(f.peer.text.data, "1:D(6) 1:H[grpc-status=0]E"));
	assert_null(strstr(f.peer.text.data, "3:"));
	assert_int_equal(respond(&f, 3, "B"), 0);
	drain(&f);
	end(&f);
}

static void second_answer_is_dropped(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	send_request(&f, 1, OK_HEAD, "abc");
	assert_int_equal(feed(&f), 0);
	assert_int_equal(respond(&f, 1, "x"), 0);
	assert_int_equal(respond(&f, 1, "y"), -ENOENT);
	assert_int_equal(uc_h2s_fail(f.h2, 1, UC_GRPC_INTERNAL, "z", f.now), -ENOENT);
	drain(&f);
	assert_int_equal(respond(&f, 1, "y"), -ENOENT);
	assert_int_equal(respond(&f, 99, "y"), -ENOENT);
	assert_int_equal(respond(&f, 0, "y"), -ENOENT);
	assert_int_equal(respond(&f, -1, "y"), -ENOENT);
	end(&f);
}

static void output_stops_at_what_is_enough(void **state)
{
	struct uc_buf out = UC_BUF_INIT;
	char *big = calloc(1, 60000);
	struct fixture f;
	size_t total = 0;

	(void)state;
	begin(&f);
	send_request(&f, 1, OK_HEAD, "abc");
	assert_int_equal(feed(&f), 0);
	assert_int_equal(uc_h2s_respond(f.h2, 1, make_frame(big, 60000), 60005, f.now), 0);
	assert_int_equal(f.budget.used, 60005);
	do {
		uc_buf_clear(&out);
		assert_int_equal(uc_h2s_drain(f.h2, &out, 1000), 0);
		assert_true(out.len <= 1000 + 16384 + 9);
		total += out.len;
	} while (out.len > 0);
	assert_true(total > 60005);
	assert_int_equal(f.budget.used, 0);
	uc_buf_done(&out);
	free(big);
	end(&f);
}

/* ------------------------------------------------- cancelling, time */

static void reset_by_the_client_ends_the_call(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	send_request(&f, 1, OK_HEAD, "abc");
	peer_headers(&f.in, 3, OK_HEAD, 0);
	assert_int_equal(feed(&f), 0);
	clear_log(&f);
	peer_u32_frame(&f.in, PEER_RST, 1, NGHTTP2_CANCEL);
	peer_u32_frame(&f.in, PEER_RST, 3, NGHTTP2_CANCEL);
	assert_int_equal(feed(&f), 0);
	/* Stream 3 was no call yet: nobody has to know. */
	assert_log(&f, "GONE(1,1)");
	assert_int_equal(respond(&f, 1, "late"), -ENOENT);
	assert_int_equal(uc_h2s_fail(f.h2, 3, UC_GRPC_INTERNAL, "late", f.now), -ENOENT);
	drain(&f);
	assert_log(&f, "");
	end(&f);
}

static void reset_while_the_answer_is_sent_is_no_loss(void **state)
{
	char *big = calloc(1, 90000);
	struct fixture f;

	(void)state;
	begin(&f);
	send_request(&f, 1, OK_HEAD, "abc");
	assert_int_equal(feed(&f), 0);
	/* More than the window has: it stays, in part. */
	assert_int_equal(uc_h2s_respond(f.h2, 1, make_frame(big, 90000), 90005, f.now), 0);
	drain(&f);
	assert_int_equal(f.budget.used, 90005);
	peer_u32_frame(&f.in, PEER_RST, 1, NGHTTP2_CANCEL);
	assert_int_equal(feed(&f), 0);
	assert_int_equal(f.budget.used, 0);
	assert_null(strstr(f.peer.text.data, "GONE"));
	free(big);
	end(&f);
}

static void end_of_the_connection_ends_its_calls(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	send_request(&f, 1, OK_HEAD, "abc");
	send_request(&f, 3, OK_HEAD, "abc");
	assert_int_equal(feed(&f), 0);
	respond(&f, 3, "x");
	clear_log(&f);
	uc_h2s_free(f.h2);
	f.h2 = NULL;
	assert_log(&f, "GONE(1,1)");
	end(&f);
}

static void deadline_is_told_once(void **state)
{
	struct fixture f;
	uint64_t next;

	(void)state;
	begin(&f);
	f.answer = false;
	send_request(&f, 1, HEAD("/t.S/M", "grpc-timeout=1500m"), "abc");
	assert_int_equal(feed(&f), 0);
	clear_log(&f);
	assert_int_equal(tick(&f, 2499, &next), 0);
	assert_int_equal(next, 2500);
	assert_log(&f, "");
	f.answer = true;
	assert_int_equal(tick(&f, 2500, &next), 0);
	assert_log(&f, "EXPIRED(1,1) 1:H[" REPLY_HEAD " grpc-status=4 grpc-message=late]E");
	assert_int_equal(next, 2500 + STREAM_MS);
	assert_int_equal(tick(&f, 2501, &next), 0);
	assert_int_equal(next, UINT64_MAX);
	assert_int_equal(respond(&f, 1, "late"), -ENOENT);
	end(&f);
}

static void deadline_is_answered_even_if_the_owner_does_not(void **state)
{
	struct fixture f;
	uint64_t next;

	(void)state;
	begin(&f);
	send_request(&f, 1, HEAD("/t.S/M", "grpc-timeout=0n"), "abc");
	assert_int_equal(feed(&f), 0);
	assert_int_equal(tick(&f, f.now, &next), 0);
	assert_log(&f, CALL_1 " EXPIRED(1,1) 1:H[" REPLY_HEAD
			      " grpc-status=4 grpc-message=the deadline has passed]E");
	end(&f);
}

static void slow_request_is_given_up(void **state)
{
	static const struct {
		const char *fields;
		uint64_t at;
	} cases[] = {
		{ "", 1000 + STREAM_MS },
		{ "grpc-timeout=2S", 3000 },
		{ "grpc-timeout=1H", 1000 + STREAM_MS },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct fixture f;
		char head[512];
		uint64_t next;

		begin(&f);
		snprintf(head, sizeof(head), OK_HEAD "%s", cases[i].fields);
		peer_headers(&f.in, 1, head, 0);
		peer_frame(&f.in, PEER_DATA, 0, 1, "\0\0\0\0\3a", 6);
		assert_int_equal(feed(&f), 0);
		/* A byte now and then does not help. */
		f.now = cases[i].at - 1;
		peer_frame(&f.in, PEER_DATA, 0, 1, "b", 1);
		assert_int_equal(feed(&f), 0);
		assert_int_equal(tick(&f, cases[i].at - 1, &next), 0);
		assert_int_equal(next, cases[i].at);
		assert_int_equal(tick(&f, cases[i].at, &next), 0);
		assert_log(&f,
			   "REFUSED(/t.S/M,4) 1:H[" REPLY_HEAD " grpc-status=4 grpc-message=the "
			   "request was not complete in time]E 1:RST(0)");
		end(&f);
	}
}

static void slow_head_or_handshake_ends_the_connection(void **state)
{
	struct fixture f;
	struct uc_buf whole = UC_BUF_INIT;
	uint64_t next;

	(void)state;
	begin(&f);
	assert_int_equal(feed(&f), 0);
	peer_headers(&whole, 1, OK_HEAD, 0);
	uc_buf_append(&f.in, whole.data, whole.len - 1);
	assert_int_equal(feed(&f), 0);
	assert_int_equal(tick(&f, 1000 + STREAM_MS - 1, &next), 0);
	assert_int_equal(tick(&f, 1000 + STREAM_MS, &next), -ETIMEDOUT);
	end(&f);

	begin(&f);
	f.in.len = 30; /* the preface, and not all of SETTINGS */
	assert_int_equal(feed(&f), 0);
	assert_int_equal(tick(&f, 1000 + STREAM_MS - 1, &next), 0);
	assert_int_equal(next, 1000 + STREAM_MS);
	assert_int_equal(tick(&f, 1000 + STREAM_MS, &next), -ETIMEDOUT);
	uc_buf_done(&whole);
	end(&f);
}

static void response_that_is_not_read_is_given_up(void **state)
{
	char *big = calloc(1, 100000);
	struct fixture f;
	uint64_t next;

	(void)state;
	begin(&f);
	send_request(&f, 1, OK_HEAD, "abc");
	assert_int_equal(feed(&f), 0);
	assert_int_equal(uc_h2s_respond(f.h2, 1, make_frame(big, 100000), 100005, f.now), 0);
	drain(&f);
	/* Reading a little of it now and then is not enough. */
	f.now += STREAM_MS - 1;
	peer_u32_frame(&f.in, PEER_WINDOW_UPDATE, 1, 10);
	peer_u32_frame(&f.in, PEER_WINDOW_UPDATE, 0, 10);
	assert_int_equal(feed(&f), 0);
	assert_int_equal(tick(&f, f.now, &next), 0);
	assert_int_equal(next, f.now + 1);
	clear_log(&f);
	assert_int_equal(tick(&f, next, &next), 0);
	assert_log(&f, "1:RST(8)");
	assert_int_equal(uc_h2s_streams(f.h2), 0);
	free(big);
	end(&f);
}

/* ----------------------------------------------------------- connection */

static void anything_but_http2_is_refused(void **state)
{
	static const char *const greetings[] = {
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"\x16\x03\x01\x02",
		"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(greetings); i++) {
		struct fixture f;

		begin(&f);
		uc_buf_clear(&f.in);
		uc_buf_puts(&f.in, greetings[i]);
		assert_int_equal(feed(&f), -EPROTONOSUPPORT);
		end(&f);
	}
}

static void ping_is_answered(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	f.split = 1;
	peer_frame(&f.in, PEER_PING, 0, 0, "12345678", 8);
	assert_int_equal(feed(&f), 0);
	assert_log(&f, "PING-ACK(12345678)");
	end(&f);
}

static void flood_of_pings_without_reading_ends_the_connection(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	for (int i = 0; i < 5000; i++)
		peer_frame(&f.in, PEER_PING, 0, 0, "12345678", 8);
	assert_int_equal(uc_h2s_feed(f.h2, f.in.data, f.in.len, f.now), -EOVERFLOW);
	end(&f);
}

static void continuation_flood_ends_the_connection(void **state)
{
	struct uc_buf block = UC_BUF_INIT;
	struct fixture f;
	int r;

	(void)state;
	begin(&f);
	peer_block(&block, OK_HEAD);
	peer_frame(&f.in, PEER_HEADERS, 0, 1, block.data, block.len);
	for (int i = 0; i < 100; i++)
		peer_frame(&f.in, PEER_CONTINUATION, 0, 1, NULL, 0);
	r = feed(&f);
	assert_true(r < 0 || uc_h2s_is_over(f.h2));
	uc_buf_done(&block);
	end(&f);
}

static void head_may_be_cut_by_continuations(void **state)
{
	struct uc_buf block = UC_BUF_INIT;
	struct fixture f;

	(void)state;
	begin(&f);
	peer_block(&block, OK_HEAD);
	peer_frame(&f.in, PEER_HEADERS, 0, 1, block.data, 10);
	peer_frame(&f.in, PEER_CONTINUATION, 0, 1, block.data + 10, 1);
	peer_frame(&f.in, PEER_CONTINUATION, PEER_END_HEADERS, 1, block.data + 11, block.len - 11);
	peer_frame(&f.in, PEER_DATA, PEER_END_STREAM, 1, "\0\0\0\0\3abc", 8);
	assert_int_equal(feed(&f), 0);
	assert_log(&f, CALL_1);
	uc_buf_done(&block);
	end(&f);
}

static void send_and_reset(struct fixture *f, int n, uint64_t pause_ms, int32_t *id)
{
	for (int i = 0; i < n; i++, *id += 2) {
		peer_headers(&f->in, *id, OK_HEAD, 0);
		peer_u32_frame(&f->in, PEER_RST, *id, NGHTTP2_CANCEL);
		f->now += pause_ms;
		if (feed(f) < 0 || uc_h2s_is_over(f->h2))
			break;
	}
}

static void rapid_reset_ends_the_connection(void **state)
{
	struct fixture f;
	int32_t id = 1;

	(void)state;
	begin(&f);
	send_and_reset(&f, 2000, 0, &id);
	assert_in_range(id, 2 * 500, 2 * 520);
	assert_true(uc_h2s_is_over(f.h2));
	assert_non_null(strstr(uc_buf_str(&f.peer.text), ",11)")); /* ENHANCE_YOUR_CALM */
	end(&f);
}

static void patient_resets_are_allowed_for_ever(void **state)
{
	struct fixture f;
	int32_t id = 1;

	(void)state;
	begin(&f);
	send_and_reset(&f, 5000, 31, &id);
	assert_int_equal(id, 1 + 2 * 5000);
	assert_string_equal(uc_buf_str(&f.peer.text), "");
	end(&f);
}

/* What makes the *server* reset counts as well (CVE-2025-8671). */
static void making_us_reset_ends_the_connection(void **state)
{
	struct fixture f;
	int32_t id;

	(void)state;
	begin(&f);
	for (id = 1; id < 4000; id += 2) {
		peer_headers(&f.in, id, OK_HEAD, 0);
		peer_u32_frame(&f.in, PEER_WINDOW_UPDATE, id, 0x7fffffff);
		if (feed(&f) < 0 || uc_h2s_is_over(f.h2))
			break;
	}
	assert_in_range(id, 2 * 500, 2 * 520);
	assert_true(uc_h2s_is_over(f.h2));
	end(&f);
}

static void streams_are_limited(void **state)
{
	struct fixture f;

	(void)state;
	begin_with(&f, 2);
	f.in.len -= 9; /* the limit is not acknowledged yet: a client may not know it */
	send_request(&f, 1, OK_HEAD, "a");
	send_request(&f, 3, OK_HEAD, "b");
	send_request(&f, 5, OK_HEAD, "c");
	assert_int_equal(feed(&f), 0);
	assert_log(&f, "CALL(1,/t.S/M,1:a) CALL(3,/t.S/M,1:b) 5:RST(7)");
	respond(&f, 1, "x");
	send_request(&f, 7, OK_HEAD, "d");
	drain(&f);
	clear_log(&f);
	assert_int_equal(feed(&f), 0);
	assert_log(&f, "CALL(7,/t.S/M,1:d)");
	assert_int_equal(uc_h2s_streams(f.h2), 2);
	end(&f);
}

static void goaway_of_the_client_with_its_own_stream_does_no_harm(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	f.answer = true;
	send_request(&f, 1, OK_HEAD, "abc");
	assert_int_equal(feed(&f), 0);
	/* grpc-go, when it closes: last-stream-id 1 is no stream of the server's. */
	peer_frame(&f.in, PEER_GOAWAY, 0, 0, "\0\0\0\1\0\0\0\0", 8);
	assert_int_equal(feed(&f), 0);
	assert_true(uc_h2s_is_over(f.h2));
	assert_int_equal(respond(&f, 1, "late"), -ENOENT);
	end(&f);
}

static void goaway_of_the_client_lets_its_calls_end(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	send_request(&f, 1, OK_HEAD, "abc");
	peer_frame(&f.in, PEER_GOAWAY, 0, 0, "\0\0\0\0\0\0\0\0", 8);
	assert_int_equal(feed(&f), 0);
	assert_false(uc_h2s_is_over(f.h2));
	assert_int_equal(respond(&f, 1, "ok"), 0);
	drain(&f);
	assert_log(&f, CALL_1 " 1:H[" REPLY_HEAD "] 1:D(7) 1:H[grpc-status=0]E");
	assert_true(uc_h2s_is_over(f.h2));
	end(&f);
}

static void shutdown_loses_no_request(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	send_request(&f, 1, OK_HEAD, "a");
	assert_int_equal(feed(&f), 0);
	clear_log(&f);
	uc_h2s_shutdown(f.h2, f.now);
	uc_h2s_shutdown(f.h2, f.now);
	drain(&f);
	/* PINGs have a queue of their own, which goes first; the order is of no matter. */
	assert_log(&f, "PING(goaway01) GOAWAY(2147483647,0)");
	/* These requests were on their way when the GOAWAY was; the second overtakes our answer. */
	send_request(&f, 3, OK_HEAD, "b");
	peer_frame(&f.in, PEER_PING, PEER_ACK, 0, "goaway01", 8);
	send_request(&f, 5, OK_HEAD, "c");
	assert_int_equal(feed(&f), 0);
	/* What is served and what the GOAWAY says agree. */
	assert_log(&f, "CALL(3,/t.S/M,1:b) CALL(5,/t.S/M,1:c) GOAWAY(5,0)");
	/* A client that does not listen. */
	send_request(&f, 7, OK_HEAD, "d");
	assert_int_equal(feed(&f), 0);
	assert_log(&f, "");
	respond(&f, 5, "C");
	drain(&f);
	clear_log(&f);
	assert_false(uc_h2s_is_over(f.h2));
	respond(&f, 3, "B");
	respond(&f, 1, "A");
	drain(&f);
	assert_non_null(strstr(uc_buf_str(&f.peer.text), "3:H[grpc-status=0]E"));
	assert_non_null(strstr(uc_buf_str(&f.peer.text), "1:H[grpc-status=0]E"));
	assert_true(uc_h2s_is_over(f.h2));
	end(&f);
}

static void shutdown_does_not_wait_for_ever_for_a_ping(void **state)
{
	struct fixture f;
	uint64_t next;

	(void)state;
	begin(&f);
	assert_int_equal(feed(&f), 0);
	uc_h2s_shutdown(f.h2, f.now);
	drain(&f);
	clear_log(&f);
	assert_int_equal(tick(&f, f.now, &next), 0);
	assert_in_range(next, f.now + 1, f.now + 5000);
	assert_false(uc_h2s_is_over(f.h2));
	assert_int_equal(tick(&f, next, &next), 0);
	assert_log(&f, "GOAWAY(0,0)");
	assert_true(uc_h2s_is_over(f.h2));
	end(&f);
}

/* ----------------------------------------------------------------- fuzz */

/* Valid traffic with bytes flipped, cut and repeated: anything but a crash, a leak, or a hang. */
static void broken_traffic_breaks_nothing(void **state)
{
	(void)state;
	for (unsigned seed = 0; seed < 3000; seed++) {
		struct uc_buf out = UC_BUF_INIT;
		struct fixture f;
		uint64_t next;

		srand(seed);
		begin(&f);
		f.split = 2;
		f.answer = seed % 2;
		send_request(&f, 1, OK_HEAD, "abc");
		peer_u32_frame(&f.in, PEER_WINDOW_UPDATE, 1, 100);
		send_request(&f, 3, HEAD("/t.S/M", "grpc-timeout=10m\ngrpc-encoding=gzip"),
			     "defghi");
		peer_frame(&f.in, PEER_PING, 0, 0, "12345678", 8);
		peer_u32_frame(&f.in, PEER_RST, 3, 8);
		peer_headers(&f.in, 5, OK_HEAD, 0);
		peer_frame(&f.in, PEER_DATA, 0, 5, "\0\0\0\1\0abcdef", 11);
		peer_headers(&f.in, 5, "x=1", PEER_END_STREAM);
		for (int i = rand() % 6; i >= 0; i--)
			f.in.data[24 + (size_t)rand() % (f.in.len - 24)] = (char)rand();
		if (seed % 5 == 0)
			f.in.len = 24 + (size_t)rand() % (f.in.len - 24);
		(void)feed(&f);
		if (seed % 3 == 0)
			uc_h2s_shutdown(f.h2, f.now);
		(void)uc_h2s_drain(f.h2, &out, SIZE_MAX);
		(void)uc_h2s_tick(f.h2, f.now + 2 * STREAM_MS, &next);
		(void)uc_h2s_drain(f.h2, &out, SIZE_MAX);
		uc_buf_done(&out);
		end(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_authority_is_accepted),
		cmocka_unit_test(heads_are_judged_however_they_are_cut),
		cmocka_unit_test(head_that_is_too_large_is_refused_and_not_kept),
		cmocka_unit_test(path_that_is_too_long_is_an_unknown_method),
		cmocka_unit_test(a_body_is_one_message_however_it_is_cut),
		cmocka_unit_test(trailers_must_end_the_request_and_be_fields),
		cmocka_unit_test(large_message_is_refused_before_it_is_buffered),
		cmocka_unit_test(large_message_arrives_whole),
		cmocka_unit_test(bodies_share_one_budget),
		cmocka_unit_test(answer_is_head_message_and_trailers),
		cmocka_unit_test(failure_is_one_frame),
		cmocka_unit_test(long_text_leaves_the_header_block_small),
		cmocka_unit_test(answers_come_in_any_order),
		cmocka_unit_test(second_answer_is_dropped),
		cmocka_unit_test(output_stops_at_what_is_enough),
		cmocka_unit_test(reset_by_the_client_ends_the_call),
		cmocka_unit_test(reset_while_the_answer_is_sent_is_no_loss),
		cmocka_unit_test(end_of_the_connection_ends_its_calls),
		cmocka_unit_test(deadline_is_told_once),
		cmocka_unit_test(deadline_is_answered_even_if_the_owner_does_not),
		cmocka_unit_test(slow_request_is_given_up),
		cmocka_unit_test(slow_head_or_handshake_ends_the_connection),
		cmocka_unit_test(response_that_is_not_read_is_given_up),
		cmocka_unit_test(anything_but_http2_is_refused),
		cmocka_unit_test(ping_is_answered),
		cmocka_unit_test(flood_of_pings_without_reading_ends_the_connection),
		cmocka_unit_test(continuation_flood_ends_the_connection),
		cmocka_unit_test(head_may_be_cut_by_continuations),
		cmocka_unit_test(rapid_reset_ends_the_connection),
		cmocka_unit_test(patient_resets_are_allowed_for_ever),
		cmocka_unit_test(making_us_reset_ends_the_connection),
		cmocka_unit_test(streams_are_limited),
		cmocka_unit_test(goaway_of_the_client_with_its_own_stream_does_no_harm),
		cmocka_unit_test(goaway_of_the_client_lets_its_calls_end),
		cmocka_unit_test(shutdown_loses_no_request),
		cmocka_unit_test(shutdown_does_not_wait_for_ever_for_a_ping),
		cmocka_unit_test(broken_traffic_breaks_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
