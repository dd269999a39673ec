/*
 * Embeddings, products of batches, attention and recurrent layers: what they refuse, what padding, masks and dropout
 * do, and that sizes which go to several threads give the same bits on one.
 */
#define OPS_THREADS 2 /* what goes to several threads */
#include "ops/ops_support.h"

#include "engraft/sys/op.h"
#include "tensor/internal.h"

#include <math.h>

/* ---- errors ---- */

static void test_matmul_errors(void **state)
{
    (void)state;
    expect_error(eg_matmul(t(EG_SCALAR), t(EG_SHAPE(2))), EG_ESHAPE,
                 "matmul: first matrix is a single number, expected (.., m, k) or (k)");
    expect_error(eg_matmul(t(EG_SHAPE(2, 3)), t(EG_SHAPE(2))), EG_ESHAPE,
                 "matmul: first matrix has 3 columns, second has 2 rows");
    expect_error(eg_matmul(t(EG_SHAPE(2, 4, 3)), t(EG_SHAPE(3, 3, 2))), EG_ESHAPE,
                 "matmul: batches of (2, 4, 3) and (3, 3, 2) do not broadcast");
    expect_error(eg_matmul(t(EG_SHAPE(0, 4, 3)), t(EG_SHAPE(3, 2))), EG_ESHAPE,
                 "matmul: first matrix (0, 4, 3) has a dimension of size 0");
}

static void test_embedding_errors(void **state)
{
    (void)state;
    eg_tensor *index = eg_from_labels(ctx, 3, (const int64_t[]){0, 4, 2}), *w = t(EG_SHAPE(4, 2));
    expect_error(eg_f_embedding(index, w), EG_EINVAL, "embedding: index 4 is out of range for a weight of 4 rows");
    expect_error(eg_f_embedding(eg_from_labels(ctx, 1, (const int64_t[]){-1}), w), EG_EINVAL,
                 "embedding: index -1 is out of range for a weight of 4 rows");
    expect_error(eg_f_embedding(t(EG_SHAPE(3)), w), EG_EDTYPE, "embedding: index has type float32, expected int64");
    expect_error(eg_f_embedding(index, index), EG_EDTYPE,
                 "embedding: weight has type int64, expected float32 or float64");
    expect_error(eg_f_embedding(index, t(EG_SHAPE(4))), EG_ESHAPE,
                 "embedding: weight (4) has 1 dimensions, expected (V, D)");
    expect_error(eg_f_embedding(index, t(EG_SHAPE(5, 2)), EG_F64(5)), EG_EINVAL,
                 "embedding: padding index 5 is out of range for a weight of 5 rows");
    expect_error(eg_f_embedding(index, t(EG_SHAPE(5, 2)), EG_F64(-6)), EG_EINVAL,
                 "embedding: padding index is -6, expected a row of the weight");
    expect_error(eg_f_embedding(index, t(EG_SHAPE(5, 2)), EG_F64(0.5)), EG_EINVAL,
                 "embedding: padding index is 0.5, expected a row of the weight");
    expect_error(eg_f_embedding(t(EG_SHAPE(1, 1, 1, 1, 1, 1)), w), EG_ESHAPE,
                 "embedding: index (1, 1, 1, 1, 1, 1) has 6 dimensions, expected at most 5");
    expect_error(eg_f_embedding_with(NULL), EG_EINVAL, "eg_f_embedding_with: args is NULL");
}

static void test_attention_errors(void **state)
{
    (void)state;
    eg_tensor *q = t(EG_SHAPE(2, 3, 4)), *k = t(EG_SHAPE(2, 5, 4));
#define ATTENTION "scaled_dot_product_attention: "
#define attend eg_f_scaled_dot_product_attention
    expect_error(attend(t(EG_SHAPE(3)), k, k, eg_none), EG_ESHAPE,
                 ATTENTION "query (3) has 1 dimensions, expected (.., L, E)");
    expect_error(attend(q, t(EG_SHAPE(1, 5, 4)), k, eg_none), EG_ESHAPE,
                 ATTENTION "key (1, 5, 4) does not have the batch sizes of query (2, 3, 4)");
    expect_error(attend(q, k, t(EG_SHAPE(5, 4)), eg_none), EG_ESHAPE,
                 ATTENTION "value (5, 4) does not have the batch sizes of query (2, 3, 4)");
    expect_error(attend(q, t(EG_SHAPE(2, 5, 3)), k, eg_none), EG_ESHAPE, ATTENTION "key has 3 features, query has 4");
    expect_error(attend(q, k, t(EG_SHAPE(2, 6, 4)), eg_none), EG_ESHAPE, ATTENTION "value has 6 positions, key has 5");
    expect_error(attend(q, k, k, t(EG_SHAPE(3, 4))), EG_ESHAPE,
                 ATTENTION "mask (3, 4) does not broadcast to (2, 3, 5)");
    expect_error(attend(q, k, k, eg_empty(ctx, EG_F64, EG_SHAPE(3, 5), EG_LAYOUT_DEFAULT)), EG_EDTYPE,
                 ATTENTION "mask has type float64, expected float32 as the first input");
    expect_error(attend(q, k, k, eg_none, .dropout_p = 1.5), EG_EINVAL,
                 ATTENTION "probability is 1.5, expected 0 to 1");
    expect_error(attend(q, k, k, eg_none, .scale = INFINITY), EG_EINVAL, ATTENTION "scale is not finite");
    expect_error(attend(q, k, k, NULL), EG_EINVAL, ATTENTION "an input is NULL");
    expect_error(eg_f_scaled_dot_product_attention_with(NULL), EG_EINVAL,
                 "eg_f_scaled_dot_product_attention_with: args is NULL");
}

static void test_recurrent_errors(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(3, 2, 4)), *ih = t(EG_SHAPE(12, 4)), *hh = t(EG_SHAPE(12, 3));
#define lstm(...) eg_f_lstm(__VA_ARGS__, eg_none, eg_none, eg_none, eg_none)
    expect_error(lstm(t(EG_SHAPE(3, 4)), ih, hh), EG_ESHAPE,
                 "lstm: input (3, 4) has 2 dimensions, expected (T, N, features)");
    expect_error(lstm(x, t(EG_SHAPE(12)), hh), EG_ESHAPE,
                 "lstm: weight_ih (12) has 1 dimensions, expected (gates, features)");
    expect_error(lstm(x, ih, t(EG_SHAPE(12, 4))), EG_ESHAPE,
                 "lstm: weight_hh has shape (12, 4), expected 4 rows for each of its 4 columns");
    expect_error(lstm(x, t(EG_SHAPE(9, 4)), hh), EG_ESHAPE, "lstm: weight_ih has 9 rows, weight_hh has 12");
    expect_error(lstm(x, t(EG_SHAPE(12, 5)), hh), EG_ESHAPE, "lstm: input has 4 features, weight_ih expects 5");
    expect_error(eg_f_lstm(x, ih, hh, t(EG_SHAPE(3)), eg_none, eg_none, eg_none), EG_ESHAPE,
                 "lstm: bias_ih has shape (3), expected (12)");
    expect_error(eg_f_lstm(x, ih, hh, eg_none, eg_none, eg_none, t(EG_SHAPE(1, 3))), EG_ESHAPE,
                 "lstm: c0 has shape (1, 3), expected (2, 3)");
    expect_error(eg_f_gru(x, ih, hh, eg_none, eg_none, eg_none), EG_ESHAPE,
                 "gru: weight_hh has shape (12, 3), expected 3 rows for each of its 3 columns");
    expect_error(eg_f_gru(x, t(EG_SHAPE(9, 4)), t(EG_SHAPE(9, 3)), eg_none, eg_none, t(EG_SHAPE(2, 4))), EG_ESHAPE,
                 "gru: h0 has shape (2, 4), expected (2, 3)");
    expect_error(eg_f_lstm_with(NULL), EG_EINVAL, "eg_f_lstm_with: args is NULL");
    expect_error(eg_f_gru_with(NULL), EG_EINVAL, "eg_f_gru_with: args is NULL");
}

/* ---- what they do ---- */

static void test_padding_gets_no_gradient(void **state)
{
    (void)state;
    const char *backends[] = {"ref", "dnnl"};
    for (size_t i = 0; i < 2; i++) {
        eg_context *own = eg_context_new(.threads = 1, .backend = backends[i]);
        eg_tensor *w = eg_ones(own, EG_SHAPE(3, 2));
        assert_ok(eg_tensor_set_requires_grad(w, true));
        eg_tape *tape = eg_tape_begin(own, EG_RECORD);
        eg_tensor *index = eg_from_labels(own, 4, (const int64_t[]){2, 1, 2, 1});
        assert_ok(eg_backward(eg_sum(eg_f_embedding(index, w, EG_F64(-2)))));
        eg_tape_end(tape);
        assert_tensor(eg_tensor_grad(w), 0, 0, 0, 0, 0, 2, 2);
        eg_context_free(own);
    }
}

static void test_causal_sees_the_past_only(void **state)
{
    (void)state;
    eg_tensor *q = t(EG_SHAPE(5, 4)), *k = t(EG_SHAPE(5, 4)), *v = t(EG_SHAPE(5, 3));
    float before[15], after[15];
    assert_ok(eg_tensor_read(eg_f_scaled_dot_product_attention(q, k, v, eg_none, .is_causal = true), before, 15));
    eg_tensor *last = eg_slice(v, 0, 3, 5, 1);
    assert_ok(eg_tensor_write(last, (const float[]){9, 9, 9, 9, 9, 9}, 6));
    assert_ok(eg_tensor_read(eg_f_scaled_dot_product_attention(q, k, v, eg_none, .is_causal = true), after, 15));
    assert_memory_equal(before, after, 9 * sizeof(float));
    assert_true(before[9] != after[9]);
    assert_numbers(eg_slice(v, 0, 0, 1, 1), before, 3, 1e-6); /* the first position sees itself */
}

static void test_nothing_to_attend_to(void **state)
{
    (void)state;
    eg_tensor *q = t(EG_SHAPE(2, 4)), *v = t(EG_SHAPE(3, 2)), *mask = eg_full(ctx, EG_SHAPE(2, 1), 0);
    eg_tensor *none = eg_empty(ctx, EG_U8, EG_SHAPE(1, 3), EG_LAYOUT_ROW_MAJOR);
    assert_ok(eg_tensor_write(none, (const float[]){0, 0, 0}, 3));
    assert_tensor(eg_f_scaled_dot_product_attention(q, t(EG_SHAPE(3, 4)), v, none), 0, 0, 0, 0, 0);
    assert_ok(eg_tensor_write(mask, (const float[]){-INFINITY, 0}, 2));
    eg_tensor *y = eg_f_scaled_dot_product_attention(q, eg_zeros(ctx, EG_SHAPE(3, 4)), v, mask);
    assert_tensor(eg_slice(y, 0, 0, 1, 1), 0, 0, 0);
    float mean[2];
    assert_ok(eg_tensor_read(eg_mean(v, EG_SHAPE(0)), mean, 2));
    assert_numbers(eg_slice(y, 0, 1, 2, 1), mean, 2, 1e-6);
}

static void test_heads_stay_where_they_are(void **state)
{
    (void)state;
    eg_tensor *x = t(EG_SHAPE(2, 5, 12));
    eg_tensor *heads = eg_permute(eg_reshape(x, EG_SHAPE(2, 5, 3, 4)), EG_SHAPE(0, 2, 1, 3));
    assert_ptr_equal(heads->storage, x->storage);
    eg_tensor *y = eg_f_scaled_dot_product_attention(heads, heads, heads, eg_none);
    eg_tensor *joined = eg_f_flatten(eg_permute(y, EG_SHAPE(0, 2, 1, 3)), 2, 3);
    assert_ptr_equal(joined->storage, y->storage);
    assert_true(eg__is_row_major(joined));
}

static void test_dropout_of_weights(void **state)
{
    (void)state;
    eg_tensor *q = t(EG_SHAPE(4, 16, 8)), *v = eg_ones(ctx, EG_SHAPE(4, 16, 1));
    eg_tensor *y = eg_f_scaled_dot_product_attention(q, q, v, eg_none, .dropout_p = 0.5);
    assert_close(eg_tensor_item(eg_mean(y)), 1, 0.35); /* the weights of a row sum to 1 in the mean */
    assert_tensor(eg_slice(eg_f_scaled_dot_product_attention(q, q, v, eg_none, .dropout_p = 1), 1, 0, 1, 1), 0, 0, 0, 0,
                  0);
}

/* ---- threads ---- */

typedef eg_tensor *(*computation)(eg_context *own, eg_tensor *x);

static eg_tensor *of_embedding(eg_context *own, eg_tensor *x)
{
    int64_t labels[700];
    for (int64_t i = 0; i < 700; i++)
        labels[i] = i * i % 257;
    return eg_f_embedding(eg_from_labels(own, 700, labels), x);
}

static eg_tensor *of_batch(eg_context *own, eg_tensor *x)
{
    (void)own;
    eg_tensor *a = eg_reshape(x, EG_SHAPE(8, 30, 257));
    return eg_matmul(a, eg_permute(a, EG_SHAPE(0, 2, 1)));
}

static eg_tensor *of_attention(eg_context *own, eg_tensor *x)
{
    (void)own;
    eg_tensor *a = eg_reshape(x, EG_SHAPE(2, 4, 257, 30));
    return eg_f_scaled_dot_product_attention(a, a, a, eg_none, .is_causal = true, .dropout_p = 0.25);
}

static float *bits_of(computation compute, int threads, size_t *n)
{
    eg_context *own = eg_context_new(.seed = 5, .threads = threads);
    eg_tensor *x = eg_affine(eg_randn(own, EG_SHAPE(257, 240)), 0.1, 0);
    assert_ok(eg_tensor_set_requires_grad(x, true));
    eg_tape *tape = eg_tape_begin(own, EG_RECORD);
    eg_tensor *y = compute(own, x);
    assert_made(y);
    assert_ok(eg_backward(eg_sum(eg_mul(y, y))));
    size_t of_y = (size_t)eg_tensor_numel(y), of_x = 257 * 240;
    float *bits = calloc(of_y + of_x, sizeof *bits);
    assert_non_null(bits);
    assert_ok(eg_tensor_read(y, bits, of_y));
    eg_tape_end(tape);
    assert_ok(eg_tensor_read(eg_tensor_grad(x), bits + of_y, of_x));
    eg_context_free(own);
    *n = of_y + of_x;
    return bits;
}

static void test_same_bits_on_any_threads(void **state)
{
    (void)state;
    const computation all[] = {of_embedding, of_batch, of_attention};
    for (size_t i = 0; i < 3; i++) {
        size_t n, again;
        float *one = bits_of(all[i], 1, &n), *two = bits_of(all[i], 2, &again);
        assert_int_equal(n, again);
        assert_memory_equal(one, two, n * sizeof(float));
        free(one);
        free(two);
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_matmul_errors),
        TEST(test_embedding_errors),
        TEST(test_attention_errors),
        TEST(test_recurrent_errors),
        TEST(test_padding_gets_no_gradient),
        TEST(test_causal_sees_the_past_only),
        TEST(test_nothing_to_attend_to),
        TEST(test_heads_stay_where_they_are),
        TEST(test_dropout_of_weights),
        TEST(test_same_bits_on_any_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
