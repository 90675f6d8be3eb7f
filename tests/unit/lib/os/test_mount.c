/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/unit.h"
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>

#include "lib/base/cleanup.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/os/mount.h"

/*
 * The mount API, faked: what is called is written down, the n-th call fails, and
 * descriptors are of /dev/null.
 */
static char trace[2048];
static unsigned calls, fail_at;
static const char *fs_says; /* what a filesystem context has to say; NULL: nothing */

static void arm(unsigned n)
{
	calls = 0;
	fail_at = n;
	fs_says = NULL;
	trace[0] = '\0';
}

__attribute__((format(printf, 1, 2))) static int note(const char *fmt, ...)
{
	size_t n = strlen(trace);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(trace + n, sizeof(trace) - n, fmt, ap);
	va_end(ap);
	if (++calls != fail_at)
		return 0;
	errno = EPERM;
	return -1;
}

static int null_fd(int r)
{
	return r < 0 ? r : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int __wrap_fsopen(const char *type, unsigned flags);
int __wrap_fsopen(const char *type, unsigned flags)
{
	assert_int_equal(flags, FSOPEN_CLOEXEC);
	return null_fd(note("fsopen %s; ", type));
}

int __wrap_fsconfig(int fd, unsigned cmd, const char *key, const void *value, int aux);
int __wrap_fsconfig(int fd, unsigned cmd, const char *key, const void *value, int aux)
{
	assert_true(fd >= 0);
	assert_int_equal(aux, 0);
	switch (cmd) {
	case FSCONFIG_SET_FLAG:
		assert_null(value);
		return note("%s; ", key);
	case FSCONFIG_SET_STRING:
		return note("%s=%s; ", key, (const char *)value);
	default:
		assert_int_equal(cmd, FSCONFIG_CMD_CREATE);
		return note("create; ");
	}
}

int __wrap_fsmount(int fd, unsigned flags, unsigned attr);
int __wrap_fsmount(int fd, unsigned flags, unsigned attr)
{
	assert_true(fd >= 0);
	assert_int_equal(flags, FSMOUNT_CLOEXEC);
	return null_fd(note("fsmount %#x; ", attr));
}

int __wrap_open_tree(int fd, const char *path, unsigned flags);
int __wrap_open_tree(int fd, const char *path, unsigned flags)
{
	assert_true(fd >= 0);
	assert_int_equal(flags, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	return null_fd(note("open_tree `%s`; ", path));
}

int __wrap_mount_setattr(int fd, const char *path, unsigned flags, struct mount_attr *attr,
			 size_t n);
int __wrap_mount_setattr(int fd, const char *path, unsigned flags, struct mount_attr *attr,
			 size_t n)
{
	assert_true(fd >= 0);
	assert_string_equal(path, "");
	assert_int_equal(flags, AT_EMPTY_PATH);
	assert_int_equal(n, sizeof(*attr));
	assert_int_equal(attr->propagation, 0);
	return note("setattr +%#llx -%#llx; ", (unsigned long long)attr->attr_set,
		    (unsigned long long)attr->attr_clr);
}

int __wrap_move_mount(int from, const char *a, int to, const char *b, unsigned flags);
int __wrap_move_mount(int from, const char *a, int to, const char *b, unsigned flags)
{
	assert_string_equal(a, "");
	assert_string_equal(b, "");
	assert_int_equal(flags, MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	return note("move %d %d; ", from, to);
}

int __wrap_umount2(const char *path, int flags);
int __wrap_umount2(const char *path, int flags)
{
	return note("umount %s %#x; ", path, (unsigned)flags);
}

ssize_t __wrap_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n)
{
	(void)fd;
	if (!fs_says) {
		errno = ENODATA;
		return -1;
	}
	assert_true(strlen(fs_says) <= n);
	memcpy(p, fs_says, strlen(fs_says));
	return (ssize_t)strlen(fs_says);
}

/* libc's table for umount2() and others goes through this one too: only ours is asked for. */
static const char *table; /* file in the place of /proc/self/mountinfo, or NULL */

int __real_mnt_table_parse_file(void *t, const char *path);
int __wrap_mnt_table_parse_file(void *t, const char *path);
int __wrap_mnt_table_parse_file(void *t, const char *path)
{
	assert_string_equal(path, "/proc/self/mountinfo");
	return __real_mnt_table_parse_file(t, table ? table : path);
}

static int disarm(void **state)
{
	(void)state;
	arm(0);
	table = NULL;
	return 0;
}

/* --------------------------------------------------------------------- options */

#define ATIME MOUNT_ATTR__ATIME

static void generic_flags_are_attributes_of_the_mount(void **state)
{
	static const struct {
		const char *options;
		uint64_t set, clr;
	} rows[] = {
		{ "", 0, 0 },
		{ "defaults", 0, 0 },
		{ "ro", MOUNT_ATTR_RDONLY, 0 },
		{ "rw", 0, MOUNT_ATTR_RDONLY },
		{ "nosuid", MOUNT_ATTR_NOSUID, 0 },
		{ "suid", 0, MOUNT_ATTR_NOSUID },
		{ "nodev", MOUNT_ATTR_NODEV, 0 },
		{ "dev", 0, MOUNT_ATTR_NODEV },
		{ "noexec", MOUNT_ATTR_NOEXEC, 0 },
		{ "exec", 0, MOUNT_ATTR_NOEXEC },
		{ "nodiratime", MOUNT_ATTR_NODIRATIME, 0 },
		{ "diratime", 0, MOUNT_ATTR_NODIRATIME },
		{ "nosymfollow", MOUNT_ATTR_NOSYMFOLLOW, 0 },
		{ "symfollow", 0, MOUNT_ATTR_NOSYMFOLLOW },
		/* of atime the kernel wants the whole field cleared */
		{ "noatime", MOUNT_ATTR_NOATIME, ATIME },
		{ "strictatime", MOUNT_ATTR_STRICTATIME, ATIME },
		{ "relatime", MOUNT_ATTR_RELATIME, ATIME },
		{ "atime", MOUNT_ATTR_RELATIME, ATIME },
		/* several; the last one of a kind counts */
		{ "nosuid,nodev,noexec", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
		  0 },
		{ "ro,rw", 0, MOUNT_ATTR_RDONLY },
		{ ",ro,,nodev,,", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, 0 },
		{ "rw,ro", MOUNT_ATTR_RDONLY, 0 },
		{ "noexec,exec", 0, MOUNT_ATTR_NOEXEC },
		{ "noatime,strictatime", MOUNT_ATTR_STRICTATIME, ATIME },
		{ "strictatime,noatime", MOUNT_ATTR_NOATIME, ATIME },
		{ "noatime,relatime", 0, ATIME },
		{ "noatime,ro,nodiratime",
		  MOUNT_ATTR_NOATIME | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODIRATIME, ATIME },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_mount_opts opts = { 0 };

		assert_int_equal(uc_mount_opts_parse(STRV(rows[i].options), &opts, NULL), 0);
		assert_int_equal(opts.attr_set, rows[i].set);
		assert_int_equal(opts.attr_clr, rows[i].clr);
		assert_int_equal(uc_strv_len(opts.fs), 0);
		uc_mount_opts_done(&opts);
	}
}

static void what_only_the_filesystem_knows_is_passed_on_as_it_is(void **state)
{
	struct uc_mount_opts opts = { 0 };

	(void)state;
	assert_int_equal(uc_mount_opts_parse(STRV("data=journal,discard", "commit=5",
						  "noatime,errors=", "context=\"a,b=c\",barrier",
						  "sync,lazytime", "user_xattr,noacl"),
					     &opts, NULL),
			 0);
	assert_true(uc_strv_equal(opts.fs, STRV("data=journal", "discard", "commit=5",
						"errors=", "context=\"a,b=c\"", "barrier", "sync",
						"lazytime", "user_xattr", "noacl")));
	assert_int_equal(opts.attr_set, MOUNT_ATTR_NOATIME);
	uc_mount_opts_done(&opts);
	assert_null(opts.fs);
}

static void flags_of_every_superblock_go_to_the_filesystem(void **state)
{
	static const char *const rows[] = { "sync", "async", "dirsync", "lazytime", "nolazytime" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_mount_opts opts = { 0 };

		assert_int_equal(uc_mount_opts_parse(STRV(rows[i]), &opts, NULL), 0);
		assert_true(uc_strv_equal(opts.fs, STRV(rows[i])));
		uc_mount_opts_done(&opts);
	}
}

static void no_options_at_all_are_fine(void **state)
{
	struct uc_mount_opts opts = { .attr_set = 99 };

	(void)state;
	assert_int_equal(uc_mount_opts_parse(NULL, &opts, NULL), 0);
	assert_int_equal(opts.attr_set, 0);
	assert_null(opts.fs);
	uc_mount_opts_done(&opts);
}

static void options_of_user_space_and_of_other_operations_are_refused_by_name(void **state)
{
	static const char *const rows[] = {
		/* user space's */
		"_netdev",
		"nofail",
		"user",
		"nouser",
		"users",
		"nousers",
		"owner",
		"noowner",
		"group",
		"nogroup",
		"auto",
		"noauto",
		"user=me",
		"comment=x",
		"x-systemd.automount",
		"x-foo=bar",
		"X-mount.mkdir",
		"X-mount.mkdir=0755",
		"helper=x",
		"uhelper=x",
		"loop",
		"loop=/dev/loop0",
		"offset=4096",
		"sizelimit=1",
		"encryption=x",
		"verity.hashdevice=/x",
		/* another operation than a mount */
		"bind",
		"rbind",
		"remount",
		"move",
		"shared",
		"rshared",
		"private",
		"rprivate",
		"slave",
		"rslave",
		"unbindable",
		"runbindable",
		/* of the kernel's old interface */
		"silent",
		"loud",
		"mand",
		"nomand",
		"iversion",
		"noiversion",
		"norelatime",
		"nostrictatime",
		/* what would stop the machine, or use another device of it */
		"errors=panic",
		"errors=\"panic\"",
		"fatal_errors=panic",
		"journal_dev=2049",
		"journal_path=/dev/sda1",
		"logdev=/dev/sda1",
		"rtdev=/dev/sda1",
		"device=/dev/sda1",
		/* a flag takes no value */
		"ro=recursive",
		"rw=1",
		"noatime=1",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_mount_opts opts = { .attr_set = 99 };
		struct uc_err err = { 0 };
		char expected[128];

		snprintf(expected, sizeof(expected), "mount option `%s` is not allowed", rows[i]);
		if (uc_mount_opts_parse(STRV("noexec,discard", rows[i]), &opts, &err) != -EINVAL)
			fail_msg("`%s` is allowed", rows[i]);
		assert_string_equal(err.msg, expected);
		assert_int_equal(opts.attr_set, 99);
		assert_null(opts.fs);
	}
}

static void malformed_options_are_refused(void **state)
{
	static const char *const rows[] = { "context=\"open", "ro,context=\"a,b", "=value",
					    "ro,=x" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_mount_opts opts = { .attr_set = 99 };
		struct uc_err err = { 0 };

		if (uc_mount_opts_parse(STRV(rows[i]), &opts, &err) != -EINVAL)
			fail_msg("`%s` is allowed", rows[i]);
		assert_non_null(strstr(err.msg, rows[i]));
		assert_int_equal(opts.attr_set, 99);
	}
}

/* -------------------------------------------------------------------- mounting */

static void a_filesystem_is_configured_created_and_mounted_in_this_order(void **state)
{
	struct uc_mount_opts opts = { 0 };
	cleanup_fd int fd = -1;

	(void)state;
	assert_int_equal(
		uc_mount_opts_parse(STRV("noatime,data=journal,discard,nosuid"), &opts, NULL), 0);
	assert_int_equal(uc_mount_fs("ext4", NULL, "/dev/x", &opts, false, &fd, NULL), 0);
	assert_true(fd >= 0);
	assert_string_equal(trace, "fsopen ext4; source=/dev/x; data=journal; discard; create; "
				   "fsmount 0x12; ");
	uc_mount_opts_done(&opts);
}

static void a_value_loses_its_quotes_on_the_way_to_the_filesystem(void **state)
{
	struct uc_mount_opts opts = { 0 };
	cleanup_fd int fd = -1;

	(void)state;
	assert_int_equal(
		uc_mount_opts_parse(STRV("context=\"a:b,c\",empty=\"\",x=a=b,none="), &opts, NULL),
		0);
	assert_int_equal(uc_mount_fs("ext4", NULL, "d", &opts, false, &fd, NULL), 0);
	assert_string_equal(trace, "fsopen ext4; source=d; context=a:b,c; empty=; x=a=b; none=; "
				   "create; fsmount 0; ");
	uc_mount_opts_done(&opts);
}

static void a_read_only_filesystem_has_a_read_only_superblock_too(void **state)
{
	cleanup_fd int fd = -1;

	(void)state;
	assert_int_equal(uc_mount_fs("fuse", "union-fs", "v1", NULL, true, &fd, NULL), 0);
	assert_string_equal(trace, "fsopen fuse; source=v1; subtype=union-fs; ro; create; "
				   "fsmount 0x1; ");
}

static void a_mount_that_fails_leaves_no_descriptor_and_says_which_step(void **state)
{
	struct uc_mount_opts opts = { 0 };
	size_t fds;

	(void)state;
	assert_int_equal(uc_mount_opts_parse(STRV("key=value,flag"), &opts, NULL), 0);
	fds = open_fds();
	for (unsigned n = 1; n <= 8; n++) {
		struct uc_err err = { 0 };
		int fd = -7;

		arm(n);
		assert_int_equal(uc_mount_fs("ext4", "sub", "/dev/x", &opts, true, &fd, &err),
				 -EPERM);
		assert_int_equal(fd, -7);
		assert_int_equal(calls, n);
		assert_int_equal(open_fds(), fds);
		assert_non_null(strstr(err.msg, "mount `/dev/x` (ext4)"));
		assert_non_null(strstr(err.msg, "Operation not permitted"));
		assert_int_equal(strstr(err.msg, "mount option `key=value`") != NULL, n == 5);
		assert_int_equal(strstr(err.msg, "mount option `flag`") != NULL, n == 6);
	}
	arm(9);
	uc_mount_opts_done(&opts);
}

static void a_filesystem_is_asked_for_its_options_and_not_mounted(void **state)
{
	struct uc_mount_opts opts = { 0 };
	struct uc_err err = { 0 };
	size_t fds = open_fds();

	(void)state;
	arm(0);
	assert_int_equal(uc_mount_opts_check(&opts, "ext4", NULL), 0);
	assert_string_equal(trace, "");
	assert_int_equal(uc_mount_opts_parse(STRV("key=value,noatime,flag"), &opts, NULL), 0);
	assert_int_equal(uc_mount_opts_check(&opts, "ext4", NULL), 0);
	assert_string_equal(trace, "fsopen ext4; key=value; flag; ");
	for (unsigned n = 1; n <= 3; n++) {
		arm(n);
		assert_int_equal(uc_mount_opts_check(&opts, "ext4", &err), -EPERM);
		assert_non_null(strstr(err.msg, n == 1   ? "filesystem `ext4`"
						: n == 2 ? "mount option `key=value`"
							 : "mount option `flag`"));
	}
	arm(0);
	uc_mount_opts_done(&opts);
	assert_int_equal(open_fds(), fds);
}

static void the_filesystems_own_words_are_in_the_error_on_one_line(void **state)
{
	static const struct {
		const char *says, *expected;
	} rows[] = {
		{ "e ext4: bad \x01 superblock\n",
		  "mount `/dev/x` (ext4): ext4: bad \\x01 superblock: Operation not permitted" },
		{ "e ", "mount `/dev/x` (ext4): Operation not permitted" },
		{ NULL, "mount `/dev/x` (ext4): Operation not permitted" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_err err = { 0 };
		int fd = -1;

		arm(3);
		fs_says = rows[i].says;
		assert_int_equal(uc_mount_fs("ext4", NULL, "/dev/x", NULL, false, &fd, &err),
				 -EPERM);
		assert_string_equal(err.msg, rows[i].expected);
	}
}

static void a_clone_gets_its_attributes_before_it_is_seen(void **state)
{
	cleanup_fd int fd = -1, plain = -1;

	(void)state;
	assert_int_equal(uc_mount_clone(0, MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOEXEC, &fd, NULL), 0);
	assert_true(fd >= 0);
	assert_string_equal(trace, "open_tree ``; setattr +0x1 -0x8; ");
	arm(0);
	assert_int_equal(uc_mount_clone(0, 0, 0, &plain, NULL), 0);
	assert_string_equal(trace, "open_tree ``; ");
	arm(0);
	uc_closep(&plain);
	assert_int_equal(uc_mount_clone(0, 0, MOUNT_ATTR_RDONLY, &plain, NULL), 0);
	assert_string_equal(trace, "open_tree ``; setattr +0 -0x1; ");
}

static void a_clone_that_fails_leaves_no_descriptor(void **state)
{
	size_t fds = open_fds();

	(void)state;
	for (unsigned n = 1; n <= 2; n++) {
		int fd = -7;

		arm(n);
		assert_int_equal(uc_mount_clone(0, MOUNT_ATTR_RDONLY, 0, &fd, NULL), -EPERM);
		assert_int_equal(fd, -7);
		assert_int_equal(open_fds(), fds);
	}
}

static void a_mount_is_attached_by_descriptors_alone(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(uc_mount_attach(7, 9, NULL), 0);
	assert_string_equal(trace, "move 7 9; ");
	arm(1);
	assert_int_equal(uc_mount_attach(7, 9, &err), -EPERM);
	assert_string_equal(err.msg, "attach a mount: Operation not permitted");
}

static void a_mount_is_removed_through_its_parents_descriptor(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(uc_unmount_at(5, "target", MNT_DETACH, NULL), 0);
	assert_string_equal(trace, "umount /proc/self/fd/5/target 0xa; ");
	arm(1);
	assert_int_equal(uc_unmount_at(5, "tar\nget", 0, &err), -EPERM);
	assert_string_equal(trace, "umount /proc/self/fd/5/tar\nget 0x8; ");
	assert_string_equal(err.msg, "unmount `tar\\x0aget`: Operation not permitted");
}

/* ------------------------------------------------------------------- the table */

static void a_descriptor_tells_its_mount(void **state)
{
	cleanup_mount_info struct uc_mount_info info = { 0 };
	cleanup_fd int proc = open("/proc", O_PATH | O_CLOEXEC), self = -1;
	bool is_root = false;
	uint64_t id = 0, other = 0;

	(void)state;
	self = open("/proc/self", O_PATH | O_CLOEXEC | O_DIRECTORY);
	assert_int_equal(uc_mount_id(proc, &id, &is_root), 0);
	assert_true(is_root);
	assert_int_equal(uc_mount_id(self, &other, &is_root), 0);
	assert_false(is_root);
	assert_int_equal(other, id);
	assert_int_equal(uc_mount_id(proc, &other, NULL), 0);

	assert_int_equal(uc_mount_look(self, &info, NULL), 0);
	assert_int_equal(uc_mount_look(proc, &info, NULL), 1);
	assert_int_equal(info.id, id);
	assert_string_equal(info.target, "/proc");
	assert_string_equal(info.fstype, "proc");
	assert_string_equal(info.root, "/");
	assert_int_equal(uc_mount_id(-1, &id, NULL), -EBADF);
}

static const char mountinfo[] =
	"20 1 8:1 / / rw,relatime - ext4 /dev/root rw\n"
	"21 20 0:5 /sub /mnt/a\\040b ro,nosuid - ext4 /dev/loop3 rw,data=ordered\n"
	"22 20 0:43 / /mnt/u rw shared:7 - fuse.union-fs v1 ro,user_id=0\n"
	"this is no mount\n"
	"23 20 0:44 / /mnt/none rw - tmpfs none rw\n";

struct seen {
	char text[1024];
	unsigned n;
	unsigned stop_at;
};

static int see(void *data, const struct uc_mount_info *info)
{
	struct seen *seen = data;
	size_t n = strlen(seen->text);

	snprintf(seen->text + n, sizeof(seen->text) - n, "%llu %u:%u %s `%s` %s %s %s\n",
		 (unsigned long long)info->id, major(info->dev), minor(info->dev), info->root,
		 info->target, info->fstype, info->source, info->read_only ? "ro" : "rw");
	return ++seen->n == seen->stop_at ? -EXDEV : 0;
}

static void the_table_is_read_from_the_last_mount_to_the_first(void **state)
{
	struct seen seen = { .n = 0 };

	(void)state;
	write_file("table", mountinfo);
	table = "table";
	assert_int_equal(uc_mount_each(see, &seen, NULL), 0);
	assert_string_equal(seen.text, "23 0:44 / `/mnt/none` tmpfs none rw\n"
				       "22 0:43 / `/mnt/u` fuse.union-fs v1 ro\n"
				       "21 0:5 /sub `/mnt/a b` ext4 /dev/loop3 ro\n"
				       "20 8:1 / `/` ext4 /dev/root rw\n");
}

static void a_walk_of_the_table_ends_where_it_is_told_to(void **state)
{
	struct seen seen = { .stop_at = 2 };

	(void)state;
	write_file("table", mountinfo);
	table = "table";
	assert_int_equal(uc_mount_each(see, &seen, NULL), -EXDEV);
	assert_int_equal(seen.n, 2);
}

static void a_mount_that_the_table_does_not_have_is_not_found(void **state)
{
	struct uc_mount_info info = { .id = 99 };
	cleanup_fd int fd = open("/proc", O_PATH | O_CLOEXEC);

	(void)state;
	write_file("table", "");
	table = "table";
	assert_int_equal(uc_mount_look(fd, &info, NULL), 0);
	assert_int_equal(info.id, 99);
}

static void a_table_that_cannot_be_read_is_an_error(void **state)
{
	cleanup_fd int fd = open("/proc", O_PATH | O_CLOEXEC);
	struct uc_mount_info info = { .id = 99 };
	struct seen seen = { .n = 0 };
	struct uc_err err = { 0 };

	(void)state;
	table = "absent";
	assert_true(uc_mount_each(see, &seen, &err) < 0);
	assert_int_equal(seen.n, 0);
	assert_non_null(strstr(err.msg, "mount table"));
	assert_true(uc_mount_look(fd, &info, NULL) < 0);
	assert_true(uc_mount_look(-1, &info, NULL) < 0);
	assert_int_equal(info.id, 99);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, disarm, disarm)
	const struct CMUnitTest tests[] = {
		T(generic_flags_are_attributes_of_the_mount),
		T(a_filesystem_is_asked_for_its_options_and_not_mounted),
		T(what_only_the_filesystem_knows_is_passed_on_as_it_is),
		T(flags_of_every_superblock_go_to_the_filesystem),
		T(no_options_at_all_are_fine),
		T(options_of_user_space_and_of_other_operations_are_refused_by_name),
		T(malformed_options_are_refused),
		T(a_filesystem_is_configured_created_and_mounted_in_this_order),
		T(a_value_loses_its_quotes_on_the_way_to_the_filesystem),
		T(a_read_only_filesystem_has_a_read_only_superblock_too),
		T(a_mount_that_fails_leaves_no_descriptor_and_says_which_step),
		T(the_filesystems_own_words_are_in_the_error_on_one_line),
		T(a_clone_gets_its_attributes_before_it_is_seen),
		T(a_clone_that_fails_leaves_no_descriptor),
		T(a_mount_is_attached_by_descriptors_alone),
		T(a_mount_is_removed_through_its_parents_descriptor),
		T(a_descriptor_tells_its_mount),
		T(the_table_is_read_from_the_last_mount_to_the_first),
		T(a_walk_of_the_table_ends_where_it_is_told_to),
		T(a_mount_that_the_table_does_not_have_is_not_found),
		T(a_table_that_cannot_be_read_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
