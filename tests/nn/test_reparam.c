/*
 * Parameters with weight and spectral normalization: PyTorch's names and numbers, clones, states, removal.
 */
#include "vectors.h"

#include "engraft/layers.h"

#include <string.h>

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

static void expect_names(eg_module *m, const char *expected)
{
    eg_state *state = eg_state_new();
    char names[256] = "";
    assert_int_equal(eg_module_state(m, NULL, state), EG_OK);
    for (size_t i = 0; i < eg_state_size(state); i++) {
        const char *name;
        eg_state_at(state, i, &name);
        strncat(names, name, 60);
        strcat(names, " ");
    }
    assert_string_equal(names, expected);
    eg_state_free(state);
}

enum { MAX = 256 };

static void read_values(const eg_tensor *t, float *values)
{
    if (t == NULL)
        fail_msg("%s", eg_error_first()->message);
    assert_int_equal(eg_tensor_read(t, values, (size_t)eg_tensor_numel(t)), EG_OK);
}

static void expect_near(const eg_tensor *a, const eg_tensor *b)
{
    float x[MAX], y[MAX];
    assert_true(eg_shape_equal(eg_tensor_shape(a), eg_tensor_shape(b)) && eg_tensor_numel(a) <= MAX);
    read_values(a, x);
    read_values(b, y);
    for (int64_t i = 0; i < eg_tensor_numel(a); i++)
        assert_float_equal(x[i], y[i], 1e-5F);
}

/* ---- weight normalization ---- */

static void test_weight_norm(void **state)
{
    (void)state;
    eg_module *m = eg_conv2d(ctx, 3, 4, 2);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, 3, 3, 3)), *plain = eg_tensor_copy(eg_call(m, x));
    char *before = eg_module_text(m);
    assert_int_equal(eg_weight_norm(m, "weight", 0), EG_OK);
    expect_names(m, "bias weight_g weight_v ");
    assert_true(eg_shape_equal(eg_tensor_shape(eg_module_tensor(m, "weight_g")), EG_SHAPE(4, 1, 1, 1)));
    assert_true(eg_is_none(((eg_conv2d *)m)->weight));
    assert_int_equal(eg_module_n_parameters(m), 4 + 4 + 48);
    expect_near(eg_call(m, x), plain);
    assert_true(eg_is_none(((eg_conv2d *)m)->weight));
    char *after = eg_module_text(m);
    assert_string_equal(before, after);
    eg_free(before);
    eg_free(after);

    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    assert_int_equal(eg_backward(eg_mean(eg_call(m, x))), EG_OK);
    eg_tape_end(tape);
    assert_non_null(eg_tensor_grad(eg_module_tensor(m, "weight_g")));
    assert_non_null(eg_tensor_grad(eg_module_tensor(m, "weight_v")));

    assert_int_equal(eg_init_constant(eg_module_tensor(m, "weight_g"), 0), EG_OK);
    eg_module *copy = eg_module_clone(m);
    assert_non_null(copy);
    expect_names(copy, "bias weight_g weight_v ");
    expect_near(eg_call(copy, x), eg_call(m, x));
    assert_int_equal(eg_init_constant(eg_module_tensor(copy, "weight_g"), 1), EG_OK);
    eg_tensor *y = eg_tensor_copy(eg_call(copy, x)); /* the original has no part in it */
    eg_module_release(m);
    expect_near(eg_call(copy, x), y);

    assert_int_equal(eg_remove_weight_norm(copy, "weight"), EG_OK);
    expect_names(copy, "bias weight ");
    assert_ptr_equal(((eg_conv2d *)copy)->weight, eg_module_tensor(copy, "weight"));
    assert_true(eg_tensor_requires_grad(((eg_conv2d *)copy)->weight));
    expect_near(eg_call(copy, x), y);
    assert_int_equal(eg_weight_norm(copy, "weight", -1), EG_OK); /* again, of all */
    assert_int_equal(eg_tensor_shape(eg_module_tensor(copy, "weight_g")).ndim, 0);
    expect_near(eg_call(copy, x), y);
    eg_module_release(copy);
}

/* A frozen parameter stays so; two of one module; and a state that goes from one module to another. */
static void test_weight_norm_of_both(void **state)
{
    (void)state;
    eg_module *m = eg_linear(ctx, 3, 2), *other = eg_linear(ctx, 3, 2);
    eg_module_set_requires_grad(m, false);
    assert_int_equal(eg_weight_norm(m, "weight", 1), EG_OK);
    assert_int_equal(eg_weight_norm(m, "bias", 0), EG_OK);
    expect_names(m, "weight_g weight_v bias_g bias_v ");
    assert_false(eg_tensor_requires_grad(eg_module_tensor(m, "weight_g")));
    assert_int_equal(eg_weight_norm(other, "weight", 1), EG_OK);
    assert_int_equal(eg_weight_norm(other, "bias", 0), EG_OK);
    eg_state *numbers = eg_state_new();
    assert_int_equal(eg_module_state(m, NULL, numbers), EG_OK);
    assert_int_equal(eg_module_load_state(other, NULL, numbers, true), EG_OK);
    eg_state_free(numbers);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(4, 3));
    expect_near(eg_call(m, x), eg_call(other, x));
    assert_int_equal(eg_remove_weight_norm(m, "weight"), EG_OK);
    expect_names(m, "bias_g bias_v weight ");
    expect_near(eg_call(m, x), eg_call(other, x));
    eg_module_release(m);
    eg_module_release(other);
}

/* ---- spectral normalization ---- */

static void fill(eg_module *m, const char *parameter, const json_t *c, const char *name)
{
    vector_fill(c, name, eg_module_tensor(m, parameter));
}

static void check_spectral(const json_t *c)
{
    int dim = (int)vector_number(c, "dim");
    eg_module *m = dim == 0 ? eg_conv2d(ctx, 3, 4, 2) : eg_conv_transpose2d(ctx, 3, 4, 2);
    assert_int_equal(eg_spectral_norm(m, "weight", dim, 2), EG_OK);
    expect_names(m, "bias weight_orig weight_u weight_v ");
    fill(m, "weight_orig", c, "w");
    fill(m, "bias", c, "b");
    fill(m, "weight_u", c, "u");
    fill(m, "weight_v", c, "v");
    eg_tensor *x = vector_tensor(ctx, c, "x", EG_F32, EG_LAYOUT_DEFAULT);
    assert_int_equal(eg_tensor_set_requires_grad(x, true), EG_OK);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *first = eg_call(m, x), *second = eg_call(m, x);
    vector_expect(c, "first", first, 1e-4, 1e-4);
    vector_expect(c, "y", second, 1e-4, 1e-4);
    eg_module *copy = eg_module_clone(m);
    assert_int_equal(eg_backward_from(second, vector_tensor(ctx, c, "dy", EG_F32, EG_LAYOUT_DEFAULT)), EG_OK);
    eg_tape_end(tape);
    vector_expect(c, "dx", eg_tensor_grad(x), 1e-4, 1e-4);
    vector_expect(c, "dw", eg_tensor_grad(eg_module_tensor(m, "weight_orig")), 1e-4, 1e-4);
    vector_expect(c, "db", eg_tensor_grad(eg_module_tensor(m, "bias")), 1e-4, 1e-4);
    vector_expect(c, "u_after", eg_module_tensor(m, "weight_u"), 1e-4, 1e-5);
    vector_expect(c, "v_after", eg_module_tensor(m, "weight_v"), 1e-4, 1e-5);
    eg_module_train(copy, false);
    vector_expect(c, "last", eg_call(copy, x), 1e-4, 1e-4);
    vector_expect(c, "u_after", eg_module_tensor(copy, "weight_u"), 1e-4, 1e-5); /* evaluation changes nothing */
    assert_int_equal(eg_remove_spectral_norm(copy, "weight"), EG_OK);
    expect_names(copy, "bias weight ");
    vector_expect(c, "last", eg_call(copy, x), 1e-4, 1e-4);
    eg_module_release(copy);
    eg_module_release(m);
}

static void test_spectral_norm(void **state)
{
    (void)state;
    json_t *cases = vectors_load("layers"), *c;
    size_t i, checked = 0;
    json_array_foreach(cases, i, c)
    {
        if (strcmp(vector_op(c), "spectral_norm") != 0)
            continue;
        check_spectral(c);
        checked++;
    }
    assert_int_equal(checked, 2);
    json_decref(cases);
}

/* Shapes alone teach nothing about singular values. */
static void test_trace(void **state)
{
    (void)state;
    eg_module *m = eg_linear(ctx, 5, 3);
    assert_int_equal(eg_spectral_norm(m, "weight", 0, 1), EG_OK);
    float before[3], after[3];
    read_values(eg_module_tensor(m, "weight_u"), before);
    assert_float_equal(before[0] * before[0] + before[1] * before[1] + before[2] * before[2], 1, 1e-6F);
    assert_non_null(eg_call(m, eg_shape_only(ctx, EG_SHAPE(2, 5))));
    read_values(eg_module_tensor(m, "weight_u"), after);
    assert_memory_equal(before, after, sizeof before);
    eg_module_release(m);
}

static void test_errors(void **state)
{
    (void)state;
    eg_module *m = eg_conv2d(ctx, 3, 4, 2, .no_bias = true);
    assert_int_equal(eg_weight_norm(m, "wait", 0), EG_ENOENT);
    assert_int_equal(eg_weight_norm(m, "bias", 0), EG_ENOENT);
    assert_int_equal(eg_weight_norm(m, "weight", 4), EG_EINVAL);
    assert_int_equal(eg_weight_norm(m, "weight", -2), EG_EINVAL);
    assert_int_equal(eg_weight_norm(NULL, "weight", 0), EG_EINVAL);
    assert_int_equal(eg_spectral_norm(m, "weight", 0, 0), EG_EINVAL);
    assert_int_equal(eg_spectral_norm(m, "weight", -1, 1), EG_EINVAL);
    assert_int_equal(eg_remove_weight_norm(m, "weight"), EG_ENOENT);
    assert_int_equal(eg_module_add_parameter(m, "loose", NULL, eg_ones(ctx, EG_SHAPE(3))), EG_OK);
    assert_int_equal(eg_weight_norm(m, "loose", 0), EG_EINVAL);
    expect_names(m, "weight loose ");
    assert_int_equal(eg_weight_norm(m, "weight", 0), EG_OK);
    assert_int_equal(eg_weight_norm(m, "weight", 0), EG_ENOENT);
    assert_int_equal(eg_remove_spectral_norm(m, "weight"), EG_ENOENT);
    eg_module_release(m);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_weight_norm), TEST(test_weight_norm_of_both), TEST(test_spectral_norm), TEST(test_trace),
        TEST(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
