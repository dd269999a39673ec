/*
 * tensor/cpu/reduce.c - sums over dimensions, for dimensions that in memory order read [kept] [summed] [kept]: sums of
 * all, of images (H, W of NHWC), of a batch, of the last dimensions. Other orders, and maxima, are the reference's.
 */
#include "tensor/cpu/cpu.h"

#include <string.h>

/* y[o, c] = sum over r of x[o, r, c]. The r are cut into blocks; each block's sum goes into `partial` [o][block][c]. */
typedef struct sum_work {
    const float *x;
    float *y, *partial;
    int64_t outer, reduced, inner; /* sizes */
    int64_t x_outer, x_reduced;    /* strides; 1 for the inner one */
    int64_t y_outer, y_inner;
    int64_t block, blocks;
} sum_work;

EG__CLONES static float sum_line(const float *x, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

EG__CLONES static void sum_rows(float *restrict sum, const float *restrict x, int64_t rows, int64_t row, int64_t n)
{
    memset(sum, 0, (size_t)n * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            sum[i] += x[r * row + i];
    }
}

static void sum_blocks(void *arg, int64_t begin, int64_t end)
{
    const sum_work *w = arg;
    for (int64_t at = begin; at < end; at++) {
        int64_t o = at / w->blocks, first = at % w->blocks * w->block;
        int64_t n = EG_MIN(w->block, w->reduced - first);
        const float *x = w->x + o * w->x_outer + first * w->x_reduced;
        float *partial = w->partial + at * w->inner;
        if (w->inner == 1 && w->x_reduced == 1)
            partial[0] = sum_line(x, n);
        else
            sum_rows(partial, x, n, w->x_reduced, w->inner);
    }
}

static void add_blocks(void *arg, int64_t begin, int64_t end)
{
    const sum_work *w = arg;
    for (int64_t at = begin; at < end; at++) {
        int64_t o = at / w->inner, c = at % w->inner;
        const float *partial = w->partial + o * w->blocks * w->inner + c;
        double sum = 0;
        for (int64_t b = 0; b < w->blocks; b++)
            sum += (double)partial[b * w->inner];
        w->y[o * w->y_outer + c * w->y_inner] = (float)sum;
    }
}

/* Reads the pattern from the merged loop over (x, y), where y has stride 0 in summed dimensions. */
static bool sum_pattern(const eg__loop *l, sum_work *w)
{
    *w = (sum_work){.x = l->data[0], .y = l->data[1], .outer = 1, .reduced = 1, .inner = 1};
    int at = 0;
    while (at < l->ndim && l->dims[at] == 1)
        at++;
    if (at < l->ndim && l->strides[1][at] != 0) {
        w->outer = l->dims[at];
        w->x_outer = l->strides[0][at];
        w->y_outer = l->strides[1][at++];
    }
    if (at < l->ndim && l->strides[1][at] == 0) {
        w->reduced = l->dims[at];
        w->x_reduced = l->strides[0][at++];
    }
    if (at < l->ndim && l->strides[1][at] != 0 && l->strides[0][at] == 1) {
        w->inner = l->dims[at];
        w->y_inner = l->strides[1][at++];
    }
    return at == l->ndim;
}

eg_status eg__cpu_reduce(eg__reduction op, const eg_tensor *x, eg_tensor *y, eg_tensor *index)
{
    eg__loop loop;
    sum_work w;
    int64_t numel = eg_shape_numel(x->shape);
    if (op != EG__SUM || numel == 0)
        return eg__ref_kernels.reduce(op, x, y, index);
    eg__loop_make(&loop, 2, (const eg_tensor *const[]){x, y});
    if (!sum_pattern(&loop, &w))
        return eg__ref_kernels.reduce(op, x, y, index);
    /* Rows of one element each are summed by eight in parallel; wide rows are added element by element, where long sums
     * in float would lose digits: short blocks. */
    w.block = w.inner == 1 ? EG__SUM_BLOCK : EG_MAX(64, EG__SUM_BLOCK / w.inner);
    w.blocks = (w.reduced + w.block - 1) / w.block;
    size_t bytes = (size_t)(w.outer * w.blocks * w.inner) * sizeof(float);
    w.partial = eg__pool_take(x->ctx, bytes);
    if (!w.partial)
        return EG_ENOMEM;
    eg__for_each(x->ctx, w.outer * w.blocks, numel, sum_blocks, &w);
    eg__for(x->ctx, w.outer * w.inner, w.outer * w.blocks * w.inner, add_blocks, &w);
    eg__pool_give(x->ctx, w.partial, bytes);
    return EG_OK;
}
