/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Names and ids of volumes.
 *
 * A name is what the CO suggests: up to 128 bytes of nearly anything.  An id is
 * what we make of it: fit for a file's name, a label and a log line.  A name
 * that is fit itself is its own id; every other one is hashed.
 */

#include <stdbool.h>

#include "lib/base/err.h"

enum {
	UC_VOLUME_NAME_MAX = 128, /* bytes; CSI 1.13, CreateVolumeRequest.name and volume_id */
	UC_VOLUME_ID_MAX = 63,
	UC_VOLUME_ID_SIZE = UC_VOLUME_ID_MAX + 1,
};

/**
 * uc_volume_name_check() - Whether a CO may call a volume so
 * @name:	Valid UTF-8 (borrowed)
 * @err:	Error detail, or NULL
 *
 * CSI 1.13: no control characters (U+0000–U+0008, U+000B, U+000C, U+000E–U+001F, U+007F–U+009F); we
 * refuse tab, newline and carriage return as well.
 *
 * Return: 0 or -EINVAL
 */
int uc_volume_name_check(const char *name, struct uc_err *err);

/**
 * uc_volume_id_from_name() - The id of the volume of that name
 * @name:	A name that uc_volume_name_check() accepts
 * @ret_id:	The name itself if it is at most 63 of A–Z a–z 0–9 - _ . , begins and ends with a
 *letter or a digit and does not look like a hashed one; else "h-" and 40 digits of its SHA-256
 */
void uc_volume_id_from_name(const char *name, char ret_id[static UC_VOLUME_ID_SIZE]);

/** uc_volume_id_is_valid() - Whether uc_volume_id_from_name() can have made @id; nothing else
 * becomes part of a path */
bool uc_volume_id_is_valid(const char *id);

/**
 * uc_volume_id_check() - Whether a request may carry this as a volume's id
 * @id:		Valid UTF-8 (borrowed)
 * @err:	Error detail, or NULL
 *
 * Ids that we never made (another driver's, say) are fine here: they name volumes that do not
 * exist.
 *
 * Return: 0, or -EINVAL for an empty or over-long one and for control characters
 */
int uc_volume_id_check(const char *id, struct uc_err *err);
