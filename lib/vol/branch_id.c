/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/str.h"
#include "lib/os/fd.h"
#include "lib/vol/branch_id.h"
#include "lib/vol/split.h"

enum {
	ID_VERSION = 1,
	ID_FILE_MAX = 64 * 1024,
};

/* What uc_replace_file_at() leaves of union.json when it is interrupted. */
#define ID_TEMP "." UC_BRANCH_ID_FILE ".tmp"

void uc_branch_id_done(struct uc_branch_id *id)
{
	free(id->volume_id);
	free(id->uuid);
	*id = (struct uc_branch_id){ 0 };
}

static int read_fields(const json_t *o, struct uc_branch_id *id, struct uc_err *err)
{
	const char *volume_id = NULL, *uuid = NULL;
	uint64_t version = 0, index = 0, branches = 0;
	int r;

	if ((r = uc_json_get_u64(o, "version", true, UINT32_MAX, &version, err)) < 0 ||
	    (r = uc_json_get_str(o, "volumeId", true, &volume_id, err)) < 0 ||
	    (r = uc_json_get_u64(o, "branches", true, UC_BRANCHES_MAX, &branches, err)) < 0 ||
	    (r = uc_json_get_u64(o, "index", true, UC_BRANCHES_MAX, &index, err)) < 0 ||
	    (r = uc_json_get_str(o, "uuid", false, &uuid, err)) < 0)
		return r;
	if (version != ID_VERSION)
		return uc_fail_as(err, EINVAL, 0, "field `version` is %llu; this program knows %d",
				  (unsigned long long)version, ID_VERSION);
	if (!*volume_id)
		return uc_fail_as(err, EINVAL, 0, "field `volumeId` is empty");
	if (index >= branches)
		return uc_fail_as(err, EINVAL, 0, "field `index` is %llu of %llu branches",
				  (unsigned long long)index, (unsigned long long)branches);
	id->index = (uint32_t)index;
	id->branches = (uint32_t)branches;
	id->volume_id = strdup(volume_id);
	id->uuid = uuid ? strdup(uuid) : NULL;
	if (!id->volume_id || (uuid && !id->uuid))
		return uc_fail(err, ENOMEM, "read its fields");
	return 0;
}

int uc_branch_id_load(int dirfd, struct uc_branch_id *ret_id, struct uc_err *err)
{
	cleanup_branch_id struct uc_branch_id id = { 0 };
	cleanup_buf struct uc_buf text = UC_BUF_INIT;
	cleanup_json json_t *o = NULL;
	int r;

	r = uc_read_file_at(dirfd, UC_BRANCH_ID_FILE, ID_FILE_MAX, &text);
	if (r < 0)
		return uc_fail(err, -r, "read `%s`", UC_BRANCH_ID_FILE);
	r = uc_json_parse(uc_buf_str(&text), text.len, &o, err);
	if (r == 0)
		r = read_fields(o, &id, err);
	if (r == -EINVAL) { /* not the caller's fault: the file is damaged */
		r = -EUCLEAN;
		if (err)
			err->num = EUCLEAN;
	}
	if (r < 0)
		return uc_wrap(err, r, "`%s`", UC_BRANCH_ID_FILE);
	*ret_id = id;
	id = (struct uc_branch_id){ 0 };
	return 0;
}

static int store(int dirfd, const struct uc_branch_id *id, struct uc_err *err)
{
	cleanup_json json_t *o = json_object();
	cleanup_free char *text = NULL;

	if (o && json_object_set_new(o, "version", json_integer(ID_VERSION)) == 0 &&
	    json_object_set_new(o, "volumeId", json_string(id->volume_id)) == 0 &&
	    json_object_set_new(o, "index", json_integer(id->index)) == 0 &&
	    json_object_set_new(o, "branches", json_integer(id->branches)) == 0 &&
	    (!id->uuid || json_object_set_new(o, "uuid", json_string(id->uuid)) == 0))
		text = uc_json_format(o);
	if (!text)
		return uc_fail(err, ENOMEM, "write `%s`", UC_BRANCH_ID_FILE);
	return uc_replace_file_at(dirfd, UC_BRANCH_ID_FILE, text, strlen(text), 0600, err);
}

int uc_branch_id_check(const struct uc_branch_id *want, const struct uc_branch_id *have,
		       struct uc_err *err)
{
	if (strcmp(want->volume_id, have->volume_id) != 0)
		return uc_fail_as(err, EUCLEAN, 0, "it belongs to volume `%s`, not to `%s`",
				  UC_PRINTABLE(have->volume_id), UC_PRINTABLE(want->volume_id));
	if (want->branches != have->branches)
		return uc_fail_as(err, EUCLEAN, 0, "it is one of %u branches, not one of %u",
				  have->branches, want->branches);
	if (want->index != have->index)
		return uc_fail_as(err, EUCLEAN, 0, "it is branch %u, not branch %u", have->index,
				  want->index);
	if (!uc_streq(want->uuid, have->uuid))
		return uc_fail_as(err, EUCLEAN, 0,
				  "it was made on the filesystem with UUID `%s`, not `%s`",
				  UC_PRINTABLE(have->uuid ? have->uuid : "none"),
				  UC_PRINTABLE(want->uuid ? want->uuid : "none"));
	return 0;
}

struct foreign {
	int dirfd;
	const char *found; /* a name that is not ours, copied to @name */
	char name[256];
};

/* 1: the entry is somebody else's. */
static int is_foreign(void *data, const char *name)
{
	struct foreign *f = data;
	bool ours = strcmp(name, "lost+found") == 0 || strcmp(name, ID_TEMP) == 0;

	if (strcmp(name, UC_BRANCH_DATA) == 0) {
		cleanup_fd int fd = uc_open_dir_at(f->dirfd, name);
		int empty = fd < 0 ? fd : uc_dir_is_empty(fd, NULL);

		if (empty < 0 && empty != -ENOTDIR && empty != -ELOOP)
			return empty;
		ours = empty > 0;
	}
	if (ours)
		return 0;
	f->found = strncpy(f->name, name, sizeof(f->name) - 1);
	return 1;
}

static int check_empty(int dirfd, struct uc_err *err)
{
	struct foreign f = { .dirfd = dirfd };
	int r = uc_dir_each(dirfd, is_foreign, &f);

	if (r < 0)
		return uc_fail(err, -r, "look whether it is empty");
	if (r > 0)
		return uc_fail_as(
			err, ENOTEMPTY, 0,
			"it has no `%s` and is not empty (it holds `%s`): nothing of somebody "
			"else's is merged",
			UC_BRANCH_ID_FILE, UC_PRINTABLE(f.found));
	return 0;
}

/* Makes union/, whatever the process' umask, so that it outlasts a crash. */
static int make_data(int dirfd, struct uc_err *err)
{
	cleanup_fd int fd = uc_make_dir_at(dirfd, UC_BRANCH_DATA, 0755);

	if (fd < 0)
		return uc_fail(err, -fd, "make `%s`", UC_BRANCH_DATA);
	if (fchmod(fd, 0755) < 0 || fsync(fd) < 0 || fsync(dirfd) < 0)
		return uc_fail(err, errno, "make `%s`", UC_BRANCH_DATA);
	return 0;
}

static int initialise_branch(int dirfd, const struct uc_branch_id *want, struct uc_err *err)
{
	int r;

	r = make_data(dirfd, err);
	if (r < 0)
		return r;
	return store(dirfd, want, err);
}

int uc_branch_open(int dirfd, const struct uc_branch_id *want, bool initialise, int *ret_fd,
		   struct uc_err *err)
{
	cleanup_branch_id struct uc_branch_id have = { 0 };
	int fd, r;

	r = uc_branch_id_load(dirfd, &have, err);
	if (r == -ENOENT) {
		r = check_empty(dirfd, err);
		if (r < 0)
			return r;
		if (!initialise)
			return uc_fail_as(err, ENOENT, 0, "it is empty: it has no `%s`",
					  UC_BRANCH_ID_FILE);
		r = initialise_branch(dirfd, want, err);
	} else if (r == 0) {
		r = uc_branch_id_check(want, &have, err);
	}
	if (r < 0)
		return r;
	fd = uc_open_dir_at(dirfd, UC_BRANCH_DATA);
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return uc_fail(err, EUCLEAN, "it has `%s` but its data directory `%s` is missing",
			       UC_BRANCH_ID_FILE, UC_BRANCH_DATA);
	if (fd < 0)
		return uc_fail(err, -fd, "open `%s`", UC_BRANCH_DATA);
	*ret_fd = fd;
	return 0;
}
