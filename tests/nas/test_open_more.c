/*
 * Open fields further: in functions that are run again, in cells of search spaces, and what is no handle.
 */
#include "nas/everything.h"

#include "engraft/zoo.h"
#include "nas/internal.h"

static int setup(void **state)
{
    *state = eg_context_new(.seed = 7, .threads = 2);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

/* ---- run again ---- */

static eg_tensor *call(void *payload, eg_tensor *const *in, size_t n_in)
{
    return eg_module_call(payload, in, n_in);
}

static eg_tensor *call_inside(void *payload, eg_tensor *const *in, size_t n_in)
{
    eg_module *m = payload;
    return eg_recompute(m->ctx, call, m, NULL, in, n_in);
}

/* Backward of a network that decides otherwise by then. */
static eg_status change_between(eg_module *net, eg_recompute_fn fn, eg_mutator *mutator, const char *first,
                                const char *then)
{
    decide(mutator, first);
    eg_tape *tape = eg_tape_begin(net->ctx, EG_RECORD);
    eg_tensor *x = eg_randn(net->ctx, EG_SHAPE(3, 2, 5, 5));
    eg_tensor *y = eg_recompute(net->ctx, fn, net, NULL, &x, 1);
    assert_made(y);
    eg_tensor *loss = eg_sum(eg_mul(y, y));
    decide(mutator, then);
    eg_status status = eg_backward(loss);
    eg_tape_end(tape);
    eg_module_zero_grad(net);
    return status;
}

static void what_is_run_again_is_decided_as_before(void **state)
{
    eg_context *ctx = *state;
    int64_t width = eg_value_choice(ctx, EG_VALUES(2, 4, 6), .key = "w"),
            stride = eg_value_choice(ctx, EG_VALUES(1, 2), .key = "s");
    eg_module *net =
        eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 2, width, 1), eg_conv2d(ctx, width, 3, 1, .stride = stride)));
    eg_mutator *mutator = attach(net);
    static const eg_recompute_fn fns[] = {call, call_inside};
    for (size_t i = 0; i < 2; i++) {
        assert_ok(change_between(net, fns[i], mutator, "{\"w\": 4, \"s\": 1}", "{\"w\": 4, \"s\": 1}"));
        static const char *const others[] = {"{\"w\": 2, \"s\": 1}", "{\"w\": 6, \"s\": 1}", "{\"w\": 4, \"s\": 2}"};
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(change_between(net, fns[i], mutator, "{\"w\": 4, \"s\": 1}", others[k]), EG_EINVAL);
            assert_recorded(EG_EINVAL, "the function read others when it was run again");
        }
    }
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- cells ---- */

/* All that a cell gives does not depend on whether the share that is dropped is open. */
static void check_cell(eg_module *open, eg_module *closed, size_t n_in)
{
    eg_context *ctx = open->ctx;
    assert_made(open);
    assert_made(closed);
    eg_state *weights = eg_state_new();
    assert_ok(eg_module_state(closed, NULL, weights));
    assert_ok(eg_module_load_state(open, NULL, weights, true));
    eg_state_free(weights);
    eg_mutator *mutator = attach(open), *other = attach(closed);
    assert_ok(eg_mutator_reset(other));
    eg_arch *arch = eg_mutator_export(other);
    char *text = eg_arch_text(arch), *with = strchr(text, '{') + 1;
    char *both = calloc(1, strlen(text) + 40);
    sprintf(both, "{\"drop\": 0.5, %s", with);
    decide(mutator, both);
    eg_module_train(open, false);
    eg_module_train(closed, false);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *in[2] = {eg_randn(ctx, EG_SHAPE(2, 4, 6, 6)), eg_randn(ctx, EG_SHAPE(2, 4, 6, 6))};
    assert_ok(eg_mutator_set_arch(other, arch));
    compare(eg_module_call(open, in, n_in), eg_module_call(closed, in, n_in));
    eg_module_train(open, true);
    assert_made(eg_module_call(open, in, n_in));
    eg_tape_end(tape);
    free(both);
    eg_free(text);
    eg_arch_free(arch);
    eg_mutator_detach(mutator);
    eg_mutator_detach(other);
    eg_module_release(open);
    eg_module_release(closed);
}

static void cells_take_open_drop_paths(void **state)
{
    eg_context *ctx = *state;
    double drop = (double)eg_value_choice(ctx, EG_VALUES(0, 0.5), .key = "drop");
    check_cell(eg_darts_cell(ctx, 2, 4, 4, 4, .drop_path = drop), eg_darts_cell(ctx, 2, 4, 4, 4), 2);
    check_cell(eg_nasbench201_cell(ctx, NULL, 4, 4, .drop_path = drop), eg_nasbench201_cell(ctx, NULL, 4, 4), 1);
    eg_module *branch[2];
    for (int i = 0; i < 2; i++)
        branch[i] = eg_layer_choice(ctx, EG_MODULES(eg_conv2d(ctx, 4, 4, 1), eg_tanh(ctx)), .key = "branch");
    check_cell(eg__residual(ctx, EG_NAMED({"conv", branch[0]}), .drop_path = drop),
               eg__residual(ctx, EG_NAMED({"conv", branch[1]})), 1);
}

/* ---- handles ---- */

static void other_modules_stand_for_no_number(void **state)
{
    eg_context *ctx = *state;
    assert_refused(eg_linear(ctx, eg_value_choice_handle(eg_relu(ctx)), 3), EG_EINVAL,
                   "ReLU is given for a number, expected a ValueChoice");
    assert_null(eg_linear(ctx, eg_value_choice_handle(NULL), 3));
    eg_error_clear();
}

static void numbers_in_files_are_no_handles(void **state)
{
    eg_context *ctx = *state;
    int64_t width = eg_value_choice(ctx, EG_VALUES(8, 16), .key = "w");
    char text[200];
    snprintf(text, sizeof text, "{\"class\": \"Linear\", \"in_features\": %lld, \"out_features\": 4}",
             (long long)width);
    assert_refused(eg_module_from_json(ctx, text), EG_EFORMAT, "expected less than 2^52");
    snprintf(text, sizeof text, "{\"class\": \"Dropout\", \"p\": %.1f}", (double)width);
    assert_refused(eg_module_from_json(ctx, text), EG_EFORMAT, "expected less than 2^52");
    snprintf(text, sizeof text,
             "{\"class\": \"Conv2d\", \"in_channels\": 3, \"out_channels\": 4, \"kernel_size\": %lld}",
             (long long)width);
    assert_refused(eg_module_from_json(ctx, text), EG_EINVAL, "'kernel_size' is");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_run_again_is_decided_as_before, setup, teardown),
        cmocka_unit_test_setup_teardown(cells_take_open_drop_paths, setup, teardown),
        cmocka_unit_test_setup_teardown(other_modules_stand_for_no_number, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_in_files_are_no_handles, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
