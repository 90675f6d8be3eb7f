/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Errors: a number for the program, a sentence for the person.
 *
 * Every function that can fail returns int: 0 on success, a negative errno on
 * failure.  Functions on the control path also take a struct uc_err, owned by
 * the caller, and leave one sentence in it.  Callers add context on the way
 * up with uc_wrap(); the text reads outermost first:
 *
 *     stage volume `v1`: mount `/dev/loop3`: Device or resource busy
 *
 * Rules
 *   - success leaves *err untouched; err may be NULL
 *   - nothing here allocates, so reporting ENOMEM cannot fail
 *   - a positive return is a documented condition, never an error, and is
 *     handled by the direct caller
 */

enum {
	UC_ERR_MSG_MAX = 1024,
};

struct uc_err {
	int num;    /* positive errno; 0 means no error */
	int status; /* what the program's edge reports (a gRPC code, say); 0: derive it from num */
	char msg[UC_ERR_MSG_MAX];
};

/**
 * uc_fail() - Record an error
 * @err:	Where to record it, or NULL
 * @num:	Positive errno
 * @fmt:	What we were doing, without the errno text
 *
 * Return: always -@num, so that `return uc_fail(err, ENOENT, ...)` works
 */
int uc_fail(struct uc_err *err, int num, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/**
 * uc_fail_as() - Record an error whose sentence is complete and whose class is known
 * @err:	Where to record it, or NULL
 * @num:	Positive errno
 * @status:	What the program's edge is to report
 * @fmt:	The whole sentence: no errno text is added
 *
 * Return: always -@num
 */
int uc_fail_as(struct uc_err *err, int num, int status, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/**
 * uc_wrap() - Put context in front of a recorded error
 * @err:	Error to extend, or NULL
 * @r:		Negative errno that is being propagated; it may differ from the recorded one, and
 * replaces it
 * @fmt:	What the caller was doing
 *
 * Return: always @r
 */
int uc_wrap(struct uc_err *err, int r, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#ifdef __clang_analyzer__
/* The analyser cannot see that these never return 0, and would follow paths that do not exist. */
#define uc_fail(err, num, ...) (uc_fail(err, num, __VA_ARGS__), -1)
#define uc_fail_as(err, num, status, ...) (uc_fail_as(err, num, status, __VA_ARGS__), -1)
#endif
