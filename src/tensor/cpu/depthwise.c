/*
 * tensor/cpu/depthwise.c - gradients of depthwise filters (one a channel), channels-last. oneDNN 2.6 has no kernel of
 * its own for the dilated ones, nor for those larger than 3x3: it takes its dense kernels group by group, a hundred
 * times slower.
 *
 * As in pooling, one tap of the filters meets an output row as lines. Lines are cut into pieces of at least LONG
 * numbers, for which the tap's sums are repeated side by side, so that few channels fill the vectors too. A sample
 * is one piece of work.
 */
#include "tensor/cpu/depthwise.h"

#include <string.h>

#define LONG 64
#define JOINED 64

EG__CLONES static void add_products(float *restrict dw, const float *restrict x, const float *restrict dy, int64_t n,
                                    int64_t width)
{
    int64_t at = 0;
    for (; at + 4 * width <= n; at += 4 * width) {
        const float *restrict a = x + at, *restrict b = dy + at;
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            dw[i] += (a[i] * b[i] + a[i + width] * b[i + width]) +
                     (a[i + 2 * width] * b[i + 2 * width] + a[i + 3 * width] * b[i + 3 * width]);
    }
    for (; at < n; at += width) {
        int64_t left = EG_MIN(width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            dw[i] += x[at + i] * dy[at + i];
    }
}

/* One output row. */
static void add_row(const eg__depthwise *d, float *weights, int64_t n, int64_t oh)
{
    const eg__plane *p = &d->plane;
    int64_t channels = p->channels, stride = p->win->stride[1], y_row = (n * p->out[0] + oh) * p->out[1];
    for (int64_t tap = 0; tap < d->taps; tap++) {
        int64_t kh = tap / p->win->kernel[1],
                x_row = (n * p->in[0] + oh * p->win->stride[0] + p->rows[kh].first) * p->in[1];
        eg__span columns = p->columns[tap % p->win->kernel[1]];
        int64_t step = stride == 1 ? columns.end - columns.begin : 1; /* outputs a line */
        for (int64_t o = columns.begin; eg__meets(p, kh, oh) && o < columns.end; o += step) {
            int64_t x_at = (x_row + o * stride + columns.first) * channels, y_at = (y_row + o) * channels;
            add_products(weights + tap * d->width, d->x + x_at, d->dy + y_at, step * channels, d->width);
        }
    }
}

static void weight_samples(void *arg, int64_t begin, int64_t end)
{
    const eg__depthwise *d = arg;
    int64_t numbers = d->taps * d->width;
    if (eg__depthwise_fills_vectors(&d->plane)) {
        for (int64_t n = begin; n < end; n++)
            eg__depthwise_sample_gradient(d, n, d->weights + n * numbers);
        return;
    }
    memset(d->weights + begin * numbers, 0, (size_t)((end - begin) * numbers) * sizeof(float));
    for (int64_t n = begin; n < end; n++)
        for (int64_t oh = 0; oh < d->plane.out[0]; oh++)
            add_row(d, d->weights + n * numbers, n, oh);
}

/* Takes memory for the gradients by each sample. */
static eg_status depthwise_make(eg__depthwise *d, const eg__window *win, const eg_tensor *x, const eg_tensor *y)
{
    *d = (eg__depthwise){.samples = x->shape.dims[0], .taps = win->kernel[0] * win->kernel[1]};
    EG_TRY(eg__plane_make(&d->plane, win, x, y));
    bool repeat = win->stride[1] == 1 && !eg__depthwise_fills_vectors(&d->plane);
    d->width = d->plane.channels * (repeat ? EG_MAX(1, LONG / d->plane.channels) : 1);
    d->bytes = (size_t)(d->samples * d->taps * d->width) * sizeof(float);
    d->weights = eg__pool_take(x->ctx, d->bytes);
    if (d->weights)
        return EG_OK;
    eg__plane_free(&d->plane);
    return EG_ENOMEM;
}

static void depthwise_free(eg__depthwise *d)
{
    eg__pool_give(d->plane.ctx, d->weights, d->bytes);
    eg__plane_free(&d->plane);
}

static int64_t work_of(const eg__depthwise *d, const eg_tensor *y)
{
    return eg_shape_numel(y->shape) * d->taps / 4 + 1;
}

/* dw = the sum of what the samples gave, some channels at a time: they are neighbours in memory, the samples are not.
 */
EG__CLONES static void join_tap(const eg__depthwise *d, int64_t tap)
{
    int64_t channels = d->plane.channels, numbers = d->taps * d->width;
    for (int64_t c = 0; c < channels; c += JOINED) {
        double sum[JOINED] = {0};
        int64_t left = EG_MIN(JOINED, channels - c);
        for (int64_t n = 0; n < d->samples; n++)
            for (int64_t i = c; i < d->width; i += channels) {
                const float *from = d->weights + n * numbers + tap * d->width + i;
#pragma omp simd
                for (int64_t k = 0; k < left; k++)
                    sum[k] += (double)from[k];
            }
        for (int64_t k = 0; k < left; k++)
            d->dw[(c + k) * d->taps + tap] = (float)sum[k];
    }
}

static void join_taps(void *arg, int64_t begin, int64_t end)
{
    for (int64_t tap = begin; tap < end; tap++)
        join_tap(arg, tap);
}

eg_status eg__cpu_depthwise_backward_weight(const eg__window *win, const eg_tensor *x, const eg_tensor *dy,
                                            eg_tensor *dw)
{
    eg__depthwise d;
    EG_TRY(depthwise_make(&d, win, x, dy));
    d.x = eg__f32(x);
    d.dy = eg__f32(dy);
    d.dw = eg__f32(dw);
    eg__for_each(x->ctx, d.samples, work_of(&d, dy), weight_samples, &d);
    eg__for_each(x->ctx, d.taps, d.samples * d.taps * d.width, join_taps, &d);
    depthwise_free(&d);
    return EG_OK;
}
