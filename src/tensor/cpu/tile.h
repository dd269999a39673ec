/*
 * tensor/cpu/tile.h - the inner loops of products: up to six rows times sixteen columns, held in registers.
 *
 * Twelve accumulators of eight numbers, a broadcast for each row and two loads for the columns: what the sixteen vector
 * registers of AVX2 have room for, and enough independent sums to hide the latency of a fused multiply-add. Files that
 * include this are compiled with contraction of a * b + c allowed.
 */
#ifndef EG_TENSOR_CPU_TILE_H
#define EG_TENSOR_CPU_TILE_H

#include "tensor/cpu/cpu.h"

#define EG__TILE_ROWS 6
#define EG__TILE_COLUMNS 16

typedef float eg__v8 __attribute__((vector_size(32), aligned(4), may_alias));

/** What a tile is computed from: element (r, k) of the left side is a[r * a_row + k * a_step], row k of the right side
 *  is b + k * b_step. One of a's distances should be a constant 1. */
typedef struct eg__tile_args {
    const float *a, *b;
    int64_t a_row, a_step, b_step, depth;
} eg__tile_args;

/** sum[r][v] += the product, for constant numbers of rows and of vectors of eight columns. */
EG__INLINE void eg__tile_multiply(int rows, int vectors, const eg__tile_args *t, eg__v8 sum[EG__TILE_ROWS][2])
{
    const float *a = t->a, *b = t->b;
    for (int64_t k = 0; k < t->depth; k++, a += t->a_step, b += t->b_step) {
        eg__v8 b0 = *(const eg__v8 *)b, b1 = vectors > 1 ? *(const eg__v8 *)(b + 8) : b0;
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            float x = a[r * t->a_row];
            sum[r][0] += x * b0;
            if (vectors > 1)
                sum[r][1] += x * b1;
        }
    }
}

/** Calls EXPRESSION(rows, vectors) with constants for the variables `rows` (1 .. 6) and `vectors` (1, 2). */
#define EG__TILE_SWITCH(rows, vectors, EXPRESSION)                                                                     \
    switch ((rows)*2 + (vectors)-1) {                                                                                  \
    case 13:                                                                                                           \
        EXPRESSION(6, 2);                                                                                              \
        break;                                                                                                         \
    case 12:                                                                                                           \
        EXPRESSION(6, 1);                                                                                              \
        break;                                                                                                         \
    case 11:                                                                                                           \
        EXPRESSION(5, 2);                                                                                              \
        break;                                                                                                         \
    case 10:                                                                                                           \
        EXPRESSION(5, 1);                                                                                              \
        break;                                                                                                         \
    case 9:                                                                                                            \
        EXPRESSION(4, 2);                                                                                              \
        break;                                                                                                         \
    case 8:                                                                                                            \
        EXPRESSION(4, 1);                                                                                              \
        break;                                                                                                         \
    case 7:                                                                                                            \
        EXPRESSION(3, 2);                                                                                              \
        break;                                                                                                         \
    case 6:                                                                                                            \
        EXPRESSION(3, 1);                                                                                              \
        break;                                                                                                         \
    case 5:                                                                                                            \
        EXPRESSION(2, 2);                                                                                              \
        break;                                                                                                         \
    case 4:                                                                                                            \
        EXPRESSION(2, 1);                                                                                              \
        break;                                                                                                         \
    case 3:                                                                                                            \
        EXPRESSION(1, 2);                                                                                              \
        break;                                                                                                         \
    default:                                                                                                           \
        EXPRESSION(1, 1);                                                                                              \
        break;                                                                                                         \
    }

#endif
