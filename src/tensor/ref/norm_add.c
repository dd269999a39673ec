/*
 * tensor/ref/norm_add.c - a normalized term of a sum, one step after the other as one would write it down.
 */
#include "tensor/ref/ref.h"

eg_status eg__ref_norm_add(const eg__norm_term *t, const eg_tensor *sum, eg_tensor *y)
{
    const eg_kernels *k = &eg__ref_kernels;
    const eg__batch_norm bn = {.eps = t->eps};
    eg_tensor *term = eg__tensor_new_like(y);
    if (!term)
        return EG_ENOMEM;
    eg_status status = k->batch_norm(&bn, t->x, t->gamma, t->beta, t->mean, t->var, term, NULL);
    if (status == EG_OK)
        status = k->scale(1, &term, t->weight);
    if (status == EG_OK)
        status = sum ? k->binary(EG__ADD, sum, term, y) : k->copy(term, y);
    eg_tensor_release(term);
    return status;
}

/* *sum = <a, b>; `spare` is a tensor like them, whose numbers are lost. */
static eg_status dot(const eg_tensor *a, const eg_tensor *b, eg_tensor *spare, double *sum)
{
    const eg_kernels *k = &eg__ref_kernels;
    eg_tensor *one = eg__tensor_new(a->ctx, a->dtype, EG_SHAPE(1), EG_LAYOUT_DEFAULT);
    if (!one)
        return EG_ENOMEM;
    eg_tensor total = *one;
    total.shape = a->shape;
    for (int d = 0; d < a->shape.ndim; d++) {
        total.shape.dims[d] = 1;
        total.strides[d] = 0;
    }
    eg_status status = k->binary(EG__MUL, a, b, spare);
    if (status == EG_OK)
        status = k->reduce(EG__SUM, spare, &total, NULL);
    if (status == EG_OK)
        *sum = a->dtype == EG_F64 ? *eg__f64(one) : (double)*eg__f32(one);
    eg_tensor_release(one);
    return status;
}

/* spare: two tensors like dy. */
static eg_status backward(const eg__norm_term *t, const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma,
                          eg_tensor *dbeta, double *dweight, eg_tensor *const spare[2])
{
    const eg_kernels *k = &eg__ref_kernels;
    const eg__batch_norm bn = {.eps = t->eps};
    eg_tensor *dterm = spare[0];
    EG_TRY(k->batch_norm_eval(&bn, t->x, t->gamma, t->beta, t->mean, t->var, spare[1]));
    EG_TRY(dot(spare[1], dy, spare[0], dweight));
    EG_TRY(k->copy(dy, dterm));
    EG_TRY(k->scale(1, &dterm, t->weight));
    EG_TRY(k->batch_norm_backward(&bn, t->x, t->gamma, t->beta, t->mean, t->var, NULL, dterm, spare[1], dgamma, dbeta));
    return dx ? k->copy(spare[1], dx) : EG_OK;
}

eg_status eg__ref_norm_add_backward(const eg__norm_term *t, const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma,
                                    eg_tensor *dbeta, double *dweight)
{
    eg_tensor *spare[2] = {eg__tensor_new_like(dy), eg__tensor_new_like(dy)};
    eg_status status = spare[0] && spare[1] ? backward(t, dy, dx, dgamma, dbeta, dweight, spare) : EG_ENOMEM;
    eg_tensor_release(spare[0]);
    eg_tensor_release(spare[1]);
    return status;
}
