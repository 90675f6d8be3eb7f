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

/**
 * enum uc_layout - how branches become one volume
 *
 *    UNION - each is a filesystem, and a file lies whole on one of them
 *    LINEAR - one device, the branches one behind the other
 *    STRIPED - one device, a stripe of each branch in turn
 */
enum uc_layout {
	UC_LAYOUT_UNION,
	UC_LAYOUT_LINEAR,
	UC_LAYOUT_STRIPED,
	UC_LAYOUT_COUNT,
};

/** uc_layout_to_str() - "union", "linear", "striped" */
const char *uc_layout_to_str(enum uc_layout layout);

/** uc_layout_parse() - The inverse; -EINVAL names the value */
int uc_layout_parse(const char *s, enum uc_layout *ret_layout, struct uc_err *err);

enum {
	UC_STRIPE_SIZE = 64 * 1024, /* by default */
	UC_STRIPE_SIZE_MIN = 4096,
	UC_STRIPE_SIZE_MAX = 64 * 1024 * 1024,
};

/** uc_stripe_size_is_valid() - A power of two within the limits */
bool uc_stripe_size_is_valid(uint64_t bytes);

/** struct uc_params - what a volume is asked to be like */
struct uc_params {
	enum uc_layout layout;    /* `layout`: default union */
	uint64_t stripe_size;     /* `stripeSize`, bytes, of layout striped */
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
 * and mean nothing; `directAssign` may be "never", what it is anyway.  What only means something
 * for another layout is refused: `policy` and `minFreeSpace` are a union's, `stripeSize` is of
 * striped.
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
