/*
 * tensor/cpu/depthwise_input.c - the gradient of a depthwise convolution's input where it is not a convolution with the
 * filters turned around, or oneDNN has none: with a stride each input is met by the taps of its own parity only, and
 * gathers those. oneDNN 2.6 spreads each output instead, and does not add to what is there; for dilated filters it
 * takes its dense kernels group by group, a hundred times slower.
 */
#include "tensor/cpu/gather.h"
#include "tensor/cpu/tile.h"

typedef struct depthwise_input {
    eg__gather gather;
    const float *dy;
    float *w, *dx; /* w: [taps][channels] */
    bool add;      /* to what is there */
} depthwise_input;

/* The taps of a row are a constant where they are few; 0: as many as there are. */
EG__INLINE void gather_channels(int vectors, int columns, const depthwise_input *d, const eg__taps *t, int64_t c,
                                const float *dy, float *dx)
{
    int64_t channels = d->gather.channels, n = columns ? columns : t->columns;
    eg__v8 sum[4];
    for (int v = 0; v < vectors; v++)
        sum[v] = d->add ? *(const eg__v8 *)(dx + c + 8 * v) : (eg__v8){0};
    for (int64_t row = 0; row < t->rows; row++) {
        const float *w = d->w + (t->first + row * t->row_tap) * channels + c, *from = dy + row * t->row_step + c;
#pragma GCC unroll 3
        for (int64_t column = 0; column < n; column++, w += t->column_tap * channels, from += t->column_step)
            for (int v = 0; v < vectors; v++)
                sum[v] += *(const eg__v8 *)(w + 8 * v) * *(const eg__v8 *)(from + 8 * v);
    }
    for (int v = 0; v < vectors; v++)
        *(eg__v8 *)(dx + c + 8 * v) = sum[v];
}

static float gather_channel(const depthwise_input *d, const eg__taps *t, int64_t c, const float *dy)
{
    float sum = 0.0f;
    for (int64_t row = 0; row < t->rows; row++)
        for (int64_t column = 0; column < t->columns; column++)
            sum += d->w[(t->first + row * t->row_tap + column * t->column_tap) * d->gather.channels + c] *
                   dy[row * t->row_step + column * t->column_step + c];
    return sum;
}

EG__INLINE void gather_pixels(int columns, const depthwise_input *d, const eg__taps *t, int64_t n, const float *dy,
                              float *dx)
{
    const eg__gather *g = &d->gather;
    for (int64_t k = 0; k < n; k++, dy += g->from_step * g->channels, dx += g->to_step * g->channels) {
        int64_t c = 0;
        for (; c + 32 <= g->channels; c += 32)
            gather_channels(4, columns, d, t, c, dy, dx);
        for (; c + 16 <= g->channels; c += 16)
            gather_channels(2, columns, d, t, c, dy, dx);
        for (; c + 8 <= g->channels; c += 8)
            gather_channels(1, columns, d, t, c, dy, dx);
        for (; c < g->channels; c++)
            dx[c] = (d->add ? dx[c] : 0.0f) + gather_channel(d, t, c, dy);
    }
}

EG__CLONES static void gather_run(const depthwise_input *d, const eg__taps *t, int64_t n, const float *dy, float *dx)
{
    switch (t->columns) {
    case 1:
        gather_pixels(1, d, t, n, dy, dx);
        break;
    case 2:
        gather_pixels(2, d, t, n, dy, dx);
        break;
    case 3:
        gather_pixels(3, d, t, n, dy, dx);
        break;
    default:
        gather_pixels(0, d, t, n, dy, dx);
        break;
    }
}

static void gather_rows(void *arg, int64_t begin, int64_t end)
{
    const depthwise_input *d = arg;
    const eg__gather *g = &d->gather;
    for (int64_t i = begin; i < end; i++)
        for (int64_t c = 0; c < g->n_columns; c++) {
            eg__taps taps;
            int64_t source = eg__gather_taps(g, i % g->to[0], &g->columns[c], &taps);
            gather_run(d, &taps, g->columns[c].n, d->dy + i / g->to[0] * g->from[0] * g->from[1] * g->channels + source,
                       d->dx + (i * g->to[1] + g->columns[c].begin) * g->channels);
        }
}

eg_status eg__cpu_depthwise_backward_input(const eg__window *win, const eg_tensor *w, const eg_tensor *dy,
                                           eg_tensor *dx, bool add)
{
    int64_t taps = win->kernel[0] * win->kernel[1], channels = dx->shape.dims[1];
    size_t bytes = (size_t)(taps * channels) * sizeof(float);
    depthwise_input d = {.add = add};
    EG_TRY(eg__gather_make(&d.gather, win, dx, dy, true, NULL));
    d.w = eg__pool_take(dx->ctx, bytes);
    if (d.w) {
        for (int64_t i = 0; i < taps * channels; i++)
            d.w[i] = eg__f32(w)[i % channels * taps + i / channels];
        d.dy = eg__f32(dy);
        d.dx = eg__f32(dx);
        eg__for_each(dx->ctx, dx->shape.dims[0] * dx->shape.dims[2], eg_shape_numel(dy->shape) * taps / 4 + 1,
                     gather_rows, &d);
        eg__pool_give(dx->ctx, d.w, bytes);
    }
    eg__gather_free(&d.gather);
    return d.w ? EG_OK : EG_ENOMEM;
}
