/*
 * tensor/cpu/norm_sum.c - the mixed edge whose branches end in batch norms: y = sum of w[i] norm_i(x[i]).
 *
 * What a branch gives behind its norm is never stored. Forward reads each x[i] twice, for its statistics and for y.
 * Backward reads each twice too: a first pass sums up, per channel, what the gradients of the weights, of the mixing
 * and through the statistics all are made of, a second writes dx[i], which may lie where x[i] was. Loops run over long
 * rows, as in norm.c. A plain term counts as a norm of mean 0.
 */
#include "tensor/cpu/rows.h"

#include <math.h>
#include <string.h>

typedef struct norm_sum {
    eg__rows rows;
    size_t n;
    const eg__norm_term *terms;
    const float **x;
    float **dx;             /* each may be NULL */
    float *y;               /* forward */
    const float *dy;        /* backward */
    float *mean, *scale;    /* [n][width]: w[i] gamma / deviation */
    float *back, *lift;     /* [n][width] backward: dx = scale dy - (x - mean) back - lift */
    float *shift;           /* [width] forward: the sum of w[i] beta */
    float *partial;         /* [blocks][n + 1][width]: sums of dy (x[i] - mean), and of dy */
    void *memory, *numbers; /* of the lists, of all lines */
    size_t bytes;
} norm_sum;

static eg_status norm_sum_make(norm_sum *s, size_t n, const eg__norm_term *terms, const eg_tensor *like, bool sums)
{
    *s = (norm_sum){.rows = eg__rows_of(like), .n = n, .terms = terms};
    size_t width = (size_t)s->rows.width, lines = 4 * n + 1;
    if (sums)
        lines += (size_t)s->rows.blocks * (n + 1);
    s->bytes = lines * width * sizeof(float);
    s->memory = eg__calloc(2 * n, sizeof(float *));
    s->numbers = eg__pool_take(like->ctx, s->bytes);
    if (!s->memory || !s->numbers)
        return EG_ENOMEM;
    s->x = s->memory;
    s->dx = (float **)s->memory + n;
    s->mean = s->numbers;
    s->scale = s->mean + n * width;
    s->back = s->scale + n * width;
    s->lift = s->back + n * width;
    s->shift = s->lift + n * width;
    s->partial = s->shift + width;
    for (size_t i = 0; i < n; i++)
        s->x[i] = eg__f32(terms[i].x);
    return EG_OK;
}

static void norm_sum_free(norm_sum *s)
{
    if (s->numbers)
        eg__pool_give(s->rows.ctx, s->numbers, s->bytes);
    eg_free(s->memory);
}

static float weight_of(const eg_tensor *w, size_t i)
{
    return eg__f32(w)[(int64_t)i * w->strides[0]];
}

static float channel_of(const eg_tensor *t, int64_t c, float absent)
{
    return t ? eg__f32(t)[c * t->strides[0]] : absent;
}

static void set_factors(norm_sum *s, double eps, const eg_tensor *w)
{
    const eg__rows *r = &s->rows;
    memset(s->shift, 0, (size_t)r->width * sizeof(float));
    for (size_t i = 0; i < s->n; i++) {
        const eg__norm_term *t = &s->terms[i];
        float *mean = s->mean + i * (size_t)r->width, *scale = s->scale + i * (size_t)r->width, weight = weight_of(w, i);
        for (int64_t c = 0; c < r->channels; c++) {
            double deviation = t->mean ? sqrt((double)channel_of(t->var, c, 0) + eps) : 1;
            mean[c] = channel_of(t->mean, c, 0);
            scale[c] = (float)((double)weight * (double)channel_of(t->gamma, c, 1) / deviation);
            s->shift[c] += weight * channel_of(t->beta, c, 0);
        }
        eg__rows_repeat(r, mean);
        eg__rows_repeat(r, scale);
    }
    eg__rows_repeat(r, s->shift);
}

/* ---- forward ---- */

EG__CLONES static void start_sum(float *y, const float *shift, int64_t n, int64_t width)
{
    for (int64_t at = 0; at < n; at += width) {
        int64_t left = EG_MIN(width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            y[at + i] = shift[i];
    }
}

EG__CLONES static void add_normalized(float *restrict y, const float *restrict x, const float *restrict mean,
                                      const float *restrict scale, int64_t n, int64_t width)
{
    for (int64_t at = 0; at < n; at += width) {
        int64_t left = EG_MIN(width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            y[at + i] += (x[at + i] - mean[i]) * scale[i];
    }
}

static void sum_blocks(void *arg, int64_t begin, int64_t end)
{
    const norm_sum *s = arg;
    const eg__rows *r = &s->rows;
    for (int64_t b = begin; b < end; b++) {
        int64_t at = b * r->block * r->channels, n = eg__rows_in_block(r, b) * r->channels;
        start_sum(s->y + at, s->shift, n, r->width);
        for (size_t i = 0; i < s->n; i++) {
            size_t line = i * (size_t)r->width;
            add_normalized(s->y + at, s->x[i] + at, s->mean + line, s->scale + line, n, r->width);
        }
    }
}

/* Whether all lie as `like` does, with channels innermost. */
static bool lie_in_rows(size_t n, const eg__norm_term *terms, const eg__norm_term_grad *grads, const eg_tensor *like)
{
    bool same = eg__in_rows(like) && eg_shape_numel(like->shape) > 0;
    for (size_t i = 0; i < n && same; i++)
        same = eg__same_strides(terms[i].x, like) &&
               (!grads || !grads[i].dx || eg__same_strides(grads[i].dx, like));
    return same;
}

eg_status eg__cpu_norm_sum(double eps, size_t n, const eg__norm_term *terms, const eg_tensor *w, eg_tensor *y)
{
    if (!lie_in_rows(n, terms, NULL, y))
        return eg__ref_kernels.norm_sum(eps, n, terms, w, y);
    for (size_t i = 0; i < n; i++)
        if (terms[i].mean)
            EG_TRY(eg__cpu_batch_statistics(terms[i].x, terms[i].mean, terms[i].var));
    norm_sum s;
    eg_status status = norm_sum_make(&s, n, terms, y, false);
    if (status == EG_OK) {
        s.y = eg__f32(y);
        set_factors(&s, eps, w);
        eg__for_each(y->ctx, s.rows.blocks, eg_shape_numel(y->shape) * (int64_t)n, sum_blocks, &s);
    }
    norm_sum_free(&s);
    return status;
}

/* ---- backward ---- */

EG__CLONES static void sum_gradients(float *restrict sum, const float *restrict dy, int64_t n, int64_t width)
{
    memset(sum, 0, (size_t)width * sizeof(float));
    for (int64_t at = 0; at < n; at += width) {
        int64_t left = EG_MIN(width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            sum[i] += dy[at + i];
    }
}

EG__CLONES static void sum_products(float *restrict sum, const float *restrict x, const float *restrict mean,
                                    const float *restrict dy, int64_t n, int64_t width)
{
    memset(sum, 0, (size_t)width * sizeof(float));
    int64_t at = 0;
    for (; at + 2 * width <= n; at += 2 * width) {
        const float *restrict a = x + at, *restrict d = dy + at;
#pragma omp simd
        for (int64_t i = 0; i < width; i++)
            sum[i] += (a[i] - mean[i]) * d[i] + (a[i + width] - mean[i]) * d[i + width];
    }
    for (; at < n; at += width) {
        int64_t left = EG_MIN(width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            sum[i] += (x[at + i] - mean[i]) * dy[at + i];
    }
}

static void product_blocks(void *arg, int64_t begin, int64_t end)
{
    const norm_sum *s = arg;
    const eg__rows *r = &s->rows;
    for (int64_t b = begin; b < end; b++) {
        int64_t at = b * r->block * r->channels, n = eg__rows_in_block(r, b) * r->channels;
        float *partial = s->partial + b * (int64_t)(s->n + 1) * r->width;
        for (size_t i = 0; i < s->n; i++)
            sum_products(partial + i * (size_t)r->width, s->x[i] + at, s->mean + i * (size_t)r->width, s->dy + at, n,
                         r->width);
        sum_gradients(partial + s->n * (size_t)r->width, s->dy + at, n, r->width);
    }
}

/* The sum over all blocks of line `i` of the partial sums. */
static double total(const norm_sum *s, size_t i, int64_t channel)
{
    double sum = 0;
    for (int64_t b = 0; b < s->rows.blocks; b++)
        sum += eg__rows_fold(&s->rows, s->partial + (b * (int64_t)(s->n + 1) + (int64_t)i) * s->rows.width, channel);
    return sum;
}

/* Gradients of term i's mixing weight (returned), gamma and beta; and the factors of its dx. */
static double set_gradients(norm_sum *s, double eps, size_t i, double weight, const eg__norm_term_grad *grad)
{
    const eg__rows *r = &s->rows;
    const eg__norm_term *t = &s->terms[i];
    float *scale = s->scale + i * (size_t)r->width, *back = s->back + i * (size_t)r->width,
          *lift = s->lift + i * (size_t)r->width;
    double mixing = 0, rows = (double)r->n;
    for (int64_t c = 0; c < r->channels; c++) {
        double products = total(s, i, c);
        back[c] = lift[c] = 0;
        if (!t->mean) {
            mixing += products;
            continue;
        }
        double plain = total(s, s->n, c), variance = (double)channel_of(t->var, c, 0) + eps;
        double normalized = products / sqrt(variance);
        mixing += (double)channel_of(t->gamma, c, 1) * normalized + (double)channel_of(t->beta, c, 0) * plain;
        if (grad->dgamma)
            eg__f32(grad->dgamma)[c * grad->dgamma->strides[0]] = (float)(weight * normalized);
        if (grad->dbeta)
            eg__f32(grad->dbeta)[c * grad->dbeta->strides[0]] = (float)(weight * plain);
        back[c] = (float)((double)scale[c] * products / (variance * rows));
        lift[c] = (float)((double)scale[c] * plain / rows);
    }
    eg__rows_repeat(r, back);
    eg__rows_repeat(r, lift);
    return mixing;
}

EG__CLONES static void write_plain(float *dx, const float *dy, const float *scale, int64_t n, int64_t width)
{
    for (int64_t at = 0; at < n; at += width) {
        int64_t left = EG_MIN(width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            dx[at + i] = scale[i] * dy[at + i];
    }
}

/* dx may be x. */
EG__CLONES static void write_normalized(const norm_sum *s, size_t line, float *dx, const float *x, const float *dy,
                                        int64_t n)
{
    const float *mean = s->mean + line, *scale = s->scale + line, *back = s->back + line, *lift = s->lift + line;
    int64_t width = s->rows.width;
    for (int64_t at = 0; at < n; at += width) {
        int64_t left = EG_MIN(width, n - at);
#pragma omp simd
        for (int64_t i = 0; i < left; i++)
            dx[at + i] = scale[i] * dy[at + i] - (x[at + i] - mean[i]) * back[i] - lift[i];
    }
}

static void input_blocks(void *arg, int64_t begin, int64_t end)
{
    const norm_sum *s = arg;
    const eg__rows *r = &s->rows;
    for (int64_t b = begin; b < end; b++) {
        int64_t at = b * r->block * r->channels, n = eg__rows_in_block(r, b) * r->channels;
        for (size_t i = 0; i < s->n; i++) {
            size_t line = i * (size_t)r->width;
            if (!s->dx[i])
                continue;
            if (s->terms[i].mean)
                write_normalized(s, line, s->dx[i] + at, s->x[i] + at, s->dy + at, n);
            else
                write_plain(s->dx[i] + at, s->dy + at, s->scale + line, n, r->width);
        }
    }
}

eg_status eg__cpu_norm_sum_backward(double eps, size_t n, const eg__norm_term *terms, const eg_tensor *w,
                                    const eg_tensor *dy, const eg__norm_term_grad *grads, eg_tensor *dw)
{
    if (!lie_in_rows(n, terms, grads, dy))
        return eg__ref_kernels.norm_sum_backward(eps, n, terms, w, dy, grads, dw);
    norm_sum s;
    eg_status status = norm_sum_make(&s, n, terms, dy, true);
    if (status == EG_OK) {
        int64_t work = eg_shape_numel(dy->shape) * (int64_t)n;
        s.dy = eg__f32(dy);
        set_factors(&s, eps, w);
        eg__for_each(dy->ctx, s.rows.blocks, work, product_blocks, &s);
        for (size_t i = 0; i < n; i++) {
            double mixing = set_gradients(&s, eps, i, (double)weight_of(w, i), &grads[i]);
            if (dw)
                eg__f32(dw)[(int64_t)i * dw->strides[0]] = (float)mixing;
            s.dx[i] = grads[i].dx ? eg__f32(grads[i].dx) : NULL;
        }
        eg__for_each(dy->ctx, s.rows.blocks, work, input_blocks, &s);
    }
    norm_sum_free(&s);
    return status;
}
