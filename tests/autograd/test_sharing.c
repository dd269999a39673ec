/*
 * Equal applications of a stateless operation share their result while a tape records, and never otherwise; gradients
 * are those of operations that share nothing.
 */
#include "support.h"

#include "autograd/internal.h"
#include "engraft/ops.h"

static int setup(void **state)
{
    *state = eg_context_new(.seed = 3, .threads = 2);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

static eg_tensor *leaf(eg_context *ctx)
{
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, 3, 6, 5));
    assert_int_equal(eg_tensor_set_requires_grad(x, true), EG_OK);
    return x;
}

static void equal_operations_share(void **state)
{
    eg_tensor *x = leaf(*state);
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    eg_tensor *h = eg_affine(x, 2, 1), *other = eg_affine(x, 2, 1);
    eg_tensor *relu = eg_f_relu(h), *pool = eg_f_max_pool2d(h, .kernel_size = 3, .stride = 1, .padding = 1);
    assert_ptr_equal(eg_f_relu(h), relu);
    assert_ptr_equal(eg_f_max_pool2d(h, .kernel_size = 3, .stride = 1, .padding = 1), pool);
    assert_ptr_not_equal(eg_f_max_pool2d(h, .kernel_size = 3, .stride = 1, .padding = 0), pool);
    assert_ptr_not_equal(eg_f_leaky_relu(h, 0.1), eg_f_leaky_relu(h, 0.2));
    assert_ptr_not_equal(eg_f_relu(other), relu);
    assert_ptr_not_equal(eg_f_relu(x), eg_f_relu(x)); /* leaves are not recorded results */
    eg_tape_end(tape);
}

static void nothing_is_shared_without_a_tape(void **state)
{
    eg_tensor *x = leaf(*state), *h = eg_affine(x, 2, 1);
    assert_ptr_not_equal(eg_f_relu(h), eg_f_relu(h));
    eg_tape *tape = eg_tape_begin(*state, EG_NO_GRAD);
    h = eg_affine(x, 2, 1);
    assert_ptr_not_equal(eg_f_relu(h), eg_f_relu(h));
    eg_tape_end(tape);
}

static void changes_in_place_end_sharing(void **state)
{
    eg_tensor *x = leaf(*state);
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    eg_tensor *h = eg_affine(x, 2, 1), *relu = eg_f_relu(h);
    eg_tensor_touch(h);
    eg_tensor *second = eg_f_relu(h);
    assert_ptr_not_equal(second, relu);
    eg_tensor_touch(second);
    assert_ptr_not_equal(eg_f_relu(h), second);
    eg_tape_end(tape);
}

static void backward_ends_sharing(void **state)
{
    eg_tensor *x = leaf(*state);
    eg_tape *tape = eg_tape_begin(*state, EG_RECORD);
    eg_tensor *h = eg_affine(x, 2, 1), *relu = eg_f_relu(h);
    assert_int_equal(eg_backward(eg_sum(relu)), EG_OK);
    assert_ptr_not_equal(eg_f_relu(h), relu);
    eg_tape_end(tape);
}

/* Three readers of a shared ReLU, and one of its input: the gradient of each path arrives. */
static void gradients_add_up(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = leaf(ctx), *gradient[2];
    for (int shared = 0; shared < 2; shared++) {
        eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
        eg_tensor *h = eg_affine(x, 2, 0.25), *sum = eg_affine(h, 0.5, 0);
        for (int i = 1; i <= 3; i++) {
            eg_tensor *relu = shared ? eg_f_relu(h) : eg_f_relu(eg_affine(h, 1, 0));
            sum = eg_add(sum, eg_affine(relu, i, 0));
        }
        assert_int_equal(eg_backward(eg_sum(eg_mul(sum, sum))), EG_OK);
        gradient[shared] = eg_tensor_keep(eg_tensor_copy(eg_tensor_grad(x)));
        eg_tape_end(tape);
        eg_tensor_zero_grad(x);
    }
    float expected[2 * 3 * 6 * 5];
    assert_int_equal(eg_tensor_read(gradient[0], expected, EG_COUNT(expected)), EG_OK);
    assert_numbers(gradient[1], expected, EG_COUNT(expected), 1e-5);
    eg_tensor_release(gradient[0]);
    eg_tensor_release(gradient[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(equal_operations_share, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_shared_without_a_tape, setup, teardown),
        cmocka_unit_test_setup_teardown(changes_in_place_end_sharing, setup, teardown),
        cmocka_unit_test_setup_teardown(backward_ends_sharing, setup, teardown),
        cmocka_unit_test_setup_teardown(gradients_add_up, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
