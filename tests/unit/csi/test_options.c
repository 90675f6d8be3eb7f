/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "csi/options.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"

static const char *host_name = "host-1";

int __wrap_uname(struct utsname *u);
int __wrap_uname(struct utsname *u)
{
	memset(u, 0, sizeof(*u));
	snprintf(u->nodename, sizeof(u->nodename), "%s", host_name);
	return 0;
}

static struct csi_options o;

static int set_up(void **state)
{
	(void)state;
	unsetenv("CSI_ENDPOINT");
	unsetenv("NODE_NAME");
	host_name = "host-1";
	o = (struct csi_options){ .workers = 0 };
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	csi_options_done(&o);
	csi_options_done(&o);
	return 0;
}

/* Parses "union-csi" and the arguments. */
static int parse_list(char *const *args, struct uc_err *err)
{
	char *argv[32] = { (char *)(uintptr_t) "union-csi" };
	int argc = 1;

	csi_options_done(&o);
	for (; *args; args++)
		argv[argc++] = *args;
	return csi_options_parse(argc, argv, &o, err);
}

#define PARSE(...) parse_list(STRV(__VA_ARGS__), NULL)

static void no_option_at_all_is_the_default(void **state)
{
	char *self = realpath("/proc/self/exe", NULL), union_fs[4096];

	(void)state;
	assert_int_equal(parse_list(STRV(NULL), NULL), CSI_OPTIONS_RUN);
	assert_true(o.has_controller);
	assert_true(o.has_node);
	assert_string_equal(o.endpoint, "/run/union-csi/csi.sock");
	assert_string_equal(o.driver_name, "union.csi.union.io");
	assert_string_equal(o.node_id, "host-1");
	assert_string_equal(o.state_dir, "/var/lib/union-csi");
	assert_string_equal(o.kubelet_dir, "/var/lib/kubelet");
	assert_null(o.mount_roots);
	assert_null(o.pools);
	assert_false(o.thin);
	*strrchr(self, '/') = '\0';
	snprintf(union_fs, sizeof(union_fs), "%s/union-fs", self);
	free(self);
	assert_string_equal(o.union_fs, union_fs);
	assert_null(o.http_endpoint);
	assert_null(o.registration_path);
	assert_string_equal(o.registration_dir, "/var/lib/kubelet/plugins_registry");
	assert_int_equal(o.workers, 8);
	assert_int_equal(o.hang_ms, 300 * 1000);
	assert_int_equal(o.log_level, UC_LOG_INFO);
	assert_int_equal(o.log_format, UC_LOG_TEXT);
}

static void every_option_is_taken(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--mode=node", "--endpoint=unix:///a/b.sock", "--backend", "local",
			       "--pool=/p1,/p2", "--pool=rel", "--thin", "--state-dir=/state",
			       "--node-id=node-1", "--driver-name=x.y", "--kubelet-dir=/k",
			       "--mount-root=/m1", "--mount-root=/m2,/m3", "--union-fs=/bin/ufs",
			       "--kubelet-registration-path=/k/csi.sock", "--http-endpoint=:9808",
			       "--workers=3", "--hang-timeout=7", "--log-format=json", "-v"),
			 CSI_OPTIONS_RUN);
	assert_false(o.has_controller);
	assert_true(o.has_node);
	assert_string_equal(o.endpoint, "/a/b.sock");
	assert_true(uc_strv_equal(o.pools, STRV("/p1", "/p2", "rel")));
	assert_true(o.thin);
	assert_string_equal(o.state_dir, "/state");
	assert_string_equal(o.node_id, "node-1");
	assert_string_equal(o.driver_name, "x.y");
	assert_string_equal(o.kubelet_dir, "/k");
	assert_true(uc_strv_equal(o.mount_roots, STRV("/m1", "/m2", "/m3")));
	assert_string_equal(o.union_fs, "/bin/ufs");
	assert_string_equal(o.registration_path, "/k/csi.sock");
	assert_string_equal(o.registration_dir, "/k/plugins_registry");
	assert_string_equal(o.http_endpoint, ":9808");
	assert_int_equal(o.workers, 3);
	assert_int_equal(o.hang_ms, 7000);
	assert_int_equal(o.log_level, UC_LOG_DEBUG);
	assert_int_equal(o.log_format, UC_LOG_JSON);

	assert_int_equal(PARSE("--plugin-registration-dir=/r", "--kubelet-dir=/k", "--verbose",
			       "--log-format=text", "--workers=256", "--hang-timeout=86400"),
			 CSI_OPTIONS_RUN);
	assert_string_equal(o.registration_dir, "/r");
	assert_int_equal(o.log_level, UC_LOG_DEBUG);
	assert_int_equal(o.workers, 256);
}

static void each_mode_has_its_services(void **state)
{
	static const struct {
		const char *option;
		bool controller, node;
	} rows[] = { { "--mode=all", true, true },
		     { "--mode=controller", true, false },
		     { "--mode=node", false, true } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(PARSE(rows[i].option), CSI_OPTIONS_RUN);
		assert_int_equal(o.has_controller, rows[i].controller);
		assert_int_equal(o.has_node, rows[i].node);
	}
}

static void of_an_option_that_comes_twice_the_last_counts(void **state)
{
	(void)state;
	assert_int_equal(
		PARSE("--mode=node", "--state-dir=/a", "--mode=controller", "--state-dir=/b"),
		CSI_OPTIONS_RUN);
	assert_false(o.has_node);
	assert_true(o.has_controller);
	assert_string_equal(o.state_dir, "/b");
}

static void a_bad_value_is_refused_with_its_option(void **state)
{
	static const struct {
		const char *option, *named, *value;
	} rows[] = {
		{ "--mode=both", "--mode", "`both`" },
		{ "--mode=", "--mode", "``" },
		{ "--endpoint=tcp://0.0.0.0:1", "--endpoint", "`tcp://0.0.0.0:1`" },
		{ "--endpoint=unix://rel", "--endpoint", "`unix://rel`" },
		{ "--endpoint=", "--endpoint", "``" },
		{ "--endpoint=unix:///", "--endpoint", "`unix:///`" },
		{ "--backend=kube", "--backend", "`kube`" },
		{ "--pool=", "--pool", "``" },
		{ "--pool=/a,,/b", "--pool", "`/a,,/b`" },
		{ "--pool=/a,", "--pool", "`/a,`" },
		{ "--state-dir=rel", "--state-dir", "`rel`" },
		{ "--state-dir=", "--state-dir", "``" },
		{ "--kubelet-dir=rel", "--kubelet-dir", "`rel`" },
		{ "--mount-root=", "--mount-root", "``" },
		{ "--mount-root=,", "--mount-root", "`,`" },
		{ "--kubelet-registration-path=rel", "--kubelet-registration-path", "`rel`" },
		{ "--plugin-registration-dir=rel", "--plugin-registration-dir", "`rel`" },
		{ "--workers=0", "--workers", "`0`" },
		{ "--workers=257", "--workers", "`257`" },
		{ "--workers=many", "--workers", "`many`" },
		{ "--workers=-1", "--workers", "`-1`" },
		{ "--hang-timeout=0", "--hang-timeout", "`0`" },
		{ "--hang-timeout=86401", "--hang-timeout", "`86401`" },
		{ "--hang-timeout=5s", "--hang-timeout", "`5s`" },
		{ "--log-format=xml", "--log-format", "`xml`" },
		{ "--driver-name=", "--driver-name", "``" },
		{ "--driver-name=a_b", "--driver-name", "`a_b`" },
		{ "--driver-name=a/b", "--driver-name", "`a/b`" },
		{ "--driver-name=-a", "--driver-name", "`-a`" },
		{ "--driver-name=a.", "--driver-name", "`a.`" },
		{ "--driver-name=0123456789012345678901234567890123456789012345678901234567890123",
		  "--driver-name",
		  "`0123456789012345678901234567890123456789012345678901234567890123`" },
		{ "--node-id=", "--node-id", "``" },
		{ "--node-id=a b", "--node-id", "`a b`" },
		{ "--node-id=a/b", "--node-id", "`a/b`" },
		{ "--node-id=a\nb", "--node-id", "`a\\x0ab`" },
		{ "--node-id=.a", "--node-id", "`.a`" },
		{ "--node-id=0123456789012345678901234567890123456789012345678901234567890123",
		  "--node-id",
		  "`0123456789012345678901234567890123456789012345678901234567890123`" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_err err = { 0 };

		if (parse_list(STRV(rows[i].option), &err) != -EINVAL)
			fail_msg("%s is accepted", rows[i].option);
		if (!strstr(err.msg, rows[i].named) || !strstr(err.msg, rows[i].value))
			fail_msg("%s: %s", rows[i].option, err.msg);
	}
}

static void names_at_their_limits_are_accepted(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--driver-name="
			       "012345678901234567890123456789012345678901234567890123456789012",
			       "--node-id=a_b.c-d"),
			 CSI_OPTIONS_RUN);
	assert_int_equal(PARSE("--driver-name=x", "--node-id=0"), CSI_OPTIONS_RUN);
}

static void what_is_no_option_is_refused_by_name(void **state)
{
	static const struct {
		const char *first, *second, *message;
	} rows[] = {
		{ "--bogus", NULL, "option `--bogus` is not known" },
		{ "--bogus=7", NULL, "option `--bogus=7` is not known" },
		{ "--thin", "-x", "option `-x` is not known" },
		{ "-vx", NULL, "option `-x` is not known" },
		{ "-xv", NULL, "option `-x` is not known" },
		{ "--thin=yes", NULL, "option `--thin=yes` is not known" },
		{ "--p=/a", NULL, "option `--p=/a` is not known" }, /* which of the three? */
		{ "--pool", NULL, "option `--pool` needs a value" },
		{ "argument", NULL, "argument `argument` is not expected" },
		{ "--thin", "argument", "argument `argument` is not expected" },
		{ "--", "--thin", "argument `--thin` is not expected" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct uc_err err = { 0 };

		assert_int_equal(parse_list(STRV(rows[i].first, rows[i].second), &err), -EINVAL);
		assert_string_equal(err.msg, rows[i].message);
	}
}

static void the_environment_is_a_fallback_for_endpoint_and_node(void **state)
{
	(void)state;
	setenv("CSI_ENDPOINT", "unix:///env.sock", 1);
	setenv("NODE_NAME", "env-node", 1);
	assert_int_equal(PARSE("--thin"), CSI_OPTIONS_RUN);
	assert_string_equal(o.endpoint, "/env.sock");
	assert_string_equal(o.node_id, "env-node");

	assert_int_equal(PARSE("--endpoint=unix:///opt.sock", "--node-id=opt-node"),
			 CSI_OPTIONS_RUN);
	assert_string_equal(o.endpoint, "/opt.sock");
	assert_string_equal(o.node_id, "opt-node");

	setenv("NODE_NAME", "", 1);
	assert_int_equal(PARSE("--thin"), CSI_OPTIONS_RUN);
	assert_string_equal(o.node_id, "host-1");
}

static void a_bad_environment_is_refused_by_name_unless_an_option_overrides_it(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	setenv("CSI_ENDPOINT", "tcp://1:2", 1);
	assert_int_equal(parse_list(STRV("--thin"), &err), -EINVAL);
	assert_non_null(strstr(err.msg, "CSI_ENDPOINT"));
	assert_non_null(strstr(err.msg, "`tcp://1:2`"));
	assert_int_equal(PARSE("--endpoint=/a.sock"), CSI_OPTIONS_RUN);
	unsetenv("CSI_ENDPOINT");

	setenv("NODE_NAME", "a b", 1);
	assert_int_equal(parse_list(STRV("--thin"), &err), -EINVAL);
	assert_non_null(strstr(err.msg, "`a b`"));
	assert_int_equal(PARSE("--node-id=n"), CSI_OPTIONS_RUN);
	unsetenv("NODE_NAME");

	host_name = "no good name";
	assert_int_equal(parse_list(STRV("--thin"), &err), -EINVAL);
	assert_non_null(strstr(err.msg, "`no good name`"));
}

static void an_endpoint_is_a_unix_socket_with_an_absolute_path(void **state)
{
	static const struct {
		const char *endpoint, *path;
	} rows[] = {
		{ "unix:///a/b", "/a/b" }, { "unix:/a", "/a" },    { "/a", "/a" },
		{ "unix:////a", "//a" },   { "", NULL },           { "/", NULL },
		{ "unix:", NULL },         { "unix://", NULL },    { "unix:///", NULL },
		{ "unix:a", NULL },        { "unix://a/b", NULL }, { "tcp:///a", NULL },
		{ "a/b", NULL },           { "UNIX:///a", NULL },  { "unix:unix:///a", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *path = csi_endpoint_path(rows[i].endpoint);

		if (rows[i].path)
			assert_string_equal(path, rows[i].path);
		else
			assert_null(path);
	}
}

/* What csi_options_parse() prints to standard output. */
static const char *printed(char *const *args)
{
	static char text[16 * 1024];
	int out = dup(STDOUT_FILENO), fd = open("out", O_RDWR | O_CREAT | O_TRUNC, 0600);
	ssize_t n;

	fflush(stdout);
	dup2(fd, STDOUT_FILENO);
	assert_int_equal(parse_list(args, NULL), CSI_OPTIONS_EXIT);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	n = pread(fd, text, sizeof(text) - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	close(out);
	close(fd);
	return text;
}

static void help_names_every_option_and_fits_a_terminal(void **state)
{
	static const char *const names[] = {
		"--mode=",
		"--endpoint=",
		"--backend=",
		"--pool=",
		"--thin",
		"--state-dir=",
		"--node-id=",
		"--driver-name=",
		"--kubelet-dir=",
		"--mount-root=",
		"--union-fs=",
		"--kubelet-registration-path=",
		"--plugin-registration-dir=",
		"--http-endpoint=",
		"--workers=",
		"--hang-timeout=",
		"--log-format=",
		"--verbose",
		"--version",
		"--help",
	};
	const char *text = printed(STRV("--help"));
	size_t column = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strstr(text, names[i]))
			fail_msg("%s is missing", names[i]);
	for (const char *p = text; *p; p++) {
		column = *p == '\n' ? 0 : column + 1;
		assert_true(column <= 100);
	}
	assert_string_equal(printed(STRV("-h")), text);
}

static void version_is_one_line(void **state)
{
	const char *text = printed(STRV("--version", "--bogus"));

	(void)state;
	assert_true(uc_str_has_prefix(text, "union-csi "));
	assert_int_equal(strcspn(text, "\n"), strlen(text) - 1);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(no_option_at_all_is_the_default),
		T(every_option_is_taken),
		T(each_mode_has_its_services),
		T(of_an_option_that_comes_twice_the_last_counts),
		T(a_bad_value_is_refused_with_its_option),
		T(names_at_their_limits_are_accepted),
		T(what_is_no_option_is_refused_by_name),
		T(the_environment_is_a_fallback_for_endpoint_and_node),
		T(a_bad_environment_is_refused_by_name_unless_an_option_overrides_it),
		T(an_endpoint_is_a_unix_socket_with_an_absolute_path),
		T(help_names_every_option_and_fits_a_terminal),
		T(version_is_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
