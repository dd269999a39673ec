/*
 * tensor/cpu/conv_weight.c - gradients of the filters of dense convolutions, channels-last.
 *
 * For AVX2, where oneDNN 2.6 is slow in this memory order when there are few channels. For each tap of the filters the
 * gradient is a product of two tall matrices: pixels that the tap sees, transposed, times dy. Output rows are cut into
 * a number of groups that depends on the shapes alone; each group sums up for itself, block of rows by block of rows,
 * and the groups' sums are added in order, in double.
 */
#include "tensor/cpu/plane.h"
#include "tensor/cpu/tile.h"

#include <string.h>

#define MAX_GROUPS 16
#define GROUP_NUMBERS (4 << 20) /* of all groups together, at most, unless two need more */
#define BLOCK_NUMBERS 4096      /* of dy that stay in the cache while all taps pass by */
#define JOINED 64               /* output channels whose groups are added at once */

typedef struct conv_weight {
    eg__plane plane;              /* its channels are those of x */
    int64_t out_channels, padded; /* padded: a multiple of 8 */
    int64_t taps, rows, groups;   /* rows: of all samples */
    int64_t block;                /* rows a block */
    const float *x, *dy;
    float *sums;  /* [groups][taps][channels][padded] */
    float *spare; /* [groups][block][width][padded]: dy with zeros behind each pixel; NULL: dy itself will do */
    float *dw;    /* [out_channels][channels][taps] */
} conv_weight;

/* Rows begin .. end - 1 of dy, with `padded` numbers a pixel; row `begin` is the first. */
static const float *dy_rows(const conv_weight *w, int64_t group, int64_t begin, int64_t end)
{
    int64_t width = w->plane.out[1], n = w->out_channels;
    const float *dy = w->dy + begin * width * n;
    if (!w->spare)
        return dy;
    float *to = w->spare + group * w->block * width * w->padded, *at = to;
    for (int64_t i = 0; i < (end - begin) * width; i++, at += w->padded) {
        memcpy(at, dy + i * n, (size_t)n * sizeof(float));
        memset(at + n, 0, (size_t)(w->padded - n) * sizeof(float));
    }
    return to;
}

/* Channels ic .. ic + rows - 1 of one tap by 8 or 16 output channels: all pixels of the block's rows. */
EG__INLINE void conv_weight_tile(int rows, int vectors, const conv_weight *w, int64_t tap, int64_t begin, int64_t end,
                                 int64_t ic, const float *dy, float *sums)
{
    const eg__plane *p = &w->plane;
    int64_t kh = tap / p->win->kernel[1];
    eg__span columns = p->columns[tap % p->win->kernel[1]];
    eg__v8 sum[EG__TILE_ROWS][2];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            sum[r][v] = *(const eg__v8 *)(sums + r * w->padded + 8 * v);
    for (int64_t row = begin; row < end; row++) {
        int64_t n = row / p->out[0], oh = row % p->out[0];
        if (!eg__meets(p, kh, oh))
            continue;
        int64_t x_row = (n * p->in[0] + oh * p->win->stride[0] + p->rows[kh].first) * p->in[1];
        int64_t x_at = x_row + columns.begin * p->win->stride[1] + columns.first;
        eg__tile_args t = {.a = w->x + x_at * p->channels + ic,
                           .b = dy + ((row - begin) * p->out[1] + columns.begin) * w->padded,
                           .a_row = 1,
                           .a_step = p->win->stride[1] * p->channels,
                           .b_step = w->padded,
                           .depth = columns.end - columns.begin};
        eg__tile_multiply(rows, vectors, &t, sum);
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            *(eg__v8 *)(sums + r * w->padded + 8 * v) = sum[r][v];
}

EG__CLONES static void conv_weight_tap(const conv_weight *w, int64_t tap, int64_t begin, int64_t end, const float *dy,
                                       float *sums)
{
    for (int64_t ic = 0; ic < w->plane.channels; ic += EG__TILE_ROWS) {
        int rows = (int)EG_MIN(EG__TILE_ROWS, w->plane.channels - ic);
        for (int64_t oc = 0; oc < w->padded; oc += EG__TILE_COLUMNS) {
            int vectors = w->padded - oc > 8 ? 2 : 1;
#define TILE(r, v) conv_weight_tile(r, v, w, tap, begin, end, ic, dy + oc, sums + ic * w->padded + oc)
            EG__TILE_SWITCH(rows, vectors, TILE)
#undef TILE
        }
    }
}

static void conv_weight_groups(void *arg, int64_t first, int64_t last)
{
    const conv_weight *w = arg;
    int64_t numbers = w->plane.channels * w->padded;
    for (int64_t g = first; g < last; g++) {
        float *sums = w->sums + g * w->taps * numbers;
        memset(sums, 0, (size_t)(w->taps * numbers) * sizeof(float));
        int64_t end = (g + 1) * w->rows / w->groups;
        for (int64_t row = g * w->rows / w->groups; row < end; row += w->block) {
            int64_t stop = EG_MIN(row + w->block, end);
            const float *dy = dy_rows(w, g, row, stop);
            for (int64_t tap = 0; tap < w->taps; tap++)
                conv_weight_tap(w, tap, row, stop, dy, sums + tap * numbers);
        }
    }
}

/* dw of the taps' input channels begin .. end - 1, counted through all taps. */
EG__CLONES static void join_groups(void *arg, int64_t begin, int64_t end)
{
    const conv_weight *w = arg;
    int64_t channels = w->plane.channels, size = w->taps * channels * w->padded;
    for (int64_t i = begin; i < end; i++)
        for (int64_t first = 0; first < w->out_channels; first += JOINED) {
            int64_t n = EG_MIN(JOINED, w->out_channels - first);
            const float *sums = w->sums + i * w->padded + first;
            double sum[JOINED] = {0};
            for (int64_t g = 0; g < w->groups; g++)
                for (int64_t oc = 0; oc < n; oc++)
                    sum[oc] += (double)sums[g * size + oc];
            float *to = w->dw + (first * channels + i % channels) * w->taps + i / channels;
            for (int64_t oc = 0; oc < n; oc++)
                to[oc * channels * w->taps] = (float)sum[oc];
        }
}

static void plan(conv_weight *w, const eg_tensor *dy)
{
    int64_t size = w->taps * w->plane.channels * w->padded, width = w->plane.out[1];
    w->rows = dy->shape.dims[0] * w->plane.out[0];
    w->groups = EG_MIN(EG_MAX(2, EG_MIN(MAX_GROUPS, GROUP_NUMBERS / size)), w->rows);
    w->block = EG_MAX(1, BLOCK_NUMBERS / (width * w->padded));
}

eg_status eg__cpu_conv_backward_weight(const eg__window *win, const eg_tensor *x, const eg_tensor *dy, eg_tensor *dw)
{
    conv_weight w = {.out_channels = dy->shape.dims[1],
                     .taps = win->kernel[0] * win->kernel[1],
                     .x = eg__f32(x),
                     .dy = eg__f32(dy),
                     .dw = eg__f32(dw)};
    w.padded = (w.out_channels + 7) / 8 * 8;
    EG_TRY(eg__plane_make(&w.plane, win, x, dy));
    plan(&w, dy);
    int64_t sums = w.groups * w.taps * w.plane.channels * w.padded;
    int64_t spare = w.padded == w.out_channels ? 0 : w.groups * w.block * w.plane.out[1] * w.padded;
    size_t bytes = (size_t)(sums + spare) * sizeof(float);
    w.sums = eg__pool_take(x->ctx, bytes);
    if (w.sums) {
        w.spare = spare > 0 ? w.sums + sums : NULL;
        int64_t work = eg_shape_numel(dy->shape) * EG_MAX(1, w.taps * w.plane.channels / 8);
        eg__for_each(x->ctx, w.groups, work, conv_weight_groups, &w);
        eg__for_each(x->ctx, w.taps * w.plane.channels, sums, join_groups, &w);
        eg__pool_give(x->ctx, w.sums, bytes);
    }
    eg__plane_free(&w.plane);
    return w.sums ? EG_OK : EG_ENOMEM;
}
