/*
 * ops/shape.c - reshape, flatten, permute, slice, split: views of the same numbers.
 *
 * All of them set their output themselves (makes_outputs), also for shape-only inputs, so that the checks stand in
 * forward.
 */
#include "autograd/internal.h"
#include "ops/internal.h"

static eg_status check_not_empty(const eg_tensor *x)
{
    for (int d = 0; d < x->shape.ndim; d++)
        EG_CHECK(x->shape.dims[d] > 0, EG_ESHAPE, "input %s has a dimension of size 0", EG__TEXT(x->shape));
    return EG_OK;
}

static eg_status view(eg_op_call *call, eg_shape shape, const int64_t *strides, int64_t offset)
{
    call->out[0] = eg__tensor_new_view(call->in[0], shape, strides, offset);
    return call->out[0] ? EG_OK : eg__pending();
}

/* ---- reshape ---- */

eg_status eg__copy_reshaped(eg_tensor *x, eg_tensor *y)
{
    const eg_kernels *k = eg__kernels(x->ctx, x->dtype);
    int64_t strides[EG_MAX_DIMS];
    if (eg__view_strides(y->shape, y->strides, x->shape, strides)) {
        eg_tensor target = eg__operand(y, x->shape, strides, 0);
        return k->copy(x, &target);
    }
    eg_tensor *ordered = eg__tensor_new(x->ctx, x->dtype, x->shape, EG_LAYOUT_ROW_MAJOR);
    if (!ordered)
        return eg__pending();
    eg_status status = k->copy(x, ordered);
    eg__layout_strides(y->shape, EG_LAYOUT_ROW_MAJOR, strides);
    eg_tensor source = eg__operand(ordered, y->shape, strides, 0);
    if (status == EG_OK)
        status = k->copy(&source, y);
    eg_tensor_release(ordered);
    return status;
}

eg_tensor *eg__reshaped(eg_tensor *x, eg_shape shape)
{
    int64_t strides[EG_MAX_DIMS] = {0};
    if (eg__view_strides(x->shape, x->strides, shape, strides))
        return eg__tensor_new_view(x, shape, strides, x->offset);
    if (!x->storage)
        return eg__tensor_new_shape_only(x->ctx, x->dtype, shape, EG_LAYOUT_DEFAULT);
    eg_tensor *y = eg__tensor_new(x->ctx, x->dtype, shape, EG_LAYOUT_DEFAULT);
    if (y && eg__copy_reshaped(x, y) != EG_OK) {
        eg_tensor_release(y);
        return NULL;
    }
    return y;
}

/* Fills in the size that is -1. */
static eg_status resolve_shape(eg_shape x, eg_shape *shape)
{
    EG_CHECK(shape->ndim >= 0 && shape->ndim <= EG_MAX_DIMS, EG_EINVAL, "new shape has %d dimensions, at most %d exist",
             shape->ndim, EG_MAX_DIMS);
    int64_t numel = eg_shape_numel(x);
    int open = -1;
    eg_shape known = *shape;
    for (int d = 0; d < shape->ndim; d++) {
        EG_CHECK(shape->dims[d] >= 1 || shape->dims[d] == -1, EG_EINVAL, "new shape %s has a size of %lld",
                 EG__TEXT(*shape), (long long)shape->dims[d]);
        if (shape->dims[d] != -1)
            continue;
        EG_CHECK(open < 0, EG_EINVAL, "new shape %s has more than one size of -1", EG__TEXT(*shape));
        open = d;
        known.dims[d] = 1;
    }
    int64_t count = eg_shape_numel(known);
    EG_CHECK(count > 0 && (open >= 0 ? numel % count == 0 : numel == count), EG_ESHAPE,
             "input %s of %lld elements cannot take the shape %s", EG__TEXT(x), (long long)numel, EG__TEXT(*shape));
    if (open >= 0)
        shape->dims[open] = numel / count;
    return EG_OK;
}

static eg_status reshape_forward(eg_op_call *call)
{
    eg_shape shape = ((const eg__shape_attrs *)call->attrs)->shape;
    EG_TRY(check_not_empty(call->in[0]));
    EG_TRY(resolve_shape(call->in[0]->shape, &shape));
    call->out[0] = eg__reshaped(call->in[0], shape);
    return call->out[0] ? EG_OK : eg__pending();
}

static eg_status reshape_backward(eg_op_grad *grad)
{
    eg_tensor *dx = eg__reshaped(grad->grad_out[0], grad->in_spec[0].shape);
    if (!dx)
        return eg__pending();
    eg_status status = eg_op_grad_pass(grad, 0, dx);
    eg_tensor_release(dx);
    return status;
}

const eg_op eg__op_reshape = {
    .struct_size = sizeof(eg_op),
    .name = "reshape",
    .attrs_size = sizeof(eg__shape_attrs),
    .makes_outputs = true,
    .forward = reshape_forward,
    .backward = reshape_backward,
};

eg_tensor *eg_reshape(eg_tensor *x, eg_shape shape)
{
    return eg_apply(&eg__op_reshape, &x, 1, &(eg__shape_attrs){.shape = shape});
}

/* ---- flatten ---- */

static eg_status flatten_forward(eg_op_call *call)
{
    const eg__flatten_attrs *attrs = call->attrs;
    eg_shape x = call->in[0]->shape, shape = EG_SHAPE(1);
    EG_TRY(check_not_empty(call->in[0]));
    if (x.ndim > 0) {
        EG_TRY(eg__check_dim(attrs->start, x));
        EG_TRY(eg__check_dim(attrs->end, x));
        int start = eg__wrap_dim(attrs->start, x.ndim), end = eg__wrap_dim(attrs->end, x.ndim);
        EG_CHECK(start <= end, EG_EINVAL, "first dimension %d lies after the last, %d", attrs->start, attrs->end);
        shape = x;
        for (int d = start + 1; d <= end; d++)
            shape.dims[start] *= x.dims[d];
        shape.ndim = x.ndim - (end - start);
        for (int d = start + 1; d < EG_MAX_DIMS; d++)
            shape.dims[d] = d < shape.ndim ? x.dims[d + end - start] : 0;
    }
    call->out[0] = eg__reshaped(call->in[0], shape);
    return call->out[0] ? EG_OK : eg__pending();
}

const eg_op eg__op_flatten = {
    .struct_size = sizeof(eg_op),
    .name = "flatten",
    .attrs_size = sizeof(eg__flatten_attrs),
    .makes_outputs = true,
    .forward = flatten_forward,
    .backward = reshape_backward,
};

eg_tensor *eg_f_flatten(eg_tensor *x, int start, int end)
{
    return eg_apply(&eg__op_flatten, &x, 1, &(eg__flatten_attrs){.start = start, .end = end});
}

/* ---- permute ---- */

static eg_status permute_forward(eg_op_call *call)
{
    eg_shape order = ((const eg__shape_attrs *)call->attrs)->shape, x = call->in[0]->shape;
    eg_shape shape = {.ndim = x.ndim};
    int64_t strides[EG_MAX_DIMS] = {0};
    bool seen[EG_MAX_DIMS] = {false};
    EG_CHECK(order.ndim == x.ndim, EG_EINVAL, "order names %d dimensions, input %s has %d", order.ndim, EG__TEXT(x),
             x.ndim);
    for (int d = 0; d < x.ndim; d++) {
        int64_t from = order.dims[d] < 0 ? order.dims[d] + x.ndim : order.dims[d];
        EG_CHECK(from >= 0 && from < x.ndim, EG_EINVAL, "dimension %lld is out of range for an input %s",
                 (long long)order.dims[d], EG__TEXT(x));
        EG_CHECK(!seen[from], EG_EINVAL, "dimension %lld is named twice", (long long)from);
        seen[from] = true;
        shape.dims[d] = x.dims[from];
        strides[d] = call->in[0]->strides[from];
    }
    return view(call, shape, strides, call->in[0]->offset);
}

static eg_status permute_backward(eg_op_grad *grad)
{
    eg_shape order = ((const eg__shape_attrs *)grad->attrs)->shape, x = grad->in_spec[0].shape;
    eg_tensor *dy = grad->grad_out[0];
    int64_t strides[EG_MAX_DIMS] = {0};
    for (int d = 0; d < x.ndim; d++)
        strides[eg__wrap_dim((int)order.dims[d], x.ndim)] = dy->strides[d];
    eg_tensor *dx = eg__tensor_new_view(dy, x, strides, dy->offset);
    if (!dx)
        return eg__pending();
    eg_status status = eg_op_grad_pass(grad, 0, dx);
    eg_tensor_release(dx);
    return status;
}

const eg_op eg__op_permute = {
    .struct_size = sizeof(eg_op),
    .name = "permute",
    .attrs_size = sizeof(eg__shape_attrs),
    .makes_outputs = true,
    .forward = permute_forward,
    .backward = permute_backward,
};

eg_tensor *eg_permute(eg_tensor *x, eg_shape order)
{
    return eg_apply(&eg__op_permute, &x, 1, &(eg__shape_attrs){.shape = order});
}

/* ---- slice ---- */

typedef struct range {
    int dim;
    int64_t start, length, step;
} range;

/* `attrs` against an input of this shape: from 0, within it, not empty. */
static eg_status resolve_range(const eg__slice_attrs *attrs, eg_shape x, range *r)
{
    EG_TRY(eg__check_dim(attrs->dim, x));
    int dim = eg__wrap_dim(attrs->dim, x.ndim);
    int64_t size = x.dims[dim];
    int64_t start = attrs->start < 0 ? attrs->start + size : attrs->start;
    int64_t stop = attrs->stop == INT64_MAX ? size : attrs->stop < 0 ? attrs->stop + size : attrs->stop;
    EG_CHECK(attrs->step >= 1, EG_EINVAL, "step is %lld, expected 1 or more", (long long)attrs->step);
    EG_CHECK(start >= 0 && start < size, EG_EINVAL, "start %lld is outside dimension %d of an input %s",
             (long long)attrs->start, attrs->dim, EG__TEXT(x));
    EG_CHECK(stop <= size, EG_EINVAL, "stop %lld is outside dimension %d of an input %s", (long long)attrs->stop,
             attrs->dim, EG__TEXT(x));
    EG_CHECK(stop > start, EG_EINVAL, "nothing lies between start %lld and stop %lld in dimension %d of an input %s",
             (long long)attrs->start, (long long)attrs->stop, attrs->dim, EG__TEXT(x));
    int64_t length = (stop - start - 1) / attrs->step + 1;
    /* a single element is stepped over to nowhere: its step may be more than a stride can hold */
    *r = (range){.dim = dim, .start = start, .length = length, .step = length == 1 ? 1 : attrs->step};
    return EG_OK;
}

static eg_status slice_forward(eg_op_call *call)
{
    eg_tensor *x = call->in[0];
    range r;
    EG_TRY(check_not_empty(x));
    EG_TRY(resolve_range(call->attrs, x->shape, &r));
    eg_tensor piece = eg__operand_slice(x, r.dim, r.start, r.length, r.step);
    return view(call, piece.shape, piece.strides, piece.offset);
}

static eg_status slice_backward(eg_op_grad *grad)
{
    range r;
    EG_TRY(resolve_range(grad->attrs, grad->in_spec[0].shape, &r));
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (!dx)
        return eg__pending();
    const eg_kernels *k = eg__kernels(grad->ctx, dx->dtype);
    eg_tensor piece = eg__operand_slice(dx, r.dim, r.start, r.length, r.step);
    EG_TRY(k->fill(dx, 0.0));
    return k->copy(grad->grad_out[0], &piece);
}

const eg_op eg__op_slice = {
    .struct_size = sizeof(eg_op),
    .name = "slice",
    .attrs_size = sizeof(eg__slice_attrs),
    .makes_outputs = true,
    .forward = slice_forward,
    .backward = slice_backward,
};

eg_tensor *eg_slice(eg_tensor *x, int dim, int64_t start, int64_t stop, int64_t step)
{
    return eg_apply(&eg__op_slice, &x, 1, &(eg__slice_attrs){.dim = dim, .start = start, .stop = stop, .step = step});
}

/* ---- split: slices, as a tuple ---- */

static eg_status check_split(const eg_tensor *x, int64_t size, int dim)
{
    EG_CHECK(x->kind == EG__DENSE, EG_EINVAL, "input 0 is %s, expected a tensor", eg_is_none(x) ? "none" : "a tuple");
    EG_CHECK(size >= 1, EG_EINVAL, "size is %lld, expected 1 or more", (long long)size);
    EG_TRY(check_not_empty(x));
    EG_TRY(eg__check_dim(dim, x->shape));
    int64_t pieces = (x->shape.dims[eg__wrap_dim(dim, x->shape.ndim)] - 1) / size + 1;
    EG_CHECK(pieces <= EG__MAX_ITEMS, EG_EINVAL, "%lld pieces of %lld, expected at most %d", (long long)pieces,
             (long long)size, EG__MAX_ITEMS);
    return EG_OK;
}

eg_tensor *eg_split(eg_tensor *x, int64_t size, int dim)
{
    if (!x)
        return eg__null("split", "an input");
    eg_status status = check_split(x, size, dim);
    if (status != EG_OK) {
        eg__op_fail(status, "split", x->ctx ? eg__call_path(x->ctx) : "");
        return NULL;
    }
    int64_t total = x->shape.dims[eg__wrap_dim(dim, x->shape.ndim)];
    size_t n = (size_t)((total - 1) / size + 1);
    eg_tensor **pieces = eg__calloc(n, sizeof *pieces);
    if (!pieces)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        int64_t start = (int64_t)i * size;
        pieces[i] = eg_slice(x, dim, start, start + EG_MIN(size, total - start), 1);
    }
    eg_tensor *tuple = eg_tuple(x->ctx, pieces, n);
    eg_free(pieces);
    return tuple;
}
