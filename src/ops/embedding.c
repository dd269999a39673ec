/*
 * ops/embedding.c - rows of a table by their numbers.
 */
#include "ops/internal.h"

#include <math.h>

static eg_status check_indices(const eg_tensor *index, int64_t rows)
{
    if (!index->storage)
        return EG_OK;
    EG_CHECK(index->dtype == EG_I64, EG_EDTYPE, "index has type %s, expected int64", eg_dtype_name(index->dtype));
    int64_t at[EG_MAX_DIMS] = {0};
    for (int64_t n = eg_shape_numel(index->shape); n > 0; n--) {
        int64_t place = 0;
        for (int d = 0; d < index->shape.ndim; d++)
            place += at[d] * index->strides[d];
        int64_t value = eg__i64(index)[place];
        EG_CHECK(value >= 0 && value < rows, EG_EINVAL, "index %lld is out of range for a weight of %lld rows",
                 (long long)value, (long long)rows);
        for (int d = index->shape.ndim - 1; d >= 0 && ++at[d] == index->shape.dims[d]; d--)
            at[d] = 0;
    }
    return EG_OK;
}

static eg_status embedding_infer(const eg_op_call *call, eg_spec *out)
{
    const eg_tensor *index = call->in[0], *weight = call->in[1];
    int64_t padding = ((const eg__embedding_attrs *)call->attrs)->padding;
    EG_CHECK(weight->dtype == EG_F32 || weight->dtype == EG_F64, EG_EDTYPE,
             "weight has type %s, expected float32 or float64", eg_dtype_name(weight->dtype));
    EG_TRY(eg__check_ndim(weight, "weight", 2, "(V, D)"));
    EG_TRY(eg__check_sizes(weight, "weight"));
    EG_TRY(eg__check_sizes(index, "index"));
    EG_CHECK(padding < weight->shape.dims[0], EG_EINVAL, "padding index %lld is out of range for a weight of %lld rows",
             (long long)padding, (long long)weight->shape.dims[0]);
    eg_shape shape = index->shape;
    EG_CHECK(shape.ndim < EG_MAX_DIMS, EG_ESHAPE, "index %s has %d dimensions, expected at most %d", EG__TEXT(shape),
             shape.ndim, EG_MAX_DIMS - 1);
    EG_TRY(check_indices(index, weight->shape.dims[0]));
    shape.dims[shape.ndim++] = weight->shape.dims[1];
    EG_TRY(eg__spec_set(out, weight, shape));
    out->layout = EG_LAYOUT_ROW_MAJOR;
    return EG_OK;
}

/* As one line; row-major. */
static eg_tensor as_line(const eg_tensor *index)
{
    return eg__operand(index, EG_SHAPE(eg_shape_numel(index->shape)), (const int64_t[]){1}, 0);
}

static eg_status embedding_forward(eg_op_call *call)
{
    eg_tensor *index = call->in[0], *weight = call->in[1], *y = call->out[0];
    eg_tensor *ordered = eg__is_row_major(index) ? eg_tensor_keep(index)
                                                 : eg__tensor_new(call->ctx, EG_I64, index->shape, EG_LAYOUT_ROW_MAJOR);
    if (!ordered)
        return eg__pending();
    const eg_kernels *k = eg__kernels(call->ctx, weight->dtype);
    eg_status status = ordered == index ? EG_OK : k->copy(index, ordered);
    if (status == EG_OK) {
        eg_tensor line = as_line(ordered), rows = eg__operand_some_rows(y, 0, line.shape.dims[0]);
        status = k->embedding(&line, weight, &rows);
    }
    if (status == EG_OK && call->needs_grad[1])
        status = eg_op_save(call, ordered);
    eg_tensor_release(ordered);
    return status;
}

static eg_status embedding_backward(eg_op_grad *grad)
{
    eg_tensor *dweight = eg_op_grad_new(grad, 1), *dy = dweight ? eg__with_rows(grad->grad_out[0]) : NULL;
    if (!dy)
        return eg__pending();
    int64_t padding = ((const eg__embedding_attrs *)grad->attrs)->padding;
    eg_tensor line = as_line(grad->saved[0]);
    eg_tensor rows = eg__operand_rows(dy, line.shape.dims[0], dweight->shape.dims[1]);
    eg_status status = eg__kernels(grad->ctx, dy->dtype)->embedding_backward(padding, &line, &rows, dweight);
    eg_tensor_release(dy);
    return status;
}

const eg_op eg__op_embedding = {
    .struct_size = sizeof(eg_op),
    .name = "embedding",
    .attrs_size = sizeof(eg__embedding_attrs),
    .infer = embedding_infer,
    .forward = embedding_forward,
    .backward = embedding_backward,
};

eg_tensor *eg_f_embedding_with(const eg_embedding_args *args)
{
    if (!args)
        return eg__null(__func__, "args");
    eg__embedding_attrs attrs = {.padding = -1};
    if (args->padding_idx.set) {
        double rows = args->weight && args->weight->shape.ndim == 2 ? (double)args->weight->shape.dims[0] : 0;
        double padding = args->padding_idx.value;
        padding += padding < 0 ? rows : 0;
        if (padding != floor(padding) || padding < 0 || padding >= 0x1p53) {
            eg_fail(EG_EINVAL, "embedding: padding index is %g, expected a row of the weight", args->padding_idx.value);
            return NULL;
        }
        attrs.padding = (int64_t)padding;
    }
    return eg_apply(&eg__op_embedding, (eg_tensor *const[]){args->index, args->weight}, 2, &attrs);
}
