/*
 * tensor/cpu/group_norm.c - normalization of each sample's groups of channels, channels innermost in memory.
 *
 * A sample is rows of channels, so that it is normalized like a small batch (norm.h); only the statistics of the
 * channels of a group are joined. Samples are spread over the threads, or the blocks of one sample after the other
 * where there are fewer samples than threads: sums go by blocks in both cases, so that results are the same. Where a
 * sample is a single row, layer_norm.c takes over.
 */
#include "tensor/cpu/norm.h"

#include <math.h>

typedef struct group_work {
    const eg__group_norm *gn;
    eg_context *ctx;
    int64_t samples;
    bool spread;          /* threads share the blocks of a sample */
    eg__norm_work sample; /* the sizes */
    float *memory;        /* [samples][numbers] */
    size_t numbers;
    const float *x, *dy;
    float *y;                      /* or dx; may be NULL in backward */
    const eg_tensor *gamma, *beta; /* may be NULL */
    float *mean, *rstd;            /* [samples][groups] */
} group_work;

static eg__norm_work sample_work(const group_work *g, int64_t n)
{
    eg__norm_work w = g->sample;
    int64_t at = n * w.rows * w.channels;
    eg__norm_place(&w, g->memory + (size_t)n * g->numbers);
    w.x = g->x + at;
    w.dy = g->dy ? g->dy + at : NULL;
    w.y = g->y ? g->y + at : NULL;
    return w;
}

static void each_block(const group_work *g, eg__norm_work *w, eg__body body)
{
    if (g->spread)
        eg__for_each(g->ctx, w->blocks, w->rows * w->channels, body, w);
    else
        body(w, 0, w->blocks);
}

/* All samples through `body`. */
static eg_status each_sample(group_work *g, eg__body body)
{
    int64_t numel = g->samples * g->sample.rows * g->sample.channels;
    g->spread = g->samples < eg_context_threads(g->ctx);
    if (g->spread)
        body(g, 0, g->samples);
    else
        eg__for_each(g->ctx, g->samples, numel, body, g);
    return EG_OK;
}

static float factor_at(const eg_tensor *t, int64_t c, float absent)
{
    return t ? eg__f32(t)[c * t->strides[0]] : absent;
}

/* mean, scale and shift of all channels, from the statistics of their groups. */
static void set_factors(const group_work *g, eg__norm_work *w, int64_t n)
{
    int64_t groups = g->gn->groups, size = w->channels / groups;
    for (int64_t c = 0; c < w->channels; c++) {
        int64_t i = n * groups + c / size;
        w->mean[c] = g->mean[i];
        w->scale[c] = g->rstd[i] * factor_at(g->gamma, c, 1);
        w->shift[c] = factor_at(g->beta, c, 0);
    }
    eg__norm_repeat(w, w->mean);
    eg__norm_repeat(w, w->scale);
    eg__norm_repeat(w, w->shift);
}

/* Joins channels first .. first + size - 1 of all blocks. */
static void join_group(const eg__norm_work *w, int64_t first, int64_t size, double *mean, double *var)
{
    double sum = 0, squares = 0, count = (double)(w->rows * size);
    for (int64_t b = 0; b < w->blocks; b++)
        for (int64_t c = first; c < first + size; c++)
            sum += (double)w->partial[b * 2 * w->width + c] * (double)eg__norm_block_rows(w, b);
    *mean = sum / count;
    for (int64_t b = 0; b < w->blocks; b++) {
        const float *partial = w->partial + b * 2 * w->width;
        for (int64_t c = first; c < first + size; c++) {
            double distance = (double)partial[c] - *mean;
            squares += eg__norm_fold(w, partial + w->width, c);
            squares += distance * distance * (double)eg__norm_block_rows(w, b);
        }
    }
    *var = squares / count;
}

static void forward_samples(void *arg, int64_t begin, int64_t end)
{
    const group_work *g = arg;
    int64_t groups = g->gn->groups, size = g->sample.channels / groups;
    for (int64_t n = begin; n < end; n++) {
        eg__norm_work w = sample_work(g, n);
        each_block(g, &w, eg__norm_statistics);
        for (int64_t k = 0; k < groups; k++) {
            double mean, var;
            join_group(&w, k * size, size, &mean, &var);
            g->mean[n * groups + k] = (float)mean;
            g->rstd[n * groups + k] = (float)(1 / sqrt(var + g->gn->eps));
        }
        set_factors(g, &w, n);
        each_block(g, &w, eg__norm_normalize);
    }
}

/* The sums of each channel over its blocks go to the places of the first block's: what dgamma and dbeta are made of. */
static void set_gradient_factors(const group_work *g, eg__norm_work *w, int64_t n)
{
    int64_t groups = g->gn->groups, size = w->channels / groups;
    for (int64_t k = 0; k < groups; k++) {
        double scaled = 0, plain = 0, rstd = (double)g->rstd[n * groups + k], count = (double)(w->rows * size);
        for (int64_t c = k * size; c < (k + 1) * size; c++) {
            double sums[2] = {0, 0}, gamma = (double)factor_at(g->gamma, c, 1);
            for (int64_t b = 0; b < w->blocks; b++)
                for (int i = 0; i < 2; i++)
                    sums[i] += eg__norm_fold(w, w->partial + (b * 2 + i) * w->width, c);
            for (int i = 0; i < 2; i++)
                w->partial[i * w->width + c] = (float)sums[i];
            scaled += gamma * sums[0];
            plain += gamma * sums[1];
        }
        for (int64_t c = k * size; c < (k + 1) * size; c++) {
            w->back[c] = (float)(scaled * rstd * rstd * rstd / count);
            w->lift[c] = (float)(plain * rstd / count);
        }
    }
    eg__norm_repeat(w, w->back);
    eg__norm_repeat(w, w->lift);
}

static void backward_samples(void *arg, int64_t begin, int64_t end)
{
    const group_work *g = arg;
    for (int64_t n = begin; n < end; n++) {
        eg__norm_work w = sample_work(g, n);
        set_factors(g, &w, n);
        each_block(g, &w, eg__norm_gradients);
        set_gradient_factors(g, &w, n);
        if (g->y)
            each_block(g, &w, eg__norm_input_gradient);
    }
}

static void join_samples(const group_work *g, eg_tensor *dgamma, eg_tensor *dbeta)
{
    int64_t groups = g->gn->groups, size = g->sample.channels / groups;
    for (int64_t c = 0; (dgamma || dbeta) && c < g->sample.channels; c++) {
        double scaled = 0, plain = 0;
        for (int64_t n = 0; n < g->samples; n++) {
            eg__norm_work w = sample_work(g, n);
            scaled += (double)w.partial[c] * (double)g->rstd[n * groups + c / size];
            plain += (double)w.partial[w.width + c];
        }
        if (dgamma)
            eg__f32(dgamma)[c * dgamma->strides[0]] = (float)scaled;
        if (dbeta)
            eg__f32(dbeta)[c * dbeta->strides[0]] = (float)plain;
    }
}

/* Memory for all samples; for give_memory(). */
static eg_status take_memory(group_work *g, const eg_tensor *x)
{
    g->ctx = x->ctx;
    g->samples = x->shape.dims[0];
    g->x = eg__f32(x);
    g->numbers = eg__norm_plan(&g->sample, x->shape.dims[2], x->shape.dims[1], true);
    g->memory = eg__pool_take(g->ctx, (size_t)g->samples * g->numbers * sizeof(float));
    return g->memory ? EG_OK : EG_ENOMEM;
}

static void give_memory(group_work *g)
{
    eg__pool_give(g->ctx, g->memory, (size_t)g->samples * g->numbers * sizeof(float));
}

/* ---- memory order ---- */

/* (N, C, P) with channels innermost, then positions, then samples, without gaps. */
static bool in_lines(const eg_tensor *x)
{
    const int64_t *size = x->shape.dims, *strides = x->strides;
    return (size[1] == 1 || strides[1] == 1) && (size[2] == 1 || strides[2] == size[1]) &&
           (size[0] == 1 || strides[0] == size[1] * size[2]);
}

static const eg_tensor *to_lines(const eg_tensor *x, eg_tensor **owned)
{
    if (in_lines(x))
        return x;
    *owned = eg__new_with_innermost(x, 1);
    return *owned && eg__cpu_copy(x, *owned) == EG_OK ? *owned : NULL;
}

static eg_tensor *out_in_lines(eg_tensor *y, eg_tensor **owned)
{
    return in_lines(y) ? y : (*owned = eg__new_with_innermost(y, 1));
}

/* ---- the kernels ---- */

static eg_status forward(const eg__group_norm *gn, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *beta,
                         eg_tensor *mean, eg_tensor *rstd, eg_tensor *y)
{
    if (x->shape.dims[2] == 1)
        return eg__cpu_layer_norm(gn, x, gamma, beta, mean, rstd, y);
    group_work g = {.gn = gn, .gamma = gamma, .beta = beta, .mean = eg__f32(mean), .rstd = eg__f32(rstd)};
    EG_TRY(take_memory(&g, x));
    g.y = eg__f32(y);
    each_sample(&g, forward_samples);
    give_memory(&g);
    return EG_OK;
}

eg_status eg__cpu_group_norm(const eg__group_norm *gn, const eg_tensor *x, const eg_tensor *gamma,
                             const eg_tensor *beta, eg_tensor *mean, eg_tensor *rstd, eg_tensor *y)
{
    eg_tensor *owned_x = NULL, *owned_y = NULL;
    const eg_tensor *lines = to_lines(x, &owned_x);
    eg_tensor *out = lines ? out_in_lines(y, &owned_y) : NULL;
    eg_status status = out ? forward(gn, lines, gamma, beta, mean, rstd, out) : EG_ENOMEM;
    eg_tensor_release(owned_x);
    return eg__out_finish(status, y, owned_y);
}

static eg_status backward(const eg__group_norm *gn, const eg_tensor *x, const eg_tensor *gamma, const eg_tensor *mean,
                          const eg_tensor *rstd, const eg_tensor *dy, eg_tensor *dx, eg_tensor *dgamma,
                          eg_tensor *dbeta)
{
    if (x->shape.dims[2] == 1)
        return eg__cpu_layer_norm_backward(gn, x, gamma, mean, rstd, dy, dx, dgamma, dbeta);
    group_work g = {.gn = gn, .gamma = gamma, .mean = eg__f32(mean), .rstd = eg__f32(rstd)};
    EG_TRY(take_memory(&g, x));
    g.dy = eg__f32(dy);
    g.y = dx ? eg__f32(dx) : NULL;
    each_sample(&g, backward_samples);
    join_samples(&g, dgamma, dbeta);
    give_memory(&g);
    return EG_OK;
}

eg_status eg__cpu_group_norm_backward(const eg__group_norm *gn, const eg_tensor *x, const eg_tensor *gamma,
                                      const eg_tensor *mean, const eg_tensor *rstd, const eg_tensor *dy, eg_tensor *dx,
                                      eg_tensor *dgamma, eg_tensor *dbeta)
{
    eg_tensor *owned_x = NULL, *owned_dy = NULL, *owned_dx = NULL, *out = NULL;
    const eg_tensor *lines = to_lines(x, &owned_x), *dlines = lines ? to_lines(dy, &owned_dy) : NULL;
    eg_status status = EG_ENOMEM;
    if (dlines && (!dx || (out = out_in_lines(dx, &owned_dx)) != NULL))
        status = backward(gn, lines, gamma, mean, rstd, dlines, out, dgamma, dbeta);
    eg_tensor_release(owned_x);
    eg_tensor_release(owned_dy);
    return eg__out_finish(status, dx, owned_dx);
}
