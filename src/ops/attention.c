/*
 * ops/attention.c - scaled dot-product attention: the products of queries and keys, their softmax in place, and its
 * product with the values. What backward needs beside the inputs is one matrix of weights a head.
 */
#include "ops/internal.h"

#include <math.h>

enum { QUERY, KEY, VALUE, MASK, WEIGHTS, KEPT }; /* the first four are inputs; all are saved in this order */

/* The shape (.., L, S) of the weights. */
static eg_shape weights_shape(const eg_tensor *query, const eg_tensor *key)
{
    eg_shape shape = query->shape;
    shape.dims[shape.ndim - 1] = key->shape.dims[shape.ndim - 2];
    return shape;
}

static eg_status check_batch(const eg_tensor *t, const char *what, const eg_tensor *query)
{
    bool fits = t->shape.ndim == query->shape.ndim;
    for (int d = 0; d < query->shape.ndim - 2 && fits; d++)
        fits = t->shape.dims[d] == query->shape.dims[d];
    EG_CHECK(fits, EG_ESHAPE, "%s %s does not have the batch sizes of query %s", what, EG__TEXT(t->shape),
             EG__TEXT(query->shape));
    return EG_OK;
}

static eg_status check_mask(const eg_op_call *call, eg_shape weights)
{
    const eg_tensor *mask = call->in[MASK];
    if (eg_is_none(mask))
        return EG_OK;
    if (mask->dtype != EG_U8)
        EG_TRY(eg__check_input(call, MASK, "mask"));
    bool fits = mask->shape.ndim <= weights.ndim;
    for (int d = 1; d <= mask->shape.ndim && fits; d++) {
        int64_t size = mask->shape.dims[mask->shape.ndim - d];
        fits = size == 1 || size == weights.dims[weights.ndim - d];
    }
    EG_CHECK(fits, EG_ESHAPE, "mask %s does not broadcast to %s", EG__TEXT(mask->shape), EG__TEXT(weights));
    return EG_OK;
}

static eg_status attention_check(const eg_op_call *call)
{
    const eg__attention_attrs *attrs = call->attrs;
    const eg_tensor *query = call->in[QUERY], *key = call->in[KEY], *value = call->in[VALUE];
    EG_TRY(eg__check_input(call, QUERY, "query"));
    EG_TRY(eg__check_input(call, KEY, "key"));
    EG_TRY(eg__check_input(call, VALUE, "value"));
    int last = query->shape.ndim - 1;
    EG_CHECK(last >= 1, EG_ESHAPE, "query %s has %d dimensions, expected (.., L, E)", EG__TEXT(query->shape), last + 1);
    EG_TRY(check_batch(key, "key", query));
    EG_TRY(check_batch(value, "value", query));
    EG_CHECK(key->shape.dims[last] == query->shape.dims[last], EG_ESHAPE, "key has %lld features, query has %lld",
             (long long)key->shape.dims[last], (long long)query->shape.dims[last]);
    EG_CHECK(value->shape.dims[last - 1] == key->shape.dims[last - 1], EG_ESHAPE,
             "value has %lld positions, key has %lld", (long long)value->shape.dims[last - 1],
             (long long)key->shape.dims[last - 1]);
    eg_shape weights = weights_shape(query, key);
    EG_CHECK(eg_shape_numel(weights) >= 0, EG_ESHAPE, "weights %s have more elements than can be counted",
             EG__TEXT(weights));
    EG_TRY(check_mask(call, weights));
    EG_CHECK(isfinite(attrs->scale), EG_EINVAL, "scale is not finite");
    EG_CHECK(attrs->dropout >= 0.0 && attrs->dropout <= 1.0, EG_EINVAL, "probability is %g, expected 0 to 1",
             attrs->dropout);
    return EG_OK;
}

static eg_tensor *new_row_major(const eg_tensor *like, eg_shape shape)
{
    return eg__tensor_new(like->ctx, like->dtype, shape, EG_LAYOUT_ROW_MAJOR);
}

/* The weights, and with dropout what they are multiplied by. Both go to the scope. */
static eg_status make_weights(const eg_op_call *call, eg_tensor **weights, eg_tensor **kept)
{
    const eg__attention_attrs *attrs = call->attrs;
    const eg_tensor *query = call->in[QUERY], *mask = eg__optional(call->in[MASK]);
    const eg_kernels *k = eg__kernels(call->ctx, query->dtype);
    eg_shape shape = weights_shape(query, call->in[KEY]);
    eg_tensor key = eg__operand_transpose(call->in[KEY]), spread;
    *weights = eg__scope_add(new_row_major(query, shape));
    if (!*weights)
        return eg__pending();
    EG_TRY(k->matmul(query, &key, NULL, *weights));
    if (mask)
        spread = eg__operand_broadcast(mask, shape, true);
    EG_TRY(k->masked_softmax(attrs->scale, attrs->causal, mask ? &spread : NULL, *weights));
    if (attrs->dropout == 0.0)
        return EG_OK;
    *kept = eg__scope_add(eg__tensor_new(call->ctx, eg__parameter_type(query->dtype), shape, EG_LAYOUT_ROW_MAJOR));
    if (!*kept)
        return eg__pending();
    eg__draw_mask(*kept, attrs->dropout);
    return EG_OK;
}

/* Weights times what dropout kept, of the scope; the weights themselves without dropout. */
static eg_tensor *applied_weights(eg_tensor *weights, const eg_tensor *kept)
{
    if (!kept)
        return weights;
    eg_tensor *applied = eg__scope_add(new_row_major(weights, weights->shape));
    if (applied && eg__kernels(weights->ctx, weights->dtype)->binary(EG__MUL, weights, kept, applied) != EG_OK)
        return NULL;
    return applied;
}

static eg_status attention_forward(eg_op_call *call)
{
    EG_TRY(attention_check(call));
    eg_tensor like = *call->in[QUERY], *weights = NULL, *kept = NULL;
    bool shape_only = false;
    for (size_t i = 0; i < call->n_in; i++)
        shape_only |= !eg_is_none(call->in[i]) && !call->in[i]->storage;
    like.shape.dims[like.shape.ndim - 1] = call->in[VALUE]->shape.dims[like.shape.ndim - 1];
    eg_spec spec;
    EG_TRY(eg__spec_set(&spec, &like, like.shape)); /* not too many elements */
    like.storage = shape_only ? NULL : like.storage;
    call->out[0] = eg__tensor_new_like(&like);
    if (!call->out[0])
        return eg__pending();
    if (shape_only)
        return EG_OK;
    EG_TRY(make_weights(call, &weights, &kept));
    eg_tensor *applied = applied_weights(weights, kept);
    if (!applied)
        return eg__pending();
    EG_TRY(eg__kernels(call->ctx, like.dtype)->matmul(applied, call->in[VALUE], NULL, call->out[0]));
    for (size_t i = 0; i < call->n_in; i++)
        EG_TRY(eg_op_save(call, call->in[i]));
    EG_TRY(eg_op_save(call, weights));
    return kept ? eg_op_save(call, kept) : EG_OK;
}

/* grad_in[i] = scale a b, which lies in memory as the input does. */
static eg_status product_gradient(eg_op_grad *grad, size_t i, double scale, const eg_tensor *a, const eg_tensor *b)
{
    if (!grad->needs_grad[i])
        return EG_OK;
    eg_tensor *d = eg__scope_add(eg__tensor_new_like(grad->saved[i]));
    if (!d)
        return eg__pending();
    const eg_kernels *k = eg__kernels(grad->ctx, d->dtype);
    EG_TRY(k->matmul(a, b, NULL, d));
    if (scale != 1.0)
        EG_TRY(k->scale(1, &d, scale));
    return eg_op_grad_pass(grad, i, d);
}

/* The gradient of scale query key^T + mask, of the scope. */
static eg_tensor *score_gradient(const eg_op_grad *grad, const eg_tensor *kept)
{
    const eg_tensor *weights = grad->saved[WEIGHTS];
    const eg_kernels *k = eg__kernels(grad->ctx, weights->dtype);
    eg_tensor *d = eg__scope_add(new_row_major(weights, weights->shape));
    eg_tensor value = eg__operand_transpose(grad->saved[VALUE]);
    if (!d || k->matmul(grad->grad_out[0], &value, NULL, d) != EG_OK)
        return NULL;
    if (kept && k->binary(EG__MUL, d, kept, d) != EG_OK)
        return NULL;
    return k->softmax_backward(d->shape.ndim - 1, false, weights, d, d) == EG_OK ? d : NULL;
}

static eg_status attention_backward(eg_op_grad *grad)
{
    const eg__attention_attrs *attrs = grad->attrs;
    const eg_tensor *kept = grad->n_saved > KEPT ? grad->saved[KEPT] : NULL;
    if (grad->needs_grad[VALUE]) {
        eg_tensor *applied = applied_weights(grad->saved[WEIGHTS], kept);
        if (!applied)
            return eg__pending();
        eg_tensor transposed = eg__operand_transpose(applied);
        EG_TRY(product_gradient(grad, VALUE, 1.0, &transposed, grad->grad_out[0]));
    }
    if (!grad->needs_grad[QUERY] && !grad->needs_grad[KEY] && !grad->needs_grad[MASK])
        return EG_OK;
    eg_tensor *d = score_gradient(grad, kept);
    if (!d)
        return eg__pending();
    if (grad->needs_grad[MASK])
        EG_TRY(eg__grad_reduced(grad, MASK, d, 1.0));
    EG_TRY(product_gradient(grad, QUERY, attrs->scale, d, grad->saved[KEY]));
    eg_tensor transposed = eg__operand_transpose(d);
    return product_gradient(grad, KEY, attrs->scale, &transposed, grad->saved[QUERY]);
}

static uint64_t attention_macs(const eg_op_call *call)
{
    const eg_shape *query = &call->in[QUERY]->shape, *value = &call->in[VALUE]->shape;
    uint64_t weights = (uint64_t)eg_shape_numel(weights_shape(call->in[QUERY], call->in[KEY]));
    return eg__mul_saturated(weights, (uint64_t)(query->dims[query->ndim - 1] + value->dims[value->ndim - 1]));
}

const eg_op eg__op_scaled_dot_product_attention = {
    .struct_size = sizeof(eg_op),
    .name = "scaled_dot_product_attention",
    .attrs_size = sizeof(eg__attention_attrs),
    .optional = 1u << MASK,
    .makes_outputs = true, /* in the memory order of the query */
    .forward = attention_forward,
    .backward = attention_backward,
    .macs = attention_macs,
};

eg_tensor *eg_f_scaled_dot_product_attention_with(const eg_attention_args *args)
{
    if (!args)
        return eg__null(__func__, "args");
    const eg_tensor *query = args->query;
    int64_t features = query && query->shape.ndim > 0 ? query->shape.dims[query->shape.ndim - 1] : 1;
    eg__attention_attrs attrs = {.causal = args->is_causal,
                                 .dropout = args->dropout_p,
                                 .scale = args->scale != 0.0 ? args->scale : 1.0 / sqrt((double)EG_MAX(features, 1))};
    return eg_apply(&eg__op_scaled_dot_product_attention,
                    (eg_tensor *const[]){args->query, args->key, args->value, args->mask}, 4, &attrs);
}
