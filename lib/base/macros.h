/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/** ARRAY_SIZE() - Number of elements of an array (not of a pointer) */
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/** uc_container_of() - The struct of type @type whose member @member @ptr points to */
#define uc_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
