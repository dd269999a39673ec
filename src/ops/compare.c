/*
 * ops/compare.c - the larger and smaller of two, comparisons, and choosing by them. A mask is of the numbers' own type:
 * 0 is false, all else true.
 */
#include "ops/internal.h"

/* ---- maximum and minimum ---- */

static eg_status extreme_forward(eg_op_call *call, eg__binary kind)
{
    EG_TRY(eg__binary_run(call->ctx, kind, call->in[0], call->in[1], call->out[0]));
    if (!call->needs_grad[0] && !call->needs_grad[1])
        return EG_OK;
    EG_TRY(eg_op_save(call, call->in[0]));
    return eg_op_save(call, call->in[1]);
}

/* Where both are equal each has half of the gradient. */
static eg_status extreme_backward(eg_op_grad *grad, bool maximum)
{
    eg_tensor *dy = grad->grad_out[0], *share = eg__tensor_new(grad->ctx, dy->dtype, dy->shape, eg__layout_of(dy));
    eg_status status = share ? EG_OK : eg__pending();
    for (size_t i = 0; i < 2 && status == EG_OK; i++) {
        if (!grad->needs_grad[i])
            continue;
        size_t larger = maximum ? i : 1 - i;
        status = eg__binary_run(grad->ctx, EG__STEP, grad->saved[larger], grad->saved[1 - larger], share);
        if (status == EG_OK)
            status = eg__grad_binary(grad, i, EG__MUL, dy, share, 1.0);
    }
    eg_tensor_release(share);
    return status;
}

static eg_status maximum_forward(eg_op_call *call)
{
    return extreme_forward(call, EG__MAXIMUM);
}
static eg_status maximum_backward(eg_op_grad *grad)
{
    return extreme_backward(grad, true);
}
static eg_status minimum_forward(eg_op_call *call)
{
    return extreme_forward(call, EG__MINIMUM);
}
static eg_status minimum_backward(eg_op_grad *grad)
{
    return extreme_backward(grad, false);
}

/* ---- comparisons ---- */

static eg_status gt_forward(eg_op_call *call)
{
    return eg__binary_run(call->ctx, EG__GT, call->in[0], call->in[1], call->out[0]);
}
static eg_status eq_forward(eg_op_call *call)
{
    return eg__binary_run(call->ctx, EG__EQ, call->in[0], call->in[1], call->out[0]);
}

#define COMPARE_OP(record, gradient)                                                                                   \
    const eg_op eg__op_##record = {                                                                                    \
        .struct_size = sizeof(eg_op),                                                                                  \
        .name = #record,                                                                                               \
        .infer = eg__binary_infer,                                                                                     \
        .forward = record##_forward,                                                                                   \
        .backward = gradient,                                                                                          \
    };                                                                                                                 \
    eg_tensor *eg_##record(eg_tensor *a, eg_tensor *b)                                                                 \
    {                                                                                                                  \
        return eg_apply(&eg__op_##record, (eg_tensor *const[]){a, b}, 2, NULL);                                        \
    }
COMPARE_OP(maximum, maximum_backward)
COMPARE_OP(minimum, minimum_backward)
COMPARE_OP(gt, NULL)
COMPARE_OP(eq, NULL)

eg_tensor *eg_lt(eg_tensor *a, eg_tensor *b)
{
    return eg_gt(b, a);
}

/* ---- where ---- */

static eg_status where_infer(const eg_op_call *call, eg_spec *out)
{
    const eg_tensor *like = call->in[0];
    EG_TRY(eg__check_input(call, 0, "condition"));
    EG_TRY(eg__check_input(call, 1, "first choice"));
    EG_TRY(eg__check_input(call, 2, "second choice"));
    eg_shape shape = call->in[0]->shape;
    for (size_t i = 1; i < 3; i++)
        EG_TRY(eg__broadcast(shape, call->in[i]->shape, &shape));
    for (size_t i = 1; i < 3 && !eg_shape_equal(like->shape, shape); i++)
        like = call->in[i];
    EG_TRY(eg__spec_set(out, like, shape));
    out->dtype = call->in[1]->dtype == EG_BF16 ? EG_BF16 : call->in[2]->dtype;
    return EG_OK;
}

/* Kept and dropped rather than multiplied by 0 and 1, so that what is not chosen may be infinite or NaN. */
static eg_status where_forward(eg_op_call *call)
{
    eg_tensor *condition = call->in[0], *y = call->out[0];
    eg_tensor *rest = eg__tensor_new(call->ctx, y->dtype, y->shape, eg__layout_of(y));
    eg_status status = rest ? EG_OK : eg__pending();
    if (status == EG_OK)
        status = eg__binary_run(call->ctx, EG__KEEP, call->in[1], condition, y);
    if (status == EG_OK)
        status = eg__binary_run(call->ctx, EG__DROP, call->in[2], condition, rest);
    if (status == EG_OK)
        status = eg__kernels(call->ctx, y->dtype)->accumulate(rest, y);
    if (status == EG_OK && (call->needs_grad[1] || call->needs_grad[2]))
        status = eg_op_save(call, condition);
    eg_tensor_release(rest);
    return status;
}

/* The condition has no gradient. */
static eg_status where_backward(eg_op_grad *grad)
{
    for (size_t i = 1; i < 3; i++)
        if (grad->needs_grad[i])
            EG_TRY(eg__grad_binary(grad, i, i == 1 ? EG__KEEP : EG__DROP, grad->grad_out[0], grad->saved[0], 1.0));
    return EG_OK;
}

const eg_op eg__op_where = {
    .struct_size = sizeof(eg_op),
    .name = "where",
    .infer = where_infer,
    .forward = where_forward,
    .backward = where_backward,
};

eg_tensor *eg_where(eg_tensor *condition, eg_tensor *a, eg_tensor *b)
{
    return eg_apply(&eg__op_where, (eg_tensor *const[]){condition, a, b}, 3, NULL);
}
