/*
 * ops/weight_norm.c - a weight as direction and length (Salimans and Kingma, "Weight normalization", NIPS 2016):
 * w = g v / |v|, with a length for each index of one dimension or for the whole.
 *
 * With n = |v| and s = sum of dw v: dg = s / n and dv = g / n dw - g s / n^3 v.
 */
#include "ops/internal.h"

#include <math.h>

enum { V, G, N_INPUTS };

static int64_t length_count(eg_shape v, int dim)
{
    return dim < 0 ? 1 : v.dims[dim];
}

static eg_status weight_norm_infer(const eg_op_call *call, eg_spec *out)
{
    int dim = ((const eg__dim_attrs *)call->attrs)->dim;
    const eg_tensor *v = call->in[V], *g = call->in[G];
    EG_TRY(eg__check_input(call, V, "direction"));
    EG_TRY(eg__check_input(call, G, "length"));
    EG_CHECK(v->dtype != EG_BF16 && g->dtype != EG_BF16, EG_EDTYPE, "a parameter has type bfloat16, expected float32");
    EG_CHECK(dim >= -1 && dim < v->shape.ndim, EG_EINVAL, "dimension %d is out of range for a direction %s", dim,
             EG__TEXT(v->shape));
    eg_shape lengths = {.ndim = dim < 0 ? 0 : v->shape.ndim};
    for (int d = 0; d < lengths.ndim; d++)
        lengths.dims[d] = d == dim ? v->shape.dims[d] : 1;
    EG_CHECK(eg_shape_equal(g->shape, lengths), EG_ESHAPE, "length has shape %s, expected %s", EG__TEXT(g->shape),
             EG__TEXT(lengths));
    return eg__spec_set(out, v, v->shape);
}

/* n numbers in a line, seen as having one for each index of dimension dim of v. */
static eg_tensor along(const eg_tensor *line, const eg_tensor *v, int dim)
{
    eg_shape shape = v->shape;
    int64_t strides[EG_MAX_DIMS] = {0};
    for (int d = 0; d < shape.ndim; d++)
        shape.dims[d] = d == dim ? shape.dims[d] : 1;
    if (dim >= 0)
        strides[dim] = 1;
    return eg__operand(line, shape, strides, 0);
}

static int64_t length_step(const eg_tensor *g, int dim)
{
    return dim < 0 ? 0 : g->strides[dim];
}

/* sums[i] = the sum of a b over all of index i; `product` is overwritten. */
static eg_status dot(const eg_tensor *a, const eg_tensor *b, int dim, eg_tensor *product, eg_tensor *sums)
{
    const eg_kernels *k = eg__kernels(a->ctx, a->dtype);
    eg_tensor target = along(sums, a, dim);
    EG_TRY(k->binary(EG__MUL, a, b, product));
    return k->reduce(EG__SUM, product, &target, NULL);
}

static eg_status forward_into(const eg_tensor *v, const eg_tensor *g, int dim, eg_tensor *norms, eg_tensor *factors,
                              eg_tensor *y)
{
    EG_TRY(dot(v, v, dim, y, norms));
    for (int64_t i = 0; i < norms->shape.dims[0]; i++) {
        eg__set_number(norms, i, sqrt(eg__number(norms, i)));
        eg__set_number(factors, i, eg__number(g, i * length_step(g, dim)) / eg__number(norms, i));
    }
    eg_tensor scale = along(factors, v, dim);
    return eg__kernels(v->ctx, v->dtype)->binary(EG__MUL, v, &scale, y);
}

static eg_status weight_norm_forward(eg_op_call *call)
{
    int dim = ((const eg__dim_attrs *)call->attrs)->dim;
    eg_tensor *v = call->in[V], *g = call->in[G];
    eg_shape line = EG_SHAPE(length_count(v->shape, dim));
    eg_tensor *norms = eg__tensor_new(call->ctx, v->dtype, line, EG_LAYOUT_DEFAULT);
    eg_tensor *factors = norms ? eg__tensor_new(call->ctx, v->dtype, line, EG_LAYOUT_DEFAULT) : NULL;
    eg_status status = factors ? forward_into(v, g, dim, norms, factors, call->out[0]) : eg__pending();
    eg_tensor *saved[] = {v, g, norms};
    for (size_t i = 0; status == EG_OK && i < EG_COUNT(saved); i++)
        status = eg_op_save(call, saved[i]);
    eg_tensor_release(norms);
    eg_tensor_release(factors);
    return status;
}

/* dg may be NULL; dv receives its two terms, of which the second goes by way of `product`. */
static eg_status backward_into(eg_op_grad *grad, eg_tensor *sums, eg_tensor *product, eg_tensor *dv, eg_tensor *dg)
{
    int dim = ((const eg__dim_attrs *)grad->attrs)->dim;
    const eg_tensor *v = grad->saved[0], *g = grad->saved[1], *norms = grad->saved[2], *dy = grad->grad_out[0];
    const eg_kernels *k = eg__kernels(grad->ctx, v->dtype);
    eg_tensor scale = along(sums, v, dim);
    EG_TRY(dot(dy, v, dim, product, sums));
    for (int64_t i = 0; i < sums->shape.dims[0]; i++) {
        double n = eg__number(norms, i), s = eg__number(sums, i);
        if (dg)
            eg__set_number(dg, i * length_step(dg, dim), s / n);
        eg__set_number(sums, i, eg__number(g, i * length_step(g, dim)) * s / (n * n * n));
    }
    if (!dv)
        return EG_OK;
    EG_TRY(k->binary(EG__MUL, v, &scale, product));
    for (int64_t i = 0; i < sums->shape.dims[0]; i++)
        eg__set_number(sums, i, eg__number(g, i * length_step(g, dim)) / eg__number(norms, i));
    EG_TRY(k->binary(EG__MUL, dy, &scale, dv));
    return k->binary(EG__SUB, dv, product, dv);
}

static eg_status weight_norm_backward(eg_op_grad *grad)
{
    int dim = ((const eg__dim_attrs *)grad->attrs)->dim;
    const eg_tensor *v = grad->saved[0];
    eg_tensor *d[N_INPUTS] = {NULL};
    for (size_t i = 0; i < N_INPUTS; i++)
        if (grad->needs_grad[i] && !(d[i] = eg_op_grad_new(grad, i)))
            return eg__pending();
    eg_tensor *sums = eg__tensor_new(grad->ctx, v->dtype, EG_SHAPE(length_count(v->shape, dim)), EG_LAYOUT_DEFAULT);
    eg_tensor *product = sums ? eg__tensor_new(grad->ctx, v->dtype, v->shape, eg__layout_of(v)) : NULL;
    eg_status status = product ? backward_into(grad, sums, product, d[V], d[G]) : eg__pending();
    eg_tensor_release(sums);
    eg_tensor_release(product);
    return status;
}

const eg_op eg__op_weight_norm = {
    .struct_size = sizeof(eg_op),
    .name = "weight_norm",
    .attrs_size = sizeof(eg__dim_attrs),
    .infer = weight_norm_infer,
    .forward = weight_norm_forward,
    .backward = weight_norm_backward,
};

eg_tensor *eg_f_weight_norm(eg_tensor *v, eg_tensor *g, int dim)
{
    return eg_apply(&eg__op_weight_norm, (eg_tensor *const[]){v, g}, N_INPUTS, &(eg__dim_attrs){.dim = dim});
}
