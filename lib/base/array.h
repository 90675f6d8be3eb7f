/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** ARRAY_SIZE() - Number of elements of an array (not of a pointer) */
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
