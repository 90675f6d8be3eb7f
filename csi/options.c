/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "csi/options.h"
#include "lib/base/cleanup.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/base/version.h"

static const char help[] =
	"usage: union-csi [OPTION]...          the CSI driver\n"
	"       union-csi volume COMMAND ...   a client of any CSI driver (union-csi volume "
	"--help)\n"
	"       union-csi recover [OPTION]...  list volumes without state; --write rebuilds their "
	"state\n"
	"\n"
	"  --mode=all|controller|node     services to serve (default all)\n"
	"  --endpoint=unix:///PATH        socket to serve on (default " CSI_ENDPOINT ";\n"
	"                                 environment: CSI_ENDPOINT)\n"
	"  --backend=local                where volumes come from (default local)\n"
	"  --pool=DIR[,DIR...]            directories on this machine's disks that hold the "
	"branches\n"
	"  --thin                         do not reserve the branches' space\n"
	"  --state-dir=DIR                state of the volumes (default " CSI_STATE_DIR ")\n"
	"  --node-id=NAME                 this node (environment: NODE_NAME; default: the host's "
	"name)\n"
	"  --driver-name=NAME             (default " CSI_DRIVER_NAME ")\n"
	"  --kubelet-dir=DIR              staging and target paths lie below it "
	"(default " CSI_KUBELET_DIR ")\n"
	"  --mount-root=DIR[,DIR...]      or below one of these\n"
	"  --union-fs=PROGRAM             the volume server (default: union-fs beside this "
	"program)\n"
	"  --kubelet-registration-path=PATH   register with kubelet; the socket's path as kubelet "
	"sees it\n"
	"  --plugin-registration-dir=DIR  (default DIR/plugins_registry of --kubelet-dir)\n"
	"  --http-endpoint=HOST:PORT      serve /healthz, /readyz and /metrics (default: off)\n"
	"  --workers=N                    threads for requests (default 8)\n"
	"  --hang-timeout=SECONDS         an operation without progress gives its volume up "
	"(default 300)\n"
	"  --log-format=text|json         (default text)\n"
	"  -v, --verbose                  log each step\n"
	"  --version, --help\n";

void csi_options_done(struct csi_options *o)
{
	free(o->endpoint);
	free(o->driver_name);
	free(o->node_id);
	free(o->state_dir);
	free(o->kubelet_dir);
	uc_strv_free(o->mount_roots);
	uc_strv_free(o->pools);
	free(o->union_fs);
	free(o->http_endpoint);
	free(o->registration_path);
	free(o->registration_dir);
	*o = (struct csi_options){ .workers = 0 };
}

const char *csi_endpoint_path(const char *endpoint)
{
	if (uc_str_has_prefix(endpoint, "unix://"))
		endpoint += strlen("unix://");
	else if (uc_str_has_prefix(endpoint, "unix:"))
		endpoint += strlen("unix:");
	return *endpoint == '/' && endpoint[1] ? endpoint : NULL;
}

enum option_id {
	OPT_MODE = 256,
	OPT_ENDPOINT,
	OPT_BACKEND,
	OPT_POOL,
	OPT_THIN,
	OPT_STATE_DIR,
	OPT_NODE_ID,
	OPT_DRIVER_NAME,
	OPT_KUBELET_DIR,
	OPT_MOUNT_ROOT,
	OPT_UNION_FS,
	OPT_REGISTRATION_PATH,
	OPT_REGISTRATION_DIR,
	OPT_HTTP_ENDPOINT,
	OPT_WORKERS,
	OPT_HANG_TIMEOUT,
	OPT_LOG_FORMAT,
	OPT_VERSION,
};

static const struct option options[] = {
	{ "mode", required_argument, NULL, OPT_MODE },
	{ "endpoint", required_argument, NULL, OPT_ENDPOINT },
	{ "backend", required_argument, NULL, OPT_BACKEND },
	{ "pool", required_argument, NULL, OPT_POOL },
	{ "thin", no_argument, NULL, OPT_THIN },
	{ "state-dir", required_argument, NULL, OPT_STATE_DIR },
	{ "node-id", required_argument, NULL, OPT_NODE_ID },
	{ "driver-name", required_argument, NULL, OPT_DRIVER_NAME },
	{ "kubelet-dir", required_argument, NULL, OPT_KUBELET_DIR },
	{ "mount-root", required_argument, NULL, OPT_MOUNT_ROOT },
	{ "union-fs", required_argument, NULL, OPT_UNION_FS },
	{ "kubelet-registration-path", required_argument, NULL, OPT_REGISTRATION_PATH },
	{ "plugin-registration-dir", required_argument, NULL, OPT_REGISTRATION_DIR },
	{ "http-endpoint", required_argument, NULL, OPT_HTTP_ENDPOINT },
	{ "workers", required_argument, NULL, OPT_WORKERS },
	{ "hang-timeout", required_argument, NULL, OPT_HANG_TIMEOUT },
	{ "log-format", required_argument, NULL, OPT_LOG_FORMAT },
	{ "verbose", no_argument, NULL, 'v' },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static int refuse(struct uc_err *err, const char *name, const char *value, const char *what)
{
	return uc_fail_as(err, EINVAL, 0, "--%s `%s` is not %s", name, UC_PRINTABLE(value), what);
}

static int set(char **to, const char *value)
{
	free(*to);
	*to = strdup(value);
	return *to ? 0 : -ENOMEM;
}

static int set_path(char **to, const char *name, const char *value, struct uc_err *err)
{
	if (*value != '/')
		return refuse(err, name, value, "an absolute path");
	return set(to, value);
}

static int set_mode(struct csi_options *o, const char *value, struct uc_err *err)
{
	o->has_controller = strcmp(value, "all") == 0 || strcmp(value, "controller") == 0;
	o->has_node = strcmp(value, "all") == 0 || strcmp(value, "node") == 0;
	return o->has_controller || o->has_node
		       ? 0
		       : refuse(err, "mode", value, "all, controller or node");
}

static int set_endpoint(struct csi_options *o, const char *value, struct uc_err *err)
{
	const char *path = csi_endpoint_path(value);

	return path ? set(&o->endpoint, path)
		    : refuse(err, "endpoint", value, "of the form unix:///absolute/path");
}

/* "a,b" and repeated options add up. */
static int add_list(char ***list, const char *name, const char *value, struct uc_err *err)
{
	cleanup_strv char **parts = NULL;

	if (uc_str_split(value, ',', &parts) < 0)
		return -ENOMEM;
	if (!uc_strv_len(parts))
		return refuse(err, name, value, "a directory");
	for (char **p = parts; *p; p++) {
		if (!**p)
			return refuse(err, name, value, "a list of directories");
		if (uc_strv_push(list, *p) < 0)
			return -ENOMEM;
	}
	return 0;
}

static bool is_label(const char *s, const char *extra, size_t max)
{
	static const char alnum[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	size_t n = strlen(s);

	if (n == 0 || n > max || !strchr(alnum, s[0]) || !strchr(alnum, s[n - 1]))
		return false;
	for (; *s; s++)
		if (!strchr(alnum, *s) && !strchr(extra, *s))
			return false;
	return true;
}

static int set_number(const char *name, const char *value, uint64_t min, uint64_t max,
		      uint64_t *ret_value, struct uc_err *err)
{
	char what[64];

	if (uc_str_parse_u64(value, max, ret_value) == 0 && *ret_value >= min)
		return 0;
	snprintf(what, sizeof(what), "a number within %llu…%llu", (unsigned long long)min,
		 (unsigned long long)max);
	return refuse(err, name, value, what);
}

static int set_log_format(struct csi_options *o, const char *value, struct uc_err *err)
{
	if (strcmp(value, "text") == 0)
		o->log_format = UC_LOG_TEXT;
	else if (strcmp(value, "json") == 0)
		o->log_format = UC_LOG_JSON;
	else
		return refuse(err, "log-format", value, "text or json");
	return 0;
}

static int take_number(struct csi_options *o, int c, const char *value, struct uc_err *err)
{
	uint64_t v = 0;
	int r;

	if (c == OPT_WORKERS) {
		r = set_number("workers", value, 1, 256, &v, err);
		o->workers = (unsigned)v;
	} else {
		r = set_number("hang-timeout", value, 1, 86400, &v, err);
		o->hang_ms = v * 1000;
	}
	return r;
}

static int take(struct csi_options *o, int c, const char *value, struct uc_err *err)
{
	switch (c) {
	case OPT_MODE:
		return set_mode(o, value, err);
	case OPT_ENDPOINT:
		return set_endpoint(o, value, err);
	case OPT_BACKEND:
		return strcmp(value, "local") == 0 ? 0 : refuse(err, "backend", value, "local");
	case OPT_POOL:
		return add_list(&o->pools, "pool", value, err);
	case OPT_THIN:
		o->thin = true;
		return 0;
	case OPT_STATE_DIR:
		return set_path(&o->state_dir, "state-dir", value, err);
	case OPT_NODE_ID:
		return set(&o->node_id, value);
	case OPT_DRIVER_NAME:
		return set(&o->driver_name, value);
	case OPT_KUBELET_DIR:
		return set_path(&o->kubelet_dir, "kubelet-dir", value, err);
	case OPT_MOUNT_ROOT:
		return add_list(&o->mount_roots, "mount-root", value, err);
	case OPT_UNION_FS:
		return set(&o->union_fs, value);
	case OPT_REGISTRATION_PATH:
		return set_path(&o->registration_path, "kubelet-registration-path", value, err);
	case OPT_REGISTRATION_DIR:
		return set_path(&o->registration_dir, "plugin-registration-dir", value, err);
	case OPT_HTTP_ENDPOINT:
		return set(&o->http_endpoint, value);
	case OPT_WORKERS:
	case OPT_HANG_TIMEOUT:
		return take_number(o, c, value, err);
	case OPT_LOG_FORMAT:
		return set_log_format(o, value, err);
	case 'v':
		o->log_level = UC_LOG_DEBUG;
		return 0;
	default:
		return -EINVAL;
	}
}

/* The program that lies beside this one. */
static int beside(const char *name, char **ret_path)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n < 0)
		return -errno;
	self[n] = '\0';
	slash = strrchr(self, '/');
	return asprintf(ret_path, "%.*s/%s", (int)(slash - self), self, name) < 0 ? -ENOMEM : 0;
}

static int fill_defaults(struct csi_options *o)
{
	const char *endpoint = getenv("CSI_ENDPOINT"), *node = getenv("NODE_NAME");
	struct utsname host;
	int r = 0;

	if (!o->endpoint && endpoint && csi_endpoint_path(endpoint))
		r = set(&o->endpoint, csi_endpoint_path(endpoint));
	else if (!o->endpoint && !endpoint)
		r = set(&o->endpoint, csi_endpoint_path(CSI_ENDPOINT));
	if (r == 0 && !o->driver_name)
		r = set(&o->driver_name, CSI_DRIVER_NAME);
	if (r == 0 && !o->state_dir)
		r = set(&o->state_dir, CSI_STATE_DIR);
	if (r == 0 && !o->kubelet_dir)
		r = set(&o->kubelet_dir, CSI_KUBELET_DIR);
	if (r == 0 && !o->node_id) {
		uname(&host);
		r = set(&o->node_id, uc_str_is_empty(node) ? host.nodename : node);
	}
	if (r == 0 && !o->union_fs)
		r = beside("union-fs", &o->union_fs);
	if (r == 0 && !o->registration_dir &&
	    asprintf(&o->registration_dir, "%s/plugins_registry", o->kubelet_dir) < 0)
		r = -ENOMEM;
	return r;
}

static int check(const struct csi_options *o, struct uc_err *err)
{
	if (!o->endpoint)
		return refuse(err, "endpoint (CSI_ENDPOINT)", getenv("CSI_ENDPOINT"),
			      "of the form unix:///absolute/path");
	if (!is_label(o->driver_name, "-.", 63))
		return refuse(err, "driver-name", o->driver_name,
			      "a name of at most 63 of A-Z a-z 0-9 - .");
	if (!is_label(o->node_id, "-_.", 63)) /* a value of a topology segment */
		return refuse(err, "node-id", o->node_id,
			      "a name of at most 63 of A-Z a-z 0-9 - _ .");
	return 0;
}

int csi_options_parse(int argc, char **argv, struct csi_options *ret, struct uc_err *err)
{
	int c, r;

	*ret = (struct csi_options){
		.has_controller = true,
		.has_node = true,
		.log_level = UC_LOG_INFO,
		.workers = 8,
		.hang_ms = 300 * 1000,
	};
	optind = 0;
	opterr = 0;
	while ((c = getopt_long(argc, argv, ":vh", options, NULL)) != -1) {
		if (c == 'h' || c == OPT_VERSION) {
			if (c == 'h')
				fputs(help, stdout);
			else
				printf("union-csi %s\n", uc_version);
			return CSI_OPTIONS_EXIT;
		}
		if (c == '?' || c == ':') {
			/* Of "-xv" getopt has not left the argument yet. */
			const char letter[] = { '-', (char)optopt, '\0' };
			const char *name =
				optopt > 0 && optopt < OPT_MODE ? letter : argv[optind - 1];

			return uc_fail_as(err, EINVAL, 0,
					  c == ':' ? "option `%s` needs a value"
						   : "option `%s` is not known",
					  UC_PRINTABLE(name));
		}
		r = take(ret, c, optarg, err);
		if (r == -ENOMEM)
			return uc_fail(err, ENOMEM, "read the options");
		if (r < 0)
			return r;
	}
	if (optind < argc)
		return uc_fail_as(err, EINVAL, 0, "argument `%s` is not expected",
				  UC_PRINTABLE(argv[optind]));
	r = fill_defaults(ret);
	if (r < 0)
		return uc_fail(err, -r, "read the options");
	return check(ret, err);
}
