/*
 * Contexts of several threads work at the same time: each comes to the bits that it comes to alone. Under the thread
 * sanitizer this is the test of what contexts share.
 */
#include "works.h"

#include <pthread.h>

enum { THREADS = 4 };

typedef struct job {
    pthread_t thread;
    pthread_barrier_t *start;
    size_t kind;
    int threads;
    record result;
} job;

static void *run(void *payload)
{
    job *j = payload;
    pthread_barrier_wait(j->start);
    j->result = work_alone(j->kind, j->threads);
    return NULL;
}

/* Job i does its kind in a context of its number of threads; alone[i] is what comes of that. */
static void together(const size_t *kinds, const int *threads, const record *alone)
{
    job jobs[THREADS];
    pthread_barrier_t start;
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (size_t i = 0; i < THREADS; i++) {
        jobs[i] = (job){.start = &start, .kind = kinds[i], .threads = threads[i]};
        assert_int_equal(pthread_create(&jobs[i].thread, NULL, run, &jobs[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(jobs[i].thread, NULL), 0);
    pthread_barrier_destroy(&start);
    for (size_t i = 0; i < THREADS; i++) {
        assert_same_record(&alone[i], &jobs[i].result, kinds[i], "beside others");
        free(jobs[i].result.numbers);
    }
}

static void test_different_work(void **state)
{
    (void)state;
    record alone[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        alone[i] = work_alone(i, 2);
    together((const size_t[]){0, 1, 2, 3}, (const int[]){2, 2, 2, 2}, alone);
    for (size_t i = 0; i < THREADS; i++)
        free(alone[i].numbers);
}

/* The same shapes, so the same primitives, in contexts of one, two and three threads. */
static void test_same_work(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < WORKS; kind++) {
        record one = work_alone(kind, 1), two = work_alone(kind, 2), three = work_alone(kind, 3);
        together((const size_t[]){kind, kind, kind, kind}, (const int[]){1, 2, 3, 2},
                 (const record[]){one, two, three, two});
        free(one.numbers);
        free(two.numbers);
        free(three.numbers);
    }
}

static void *fail_often(void *payload)
{
    int number = *(const int *)payload;
    bool own = true;
    for (int i = 0; i < 2000; i++) {
        eg_fail(EG_EINVAL, "failure %d of thread %d", i, number);
        char expected[64];
        snprintf(expected, sizeof expected, "failure %d of thread %d", i, number);
        own = own && strcmp(eg_error_last()->message, expected) == 0;
    }
    return own ? payload : NULL;
}

static void test_failures_are_the_threads_own(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    int numbers[THREADS] = {0, 1, 2, 3};
    eg_error_clear();
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fail_often, &numbers[i]), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &numbers[i]);
    }
    assert_int_equal(eg_error_last()->code, EG_OK);
}

/* eg_context_cancel() is what another thread may call. */
static void *cancel(void *payload)
{
    eg_context_cancel(payload);
    return NULL;
}

static void test_cancel_from_another_thread(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel, ctx), 0);
    while (!eg_context_canceled(ctx))
        usleep(100);
    eg_context_resume(ctx);
    assert_int_equal(pthread_join(thread, NULL), 0);
    eg_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_different_work), cmocka_unit_test(test_same_work),
                                       cmocka_unit_test(test_failures_are_the_threads_own),
                                       cmocka_unit_test(test_cancel_from_another_thread)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
