/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "csi/options.h"

/**
 * csi_daemon_run() - Serve until a signal ends it
 * @options:	Checked (borrowed)
 *
 * Return: the process' exit status
 */
int csi_daemon_run(const struct csi_options *options);
