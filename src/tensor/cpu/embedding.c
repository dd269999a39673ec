/*
 * tensor/cpu/embedding.c - rows of a table, and their gradients.
 *
 * Backward gives each thread a range of the table's rows: it looks through all indices and adds what falls into its
 * range, so that every row is summed in the order of the indices whatever the number of threads.
 */
#include "tensor/cpu/cpu.h"

#include <string.h>

typedef struct embedding_work {
    const int64_t *index;
    int64_t n, d, padding;
    const float *from;
    float *to;
    int64_t from_row, to_row; /* strides */
} embedding_work;

static void gather_rows(void *arg, int64_t begin, int64_t end)
{
    const embedding_work *w = arg;
    for (int64_t i = begin; i < end; i++)
        memcpy(w->to + i * w->to_row, w->from + w->index[i] * w->from_row, (size_t)w->d * sizeof(float));
}

EG__CLONES static void add_row(float *restrict y, const float *restrict x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void scatter_rows(void *arg, int64_t begin, int64_t end)
{
    const embedding_work *w = arg;
    for (int64_t v = begin; v < end; v++)
        memset(w->to + v * w->to_row, 0, (size_t)w->d * sizeof(float));
    for (int64_t i = 0; i < w->n; i++)
        if (w->index[i] >= begin && w->index[i] < end && w->index[i] != w->padding)
            add_row(w->to + w->index[i] * w->to_row, w->from + i * w->from_row, w->d);
}

static bool row_by_row(const eg_tensor *index, const eg_tensor *a, const eg_tensor *b)
{
    return index->strides[0] == 1 && (a->strides[1] == 1 || a->shape.dims[1] == 1) &&
           (b->strides[1] == 1 || b->shape.dims[1] == 1);
}

static embedding_work work_of(int64_t padding, const eg_tensor *index, const eg_tensor *from, const eg_tensor *to)
{
    return (embedding_work){.index = eg__i64(index),
                            .n = index->shape.dims[0],
                            .d = to->shape.dims[1],
                            .padding = padding,
                            .from = eg__f32(from),
                            .to = eg__f32(to),
                            .from_row = from->strides[0],
                            .to_row = to->strides[0]};
}

eg_status eg__cpu_embedding(const eg_tensor *index, const eg_tensor *weight, eg_tensor *y)
{
    if (!row_by_row(index, weight, y))
        return eg__ref_kernels.embedding(index, weight, y);
    embedding_work w = work_of(-1, index, weight, y);
    eg__for_each(y->ctx, w.n, w.n * w.d, gather_rows, &w);
    return EG_OK;
}

eg_status eg__cpu_embedding_backward(int64_t padding, const eg_tensor *index, const eg_tensor *dy, eg_tensor *dweight)
{
    if (!row_by_row(index, dy, dweight))
        return eg__ref_kernels.embedding_backward(padding, index, dy, dweight);
    embedding_work w = work_of(padding, index, dy, dweight);
    int64_t rows = dweight->shape.dims[0];
    eg__for_each(dy->ctx, rows, (w.n + rows) * w.d, scatter_rows, &w);
    return EG_OK;
}
