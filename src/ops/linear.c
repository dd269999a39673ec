/*
 * ops/linear.c - linear: x w^T + b over the last dimension of x.
 */
#include "ops/internal.h"

static eg_status linear_infer(const eg_op_call *call, eg_spec *out)
{
    const eg_tensor *x = call->in[0], *weight = call->in[1];
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__check_input(call, 1, "weight"));
    EG_TRY(eg__check_ndim(weight, "weight", 2, "(out, in)"));
    EG_CHECK(x->shape.ndim >= 1, EG_ESHAPE, "input is a single number, expected (.., %lld)",
             (long long)weight->shape.dims[1]);
    int last = x->shape.ndim - 1;
    EG_CHECK(x->shape.dims[last] == weight->shape.dims[1], EG_ESHAPE, "input has %lld features, weight expects %lld",
             (long long)x->shape.dims[last], (long long)weight->shape.dims[1]);
    EG_TRY(eg__check_vector(call, 2, "bias", weight->shape.dims[0]));
    eg_shape shape = x->shape;
    shape.dims[last] = weight->shape.dims[0];
    EG_TRY(eg__spec_set(out, x, shape));
    out->layout = EG_LAYOUT_ROW_MAJOR; /* one matrix product writes all rows */
    return EG_OK;
}

static int64_t row_count(eg_shape shape)
{
    return eg_shape_numel(shape) / shape.dims[shape.ndim - 1];
}

static eg_status linear_forward(eg_op_call *call)
{
    eg_tensor *x = eg__with_rows(call->in[0]), *weight = call->in[1], *y = call->out[0];
    if (!x)
        return eg__pending();
    int64_t rows = row_count(x->shape);
    eg_tensor a = eg__operand_rows(x, rows, weight->shape.dims[1]), b = eg__operand_transpose(weight);
    eg_tensor result = eg__operand_rows(y, rows, weight->shape.dims[0]);
    const eg_kernels *k = eg__kernels(call->ctx, y->dtype);
    eg_status status = k->matmul(&a, &b, eg__optional(call->in[2]), &result);
    if (status == EG_OK && call->needs_grad[0])
        status = eg_op_save(call, weight);
    if (status == EG_OK && call->needs_grad[1])
        status = eg_op_save(call, x);
    eg_tensor_release(x);
    return status;
}

static eg_status linear_input_gradient(eg_op_grad *grad, const eg_tensor *dy, const eg_tensor *weight)
{
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (!dx)
        return eg__pending();
    const eg_kernels *k = eg__kernels(grad->ctx, dx->dtype);
    int64_t rows = row_count(dx->shape), features = weight->shape.dims[1];
    eg_tensor a = eg__operand_rows(dy, rows, weight->shape.dims[0]);
    if (dx->shape.ndim == 2 || eg__is_row_major(dx)) {
        eg_tensor result = eg__operand_rows(dx, rows, features);
        return k->matmul(&a, weight, NULL, &result);
    }
    eg_tensor *ordered = eg__tensor_new(grad->ctx, dx->dtype, dx->shape, EG_LAYOUT_ROW_MAJOR);
    if (!ordered)
        return eg__pending();
    eg_tensor result = eg__operand_rows(ordered, rows, features);
    eg_status status = k->matmul(&a, weight, NULL, &result);
    if (status == EG_OK)
        status = k->copy(ordered, dx);
    eg_tensor_release(ordered);
    return status;
}

static eg_status linear_weight_gradient(eg_op_grad *grad, const eg_tensor *dy, const eg_tensor *x)
{
    eg_tensor *dw = eg_op_grad_new(grad, 1);
    if (!dw)
        return eg__pending();
    int64_t rows = row_count(x->shape);
    eg_tensor a = eg__operand_rows(dy, rows, dw->shape.dims[0]), b = eg__operand_rows(x, rows, dw->shape.dims[1]);
    eg_tensor transposed = eg__operand_transpose(&a);
    return eg__kernels(grad->ctx, dw->dtype)->matmul(&transposed, &b, NULL, dw);
}

static eg_status linear_bias_gradient(eg_op_grad *grad, const eg_tensor *dy)
{
    eg_tensor *db = eg_op_grad_new(grad, 2);
    if (!db)
        return eg__pending();
    eg_tensor rows = eg__operand_rows(dy, row_count(dy->shape), db->shape.dims[0]);
    eg_tensor sums = eg__operand(db, EG_SHAPE(1, db->shape.dims[0]), (const int64_t[]){0, db->strides[0]}, 0);
    return eg__kernels(grad->ctx, db->dtype)->reduce(EG__SUM, &rows, &sums, NULL);
}

static eg_status linear_backward(eg_op_grad *grad)
{
    eg_tensor *dy = eg__with_rows(grad->grad_out[0]);
    if (!dy)
        return eg__pending();
    size_t next = 0;
    eg_status status = EG_OK;
    if (grad->needs_grad[0])
        status = linear_input_gradient(grad, dy, grad->saved[next++]);
    if (status == EG_OK && grad->needs_grad[1])
        status = linear_weight_gradient(grad, dy, grad->saved[next]);
    if (status == EG_OK && grad->needs_grad[2])
        status = linear_bias_gradient(grad, dy);
    eg_tensor_release(dy);
    return status;
}

static uint64_t linear_macs(const eg_op_call *call)
{
    return eg__mul_saturated((uint64_t)row_count(call->in[0]->shape), (uint64_t)eg_shape_numel(call->in[1]->shape));
}

const eg_op eg__op_linear = {
    .struct_size = sizeof(eg_op),
    .name = "linear",
    .optional = 1u << 2,
    .infer = linear_infer,
    .forward = linear_forward,
    .backward = linear_backward,
    .macs = linear_macs,
};

eg_tensor *eg_f_linear(eg_tensor *x, eg_tensor *weight, eg_tensor *bias)
{
    return eg_apply(&eg__op_linear, (eg_tensor *const[]){x, weight, bias}, 3, NULL);
}
