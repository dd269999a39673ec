/*
 * tensor/dnnl/matmul.c - matrix products through oneDNN's sgemm, which takes rows or columns of any distance.
 */
#include "tensor/dnnl/primitive.h"

#include <string.h>

/* A matrix as sgemm sees it: contiguous rows, or, transposed, contiguous columns. */
typedef struct operand {
    float *data;
    bool transposed;
    int64_t distance; /* of rows, or of columns when transposed */
    eg_tensor *owned;
} operand;

static bool as_operand(const eg_tensor *t, operand *o)
{
    int64_t rows = t->shape.dims[0], cols = t->shape.dims[1], row = t->strides[0], col = t->strides[1];
    *o = (operand){.data = eg__f32(t)};
    if ((col == 1 || cols == 1) && (row >= cols || rows == 1)) {
        o->distance = EG_MAX(row, cols);
        return true;
    }
    o->transposed = true;
    o->distance = EG_MAX(col, rows);
    return (row == 1 || rows == 1) && (col >= rows || cols == 1);
}

static eg_status operand_in(const eg_tensor *t, operand *o)
{
    if (as_operand(t, o))
        return EG_OK;
    eg_tensor *copy = eg__tensor_new(t->ctx, EG_F32, t->shape, EG_LAYOUT_ROW_MAJOR);
    if (!copy)
        return EG_ENOMEM;
    as_operand(copy, o);
    o->owned = copy;
    return eg__cpu_copy(t, copy);
}

static void fill_rows(const eg_tensor *bias, const eg_tensor *y)
{
    for (int64_t i = 0; i < y->shape.dims[0]; i++) {
        float *row = eg__f32(y) + i * y->strides[0];
        for (int64_t j = 0; j < y->shape.dims[1]; j++)
            row[j * y->strides[1]] = eg__f32(bias)[j * bias->strides[0]];
    }
}

/* y = a b (+ y) for m x k and k x n; y transposed: the same product with everything transposed. */
static eg_status multiply(const operand *a, const operand *b, const operand *y, int64_t m, int64_t n, int64_t k,
                          float keep)
{
    if (y->transposed)
        return eg__dnnl_check(dnnl_sgemm(b->transposed ? 'N' : 'T', a->transposed ? 'N' : 'T', n, m, k, 1.0f, b->data,
                                         b->distance, a->data, a->distance, keep, y->data, y->distance),
                              "a matrix product");
    return eg__dnnl_check(dnnl_sgemm(a->transposed ? 'T' : 'N', b->transposed ? 'T' : 'N', m, n, k, 1.0f, a->data,
                                     a->distance, b->data, b->distance, keep, y->data, y->distance),
                          "a matrix product");
}

eg_status eg__dnnl_matmul(const eg_tensor *a, const eg_tensor *b, const eg_tensor *bias, eg_tensor *y)
{
    int64_t m = a->shape.dims[0], k = a->shape.dims[1], n = b->shape.dims[1];
    operand left = {0}, right = {0}, out;
    if (m == 0 || n == 0 || k == 0 || !as_operand(y, &out))
        return eg__ref_kernels.matmul(a, b, bias, y);
    eg__dnnl_use_threads(y->ctx);
    if (bias)
        fill_rows(bias, y);
    eg_status status = operand_in(a, &left);
    if (status == EG_OK)
        status = operand_in(b, &right);
    if (status == EG_OK)
        status = multiply(&left, &right, &out, m, n, k, bias ? 1.0f : 0.0f);
    eg_tensor_release(left.owned);
    eg_tensor_release(right.owned);
    return status;
}
