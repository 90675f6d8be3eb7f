/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include "tests/lib/volume.h"
#include <errno.h>
#include <pthread.h>

#include "csi/inventory.h"

static int store_result;

int __wrap_uc_volume_store(struct uc_volume_lock *lock, const struct uc_volume *v,
			   struct uc_err *err);
int __wrap_uc_volume_store(struct uc_volume_lock *lock, const struct uc_volume *v,
			   struct uc_err *err)
{
	(void)lock;
	(void)v;
	(void)err;
	return store_result;
}

int __wrap_uc_volume_forget(const struct uc_store *store, struct uc_volume_lock *lock,
			    const char *id, struct uc_err *err);
int __wrap_uc_volume_forget(const struct uc_store *store, struct uc_volume_lock *lock,
			    const char *id, struct uc_err *err)
{
	(void)store;
	(void)lock;
	(void)id;
	(void)err;
	return store_result;
}

static struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;

static int store(const char *id, enum uc_volume_phase phase, enum uc_stage_phase stage,
		 size_t publishes)
{
	cleanup_volume struct uc_volume v = make_volume(id, 1);

	v.phase = phase;
	v.stage.phase = stage;
	for (size_t i = 0; i < publishes; i++) {
		char target[16];

		snprintf(target, sizeof(target), "/%zu", i);
		uc_volume_add_publish(&v, target);
	}
	return csi_store(&lock, &v, NULL);
}

static void check_counts(size_t creating, size_t ready, size_t deleting, size_t staged,
			 size_t publishes)
{
	struct csi_inventory_counts c;

	csi_inventory_count(&c);
	assert_int_equal(c.creating, creating);
	assert_int_equal(c.ready, ready);
	assert_int_equal(c.deleting, deleting);
	assert_int_equal(c.staged, staged);
	assert_int_equal(c.publishes, publishes);
}

static int forget_all(void **state)
{
	(void)state;
	store_result = 0;
	csi_forget(NULL, &lock, "a", NULL);
	csi_forget(NULL, &lock, "b", NULL);
	csi_forget(NULL, &lock, "c", NULL);
	check_counts(0, 0, 0, 0, 0);
	return 0;
}

static void volumes_are_counted_by_state(void **state)
{
	(void)state;
	store("a", UC_VOLUME_CREATING, UC_STAGE_NONE, 0);
	check_counts(1, 0, 0, 0, 0);
	store("b", UC_VOLUME_READY, UC_STAGE_STAGING, 0);
	check_counts(1, 1, 0, 0, 0);
	store("c", UC_VOLUME_DELETING, UC_STAGE_NONE, 0);
	check_counts(1, 1, 1, 0, 0);
}

static void a_volume_counts_once_in_its_latest_state(void **state)
{
	(void)state;
	store("a", UC_VOLUME_CREATING, UC_STAGE_NONE, 0);
	store("a", UC_VOLUME_READY, UC_STAGE_NONE, 0);
	check_counts(0, 1, 0, 0, 0);
	store("a", UC_VOLUME_READY, UC_STAGE_STAGED, 3);
	store("b", UC_VOLUME_READY, UC_STAGE_STAGED, 2);
	check_counts(0, 2, 0, 2, 5);
	store("a", UC_VOLUME_READY, UC_STAGE_UNSTAGING, 1);
	check_counts(0, 2, 0, 1, 3);
	store("a", UC_VOLUME_DELETING, UC_STAGE_NONE, 0);
	check_counts(0, 1, 1, 1, 2);
}

static void a_volume_that_was_read_is_noted_too(void **state)
{
	cleanup_volume struct uc_volume v = make_full_volume("a");

	(void)state;
	csi_inventory_note(&v);
	csi_inventory_note(&v);
	check_counts(0, 1, 0, 1, 2);
}

static void a_forgotten_volume_does_not_count(void **state)
{
	(void)state;
	store("a", UC_VOLUME_READY, UC_STAGE_STAGED, 2);
	store("b", UC_VOLUME_DELETING, UC_STAGE_NONE, 0);
	assert_int_equal(csi_forget(NULL, &lock, "a", NULL), 0);
	check_counts(0, 0, 1, 0, 0);
	assert_int_equal(csi_forget(NULL, &lock, "never-noted", NULL), 0);
	check_counts(0, 0, 1, 0, 0);
}

static void what_could_not_be_stored_or_forgotten_is_as_it_was(void **state)
{
	(void)state;
	store("a", UC_VOLUME_READY, UC_STAGE_NONE, 0);
	store_result = -EIO;
	assert_int_equal(store("a", UC_VOLUME_DELETING, UC_STAGE_STAGED, 1), -EIO);
	assert_int_equal(store("b", UC_VOLUME_CREATING, UC_STAGE_NONE, 0), -EIO);
	assert_int_equal(csi_forget(NULL, &lock, "a", NULL), -EIO);
	check_counts(0, 1, 0, 0, 0);
}

static void *note_often(void *arg)
{
	char id[2] = { 0 };

	for (int i = 0; i < 500; i++) {
		id[0] = (char)('a' + (i + *(int *)arg) % 3);
		if (i % 3)
			store(id, UC_VOLUME_READY, UC_STAGE_STAGED, 1);
		else
			csi_forget(NULL, &lock, id, NULL);
	}
	return NULL;
}

static void threads_may_note_at_the_same_time(void **state)
{
	pthread_t threads[4];
	int seeds[4] = { 0, 1, 2, 3 };

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, note_often, &seeds[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, forget_all, forget_all)
	const struct CMUnitTest tests[] = {
		T(volumes_are_counted_by_state),
		T(a_volume_counts_once_in_its_latest_state),
		T(a_volume_that_was_read_is_noted_too),
		T(a_forgotten_volume_does_not_count),
		T(what_could_not_be_stored_or_forgotten_is_as_it_was),
		T(threads_may_note_at_the_same_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
