/*
 * Group and layer normalization, and images in other sizes, large enough for several blocks and threads: the fast
 * kernels agree with the reference kernels, and give the same bits on any number of threads.
 */
#include "support.h"

#include "engraft/ops.h"

#include <string.h>

typedef struct large {
    const char *name;
    eg_shape x, factors;
    eg_tensor *(*run)(eg_tensor *const *in);
} large;

static eg_tensor *run_group_norm(eg_tensor *const *in)
{
    return eg_f_group_norm(in[0], 3, in[1], in[2]);
}

static eg_tensor *run_layer_norm(eg_tensor *const *in)
{
    return eg_f_layer_norm(in[0], eg_tensor_shape(in[1]), in[1], in[2]);
}

static eg_tensor *run_bilinear(eg_tensor *const *in)
{
    return eg_add(eg_f_interpolate(in[0], .scale_factor = 1.6, .mode = EG_BILINEAR), eg_mul(in[1], in[2]));
}

#define S(...)                                                                                                         \
    {                                                                                                                  \
        .dims = {__VA_ARGS__}, .ndim = (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))                 \
    }
static const large cases[] = {
    {"one sample of few channels", S(1, 6, 90, 101), S(6), run_group_norm},
    {"one sample of many channels", S(1, 300, 13, 11), S(300), run_group_norm},
    {"many samples", S(9, 24, 15, 14), S(24), run_group_norm},
    {"rows", S(300, 130), S(130), run_layer_norm},
    {"few wide rows", S(5, 9001), S(9001), run_layer_norm},
    {"image", S(2, 5, 60, 70), S(1), run_bilinear},
};
#undef S

enum { RESULTS = 4 };

typedef struct results {
    float *values[RESULTS]; /* y, dx, dweight, dbias */
    size_t n[RESULTS];
} results;

static void keep(results *r, size_t i, const eg_tensor *t)
{
    assert_made(t);
    r->n[i] = (size_t)eg_tensor_numel(t);
    r->values[i] = calloc(r->n[i], sizeof(float));
    assert_non_null(r->values[i]);
    assert_ok(eg_tensor_read(t, r->values[i], r->n[i]));
}

static void free_results(results *r)
{
    for (size_t i = 0; i < RESULTS; i++)
        free(r->values[i]);
}

static results run(const large *c, const char *backend, int threads)
{
    results r;
    eg_context *ctx = eg_context_new(.seed = 5, .threads = threads, .backend = backend);
    assert_made(ctx);
    eg_tensor *in[] = {eg_randn(ctx, c->x), eg_randn(ctx, c->factors), eg_randn(ctx, c->factors)};
    in[0] = eg_affine(in[0], 1, 7); /* far from 0: variances must not come from differences of squares */
    for (size_t i = 0; i < 3; i++)
        assert_ok(eg_tensor_set_requires_grad(in[i], true));
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *y = c->run(in);
    assert_made(y);
    assert_ok(eg_backward_from(y, eg_tensor_copy(y)));
    keep(&r, 0, y);
    eg_tape_end(tape);
    for (size_t i = 0; i < 3; i++)
        keep(&r, 1 + i, eg_tensor_grad(in[i]));
    eg_context_free(ctx);
    return r;
}

static void compare(const large *c, const results *expected, const results *got, float tolerance)
{
    for (size_t k = 0; k < RESULTS; k++) {
        float largest = 1;
        assert_int_equal(expected->n[k], got->n[k]);
        for (size_t i = 0; i < got->n[k]; i++)
            largest = fmaxf(largest, fabsf(expected->values[k][i]));
        for (size_t i = 0; i < got->n[k]; i++)
            if (!(fabsf(expected->values[k][i] - got->values[k][i]) <= tolerance * largest))
                fail_msg("%s: result %zu, element %zu is %.9g, expected %.9g", c->name, k, i, (double)got->values[k][i],
                         (double)expected->values[k][i]);
    }
}

static void test_large(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        results reference = run(&cases[k], "ref", 1), one = run(&cases[k], "dnnl", 1);
        compare(&cases[k], &reference, &one, 1e-5F);
        for (int threads = 2; threads <= 3; threads++) {
            results more = run(&cases[k], "dnnl", threads);
            compare(&cases[k], &one, &more, 0);
            free_results(&more);
        }
        free_results(&reference);
        free_results(&one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
