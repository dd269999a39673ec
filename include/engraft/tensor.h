/** @file
 * engraft/tensor.h - arrays of numbers.
 *
 * Dimensions are in PyTorch's logical order (N, C, H, W). In memory a 4-d activation is channels-last (NHWC): the
 * strides say so, and functions that copy to and from plain C arrays speak the logical order. Every tensor that a
 * function here returns belongs to the current tape or scope; eg_tensor_keep() takes it out. NULL in, NULL out: the
 * first failure's message is kept.
 */
#ifndef ENGRAFT_TENSOR_H
#define ENGRAFT_TENSOR_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** An array of numbers, a shape without numbers, a tuple of tensors, or eg_none. */
typedef struct eg_tensor eg_tensor;

/** The most dimensions that a tensor has. */
#define EG_MAX_DIMS 6

/** Types of numbers. */
typedef enum eg_dtype {
    EG_F32, /**< activations, parameters */
    EG_I64, /**< labels, indices */
    EG_F64, /**< for gradient checks; reference kernels only */
    EG_U8,  /* workspaces */
    EG_BF16 /**< bfloat16, the upper half of a float32: activations and their gradients, see eg_context_set_precision()
             */
} eg_dtype;
/** "float32", ..; "unknown type" for a number that is none. Never NULL. */
EG_API const char *eg_dtype_name(eg_dtype dtype);
/** Bytes of one number; 0 for a number that is no type. */
EG_API size_t eg_dtype_size(eg_dtype dtype);

/** Sizes of 0 to EG_MAX_DIMS dimensions, a plain value. Entries past ndim are 0. */
typedef struct eg_shape {
    int64_t dims[EG_MAX_DIMS];
    int ndim;
} eg_shape;
/** EG_SHAPE(64, 3, 32, 32); also for lists of dimensions, such as EG_SHAPE(2, 3). */
#define EG_SHAPE(...)                                                                                                  \
    ((eg_shape){.dims = {__VA_ARGS__}, .ndim = (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))})
/** The shape of a single number. */
#define EG_SCALAR ((eg_shape){.ndim = 0})
/** Whether both have the same sizes. */
EG_API bool eg_shape_equal(eg_shape a, eg_shape b);
/** Number of elements; -1 when a size is negative or the product overflows. */
EG_API int64_t eg_shape_numel(eg_shape shape);
/** Writes "(64, 3, 32, 32)" into `text` of `size` bytes and returns it; NULL and EINVAL when it is NULL. */
EG_API const char *eg_shape_format(eg_shape shape, char *text, size_t size);
/** Room for any shape's text. */
#define EG_SHAPE_TEXT_SIZE 160

/** The order of the numbers in memory. */
typedef enum eg_layout {
    EG_LAYOUT_DEFAULT, /**< 4-d: channels-last; else row-major */
    EG_LAYOUT_ROW_MAJOR,
    EG_LAYOUT_CHANNELS_LAST /**< dimension 1 innermost, from 3 dimensions on; else row-major */
} eg_layout;

/** The value of a choice that selected nothing, and of an optional input that is absent (a bias). Not NULL, which is a
 *  failure. eg_add, eg_add_n, eg_weighted_sum and eg_concat leave it out; other operations refuse it by name.
 *  Reference counting ignores it. */
EG_API extern eg_tensor *const eg_none;
/** Whether t is eg_none. False for NULL. */
EG_API bool eg_is_none(const eg_tensor *t);

/* ---- making tensors: float32 unless said, channels-last where 4-d. EINVAL for more than EG_MAX_DIMS dimensions,
 * negative sizes and more elements than can be counted; ENOMEM ---- */

/** All 0. */
EG_API eg_tensor *eg_zeros(eg_context *ctx, eg_shape shape);
/** All 1. */
EG_API eg_tensor *eg_ones(eg_context *ctx, eg_shape shape);
/** All `value`. */
EG_API eg_tensor *eg_full(eg_context *ctx, eg_shape shape, double value);
/** Standard normal, drawn from the context's stream in logical order. */
EG_API eg_tensor *eg_randn(eg_context *ctx, eg_shape shape);
/** Uniform in [0, 1), likewise. */
EG_API eg_tensor *eg_rand(eg_context *ctx, eg_shape shape);
/** Copies `data` (in logical row-major order; N, C, H, W). */
EG_API eg_tensor *eg_from_data(eg_context *ctx, eg_shape shape, const float *data);
/** int64 (n), copied. */
EG_API eg_tensor *eg_from_labels(eg_context *ctx, size_t n, const int64_t *labels);
/** A tensor that has a shape but no numbers: running a model on it computes shapes, parameters and MACs only. */
EG_API eg_tensor *eg_shape_only(eg_context *ctx, eg_shape shape);
/** Uninitialized memory of any type and layout. */
EG_API eg_tensor *eg_empty(eg_context *ctx, eg_dtype dtype, eg_shape shape, eg_layout layout);
/** Several tensors as one value: what a module with several outputs returns. At most 1024 (EINVAL), eg_none among them
 *  allowed. */
EG_API eg_tensor *eg_tuple(eg_context *ctx, eg_tensor *const *items, size_t n);

/* ---- precision ---- */

/** The type of the activations that modules compute with: EG_F32 (as a context begins) or EG_BF16. With EG_BF16 the
 *  outermost module call casts its float32 inputs to bfloat16 and what it returns back to float32; operations within
 *  store activations and their gradients in bfloat16, at half the memory, and compute convolutions and matrix products
 *  from weights rounded to it, with float32 sums. Parameters, their gradients, statistics of normalizations and all
 *  that comes after the outermost call (losses, optimizers) are float32, as with torch.autocast.
 *
 *  EUNSUPPORTED, naming what there is, without a processor that multiplies bfloat16 numbers (AVX512-BF16 or AMX):
 *  elsewhere it would only be slow. With EG_BF16=emulate in the environment when the context is made it is allowed
 *  everywhere and computes by float32 kernels, to the same roundings: for tests. EINVAL for other types. */
EG_API eg_status eg_context_set_precision(eg_context *ctx, eg_dtype precision);
/** EG_F32 for NULL. */
EG_API eg_dtype eg_context_precision(const eg_context *ctx);

/* ---- looking at them ---- */

/** NULL for NULL and eg_none. Lent. */
EG_API eg_context *eg_tensor_context(const eg_tensor *t);
/** EG_F32 for NULL, eg_none and tuples. */
EG_API eg_dtype eg_tensor_dtype(const eg_tensor *t);
/** Shape of a tensor; ndim 0 for NULL, eg_none and tuples. */
EG_API eg_shape eg_tensor_shape(const eg_tensor *t);
/** Number of dimensions; 0 likewise. */
EG_API int eg_tensor_ndim(const eg_tensor *t);
/** Size of dimension `dim`; negative counts from the end. -1 and EINVAL when out of range. */
EG_API int64_t eg_tensor_size(const eg_tensor *t, int dim);
/** Number of elements; 0 for NULL, eg_none and tuples. */
EG_API int64_t eg_tensor_numel(const eg_tensor *t);
/** The first element in memory; element (i, j, ..) lies at i * strides[0] + j * strides[1] + .. elements. NULL for a
 *  shape-only tensor. Call eg_tensor_touch() after writing through it. */
EG_API void *eg_tensor_data(const eg_tensor *t);
/** One for each dimension, in elements; zeros for NULL, eg_none and tuples. Never NULL. Lent. */
EG_API const int64_t *eg_tensor_strides(const eg_tensor *t);
/** Says that the numbers were changed, so that packed copies of a weight are made anew. */
EG_API void eg_tensor_touch(eg_tensor *t);
/** Whether it has a shape but no numbers. */
EG_API bool eg_tensor_is_shape_only(const eg_tensor *t);
/** Whether it is a tuple (also of one). */
EG_API bool eg_tensor_is_tuple(const eg_tensor *t);
/** Number of items of a tuple; 1 for a tensor, 0 for eg_none and NULL. */
EG_API size_t eg_tuple_size(const eg_tensor *t);
/** Item i of a tuple (item 0 of a plain tensor is the tensor itself). NULL and EINVAL when out of range. Lent. */
EG_API eg_tensor *eg_tuple_get(const eg_tensor *t, size_t i);
/** The number in a tensor of one element. NaN and a failure otherwise (also for NULL). */
EG_API double eg_tensor_item(const eg_tensor *t);
/** Copies all numbers out as float, in logical row-major order. ESHAPE unless n is the number of elements; EINVAL for
 *  what has no numbers (eg_none, tuples, shape-only tensors), as in the functions below. */
EG_API eg_status eg_tensor_read(const eg_tensor *t, float *out, size_t n);
/** The same as int64. */
EG_API eg_status eg_tensor_read_i64(const eg_tensor *t, int64_t *out, size_t n);
/** Copies numbers in, in logical row-major order, and touches the tensor. ESHAPE unless n is the number of elements. */
EG_API eg_status eg_tensor_write(eg_tensor *t, const float *data, size_t n);
/** dst = src, for equal shapes (else ESHAPE) of any layout and type; touches dst. Not recorded. */
EG_API eg_status eg_tensor_assign(eg_tensor *dst, const eg_tensor *src);
/** A fresh tensor with the same numbers, not connected to the tape. EINVAL for a tuple. */
EG_API eg_tensor *eg_tensor_copy(const eg_tensor *t);
/** The same numbers (shared) without their history. */
EG_API eg_tensor *eg_detach(eg_tensor *t);
/** Prints type and shape and, up to 1024, the numbers; the items of a tuple one by one. EIO. */
EG_API eg_status eg_tensor_print(const eg_tensor *t, FILE *out);

/* ---- owning them ---- */

/** Takes a tensor out of its scope: the caller has a reference and ends it with eg_tensor_release(). Returns `t`. */
EG_API eg_tensor *eg_tensor_keep(eg_tensor *t);
/** Ends a reference taken with eg_tensor_keep(). NULL and eg_none are allowed. */
EG_API void eg_tensor_release(eg_tensor *t);

/* ---- gradients ---- */

/** Whether eg_backward() computes its gradient: a leaf that was told so, or the result of a recorded operation. */
EG_API bool eg_tensor_requires_grad(const eg_tensor *t);
/** Makes a leaf (a parameter) take part in differentiation, or not. EINVAL for the result of a recorded operation,
 *  EDTYPE for integers. */
EG_API eg_status eg_tensor_set_requires_grad(eg_tensor *t, bool requires_grad);
/** The gradient accumulated in a leaf by eg_backward(), of the same shape and layout. NULL (no error) when there is
 *  none. Lent. */
EG_API eg_tensor *eg_tensor_grad(const eg_tensor *t);
/** Drops the gradient (the next backward starts from none). */
EG_API void eg_tensor_zero_grad(eg_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
