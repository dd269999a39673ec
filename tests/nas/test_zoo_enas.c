/*
 * The cells of DARTS and ENAS, and the spaces of ENAS.
 */
#include "nas/zoo.h"

static void darts_cells_are_those_of_the_zoo(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    const eg_shape in[2] = {EG_SHAPE(2, 48, 8, 8), EG_SHAPE(2, 48, 8, 8)};
    eg_module *cell = eg_darts_cell(ctx, 4, 48, 48, 16);
    check_cell(cell, in, &EG_SHAPE(2, 64, 8, 8), 1);
    assert_int_equal(eg_module_n_parameters(cell), 45888);
    char *text = eg_search_space_text(cell);
    assert_made(text);
    assert_non_null(strstr(text, "\"normal_n2_p0\""));
    assert_non_null(strstr(text, "\"normal_n5_p4\""));
    assert_non_null(strstr(text, "\"normal_n5_switch\""));
    assert_null(strstr(text, "normal_n6"));
    eg_free(text);
    eg_module_release(cell);
    cell = eg_darts_cell(ctx, 4, 48, 48, 16, .reduction = true);
    check_cell(cell, in, &EG_SHAPE(2, 64, 4, 4), 1);
    assert_int_equal(eg_module_n_parameters(cell), 47936);
    eg_module_release(cell);
    /* another number of nodes, an odd image, the cell after a reduction */
    cell = eg_darts_cell(ctx, 2, 8, 6, 4, .reduction_p = true);
    check_cell(cell, (const eg_shape[2]){EG_SHAPE(2, 8, 9, 7), EG_SHAPE(2, 6, 5, 4)}, &EG_SHAPE(2, 8, 5, 4), 1);
    eg_module_release(cell);
    assert_refused(eg_darts_cell(ctx, 17, 8, 8, 8), EG_EINVAL, "n_nodes");
    eg_context_free(ctx);
}

/* ---- micro ---- */

static void micro_cells_are_those_of_the_zoo(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    const eg_shape in[2] = {EG_SHAPE(2, 48, 8, 8), EG_SHAPE(2, 48, 8, 8)};
    eg_module *cell = eg_enas_micro_layer(ctx, 5, 48, 48, 20);
    check_cell(cell, in, (const eg_shape[]){EG_SHAPE(2, 48, 8, 8), EG_SHAPE(2, 20, 8, 8)}, 2);
    assert_int_equal(eg_module_n_parameters(cell), 20320);
    eg_module_release(cell);
    cell = eg_enas_micro_layer(ctx, 5, 48, 48, 20, .reduction = true);
    check_cell(cell, in, (const eg_shape[]){EG_SHAPE(2, 20, 4, 4), EG_SHAPE(2, 20, 4, 4)}, 2);
    char *text = eg_search_space_text(cell);
    assert_made(text);
    assert_non_null(strstr(text, "\"reduce_node_0_x_input\""));
    assert_non_null(strstr(text, "\"reduce_node_4_y_op\""));
    eg_free(text);
    eg_module_release(cell);
    cell = eg_enas_micro_layer(ctx, 1, 3, 6, 4, true, 0.5);
    check_cell(cell, (const eg_shape[2]){EG_SHAPE(3, 3, 9, 7), EG_SHAPE(3, 6, 9, 7)},
               (const eg_shape[]){EG_SHAPE(3, 4, 5, 4), EG_SHAPE(3, 4, 5, 4)}, 2);
    eg_module_release(cell);
    eg_context_free(ctx);
}

/* Inputs and layers are indices in architectures, since two inputs of a cell have no key. */
static void micro_exports_indices(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 3, .threads = 1);
    eg_module *cell = eg_enas_micro_layer(ctx, 2, 4, 4, 4);
    eg_mutator *mutator = eg_random_mutator_new(cell);
    eg_arch *arch = eg_mutator_export(mutator);
    assert_int_equal(eg_arch_size(arch), 2 * 4);
    for (size_t i = 0; i < eg_arch_size(arch); i++) {
        char *value = eg_arch_value(arch, eg_arch_key(arch, i));
        assert_in_range(atoi(value), 0, 4);
        assert_true(*value >= '0' && *value <= '4');
        eg_free(value);
    }
    eg_arch_free(arch);
    eg_mutator_detach(mutator);
    eg_module_release(cell);
    eg_context_free(ctx);
}

/* Two nodes, the second of which takes the first and input 0: what is left is input 1 and node 1. */
static void micro_joins_what_is_left(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_module *cell = eg_enas_micro_layer(ctx, 2, 2, 2, 2);
    eg_arch *arch = parse_arch("{\"normal_node_0_x_input\": 0, \"normal_node_0_x_op\": 4, \"normal_node_0_y_input\": 0,"
                               " \"normal_node_0_y_op\": 4, \"normal_node_1_x_input\": 0, \"normal_node_1_x_op\": 4,"
                               " \"normal_node_1_y_input\": 2, \"normal_node_1_y_op\": 4}");
    assert_ok(eg_apply_arch(cell, arch));
    eg_arch_free(arch);
    eg_module_train(cell, false);
    /* 2 outputs, 4 states of 2 channels: ones for channel 0 of state 1, tens for channel 0 of state 3; the others would
     * be seen */
    float weight[16] = {100, 100, 1, 0, 100, 100, 10, 0, 100, 100, 1, 0, 100, 100, 10, 0};
    assert_ok(eg_tensor_write(eg_module_tensor(cell, "final_conv_w"), weight, 16));
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *y = eg_call(cell, eg_full(ctx, EG_SHAPE(1, 2, 1, 1), 3), eg_full(ctx, EG_SHAPE(1, 2, 1, 1), 5));
    assert_made(y);
    assert_tensor(eg_tuple_get(y, 0), 0, 5, 5);
    /* node 0 is 3 + 3, node 1 is 3 + 6; the batch norm has mean 0 and variance 1 */
    double expected = (5 + 10 * 9) / sqrt(1 + 1e-5);
    assert_tensor(eg_tuple_get(y, 1), 1e-4, (float)expected, (float)expected);
    eg_tape_end(tape);
    eg_module_release(cell);
    eg_context_free(ctx);
}

static void micro_shapes(void **state)
{
    (void)state;
    const space_row rows[] = {{EG_SHAPE(1, 28, 28), 0, 0, 0},
                              {EG_SHAPE(3, 32, 32), 0, 0, 0},
                              {EG_SHAPE(3, 9, 13), 0, 0, 0},
                              {EG_SHAPE(1, 8, 31), 4, 1, 0}};
    check_space_shapes("enas_micro", rows, sizeof rows / sizeof *rows);
}

static void micro_paths_equal_networks(void **state)
{
    (void)state;
    check_space("enas_micro",
                &(eg_space_options){.struct_size = sizeof(eg_space_options),
                                    .input = EG_SHAPE(3, 9, 8),
                                    .classes = 3,
                                    .channels = 4,
                                    .layers = 3},
                100);
}

/* ---- macro ---- */

static void macro_is_that_of_the_zoo(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_module *net = eg_enas_macro(ctx);
    check_cell(net, (const eg_shape[2]){EG_SHAPE(2, 3, 32, 32)}, &EG_SHAPE(2, 10), 1);
    assert_int_equal(eg_module_n_parameters(net), 302770);
    static const char *const keys[] = {"layer_0",      "LayerChoice1", "layer_1",      "LayerChoice2",
                                       "InputChoice3", "layer_2",      "LayerChoice4", "InputChoice5"};
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_int_equal(mutator->n_mutables, 35);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_string_equal(eg_mutable_key(mutator->mutables[i]), keys[i]);
    assert_string_equal(eg_mutable_key(mutator->mutables[34]), "InputChoice23");
    assert_int_equal(eg_input_choice_size(mutator->mutables[34]), 11);
    assert_string_equal(eg_input_choice_source(mutator->mutables[34], 10), "layer_10");
    eg_mutator_detach(mutator);
    eg_module_release(net);
    /* shortcuts of either kind, none at all, layers that are fewer than three */
    for (int64_t layers = 1; layers < 5; layers++) {
        net = eg_enas_macro(ctx, layers, 2, 1, 3, 0.5, 0.5);
        check_cell(net, (const eg_shape[2]){EG_SHAPE(2, 1, 9, 8)}, &EG_SHAPE(2, 3), 1);
        eg_module_release(net);
    }
    eg_context_free(ctx);
}

static void macro_shapes(void **state)
{
    (void)state;
    const space_row rows[] = {{EG_SHAPE(1, 28, 28), 0, 0, 302770 - 2 * 24 * 9},
                              {EG_SHAPE(3, 32, 32), 0, 0, 302770},
                              {EG_SHAPE(3, 9, 13), 0, 0, 302770}};
    check_space_shapes("enas_macro", rows, sizeof rows / sizeof *rows);
}

static void macro_paths_equal_networks(void **state)
{
    (void)state;
    check_space("enas_macro",
                &(eg_space_options){.struct_size = sizeof(eg_space_options),
                                    .input = EG_SHAPE(3, 9, 8),
                                    .classes = 3,
                                    .channels = 4,
                                    .layers = 6,
                                    .drop_path = 0.1},
                100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(darts_cells_are_those_of_the_zoo),
        cmocka_unit_test(micro_cells_are_those_of_the_zoo),
        cmocka_unit_test(micro_exports_indices),
        cmocka_unit_test(micro_joins_what_is_left),
        cmocka_unit_test(micro_shapes),
        cmocka_unit_test(micro_paths_equal_networks),
        cmocka_unit_test(macro_is_that_of_the_zoo),
        cmocka_unit_test(macro_shapes),
        cmocka_unit_test(macro_paths_equal_networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
