/*
 * Attention with linear biases against numbers computed here, and adapters that are merged and unmerged.
 */
#include "surgery_support.h"

#include "engraft/methods.h"

enum { LENGTH = 4, WIDTH = 6, HEADS = 3 };

/* Of 3 heads: 2^-4, 2^-8 of two, then 2^-2, the first of four. */
static void fill_bias(float *bias, int64_t length)
{
    static const double slopes[HEADS] = {0.0625, 0.00390625, 0.25};
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t i = 0; i < length; i++)
            for (int64_t j = 0; j < length; j++)
                *bias++ = (float)(-slopes[h] * (double)llabs((long long)(i - j)));
}

/* The very attention with the biases given as a mask. */
static eg_tensor *expected(eg_module *plain, eg_tensor *x, const float *bias)
{
    eg_tensor *mask = eg_from_data(ctx, EG_SHAPE(HEADS, LENGTH, LENGTH), bias);
    return eg_call(plain, x, x, x, mask);
}

static void biases_are_those_of_the_paper(void **state)
{
    (void)state;
    float bias[HEADS * LENGTH * LENGTH];
    fill_bias(bias, LENGTH);
    for (int causal = 0; causal < 2; causal++) {
        eg_module *plain = eg_multihead_attention(ctx, WIDTH, HEADS, .batch_first = true, .is_causal = causal != 0);
        eg_module *m = eg_alibi_attention(ctx, WIDTH, HEADS, .batch_first = true, .is_causal = causal != 0);
        eg_state *numbers = eg_state_new();
        assert_ok(eg_module_state(plain, NULL, numbers));
        assert_ok(eg_module_load_state(m, NULL, numbers, true)); /* the names are those of the plain one */
        eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, LENGTH, WIDTH)), *y = expected(plain, x, bias);
        assert_true(largest_difference(eg_call(m, x), y) < 1e-6);
        assert_true(largest_difference(eg_call(m, x, x, x), y) < 1e-6);
        assert_true(largest_difference(eg_call(m, x, x, x, eg_none), y) < 1e-6);
        assert_true(largest_difference(eg_call(plain, x), y) > 1e-4);
        eg_state_free(numbers);
        eg_module_release(plain);
        eg_module_release(m);
    }
}

/* What a mask leaves out stays left out; numbers are added to the biases. */
static void masks_go_with_biases(void **state)
{
    (void)state;
    float bias[HEADS * LENGTH * LENGTH], keep[LENGTH] = {1, 0, 1, 1}, add[LENGTH] = {0.5F, -INFINITY, 0, 1};
    eg_module *plain = eg_multihead_attention(ctx, WIDTH, HEADS, .batch_first = true);
    eg_module *m = eg_alibi_attention(ctx, WIDTH, HEADS, .batch_first = true);
    eg_state *numbers = eg_state_new();
    assert_ok(eg_module_state(plain, NULL, numbers));
    assert_ok(eg_module_load_state(m, NULL, numbers, true));
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, LENGTH, WIDTH));
    eg_tensor *mask = eg_empty(ctx, EG_U8, EG_SHAPE(1, LENGTH), EG_LAYOUT_ROW_MAJOR);
    assert_ok(eg_tensor_write(mask, keep, LENGTH));
    fill_bias(bias, LENGTH);
    for (size_t i = 0; i < HEADS * LENGTH; i++)
        bias[i * LENGTH + 1] = -INFINITY;
    assert_true(largest_difference(eg_call(m, x, x, x, mask), expected(plain, x, bias)) < 1e-6);
    for (size_t i = 0; i < HEADS * LENGTH * LENGTH; i++)
        bias[i] += add[i % LENGTH];
    eg_tensor *y = eg_call(m, x, x, x, eg_from_data(ctx, EG_SHAPE(1, LENGTH), add));
    assert_true(largest_difference(y, expected(plain, x, bias)) < 1e-6);
    assert_null(eg_call(m, eg_randn(ctx, EG_SHAPE(2, WIDTH))));
    assert_recorded(EG_ESHAPE, "an input has 2 dimensions, expected (N, L, features)");
    assert_null(eg_call(m, x, x));
    assert_recorded(EG_EINVAL, "got 2 inputs, expected 1, 3 or 4");
    eg_state_free(numbers);
    eg_module_release(plain);
    eg_module_release(m);
}

/* Tokens and positions, as in a small GPT. */
static eg_module *make_model(void)
{
    eg_module *m = eg_sequential(
        ctx,
        EG_NAMED({"wpe", eg_embedding(ctx, 8, WIDTH)},
                 {"attention", eg_multihead_attention(ctx, WIDTH, HEADS, .batch_first = true, .is_causal = true)}));
    assert_made(m);
    return m;
}

static void check_table(eg_module *m, int64_t rows)
{
    const eg_embedding *e = (const eg_embedding *)eg_module_find(m, "wpe");
    assert_int_equal(e->num_embeddings, rows);
    assert_int_equal(eg_tensor_size(e->weight, 0), rows);
    assert_false(eg_tensor_requires_grad(e->weight));
    assert_true(largest_difference(eg_detach(e->weight), eg_zeros(ctx, EG_SHAPE(rows, WIDTH))) == 0);
}

/* 4.16: the table has the new length, is zero and frozen; a second time with double length; where nothing is met, that
 * is said. */
static void positions_give_way(void **state)
{
    (void)state;
    eg_module *m = make_model();
    eg_optimizer *adam = eg_adam(m);
    eg_tensor *weight = eg_module_tensor(m, "attention.in_proj_weight");
    uint64_t print = fingerprint(m, adam);
    size_t n = adam->n_params;
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(adam));
    assert_ok(eg_surgery_apply(s, eg_alibi(ctx, .position_embedding = "wpe", .max_sequence_length = 16), NULL));
    assert_ok(eg_surgery_commit(s));
    check_table(m, 16);
    assert_true(eg_is_a(eg_module_find(m, "attention"), &eg_alibi_attention_class));
    assert_ptr_equal(eg_module_tensor(m, "attention.in_proj_weight"), weight);
    assert_int_equal(adam->n_params, n - 1);
    size_t made = eg_surgery_size(s);
    assert_ok(eg_surgery_apply(s, eg_alibi(ctx, .position_embedding = "wpe", .max_sequence_length = 16), NULL));
    assert_int_equal(eg_surgery_size(s), made);
    assert_ok(eg_surgery_apply(s, eg_alibi(ctx, .position_embedding = "wpe", .max_sequence_length = 32), NULL));
    assert_ok(eg_surgery_commit(s));
    check_table(m, 32);
    assert_ok(eg_surgery_undo(s));
    check_table(m, 16);
    assert_ok(eg_surgery_undo(s));
    assert_true(print == fingerprint(m, adam));
    eg_surgery_free(s);
    eg_module *other = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 2, 2)));
    s = eg_surgery_new(other);
    assert_ok(eg_surgery_apply(s, eg_alibi(ctx), NULL));
    assert_non_null(eg_surgery_note_at(s, 0));
    eg_surgery_free(s);
    eg_module_release(other);
    eg_optimizer_free(adam);
    eg_module_release(m);
}

/* ---- adapters ---- */

static void adapters_merge_in_place(void **state)
{
    (void)state;
    eg_module *layers[] = {eg_linear(ctx, 5, 4), eg_conv2d(ctx, 3, 4, 3, .stride = 2)};
    eg_tensor *inputs[] = {eg_randn(ctx, EG_SHAPE(3, 5)), eg_randn(ctx, EG_SHAPE(2, 3, 6, 6))};
    for (size_t i = 0; i < 2; i++) {
        eg_module *m = eg_sequential(ctx, EG_MODULES(layers[i]));
        eg_tensor *before = eg_call(m, inputs[i]);
        eg_surgery *s = eg_surgery_new(m);
        assert_ok(eg_surgery_apply(s, eg_low_rank(ctx, .rank = 2), NULL));
        assert_ok(eg_surgery_commit(s));
        assert_true(largest_difference(before, eg_call(m, inputs[i])) == 0); /* the correction begins at zero */
        eg_module *adapter = eg_module_find(m, "0");
        assert_ok(eg_init_normal(eg_module_tensor(adapter, "lora_B.weight"), 0, 0.1));
        eg_tensor *adapted = eg_call(m, inputs[i]);
        eg_tensor *weight = eg_tensor_copy(eg_detach(eg_module_tensor(adapter, "base_layer.weight")));
        assert_true(largest_difference(before, adapted) > 1e-3);
        for (int merged = 1; merged >= 0; merged--) {
            assert_ok(eg_low_rank_adapter_set_merged(adapter, merged != 0));
            assert_ok(eg_low_rank_adapter_set_merged(adapter, merged != 0)); /* once */
            assert_true(largest_difference(adapted, eg_call(m, inputs[i])) < 1e-5);
            double moved = largest_difference(weight, eg_detach(eg_module_tensor(adapter, "base_layer.weight")));
            assert_true(merged != 0 ? moved > 1e-3 : moved < 1e-6);
        }
        eg_surgery_free(s);
        eg_module_release(m);
    }
    eg_module *no = eg_relu(ctx), *empty = eg_low_rank_adapter(ctx, EG_NAMED({"base_layer", eg_relu(ctx)}));
    assert_int_equal(eg_low_rank_adapter_set_merged(no, true), EG_EINVAL);
    assert_int_equal(eg_low_rank_adapter_set_merged(empty, true), EG_EINVAL);
    eg_module_release(no);
    eg_module_release(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(biases_are_those_of_the_paper),
        SURGERY_TEST(masks_go_with_biases),
        SURGERY_TEST(positions_give_way),
        SURGERY_TEST(adapters_merge_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
