/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether the backend is ready, as the housekeeper found it last: whoever asks
 * gets that answer at once, and never waits for a disk.  Safe from any thread.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/** struct csi_readiness - release with csi_readiness_done() */
struct csi_readiness {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool ready, asked, stop; /* lock */
	uint64_t checked_ms;     /* lock; 0: never */
};

/** csi_readiness_init() - Set up: not ready until somebody has looked */
void csi_readiness_init(struct csi_readiness *r);

/** csi_readiness_done() - Release */
void csi_readiness_done(struct csi_readiness *r);

/** csi_readiness_note() - Note what a look has found */
void csi_readiness_note(struct csi_readiness *r, bool ready);

/**
 * csi_readiness_get() - What the last look has found
 *
 * Where the last look was some time ago, another one follows soon.
 *
 * Return: false also if nobody has looked for so long that the looking itself must hang
 */
bool csi_readiness_get(struct csi_readiness *r);

/** csi_readiness_wait() - Wait until it is time for another look; false: there is none, see
 * csi_readiness_stop() */
bool csi_readiness_wait(struct csi_readiness *r);

/** csi_readiness_stop() - End csi_readiness_wait() for good */
void csi_readiness_stop(struct csi_readiness *r);
