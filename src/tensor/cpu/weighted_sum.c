/*
 * tensor/cpu/weighted_sum.c - the mixed edge: y = sum of w[i] x[i], with one pass over memory in each direction.
 */
#include "tensor/cpu/cpu.h"

#include <string.h>

/* Numbers that stay in the first-level cache while all inputs pass by. */
#define BLOCK 2048

typedef struct mix_work {
    size_t n;
    const float *const *x; /* NULL, or [n] */
    const float *w;        /* [n] */
    float *y;              /* forward */
    const float *dy;       /* backward */
    float *const *dx;      /* [n], each may be NULL */
    double *partial;       /* [blocks][n]: <x[i], dy> of each block; NULL: not wanted */
    int64_t numel;
} mix_work;

EG__CLONES static void scale_line(float *y, const float *x, float w, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = w * x[i];
}

EG__CLONES static void scale_two_lines(float *y, const float *x0, const float *x1, float w0, float w1, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = w0 * x0[i] + w1 * x1[i];
}

EG__CLONES static void mix_line(float *y, const float *x, float w, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] += w * x[i];
}

EG__CLONES static void mix_two_lines(float *y, const float *x0, const float *x1, float w0, float w1, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] + w0 * x0[i] + w1 * x1[i];
}

EG__CLONES static float dot_line(const float *x, const float *y, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static void mix(void *arg, int64_t begin, int64_t end)
{
    const mix_work *m = arg;
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = EG_MIN(BLOCK, end - at);
        float *y = m->y + at;
        size_t i = EG_MIN(m->n, 2);
        if (m->n > 1)
            scale_two_lines(y, m->x[0] + at, m->x[1] + at, m->w[0], m->w[1], n);
        else
            scale_line(y, m->x[0] + at, m->w[0], n);
        for (; i + 1 < m->n; i += 2)
            mix_two_lines(y, m->x[i] + at, m->x[i + 1] + at, m->w[i], m->w[i + 1], n);
        if (i < m->n)
            mix_line(y, m->x[i] + at, m->w[i], n);
    }
}

/* Blocks begin .. end-1. dx[i] may be dy itself only after all have read dy, so no aliasing is allowed here. */
static void unmix(void *arg, int64_t begin, int64_t end)
{
    const mix_work *m = arg;
    for (int64_t b = begin; b < end; b++) {
        int64_t at = b * BLOCK, n = EG_MIN(BLOCK, m->numel - at);
        const float *dy = m->dy + at;
        for (size_t i = 0; i < m->n; i++) {
            if (m->partial)
                m->partial[(size_t)b * m->n + i] = (double)dot_line(m->x[i] + at, dy, n);
            if (m->dx && m->dx[i])
                scale_line(m->dx[i] + at, dy, m->w[i], n);
        }
    }
}

/* What both directions need: plain pointers, and copies of what lies in another order. */
typedef struct operands {
    const float **x;
    float *w, **dx;
    eg_tensor **owned;
} operands;

static void operands_free(operands *o, size_t n)
{
    for (size_t i = 0; o->owned && i < n; i++)
        eg_tensor_release(o->owned[i]);
    eg_free(o->owned);
    eg_free(o->x);
    eg_free(o->dx);
    eg_free(o->w);
}

static eg_status operands_make(operands *o, size_t n, const eg_tensor *const *x, const eg_tensor *w,
                               const eg_tensor *like)
{
    *o = (operands){.x = eg__calloc(n, sizeof *o->x),
                    .w = eg__calloc(n, sizeof *o->w),
                    .dx = eg__calloc(n, sizeof *o->dx),
                    .owned = eg__calloc(n, sizeof *o->owned)};
    if (!o->x || !o->w || !o->dx || !o->owned)
        return EG_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        o->w[i] = w ? eg__f32(w)[(int64_t)i * w->strides[0]] : 1.0f;
        const eg_tensor *same = x ? eg__in_order_of(like, x[i], &o->owned[i]) : NULL;
        if (x && !same)
            return EG_ENOMEM;
        o->x[i] = same ? eg__f32(same) : NULL;
    }
    return EG_OK;
}

eg_status eg__cpu_weighted_sum(size_t n, const eg_tensor *const *x, const eg_tensor *w, eg_tensor *y)
{
    if (!eg__is_dense(y) || n == 0)
        return eg__ref_kernels.weighted_sum(n, x, w, y);
    operands o;
    eg_status status = operands_make(&o, n, x, w, y);
    if (status == EG_OK) {
        mix_work m = {.n = n, .x = o.x, .w = o.w, .y = eg__f32(y), .numel = eg_shape_numel(y->shape)};
        eg__for(y->ctx, m.numel, m.numel * (int64_t)n, mix, &m);
    }
    operands_free(&o, n);
    return status;
}

static eg_status unmix_run(mix_work *m, const eg_tensor *dy, eg_tensor *dw)
{
    int64_t blocks = (m->numel + BLOCK - 1) / BLOCK;
    size_t bytes = (size_t)blocks * m->n * sizeof(double);
    if (dw) {
        m->partial = eg__pool_take(dy->ctx, bytes);
        if (!m->partial)
            return EG_ENOMEM;
    }
    eg__for_each(dy->ctx, blocks, m->numel * (int64_t)m->n, unmix, m);
    for (size_t i = 0; dw && i < m->n; i++) {
        double sum = 0;
        for (int64_t b = 0; b < blocks; b++)
            sum += m->partial[(size_t)b * m->n + i];
        eg__f32(dw)[(int64_t)i * dw->strides[0]] = (float)sum;
    }
    if (dw)
        eg__pool_give(dy->ctx, m->partial, bytes);
    return EG_OK;
}

eg_status eg__cpu_weighted_sum_backward(size_t n, const eg_tensor *const *x, const eg_tensor *w, const eg_tensor *dy,
                                        eg_tensor *const *dx, eg_tensor *dw)
{
    bool plain = eg__is_dense(dy);
    for (size_t i = 0; dx && i < n; i++)
        plain = plain && (!dx[i] || eg__same_strides(dx[i], dy));
    if (!plain || n == 0)
        return eg__ref_kernels.weighted_sum_backward(n, x, w, dy, dx, dw);
    operands o;
    eg_status status = operands_make(&o, n, dw ? x : NULL, w, dy);
    if (status == EG_OK) {
        for (size_t i = 0; dx && i < n; i++)
            o.dx[i] = dx[i] ? eg__f32(dx[i]) : NULL;
        mix_work m = {.n = n, .x = o.x, .w = o.w, .dy = eg__f32(dy), .dx = o.dx, .numel = eg_shape_numel(dy->shape)};
        status = unmix_run(&m, dy, dw);
    }
    operands_free(&o, n);
    return status;
}
