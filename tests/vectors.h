/*
 * tests/vectors.h - reads the cases that tools/vectors/make_kernels.py computed with PyTorch.
 *
 * A case is a JSON object {"op", "name", "params", "tensors"}. Everything here fails the running test when a case does
 * not hold what is asked for.
 */
#ifndef EG_TESTS_VECTORS_H
#define EG_TESTS_VECTORS_H

#include "support.h"

#include "engraft/tensor.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/** The array of cases in tests/vectors/<family>.json, for json_decref(). */
static inline json_t *vectors_load(const char *family)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/vectors/%s.json", EG_SOURCE_DIR, family);
    json_error_t error;
    json_t *cases = json_load_file(path, 0, &error);
    if (!cases)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    assert_true(json_array_size(cases) > 0);
    return cases;
}

static inline const char *vector_op(const json_t *vector)
{
    return json_string_value(json_object_get(vector, "op"));
}

static inline const char *vector_name(const json_t *vector)
{
    return json_string_value(json_object_get(vector, "name"));
}

static inline const json_t *vector_param(const json_t *vector, const char *name)
{
    const json_t *param = json_object_get(json_object_get(vector, "params"), name);
    if (!param)
        fail_msg("%s '%s': no parameter '%s'", vector_op(vector), vector_name(vector), name);
    return param;
}

static inline double vector_number(const json_t *vector, const char *name)
{
    return json_number_value(vector_param(vector, name));
}

static inline bool vector_flag(const json_t *vector, const char *name)
{
    return json_is_true(vector_param(vector, name));
}

/** A list of integers as a shape: the dimensions of a reduction, say. */
static inline eg_shape vector_integers(const json_t *list)
{
    eg_shape shape = {.ndim = (int)json_array_size(list)};
    assert_true(shape.ndim <= EG_MAX_DIMS);
    for (int d = 0; d < shape.ndim; d++)
        shape.dims[d] = json_integer_value(json_array_get(list, (size_t)d));
    return shape;
}

/** A (height, width) parameter such as "stride". */
static inline eg_hw vector_hw(const json_t *vector, const char *name)
{
    eg_shape pair = vector_integers(vector_param(vector, name));
    assert_int_equal(pair.ndim, 2);
    return EG_HW(pair.dims[0], pair.dims[1]);
}

static inline bool vector_has(const json_t *vector, const char *tensor)
{
    return json_object_get(json_object_get(vector, "tensors"), tensor) != NULL;
}

static inline const json_t *vector_entry(const json_t *vector, const char *tensor)
{
    const json_t *entry = json_object_get(json_object_get(vector, "tensors"), tensor);
    if (!entry)
        fail_msg("%s '%s': no tensor '%s'", vector_op(vector), vector_name(vector), tensor);
    return entry;
}

static inline eg_shape vector_shape(const json_t *vector, const char *tensor)
{
    return vector_integers(json_object_get(vector_entry(vector, tensor), "shape"));
}

/** Element `i` (in logical order) of a tensor of the case. */
static inline double vector_value(const json_t *vector, const char *tensor, int64_t i)
{
    const json_t *entry = vector_entry(vector, tensor), *unit = json_object_get(entry, "unit");
    double value = json_number_value(json_array_get(json_object_get(entry, "data"), (size_t)i));
    return unit ? value * json_number_value(unit) : value;
}

/** Where element `i` (in logical order) lies, in elements from eg_tensor_data(). */
static inline int64_t element_offset(const eg_tensor *t, int64_t i)
{
    eg_shape shape = eg_tensor_shape(t);
    int64_t offset = 0;
    for (int d = shape.ndim - 1; d >= 0; d--) {
        offset += i % shape.dims[d] * eg_tensor_strides(t)[d];
        i /= shape.dims[d];
    }
    return offset;
}

static inline double element_get(const eg_tensor *t, int64_t i)
{
    void *data = eg_tensor_data(t);
    int64_t at = element_offset(t, i);
    switch (eg_tensor_dtype(t)) {
    case EG_F32:
        return (double)((float *)data)[at];
    case EG_F64:
        return ((double *)data)[at];
    case EG_I64:
        return (double)((int64_t *)data)[at];
    case EG_U8:
        return (double)((uint8_t *)data)[at];
    case EG_BF16: /* in no case */
        break;
    }
    return NAN;
}

static inline void element_set(eg_tensor *t, int64_t i, double value)
{
    void *data = eg_tensor_data(t);
    int64_t at = element_offset(t, i);
    switch (eg_tensor_dtype(t)) {
    case EG_F32:
        ((float *)data)[at] = (float)value;
        break;
    case EG_F64:
        ((double *)data)[at] = value;
        break;
    case EG_I64:
        ((int64_t *)data)[at] = (int64_t)value;
        break;
    case EG_U8:
        ((uint8_t *)data)[at] = (uint8_t)value;
        break;
    case EG_BF16:
        break;
    }
}

/** Copies a tensor of the case into `t`, of the same shape. */
static inline void vector_fill(const json_t *vector, const char *tensor, eg_tensor *t)
{
    assert_true(eg_shape_equal(vector_shape(vector, tensor), eg_tensor_shape(t)));
    for (int64_t i = 0; i < eg_tensor_numel(t); i++)
        element_set(t, i, vector_value(vector, tensor, i));
    eg_tensor_touch(t);
}

/** A tensor of the case; of the current tape or scope. */
static inline eg_tensor *vector_tensor(eg_context *ctx, const json_t *vector, const char *tensor, eg_dtype dtype,
                                       eg_layout layout)
{
    eg_tensor *t = eg_empty(ctx, dtype, vector_shape(vector, tensor), layout);
    assert_non_null(t);
    vector_fill(vector, tensor, t);
    return t;
}

/** Compares `got` with a tensor of the case: |got - expected| <= atol + rtol |expected| everywhere. */
static inline void vector_expect(const json_t *vector, const char *tensor, const eg_tensor *got, double rtol,
                                 double atol)
{
    assert_non_null(got);
    assert_true(eg_shape_equal(vector_shape(vector, tensor), eg_tensor_shape(got)));
    for (int64_t i = 0; i < eg_tensor_numel(got); i++) {
        double expected = vector_value(vector, tensor, i), value = element_get(got, i);
        if (!(fabs(value - expected) <= atol + rtol * fabs(expected)))
            fail_msg("%s '%s': %s[%lld] is %.10g, expected %.10g", vector_op(vector), vector_name(vector), tensor,
                     (long long)i, value, expected);
    }
}

#endif
