/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The driver's command line and environment. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/log.h"

#define CSI_DRIVER_NAME "union.csi.union.io"
#define CSI_ENDPOINT "unix:///run/union-csi/csi.sock"
#define CSI_STATE_DIR "/var/lib/union-csi"
#define CSI_KUBELET_DIR "/var/lib/kubelet"

/** struct csi_options - checked; strings are owned */
struct csi_options {
	bool has_controller, has_node; /* of --mode */
	char *endpoint;                /* path of the socket */
	char *driver_name;
	char *node_id;
	char *state_dir;
	char *kubelet_dir;
	char **mount_roots; /* further directories below which targets may lie; ended by NULL, or
			       NULL */
	char **pools;       /* ended by NULL, or NULL */
	bool thin;
	char *union_fs;          /* program */
	char *http_endpoint;     /* or NULL: off */
	char *registration_path; /* --kubelet-registration-path, or NULL: off */
	char *registration_dir;
	unsigned workers;
	uint64_t hang_ms;
	enum uc_log_level log_level;
	enum uc_log_format log_format;
};

/** csi_options_done() - Release; zeroed ones are allowed */
void csi_options_done(struct csi_options *o);

enum csi_options_result {
	CSI_OPTIONS_RUN = 0,
	CSI_OPTIONS_EXIT = 1, /* --help or --version has been printed */
};

/**
 * csi_options_parse() - Read the command line
 * @argc, @argv: Of the program, or of its subcommand (argv[0] is not looked at)
 * @ret:	Result; release with csi_options_done() in any case
 * @err:	What is wrong, naming the option and the value
 *
 * Return: enum csi_options_result, or -EINVAL
 */
int csi_options_parse(int argc, char **argv, struct csi_options *ret, struct uc_err *err);

/** csi_endpoint_path() - The path in "unix:///path", "unix:path" or "/path"; NULL for anything else
 * (points into @endpoint) */
const char *csi_endpoint_path(const char *endpoint);
