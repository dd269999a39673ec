/*
 * Every operation, forward and backward, through the fast kernels against the reference kernels, in float32; on one and
 * on two threads; and the same again after weights were changed in place (packed copies of them are cached).
 */
#include "ops/cases.h"

#include <math.h>

typedef struct results {
    size_t n[CASE_INPUTS * 2 + 1];
    float *values[CASE_INPUTS * 2 + 1]; /* the output, gradients of the inputs, the inputs afterwards */
} results;

static void keep(results *r, size_t slot, const eg_tensor *t)
{
    if (!t || eg_tensor_dtype(t) != EG_F32 || eg_is_none(t))
        return;
    r->n[slot] = (size_t)eg_tensor_numel(t);
    r->values[slot] = calloc(r->n[slot], sizeof(float));
    assert_non_null(r->values[slot]);
    assert_int_equal(eg_tensor_read(t, r->values[slot], r->n[slot]), EG_OK);
}

static void free_results(results *r)
{
    for (size_t i = 0; i < EG_COUNT(r->values); i++)
        free(r->values[i]);
}

/* Forward and backward; `r` may be NULL. */
static void run_once(eg_context *ctx, const op_case *c, eg_tensor *const *in, results *r)
{
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *y = c->run(in, c);
    if (!y || eg_backward_from(y, eg_tensor_copy(y)) != EG_OK)
        fail_msg("%s '%s': %s", c->op, c->name, eg_error_first()->message);
    for (size_t i = 0; r && i < CASE_INPUTS; i++) {
        keep(r, 1 + i, eg_is_none(in[i]) ? NULL : eg_tensor_grad(in[i]));
        keep(r, 1 + CASE_INPUTS + i, in[i]);
    }
    if (r)
        keep(r, 0, y);
    eg_tape_end(tape);
}

static results run(const op_case *c, const char *backend, int threads)
{
    results r = {{0}, {NULL}};
    eg_context *ctx = eg_context_new(.seed = 3, .threads = threads, .backend = backend);
    assert_non_null(ctx);
    eg_tensor *in[CASE_INPUTS];
    for (size_t i = 0; i < CASE_INPUTS; i++)
        in[i] = case_input(ctx, c, i, EG_F32);
    run_once(ctx, c, in, NULL);
    for (size_t i = 0; i < CASE_INPUTS; i++) { /* a step of training: x -= 0.1 dx (not where x must stay positive) */
        eg_tensor *grad = eg_is_none(in[i]) ? NULL : eg_tensor_grad(in[i]);
        if (!grad)
            continue;
        assert_true(eg__same_strides(grad, in[i]) && eg__is_dense(in[i]));
        for (int64_t k = 0; case_letter(c, i) != 'p' && k < eg_tensor_numel(grad); k++)
            eg__f32(in[i])[k] -= 0.1F * eg__f32(grad)[k];
        eg_tensor_touch(in[i]);
        eg_tensor_zero_grad(in[i]);
    }
    run_once(ctx, c, in, &r);
    eg_context_free(ctx);
    return r;
}

/* Within 2e-5 of the largest magnitude: sums of up to some thousand float32 products in another order. */
static void compare(const op_case *c, const results *expected, const results *got, int threads)
{
    for (size_t slot = 0; slot < EG_COUNT(got->n); slot++) {
        assert_int_equal(expected->n[slot], got->n[slot]);
        float largest = 1.0F;
        for (size_t i = 0; i < got->n[slot]; i++)
            largest = fmaxf(largest, fabsf(expected->values[slot][i]));
        for (size_t i = 0; i < got->n[slot]; i++)
            if (!(fabsf(expected->values[slot][i] - got->values[slot][i]) <= 2e-5F * largest))
                fail_msg("%s '%s', %d threads, result %zu, element %zu: dnnl %.8g, ref %.8g", c->op, c->name, threads,
                         slot, i, (double)got->values[slot][i], (double)expected->values[slot][i]);
    }
}

static void test_backends(void **state)
{
    (void)state;
    for (size_t k = 0; k < EG_COUNT(op_cases); k++) {
        results expected = run(&op_cases[k], "ref", 1);
        for (int threads = 1; threads <= 2; threads++) {
            results got = run(&op_cases[k], "dnnl", threads);
            compare(&op_cases[k], &expected, &got, threads);
            free_results(&got);
        }
        free_results(&expected);
    }
}

static void test_same_bits_each_time(void **state)
{
    (void)state;
    for (size_t k = 0; k < EG_COUNT(op_cases); k++) {
        results first = run(&op_cases[k], "dnnl", 2), second = run(&op_cases[k], "dnnl", 2);
        for (size_t slot = 0; slot < EG_COUNT(first.n); slot++)
            if (first.n[slot] && memcmp(first.values[slot], second.values[slot], first.n[slot] * sizeof(float)) != 0)
                fail_msg("%s '%s': result %zu differs between two runs", op_cases[k].op, op_cases[k].name, slot);
        free_results(&first);
        free_results(&second);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_same_bits_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
