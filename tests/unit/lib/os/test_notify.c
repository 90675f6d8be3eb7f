/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/unit.h"
#include <sys/socket.h>
#include <sys/un.h>

#include "lib/base/cleanup.h"
#include "lib/os/notify.h"

/* The service manager's end of a socket; @path as in NOTIFY_SOCKET. */
static int listen_at(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	memcpy(sa.sun_path, path, strlen(path));
	if (*path == '@')
		sa.sun_path[0] = '\0';
	assert_int_equal(bind(fd, (struct sockaddr *)&sa,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path))),
			 0);
	setenv("NOTIFY_SOCKET", path, 1);
	return fd;
}

static const char *received(int fd)
{
	static char buf[256];
	ssize_t n = recv(fd, buf, sizeof(buf) - 1, 0);

	assert_true(n >= 0);
	buf[n] = '\0';
	return buf;
}

static void without_a_service_manager_nothing_happens(void **state)
{
	(void)state;
	unsetenv("NOTIFY_SOCKET");
	assert_int_equal(uc_notify("READY=1"), 0);
	setenv("NOTIFY_SOCKET", "", 1);
	assert_int_equal(uc_notify("READY=1"), 0);
}

static void the_state_arrives_as_one_datagram(void **state)
{
	cleanup_fd int fd = -1;

	(void)state;
	unlink("notify");
	fd = listen_at("/proc/self/cwd/notify"); /* short, wherever the tests run */
	assert_int_equal(uc_notify("READY=1\nSTATUS=x"), 0);
	assert_string_equal(received(fd), "READY=1\nSTATUS=x");
	assert_int_equal(uc_notify("STOPPING=1"), 0);
	assert_string_equal(received(fd), "STOPPING=1");
}

static void an_abstract_socket_is_reached_too(void **state)
{
	cleanup_fd int fd = -1;
	char path[64];

	(void)state;
	snprintf(path, sizeof(path), "@union-csi-test-%d", (int)getpid());
	fd = listen_at(path);
	assert_int_equal(uc_notify("READY=1"), 0);
	assert_string_equal(received(fd), "READY=1");
}

static void a_socket_that_is_not_there_is_an_error_and_leaves_nothing(void **state)
{
	size_t fds = open_fds();

	(void)state;
	setenv("NOTIFY_SOCKET", "/nowhere/notify", 1);
	assert_int_equal(uc_notify("READY=1"), -ENOENT);
	setenv("NOTIFY_SOCKET", "@union-csi-nobody", 1);
	assert_int_equal(uc_notify("READY=1"), -ECONNREFUSED);
	assert_int_equal(open_fds(), fds);
}

static void what_is_no_socket_address_is_refused(void **state)
{
	char big[200];

	(void)state;
	memset(big, 'x', sizeof(big));
	big[0] = '/';
	big[108] = '\0'; /* one more than fits with its NUL */
	setenv("NOTIFY_SOCKET", big, 1);
	assert_int_equal(uc_notify("READY=1"), -EINVAL);
	big[107] = '\0';
	setenv("NOTIFY_SOCKET", big, 1);
	assert_int_equal(uc_notify("READY=1"), -ENOENT);
	setenv("NOTIFY_SOCKET", "notify", 1);
	assert_int_equal(uc_notify("READY=1"), -EINVAL);
	setenv("NOTIFY_SOCKET", "vsock:2:1", 1);
	assert_int_equal(uc_notify("READY=1"), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_service_manager_nothing_happens),
		cmocka_unit_test(the_state_arrives_as_one_datagram),
		cmocka_unit_test(an_abstract_socket_is_reached_too),
		cmocka_unit_test(a_socket_that_is_not_there_is_an_error_and_leaves_nothing),
		cmocka_unit_test(what_is_no_socket_address_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
