/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The parameters of a StorageClass (or of `union-csi volume create --param`), and their defaults.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/vol/spec.h"

/** struct uc_param - one key and its value, borrowed */
struct uc_param {
	const char *key, *value;
};

/** struct uc_params - what a volume is asked to be like */
struct uc_params {
	uint64_t branches;        /* `branches`: at least so many; default 2 */
	uint64_t max_branch_size; /* `maxBranchSize`, bytes; 0: no limit */
	enum uc_policy policy;    /* `policy`: default mfs */
	uint64_t min_free_space;  /* `minFreeSpace`, bytes; default 0 */
};

/**
 * uc_params_parse() - Read parameters
 * @list:	Keys and values (borrowed); of a key that comes twice the last one counts
 * @n:		How many
 * @ret_params:	Result; untouched on failure
 * @err:	Error detail that names the key and the value, or NULL
 *
 * The provisioner's own keys (csi.storage.k8s.io/pvc/name, …/pvc/namespace, …/pv/name) are accepted
 * and mean nothing; `layout` may be "union" and `directAssign` "never", what they are anyway.
 *
 * Return: 0 or -EINVAL
 */
int uc_params_parse(const struct uc_param *list, size_t n, struct uc_params *ret_params,
		    struct uc_err *err);

/**
 * uc_params_match() - Whether a volume is what parameters ask for
 * @list, @n:	As for uc_params_parse(); a key that is not there asks for nothing
 * @have:	What the volume was made with
 * @err:	Error detail that names the key and the value, or NULL
 *
 * Return: 0 or -EINVAL
 */
int uc_params_match(const struct uc_param *list, size_t n, const struct uc_params *have,
		    struct uc_err *err);

/** uc_params_equal() - Whether two volumes are made alike */
bool uc_params_equal(const struct uc_params *a, const struct uc_params *b);
