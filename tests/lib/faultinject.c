/* SPDX-License-Identifier: Apache-2.0 */

/*
 * faultinject.so: make the n-th mutating call of a program fail, kill it, or stop it.
 *
 * Theory of operation
 *
 * An LD_PRELOAD library that stands between a program and libc.  Each call that
 * changes something outside the process is a *step*: making, removing, renaming,
 * linking, syncing, resizing or writing files, attributes, mounts, ioctl(),
 * starting programs, connecting and binding sockets.  A test loops over n = 1, 2, …:
 * it arms step n, runs one operation, and stops when the step was not reached.
 *
 * The control file, named by $FAULTINJECT, is mapped shared by every process that
 * has the library; the test maps or writes it too.  It is a struct fault_control,
 * little-endian on the machines that we test on:
 *
 *     offset size
 *          0    4  magic     0x46415531; anything else: the library does nothing
 *          4    4  mode      0 off; 1 count; 2 fail; 3 kill (SIGKILL, before the call); 4 stop
 * (SIGSTOP, before it) 8    4  nth       which step, from 1 12    4  error     errno of mode 2 16
 * 4  count     steps so far; the test sets it to 0 when it arms 20    4  fired     how often the
 * n-th step was reached: 0 or 1 24   32  program   only in processes of this name (argv[0] without
 * directories); "" is every process 56   32  only      only calls of this name are steps; "" is
 * every call 88   32  call      the step that fired, or the latest one 120    4  n_log     how many
 * names `log` has 128 512*16  log     names of the steps, in order (of the first 512)
 *
 * Arm it by setting everything else first and `mode` last.  Counting is atomic, but
 * which of two threads takes a number is up to them.
 *
 * In mode 2 the call is not made: it returns its failure value with errno set
 * (posix_spawn() returns the errno).  Calls that a program makes by syscall(), and
 * libc's calls to itself (fopen(), …), are not seen.  open() and relatives are steps
 * with O_CREAT, O_TRUNC or O_TMPFILE; write() and relatives on regular files.
 */

#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#undef _FILE_OFFSET_BITS

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

enum {
	FAULT_MAGIC = 0x46415531,
	FAULT_LOG = 512,
};

enum fault_mode {
	FAULT_OFF,
	FAULT_COUNT,
	FAULT_FAIL,
	FAULT_KILL,
	FAULT_STOP,
};

struct fault_control {
	uint32_t magic, mode, nth, error, count, fired;
	char program[32], only[32], call[32];
	uint32_t n_log, pad;
	char log[FAULT_LOG][16];
};
_Static_assert(offsetof(struct fault_control, log) == 128, "the layout that tests know");

static struct fault_control *control;

__attribute__((constructor)) static void attach(void)
{
	const char *path = getenv("FAULTINJECT");
	void *p;
	int fd;

	fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	p = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return;
	if (((struct fault_control *)p)->magic == FAULT_MAGIC)
		control = p;
	else
		munmap(p, sizeof(*control));
}

static void record(uint32_t n, const char *name)
{
	if (n <= FAULT_LOG) {
		strncpy(control->log[n - 1], name, sizeof(control->log[0]) - 1);
		__atomic_store_n(&control->n_log, n, __ATOMIC_RELEASE);
	}
	strncpy(control->call, name, sizeof(control->call) - 1);
}

/* 1: this call is to fail, errno is set. */
static int step(const char *name)
{
	uint32_t mode, n;

	if (!control)
		return 0;
	mode = __atomic_load_n(&control->mode, __ATOMIC_ACQUIRE);
	if (mode == FAULT_OFF || control->fired)
		return 0;
	if (*control->program && strcmp(control->program, program_invocation_short_name) != 0)
		return 0;
	if (*control->only && strcmp(control->only, name) != 0)
		return 0;
	n = __atomic_add_fetch(&control->count, 1, __ATOMIC_SEQ_CST);
	if (mode != FAULT_COUNT && n > control->nth)
		return 0;
	record(n, name);
	if (mode == FAULT_COUNT || n != control->nth)
		return 0;
	__atomic_store_n(&control->fired, 1, __ATOMIC_SEQ_CST);
	if (mode == FAULT_KILL)
		kill(getpid(), SIGKILL);
	if (mode == FAULT_STOP) {
		raise(SIGSTOP); /* to this thread: kill() may stop it only after the call */
		return 0;
	}
	errno = (int)control->error;
	return 1;
}

/*
 * For some names dlsym() gives the oldest version; of posix_spawnp() that is one which
 * hands whatever the kernel will not execute to a shell.
 */
static void *real_symbol(const char *name)
{
	void *p = strncmp(name, "posix_spawn", 11) == 0 ? dlvsym(RTLD_NEXT, name, "GLIBC_2.15")
							: NULL;

	return p ? p : dlsym(RTLD_NEXT, name);
}

#define REAL(name) ((__typeof__(&name))real_symbol(#name))

/* type name(params), failing with `bad` */
#define WRAP(type, bad, name, params, args)    \
	type name params                       \
	{                                      \
		static __typeof__(&name) real; \
                                               \
		if (step(#name))               \
			return bad;            \
		if (!real)                     \
			real = REAL(name);     \
		return real args;              \
	}

#define WRAP_INT(name, params, args) WRAP(int, -1, name, params, args)

/* The same for what is a step only on a regular file. */
#define WRAP_FILE(name, params, args)              \
	ssize_t name params                        \
	{                                          \
		static __typeof__(&name) real;     \
                                                   \
		if (is_regular(fd) && step(#name)) \
			return -1;                 \
		if (!real)                         \
			real = REAL(name);         \
		return real args;                  \
	}

static int is_regular(int fd)
{
	int saved = errno, r;
	struct stat st;

	r = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
	errno = saved;
	return r;
}

WRAP_INT(mkdir, (const char *p, mode_t m), (p, m))
WRAP_INT(mkdirat, (int d, const char *p, mode_t m), (d, p, m))
WRAP_INT(mknod, (const char *p, mode_t m, dev_t v), (p, m, v))
WRAP_INT(mknodat, (int d, const char *p, mode_t m, dev_t v), (d, p, m, v))
WRAP_INT(unlink, (const char *p), (p))
WRAP_INT(unlinkat, (int d, const char *p, int f), (d, p, f))
WRAP_INT(rmdir, (const char *p), (p))
WRAP_INT(rename, (const char *a, const char *b), (a, b))
WRAP_INT(renameat, (int c, const char *a, int d, const char *b), (c, a, d, b))
WRAP_INT(renameat2, (int c, const char *a, int d, const char *b, unsigned f), (c, a, d, b, f))
WRAP_INT(link, (const char *a, const char *b), (a, b))
WRAP_INT(linkat, (int c, const char *a, int d, const char *b, int f), (c, a, d, b, f))
WRAP_INT(symlink, (const char *a, const char *b), (a, b))
WRAP_INT(symlinkat, (const char *a, int d, const char *b), (a, d, b))
WRAP_INT(fsync, (int fd), (fd))
WRAP_INT(fdatasync, (int fd), (fd))
WRAP_INT(syncfs, (int fd), (fd))
WRAP_INT(truncate, (const char *p, off_t n), (p, n))
WRAP_INT(truncate64, (const char *p, off64_t n), (p, n))
WRAP_INT(ftruncate, (int fd, off_t n), (fd, n))
WRAP_INT(ftruncate64, (int fd, off64_t n), (fd, n))
WRAP_INT(fallocate, (int fd, int m, off_t o, off_t n), (fd, m, o, n))
WRAP_INT(fallocate64, (int fd, int m, off64_t o, off64_t n), (fd, m, o, n))
WRAP(int, errno, posix_fallocate, (int fd, off_t o, off_t n), (fd, o, n))
WRAP(int, errno, posix_fallocate64, (int fd, off64_t o, off64_t n), (fd, o, n))
WRAP_INT(chmod, (const char *p, mode_t m), (p, m))
WRAP_INT(fchmod, (int fd, mode_t m), (fd, m))
WRAP_INT(fchmodat, (int d, const char *p, mode_t m, int f), (d, p, m, f))
WRAP_INT(chown, (const char *p, uid_t u, gid_t g), (p, u, g))
WRAP_INT(lchown, (const char *p, uid_t u, gid_t g), (p, u, g))
WRAP_INT(fchown, (int fd, uid_t u, gid_t g), (fd, u, g))
WRAP_INT(fchownat, (int d, const char *p, uid_t u, gid_t g, int f), (d, p, u, g, f))
WRAP_INT(utimensat, (int d, const char *p, const struct timespec t[2], int f), (d, p, t, f))
WRAP_INT(futimens, (int fd, const struct timespec t[2]), (fd, t))
WRAP_INT(setxattr, (const char *p, const char *k, const void *v, size_t n, int f), (p, k, v, n, f))
WRAP_INT(lsetxattr, (const char *p, const char *k, const void *v, size_t n, int f), (p, k, v, n, f))
WRAP_INT(fsetxattr, (int fd, const char *k, const void *v, size_t n, int f), (fd, k, v, n, f))
WRAP_INT(removexattr, (const char *p, const char *k), (p, k))
WRAP_INT(lremovexattr, (const char *p, const char *k), (p, k))
WRAP_INT(fremovexattr, (int fd, const char *k), (fd, k))

WRAP_INT(mount, (const char *s, const char *t, const char *y, unsigned long f, const void *d),
	 (s, t, y, f, d))
WRAP_INT(umount, (const char *t), (t))
WRAP_INT(umount2, (const char *t, int f), (t, f))
WRAP_INT(fsopen, (const char *t, unsigned f), (t, f))
WRAP_INT(fsconfig, (int fd, unsigned c, const char *k, const void *v, int a), (fd, c, k, v, a))
WRAP_INT(fsmount, (int fd, unsigned f, unsigned a), (fd, f, a))
WRAP_INT(move_mount, (int c, const char *a, int d, const char *b, unsigned f), (c, a, d, b, f))
WRAP_INT(open_tree, (int d, const char *p, unsigned f), (d, p, f))
WRAP_INT(mount_setattr, (int d, const char *p, unsigned f, struct mount_attr *a, size_t n),
	 (d, p, f, a, n))

WRAP_INT(bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
WRAP_INT(connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
WRAP(int, errno, posix_spawn,
     (pid_t * pid, const char *p, const posix_spawn_file_actions_t *a, const posix_spawnattr_t *t,
      char *const v[], char *const e[]),
     (pid, p, a, t, v, e))
WRAP(int, errno, posix_spawnp,
     (pid_t * pid, const char *p, const posix_spawn_file_actions_t *a, const posix_spawnattr_t *t,
      char *const v[], char *const e[]),
     (pid, p, a, t, v, e))

WRAP_FILE(write, (int fd, const void *p, size_t n), (fd, p, n))
WRAP_FILE(writev, (int fd, const struct iovec *v, int n), (fd, v, n))
WRAP_FILE(pwrite, (int fd, const void *p, size_t n, off_t o), (fd, p, n, o))
WRAP_FILE(pwrite64, (int fd, const void *p, size_t n, off64_t o), (fd, p, n, o))
WRAP_FILE(pwritev2, (int fd, const struct iovec *v, int n, off_t o, int f), (fd, v, n, o, f))
WRAP_FILE(pwritev64v2, (int fd, const struct iovec *v, int n, off64_t o, int f), (fd, v, n, o, f))
WRAP(ssize_t, -1, copy_file_range, (int a, off64_t *i, int b, off64_t *o, size_t n, unsigned f),
     (a, i, b, o, n, f))

int ioctl(int fd, unsigned long request, ...)
{
	static __typeof__(&ioctl) real;
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (step("ioctl"))
		return -1;
	if (!real)
		real = REAL(ioctl);
	return real(fd, request, arg);
}

static int creates(int flags)
{
	return flags & (O_CREAT | O_TRUNC) || (flags & O_TMPFILE) == O_TMPFILE;
}

#define MODE_OF(flags)                                                       \
	({                                                                   \
		mode_t m_ = 0;                                               \
		if (((flags)&O_CREAT) || ((flags)&O_TMPFILE) == O_TMPFILE) { \
			va_list ap_;                                         \
			va_start(ap_, flags);                                \
			m_ = va_arg(ap_, mode_t);                            \
			va_end(ap_);                                         \
		}                                                            \
		m_;                                                          \
	})

#define WRAP_OPEN(name)                            \
	int name(const char *path, int flags, ...) \
	{                                          \
		static __typeof__(&name) real;     \
		mode_t mode = MODE_OF(flags);      \
                                                   \
		if (creates(flags) && step(#name)) \
			return -1;                 \
		if (!real)                         \
			real = REAL(name);         \
		return real(path, flags, mode);    \
	}

#define WRAP_OPENAT(name)                                     \
	int name(int dirfd, const char *path, int flags, ...) \
	{                                                     \
		static __typeof__(&name) real;                \
		mode_t mode = MODE_OF(flags);                 \
                                                              \
		if (creates(flags) && step(#name))            \
			return -1;                            \
		if (!real)                                    \
			real = REAL(name);                    \
		return real(dirfd, path, flags, mode);        \
	}

WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)

/* What <bits/fcntl2.h> turns a call without a mode into. */
#define WRAP_OPEN_2(name)                          \
	int name(const char *path, int flags);     \
	int name(const char *path, int flags)      \
	{                                          \
		static __typeof__(&name) real;     \
                                                   \
		if (creates(flags) && step(#name)) \
			return -1;                 \
		if (!real)                         \
			real = REAL(name);         \
		return real(path, flags);          \
	}

#define WRAP_OPENAT_2(name)                               \
	int name(int dirfd, const char *path, int flags); \
	int name(int dirfd, const char *path, int flags)  \
	{                                                 \
		static __typeof__(&name) real;            \
                                                          \
		if (creates(flags) && step(#name))        \
			return -1;                        \
		if (!real)                                \
			real = REAL(name);                \
		return real(dirfd, path, flags);          \
	}

WRAP_OPEN_2(__open_2)
WRAP_OPEN_2(__open64_2)
WRAP_OPENAT_2(__openat_2)
WRAP_OPENAT_2(__openat64_2)
