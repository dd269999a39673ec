/*
 * tensor/ref/norm_sum.c - the weighted sum of normalized terms, one step after the other as one would write it down.
 */
#include "tensor/ref/ref.h"

/* Entry i of a vector as a vector of one. */
static eg_tensor entry(const eg_tensor *v, size_t i)
{
    eg_tensor one = *v;
    one.shape.dims[0] = 1;
    one.offset += (int64_t)i * v->strides[0];
    return one;
}

eg_status eg__ref_norm_sum(double eps, size_t n, const eg__norm_term *terms, const eg_tensor *w, eg_tensor *y)
{
    const eg_kernels *k = &eg__ref_kernels;
    const eg__batch_norm bn = {.eps = eps};
    eg_tensor *term = eg__tensor_new_like(y);
    eg_status status = term ? k->fill(y, 0) : EG_ENOMEM;
    for (size_t i = 0; i < n && status == EG_OK; i++) {
        const eg__norm_term *t = &terms[i];
        const eg_tensor *normalized = t->mean ? term : t->x, weight = entry(w, i);
        if (t->mean)
            status = k->batch_norm(&bn, t->x, t->gamma, t->beta, t->mean, t->var, term, NULL);
        if (status == EG_OK)
            status = k->weighted_sum(1, &normalized, &weight, term);
        if (status == EG_OK)
            status = k->accumulate(term, y);
    }
    eg_tensor_release(term);
    return status;
}

/* `spare` is two tensors like dy. */
static eg_status back_term(double eps, const eg__norm_term *t, const eg_tensor *weight, const eg_tensor *dy,
                           const eg__norm_term_grad *grad, eg_tensor *dw, eg_tensor *const spare[2])
{
    const eg_kernels *k = &eg__ref_kernels;
    const eg__batch_norm bn = {.eps = eps};
    eg_tensor *dterm = spare[0], *const none = NULL;
    if (dw) {
        const eg_tensor *normalized = t->mean ? spare[1] : t->x;
        if (t->mean)
            EG_TRY(k->batch_norm_eval(&bn, t->x, t->gamma, t->beta, t->mean, t->var, spare[1]));
        EG_TRY(k->weighted_sum_backward(1, &normalized, weight, dy, &none, dw));
    }
    EG_TRY(k->weighted_sum_backward(1, NULL, weight, dy, &dterm, NULL));
    if (!t->mean)
        return grad->dx ? k->copy(dterm, grad->dx) : EG_OK;
    EG_TRY(k->batch_norm_backward(&bn, t->x, t->gamma, t->beta, t->mean, t->var, NULL, dterm, spare[1], grad->dgamma,
                                  grad->dbeta));
    return grad->dx ? k->copy(spare[1], grad->dx) : EG_OK;
}

eg_status eg__ref_norm_sum_backward(double eps, size_t n, const eg__norm_term *terms, const eg_tensor *w,
                                    const eg_tensor *dy, const eg__norm_term_grad *grads, eg_tensor *dw)
{
    eg_tensor *spare[2] = {eg__tensor_new_like(dy), eg__tensor_new_like(dy)};
    eg_status status = spare[0] && spare[1] ? EG_OK : EG_ENOMEM;
    for (size_t i = 0; i < n && status == EG_OK; i++) {
        eg_tensor weight = entry(w, i), dweight = dw ? entry(dw, i) : (eg_tensor){0};
        status = back_term(eps, &terms[i], &weight, dy, &grads[i], dw ? &dweight : NULL, spare);
    }
    eg_tensor_release(spare[0]);
    eg_tensor_release(spare[1]);
    return status;
}
