/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "union-fs/objmap.h"

static bool no_memory;

void *__real_reallocarray(void *p, size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return no_memory ? NULL : __real_reallocarray(p, n, size);
}

static struct ufs_ident ident(ino_t ino)
{
	return (struct ufs_ident){ .dev = 1, .ino = ino };
}

static struct ufs_lower *make(ino_t ino)
{
	const struct ufs_ident id = ident(ino);
	struct ufs_lower *l = ufs_lower_new(&id, false);

	assert_non_null(l);
	return l;
}

static void add_range(struct ufs_objmap *m, ino_t from, ino_t to)
{
	for (ino_t i = from; i < to; i++)
		ufs_objmap_add(m, make(i));
}

static void check_range(const struct ufs_objmap *m, ino_t from, ino_t to, bool there)
{
	for (ino_t i = from; i < to; i++) {
		const struct ufs_ident id = ident(i);
		struct ufs_lower *l = ufs_objmap_find(m, &id);

		assert_int_equal(l != NULL, there);
		if (l)
			assert_int_equal(l->ino, i);
	}
}

static void what_was_added_is_found(void **state)
{
	struct ufs_objmap m;

	(void)state;
	assert_int_equal(ufs_objmap_init(&m), 0);
	check_range(&m, 0, 10, false);
	add_range(&m, 0, 5);
	check_range(&m, 0, 5, true);
	check_range(&m, 5, 10, false);
	assert_int_equal(m.n, 5);
	ufs_objmap_done(&m);
}

static void many_objects_are_found_while_the_map_grows(void **state)
{
	const ino_t n = 20000;
	struct ufs_objmap m;
	size_t longest = 0;

	(void)state;
	assert_int_equal(ufs_objmap_init(&m), 0);
	for (ino_t i = 0; i < n; i += 500) {
		add_range(&m, i, i + 500);
		check_range(&m, i - (i > 500 ? 500 : i), i + 500, true);
	}
	check_range(&m, 0, n, true);
	check_range(&m, n, 2 * n, false);
	assert_int_equal(m.n, n);
	assert_true(m.n_buckets >= n - 1);
	for (size_t i = 0; i < m.n_buckets; i++) {
		size_t length = 0;

		for (struct ufs_lower *l = m.bucket[i]; l; l = l->next)
			length++;
		longest = length > longest ? length : longest;
	}
	assert_true(longest < 20);
	ufs_objmap_done(&m);
}

static void what_was_removed_is_not_found(void **state)
{
	struct ufs_objmap m;

	(void)state;
	assert_int_equal(ufs_objmap_init(&m), 0);
	add_range(&m, 0, 3000);
	for (ino_t i = 0; i < 3000; i += 2) {
		const struct ufs_ident id = ident(i);
		struct ufs_lower *l = ufs_objmap_find(&m, &id);

		ufs_objmap_remove(&m, l);
		ufs_lower_free(l);
	}
	assert_int_equal(m.n, 1500);
	for (ino_t i = 0; i < 3000; i++)
		check_range(&m, i, i + 1, i % 2);
	for (ino_t i = 0; i < 3000; i += 2)
		add_range(&m, i, i + 1);
	check_range(&m, 0, 3000, true);
	ufs_objmap_done(&m);
}

static void an_object_is_told_by_all_of_its_identity(void **state)
{
	unsigned char a[] = { 1, 2, 3, 4 }, b[] = { 1, 2, 3, 5 };
	const struct ufs_ident ids[] = {
		{ .dev = 1, .ino = 7 },
		{ .dev = 2, .ino = 7 },
		{ .dev = 1, .ino = 8 },
		{ .dev = 1, .ino = 7, .branch = 1 },
		{ .dev = 1, .ino = 7, .handle_size = 4, .handle_type = 1, .handle = a },
		{ .dev = 1, .ino = 7, .handle_size = 4, .handle_type = 2, .handle = a },
		{ .dev = 1, .ino = 7, .handle_size = 4, .handle_type = 1, .handle = b },
		{ .dev = 1, .ino = 7, .handle_size = 3, .handle_type = 1, .handle = a },
	};
	enum { N = sizeof(ids) / sizeof(ids[0]) };
	struct ufs_lower *l[N];
	struct ufs_objmap m;

	(void)state;
	assert_int_equal(ufs_objmap_init(&m), 0);
	for (size_t i = 0; i < N; i++) {
		assert_null(ufs_objmap_find(&m, &ids[i]));
		l[i] = ufs_lower_new(&ids[i], false);
		ufs_objmap_add(&m, l[i]);
	}
	for (size_t i = 0; i < N; i++) {
		assert_ptr_equal(ufs_objmap_find(&m, &ids[i]), l[i]);
		for (size_t k = 0; k < N; k++)
			assert_int_equal(ufs_lower_is(l[i], &ids[k]), i == k);
	}
	ufs_objmap_done(&m);
}

static void without_memory_the_map_works_on(void **state)
{
	struct ufs_objmap m;

	(void)state;
	assert_int_equal(ufs_objmap_init(&m), 0);
	no_memory = true;
	add_range(&m, 0, 2000);
	check_range(&m, 0, 2000, true);
	no_memory = false;
	add_range(&m, 2000, 8000);
	check_range(&m, 0, 8000, true);
	check_range(&m, 8000, 9000, false);
	ufs_objmap_done(&m);
}

static void an_empty_map_is_released(void **state)
{
	struct ufs_objmap m;

	(void)state;
	assert_int_equal(ufs_objmap_init(&m), 0);
	ufs_objmap_done(&m);
	assert_null(m.bucket);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_added_is_found),
		cmocka_unit_test(many_objects_are_found_while_the_map_grows),
		cmocka_unit_test(what_was_removed_is_not_found),
		cmocka_unit_test(an_object_is_told_by_all_of_its_identity),
		cmocka_unit_test(without_memory_the_map_works_on),
		cmocka_unit_test(an_empty_map_is_released),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
