/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/os/clock.h"
#include "lib/rpc/grpc.h"
#include "lib/rpc/job.h"
#include "lib/rpc/pbcheck.h"

enum {
	MESSAGE_SIZE = 1024,
};

void *uc_call_data(const struct uc_call *call)
{
	return call->service->data;
}

const char *uc_call_method(const struct uc_call *call)
{
	return call->method->name;
}

void *uc_call_alloc(struct uc_call *call, size_t n)
{
	return uc_arena_alloc(&call->arena, n);
}

char *uc_call_strdup(struct uc_call *call, const char *s)
{
	return uc_arena_strdup(&call->arena, s);
}

int uc_call_fail(struct uc_call *call, int status, const char *fmt, ...)
{
	char text[MESSAGE_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	call->status =
		status > UC_GRPC_OK && status < UC_GRPC_STATUS_COUNT ? status : UC_GRPC_UNKNOWN;
	call->message = uc_arena_strdup(&call->arena, text);
	if (!call->message)
		call->message = "out of memory";
	return -1;
}

int uc_call_step(struct uc_call *call, const char *fmt, ...)
{
	char text[UC_JOB_STEP_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return uc_job_set_step(call, text, uc_now_ms());
}

int uc_call_beat(struct uc_call *call)
{
	return uc_job_set_step(call, NULL, uc_now_ms());
}

/*
 * Clients refuse a message with a string that is not UTF-8, and tell nobody which
 * one it was; protobuf-c packs it all the same.
 */
static void pack(struct uc_call *call, const ProtobufCMessage *resp)
{
	size_t n = protobuf_c_message_get_packed_size(resp);
	struct uc_err err = { 0 };
	uint8_t *frame;

	if (n > INT32_MAX) {
		(void)uc_call_fail(call, UC_GRPC_RESOURCE_EXHAUSTED, "the response is too large");
		return;
	}
	frame = malloc(UC_GRPC_PREFIX + n);
	if (!frame) {
		(void)uc_call_fail(call, UC_GRPC_UNAVAILABLE, "out of memory");
		return;
	}
	uc_grpc_put_prefix(frame, (uint32_t)n);
	protobuf_c_message_pack(resp, frame + UC_GRPC_PREFIX);
	if (uc_pbcheck(resp->descriptor, frame + UC_GRPC_PREFIX, n, SIZE_MAX, &err) < 0) {
		free(frame);
		(void)uc_call_fail(call, UC_GRPC_INTERNAL, "the response: %s", err.msg);
		return;
	}
	call->status = UC_GRPC_OK;
	call->frame = frame;
	call->n_frame = UC_GRPC_PREFIX + n;
}

void uc_job_run(struct uc_call *call)
{
	const ProtobufCMessageDescriptor *output = call->desc->output;
	ProtobufCMessage *resp = uc_arena_alloc(&call->arena, output->sizeof_message);

	if (!resp) {
		(void)uc_call_fail(call, UC_GRPC_UNAVAILABLE, "out of memory");
		return;
	}
	protobuf_c_message_init(output, resp);
	if (call->method->fn(call, call->req, resp) >= 0)
		pack(call, resp);
	else if (call->status == UC_GRPC_OK)
		(void)uc_call_fail(call, UC_GRPC_INTERNAL, "%s failed and did not say why",
				   call->method->name);
}
