/*
 * tensor/cpu/plane.h - where the taps of a window meet a channels-last image.
 */
#ifndef EG_TENSOR_CPU_PLANE_H
#define EG_TENSOR_CPU_PLANE_H

#include "tensor/cpu/cpu.h"

/** Outputs begin .. end - 1 are those for which a tap meets the input, output o at input o * stride + first. */
typedef struct eg__span {
    int64_t begin, end, first;
} eg__span;

/** Sizes of a window's two sides, the larger one (in) and the smaller one (out), and where its taps meet them. */
typedef struct eg__plane {
    const eg__window *win;
    int64_t channels, in[2], out[2];
    eg__span *rows, *columns; /* of taps kh, kw */
    eg_context *ctx;
    size_t bytes;
} eg__plane;
eg_status eg__plane_make(eg__plane *plane, const eg__window *win, const eg_tensor *x, const eg_tensor *y);
void eg__plane_free(eg__plane *plane);

/** Whether kernel row kh meets the input at output row oh. */
static inline bool eg__meets(const eg__plane *plane, int64_t kh, int64_t oh)
{
    return oh >= plane->rows[kh].begin && oh < plane->rows[kh].end;
}

#endif
