/*
 * ops/weighted_sum.c - sum of w[i] x[i] with gradients for both: the mixed edge of DARTS (Liu, Simonyan and Yang,
 * "DARTS: differentiable architecture search", ICLR 2019). The weights are data that change each step.
 */
#include "autograd/internal.h"
#include "ops/internal.h"

/* Inputs: the n terms, then the weights (n). */

static eg_status weighted_sum_infer(const eg_op_call *call, eg_spec *out)
{
    size_t n = call->n_in - 1;
    for (size_t i = 0; i < n; i++) {
        EG_TRY(eg__check_input(call, i, "term"));
        EG_CHECK(eg_shape_equal(call->in[i]->shape, call->in[0]->shape), EG_ESHAPE,
                 "term %zu has shape %s, expected %s as the first", i, EG__TEXT(call->in[i]->shape),
                 EG__TEXT(call->in[0]->shape));
    }
    EG_TRY(eg__check_vector(call, n, "weights", (int64_t)n));
    return eg__spec_set(out, call->in[0], call->in[0]->shape);
}

static bool any(const bool *flags, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (flags[i])
            return true;
    return false;
}

/* Saved: the weights if some term needs a gradient, then the terms if the weights need one. */
static eg_status weighted_sum_forward(eg_op_call *call)
{
    size_t n = call->n_in - 1;
    EG_TRY(eg__kernels(call->ctx, call->in[0]->dtype)
               ->weighted_sum(n, (const eg_tensor *const *)call->in, call->in[n], call->out[0]));
    if (any(call->needs_grad, n))
        EG_TRY(eg_op_save(call, call->in[n]));
    for (size_t i = 0; call->needs_grad[n] && i < n; i++)
        EG_TRY(eg_op_save(call, call->in[i]));
    return EG_OK;
}

static eg_status weighted_sum_backward(eg_op_grad *grad)
{
    size_t n = grad->n_in - 1, next = 0;
    const eg_tensor *weights = any(grad->needs_grad, n) ? grad->saved[next++] : NULL;
    const eg_tensor *const *terms = grad->needs_grad[n] ? (const eg_tensor *const *)grad->saved + next : NULL;
    for (size_t i = 0; i < grad->n_in; i++)
        if (grad->needs_grad[i] && !eg_op_grad_new(grad, i))
            return eg__pending();
    /* grad_in holds NULL wherever no gradient is needed, which is what the kernel wants to see */
    return eg__kernels(grad->ctx, grad->in_spec[0].dtype)
        ->weighted_sum_backward(n, terms, weights, grad->grad_out[0], grad->grad_in, grad->grad_in[n]);
}

const eg_op eg__op_weighted_sum = {
    .struct_size = sizeof(eg_op),
    .name = "weighted_sum",
    .infer = weighted_sum_infer,
    .forward = weighted_sum_forward,
    .backward = weighted_sum_backward,
};

/* The weights of the terms that are present, joined from runs of them (differentiable like any slice). */
static eg_tensor *present_weights(eg_tensor *const *x, size_t n, eg_tensor *weights)
{
    if (weights->shape.ndim != 1 || weights->shape.dims[0] != (int64_t)n) {
        eg__op_fail(eg_fail(EG_ESHAPE, "weights has shape %s, expected (%zu)", EG__TEXT(weights->shape), n),
                    eg__op_weighted_sum.name, eg__call_path(weights->ctx));
        return NULL;
    }
    eg_tensor **runs = eg__calloc(n, sizeof *runs);
    if (!runs)
        return NULL;
    size_t n_runs = 0;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && eg_is_none(x[end]) == eg_is_none(x[i]);)
            end++;
        if (!eg_is_none(x[i]))
            runs[n_runs++] = eg_slice(weights, 0, (int64_t)i, (int64_t)end, 1);
    }
    eg_tensor *joined = eg_concat(runs, n_runs, 0);
    eg_free(runs);
    return joined;
}

eg_tensor *eg_weighted_sum(eg_tensor *const *x, size_t n, eg_tensor *weights)
{
    if (!weights)
        return eg__null(eg__op_weighted_sum.name, "the tensor of weights");
    size_t kept;
    eg_tensor **in = eg__present(&eg__op_weighted_sum, x, n, &kept);
    if (!in)
        return NULL;
    eg_tensor *sum = eg_none;
    if (kept > 0) {
        in[kept] = kept == n || eg_is_none(weights) ? weights : present_weights(x, n, weights);
        sum = eg_apply(&eg__op_weighted_sum, in, kept + 1, NULL);
    }
    eg_free(in);
    return sum;
}
