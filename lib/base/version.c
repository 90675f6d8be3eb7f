/* SPDX-License-Identifier: Apache-2.0 */

#include "lib/base/version.h"

const char uc_version[] = UC_VERSION;
