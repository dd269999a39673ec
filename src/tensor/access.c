/*
 * tensor/access.c - looking at tensors, and at their gradients.
 */
#include "tensor/internal.h"

#include <math.h>

eg_status eg__tensor_check_dense(const eg_tensor *t, const char *what)
{
    if (!t) {
        eg__null("tensor", what);
        return eg_error_last()->code;
    }
    EG_CHECK(t->kind != EG__NONE, EG_EINVAL, "%s is none (a choice that selected nothing)", what);
    EG_CHECK(t->kind != EG__TUPLE, EG_EINVAL, "%s is a tuple of %zu tensors, expected one tensor", what, t->n_items);
    EG_CHECK(t->storage, EG_EINVAL, "%s has a shape only, no numbers", what);
    return EG_OK;
}

bool eg__is_exclusive(const eg_tensor *t)
{
    return t->refs == 1 && t->storage && t->storage->refs == 1 && eg__is_dense(t);
}

eg_context *eg_tensor_context(const eg_tensor *t)
{
    return t ? t->ctx : NULL;
}

eg_dtype eg_tensor_dtype(const eg_tensor *t)
{
    return t ? t->dtype : EG_F32;
}

eg_shape eg_tensor_shape(const eg_tensor *t)
{
    return t && t->kind == EG__DENSE ? t->shape : EG_SCALAR;
}

int eg_tensor_ndim(const eg_tensor *t)
{
    return eg_tensor_shape(t).ndim;
}

int64_t eg_tensor_size(const eg_tensor *t, int dim)
{
    if (!t) {
        eg__null(__func__, "tensor");
        return -1;
    }
    int ndim = eg_tensor_ndim(t);
    if (dim < -ndim || dim >= ndim) {
        eg_fail(EG_EINVAL, "dimension %d is out of range for a tensor of %d dimensions", dim, ndim);
        return -1;
    }
    return t->shape.dims[dim < 0 ? dim + ndim : dim];
}

int64_t eg_tensor_numel(const eg_tensor *t)
{
    return t && t->kind == EG__DENSE ? eg_shape_numel(t->shape) : 0;
}

void *eg_tensor_data(const eg_tensor *t)
{
    return t && t->storage ? eg__data(t) : NULL;
}

const int64_t *eg_tensor_strides(const eg_tensor *t)
{
    return t ? t->strides : eg_none->strides;
}

void eg_tensor_touch(eg_tensor *t)
{
    if (t && t->storage)
        t->storage->version++;
}

bool eg_tensor_is_shape_only(const eg_tensor *t)
{
    return t && t->kind == EG__DENSE && !t->storage;
}

bool eg_tensor_is_tuple(const eg_tensor *t)
{
    return t && t->kind == EG__TUPLE;
}

size_t eg_tuple_size(const eg_tensor *t)
{
    if (!t || t->kind == EG__NONE)
        return 0;
    return t->kind == EG__TUPLE ? t->n_items : 1;
}

eg_tensor *eg_tuple_get(const eg_tensor *t, size_t i)
{
    if (!t)
        return eg__null(__func__, "tuple");
    if (i >= eg_tuple_size(t)) {
        eg_fail(EG_EINVAL, "item %zu is out of range for a tuple of %zu", i, eg_tuple_size(t));
        return NULL;
    }
    return t->kind == EG__TUPLE ? t->items[i] : (eg_tensor *)t;
}

double eg_tensor_item(const eg_tensor *t)
{
    if (eg__tensor_check_dense(t, "tensor") != EG_OK)
        return NAN;
    if (eg_shape_numel(t->shape) != 1) {
        char text[EG_SHAPE_TEXT_SIZE];
        eg_fail(EG_ESHAPE, "tensor has shape %s, expected one element", eg_shape_format(t->shape, text, sizeof text));
        return NAN;
    }
    switch (t->dtype) {
    case EG_F32:
        return (double)*eg__f32(t);
    case EG_I64:
        return (double)*eg__i64(t);
    case EG_F64:
        return *eg__f64(t);
    case EG_U8:
        return (double)*(const uint8_t *)eg__data(t);
    case EG_BF16:
        return (double)eg__bf16_to_f32(*eg__bf16(t));
    }
    return NAN;
}

/* ---- gradients ---- */

bool eg_tensor_requires_grad(const eg_tensor *t)
{
    return t && t->requires_grad;
}

eg_status eg_tensor_set_requires_grad(eg_tensor *t, bool requires_grad)
{
    EG_TRY(eg__tensor_check_dense(t, "tensor"));
    EG_CHECK(t->tape_id == 0, EG_EINVAL,
             "tensor is the result of a recorded operation; eg_detach() makes a leaf of it");
    EG_CHECK(!requires_grad || eg__is_float(t->dtype), EG_EDTYPE,
             "tensor is %s; only floating-point tensors have gradients", eg_dtype_name(t->dtype));
    t->requires_grad = requires_grad;
    return EG_OK;
}

eg_tensor *eg_tensor_grad(const eg_tensor *t)
{
    return t ? t->grad : NULL;
}

void eg_tensor_zero_grad(eg_tensor *t)
{
    if (!t || !t->grad)
        return;
    eg_tensor_release(t->grad);
    t->grad = NULL;
}
