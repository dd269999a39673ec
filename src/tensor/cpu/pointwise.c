/*
 * tensor/cpu/pointwise.c - 1x1 convolutions of channels-last images: rows of pixels times a small matrix.
 *
 * For AVX2, where oneDNN 2.6 reaches half of what is possible in this memory order. The matrix is packed into panels of
 * sixteen columns, each of which stays in the cache while a block of pixels passes by. A number is summed by one thread
 * in one order.
 */
#include "tensor/cpu/tile.h"

#include <string.h>

#define BLOCK_PIXELS 48

typedef struct pointwise {
    int64_t pixels, depth, columns;
    const float *x;      /* [pixels][depth] */
    const float *panels; /* [columns / 16, rounded up][depth][16], zeros at the end */
    const float *bias;   /* [columns, rounded up]; NULL: none */
    float *y;            /* [pixels][columns] */
    bool add;            /* to what y holds */
} pointwise;

EG__INLINE void pointwise_tile(int rows, int vectors, const pointwise *p, const eg__tile_args *t, const float *bias,
                               float *y, int64_t columns)
{
    eg__v8 sum[EG__TILE_ROWS][2];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            sum[r][v] = bias ? *(const eg__v8 *)(bias + 8 * v) : (eg__v8){0};
    eg__tile_multiply(rows, vectors, t, sum);
    if (columns == 8 * vectors) {
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++) {
                eg__v8 *to = (eg__v8 *)(y + r * p->columns + 8 * v);
                if (p->add)
                    sum[r][v] += *to;
                *to = sum[r][v];
            }
        return;
    }
    for (int r = 0; r < rows; r++) {
        float *to = y + r * p->columns;
        for (int64_t i = 0; i < columns; i++)
            to[i] = p->add ? to[i] + sum[r][i / 8][i % 8] : sum[r][i / 8][i % 8];
    }
}

EG__CLONES static void pointwise_panel(const pointwise *p, int64_t begin, int64_t end, int64_t first)
{
    int64_t columns = EG_MIN(EG__TILE_COLUMNS, p->columns - first);
    const float *bias = p->bias ? p->bias + first : NULL;
    int vectors = columns > 8 ? 2 : 1;
    for (int64_t at = begin; at < end; at += EG__TILE_ROWS) {
        int rows = (int)EG_MIN(EG__TILE_ROWS, end - at);
        float *y = p->y + at * p->columns + first;
        eg__tile_args t = {.a = p->x + at * p->depth,
                           .b = p->panels + first * p->depth,
                           .a_row = p->depth,
                           .a_step = 1,
                           .b_step = EG__TILE_COLUMNS,
                           .depth = p->depth};
#define TILE(r, v) pointwise_tile(r, v, p, &t, bias, y, columns)
        EG__TILE_SWITCH(rows, vectors, TILE)
#undef TILE
    }
}

static void pointwise_blocks(void *arg, int64_t begin, int64_t end)
{
    const pointwise *p = arg;
    for (int64_t b = begin; b < end; b++)
        for (int64_t first = 0; first < p->columns; first += EG__TILE_COLUMNS)
            pointwise_panel(p, b * BLOCK_PIXELS, EG_MIN((b + 1) * BLOCK_PIXELS, p->pixels), first);
}

/* Element (k, j) of the matrix is w[k * k_step + j * j_step]. */
static void pack(const pointwise *p, const float *w, int64_t k_step, int64_t j_step, float *panels)
{
    for (int64_t first = 0; first < p->columns; first += EG__TILE_COLUMNS)
        for (int64_t k = 0; k < p->depth; k++, panels += EG__TILE_COLUMNS)
            for (int64_t j = 0; j < EG__TILE_COLUMNS; j++)
                panels[j] = first + j < p->columns ? w[k * k_step + (first + j) * j_step] : 0.0f;
}

static eg_status run(pointwise *p, const eg_tensor *w, int64_t k_step, int64_t j_step, const eg_tensor *bias)
{
    int64_t padded = (p->columns + EG__TILE_COLUMNS - 1) / EG__TILE_COLUMNS * EG__TILE_COLUMNS;
    size_t bytes = (size_t)(padded * (p->depth + 1)) * sizeof(float);
    float *memory = eg__pool_take(w->ctx, bytes);
    if (!memory)
        return EG_ENOMEM;
    pack(p, eg__f32(w), k_step, j_step, memory);
    p->panels = memory;
    if (bias) {
        float *copy = memory + padded * p->depth;
        memset(copy, 0, (size_t)padded * sizeof(float));
        for (int64_t j = 0; j < p->columns; j++)
            copy[j] = eg__f32(bias)[j * bias->strides[0]];
        p->bias = copy;
    }
    int64_t blocks = (p->pixels + BLOCK_PIXELS - 1) / BLOCK_PIXELS;
    eg__for_each(w->ctx, blocks, p->pixels * p->columns * EG_MAX(1, p->depth / 8), pointwise_blocks, p);
    eg__pool_give(w->ctx, memory, bytes);
    return EG_OK;
}

eg_status eg__cpu_pointwise(const eg_tensor *x, const eg_tensor *w, const eg_tensor *bias, eg_tensor *y)
{
    int64_t depth = w->shape.dims[1], columns = w->shape.dims[0];
    pointwise p = {.pixels = eg_shape_numel(x->shape) / depth,
                   .depth = depth,
                   .columns = columns,
                   .x = eg__f32(x),
                   .y = eg__f32(y)};
    return run(&p, w, 1, depth, bias);
}

eg_status eg__cpu_pointwise_backward_input(const eg_tensor *w, const eg_tensor *dy, eg_tensor *dx, bool add)
{
    int64_t depth = w->shape.dims[0], columns = w->shape.dims[1];
    pointwise p = {.pixels = eg_shape_numel(dy->shape) / depth,
                   .depth = depth,
                   .columns = columns,
                   .x = eg__f32(dy),
                   .y = eg__f32(dx),
                   .add = add};
    return run(&p, w, columns, 1, NULL);
}
