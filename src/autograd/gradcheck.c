/*
 * autograd/gradcheck.c - gradients against central differences.
 */
#include "autograd/internal.h"

#include <math.h>
#include <stdlib.h>

typedef struct check {
    eg_context *ctx;
    eg_gradcheck_fn fn;
    void *payload;
    eg_tensor *const *in;
    size_t n_in;
    eg_gradcheck_options options;
    eg_rng rng;        /* of the context when the check began: the same dropout each time */
    double *direction; /* [n_out], row-major */
    size_t n_out;
} check;

static eg_tensor *evaluate(check *c)
{
    *eg_context_rng(c->ctx) = c->rng;
    eg_tensor *y = c->fn(c->payload, c->in, c->n_in);
    if (!y || eg__tensor_check_dense(y, "the function's result") != EG_OK)
        return NULL;
    if (y->dtype == EG_F64)
        return y;
    eg_fail(EG_EDTYPE, "the function's result is %s, expected float64", eg_dtype_name(y->dtype));
    return NULL;
}

/* The direction is fixed by the first result's size. */
static eg_status make_direction(check *c, const eg_tensor *y)
{
    c->n_out = (size_t)eg_shape_numel(y->shape);
    c->direction = eg__calloc(c->n_out, sizeof *c->direction);
    if (!c->direction)
        return EG_ENOMEM;
    eg_rng rng = eg_rng_make(0, "gradcheck", 0);
    for (size_t i = 0; i < c->n_out; i++)
        c->direction[i] = eg_rng_normal(&rng);
    return EG_OK;
}

static eg_status analytic(check *c)
{
    for (size_t i = 0; i < c->n_in; i++)
        eg_tensor_zero_grad(c->in[i]);
    eg_tensor *y = evaluate(c);
    if (!y)
        return eg_error_last()->code;
    EG_TRY(make_direction(c, y));
    eg_tensor *grad = eg__scope_add(eg__tensor_new_like(y));
    if (!grad)
        return eg_error_last()->code;
    eg__borrowed array;
    EG_TRY(eg__tensor_copy_into(grad, eg__borrow(&array, y, EG_F64, c->direction)));
    return eg_backward_from(y, grad);
}

/* <direction, fn> */
static eg_status project(check *c, double *value)
{
    eg_tape *tape = eg_tape_begin(c->ctx, EG_NO_GRAD);
    if (!tape)
        return eg_error_last()->code;
    eg_tensor *y = evaluate(c);
    eg_status status = y ? EG_OK : eg_error_last()->code;
    double *numbers = NULL;
    if (y && (size_t)eg_shape_numel(y->shape) != c->n_out)
        status = eg_fail(EG_EINVAL, "the function's result changes its shape between calls");
    if (status == EG_OK && !(numbers = eg__calloc(c->n_out, sizeof *numbers)))
        status = EG_ENOMEM;
    if (status == EG_OK) {
        eg__borrowed array;
        status = eg__tensor_copy_into(eg__borrow(&array, y, EG_F64, numbers), y);
    }
    *value = 0;
    for (size_t i = 0; status == EG_OK && i < c->n_out; i++)
        *value += c->direction[i] * numbers[i];
    free(numbers);
    eg_tape_end(tape);
    return status;
}

/* Place of the entry of that logical number in memory. */
static int64_t offset_of(const eg_tensor *t, int64_t entry)
{
    int64_t offset = 0;
    for (int dim = t->shape.ndim - 1; dim >= 0; dim--) {
        offset += entry % t->shape.dims[dim] * t->strides[dim];
        entry /= t->shape.dims[dim];
    }
    return offset;
}

static eg_status check_entry(check *c, size_t input, int64_t entry)
{
    eg_tensor *t = c->in[input];
    double *x = eg__f64(t) + offset_of(t, entry), before = *x, above, below;
    *x = before + c->options.eps;
    eg_tensor_touch(t);
    eg_status status = project(c, &above);
    *x = before - c->options.eps;
    eg_tensor_touch(t);
    if (status == EG_OK)
        status = project(c, &below);
    *x = before;
    eg_tensor_touch(t);
    EG_TRY(status);
    double expected = (above - below) / (2 * c->options.eps);
    double got = t->grad ? eg__f64(t->grad)[offset_of(t->grad, entry)] : 0.0;
    double bound = c->options.atol + c->options.rtol * EG_MAX(fabs(expected), fabs(got));
    EG_CHECK(fabs(expected - got) <= bound, EG_EINTERNAL, /* also catches NaN */
             "gradient of input %zu, entry %lld: %.9g, but the central difference is %.9g", input, (long long)entry,
             got, expected);
    return EG_OK;
}

static eg_status check_input(check *c, size_t input)
{
    const eg_tensor *t = c->in[input];
    if (t->dtype != EG_F64 || !t->requires_grad)
        return EG_OK;
    int64_t numel = eg_shape_numel(t->shape), wanted = (int64_t)c->options.max_entries;
    eg_rng rng = eg_rng_make(0, "gradcheck entries", input);
    for (int64_t k = 0; k < EG_MIN(numel, wanted); k++) /* all of them, or one from each of `wanted` stretches */
        if (numel <= wanted) {
            EG_TRY(check_entry(c, input, k));
        } else {
            int64_t begin = numel / wanted * k, end = k + 1 == wanted ? numel : numel / wanted * (k + 1);
            EG_TRY(check_entry(c, input, begin + (int64_t)eg_rng_below(&rng, (uint64_t)(end - begin))));
        }
    return EG_OK;
}

static eg_status run(check *c)
{
    eg_tape *tape = eg_tape_begin(c->ctx, EG_RECORD);
    if (!tape)
        return eg_error_last()->code;
    eg_status status = analytic(c);
    eg_tape_end(tape);
    for (size_t i = 0; status == EG_OK && i < c->n_in; i++)
        status = check_input(c, i);
    return status;
}

eg_status eg_gradcheck(eg_context *ctx, eg_gradcheck_fn fn, void *payload, eg_tensor *const *in, size_t n_in,
                       const eg_gradcheck_options *options)
{
    EG_CHECK(ctx && fn && (in || n_in == 0), EG_EINVAL, "context, function or inputs are NULL");
    check c = {.ctx = ctx, .fn = fn, .payload = payload, .in = in, .n_in = n_in, .rng = *eg_context_rng(ctx)};
    EG_TRY(eg__options_copy(&c.options, sizeof c.options, options));
    EG_CHECK(c.options.eps >= 0 && c.options.atol >= 0 && c.options.rtol >= 0, EG_EINVAL,
             "eps, atol and rtol must not be negative");
    for (size_t i = 0; i < n_in; i++)
        EG_CHECK(in[i], EG_EINVAL, "input %zu is NULL", i);
    c.options.eps = c.options.eps > 0 ? c.options.eps : 1e-6;
    c.options.atol = c.options.atol > 0 ? c.options.atol : 1e-6;
    c.options.rtol = c.options.rtol > 0 ? c.options.rtol : 1e-5;
    c.options.max_entries = EG_MIN(c.options.max_entries ? c.options.max_entries : 64, (size_t)INT64_MAX);
    eg_status status = run(&c);
    *eg_context_rng(ctx) = c.rng;
    free(c.direction);
    return status;
}
