/*
 * tensor/cpu/vmath.h - exponentials without branches, so that loops over them become vector code.
 */
#ifndef EG_TENSOR_VMATH_H
#define EG_TENSOR_VMATH_H

#include <math.h>
#include <stdint.h>

typedef union eg__bits {
    float f;
    int32_t i;
} eg__bits;

/** e^x within 2 ulp over the whole range; infinity, zero, denormals and NaN as expf() has them. x = n ln 2 + r with n
 * whole; e^r by a polynomial of degree 6 (Taylor coefficients, |r| <= 0.35). */
static inline float eg__expf(float x)
{
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    eg__bits t = {.f = x * 1.44269504f + 12582912.0f}; /* 1.5 * 2^23: the sum's low bits are n */
    float n = t.f - 12582912.0f;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    /* 2^n in two factors: n may be 128 (to infinity) or below -126 (to denormals). */
    int32_t whole = t.i - 0x4b400000, half = whole >> 1;
    eg__bits a, b;
    a.i = (int32_t)((uint32_t)(half + 127) << 23);
    b.i = (int32_t)((uint32_t)(whole - half + 127) << 23);
    return p * a.f * b.f;
}

static inline float eg__sigmoidf(float x)
{
    return 1.0f / (1.0f + eg__expf(-x));
}

/** Through e^-2|x|; near 0, where that would cancel, by the odd polynomial of Cephes' tanhf. */
static inline float eg__tanhf(float x)
{
    float magnitude = fabsf(x), e = eg__expf(-2.0f * magnitude), z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float near_zero = x + x * z * p, far = copysignf((1.0f - e) / (1.0f + e), x);
    return magnitude < 0.625f ? near_zero : far;
}

#endif
