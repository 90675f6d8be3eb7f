/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/unit.h"
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <linux/fs.h>

#include "lib/base/cleanup.h"
#include "lib/base/macros.h"
#include "lib/os/blk.h"
#include "lib/os/clock.h"

#define UUID "00112233-4455-6677-8899-aabbccddeeff"

/*
 * libblkid's own reads: the program's read() comes before libc's for its libraries
 * too.  The n-th read of the device under test fails, or each one that touches a bad place.
 */
enum { READS_MAX = 1000 };
static int device = -1;
static unsigned reads, fail_at;
static off_t bad_place = -1, places[READS_MAX];
static int failure = EIO;

static bool fails(int fd, off_t at, size_t n)
{
	if (fd != device)
		return false;
	assert_true(reads < READS_MAX);
	places[reads] = at;
	if (++reads != fail_at && (bad_place < at || bad_place >= at + (off_t)n))
		return false;
	errno = failure;
	return true;
}

ssize_t interposed_read(int fd, void *p, size_t n) __asm__("read");
ssize_t interposed_read(int fd, void *p, size_t n)
{
	return fails(fd, lseek(fd, 0, SEEK_CUR), n) ? -1 : syscall(SYS_read, fd, p, n);
}

ssize_t __real_pread64(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread64(int fd, void *p, size_t n, off_t at)
{
	return fails(fd, at, n) ? -1 : __real_pread64(fd, p, n, at);
}

ssize_t __real___pread64_chk(int fd, void *p, size_t n, off_t at, size_t size);
ssize_t __wrap___pread64_chk(int fd, void *p, size_t n, off_t at, size_t size);
ssize_t __wrap___pread64_chk(int fd, void *p, size_t n, off_t at, size_t size)
{
	return fails(fd, at, n) ? -1 : __real___pread64_chk(fd, p, n, at, size);
}

/* A device that is held exclusively for some tries. */
static unsigned busy_for;
static int busy_errno, last_flags;

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	va_start(ap, flags);
	if (flags & O_CREAT)
		mode = va_arg(ap, mode_t);
	va_end(ap);
	last_flags = flags;
	if (busy_for) {
		busy_for--;
		errno = busy_errno;
		return -1;
	}
	return __real_open64(path, flags, mode);
}

static uint64_t now, slept;

uint64_t __wrap_uc_now_ms(void);
uint64_t __wrap_uc_now_ms(void)
{
	return now;
}

void __wrap_uc_sleep_ms(uint64_t ms);
void __wrap_uc_sleep_ms(uint64_t ms)
{
	now += ms;
	slept++;
}

int __real_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	if (request != BLKGETSIZE64)
		return __real_ioctl(fd, request, arg);
	if (fd != device) {
		errno = ENOTTY;
		return -1;
	}
	*(uint64_t *)arg = UINT64_C(123) << 32;
	return 0;
}

/* ---------------------------------------------------------------------- images */

static void make_image(const char *path, off_t size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
}

static void put(const char *path, off_t at, const void *p, size_t n)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, p, n, at), n);
	close(fd);
}

static void run(const char *command)
{
	assert_int_equal(system(command), 0);
}

static void make_ext4(const char *path)
{
	char command[200];

	make_image(path, 16 << 20);
	snprintf(command, sizeof(command),
		 "PATH=$PATH:/sbin:/usr/sbin mkfs.ext4 -q -F -U " UUID " %s", path);
	run(command);
}

static void put_partition_table(const char *path)
{
	/* One Linux partition from sector 2048, and the boot signature. */
	static const unsigned char entry[16] = {
		0, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0
	};

	put(path, 446, entry, sizeof(entry));
	put(path, 510, "\x55\xaa", 2);
}

/* A squashfs needs little more than its magic and version, in the bytes that ext4 leaves free. */
static void put_squashfs(const char *path)
{
	put(path, 0, "hsqs", 4);
	put(path, 28, "\x04", 2);
}

static void put_luks(const char *path)
{
	put(path, 0, "LUKS\xba\xbe\0\x01", 8);
}

static void put_lvm(const char *path)
{
	put(path, 512,
	    "LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001"
	    "0123456789abcdefghijABCDEFGHIJkl",
	    64);
}

/* That of a machine with pages of 8 KiB. */
static void put_swap(const char *path)
{
	put(path, 8192 - 10, "SWAPSPACE2", 10);
	put(path, 1024, "\x01\0\0\0\xff\x07\0\0", 8);
}

static int probe_file(const char *path, struct uc_blk_content *content, struct uc_err *err)
{
	int r;

	device = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(device >= 0);
	reads = 0;
	r = uc_blk_probe(device, content, err);
	close(device);
	device = -1;
	return r;
}

static int disarm(void **state)
{
	(void)state;
	fail_at = 0;
	bad_place = -1;
	failure = EIO;
	busy_for = 0;
	now = slept = 0;
	return 0;
}

/* --------------------------------------------------------------------- probing */

static void a_device_of_zeroes_is_blank(void **state)
{
	static const off_t sizes[] = { 0, 512, 4096, 65536, 1 << 20, 16 << 20, 1 << 30 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct uc_blk_content c = { .kind = UC_BLK_OTHER };

		make_image("image", sizes[i]);
		assert_int_equal(probe_file("image", &c, NULL), 0);
		assert_int_equal(c.kind, UC_BLK_BLANK);
		assert_string_equal(c.type, "");
		assert_string_equal(c.uuid, "");
	}
}

static void a_filesystem_is_told_with_type_and_uuid(void **state)
{
	struct uc_blk_content c = { .kind = UC_BLK_OTHER };

	(void)state;
	make_ext4("image");
	assert_int_equal(probe_file("image", &c, NULL), 0);
	assert_int_equal(c.kind, UC_BLK_FILESYSTEM);
	assert_string_equal(c.type, "ext4");
	assert_string_equal(c.uuid, UUID);
}

static void a_filesystem_with_a_bad_checksum_is_not_blank(void **state)
{
	struct uc_blk_content c = { .kind = UC_BLK_BLANK };

	(void)state;
	make_ext4("image");
	put("image", 1024 + 120, "other label",
	    11); /* in the superblock: its checksum is wrong now */
	assert_int_equal(probe_file("image", &c, NULL), 0);
	assert_int_not_equal(c.kind, UC_BLK_BLANK);
}

static void other_signatures_are_told_by_their_type(void **state)
{
	static const struct {
		void (*put)(const char *path);
		const char *type;
	} rows[] = {
		{ put_partition_table, "dos" },
		{ put_luks, "crypto_LUKS" },
		{ put_lvm, "LVM2_member" },
		{ put_swap, "swap" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_blk_content c = { .kind = UC_BLK_BLANK };

		make_image("image", 16 << 20);
		rows[i].put("image");
		assert_int_equal(probe_file("image", &c, NULL), 0);
		assert_int_equal(c.kind, UC_BLK_OTHER);
		assert_string_equal(c.type, rows[i].type);
	}
}

static void a_filesystem_in_a_partition_table_is_not_taken_for_a_filesystem(void **state)
{
	struct uc_blk_content c = { .kind = UC_BLK_BLANK };

	(void)state;
	make_ext4("image");
	put_partition_table("image");
	assert_int_equal(probe_file("image", &c, NULL), 0);
	assert_int_equal(c.kind, UC_BLK_OTHER);
}

static void two_filesystems_are_ambivalent(void **state)
{
	struct uc_blk_content c = { .kind = UC_BLK_BLANK };

	(void)state;
	make_ext4("image");
	put_squashfs("image");
	assert_int_equal(probe_file("image", &c, NULL), 0);
	assert_int_equal(c.kind, UC_BLK_AMBIVALENT);
	assert_string_equal(c.type, "");
	assert_string_equal(c.uuid, "");
}

static void a_device_that_cannot_be_read_somewhere_is_never_taken_for_blank(void **state)
{
	static const int failures[] = { EIO, EPERM, ENODATA, ETIMEDOUT };
	struct uc_blk_content clean = { .kind = UC_BLK_OTHER };
	off_t place[READS_MAX];
	unsigned n;

	(void)state;
	make_image("image", 64 << 20);
	assert_int_equal(probe_file("image", &clean, NULL), 0);
	assert_int_equal(clean.kind, UC_BLK_BLANK);
	assert_in_range(reads, 10, READS_MAX);
	n = reads;
	memcpy(place, places, sizeof(place));
	for (unsigned i = 0; i < n * ARRAY_SIZE(failures); i++) {
		struct uc_blk_content c = { .kind = UC_BLK_OTHER, .type = "untouched" };
		struct uc_err err = { 0 };

		bad_place = place[i % n];
		failure = failures[i / n];
		if (probe_file("image", &c, &err) == 0)
			fail_msg("%lld cannot be read (%d), and the device is of kind %d",
				 (long long)bad_place, failure, c.kind);
		assert_string_equal(c.type, "untouched");
		assert_non_null(strstr(err.msg, "probe a device"));
	}
}

static void a_passing_read_error_never_hides_a_signature(void **state)
{
	static void (*const rows[])(const char *path) = {
		make_ext4, put_partition_table, put_luks, put_lvm, put_swap,
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		make_image("image", 16 << 20);
		rows[i]("image");
		fail_at = 0;
		do {
			struct uc_blk_content c = { .kind = UC_BLK_OTHER };

			fail_at++;
			if (probe_file("image", &c, NULL) == 0 && c.kind == UC_BLK_BLANK)
				fail_msg("row %zu: read %u fails, and the device is blank", i,
					 fail_at);
		} while (reads >= fail_at);
		assert_true(fail_at > 10);
	}
}

static void what_is_no_device_cannot_be_probed(void **state)
{
	struct uc_blk_content c = { .kind = UC_BLK_OTHER };

	(void)state;
	assert_true(probe_file(".", &c, NULL) < 0);
	assert_int_equal(c.kind, UC_BLK_OTHER);
}

/* ------------------------------------------------------------------------ size */

static void a_device_has_a_size_and_a_file_none(void **state)
{
	uint64_t bytes = 7;

	(void)state;
	device = 77;
	assert_int_equal(uc_blk_size(77, &bytes), 0);
	assert_int_equal(bytes, UINT64_C(123) << 32);
	bytes = 7;
	assert_int_equal(uc_blk_size(78, &bytes), -ENOTTY);
	assert_int_equal(bytes, 7);
	device = -1;
}

/* --------------------------------------------------------------------- waiting */

static void a_free_device_is_not_waited_for(void **state)
{
	size_t fds = open_fds();

	(void)state;
	write_file("image", "");
	assert_int_equal(uc_blk_wait_unclaimed("image", 100, NULL), 0);
	assert_int_equal(slept, 0);
	assert_int_equal(last_flags & (O_EXCL | O_CLOEXEC | O_ACCMODE),
			 O_EXCL | O_CLOEXEC | O_RDONLY);
	assert_int_equal(open_fds(), fds);
}

static void a_device_that_is_let_go_of_in_time_is_free(void **state)
{
	(void)state;
	write_file("image", "");
	busy_for = 7;
	busy_errno = EBUSY;
	assert_int_equal(uc_blk_wait_unclaimed("image", 1000, NULL), 0);
	assert_int_equal(slept, 7);
	assert_in_range(now, 64, 500); /* quick at first, not for ever */
}

static void a_device_that_is_held_is_busy_when_the_time_is_over(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	busy_for = 1000;
	busy_errno = EBUSY;
	assert_int_equal(uc_blk_wait_unclaimed("image", 1000, &err), -EBUSY);
	assert_in_range(now, 1000, 1050);
	assert_non_null(strstr(err.msg, "`image`"));
}

static void another_error_is_not_waited_for(void **state)
{
	(void)state;
	busy_for = 1;
	busy_errno = ENXIO;
	assert_int_equal(uc_blk_wait_unclaimed("image", 1000, NULL), -ENXIO);
	assert_int_equal(slept, 0);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, disarm, disarm)
	const struct CMUnitTest tests[] = {
		T(a_device_of_zeroes_is_blank),
		T(a_filesystem_is_told_with_type_and_uuid),
		T(a_filesystem_with_a_bad_checksum_is_not_blank),
		T(other_signatures_are_told_by_their_type),
		T(a_filesystem_in_a_partition_table_is_not_taken_for_a_filesystem),
		T(two_filesystems_are_ambivalent),
		T(a_device_that_cannot_be_read_somewhere_is_never_taken_for_blank),
		T(a_passing_read_error_never_hides_a_signature),
		T(what_is_no_device_cannot_be_probed),
		T(a_device_has_a_size_and_a_file_none),
		T(a_free_device_is_not_waited_for),
		T(a_device_that_is_let_go_of_in_time_is_free),
		T(a_device_that_is_held_is_busy_when_the_time_is_over),
		T(another_error_is_not_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
