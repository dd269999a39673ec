/*
 * ops/common.c - checks, shape rules and kernel operands that several operations share.
 */
#include "ops/internal.h"

/* ---- checks ---- */

eg_status eg__check_sizes(const eg_tensor *t, const char *what)
{
    for (int d = 0; d < t->shape.ndim; d++)
        EG_CHECK(t->shape.dims[d] > 0, EG_ESHAPE, "%s %s has a dimension of size 0", what, EG__TEXT(t->shape));
    return EG_OK;
}

eg_status eg__check_input(const eg_op_call *call, size_t i, const char *what)
{
    const eg_tensor *t = call->in[i];
    if (i == 0)
        EG_CHECK(eg__is_float(t->dtype), EG_EDTYPE, "%s has type %s, expected float32 or float64", what,
                 eg_dtype_name(t->dtype));
    EG_CHECK(eg__parameter_type(t->dtype) == eg__parameter_type(call->in[0]->dtype), EG_EDTYPE,
             "%s has type %s, expected %s as the first input", what, eg_dtype_name(t->dtype),
             eg_dtype_name(call->in[0]->dtype));
    return eg__check_sizes(t, what);
}

eg_status eg__check_ndim(const eg_tensor *t, const char *what, int ndim, const char *expected)
{
    EG_CHECK(t->shape.ndim == ndim, EG_ESHAPE, "%s %s has %d dimensions, expected %s", what, EG__TEXT(t->shape),
             t->shape.ndim, expected);
    return EG_OK;
}

eg_status eg__check_vector(const eg_op_call *call, size_t i, const char *what, int64_t n)
{
    const eg_tensor *t = call->in[i];
    if (eg_is_none(t))
        return EG_OK;
    EG_TRY(eg__check_input(call, i, what));
    EG_CHECK(t->dtype != EG_BF16, EG_EDTYPE, "%s has type bfloat16, expected float32", what);
    EG_CHECK(eg_shape_equal(t->shape, EG_SHAPE(n)), EG_ESHAPE, "%s has shape %s, expected (%lld)", what,
             EG__TEXT(t->shape), (long long)n);
    return EG_OK;
}

eg_status eg__check_hw(const int64_t hw[2], const char *what, int64_t min)
{
    int64_t max = ((int64_t)1 << 30) - 1;
    EG_CHECK(hw[0] >= min && hw[1] >= min, EG_EINVAL, "%s is (%lld, %lld), expected %lld or more", what,
             (long long)hw[0], (long long)hw[1], (long long)min);
    EG_CHECK(hw[0] <= max && hw[1] <= max, EG_EINVAL, "%s is (%lld, %lld), expected at most %lld", what,
             (long long)hw[0], (long long)hw[1], (long long)max);
    return EG_OK;
}

eg_status eg__check_dim(int dim, eg_shape shape)
{
    int wrapped = eg__wrap_dim(dim, shape.ndim);
    EG_CHECK(wrapped >= 0 && wrapped < shape.ndim, EG_EINVAL, "dimension %d is out of range for an input %s", dim,
             EG__TEXT(shape));
    return EG_OK;
}

eg_status eg__spec_set(eg_spec *spec, const eg_tensor *like, eg_shape shape)
{
    EG_CHECK(eg_shape_numel(shape) >= 0, EG_ESHAPE, "an output %s has more elements than can be counted",
             EG__TEXT(shape));
    *spec = (eg_spec){.dtype = like->dtype,
                      .layout = like->shape.ndim == shape.ndim ? eg__layout_of(like) : EG_LAYOUT_DEFAULT,
                      .shape = shape};
    return EG_OK;
}

eg_tensor **eg__present(const eg_op *op, eg_tensor *const *x, size_t n, size_t *kept)
{
    *kept = 0;
    if (!x)
        return eg__null(op->name, "list of tensors");
    if (n == 0) {
        eg_fail_at(op->name, EG_EINVAL, "%s: no tensors are given, expected at least one", op->name);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        if (!x[i])
            return eg__null(op->name, "an input");
    eg_tensor **present = eg__calloc(n + 1, sizeof *present);
    for (size_t i = 0; present && i < n; i++)
        if (!eg_is_none(x[i]))
            present[(*kept)++] = x[i];
    return present;
}

eg_status eg__broadcast(eg_shape a, eg_shape b, eg_shape *shape)
{
    *shape = (eg_shape){.ndim = EG_MAX(a.ndim, b.ndim)};
    for (int d = 0; d < shape->ndim; d++) {
        int i = d - (shape->ndim - a.ndim), j = d - (shape->ndim - b.ndim);
        int64_t m = i < 0 ? 1 : a.dims[i], n = j < 0 ? 1 : b.dims[j];
        EG_CHECK(m == n || m == 1 || n == 1, EG_ESHAPE, "shapes %s and %s do not broadcast", EG__TEXT(a), EG__TEXT(b));
        shape->dims[d] = EG_MAX(m, n);
    }
    return EG_OK;
}

eg_status eg__check_index(const eg_tensor *index, const char *what, int64_t size)
{
    EG_CHECK(index->dtype == EG_I64, EG_EDTYPE, "%s has type %s, expected int64", what, eg_dtype_name(index->dtype));
    EG_TRY(eg__check_sizes(index, what));
    int64_t numel = index->storage ? eg_shape_numel(index->shape) : 0, at[EG_MAX_DIMS] = {0}, offset = 0;
    for (int64_t i = 0; i < numel; i++) {
        int64_t value = eg__i64(index)[offset];
        EG_CHECK(value >= 0 && value < size, EG_EINVAL, "%s %lld is out of range, expected 0 to %lld", what,
                 (long long)value, (long long)size - 1);
        for (int d = index->shape.ndim - 1; d >= 0; d--) { /* to the next in logical order */
            offset += index->strides[d];
            if (++at[d] < index->shape.dims[d])
                break;
            offset -= at[d] * index->strides[d];
            at[d] = 0;
        }
    }
    return EG_OK;
}

/* ---- operands ---- */

eg_tensor eg__operand(const eg_tensor *t, eg_shape shape, const int64_t *strides, int64_t offset)
{
    eg_tensor operand = {.refs = 1,
                         .ctx = t->ctx,
                         .kind = EG__DENSE,
                         .dtype = t->dtype,
                         .shape = shape,
                         .offset = t->offset + offset,
                         .storage = t->storage};
    for (int d = 0; d < shape.ndim; d++)
        operand.strides[d] = strides[d];
    return operand;
}

eg_tensor eg__operand_broadcast(const eg_tensor *t, eg_shape shape, bool expand)
{
    int64_t strides[EG_MAX_DIMS] = {0};
    eg_shape sizes = shape;
    for (int d = 0; d < shape.ndim; d++) {
        int own = d - (shape.ndim - t->shape.ndim);
        bool repeated = own < 0 || (t->shape.dims[own] == 1 && (!expand || shape.dims[d] != 1));
        strides[d] = repeated ? 0 : t->strides[own];
        if (repeated && !expand)
            sizes.dims[d] = 1;
    }
    return eg__operand(t, sizes, strides, 0);
}

eg_tensor eg__operand_slice(const eg_tensor *t, int dim, int64_t start, int64_t length, int64_t step)
{
    eg_tensor operand = eg__operand(t, t->shape, t->strides, start * t->strides[dim]);
    operand.shape.dims[dim] = length;
    operand.strides[dim] *= step;
    return operand;
}

eg_tensor eg__operand_rows(const eg_tensor *t, int64_t rows, int64_t columns)
{
    if (t->shape.ndim == 2)
        return eg__operand(t, t->shape, t->strides, 0);
    return eg__operand(t, EG_SHAPE(rows, columns), (const int64_t[]){columns, 1}, 0);
}

eg_tensor eg__operand_transpose(const eg_tensor *t)
{
    eg_tensor operand = eg__operand(t, t->shape, t->strides, 0);
    int row = t->shape.ndim - 2, col = t->shape.ndim - 1;
    operand.shape.dims[row] = t->shape.dims[col];
    operand.shape.dims[col] = t->shape.dims[row];
    operand.strides[row] = t->strides[col];
    operand.strides[col] = t->strides[row];
    return operand;
}

eg_tensor eg__operand_some_rows(const eg_tensor *t, int64_t first, int64_t rows)
{
    int64_t columns = t->shape.dims[t->shape.ndim - 1];
    return eg__operand(t, EG_SHAPE(rows, columns), (const int64_t[]){columns, 1}, first * columns);
}

eg_tensor *eg__with_rows(eg_tensor *t)
{
    if (t->shape.ndim == 2 || eg__is_row_major(t))
        return eg_tensor_keep(t);
    eg_tensor *ordered = eg__tensor_new(t->ctx, t->dtype, t->shape, EG_LAYOUT_ROW_MAJOR);
    if (ordered && eg__kernels(t->ctx, t->dtype)->copy(t, ordered) != EG_OK) {
        eg_tensor_release(ordered);
        return NULL;
    }
    return ordered;
}

/* Walks both shapes from the last dimension: a run of old dimensions that lie evenly in memory can be cut anew, but no
 * new dimension may reach over the border of two runs. */
bool eg__view_strides(eg_shape from, const int64_t *old, eg_shape to, int64_t *strides)
{
    int next = to.ndim - 1, d = from.ndim - 1;
    while (d >= 0 && from.dims[d] == 1) /* sizes of 1 lie anywhere */
        d--;
    while (d >= 0) {
        int64_t unit = old[d], run = 1;
        for (;; d--) {
            if (d >= 0 && from.dims[d] == 1)
                continue;
            if (d < 0 || old[d] != unit * run)
                break;
            run *= from.dims[d];
        }
        int64_t covered = 1;
        while (next >= 0 && (covered < run || to.dims[next] == 1)) {
            strides[next] = unit * covered;
            covered *= to.dims[next--];
        }
        if (covered != run)
            return false;
    }
    while (next >= 0)
        strides[next--] = 1;
    return true;
}

eg_status eg__grad_reduced(eg_op_grad *grad, size_t i, eg_tensor *dy, double factor)
{
    eg_shape shape = grad->in_spec[i].shape;
    if (eg_shape_equal(dy->shape, shape) && factor == 1.0)
        return eg_op_grad_pass(grad, i, dy);
    eg_tensor *dx = eg_op_grad_new(grad, i);
    if (!dx)
        return eg__pending();
    const eg_kernels *k = eg__kernels(grad->ctx, dy->dtype);
    if (eg_shape_equal(dy->shape, shape))
        return k->unary(EG__AFFINE, factor, 0.0, dy, dx);
    eg_tensor reduced = eg__operand_broadcast(dx, dy->shape, false);
    EG_TRY(k->reduce(EG__SUM, dy, &reduced, NULL));
    return factor == 1.0 ? EG_OK : k->scale(1, &dx, factor);
}
