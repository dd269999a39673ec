/*
 * tests/data/test_dataset.c - data sets from arrays, and their parts.
 */
#include "data/data_support.h"

static int setup(void **state)
{
    *state = eg_context_new(.seed = 1, .threads = 1);
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    eg_error_clear();
    return 0;
}

static void count_classes(const eg_dataset *dataset, size_t *count, size_t classes)
{
    memset(count, 0, classes * sizeof *count);
    for (size_t i = 0; i < eg_dataset_size(dataset); i++)
        count[eg_dataset_label(dataset, i)]++;
}

/* The first number of a sample of make_images() tells which one it is. */
static size_t identity(const eg_dataset *dataset, size_t i)
{
    float sample[64];
    assert_ok(eg_dataset_read(dataset, i, sample, NULL));
    return (size_t)(sample[0] - 1) / (size_t)eg_shape_numel(eg_dataset_shape(dataset));
}

static void test_arrays(void **state)
{
    eg_context *ctx = *state;
    float data[] = {1, 2, 3, 4, 5, 6};
    int64_t labels[] = {0, 2, 1};
    eg_dataset *dataset = eg_dataset_from_arrays(ctx, data, EG_SHAPE(2), labels, 3, 3);
    assert_made(dataset);
    data[2] = 99; /* copied */
    float row[2];
    int64_t label;
    assert_ok(eg_dataset_read(dataset, 1, row, &label));
    assert_true(row[0] == 3 && row[1] == 4 && label == 2);
    assert_fails(eg_dataset_read(dataset, 3, row, NULL), EG_EINVAL, "sample 3: the data set has 3");
    assert_int_equal(eg_dataset_label(dataset, 3), -1);
    assert_recorded(EG_EINVAL, "sample 3");
    eg_dataset_release(dataset);
    labels[1] = 3;
    assert_refused(eg_dataset_from_arrays(ctx, data, EG_SHAPE(2), labels, 3, 3), EG_EINVAL,
                   "label 3 of sample 1, expected 0 .. 2");
    labels[1] = -1;
    assert_refused(eg_dataset_from_arrays(ctx, data, EG_SHAPE(2), labels, 3, 3), EG_EINVAL, "label -1 of sample 1");
    assert_refused(eg_dataset_from_arrays(ctx, data, EG_SHAPE(1, 1, 1, 2), labels, 3, 3), EG_EINVAL,
                   "1 to 3 dimensions");
    assert_refused(eg_dataset_from_arrays(ctx, NULL, EG_SHAPE(2), labels, 3, 3), EG_EINVAL, "data is NULL");
    assert_refused(eg_dataset_from_arrays(ctx, data, EG_SHAPE(2), labels, 0, 3), EG_EINVAL, "0 samples");
    assert_refused(eg_dataset_open_with(&(eg_dataset_options){.ctx = ctx, .spec = "csv:x"}), EG_EINVAL, "struct_size");
    assert_refused(eg_dataset_open_with(NULL), EG_EINVAL, "options");
    const char *const good[] = {"fashion-mnist", "idx:nowhere", "cifar10:x", "csv:a:b"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_ok(eg_dataset_check_spec(good[i])); /* no file is looked at */
    assert_fails(eg_dataset_check_spec("mnist"), EG_EINVAL, "unknown data set 'mnist', expected 'fashion-mnist'");
    assert_fails(eg_dataset_check_spec("csv:"), EG_EINVAL, "expected 'csv:FILE'");
    assert_fails(eg_dataset_check_spec("fashion-mnist:x"), EG_EINVAL, "expected 'fashion-mnist'");
    assert_fails(eg_dataset_check_spec(NULL), EG_EINVAL, "spec");
}

static void test_subset(void **state)
{
    eg_dataset *dataset = make_images(*state, 10, 1, 2, 5);
    const size_t first[] = {9, 0, 7, 7}, second[] = {2, 0};
    eg_dataset *a = eg_dataset_subset(dataset, first, 4), *b = eg_dataset_subset(a, second, 2);
    assert_made(b);
    eg_dataset_release(dataset); /* the parts keep what they need */
    eg_dataset_release(a);
    assert_int_equal(eg_dataset_size(b), 2);
    assert_int_equal(identity(b, 0), 7);
    assert_int_equal(identity(b, 1), 9);
    assert_int_equal(eg_dataset_label(b, 0), 2);
    const size_t wrong[] = {2};
    assert_refused(eg_dataset_subset(b, wrong, 1), EG_EINVAL, "sample 2: the data set has 2");
    assert_refused(eg_dataset_subset(NULL, wrong, 1), EG_EINVAL, "data set");
    eg_dataset_release(b);
}

static void test_sample(void **state)
{
    eg_dataset *dataset = make_images(*state, 50, 1, 1, 5);
    size_t count[5];
    eg_dataset *a = eg_dataset_sample(dataset, 15, 1), *same = eg_dataset_sample(dataset, 15, 1),
               *b = eg_dataset_sample(dataset, 15, 2);
    assert_made(a);
    count_classes(a, count, 5);
    bool differs = false;
    for (size_t c = 0; c < 5; c++)
        assert_int_equal(count[c], 3);
    for (size_t i = 0; i < 15; i++) {
        assert_int_equal(identity(a, i), identity(same, i));
        assert_true(i == 0 || identity(a, i) > identity(a, i - 1)); /* in the set's order, none twice */
        differs = differs || identity(a, i) != identity(b, i);
    }
    assert_true(differs);
    eg_dataset *all = eg_dataset_sample(dataset, 0, 1), *many = eg_dataset_sample(dataset, 1000, 1);
    assert_int_equal(eg_dataset_size(all), 50);
    assert_int_equal(eg_dataset_size(many), 50);
    eg_dataset_release(a);
    eg_dataset_release(same);
    eg_dataset_release(b);
    eg_dataset_release(all);
    eg_dataset_release(many);
    eg_dataset_release(dataset);
}

/* Classes that have less than their share give all they have. */
static void test_sample_uneven(void **state)
{
    float data[20] = {0};
    int64_t labels[20] = {1, 1, 2}; /* class 0: 17, class 1: 2, class 2: 1, class 3: none */
    eg_dataset *dataset = eg_dataset_from_arrays(*state, data, EG_SHAPE(1), labels, 20, 4),
               *sample = eg_dataset_sample(dataset, 9, 3);
    size_t count[4];
    count_classes(sample, count, 4);
    assert_int_equal(count[0], 6);
    assert_int_equal(count[1], 2);
    assert_int_equal(count[2], 1);
    eg_dataset_release(sample);
    eg_dataset_release(dataset);
}

static void test_divide(void **state)
{
    eg_dataset *dataset = make_images(*state, 103, 1, 1, 4), *a, *b;
    static const double fractions[] = {0, 0.1, 0.25, 0.5, 0.77, 1};
    for (size_t k = 0; k < sizeof fractions / sizeof fractions[0]; k++) {
        assert_ok(eg_dataset_divide(dataset, fractions[k], 5, &a, &b));
        size_t n = eg_dataset_size(a), count[4], whole[4];
        assert_int_equal(n, llround(fractions[k] * 103));
        assert_int_equal(n + eg_dataset_size(b), 103);
        count_classes(a, count, 4);
        count_classes(dataset, whole, 4);
        for (size_t c = 0; c < 4; c++)
            assert_true(fabs((double)count[c] - fractions[k] * (double)whole[c]) <= 1);
        bool seen[103] = {false};
        for (size_t i = 0; i < n; i++)
            seen[identity(a, i)] = true;
        for (size_t i = 0; i < eg_dataset_size(b); i++)
            seen[identity(b, i)] = true;
        for (size_t i = 0; i < 103; i++)
            assert_true(seen[i]);
        eg_dataset_release(a);
        eg_dataset_release(b);
    }
    assert_fails(eg_dataset_divide(dataset, 1.5, 5, &a, &b), EG_EINVAL, "fraction 1.5");
    assert_null(a);
    assert_fails(eg_dataset_divide(dataset, NAN, 5, &a, &b), EG_EINVAL, "fraction nan");
    eg_dataset_release(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_arrays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_subset, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sample, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sample_uneven, setup, teardown),
        cmocka_unit_test_setup_teardown(test_divide, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
