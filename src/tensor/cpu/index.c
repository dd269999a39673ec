/*
 * tensor/cpu/index.c - along one dimension: picking elements, adding to picked elements, running sums, the largest.
 */
#include "tensor/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* ---- gather: y = x[index]; scatter_add: x[index] += y ---- */

/* The dimensions of y of size > 1 in its memory order. x_step is 0 for the indexed one: there the index says where. */
typedef struct gather_work {
    bool scatter;
    int ndim, split; /* at least 1; the dimension that is spread over threads, -1 = none */
    int64_t dims[EG_MAX_DIMS], x_step[EG_MAX_DIMS], y_step[EG_MAX_DIMS], index_step[EG_MAX_DIMS];
    int64_t stride; /* of x along the indexed dimension */
    float *x, *y;
    const int64_t *index;
} gather_work;

static void scatter_line(const gather_work *w, int64_t n, float *x, const float *y, const int64_t *index)
{
    int last = w->ndim - 1;
    int64_t x_step = w->x_step[last], y_step = w->y_step[last], index_step = w->index_step[last];
    if (index_step == 0 && x_step == 1 && y_step == 1) {
        x += index[0] * w->stride;
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            x[i] += y[i];
        return;
    }
    for (int64_t i = 0; i < n; i++)
        x[i * x_step + index[i * index_step] * w->stride] += y[i * y_step];
}

static void gather_line(const gather_work *w, int64_t n, const float *x, float *y, const int64_t *index)
{
    int last = w->ndim - 1;
    int64_t x_step = w->x_step[last], y_step = w->y_step[last], index_step = w->index_step[last];
    if (index_step == 0 && x_step == 1 && y_step == 1) {
        memcpy(y, x + index[0] * w->stride, (size_t)n * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        y[i * y_step] = x[i * x_step + index[i * index_step] * w->stride];
}

/* All elements whose place in dimension `split` is begin .. end-1, dimension d and those inside of it. */
static void walk(const gather_work *w, int d, float *x, float *y, const int64_t *index, int64_t begin, int64_t end)
{
    int64_t from = d == w->split ? begin : 0, to = d == w->split ? end : w->dims[d];
    x += from * w->x_step[d];
    y += from * w->y_step[d];
    index += from * w->index_step[d];
    if (d == w->ndim - 1) {
        if (w->scatter)
            scatter_line(w, to - from, x, y, index);
        else
            gather_line(w, to - from, x, y, index);
        return;
    }
    for (int64_t i = 0; i < to - from; i++)
        walk(w, d + 1, x + i * w->x_step[d], y + i * w->y_step[d], index + i * w->index_step[d], begin, end);
}

static void walk_part(void *arg, int64_t begin, int64_t end)
{
    const gather_work *w = arg;
    walk(w, 0, w->x, w->y, w->index, begin, end);
}

/* Threads share out a dimension other than the indexed one, so that no two of them add to one element of x. */
static void gather_any(bool scatter, int dim, const eg_tensor *x, const eg_tensor *index, const eg_tensor *y)
{
    gather_work w = {.scatter = scatter, .split = -1, .stride = x->strides[dim], .index = eg__i64(index)};
    w.x = eg__f32(x), w.y = eg__f32(y);
    int order[EG_MAX_DIMS] = {0};
    for (int d = 0; d < y->shape.ndim; d++) {
        if (y->shape.dims[d] == 1)
            continue;
        int at = w.ndim++;
        for (; at > 0 && y->strides[order[at - 1]] < y->strides[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    for (int i = 0; i < w.ndim; i++) {
        int d = order[i];
        w.dims[i] = y->shape.dims[d];
        w.x_step[i] = d == dim ? 0 : x->strides[d];
        w.y_step[i] = y->strides[d];
        w.index_step[i] = index->strides[d];
        if (d != dim && (w.split < 0 || w.dims[i] > w.dims[w.split]))
            w.split = i;
    }
    if (w.ndim == 0)
        w.dims[w.ndim++] = 1;
    int64_t numel = eg_shape_numel(y->shape);
    if (w.split < 0)
        walk_part(&w, 0, 0);
    else
        eg__for_each(y->ctx, w.dims[w.split], numel, walk_part, &w);
}

eg_status eg__cpu_gather(int dim, const eg_tensor *x, const eg_tensor *index, eg_tensor *y)
{
    gather_any(false, dim, x, index, y);
    return EG_OK;
}

eg_status eg__cpu_scatter_add(int dim, const eg_tensor *index, const eg_tensor *dy, eg_tensor *dx)
{
    gather_any(true, dim, dx, index, dy);
    return EG_OK;
}

/* ---- lines: running sums, the largest ---- */

typedef struct line_work {
    int dim;
    bool flag; /* cumsum: reverse; topk: largest */
    const eg_tensor *x;
    eg_tensor *out, *index;
} line_work;

static void cumsum_lines(void *arg, int64_t begin, int64_t end)
{
    const line_work *w = arg;
    int64_t n = w->x->shape.dims[w->dim], step = w->flag ? -1 : 1;
    for (int64_t line = begin; line < end; line++) {
        const float *x = eg__f32(w->x) + eg__line_at(w->x, w->dim, line) + (w->flag ? n - 1 : 0);
        float *y = eg__f32(w->out) + eg__line_at(w->out, w->dim, line) + (w->flag ? n - 1 : 0);
        double sum = 0.0;
        for (int64_t i = 0; i < n; i++) {
            sum += (double)x[i * step];
            y[i * step] = (float)sum;
        }
    }
}

eg_status eg__cpu_cumsum(int dim, bool reverse, const eg_tensor *x, eg_tensor *y)
{
    eg_tensor *owned[2] = {NULL, NULL};
    eg_status status = EG_ENOMEM;
    line_work w = {.dim = dim, .flag = reverse, .x = eg__with_lines(x, dim, true, &owned[0])};
    w.out = w.x ? eg__with_lines(y, dim, false, &owned[1]) : NULL;
    if (w.out) {
        int64_t numel = eg_shape_numel(x->shape);
        eg__for_each(x->ctx, numel / x->shape.dims[dim], numel, cumsum_lines, &w);
        status = w.out == y ? EG_OK : eg__cpu_copy(w.out, y);
    }
    eg_tensor_release(owned[0]);
    eg_tensor_release(owned[1]);
    return status;
}

/* The best k so far, as a heap with the last of them in rank on top, in the outputs' own memory. */
typedef struct heap {
    float *values;
    int64_t *index;
    int64_t values_step, index_step, n;
    bool largest;
} heap;

/* Whether element (a, i) ranks after (b, j): NaN is the largest of all, and of equal ones the first ranks first. */
static bool ranks_after(bool largest, float a, int64_t i, float b, int64_t j)
{
    bool less = a < b || (isnan(b) && !isnan(a)), more = a > b || (isnan(a) && !isnan(b));
    return largest ? less || (!more && i > j) : more || (!less && i > j);
}

/* Puts an element in at `at`, an empty place, below which all is in order. */
static void sift_down(const heap *h, int64_t at, float value, int64_t index)
{
    for (int64_t child; (child = 2 * at + 1) < h->n; at = child) {
        const float *v = h->values + child * h->values_step;
        const int64_t *i = h->index + child * h->index_step;
        if (child + 1 < h->n && ranks_after(h->largest, v[h->values_step], i[h->index_step], v[0], i[0])) {
            child++;
            v += h->values_step;
            i += h->index_step;
        }
        if (!ranks_after(h->largest, v[0], i[0], value, index))
            break;
        h->values[at * h->values_step] = v[0];
        h->index[at * h->index_step] = i[0];
    }
    h->values[at * h->values_step] = value;
    h->index[at * h->index_step] = index;
}

static void topk_lines(void *arg, int64_t begin, int64_t end)
{
    const line_work *w = arg;
    int64_t n = w->x->shape.dims[w->dim], k = w->out->shape.dims[w->dim];
    heap h = {.values_step = w->out->strides[w->dim], .index_step = w->index->strides[w->dim], .largest = w->flag};
    for (int64_t line = begin; line < end; line++) {
        const float *x = eg__f32(w->x) + eg__line_at(w->x, w->dim, line);
        h.values = eg__f32(w->out) + eg__line_at(w->out, w->dim, line);
        h.index = eg__i64(w->index) + eg__line_at(w->index, w->dim, line);
        for (int64_t i = 0; i < k; i++) {
            h.values[i * h.values_step] = x[i];
            h.index[i * h.index_step] = i;
        }
        h.n = k;
        for (int64_t i = k / 2 - 1; i >= 0; i--)
            sift_down(&h, i, x[i], i);
        for (int64_t i = k; i < n; i++)
            if (ranks_after(h.largest, h.values[0], h.index[0], x[i], i))
                sift_down(&h, 0, x[i], i);
        /* the last in rank goes to the end, the heap shrinks before it */
        while (h.n > 1) {
            float last = h.values[0], *value = h.values + --h.n * h.values_step;
            int64_t last_index = h.index[0], *index = h.index + h.n * h.index_step;
            sift_down(&h, 0, *value, *index);
            *value = last;
            *index = last_index;
        }
    }
}

eg_status eg__cpu_topk(int dim, bool largest, const eg_tensor *x, eg_tensor *values, eg_tensor *index)
{
    eg_tensor *owned = NULL;
    line_work w = {
        .dim = dim, .flag = largest, .x = eg__with_lines(x, dim, true, &owned), .out = values, .index = index};
    if (w.x) {
        int64_t numel = eg_shape_numel(x->shape);
        eg__for_each(x->ctx, numel / x->shape.dims[dim], numel, topk_lines, &w);
    }
    eg_tensor_release(owned);
    return w.x ? EG_OK : EG_ENOMEM;
}
