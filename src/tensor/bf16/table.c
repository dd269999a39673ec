/*
 * tensor/bf16/table.c - kernels of operands that may be bfloat16: those are widened to float32, the float32 kernel
 * runs, and what it wrote is rounded. An operand that is float32 goes in as it is, so that what has none of bfloat16 is
 * a plain call.
 */
#include "tensor/kernels.h"

#include <string.h>

enum { FEW = 12 }; /* operands for which no memory is taken */

typedef struct stand_in {
    eg_tensor *own, *wide; /* wide is to be written to own, where there is own */
} stand_in;

/* One call. */
typedef struct mixed {
    const eg_kernels *k; /* of float32 */
    eg_status status;
    stand_in few[FEW], *more;
    size_t n;
    void *lists[2]; /* owned */
    size_t n_lists;
} mixed;

/* A float32 tensor in place of t. Its numbers are gone when the call ends, so nobody is to keep packed copies. */
static eg_tensor *stand_in_for(mixed *m, const eg_tensor *t, bool read, bool written, bool rounded)
{
    eg_tensor *wide = m->status == EG_OK ? eg__tensor_new_like_as(t, EG_F32) : NULL;
    if (!wide) {
        m->status = eg_error_last()->code;
        return NULL;
    }
    stand_in *s = m->more ? &m->more[m->n++] : &m->few[m->n++];
    *s = (stand_in){.own = written ? (eg_tensor *)(uintptr_t)t : NULL, .wide = wide};
    wide->storage->id = 0;
    for (int d = 0; d < t->shape.ndim; d++) /* a single number may serve many places */
        if (t->shape.dims[d] == 1 && t->strides[d] == 0)
            wide->strides[d] = 0;
    if (read)
        m->status = eg__bf16_copy(t, wide, rounded);
    return wide;
}

static eg_tensor *widened(mixed *m, const eg_tensor *t, bool read, bool written)
{
    if (t && !m->k)
        m->k = eg__kernels_of_f32(t->ctx);
    return t && t->dtype == EG_BF16 ? stand_in_for(m, t, read, written, false) : (eg_tensor *)(uintptr_t)t;
}

/* The factors of a product: where one is bfloat16, the other is rounded to it. */
static void widen_factors(mixed *m, const eg_tensor **a, const eg_tensor **b)
{
    const eg_tensor **t[] = {a, b};
    bool narrow = (*a)->dtype == EG_BF16 || (*b)->dtype == EG_BF16;
    m->k = eg__kernels_of_f32((*a)->ctx);
    for (size_t i = 0; narrow && i < EG_COUNT(t); i++)
        *t[i] = stand_in_for(m, *t[i], true, false, true);
}

/* A list of n tensors, any of which may be NULL. */
static eg_tensor *const *widened_list(mixed *m, eg_tensor *const *t, size_t n, bool read, bool written)
{
    if (!t)
        return NULL;
    size_t narrow = 0;
    for (size_t i = 0; i < n; i++) {
        narrow += t[i] && t[i]->dtype == EG_BF16;
        if (t[i] && !m->k)
            m->k = eg__kernels_of_f32(t[i]->ctx);
    }
    if (narrow == 0)
        return t;
    size_t room = m->n + narrow + FEW;
    eg_tensor **list = m->lists[m->n_lists++] = eg__calloc(n, sizeof *list);
    stand_in *more = eg__calloc(room, sizeof *more);
    if (!list || !more) {
        eg_free(more);
        m->status = EG_ENOMEM;
        return NULL;
    }
    memcpy(more, m->more ? m->more : m->few, m->n * sizeof *more);
    eg_free(m->more);
    m->more = more;
    for (size_t i = 0; i < n; i++)
        list[i] = widened(m, t[i], read, written);
    return list;
}

static eg_status finish(mixed *m, eg_status status)
{
    for (size_t i = 0; i < m->n; i++) {
        const stand_in *s = m->more ? &m->more[i] : &m->few[i];
        if (s->own && status == EG_OK)
            status = eg__bf16_copy(s->wide, s->own, false);
        eg_tensor_release(s->wide);
    }
    for (size_t i = 0; i < m->n_lists; i++)
        eg_free(m->lists[i]);
    eg_free(m->more);
    return status;
}

/* ENTRY(name, (parameters), operands, arguments): the kernel of that name. Operands are what may be bfloat16, by what
 * the kernel does with them. */
#define ENTRY(kernel, parameters, operands, ...)                                                                       \
    static eg_status kernel parameters                                                                                 \
    {                                                                                                                  \
        mixed m = {.status = EG_OK};                                                                                   \
        operands;                                                                                                      \
        return finish(&m, m.status == EG_OK ? m.k->kernel(__VA_ARGS__) : m.status);                                    \
    }
#define IN(t) t = widened(&m, t, true, false)
#define OUT(t) t = widened(&m, t, false, true)
#define CHANGED(t) t = widened(&m, t, true, true)
#define ADDED(t) t = widened(&m, t, add, true)
#define FACTORS(a, b) widen_factors(&m, &(a), &(b))
#define LIST(t) t = widened_list(&m, t, n, true, false)
#define LIST_IN(t) t = (const eg_tensor *const *)widened_list(&m, (eg_tensor *const *)(uintptr_t)(t), n, true, false)
#define LIST_OUT(t) t = widened_list(&m, t, n, false, true)
#define LIST_CHANGED(t) t = widened_list(&m, t, n, true, true)

/* ---- convolutions and products ---- */

ENTRY(conv2d, (const eg__window *win, const eg_tensor *x, const eg_tensor *w, const eg_tensor *b, eg_tensor *y),
      (FACTORS(x, w), IN(b), OUT(y)), win, x, w, b, y)
ENTRY(conv2d_backward_input, (const eg__window *win, const eg_tensor *w, const eg_tensor *dy, eg_tensor *dx, bool add),
      (FACTORS(w, dy), ADDED(dx)), win, w, dy, dx, add)
ENTRY(conv2d_backward_weight,
      (const eg__window *win, const eg_tensor *x, const eg_tensor *dy, eg_tensor *dw, eg_tensor *db),
      (IN(x), IN(dy), OUT(dw), OUT(db)), win, x, dy, dw, db)
ENTRY(matmul, (const eg_tensor *a, const eg_tensor *b, const eg_tensor *bias, eg_tensor *y),
      (FACTORS(a, b), IN(bias), OUT(y)), a, b, bias, y)

/* ---- layers ---- */

ENTRY(embedding, (const eg_tensor *index, const eg_tensor *weight, eg_tensor *y), (IN(weight), OUT(y)), index, weight,
      y)
ENTRY(embedding_backward, (int64_t padding, const eg_tensor *index, const eg_tensor *dy, eg_tensor *dweight),
      (IN(dy), OUT(dweight)), padding, index, dy, dweight)
ENTRY(rnn_step,
      (eg__rnn kind, const eg_tensor *recurrent, eg_tensor *gates, const eg_tensor *before, eg_tensor *cell,
       eg_tensor *h),
      (IN(recurrent), CHANGED(gates), IN(before), OUT(cell), OUT(h)), kind, recurrent, gates, before, cell, h)
ENTRY(rnn_step_backward,
      (eg__rnn kind, const eg_tensor *gates, const eg_tensor *before, const eg_tensor *cell, const eg_tensor *dy,
       const eg_tensor *through, eg_tensor *carry, eg_tensor *dgates, eg_tensor *drecurrent),
      (IN(gates), IN(before), IN(cell), IN(dy), IN(through), CHANGED(carry), OUT(dgates), OUT(drecurrent)), kind, gates,
      before, cell, dy, through, carry, dgates, drecurrent)
ENTRY(batch_norm,
      (const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *beta, eg_tensor *mean,
       eg_tensor *var, eg_tensor *y, eg_tensor **workspace),
      (IN(x), OUT(y)), bn, x, gamma, beta, mean, var, y, workspace)
ENTRY(batch_norm_eval,
      (const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *beta,
       const eg_tensor *mean, const eg_tensor *var, eg_tensor *y),
      (IN(x), OUT(y)), bn, x, gamma, beta, mean, var, y)
ENTRY(batch_norm_backward,
      (const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *beta,
       const eg_tensor *mean, const eg_tensor *var, const eg_tensor *workspace, const eg_tensor *dy, eg_tensor *dx,
       eg_tensor *dgamma, eg_tensor *dbeta),
      (IN(x), IN(dy), OUT(dx)), bn, x, gamma, beta, mean, var, workspace, dy, dx, dgamma, dbeta)
ENTRY(batch_norm_eval_backward,
      (const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *beta,
       const eg_tensor *mean, const eg_tensor *var, const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma,
       eg_tensor *dbeta),
      (IN(x), IN(dy), OUT(dx)), bn, x, gamma, beta, mean, var, dy, dx, dgamma, dbeta)
ENTRY(group_norm,
      (const eg__group_norm *gn, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *beta, eg_tensor *mean,
       eg_tensor *rstd, eg_tensor *y),
      (IN(x), OUT(y)), gn, x, gamma, beta, mean, rstd, y)
ENTRY(group_norm_backward,
      (const eg__group_norm *gn, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *mean,
       const eg_tensor *rstd, const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma, eg_tensor *dbeta),
      (IN(x), IN(dy), OUT(dx)), gn, x, gamma, mean, rstd, dy, dx, dgamma, dbeta)
ENTRY(max_pool2d, (const eg__window *win, const eg_tensor *x, eg_tensor *y, eg_tensor **workspace), (IN(x), OUT(y)),
      win, x, y, workspace)
ENTRY(max_pool2d_backward,
      (const eg__window *win, const eg_tensor *workspace, const eg_tensor *dy, eg_tensor *dx, bool add),
      (IN(dy), ADDED(dx)), win, workspace, dy, dx, add)
ENTRY(avg_pool2d, (const eg__window *win, const eg_tensor *x, eg_tensor *y), (IN(x), OUT(y)), win, x, y)
ENTRY(avg_pool2d_backward, (const eg__window *win, const eg_tensor *dy, eg_tensor *dx, bool add), (IN(dy), ADDED(dx)),
      win, dy, dx, add)
ENTRY(adaptive_avg_pool2d, (const eg_tensor *x, eg_tensor *y), (IN(x), OUT(y)), x, y)
ENTRY(adaptive_avg_pool2d_backward, (const eg_tensor *dy, eg_tensor *dx), (IN(dy), OUT(dx)), dy, dx)
ENTRY(interpolate, (const eg__interpolate *ip, const eg_tensor *x, eg_tensor *y), (IN(x), OUT(y)), ip, x, y)
ENTRY(interpolate_backward, (const eg__interpolate *ip, const eg_tensor *dy, eg_tensor *dx), (IN(dy), OUT(dx)), ip, dy,
      dx)

/* ---- numbers one by one, and along dimensions ---- */

ENTRY(unary, (eg__unary kind, double a, double b, const eg_tensor *x, eg_tensor *y), (IN(x), OUT(y)), kind, a, b, x, y)
ENTRY(unary_backward,
      (eg__unary kind, double a, double b, const eg_tensor *saved, const eg_tensor *dy, eg_tensor *dx, bool add),
      (IN(saved), IN(dy), ADDED(dx)), kind, a, b, saved, dy, dx, add)
ENTRY(binary, (eg__binary kind, const eg_tensor *a, const eg_tensor *b, eg_tensor *y), (IN(a), IN(b), OUT(y)), kind, a,
      b, y)
ENTRY(reduce, (eg__reduction kind, const eg_tensor *x, eg_tensor *y, eg_tensor *index), (IN(x), OUT(y)), kind, x, y,
      index)
ENTRY(gather, (int dim, const eg_tensor *x, const eg_tensor *index, eg_tensor *y), (IN(x), OUT(y)), dim, x, index, y)
ENTRY(scatter_add, (int dim, const eg_tensor *index, const eg_tensor *dy, eg_tensor *dx), (IN(dy), CHANGED(dx)), dim,
      index, dy, dx)
ENTRY(cumsum, (int dim, bool reverse, const eg_tensor *x, eg_tensor *y), (IN(x), OUT(y)), dim, reverse, x, y)
ENTRY(topk, (int dim, bool largest, const eg_tensor *x, eg_tensor *values, eg_tensor *index), (IN(x), OUT(values)), dim,
      largest, x, values, index)
ENTRY(softmax, (int dim, bool log, const eg_tensor *x, eg_tensor *y), (IN(x), OUT(y)), dim, log, x, y)
ENTRY(softmax_backward, (int dim, bool log, const eg_tensor *y, const eg_tensor *dy, eg_tensor *dx),
      (IN(y), IN(dy), OUT(dx)), dim, log, y, dy, dx)
ENTRY(masked_softmax, (double scale, bool causal, const eg_tensor *mask, eg_tensor *x), (IN(mask), CHANGED(x)), scale,
      causal, mask, x)
ENTRY(weighted_sum, (size_t n, const eg_tensor *const *x, const eg_tensor *w, eg_tensor *y),
      (LIST_IN(x), IN(w), OUT(y)), n, x, w, y)
ENTRY(weighted_sum_backward,
      (size_t n, const eg_tensor *const *x, const eg_tensor *w, const eg_tensor *dy, eg_tensor *const *dx,
       eg_tensor *dw),
      (LIST_IN(x), LIST_OUT(dx), IN(w), IN(dy), OUT(dw)), n, x, w, dy, dx, dw)
ENTRY(accumulate, (const eg_tensor *x, eg_tensor *y), (IN(x), CHANGED(y)), x, y)
ENTRY(fill, (eg_tensor * y, double value), (OUT(y)), y, value)
ENTRY(cross_entropy,
      (double smoothing, const eg_tensor *logits, const eg_tensor *target, eg_tensor *probability, eg_tensor *loss),
      (IN(logits), IN(target), OUT(probability), OUT(loss)), smoothing, logits, target, probability, loss)
ENTRY(cross_entropy_backward,
      (double smoothing, const eg_tensor *probability, const eg_tensor *target, const eg_tensor *dloss,
       eg_tensor *dlogits),
      (IN(probability), IN(target), IN(dloss), OUT(dlogits)), smoothing, probability, target, dloss, dlogits)

static eg_status norm_add(const eg__norm_term *given, const eg_tensor *sum, eg_tensor *y)
{
    mixed m = {.status = EG_OK};
    eg__norm_term term = *given;
    (IN(term.x), IN(sum), OUT(y));
    return finish(&m, m.status == EG_OK ? m.k->norm_add(&term, sum, y) : m.status);
}

static eg_status norm_add_backward(const eg__norm_term *given, const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma,
                                   eg_tensor *dbeta, double *dweight)
{
    mixed m = {.status = EG_OK};
    eg__norm_term term = *given;
    (IN(term.x), IN(dy), OUT(dx));
    return finish(&m, m.status == EG_OK ? m.k->norm_add_backward(&term, dy, dx, dgamma, dbeta, dweight) : m.status);
}

static eg_status copy(const eg_tensor *x, eg_tensor *y)
{
    bool narrow = x->dtype == EG_BF16 || y->dtype == EG_BF16, wide = x->dtype == EG_F32 || y->dtype == EG_F32;
    if (narrow && (wide || x->dtype == y->dtype))
        return eg__bf16_copy(x, y, false);
    return (narrow ? &eg__ref_kernels : eg__kernels_of_f32(y->ctx))->copy(x, y);
}

/* ---- parameters, of which none is bfloat16; and lists of anything ---- */

ENTRY(sgd, (const eg__sgd *o, size_t n, eg_tensor *const *p, eg_tensor *const *grad, eg_tensor *const *buf),
      (LIST_CHANGED(p)), o, n, p, grad, buf)
ENTRY(adam,
      (const eg__adam *o, size_t n, eg_tensor *const *p, eg_tensor *const *grad, eg_tensor *const *m_,
       eg_tensor *const *v),
      (LIST_CHANGED(p)), o, n, p, grad, m_, v)
ENTRY(norm2, (size_t n, eg_tensor *const *t, double *sum), (LIST(t)), n, t, sum)
ENTRY(scale, (size_t n, eg_tensor *const *t, double factor), (LIST_CHANGED(t)), n, t, factor)

/* ---- the tables ---- */

#define SHARED                                                                                                         \
    .embedding = embedding, .embedding_backward = embedding_backward, .rnn_step = rnn_step,                            \
    .rnn_step_backward = rnn_step_backward, .batch_norm = batch_norm, .batch_norm_eval = batch_norm_eval,              \
    .batch_norm_backward = batch_norm_backward, .batch_norm_eval_backward = batch_norm_eval_backward,                  \
    .group_norm = group_norm, .group_norm_backward = group_norm_backward, .max_pool2d = max_pool2d,                    \
    .max_pool2d_backward = max_pool2d_backward, .avg_pool2d = avg_pool2d, .avg_pool2d_backward = avg_pool2d_backward,  \
    .adaptive_avg_pool2d = adaptive_avg_pool2d, .adaptive_avg_pool2d_backward = adaptive_avg_pool2d_backward,          \
    .interpolate = interpolate, .interpolate_backward = interpolate_backward, .unary = unary,                          \
    .unary_backward = unary_backward, .binary = binary, .reduce = reduce, .gather = gather,                            \
    .scatter_add = scatter_add, .cumsum = cumsum, .topk = topk, .softmax = softmax,                                    \
    .softmax_backward = softmax_backward, .masked_softmax = masked_softmax, .weighted_sum = weighted_sum,              \
    .weighted_sum_backward = weighted_sum_backward, .norm_add = norm_add, .norm_add_backward = norm_add_backward,      \
    .copy = copy, .accumulate = accumulate, .fill = fill, .cross_entropy = cross_entropy,                              \
    .cross_entropy_backward = cross_entropy_backward, .sgd = sgd, .adam = adam, .norm2 = norm2, .scale = scale

const eg_kernels eg__mixed_kernels = {.name = "mixed",
                                      .conv2d = conv2d,
                                      .conv2d_backward_input = conv2d_backward_input,
                                      .conv2d_backward_weight = conv2d_backward_weight,
                                      .matmul = matmul,
                                      SHARED};

const eg_kernels eg__native_kernels = {.name = "native",
                                       .conv2d = eg__dnnl_conv2d,
                                       .conv2d_backward_input = eg__dnnl_conv2d_backward_input,
                                       .conv2d_backward_weight = eg__dnnl_conv2d_backward_weight,
                                       .matmul = eg__dnnl_matmul_bf16,
                                       SHARED};
