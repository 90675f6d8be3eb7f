/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One line per event on stderr.  Library code may only use log_debug(): whoever
 * decides what to do about an event logs it, once.
 *
 * A line is valid UTF-8 and never holds a control character: text that came from
 * outside cannot forge a second line.  errno is preserved.
 */

#include <stdbool.h>

enum uc_log_level {
	UC_LOG_ERR,
	UC_LOG_WARN,
	UC_LOG_INFO,
	UC_LOG_DEBUG,
};

enum uc_log_format {
	UC_LOG_TEXT, /* `2026-11-21T09:50:01.123Z info  text`; `<6>text` under systemd */
	UC_LOG_JSON, /* {"time":…,"level":…,"msg":…} */
};

/**
 * uc_log_init() - Choose what is printed and how
 * @max:	Least important level that is printed
 * @format:	Text or JSON
 *
 * To be called before other threads exist.  Without it: info, text.
 */
void uc_log_init(enum uc_log_level max, enum uc_log_format format);

/** uc_log_enabled() - Whether a line of @level would be printed */
bool uc_log_enabled(enum uc_log_level level);

void uc_log(enum uc_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_err(...) uc_log(UC_LOG_ERR, __VA_ARGS__)
#define log_warn(...) uc_log(UC_LOG_WARN, __VA_ARGS__)
#define log_info(...) uc_log(UC_LOG_INFO, __VA_ARGS__)
#define log_debug(...)                                     \
	do {                                               \
		if (uc_log_enabled(UC_LOG_DEBUG))          \
			uc_log(UC_LOG_DEBUG, __VA_ARGS__); \
	} while (0)
