/*
 * ops/reduce.c - sum, mean and maximum over dimensions, and where the maximum is.
 */
#include "ops/internal.h"

/* Which dimensions are reduced; none named = all. */
static eg_status reduced_dims(eg_shape named, eg_shape x, bool *reduced)
{
    EG_CHECK(named.ndim >= 0 && named.ndim <= EG_MAX_DIMS, EG_EINVAL, "%d dimensions are named, expected at most %d",
             named.ndim, EG_MAX_DIMS);
    for (int d = 0; d < EG_MAX_DIMS; d++)
        reduced[d] = named.ndim == 0 && d < x.ndim;
    for (int i = 0; i < named.ndim; i++) {
        int64_t dim = named.dims[i] < 0 ? named.dims[i] + x.ndim : named.dims[i];
        EG_CHECK(dim >= 0 && dim < x.ndim, EG_EINVAL, "dimension %lld is out of range for an input %s",
                 (long long)named.dims[i], EG__TEXT(x));
        EG_CHECK(!reduced[dim], EG_EINVAL, "dimension %lld is named twice", (long long)dim);
        reduced[dim] = true;
    }
    return EG_OK;
}

static eg_status reduce_infer(const eg_op_call *call, eg_spec *out)
{
    const eg__reduce_attrs *attrs = call->attrs;
    eg_shape x = call->in[0]->shape, shape = {.ndim = 0};
    bool reduced[EG_MAX_DIMS];
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(reduced_dims(attrs->dims, x, reduced));
    for (int d = 0; d < x.ndim; d++)
        if (!reduced[d] || attrs->keepdim)
            shape.dims[shape.ndim++] = reduced[d] ? 1 : x.dims[d];
    return eg__spec_set(out, call->in[0], shape);
}

/* The result with all of x's dimensions, size 1 (stride 0) where reduced. `attrs` have passed reduce_infer(). */
static eg_tensor with_all_dims(const eg__reduce_attrs *attrs, const eg_tensor *y, eg_shape x)
{
    bool reduced[EG_MAX_DIMS] = {false};
    for (int d = 0; d < x.ndim && attrs->dims.ndim == 0; d++)
        reduced[d] = true;
    for (int i = 0; i < attrs->dims.ndim; i++)
        reduced[eg__wrap_dim((int)attrs->dims.dims[i], x.ndim)] = true;
    eg_shape shape = {.ndim = x.ndim};
    int64_t strides[EG_MAX_DIMS] = {0};
    for (int d = 0, own = 0; d < x.ndim; d++) {
        shape.dims[d] = reduced[d] ? 1 : x.dims[d];
        strides[d] = reduced[d] ? 0 : y->strides[own];
        own += !reduced[d] || attrs->keepdim;
    }
    return eg__operand(y, shape, strides, 0);
}

/* How many elements of x each result is made from. */
static double block_size(const eg_tensor *all_dims, eg_shape x)
{
    return (double)(eg_shape_numel(x) / eg_shape_numel(all_dims->shape));
}

/* ---- sum and mean ---- */

static eg_status sum_forward(eg_op_call *call)
{
    eg_tensor y = with_all_dims(call->attrs, call->out[0], call->in[0]->shape);
    return eg__kernels(call->ctx, y.dtype)->reduce(EG__SUM, call->in[0], &y, NULL);
}

static eg_status mean_forward(eg_op_call *call)
{
    EG_TRY(sum_forward(call));
    eg_tensor y = with_all_dims(call->attrs, call->out[0], call->in[0]->shape);
    return eg__kernels(call->ctx, y.dtype)->scale(1, call->out, 1.0 / block_size(&y, call->in[0]->shape));
}

/* dx = factor * dy, repeated along the reduced dimensions */
static eg_status spread(eg_op_grad *grad, bool mean)
{
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (!dx)
        return eg__pending();
    eg_tensor dy = with_all_dims(grad->attrs, grad->grad_out[0], dx->shape);
    double factor = mean ? 1.0 / block_size(&dy, dx->shape) : 1.0;
    eg_tensor repeated = eg__operand_broadcast(&dy, dx->shape, true);
    return eg__kernels(grad->ctx, dx->dtype)->unary(EG__AFFINE, factor, 0.0, &repeated, dx);
}

static eg_status sum_backward(eg_op_grad *grad)
{
    return spread(grad, false);
}
static eg_status mean_backward(eg_op_grad *grad)
{
    return spread(grad, true);
}

/* ---- maximum ---- */

static eg_status max_forward(eg_op_call *call)
{
    eg_tensor y = with_all_dims(call->attrs, call->out[0], call->in[0]->shape);
    eg_tensor *index = NULL;
    if (call->needs_grad[0]) {
        index = eg__tensor_new(call->ctx, EG_I64, y.shape, eg__layout_of(&y));
        if (!index)
            return eg__pending();
    }
    eg_status status = eg__kernels(call->ctx, y.dtype)->reduce(EG__MAX, call->in[0], &y, index);
    if (status == EG_OK && index)
        status = eg_op_save(call, index);
    eg_tensor_release(index);
    return status;
}

/* dx at the maximum of each block = dy: one element of dx for each of dy. */
static void scatter(const eg_tensor *dy, const eg_tensor *index, eg_tensor *dx)
{
    int64_t count = eg_shape_numel(dy->shape);
    size_t size = eg_dtype_size(dy->dtype);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, from = 0, to = 0, at = 0, kept[EG_MAX_DIMS];
        for (int d = dx->shape.ndim - 1; d >= 0; d--) {
            kept[d] = rest % dy->shape.dims[d];
            rest /= dy->shape.dims[d];
            from += kept[d] * dy->strides[d];
            at += kept[d] * index->strides[d];
        }
        int64_t within = eg__i64(index)[at];
        for (int d = dx->shape.ndim - 1; d >= 0; d--) {
            bool reduced = dy->shape.dims[d] != dx->shape.dims[d];
            to += (reduced ? within % dx->shape.dims[d] : kept[d]) * dx->strides[d];
            if (reduced)
                within /= dx->shape.dims[d];
        }
        memcpy((char *)eg__data(dx) + (size_t)to * size, (const char *)eg__data(dy) + (size_t)from * size, size);
    }
}

static eg_status max_backward(eg_op_grad *grad)
{
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (!dx)
        return eg__pending();
    EG_TRY(eg__kernels(grad->ctx, dx->dtype)->fill(dx, 0.0));
    eg_tensor dy = with_all_dims(grad->attrs, grad->grad_out[0], dx->shape);
    scatter(&dy, grad->saved[0], dx);
    return EG_OK;
}

#define REDUCE_OP(record)                                                                                              \
    const eg_op eg__op_##record = {                                                                                    \
        .struct_size = sizeof(eg_op),                                                                                  \
        .name = #record,                                                                                               \
        .attrs_size = sizeof(eg__reduce_attrs),                                                                        \
        .infer = reduce_infer,                                                                                         \
        .forward = record##_forward,                                                                                   \
        .backward = record##_backward,                                                                                 \
    };                                                                                                                 \
    eg_tensor *eg_##record##_with(const eg_reduce_args *args)                                                          \
    {                                                                                                                  \
        if (!args)                                                                                                     \
            return eg__null(__func__, "args");                                                                         \
        return eg_apply(&eg__op_##record, &args->x, 1,                                                                 \
                        &(eg__reduce_attrs){.dims = args->dims, .keepdim = args->keepdim});                            \
    }
REDUCE_OP(sum)
REDUCE_OP(mean)
REDUCE_OP(max)

/* ---- where the maximum is ---- */

static eg_status argmax_infer(const eg_op_call *call, eg_spec *out)
{
    EG_TRY(reduce_infer(call, out));
    out->dtype = EG_I64;
    return EG_OK;
}

static eg_status argmax_forward(eg_op_call *call)
{
    eg_tensor *x = call->in[0], index = with_all_dims(call->attrs, call->out[0], x->shape);
    eg_tensor *y = eg__tensor_new(call->ctx, x->dtype, index.shape, eg__layout_of(&index));
    if (!y)
        return eg__pending();
    eg_tensor maximum = eg__operand_broadcast(y, y->shape, false);
    eg_status status = eg__kernels(call->ctx, x->dtype)->reduce(EG__MAX, x, &maximum, &index);
    eg_tensor_release(y);
    return status;
}

const eg_op eg__op_argmax = {
    .struct_size = sizeof(eg_op),
    .name = "argmax",
    .attrs_size = sizeof(eg__reduce_attrs),
    .infer = argmax_infer,
    .forward = argmax_forward,
};

eg_tensor *eg_argmax(eg_tensor *x, int dim, bool keepdim)
{
    return eg_apply(&eg__op_argmax, &x, 1, &(eg__reduce_attrs){.dims = EG_SHAPE(dim), .keepdim = keepdim});
}
