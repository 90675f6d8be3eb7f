/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an operator's monitoring sees: Prometheus text (exposition format 0.0.4). */

#include <stdint.h>

#include "lib/base/buf.h"

struct csi_metrics;

/** csi_metrics_new() - Make an empty set; 0 or -ENOMEM */
int csi_metrics_new(struct csi_metrics **ret_metrics);

/** csi_metrics_free() - Release; NULL is allowed */
void csi_metrics_free(struct csi_metrics *m);

/**
 * csi_metrics_rpc() - Count a call; on the loop's thread
 * @service:	"csi.v1.Node"
 * @method:	"NodeStageVolume"; both are constants of the descriptors
 * @status:	enum uc_grpc_status
 * @usec:	How long it took
 */
void csi_metrics_rpc(struct csi_metrics *m, const char *service, const char *method, int status,
		     uint64_t usec);

/** csi_metrics_format() - Write everything; on the loop's thread */
void csi_metrics_format(const struct csi_metrics *m, unsigned busy, struct uc_buf *to);
