/*
 * ops/indexing.c - along one dimension: gather, index_select, one_hot, topk, cumsum.
 */
#include "ops/internal.h"

/* ---- gather and index_select; inputs: x, index ---- */

static eg_status gather_infer(const eg_op_call *call, eg_spec *out)
{
    const eg_tensor *x = call->in[0], *index = call->in[1];
    int dim = ((const eg__dim_attrs *)call->attrs)->dim;
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__check_dim(dim, x->shape));
    dim = eg__wrap_dim(dim, x->shape.ndim);
    EG_TRY(eg__check_index(index, "index", x->shape.dims[dim]));
    bool fits = index->shape.ndim == x->shape.ndim;
    for (int d = 0; fits && d < x->shape.ndim; d++)
        fits = d == dim || index->shape.dims[d] <= x->shape.dims[d];
    EG_CHECK(fits, EG_ESHAPE, "index %s does not fit into input %s along the other dimensions than %d",
             EG__TEXT(index->shape), EG__TEXT(x->shape), dim);
    return eg__spec_set(out, x, index->shape);
}

static eg_status index_select_infer(const eg_op_call *call, eg_spec *out)
{
    const eg_tensor *x = call->in[0], *index = call->in[1];
    int dim = ((const eg__dim_attrs *)call->attrs)->dim;
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__check_dim(dim, x->shape));
    dim = eg__wrap_dim(dim, x->shape.ndim);
    EG_TRY(eg__check_index(index, "index", x->shape.dims[dim]));
    EG_TRY(eg__check_ndim(index, "index", 1, "(n)"));
    eg_shape shape = x->shape;
    shape.dims[dim] = index->shape.dims[0];
    return eg__spec_set(out, x, shape);
}

/* The index as the kernels want it: of the result's sizes, a vector repeated along all other dimensions. */
static eg_tensor index_operand(const eg_tensor *index, eg_shape shape, int dim)
{
    if (index->shape.ndim == shape.ndim)
        return eg__operand(index, shape, index->strides, 0);
    int64_t strides[EG_MAX_DIMS] = {0};
    strides[dim] = index->strides[0];
    return eg__operand(index, shape, strides, 0);
}

static eg_status gather_forward(eg_op_call *call)
{
    eg_tensor *x = call->in[0], *y = call->out[0];
    int dim = eg__wrap_dim(((const eg__dim_attrs *)call->attrs)->dim, x->shape.ndim);
    eg_tensor index = index_operand(call->in[1], y->shape, dim);
    EG_TRY(eg__kernels(call->ctx, x->dtype)->gather(dim, x, &index, y));
    return call->needs_grad[0] ? eg_op_save(call, call->in[1]) : EG_OK;
}

/* grad_in[0] = dy where the index says, added where it says so twice, 0 elsewhere */
static eg_status scatter(eg_op_grad *grad, int dim)
{
    eg_tensor *dx = eg_op_grad_new(grad, 0), *dy = grad->grad_out[0];
    if (!dx)
        return eg__pending();
    const eg_kernels *k = eg__kernels(grad->ctx, dx->dtype);
    dim = eg__wrap_dim(dim, dx->shape.ndim);
    eg_tensor index = index_operand(grad->saved[0], dy->shape, dim);
    EG_TRY(k->fill(dx, 0.0));
    return k->scatter_add(dim, &index, dy, dx);
}

static eg_status gather_backward(eg_op_grad *grad)
{
    return scatter(grad, ((const eg__dim_attrs *)grad->attrs)->dim);
}

#define GATHER_OP(record)                                                                                              \
    const eg_op eg__op_##record = {                                                                                    \
        .struct_size = sizeof(eg_op),                                                                                  \
        .name = #record,                                                                                               \
        .attrs_size = sizeof(eg__dim_attrs),                                                                           \
        .infer = record##_infer,                                                                                       \
        .forward = gather_forward,                                                                                     \
        .backward = gather_backward,                                                                                   \
    };                                                                                                                 \
    eg_tensor *eg_##record(eg_tensor *x, int dim, eg_tensor *index)                                                    \
    {                                                                                                                  \
        return eg_apply(&eg__op_##record, (eg_tensor *const[]){x, index}, 2, &(eg__dim_attrs){.dim = dim});            \
    }
GATHER_OP(gather)
GATHER_OP(index_select)

/* ---- one_hot ---- */

static eg_status one_hot_infer(const eg_op_call *call, eg_spec *out)
{
    const eg_tensor *index = call->in[0];
    int64_t classes = ((const eg__one_hot_attrs *)call->attrs)->classes;
    EG_CHECK(classes >= 1, EG_EINVAL, "number of classes is %lld, expected 1 or more", (long long)classes);
    EG_TRY(eg__check_index(index, "class", classes));
    EG_CHECK(index->shape.ndim < EG_MAX_DIMS, EG_ESHAPE, "classes %s have %d dimensions, expected at most %d",
             EG__TEXT(index->shape), index->shape.ndim, EG_MAX_DIMS - 1);
    eg_shape shape = index->shape;
    shape.dims[shape.ndim++] = classes;
    EG_TRY(eg__spec_set(out, index, shape));
    out->dtype = EG_F32;
    return EG_OK;
}

static eg_status one_hot_forward(eg_op_call *call)
{
    eg_tensor *y = call->out[0];
    const eg_kernels *k = eg__kernels(call->ctx, y->dtype);
    int64_t nowhere[EG_MAX_DIMS] = {0};
    int dim = y->shape.ndim - 1;
    eg_shape shape = y->shape;
    shape.dims[dim] = 1;
    eg__borrowed one;
    eg_tensor ones = eg__operand(eg__borrow(&one, y, EG_F32, &(float){1.0F}), shape, nowhere, 0);
    eg_tensor index = eg__operand(call->in[0], shape, call->in[0]->strides, 0);
    EG_TRY(k->fill(y, 0.0));
    return k->scatter_add(dim, &index, &ones, y);
}

const eg_op eg__op_one_hot = {
    .struct_size = sizeof(eg_op),
    .name = "one_hot",
    .attrs_size = sizeof(eg__one_hot_attrs),
    .infer = one_hot_infer,
    .forward = one_hot_forward,
};

eg_tensor *eg_f_one_hot(eg_tensor *index, int64_t num_classes)
{
    return eg_apply(&eg__op_one_hot, &index, 1, &(eg__one_hot_attrs){.classes = num_classes});
}

/* ---- topk; outputs: values, index ---- */

static eg_status topk_infer(const eg_op_call *call, eg_spec *out)
{
    const eg__topk_attrs *attrs = call->attrs;
    eg_shape shape = call->in[0]->shape;
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__check_dim(attrs->dim, shape));
    int64_t *size = &shape.dims[eg__wrap_dim(attrs->dim, shape.ndim)];
    EG_CHECK(attrs->k >= 1 && attrs->k <= *size, EG_EINVAL, "k is %lld, expected 1 to %lld as dimension %d has",
             (long long)attrs->k, (long long)*size, attrs->dim);
    *size = attrs->k;
    EG_TRY(eg__spec_set(out, call->in[0], shape));
    out[1] = out[0];
    out[1].dtype = EG_I64;
    return EG_OK;
}

static eg_status topk_forward(eg_op_call *call)
{
    const eg__topk_attrs *attrs = call->attrs;
    eg_tensor *x = call->in[0];
    int dim = eg__wrap_dim(attrs->dim, x->shape.ndim);
    EG_TRY(eg__kernels(call->ctx, x->dtype)->topk(dim, attrs->largest, x, call->out[0], call->out[1]));
    return call->needs_grad[0] ? eg_op_save(call, call->out[1]) : EG_OK;
}

static eg_status topk_backward(eg_op_grad *grad)
{
    return scatter(grad, ((const eg__topk_attrs *)grad->attrs)->dim);
}

const eg_op eg__op_topk = {
    .struct_size = sizeof(eg_op),
    .name = "topk",
    .attrs_size = sizeof(eg__topk_attrs),
    .n_out = 2,
    .infer = topk_infer,
    .forward = topk_forward,
    .backward = topk_backward,
};

eg_tensor *eg_topk(eg_tensor *x, int64_t k, int dim, bool largest)
{
    return eg_apply(&eg__op_topk, &x, 1, &(eg__topk_attrs){.k = k, .dim = dim, .largest = largest});
}

/* ---- cumsum ---- */

static eg_status cumsum_infer(const eg_op_call *call, eg_spec *out)
{
    EG_TRY(eg__check_input(call, 0, "input"));
    EG_TRY(eg__check_dim(((const eg__dim_attrs *)call->attrs)->dim, call->in[0]->shape));
    return eg__spec_set(out, call->in[0], call->in[0]->shape);
}

static eg_status cumsum_forward(eg_op_call *call)
{
    eg_tensor *x = call->in[0];
    int dim = eg__wrap_dim(((const eg__dim_attrs *)call->attrs)->dim, x->shape.ndim);
    return eg__kernels(call->ctx, x->dtype)->cumsum(dim, false, x, call->out[0]);
}

static eg_status cumsum_backward(eg_op_grad *grad)
{
    eg_tensor *dx = eg_op_grad_new(grad, 0);
    if (!dx)
        return eg__pending();
    int dim = eg__wrap_dim(((const eg__dim_attrs *)grad->attrs)->dim, dx->shape.ndim);
    return eg__kernels(grad->ctx, dx->dtype)->cumsum(dim, true, grad->grad_out[0], dx);
}

const eg_op eg__op_cumsum = {
    .struct_size = sizeof(eg_op),
    .name = "cumsum",
    .attrs_size = sizeof(eg__dim_attrs),
    .infer = cumsum_infer,
    .forward = cumsum_forward,
    .backward = cumsum_backward,
};

eg_tensor *eg_cumsum(eg_tensor *x, int dim)
{
    return eg_apply(&eg__op_cumsum, &x, 1, &(eg__dim_attrs){.dim = dim});
}
