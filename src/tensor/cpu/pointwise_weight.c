/*
 * tensor/cpu/pointwise_weight.c - gradients of the filters of 1x1 convolutions, channels-last.
 *
 * For AVX2, where oneDNN 2.6 is slow when there are many channels and few pixels a sample. The gradient is the product
 * of two tall matrices with a row a pixel, dy transposed times x. Pixels are summed in groups whose number depends on
 * the shapes alone, and the groups' sums are added in order, in double.
 *
 * Where there are few channels memory is the limit, so each tile asks for a share of the next block's numbers, which
 * come while this block is worked on.
 */
#include "tensor/cpu/tile.h"

/* A tile has four rows of three vectors, or six of two: twelve sums either way, as in tile.h. Four of two where that
 * leaves no row over. */
enum { VECTORS = 3, ROWS = 6, FEW_ROWS = 4, LINE = 64 };
enum { MAX_GROUPS = 16, GROUP_PIXELS = 128, MIN_BLOCK = 32, MAX_BLOCK = 128, JOINED = 32 };

#define GROUP_NUMBERS (4 << 20) /* of all groups together, at most, unless two need more */
#define BLOCK_NUMBERS 4096      /* of x and dy that stay in the cache while all tiles pass by */

/* How many of the vectors that are left make up the next panel of columns: three, if no single one is left behind. */
static int panel_vectors(int64_t left)
{
    return left == 4 ? 2 : (int)EG_MIN(VECTORS, left);
}

typedef struct pointwise {
    const float *x, *dy;
    float *sums, *dw; /* sums: [groups][out][in] */
    int64_t in, out, pixels, groups, block;
} pointwise;

/* The next block's x and dy, and how many bytes of each a tile asks for. */
typedef struct ahead {
    uintptr_t at[2];
    uintptr_t bytes[2];
} ahead;

static ahead ahead_of(const pointwise *f, int64_t end, int64_t tiles)
{
    ahead a = {{(uintptr_t)(f->x + end * f->in), (uintptr_t)(f->dy + end * f->out)}, {0, 0}};
    const int64_t numbers[2] = {f->block * f->in, f->block * f->out};
    for (int i = 0; i < 2; i++)
        a.bytes[i] = (uintptr_t)(numbers[i] * (int64_t)sizeof(float) / tiles / LINE + 1) * LINE;
    return a;
}

EG__INLINE void ask_for_share(ahead *a)
{
    for (int i = 0; i < 2; i++)
        for (uintptr_t end = a->at[i] + a->bytes[i]; a->at[i] < end; a->at[i] += LINE)
            __builtin_prefetch((const void *)a->at[i]);
}

/* Adds the pixels of a block to the gradients of some output channels by the columns of a panel, or if it is the
 * group's first block, sets them. */
EG__INLINE void pointwise_tile(int rows, int vectors, const pointwise *f, int64_t pixels, const float *dy,
                               const float *panel, float *sums, bool first)
{
    eg__v8 sum[ROWS][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            sum[r][v] = first ? (eg__v8){0} : *(const eg__v8 *)(sums + r * f->in + 8 * v);
    for (int64_t i = 0; i < pixels; i++, dy += f->out, panel += 8 * vectors) {
        eg__v8 b[VECTORS];
        for (int v = 0; v < vectors; v++)
            b[v] = *(const eg__v8 *)(panel + 8 * v);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++)
                sum[r][v] += dy[r] * b[v];
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            *(eg__v8 *)(sums + r * f->in + 8 * v) = sum[r][v];
}

EG__INLINE void pointwise_panel(int rows, int vectors, const pointwise *f, int64_t pixels, const float *x,
                                const float *dy, float *sums, bool first, ahead *next)
{
    float panel[MAX_BLOCK * 8 * VECTORS];
    for (int64_t i = 0; i < pixels; i++)
        for (int v = 0; v < vectors; v++)
            *(eg__v8 *)(panel + (i * vectors + v) * 8) = *(const eg__v8 *)(x + i * f->in + 8 * v);
    int64_t oc = 0;
    for (; oc + rows <= f->out; oc += rows) {
        ask_for_share(next);
        pointwise_tile(rows, vectors, f, pixels, dy + oc, panel, sums + oc * f->in, first);
    }
    for (; oc < f->out; oc++)
        pointwise_tile(1, vectors, f, pixels, dy + oc, panel, sums + oc * f->in, first);
}

EG__CLONES static void pointwise_block(const pointwise *f, int64_t begin, int64_t pixels, float *sums, bool first)
{
    const float *x = f->x + begin * f->in, *dy = f->dy + begin * f->out;
    bool few = f->out % ROWS != 0 && f->out % FEW_ROWS == 0;
    int64_t panels = (f->in / 8 + VECTORS - 1) / VECTORS, tiles = panels * (f->out / (few ? FEW_ROWS : ROWS));
    ahead next = ahead_of(f, begin + pixels, EG_MAX(1, tiles));
    for (int64_t ic = 0; ic < f->in;) {
        int vectors = panel_vectors((f->in - ic) / 8);
        if (vectors == 3)
            pointwise_panel(FEW_ROWS, 3, f, pixels, x + ic, dy, sums + ic, first, &next);
        else if (vectors == 2 && few)
            pointwise_panel(FEW_ROWS, 2, f, pixels, x + ic, dy, sums + ic, first, &next);
        else if (vectors == 2)
            pointwise_panel(ROWS, 2, f, pixels, x + ic, dy, sums + ic, first, &next);
        else
            pointwise_panel(ROWS, 1, f, pixels, x + ic, dy, sums + ic, first, &next);
        ic += 8 * vectors;
    }
}

static void pointwise_groups(void *arg, int64_t first, int64_t last)
{
    const pointwise *f = arg;
    for (int64_t g = first; g < last; g++) {
        float *sums = f->sums + g * f->in * f->out;
        int64_t begin = g * f->pixels / f->groups, end = (g + 1) * f->pixels / f->groups;
        for (int64_t at = begin; at < end; at += f->block)
            pointwise_block(f, at, EG_MIN(f->block, end - at), sums, at == begin);
    }
}

/* Some neighbours at a time: the same number of all groups lies where the cache has room for a few only. */
EG__CLONES static void pointwise_join(const pointwise *f, int64_t begin, int64_t end)
{
    for (int64_t at = begin; at < end; at += JOINED) {
        double sum[JOINED] = {0};
        int64_t n = EG_MIN(JOINED, end - at);
        for (int64_t g = 0; g < f->groups; g++) {
            const float *from = f->sums + g * f->in * f->out + at;
#pragma omp simd
            for (int64_t k = 0; k < n; k++)
                sum[k] += (double)from[k];
        }
        for (int64_t k = 0; k < n; k++)
            f->dw[at + k] = (float)sum[k];
    }
}

static void join_range(void *arg, int64_t begin, int64_t end)
{
    pointwise_join(arg, begin, end);
}

/* Elsewhere oneDNN is as fast, or faster; with a bias, whose gradient it finds on the way, on all but small images. */
bool eg__pointwise_weight_fits(const eg_tensor *x, const eg_tensor *dy, bool bias)
{
    int64_t in = x->shape.dims[1], out = dy->shape.dims[1];
    bool small = x->shape.dims[2] * x->shape.dims[3] <= 16;
    return in % 8 == 0 && ((in >= 64 && small) || (in >= 24 && out >= 24 && out % FEW_ROWS == 0 && !bias));
}

eg_status eg__cpu_pointwise_backward_weight(const eg_tensor *x, const eg_tensor *dy, eg_tensor *dw)
{
    pointwise f = {.x = eg__f32(x), .dy = eg__f32(dy), .dw = eg__f32(dw)};
    f.in = x->shape.dims[1];
    f.out = dy->shape.dims[1];
    f.pixels = eg_shape_numel(x->shape) / f.in;
    f.block = EG_MAX(MIN_BLOCK, EG_MIN(MAX_BLOCK, BLOCK_NUMBERS / (f.in + f.out)));
    int64_t numbers = f.in * f.out, groups = EG_MIN(MAX_GROUPS, GROUP_NUMBERS / numbers);
    f.groups = EG_MIN(f.pixels, EG_MAX(2, EG_MIN(groups, f.pixels / GROUP_PIXELS)));
    size_t bytes = (size_t)(f.groups * numbers) * sizeof(float);
    f.sums = eg__pool_take(x->ctx, bytes);
    if (!f.sums)
        return EG_ENOMEM;
    eg__for_each(x->ctx, f.groups, f.pixels * EG_MAX(f.in, numbers / 8), pointwise_groups, &f);
    eg__for(x->ctx, numbers, numbers * f.groups, join_range, &f);
    eg__pool_give(x->ctx, f.sums, bytes);
    return EG_OK;
}
