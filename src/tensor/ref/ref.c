/*
 * tensor/ref/ref.c - the reference table: hands each call to the kernels of its tensors' type.
 */
#include "tensor/ref/ref.h"

#define DISPATCH(tensor, kernel, ...)                                                                                  \
    switch ((tensor)->dtype) {                                                                                         \
    case EG_F32:                                                                                                       \
        return eg__ref_f32_kernels.kernel(__VA_ARGS__);                                                                \
    case EG_F64:                                                                                                       \
        return eg__ref_f64_kernels.kernel(__VA_ARGS__);                                                                \
    case EG_I64:                                                                                                       \
    case EG_U8:                                                                                                        \
    case EG_BF16:                                                                                                      \
        break;                                                                                                         \
    }                                                                                                                  \
    return eg_fail(EG_EDTYPE, "%s: expected float32 or float64, got %s", #kernel, eg_dtype_name((tensor)->dtype))

static eg_status conv2d(const eg__window *win, const eg_tensor *x, const eg_tensor *w, const eg_tensor *b, eg_tensor *y)
{
    DISPATCH(x, conv2d, win, x, w, b, y);
}

static eg_status conv2d_backward_input(const eg__window *win, const eg_tensor *w, const eg_tensor *dy, eg_tensor *dx,
                                       bool add)
{
    DISPATCH(dy, conv2d_backward_input, win, w, dy, dx, add);
}

static eg_status conv2d_backward_weight(const eg__window *win, const eg_tensor *x, const eg_tensor *dy, eg_tensor *dw,
                                        eg_tensor *db)
{
    DISPATCH(dy, conv2d_backward_weight, win, x, dy, dw, db);
}

static eg_status matmul(const eg_tensor *a, const eg_tensor *b, const eg_tensor *bias, eg_tensor *y)
{
    DISPATCH(a, matmul, a, b, bias, y);
}

static eg_status embedding(const eg_tensor *index, const eg_tensor *weight, eg_tensor *y)
{
    DISPATCH(y, embedding, index, weight, y);
}

static eg_status embedding_backward(int64_t padding, const eg_tensor *index, const eg_tensor *dy, eg_tensor *dweight)
{
    DISPATCH(dy, embedding_backward, padding, index, dy, dweight);
}

static eg_status rnn_step(eg__rnn kind, const eg_tensor *recurrent, eg_tensor *gates, const eg_tensor *before,
                          eg_tensor *cell, eg_tensor *h)
{
    DISPATCH(h, rnn_step, kind, recurrent, gates, before, cell, h);
}

static eg_status rnn_step_backward(eg__rnn kind, const eg_tensor *gates, const eg_tensor *before, const eg_tensor *cell,
                                   const eg_tensor *dy, const eg_tensor *through, eg_tensor *carry, eg_tensor *dgates,
                                   eg_tensor *drecurrent)
{
    DISPATCH(gates, rnn_step_backward, kind, gates, before, cell, dy, through, carry, dgates, drecurrent);
}

static eg_status batch_norm(const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *beta,
                            eg_tensor *mean, eg_tensor *var, eg_tensor *y, eg_tensor **workspace)
{
    DISPATCH(x, batch_norm, bn, x, gamma, beta, mean, var, y, workspace);
}

static eg_status batch_norm_eval(const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma,
                                 const eg_tensor *beta, const eg_tensor *mean, const eg_tensor *var, eg_tensor *y)
{
    DISPATCH(x, batch_norm_eval, bn, x, gamma, beta, mean, var, y);
}

static eg_status batch_norm_backward(const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma,
                                     const eg_tensor *beta, const eg_tensor *mean, const eg_tensor *var,
                                     const eg_tensor *workspace, const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma,
                                     eg_tensor *dbeta)
{
    DISPATCH(x, batch_norm_backward, bn, x, gamma, beta, mean, var, workspace, dy, dx, dgamma, dbeta);
}

static eg_status batch_norm_eval_backward(const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma,
                                          const eg_tensor *beta, const eg_tensor *mean, const eg_tensor *var,
                                          const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma, eg_tensor *dbeta)
{
    DISPATCH(x, batch_norm_eval_backward, bn, x, gamma, beta, mean, var, dy, dx, dgamma, dbeta);
}

static eg_status group_norm(const eg__group_norm *gn, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *beta,
                            eg_tensor *mean, eg_tensor *rstd, eg_tensor *y)
{
    DISPATCH(x, group_norm, gn, x, gamma, beta, mean, rstd, y);
}

static eg_status group_norm_backward(const eg__group_norm *gn, const eg_tensor *x, const eg_tensor *gamma,
                                     const eg_tensor *mean, const eg_tensor *rstd, const eg_tensor *dy, eg_tensor *dx,
                                     eg_tensor *dgamma, eg_tensor *dbeta)
{
    DISPATCH(x, group_norm_backward, gn, x, gamma, mean, rstd, dy, dx, dgamma, dbeta);
}

static eg_status max_pool2d(const eg__window *win, const eg_tensor *x, eg_tensor *y, eg_tensor **workspace)
{
    DISPATCH(x, max_pool2d, win, x, y, workspace);
}

static eg_status max_pool2d_backward(const eg__window *win, const eg_tensor *workspace, const eg_tensor *dy,
                                     eg_tensor *dx, bool add)
{
    DISPATCH(dy, max_pool2d_backward, win, workspace, dy, dx, add);
}

static eg_status avg_pool2d(const eg__window *win, const eg_tensor *x, eg_tensor *y)
{
    DISPATCH(x, avg_pool2d, win, x, y);
}

static eg_status avg_pool2d_backward(const eg__window *win, const eg_tensor *dy, eg_tensor *dx, bool add)
{
    DISPATCH(dy, avg_pool2d_backward, win, dy, dx, add);
}

static eg_status adaptive_avg_pool2d(const eg_tensor *x, eg_tensor *y)
{
    DISPATCH(x, adaptive_avg_pool2d, x, y);
}

static eg_status adaptive_avg_pool2d_backward(const eg_tensor *dy, eg_tensor *dx)
{
    DISPATCH(dy, adaptive_avg_pool2d_backward, dy, dx);
}

static eg_status interpolate(const eg__interpolate *ip, const eg_tensor *x, eg_tensor *y)
{
    DISPATCH(x, interpolate, ip, x, y);
}

static eg_status interpolate_backward(const eg__interpolate *ip, const eg_tensor *dy, eg_tensor *dx)
{
    DISPATCH(dy, interpolate_backward, ip, dy, dx);
}

static eg_status unary(eg__unary op, double a, double b, const eg_tensor *x, eg_tensor *y)
{
    DISPATCH(x, unary, op, a, b, x, y);
}

static eg_status unary_backward(eg__unary op, double a, double b, const eg_tensor *saved, const eg_tensor *dy,
                                eg_tensor *dx, bool add)
{
    DISPATCH(dy, unary_backward, op, a, b, saved, dy, dx, add);
}

static eg_status binary(eg__binary op, const eg_tensor *a, const eg_tensor *b, eg_tensor *y)
{
    DISPATCH(y, binary, op, a, b, y);
}

static eg_status reduce(eg__reduction op, const eg_tensor *x, eg_tensor *y, eg_tensor *index)
{
    DISPATCH(x, reduce, op, x, y, index);
}

static eg_status gather(int dim, const eg_tensor *x, const eg_tensor *index, eg_tensor *y)
{
    DISPATCH(x, gather, dim, x, index, y);
}

static eg_status scatter_add(int dim, const eg_tensor *index, const eg_tensor *dy, eg_tensor *dx)
{
    DISPATCH(dy, scatter_add, dim, index, dy, dx);
}

static eg_status cumsum(int dim, bool reverse, const eg_tensor *x, eg_tensor *y)
{
    DISPATCH(x, cumsum, dim, reverse, x, y);
}

static eg_status topk(int dim, bool largest, const eg_tensor *x, eg_tensor *values, eg_tensor *index)
{
    DISPATCH(x, topk, dim, largest, x, values, index);
}

static eg_status softmax(int dim, bool logarithm, const eg_tensor *x, eg_tensor *y)
{
    DISPATCH(x, softmax, dim, logarithm, x, y);
}

static eg_status softmax_backward(int dim, bool logarithm, const eg_tensor *y, const eg_tensor *dy, eg_tensor *dx)
{
    DISPATCH(dy, softmax_backward, dim, logarithm, y, dy, dx);
}

static eg_status masked_softmax(double scale_by, bool causal, const eg_tensor *mask, eg_tensor *x)
{
    DISPATCH(x, masked_softmax, scale_by, causal, mask, x);
}

static eg_status weighted_sum(size_t n, const eg_tensor *const *x, const eg_tensor *w, eg_tensor *y)
{
    DISPATCH(y, weighted_sum, n, x, w, y);
}

static eg_status weighted_sum_backward(size_t n, const eg_tensor *const *x, const eg_tensor *w, const eg_tensor *dy,
                                       eg_tensor *const *dx, eg_tensor *dw)
{
    DISPATCH(dy, weighted_sum_backward, n, x, w, dy, dx, dw);
}

static eg_status accumulate(const eg_tensor *x, eg_tensor *y)
{
    DISPATCH(y, accumulate, x, y);
}

static eg_status cross_entropy(double smoothing, const eg_tensor *logits, const eg_tensor *target,
                               eg_tensor *probability, eg_tensor *loss)
{
    DISPATCH(logits, cross_entropy, smoothing, logits, target, probability, loss);
}

static eg_status cross_entropy_backward(double smoothing, const eg_tensor *probability, const eg_tensor *target,
                                        const eg_tensor *dloss, eg_tensor *dlogits)
{
    DISPATCH(dloss, cross_entropy_backward, smoothing, probability, target, dloss, dlogits);
}

/* The tensors of one optimizer need not be of one type: the list kernels are called for one tensor at a time. */

static eg_status sgd_one(const eg__sgd *o, eg_tensor *p, eg_tensor *grad, eg_tensor *buf)
{
    DISPATCH(p, sgd, o, 1, &p, &grad, &buf);
}

static eg_status sgd(const eg__sgd *o, size_t n, eg_tensor *const *p, eg_tensor *const *grad, eg_tensor *const *buf)
{
    for (size_t k = 0; k < n; k++)
        EG_TRY(sgd_one(o, p[k], grad[k], buf ? buf[k] : NULL));
    return EG_OK;
}

static eg_status adam_one(const eg__adam *o, eg_tensor *p, eg_tensor *grad, eg_tensor *m, eg_tensor *v)
{
    DISPATCH(p, adam, o, 1, &p, &grad, &m, &v);
}

static eg_status adam(const eg__adam *o, size_t n, eg_tensor *const *p, eg_tensor *const *grad, eg_tensor *const *m,
                      eg_tensor *const *v)
{
    for (size_t k = 0; k < n; k++)
        EG_TRY(adam_one(o, p[k], grad[k], m[k], v[k]));
    return EG_OK;
}

static eg_status norm2_one(eg_tensor *t, double *sum)
{
    DISPATCH(t, norm2, 1, &t, sum);
}

static eg_status norm2(size_t n, eg_tensor *const *t, double *sum)
{
    *sum = 0;
    for (size_t k = 0; k < n; k++) {
        double one;
        EG_TRY(norm2_one(t[k], &one));
        *sum += one;
    }
    return EG_OK;
}

static eg_status scale_one(eg_tensor *t, double factor)
{
    DISPATCH(t, scale, 1, &t, factor);
}

static eg_status scale(size_t n, eg_tensor *const *t, double factor)
{
    for (size_t k = 0; k < n; k++)
        EG_TRY(scale_one(t[k], factor));
    return EG_OK;
}

const eg_kernels eg__ref_kernels = {
    .name = "ref",
    .conv2d = conv2d,
    .conv2d_backward_input = conv2d_backward_input,
    .conv2d_backward_weight = conv2d_backward_weight,
    .matmul = matmul,
    .embedding = embedding,
    .embedding_backward = embedding_backward,
    .rnn_step = rnn_step,
    .rnn_step_backward = rnn_step_backward,
    .batch_norm = batch_norm,
    .batch_norm_eval = batch_norm_eval,
    .batch_norm_backward = batch_norm_backward,
    .batch_norm_eval_backward = batch_norm_eval_backward,
    .group_norm = group_norm,
    .group_norm_backward = group_norm_backward,
    .max_pool2d = max_pool2d,
    .max_pool2d_backward = max_pool2d_backward,
    .avg_pool2d = avg_pool2d,
    .avg_pool2d_backward = avg_pool2d_backward,
    .adaptive_avg_pool2d = adaptive_avg_pool2d,
    .adaptive_avg_pool2d_backward = adaptive_avg_pool2d_backward,
    .interpolate = interpolate,
    .interpolate_backward = interpolate_backward,
    .unary = unary,
    .unary_backward = unary_backward,
    .binary = binary,
    .reduce = reduce,
    .gather = gather,
    .scatter_add = scatter_add,
    .cumsum = cumsum,
    .topk = topk,
    .softmax = softmax,
    .softmax_backward = softmax_backward,
    .masked_softmax = masked_softmax,
    .weighted_sum = weighted_sum,
    .weighted_sum_backward = weighted_sum_backward,
    .norm_add = eg__ref_norm_add,
    .norm_add_backward = eg__ref_norm_add_backward,
    .copy = eg__ref_copy,
    .accumulate = accumulate,
    .fill = eg__ref_fill,
    .cross_entropy = cross_entropy,
    .cross_entropy_backward = cross_entropy_backward,
    .sgd = sgd,
    .adam = adam,
    .norm2 = norm2,
    .scale = scale,
};
