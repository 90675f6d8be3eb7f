/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/macros.h"
#include "lib/os/unixsock.h"

/* Each test has a directory of its own, which it runs in. */
static char *dir;

static int setup(void **state)
{
	char template[] = "unixsock.XXXXXX";

	(void)state;
	dir = mkdtemp(template) ? realpath(template, NULL) : NULL;
	return dir && chdir(dir) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
	char command[PATH_MAX + 20];

	(void)state;
	if (chdir("..") < 0)
		return -1;
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	free(dir);
	return system(command);
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

/* A socket whose process has died: a name and nobody behind it. */
static void make_stale(const char *name, int type)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	strcpy(a.sun_path, name);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	close(fd);
}

static void assert_works(const char *path)
{
	struct uc_unix_listener l = UC_UNIX_LISTENER_INIT;
	struct uc_err err = { 0 };
	char c = 'x';
	int client, server;

	if (uc_unix_listen(path, &l, &err) != 0)
		print_error("%s\n", err.msg);
	assert_true(l.fd >= 0);
	client = uc_unix_connect(path, &err);
	assert_true(client >= 0);
	server = accept(l.fd, NULL, NULL);
	assert_true(server >= 0);
	assert_int_equal(write(client, &c, 1), 1);
	c = 0;
	assert_int_equal(read(server, &c, 1), 1);
	assert_int_equal(c, 'x');
	assert_true(uc_unix_is_trusted(server));
	close(client);
	close(server);
	uc_unix_unlisten(&l);
	assert_false(exists(path));
	assert_int_equal(uc_unix_connect(path, NULL), -ENOENT);
}

static void listens_and_leaves_no_trace(void **state)
{
	char path[PATH_MAX];

	(void)state;
	assert_works("x.sock");
	assert_works("./x.sock");
	snprintf(path, sizeof(path), "%s/x.sock", dir);
	assert_works(path);
	assert_works(path);
}

static void path_may_be_longer_than_an_address(void **state)
{
	char path[PATH_MAX];
	size_t n;

	(void)state;
	n = (size_t)snprintf(path, sizeof(path), "%s", dir);
	while (n < 600) {
		n += (size_t)snprintf(path + n, sizeof(path) - n, "/%s",
				      "a-directory-with-a-rather-long-name-of-fifty-bytes");
		assert_int_equal(mkdir(path, 0700), 0);
	}
	snprintf(path + n, sizeof(path) - n, "/ctl.sock");
	assert_works(path);
}

/* Every length around what an address has room for. */
static void no_length_is_cut(void **state)
{
	char path[PATH_MAX];
	size_t base = (size_t)snprintf(path, sizeof(path), "%s/", dir);

	(void)state;
	for (size_t len = 100; len < 120; len++) {
		if (base + 3 > len)
			continue;
		memset(path + base, 'd', len - base - 2);
		path[len - 2] = '\0';
		assert_int_equal(mkdir(path, 0700), 0);
		memcpy(path + len - 2, "/s", 3);
		assert_works(path);
	}
}

static void name_alone_may_be_too_long(void **state)
{
	struct uc_unix_listener l = UC_UNIX_LISTENER_INIT;
	char name[120] = "";
	struct uc_err err = { 0 };

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	assert_int_equal(uc_unix_listen(name, &l, &err), -ENAMETOOLONG);
	assert_int_equal(l.fd, -1);
	assert_int_equal(uc_unix_connect(name, &err), -ENAMETOOLONG);
}

static void mode_is_0600_from_the_beginning(void **state)
{
	static const mode_t masks[] = { 0, 022, 0777 };
	struct uc_unix_listener l = UC_UNIX_LISTENER_INIT;
	struct stat st;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(masks); i++) {
		mode_t old = umask(masks[i]);

		assert_int_equal(uc_unix_listen("x.sock", &l, NULL), 0);
		assert_int_equal(umask(old), masks[i]);
		assert_int_equal(lstat("x.sock", &st), 0);
		assert_int_equal(st.st_mode & 07777, 0600 & ~masks[i]);
		uc_unix_unlisten(&l);
	}
}

/* bind() is the moment from which others see the name: the mode must be there then. */
static mode_t mode_at_listen;
int __real_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog)
{
	struct stat st;

	if (lstat("x.sock", &st) == 0)
		mode_at_listen = st.st_mode & 07777;
	return __real_listen(fd, backlog);
}

static void mode_is_narrow_before_anybody_can_connect(void **state)
{
	struct uc_unix_listener l = UC_UNIX_LISTENER_INIT;
	mode_t old = umask(0);

	(void)state;
	mode_at_listen = 0;
	assert_int_equal(uc_unix_listen("x.sock", &l, NULL), 0);
	umask(old);
	assert_int_equal(mode_at_listen, 0600);
	uc_unix_unlisten(&l);
}

static void stale_socket_is_replaced(void **state)
{
	(void)state;
	make_stale("x.sock", SOCK_STREAM);
	assert_int_equal(uc_unix_connect("x.sock", NULL), -ECONNREFUSED);
	assert_works("x.sock");
}

static void live_socket_is_left_alone(void **state)
{
	struct uc_unix_listener l = UC_UNIX_LISTENER_INIT, second = UC_UNIX_LISTENER_INIT;
	struct uc_err err = { 0 };
	int client;

	(void)state;
	assert_int_equal(uc_unix_listen("x.sock", &l, NULL), 0);
	assert_int_equal(uc_unix_listen("x.sock", &second, &err), -EADDRINUSE);
	assert_string_equal(err.msg, "another process listens on `x.sock`");
	assert_int_equal(second.fd, -1);
	client = uc_unix_connect("x.sock", NULL);
	assert_true(client >= 0);
	close(client);
	uc_unix_unlisten(&l);
}

static void socket_of_another_type_is_live_too(void **state)
{
	struct uc_unix_listener l = UC_UNIX_LISTENER_INIT;
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "x.sock" };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)state;
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(__real_listen(fd, 1), 0);
	assert_int_equal(uc_unix_listen("x.sock", &l, NULL), -EADDRINUSE);
	close(fd);
}

static void what_is_no_socket_is_never_removed(void **state)
{
	struct uc_unix_listener l = UC_UNIX_LISTENER_INIT;

	(void)state;
	close(open("file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_int_equal(mkdir("directory", 0700), 0);
	make_stale("target.sock", SOCK_STREAM);
	assert_int_equal(symlink("target.sock", "link"), 0);
	assert_int_equal(uc_unix_listen("file", &l, NULL), -EEXIST);
	assert_int_equal(uc_unix_listen("directory", &l, NULL), -EEXIST);
	assert_int_equal(uc_unix_listen("link", &l, NULL), -EEXIST);
	assert_true(exists("file") && exists("directory") && exists("link") &&
		    exists("target.sock"));
}

static void name_that_belongs_to_another_by_now_stays(void **state)
{
	struct uc_unix_listener l = UC_UNIX_LISTENER_INIT, other = UC_UNIX_LISTENER_INIT;

	(void)state;
	assert_int_equal(uc_unix_listen("x.sock", &l, NULL), 0);
	assert_int_equal(unlink("x.sock"), 0);
	assert_int_equal(uc_unix_listen("x.sock", &other, NULL), 0);
	uc_unix_unlisten(&l);
	assert_true(exists("x.sock"));
	uc_unix_unlisten(&other);
	assert_false(exists("x.sock"));
}

static void directory_is_needed(void **state)
{
	static const struct {
		const char *path;
		int r;
	} cases[] = {
		{ "missing/x.sock", -ENOENT },
		{ "", -EINVAL },
		{ "x/", -EINVAL },
		{ "/", -EINVAL },
	};
	struct uc_unix_listener l = UC_UNIX_LISTENER_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct uc_err err = { 0 };

		assert_int_equal(uc_unix_listen(cases[i].path, &l, &err), cases[i].r);
		assert_int_equal(err.num, -cases[i].r);
		assert_int_equal(uc_unix_connect(cases[i].path, &err), cases[i].r);
		assert_int_equal(l.fd, -1);
	}
}

static void nothing_is_left_open(void **state)
{
	struct uc_unix_listener l = UC_UNIX_LISTENER_INIT;
	int before = dup(0), after;

	(void)state;
	make_stale("x.sock", SOCK_STREAM);
	close(open("file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_int_equal(uc_unix_listen("file", &l, NULL), -EEXIST);
	assert_int_equal(uc_unix_listen("missing/x.sock", &l, NULL), -ENOENT);
	assert_int_equal(uc_unix_connect("x.sock", NULL), -ECONNREFUSED);
	assert_int_equal(uc_unix_listen("x.sock", &l, NULL), 0);
	uc_unix_unlisten(&l);
	uc_unix_unlisten(&l);
	close(before);
	after = dup(0);
	assert_int_equal(after, before);
	close(after);
}

static void unlistening_keeps_errno(void **state)
{
	struct uc_unix_listener l = UC_UNIX_LISTENER_INIT;

	(void)state;
	assert_int_equal(uc_unix_listen("x.sock", &l, NULL), 0);
	unlink("x.sock");
	errno = ENOTTY;
	uc_unix_unlisten(&l);
	assert_int_equal(errno, ENOTTY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(listens_and_leaves_no_trace, setup, teardown),
		cmocka_unit_test_setup_teardown(path_may_be_longer_than_an_address, setup,
						teardown),
		cmocka_unit_test_setup_teardown(no_length_is_cut, setup, teardown),
		cmocka_unit_test_setup_teardown(name_alone_may_be_too_long, setup, teardown),
		cmocka_unit_test_setup_teardown(mode_is_0600_from_the_beginning, setup, teardown),
		cmocka_unit_test_setup_teardown(mode_is_narrow_before_anybody_can_connect, setup,
						teardown),
		cmocka_unit_test_setup_teardown(stale_socket_is_replaced, setup, teardown),
		cmocka_unit_test_setup_teardown(live_socket_is_left_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(socket_of_another_type_is_live_too, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_is_no_socket_is_never_removed, setup,
						teardown),
		cmocka_unit_test_setup_teardown(name_that_belongs_to_another_by_now_stays, setup,
						teardown),
		cmocka_unit_test_setup_teardown(directory_is_needed, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_is_left_open, setup, teardown),
		cmocka_unit_test_setup_teardown(unlistening_keeps_errno, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
