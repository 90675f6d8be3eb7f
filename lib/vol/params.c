/* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "lib/base/macros.h"
#include "lib/base/size.h"
#include "lib/base/str.h"
#include "lib/vol/params.h"
#include "lib/vol/split.h"

static const char *const layout_str[] = {
	[UC_LAYOUT_UNION] = "union",
	[UC_LAYOUT_LINEAR] = "linear",
	[UC_LAYOUT_STRIPED] = "striped",
};
static_assert(ARRAY_SIZE(layout_str) == UC_LAYOUT_COUNT, "every layout has a name");

const char *uc_layout_to_str(enum uc_layout layout)
{
	return layout_str[layout];
}

int uc_layout_parse(const char *s, enum uc_layout *ret_layout, struct uc_err *err)
{
	for (size_t i = 0; i < UC_LAYOUT_COUNT; i++)
		if (strcmp(layout_str[i], s) == 0) {
			*ret_layout = (enum uc_layout)i;
			return 0;
		}
	return uc_fail_as(err, EINVAL, 0, "layout `%s` is none of union, linear, striped",
			  UC_PRINTABLE(s));
}

bool uc_stripe_size_is_valid(uint64_t bytes)
{
	return bytes >= UC_STRIPE_SIZE_MIN && bytes <= UC_STRIPE_SIZE_MAX &&
	       (bytes & (bytes - 1)) == 0;
}

static int set_branches(struct uc_params *p, const char *value, struct uc_err *err)
{
	uint64_t n;

	if (uc_str_parse_u64(value, UC_BRANCHES_MAX, &n) < 0 || n == 0)
		return uc_fail_as(err, EINVAL, 0, "`%s` is not a number within 1…%d",
				  UC_PRINTABLE(value), UC_BRANCHES_MAX);
	p->branches = n;
	return 0;
}

static int set_max_branch_size(struct uc_params *p, const char *value, struct uc_err *err)
{
	uint64_t bytes;
	int r;

	r = uc_size_parse(value, &bytes, err);
	if (r < 0)
		return r;
	if (bytes == 0)
		return uc_fail_as(err, EINVAL, 0, "`%s` is not a size above 0",
				  UC_PRINTABLE(value));
	p->max_branch_size = bytes;
	return 0;
}

static int set_policy(struct uc_params *p, const char *value, struct uc_err *err)
{
	return uc_policy_parse(value, &p->policy, err);
}

static int set_min_free_space(struct uc_params *p, const char *value, struct uc_err *err)
{
	return uc_size_parse(value, &p->min_free_space, err);
}

static int set_layout(struct uc_params *p, const char *value, struct uc_err *err)
{
	return uc_layout_parse(value, &p->layout, err);
}

static int set_stripe_size(struct uc_params *p, const char *value, struct uc_err *err)
{
	uint64_t bytes;
	int r = uc_size_parse(value, &bytes, err);

	if (r < 0)
		return r;
	if (!uc_stripe_size_is_valid(bytes))
		return uc_fail_as(err, EINVAL, 0, "`%s` is not a power of two within 4Ki…64Mi",
				  UC_PRINTABLE(value));
	p->stripe_size = bytes;
	return 0;
}

static int set_direct_assign(struct uc_params *p, const char *value, struct uc_err *err)
{
	(void)p;
	if (strcmp(value, "never") != 0)
		return uc_fail_as(err, EINVAL, 0, "`%s` is not supported, only `never`",
				  UC_PRINTABLE(value));
	return 0;
}

static int ignore(struct uc_params *p, const char *value, struct uc_err *err)
{
	(void)p;
	(void)value;
	(void)err;
	return 0;
}

#define OF(layout) (1U << UC_LAYOUT_##layout)

static const struct {
	const char *key;
	int (*set)(struct uc_params *p, const char *value, struct uc_err *err);
	unsigned layouts; /* that it means something for; 0: all */
} known[] = {
	{ "branches", set_branches, 0 },
	{ "maxBranchSize", set_max_branch_size, 0 },
	{ "policy", set_policy, OF(UNION) },
	{ "minFreeSpace", set_min_free_space, OF(UNION) },
	{ "layout", set_layout, 0 },
	{ "stripeSize", set_stripe_size, OF(STRIPED) },
	{ "directAssign", set_direct_assign, 0 },
	{ "csi.storage.k8s.io/pvc/name", ignore, 0 },
	{ "csi.storage.k8s.io/pvc/namespace", ignore, 0 },
	{ "csi.storage.k8s.io/pv/name", ignore, 0 },
};

static int check_layout(const struct uc_params *p, const char *key, struct uc_err *err)
{
	for (size_t k = 0; k < ARRAY_SIZE(known); k++)
		if (strcmp(known[k].key, key) == 0 && known[k].layouts &&
		    !(known[k].layouts & 1U << p->layout))
			return uc_fail_as(err, EINVAL, 0,
					  "parameter `%s` means nothing for layout `%s`", key,
					  layout_str[p->layout]);
	return 0;
}

static int set(struct uc_params *p, const struct uc_param *param, struct uc_err *err)
{
	size_t k = 0;
	int r;

	while (k < ARRAY_SIZE(known) && strcmp(known[k].key, param->key) != 0)
		k++;
	if (k == ARRAY_SIZE(known))
		return uc_fail_as(err, EINVAL, 0, "parameter `%s` is not known",
				  UC_PRINTABLE(param->key));
	r = known[k].set(p, param->value, err);
	return r < 0 ? uc_wrap(err, -EINVAL, "parameter `%s`", param->key) : 0;
}

int uc_params_parse(const struct uc_param *list, size_t n, struct uc_params *ret_params,
		    struct uc_err *err)
{
	struct uc_params p = {
		.branches = 2,
		.policy = UC_POLICY_MFS,
		.stripe_size = UC_STRIPE_SIZE,
	};

	for (size_t i = 0; i < n; i++) {
		int r = set(&p, &list[i], err);

		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < n; i++) {
		int r = check_layout(&p, list[i].key, err);

		if (r < 0)
			return r;
	}
	*ret_params = p;
	return 0;
}

int uc_params_match(const struct uc_param *list, size_t n, const struct uc_params *have,
		    struct uc_err *err)
{
	for (size_t i = 0; i < n; i++) {
		struct uc_params p = *have;
		int r = set(&p, &list[i], err);

		if (r < 0)
			return r;
		if (!uc_params_equal(&p, have))
			return uc_fail_as(err, EINVAL, 0,
					  "parameter `%s`: the volume was not made with `%s`",
					  list[i].key, UC_PRINTABLE(list[i].value));
	}
	return 0;
}

bool uc_params_equal(const struct uc_params *a, const struct uc_params *b)
{
	return a->layout == b->layout && a->stripe_size == b->stripe_size &&
	       a->branches == b->branches && a->max_branch_size == b->max_branch_size &&
	       a->policy == b->policy && a->min_free_space == b->min_free_space;
}
