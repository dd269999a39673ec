/*
 * tensor/cpu/cpu.h - our own float32 loops: what element-wise work, reductions, losses and optimizers are made of.
 *
 * A kernel describes its work as a `body` over a range of numbers and eg__for() spreads the range over the context's
 * threads. Bodies are compiled twice (EG__CLONES), for plain x86-64 and for machines with AVX2; sums go through blocks
 * of a fixed size whose results are added in order, so that no result depends on the number of threads.
 */
#ifndef EG_TENSOR_CPU_H
#define EG_TENSOR_CPU_H

#include "tensor/kernels.h"

/* Function multiversioning needs ifunc, which the sanitizers' start-up does not get along with. Names of such
 * functions, static ones too, are unique in the library: clang gives all of their resolvers external linkage. */
#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&    \
    !defined(EG_NO_CLONES)
#if defined(__has_feature)
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer) && !__has_feature(memory_sanitizer)
#define EG__CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#endif
#else
#define EG__CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#endif
#endif
#ifndef EG__CLONES
#define EG__CLONES
#endif

/** Parts of such functions, which become constants' special cases in each of them. */
#define EG__INLINE static inline __attribute__((always_inline))

/** Elements that one thread does on its own: less is not worth waking another. */
#define EG__SERIAL 32768
/** Elements summed in one go in float; the sums of blocks are added in double, in order. */
#define EG__SUM_BLOCK 4096

typedef void (*eg__body)(void *arg, int64_t begin, int64_t end);

/** Calls body(arg, begin, end) for pieces of [0, n), in parallel when `work` (in elements) is worth it. Pieces begin at
 *  multiples of 16. */
void eg__for(const eg_context *ctx, int64_t n, int64_t work, eg__body body, void *arg);
/** The same with pieces of any size (n counts lines, blocks or other large items). */
void eg__for_each(const eg_context *ctx, int64_t n, int64_t work, eg__body body, void *arg);

/** Up to four tensors of one shape (size 1 may have stride 0) seen as `lines` rows of `cols` elements, neighbouring
 *  dimensions merged wherever the strides of all allow it and ordered by the memory order of the first one. */
#define EG__LOOP_MAX 4
typedef struct eg__loop {
    int n, ndim; /* operands; dimensions after merging, at least 2 */
    int64_t dims[EG_MAX_DIMS + 2];
    int64_t strides[EG__LOOP_MAX][EG_MAX_DIMS + 2];
    float *data[EG__LOOP_MAX];
} eg__loop;
void eg__loop_make(eg__loop *loop, int n, const eg_tensor *const *operands);

/** rows x cols elements; row[k], col[k] are operand k's strides. */
typedef void (*eg__tile)(void *arg, int64_t rows, int64_t cols, float *const *data, const int64_t *row,
                         const int64_t *col);
void eg__loop_run(const eg_context *ctx, const eg__loop *loop, eg__tile tile, void *arg);

/** x itself when it has the strides of `like`, else a copy that has them, in *owned for the caller to release. NULL on
 * failure. */
const eg_tensor *eg__in_order_of(const eg_tensor *like, const eg_tensor *x, eg_tensor **owned);

/** A new tensor of this shape in which dimension `dim` is innermost. */
eg_tensor *eg__new_with_innermost(const eg_tensor *like, int dim);
/** Where line number `line` along `dim` begins, in elements from t's first; lines are counted in logical order. */
int64_t eg__line_at(const eg_tensor *t, int dim, int64_t line);
/** Whether the lines along dim are contiguous. */
static inline bool eg__has_lines(const eg_tensor *t, int dim)
{
    return t->shape.dims[dim] == 1 || t->strides[dim] == 1;
}
/** t itself when it has such lines, else a new tensor that has, with t's numbers when `copy`, in *owned for the caller
 * to release. NULL on failure. */
eg_tensor *eg__with_lines(const eg_tensor *t, int dim, bool copy, eg_tensor **owned);
/** 4-d x itself when it is channels-last, else a copy that is, in *owned. NULL on failure. */
const eg_tensor *eg__in_channels_last(const eg_tensor *x, eg_tensor **owned);
/** y itself when it is channels-last, else a new tensor that is, in *owned, which eg__out_finish() copies to y and
 * releases. */
eg_tensor *eg__out_channels_last(eg_tensor *y, eg_tensor **owned);
eg_status eg__out_finish(eg_status status, eg_tensor *y, eg_tensor *owned);

/** Depthwise convolutions of channels-last tensors, row-major weights; nothing is empty. */
eg_status eg__cpu_depthwise_backward_input(const eg__window *win, const eg_tensor *w, const eg_tensor *dy,
                                           eg_tensor *dx, bool add);
eg_status eg__cpu_depthwise_backward_weight(const eg__window *win, const eg_tensor *x, const eg_tensor *dy,
                                            eg_tensor *dw);

/** The gradient of dense convolutions' filters; channels-last tensors, row-major weights; nothing is empty. */
eg_status eg__cpu_conv_backward_weight(const eg__window *win, const eg_tensor *x, const eg_tensor *dy, eg_tensor *dw);

/** The same for filters of 1x1 without stride and padding, where eg__pointwise_weight_fits(). */
eg_status eg__cpu_pointwise_backward_weight(const eg_tensor *x, const eg_tensor *dy, eg_tensor *dw);
bool eg__pointwise_weight_fits(const eg_tensor *x, const eg_tensor *dy, bool bias);

/** Dense convolutions of channels-last tensors with filters packed from row-major ones; nothing is empty. `turned`: for
 *  the gradient of the input with stride 1, which is the convolution of dy with the filters turned around. */
int64_t eg__cpu_conv_rows_packed(const eg_tensor *w, bool turned);
void eg__cpu_conv_rows_pack(const eg_tensor *w, bool turned, float *packed);
/** `packed` has as many numbers as eg__cpu_conv_rows_packed() said; bias may be NULL; `add`: to what is in y. */
eg_status eg__cpu_conv_rows(const eg__window *win, const eg_tensor *x, const float *packed, const eg_tensor *bias,
                            eg_tensor *y, bool add);

/* The kernels of the table (see kernels.h). */
eg_status eg__cpu_unary(eg__unary, double, double, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_unary_backward(eg__unary, double, double, const eg_tensor *, const eg_tensor *, eg_tensor *, bool);
eg_status eg__cpu_binary(eg__binary, const eg_tensor *, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_reduce(eg__reduction, const eg_tensor *, eg_tensor *, eg_tensor *);
eg_status eg__cpu_gather(int, const eg_tensor *, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_scatter_add(int, const eg_tensor *, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_cumsum(int, bool, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_topk(int, bool, const eg_tensor *, eg_tensor *, eg_tensor *);
eg_status eg__cpu_softmax(int, bool, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_softmax_backward(int, bool, const eg_tensor *, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_masked_softmax(double, bool, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_embedding(const eg_tensor *, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_embedding_backward(int64_t, const eg_tensor *, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_rnn_step(eg__rnn, const eg_tensor *, eg_tensor *, const eg_tensor *, eg_tensor *, eg_tensor *);
eg_status eg__cpu_rnn_step_backward(eg__rnn, const eg_tensor *, const eg_tensor *, const eg_tensor *, const eg_tensor *,
                                    const eg_tensor *, eg_tensor *, eg_tensor *, eg_tensor *);
eg_status eg__cpu_weighted_sum(size_t, const eg_tensor *const *, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_weighted_sum_backward(size_t, const eg_tensor *const *, const eg_tensor *, const eg_tensor *,
                                        eg_tensor *const *, eg_tensor *);
eg_status eg__cpu_norm_add(const eg__norm_term *, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_norm_add_backward(const eg__norm_term *, const eg_tensor *, eg_tensor *, eg_tensor *, eg_tensor *,
                                    double *);
eg_status eg__cpu_copy(const eg_tensor *, eg_tensor *);
eg_status eg__cpu_accumulate(const eg_tensor *, eg_tensor *);
eg_status eg__cpu_fill(eg_tensor *, double);
eg_status eg__cpu_group_norm(const eg__group_norm *, const eg_tensor *, const eg_tensor *, const eg_tensor *,
                             eg_tensor *, eg_tensor *, eg_tensor *);
eg_status eg__cpu_group_norm_backward(const eg__group_norm *, const eg_tensor *, const eg_tensor *, const eg_tensor *,
                                      const eg_tensor *, const eg_tensor *, eg_tensor *, eg_tensor *, eg_tensor *);
eg_status eg__cpu_interpolate(const eg__interpolate *, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_interpolate_backward(const eg__interpolate *, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_max_pool2d(const eg__window *, const eg_tensor *, eg_tensor *, eg_tensor **);
eg_status eg__cpu_max_pool2d_backward(const eg__window *, const eg_tensor *, const eg_tensor *, eg_tensor *, bool);
eg_status eg__cpu_avg_pool2d(const eg__window *, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_avg_pool2d_backward(const eg__window *, const eg_tensor *, eg_tensor *, bool);
eg_status eg__cpu_adaptive_avg_pool2d(const eg_tensor *, eg_tensor *);
eg_status eg__cpu_adaptive_avg_pool2d_backward(const eg_tensor *, eg_tensor *);
eg_status eg__cpu_cross_entropy(double, const eg_tensor *, const eg_tensor *, eg_tensor *, eg_tensor *);
eg_status eg__cpu_cross_entropy_backward(double, const eg_tensor *, const eg_tensor *, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_sgd(const eg__sgd *, size_t, eg_tensor *const *, eg_tensor *const *, eg_tensor *const *);
eg_status eg__cpu_adam(const eg__adam *, size_t, eg_tensor *const *, eg_tensor *const *, eg_tensor *const *,
                       eg_tensor *const *);
eg_status eg__cpu_norm2(size_t, eg_tensor *const *, double *);
eg_status eg__cpu_scale(size_t, eg_tensor *const *, double);
eg_status eg__cpu_batch_norm(const eg__batch_norm *, const eg_tensor *, const eg_tensor *, const eg_tensor *,
                             eg_tensor *, eg_tensor *, eg_tensor *, eg_tensor **);
eg_status eg__cpu_batch_norm_eval(const eg__batch_norm *, const eg_tensor *, const eg_tensor *, const eg_tensor *,
                                  const eg_tensor *, const eg_tensor *, eg_tensor *);
eg_status eg__cpu_batch_norm_backward(const eg__batch_norm *, const eg_tensor *, const eg_tensor *, const eg_tensor *,
                                      const eg_tensor *, const eg_tensor *, const eg_tensor *, const eg_tensor *,
                                      eg_tensor *, eg_tensor *, eg_tensor *);
eg_status eg__cpu_batch_norm_eval_backward(const eg__batch_norm *, const eg_tensor *, const eg_tensor *,
                                           const eg_tensor *, const eg_tensor *, const eg_tensor *, const eg_tensor *,
                                           eg_tensor *, eg_tensor *, eg_tensor *);

#endif
