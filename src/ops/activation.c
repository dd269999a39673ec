/*
 * ops/activation.c - functions of one element. What each computes is in the kernels; which of input and output
 * backward reads is eg__unary_saves_output().
 */
#include "ops/internal.h"

static eg_status unary_infer(const eg_op_call *call, eg_spec *out)
{
    EG_TRY(eg__check_input(call, 0, "input"));
    return eg__spec_set(out, call->in[0], call->in[0]->shape);
}

static eg_status unary_forward(eg_op_call *call)
{
    const eg__unary_attrs *attrs = call->attrs;
    eg_tensor *x = call->in[0], *y = call->out[0];
    EG_TRY(eg__kernels(call->ctx, x->dtype)->unary(attrs->kind, attrs->a, attrs->b, x, y));
    return call->needs_grad[0] ? eg_op_save(call, eg__unary_saves_output(attrs->kind) ? y : x) : EG_OK;
}

static eg_status unary_backward(eg_op_grad *grad)
{
    const eg__unary_attrs *attrs = grad->attrs;
    bool add;
    eg_tensor *dy = grad->grad_out[0], *dx = eg_op_grad_into(grad, 0, dy, &add);
    if (!dx)
        return eg__pending();
    return eg__kernels(grad->ctx, dx->dtype)
        ->unary_backward(attrs->kind, attrs->a, attrs->b, grad->saved[0], dy, dx, add);
}

#define UNARY_OP(record)                                                                                               \
    const eg_op eg__op_##record = {                                                                                    \
        .struct_size = sizeof(eg_op),                                                                                  \
        .name = #record,                                                                                               \
        .attrs_size = sizeof(eg__unary_attrs),                                                                         \
        .stateless = true,                                                                                             \
        .infer = unary_infer,                                                                                          \
        .forward = unary_forward,                                                                                      \
        .backward = unary_backward,                                                                                    \
    };

/* One function without parameters: its record and its public name. */
#define UNARY(record, kernel)                                                                                          \
    UNARY_OP(record)                                                                                                   \
    eg_tensor *eg_f_##record(eg_tensor *x)                                                                             \
    {                                                                                                                  \
        return eg_apply(&eg__op_##record, &x, 1, &(eg__unary_attrs){.kind = kernel});                                  \
    }

UNARY(relu, EG__RELU)
UNARY(relu6, EG__RELU6)
UNARY(sigmoid, EG__SIGMOID)
UNARY(tanh, EG__TANH)
UNARY(gelu, EG__GELU)
UNARY(silu, EG__SILU)
UNARY(hardswish, EG__HARDSWISH)
UNARY(hardsigmoid, EG__HARDSIGMOID)

UNARY_OP(leaky_relu)

eg_tensor *eg_f_leaky_relu(eg_tensor *x, double negative_slope)
{
    return eg_apply(&eg__op_leaky_relu, &x, 1, &(eg__unary_attrs){.kind = EG__LEAKY_RELU, .a = negative_slope});
}
