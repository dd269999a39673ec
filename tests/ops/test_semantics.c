/*
 * What operations promise besides their numbers: shapes without numbers, views, random masks, running statistics, what
 * is kept for backward, multiply-accumulates.
 */
#include "ops/cases.h"

static eg_context *ctx;

static int set_up(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 1);
    return ctx ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    eg_context_free(ctx);
    return 0;
}

static eg_tensor *t(eg_shape shape)
{
    return eg_randn(ctx, shape);
}

static void expect_shape(const eg_tensor *y, eg_shape shape)
{
    if (!y)
        fail_msg("%s", eg_error_first()->message);
    assert_true(eg_shape_equal(eg_tensor_shape(y), shape));
}

/* ---- shape-only inputs ---- */

static eg_tensor *shape_only_input(const op_case *c, size_t i)
{
    if (case_letter(c, i) == '-')
        return eg_none;
    return eg__scope_add(eg__tensor_new_shape_only(ctx, case_dtype(c, i, EG_F32), c->shape[i], case_layout(c, i)));
}

static void test_shape_only(void **state)
{
    (void)state;
    for (size_t k = 0; k < EG_COUNT(op_cases); k++) {
        const op_case *c = &op_cases[k];
        eg_tensor *real[CASE_INPUTS], *shapes[CASE_INPUTS];
        for (size_t i = 0; i < CASE_INPUTS; i++) {
            real[i] = case_input(ctx, c, i, EG_F32);
            shapes[i] = shape_only_input(c, i);
        }
        uint64_t position = eg_context_rng(ctx)->position;
        eg_tensor *y = c->run(shapes, c);
        if (!y)
            fail_msg("%s '%s': %s", c->op, c->name, eg_error_first()->message);
        assert_true(eg_tensor_is_shape_only(y));
        assert_true(position == eg_context_rng(ctx)->position);
        eg_tensor *expected = c->run(real, c);
        expect_shape(y, eg_tensor_shape(expected));
        assert_false(eg_tensor_is_shape_only(expected));
        assert_int_equal(y->dtype, expected->dtype);
        if (!eg__same_strides(y, expected))
            fail_msg("%s '%s': another memory order on shapes only", c->op, c->name);
    }
}

/* ---- views ---- */

static void test_views_share_numbers(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 4, 3, 3)), *one = t(EG_SHAPE(5, 7, 1, 1));
    assert_ptr_equal(eg_slice(x, 1, 1, 3, 1)->storage, x->storage);
    eg_tensor *first = eg_slice(x, 0, 0, INT64_MAX, INT64_MAX); /* a step that no stride can hold */
    assert_int_equal(eg_tensor_size(first, 0), 1);
    assert_int_equal(eg_tensor_numel(first), eg_tensor_numel(x) / eg_tensor_size(x, 0));
    assert_int_equal(first->strides[0], x->strides[0]);
    assert_ptr_equal(eg_permute(x, EG_SHAPE(0, 2, 3, 1))->storage, x->storage);
    assert_ptr_equal(eg_reshape(x, EG_SHAPE(2, 2, 2, 9))->storage, x->storage); /* height and width are one run */
    assert_ptr_equal(eg_f_flatten(one, 1, -1)->storage, one->storage);
    assert_ptr_not_equal(eg_f_flatten(x, 1, -1)->storage, x->storage); /* logical order is not memory order */
    eg_tensor *pieces = eg_split(x, 3, 1);
    assert_int_equal(eg_tuple_size(pieces), 2);
    expect_shape(eg_tuple_get(pieces, 0), EG_SHAPE(2, 3, 3, 3));
    expect_shape(eg_tuple_get(pieces, 1), EG_SHAPE(2, 1, 3, 3));
    assert_ptr_equal(eg_tuple_get(pieces, 1)->storage, x->storage);
}

/* ---- dropout ---- */

static void test_dropout(void **state)
{
    (void)state;
    eg_tensor *x = eg_ones(ctx, EG_SHAPE(4, 8, 40, 40));
    assert_ptr_equal(eg_f_dropout(x, 0.5, false), x);
    assert_ptr_equal(eg_f_dropout(x, 0.0, true), x);
    assert_ptr_equal(eg_f_drop_path(x, 1.0, false), x);
    eg_rng before = *eg_context_rng(ctx);
    eg_tensor *y = eg_f_dropout(x, 0.25, true);
    size_t n = (size_t)eg_tensor_numel(x), zeros = 0;
    assert_true(eg_context_rng(ctx)->position == before.position + n);
    for (size_t i = 0; i < n; i++) { /* in memory order: element i is decided by number i */
        float value = eg__f32(y)[i];
        assert_true(value == (eg_rng_u32(&before) < (1u << 30) ? 0.0F : (float)(1.0 / 0.75)));
        zeros += value == 0.0F;
    }
    assert_true(zeros > n / 4 - n / 50 && zeros < n / 4 + n / 50);
    assert_true(eg_tensor_item(eg_max(eg_f_dropout(x, 1.0, true))) == 0.0);
    eg_context *two = eg_context_new(.seed = 1, .threads = 2);
    *eg_context_rng(two) = *eg_context_rng(ctx);
    y = eg_f_dropout(x, 0.25, true);
    eg_tensor *other = eg_f_dropout(eg_ones(two, eg_tensor_shape(x)), 0.25, true);
    assert_memory_equal(eg_tensor_data(y), eg_tensor_data(other), n * sizeof(float));
    eg_context_free(two);
    y = eg_f_drop_path(x, 0.5, true);
    for (size_t i = 0; i < n; i++) /* whole samples */
        assert_true(eg__f32(y)[i] == eg__f32(y)[i / (n / 4) * (n / 4)]);
}

/* ---- running statistics ---- */

static void test_running_statistics(void **state)
{
    (void)state;
    float data[] = {1, 10, 3, 20}, mean[2] = {1, 1}, var[2] = {2, 2}; /* (N, C) = (2, 2) */
    eg_tensor *x = eg_from_data(ctx, EG_SHAPE(2, 2), data), *running_mean = eg_from_data(ctx, EG_SHAPE(2), mean);
    eg_tensor *running_var = eg_from_data(ctx, EG_SHAPE(2), var);
    uint64_t version = running_mean->storage->version;
    assert_non_null(eg_f_batch_norm(x, running_mean, running_var, eg_none, eg_none, .training = true, .momentum = 0.25,
                                    .eps = 1e-5));
    assert_true(running_mean->storage->version > version);
    eg_tensor_read(running_mean, mean, 2);
    eg_tensor_read(running_var, var, 2);
    assert_true(mean[0] == 1.25F && mean[1] == 4.5F);
    assert_true(var[0] == 2.0F && var[1] == 14.0F); /* unbiased: 2 and 50 */
    assert_non_null(eg_f_batch_norm(x, running_mean, running_var, eg_none, eg_none, .eps = 1e-5));
    eg_tensor_read(running_mean, mean, 2);
    assert_true(mean[0] == 1.25F && mean[1] == 4.5F);
}

/* ---- what is kept for backward ---- */

static eg_tensor *leaf(eg_shape shape, bool requires_grad)
{
    eg_tensor *x = t(shape);
    assert_int_equal(eg_tensor_set_requires_grad(x, requires_grad), EG_OK);
    return x;
}

/* The last operation saved exactly these (compared by storage), up to a NULL. */
static void expect_saved(const eg_tape *tape, const eg_tensor *const *expected)
{
    const eg__node *node = tape->nodes[tape->n_nodes - 1];
    size_t n = 0;
    while (expected[n])
        n++;
    assert_int_equal(node->saved.n, n);
    for (size_t i = 0; i < n; i++)
        assert_ptr_equal(node->saved.tensors[i]->storage, expected[i]->storage);
}

static void test_only_what_is_needed_is_saved(void **state)
{
    (void)state;
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *fixed = leaf(EG_SHAPE(2, 3, 4, 4), false), *x = leaf(EG_SHAPE(2, 3, 4, 4), true);
    eg_tensor *w = leaf(EG_SHAPE(3, 3, 1, 1), true), *fixed_w = leaf(EG_SHAPE(3, 3, 1, 1), false);
    eg_f_conv2d(fixed, w, eg_none);
    expect_saved(tape, (const eg_tensor *[]){fixed, NULL});
    eg_f_conv2d(x, fixed_w, eg_none);
    expect_saved(tape, (const eg_tensor *[]){fixed_w, NULL});
    eg_f_conv2d(x, w, eg_none);
    expect_saved(tape, (const eg_tensor *[]){w, x, NULL});
    eg_tensor *y = eg_f_relu(x);
    expect_saved(tape, (const eg_tensor *[]){y, NULL});
    eg_f_gelu(x);
    expect_saved(tape, (const eg_tensor *[]){x, NULL});
    eg_add(x, y);
    expect_saved(tape, (const eg_tensor *[]){NULL});
    eg_add_n((eg_tensor *[]){x, y, fixed}, 3);
    expect_saved(tape, (const eg_tensor *[]){NULL});
    eg_affine(x, 2, 1);
    expect_saved(tape, (const eg_tensor *[]){NULL});
    eg_mul(x, fixed);
    expect_saved(tape, (const eg_tensor *[]){fixed, NULL});
    eg_f_avg_pool2d(x, .kernel_size = 2);
    expect_saved(tape, (const eg_tensor *[]){NULL});
    eg_tensor *alpha = leaf(EG_SHAPE(2), true), *fixed_alpha = leaf(EG_SHAPE(2), false);
    eg_weighted_sum((eg_tensor *[]){x, fixed}, 2, fixed_alpha);
    expect_saved(tape, (const eg_tensor *[]){fixed_alpha, NULL});
    eg_weighted_sum((eg_tensor *[]){fixed, fixed}, 2, alpha);
    expect_saved(tape, (const eg_tensor *[]){fixed, fixed, NULL});
    eg_weighted_sum((eg_tensor *[]){x, fixed}, 2, alpha);
    expect_saved(tape, (const eg_tensor *[]){alpha, x, fixed, NULL});
    size_t recorded = tape->n_nodes;
    eg_f_conv2d(fixed, fixed_w, eg_none);
    eg_f_relu(fixed);
    assert_int_equal(tape->n_nodes, recorded);
    eg_tape_end(tape);
}

/* Gradients that are handed on are not copied: backward through them takes no memory but the leaves' gradients. */
static void test_passed_gradients_are_not_copied(void **state)
{
    (void)state;
    eg_tensor *x = leaf(EG_SHAPE(8, 8, 8, 8), true);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *y = eg_f_relu(x);
    for (int i = 0; i < 4; i++)
        y = eg_add(eg_reshape(eg_permute(y, EG_SHAPE(0, 2, 3, 1)), EG_SHAPE(8, 64, 8)), eg_zeros(ctx, EG_SHAPE(1))),
        y = eg_permute(eg_reshape(y, EG_SHAPE(8, 8, 8, 8)), EG_SHAPE(0, 3, 1, 2));
    eg_tensor *dy = eg_tensor_copy(y);
    size_t before = eg_context_get_stats(ctx).bytes_in_use;
    eg_context_reset_peak(ctx);
    assert_int_equal(eg_backward_from(y, dy), EG_OK);
    size_t bytes = 8 * 8 * 8 * 8 * sizeof(float);
    assert_true(eg_context_get_stats(ctx).bytes_peak - before <= bytes + bytes / 2);
    eg_tape_end(tape);
}

/* ---- multiply-accumulates ---- */

static uint64_t counted;

static eg_status count(void *payload, const eg_op_call *call)
{
    (void)payload;
    counted += call->op->macs ? call->op->macs(call) : 0;
    return EG_OK;
}

static uint64_t macs_of(eg_tensor *y)
{
    assert_non_null(y);
    uint64_t macs = counted;
    counted = 0;
    return macs;
}

static void test_macs(void **state)
{
    (void)state;
    const eg__trace_sink sink = {.on_op = count};
    assert_int_equal(eg__trace_set(ctx, &sink, NULL), EG_OK);
    counted = 0;
    eg_tensor *x = eg_shape_only(ctx, EG_SHAPE(2, 6, 9, 8));
    assert_int_equal(macs_of(eg_f_conv2d(x, t(EG_SHAPE(10, 6, 3, 3)), eg_none, .stride = 2, .padding = 1)),
                     2 * 10 * 5 * 4 * 6 * 3 * 3);
    assert_int_equal(macs_of(eg_f_conv2d(x, t(EG_SHAPE(6, 1, 3, 3)), t(EG_SHAPE(6)), .groups = 6)), 2 * 6 * 7 * 6 * 9);
    assert_int_equal(macs_of(eg_f_linear(t(EG_SHAPE(4, 3, 5)), t(EG_SHAPE(7, 5)), eg_none)), 4 * 3 * 5 * 7);
    assert_int_equal(macs_of(eg_matmul(t(EG_SHAPE(4, 3)), t(EG_SHAPE(3, 5)))), 4 * 3 * 5);
    assert_int_equal(macs_of(eg_f_relu(x)), 0);
    eg_tensor *huge = eg_shape_only(ctx, EG_SHAPE(1, 1 << 20, 1 << 20, 1 << 19));
    assert_true(macs_of(eg_f_conv2d(huge, eg_shape_only(ctx, EG_SHAPE(4, 1 << 20, 5, 5)), eg_none, .padding = 2)) ==
                UINT64_MAX);
    assert_int_equal(eg__trace_set(ctx, NULL, NULL), EG_OK);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_shape_only),
        TEST(test_views_share_numbers),
        TEST(test_dropout),
        TEST(test_running_statistics),
        TEST(test_only_what_is_needed_is_saved),
        TEST(test_passed_gradients_are_not_copied),
        TEST(test_macs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
