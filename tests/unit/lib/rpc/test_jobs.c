/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csi.pb-c.h"
#include "lib/base/macros.h"
#include "lib/os/clock.h"
#include "lib/rpc/job.h"

enum {
	HANG_MS = 300000,
	LOG_SIZE = 4096,
};

/* What handlers and the test share: a handler says that it has begun, and waits at the gate. */
static sem_t begun, gate;
static _Atomic int step_result; /* of the step behind the gate */

static struct uc_loop *loop;
static struct uc_jobs *jobs;
static struct uc_budget budget;
static char trace[LOG_SIZE]; /* what ops were called for */
static unsigned n_done, n_lost, stop_after;

static int wait_at_gate(struct uc_call *call, const void *req, void *resp)
{
	Csi__V1__NodeGetInfoResponse *out = resp;

	(void)req;
	sem_post(&begun);
	sem_wait(&gate);
	step_result = uc_call_step(call, "behind the gate");
	out->node_id = uc_call_strdup(call, "n1");
	return out->node_id ? 0 : uc_call_fail(call, UC_GRPC_UNAVAILABLE, "out of memory");
}

static int format_branch(struct uc_call *call, const void *req, void *resp)
{
	if (uc_call_step(call, "format branch %d", 1) < 0)
		return uc_call_fail(call, UC_GRPC_ABORTED, "lost");
	return wait_at_gate(call, req, resp);
}

static int at_once(struct uc_call *call, const void *req, void *resp)
{
	(void)call;
	(void)req;
	(void)resp;
	return 0;
}

static int fails(struct uc_call *call, const void *req, void *resp)
{
	(void)req;
	(void)resp;
	return uc_call_fail(call, UC_GRPC_NOT_FOUND, "no `%s`", "v1");
}

static int fails_oddly(struct uc_call *call, const void *req, void *resp)
{
	(void)req;
	(void)resp;
	return uc_call_fail(call, 99, "odd");
}

static int fails_silently(struct uc_call *call, const void *req, void *resp)
{
	(void)call;
	(void)req;
	(void)resp;
	return -EIO;
}

static int fails_then_succeeds(struct uc_call *call, const void *req, void *resp)
{
	(void)req;
	(void)resp;
	(void)uc_call_fail(call, UC_GRPC_INTERNAL, "a first try");
	return 0;
}

static int answers_with_bad_text(struct uc_call *call, const void *req, void *resp)
{
	static char text[] = "n\xff";

	(void)call;
	(void)req;
	((Csi__V1__NodeGetInfoResponse *)resp)->node_id = text;
	return 0;
}

enum method {
	WAIT,
	FORMAT,
	AT_ONCE,
	FAILS,
	FAILS_ODDLY,
	FAILS_SILENTLY,
	FAILS_THEN_SUCCEEDS,
	BAD_TEXT,
};

/* All answer like NodeGetInfo, whatever they are called. */
static const struct uc_rpc_method methods[] = {
	[WAIT] = { "Wait", wait_at_gate, NULL },
	[FORMAT] = { "NodeStageVolume", format_branch, NULL },
	[AT_ONCE] = { "AtOnce", at_once, NULL },
	[FAILS] = { "Fails", fails, NULL },
	[FAILS_ODDLY] = { "FailsOddly", fails_oddly, NULL },
	[FAILS_SILENTLY] = { "FailsSilently", fails_silently, NULL },
	[FAILS_THEN_SUCCEEDS] = { "FailsThenSucceeds", fails_then_succeeds, NULL },
	[BAD_TEXT] = { "BadText", answers_with_bad_text, NULL },
};
static const struct uc_rpc_service services[] = {
	{ &csi__v1__node__descriptor, methods, ARRAY_SIZE(methods), NULL },
	{ &csi__v1__node__descriptor, methods, ARRAY_SIZE(methods), NULL },
};

static void note(const char *what, const struct uc_call *call)
{
	size_t n = strlen(trace);

	snprintf(trace + n, sizeof(trace) - n, "%s%s(%llu/%d,%d)", n ? " " : "", what,
		 (unsigned long long)call->waiter.conn, call->waiter.stream, call->status);
}

static void on_done(void *data, struct uc_call *call)
{
	(void)data;
	note("done", call);
	if (call->status == UC_GRPC_OK && !call->frame)
		fail_msg("OK without a response");
	if (call->message) {
		size_t n = strlen(trace);

		snprintf(trace + n, sizeof(trace) - n, "=%s", call->message);
	}
	if (++n_done == stop_after)
		uc_loop_stop(loop);
}

static void on_lost(void *data, struct uc_call *call)
{
	(void)data;
	n_lost++;
	note("lost", call);
}

static const struct uc_jobs_ops ops = { .done = on_done, .lost = on_lost };

static void begin_with(unsigned workers, unsigned max_workers, unsigned max_queue, uint64_t hang_ms)
{
	struct uc_jobs_config config = {
		.workers = workers,
		.max_workers = max_workers,
		.max_queue = max_queue,
		.hang_ms = hang_ms,
		.ops = &ops,
	};

	sem_init(&begun, 0, 0);
	sem_init(&gate, 0, 0);
	trace[0] = '\0';
	n_done = n_lost = 0;
	step_result = 1;
	budget = (struct uc_budget){ .max = 1 << 20 };
	assert_int_equal(uc_loop_new(&loop), 0);
	assert_int_equal(uc_jobs_new(loop, &config, &jobs), 0);
}

static void begin(void)
{
	begin_with(2, 4, 8, HANG_MS);
}

static void end(void)
{
	uc_jobs_free(jobs);
	uc_loop_free(loop);
	assert_int_equal(budget.used, 0);
}

/* Lets @n handlers pass, and collects until @done jobs more are done. */
static void open_gate(unsigned n, unsigned done)
{
	for (unsigned i = 0; i < n; i++)
		sem_post(&gate);
	stop_after = n_done + done;
	if (done)
		assert_int_equal(uc_loop_run(loop), 0);
}

static void wait_begun(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		while (sem_wait(&begun) < 0)
			;
}

static struct uc_call *new_call(enum method method, const char *key, const char *asked,
				int32_t stream)
{
	struct uc_call *call = calloc(1, sizeof(*call));

	call->service = &services[0];
	call->method = &methods[method];
	call->desc = protobuf_c_service_descriptor_get_method_by_name(&csi__v1__node__descriptor,
								      "NodeGetInfo");
	call->key = key ? uc_arena_strdup(&call->arena, key) : NULL;
	uc_sha256(asked, strlen(asked), call->digest);
	call->budget = &budget;
	call->charged = 100;
	budget.used += 100;
	call->waiter = (struct uc_waiter){ .conn = 1, .stream = stream };
	return call;
}

/* Submits; a call that was refused is freed.  NULL if it was. */
static struct uc_call *submit_call(struct uc_call *call, uint64_t now, struct uc_err *err)
{
	struct uc_call *job = NULL;
	int r;

	*err = (struct uc_err){ 0 };
	r = uc_jobs_submit(jobs, call, now, &job, err);
	if (r < 0) {
		assert_int_equal(err->num, -r);
		assert_null(job);
		uc_job_free(call);
	}
	return job;
}

static struct uc_call *submit(enum method method, const char *key, const char *asked,
			      int32_t stream)
{
	struct uc_err err;
	struct uc_call *job = submit_call(new_call(method, key, asked, stream), uc_now_ms(), &err);

	if (!job)
		print_error("refused: %s\n", err.msg);
	assert_non_null(job);
	return job;
}

static void assert_refused(struct uc_call *call, uint64_t now, int status, const char *msg)
{
	struct uc_err err;

	assert_null(submit_call(call, now, &err));
	assert_string_equal(err.msg, msg);
	assert_int_equal(err.status, status);
}

/* -------------------------------------------------------------- answers */

static void outcome_of_a_handler_is_its_status(void **state)
{
	static const struct {
		enum method method;
		const char *expect;
	} cases[] = {
		{ AT_ONCE, "done(1/5,0)" },
		{ FAILS, "done(1/5,5)=no `v1`" },
		{ FAILS_ODDLY, "done(1/5,2)=odd" },
		{ FAILS_SILENTLY, "done(1/5,13)=FailsSilently failed and did not say why" },
		{ FAILS_THEN_SUCCEEDS, "done(1/5,0)=a first try" },
		{ BAD_TEXT, "done(1/5,13)=the response: field `node_id` is not valid UTF-8" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		begin();
		submit(cases[i].method, "v1", "raw", 5);
		assert_int_equal(uc_jobs_busy(jobs), 1);
		open_gate(0, 1);
		assert_string_equal(trace, cases[i].expect);
		assert_int_equal(uc_jobs_busy(jobs), 0);
		end();
	}
}

static void jobs_run_side_by_side(void **state)
{
	(void)state;
	begin();
	submit(WAIT, "v1", "", 1);
	submit(WAIT, "v2", "", 3);
	wait_begun(2);
	assert_int_equal(uc_jobs_busy(jobs), 2);
	open_gate(2, 2);
	assert_int_equal(step_result, 0);
	end();
}

static void jobs_without_a_key_do_not_mind_each_other(void **state)
{
	(void)state;
	begin();
	for (int32_t i = 0; i < 5; i++)
		submit(WAIT, NULL, "same", i);
	open_gate(5, 5);
	end();
}

/* ------------------------------------------------------------ busy keys */

static void busy_key_is_refused_and_says_why(void **state)
{
	uint64_t now;

	(void)state;
	begin();
	submit(FORMAT, "v1", "raw", 1);
	wait_begun(1);
	now = uc_now_ms();
	assert_refused(new_call(WAIT, "v1", "raw", 3), now + 12050, UC_GRPC_ABORTED,
		       "`v1` is busy: NodeStageVolume has been running for 12 s (format branch 1)");
	/* A loop's clock may be behind a worker's. */
	assert_refused(new_call(WAIT, "v1", "raw", 3), 1, UC_GRPC_ABORTED,
		       "`v1` is busy: NodeStageVolume has been running for 0 s (format branch 1)");
	open_gate(1, 1);
	/* The key is free again. */
	submit(WAIT, "v1", "raw", 3);
	open_gate(1, 1);
	assert_string_equal(trace, "done(1/1,0) done(1/3,0)");
	end();
}

static void key_of_a_job_that_waits_is_busy_too(void **state)
{
	(void)state;
	begin_with(1, 1, 8, HANG_MS);
	submit(WAIT, "v1", "raw", 1);
	wait_begun(1);
	assert_refused(new_call(WAIT, "v1", "other", 3), 0, UC_GRPC_ABORTED,
		       "`v1` is busy: Wait has been running for 0 s");
	submit(WAIT, "v2", "raw", 5);
	assert_refused(new_call(WAIT, "v2", "other", 7), uc_now_ms() + 3000, UC_GRPC_ABORTED,
		       "`v2` is busy: Wait has been waiting for a worker for 3 s");
	open_gate(2, 2);
	end();
}

static void odd_key_cannot_spoil_the_message(void **state)
{
	(void)state;
	begin();
	submit(WAIT, "v\n\x01", "raw", 1);
	wait_begun(1);
	assert_refused(new_call(WAIT, "v\n\x01", "x", 3), 0, UC_GRPC_ABORTED,
		       "`v\\x0a\\x01` is busy: Wait has been running for 0 s");
	open_gate(1, 1);
	end();
}

/* ---------------------------------------------------------------- joins */

static void retry_joins_the_job_that_nobody_waits_for(void **state)
{
	struct uc_call *job, *joined;

	(void)state;
	begin();
	job = submit(WAIT, "v1", "raw", 1);
	wait_begun(1);
	assert_true(uc_jobs_detach(jobs, job));
	joined = submit(WAIT, "v1", "raw", 7);
	assert_ptr_equal(joined, job);
	assert_int_equal(uc_jobs_busy(jobs), 1);
	/* The one that joined waits now, so that nobody else can join. */
	assert_refused(new_call(WAIT, "v1", "raw", 9), 0, UC_GRPC_ABORTED,
		       "`v1` is busy: Wait has been running for 0 s");
	/* It goes as well, and a third one comes. */
	assert_true(uc_jobs_detach(jobs, job));
	submit(WAIT, "v1", "raw", 11);
	open_gate(1, 1);
	assert_string_equal(trace, "done(1/11,0)");
	end();
}

static void only_the_same_call_can_join(void **state)
{
	static const struct {
		enum method method;
		const char *raw;
		size_t service;
	} cases[] = {
		{ WAIT, "rax", 0 }, { WAIT, "ra", 0 },    { WAIT, "rawraw", 0 },
		{ WAIT, "", 0 },    { FORMAT, "raw", 0 }, { WAIT, "raw", 1 },
	};
	struct uc_call *job;

	(void)state;
	begin();
	job = submit(WAIT, "v1", "raw", 1);
	wait_begun(1);
	uc_jobs_detach(jobs, job);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct uc_call *call = new_call(cases[i].method, "v1", cases[i].raw, 3);

		call->service = &services[cases[i].service];
		assert_refused(call, 0, UC_GRPC_ABORTED,
			       "`v1` is busy: Wait has been running for 0 s");
	}
	open_gate(1, 1);
	assert_string_equal(trace, "done(0/1,0)");
	end();
}

static void answer_that_is_there_already_can_be_joined(void **state)
{
	struct uc_call *job;

	(void)state;
	begin_with(1, 1, 8, HANG_MS);
	job = submit(AT_ONCE, "v1", "raw", 1);
	/* Two jobs that one worker takes one after the other: the first has ended by now. */
	submit(WAIT, NULL, "", 3);
	wait_begun(1);
	uc_jobs_detach(jobs, job);
	submit(AT_ONCE, "v1", "raw", 5);
	open_gate(1, 2);
	assert_string_equal(trace, "done(1/5,0) done(1/3,0)");
	end();
}

/* ------------------------------------------------- waiting for a worker */

static void what_waits_without_key_and_client_is_dropped(void **state)
{
	struct uc_call *keyed, *free_call[3];

	(void)state;
	begin_with(1, 1, 8, HANG_MS);
	submit(WAIT, NULL, "", 1);
	wait_begun(1);
	/* At the head, in the middle, and at the tail of the queue. */
	free_call[0] = submit(WAIT, NULL, "", 3);
	keyed = submit(WAIT, "v1", "raw", 5);
	free_call[1] = submit(WAIT, NULL, "", 7);
	submit(WAIT, "v2", "raw", 9);
	free_call[2] = submit(WAIT, NULL, "", 11);
	for (size_t i = 0; i < ARRAY_SIZE(free_call); i++)
		assert_false(uc_jobs_detach(jobs, free_call[i]));
	assert_true(uc_jobs_detach(jobs, keyed));
	assert_int_equal(uc_jobs_busy(jobs), 3);
	submit(WAIT, "v3", "raw", 13);
	open_gate(4, 4);
	assert_string_equal(trace, "done(1/1,0) done(0/5,0) done(1/9,0) done(1/13,0)");
	end();
}

static void running_job_without_a_key_goes_on(void **state)
{
	struct uc_call *job;

	(void)state;
	begin();
	job = submit(WAIT, NULL, "", 1);
	wait_begun(1);
	assert_true(uc_jobs_detach(jobs, job));
	open_gate(1, 1);
	assert_string_equal(trace, "done(0/1,0)");
	end();
}

static void queue_is_bounded(void **state)
{
	(void)state;
	begin_with(1, 1, 2, HANG_MS);
	submit(WAIT, NULL, "", 1);
	wait_begun(1);
	submit(WAIT, NULL, "", 3);
	submit(WAIT, NULL, "", 5);
	assert_refused(new_call(WAIT, NULL, "", 7), 0, UC_GRPC_UNAVAILABLE,
		       "2 requests wait for a worker already");
	open_gate(3, 3);
	submit(AT_ONCE, NULL, "", 9);
	open_gate(0, 1);
	end();
}

/* ----------------------------------------------------------- hung jobs */

static void job_without_progress_loses_its_key(void **state)
{
	uint64_t now;

	(void)state;
	begin_with(1, 2, 8, HANG_MS);
	submit(FORMAT, "v1", "raw", 1);
	wait_begun(1);
	now = uc_now_ms();
	assert_in_range(uc_jobs_check(jobs, now), now + 1, now + HANG_MS);
	assert_int_equal(n_lost, 0);
	assert_int_equal(uc_jobs_check(jobs, now + HANG_MS), UINT64_MAX);
	assert_string_equal(trace, "lost(1/1,0)");
	assert_int_equal(uc_jobs_busy(jobs), 0);
	assert_int_equal(uc_jobs_lost(jobs), 1);
	/* Once. */
	assert_int_equal(uc_jobs_check(jobs, now + 2 * HANG_MS), UINT64_MAX);
	assert_int_equal(n_lost, 1);

	/* The same call does not join it, but starts anew: on the worker's replacement. */
	submit(FORMAT, "v1", "raw", 3);
	wait_begun(1);
	assert_int_equal(uc_jobs_busy(jobs), 1);

	/* Both go on; the hung one learns at its next step that it must stop. */
	open_gate(2, 2);
	assert_non_null(strstr(trace, "done(0/1,0)"));
	assert_non_null(strstr(trace, "done(1/3,0)"));
	assert_int_equal(uc_jobs_lost(jobs), 0);
	end();
}

static void step_of_a_lost_job_fails(void **state)
{
	(void)state;
	begin();
	submit(WAIT, "v1", "raw", 1);
	wait_begun(1);
	uc_jobs_check(jobs, uc_now_ms() + HANG_MS);
	open_gate(1, 1);
	assert_int_equal(step_result, -ECANCELED);
	end();
}

static void step_is_progress(void **state)
{
	struct uc_call *job;
	uint64_t now;

	(void)state;
	begin();
	job = submit(WAIT, "v1", "raw", 1);
	wait_begun(1);
	now = uc_now_ms();
	assert_int_equal(uc_job_set_step(job, "a step", now + HANG_MS - 1), 0);
	assert_int_equal(uc_jobs_check(jobs, now + HANG_MS), now + 2 * HANG_MS - 1);
	assert_int_equal(n_lost, 0);
	uc_jobs_check(jobs, now + 2 * HANG_MS - 1);
	assert_int_equal(n_lost, 1);
	assert_int_equal(uc_job_set_step(job, "too late", now), -ECANCELED);
	open_gate(1, 1);
	end();
}

static void jobs_may_be_allowed_to_run_for_ever(void **state)
{
	(void)state;
	begin_with(1, 1, 8, UINT64_MAX);
	submit(WAIT, "v1", "", 1);
	wait_begun(1);
	assert_true(uc_jobs_check(jobs, uc_now_ms() + 1000 * UINT64_C(86400000)) > UINT64_MAX / 4);
	assert_int_equal(n_lost, 0);
	open_gate(1, 1);
	end();
}

static void job_that_waits_does_not_hang(void **state)
{
	uint64_t now = uc_now_ms();

	(void)state;
	begin_with(1, 1, 8, HANG_MS);
	submit(WAIT, "v1", "", 1);
	wait_begun(1);
	submit(WAIT, "v2", "", 3);
	uc_jobs_check(jobs, now + 2 * HANG_MS);
	assert_string_equal(trace, "lost(1/1,0)");
	assert_int_equal(uc_jobs_busy(jobs), 1);
	open_gate(2, 2);
	end();
}

static void workers_are_replaced_up_to_a_limit(void **state)
{
	uint64_t now = uc_now_ms();

	(void)state;
	begin_with(2, 4, 8, HANG_MS);
	for (int i = 1; i <= 2; i++) {
		submit(WAIT, NULL, "", 1);
		submit(WAIT, NULL, "", 3);
		wait_begun(2);
		uc_jobs_check(jobs, now + (uint64_t)i * 2 * HANG_MS);
		assert_int_equal(uc_jobs_lost(jobs), 2 * i);
	}
	assert_refused(new_call(WAIT, NULL, "", 7), now, UC_GRPC_UNAVAILABLE,
		       "no worker can be had; 4 hang");
	/* One comes back, and that is enough. */
	open_gate(1, 1);
	submit(AT_ONCE, NULL, "", 9);
	open_gate(0, 1);
	open_gate(3, 3);
	/* All of them come back: not more than two workers stay. */
	submit(WAIT, NULL, "", 1);
	submit(WAIT, NULL, "", 3);
	submit(WAIT, NULL, "", 5);
	wait_begun(2);
	assert_int_equal(sem_trywait(&begun), -1);
	open_gate(3, 3);
	end();
}

/* The key of a hung job is free, but its object is not: that says more than the lack of workers. */
static void hung_job_is_named_when_no_worker_is_left(void **state)
{
	uint64_t now = uc_now_ms();

	(void)state;
	begin_with(1, 1, 8, HANG_MS);
	submit(FORMAT, "v1", "raw", 1);
	wait_begun(1);
	uc_jobs_check(jobs, now + 2 * HANG_MS);
	assert_refused(
		new_call(FORMAT, "v1", "raw", 3), now + 2 * HANG_MS + 500, UC_GRPC_ABORTED,
		"`v1` is busy: NodeStageVolume has been running for 600 s (format branch 1)");
	assert_refused(new_call(WAIT, "v2", "raw", 5), now, UC_GRPC_UNAVAILABLE,
		       "no worker can be had; 1 hang");
	open_gate(1, 1);
	end();
}

static void hung_jobs_are_found_by_a_timer(void **state)
{
	struct uc_call *job;

	(void)state;
	begin_with(1, 2, 8, 20);
	job = submit(WAIT, "v1", "raw", 1);
	wait_begun(1);
	uc_jobs_detach(jobs, job);
	/* Nothing but the timer can free the key for this one. */
	while (uc_jobs_lost(jobs) == 0) {
		stop_after = 0;
		submit(AT_ONCE, NULL, "", 3);
		open_gate(0, 1);
	}
	submit(AT_ONCE, "v1", "other", 5);
	open_gate(0, 1);
	open_gate(1, 1);
	end();
}

/* -------------------------------------------------------------- the end */

/* The table waits for its workers: the moment at which the gate may open for the one that runs. */
static bool opens_when_waited_for;
int __real_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
	if (opens_when_waited_for) {
		opens_when_waited_for = false;
		sem_post(&gate);
	}
	return __real_pthread_cond_timedwait(c, m, t);
}

static void end_drops_what_waits_and_waits_for_what_runs(void **state)
{
	(void)state;
	begin_with(1, 1, 8, HANG_MS);
	submit(WAIT, "v1", "", 1);
	wait_begun(1);
	submit(WAIT, "v2", "", 3);
	submit(WAIT, NULL, "", 5);
	opens_when_waited_for = true;
	end();
	assert_false(opens_when_waited_for);
	/* Not one was told: there is nobody left to tell. */
	assert_string_equal(trace, "");
	assert_int_equal(step_result, 0);
}

static void end_collects_what_is_done(void **state)
{
	(void)state;
	begin_with(1, 1, 8, HANG_MS);
	submit(AT_ONCE, NULL, "", 1);
	submit(WAIT, NULL, "", 3);
	wait_begun(1);
	sem_post(&gate);
	end();
	assert_string_equal(trace, "");
}

/* The handler comes back when the table, the loop and the owner are gone. */
static sem_t returned;

static int returns_late(struct uc_call *call, const void *req, void *resp)
{
	int r = wait_at_gate(call, req, resp);

	sem_post(&returned);
	return r;
}

static void end_does_not_wait_for_what_hangs(void **state)
{
	static const struct uc_rpc_method late = { "Late", returns_late, NULL };
	struct uc_call *call;
	struct uc_err err;
	uint64_t begun_ms = uc_now_ms();

	(void)state;
	sem_init(&returned, 0, 0);
	begin_with(2, 4, 8, 30);
	/* One is known to hang; one is found to when it is waited for. */
	for (int32_t i = 0; i < 2; i++) {
		call = new_call(WAIT, i ? "v1" : NULL, "", i);
		call->method = &late;
		assert_non_null(submit_call(call, uc_now_ms(), &err));
		wait_begun(1);
		if (i == 0)
			uc_jobs_check(jobs, uc_now_ms() + 1000);
	}
	end();
	assert_in_range(uc_now_ms() - begun_ms, 20, 20000);
	step_result = 1;
	sem_post(&gate);
	sem_post(&gate);
	while (sem_wait(&returned) < 0)
		;
	while (sem_wait(&returned) < 0)
		;
	assert_int_equal(step_result, -ECANCELED);
}

static void end_without_a_beginning_is_allowed(void **state)
{
	(void)state;
	uc_jobs_free(NULL);
	uc_job_free(NULL);
	begin();
	end();
}

/* Many short jobs, clients that come and go, keys that clash: for the sanitizers. */
static void crowd_is_served(void **state)
{
	unsigned accepted = 0;

	(void)state;
	srand(1);
	begin_with(4, 8, 100, HANG_MS);
	for (int32_t i = 0; i < 3000; i++) {
		char key[8];
		struct uc_call *job;
		struct uc_err err;

		snprintf(key, sizeof(key), "v%d", rand() % 5);
		job = submit_call(new_call(AT_ONCE, rand() % 2 ? key : NULL, "raw", i), uc_now_ms(),
				  &err);
		if (job) {
			bool dropped = rand() % 3 == 0 && !uc_jobs_detach(jobs, job);

			accepted += dropped ? 0 : 1;
		}
		if (uc_jobs_busy(jobs) > 50)
			open_gate(0, 1);
		if (i % 100 == 0)
			uc_jobs_check(jobs, uc_now_ms());
		trace[0] = '\0';
	}
	while (uc_jobs_busy(jobs) > 0) {
		open_gate(0, 1);
		trace[0] = '\0';
	}
	/* Those that joined another one are not counted by done(). */
	assert_true(n_done > 500 && n_done <= accepted);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(outcome_of_a_handler_is_its_status),
		cmocka_unit_test(jobs_run_side_by_side),
		cmocka_unit_test(jobs_without_a_key_do_not_mind_each_other),
		cmocka_unit_test(busy_key_is_refused_and_says_why),
		cmocka_unit_test(key_of_a_job_that_waits_is_busy_too),
		cmocka_unit_test(odd_key_cannot_spoil_the_message),
		cmocka_unit_test(retry_joins_the_job_that_nobody_waits_for),
		cmocka_unit_test(only_the_same_call_can_join),
		cmocka_unit_test(answer_that_is_there_already_can_be_joined),
		cmocka_unit_test(what_waits_without_key_and_client_is_dropped),
		cmocka_unit_test(running_job_without_a_key_goes_on),
		cmocka_unit_test(queue_is_bounded),
		cmocka_unit_test(job_without_progress_loses_its_key),
		cmocka_unit_test(step_of_a_lost_job_fails),
		cmocka_unit_test(step_is_progress),
		cmocka_unit_test(jobs_may_be_allowed_to_run_for_ever),
		cmocka_unit_test(job_that_waits_does_not_hang),
		cmocka_unit_test(workers_are_replaced_up_to_a_limit),
		cmocka_unit_test(hung_job_is_named_when_no_worker_is_left),
		cmocka_unit_test(hung_jobs_are_found_by_a_timer),
		cmocka_unit_test(end_drops_what_waits_and_waits_for_what_runs),
		cmocka_unit_test(end_collects_what_is_done),
		cmocka_unit_test(end_does_not_wait_for_what_hangs),
		cmocka_unit_test(end_without_a_beginning_is_allowed),
		cmocka_unit_test(crowd_is_served),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
