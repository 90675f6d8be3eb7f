/* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/base/str.h"

enum {
	MSG_MAX = 2048,
	LINE_MAX_BYTES = 6 * MSG_MAX + 128, /* every byte may become \u00XX */
};

static enum uc_log_level log_max = UC_LOG_INFO;
static enum uc_log_format log_format = UC_LOG_TEXT;
static bool log_journal; /* stderr is systemd's journal: it adds the time */

static const struct {
	const char *name;
	int priority; /* of syslog(3) */
} levels[] = {
	[UC_LOG_ERR] = { "error", 3 },
	[UC_LOG_WARN] = { "warn", 4 },
	[UC_LOG_INFO] = { "info", 6 },
	[UC_LOG_DEBUG] = { "debug", 7 },
};

void uc_log_init(enum uc_log_level max, enum uc_log_format format)
{
	log_max = max;
	log_format = format;
	log_journal = getenv("JOURNAL_STREAM") != NULL;
}

bool uc_log_enabled(enum uc_log_level level)
{
	return level <= log_max;
}

/*
 * Copies @s with what could end or confuse a line made visible: control characters,
 * C1 (U+0080–U+009F) among them, and what is not UTF-8; returns the length.
 */
static size_t escape(char *to, size_t size, const char *s, bool json)
{
	size_t left = strlen(s), valid = 0, n = 0;

	for (; left && n + 9 < size; s++, left--) {
		const unsigned char *c = (const unsigned char *)s;
		bool is_c1 = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0;

		if (!valid)
			valid = uc_str_utf8_len(s, left);
		if (!valid) {
			n += (size_t)snprintf(to + n, size - n, json ? "\\\\x%02x" : "\\x%02x", *c);
			continue;
		}
		valid--;
		if (is_c1) {
			n += (size_t)snprintf(to + n, size - n, json ? "\\u%04x" : "\\xc2\\x%02x",
					      c[1]);
			valid--;
			s++;
			left--;
		} else if (json && (*c == '"' || *c == '\\')) {
			to[n++] = '\\';
			to[n++] = (char)*c;
		} else if (*c < 0x20 || *c == 0x7f) {
			n += (size_t)snprintf(to + n, size - n, json ? "\\u%04x" : "\\x%02x", *c);
		} else {
			to[n++] = (char)*c;
		}
	}
	to[n] = '\0';
	return n;
}

static size_t timestamp(char *to, size_t size)
{
	struct timespec ts;
	struct tm tm;
	size_t n;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(to, size, "%Y-%m-%dT%H:%M:%S", &tm);
	n += (size_t)snprintf(to + n, size - n, ".%03dZ", (int)(ts.tv_nsec / 1000000));
	return n;
}

void uc_log(enum uc_log_level level, const char *fmt, ...)
{
	char msg[MSG_MAX], line[LINE_MAX_BYTES];
	int saved = errno;
	size_t n = 0;
	va_list ap;

	if (level > log_max)
		return;
	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);

	if (log_format == UC_LOG_JSON) {
		n += (size_t)snprintf(line, sizeof(line), "{\"time\":\"");
		n += timestamp(line + n, sizeof(line) - n);
		n += (size_t)snprintf(line + n, sizeof(line) - n, "\",\"level\":\"%s\",\"msg\":\"",
				      levels[level].name);
		n += escape(line + n, sizeof(line) - n - 4, msg, true);
		n += (size_t)snprintf(line + n, sizeof(line) - n, "\"}\n");
	} else {
		if (log_journal) {
			n += (size_t)snprintf(line, sizeof(line), "<%d>", levels[level].priority);
		} else {
			n += timestamp(line, sizeof(line));
			n += (size_t)snprintf(line + n, sizeof(line) - n, " %-5s ",
					      levels[level].name);
		}
		n += escape(line + n, sizeof(line) - n - 2, msg, false);
		line[n++] = '\n';
	}
	/* One write, so that lines of several threads do not mix. */
	if (write(STDERR_FILENO, line, n) < 0) {
		/* Nobody is left to tell. */
	}
	errno = saved;
}
