/*
 * tests/optim/optim_support.h - cases of tests/vectors/optimizers.json, and parameters with given gradients.
 */
#ifndef EG_TESTS_OPTIM_SUPPORT_H
#define EG_TESTS_OPTIM_SUPPORT_H

#include "support.h"

#include "engraft/optim.h"

#include <jansson.h>

static inline json_t *optim_vectors(void)
{
    json_error_t error;
    json_t *json = json_load_file(EG_SOURCE_DIR "/tests/vectors/optimizers.json", 0, &error);
    if (!json)
        fail_msg("%s: %s", error.source, error.text);
    return json;
}

static inline eg_shape json_shape(const json_t *json)
{
    eg_shape shape = {.ndim = (int)json_array_size(json)};
    for (int d = 0; d < shape.ndim; d++)
        shape.dims[d] = json_integer_value(json_array_get(json, (size_t)d));
    return shape;
}

static inline void json_floats(const json_t *json, float *out, size_t capacity)
{
    assert_true(json_array_size(json) <= capacity);
    for (size_t i = 0; i < json_array_size(json); i++)
        out[i] = (float)json_number_value(json_array_get(json, i));
}

static inline double json_option(const json_t *options, const char *name, double otherwise)
{
    const json_t *value = json_object_get(options, name);
    return value ? json_number_value(value) : otherwise;
}

/** Relative to the larger of the two, and to 1. */
static inline void assert_relative(double got, double expected, double tolerance, const char *what)
{
    if (!(fabs(got - expected) <= tolerance * fmax(1e-3, fabs(expected))))
        fail_msg("%s is %.9g, expected %.9g", what, got, expected);
}

/** A parameter that the caller owns. */
static inline eg_tensor *make_parameter(eg_context *ctx, eg_shape shape, const float *values)
{
    eg_tensor *t = eg_from_data(ctx, shape, values);
    assert_made(t);
    assert_ok(eg_tensor_set_requires_grad(t, true));
    return eg_tensor_keep(t);
}

/** Gives a parameter this gradient, through the tape. */
static inline void set_grad(eg_tensor *t, const float *values)
{
    eg_context *ctx = eg_tensor_context(t);
    eg_tensor_zero_grad(t);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    assert_ok(eg_backward_from(eg_affine(t, 1, 0), eg_from_data(ctx, eg_tensor_shape(t), values)));
    eg_tape_end(tape);
    assert_non_null(eg_tensor_grad(t));
}

#endif
