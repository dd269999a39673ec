/*
 * tensor/cpu/optim.c - optimizer updates, each one pass over memory, and the loops of gradient clipping.
 *
 * A group's tensors count as one long line, so that many small parameters spread over the threads as one big one does.
 */
#include "tensor/cpu/cpu.h"

#include <math.h>

typedef struct group {
    size_t n;
    eg_tensor *const *t[4]; /* parameters, gradients, state, state; or NULL */
    void (*update)(const void *arg, float *const *data, int64_t n);
    const void *arg;
} group;

/* The part of the group that numbers begin .. end-1 of the line are. */
static void group_range(void *arg, int64_t begin, int64_t end)
{
    const group *g = arg;
    int64_t first = 0;
    for (size_t i = 0; i < g->n && first < end; i++) {
        int64_t n = eg_shape_numel(g->t[0][i]->shape);
        int64_t from = EG_MAX(begin - first, 0), to = EG_MIN(end - first, n);
        if (from < to) {
            float *data[4] = {NULL};
            for (int k = 0; k < 4; k++)
                data[k] = g->t[k] && g->t[k][i] ? eg__f32(g->t[k][i]) + from : NULL;
            g->update(g->arg, data, to - from);
        }
        first += n;
    }
}

/* Also says that the parameters changed, for packed copies of weights. */
static void group_run(group *g)
{
    int64_t total = 0;
    for (size_t i = 0; i < g->n; i++) {
        total += eg_shape_numel(g->t[0][i]->shape);
        g->t[0][i]->storage->version++;
    }
    if (total > 0)
        eg__for(g->t[0][0]->ctx, total, total, group_range, g);
}

/* ---- SGD ---- */

typedef struct sgd_factors {
    float lr, momentum, fresh, decay; /* fresh: of the gradient that enters the momentum buffer */
    bool nesterov;
} sgd_factors;

EG__CLONES static void sgd_plain(float *p, const float *grad, const sgd_factors *f, int64_t n)
{
    float lr = f->lr, decay = f->decay;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        p[i] -= lr * (grad[i] + decay * p[i]);
}

EG__CLONES static void sgd_momentum(float *p, const float *grad, float *buf, const sgd_factors *f, int64_t n)
{
    float lr = f->lr, decay = f->decay, momentum = f->momentum, fresh = f->fresh;
    /* step = direct d + through v, d the gradient and v the buffer */
    float direct = f->nesterov ? 1.0f : 0.0f, through = f->nesterov ? momentum : 1.0f;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = grad[i] + decay * p[i];
        float v = momentum * buf[i] + fresh * d;
        buf[i] = v;
        p[i] -= lr * (direct * d + through * v);
    }
}

EG__CLONES static void sgd_first(float *p, const float *grad, float *buf, const sgd_factors *f, int64_t n)
{
    float lr = f->lr, decay = f->decay, through = f->nesterov ? 1.0f + f->momentum : 1.0f;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = grad[i] + decay * p[i];
        buf[i] = d;
        p[i] -= lr * (through * d);
    }
}

static void sgd_update(const void *arg, float *const *data, int64_t n)
{
    const eg__sgd *o = arg;
    sgd_factors f = {(float)o->lr, (float)o->momentum, (float)(1.0 - o->dampening), (float)o->weight_decay,
                     o->nesterov};
    if (!data[2] || o->momentum == 0)
        sgd_plain(data[0], data[1], &f, n);
    else if (o->first) /* the buffer holds nothing yet, perhaps not even numbers */
        sgd_first(data[0], data[1], data[2], &f, n);
    else
        sgd_momentum(data[0], data[1], data[2], &f, n);
}

eg_status eg__cpu_sgd(const eg__sgd *o, size_t n, eg_tensor *const *p, eg_tensor *const *grad, eg_tensor *const *buf)
{
    group g = {.n = n, .t = {p, grad, buf, NULL}, .update = sgd_update, .arg = o};
    group_run(&g);
    return EG_OK;
}

/* ---- Adam ---- */

typedef struct adam_factors {
    float decay, shrink; /* added to the gradient; weights are multiplied by it (AdamW) */
    float beta1, beta2, new1, new2;
    float step, root, eps; /* p -= step m / (root sqrt(v) + eps) */
} adam_factors;

EG__CLONES static void adam_line(float *p, const float *grad, float *m, float *v, const adam_factors *f, int64_t n)
{
    float decay = f->decay, shrink = f->shrink, beta1 = f->beta1, beta2 = f->beta2, new1 = f->new1, new2 = f->new2;
    float step = f->step, root = f->root, eps = f->eps;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = grad[i] + decay * p[i];
        float mean = beta1 * m[i] + new1 * d, square = beta2 * v[i] + new2 * d * d;
        m[i] = mean;
        v[i] = square;
        p[i] = shrink * p[i] - step * mean / (root * sqrtf(square) + eps);
    }
}

static void adam_update(const void *arg, float *const *data, int64_t n)
{
    adam_line(data[0], data[1], data[2], data[3], arg, n);
}

eg_status eg__cpu_adam(const eg__adam *o, size_t n, eg_tensor *const *p, eg_tensor *const *grad, eg_tensor *const *m,
                       eg_tensor *const *v)
{
    double step = (double)o->step;
    adam_factors f = {
        .decay = o->decoupled ? 0.0f : (float)o->weight_decay,
        .shrink = o->decoupled ? (float)(1.0 - o->lr * o->weight_decay) : 1.0f,
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .new1 = (float)(1.0 - o->beta1),
        .new2 = (float)(1.0 - o->beta2),
        .step = (float)(o->lr / (1.0 - pow(o->beta1, step))),
        .root = (float)(1.0 / sqrt(1.0 - pow(o->beta2, step))),
        .eps = (float)o->eps,
    };
    group g = {.n = n, .t = {p, grad, m, v}, .update = adam_update, .arg = &f};
    group_run(&g);
    return EG_OK;
}

/* ---- clipping ---- */

static void scale_update(const void *arg, float *const *data, int64_t n)
{
    float factor = *(const float *)arg, *x = data[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

eg_status eg__cpu_scale(size_t n, eg_tensor *const *t, double factor)
{
    float number = (float)factor;
    group g = {.n = n, .t = {t, NULL, NULL, NULL}, .update = scale_update, .arg = &number};
    group_run(&g);
    return EG_OK;
}

EG__CLONES static double square_line(const float *x, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

typedef struct norm_work {
    const float *x;
    double *partial;
    int64_t numel;
} norm_work;

static void square_blocks(void *arg, int64_t begin, int64_t end)
{
    const norm_work *w = arg;
    for (int64_t b = begin; b < end; b++) {
        int64_t at = b * EG__SUM_BLOCK;
        w->partial[b] = square_line(w->x + at, EG_MIN(EG__SUM_BLOCK, w->numel - at));
    }
}

static eg_status square_large(const eg_tensor *t, int64_t numel, double *sum)
{
    int64_t blocks = (numel + EG__SUM_BLOCK - 1) / EG__SUM_BLOCK;
    size_t bytes = (size_t)blocks * sizeof(double);
    norm_work w = {.x = eg__f32(t), .partial = eg__pool_take(t->ctx, bytes), .numel = numel};
    if (!w.partial)
        return EG_ENOMEM;
    eg__for_each(t->ctx, blocks, numel, square_blocks, &w);
    for (int64_t b = 0; b < blocks; b++)
        *sum += w.partial[b];
    eg__pool_give(t->ctx, w.partial, bytes);
    return EG_OK;
}

eg_status eg__cpu_norm2(size_t n, eg_tensor *const *t, double *sum)
{
    *sum = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t numel = eg_shape_numel(t[i]->shape);
        if (numel <= EG__SUM_BLOCK)
            *sum += square_line(eg__f32(t[i]), numel);
        else
            EG_TRY(square_large(t[i], numel, sum));
    }
    return EG_OK;
}
