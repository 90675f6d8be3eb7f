/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "csi/driver.h"

/**
 * csi_reconcile() - Bring what a crash or a reboot has left into a clean state
 * @d:		The driver
 *
 * Volume by volume, each under its lock: requests need not wait for it, and one that comes
 * first does the same for its volume.  Reports what it repaired, and what it found and left
 * alone, in the log.
 */
void csi_reconcile(struct csi_driver *d);
