/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csi/inventory.h"
#include "csi/metrics.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/rpc/status.h"

void __wrap_csi_inventory_count(struct csi_inventory_counts *ret);
void __wrap_csi_inventory_count(struct csi_inventory_counts *ret)
{
	*ret = (struct csi_inventory_counts){
		.creating = 1,
		.ready = 22,
		.deleting = 3,
		.staged = 14,
		.publishes = 15,
	};
}

static struct csi_metrics *metrics;
static struct uc_buf text = UC_BUF_INIT;

static int set_up(void **state)
{
	(void)state;
	return csi_metrics_new(&metrics);
}

static int tear_down(void **state)
{
	(void)state;
	csi_metrics_free(metrics);
	metrics = NULL;
	uc_buf_done(&text);
	return 0;
}

static const char *format(void)
{
	uc_buf_clear(&text);
	csi_metrics_format(metrics, 7, &text);
	assert_int_equal(uc_buf_error(&text), 0);
	return uc_buf_str(&text);
}

/* The value of a series, written just so; fails if there is not exactly one. */
static const char *value(const char *series)
{
	static char found[64];
	size_t n = strlen(series);
	unsigned hits = 0;

	for (const char *line = format(); *line; line += strcspn(line, "\n") + 1)
		if (strncmp(line, series, n) == 0 && line[n] == ' ') {
			snprintf(found, sizeof(found), "%.*s", (int)strcspn(line + n + 1, "\n"),
				 line + n + 1);
			hits++;
		}
	if (hits != 1)
		fail_msg("%u times `%s`", hits, series);
	return found;
}

#define RPCS(service, method, code) \
	"union_csi_rpcs_total{service=\"" service "\",method=\"" method "\",code=\"" code "\"}"
#define DURATION(suffix, extra)                                                               \
	"union_csi_rpc_duration_seconds_" suffix "{service=\"csi.v1.Node\",method=\"Stage\"," \
	"code=\"OK\"" extra "}"

/* -------------------------------------------- the exposition format, version 0.0.4 */

static bool is_name(const char *s, size_t n)
{
	if (!n || isdigit((unsigned char)*s))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && s[i] != '_' && s[i] != ':')
			return false;
	return true;
}

/* Checks `{a="x",b="y"}`; returns what is behind it, or NULL. */
static const char *check_labels(const char *s)
{
	if (*s++ != '{')
		return NULL;
	for (;;) {
		size_t n = strcspn(s, "=}");

		if (!is_name(s, n) || s[n] != '=' || s[n + 1] != '"')
			return NULL;
		s += n + 2;
		for (; *s != '"'; s++) {
			if (*s == '\n' || !*s)
				return NULL;
			if (*s == '\\' && (!*++s || !strchr("\\\"n", *s)))
				return NULL;
		}
		s++;
		if (*s == '}')
			return s + 1;
		if (*s++ != ',')
			return NULL;
	}
}

struct family {
	char name[80], type[16];
	unsigned helps, types, samples;
	bool ended; /* another one has begun since */
};

struct exposition {
	struct family families[32];
	size_t n;
	char series[1024][256];
	size_t n_series;
};

/* The family of a sample's name: of a histogram without its suffix. */
static struct family *family_of(struct exposition *e, const char *name, size_t n, bool sample)
{
	static const char *const suffixes[] = { "_bucket", "_sum", "_count" };
	struct family *f;

	for (size_t i = 0; i < e->n; i++) {
		size_t len = strlen(e->families[i].name);

		if (len == n && strncmp(e->families[i].name, name, n) == 0)
			return &e->families[i];
		for (size_t k = 0; sample && k < ARRAY_SIZE(suffixes); k++)
			if (strcmp(e->families[i].type, "histogram") == 0 &&
			    strncmp(e->families[i].name, name, len) == 0 &&
			    n == len + strlen(suffixes[k]) &&
			    strncmp(name + len, suffixes[k], strlen(suffixes[k])) == 0)
				return &e->families[i];
	}
	assert_true(e->n < ARRAY_SIZE(e->families));
	for (size_t i = 0; i < e->n; i++)
		e->families[i].ended = true;
	f = &e->families[e->n++];
	snprintf(f->name, sizeof(f->name), "%.*s", (int)n, name);
	return f;
}

static void check_comment(struct exposition *e, const char *line)
{
	bool help = uc_str_has_prefix(line, "# HELP "), type = uc_str_has_prefix(line, "# TYPE ");
	const char *name = line + strlen("# HELP ");
	size_t n = strcspn(name, " \n");
	struct family *f;

	assert_true(help || type);
	assert_true(is_name(name, n));
	assert_int_equal(name[n], ' ');
	f = family_of(e, name, n, false);
	assert_false(f->ended);
	assert_int_equal(f->samples, 0);
	if (help) {
		f->helps++;
		return;
	}
	f->types++;
	snprintf(f->type, sizeof(f->type), "%.*s", (int)strcspn(name + n + 1, "\n"), name + n + 1);
	assert_true(uc_strv_has(STRV("counter", "gauge", "histogram"), f->type));
	if (strcmp(f->type, "counter") == 0)
		assert_true(uc_str_has_suffix(f->name, "_total"));
}

static void check_sample(struct exposition *e, const char *line)
{
	size_t n = strcspn(line, "{ ");
	const char *rest = line + n;
	struct family *f;
	char *end;

	assert_true(is_name(line, n));
	f = family_of(e, line, n, true);
	assert_int_equal(f->helps, 1);
	assert_int_equal(f->types, 1);
	assert_false(f->ended);
	f->samples++;
	if (*rest == '{')
		rest = check_labels(rest);
	assert_non_null(rest);
	assert_int_equal(*rest, ' ');
	assert_true(e->n_series < ARRAY_SIZE(e->series));
	snprintf(e->series[e->n_series], sizeof(e->series[0]), "%.*s", (int)(rest - line), line);
	for (size_t i = 0; i < e->n_series; i++)
		assert_string_not_equal(e->series[i], e->series[e->n_series]);
	e->n_series++;
	assert_true(isdigit((unsigned char)rest[1]));
	(void)strtod(rest + 1, &end);
	assert_int_equal(*end, '\n');
}

static void check_format(const char *s)
{
	static struct exposition e;

	memset(&e, 0, sizeof(e));
	assert_true(*s);
	while (*s) {
		const char *newline = strchr(s, '\n');

		assert_non_null(newline); /* the last line ends, too */
		assert_true(newline > s);
		if (*s == '#')
			check_comment(&e, s);
		else
			check_sample(&e, s);
		s = newline + 1;
	}
	for (size_t i = 0; i < e.n; i++)
		assert_int_equal(e.families[i].types, 1);
}

static void the_text_is_of_the_format(void **state)
{
	(void)state;
	check_format(format());
	for (int status = 0; status < UC_GRPC_STATUS_COUNT; status++)
		for (uint64_t usec = 1; usec < 1000000000; usec *= 7) {
			csi_metrics_rpc(metrics, "csi.v1.Node", "Stage", status, usec);
			csi_metrics_rpc(metrics, "csi.v1.Controller", "Create", status, usec);
		}
	csi_metrics_rpc(metrics, "", "", UC_GRPC_UNIMPLEMENTED,
			1); /* of a method that is not known */
	check_format(format());
}

/* ------------------------------------------------------------------------- calls */

static void calls_are_counted_by_method_and_status(void **state)
{
	(void)state;
	csi_metrics_rpc(metrics, "csi.v1.Node", "Stage", UC_GRPC_OK, 1);
	csi_metrics_rpc(metrics, "csi.v1.Node", "Stage", UC_GRPC_OK, 1);
	csi_metrics_rpc(metrics, "csi.v1.Node", "Stage", UC_GRPC_ABORTED, 1);
	csi_metrics_rpc(metrics, "csi.v1.Node", "Unstage", UC_GRPC_OK, 1);
	csi_metrics_rpc(metrics, "csi.v1.Identity", "Stage", UC_GRPC_OK, 1);
	assert_string_equal(value(RPCS("csi.v1.Node", "Stage", "OK")), "2");
	assert_string_equal(value(RPCS("csi.v1.Node", "Stage", "ABORTED")), "1");
	assert_string_equal(value(RPCS("csi.v1.Node", "Unstage", "OK")), "1");
	assert_string_equal(value(RPCS("csi.v1.Identity", "Stage", "OK")), "1");
}

static void durations_fall_into_cumulative_buckets(void **state)
{
	static const struct {
		const char *series, *value;
	} rows[] = {
		{ DURATION("bucket", ",le=\"0.001\""), "2" },
		{ DURATION("bucket", ",le=\"0.005\""), "4" },
		{ DURATION("bucket", ",le=\"0.01\""), "4" },
		{ DURATION("bucket", ",le=\"0.025\""), "4" },
		{ DURATION("bucket", ",le=\"0.05\""), "4" },
		{ DURATION("bucket", ",le=\"0.1\""), "4" },
		{ DURATION("bucket", ",le=\"0.25\""), "4" },
		{ DURATION("bucket", ",le=\"0.5\""), "4" },
		{ DURATION("bucket", ",le=\"1\""), "5" },
		{ DURATION("bucket", ",le=\"5\""), "5" },
		{ DURATION("bucket", ",le=\"30\""), "5" },
		{ DURATION("bucket", ",le=\"120\""), "6" },
		{ DURATION("bucket", ",le=\"+Inf\""), "7" },
		{ DURATION("count", ""), "7" },
	};
	static const uint64_t usecs[] = { 1, 1000, 1001, 5000, 1000000, 120000000, 120000001 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(usecs); i++)
		csi_metrics_rpc(metrics, "csi.v1.Node", "Stage", UC_GRPC_OK, usecs[i]);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(value(rows[i].series), rows[i].value);
}

static void the_sum_of_durations_keeps_its_microseconds(void **state)
{
	(void)state;
	csi_metrics_rpc(metrics, "csi.v1.Node", "Stage", UC_GRPC_OK, UINT64_C(123456789000001));
	assert_string_equal(value(DURATION("sum", "")), "123456789.000001");
	csi_metrics_rpc(metrics, "csi.v1.Node", "Stage", UC_GRPC_OK, 2);
	assert_string_equal(value(DURATION("sum", "")), "123456789.000003");
}

/* ------------------------------------------------------------------------ gauges */

static void volumes_and_operations_are_gauges(void **state)
{
	(void)state;
	assert_string_equal(value("union_csi_volumes{state=\"creating\"}"), "1");
	assert_string_equal(value("union_csi_volumes{state=\"ready\"}"), "22");
	assert_string_equal(value("union_csi_volumes{state=\"deleting\"}"), "3");
	assert_string_equal(value("union_csi_staged_volumes"), "14");
	assert_string_equal(value("union_csi_published_targets"), "15");
	assert_string_equal(value("union_csi_operations"), "7");
}

static void the_process_describes_itself(void **state)
{
	double rss = strtod(value("process_resident_memory_bytes"), NULL);
	double fds = strtod(value("process_open_fds"), NULL);
	double started = strtod(value("process_start_time_seconds"), NULL);
	int more[10];

	(void)state;
	assert_true(rss > 100000 && rss < 1e10);
	assert_true(fds >= 3 && fds < 1000);
	assert_true(started > 1.7e9 && started < 1e10);
	for (size_t i = 0; i < ARRAY_SIZE(more); i++)
		more[i] = dup(STDIN_FILENO);
	assert_true(strtod(value("process_open_fds"), NULL) == fds + 10);
	for (size_t i = 0; i < ARRAY_SIZE(more); i++)
		close(more[i]);
	value("process_cpu_seconds_total");
	assert_non_null(strstr(format(), "\nunion_csi_build_info{version=\""));
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(the_text_is_of_the_format),
		T(calls_are_counted_by_method_and_status),
		T(durations_fall_into_cumulative_buckets),
		T(the_sum_of_durations_keeps_its_microseconds),
		T(volumes_and_operations_are_gauges),
		T(the_process_describes_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
