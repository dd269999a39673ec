/*
 * tensor/shape.c - types, shapes, and the order of elements in memory.
 */
#include "tensor/state.h"

#include <string.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [EG_F32] = {"float32", 4}, [EG_I64] = {"int64", 8},     [EG_F64] = {"float64", 8},
    [EG_U8] = {"uint8", 1},    [EG_BF16] = {"bfloat16", 2},
};

const char *eg_dtype_name(eg_dtype dtype)
{
    return (unsigned)dtype < EG_COUNT(dtypes) ? dtypes[dtype].name : "unknown type";
}

size_t eg_dtype_size(eg_dtype dtype)
{
    return (unsigned)dtype < EG_COUNT(dtypes) ? dtypes[dtype].size : 0;
}

bool eg_shape_equal(eg_shape a, eg_shape b)
{
    if (a.ndim != b.ndim || a.ndim > EG_MAX_DIMS)
        return false;
    for (int i = 0; i < a.ndim; i++)
        if (a.dims[i] != b.dims[i])
            return false;
    return true;
}

int64_t eg_shape_numel(eg_shape shape)
{
    if (shape.ndim < 0 || shape.ndim > EG_MAX_DIMS)
        return -1;
    int64_t numel = 1, product = 1; /* the product without zeros must fit too: strides are made of it */
    for (int i = 0; i < shape.ndim; i++) {
        if (shape.dims[i] < 0)
            return -1;
        int64_t factor = EG_MAX(shape.dims[i], 1);
        if (product > INT64_MAX / factor)
            return -1;
        product *= factor;
        numel *= shape.dims[i];
    }
    return numel;
}

const char *eg_shape_format(eg_shape shape, char *text, size_t size)
{
    if (!text)
        return eg__null(__func__, "text");
    eg_shape s = shape;
    s.ndim = EG_MAX(0, EG_MIN(s.ndim, EG_MAX_DIMS));
    size_t used = 0;
    for (int i = -1; i <= s.ndim && used < size; i++) {
        int n;
        if (i < 0 || i == s.ndim)
            n = snprintf(text + used, size - used, "%s", i < 0 ? "(" : ")");
        else
            n = snprintf(text + used, size - used, "%s%lld", i ? ", " : "", (long long)s.dims[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    return text;
}

void eg__layout_strides(eg_shape shape, eg_layout layout, int64_t *strides)
{
    int64_t stride = 1;
    bool last = layout == EG_LAYOUT_DEFAULT ? shape.ndim == 4 : layout == EG_LAYOUT_CHANNELS_LAST && shape.ndim > 2;
    memset(strides, 0, EG_MAX_DIMS * sizeof *strides);
    for (int i = 0; i < shape.ndim; i++) { /* innermost first: 1, then the others from the last one on */
        int dim = shape.ndim - 1 - i;
        if (last && dim != 0)
            dim = i == 0 ? 1 : dim + 1;
        strides[dim] = stride;
        stride *= EG_MAX(shape.dims[dim], 1);
    }
}

static bool has_layout(const eg_tensor *t, eg_layout layout)
{
    int64_t strides[EG_MAX_DIMS];
    eg__layout_strides(t->shape, layout, strides);
    for (int i = 0; i < t->shape.ndim; i++)
        if (t->shape.dims[i] > 1 && t->strides[i] != strides[i])
            return false;
    return true;
}

bool eg__is_row_major(const eg_tensor *t)
{
    return has_layout(t, EG_LAYOUT_ROW_MAJOR);
}

bool eg__is_channels_last(const eg_tensor *t)
{
    return t->shape.ndim == 4 && has_layout(t, EG_LAYOUT_DEFAULT);
}

eg_layout eg__layout_of(const eg_tensor *t)
{
    if (t->shape.ndim == 4)
        return has_layout(t, EG_LAYOUT_ROW_MAJOR) && !has_layout(t, EG_LAYOUT_DEFAULT) ? EG_LAYOUT_ROW_MAJOR
                                                                                       : EG_LAYOUT_DEFAULT;
    bool last = t->shape.ndim == 3 && has_layout(t, EG_LAYOUT_CHANNELS_LAST) && !has_layout(t, EG_LAYOUT_ROW_MAJOR);
    return last ? EG_LAYOUT_CHANNELS_LAST : EG_LAYOUT_DEFAULT;
}

/* The dimensions of size > 1 from the innermost outwards; how many. */
static int memory_order(const eg_tensor *t, int *order)
{
    int n = 0;
    for (int dim = t->shape.ndim - 1; dim >= 0; dim--) {
        if (t->shape.dims[dim] <= 1)
            continue;
        int at = n++;
        for (; at > 0 && t->strides[order[at - 1]] > t->strides[dim]; at--)
            order[at] = order[at - 1];
        order[at] = dim;
    }
    return n;
}

bool eg__is_dense(const eg_tensor *t)
{
    int order[EG_MAX_DIMS], n = memory_order(t, order);
    int64_t stride = 1;
    for (int i = 0; i < n; i++) {
        if (t->strides[order[i]] != stride)
            return false;
        stride *= t->shape.dims[order[i]];
    }
    return true;
}

bool eg__same_strides(const eg_tensor *a, const eg_tensor *b)
{
    if (a->shape.ndim != b->shape.ndim)
        return false;
    for (int i = 0; i < a->shape.ndim; i++)
        if (a->shape.dims[i] > 1 && a->strides[i] != b->strides[i])
            return false;
    return true;
}

void eg__like_strides(const eg_tensor *like, int64_t *strides)
{
    int order[EG_MAX_DIMS], n = memory_order(like, order);
    eg__layout_strides(like->shape, EG_LAYOUT_DEFAULT, strides);
    if (n > 0 && like->strides[order[0]] == 0)
        return; /* an expanded tensor has no order of its own */
    if (has_layout(like, EG_LAYOUT_DEFAULT))
        return;
    eg__layout_strides(like->shape, EG_LAYOUT_ROW_MAJOR, strides);
    if (has_layout(like, EG_LAYOUT_ROW_MAJOR))
        return;
    int64_t stride = 1;
    for (int i = 0; i < n; i++) {
        strides[order[i]] = stride;
        stride *= like->shape.dims[order[i]];
    }
}

eg_shape eg__batch_shape(eg_shape sample, int64_t n)
{
    eg_shape batch = {.ndim = sample.ndim + 1, .dims = {n}};
    memcpy(batch.dims + 1, sample.dims, (size_t)sample.ndim * sizeof(*sample.dims));
    return batch;
}
