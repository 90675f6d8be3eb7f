/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Theory of operation
 *
 * Each thread takes a request from the kernel, serves it and takes the next.  There is
 * one for each CPU (two at least, eight at most) to begin with.  Some requests wait for
 * a disk, and a disk may not answer: so when the last idle thread takes one that may
 * wait, another thread is started, up to a limit.  Threads that are there stay: they
 * cost their stack.
 *
 * read() on the device fails with ENODEV in all of them when the session is over.
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "union-fs/dev.h"
#include "union-fs/freed.h"
#include "union-fs/session.h"

enum {
	THREADS_MIN = 2,
	THREADS_BASE_MAX = 8,
	THREADS_EXTRA = 24, /* for requests that wait */
	MAX_BACKGROUND =
		128, /* requests that nobody waits for: readahead, writeback, asynchronous I/O */
	JOIN_WAIT_S = 5,
};

struct ufs_session {
	struct ufs *fs;
	int mount_fd; /* until it is attached */
	int event_fd;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t thread[UFS_THREADS_MAX]; /* lock */
	unsigned n_threads;                /* lock */
	unsigned max_threads;
	unsigned n_ready; /* lock; threads that have begun to serve, or failed to */
	int failure;      /* lock; why one of them did */
	unsigned idle;    /* atomic: threads that wait for a request */
	bool ended;       /* atomic */
};

/* --- threads --- */

static int add_thread(struct ufs_session *s);

static void end_session(struct ufs_session *s)
{
	uint64_t one = 1;

	if (__atomic_exchange_n(&s->ended, true, __ATOMIC_ACQ_REL))
		return;
	if (write(s->event_fd, &one, sizeof(one)) < 0)
		log_err("report the end of the session: %m");
}

static void serve(struct ufs_session *s, struct ufs_worker *w)
{
	ssize_t n;

	for (;;) {
		const struct fuse_in_header *in = (const void *)w->in;
		unsigned left;

		__atomic_add_fetch(&s->idle, 1, __ATOMIC_RELAXED);
		n = ufs_dev_read(w);
		left = __atomic_sub_fetch(&s->idle, 1, __ATOMIC_RELAXED);
		if (n < 0)
			break;
		if (!left && (size_t)n >= sizeof(*in) && !ufs_dev_is_quick(in->opcode))
			(void)add_thread(s);
		ufs_dev_serve(w, (size_t)n);
		ufs_freed_relieve(w->fs);
	}
	if (n != -ENODEV)
		log_err("read requests: error %d", (int)-n);
}

static void report_ready(struct ufs_session *s, int r)
{
	pthread_mutex_lock(&s->lock);
	s->n_ready++;
	if (r < 0)
		s->failure = r;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static void *thread_main(void *arg)
{
	struct ufs_session *s = arg;
	struct ufs_worker w;
	int r;

	r = ufs_worker_init(&w, s->fs);
	if (r == 0)
		r = ufs_creds_init(&w.creds);
	report_ready(s, r);
	if (r == 0) {
		serve(s, &w);
		end_session(s);
	}
	ufs_worker_done(&w);
	return NULL;
}

static int add_thread(struct ufs_session *s)
{
	int r = 0;

	pthread_mutex_lock(&s->lock);
	if (s->n_threads < s->max_threads) {
		r = pthread_create(&s->thread[s->n_threads], NULL, thread_main, s);
		if (r == 0)
			s->n_threads++;
	}
	pthread_mutex_unlock(&s->lock);
	return -r;
}

static unsigned base_threads(void)
{
	cpu_set_t set;
	int n = 1;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		n = CPU_COUNT(&set);
	if (n < THREADS_MIN)
		return THREADS_MIN;
	return n > THREADS_BASE_MAX ? THREADS_BASE_MAX : (unsigned)n;
}

static int start_threads(struct ufs_session *s)
{
	unsigned n = s->fs->cfg.threads ? s->fs->cfg.threads : base_threads();
	int r = 0;

	if (n > UFS_THREADS_MAX)
		n = UFS_THREADS_MAX;
	s->max_threads = n;
	for (unsigned i = 0; i < n && r == 0; i++)
		r = add_thread(s);
	if (r < 0)
		return r;
	pthread_mutex_lock(&s->lock);
	while (s->n_ready < n)
		pthread_cond_wait(&s->changed, &s->lock);
	r = s->failure;
	s->max_threads = n + THREADS_EXTRA < UFS_THREADS_MAX ? n + THREADS_EXTRA : UFS_THREADS_MAX;
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* --- the connection --- */

/* What FUSE itself wants to know, and the flags that any superblock has. */
static int make_options(int dev_fd, char *const *flags, char ***ret)
{
	static const char *const fixed[] = { "rootmode=40000", "user_id=0", "group_id=0",
					     "default_permissions", "allow_other" };
	cleanup_strv char **list = NULL;
	char fd_option[32];

	snprintf(fd_option, sizeof(fd_option), "fd=%d", dev_fd);
	if (uc_strv_push(&list, fd_option) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		if (uc_strv_push(&list, fixed[i]) < 0)
			return -ENOMEM;
	for (; flags && *flags; flags++)
		if (uc_strv_push(&list, *flags) < 0)
			return -ENOMEM;
	*ret = take_ptr(&list);
	return 0;
}

static int mount_union(struct ufs_session *s, const char *source, const struct uc_mount_opts *opts,
		       struct uc_err *err)
{
	struct uc_mount_opts o = { .attr_set = opts->attr_set, .attr_clr = opts->attr_clr };
	cleanup_strv char **options = NULL;
	struct statx st;
	int r;

	s->fs->dev_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (s->fs->dev_fd < 0)
		return uc_fail(err, errno, "open `/dev/fuse`");
	r = make_options(s->fs->dev_fd, opts->fs, &options);
	if (r < 0)
		return uc_fail(err, -r, "mount the union");
	o.fs = options;
	r = uc_mount_fs("fuse", "union-fs", source, &o, s->fs->cfg.read_only, &s->mount_fd, err);
	if (r < 0)
		return r;
	/* Without asking the filesystem: nobody answers yet. */
	if (statx(s->mount_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st) < 0)
		return uc_fail(err, errno, "stat the union");
	s->fs->dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	return 0;
}

static uint64_t wanted_flags(const struct ufs *fs)
{
	uint64_t want = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES | FUSE_DONT_MASK |
			FUSE_DO_READDIRPLUS | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS |
			FUSE_HANDLE_KILLPRIV_V2 | FUSE_POSIX_ACL | FUSE_MAX_PAGES |
			FUSE_CACHE_SYMLINKS | FUSE_SETXATTR_EXT | FUSE_INIT_EXT |
			UFS_INIT_CREATE_SUPP_GROUP;

	/* Whether others change files behind our back decides whether the kernel looks for it. */
	want |= fs->cfg.exclusive ? FUSE_EXPLICIT_INVAL_DATA : FUSE_AUTO_INVAL_DATA;
	if (fs->cfg.passthrough != UFS_PASSTHROUGH_OFF)
		want |= UFS_INIT_PASSTHROUGH;
	return want;
}

static int agree(struct ufs *fs, const struct fuse_init_in *in, struct ufs_init_out *out,
		 struct uc_err *err)
{
	uint64_t can = in->flags, flags;

	if (in->major != FUSE_KERNEL_VERSION || in->minor < UFS_FUSE_MINOR_MIN)
		return uc_fail_as(
			err, EPROTO, 0,
			"the kernel's FUSE protocol is %u.%u; Linux 5.17 (7.36) or later is needed",
			in->major, in->minor);
	if (in->flags & FUSE_INIT_EXT)
		can |= (uint64_t)in->flags2 << 32;
	flags = wanted_flags(fs) & can;
	if (fs->cfg.passthrough == UFS_PASSTHROUGH_ON && !(flags & UFS_INIT_PASSTHROUGH))
		return uc_fail_as(
			err, EOPNOTSUPP, 0,
			"passthrough=on: the kernel has no passthrough (Linux 6.9 or later has)");
	fs->minor = in->minor < UFS_FUSE_MINOR ? in->minor : UFS_FUSE_MINOR;
	fs->init_flags = flags;
	fs->passthrough = flags & UFS_INIT_PASSTHROUGH;
	*out = (struct ufs_init_out){
		.major = FUSE_KERNEL_VERSION,
		.minor = fs->minor,
		.max_readahead = in->max_readahead,
		.flags = (uint32_t)flags,
		.flags2 = (uint32_t)(flags >> 32),
		.max_background = MAX_BACKGROUND,
		.congestion_threshold = MAX_BACKGROUND * 3 / 4,
		.max_write = UFS_MAX_WRITE,
		.max_pages = UFS_MAX_WRITE / 4096,
		.time_gran = 1,
		/* So that an overlay may have us as its lower layer (as its upper one it would want
		 * RENAME_WHITEOUT). */
		.max_stack_depth = fs->passthrough ? 1 : 0,
	};
	return 0;
}

/* The kernel's first request, which is answered before others come. */
static int answer_init(struct ufs *fs, struct uc_err *err)
{
	const struct fuse_in_header *head;
	struct fuse_init_in in = { 0 };
	struct ufs_init_out out;
	struct ufs_worker w;
	size_t size;
	ssize_t n;
	int r;

	r = ufs_worker_init(&w, fs);
	if (r < 0)
		return uc_fail(err, -r, "answer the kernel");
	head = (const void *)w.in;
	n = ufs_dev_read(&w);
	if (n < (ssize_t)sizeof(*head) || head->opcode != FUSE_INIT) {
		ufs_worker_done(&w);
		return uc_fail(err, n < 0 ? (int)-n : EPROTO, "read the kernel's first request");
	}
	size = (size_t)n - sizeof(*head);
	memcpy(&in, head + 1, size < sizeof(in) ? size : sizeof(in));
	r = agree(fs, &in, &out, err);
	if (r == 0) {
		r = ufs_dev_reply(fs, head->unique, 0, &out, sizeof(out));
		if (r < 0)
			(void)uc_fail(err, -r, "answer the kernel's first request");
	}
	ufs_worker_done(&w);
	return r;
}

static int set_up(struct ufs_session *s, const char *source, const struct uc_mount_opts *opts,
		  struct uc_err *err)
{
	int r;

	s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->event_fd < 0)
		return uc_fail(err, errno, "make an event descriptor");
	r = mount_union(s, source, opts, err);
	if (r == 0)
		r = answer_init(s->fs, err);
	if (r < 0)
		return r;
	r = start_threads(s);
	return r < 0 ? uc_fail(err, -r, "start the threads") : 0;
}

int ufs_session_start(struct ufs *fs, const char *source, const struct uc_mount_opts *opts,
		      struct ufs_session **ret, struct uc_err *err)
{
	struct ufs_session *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return uc_fail(err, ENOMEM, "start a session");
	s->fs = fs;
	s->mount_fd = s->event_fd = -1;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	r = set_up(s, source, opts, err);
	if (r < 0) {
		(void)ufs_session_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

int ufs_session_attach(struct ufs_session *s, int target_fd, struct uc_err *err)
{
	int r;

	r = uc_mount_attach(s->mount_fd, target_fd, err);
	if (r == 0)
		uc_closep(&s->mount_fd); /* or it would keep the union mounted */
	return r;
}

int ufs_session_fd(const struct ufs_session *s)
{
	return s->event_fd;
}

bool ufs_session_has_ended(const struct ufs_session *s)
{
	return __atomic_load_n(&s->ended, __ATOMIC_ACQUIRE);
}

/* One that serves its last request may still add another one. */
static bool get_thread(struct ufs_session *s, unsigned i, pthread_t *ret)
{
	bool there;

	pthread_mutex_lock(&s->lock);
	there = i < s->n_threads;
	if (there)
		*ret = s->thread[i];
	pthread_mutex_unlock(&s->lock);
	return there;
}

int ufs_session_free(struct ufs_session *s)
{
	struct timespec end;
	pthread_t thread;

	uc_closep(&s->mount_fd); /* not attached: this ends the session */
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += JOIN_WAIT_S;
	for (unsigned i = 0; get_thread(s, i, &thread); i++)
		if (pthread_timedjoin_np(thread, NULL, &end) != 0)
			return -ETIMEDOUT;
	uc_closep(&s->event_fd);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return 0;
}
