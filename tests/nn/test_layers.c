/*
 * The built-in layers: shapes, parameters, names, and that each computes the operation it is named after.
 */
#include "support.h"

#include "engraft/layers.h"

#include <math.h>
#include <string.h>

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 2);
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    eg_context_free(ctx);
    return 0;
}

enum { MAX = 4096 };

static size_t values(const eg_tensor *t, float *out)
{
    if (t == NULL)
        fail_msg("%s", eg_error_first()->message);
    size_t n = (size_t)eg_tensor_numel(t);
    assert_true(n <= MAX);
    assert_int_equal(eg_tensor_read(t, out, n), EG_OK);
    return n;
}

static void assert_same(const eg_tensor *a, const eg_tensor *b)
{
    static float x[MAX], y[MAX];
    assert_true(eg_shape_equal(eg_tensor_shape(a), eg_tensor_shape(b)));
    size_t n = values(a, x);
    values(b, y);
    assert_memory_equal(x, y, n * sizeof(float));
}

static void assert_near(const eg_tensor *t, const float *expected, size_t n, float tolerance)
{
    static float x[MAX];
    assert_int_equal(values(t, x), n);
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(x[i] - expected[i]) <= tolerance))
            fail_msg("entry %zu is %g, expected %g", i, (double)x[i], (double)expected[i]);
    }
}

/* ---- a table of all layers ---- */

static eg_status append_name(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)kind;
    (void)t;
    strcat(strcat(payload, path), " ");
    return EG_OK;
}

/* Takes m over. Checks parameters, names, and the output's shape: for numbers and for a shape alone. */
static void check(eg_module *m, eg_shape input, eg_shape output, int64_t params, const char *names)
{
    if (m == NULL)
        fail_msg("%s", eg_error_first()->message);
    char have[512] = "";
    assert_int_equal(eg_module_n_parameters(m), params);
    assert_int_equal(eg_module_walk_tensors(m, append_name, have), EG_OK);
    assert_string_equal(have, names);
    for (int training = 0; training < 2; training++) {
        eg_module_train(m, training);
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        eg_tensor *y = eg_call(m, eg_randn(ctx, input)), *s = eg_call(m, eg_shape_only(ctx, input));
        if (y == NULL || s == NULL)
            fail_msg("%s", eg_error_first()->message);
        assert_true(eg_shape_equal(eg_tensor_shape(y), output));
        assert_true(eg_shape_equal(eg_tensor_shape(s), output));
        assert_true(eg_tensor_is_shape_only(s));
        eg_tape_end(tape);
    }
    eg_module_release(m);
}

static void shapes_parameters_names(void **state)
{
    (void)state;
    eg_shape x = EG_SHAPE(2, 4, 9, 8);
    const char *norm_buffers = "running_mean running_var num_batches_tracked ";
    check(eg_conv2d(ctx, 4, 6, 3), x, EG_SHAPE(2, 6, 7, 6), 4 * 6 * 9 + 6, "weight bias ");
    check(eg_conv2d(ctx, 4, 8, EG_HW(3, 5), .stride = 2, .padding = EG_HW(1, 2), .groups = 4, .no_bias = true), x,
          EG_SHAPE(2, 8, 5, 4), 8 * 15, "weight ");
    check(eg_conv2d(ctx, 4, 1, 3, .dilation = 2), x, EG_SHAPE(2, 1, 5, 4), 37, "weight bias ");
    check(eg_linear(ctx, 8, 5), x, EG_SHAPE(2, 4, 9, 5), 45, "weight bias ");
    check(eg_linear(ctx, 3, 5, .no_bias = true), EG_SHAPE(7, 3), EG_SHAPE(7, 5), 15, "weight ");
    check(eg_batch_norm2d(ctx, 4), x, x, 8, "weight bias running_mean running_var num_batches_tracked ");
    check(eg_batch_norm2d(ctx, 4, .no_affine = true, .relu = true), x, x, 0, norm_buffers);
    check(eg_batch_norm2d(ctx, 5, .no_affine = true), EG_SHAPE(6, 5), EG_SHAPE(6, 5), 0, norm_buffers);
    check(eg_elu(ctx), x, x, 0, "");
    check(eg_softplus(ctx), x, x, 0, "");
    check(eg_mish(ctx), x, x, 0, "");
    check(eg_prelu(ctx), x, x, 1, "weight ");
    check(eg_prelu(ctx, 4), x, x, 4, "weight ");
    check(eg_max_pool2d(ctx, 3, .stride = 1, .padding = 1), x, x, 0, "");
    check(eg_max_pool2d(ctx, 2), x, EG_SHAPE(2, 4, 4, 4), 0, "");
    check(eg_max_pool2d(ctx, 2, .ceil_mode = true), x, EG_SHAPE(2, 4, 5, 4), 0, "");
    check(eg_avg_pool2d(ctx, EG_HW(3, 2)), x, EG_SHAPE(2, 4, 3, 4), 0, "");
    check(eg_adaptive_avg_pool2d(ctx, EG_HW(2, 3)), x, EG_SHAPE(2, 4, 2, 3), 0, "");
    check(eg_global_avg_pool2d(ctx), x, EG_SHAPE(2, 4), 0, "");
    check(eg_flatten(ctx), x, EG_SHAPE(2, 288), 0, "");
    check(eg_flatten(ctx, .start_dim = 2, .end_dim = 3), x, EG_SHAPE(2, 4, 72), 0, "");
    check(eg_flatten(ctx, -4), x, EG_SHAPE(576), 0, ""); /* from dimension 0 on */
    check(eg_dropout(ctx, 0.5), x, x, 0, "");
    check(eg_drop_path(ctx, 0.5), x, x, 0, "");
    check(eg_sequential(ctx), x, x, 0, "");
    check(eg_sequential(ctx, EG_NAMED({"c", eg_conv2d(ctx, 4, 2, 1)}, {"f", eg_flatten(ctx)})), x, EG_SHAPE(2, 144), 10,
          "c.weight c.bias ");
}

/* ---- each against its operation ---- */

static eg_tensor *call_once(eg_module *m, eg_tensor *x)
{
    if (m == NULL)
        fail_msg("%s", eg_error_first()->message);
    eg_tensor *y = eg_call(m, x);
    eg_module_release(m);
    return y;
}

static void activations_are_their_operations(void **state)
{
    (void)state;
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_affine(eg_randn(ctx, EG_SHAPE(2, 3, 5, 7)), 4, 0);
    assert_same(call_once(eg_relu(ctx), x), eg_f_relu(x));
    assert_same(call_once(eg_relu6(ctx), x), eg_f_relu6(x));
    assert_same(call_once(eg_sigmoid(ctx), x), eg_f_sigmoid(x));
    assert_same(call_once(eg_tanh(ctx), x), eg_f_tanh(x));
    assert_same(call_once(eg_gelu(ctx), x), eg_f_gelu(x));
    assert_same(call_once(eg_silu(ctx), x), eg_f_silu(x));
    assert_same(call_once(eg_hardswish(ctx), x), eg_f_hardswish(x));
    assert_same(call_once(eg_hardsigmoid(ctx), x), eg_f_hardsigmoid(x));
    assert_same(call_once(eg_mish(ctx), x), eg_f_mish(x));
    assert_ptr_equal(call_once(eg_identity(ctx), x), x);
    assert_same(call_once(eg_leaky_relu(ctx), x), eg_f_leaky_relu(x, 0.01));
    assert_same(call_once(eg_leaky_relu(ctx, EG_F64(0)), x), eg_f_leaky_relu(x, 0));
    assert_same(call_once(eg_elu(ctx), x), eg_f_elu(x, 1));
    assert_same(call_once(eg_elu(ctx, EG_F64(0)), x), eg_f_elu(x, 0));
    assert_same(call_once(eg_softplus(ctx), x), eg_f_softplus(x, 1, 20));
    assert_same(call_once(eg_softplus(ctx, 2, EG_F64(0)), x), eg_f_softplus(x, 2, 0));
    assert_same(call_once(eg_prelu(ctx), x), eg_f_leaky_relu(x, 0.25));
    assert_same(call_once(eg_prelu(ctx, 3, .init = EG_F64(0)), x), eg_f_leaky_relu(x, 0));
    assert_same(call_once(eg_softmax(ctx, 1), x), eg_f_softmax(x, 1));
    assert_same(call_once(eg_softmax(ctx, 0), x), eg_f_softmax(x, 0));
    assert_same(call_once(eg_log_softmax(ctx, -1), x), eg_f_log_softmax(x, 3));
    eg_tape_end(tape);
}

static void weighted_layers_are_their_operations(void **state)
{
    (void)state;
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, 4, 9, 8));
    eg_module *m =
        eg_conv2d(ctx, 4, 6, 3, .stride = EG_HW(2, 1), .padding = EG_HW(0, 1), .dilation = EG_HW(1, 2), .groups = 2);
    const eg_conv2d *c = (eg_conv2d *)m;
    assert_same(eg_call(m, x), eg_f_conv2d(x, c->weight, c->bias, .stride = EG_HW(2, 1), .padding = EG_HW(0, 1),
                                           .dilation = EG_HW(1, 2), .groups = 2));
    eg_module_release(m);
    m = eg_linear(ctx, 8, 3);
    assert_same(eg_call(m, x), eg_f_linear(x, ((eg_linear *)m)->weight, ((eg_linear *)m)->bias));
    eg_module_release(m);
    m = eg_linear(ctx, 8, 3, .no_bias = true);
    assert_same(eg_call(m, x), eg_f_linear(x, ((eg_linear *)m)->weight, eg_none));
    eg_module_release(m);
    eg_tape_end(tape);
}

static void pools_are_their_operations(void **state)
{
    (void)state;
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, 4, 9, 8));
    assert_same(call_once(eg_max_pool2d(ctx, 3, .stride = 2, .padding = 1, .ceil_mode = true), x),
                eg_f_max_pool2d(x, 3, .stride = 2, .padding = 1, .ceil_mode = true));
    assert_same(call_once(eg_max_pool2d(ctx, 2, .dilation = 2), x), eg_f_max_pool2d(x, 2, .dilation = 2));
    assert_same(call_once(eg_avg_pool2d(ctx, 3, .stride = 1, .padding = 1, .exclude_pad = true), x),
                eg_f_avg_pool2d(x, 3, .stride = 1, .padding = 1, .exclude_pad = true));
    assert_same(call_once(eg_adaptive_avg_pool2d(ctx, EG_HW(2, 3)), x), eg_f_adaptive_avg_pool2d(x, EG_HW(2, 3)));
    eg_tensor *mean = eg_reshape(eg_mean(x, .dims = EG_SHAPE(2, 3)), EG_SHAPE(2, 4));
    float expected[8];
    values(mean, expected);
    assert_near(call_once(eg_global_avg_pool2d(ctx), x), expected, 8, 1e-6F);
    eg_tape_end(tape);
    assert_null(eg_max_pool2d(ctx, 3, .padding = 2));
    assert_string_equal(eg_error_last()->message, "MaxPool2d: 'padding' is more than half of 'kernel_size'");
    assert_null(eg_avg_pool2d(ctx, 3, .stride = EG_HW(1, 0)));
}

static void dropout_follows_the_mode(void **state)
{
    (void)state;
    eg_module *drop = eg_dropout(ctx, 0.25), *path = eg_drop_path(ctx, 0.5);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_ones(ctx, EG_SHAPE(16, 16, 4, 4));
    static float y[MAX];
    size_t n = values(eg_call(drop, x), y), zeros = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(y[i] == 0 || fabsf(y[i] - 4.0F / 3) < 1e-6F);
        zeros += y[i] == 0;
    }
    assert_true(zeros > 850 && zeros < 1200); /* 1024 +- 6 sigma */
    values(eg_call(path, x), y);
    for (size_t i = 0; i < n; i++)
        assert_true((y[i] == 0 || y[i] == 2) && y[i] == y[i / 256 * 256]); /* whole samples */
    eg_module_train(drop, false);
    eg_module_train(path, false);
    assert_same(eg_call(drop, x), x);
    assert_same(eg_call(path, x), x);
    eg_tape_end(tape);
    eg_module_release(drop);
    eg_module_release(path);
}

/* ---- batch norm ---- */

static int64_t batches(eg_module *norm)
{
    int64_t n = -1;
    assert_int_equal(eg_tensor_read_i64(eg_module_tensor(norm, "num_batches_tracked"), &n, 1), EG_OK);
    return n;
}

static void batch_norm_tracks_in_training_only(void **state)
{
    (void)state;
    eg_module *m = eg_batch_norm2d(ctx, 1, .momentum = EG_F64(0.5));
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    const float numbers[] = {1, 3, 5, 7};
    eg_tensor *x = eg_from_data(ctx, EG_SHAPE(1, 1, 2, 2), numbers);
    assert_non_null(eg_call(m, x));
    assert_int_equal(batches(m), 1);
    assert_near(eg_module_tensor(m, "running_mean"), (const float[]){2}, 1, 1e-6F);
    assert_near(eg_module_tensor(m, "running_var"), (const float[]){0.5F + 0.5F * 20 / 3}, 1, 1e-5F); /* unbiased */
    assert_non_null(eg_call(m, eg_shape_only(ctx, EG_SHAPE(1, 1, 2, 2))));
    assert_null(eg_call(m, eg_ones(ctx, EG_SHAPE(1, 1, 1, 1)))); /* one value */
    assert_null(eg_call(m, eg_ones(ctx, EG_SHAPE(1, 2, 2, 2))));
    assert_int_equal(batches(m), 1);
    eg_module_train(m, false);
    assert_non_null(eg_call(m, x));
    assert_int_equal(batches(m), 1);
    assert_near(eg_module_tensor(m, "running_mean"), (const float[]){2}, 1, 1e-6F);
    eg_tape_end(tape);
    eg_module_release(m);

    m = eg_batch_norm2d(ctx, 1, .momentum = EG_F64(0)); /* 0 is not the default */
    tape = eg_tape_begin(ctx, EG_NO_GRAD);
    assert_non_null(eg_call(m, eg_from_data(ctx, EG_SHAPE(4, 1), numbers)));
    assert_near(eg_module_tensor(m, "running_mean"), (const float[]){0}, 1, 0);
    eg_tape_end(tape);
    eg_module_release(m);
    assert_null(eg_batch_norm2d(ctx, 0));
}

/* torch.nn.BatchNorm2d(1, momentum=None): the mean of the statistics of all batches. */
static void batch_norm_cumulative(void **state)
{
    (void)state;
    eg_module *m = eg_batch_norm2d(ctx, 1, .cumulative = true);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *a = eg_from_data(ctx, EG_SHAPE(2, 1), (float[]){0, 2}),
              *b = eg_from_data(ctx, EG_SHAPE(2, 1), (float[]){4, 8}),
              *c = eg_from_data(ctx, EG_SHAPE(2, 1), (float[]){-4, 0});
    assert_non_null(eg_call(m, a));
    assert_near(eg_module_tensor(m, "running_mean"), (float[]){1}, 1, 1e-6F); /* what it began with is gone */
    assert_near(eg_module_tensor(m, "running_var"), (float[]){2}, 1, 1e-6F);
    assert_non_null(eg_call(m, b));
    assert_non_null(eg_call(m, c));
    assert_near(eg_module_tensor(m, "running_mean"), (float[]){5.0F / 3}, 1, 1e-6F);
    assert_near(eg_module_tensor(m, "running_var"), (float[]){6}, 1, 1e-5F); /* (2 + 8 + 8) / 3 */
    assert_int_equal(batches(m), 3);
    eg_tape_end(tape);
    eg_module_release(m);
}

/* torch.nn.BatchNorm2d(1, track_running_stats=False): the batch's statistics in both modes, nothing kept. */
static void batch_norm_without_running_statistics(void **state)
{
    (void)state;
    eg_module *m = eg_batch_norm2d(ctx, 1, .no_track_running_stats = true, .no_affine = true);
    eg_state *dict = eg_state_new();
    assert_int_equal(eg_module_state(m, NULL, dict), EG_OK);
    assert_int_equal(eg_state_size(dict), 0);
    eg_state_free(dict);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_from_data(ctx, EG_SHAPE(2, 1), (float[]){10, 14});
    eg_module *copy = eg_module_clone(m);
    eg_module_train(copy, false);
    assert_near(eg_call(m, x), (float[]){-1, 1}, 2, 1e-5F);
    assert_near(eg_call(copy, x), (float[]){-1, 1}, 2, 1e-5F);
    eg_tape_end(tape);
    eg_module_release(copy);
    eg_module_release(m);
}

static eg_tensor *leave_alone(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)m;
    (void)t;
    (void)failed;
    ++*(int *)payload;
    return NULL;
}

/* A batch norm and the ReLU behind it run as one operation: the same numbers as two, gradients and statistics too. */
static void norm_and_relu_fuse(void **state)
{
    (void)state;
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, 16, 3, .no_bias = true), eg_batch_norm2d(ctx, 16),
                                                   eg_relu(ctx), eg_conv2d(ctx, 16, 4, 1)));
    eg_init_uniform(eg_module_tensor(net, "1.weight"), 0.5, 1.5);
    eg_init_uniform(eg_module_tensor(net, "1.bias"), -0.5, 0.5);
    eg_module *plain = eg_module_clone(net);
    int calls = 0;
    assert_int_equal(eg_module_add_hook(eg_module_find(plain, "1"), leave_alone, &calls, NULL), EG_OK);
    static const char *const names[] = {"0.weight", "1.weight", "1.bias", "3.weight"};
    for (int training = 1; training >= 0; training--) {
        eg_module_train(net, training);
        eg_module_train(plain, training);
        eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
        eg_tensor *x = eg_randn(ctx, EG_SHAPE(4, 3, 8, 8)), *a = eg_call(net, x), *b = eg_call(plain, x);
        float expected[MAX];
        size_t n = values(b, expected);
        assert_near(a, expected, n, 1e-5F);
        assert_int_equal(eg_backward(eg_mean(eg_add(eg_mul(a, a), eg_mul(b, b)))), EG_OK);
        for (size_t i = 0; i < 4; i++) {
            n = values(eg_tensor_grad(eg_module_tensor(plain, names[i])), expected);
            assert_near(eg_tensor_grad(eg_module_tensor(net, names[i])), expected, n, 1e-5F);
        }
        eg_tape_end(tape);
        float statistics[16];
        values(eg_module_tensor(plain, "1.running_var"), statistics);
        assert_near(eg_module_tensor(net, "1.running_var"), statistics, 16, 1e-6F);
    }
    assert_int_equal(calls, 2); /* seen by the hook: not fused there */
    assert_int_equal(batches(eg_module_find(net, "1")), 1);
    eg_module_release(net);
    eg_module_release(plain);
}

/* ---- against PyTorch 1.13 ---- */

static void fill(eg_tensor *t, int64_t k)
{
    float numbers[MAX];
    int64_t n = eg_tensor_numel(t);
    for (int64_t i = 0; i < n; i++)
        numbers[i] = (float)((i * 7 + k) % 11 - 5) / 10;
    assert_int_equal(eg_tensor_write(t, numbers, (size_t)n), EG_OK);
}

static eg_status fill_parameter(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)path;
    if (kind == EG_SLOT_PARAMETER)
        fill(t, (*(int64_t *)payload)++);
    return EG_OK;
}

static const float torch_output[] = {-0.5275708F, -0.8916872F, -0.5251732F, -0.8951479F};
static const float torch_eval[] = {-0.5256056F, -0.8945227F, -0.5240924F, -0.8967147F};
static const float torch_mean[] = {-0.0432778F, 0.0321667F, -0.0127778F, -0.0501111F};
static const float torch_var[] = {0.9099009F, 0.9133415F, 0.910883F, 0.9082599F};
static const float torch_grad0[] = {
    0.0005588F,  0.0005758F,  -0.0029092F, -0.0011929F, 0.0048444F,  -0.001701F,  -0.0016951F, 0.001777F,  0.0003431F,
    -0.0026527F, -0.0008756F, 0.0034123F,  0.0002114F,  -0.0026783F, 0.0029288F,  -0.0007689F, 0.0007272F, 0.0016652F,
    0,           0,           0,           0,           0,           0,           0,           0,          0,
    -0.0018617F, -0.0011661F, 0.0031575F,  0.0012118F,  -0.0009104F, -0.0051602F, 0.0014453F,  0.0033518F, -0.0010141F};
static const float torch_grad1[] = {-0.0207061F, -0.0311792F, -0.0003895F, -0.0154362F};

static void a_net_computes_what_pytorch_computes(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(
        ctx, EG_MODULES(eg_conv2d(ctx, 2, 4, 3, .stride = 2, .padding = 1, .groups = 2), eg_batch_norm2d(ctx, 4),
                        eg_relu(ctx), eg_max_pool2d(ctx, 3, .stride = 1, .padding = 1),
                        eg_conv2d(ctx, 4, 3, 1, .no_bias = true), eg_hardswish(ctx), eg_adaptive_avg_pool2d(ctx, 1),
                        eg_flatten(ctx), eg_linear(ctx, 3, 2), eg_log_softmax(ctx, 1)));
    int64_t k = 0;
    assert_int_equal(eg_module_walk_tensors(m, fill_parameter, &k), EG_OK);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *x = eg_zeros(ctx, EG_SHAPE(2, 2, 5, 6));
    fill(x, 3);
    assert_near(eg_call(m, x), torch_output, 4, 2e-6F);
    assert_near(eg_module_tensor(m, "1.running_mean"), torch_mean, 4, 1e-6F);
    assert_near(eg_module_tensor(m, "1.running_var"), torch_var, 4, 1e-6F);
    assert_int_equal(eg_backward(eg_sum(eg_slice(eg_call(m, x), 1, 0, 1, 1))), EG_OK);
    assert_near(eg_tensor_grad(eg_module_tensor(m, "0.weight")), torch_grad0, 36, 2e-6F);
    assert_near(eg_tensor_grad(eg_module_tensor(m, "1.weight")), torch_grad1, 4, 2e-6F);
    eg_module_train(m, false);
    assert_near(eg_call(m, x), torch_eval, 4, 2e-6F);
    assert_int_equal(batches(eg_module_find(m, "1")), 2);
    eg_tape_end(tape);
    eg_module_release(m);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(shapes_parameters_names),
        TEST(activations_are_their_operations),
        TEST(weighted_layers_are_their_operations),
        TEST(pools_are_their_operations),
        TEST(dropout_follows_the_mode),
        TEST(batch_norm_tracks_in_training_only),
        TEST(batch_norm_cumulative),
        TEST(batch_norm_without_running_statistics),
        TEST(norm_and_relu_fuse),
        TEST(a_net_computes_what_pytorch_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
