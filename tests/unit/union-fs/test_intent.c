/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/steps_sync.h"
#include "tests/lib/steps_write.h"
#include "tests/lib/unit.h"

#include "lib/base/macros.h"
#include "union-fs/intent.h"

int __real_unlinkat(int dirfd, const char *name, int flags);
int __wrap_unlinkat(int dirfd, const char *name, int flags);
int __wrap_unlinkat(int dirfd, const char *name, int flags)
{
	return fails() ? -1 : __real_unlinkat(dirfd, name, flags);
}

static int home = -1;
static size_t fds_before;

static int set_up(void **state)
{
	(void)state;
	fail_nothing();
	fresh_dir("home");
	fds_before = open_fds();
	home = open_dir("home");
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fail_nothing();
	close(home);
	assert_int_equal(open_fds(), fds_before);
	return 0;
}

static struct ufs_intent_branch two_branches[] = { { .branch = 0, .ino = 4711 },
						   { .branch = 3, .ino = 0 } };
static char from[] = "a/b c", to[] = "d";
static const struct ufs_intent plain = {
	.from = from,
	.to = to,
	.branch = two_branches,
	.n = 2,
};

static int load(unsigned n_branches, struct uc_err *err)
{
	cleanup_intent struct ufs_intent read = { 0 };
	struct uc_err ignored;
	int r = ufs_intent_load(home, n_branches, &read, err ? err : &ignored);

	if (r < 0)
		return r;
	assert_string_equal(read.from, from);
	assert_string_equal(read.to, to);
	assert_int_equal(read.n, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(read.branch[i].branch, two_branches[i].branch);
		assert_int_equal(read.branch[i].ino, two_branches[i].ino);
	}
	return 0;
}

/* ------------------------------------------------------------------------- paths as text */

static void every_byte_of_a_path_comes_back(void **state)
{
	char path[256];

	(void)state;
	for (unsigned i = 1; i < 256; i++)
		path[i - 1] = (char)i;
	path[255] = '\0';
	{
		cleanup_free char *text = ufs_intent_escape(path);
		cleanup_free char *back = ufs_intent_unescape(text);

		assert_string_equal(back, path);
		for (const char *p = text; *p; p++)
			assert_true(*p > ' ' && *p < 0x7f && *p != '"' && *p != '\\');
	}
}

static void an_inode_of_any_number_comes_back(void **state)
{
	const ino_t was = two_branches[0].ino;

	(void)state;
	two_branches[0].ino = UINT64_MAX;
	assert_int_equal(ufs_intent_store(home, &plain), 0);
	assert_int_equal(load(4, NULL), 0);
	two_branches[0].ino = was;
}

static void plain_names_are_readable(void **state)
{
	static const struct {
		const char *path, *text;
	} cases[] = {
		{ "", "" },           { "a/b.c_d-E9", "a/b.c_d-E9" }, { "a b", "a%20b" },
		{ "100%", "100%25" }, { "\xc3\xa4", "%C3%A4" },       { "\n", "%0A" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cleanup_free char *text = ufs_intent_escape(cases[i].path);
		cleanup_free char *back = ufs_intent_unescape(cases[i].text);

		assert_string_equal(text, cases[i].text);
		assert_string_equal(back, cases[i].path);
	}
}

static void what_was_not_escaped_is_refused(void **state)
{
	static const char *const texts[] = { "%",   "%4",  "%4g", "%g4", "%00", "a b",   "\xc3\xa4",
					     "%4a", "a%%", "%2",  "\n",  "a\"", "%-1/b", "% 1" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		assert_null(ufs_intent_unescape(texts[i]));
}

/* ---------------------------------------------------------------------- store and load */

static void an_intent_comes_back(void **state)
{
	(void)state;
	assert_int_equal(load(4, NULL), -ENOENT);
	assert_int_equal(ufs_intent_store(home, &plain), 0);
	assert_int_equal(load(4, NULL), 0);
	assert_string_equal(listing("home"), UFS_INTENT_FILE " ");
	assert_int_equal(ufs_intent_remove(home), 0);
	assert_int_equal(load(4, NULL), -ENOENT);
	assert_int_equal(ufs_intent_remove(home), 0);
	assert_string_equal(listing("home"), "");
}

static void a_branch_that_there_is_not_is_damage(void **state)
{
	(void)state;
	assert_int_equal(ufs_intent_store(home, &plain), 0);
	assert_int_equal(load(3, NULL), -EUCLEAN);
}

static void a_damaged_intent_is_told_and_left_alone(void **state)
{
#define BRANCHES "\"branches\": [{\"branch\": 0, \"ino\": 1}]"
	static const char *const texts[] = {
		"",
		"garbage",
		"[]",
		"{}",
		"{\"version\": 1, \"from\": \"a\", " BRANCHES "}",
		"{\"version\": 1, \"to\": \"a\", " BRANCHES "}",
		"{\"version\": 1, \"from\": \"a\", \"to\": \"b\"}",
		"{\"version\": 2, \"from\": \"a\", \"to\": \"b\", " BRANCHES "}",
		"{\"from\": \"a\", \"to\": \"b\", " BRANCHES "}",
		"{\"version\": 1, \"from\": \"\", \"to\": \"b\", " BRANCHES "}",
		"{\"version\": 1, \"from\": \"/a\", \"to\": \"b\", " BRANCHES "}",
		"{\"version\": 1, \"from\": \"a\", \"to\": \"%2\", " BRANCHES "}",
		"{\"version\": 1, \"from\": \"a\", \"to\": \"b c\", " BRANCHES "}",
		"{\"version\": 1, \"from\": 7, \"to\": \"b\", " BRANCHES "}",
		"{\"version\": 1, \"from\": \"a\", \"to\": \"b\", \"branches\": {}}",
		"{\"version\": 1, \"from\": \"a\", \"to\": \"b\", \"branches\": [7]}",
		"{\"version\": 1, \"from\": \"a\", \"to\": \"b\", \"branches\": [{}]}",
		"{\"version\": 1, \"from\": \"a\", \"to\": \"b\","
		" \"branches\": [{\"branch\": 0}]}",
		"{\"version\": 1, \"from\": \"a\", \"to\": \"b\","
		" \"branches\": [{\"branch\": -1, \"ino\": 1}]}",
		"{\"version\": 1, \"from\": \"a\", \"to\": \"b\","
		" \"branches\": [{\"branch\": 4, \"ino\": 1}]}",
		"{\"version\": 1, \"from\": \"a\", \"to\": \"b\","
		" \"branches\": [{\"branch\": 0, \"ino\": -1}]}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct uc_err err = { 0 };
		int r;

		write_file("home/" UFS_INTENT_FILE, texts[i]);
		r = load(4, &err);
		if (r != -EUCLEAN)
			fail_msg("`%s`: %d", texts[i], r);
		assert_non_null(strstr(err.msg, UFS_INTENT_FILE));
		assert_string_equal(file_text("home/" UFS_INTENT_FILE), texts[i]);
	}
}

static void an_intent_cut_short_anywhere_is_damage(void **state)
{
	char text[4096];
	size_t n;

	(void)state;
	assert_int_equal(ufs_intent_store(home, &plain), 0);
	n = (size_t)snprintf(text, sizeof(text), "%s", file_text("home/" UFS_INTENT_FILE));
	while (n > 0 && text[n - 1] != '}') /* only white space is behind it */
		n--;
	while (n-- > 0) {
		text[n] = '\0';
		write_file("home/" UFS_INTENT_FILE, text);
		assert_int_equal(load(4, NULL), -EUCLEAN);
	}
}

static void a_store_that_fails_at_any_step_leaves_no_half_intent(void **state)
{
	unsigned n;

	(void)state;
	for (n = 1; n < 50; n++) {
		int r, found;

		fail_step(n, true);
		r = ufs_intent_store(home, &plain);
		fail_nothing();
		found = load(4, NULL);
		assert_true(found == 0 || found == -ENOENT);
		/* It is there if it was stored. */
		if (r == 0)
			assert_int_equal(found, 0);
		assert_int_equal(ufs_intent_remove(home), 0);
		assert_string_equal(listing("home"), "");
		if (r == 0)
			break;
		assert_int_equal(r, -EIO);
	}
	assert_int_equal(n, 5); /* write, sync, rename, sync of the directory */
}

static void a_removal_that_fails_at_any_step_is_made_again(void **state)
{
	unsigned n;

	(void)state;
	for (n = 1; n < 50; n++) {
		int r;

		assert_int_equal(ufs_intent_store(home, &plain), 0);
		fail_step(n, true);
		r = ufs_intent_remove(home);
		fail_nothing();
		assert_int_equal(ufs_intent_remove(home), 0);
		assert_string_equal(listing("home"), "");
		if (r == 0)
			break;
		assert_int_equal(r, -EIO);
	}
	assert_int_equal(n, 4);
}

static void a_longer_intent_replaces_a_shorter_one(void **state)
{
	static struct ufs_intent_branch many[1000];
	struct ufs_intent big = { .from = to, .to = from, .branch = many, .n = ARRAY_SIZE(many) };
	cleanup_intent struct ufs_intent read = { 0 };

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = (struct ufs_intent_branch){ .branch = i, .ino = i * 7 + 1 };
	assert_int_equal(ufs_intent_store(home, &plain), 0);
	assert_int_equal(ufs_intent_store(home, &big), 0);
	assert_int_equal(ufs_intent_load(home, 1000, &read, NULL), 0);
	assert_int_equal(read.n, 1000);
	assert_int_equal(read.branch[999].ino, 999 * 7 + 1);
	assert_int_equal(ufs_intent_store(home, &plain), 0);
	assert_int_equal(load(4, NULL), 0);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(every_byte_of_a_path_comes_back),
		T(plain_names_are_readable),
		T(an_inode_of_any_number_comes_back),
		T(what_was_not_escaped_is_refused),
		T(an_intent_comes_back),
		T(a_branch_that_there_is_not_is_damage),
		T(a_damaged_intent_is_told_and_left_alone),
		T(an_intent_cut_short_anywhere_is_damage),
		T(a_store_that_fails_at_any_step_leaves_no_half_intent),
		T(a_removal_that_fails_at_any_step_is_made_again),
		T(a_longer_intent_replaces_a_shorter_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
