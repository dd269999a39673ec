/*
 * Activations that have fields or parameters: printed as PyTorch prints them, cloned, trained, and refused.
 */
#include "support.h"

#include "engraft/layers.h"

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 1);
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    eg_context_free(ctx);
    return 0;
}

static void text_is_pytorchs(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_elu(ctx), eg_elu(ctx, EG_F64(0.5)), eg_softplus(ctx),
                                                 eg_softplus(ctx, 0.5, EG_F64(1)), eg_mish(ctx), eg_prelu(ctx),
                                                 eg_prelu(ctx, 16, EG_F64(0.1))));
    char *text = eg_module_text(m);
    assert_non_null(text);
    assert_string_equal(text, "Sequential(\n"
                              "  (0): ELU(alpha=1.0)\n"
                              "  (1): ELU(alpha=0.5)\n"
                              "  (2): Softplus(beta=1.0, threshold=20.0)\n"
                              "  (3): Softplus(beta=0.5, threshold=1.0)\n"
                              "  (4): Mish()\n"
                              "  (5): PReLU(num_parameters=1)\n"
                              "  (6): PReLU(num_parameters=16)\n"
                              ")");
    eg_free(text);
    eg_module_release(m);
}

static void slopes_are_learned_and_cloned(void **state)
{
    (void)state;
    eg_module *m = eg_prelu(ctx, 2, EG_F64(0.5));
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *x = eg_from_data(ctx, EG_SHAPE(2, 2), (const float[]){-1, 2, -3, -4});
    assert_int_equal(eg_backward(eg_sum(eg_call(m, x))), EG_OK);
    float slopes[2], grad[2];
    assert_int_equal(eg_tensor_read(eg_tensor_grad(((eg_prelu *)m)->weight), grad, 2), EG_OK);
    assert_true(grad[0] == -4 && grad[1] == -4);
    eg_tape_end(tape);
    assert_int_equal(eg_tensor_write(((eg_prelu *)m)->weight, (const float[]){3, 4}, 2), EG_OK);
    eg_module *copy = eg_module_clone(m);
    eg_module_release(m);
    assert_int_equal(eg_tensor_read(eg_module_tensor(copy, "weight"), slopes, 2), EG_OK);
    assert_true(slopes[0] == 3 && slopes[1] == 4);
    assert_int_equal(((eg_prelu *)copy)->num_parameters, 2);
    eg_module_release(copy);
}

static void refused(void **state)
{
    (void)state;
    assert_null(eg_prelu(ctx, -1));
    assert_string_equal(eg_error_first()->message, "PReLU: 'num_parameters' is -1, expected 1 to 1073741823");
    eg_error_clear();
    eg_module *m = eg_softplus(ctx, -1);
    assert_null(eg_call(m, eg_randn(ctx, EG_SHAPE(2))));
    assert_string_equal(eg_error_first()->message, "softplus: beta is -1, expected more than 0");
    eg_module_release(m);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(text_is_pytorchs),
        TEST(slopes_are_learned_and_cloned),
        TEST(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
