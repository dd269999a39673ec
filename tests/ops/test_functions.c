/*
 * What functions, comparisons, indexing and losses promise at the edges (ties, infinities, NaN, numbers out of range),
 * and what they refuse.
 */
#include "ops/ops_support.h"

#include <math.h>

static eg_tensor *vector(size_t n, const float *data)
{
    return eg_from_data(ctx, EG_SHAPE((int64_t)n), data);
}
#define VECTOR(...) vector(sizeof((const float[]){__VA_ARGS__}) / sizeof(float), (const float[]){__VA_ARGS__})

static eg_tensor *labels(size_t n, const int64_t *data)
{
    return eg_from_labels(ctx, n, data);
}
#define LABELS(...) labels(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})

static void expect_numbers(const eg_tensor *y, size_t n, const float *expected)
{
    float got[16];
    if (!y)
        fail_msg("%s", eg_error_first()->message);
    assert_true(n <= 16);
    assert_int_equal(eg_tensor_read(y, got, n), EG_OK);
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - expected[i]) <= 1e-6F) && got[i] != expected[i] && !(isnan(got[i]) && isnan(expected[i])))
            fail_msg("number %zu is %g, expected %g", i, (double)got[i], (double)expected[i]);
}
#define EXPECT(y, ...)                                                                                                 \
    expect_numbers(y, sizeof((const float[]){__VA_ARGS__}) / sizeof(float), (const float[]){__VA_ARGS__})

/* ---- numbers ---- */

static void test_functions_at_the_edges(void **state)
{
    (void)state;
    EXPECT(eg_ln(VECTOR(-1, 0, 1, INFINITY)), NAN, -INFINITY, 0, INFINITY);
    EXPECT(eg_sqrt(VECTOR(-1, 0, 4)), NAN, 0, 2);
    EXPECT(eg_pow(VECTOR(-2, 0, 3), 2), 4, 0, 9);
    EXPECT(eg_pow(VECTOR(-2, 0, 2), 3), -8, 0, 8);
    EXPECT(eg_pow(VECTOR(-2, 0, NAN), 0), 1, 1, 1);
    EXPECT(eg_pow(VECTOR(-2, 4), -1), -0.5F, 0.25F);
    EXPECT(eg_clamp(VECTOR(-2, 0.5F, 7, NAN), -1, 1), -1, 0.5F, 1, NAN);
    EXPECT(eg_neg(VECTOR(-2, 3)), 2, -3);
    EXPECT(eg_f_softplus(VECTOR(-200, 0, 30, 200), 1, 20), 0, 0.6931472F, 30, 200);
    EXPECT(eg_f_elu(VECTOR(-INFINITY, -1e-7F, 0, 2), 3), -3, -3e-7F, 0, 2);
    EXPECT(eg_f_mish(VECTOR(-100, 0, 100)), 0, 0, 100);
    EXPECT(eg_maximum(VECTOR(1, NAN, 0), VECTOR(0, 0, NAN)), 1, NAN, NAN);
    EXPECT(eg_minimum(VECTOR(1, NAN, 0), VECTOR(0, 0, NAN)), 0, NAN, NAN);
    EXPECT(eg_gt(VECTOR(1, 2, NAN), VECTOR(2, 1, 0)), 0, 1, 0);
    EXPECT(eg_lt(VECTOR(1, 2, NAN), VECTOR(2, 1, 0)), 1, 0, 0);
    EXPECT(eg_eq(VECTOR(1, 2, NAN), VECTOR(1, 1, NAN)), 1, 0, 0);
    EXPECT(eg_where(VECTOR(0, 1, -2), VECTOR(NAN, 2, 3), VECTOR(4, INFINITY, NAN)), 4, 2, 3);
}

static void expect_gradients(eg_tensor *y, eg_tensor *a, const float *da, eg_tensor *b, const float *db, size_t n)
{
    if (eg_backward(eg_sum(y)) != EG_OK)
        fail_msg("%s", eg_error_first()->message);
    expect_numbers(eg_tensor_grad(a), n, da);
    expect_numbers(eg_tensor_grad(b), n, db);
    eg_tensor_zero_grad(a);
    eg_tensor_zero_grad(b);
}

static void test_ties_share_the_gradient(void **state)
{
    (void)state;
    eg_tensor *a = VECTOR(1, 2, 3), *b = VECTOR(2, 2, 2);
    eg_tensor_set_requires_grad(a, true);
    eg_tensor_set_requires_grad(b, true);
    const float larger[] = {0, 0.5F, 1}, smaller[] = {1, 0.5F, 0};
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    expect_gradients(eg_maximum(a, b), a, larger, b, smaller, 3);
    expect_gradients(eg_minimum(a, b), a, smaller, b, larger, 3);
    eg_tape_end(tape);
}

static void test_slopes_at_kinks(void **state)
{
    (void)state;
    const struct {
        eg_tensor *(*function)(eg_tensor *x, double parameter);
        double parameter;
        float slopes[3];
    } * c, cases[] = {{eg_pow, 0, {0, 0, 0}}, {eg_pow, 1, {1, 1, 1}}, {eg_f_elu, 0.5, {0.183939721F, 0.5F, 1}}};
    for (c = cases; c < cases + 3; c++) {
        eg_tensor *x = VECTOR(-1, 0, 1);
        eg_tensor_set_requires_grad(x, true);
        eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
        assert_int_equal(eg_backward(eg_sum(c->function(x, c->parameter))), EG_OK);
        expect_numbers(eg_tensor_grad(x), 3, c->slopes);
        eg_tensor_zero_grad(x);
        assert_int_equal(eg_backward(eg_sum(eg_abs(x))), EG_OK);
        EXPECT(eg_tensor_grad(x), -1, 0, 1);
        eg_tensor_zero_grad(x);
        assert_int_equal(eg_backward(eg_sum(eg_clamp(x, 0, 1))), EG_OK); /* limits belong to the range */
        EXPECT(eg_tensor_grad(x), 0, 1, 1);
        eg_tape_end(tape);
    }
}

static void test_picking(void **state)
{
    (void)state;
    eg_tensor *x = eg_reshape(VECTOR(1, 5, 3, 5, 2, 0), EG_SHAPE(2, 3));
    EXPECT(eg_argmax(x, 1, false), 1, 0);
    EXPECT(eg_argmax(x, 0, true), 1, 0, 0);
    assert_int_equal(eg_tensor_dtype(eg_argmax(x, 0, true)), EG_I64);
    assert_true(eg_shape_equal(eg_tensor_shape(eg_argmax(x, -1, true)), EG_SHAPE(2, 1)));
    eg_tensor *top = eg_topk(x, 2, 1, true), *low = eg_topk(VECTOR(NAN, 2, 1, 1), 4, 0, false);
    EXPECT(eg_tuple_get(top, 0), 5, 3, 5, 2);
    EXPECT(eg_tuple_get(top, 1), 1, 2, 0, 1);
    EXPECT(eg_tuple_get(low, 0), 1, 1, 2, NAN);
    EXPECT(eg_tuple_get(low, 1), 2, 3, 1, 0);
    EXPECT(eg_f_one_hot(LABELS(2, 0), 3), 0, 0, 1, 1, 0, 0);
    EXPECT(eg_cumsum(x, 1), 1, 6, 9, 5, 7, 7);
    EXPECT(eg_index_select(x, 1, LABELS(2, 2, 0)), 3, 3, 1, 0, 0, 5);
    EXPECT(eg_gather(x, 0, eg_reshape(LABELS(1, 0), EG_SHAPE(1, 2))), 5, 5);
    eg_tensor_set_requires_grad(x, true);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    assert_int_equal(eg_backward(eg_sum(eg_index_select(x, 1, LABELS(2, 2, 0)))), EG_OK);
    EXPECT(eg_tensor_grad(x), 1, 0, 2, 1, 0, 2); /* what was picked twice counts twice */
    eg_tape_end(tape);
}

static void test_losses(void **state)
{
    (void)state;
    eg_tensor *a = VECTOR(0, 3), *b = VECTOR(0.5F, 1);
    EXPECT(eg_f_l1_loss(a, b), 1.25F);
    EXPECT(eg_f_l1_loss(a, b, .reduction = EG_REDUCTION_NONE), 0.5F, 2);
    EXPECT(eg_f_smooth_l1_loss(a, b, .reduction = EG_REDUCTION_SUM), 1.625F);
    EXPECT(eg_f_smooth_l1_loss(a, b, .reduction = EG_REDUCTION_SUM, .beta = EG_F64(0)), 2.5F);
    EXPECT(eg_f_bce_with_logits(VECTOR(0, 100, -100), VECTOR(1, 1, 0), eg_none, .reduction = EG_REDUCTION_NONE),
           0.6931472F, 0, 0);
    /* a target of 0 costs nothing, and an impossible one nothing but its gradient */
    EXPECT(eg_f_kl_div(VECTOR(-1, -2), VECTOR(0, 1), .reduction = EG_REDUCTION_NONE), 0, 2);
    eg_tensor *rows = eg_reshape(VECTOR(-1, -2, -3, -4), EG_SHAPE(2, 2));
    EXPECT(eg_f_kl_div(rows, eg_ones(ctx, EG_SHAPE(2, 2)), .reduction = EG_REDUCTION_BATCHMEAN), 5);
    EXPECT(eg_f_nll_loss(rows, LABELS(0, 1), eg_none), 2.5F);
    EXPECT(eg_f_nll_loss(rows, LABELS(0, 1), VECTOR(1, 3)), 13.0F / 4);
}

/* ---- messages ---- */

static void test_refused_functions(void **state)
{
    (void)state;
    expect_error(eg_clamp(t(EG_SHAPE(2)), 2, 1), EG_EINVAL,
                 "clamp: limits are 2 and 1, expected a lower and an upper one");
    expect_error(eg_clamp(t(EG_SHAPE(2)), NAN, 1), EG_EINVAL,
                 "clamp: limits are nan and 1, expected a lower and an upper one");
    expect_error(eg_f_softplus(t(EG_SHAPE(2)), 0, 20), EG_EINVAL, "softplus: beta is 0, expected more than 0");
    expect_error(eg_exp(LABELS(1)), EG_EDTYPE, "exp: input has type int64, expected float32 or float64");
    expect_error(eg_f_prelu(t(EG_SHAPE(2, 3)), t(EG_SHAPE(2))), EG_ESHAPE,
                 "prelu: weight has shape (2), expected (1) or (3)");
    expect_error(eg_f_prelu(t(EG_SHAPE(3)), t(EG_SHAPE(3))), EG_ESHAPE,
                 "prelu: weight has shape (3), expected (1) or (1)");
    expect_error(eg_maximum(t(EG_SHAPE(2)), t(EG_SHAPE(3))), EG_ESHAPE, "maximum: shapes (2) and (3) do not broadcast");
    expect_error(eg_where(t(EG_SHAPE(2)), t(EG_SHAPE(2)), t(EG_SHAPE(3))), EG_ESHAPE,
                 "where: shapes (2) and (3) do not broadcast");
    expect_error(eg_where(LABELS(1), t(EG_SHAPE(1)), t(EG_SHAPE(1))), EG_EDTYPE,
                 "where: condition has type int64, expected float32 or float64");
}

static void test_refused_indices(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 3));
    expect_error(eg_index_select(x, 1, LABELS(0, 3)), EG_EINVAL,
                 "index_select: index 3 is out of range, expected 0 to 2");
    expect_error(eg_index_select(x, 0, LABELS(-1)), EG_EINVAL,
                 "index_select: index -1 is out of range, expected 0 to 1");
    expect_error(eg_index_select(x, 2, LABELS(0)), EG_EINVAL,
                 "index_select: dimension 2 is out of range for an input (2, 3)");
    expect_error(eg_index_select(x, 0, eg_reshape(LABELS(0), EG_SHAPE(1, 1))), EG_ESHAPE,
                 "index_select: index (1, 1) has 2 dimensions, expected (n)");
    expect_error(eg_index_select(x, 0, t(EG_SHAPE(1))), EG_EDTYPE,
                 "index_select: index has type float32, expected int64");
    expect_error(eg_gather(x, 1, LABELS(0)), EG_ESHAPE,
                 "gather: index (1) does not fit into input (2, 3) along the other dimensions than 1");
    expect_error(eg_gather(x, 1, eg_reshape(LABELS(0, 1, 2), EG_SHAPE(3, 1))), EG_ESHAPE,
                 "gather: index (3, 1) does not fit into input (2, 3) along the other dimensions than 1");
    expect_error(eg_gather(x, -2, eg_reshape(LABELS(0, 1, 2), EG_SHAPE(1, 3))), EG_EINVAL,
                 "gather: index 2 is out of range, expected 0 to 1");
    /* a view of an index is read through its strides */
    eg_tensor *every_other = eg_slice(LABELS(0, 9, 1), 0, 0, INT64_MAX, 2);
    assert_non_null(eg_index_select(x, 0, every_other));
    expect_error(eg_topk(x, 4, 1, true), EG_EINVAL, "topk: k is 4, expected 1 to 3 as dimension 1 has");
    expect_error(eg_topk(x, 0, -1, true), EG_EINVAL, "topk: k is 0, expected 1 to 3 as dimension -1 has");
    expect_error(eg_f_one_hot(LABELS(3), 3), EG_EINVAL, "one_hot: class 3 is out of range, expected 0 to 2");
    expect_error(eg_f_one_hot(LABELS(0), 0), EG_EINVAL, "one_hot: number of classes is 0, expected 1 or more");
    expect_error(eg_f_one_hot(t(EG_SHAPE(1)), 3), EG_EDTYPE, "one_hot: class has type float32, expected int64");
    expect_error(eg_cumsum(eg_full(ctx, EG_SCALAR, 1), 0), EG_EINVAL,
                 "cumsum: dimension 0 is out of range for an input ()");
    expect_error(eg_argmax(x, 2, false), EG_EINVAL, "argmax: dimension 2 is out of range for an input (2, 3)");
}

static void test_refused_losses(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 3)), *y = t(EG_SHAPE(3, 2));
    expect_error(eg_f_l1_loss(x, y), EG_ESHAPE, "l1_loss: input has shape (2, 3), target (3, 2)");
    expect_error(eg_f_l1_loss(x, eg_none), EG_EINVAL, "l1_loss: target is none or a tuple, expected a tensor");
    expect_error(eg_f_l1_loss(eg_none, x), EG_EINVAL, "l1_loss: input is none or a tuple, expected a tensor");
    expect_error(eg_f_l1_loss(x, x, .reduction = EG_REDUCTION_BATCHMEAN), EG_EINVAL,
                 "l1_loss: reduction is 3, expected one of EG_REDUCTION_MEAN, _SUM and _NONE");
    expect_error(eg_f_kl_div(x, x, .reduction = (eg_reduction)4), EG_EINVAL,
                 "kl_div: reduction is 4, expected one of EG_REDUCTION_MEAN, _SUM, _NONE and _BATCHMEAN");
    expect_error(eg_f_smooth_l1_loss(x, x, .beta = EG_F64(-1)), EG_EINVAL,
                 "smooth_l1_loss: beta is -1, expected 0 or more");
    expect_error(eg_f_nll_loss(x, LABELS(0, 3), eg_none), EG_EINVAL,
                 "nll_loss: class 3 is out of range, expected 0 to 2");
    expect_error(eg_f_nll_loss(x, LABELS(0), eg_none), EG_ESHAPE, "nll_loss: target has shape (1), expected (2)");
    expect_error(eg_f_nll_loss(t(EG_SHAPE(2)), LABELS(0), eg_none), EG_ESHAPE,
                 "nll_loss: input has shape (2), expected (N, C, ..)");
    expect_error(eg_f_nll_loss(x, LABELS(0, 1), t(EG_SHAPE(2))), EG_ESHAPE,
                 "nll_loss: weight has shape (2), expected (3)");
    expect_error(eg_f_bce_with_logits(x, y, eg_none), EG_ESHAPE,
                 "binary_cross_entropy_with_logits: input has shape (2, 3), target (3, 2)");
    expect_error(eg_f_bce_with_logits(x, x, t(EG_SHAPE(2))), EG_ESHAPE, "mul: shapes (2) and (2, 3) do not broadcast");
    expect_error(eg_f_l1_loss(LABELS(1), LABELS(1)), EG_EDTYPE,
                 "l1_loss: input has type int64, expected float32 or float64");
}

static void test_null_passes_through(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 3));
    eg_fail(EG_EIO, "the cause");
    assert_null(eg_f_l1_loss(x, NULL));
    assert_null(eg_f_smooth_l1_loss(NULL, x));
    assert_null(eg_f_kl_div(NULL, x));
    assert_null(eg_f_nll_loss(x, NULL, eg_none));
    assert_null(eg_f_bce_with_logits(x, x, NULL));
    assert_null(eg_pow(NULL, 2));
    assert_null(eg_topk(NULL, 1, 0, true));
    assert_null(eg_where(x, x, NULL));
    assert_string_equal(eg_error_last()->message, "the cause");
    eg_error_clear();
    expect_error(eg_f_l1_loss_with(NULL), EG_EINVAL, "l1_loss: args is NULL");
    expect_error(eg_f_nll_loss_with(NULL), EG_EINVAL, "nll_loss: args is NULL");
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_functions_at_the_edges),
        TEST(test_ties_share_the_gradient),
        TEST(test_slopes_at_kinks),
        TEST(test_picking),
        TEST(test_losses),
        TEST(test_refused_functions),
        TEST(test_refused_indices),
        TEST(test_refused_losses),
        TEST(test_null_passes_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
