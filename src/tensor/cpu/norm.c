/*
 * tensor/cpu/norm.c - batch normalization where channels are innermost in memory: rows of C numbers.
 *
 * With few channels a row is shorter than a vector register likes, so loops run over "long rows": as many rows side by
 * side as make at least LONG numbers, with the per-channel factors repeated. Sums go over blocks of rows of a fixed
 * size; the blocks' results are joined in order, in double. ReLU's mask in backward is recomputed from x by the same
 * expression as in forward, so no workspace is needed.
 */
#include "tensor/cpu/norm.h"

#include <math.h>
#include <string.h>

#define LONG 64
#define BLOCK_NUMBERS 8192

size_t eg__norm_plan(eg__norm_work *w, int64_t rows, int64_t channels, bool sums)
{
    int64_t repeat = EG_MAX(1, LONG / channels), width = channels * repeat;
    int64_t block = EG_MAX(1, BLOCK_NUMBERS / width) * repeat, blocks = (rows + block - 1) / block;
    *w = (eg__norm_work){.rows = rows,
                         .channels = channels,
                         .repeat = repeat,
                         .width = width,
                         .block = block,
                         .blocks = blocks,
                         .low = -INFINITY,
                         .high = INFINITY};
    return (size_t)(width * 5 + (sums ? blocks * 2 * width : 0));
}

void eg__norm_place(eg__norm_work *w, float *memory)
{
    w->mean = memory;
    w->scale = memory + w->width;
    w->shift = memory + 2 * w->width;
    w->back = memory + 3 * w->width;
    w->lift = memory + 4 * w->width;
    w->partial = memory + 5 * w->width;
}

eg_status eg__norm_work_make(eg__norm_work *w, const eg_tensor *x, bool sums)
{
    int64_t channels = x->shape.dims[1];
    size_t bytes = eg__norm_plan(w, eg_shape_numel(x->shape) / channels, channels, sums) * sizeof(float);
    w->memory = eg__pool_take(x->ctx, bytes);
    if (!w->memory)
        return EG_ENOMEM;
    eg__norm_place(w, w->memory);
    w->x = eg__f32(x);
    w->ctx = x->ctx;
    w->bytes = bytes;
    return EG_OK;
}

void eg__norm_work_free(eg__norm_work *w)
{
    if (w->memory)
        eg__pool_give(w->ctx, w->memory, w->bytes);
}

void eg__norm_repeat(const eg__norm_work *w, float *line)
{
    for (int64_t i = w->channels; i < w->width; i++)
        line[i] = line[i - w->channels];
}

/* Adds up the repeats of a long row, and all that a shorter last long row left at zero. */
double eg__norm_fold(const eg__norm_work *w, const float *line, int64_t channel)
{
    double sum = 0;
    for (int64_t i = channel; i < w->width; i += w->channels)
        sum += (double)line[i];
    return sum;
}

/* ---- statistics: sum of a block, then squares of the distances from the block's own mean ---- */

EG__CLONES static void add_lines(float *restrict sum, const float *restrict x, int64_t n, int64_t width)
{
    memset(sum, 0, (size_t)width * sizeof(float));
    int64_t at = 0;
    for (; at + 4 * width <= n; at += 4 * width) {
        const float *restrict r = x + at;
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            sum[i] += (r[i] + r[i + width]) + (r[i + 2 * width] + r[i + 3 * width]);
    }
    for (; at < n; at += width) {
        int64_t left = EG_MIN(width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            sum[i] += x[at + i];
    }
}

static inline float squared(float x)
{
    return x * x;
}

EG__CLONES static void add_squares(float *restrict sum, const float *restrict x, const float *restrict mean, int64_t n,
                                   int64_t width)
{
    memset(sum, 0, (size_t)width * sizeof(float));
    int64_t at = 0;
    for (; at + 2 * width <= n; at += 2 * width) {
        const float *restrict r = x + at;
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            sum[i] += squared(r[i] - mean[i]) + squared(r[i + width] - mean[i]);
    }
    for (; at < n; at += width) {
        int64_t left = EG_MIN(width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            sum[i] += squared(x[at + i] - mean[i]);
    }
}

int64_t eg__norm_block_rows(const eg__norm_work *w, int64_t b)
{
    return EG_MIN(w->block, w->rows - b * w->block);
}

/* partial[b] = {block's mean, squares around it}; the mean is repeated, the squares are not folded yet. */
void eg__norm_statistics(void *arg, int64_t begin, int64_t end)
{
    const eg__norm_work *w = arg;
    for (int64_t b = begin; b < end; b++) {
        int64_t rows = eg__norm_block_rows(w, b), n = rows * w->channels;
        const float *x = w->x + b * w->block * w->channels;
        float *mean = w->partial + b * 2 * w->width, *squares = mean + w->width;
        add_lines(mean, x, n, w->width);
        for (int64_t c = 0; c < w->channels; c++)
            mean[c] = (float)(eg__norm_fold(w, mean, c) / (double)rows);
        eg__norm_repeat(w, mean);
        add_squares(squares, x, mean, n, w->width);
    }
}

/* Joins the blocks of n channels as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
 * computing sample variances" (1979). */
EG__CLONES static void join_statistics(const eg__norm_work *w, int64_t first, int64_t n, double *restrict mean,
                                       double *restrict squares)
{
    double count = 0;
    for (int64_t b = 0; b < w->blocks; b++) {
        const float *partial = w->partial + b * 2 * w->width + first;
        double rows = (double)eg__norm_block_rows(w, b), total = count + rows;
        double part = rows / total, between = count * part;
#pragma omp simd
        for (int64_t k = 0; k < n; k++) {
            double distance = (double)partial[k] - mean[k];
            mean[k] += distance * part;
            squares[k] += distance * distance * between;
        }
        for (int64_t i = w->width; i < 2 * w->width; i += w->channels)
#pragma omp simd
            for (int64_t k = 0; k < n; k++)
                squares[k] += (double)partial[i + k];
        count = total;
    }
}

void eg__norm_batch_statistics(eg__norm_work *w, eg_tensor *mean, eg_tensor *var)
{
    eg__for_each(w->ctx, w->blocks, w->rows * w->channels, eg__norm_statistics, w);
    for (int64_t first = 0; first < w->channels; first += EG__NORM_JOINED) {
        double m[EG__NORM_JOINED] = {0}, squares[EG__NORM_JOINED] = {0};
        int64_t n = EG_MIN(EG__NORM_JOINED, w->channels - first);
        join_statistics(w, first, n, m, squares);
        for (int64_t k = 0; k < n; k++) {
            eg__f32(mean)[(first + k) * mean->strides[0]] = (float)m[k];
            eg__f32(var)[(first + k) * var->strides[0]] = (float)(squares[k] / (double)w->rows);
        }
    }
}

/* ---- y ---- */

static inline float normalized(float x, float mean, float scale, float shift)
{
    return (x - mean) * scale + shift;
}

EG__CLONES static void normalize_rows(const eg__norm_work *w, const float *x, float *y, int64_t n)
{
    const float *mean = w->mean, *scale = w->scale, *shift = w->shift;
    for (int64_t at = 0; at < n; at += w->width) {
        int64_t left = EG_MIN(w->width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            y[at + i] = normalized(x[at + i], mean[i], scale[i], shift[i]);
    }
}

/* sum may be y. */
EG__CLONES static void normalize_rows_add(const eg__norm_work *w, const float *x, const float *sum, float *y, int64_t n)
{
    const float *mean = w->mean, *scale = w->scale, *shift = w->shift;
    for (int64_t at = 0; at < n; at += w->width) {
        int64_t left = EG_MIN(w->width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            y[at + i] = sum[at + i] + normalized(x[at + i], mean[i], scale[i], shift[i]);
    }
}

EG__CLONES static void normalize_rows_relu(const eg__norm_work *w, const float *x, float *y, int64_t n)
{
    const float *mean = w->mean, *scale = w->scale, *shift = w->shift;
    float high = w->high;
    for (int64_t at = 0; at < n; at += w->width) {
        int64_t left = EG_MIN(w->width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++) {
            float v = normalized(x[at + i], mean[i], scale[i], shift[i]);
            v = v < 0.0f ? 0.0f : v;
            y[at + i] = v > high ? high : v;
        }
    }
}

void eg__norm_normalize(void *arg, int64_t begin, int64_t end)
{
    const eg__norm_work *w = arg;
    int64_t from = begin * w->block * w->channels, n = EG_MIN(end * w->block, w->rows) * w->channels - from;
    if (w->sum)
        normalize_rows_add(w, w->x + from, w->sum + from, w->y + from, n);
    else
        (w->relu ? normalize_rows_relu : normalize_rows)(w, w->x + from, w->y + from, n);
}

static void set_factors(eg__norm_work *w, const eg__batch_norm *bn, const eg_tensor *gamma, const eg_tensor *beta,
                        const eg_tensor *mean, const eg_tensor *var)
{
    w->relu = bn->relu;
    w->low = bn->relu ? 0.0f : -INFINITY;
    w->high = bn->relu && bn->relu_max > 0 ? (float)bn->relu_max : INFINITY;
    for (int64_t c = 0; c < w->channels; c++) {
        w->mean[c] = eg__channel_of(mean, c, 0);
        w->scale[c] = (float)((double)eg__channel_of(gamma, c, 1) / sqrt((double)eg__channel_of(var, c, 0) + bn->eps));
        w->shift[c] = eg__channel_of(beta, c, 0);
    }
    eg__norm_repeat(w, w->mean);
    eg__norm_repeat(w, w->scale);
    eg__norm_repeat(w, w->shift);
}

bool eg__in_rows(const eg_tensor *x)
{
    return eg__is_dense(x) && (x->shape.dims[1] == 1 || x->strides[1] == 1);
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
    eg__norm_work w;
    EG_TRY(eg__norm_work_make(&w, x, batch_mean != NULL));
    int64_t numel = w.rows * w.channels;
    w.y = eg__f32(y);
    if (batch_mean)
        eg__norm_batch_statistics(&w, batch_mean, batch_var);
    set_factors(&w, bn, gamma, beta, mean, var);
    eg__for_each(x->ctx, w.blocks, numel, eg__norm_normalize, &w);
    eg__norm_work_free(&w);
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

/* dy behind the ReLU, which lets pass what is between `low` and `high`. */
EG__INLINE float passed(bool relu, float x, float mean, float scale, float shift, float low, float high, float dy)
{
    if (!relu)
        return dy;
    float y = normalized(x, mean, scale, shift);
    return y > low && y < high ? dy : 0.0f;
}

/* sums: {dy (x - mean), dy}, dy behind the ReLU. Four rows are summed before they are added: fewer rounding errors. */
EG__INLINE void add_gradients(bool relu, const eg__norm_work *w, float *restrict scaled, float *restrict plain,
                              const float *x, const float *dy, int64_t n)
{
    const float *mean = w->mean, *scale = w->scale, *shift = w->shift;
    float low = w->low, high = w->high;
    memset(scaled, 0, (size_t)w->width * sizeof(float));
    memset(plain, 0, (size_t)w->width * sizeof(float));
    int64_t at = 0, width = w->width;
    for (; at + 4 * width <= n; at += 4 * width) {
        const float *restrict v = x + at, *restrict g = dy + at;
#pragma omp simd
        for (int64_t i = 0; i < width; i++) {
            float a = v[i], b = v[i + width], c = v[i + 2 * width], d = v[i + 3 * width];
            float da = passed(relu, a, mean[i], scale[i], shift[i], low, high, g[i]);
            float db = passed(relu, b, mean[i], scale[i], shift[i], low, high, g[i + width]);
            float dc = passed(relu, c, mean[i], scale[i], shift[i], low, high, g[i + 2 * width]);
            float dd = passed(relu, d, mean[i], scale[i], shift[i], low, high, g[i + 3 * width]);
            scaled[i] += (da * (a - mean[i]) + db * (b - mean[i])) + (dc * (c - mean[i]) + dd * (d - mean[i]));
            plain[i] += (da + db) + (dc + dd);
        }
    }
    for (; at < n; at += width) {
        int64_t left = EG_MIN(width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++) {
            float d = passed(relu, x[at + i], mean[i], scale[i], shift[i], low, high, dy[at + i]);
            scaled[i] += d * (x[at + i] - mean[i]);
            plain[i] += d;
        }
    }
}

EG__CLONES static void add_gradients_relu(const eg__norm_work *w, float *partial, const float *x, const float *dy,
                                          int64_t n)
{
    add_gradients(true, w, partial, partial + w->width, x, dy, n);
}

EG__CLONES static void add_gradients_plain(const eg__norm_work *w, float *partial, const float *x, const float *dy,
                                           int64_t n)
{
    add_gradients(false, w, partial, partial + w->width, x, dy, n);
}

void eg__norm_gradients(void *arg, int64_t begin, int64_t end)
{
    const eg__norm_work *w = arg;
    for (int64_t b = begin; b < end; b++) {
        int64_t from = b * w->block * w->channels;
        (w->relu ? add_gradients_relu : add_gradients_plain)(w, w->partial + b * 2 * w->width, w->x + from,
                                                             w->dy + from, eg__norm_block_rows(w, b) * w->channels);
    }
}

EG__CLONES static void join_gradients(const eg__norm_work *w, int64_t first, int64_t n, double *restrict scaled,
                                      double *restrict plain)
{
    for (int64_t b = 0; b < w->blocks; b++)
        for (int64_t i = first; i < w->width; i += w->channels) {
            const float *partial = w->partial + b * 2 * w->width + i;
#pragma omp simd
            for (int64_t k = 0; k < n; k++) {
                scaled[k] += (double)partial[k];
                plain[k] += (double)partial[w->width + k];
            }
        }
}

void eg__norm_gradient_sums(const eg__norm_work *w, int64_t first, double scaled[EG__NORM_JOINED],
                            double plain[EG__NORM_JOINED])
{
    memset(scaled, 0, EG__NORM_JOINED * sizeof *scaled);
    memset(plain, 0, EG__NORM_JOINED * sizeof *plain);
    join_gradients(w, first, EG_MIN(EG__NORM_JOINED, w->channels - first), scaled, plain);
}

EG__INLINE void gradient_rows(bool relu, const eg__norm_work *w, const float *x, const float *dy, float *dx, int64_t n)
{
    const float *mean = w->mean, *scale = w->scale, *shift = w->shift, *back = w->back, *lift = w->lift;
    float low = w->low, high = w->high;
    for (int64_t at = 0; at < n; at += w->width) {
        int64_t left = EG_MIN(w->width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++) {
            float v = x[at + i], d = passed(relu, v, mean[i], scale[i], shift[i], low, high, dy[at + i]);
            dx[at + i] = scale[i] * d - (v - mean[i]) * back[i] - lift[i];
        }
    }
}

EG__CLONES static void gradient_rows_relu(const eg__norm_work *w, const float *x, const float *dy, float *dx, int64_t n)
{
    gradient_rows(true, w, x, dy, dx, n);
}

EG__CLONES static void gradient_rows_plain(const eg__norm_work *w, const float *x, const float *dy, float *dx,
                                           int64_t n)
{
    gradient_rows(false, w, x, dy, dx, n);
}

void eg__norm_input_gradient(void *arg, int64_t begin, int64_t end)
{
    const eg__norm_work *w = arg;
    int64_t from = begin * w->block * w->channels, to = EG_MIN(end * w->block, w->rows) * w->channels;
    (w->relu ? gradient_rows_relu : gradient_rows_plain)(w, w->x + from, w->dy + from, w->y + from, to - from);
}

/* dgamma and dbeta of the channels; and the factors that carry them back through the statistics, when these are x's. */
static void set_gradients(eg__norm_work *w, const eg__batch_norm *bn, bool batch, const eg_tensor *var,
                          eg_tensor *dgamma, eg_tensor *dbeta)
{
    double all_scaled[EG__NORM_JOINED], all_plain[EG__NORM_JOINED], n = (double)w->rows;
    for (int64_t c = 0; c < w->channels; c++) {
        if (c % EG__NORM_JOINED == 0)
            eg__norm_gradient_sums(w, c, all_scaled, all_plain);
        double scaled = all_scaled[c % EG__NORM_JOINED], plain = all_plain[c % EG__NORM_JOINED];
        double variance = (double)eg__channel_of(var, c, 0) + bn->eps;
        if (dgamma)
            eg__f32(dgamma)[c * dgamma->strides[0]] = (float)(scaled / sqrt(variance));
        if (dbeta)
            eg__f32(dbeta)[c * dbeta->strides[0]] = (float)plain;
        w->back[c] = batch ? (float)((double)w->scale[c] * scaled / (variance * n)) : 0.0f;
        w->lift[c] = batch ? (float)((double)w->scale[c] * plain / n) : 0.0f;
    }
    eg__norm_repeat(w, w->back);
    eg__norm_repeat(w, w->lift);
}

typedef struct backward_args {
    const eg__batch_norm *bn;
    bool batch; /* the statistics were x's own */
    const eg_tensor *x, *gamma, *beta, *mean, *var, *dy;
    eg_tensor *dx, *dgamma, *dbeta;
} backward_args;

static eg_status backward(const backward_args *a)
{
    eg__norm_work w;
    EG_TRY(eg__norm_work_make(&w, a->x, true));
    int64_t numel = w.rows * w.channels;
    w.dy = eg__f32(a->dy);
    set_factors(&w, a->bn, a->gamma, a->beta, a->mean, a->var);
    if (a->batch || a->dgamma || a->dbeta)
        eg__for_each(w.ctx, w.blocks, numel, eg__norm_gradients, &w);
    else
        memset(w.partial, 0, (size_t)(w.blocks * 2 * w.width) * sizeof(float));
    set_gradients(&w, a->bn, a->batch, a->var, a->dgamma, a->dbeta);
    if (a->dx) {
        w.y = eg__f32(a->dx);
        eg__for_each(w.ctx, w.blocks, numel, eg__norm_input_gradient, &w);
    }
    eg__norm_work_free(&w);
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
