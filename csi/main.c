/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "csi/cli.h"
#include "csi/daemon.h"
#include "csi/options.h"

int main(int argc, char **argv)
{
	struct csi_options options;
	struct uc_err err = { .num = 0 };
	int r;

	if (argc > 1 && strcmp(argv[1], "volume") == 0)
		return csi_cli_volume(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "recover") == 0)
		return csi_cli_recover(argc - 1, argv + 1);

	r = csi_options_parse(argc, argv, &options, &err);
	if (r == CSI_OPTIONS_RUN && !options.pools)
		r = uc_fail_as(&err, EINVAL, 0, "--pool is missing: where are the disks?");
	if (r == CSI_OPTIONS_RUN)
		r = csi_daemon_run(&options);
	else if (r == CSI_OPTIONS_EXIT)
		r = 0;
	else
		fprintf(stderr, "union-csi: %s (see union-csi --help)\n", err.msg);
	csi_options_done(&options);
	return r < 0 ? 2 : r;
}
