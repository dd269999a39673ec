/*
 * tests/ops/cases.h - applications of every operation, small and of odd sizes: what the gradient check, the comparison
 * of backends and the shape-only test run through.
 */
#ifndef EG_TESTS_OPS_CASES_H
#define EG_TESTS_OPS_CASES_H

#include "support.h"

#include "autograd/internal.h"
#include "ops/registry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CASE_INPUTS = 7 };

typedef struct op_case op_case;
struct op_case {
    const char *op, *name; /* op: as in the registry */
    eg_tensor *(*run)(eg_tensor *const *in, const op_case *c);
    /* A letter for each input: n normal numbers, p positive ones, w normal and row-major, N and P the same without a
     * gradient, l labels below p[0], - eg_none. Inputs past the last letter are eg_none. */
    const char *inputs;
    eg_shape shape[CASE_INPUTS];
    int64_t p[6]; /* parameters, as run reads them */
    double d[2];
};

/* ---- how each operation is called ---- */

static eg_tensor *run_conv2d(eg_tensor *const *in, const op_case *c)
{
    return eg_f_conv2d(in[0], in[1], in[2], .stride = c->p[0], .padding = c->p[1], .dilation = c->p[2],
                       .groups = c->p[3]);
}

static eg_tensor *run_conv2d_views(eg_tensor *const *in, const op_case *c)
{
    eg_tensor *x = eg_slice(eg_slice(in[0], 1, 1, -1, 1), 2, 0, INT64_MAX, 2);
    eg_tensor *weight = eg_slice(eg_permute(in[1], EG_SHAPE(0, 1, 3, 2)), 2, 1, -1, 1);
    return eg_f_conv2d(x, weight, in[2], .padding = c->p[1]);
}

/* p: stride, padding, dilation, groups */
static eg_tensor *run_conv1d(eg_tensor *const *in, const op_case *c)
{
    return eg_f_conv1d(in[0], in[1], in[2], .stride = c->p[0], .padding = c->p[1], .dilation = c->p[2],
                       .groups = c->p[3]);
}

/* Two of them, the second reads what the first made; p: the first one's */
static eg_tensor *run_conv1d_twice(eg_tensor *const *in, const op_case *c)
{
    return eg_f_conv1d(eg_f_tanh(run_conv1d(in, c)), in[3], eg_none);
}

/* p: stride, padding, dilation, groups, output padding */
static eg_tensor *run_conv_transpose2d(eg_tensor *const *in, const op_case *c)
{
    return eg_f_conv_transpose2d(in[0], in[1], in[2], .stride = c->p[0], .padding = c->p[1], .dilation = c->p[2],
                                 .groups = c->p[3], .output_padding = c->p[4]);
}

static eg_tensor *run_conv_transpose2d_views(eg_tensor *const *in, const op_case *c)
{
    eg_tensor *x = eg_slice(eg_slice(in[0], 1, 1, -1, 1), 2, 0, INT64_MAX, 2);
    eg_tensor *weight = eg_slice(eg_permute(in[1], EG_SHAPE(0, 1, 3, 2)), 2, 1, -1, 1);
    return eg_f_conv_transpose2d(x, weight, in[2], .stride = c->p[0]);
}

static eg_tensor *run_linear(eg_tensor *const *in, const op_case *c)
{
    (void)c;
    return eg_f_linear(in[0], in[1], in[2]);
}

static eg_tensor *run_linear_views(eg_tensor *const *in, const op_case *c)
{
    (void)c;
    return eg_f_linear(eg_slice(in[0], 0, 1, INT64_MAX, 2), eg_slice(in[1], 0, 0, -1, 1), in[2]);
}

static eg_tensor *run_matmul(eg_tensor *const *in, const op_case *c)
{
    (void)c;
    return eg_matmul(in[0], in[1]);
}

static eg_tensor *run_matmul_views(eg_tensor *const *in, const op_case *c)
{
    (void)c;
    return eg_matmul(eg_permute(in[0], EG_SHAPE(1, 0)), eg_slice(in[1], 1, 1, INT64_MAX, 2));
}

/* A batch of transposes, and every other row of the other. */
static eg_tensor *run_matmul_batch_views(eg_tensor *const *in, const op_case *c)
{
    (void)c;
    return eg_matmul(eg_permute(in[0], EG_SHAPE(0, 2, 1)), eg_slice(in[1], 1, 1, INT64_MAX, 2));
}

/* p: rows, whether one is padding, that one */
static eg_tensor *run_embedding(eg_tensor *const *in, const op_case *c)
{
    return eg_f_embedding(in[0], in[1], .padding_idx = {.set = c->p[1] != 0, .value = (double)c->p[2]});
}

/* p: causal; d: dropout, scale */
static eg_tensor *run_attention(eg_tensor *const *in, const op_case *c)
{
    return eg_f_scaled_dot_product_attention(in[0], in[1], in[2], in[3], .is_causal = c->p[0] != 0,
                                             .dropout_p = c->d[0], .scale = c->d[1]);
}

/* Heads out of (N, L, H, E) or (N, L, H E), as in multi-head attention; p: causal */
static eg_tensor *run_attention_heads(eg_tensor *const *in, const op_case *c)
{
    eg_tensor *part[3];
    for (int i = 0; i < 3; i++)
        part[i] = eg_permute(eg_reshape(in[i], EG_SHAPE(2, -1, 3, 4)), EG_SHAPE(0, 2, 1, 3));
    return eg_f_scaled_dot_product_attention(part[0], part[1], part[2], in[3], .is_causal = c->p[0] != 0);
}

/* The mask says yes and no: for the first row of all, only no. */
static eg_tensor *run_attention_yes_no(eg_tensor *const *in, const op_case *c)
{
    eg_shape shape = EG_SHAPE(eg_tensor_size(in[0], -2), eg_tensor_size(in[1], -2));
    eg_tensor *mask = eg_empty(eg_tensor_context(in[0]), EG_U8, shape, EG_LAYOUT_ROW_MAJOR);
    if (!mask)
        return NULL;
    for (int64_t i = 0; i < eg_shape_numel(shape); i++)
        ((uint8_t *)eg_tensor_data(mask))[i] = (uint8_t)(i < shape.dims[1] ? 0 : i % 3);
    return eg_f_scaled_dot_product_attention(in[0], in[1], in[2], mask, .is_causal = c->p[0] != 0);
}

static eg_tensor *lstm_of(eg_tensor *const *in, const op_case *c)
{
    return eg_f_lstm(in[0], in[1], in[2], in[3], in[4], in[5], in[6], .reverse = c->p[0] != 0);
}

/* p: reverse. All outputs together. */
static eg_tensor *run_lstm(eg_tensor *const *in, const op_case *c)
{
    eg_tensor *all = lstm_of(in, c);
    return eg_add(eg_tuple_get(all, 0), eg_mul(eg_tuple_get(all, 1), eg_tuple_get(all, 2)));
}

/* p: reverse, which output */
static eg_tensor *run_lstm_one(eg_tensor *const *in, const op_case *c)
{
    return eg_tuple_get(lstm_of(in, c), (size_t)c->p[1]);
}

/* Samples first. */
static eg_tensor *run_lstm_permuted(eg_tensor *const *in, const op_case *c)
{
    eg_tensor *given[CASE_INPUTS];
    memcpy(given, in, sizeof given);
    given[0] = eg_permute(in[0], EG_SHAPE(1, 0, 2));
    return eg_permute(eg_tuple_get(lstm_of(given, c), 0), EG_SHAPE(1, 0, 2));
}

static eg_tensor *gru_of(eg_tensor *const *in, const op_case *c)
{
    return eg_f_gru(in[0], in[1], in[2], in[3], in[4], in[5], .reverse = c->p[0] != 0);
}

static eg_tensor *run_gru(eg_tensor *const *in, const op_case *c)
{
    eg_tensor *all = gru_of(in, c);
    return eg_add(eg_tuple_get(all, 0), eg_tuple_get(all, 1));
}

static eg_tensor *run_gru_one(eg_tensor *const *in, const op_case *c)
{
    return eg_tuple_get(gru_of(in, c), (size_t)c->p[1]);
}

/* p: training, relu */
static eg_tensor *run_batch_norm(eg_tensor *const *in, const op_case *c)
{
    return eg_f_batch_norm(in[0], in[1], in[2], in[3], in[4], .training = c->p[0] != 0, .relu = c->p[1] != 0,
                           .relu_max = c->d[0], .momentum = 0.1, .eps = 1e-3);
}

/* p: groups */
static eg_tensor *run_group_norm(eg_tensor *const *in, const op_case *c)
{
    return eg_f_group_norm(in[0], c->p[0], in[1], in[2], .eps = 1e-3);
}

static eg_tensor *run_group_norm_views(eg_tensor *const *in, const op_case *c)
{
    eg_tensor *x = eg_slice(eg_slice(in[0], 1, 1, -1, 1), 3, 0, INT64_MAX, 2);
    return eg_f_group_norm(x, c->p[0], eg_slice(in[1], 0, 0, INT64_MAX, 2), in[2]);
}

static eg_tensor *run_instance_norm(eg_tensor *const *in, const op_case *c)
{
    (void)c;
    return eg_f_instance_norm(in[0], in[1], in[2], .eps = 1e-3);
}

/* p: how many of the last dimensions */
static eg_tensor *run_layer_norm(eg_tensor *const *in, const op_case *c)
{
    eg_shape x = eg_tensor_shape(in[0]), normalized = {.ndim = (int)c->p[0]};
    for (int d = 0; d < normalized.ndim; d++)
        normalized.dims[d] = x.dims[x.ndim - normalized.ndim + d];
    return eg_f_layer_norm(in[0], normalized, in[1], in[2], .eps = 1e-3);
}

static eg_tensor *run_layer_norm_of_channels(eg_tensor *const *in, const op_case *c)
{
    (void)c;
    eg_tensor *x = eg_permute(in[0], EG_SHAPE(0, 2, 3, 1));
    eg_tensor *y = eg_f_layer_norm(x, EG_SHAPE(eg_tensor_size(in[0], 1)), in[1], in[2]);
    return eg_permute(y, EG_SHAPE(0, 3, 1, 2));
}

/* p: dim */
static eg_tensor *run_weight_norm(eg_tensor *const *in, const op_case *c)
{
    return eg_f_weight_norm(in[0], in[1], (int)c->p[0]);
}

static eg_tensor *run_max_pool2d(eg_tensor *const *in, const op_case *c)
{
    return eg_f_max_pool2d(in[0], .kernel_size = c->p[0], .stride = c->p[1], .padding = c->p[2], .dilation = c->p[3],
                           .ceil_mode = c->p[4] != 0);
}

static eg_tensor *run_avg_pool2d(eg_tensor *const *in, const op_case *c)
{
    return eg_f_avg_pool2d(in[0], .kernel_size = c->p[0], .stride = c->p[1], .padding = c->p[2],
                           .ceil_mode = c->p[4] != 0, .exclude_pad = c->p[5] != 0);
}

static eg_tensor *run_adaptive_avg_pool2d(eg_tensor *const *in, const op_case *c)
{
    return eg_f_adaptive_avg_pool2d(in[0], c->p[0]);
}

/* p: size, bilinear, align corners; d: scale factor */
static eg_tensor *run_interpolate(eg_tensor *const *in, const op_case *c)
{
    return eg_f_interpolate(in[0], .size = c->p[0], .scale_factor = c->d[0], .mode = c->p[1] ? EG_BILINEAR : EG_NEAREST,
                            .align_corners = c->p[2] != 0);
}

/* p: factor */
static eg_tensor *run_pixel_shuffle(eg_tensor *const *in, const op_case *c)
{
    return eg_f_pixel_shuffle(in[0], c->p[0]);
}

static eg_tensor *run_pixel_unshuffle(eg_tensor *const *in, const op_case *c)
{
    return eg_f_pixel_unshuffle(in[0], c->p[0]);
}

#define RUN_UNARY(record)                                                                                              \
    static eg_tensor *run_##record(eg_tensor *const *in, const op_case *c)                                             \
    {                                                                                                                  \
        (void)c;                                                                                                       \
        return eg_f_##record(in[0]);                                                                                   \
    }
RUN_UNARY(relu)
RUN_UNARY(relu6)
RUN_UNARY(sigmoid)
RUN_UNARY(tanh)
RUN_UNARY(gelu)
RUN_UNARY(silu)
RUN_UNARY(hardswish)
RUN_UNARY(hardsigmoid)

static eg_tensor *run_leaky_relu(eg_tensor *const *in, const op_case *c)
{
    return eg_f_leaky_relu(in[0], c->d[0]);
}

static eg_tensor *run_softmax(eg_tensor *const *in, const op_case *c)
{
    return eg_f_softmax(in[0], (int)c->p[0]);
}

static eg_tensor *run_log_softmax(eg_tensor *const *in, const op_case *c)
{
    return eg_f_log_softmax(in[0], (int)c->p[0]);
}

static eg_tensor *run_dropout(eg_tensor *const *in, const op_case *c)
{
    return eg_f_dropout(in[0], c->d[0], true);
}

static eg_tensor *run_drop_path(eg_tensor *const *in, const op_case *c)
{
    return eg_f_drop_path(in[0], c->d[0], true);
}

#define RUN_BINARY(record)                                                                                             \
    static eg_tensor *run_##record(eg_tensor *const *in, const op_case *c)                                             \
    {                                                                                                                  \
        (void)c;                                                                                                       \
        return eg_##record(in[0], in[1]);                                                                              \
    }
RUN_BINARY(add)
RUN_BINARY(sub)
RUN_BINARY(mul)
RUN_BINARY(div)

static eg_tensor *run_square(eg_tensor *const *in, const op_case *c)
{
    (void)c;
    return eg_mul(in[0], in[0]);
}

/* To the type that it has, which eg_cast() does not do: a gradient check wants float64 throughout. */
static eg_tensor *run_cast(eg_tensor *const *in, const op_case *c)
{
    eg__cast_attrs same = {.dtype = eg_tensor_dtype(in[0])};
    (void)c;
    return eg_apply(&eg__op_cast, in, 1, &same);
}

static eg_tensor *run_affine(eg_tensor *const *in, const op_case *c)
{
    return eg_affine(in[0], c->d[0], c->d[1]);
}

/* p: number of terms */
static eg_tensor *run_add_n(eg_tensor *const *in, const op_case *c)
{
    return eg_add_n(in, (size_t)c->p[0]);
}

static eg_tensor *run_add_n_twice(eg_tensor *const *in, const op_case *c)
{
    (void)c;
    return eg_add_n((eg_tensor *const[]){in[0], in[1], in[0]}, 3);
}

/* p: number of terms; the weights come after them */
/* x, sum, weights, weight and bias of the norm; p: which weight */
static eg_tensor *run_norm_add(eg_tensor *const *in, const op_case *c)
{
    eg_batch_norm_args norm = {.x = in[0],
                               .running_mean = eg_none,
                               .running_var = eg_none,
                               .weight = in[3],
                               .bias = in[4],
                               .training = true,
                               .momentum = 0.1,
                               .eps = 1e-3};
    return eg__norm_add(in[1], false, &norm, in[2], c->p[0]);
}

/* Two terms of one sum, the second of which takes over the memory of the first. */
static eg_tensor *run_norm_add_twice(eg_tensor *const *in, const op_case *c)
{
    eg_batch_norm_args norm = {.x = in[1],
                               .running_mean = eg_none,
                               .running_var = eg_none,
                               .weight = in[3],
                               .bias = in[4],
                               .training = true,
                               .momentum = 0.1,
                               .eps = 1e-3};
    eg_tensor *sum = eg__weighted_add(eg_none, false, in[0], in[2], 0);
    return eg__weighted_add(eg__norm_add(sum, true, &norm, in[2], c->p[0]), true, in[0], in[2], 0);
}

static eg_tensor *run_weighted_add(eg_tensor *const *in, const op_case *c)
{
    return eg__weighted_add(in[1], false, in[0], in[2], c->p[0]);
}

static eg_tensor *run_weighted_sum(eg_tensor *const *in, const op_case *c)
{
    return eg_weighted_sum(in, (size_t)c->p[0], in[c->p[0]]);
}

/* p: number of dimensions, the first two of them, keepdim */
#define RUN_REDUCE(record)                                                                                             \
    static eg_tensor *run_##record(eg_tensor *const *in, const op_case *c)                                             \
    {                                                                                                                  \
        eg_shape dims = {.ndim = (int)c->p[0], .dims = {c->p[1], c->p[2]}};                                            \
        return eg_##record(in[0], .dims = dims, .keepdim = c->p[3] != 0);                                              \
    }
RUN_REDUCE(sum)
RUN_REDUCE(mean)
RUN_REDUCE(max)

/* p: the new shape or the order, after its number of dimensions */
static eg_shape case_shape(const op_case *c)
{
    return (eg_shape){.ndim = (int)c->p[0], .dims = {c->p[1], c->p[2], c->p[3], c->p[4], c->p[5]}};
}

static eg_tensor *run_reshape(eg_tensor *const *in, const op_case *c)
{
    return eg_reshape(in[0], case_shape(c));
}

static eg_tensor *run_flatten(eg_tensor *const *in, const op_case *c)
{
    return eg_f_flatten(in[0], (int)c->p[0], (int)c->p[1]);
}

static eg_tensor *run_permute(eg_tensor *const *in, const op_case *c)
{
    return eg_permute(in[0], case_shape(c));
}

static eg_tensor *run_channel_shuffle(eg_tensor *const *in, const op_case *c)
{
    int64_t groups = c->p[0], n = eg_tensor_size(in[0], 0), channels = eg_tensor_size(in[0], 1);
    int64_t h = eg_tensor_size(in[0], 2), w = eg_tensor_size(in[0], 3);
    eg_tensor *split = eg_reshape(in[0], EG_SHAPE(n, groups, channels / groups, h, w));
    return eg_reshape(eg_permute(split, EG_SHAPE(0, 2, 1, 3, 4)), EG_SHAPE(n, channels, h, w));
}

static eg_tensor *run_slice(eg_tensor *const *in, const op_case *c)
{
    return eg_slice(in[0], (int)c->p[0], c->p[1], c->p[2], c->p[3]);
}

/* p: the shape. */
static eg_tensor *run_narrow(eg_tensor *const *in, const op_case *c)
{
    eg_shape shape = {.ndim = eg_tensor_ndim(in[0])};
    for (int d = 0; d < shape.ndim; d++)
        shape.dims[d] = c->p[d];
    return eg__narrow(in[0], shape);
}

/* p: size, dim. The pieces go back in reverse order, the second left out. */
static eg_tensor *run_split(eg_tensor *const *in, const op_case *c)
{
    eg_tensor *pieces = eg_split(in[0], c->p[0], (int)c->p[1]);
    eg_tensor *kept[] = {eg_tuple_get(pieces, 2), eg_tuple_get(pieces, 0)};
    return eg_concat(kept, 2, (int)c->p[1]);
}

/* p: number of pieces, dim */
static eg_tensor *run_concat(eg_tensor *const *in, const op_case *c)
{
    return eg_concat(in, (size_t)c->p[0], (int)c->p[1]);
}

static eg_tensor *run_pad(eg_tensor *const *in, const op_case *c)
{
    return eg_f_pad(in[0], case_shape(c), c->d[0]);
}

/* p: classes, reduction; d: smoothing */
static eg_tensor *run_cross_entropy(eg_tensor *const *in, const op_case *c)
{
    return eg_f_cross_entropy(in[0], in[1], .label_smoothing = c->d[0], .reduction = (eg_reduction)c->p[1]);
}

static eg_tensor *run_mse_loss(eg_tensor *const *in, const op_case *c)
{
    (void)c;
    return eg_f_mse_loss(in[0], in[1]);
}

#include "ops/cases_functions.h"

/* ---- the table ---- */

/* EG_SHAPE() as a constant initializer */
#define S(...)                                                                                                         \
    {                                                                                                                  \
        .dims = {__VA_ARGS__}, .ndim = (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))                 \
    }
#define NONE                                                                                                           \
    {                                                                                                                  \
        .ndim = 0                                                                                                      \
    }

/* clang-format off: one row a line */
static const op_case op_cases[] = {
    /* p: stride, padding, dilation, groups */
    {"conv2d", "1 to 1", run_conv2d, "nwn", {S(2, 1, 5, 4), S(1, 1, 3, 3), S(1)}, {1, 1, 1, 1}, {0}},
    {"conv2d", "3 to 24, stride 2", run_conv2d, "nwn", {S(2, 3, 7, 6), S(24, 3, 3, 3), S(24)}, {2, 1, 1, 1}, {0}},
    {"conv2d", "24 to 36 pointwise, no bias", run_conv2d, "nw", {S(2, 24, 3, 5), S(36, 24, 1, 1)}, {1, 0, 1, 1}, {0}},
    {"conv2d", "24 depthwise", run_conv2d, "nw", {S(1, 24, 5, 7), S(24, 1, 3, 3)}, {1, 1, 1, 24}, {0}},
    {"conv2d", "36 depthwise, dilated", run_conv2d, "nwn", {S(2, 36, 6, 6), S(36, 1, 5, 5), S(36)}, {1, 4, 2, 36}, {0}},
    {"conv2d", "24 depthwise 5x5, stride 2", run_conv2d, "nw", {S(2, 24, 9, 7), S(24, 1, 5, 5)}, {2, 2, 1, 24}, {0}},
    {"conv2d", "36 depthwise 3x3, stride 2", run_conv2d, "nw", {S(2, 36, 6, 8), S(36, 1, 3, 3)}, {2, 1, 1, 36}, {0}},
    {"conv2d", "16 depthwise, every second", run_conv2d, "nw", {S(1, 16, 9, 8), S(16, 1, 5, 5)}, {2, 4, 2, 16}, {0}},
    {"conv2d", "40 depthwise 7x7", run_conv2d, "nw", {S(1, 40, 4, 5), S(40, 1, 7, 7)}, {1, 3, 1, 40}, {0}},
    {"conv2d", "8 depthwise, far padding", run_conv2d, "nw", {S(2, 8, 3, 4), S(8, 1, 3, 3)}, {1, 3, 1, 8}, {0}},
    {"conv2d",
     "3 depthwise, two sizes",
     run_conv2d,
     "nw",
     {S(2, 3, 8, 9), S(3, 1, 2, 3)},
     {EG_HW(3, 2), EG_HW(1, 2), EG_HW(2, 3), 3},
     {0}},
    {"conv2d", "3 to 6 depthwise with multiplier", run_conv2d, "nw", {S(2, 3, 5, 5), S(6, 1, 3, 3)}, {2, 1, 1, 3}, {0}},
    {"conv2d", "groups", run_conv2d, "nwn", {S(2, 12, 5, 4), S(9, 4, 3, 2), S(9)}, {1, 1, 1, 3}, {0}},
    {"conv2d",
     "two sizes",
     run_conv2d,
     "nwn",
     {S(1, 3, 6, 9), S(5, 3, 2, 5), S(5)},
     {EG_HW(2, 3), EG_HW(0, 2), EG_HW(3, 1), 1},
     {0}},
    {"conv2d",
     "kernel of the padded input's size",
     run_conv2d,
     "nw",
     {S(3, 2, 3, 2), S(4, 2, 5, 4)},
     {1, 1, 1, 1},
     {0}},
    {"conv2d", "one pixel", run_conv2d, "nwn", {S(1, 3, 1, 1), S(24, 3, 1, 1), S(24)}, {1, 0, 1, 1}, {0}},
    {"conv2d", "fixed input", run_conv2d, "Nwn", {S(2, 3, 4, 4), S(5, 3, 3, 3), S(5)}, {1, 1, 1, 1}, {0}},
    {"conv2d", "views", run_conv2d_views, "nwn", {S(2, 5, 6, 4), S(4, 3, 3, 5), S(4)}, {1, 1, 1, 1}, {0}},
    {"conv2d", "row-major input", run_conv2d, "wwn", {S(2, 3, 5, 4), S(4, 3, 3, 3), S(4)}, {1, 1, 1, 1}, {0}},

    {"conv2d", "1-d", run_conv1d, "nwn", {S(2, 3, 9), S(4, 3, 3), S(4)}, {2, 1, 1, 1}, {0}},
    {"conv2d", "1-d, 24 depthwise, dilated", run_conv1d, "nw", {S(2, 24, 9), S(24, 1, 3)}, {1, 2, 2, 24}, {0}},
    {"conv2d",
     "1-d, one after the other",
     run_conv1d_twice,
     "nwnw",
     {S(2, 3, 9), S(6, 3, 3), S(6), S(4, 6, 2)},
     {1, 0, 1, 1},
     {0}},

    /* p: stride, padding, dilation, groups, output padding */
    {"conv_transpose2d",
     "1 to 1",
     run_conv_transpose2d,
     "nwn",
     {S(2, 1, 5, 4), S(1, 1, 3, 3), S(1)},
     {1, 1, 1, 1},
     {0}},
    {"conv_transpose2d",
     "24 to 3, stride 2",
     run_conv_transpose2d,
     "nwn",
     {S(2, 24, 4, 3), S(24, 3, 3, 3), S(3)},
     {2, 1, 1, 1, 1},
     {0}},
    {"conv_transpose2d",
     "pointwise, no bias",
     run_conv_transpose2d,
     "nw",
     {S(2, 24, 3, 5), S(24, 36, 1, 1)},
     {1, 0, 1, 1},
     {0}},
    {"conv_transpose2d",
     "pointwise, stride 2",
     run_conv_transpose2d,
     "nwn",
     {S(2, 5, 3, 4), S(5, 3, 1, 1), S(3)},
     {2, 0, 1, 1, 1},
     {0}},
    {"conv_transpose2d",
     "2x2 stride 2",
     run_conv_transpose2d,
     "nwn",
     {S(2, 6, 3, 4), S(6, 4, 2, 2), S(4)},
     {2, 0, 1, 1},
     {0}},
    {"conv_transpose2d",
     "stride beyond the kernel",
     run_conv_transpose2d,
     "nwn",
     {S(1, 3, 3, 2), S(3, 5, 2, 2), S(5)},
     {3, 0, 1, 1, 2},
     {0}},
    {"conv_transpose2d",
     "24 depthwise",
     run_conv_transpose2d,
     "nwn",
     {S(2, 24, 4, 5), S(24, 1, 3, 3), S(24)},
     {2, 1, 1, 24, 1},
     {0}},
    {"conv_transpose2d",
     "depthwise, dilated",
     run_conv_transpose2d,
     "nw",
     {S(1, 6, 5, 4), S(6, 1, 5, 5)},
     {1, 4, 2, 6},
     {0}},
    {"conv_transpose2d",
     "groups",
     run_conv_transpose2d,
     "nwn",
     {S(2, 9, 4, 3), S(9, 4, 3, 2), S(12)},
     {2, 1, 1, 3, 1},
     {0}},
    {"conv_transpose2d",
     "output padding beyond the stride",
     run_conv_transpose2d,
     "nwn",
     {S(2, 3, 4, 3), S(3, 4, 3, 3), S(4)},
     {1, 2, 3, 1, 2},
     {0}},
    {"conv_transpose2d",
     "two sizes",
     run_conv_transpose2d,
     "nwn",
     {S(1, 3, 4, 3), S(3, 5, 2, 4), S(5)},
     {EG_HW(2, 3), EG_HW(0, 2), EG_HW(3, 1), 1, EG_HW(1, 2)},
     {0}},
    {"conv_transpose2d", "views", run_conv_transpose2d_views, "nwn", {S(2, 5, 6, 4), S(3, 4, 3, 5), S(4)}, {2}, {0}},
    {"conv_transpose2d",
     "row-major input",
     run_conv_transpose2d,
     "wwn",
     {S(2, 3, 4, 5), S(3, 2, 3, 3), S(2)},
     {2, 1, 1, 1},
     {0}},

    {"linear", "3 to 24", run_linear, "nnn", {S(5, 3), S(24, 3), S(24)}, {0}, {0}},
    {"linear", "36 to 1, no bias", run_linear, "nn", {S(3, 36), S(1, 36)}, {0}, {0}},
    {"linear", "3-d", run_linear, "nnn", {S(2, 3, 5), S(4, 5), S(4)}, {0}, {0}},
    {"linear", "4-d channels-last", run_linear, "nnn", {S(2, 3, 4, 5), S(6, 5), S(6)}, {0}, {0}},
    {"linear", "1-d", run_linear, "nnn", {S(7), S(4, 7), S(4)}, {0}, {0}},
    {"linear", "views", run_linear_views, "nnn", {S(5, 3), S(5, 3), S(4)}, {0}, {0}},

    {"matmul", "", run_matmul, "nn", {S(3, 24), S(24, 5)}, {0}, {0}},
    {"matmul", "1", run_matmul, "nn", {S(1, 1), S(1, 36)}, {0}, {0}},
    {"matmul", "views", run_matmul_views, "nn", {S(4, 3), S(4, 7)}, {0}, {0}},

    {"matmul", "batch", run_matmul, "nn", {S(3, 4, 5), S(3, 5, 2)}, {0}, {0}},
    {"matmul", "heads, channels-last", run_matmul, "nn", {S(2, 3, 4, 5), S(2, 3, 5, 6)}, {0}, {0}},
    {"matmul", "heads, row-major", run_matmul, "ww", {S(2, 3, 4, 5), S(2, 3, 5, 6)}, {0}, {0}},
    {"matmul", "one for all", run_matmul, "nn", {S(2, 3, 4, 5), S(5, 2)}, {0}, {0}},
    {"matmul", "one for all, row-major", run_matmul, "wn", {S(2, 3, 4, 5), S(1, 5, 2)}, {0}, {0}},
    {"matmul", "all for one", run_matmul, "nn", {S(4, 5), S(3, 5, 2)}, {0}, {0}},
    {"matmul", "batches of two shapes", run_matmul, "nn", {S(3, 1, 4, 5), S(2, 5, 1)}, {0}, {0}},
    {"matmul", "large batch", run_matmul, "nn", {S(9, 1, 17), S(9, 17, 3)}, {0}, {0}},
    {"matmul", "row and column", run_matmul, "nn", {S(7), S(7)}, {0}, {0}},
    {"matmul", "row", run_matmul, "nn", {S(5), S(3, 5, 2)}, {0}, {0}},
    {"matmul", "column", run_matmul, "nn", {S(2, 3, 5), S(5)}, {0}, {0}},
    {"matmul", "batch of views", run_matmul_batch_views, "nn", {S(2, 4, 3), S(2, 8, 5)}, {0}, {0}},

    /* p: rows, whether one is padding, that one */
    {"embedding", "one line", run_embedding, "ln", {S(7), S(5, 3)}, {5}, {0}},
    {"embedding", "a number", run_embedding, "ln", {NONE, S(3, 4)}, {3}, {0}},
    {"embedding", "3-d, padding", run_embedding, "ln", {S(2, 3, 4), S(5, 5)}, {4, 1, 4}, {0}},
    {"embedding", "4-d, padding from the end", run_embedding, "ln", {S(2, 3, 2, 2), S(6, 1)}, {5, 1, -1}, {0}},

    /* p: causal; d: dropout, scale */
    {"scaled_dot_product_attention", "", run_attention, "nnn", {S(2, 3, 4, 5), S(2, 3, 6, 5), S(2, 3, 6, 5)}, {0}, {0}},
    {"scaled_dot_product_attention",
     "row-major, wider values, scale",
     run_attention,
     "www",
     {S(2, 3, 4, 5), S(2, 3, 6, 5), S(2, 3, 6, 7)},
     {0},
     {0, 0.7}},
    {"scaled_dot_product_attention",
     "3-d, causal",
     run_attention,
     "nnn",
     {S(3, 5, 4), S(3, 5, 4), S(3, 5, 2)},
     {1},
     {0}},
    {"scaled_dot_product_attention",
     "2-d, causal, longer",
     run_attention,
     "nnn",
     {S(6, 3), S(4, 3), S(4, 3)},
     {1},
     {0}},
    {"scaled_dot_product_attention",
     "added mask",
     run_attention,
     "nnnn",
     {S(2, 3, 4, 5), S(2, 3, 6, 5), S(2, 3, 6, 5), S(4, 6)},
     {0},
     {0}},
    {"scaled_dot_product_attention",
     "added mask of heads, causal",
     run_attention,
     "nnnw",
     {S(2, 3, 4, 5), S(2, 3, 4, 5), S(2, 3, 4, 5), S(2, 3, 1, 4)},
     {1},
     {0}},
    {"scaled_dot_product_attention",
     "added mask of all",
     run_attention,
     "nnnn",
     {S(2, 4, 5), S(2, 4, 5), S(2, 4, 5), S(2, 4, 4)},
     {0},
     {0}},
    {"scaled_dot_product_attention", "dropout", run_attention, "nnn", {S(2, 5, 4), S(2, 6, 4), S(2, 6, 3)}, {0}, {0.4}},
    {"scaled_dot_product_attention",
     "heads",
     run_attention_heads,
     "wnn",
     {S(2, 5, 3, 4), S(2, 5, 12), S(2, 5, 12)},
     {1},
     {0}},
    {"scaled_dot_product_attention",
     "yes and no",
     run_attention_yes_no,
     "nnn",
     {S(2, 4, 5), S(2, 6, 5), S(2, 6, 5)},
     {0},
     {0}},

    /* p: reverse, which output */
    {"lstm", "all", run_lstm, "nnnnnnn", {S(4, 3, 5), S(8, 5), S(8, 2), S(8), S(8), S(3, 2), S(3, 2)}, {0}, {0}},
    {"lstm",
     "all, reverse",
     run_lstm,
     "nnnnnnn",
     {S(3, 2, 1), S(12, 1), S(12, 3), S(12), S(12), S(2, 3), S(2, 3)},
     {1},
     {0}},
    {"lstm", "bare", run_lstm_one, "nnn", {S(3, 2, 4), S(4, 4), S(4, 1)}, {0, 0}, {0}},
    {"lstm", "last state, one bias", run_lstm_one, "nnn-n", {S(3, 2, 4), S(8, 4), S(8, 2), NONE, S(8)}, {0, 1}, {0}},
    {"lstm",
     "last cells, reverse",
     run_lstm_one,
     "nnnn--n",
     {S(1, 3, 2), S(8, 2), S(8, 2), S(8), NONE, NONE, S(3, 2)},
     {1, 2},
     {0}},
    {"lstm", "samples first", run_lstm_permuted, "nnn", {S(2, 5, 3), S(20, 3), S(20, 5)}, {0}, {0}},
    {"gru", "all", run_gru, "nnnnnn", {S(4, 3, 5), S(6, 5), S(6, 2), S(6), S(6), S(3, 2)}, {0}, {0}},
    {"gru", "all, reverse", run_gru, "nnnnnn", {S(3, 2, 1), S(9, 1), S(9, 3), S(9), S(9), S(2, 3)}, {1}, {0}},
    {"gru", "bare", run_gru_one, "nnn", {S(3, 2, 4), S(3, 4), S(3, 1)}, {0, 0}, {0}},
    {"gru", "last state, one bias", run_gru_one, "nnn-n", {S(3, 2, 4), S(6, 4), S(6, 2), NONE, S(6)}, {0, 1}, {0}},

    /* p: training, relu */
    {"batch_norm", "1", run_batch_norm, "nNPnn", {S(2, 1, 3, 3), S(1), S(1), S(1), S(1)}, {1, 0}, {0}},
    {"batch_norm", "3, relu", run_batch_norm, "nNPnn", {S(3, 3, 5, 4), S(3), S(3), S(3), S(3)}, {1, 1}, {0}},
    {"batch_norm", "3, relu6", run_batch_norm, "nNPnn", {S(3, 3, 5, 4), S(3), S(3), S(3), S(3)}, {1, 1}, {0.7}},
    {"batch_norm", "24", run_batch_norm, "nNPnn", {S(2, 24, 3, 2), S(24), S(24), S(24), S(24)}, {1, 0}, {0}},
    {"batch_norm", "36, relu", run_batch_norm, "nNPnn", {S(2, 36, 3, 3), S(36), S(36), S(36), S(36)}, {1, 1}, {0}},
    {"batch_norm", "bare", run_batch_norm, "n", {S(2, 5, 3, 2)}, {1, 0}, {0}},
    {"batch_norm", "bare, relu", run_batch_norm, "n", {S(2, 16, 3, 2)}, {1, 1}, {0}},
    {"batch_norm", "weight only", run_batch_norm, "n--n", {S(2, 5, 3, 2), NONE, NONE, S(5)}, {1, 0}, {0}},
    {"batch_norm", "bias only", run_batch_norm, "n---n", {S(2, 5, 3, 2), NONE, NONE, NONE, S(5)}, {1, 1}, {0}},
    {"batch_norm", "(N, C)", run_batch_norm, "nNPnn", {S(7, 3), S(3), S(3), S(3), S(3)}, {1, 0}, {0}},
    {"batch_norm", "(N, C), relu", run_batch_norm, "nNPnn", {S(6, 24), S(24), S(24), S(24), S(24)}, {1, 1}, {0}},
    {"batch_norm", "eval", run_batch_norm, "nNPnn", {S(2, 3, 2, 3), S(3), S(3), S(3), S(3)}, {0, 0}, {0}},
    {"batch_norm", "eval, relu", run_batch_norm, "nNPnn", {S(2, 24, 2, 3), S(24), S(24), S(24), S(24)}, {0, 1}, {0}},
    {"batch_norm", "eval, relu6", run_batch_norm, "nNPnn", {S(2, 5, 2, 3), S(5), S(5), S(5), S(5)}, {0, 1}, {0.4}},
    {"batch_norm", "eval, bare", run_batch_norm, "nNP", {S(2, 36, 2, 1), S(36), S(36)}, {0, 0}, {0}},
    {"batch_norm", "eval, (N, C)", run_batch_norm, "nNPnn", {S(1, 5), S(5), S(5), S(5), S(5)}, {0, 0}, {0}},

    /* p: groups */
    {"group_norm", "1 of 1", run_group_norm, "nnn", {S(2, 1, 3, 3), S(1), S(1)}, {1}, {0}},
    {"group_norm", "3 of 24", run_group_norm, "nnn", {S(2, 24, 3, 5), S(24), S(24)}, {3}, {0}},
    {"group_norm", "1 of 36", run_group_norm, "nnn", {S(3, 36, 2, 3), S(36), S(36)}, {1}, {0}},
    {"group_norm", "all of 70", run_group_norm, "nnn", {S(2, 70, 3, 2), S(70), S(70)}, {70}, {0}},
    {"group_norm", "bare", run_group_norm, "n--", {S(2, 6, 3, 2), NONE, NONE}, {2}, {0}},
    {"group_norm", "weight only", run_group_norm, "nn-", {S(2, 6, 3, 2), S(6), NONE}, {3}, {0}},
    {"group_norm", "bias only", run_group_norm, "n-n", {S(2, 6, 3, 2), NONE, S(6)}, {3}, {0}},
    {"group_norm", "(N, C)", run_group_norm, "nnn", {S(5, 24), S(24), S(24)}, {4}, {0}},
    {"group_norm", "(N, C, L)", run_group_norm, "nnn", {S(2, 6, 7), S(6), S(6)}, {2}, {0}},
    {"group_norm", "5-d", run_group_norm, "nnn", {S(2, 4, 2, 3, 2), S(4), S(4)}, {2}, {0}},
    {"group_norm", "row-major", run_group_norm, "wnn", {S(2, 6, 3, 4), S(6), S(6)}, {3}, {0}},
    {"group_norm", "views", run_group_norm_views, "nnn", {S(2, 8, 3, 5), S(11), S(6)}, {3}, {0}},
    {"instance_norm", "24", run_instance_norm, "nnn", {S(2, 24, 3, 3), S(24), S(24)}, {0}, {0}},
    {"instance_norm", "bare, (N, C, L)", run_instance_norm, "n", {S(3, 5, 7)}, {0}, {0}},
    /* p: number of dimensions */
    {"layer_norm", "rows", run_layer_norm, "nnn", {S(5, 24), S(24), S(24)}, {1}, {0}},
    {"layer_norm", "3-d, bare", run_layer_norm, "n", {S(2, 3, 37)}, {1}, {0}},
    {"layer_norm", "two dimensions", run_layer_norm, "nnn", {S(2, 4, 3, 5), S(3, 5), S(3, 5)}, {2}, {0}},
    {"layer_norm", "all but the samples", run_layer_norm, "nnn", {S(3, 4, 2, 5), S(4, 2, 5), S(4, 2, 5)}, {3}, {0}},
    {"layer_norm", "everything", run_layer_norm, "nnn", {S(2, 3, 4, 2), S(2, 3, 4, 2), S(2, 3, 4, 2)}, {4}, {0}},
    {"layer_norm", "wide rows", run_layer_norm, "nnn", {S(9, 5003), S(5003), S(5003)}, {1}, {0}},
    {"layer_norm", "weight only", run_layer_norm, "nn", {S(130, 260), S(260)}, {1}, {0}},
    {"layer_norm", "channels of images", run_layer_norm_of_channels, "nnn", {S(2, 24, 3, 4), S(24), S(24)}, {0}, {0}},

    /* p: dim */
    {"weight_norm", "rows", run_weight_norm, "wn", {S(5, 3, 3, 2), S(5, 1, 1, 1)}, {0}, {0}},
    {"weight_norm", "columns", run_weight_norm, "nn", {S(4, 7), S(1, 7)}, {1}, {0}},
    {"weight_norm", "all", run_weight_norm, "nn", {S(3, 4, 2), NONE}, {-1}, {0}},
    {"weight_norm", "1-d", run_weight_norm, "nn", {S(6), S(6)}, {0}, {0}},

    /* p: kernel, stride, padding, dilation, ceil mode, exclude pad */
    {"max_pool2d", "1", run_max_pool2d, "n", {S(2, 1, 6, 6)}, {2}, {0}},
    {"max_pool2d", "3, 3x3 in place", run_max_pool2d, "n", {S(2, 3, 5, 7)}, {3, 1, 1}, {0}},
    {"max_pool2d", "7, long rows", run_max_pool2d, "n", {S(1, 7, 3, 17)}, {3, 1, 1}, {0}},
    {"max_pool2d", "24, stride 2", run_max_pool2d, "n", {S(2, 24, 7, 5)}, {3, 2, 1}, {0}},
    {"max_pool2d", "36, ceil", run_max_pool2d, "n", {S(1, 36, 6, 5)}, {3, 2, 0, 1, 1}, {0}},
    {"max_pool2d",
     "dilated",
     run_max_pool2d,
     "n",
     {S(2, 3, 8, 9)},
     {EG_HW(3, 2), EG_HW(1, 2), EG_HW(1, 0), EG_HW(2, 3)},
     {0}},
    {"avg_pool2d", "1", run_avg_pool2d, "n", {S(2, 1, 6, 6)}, {2}, {0}},
    {"avg_pool2d", "3, without padding", run_avg_pool2d, "n", {S(2, 3, 5, 7)}, {3, 1, 1, 0, 0, 1}, {0}},
    {"avg_pool2d", "7, long rows", run_avg_pool2d, "n", {S(1, 7, 3, 17)}, {3, 1, 1, 0, 0, 1}, {0}},
    {"avg_pool2d", "5, stride 2 without padding", run_avg_pool2d, "n", {S(1, 5, 7, 9)}, {3, 2, 1, 0, 0, 1}, {0}},
    {"avg_pool2d", "24, with padding", run_avg_pool2d, "n", {S(2, 24, 7, 5)}, {3, 2, 1, 0, 0, 0}, {0}},
    {"avg_pool2d", "36, ceil", run_avg_pool2d, "n", {S(1, 36, 6, 5)}, {3, 2, 1, 0, 1, 0}, {0}},
    {"avg_pool2d", "ceil without padding", run_avg_pool2d, "n", {S(1, 3, 6, 5)}, {3, 2, 1, 0, 1, 1}, {0}},
    {"avg_pool2d", "two sizes", run_avg_pool2d, "n", {S(1, 3, 6, 9)}, {EG_HW(2, 4), EG_HW(3, 1), EG_HW(1, 2)}, {0}},
    {"adaptive_avg_pool2d", "global, 1", run_adaptive_avg_pool2d, "n", {S(2, 1, 5, 3)}, {1}, {0}},
    {"adaptive_avg_pool2d", "global, 24", run_adaptive_avg_pool2d, "n", {S(2, 24, 3, 3)}, {1}, {0}},
    {"adaptive_avg_pool2d", "overlapping windows", run_adaptive_avg_pool2d, "n", {S(2, 3, 7, 5)}, {EG_HW(3, 2)}, {0}},
    {"adaptive_avg_pool2d", "larger output", run_adaptive_avg_pool2d, "n", {S(1, 36, 2, 3)}, {EG_HW(3, 4)}, {0}},

    /* p: size, bilinear, align corners; d: scale factor */
    {"interpolate", "nearest, twice", run_interpolate, "n", {S(2, 3, 3, 4)}, {0}, {2}},
    {"interpolate", "nearest, smaller", run_interpolate, "n", {S(1, 24, 7, 5)}, {EG_HW(3, 4)}, {0}},
    {"interpolate", "nearest, by 1.3", run_interpolate, "n", {S(2, 1, 5, 7)}, {0}, {1.3}},
    {"interpolate", "bilinear, twice", run_interpolate, "n", {S(2, 24, 3, 4)}, {0, 1}, {2}},
    {"interpolate", "bilinear, smaller", run_interpolate, "n", {S(2, 3, 9, 8)}, {EG_HW(4, 3), 1}, {0}},
    {"interpolate", "bilinear, corners", run_interpolate, "n", {S(2, 3, 4, 5)}, {EG_HW(7, 9), 1, 1}, {0}},
    {"interpolate", "bilinear, from one pixel", run_interpolate, "n", {S(2, 5, 1, 1)}, {EG_HW(3, 1), 1, 1}, {0}},
    {"interpolate", "bilinear, by 0.6", run_interpolate, "n", {S(1, 36, 6, 7)}, {0, 1}, {0.6}},
    {"interpolate", "row-major", run_interpolate, "w", {S(2, 3, 4, 5)}, {EG_HW(5, 7), 1}, {0}},
    {"pixel_shuffle", "", run_pixel_shuffle, "n", {S(2, 12, 3, 2)}, {2}, {0}},
    {"pixel_shuffle", "row-major", run_pixel_shuffle, "w", {S(1, 9, 2, 3)}, {3}, {0}},
    {"pixel_unshuffle", "", run_pixel_unshuffle, "n", {S(2, 3, 6, 3)}, {3}, {0}},

    {"relu", "", run_relu, "n", {S(2, 3, 5, 4)}, {0}, {0}},
    {"relu", "row-major", run_relu, "w", {S(2, 3, 5, 4)}, {0}, {0}},
    {"relu6", "", run_relu6, "n", {S(3, 24)}, {0}, {0}},
    {"leaky_relu", "", run_leaky_relu, "n", {S(2, 1, 3, 7)}, {0}, {0.2}},
    {"sigmoid", "", run_sigmoid, "n", {S(5)}, {0}, {0}},
    {"tanh", "", run_tanh, "n", {S(2, 3, 5)}, {0}, {0}},
    {"gelu", "", run_gelu, "n", {S(2, 36, 1, 1)}, {0}, {0}},
    {"silu", "", run_silu, "n", {S(7, 3)}, {0}, {0}},
    {"hardswish", "", run_hardswish, "n", {S(2, 24, 3, 1)}, {0}, {0}},
    {"hardsigmoid", "", run_hardsigmoid, "n", {S(2, 3, 3, 3)}, {0}, {0}},

    CASES_OF_FUNCTIONS

    {"softmax", "rows", run_softmax, "n", {S(5, 24)}, {-1}, {0}},
    {"softmax", "channels", run_softmax, "n", {S(2, 3, 4, 5)}, {1}, {0}},
    {"softmax", "width", run_softmax, "n", {S(2, 3, 4, 5)}, {-1}, {0}},
    {"softmax", "1-d", run_softmax, "n", {S(8)}, {0}, {0}},
    {"log_softmax", "rows", run_log_softmax, "n", {S(3, 36)}, {1}, {0}},
    {"log_softmax", "samples", run_log_softmax, "n", {S(5, 1, 3)}, {0}, {0}},

    {"dropout", "", run_dropout, "n", {S(2, 3, 5, 4)}, {0}, {0.4}},
    {"dropout", "row-major", run_dropout, "w", {S(2, 3, 5, 4)}, {0}, {0.4}},
    {"dropout", "everything", run_dropout, "n", {S(3, 4)}, {0}, {1.0}},
    {"drop_path", "4-d", run_drop_path, "n", {S(8, 3, 2, 3)}, {0}, {0.5}},
    {"drop_path", "1-d", run_drop_path, "n", {S(9)}, {0}, {0.3}},

    {"add", "equal", run_add, "nn", {S(2, 3, 4, 5), S(2, 3, 4, 5)}, {0}, {0}},
    {"add", "two layouts", run_add, "nw", {S(2, 3, 4, 5), S(2, 3, 4, 5)}, {0}, {0}},
    {"add", "bias", run_add, "nn", {S(2, 24, 3, 2), S(24, 1, 1)}, {0}, {0}},
    {"sub", "both broadcast", run_sub, "nn", {S(3, 1, 5), S(4, 1)}, {0}, {0}},
    {"sub", "scalar", run_sub, "nn", {NONE, S(2, 3)}, {0}, {0}},
    {"mul", "equal", run_mul, "nn", {S(3, 36), S(3, 36)}, {0}, {0}},
    {"mul", "gate of channels", run_mul, "nn", {S(2, 3, 4, 5), S(2, 3, 1, 1)}, {0}, {0}},
    {"mul", "first broadcast", run_mul, "nn", {S(5), S(2, 3, 4, 5)}, {0}, {0}},
    {"mul", "square", run_square, "n", {S(2, 3)}, {0}, {0}},
    {"div", "equal", run_div, "np", {S(2, 1, 3, 3), S(2, 1, 3, 3)}, {0}, {0}},
    {"div", "broadcast", run_div, "np", {S(2, 3, 4), S(3, 1)}, {0}, {0}},
    {"div", "first broadcast", run_div, "np", {S(1, 4), S(3, 4)}, {0}, {0}},
    {"cast", "", run_cast, "n", {S(2, 3, 4, 5)}, {0}, {0}},
    {"affine", "", run_affine, "n", {S(2, 3, 4, 5)}, {0}, {-1.5, 0.25}},
    {"affine", "identity", run_affine, "n", {S(7)}, {0}, {1.0, 0.0}},

    /* p: number of terms */
    {"add_n", "three", run_add_n, "nnn", {S(2, 3, 4, 5), S(2, 3, 4, 5), S(2, 3, 4, 5)}, {3}, {0}},
    {"add_n", "none among them", run_add_n, "n-nn", {S(3, 24), NONE, S(3, 24), S(3, 24)}, {4}, {0}},
    {"add_n", "one twice", run_add_n_twice, "nn", {S(5), S(5)}, {0}, {0}},
    {"weighted_sum",
     "three",
     run_weighted_sum,
     "nnnn",
     {S(2, 24, 3, 2), S(2, 24, 3, 2), S(2, 24, 3, 2), S(3)},
     {3},
     {0}},
    {"weighted_sum", "two layouts", run_weighted_sum, "nwn", {S(2, 3, 4, 5), S(2, 3, 4, 5), S(2)}, {2}, {0}},
    {"norm_add", "3", run_norm_add, "nnnnn", {S(2, 3, 4, 5), S(2, 3, 4, 5), S(3), S(3), S(3)}, {1}, {0}},
    {"norm_add", "first, 24", run_norm_add, "n-N", {S(2, 24, 3, 2), NONE, S(2)}, {0}, {0}},
    {"norm_add", "36, bias only", run_norm_add, "nnN-n", {S(2, 36, 3, 2), S(2, 36, 3, 2), S(2), NONE, S(36)}, {1}, {0}},
    {"norm_add", "(N, C)", run_norm_add, "nnnn", {S(7, 5), S(7, 5), S(4), S(5)}, {3}, {0}},
    {"norm_add", "row-major", run_norm_add, "wnn", {S(2, 3, 4, 5), S(2, 3, 4, 5), S(1)}, {0}, {0}},
    {"norm_add",
     "three terms",
     run_norm_add_twice,
     "nnnnn",
     {S(2, 3, 4, 5), S(2, 3, 4, 5), S(3), S(3), S(3)},
     {2},
     {0}},
    {"weighted_add", "two", run_weighted_add, "nnn", {S(2, 3, 4, 5), S(2, 3, 4, 5), S(3)}, {2}, {0}},
    {"weighted_add", "first", run_weighted_add, "n-n", {S(3, 5), NONE, S(1)}, {0}, {0}},
    {"weighted_add", "two layouts", run_weighted_add, "wnn", {S(2, 3, 4, 5), S(2, 3, 4, 5), S(2)}, {0}, {0}},
    {"weighted_sum", "one", run_weighted_sum, "nn", {S(7), S(1)}, {1}, {0}},
    {"weighted_sum", "none among them", run_weighted_sum, "-n-nn", {NONE, S(3, 5), NONE, S(3, 5), S(4)}, {4}, {0}},

    /* p: number of dimensions, those, keepdim */
    {"sum", "all", run_sum, "n", {S(2, 3, 4, 5)}, {0}, {0}},
    {"sum", "height and width", run_sum, "n", {S(2, 24, 3, 5)}, {2, 2, -1, 0}, {0}},
    {"sum", "channels, kept", run_sum, "n", {S(2, 3, 4, 5)}, {1, 1, 0, 1}, {0}},
    {"mean", "all", run_mean, "n", {S(7, 5)}, {0}, {0}},
    {"mean", "all, kept", run_mean, "n", {S(3, 1, 5)}, {0, 0, 0, 1}, {0}},
    {"mean", "height and width", run_mean, "n", {S(2, 36, 3, 2)}, {2, 2, 3, 0}, {0}},
    {"mean", "samples", run_mean, "n", {S(5, 3)}, {1, 0, 0, 0}, {0}},
    {"max", "all", run_max, "n", {S(2, 3, 4, 5)}, {0}, {0}},
    {"max", "rows", run_max, "n", {S(6, 24)}, {1, -1, 0, 1}, {0}},
    {"max", "samples and height", run_max, "n", {S(3, 3, 4, 5)}, {2, 2, 0, 0}, {0}},

    {"reshape", "view", run_reshape, "n", {S(4, 6)}, {3, 2, -1, 3}, {0}},
    {"reshape", "channels-last to rows", run_reshape, "n", {S(2, 3, 4, 5)}, {2, 2, -1}, {0}},
    {"reshape", "rows to channels-last", run_reshape, "n", {S(2, 60)}, {4, -1, 3, 4, 5}, {0}},
    {"reshape", "one pixel", run_reshape, "n", {S(3, 24, 1, 1)}, {2, 3, 24}, {0}},
    {"reshape", "to a scalar", run_reshape, "n", {S(1, 1)}, {0}, {0}},
    {"reshape", "4-d to 4-d", run_reshape, "n", {S(2, 3, 4, 6)}, {4, 3, 4, 2, 6}, {0}},
    {"reshape", "channel shuffle", run_channel_shuffle, "n", {S(2, 6, 3, 2)}, {3}, {0}},
    {"flatten", "4-d", run_flatten, "n", {S(2, 3, 4, 5)}, {1, -1}, {0}},
    {"flatten", "middle", run_flatten, "n", {S(2, 3, 4, 5)}, {1, 2}, {0}},
    {"flatten", "scalar", run_flatten, "n", {NONE}, {0, -1}, {0}},
    {"permute", "4-d", run_permute, "n", {S(2, 3, 4, 5)}, {4, 0, 2, 3, 1}, {0}},
    {"permute", "transpose", run_permute, "n", {S(3, 5)}, {2, -1, 0}, {0}},
    {"slice", "channels", run_slice, "n", {S(2, 24, 3, 2)}, {1, 3, -2, 1}, {0}},
    {"slice", "far step", run_slice, "n", {S(2, 6)}, {0, 1, INT64_MAX, INT64_MAX}, {0}},
    {"slice", "every third", run_slice, "n", {S(3, 7)}, {-1, 0, INT64_MAX, 3}, {0}},
    {"narrow", "window", run_narrow, "n", {S(5, 4, 5, 4)}, {3, 2, 3, 1}, {0}},
    {"narrow", "rows", run_narrow, "n", {S(5, 3)}, {2, 3}, {0}},
    {"slice", "split", run_split, "n", {S(2, 7, 3, 2)}, {3, 1}, {0}},
    {"concat", "channels", run_concat, "nnn", {S(2, 1, 4, 3), S(2, 3, 4, 3), S(2, 24, 4, 3)}, {3, 1}, {0}},
    {"concat", "samples", run_concat, "nn", {S(2, 3, 4, 3), S(1, 3, 4, 3)}, {2, 0}, {0}},
    {"concat", "width, two layouts", run_concat, "nw", {S(2, 3, 4, 3), S(2, 3, 4, 2)}, {2, -1}, {0}},
    {"concat", "none among them", run_concat, "-nn-", {NONE, S(5), S(2)}, {4, 0}, {0}},
    {"pad", "height and width", run_pad, "n", {S(2, 3, 4, 3)}, {4, 1, 2, 0, 1}, {0.5}},
    {"pad", "crop", run_pad, "n", {S(2, 3, 4, 5)}, {4, -1, -2, 1, -1}, {0}},
    {"pad", "1-d", run_pad, "n", {S(5)}, {2, 0, 3}, {-1.0}},

    /* p: classes, reduction; d: smoothing */
    {"cross_entropy", "mean", run_cross_entropy, "nl", {S(5, 10), S(5)}, {10, EG_REDUCTION_MEAN}, {0}},
    {"cross_entropy", "sum, smoothed", run_cross_entropy, "nl", {S(4, 3), S(4)}, {3, EG_REDUCTION_SUM}, {0.1}},
    {"cross_entropy", "each", run_cross_entropy, "nl", {S(7, 24), S(7)}, {24, EG_REDUCTION_NONE}, {0}},
    {"cross_entropy", "probabilities", run_cross_entropy, "nP", {S(3, 5), S(3, 5)}, {5, EG_REDUCTION_MEAN}, {0.2}},
    {"mse_loss", "", run_mse_loss, "nn", {S(2, 3, 4, 5), S(2, 3, 4, 5)}, {0}, {0}},
    {"mse_loss", "two layouts", run_mse_loss, "wn", {S(2, 3, 4, 5), S(2, 3, 4, 5)}, {0}, {0}},
};
/* clang-format on */

#undef S
#undef NONE

/* ---- inputs ---- */

static inline char case_letter(const op_case *c, size_t i)
{
    return i < strlen(c->inputs) ? c->inputs[i] : '-';
}

static inline bool case_wants_grad(const op_case *c, size_t i)
{
    return strchr("npw", case_letter(c, i)) != NULL;
}

static inline eg_dtype case_dtype(const op_case *c, size_t i, eg_dtype dtype)
{
    return case_letter(c, i) == 'l' ? EG_I64 : dtype;
}

static inline eg_layout case_layout(const op_case *c, size_t i)
{
    return case_letter(c, i) == 'w' ? EG_LAYOUT_ROW_MAJOR : EG_LAYOUT_DEFAULT;
}

/** Input i of a case: numbers that depend on the case and i only (not on type and layout). Of the current scope. */
static inline eg_tensor *case_input(eg_context *ctx, const op_case *c, size_t i, eg_dtype dtype)
{
    char letter = case_letter(c, i);
    if (letter == '-')
        return eg_none;
    eg_tensor *t = eg_empty(ctx, case_dtype(c, i, dtype), c->shape[i], case_layout(c, i));
    assert_non_null(t);
    eg_rng rng = eg_rng_make(7, c->name, i);
    for (int64_t k = 0; k < eg_tensor_numel(t); k++) {
        int64_t rest = k, at = 0;
        for (int d = t->shape.ndim - 1; d >= 0; d--) {
            at += rest % t->shape.dims[d] * t->strides[d];
            rest /= t->shape.dims[d];
        }
        double value = letter == 'p' || letter == 'P' ? 0.5 + eg_rng_uniform(&rng) : eg_rng_normal(&rng);
        if (letter == 'l')
            eg__i64(t)[at] = (int64_t)eg_rng_below(&rng, (uint64_t)c->p[0]);
        else if (dtype == EG_F64)
            eg__f64(t)[at] = value;
        else
            eg__f32(t)[at] = (float)value;
    }
    if (case_wants_grad(c, i))
        assert_int_equal(eg_tensor_set_requires_grad(t, true), EG_OK);
    return t;
}

#endif
