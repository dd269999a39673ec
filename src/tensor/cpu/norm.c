/*
 * tensor/cpu/norm.c - batch normalization where channels are innermost in memory: rows of C numbers.
 * Loops run over long rows (rows.h). ReLU's mask in backward is recomputed from x by the same expression as in forward,
 * so no workspace is needed.
 */
#include "tensor/cpu/rows.h"

#include <math.h>
#include <string.h>

/* Per-channel factors, each repeated over a long row: y = (x - mean) * scale + shift. */
typedef struct norm_work {
    eg__rows rows;
    bool relu;
    const float *x, *dy;
    float *y;                    /* or dx */
    float *mean, *scale, *shift; /* [width] */
    float *back, *lift;          /* [width] backward: dx = scale dy - (x - mean) back - lift */
    float *partial;              /* [blocks][2][width] */
    void *memory;
    size_t bytes;
} norm_work;

static eg_status work_make(norm_work *w, const eg_tensor *x, bool sums)
{
    *w = (norm_work){.rows = eg__rows_of(x), .x = eg__f32(x)};
    int64_t width = w->rows.width;
    w->bytes = (size_t)(width * 5 + (sums ? w->rows.blocks * 2 * width : 0)) * sizeof(float);
    float *memory = w->memory = eg__pool_take(x->ctx, w->bytes);
    if (!memory)
        return EG_ENOMEM;
    w->mean = memory;
    w->scale = memory + width;
    w->shift = memory + 2 * width;
    w->back = memory + 3 * width;
    w->lift = memory + 4 * width;
    w->partial = memory + 5 * width;
    return EG_OK;
}

static void work_free(norm_work *w)
{
    if (w->memory)
        eg__pool_give(w->rows.ctx, w->memory, w->bytes);
}

/* ---- y ---- */

static inline float normalized(float x, float mean, float scale, float shift)
{
    return (x - mean) * scale + shift;
}

EG__CLONES static void normalize_rows(const norm_work *w, const float *x, float *y, int64_t n)
{
    const float *mean = w->mean, *scale = w->scale, *shift = w->shift;
    for (int64_t at = 0; at < n; at += w->rows.width) {
        int64_t left = EG_MIN(w->rows.width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            y[at + i] = normalized(x[at + i], mean[i], scale[i], shift[i]);
    }
}

EG__CLONES static void normalize_rows_relu(const norm_work *w, const float *x, float *y, int64_t n)
{
    const float *mean = w->mean, *scale = w->scale, *shift = w->shift;
    for (int64_t at = 0; at < n; at += w->rows.width) {
        int64_t left = EG_MIN(w->rows.width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++) {
            float v = normalized(x[at + i], mean[i], scale[i], shift[i]);
            y[at + i] = v < 0.0f ? 0.0f : v;
        }
    }
}

static void normalize_blocks(void *arg, int64_t begin, int64_t end)
{
    const norm_work *w = arg;
    int64_t from = begin * w->rows.block, rows = EG_MIN(end * w->rows.block, w->rows.n) - from;
    (w->relu ? normalize_rows_relu : normalize_rows)(w, w->x + from * w->rows.channels, w->y + from * w->rows.channels,
                                                     rows * w->rows.channels);
}

static void set_factors(norm_work *w, const eg__batch_norm *bn, const eg_tensor *gamma, const eg_tensor *beta,
                        const eg_tensor *mean, const eg_tensor *var)
{
    w->relu = bn->relu;
    for (int64_t c = 0; c < w->rows.channels; c++) {
        w->mean[c] = eg__channel_of(mean, c, 0);
        w->scale[c] = (float)((double)eg__channel_of(gamma, c, 1) / sqrt((double)eg__channel_of(var, c, 0) + bn->eps));
        w->shift[c] = eg__channel_of(beta, c, 0);
    }
    eg__rows_repeat(&w->rows, w->mean);
    eg__rows_repeat(&w->rows, w->scale);
    eg__rows_repeat(&w->rows, w->shift);
}

static const eg_tensor *to_rows(const eg_tensor *x, eg_tensor **owned)
{
    if (eg__in_rows(x))
        return x;
    *owned = eg__new_with_innermost(x, 1);
    return *owned && eg__cpu_copy(x, *owned) == EG_OK ? *owned : NULL;
}

/* `like` is in rows; y itself if it lies the same, else a new tensor for eg__out_finish(). */
static eg_tensor *out_like(const eg_tensor *like, eg_tensor *y, eg_tensor **owned)
{
    if (y && eg__same_strides(like, y))
        return y;
    return *owned = eg__tensor_new_like(like);
}

static eg_status forward(const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *beta,
                         eg_tensor *batch_mean, eg_tensor *batch_var, const eg_tensor *mean, const eg_tensor *var,
                         eg_tensor *y)
{
    if (batch_mean)
        EG_TRY(eg__cpu_batch_statistics(x, batch_mean, batch_var));
    norm_work w;
    EG_TRY(work_make(&w, x, false));
    int64_t numel = w.rows.n * w.rows.channels;
    w.y = eg__f32(y);
    set_factors(&w, bn, gamma, beta, mean, var);
    eg__for_each(x->ctx, w.rows.blocks, numel, normalize_blocks, &w);
    work_free(&w);
    return EG_OK;
}

static eg_status forward_any(const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma,
                             const eg_tensor *beta, eg_tensor *batch_mean, eg_tensor *batch_var, const eg_tensor *mean,
                             const eg_tensor *var, eg_tensor *y)
{
    eg_tensor *owned_x = NULL, *owned_y = NULL;
    const eg_tensor *rows = to_rows(x, &owned_x);
    eg_tensor *out = rows ? out_like(rows, y, &owned_y) : NULL;
    eg_status status = out ? forward(bn, rows, gamma, beta, batch_mean, batch_var, mean, var, out) : EG_ENOMEM;
    eg_tensor_release(owned_x);
    return eg__out_finish(status, y, owned_y);
}

eg_status eg__cpu_batch_norm(const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma,
                             const eg_tensor *beta, eg_tensor *mean, eg_tensor *var, eg_tensor *y,
                             eg_tensor **workspace)
{
    if (workspace)
        *workspace = NULL;
    if (eg_shape_numel(x->shape) == 0)
        return eg__ref_kernels.batch_norm(bn, x, gamma, beta, mean, var, y, workspace);
    return forward_any(bn, x, gamma, beta, mean, var, mean, var, y);
}

eg_status eg__cpu_batch_norm_eval(const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma,
                                  const eg_tensor *beta, const eg_tensor *mean, const eg_tensor *var, eg_tensor *y)
{
    if (eg_shape_numel(x->shape) == 0)
        return EG_OK;
    return forward_any(bn, x, gamma, beta, NULL, NULL, mean, var, y);
}

/* ---- backward ---- */

/* sums: {dy (x - mean), dy}, dy behind the ReLU. */
EG__CLONES static void add_gradients(const norm_work *w, float *restrict scaled, float *restrict plain, const float *x,
                                     const float *dy, int64_t n)
{
    const float *mean = w->mean, *scale = w->scale, *shift = w->shift;
    float low = w->relu ? 0.0f : -INFINITY;
    memset(scaled, 0, (size_t)w->rows.width * sizeof(float));
    memset(plain, 0, (size_t)w->rows.width * sizeof(float));
    for (int64_t at = 0; at < n; at += w->rows.width) {
        int64_t left = EG_MIN(w->rows.width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++) {
            float v = x[at + i], d = normalized(v, mean[i], scale[i], shift[i]) > low ? dy[at + i] : 0.0f;
            scaled[i] += d * (v - mean[i]);
            plain[i] += d;
        }
    }
}

static void gradient_blocks(void *arg, int64_t begin, int64_t end)
{
    const norm_work *w = arg;
    for (int64_t b = begin; b < end; b++) {
        int64_t from = b * w->rows.block * w->rows.channels;
        float *partial = w->partial + b * 2 * w->rows.width;
        add_gradients(w, partial, partial + w->rows.width, w->x + from, w->dy + from, eg__rows_in_block(&w->rows, b) * w->rows.channels);
    }
}

EG__CLONES static void gradient_rows(const norm_work *w, const float *x, const float *dy, float *dx, int64_t n)
{
    const float *mean = w->mean, *scale = w->scale, *shift = w->shift, *back = w->back, *lift = w->lift;
    float low = w->relu ? 0.0f : -INFINITY;
    for (int64_t at = 0; at < n; at += w->rows.width) {
        int64_t left = EG_MIN(w->rows.width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++) {
            float v = x[at + i], d = normalized(v, mean[i], scale[i], shift[i]) > low ? dy[at + i] : 0.0f;
            dx[at + i] = scale[i] * d - (v - mean[i]) * back[i] - lift[i];
        }
    }
}

static void gradient_input_blocks(void *arg, int64_t begin, int64_t end)
{
    const norm_work *w = arg;
    int64_t from = begin * w->rows.block * w->rows.channels, to = EG_MIN(end * w->rows.block, w->rows.n) * w->rows.channels;
    gradient_rows(w, w->x + from, w->dy + from, w->y + from, to - from);
}

/* dgamma and dbeta of the channels; and the factors that carry them back through the statistics, when these are x's. */
static void set_gradients(norm_work *w, const eg__batch_norm *bn, bool batch, const eg_tensor *var, eg_tensor *dgamma,
                          eg_tensor *dbeta)
{
    for (int64_t c = 0; c < w->rows.channels; c++) {
        double scaled = 0, plain = 0, variance = (double)eg__channel_of(var, c, 0) + bn->eps, n = (double)w->rows.n;
        for (int64_t b = 0; b < w->rows.blocks; b++) {
            scaled += eg__rows_fold(&w->rows, w->partial + b * 2 * w->rows.width, c);
            plain += eg__rows_fold(&w->rows, w->partial + (b * 2 + 1) * w->rows.width, c);
        }
        if (dgamma)
            eg__f32(dgamma)[c * dgamma->strides[0]] = (float)(scaled / sqrt(variance));
        if (dbeta)
            eg__f32(dbeta)[c * dbeta->strides[0]] = (float)plain;
        w->back[c] = batch ? (float)((double)w->scale[c] * scaled / (variance * n)) : 0.0f;
        w->lift[c] = batch ? (float)((double)w->scale[c] * plain / n) : 0.0f;
    }
    eg__rows_repeat(&w->rows, w->back);
    eg__rows_repeat(&w->rows, w->lift);
}

typedef struct backward_args {
    const eg__batch_norm *bn;
    bool batch; /* the statistics were x's own */
    const eg_tensor *x, *gamma, *beta, *mean, *var, *dy;
    eg_tensor *dx, *dgamma, *dbeta;
} backward_args;

static eg_status backward(const backward_args *a)
{
    norm_work w;
    EG_TRY(work_make(&w, a->x, true));
    int64_t numel = w.rows.n * w.rows.channels;
    w.dy = eg__f32(a->dy);
    set_factors(&w, a->bn, a->gamma, a->beta, a->mean, a->var);
    if (a->batch || a->dgamma || a->dbeta)
        eg__for_each(w.rows.ctx, w.rows.blocks, numel, gradient_blocks, &w);
    else
        memset(w.partial, 0, (size_t)(w.rows.blocks * 2 * w.rows.width) * sizeof(float));
    set_gradients(&w, a->bn, a->batch, a->var, a->dgamma, a->dbeta);
    if (a->dx) {
        w.y = eg__f32(a->dx);
        eg__for_each(w.rows.ctx, w.rows.blocks, numel, gradient_input_blocks, &w);
    }
    work_free(&w);
    return EG_OK;
}

static eg_status backward_any(backward_args a)
{
    eg_tensor *owned_x = NULL, *owned_dy = NULL, *owned_dx = NULL, *dx = a.dx;
    eg_status status = EG_ENOMEM;
    a.x = to_rows(a.x, &owned_x);
    a.dy = a.x ? eg__in_order_of(a.x, a.dy, &owned_dy) : NULL;
    if (a.dy && (!dx || (a.dx = out_like(a.x, dx, &owned_dx)) != NULL))
        status = backward(&a);
    eg_tensor_release(owned_x);
    eg_tensor_release(owned_dy);
    return eg__out_finish(status, dx, owned_dx);
}

eg_status eg__cpu_batch_norm_backward(const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma,
                                      const eg_tensor *beta, const eg_tensor *mean, const eg_tensor *var,
                                      const eg_tensor *workspace, const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma,
                                      eg_tensor *dbeta)
{
    if (eg_shape_numel(x->shape) == 0)
        return eg__ref_kernels.batch_norm_backward(bn, x, gamma, beta, mean, var, workspace, dy, dx, dgamma, dbeta);
    return backward_any((backward_args){bn, true, x, gamma, beta, mean, var, dy, dx, dgamma, dbeta});
}

eg_status eg__cpu_batch_norm_eval_backward(const eg__batch_norm *bn, const eg_tensor *x, const eg_tensor *gamma,
                                           const eg_tensor *beta, const eg_tensor *mean, const eg_tensor *var,
                                           const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma, eg_tensor *dbeta)
{
    if (eg_shape_numel(x->shape) == 0)
        return eg__ref_kernels.batch_norm_eval_backward(bn, x, gamma, beta, mean, var, dy, dx, dgamma, dbeta);
    return backward_any((backward_args){bn, false, x, gamma, beta, mean, var, dy, dx, dgamma, dbeta});
}
