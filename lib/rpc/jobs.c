/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/os/clock.h"
#include "lib/rpc/job.h"

/*
 * Theory of operation
 *
 * Every job, from its submission until its done(), is on one list that only the
 * loop's thread walks; that list is also the table of keys, since there are never
 * many.  `lock` covers what workers touch: the queue, the list of jobs that are
 * done, the states, the steps, the counters of threads.  It is held for a moment,
 * never across a handler, and nothing else is locked inside it but the loop's
 * list of posts.
 *
 * Workers are made when there is work and nobody idle, so a server that does
 * little has few.  A job without progress for hang_ms is LOST: its key is free,
 * and its worker no longer counts as one, so a replacement may be made (up to
 * max_workers threads in all).  When the handler does return, the worker ends if
 * it is one too many.
 *
 * The owner must be able to go while a handler hangs in a system call for ever.
 * So this struct is counted: one reference for the owner, one for each thread.
 * uc_jobs_free() sets `closed`, waits until no worker but lost ones is left, and
 * drops the owner's reference; from then on whoever returns frees its job, and
 * touches neither the loop nor the owner.
 */

enum {
	STACK_SIZE = 256 * 1024,
	SANITIZER_STACK_SIZE = 2 * 1024 * 1024, /* red zones and spilled registers */
};

struct uc_jobs {
	struct uc_jobs_config config;

	/* Loop's thread. */
	struct uc_loop *loop;
	struct uc_call *all;
	unsigned n_all, n_lost;
	struct uc_timer timer;
	struct uc_post post; /* jobs are done */

	pthread_mutex_t lock;
	pthread_cond_t work;  /* there is a job, or a worker too many, or the end */
	pthread_cond_t ended; /* a thread, after `closed` */
	/* lock */
	struct uc_call *queue, **queue_end;
	unsigned n_queued;
	struct uc_call *done, **done_end;
	unsigned threads;
	unsigned starting, idle; /* of them, those on their way, and those without work */
	unsigned lost_threads;   /* of them, those in lost jobs */
	bool closed;
	unsigned refs;
};

static struct uc_jobs *from_timer(struct uc_timer *t)
{
	return uc_container_of(t, struct uc_jobs, timer);
}

static struct uc_jobs *from_post(struct uc_post *p)
{
	return uc_container_of(p, struct uc_jobs, post);
}

void uc_job_free(struct uc_call *call)
{
	if (!call)
		return;
	if (call->budget)
		uc_budget_give(call->budget, call->charged);
	uc_arena_done(&call->arena);
	free(call->frame);
	free(call);
}

static void unlink_job(struct uc_call *call)
{
	*call->link = call->next;
	if (call->next)
		call->next->link = call->link;
	call->jobs->n_all--;
}

/* With the lock; drops it.  True if the last reference went. */
static bool unref_and_unlock(struct uc_jobs *jobs)
{
	bool last = --jobs->refs == 0;

	pthread_mutex_unlock(&jobs->lock);
	if (last) {
		pthread_cond_destroy(&jobs->work);
		pthread_cond_destroy(&jobs->ended);
		pthread_mutex_destroy(&jobs->lock);
		free(jobs);
	}
	return last;
}

static bool too_many(const struct uc_jobs *jobs)
{
	return jobs->threads - jobs->lost_threads > jobs->config.workers;
}

/* The handler has returned; with the lock. */
static void job_ended(struct uc_jobs *jobs, struct uc_call *call)
{
	bool lost = call->state == UC_JOB_LOST;

	if (lost)
		jobs->lost_threads--;
	if (jobs->closed && lost) {
		/* Nobody collects any more, and the list of all jobs is the lock's now. */
		unlink_job(call);
		uc_job_free(call);
		return;
	}
	if (!lost)
		call->state = UC_JOB_DONE;
	call->queue_next = NULL;
	*jobs->done_end = call;
	jobs->done_end = &call->queue_next;
	if (!jobs->closed)
		uc_loop_post(jobs->loop, &jobs->post);
}

static void *worker(void *data)
{
	struct uc_jobs *jobs = data;
	struct uc_call *call;

	pthread_mutex_lock(&jobs->lock);
	jobs->starting--;
	for (;;) {
		while (!jobs->queue && !jobs->closed && !too_many(jobs)) {
			jobs->idle++;
			pthread_cond_wait(&jobs->work, &jobs->lock);
			jobs->idle--;
		}
		if (jobs->closed || too_many(jobs))
			break;
		call = jobs->queue;
		jobs->queue = call->queue_next;
		if (!jobs->queue)
			jobs->queue_end = &jobs->queue;
		jobs->n_queued--;
		call->state = UC_JOB_RUNNING;
		call->since_ms = call->progress_ms = uc_now_ms();
		pthread_mutex_unlock(&jobs->lock);
		uc_job_run(call);
		pthread_mutex_lock(&jobs->lock);
		job_ended(jobs, call);
	}
	jobs->threads--;
	/* A job may have come in while this one was the worker too many. */
	pthread_cond_signal(&jobs->work);
	pthread_cond_broadcast(&jobs->ended);
	(void)unref_and_unlock(jobs);
	return NULL;
}

static int start_thread(struct uc_jobs *jobs)
{
	sigset_t all;
	pthread_attr_t attr;
	pthread_t thread;
	int num;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	size_t stack = SANITIZER_STACK_SIZE;
#else
	size_t stack = STACK_SIZE;
#endif

	num = pthread_attr_init(&attr);
	if (num)
		return -num;
	/* Signals are the main thread's business. */
	sigfillset(&all);
	num = pthread_attr_setstacksize(&attr, stack);
	if (!num)
		num = pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (!num)
		num = pthread_attr_setsigmask_np(&attr, &all);
	if (!num)
		num = pthread_create(&thread, &attr, worker, jobs);
	pthread_attr_destroy(&attr);
	return -num;
}

/* Makes workers for what waits; with the lock. */
static void staff(struct uc_jobs *jobs)
{
	while (jobs->n_queued > jobs->idle + jobs->starting &&
	       jobs->threads - jobs->lost_threads < jobs->config.workers &&
	       jobs->threads < jobs->config.max_workers) {
		int r = start_thread(jobs);

		if (r < 0) {
			log_debug("rpc: start a worker: %s", strerrordesc_np(-r));
			return;
		}
		jobs->refs++;
		jobs->threads++;
		jobs->starting++;
	}
}

static void collect(struct uc_post *p)
{
	struct uc_jobs *jobs = from_post(p);
	struct uc_call *call, *next;

	pthread_mutex_lock(&jobs->lock);
	call = jobs->done;
	jobs->done = NULL;
	jobs->done_end = &jobs->done;
	pthread_mutex_unlock(&jobs->lock);
	for (; call; call = next) {
		next = call->queue_next;
		if (call->state == UC_JOB_LOST)
			jobs->n_lost--;
		unlink_job(call);
		jobs->config.ops->done(jobs->config.data, call);
		uc_job_free(call);
	}
}

static void check_now(struct uc_timer *t)
{
	struct uc_jobs *jobs = from_timer(t);
	uint64_t next = uc_jobs_check(jobs, uc_loop_now_ms(jobs->loop));

	if (next != UINT64_MAX)
		uc_loop_set_timer(jobs->loop, t, next);
}

int uc_jobs_new(struct uc_loop *loop, const struct uc_jobs_config *config,
		struct uc_jobs **ret_jobs)
{
	struct uc_jobs *jobs = calloc(1, sizeof(*jobs));
	pthread_condattr_t attr;

	if (!jobs)
		return -ENOMEM;
	jobs->loop = loop;
	jobs->config = *config;
	/* So that it can be added to a time; "never" is meant by what is longer. */
	if (jobs->config.hang_ms > UINT64_MAX / 2)
		jobs->config.hang_ms = UINT64_MAX / 2;
	jobs->timer.fn = check_now;
	jobs->post.fn = collect;
	jobs->queue_end = &jobs->queue;
	jobs->done_end = &jobs->done;
	jobs->refs = 1;
	pthread_mutex_init(&jobs->lock, NULL);
	pthread_cond_init(&jobs->work, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&jobs->ended, &attr);
	pthread_condattr_destroy(&attr);
	*ret_jobs = jobs;
	return 0;
}

/* Takes everything off the queue; with the lock. */
static void drop_queue(struct uc_jobs *jobs)
{
	struct uc_call *call, *next;

	for (call = jobs->queue; call; call = next) {
		next = call->queue_next;
		unlink_job(call);
		uc_job_free(call);
	}
	jobs->queue = NULL;
	jobs->queue_end = &jobs->queue;
	jobs->n_queued = 0;
}

/* Marks what hangs; with the lock.  Returns when to look again. */
static uint64_t find_lost(struct uc_jobs *jobs, uint64_t now_ms, bool *ret_found)
{
	uint64_t next = UINT64_MAX;

	for (struct uc_call *call = jobs->all; call; call = call->next) {
		uint64_t due = now_ms + jobs->config.hang_ms;

		if (call->state == UC_JOB_RUNNING)
			due = call->progress_ms + jobs->config.hang_ms;
		else if (call->state != UC_JOB_QUEUED)
			continue;
		if (due <= now_ms) {
			call->state = UC_JOB_LOST;
			jobs->lost_threads++;
			jobs->n_lost++;
			*ret_found = true;
		} else if (due < next) {
			next = due;
		}
	}
	return next;
}

static void wait_for_workers(struct uc_jobs *jobs)
{
	bool found = false;

	while (jobs->threads > jobs->lost_threads) {
		uint64_t now = uc_now_ms(), next = find_lost(jobs, now, &found);
		struct timespec ts;

		if (jobs->threads == jobs->lost_threads)
			break;
		if (next == UINT64_MAX)
			next = now + jobs->config.hang_ms;
		ts.tv_sec = (time_t)(next / 1000);
		ts.tv_nsec = (long)(next % 1000) * 1000000;
		(void)pthread_cond_timedwait(&jobs->ended, &jobs->lock, &ts);
	}
}

void uc_jobs_free(struct uc_jobs *jobs)
{
	struct uc_call *call, *next;

	if (!jobs)
		return;
	uc_loop_clear_timer(jobs->loop, &jobs->timer);
	pthread_mutex_lock(&jobs->lock);
	jobs->closed = true;
	drop_queue(jobs);
	pthread_cond_broadcast(&jobs->work);
	wait_for_workers(jobs);
	uc_loop_unpost(jobs->loop, &jobs->post);
	for (call = jobs->done; call; call = next) {
		next = call->queue_next;
		unlink_job(call);
		uc_job_free(call);
	}
	for (call = jobs->all; call; call = call->next) {
		if (call->budget)
			uc_budget_give(call->budget, call->charged);
		call->budget = NULL;
	}
	(void)unref_and_unlock(jobs);
}

/* The job that has a key, or one that had it until it was @lost. */
static struct uc_call *find_key(const struct uc_jobs *jobs, const char *key, bool lost)
{
	struct uc_call *call;

	for (call = key ? jobs->all : NULL; call; call = call->next)
		if ((call->state == UC_JOB_LOST) == lost && uc_streq(call->key, key))
			return call;
	return NULL;
}

static bool can_join(const struct uc_call *running, const struct uc_call *call)
{
	return running->waiter.conn == 0 && running->service == call->service &&
	       running->method == call->method &&
	       memcmp(running->digest, call->digest, sizeof(call->digest)) == 0;
}

/* Takes a job out of the middle of the queue; with the lock. */
static void unqueue(struct uc_jobs *jobs, struct uc_call *call)
{
	struct uc_call **at = &jobs->queue;

	while (*at != call)
		at = &(*at)->queue_next;
	*at = call->queue_next;
	if (jobs->queue_end == &call->queue_next)
		jobs->queue_end = at;
	jobs->n_queued--;
}

static int enqueue(struct uc_jobs *jobs, struct uc_call *call, uint64_t now_ms, struct uc_err *err)
{
	if (jobs->n_queued >= jobs->config.max_queue)
		return uc_fail_as(err, ENOBUFS, UC_GRPC_UNAVAILABLE,
				  "%u requests wait for a worker already", jobs->n_queued);
	call->state = UC_JOB_QUEUED;
	call->since_ms = now_ms;
	call->queue_next = NULL;
	*jobs->queue_end = call;
	jobs->queue_end = &call->queue_next;
	jobs->n_queued++;
	staff(jobs);
	if (jobs->threads == jobs->lost_threads) {
		unqueue(jobs, call);
		return uc_fail_as(err, ENOBUFS, UC_GRPC_UNAVAILABLE,
				  "no worker can be had; %u hang", jobs->lost_threads);
	}
	pthread_cond_signal(&jobs->work);
	return 0;
}

int uc_jobs_submit(struct uc_jobs *jobs, struct uc_call *call, uint64_t now_ms,
		   struct uc_call **ret_job, struct uc_err *err)
{
	char text[UC_JOB_TEXT_SIZE];
	struct uc_call *other;
	int r;

	call->jobs = jobs;
	pthread_mutex_lock(&jobs->lock);
	other = find_key(jobs, call->key, false);
	r = other ? 0 : enqueue(jobs, call, now_ms, err);
	/* If there is nobody to do it: is it because it hangs? */
	if (r < 0)
		other = find_key(jobs, call->key, true);
	pthread_mutex_unlock(&jobs->lock);
	if (r < 0 && !other)
		return r;
	if (other && (r < 0 || !can_join(other, call)))
		return uc_fail_as(err, EBUSY, UC_GRPC_ABORTED, "`%s` is busy: %s",
				  UC_PRINTABLE(call->key), uc_job_describe(other, now_ms, text));
	if (other) {
		other->waiter = call->waiter;
		uc_job_free(call);
		*ret_job = other;
		return 0;
	}
	call->next = jobs->all;
	call->link = &jobs->all;
	if (call->next)
		call->next->link = &call->next;
	jobs->all = call;
	jobs->n_all++;
	if (!jobs->timer.link)
		uc_loop_set_timer(jobs->loop, &jobs->timer, now_ms + jobs->config.hang_ms);
	*ret_job = call;
	return 0;
}

bool uc_jobs_detach(struct uc_jobs *jobs, struct uc_call *call)
{
	bool drop;

	call->waiter.conn = 0;
	if (call->key)
		return true;
	/* Nothing can join it, so nobody would ever see what it does. */
	pthread_mutex_lock(&jobs->lock);
	drop = call->state == UC_JOB_QUEUED;
	if (drop)
		unqueue(jobs, call);
	pthread_mutex_unlock(&jobs->lock);
	if (!drop)
		return true;
	unlink_job(call);
	uc_job_free(call);
	return false;
}

/* A job that was lost and has a waiter still. */
static struct uc_call *next_to_tell(struct uc_jobs *jobs)
{
	struct uc_call *call;

	pthread_mutex_lock(&jobs->lock);
	for (call = jobs->all; call; call = call->next)
		if (call->state == UC_JOB_LOST && call->waiter.conn)
			break;
	pthread_mutex_unlock(&jobs->lock);
	return call;
}

uint64_t uc_jobs_check(struct uc_jobs *jobs, uint64_t now_ms)
{
	struct uc_call *call;
	bool found = false;
	uint64_t next;

	pthread_mutex_lock(&jobs->lock);
	next = find_lost(jobs, now_ms, &found);
	staff(jobs);
	pthread_mutex_unlock(&jobs->lock);
	while (found && (call = next_to_tell(jobs))) {
		jobs->config.ops->lost(jobs->config.data, call);
		call->waiter.conn = 0;
	}
	return next;
}

unsigned uc_jobs_busy(const struct uc_jobs *jobs)
{
	return jobs->n_all - jobs->n_lost;
}

unsigned uc_jobs_lost(const struct uc_jobs *jobs)
{
	return jobs->n_lost;
}

void uc_jobs_each(struct uc_jobs *jobs, void (*fn)(void *data, struct uc_call *call), void *data)
{
	for (struct uc_call *call = jobs->all; call; call = call->next)
		fn(data, call);
}

const char *uc_job_describe(struct uc_call *call, uint64_t now_ms, char to[static UC_JOB_TEXT_SIZE])
{
	unsigned long long s;
	bool queued;

	pthread_mutex_lock(&call->jobs->lock);
	queued = call->state == UC_JOB_QUEUED;
	s = now_ms > call->since_ms ? (now_ms - call->since_ms) / 1000 : 0;
	snprintf(to, UC_JOB_TEXT_SIZE, "%s has been %s for %llu s%s%s%s", call->method->name,
		 queued ? "waiting for a worker" : "running", s, *call->step ? " (" : "",
		 call->step, *call->step ? ")" : "");
	pthread_mutex_unlock(&call->jobs->lock);
	return to;
}

int uc_job_set_step(struct uc_call *call, const char *step, uint64_t now_ms)
{
	struct uc_jobs *jobs = call->jobs;
	int r = 0;

	pthread_mutex_lock(&jobs->lock);
	if (call->state == UC_JOB_LOST) {
		r = -ECANCELED;
	} else {
		if (step)
			snprintf(call->step, sizeof(call->step), "%s", step);
		call->progress_ms = now_ms;
	}
	pthread_mutex_unlock(&jobs->lock);
	return r;
}
