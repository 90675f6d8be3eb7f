/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "csi/registration.h"
#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "pluginregistration.pb-c.h"

struct csi_registration {
	const char *driver_name, *endpoint;
	struct uc_rpc_service service;
	struct uc_loop *loop;
	struct uc_post refusal;
	atomic_bool done, is_refused;
	void (*refused)(void *data);
	void *data;
};

static int get_info(struct uc_call *call, const void *req, void *resp)
{
	const struct csi_registration *r = uc_call_data(call);
	Pluginregistration__PluginInfo *out = resp;

	(void)req;
	out->type = uc_call_strdup(call, "CSIPlugin");
	out->name = uc_call_strdup(call, r->driver_name);
	out->endpoint = uc_call_strdup(call, r->endpoint);
	out->supported_versions = uc_call_alloc(call, sizeof(*out->supported_versions));
	if (!out->type || !out->name || !out->endpoint || !out->supported_versions)
		return uc_call_fail(call, UC_GRPC_UNAVAILABLE, "no memory");
	out->supported_versions[0] = uc_call_strdup(call, "1.0.0");
	if (!out->supported_versions[0])
		return uc_call_fail(call, UC_GRPC_UNAVAILABLE, "no memory");
	out->n_supported_versions = 1;
	return 0;
}

static void refusal(struct uc_post *p)
{
	struct csi_registration *r = uc_container_of(p, struct csi_registration, refusal);

	r->refused(r->data);
}

static int notify_status(struct uc_call *call, const void *req, void *resp)
{
	const Pluginregistration__RegistrationStatus *q = req;
	struct csi_registration *r = uc_call_data(call);

	(void)resp;
	atomic_store(&r->done, q->plugin_registered);
	if (q->plugin_registered) {
		log_info("kubelet has registered the plugin");
		return 0;
	}
	log_err("kubelet refuses the plugin: %s", UC_PRINTABLE(q->error));
	if (!atomic_exchange(&r->is_refused, true))
		uc_loop_post(r->loop, &r->refusal);
	return 0;
}

static const struct uc_rpc_method methods[] = {
	{ "GetInfo", get_info, NULL },
	{ "NotifyRegistrationStatus", notify_status, NULL },
};

int csi_registration_new(struct uc_server *server, struct uc_loop *loop, const char *dir,
			 const char *driver_name, const char *endpoint, void (*refused)(void *data),
			 void *data, struct csi_registration **ret, struct uc_err *err)
{
	struct csi_registration *r = calloc(1, sizeof(*r));
	cleanup_free char *path = NULL;
	int k;

	if (!r || asprintf(&path, "%s/%s-reg.sock", dir, driver_name) < 0) {
		free(r);
		return uc_fail(err, ENOMEM, "serve kubelet's registration");
	}
	r->driver_name = driver_name;
	r->endpoint = endpoint;
	r->loop = loop;
	r->refusal.fn = refusal;
	r->refused = refused;
	r->data = data;
	r->service = (struct uc_rpc_service){
		.desc = &pluginregistration__registration__descriptor,
		.methods = methods,
		.n_methods = ARRAY_SIZE(methods),
		.data = r,
	};
	k = uc_server_listen_unix(server, path, &r->service, 1, err);
	if (k < 0) {
		free(r);
		return uc_wrap(err, k, "serve kubelet's registration");
	}
	*ret = r;
	return 0;
}

void csi_registration_free(struct csi_registration *r)
{
	free(r);
}

bool csi_registration_is_done(const struct csi_registration *r)
{
	return atomic_load(&r->done);
}
