/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** uc_version - What this build is: `git describe` of its tree */
extern const char uc_version[];
