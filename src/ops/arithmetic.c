/*
 * ops/arithmetic.c - add, sub, mul and div with broadcasting; affine; add_n.
 */
#include "ops/internal.h"

/* ---- two operands ---- */

eg_status eg__binary_infer(const eg_op_call *call, eg_spec *out)
{
    const eg_tensor *a = call->in[0], *b = call->in[1];
    EG_TRY(eg__check_input(call, 0, "first operand"));
    EG_TRY(eg__check_input(call, 1, "second operand"));
    eg_shape shape;
    EG_TRY(eg__broadcast(a->shape, b->shape, &shape));
    EG_TRY(eg__spec_set(out, eg_shape_equal(b->shape, shape) && !eg_shape_equal(a->shape, shape) ? b : a, shape));
    out->dtype = a->dtype == EG_BF16 ? a->dtype : b->dtype; /* where they differ, one of them is an activation */
    return EG_OK;
}

eg_status eg__binary_run(eg_context *ctx, eg__binary kind, const eg_tensor *a, const eg_tensor *b, eg_tensor *y)
{
    eg_tensor left = eg__operand_broadcast(a, y->shape, false), right = eg__operand_broadcast(b, y->shape, false);
    return eg__kernels(ctx, y->dtype)->binary(kind, &left, &right, y);
}

static eg_status add_forward(eg_op_call *call)
{
    return eg__binary_run(call->ctx, EG__ADD, call->in[0], call->in[1], call->out[0]);
}

static eg_status add_backward(eg_op_grad *grad)
{
    for (size_t i = 0; i < 2; i++)
        if (grad->needs_grad[i])
            EG_TRY(eg__grad_reduced(grad, i, grad->grad_out[0], 1.0));
    return EG_OK;
}

static eg_status sub_forward(eg_op_call *call)
{
    return eg__binary_run(call->ctx, EG__SUB, call->in[0], call->in[1], call->out[0]);
}

static eg_status sub_backward(eg_op_grad *grad)
{
    for (size_t i = 0; i < 2; i++)
        if (grad->needs_grad[i])
            EG_TRY(eg__grad_reduced(grad, i, grad->grad_out[0], i == 0 ? 1.0 : -1.0));
    return EG_OK;
}

eg_status eg__grad_binary(eg_op_grad *grad, size_t i, eg__binary kind, const eg_tensor *dy, const eg_tensor *by,
                          double factor)
{
    if (eg_shape_equal(grad->in_spec[i].shape, dy->shape)) {
        eg_tensor *dx = eg_op_grad_new(grad, i);
        if (!dx)
            return eg__pending();
        EG_TRY(eg__binary_run(grad->ctx, kind, dy, by, dx));
        return factor == 1.0 ? EG_OK : eg__kernels(grad->ctx, dx->dtype)->scale(1, &dx, factor);
    }
    eg_tensor *product = eg__tensor_new(grad->ctx, dy->dtype, dy->shape, eg__layout_of(dy));
    if (!product)
        return eg__pending();
    eg_status status = eg__binary_run(grad->ctx, kind, dy, by, product);
    if (status == EG_OK)
        status = eg__grad_reduced(grad, i, product, factor);
    eg_tensor_release(product);
    return status;
}

static eg_status mul_forward(eg_op_call *call)
{
    EG_TRY(eg__binary_run(call->ctx, EG__MUL, call->in[0], call->in[1], call->out[0]));
    if (call->needs_grad[0])
        EG_TRY(eg_op_save(call, call->in[1]));
    return call->needs_grad[1] ? eg_op_save(call, call->in[0]) : EG_OK;
}

static eg_status mul_backward(eg_op_grad *grad)
{
    const eg_tensor *dy = grad->grad_out[0];
    size_t next = 0;
    for (size_t i = 0; i < 2; i++)
        if (grad->needs_grad[i])
            EG_TRY(eg__grad_binary(grad, i, EG__MUL, dy, grad->saved[next++], 1.0));
    return EG_OK;
}

static eg_status div_forward(eg_op_call *call)
{
    EG_TRY(eg__binary_run(call->ctx, EG__DIV, call->in[0], call->in[1], call->out[0]));
    if (call->needs_grad[0] || call->needs_grad[1])
        EG_TRY(eg_op_save(call, call->in[1]));
    return call->needs_grad[1] ? eg_op_save(call, call->out[0]) : EG_OK;
}

/* d(a / b)/da = 1 / b, d(a / b)/db = -y / b */
static eg_status div_backward(eg_op_grad *grad)
{
    const eg_tensor *dy = grad->grad_out[0], *b = grad->saved[0];
    if (grad->needs_grad[0])
        EG_TRY(eg__grad_binary(grad, 0, EG__DIV, dy, b, 1.0));
    if (!grad->needs_grad[1])
        return EG_OK;
    eg_tensor *product = eg__tensor_new(grad->ctx, dy->dtype, dy->shape, eg__layout_of(dy));
    if (!product)
        return eg__pending();
    eg_status status = eg__binary_run(grad->ctx, EG__MUL, dy, grad->saved[1], product);
    if (status == EG_OK)
        status = eg__grad_binary(grad, 1, EG__DIV, product, b, -1.0);
    eg_tensor_release(product);
    return status;
}

#define BINARY_OP(record)                                                                                              \
    const eg_op eg__op_##record = {                                                                                    \
        .struct_size = sizeof(eg_op),                                                                                  \
        .name = #record,                                                                                               \
        .infer = eg__binary_infer,                                                                                     \
        .forward = record##_forward,                                                                                   \
        .backward = record##_backward,                                                                                 \
    };
BINARY_OP(add)
BINARY_OP(sub)
BINARY_OP(mul)
BINARY_OP(div)

eg_tensor *eg_add(eg_tensor *a, eg_tensor *b)
{
    if (a && b && eg_is_none(a))
        return b;
    if (a && b && eg_is_none(b))
        return a;
    return eg_apply(&eg__op_add, (eg_tensor *const[]){a, b}, 2, NULL);
}

eg_tensor *eg_sub(eg_tensor *a, eg_tensor *b)
{
    return eg_apply(&eg__op_sub, (eg_tensor *const[]){a, b}, 2, NULL);
}

eg_tensor *eg_mul(eg_tensor *a, eg_tensor *b)
{
    return eg_apply(&eg__op_mul, (eg_tensor *const[]){a, b}, 2, NULL);
}

eg_tensor *eg_div(eg_tensor *a, eg_tensor *b)
{
    return eg_apply(&eg__op_div, (eg_tensor *const[]){a, b}, 2, NULL);
}

/* ---- affine: x * a + b for plain numbers ---- */

static eg_status affine_infer(const eg_op_call *call, eg_spec *out)
{
    EG_TRY(eg__check_input(call, 0, "input"));
    return eg__spec_set(out, call->in[0], call->in[0]->shape);
}

static eg_status affine_forward(eg_op_call *call)
{
    const eg__unary_attrs *attrs = call->attrs;
    return eg__kernels(call->ctx, call->in[0]->dtype)->unary(EG__AFFINE, attrs->a, attrs->b, call->in[0], call->out[0]);
}

static eg_status affine_backward(eg_op_grad *grad)
{
    return eg__grad_reduced(grad, 0, grad->grad_out[0], ((const eg__unary_attrs *)grad->attrs)->a);
}

const eg_op eg__op_affine = {
    .struct_size = sizeof(eg_op),
    .name = "affine",
    .attrs_size = sizeof(eg__unary_attrs),
    .infer = affine_infer,
    .forward = affine_forward,
    .backward = affine_backward,
};

eg_tensor *eg_affine(eg_tensor *a, double factor, double offset)
{
    return eg_apply(&eg__op_affine, &a, 1, &(eg__unary_attrs){.kind = EG__AFFINE, .a = factor, .b = offset});
}

eg_tensor *eg_neg(eg_tensor *a)
{
    return eg_affine(a, -1.0, 0.0);
}

/* ---- sum of several ---- */

static eg_status add_n_infer(const eg_op_call *call, eg_spec *out)
{
    for (size_t i = 0; i < call->n_in; i++) {
        EG_TRY(eg__check_input(call, i, "term"));
        EG_CHECK(eg_shape_equal(call->in[i]->shape, call->in[0]->shape), EG_ESHAPE,
                 "term %zu has shape %s, expected %s as the first", i, EG__TEXT(call->in[i]->shape),
                 EG__TEXT(call->in[0]->shape));
    }
    return eg__spec_set(out, call->in[0], call->in[0]->shape);
}

static eg_status add_n_forward(eg_op_call *call)
{
    return eg__kernels(call->ctx, call->in[0]->dtype)
        ->weighted_sum(call->n_in, (const eg_tensor *const *)call->in, NULL, call->out[0]);
}

static eg_status add_n_backward(eg_op_grad *grad)
{
    for (size_t i = 0; i < grad->n_in; i++)
        if (grad->needs_grad[i])
            EG_TRY(eg_op_grad_pass(grad, i, grad->grad_out[0]));
    return EG_OK;
}

const eg_op eg__op_add_n = {
    .struct_size = sizeof(eg_op),
    .name = "add_n",
    .infer = add_n_infer,
    .forward = add_n_forward,
    .backward = add_n_backward,
};

eg_tensor *eg_add_n(eg_tensor *const *x, size_t n)
{
    size_t kept;
    eg_tensor **terms = eg__present(&eg__op_add_n, x, n, &kept);
    if (!terms)
        return NULL;
    eg_tensor *sum = kept == 0 ? eg_none : kept == 1 ? terms[0] : eg_apply(&eg__op_add_n, terms, kept, NULL);
    eg_free(terms);
    return sum;
}
