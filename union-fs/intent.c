/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/buf.h"
#include "lib/base/json.h"
#include "lib/os/fd.h"
#include "union-fs/intent.h"

enum {
	INTENT_VERSION = 1,
	INTENT_MAX = 1024 * 1024,
};

void ufs_intent_done(struct ufs_intent *intent)
{
	free(intent->from);
	free(intent->to);
	free(intent->branch);
	*intent = (struct ufs_intent){ 0 };
}

static bool is_plain(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-' || c == '/';
}

char *ufs_intent_escape(const char *path)
{
	cleanup_buf struct uc_buf b = UC_BUF_INIT;

	uc_buf_puts(&b, "");
	for (; *path; path++) {
		if (is_plain((unsigned char)*path))
			uc_buf_append(&b, path, 1);
		else
			uc_buf_printf(&b, "%%%02X", (unsigned char)*path);
	}
	return uc_buf_take(&b);
}

static int digit(char c)
{
	const char digits[] = "0123456789ABCDEF", *p = c ? strchr(digits, c) : NULL;

	return p ? (int)(p - digits) : -1;
}

char *ufs_intent_unescape(const char *text)
{
	cleanup_free char *path = malloc(strlen(text) + 1);
	size_t n = 0;

	if (!path)
		return NULL;
	while (*text) {
		if (*text == '%') {
			int high = digit(text[1]), low = high < 0 ? -1 : digit(text[2]);

			if (low < 0 || high + low == 0)
				return NULL;
			path[n++] = (char)(high << 4 | low);
			text += 3;
		} else if (is_plain((unsigned char)*text)) {
			path[n++] = *text++;
		} else {
			return NULL;
		}
	}
	path[n] = '\0';
	return take_ptr(&path);
}

static json_t *branches_to_json(const struct ufs_intent *intent)
{
	cleanup_json json_t *array = json_array();

	for (size_t i = 0; array && i < intent->n; i++)
		if (json_array_append_new(array, json_pack("{s:i, s:o}", "branch",
							   (int)intent->branch[i].branch, "ino",
							   uc_json_id(intent->branch[i].ino))) < 0)
			return NULL;
	return take_ptr(&array);
}

int ufs_intent_store(int home_fd, const struct ufs_intent *intent)
{
	cleanup_free char *from = ufs_intent_escape(intent->from),
			  *to = ufs_intent_escape(intent->to);
	cleanup_json json_t *branches = branches_to_json(intent);
	cleanup_json json_t *o = NULL;
	cleanup_free char *text = NULL;

	if (!from || !to || !branches)
		return -ENOMEM;
	o = json_pack("{s:i, s:s, s:s, s:s, s:O}", "version", INTENT_VERSION, "operation",
		      "rename-directory", "from", from, "to", to, "branches", branches);
	text = o ? uc_json_format(o) : NULL;
	if (!text)
		return -ENOMEM;
	if (strlen(text) > INTENT_MAX)
		return -EXDEV; /* it could not be read again: let the program copy */
	return uc_replace_file_at(home_fd, UFS_INTENT_FILE, text, strlen(text), 0600, NULL);
}

static int read_path(const json_t *o, const char *key, char **ret, struct uc_err *err)
{
	const char *text = NULL;
	int r;

	r = uc_json_get_str(o, key, true, &text, err);
	if (r < 0)
		return r;
	*ret = ufs_intent_unescape(text);
	if (!*ret || !**ret || **ret == '/')
		return uc_fail_as(err, EINVAL, 0, "field `%s` is no path", key);
	return 0;
}

static int read_branches(const json_t *o, unsigned n_branches, struct ufs_intent *intent,
			 struct uc_err *err)
{
	json_t *array = NULL;
	int r;

	r = uc_json_get_array(o, "branches", true, &array, err);
	if (r < 0)
		return r;
	intent->branch = calloc(json_array_size(array) + 1, sizeof(*intent->branch));
	if (!intent->branch)
		return uc_fail(err, ENOMEM, "read it");
	for (size_t i = 0; i < json_array_size(array); i++) {
		uint64_t branch = 0, ino = 0;

		r = uc_json_get_u64(json_array_get(array, i), "branch", true, n_branches - 1,
				    &branch, err);
		if (r == 0)
			r = uc_json_get_id(json_array_get(array, i), "ino", &ino, err);
		if (r < 0)
			return r;
		intent->branch[intent->n++] =
			(struct ufs_intent_branch){ .branch = (unsigned)branch, .ino = (ino_t)ino };
	}
	return 0;
}

int ufs_intent_load(int home_fd, unsigned n_branches, struct ufs_intent *ret, struct uc_err *err)
{
	cleanup_intent struct ufs_intent intent = { 0 };
	cleanup_buf struct uc_buf text = UC_BUF_INIT;
	cleanup_json json_t *o = NULL;
	uint64_t version = 0;
	int r;

	r = uc_read_file_at(home_fd, UFS_INTENT_FILE, INTENT_MAX, &text);
	if (r < 0)
		return uc_fail(err, -r, "read `%s`", UFS_INTENT_FILE);
	if ((r = uc_json_parse(uc_buf_str(&text), text.len, &o, err)) < 0 ||
	    (r = uc_json_get_u64(o, "version", true, INTENT_VERSION, &version, err)) < 0 ||
	    (r = read_path(o, "from", &intent.from, err)) < 0 ||
	    (r = read_path(o, "to", &intent.to, err)) < 0 ||
	    (r = read_branches(o, n_branches, &intent, err)) < 0)
		return uc_wrap(err, r == -EINVAL ? -EUCLEAN : r, "read `%s`", UFS_INTENT_FILE);
	*ret = intent;
	intent = (struct ufs_intent){ 0 };
	return 0;
}

int ufs_intent_remove(int home_fd)
{
	return uc_remove_file_at(home_fd, UFS_INTENT_FILE, NULL);
}
