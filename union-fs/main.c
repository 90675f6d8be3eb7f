/* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

#include "union-fs/cmd.h"

int main(int argc, char **argv)
{
	const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
	const char *name = slash ? slash + 1 : argc > 0 ? argv[0] : "union-fs";

	if (strcmp(name, "gogomergerfs") == 0)
		return ufs_cmd_gogo(argc, argv);
	if (argc >= 2 && strcmp(argv[1], "serve") == 0)
		return ufs_cmd_serve(argc - 1, argv + 1);
	return ufs_cmd_mount(argc, argv);
}
