/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <stdlib.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/rpc/http_head.h"

struct head_case {
	const char *head;
	int status;
	const char *path; /* of 200 */
};

static const struct head_case cases[] = {
	{ "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 200, "/" },
	{ "HEAD /healthz HTTP/1.1\r\n\r\n", 200, "/healthz" },
	{ "GET /healthz HTTP/1.0\r\n\r\n", 200, "/healthz" },
	{ "GET /metrics?x=1&y=/z HTTP/1.1\r\nAccept: */*\r\n\r\n", 200, "/metrics" },
	{ "GET /a%20b HTTP/1.1\nHost: x\n\n", 200, "/a%20b" },
	{ "\r\nGET / HTTP/1.1\r\n\r\n", 200, "/" },
	{ "GET / HTTP/1.1\r\nEmpty:\r\nSpaces:   a b  \r\n\r\n", 200, "/" },
	{ "POST / HTTP/1.1\r\n\r\n", 405, NULL },
	{ "get / HTTP/1.1\r\n\r\n", 405, NULL },
	{ "OPTIONS * HTTP/1.1\r\n\r\n", 405, NULL },
	{ "GET / HTTP/2.0\r\n\r\n", 505, NULL },
	{ "PRI * HTTP/2.0\r\n\r\n", 505, NULL },
	{ "GET /\r\n\r\n", 400, NULL },
	{ "GET  / HTTP/1.1\r\n\r\n", 400, NULL },
	{ "GET / HTTP/1.1 \r\n\r\n", 400, NULL },
	{ "GET / HTTP/1.\r\n\r\n", 400, NULL },
	{ "GET / http/1.1\r\n\r\n", 400, NULL },
	{ "GET http://x/ HTTP/1.1\r\n\r\n", 400, NULL },
	{ "GET \x7f HTTP/1.1\r\n\r\n", 400, NULL },
	{ "GET /\x80 HTTP/1.1\r\n\r\n", 400, NULL },
	{ " GET / HTTP/1.1\r\n\r\n", 400, NULL },
	{ "G(T / HTTP/1.1\r\n\r\n", 400, NULL },
	{ "\x16\x03\x01\r\n\r\n", 400, NULL },
	{ "GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, NULL },
	{ "GET / HTTP/1.1\r\nsp ace: x\r\n\r\n", 400, NULL },
	{ "GET / HTTP/1.1\r\n: x\r\n\r\n", 400, NULL },
	{ "GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400, NULL },
	{ "GET / HTTP/1.1\r\nx: a\rb\r\n\r\n", 400, NULL },
};

static void a_head_is_judged_when_it_is_complete_and_not_before(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t n = strlen(cases[i].head);

		for (size_t have = 1; have <= n; have++) {
			struct uc_http_head head = { 0 };
			char *exact = malloc(have);
			int status;

			memcpy(exact, cases[i].head, have);
			status = uc_http_parse_head(exact, have, &head);
			if (status != (have < n ? 0 : cases[i].status))
				print_error("case %zu, %zu of %zu bytes\n", i, have, n);
			assert_int_equal(status, have < n ? 0 : cases[i].status);
			if (status == 200) {
				assert_int_equal(head.n_path, strlen(cases[i].path));
				assert_memory_equal(head.path, cases[i].path, head.n_path);
				assert_int_equal(head.is_head, cases[i].head[0] == 'H');
			}
			free(exact);
		}
	}
}

static void what_comes_behind_the_head_does_not_matter(void **state)
{
	static const char text[] = "GET /x HTTP/1.1\r\n\r\n\0garbage\r\n\r\n";
	struct uc_http_head head = { 0 };

	(void)state;
	assert_int_equal(uc_http_parse_head(text, sizeof(text) - 1, &head), 200);
	assert_int_equal(head.n_path, 2);
}

static void nul_in_a_field_is_refused(void **state)
{
	static const char text[] = "GET /x HTTP/1.1\r\na: b\0c\r\n\r\n";
	struct uc_http_head head = { 0 };

	(void)state;
	assert_int_equal(uc_http_parse_head(text, sizeof(text) - 1, &head), 400);
}

static void long_head_is_refused_as_soon_as_it_is_too_long(void **state)
{
	char *text = malloc(UC_HTTP_HEAD_MAX + 10);
	struct uc_http_head head = { 0 };
	size_t n;

	(void)state;
	memset(text, 'a', UC_HTTP_HEAD_MAX + 10);
	assert_int_equal(uc_http_parse_head(text, UC_HTTP_HEAD_MAX - 1, &head), 0);
	assert_int_equal(uc_http_parse_head(text, UC_HTTP_HEAD_MAX, &head), 431);
	memcpy(text, "GET / HTTP/1.1\r\nx: ", 19);
	assert_int_equal(uc_http_parse_head(text, UC_HTTP_HEAD_MAX - 1, &head), 0);
	assert_int_equal(uc_http_parse_head(text, UC_HTTP_HEAD_MAX + 10, &head), 431);
	/* The longest one that is accepted. */
	n = UC_HTTP_HEAD_MAX;
	memcpy(text + n - 4, "\r\n\r\n", 4);
	assert_int_equal(uc_http_parse_head(text, n, &head), 200);
	/* One byte more. */
	text[n - 4] = 'a';
	memcpy(text + n - 3, "\r\n\r\n", 4);
	assert_int_equal(uc_http_parse_head(text, n + 1, &head), 431);
	free(text);
}

static void noise_is_survived(void **state)
{
	static const char alphabet[] = "GETHAD /:HTP1.\r\n\r\n \t\0?%\xff";

	(void)state;
	for (unsigned seed = 0; seed < 20000; seed++) {
		struct uc_http_head head = { 0 };
		size_t n;
		char *text;
		int status;

		srand(seed);
		n = 1 + (size_t)rand() % 60;
		text = malloc(n);
		for (size_t i = 0; i < n; i++)
			text[i] = alphabet[(size_t)rand() % (sizeof(alphabet) - 1)];
		status = uc_http_parse_head(text, n, &head);
		assert_true(status == 0 || status == 200 || status == 400 || status == 405 ||
			    status == 505);
		if (status == 200)
			assert_true(head.path >= text && head.path + head.n_path <= text + n);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_head_is_judged_when_it_is_complete_and_not_before),
		cmocka_unit_test(what_comes_behind_the_head_does_not_matter),
		cmocka_unit_test(nul_in_a_field_is_refused),
		cmocka_unit_test(long_head_is_refused_as_soon_as_it_is_too_long),
		cmocka_unit_test(noise_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
