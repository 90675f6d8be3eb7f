/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/unit.h"
#include "tests/lib/volume.h"

#include "csi/inventory.h"
#include "csi/reconcile.h"
#include "lib/base/log.h"
#include "lib/base/macros.h"

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	assert_true(fcntl(fd, F_GETFD) >= 0);
	return 0; /* no test needs the disk to have it */
}

/* What was called, in order: "repair a", "node b", "orphans". */
static char calls[1024];

static void note(const char *what, const char *id)
{
	size_t n = strlen(calls);

	snprintf(calls + n, sizeof(calls) - n, "%s%s%s%s", n ? ", " : "", what, *id ? " " : "", id);
}

static const char *fails_for, *gone_for; /* a volume's id */

static int repair(struct csi_backend *b, const struct csi_op *op, struct uc_volume_lock *lock,
		  struct uc_volume *v, struct uc_err *err)
{
	(void)b;
	assert_null(op->call);
	assert_string_equal(op->volume_id, v->id);
	assert_true(lock->fd >= 0);
	note("repair", v->id);
	if (fails_for && strcmp(fails_for, v->id) == 0)
		return uc_fail(err, EIO, "repair it");
	return gone_for && strcmp(gone_for, v->id) == 0;
}

static void report_orphans(struct csi_backend *b)
{
	(void)b;
	note("orphans", "");
}

int __wrap_csi_node_repair(struct csi_node *n, const struct csi_op *op, struct uc_volume_lock *lock,
			   struct uc_volume *v, struct uc_err *err);
int __wrap_csi_node_repair(struct csi_node *n, const struct csi_op *op, struct uc_volume_lock *lock,
			   struct uc_volume *v, struct uc_err *err)
{
	(void)n;
	(void)op;
	(void)err;
	assert_true(lock->fd >= 0);
	note("node", v->id);
	return 0;
}

static const struct csi_backend_ops ops = { .repair = repair, .report_orphans = report_orphans };
static struct csi_backend backend = { .ops = &ops };
static struct uc_store store = UC_STORE_INIT;
static struct csi_driver driver;
static size_t fds_before;

static int set_up(void **state)
{
	(void)state;
	uc_log_init((enum uc_log_level) - 1, UC_LOG_TEXT);
	remove_tree("s");
	fds_before = open_fds();
	assert_int_equal(uc_store_open("s", &store, NULL), 0);
	driver = (struct csi_driver){
		.backend = &backend,
		.node = { .store = &store, .backend = &backend },
		.has_controller = true,
		.has_node = true,
	};
	calls[0] = '\0';
	fails_for = gone_for = NULL;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	uc_store_close(&store);
	assert_int_equal(open_fds(), fds_before);
	return 0;
}

static void have(const char *id, enum uc_volume_phase phase)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	cleanup_volume struct uc_volume v = make_volume(id, 1);

	v.phase = phase;
	assert_int_equal(uc_volume_lock(&store, id, true, &lock, NULL), 0);
	assert_int_equal(uc_volume_store(&lock, &v, NULL), 0);
}

static const char *reconcile(void)
{
	calls[0] = '\0';
	csi_reconcile(&driver);
	return calls;
}

static void every_volume_is_looked_at_once(void **state)
{
	(void)state;
	assert_string_equal(reconcile(), "orphans");
	have("b", UC_VOLUME_READY);
	have("a", UC_VOLUME_READY);
	assert_string_equal(reconcile(), "repair a, node a, repair b, node b, orphans");
}

static void each_half_repairs_what_is_its_own(void **state)
{
	(void)state;
	have("a", UC_VOLUME_READY);
	driver.has_node = false;
	assert_string_equal(reconcile(), "repair a, orphans");
	driver.has_node = true;
	driver.has_controller = false;
	assert_string_equal(reconcile(), "node a");
}

static void a_node_touches_only_what_is_ready(void **state)
{
	(void)state;
	have("a", UC_VOLUME_CREATING);
	have("b", UC_VOLUME_DELETING);
	driver.has_controller = false;
	assert_string_equal(reconcile(), "");
}

static void a_volume_that_is_gone_is_not_repaired_further(void **state)
{
	(void)state;
	have("a", UC_VOLUME_CREATING);
	have("b", UC_VOLUME_READY);
	gone_for = "a";
	assert_string_equal(reconcile(), "repair a, repair b, node b, orphans");
}

static void one_failure_does_not_keep_others_from_repair(void **state)
{
	(void)state;
	have("a", UC_VOLUME_READY);
	have("b", UC_VOLUME_READY);
	have("c", UC_VOLUME_READY);
	fails_for = "a";
	write_file("s/volumes/b/state.json", "garbage");
	assert_string_equal(reconcile(), "repair a, repair c, node c, orphans");
	assert_string_equal(file_text("s/volumes/b/state.json"), "garbage");
}

static void a_directory_without_state_is_removed(void **state)
{
	(void)state;
	make_dir("s/volumes/a");
	make_dir("s/volumes/b");
	write_file("s/volumes/b/data", "x"); /* whatever that is */
	have("c", UC_VOLUME_READY);
	assert_string_equal(reconcile(), "repair c, node c, orphans");
	assert_string_equal(listing("s/volumes"), "b c ");
	assert_true(file_exists("s/volumes/b/data"));
}

static void a_volume_that_somebody_works_on_is_left_to_them(void **state)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;

	(void)state;
	have("a", UC_VOLUME_READY);
	have("b", UC_VOLUME_READY);
	assert_int_equal(uc_volume_lock(&store, "a", false, &lock, NULL), 0);
	assert_string_equal(reconcile(), "repair b, node b, orphans");
}

static void volumes_that_are_found_are_counted(void **state)
{
	struct csi_inventory_counts before, after;

	(void)state;
	csi_inventory_count(&before);
	have("new1", UC_VOLUME_READY);
	have("new2", UC_VOLUME_DELETING);
	reconcile();
	csi_inventory_count(&after);
	assert_int_equal(after.ready - before.ready, 1);
	assert_int_equal(after.deleting - before.deleting, 1);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(every_volume_is_looked_at_once),
		T(each_half_repairs_what_is_its_own),
		T(a_node_touches_only_what_is_ready),
		T(a_volume_that_is_gone_is_not_repaired_further),
		T(one_failure_does_not_keep_others_from_repair),
		T(a_directory_without_state_is_removed),
		T(a_volume_that_somebody_works_on_is_left_to_them),
		T(volumes_that_are_found_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
