/*
 * tensor/internal.h - the tensor's struct, and the functions that only the library's own layers use.
 */
#ifndef EG_TENSOR_INTERNAL_H
#define EG_TENSOR_INTERNAL_H

#include "base/internal.h"
#include "engraft/tensor.h"

/** Numbers, shared by views. */
typedef struct eg__storage {
    size_t refs;
    eg_context *ctx;
    void *data;
    size_t bytes;
    uint64_t id;      /* unique in the context's life: with version, the key of packed copies; 0: none are kept */
    uint64_t version; /* grows with every change in place */
} eg__storage;

enum { EG__MAX_ITEMS = 1024 }; /* of a tuple */

typedef enum eg__tensor_kind { EG__DENSE, EG__NONE, EG__TUPLE } eg__tensor_kind;

struct eg_tensor {
    size_t refs;
    eg_context *ctx;
    eg__tensor_kind kind;
    eg_dtype dtype;
    eg_shape shape;
    int64_t strides[EG_MAX_DIMS]; /* in elements */
    int64_t offset;               /* in elements */
    eg__storage *storage;         /* NULL: shape-only, none or tuple */
    bool requires_grad;           /* of a leaf, or inherited from inputs */
    uint64_t tape_id;             /* which tape recorded it; 0 = a leaf */
    uint32_t node, out_index;     /* where on that tape */
    eg_tensor *grad;              /* leaf only, owned */
    eg_tensor **items;            /* tuple only, owned */
    size_t n_items;
    uint64_t trace_id; /* number given by the running trace; 0 = none */
};

/* Functions named eg__*_new return a reference that the caller owns (not the scope's). */
eg_tensor *eg__tensor_new(eg_context *ctx, eg_dtype dtype, eg_shape shape, eg_layout layout);
/** The same memory order as `like` (dense strides in its order of dimensions), own dtype. */
eg_tensor *eg__tensor_new_like(const eg_tensor *like);
eg_tensor *eg__tensor_new_like_as(const eg_tensor *like, eg_dtype dtype);
eg_tensor *eg__tensor_new_shape_only(eg_context *ctx, eg_dtype dtype, eg_shape shape, eg_layout layout);
/** A view of the same storage with other sizes, strides and offset (all in elements). Of shape-only tensors too.
 *  EINTERNAL when it reaches outside the storage; strides must not be negative. */
eg_tensor *eg__tensor_new_view(eg_tensor *t, eg_shape shape, const int64_t *strides, int64_t offset);

/** Gives the caller's reference to the innermost scope and returns t. NULL is passed through; on ENOMEM t is released
 *  and NULL returned. */
eg_tensor *eg__scope_add(eg_tensor *t);

/** Scopes inside a tape, one a module call. enter() returns SIZE_MAX on ENOMEM. leave() also ends scopes left open
 *  inside it and releases what they own, except `result` (and a tuple's items), which moves to the enclosing scope; a
 *  result that belongs to an outer scope stays there. leave(SIZE_MAX) does nothing. */
size_t eg__scope_enter(eg_context *ctx);
void eg__scope_leave(eg_context *ctx, size_t mark, eg_tensor *result);
/** Ends the innermost scope's reference to t early, if it holds one: t will not be used again by the caller. */
void eg__scope_drop(eg_tensor *t);

static inline void *eg__data(const eg_tensor *t)
{
    return (char *)t->storage->data + (size_t)t->offset * eg_dtype_size(t->dtype);
}
static inline float *eg__f32(const eg_tensor *t)
{
    return (float *)t->storage->data + t->offset;
}
static inline double *eg__f64(const eg_tensor *t)
{
    return (double *)t->storage->data + t->offset;
}
static inline int64_t *eg__i64(const eg_tensor *t)
{
    return (int64_t *)t->storage->data + t->offset;
}
static inline uint16_t *eg__bf16(const eg_tensor *t)
{
    return (uint16_t *)t->storage->data + t->offset;
}

static inline float eg__bf16_to_f32(uint16_t bits)
{
    union {
        uint32_t bits;
        float value;
    } u = {(uint32_t)bits << 16};
    return u.value;
}
/** The nearest bfloat16, of two the even one; NaN stays NaN (quiet). */
static inline uint16_t eg__bf16_of(float value)
{
    union {
        float value;
        uint32_t bits;
    } u = {value};
    uint32_t rounded = (u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16, nan = u.bits >> 16 | 0x40;
    return (uint16_t)((u.bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

/** Whether numbers of this type have gradients. */
static inline bool eg__is_float(eg_dtype dtype)
{
    return dtype == EG_F32 || dtype == EG_F64 || dtype == EG_BF16;
}
/** The type of what goes with activations of this type but is not stored as they are: parameters, statistics, masks. */
static inline eg_dtype eg__parameter_type(eg_dtype dtype)
{
    return dtype == EG_BF16 ? EG_F32 : dtype;
}

/** A borrowed row-major array seen as a tensor, for the kernels' copy: a plain value, never kept or released. */
typedef struct eg__borrowed {
    eg__storage storage;
    eg_tensor tensor;
} eg__borrowed;
eg_tensor *eg__borrow(eg__borrowed *b, const eg_tensor *like, eg_dtype dtype, void *data);

/** dst = src for equal shapes, any layout and type; does not touch. */
eg_status eg__tensor_copy_into(eg_tensor *dst, const eg_tensor *src);
/** Fails unless t holds numbers: not NULL, none, a tuple or shape-only. `what` names it in the message. */
eg_status eg__tensor_check_dense(const eg_tensor *t, const char *what);
/** Nobody else holds the tensor or its numbers, and each element has memory of its own: it may be changed in place. */
bool eg__is_exclusive(const eg_tensor *t);

/** Elements lie without gaps, in some order of dimensions (then element-wise kernels may run over memory). */
bool eg__is_dense(const eg_tensor *t);
/** Equal strides in every dimension of size > 1. */
bool eg__same_strides(const eg_tensor *a, const eg_tensor *b);
/** 4-d and dense in NHWC order. */
bool eg__is_channels_last(const eg_tensor *t);
bool eg__is_row_major(const eg_tensor *t);
/** The memory order that another tensor of t's shape should have: of 4 dimensions the default unless t is row-major and
 *  nothing else; of 3 channels-last where t is that and nothing else; else the default. */
eg_layout eg__layout_of(const eg_tensor *t);

/** (n, sample..): the shape of a batch of samples of fewer than EG_MAX_DIMS dimensions. */
eg_shape eg__batch_shape(eg_shape sample, int64_t n);
/** Strides of a dense tensor of this shape and layout. */
void eg__layout_strides(eg_shape shape, eg_layout layout, int64_t *strides);

#endif
