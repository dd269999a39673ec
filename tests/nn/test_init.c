/*
 * Initializers: bounds, moments, dependence on the seed alone.
 */
#include "support.h"

#include "engraft/layers.h"

#include <math.h>
#include <string.h>

enum { N = 40000 };
static float numbers[2][N];

typedef struct moments {
    double min, max, mean, variance;
} moments;

static moments measure(const eg_tensor *t)
{
    size_t n = (size_t)eg_tensor_numel(t);
    assert_true(n <= N);
    assert_int_equal(eg_tensor_read(t, numbers[0], n), EG_OK);
    moments m = {.min = INFINITY, .max = -INFINITY};
    for (size_t i = 0; i < n; i++) {
        double x = (double)numbers[0][i];
        m.min = fmin(m.min, x);
        m.max = fmax(m.max, x);
        m.mean += x / (double)n;
        m.variance += x * x / (double)n;
    }
    m.variance -= m.mean * m.mean;
    return m;
}

/* Uniform on (-bound, bound), to the accuracy that so many draws allow: five standard errors. */
static void assert_uniform(const eg_tensor *t, double bound)
{
    moments m = measure(t);
    double n = (double)eg_tensor_numel(t), variance = bound * bound / 3;
    assert_true(m.min >= -bound && m.max <= bound);
    assert_true(m.min < -0.9 * bound && m.max > 0.9 * bound);
    assert_true(fabs(m.mean) < 5 * sqrt(variance / n));
    assert_true(fabs(m.variance - variance) < 5 * variance * sqrt(0.8 / n)); /* kurtosis 1.8 */
}

static void assert_normal(const eg_tensor *t, double mean, double std)
{
    moments m = measure(t);
    double n = (double)eg_tensor_numel(t), variance = std * std;
    assert_true(fabs(m.mean - mean) < 5 * std / sqrt(n));
    assert_true(fabs(m.variance - variance) < 5 * variance * sqrt(2 / n));
    assert_true(m.max > mean + 3 * std && m.min < mean - 3 * std);
}

static void distributions(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 3, .threads = 1);
    eg_tensor *t = eg_zeros(ctx, EG_SHAPE(N));
    assert_int_equal(eg_init_uniform(t, -2, 2), EG_OK);
    assert_uniform(t, 2);
    assert_int_equal(eg_init_normal(t, 1, 0.5), EG_OK);
    assert_normal(t, 1, 0.5);
    assert_int_equal(eg_init_constant(t, -3), EG_OK);
    moments m = measure(t);
    assert_true(m.min == -3 && m.max == -3);
    t = eg_empty(ctx, EG_F32, EG_SHAPE(50, 32, 5, 5), EG_LAYOUT_ROW_MAJOR);
    assert_int_equal(eg_init_kaiming_uniform(t, 0), EG_OK);
    assert_uniform(t, sqrt(6.0 / (32 * 25)));
    assert_int_equal(eg_init_kaiming_normal(t, 1), EG_OK);
    assert_normal(t, 0, sqrt(1.0 / (32 * 25)));
    eg_context_free(ctx);
}

static void layers_start_as_in_pytorch(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 4, .threads = 1);
    eg_module *m = eg_conv2d(ctx, 64, 128, 3, .groups = 4);
    assert_uniform(eg_module_tensor(m, "weight"), 1 / sqrt(16 * 9));
    moments b = measure(eg_module_tensor(m, "bias"));
    assert_true(b.max <= 1 / sqrt(16 * 9) && b.max > 0.8 / sqrt(16 * 9) && b.min < -0.8 / sqrt(16 * 9));
    eg_module_release(m);
    m = eg_linear(ctx, 100, 400);
    assert_uniform(eg_module_tensor(m, "weight"), 0.1);
    assert_uniform(eg_module_tensor(m, "bias"), 0.1);
    eg_module_release(m);
    m = eg_batch_norm2d(ctx, 5);
    static const struct {
        const char *name;
        double value;
    } constants[] = {{"weight", 1}, {"bias", 0}, {"running_mean", 0}, {"running_var", 1}};
    for (size_t i = 0; i < 4; i++) {
        moments c = measure(eg_module_tensor(m, constants[i].name));
        assert_true(c.min == constants[i].value && c.max == constants[i].value);
    }
    eg_module_release(m);
    eg_context_free(ctx);
}

static void weight_of(uint64_t seed, float *out)
{
    eg_context *ctx = eg_context_new(.seed = seed, .threads = 1);
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 3, 3), eg_conv2d(ctx, 4, 4, 3)));
    assert_int_equal(eg_tensor_read(eg_module_tensor(m, "1.weight"), out, 144), EG_OK);
    eg_module_release(m);
    eg_context_free(ctx);
}

static void a_seed_gives_the_same_numbers(void **state)
{
    (void)state;
    weight_of(11, numbers[0]);
    weight_of(11, numbers[1]);
    assert_memory_equal(numbers[0], numbers[1], 144 * sizeof(float));
    weight_of(12, numbers[1]);
    assert_memory_not_equal(numbers[0], numbers[1], 144 * sizeof(float));
}

static void numbers_come_in_logical_order(void **state)
{
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        eg_context *ctx = eg_context_new(.seed = 5, .threads = 1);
        eg_tensor *t =
            eg_empty(ctx, EG_F32, EG_SHAPE(2, 3, 4, 5), layout == 0 ? EG_LAYOUT_DEFAULT : EG_LAYOUT_ROW_MAJOR);
        assert_int_equal(eg_init_normal(t, 0, 1), EG_OK);
        assert_int_equal(eg_tensor_read(t, numbers[layout], 120), EG_OK);
        eg_context_free(ctx);
    }
    assert_memory_equal(numbers[0], numbers[1], 120 * sizeof(float));
}

static void wrong_arguments(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 5, .threads = 1);
    eg_error_clear();
    assert_int_equal(eg_init_uniform(NULL, 0, 1), EG_EINVAL);
    eg_tensor *t = eg_zeros(ctx, EG_SHAPE(4));
    assert_int_equal(eg_init_uniform(t, 1, 0), EG_EINVAL);
    assert_int_equal(eg_init_normal(t, 0, -1), EG_EINVAL);
    assert_int_equal(eg_init_normal(t, NAN, 1), EG_EINVAL);
    assert_int_equal(eg_init_kaiming_uniform(t, 0), EG_EINVAL);
    assert_int_equal(eg_init_constant(eg_none, 0), EG_EINVAL);
    assert_int_equal(eg_init_constant(eg_shape_only(ctx, EG_SHAPE(2)), 0), EG_EINVAL);
    assert_int_equal(eg_init_constant(eg_from_labels(ctx, 1, (const int64_t[]){1}), 0), EG_EDTYPE);
    t = eg_empty(ctx, EG_F64, EG_SHAPE(2, 2), EG_LAYOUT_DEFAULT);
    assert_int_equal(eg_init_constant(t, 0.1), EG_OK);
    assert_true(((const double *)eg_tensor_data(t))[3] == 0.1);
    eg_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distributions),
        cmocka_unit_test(layers_start_as_in_pytorch),
        cmocka_unit_test(a_seed_gives_the_same_numbers),
        cmocka_unit_test(numbers_come_in_logical_order),
        cmocka_unit_test(wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
