/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * One thread, the loop's, owns the sockets; workers run the handlers; one more,
 * the housekeeper, asks from time to time whether the backend is ready, so that
 * nobody who asks for that has to wait for a disk.  Another one repairs at start
 * what a crash has left.
 *
 * The sockets are served before the repair has ended: a request does for its
 * own volume what the repair would do.
 */

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "csi/daemon.h"
#include "csi/driver.h"
#include "csi/local.h"
#include "csi/metrics.h"
#include "csi/reconcile.h"
#include "csi/registration.h"
#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/base/version.h"
#include "lib/os/fd.h"
#include "lib/os/notify.h"
#include "lib/rpc/http.h"

enum {
	GRACE_MS = 10 * 1000, /* for running calls at the end */
	JOIN_S = 5,
};

struct daemon {
	const struct csi_options *options;
	struct csi_driver driver;
	struct uc_store store;
	struct csi_local *local;
	char *staging_dir;
	struct uc_loop *loop;
	struct uc_server *server;
	struct csi_metrics *metrics;
	struct uc_http *http;
	struct csi_registration *registration;
	struct uc_rpc_service services[3];
	size_t n_services;
	struct uc_source signals;
	bool stopping;
	int exit_status;

	pthread_t housekeeper;
	bool has_housekeeper;
};

/* ---------------------------------------------------------------- housekeeping */

static void check_ready(struct daemon *d)
{
	struct uc_err err = { .num = 0 };
	bool ready = d->driver.backend->ops->ready(d->driver.backend, &err) == 0;
	static bool was, known; /* of this thread */

	if (!known || ready != was) {
		if (ready)
			log_info("ready");
		else
			log_warn("not ready: %s", err.msg);
	}
	was = ready;
	known = true;
	csi_readiness_note(&d->driver.readiness, ready);
}

static void *repair(void *arg)
{
	struct daemon *d = arg;

	csi_reconcile(&d->driver);
	log_info("what was left from before is checked");
	return NULL;
}

static void *keep_house(void *arg)
{
	struct daemon *d = arg;
	pthread_t repairer;
	bool has_repairer;

	check_ready(d);
	has_repairer = pthread_create(&repairer, NULL, repair, d) == 0;
	if (!has_repairer)
		repair(d);
	while (csi_readiness_wait(&d->driver.readiness))
		check_ready(d);
	if (has_repairer)
		pthread_join(repairer, NULL);
	return NULL;
}

/* Positive: it hangs in a system call. */
static int stop_housekeeper(struct daemon *d)
{
	struct timespec at;

	if (!d->has_housekeeper)
		return 0;
	csi_readiness_stop(&d->driver.readiness);
	clock_gettime(CLOCK_REALTIME, &at);
	at.tv_sec += JOIN_S;
	return pthread_timedjoin_np(d->housekeeper, NULL, &at) != 0;
}

/* ------------------------------------------------------------------------ HTTP */

static int healthz(void *data, struct uc_buf *body, const char **ret_type)
{
	(void)data;
	(void)ret_type;
	uc_buf_puts(body, "ok\n"); /* the loop answers: what hangs, hangs in a worker */
	return 200;
}

static int readyz(void *data, struct uc_buf *body, const char **ret_type)
{
	struct daemon *d = data;

	(void)ret_type;
	if (!csi_readiness_get(&d->driver.readiness)) {
		uc_buf_puts(body, "the backend is not ready\n");
		return 503;
	}
	if (d->registration && !csi_registration_is_done(d->registration)) {
		uc_buf_puts(body, "kubelet has not registered the plugin\n");
		return 503;
	}
	uc_buf_puts(body, "ok\n");
	return 200;
}

static int metrics(void *data, struct uc_buf *body, const char **ret_type)
{
	const struct daemon *d = data;

	*ret_type = "text/plain; version=0.0.4; charset=utf-8";
	csi_metrics_format(d->metrics, uc_server_busy(d->server), body);
	return 200;
}

static const struct uc_http_route routes[] = {
	{ "/healthz", healthz },
	{ "/readyz", readyz },
	{ "/metrics", metrics },
};

/* --------------------------------------------------------------------- set-up */

/* Must be before any thread: blocked signals are inherited. */
static int take_signals(sigset_t *set)
{
	struct rlimit files;

	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigprocmask(SIG_BLOCK, set, NULL);
	signal(SIGPIPE, SIG_IGN);
	umask(077);
	mallopt(M_ARENA_MAX, 2); /* an arena per thread would cost more than all that we keep */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	return 0;
}

static int make_parent(const char *path, struct uc_err *err)
{
	cleanup_free char *dir = strdup(path);
	cleanup_fd int fd = -1;

	if (!dir)
		return uc_fail(err, ENOMEM, "make the directory of `%s`", path);
	*strrchr(dir, '/') = '\0';
	if (!*dir)
		return 0;
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return uc_fail(err, errno, "make directory `%s`", UC_PRINTABLE(dir));
	return 0;
}

static int set_up_roots(struct daemon *d, struct uc_err *err)
{
	const struct csi_options *o = d->options;
	struct csi_roots *roots = &d->driver.node.roots;
	cleanup_fd int staging = -1;
	int r;

	r = csi_roots_add(roots, o->kubelet_dir, err);
	if (r == -ENOENT)
		log_info("there is no `%s` yet: nothing is mounted below it",
			 UC_PRINTABLE(o->kubelet_dir));
	else if (r < 0)
		return uc_wrap(err, r, "--kubelet-dir");
	for (char **dir = o->mount_roots; dir && *dir; dir++) {
		r = csi_roots_add(roots, *dir, err);
		if (r < 0)
			return uc_wrap(err, r, "--mount-root");
	}
	if (asprintf(&d->staging_dir, "%s/staging", d->store.path) < 0)
		return uc_fail(err, ENOMEM, "set up");
	staging = uc_make_dir_at(d->store.fd, "staging", 0700);
	if (staging < 0)
		return uc_fail(err, -staging, "make `%s`", d->staging_dir);
	return csi_roots_add(roots, d->staging_dir, err);
}

static int set_up_driver(struct daemon *d, struct uc_err *err)
{
	const struct csi_options *o = d->options;
	struct csi_local_config local = {
		.pools = o->pools,
		.thin = o->thin,
		.union_fs = o->union_fs,
		.node_id = o->node_id,
		.has_controller = o->has_controller,
		.has_node = o->has_node,
	};
	struct csi_driver *driver = &d->driver;
	int r;

	r = uc_store_open(o->state_dir, &d->store, err);
	if (r == 0)
		r = csi_local_new(&local, &d->store, &d->local, err);
	if (r == 0)
		r = csi_node_init(&driver->node, &d->store, &d->local->base, err);
	if (r == 0)
		r = set_up_roots(d, err);
	if (r < 0)
		return r;
	driver->name = o->driver_name;
	driver->node_id = o->node_id;
	driver->staging_dir = d->staging_dir;
	driver->backend = &d->local->base;
	driver->has_controller = o->has_controller;
	driver->has_node = o->has_node;
	snprintf(driver->topology_key, sizeof(driver->topology_key), "topology.%s/node",
		 o->driver_name);
	return 0;
}

static void on_done(void *data, const char *service, const char *method, int status, uint64_t usec)
{
	csi_metrics_rpc(data, service, method, status, usec);
}

static void add_service(struct daemon *d, const ProtobufCServiceDescriptor *desc,
			const struct uc_rpc_method *methods, size_t n)
{
	d->services[d->n_services++] = (struct uc_rpc_service){
		.desc = desc,
		.methods = methods,
		.n_methods = n,
		.data = &d->driver,
	};
}

static void log_cut_off(void *data, const char *what)
{
	(void)data;
	log_warn("cut off: %s", what);
}

static void on_shut_down(void *data)
{
	struct daemon *d = data;

	/* As in a crash, which is safe: a retry ends where this would have. */
	if (uc_server_busy(d->server) > 0 || uc_server_hung(d->server) > 0) {
		uc_server_each_job(d->server, log_cut_off, NULL);
		_exit(d->exit_status);
	}
	uc_loop_stop(d->loop);
}

static void shut_down(struct daemon *d)
{
	if (d->stopping)
		return;
	d->stopping = true;
	log_info("ending: volumes go on without the driver");
	uc_notify("STOPPING=1");
	uc_server_shutdown(d->server, GRACE_MS, on_shut_down, d);
}

static void on_refused(void *data)
{
	struct daemon *d = data;

	/* As the registrar does: whoever started us starts us again, and kubelet is asked again. */
	d->exit_status = EXIT_FAILURE;
	shut_down(d);
}

static int set_up_server(struct daemon *d, struct uc_err *err)
{
	const struct csi_options *o = d->options;
	/* No idle_ms: the provisioner ends itself when its connection ends, and has to wait for
	 * its lease again.  Leaked connections are closed once there are too many. */
	struct uc_server_config config = {
		.workers = o->workers,
		.hang_ms = o->hang_ms,
		.on_done = on_done,
	};
	int r;

	add_service(d, &csi__v1__identity__descriptor, csi_identity_methods,
		    csi_n_identity_methods);
	if (o->has_controller)
		add_service(d, &csi__v1__controller__descriptor, csi_controller_methods,
			    csi_n_controller_methods);
	if (o->has_node)
		add_service(d, &csi__v1__node__descriptor, csi_node_methods, csi_n_node_methods);
	r = csi_metrics_new(&d->metrics);
	if (r == 0)
		r = uc_loop_new(&d->loop);
	config.on_done_data = d->metrics;
	if (r == 0)
		r = uc_server_new(d->loop, &config, &d->server);
	if (r < 0)
		return uc_fail(err, -r, "set the server up");
	r = make_parent(o->endpoint, err);
	if (r == 0)
		r = uc_server_listen_unix(d->server, o->endpoint, d->services, d->n_services, err);
	if (r == 0 && o->http_endpoint)
		r = uc_http_listen(d->loop, o->http_endpoint, routes, ARRAY_SIZE(routes), d,
				   &d->http, err);
	if (r == 0 && o->registration_path && o->has_node)
		r = csi_registration_new(d->server, d->loop, o->registration_dir, o->driver_name,
					 o->registration_path, on_refused, d, &d->registration,
					 err);
	return r;
}

/* -------------------------------------------------------------------- running */

static void on_signal(struct uc_source *s, uint32_t revents)
{
	struct daemon *d = uc_container_of(s, struct daemon, signals);
	struct signalfd_siginfo info;

	(void)revents;
	if (read(s->fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return;
	if (d->stopping) {
		log_warn("a second signal: ending at once");
		_exit(EXIT_FAILURE);
	}
	shut_down(d);
}

static int run(struct daemon *d, const sigset_t *set, struct uc_err *err)
{
	int r;

	d->signals = (struct uc_source){
		.fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK),
		.events = EPOLLIN,
		.fn = on_signal,
	};
	if (d->signals.fd < 0)
		return uc_fail(err, errno, "take signals");
	r = uc_loop_add(d->loop, &d->signals);
	if (r == 0)
		r = -pthread_create(&d->housekeeper, NULL, keep_house, d);
	d->has_housekeeper = r == 0;
	if (r < 0)
		return uc_fail(err, -r, "start");
	log_info("union-csi %s serves `%s` as `%s` on node `%s`", uc_version, d->options->endpoint,
		 d->options->driver_name, d->options->node_id);
	uc_notify("READY=1");
	r = uc_loop_run(d->loop);
	uc_loop_remove(d->loop, &d->signals);
	return r < 0 ? uc_fail(err, -r, "serve") : 0;
}

static void tear_down(struct daemon *d)
{
	if (stop_housekeeper(d))
		_exit(d->exit_status); /* it may hold what the rest would release */
	uc_http_free(d->http);
	uc_server_free(d->server);
	csi_registration_free(d->registration);
	csi_metrics_free(d->metrics);
	uc_closep(&d->signals.fd);
	uc_loop_free(d->loop);
	csi_node_done(&d->driver.node);
	csi_local_free(d->local);
	free(d->staging_dir);
	uc_store_close(&d->store);
	csi_readiness_done(&d->driver.readiness);
}

int csi_daemon_run(const struct csi_options *options)
{
	struct daemon d = {
		.options = options,
		.store = UC_STORE_INIT,
		.signals = { .fd = -1 },
	};
	struct uc_err err = { .num = 0 };
	sigset_t set;
	int r;

	uc_log_init(options->log_level, options->log_format);
	uc_volume_lock_set_hang(options->hang_ms);
	take_signals(&set);
	csi_readiness_init(&d.driver.readiness);
	r = set_up_driver(&d, &err);
	if (r == 0)
		r = set_up_server(&d, &err);
	if (r == 0)
		r = run(&d, &set, &err);
	/* Nobody reads signals any more: the next one is to end what follows. */
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	if (r < 0) {
		log_err("%s", err.msg);
		d.exit_status = EXIT_FAILURE;
	}
	tear_down(&d);
	return d.exit_status;
}
