/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The names in a directory, as they were at one moment.
 *
 * A listing is made when a directory is read from its start and stays what it is
 * until it is read from the start again: positions in it mean the same all the time,
 * whatever is made or removed meanwhile.
 *
 * Anybody may open large directories often and read a little of each.  So listings have
 * a budget: beyond it, the directory that was read longest ago gives its own up.  Should
 * it be read on, it is listed again and goes on behind the name that was told last; if that
 * one has gone, from the start: a name may be told twice then, but none is left out.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "union-fs/node.h"
#include "union-fs/ufs.h"

struct ufs_view;

/** struct ufs_dent - one name */
struct ufs_dent {
	uint64_t ino; /* in the union; of a merged directory only the first copy's */
	size_t name;  /* offset in the listing's names */
	uint16_t len;
	uint8_t type; /* DT_* */
	bool merged;  /* a directory on several branches */
};

/** struct ufs_listing - all names but "." and ".."; constant once it is made */
struct ufs_listing {
	uint32_t refs; /* fs->lock */
	int error;     /* a branch could not be read: to be told at the end */
	struct ufs_dent *dent;
	size_t n, cap;
	char *names; /* each ended by a NUL */
	size_t names_len, names_cap;
	uint32_t *slot;           /* hash table of indexes + 1, while it is made */
	size_t n_slots;           /* a power of two, or 0 */
	size_t bytes;             /* what it takes */
	struct ufs_listing *next; /* of those that are to be released */
};

/** ufs_listing_new() - Make an empty listing; NULL where memory ran out */
struct ufs_listing *ufs_listing_new(void);

/** ufs_listing_free() - Release a listing; NULL is allowed */
void ufs_listing_free(struct ufs_listing *l);

UC_DEFINE_CLEANUP(struct ufs_listing *, ufs_listing_free)

/**
 * ufs_listing_add() - Add a name of one branch
 * @name:	Name (borrowed)
 * @ino:	Its number in the union
 * @type:	DT_*
 *
 * Branches are added in their order: a name that is there already stays as it is,
 * and is a merged directory if both are directories.
 *
 * Return: 0 or -ENOMEM
 */
int ufs_listing_add(struct ufs_listing *l, const char *name, uint64_t ino, uint8_t type);

/**
 * ufs_listing_read() - List a directory
 * @v:		Its copies
 * @ret:	Result, with one reference
 *
 * Return: 0 or a negative errno
 */
int ufs_listing_read(struct ufs *fs, const struct ufs_view *v, struct ufs_listing **ret);

/** struct ufs_opendir - an open directory */
struct ufs_opendir {
	struct ufs_node *node;       /* holds a reference */
	struct ufs_listing *listing; /* fs->lock; NULL until it is first read */
	uint32_t refs;               /* fs->lock */
	uint32_t index;
	struct ufs_opendir *prev, *next; /* fs->lock; while it has a listing */
	size_t told;                     /* fs->lock; how many names the last reply came to */
	char *last; /* fs->lock; the last of them, if the listing was given up */
};

/** ufs_opendir_new() - A directory is open once more; gives its handle.  0 or a negative errno */
int ufs_opendir_new(struct ufs_node *node, uint64_t *ret_handle);

/** ufs_opendir_get() - The open directory of that handle, with a reference; NULL unless it is one
 * of @node */
struct ufs_opendir *ufs_opendir_get(struct ufs *fs, uint64_t handle, const struct ufs_node *node);

/** ufs_opendir_put() - Drop a reference; NULL is allowed */
void ufs_opendir_put(struct ufs_opendir *d);

UC_DEFINE_CLEANUP(struct ufs_opendir *, ufs_opendir_put)

/** ufs_opendir_close() - The kernel releases a handle; -EBADF if it is none of @node */
int ufs_opendir_close(struct ufs *fs, uint64_t handle, const struct ufs_node *node);

/** ufs_opendir_listing() - Its listing, with a reference, or NULL: it has none, or none any more */
struct ufs_listing *ufs_opendir_listing(struct ufs_opendir *d);

/**
 * ufs_opendir_set_listing() - Replace its listing by a new one
 * @l:		Listing (a reference of its own is taken)
 * @at:		How many names are not to be told
 *
 * Return: the same for the new listing
 */
size_t ufs_opendir_set_listing(struct ufs_opendir *d, struct ufs_listing *l, size_t at);

/** ufs_opendir_told() - So many names of its listing are told */
void ufs_opendir_told(struct ufs_opendir *d, size_t n);

/** ufs_listing_unref() - Drop a reference; NULL is allowed */
void ufs_listing_unref(struct ufs *fs, struct ufs_listing *l);

/** ufs_opendir_free() - Release without regard to references or nodes, at the very end; NULL is
 * allowed */
void ufs_opendir_free(struct ufs_opendir *d);
