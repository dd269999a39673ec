/*
 * ops/mixed_edge.c - how a mixed edge of DARTS takes in its branches one by one: sum + weights[i] * x, where x may be a
 * batch norm that is yet to be applied. What a norm gives is never stored, and each branch is added while it is still
 * in the cache, into the memory of the sum so far.
 */
#include "autograd/internal.h"
#include "ops/internal.h"

enum { X, SUM, WEIGHTS, N_PLAIN, RUNNING_MEAN = N_PLAIN, RUNNING_VAR, WEIGHT, BIAS, N_INPUTS };

static eg_status check_terms(const eg_op_call *call)
{
    const eg__mixed_edge_attrs *attrs = call->attrs;
    eg_shape x = call->in[X]->shape, weights = call->in[WEIGHTS]->shape;
    EG_TRY(eg__check_input(call, X, "input"));
    EG_TRY(eg__check_input(call, WEIGHTS, "weights"));
    EG_CHECK(weights.ndim == 1 && attrs->index < weights.dims[0], EG_ESHAPE,
             "weights has shape %s, expected a vector with more than %lld entries", EG__TEXT(weights),
             (long long)attrs->index);
    if (eg_is_none(call->in[SUM]))
        return EG_OK;
    EG_TRY(eg__check_input(call, SUM, "sum"));
    EG_CHECK(eg_shape_equal(call->in[SUM]->shape, x), EG_ESHAPE, "input has shape %s, expected %s as the sum so far",
             EG__TEXT(x), EG__TEXT(call->in[SUM]->shape));
    return EG_OK;
}

static eg_status check_norm(const eg_op_call *call)
{
    eg_shape x = call->in[X]->shape;
    EG_CHECK(x.ndim == 2 || x.ndim == 4, EG_ESHAPE, "input %s has %d dimensions, expected (N, C, H, W) or (N, C)",
             EG__TEXT(x), x.ndim);
    EG_CHECK(eg_shape_numel(x) > x.dims[1], EG_EINVAL,
             "input %s has one value per channel, training needs more to take a variance", EG__TEXT(x));
    EG_TRY(eg__check_vector(call, RUNNING_MEAN, "running mean", x.dims[1]));
    EG_TRY(eg__check_vector(call, RUNNING_VAR, "running variance", x.dims[1]));
    EG_TRY(eg__check_vector(call, WEIGHT, "weight", x.dims[1]));
    return eg__check_vector(call, BIAS, "bias", x.dims[1]);
}

static double weight_at(const eg_tensor *weights, int64_t i)
{
    return eg__number(weights, i * weights->strides[0]);
}

/* In the memory of the sum, which no backward reads; a new tensor where the sum has another user. */
static eg_tensor *make_output(const eg_op_call *call)
{
    eg_tensor *x = call->in[X], *sum = call->in[SUM];
    const eg__mixed_edge_attrs *attrs = call->attrs;
    if (!x->storage)
        return eg__tensor_new_shape_only(x->ctx, x->dtype, x->shape, eg__layout_of(x));
    if (!attrs->consume || eg_is_none(sum) || !eg__same_strides(sum, x) || sum->storage->refs > 1)
        return eg__tensor_new(x->ctx, x->dtype, x->shape, eg__layout_of(x));
    eg_tensor *y = eg__tensor_new_view(sum, sum->shape, sum->strides, sum->offset);
    if (y)
        eg_tensor_touch(y);
    return y;
}

/* Entry i of the gradient of the weights, of which each term of a sum adds one. */
static eg_status add_weight_gradient(eg_op_grad *grad, int64_t i, double value)
{
    if (!grad->needs_grad[WEIGHTS])
        return EG_OK;
    bool add;
    eg_tensor *dw = eg_op_grad_into(grad, WEIGHTS, NULL, &add);
    if (!dw)
        return eg__pending();
    if (!add)
        EG_TRY(eg__kernels(grad->ctx, dw->dtype)->fill(dw, 0));
    int64_t at = i * dw->strides[0];
    if (dw->dtype == EG_F32) /* the sum is one of float32 */
        eg__f32(dw)[at] += (float)value;
    else
        eg__set_number(dw, at, eg__number(dw, at) + value);
    return EG_OK;
}

/* ---- a batch norm ---- */

static eg_status save_for_backward(eg_op_call *call, eg_tensor *mean, eg_tensor *var)
{
    if (!call->recording)
        return EG_OK;
    EG_TRY(eg_op_save(call, call->in[X]));
    EG_TRY(eg_op_save(call, call->in[WEIGHTS]));
    EG_TRY(eg_op_save(call, mean));
    EG_TRY(eg_op_save(call, var));
    for (size_t i = WEIGHT; i <= BIAS; i++)
        if (!eg_is_none(call->in[i]))
            EG_TRY(eg_op_save(call, call->in[i]));
    return EG_OK;
}

static eg_status compute(eg_op_call *call, eg_tensor *mean, eg_tensor *var)
{
    const eg__mixed_edge_attrs *attrs = call->attrs;
    eg_tensor *x = call->in[X];
    eg__norm_term term = {.x = x,
                          .gamma = eg__optional(call->in[WEIGHT]),
                          .beta = eg__optional(call->in[BIAS]),
                          .mean = mean,
                          .var = var,
                          .eps = attrs->eps,
                          .weight = weight_at(call->in[WEIGHTS], attrs->index)};
    EG_TRY(eg__kernels(call->ctx, x->dtype)->norm_add(&term, eg__optional(call->in[SUM]), call->out[0]));
    eg__update_running(call->in[RUNNING_MEAN], call->in[RUNNING_VAR], x, mean, var, attrs->momentum);
    return save_for_backward(call, mean, var);
}

static eg_status norm_add_forward(eg_op_call *call)
{
    EG_TRY(check_terms(call));
    EG_TRY(check_norm(call));
    eg_tensor *x = call->in[X];
    call->out[0] = make_output(call);
    if (!x->storage)
        return call->out[0] ? EG_OK : eg__pending();
    eg_dtype type = eg__parameter_type(x->dtype);
    eg_tensor *mean = eg__tensor_new(call->ctx, type, EG_SHAPE(x->shape.dims[1]), EG_LAYOUT_DEFAULT);
    eg_tensor *var = mean ? eg__tensor_new(call->ctx, type, mean->shape, EG_LAYOUT_DEFAULT) : NULL;
    eg_status status = call->out[0] && var ? compute(call, mean, var) : eg__pending();
    eg_tensor_release(mean);
    eg_tensor_release(var);
    return status;
}

static eg_status norm_add_backward(eg_op_grad *grad)
{
    const eg__mixed_edge_attrs *attrs = grad->attrs;
    eg_tensor *dy = grad->grad_out[0], *x = grad->saved[0], *d[N_INPUTS] = {NULL};
    size_t next = 4;
    eg__norm_term term = {.x = x,
                          .mean = grad->saved[2],
                          .var = grad->saved[3],
                          .eps = attrs->eps,
                          .weight = weight_at(grad->saved[1], attrs->index)};
    term.gamma = grad->in_spec[WEIGHT].shape.ndim ? grad->saved[next++] : NULL;
    term.beta = grad->in_spec[BIAS].shape.ndim ? grad->saved[next++] : NULL;
    if (grad->needs_grad[X] && !(d[X] = eg_op_grad_into(grad, X, x, NULL)))
        return eg__pending();
    for (size_t i = WEIGHT; i <= BIAS; i++)
        if (grad->needs_grad[i] && !(d[i] = eg_op_grad_new(grad, i)))
            return eg__pending();
    double dweight;
    EG_TRY(eg__kernels(grad->ctx, dy->dtype)->norm_add_backward(&term, dy, d[X], d[WEIGHT], d[BIAS], &dweight));
    EG_TRY(add_weight_gradient(grad, attrs->index, dweight));
    return grad->needs_grad[SUM] ? eg_op_grad_pass(grad, SUM, dy) : EG_OK;
}

const eg_op eg__op_norm_add = {
    .struct_size = sizeof(eg_op),
    .name = "norm_add",
    .attrs_size = sizeof(eg__mixed_edge_attrs),
    .optional = 1u << SUM | 1u << RUNNING_MEAN | 1u << RUNNING_VAR | 1u << WEIGHT | 1u << BIAS,
    .makes_outputs = true,
    .forward = norm_add_forward,
    .backward = norm_add_backward,
};

eg_tensor *eg__norm_add(eg_tensor *sum, bool consume, const eg_batch_norm_args *norm, eg_tensor *weights, int64_t index)
{
    eg__mixed_edge_attrs attrs = {.eps = norm->eps, .momentum = norm->momentum, .index = index, .consume = consume};
    eg_tensor *in[N_INPUTS] = {norm->x, sum, weights, norm->running_mean, norm->running_var, norm->weight, norm->bias};
    return eg_apply(&eg__op_norm_add, in, N_INPUTS, &attrs);
}

/* ---- a tensor as it is ---- */

static eg_tensor entry(const eg_tensor *weights, int64_t i)
{
    return eg__operand(weights, EG_SHAPE(1), weights->strides, i * weights->strides[0]);
}

/* y = sum + weights[i] * x; sum may be eg_none, and may be y. */
static eg_status add_weighted(const eg_tensor *sum, const eg_tensor *x, const eg_tensor *weights, int64_t i,
                              eg_tensor *y)
{
    const eg_kernels *k = eg__kernels(x->ctx, x->dtype);
    eg_tensor given = entry(weights, i);
    if (eg_is_none(sum))
        return k->weighted_sum(1, &x, &given, y);
    eg_tensor *factors = eg__tensor_new(x->ctx, weights->dtype, EG_SHAPE(2), EG_LAYOUT_DEFAULT);
    if (!factors)
        return eg__pending();
    eg_tensor one = entry(factors, 0), weight = entry(factors, 1);
    eg_status status = k->fill(&one, 1);
    if (status == EG_OK)
        status = k->copy(&given, &weight);
    if (status == EG_OK)
        status = k->weighted_sum(2, (const eg_tensor *const[]){sum, x}, factors, y);
    eg_tensor_release(factors);
    return status;
}

/* Saved: x if the weights need a gradient, then the weights if x needs one. */
static eg_status weighted_add_forward(eg_op_call *call)
{
    EG_TRY(check_terms(call));
    const eg__mixed_edge_attrs *attrs = call->attrs;
    eg_tensor *x = call->in[X];
    call->out[0] = make_output(call);
    if (!call->out[0])
        return eg__pending();
    if (!x->storage)
        return EG_OK;
    EG_TRY(add_weighted(call->in[SUM], x, call->in[WEIGHTS], attrs->index, call->out[0]));
    if (call->needs_grad[WEIGHTS])
        EG_TRY(eg_op_save(call, x));
    return call->needs_grad[X] ? eg_op_save(call, call->in[WEIGHTS]) : EG_OK;
}

static eg_status input_gradient(eg_op_grad *grad, const eg_tensor *weights)
{
    const eg__mixed_edge_attrs *attrs = grad->attrs;
    bool add;
    eg_tensor *dx = eg_op_grad_into(grad, X, NULL, &add);
    return dx ? add_weighted(add ? dx : eg_none, grad->grad_out[0], weights, attrs->index, dx) : eg__pending();
}

static eg_status weighted_add_backward(eg_op_grad *grad)
{
    const eg__mixed_edge_attrs *attrs = grad->attrs;
    eg_tensor *dy = grad->grad_out[0];
    size_t next = 0;
    if (grad->needs_grad[WEIGHTS]) {
        const eg_tensor *x = grad->saved[next++];
        eg_dtype type = grad->in_spec[WEIGHTS].dtype;
        eg_tensor *dweight = eg__tensor_new(grad->ctx, type, EG_SHAPE(1), EG_LAYOUT_DEFAULT);
        if (!dweight)
            return eg__pending();
        eg_status status = eg__kernels(grad->ctx, dy->dtype)->weighted_sum_backward(1, &x, NULL, dy, NULL, dweight);
        if (status == EG_OK)
            status = add_weight_gradient(grad, attrs->index, eg__scalar(dweight));
        eg_tensor_release(dweight);
        EG_TRY(status);
    }
    if (grad->needs_grad[X])
        EG_TRY(input_gradient(grad, grad->saved[next]));
    return grad->needs_grad[SUM] ? eg_op_grad_pass(grad, SUM, dy) : EG_OK;
}

const eg_op eg__op_weighted_add = {
    .struct_size = sizeof(eg_op),
    .name = "weighted_add",
    .attrs_size = sizeof(eg__mixed_edge_attrs),
    .optional = 1u << SUM,
    .makes_outputs = true,
    .forward = weighted_add_forward,
    .backward = weighted_add_backward,
};

eg_tensor *eg__weighted_add(eg_tensor *sum, bool consume, eg_tensor *x, eg_tensor *weights, int64_t index)
{
    if (sum && x && eg_is_none(x))
        return sum;
    return eg_apply(&eg__op_weighted_add, (eg_tensor *const[]){x, sum, weights}, N_PLAIN,
                    &(eg__mixed_edge_attrs){.index = index, .consume = consume});
}
