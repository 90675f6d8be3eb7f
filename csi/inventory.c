/* SPDX-License-Identifier: Apache-2.0 */

#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csi/inventory.h"

/* One volume; a node of a tree ordered by id. */
struct known_volume {
	char id[UC_VOLUME_ID_SIZE];
	enum uc_volume_phase phase;
	enum uc_stage_phase stage;
	size_t publishes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *entries;                      /* lock */
static struct csi_inventory_counts counts; /* lock */

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct known_volume *)a)->id, ((const struct known_volume *)b)->id);
}

/* Adds @e to the counts, or with @sign -1 takes it away. */
static void count(const struct known_volume *e, int sign)
{
	size_t one = (size_t)sign; /* wraps as it should */

	counts.creating += e->phase == UC_VOLUME_CREATING ? one : 0;
	counts.ready += e->phase == UC_VOLUME_READY ? one : 0;
	counts.deleting += e->phase == UC_VOLUME_DELETING ? one : 0;
	counts.staged += e->stage == UC_STAGE_STAGED ? one : 0;
	counts.publishes += one * e->publishes;
}

static void forget(const char *id)
{
	struct known_volume key, **found, *e;

	snprintf(key.id, sizeof(key.id), "%s", id);
	found = tfind(&key, &entries, compare);
	if (!found)
		return;
	e = *found;
	count(e, -1);
	tdelete(e, &entries, compare);
	free(e);
}

void csi_inventory_note(const struct uc_volume *v)
{
	struct known_volume *e = calloc(1, sizeof(*e));

	pthread_mutex_lock(&lock);
	forget(v->id);
	if (e) { /* a count that is off by one is all that a lack of memory costs */
		snprintf(e->id, sizeof(e->id), "%s", v->id);
		e->phase = v->phase;
		e->stage = v->stage.phase;
		e->publishes = v->n_publishes;
		if (tsearch(e, &entries, compare))
			count(e, 1);
		else
			free(e);
	}
	pthread_mutex_unlock(&lock);
}

void csi_inventory_count(struct csi_inventory_counts *ret)
{
	pthread_mutex_lock(&lock);
	*ret = counts;
	pthread_mutex_unlock(&lock);
}

int csi_store(struct uc_volume_lock *volume_lock, const struct uc_volume *v, struct uc_err *err)
{
	int r = uc_volume_store(volume_lock, v, err);

	if (r == 0)
		csi_inventory_note(v);
	return r;
}

int csi_forget(const struct uc_store *store, struct uc_volume_lock *volume_lock, const char *id,
	       struct uc_err *err)
{
	int r = uc_volume_forget(store, volume_lock, id, err);

	if (r == 0) {
		pthread_mutex_lock(&lock);
		forget(id);
		pthread_mutex_unlock(&lock);
	}
	return r;
}
