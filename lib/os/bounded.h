/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Functions that may hang, with a time limit: what hangs costs one thread for ever, not one per call. */

#include <stdint.h>

/**
 * uc_bounded_run() - Run a function that may hang
 * @key:	What it may hang on: while a call with this key hangs, further ones fail at once
 * @timeout_ms:	How long to wait for it
 * @fn:		The function; it runs in a thread of its own
 * @data:	What it works on
 * @release:	Releases @data where nobody waits for it any more
 *
 * Safe from any thread.
 *
 * Return: 0 (@fn has ended), -ETIMEDOUT (it hangs: @data is not the caller's any more, and is released
 * when @fn ends), -EALREADY (an earlier call hangs), or another negative errno.  After all but
 * -ETIMEDOUT @data is still the caller's.
 */
int uc_bounded_run(const char *key, uint64_t timeout_ms, void (*fn)(void *data), void *data,
		   void (*release)(void *data));
