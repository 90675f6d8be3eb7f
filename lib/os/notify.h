/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * uc_notify() - Tell the service manager about this process' state
 * @state:	e.g. "READY=1"
 *
 * Does nothing unless $NOTIFY_SOCKET is set.  Source: systemd, sd_notify(3), the protocol.
 *
 * Return: 0 or a negative errno
 */
int uc_notify(const char *state);
