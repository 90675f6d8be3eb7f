/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>

#include "tests/lib/call.h"

#include "csi/driver.h"
#include "csi/registration.h"
#include "csi/status.h"
#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/version.h"
#include "pluginregistration.pb-c.h"

static int listen_result;
static char listen_path[256];
static const struct uc_rpc_service *listened; /* the registration's service */

int __wrap_uc_server_listen_unix(struct uc_server *server, const char *path,
				 const struct uc_rpc_service *services, size_t n_services,
				 struct uc_err *err);
int __wrap_uc_server_listen_unix(struct uc_server *server, const char *path,
				 const struct uc_rpc_service *services, size_t n_services,
				 struct uc_err *err)
{
	(void)server;
	assert_int_equal(n_services, 1);
	snprintf(listen_path, sizeof(listen_path), "%s", path);
	listened = services;
	return listen_result < 0 ? uc_fail(err, -listen_result, "listen") : 0;
}

static uint64_t skipped_ms; /* of time that passes without being waited for */

uint64_t __real_uc_now_ms(void);
uint64_t __wrap_uc_now_ms(void);
uint64_t __wrap_uc_now_ms(void)
{
	return __real_uc_now_ms() + skipped_ms;
}

static struct csi_driver driver = {
	.name = "csi.example",
	.staging_dir = "/run/staging",
};
static struct uc_call call;
static size_t memory_left = SIZE_MAX;

static int run(const struct uc_rpc_method *methods, size_t n, void *data, const char *name,
	       const void *req, void *resp)
{
	return fake_call_run(&call, find_method(methods, n, name), data, memory_left, req, resp);
}

static int ask(const char *name, void *resp)
{
	return run(csi_identity_methods, csi_n_identity_methods, &driver, name, NULL, resp);
}

static int set_up(void **state)
{
	(void)state;
	uc_log_init(UC_LOG_ERR, UC_LOG_TEXT);
	memory_left = SIZE_MAX;
	listen_result = 0;
	csi_readiness_init(&driver.readiness);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fake_call_done(&call);
	csi_readiness_done(&driver.readiness);
	return 0;
}

/* ------------------------------------------------------------------------------ identity */

static void a_plugin_says_who_it_is(void **state)
{
	Csi__V1__GetPluginInfoResponse out;

	(void)state;
	csi__v1__get_plugin_info_response__init(&out);
	assert_int_equal(ask("GetPluginInfo", &out), UC_GRPC_OK);
	assert_string_equal(out.name, "csi.example");
	assert_string_equal(out.vendor_version, uc_version);
	assert_int_equal(out.n_manifest, 1);
	assert_string_equal(out.manifest[0]->key, "staging-dir");
	assert_string_equal(out.manifest[0]->value, "/run/staging");
}

static void a_plugin_says_what_it_has(void **state)
{
	Csi__V1__GetPluginCapabilitiesResponse out;

	(void)state;
	csi__v1__get_plugin_capabilities_response__init(&out);
	assert_int_equal(ask("GetPluginCapabilities", &out), UC_GRPC_OK);
	assert_int_equal(out.n_capabilities, 2);
	assert_int_equal(out.capabilities[0]->service->type,
			 CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__CONTROLLER_SERVICE);
}

/* 1 or 0; the call itself never fails for it. */
static int probe(void)
{
	Csi__V1__ProbeResponse out;

	csi__v1__probe_response__init(&out);
	assert_int_equal(ask("Probe", &out), UC_GRPC_OK);
	return out.ready->value;
}

static void a_probe_tells_what_the_last_look_found(void **state)
{
	(void)state;
	assert_int_equal(probe(), 0); /* nobody has looked yet */
	csi_readiness_note(&driver.readiness, true);
	assert_int_equal(probe(), 1);
	csi_readiness_note(&driver.readiness, false);
	assert_int_equal(probe(), 0);
}

static void a_look_that_was_long_ago_is_not_trusted(void **state)
{
	(void)state;
	csi_readiness_note(&driver.readiness, true);
	skipped_ms += 20000;
	assert_int_equal(probe(), 1);
	skipped_ms += 20000; /* whoever looks hangs */
	assert_int_equal(probe(), 0);
	csi_readiness_note(&driver.readiness, true);
	assert_int_equal(probe(), 1);
}

static void a_probe_asks_for_a_look_but_not_for_one_each(void **state)
{
	(void)state;
	csi_readiness_note(&driver.readiness, true);
	probe();
	skipped_ms += 1000;
	assert_true(csi_readiness_wait(&driver.readiness)); /* at once */
	csi_readiness_note(&driver.readiness, true);
	skipped_ms += 10000;
	assert_true(csi_readiness_wait(&driver.readiness)); /* without being asked */
	csi_readiness_stop(&driver.readiness);
	assert_false(csi_readiness_wait(&driver.readiness));
}

/* ---------------------------------------------------------------------------- registration */

static unsigned refusals;

static void refused(void *data)
{
	assert_ptr_equal(data, &refusals);
	refusals++;
}

static struct csi_registration *begin_registration(struct uc_loop *loop)
{
	struct csi_registration *r = NULL;
	struct uc_err err = { 0 };

	refusals = 0;
	assert_int_equal(csi_registration_new(NULL, loop, "/reg", "csi.example", "/run/csi.sock",
					      refused, &refusals, &r, &err),
			 0);
	return r;
}

static int notify(bool registered, const char *error)
{
	Pluginregistration__RegistrationStatus q;
	Pluginregistration__RegistrationStatusResponse out;

	pluginregistration__registration_status__init(&q);
	pluginregistration__registration_status_response__init(&out);
	q.plugin_registered = registered;
	q.error = (char *)(uintptr_t)error;
	return run(listened->methods, listened->n_methods, listened->data,
		   "NotifyRegistrationStatus", &q, &out);
}

static void kubelet_is_told_where_the_plugin_is(void **state)
{
	struct csi_registration *r = begin_registration(NULL);
	Pluginregistration__PluginInfo out;

	(void)state;
	assert_string_equal(listen_path, "/reg/csi.example-reg.sock");
	pluginregistration__plugin_info__init(&out);
	assert_int_equal(
		run(listened->methods, listened->n_methods, listened->data, "GetInfo", NULL, &out),
		UC_GRPC_OK);
	assert_string_equal(out.type, "CSIPlugin");
	assert_string_equal(out.name, "csi.example");
	assert_string_equal(out.endpoint, "/run/csi.sock");
	assert_int_equal(out.n_supported_versions, 1);
	assert_string_equal(out.supported_versions[0], "1.0.0");
	csi_registration_free(r);
}

static void kubelet_registers_the_plugin(void **state)
{
	struct csi_registration *r = begin_registration(NULL);

	(void)state;
	assert_false(csi_registration_is_done(r));
	assert_int_equal(notify(true, ""), UC_GRPC_OK);
	assert_true(csi_registration_is_done(r));
	assert_int_equal(refusals, 0);
	csi_registration_free(r);
}

static void end_round(struct uc_timer *t)
{
	uc_loop_stop(*(struct uc_loop **)(t + 1));
}

static void a_refusal_is_told_once_on_the_loop(void **state)
{
	struct {
		struct uc_timer timer;
		struct uc_loop *loop;
	} end = { .timer.fn = end_round };
	struct csi_registration *r;

	(void)state;
	assert_int_equal(uc_loop_new(&end.loop), 0);
	r = begin_registration(end.loop);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(notify(false, "no such driver"), UC_GRPC_OK);
		assert_false(csi_registration_is_done(r));
		assert_int_equal(refusals, i > 0); /* not from the call itself */
		uc_loop_set_timer(end.loop, &end.timer, uc_loop_now_ms(end.loop) + 1);
		assert_int_equal(uc_loop_run(end.loop), 0);
		assert_int_equal(refusals, 1);
	}
	csi_registration_free(r);
	uc_loop_free(end.loop);
}

static void a_registration_that_cannot_be_served_is_an_error(void **state)
{
	struct csi_registration *r = NULL;
	struct uc_err err = { 0 };

	(void)state;
	listen_result = -EADDRINUSE;
	assert_int_equal(
		csi_registration_new(NULL, NULL, "/reg", "d", "/e", refused, NULL, &r, &err),
		-EADDRINUSE);
	assert_non_null(strstr(err.msg, "kubelet's registration"));
	assert_null(r);
	csi_registration_free(NULL);
}

/* Every allocation fails in turn. */
static void a_lack_of_memory_is_told(void **state)
{
	static const char *const names[] = { "GetPluginInfo", "GetPluginCapabilities", "Probe",
					     "GetInfo" };
	struct csi_registration *r = begin_registration(NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t k;

		for (k = 0; k < 20; k++) {
			union {
				Csi__V1__GetPluginInfoResponse info;
				Csi__V1__GetPluginCapabilitiesResponse capabilities;
				Csi__V1__ProbeResponse probe;
				Pluginregistration__PluginInfo registration;
			} out;
			int status;

			memset(&out, 0, sizeof(out));
			memory_left = k;
			status = i < 3 ? ask(names[i], &out)
				       : run(listened->methods, listened->n_methods, listened->data,
					     names[i], NULL, &out);
			if (status == UC_GRPC_OK)
				break;
			assert_int_equal(status, UC_GRPC_UNAVAILABLE);
		}
		assert_in_range(k, 1, 10);
	}
	csi_registration_free(r);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_plugin_says_who_it_is),
		T(a_plugin_says_what_it_has),
		T(a_probe_tells_what_the_last_look_found),
		T(a_look_that_was_long_ago_is_not_trusted),
		T(a_probe_asks_for_a_look_but_not_for_one_each),
		T(kubelet_is_told_where_the_plugin_is),
		T(kubelet_registers_the_plugin),
		T(a_refusal_is_told_once_on_the_loop),
		T(a_registration_that_cannot_be_served_is_an_error),
		T(a_lack_of_memory_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
