/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* UUIDs (RFC 9562) as text: how filesystems, pools and branches are told apart. */

#include <stdbool.h>

enum {
	UC_UUID_TEXT_SIZE = 37, /* 8-4-4-4-12 digits, and the NUL */
};

/**
 * uc_uuid_random() - Make a random (version 4) UUID, in lower case
 * Return: 0, or a negative errno where the kernel gives no random bytes
 */
int uc_uuid_random(char to[static UC_UUID_TEXT_SIZE]);

/** uc_uuid_is_valid() - Whether @s is a UUID in lower-case text */
bool uc_uuid_is_valid(const char *s);
