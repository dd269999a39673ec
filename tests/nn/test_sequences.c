/*
 * Modules over sequences: outputs and gradients equal PyTorch's, under its names; printed and cloned; what they refuse.
 */
#include "vectors.h"

#include "base/internal.h"
#include "engraft/layers.h"

static eg_context *ctx;

static int setup(void **state)
{
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 2, .backend = *state);
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    eg_context_free(ctx);
    return 0;
}

/* ---- against PyTorch ---- */

static eg_module *make(const json_t *c)
{
    const char *op = vector_op(c);
    bool no_bias = !vector_flag(c, "bias");
    if (strcmp(op, "mha") == 0)
        return eg_multihead_attention(ctx, (int64_t)vector_number(c, "embed_dim"),
                                      (int64_t)vector_number(c, "num_heads"), .no_bias = no_bias,
                                      .batch_first = vector_flag(c, "batch_first"));
    int64_t in = (int64_t)vector_number(c, "input_size"), hidden = (int64_t)vector_number(c, "hidden_size");
    if (strcmp(op, "lstm_cell") == 0)
        return eg_lstm_cell(ctx, in, hidden, .no_bias = no_bias);
    if (strcmp(op, "gru_cell") == 0)
        return eg_gru_cell(ctx, in, hidden, .no_bias = no_bias);
    int64_t layers = (int64_t)vector_number(c, "num_layers");
    bool first = vector_flag(c, "batch_first"), both = vector_flag(c, "bidirectional");
    return strcmp(op, "lstm") == 0
               ? eg_lstm(ctx, in, hidden, layers, .no_bias = no_bias, .batch_first = first, .bidirectional = both)
               : eg_gru(ctx, in, hidden, layers, .no_bias = no_bias, .batch_first = first, .bidirectional = both);
}

/* As the script combines outputs: y + the sums of each state's rows; a cell's h c. */
static eg_tensor *combined(const json_t *c, eg_tensor *out)
{
    if (!eg_tensor_is_tuple(out))
        return out;
    eg_tensor *y = eg_tuple_get(out, 0);
    if (strcmp(vector_op(c), "lstm_cell") == 0)
        return eg_mul(y, eg_tuple_get(out, 1));
    for (size_t i = 1; i < eg_tuple_size(out); i++) {
        eg_tensor *sum = eg_sum(eg_tuple_get(out, i), EG_SHAPE(0, 1));
        y = eg_add(y, vector_flag(c, "bidirectional") ? eg_concat((eg_tensor *const[]){sum, sum}, 2, 0) : sum);
    }
    return y;
}

static eg_status fill_parameter(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)kind;
    if (!eg_is_none(t))
        vector_fill(payload, path, t);
    return EG_OK;
}

static eg_status expect_gradient(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)kind;
    char name[128];
    snprintf(name, sizeof(name), "d%s", path);
    if (!eg_is_none(t))
        vector_expect(payload, name, eg_tensor_grad(t), 1e-5, 5e-5);
    return EG_OK;
}

static void check_case(json_t *c)
{
    eg_module *m = make(c);
    assert_made(m);
    assert_ok(eg_module_walk_tensors(m, fill_parameter, c));
    eg_tensor *in[3];
    const char *names[] = {"x", "state0", "state1"};
    size_t n = 0;
    for (; n < 3 && vector_has(c, names[n]); n++) {
        in[n] = vector_tensor(ctx, c, names[n], EG_F32, EG_LAYOUT_DEFAULT);
        assert_ok(eg_tensor_set_requires_grad(in[n], true));
    }
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *out = eg_module_call(m, in, n);
    assert_made(out);
    eg_tensor *y = combined(c, out);
    assert_made(y);
    vector_expect(c, "y", y, 1e-5, 2e-5);
    assert_ok(eg_backward_from(y, vector_tensor(ctx, c, "dy", EG_F32, EG_LAYOUT_DEFAULT)));
    eg_tape_end(tape);
    assert_ok(eg_module_walk_tensors(m, expect_gradient, c));
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof(name), "d%s", names[i]);
        vector_expect(c, name, eg_tensor_grad(in[i]), 1e-5, 5e-5);
    }
    eg_module_release(m);
}

static void equal_pytorchs(void **state)
{
    (void)state;
    json_t *cases = vectors_load("sequence"), *c;
    size_t i, checked = 0;
    json_array_foreach(cases, i, c)
    {
        if (!json_object_get(json_object_get(c, "params"), "bias"))
            continue; /* an operation */
        check_case(c);
        checked++;
    }
    assert_true(checked > 10);
    json_decref(cases);
}

/* ---- names, text, copies ---- */

static eg_status append_name(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)kind;
    (void)t;
    strcat(strcat(payload, path), " ");
    return EG_OK;
}

/* Takes m over. A clone has the same names, and the same numbers of its own. */
static void check(eg_module *m, const char *names, const char *text, eg_tensor *const *in, size_t n_in)
{
    assert_made(m);
    char have[1024] = "";
    eg_module_train(m, false);
    eg_module *copy = eg_module_clone(m);
    assert_ok(eg_module_walk_tensors(copy, append_name, have));
    assert_string_equal(have, names);
    char *printed = eg_module_text(copy);
    assert_string_equal(printed, text);
    eg_free(printed);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    float expected[512], got[512];
    eg_tensor *y = eg_tuple_get(eg_module_call(m, in, n_in), 0);
    assert_made(y);
    size_t n = (size_t)eg_tensor_numel(y);
    assert_true(n <= 512);
    assert_ok(eg_tensor_read(y, expected, n));
    eg_module_release(m);
    assert_ok(eg_tensor_read(eg_tuple_get(eg_module_call(copy, in, n_in), 0), got, n));
    assert_memory_equal(got, expected, n * sizeof(float));
    eg_tape_end(tape);
    eg_module_release(copy);
}

static void names_text_clones(void **state)
{
    (void)state;
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(3, 2, 4)), *flat = eg_randn(ctx, EG_SHAPE(2, 4));
    eg_tensor *labels = eg_from_labels(ctx, 3, (const int64_t[]){0, 2, 5});
    check(eg_embedding(ctx, 6, 3), "weight ", "Embedding(6, 3)", &labels, 1);
    check(eg_embedding(ctx, 6, 3, EG_F64(-6)), "weight ", "Embedding(6, 3, padding_idx=0)", &labels, 1);
    check(eg_lstm(ctx, 4, 3), "weight_ih_l0 weight_hh_l0 bias_ih_l0 bias_hh_l0 ", "LSTM(4, 3)", &x, 1);
    check(eg_gru(ctx, 4, 3, 2, .dropout = 0.5, .bidirectional = true, .batch_first = true),
          "weight_ih_l0 weight_hh_l0 bias_ih_l0 bias_hh_l0 weight_ih_l0_reverse weight_hh_l0_reverse "
          "bias_ih_l0_reverse bias_hh_l0_reverse weight_ih_l1 weight_hh_l1 bias_ih_l1 bias_hh_l1 "
          "weight_ih_l1_reverse weight_hh_l1_reverse bias_ih_l1_reverse bias_hh_l1_reverse ",
          "GRU(4, 3, num_layers=2, batch_first=True, dropout=0.5, bidirectional=True)", &x, 1);
    check(eg_lstm(ctx, 4, 3, .no_bias = true), "weight_ih_l0 weight_hh_l0 ", "LSTM(4, 3, bias=False)", &x, 1);
    check(eg_lstm_cell(ctx, 4, 3), "weight_ih weight_hh bias_ih bias_hh ", "LSTMCell(4, 3)", &flat, 1);
    check(eg_gru_cell(ctx, 4, 3, .no_bias = true), "weight_ih weight_hh ", "GRUCell(4, 3, bias=False)", &flat, 1);
    check(eg_multihead_attention(ctx, 4, 2, .dropout = 0.5, .is_causal = true),
          "in_proj_weight in_proj_bias out_proj.weight out_proj.bias ",
          "MultiheadAttention(\n  embed_dim=4, num_heads=2, dropout=0.5, is_causal=True\n"
          "  (out_proj): Linear(in_features=4, out_features=4, bias=True)\n)",
          &x, 1);
}

static void embedding_padding(void **state)
{
    (void)state;
    eg_module *m = eg_embedding(ctx, 3, 2, EG_F64(0)), *all = eg_embedding(ctx, 3, 2);
    assert_made(m);
    assert_made(all);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *labels = eg_from_labels(ctx, 3, (const int64_t[]){0, 2, 0});
    eg_tensor *y = eg_call(m, labels), *z = eg_call(all, labels);
    assert_tensor(eg_slice(y, 0, 0, 1, 1), 0, 0, 0);
    assert_ok(eg_backward(eg_sum(eg_add(y, z))));
    eg_tape_end(tape);
    assert_tensor(eg_tensor_grad(eg_module_tensor(m, "weight")), 0, 0, 0, 0, 0, 1, 1);
    assert_tensor(eg_tensor_grad(eg_module_tensor(all, "weight")), 0, 2, 2, 0, 0, 1, 1);
    eg_module_release(m);
    eg_module_release(all);
}

static void shapes_alone(void **state)
{
    (void)state;
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_module *m = eg_lstm(ctx, 4, 3, 2, .batch_first = true, .bidirectional = true);
    eg_tensor *out = eg_call(m, eg_shape_only(ctx, EG_SHAPE(5, 7, 4)));
    assert_made(out);
    assert_true(eg_shape_equal(eg_tensor_shape(eg_tuple_get(out, 0)), EG_SHAPE(5, 7, 6)));
    assert_true(eg_shape_equal(eg_tensor_shape(eg_tuple_get(out, 2)), EG_SHAPE(4, 5, 3)));
    eg_module_release(m);
    m = eg_sequential(ctx,
                      EG_MODULES(eg_embedding(ctx, 10, 8), eg_multihead_attention(ctx, 8, 2, .batch_first = true)));
    eg_shape shape = EG_SHAPE(2, 5);
    eg_trace *trace = eg_trace_new(m, &shape, 1);
    assert_made(trace);
    assert_true(eg_shape_equal(eg_trace_output(trace, 0), EG_SHAPE(2, 5, 8)));
    assert_int_equal(eg_trace_macs(trace), 4 * 2 * 5 * 8 * 8 + 2 * 2 * 5 * 5 * 8);
    assert_int_equal(eg_trace_params(trace), 80 + 4 * (64 + 8));
    eg_trace_free(trace);
    eg_module_release(m);
    eg_tape_end(tape);
}

static void dropout_in_training(void **state)
{
    (void)state;
    eg_module *all[] = {eg_lstm(ctx, 4, 8, 2, .dropout = 0.5), eg_multihead_attention(ctx, 4, 2, 0.5)};
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(6, 3, 4));
    for (size_t i = 0; i < 2; i++) {
        assert_made(all[i]);
        for (int training = 0; training < 2; training++) {
            eg_module_train(all[i], training);
            eg_tensor *a = eg_tuple_get(eg_call(all[i], x), 0), *b = eg_tuple_get(eg_call(all[i], x), 0);
            eg_tensor *d = eg_sub(a, b);
            double distance = eg_tensor_item(eg_sum(eg_mul(d, d)));
            assert_true(training ? distance > 0 : distance == 0);
        }
        eg_module_release(all[i]);
    }
    eg_tape_end(tape);
}

/* ---- errors ---- */

static void refuses(void **state)
{
    (void)state;
    assert_refused(eg_embedding(ctx, 4, 2, EG_F64(4)), EG_EINVAL, "padding_idx is 4, expected a row of 4");
    assert_refused(eg_embedding(ctx, 4, 2, EG_F64(0.5)), EG_EINVAL, "padding_idx is 0.5, expected a row of 4");
    assert_refused(eg_multihead_attention(ctx, 6, 4), EG_EINVAL, "4 heads do not divide embed_dim 6");
    assert_refused(eg_lstm(ctx, 4, 3, 65), EG_EINVAL, "num_layers");
    assert_refused(eg_gru(ctx, 4), EG_EINVAL, "hidden_size");
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(3, 2, 4)), *h = eg_randn(ctx, EG_SHAPE(2, 2, 3));
    eg_module *lstm = eg_lstm(ctx, 4, 3), *mha = eg_multihead_attention(ctx, 4, 2), *cell = eg_gru_cell(ctx, 4, 3);
    assert_refused(eg_call(lstm, x, h), EG_EINVAL, "LSTM: got 2 inputs, expected 1 or 3");
    assert_refused(eg_call(lstm, x, h, h), EG_ESHAPE, "LSTM: a state has another shape than (1, N, hidden_size)");
    assert_refused(eg_call(mha, x, x), EG_EINVAL, "MultiheadAttention: got 2 inputs, expected 1, 3 or 4");
    assert_refused(eg_call(mha, h), EG_ESHAPE, "input has 3 features, weight expects 4");
    assert_refused(eg_call(cell, x), EG_ESHAPE, "GRUCell: input has 3 dimensions, expected (N, input_size)");
    eg_module_release(lstm);
    eg_module_release(mha);
    eg_module_release(cell);
}

#define TEST(function, backend)                                                                                        \
    {                                                                                                                  \
#function ", " backend, function, setup, teardown, backend                                                     \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equal_pytorchs, "ref"),     TEST(equal_pytorchs, "dnnl"), TEST(names_text_clones, "dnnl"),
        TEST(embedding_padding, "dnnl"), TEST(shapes_alone, "dnnl"),   TEST(dropout_in_training, "dnnl"),
        TEST(refuses, "dnnl"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
