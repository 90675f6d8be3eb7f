/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* SHA-256 (FIPS 180-4), for names that are derived from other names.  None of
 * the project's libraries offers a hash, and a cryptographic library would cost
 * the node process more memory than all the rest of it. */

#include <stddef.h>
#include <stdint.h>

enum {
	UC_SHA256_SIZE = 32,                         /* bytes */
	UC_SHA256_HEX_SIZE = 2 * UC_SHA256_SIZE + 1, /* with the NUL */
};

/**
 * uc_sha256() - Hash @n bytes
 * @p:	Data (borrowed)
 * @n:	How many bytes
 * @out:	Result
 */
void uc_sha256(const void *p, size_t n, uint8_t out[static UC_SHA256_SIZE]);

/** uc_sha256_hex() - uc_sha256() in lower-case hexadecimal digits, with a NUL */
void uc_sha256_hex(const void *p, size_t n, char out[static UC_SHA256_HEX_SIZE]);
