/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <stdlib.h>
#include <string.h>

#include "csi.pb-c.h"
#include "lib/rpc/arena.h"

static void memory_is_zeroed_aligned_and_separate(void **state)
{
	cleanup_arena struct uc_arena arena = UC_ARENA_INIT;
	unsigned char *last = NULL;
	size_t last_n = 0;

	(void)state;
	/* What malloc() hands out next was used before. */
	for (int i = 0; i < 20; i++) {
		void *dirty[20];

		for (size_t k = 0; k < 20; k++) {
			dirty[k] = malloc(1000 << i % 7);
			memset(dirty[k], 0xff, 1000 << i % 7);
		}
		for (size_t k = 0; k < 20; k++)
			free(dirty[k]);
	}
	for (size_t n = 0; n < 5000; n += 7) {
		unsigned char *p = uc_arena_alloc(&arena, n);

		assert_non_null(p);
		assert_int_equal((uintptr_t)p % 16, 0);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(p[i], 0);
		memset(p, 0xff, n);
		for (size_t i = 0; i < last_n; i++)
			assert_int_equal(last[i], 0xff);
		last = p;
		last_n = n;
	}
}

static void limit_is_kept_and_remembered(void **state)
{
	cleanup_arena struct uc_arena arena = { .max = 10000 };

	(void)state;
	while (uc_arena_alloc(&arena, 100))
		assert_true(arena.total <= 10000);
	assert_true(arena.failed);
	assert_true(arena.total > 5000);
	assert_null(uc_arena_alloc(&arena, SIZE_MAX));
	assert_null(uc_arena_alloc(&arena, SIZE_MAX - 8));
	uc_arena_done(&arena);
	assert_int_equal(arena.total, 0);
	assert_int_equal(arena.max, 10000);
	assert_false(arena.failed);
	assert_non_null(uc_arena_alloc(&arena, 100));
}

static void strings_are_copied(void **state)
{
	cleanup_arena struct uc_arena arena = UC_ARENA_INIT;
	char text[] = "text";
	char *copy = uc_arena_strdup(&arena, text);

	(void)state;
	text[0] = 'n';
	assert_string_equal(copy, "text");
	assert_string_equal(uc_arena_strdup(&arena, ""), "");
}

static void messages_are_unpacked_into_it(void **state)
{
	cleanup_arena struct uc_arena arena = UC_ARENA_INIT;
	ProtobufCAllocator allocator = UC_ARENA_ALLOCATOR(&arena);
	Csi__V1__NodePublishVolumeRequest req = CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__INIT, *back;
	char id[] = "v1", target[] = "/target";
	uint8_t bytes[100];
	size_t n;

	(void)state;
	req.volume_id = id;
	req.target_path = target;
	n = csi__v1__node_publish_volume_request__pack(&req, bytes);
	back = csi__v1__node_publish_volume_request__unpack(&allocator, n, bytes);
	assert_string_equal(back->volume_id, "v1");
	assert_string_equal(back->target_path, "/target");

	/* Where the arena refuses, unpacking fails; nothing leaks, nothing crashes. */
	for (size_t max = 1; max < 600; max++) {
		struct uc_arena small = { .max = max };
		ProtobufCAllocator a = UC_ARENA_ALLOCATOR(&small);
		bool ok = csi__v1__node_publish_volume_request__unpack(&a, n, bytes) != NULL;

		assert_int_equal(ok, !small.failed);
		uc_arena_done(&small);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_zeroed_aligned_and_separate),
		cmocka_unit_test(limit_is_kept_and_remembered),
		cmocka_unit_test(strings_are_copied),
		cmocka_unit_test(messages_are_unpacked_into_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
