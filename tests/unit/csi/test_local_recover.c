/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"

#include "tests/lib/local.h"
#include "tests/lib/no_loopdevs.h"
#include "tests/lib/steps_sync.h"

#include "csi/local_recover.h"
#include "lib/base/macros.h"
#include "lib/os/blk.h"

int __real_mkdirat(int dirfd, const char *name, mode_t mode);
int __wrap_mkdirat(int dirfd, const char *name, mode_t mode);
int __wrap_mkdirat(int dirfd, const char *name, mode_t mode)
{
	return fails() ? -1 : __real_mkdirat(dirfd, name, mode);
}

static unsigned probes, blank_at, fails_at; /* the n-th branch that is looked at */
static bool all_blank;

int __wrap_uc_blk_probe(int fd, struct uc_blk_content *ret_content, struct uc_err *err);
int __wrap_uc_blk_probe(int fd, struct uc_blk_content *ret_content, struct uc_err *err)
{
	assert_true(fcntl(fd, F_GETFD) >= 0);
	probes++;
	if (probes == fails_at)
		return uc_fail(err, EIO, "probe");
	*ret_content = (struct uc_blk_content){
		.kind = all_blank || probes == blank_at ? UC_BLK_BLANK : UC_BLK_FILESYSTEM,
	};
	return 0;
}

static int set_up(void **state)
{
	(void)state;
	probes = blank_at = fails_at = 0;
	all_blank = false;
	local_begin(true);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	local_end();
	return 0;
}

/* The disk with the state is lost; the driver starts on an empty one. */
static void lose_state(void)
{
	local_close();
	remove_tree("s");
	local_open(true);
}

static void look(bool recover, struct csi_recovery_list *ret)
{
	struct uc_err err = { 0 };

	probes = 0;
	if (csi_local_find_orphans(local->pools, &store, recover, ret, &err) < 0)
		fail_msg("%s", err.msg);
}

/* What is wrong with the only volume; "" if nothing is. */
static const char *problem(size_t n_found)
{
	static char text[2048];
	struct csi_recovery_list list = { .n = 0 };

	look(true, &list);
	assert_int_equal(list.n, 1);
	assert_string_equal(list.items[0].id, "v1");
	assert_int_equal(list.items[0].n_found, n_found);
	snprintf(text, sizeof(text), "%s", list.items[0].problem ? list.items[0].problem : "");
	assert_int_equal(file_exists("s/volumes/v1/state.json"), !*text);
	csi_recovery_list_done(&list);
	return text;
}

static void check_problem(size_t n_found, const char *expected)
{
	const char *text = problem(n_found);

	if (!strstr(text, expected))
		fail_msg("`%s` lacks `%s`", text, expected);
}

static void what_has_its_state_is_no_orphan(void **state)
{
	struct csi_recovery_list list = { .n = 0 };

	(void)state;
	local_have("v1", 4);
	look(true, &list);
	assert_int_equal(list.n, 0);
	csi_recovery_list_done(&list);
}

static void a_lost_state_is_written_again(void **state)
{
	cleanup_volume struct uc_volume before = { .n_branches = 0 }, after = { .n_branches = 0 };
	struct csi_recovery_list list = { .n = 0 };

	(void)state;
	local_have("v1", 4);
	before = local_load("v1");
	lose_state();
	/* A look changes nothing. */
	look(false, &list);
	assert_int_equal(list.n, 1);
	assert_int_equal(list.items[0].n_branches, 4);
	assert_int_equal(list.items[0].n_found, 4);
	assert_int_equal(list.items[0].capacity, 4 << 24);
	assert_null(list.items[0].problem);
	csi_recovery_list_done(&list);
	assert_string_equal(listing("s/volumes"), "");

	assert_string_equal(problem(4), "");
	after = local_load("v1");
	assert_string_equal(after.name, before.name);
	assert_int_equal(after.phase, UC_VOLUME_READY);
	assert_int_equal(after.capacity, before.capacity);
	assert_int_equal(after.n_branches, before.n_branches);
	assert_true(after.thin);
	assert_true(after.initialised);
	assert_int_equal(after.stage.phase, UC_STAGE_NONE);
	for (size_t i = 0; i < 4; i++) {
		assert_string_equal(after.branches[i].uuid, before.branches[i].uuid);
		assert_string_equal(after.branches[i].pool, before.branches[i].pool);
		assert_int_equal(after.branches[i].format, UC_FORMAT_DONE);
	}
	look(true, &list);
	assert_int_equal(list.n, 0);
	/* And it is a volume like any other. */
	assert_int_equal(local_remove("v1", NULL), 0);
	assert_string_equal(local_files(), NO_FILES);
}

static void a_volume_whose_branches_are_all_blank_was_never_formatted(void **state)
{
	cleanup_volume struct uc_volume v = { .n_branches = 0 };

	(void)state;
	local_have("v1", 3);
	lose_state();
	all_blank = true;
	assert_string_equal(problem(3), "");
	v = local_load("v1");
	assert_false(v.initialised);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(v.branches[i].format, UC_FORMAT_NEVER);
}

static void a_blank_branch_among_others_is_not_recovered(void **state)
{
	(void)state;
	local_have("v1", 3);
	lose_state();
	for (unsigned n = 1; n <= 3; n++) {
		char expected[64];

		blank_at = n;
		snprintf(expected, sizeof(expected), "`v1.%u.img` carries nothing", n - 1);
		check_problem(3, expected);
	}
}

static void a_blank_branch_that_was_formatted_is_not_recovered(void **state)
{
	char text[16384], *format;

	(void)state;
	local_have("v1", 1);
	lose_state();
	snprintf(text, sizeof(text), "%s", file_text("p0/v1.0.json"));
	format = strstr(text, "\"never\"");
	assert_non_null(format);
	memmove(format + strlen("\"formatted\""), format + strlen("\"never\""),
		strlen(format + strlen("\"never\"")) + 1);
	memcpy(format, "\"formatted\"", strlen("\"formatted\""));
	write_file("p0/v1.0.json", text);
	all_blank = true;
	check_problem(0, "`v1.0.img` carries nothing, but it was formatted");
	all_blank = false;
	assert_string_equal(problem(1), "");
}

static void several_volumes_are_judged_each_by_itself(void **state)
{
	struct csi_recovery_list list = { .n = 0 };

	(void)state;
	local_have("a", 1);
	local_have("b.1", 2); /* an id with a dot and a digit */
	local_have("c", 3);
	lose_state();
	unlink("p1/b.1.1.img");
	look(true, &list);
	assert_int_equal(list.n, 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(list.items[i].problem != NULL,
				 strcmp(list.items[i].id, "b.1") == 0);
	csi_recovery_list_done(&list);
	assert_string_equal(listing("s/volumes"), "a c ");
}

static void files_that_are_no_branches_are_none(void **state)
{
	struct csi_recovery_list list = { .n = 0 };

	(void)state;
	write_file("p0/v1.img", "");
	write_file("p0/v1.x.img", "");
	write_file("p0/v1.-1.img", "");
	write_file("p0/v1.0.iso", "");
	write_file("p0/v1.00000000.img", "");
	write_file("p0/.0.img", "");
	write_file("p0/.v1.0.json.tmp", "");
	write_file("p0/ .0.img", "");
	make_dir("p0/lost+found");
	look(true, &list);
	assert_int_equal(list.n, 0);
	csi_recovery_list_done(&list);
}

static void a_volume_that_is_not_whole_is_not_recovered(void **state)
{
	(void)state;
	local_have("v1", 4);
	lose_state();

	assert_int_equal(rename("p2/v1.2.img", "kept"), 0);
	check_problem(3, "`v1.2.img`");
	assert_int_equal(rename("kept", "p2/v1.2.img"), 0);

	assert_int_equal(rename("p2/v1.2.json", "kept"), 0);
	check_problem(3, "`v1.2.json`");
	assert_int_equal(rename("kept", "p2/v1.2.json"), 0);

	assert_int_equal(truncate("p1/v1.1.img", 4096), 0);
	check_problem(3, "`v1.1.img` has 4096 bytes, not 16777216");
	assert_int_equal(truncate("p1/v1.1.img", 1 << 24), 0);

	fails_at = 4;
	check_problem(3, "`v1.3.img`: probe");
	fails_at = 0;

	assert_string_equal(problem(4), "");
}

static void a_branch_of_another_volume_is_told(void **state)
{
	char text[16384];

	(void)state;
	local_have("v1", 2);
	local_have("v2", 2);
	lose_state();
	/* v2's second branch in the place of v1's. */
	snprintf(text, sizeof(text), "%s", file_text("p1/v2.1.json"));
	write_file("p1/v1.1.json", text);
	unlink("p0/v2.0.json");
	unlink("p0/v2.0.img");
	unlink("p1/v2.1.json");
	unlink("p1/v2.1.img");
	check_problem(1, "`v1.1.json` describes another volume than its fellows");
	/* Branches that were exchanged. */
	snprintf(text, sizeof(text), "%s", file_text("p0/v1.0.json"));
	write_file("p1/v1.1.json", text);
	check_problem(1, "`v1.1.json` describes another volume than its fellows");
	/* All of them are v2's. */
	snprintf(text, sizeof(text), "%s", file_text("p0/v1.0.json"));
	unlink("p1/v1.1.json");
	for (char *p = strstr(text, "\"v1\""); p; p = strstr(p, "\"v1\""))
		p[2] = '2';
	write_file("p0/v1.0.json", text);
	check_problem(0, "its files describe volume `v2`");
}

static void images_alone_are_not_enough(void **state)
{
	(void)state;
	local_have("v1", 2);
	lose_state();
	unlink("p0/v1.0.json");
	unlink("p1/v1.1.json");
	check_problem(0, "no .json file beside any branch");
	write_file("p0/v1.0.json", "garbage");
	check_problem(0, "`v1.0.json`");
}

static void a_pool_that_is_missing_lets_nothing_be_judged(void **state)
{
	struct csi_recovery_list list = { .n = 0 };
	struct uc_err err = { 0 };

	(void)state;
	local_have("v1", 3);
	lose_state();
	unlink("p2/.union-csi-pool");
	assert_true(csi_local_find_orphans(local->pools, &store, true, &list, &err) < 0);
	assert_non_null(strstr(err.msg, "p2"));
	assert_int_equal(list.n, 0);
	assert_string_equal(listing("s/volumes"), "");
}

static void a_recovery_that_fails_at_any_step_is_made_again(void **state)
{
	unsigned n;

	(void)state;
	for (n = 1; n < 50; n++) {
		struct csi_recovery_list list = { .n = 0 };
		bool failed;

		local_have("v1", 2);
		lose_state();
		fail_step(n, true);
		look(true, &list);
		fail_nothing();
		assert_int_equal(list.n, 1);
		failed = list.items[0].problem;
		csi_recovery_list_done(&list);
		look(true, &list);
		for (size_t i = 0; i < list.n; i++)
			assert_null(list.items[i].problem);
		csi_recovery_list_done(&list);
		assert_int_equal(local_remove("v1", NULL), 0);
		assert_string_equal(local_files(), NO_FILES);
		if (!failed)
			break;
	}
	assert_int_equal(n, 6); /* mkdir, sync; sync, rename, sync of the state */
}

static void an_empty_directory_of_the_volume_is_no_state(void **state)
{
	(void)state;
	local_have("v1", 2);
	lose_state();
	make_dir("s/volumes/v1");
	assert_string_equal(problem(2), "");
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(what_has_its_state_is_no_orphan),
		T(a_lost_state_is_written_again),
		T(a_volume_whose_branches_are_all_blank_was_never_formatted),
		T(a_blank_branch_among_others_is_not_recovered),
		T(a_blank_branch_that_was_formatted_is_not_recovered),
		T(several_volumes_are_judged_each_by_itself),
		T(files_that_are_no_branches_are_none),
		T(a_volume_that_is_not_whole_is_not_recovered),
		T(a_branch_of_another_volume_is_told),
		T(images_alone_are_not_enough),
		T(a_pool_that_is_missing_lets_nothing_be_judged),
		T(a_recovery_that_fails_at_any_step_is_made_again),
		T(an_empty_directory_of_the_volume_is_no_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
