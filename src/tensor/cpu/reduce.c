/*
 * tensor/cpu/reduce.c - sums and maxima over dimensions, for dimensions that in memory order read [kept] [reduced]
 * [kept]: all, images (H, W of NHWC), a batch, the last dimensions. Other orders are the reference's.
 */
#include "tensor/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* y[o, c] = sum (or maximum) over r of x[o, r, c]. The r are cut into blocks; each block's result goes into `partial`
 * [o][block][c], and where in the block a maximum was into `where`. */
typedef struct reduce_work {
    const float *x;
    float *y, *partial;
    int32_t *where;                /* maxima only */
    int64_t *index;                /* maxima only, may be NULL */
    int64_t outer, reduced, inner; /* sizes */
    int64_t x_outer, x_reduced;    /* strides; 1 for the inner one */
    int64_t y_outer, y_inner;
    int64_t index_outer, index_inner;
    int64_t block, blocks;
} reduce_work;

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

/* The larger, the first of equal ones; a NaN wins and stays. */
EG__CLONES static void max_rows(float *restrict best, int32_t *restrict where, const float *restrict x, int64_t rows,
                                int64_t row, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        best[i] = -INFINITY;
        where[i] = 0;
    }
    for (int64_t r = 0; r < rows; r++) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float value = x[r * row + i];
            bool larger = !(value <= best[i]) && best[i] == best[i];
            best[i] = larger ? value : best[i];
            where[i] = larger ? (int32_t)r : where[i];
        }
    }
}

/* The same of one number and the best so far, in any order of positions. */
static void take_larger(float value, int64_t at, float *best, int64_t *where)
{
    bool equal = value == *best || (isnan(value) && isnan(*best));
    if (value > *best || (isnan(value) && !equal) || (equal && at < *where)) {
        *best = value;
        *where = at;
    }
}

/* A line as rows of sixteen, and what is left of it. */
static void max_line(float *best, int32_t *where, const float *x, int64_t n)
{
    enum { LANES = 16 };
    float lane_best[LANES], value = x[0];
    int32_t lane_where[LANES];
    int64_t at = 0, rows = n / LANES;
    if (rows > 0)
        max_rows(lane_best, lane_where, x, rows, LANES, LANES);
    for (int64_t i = 0; rows > 0 && i < LANES; i++)
        take_larger(lane_best[i], lane_where[i] * LANES + i, &value, &at);
    for (int64_t i = rows * LANES; i < n; i++)
        take_larger(x[i], i, &value, &at);
    *best = value;
    *where = (int32_t)at;
}

static void reduce_blocks(void *arg, int64_t begin, int64_t end)
{
    const reduce_work *w = arg;
    bool line = w->inner == 1 && w->x_reduced == 1;
    for (int64_t at = begin; at < end; at++) {
        int64_t o = at / w->blocks, first = at % w->blocks * w->block;
        int64_t n = EG_MIN(w->block, w->reduced - first);
        const float *x = w->x + o * w->x_outer + first * w->x_reduced;
        float *partial = w->partial + at * w->inner;
        if (w->where && line)
            max_line(partial, w->where + at, x, n);
        else if (w->where)
            max_rows(partial, w->where + at * w->inner, x, n, w->x_reduced, w->inner);
        else if (line)
            partial[0] = sum_line(x, n);
        else
            sum_rows(partial, x, n, w->x_reduced, w->inner);
    }
}

static void add_blocks(void *arg, int64_t begin, int64_t end)
{
    const reduce_work *w = arg;
    for (int64_t at = begin; at < end; at++) {
        int64_t o = at / w->inner, c = at % w->inner;
        const float *partial = w->partial + o * w->blocks * w->inner + c;
        double sum = 0;
        for (int64_t b = 0; b < w->blocks; b++)
            sum += (double)partial[b * w->inner];
        w->y[o * w->y_outer + c * w->y_inner] = (float)sum;
    }
}

static void largest_block(void *arg, int64_t begin, int64_t end)
{
    const reduce_work *w = arg;
    for (int64_t at = begin; at < end; at++) {
        int64_t o = at / w->inner, c = at % w->inner, from = o * w->blocks * w->inner + c, position = w->where[from];
        float best = w->partial[from];
        for (int64_t b = 1; b < w->blocks; b++)
            take_larger(w->partial[from + b * w->inner], b * w->block + w->where[from + b * w->inner], &best,
                        &position);
        w->y[o * w->y_outer + c * w->y_inner] = best;
        if (w->index)
            w->index[o * w->index_outer + c * w->index_inner] = position;
    }
}

/* Reads the pattern from the merged loop over (x, y, index), where y has stride 0 in reduced dimensions. */
static bool reduce_pattern(const eg__loop *l, reduce_work *w)
{
    *w = (reduce_work){.x = l->data[0], .y = l->data[1], .outer = 1, .reduced = 1, .inner = 1};
    int at = 0;
    while (at < l->ndim && l->dims[at] == 1)
        at++;
    if (at < l->ndim && l->strides[1][at] != 0) {
        w->outer = l->dims[at];
        w->x_outer = l->strides[0][at];
        w->index_outer = l->strides[2][at];
        w->y_outer = l->strides[1][at++];
    }
    if (at < l->ndim && l->strides[1][at] == 0) {
        w->reduced = l->dims[at];
        w->x_reduced = l->strides[0][at++];
    }
    if (at < l->ndim && l->strides[1][at] != 0 && l->strides[0][at] == 1) {
        w->inner = l->dims[at];
        w->index_inner = l->strides[2][at];
        w->y_inner = l->strides[1][at++];
    }
    return at == l->ndim;
}

/* Whether the reduced dimensions lie in memory in logical order, in which positions are counted. */
static bool in_logical_order(const eg_tensor *x, const eg_tensor *y)
{
    int64_t outer = INT64_MAX;
    for (int d = 0; d < x->shape.ndim; d++) {
        if (x->shape.dims[d] == y->shape.dims[d])
            continue;
        if (x->strides[d] > outer)
            return false;
        outer = x->strides[d];
    }
    return true;
}

static eg_status reduce_row_major(eg__reduction op, const eg_tensor *x, eg_tensor *y, eg_tensor *index)
{
    eg_tensor *ordered = eg__tensor_new(x->ctx, EG_F32, x->shape, EG_LAYOUT_ROW_MAJOR);
    eg_status status = ordered ? eg__cpu_copy(x, ordered) : EG_ENOMEM;
    if (status == EG_OK)
        status = eg__cpu_reduce(op, ordered, y, index);
    eg_tensor_release(ordered);
    return status;
}

eg_status eg__cpu_reduce(eg__reduction op, const eg_tensor *x, eg_tensor *y, eg_tensor *index)
{
    eg__loop loop;
    reduce_work w;
    int64_t numel = eg_shape_numel(x->shape);
    if (numel == 0)
        return eg__ref_kernels.reduce(op, x, y, index);
    if (index && !in_logical_order(x, y))
        return reduce_row_major(op, x, y, index);
    eg__loop_make(&loop, 3, (const eg_tensor *const[]){x, y, index ? index : y});
    if (!reduce_pattern(&loop, &w))
        return eg__ref_kernels.reduce(op, x, y, index);
    /* Rows of one element each are summed by eight in parallel; wide rows are added element by element, where long sums
     * in float would lose digits: short blocks. */
    w.block = w.inner == 1 ? EG__SUM_BLOCK : EG_MAX(64, EG__SUM_BLOCK / w.inner);
    w.blocks = (w.reduced + w.block - 1) / w.block;
    size_t n = (size_t)(w.outer * w.blocks * w.inner), bytes = n * (sizeof(float) + (op == EG__MAX) * sizeof(int32_t));
    w.partial = eg__pool_take(x->ctx, bytes);
    if (!w.partial)
        return EG_ENOMEM;
    w.where = op == EG__MAX ? (int32_t *)(w.partial + n) : NULL;
    w.index = index ? eg__i64(index) : NULL;
    eg__for_each(x->ctx, w.outer * w.blocks, numel, reduce_blocks, &w);
    eg__for(x->ctx, w.outer * w.inner, (int64_t)n, op == EG__MAX ? largest_block : add_blocks, &w);
    eg__pool_give(x->ctx, w.partial, bytes);
    return EG_OK;
}
