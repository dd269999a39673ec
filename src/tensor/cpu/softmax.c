/*
 * tensor/cpu/softmax.c - softmax over one dimension, and cross entropy.
 *
 * Both work on contiguous lines of numbers. Where the dimension lies otherwise in memory (channels of a row-major
 * tensor, say) the tensors are copied into an order that has it innermost.
 */
#include "tensor/cpu/cpu.h"
#include "tensor/cpu/vmath.h"

#include <string.h>

/* ---- one line ---- */

EG__CLONES static float line_max(const float *x, int64_t n)
{
    float m = x[0];
    for (int64_t i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

/* y = exp(x - shift), y may be x; returns the sum. */
EG__CLONES static float line_exp(float *y, const float *x, float shift, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        float e = eg__expf(x[i] - shift);
        y[i] = e;
        sum += e;
    }
    return sum;
}

EG__CLONES static float line_exp_sum(const float *x, float shift, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += eg__expf(x[i] - shift);
    return sum;
}

EG__CLONES static void line_softmax(float *y, const float *x, int64_t n)
{
    float scale = 1.0f / line_exp(y, x, line_max(x, n), n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] *= scale;
}

EG__CLONES static void line_log_softmax(float *y, const float *x, int64_t n)
{
    float shift = line_max(x, n), norm = logf(line_exp_sum(x, shift, n));
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - shift) - norm;
}

EG__CLONES static void line_softmax_backward(float *dx, const float *y, const float *dy, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += dy[i] * y[i];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] = y[i] * (dy[i] - sum);
}

EG__CLONES static void line_log_softmax_backward(float *dx, const float *y, const float *dy, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += dy[i];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] = dy[i] - eg__expf(y[i]) * sum;
}

/* ---- all lines ---- */

typedef struct softmax_work {
    int dim;
    bool log;
    const eg_tensor *x, *dy; /* backward: x is forward's output; forward: dy is NULL */
    eg_tensor *out;
} softmax_work;

static void softmax_lines(void *arg, int64_t begin, int64_t end)
{
    const softmax_work *w = arg;
    int64_t n = w->x->shape.dims[w->dim];
    for (int64_t i = begin; i < end; i++) {
        const float *x = eg__f32(w->x) + eg__line_at(w->x, w->dim, i);
        const float *dy = w->dy ? eg__f32(w->dy) + eg__line_at(w->dy, w->dim, i) : NULL;
        float *out = eg__f32(w->out) + eg__line_at(w->out, w->dim, i);
        if (dy)
            (w->log ? line_log_softmax_backward : line_softmax_backward)(out, x, dy, n);
        else
            (w->log ? line_log_softmax : line_softmax)(out, x, n);
    }
}

static eg_status softmax_any(int dim, bool logarithm, const eg_tensor *x, const eg_tensor *dy, eg_tensor *out)
{
    int64_t numel = eg_shape_numel(x->shape);
    if (numel == 0)
        return EG_OK;
    eg_tensor *owned[3] = {NULL, NULL, NULL};
    eg_status status = EG_ENOMEM;
    softmax_work w = {.dim = dim, .log = logarithm};
    w.x = eg__with_lines(x, dim, true, &owned[0]);
    w.dy = dy ? eg__with_lines(dy, dim, true, &owned[1]) : NULL;
    w.out = eg__with_lines(out, dim, false, &owned[2]);
    if (w.x && w.out && (w.dy || !dy)) {
        eg__for_each(x->ctx, numel / x->shape.dims[dim], numel * 4, softmax_lines, &w);
        status = w.out == out ? EG_OK : eg__cpu_copy(w.out, out);
    }
    for (int i = 0; i < 3; i++)
        eg_tensor_release(owned[i]);
    return status;
}

eg_status eg__cpu_softmax(int dim, bool logarithm, const eg_tensor *x, eg_tensor *y)
{
    return softmax_any(dim, logarithm, x, NULL, y);
}

eg_status eg__cpu_softmax_backward(int dim, bool logarithm, const eg_tensor *y, const eg_tensor *dy, eg_tensor *dx)
{
    return softmax_any(dim, logarithm, y, dy, dx);
}

/* ---- attention: scaled and masked, in place ---- */

typedef struct masked_work {
    float scale;
    bool causal;
    const eg_tensor *mask;
    eg_tensor *x;
} masked_work;

EG__CLONES static void line_scale(float *x, float scale, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale;
}

EG__CLONES static void line_scale_add(float *restrict x, float scale, const float *restrict mask, int64_t step,
                                      int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] * scale + mask[i * step];
}

static void line_mask(float *x, float scale, const eg_tensor *mask, int64_t line, int64_t n)
{
    int dim = mask->shape.ndim - 1;
    int64_t step = mask->strides[dim], first = eg__line_at(mask, dim, line);
    if (mask->dtype == EG_F32) {
        line_scale_add(x, scale, eg__f32(mask) + first, step, n);
        return;
    }
    const uint8_t *kept = (const uint8_t *)eg__data(mask) + first;
    for (int64_t i = 0; i < n; i++)
        x[i] = kept[i * step] ? x[i] * scale : -INFINITY;
}

static void masked_lines(void *arg, int64_t begin, int64_t end)
{
    const masked_work *w = arg;
    int dim = w->x->shape.ndim - 1;
    int64_t rows = w->x->shape.dims[dim - 1], n = w->x->shape.dims[dim];
    for (int64_t i = begin; i < end; i++) {
        float *x = eg__f32(w->x) + eg__line_at(w->x, dim, i);
        int64_t kept = w->causal ? EG_MIN(n, i % rows + 1) : n;
        if (w->mask)
            line_mask(x, w->scale, w->mask, i, kept);
        else
            line_scale(x, w->scale, kept);
        if (line_max(x, kept) == -INFINITY)
            kept = 0;
        else
            line_softmax(x, x, kept);
        memset(x + kept, 0, (size_t)(n - kept) * sizeof(float));
    }
}

eg_status eg__cpu_masked_softmax(double scale, bool causal, const eg_tensor *mask, eg_tensor *x)
{
    int64_t numel = eg_shape_numel(x->shape);
    int dim = x->shape.ndim - 1;
    if (numel == 0 || !eg__has_lines(x, dim))
        return eg__ref_kernels.masked_softmax(scale, causal, mask, x);
    masked_work w = {(float)scale, causal, mask, x};
    eg__for_each(x->ctx, numel / x->shape.dims[dim], numel * 4, masked_lines, &w);
    return EG_OK;
}

/* ---- cross entropy of rows: labels, or probabilities of unit stride ---- */

typedef struct loss_work {
    double smoothing;
    const eg_tensor *logits, *target, *dloss;
    eg_tensor *probability, *loss, *dlogits;
} loss_work;

static float *row_at(const eg_tensor *t, int64_t n)
{
    return eg__f32(t) + n * t->strides[0];
}
static int64_t label_at(const eg_tensor *target, int64_t n)
{
    return eg__i64(target)[n * target->strides[0]];
}

/* Sum of want[c] (norm - logits[c]), want = (1 - smoothing) target + smoothing / classes. A class that is not wanted at
 * all costs nothing, even at a logit of minus infinity. */
static double row_loss(const loss_work *w, int64_t n, const float *logits, int64_t classes, double norm)
{
    double even = w->smoothing / (double)classes, keep = 1.0 - w->smoothing, loss = 0;
    if (w->target->dtype == EG_I64) {
        loss = keep * (norm - (double)logits[label_at(w->target, n)]);
        for (int64_t c = 0; even != 0 && c < classes; c++)
            loss += even * (norm - (double)logits[c]);
        return loss;
    }
    const float *target = row_at(w->target, n);
    for (int64_t c = 0; c < classes; c++) {
        double want = keep * (double)target[c] + even;
        if (want != 0)
            loss += want * (norm - (double)logits[c]);
    }
    return loss;
}

static void loss_rows(void *arg, int64_t begin, int64_t end)
{
    const loss_work *w = arg;
    int64_t classes = w->logits->shape.dims[1];
    for (int64_t n = begin; n < end; n++) {
        const float *logits = row_at(w->logits, n);
        float *p = row_at(w->probability, n), shift = line_max(logits, classes);
        float sum = line_exp(p, logits, shift, classes);
        eg__f32(w->loss)[n * w->loss->strides[0]] =
            (float)row_loss(w, n, logits, classes, (double)shift + log((double)sum));
        for (int64_t c = 0; c < classes; c++)
            p[c] /= sum;
    }
}

static void loss_backward_rows(void *arg, int64_t begin, int64_t end)
{
    const loss_work *w = arg;
    int64_t classes = w->probability->shape.dims[1];
    bool labels = w->target->dtype == EG_I64;
    float even = (float)(w->smoothing / (double)classes), keep = (float)(1.0 - w->smoothing);
    for (int64_t n = begin; n < end; n++) {
        const float *p = row_at(w->probability, n), *target = labels ? NULL : row_at(w->target, n);
        float *dx = row_at(w->dlogits, n), d = eg__f32(w->dloss)[n * w->dloss->strides[0]];
        double total = labels ? 1.0 : 0.0; /* given probabilities need not sum to 1 */
        for (int64_t c = 0; !labels && c < classes; c++)
            total += (double)keep * (double)target[c] + (double)even;
        for (int64_t c = 0; c < classes; c++)
            dx[c] = d * (p[c] * (float)total - (labels ? even : keep * target[c] + even));
        if (labels)
            dx[label_at(w->target, n)] -= d * keep;
    }
}

static bool plain_rows(const eg_tensor *a, const eg_tensor *b, const eg_tensor *target)
{
    return eg_shape_numel(a->shape) > 0 && eg__has_lines(a, 1) && eg__has_lines(b, 1) &&
           (target->dtype == EG_I64 || (target->dtype == EG_F32 && eg__has_lines(target, 1)));
}

eg_status eg__cpu_cross_entropy(double smoothing, const eg_tensor *logits, const eg_tensor *target,
                                eg_tensor *probability, eg_tensor *loss)
{
    if (!plain_rows(logits, probability, target))
        return eg__ref_kernels.cross_entropy(smoothing, logits, target, probability, loss);
    loss_work w = {
        .smoothing = smoothing, .logits = logits, .target = target, .probability = probability, .loss = loss};
    eg__for_each(logits->ctx, logits->shape.dims[0], eg_shape_numel(logits->shape) * 4, loss_rows, &w);
    return EG_OK;
}

eg_status eg__cpu_cross_entropy_backward(double smoothing, const eg_tensor *probability, const eg_tensor *target,
                                         const eg_tensor *dloss, eg_tensor *dlogits)
{
    if (!plain_rows(probability, dlogits, target))
        return eg__ref_kernels.cross_entropy_backward(smoothing, probability, target, dloss, dlogits);
    loss_work w = {.smoothing = smoothing,
                   .target = target,
                   .dloss = dloss,
                   .probability = (eg_tensor *)(uintptr_t)probability,
                   .dlogits = dlogits};
    eg__for_each(dlogits->ctx, dlogits->shape.dims[0], eg_shape_numel(dlogits->shape) * 2, loss_backward_rows, &w);
    return EG_OK;
}
