/*
 * tests/data/test_fashion.c - the real Fashion-MNIST, where it is installed.
 */
#include "data/data_support.h"

enum { NUMEL = 28 * 28 };

static void check_split(eg_context *ctx, eg_dataset_split split, size_t size, double tolerance)
{
    eg_dataset *dataset = eg_dataset_open(ctx, "fashion-mnist", .split = split);
    assert_made(dataset);
    assert_int_equal(eg_dataset_size(dataset), size);
    assert_int_equal(eg_dataset_classes(dataset), 10);
    assert_true(eg_shape_equal(eg_dataset_shape(dataset), EG_SHAPE(1, 28, 28)));
    size_t count[10] = {0};
    double sum = 0, squares = 0, n = (double)size * NUMEL;
    for (size_t i = 0; i < size; i++) {
        float sample[NUMEL];
        int64_t label;
        assert_ok(eg_dataset_read(dataset, i, sample, &label));
        count[label]++;
        for (size_t p = 0; p < NUMEL; p++) {
            sum += (double)sample[p];
            squares += (double)(sample[p] * sample[p]);
        }
    }
    for (size_t c = 0; c < 10; c++)
        assert_int_equal(count[c], size / 10);
    assert_close(sum / n, 0, tolerance);
    assert_close(squares / n, 1, tolerance);
    eg_dataset_release(dataset);
}

static void test_fashion(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 1, .threads = 1);
    eg_dataset *probe = eg_dataset_open(ctx, "fashion-mnist");
    if (!probe && eg_error_last()->code == EG_ENOENT) {
        print_message("%s\n", eg_error_last()->message);
        eg_context_free(ctx);
        skip();
    }
    assert_made(probe);
    assert_int_equal(eg_dataset_label(probe, 0), 9); /* an ankle boot */
    eg_dataset_release(probe);
    check_split(ctx, EG_TRAIN, 60000, 1e-4);
    check_split(ctx, EG_TEST, 10000, 0.02); /* by the training split's numbers */
    eg_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fashion)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
