/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/files.h"
#include "tests/lib/unit.h"
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "lib/base/macros.h"
#include "lib/base/str.h"
#include "lib/os/clock.h"
#include "lib/os/proc.h"

/* What a call needs of the kernel: the n-th of them fails. */
static unsigned calls, fail_at;

static bool fails(void)
{
	if (++calls != fail_at)
		return false;
	errno = EMFILE;
	return true;
}

int __real_pipe2(int fds[2], int flags);
int __wrap_pipe2(int fds[2], int flags);
int __wrap_pipe2(int fds[2], int flags)
{
	assert_true(flags & O_CLOEXEC);
	return fails() ? -1 : __real_pipe2(fds, flags);
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	va_start(ap, flags);
	if (flags & O_CREAT)
		mode = va_arg(ap, mode_t);
	va_end(ap);
	return fails() ? -1 : __real_open64(path, flags, mode);
}

long __real_syscall(long n, long a, long b);
long __wrap_syscall(long n, long a, long b);
long __wrap_syscall(long n, long a, long b)
{
	assert_int_equal(n, SYS_pidfd_open);
	return fails() ? -1 : __real_syscall(n, a, b);
}

/* A writer that is always faster than we are; until then it must have been given up. */
static uint64_t endless_until;

ssize_t __real_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n)
{
	if (!endless_until)
		return __real_read(fd, p, n);
	if (uc_now_ms() > endless_until)
		fail_msg("it reads for ever");
	memset(p, 'y', n);
	return (ssize_t)n;
}

static size_t fds_before;

static int set_up(void **state)
{
	(void)state;
	fail_at = calls = 0;
	endless_until = 0;
	setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 1);
	signal(SIGPIPE, SIG_IGN);
	fds_before = open_fds();
	return 0;
}

/* Nothing is left of any call: no descriptor, no child. */
static int tear_down(void **state)
{
	(void)state;
	fail_at = 0;
	assert_int_equal(open_fds(), fds_before);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	return 0;
}

static int run(const char *const *argv, const char *input, struct uc_buf *output,
	       struct uc_err *err)
{
	struct uc_proc proc = { .argv = argv, .input = input, .timeout_ms = 20000 };

	return uc_proc_run(&proc, output, err);
}

#define ARGV(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define SH(script) ARGV("sh", "-c", script)

static void a_program_that_ends_well_is_success_with_its_output(void **state)
{
	cleanup_buf struct uc_buf out = UC_BUF_INIT;

	(void)state;
	uc_buf_puts(&out, "had ");
	assert_int_equal(run(SH("echo one; echo two >&2; echo three"), NULL, &out, NULL), 0);
	assert_string_equal(uc_buf_str(&out), "had one\ntwo\nthree\n");
	assert_int_equal(run(ARGV("true"), NULL, NULL, NULL), 0);
}

static void an_exit_status_is_reported_with_the_last_words(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(
		run(SH("echo first; printf 'bad\\001thing\\n\\n'; exit 3"), NULL, NULL, &err),
		-EIO);
	assert_string_equal(err.msg, "`sh` failed with status 3: first;bad\\x01thing");
	assert_int_equal(run(ARGV("false"), NULL, NULL, &err), -EIO);
	assert_string_equal(err.msg, "`false` failed with status 1");
}

static void only_the_end_of_long_words_is_reported(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(
		run(SH("for i in $(seq 1000); do echo line $i; done; exit 1"), NULL, NULL, &err),
		-EIO);
	assert_true(uc_str_has_suffix(err.msg, ";line 999;line 1000"));
	assert_in_range(strlen(err.msg), 400, 450);
}

static void a_signal_is_reported(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(run(SH("kill -9 $$"), NULL, NULL, &err), -EIO);
	assert_string_equal(err.msg, "`sh` was killed by signal 9");
}

static void a_program_that_is_not_there_is_told_from_one_that_fails(void **state)
{
	struct uc_err err = { 0 };

	(void)state;
	assert_int_equal(run(ARGV("no-such-program-anywhere"), NULL, NULL, &err), -ENOENT);
	assert_string_equal(err.msg, "run `no-such-program-anywhere`: No such file or directory");
	write_file("plain", "no program");
	assert_int_equal(run(ARGV("./plain"), NULL, NULL, &err), -EACCES);
}

static void arguments_arrive_as_they_are(void **state)
{
	cleanup_buf struct uc_buf out = UC_BUF_INIT;

	(void)state;
	assert_int_equal(run(ARGV("printf", "[%s]", "a b", "", "$HOME;*", "\n"), NULL, &out, NULL),
			 0);
	assert_string_equal(uc_buf_str(&out), "[a b][][$HOME;*][\n]");
}

static void the_child_has_an_empty_environment(void **state)
{
	cleanup_buf struct uc_buf out = UC_BUF_INIT;

	(void)state;
	setenv("SECRET", "x", 1);
	assert_int_equal(run(ARGV("env"), NULL, &out, NULL), 0);
	assert_string_equal(uc_buf_str(&out),
			    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
			    "LC_ALL=C\n");
}

static void the_child_has_no_descriptors_but_the_three(void **state)
{
	cleanup_buf struct uc_buf out = UC_BUF_INIT;
	int leaky = open("/dev/null", O_RDONLY), high;

	(void)state;
	high = fcntl(leaky, F_DUPFD, 100);
	/* ls itself has the directory open. */
	assert_int_equal(run(ARGV("ls", "/proc/self/fd"), NULL, &out, NULL), 0);
	close(leaky);
	close(high);
	assert_string_equal(uc_buf_str(&out), "0\n1\n2\n3\n");
}

static void the_child_handles_signals_as_if_nothing_had_been(void **state)
{
	cleanup_buf struct uc_buf out = UC_BUF_INIT;
	unsigned long long blocked = 1, ignored = 1;
	sigset_t set, was;

	(void)state;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, &was);
	assert_int_equal(
		run(ARGV("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"), NULL, &out, NULL), 0);
	sigprocmask(SIG_SETMASK, &was, NULL);
	assert_int_equal(sscanf(out.data, "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2);
	assert_int_equal(blocked, 0);
	assert_int_equal(ignored & 0x7fffffff, 0); /* but for two of libc's own */
}

/* -------------------------------------------------------------- input and output */

static void without_input_there_is_an_end_at_once(void **state)
{
	cleanup_buf struct uc_buf out = UC_BUF_INIT;

	(void)state;
	assert_int_equal(run(ARGV("cat"), NULL, &out, NULL), 0);
	assert_int_equal(run(ARGV("cat"), "", &out, NULL), 0);
	assert_int_equal(out.len, 0);
}

static char big[1000001];

static void input_is_fed_whatever_its_size(void **state)
{
	cleanup_buf struct uc_buf out = UC_BUF_INIT;

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	assert_int_equal(run(ARGV("wc", "-c"), big, &out, NULL), 0);
	assert_string_equal(uc_buf_str(&out), "1000000\n");
}

static void input_and_output_may_both_be_larger_than_a_pipe(void **state)
{
	cleanup_buf struct uc_buf out = UC_BUF_INIT;

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	assert_int_equal(run(ARGV("cat"), big, &out, NULL), 0);
	assert_int_equal(out.len, 64 * 1024);
}

static void input_that_nobody_reads_is_no_error(void **state)
{
	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	assert_int_equal(run(ARGV("true"), big, NULL, NULL), 0);
}

static void output_is_kept_up_to_its_limit_and_the_program_is_not_blocked(void **state)
{
	cleanup_buf struct uc_buf out = UC_BUF_INIT;

	(void)state;
	assert_int_equal(run(SH("seq 100000; echo done >marker"), NULL, &out, NULL), 0);
	assert_string_equal(file_text("marker"), "done\n");
	assert_int_equal(out.len, 64 * 1024);
	assert_memory_equal(out.data, "1\n2\n3\n", 6);
	assert_int_equal(strlen(out.data), out.len);
}

/* ---------------------------------------------------------------- ends and time */

/* Somebody has f open for writing as long as it lives: this waits for the end of it. */
static int watch_fifo(void)
{
	int fd;

	unlink("f");
	assert_int_equal(mkfifo("f", 0600), 0);
	fd = open("f", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static bool has_ended(int fifo, int wait_ms)
{
	struct pollfd p = { .fd = fifo, .events = POLLIN };

	return poll(&p, 1, wait_ms) == 1 && (p.revents & POLLHUP);
}

static void a_program_that_takes_too_long_is_killed_with_its_whole_group(void **state)
{
	struct uc_proc proc = {
		.argv = SH("exec >f 2>&1; trap '' TERM; sleep 100 & sleep 100"),
		.timeout_ms = 100,
	};
	struct uc_err err = { 0 };
	int fifo = watch_fifo();
	uint64_t begin = uc_now_ms();

	(void)state;
	assert_int_equal(uc_proc_run(&proc, NULL, &err), -ETIMEDOUT);
	assert_in_range(uc_now_ms() - begin, 100, 10000);
	assert_string_equal(err.msg, "`sh` was killed after (ms) 100");
	assert_true(has_ended(fifo, 10000));
	close(fifo);
}

static void endless_output_does_not_outwit_the_time_limit(void **state)
{
	struct uc_proc proc = { .argv = ARGV("yes"), .timeout_ms = 100 };
	cleanup_buf struct uc_buf out = UC_BUF_INIT;

	(void)state;
	assert_int_equal(uc_proc_run(&proc, &out, NULL), -ETIMEDOUT);
	assert_int_equal(out.len, 64 * 1024);
	endless_until = uc_now_ms() + 20000;
	assert_int_equal(uc_proc_run(&proc, NULL, NULL), -ETIMEDOUT);
	endless_until = 0;
}

static void a_program_that_goes_on_in_the_background_is_not_waited_for(void **state)
{
	cleanup_buf struct uc_buf out = UC_BUF_INIT;
	int fifo = watch_fifo();
	uint64_t pid = 0;
	char *end;

	(void)state;
	/* It keeps the pipe for its output open as well. */
	assert_int_equal(run(SH("exec 3>f; sleep 100 & echo $!"), NULL, &out, NULL), 0);
	end = strchr(out.data, '\n');
	assert_non_null(end);
	*end = '\0';
	assert_int_equal(uc_str_parse_u64(out.data, INT32_MAX, &pid), 0);
	assert_false(has_ended(fifo, 0));
	kill((pid_t)pid, SIGKILL);
	assert_true(has_ended(fifo, 10000));
	close(fifo);
}

static void what_the_background_writes_for_ever_is_not_waited_for(void **state)
{
	int fifo = watch_fifo();

	(void)state;
	assert_int_equal(run(SH("exec 3>f; yes & exit 0"), NULL, NULL, NULL), 0);
	assert_true(has_ended(fifo, 10000)); /* nobody reads it any more */
	close(fifo);
}

static void words_said_just_before_the_end_are_not_lost(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		cleanup_buf struct uc_buf out = UC_BUF_INIT;

		assert_int_equal(run(SH("seq 10000"), NULL, &out, NULL), 0);
		assert_int_equal(out.len, 48894);
	}
}

static void a_lack_of_descriptors_is_reported_and_leaves_nothing(void **state)
{
	(void)state;
	for (int with_input = 0; with_input < 2; with_input++)
		for (unsigned n = 1; n <= 3; n++) { /* its input, its output, the pidfd */
			struct uc_err err = { 0 };

			calls = 0;
			fail_at = n;
			assert_int_equal(run(SH("sleep 100"), with_input ? "x" : NULL, NULL, &err),
					 -EMFILE);
			assert_string_equal(err.msg, "run `sh`: Too many open files");
			assert_int_equal(tear_down(NULL), 0);
		}
}

static unsigned ticks;

static int give_up(void *data)
{
	assert_ptr_equal(data, &ticks);
	return ++ticks < 2 ? 0 : -ECANCELED;
}

static void a_program_that_nobody_wants_any_more_is_killed(void **state)
{
	struct uc_proc proc = {
		.argv = ARGV("sleep", "60"),
		.tick = give_up,
		.tick_data = &ticks,
	};
	struct uc_err err = { 0 };
	size_t before = open_fds();

	(void)state;
	ticks = 0;
	assert_int_equal(uc_proc_run(&proc, NULL, &err), -ECANCELED);
	assert_int_equal(ticks, 2);
	assert_non_null(strstr(err.msg, "`sleep`"));
	assert_int_equal(open_fds(), before);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_program_that_ends_well_is_success_with_its_output),
		T(an_exit_status_is_reported_with_the_last_words),
		T(only_the_end_of_long_words_is_reported),
		T(a_signal_is_reported),
		T(a_program_that_is_not_there_is_told_from_one_that_fails),
		T(arguments_arrive_as_they_are),
		T(the_child_has_an_empty_environment),
		T(the_child_has_no_descriptors_but_the_three),
		T(the_child_handles_signals_as_if_nothing_had_been),
		T(without_input_there_is_an_end_at_once),
		T(input_is_fed_whatever_its_size),
		T(input_and_output_may_both_be_larger_than_a_pipe),
		T(input_that_nobody_reads_is_no_error),
		T(output_is_kept_up_to_its_limit_and_the_program_is_not_blocked),
		T(a_program_that_takes_too_long_is_killed_with_its_whole_group),
		T(endless_output_does_not_outwit_the_time_limit),
		T(a_program_that_goes_on_in_the_background_is_not_waited_for),
		T(what_the_background_writes_for_ever_is_not_waited_for),
		T(words_said_just_before_the_end_are_not_lost),
		T(a_program_that_nobody_wants_any_more_is_killed),
		T(a_lack_of_descriptors_is_reported_and_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
