/*
 * tensor/cpu/unary.c - functions of one number and their derivatives, over memory.
 */
#include "tensor/cpu/cpu.h"
#include "tensor/cpu/vmath.h"

typedef struct unary_work {
    float a, b;
    const float *x, *dy; /* backward: x is what was saved */
    float *out;
} unary_work;

/* y = f(x). Comparisons are written so that NaN comes out as NaN. */
#define FORWARD(name, expression)                                                                                      \
    EG__CLONES static void name##_forward(void *arg, int64_t begin, int64_t end)                                       \
    {                                                                                                                  \
        const unary_work *w = arg;                                                                                     \
        const float *in = w->x, a = w->a, b = w->b;                                                                    \
        float *out = w->out;                                                                                           \
        (void)a, (void)b;                                                                                              \
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++)                                                      \
        {                                                                                                              \
            float x = in[i];                                                                                           \
            out[i] = (expression);                                                                                     \
        }                                                                                                              \
    }
/* dx = dy f'(x), where x is what eg__unary_saves_output() says. */
#define BACKWARD(name, expression)                                                                                     \
    EG__CLONES static void name##_backward(void *arg, int64_t begin, int64_t end)                                      \
    {                                                                                                                  \
        const unary_work *w = arg;                                                                                     \
        const float *in = w->x, *grad = w->dy, a = w->a, b = w->b;                                                     \
        float *out = w->out;                                                                                           \
        (void)a, (void)b;                                                                                              \
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++)                                                      \
        {                                                                                                              \
            float x = in[i], dy = grad[i];                                                                             \
            (void)x;                                                                                                   \
            out[i] = (expression);                                                                                     \
        }                                                                                                              \
    }

static inline float clamp6(float x)
{
    x = x < 0.0f ? 0.0f : x;
    return x > 6.0f ? 6.0f : x;
}

static inline float silu_derivative(float x)
{
    float s = eg__sigmoidf(x);
    return s * (1.0f + x * (1.0f - s));
}

static inline float hardswish_derivative(float x)
{
    float d = x * (1.0f / 3.0f) + 0.5f;
    d = x <= -3.0f ? 0.0f : d;
    return x >= 3.0f ? 1.0f : d;
}

/* Phi(x), through erfc of Abramowitz and Stegun 7.1.26 (error 1.5e-7), and its density. */
static inline float normal_cdf(float x)
{
    float z = fabsf(x) * 0.707106781f, t = 1.0f / (1.0f + 0.3275911f * z);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float tail = 0.5f * p * t * eg__expf(-0.5f * x * x);
    return x < 0.0f ? tail : 1.0f - tail;
}

static inline float gelu_derivative(float x)
{
    return normal_cdf(x) + x * 0.398942280f * eg__expf(-0.5f * x * x);
}

/* For x <= 0: through tanh, which does not cancel near 0. */
static inline float expm1_below_zero(float x)
{
    float t = eg__tanhf(0.5f * x);
    return 2.0f * t / (1.0f - t);
}

static inline float softplus(float x, float beta, float threshold)
{
    float z = beta * x;
    float smooth = (z > 0.0f ? z : 0.0f) + eg__log1pf(eg__expf(-fabsf(z)));
    return z > threshold ? x : smooth / beta;
}

/* tanh(softplus(x)) = (e^2 + 2 e) / (e^2 + 2 e + 2) with e = exp(x); 1 from 20 on, before e^2 overflows. */
static inline float tanh_softplus(float x)
{
    float e = eg__expf(x > 20.0f ? 20.0f : x), n = e * (e + 2.0f);
    return n / (n + 2.0f);
}

static inline float mish_derivative(float x)
{
    float t = tanh_softplus(x);
    return t + x * (1.0f - t * t) * eg__sigmoidf(x);
}

static inline float clamp(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

static inline float smooth_l1(float x, float beta)
{
    float size = fabsf(x);
    return size < beta ? 0.5f / beta * x * x : size - 0.5f * beta;
}

static inline float sign(float x)
{
    return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f;
}

FORWARD(relu, x < 0.0f ? 0.0f : x)
FORWARD(relu6, clamp6(x))
FORWARD(leaky_relu, x > 0.0f ? x : a * x)
FORWARD(sigmoid, eg__sigmoidf(x))
FORWARD(tanh, eg__tanhf(x))
FORWARD(gelu, x *normal_cdf(x))
FORWARD(silu, x *eg__sigmoidf(x))
FORWARD(hardswish, x *clamp6(x + 3.0f) * (1.0f / 6.0f))
FORWARD(hardsigmoid, clamp6(x + 3.0f) * (1.0f / 6.0f))
FORWARD(elu, x > 0.0f ? x : a * expm1_below_zero(x))
FORWARD(softplus, softplus(x, a, b))
FORWARD(mish, x *tanh_softplus(x))
FORWARD(exp, eg__expf(x))
FORWARD(log, eg__logf(x))
FORWARD(sqrt, sqrtf(x))
FORWARD(abs, fabsf(x))
FORWARD(square, x *x)
FORWARD(reciprocal, 1.0f / x)
FORWARD(pow, powf(x, a))
FORWARD(clamp, clamp(x, a, b))
FORWARD(smooth_l1, smooth_l1(x, a))
FORWARD(affine, a *x + b)

BACKWARD(relu, x > 0.0f ? dy : 0.0f)
BACKWARD(relu6, x > 0.0f && x < 6.0f ? dy : 0.0f)
BACKWARD(leaky_relu, x > 0.0f ? dy : a * dy)
BACKWARD(sigmoid, dy *x *(1.0f - x))
BACKWARD(tanh, dy *(1.0f - x * x))
BACKWARD(gelu, dy *gelu_derivative(x))
BACKWARD(silu, dy *silu_derivative(x))
BACKWARD(hardswish, dy *hardswish_derivative(x))
BACKWARD(hardsigmoid, x > -3.0f && x < 3.0f ? dy * (1.0f / 6.0f) : 0.0f)
BACKWARD(elu, x > 0.0f ? dy : dy * a * eg__expf(x))
BACKWARD(softplus, a *x > b ? dy : dy * eg__sigmoidf(a * x))
BACKWARD(mish, dy *mish_derivative(x))
BACKWARD(exp, dy *x)
BACKWARD(log, dy / x)
BACKWARD(sqrt, 0.5f * dy / x)
BACKWARD(abs, dy *sign(x))
BACKWARD(square, 2.0f * x * dy)
BACKWARD(reciprocal, -x *x *dy)
BACKWARD(pow, a == 0.0f ? 0.0f : dy * a * powf(x, a - 1.0f))
BACKWARD(clamp, x >= a && x <= b ? dy : 0.0f)
BACKWARD(smooth_l1, fabsf(x) < a ? dy * x / a : dy * sign(x))
BACKWARD(affine, a *dy)

/* Every kind and the name of its loops. They are found in functions, not constant tables: the address of a
 * multiversioned function is no constant. */
#define UNARIES(X)                                                                                                     \
    X(RELU, relu)                                                                                                      \
    X(RELU6, relu6)                                                                                                    \
    X(LEAKY_RELU, leaky_relu)                                                                                          \
    X(SIGMOID, sigmoid)                                                                                                \
    X(TANH, tanh)                                                                                                      \
    X(GELU, gelu)                                                                                                      \
    X(SILU, silu)                                                                                                      \
    X(HARDSWISH, hardswish)                                                                                            \
    X(HARDSIGMOID, hardsigmoid)                                                                                        \
    X(ELU, elu)                                                                                                        \
    X(SOFTPLUS, softplus)                                                                                              \
    X(MISH, mish)                                                                                                      \
    X(EXP, exp)                                                                                                        \
    X(LOG, log)                                                                                                        \
    X(SQRT, sqrt)                                                                                                      \
    X(ABS, abs)                                                                                                        \
    X(SQUARE, square)                                                                                                  \
    X(RECIPROCAL, reciprocal)                                                                                          \
    X(POW, pow)                                                                                                        \
    X(CLAMP, clamp)                                                                                                    \
    X(SMOOTH_L1, smooth_l1)                                                                                            \
    X(AFFINE, affine)
#define FORWARD_OF(kind, name)                                                                                         \
    case EG__##kind:                                                                                                   \
        return name##_forward;
#define BACKWARD_OF(kind, name)                                                                                        \
    case EG__##kind:                                                                                                   \
        return name##_backward;

static eg__body forward_body(eg__unary op)
{
    switch (op) {
        UNARIES(FORWARD_OF)
    case EG__UNARY_COUNT:
        break;
    }
    return NULL;
}

static eg__body backward_body(eg__unary op)
{
    switch (op) {
        UNARIES(BACKWARD_OF)
    case EG__UNARY_COUNT:
        break;
    }
    return NULL;
}

eg_status eg__cpu_unary(eg__unary op, double a, double b, const eg_tensor *x, eg_tensor *y)
{
    if (!eg__is_dense(y))
        return eg__ref_kernels.unary(op, a, b, x, y);
    if (!eg__same_strides(x, y)) {
        EG_TRY(eg__cpu_copy(x, y));
        x = y;
    }
    int64_t n = eg_shape_numel(y->shape);
    unary_work w = {.a = (float)a, .b = (float)b, .x = eg__f32(x), .out = eg__f32(y)};
    eg__for(y->ctx, n, n, forward_body(op), &w);
    return EG_OK;
}

enum { ADD_BLOCK = 1024 };

typedef struct add_work {
    unary_work unary;
    eg__body body;
} add_work;

EG__CLONES static void add_block(float *restrict sum, const float *restrict x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        sum[i] += x[i];
}

/* Gradients of a block at a time, then their addition. */
static void add_backward(void *arg, int64_t begin, int64_t end)
{
    const add_work *w = arg;
    float gradient[ADD_BLOCK];
    for (int64_t at = begin; at < end; at += ADD_BLOCK) {
        int64_t n = EG_MIN(ADD_BLOCK, end - at);
        unary_work part = w->unary;
        part.x += at;
        part.dy += at;
        part.out = gradient;
        w->body(&part, 0, n);
        add_block(w->unary.out + at, gradient, n);
    }
}

eg_status eg__cpu_unary_backward(eg__unary op, double a, double b, const eg_tensor *saved, const eg_tensor *dy,
                                 eg_tensor *dx, bool add)
{
    if (!eg__is_dense(dx))
        return eg__ref_kernels.unary_backward(op, a, b, saved, dy, dx, add);
    eg_tensor *owned[2] = {NULL, NULL};
    saved = eg__in_order_of(dx, saved, &owned[0]);
    dy = saved ? eg__in_order_of(dx, dy, &owned[1]) : NULL;
    if (dy) {
        int64_t n = eg_shape_numel(dx->shape);
        add_work w = {
            .unary = {.a = (float)a, .b = (float)b, .x = eg__f32(saved), .dy = eg__f32(dy), .out = eg__f32(dx)},
            .body = backward_body(op)};
        eg__for(dx->ctx, n, n, add ? add_backward : w.body, &w);
    }
    eg_tensor_release(owned[0]);
    eg_tensor_release(owned[1]);
    return dy ? EG_OK : EG_ENOMEM;
}
