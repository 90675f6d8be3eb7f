/* SPDX-License-Identifier: Apache-2.0 */

/* A server on top of lib/rpc, for tests: see usage(). */

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "echo.pb-c.h"
#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/os/clock.h"
#include "lib/rpc/http.h"
#include "lib/rpc/loop.h"
#include "lib/rpc/server.h"

enum {
	STEP_MS = 20,
	MAX_SOCKETS = 4,
};

struct program {
	struct uc_server_config config;
	const char *sockets[MAX_SOCKETS];
	size_t n_sockets;
	const char *http;
	uint64_t grace_ms, max_fds, linger;
	struct uc_loop *loop;
	struct uc_server *server;
	struct uc_source signals;
	uint64_t done[UC_GRPC_STATUS_COUNT]; /* on_done(), by status */
	uint64_t unknown;                    /* of them, without a method */
	uint64_t sleeps;                     /* atomic */
};

static const char *key_or_null(const char *key)
{
	return *key ? key : NULL;
}

static int do_echo(struct uc_call *call, const void *req, void *resp)
{
	const Uc__Test__V1__EchoRequest *in = req;
	Uc__Test__V1__EchoResponse *out = resp;

	out->text = in->text;
	out->data = in->data;
	if (in->raw_text.len > 0) {
		char *text = uc_call_alloc(call, in->raw_text.len + 1);

		if (!text)
			return uc_call_fail(call, UC_GRPC_UNAVAILABLE, "out of memory");
		memcpy(text, in->raw_text.data, in->raw_text.len);
		out->text = text;
	}
	if (in->fill > 0) {
		out->data.data = uc_call_alloc(call, in->fill);
		if (!out->data.data)
			return uc_call_fail(call, UC_GRPC_UNAVAILABLE, "out of memory");
		out->data.len = in->fill;
	}
	return 0;
}

static int do_fail(struct uc_call *call, const void *req, void *resp)
{
	const Uc__Test__V1__FailRequest *in = req;

	(void)resp;
	if (in->raw_message.len > 0)
		return uc_call_fail(call, in->code, "%.*s", (int)in->raw_message.len,
				    (const char *)in->raw_message.data);
	if (in->code == 0)
		return -1;
	return uc_call_fail(call, in->code, "%s", in->message);
}

static int do_sleep(struct uc_call *call, const void *req, void *resp)
{
	const Uc__Test__V1__SleepRequest *in = req;
	Uc__Test__V1__SleepResponse *out = resp;
	struct program *p = uc_call_data(call);
	uint64_t begun = uc_now_ms();

	out->serial = __atomic_add_fetch(&p->sleeps, 1, __ATOMIC_RELAXED);
	while (uc_now_ms() - begun < in->ms) {
		if (uc_call_step(call, "%s", in->step) < 0)
			return uc_call_fail(call, UC_GRPC_ABORTED, "taken for hung");
		uc_sleep_ms(STEP_MS);
	}
	return 0;
}

static int do_hang(struct uc_call *call, const void *req, void *resp)
{
	const Uc__Test__V1__HangRequest *in = req;
	Uc__Test__V1__HangResponse *out = resp;

	(void)uc_call_step(call, "hang for %llu ms", (unsigned long long)in->ms);
	uc_sleep_ms(in->ms);
	out->lost = uc_call_step(call, "wake up") < 0;
	return 0;
}

static const char *sleep_key(const void *req)
{
	return key_or_null(((const Uc__Test__V1__SleepRequest *)req)->key);
}

static const char *hang_key(const void *req)
{
	return key_or_null(((const Uc__Test__V1__HangRequest *)req)->key);
}

static const struct uc_rpc_method methods[] = {
	{ "Echo", do_echo, NULL },
	{ "Fail", do_fail, NULL },
	{ "Hang", do_hang, hang_key },
	{ "Sleep", do_sleep, sleep_key },
};

static void on_done(void *data, const char *service, const char *method, int status, uint64_t usec)
{
	struct program *p = data;

	(void)usec;
	p->done[status]++;
	if (!*service || !*method)
		p->unknown++;
}

static int http_health(void *data, struct uc_buf *body, const char **ret_type)
{
	(void)data;
	(void)ret_type;
	uc_buf_puts(body, "ok\n");
	return 200;
}

/* Not a second truth about memory: what a test wants to watch while the server runs. */
static int http_stats(void *data, struct uc_buf *body, const char **ret_type)
{
	struct program *p = data;

	*ret_type = "application/json";
	uc_buf_printf(body, "{\"busy\":%u,\"hung\":%u,\"unknown\":%llu,\"done\":{",
		      uc_server_busy(p->server), uc_server_hung(p->server),
		      (unsigned long long)p->unknown);
	for (int i = 0; i < UC_GRPC_STATUS_COUNT; i++)
		uc_buf_printf(body, "%s\"%s\":%llu", i ? "," : "", uc_grpc_status_to_str(i),
			      (unsigned long long)p->done[i]);
	uc_buf_puts(body, "}}\n");
	return 200;
}

static int http_large(void *data, struct uc_buf *body, const char **ret_type)
{
	(void)data;
	(void)ret_type;
	for (int i = 0; i < 200000; i++)
		uc_buf_puts(body, "0123456789");
	return 200;
}

static int http_down(void *data, struct uc_buf *body, const char **ret_type)
{
	(void)data;
	(void)body;
	(void)ret_type;
	return 503;
}

static const struct uc_http_route routes[] = {
	{ "/down", http_down },
	{ "/healthz", http_health },
	{ "/large", http_large },
	{ "/stats", http_stats },
};

static void drained(void *data)
{
	struct program *p = data;

	uc_server_free(p->server);
	p->server = NULL;
	uc_loop_stop(p->loop);
}

static void on_signal(struct uc_source *s, uint32_t revents)
{
	struct program *p = uc_container_of(s, struct program, signals);
	struct signalfd_siginfo info;

	(void)revents;
	if (read(s->fd, &info, sizeof(info)) == sizeof(info))
		uc_server_shutdown(p->server, p->grace_ms, drained, p);
}

static int watch_signals(struct program *p)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	p->signals = (struct uc_source){
		.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
		.events = EPOLLIN,
		.fn = on_signal,
	};
	return p->signals.fd < 0 ? -errno : uc_loop_add(p->loop, &p->signals);
}

static int usage(void)
{
	fprintf(stderr,
		"usage: echo_server --socket PATH... [--http ADDRESS] [--debug]\n"
		"       [--workers N] [--max-workers N] [--max-queue N] [--max-connections N]\n"
		"       [--max-streams N] [--max-header-bytes N] [--max-message-bytes N]\n"
		"       [--max-memory-bytes N] [--idle-ms N] [--stream-ms N] [--hang-ms N]\n"
		"       [--grace-ms N] [--max-fds N]\n"
		"Prints `ready` when it serves; SIGTERM stops it gracefully.\n");
	return 2;
}

static const struct option options[] = {
	{ "socket", required_argument, NULL, 's' },
	{ "http", required_argument, NULL, 'h' },
	{ "debug", no_argument, NULL, 'd' },
	{ "workers", required_argument, NULL, 1 },
	{ "max-workers", required_argument, NULL, 2 },
	{ "max-queue", required_argument, NULL, 3 },
	{ "max-connections", required_argument, NULL, 4 },
	{ "max-streams", required_argument, NULL, 5 },
	{ "max-header-bytes", required_argument, NULL, 6 },
	{ "max-message-bytes", required_argument, NULL, 7 },
	{ "max-memory-bytes", required_argument, NULL, 8 },
	{ "idle-ms", required_argument, NULL, 9 },
	{ "stream-ms", required_argument, NULL, 10 },
	{ "hang-ms", required_argument, NULL, 11 },
	{ "grace-ms", required_argument, NULL, 12 },
	{ "max-fds", required_argument, NULL, 13 },
	{ 0 },
};

static void set_limit(struct program *p, int which, uint64_t v)
{
	struct uc_server_config *c = &p->config;
	unsigned *small[] = { NULL,
			      &c->workers,
			      &c->max_workers,
			      &c->max_queue,
			      &c->max_connections,
			      &c->max_streams,
			      &c->max_header_bytes };
	uint64_t *large[] = { &c->idle_ms, &c->stream_ms, &c->hang_ms, &p->grace_ms, &p->max_fds };

	if (which < 7)
		*small[which] = (unsigned)v;
	else if (which == 7)
		c->max_message_bytes = v;
	else if (which == 8)
		c->max_memory_bytes = v;
	else
		*large[which - 9] = v;
}

static bool parse_options(struct program *p, int argc, char **argv)
{
	uint64_t v;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == '?') {
			return false;
		} else if (c == 's' && p->n_sockets < MAX_SOCKETS) {
			p->sockets[p->n_sockets++] = optarg;
		} else if (c == 'h') {
			p->http = optarg;
		} else if (c == 'd') {
			uc_log_init(UC_LOG_DEBUG, UC_LOG_TEXT);
		} else {
			if (uc_str_parse_u64(optarg, UINT64_MAX, &v) < 0)
				return false;
			set_limit(p, c, v);
		}
	}
	return optind == argc && p->n_sockets > 0;
}

static int serve(struct program *p, struct uc_err *err)
{
	struct uc_rpc_service services[] = {
		{ &uc__test__v1__echo__descriptor, methods, ARRAY_SIZE(methods), p },
	};
	cleanup_with(uc_http_freep) struct uc_http *http = NULL;
	int r;

	p->config.on_done = on_done;
	p->config.on_done_data = p;
	r = uc_server_new(p->loop, &p->config, &p->server);
	if (r < 0)
		return uc_fail(err, -r, "make a server");
	for (size_t i = 0; i < p->n_sockets; i++) {
		r = uc_server_listen_unix(p->server, p->sockets[i], services, ARRAY_SIZE(services),
					  err);
		if (r < 0)
			return r;
	}
	if (p->http) {
		r = uc_http_listen(p->loop, p->http, routes, ARRAY_SIZE(routes), p, &http, err);
		if (r < 0)
			return r;
	}
	puts("ready");
	fflush(stdout);
	r = uc_loop_run(p->loop);
	return r < 0 ? uc_fail(err, -r, "run the loop") : 0;
}

int main(int argc, char **argv)
{
	struct program p = { .grace_ms = 5000 };
	struct uc_err err = { 0 };
	int r;

	if (!parse_options(&p, argc, argv))
		return usage();
	if (p.max_fds) {
		struct rlimit limit = { p.max_fds, p.max_fds };

		setrlimit(RLIMIT_NOFILE, &limit);
	}
	r = uc_loop_new(&p.loop);
	if (r == 0)
		r = watch_signals(&p);
	if (r == 0)
		r = serve(&p, &err);
	if (r < 0)
		fprintf(stderr, "echo_server: %s\n", err.num ? err.msg : strerrordesc_np(-r));
	uc_server_free(p.server);
	uc_loop_free(p.loop);
	return r < 0 ? 1 : 0;
}
