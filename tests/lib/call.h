/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A call without a server: what a handler sees of lib/rpc/server.h, as a test has filled it in.
 * fake_call_init() makes it; what the handler did is in it.
 */

#include "tests/lib/unit.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/rpc/server.h"

/* Opaque to handlers: this is a test's own. */
struct uc_call {
	void *data;
	const char *method;
	void *memory[4096];
	size_t n_memory;
	size_t memory_left; /* allocations that succeed; SIZE_MAX: all */
	int status;
	char message[1100];
	unsigned steps, cancel_at; /* the n-th step is refused */
	char last_step[200];
};

static inline void fake_call_init(struct uc_call *call, void *data, const char *method)
{
	memset(call, 0, sizeof(*call));
	call->data = data;
	call->method = method;
	call->memory_left = SIZE_MAX;
}

static inline void fake_call_done(struct uc_call *call)
{
	for (size_t i = 0; i < call->n_memory; i++)
		free(call->memory[i]);
	call->n_memory = 0;
}

void *__wrap_uc_call_data(const struct uc_call *call);
void *__wrap_uc_call_data(const struct uc_call *call)
{
	return call->data;
}

const char *__wrap_uc_call_method(const struct uc_call *call);
const char *__wrap_uc_call_method(const struct uc_call *call)
{
	return call->method;
}

void *__wrap_uc_call_alloc(struct uc_call *call, size_t n);
void *__wrap_uc_call_alloc(struct uc_call *call, size_t n)
{
	if (!call->memory_left)
		return NULL;
	call->memory_left -= call->memory_left != SIZE_MAX;
	assert_true(call->n_memory < sizeof(call->memory) / sizeof(call->memory[0]));
	return call->memory[call->n_memory++] = calloc(1, n ? n : 1);
}

char *__wrap_uc_call_strdup(struct uc_call *call, const char *s);
char *__wrap_uc_call_strdup(struct uc_call *call, const char *s)
{
	char *copy = __wrap_uc_call_alloc(call, strlen(s) + 1);

	return copy ? strcpy(copy, s) : NULL;
}

int __wrap_uc_call_fail(struct uc_call *call, int status, const char *fmt, ...);
int __wrap_uc_call_fail(struct uc_call *call, int status, const char *fmt, ...)
{
	va_list ap;

	assert_int_not_equal(status, UC_GRPC_OK);
	call->status = status;
	va_start(ap, fmt);
	vsnprintf(call->message, sizeof(call->message), fmt, ap);
	va_end(ap);
	return -1;
}

int __wrap_uc_call_step(struct uc_call *call, const char *fmt, ...);
int __wrap_uc_call_step(struct uc_call *call, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(call->last_step, sizeof(call->last_step), fmt, ap);
	va_end(ap);
	return ++call->steps == call->cancel_at ? -ECANCELED : 0;
}

static inline const struct uc_rpc_method *find_method(const struct uc_rpc_method *methods, size_t n,
						      const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(methods[i].name, name) == 0)
			return &methods[i];
	fail_msg("there is no %s", name);
	return NULL;
}

/* Runs a handler, with so many allocations that succeed; its status. */
static inline int fake_call_run(struct uc_call *call, const struct uc_rpc_method *method,
				void *data, size_t memory_left, const void *req, void *resp)
{
	int r;

	fake_call_done(call);
	fake_call_init(call, data, method->name);
	call->memory_left = memory_left;
	r = method->fn(call, req, resp);
	assert_int_equal(r < 0, call->status != UC_GRPC_OK);
	return call->status;
}
