/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The state directory: where volumes' states lie, and the lock of each.
 *
 *     volumes/<id>/            the volume's directory; its flock is the volume's lock
 *     volumes/<id>/state.json  lib/vol/state.h
 *     volumes/<id>/merged/     where the volume's filesystem is mounted while it is staged
 *     volumes/<id>/ctl.sock    its server's control socket (lib/vol/ctl.h)
 */

#include "lib/base/cleanup.h"
#include "lib/base/err.h"
#include "lib/vol/state.h"

#define UC_STATE_FILE "state.json"
#define UC_STATE_BAD "state.json.bad" /* one that was damaged and replaced */

/** struct uc_store - an open state directory */
struct uc_store {
	char *path; /* canonical */
	int fd;     /* of the directory itself */
	int volumes_fd;
};

#define UC_STORE_INIT                                    \
	{                                                \
		.path = NULL, .fd = -1, .volumes_fd = -1 \
	}

/**
 * uc_store_open() - Open a state directory, making it if it is not there (0700)
 * @path:	Directory; its parent must exist
 * @ret_store:	Result; release with uc_store_close()
 *
 * Return: 0 or a negative errno
 */
int uc_store_open(const char *path, struct uc_store *ret_store, struct uc_err *err);

/**
 * uc_store_look() - Open a state directory for a look: it is not made
 * @path:	Directory; one that is not there has no volumes, and its descriptors are -1
 * @ret_store:	Result; release with uc_store_close()
 *
 * Return: 0 or a negative errno
 */
int uc_store_look(const char *path, struct uc_store *ret_store, struct uc_err *err);

/** uc_store_close() - Release; a store that was never opened is allowed */
void uc_store_close(struct uc_store *store);

/**
 * struct uc_volume_lock - a volume's directory, locked; other processes and threads are kept out
 *
 * A thread holds at most one.  A holder that hangs can lose its lock to another thread of the
 * process; it finds out by uc_volume_lock_beat(), and cannot store the volume's state any more.
 */
struct uc_volume_lock {
	int fd; /* of the directory; -1: not held */
	/* The rest is the store's. */
	dev_t dev;
	ino_t ino;
	uint64_t beat_ms; /* last sign of life */
	bool lost, storing;
	struct uc_volume_lock *next;
};

#define UC_VOLUME_LOCK_NONE \
	{                   \
		.fd = -1    \
	}

/** uc_volume_lock_set_hang() - Without a sign of life for that long a holder loses its lock
 * (default 300 s) */
void uc_volume_lock_set_hang(uint64_t ms);

/**
 * uc_volume_lock() - Take a volume's lock
 * @id:		A valid id
 * @create:	Make the volume's directory if it is not there
 * @ret_lock:	Result; release with uc_volume_unlock(), by the same thread.  It must not move in
 * memory
 *
 * Return: 0, -ENOENT (no such volume), -EBUSY (somebody else has it), another negative errno
 */
int uc_volume_lock(const struct uc_store *store, const char *id, bool create,
		   struct uc_volume_lock *ret_lock, struct uc_err *err);

/** uc_volume_unlock() - Release a lock; one that is not held is allowed */
void uc_volume_unlock(struct uc_volume_lock *lock);

#define cleanup_volume_lock __attribute__((cleanup(uc_volume_unlock)))

/**
 * uc_volume_lock_beat() - Give a sign of life for the lock that this thread holds, if any
 * Return: 0, or -ECANCELED: it was taken away, and the volume is somebody else's
 */
int uc_volume_lock_beat(void);

/**
 * uc_volume_load() - Read a volume's state
 * @ret_v:	Result; release with uc_volume_done()
 *
 * With the volume's lock for what is to be changed; without, for a look.
 *
 * Return: 0, -ENOENT (no such volume), -EUCLEAN (the file is not valid: nothing is done with such a
 * volume), another negative errno
 */
int uc_volume_load(const struct uc_store *store, const char *id, struct uc_volume *ret_v,
		   struct uc_err *err);

/** uc_volume_store() - Write a volume's state, durably; under its lock.  0, -ECANCELED (the lock
 * was lost), or a negative errno */
int uc_volume_store(struct uc_volume_lock *lock, const struct uc_volume *v, struct uc_err *err);

/**
 * uc_volume_forget() - Remove a volume's state and its directory; under its lock, which is released
 *
 * What a server may have left there (a socket, an empty mount point, its log) is removed; anything
 * else keeps the directory: -ENOTEMPTY, with the state gone.
 *
 * Return: 0; -EBUSY (a server lives, or something is mounted there: nothing was touched); another
 * negative errno
 */
int uc_volume_forget(const struct uc_store *store, struct uc_volume_lock *lock, const char *id,
		     struct uc_err *err);

/**
 * uc_store_each() - Go through the ids that have a directory, in byte order
 * @fn:		Called with each id; a value other than 0 ends the walk
 *
 * Return: what @fn returned, 0 at the end, or a negative errno
 */
int uc_store_each(const struct uc_store *store, int (*fn)(void *data, const char *id), void *data,
		  struct uc_err *err);
