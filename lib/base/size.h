/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sizes as people and Kubernetes write them. */

#include <stdint.h>

#include "lib/base/err.h"

#define UC_KIB (UINT64_C(1) << 10)
#define UC_MIB (UINT64_C(1) << 20)
#define UC_GIB (UINT64_C(1) << 30)

enum {
	UC_SIZE_TEXT_MAX = 24, /* longest result of uc_size_format(), with the NUL */
};

/**
 * uc_size_parse() - Read a size in bytes
 * @s:		"1073741824", "1Gi", "1GiB", "1.6GiB", "64Ki", "2G", "2GB"
 * @ret_bytes:	Result, rounded up to a whole byte; untouched on failure
 * @err:	Error detail, or NULL
 *
 * Ki Mi Gi Ti Pi are powers of 1024; k (or K) M G T P powers of 1000; a "B" behind either changes
 * nothing.
 *
 * Return: 0, -EINVAL (not a size) or -ERANGE (more than INT64_MAX bytes)
 */
int uc_size_parse(const char *s, uint64_t *ret_bytes, struct uc_err *err);

/**
 * uc_size_format() - Write a size for a person: "1.60 GiB", "512 B"
 * @bytes:	Size
 * @to:		Result
 *
 * Return: @to
 */
const char *uc_size_format(uint64_t bytes, char to[static UC_SIZE_TEXT_MAX]);

/** uc_round_up() - Smallest multiple of @unit (≥ 1) that is not less than @v; UINT64_MAX if there
 * is none */
uint64_t uc_round_up(uint64_t v, uint64_t unit);
