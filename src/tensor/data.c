/*
 * tensor/data.c - numbers in and out: filled tensors, plain C arrays in logical order, copies, printing.
 */
#include "tensor/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- copies ---- */

eg_status eg__tensor_copy_into(eg_tensor *dst, const eg_tensor *src)
{
    int64_t numel = eg_shape_numel(src->shape);
    if (numel == 0)
        return EG_OK;
    if (src->dtype == dst->dtype && eg__same_strides(src, dst) && eg__is_dense(src)) {
        memmove(eg__data(dst), eg__data(src), (size_t)numel * eg_dtype_size(src->dtype));
        return EG_OK;
    }
    /* one that covers both types: ref unless both are float32 or bfloat16 */
    return eg__kernels(dst->ctx, src->dtype == EG_F32 ? dst->dtype : src->dtype)->copy(src, dst);
}

static eg_status check_count(const eg_tensor *t, size_t n)
{
    int64_t numel = eg_shape_numel(t->shape);
    if ((uint64_t)numel == n)
        return EG_OK;
    char text[EG_SHAPE_TEXT_SIZE];
    return eg_fail(EG_ESHAPE, "tensor of shape %s has %lld elements, not %zu",
                   eg_shape_format(t->shape, text, sizeof text), (long long)numel, n);
}

static eg_status read_as(const eg_tensor *t, eg_dtype dtype, void *out, size_t n)
{
    EG_TRY(eg__tensor_check_dense(t, "tensor"));
    EG_TRY(check_count(t, n));
    eg__borrowed array;
    return eg__tensor_copy_into(eg__borrow(&array, t, dtype, out), t);
}

eg_status eg_tensor_read(const eg_tensor *t, float *out, size_t n)
{
    return read_as(t, EG_F32, out, n);
}

eg_status eg_tensor_read_i64(const eg_tensor *t, int64_t *out, size_t n)
{
    return read_as(t, EG_I64, out, n);
}

eg_status eg_tensor_write(eg_tensor *t, const float *data, size_t n)
{
    EG_TRY(eg__tensor_check_dense(t, "tensor"));
    EG_TRY(check_count(t, n));
    eg__borrowed array;
    EG_TRY(eg__tensor_copy_into(t, eg__borrow(&array, t, EG_F32, (void *)data)));
    eg_tensor_touch(t);
    return EG_OK;
}

eg_status eg_tensor_assign(eg_tensor *dst, const eg_tensor *src)
{
    EG_TRY(eg__tensor_check_dense(dst, "destination"));
    EG_TRY(eg__tensor_check_dense(src, "source"));
    if (!eg_shape_equal(dst->shape, src->shape)) {
        char a[EG_SHAPE_TEXT_SIZE], b[EG_SHAPE_TEXT_SIZE];
        return eg_fail(EG_ESHAPE, "source has shape %s, destination %s", eg_shape_format(src->shape, a, sizeof a),
                       eg_shape_format(dst->shape, b, sizeof b));
    }
    if (dst == src)
        return EG_OK;
    EG_TRY(eg__tensor_copy_into(dst, src));
    eg_tensor_touch(dst);
    return EG_OK;
}

/* Gives t to the scope when `status` is EG_OK, else lets it go. */
static eg_tensor *finish(eg_tensor *t, eg_status status)
{
    if (status == EG_OK)
        return eg__scope_add(t);
    eg_tensor_release(t);
    return NULL;
}

eg_tensor *eg_tensor_copy(const eg_tensor *t)
{
    if (!t)
        return eg__null(__func__, "tensor");
    if (t->kind == EG__NONE)
        return eg_none;
    if (t->kind == EG__TUPLE) {
        eg_fail(EG_EINVAL, "tensor is a tuple of %zu tensors, expected one tensor", t->n_items);
        return NULL;
    }
    eg_tensor *copy = eg__tensor_new_like(t);
    return copy ? finish(copy, t->storage ? eg__tensor_copy_into(copy, t) : EG_OK) : NULL;
}

static eg_tensor *detach_tuple(eg_tensor *t)
{
    eg_tensor **items = eg__calloc(t->n_items, sizeof *items);
    if (!items)
        return NULL;
    eg_tensor *tuple = NULL;
    size_t n = 0;
    while (n < t->n_items && (items[n] = eg_detach(t->items[n])))
        n++;
    if (n == t->n_items)
        tuple = eg_tuple(t->ctx, items, n);
    for (size_t i = 0; i < n; i++)
        eg__scope_drop(items[i]); /* the tuple holds them */
    free(items);
    return tuple;
}

eg_tensor *eg_detach(eg_tensor *t)
{
    if (!t)
        return eg__null(__func__, "tensor");
    if (t->kind == EG__NONE)
        return eg_none;
    if (t->kind == EG__TUPLE)
        return detach_tuple(t);
    return eg__scope_add(eg__tensor_new_view(t, t->shape, t->strides, t->offset));
}

/* ---- making ---- */

eg_tensor *eg_empty(eg_context *ctx, eg_dtype dtype, eg_shape shape, eg_layout layout)
{
    return eg__scope_add(eg__tensor_new(ctx, dtype, shape, layout));
}

eg_tensor *eg_shape_only(eg_context *ctx, eg_shape shape)
{
    return eg__scope_add(eg__tensor_new_shape_only(ctx, EG_F32, shape, EG_LAYOUT_DEFAULT));
}

static eg_tensor *new_f32(eg_context *ctx, eg_shape shape)
{
    return eg__tensor_new(ctx, EG_F32, shape, EG_LAYOUT_DEFAULT);
}

eg_tensor *eg_zeros(eg_context *ctx, eg_shape shape)
{
    eg_tensor *t = new_f32(ctx, shape);
    if (!t)
        return NULL;
    memset(t->storage->data, 0, t->storage->bytes);
    return finish(t, EG_OK);
}

eg_tensor *eg_ones(eg_context *ctx, eg_shape shape)
{
    return eg_full(ctx, shape, 1.0);
}

eg_tensor *eg_full(eg_context *ctx, eg_shape shape, double value)
{
    eg_tensor *t = new_f32(ctx, shape);
    if (!t)
        return NULL;
    float *data = eg__f32(t); /* dense: any order of elements will do */
    for (int64_t i = 0, n = eg_shape_numel(t->shape); i < n; i++)
        data[i] = (float)value;
    return finish(t, EG_OK);
}

/* Draws in logical order, whatever the order in memory. */
static eg_tensor *drawn(eg_context *ctx, eg_shape shape, double (*draw)(eg_rng *rng))
{
    eg_tensor *t = new_f32(ctx, shape);
    if (!t)
        return NULL;
    eg_rng *rng = eg_context_rng(ctx);
    float *data = eg__f32(t);
    int64_t at[EG_MAX_DIMS] = {0}, offset = 0;
    for (int64_t n = eg_shape_numel(t->shape); n > 0; n--) {
        data[offset] = (float)draw(rng);
        for (int dim = t->shape.ndim - 1; dim >= 0; dim--) {
            offset += t->strides[dim];
            if (++at[dim] < t->shape.dims[dim])
                break;
            offset -= at[dim] * t->strides[dim];
            at[dim] = 0;
        }
    }
    return finish(t, EG_OK);
}

eg_tensor *eg_randn(eg_context *ctx, eg_shape shape)
{
    return drawn(ctx, shape, eg_rng_normal);
}

/* Rounding a double to float may reach 1: keep the interval half open. */
static double uniform_float(eg_rng *rng)
{
    return EG_MIN(eg_rng_uniform(rng), 0x1.fffffep-1);
}

eg_tensor *eg_rand(eg_context *ctx, eg_shape shape)
{
    return drawn(ctx, shape, uniform_float);
}

eg_tensor *eg_from_data(eg_context *ctx, eg_shape shape, const float *data)
{
    eg_tensor *t = new_f32(ctx, shape);
    if (!t)
        return NULL;
    if (!data) {
        eg_tensor_release(t);
        return eg__null(__func__, "data");
    }
    return finish(t, eg_tensor_write(t, data, (size_t)eg_shape_numel(t->shape)));
}

eg_tensor *eg_from_labels(eg_context *ctx, size_t n, const int64_t *labels)
{
    if (!labels && n > 0)
        return eg__null(__func__, "labels");
    if (n > INT64_MAX / sizeof *labels) {
        eg_fail(EG_EINVAL, "%zu labels are too many", n);
        return NULL;
    }
    eg_tensor *t = eg__tensor_new(ctx, EG_I64, EG_SHAPE((int64_t)n), EG_LAYOUT_DEFAULT);
    if (t && n > 0)
        memcpy(t->storage->data, labels, n * sizeof *labels);
    return eg__scope_add(t);
}

/* ---- printing ---- */

static double number_at(const eg_tensor *t, int64_t offset)
{
    const char *p = (const char *)eg__data(t) + (size_t)offset * eg_dtype_size(t->dtype);
    switch (t->dtype) {
    case EG_F32:
        return (double)*(const float *)(const void *)p;
    case EG_I64:
        return (double)*(const int64_t *)(const void *)p;
    case EG_F64:
        return *(const double *)(const void *)p;
    case EG_U8:
        return (double)*(const unsigned char *)p;
    case EG_BF16:
        return (double)eg__bf16_to_f32(*(const uint16_t *)(const void *)p);
    }
    return NAN;
}

/* One bracketed block: dimension `dim` from element `offset` on. */
static void print_block(const eg_tensor *t, int dim, int64_t offset, FILE *out)
{
    if (dim == t->shape.ndim) {
        fprintf(out, "%.6g", number_at(t, offset));
        return;
    }
    bool last = dim == t->shape.ndim - 1;
    fputc('[', out);
    for (int64_t i = 0; i < t->shape.dims[dim]; i++) {
        if (i > 0 && last)
            fputs(", ", out);
        else if (i > 0)
            fprintf(out, ",\n%*s", dim + 1, "");
        print_block(t, dim + 1, offset + i * t->strides[dim], out);
    }
    fputc(']', out);
}

eg_status eg_tensor_print(const eg_tensor *t, FILE *out)
{
    if (!t || !out) {
        eg__null(__func__, t ? "file" : "tensor");
        return eg_error_last()->code;
    }
    char text[EG_SHAPE_TEXT_SIZE];
    if (t->kind == EG__NONE)
        fputs("none\n", out);
    else if (t->kind == EG__TUPLE)
        fprintf(out, "tuple of %zu\n", t->n_items);
    else
        fprintf(out, "%s %s%s\n", eg_dtype_name(t->dtype), eg_shape_format(t->shape, text, sizeof text),
                t->storage ? "" : " (shape only)");
    for (size_t i = 0; i < t->n_items; i++)
        EG_TRY(eg_tensor_print(t->items[i], out));
    int64_t numel = eg_tensor_numel(t); /* 0: sizes around the 0 may be huge, and there is nothing to show */
    if (t->storage && numel > 0) {
        if (numel <= 1024)
            print_block(t, 0, 0, out);
        else
            fprintf(out, "%lld numbers", (long long)numel);
        fputc('\n', out);
    }
    EG_CHECK(!ferror(out), EG_EIO, "cannot print the tensor");
    return EG_OK;
}
