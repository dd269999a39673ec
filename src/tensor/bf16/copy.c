/*
 * tensor/bf16/copy.c - copies between float32 and bfloat16, and rounding: line by line, or all at once where both lie
 * alike in memory.
 */
#include "tensor/cpu/cpu.h"

#include <string.h>

typedef struct copying {
    const eg_tensor *x;
    eg_tensor *y;
    int inner; /* dimension of the lines */
} copying;

EG__CLONES static void bf16_widen_line(int64_t n, const uint16_t *x, int64_t x_step, float *y, int64_t y_step)
{
    if (x_step == 1 && y_step == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] = eg__bf16_to_f32(x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            y[i * y_step] = eg__bf16_to_f32(x[i * x_step]);
}

EG__CLONES static void bf16_narrow_line(int64_t n, const float *x, int64_t x_step, uint16_t *y, int64_t y_step)
{
    if (x_step == 1 && y_step == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] = eg__bf16_of(x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            y[i * y_step] = eg__bf16_of(x[i * x_step]);
}

EG__CLONES static void bf16_round_line(int64_t n, const float *x, int64_t x_step, float *y, int64_t y_step)
{
    for (int64_t i = 0; i < n; i++)
        y[i * y_step] = eg__bf16_to_f32(eg__bf16_of(x[i * x_step]));
}

static void move_line(int64_t n, const uint16_t *x, int64_t x_step, uint16_t *y, int64_t y_step)
{
    for (int64_t i = 0; i < n; i++)
        y[i * y_step] = x[i * x_step];
}

static void copy_line(const copying *c, int64_t n, int64_t x, int64_t x_step, int64_t y, int64_t y_step)
{
    bool narrow_x = c->x->dtype == EG_BF16, narrow_y = c->y->dtype == EG_BF16;
    if (narrow_x && narrow_y)
        move_line(n, eg__bf16(c->x) + x, x_step, eg__bf16(c->y) + y, y_step);
    else if (narrow_x)
        bf16_widen_line(n, eg__bf16(c->x) + x, x_step, eg__f32(c->y) + y, y_step);
    else if (narrow_y)
        bf16_narrow_line(n, eg__f32(c->x) + x, x_step, eg__bf16(c->y) + y, y_step);
    else
        bf16_round_line(n, eg__f32(c->x) + x, x_step, eg__f32(c->y) + y, y_step);
}

static void copy_memory(void *arg, int64_t begin, int64_t end)
{
    copy_line(arg, end - begin, begin, 1, begin, 1);
}

static void copy_lines(void *arg, int64_t begin, int64_t end)
{
    const copying *c = arg;
    for (int64_t i = begin; i < end; i++)
        copy_line(c, c->y->shape.dims[c->inner], eg__line_at(c->x, c->inner, i), c->x->strides[c->inner],
                  eg__line_at(c->y, c->inner, i), c->y->strides[c->inner]);
}

/* The dimension in which neighbours are nearest in y. */
static int innermost(const eg_tensor *y)
{
    int inner = y->shape.ndim - 1;
    for (int d = 0; d < y->shape.ndim; d++)
        if (y->shape.dims[d] > 1 && (y->shape.dims[inner] == 1 || y->strides[d] < y->strides[inner]))
            inner = d;
    return inner;
}

eg_status eg__bf16_copy(const eg_tensor *x, eg_tensor *y, bool rounded)
{
    if (x->dtype == EG_F32 && y->dtype == EG_F32 && !rounded)
        return eg__kernels_of_f32(y->ctx)->copy(x, y);
    int64_t n = eg_shape_numel(y->shape);
    copying c = {.x = x, .y = y, .inner = innermost(y)};
    if (n == 0)
        return EG_OK;
    if (y->shape.ndim == 0 || (eg__is_dense(x) && eg__is_dense(y) && eg__same_strides(x, y)))
        eg__for(y->ctx, n, n, copy_memory, &c);
    else
        eg__for_each(y->ctx, n / y->shape.dims[c.inner], n, copy_lines, &c);
    return EG_OK;
}
