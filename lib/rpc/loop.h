/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The event loop: one epoll descriptor, one thread.
 *
 * Everything that owns a socket, an HTTP/2 session or a map lives on the
 * loop's thread.  Other threads reach it only through uc_loop_post().
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "lib/base/cleanup.h"

struct uc_loop;

/** struct uc_source - a descriptor that the loop watches; embedded in its owner */
struct uc_source {
	int fd;          /* borrowed: remove the source before closing it */
	uint32_t events; /* EPOLLIN | EPOLLOUT, as last told to the loop */
	/* On the loop's thread; may remove any source. */
	void (*fn)(struct uc_source *s, uint32_t revents);
};

/** struct uc_timer - a call at a time; embedded in its owner */
struct uc_timer {
	uint64_t at_ms;                 /* uc_loop_now_ms() when it fires */
	void (*fn)(struct uc_timer *t); /* on the loop's thread; the timer is no longer set then */
	struct uc_timer *next, **link;  /* the loop's */
};

/** struct uc_post - a call from another thread; embedded in its owner */
struct uc_post {
	/* On the loop's thread; may post @p again, or free its owner. */
	void (*fn)(struct uc_post *p);
	struct uc_post *next; /* the loop's; NULL: not posted */
};

/**
 * uc_loop_new() - Make a loop
 * Return: 0 or a negative errno
 */
int uc_loop_new(struct uc_loop **ret_loop);

/**
 * uc_loop_free() - Release a loop; NULL is allowed
 *
 * Its sources, timers and posts are their owners' business.
 */
void uc_loop_free(struct uc_loop *loop);

UC_DEFINE_CLEANUP(struct uc_loop *, uc_loop_free)

/** uc_loop_run() - Dispatch until uc_loop_stop(); 0 or a negative errno */
int uc_loop_run(struct uc_loop *loop);

/** uc_loop_stop() - Make uc_loop_run() return after what it is doing; from the loop's thread */
void uc_loop_stop(struct uc_loop *loop);

/** uc_loop_now_ms() - CLOCK_MONOTONIC in milliseconds, as of this round of dispatching */
uint64_t uc_loop_now_ms(const struct uc_loop *loop);

/** uc_loop_add() - Watch @s->fd for @s->events; 0 or a negative errno */
int uc_loop_add(struct uc_loop *loop, struct uc_source *s);

/** uc_loop_modify() - Watch for @events instead; no system call if nothing changes */
int uc_loop_modify(struct uc_loop *loop, struct uc_source *s, uint32_t events);

/**
 * uc_loop_remove() - Watch no longer
 *
 * To be called before @s->fd is closed.  Events of @s that are pending are dropped.
 */
void uc_loop_remove(struct uc_loop *loop, struct uc_source *s);

/** uc_loop_set_timer() - Set or move a timer */
void uc_loop_set_timer(struct uc_loop *loop, struct uc_timer *t, uint64_t at_ms);

/** uc_loop_clear_timer() - Unset a timer; one that is not set is left alone */
void uc_loop_clear_timer(struct uc_loop *loop, struct uc_timer *t);

/**
 * uc_loop_post() - Have @p->fn called on the loop's thread
 * @loop:	Loop
 * @p:		Call (borrowed until it is made); zeroed but for @p->fn before its first use
 *
 * From any thread.  Calls are made in the order in which they were posted; what
 * is posted already stays where it is.  Waking the loop cannot fail.
 */
void uc_loop_post(struct uc_loop *loop, struct uc_post *p);

/** uc_loop_unpost() - Take a post back, so that its owner can be freed; from the loop's thread */
void uc_loop_unpost(struct uc_loop *loop, struct uc_post *p);
