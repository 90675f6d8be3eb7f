/* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

#include "lib/base/macros.h"
#include "union-fs/cmd.h"

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "serve", ufs_cmd_serve },
	{ "status", ufs_cmd_status },
	{ "where", ufs_cmd_where },
};

int main(int argc, char **argv)
{
	const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
	const char *name = slash ? slash + 1 : argc > 0 ? argv[0] : "union-fs";

	if (strcmp(name, "gogomergerfs") == 0)
		return ufs_cmd_gogo(argc, argv);
	for (size_t i = 0; argc >= 2 && i < ARRAY_SIZE(commands); i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	return ufs_cmd_mount(argc, argv);
}
