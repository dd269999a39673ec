/*
 * ops/activation.c - functions of one number. What each computes is in the kernels; which of input and output
 * backward reads is eg__unary_saves_output().
 */
#include "ops/internal.h"

#include <math.h>

static eg_status unary_infer(const eg_op_call *call, eg_spec *out)
{
    const eg__unary_attrs *attrs = call->attrs;
    EG_TRY(eg__check_input(call, 0, "input"));
    if (attrs->kind == EG__CLAMP)
        EG_CHECK(attrs->a <= attrs->b, EG_EINVAL, "limits are %g and %g, expected a lower and an upper one", attrs->a,
                 attrs->b);
    if (attrs->kind == EG__SOFTPLUS)
        EG_CHECK(attrs->a > 0.0, EG_EINVAL, "beta is %g, expected more than 0", attrs->a);
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
#define UNARY(function, record, kernel)                                                                                \
    UNARY_OP(record)                                                                                                   \
    eg_tensor *function(eg_tensor *x)                                                                                  \
    {                                                                                                                  \
        return eg_apply(&eg__op_##record, &x, 1, &(eg__unary_attrs){.kind = kernel});                                  \
    }

UNARY(eg_f_relu, relu, EG__RELU)
UNARY(eg_f_relu6, relu6, EG__RELU6)
UNARY(eg_f_sigmoid, sigmoid, EG__SIGMOID)
UNARY(eg_f_tanh, tanh, EG__TANH)
UNARY(eg_f_gelu, gelu, EG__GELU)
UNARY(eg_f_silu, silu, EG__SILU)
UNARY(eg_f_hardswish, hardswish, EG__HARDSWISH)
UNARY(eg_f_hardsigmoid, hardsigmoid, EG__HARDSIGMOID)
UNARY(eg_f_mish, mish, EG__MISH)
UNARY(eg_exp, exp, EG__EXP)
UNARY(eg_ln, log, EG__LOG)
UNARY(eg_sqrt, sqrt, EG__SQRT)
UNARY(eg_abs, abs, EG__ABS)

UNARY_OP(leaky_relu)

eg_tensor *eg_f_leaky_relu(eg_tensor *x, double negative_slope)
{
    return eg_apply(&eg__op_leaky_relu, &x, 1, &(eg__unary_attrs){.kind = EG__LEAKY_RELU, .a = negative_slope});
}

UNARY_OP(elu)

eg_tensor *eg_f_elu(eg_tensor *x, double alpha)
{
    return eg_apply(&eg__op_elu, &x, 1, &(eg__unary_attrs){.kind = EG__ELU, .a = alpha});
}

UNARY_OP(softplus)

eg_tensor *eg_f_softplus(eg_tensor *x, double beta, double threshold)
{
    return eg_apply(&eg__op_softplus, &x, 1, &(eg__unary_attrs){.kind = EG__SOFTPLUS, .a = beta, .b = threshold});
}

UNARY_OP(clamp)

eg_tensor *eg_clamp(eg_tensor *x, double min, double max)
{
    return eg_apply(&eg__op_clamp, &x, 1, &(eg__unary_attrs){.kind = EG__CLAMP, .a = min, .b = max});
}

UNARY_OP(smooth_l1)

UNARY_OP(pow)

/* The exponents that need no logarithm have kernels of their own. */
eg_tensor *eg_pow(eg_tensor *x, double exponent)
{
    eg__unary kind = exponent == 2.0    ? EG__SQUARE
                     : exponent == 0.5  ? EG__SQRT
                     : exponent == -1.0 ? EG__RECIPROCAL
                                        : EG__POW;
    return eg_apply(&eg__op_pow, &x, 1, &(eg__unary_attrs){.kind = kind, .a = exponent});
}

/* ---- with a slope that is learned: He et al., "Delving deep into rectifiers", ICCV 2015 ---- */

static eg_status prelu_infer(const eg_op_call *call, eg_spec *out)
{
    const eg_tensor *x = call->in[0], *weight = call->in[1];
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__check_input(call, 1, "weight"));
    int64_t channels = x->shape.ndim > 1 ? x->shape.dims[1] : 1;
    EG_CHECK(weight->shape.ndim == 1 && (weight->shape.dims[0] == 1 || weight->shape.dims[0] == channels), EG_ESHAPE,
             "weight has shape %s, expected (1) or (%lld)", EG__TEXT(weight->shape), (long long)channels);
    return eg__spec_set(out, x, x->shape);
}

/* A vector of one number, or of one a channel, as the kernels want it beside x of this shape: sizes of 1 elsewhere. */
static eg_tensor over_channels(const eg_tensor *vector, eg_shape x)
{
    eg_shape shape = x;
    int64_t strides[EG_MAX_DIMS] = {0};
    for (int d = 0; d < x.ndim; d++)
        shape.dims[d] = 1;
    if (vector->shape.dims[0] > 1) {
        shape.dims[1] = vector->shape.dims[0];
        strides[1] = vector->strides[0];
    }
    return eg__operand(vector, shape, strides, 0);
}

/* y = x leak(x), with leak 1 above 0 and the weight below: dx = dy leak(x), dw = sum of dy min(x, 0) */
static eg_status prelu_forward(eg_op_call *call)
{
    eg_tensor *x = call->in[0], *y = call->out[0], weight = over_channels(call->in[1], x->shape);
    const eg_kernels *k = eg__kernels(call->ctx, x->dtype);
    EG_TRY(k->binary(EG__LEAK, x, &weight, y));
    EG_TRY(k->binary(EG__MUL, y, x, y));
    if (call->needs_grad[0] || call->needs_grad[1])
        EG_TRY(eg_op_save(call, x));
    return call->needs_grad[0] ? eg_op_save(call, call->in[1]) : EG_OK;
}

static eg_status prelu_backward(eg_op_grad *grad)
{
    const eg_tensor *x = grad->saved[0], *dy = grad->grad_out[0];
    const eg_kernels *k = eg__kernels(grad->ctx, x->dtype);
    if (grad->needs_grad[0]) {
        eg_tensor *dx = eg_op_grad_new(grad, 0), weight = over_channels(grad->saved[1], x->shape);
        if (!dx)
            return eg__pending();
        EG_TRY(k->binary(EG__LEAK, x, &weight, dx));
        EG_TRY(k->binary(EG__MUL, dx, dy, dx));
    }
    if (!grad->needs_grad[1])
        return EG_OK;
    eg_tensor *dw = eg_op_grad_new(grad, 1);
    eg_tensor *product = dw ? eg__tensor_new(grad->ctx, x->dtype, x->shape, eg__layout_of(x)) : NULL;
    if (!product)
        return eg__pending();
    eg_tensor sum = over_channels(dw, x->shape);
    eg_status status = k->unary(EG__CLAMP, -INFINITY, 0.0, x, product);
    if (status == EG_OK)
        status = k->binary(EG__MUL, product, dy, product);
    if (status == EG_OK)
        status = k->reduce(EG__SUM, product, &sum, NULL);
    eg_tensor_release(product);
    return status;
}

const eg_op eg__op_prelu = {
    .struct_size = sizeof(eg_op),
    .name = "prelu",
    .infer = prelu_infer,
    .forward = prelu_forward,
    .backward = prelu_backward,
};

eg_tensor *eg_f_prelu(eg_tensor *x, eg_tensor *weight)
{
    return eg_apply(&eg__op_prelu, (eg_tensor *const[]){x, weight}, 2, NULL);
}
