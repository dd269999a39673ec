/*
 * tensor/cpu/pool.c - maximum and average pooling of channels-last tensors.
 *
 * Each number gathers from all taps of its window while it is in a register; with stride 1 those that the same taps
 * meet are one contiguous line, whatever the number of channels. Our own because oneDNN's kernels for AVX2 write the
 * positions of maxima through byte masks, a hundred times slower than the rest of the work.
 */
#include "tensor/cpu/gather.h"
#include "tensor/cpu/plane.h"
#include "tensor/cpu/tile.h"

#include <math.h>
#include <string.h>

/* A position that no tap has. */
#define NOWHERE 255
/* Numbers of a line that are worked on at a time. */
#define BLOCK 64

typedef int32_t ints8 __attribute__((vector_size(32)));

typedef struct pool_work {
    const eg__window *win;
    eg__gather gather;
    const float *in;
    float *out;
    uint8_t *position;
    float *share[2];    /* average: of each row of the small side, and of each column */
    bool backward, add; /* add: to what is there */
} pool_work;

/* A run of columns in one target row: `pieces` lines of n numbers. */
typedef struct line {
    eg__taps taps;
    int64_t source, target, n, pieces, source_step, target_step;
} line;

static line line_of(const pool_work *w, int64_t i, const eg__run *c)
{
    const eg__gather *g = &w->gather;
    bool whole = g->to_step == 1 && g->from_step == 1;
    line l = {.target = (i * g->to[1] + c->begin) * g->channels,
              .n = g->channels * (whole ? c->n : 1),
              .pieces = whole ? 1 : c->n,
              .source_step = g->from_step * g->channels,
              .target_step = g->to_step * g->channels};
    l.source = i / g->to[0] * g->from[0] * g->from[1] * g->channels + eg__gather_taps(g, i % g->to[0], c, &l.taps);
    return l;
}

/* ---- maximum: the first in scanning order, but a NaN before all ---- */

/* Entries of a where the mask's bits are set, else of b. No function: vectors of AVX do not pass through those. */
#define CHOOSE(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))

static int first_tap(const eg__taps *t)
{
    return t->rows > 0 && t->columns > 0 ? (int)t->first : NOWHERE;
}

/* `at` receives the positions. */
EG__INLINE void max_vectors(int vectors, bool positions, const eg__taps *t, const float *x, float *y, int32_t *at)
{
    const ints8 lowest = (ints8)((eg__v8){0} - INFINITY), none = (ints8){0} + first_tap(t);
    ints8 best[4] = {lowest, lowest, lowest, lowest}, where[4] = {none, none, none, none};
    for (int64_t r = 0; r < t->rows; r++, x += t->row_step) {
        int tap = (int)(t->first + r * t->row_tap);
        for (int64_t c = 0; c < t->columns; c++, tap += (int)t->column_tap)
            for (int v = 0; v < vectors; v++) {
                eg__v8 a = *(const eg__v8 *)(x + c * t->column_step + 8 * v);
                ints8 larger = (a > (eg__v8)best[v]) | (a != a);
                best[v] = CHOOSE(larger, (ints8)a, best[v]);
                if (positions)
                    where[v] = CHOOSE(larger, (ints8){0} + tap, where[v]);
            }
    }
    for (int v = 0; v < vectors; v++) {
        *(eg__v8 *)(y + 8 * v) = (eg__v8)best[v];
        if (positions)
            memcpy(at + 8 * v, &where[v], sizeof where[v]);
    }
}

static int32_t max_number(const eg__taps *t, const float *x, float *y)
{
    float best = -INFINITY;
    int at = first_tap(t);
    for (int64_t r = 0; r < t->rows; r++, x += t->row_step)
        for (int64_t c = 0; c < t->columns; c++) {
            float a = x[c * t->column_step];
            if (a > best || a != a) {
                best = a;
                at = (int)(t->first + r * t->row_tap + c * t->column_tap);
            }
        }
    *y = best;
    return at;
}

EG__CLONES static void max_line(const line *l, const float *x, float *y)
{
    for (int64_t k = 0; k < l->pieces; k++, x += l->source_step, y += l->target_step) {
        int64_t i = 0;
        for (; i + 32 <= l->n; i += 32)
            max_vectors(4, false, &l->taps, x + i, y + i, NULL);
        for (; i + 8 <= l->n; i += 8)
            max_vectors(1, false, &l->taps, x + i, y + i, NULL);
        for (; i < l->n; i++)
            max_number(&l->taps, x + i, y + i);
    }
}

/* Positions are as wide as numbers until a block is done: compilers pack many at a time well, and few badly. */
EG__INLINE void max_positions(const line *l, const float *x, float *y, uint8_t *position)
{
    int32_t at[BLOCK];
    for (int64_t begin = 0; begin < l->n; begin += BLOCK) {
        int64_t i = 0, n = EG_MIN(BLOCK, l->n - begin);
        const float *from = x + begin;
        for (; i + 32 <= n; i += 32)
            max_vectors(4, true, &l->taps, from + i, y + begin + i, at + i);
        for (; i + 16 <= n; i += 16)
            max_vectors(2, true, &l->taps, from + i, y + begin + i, at + i);
        for (; i + 8 <= n; i += 8)
            max_vectors(1, true, &l->taps, from + i, y + begin + i, at + i);
        for (; i < n; i++)
            at[i] = max_number(&l->taps, from + i, y + begin + i);
#pragma omp simd
        for (int64_t k = 0; k < n; k++)
            position[begin + k] = (uint8_t)at[k];
    }
}

EG__CLONES static void max_line_position(const line *l, const float *x, float *y, uint8_t *position)
{
    for (int64_t k = 0; k < l->pieces; k++)
        max_positions(l, x + k * l->source_step, y + k * l->target_step, position + k * l->target_step);
}

static void max_rows(void *arg, int64_t begin, int64_t end)
{
    const pool_work *w = arg;
    for (int64_t i = begin; i < end; i++)
        for (int64_t c = 0; c < w->gather.n_columns; c++) {
            line l = line_of(w, i, &w->gather.columns[c]);
            if (w->position)
                max_line_position(&l, w->in + l.source, w->out + l.target, w->position + l.target);
            else
                max_line(&l, w->in + l.source, w->out + l.target);
        }
}

/* Backward goes tap by tap: to gather would take the same comparisons, of bytes that do not begin where vectors do. */
typedef struct max_back {
    eg__plane plane;
    const float *dy;
    const uint8_t *from;
    float *dx;
    bool add; /* to what is there */
} max_back;

EG__CLONES static void back_line(float *restrict dx, const float *restrict dy, const uint8_t *restrict position,
                                 int tap, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] += position[i] == tap ? dy[i] : 0.0f;
}

static void max_back_row(const max_back *w, int64_t n, int64_t oh)
{
    const eg__plane *p = &w->plane;
    int64_t y_row = (n * p->out[0] + oh) * p->out[1], channels = p->channels, stride = p->win->stride[1];
    for (int64_t tap = 0, kh = 0; kh < p->win->kernel[0]; kh++) {
        int64_t x_row = (n * p->in[0] + oh * p->win->stride[0] + p->rows[kh].first) * p->in[1];
        bool meets = eg__meets(p, kh, oh);
        for (int64_t kw = 0; kw < p->win->kernel[1]; kw++, tap++) {
            eg__span columns = p->columns[kw];
            int64_t step = stride == 1 ? columns.end - columns.begin : 1;
            for (int64_t o = columns.begin; meets && o < columns.end; o += step) {
                int64_t y_at = (y_row + o) * channels;
                back_line(w->dx + (x_row + o * stride + columns.first) * channels, w->dy + y_at, w->from + y_at,
                          (int)tap, step * channels);
            }
        }
    }
}

static void max_back_samples(void *arg, int64_t begin, int64_t end)
{
    const max_back *w = arg;
    int64_t numbers = w->plane.in[0] * w->plane.in[1] * w->plane.channels;
    if (!w->add)
        memset(w->dx + begin * numbers, 0, (size_t)((end - begin) * numbers) * sizeof(float));
    for (int64_t n = begin; n < end; n++)
        for (int64_t oh = 0; oh < w->plane.out[0]; oh++)
            max_back_row(w, n, oh);
}

static bool empty(const eg_tensor *x, const eg_tensor *y)
{
    return eg_shape_numel(x->shape) == 0 || eg_shape_numel(y->shape) == 0;
}

static int64_t work_of(const eg__window *win, const eg_tensor *y)
{
    return eg_shape_numel(y->shape) * win->kernel[0] * win->kernel[1] / 4 + 1;
}

/* Runs a body over the rows of all samples of `out`, gathered from `in`. */
static eg_status run_pool(pool_work *w, const eg_tensor *in, eg_tensor *out, eg__body body)
{
    const eg_tensor *x = w->backward ? out : in, *y = w->backward ? in : out;
    eg_tensor *owned_in = NULL, *owned_out = NULL;
    const eg_tensor *from = eg__in_channels_last(in, &owned_in);
    eg_tensor *to = from ? eg__out_channels_last(out, &owned_out) : NULL;
    eg_status status = to ? eg__gather_make(&w->gather, w->win, x, y, w->backward, w->share[1]) : EG_ENOMEM;
    if (status == EG_OK) {
        w->in = eg__f32(from);
        w->out = eg__f32(to);
        eg__for_each(x->ctx, out->shape.dims[0] * out->shape.dims[2], work_of(w->win, y), body, w);
        eg__gather_free(&w->gather);
    }
    eg_tensor_release(owned_in);
    return eg__out_finish(status, out, owned_out);
}

eg_status eg__cpu_max_pool2d(const eg__window *win, const eg_tensor *x, eg_tensor *y, eg_tensor **workspace)
{
    if (workspace)
        *workspace = NULL;
    if (empty(x, y) || win->kernel[0] >= NOWHERE || win->kernel[1] >= NOWHERE ||
        win->kernel[0] * win->kernel[1] >= NOWHERE)
        return eg__ref_kernels.max_pool2d(win, x, y, workspace);
    if (workspace && !(*workspace = eg__tensor_new(x->ctx, EG_U8, y->shape, EG_LAYOUT_DEFAULT)))
        return EG_ENOMEM;
    pool_work w = {.win = win, .position = workspace ? eg__data(*workspace) : NULL};
    return run_pool(&w, x, y, max_rows);
}

eg_status eg__cpu_max_pool2d_backward(const eg__window *win, const eg_tensor *workspace, const eg_tensor *dy,
                                      eg_tensor *dx, bool add)
{
    if (workspace->dtype != EG_U8) /* the reference's */
        return eg__ref_kernels.max_pool2d_backward(win, workspace, dy, dx, add);
    if (add && !eg__is_channels_last(dx)) {
        eg_tensor *written = eg__add_begin(dx, add);
        eg_status status = written ? eg__cpu_max_pool2d_backward(win, workspace, dy, written, false) : EG_ENOMEM;
        return eg__add_finish(&eg__dnnl_kernels, status, written, dx);
    }
    eg_tensor *owned_dy = NULL, *owned_dx = NULL;
    const eg_tensor *from = eg__in_channels_last(dy, &owned_dy);
    eg_tensor *to = from ? eg__out_channels_last(dx, &owned_dx) : NULL;
    max_back w = {.from = eg__data(workspace), .add = add};
    eg_status status = to ? eg__plane_make(&w.plane, win, dx, dy) : EG_ENOMEM;
    if (status == EG_OK) {
        w.dy = eg__f32(from);
        w.dx = eg__f32(to);
        eg__for_each(dx->ctx, dx->shape.dims[0], work_of(win, dy), max_back_samples, &w);
        eg__plane_free(&w.plane);
    }
    eg_tensor_release(owned_dy);
    return eg__out_finish(status, dx, owned_dx);
}

/* ---- average ---- */

/* How many rows (d = 0) or columns output o divides by. With ceil_mode a window may reach beyond the padding: what lies
 * there never counts. */
static int64_t divisor(const eg__window *win, int d, int64_t o, int64_t in)
{
    int64_t begin = o * win->stride[d] - win->padding[d], end = begin + win->kernel[d];
    int64_t count = win->exclude_pad ? EG_MIN(end, in) - EG_MAX(begin, 0) : EG_MIN(end, in + win->padding[d]) - begin;
    return EG_MAX(count, 1); /* a window without input sums up to 0 */
}

/* The shares of the small side that the taps of a line see. */
typedef struct shares {
    const float *rows, *columns;
    int64_t row_step, column_step;
} shares;

static shares shares_of(const pool_work *w, int64_t row, const eg__run *c)
{
    const eg__gather *g = &w->gather;
    if (!w->backward)
        return (shares){w->share[0] + row, w->share[1] + c->begin, 0, 0};
    return (shares){w->share[0] + g->rows[row].first, w->share[1] + c->first, g->step[0], g->step[1]};
}

EG__INLINE void average_vectors(int vectors, const eg__taps *t, const shares *s, const float *x, float *y, bool add)
{
    eg__v8 sum[4];
    for (int v = 0; v < vectors; v++)
        sum[v] = add ? *(const eg__v8 *)(y + 8 * v) : (eg__v8){0};
    for (int64_t r = 0; r < t->rows; r++, x += t->row_step)
        for (int64_t c = 0; c < t->columns; c++) {
            float share = s->rows[r * s->row_step] * s->columns[c * s->column_step];
            for (int v = 0; v < vectors; v++)
                sum[v] += share * *(const eg__v8 *)(x + c * t->column_step + 8 * v);
        }
    for (int v = 0; v < vectors; v++)
        *(eg__v8 *)(y + 8 * v) = sum[v];
}

static float average_number(const eg__taps *t, const shares *s, const float *x)
{
    float sum = 0.0f;
    for (int64_t r = 0; r < t->rows; r++, x += t->row_step)
        for (int64_t c = 0; c < t->columns; c++)
            sum += s->rows[r * s->row_step] * s->columns[c * s->column_step] * x[c * t->column_step];
    return sum;
}

EG__CLONES static void average_line(const line *l, const shares *s, const float *x, float *y, bool add)
{
    for (int64_t k = 0; k < l->pieces; k++, x += l->source_step, y += l->target_step) {
        int64_t i = 0;
        for (; i + 32 <= l->n; i += 32)
            average_vectors(4, &l->taps, s, x + i, y + i, add);
        for (; i + 16 <= l->n; i += 16)
            average_vectors(2, &l->taps, s, x + i, y + i, add);
        for (; i + 8 <= l->n; i += 8)
            average_vectors(1, &l->taps, s, x + i, y + i, add);
        for (; i < l->n; i++)
            y[i] = (add ? y[i] : 0.0f) + average_number(&l->taps, s, x + i);
    }
}

static void average_rows(void *arg, int64_t begin, int64_t end)
{
    const pool_work *w = arg;
    for (int64_t i = begin; i < end; i++)
        for (int64_t c = 0; c < w->gather.n_columns; c++) {
            const eg__run *columns = &w->gather.columns[c];
            line l = line_of(w, i, columns);
            shares s = shares_of(w, i % w->gather.to[0], columns);
            average_line(&l, &s, w->in + l.source, w->out + l.target, w->add);
        }
}

static eg_status average(pool_work *w, const eg_tensor *in, eg_tensor *out)
{
    const eg_tensor *x = w->backward ? out : in, *y = w->backward ? in : out;
    int64_t rows = y->shape.dims[2], columns = y->shape.dims[3];
    size_t bytes = (size_t)(rows + columns) * sizeof(float);
    w->share[0] = eg__pool_take(x->ctx, bytes);
    if (!w->share[0])
        return EG_ENOMEM;
    w->share[1] = w->share[0] + rows;
    for (int d = 0; d < 2; d++)
        for (int64_t o = 0; o < y->shape.dims[2 + d]; o++)
            w->share[d][o] = 1.0f / (float)divisor(w->win, d, o, x->shape.dims[2 + d]);
    eg_status status = run_pool(w, in, out, average_rows);
    eg__pool_give(x->ctx, w->share[0], bytes);
    return status;
}

eg_status eg__cpu_avg_pool2d(const eg__window *win, const eg_tensor *x, eg_tensor *y)
{
    if (empty(x, y))
        return eg__ref_kernels.avg_pool2d(win, x, y);
    pool_work w = {.win = win};
    return average(&w, x, y);
}

eg_status eg__cpu_avg_pool2d_backward(const eg__window *win, const eg_tensor *dy, eg_tensor *dx, bool add)
{
    if (empty(dx, dy))
        return eg__ref_kernels.avg_pool2d_backward(win, dy, dx, add);
    if (add && !eg__is_channels_last(dx)) {
        eg_tensor *written = eg__add_begin(dx, add);
        eg_status status = written ? eg__cpu_avg_pool2d_backward(win, dy, written, false) : EG_ENOMEM;
        return eg__add_finish(&eg__dnnl_kernels, status, written, dx);
    }
    pool_work w = {.win = win, .backward = true, .add = add};
    return average(&w, dy, dx);
}
