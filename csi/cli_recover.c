/* SPDX-License-Identifier: Apache-2.0 */

/* union-csi recover: rebuild a lost state directory from what lies beside the branches. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csi/cli.h"
#include "csi/local_recover.h"
#include "csi/options.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/base/size.h"
#include "lib/base/str.h"
#include "lib/base/uuid.h"

static const char help[] =
	"usage: union-csi recover --pool=DIR[,DIR...] [--state-dir=DIR] [--write] [-o text|json]\n"
	"       union-csi recover --forget-pool=UUID [--state-dir=DIR] [-o text|json]\n"
	"\n"
	"Lists the volumes whose branches lie in the pools and whose state is not in the state\n"
	"directory, or damaged. With --write the state of those that are complete is written\n"
	"again; a damaged one is kept as state.json.bad. Nothing in the pools is changed, and no\n"
	"directory becomes a pool. The driver must not run meanwhile on the same state directory.\n"
	"\n"
	"With --forget-pool, a pool whose disk is gone for good is forgotten: an empty disk in "
	"its\n"
	"place becomes a new pool. It is refused while a volume has a branch there.\n";

struct recover {
	bool write, json;
	const char *forget; /* UUID of a pool, or NULL */
	struct csi_options options;
};

/* The value of option @name, where @argv[*i] is it: "--name=V", "--name V", "-nV" or "-n V". */
static const char *value_of(const char *name, char **argv, int *i)
{
	const char *arg = argv[*i];
	size_t n = strlen(name);

	if (strncmp(arg, name, n) != 0)
		return NULL;
	if (!arg[n])
		return argv[*i + 1] ? argv[++*i] : "";
	if (name[1] != '-')
		return arg + n;
	return arg[n] == '=' ? arg + n + 1 : NULL;
}

static int set_format(struct recover *r, const char *value, struct uc_err *err)
{
	r->json = strcmp(value, "json") == 0;
	if (!r->json && strcmp(value, "text") != 0)
		return uc_fail_as(err, EINVAL, 0, "-o `%s` is not text or json",
				  UC_PRINTABLE(value));
	return 0;
}

static int set_forget(struct recover *r, const char *value, struct uc_err *err)
{
	r->forget = value;
	if (!uc_uuid_is_valid(value))
		return uc_fail_as(err, EINVAL, 0, "--forget-pool `%s` is not a pool's UUID",
				  UC_PRINTABLE(value));
	return 0;
}

/* Takes our own options out of @argv and leaves the driver's.  Positive: there is nothing to do. */
static int parse(struct recover *r, int argc, char **argv, struct uc_err *err)
{
	int n = 1, k = 0;

	for (int i = 1; i < argc && k == 0; i++) {
		const char *value;

		if (strcmp(argv[i], "--write") == 0)
			r->write = true;
		else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			k = fputs(help, stdout) < 0 ? -EIO : 1;
		else if ((value = value_of("-o", argv, &i)) ||
			 (value = value_of("--output", argv, &i)))
			k = set_format(r, value, err);
		else if ((value = value_of("--forget-pool", argv, &i)))
			k = set_forget(r, value, err);
		else
			argv[n++] = argv[i];
	}
	if (k != 0)
		return k;
	argv[n] = NULL;
	k = csi_options_parse(n, argv, &r->options, err);
	if (k == 0 && !r->options.pools && !r->forget)
		k = uc_fail_as(err, EINVAL, 0, "--pool is missing");
	return k;
}

static json_t *to_json(const struct csi_recovery *item, bool written)
{
	return json_pack("{s:s, s:I, s:I, s:I, s:b, s:s*, s:s*}", "id", item->id, "capacity",
			 (json_int_t)item->capacity, "branches", (json_int_t)item->n_branches,
			 "found", (json_int_t)item->n_found, "recovered", written && !item->problem,
			 "damage", item->damage, "problem", item->problem);
}

static int print(const struct recover *r, const struct csi_recovery_list *list)
{
	cleanup_json json_t *array = json_array(), *object = NULL;
	char size[UC_SIZE_TEXT_MAX];
	int problems = 0;

	for (size_t i = 0; i < list->n; i++) {
		const struct csi_recovery *item = &list->items[i];

		problems += item->problem != NULL;
		json_array_append_new(array, to_json(item, r->write));
		if (!r->json)
			printf("%-44s %12s  %zu of %zu branches: %s%s%s%s\n", item->id,
			       uc_size_format(item->capacity, size), item->n_found,
			       item->n_branches, item->damage ? "its state is damaged (" : "",
			       item->damage ? item->damage : "", item->damage ? "): " : "",
			       item->problem ? item->problem
			       : r->write    ? "recovered"
					     : "can be recovered");
	}
	if (r->json) {
		object = json_pack("{s:O}", "volumes", array);
		json_dumpf(object, stdout, JSON_INDENT(2));
		putchar('\n');
	} else if (!list->n) {
		puts("every volume in the pools has its state");
	}
	return problems;
}

/* With @write the state of what can be recovered is written; else nothing is. */
static int find(const struct csi_options *o, bool write, struct csi_recovery_list *ret_list,
		struct uc_err *err)
{
	cleanup_with(csi_pools_freep) struct csi_pools *pools = NULL;
	struct uc_store store = UC_STORE_INIT;
	int r;

	r = write ? uc_store_open(o->state_dir, &store, err)
		  : uc_store_look(o->state_dir, &store, err);
	if (r == 0)
		r = csi_pools_new(o->pools, &store, write ? CSI_POOLS_RECORD : CSI_POOLS_LOOK,
				  &pools, err);
	if (r == 0)
		r = csi_local_find_orphans(pools, &store, write, ret_list, err);
	uc_store_close(&store);
	return r;
}

static bool is_any_recoverable(const struct csi_recovery_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		if (!list->items[i].problem)
			return true;
	return false;
}

/* Writes only where a look has found something to write. */
static int run(const struct recover *recover, struct csi_recovery_list *ret_list,
	       struct uc_err *err)
{
	int r = find(&recover->options, false, ret_list, err);

	if (r < 0 || !recover->write || !is_any_recoverable(ret_list))
		return r;
	csi_recovery_list_done(ret_list);
	return find(&recover->options, true, ret_list, err);
}

static int forget(const struct recover *recover, struct uc_err *err)
{
	cleanup_with(csi_pools_freep) struct csi_pools *pools = NULL;
	static char *const none[] = { NULL };
	struct uc_store store = UC_STORE_INIT;
	int r;

	r = uc_store_look(recover->options.state_dir, &store, err);
	if (r == 0)
		r = csi_pools_new(none, &store, CSI_POOLS_RECORD, &pools, err);
	if (r == 0)
		r = csi_local_forget_pool(pools, &store, recover->forget, err);
	uc_store_close(&store);
	if (r == 0)
		printf(recover->json ? "{\n  \"forgotten\": \"%s\"\n}\n" : "forgotten %s\n",
		       recover->forget);
	return r;
}

int csi_cli_recover(int argc, char **argv)
{
	struct recover recover = { .write = false };
	struct csi_recovery_list list = { .n = 0 };
	struct uc_err err = { .num = 0 };
	int r, status = EXIT_SUCCESS;

	uc_log_init(UC_LOG_WARN, UC_LOG_TEXT);
	r = parse(&recover, argc, argv, &err);
	if (r < 0) {
		fprintf(stderr, "union-csi: %s (see union-csi recover --help)\n", err.msg);
		status = 2;
	} else if (r == 0) {
		r = recover.forget ? forget(&recover, &err) : run(&recover, &list, &err);
		if (r < 0)
			fprintf(stderr, "union-csi: %s\n", err.msg);
		if (r < 0 || (!recover.forget && print(&recover, &list) > 0))
			status = EXIT_FAILURE;
	}
	csi_recovery_list_done(&list);
	csi_options_done(&recover.options);
	return status;
}
