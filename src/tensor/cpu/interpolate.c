/*
 * tensor/cpu/interpolate.c - images in another size, channels-last: lines of output, or of gradient, over the threads.
 *
 * Which rows and columns an output is made from is computed once, into tables. In backward each row of the input
 * collects from the rows of output that read it, which are neighbours: no two threads write to one place.
 */
#include "tensor/cpu/cpu.h"

#include <string.h>

typedef struct image_work {
    bool nearest;
    int64_t channels, large[2], small[2]; /* sizes of the output, and of the input */
    const float *in;
    float *out;
    eg__tap *taps[2]; /* of rows and columns of the output */
    int64_t *start;   /* [small[0] + 1] the first row of output that reads row i or a later one */
    size_t bytes;
} image_work;

/* For eg__pool_give(ctx, taps[0], bytes). */
static eg_status work_make(image_work *w, const eg__interpolate *ip, const eg_tensor *x, const eg_tensor *y)
{
    *w = (image_work){.nearest = ip->mode == EG__NEAREST, .channels = x->shape.dims[1]};
    for (int a = 0; a < 2; a++) {
        w->small[a] = x->shape.dims[2 + a];
        w->large[a] = y->shape.dims[2 + a];
    }
    size_t taps = (size_t)(w->large[0] + w->large[1]), rows = (size_t)w->small[0] + 1;
    w->bytes = taps * sizeof(eg__tap) + rows * sizeof(int64_t);
    w->taps[0] = eg__pool_take(x->ctx, w->bytes);
    if (!w->taps[0])
        return EG_ENOMEM;
    w->taps[1] = w->taps[0] + w->large[0];
    w->start = (int64_t *)(w->taps[1] + w->large[1]);
    for (int a = 0; a < 2; a++)
        for (int64_t i = 0; i < w->large[a]; i++)
            w->taps[a][i] = eg__interpolate_tap(ip, EG_F32, a, i, w->small[a]);
    for (int64_t i = 0, row = 0; i <= w->small[0]; i++) {
        while (row < w->large[0] && w->taps[0][row].at < i)
            row++;
        w->start[i] = row;
    }
    return EG_OK;
}

/* ---- forward ---- */

EG__CLONES static void interpolate_blend(float *restrict y, const float *const corner[4], const float weight[4],
                                         int64_t n)
{
    const float *a = corner[0], *b = corner[1], *c = corner[2], *d = corner[3];
    float wa = weight[0], wb = weight[1], wc = weight[2], wd = weight[3];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = (wa * a[i] + wb * b[i]) + (wc * c[i] + wd * d[i]);
}

static void copy_columns(const image_work *w, const float *row, float *y)
{
    for (int64_t i = 0; i < w->large[1]; i++)
        memcpy(y + i * w->channels, row + w->taps[1][i].at * w->channels, (size_t)w->channels * sizeof(float));
}

static void blend_columns(const image_work *w, const float *at, const float *next, float down, float *y)
{
    for (int64_t i = 0; i < w->large[1]; i++) {
        const eg__tap *tap = &w->taps[1][i];
        float right = (float)tap->weight;
        int64_t left_at = tap->at * w->channels, right_at = tap->next * w->channels;
        const float *corner[4] = {at + left_at, at + right_at, next + left_at, next + right_at};
        float weight[4] = {(1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right};
        interpolate_blend(y + i * w->channels, corner, weight, w->channels);
    }
}

static void output_rows(void *arg, int64_t begin, int64_t end)
{
    const image_work *w = arg;
    int64_t line = w->small[1] * w->channels;
    for (int64_t i = begin; i < end; i++) {
        const eg__tap *tap = &w->taps[0][i % w->large[0]];
        const float *image = w->in + i / w->large[0] * w->small[0] * line;
        float *y = w->out + i * w->large[1] * w->channels;
        if (w->nearest)
            copy_columns(w, image + tap->at * line, y);
        else
            blend_columns(w, image + tap->at * line, image + tap->next * line, (float)tap->weight, y);
    }
}

/* ---- backward ---- */

EG__CLONES static void interpolate_add(float *restrict dx, const float *restrict dy, float weight, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] += weight * dy[i];
}

static void add_columns(const image_work *w, float down, const float *dy, float *dx)
{
    for (int64_t i = 0; i < w->large[1]; i++) {
        const eg__tap *tap = &w->taps[1][i];
        const float *d = dy + i * w->channels;
        float right = (float)tap->weight;
        interpolate_add(dx + tap->at * w->channels, d, down * (1 - right), w->channels);
        if (tap->next != tap->at)
            interpolate_add(dx + tap->next * w->channels, d, down * right, w->channels);
    }
}

static void gradient_rows(void *arg, int64_t begin, int64_t end)
{
    const image_work *w = arg;
    int64_t line = w->large[1] * w->channels, width = w->small[1] * w->channels;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i % w->small[0];
        const float *image = w->in + i / w->small[0] * w->large[0] * line;
        float *dx = w->out + i * width;
        memset(dx, 0, (size_t)width * sizeof(float));
        for (int64_t o = w->start[EG_MAX(row - 1, 0)]; o < w->start[row + 1]; o++) {
            const eg__tap *tap = &w->taps[0][o];
            double weight = (tap->at == row ? 1 - tap->weight : 0) + (tap->next == row ? tap->weight : 0);
            if (weight != 0)
                add_columns(w, (float)weight, image + o * line, dx);
        }
    }
}

/* ---- the kernels: `x` and `y` are the input and the output, of which one is computed from the other ---- */

static eg_status run(const eg__interpolate *ip, const eg_tensor *x, const eg_tensor *y, const eg_tensor *from,
                     eg_tensor *to, int64_t rows, eg__body body)
{
    image_work w;
    EG_TRY(work_make(&w, ip, x, y));
    w.in = eg__f32(from);
    w.out = eg__f32(to);
    eg__for_each(to->ctx, to->shape.dims[0] * rows, eg_shape_numel(y->shape), body, &w);
    eg__pool_give(to->ctx, w.taps[0], w.bytes);
    return EG_OK;
}

eg_status eg__cpu_interpolate(const eg__interpolate *ip, const eg_tensor *x, eg_tensor *y)
{
    eg_tensor *owned_x = NULL, *owned_y = NULL;
    const eg_tensor *from = eg__in_channels_last(x, &owned_x);
    eg_tensor *to = from ? eg__out_channels_last(y, &owned_y) : NULL;
    eg_status status = to ? run(ip, x, y, from, to, y->shape.dims[2], output_rows) : EG_ENOMEM;
    eg_tensor_release(owned_x);
    return eg__out_finish(status, y, owned_y);
}

eg_status eg__cpu_interpolate_backward(const eg__interpolate *ip, const eg_tensor *dy, eg_tensor *dx)
{
    eg_tensor *owned_dy = NULL, *owned_dx = NULL;
    const eg_tensor *from = eg__in_channels_last(dy, &owned_dy);
    eg_tensor *to = from ? eg__out_channels_last(dx, &owned_dx) : NULL;
    eg_status status = to ? run(ip, dx, dy, from, to, dx->shape.dims[2], gradient_rows) : EG_ENOMEM;
    eg_tensor_release(owned_dy);
    return eg__out_finish(status, dx, owned_dx);
}
