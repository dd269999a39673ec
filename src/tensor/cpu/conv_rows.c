/*
 * tensor/cpu/conv_rows.c - dense convolutions, channels-last, row by row.
 *
 * For AVX2, where oneDNN 2.6 reaches about half of the machine's speed in this memory order. A tile of up to six
 * neighbouring outputs of a row by sixteen output channels stays in registers while all taps pass by. The input rows
 * that an output row sees lie in a ring of copies with zeros on both sides, so that no tap needs to know of borders,
 * and the taps of a filter's row are one run of numbers. The gradient of the input is the same with filters turned
 * around.
 */
#include "tensor/cpu/plane.h"
#include "tensor/cpu/tile.h"

#include <string.h>

#define LINE 16 /* numbers a cache line */

typedef struct conv_rows {
    eg__plane plane;              /* its channels are those of x */
    int64_t out_channels, padded; /* padded: a multiple of 8 */
    int64_t rows, pieces;         /* rows: of all samples */
    int64_t slots, columns;       /* rows of a ring, and columns of such a row */
    int64_t first, copied;        /* where in it the input's columns begin, and how many of them are needed */
    const float *x, *w, *bias;    /* bias: [padded] */
    float *y, *rings;             /* [pieces][slots][columns][channels] */
    bool add;
} conv_rows;

/* ---- filters ---- */

typedef struct packing {
    const float *w;
    float *packed;
    int64_t out, in, taps; /* channels of the convolution's output and input */
    bool turned;
} packing;

/* Output channels 16 * begin .. 16 * end - 1. */
static void pack_blocks(void *arg, int64_t begin, int64_t end)
{
    const packing *p = arg;
    int64_t padded = (p->out + 7) / 8 * 8;
    for (int64_t oc = begin * EG__TILE_COLUMNS; oc < EG_MIN(padded, end * EG__TILE_COLUMNS); oc += EG__TILE_COLUMNS) {
        int64_t width = EG_MIN(EG__TILE_COLUMNS, padded - oc), filled = EG_MIN(width, p->out - oc);
        float *to = p->packed + oc * p->in * p->taps;
        for (int64_t tap = 0; tap < p->taps; tap++)
            for (int64_t ic = 0; ic < p->in; ic++, to += width) {
                const float *from = p->turned ? p->w + (ic * p->out + oc) * p->taps + p->taps - 1 - tap
                                              : p->w + (oc * p->in + ic) * p->taps + tap;
                int64_t step = p->turned ? p->taps : p->in * p->taps;
                for (int64_t i = 0; i < width; i++)
                    to[i] = i < filled ? from[i * step] : 0;
            }
    }
}

int64_t eg__cpu_conv_rows_packed(const eg_tensor *w, bool turned)
{
    return (w->shape.dims[turned] + 7) / 8 * 8 * w->shape.dims[!turned] * w->shape.dims[2] * w->shape.dims[3];
}

void eg__cpu_conv_rows_pack(const eg_tensor *w, bool turned, float *packed)
{
    packing p = {.w = eg__f32(w),
                 .packed = packed,
                 .out = w->shape.dims[turned],
                 .in = w->shape.dims[!turned],
                 .taps = w->shape.dims[2] * w->shape.dims[3],
                 .turned = turned};
    int64_t blocks = (p.out + EG__TILE_COLUMNS - 1) / EG__TILE_COLUMNS;
    eg__for_each(w->ctx, blocks, eg_shape_numel(w->shape), pack_blocks, &p);
}

/* ---- rows ---- */

/* One vector of results to its place, or the first n numbers of it. */
EG__INLINE void put(float *y, const eg__v8 *sum, int64_t n, bool add)
{
    if (n >= 8) {
        eg__v8 all = *sum;
        if (add)
            all += *(eg__v8 *)y;
        *(eg__v8 *)y = all;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        y[i] = add ? y[i] + (*sum)[i] : (*sum)[i];
}

/* One output row: the kernel rows that meet the input, the first of them in which slot, and the results. */
typedef struct row_work {
    const conv_rows *c;
    const float *ring;
    int64_t kh, kh_end, slot;
    float *y;
} row_work;

/* Its outputs ow .. ow + rows - 1 by 8 or 16 channels from oc on. */
EG__INLINE void conv_rows_tile(int rows, int vectors, const row_work *work, int64_t ow, int64_t oc)
{
    const conv_rows *c = work->c;
    const eg__window *win = c->plane.win;
    int64_t channels = c->plane.channels, runs = win->dilation[1] == 1 ? 1 : win->kernel[1], slot = work->slot;
    const float *at = work->ring + ow * win->stride[1] * channels;
    eg__tile_args t = {.b = c->w + (oc * win->kernel[0] + work->kh * 8 * vectors) * win->kernel[1] * channels,
                       .a_row = win->stride[1] * channels,
                       .a_step = 1,
                       .b_step = 8 * vectors,
                       .depth = win->kernel[1] / runs * channels};
    float *y = work->y + ow * c->out_channels + oc;
    eg__v8 sum[EG__TILE_ROWS][2];
    for (int r = 0; r < rows; r++) {
        __builtin_prefetch(y + r * c->out_channels, 1); /* there when the sums are */
        for (int v = 0; v < vectors; v++)
            sum[r][v] = *(const eg__v8 *)(c->bias + oc + 8 * v);
    }
    for (int64_t kh = work->kh; kh < work->kh_end; kh++) {
        t.a = at + slot * c->columns * channels;
        for (int64_t run = 0; run < runs; run++) {
            eg__tile_multiply(rows, vectors, &t, sum);
            t.a += win->dilation[1] * channels;
            t.b += t.depth * t.b_step;
        }
        slot += win->dilation[0];
        slot -= slot >= c->slots ? c->slots : 0;
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            put(y + r * c->out_channels + 8 * v, &sum[r][v], c->out_channels - oc - 8 * v, c->add);
}

EG__CLONES static void conv_rows_row(const row_work *work)
{
    const conv_rows *c = work->c;
    int64_t width = c->plane.out[1], tiles = (width + EG__TILE_ROWS - 1) / EG__TILE_ROWS;
    for (int64_t oc = 0; oc < c->padded; oc += EG__TILE_COLUMNS) {
        int vectors = c->padded - oc > 8 ? 2 : 1;
        int64_t ow = 0;
        for (int64_t tile = 0; tile < tiles; tile++) { /* of nearly equal widths */
            int rows = (int)(width / tiles + (tile < width % tiles));
#define TILE(r, v) conv_rows_tile(r, v, work, ow, oc)
            EG__TILE_SWITCH(rows, vectors, TILE)
#undef TILE
            ow += rows;
        }
    }
}

/* Copies input rows of sample n into the ring, from `next` on up to the last one that output row oh sees. Returns the
 * first row not copied. */
static int64_t copy_rows(const conv_rows *c, float *ring, int64_t n, int64_t oh, int64_t next)
{
    const eg__plane *p = &c->plane;
    int64_t at = oh * p->win->stride[0];
    int64_t last = EG_MIN(p->in[0] - 1, at + p->rows[p->win->kernel[0] - 1].first);
    next = EG_MAX(next, EG_MAX(0, at + p->rows[0].first));
    for (; next <= last; next++) {
        const float *x = c->x + (n * p->in[0] + next) * p->in[1] * p->channels;
        float *to = ring + (next % c->slots * c->columns + c->first) * p->channels;
        memcpy(to, x, (size_t)(c->copied * p->channels) * sizeof(float));
        if (next < p->in[0] - 1) /* the row that comes next: it arrives while we compute */
            for (int64_t i = 0; i < c->copied * p->channels; i += LINE)
                __builtin_prefetch(x + p->in[1] * p->channels + i);
    }
    return next;
}

static void conv_rows_pieces(void *arg, int64_t first, int64_t last)
{
    const conv_rows *c = arg;
    const eg__plane *p = &c->plane;
    int64_t numbers = c->slots * c->columns * p->channels;
    for (int64_t i = first; i < last; i++) {
        float *ring = c->rings + i * numbers;
        memset(ring, 0, (size_t)numbers * sizeof(float));
        int64_t end = (i + 1) * c->rows / c->pieces, next = 0;
        for (int64_t row = i * c->rows / c->pieces; row < end; row++) {
            int64_t n = row / p->out[0], oh = row % p->out[0];
            row_work work = {.c = c, .ring = ring, .y = c->y + row * p->out[1] * c->out_channels};
            next = copy_rows(c, ring, n, oh, oh == 0 ? 0 : next);
            while (work.kh < p->win->kernel[0] && !eg__meets(p, work.kh, oh))
                work.kh++;
            work.kh_end = work.kh;
            while (work.kh_end < p->win->kernel[0] && eg__meets(p, work.kh_end, oh))
                work.kh_end++;
            if (work.kh < work.kh_end)
                work.slot = (oh * p->win->stride[0] + p->rows[work.kh].first) % c->slots;
            conv_rows_row(&work);
        }
    }
}

static void conv_rows_plan(conv_rows *c, const eg_tensor *y)
{
    const eg__plane *p = &c->plane;
    int64_t extent[2];
    for (int i = 0; i < 2; i++)
        extent[i] = (p->win->kernel[i] - 1) * p->win->dilation[i] + 1;
    c->rows = y->shape.dims[0] * p->out[0];
    c->pieces = EG_MIN(eg_context_threads(y->ctx), c->rows);
    c->slots = EG_MIN(extent[0], p->in[0]);
    c->columns = (p->out[1] - 1) * p->win->stride[1] + extent[1];
    c->first = p->win->padding[1];
    c->copied = EG_MAX(0, EG_MIN(p->in[1], c->columns - c->first));
    c->padded = (c->out_channels + 7) / 8 * 8;
}

eg_status eg__cpu_conv_rows(const eg__window *win, const eg_tensor *x, const float *packed, const eg_tensor *bias,
                            eg_tensor *y, bool add)
{
    conv_rows c = {.out_channels = y->shape.dims[1], .x = eg__f32(x), .w = packed, .y = eg__f32(y), .add = add};
    EG_TRY(eg__plane_make(&c.plane, win, x, y));
    conv_rows_plan(&c, y);
    int64_t numbers = c.pieces * c.slots * c.columns * c.plane.channels;
    size_t bytes = (size_t)(c.padded + numbers) * sizeof(float);
    float *spare = eg__pool_take(x->ctx, bytes);
    if (spare) {
        memset(spare, 0, (size_t)c.padded * sizeof(float));
        if (bias)
            memcpy(spare, eg__f32(bias), (size_t)c.out_channels * sizeof(float));
        c.bias = spare;
        c.rings = spare + c.padded;
        int64_t taps = win->kernel[0] * win->kernel[1];
        eg__for_each(x->ctx, c.pieces, eg_shape_numel(y->shape) * EG_MAX(1, taps * c.plane.channels / 8),
                     conv_rows_pieces, &c);
        eg__pool_give(x->ctx, spare, bytes);
    }
    eg__plane_free(&c.plane);
    return spare ? EG_OK : EG_ENOMEM;
}
