/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * Without --foreground the process that was started forks, before anything else is done,
 * and waits on a pipe: a byte says that the union is mounted and answers; the end of the
 * pipe without one, that the other process has failed, and has said why.
 *
 * The main thread serves no request of the kernel.  It waits for signals, for the end of
 * the session, and (serve) on the control socket.
 *
 * As process 1 of a container we get only the signals that we ask for; blocked signals
 * are never dropped, so signalfd works there too.  Processes that have lost their parent
 * are ours then, and are reaped.
 */

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/os/fd.h"
#include "union-fs/daemon.h"

enum {
	MMAP_FROM = 256 * 1024, /* bytes; glibc would raise it with each large buffer */
};

int ufs_fail(const struct uc_err *err)
{
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, err->msg);
	return UFS_EXIT_FAILED;
}

int ufs_usage_error(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, " (--help tells more)\n");
	return UFS_EXIT_USAGE;
}

/* Waits for the process that was forked; its fate is ours. */
static _Noreturn void await_ready(int fd, pid_t pid)
{
	char byte;
	ssize_t n;

	do
		n = read(fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n == 1)
		_exit(UFS_EXIT_OK);
	(void)waitpid(pid, NULL, 0);
	_exit(UFS_EXIT_FAILED);
}

static int go_background(int *ret_ready_fd, struct uc_err *err)
{
	cleanup_fd int null = -1;
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return uc_fail(err, errno, "make a pipe");
	pid = fork();
	if (pid < 0) {
		close(fds[0]);
		close(fds[1]);
		return uc_fail(err, errno, "fork");
	}
	if (pid > 0) {
		close(fds[1]);
		await_ready(fds[0], pid);
	}
	close(fds[0]);
	*ret_ready_fd = fds[1];
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0)
		return uc_fail(err, errno, "open `/dev/null`");
	if (setsid() < 0)
		return uc_fail(err, errno, "leave the terminal");
	return 0;
}

/* Or a branch might get the number that messages go to. */
static int fill_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR); /* inherited, as these three are */
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static void raise_limit(int what, rlim_t wanted)
{
	struct rlimit limit;

	if (getrlimit(what, &limit) < 0)
		return;
	/* More than the hard limit takes CAP_SYS_RESOURCE; up to it, nothing. */
	if (limit.rlim_max < wanted &&
	    setrlimit(what, &(struct rlimit){ .rlim_cur = wanted, .rlim_max = wanted }) == 0)
		return;
	limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
	if (setrlimit(what, &limit) < 0)
		log_debug("raise a limit: %m");
}

static int watch_signals(struct ufs_daemon *d, struct uc_err *err)
{
	static const int blocked[] = { SIGTERM, SIGINT, SIGHUP, SIGCHLD };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(blocked); i++)
		sigaddset(&set, blocked[i]);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return uc_fail(err, errno, "block signals");
	d->signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (d->signals.fd < 0)
		return uc_fail(err, errno, "watch signals");
	return 0;
}

int ufs_daemon_init(struct ufs_daemon *d, bool foreground, struct uc_err *err)
{
	int r;

	*d = (struct ufs_daemon){
		.target = UFS_TARGET_NONE,
		.signals = { .fd = -1 },
		.end = { .fd = -1 },
		.ready_fd = -1,
		.log_fd = -1,
		.foreground = foreground,
	};
	r = fill_standard_fds();
	if (r < 0)
		return uc_fail(err, -r, "open `/dev/null`");
	if (!foreground) {
		r = go_background(&d->ready_fd, err);
		if (r < 0)
			return r;
	}
	/* Large buffers, those of large directories, go back to the system with their last use. */
	mallopt(M_MMAP_THRESHOLD, MMAP_FROM);
	umask(077);
	raise_limit(RLIMIT_NOFILE, 1048576);
	raise_limit(RLIMIT_FSIZE, RLIM_INFINITY);
	r = watch_signals(d, err);
	if (r < 0)
		return r;
	r = uc_loop_new(&d->loop);
	return r < 0 ? uc_fail(err, -r, "make an event loop") : 0;
}

int ufs_daemon_mount(struct ufs_daemon *d, const char *source, const struct uc_mount_opts *opts,
		     struct uc_err *err)
{
	cleanup_fd int dir = -1;
	int r;

	r = ufs_session_start(d->fs, source, opts, &d->session, err);
	if (r < 0)
		return r;
	dir = ufs_target_dir(&d->target, err);
	if (dir < 0)
		return dir;
	r = ufs_session_attach(d->session, dir, err);
	return r < 0 ? uc_wrap(err, r, "mount at `%s`", UC_PRINTABLE(d->target.path)) : 0;
}

static void redirect_output(struct ufs_daemon *d)
{
	cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int to = d->log_fd >= 0 ? d->log_fd : null;

	if (null >= 0)
		(void)dup2(null, STDOUT_FILENO);
	if (to >= 0)
		(void)dup2(to, STDERR_FILENO);
}

int ufs_daemon_ready(struct ufs_daemon *d, struct uc_err *err)
{
	int r;

	if (d->ready_fd < 0)
		return 0;
	/* What relative paths name is open by now. */
	if (chdir("/") < 0)
		return uc_fail(err, errno, "go to the root directory");
	/* Output first: who reads it is told its end by the started process' exit. */
	redirect_output(d);
	r = uc_write_all(d->ready_fd, "", 1);
	uc_closep(&d->ready_fd);
	return r < 0 ? uc_fail(err, -r, "report that the union is mounted") : 0;
}

int ufs_daemon_unmount(struct ufs_daemon *d, bool lazily, struct uc_err *err)
{
	int r;

	r = ufs_target_unmount(&d->target, d->fs->dev, 0, err);
	if (r == -EBUSY && lazily) {
		log_info("the union at `%s` is in use: it is served until the last user has gone",
			 UC_PRINTABLE(d->target.path));
		r = ufs_target_unmount(&d->target, d->fs->dev, MNT_DETACH, err);
	}
	if (r == -EINVAL) /* not mounted any more */
		r = 0;
	if (r == 0)
		d->stopping = true;
	return r;
}

static void terminate(struct ufs_daemon *d)
{
	struct uc_err err = { 0 };

	if (d->stopping) {
		log_warn("second signal: exit at once");
		_exit(UFS_EXIT_FAILED);
	}
	if (ufs_daemon_unmount(d, true, &err) < 0)
		log_err("%s", err.msg);
	d->stopping = true;
}

static void on_signal(struct uc_source *s, uint32_t revents)
{
	struct ufs_daemon *d = uc_container_of(s, struct ufs_daemon, signals);
	struct signalfd_siginfo info;

	(void)revents;
	while (read(s->fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD) {
			while (waitpid(-1, NULL, WNOHANG) > 0)
				;
		} else if (info.ssi_signo != SIGHUP || d->foreground) {
			terminate(d);
		}
	}
}

static void on_end(struct uc_source *s, uint32_t revents)
{
	struct ufs_daemon *d = uc_container_of(s, struct ufs_daemon, end);

	(void)revents;
	uc_loop_stop(d->loop);
}

int ufs_daemon_run(struct ufs_daemon *d, struct uc_err *err)
{
	int r;

	d->signals.events = d->end.events = EPOLLIN;
	d->signals.fn = on_signal;
	d->end.fn = on_end;
	d->end.fd = ufs_session_fd(d->session);
	r = uc_loop_add(d->loop, &d->signals);
	if (r == 0)
		r = uc_loop_add(d->loop, &d->end);
	if (r == 0)
		r = uc_loop_run(d->loop);
	if (r < 0)
		return uc_fail(err, -r, "wait for events");
	d->dead = d->target.name && ufs_target_is_at(&d->target, d->fs->dev);
	return d->dead ? uc_fail_as(err, ECONNABORTED, 0,
				    "the connection of the union at `%s` to the kernel was aborted",
				    UC_PRINTABLE(d->target.path))
		       : 0;
}

void ufs_daemon_release(struct ufs_daemon *d)
{
	if (d->session && (d->dead || !ufs_session_has_ended(d->session)) && d->target.name)
		(void)ufs_target_unmount(&d->target, d->fs->dev, MNT_DETACH, NULL);
	if (d->session && ufs_session_free(d->session) < 0) {
		/* A thread waits for a disk.  What it uses cannot be released; the process can end.
		 */
		log_warn("a branch does not answer: exit without waiting for it");
		_exit(UFS_EXIT_FAILED);
	}
	ufs_free(d->fs);
	d->fs = NULL;
	d->session = NULL;
	ufs_target_done(&d->target);
}

void ufs_daemon_done(struct ufs_daemon *d)
{
	ufs_daemon_release(d);
	uc_loop_free(d->loop);
	d->loop = NULL;
	uc_closep(&d->signals.fd);
	uc_closep(&d->ready_fd);
	uc_closep(&d->log_fd);
}
