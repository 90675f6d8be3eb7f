/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/steps_sync.h"
#include "tests/lib/steps_write.h"
#include "tests/lib/unit.h"

#include "csi/pool.h"
#include "lib/base/json.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/os/statfs.h"
#include "lib/rpc/status.h"

static int statfs_result;

int __wrap_uc_statfs_bounded(int fd, uint64_t timeout_ms, struct uc_statfs *ret,
			     struct uc_err *err);
int __wrap_uc_statfs_bounded(int fd, uint64_t timeout_ms, struct uc_statfs *ret, struct uc_err *err)
{
	assert_true(fd >= 0);
	assert_true(timeout_ms > 0);
	if (statfs_result < 0)
		return uc_fail(err, -statfs_result, "ask");
	*ret = (struct uc_statfs){ .total = 3000, .available = 1000, .used = 1500 };
	return 0;
}

/* Each test has an empty state directory s/ and empty directories p0/, p1/, p2/. */
static struct uc_store store = UC_STORE_INIT;
static char cwd[4000];
static size_t fds_before;

static int set_up(void **state)
{
	(void)state;
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	fail_nothing();
	statfs_result = 0;
	remove_tree("s");
	fresh_dir("p0");
	fresh_dir("p1");
	fresh_dir("p2");
	assert_int_equal(uc_store_open("s", &store, NULL), 0);
	fds_before = open_fds();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fail_nothing();
	assert_int_equal(open_fds(), fds_before);
	uc_store_close(&store);
	return 0;
}

static struct csi_pools *make_pools(char *const *dirs, enum csi_pools_mode mode)
{
	struct csi_pools *p = NULL;
	struct uc_err err = { 0 };

	if (csi_pools_new(dirs, &store, mode, &p, &err) < 0)
		fail_msg("%s", err.msg);
	return p;
}

#define POOLS(...) make_pools(STRV(__VA_ARGS__), CSI_POOLS_ADOPT)
#define cleanup_pools cleanup_with(csi_pools_freep)

/* Opens pool @i, and says by what UUID it goes. */
static const char *open_pool(struct csi_pools *p, size_t i)
{
	static char uuids[4][UC_UUID_TEXT_SIZE];
	static unsigned turn;
	char *uuid = uuids[turn++ % 4];
	struct uc_err err = { 0 };
	int fd = csi_pools_open(p, i, uuid, &err);

	if (fd < 0)
		fail_msg("%s", err.msg);
	close(fd);
	return uuid;
}

static void check_refused(struct csi_pools *p, size_t i, const char *reason)
{
	char uuid[UC_UUID_TEXT_SIZE] = "untouched";
	struct uc_err err = { 0 };

	assert_true(csi_pools_open(p, i, uuid, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_UNAVAILABLE);
	assert_string_equal(uuid, "untouched");
	if (!strstr(err.msg, reason))
		fail_msg("`%s` lacks `%s`", err.msg, reason);
	assert_non_null(strstr(err.msg, csi_pools_dir(p, i)));
}

static void write_marker(const char *dir, const char *uuid)
{
	char path[64], text[128];

	snprintf(path, sizeof(path), "%s/.union-csi-pool", dir);
	snprintf(text, sizeof(text), "{\"version\": 1, \"uuid\": \"%s\"}\n", uuid);
	write_file(path, text);
}

#define UUID_A "aaaaaaaa-0000-4000-8000-000000000000"
#define UUID_B "bbbbbbbb-0000-4000-8000-000000000000"

/* "uuid=dir …" as pools.json has it, without the path of the working directory. */
static const char *known(void)
{
	static char text[4096];
	cleanup_json json_t *o = json_load_file("s/pools.json", 0, NULL);
	json_t *item;
	size_t i, n = 0;

	text[0] = '\0';
	json_array_foreach(json_object_get(o, "pools"), i, item)
	{
		const char *dir = json_string_value(json_object_get(item, "dir"));

		assert_true(uc_str_has_prefix(dir, cwd));
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s=%s ",
				      json_string_value(json_object_get(item, "uuid")),
				      dir + strlen(cwd) + 1);
	}
	return text;
}

/* ---------------------------------------------------------------------- adoption */

static void an_empty_directory_becomes_a_pool_once(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0");
	char expected[128];
	const char *uuid = open_pool(p, 0);

	(void)state;
	assert_true(uc_uuid_is_valid(uuid));
	assert_string_equal(listing("p0"), ".union-csi-pool ");
	assert_non_null(strstr(file_text("p0/.union-csi-pool"), uuid));
	snprintf(expected, sizeof(expected), "%s=p0 ", uuid);
	assert_string_equal(known(), expected);
	for (int i = 0; i < 3; i++)
		assert_string_equal(open_pool(p, 0), uuid);
	assert_string_equal(known(), expected);
}

static void what_mkfs_and_a_crash_leave_does_not_make_a_directory_full(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0");

	(void)state;
	make_dir("p0/lost+found");
	write_file("p0/..union-csi-pool.tmp", "half");
	open_pool(p, 0);
	assert_string_equal(listing("p0"), ".union-csi-pool lost+found ");
}

static void a_directory_that_holds_anything_is_not_taken_for_a_pool(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0");

	(void)state;
	write_file("p0/thesis.tex", "x");
	check_refused(p, 0, "it is not empty");
	assert_string_equal(listing("p0"), "thesis.tex ");
	assert_string_equal(known(), "");
}

static void a_pool_whose_state_was_lost_is_a_pool_again(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0");

	(void)state;
	write_marker("p0", UUID_A);
	write_file("p0/v1.0.img", "data");
	assert_string_equal(open_pool(p, 0), UUID_A);
	assert_string_equal(known(), UUID_A "=p0 ");
	assert_string_equal(file_text("p0/v1.0.img"), "data");
}

static void a_look_writes_nothing(void **state)
{
	cleanup_pools struct csi_pools *p = make_pools(STRV("p0", "p1"), CSI_POOLS_LOOK);

	(void)state;
	write_marker("p1", UUID_A);
	check_refused(p, 0, "it carries no .union-csi-pool");
	assert_string_equal(open_pool(p, 1), UUID_A);
	assert_string_equal(listing("p0"), "");
	assert_string_equal(known(), "");
}

static void only_what_carries_a_marker_is_recorded_where_nothing_is_made(void **state)
{
	cleanup_pools struct csi_pools *p = make_pools(STRV("p0", "p1"), CSI_POOLS_RECORD);

	(void)state;
	write_marker("p1", UUID_A);
	check_refused(p, 0, "it carries no .union-csi-pool");
	assert_string_equal(open_pool(p, 1), UUID_A);
	assert_string_equal(listing("p0"), "");
	assert_string_equal(known(), UUID_A "=p1 ");
}

static void an_adoption_that_fails_is_made_again_with_the_same_uuid(void **state)
{
	unsigned n;

	(void)state;
	for (n = 1; n < 100; n++) {
		cleanup_pools struct csi_pools *p = NULL;
		char uuid[UC_UUID_TEXT_SIZE];
		struct uc_err err = { 0 };
		const char *marker;
		int fd;

		fresh_dir("p0");
		unlink("s/pools.json");
		p = POOLS("p0");
		fail_step(n, false);
		fd = csi_pools_open(p, 0, uuid, &err);
		fail_nothing();
		if (fd >= 0) {
			close(fd);
			break;
		}
		assert_int_equal(fd, -EIO);
		assert_int_equal(err.status, UC_GRPC_UNAVAILABLE);
		marker = file_text("p0/.union-csi-pool");
		open_pool(p, 0);
		if (marker)
			assert_string_equal(file_text("p0/.union-csi-pool"), marker);
		assert_string_equal(listing("p0"), ".union-csi-pool ");
	}
	assert_in_range(n, 7, 20);
}

/* ------------------------------------------------------- missing, foreign, moved */

static void a_pool_that_lost_its_marker_is_missing_not_new(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0"), *again = NULL;
	const char *uuid = open_pool(p, 0);

	(void)state;
	unlink("p0/.union-csi-pool"); /* the disk is not mounted: an empty directory */
	check_refused(p, 0, uuid);
	check_refused(p, 0, "is its disk mounted?");
	again = POOLS("p0"); /* nor after a restart */
	check_refused(again, 0, uuid);
	assert_string_equal(listing("p0"), "");
}

static void a_directory_that_is_not_there_may_come(void **state)
{
	cleanup_pools struct csi_pools *p = NULL;
	char path[4100];

	(void)state;
	snprintf(path, sizeof(path), "%s/later", cwd);
	remove_tree("later");
	p = make_pools(STRV(path), CSI_POOLS_ADOPT);
	check_refused(p, 0, "No such file or directory");
	make_dir("later");
	open_pool(p, 0);
}

static void what_is_no_directory_is_no_pool(void **state)
{
	struct csi_pools *none = NULL;
	cleanup_pools struct csi_pools *p = NULL;
	struct uc_err err = { 0 };

	(void)state;
	write_file("file", "x");
	p = POOLS("file");
	check_refused(p, 0, "Not a directory");
	assert_int_equal(csi_pools_new(STRV("nowhere"), &store, CSI_POOLS_ADOPT, &none, &err),
			 -ENOENT);
	assert_non_null(strstr(err.msg, "`nowhere`"));
	assert_null(none);
}

static void a_foreign_pool_is_refused_with_both_names(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0");
	char was[UC_UUID_TEXT_SIZE], expected[128];

	(void)state;
	snprintf(was, sizeof(was), "%s", open_pool(p, 0));
	write_marker("p0", UUID_B);
	check_refused(p, 0, was);
	check_refused(p, 0, UUID_B);
	check_refused(p, 0, "foreign");
	snprintf(expected, sizeof(expected), "%s=p0 ", was);
	assert_string_equal(known(), expected);
}

static void a_damaged_marker_is_refused_and_left_alone(void **state)
{
	static const char *const markers[] = {
		"",
		"garbage",
		"{}",
		"{\"version\": 1}",
		"{\"version\": 1, \"uuid\": \"x\"}",
		"{\"version\": 1, \"uuid\": 7}",
		"{\"version\": 2, \"uuid\": \"" UUID_A "\"}", /* a later driver's */
		"{\"uuid\": \"" UUID_A "\"}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(markers); i++) {
		cleanup_pools struct csi_pools *p = POOLS("p0");

		write_file("p0/.union-csi-pool", markers[i]);
		check_refused(p, 0, ".union-csi-pool");
		assert_string_equal(file_text("p0/.union-csi-pool"), markers[i]);
		assert_string_equal(known(), "");
	}
}

static void a_pool_that_moved_is_known_at_its_new_place(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0"), *moved = NULL;
	char uuid[UC_UUID_TEXT_SIZE], expected[128];

	(void)state;
	snprintf(uuid, sizeof(uuid), "%s", open_pool(p, 0));
	assert_int_equal(rmdir("p1"), 0);
	assert_int_equal(rename("p0", "p1"), 0);
	moved = POOLS("p1");
	assert_string_equal(open_pool(moved, 0), uuid);
	snprintf(expected, sizeof(expected), "%s=p1 ", uuid);
	assert_string_equal(known(), expected);
}

static void swap_p0_and_p1(void)
{
	assert_int_equal(rename("p0", "tmp"), 0);
	assert_int_equal(rename("p1", "p0"), 0);
	assert_int_equal(rename("tmp", "p1"), 0);
}

static void pools_that_changed_places_are_told_by_their_uuids(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0", "p1");
	char a[UC_UUID_TEXT_SIZE], b[UC_UUID_TEXT_SIZE];

	(void)state;
	snprintf(a, sizeof(a), "%s", open_pool(p, 0));
	snprintf(b, sizeof(b), "%s", open_pool(p, 1));
	swap_p0_and_p1();
	for (int i = 0; i < 2; i++) {
		assert_string_equal(open_pool(p, 0), b);
		assert_string_equal(open_pool(p, 1), a);
	}
	swap_p0_and_p1();
	assert_string_equal(open_pool(p, 1), b);
	assert_string_equal(open_pool(p, 0), a);
}

static void the_empty_place_of_a_pool_that_moved_is_not_taken_for_a_new_pool(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0", "p1");
	char a[UC_UUID_TEXT_SIZE], b[UC_UUID_TEXT_SIZE];

	(void)state;
	snprintf(a, sizeof(a), "%s", open_pool(p, 0));
	snprintf(b, sizeof(b), "%s", open_pool(p, 1));
	/* p1's disk is mounted at p0, p0's disk is not mounted at all. */
	remove_tree("p0");
	assert_int_equal(rename("p1", "p0"), 0);
	make_dir("p1");
	assert_string_equal(open_pool(p, 0), b);
	check_refused(p, 1, a);
	assert_string_equal(listing("p1"), "");
}

static void a_move_that_is_not_recorded_is_an_error_and_made_again(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0");
	char uuid[UC_UUID_TEXT_SIZE], expected[128];
	struct uc_err err = { 0 };

	(void)state;
	snprintf(uuid, sizeof(uuid), "%s", open_pool(p, 0));
	rmdir("p1");
	assert_int_equal(rename("p0", "p1"), 0);
	csi_pools_free(take_ptr(&p));
	p = POOLS("p1");
	fail_step(1, false);
	assert_int_equal(csi_pools_open(p, 0, uuid, &err), -EIO);
	fail_nothing();
	snprintf(expected, sizeof(expected), "%s=p0 ", uuid);
	assert_string_equal(known(), expected);
	open_pool(p, 0);
	snprintf(expected, sizeof(expected), "%s=p1 ", uuid);
	assert_string_equal(known(), expected);
}

/* ------------------------------------------------------------ other processes */

static void a_pool_that_another_process_adopted_is_known(void **state)
{
	cleanup_pools struct csi_pools *one = POOLS("p0"), *other = POOLS("p0");
	const char *uuid = open_pool(one, 0);

	(void)state;
	assert_string_equal(open_pool(other, 0), uuid);
	unlink("p0/.union-csi-pool");
	check_refused(other, 0, uuid);
}

static void what_another_process_adopted_is_not_forgotten_when_a_pool_moves(void **state)
{
	cleanup_pools struct csi_pools *one = POOLS("p0"), *other = NULL, *third = NULL;
	char a[UC_UUID_TEXT_SIZE], b[UC_UUID_TEXT_SIZE];

	(void)state;
	snprintf(a, sizeof(a), "%s", open_pool(one, 0));
	third = POOLS("p2"); /* knows of p0's pool only */
	other = POOLS("p1");
	snprintf(b, sizeof(b), "%s", open_pool(other, 0));
	rmdir("p2");
	assert_int_equal(rename("p0", "p2"), 0);
	assert_string_equal(open_pool(third, 0), a);
	assert_non_null(strstr(known(), a));
	assert_non_null(strstr(known(), b));
}

/* -------------------------------------------------------------------- pools.json */

static void known_pools_outlast_the_process(void **state)
{
	char before[512];

	(void)state;
	{
		cleanup_pools struct csi_pools *p = POOLS("p0", "p1", "p2");

		for (size_t i = 0; i < 3; i++)
			open_pool(p, i);
		snprintf(before, sizeof(before), "%s", known());
		assert_int_equal(csi_pools_count(p), 3);
	}
	{
		cleanup_pools struct csi_pools *p = POOLS("p0", "p1", "p2");
		struct stat st;

		for (size_t i = 0; i < 3; i++)
			open_pool(p, i);
		assert_string_equal(known(), before);
		assert_int_equal(stat("s/pools.json", &st), 0);
		assert_int_equal(st.st_mode & 0777, 0600);
	}
}

static void a_damaged_list_of_pools_is_an_error_and_left_alone(void **state)
{
	static const char *const texts[] = {
		"",
		"garbage",
		"{}",
		"{\"version\": 1}",
		"{\"version\": 1, \"pools\": {}}",
		"{\"version\": 1, \"pools\": [{}]}",
		"{\"version\": 1, \"pools\": [7]}",
		"{\"version\": 1, \"pools\": [{\"uuid\": \"x\", \"dir\": \"/a\"}]}",
		"{\"version\": 1, \"pools\": [{\"uuid\": \"" UUID_A "\"}]}",
		"{\"version\": 1, \"pools\": [{\"uuid\": \"" UUID_A "\", \"dir\": \"/a\"},"
		" {\"uuid\": \"" UUID_A "\", \"dir\": \"/b\"}]}",
		"{\"version\": 2, \"pools\": []}", /* a later driver's */
		"{\"pools\": []}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct csi_pools *p = NULL;
		struct uc_err err = { 0 };

		write_file("s/pools.json", texts[i]);
		assert_int_equal(csi_pools_new(STRV("p0"), &store, CSI_POOLS_ADOPT, &p, &err),
				 -EINVAL);
		assert_null(p);
		assert_non_null(strstr(err.msg, "`pools.json`"));
		assert_string_equal(file_text("s/pools.json"), texts[i]);
	}
}

static void a_list_that_is_damaged_later_lets_nothing_be_adopted(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0", "p1");

	(void)state;
	open_pool(p, 0);
	write_file("s/pools.json",
		   "{\"version\": 1, \"pools\": [{\"uuid\": \"" UUID_A "\", \"dir\": \"/a\"}, 7]}");
	check_refused(p, 1, "pools.json");
	assert_string_equal(listing("p1"), "");
	check_refused(p, 1, "pools.json");
}

/* ---------------------------------------------------------------------- by UUID */

static void a_pool_is_opened_by_its_uuid(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0", "p1");
	struct stat is, expected;
	char b[UC_UUID_TEXT_SIZE];
	int fd;

	(void)state;
	open_pool(p, 0);
	snprintf(b, sizeof(b), "%s", open_pool(p, 1));
	fd = csi_pools_open_uuid(p, b, NULL);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &is), 0);
	assert_int_equal(stat("p1", &expected), 0);
	assert_int_equal(is.st_ino, expected.st_ino);
	close(fd);
}

static void a_pool_that_is_missing_is_named_with_its_last_place(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0", "p1");
	char b[UC_UUID_TEXT_SIZE];
	struct uc_err err = { 0 };

	(void)state;
	open_pool(p, 0);
	snprintf(b, sizeof(b), "%s", open_pool(p, 1));
	unlink("p1/.union-csi-pool");
	assert_true(csi_pools_open_uuid(p, b, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_UNAVAILABLE);
	assert_non_null(strstr(err.msg, b));
	assert_non_null(strstr(err.msg, "/p1`"));
	assert_true(csi_pools_open_uuid(p, UUID_A, &err) < 0);
	assert_non_null(strstr(err.msg, UUID_A));
}

/* --------------------------------------------------------------------- readiness */

static const char *used_uuid;

static bool is_used(void *data, const char *uuid)
{
	assert_ptr_equal(data, &used_uuid);
	return used_uuid && strcmp(uuid, used_uuid) == 0;
}

static int ready(struct csi_pools *p, struct uc_err *err)
{
	return csi_pools_ready(p, is_used, &used_uuid, err);
}

static void pools_that_are_all_there_are_ready(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0", "p1");

	(void)state;
	used_uuid = NULL;
	assert_int_equal(ready(p, NULL), 0);
	assert_int_equal(ready(p, NULL), 0);
}

static void one_pool_that_is_missing_makes_all_unavailable(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0", "p1");
	struct uc_err err = { 0 };

	(void)state;
	used_uuid = NULL;
	assert_int_equal(ready(p, NULL), 0);
	unlink("p1/.union-csi-pool");
	assert_true(ready(p, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_UNAVAILABLE);
	assert_non_null(strstr(err.msg, "/p1`"));
}

static void the_same_pool_twice_is_refused(void **state)
{
	cleanup_pools struct csi_pools *same = POOLS("p0", "./p0"), *copy = NULL;
	struct uc_err err = { 0 };

	(void)state;
	used_uuid = NULL;
	assert_true(ready(same, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_UNAVAILABLE);
	assert_non_null(strstr(err.msg, "are the same"));
	/* a disk that was copied */
	write_file("p1/.union-csi-pool", file_text("p0/.union-csi-pool"));
	copy = POOLS("p0", "p1");
	for (int i = 0; i < 3; i++) {
		assert_true(ready(copy, &err) < 0);
		assert_non_null(strstr(err.msg, "are the same"));
	}
}

static void a_pool_that_was_left_out_is_missed_only_if_it_is_used(void **state)
{
	cleanup_pools struct csi_pools *both = POOLS("p0", "p1"), *one = NULL;
	char b[UC_UUID_TEXT_SIZE];
	struct uc_err err = { 0 };

	(void)state;
	open_pool(both, 0);
	snprintf(b, sizeof(b), "%s", open_pool(both, 1));
	one = POOLS("p0");
	used_uuid = NULL;
	assert_int_equal(ready(one, NULL), 0);
	used_uuid = b;
	assert_true(ready(one, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_UNAVAILABLE);
	assert_non_null(strstr(err.msg, b));
	assert_int_equal(ready(both, NULL), 0);
}

/* ------------------------------------------------------------------------- space */

static void space_is_what_others_than_root_have_on_a_disk(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0", "p1");
	struct csi_space a, b;
	struct stat st;

	(void)state;
	assert_int_equal(csi_pools_space(p, 0, &a, NULL), 0);
	assert_int_equal(csi_pools_space(p, 1, &b, NULL), 0);
	assert_int_equal(a.available, 1000);
	assert_int_equal(stat("p0", &st), 0);
	assert_int_equal(a.device, st.st_dev);
	assert_int_equal(a.device, b.device);
}

static void a_disk_that_does_not_answer_is_unavailable(void **state)
{
	cleanup_pools struct csi_pools *p = POOLS("p0");
	struct csi_space s = { .available = 7 };
	struct uc_err err = { 0 };

	(void)state;
	statfs_result = -ETIMEDOUT;
	assert_int_equal(csi_pools_space(p, 0, &s, &err), -ETIMEDOUT);
	assert_int_equal(err.status, UC_GRPC_UNAVAILABLE);
	assert_non_null(strstr(err.msg, "/p0`"));
	assert_int_equal(s.available, 7);
	statfs_result = 0;
	unlink("p0/.union-csi-pool");
	assert_true(csi_pools_space(p, 0, &s, &err) < 0);
	assert_int_equal(err.status, UC_GRPC_UNAVAILABLE);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(an_empty_directory_becomes_a_pool_once),
		T(what_mkfs_and_a_crash_leave_does_not_make_a_directory_full),
		T(a_directory_that_holds_anything_is_not_taken_for_a_pool),
		T(a_pool_whose_state_was_lost_is_a_pool_again),
		T(a_look_writes_nothing),
		T(only_what_carries_a_marker_is_recorded_where_nothing_is_made),
		T(an_adoption_that_fails_is_made_again_with_the_same_uuid),
		T(a_pool_that_lost_its_marker_is_missing_not_new),
		T(a_directory_that_is_not_there_may_come),
		T(what_is_no_directory_is_no_pool),
		T(a_foreign_pool_is_refused_with_both_names),
		T(a_damaged_marker_is_refused_and_left_alone),
		T(a_pool_that_moved_is_known_at_its_new_place),
		T(pools_that_changed_places_are_told_by_their_uuids),
		T(the_empty_place_of_a_pool_that_moved_is_not_taken_for_a_new_pool),
		T(a_move_that_is_not_recorded_is_an_error_and_made_again),
		T(a_pool_that_another_process_adopted_is_known),
		T(what_another_process_adopted_is_not_forgotten_when_a_pool_moves),
		T(known_pools_outlast_the_process),
		T(a_damaged_list_of_pools_is_an_error_and_left_alone),
		T(a_list_that_is_damaged_later_lets_nothing_be_adopted),
		T(a_pool_is_opened_by_its_uuid),
		T(a_pool_that_is_missing_is_named_with_its_last_place),
		T(pools_that_are_all_there_are_ready),
		T(one_pool_that_is_missing_makes_all_unavailable),
		T(the_same_pool_twice_is_refused),
		T(a_pool_that_was_left_out_is_missed_only_if_it_is_used),
		T(space_is_what_others_than_root_have_on_a_disk),
		T(a_disk_that_does_not_answer_is_unavailable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
