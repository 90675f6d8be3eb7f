/* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "csi/inventory.h"
#include "csi/metrics.h"
#include "lib/base/cleanup.h"
#include "lib/base/macros.h"
#include "lib/base/version.h"
#include "lib/os/fd.h"
#include "lib/rpc/status.h"

/* Upper bounds of the latency buckets, microseconds. */
static const uint64_t bounds[] = {
	1000,   5000,   10000,   25000,   50000,    100000,
	250000, 500000, 1000000, 5000000, 30000000, 120000000,
};

/* One method with one status. */
struct series {
	const char *service, *method;
	int status;
	uint64_t buckets[ARRAY_SIZE(bounds)]; /* not cumulative */
	uint64_t count, usec;
	struct series *next;
};

struct csi_metrics {
	struct series *series;
	time_t started;
};

int csi_metrics_new(struct csi_metrics **ret_metrics)
{
	struct csi_metrics *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->started = time(NULL);
	*ret_metrics = m;
	return 0;
}

void csi_metrics_free(struct csi_metrics *m)
{
	while (m && m->series) {
		struct series *s = m->series;

		m->series = s->next;
		free(s);
	}
	free(m);
}

/* There are some twenty methods, and a handful of statuses of each. */
static struct series *find(struct csi_metrics *m, const char *service, const char *method,
			   int status)
{
	struct series *s;

	for (s = m->series; s; s = s->next)
		if (s->status == status && strcmp(s->method, method) == 0 &&
		    strcmp(s->service, service) == 0)
			return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->service = service;
	s->method = method;
	s->status = status;
	s->next = m->series;
	m->series = s;
	return s;
}

void csi_metrics_rpc(struct csi_metrics *m, const char *service, const char *method, int status,
		     uint64_t usec)
{
	struct series *s = find(m, service, method, status);
	size_t i = 0;

	if (!s)
		return;
	while (i < ARRAY_SIZE(bounds) && usec > bounds[i])
		i++;
	if (i < ARRAY_SIZE(bounds))
		s->buckets[i]++;
	s->count++;
	s->usec += usec;
}

static void head(struct uc_buf *to, const char *name, const char *type, const char *text)
{
	uc_buf_printf(to, "# HELP %s %s\n# TYPE %s %s\n", name, text, name, type);
}

static void labels(char *to, size_t size, const struct series *s)
{
	snprintf(to, size, "service=\"%s\",method=\"%s\",code=\"%s\"", s->service, s->method,
		 uc_grpc_status_to_str(s->status));
}

static void format_rpcs(const struct csi_metrics *m, struct uc_buf *to)
{
	static const char name[] = "union_csi_rpc_duration_seconds";
	char l[256];

	head(to, "union_csi_rpcs_total", "counter", "Calls that have ended, by gRPC status.");
	for (const struct series *s = m->series; s; s = s->next) {
		labels(l, sizeof(l), s);
		uc_buf_printf(to, "union_csi_rpcs_total{%s} %llu\n", l,
			      (unsigned long long)s->count);
	}
	head(to, name, "histogram", "Duration of calls, by gRPC status.");
	for (const struct series *s = m->series; s; s = s->next) {
		uint64_t sum = 0;

		labels(l, sizeof(l), s);
		for (size_t i = 0; i < ARRAY_SIZE(bounds); i++) {
			sum += s->buckets[i];
			uc_buf_printf(to, "%s_bucket{%s,le=\"%g\"} %llu\n", name, l,
				      (double)bounds[i] / 1e6, (unsigned long long)sum);
		}
		uc_buf_printf(to, "%s_bucket{%s,le=\"+Inf\"} %llu\n", name, l,
			      (unsigned long long)s->count);
		/* Exact: rounded to some digits, a large sum would not grow any more. */
		uc_buf_printf(to, "%s_sum{%s} %llu.%06llu\n%s_count{%s} %llu\n", name, l,
			      (unsigned long long)(s->usec / 1000000),
			      (unsigned long long)(s->usec % 1000000), name, l,
			      (unsigned long long)s->count);
	}
}

static void format_volumes(unsigned busy, struct uc_buf *to)
{
	struct csi_inventory_counts c;

	csi_inventory_count(&c);
	head(to, "union_csi_volumes", "gauge", "Volumes by state.");
	uc_buf_printf(to,
		      "union_csi_volumes{state=\"creating\"} %zu\n"
		      "union_csi_volumes{state=\"ready\"} %zu\n"
		      "union_csi_volumes{state=\"deleting\"} %zu\n",
		      c.creating, c.ready, c.deleting);
	head(to, "union_csi_staged_volumes", "gauge", "Volumes that are staged on this node.");
	uc_buf_printf(to, "union_csi_staged_volumes %zu\n", c.staged);
	head(to, "union_csi_published_targets", "gauge", "Target paths on this node.");
	uc_buf_printf(to, "union_csi_published_targets %zu\n", c.publishes);
	head(to, "union_csi_operations", "gauge", "Operations that are queued or running.");
	uc_buf_printf(to, "union_csi_operations %u\n", busy);
}

static int count_one(void *data, const char *name)
{
	(void)name;
	++*(unsigned *)data;
	return 0;
}

static void format_process(const struct csi_metrics *m, struct uc_buf *to)
{
	cleanup_buf struct uc_buf statm = UC_BUF_INIT;
	cleanup_fd int fds = uc_open_dir_at(AT_FDCWD, "/proc/self/fd");
	unsigned long pages = 0, resident = 0;
	struct rusage usage;
	unsigned n_fds = 0;
	uint64_t usec;

	getrusage(RUSAGE_SELF, &usage);
	if (uc_read_file_at(AT_FDCWD, "/proc/self/statm", 256, &statm) < 0 ||
	    sscanf(uc_buf_str(&statm), "%lu %lu", &pages, &resident) != 2)
		resident = 0;
	if (fds >= 0)
		(void)uc_dir_each(fds, count_one, &n_fds);
	head(to, "process_resident_memory_bytes", "gauge", "Resident memory size.");
	uc_buf_printf(to, "process_resident_memory_bytes %lu\n",
		      resident * (unsigned long)sysconf(_SC_PAGESIZE));
	head(to, "process_cpu_seconds_total", "counter", "User and system time.");
	usec = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
	uc_buf_printf(to, "process_cpu_seconds_total %llu.%06llu\n",
		      (unsigned long long)(usec / 1000000), (unsigned long long)(usec % 1000000));
	head(to, "process_open_fds", "gauge", "Open file descriptors.");
	uc_buf_printf(to, "process_open_fds %u\n", n_fds);
	head(to, "process_start_time_seconds", "gauge", "Start time since the epoch.");
	uc_buf_printf(to, "process_start_time_seconds %lld\n", (long long)m->started);
	head(to, "union_csi_build_info", "gauge", "Version of the driver.");
	uc_buf_printf(to, "union_csi_build_info{version=\"%s\"} 1\n", uc_version);
}

void csi_metrics_format(const struct csi_metrics *m, unsigned busy, struct uc_buf *to)
{
	format_rpcs(m, to);
	format_volumes(busy, to);
	format_process(m, to);
}
