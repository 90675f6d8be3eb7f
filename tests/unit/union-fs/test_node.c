/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ufs.h"

#include <pthread.h>
#include <sys/resource.h>

#include "lib/base/macros.h"
#include "union-fs/objmap.h"

enum {
	ROOT = 1, /* its number */
};

static size_t fds_before;

static int set_up(void **state)
{
	(void)state;
	fresh_branches(3);
	fds_before = open_fds();
	union_open(3);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	union_close();
	assert_int_equal(open_fds(), fds_before);
	return 0;
}

static bool is_known(uint64_t id)
{
	cleanup_node struct ufs_node *node = ufs_node_get(fs, id);

	return node != NULL;
}

/* Number of nodes; the root is one. */
static size_t n_nodes(void)
{
	size_t n = 0;

	for (uint32_t i = 0; i < fs->nodes.n; i++)
		n += fs->nodes.slot[i].object != NULL;
	return n;
}

/* Nothing but the root is known, with a copy on each branch. */
static void check_clean(void)
{
	assert_int_equal(n_nodes(), 1);
	assert_int_equal(fs->objects.n, fs->n_branches);
	assert_true(is_known(ROOT));
}

/* ------------------------------------------------------------------- lookups and forgets */

static void the_root_is_always_there(void **state)
{
	(void)state;
	check_clean();
	for (int i = 0; i < 3; i++)
		ufs_node_forget(fs, ROOT, UINT64_MAX);
	check_clean();
	for (unsigned i = 0; i < 3; i++) {
		cleanup_node struct ufs_node *root = ufs_node_get(fs, ROOT);

		assert_true(ufs_node_has_copy(root, i));
		assert_false(ufs_node_has_copy(root, 3));
	}
}

static void a_name_is_the_same_node_until_it_is_forgotten_as_often_as_it_was_looked_up(void **state)
{
	uint64_t id;

	(void)state;
	write_file("b1/f", "");
	id = lookup(ROOT, "f");
	for (int i = 0; i < 4; i++)
		assert_int_equal(lookup(ROOT, "f"), id);
	ufs_node_forget(fs, id, 2);
	assert_true(is_known(id));
	ufs_node_forget(fs, id, 2);
	assert_true(is_known(id));
	ufs_node_forget(fs, id, 1);
	assert_false(is_known(id));
	check_clean();
}

static void forgetting_too_much_or_what_is_not_known_is_allowed(void **state)
{
	static const uint64_t ids[] = { 0, 2, 77, UINT32_MAX, UINT64_MAX };
	uint64_t id;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		ufs_node_forget(fs, ids[i], 1);
		assert_false(is_known(ids[i]));
	}
	write_file("b0/f", "");
	id = lookup(ROOT, "f");
	ufs_node_forget(fs, id, UINT64_MAX);
	ufs_node_forget(fs, id, 1);
	check_clean();
}

static void a_request_keeps_its_node(void **state)
{
	struct ufs_node *node;
	uint64_t id;

	(void)state;
	write_file("b0/f", "");
	id = lookup(ROOT, "f");
	node = ufs_node_get(fs, id);
	ufs_node_forget(fs, id, 1);
	assert_true(is_known(id));
	assert_int_equal(lookup(ROOT, "f"), id); /* found again */
	ufs_node_forget(fs, id, 1);
	ufs_node_put(node);
	assert_false(is_known(id));
	ufs_node_put(NULL);
	check_clean();
}

static void a_number_that_is_used_again_has_another_generation(void **state)
{
	uint32_t generation[3];

	(void)state;
	for (int i = 0; i < 3; i++) {
		char path[16];
		uint64_t id;

		snprintf(path, sizeof(path), "b0/f%d", i);
		write_file(path, "");
		id = lookup(ROOT, path + 3);
		assert_int_equal(id, 2);
		{
			cleanup_node struct ufs_node *node = ufs_node_get(fs, id);

			generation[i] = node->generation;
		}
		ufs_node_forget(fs, id, 1);
	}
	assert_int_not_equal(generation[0], generation[1]);
	assert_int_not_equal(generation[1], generation[2]);
	assert_int_not_equal(generation[0], generation[2]);
}

static void hard_links_are_one_node(void **state)
{
	uint64_t id;

	(void)state;
	write_file("b0/f", "");
	assert_int_equal(link("b0/f", "b0/g"), 0);
	id = lookup(ROOT, "f");
	assert_int_equal(lookup(ROOT, "g"), id);
	ufs_node_forget(fs, id, 2);
	check_clean();
}

static void another_file_of_the_same_name_is_another_node(void **state)
{
	uint64_t id;

	(void)state;
	write_file("b0/f", "");
	id = lookup(ROOT, "f");
	write_file("b0/g", "");
	assert_int_equal(rename("b0/g", "b0/f"), 0);
	assert_int_not_equal(lookup(ROOT, "f"), id);
	assert_int_equal(n_nodes(), 3);
}

static void many_nodes_come_and_go(void **state)
{
	enum { N_MAX = 3000 };
	static uint64_t ids[N_MAX];
	char path[32];
	int n = N_MAX;

	(void)state;
	/* For who is not root, each keeps a descriptor; directories need some of them, too. */
	if (fs->max_kept_fds < 2 * N_MAX)
		n = (int)fs->max_kept_fds / 4 * 2;
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "b%d/f%d", i % 3, i);
		write_file(path, "");
		ids[i] = lookup(ROOT, path + 3);
		assert_int_equal(ids[i], i + 2);
	}
	assert_int_equal(n_nodes(), n + 1);
	for (int i = 0; i < n; i += 2)
		ufs_node_forget(fs, ids[i], 1);
	assert_int_equal(n_nodes(), n / 2 + 1);
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "f%d", i);
		if (i % 2)
			assert_int_equal(lookup(ROOT, path), ids[i]);
		else
			ids[i] = lookup(ROOT, path);
	}
	/* Freed numbers are used again. */
	assert_int_equal(fs->nodes.n, n + 1);
	for (int i = 0; i < n; i++)
		ufs_node_forget(fs, ids[i], i % 2 ? 2 : 1);
	check_clean();
}

/* --------------------------------------------------------------------------- directories */

static void directories_of_one_name_are_one_node(void **state)
{
	struct ufs_node *d;

	(void)state;
	make_dir("b0/d");
	make_dir("b2/d");
	{
		cleanup_node struct ufs_node *root = ufs_node_get(fs, ROOT);

		d = enter(root, "d");
	}
	assert_true(d->is_dir);
	assert_true(ufs_node_has_copy(d, 0));
	assert_false(ufs_node_has_copy(d, 1));
	assert_true(ufs_node_has_copy(d, 2));
	assert_int_equal(lookup(ROOT, "d"), ufs_node_id(d));
	/* A copy that came later is found by the next lookup; one that went is not. */
	make_dir("b1/d");
	assert_int_equal(rmdir("b2/d"), 0);
	assert_int_equal(lookup(ROOT, "d"), ufs_node_id(d));
	assert_true(ufs_node_has_copy(d, 1));
	assert_false(ufs_node_has_copy(d, 2));
	ufs_node_forget(fs, ufs_node_id(d), 3);
	ufs_node_put(d);
}

static void a_directory_lives_while_one_below_it_does(void **state)
{
	uint64_t a, ab, abc;

	(void)state;
	make_dir("b0/a");
	make_dir("b0/a/b");
	make_dir("b0/a/b/c");
	a = lookup(ROOT, "a");
	ab = lookup(a, "b");
	abc = lookup(ab, "c");
	ufs_node_forget(fs, a, 1);
	ufs_node_forget(fs, ab, 1);
	assert_int_equal(n_nodes(), 4);
	ufs_node_forget(fs, abc, 1);
	check_clean();
}

static void a_file_does_not_hold_its_directory(void **state)
{
	uint64_t a, f;

	(void)state;
	make_dir("b0/a");
	write_file("b0/a/f", "");
	a = lookup(ROOT, "a");
	f = lookup(a, "f");
	ufs_node_forget(fs, a, 1);
	assert_false(is_known(a));
	assert_true(is_known(f));
	ufs_node_forget(fs, f, 1);
	check_clean();
}

static void a_directory_knows_where_it_is(void **state)
{
	cleanup_node struct ufs_node *root = ufs_node_get(fs, ROOT);
	struct ufs_node *parent = NULL;
	char *name = NULL;
	uint64_t a, ab;

	(void)state;
	make_dir("b0/a");
	make_dir("b0/a/b");
	a = lookup(ROOT, "a");
	ab = lookup(a, "b");
	assert_int_equal(ufs_node_where(root, &parent, &name), -ENOENT);
	{
		cleanup_node struct ufs_node *b = ufs_node_get(fs, ab);

		assert_int_equal(ufs_node_where(b, &parent, &name), 0);
		assert_int_equal(ufs_node_id(parent), a);
		assert_string_equal(name, "b");
		ufs_node_put(parent);
		free(name);
		/* It moves to the root, under another name. */
		ufs_node_move(b, root, strdup("z"));
		assert_int_equal(ufs_node_where(b, &parent, &name), 0);
		assert_ptr_equal(parent, root);
		assert_string_equal(name, "z");
		ufs_node_put(parent);
		free(name);
	}
	ufs_node_forget(fs, a, 1); /* nothing is below it any more */
	assert_false(is_known(a));
	ufs_node_forget(fs, ab, 1);
}

static void a_directory_that_was_moved_is_the_same_node_at_its_new_place(void **state)
{
	struct ufs_node *parent = NULL;
	char *name = NULL;
	uint64_t a;

	(void)state;
	make_dir("b0/a");
	make_dir("b1/a");
	a = lookup(ROOT, "a");
	assert_int_equal(rename("b0/a", "b0/z"), 0);
	assert_int_equal(rename("b1/a", "b1/z"), 0);
	assert_int_equal(lookup(ROOT, "z"), a);
	{
		cleanup_node struct ufs_node *node = ufs_node_get(fs, a);

		assert_int_equal(ufs_node_where(node, &parent, &name), 0);
	}
	assert_string_equal(name, "z");
	ufs_node_put(parent);
	free(name);
}

static void copies_that_were_torn_apart_are_two_nodes(void **state)
{
	uint64_t a, z;

	(void)state;
	make_dir("b0/a");
	make_dir("b1/a");
	(void)lookup(ROOT, "a");
	assert_int_equal(rename("b1/a", "b1/z"), 0);
	z = lookup(ROOT, "z");
	a = lookup(ROOT, "a");
	assert_int_not_equal(a, z);
	assert_int_equal(lookup(ROOT, "a"), a);
	assert_int_equal(lookup(ROOT, "z"), z);
	assert_int_equal(n_nodes(), 3);
}

static void a_directory_cannot_be_below_itself(void **state)
{
	cleanup_view struct ufs_view v = { 0 };
	cleanup_finds struct ufs_finds f = { 0 };
	struct ufs_node *node = NULL;
	uint64_t ab;

	(void)state;
	make_dir("b0/a");
	make_dir("b0/a/b");
	ab = lookup(lookup(ROOT, "a"), "b");
	{
		/* Somebody moves them about while a request looks: `a` seems to be in `b`. */
		cleanup_node struct ufs_node *root = ufs_node_get(fs, ROOT);
		cleanup_node struct ufs_node *b = ufs_node_get(fs, ab);

		assert_int_equal(ufs_view_open(fs, root, &v), 0);
		assert_int_equal(ufs_find(fs, &v, "a", &f), 0);
		assert_int_equal(ufs_node_enter(b, "a", &f, NULL, &node), -ELOOP);
	}
	assert_null(node);
}

static void a_lookup_during_a_change_of_the_tree_is_made_again(void **state)
{
	cleanup_node struct ufs_node *root = ufs_node_get(fs, ROOT);
	cleanup_view struct ufs_view v = { 0 };
	cleanup_finds struct ufs_finds f = { 0 };
	struct ufs_node *node = NULL;

	(void)state;
	make_dir("b0/d");
	assert_int_equal(ufs_view_open(fs, root, &v), 0);
	assert_int_equal(ufs_find(fs, &v, "d", &f), 0);
	ufs_tree_lock(fs);
	ufs_tree_begin(fs);
	assert_int_equal(ufs_node_enter(root, "d", &f, &v.seq, &node), -EAGAIN);
	ufs_tree_end(fs);
	ufs_tree_unlock(fs);
	assert_int_equal(ufs_node_enter(root, "d", &f, &v.seq, &node), -EAGAIN);
	assert_null(node);
	/* It was looked at again. */
	assert_int_equal(ufs_node_enter(root, "d", &f, &fs->tree_seq, &node), 0);
	ufs_node_put(node);
}

static void copies_are_added_and_dropped(void **state)
{
	cleanup_node struct ufs_node *d = NULL;
	struct ufs_found f = { .fd = -1 };
	int b1 = open_dir("b1");

	(void)state;
	make_dir("b0/d");
	{
		cleanup_node struct ufs_node *root = ufs_node_get(fs, ROOT);

		d = enter(root, "d");
	}
	make_dir("b1/d");
	assert_int_equal(ufs_probe(fs, 1, b1, "d", &f), 0);
	assert_int_equal(ufs_node_add_copy(d, &f, true, false), 0);
	uc_closep(&f.fd);
	assert_true(ufs_node_has_copy(d, 1));
	assert_int_equal(ufs_probe(fs, 1, b1, "d", &f), 0);
	ufs_node_drop_found(d, &f);
	ufs_node_drop_found(d, &f); /* it has it no longer */
	uc_closep(&f.fd);
	close(b1);
	assert_false(ufs_node_has_copy(d, 1));
	assert_true(ufs_node_has_copy(d, 0));
}

/* ------------------------------------------------------------------------------- threads */

enum {
	THREADS = 6,
	ROUNDS = 1500,
	NAMES = 5,
};

static void *look_up_and_forget(void *data)
{
	unsigned seed = (unsigned)(uintptr_t)data;

	for (int i = 0; i < ROUNDS; i++) {
		cleanup_node struct ufs_node *root = ufs_node_get(fs, ROOT);
		struct ufs_node *node;
		char name[16];

		snprintf(name, sizeof(name), "%c%d", seed % 2 ? 'f' : 'd', rand_r(&seed) % NAMES);
		node = enter(root, name);
		assert_non_null(node);
		/* One that is looked up twice and forgotten at once, or once and before it is put. */
		if (seed % 3 == 0) {
			ufs_node_forget(fs, ufs_node_id(node), 1);
			ufs_node_put(node);
		} else {
			uint64_t id = ufs_node_id(node);

			ufs_node_put(node);
			assert_int_equal(lookup(ROOT, name), id);
			ufs_node_forget(fs, id, 2);
		}
	}
	return NULL;
}

static void threads_that_look_up_and_forget_the_same_names_agree(void **state)
{
	pthread_t threads[THREADS];
	char path[32];

	(void)state;
	for (int i = 0; i < NAMES; i++) {
		snprintf(path, sizeof(path), "b%d/f%d", i % 3, i);
		write_file(path, "");
		for (int k = 0; k < 3; k++) {
			snprintf(path, sizeof(path), "b%d/d%d", k, i);
			make_dir(path);
		}
	}
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, look_up_and_forget, (void *)(i + 1)), 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	/* Every lookup was taken back. */
	check_clean();
}

/* As union-fs itself does. */
static int raise_limit(void **state)
{
	struct rlimit files;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	return 0;
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(the_root_is_always_there),
		T(a_name_is_the_same_node_until_it_is_forgotten_as_often_as_it_was_looked_up),
		T(forgetting_too_much_or_what_is_not_known_is_allowed),
		T(a_request_keeps_its_node),
		T(a_number_that_is_used_again_has_another_generation),
		T(hard_links_are_one_node),
		T(another_file_of_the_same_name_is_another_node),
		T(many_nodes_come_and_go),
		T(directories_of_one_name_are_one_node),
		T(a_directory_lives_while_one_below_it_does),
		T(a_file_does_not_hold_its_directory),
		T(a_directory_knows_where_it_is),
		T(a_directory_that_was_moved_is_the_same_node_at_its_new_place),
		T(copies_that_were_torn_apart_are_two_nodes),
		T(a_directory_cannot_be_below_itself),
		T(a_lookup_during_a_change_of_the_tree_is_made_again),
		T(copies_are_added_and_dropped),
		T(threads_that_look_up_and_forget_the_same_names_agree),
	};

	return cmocka_run_group_tests(tests, raise_limit, NULL);
}
