/*
 * tensor/cpu/adaptive.c - adaptive average pooling of channels-last tensors: output (oh, ow) is the mean of the input
 * rows floor(oh H / OH) .. ceil((oh + 1) H / OH) - 1 and of columns likewise. A sample is one piece of work.
 */
#include "tensor/cpu/cpu.h"

#include <string.h>

typedef struct adaptive {
    const float *in;
    float *out;
    int64_t channels, size[2], cells[2]; /* of the large side, of the pooled side */
} adaptive;

typedef struct region {
    int64_t begin[2], end[2];
    float share;
} region;

static region region_of(const adaptive *a, int64_t oh, int64_t ow)
{
    region r = {.begin = {oh * a->size[0] / a->cells[0], ow * a->size[1] / a->cells[1]}};
    r.end[0] = ((oh + 1) * a->size[0] + a->cells[0] - 1) / a->cells[0];
    r.end[1] = ((ow + 1) * a->size[1] + a->cells[1] - 1) / a->cells[1];
    r.share = 1.0f / (float)((r.end[0] - r.begin[0]) * (r.end[1] - r.begin[1]));
    return r;
}

EG__CLONES static void mean_region(const adaptive *a, const region *r, const float *x, float *restrict y)
{
    int64_t channels = a->channels;
    memset(y, 0, (size_t)channels * sizeof(float));
    for (int64_t h = r->begin[0]; h < r->end[0]; h++)
        for (int64_t w = r->begin[1]; w < r->end[1]; w++) {
            const float *restrict from = x + (h * a->size[1] + w) * channels;
#pragma omp simd
            for (int64_t c = 0; c < channels; c++)
                y[c] += from[c];
        }
#pragma omp simd
    for (int64_t c = 0; c < channels; c++)
        y[c] *= r->share;
}

EG__CLONES static void spread_region(const adaptive *a, const region *r, const float *restrict dy, float *dx)
{
    int64_t channels = a->channels;
    float share = r->share;
    for (int64_t h = r->begin[0]; h < r->end[0]; h++)
        for (int64_t w = r->begin[1]; w < r->end[1]; w++) {
            float *restrict to = dx + (h * a->size[1] + w) * channels;
#pragma omp simd
            for (int64_t c = 0; c < channels; c++)
                to[c] += share * dy[c];
        }
}

static void mean_samples(void *arg, int64_t begin, int64_t end)
{
    const adaptive *a = arg;
    int64_t large = a->size[0] * a->size[1] * a->channels, small = a->cells[0] * a->cells[1];
    for (int64_t i = begin * small; i < end * small; i++) {
        region r = region_of(a, i % small / a->cells[1], i % a->cells[1]);
        mean_region(a, &r, a->in + i / small * large, a->out + i * a->channels);
    }
}

static void spread_samples(void *arg, int64_t begin, int64_t end)
{
    const adaptive *a = arg;
    int64_t large = a->size[0] * a->size[1] * a->channels, small = a->cells[0] * a->cells[1];
    memset(a->out + begin * large, 0, (size_t)((end - begin) * large) * sizeof(float));
    for (int64_t i = begin * small; i < end * small; i++) {
        region r = region_of(a, i % small / a->cells[1], i % a->cells[1]);
        spread_region(a, &r, a->in + i * a->channels, a->out + i / small * large);
    }
}

static eg_status run(const eg_tensor *in, eg_tensor *out, const eg_tensor *large, const eg_tensor *small, eg__body body)
{
    eg_tensor *owned_in = NULL, *owned_out = NULL;
    const eg_tensor *from = eg__in_channels_last(in, &owned_in);
    eg_tensor *to = from ? eg__out_channels_last(out, &owned_out) : NULL;
    if (to) {
        const int64_t *size = large->shape.dims, *cells = small->shape.dims;
        adaptive a = {eg__f32(from), eg__f32(to), size[1], {size[2], size[3]}, {cells[2], cells[3]}};
        eg__for_each(in->ctx, size[0], eg_shape_numel(large->shape), body, &a);
    }
    eg_tensor_release(owned_in);
    return eg__out_finish(to ? EG_OK : EG_ENOMEM, out, owned_out);
}

eg_status eg__cpu_adaptive_avg_pool2d(const eg_tensor *x, eg_tensor *y)
{
    if (eg_shape_numel(x->shape) == 0)
        return eg__ref_kernels.adaptive_avg_pool2d(x, y);
    return run(x, y, x, y, mean_samples);
}

eg_status eg__cpu_adaptive_avg_pool2d_backward(const eg_tensor *dy, eg_tensor *dx)
{
    if (eg_shape_numel(dy->shape) == 0)
        return eg__ref_kernels.adaptive_avg_pool2d_backward(dy, dx);
    return run(dy, dx, dx, dy, spread_samples);
}
