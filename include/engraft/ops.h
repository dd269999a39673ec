/** @file
 * engraft/ops.h - operations on tensors.
 *
 * Names follow PyTorch: torch.add is eg_add, torch.nn.functional.conv2d is eg_f_conv2d. Each returns a tensor of the
 * current tape or scope, or NULL with the failure recorded; NULL in gives NULL out and keeps the first message, so
 * that a forward pass is straight-line C with one check at its end. Optional arguments are named and come last:
 * eg_f_conv2d(x, weight, eg_none, .stride = 2). Shapes that do not fit are ESHAPE (sizes of 0 never fit), types
 * EDTYPE, ranges EINVAL; a message begins with the operation and the path of the module that ran it. Operations
 * compute in float32, or in float64 when all inputs are; views and eg_concat take any type.
 */
#ifndef ENGRAFT_OPS_H
#define ENGRAFT_OPS_H

#include "autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- arithmetic; shapes broadcast as in PyTorch ---- */

/** a + b; where one is eg_none the other (both: eg_none). */
EG_API eg_tensor *eg_add(eg_tensor *a, eg_tensor *b);
/** a - b. */
EG_API eg_tensor *eg_sub(eg_tensor *a, eg_tensor *b);
/** a * b, element by element. */
EG_API eg_tensor *eg_mul(eg_tensor *a, eg_tensor *b);
/** a / b. */
EG_API eg_tensor *eg_div(eg_tensor *a, eg_tensor *b);
/** The larger of a and b; where they are equal each has half of the gradient. A NaN wins. */
EG_API eg_tensor *eg_maximum(eg_tensor *a, eg_tensor *b);
/** The smaller of a and b, likewise. */
EG_API eg_tensor *eg_minimum(eg_tensor *a, eg_tensor *b);
/** A mask: 1 where a > b, else 0, in the numbers' own type. Comparisons have no gradient. */
EG_API eg_tensor *eg_gt(eg_tensor *a, eg_tensor *b);
/** 1 where a < b, else 0. */
EG_API eg_tensor *eg_lt(eg_tensor *a, eg_tensor *b);
/** 1 where a equals b, else 0. */
EG_API eg_tensor *eg_eq(eg_tensor *a, eg_tensor *b);
/** a where the condition is not 0, else b; all three broadcast and have one type. The condition has no gradient. What
 *  is not chosen may be infinite or NaN. */
EG_API eg_tensor *eg_where(eg_tensor *condition, eg_tensor *a, eg_tensor *b);
/** a * factor + offset, for plain numbers. */
EG_API eg_tensor *eg_affine(eg_tensor *a, double factor, double offset);
/** The sum of n tensors of one shape; eg_none among them is left out (all: eg_none). */
EG_API eg_tensor *eg_add_n(eg_tensor *const *x, size_t n);
/** weights[0] * x[0] + .. for n tensors of one shape and weights (n); gradients for both. The mixed edge of DARTS.
 *  eg_none among x is left out with its weight (all: eg_none). */
EG_API eg_tensor *eg_weighted_sum(eg_tensor *const *x, size_t n, eg_tensor *weights);
/** (.., m, k) x (.., k, n) -> (.., m, n), a matrix product for each of a batch; batch sizes broadcast. A first operand
 *  (k) counts as one row, a second one as one column, and the result lacks that dimension. As torch.matmul. Row-major,
 *  also where 4-d; views such as a transposed operand are taken as they lie. */
EG_API eg_tensor *eg_matmul(eg_tensor *a, eg_tensor *b);

/* ---- functions of one number ---- */

/** -a. */
EG_API eg_tensor *eg_neg(eg_tensor *a);
/** e to the power of x. */
EG_API eg_tensor *eg_exp(eg_tensor *x);
/** The natural logarithm, torch.log (eg_log() writes messages); NaN below 0. */
EG_API eg_tensor *eg_ln(eg_tensor *x);
/** The square root; NaN below 0. */
EG_API eg_tensor *eg_sqrt(eg_tensor *x);
/** The magnitude; its slope at 0 is 0. */
EG_API eg_tensor *eg_abs(eg_tensor *x);
/** x to the power of a plain number; NaN for a negative x and an exponent that is not whole. */
EG_API eg_tensor *eg_pow(eg_tensor *x, double exponent);
/** x, but at least min and at most max (-INFINITY, INFINITY: no limit). EINVAL unless min <= max. The gradient passes
 *  where min <= x <= max. */
EG_API eg_tensor *eg_clamp(eg_tensor *x, double min, double max);

/** The same numbers as float32, float64 or bfloat16 (else EDTYPE); x itself where they are that already. What meets
 *  float32 may be bfloat16 in all operations. A result has the first input's type; where two (or the
 *  choices of eg_where) broadcast it is bfloat16 if one of them is. */
EG_API eg_tensor *eg_cast(eg_tensor *x, eg_dtype dtype);

/* ---- shapes ---- */

/** Joins n tensors along `dim` (negative counts from the end); eg_none among them is left out (all: eg_none). */
EG_API eg_tensor *eg_concat(eg_tensor *const *x, size_t n, int dim);
/** Pieces of `size` (1 or more) along `dim` (the last may be smaller), as a tuple of views. EINVAL for more than 1024
 *  pieces. */
EG_API eg_tensor *eg_split(eg_tensor *x, int64_t size, int dim);
/** x[start:stop:step] along `dim`, a view. Negative start and stop count from the end; stop INT64_MAX = to the end;
 *  step at least 1. EINVAL for a start or stop outside the dimension and for an empty range. */
EG_API eg_tensor *eg_slice(eg_tensor *x, int dim, int64_t start, int64_t stop, int64_t step);
/** One size may be -1. A view where the memory order allows, else a copy. Elements are in logical order. */
EG_API eg_tensor *eg_reshape(eg_tensor *x, eg_shape shape);
/** Dimension i of the result is dimension order.dims[i] of x. A view. */
EG_API eg_tensor *eg_permute(eg_tensor *x, eg_shape order);
/** Joins dimensions start .. end (negative counts from the end; 1, -1 as in nn.Flatten). */
EG_API eg_tensor *eg_f_flatten(eg_tensor *x, int start, int end);
/** Constant padding: pads.dims = {before, after} pairs from the last dimension backwards, as in F.pad. Negative
 *  crops. */
EG_API eg_tensor *eg_f_pad(eg_tensor *x, eg_shape pads, double value);

/* ---- reductions ---- */

/** Arguments of eg_sum(), eg_mean() and eg_max(). */
typedef struct eg_reduce_args {
    eg_tensor *x;
    eg_shape dims; /**< which dimensions, negative from the end; none given = all */
    bool keepdim;
} eg_reduce_args;
/** eg_sum(x, .dims = EG_SHAPE(2, 3), .keepdim = true). EINVAL for a dimension named twice or out of range. */
#define eg_sum(...) eg_sum_with(&(eg_reduce_args){.x = __VA_ARGS__})
/** The mean over dimensions. */
#define eg_mean(...) eg_mean_with(&(eg_reduce_args){.x = __VA_ARGS__})
/** The largest over dimensions. The gradient goes to the first of equal maxima. */
#define eg_max(...) eg_max_with(&(eg_reduce_args){.x = __VA_ARGS__})
/** What the macros above call, from a struct. */
EG_API eg_tensor *eg_sum_with(const eg_reduce_args *args);
/** See eg_sum_with(). */
EG_API eg_tensor *eg_mean_with(const eg_reduce_args *args);
/** See eg_sum_with(). */
EG_API eg_tensor *eg_max_with(const eg_reduce_args *args);

/** Where the largest along `dim` (negative counts from the end) is, the first of equal ones: int64. With keepdim the
 *  dimension stays, of size 1. No gradient. */
EG_API eg_tensor *eg_argmax(eg_tensor *x, int dim, bool keepdim);
/** The k largest (or smallest) along `dim` in descending (ascending) order as a tuple (values, int64 indices), of equal
 *  ones the first. EINVAL unless 1 <= k <= the size. The values have a gradient. */
EG_API eg_tensor *eg_topk(eg_tensor *x, int64_t k, int dim, bool largest);
/** Running sums along `dim`: the first element, the first two, .. */
EG_API eg_tensor *eg_cumsum(eg_tensor *x, int dim);

/* ---- picking elements; an index is int64, a number in it outside of the dimension EINVAL ---- */

/** y[i][j][k] = x[i][index[i][j][k]][k], for dim = 1: of index's shape, which has as many dimensions as x and is no
 *  larger than x in all but `dim`. */
EG_API eg_tensor *eg_gather(eg_tensor *x, int dim, eg_tensor *index);
/** The slices index[0], index[1], .. of x along `dim`; index (n). */
EG_API eg_tensor *eg_index_select(eg_tensor *x, int dim, eg_tensor *index);
/** index (..) -> float32 (.., num_classes): 1 at the place that the index names, else 0. No gradient. */
EG_API eg_tensor *eg_f_one_hot(eg_tensor *index, int64_t num_classes);

/* ---- layers' functions ---- */

/** Arguments of eg_f_conv2d(). */
typedef struct eg_conv2d_args {
    eg_tensor *x;      /**< (N, in_channels, H, W) */
    eg_tensor *weight; /**< (out_channels, in_channels / groups, kh, kw), row-major */
    eg_tensor *bias;   /**< (out_channels) or eg_none */
    eg_hw stride;      /**< 0 = 1 */
    eg_hw padding;     /**< zeros on both sides */
    eg_hw dilation;    /**< 0 = 1 */
    int64_t groups;    /**< 0 = 1; in_channels = depthwise */
} eg_conv2d_args;
/** Convolution (cross-correlation, as everywhere in this field): eg_f_conv2d(x, weight, bias, .stride = 2). */
#define eg_f_conv2d(...) eg_f_conv2d_with(&(eg_conv2d_args){.x = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_conv2d_with(const eg_conv2d_args *args);

/** Arguments of eg_f_conv1d(). */
typedef struct eg_conv1d_args {
    eg_tensor *x;      /**< (N, in_channels, L) */
    eg_tensor *weight; /**< (out_channels, in_channels / groups, length), row-major */
    eg_tensor *bias;   /**< (out_channels) or eg_none */
    int64_t stride;    /**< 0 = 1 */
    int64_t padding;   /**< zeros on both sides */
    int64_t dilation;  /**< 0 = 1 */
    int64_t groups;    /**< 0 = 1 */
} eg_conv1d_args;
/** The same in one dimension, as images of height 1 (and so it is recorded). The result is channels-last in memory
 *  (EG_LAYOUT_CHANNELS_LAST): a row-major x is copied into that order, a channels-last one is not. */
#define eg_f_conv1d(...) eg_f_conv1d_with(&(eg_conv1d_args){.x = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_conv1d_with(const eg_conv1d_args *args);

/** Arguments of eg_f_conv_transpose2d(). */
typedef struct eg_conv_transpose2d_args {
    eg_tensor *x;         /**< (N, in_channels, H, W) */
    eg_tensor *weight;    /**< (in_channels, out_channels / groups, kh, kw), row-major */
    eg_tensor *bias;      /**< (out_channels) or eg_none */
    eg_hw stride;         /**< 0 = 1 */
    eg_hw padding;        /**< dilation * (kernel - 1) - padding zeros are put around the input */
    eg_hw output_padding; /**< added to one side of the output's size; less than the stride or the dilation */
    eg_hw dilation;       /**< 0 = 1 */
    int64_t groups;       /**< 0 = 1 */
} eg_conv_transpose2d_args;
/** Transposed convolution, the gradient of a convolution to its input: eg_f_conv_transpose2d(x, weight, bias,
 *  .stride = 2). The output has the size (in - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding
 * + 1. An output padding of a stride or more runs on the slow reference kernels. */
#define eg_f_conv_transpose2d(...) eg_f_conv_transpose2d_with(&(eg_conv_transpose2d_args){.x = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_conv_transpose2d_with(const eg_conv_transpose2d_args *args);

/** x (.., in) with weight (out, in) and bias (out) or eg_none -> (.., out). */
EG_API eg_tensor *eg_f_linear(eg_tensor *x, eg_tensor *weight, eg_tensor *bias);

/** Arguments of eg_f_embedding(). */
typedef struct eg_embedding_args {
    eg_tensor *index;       /**< int64, any shape of up to five dimensions; 0 .. V - 1 */
    eg_tensor *weight;      /**< (V, D) */
    eg_opt_f64 padding_idx; /**< a row that gets no gradient, EG_F64(0); negative counts from the end. Default: none */
} eg_embedding_args;
/** Rows of a table: index (..) -> (.., D), row-major. EINVAL for an index out of range; on shape-only tensors `index`
 *  may be of any type. */
#define eg_f_embedding(...) eg_f_embedding_with(&(eg_embedding_args){.index = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_embedding_with(const eg_embedding_args *args);

/** Arguments of eg_f_scaled_dot_product_attention(). */
typedef struct eg_attention_args {
    eg_tensor *query; /**< (.., L, E), of (N, H, L, E) each head; two dimensions or more */
    eg_tensor *key;   /**< (.., S, E) */
    eg_tensor *value; /**< (.., S, V) */
    eg_tensor *mask;  /**< broadcast to (.., L, S), or eg_none: numbers to be added (gradients flow to them), or uint8,
                         where 0 leaves an entry out */
    bool is_causal;   /**< position i sees positions 0 .. i only (in addition to the mask) */
    double dropout_p; /**< of the weights, 0 .. 1; applied whenever it is not 0 */
    double scale;     /**< 0 = 1 / sqrt(E) */
} eg_attention_args;
/** softmax(scale query key^T + mask) value -> (.., L, V) (Vaswani et al., "Attention is all you need", NeurIPS 2017):
 *  eg_f_scaled_dot_product_attention(q, k, v, eg_none, .is_causal = true). A position for which everything is left out
 *  gets zeros. The result lies in memory as query does: with heads that are views of (N, L, H, E), permuted, no numbers
 *  are moved. Dropout as in eg_f_dropout(), by the weights' logical order. */
#define eg_f_scaled_dot_product_attention(...)                                                                         \
    eg_f_scaled_dot_product_attention_with(&(eg_attention_args){.query = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_scaled_dot_product_attention_with(const eg_attention_args *args);

/** Arguments of eg_f_lstm(): one layer in one direction. T steps, N samples, I features, H units. */
typedef struct eg_lstm_args {
    eg_tensor *x;         /**< (T, N, I) */
    eg_tensor *weight_ih; /**< (4 H, I): input, forget, cell and output gate, as in PyTorch */
    eg_tensor *weight_hh; /**< (4 H, H) */
    eg_tensor *bias_ih;   /**< (4 H) or eg_none */
    eg_tensor *bias_hh;   /**< (4 H) or eg_none */
    eg_tensor *h0;        /**< (N, H) or eg_none = zeros */
    eg_tensor *c0;        /**< (N, H) or eg_none = zeros */
    bool reverse;         /**< from the last step to the first */
} eg_lstm_args;
/** Long short-term memory (Hochreiter and Schmidhuber 1997; with forget gates, Gers et al. 2000) -> a tuple of y (T, N,
 *  H), h (N, H), c (N, H), the latter two after the last step that was computed. */
#define eg_f_lstm(...) eg_f_lstm_with(&(eg_lstm_args){.x = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_lstm_with(const eg_lstm_args *args);

/** Arguments of eg_f_gru(), as in eg_lstm_args. */
typedef struct eg_gru_args {
    eg_tensor *x;         /**< (T, N, I) */
    eg_tensor *weight_ih; /**< (3 H, I): reset, update and new gate, as in PyTorch */
    eg_tensor *weight_hh; /**< (3 H, H) */
    eg_tensor *bias_ih;   /**< (3 H) or eg_none */
    eg_tensor *bias_hh;   /**< (3 H) or eg_none */
    eg_tensor *h0;        /**< (N, H) or eg_none = zeros */
    bool reverse;         /**< from the last step to the first */
} eg_gru_args;
/** Gated recurrent units (Cho et al. 2014; the reset gate behind the product, as in cuDNN and PyTorch) -> a tuple of
 *  y (T, N, H) and h (N, H). */
#define eg_f_gru(...) eg_f_gru_with(&(eg_gru_args){.x = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_gru_with(const eg_gru_args *args);

/** Arguments of eg_f_batch_norm(). */
typedef struct eg_batch_norm_args {
    eg_tensor *x;            /**< (N, C, H, W) or (N, C) */
    eg_tensor *running_mean; /**< (C) or eg_none; updated in training */
    eg_tensor *running_var;  /**< (C), unbiased as in PyTorch */
    eg_tensor *weight;       /**< (C) or eg_none */
    eg_tensor *bias;         /**< (C) or eg_none */
    bool training;           /**< batch statistics; else the running ones */
    double momentum;         /**< weight of the new statistics */
    double eps;
    bool relu;       /**< fused max(0, .) */
    double relu_max; /**< where that stops: 6 for ReLU6; 0 = nowhere */
} eg_batch_norm_args;
/** Batch normalization (Ioffe and Szegedy 2015). EINVAL in training with one value per channel, and outside of it
 *  without running statistics. */
#define eg_f_batch_norm(...) eg_f_batch_norm_with(&(eg_batch_norm_args){.x = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_batch_norm_with(const eg_batch_norm_args *args);

/** Arguments of eg_f_group_norm(). */
typedef struct eg_group_norm_args {
    eg_tensor *x;       /**< (N, C, ..) */
    int64_t num_groups; /**< divides C */
    eg_tensor *weight;  /**< (C) or eg_none */
    eg_tensor *bias;    /**< (C) or eg_none */
    double eps;         /**< 0 = 1e-5 */
} eg_group_norm_args;
/** Group normalization (Wu and He 2018): each sample's groups of neighbouring channels are normalized by their own mean
 *  and variance, in training and evaluation alike: eg_f_group_norm(x, 8, weight, bias). */
#define eg_f_group_norm(...) eg_f_group_norm_with(&(eg_group_norm_args){.x = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_group_norm_with(const eg_group_norm_args *args);

/** Arguments of eg_f_instance_norm(). */
typedef struct eg_instance_norm_args {
    eg_tensor *x;      /**< (N, C, L), (N, C, H, W), .. */
    eg_tensor *weight; /**< (C) or eg_none */
    eg_tensor *bias;   /**< (C) or eg_none */
    double eps;        /**< 0 = 1e-5 */
} eg_instance_norm_args;
/** Instance normalization (Ulyanov et al. 2016): group normalization with a group for each channel, without running
 *  statistics. EINVAL with one value per channel. */
#define eg_f_instance_norm(...) eg_f_instance_norm_with(&(eg_instance_norm_args){.x = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_instance_norm_with(const eg_instance_norm_args *args);

/** Arguments of eg_f_layer_norm(). */
typedef struct eg_layer_norm_args {
    eg_tensor *x;              /**< (.., normalized_shape) */
    eg_shape normalized_shape; /**< the last dimensions, one or more */
    eg_tensor *weight;         /**< normalized_shape or eg_none */
    eg_tensor *bias;           /**< normalized_shape or eg_none */
    double eps;                /**< 0 = 1e-5 */
} eg_layer_norm_args;
/** Layer normalization (Ba et al. 2016): eg_f_layer_norm(x, EG_SHAPE(64), weight, bias). Over the channels of images
 *  permute them last: the view (N, H, W, C) of channels-last numbers is not copied. */
#define eg_f_layer_norm(...) eg_f_layer_norm_with(&(eg_layer_norm_args){.x = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_layer_norm_with(const eg_layer_norm_args *args);

/** g v / |v| (Salimans and Kingma 2016), the length |v| being taken for each index of `dim`, or of all for -1. g has
 * v's shape with all sizes but that of dim 1; for -1 it has no dimensions. See eg_weight_norm(). */
EG_API eg_tensor *eg_f_weight_norm(eg_tensor *v, eg_tensor *g, int dim);

/** Arguments of eg_f_max_pool2d() and eg_f_avg_pool2d(). */
typedef struct eg_pool2d_args {
    eg_tensor *x; /**< (N, C, H, W) */
    eg_hw kernel_size;
    eg_hw stride;   /**< 0 = kernel_size */
    eg_hw padding;  /**< at most half of the kernel */
    eg_hw dilation; /**< max pooling only; 0 = 1 */
    bool ceil_mode;
    bool exclude_pad; /**< average pooling: count_include_pad=False */
} eg_pool2d_args;
/** The largest of each window: eg_f_max_pool2d(x, .kernel_size = 3, .stride = 2, .padding = 1). */
#define eg_f_max_pool2d(...) eg_f_max_pool2d_with(&(eg_pool2d_args){.x = __VA_ARGS__})
/** The mean of each window. */
#define eg_f_avg_pool2d(...) eg_f_avg_pool2d_with(&(eg_pool2d_args){.x = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_max_pool2d_with(const eg_pool2d_args *args);
/** The same from a struct. */
EG_API eg_tensor *eg_f_avg_pool2d_with(const eg_pool2d_args *args);
/** Average pooling to an output of the given size, as in PyTorch; 1 = global. */
EG_API eg_tensor *eg_f_adaptive_avg_pool2d(eg_tensor *x, eg_hw output_size);

/** How eg_f_interpolate() makes pixels. */
typedef enum eg_interpolation { EG_NEAREST, EG_BILINEAR } eg_interpolation;
/** Arguments of eg_f_interpolate(). */
typedef struct eg_interpolate_args {
    eg_tensor *x;        /**< (N, C, H, W) */
    eg_hw size;          /**< of the output; or */
    double scale_factor; /**< of height and width, whose products are rounded down */
    eg_interpolation mode;
    bool align_corners; /**< bilinear: the centres of the corner pixels fall together, not the corners */
} eg_interpolate_args;
/** Images in another size: eg_f_interpolate(x, .scale_factor = 2, .mode = EG_BILINEAR). As in PyTorch with
 *  recompute_scale_factor=None: a given scale factor itself says where pixels come from. */
#define eg_f_interpolate(...) eg_f_interpolate_with(&(eg_interpolate_args){.x = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_interpolate_with(const eg_interpolate_args *args);
/** (N, C r^2, H, W) -> (N, C, H r, W r) (Shi et al. 2016). */
EG_API eg_tensor *eg_f_pixel_shuffle(eg_tensor *x, int64_t upscale_factor);
/** Its inverse: (N, C, H r, W r) -> (N, C r^2, H, W). */
EG_API eg_tensor *eg_f_pixel_unshuffle(eg_tensor *x, int64_t downscale_factor);

/** max(0, x). */
EG_API eg_tensor *eg_f_relu(eg_tensor *x);
/** min(max(0, x), 6). */
EG_API eg_tensor *eg_f_relu6(eg_tensor *x);
/** x, below 0 negative_slope * x. */
EG_API eg_tensor *eg_f_leaky_relu(eg_tensor *x, double negative_slope);
/** 1 / (1 + exp(-x)). */
EG_API eg_tensor *eg_f_sigmoid(eg_tensor *x);
/** The hyperbolic tangent. */
EG_API eg_tensor *eg_f_tanh(eg_tensor *x);
/** The exact form, x * Phi(x). */
EG_API eg_tensor *eg_f_gelu(eg_tensor *x);
/** x * sigmoid(x), also known as swish. */
EG_API eg_tensor *eg_f_silu(eg_tensor *x);
/** x * hardsigmoid(x). */
EG_API eg_tensor *eg_f_hardswish(eg_tensor *x);
/** relu6(x + 3) / 6. */
EG_API eg_tensor *eg_f_hardsigmoid(eg_tensor *x);
/** x, below 0 alpha * (exp(x) - 1) (Clevert, Unterthiner and Hochreiter 2016). */
EG_API eg_tensor *eg_f_elu(eg_tensor *x, double alpha);
/** log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold (PyTorch's defaults: 1 and 20). EINVAL unless
 *  beta > 0. */
EG_API eg_tensor *eg_f_softplus(eg_tensor *x, double beta, double threshold);
/** x * tanh(softplus(x)) (Misra 2019). */
EG_API eg_tensor *eg_f_mish(eg_tensor *x);
/** x, below 0 weight * x: weight (1), or (C) for x (N, C, ..) (He et al. 2015). */
EG_API eg_tensor *eg_f_prelu(eg_tensor *x, eg_tensor *weight);
/** exp(x) over its sum along `dim` (negative counts from the end). */
EG_API eg_tensor *eg_f_softmax(eg_tensor *x, int dim);
/** Its logarithm. */
EG_API eg_tensor *eg_f_log_softmax(eg_tensor *x, int dim);
/** Each element is dropped with probability p in [0, 1], the rest divided by 1 - p. x itself unless training. Element
 *  i, in the default memory order, is decided by number i of eg_context_rng(). */
EG_API eg_tensor *eg_f_dropout(eg_tensor *x, double p, bool training);
/** The same for whole samples (dimension 0): stochastic depth, the drop path of DARTS. */
EG_API eg_tensor *eg_f_drop_path(eg_tensor *x, double p, bool training);

/* ---- losses and metrics ---- */

/** What becomes of the losses of the samples. */
typedef enum eg_reduction {
    EG_REDUCTION_MEAN,
    EG_REDUCTION_SUM,
    EG_REDUCTION_NONE,
    EG_REDUCTION_BATCHMEAN /**< eg_f_kl_div() only: the sum, divided by the size of dimension 0 */
} eg_reduction;

/** Arguments of eg_f_cross_entropy(). */
typedef struct eg_cross_entropy_args {
    eg_tensor *logits;      /**< (N, C) */
    eg_tensor *target;      /**< int64 (N), classes 0 .. C-1; or float (N, C) probabilities */
    double label_smoothing; /**< 0 .. 1 */
    eg_reduction reduction;
} eg_cross_entropy_args;
/** Scalar (or (N) without reduction). EINVAL for a label out of range. */
#define eg_f_cross_entropy(...) eg_f_cross_entropy_with(&(eg_cross_entropy_args){.logits = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_cross_entropy_with(const eg_cross_entropy_args *args);
/** Mean of (a - b)^2 over all elements; equal shapes. */
EG_API eg_tensor *eg_f_mse_loss(eg_tensor *a, eg_tensor *b);

/** Arguments of eg_f_l1_loss(), eg_f_smooth_l1_loss() and eg_f_kl_div(). */
typedef struct eg_loss_args {
    eg_tensor *input, *target; /**< of one shape; gradients for both */
    eg_reduction reduction;    /**< a scalar, or with EG_REDUCTION_NONE of the input's shape */
    eg_opt_f64 beta;           /**< smooth_l1: where the square ends, 0 or more; default 1 */
    bool log_target;           /**< kl_div: the target is log-probabilities too */
} eg_loss_args;
/** |input - target|: eg_f_l1_loss(x, y, .reduction = EG_REDUCTION_SUM). */
#define eg_f_l1_loss(...) eg_f_l1_loss_with(&(eg_loss_args){.input = __VA_ARGS__})
/** d = |input - target|: d^2 / (2 beta) below beta, else d - beta / 2 (Girshick, "Fast R-CNN", 2015). */
#define eg_f_smooth_l1_loss(...) eg_f_smooth_l1_loss_with(&(eg_loss_args){.input = __VA_ARGS__})
/** Kullback-Leibler divergence: target * (log(target) - input), for an input of log-probabilities. The definition asks
 *  for .reduction = EG_REDUCTION_BATCHMEAN; the default is the mean over all elements, as in PyTorch. */
#define eg_f_kl_div(...) eg_f_kl_div_with(&(eg_loss_args){.input = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_l1_loss_with(const eg_loss_args *args);
/** The same from a struct. */
EG_API eg_tensor *eg_f_smooth_l1_loss_with(const eg_loss_args *args);
/** The same from a struct. */
EG_API eg_tensor *eg_f_kl_div_with(const eg_loss_args *args);

/** Arguments of eg_f_nll_loss() and eg_f_bce_with_logits(). */
typedef struct eg_weighted_loss_args {
    eg_tensor *input;  /**< nll: log-probabilities (N, C, ..); bce: logits of any shape */
    eg_tensor *target; /**< nll: int64 (N, ..), classes 0 .. C-1; bce: probabilities of the input's shape */
    eg_tensor *weight; /**< or eg_none. nll: of each class (C); bce: pos_weight, broadcast to the input */
    eg_reduction reduction;
} eg_weighted_loss_args;
/** -input at the target's class: eg_f_nll_loss(eg_f_log_softmax(x, 1), labels, eg_none). With weights each sample
 * counts by that of its class, and the mean is divided by their sum. EINVAL for a class out of range. */
#define eg_f_nll_loss(...) eg_f_nll_loss_with(&(eg_weighted_loss_args){.input = __VA_ARGS__})
/** Cross entropy of sigmoid(input) with the target, from logits; terms of the target are multiplied by the weight. */
#define eg_f_bce_with_logits(...) eg_f_bce_with_logits_with(&(eg_weighted_loss_args){.input = __VA_ARGS__})
/** The same from a struct. */
EG_API eg_tensor *eg_f_nll_loss_with(const eg_weighted_loss_args *args);
/** The same from a struct. */
EG_API eg_tensor *eg_f_bce_with_logits_with(const eg_weighted_loss_args *args);

/** Share (0 to 1) of rows of logits (N, C) whose largest entry (the first, of equal ones) is the label (N). NaN on
 *  failure. */
EG_API double eg_accuracy(const eg_tensor *logits, const eg_tensor *labels);

#ifdef __cplusplus
}
#endif
#endif
