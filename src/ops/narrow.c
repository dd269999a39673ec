/*
 * ops/narrow.c - the part of a parameter that a module of smaller sizes has: the first entries of dimensions 0 and 1
 * (features out and in), and those in the middle of the others (a window), as in Cai et al., "Once-for-all: train one
 * network and specialize it for efficient deployment", ICLR 2020.
 */
#include "autograd/internal.h"
#include "ops/internal.h"

enum { FEATURE_DIMS = 2 };

/* The part of t, as an operand. */
static eg_tensor part_of(const eg_tensor *t, eg_shape shape)
{
    eg_tensor part = *t;
    for (int d = 0; d < shape.ndim; d++) {
        int64_t start = d < FEATURE_DIMS ? 0 : (t->shape.dims[d] - shape.dims[d]) / 2;
        part = eg__operand_slice(&part, d, start, shape.dims[d], 1);
    }
    return part;
}

static eg_status check(const eg_tensor *x, eg_shape shape)
{
    bool fits = x->shape.ndim == shape.ndim;
    for (int d = 0; d < shape.ndim && fits; d++)
        fits = shape.dims[d] >= 1 && shape.dims[d] <= x->shape.dims[d];
    EG_CHECK(fits, EG_ESHAPE, "%s is no part of an input %s", EG__TEXT(shape), EG__TEXT(x->shape));
    return EG_OK;
}

/* A view where the numbers lie together, so that what is packed of a weight serves again; else a copy. */
static eg_status forward(eg_op_call *call)
{
    eg_tensor *x = call->in[0];
    eg_shape shape = ((const eg__narrow_attrs *)call->attrs)->shape;
    EG_TRY(check(x, shape));
    eg_tensor part = part_of(x, shape);
    bool together = eg__is_row_major(&part);
    if (together)
        call->out[0] = eg__tensor_new_view(x, shape, part.strides, part.offset);
    else if (x->storage == NULL)
        call->out[0] = eg__tensor_new_shape_only(x->ctx, x->dtype, shape, EG_LAYOUT_ROW_MAJOR);
    else
        call->out[0] = eg__tensor_new(x->ctx, x->dtype, shape, EG_LAYOUT_ROW_MAJOR);
    if (call->out[0] == NULL)
        return eg__pending();
    return together || x->storage == NULL ? EG_OK : eg__kernels(x->ctx, x->dtype)->copy(&part, call->out[0]);
}

static eg_status backward(eg_op_grad *grad)
{
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (dx == NULL)
        return eg__pending();
    const eg_kernels *k = eg__kernels(grad->ctx, dx->dtype);
    eg_tensor part = part_of(dx, ((const eg__narrow_attrs *)grad->attrs)->shape);
    EG_TRY(k->fill(dx, 0.0));
    return k->copy(grad->grad_out[0], &part);
}

const eg_op eg__op_narrow = {
    .struct_size = sizeof(eg_op),
    .name = "narrow",
    .attrs_size = sizeof(eg__narrow_attrs),
    .makes_outputs = true,
    .forward = forward,
    .backward = backward,
};

eg_tensor *eg__narrow(eg_tensor *x, eg_shape shape)
{
    return eg_apply(&eg__op_narrow, &x, 1, &(eg__narrow_attrs){.shape = shape});
}
