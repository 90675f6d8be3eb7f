/* SPDX-License-Identifier: Apache-2.0 */

/* CSI's Identity service. */

#include "csi/driver.h"
#include "csi/status.h"
#include "lib/base/macros.h"
#include "lib/base/version.h"

static int get_plugin_info(struct uc_call *call, const void *req, void *resp)
{
	const struct csi_driver *d = uc_call_data(call);
	Csi__V1__GetPluginInfoResponse *out = resp;
	Csi__V1__GetPluginInfoResponse__ManifestEntry *entry;

	(void)req;
	entry = uc_call_alloc(call, sizeof(*entry));
	out->manifest = uc_call_alloc(call, sizeof(*out->manifest));
	if (!entry || !out->manifest)
		return uc_call_fail(call, UC_GRPC_UNAVAILABLE, "no memory");
	/* Where `union-csi volume mount` has a volume staged. */
	csi__v1__get_plugin_info_response__manifest_entry__init(entry);
	entry->key = uc_call_strdup(call, "staging-dir");
	entry->value = uc_call_strdup(call, d->staging_dir);
	out->name = uc_call_strdup(call, d->name);
	out->vendor_version = uc_call_strdup(call, uc_version);
	if (!entry->key || !entry->value || !out->name || !out->vendor_version)
		return uc_call_fail(call, UC_GRPC_UNAVAILABLE, "no memory");
	out->manifest[0] = entry;
	out->n_manifest = 1;
	return 0;
}

static int get_plugin_capabilities(struct uc_call *call, const void *req, void *resp)
{
	/* The same from every instance of the plugin, whatever services it has. */
	static const int types[] = {
		CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__CONTROLLER_SERVICE,
		CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__VOLUME_ACCESSIBILITY_CONSTRAINTS,
	};
	Csi__V1__GetPluginCapabilitiesResponse *out = resp;
	struct item {
		Csi__V1__PluginCapability capability;
		Csi__V1__PluginCapability__Service service;
	} * items;

	(void)req;
	items = uc_call_alloc(call, ARRAY_SIZE(types) * sizeof(*items));
	out->capabilities = uc_call_alloc(call, ARRAY_SIZE(types) * sizeof(*out->capabilities));
	if (!items || !out->capabilities)
		return uc_call_fail(call, UC_GRPC_UNAVAILABLE, "no memory");
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		csi__v1__plugin_capability__init(&items[i].capability);
		csi__v1__plugin_capability__service__init(&items[i].service);
		items[i].service.type = types[i];
		items[i].capability.type_case = CSI__V1__PLUGIN_CAPABILITY__TYPE_SERVICE;
		items[i].capability.service = &items[i].service;
		out->capabilities[i] = &items[i].capability;
	}
	out->n_capabilities = ARRAY_SIZE(types);
	return 0;
}

static int probe(struct uc_call *call, const void *req, void *resp)
{
	struct csi_driver *d = uc_call_data(call);
	Csi__V1__ProbeResponse *out = resp;

	(void)req;
	out->ready = uc_call_alloc(call, sizeof(*out->ready));
	if (!out->ready)
		return uc_call_fail(call, UC_GRPC_UNAVAILABLE, "no memory");
	google__protobuf__bool_value__init(out->ready);
	out->ready->value = csi_readiness_get(&d->readiness);
	return 0;
}

const struct uc_rpc_method csi_identity_methods[] = {
	{ "GetPluginInfo", get_plugin_info, NULL },
	{ "GetPluginCapabilities", get_plugin_capabilities, NULL },
	{ "Probe", probe, NULL },
};
const size_t csi_n_identity_methods = ARRAY_SIZE(csi_identity_methods);
