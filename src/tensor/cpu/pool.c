/*
 * tensor/cpu/pool.c - maximum and average pooling of channels-last tensors.
 *
 * One tap (kh, kw) of the window meets a whole output row at once: with stride 1 the input numbers it meets are one
 * contiguous line, whatever the number of channels. Our own because oneDNN's kernels for AVX2 write the positions of
 * maxima through byte masks, a hundred times slower than the rest of the work.
 */
#include "tensor/cpu/pool.h"

#include <math.h>
#include <string.h>

/* A position that no tap has. */
#define NOWHERE 255

static eg__span span_of(const eg__plane *p, int d, int64_t tap)
{
    int64_t shift = tap * p->win->dilation[d] - p->win->padding[d], stride = p->win->stride[d];
    eg__span s = {.first = shift};
    s.begin = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    s.end = p->in[d] - 1 - shift < 0 ? 0 : EG_MIN(p->out[d], (p->in[d] - 1 - shift) / stride + 1);
    return s;
}

eg_status eg__plane_make(eg__plane *plane, const eg__window *win, const eg_tensor *x, const eg_tensor *y)
{
    const int64_t *in = x->shape.dims, *out = y->shape.dims;
    *plane = (eg__plane){.win = win,
                         .channels = in[1],
                         .in = {in[2], in[3]},
                         .out = {out[2], out[3]},
                         .ctx = x->ctx,
                         .bytes = (size_t)(win->kernel[0] + win->kernel[1]) * sizeof(eg__span)};
    plane->rows = eg__pool_take(x->ctx, plane->bytes);
    if (!plane->rows)
        return EG_ENOMEM;
    plane->columns = plane->rows + win->kernel[0];
    for (int64_t kh = 0; kh < win->kernel[0]; kh++)
        plane->rows[kh] = span_of(plane, 0, kh);
    for (int64_t kw = 0; kw < win->kernel[1]; kw++)
        plane->columns[kw] = span_of(plane, 1, kw);
    return EG_OK;
}

void eg__plane_free(eg__plane *plane)
{
    if (plane->rows)
        eg__pool_give(plane->ctx, plane->rows, plane->bytes);
}

typedef struct run {
    int64_t begin, end, divisor;
} run;

typedef struct pool_work {
    eg__plane plane;
    const float *in;
    float *out;
    uint8_t *position;
    const uint8_t *from;
    run *runs; /* average: outputs of a row that divide by the same number of columns */
    int64_t n_runs;
    bool add; /* backward: to what is there */
} pool_work;

/* ---- maximum: the first in scanning order, but a NaN before all ---- */

EG__CLONES static void max_line(float *restrict y, const float *restrict x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = ((x[i] > y[i]) | (x[i] != x[i])) ? x[i] : y[i];
}

EG__CLONES static void max_line_position(float *restrict y, uint8_t *restrict position, const float *restrict x,
                                         uint8_t tap, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        bool larger = (x[i] > y[i]) | (x[i] != x[i]);
        y[i] = larger ? x[i] : y[i];
        position[i] = larger ? tap : position[i];
    }
}

/* Row oh of y so far -infinity, its positions those of the first tap that meets the input. */
static void max_start(const pool_work *w, int64_t oh, float *y, uint8_t *position)
{
    const eg__plane *p = &w->plane;
    int64_t n = p->out[1] * p->channels;
    for (int64_t i = 0; i < n; i++)
        y[i] = -INFINITY;
    if (!position)
        return;
    memset(position, NOWHERE, (size_t)n);
    int64_t kh = 0;
    while (kh < p->win->kernel[0] && !eg__meets(p, kh, oh))
        kh++;
    for (int64_t kw = p->win->kernel[1] - 1; kh < p->win->kernel[0] && kw >= 0; kw--) { /* the first one comes last */
        eg__span columns = p->columns[kw];
        if (columns.begin < columns.end)
            memset(position + columns.begin * p->channels, (int)(kh * p->win->kernel[1] + kw),
                   (size_t)((columns.end - columns.begin) * p->channels));
    }
}

static void max_tap(const pool_work *w, const float *x, float *y, uint8_t *position, eg__span columns, int64_t tap)
{
    int64_t channels = w->plane.channels, stride = w->plane.win->stride[1];
    int64_t step = stride == 1 ? columns.end - columns.begin : 1; /* outputs a line */
    for (int64_t o = columns.begin; o < columns.end; o += step) {
        const float *from = x + (o * stride + columns.first) * channels;
        if (position)
            max_line_position(y + o * channels, position + o * channels, from, (uint8_t)tap, step * channels);
        else
            max_line(y + o * channels, from, step * channels);
    }
}

static void max_rows(void *arg, int64_t begin, int64_t end)
{
    const pool_work *w = arg;
    const eg__plane *p = &w->plane;
    int64_t row = p->out[1] * p->channels;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / p->out[0], oh = i % p->out[0];
        float *y = w->out + i * row;
        uint8_t *position = w->position ? w->position + i * row : NULL;
        max_start(w, oh, y, position);
        for (int64_t kh = 0; kh < p->win->kernel[0]; kh++) {
            if (!eg__meets(p, kh, oh))
                continue;
            int64_t ih = oh * p->win->stride[0] + p->rows[kh].first;
            const float *x = w->in + (n * p->in[0] + ih) * p->in[1] * p->channels;
            for (int64_t kw = 0; kw < p->win->kernel[1]; kw++)
                max_tap(w, x, y, position, p->columns[kw], kh * p->win->kernel[1] + kw);
        }
    }
}

EG__CLONES static void back_line(float *restrict dx, const float *restrict dy, const uint8_t *restrict position,
                                 int tap, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] += position[i] == tap ? dy[i] : 0.0f;
}

static void max_back_row(const pool_work *w, int64_t n, int64_t oh)
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
                back_line(w->out + (x_row + o * stride + columns.first) * channels, w->in + y_at, w->from + y_at,
                          (int)tap, step * channels);
            }
        }
    }
}

static void max_back_samples(void *arg, int64_t begin, int64_t end)
{
    const pool_work *w = arg;
    int64_t numbers = w->plane.in[0] * w->plane.in[1] * w->plane.channels;
    if (!w->add)
        memset(w->out + begin * numbers, 0, (size_t)((end - begin) * numbers) * sizeof(float));
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

/* Runs a body with `w` for the tensors in and out, one of which is the window's large side x and one its small side y.
 */
static eg_status run_pool(pool_work *w, const eg__window *win, const eg_tensor *x, const eg_tensor *y,
                          const eg_tensor *in, eg_tensor *out, int64_t pieces, eg__body body)
{
    eg_tensor *owned_in = NULL, *owned_out = NULL;
    const eg_tensor *from = eg__in_channels_last(in, &owned_in);
    eg_tensor *to = from ? eg__out_channels_last(out, &owned_out) : NULL;
    eg_status status = to ? eg__plane_make(&w->plane, win, x, y) : EG_ENOMEM;
    if (status == EG_OK) {
        w->in = eg__f32(from);
        w->out = eg__f32(to);
        eg__for_each(x->ctx, pieces, work_of(win, y), body, w);
        eg__plane_free(&w->plane);
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
    pool_work w = {.position = workspace ? eg__data(*workspace) : NULL};
    return run_pool(&w, win, x, y, x, y, y->shape.dims[0] * y->shape.dims[2], max_rows);
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
    pool_work w = {.from = eg__data(workspace), .add = add};
    return run_pool(&w, win, dx, dy, dy, dx, dx->shape.dims[0], max_back_samples);
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

static int64_t make_runs(run *runs, const eg__window *win, int64_t in, int64_t out)
{
    int64_t n = 0;
    for (int64_t o = 0; o < out; o++) {
        int64_t count = divisor(win, 1, o, in);
        if (n > 0 && runs[n - 1].divisor == count)
            runs[n - 1].end++;
        else
            runs[n++] = (run){o, o + 1, count};
    }
    return n;
}

EG__CLONES static void add_share(float *restrict y, const float *restrict x, float share, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] += share * x[i];
}

/* A tap in one output row and one run of it. Forward adds shares of x to y, backward shares of dy to dx. */
static void average_tap(const pool_work *w, bool backward, int64_t x_row, int64_t y_row, eg__span columns, const run *r,
                        int64_t rows)
{
    int64_t channels = w->plane.channels, stride = w->plane.win->stride[1];
    int64_t begin = EG_MAX(columns.begin, r->begin), end = EG_MIN(columns.end, r->end),
            step = stride == 1 ? end - begin : 1;
    float share = 1.0f / (float)(rows * r->divisor);
    for (int64_t o = begin; o < end; o += step) {
        int64_t x_at = (x_row + o * stride + columns.first) * channels, y_at = (y_row + o) * channels;
        add_share(w->out + (backward ? x_at : y_at), w->in + (backward ? y_at : x_at), share, step * channels);
    }
}

static void average_row(const pool_work *w, bool backward, int64_t n, int64_t oh)
{
    const eg__plane *p = &w->plane;
    int64_t rows = divisor(p->win, 0, oh, p->in[0]), y_row = (n * p->out[0] + oh) * p->out[1];
    for (int64_t kh = 0; kh < p->win->kernel[0]; kh++) {
        int64_t x_row = (n * p->in[0] + oh * p->win->stride[0] + p->rows[kh].first) * p->in[1];
        if (!eg__meets(p, kh, oh))
            continue;
        for (int64_t kw = 0; kw < p->win->kernel[1]; kw++)
            for (int64_t i = 0; i < w->n_runs; i++)
                average_tap(w, backward, x_row, y_row, p->columns[kw], &w->runs[i], rows);
    }
}

static void average_rows(void *arg, int64_t begin, int64_t end)
{
    const pool_work *w = arg;
    int64_t row = w->plane.out[1] * w->plane.channels;
    memset(w->out + begin * row, 0, (size_t)((end - begin) * row) * sizeof(float));
    for (int64_t i = begin; i < end; i++)
        average_row(w, false, i / w->plane.out[0], i % w->plane.out[0]);
}

static void average_back_samples(void *arg, int64_t begin, int64_t end)
{
    const pool_work *w = arg;
    int64_t numbers = w->plane.in[0] * w->plane.in[1] * w->plane.channels;
    if (!w->add)
        memset(w->out + begin * numbers, 0, (size_t)((end - begin) * numbers) * sizeof(float));
    for (int64_t n = begin; n < end; n++)
        for (int64_t oh = 0; oh < w->plane.out[0]; oh++)
            average_row(w, true, n, oh);
}

static eg_status average(const eg__window *win, const eg_tensor *x, const eg_tensor *y, const eg_tensor *in,
                         eg_tensor *out, bool add, int64_t pieces, eg__body body)
{
    size_t bytes = (size_t)y->shape.dims[3] * sizeof(run);
    pool_work w = {.runs = eg__pool_take(x->ctx, bytes), .add = add};
    if (!w.runs)
        return EG_ENOMEM;
    w.n_runs = make_runs(w.runs, win, x->shape.dims[3], y->shape.dims[3]);
    eg_status status = run_pool(&w, win, x, y, in, out, pieces, body);
    eg__pool_give(x->ctx, w.runs, bytes);
    return status;
}

eg_status eg__cpu_avg_pool2d(const eg__window *win, const eg_tensor *x, eg_tensor *y)
{
    if (empty(x, y))
        return eg__ref_kernels.avg_pool2d(win, x, y);
    return average(win, x, y, x, y, false, y->shape.dims[0] * y->shape.dims[2], average_rows);
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
    return average(win, dx, dy, dy, dx, add, dx->shape.dims[0], average_back_samples);
}
