/* SPDX-License-Identifier: Apache-2.0 */

#include <time.h>

#include "csi/readiness.h"
#include "lib/os/clock.h"

enum {
	EVERY_MS = 10 * 1000,
	EVERY_ASKED_MS = 1000,
	STALE_MS = 30 * 1000, /* a look at two disks that hang takes 20 s, once */
};

void csi_readiness_init(struct csi_readiness *r)
{
	pthread_condattr_t attr;

	*r = (struct csi_readiness){ .ready = false };
	pthread_mutex_init(&r->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->wake, &attr);
	pthread_condattr_destroy(&attr);
}

void csi_readiness_done(struct csi_readiness *r)
{
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->wake);
}

void csi_readiness_note(struct csi_readiness *r, bool ready)
{
	pthread_mutex_lock(&r->lock);
	r->ready = ready;
	r->checked_ms = uc_now_ms();
	pthread_mutex_unlock(&r->lock);
}

bool csi_readiness_get(struct csi_readiness *r)
{
	bool ready;

	pthread_mutex_lock(&r->lock);
	ready = r->ready && uc_now_ms() - r->checked_ms < STALE_MS;
	if (!r->asked) {
		r->asked = true;
		pthread_cond_signal(&r->wake);
	}
	pthread_mutex_unlock(&r->lock);
	return ready;
}

bool csi_readiness_wait(struct csi_readiness *r)
{
	bool stop;

	pthread_mutex_lock(&r->lock);
	for (;;) {
		uint64_t due = r->checked_ms + (r->asked ? EVERY_ASKED_MS : EVERY_MS);
		struct timespec at = {
			.tv_sec = (time_t)(due / 1000),
			.tv_nsec = (long)(due % 1000) * 1000000,
		};

		if (r->stop || uc_now_ms() >= due)
			break;
		pthread_cond_timedwait(&r->wake, &r->lock, &at);
	}
	r->asked = false;
	stop = r->stop;
	pthread_mutex_unlock(&r->lock);
	return !stop;
}

void csi_readiness_stop(struct csi_readiness *r)
{
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->lock);
}
