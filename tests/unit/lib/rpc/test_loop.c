/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/unit.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/base/macros.h"
#include "lib/os/clock.h"
#include "lib/rpc/loop.h"

/* What callbacks of a test share. */
static struct uc_loop *loop;
static int calls;
static char trace[64];

static int setup(void **state)
{
	(void)state;
	calls = 0;
	trace[0] = '\0';
	return uc_loop_new(&loop);
}

static int teardown(void **state)
{
	(void)state;
	uc_loop_free(loop);
	return 0;
}

static void trace_add(char c)
{
	size_t n = 0;

	while (trace[n])
		n++;
	assert_true(n + 1 < sizeof(trace));
	trace[n] = c;
	trace[n + 1] = '\0';
}

/* A source that is always ready, with what it is to do. */
struct ready {
	struct uc_source source;
	char name;
	struct ready *removes; /* and frees */
};

static void ready_free(struct ready *r)
{
	uc_loop_remove(loop, &r->source);
	close(r->source.fd);
	free(r);
}

static void ready_fn(struct uc_source *s, uint32_t revents)
{
	struct ready *r = uc_container_of(s, struct ready, source);

	assert_int_equal(revents, EPOLLIN);
	trace_add(r->name);
	if (r->removes)
		ready_free(r->removes);
	if (++calls == 3)
		uc_loop_stop(loop);
}

static struct ready *ready_new(char name)
{
	struct ready *r = calloc(1, sizeof(*r));

	r->name = name;
	r->source = (struct uc_source){
		.fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK),
		.events = EPOLLIN,
		.fn = ready_fn,
	};
	assert_int_equal(uc_loop_add(loop, &r->source), 0);
	return r;
}

static void source_removed_by_another_is_not_called(void **state)
{
	struct ready *a = ready_new('a'), *b = ready_new('b');

	(void)state;
	/* Both are ready in the same round.  Whichever is first frees the other. */
	a->removes = b;
	b->removes = a;
	calls = 2;
	assert_int_equal(uc_loop_run(loop), 0);
	assert_true(trace[0] && !trace[1]);
	ready_free(trace[0] == 'a' ? a : b);
}

static void free_self(struct uc_source *s, uint32_t revents)
{
	(void)revents;
	trace_add('x');
	ready_free(uc_container_of(s, struct ready, source));
	uc_loop_stop(loop);
}

static void source_may_free_itself(void **state)
{
	struct ready *r = ready_new('x');

	(void)state;
	r->source.fn = free_self;
	assert_int_equal(uc_loop_run(loop), 0);
	assert_string_equal(trace, "x");
}

/* The address of the one that was freed may be the new one's: it must not get the old one's event.
 */
static struct ready *replacement;

static void replace_other(struct uc_source *s, uint32_t revents)
{
	struct ready *r = uc_container_of(s, struct ready, source);
	uint64_t ignored;

	(void)revents;
	trace_add(r->name);
	if (r->removes) {
		struct ready *other = r->removes;

		uc_loop_remove(loop, &other->source);
		close(other->source.fd);
		*other = (struct ready){ .name = 'n' };
		other->source = (struct uc_source){
			.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
			.events = EPOLLIN,
			.fn = ready_fn,
		};
		assert_int_equal(uc_loop_add(loop, &other->source), 0);
		replacement = other;
	}
	assert_int_equal(read(s->fd, &ignored, sizeof(ignored)), sizeof(ignored));
}

static void stop(struct uc_timer *t)
{
	(void)t;
	uc_loop_stop(loop);
}

static void new_source_at_an_old_address_gets_no_old_event(void **state)
{
	struct uc_timer t = { .fn = stop };
	struct ready *a = ready_new('a'), *b = ready_new('b');

	(void)state;
	a->removes = b;
	b->removes = a;
	a->source.fn = b->source.fn = replace_other;
	uc_loop_set_timer(loop, &t, uc_loop_now_ms(loop) + 20);
	assert_int_equal(uc_loop_run(loop), 0);
	assert_int_equal(calls, 0);
	assert_true(trace[0] && !trace[1]);
	assert_ptr_equal(replacement, trace[0] == 'a' ? b : a);
	ready_free(a);
	ready_free(b);
}

static void source_is_called_for_what_it_asks_for(void **state)
{
	struct uc_timer t = { .fn = stop };
	struct ready *r = ready_new('a');

	(void)state;
	assert_int_equal(uc_loop_modify(loop, &r->source, 0), 0);
	uc_loop_set_timer(loop, &t, uc_loop_now_ms(loop) + 5);
	assert_int_equal(uc_loop_run(loop), 0);
	assert_string_equal(trace, "");
	assert_int_equal(uc_loop_modify(loop, &r->source, EPOLLIN), 0);
	assert_int_equal(uc_loop_run(loop), 0);
	assert_string_equal(trace, "aaa");
	ready_free(r);
}

/* ---------------------------------------------------------------- timers */

struct named_timer {
	struct uc_timer timer;
	char name;
	struct named_timer *clears;
	struct named_timer *sets; /* for now */
};

static void timer_fn(struct uc_timer *t)
{
	struct named_timer *n = uc_container_of(t, struct named_timer, timer);

	assert_true(uc_loop_now_ms(loop) >= t->at_ms);
	trace_add(n->name);
	if (n->clears)
		uc_loop_clear_timer(loop, &n->clears->timer);
	if (n->sets)
		uc_loop_set_timer(loop, &n->sets->timer, uc_loop_now_ms(loop));
	if (n->name == 'z')
		uc_loop_stop(loop);
}

static void timers_fire_in_order_of_time_then_of_age(void **state)
{
	struct named_timer t[] = {
		{ .timer.fn = timer_fn, .name = 'a' }, { .timer.fn = timer_fn, .name = 'b' },
		{ .timer.fn = timer_fn, .name = 'c' }, { .timer.fn = timer_fn, .name = 'd' },
		{ .timer.fn = timer_fn, .name = 'z' },
	};
	uint64_t now = uc_loop_now_ms(loop);

	(void)state;
	uc_loop_set_timer(loop, &t[4].timer, now + 9);
	uc_loop_set_timer(loop, &t[2].timer, now + 5);
	uc_loop_set_timer(loop, &t[0].timer, now);
	uc_loop_set_timer(loop, &t[3].timer, now + 5);
	uc_loop_set_timer(loop, &t[1].timer, now + 100000);
	uc_loop_set_timer(loop, &t[1].timer, now + 2); /* moved */
	assert_int_equal(uc_loop_run(loop), 0);
	assert_string_equal(trace, "abcdz");
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_null(t[i].timer.link);
}

static void timer_cleared_by_another_of_the_same_round_does_not_fire(void **state)
{
	struct named_timer b = { .timer.fn = timer_fn, .name = 'b' };
	struct named_timer a = { .timer.fn = timer_fn, .name = 'a', .clears = &b };
	struct named_timer z = { .timer.fn = timer_fn, .name = 'z' };
	uint64_t now = uc_loop_now_ms(loop);

	(void)state;
	uc_loop_set_timer(loop, &a.timer, now);
	uc_loop_set_timer(loop, &b.timer, now);
	uc_loop_set_timer(loop, &z.timer, now);
	uc_loop_clear_timer(loop, &b.timer);
	uc_loop_clear_timer(loop, &b.timer);
	uc_loop_set_timer(loop, &b.timer, now);
	assert_int_equal(uc_loop_run(loop), 0);
	assert_string_equal(trace, "az");
}

/* One that sets itself again for now must not keep the rest from running. */
static void timer_that_sets_itself_does_not_starve_sources(void **state)
{
	struct named_timer a = { .timer.fn = timer_fn, .name = 'a' };
	struct ready *r = ready_new('r');

	(void)state;
	a.sets = &a;
	uc_loop_set_timer(loop, &a.timer, 0);
	assert_int_equal(uc_loop_run(loop), 0);
	assert_string_equal(trace, "rarara");
	uc_loop_clear_timer(loop, &a.timer);
	ready_free(r);
}

static void timer_is_not_early_and_not_very_late(void **state)
{
	struct uc_timer t = { .fn = stop };
	uint64_t begun = uc_now_ms();

	(void)state;
	uc_loop_set_timer(loop, &t, begun + 30);
	assert_int_equal(uc_loop_run(loop), 0);
	assert_in_range(uc_now_ms() - begun, 30, 5000);
}

/* ----------------------------------------------------------------- posts */

struct named_post {
	struct uc_post post;
	char name;
	struct named_post *unposts;
	struct named_post *posts;
};

static void post_fn(struct uc_post *p)
{
	struct named_post *n = uc_container_of(p, struct named_post, post);

	trace_add(n->name);
	if (n->unposts)
		uc_loop_unpost(loop, &n->unposts->post);
	if (n->posts)
		uc_loop_post(loop, &n->posts->post);
	if (n->name == 'z')
		uc_loop_stop(loop);
}

static void posts_are_called_once_and_in_order(void **state)
{
	struct named_post a = { .post.fn = post_fn, .name = 'a' };
	struct named_post b = { .post.fn = post_fn, .name = 'b' };
	struct named_post z = { .post.fn = post_fn, .name = 'z' };

	(void)state;
	uc_loop_post(loop, &a.post);
	uc_loop_post(loop, &b.post);
	uc_loop_post(loop, &a.post);
	uc_loop_post(loop, &z.post);
	assert_int_equal(uc_loop_run(loop), 0);
	assert_string_equal(trace, "abz");
	/* And can be posted again. */
	uc_loop_post(loop, &z.post);
	assert_int_equal(uc_loop_run(loop), 0);
	assert_string_equal(trace, "abzz");
}

static void post_is_taken_back_wherever_it_is(void **state)
{
	struct named_post b = { .post.fn = post_fn, .name = 'b' };
	struct named_post c = { .post.fn = post_fn, .name = 'c' };
	struct named_post a = { .post.fn = post_fn, .name = 'a', .unposts = &b };
	struct named_post z = { .post.fn = post_fn, .name = 'z' };

	(void)state;
	uc_loop_unpost(loop, &c.post);
	uc_loop_post(loop, &c.post);
	uc_loop_unpost(loop, &c.post); /* the only one */
	uc_loop_post(loop, &a.post);
	uc_loop_post(loop, &b.post);
	uc_loop_post(loop, &c.post);
	uc_loop_unpost(loop, &c.post); /* the last one */
	uc_loop_post(loop, &z.post);
	assert_int_equal(uc_loop_run(loop), 0);
	assert_string_equal(trace, "az");
	uc_loop_post(loop, &c.post);
	uc_loop_post(loop, &b.post);
	uc_loop_unpost(loop, &c.post); /* the first one */
	uc_loop_post(loop, &z.post);
	assert_int_equal(uc_loop_run(loop), 0);
	assert_string_equal(trace, "azbz");
}

static void post_that_posts_itself_does_not_starve_sources(void **state)
{
	struct named_post a = { .post.fn = post_fn, .name = 'a' };
	struct ready *r = ready_new('r');

	(void)state;
	a.posts = &a;
	uc_loop_post(loop, &a.post);
	assert_int_equal(uc_loop_run(loop), 0);
	assert_int_equal(calls, 3);
	uc_loop_unpost(loop, &a.post);
	ready_free(r);
}

enum {
	THREADS = 4,
	POSTS = 500,
};

struct counted {
	struct uc_post post;
	int *count;
};

static void count_fn(struct uc_post *p)
{
	struct counted *c = uc_container_of(p, struct counted, post);
	int *count = c->count;

	free(c);
	if (++*count == THREADS * POSTS)
		uc_loop_stop(loop);
}

static void *poster(void *data)
{
	for (int i = 0; i < POSTS; i++) {
		struct counted *c = calloc(1, sizeof(*c));

		c->post.fn = count_fn;
		c->count = data;
		uc_loop_post(loop, &c->post);
	}
	return NULL;
}

static void no_post_of_other_threads_is_lost(void **state)
{
	pthread_t threads[THREADS];
	int count = 0;

	(void)state;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, poster, &count), 0);
	assert_int_equal(uc_loop_run(loop), 0);
	assert_int_equal(count, THREADS * POSTS);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(source_removed_by_another_is_not_called, setup,
						teardown),
		cmocka_unit_test_setup_teardown(source_may_free_itself, setup, teardown),
		cmocka_unit_test_setup_teardown(new_source_at_an_old_address_gets_no_old_event,
						setup, teardown),
		cmocka_unit_test_setup_teardown(source_is_called_for_what_it_asks_for, setup,
						teardown),
		cmocka_unit_test_setup_teardown(timers_fire_in_order_of_time_then_of_age, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			timer_cleared_by_another_of_the_same_round_does_not_fire, setup, teardown),
		cmocka_unit_test_setup_teardown(timer_that_sets_itself_does_not_starve_sources,
						setup, teardown),
		cmocka_unit_test_setup_teardown(timer_is_not_early_and_not_very_late, setup,
						teardown),
		cmocka_unit_test_setup_teardown(posts_are_called_once_and_in_order, setup,
						teardown),
		cmocka_unit_test_setup_teardown(post_is_taken_back_wherever_it_is, setup, teardown),
		cmocka_unit_test_setup_teardown(post_that_posts_itself_does_not_starve_sources,
						setup, teardown),
		cmocka_unit_test_setup_teardown(no_post_of_other_threads_is_lost, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
