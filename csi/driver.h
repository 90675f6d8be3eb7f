/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the three services share, and how a handler ends. */

#include <stdatomic.h>
#include <stdbool.h>

#include "csi.pb-c.h"
#include "csi/backend.h"
#include "csi/node.h"
#include "csi/op.h"
#include "csi/readiness.h"
#include "lib/rpc/server.h"

/** struct csi_driver - one driver process */
struct csi_driver {
	const char *name; /* as GetPluginInfo gives it */
	const char *node_id;
	char topology_key[128];  /* segment of a volume that is on one node */
	const char *staging_dir; /* a directory that is always allowed for staging; for our own
				    command line */
	struct csi_backend *backend;
	struct csi_readiness readiness; /* of the backend */
	struct csi_node node;
	bool has_controller, has_node;
};

/** csi_identity_service, csi_controller_service, csi_node_service - tables; data is struct
 * csi_driver */
extern const struct uc_rpc_method csi_identity_methods[], csi_controller_methods[],
	csi_node_methods[];
extern const size_t csi_n_identity_methods, csi_n_controller_methods, csi_n_node_methods;

/**
 * csi_end() - End a handler
 * @call:	The call
 * @op:		Its operation, for the log
 * @r:		What came of it
 * @err:	Its error, where @r is negative
 *
 * Return: what the handler returns
 */
int csi_end(struct uc_call *call, const struct csi_op *op, int r, const struct uc_err *err);

/** csi_check_id() - A request's volume_id; 0 or INVALID_ARGUMENT */
int csi_check_id(const char *id, struct uc_err *err);

/** csi_check_node_id() - A request's node_id, if it has one; 0 or INVALID_ARGUMENT */
int csi_check_node_id(const char *id, struct uc_err *err);

/**
 * csi_check_map() - A map of a request: at most 4 KiB in all, as the specification limits it
 * @entries:	Csi…Entry pointers; all map entries of protobuf-c have the same layout
 */
int csi_check_map(const char *field, const struct uc_param *list, size_t n, struct uc_err *err);

/** CSI_MAP() - The entries of a map field of @msg as an array of struct uc_param in the call's
 * memory; NULL: no memory */
#define CSI_MAP(call, msg, field)                                                       \
	({                                                                              \
		struct uc_param *list_ =                                                \
			uc_call_alloc((call), ((msg)->n_##field + 1) * sizeof(*list_)); \
		for (size_t i_ = 0; list_ && i_ < (msg)->n_##field; i_++)               \
			list_[i_] = (struct uc_param){ (msg)->field[i_]->key,           \
						       (msg)->field[i_]->value };       \
		list_;                                                                  \
	})
