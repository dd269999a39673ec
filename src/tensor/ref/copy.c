/*
 * tensor/ref/copy.c - copies between any strides and types, and constants.
 */
#include "tensor/ref/ref.h"

double eg__ref_get(const eg_tensor *t, int64_t at)
{
    switch (t->dtype) {
    case EG_F32:
        return (double)eg__f32(t)[at];
    case EG_F64:
        return eg__f64(t)[at];
    case EG_I64:
        return (double)eg__i64(t)[at];
    case EG_U8:
        return (double)((const uint8_t *)eg__data(t))[at];
    case EG_BF16:
        return (double)eg__bf16_to_f32(eg__bf16(t)[at]);
    }
    return NAN;
}

/** Toward zero; what does not fit becomes the nearest number that does, NaN becomes 0. */
static int64_t to_integer(double value, int64_t low, int64_t high)
{
    if (isnan(value))
        return 0;
    if (value <= (double)low)
        return low;
    return value >= (double)high ? high : (int64_t)value;
}

static void set(eg_tensor *t, int64_t at, double value)
{
    switch (t->dtype) {
    case EG_F32:
        eg__f32(t)[at] = (float)value;
        break;
    case EG_F64:
        eg__f64(t)[at] = value;
        break;
    case EG_I64:
        eg__i64(t)[at] = to_integer(value, INT64_MIN, INT64_MAX);
        break;
    case EG_U8:
        ((uint8_t *)eg__data(t))[at] = (uint8_t)to_integer(value, 0, UINT8_MAX);
        break;
    case EG_BF16:
        eg__bf16(t)[at] = eg__bf16_of((float)value);
        break;
    }
}

eg_status eg__ref_copy(const eg_tensor *x, eg_tensor *y)
{
    if (x->dtype != y->dtype) {
        REF_EACH(i, y->shape)
        set(y, ref_at(y, i), eg__ref_get(x, ref_at(x, i)));
        return EG_OK;
    }
    /* bits as they are: a large int64 does not survive as a double */
    size_t size = eg_dtype_size(x->dtype);
    const char *from = eg__data(x);
    char *to = eg__data(y);
    REF_EACH(i, y->shape)
    memcpy(to + ref_at(y, i) * (int64_t)size, from + ref_at(x, i) * (int64_t)size, size);
    return EG_OK;
}

eg_status eg__ref_fill(eg_tensor *y, double value)
{
    REF_EACH(i, y->shape)
    set(y, ref_at(y, i), value);
    return EG_OK;
}
