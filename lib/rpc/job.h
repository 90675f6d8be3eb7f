/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Jobs: requests that were accepted, on their way through the workers.
 *
 * Inside of lib/rpc only; server.h tells what handlers and owners see of this.
 */

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/sha256.h"
#include "lib/rpc/arena.h"
#include "lib/rpc/budget.h"
#include "lib/rpc/loop.h"
#include "lib/rpc/server.h"

enum {
	UC_JOB_STEP_SIZE = 160,
	UC_JOB_TEXT_SIZE = 320, /* of uc_job_describe() */
};

/**
 * enum uc_job_state - where a job is
 *
 * QUEUED   waits for a worker; may be joined; without a key and a waiter it is dropped
 * RUNNING  in its handler; may be joined
 * LOST     in its handler, but taken for hung: it has no key and no waiter any more
 * DONE     has its status, and waits for the loop's thread
 */
enum uc_job_state {
	UC_JOB_QUEUED,
	UC_JOB_RUNNING,
	UC_JOB_LOST,
	UC_JOB_DONE,
};

/** struct uc_waiter - who gets the answer */
struct uc_waiter {
	uint64_t conn; /* a connection's number, never used twice; 0: nobody */
	int32_t stream;
};

/** struct uc_call - a job, which its handler knows as the call */
struct uc_call {
	/* Fixed before it is submitted. */
	struct uc_jobs *jobs;
	const struct uc_rpc_service *service;
	const struct uc_rpc_method *method;
	const ProtobufCMethodDescriptor *desc;
	const char *key;                /* in @arena, or NULL */
	const ProtobufCMessage *req;    /* in @arena */
	uint8_t digest[UC_SHA256_SIZE]; /* uc_pbdigest() of @req, of a job with a key */
	struct uc_budget *budget;       /* or NULL */
	size_t charged;                 /* to be returned to it */
	uint64_t begun_us;

	/* Loop's thread. */
	struct uc_call *next, **link;
	struct uc_waiter waiter;

	/* jobs->lock */
	enum uc_job_state state;
	struct uc_call *queue_next;
	uint64_t since_ms;    /* it waits, or runs */
	uint64_t progress_ms; /* of its last step */
	char step[UC_JOB_STEP_SIZE];

	/* The worker's until it is DONE, the loop's thread's from then on. */
	struct uc_arena arena;
	int status;
	const char *message; /* in @arena, or a constant */
	uint8_t *frame;      /* owned: the response, with its prefix */
	size_t n_frame;
};

/** struct uc_jobs_ops - what the owner does; on the loop's thread */
struct uc_jobs_ops {
	/* The job has its status; it is freed when this returns. */
	void (*done)(void *data, struct uc_call *call);
	/* The job is taken for hung: its waiter is to be answered. */
	void (*lost)(void *data, struct uc_call *call);
};

/** struct uc_jobs_config - limits; none may be 0 */
struct uc_jobs_config {
	unsigned workers, max_workers, max_queue;
	uint64_t hang_ms;
	const struct uc_jobs_ops *ops; /* borrowed */
	void *data;                    /* passed to them */
};

struct uc_jobs;

/** uc_jobs_new() - Make the table and the (still empty) pool; 0 or a negative errno */
int uc_jobs_new(struct uc_loop *loop, const struct uc_jobs_config *config,
		struct uc_jobs **ret_jobs);

/**
 * uc_jobs_free() - Drop what waits, wait for what runs; NULL is allowed
 *
 * Waits for handlers that make progress.  What is hung, or becomes so meanwhile,
 * is left behind: the worker frees it, should it ever return.
 */
void uc_jobs_free(struct uc_jobs *jobs);

/**
 * uc_jobs_submit() - Give a job to the workers, or join one that runs
 * @call:	Job with its waiter; taken on success
 * @now_ms:	Time
 * @ret_job:	The job that the waiter waits for: @call, or the one that it joined
 * @err:	Error detail; err->status is the gRPC code
 *
 * Return: 0, -EBUSY (ABORTED) where another job has the key, -ENOBUFS
 * (UNAVAILABLE) where too many wait or no worker can be had
 */
int uc_jobs_submit(struct uc_jobs *jobs, struct uc_call *call, uint64_t now_ms,
		   struct uc_call **ret_job, struct uc_err *err);

/**
 * uc_jobs_detach() - Nobody waits for the job any more
 * Return: true if it goes on; false if it was dropped, and freed
 */
bool uc_jobs_detach(struct uc_jobs *jobs, struct uc_call *call);

/**
 * uc_jobs_check() - Take jobs without progress for hung
 * Return: when to check again; UINT64_MAX: no need to
 */
uint64_t uc_jobs_check(struct uc_jobs *jobs, uint64_t now_ms);

/** uc_jobs_busy() - Jobs that wait or run */
unsigned uc_jobs_busy(const struct uc_jobs *jobs);

/** uc_jobs_lost() - Jobs that were taken for hung and have not returned */
unsigned uc_jobs_lost(const struct uc_jobs *jobs);

/** uc_jobs_each() - Call a function for every job, those that are taken for hung included */
void uc_jobs_each(struct uc_jobs *jobs, void (*fn)(void *data, struct uc_call *call), void *data);

/**
 * uc_job_describe() - Say what a job does
 * @to:	Result: "NodeStageVolume has been running for 12 s (format branch 1)"
 *
 * Return: @to
 */
const char *uc_job_describe(struct uc_call *call, uint64_t now_ms,
			    char to[static UC_JOB_TEXT_SIZE]);

/** uc_job_set_step() - What uc_call_step() does, or uc_call_beat() if @step is NULL; 0, or -ECANCELED
 * if the job is lost */
int uc_job_set_step(struct uc_call *call, const char *step, uint64_t now_ms);

/** uc_job_free() - Release a job that was not submitted, or is done; NULL is allowed */
void uc_job_free(struct uc_call *call);

UC_DEFINE_CLEANUP(struct uc_call *, uc_job_free)

/** uc_job_run() - Run a job's handler, check and pack its response; on a worker */
void uc_job_run(struct uc_call *call);
