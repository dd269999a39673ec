/*
 * ops/concat.c - concat and pad: outputs that are put together from pieces.
 */
#include "ops/internal.h"

/* ---- concat ---- */

static eg_status concat_infer(const eg_op_call *call, eg_spec *out)
{
    eg_shape first = call->in[0]->shape, shape = first;
    EG_TRY(eg__check_dim(((const eg__dim_attrs *)call->attrs)->dim, first));
    int dim = eg__wrap_dim(((const eg__dim_attrs *)call->attrs)->dim, first.ndim);
    for (size_t i = 0; i < call->n_in; i++) {
        eg_shape piece = call->in[i]->shape;
        EG_CHECK(eg__parameter_type(call->in[i]->dtype) == eg__parameter_type(call->in[0]->dtype), EG_EDTYPE,
                 "piece %zu has type %s, expected %s as the first", i, eg_dtype_name(call->in[i]->dtype),
                 eg_dtype_name(call->in[0]->dtype));
        for (int d = 0; d < piece.ndim; d++)
            EG_CHECK(piece.dims[d] > 0, EG_ESHAPE, "piece %zu %s has a dimension of size 0", i, EG__TEXT(piece));
        eg_shape expected = first;
        if (piece.ndim == first.ndim)
            expected.dims[dim] = piece.dims[dim];
        EG_CHECK(eg_shape_equal(piece, expected), EG_ESHAPE,
                 "piece %zu has shape %s, first %s: only dimension %d may differ", i, EG__TEXT(piece), EG__TEXT(first),
                 dim);
        if (i > 0)
            EG_CHECK(!__builtin_add_overflow(shape.dims[dim], piece.dims[dim], &shape.dims[dim]), EG_ESHAPE,
                     "the pieces are too many elements along dimension %d", dim);
    }
    return eg__spec_set(out, call->in[0], shape);
}

static eg_status concat_forward(eg_op_call *call)
{
    eg_tensor *y = call->out[0];
    int dim = eg__wrap_dim(((const eg__dim_attrs *)call->attrs)->dim, y->shape.ndim);
    int64_t start = 0;
    for (size_t i = 0; i < call->n_in; i++) {
        int64_t length = call->in[i]->shape.dims[dim];
        eg_tensor piece = eg__operand_slice(y, dim, start, length, 1);
        EG_TRY(eg__kernels(call->ctx, y->dtype)->copy(call->in[i], &piece));
        start += length;
    }
    return EG_OK;
}

/* The piece of dy itself where it lies dense, else a copy. */
static eg_status piece_gradient(eg_op_grad *grad, size_t i, const eg_tensor *piece)
{
    if (eg__is_dense(piece)) {
        eg_tensor *dx = eg__tensor_new_view(grad->grad_out[0], piece->shape, piece->strides, piece->offset);
        if (!dx)
            return eg__pending();
        eg_status status = eg_op_grad_pass(grad, i, dx);
        eg_tensor_release(dx);
        return status;
    }
    eg_tensor *dx = eg_op_grad_new(grad, i);
    return dx ? eg__kernels(grad->ctx, dx->dtype)->copy(piece, dx) : eg__pending();
}

static eg_status concat_backward(eg_op_grad *grad)
{
    const eg_tensor *dy = grad->grad_out[0];
    int dim = eg__wrap_dim(((const eg__dim_attrs *)grad->attrs)->dim, dy->shape.ndim);
    int64_t start = 0;
    for (size_t i = 0; i < grad->n_in; i++) {
        int64_t length = grad->in_spec[i].shape.dims[dim];
        eg_tensor piece = eg__operand_slice(dy, dim, start, length, 1);
        if (grad->needs_grad[i])
            EG_TRY(piece_gradient(grad, i, &piece));
        start += length;
    }
    return EG_OK;
}

const eg_op eg__op_concat = {
    .struct_size = sizeof(eg_op),
    .name = "concat",
    .attrs_size = sizeof(eg__dim_attrs),
    .infer = concat_infer,
    .forward = concat_forward,
    .backward = concat_backward,
};

eg_tensor *eg_concat(eg_tensor *const *x, size_t n, int dim)
{
    size_t kept;
    eg_tensor **pieces = eg__present(&eg__op_concat, x, n, &kept);
    if (!pieces)
        return NULL;
    eg_tensor *joined = kept == 0   ? eg_none
                        : kept == 1 ? pieces[0]
                                    : eg_apply(&eg__op_concat, pieces, kept, &(eg__dim_attrs){.dim = dim});
    eg_free(pieces);
    return joined;
}

/* ---- pad ---- */

/* Elements before and after along each dimension (negative: cropped). */
static void pads_of(const eg__pad_attrs *attrs, int ndim, int64_t *before, int64_t *after)
{
    for (int d = 0; d < EG_MAX_DIMS; d++)
        before[d] = after[d] = 0;
    for (int i = 0; i < attrs->pads.ndim / 2; i++) {
        before[ndim - 1 - i] = attrs->pads.dims[2 * i];
        after[ndim - 1 - i] = attrs->pads.dims[2 * i + 1];
    }
}

static eg_status pad_infer(const eg_op_call *call, eg_spec *out)
{
    const eg__pad_attrs *attrs = call->attrs;
    eg_shape x = call->in[0]->shape, shape = x;
    int64_t before[EG_MAX_DIMS], after[EG_MAX_DIMS];
    EG_TRY(eg__check_input(call, 0, "input"));
    int n = attrs->pads.ndim;
    EG_CHECK(n >= 0 && n % 2 == 0 && n <= EG_MAX_DIMS && n / 2 <= x.ndim, EG_EINVAL,
             "%d pads are given for an input %s, expected a {before, after} pair for each of its last dimensions", n,
             EG__TEXT(x));
    pads_of(attrs, x.ndim, before, after);
    for (int d = 0; d < x.ndim; d++) {
        int64_t cropped = x.dims[d], limit = INT64_MAX / 4;
        EG_CHECK(before[d] > -limit && before[d] < limit && after[d] > -limit && after[d] < limit && cropped < limit,
                 EG_EINVAL, "pads (%lld, %lld) of dimension %d are too large", (long long)before[d],
                 (long long)after[d], d);
        cropped += EG_MIN(before[d], 0) + EG_MIN(after[d], 0);
        EG_CHECK(cropped >= 1, EG_ESHAPE, "pads (%lld, %lld) crop all of dimension %d of an input %s",
                 (long long)before[d], (long long)after[d], d, EG__TEXT(x));
        shape.dims[d] += before[d] + after[d];
    }
    return eg__spec_set(out, call->in[0], shape);
}

/* The part of t (x with the pads as they are, y with their signs turned) that the other also has. */
static eg_tensor common_part(const eg_tensor *t, const int64_t *before, const int64_t *after, int sign)
{
    eg_tensor part = eg__operand(t, t->shape, t->strides, 0);
    for (int d = 0; d < t->shape.ndim; d++) {
        int64_t cut = EG_MAX(sign * before[d], 0);
        int64_t length = part.shape.dims[d] - cut - EG_MAX(sign * after[d], 0);
        part = eg__operand_slice(&part, d, cut, length, 1);
    }
    return part;
}

static eg_status pad_forward(eg_op_call *call)
{
    const eg__pad_attrs *attrs = call->attrs;
    eg_tensor *y = call->out[0];
    const eg_kernels *k = eg__kernels(call->ctx, y->dtype);
    int64_t before[EG_MAX_DIMS], after[EG_MAX_DIMS];
    pads_of(attrs, y->shape.ndim, before, after);
    eg_tensor from = common_part(call->in[0], before, after, -1), to = common_part(y, before, after, 1);
    if (!eg_shape_equal(to.shape, y->shape))
        EG_TRY(k->fill(y, attrs->value));
    return k->copy(&from, &to);
}

static eg_status pad_backward(eg_op_grad *grad)
{
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (!dx)
        return eg__pending();
    const eg_kernels *k = eg__kernels(grad->ctx, dx->dtype);
    int64_t before[EG_MAX_DIMS], after[EG_MAX_DIMS];
    pads_of(grad->attrs, dx->shape.ndim, before, after);
    eg_tensor to = common_part(dx, before, after, -1), from = common_part(grad->grad_out[0], before, after, 1);
    if (!eg_shape_equal(to.shape, dx->shape))
        EG_TRY(k->fill(dx, 0.0));
    return k->copy(&from, &to);
}

const eg_op eg__op_pad = {
    .struct_size = sizeof(eg_op),
    .name = "pad",
    .attrs_size = sizeof(eg__pad_attrs),
    .infer = pad_infer,
    .forward = pad_forward,
    .backward = pad_backward,
};

eg_tensor *eg_f_pad(eg_tensor *x, eg_shape pads, double value)
{
    return eg_apply(&eg__op_pad, &x, 1, &(eg__pad_attrs){.pads = pads, .value = value});
}
