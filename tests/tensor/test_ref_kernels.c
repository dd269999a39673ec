/*
 * tests/tensor/test_ref_kernels.c - the reference kernels on small cases done by hand: types, views, ties, NaN and
 * infinities, windows at the border.
 */
#include "support.h"
#include "vectors.h"

#include "tensor/kernels.h"

static const eg_kernels *const k = &eg__ref_kernels;

static int open_context(void **state)
{
    *state = eg_context_new(.backend = "ref");
    return *state ? 0 : -1;
}

static int close_context(void **state)
{
    eg_context_free(*state);
    return 0;
}

static eg_tensor *from(eg_context *ctx, eg_dtype dtype, eg_shape shape, const double *values)
{
    eg_tensor *t = eg_empty(ctx, dtype, shape, EG_LAYOUT_ROW_MAJOR);
    assert_non_null(t);
    for (int64_t i = 0; i < eg_tensor_numel(t); i++)
        element_set(t, i, values[i]);
    return t;
}
#define FROM(ctx, dtype, shape, ...) from(ctx, dtype, shape, (const double[]){__VA_ARGS__})

static eg_tensor *empty(eg_context *ctx, eg_dtype dtype, eg_shape shape)
{
    eg_tensor *t = eg_empty(ctx, dtype, shape, EG_LAYOUT_DEFAULT);
    assert_non_null(t);
    return t;
}

static void expect_all(const eg_tensor *t, const double *expected)
{
    for (int64_t i = 0; i < eg_tensor_numel(t); i++) {
        double value = element_get(t, i);
        bool same = isnan(expected[i]) ? isnan(value) : value == expected[i] || fabs(value - expected[i]) < 1e-6;
        if (!same)
            fail_msg("element %lld is %.9g, expected %.9g", (long long)i, value, expected[i]);
    }
}
#define EXPECT(t, ...) expect_all(t, (const double[]){__VA_ARGS__})

/** A tensor with dimensions 0 and 1 exchanged. */
static eg_tensor *transposed(eg_tensor *t)
{
    eg_shape shape = EG_SHAPE(t->shape.dims[1], t->shape.dims[0]);
    const int64_t strides[] = {t->strides[1], t->strides[0]};
    eg_tensor *view = eg__scope_add(eg__tensor_new_view(t, shape, strides, t->offset));
    assert_non_null(view);
    return view;
}

static void copy_converts_between_all_types(void **state)
{
    eg_context *ctx = *state;
    const eg_dtype types[] = {EG_F32, EG_F64, EG_I64, EG_U8};
    for (size_t i = 0; i < EG_COUNT(types); i++)
        for (size_t j = 0; j < EG_COUNT(types); j++) {
            eg_tensor *x = FROM(ctx, types[i], EG_SHAPE(1, 2, 1, 3), 0, 1, 2, 200, 254, 255);
            eg_tensor *y = empty(ctx, types[j], x->shape);
            assert_ok(k->copy(x, y));
            EXPECT(y, 0, 1, 2, 200, 254, 255);
        }
}

static void copy_to_integers_truncates_and_saturates(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F64, EG_SHAPE(7), 1.9, -1.9, 255.5, 300, 1e30, -1e30, NAN);
    eg_tensor *bytes = empty(ctx, EG_U8, x->shape), *integers = empty(ctx, EG_I64, x->shape);
    assert_ok(k->copy(x, bytes));
    EXPECT(bytes, 1, 0, 255, 255, 255, 0, 0);
    assert_ok(k->copy(x, integers));
    EXPECT(integers, 1, -1, 255, 300, (double)INT64_MAX, (double)INT64_MIN, 0);
}

static void copy_keeps_large_integers(void **state)
{
    eg_tensor *x = empty(*state, EG_I64, EG_SHAPE(2)), *y = empty(*state, EG_I64, EG_SHAPE(2));
    eg__i64(x)[0] = ((int64_t)1 << 53) + 1; /* no double has this value */
    eg__i64(x)[1] = INT64_MIN;
    assert_ok(k->copy(x, y));
    assert_true(eg__i64(y)[0] == ((int64_t)1 << 53) + 1);
    assert_true(eg__i64(y)[1] == INT64_MIN);
}

static void copy_reads_views(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    eg_tensor *y = empty(ctx, EG_F64, EG_SHAPE(3, 2));
    assert_ok(k->copy(transposed(x), y));
    EXPECT(y, 1, 4, 2, 5, 3, 6);

    eg_tensor *row = FROM(ctx, EG_F32, EG_SHAPE(3), 7, 8, 9);
    eg_tensor *rows = eg__scope_add(eg__tensor_new_view(row, EG_SHAPE(2, 3), (const int64_t[]){0, 1}, 0));
    assert_ok(k->copy(rows, x));
    EXPECT(x, 7, 8, 9, 7, 8, 9);
}

static void fill_and_accumulate(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(2, 2), 1, 2, 3, 4), *y = empty(ctx, EG_F32, x->shape);
    assert_ok(k->fill(y, 0.5));
    EXPECT(y, 0.5, 0.5, 0.5, 0.5);
    assert_ok(k->accumulate(x, y));
    assert_ok(k->accumulate(transposed(x), y));
    EXPECT(y, 2.5, 5.5, 5.5, 8.5);
    eg_tensor *integer = empty(ctx, EG_I64, EG_SCALAR);
    assert_ok(k->fill(integer, -3));
    EXPECT(integer, -3);
    eg_tensor *nothing = empty(ctx, EG_F32, EG_SHAPE(2, 0, 3));
    assert_ok(k->fill(nothing, 1));
}

static void conv2d_by_hand(void **state)
{
    eg_context *ctx = *state;
    eg__window win = {{2, 2}, {1, 1}, {0, 0}, {1, 1}, 1, false};
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(1, 1, 2, 3), 1, 2, 3, 4, 5, 6);
    eg_tensor *w = FROM(ctx, EG_F32, EG_SHAPE(1, 1, 2, 2), 1, 10, 100, 1000);
    eg_tensor *y = empty(ctx, EG_F32, EG_SHAPE(1, 1, 1, 2)), *dx = empty(ctx, EG_F32, x->shape);
    assert_ok(k->conv2d(&win, x, w, NULL, y));
    EXPECT(y, 1 + 20 + 400 + 5000, 2 + 30 + 500 + 6000);
    eg_tensor *dy = FROM(ctx, EG_F32, y->shape, 1, 2);
    assert_ok(k->conv2d_backward_input(&win, w, dy, dx, false));
    EXPECT(dx, 1, 10 + 2, 20, 100, 1000 + 200, 2000);
    eg_tensor *dw = empty(ctx, EG_F32, w->shape);
    assert_ok(k->conv2d_backward_weight(&win, x, dy, dw, NULL));
    EXPECT(dw, 1 + 4, 2 + 6, 4 + 10, 5 + 12);
}

static void max_pool_takes_the_first_maximum_and_nan(void **state)
{
    eg_context *ctx = *state;
    eg__window win = {{2, 2}, {2, 2}, {0, 0}, {1, 1}, 1, false};
    eg_tensor *x =
        FROM(ctx, EG_F32, EG_SHAPE(1, 1, 2, 6), 1, 5, 7, NAN, -INFINITY, -INFINITY, 5, 5, 9, 8, -INFINITY, -INFINITY);
    eg_tensor *y = empty(ctx, EG_F32, EG_SHAPE(1, 1, 1, 3)), *position = NULL;
    assert_ok(k->max_pool2d(&win, x, y, &position));
    assert_true(element_get(y, 0) == 5);
    assert_true(isnan(element_get(y, 1)));
    assert_true(element_get(y, 2) == (double)-INFINITY);
    EXPECT(position, 1, 3, 4);
    eg_tensor_release(position);
}

static void max_pool_window_in_the_padding(void **state)
{
    eg_context *ctx = *state;
    /* taps at -1 and 1 of a single row: both outside */
    eg__window win = {{2, 1}, {1, 1}, {1, 0}, {2, 1}, 1, false};
    eg_tensor *x = FROM(ctx, EG_F64, EG_SHAPE(1, 1, 1, 2), 3, 4), *dx = empty(ctx, EG_F64, x->shape);
    eg_tensor *y = empty(ctx, EG_F64, x->shape), *position = NULL;
    assert_ok(k->max_pool2d(&win, x, y, &position));
    assert_true(element_get(y, 0) == (double)-INFINITY && element_get(y, 1) == (double)-INFINITY);
    assert_ok(k->max_pool2d_backward(&win, position, FROM(ctx, EG_F64, y->shape, 1, 1), dx, false));
    EXPECT(dx, 0, 0);
    eg_tensor_release(position);
}

static void avg_pool_divides_clipped_windows(void **state)
{
    eg_context *ctx = *state;
    /* width 4, kernel 3, stride 2, padding 1, ceil_mode: windows -1..1, 1..3 and 3..5, the last one too wide */
    eg__window win = {{1, 3}, {1, 2}, {0, 1}, {1, 1}, 1, false};
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(1, 1, 1, 4), 3, 6, 9, 12);
    eg_tensor *y = empty(ctx, EG_F32, EG_SHAPE(1, 1, 1, 3));
    assert_ok(k->avg_pool2d(&win, x, y));
    EXPECT(y, 9.0 / 3, 27.0 / 3, 12.0 / 2);
    win.exclude_pad = true;
    assert_ok(k->avg_pool2d(&win, x, y));
    EXPECT(y, 9.0 / 2, 27.0 / 3, 12.0 / 1);
    eg_tensor *dx = empty(ctx, EG_F32, x->shape);
    assert_ok(k->avg_pool2d_backward(&win, FROM(ctx, EG_F32, y->shape, 2, 3, 5), dx, false));
    EXPECT(dx, 1, 1 + 1, 1, 1 + 5);
}

static void adaptive_windows_overlap(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(1, 1, 1, 5), 1, 2, 3, 4, 5);
    eg_tensor *y = empty(ctx, EG_F32, EG_SHAPE(1, 1, 1, 2)), *dx = empty(ctx, EG_F32, x->shape);
    assert_ok(k->adaptive_avg_pool2d(x, y)); /* 0..2 and 2..4 */
    EXPECT(y, 2, 4);
    assert_ok(k->adaptive_avg_pool2d_backward(FROM(ctx, EG_F32, y->shape, 3, 6), dx));
    EXPECT(dx, 1, 1, 3, 2, 2);
}

static void batch_norm_by_hand(void **state)
{
    eg_context *ctx = *state;
    eg__batch_norm bn = {.eps = 0, .relu = true};
    eg_tensor *x = FROM(ctx, EG_F64, EG_SHAPE(2, 2), 1, 10, 3, 30);
    eg_tensor *gamma = FROM(ctx, EG_F64, EG_SHAPE(2), 2, 1), *beta = FROM(ctx, EG_F64, EG_SHAPE(2), 0.5, 2);
    eg_tensor *mean = empty(ctx, EG_F64, gamma->shape), *var = empty(ctx, EG_F64, gamma->shape);
    eg_tensor *y = empty(ctx, EG_F64, x->shape), *dbeta = empty(ctx, EG_F64, gamma->shape);
    assert_ok(k->batch_norm(&bn, x, gamma, beta, mean, var, y, NULL));
    EXPECT(mean, 2, 20);
    EXPECT(var, 1, 100);
    EXPECT(y, 0, 1, 2.5, 3);
    eg_tensor *dy = FROM(ctx, EG_F64, x->shape, 100, 1, 10, 2);
    assert_ok(k->batch_norm_backward(&bn, x, gamma, beta, mean, var, NULL, dy, NULL, NULL, dbeta));
    EXPECT(dbeta, 10, 3);
}

static void unary_at_nan_and_infinity(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F64, EG_SHAPE(3), NAN, -INFINITY, INFINITY), *y = empty(ctx, EG_F64, x->shape);
    assert_ok(k->unary(EG__RELU, 0, 0, x, y));
    assert_true(isnan(element_get(y, 0)) && element_get(y, 1) == 0 && isinf(element_get(y, 2)));
    assert_ok(k->unary(EG__RELU6, 0, 0, x, y));
    EXPECT(y, NAN, 0, 6);
    assert_ok(k->unary(EG__SIGMOID, 0, 0, x, y));
    EXPECT(y, NAN, 0, 1);
    assert_ok(k->unary(EG__TANH, 0, 0, x, y));
    EXPECT(y, NAN, -1, 1);
}

static void maximum_keeps_nan(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(2, 3), 1, NAN, NAN, 4, 4, 2);
    eg_tensor *y = empty(ctx, EG_F32, EG_SHAPE(2, 1)), *index = empty(ctx, EG_I64, y->shape);
    assert_ok(k->reduce(EG__MAX, x, y, index));
    EXPECT(y, NAN, 4);
    EXPECT(index, 1, 0);
}

static void softmax_of_large_numbers(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(2, 2), 1e4, 1e4, -1e4, 1e4), *y = empty(ctx, EG_F32, x->shape);
    assert_ok(k->softmax(1, false, x, y));
    EXPECT(y, 0.5, 0.5, 0, 1);
    assert_ok(k->softmax(1, true, x, y));
    EXPECT(y, -0.69314718, -0.69314718, -2e4, 0);
}

static void cross_entropy_of_an_excluded_class(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F64, EG_SHAPE(1, 3), 0, -INFINITY, 0), *p = empty(ctx, EG_F64, x->shape);
    eg_tensor *loss = empty(ctx, EG_F64, EG_SHAPE(1)), *dx = empty(ctx, EG_F64, x->shape);
    eg_tensor *label = FROM(ctx, EG_I64, EG_SHAPE(1), 2);
    assert_ok(k->cross_entropy(0, x, label, p, loss));
    EXPECT(loss, 0.69314718);
    EXPECT(p, 0.5, 0, 0.5);
    assert_ok(k->cross_entropy_backward(0, p, label, FROM(ctx, EG_F64, EG_SHAPE(1), 2), dx));
    EXPECT(dx, 1, 0, -1);
}

static void sums_accumulate_in_double(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_F32, EG_SHAPE(4), 1e8, 1, 1, -1e8), *y = empty(ctx, EG_F32, EG_SHAPE(1));
    assert_ok(k->reduce(EG__SUM, x, y, NULL)); /* float32 would lose both ones */
    EXPECT(y, 2);
    const eg_tensor *terms[] = {FROM(ctx, EG_F32, EG_SHAPE(1), 1e8), FROM(ctx, EG_F32, EG_SHAPE(1), 1),
                                FROM(ctx, EG_F32, EG_SHAPE(1), -1e8)};
    assert_ok(k->weighted_sum(3, terms, NULL, y));
    EXPECT(y, 1);
}

static void optimizer_lists_may_mix_types(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *p[] = {FROM(ctx, EG_F32, EG_SHAPE(2), 1, 2), FROM(ctx, EG_F64, EG_SHAPE(1), 3)};
    eg_tensor *grad[] = {FROM(ctx, EG_F32, EG_SHAPE(2), 10, 20), FROM(ctx, EG_F64, EG_SHAPE(1), 30)};
    eg__sgd o = {.lr = 0.1};
    assert_ok(k->sgd(&o, 2, p, grad, NULL));
    EXPECT(p[0], 0, 0);
    EXPECT(p[1], 0);
    double squares;
    assert_ok(k->norm2(2, grad, &squares));
    assert_true(squares == 1400);
    assert_ok(k->scale(2, grad, 0.5));
    EXPECT(grad[0], 5, 10);
    EXPECT(grad[1], 15);
    assert_ok(k->norm2(0, NULL, &squares));
    assert_true(squares == 0);
}

static void integers_are_refused(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = FROM(ctx, EG_I64, EG_SHAPE(2), 1, 2), *y = empty(ctx, EG_I64, x->shape);
    assert_fails(k->unary(EG__RELU, 0, 0, x, y), EG_EDTYPE, "unary: expected float32 or float64, got int64");
    assert_fails(k->scale(1, &x, 2), EG_EDTYPE, "scale: expected float32 or float64, got int64");
}

#define BY_HAND(test) cmocka_unit_test_setup_teardown(test, open_context, close_context)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BY_HAND(copy_converts_between_all_types),
        BY_HAND(copy_to_integers_truncates_and_saturates),
        BY_HAND(copy_keeps_large_integers),
        BY_HAND(copy_reads_views),
        BY_HAND(fill_and_accumulate),
        BY_HAND(conv2d_by_hand),
        BY_HAND(max_pool_takes_the_first_maximum_and_nan),
        BY_HAND(max_pool_window_in_the_padding),
        BY_HAND(avg_pool_divides_clipped_windows),
        BY_HAND(adaptive_windows_overlap),
        BY_HAND(batch_norm_by_hand),
        BY_HAND(unary_at_nan_and_infinity),
        BY_HAND(maximum_keeps_nan),
        BY_HAND(softmax_of_large_numbers),
        BY_HAND(cross_entropy_of_an_excluded_class),
        BY_HAND(sums_accumulate_in_double),
        BY_HAND(optimizer_lists_may_mix_types),
        BY_HAND(integers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
