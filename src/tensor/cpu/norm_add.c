/*
 * tensor/cpu/norm_add.c - a term of a mixed edge: y = sum + weight * norm(x), and back.
 *
 * What the norm gives is never stored. Both directions go twice over x, which is still in the cache the second time for
 * all but the largest tensors: forward for its statistics and for y; backward for the sums, per channel, that all
 * gradients are made of, and for dx, which may lie where x was. Loops run over long rows, as in norm.c.
 */
#include "tensor/cpu/rows.h"

#include <math.h>
#include <string.h>

typedef struct norm_add {
    eg__rows rows;
    const float *x, *dy;
    const float *sum;           /* NULL: none, y is the term alone */
    float *y;                   /* or dx */
    float *mean, *scale, *shift; /* [width]: y = sum + (x - mean) scale + shift */
    float *back, *lift;         /* [width]: dx = scale dy - (x - mean) back - lift */
    float *partial;             /* [blocks][2][width] backward: sums of dy (x - mean), and of dy */
    size_t bytes;
} norm_add;

static eg_status norm_add_make(norm_add *s, const eg__norm_term *t, bool sums)
{
    *s = (norm_add){.rows = eg__rows_of(t->x), .x = eg__f32(t->x)};
    int64_t width = s->rows.width;
    s->bytes = (size_t)(width * (5 + (sums ? 2 * s->rows.blocks : 0))) * sizeof(float);
    s->mean = eg__pool_take(t->x->ctx, s->bytes);
    if (!s->mean)
        return EG_ENOMEM;
    s->scale = s->mean + width;
    s->shift = s->mean + 2 * width;
    s->back = s->mean + 3 * width;
    s->lift = s->mean + 4 * width;
    s->partial = s->mean + 5 * width;
    for (int64_t c = 0; c < s->rows.channels; c++) {
        double deviation = sqrt((double)eg__channel_of(t->var, c, 1) + t->eps);
        s->mean[c] = eg__channel_of(t->mean, c, 0);
        s->scale[c] = (float)(t->weight * (double)eg__channel_of(t->gamma, c, 1) / deviation);
        s->shift[c] = (float)(t->weight * (double)eg__channel_of(t->beta, c, 0));
    }
    eg__rows_repeat(&s->rows, s->mean);
    eg__rows_repeat(&s->rows, s->scale);
    eg__rows_repeat(&s->rows, s->shift);
    return EG_OK;
}

static void norm_add_free(norm_add *s)
{
    eg__pool_give(s->rows.ctx, s->mean, s->bytes);
}

/* Calls rows(s, at, n) for the n numbers from `at` on of blocks begin .. end - 1. */
static int64_t numbers_of(const norm_add *s, int64_t begin, int64_t end, int64_t *at)
{
    *at = begin * s->rows.block * s->rows.channels;
    return EG_MIN(end * s->rows.block, s->rows.n) * s->rows.channels - *at;
}

/* ---- forward ---- */

EG__CLONES static void norm_start(const norm_add *s, const float *restrict x, float *restrict y, int64_t n)
{
    const float *restrict mean = s->mean, *restrict scale = s->scale, *restrict shift = s->shift;
    for (int64_t at = 0; at < n; at += s->rows.width) {
        int64_t left = EG_MIN(s->rows.width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            y[at + i] = (x[at + i] - mean[i]) * scale[i] + shift[i];
    }
}

/* sum may be y. */
EG__CLONES static void norm_continue(const norm_add *s, const float *x, const float *sum, float *y, int64_t n)
{
    const float *mean = s->mean, *scale = s->scale, *shift = s->shift;
    for (int64_t at = 0; at < n; at += s->rows.width) {
        int64_t left = EG_MIN(s->rows.width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            y[at + i] = sum[at + i] + ((x[at + i] - mean[i]) * scale[i] + shift[i]);
    }
}

static void forward_blocks(void *arg, int64_t begin, int64_t end)
{
    const norm_add *s = arg;
    int64_t at, n = numbers_of(s, begin, end, &at);
    if (s->sum)
        norm_continue(s, s->x + at, s->sum + at, s->y + at, n);
    else
        norm_start(s, s->x + at, s->y + at, n);
}

static bool lie_alike(const eg_tensor *x, const eg_tensor *a, const eg_tensor *b)
{
    return eg_shape_numel(x->shape) > 0 && eg__in_rows(x) && (!a || eg__same_strides(a, x)) &&
           (!b || eg__same_strides(b, x));
}

eg_status eg__cpu_norm_add(const eg__norm_term *t, const eg_tensor *sum, eg_tensor *y)
{
    if (!lie_alike(t->x, sum, y))
        return eg__ref_kernels.norm_add(t, sum, y);
    EG_TRY(eg__cpu_batch_statistics(t->x, t->mean, t->var));
    norm_add s;
    EG_TRY(norm_add_make(&s, t, false));
    s.sum = sum ? eg__f32(sum) : NULL;
    s.y = eg__f32(y);
    eg__for_each(y->ctx, s.rows.blocks, eg_shape_numel(y->shape), forward_blocks, &s);
    norm_add_free(&s);
    return EG_OK;
}

/* ---- backward ---- */

/* Two long rows at a time, with a sum each: half the additions wait for each other. */
EG__CLONES static void sum_products(float *restrict products, float *restrict plain, const float *restrict x,
                                    const float *restrict mean, const float *restrict dy, int64_t n, int64_t width)
{
    memset(products, 0, (size_t)width * sizeof(float));
    memset(plain, 0, (size_t)width * sizeof(float));
    int64_t at = 0;
    for (; at + 2 * width <= n; at += 2 * width) {
        const float *restrict a = x + at, *restrict d = dy + at;
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            products[i] += (a[i] - mean[i]) * d[i] + (a[i + width] - mean[i]) * d[i + width];
            plain[i] += d[i] + d[i + width];
        }
    }
    for (; at < n; at += width) {
        int64_t left = EG_MIN(width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++) {
            products[i] += (x[at + i] - mean[i]) * dy[at + i];
            plain[i] += dy[at + i];
        }
    }
}

static void sum_blocks(void *arg, int64_t begin, int64_t end)
{
    const norm_add *s = arg;
    for (int64_t b = begin; b < end; b++) {
        int64_t at, n = numbers_of(s, b, b + 1, &at);
        float *partial = s->partial + b * 2 * s->rows.width;
        sum_products(partial, partial + s->rows.width, s->x + at, s->mean, s->dy + at, n, s->rows.width);
    }
}

/* Gradients of the weight (returned), gamma and beta; and the factors of dx. */
static double set_gradients(norm_add *s, const eg__norm_term *t, eg_tensor *dgamma, eg_tensor *dbeta)
{
    const eg__rows *r = &s->rows;
    double weight_gradient = 0, n = (double)r->n;
    for (int64_t c = 0; c < r->channels; c++) {
        double products = 0, plain = 0, variance = (double)eg__channel_of(t->var, c, 1) + t->eps;
        for (int64_t b = 0; b < r->blocks; b++) {
            products += eg__rows_fold(r, s->partial + b * 2 * r->width, c);
            plain += eg__rows_fold(r, s->partial + (b * 2 + 1) * r->width, c);
        }
        double normalized = products / sqrt(variance);
        weight_gradient +=
            (double)eg__channel_of(t->gamma, c, 1) * normalized + (double)eg__channel_of(t->beta, c, 0) * plain;
        if (dgamma)
            eg__f32(dgamma)[c * dgamma->strides[0]] = (float)(t->weight * normalized);
        if (dbeta)
            eg__f32(dbeta)[c * dbeta->strides[0]] = (float)(t->weight * plain);
        s->back[c] = (float)((double)s->scale[c] * products / (variance * n));
        s->lift[c] = (float)((double)s->scale[c] * plain / n);
    }
    eg__rows_repeat(r, s->back);
    eg__rows_repeat(r, s->lift);
    return weight_gradient;
}

/* dx may be x. */
EG__CLONES static void norm_back(const norm_add *s, const float *x, const float *dy, float *dx, int64_t n)
{
    const float *mean = s->mean, *scale = s->scale, *back = s->back, *lift = s->lift;
    for (int64_t at = 0; at < n; at += s->rows.width) {
        int64_t left = EG_MIN(s->rows.width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            dx[at + i] = scale[i] * dy[at + i] - (x[at + i] - mean[i]) * back[i] - lift[i];
    }
}

static void backward_blocks(void *arg, int64_t begin, int64_t end)
{
    const norm_add *s = arg;
    int64_t at, n = numbers_of(s, begin, end, &at);
    norm_back(s, s->x + at, s->dy + at, s->y + at, n);
}

eg_status eg__cpu_norm_add_backward(const eg__norm_term *t, const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma,
                                    eg_tensor *dbeta, double *dweight)
{
    if (!lie_alike(t->x, dy, dx))
        return eg__ref_kernels.norm_add_backward(t, dy, dx, dgamma, dbeta, dweight);
    norm_add s;
    EG_TRY(norm_add_make(&s, t, true));
    int64_t numel = eg_shape_numel(dy->shape);
    s.dy = eg__f32(dy);
    eg__for_each(dy->ctx, s.rows.blocks, numel, sum_blocks, &s);
    *dweight = set_gradients(&s, t, dgamma, dbeta);
    if (dx) {
        s.y = eg__f32(dx);
        eg__for_each(dy->ctx, s.rows.blocks, numel, backward_blocks, &s);
    }
    norm_add_free(&s);
    return EG_OK;
}
