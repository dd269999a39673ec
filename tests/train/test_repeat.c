/*
 * For a fixed number of threads the bits are the same from run to run: losses, all gradients, and what optimizers make
 * of them.
 */
#include "works.h"

static void repeat(int threads)
{
    char what[32];
    snprintf(what, sizeof what, "%d threads", threads);
    for (size_t kind = 0; kind < WORKS; kind++) {
        record first = work_alone(kind, threads);
        record again = work_alone(kind, threads);
        assert_same_record(&first, &again, kind, what);
        free(first.numbers);
        free(again.numbers);
    }
}

static void test_one_thread(void **state)
{
    (void)state;
    repeat(1);
}

static void test_two_threads(void **state)
{
    (void)state;
    repeat(2);
}

static void test_three_threads(void **state)
{
    (void)state;
    repeat(3);
}

/* A context's number of threads holds whatever other contexts of the same thread have. */
static void test_contexts_in_turn(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < WORKS; kind++) {
        record first = work_alone(kind, 2);
        record between = work_alone((kind + 1) % WORKS, 3);
        record again = work_alone(kind, 2);
        assert_same_record(&first, &again, kind, "after another context");
        free(first.numbers);
        free(between.numbers);
        free(again.numbers);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_thread), cmocka_unit_test(test_two_threads),
                                       cmocka_unit_test(test_three_threads), cmocka_unit_test(test_contexts_in_turn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
