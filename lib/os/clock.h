/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/** uc_now_ms() - CLOCK_MONOTONIC in milliseconds */
uint64_t uc_now_ms(void);

/** uc_sleep_ms() - Sleep, for waiting on what cannot be waited for (a device that the kernel lets
 * go of later) */
void uc_sleep_ms(uint64_t ms);
