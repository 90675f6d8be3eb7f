/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * Each call runs on a detached thread of its own, and is in the list of calls
 * until it has ended and nobody waits for it.  The caller waits on a condition
 * with a time limit and then lets go.  A call whose caller has gone stays in
 * the list until its function ends: as long as it is there, nobody starts
 * another one with its key.
 */

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/os/bounded.h"

struct call {
	char *key;
	void (*fn)(void *data);
	void (*release)(void *data);
	void *data;
	bool ended, abandoned; /* lock */
	struct call *next;     /* lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended; /* broadcast: few wait at a time */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct call *calls; /* lock */

static void init(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&ended, &attr);
	pthread_condattr_destroy(&attr);
}

/* Takes @c off the list and releases it, but not its data; under the lock. */
static void forget(struct call *c)
{
	for (struct call **p = &calls; *p; p = &(*p)->next)
		if (*p == c) {
			*p = c->next;
			break;
		}
	free(c->key);
	free(c);
}

static void *run(void *arg)
{
	struct call *c = arg, copy = *c;

	copy.fn(copy.data);
	pthread_mutex_lock(&lock);
	copy.abandoned = c->abandoned;
	if (copy.abandoned) {
		forget(c);
	} else {
		c->ended = true;
		pthread_cond_broadcast(&ended);
	}
	pthread_mutex_unlock(&lock);
	if (copy.abandoned)
		copy.release(copy.data);
	return NULL;
}

static int start(struct call *c)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN + 64 * 1024);
	r = pthread_create(&thread, &attr, run, c);
	pthread_attr_destroy(&attr);
	return -r;
}

/* Under the lock. */
static int add(const struct call *template, const char *key, struct call **ret_call)
{
	struct call *c;
	int r;

	for (c = calls; c; c = c->next)
		if (c->abandoned && strcmp(c->key, key) == 0)
			return -EALREADY;
	c = malloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	*c = *template;
	c->key = strdup(key);
	c->next = calls;
	calls = c;
	r = c->key ? start(c) : -ENOMEM;
	if (r < 0) {
		forget(c);
		return r;
	}
	*ret_call = c;
	return 0;
}

static struct timespec end_of(uint64_t timeout_ms)
{
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += (time_t)(timeout_ms / 1000);
	end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000;
	}
	return end;
}

int uc_bounded_run(const char *key, uint64_t timeout_ms, void (*fn)(void *data), void *data,
		   void (*release)(void *data))
{
	const struct call template = { .fn = fn, .data = data, .release = release };
	struct timespec end = end_of(timeout_ms);
	struct call *c = NULL;
	int r;

	pthread_once(&once, init);
	pthread_mutex_lock(&lock);
	r = add(&template, key, &c);
	while (r == 0 && !c->ended)
		r = -pthread_cond_timedwait(&ended, &lock, &end);
	if (c && c->ended) { /* perhaps in the very moment that the time was over */
		forget(c);
		r = 0;
	} else if (c) {
		c->abandoned = true;
		r = -ETIMEDOUT;
	}
	pthread_mutex_unlock(&lock);
	return r;
}
