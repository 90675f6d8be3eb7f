/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csi/cli.h"
#include "csi/options.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/size.h"
#include "lib/base/str.h"
#include "lib/os/clock.h"

static const char help[] =
	"usage: union-csi volume COMMAND [OPTION]... [ARGUMENT]...\n"
	"\n"
	"  create NAME --size=SIZE        make a volume\n"
	"  list                           list the volumes\n"
	"  show ID [DIRECTORY]            describe a volume, and its usage as NodeGetVolumeStats "
	"gives it\n"
	"  mount ID DIRECTORY             have a volume at a directory of this machine\n"
	"  umount [ID] DIRECTORY          and take it away again\n"
	"  delete ID                      remove a volume and what it holds\n"
	"\n"
	"  --endpoint=unix:///PATH        the driver's socket (default " CSI_ENDPOINT ";\n"
	"                                 environment: CSI_ENDPOINT)\n"
	"  -o, --output=text|json         (default text)\n"
	"  --timeout=SECONDS              (default 300)\n"
	"  --size=SIZE                    create: bytes, or 10Gi, 1.6GiB, 500M ...\n"
	"  --fs-type=TYPE                 create, mount: ext4, xfs or btrfs (default: the "
	"driver's)\n"
	"  --param=KEY=VALUE              create: a parameter, as in a StorageClass; may be "
	"repeated\n"
	"  --access-mode=MODE             create, mount: e.g. SINGLE_NODE_WRITER (the default)\n"
	"  --mount-flag=FLAG              mount: e.g. noatime; may be repeated\n"
	"  --read-only                    mount: for reading only\n"
	"  --staging-path=DIRECTORY       mount, umount: where the driver stages the volume\n"
	"                                 (default: a directory that the driver names)\n";

enum option_id {
	OPT_ENDPOINT = 256,
	OPT_TIMEOUT,
	OPT_SIZE,
	OPT_FS_TYPE,
	OPT_PARAM,
	OPT_ACCESS_MODE,
	OPT_MOUNT_FLAG,
	OPT_READ_ONLY,
	OPT_STAGING_PATH,
};

static const struct option options[] = {
	{ "endpoint", required_argument, NULL, OPT_ENDPOINT },
	{ "output", required_argument, NULL, 'o' },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "size", required_argument, NULL, OPT_SIZE },
	{ "fs-type", required_argument, NULL, OPT_FS_TYPE },
	{ "param", required_argument, NULL, OPT_PARAM },
	{ "access-mode", required_argument, NULL, OPT_ACCESS_MODE },
	{ "mount-flag", required_argument, NULL, OPT_MOUNT_FLAG },
	{ "read-only", no_argument, NULL, OPT_READ_ONLY },
	{ "staging-path", required_argument, NULL, OPT_STAGING_PATH },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

/* Bits of the options that a command understands. */
#define BIT(opt) (1U << ((opt)-OPT_SIZE))

static const struct command {
	const char *name;
	int (*run)(struct csi_cli *cli, struct uc_err *err);
	int min_args, max_args;
	unsigned options;
} commands[] = {
	{ "create", csi_cli_create, 1, 1,
	  BIT(OPT_SIZE) | BIT(OPT_FS_TYPE) | BIT(OPT_PARAM) | BIT(OPT_ACCESS_MODE) },
	{ "list", csi_cli_list, 0, 0, 0 },
	{ "show", csi_cli_show, 1, 2, 0 },
	{ "mount", csi_cli_mount, 2, 2,
	  BIT(OPT_FS_TYPE) | BIT(OPT_ACCESS_MODE) | BIT(OPT_MOUNT_FLAG) | BIT(OPT_READ_ONLY) |
		  BIT(OPT_STAGING_PATH) },
	{ "umount", csi_cli_umount, 1, 2, BIT(OPT_STAGING_PATH) },
	{ "delete", csi_cli_delete, 1, 1, 0 },
};

static int usage(struct uc_err *err, const char *what, const char *value)
{
	return uc_fail_as(err, EINVAL, 0, "%s `%s` (see union-csi volume --help)", what,
			  UC_PRINTABLE(value));
}

static int push(const char ***list, size_t *n, const char *s)
{
	const char **grown = reallocarray(*list, *n + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	grown[(*n)++] = s;
	*list = grown;
	return 0;
}

static int take(struct csi_cli *cli, int c, const char *value, struct uc_err *err)
{
	uint64_t v;

	switch (c) {
	case OPT_ENDPOINT:
		cli->endpoint = value;
		break;
	case 'o':
		if (strcmp(value, "json") != 0 && strcmp(value, "text") != 0)
			return usage(err, "--output is text or json, not", value);
		cli->json = strcmp(value, "json") == 0;
		break;
	case OPT_TIMEOUT:
		if (uc_str_parse_u64(value, 86400, &v) < 0 || v == 0)
			return usage(err, "--timeout is a number of seconds, not", value);
		cli->timeout_ms = v * 1000;
		break;
	case OPT_SIZE:
		if (uc_size_parse(value, &cli->size, err) < 0 || cli->size == 0)
			return usage(err, "--size is a number of bytes or like 10Gi, not", value);
		break;
	case OPT_FS_TYPE:
		cli->fs_type = value;
		break;
	case OPT_PARAM:
		if (!strchr(value, '=') || *value == '=')
			return usage(err, "--param is KEY=VALUE, not", value);
		return push(&cli->params, &cli->n_params, value);
	case OPT_ACCESS_MODE:
		cli->access_mode = value;
		break;
	case OPT_MOUNT_FLAG:
		return push((const char ***)(void *)&cli->mount_flags, &cli->n_mount_flags, value);
	case OPT_READ_ONLY:
		cli->read_only = true;
		break;
	case OPT_STAGING_PATH:
		cli->staging_path = value;
		break;
	default:
		break;
	}
	return 0;
}

/* Errors of the command line itself are to be in the format that it asks for. */
static bool wants_json(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *next = i + 1 < argc ? argv[i + 1] : "";

		if (strcmp(argv[i], "-ojson") == 0 || strcmp(argv[i], "--output=json") == 0 ||
		    ((strcmp(argv[i], "-o") == 0 || strcmp(argv[i], "--output") == 0) &&
		     strcmp(next, "json") == 0))
			return true;
	}
	return false;
}

/* Positive: help has been printed. */
static int parse(struct csi_cli *cli, int argc, char **argv, const struct command **ret_command,
		 struct uc_err *err)
{
	struct csi_cli_capability capability;
	unsigned given = 0;
	int c, r;

	cli->json = wants_json(argc, argv);
	optind = 0;
	opterr = 0;
	while ((c = getopt_long(argc, argv, ":o:h", options, NULL)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return 1;
		}
		if (c == '?' || c == ':')
			return usage(err,
				     c == '?' ? "there is no option" : "a value is missing behind",
				     argv[optind - 1]);
		if (c >= OPT_SIZE)
			given |= BIT(c);
		r = take(cli, c, optarg, err);
		if (r < 0)
			return r;
	}
	if (optind == argc)
		return uc_fail_as(err, EINVAL, 0, "what to do? (see union-csi volume --help)");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i].name, argv[optind]) == 0)
			*ret_command = &commands[i];
	if (!*ret_command)
		return usage(err, "there is no command", argv[optind]);
	cli->args = argv + optind + 1;
	cli->n_args = argc - optind - 1;
	if (cli->n_args < (*ret_command)->min_args || cli->n_args > (*ret_command)->max_args)
		return usage(err, "wrong number of arguments for", (*ret_command)->name);
	for (int opt = OPT_SIZE; opt <= OPT_STAGING_PATH; opt++)
		if ((given & BIT(opt)) && !((*ret_command)->options & BIT(opt)))
			return uc_fail_as(err, EINVAL, 0, "%s has no option --%s",
					  (*ret_command)->name,
					  options[opt - OPT_ENDPOINT + 1].name);
	if (!csi_endpoint_path(cli->endpoint))
		return uc_fail_as(
			err, EINVAL, 0,
			"--endpoint (CSI_ENDPOINT) `%s` is not of the form unix:///absolute/path",
			UC_PRINTABLE(cli->endpoint));
	if ((*ret_command)->options & BIT(OPT_SIZE) && !cli->size)
		return uc_fail_as(err, EINVAL, 0, "%s needs --size", (*ret_command)->name);
	return csi_cli_capability(cli, &capability, err);
}

/* -------------------------------------------------------------------- calling */

static void show_progress(void *data, uint64_t call_ms)
{
	struct csi_cli *cli = data;
	uint64_t ms = uc_now_ms() - cli->begin_ms; /* calls that are retried are one wait */

	(void)call_ms;
	if (ms < 1000 || !isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r\033[K%s … %llu s", cli->doing, (unsigned long long)(ms / 1000));
	cli->shows_progress = true;
}

static void end_progress(struct csi_cli *cli)
{
	if (cli->shows_progress)
		fprintf(stderr, "\r\033[K");
	cli->shows_progress = false;
}

/* A CO tries these again: the driver works on it, or cannot be reached for a moment. */
static bool is_pending(const struct uc_err *err)
{
	return err->status == UC_GRPC_ABORTED || err->status == UC_GRPC_UNAVAILABLE;
}

int csi_cli_call(struct csi_cli *cli, const ProtobufCServiceDescriptor *desc, const char *method,
		 const ProtobufCMessage *req, const char *doing, ProtobufCMessage **ret_resp,
		 struct uc_err *err)
{
	uint64_t pause = 100;
	int r;

	cli->doing = doing;
	cli->begin_ms = uc_now_ms();
	for (;;) {
		uint64_t now = uc_now_ms();

		if (now >= cli->end_ms)
			return uc_fail_as(err, ETIMEDOUT, UC_GRPC_DEADLINE_EXCEEDED,
					  "%s takes more than %llu s", doing,
					  (unsigned long long)(cli->timeout_ms / 1000));
		r = uc_client_call(cli->client, desc, method, req, cli->end_ms - now, ret_resp,
				   err);
		if (r != -EPROTO || !is_pending(err))
			end_progress(cli);
		if (r == 0)
			return 0;
		if (r != -EPROTO || !is_pending(err) || uc_now_ms() + pause >= cli->end_ms) {
			end_progress(cli);
			return uc_wrap(err, r, "%s: %s", doing, uc_grpc_status_to_str(err->status));
		}
		show_progress(cli, 0);
		uc_sleep_ms(pause);
		pause = pause < 2000 ? pause * 2 : 2000;
	}
}

int csi_cli_has_controller(struct csi_cli *cli, int type, struct uc_err *err)
{
	Csi__V1__ControllerGetCapabilitiesRequest q =
		CSI__V1__CONTROLLER_GET_CAPABILITIES_REQUEST__INIT;
	cleanup_message ProtobufCMessage *resp = NULL;
	const Csi__V1__ControllerGetCapabilitiesResponse *a;
	int r;

	r = csi_cli_call(cli, &csi__v1__controller__descriptor, "ControllerGetCapabilities",
			 &q.base, "asking for the controller's capabilities", &resp, err);
	if (r == -EPROTO && err->status == UC_GRPC_UNIMPLEMENTED)
		return 0; /* a node without a controller */
	if (r < 0)
		return r;
	a = (const Csi__V1__ControllerGetCapabilitiesResponse *)resp;
	for (size_t i = 0; i < a->n_capabilities; i++)
		if (a->capabilities[i]->rpc && (int)a->capabilities[i]->rpc->type == type)
			return 1;
	return 0;
}

int csi_cli_has_node(struct csi_cli *cli, int type, struct uc_err *err)
{
	Csi__V1__NodeGetCapabilitiesRequest q = CSI__V1__NODE_GET_CAPABILITIES_REQUEST__INIT;
	cleanup_message ProtobufCMessage *resp = NULL;
	const Csi__V1__NodeGetCapabilitiesResponse *a;
	int r;

	r = csi_cli_call(cli, &csi__v1__node__descriptor, "NodeGetCapabilities", &q.base,
			 "asking for the node's capabilities", &resp, err);
	if (r < 0)
		return r;
	a = (const Csi__V1__NodeGetCapabilitiesResponse *)resp;
	for (size_t i = 0; i < a->n_capabilities; i++)
		if (a->capabilities[i]->rpc && (int)a->capabilities[i]->rpc->type == type)
			return 1;
	return 0;
}

int csi_cli_capability(const struct csi_cli *cli, struct csi_cli_capability *ret,
		       struct uc_err *err)
{
	const char *name = cli->access_mode ? cli->access_mode : "SINGLE_NODE_WRITER";
	const ProtobufCEnumValue *mode = protobuf_c_enum_descriptor_get_value_by_name(
		&csi__v1__volume_capability__access_mode__mode__descriptor, name);

	if (!mode)
		return usage(err, "there is no access mode", name);
	csi__v1__volume_capability__init(&ret->capability);
	csi__v1__volume_capability__mount_volume__init(&ret->mount);
	csi__v1__volume_capability__access_mode__init(&ret->mode);
	if (cli->fs_type)
		ret->mount.fs_type = (char *)(uintptr_t)cli->fs_type;
	ret->mount.mount_flags = cli->mount_flags;
	ret->mount.n_mount_flags = cli->n_mount_flags;
	ret->mode.mode = mode->value;
	ret->capability.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
	ret->capability.mount = &ret->mount;
	ret->capability.access_mode = &ret->mode;
	return 0;
}

/* -------------------------------------------------------------------- printing */

int csi_cli_print(const struct csi_cli *cli, json_t *object, const char *text, struct uc_err *err)
{
	cleanup_json json_t *o = object;

	if (!cli->json) {
		fputs(text, stdout);
		return 0;
	}
	if (!o || json_dumpf(o, stdout, JSON_INDENT(2)) < 0)
		return uc_fail(err, ENOMEM, "print the result");
	putchar('\n');
	return 0;
}

static void print_error(const struct csi_cli *cli, const struct uc_err *err)
{
	cleanup_json json_t *o = NULL;

	if (!cli->json) {
		fprintf(stderr, "union-csi: %s\n", err->msg);
		return;
	}
	o = json_pack("{s:{s:s, s:s*}}", "error", "message", err->msg, "status",
		      err->status ? uc_grpc_status_to_str(err->status) : NULL);
	if (o)
		json_dumpf(o, stdout, JSON_INDENT(2));
	putchar('\n');
}

int csi_cli_volume(int argc, char **argv)
{
	const char *endpoint = getenv("CSI_ENDPOINT");
	struct csi_cli cli = {
		.endpoint = endpoint ? endpoint : CSI_ENDPOINT,
		.timeout_ms = 300 * 1000,
	};
	const struct command *command = NULL;
	struct uc_err err = { .num = 0 };
	int r, status = EXIT_SUCCESS;

	signal(SIGPIPE, SIG_IGN);
	uc_log_init(UC_LOG_WARN, UC_LOG_TEXT);
	r = parse(&cli, argc, argv, &command, &err);
	if (r < 0)
		status = 2;
	if (r == 0) {
		cli.end_ms = uc_now_ms() + cli.timeout_ms;
		r = uc_client_open(cli.endpoint, &cli.client, &err);
		if (r == 0) {
			uc_client_set_progress(cli.client, show_progress, &cli);
			r = command->run(&cli, &err);
		}
		if (r < 0)
			status = r == -EINVAL && !err.status ? 2 : EXIT_FAILURE;
	}
	if (r < 0)
		print_error(&cli, &err);
	uc_client_close(cli.client);
	free(cli.params);
	free(cli.mount_flags);
	return status;
}
