/*
 * tensor/cpu/depthwise.h - what the two ways of differentiating depthwise convolutions share.
 */
#ifndef EG_TENSOR_CPU_DEPTHWISE_H
#define EG_TENSOR_CPU_DEPTHWISE_H

#include "tensor/cpu/plane.h"

typedef struct eg__depthwise {
    eg__plane plane;
    int64_t samples, taps, width; /* width: of a tap's repeated sums */
    float *weights;               /* [samples][taps][width] */
    const float *x, *dy;
    float *dw;
    size_t bytes;
} eg__depthwise;

/** Whether the next function serves: channels fill vectors and filters have a usual width. */
bool eg__depthwise_fills_vectors(const eg__plane *plane);
/** weights [taps][channels] = the gradient of the filters by sample n alone. */
void eg__depthwise_sample_gradient(const eg__depthwise *d, int64_t n, float *weights);

#endif
