/*
 * Search spaces: parameters, image sizes, and that an architecture means the same in the supernet and on its own.
 */
#include "nas/toy.h"

enum { ARCHITECTURES = 20 };

static eg_space_options options_for(int64_t channels, int64_t side)
{
    return (eg_space_options){
        .struct_size = sizeof(eg_space_options), .input = EG_SHAPE(channels, side, side), .classes = 10};
}

static void darts_has_the_parameters_of_its_authors(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 2);
    eg_space_options options = options_for(3, 32);
    eg_module *net = eg_space_build(ctx, "darts", &options);
    assert_made(net);
    assert_int_equal(eg_module_n_parameters(net), 1930618);
    /* the first cell: 48, 48, 16 */
    assert_int_equal(eg_module_n_parameters(eg_module_find(net, "cells.0")), 45888);
    eg_mutator *mutator = eg_darts_mutator_new(net);
    assert_made(mutator);
    assert_int_equal(mutator->n_mutables, 36);
    assert_int_equal(((eg_darts_mutator *)mutator)->n_choices, 28);
    size_t alphas = 0;
    for (size_t i = 0; i < mutator->n_mutables; i++) {
        if (eg_is_a(mutator->mutables[i], &eg_layer_choice_class))
            alphas += (size_t)eg_tensor_numel(eg_darts_mutator_alpha(mutator, eg_mutable_key(mutator->mutables[i])));
    }
    assert_int_equal(alphas, 224);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    /* a reduction cell of 48, 48, 16 comes first with one layer, which halves the image */
    options.layers = 1;
    options.channels = 16;
    net = eg_space_build(ctx, "darts", &options);
    eg_module *cell = eg_module_find(net, "cells.0");
    assert_made(cell);
    /* the channels of a reduction cell are twice those before: 96 * 32 instead of 96 * 16 to preprocess, edges of 32 */
    assert_int_equal(eg_module_n_parameters(cell),
                     2 * 48 * 32 + 14 * (4 * 32 * 32 + 2 * 32 * 32 + 32 * (9 * 3 + 25 * 3)) + 8 * 32 * 32);
    eg_module_release(net);
    eg_context_free(ctx);
}

static void cells_is_small(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 2);
    eg_space_options options = options_for(1, 28);
    eg_module *net = eg_space_build(ctx, "cells", &options);
    assert_made(net);
    eg_mutator *mutator = eg_random_mutator_new(net);
    for (int i = 0; i < 10; i++) {
        assert_ok(eg_mutator_reset(mutator));
        eg_trace *trace = eg_trace_new(net, &EG_SHAPE(1, 1, 28, 28), 1);
        assert_made(trace);
        assert_true(eg_trace_macs(trace) < 10000000);
        assert_true(eg_trace_params(trace) < 300000);
        eg_trace_free(trace);
    }
    eg_mutator_detach(mutator);
    eg_module_release(net);
    eg_context_free(ctx);
}

/* ---- the supernet's path and the network that is made of it ---- */

static eg_module *copy_weights(eg_context *ctx, const char *name, const eg_space_options *options, eg_module *from)
{
    eg_module *net = eg_space_build(ctx, name, options);
    eg_state *weights = eg_state_new();
    assert_ok(eg_module_state(from, NULL, weights));
    assert_ok(eg_module_load_state(net, NULL, weights, true));
    eg_state_free(weights);
    return net;
}

static void randomize_statistics(eg_context *ctx, eg_module *net, eg_tensor *x)
{
    eg_mutator *mutator = eg_random_mutator_new(net);
    eg_module_train(net, true);
    for (int i = 0; i < 3; i++) {
        assert_ok(eg_mutator_reset(mutator));
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        assert_made(eg_call(net, x));
        eg_tape_end(tape);
    }
    eg_module_train(net, false);
    eg_mutator_detach(mutator);
}

/* The output of the supernet under a fresh decision, which *text receives. */
static void run_path(eg_module *net, eg_tensor *x, float out[20], char **text)
{
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_ok(eg_mutator_reset(mutator));
    eg_tape *tape = eg_tape_begin(net->ctx, EG_NO_GRAD);
    eg_tensor *y = eg_call(net, x);
    assert_made(y);
    assert_ok(eg_tensor_read(y, out, 20));
    eg_tape_end(tape);
    eg_arch *arch = eg_mutator_export_decisions(mutator, mutator->current);
    assert_made(arch);
    *text = eg_arch_text(arch);
    eg_arch_free(arch);
    eg_mutator_detach(mutator);
}

static void an_architecture_means_the_same(const char *name, const eg_space_options *options)
{
    eg_context *ctx = eg_context_new(.seed = 9, .threads = 2);
    eg_module *net = eg_space_build(ctx, name, options);
    assert_made(net);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, options->input.dims[0], options->input.dims[1], options->input.dims[2]));
    randomize_statistics(ctx, net, x);
    for (int i = 0; i < ARCHITECTURES; i++) {
        float path[20], alone[20];
        char *text;
        run_path(net, x, path, &text);
        eg_arch *arch = parse_arch(text);
        eg_free(text);
        eg_module *fixed = copy_weights(ctx, name, options, net);
        assert_ok(eg_apply_arch(fixed, arch));
        eg_module_train(fixed, false);
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        eg_tensor *y = eg_call(fixed, x);
        assert_made(y);
        assert_ok(eg_tensor_read(y, alone, 20));
        eg_tape_end(tape);
        assert_memory_equal(path, alone, sizeof path);
        assert_true(eg_module_n_parameters(fixed) < eg_module_n_parameters(net));
        eg_arch_free(arch);
        eg_module_release(fixed);
    }
    eg_module_release(net);
    eg_context_free(ctx);
}

static void paths_equal_networks(void **state)
{
    (void)state;
    eg_space_options options = options_for(3, 16);
    options.channels = 4;
    options.layers = 3;
    for (const eg_space *const *space = eg_spaces(); *space != NULL; space++)
        an_architecture_means_the_same((*space)->name, &options);
}

static void any_image_of_eight_or_more(void **state)
{
    (void)state;
    static const int64_t sides[][2] = {{8, 8}, {9, 13}, {15, 8}, {28, 28}, {30, 33}};
    for (const eg_space *const *space = eg_spaces(); *space != NULL; space++) {
        for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
            eg_context *ctx = eg_context_new(.threads = 2);
            eg_space_options options = {.struct_size = sizeof options,
                                        .input = EG_SHAPE(i % 2 == 0 ? 1 : 3, sides[i][0], sides[i][1]),
                                        .classes = 7,
                                        .channels = 4,
                                        .layers = 3,
                                        .drop_path = 0.2};
            eg_module *net = eg_space_build(ctx, (*space)->name, &options);
            assert_made(net);
            eg_mutator *mutator = eg_darts_mutator_new(net);
            eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
            assert_ok(eg_mutator_reset(mutator));
            eg_tensor *y = eg_call(net, eg_randn(ctx, EG_SHAPE(2, options.input.dims[0], sides[i][0], sides[i][1])));
            assert_made(y);
            assert_true(eg_shape_equal(eg_tensor_shape(y), EG_SHAPE(2, 7)));
            assert_ok(eg_backward(eg_sum(y)));
            eg_tape_end(tape);
            eg_mutator_detach(mutator);
            eg_module_release(net);
            eg_context_free(ctx);
        }
    }
}

static void mlp_takes_rows(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_space_options options = {
        .struct_size = sizeof options, .input = EG_SHAPE(5), .classes = 3, .channels = 8, .layers = 1};
    eg_module *net = eg_space_build(ctx, "mlp", &options);
    assert_made(net);
    assert_int_equal(eg_module_n_parameters(net), (5 * 8 + 8) + 3 * (8 * 8 + 8) + (2 * 8 * 2 + 8) + (8 * 3 + 3));
    char *text = eg_search_space_text(net);
    assert_non_null(strstr(text, "\"layer0_op\""));
    assert_non_null(strstr(text, "\"bottleneck\""));
    assert_non_null(strstr(text, "\"layer0_shortcut\""));
    eg_free(text);
    eg_arch *arch = parse_arch("{\"layer0_op\": \"bottleneck\", \"layer0_shortcut\": []}");
    assert_ok(eg_apply_arch(net, arch));
    eg_arch_free(arch);
    assert_int_equal(eg_module_n_parameters(net), (5 * 8 + 8) + (2 * 8 * 2 + 8) + (8 * 3 + 3));
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *y = eg_call(net, eg_ones(ctx, EG_SHAPE(4, 5)));
    assert_made(y);
    assert_true(eg_shape_equal(eg_tensor_shape(y), EG_SHAPE(4, 3)));
    eg_tape_end(tape);
    eg_module_release(net);
    eg_context_free(ctx);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_space_options options = options_for(3, 32);
    assert_refused(eg_space_build(ctx, "cell", &options), EG_ENOENT, "there is no space 'cell', did you mean 'cells'?");
    options.input = EG_SHAPE(30);
    assert_refused(eg_space_build(ctx, "cells", &options), EG_ESHAPE, "space 'cells': input is (30), expected images");
    options.input = EG_SHAPE(3, 7, 32);
    assert_refused(eg_space_build(ctx, "darts", &options), EG_ESHAPE, "(3, 7, 32)");
    options.input = EG_SHAPE(0);
    assert_refused(eg_space_build(ctx, "mlp", &options), EG_ESHAPE, "input is (0), expected 1 to");
    options = options_for(3, 32);
    options.classes = 0;
    assert_refused(eg_space_build(ctx, "cells", &options), EG_EINVAL, "0 classes");
    options = options_for(3, 32);
    options.channels = 15;
    assert_refused(eg_space_build(ctx, "cells", &options), EG_EINVAL, "15 channels, expected an even number");
    options = options_for(3, 32);
    options.drop_path = 1;
    assert_refused(eg_space_build(ctx, "cells", &options), EG_EINVAL, "drop_path is 1");
    for (const eg_space *const *space = eg_spaces(); *space != NULL; space++)
        assert_ptr_equal(eg_space_find((*space)->name), *space);
    eg_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(darts_has_the_parameters_of_its_authors),
        cmocka_unit_test(cells_is_small),
        cmocka_unit_test(paths_equal_networks),
        cmocka_unit_test(any_image_of_eight_or_more),
        cmocka_unit_test(mlp_takes_rows),
        cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
