/*
 * tensor/ref/ref.h - what the reference kernels share: walking over logical indices, and the two typed tables.
 *
 * The kernels are written once, in the .inc files, for a type named `real`; f32.c and f64.c include them all. Every sum
 * is accumulated in double and every kernel reads its tensors through their strides, so that any view will do.
 */
#ifndef EG_TENSOR_REF_REF_H
#define EG_TENSOR_REF_REF_H

#include "tensor/kernels.h"

#include <math.h>
#include <string.h>

extern const eg_kernels eg__ref_f32_kernels;
extern const eg_kernels eg__ref_f64_kernels;

/* Kernels that need no `real`. */
eg_status eg__ref_copy(const eg_tensor *x, eg_tensor *y);
eg_status eg__ref_fill(eg_tensor *y, double value);

/* Kernels that are made of others of this table. */
eg_status eg__ref_norm_add(const eg__norm_term *t, const eg_tensor *sum, eg_tensor *y);
eg_status eg__ref_norm_add_backward(const eg__norm_term *t, const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma,
                                    eg_tensor *dbeta, double *dweight);

/** An element of any type as a number; `at` counts elements from the tensor's first. */
double eg__ref_get(const eg_tensor *t, int64_t at);

/** The value of a unary operation at x, and its derivative from x or y (see eg__unary_saves_output). */
double eg__ref_unary(eg__unary op, double a, double b, double x);
double eg__ref_unary_slope(eg__unary op, double a, double b, double saved);

/** Where the element of this index lies, in elements from the tensor's first. */
static inline int64_t ref_at(const eg_tensor *t, const int64_t *index)
{
    int64_t at = 0;
    for (int d = 0; d < t->shape.ndim; d++)
        at += index[d] * t->strides[d];
    return at;
}

static inline int64_t ref_at2(const eg_tensor *t, int64_t i, int64_t j)
{
    return i * t->strides[0] + j * t->strides[1];
}

static inline int64_t ref_at4(const eg_tensor *t, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return n * t->strides[0] + c * t->strides[1] + h * t->strides[2] + w * t->strides[3];
}

/** Steps to the next index in logical order, the last dimension fastest. */
static inline void ref_next(eg_shape shape, int64_t *index)
{
    for (int d = shape.ndim - 1; d >= 0; d--) {
        if (++index[d] < shape.dims[d])
            return;
        index[d] = 0;
    }
}

/** for (every `index` of `shape`, in logical order) */
#define REF_EACH(index, shape)                                                                                         \
    for (int64_t index##_left = eg_shape_numel(shape), index[EG_MAX_DIMS] = {0}; index##_left > 0;                     \
         index##_left--, ref_next(shape, index))

/** The shape without dimension `dim` (size 1 there): the other loops around one along `dim`. */
static inline eg_shape ref_without(eg_shape shape, int dim)
{
    shape.dims[dim] = 1;
    return shape;
}

#endif
