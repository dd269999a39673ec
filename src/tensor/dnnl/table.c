/*
 * tensor/dnnl/table.c - the fast table: oneDNN for convolutions and products, our own loops for the rest.
 */
#include "tensor/dnnl/primitive.h"

const eg_kernels eg__dnnl_kernels = {
    .name = "dnnl",
    .conv2d = eg__dnnl_conv2d,
    .conv2d_backward_input = eg__dnnl_conv2d_backward_input,
    .conv2d_backward_weight = eg__dnnl_conv2d_backward_weight,
    .matmul = eg__dnnl_matmul,
    .batch_norm = eg__cpu_batch_norm,
    .batch_norm_eval = eg__cpu_batch_norm_eval,
    .batch_norm_backward = eg__cpu_batch_norm_backward,
    .batch_norm_eval_backward = eg__cpu_batch_norm_eval_backward,
    .max_pool2d = eg__cpu_max_pool2d,
    .max_pool2d_backward = eg__cpu_max_pool2d_backward,
    .avg_pool2d = eg__cpu_avg_pool2d,
    .avg_pool2d_backward = eg__cpu_avg_pool2d_backward,
    .adaptive_avg_pool2d = eg__cpu_adaptive_avg_pool2d,
    .adaptive_avg_pool2d_backward = eg__cpu_adaptive_avg_pool2d_backward,
    .unary = eg__cpu_unary,
    .unary_backward = eg__cpu_unary_backward,
    .binary = eg__cpu_binary,
    .reduce = eg__cpu_reduce,
    .softmax = eg__cpu_softmax,
    .softmax_backward = eg__cpu_softmax_backward,
    .weighted_sum = eg__cpu_weighted_sum,
    .weighted_sum_backward = eg__cpu_weighted_sum_backward,
    .copy = eg__cpu_copy,
    .accumulate = eg__cpu_accumulate,
    .fill = eg__cpu_fill,
    .cross_entropy = eg__cpu_cross_entropy,
    .cross_entropy_backward = eg__cpu_cross_entropy_backward,
    .sgd = eg__cpu_sgd,
    .adam = eg__cpu_adam,
    .norm2 = eg__cpu_norm2,
    .scale = eg__cpu_scale,
};
