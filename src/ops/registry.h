/*
 * ops/registry.h - the list of built-in operations, and their attributes: what a trace records, tests walk and
 * exporters read. Adding an operation is one line here, and a row in tests/ops/test_gradients.c (which fails without).
 */
#ifndef EG_OPS_REGISTRY_H
#define EG_OPS_REGISTRY_H

#include "engraft/sys/op.h"
#include "tensor/kernels.h"

/** X(record): the record is eg__op_<record>, its name (as in messages) "<record>". */
#define EG_OPS(X)                                                                                                      \
    X(conv2d)                                                                                                          \
    X(conv_transpose2d)                                                                                                \
    X(linear)                                                                                                          \
    X(matmul)                                                                                                          \
    X(embedding)                                                                                                       \
    X(scaled_dot_product_attention)                                                                                    \
    X(lstm)                                                                                                            \
    X(gru)                                                                                                             \
    X(batch_norm)                                                                                                      \
    X(group_norm)                                                                                                      \
    X(instance_norm)                                                                                                   \
    X(layer_norm)                                                                                                      \
    X(weight_norm)                                                                                                     \
    X(max_pool2d)                                                                                                      \
    X(avg_pool2d)                                                                                                      \
    X(adaptive_avg_pool2d)                                                                                             \
    X(interpolate)                                                                                                     \
    X(pixel_shuffle)                                                                                                   \
    X(pixel_unshuffle)                                                                                                 \
    X(relu)                                                                                                            \
    X(relu6)                                                                                                           \
    X(leaky_relu)                                                                                                      \
    X(sigmoid)                                                                                                         \
    X(tanh)                                                                                                            \
    X(gelu)                                                                                                            \
    X(silu)                                                                                                            \
    X(hardswish)                                                                                                       \
    X(hardsigmoid)                                                                                                     \
    X(elu)                                                                                                             \
    X(softplus)                                                                                                        \
    X(mish)                                                                                                            \
    X(prelu)                                                                                                           \
    X(exp)                                                                                                             \
    X(log)                                                                                                             \
    X(sqrt)                                                                                                            \
    X(abs)                                                                                                             \
    X(pow)                                                                                                             \
    X(clamp)                                                                                                           \
    X(smooth_l1)                                                                                                       \
    X(softmax)                                                                                                         \
    X(log_softmax)                                                                                                     \
    X(dropout)                                                                                                         \
    X(drop_path)                                                                                                       \
    X(add)                                                                                                             \
    X(sub)                                                                                                             \
    X(mul)                                                                                                             \
    X(div)                                                                                                             \
    X(maximum)                                                                                                         \
    X(minimum)                                                                                                         \
    X(gt)                                                                                                              \
    X(eq)                                                                                                              \
    X(where)                                                                                                           \
    X(cast)                                                                                                            \
    X(affine)                                                                                                          \
    X(add_n)                                                                                                           \
    X(weighted_sum)                                                                                                    \
    X(norm_add)                                                                                                        \
    X(weighted_add)                                                                                                    \
    X(sum)                                                                                                             \
    X(mean)                                                                                                            \
    X(max)                                                                                                             \
    X(argmax)                                                                                                          \
    X(cumsum)                                                                                                          \
    X(gather)                                                                                                          \
    X(index_select)                                                                                                    \
    X(one_hot)                                                                                                         \
    X(topk)                                                                                                            \
    X(reshape)                                                                                                         \
    X(flatten)                                                                                                         \
    X(permute)                                                                                                         \
    X(slice)                                                                                                           \
    X(narrow)                                                                                                          \
    X(concat)                                                                                                          \
    X(pad)                                                                                                             \
    X(cross_entropy)                                                                                                   \
    X(mse_loss)

#define EG__OP_DECLARE(record) extern const eg_op eg__op_##record;
EG_OPS(EG__OP_DECLARE)
#undef EG__OP_DECLARE

extern const eg_op *const eg__op_list[];
extern const size_t eg__op_count;

/* Attributes hold what the caller asked for (dimensions may be negative), with defaults filled in. Operations that are
 * not named here have none. */

typedef struct eg__conv2d_attrs {
    eg__window window; /* the kernel is the weight's, whatever this says */
} eg__conv2d_attrs;

typedef struct eg__conv_transpose2d_attrs {
    eg__window window; /* as in eg__conv2d_attrs */
    int64_t output_padding[2];
} eg__conv_transpose2d_attrs;

typedef struct eg__embedding_attrs {
    int64_t padding; /* the row without a gradient, -1: none */
} eg__embedding_attrs;

typedef struct eg__attention_attrs {
    bool causal;
    double dropout, scale; /* scale: resolved */
} eg__attention_attrs;

typedef struct eg__rnn_attrs { /* lstm, gru */
    bool reverse;
} eg__rnn_attrs;

typedef struct eg__pool2d_attrs { /* max_pool2d, avg_pool2d */
    eg__window window;
    bool ceil_mode;
} eg__pool2d_attrs;

typedef struct eg__adaptive_pool_attrs {
    int64_t output[2];
} eg__adaptive_pool_attrs;

typedef struct eg__batch_norm_attrs {
    eg__batch_norm norm;
    double momentum;
    bool training;
} eg__batch_norm_attrs;

typedef struct eg__mixed_edge_attrs { /* norm_add, weighted_add */
    double eps, momentum;
    int64_t index; /* of the weight */
    bool consume;  /* the sum may be overwritten */
} eg__mixed_edge_attrs;

typedef struct eg__group_norm_attrs { /* group_norm, instance_norm, layer_norm */
    double eps;
    int64_t groups;      /* of group_norm */
    eg_shape normalized; /* of layer_norm; else of no dimensions */
} eg__group_norm_attrs;

typedef struct eg__interpolate_attrs { /* one of size and scale_factor is 0 */
    int64_t size[2];
    double scale_factor;
    eg_interpolation mode;
    bool align_corners;
} eg__interpolate_attrs;

typedef struct eg__shuffle_attrs { /* pixel_shuffle, pixel_unshuffle */
    int64_t factor;
} eg__shuffle_attrs;

typedef struct eg__unary_attrs { /* functions of one number: activations, exp, .., affine */
    eg__unary kind;
    double a, b;
} eg__unary_attrs;

typedef struct eg__cast_attrs {
    eg_dtype dtype;
} eg__cast_attrs;

typedef struct eg__dim_attrs { /* softmax, log_softmax, concat, cumsum, gather, index_select, weight_norm */
    int dim;
} eg__dim_attrs;

typedef struct eg__drop_attrs { /* dropout, drop_path */
    double p;
} eg__drop_attrs;

typedef struct eg__reduce_attrs { /* sum, mean, max, argmax */
    eg_shape dims;
    bool keepdim;
} eg__reduce_attrs;

typedef struct eg__one_hot_attrs {
    int64_t classes;
} eg__one_hot_attrs;

typedef struct eg__topk_attrs {
    int64_t k;
    int dim;
    bool largest;
} eg__topk_attrs;

typedef struct eg__shape_attrs { /* reshape: the sizes; permute: the order */
    eg_shape shape;
} eg__shape_attrs;

typedef struct eg__narrow_attrs {
    eg_shape shape; /* of the part */
} eg__narrow_attrs;

typedef struct eg__flatten_attrs {
    int start, end;
} eg__flatten_attrs;

typedef struct eg__slice_attrs {
    int dim;
    int64_t start, stop, step;
} eg__slice_attrs;

typedef struct eg__pad_attrs {
    eg_shape pads;
    double value;
} eg__pad_attrs;

typedef struct eg__cross_entropy_attrs {
    double smoothing;
    eg_reduction reduction;
} eg__cross_entropy_attrs;

/* ---- operations that have no public function ---- */

/** The part of a parameter that has this shape: first entries of dimensions 0 and 1, those in the middle of others. */
eg_tensor *eg__narrow(eg_tensor *x, eg_shape shape);

/** sum (eg_none: nothing) + weights[index] * x; sum where x is eg_none. `consume`: nobody reads `sum` any more, its
 *  memory may become the result's. */
eg_tensor *eg__weighted_add(eg_tensor *sum, bool consume, eg_tensor *x, eg_tensor *weights, int64_t index);
/** The same for the batch norm in training of norm->x, without ReLU. */
eg_tensor *eg__norm_add(eg_tensor *sum, bool consume, const eg_batch_norm_args *norm, eg_tensor *weights,
                        int64_t index);

#endif
