/*
 * Operations against what PyTorch computed: outputs and gradients, in float64 through the reference kernels and in
 * float32 through the fast ones, with 4-d activations in both memory orders.
 */
#include "vectors.h"

#include "base/internal.h"
#include "engraft/ops.h"

enum { MAX_INPUTS = 5 };

/* How the cases of one operation are run: the names of its inputs in the file (absent: eg_none), and the call. */
typedef struct vector_op_runner {
    const char *file, *op;
    const char *inputs[MAX_INPUTS];
    eg_tensor *(*run)(const json_t *c, eg_tensor *const *in);
} vector_op_runner;

typedef struct setup {
    const char *backend;
    eg_dtype dtype;
    eg_layout layout;
    double rtol, atol;
} setup;

static eg_tensor *run_conv2d(const json_t *c, eg_tensor *const *in)
{
    return eg_f_conv2d(in[0], in[1], in[2], .stride = vector_hw(c, "stride"), .padding = vector_hw(c, "padding"),
                       .dilation = vector_hw(c, "dilation"), .groups = (int64_t)vector_number(c, "groups"));
}

static eg_tensor *run_linear(const json_t *c, eg_tensor *const *in)
{
    (void)c;
    return eg_f_linear(in[0], in[1], in[2]);
}

static eg_tensor *run_matmul(const json_t *c, eg_tensor *const *in)
{
    (void)c;
    return eg_matmul(in[0], in[1]);
}

static eg_tensor *run_embedding(const json_t *c, eg_tensor *const *in)
{
    double padding = vector_number(c, "padding");
    return eg_f_embedding(in[0], in[1], .padding_idx = {.set = padding >= 0, .value = padding});
}

static eg_tensor *run_attention(const json_t *c, eg_tensor *const *in)
{
    return eg_f_scaled_dot_product_attention(in[0], in[1], in[2], in[3], .is_causal = vector_flag(c, "causal"),
                                             .scale = vector_number(c, "scale"));
}

static eg_tensor *run_batch_norm(const json_t *c, eg_tensor *const *in)
{
    return eg_f_batch_norm(in[0], in[1], in[2], in[3], in[4], .training = vector_flag(c, "training"),
                           .momentum = vector_number(c, "momentum"), .eps = vector_number(c, "eps"),
                           .relu = vector_flag(c, "relu"));
}

static eg_tensor *run_max_pool2d(const json_t *c, eg_tensor *const *in)
{
    return eg_f_max_pool2d(in[0], .kernel_size = vector_hw(c, "kernel"), .stride = vector_hw(c, "stride"),
                           .padding = vector_hw(c, "padding"), .dilation = vector_hw(c, "dilation"),
                           .ceil_mode = vector_flag(c, "ceil_mode"));
}

static eg_tensor *run_avg_pool2d(const json_t *c, eg_tensor *const *in)
{
    return eg_f_avg_pool2d(in[0], .kernel_size = vector_hw(c, "kernel"), .stride = vector_hw(c, "stride"),
                           .padding = vector_hw(c, "padding"), .ceil_mode = vector_flag(c, "ceil_mode"),
                           .exclude_pad = vector_flag(c, "exclude_pad"));
}

static eg_tensor *run_adaptive_avg_pool2d(const json_t *c, eg_tensor *const *in)
{
    eg_shape y = vector_shape(c, "y");
    return eg_f_adaptive_avg_pool2d(in[0], EG_HW(y.dims[2], y.dims[3]));
}

static eg_tensor *run_unary(const json_t *c, eg_tensor *const *in)
{
    static const struct {
        const char *name;
        eg_tensor *(*function)(eg_tensor *);
    } functions[] = {
        {"relu", eg_f_relu}, {"relu6", eg_f_relu6}, {"sigmoid", eg_f_sigmoid},     {"tanh", eg_f_tanh},
        {"gelu", eg_f_gelu}, {"silu", eg_f_silu},   {"hardswish", eg_f_hardswish}, {"hardsigmoid", eg_f_hardsigmoid},
    };
    for (size_t i = 0; i < EG_COUNT(functions); i++)
        if (strcmp(functions[i].name, vector_name(c)) == 0)
            return functions[i].function(in[0]);
    if (strcmp(vector_name(c), "leaky_relu") == 0)
        return eg_f_leaky_relu(in[0], vector_number(c, "a"));
    assert_string_equal(vector_name(c), "affine");
    return eg_affine(in[0], vector_number(c, "a"), vector_number(c, "b"));
}

static eg_tensor *run_binary(const json_t *c, eg_tensor *const *in)
{
    const char *name = vector_name(c);
    return strcmp(name, "add") == 0   ? eg_add(in[0], in[1])
           : strcmp(name, "sub") == 0 ? eg_sub(in[0], in[1])
           : strcmp(name, "mul") == 0 ? eg_mul(in[0], in[1])
                                      : eg_div(in[0], in[1]);
}

static eg_tensor *run_weighted_sum(const json_t *c, eg_tensor *const *in)
{
    return eg_weighted_sum(in + 1, (size_t)vector_number(c, "n"), in[0]);
}

static eg_reduce_args reduce_args(const json_t *c, eg_tensor *const *in)
{
    bool keepdim = !json_object_get(json_object_get(c, "params"), "keepdim") || vector_flag(c, "keepdim");
    return (eg_reduce_args){.x = in[0], .dims = vector_integers(vector_param(c, "dims")), .keepdim = keepdim};
}

static eg_tensor *run_sum(const json_t *c, eg_tensor *const *in)
{
    eg_reduce_args args = reduce_args(c, in);
    return eg_sum_with(&args);
}

static eg_tensor *run_mean(const json_t *c, eg_tensor *const *in)
{
    eg_reduce_args args = reduce_args(c, in);
    return eg_mean_with(&args);
}

static eg_tensor *run_max(const json_t *c, eg_tensor *const *in)
{
    eg_reduce_args args = reduce_args(c, in);
    return eg_max_with(&args);
}

static eg_tensor *run_softmax(const json_t *c, eg_tensor *const *in)
{
    return eg_f_softmax(in[0], (int)vector_number(c, "dim"));
}

static eg_tensor *run_log_softmax(const json_t *c, eg_tensor *const *in)
{
    return eg_f_log_softmax(in[0], (int)vector_number(c, "dim"));
}

static eg_tensor *run_cross_entropy(const json_t *c, eg_tensor *const *in)
{
    const json_t *reduction = json_object_get(json_object_get(c, "params"), "reduction");
    return eg_f_cross_entropy(in[0], in[1], .label_smoothing = vector_number(c, "smoothing"),
                              .reduction = reduction ? (eg_reduction)json_integer_value(reduction) : EG_REDUCTION_NONE);
}

static eg_tensor *run_mse_loss(const json_t *c, eg_tensor *const *in)
{
    (void)c;
    return eg_f_mse_loss(in[0], in[1]);
}

static eg_tensor *run_reshape(const json_t *c, eg_tensor *const *in)
{
    return eg_reshape(in[0], vector_integers(vector_param(c, "shape")));
}

static eg_tensor *run_flatten(const json_t *c, eg_tensor *const *in)
{
    return eg_f_flatten(in[0], (int)vector_number(c, "start"), (int)vector_number(c, "end"));
}

static eg_tensor *run_permute(const json_t *c, eg_tensor *const *in)
{
    return eg_permute(in[0], vector_integers(vector_param(c, "order")));
}

static eg_tensor *run_slice(const json_t *c, eg_tensor *const *in)
{
    return eg_slice(in[0], (int)vector_number(c, "dim"), json_integer_value(vector_param(c, "start")),
                    json_integer_value(vector_param(c, "stop")), json_integer_value(vector_param(c, "step")));
}

static eg_tensor *run_split(const json_t *c, eg_tensor *const *in)
{
    int dim = (int)vector_number(c, "dim");
    eg_tensor *pieces = eg_split(in[0], (int64_t)vector_number(c, "size"), dim), *reversed[8];
    size_t n = (size_t)vector_number(c, "n");
    assert_int_equal(eg_tuple_size(pieces), n);
    for (size_t i = 0; i < n; i++)
        reversed[i] = eg_tuple_get(pieces, n - 1 - i);
    return eg_concat(reversed, n, dim);
}

static eg_tensor *run_concat(const json_t *c, eg_tensor *const *in)
{
    return eg_concat(in, (size_t)vector_number(c, "n"), (int)vector_number(c, "dim"));
}

static eg_tensor *run_pad(const json_t *c, eg_tensor *const *in)
{
    return eg_f_pad(in[0], vector_integers(vector_param(c, "pads")), vector_number(c, "value"));
}

static eg_tensor *run_function(const json_t *c, eg_tensor *const *in)
{
    static const struct {
        const char *name;
        eg_tensor *(*function)(eg_tensor *);
    } functions[] = {{"mish", eg_f_mish}, {"exp", eg_exp}, {"ln", eg_ln},
                     {"sqrt", eg_sqrt},   {"abs", eg_abs}, {"neg", eg_neg}};
    const char *name = vector_name(c);
    double a = vector_number(c, "a"), b = vector_number(c, "b");
    for (size_t i = 0; i < EG_COUNT(functions); i++)
        if (strcmp(functions[i].name, name) == 0)
            return functions[i].function(in[0]);
    return strcmp(name, "elu") == 0        ? eg_f_elu(in[0], a)
           : strcmp(name, "softplus") == 0 ? eg_f_softplus(in[0], a, b)
           : strcmp(name, "pow") == 0      ? eg_pow(in[0], a)
                                           : eg_clamp(in[0], a, b);
}

static eg_tensor *run_prelu(const json_t *c, eg_tensor *const *in)
{
    (void)c;
    return eg_f_prelu(in[0], in[1]);
}

static eg_tensor *run_extreme(const json_t *c, eg_tensor *const *in)
{
    return (strcmp(vector_name(c), "maximum") == 0 ? eg_maximum : eg_minimum)(in[0], in[1]);
}

static eg_tensor *run_where(const json_t *c, eg_tensor *const *in)
{
    const char *name = vector_name(c);
    eg_tensor *(*compare)(eg_tensor *, eg_tensor *) = strcmp(name, "gt") == 0   ? eg_gt
                                                      : strcmp(name, "lt") == 0 ? eg_lt
                                                                                : eg_eq;
    return eg_where(compare(in[0], in[1]), in[2], in[3]);
}

static eg_tensor *run_gather(const json_t *c, eg_tensor *const *in)
{
    return eg_gather(in[0], (int)vector_number(c, "dim"), in[1]);
}

static eg_tensor *run_index_select(const json_t *c, eg_tensor *const *in)
{
    return eg_index_select(in[0], (int)vector_number(c, "dim"), in[1]);
}

static eg_tensor *run_cumsum(const json_t *c, eg_tensor *const *in)
{
    return eg_cumsum(in[0], (int)vector_number(c, "dim"));
}

static eg_tensor *run_topk(const json_t *c, eg_tensor *const *in)
{
    int64_t k = (int64_t)vector_number(c, "k");
    int dim = (int)vector_number(c, "dim");
    eg_tensor *top = eg_topk(in[0], k, dim, vector_flag(c, "largest"));
    vector_expect(c, "position", eg_tuple_get(top, 1), 0, 0);
    if (k == 1 && vector_flag(c, "largest"))
        vector_expect(c, "position", eg_argmax(in[0], dim, true), 0, 0);
    return eg_tuple_get(top, 0);
}

static eg_tensor *run_l1_loss(const json_t *c, eg_tensor *const *in)
{
    return eg_f_l1_loss(in[0], in[1], .reduction = (eg_reduction)vector_number(c, "reduction"));
}

static eg_tensor *run_smooth_l1_loss(const json_t *c, eg_tensor *const *in)
{
    return eg_f_smooth_l1_loss(in[0], in[1], .reduction = (eg_reduction)vector_number(c, "reduction"),
                               .beta = EG_F64(vector_number(c, "beta")));
}

static eg_tensor *run_kl_div(const json_t *c, eg_tensor *const *in)
{
    return eg_f_kl_div(in[0], in[1], .reduction = (eg_reduction)vector_number(c, "reduction"),
                       .log_target = vector_flag(c, "log_target"));
}

static eg_tensor *run_bce(const json_t *c, eg_tensor *const *in)
{
    return eg_f_bce_with_logits(in[0], in[1], in[2], .reduction = (eg_reduction)vector_number(c, "reduction"));
}

static eg_tensor *run_nll_loss(const json_t *c, eg_tensor *const *in)
{
    return eg_f_nll_loss(in[0], in[1], in[2], .reduction = (eg_reduction)vector_number(c, "reduction"));
}

/* ---- layers.json ---- */

static eg_tensor *run_conv1d(const json_t *c, eg_tensor *const *in)
{
    return eg_f_conv1d(in[0], in[1], in[2], .stride = (int64_t)vector_number(c, "stride"),
                       .padding = (int64_t)vector_number(c, "padding"),
                       .dilation = (int64_t)vector_number(c, "dilation"),
                       .groups = (int64_t)vector_number(c, "groups"));
}

static eg_tensor *run_conv_transpose2d(const json_t *c, eg_tensor *const *in)
{
    return eg_f_conv_transpose2d(in[0], in[1], in[2], .stride = vector_hw(c, "stride"),
                                 .padding = vector_hw(c, "padding"), .output_padding = vector_hw(c, "output_padding"),
                                 .dilation = vector_hw(c, "dilation"), .groups = (int64_t)vector_number(c, "groups"));
}

static eg_tensor *run_group_norm(const json_t *c, eg_tensor *const *in)
{
    return eg_f_group_norm(in[0], (int64_t)vector_number(c, "groups"), in[1], in[2], .eps = 1e-3);
}

static eg_tensor *run_instance_norm(const json_t *c, eg_tensor *const *in)
{
    (void)c;
    return eg_f_instance_norm(in[0], in[1], in[2], .eps = 1e-3);
}

static eg_tensor *run_layer_norm(const json_t *c, eg_tensor *const *in)
{
    return eg_f_layer_norm(in[0], vector_integers(vector_param(c, "shape")), in[1], in[2], .eps = 1e-3);
}

static eg_tensor *run_interpolate(const json_t *c, eg_tensor *const *in)
{
    return eg_f_interpolate(in[0], .size = vector_hw(c, "size"), .scale_factor = vector_number(c, "scale"),
                            .mode = vector_flag(c, "bilinear") ? EG_BILINEAR : EG_NEAREST,
                            .align_corners = vector_flag(c, "corners"));
}

static eg_tensor *run_pixel_shuffle(const json_t *c, eg_tensor *const *in)
{
    return eg_f_pixel_shuffle(in[0], (int64_t)vector_number(c, "factor"));
}

static eg_tensor *run_pixel_unshuffle(const json_t *c, eg_tensor *const *in)
{
    return eg_f_pixel_unshuffle(in[0], (int64_t)vector_number(c, "factor"));
}

static eg_tensor *run_weight_norm(const json_t *c, eg_tensor *const *in)
{
    return eg_f_weight_norm(in[0], in[1], (int)vector_number(c, "dim"));
}

static const vector_op_runner runners[] = {
    {"functions", "function", {"x"}, run_function},
    {"functions", "prelu", {"x", "weight"}, run_prelu},
    {"functions", "extreme", {"a", "b"}, run_extreme},
    {"functions", "where", {"p", "q", "a", "b"}, run_where},
    {"functions", "gather", {"x", "index"}, run_gather},
    {"functions", "index_select", {"x", "index"}, run_index_select},
    {"functions", "cumsum", {"x"}, run_cumsum},
    {"functions", "topk", {"x"}, run_topk},
    {"functions", "l1_loss", {"a", "b"}, run_l1_loss},
    {"functions", "smooth_l1_loss", {"a", "b"}, run_smooth_l1_loss},
    {"functions", "kl_div", {"a", "b"}, run_kl_div},
    {"functions", "bce", {"x", "target", "weight"}, run_bce},
    {"functions", "nll_loss", {"x", "target", "weight"}, run_nll_loss},
    {"conv", "conv2d", {"x", "w", "b"}, run_conv2d},
    {"conv", "linear", {"x", "w", "b"}, run_linear},
    {"conv", "matmul", {"a", "b"}, run_matmul},
    {"sequence", "matmul", {"a", "b"}, run_matmul},
    {"sequence", "embedding", {"index", "w"}, run_embedding},
    {"sequence", "attention", {"q", "k", "v", "mask"}, run_attention},
    {"norm", "batch_norm", {"x", "running_mean", "running_var", "gamma", "beta"}, run_batch_norm},
    {"pool", "max_pool2d", {"x"}, run_max_pool2d},
    {"pool", "avg_pool2d", {"x"}, run_avg_pool2d},
    {"pool", "adaptive_avg_pool2d", {"x"}, run_adaptive_avg_pool2d},
    {"elementwise", "unary", {"x"}, run_unary},
    {"elementwise", "binary", {"a", "b"}, run_binary},
    {"elementwise", "weighted_sum", {"w", "x0", "x1", "x2", "x3"}, run_weighted_sum},
    {"reduce", "sum", {"x"}, run_sum},
    {"reduce", "max", {"x"}, run_max},
    {"reduce", "softmax", {"x"}, run_softmax},
    {"reduce", "log_softmax", {"x"}, run_log_softmax},
    {"reduce", "cross_entropy", {"x", "target"}, run_cross_entropy},
    {"ops", "sum", {"x"}, run_sum},
    {"ops", "mean", {"x"}, run_mean},
    {"ops", "max", {"x"}, run_max},
    {"ops", "reshape", {"x"}, run_reshape},
    {"ops", "flatten", {"x"}, run_flatten},
    {"ops", "permute", {"x"}, run_permute},
    {"ops", "slice", {"x"}, run_slice},
    {"ops", "split", {"x"}, run_split},
    {"ops", "concat", {"x0", "x1", "x2"}, run_concat},
    {"ops", "pad", {"x"}, run_pad},
    {"ops", "cross_entropy", {"x", "target"}, run_cross_entropy},
    {"ops", "mse_loss", {"a", "b"}, run_mse_loss},
    {"ops", "linear", {"x", "w", "b"}, run_linear},
    {"layers", "conv1d", {"x", "w", "b"}, run_conv1d},
    {"layers", "conv_transpose2d", {"x", "w", "b"}, run_conv_transpose2d},
    {"layers", "group_norm", {"x", "w", "b"}, run_group_norm},
    {"layers", "instance_norm", {"x", "w", "b"}, run_instance_norm},
    {"layers", "layer_norm", {"x", "w", "b"}, run_layer_norm},
    {"layers", "interpolate", {"x"}, run_interpolate},
    {"layers", "pixel_shuffle", {"x"}, run_pixel_shuffle},
    {"layers", "pixel_unshuffle", {"x"}, run_pixel_unshuffle},
    {"layers", "weight_norm", {"v", "g"}, run_weight_norm},
};

static eg_tensor *input(eg_context *ctx, const json_t *c, const char *name, const setup *s)
{
    if (!name || !vector_has(c, name))
        return eg_none;
    bool labels = strcmp(name, "target") == 0 && !eg_shape_equal(vector_shape(c, name), vector_shape(c, "x"));
    labels |= strcmp(name, "index") == 0;
    bool weight = strncmp(vector_op(c), "conv", 4) == 0 && strcmp(name, "w") == 0;
    eg_tensor *t = vector_tensor(ctx, c, name, labels ? EG_I64 : s->dtype, weight ? EG_LAYOUT_ROW_MAJOR : s->layout);
    char gradient[32];
    snprintf(gradient, sizeof gradient, "d%s", name);
    if (vector_has(c, gradient))
        assert_int_equal(eg_tensor_set_requires_grad(t, true), EG_OK);
    return t;
}

static void check_case(const vector_op_runner *runner, const json_t *c, const setup *s)
{
    eg_context *ctx = eg_context_new(.threads = 1, .backend = s->backend);
    assert_non_null(ctx);
    eg_tensor *in[MAX_INPUTS];
    for (size_t i = 0; i < MAX_INPUTS; i++)
        in[i] = input(ctx, c, runner->inputs[i], s);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *y = runner->run(c, in);
    if (!y)
        fail_msg("%s '%s': %s", runner->op, vector_name(c), eg_error_last()->message);
    vector_expect(c, "y", y, s->rtol, s->atol);
    assert_int_equal(eg_backward_from(y, vector_tensor(ctx, c, "dy", s->dtype, s->layout)), EG_OK);
    eg_tape_end(tape);
    for (size_t i = 0; i < MAX_INPUTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "d%s", runner->inputs[i] ? runner->inputs[i] : "");
        if (vector_has(c, name))
            vector_expect(c, name, eg_tensor_grad(in[i]), s->rtol, s->atol);
        snprintf(name, sizeof name, "%s_after", runner->inputs[i] ? runner->inputs[i] : "");
        if (vector_has(c, name))
            vector_expect(c, name, in[i], s->rtol, s->atol);
    }
    eg_context_free(ctx);
}

static void check_runner(const vector_op_runner *runner, const setup *s)
{
    json_t *cases = vectors_load(runner->file), *c;
    size_t i, checked = 0;
    json_array_foreach(cases, i, c)
    {
        bool three = strcmp(runner->op, "batch_norm") == 0 && vector_shape(c, "x").ndim == 3; /* kernels only */
        if (strcmp(vector_op(c), runner->op) != 0 || three)
            continue;
        check_case(runner, c, s);
        checked++;
    }
    assert_true(checked > 0);
    json_decref(cases);
}

static void test_all(void **state)
{
    for (size_t i = 0; i < EG_COUNT(runners); i++)
        check_runner(&runners[i], *state);
}

static void test_every_vector_has_a_runner(void **state)
{
    json_t *cases = vectors_load(*state), *c;
    size_t i;
    json_array_foreach(cases, i, c)
    {
        size_t found = 0;
        for (size_t k = 0; k < EG_COUNT(runners); k++)
            found += strcmp(runners[k].file, *state) == 0 && strcmp(runners[k].op, vector_op(c)) == 0;
        assert_int_equal(found, 1);
    }
    json_decref(cases);
}

int main(void)
{
    static setup wide = {"ref", EG_F64, EG_LAYOUT_DEFAULT, 1e-8, 1e-9};
    static setup wide_row_major = {"ref", EG_F64, EG_LAYOUT_ROW_MAJOR, 1e-8, 1e-9};
    static setup fast = {"dnnl", EG_F32, EG_LAYOUT_DEFAULT, 1e-5, 2e-5};
    static setup fast_row_major = {"dnnl", EG_F32, EG_LAYOUT_ROW_MAJOR, 1e-5, 2e-5};
    const struct CMUnitTest tests[] = {
        {"float64, ref", test_all, NULL, NULL, &wide},
        {"float64, ref, row-major", test_all, NULL, NULL, &wide_row_major},
        {"float32, dnnl", test_all, NULL, NULL, &fast},
        {"float32, dnnl, row-major", test_all, NULL, NULL, &fast_row_major},
        {"every vector of ops.json has a runner", test_every_vector_has_a_runner, NULL, NULL, "ops"},
        {"every vector of functions.json has a runner", test_every_vector_has_a_runner, NULL, NULL, "functions"},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
