/*
 * tensor/cpu/depthwise_weight.c - gradients of depthwise filters where channels fill whole vectors.
 *
 * A row of the filter is held in registers, for eight or sixteen channels, while all rows of a sample pass by: each
 * number of dy is loaded once for all taps of the row.
 */
#include "tensor/cpu/depthwise.h"
#include "tensor/cpu/tile.h"

#include <string.h>

enum { MAX_TAPS = 7, MIN_WIDTH = 12, NARROW_NUMBERS = 2048 };

/* Outputs that all taps of a filter's row see, and those before and behind, which some do. */
static eg__span interior(const eg__plane *p)
{
    eg__span s = {.begin = 0, .end = p->out[1]};
    for (int64_t kw = 0; kw < p->win->kernel[1]; kw++) {
        s.begin = EG_MAX(s.begin, p->columns[kw].begin);
        s.end = EG_MIN(s.end, p->columns[kw].end);
    }
    s.end = EG_MAX(s.begin, s.end);
    return s;
}

/* One output column that not all taps see. */
EG__INLINE void border_column(int taps, int vectors, const eg__depthwise *d, const float *x, const float *dy, int64_t o,
                              eg__v8 sum[MAX_TAPS][2])
{
    const eg__plane *p = &d->plane;
#pragma GCC unroll 7
    for (int kw = 0; kw < taps; kw++) {
        eg__span s = p->columns[kw];
        if (o < s.begin || o >= s.end)
            continue;
        const float *a = x + (o * p->win->stride[1] + s.first) * p->channels;
        for (int v = 0; v < vectors; v++)
            sum[kw][v] += *(const eg__v8 *)(a + 8 * v) * *(const eg__v8 *)(dy + o * p->channels + 8 * v);
    }
}

/* A row of the filters: row kh, channels c .. c + 8 * vectors - 1, of sample n. */
EG__INLINE void filter_row(int taps, int vectors, const eg__depthwise *d, int64_t n, int64_t kh, int64_t c,
                           eg__span inner, float *weights)
{
    const eg__plane *p = &d->plane;
    int64_t step = p->win->stride[1] * p->channels, shift = p->win->dilation[1] * p->channels;
    eg__v8 sum[MAX_TAPS][2];
    for (int kw = 0; kw < taps; kw++)
        for (int v = 0; v < vectors; v++)
            sum[kw][v] = (eg__v8){0};
    for (int64_t oh = p->rows[kh].begin; oh < p->rows[kh].end; oh++) {
        int64_t row = (n * p->in[0] + oh * p->win->stride[0] + p->rows[kh].first) * p->in[1];
        const float *x = d->x + row * p->channels + c, *dy = d->dy + (n * p->out[0] + oh) * p->out[1] * p->channels + c;
        for (int64_t o = 0; o < inner.begin; o++)
            border_column(taps, vectors, d, x, dy, o, sum);
        const float *a = x + inner.begin * step + p->columns[0].first * p->channels;
        const float *b = dy + inner.begin * p->channels;
        for (int64_t o = inner.begin; o < inner.end; o++, a += step, b += p->channels) {
            eg__v8 b0 = *(const eg__v8 *)b, b1 = vectors > 1 ? *(const eg__v8 *)(b + 8) : b0;
#pragma GCC unroll 7
            for (int kw = 0; kw < taps; kw++) {
                sum[kw][0] += *(const eg__v8 *)(a + kw * shift) * b0;
                if (vectors > 1)
                    sum[kw][1] += *(const eg__v8 *)(a + kw * shift + 8) * b1;
            }
        }
        for (int64_t o = inner.end; o < p->out[1]; o++)
            border_column(taps, vectors, d, x, dy, o, sum);
    }
    for (int kw = 0; kw < taps; kw++)
        for (int v = 0; v < vectors; v++)
            *(eg__v8 *)(weights + (kh * taps + kw) * p->channels + c + 8 * v) = sum[kw][v];
}

static bool is_narrow(const eg__plane *p)
{
    return p->out[1] < MIN_WIDTH;
}

/* Columns of the input that the outputs see, those of the padding too. */
static int64_t seen_columns(const eg__plane *p)
{
    return (p->out[1] - 1) * p->win->stride[1] + (p->win->kernel[1] - 1) * p->win->dilation[1] + 1;
}

/* A row of the filters, for one row of outputs and the row of inputs that it meets, which has zeros at its ends. */
EG__INLINE void add_padded_row(int taps, int vectors, const eg__plane *p, const float *row, const float *dy,
                               float *weights)
{
    int64_t step = p->win->stride[1] * 8 * vectors, shift = p->win->dilation[1] * 8 * vectors;
    eg__v8 sum[MAX_TAPS][2];
    for (int kw = 0; kw < taps; kw++)
        for (int v = 0; v < vectors; v++)
            sum[kw][v] = *(const eg__v8 *)(weights + kw * p->channels + 8 * v);
    for (int64_t o = 0; o < p->out[1]; o++, row += step, dy += p->channels) {
        eg__v8 b0 = *(const eg__v8 *)dy, b1 = vectors > 1 ? *(const eg__v8 *)(dy + 8) : b0;
#pragma GCC unroll 7
        for (int kw = 0; kw < taps; kw++) {
            sum[kw][0] += *(const eg__v8 *)(row + kw * shift) * b0;
            if (vectors > 1)
                sum[kw][1] += *(const eg__v8 *)(row + kw * shift + 8) * b1;
        }
    }
    for (int kw = 0; kw < taps; kw++)
        for (int v = 0; v < vectors; v++)
            *(eg__v8 *)(weights + kw * p->channels + 8 * v) = sum[kw][v];
}

/* Asks for pixels of the next sample, which come while this one is worked on: pieces of pixels are no stream that the
 * machine would foresee. */
EG__INLINE void ask_for_next(const float *from, int64_t sample, int64_t pixels, int64_t channels)
{
    uintptr_t at = (uintptr_t)from + (uintptr_t)sample * sizeof(float);
    for (int64_t i = 0; i < pixels; i++, at += (uintptr_t)channels * sizeof(float))
        __builtin_prefetch((const void *)at, 0, 2);
}

/* All rows of the filters on a narrow image, where borders are a large part: each row of inputs is copied between
 * zeros, so that all outputs see all taps, and serves all rows of the filters that meet it. */
EG__INLINE void narrow_filters(int taps, int vectors, const eg__depthwise *d, int64_t n, int64_t c, float *weights)
{
    const eg__plane *p = &d->plane;
    const eg__window *win = p->win;
    float row[NARROW_NUMBERS];
    int64_t columns = seen_columns(p), end = EG_MIN(p->in[1], columns - win->padding[1]);
    memset(row, 0, (size_t)(columns * 8 * vectors) * sizeof(float));
    for (int64_t tap = 0; tap < d->taps; tap++)
        memset(weights + tap * p->channels + c, 0, (size_t)(8 * vectors) * sizeof(float));
    for (int64_t ih = 0; ih < p->in[0]; ih++) {
        const float *x = d->x + (n * p->in[0] + ih) * p->in[1] * p->channels + c;
        ask_for_next(x, p->in[0] * p->in[1] * p->channels, p->in[1], p->channels);
        if (ih < p->out[0])
            ask_for_next(d->dy + (n * p->out[0] + ih) * p->out[1] * p->channels + c,
                         p->out[0] * p->out[1] * p->channels, p->out[1], p->channels);
        for (int64_t iw = 0; iw < end; iw++)
            for (int v = 0; v < vectors; v++)
                *(eg__v8 *)(row + ((iw + win->padding[1]) * vectors + v) * 8) =
                    *(const eg__v8 *)(x + iw * p->channels + 8 * v);
        for (int64_t kh = 0; kh < win->kernel[0]; kh++) {
            int64_t at = ih - p->rows[kh].first, oh = at / win->stride[0];
            if (at >= 0 && at % win->stride[0] == 0 && eg__meets(p, kh, oh))
                add_padded_row(taps, vectors, p, row, d->dy + (n * p->out[0] + oh) * p->out[1] * p->channels + c,
                               weights + kh * taps * p->channels + c);
        }
    }
}

#define FILTER_ROWS(taps, vectors)                                                                                     \
    if (is_narrow(p))                                                                                                  \
        narrow_filters(taps, vectors, d, n, c, weights);                                                               \
    for (int64_t kh = 0; !is_narrow(p) && kh < p->win->kernel[0]; kh++)                                                \
        filter_row(taps, vectors, d, n, kh, c, inner, weights);

/* All rows of the filters for channels c .. c + 7, or c + 15: their part of the sample stays in the cache. */
EG__INLINE void filters(int vectors, const eg__depthwise *d, int64_t n, int64_t c, eg__span inner, float *weights)
{
    const eg__plane *p = &d->plane;
    switch (p->win->kernel[1]) {
    case 3:
        FILTER_ROWS(3, vectors)
        break;
    case 5:
        FILTER_ROWS(5, vectors)
        break;
    default:
        FILTER_ROWS(7, vectors)
        break;
    }
}

EG__CLONES static void sample_gradient(const eg__depthwise *d, int64_t n, float *weights)
{
    eg__span inner = interior(&d->plane);
    int64_t c = 0;
    for (; c + 16 <= d->plane.channels; c += 16)
        filters(2, d, n, c, inner, weights);
    for (; c < d->plane.channels; c += 8)
        filters(1, d, n, c, inner, weights);
}

bool eg__depthwise_fills_vectors(const eg__plane *p)
{
    int64_t taps = p->win->kernel[1];
    bool fits = !is_narrow(p) || seen_columns(p) <= NARROW_NUMBERS / 16;
    return p->channels % 8 == 0 && fits && (taps == 3 || taps == 5 || taps == MAX_TAPS);
}

void eg__depthwise_sample_gradient(const eg__depthwise *d, int64_t n, float *weights)
{
    sample_gradient(d, n, weights);
}
