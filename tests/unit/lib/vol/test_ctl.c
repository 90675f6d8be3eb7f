/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/unit.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "lib/base/json.h"
#include "lib/os/clock.h"
#include "lib/vol/ctl.h"

/* A volume server in the directory d/, which cuts off so many who ask before it answers one. */
static struct server {
	int listener;
	unsigned cuts;
	const char *answer; /* NULL: it ends instead */
	pthread_t thread;
} server;

static void *serve(void *data)
{
	struct server *s = data;
	char ask[100];

	for (unsigned i = 0; i < s->cuts; i++)
		close(accept(s->listener, NULL, NULL));
	if (s->answer) {
		int fd = accept(s->listener, NULL, NULL);

		assert_true(recv(fd, ask, sizeof(ask), 0) > 0);
		assert_int_equal(send(fd, s->answer, strlen(s->answer), MSG_NOSIGNAL),
				 strlen(s->answer));
		close(fd);
	}
	close(s->listener);
	return NULL;
}

static void begin(unsigned cuts, const char *answer)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX, .sun_path = "d/" UC_CTL_SOCKET };

	fresh_dir("d");
	server = (struct server){ .listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
				  .cuts = cuts,
				  .answer = answer };
	assert_int_equal(bind(server.listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(server.listener, 5), 0);
	assert_int_equal(pthread_create(&server.thread, NULL, serve, &server), 0);
}

static void end(void)
{
	assert_int_equal(pthread_join(server.thread, NULL), 0);
}

static void a_server_that_answers_is_believed(void **state)
{
	cleanup_json json_t *reply = NULL;
	struct uc_err err = { 0 };

	(void)state;
	begin(0, "{\"ok\": true, \"x\": 7}\n");
	assert_int_equal(uc_ctl_call("d", "status", 5000, &reply, NULL), 0);
	assert_int_equal(json_integer_value(json_object_get(reply, "x")), 7);
	end();
	begin(0, "{\"ok\": false, \"errno\": 16, \"error\": \"in use\"}\n");
	assert_int_equal(uc_ctl_call("d", "stop", 5000, NULL, &err), -EBUSY);
	assert_non_null(strstr(err.msg, "in use"));
	end();
}

static void where_nobody_listens_nobody_serves(void **state)
{
	(void)state;
	fresh_dir("d");
	assert_int_equal(uc_ctl_call("d", "status", 5000, NULL, NULL), -ECONNREFUSED);
	begin(0, NULL); /* a stale socket */
	end();
	assert_int_equal(uc_ctl_call("d", "status", 5000, NULL, NULL), -ECONNREFUSED);
}

/* A process that was killed closes its sockets one after the other. */
static void a_server_that_ends_while_it_is_asked_does_not_serve(void **state)
{
	(void)state;
	begin(1, NULL);
	assert_int_equal(uc_ctl_call("d", "status", 5000, NULL, NULL), -ECONNREFUSED);
	end();
}

static void the_successor_of_a_server_that_ended_is_asked(void **state)
{
	(void)state;
	begin(3, "{\"ok\": true}\n");
	assert_int_equal(uc_ctl_call("d", "status", 5000, NULL, NULL), 0);
	end();
}

static void a_server_that_always_cuts_off_is_not_asked_for_ever(void **state)
{
	uint64_t before = uc_now_ms();
	int r;

	(void)state;
	begin(1000, NULL);
	r = uc_ctl_call("d", "status", 200, NULL, NULL);
	assert_true(r == -ECONNRESET || r == -EPIPE || r == -ETIMEDOUT);
	assert_in_range(uc_now_ms() - before, 200, 10000);
	shutdown(server.listener, SHUT_RDWR); /* its accept() fails from now on */
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_server_that_answers_is_believed),
		cmocka_unit_test(where_nobody_listens_nobody_serves),
		cmocka_unit_test(a_server_that_ends_while_it_is_asked_does_not_serve),
		cmocka_unit_test(the_successor_of_a_server_that_ended_is_asked),
		cmocka_unit_test(a_server_that_always_cuts_off_is_not_asked_for_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
