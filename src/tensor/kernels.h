/*
 * tensor/kernels.h - the one table through which operations reach their kernels; a backend is one such table.
 *
 * `ref` is plain C over any strides, float32 and float64, accumulating in double: the oracle. `dnnl` is oneDNN for what
 * it does best and our own loops (tensor/cpu) for the rest, float32; it hands to `ref` what it does not cover. The
 * callers have checked types and shapes and allocated the outputs (channels-last where 4-d activations, row-major
 * weights). Kernels fail only for lack of memory or an error of oneDNN. NULL outputs are not wanted.
 *
 * `mixed` lies over either: any operand that is float32 there may be bfloat16 here (docs/design/precision.md).
 */
#ifndef EG_TENSOR_KERNELS_H
#define EG_TENSOR_KERNELS_H

#include "tensor/internal.h"

typedef struct eg__window { /* of a convolution or pooling, resolved (no zeros for defaults) */
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    int64_t groups;
    bool exclude_pad; /* average pooling */
} eg__window;

typedef enum eg__unary {
    EG__RELU,
    EG__RELU6,
    EG__LEAKY_RELU,
    EG__SIGMOID,
    EG__TANH,
    EG__GELU,
    EG__SILU,
    EG__HARDSWISH,
    EG__HARDSIGMOID,
    EG__ELU,      /* a = alpha */
    EG__SOFTPLUS, /* a = beta, b = threshold */
    EG__MISH,
    EG__EXP,
    EG__LOG,
    EG__SQRT,
    EG__ABS,
    EG__SQUARE,
    EG__RECIPROCAL,
    EG__POW,       /* x to the power of a */
    EG__CLAMP,     /* to a .. b */
    EG__SMOOTH_L1, /* x^2 / (2 a), from |x| = a on |x| - a / 2 */
    EG__AFFINE,    /* a * x + b */
    EG__UNARY_COUNT
} eg__unary;

typedef enum eg__binary {
    EG__ADD,
    EG__SUB,
    EG__MUL,
    EG__DIV,
    EG__MAXIMUM, /* a NaN wins */
    EG__MINIMUM,
    EG__GT,   /* a > b, 1 or 0 */
    EG__EQ,   /* a == b, 1 or 0 */
    EG__STEP, /* the slope of maximum(a, b) in a: 0 below b, 1/2 at b, else 1 */
    EG__KEEP, /* a where b is not 0, else 0 */
    EG__DROP, /* a where b is 0, else 0 */
    EG__LEAK, /* 1 where a > 0, else b */
    EG__BINARY_COUNT
} eg__binary;
typedef enum eg__reduction { EG__SUM, EG__MAX } eg__reduction;
typedef enum eg__rnn { EG__LSTM, EG__GRU } eg__rnn;

typedef struct eg__batch_norm {
    double eps;
    bool relu;
    double relu_max; /* where the ReLU stops; 0: nowhere */
} eg__batch_norm;

/** A term of a sum: weight * (gamma (x - mean) / sqrt(var + eps) + beta). */
typedef struct eg__norm_term {
    const eg_tensor *x;            /* (N, C, ..) */
    const eg_tensor *gamma, *beta; /* may be NULL */
    eg_tensor *mean, *var;         /* of x, set by forward */
    double eps, weight;
} eg__norm_term;

typedef struct eg__group_norm {
    double eps;
    int64_t groups; /* divides the channels */
} eg__group_norm;

typedef enum eg__interpolation { EG__NEAREST, EG__BILINEAR } eg__interpolation;
typedef struct eg__interpolate {
    eg__interpolation mode;
    bool align_corners; /* bilinear */
    double ratio[2];    /* size in the input of one step in the output */
} eg__interpolate;
/** What output position `out` of one dimension is made from: (1 - weight) x[at] + weight x[next]. */
typedef struct eg__tap {
    int64_t at, next;
    double weight; /* 0 where next = at */
} eg__tap;
/** Positions are computed in float32 or float64, as in PyTorch: the nearest neighbour may depend on it. */
eg__tap eg__interpolate_tap(const eg__interpolate *, eg_dtype, int axis, int64_t out, int64_t input_size);

/** Scalars of one optimizer update; the state buffers are n numbers each. */
typedef struct eg__sgd {
    double lr, momentum, dampening, weight_decay;
    bool nesterov, first; /* first: the momentum buffer is set to the gradient */
} eg__sgd;
typedef struct eg__adam {
    double lr, beta1, beta2, eps, weight_decay;
    bool decoupled; /* AdamW */
    int64_t step;   /* 1 for the first update */
} eg__adam;

typedef struct eg_kernels {
    const char *name;

    /* y = conv(x, w) + b; b may be NULL */
    eg_status (*conv2d)(const eg__window *, const eg_tensor *x, const eg_tensor *w, const eg_tensor *b, eg_tensor *y);
    /* `add`, here and below: dx holds a sum, to which the gradient is added */
    eg_status (*conv2d_backward_input)(const eg__window *, const eg_tensor *w, const eg_tensor *dy, eg_tensor *dx,
                                       bool add);
    /* dw and db may be NULL */
    eg_status (*conv2d_backward_weight)(const eg__window *, const eg_tensor *x, const eg_tensor *dy, eg_tensor *dw,
                                        eg_tensor *db);

    /* y (.., m, n) = a (.., m, k) b (.., k, n) + bias (n) for each matrix of a batch; bias may be NULL. All three have
     * the same batch sizes in front, none or more; a matrix that serves several has stride 0 there. Any strides, so a
     * transposed view is the transpose */
    eg_status (*matmul)(const eg_tensor *a, const eg_tensor *b, const eg_tensor *bias, eg_tensor *y);

    /* Rows index[i] of weight (v, d): index int64 (n), in range; y (n, d) */
    eg_status (*embedding)(const eg_tensor *index, const eg_tensor *weight, eg_tensor *y);
    /* dweight[v] = the sum, in order, of the rows dy[i] with index[i] = v; 0 for row `padding` (-1: none) */
    eg_status (*embedding_backward)(int64_t padding, const eg_tensor *index, const eg_tensor *dy, eg_tensor *dweight);

    /* One step of a recurrent layer for n samples, from the products with the input (in gates) and with the state
     * before (recurrent), biases included. gates (n, 4 h): pre-activations in, activations out, of lstm i, f, g, o; of
     * gru r, z, n, and in the last quarter, which is output only, recurrent's part of n. before: lstm c, gru h of the
     * step before. cell: the new c of lstm, else NULL. h is an output. recurrent (n, 4 h or 3 h) */
    eg_status (*rnn_step)(eg__rnn, const eg_tensor *recurrent, eg_tensor *gates, const eg_tensor *before,
                          eg_tensor *cell, eg_tensor *h);
    /* gates, before, cell: as rnn_step left them. The gradient of h is dy (may be NULL) + through, which came through
     * the next step's product, for gru + carry. carry: lstm: gradient of cell in, of before out; gru: of h past the
     * gates in, of before past the product out. dgates, drecurrent: gradients of the pre-activations; equal for lstm,
     * where drecurrent is NULL */
    eg_status (*rnn_step_backward)(eg__rnn, const eg_tensor *gates, const eg_tensor *before, const eg_tensor *cell,
                                   const eg_tensor *dy, const eg_tensor *through, eg_tensor *carry, eg_tensor *dgates,
                                   eg_tensor *drecurrent);

    /* x (N, C, ..): batch statistics. mean, var (C) are outputs, var biased. gamma, beta may be NULL. *workspace (may
     * be NULL: not wanted) receives a new tensor, owned by the caller, that backward with relu needs, or NULL. */
    eg_status (*batch_norm)(const eg__batch_norm *, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *beta,
                            eg_tensor *mean, eg_tensor *var, eg_tensor *y, eg_tensor **workspace);
    /* the same with given mean and var */
    eg_status (*batch_norm_eval)(const eg__batch_norm *, const eg_tensor *x, const eg_tensor *gamma,
                                 const eg_tensor *beta, const eg_tensor *mean, const eg_tensor *var, eg_tensor *y);
    /* training: statistics are functions of x. workspace: what forward gave; dgamma, dbeta may be NULL */
    eg_status (*batch_norm_backward)(const eg__batch_norm *, const eg_tensor *x, const eg_tensor *gamma,
                                     const eg_tensor *beta, const eg_tensor *mean, const eg_tensor *var,
                                     const eg_tensor *workspace, const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma,
                                     eg_tensor *dbeta);
    eg_status (*batch_norm_eval_backward)(const eg__batch_norm *, const eg_tensor *x, const eg_tensor *gamma,
                                          const eg_tensor *beta, const eg_tensor *mean, const eg_tensor *var,
                                          const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma, eg_tensor *dbeta);

    /* x (N, C, P): each sample's groups of channels are normalized over channels and positions. mean and rstd =
     * 1 / sqrt(var + eps) (N, groups; row-major) are outputs; gamma, beta (C) may be NULL */
    eg_status (*group_norm)(const eg__group_norm *, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *beta,
                            eg_tensor *mean, eg_tensor *rstd, eg_tensor *y);
    /* dx, dgamma, dbeta may be NULL */
    eg_status (*group_norm_backward)(const eg__group_norm *, const eg_tensor *x, const eg_tensor *gamma,
                                     const eg_tensor *mean, const eg_tensor *rstd, const eg_tensor *dy, eg_tensor *dx,
                                     eg_tensor *dgamma, eg_tensor *dbeta);

    /* *workspace as in batch_norm: where the maxima were */
    eg_status (*max_pool2d)(const eg__window *, const eg_tensor *x, eg_tensor *y, eg_tensor **workspace);
    eg_status (*max_pool2d_backward)(const eg__window *, const eg_tensor *workspace, const eg_tensor *dy, eg_tensor *dx,
                                     bool add);
    eg_status (*avg_pool2d)(const eg__window *, const eg_tensor *x, eg_tensor *y);
    eg_status (*avg_pool2d_backward)(const eg__window *, const eg_tensor *dy, eg_tensor *dx, bool add);
    /* output size is y's */
    eg_status (*adaptive_avg_pool2d)(const eg_tensor *x, eg_tensor *y);
    eg_status (*adaptive_avg_pool2d_backward)(const eg_tensor *dy, eg_tensor *dx);

    /* output size is y's */
    eg_status (*interpolate)(const eg__interpolate *, const eg_tensor *x, eg_tensor *y);
    eg_status (*interpolate_backward)(const eg__interpolate *, const eg_tensor *dy, eg_tensor *dx);

    /* a, b: parameters, as eg__unary says (a is the slope of leaky relu). `saved` is x, or y where
     * eg__unary_saves_output(). dx may be dy */
    eg_status (*unary)(eg__unary, double a, double b, const eg_tensor *x, eg_tensor *y);
    eg_status (*unary_backward)(eg__unary, double a, double b, const eg_tensor *saved, const eg_tensor *dy,
                                eg_tensor *dx, bool add);

    /* broadcasting: a and b have y's ndim, sizes equal to y's or 1 (stride 0 is set by the caller for size 1) */
    eg_status (*binary)(eg__binary, const eg_tensor *a, const eg_tensor *b, eg_tensor *y);
    /* y has x's ndim with size 1 in the reduced dimensions. For MAX, index (int64, y's shape) receives the position
     * within the reduced block, in logical order; may be NULL */
    eg_status (*reduce)(eg__reduction, const eg_tensor *x, eg_tensor *y, eg_tensor *index);
    /* Along dim: y[.., i, ..] = x[.., index[.., i, ..], ..]. index (int64, y's sizes, any strides) is in range; y may
     * be smaller than x in other dimensions too */
    eg_status (*gather)(int dim, const eg_tensor *x, const eg_tensor *index, eg_tensor *y);
    /* dx[.., index[.., i, ..], ..] += dy[.., i, ..], in order of i for each element of dx */
    eg_status (*scatter_add)(int dim, const eg_tensor *index, const eg_tensor *dy, eg_tensor *dx);
    /* y[.., i, ..] = x[.., 0, ..] + .. + x[.., i, ..]; reverse: from i to the last */
    eg_status (*cumsum)(int dim, bool reverse, const eg_tensor *x, eg_tensor *y);
    /* The largest (smallest) along dim in descending (ascending) order, as many as `values` has room for, and where
     * they were; of equal ones the first. NaN is larger than all numbers */
    eg_status (*topk)(int dim, bool largest, const eg_tensor *x, eg_tensor *values, eg_tensor *index);
    eg_status (*softmax)(int dim, bool log, const eg_tensor *x, eg_tensor *y);
    eg_status (*softmax_backward)(int dim, bool log, const eg_tensor *y, const eg_tensor *dy, eg_tensor *dx);
    /* In place, x (.., l, s): softmax over the last dimension of scale x + mask. mask (may be NULL): x's shape, stride
     * 0 where it is broadcast; x's type, or uint8, where 0 leaves an entry out. causal: entry j of row i only for j <=
     * i. Entries left out are 0, also where nothing is left */
    eg_status (*masked_softmax)(double scale, bool causal, const eg_tensor *mask, eg_tensor *x);

    /* y = sum w[i] x[i]; w NULL = ones. Equal shapes; strides may differ */
    eg_status (*weighted_sum)(size_t n, const eg_tensor *const *x, const eg_tensor *w, eg_tensor *y);
    /* dx[i] = w[i] dy (each may be NULL); dw[i] = <x[i], dy> (dw may be NULL; then x may be NULL too) */
    eg_status (*weighted_sum_backward)(size_t n, const eg_tensor *const *x, const eg_tensor *w, const eg_tensor *dy,
                                       eg_tensor *const *dx, eg_tensor *dw);

    /* y = sum + term; sum may be NULL, and may be y */
    eg_status (*norm_add)(const eg__norm_term *, const eg_tensor *sum, eg_tensor *y);
    /* dx may share x's memory; dx, dgamma and dbeta may be NULL */
    eg_status (*norm_add_backward)(const eg__norm_term *, const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma,
                                   eg_tensor *dbeta, double *dweight);

    /* y = x for equal shapes, any strides and (for ref) types */
    eg_status (*copy)(const eg_tensor *x, eg_tensor *y);
    /* y += x for equal shapes */
    eg_status (*accumulate)(const eg_tensor *x, eg_tensor *y);
    eg_status (*fill)(eg_tensor *y, double value);

    /* logits (N, C), target int64 (N) or float (N, C); probability (N, C) receives softmax; loss (N) */
    eg_status (*cross_entropy)(double smoothing, const eg_tensor *logits, const eg_tensor *target,
                               eg_tensor *probability, eg_tensor *loss);
    /* dloss (N) */
    eg_status (*cross_entropy_backward)(double smoothing, const eg_tensor *probability, const eg_tensor *target,
                                        const eg_tensor *dloss, eg_tensor *dlogits);

    /* In place; all tensors of one optimizer group at once, dense and of equal strides. buf entries may be NULL where
     * momentum is 0 */
    eg_status (*sgd)(const eg__sgd *, size_t n, eg_tensor *const *p, eg_tensor *const *grad, eg_tensor *const *buf);
    eg_status (*adam)(const eg__adam *, size_t n, eg_tensor *const *p, eg_tensor *const *grad, eg_tensor *const *m,
                      eg_tensor *const *v);
    /* sum of squares over n tensors, in double, in a fixed order; then p *= factor for all */
    eg_status (*norm2)(size_t n, eg_tensor *const *t, double *sum);
    eg_status (*scale)(size_t n, eg_tensor *const *t, double factor);
} eg_kernels;

/** For kernels that cannot add: where to write instead of dx, which eg__add_finish() adds to dx and releases. NULL on
 *  ENOMEM, which eg__add_finish() returns. Without `add` it is dx. */
eg_tensor *eg__add_begin(eg_tensor *dx, bool add);
eg_status eg__add_finish(const eg_kernels *k, eg_status status, eg_tensor *written, eg_tensor *dx);

extern const eg_kernels eg__ref_kernels;  /* tensor/ref */
extern const eg_kernels eg__dnnl_kernels; /* tensor/dnnl and tensor/cpu */
/* tensor/bf16: the same over the context's float32 table; native: with oneDNN's bfloat16 convolutions and products */
extern const eg_kernels eg__mixed_kernels, eg__native_kernels;

/** The table for tensors of this type in this context: ref for all but float32 and bfloat16. */
const eg_kernels *eg__kernels(const eg_context *ctx, eg_dtype dtype);
/** The one whose operands are all float32. */
const eg_kernels *eg__kernels_of_f32(const eg_context *ctx);
/** Table by name ("dnnl", "ref"); NULL when unknown. */
const eg_kernels *eg__kernels_find(const char *name);
/** Lets go of all packed weights; they are made anew when they are needed. */
void eg__dnnl_forget_packs(eg_context *ctx);
/* Those that take bfloat16 themselves, in tensor/dnnl. */
eg_status eg__dnnl_conv2d(const eg__window *, const eg_tensor *, const eg_tensor *, const eg_tensor *, eg_tensor *);
eg_status eg__dnnl_conv2d_backward_input(const eg__window *, const eg_tensor *, const eg_tensor *, eg_tensor *, bool);
eg_status eg__dnnl_conv2d_backward_weight(const eg__window *, const eg_tensor *, const eg_tensor *, eg_tensor *,
                                          eg_tensor *);
eg_status eg__dnnl_matmul_bf16(const eg_tensor *, const eg_tensor *, const eg_tensor *, eg_tensor *);
/** What oneDNN multiplies bfloat16 numbers with is the processor's own instructions. */
bool eg__dnnl_has_bf16(void);
/** "AVX2", or what else oneDNN computes with here. */
const char *eg__dnnl_isa(void);
/** y = x, each of them float32 or bfloat16, for equal shapes and any strides; `rounded`: float32 numbers that bfloat16
 *  can hold. */
eg_status eg__bf16_copy(const eg_tensor *x, eg_tensor *y, bool rounded);
/** Whether the backward of a unary operation reads its output (relu, sigmoid, exp, ..) instead of its input. */
bool eg__unary_saves_output(eg__unary op);

#endif
