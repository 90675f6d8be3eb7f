/* SPDX-License-Identifier: Apache-2.0 */

/* A client on top of lib/rpc, for tests and measurements: see usage(). */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echo.pb-c.h"
#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/os/clock.h"
#include "lib/rpc/client.h"

static int usage(void)
{
	fprintf(stderr, "usage: echo_client ENDPOINT bench CALLS\n"
			"       echo_client ENDPOINT echo TEXT [TIMEOUT_MS]\n"
			"       echo_client ENDPOINT fill BYTES\n"
			"       echo_client ENDPOINT fail CODE MESSAGE\n"
			"       echo_client ENDPOINT sleep KEY MS TIMEOUT_MS\n"
			"       echo_client ENDPOINT missing\n"
			"       echo_client ENDPOINT repeat    # one call for each line of "
			"standard input\n");
	return 2;
}

static void progress(void *data, uint64_t ms)
{
	(void)data;
	fprintf(stderr, "progress %llu\n", (unsigned long long)ms);
}

static int call(struct uc_client *c, const char *method, const ProtobufCMessage *req,
		uint64_t timeout_ms, ProtobufCMessage **ret, struct uc_err *err)
{
	return uc_client_call(c, &uc__test__v1__echo__descriptor, method, req, timeout_ms, ret,
			      err);
}

static int do_echo(struct uc_client *c, const char *text, uint64_t fill, uint64_t timeout_ms,
		   struct uc_err *err)
{
	Uc__Test__V1__EchoRequest req = UC__TEST__V1__ECHO_REQUEST__INIT;
	Uc__Test__V1__EchoResponse *echo;
	ProtobufCMessage *resp;
	int r;

	req.text = (char *)(uintptr_t)text;
	req.fill = fill;
	r = call(c, "Echo", &req.base, timeout_ms, &resp, err);
	if (r < 0)
		return r;
	echo = (Uc__Test__V1__EchoResponse *)resp;
	if (fill)
		printf("%zu\n", echo->data.len);
	else
		printf("%s\n", echo->text);
	fflush(stdout);
	protobuf_c_message_free_unpacked(resp, NULL);
	return 0;
}

static int do_bench(struct uc_client *c, uint64_t calls, struct uc_err *err)
{
	Uc__Test__V1__EchoRequest req = UC__TEST__V1__ECHO_REQUEST__INIT;
	uint64_t begun = uc_now_ms(), ms;
	char text[] = "/var/lib/kubelet/plugins/kubernetes.io/csi/union.csi.union.io/globalmount";

	req.text = text;
	for (uint64_t i = 0; i < calls; i++) {
		ProtobufCMessage *resp;
		int r = call(c, "Echo", &req.base, 0, &resp, err);

		if (r < 0)
			return r;
		protobuf_c_message_free_unpacked(resp, NULL);
	}
	ms = uc_now_ms() - begun;
	printf("%llu calls in %llu ms: %llu calls/s\n", (unsigned long long)calls,
	       (unsigned long long)ms, (unsigned long long)(ms ? calls * 1000 / ms : 0));
	return 0;
}

static int do_fail(struct uc_client *c, uint64_t code, const char *message, struct uc_err *err)
{
	Uc__Test__V1__FailRequest req = UC__TEST__V1__FAIL_REQUEST__INIT;
	ProtobufCMessage *resp;

	req.code = (int32_t)code;
	req.message = (char *)(uintptr_t)message;
	return call(c, "Fail", &req.base, 0, &resp, err);
}

static int do_sleep(struct uc_client *c, const char *key, uint64_t ms, uint64_t timeout_ms,
		    struct uc_err *err)
{
	Uc__Test__V1__SleepRequest req = UC__TEST__V1__SLEEP_REQUEST__INIT;
	ProtobufCMessage *resp;
	int r;

	uc_client_set_progress(c, progress, NULL);
	req.key = (char *)(uintptr_t)key;
	req.ms = ms;
	r = call(c, "Sleep", &req.base, timeout_ms, &resp, err);
	if (r == 0) {
		printf("%llu\n", (unsigned long long)((Uc__Test__V1__SleepResponse *)resp)->serial);
		protobuf_c_message_free_unpacked(resp, NULL);
	}
	return r;
}

static int do_missing(struct uc_client *c, struct uc_err *err)
{
	Uc__Test__V1__EchoRequest req = UC__TEST__V1__ECHO_REQUEST__INIT;
	ProtobufCMessage *resp;

	return call(c, "Missing", &req.base, 0, &resp, err);
}

static int do_repeat(struct uc_client *c)
{
	char line[1024];

	while (fgets(line, sizeof(line), stdin)) {
		struct uc_err err = { 0 };

		line[strcspn(line, "\n")] = '\0';
		if (do_echo(c, line, 0, 0, &err) < 0)
			printf("%s: %s\n", uc_grpc_status_to_str(err.status), err.msg);
		fflush(stdout);
	}
	return 0;
}

static uint64_t number(const char *s)
{
	uint64_t v = 0;

	if (s && uc_str_parse_u64(s, UINT64_MAX, &v) < 0)
		exit(usage());
	return v;
}

int main(int argc, char **argv)
{
	cleanup_with(uc_client_closep) struct uc_client *c = NULL;
	const char *what = argc > 2 ? argv[2] : "";
	struct uc_err err = { 0 };
	int r;

	if (argc < 3)
		return usage();
	r = uc_client_open(argv[1], &c, &err);
	if (r < 0)
		goto out;
	if (strcmp(what, "bench") == 0 && argc == 4)
		r = do_bench(c, number(argv[3]), &err);
	else if (strcmp(what, "echo") == 0 && (argc == 4 || argc == 5))
		r = do_echo(c, argv[3], 0, number(argv[4]), &err);
	else if (strcmp(what, "fill") == 0 && argc == 4)
		r = do_echo(c, argv[3], number(argv[3]), 0, &err);
	else if (strcmp(what, "fail") == 0 && argc == 5)
		r = do_fail(c, number(argv[3]), argv[4], &err);
	else if (strcmp(what, "sleep") == 0 && argc == 6)
		r = do_sleep(c, argv[3], number(argv[4]), number(argv[5]), &err);
	else if (strcmp(what, "missing") == 0)
		r = do_missing(c, &err);
	else if (strcmp(what, "repeat") == 0)
		r = do_repeat(c);
	else
		return usage();
out:
	if (r < 0)
		printf("%s %s: %s\n", strerrorname_np(-r), uc_grpc_status_to_str(err.status),
		       err.msg);
	return r < 0 ? 1 : 0;
}
