/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Helper programs: run to the end, with a time limit and their output kept. */

#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

/** struct uc_proc - how to run a program */
struct uc_proc {
	const char *const *argv; /* ended by NULL; argv[0] is looked up in PATH */
	const char *input;       /* fed to its standard input; NULL: /dev/null */
	uint64_t timeout_ms;     /* killed after that; 0: never */
	int (*tick)(void *data); /* called four times a second; negative: kill it; or NULL */
	void *tick_data;
};

/**
 * uc_proc_run() - Run a program and wait for its end
 * @proc:	What and how
 * @output:	Standard output and error together, at most 64 KiB (the rest is read and dropped);
 * or NULL
 * @err:	Error detail, with the last lines of the output; or NULL
 *
 * The child has an empty environment but PATH and LC_ALL=C, no descriptor but 0–2,
 * default signal handling and a process group of its own, which is killed with
 * it on a timeout.  The call ends when the child has: what it leaves running in the
 * background keeps running.  The caller ignores SIGPIPE: a child need not read its @input.
 *
 * Return: 0 (exit status 0), what tick() returned, -ETIMEDOUT, -EIO (other exit status, or a signal), -ENOENT (no such
 * program), another negative errno
 */
int uc_proc_run(const struct uc_proc *proc, struct uc_buf *output, struct uc_err *err);
