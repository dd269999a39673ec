/*
 * Attention with linear biases (Press et al., "Train short, test long", ICLR 2022): what is further away counts less,
 * by a slope of each head.
 */
#include "nn/internal.h"

#include <math.h>
#include <stdlib.h>

/* For n = 2^k heads 2^(-8 / n), 2^(-16 / n), ..; else those of the next smaller power, and then every other one of the
 * next larger power. */
static double slope(int64_t head, int64_t n)
{
    int64_t power = 1;
    while (2 * power <= n)
        power *= 2;
    if (head < power)
        return exp2(-8.0 * (double)(head + 1) / (double)power);
    return exp2(-4.0 * (double)(2 * (head - power) + 1) / (double)power);
}

/* -slope |i - j|, of shape (heads, L, S). */
static eg_tensor *distances(eg_context *ctx, int64_t heads, int64_t length, int64_t others)
{
    eg_shape shape = EG_SHAPE(heads, length, others);
    int64_t n = eg_shape_numel(shape);
    if (n < 0) {
        eg_fail(EG_ESHAPE, "ALiBiAttention: too many positions");
        return NULL;
    }
    float *v = eg__calloc((size_t)n, sizeof(*v)), *at = v;
    for (int64_t h = 0; h < heads && v != NULL; h++) {
        double by = slope(h, heads);
        for (int64_t i = 0; i < length; i++) {
            for (int64_t j = 0; j < others; j++)
                *at++ = (float)(-by * fabs((double)(i - j)));
        }
    }
    eg_tensor *t = v != NULL ? eg_from_data(ctx, shape, v) : NULL;
    free(v);
    return t;
}

/* A mask as numbers that are added: what is left out is infinitely far away. */
static eg_tensor *as_numbers(eg_tensor *mask)
{
    if (mask->dtype != EG_U8)
        return mask;
    size_t n = (size_t)eg_tensor_numel(mask);
    float *v = eg__calloc(n, sizeof(*v));
    eg_tensor *t = NULL;
    if (v != NULL && eg_tensor_read(mask, v, n) == EG_OK) {
        for (size_t i = 0; i < n; i++)
            v[i] = v[i] != 0 ? 0 : -INFINITY;
        t = eg_from_data(mask->ctx, eg_tensor_shape(mask), v);
    }
    free(v);
    return t;
}

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    const eg_multihead_attention *a = (const eg_multihead_attention *)self;
    bool sized = (n_in == 1 || n_in == 3 || n_in == 4) && eg_tensor_ndim(in[0]) == 3 &&
                 (n_in == 1 || eg_tensor_ndim(in[1]) == 3);
    if (!sized) /* which it says */
        return eg_multihead_attention_class.forward(self, in, n_in);
    eg_tensor *key = n_in == 1 ? in[0] : in[1], *value = n_in == 1 ? in[0] : in[2];
    int dim = a->batch_first ? 1 : 0;
    int64_t length = eg_tensor_size(in[0], dim), others = eg_tensor_size(key, dim);
    bool shape_only = in[0]->storage == NULL;
    eg_tensor *bias = shape_only ? eg_shape_only(self->ctx, EG_SHAPE(a->num_heads, length, others))
                                 : distances(self->ctx, a->num_heads, length, others);
    if (n_in == 4 && !eg_is_none(in[3]) && !shape_only && bias != NULL)
        bias = eg_add(bias, as_numbers(in[3]));
    if (bias == NULL)
        return NULL;
    return eg_multihead_attention_class.forward(self, (eg_tensor *const[]){in[0], key, value, bias}, 4);
}

EG_NAMED_CLASS(eg_alibi_attention, "ALiBiAttention", .super = &eg_multihead_attention_class, .forward = forward,
               .n_inputs = EG_ANY_INPUTS);
