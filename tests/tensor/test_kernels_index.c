/*
 * tests/tensor/test_kernels_index.c - the fast kernels that work along one dimension, and maxima, against the
 * reference: random shapes and memory orders, ties, NaN, lines longer than a block, and enough work for two threads.
 */
#include "support.h"

#include "engraft/autograd.h"
#include "tensor/kernels.h"

#include <math.h>
#include <string.h>

static const eg_kernels *const fast = &eg__dnnl_kernels;
static const eg_kernels *const ref = &eg__ref_kernels;

#define OK(status) assert_int_equal((status), EG_OK)

static eg_context *ctx;
static eg_rng rng;

static int open_context(void **state)
{
    (void)state;
    ctx = eg_context_new(.seed = 1, .threads = 2);
    rng = eg_rng_make(7, "index kernels", 0);
    return ctx ? 0 : -1;
}

static int close_context(void **state)
{
    (void)state;
    eg_context_free(ctx);
    return 0;
}

static int64_t below(int64_t n)
{
    return (int64_t)eg_rng_below(&rng, (uint64_t)n);
}

static eg_shape random_shape(void)
{
    static const eg_shape shapes[] = {
        {.ndim = 1, .dims = {1}},
        {.ndim = 1, .dims = {70}},
        {.ndim = 1, .dims = {9000}},
        {.ndim = 2, .dims = {6, 33}},
        {.ndim = 2, .dims = {300, 200}},
        {.ndim = 2, .dims = {9000, 5}},
        {.ndim = 3, .dims = {4, 1, 7}},
        {.ndim = 4, .dims = {2, 24, 7, 5}},
        {.ndim = 4, .dims = {3, 1, 4, 6}},
        {.ndim = 4, .dims = {4, 16, 40, 40}},
        {.ndim = 5, .dims = {2, 3, 5, 2, 3}},
        {.ndim = 4, .dims = {1, 5, 1, 1}},
    };
    return shapes[below((int64_t)EG_COUNT(shapes))];
}

/** In either memory order, or every other element of a larger tensor along the last dimension. */
static eg_tensor *place(eg_dtype dtype, eg_shape shape)
{
    int64_t kind = below(3);
    eg_shape whole = shape;
    whole.dims[shape.ndim - 1] *= kind == 2 ? 2 : 1;
    eg_tensor *t = eg_empty(ctx, dtype, whole, kind == 0 ? EG_LAYOUT_DEFAULT : EG_LAYOUT_ROW_MAJOR);
    assert_non_null(t);
    if (kind < 2)
        return t;
    int64_t strides[EG_MAX_DIMS];
    memcpy(strides, t->strides, sizeof strides);
    strides[shape.ndim - 1] *= 2;
    return eg__scope_add(eg__tensor_new_view(t, shape, strides, 1));
}

static void next_index(eg_shape shape, int64_t *at)
{
    for (int d = shape.ndim - 1; d >= 0 && ++at[d] == shape.dims[d]; d--)
        at[d] = 0;
}

static int64_t offset_of(const eg_tensor *t, const int64_t *at)
{
    int64_t offset = 0;
    for (int d = 0; d < t->shape.ndim; d++)
        offset += at[d] * t->strides[d];
    return offset;
}

/* Few different numbers, so that ties abound; with `nan` some are NaN. */
static eg_tensor *numbers(eg_shape shape, bool nan)
{
    eg_tensor *t = place(EG_F32, shape);
    int64_t at[EG_MAX_DIMS] = {0};
    for (int64_t i = 0; i < eg_tensor_numel(t); i++, next_index(shape, at))
        eg__f32(t)[offset_of(t, at)] = nan && below(40) == 0 ? NAN : (float)(below(33) - 16) / 8.0F;
    return t;
}

static eg_tensor *indices(eg_shape shape, int64_t size)
{
    eg_tensor *t = place(EG_I64, shape);
    int64_t at[EG_MAX_DIMS] = {0};
    for (int64_t i = 0; i < eg_tensor_numel(t); i++, next_index(shape, at))
        eg__i64(t)[offset_of(t, at)] = below(size);
    return t;
}

/* Sums of eighths are exact in float, so no tolerance is needed. */
static void expect_equal(const char *what, const eg_tensor *a, const eg_tensor *b)
{
    int64_t at[EG_MAX_DIMS] = {0};
    for (int64_t i = 0; i < eg_tensor_numel(a); i++, next_index(a->shape, at)) {
        if (a->dtype == EG_I64) {
            assert_int_equal(eg__i64(a)[offset_of(a, at)], eg__i64(b)[offset_of(b, at)]);
            continue;
        }
        float x = eg__f32(a)[offset_of(a, at)], y = eg__f32(b)[offset_of(b, at)];
        if (x != y && !(isnan(x) && isnan(y)))
            fail_msg("%s: element %lld is %g, the reference has %g", what, (long long)i, (double)x, (double)y);
    }
}

/* An index of the whole result's shape, or one number for each place along dim, repeated. */
static eg_tensor *random_index(eg_shape shape, int dim, int64_t size)
{
    if (below(2) == 0)
        return indices(shape, size);
    eg_tensor *vector = indices(EG_SHAPE(shape.dims[dim]), size);
    int64_t strides[EG_MAX_DIMS] = {0};
    strides[dim] = vector->strides[0];
    return eg__scope_add(eg__tensor_new_view(vector, shape, strides, vector->offset));
}

static void gather_and_scatter(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        eg_shape shape = random_shape(), picked = shape;
        int dim = (int)below(shape.ndim);
        picked.dims[dim] = 1 + below(12);
        eg_tensor *x = numbers(shape, false), *index = random_index(picked, dim, shape.dims[dim]);
        eg_tensor *y = place(EG_F32, picked), *expected = place(EG_F32, picked);
        OK(fast->gather(dim, x, index, y));
        OK(ref->gather(dim, x, index, expected));
        expect_equal("gather", y, expected);
        eg_tensor *dx = place(EG_F32, shape), *dx_expected = place(EG_F32, shape);
        OK(ref->copy(x, dx));
        OK(ref->copy(x, dx_expected));
        OK(fast->scatter_add(dim, index, y, dx));
        OK(ref->scatter_add(dim, index, y, dx_expected));
        expect_equal("scatter_add", dx, dx_expected);
        eg_tape_end(tape);
    }
}

static void running_sums(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        eg_shape shape = random_shape();
        int dim = (int)below(shape.ndim);
        bool reverse = below(2) == 0;
        eg_tensor *x = numbers(shape, false), *y = place(EG_F32, shape), *expected = place(EG_F32, shape);
        OK(fast->cumsum(dim, reverse, x, y));
        OK(ref->cumsum(dim, reverse, x, expected));
        expect_equal("cumsum", y, expected);
        eg_tape_end(tape);
    }
}

static void the_largest(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        eg_shape shape = random_shape(), best = shape;
        int dim = (int)below(shape.ndim);
        best.dims[dim] = 1 + below(EG_MIN(shape.dims[dim], 20));
        bool largest = below(2) == 0;
        eg_tensor *x = numbers(shape, below(2) == 0);
        eg_tensor *y = place(EG_F32, best), *expected = place(EG_F32, best);
        eg_tensor *index = place(EG_I64, best), *index_expected = place(EG_I64, best);
        OK(fast->topk(dim, largest, x, y, index));
        OK(ref->topk(dim, largest, x, expected, index_expected));
        expect_equal("topk", y, expected);
        expect_equal("topk's index", index, index_expected);
        eg_tape_end(tape);
    }
}

static void maxima(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        eg_shape shape = random_shape(), reduced = shape;
        for (int d = 0; d < shape.ndim; d++)
            reduced.dims[d] = below(2) == 0 ? 1 : shape.dims[d];
        eg_tensor *x = numbers(shape, below(2) == 0);
        if (i % 10 == 0)
            OK(ref->fill(x, -INFINITY));
        eg_tensor *y = place(EG_F32, reduced), *expected = place(EG_F32, reduced);
        eg_tensor *index = place(EG_I64, reduced), *index_expected = place(EG_I64, reduced);
        OK(ref->reduce(EG__MAX, x, expected, index_expected));
        OK(fast->reduce(EG__MAX, x, y, index));
        expect_equal("maximum", y, expected);
        expect_equal("its index", index, index_expected);
        OK(fast->reduce(EG__MAX, x, y, NULL));
        expect_equal("maximum alone", y, expected);
        eg_tape_end(tape);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_and_scatter),
        cmocka_unit_test(running_sums),
        cmocka_unit_test(the_largest),
        cmocka_unit_test(maxima),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
