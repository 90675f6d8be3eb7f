/* SPDX-License-Identifier: Apache-2.0 */

/* union-csi volume mount and umount: what attacher and kubelet do, by hand. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "csi/cli.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/sha256.h"
#include "lib/base/str.h"
#include "lib/os/clock.h"
#include "lib/os/mount.h"

enum {
	UNDO_MS = 10 * 1000, /* for undoing a mount that has failed */
};

static const char default_staging[] = "/var/lib/union-csi/staging"; /* of drivers that name none */

/* -------------------------------------------------------------------- directories */

/* mkdir -p of everything above @path. */
static int make_parents(const char *path, struct uc_err *err)
{
	cleanup_free char *copy = strdup(path);

	if (!copy)
		return uc_fail(err, ENOMEM, "make directories");
	for (char *p = strchr(copy + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		if (mkdir(copy, 0755) < 0 && errno != EEXIST)
			return uc_fail(err, errno, "make directory `%s`", UC_PRINTABLE(copy));
		*p = '/';
	}
	return 0;
}

int csi_cli_absolute(const char *path, char **ret_path, struct uc_err *err)
{
	cleanup_free char *cwd = NULL;
	size_t n;

	if (*path == '/') {
		*ret_path = strdup(path);
	} else {
		cwd = getcwd(NULL, 0);
		if (!cwd || asprintf(ret_path, "%s/%s", cwd, path) < 0)
			*ret_path = NULL;
	}
	if (!*ret_path)
		return uc_fail(err, ENOMEM, "directory `%s`", UC_PRINTABLE(path));
	n = strlen(*ret_path);
	while (n > 1 && (*ret_path)[n - 1] == '/')
		(*ret_path)[--n] = '\0';
	return 0;
}

/* A directory of the volume's own, below one that the driver allows. */
static int staging_path(struct csi_cli *cli, const char *id, char **ret_path, struct uc_err *err)
{
	Csi__V1__GetPluginInfoRequest q = CSI__V1__GET_PLUGIN_INFO_REQUEST__INIT;
	cleanup_message ProtobufCMessage *resp = NULL;
	const char *dir = default_staging;
	const Csi__V1__GetPluginInfoResponse *a;
	char hex[UC_SHA256_HEX_SIZE];
	int r;

	if (cli->staging_path)
		return csi_cli_absolute(cli->staging_path, ret_path, err);
	r = csi_cli_call(cli, &csi__v1__identity__descriptor, "GetPluginInfo", &q.base,
			 "asking for the driver's name", &resp, err);
	if (r < 0)
		return r;
	a = (const Csi__V1__GetPluginInfoResponse *)resp;
	for (size_t i = 0; i < a->n_manifest; i++)
		if (strcmp(a->manifest[i]->key, "staging-dir") == 0)
			dir = a->manifest[i]->value;
	uc_sha256_hex(id, strlen(id), hex);
	if (asprintf(ret_path, "%s/%.32s", dir, hex) < 0)
		return uc_fail(err, ENOMEM, "staging path");
	return 0;
}

/* ---------------------------------------------------------------------- steps */

static int node_id(struct csi_cli *cli, char **ret_id, struct uc_err *err)
{
	Csi__V1__NodeGetInfoRequest q = CSI__V1__NODE_GET_INFO_REQUEST__INIT;
	cleanup_message ProtobufCMessage *resp = NULL;
	int r;

	r = csi_cli_call(cli, &csi__v1__node__descriptor, "NodeGetInfo", &q.base,
			 "asking for the node's id", &resp, err);
	if (r < 0)
		return r;
	*ret_id = strdup(((Csi__V1__NodeGetInfoResponse *)resp)->node_id);
	return *ret_id ? 0 : uc_fail(err, ENOMEM, "node id");
}

#define CONTROLLER(c) CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__##c
#define NODE(c) CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__##c

/* Copies a map's entries: each request has a type of its own for them, all of the same layout. */
#define COPY_MAP(type, init, from, n)                                      \
	({                                                                 \
		type **list_ = calloc((n) + 1, sizeof(*list_));            \
		type *entries_ = calloc((n) + 1, sizeof(*entries_));       \
		for (size_t i_ = 0; list_ && entries_ && i_ < (n); i_++) { \
			init(&entries_[i_]);                               \
			entries_[i_].key = (from)[i_]->key;                \
			entries_[i_].value = (from)[i_]->value;            \
			list_[i_] = &entries_[i_];                         \
		}                                                          \
		if (!list_ || !entries_) {                                 \
			free(list_);                                       \
			free(entries_);                                    \
			list_ = NULL;                                      \
		} else if (!(n)) {                                         \
			free(entries_);                                    \
		}                                                          \
		list_;                                                     \
	})

#define FREE_MAP(list)                   \
	do {                             \
		if (list)                \
			free((list)[0]); \
		free(list);              \
	} while (0)

/* What one mount needs to know at every step. */
struct mounting {
	struct csi_cli *cli;
	const Csi__V1__Volume *volume;
	struct csi_cli_capability c;
	char *staging, *target;
	ProtobufCMessage *publish_resp; /* ControllerPublishVolumeResponse, or NULL */
	bool has_stage;
	char doing[200];

	/* How it was before, and how far this mount has come: what to undo if it fails. */
	bool was_attached, was_staged, was_mounted;
	bool attaches, stages, publishes;
};

typedef Csi__V1__ControllerPublishVolumeResponse__PublishContextEntry PublishEntry;

static void publish_context(const struct mounting *m, PublishEntry ***ret_list, size_t *ret_n)
{
	const Csi__V1__ControllerPublishVolumeResponse *a =
		(const Csi__V1__ControllerPublishVolumeResponse *)m->publish_resp;

	*ret_list = a ? a->publish_context : NULL;
	*ret_n = a ? a->n_publish_context : 0;
}

static int attach(struct mounting *m, struct uc_err *err)
{
	Csi__V1__ControllerPublishVolumeRequest q =
		CSI__V1__CONTROLLER_PUBLISH_VOLUME_REQUEST__INIT;
	const Csi__V1__Volume *v = m->volume;
	cleanup_free char *node = NULL;
	int r;

	r = csi_cli_has_controller(m->cli, CONTROLLER(PUBLISH_UNPUBLISH_VOLUME), err);
	if (r <= 0)
		return r;
	r = node_id(m->cli, &node, err);
	if (r < 0)
		return r;
	m->attaches = true;
	q.volume_id = v->volume_id;
	q.node_id = node;
	q.volume_capability = &m->c.capability;
	q.n_volume_context = v->n_volume_context;
	q.volume_context =
		COPY_MAP(Csi__V1__ControllerPublishVolumeRequest__VolumeContextEntry,
			 csi__v1__controller_publish_volume_request__volume_context_entry__init,
			 v->volume_context, v->n_volume_context);
	r = q.volume_context ? csi_cli_call(m->cli, &csi__v1__controller__descriptor,
					    "ControllerPublishVolume", &q.base, m->doing,
					    &m->publish_resp, err)
			     : uc_fail(err, ENOMEM, "%s", m->doing);
	FREE_MAP(q.volume_context);
	return r;
}

static int stage(struct mounting *m, struct uc_err *err)
{
	Csi__V1__NodeStageVolumeRequest q = CSI__V1__NODE_STAGE_VOLUME_REQUEST__INIT;
	cleanup_message ProtobufCMessage *resp = NULL;
	const Csi__V1__Volume *v = m->volume;
	PublishEntry **context;
	size_t n;
	int r;

	r = make_parents(m->staging, err);
	if (r < 0)
		return r;
	if (mkdir(m->staging, 0700) < 0 && errno != EEXIST)
		return uc_fail(err, errno, "make directory `%s`", UC_PRINTABLE(m->staging));
	publish_context(m, &context, &n);
	q.volume_id = v->volume_id;
	q.staging_target_path = m->staging;
	q.volume_capability = &m->c.capability;
	q.n_volume_context = v->n_volume_context;
	q.volume_context = COPY_MAP(Csi__V1__NodeStageVolumeRequest__VolumeContextEntry,
				    csi__v1__node_stage_volume_request__volume_context_entry__init,
				    v->volume_context, v->n_volume_context);
	q.n_publish_context = n;
	q.publish_context = COPY_MAP(
		Csi__V1__NodeStageVolumeRequest__PublishContextEntry,
		csi__v1__node_stage_volume_request__publish_context_entry__init, context, n);
	r = q.volume_context && q.publish_context
		    ? csi_cli_call(m->cli, &csi__v1__node__descriptor, "NodeStageVolume", &q.base,
				   m->doing, &resp, err)
		    : uc_fail(err, ENOMEM, "%s", m->doing);
	FREE_MAP(q.volume_context);
	FREE_MAP(q.publish_context);
	return r;
}

static int publish(struct mounting *m, struct uc_err *err)
{
	Csi__V1__NodePublishVolumeRequest q = CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__INIT;
	cleanup_message ProtobufCMessage *resp = NULL;
	const Csi__V1__Volume *v = m->volume;
	PublishEntry **context;
	size_t n;
	int r;

	r = make_parents(m->target, err);
	if (r < 0)
		return r;
	publish_context(m, &context, &n);
	q.volume_id = v->volume_id;
	if (m->has_stage)
		q.staging_target_path = m->staging;
	q.target_path = m->target;
	q.volume_capability = &m->c.capability;
	q.readonly = m->cli->read_only;
	q.n_volume_context = v->n_volume_context;
	q.volume_context =
		COPY_MAP(Csi__V1__NodePublishVolumeRequest__VolumeContextEntry,
			 csi__v1__node_publish_volume_request__volume_context_entry__init,
			 v->volume_context, v->n_volume_context);
	q.n_publish_context = n;
	q.publish_context = COPY_MAP(
		Csi__V1__NodePublishVolumeRequest__PublishContextEntry,
		csi__v1__node_publish_volume_request__publish_context_entry__init, context, n);
	r = q.volume_context && q.publish_context
		    ? csi_cli_call(m->cli, &csi__v1__node__descriptor, "NodePublishVolume", &q.base,
				   m->doing, &resp, err)
		    : uc_fail(err, ENOMEM, "%s", m->doing);
	FREE_MAP(q.volume_context);
	FREE_MAP(q.publish_context);
	return r;
}

/* ---------------------------------------------------------------- and their undoing */

static int unpublish(struct csi_cli *cli, const char *id, const char *target, const char *doing,
		     struct uc_err *err)
{
	Csi__V1__NodeUnpublishVolumeRequest q = CSI__V1__NODE_UNPUBLISH_VOLUME_REQUEST__INIT;
	cleanup_message ProtobufCMessage *resp = NULL;

	q.volume_id = (char *)(uintptr_t)id;
	q.target_path = (char *)(uintptr_t)target;
	return csi_cli_call(cli, &csi__v1__node__descriptor, "NodeUnpublishVolume", &q.base, doing,
			    &resp, err);
}

static int unstage(struct csi_cli *cli, const char *id, const char *staging, const char *doing,
		   struct uc_err *err)
{
	Csi__V1__NodeUnstageVolumeRequest q = CSI__V1__NODE_UNSTAGE_VOLUME_REQUEST__INIT;
	cleanup_message ProtobufCMessage *resp = NULL;
	int r;

	r = csi_cli_has_node(cli, NODE(STAGE_UNSTAGE_VOLUME), err);
	if (r <= 0)
		return r;
	q.volume_id = (char *)(uintptr_t)id;
	q.staging_target_path = (char *)(uintptr_t)staging;
	r = csi_cli_call(cli, &csi__v1__node__descriptor, "NodeUnstageVolume", &q.base, doing,
			 &resp, err);
	if (r == 0)
		(void)rmdir(staging);
	return r;
}

static int detach(struct csi_cli *cli, const char *id, const char *doing, struct uc_err *err)
{
	Csi__V1__ControllerUnpublishVolumeRequest q =
		CSI__V1__CONTROLLER_UNPUBLISH_VOLUME_REQUEST__INIT;
	cleanup_message ProtobufCMessage *resp = NULL;
	cleanup_free char *node = NULL;
	int r;

	r = csi_cli_has_controller(cli, CONTROLLER(PUBLISH_UNPUBLISH_VOLUME), err);
	if (r <= 0)
		return r;
	r = node_id(cli, &node, err);
	if (r < 0)
		return r;
	q.volume_id = (char *)(uintptr_t)id;
	q.node_id = node;
	return csi_cli_call(cli, &csi__v1__controller__descriptor, "ControllerUnpublishVolume",
			    &q.base, doing, &resp, err);
}

/* ---------------------------------------------------------------------- mount */

struct place {
	const char *path;
	bool is_mount;
};

static int note_place(void *data, const struct uc_mount_info *info)
{
	struct place *p = data;

	p->is_mount |= strcmp(info->target, p->path) == 0;
	return p->is_mount;
}

static bool is_mount(const char *path)
{
	struct place p = { .path = path };

	return uc_mount_each(note_place, &p, NULL) >= 0 && p.is_mount;
}

/* Where the plugin does not tell, it may be attached for somebody else, and stays so. */
static int look_before(struct mounting *m, char *const *nodes, size_t n, struct uc_err *err)
{
	cleanup_free char *node = NULL;
	int r;

	m->was_mounted = is_mount(m->target);
	m->was_staged = is_mount(m->staging);
	r = csi_cli_has_controller(m->cli, CONTROLLER(LIST_VOLUMES_PUBLISHED_NODES), err);
	if (r > 0)
		r = node_id(m->cli, &node, err);
	else
		m->was_attached = true;
	for (size_t i = 0; node && i < n; i++)
		m->was_attached |= strcmp(nodes[i], node) == 0;
	return r < 0 ? r : 0;
}

/* Positive: it is in use elsewhere. */
static int undo(struct mounting *m, struct uc_err *err)
{
	struct csi_cli *cli = m->cli;
	const char *id = m->volume->volume_id;
	int r = 0;

	cli->end_ms = uc_now_ms() + UNDO_MS;
	if (m->publishes && !m->was_mounted && is_mount(m->target))
		r = unpublish(cli, id, m->target, m->doing, err);
	if (r == 0 && m->stages && !m->was_staged)
		r = unstage(cli, id, m->staging, m->doing, err);
	if (r == 0 && m->attaches && !m->was_attached && !m->was_staged)
		r = detach(cli, id, m->doing, err);
	return r;
}

static int mount_at(struct mounting *m, struct uc_err *err)
{
	struct uc_err why = { .num = 0 };
	size_t n;
	int r;

	r = csi_cli_has_node(m->cli, NODE(STAGE_UNSTAGE_VOLUME), err);
	if (r < 0)
		return r;
	m->has_stage = r > 0;
	r = attach(m, err);
	if (r == 0 && m->has_stage) {
		m->stages = true;
		r = stage(m, err);
	}
	if (r == 0) {
		m->publishes = true;
		r = publish(m, err);
	}
	csi_cli_freep(&m->publish_resp);
	if (r < 0 && undo(m, &why) < 0) {
		n = strlen(err->msg);
		snprintf(err->msg + n, sizeof(err->msg) - n, "; this is not wholly undone: %s",
			 why.msg);
	}
	return r;
}

int csi_cli_mount(struct csi_cli *cli, struct uc_err *err)
{
	cleanup_message ProtobufCMessage *found = NULL;
	cleanup_free char *staging = NULL, *target = NULL;
	struct mounting m = { .cli = cli };
	char text[PATH_MAX + 300], **nodes = NULL;
	size_t n = 0;
	int r;

	snprintf(m.doing, sizeof(m.doing), "mounting `%.140s`", cli->args[0]);
	r = csi_cli_capability(cli, &m.c, err);
	if (r == 0)
		r = csi_cli_absolute(cli->args[1], &target, err);
	if (r == 0)
		r = csi_cli_find(cli, cli->args[0], &found, &m.volume, &nodes, &n, err);
	if (r == 0)
		r = staging_path(cli, cli->args[0], &staging, err);
	if (r < 0)
		return r;
	m.staging = staging;
	m.target = target;
	r = look_before(&m, nodes, n, err);
	if (r == 0)
		r = mount_at(&m, err);
	if (r < 0)
		return r;
	snprintf(text, sizeof(text), "mounted %s at %s\n", UC_PRINTABLE(cli->args[0]), target);
	return csi_cli_print(cli,
			     json_pack("{s:s, s:s}", "mounted", cli->args[0], "directory", target),
			     text, err);
}

/* --------------------------------------------------------------------- umount */

/* Which mounts of one filesystem there are, beside the staging path and what belongs to the driver.
 */
struct others {
	dev_t dev;
	const char *staging, *target;
	char *found; /* first other place; owned */
	char *id;    /* source of the mount at the target, if it is one of our unions; owned */
	bool has_dev, is_mount; /* of the target */
};

static int note_target(void *data, const struct uc_mount_info *info)
{
	struct others *o = data;

	if (strcmp(info->target, o->target) != 0)
		return 0;
	o->dev = info->dev;
	o->has_dev = o->is_mount = true;
	if (strcmp(info->fstype, "fuse.union-fs") == 0)
		o->id = strdup(info->source);
	return 1;
}

static int note_staging(void *data, const struct uc_mount_info *info)
{
	struct others *o = data;

	if (strcmp(info->target, o->staging) != 0)
		return 0;
	o->dev = info->dev;
	o->has_dev = true;
	return 1;
}

static int note_other(void *data, const struct uc_mount_info *info)
{
	struct others *o = data;

	if (info->dev != o->dev || strcmp(info->target, o->staging) == 0 ||
	    strcmp(info->target, o->target) == 0 || uc_str_has_suffix(info->target, "/merged"))
		return 0;
	o->found = strdup(info->target);
	return 1;
}

/* The rest of it, once the target is free; positive: the volume is still in use elsewhere. */
static int release(struct csi_cli *cli, const char *id, const char *staging, const char *doing,
		   struct others *o, struct uc_err *err)
{
	int r = 0;

	/* Other drivers may unstage what is still published; ours refuses to. */
	if (!o->has_dev)
		r = uc_mount_each(note_staging, o, err);
	if (r >= 0 && o->has_dev)
		r = uc_mount_each(note_other, o, err);
	if (r != 0)
		return r;
	r = unstage(cli, id, staging, doing, err);
	return r == 0 ? detach(cli, id, doing, err) : r;
}

int csi_cli_umount(struct csi_cli *cli, struct uc_err *err)
{
	cleanup_free char *target = NULL, *staging = NULL;
	struct others o = { .has_dev = false };
	const char *id;
	char text[PATH_MAX + 600], doing[200];
	int r;

	r = csi_cli_absolute(cli->args[cli->n_args - 1], &target, err);
	if (r < 0)
		return r;
	o.target = target;
	r = uc_mount_each(note_target, &o, err);
	if (r < 0)
		return r;
	id = cli->n_args == 2 ? cli->args[0] : o.id;
	if (!id)
		return uc_fail_as(err, EINVAL, 0,
				  "`%s` does not tell which volume it is: umount ID %s",
				  UC_PRINTABLE(target), UC_PRINTABLE(target));
	snprintf(doing, sizeof(doing), "unmounting `%.140s`", id);
	r = staging_path(cli, id, &staging, err);
	o.staging = staging;
	if (r == 0)
		r = unpublish(cli, id, target, doing, err);
	/* What refuses the directory need not keep the volume: it is not there. */
	if (r == -EPROTO && !o.is_mount &&
	    (err->status == UC_GRPC_INVALID_ARGUMENT || err->status == UC_GRPC_FAILED_PRECONDITION))
		r = 0;
	if (r == 0)
		r = release(cli, id, staging, doing, &o, err);
	if (r >= 0) {
		snprintf(text, sizeof(text), "unmounted %s from %s%s\n", UC_PRINTABLE(id), target,
			 r > 0 ? "; it is still in use elsewhere" : "");
		r = csi_cli_print(cli,
				  json_pack("{s:s, s:s, s:b}", "unmounted", id, "directory", target,
					    "stillInUse", r > 0),
				  text, err);
	}
	free(o.found);
	free(o.id);
	return r;
}
