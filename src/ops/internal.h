/*
 * ops/internal.h - what the operations share: checks of inputs, shape rules, and operands for kernels.
 */
#ifndef EG_OPS_INTERNAL_H
#define EG_OPS_INTERNAL_H

#include "ops/registry.h"

#include <string.h>

/** A shape as text, for messages; lives until the end of the enclosing block. */
#define EG__TEXT(shape) eg_shape_format((shape), (char[EG_SHAPE_TEXT_SIZE]){0}, EG_SHAPE_TEXT_SIZE)

/* ---- checks ---- */

/** Input i, called `what` in messages, is float32 or float64, of input 0's type, and has no dimension of size 0. Where
 *  float32 is allowed so is bfloat16, and both go together. */
eg_status eg__check_input(const eg_op_call *call, size_t i, const char *what);
/** No dimension has size 0. */
eg_status eg__check_sizes(const eg_tensor *t, const char *what);
eg_status eg__check_ndim(const eg_tensor *t, const char *what, int ndim, const char *expected);
/** An optional vector of n numbers, a parameter: eg_none, or of shape (n) and input 0's type, which is float32 where
 *  that is bfloat16. */
eg_status eg__check_vector(const eg_op_call *call, size_t i, const char *what, int64_t n);
/** A size in two dimensions, called `what` in messages: each min .. 2^30 - 1, so that products of two stay far from
 *  overflow. */
eg_status eg__check_hw(const int64_t hw[2], const char *what, int64_t min);
/** 0 <= dim < ndim after eg__wrap_dim(), and says so with the number that the caller gave. */
eg_status eg__check_dim(int dim, eg_shape shape);
static inline int eg__wrap_dim(int dim, int ndim)
{
    return dim < 0 ? dim + ndim : dim;
}
/** `index`, called `what` in messages, is int64, and its numbers (if it has any) are 0 .. size - 1. */
eg_status eg__check_index(const eg_tensor *index, const char *what, int64_t size);
/** The shape that a and b broadcast to; ESHAPE where they do not. */
eg_status eg__broadcast(eg_shape a, eg_shape b, eg_shape *shape);
/** *spec gets the shape, unless it has too many elements. */
eg_status eg__spec_set(eg_spec *spec, const eg_tensor *like, eg_shape shape);

/** NULL for eg_none: what kernels take for an absent operand. */
static inline eg_tensor *eg__optional(eg_tensor *t)
{
    return eg_is_none(t) ? NULL : t;
}

/** The status of a function that returned NULL. */
static inline eg_status eg__pending(void)
{
    return eg_error_last()->code;
}

/* ---- inputs of operations on lists ---- */

/** The tensors among x[0 .. n-1] that are not eg_none, *kept of them with room for one more; for eg_free(). NULL on
 *  failure: a NULL among them, an empty list, memory. */
eg_tensor **eg__present(const eg_op *op, eg_tensor *const *x, size_t n, size_t *kept);

/* ---- operands: the numbers of t under other sizes and strides, for one call of a kernel ----
 * They are plain values that share t's storage without a reference: nothing to fail, nothing to free. */

eg_tensor eg__operand(const eg_tensor *t, eg_shape shape, const int64_t *strides, int64_t offset);
/** Broadcast to `shape`: stride 0 where t has size 1 or no dimension; those sizes are 1, or with `expand` shape's. */
eg_tensor eg__operand_broadcast(const eg_tensor *t, eg_shape shape, bool expand);
/** The piece start, start + step, .. of `length` elements along dim. */
eg_tensor eg__operand_slice(const eg_tensor *t, int dim, int64_t start, int64_t length, int64_t step);
/** (rows, columns) of a row-major tensor, or of one that has two dimensions already. */
eg_tensor eg__operand_rows(const eg_tensor *t, int64_t rows, int64_t columns);
/** The last two dimensions exchanged. */
eg_tensor eg__operand_transpose(const eg_tensor *t);
/** Rows first .. first + rows - 1 of a row-major tensor seen as (.., columns). */
eg_tensor eg__operand_some_rows(const eg_tensor *t, int64_t first, int64_t rows);

/** t itself where its rows can be addressed as a matrix (see eg__operand_rows), else a row-major copy. The caller owns
 * a reference. */
eg_tensor *eg__with_rows(eg_tensor *t);

/** Strides with which numbers of sizes `from` and strides `old` have the sizes `to` in the same logical order; false
 *  when no strides do. Equal numbers of elements, none 0. */
bool eg__view_strides(eg_shape from, const int64_t *old, eg_shape to, int64_t *strides);

/** x in another shape of as many elements: a view where the memory order allows, else a copy (shape-only: neither). The
 *  caller owns the reference. */
eg_tensor *eg__reshaped(eg_tensor *x, eg_shape shape);
/** y = x in logical order, for tensors that differ in shape. */
eg_status eg__copy_reshaped(eg_tensor *x, eg_tensor *y);

/** Gradients of a convolution: dw, of any memory order, and db (may be NULL); and db alone. */
eg_status eg__conv2d_weight_gradient(const eg_kernels *k, const eg__window *w, const eg_tensor *x, const eg_tensor *dy,
                                     eg_tensor *dw, eg_tensor *db);
eg_status eg__sum_channels(const eg_tensor *dy, eg_tensor *db);

/** grad_in[i] = the sum of dy over the dimensions along which input i was broadcast, times `factor`. */
eg_status eg__grad_reduced(eg_op_grad *grad, size_t i, eg_tensor *dy, double factor);

/** Updates running statistics (eg_none: none are kept) with those of a batch x. */
void eg__update_running(eg_tensor *mean, eg_tensor *var, const eg_tensor *x, const eg_tensor *batch_mean,
                        const eg_tensor *batch_var, double momentum);

/* ---- two operands that broadcast ---- */

eg_status eg__binary_infer(const eg_op_call *call, eg_spec *out);
/** y = kind(a, b) with both broadcast to y's shape. */
eg_status eg__binary_run(eg_context *ctx, eg__binary kind, const eg_tensor *a, const eg_tensor *b, eg_tensor *y);
/** grad_in[i] = factor * the sum of kind(dy, by) over the dimensions along which input i was broadcast. */
eg_status eg__grad_binary(eg_op_grad *grad, size_t i, eg__binary kind, const eg_tensor *dy, const eg_tensor *by,
                          double factor);

/** Fills a row-major mask with 0 (with probability p) and 1 / (1 - p); its element i is decided by number i of the
 *  context's stream from where that stands. */
void eg__draw_mask(eg_tensor *mask, double p);

/** A number of t, of a floating-point type, `at` elements behind the first. */
static inline double eg__number(const eg_tensor *t, int64_t at)
{
    return t->dtype == EG_F64    ? eg__f64(t)[at]
           : t->dtype == EG_BF16 ? (double)eg__bf16_to_f32(eg__bf16(t)[at])
                                 : (double)eg__f32(t)[at];
}
static inline void eg__set_number(eg_tensor *t, int64_t at, double value)
{
    if (t->dtype == EG_F64)
        eg__f64(t)[at] = value;
    else if (t->dtype == EG_BF16)
        eg__bf16(t)[at] = eg__bf16_of((float)value);
    else
        eg__f32(t)[at] = (float)value;
}
/** The number in a tensor of one element. */
static inline double eg__scalar(const eg_tensor *t)
{
    return eg__number(t, 0);
}

/** Product that stops at UINT64_MAX. */
static inline uint64_t eg__mul_saturated(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

#endif
