/*
 * Initializers: numbers are drawn from the context's stream in logical order, whatever the memory order.
 */
#include "nn/internal.h"

#include <math.h>

/* One number of a distribution with two parameters. */
typedef double (*draw_fn)(eg_rng *rng, double a, double b);

static double draw_uniform(eg_rng *rng, double low, double high)
{
    return low + (high - low) * eg_rng_uniform(rng);
}

static double draw_normal(eg_rng *rng, double mean, double std)
{
    return mean + std * eg_rng_normal(rng);
}

static double draw_constant(eg_rng *rng, double value, double unused)
{
    (void)rng;
    (void)unused;
    return value;
}

static void store(eg_tensor *t, int64_t place, double value)
{
    if (t->dtype == EG_F32)
        eg__f32(t)[place] = (float)value;
    else
        eg__f64(t)[place] = value;
}

static void fill(eg_tensor *t, draw_fn draw, double a, double b)
{
    int64_t index[EG_MAX_DIMS] = {0}, n = eg_tensor_numel(t);
    eg_rng *rng = eg_context_rng(t->ctx);
    if (eg__is_dry(t->ctx))
        return; /* there is no memory */
    for (int64_t i = 0; i < n; i++) {
        int64_t place = 0;
        for (int d = 0; d < t->shape.ndim; d++)
            place += index[d] * t->strides[d];
        store(t, place, draw(rng, a, b));
        for (int d = t->shape.ndim - 1; d >= 0 && ++index[d] == t->shape.dims[d]; d--)
            index[d] = 0;
    }
    eg_tensor_touch(t);
}

static eg_status initialize(eg_tensor *t, draw_fn draw, double a, double b)
{
    if (t == NULL) {
        eg__null("eg_init", "tensor");
        return eg_error_last()->code;
    }
    EG_CHECK(!eg_is_none(t) && !eg_tensor_is_tuple(t) && !eg_tensor_is_shape_only(t), EG_EINVAL,
             "tensor has no numbers to set");
    EG_CHECK(t->dtype == EG_F32 || t->dtype == EG_F64, EG_EDTYPE, "tensor is %s, expected float32 or float64",
             eg_dtype_name(t->dtype));
    EG_CHECK(isfinite(a) && isfinite(b), EG_EINVAL, "distribution is not finite");
    fill(t, draw, a, b);
    return EG_OK;
}

eg_status eg_init_uniform(eg_tensor *t, double low, double high)
{
    EG_CHECK(low <= high, EG_EINVAL, "low is %g, expected at most high, %g", low, high);
    return initialize(t, draw_uniform, low, high);
}

eg_status eg_init_normal(eg_tensor *t, double mean, double std)
{
    EG_CHECK(std >= 0, EG_EINVAL, "std is %g, expected at least 0", std);
    return initialize(t, draw_normal, mean, std);
}

eg_status eg_init_constant(eg_tensor *t, double value)
{
    return initialize(t, draw_constant, value, 0);
}

/* gain / sqrt(fan_in), the standard deviation that keeps the variance of activations. */
static eg_status kaiming_std(const eg_tensor *t, double a, double *std)
{
    if (t == NULL) {
        eg__null("eg_init", "tensor");
        return eg_error_last()->code;
    }
    EG_CHECK(t->shape.ndim >= 2, EG_EINVAL, "tensor has %d dimensions, fan in needs at least 2", t->shape.ndim);
    int64_t fan_in = 1;
    for (int d = 1; d < t->shape.ndim; d++)
        fan_in *= t->shape.dims[d];
    EG_CHECK(fan_in > 0, EG_EINVAL, "tensor is empty");
    *std = sqrt(2 / (1 + a * a)) / sqrt((double)fan_in);
    return EG_OK;
}

eg_status eg_init_kaiming_uniform(eg_tensor *t, double a)
{
    double std = 0;
    EG_TRY(kaiming_std(t, a, &std));
    double bound = sqrt(3) * std;
    return eg_init_uniform(t, -bound, bound);
}

eg_status eg_init_kaiming_normal(eg_tensor *t, double a)
{
    double std = 0;
    EG_TRY(kaiming_std(t, a, &std));
    return eg_init_normal(t, 0, std);
}
