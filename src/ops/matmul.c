/*
 * ops/matmul.c - products of matrices and of batches of them, after the rules of torch.matmul.
 *
 * Both operands are brought to the batch sizes of the result by strides of 0. Where the second one is a single matrix
 * for the whole batch, the rows of all first ones are as good as those of one matrix, and one product does.
 */
#include "ops/internal.h"

static bool is_vector(const eg_shape *shape)
{
    return shape->ndim == 1;
}

/* Size of the batch dimension that stands d places (3, 4, ..) from the end; 1 where there is none. */
static int64_t batch_size(const eg_shape *shape, int d)
{
    return d <= shape->ndim ? shape->dims[shape->ndim - d] : 1;
}

static int64_t inner_of(const eg_shape *b)
{
    return b->dims[EG_MAX(b->ndim - 2, 0)];
}

/* (.., m, n), with m = 1 or n = 1 for a vector. Sizes that do not fit are the caller's to refuse. */
static eg_shape whole_shape(const eg_shape *a, const eg_shape *b)
{
    eg_shape whole = {.ndim = EG_MAX(EG_MAX(a->ndim, b->ndim), 2)};
    for (int d = 3; d <= whole.ndim; d++) {
        int64_t of_a = batch_size(a, d), of_b = batch_size(b, d);
        whole.dims[whole.ndim - d] = of_a == 1 ? of_b : of_a;
    }
    whole.dims[whole.ndim - 2] = is_vector(a) ? 1 : a->dims[a->ndim - 2];
    whole.dims[whole.ndim - 1] = is_vector(b) ? 1 : b->dims[b->ndim - 1];
    return whole;
}

static eg_status matmul_infer(const eg_op_call *call, eg_spec *out)
{
    const eg_shape *a = &call->in[0]->shape, *b = &call->in[1]->shape;
    EG_TRY(eg__check_input(call, 0, "first matrix"));
    EG_TRY(eg__check_input(call, 1, "second matrix"));
    EG_CHECK(a->ndim >= 1, EG_ESHAPE, "first matrix is a single number, expected (.., m, k) or (k)");
    EG_CHECK(b->ndim >= 1, EG_ESHAPE, "second matrix is a single number, expected (.., k, n) or (k)");
    EG_CHECK(a->dims[a->ndim - 1] == inner_of(b), EG_ESHAPE, "first matrix has %lld columns, second has %lld rows",
             (long long)a->dims[a->ndim - 1], (long long)inner_of(b));
    eg_shape whole = whole_shape(a, b), shape = {.ndim = 0};
    for (int d = 3; d <= whole.ndim; d++) {
        int64_t size = whole.dims[whole.ndim - d], of_b = batch_size(b, d);
        EG_CHECK(of_b == size || of_b == 1, EG_ESHAPE, "batches of %s and %s do not broadcast", EG__TEXT(*a),
                 EG__TEXT(*b));
    }
    for (int d = 0; d < whole.ndim; d++)
        if (!(d == whole.ndim - 2 && is_vector(a)) && !(d == whole.ndim - 1 && is_vector(b)))
            shape.dims[shape.ndim++] = whole.dims[d];
    EG_TRY(eg__spec_set(out, call->in[0], shape));
    out->layout = EG_LAYOUT_ROW_MAJOR;
    return EG_OK;
}

/* An input as (.., rows, columns); `vector`: the stride of the dimension that it lacks is 0. */
static eg_tensor as_matrices(const eg_tensor *t, const eg_shape *whole, bool first)
{
    eg_tensor matrix = eg__operand(t, t->shape, t->strides, 0);
    if (is_vector(&t->shape)) {
        int64_t n = t->shape.dims[0], step = t->strides[0];
        matrix = first ? eg__operand(t, EG_SHAPE(1, n), (const int64_t[]){n * step, step}, 0)
                       : eg__operand(t, EG_SHAPE(n, 1), (const int64_t[]){step, 1}, 0);
    }
    eg_shape shape = *whole;
    for (int d = 1; d <= 2; d++)
        shape.dims[shape.ndim - d] = matrix.shape.dims[matrix.shape.ndim - d];
    return eg__operand_broadcast(&matrix, shape, true);
}

/* The result, or its gradient, as (.., m, n). */
static eg_tensor as_whole(const eg_tensor *y, const eg_shape *whole, bool a_vector, bool b_vector)
{
    int64_t strides[EG_MAX_DIMS] = {0};
    for (int d = 0, own = 0; d < whole->ndim; d++) {
        bool absent = (d == whole->ndim - 2 && a_vector) || (d == whole->ndim - 1 && b_vector);
        strides[d] = absent ? 1 : y->strides[own++];
    }
    return eg__operand(y, *whole, strides, 0);
}

/* The rows of all matrices as those of one; false where they do not lie evenly. */
static bool join_rows(eg_tensor *t)
{
    int64_t columns = t->shape.dims[t->shape.ndim - 1], strides[EG_MAX_DIMS] = {0};
    eg_shape shape = EG_SHAPE(eg_shape_numel(t->shape) / columns, columns);
    if (!eg__view_strides(t->shape, t->strides, shape, strides))
        return false;
    *t = eg__operand(t, shape, strides, 0);
    return true;
}

/* One matrix for the whole batch, as (rows, columns). */
static eg_tensor only_matrix(const eg_tensor *t)
{
    int d = t->shape.ndim - 2;
    return eg__operand(t, EG_SHAPE(t->shape.dims[d], t->shape.dims[d + 1]), t->strides + d, 0);
}

static bool has_batch(const eg_shape *shape)
{
    for (int d = 3; d <= shape->ndim; d++)
        if (batch_size(shape, d) > 1)
            return true;
    return false;
}

/* y = a b; b_shape: of b before it was broadcast */
static eg_status product(const eg_tensor *a, const eg_tensor *b, const eg_shape *b_shape, eg_tensor *y)
{
    const eg_kernels *k = eg__kernels(y->ctx, y->dtype);
    eg_tensor a_rows = *a, y_rows = *y, only = only_matrix(b);
    if (!has_batch(b_shape) && join_rows(&a_rows) && join_rows(&y_rows))
        return k->matmul(&a_rows, &only, NULL, &y_rows);
    return k->matmul(a, b, NULL, y);
}

static eg_status matmul_forward(eg_op_call *call)
{
    eg_tensor *a = call->in[0], *b = call->in[1];
    eg_shape whole = whole_shape(&a->shape, &b->shape);
    eg_tensor left = as_matrices(a, &whole, true), right = as_matrices(b, &whole, false);
    eg_tensor y = as_whole(call->out[0], &whole, is_vector(&a->shape), is_vector(&b->shape));
    EG_TRY(product(&left, &right, &b->shape, &y));
    if (call->needs_grad[0])
        EG_TRY(eg_op_save(call, b));
    if (call->needs_grad[1])
        EG_TRY(eg_op_save(call, a));
    return EG_OK;
}

/* grad_in[i] = x z, (.., rows, columns), summed over the dimensions along which input i was broadcast; z_shape: of z
 * before broadcasting. */
static eg_status input_gradient(eg_op_grad *grad, size_t i, const eg_tensor *x, const eg_tensor *z,
                                const eg_shape *z_shape)
{
    const eg_spec *spec = &grad->in_spec[i];
    eg_tensor *d = eg__tensor_new(grad->ctx, spec->dtype, spec->shape, EG_LAYOUT_ROW_MAJOR), *each = NULL;
    if (!d)
        return eg__pending();
    eg_status status = eg_op_grad_pass(grad, i, d);
    eg_shape whole = x->shape;
    whole.dims[whole.ndim - 1] = z->shape.dims[whole.ndim - 1];
    eg_tensor result = as_matrices(d, &whole, i == 0);
    if (status == EG_OK && eg_shape_numel(whole) == eg_shape_numel(spec->shape)) {
        status = product(x, z, z_shape, &result);
    } else if (status == EG_OK) {
        each = eg__tensor_new(grad->ctx, spec->dtype, whole, EG_LAYOUT_ROW_MAJOR);
        status = each ? product(x, z, z_shape, each) : eg__pending();
        for (int n = 0; n < whole.ndim; n++)
            result.shape.dims[n] = result.strides[n] == 0 ? 1 : result.shape.dims[n];
        if (status == EG_OK)
            status = eg__kernels(grad->ctx, spec->dtype)->reduce(EG__SUM, each, &result, NULL);
    }
    eg_tensor_release(each);
    eg_tensor_release(d);
    return status;
}

static eg_status matmul_backward(eg_op_grad *grad)
{
    const eg_shape *a_shape = &grad->in_spec[0].shape, *b_shape = &grad->in_spec[1].shape;
    eg_shape whole = whole_shape(a_shape, b_shape);
    eg_tensor dy = as_whole(grad->grad_out[0], &whole, is_vector(a_shape), is_vector(b_shape));
    size_t next = 0;
    if (grad->needs_grad[0]) {
        eg_tensor b = as_matrices(grad->saved[next++], &whole, false), b_transposed = eg__operand_transpose(&b);
        EG_TRY(input_gradient(grad, 0, &dy, &b_transposed, b_shape));
    }
    if (!grad->needs_grad[1])
        return EG_OK;
    eg_tensor a = as_matrices(grad->saved[next], &whole, true), a_rows = a, dy_rows = dy;
    if (!has_batch(b_shape) && join_rows(&a_rows) && join_rows(&dy_rows)) { /* the product sums over the batch */
        a = a_rows;
        dy = dy_rows;
    }
    eg_tensor a_transposed = eg__operand_transpose(&a);
    return input_gradient(grad, 1, &a_transposed, &dy, &whole);
}

static uint64_t matmul_macs(const eg_op_call *call)
{
    const eg_shape *a = &call->in[0]->shape;
    eg_shape whole = whole_shape(a, &call->in[1]->shape);
    return eg__mul_saturated((uint64_t)eg_shape_numel(whole), (uint64_t)a->dims[a->ndim - 1]);
}

const eg_op eg__op_matmul = {
    .struct_size = sizeof(eg_op),
    .name = "matmul",
    .infer = matmul_infer,
    .forward = matmul_forward,
    .backward = matmul_backward,
    .macs = matmul_macs,
};

eg_tensor *eg_matmul(eg_tensor *a, eg_tensor *b)
{
    return eg_apply(&eg__op_matmul, (eg_tensor *const[]){a, b}, 2, NULL);
}
