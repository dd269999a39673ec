/*
 * ops/group_norm.c - normalizations of each sample by itself: group normalization (Wu and He, "Group normalization",
 * ECCV 2018), instance normalization (Ulyanov, Vedaldi and Lempitsky 2016) and layer normalization (Ba, Kiros and
 * Hinton 2016).
 *
 * To the kernels all are one: x is (samples, channels, positions), normalized in groups of channels. A layer is a
 * sample of a single group without positions.
 */
#include "ops/internal.h"

#include <math.h>

enum { X, WEIGHT, BIAS, N_INPUTS };

/* ---- shapes ---- */

/* x as the kernels see it; *groups is set. */
static eg_shape lines_of(const eg__group_norm_attrs *attrs, eg_shape x, int64_t *groups)
{
    int64_t numel = eg_shape_numel(x);
    if (attrs->normalized.ndim > 0) {
        int64_t width = eg_shape_numel(attrs->normalized);
        *groups = 1;
        return EG_SHAPE(numel / width, width, 1);
    }
    *groups = attrs->groups == 0 ? x.dims[1] : attrs->groups;
    return EG_SHAPE(x.dims[0], x.dims[1], numel / (x.dims[0] * x.dims[1]));
}

static eg_status check_factor(const eg_op_call *call, size_t i, const char *what, eg_shape shape)
{
    if (eg_is_none(call->in[i]))
        return EG_OK;
    EG_TRY(eg__check_input(call, i, what));
    EG_CHECK(call->in[i]->dtype != EG_BF16, EG_EDTYPE, "%s has type bfloat16, expected float32", what);
    EG_CHECK(eg_shape_equal(call->in[i]->shape, shape), EG_ESHAPE, "%s has shape %s, expected %s", what,
             EG__TEXT(call->in[i]->shape), EG__TEXT(shape));
    return EG_OK;
}

static eg_status finish_infer(const eg_op_call *call, eg_shape factors, eg_spec *out)
{
    double eps = ((const eg__group_norm_attrs *)call->attrs)->eps;
    EG_TRY(check_factor(call, WEIGHT, "weight", factors));
    EG_TRY(check_factor(call, BIAS, "bias", factors));
    EG_CHECK(eps > 0.0 && isfinite(eps), EG_EINVAL, "eps is %g, expected more than 0", eps);
    return eg__spec_set(out, call->in[X], call->in[X]->shape);
}

static eg_status group_norm_infer(const eg_op_call *call, eg_spec *out)
{
    int64_t groups = ((const eg__group_norm_attrs *)call->attrs)->groups;
    eg_shape x = call->in[X]->shape;
    EG_TRY(eg__check_input(call, X, "input"));
    EG_CHECK(x.ndim >= 2, EG_ESHAPE, "input %s has %d dimensions, expected (N, C, ..)", EG__TEXT(x), x.ndim);
    EG_CHECK(groups >= 1 && x.dims[1] % groups == 0, EG_EINVAL, "%lld groups do not divide %lld channels",
             (long long)groups, (long long)x.dims[1]);
    return finish_infer(call, EG_SHAPE(x.dims[1]), out);
}

static eg_status instance_norm_infer(const eg_op_call *call, eg_spec *out)
{
    eg_shape x = call->in[X]->shape;
    EG_TRY(eg__check_input(call, X, "input"));
    EG_CHECK(x.ndim >= 3, EG_ESHAPE, "input %s has %d dimensions, expected (N, C, ..)", EG__TEXT(x), x.ndim);
    EG_CHECK(eg_shape_numel(x) > x.dims[0] * x.dims[1], EG_EINVAL,
             "input %s has one value per channel, more are needed to take a variance", EG__TEXT(x));
    return finish_infer(call, EG_SHAPE(x.dims[1]), out);
}

static eg_status layer_norm_infer(const eg_op_call *call, eg_spec *out)
{
    eg_shape normalized = ((const eg__group_norm_attrs *)call->attrs)->normalized, x = call->in[X]->shape;
    EG_TRY(eg__check_input(call, X, "input"));
    EG_CHECK(normalized.ndim >= 1 && normalized.ndim <= EG_MAX_DIMS, EG_EINVAL,
             "normalized shape has %d dimensions, expected 1 or more", normalized.ndim);
    bool fits = normalized.ndim <= x.ndim;
    for (int d = 0; fits && d < normalized.ndim; d++)
        fits = normalized.dims[d] == x.dims[x.ndim - normalized.ndim + d];
    EG_CHECK(fits, EG_ESHAPE, "input %s does not end with the normalized shape %s", EG__TEXT(x), EG__TEXT(normalized));
    return finish_infer(call, normalized, out);
}

/* ---- tensors as the kernels see them ---- */

/* A result's view of that shape, or a new tensor where no view is possible; for finish(). */
static eg_tensor *result_as(eg_tensor *t, eg_shape shape)
{
    int64_t strides[EG_MAX_DIMS] = {0};
    if (eg__view_strides(t->shape, t->strides, shape, strides))
        return eg__tensor_new_view(t, shape, strides, t->offset);
    return eg__tensor_new(t->ctx, t->dtype, shape, EG_LAYOUT_DEFAULT);
}

/* Brings a result where it belongs and ends the reference that result_as() gave. */
static eg_status finish(eg_status status, eg_tensor *t, eg_tensor *result)
{
    if (status == EG_OK && result && result->storage != t->storage)
        status = eg__copy_reshaped(result, t);
    eg_tensor_release(result);
    return status;
}

/* What is read, seen as lines; an absent input stays NULL. */
typedef struct operands {
    eg_tensor *x, *weight, *bias, *dy;
    bool failed;
} operands;

static eg_tensor *operand(operands *o, eg_tensor *t, eg_shape shape)
{
    if (!t || eg_is_none(t))
        return NULL;
    eg_tensor *seen = eg__reshaped(t, shape);
    o->failed = o->failed || !seen;
    return seen;
}

static void release_operands(operands *o)
{
    eg_tensor_release(o->x);
    eg_tensor_release(o->weight);
    eg_tensor_release(o->bias);
    eg_tensor_release(o->dy);
}

/* ---- forward ---- */

static eg_status normalize(eg_op_call *call, const eg__group_norm *gn, eg_shape lines, eg_tensor *mean, eg_tensor *rstd)
{
    eg_tensor *y = call->out[0], *result = result_as(y, lines);
    eg_shape channels = EG_SHAPE(lines.dims[1]);
    operands o = {.failed = !result};
    o.x = operand(&o, call->in[X], lines);
    o.weight = operand(&o, call->in[WEIGHT], channels);
    o.bias = operand(&o, call->in[BIAS], channels);
    eg_status status =
        o.failed ? eg__pending()
                 : eg__kernels(call->ctx, y->dtype)->group_norm(gn, o.x, o.weight, o.bias, mean, rstd, result);
    release_operands(&o);
    return finish(status, y, result);
}

/* x, the weight if present, and the statistics: backward reads them in this order. */
static eg_status save_for_backward(eg_op_call *call, eg_tensor *mean, eg_tensor *rstd)
{
    if (!call->needs_grad[X] && !call->needs_grad[WEIGHT] && !call->needs_grad[BIAS])
        return EG_OK;
    EG_TRY(eg_op_save(call, call->in[X]));
    if (!eg_is_none(call->in[WEIGHT]))
        EG_TRY(eg_op_save(call, call->in[WEIGHT]));
    EG_TRY(eg_op_save(call, mean));
    return eg_op_save(call, rstd);
}

static eg_status group_norm_forward(eg_op_call *call)
{
    const eg__group_norm_attrs *attrs = call->attrs;
    eg__group_norm gn = {.eps = attrs->eps};
    eg_shape lines = lines_of(attrs, call->in[X]->shape, &gn.groups), rows = EG_SHAPE(lines.dims[0], gn.groups);
    eg_dtype dtype = eg__parameter_type(call->in[X]->dtype);
    eg_tensor *mean = eg__tensor_new(call->ctx, dtype, rows, EG_LAYOUT_DEFAULT);
    eg_tensor *rstd = mean ? eg__tensor_new(call->ctx, dtype, rows, EG_LAYOUT_DEFAULT) : NULL;
    eg_status status = rstd ? normalize(call, &gn, lines, mean, rstd) : eg__pending();
    if (status == EG_OK)
        status = save_for_backward(call, mean, rstd);
    eg_tensor_release(mean);
    eg_tensor_release(rstd);
    return status;
}

/* ---- backward ---- */

/* The gradients that are wanted, as the kernels see them. */
static eg_status make_gradients(eg_op_grad *grad, eg_shape lines, eg_tensor *d[N_INPUTS])
{
    for (size_t i = 0; i < N_INPUTS; i++) {
        eg_tensor *made = grad->needs_grad[i] ? eg_op_grad_new(grad, i) : NULL;
        d[i] = made ? result_as(made, i == X ? lines : EG_SHAPE(lines.dims[1])) : NULL;
        if (grad->needs_grad[i] && !d[i])
            return eg__pending();
    }
    return EG_OK;
}

static eg_status group_norm_backward(eg_op_grad *grad)
{
    const eg__group_norm_attrs *attrs = grad->attrs;
    eg__group_norm gn = {.eps = attrs->eps};
    eg_shape lines = lines_of(attrs, grad->in_spec[X].shape, &gn.groups);
    bool weighted = grad->in_spec[WEIGHT].shape.ndim > 0;
    const eg_tensor *mean = grad->saved[grad->n_saved - 2], *rstd = grad->saved[grad->n_saved - 1];
    operands o = {.failed = false};
    o.x = operand(&o, grad->saved[0], lines);
    o.weight = operand(&o, weighted ? grad->saved[1] : NULL, EG_SHAPE(lines.dims[1]));
    o.dy = operand(&o, grad->grad_out[0], lines);
    eg_tensor *d[N_INPUTS] = {NULL};
    eg_status status = o.failed ? eg__pending() : make_gradients(grad, lines, d);
    if (status == EG_OK)
        status = eg__kernels(grad->ctx, o.x->dtype)
                     ->group_norm_backward(&gn, o.x, o.weight, mean, rstd, o.dy, d[X], d[WEIGHT], d[BIAS]);
    release_operands(&o);
    for (size_t i = 0; i < N_INPUTS; i++)
        status = finish(status, grad->grad_in[i], d[i]);
    return status;
}

/* ---- the operations ---- */

#define NORM(record)                                                                                                   \
    const eg_op eg__op_##record = {                                                                                    \
        .struct_size = sizeof(eg_op),                                                                                  \
        .name = #record,                                                                                               \
        .attrs_size = sizeof(eg__group_norm_attrs),                                                                    \
        .optional = 1u << WEIGHT | 1u << BIAS,                                                                         \
        .infer = record##_infer,                                                                                       \
        .forward = group_norm_forward,                                                                                 \
        .backward = group_norm_backward,                                                                               \
    }
NORM(group_norm);
NORM(instance_norm);
NORM(layer_norm);

static double eps_or_default(double eps)
{
    return eps == 0 ? 1e-5 : eps;
}

eg_tensor *eg_f_group_norm_with(const eg_group_norm_args *args)
{
    if (!args)
        return eg__null(__func__, "args");
    eg__group_norm_attrs attrs = {.eps = eps_or_default(args->eps), .groups = args->num_groups};
    return eg_apply(&eg__op_group_norm, (eg_tensor *const[]){args->x, args->weight, args->bias}, N_INPUTS, &attrs);
}

eg_tensor *eg_f_instance_norm_with(const eg_instance_norm_args *args)
{
    if (!args)
        return eg__null(__func__, "args");
    eg__group_norm_attrs attrs = {.eps = eps_or_default(args->eps)};
    return eg_apply(&eg__op_instance_norm, (eg_tensor *const[]){args->x, args->weight, args->bias}, N_INPUTS, &attrs);
}

eg_tensor *eg_f_layer_norm_with(const eg_layer_norm_args *args)
{
    if (!args)
        return eg__null(__func__, "args");
    eg__group_norm_attrs attrs = {.eps = eps_or_default(args->eps), .normalized = args->normalized_shape};
    return eg_apply(&eg__op_layer_norm, (eg_tensor *const[]){args->x, args->weight, args->bias}, N_INPUTS, &attrs);
}
