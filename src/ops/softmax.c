/*
 * ops/softmax.c - softmax and its logarithm along one dimension.
 */
#include "ops/internal.h"

static eg_status softmax_infer(const eg_op_call *call, eg_spec *out)
{
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__check_dim(((const eg__dim_attrs *)call->attrs)->dim, call->in[0]->shape));
    return eg__spec_set(out, call->in[0], call->in[0]->shape);
}

static eg_status forward(eg_op_call *call, bool log)
{
    eg_tensor *x = call->in[0], *y = call->out[0];
    int dim = eg__wrap_dim(((const eg__dim_attrs *)call->attrs)->dim, x->shape.ndim);
    EG_TRY(eg__kernels(call->ctx, x->dtype)->softmax(dim, log, x, y));
    return call->needs_grad[0] ? eg_op_save(call, y) : EG_OK;
}

static eg_status backward(eg_op_grad *grad, bool log)
{
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (!dx)
        return eg__pending();
    int dim = eg__wrap_dim(((const eg__dim_attrs *)grad->attrs)->dim, dx->shape.ndim);
    return eg__kernels(grad->ctx, dx->dtype)->softmax_backward(dim, log, grad->saved[0], grad->grad_out[0], dx);
}

static eg_status softmax_forward(eg_op_call *call)
{
    return forward(call, false);
}
static eg_status softmax_backward(eg_op_grad *grad)
{
    return backward(grad, false);
}
static eg_status log_softmax_forward(eg_op_call *call)
{
    return forward(call, true);
}
static eg_status log_softmax_backward(eg_op_grad *grad)
{
    return backward(grad, true);
}

const eg_op eg__op_softmax = {
    .struct_size = sizeof(eg_op),
    .name = "softmax",
    .attrs_size = sizeof(eg__dim_attrs),
    .infer = softmax_infer,
    .forward = softmax_forward,
    .backward = softmax_backward,
};

const eg_op eg__op_log_softmax = {
    .struct_size = sizeof(eg_op),
    .name = "log_softmax",
    .attrs_size = sizeof(eg__dim_attrs),
    .infer = softmax_infer,
    .forward = log_softmax_forward,
    .backward = log_softmax_backward,
};

eg_tensor *eg_f_softmax(eg_tensor *x, int dim)
{
    return eg_apply(&eg__op_softmax, &x, 1, &(eg__dim_attrs){.dim = dim});
}

eg_tensor *eg_f_log_softmax(eg_tensor *x, int dim)
{
    return eg_apply(&eg__op_log_softmax, &x, 1, &(eg__dim_attrs){.dim = dim});
}
