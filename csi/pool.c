/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * A pool is opened in two steps.  A visit, on a thread of its own and with a
 * time limit, opens the directory and reads its marker: a disk that hangs
 * costs that one thread.  What the visit has seen is then compared with what
 * the state knows, in memory and under the lock.  Only where they differ is
 * pools.json read again and changed, under the state directory's flock; a
 * marker is made by a second visit.
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "csi/pool.h"
#include "csi/status.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/base/str.h"
#include "lib/os/bounded.h"
#include "lib/os/fd.h"
#include "lib/os/statfs.h"

#define MARKER ".union-csi-pool"
#define KNOWN_FILE "pools.json"

enum {
	VERSION = 1,
	MARKER_MAX = 4096,
	KNOWN_MAX = 1 << 20,
	STATFS_MS = 10000,
	VISIT_MS = 10000, /* a disk may have to spin up */
};

/* A pool that the state knows. */
struct known {
	char uuid[UC_UUID_TEXT_SIZE];
	char *dir; /* where it was last */
};

struct csi_pools {
	const struct uc_store *store;
	enum csi_pools_mode mode;
	char **dirs; /* absolute */
	pthread_mutex_t lock;
	struct known *known; /* lock */
	size_t n_known;      /* lock */
};

/* ------------------------------------------------------- what the state knows */

static struct known *find_uuid(const struct csi_pools *p, const char *uuid)
{
	for (size_t i = 0; i < p->n_known; i++)
		if (strcmp(p->known[i].uuid, uuid) == 0)
			return &p->known[i];
	return NULL;
}

static struct known *find_dir(const struct csi_pools *p, const char *dir)
{
	for (size_t i = 0; i < p->n_known; i++)
		if (strcmp(p->known[i].dir, dir) == 0)
			return &p->known[i];
	return NULL;
}

static int add_known(struct csi_pools *p, const char *uuid, const char *dir)
{
	struct known *grown = reallocarray(p->known, p->n_known + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	p->known = grown;
	snprintf(grown[p->n_known].uuid, sizeof(grown->uuid), "%s", uuid);
	grown[p->n_known].dir = strdup(dir);
	if (!grown[p->n_known].dir)
		return -ENOMEM;
	p->n_known++;
	return 0;
}

static void forget_known(struct csi_pools *p)
{
	for (size_t i = 0; i < p->n_known; i++)
		free(p->known[i].dir);
	p->n_known = 0;
}

static int store_known(const struct csi_pools *p, struct uc_err *err)
{
	cleanup_json json_t *array = json_array(), *object = NULL;
	cleanup_free char *text = NULL;

	for (size_t i = 0; i < p->n_known; i++)
		if (json_array_append_new(array, json_pack("{s:s, s:s}", "uuid", p->known[i].uuid,
							   "dir", p->known[i].dir)) < 0)
			return uc_fail(err, ENOMEM, "write `%s`", KNOWN_FILE);
	object = json_pack("{s:i, s:O}", "version", VERSION, "pools", array);
	text = object ? uc_json_format(object) : NULL;
	if (!text)
		return uc_fail(err, ENOMEM, "write `%s`", KNOWN_FILE);
	return uc_replace_file_at(p->store->fd, KNOWN_FILE, text, strlen(text), 0600, err);
}

static int known_from_json(struct csi_pools *p, const json_t *object, struct uc_err *err)
{
	json_t *array, *item;
	size_t i;
	int r;

	r = uc_json_get_array(object, "pools", true, &array, err);
	if (r < 0)
		return r;
	json_array_foreach(array, i, item)
	{
		const char *uuid = NULL, *dir = NULL;

		r = uc_json_get_str(item, "uuid", true, &uuid, err);
		if (r == 0)
			r = uc_json_get_str(item, "dir", true, &dir, err);
		if (r < 0)
			return r;
		if (!uc_uuid_is_valid(uuid) || find_uuid(p, uuid))
			return uc_fail_as(err, EINVAL, 0, "pools[%zu].uuid `%s` is not valid", i,
					  UC_PRINTABLE(uuid));
		if (add_known(p, uuid, dir) < 0)
			return uc_fail(err, ENOMEM, "pools[%zu]", i);
	}
	return 0;
}

static int check_version(const json_t *object, struct uc_err *err)
{
	uint64_t version = 0;
	int r = uc_json_get_u64(object, "version", true, INT32_MAX, &version, err);

	if (r == 0 && version != VERSION)
		r = uc_fail_as(err, EINVAL, 0, "field `version` is %llu, not %d",
			       (unsigned long long)version, VERSION);
	return r;
}

/* What cannot be read whole is not known at all. */
static int load_known(struct csi_pools *p, struct uc_err *err)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	cleanup_json json_t *object = NULL;
	int r;

	if (p->store->fd < 0)
		return 0;
	r = uc_read_file_at(p->store->fd, KNOWN_FILE, KNOWN_MAX, &b);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return uc_fail(err, -r, "read `%s`", KNOWN_FILE);
	r = uc_json_parse(b.data, b.len, &object, err);
	if (r == 0)
		r = check_version(object, err);
	if (r == 0)
		r = known_from_json(p, object, err);
	if (r == 0)
		return 0;
	forget_known(p);
	return uc_wrap(err, r, "read `%s` of the state directory", KNOWN_FILE);
}

/* ------------------------------------------------------------------- markers */

/* 0; -ENOENT: no marker; other errors are final. */
static int read_marker(int fd, char uuid[static UC_UUID_TEXT_SIZE], struct uc_err *err)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;
	cleanup_json json_t *object = NULL;
	const char *s = NULL;
	int r;

	r = uc_read_file_at(fd, MARKER, MARKER_MAX, &b);
	if (r == -ENOENT)
		return r;
	if (r < 0)
		return uc_fail(err, -r, "read `%s`", MARKER);
	r = uc_json_parse(b.data, b.len, &object, err);
	if (r == 0)
		r = check_version(object, err);
	if (r == 0)
		r = uc_json_get_str(object, "uuid", true, &s, err);
	if (r < 0)
		return uc_wrap(err, r, "read `%s`", MARKER);
	if (!uc_uuid_is_valid(s))
		return uc_fail_as(err, EINVAL, 0, "`%s` holds no UUID", MARKER);
	snprintf(uuid, UC_UUID_TEXT_SIZE, "%s", s);
	return 0;
}

static int write_marker(int fd, char uuid[static UC_UUID_TEXT_SIZE], struct uc_err *err)
{
	char text[128];
	int r;

	r = uc_uuid_random(uuid);
	if (r < 0)
		return uc_fail(err, -r, "make a UUID");
	snprintf(text, sizeof(text), "{\n  \"version\": %d,\n  \"uuid\": \"%s\"\n}\n", VERSION,
		 uuid);
	return uc_replace_file_at(fd, MARKER, text, strlen(text), 0600, err);
}

/* Makes an empty directory a pool, unless another process is faster. */
static int make_marker(int fd, char uuid[static UC_UUID_TEXT_SIZE], struct uc_err *err)
{
	static const char *const ignored[] = { "lost+found", "." MARKER ".tmp", NULL };
	int r;

	if (flock(fd, LOCK_EX) < 0)
		return uc_fail(err, errno, "lock it");
	r = read_marker(fd, uuid, err);
	if (r == -ENOENT) {
		r = uc_dir_is_empty(fd, ignored);
		if (r < 0)
			r = uc_fail(err, -r, "look into it");
		else if (r == 0)
			r = uc_fail_as(err, EPERM, 0,
				       "it is not empty and carries no %s: not taken for a pool",
				       MARKER);
		else
			r = write_marker(fd, uuid, err);
	}
	flock(fd, LOCK_UN);
	return r;
}

/* -------------------------------------------------------------------- visits */

/* A look at a directory.  It may hang: nothing of it is done under a lock of ours. */
struct visit {
	char *dir;
	bool make; /* a marker, if it is empty */
	int fd;
	uint64_t device;
	bool has_marker;
	char uuid[UC_UUID_TEXT_SIZE];
	int result; /* 0 or a negative errno */
	struct uc_err err;
};

static void visit_free(void *data)
{
	struct visit *v = data;

	if (!v)
		return;
	free(v->dir);
	uc_closep(&v->fd);
	free(v);
}

static void visit_freep(struct visit **v)
{
	visit_free(*v);
}

#define cleanup_visit __attribute__((cleanup(visit_freep)))

static int look(struct visit *v, struct uc_err *err)
{
	struct stat st;
	int r;

	v->fd = open(v->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (v->fd < 0 || fstat(v->fd, &st) < 0)
		return uc_fail(err, errno, "open");
	v->device = st.st_dev;
	r = v->make ? make_marker(v->fd, v->uuid, err) : read_marker(v->fd, v->uuid, err);
	v->has_marker = r == 0;
	return r == -ENOENT ? 0 : r;
}

static void look_in(void *data)
{
	struct visit *v = data;

	v->result = look(v, &v->err);
}

static int visit(const char *dir, bool make, struct visit **ret_visit, struct uc_err *err)
{
	cleanup_visit struct visit *v = calloc(1, sizeof(*v));
	int r;

	if (!v)
		return uc_fail(err, ENOMEM, "look at it");
	*v = (struct visit){ .fd = -1, .make = make, .dir = strdup(dir) };
	if (!v->dir)
		return uc_fail(err, ENOMEM, "look at it");
	r = uc_bounded_run(dir, VISIT_MS, look_in, v, visit_free);
	if (r == -ETIMEDOUT)
		v = NULL; /* the thread's */
	if (r == -ETIMEDOUT || r == -EALREADY)
		return uc_fail_as(err, ETIMEDOUT, 0, "it does not answer");
	if (r < 0)
		return uc_fail(err, -r, "look at it");
	if (v->result < 0) {
		if (err)
			*err = v->err;
		return v->result;
	}
	*ret_visit = take_ptr(&v);
	return 0;
}

/* --------------------------------------------------- is it the one that it should be? */

enum finding {
	FOUND,       /* the pool that belongs there */
	NO_POOL_YET, /* a directory that may become one */
};

/* A directory that the state has not seen yet, and which carries a marker. */
static int record(struct csi_pools *p, const struct visit *v, struct uc_err *err)
{
	int r;

	if (add_known(p, v->uuid, v->dir) < 0)
		return uc_fail(err, ENOMEM, "remember it");
	r = store_known(p, err);
	if (r < 0) {
		free(p->known[--p->n_known].dir);
		return r;
	}
	log_info("pool `%s` is %s (%s)", v->dir, v->uuid, v->make ? "new" : "a pool already");
	return 0;
}

/*
 * The same disk, mounted elsewhere.  The pool that was at that place before gets the
 * other's: there it is missed, and an empty directory is not taken for a new one.
 */
static int move(struct csi_pools *p, struct known *is, struct known *was, const char *dir,
		struct uc_err *err)
{
	char *copy = strdup(dir);
	int r;

	if (!copy)
		return uc_fail(err, ENOMEM, "remember it");
	if (was) {
		free(was->dir);
		was->dir = is->dir;
	} else {
		free(is->dir);
	}
	is->dir = copy;
	r = store_known(p, err);
	if (r < 0)
		forget_known(p); /* what is on disk counts */
	return r;
}

/* Under the lock, and the state's: what is known is what is on disk. */
static int settle(struct csi_pools *p, const struct visit *v, struct uc_err *err)
{
	struct known *was = find_dir(p, v->dir);
	struct known *is = v->has_marker ? find_uuid(p, v->uuid) : NULL;

	if (!v->has_marker && was)
		return uc_fail_as(err, ENOENT, 0,
				  "it carries no %s, but it was pool %s: is its disk mounted?",
				  MARKER, was->uuid);
	if (!v->has_marker && p->mode != CSI_POOLS_ADOPT)
		return uc_fail_as(err, ENOENT, 0, "it carries no %s", MARKER);
	if (!v->has_marker)
		return NO_POOL_YET;
	if (!is && was)
		return uc_fail_as(err, EPERM, 0, "it carries the foreign pool %s instead of %s",
				  v->uuid, was->uuid);
	if (p->mode == CSI_POOLS_LOOK || (is && is == was))
		return FOUND;
	return is ? move(p, is, was, v->dir, err) : record(p, v, err);
}

/* Another process on the same state directory may be changing it, too. */
static int lock_known(struct csi_pools *p, struct uc_err *err)
{
	pthread_mutex_lock(&p->lock);
	if (p->store->fd >= 0 && flock(p->store->fd, LOCK_EX) < 0)
		return uc_fail(err, errno, "lock the state directory");
	forget_known(p);
	return load_known(p, err);
}

static void unlock_known(struct csi_pools *p)
{
	if (p->store->fd >= 0)
		flock(p->store->fd, LOCK_UN);
	pthread_mutex_unlock(&p->lock);
}

static int settle_exclusively(struct csi_pools *p, const struct visit *v, struct uc_err *err)
{
	int r = lock_known(p, err);

	if (r == 0)
		r = settle(p, v, err);
	unlock_known(p);
	return r;
}

static bool is_known_there(struct csi_pools *p, const struct visit *v)
{
	const struct known *k;
	bool is;

	pthread_mutex_lock(&p->lock);
	k = v->has_marker ? find_uuid(p, v->uuid) : NULL;
	is = k && strcmp(k->dir, v->dir) == 0;
	pthread_mutex_unlock(&p->lock);
	return is;
}

static int identify(struct csi_pools *p, struct visit **v, struct uc_err *err)
{
	cleanup_visit struct visit *first = NULL;
	int r;

	if (is_known_there(p, *v))
		return 0;
	r = settle_exclusively(p, *v, err);
	if (r != NO_POOL_YET)
		return r;
	first = *v;
	*v = NULL;
	r = visit(first->dir, true, v, err);
	return r < 0 ? r : settle_exclusively(p, *v, err);
}

static int open_pool(struct csi_pools *p, size_t i, struct visit **ret_visit, struct uc_err *err)
{
	cleanup_visit struct visit *v = NULL;
	int r;

	r = visit(p->dirs[i], false, &v, err);
	if (r == 0)
		r = identify(p, &v, err);
	if (r < 0)
		return csi_as(err, uc_wrap(err, r, "pool `%s`", UC_PRINTABLE(p->dirs[i])),
			      UC_GRPC_UNAVAILABLE);
	*ret_visit = take_ptr(&v);
	return 0;
}

int csi_pools_open(struct csi_pools *p, size_t i, char ret_uuid[static UC_UUID_TEXT_SIZE],
		   struct uc_err *err)
{
	cleanup_visit struct visit *v = NULL;
	int r = open_pool(p, i, &v, err);

	if (!v)
		return r;
	memcpy(ret_uuid, v->uuid, sizeof(v->uuid));
	return take_fd(&v->fd);
}

int csi_pools_open_uuid(struct csi_pools *p, const char *uuid, struct uc_err *err)
{
	char *last = NULL;
	int r;

	for (size_t i = 0; p->dirs[i]; i++) {
		char found[UC_UUID_TEXT_SIZE];
		struct uc_err ignored;
		int fd = csi_pools_open(p, i, found, &ignored);

		if (fd < 0)
			continue;
		if (strcmp(found, uuid) == 0)
			return fd;
		close(fd);
	}
	pthread_mutex_lock(&p->lock);
	if (find_uuid(p, uuid))
		last = strdup(find_uuid(p, uuid)->dir);
	pthread_mutex_unlock(&p->lock);
	r = csi_fail(err, UC_GRPC_UNAVAILABLE, "pool %s (last at `%s`) is missing", uuid,
		     UC_PRINTABLE(last ? last : "?"));
	free(last);
	return r;
}

int csi_pools_ready(struct csi_pools *p, bool (*is_used)(void *data, const char *uuid), void *data,
		    struct uc_err *err)
{
	cleanup_strv char **missing = NULL;
	char(*uuids)[UC_UUID_TEXT_SIZE];
	size_t n = csi_pools_count(p);
	int r = 0;

	uuids = calloc(n, sizeof(*uuids));
	if (!uuids)
		return uc_fail(err, ENOMEM, "check the pools");
	for (size_t i = 0; i < n && r >= 0; i++) {
		r = csi_pools_open(p, i, uuids[i], err);
		if (r >= 0)
			close(r);
		for (size_t k = 0; r >= 0 && k < i; k++)
			if (strcmp(uuids[i], uuids[k]) == 0)
				r = csi_fail(err, UC_GRPC_UNAVAILABLE,
					     "pools `%s` and `%s` are the same", p->dirs[k],
					     p->dirs[i]);
	}
	pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < p->n_known && r >= 0; i++) {
		bool found = false;

		for (size_t k = 0; k < n; k++)
			found |= strcmp(p->known[i].uuid, uuids[k]) == 0;
		if (!found && uc_strv_push(&missing, p->known[i].uuid) < 0)
			r = uc_fail(err, ENOMEM, "check the pools");
	}
	pthread_mutex_unlock(&p->lock);
	free(uuids);
	for (char **uuid = missing; uuid && *uuid && r >= 0; uuid++)
		if (is_used(data, *uuid))
			r = csi_fail(err, UC_GRPC_UNAVAILABLE,
				     "pool %s holds branches of volumes and is not among the pools",
				     *uuid);
	return r < 0 ? r : 0;
}

int csi_pools_forget(struct csi_pools *p, const char *uuid, struct uc_err *err)
{
	struct known *known;
	int r = lock_known(p, err);

	known = r == 0 ? find_uuid(p, uuid) : NULL;
	if (r == 0 && !known)
		r = uc_fail_as(err, ENOENT, 0, "pool %s is not known", uuid);
	if (known) {
		free(known->dir);
		*known = p->known[--p->n_known];
		r = store_known(p, err);
	}
	unlock_known(p);
	return r;
}

int csi_pools_space(struct csi_pools *p, size_t i, struct csi_space *ret, struct uc_err *err)
{
	cleanup_visit struct visit *v = NULL;
	struct uc_statfs usage = { .total = 0 };
	int r;

	r = open_pool(p, i, &v, err);
	if (!v)
		return r;
	r = uc_statfs_bounded(v->fd, STATFS_MS, &usage, err);
	if (r < 0)
		return csi_as(err, uc_wrap(err, r, "pool `%s`", p->dirs[i]), UC_GRPC_UNAVAILABLE);
	ret->available = usage.available;
	ret->device = v->device;
	return 0;
}

/* ------------------------------------------------------------------ lifetime */

size_t csi_pools_count(const struct csi_pools *p)
{
	return uc_strv_len(p->dirs);
}

const char *csi_pools_dir(const struct csi_pools *p, size_t i)
{
	return p->dirs[i];
}

/* Absolute, and canonical where the directory is there. */
static int add_dir(struct csi_pools *p, const char *dir, struct uc_err *err)
{
	cleanup_free char *real = realpath(dir, NULL);

	if (!real && *dir != '/')
		return uc_fail(err, errno, "pool `%s`", UC_PRINTABLE(dir));
	if (!real)
		real = strdup(dir);
	if (!real || uc_strv_push(&p->dirs, real) < 0)
		return uc_fail(err, ENOMEM, "pool `%s`", UC_PRINTABLE(dir));
	return 0;
}

int csi_pools_new(char *const *dirs, const struct uc_store *store, enum csi_pools_mode mode,
		  struct csi_pools **ret_pools, struct uc_err *err)
{
	cleanup_with(csi_pools_freep) struct csi_pools *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return uc_fail(err, ENOMEM, "set the pools up");
	p->store = store;
	p->mode = mode;
	pthread_mutex_init(&p->lock, NULL);
	for (; *dirs; dirs++) {
		r = add_dir(p, *dirs, err);
		if (r < 0)
			return r;
	}
	r = load_known(p, err);
	if (r < 0)
		return r;
	*ret_pools = take_ptr(&p);
	return 0;
}

void csi_pools_free(struct csi_pools *p)
{
	if (!p)
		return;
	uc_strv_free(p->dirs);
	forget_known(p);
	free(p->known);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
