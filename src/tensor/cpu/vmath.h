/*
 * tensor/cpu/vmath.h - exponentials and logarithms without branches, so that loops over them become vector code.
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
    float p = 1.9875691500e-4f; /* the polynomial of Cephes' expf */
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    /* 2^n in two factors: n may be 128 (to infinity) or below -126 (to denormals). */
    int32_t whole = t.i - 0x4b400000, half = whole >> 1;
    eg__bits a, b;
    a.i = (int32_t)((uint32_t)(half + 127) << 23);
    b.i = (int32_t)((uint32_t)(whole - half + 127) << 23);
    return p * a.f * b.f;
}

/** ln x within 2 ulp; 0, negative numbers, infinity and NaN as logf() has them. x = 2^n m with m around 1; ln m by the
 * polynomial of Cephes' logf. */
static inline float eg__logf(float x)
{
    float tiny = x < 1.17549435e-38f ? 1.0f : 0.0f; /* denormals are made normal first */
    eg__bits t = {.f = x * (1.0f + tiny * 8388607.0f)};
    int32_t whole = (int32_t)((uint32_t)t.i - 0x3f3504f3u) >> 23; /* m from sqrt(1/2) on */
    t.i = (int32_t)((uint32_t)t.i - ((uint32_t)whole << 23));
    float n = (float)whole - tiny * 23.0f, m = t.f - 1.0f, z = m * m;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    p = p * m * z - n * 2.12194440e-4f - 0.5f * z;
    float y = n * 0.693359375f + (m + p);
    y = x > 0.0f ? y : x == 0.0f ? -INFINITY : NAN;
    return x > 3.40282347e38f ? x : y;
}

/** ln(1 + x) for x in 0 .. 1, with what 1 + x loses of a small x put back. */
static inline float eg__log1pf(float x)
{
    float w = 1.0f + x;
    return eg__logf(w) + (x - (w - 1.0f)) / w;
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
