/*
 * tensor/ref/unary.c - the unary functions and their derivatives at one number. At a kink the derivative is PyTorch's.
 */
#include "tensor/ref/ref.h"

#define SQRT_HALF 0.70710678118654752440
#define INV_SQRT_2PI 0.39894228040143267794

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/** The standard normal distribution function. */
static double normal_cdf(double x)
{
    return 0.5 * erfc(-x * SQRT_HALF);
}

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double mish_slope(double x)
{
    double t = tanh(softplus(x));
    return t + x * (1 - t * t) * sigmoid(x);
}

static double clamp(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

double eg__ref_unary(eg__unary op, double a, double b, double x)
{
    switch (op) {
    case EG__RELU:
        return x <= 0 ? 0 : x;
    case EG__RELU6:
        return clamp(x, 0, 6);
    case EG__LEAKY_RELU:
        return x > 0 ? x : a * x;
    case EG__SIGMOID:
        return sigmoid(x);
    case EG__TANH:
        return tanh(x);
    case EG__GELU:
        return x * normal_cdf(x);
    case EG__SILU:
        return x * sigmoid(x);
    case EG__HARDSWISH:
        return x * clamp(x + 3, 0, 6) / 6;
    case EG__HARDSIGMOID:
        return clamp(x + 3, 0, 6) / 6;
    case EG__ELU:
        return x > 0 ? x : a * expm1(x);
    case EG__SOFTPLUS:
        return a * x > b ? x : softplus(a * x) / a;
    case EG__MISH:
        return x * tanh(softplus(x));
    case EG__EXP:
        return exp(x);
    case EG__LOG:
        return log(x);
    case EG__SQRT:
        return sqrt(x);
    case EG__ABS:
        return fabs(x);
    case EG__SQUARE:
        return x * x;
    case EG__RECIPROCAL:
        return 1 / x;
    case EG__POW:
        return pow(x, a);
    case EG__CLAMP:
        return clamp(x, a, b);
    case EG__SMOOTH_L1:
        return fabs(x) < a ? x * x / (2 * a) : fabs(x) - a / 2;
    case EG__AFFINE:
        return a * x + b;
    case EG__UNARY_COUNT:
        break;
    }
    return NAN;
}

double eg__ref_unary_slope(eg__unary op, double a, double b, double saved)
{
    double x = saved, y = saved; /* the one that eg__unary_saves_output() says */
    switch (op) {
    case EG__RELU:
        return y <= 0 ? 0 : 1;
    case EG__RELU6:
        return x <= 0 || x >= 6 ? 0 : 1;
    case EG__LEAKY_RELU:
        return x > 0 ? 1 : a;
    case EG__SIGMOID:
        return y * (1 - y);
    case EG__TANH:
        return 1 - y * y;
    case EG__GELU:
        return normal_cdf(x) + x * INV_SQRT_2PI * exp(-0.5 * x * x);
    case EG__SILU:
        return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
    case EG__HARDSWISH:
        return x <= -3 ? 0 : x < 3 ? x / 3 + 0.5 : 1;
    case EG__HARDSIGMOID:
        return x > -3 && x < 3 ? 1.0 / 6 : 0;
    case EG__ELU:
        return x > 0 ? 1 : a * exp(x);
    case EG__SOFTPLUS:
        return a * x > b ? 1 : sigmoid(a * x);
    case EG__MISH:
        return mish_slope(x);
    case EG__EXP:
        return y;
    case EG__LOG:
        return 1 / x;
    case EG__SQRT:
        return 0.5 / y;
    case EG__ABS:
        return (x > 0) - (x < 0);
    case EG__SQUARE:
        return 2 * x;
    case EG__RECIPROCAL:
        return -y * y;
    case EG__POW:
        return a == 0 ? 0 : a * pow(x, a - 1);
    case EG__CLAMP:
        return x >= a && x <= b ? 1 : 0;
    case EG__SMOOTH_L1:
        return fabs(x) < a ? x / a : (x > 0) - (x < 0);
    case EG__AFFINE:
        return a;
    case EG__UNARY_COUNT:
        break;
    }
    return NAN;
}
