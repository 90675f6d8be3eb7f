/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/rpc/grpc.h"
#include "lib/rpc/h2_client.h"
#include "lib/rpc/h2_server.h"
#include "lib/rpc/status.h"
#include "tests/lib/h2_peer.h"

enum {
	MAX_MESSAGE_BYTES = 200000,
};

/* A client, and a server made by hand at the other end. */
struct fixture {
	struct uc_h2c *h2;
	struct peer_reader peer;
	struct uc_buf in;
};

static uint8_t *make_frame(const char *s, size_t n)
{
	uint8_t *p = malloc(UC_GRPC_PREFIX + n);

	uc_grpc_put_prefix(p, (uint32_t)n);
	memcpy(p + UC_GRPC_PREFIX, s, n);
	return p;
}

static int start(struct uc_h2c *h2, uint64_t timeout_ms)
{
	return uc_h2c_start(h2, "/t.S/M", timeout_ms, make_frame("abc", 3), 8);
}

static void begin(struct fixture *f)
{
	*f = (struct fixture){ .h2 = NULL };
	peer_reader_init(&f->peer);
	assert_int_equal(uc_h2c_new(MAX_MESSAGE_BYTES, &f->h2), 0);
	peer_hello(&f->in, false);
}

static void end(struct fixture *f)
{
	uc_h2c_free(f->h2);
	peer_reader_done(&f->peer);
	uc_buf_done(&f->in);
}

static int feed(struct fixture *f)
{
	int r = 0;

	/* Byte by byte, always: what the cuts are must not matter. */
	for (size_t i = 0; r == 0 && i < f->in.len; i++)
		r = uc_h2c_feed(f->h2, f->in.data + i, 1);
	uc_buf_clear(&f->in);
	return r;
}

static void drain(struct fixture *f)
{
	cleanup_buf struct uc_buf out = UC_BUF_INIT;
	size_t skip = 24; /* the preface */

	assert_int_equal(uc_h2c_drain(f->h2, &out, SIZE_MAX), 0);
	if (out.len < skip || memcmp(out.data, "PRI * HTTP/2.0", 14) != 0)
		skip = 0;
	peer_read(&f->peer, out.data + skip, out.len - skip);
}

static void request_is_what_servers_expect(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	assert_int_equal(start(f.h2, 15000), 0);
	drain(&f);
	assert_string_equal(uc_buf_str(&f.peer.text),
			    "1:H[:method=POST :scheme=http :path=/t.S/M :authority=localhost "
			    "te=trailers content-type=application/grpc user-agent=union-csi "
			    "grpc-timeout=15000m] 1:D(8)E");
	assert_memory_equal(f.peer.data.data, "\0\0\0\0\3abc", 8);
	end(&f);
	begin(&f);
	assert_int_equal(start(f.h2, 0), 0);
	drain(&f);
	assert_null(strstr(f.peer.text.data, "grpc-timeout"));
	end(&f);
}

struct answer_case {
	const char *name;
	const char *head; /* NULL: none; with END_STREAM if there is nothing else */
	const char *body;
	size_t n_body;
	const char *trailers; /* NULL: none */
	int rst;              /* -1: none */
	int r, status;
	const char *msg; /* or the message of the response */
};

#define GOOD ":status=200\ncontent-type=application/grpc"

static const struct answer_case answers[] = {
	{ "a message", GOOD, "\0\0\0\0\2ok", 7, "grpc-status=0", -1, 0, 0, "ok" },
	{ "an empty message", GOOD, "\0\0\0\0\0", 5, "grpc-status=0", -1, 0, 0, "" },
	{ "identity", GOOD "\ngrpc-encoding=identity", "\0\0\0\0\2ok", 7, "grpc-status=0", -1, 0, 0,
	  "ok" },
	{ "a status at once", GOOD "\ngrpc-status=9\ngrpc-message=weg%0A%C3%A4", "", 0, NULL, -1,
	  -EPROTO, UC_GRPC_FAILED_PRECONDITION, "weg\n\xc3\xa4" },
	{ "a status behind a message", GOOD, "\0\0\0\0\2ok", 7, "grpc-status=10\ngrpc-message=busy",
	  -1, -EPROTO, UC_GRPC_ABORTED, "busy" },
	{ "a status without a text", GOOD "\ngrpc-status=5", "", 0, NULL, -1, -EPROTO,
	  UC_GRPC_NOT_FOUND, "NOT_FOUND" },
	{ "an unknown status", GOOD "\ngrpc-status=77", "", 0, NULL, -1, -EPROTO, UC_GRPC_UNKNOWN,
	  "UNKNOWN" },
	{ "no number", GOOD "\ngrpc-status=zero", "", 0, NULL, -1, -EPROTO, UC_GRPC_UNKNOWN,
	  "UNKNOWN" },
	{ "no message", GOOD "\ngrpc-status=0", "", 0, NULL, -1, -ECONNRESET, UC_GRPC_INTERNAL,
	  "the answer: a unary call has one message, but none was sent" },
	{ "two messages", GOOD, "\0\0\0\0\1a\0\0\0\0\1b", 12, "grpc-status=0", -1, -ECONNRESET,
	  UC_GRPC_INTERNAL,
	  "the answer: a unary call has one message, but more than one was sent" },
	{ "half a message", GOOD, "\0\0\0\0\2o", 6, "grpc-status=0", -1, -ECONNRESET,
	  UC_GRPC_INTERNAL, "the answer: the message was cut short" },
	{ "compressed", GOOD "\ngrpc-encoding=gzip", "\1\0\0\0\2ok", 7, "grpc-status=0", -1,
	  -ECONNRESET, UC_GRPC_UNIMPLEMENTED,
	  "the answer: the message is compressed; only identity is understood" },
	{ "too large", GOOD, "\0\1\0\0\0x", 6, NULL, -1, -ECONNRESET, UC_GRPC_RESOURCE_EXHAUSTED,
	  "the answer: the message has 16777216 bytes; at most 200000 are accepted" },
	{ "no status", GOOD, "\0\0\0\0\2ok", 7, "x=1", -1, -ECONNRESET, UC_GRPC_INTERNAL,
	  "the answer has no grpc-status" },
	{ "a proxy's answer", ":status=503\ncontent-type=text/html", "<html>", 6, "x=1", -1,
	  -EPROTO, UC_GRPC_UNAVAILABLE, "the server has answered with HTTP status 503" },
	{ "not gRPC", ":status=415", "", 0, NULL, -1, -EPROTO, UC_GRPC_UNKNOWN,
	  "the server has answered with HTTP status 415" },
	{ "a reset", NULL, "", 0, NULL, NGHTTP2_INTERNAL_ERROR, -ECONNRESET, UC_GRPC_INTERNAL,
	  "the server has reset the call: INTERNAL_ERROR" },
	{ "refused", NULL, "", 0, NULL, NGHTTP2_REFUSED_STREAM, -ECONNRESET, UC_GRPC_UNAVAILABLE,
	  "the server has reset the call: REFUSED_STREAM" },
	{ "a reset half-way", GOOD, "\0\0\0\0\2o", 6, NULL, NGHTTP2_CANCEL, -ECONNRESET,
	  UC_GRPC_CANCELLED, "the server has reset the call: CANCEL" },
	{ "an answer, then a reset", GOOD "\ngrpc-status=8\ngrpc-message=too much", "", 0, NULL,
	  NGHTTP2_NO_ERROR, -EPROTO, UC_GRPC_RESOURCE_EXHAUSTED, "too much" },
};

static void send_answer(struct fixture *f, int32_t stream, const struct answer_case *c)
{
	bool more = c->n_body || c->trailers || (c->rst > 0);

	if (c->head)
		peer_headers(&f->in, stream, c->head, more ? 0 : PEER_END_STREAM);
	for (size_t i = 0; i < c->n_body; i++)
		peer_frame(&f->in, PEER_DATA, 0, stream, c->body + i, 1);
	if (c->trailers)
		peer_headers(&f->in, stream, c->trailers, PEER_END_STREAM);
	if (c->rst >= 0)
		peer_u32_frame(&f->in, PEER_RST, stream, (uint32_t)c->rst);
}

static void every_answer_is_understood_and_the_connection_goes_on(void **state)
{
	struct fixture f;
	int32_t stream = 1;

	(void)state;
	begin(&f);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(answers); i++, stream += 2) {
			const struct answer_case *c = &answers[i];
			struct uc_err err = { 0 };
			uint8_t *data = NULL;
			size_t n = 0;

			assert_int_equal(start(f.h2, 0), 0);
			drain(&f);
			assert_false(uc_h2c_has_ended(f.h2));
			send_answer(&f, stream, c);
			assert_int_equal(feed(&f), 0);
			drain(&f); /* our own reset, of what is too large */
			assert_true(uc_h2c_has_ended(f.h2));
			if (uc_h2c_result(f.h2, &data, &n, &err) != c->r)
				print_error("case: %s: %s\n", c->name, err.msg);
			assert_int_equal(err.num, -c->r);
			assert_int_equal(err.status, c->status);
			if (c->r == 0) {
				assert_int_equal(n, strlen(c->msg));
				assert_memory_equal(n ? (char *)data : "", c->msg, n);
			} else {
				assert_string_equal(err.msg, c->msg);
			}
			free(data);
			assert_true(uc_h2c_is_usable(f.h2));
		}
	}
	end(&f);
}

static void goaway_ends_the_connection_but_not_the_call(void **state)
{
	struct fixture f;
	struct uc_err err = { 0 };
	uint8_t *data = NULL;
	size_t n;

	(void)state;
	begin(&f);
	assert_int_equal(start(f.h2, 0), 0);
	drain(&f);
	peer_frame(&f.in, PEER_GOAWAY, 0, 0, "\0\0\0\1\0\0\0\0", 8);
	assert_int_equal(feed(&f), 0);
	assert_false(uc_h2c_is_usable(f.h2));
	assert_false(uc_h2c_has_ended(f.h2));
	send_answer(&f, 1, &answers[0]);
	assert_int_equal(feed(&f), 0);
	assert_true(uc_h2c_has_ended(f.h2));
	assert_int_equal(uc_h2c_result(f.h2, &data, &n, &err), 0);
	free(data);
	assert_int_equal(start(f.h2, 0), -ENOTCONN);
	assert_true(uc_h2c_has_ended(f.h2));
	end(&f);
}

static void call_that_a_goaway_leaves_out_was_not_served(void **state)
{
	struct fixture f;
	struct uc_err err = { 0 };
	uint8_t *data;
	size_t n;

	(void)state;
	begin(&f);
	assert_int_equal(start(f.h2, 0), 0);
	drain(&f);
	peer_frame(&f.in, PEER_GOAWAY, 0, 0, "\0\0\0\0\0\0\0\0", 8);
	assert_int_equal(feed(&f), 0);
	assert_true(uc_h2c_has_ended(f.h2));
	assert_int_equal(uc_h2c_result(f.h2, &data, &n, &err), -ECONNRESET);
	assert_int_equal(err.status, UC_GRPC_UNAVAILABLE);
	end(&f);
}

static void cancelled_call_does_not_disturb_the_next(void **state)
{
	struct fixture f;
	struct uc_err err = { 0 };
	uint8_t *data = NULL;
	size_t n;

	(void)state;
	begin(&f);
	assert_int_equal(start(f.h2, 0), 0);
	drain(&f);
	uc_h2c_cancel(f.h2);
	/* The next begins before the reset was sent; then the late answer comes. */
	assert_int_equal(start(f.h2, 0), 0);
	uc_buf_clear(&f.peer.text);
	drain(&f);
	assert_non_null(strstr(f.peer.text.data, "1:RST(8)"));
	send_answer(&f, 1, &answers[3]);
	assert_int_equal(feed(&f), 0);
	assert_false(uc_h2c_has_ended(f.h2));
	send_answer(&f, 3, &answers[0]);
	assert_int_equal(feed(&f), 0);
	assert_int_equal(uc_h2c_result(f.h2, &data, &n, &err), 0);
	assert_memory_equal(data, "ok", 2);
	free(data);
	end(&f);
}

static void cancelled_before_it_was_sent_is_no_trouble(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f);
	assert_int_equal(start(f.h2, 0), 0);
	uc_h2c_cancel(f.h2);
	assert_int_equal(start(f.h2, 0), 0);
	drain(&f);
	assert_null(strstr(f.peer.text.data, "1:D"));
	assert_non_null(strstr(f.peer.text.data, "3:D(8)E"));
	end(&f);
}

/* --------------------------------------- our client against our server */

struct pair {
	struct uc_budget budget;
	struct uc_h2s *server;
	struct uc_h2c *client;
};

static const void *on_route(void *data, const char *path)
{
	(void)data;
	return strcmp(path, "/t.S/M") == 0 ? "M" : NULL;
}

static void on_request(void *data, const struct uc_h2s_request *req)
{
	struct pair *p = data;

	/* An echo; of nothing, a failure. */
	if (req->n == 0)
		uc_h2s_fail(p->server, req->stream, UC_GRPC_NOT_FOUND, "nothing", 1);
	else
		uc_h2s_respond(p->server, req->stream, make_frame((char *)req->msg, req->n),
			       UC_GRPC_PREFIX + req->n, 1);
	free(req->msg);
	uc_budget_give(&p->budget, req->n);
}

static void on_gone(void *data, int32_t stream, void *token)
{
	(void)data;
	(void)stream;
	(void)token;
}

static void on_refused(void *data, const void *route, int status)
{
	(void)data;
	(void)route;
	(void)status;
}

static const struct uc_h2s_ops ops = {
	.route = on_route,
	.request = on_request,
	.expired = on_gone,
	.gone = on_gone,
	.refused = on_refused,
};

static void pair_begin(struct pair *p)
{
	struct uc_h2s_config config = {
		.ops = &ops,
		.data = p,
		.budget = &p->budget,
		.max_streams = 10,
		.max_header_bytes = 8192,
		.max_message_bytes = 100000,
		.stream_ms = 1000,
	};

	*p = (struct pair){ .budget.max = 1 << 20 };
	assert_int_equal(uc_h2s_new(&config, 1, &p->server), 0);
	assert_int_equal(uc_h2c_new(MAX_MESSAGE_BYTES, &p->client), 0);
}

/* Passes bytes to and fro, in pieces of random sizes, until the call has ended. */
static void pair_run(struct pair *p)
{
	struct uc_buf up = UC_BUF_INIT, down = UC_BUF_INIT;

	while (!uc_h2c_has_ended(p->client)) {
		size_t n;

		assert_int_equal(uc_h2c_drain(p->client, &up, 1), 0);
		n = up.len ? 1 + (size_t)rand() % up.len : 0;
		assert_int_equal(uc_h2s_feed(p->server, up.data, n, 1), 0);
		uc_buf_consume(&up, n);
		assert_int_equal(uc_h2s_drain(p->server, &down, 1), 0);
		n = down.len ? 1 + (size_t)rand() % down.len : 0;
		assert_int_equal(uc_h2c_feed(p->client, down.data, n), 0);
		uc_buf_consume(&down, n);
	}
	/* What is still on its way arrives as well. */
	assert_int_equal(uc_h2c_drain(p->client, &up, SIZE_MAX), 0);
	assert_int_equal(uc_h2s_feed(p->server, up.data, up.len, 1), 0);
	assert_int_equal(uc_h2s_drain(p->server, &down, SIZE_MAX), 0);
	assert_int_equal(uc_h2c_feed(p->client, down.data, down.len), 0);
	uc_buf_done(&up);
	uc_buf_done(&down);
}

static void both_ends_understand_each_other(void **state)
{
	static char msg[120000];
	struct pair p;

	(void)state;
	srand(1);
	for (size_t i = 0; i < sizeof(msg); i++)
		msg[i] = (char)rand();
	pair_begin(&p);
	for (int i = 0; i < 300; i++) {
		size_t n = (size_t)rand() % (i % 10 ? 200 : sizeof(msg)), back_n = 0;
		struct uc_err err = { 0 };
		uint8_t *back = NULL;
		int r;

		if (i % 7 == 0)
			n = 0;
		assert_int_equal(uc_h2c_start(p.client, i % 13 ? "/t.S/M" : "/x", 0,
					      make_frame(msg, n), UC_GRPC_PREFIX + n),
				 0);
		pair_run(&p);
		r = uc_h2c_result(p.client, &back, &back_n, &err);
		if (i % 13 == 0) {
			assert_int_equal(err.status, UC_GRPC_UNIMPLEMENTED);
		} else if (n == 0) {
			assert_int_equal(err.status, UC_GRPC_NOT_FOUND);
			assert_string_equal(err.msg, "nothing");
		} else if (n > 100000) {
			assert_int_equal(err.status, UC_GRPC_RESOURCE_EXHAUSTED);
		} else {
			assert_int_equal(r, 0);
			assert_int_equal(back_n, n);
			assert_memory_equal(back, msg, n);
		}
		free(back);
		assert_int_equal(uc_h2s_streams(p.server), 0);
		assert_int_equal(p.budget.used, 0);
	}
	uc_h2c_free(p.client);
	uc_h2s_free(p.server);
}

static void broken_answers_break_nothing(void **state)
{
	(void)state;
	for (unsigned seed = 0; seed < 3000; seed++) {
		struct fixture f;
		struct uc_err err = { 0 };
		struct uc_buf out = UC_BUF_INIT;
		uint8_t *data = NULL;
		size_t n;

		srand(seed);
		begin(&f);
		assert_int_equal(start(f.h2, 0), 0);
		drain(&f);
		peer_frame(&f.in, PEER_PING, 0, 0, "12345678", 8);
		send_answer(&f, 1, &answers[seed % ARRAY_SIZE(answers)]);
		peer_frame(&f.in, PEER_GOAWAY, 0, 0, "\0\0\0\1\0\0\0\0text", 12);
		for (int i = rand() % 5; i >= 0; i--)
			f.in.data[(size_t)rand() % f.in.len] = (char)rand();
		(void)feed(&f);
		(void)uc_h2c_drain(f.h2, &out, SIZE_MAX);
		if (uc_h2c_has_ended(f.h2))
			(void)uc_h2c_result(f.h2, &data, &n, &err);
		free(data);
		uc_buf_done(&out);
		end(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(request_is_what_servers_expect),
		cmocka_unit_test(every_answer_is_understood_and_the_connection_goes_on),
		cmocka_unit_test(goaway_ends_the_connection_but_not_the_call),
		cmocka_unit_test(call_that_a_goaway_leaves_out_was_not_served),
		cmocka_unit_test(cancelled_call_does_not_disturb_the_next),
		cmocka_unit_test(cancelled_before_it_was_sent_is_no_trouble),
		cmocka_unit_test(both_ends_understand_each_other),
		cmocka_unit_test(broken_answers_break_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
