/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/str.h"
#include "lib/os/clock.h"
#include "lib/os/fd.h"
#include "lib/os/proc.h"

enum {
	OUTPUT_MAX = 64 * 1024,
	DRAIN_MAX = 1024 * 1024, /* at once: not less than a pipe holds, with pages of 64 KiB */
	TICK_MS = 250,
	TAIL_MAX = 400, /* of the output, in an error */
};

/* A running child and our ends of its pipes. */
struct child {
	pid_t pid;
	int pidfd;
	int in, out;
};

static int set_up(posix_spawn_file_actions_t *fa, posix_spawnattr_t *attr, int in, int out)
{
	sigset_t all, none;

	sigfillset(&all);
	sigemptyset(&none);
	if (posix_spawn_file_actions_adddup2(fa, in, 0) ||
	    posix_spawn_file_actions_adddup2(fa, out, 1) ||
	    posix_spawn_file_actions_adddup2(fa, out, 2) ||
	    posix_spawn_file_actions_addclosefrom_np(fa, 3) ||
	    posix_spawnattr_setsigdefault(attr, &all) || posix_spawnattr_setsigmask(attr, &none) ||
	    posix_spawnattr_setpgroup(attr, 0) ||
	    posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
						   POSIX_SPAWN_SETPGROUP))
		return -ENOMEM;
	return 0;
}

static int spawn(const struct uc_proc *proc, int in, int out, pid_t *ret_pid)
{
	static const char path[] =
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	char *env[] = { (char *)(uintptr_t)path, (char *)(uintptr_t) "LC_ALL=C", NULL };
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	int r;

	if (posix_spawn_file_actions_init(&fa))
		return -ENOMEM;
	if (posix_spawnattr_init(&attr)) {
		posix_spawn_file_actions_destroy(&fa);
		return -ENOMEM;
	}
	r = set_up(&fa, &attr, in, out);
	if (r == 0)
		r = -posix_spawnp(ret_pid, proc->argv[0], &fa, &attr,
				  (char *const *)(uintptr_t)proc->argv, env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&fa);
	return r;
}

static int start(const struct uc_proc *proc, struct child *child)
{
	cleanup_fd int in = -1, feed = -1, out = -1, sink = -1;
	int p[2], r;

	if (proc->input) {
		if (pipe2(p, O_CLOEXEC) < 0)
			return -errno;
		in = p[0];
		feed = p[1];
		if (fcntl(feed, F_SETFL, O_NONBLOCK) < 0)
			return -errno;
	} else {
		in = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (in < 0)
			return -errno;
	}
	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	out = p[0];
	sink = p[1];
	if (fcntl(out, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	r = spawn(proc, in, sink, &child->pid);
	if (r < 0)
		return r;
	child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
	child->in = take_fd(&feed);
	child->out = take_fd(&out);
	if (child->pidfd < 0) {
		r = -errno;
		kill(-child->pid, SIGKILL);
		waitpid(child->pid, NULL, 0);
		uc_closep(&child->in);
		uc_closep(&child->out);
	}
	return r;
}

/*
 * Reads what is there, but not for ever: a writer may be faster than we are, and the
 * time limit is looked at between two calls.  Closes @fd at its end.
 */
static void drain(int *fd, struct uc_buf *output)
{
	char buf[4096];
	size_t total = 0;
	ssize_t n = 1;

	while (n > 0 && total < DRAIN_MAX) {
		size_t room = output->len < OUTPUT_MAX ? OUTPUT_MAX - output->len : 0;

		n = read(*fd, buf, sizeof(buf));
		if (n > 0) {
			uc_buf_append(output, buf, (size_t)n < room ? (size_t)n : room);
			total += (size_t)n;
		}
	}
	if (n == 0 || (n < 0 && errno != EAGAIN))
		uc_closep(fd);
}

/* Writes what fits; closes @fd when all is written or nobody reads. */
static void feed(int *fd, const char **input)
{
	ssize_t n = write(*fd, *input, strlen(*input));

	if (n > 0)
		*input += n;
	if ((n < 0 && errno != EAGAIN && errno != EINTR) || !**input)
		uc_closep(fd);
}

/* Moves bytes until the child has ended; -ETIMEDOUT if that takes too long, or tick()'s error. */
static int attend(const struct uc_proc *proc, struct child *child, struct uc_buf *output)
{
	uint64_t end = proc->timeout_ms ? uc_now_ms() + proc->timeout_ms : UINT64_MAX;
	const char *input = proc->input;
	int r;

	for (;;) {
		struct pollfd p[] = {
			{ .fd = child->pidfd, .events = POLLIN },
			{ .fd = child->out, .events = POLLIN },
			{ .fd = child->in, .events = POLLOUT },
		};
		uint64_t now = uc_now_ms();
		uint64_t left = end > now ? end - now : 0;

		if (!left)
			return -ETIMEDOUT;
		if (poll(p, 3, left > TICK_MS ? TICK_MS : (int)left) < 0 && errno != EINTR)
			return -errno;
		r = proc->tick && !p[0].revents ? proc->tick(proc->tick_data) : 0;
		if (r < 0)
			return r;
		if (p[2].revents)
			feed(&child->in, &input);
		if (p[1].revents)
			drain(&child->out, output);
		if (p[0].revents)
			return 0;
	}
}

static int fail_with_output(struct uc_err *err, int num, const char *name, const char *what,
			    int value, const struct uc_buf *output)
{
	const char *text = uc_buf_str(output);
	size_t n = output->len;
	char tail[2 * TAIL_MAX];

	while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
		n--;
	if (n > TAIL_MAX) {
		text += n - TAIL_MAX;
		n = TAIL_MAX;
	}
	memcpy(tail, text, n);
	tail[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if (tail[i] == '\n')
			tail[i] = ';';
	return uc_fail_as(err, num, 0, "`%s` %s %d%s%s", name, what, value, n ? ": " : "",
			  uc_str_printable((char[2 *TAIL_MAX]){ 0 }, 2 * TAIL_MAX, tail));
}

int uc_proc_run(const struct uc_proc *proc, struct uc_buf *output, struct uc_err *err)
{
	cleanup_buf struct uc_buf own = UC_BUF_INIT;
	struct child child = { .pid = -1, .pidfd = -1, .in = -1, .out = -1 };
	const char *name = proc->argv[0];
	struct uc_buf *out = output ? output : &own;
	int r, status = 0;

	r = start(proc, &child);
	if (r < 0)
		return uc_fail(err, -r, "run `%s`", name);
	r = attend(proc, &child, out);
	if (r < 0)
		kill(-child.pid, SIGKILL);
	while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR)
		;
	if (child.out >= 0)
		drain(&child.out, out);
	uc_closep(&child.in);
	uc_closep(&child.out);
	uc_closep(&child.pidfd);

	if (r == -ETIMEDOUT)
		return fail_with_output(err, ETIMEDOUT, name, "was killed after (ms)",
					(int)proc->timeout_ms, out);
	if (r < 0)
		return uc_fail(err, -r, "wait for `%s`", name);
	if (WIFSIGNALED(status))
		return fail_with_output(err, EIO, name, "was killed by signal", WTERMSIG(status),
					out);
	if (WEXITSTATUS(status) != 0)
		return fail_with_output(err, EIO, name, "failed with status", WEXITSTATUS(status),
					out);
	return 0;
}
