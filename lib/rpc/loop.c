/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/os/clock.h"
#include "lib/rpc/loop.h"

/*
 * Theory of operation
 *
 * A round waits for descriptors until the first timer is due, then calls, in
 * this order: sources that are ready, posted calls, timers that are due.
 *
 * Any callback may remove, add or free any source, timer or post:
 *
 *   - The batch that epoll_wait() has filled is kept in the loop.  Removing a
 *     source blanks its entries there, so a pointer that was freed, or that
 *     now belongs to a new source at the same address, is never followed.
 *   - Timers that are due move to a second list before the first is called.
 *     Each is unlinked before its call; clearing another one unlinks it from
 *     whichever list it is on.  A timer that a callback sets, due or not,
 *     waits for the next round: timers cannot starve descriptors.
 *   - Posts likewise: a round makes the calls that were posted before it.
 *
 * Posts are the only part that other threads touch; `lock` covers both lists
 * of them.  A list ends in a pointer to `list_end`, not in NULL, so that
 * `next` also says whether a post is on a list.
 */

enum {
	BATCH = 64,
};

struct uc_loop {
	int epoll_fd;
	int event_fd;
	bool running, stop;
	uint64_t now_ms;

	struct epoll_event batch[BATCH];
	int n_batch, at; /* entries behind `at` are still to be dispatched */

	struct uc_timer *timers; /* sorted by time, then by age */
	struct uc_timer *due;    /* being called in this round */

	pthread_mutex_t lock;
	struct uc_post *posts, *posts_last; /* lock; in order */
	struct uc_post *ready;              /* lock; being called in this round */
};

static struct uc_post list_end;

static int watch_event_fd(struct uc_loop *loop)
{
	/* NULL stands for the event descriptor; blanked entries have no events. */
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = NULL };

	loop->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->event_fd < 0 || epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->event_fd, &e) < 0)
		return -errno;
	return 0;
}

int uc_loop_new(struct uc_loop **ret_loop)
{
	cleanup_with(uc_loop_freep) struct uc_loop *loop = NULL;
	int r;

	loop = calloc(1, sizeof(*loop));
	if (!loop)
		return -ENOMEM;
	loop->event_fd = -1;
	loop->posts = loop->ready = &list_end;
	pthread_mutex_init(&loop->lock, NULL);
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0)
		return -errno;
	r = watch_event_fd(loop);
	if (r < 0)
		return r;
	*ret_loop = take_ptr(&loop);
	return 0;
}

void uc_loop_free(struct uc_loop *loop)
{
	if (!loop)
		return;
	uc_closep(&loop->event_fd);
	uc_closep(&loop->epoll_fd);
	pthread_mutex_destroy(&loop->lock);
	free(loop);
}

uint64_t uc_loop_now_ms(const struct uc_loop *loop)
{
	return loop->running ? loop->now_ms : uc_now_ms();
}

void uc_loop_stop(struct uc_loop *loop)
{
	loop->stop = true;
}

int uc_loop_add(struct uc_loop *loop, struct uc_source *s)
{
	struct epoll_event e = { .events = s->events, .data.ptr = s };

	return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, s->fd, &e) < 0 ? -errno : 0;
}

int uc_loop_modify(struct uc_loop *loop, struct uc_source *s, uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = s };

	if (events == s->events)
		return 0;
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, s->fd, &e) < 0)
		return -errno;
	s->events = events;
	return 0;
}

void uc_loop_remove(struct uc_loop *loop, struct uc_source *s)
{
	int saved = errno;

	/* Fails only for a source that was never added: there is nothing to undo then. */
	(void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
	for (int i = loop->at; i < loop->n_batch; i++)
		if (loop->batch[i].data.ptr == s)
			loop->batch[i] = (struct epoll_event){ 0 };
	errno = saved;
}

/* Puts @t in front of *@link. */
static void timer_link(struct uc_timer *t, struct uc_timer **link)
{
	t->next = *link;
	t->link = link;
	if (t->next)
		t->next->link = &t->next;
	*link = t;
}

static void timer_unlink(struct uc_timer *t)
{
	*t->link = t->next;
	if (t->next)
		t->next->link = t->link;
	t->next = NULL;
	t->link = NULL;
}

void uc_loop_set_timer(struct uc_loop *loop, struct uc_timer *t, uint64_t at_ms)
{
	struct uc_timer **link = &loop->timers;

	uc_loop_clear_timer(loop, t);
	while (*link && (*link)->at_ms <= at_ms)
		link = &(*link)->next;
	t->at_ms = at_ms;
	timer_link(t, link);
}

void uc_loop_clear_timer(struct uc_loop *loop, struct uc_timer *t)
{
	(void)loop;
	if (t->link)
		timer_unlink(t);
}

void uc_loop_post(struct uc_loop *loop, struct uc_post *p)
{
	bool wake = false;

	pthread_mutex_lock(&loop->lock);
	if (!p->next) {
		wake = loop->posts == &list_end;
		if (wake)
			loop->posts = p;
		else
			loop->posts_last->next = p;
		loop->posts_last = p;
		p->next = &list_end;
	}
	pthread_mutex_unlock(&loop->lock);
	/* An eventfd refuses only to overflow, and then it is readable already. */
	if (wake)
		(void)eventfd_write(loop->event_fd, 1);
}

/* Takes @p off one of the lists; false if it is not there. */
static bool post_unlink(struct uc_loop *loop, struct uc_post **link, struct uc_post *p)
{
	struct uc_post *before = &list_end;

	for (; *link != &list_end; link = &(*link)->next) {
		if (*link == p) {
			*link = p->next;
			if (loop->posts_last == p)
				loop->posts_last = before;
			p->next = NULL;
			return true;
		}
		before = *link;
	}
	return false;
}

void uc_loop_unpost(struct uc_loop *loop, struct uc_post *p)
{
	pthread_mutex_lock(&loop->lock);
	if (p->next && !post_unlink(loop, &loop->posts, p))
		(void)post_unlink(loop, &loop->ready, p);
	pthread_mutex_unlock(&loop->lock);
}

static struct uc_post *next_ready(struct uc_loop *loop)
{
	struct uc_post *p;

	pthread_mutex_lock(&loop->lock);
	p = loop->ready;
	if (p != &list_end) {
		loop->ready = p->next;
		p->next = NULL;
	}
	pthread_mutex_unlock(&loop->lock);
	return p == &list_end ? NULL : p;
}

static void dispatch_posts(struct uc_loop *loop)
{
	eventfd_t ignored;
	struct uc_post *p;

	/* Before the list is taken: what is posted from here on wakes again. */
	(void)eventfd_read(loop->event_fd, &ignored);
	pthread_mutex_lock(&loop->lock);
	loop->ready = loop->posts;
	loop->posts = &list_end;
	pthread_mutex_unlock(&loop->lock);
	while ((p = next_ready(loop)))
		p->fn(p);
}

static void dispatch_sources(struct uc_loop *loop)
{
	bool posted = false;

	for (loop->at = 0; loop->at < loop->n_batch;) {
		struct epoll_event *e = &loop->batch[loop->at++];
		struct uc_source *s = e->data.ptr;

		if (s)
			s->fn(s, e->events);
		else if (e->events)
			posted = true;
	}
	loop->n_batch = 0;
	if (posted)
		dispatch_posts(loop);
}

static void dispatch_timers(struct uc_loop *loop)
{
	struct uc_timer *t, **rest = &loop->timers;

	while (*rest && (*rest)->at_ms <= loop->now_ms)
		rest = &(*rest)->next;
	if (rest == &loop->timers)
		return;
	loop->due = loop->timers;
	loop->due->link = &loop->due;
	loop->timers = *rest;
	if (loop->timers)
		loop->timers->link = &loop->timers;
	*rest = NULL;
	while ((t = loop->due)) {
		timer_unlink(t);
		t->fn(t);
	}
}

static int wait_ms(const struct uc_loop *loop)
{
	uint64_t now, left;

	if (!loop->timers)
		return -1;
	now = uc_now_ms();
	left = loop->timers->at_ms > now ? loop->timers->at_ms - now : 0;
	return left < INT_MAX ? (int)left : INT_MAX;
}

int uc_loop_run(struct uc_loop *loop)
{
	int r = 0;

	loop->running = true;
	loop->stop = false;
	loop->now_ms = uc_now_ms();
	while (!loop->stop) {
		int n = epoll_wait(loop->epoll_fd, loop->batch, BATCH, wait_ms(loop));

		loop->now_ms = uc_now_ms();
		if (n < 0 && errno != EINTR) {
			r = -errno;
			break;
		}
		loop->n_batch = n > 0 ? n : 0;
		dispatch_sources(loop);
		dispatch_timers(loop);
	}
	loop->running = false;
	return r;
}
