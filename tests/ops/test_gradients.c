/*
 * Every operation's gradient against central differences, in float64 through the reference kernels; and that asking for
 * fewer gradients changes none of the others.
 */
#include "ops/cases.h"

static eg_tensor *run_case(void *payload, eg_tensor *const *in, size_t n_in)
{
    const op_case *c = payload;
    (void)n_in;
    return c->run(in, c);
}

static void test_every_operation_has_a_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < eg__op_count; i++) {
        size_t found = 0;
        for (size_t k = 0; k < EG_COUNT(op_cases); k++)
            found += strcmp(op_cases[k].op, eg__op_list[i]->name) == 0;
        if (!found)
            fail_msg("operation '%s' has no row in tests/ops/cases.h", eg__op_list[i]->name);
    }
}

static void test_gradients(void **state)
{
    (void)state;
    for (size_t k = 0; k < EG_COUNT(op_cases); k++) {
        const op_case *c = &op_cases[k];
        eg_context *ctx = eg_context_new(.seed = 3, .threads = 2, .backend = "ref");
        assert_non_null(ctx);
        eg_tensor *in[CASE_INPUTS];
        for (size_t i = 0; i < CASE_INPUTS; i++)
            in[i] = case_input(ctx, c, i, EG_F64);
        if (eg_gradcheck(ctx, run_case, (void *)c, in, CASE_INPUTS, NULL) != EG_OK)
            fail_msg("%s '%s': %s", c->op, c->name, eg_error_first()->message);
        eg_context_free(ctx);
    }
}

/* Runs the case with gradients wanted for the inputs in `wanted` (bits) and checks them against `expected`, or sets it.
 */
static void gradients_of(const op_case *c, unsigned wanted, double **expected)
{
    eg_context *ctx = eg_context_new(.seed = 3, .threads = 1, .backend = "ref");
    eg_tensor *in[CASE_INPUTS];
    for (size_t i = 0; i < CASE_INPUTS; i++) {
        in[i] = case_input(ctx, c, i, EG_F64);
        if (case_wants_grad(c, i))
            assert_int_equal(eg_tensor_set_requires_grad(in[i], wanted >> i & 1), EG_OK);
    }
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *y = c->run(in, c);
    assert_non_null(y);
    eg_tensor *dy = eg_tensor_copy(y);
    if (!dy || eg_backward_from(y, dy) != EG_OK)
        fail_msg("%s '%s' for inputs %x: %s", c->op, c->name, wanted, eg_error_first()->message);
    eg_tape_end(tape);
    for (size_t i = 0; i < CASE_INPUTS; i++) {
        eg_tensor *grad = eg_tensor_grad(in[i]);
        assert_true((grad != NULL) == (case_wants_grad(c, i) && (wanted >> i & 1)));
        if (!grad)
            continue;
        size_t n = (size_t)eg_tensor_numel(grad);
        assert_true(eg__is_dense(grad));
        if (!expected[i]) {
            expected[i] = calloc(n, sizeof(double));
            assert_non_null(expected[i]);
            memcpy(expected[i], eg_tensor_data(grad), n * sizeof(double));
        } else if (memcmp(expected[i], eg_tensor_data(grad), n * sizeof(double)) != 0) {
            fail_msg("%s '%s': gradient of input %zu differs when wanted for %x", c->op, c->name, i, wanted);
        }
    }
    eg_context_free(ctx);
}

static void test_fewer_gradients(void **state)
{
    (void)state;
    for (size_t k = 0; k < EG_COUNT(op_cases); k++) {
        const op_case *c = &op_cases[k];
        double *expected[CASE_INPUTS] = {NULL};
        unsigned all = 0;
        for (size_t i = 0; i < CASE_INPUTS; i++)
            all |= (unsigned)case_wants_grad(c, i) << i;
        gradients_of(c, all, expected);
        for (unsigned wanted = 1; wanted < all; wanted++)
            if ((wanted & ~all) == 0)
                gradients_of(c, wanted, expected);
        for (size_t i = 0; i < CASE_INPUTS; i++)
            free(expected[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_operation_has_a_case),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_fewer_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
