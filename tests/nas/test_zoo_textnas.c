/*
 * TextNAS: sequences of numbers and of words.
 */
#include "nas/zoo.h"

static eg_space_options options_for(eg_shape input, int64_t vocabulary)
{
    return (eg_space_options){.struct_size = sizeof(eg_space_options),
                              .input = input,
                              .classes = 3,
                              .channels = 8,
                              .layers = 4,
                              .vocabulary = vocabulary};
}

static void keys_and_parameters(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_space_options options = options_for(EG_SHAPE(10), 30);
    options.layers = 7;
    eg_module *net = eg_space_build(ctx, "textnas", &options);
    assert_made(net);
    const int64_t c = 8, gru = 2 * 3 * (2 * c * c + 2 * c), attention = 4 * c * c + 4 * c;
    const int64_t layer = (1 + 3 + 5 + 7) * c * c + 4 * 2 * c + gru + attention + 2 * c;
    assert_int_equal(eg_module_n_parameters(net), 30 * c + (c * c + 2 * c) + 7 * layer + 7 + (3 * c + 3));
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_int_equal(mutator->n_mutables, 2 + 6 * 4);
    static const char *const keys[] = {"layer_0",       "layer_0_op", "layer_1",
                                       "layer_1_input", "layer_1_op", "layer_1_skips"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_string_equal(eg_mutable_key(mutator->mutables[i]), keys[i]);
    /* the last layer takes one of the five before it, and any of all */
    const eg_module *input = mutator->mutables[23], *skips = mutator->mutables[25];
    assert_int_equal(eg_input_choice_size(input), 5);
    assert_string_equal(eg_input_choice_source(input, 0), "layer_1");
    assert_int_equal(eg_input_choice_n_chosen(input), 1);
    assert_int_equal(eg_input_choice_size(skips), 6);
    assert_int_equal(eg_input_choice_n_chosen(skips), -1);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    eg_context_free(ctx);
}

static void shapes(void **state)
{
    (void)state;
    const space_row rows[] = {
        {EG_SHAPE(1, 28, 28), 0, 0, 0}, {EG_SHAPE(3, 32, 32), 0, 0, 0}, {EG_SHAPE(17), 0, 0, 0},
        {EG_SHAPE(5, 9), 0, 0, 0},      {EG_SHAPE(1), 6, 1, 0},
    };
    check_space_shapes("textnas", rows, sizeof rows / sizeof *rows);
}

static void words_of_either_type_are_the_same(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 5, .threads = 1);
    eg_space_options options = options_for(EG_SHAPE(6), 9);
    eg_module *net = eg_space_build(ctx, "textnas", &options);
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_ok(eg_mutator_reset(mutator));
    eg_module_train(net, false);
    const float words[12] = {1, 2, 3, 8, 0, 0, 4, 4, 5, 0, 0, 0};
    int64_t numbers[12];
    for (int i = 0; i < 12; i++)
        numbers[i] = (int64_t)words[i];
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    float a[6], b[6], c[6];
    assert_ok(eg_tensor_read(eg_call(net, eg_from_data(ctx, EG_SHAPE(2, 6), words)), a, 6));
    eg_tensor *x = eg_reshape(eg_from_labels(ctx, 12, numbers), EG_SHAPE(2, 6));
    assert_ok(eg_tensor_read(eg_call(net, x), b, 6));
    assert_memory_equal(a, b, sizeof a);
    /* other words, another result */
    assert_ok(eg_tensor_read(eg_call(net, eg_ones(ctx, EG_SHAPE(2, 6))), c, 6));
    assert_memory_not_equal(a, c, sizeof a);
    for (int i = 0; i < 2; i++)
        assert_refused(eg_call(net, eg_full(ctx, EG_SHAPE(2, 6), i == 0 ? 9 : -1)), EG_EINVAL, "embedding");
    eg_tape_end(tape);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    eg_context_free(ctx);
}

static void bad_inputs_are_refused(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_space_options options = options_for(EG_SHAPE(3, 6), 9);
    assert_refused(eg_space_build(ctx, "textnas", &options), EG_ESHAPE, "input is (3, 6), expected (L)");
    options = options_for(EG_SHAPE(6), -1);
    assert_refused(eg_space_build(ctx, "textnas", &options), EG_EINVAL, "a vocabulary of -1 words");
    eg_context_free(ctx);
}

static void paths_equal_networks(void **state)
{
    (void)state;
    eg_space_options options = options_for(EG_SHAPE(3, 11), 0);
    options.drop_path = 0.1;
    check_space("textnas", &options, 60);
    options = options_for(EG_SHAPE(12), 20);
    eg_context *ctx = eg_context_new(.seed = 6, .threads = 1);
    float words[24];
    for (int i = 0; i < 24; i++)
        words[i] = (float)(i * 7 % 20);
    eg_tensor *x = eg_tensor_keep(eg_from_data(ctx, EG_SHAPE(2, 12), words));
    check_space_on("textnas", &options, ctx, x, 40);
    eg_tensor_release(x);
    eg_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_parameters),
        cmocka_unit_test(shapes),
        cmocka_unit_test(words_of_either_type_are_the_same),
        cmocka_unit_test(bad_inputs_are_refused),
        cmocka_unit_test(paths_equal_networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
