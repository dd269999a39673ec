/*
 * tensor/cpu/layer_norm.c - normalization of single rows, each a sample's group of neighbouring numbers: layer
 * normalization, and group normalization without positions.
 *
 * Rows are spread over the threads by blocks of samples whose size depends on the shape alone; the blocks' gradients of
 * weight and bias are joined in order, in double.
 */
#include "tensor/cpu/norm.h"

#include <math.h>
#include <string.h>

/* Samples a block: enough numbers to be worth a call, and few enough that partial sums stay small beside the input. */
#define BLOCK_NUMBERS 32768
#define BLOCK_LEAST 4
#define BLOCK_MOST 1024

typedef struct row_work {
    double eps;
    int64_t samples, channels, width; /* width of a row: of a group */
    int64_t block, blocks;
    const float *x, *dy;
    float *y;            /* or dx; may be NULL in backward */
    float *gamma, *beta; /* [channels] */
    float *mean, *rstd;  /* [samples][channels / width] */
    float *partial;      /* [blocks][2][channels]: sums of dy (x - mean) rstd and dy; NULL: not wanted */
    size_t bytes;
} row_work;

static void fill_factors(float *line, const eg_tensor *t, int64_t n, float absent)
{
    for (int64_t c = 0; c < n; c++)
        line[c] = t ? eg__f32(t)[c * t->strides[0]] : absent;
}

/* For work_free(). */
static eg_status work_make(row_work *w, const eg__group_norm *gn, const eg_tensor *x, const eg_tensor *gamma,
                           const eg_tensor *beta, bool sums)
{
    int64_t samples = x->shape.dims[0], channels = x->shape.dims[1];
    int64_t block = EG_MIN(EG_MAX(BLOCK_NUMBERS / channels, BLOCK_LEAST), BLOCK_MOST);
    int64_t blocks = (samples + block - 1) / block;
    *w = (row_work){.eps = gn->eps,
                    .samples = samples,
                    .channels = channels,
                    .width = channels / gn->groups,
                    .block = block,
                    .blocks = blocks,
                    .x = eg__f32(x),
                    .bytes = (size_t)(2 * channels * (1 + (sums ? blocks : 0))) * sizeof(float)};
    w->gamma = eg__pool_take(x->ctx, w->bytes);
    if (!w->gamma)
        return EG_ENOMEM;
    w->beta = w->gamma + channels;
    w->partial = sums ? w->beta + channels : NULL;
    fill_factors(w->gamma, gamma, channels, 1);
    fill_factors(w->beta, beta, channels, 0);
    return EG_OK;
}

/* ---- forward ---- */

/* Four sums side by side: one alone would wait for each addition. */
EG__CLONES static float row_sum(const float *x, int64_t n)
{
    int64_t quarter = n / 4;
    const float *x1 = x + quarter, *x2 = x1 + quarter, *x3 = x2 + quarter;
    float a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
    for (int64_t i = 0; i < quarter; i++) {
        a += x[i];
        b += x1[i];
        c += x2[i];
        d += x3[i];
    }
    for (int64_t i = 4 * quarter; i < n; i++)
        a += x[i];
    return (a + b) + (c + d);
}

static inline float square_of(float x)
{
    return x * x;
}

EG__CLONES static float row_squares(const float *x, float mean, int64_t n)
{
    int64_t half = n / 2;
    const float *x1 = x + half;
    float a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
    for (int64_t i = 0; i < half; i++) {
        a += square_of(x[i] - mean);
        b += square_of(x1[i] - mean);
    }
    if (n % 2)
        a += square_of(x[n - 1] - mean);
    return a + b;
}

static void row_statistics(const row_work *w, const float *x, float *mean, float *rstd)
{
    double sum = 0, squares = 0, n = (double)w->width;
    for (int64_t i = 0; i < w->width; i += EG__SUM_BLOCK)
        sum += (double)row_sum(x + i, EG_MIN(EG__SUM_BLOCK, w->width - i));
    *mean = (float)(sum / n);
    for (int64_t i = 0; i < w->width; i += EG__SUM_BLOCK)
        squares += (double)row_squares(x + i, *mean, EG_MIN(EG__SUM_BLOCK, w->width - i));
    *rstd = (float)(1 / sqrt(squares / n + w->eps));
}

EG__CLONES static void row_normalize(float *restrict y, const float *restrict x, const float *restrict gamma,
                                     const float *restrict beta, float mean, float rstd, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
}

static void normalize_blocks(void *arg, int64_t begin, int64_t end)
{
    const row_work *w = arg;
    int64_t groups = w->channels / w->width;
    for (int64_t n = begin * w->block; n < EG_MIN(end * w->block, w->samples); n++)
        for (int64_t g = 0; g < groups; g++) {
            int64_t at = n * w->channels + g * w->width, i = n * groups + g;
            row_statistics(w, w->x + at, &w->mean[i], &w->rstd[i]);
            row_normalize(w->y + at, w->x + at, w->gamma + g * w->width, w->beta + g * w->width, w->mean[i], w->rstd[i],
                          w->width);
        }
}

eg_status eg__cpu_layer_norm(const eg__group_norm *gn, const eg_tensor *x, const eg_tensor *gamma,
                             const eg_tensor *beta, eg_tensor *mean, eg_tensor *rstd, eg_tensor *y)
{
    row_work w;
    EG_TRY(work_make(&w, gn, x, gamma, beta, false));
    w.y = eg__f32(y);
    w.mean = eg__f32(mean);
    w.rstd = eg__f32(rstd);
    eg__for_each(x->ctx, w.blocks, w.samples * w.channels, normalize_blocks, &w);
    eg__pool_give(x->ctx, w.gamma, w.bytes);
    return EG_OK;
}

/* ---- backward ---- */

/* sums += {gamma dy (x - mean), gamma dy} */
EG__CLONES static void row_gradient_sums(const float *x, const float *dy, const float *gamma, float mean, int64_t n,
                                         double sums[2])
{
    float scaled = 0, plain = 0;
#pragma omp simd reduction(+ : scaled, plain)
    for (int64_t i = 0; i < n; i++) {
        float d = gamma[i] * dy[i];
        scaled += d * (x[i] - mean);
        plain += d;
    }
    sums[0] += (double)scaled;
    sums[1] += (double)plain;
}

EG__CLONES static void row_input_gradient(float *restrict dx, const float *restrict x, const float *restrict dy,
                                          const float *restrict gamma, const float factor[4], int64_t n)
{
    float mean = factor[0], rstd = factor[1], back = factor[2], lift = factor[3];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] = rstd * gamma[i] * dy[i] - (x[i] - mean) * back - lift;
}

EG__CLONES static void row_add_gradients(float *restrict dgamma, float *restrict dbeta, const float *restrict x,
                                         const float *restrict dy, float mean, float rstd, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        dgamma[i] += dy[i] * ((x[i] - mean) * rstd);
        dbeta[i] += dy[i];
    }
}

/* The row that begins at channel `first` of sample n. */
static void row_backward(const row_work *w, int64_t n, int64_t first, float *partial)
{
    int64_t at = n * w->channels + first, i = at / w->width;
    const float *x = w->x + at, *dy = w->dy + at, *gamma = w->gamma + first;
    float mean = w->mean[i], rstd = w->rstd[i];
    if (partial)
        row_add_gradients(partial + first, partial + w->channels + first, x, dy, mean, rstd, w->width);
    if (!w->y)
        return;
    double sums[2] = {0, 0}, r = (double)rstd, count = (double)w->width;
    for (int64_t k = 0; k < w->width; k += EG__SUM_BLOCK)
        row_gradient_sums(x + k, dy + k, gamma + k, mean, EG_MIN(EG__SUM_BLOCK, w->width - k), sums);
    float factor[4] = {mean, rstd, (float)(sums[0] * r * r * r / count), (float)(sums[1] * r / count)};
    row_input_gradient(w->y + at, x, dy, gamma, factor, w->width);
}

static void gradient_blocks(void *arg, int64_t begin, int64_t end)
{
    const row_work *w = arg;
    for (int64_t b = begin; b < end; b++) {
        float *partial = w->partial ? w->partial + b * 2 * w->channels : NULL;
        if (partial)
            memset(partial, 0, (size_t)(2 * w->channels) * sizeof(float));
        for (int64_t n = b * w->block; n < EG_MIN((b + 1) * w->block, w->samples); n++)
            for (int64_t first = 0; first < w->channels; first += w->width)
                row_backward(w, n, first, partial);
    }
}

/* Sum i of the blocks, of each channel. */
static void join_blocks(const row_work *w, int i, eg_tensor *out)
{
    for (int64_t c = 0; out && c < w->channels; c++) {
        double sum = 0;
        for (int64_t b = 0; b < w->blocks; b++)
            sum += (double)w->partial[(b * 2 + i) * w->channels + c];
        eg__f32(out)[c * out->strides[0]] = (float)sum;
    }
}

eg_status eg__cpu_layer_norm_backward(const eg__group_norm *gn, const eg_tensor *x, const eg_tensor *gamma,
                                      const eg_tensor *mean, const eg_tensor *rstd, const eg_tensor *dy, eg_tensor *dx,
                                      eg_tensor *dgamma, eg_tensor *dbeta)
{
    row_work w;
    EG_TRY(work_make(&w, gn, x, gamma, NULL, dgamma || dbeta));
    w.dy = eg__f32(dy);
    w.y = dx ? eg__f32(dx) : NULL;
    w.mean = eg__f32(mean);
    w.rstd = eg__f32(rstd);
    eg__for_each(x->ctx, w.blocks, w.samples * w.channels, gradient_blocks, &w);
    join_blocks(&w, 0, dgamma);
    join_blocks(&w, 1, dbeta);
    eg__pool_give(x->ctx, w.gamma, w.bytes);
    return EG_OK;
}
