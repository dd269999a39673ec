/*
 * ops/norm.c - batch normalization (Ioffe and Szegedy, "Batch normalization: accelerating deep network training by
 * reducing internal covariate shift", ICML 2015), optionally with the ReLU that follows it.
 */
#include "autograd/internal.h"
#include "ops/internal.h"

#include <math.h>

enum { X, RUNNING_MEAN, RUNNING_VAR, WEIGHT, BIAS, N_INPUTS };

static eg_status batch_norm_infer(const eg_op_call *call, eg_spec *out)
{
    const eg__batch_norm_attrs *attrs = call->attrs;
    eg_shape x = call->in[X]->shape;
    EG_TRY(eg__check_input(call, X, "input"));
    EG_CHECK(x.ndim == 2 || x.ndim == 4, EG_ESHAPE, "input %s has %d dimensions, expected (N, C, H, W) or (N, C)",
             EG__TEXT(x), x.ndim);
    int64_t channels = x.dims[1];
    EG_TRY(eg__check_vector(call, RUNNING_MEAN, "running mean", channels));
    EG_TRY(eg__check_vector(call, RUNNING_VAR, "running variance", channels));
    EG_TRY(eg__check_vector(call, WEIGHT, "weight", channels));
    EG_TRY(eg__check_vector(call, BIAS, "bias", channels));
    EG_CHECK(attrs->norm.eps >= 0.0 && isfinite(attrs->norm.eps), EG_EINVAL, "eps is %g, expected 0 or more",
             attrs->norm.eps);
    EG_CHECK(attrs->norm.relu_max >= 0.0, EG_EINVAL, "relu_max is %g, expected 0 or more", attrs->norm.relu_max);
    if (attrs->training) {
        EG_CHECK(attrs->momentum >= 0.0 && attrs->momentum <= 1.0, EG_EINVAL, "momentum is %g, expected 0 to 1",
                 attrs->momentum);
        EG_CHECK(eg_shape_numel(x) > channels, EG_EINVAL,
                 "input %s has one value per channel, training needs more to take a variance", EG__TEXT(x));
    } else {
        EG_CHECK(!eg_is_none(call->in[RUNNING_MEAN]) && !eg_is_none(call->in[RUNNING_VAR]), EG_EINVAL,
                 "running mean and variance are absent, outside of training both are needed");
    }
    return eg__spec_set(out, call->in[X], x);
}

/* running = (1 - momentum) * running + momentum * factor * batch */
static void update(eg_tensor *running, const eg_tensor *batch, double momentum, double factor)
{
    if (eg_is_none(running))
        return;
    int64_t step = running->strides[0];
    for (int64_t c = 0; c < running->shape.dims[0]; c++) {
        double value = (1.0 - momentum) * eg__number(running, c * step) + momentum * factor * eg__number(batch, c);
        eg__set_number(running, c * step, value);
    }
    eg_tensor_touch(running);
}

void eg__update_running(eg_tensor *mean, eg_tensor *var, const eg_tensor *x, const eg_tensor *batch_mean,
                        const eg_tensor *batch_var, double momentum)
{
    if (eg__is_repeating(x->ctx)) /* they have seen x before */
        return;
    double n = (double)(eg_shape_numel(x->shape) / x->shape.dims[1]);
    update(mean, batch_mean, momentum, 1.0);
    update(var, batch_var, momentum, n / (n - 1.0)); /* the unbiased variance */
}

/* x, the weight and bias that are present, mean, variance, the workspace if any: backward reads them in this order. */
static eg_status save_for_backward(eg_op_call *call, eg_tensor *mean, eg_tensor *var, eg_tensor *workspace)
{
    if (!call->needs_grad[X] && !call->needs_grad[WEIGHT] && !call->needs_grad[BIAS])
        return EG_OK;
    EG_TRY(eg_op_save(call, call->in[X]));
    for (int i = WEIGHT; i <= BIAS; i++)
        if (!eg_is_none(call->in[i]))
            EG_TRY(eg_op_save(call, call->in[i]));
    EG_TRY(eg_op_save(call, mean));
    EG_TRY(eg_op_save(call, var));
    return workspace ? eg_op_save(call, workspace) : EG_OK;
}

static eg_status forward_training(eg_op_call *call, eg_tensor *mean, eg_tensor *var, eg_tensor **workspace)
{
    const eg__batch_norm_attrs *attrs = call->attrs;
    eg_tensor *x = call->in[X];
    const eg_kernels *k = eg__kernels(call->ctx, x->dtype);
    EG_TRY(k->batch_norm(&attrs->norm, x, eg__optional(call->in[WEIGHT]), eg__optional(call->in[BIAS]), mean, var,
                         call->out[0], call->recording ? workspace : NULL));
    eg__update_running(call->in[RUNNING_MEAN], call->in[RUNNING_VAR], x, mean, var, attrs->momentum);
    return save_for_backward(call, mean, var, *workspace);
}

static eg_status batch_norm_forward(eg_op_call *call)
{
    const eg__batch_norm_attrs *attrs = call->attrs;
    eg_tensor *x = call->in[X];
    if (!attrs->training) {
        EG_TRY(eg__kernels(call->ctx, x->dtype)
                   ->batch_norm_eval(&attrs->norm, x, eg__optional(call->in[WEIGHT]), eg__optional(call->in[BIAS]),
                                     call->in[RUNNING_MEAN], call->in[RUNNING_VAR], call->out[0]));
        return save_for_backward(call, call->in[RUNNING_MEAN], call->in[RUNNING_VAR], NULL);
    }
    eg_tensor *workspace = NULL;
    eg_dtype type = eg__parameter_type(x->dtype);
    eg_tensor *mean = eg__tensor_new(call->ctx, type, EG_SHAPE(x->shape.dims[1]), EG_LAYOUT_DEFAULT);
    eg_tensor *var = mean ? eg__tensor_new(call->ctx, type, mean->shape, EG_LAYOUT_DEFAULT) : NULL;
    eg_status status = var ? forward_training(call, mean, var, &workspace) : eg__pending();
    eg_tensor_release(mean);
    eg_tensor_release(var);
    eg_tensor_release(workspace);
    return status;
}

static eg_status batch_norm_backward(eg_op_grad *grad)
{
    const eg__batch_norm_attrs *attrs = grad->attrs;
    size_t next = 0;
    const eg_tensor *x = grad->saved[next++];
    const eg_tensor *weight = grad->in_spec[WEIGHT].shape.ndim ? grad->saved[next++] : NULL;
    const eg_tensor *bias = grad->in_spec[BIAS].shape.ndim ? grad->saved[next++] : NULL;
    const eg_tensor *mean = grad->saved[next++], *var = grad->saved[next++];
    const eg_tensor *workspace = next < grad->n_saved ? grad->saved[next] : NULL;
    static const int wanted[] = {X, WEIGHT, BIAS};
    eg_tensor *d[N_INPUTS] = {NULL};
    for (size_t i = 0; i < EG_COUNT(wanted); i++) {
        if (!grad->needs_grad[wanted[i]])
            continue;
        d[wanted[i]] = eg_op_grad_new(grad, (size_t)wanted[i]);
        if (!d[wanted[i]])
            return eg__pending();
    }
    const eg_kernels *k = eg__kernels(grad->ctx, x->dtype);
    const eg_tensor *dy = grad->grad_out[0];
    if (attrs->training)
        return k->batch_norm_backward(&attrs->norm, x, weight, bias, mean, var, workspace, dy, d[X], d[WEIGHT],
                                      d[BIAS]);
    return k->batch_norm_eval_backward(&attrs->norm, x, weight, bias, mean, var, dy, d[X], d[WEIGHT], d[BIAS]);
}

const eg_op eg__op_batch_norm = {
    .struct_size = sizeof(eg_op),
    .name = "batch_norm",
    .attrs_size = sizeof(eg__batch_norm_attrs),
    .optional = 1u << RUNNING_MEAN | 1u << RUNNING_VAR | 1u << WEIGHT | 1u << BIAS,
    .infer = batch_norm_infer,
    .forward = batch_norm_forward,
    .backward = batch_norm_backward,
};

eg_tensor *eg_f_batch_norm_with(const eg_batch_norm_args *args)
{
    if (!args)
        return eg__null(__func__, "args");
    eg__batch_norm_attrs attrs = {.norm = {.eps = args->eps, .relu = args->relu, .relu_max = args->relu_max},
                                  .momentum = args->momentum,
                                  .training = args->training};
    eg_tensor *in[N_INPUTS] = {args->x, args->running_mean, args->running_var, args->weight, args->bias};
    return eg_apply(&eg__op_batch_norm, in, N_INPUTS, &attrs);
}
