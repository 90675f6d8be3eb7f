/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * `union-csi volume …`: a CSI client for people.
 *
 * It speaks plain CSI, so it works with any driver's socket.  Results go to
 * standard output, as text or as JSON; progress and errors to standard error,
 * an error in JSON to standard output.  Exit status: 0 done, 1 failed, 2 usage.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "csi.pb-c.h"
#include "lib/base/err.h"
#include "lib/rpc/client.h"

/** struct csi_cli - one invocation */
struct csi_cli {
	struct uc_client *client;
	const char *endpoint;
	bool json;
	uint64_t timeout_ms; /* of the whole command */
	uint64_t end_ms;     /* when it is over */

	/* Options of the commands; those that a command does not know are refused. */
	uint64_t size; /* 0: not given */
	const char *fs_type, *access_mode;
	const char **params; /* "key=value" */
	size_t n_params;
	char **mount_flags;
	size_t n_mount_flags;
	bool read_only;
	const char *staging_path;

	/* What the command was given. */
	char **args;
	int n_args;

	const char *doing; /* for the progress line */
	uint64_t begin_ms; /* when that began */
	bool shows_progress;
};

/** csi_cli_volume() - Run `union-csi volume ARGS`; returns the exit status */
int csi_cli_volume(int argc, char **argv);

/** csi_cli_recover() - Run `union-csi recover ARGS`; returns the exit status */
int csi_cli_recover(int argc, char **argv);

/**
 * csi_cli_call() - Make a call, again and again while the driver says that it works on it
 * @doing:	e.g. "creating `v1`", for the progress line and the error
 *
 * ABORTED and UNAVAILABLE are retried, as a CO does, until the command's time is over.
 *
 * Return: 0 or a negative errno
 */
int csi_cli_call(struct csi_cli *cli, const ProtobufCServiceDescriptor *desc, const char *method,
		 const ProtobufCMessage *req, const char *doing, ProtobufCMessage **ret_resp,
		 struct uc_err *err);

/** csi_cli_has_controller() - 1 if the plugin advertises a capability of its controller, 0, or a
 * negative errno */
int csi_cli_has_controller(struct csi_cli *cli, int type, struct uc_err *err);

/** csi_cli_has_node() - The same of its node */
int csi_cli_has_node(struct csi_cli *cli, int type, struct uc_err *err);

/**
 * csi_cli_capability() - The volume capability that the options ask for
 * @ret:	Result; its pointers lead into @parts and @cli
 */
struct csi_cli_capability {
	Csi__V1__VolumeCapability capability;
	Csi__V1__VolumeCapability__MountVolume mount;
	Csi__V1__VolumeCapability__AccessMode mode;
};
int csi_cli_capability(const struct csi_cli *cli, struct csi_cli_capability *ret,
		       struct uc_err *err);

/**
 * csi_cli_find() - Look a volume up
 * @ret_resp:	Response that @ret_volume lies in; free with protobuf_c_message_free_unpacked()
 * @ret_nodes:	Its published nodes, or NULL where the plugin does not tell
 *
 * Return: 0, -ENOENT, another negative errno
 */
int csi_cli_find(struct csi_cli *cli, const char *id, ProtobufCMessage **ret_resp,
		 const Csi__V1__Volume **ret_volume, char ***ret_nodes, size_t *ret_n_nodes,
		 struct uc_err *err);

/** csi_cli_absolute() - A path as the driver needs it: absolute, without trailing slashes; owned by
 * the caller */
int csi_cli_absolute(const char *path, char **ret_path, struct uc_err *err);

/** csi_cli_print() - Print a result: the JSON (a reference is taken), or the text */
int csi_cli_print(const struct csi_cli *cli, json_t *object, const char *text, struct uc_err *err);

/*
 * The commands: 0 or a negative errno.
 */
int csi_cli_create(struct csi_cli *cli, struct uc_err *err);
int csi_cli_list(struct csi_cli *cli, struct uc_err *err);
int csi_cli_show(struct csi_cli *cli, struct uc_err *err);
int csi_cli_mount(struct csi_cli *cli, struct uc_err *err);
int csi_cli_umount(struct csi_cli *cli, struct uc_err *err);
int csi_cli_delete(struct csi_cli *cli, struct uc_err *err);

static inline void csi_cli_freep(ProtobufCMessage **message)
{
	if (*message)
		protobuf_c_message_free_unpacked(*message, NULL);
}

#define cleanup_message __attribute__((cleanup(csi_cli_freep)))
