/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "csi.pb-c.h"
#include "lib/base/macros.h"
#include "lib/rpc/pbdigest.h"

/* Memory may run out. */
static bool no_memory;
void *__real_calloc(size_t k, size_t n);
void *__real_malloc(size_t n);
void *__wrap_calloc(size_t k, size_t n);
void *__wrap_malloc(size_t n);

void *__wrap_calloc(size_t k, size_t n)
{
	return no_memory ? NULL : __real_calloc(k, n);
}

void *__wrap_malloc(size_t n)
{
	return no_memory ? NULL : __real_malloc(n);
}

typedef Csi__V1__Volume__VolumeContextEntry Context;

enum { N = 4 };

/* A list of two volumes, as ListVolumes gives it: maps below repeated messages. */
struct list {
	Csi__V1__ListVolumesResponse msg;
	Csi__V1__ListVolumesResponse__Entry entries[2], *entry_list[2];
	Csi__V1__Volume volumes[2];
	Context context[2][N], *context_list[2][N];
};

static const char *const keys[N] = { "b", "a", "", "ab" };

static void list_init(struct list *l)
{
	csi__v1__list_volumes_response__init(&l->msg);
	l->msg.n_entries = 2;
	l->msg.entries = l->entry_list;
	for (size_t i = 0; i < 2; i++) {
		csi__v1__list_volumes_response__entry__init(&l->entries[i]);
		l->entry_list[i] = &l->entries[i];
		csi__v1__volume__init(&l->volumes[i]);
		l->entries[i].volume = &l->volumes[i];
		l->volumes[i].volume_id = (char *)(i ? "v1" : "v0");
		l->volumes[i].n_volume_context = N;
		l->volumes[i].volume_context = l->context_list[i];
		for (size_t j = 0; j < N; j++) {
			csi__v1__volume__volume_context_entry__init(&l->context[i][j]);
			l->context[i][j].key = (char *)keys[j];
			l->context[i][j].value = (char *)(j % 2 ? "x" : "y");
			l->context_list[i][j] = &l->context[i][j];
		}
	}
}

static void swap(void *list, size_t i, size_t j)
{
	void **p = list, *tmp = p[i];

	p[i] = p[j];
	p[j] = tmp;
}

static bool differ(struct list *a, struct list *b)
{
	uint8_t x[UC_SHA256_SIZE], y[UC_SHA256_SIZE];

	assert_int_equal(uc_pbdigest(&a->msg.base, x), 0);
	assert_int_equal(uc_pbdigest(&b->msg.base, y), 0);
	return memcmp(x, y, sizeof(x)) != 0;
}

static void order_of_a_map_does_not_count(void **state)
{
	struct list a, b;

	(void)state;
	for (size_t i = 0; i < 2 * N; i++) {
		list_init(&a);
		list_init(&b);
		swap(b.context_list[i / N], i % N, (i + 1) % N);
		swap(b.context_list[i / N], 0, 2);
		assert_false(differ(&a, &b));
	}
}

static void order_of_everything_else_counts(void **state)
{
	struct list a, b;

	(void)state;
	list_init(&a);
	list_init(&b);
	swap(b.entry_list, 0, 1);
	assert_true(differ(&a, &b));
}

static void what_a_map_holds_counts(void **state)
{
	struct list a, b;

	(void)state;
	list_init(&a);
	list_init(&b);
	b.context[1][3].value = (char *)"other";
	assert_true(differ(&a, &b));
	list_init(&b);
	b.context[1][3].key = (char *)"other";
	assert_true(differ(&a, &b));
	list_init(&b);
	b.volumes[1].n_volume_context = N - 1;
	assert_true(differ(&a, &b));
}

static void of_two_entries_with_one_key_the_last_stays_the_last(void **state)
{
	struct list a, b;

	(void)state;
	list_init(&a);
	a.context[0][3].key = (char *)"b";
	assert_false(differ(&a, &a));
	assert_ptr_equal(a.context_list[0][3], &a.context[0][3]);
	list_init(&b);
	b.context[0][3].key = (char *)"b";
	swap(b.context_list[0], 0, 3);
	assert_true(differ(&a, &b));
}

static void the_member_of_a_oneof_that_is_not_set_is_left_alone(void **state)
{
	Csi__V1__VolumeCapability cap = CSI__V1__VOLUME_CAPABILITY__INIT;
	uint8_t digest[UC_SHA256_SIZE];

	(void)state;
	assert_int_equal(uc_pbdigest(&cap.base, digest), 0);
	cap.mount = (void *)1;
	assert_int_equal(uc_pbdigest(&cap.base, digest), 0);
	cap.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
	cap.mount = NULL;
	assert_int_equal(uc_pbdigest(&cap.base, digest), 0);
}

static void memory_may_run_out(void **state)
{
	Csi__V1__NodeGetInfoRequest empty = CSI__V1__NODE_GET_INFO_REQUEST__INIT;
	uint8_t digest[UC_SHA256_SIZE];
	struct list l;

	(void)state;
	list_init(&l);
	no_memory = true;
	assert_int_equal(uc_pbdigest(&l.msg.base, digest), -ENOMEM);
	assert_int_equal(uc_pbdigest(&empty.base, digest), -ENOMEM);
	no_memory = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_of_a_map_does_not_count),
		cmocka_unit_test(order_of_everything_else_counts),
		cmocka_unit_test(what_a_map_holds_counts),
		cmocka_unit_test(of_two_entries_with_one_key_the_last_stays_the_last),
		cmocka_unit_test(the_member_of_a_oneof_that_is_not_set_is_left_alone),
		cmocka_unit_test(memory_may_run_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
