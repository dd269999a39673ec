/*
 * tensor/cpu/statistics.c - means and variances of channels: for each block of rows its sum, then the squares of the
 * distances from the block's own mean.
 */
#include "tensor/cpu/rows.h"

#include <string.h>

#define LONG 64
#define BLOCK_NUMBERS 8192

eg__rows eg__rows_of(const eg_tensor *x)
{
    int64_t channels = x->shape.dims[1], rows = eg_shape_numel(x->shape) / channels;
    int64_t repeat = EG_MAX(1, LONG / channels), width = channels * repeat;
    int64_t block = EG_MAX(1, BLOCK_NUMBERS / width) * repeat;
    return (eg__rows){.ctx = x->ctx,
                      .n = rows,
                      .channels = channels,
                      .width = width,
                      .block = block,
                      .blocks = (rows + block - 1) / block};
}

bool eg__in_rows(const eg_tensor *x)
{
    return eg__is_dense(x) && (x->shape.dims[1] == 1 || x->strides[1] == 1);
}

typedef struct statistics {
    eg__rows rows;
    const float *x;
    float *partial; /* [blocks][2][width] */
} statistics;

EG__CLONES static void add_lines(float *restrict sum, const float *restrict x, int64_t n, int64_t width)
{
    memset(sum, 0, (size_t)width * sizeof(float));
    int64_t at = 0;
    for (; at + 4 * width <= n; at += 4 * width) {
        const float *restrict r = x + at;
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            sum[i] += (r[i] + r[i + width]) + (r[i + 2 * width] + r[i + 3 * width]);
    }
    for (; at < n; at += width) {
        int64_t left = EG_MIN(width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            sum[i] += x[at + i];
    }
}

static inline float squared(float x)
{
    return x * x;
}

EG__CLONES static void add_squares(float *restrict sum, const float *restrict x, const float *restrict mean, int64_t n,
                                   int64_t width)
{
    memset(sum, 0, (size_t)width * sizeof(float));
    int64_t at = 0;
    for (; at + 2 * width <= n; at += 2 * width) {
        const float *restrict r = x + at;
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            sum[i] += squared(r[i] - mean[i]) + squared(r[i + width] - mean[i]);
    }
    for (; at < n; at += width) {
        int64_t left = EG_MIN(width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            sum[i] += squared(x[at + i] - mean[i]);
    }
}

/* partial[b] = {block's mean, squares around it}; the mean is repeated, the squares are not folded yet. */
static void statistics_blocks(void *arg, int64_t begin, int64_t end)
{
    const statistics *w = arg;
    for (int64_t b = begin; b < end; b++) {
        int64_t rows = eg__rows_in_block(&w->rows, b), n = rows * w->rows.channels;
        const float *x = w->x + b * w->rows.block * w->rows.channels;
        float *mean = w->partial + b * 2 * w->rows.width, *squares = mean + w->rows.width;
        add_lines(mean, x, n, w->rows.width);
        for (int64_t c = 0; c < w->rows.channels; c++)
            mean[c] = (float)(eg__rows_fold(&w->rows, mean, c) / (double)rows);
        eg__rows_repeat(&w->rows, mean);
        add_squares(squares, x, mean, n, w->rows.width);
    }
}

/* Joins the blocks as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
 * variances" (1979). */
static void join_statistics(const statistics *w, int64_t c, double *mean, double *var)
{
    double count = 0, m = 0, squares = 0;
    for (int64_t b = 0; b < w->rows.blocks; b++) {
        const float *partial = w->partial + b * 2 * w->rows.width;
        double rows = (double)eg__rows_in_block(&w->rows, b), distance = (double)partial[c] - m, total = count + rows;
        m += distance * rows / total;
        squares += eg__rows_fold(&w->rows, partial + w->rows.width, c) + distance * distance * count * rows / total;
        count = total;
    }
    *mean = m;
    *var = squares / count;
}

eg_status eg__cpu_batch_statistics(const eg_tensor *x, eg_tensor *mean, eg_tensor *var)
{
    statistics w = {.rows = eg__rows_of(x), .x = eg__f32(x)};
    size_t bytes = (size_t)(w.rows.blocks * 2 * w.rows.width) * sizeof(float);
    w.partial = eg__pool_take(x->ctx, bytes);
    if (!w.partial)
        return EG_ENOMEM;
    eg__for_each(x->ctx, w.rows.blocks, eg_shape_numel(x->shape), statistics_blocks, &w);
    for (int64_t c = 0; c < w.rows.channels; c++) {
        double m, v;
        join_statistics(&w, c, &m, &v);
        eg__f32(mean)[c * mean->strides[0]] = (float)m;
        eg__f32(var)[c * var->strides[0]] = (float)v;
    }
    eg__pool_give(x->ctx, w.partial, bytes);
    return EG_OK;
}
