/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether two messages say the same, whatever their bytes. */

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

#include "lib/base/sha256.h"

/**
 * uc_pbdigest() - Hash what a message says
 * @msg:	Message (borrowed); the entries of its maps are put in the order of their keys
 * @digest:	Result
 *
 * Clients may write a map in any order, and those in Go write it in another one each time.
 * The nesting must have been limited: uc_pbcheck().
 *
 * Return: 0 or -ENOMEM
 */
int uc_pbdigest(ProtobufCMessage *msg, uint8_t digest[static UC_SHA256_SIZE]);
