/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * Each branch's file has a JSON file beside it that describes the whole volume
 * as it was made, and tells whether the branch has been formatted.  A volume
 * whose state is lost can be rebuilt when all its branches are there, whole,
 * and agree.
 *
 * A branch that carries nothing would be formatted when the volume is staged.
 * It is taken for new only if nothing of the volume was ever formatted: next to
 * a filesystem, or where its JSON file says `formatted`, it has lost its content.
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "csi/inventory.h"
#include "csi/local.h"
#include "csi/local_recover.h"
#include "csi/status.h"
#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/os/blk.h"
#include "lib/os/fd.h"
#include "lib/vol/split.h"

void csi_recovery_list_done(struct csi_recovery_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		free(list->items[i].id);
		free(list->items[i].damage);
		free(list->items[i].problem);
	}
	free(list->items);
	*list = (struct csi_recovery_list){ .n = 0 };
}

/* "<id>.<index>.img" or ".json" -> id; positive if @name is such a one. */
static int parse_name(const char *name, char id[static UC_VOLUME_ID_SIZE])
{
	size_t n = strlen(name);
	const char *dot;
	uint64_t index;
	char digits[8];

	if (uc_str_has_suffix(name, CSI_IMAGE))
		n -= strlen(CSI_IMAGE);
	else if (uc_str_has_suffix(name, CSI_SIDECAR))
		n -= strlen(CSI_SIDECAR);
	else
		return 0;
	dot = memrchr(name, '.', n);
	if (!dot || (size_t)(dot - name) > UC_VOLUME_ID_MAX ||
	    (size_t)(name + n - dot - 1) >= sizeof(digits))
		return 0;
	snprintf(digits, sizeof(digits), "%.*s", (int)(name + n - dot - 1), dot + 1);
	snprintf(id, UC_VOLUME_ID_SIZE, "%.*s", (int)(dot - name), name);
	return uc_volume_id_is_valid(id) && uc_str_parse_u64(digits, UINT32_MAX, &index) == 0;
}

/* 0: the volume has its state; -ENOENT: it has none; -EUCLEAN: damaged; others: not readable. */
static int check_state(const struct uc_store *store, const char *id, struct uc_err *err)
{
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	int r;

	if (store->volumes_fd < 0)
		return -ENOENT;
	r = uc_volume_load(store, id, &v, err);
	return r == -EFBIG ? -EUCLEAN : r;
}

struct scan {
	const struct uc_store *store;
	char **ids; /* of volumes without a state that can be read */
};

static int scan_name(void *data, const char *name)
{
	struct scan *scan = data;
	char id[UC_VOLUME_ID_SIZE];

	if (!parse_name(name, id) || uc_strv_has(scan->ids, id) ||
	    check_state(scan->store, id, NULL) == 0)
		return 0;
	return uc_strv_push(&scan->ids, id);
}

/* Of a volume whose files are gone as well. */
static int scan_state(void *data, const char *id)
{
	struct scan *scan = data;
	int r = check_state(scan->store, id, NULL);

	return r == 0 || r == -ENOENT || uc_strv_has(scan->ids, id) ? 0
								    : uc_strv_push(&scan->ids, id);
}

static int scan_pools(struct csi_pools *pools, struct scan *scan, struct uc_err *err)
{
	for (size_t i = 0; i < csi_pools_count(pools); i++) {
		char uuid[UC_UUID_TEXT_SIZE];
		cleanup_fd int fd = csi_pools_open(pools, i, uuid, err);
		int r;

		if (fd < 0)
			return fd;
		r = uc_dir_each(fd, scan_name, scan);
		if (r < 0)
			return uc_fail(err, -r, "read pool `%s`", csi_pools_dir(pools, i));
	}
	return uc_store_each(scan->store, scan_state, scan, err);
}

/* The description beside any branch: they are all the same but for the index. */
static int find_description(struct csi_pools *pools, const char *id, struct uc_volume *ret_v,
			    struct uc_err *err)
{
	for (size_t p = 0; p < csi_pools_count(pools); p++) {
		char uuid[UC_UUID_TEXT_SIZE], name[CSI_BRANCH_NAME_SIZE];
		cleanup_fd int fd = csi_pools_open(pools, p, uuid, err);

		if (fd < 0)
			return fd;
		for (size_t i = 0; i < UC_BRANCHES_MAX; i++) {
			size_t index;
			int r;

			r = csi_sidecar_read(fd, csi_branch_name(name, id, i, CSI_SIDECAR), ret_v,
					     &index, err);
			if (r != -ENOENT)
				return r;
		}
	}
	return uc_fail_as(err, ENOENT, 0, "no %s file beside any branch", CSI_SIDECAR);
}

static bool describes_same(const struct uc_volume *a, const struct uc_volume *b)
{
	if (strcmp(a->id, b->id) != 0 || a->n_branches != b->n_branches)
		return false;
	for (size_t i = 0; i < a->n_branches; i++)
		if (strcmp(a->branches[i].uuid, b->branches[i].uuid) != 0 ||
		    strcmp(a->branches[i].pool, b->branches[i].pool) != 0)
			return false;
	return true;
}

/* Whether branch @i is there, whole; finds out whether it is formatted. */
static int check_branch(struct csi_pools *pools, struct uc_volume *v, size_t i, struct uc_err *err)
{
	cleanup_volume struct uc_volume other = { .n_branches = 0 };
	struct uc_branch *b = &v->branches[i];
	char name[CSI_BRANCH_NAME_SIZE];
	cleanup_fd int pool_fd = -1, fd = -1;
	struct uc_blk_content content;
	struct stat st;
	size_t index;
	int r;

	pool_fd = csi_pools_open_uuid(pools, b->pool, err);
	if (pool_fd < 0)
		return pool_fd;
	r = csi_sidecar_read(pool_fd, csi_branch_name(name, v->id, i, CSI_SIDECAR), &other, &index,
			     err);
	if (r < 0)
		return r == -ENOENT ? uc_fail(err, ENOENT, "`%s`", name) : r;
	if (index != i || !describes_same(v, &other))
		return uc_fail_as(err, EINVAL, 0, "`%s` describes another volume than its fellows",
				  name);
	csi_branch_name(name, v->id, i, CSI_IMAGE);
	fd = openat(pool_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st) < 0)
		return uc_fail(err, errno, "`%s`", name);
	if ((uint64_t)st.st_size != b->size)
		return uc_fail_as(err, EINVAL, 0, "`%s` has %llu bytes, not %llu", name,
				  (unsigned long long)st.st_size, (unsigned long long)b->size);
	if (v->n_segments && i > 0) /* the filesystem begins on the first one */
		return 0;
	r = uc_blk_probe(fd, &content, err);
	if (r < 0)
		return uc_wrap(err, r, "`%s`", name);
	if (content.kind == UC_BLK_BLANK && other.branches[i].format != UC_FORMAT_NEVER)
		return uc_fail_as(err, EINVAL, 0,
				  "`%s` carries nothing, but it was formatted: its content is lost",
				  name);
	b->format = content.kind == UC_BLK_BLANK ? UC_FORMAT_NEVER : UC_FORMAT_DONE;
	return 0;
}

/* Either all branches carry something or none does. */
static int check_formats(struct uc_volume *v, struct uc_err *err)
{
	size_t blank = 0, n_blank = 0;

	if (v->n_segments)
		return 0;
	for (size_t i = 0; i < v->n_branches; i++)
		if (v->branches[i].format == UC_FORMAT_NEVER) {
			blank = i;
			n_blank++;
		}
	if (n_blank && n_blank < v->n_branches)
		return uc_fail_as(err, EINVAL, 0,
				  "`%s.%zu" CSI_IMAGE "` carries nothing, but other branches do: "
				  "its content is lost, or it was never formatted",
				  v->id, blank);
	v->initialised = !n_blank;
	return 0;
}

/* Until the new one is in its place, the damaged one has both names. */
static int keep_damaged(int dir, struct uc_err *err)
{
	if (unlinkat(dir, UC_STATE_BAD, 0) < 0 && errno != ENOENT)
		return uc_fail(err, errno, "remove `%s`", UC_STATE_BAD);
	if (linkat(dir, UC_STATE_FILE, dir, UC_STATE_BAD, 0) < 0)
		return uc_fail(err, errno, "keep `%s` as `%s`", UC_STATE_FILE, UC_STATE_BAD);
	return 0;
}

static int write_state(const struct uc_store *store, const struct uc_volume *v, bool is_damaged,
		       struct uc_err *err)
{
	cleanup_volume_lock struct uc_volume_lock lock = UC_VOLUME_LOCK_NONE;
	int r;

	r = uc_volume_lock(store, v->id, true, &lock, err);
	if (r == 0 && is_damaged)
		r = keep_damaged(lock.fd, err);
	return r < 0 ? r : csi_store(&lock, v, err);
}

static int examine(struct csi_pools *pools, const struct uc_store *store, bool recover,
		   struct csi_recovery *item, struct uc_err *err)
{
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	int r;

	r = find_description(pools, item->id, &v, err);
	if (r < 0)
		return r;
	if (strcmp(v.id, item->id) != 0)
		return uc_fail_as(err, EINVAL, 0, "its files describe volume `%s`", v.id);
	item->n_branches = v.n_branches;
	item->capacity = v.capacity;
	for (size_t i = 0; i < v.n_branches; i++) {
		struct uc_err problem = { .num = 0 };
		int k = check_branch(pools, &v, i, &problem);

		if (k == 0)
			item->n_found++;
		else if (r == 0 && err) {
			*err = problem;
			r = k;
		}
	}
	if (r == 0)
		r = check_formats(&v, err);
	if (r == 0 && recover)
		r = write_state(store, &v, item->damage != NULL, err);
	return r;
}

/* Fills @item but for its id; -ENOMEM. */
static int judge(struct csi_pools *pools, const struct uc_store *store, bool recover,
		 struct csi_recovery *item)
{
	struct uc_err damage = { .num = 0 }, problem = { .num = 0 };
	int state = check_state(store, item->id, &damage);
	int r;

	if (state == -EUCLEAN) {
		item->damage = strdup(damage.msg);
		if (!item->damage)
			return -ENOMEM;
	}
	if (state == -EUCLEAN || state == -ENOENT)
		r = examine(pools, store, recover, item, &problem);
	else
		r = uc_wrap(&damage, state, "its state cannot be read");
	if (r < 0) {
		item->problem = strdup(problem.num ? problem.msg : damage.msg);
		if (!item->problem)
			return -ENOMEM;
	}
	return 0;
}

int csi_local_find_orphans(struct csi_pools *pools, const struct uc_store *store, bool recover,
			   struct csi_recovery_list *ret_list, struct uc_err *err)
{
	struct scan scan = { .store = store };
	struct csi_recovery_list list = { .n = 0 };
	int r;

	r = scan_pools(pools, &scan, err);
	if (r == 0 && scan.ids) {
		list.items = calloc(uc_strv_len(scan.ids), sizeof(*list.items));
		if (!list.items)
			r = uc_fail(err, ENOMEM, "list volumes without state");
	}
	for (char **id = scan.ids; r == 0 && id && *id; id++) {
		struct csi_recovery *item = &list.items[list.n++];

		item->id = strdup(*id);
		if (!item->id || judge(pools, store, recover, item) < 0)
			r = uc_fail(err, ENOMEM, "list volumes without state");
	}
	uc_strv_free(scan.ids);
	if (r < 0)
		csi_recovery_list_done(&list);
	else
		*ret_list = list;
	return r;
}

/* --------------------------------------------------------------------- forgetting */

struct forget {
	const struct uc_store *store;
	const char *pool;
	struct uc_err *err;
};

static int check_no_branch(void *data, const char *id)
{
	const struct forget *forget = data;
	cleanup_volume struct uc_volume v = { .n_branches = 0 };
	struct uc_err why = { .num = 0 };
	int r = uc_volume_load(forget->store, id, &v, &why);

	if (r < 0 && r != -ENOENT)
		return uc_fail_as(forget->err, EBUSY, 0, "who knows whether pool %s is used: %s",
				  forget->pool, why.msg);
	for (size_t i = 0; i < v.n_branches; i++)
		if (strcmp(v.branches[i].pool, forget->pool) == 0)
			return uc_fail_as(forget->err, EBUSY, 0,
					  "pool %s holds branch %zu of volume `%s`", forget->pool,
					  i, id);
	return 0;
}

int csi_local_forget_pool(struct csi_pools *pools, const struct uc_store *store, const char *uuid,
			  struct uc_err *err)
{
	struct forget forget = { .store = store, .pool = uuid, .err = err };
	int r = uc_store_each(store, check_no_branch, &forget, err);

	return r < 0 ? r : csi_pools_forget(pools, uuid, err);
}

/* ------------------------------------------------------------------ at start-up */

int csi_local_repair(struct csi_backend *b, const struct csi_op *op, struct uc_volume_lock *lock,
		     struct uc_volume *v, struct uc_err *err)
{
	struct csi_local *l = (struct csi_local *)b;
	int r;

	if (v->phase == UC_VOLUME_READY)
		return 0;
	r = csi_local_erase(l, op, lock, v, err);
	if (r < 0)
		return r;
	log_info("volume `%s`: its interrupted %s is %s", v->id,
		 v->phase == UC_VOLUME_CREATING ? "creation" : "removal",
		 v->phase == UC_VOLUME_CREATING ? "undone" : "finished");
	return 1;
}

void csi_local_report_orphans(struct csi_backend *b)
{
	struct csi_local *l = (struct csi_local *)b;
	struct csi_recovery_list list = { .n = 0 };
	struct uc_err err = { .num = 0 };

	if (csi_local_find_orphans(l->pools, l->store, false, &list, &err) < 0)
		log_warn("volumes without state are not looked for: %s", err.msg);
	for (size_t i = 0; i < list.n; i++)
		log_warn("the pools hold %zu of %zu branches of volume `%s`, %s%s%s: "
			 "see union-csi recover",
			 list.items[i].n_found, list.items[i].n_branches, list.items[i].id,
			 list.items[i].damage ? "whose state is damaged" : "which has no state",
			 list.items[i].problem ? "; " : "",
			 list.items[i].problem ? list.items[i].problem : "");
	csi_recovery_list_done(&list);
}
