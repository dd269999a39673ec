/*
 * tensor/dnnl/matmul.c - matrix products through oneDNN's sgemm, which takes rows or columns of any distance.
 *
 * Of a batch, the threads share the matrices where these are many enough, each computing its own on one thread; else
 * they share each product.
 */
#include "tensor/dnnl/primitive.h"

#include <string.h>

/* Matrices as sgemm sees them: contiguous rows, or, transposed, contiguous columns. */
typedef struct operand {
    const eg_tensor *t; /* (.., rows, columns) */
    bool transposed;
    int64_t distance; /* of rows, or of columns when transposed */
    eg_tensor *owned; /* t as a copy */
} operand;

static bool as_operand(const eg_tensor *t, operand *o)
{
    int last = t->shape.ndim - 1;
    int64_t rows = t->shape.dims[last - 1], cols = t->shape.dims[last];
    int64_t row = t->strides[last - 1], col = t->strides[last];
    *o = (operand){.t = t};
    if ((col == 1 || cols == 1) && (row >= cols || rows == 1)) {
        o->distance = EG_MAX(row, cols);
        return true;
    }
    o->transposed = true;
    o->distance = EG_MAX(col, rows);
    return (row == 1 || rows == 1) && (col >= rows || cols == 1);
}

/* Sets *o to t, or where sgemm cannot take it to a new row-major tensor, which has t's numbers if `copy`. */
static eg_status operand_of(const eg_tensor *t, bool copy, operand *o)
{
    if (as_operand(t, o))
        return EG_OK;
    eg_tensor *plain = eg__tensor_new(t->ctx, EG_F32, t->shape, EG_LAYOUT_ROW_MAJOR);
    if (!plain)
        return EG_ENOMEM;
    as_operand(plain, o);
    o->owned = plain;
    return copy ? eg__cpu_copy(t, plain) : EG_OK;
}

typedef struct products {
    operand a, b, y;
    const eg_tensor *bias;
    int64_t m, n, k;
    dnnl_status_t status; /* a failure of one of them */
} products;

static void fill_rows(const eg_tensor *bias, float *y, int64_t row, int64_t col, int64_t m, int64_t n)
{
    const float *from = eg__f32(bias);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            y[i * row + j * col] = from[j * bias->strides[0]];
}

/* Where matrix number i of the batch begins. */
static float *matrix_at(const operand *o, int64_t i)
{
    float *at = eg__f32(o->t);
    for (int d = o->t->shape.ndim - 3; d >= 0; d--) {
        at += i % o->t->shape.dims[d] * o->t->strides[d];
        i /= o->t->shape.dims[d];
    }
    return at;
}

/* y = a b (+ y) for m x k and k x n; y transposed: the same product with everything transposed. */
static dnnl_status_t multiply(const products *p, int64_t i)
{
    const float *a = matrix_at(&p->a, i), *b = matrix_at(&p->b, i);
    float *y = matrix_at(&p->y, i), keep = p->bias ? 1.0f : 0.0f;
    int64_t distance = p->y.distance;
    if (p->bias)
        fill_rows(p->bias, y, p->y.transposed ? 1 : distance, p->y.transposed ? distance : 1, p->m, p->n);
    if (p->y.transposed)
        return dnnl_sgemm(p->b.transposed ? 'N' : 'T', p->a.transposed ? 'N' : 'T', p->n, p->m, p->k, 1.0f, b,
                          p->b.distance, a, p->a.distance, keep, y, distance);
    return dnnl_sgemm(p->a.transposed ? 'T' : 'N', p->b.transposed ? 'T' : 'N', p->m, p->n, p->k, 1.0f, a,
                      p->a.distance, b, p->b.distance, keep, y, distance);
}

static void multiply_some(void *arg, int64_t begin, int64_t end)
{
    products *p = arg;
    for (int64_t i = begin; i < end; i++) {
        dnnl_status_t status = multiply(p, i);
        if (status != dnnl_success) {
#pragma omp atomic write
            p->status = status;
        }
    }
}

/* All of the batch. Inside a parallel region sgemm stays on the thread that called it. */
static eg_status multiply_all(products *p)
{
    if (eg__is_dry(p->y.t->ctx))
        return EG_OK;
    int64_t batch = eg_shape_numel(p->y.t->shape) / (p->m * p->n), threads = eg_context_threads(p->y.t->ctx);
    double sums = (double)eg_shape_numel(p->y.t->shape) * (double)p->k;
    int64_t work = sums < 1e9 ? (int64_t)sums / 8 : EG__SERIAL; /* eight go in one vector */
    eg__dnnl_use_threads(p->y.t->ctx);
    if (batch % threads == 0 || batch >= 4 * threads)
        eg__for_each(p->y.t->ctx, batch, work, multiply_some, p);
    else
        multiply_some(p, 0, batch);
    return eg__dnnl_check(p->status, "a matrix product");
}

eg_status eg__dnnl_matmul(const eg_tensor *a, const eg_tensor *b, const eg_tensor *bias, eg_tensor *y)
{
    int last = y->shape.ndim - 1;
    products p = {.bias = bias, .m = y->shape.dims[last - 1], .n = y->shape.dims[last], .k = a->shape.dims[last]};
    if (eg_shape_numel(y->shape) == 0 || p.k == 0)
        return eg__ref_kernels.matmul(a, b, bias, y);
    eg_status status = operand_of(a, true, &p.a);
    if (status == EG_OK)
        status = operand_of(b, true, &p.b);
    if (status == EG_OK)
        status = operand_of(y, false, &p.y);
    if (status == EG_OK)
        status = multiply_all(&p);
    if (status == EG_OK && p.y.owned)
        status = eg__cpu_copy(p.y.owned, y);
    eg_tensor_release(p.a.owned);
    eg_tensor_release(p.b.owned);
    eg_tensor_release(p.y.owned);
    return status;
}
