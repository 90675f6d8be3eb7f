/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Nodes: what the kernel knows by number.
 *
 * A node lives while the kernel has looked it up more often than it has forgotten
 * it, while a request works on it, and while a directory below it lives.
 */

#include "union-fs/find.h"
#include "union-fs/lower.h"
#include "union-fs/ufs.h"

/** struct ufs_dir - what a directory has besides */
struct ufs_dir {
	struct ufs_node *parent; /* lock; NULL for the root; holds a reference */
	char *name;              /* lock; in the parent */
	struct ufs_lower **copy; /* lock; in the order of branches */
	unsigned n;              /* lock; 0: it has gone from all branches */
	bool gone;               /* lock; it was removed: there will be no other copies */
	int error; /* lock; why a branch could not be asked for a copy; the next lookup asks again */
};

/** struct ufs_node - see above */
struct ufs_node {
	struct ufs *fs;
	uint64_t nlookup; /* lock */
	uint32_t refs;    /* lock */
	uint32_t index;   /* node id - 1 */
	uint32_t generation;
	uint16_t type; /* S_IFMT bits; never changes */
	bool is_dir;
	union {
		struct ufs_lower *lower; /* never changes */
		struct ufs_dir *dir;
	};
	struct ufs_io *io; /* lock; once it has been open; see file.h */
};

/** ufs_nodes_init() - Make the table and the root; 0 or a negative errno */
int ufs_nodes_init(struct ufs *fs);

/** ufs_nodes_done() - Release all nodes */
void ufs_nodes_done(struct ufs *fs);

/** ufs_node_id() - What the kernel calls it */
uint64_t ufs_node_id(const struct ufs_node *node);

/** ufs_node_get() - The node of that number, with a reference, or NULL: any number is allowed */
struct ufs_node *ufs_node_get(struct ufs *fs, uint64_t id);

/** ufs_node_put() - Drop a reference; NULL is allowed */
void ufs_node_put(struct ufs_node *node);

UC_DEFINE_CLEANUP(struct ufs_node *, ufs_node_put)
#define cleanup_node cleanup_with(ufs_node_putp)

/** ufs_node_forget() - The kernel takes back @n lookups of a number; any are allowed */
void ufs_node_forget(struct ufs *fs, uint64_t id, uint64_t n);

/**
 * ufs_node_enter() - The node of what was found under a name, and one lookup more of it
 * @parent:	Directory that it was found in
 * @name:	The name
 * @f:		What was found, at least one; descriptors may be taken
 * @seq:	fs->tree_seq from before it was looked for, or NULL: under fs->tree, or for what was
 * just made
 * @ret:	Node, with a reference
 *
 * Return: 0; -EAGAIN (directories only: the tree has changed since, look again); another negative
 * errno
 */
int ufs_node_enter(struct ufs_node *parent, const char *name, struct ufs_finds *f,
		   const uint64_t *seq, struct ufs_node **ret);

/** ufs_node_enter_file() - The same for one object that is no directory */
int ufs_node_enter_file(struct ufs *fs, struct ufs_found *f, struct ufs_node **ret);

/** ufs_node_has_room() - Whether one more object without file handle may be known, which takes a
 * descriptor as long as it is */
bool ufs_node_has_room(struct ufs *fs);

/** ufs_node_of() - The node that a found object belongs to, with a reference, or NULL if the kernel
 * does not know it */
struct ufs_node *ufs_node_of(struct ufs *fs, const struct ufs_found *f);

/** ufs_node_path_fd() - A descriptor of a node that is no directory, perhaps O_PATH (owned), or a
 * negative errno */
int ufs_node_path_fd(struct ufs *fs, struct ufs_node *node);

/** ufs_node_keep() - A node has lost a name: if that was its last one, keep it open, by @fd (O_PATH;
 * taken), while it is known */
void ufs_node_keep(struct ufs_node *node, int fd);

/** ufs_node_open() - Open a regular file anew; a descriptor (owned) or a negative errno */
int ufs_node_open(struct ufs *fs, struct ufs_node *node, int flags);

/* Directories: node_dir.c */

/** ufs_node_move() - A directory has another name now; takes @name.  Under fs->tree */
void ufs_node_move(struct ufs_node *node, struct ufs_node *parent, char *name);

/** ufs_node_where() - A directory's parent, with a reference, and a copy of its name; 0, -ENOENT
 * for the root, -ENOMEM */
int ufs_node_where(struct ufs_node *node, struct ufs_node **ret_parent, char **ret_name);

/** ufs_node_is_partial() - Whether a directory may have copies that are not known */
bool ufs_node_is_partial(struct ufs_node *node);

/** ufs_node_has_copy() - Whether a directory is known to exist on a branch */
bool ufs_node_has_copy(struct ufs_node *node, unsigned branch);

/** ufs_node_set_gone() - A directory was removed, or replaced; whoever has it open still knows it.
 * Under fs->tree */
void ufs_node_set_gone(struct ufs_node *node);

/** ufs_node_is_gone() - Whether it was, and has not been found again since */
bool ufs_node_is_gone(struct ufs_node *node);

/**
 * ufs_node_add_copy() - A directory exists on one more branch.  Under fs->tree
 * @f:		The copy (its descriptor is taken)
 * @aligned:	It was made to look like the others
 * @unsynced:	Its entry in its parent may not be on disk yet
 *
 * Return: 0; -ESTALE (it is known as another directory's); -ENOMEM
 */
int ufs_node_add_copy(struct ufs_node *node, struct ufs_found *f, bool aligned, bool unsynced);

/** ufs_node_drop_copy() - A directory's copy is gone; nothing happens if it has that copy no longer
 */
void ufs_node_drop_copy(struct ufs_node *node, struct ufs_lower *lower);

/** ufs_node_drop_found() - The same, for a copy that was found */
void ufs_node_drop_found(struct ufs_node *node, const struct ufs_found *f);

/* Between node.c and node_dir.c */

/** ufs_node_new() - Make a node that is in no table; NULL where memory ran out */
struct ufs_node *ufs_node_new(struct ufs *fs, uint16_t type);

/** ufs_node_free() - Release a node that is in no table; NULL is allowed */
void ufs_node_free(struct ufs_node *node);

/** ufs_node_insert() - Put a new node into the table; 0 or -ENOMEM.  Under fs->lock */
int ufs_node_insert(struct ufs_node *node);

/** ufs_node_reap() - Free a node that nothing needs, and then perhaps the directories above.  Under
 * fs->lock */
void ufs_node_reap(struct ufs_node *node, struct ufs_dead *dead);

/** ufs_node_new_lower() - Make the object that was found; NULL where memory ran out */
struct ufs_lower *ufs_node_new_lower(const struct ufs_found *f);

/** ufs_node_enter_dir() - ufs_node_enter() for directories */
int ufs_node_enter_dir(struct ufs_node *parent, const char *name, struct ufs_finds *f,
		       const uint64_t *seq, struct ufs_node **ret);
