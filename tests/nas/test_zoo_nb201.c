/*
 * NAS-Bench-201: the cell, and that the network of every architecture has the parameters and the multiply-accumulates
 * that the benchmark says.
 */
#include "nas/zoo.h"

enum { EDGES = 6, CANDIDATES = 5, ARCHITECTURES = 15625, DRAWN = 300 };

static const char *const edges[EDGES] = {"0_1", "0_2", "1_2", "0_3", "1_3", "2_3"};
static const char *const candidates[CANDIDATES] = {"none", "avg_pool_3x3", "conv_3x3", "conv_1x1", "skip_connect"};

static void the_cell_is_that_of_the_zoo(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_module *cell = eg_nasbench201_cell(ctx, "cell", 16, 16, 1);
    check_cell(cell, (const eg_shape[2]){EG_SHAPE(2, 16, 8, 8)}, &EG_SHAPE(2, 16, 8, 8), 1);
    assert_int_equal(eg_module_n_parameters(cell), 15744);
    eg_mutator *mutator = eg_random_mutator_new(cell);
    assert_int_equal(mutator->n_mutables, EDGES);
    for (size_t i = 0; i < EDGES; i++) {
        assert_string_equal(eg_mutable_key(mutator->mutables[i]), edges[i]);
        assert_int_equal(((eg_layer_choice *)mutator->mutables[i])->reduction, EG_CHOICE_MEAN);
        for (size_t k = 0; k < CANDIDATES; k++)
            assert_string_equal(eg_layer_choice_name(mutator->mutables[i], k), candidates[k]);
    }
    eg_mutator_detach(mutator);
    eg_arch *arch = parse_arch("{\"0_1\": \"avg_pool_3x3\", \"0_2\": \"conv_1x1\", \"1_2\": \"skip_connect\", "
                               "\"0_3\": \"conv_1x1\", \"1_3\": \"skip_connect\", \"2_3\": \"skip_connect\"}");
    assert_ok(eg_apply_arch(cell, arch));
    eg_arch_free(arch);
    assert_int_equal(eg_module_n_parameters(cell), 576);
    eg_module_release(cell);
    eg_context_free(ctx);
}

/* Every candidate alone on every edge, for every kind of change from the input to the output. */
static void cells_change_channels_and_sizes(void **state)
{
    (void)state;
    static const int64_t kinds[][3] = {{4, 4, 1}, {4, 4, 2}, {4, 6, 1}, {6, 4, 2}, {3, 5, 2}, {4, 1, 2}, {4, 6, 3}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (int c = 0; c < CANDIDATES; c++) {
            eg_context *ctx = eg_context_new(.threads = 1);
            int64_t s = kinds[k][2];
            eg_module *cell = eg_nasbench201_cell(ctx, NULL, kinds[k][0], kinds[k][1], s, k % 2 == 0, EG_F64(0.01));
            assert_made(cell);
            eg_arch *arch = eg_arch_new();
            char value[16];
            snprintf(value, sizeof value, "%d", c);
            for (size_t i = 0; i < EDGES; i++)
                assert_ok(eg_arch_set(arch, edges[i], value));
            assert_ok(eg_apply_arch(cell, arch));
            eg_arch_free(arch);
            eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
            eg_tensor *y = eg_call(cell, eg_randn(ctx, EG_SHAPE(2, kinds[k][0], 9, 8)));
            assert_made(y);
            assert_true(eg_shape_equal(eg_tensor_shape(y), EG_SHAPE(2, kinds[k][1], (9 + s - 1) / s, (8 + s - 1) / s)));
            if (c == 0)
                assert_close(eg_tensor_item(eg_max(eg_abs(y))), 0, 0);
            else
                assert_true(eg_tensor_item(eg_max(eg_abs(y))) > 0);
            eg_tape_end(tape);
            eg_module_release(cell);
            eg_context_free(ctx);
        }
    }
}

static void batch_norms_are_as_asked(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_module *cell = eg_nasbench201_cell(ctx, NULL, 4, 4, 2, .no_bn_affine = true, .no_bn_track_running_stats = true);
    assert_int_equal(eg_module_n_parameters(cell), 6 * 10 * 16 + 3 * 16);
    eg_state *tensors = eg_state_new();
    assert_ok(eg_module_state(cell, NULL, tensors));
    assert_int_equal(eg_state_size(tensors), 6 * 2 + 3 * 2);
    eg_state_free(tensors);
    eg_module_release(cell);
    eg_context_free(ctx);
}

/* Architecture number i, and how many edges each candidate has. */
static void set_architecture(eg_mutator *mutator, int i, int count[CANDIDATES])
{
    eg_arch *arch = eg_arch_new();
    memset(count, 0, CANDIDATES * sizeof *count);
    for (size_t e = 0; e < EDGES; e++, i /= CANDIDATES) {
        char name[32];
        snprintf(name, sizeof name, "\"%s\"", candidates[i % CANDIDATES]);
        count[i % CANDIDATES]++;
        assert_ok(eg_arch_set(arch, edges[e], name));
    }
    assert_ok(eg_mutator_set_arch(mutator, arch));
    eg_arch_free(arch);
}

/* FLOPs as the benchmark counts them: beside multiply-accumulates, 3 for each number that a batch norm gives (with its
 * ReLU) and 9 for each of an average pool. What is outside of the cells it counts a little differently. */
static int64_t flops(const eg_trace *trace)
{
    const int64_t outside = 29632;
    int64_t sum = (int64_t)eg_trace_macs(trace) - outside;
    for (size_t i = 0; i < eg_trace_size(trace); i++) {
        const eg_trace_op *op = eg_trace_at(trace, i);
        int64_t n = eg_shape_numel(op->output_shape);
        sum += strcmp(op->op, "batch_norm") == 0 ? 3 * n : strcmp(op->op, "avg_pool2d") == 0 ? 9 * n : 0;
    }
    return sum;
}

/* What the benchmark says of the network of an architecture, on an image of CIFAR-10. */
static void networks_cost_what_the_benchmark_says(int64_t cells, int step)
{
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_space_options options = {
        .struct_size = sizeof options, .input = EG_SHAPE(3, 32, 32), .classes = 10, .layers = cells};
    eg_module *net = eg_space_build(ctx, "nasbench201", &options);
    assert_made(net);
    eg_mutator *mutator = eg_random_mutator_new(net);
    int64_t times = cells == 0 ? 5 : cells;
    for (int i = 0; i < ARCHITECTURES; i += step) {
        int count[CANDIDATES];
        set_architecture(mutator, i, count);
        eg_trace *trace = eg_trace_new(net, &EG_SHAPE(1, 3, 32, 32), 1);
        assert_made(trace);
        int64_t n3 = count[2], n1 = count[3], pools = count[1];
        assert_int_equal(eg_trace_params(trace), 73306 + times * (48608 * n3 + 5600 * n1));
        assert_int_equal(eg_trace_macs(trace), 7783040 + times * 786432 * (9 * n3 + n1));
        assert_int_equal(flops(trace), 7943872 + times * (7163904 * n3 + 872448 * n1 + 258048 * pools));
        eg_trace_free(trace);
    }
    eg_mutator_detach(mutator);
    eg_module_release(net);
    eg_context_free(ctx);
}

static void the_benchmarks_networks(void **state)
{
    (void)state;
    networks_cost_what_the_benchmark_says(0, ARCHITECTURES / DRAWN);
}

static void networks_of_one_cell_a_stage(void **state)
{
    (void)state;
    networks_cost_what_the_benchmark_says(1, 703);
}

/* What is counted while it runs is what is left when the architecture is applied. */
static void applied_architectures_have_the_same_parameters(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_space_options options = {.struct_size = sizeof options, .input = EG_SHAPE(3, 32, 32), .classes = 10};
    for (int i = 7; i < ARCHITECTURES; i += 2000) {
        eg_module *net = eg_space_build(ctx, "nasbench201", &options);
        eg_mutator *mutator = eg_random_mutator_new(net);
        int count[CANDIDATES];
        set_architecture(mutator, i, count);
        eg_arch *arch = eg_mutator_export_decisions(mutator, mutator->current);
        assert_made(arch);
        eg_mutator_detach(mutator);
        assert_ok(eg_apply_arch(net, arch));
        assert_int_equal(eg_module_n_parameters(net), 73306 + 243040 * count[2] + 28000 * count[3]);
        eg_arch_free(arch);
        eg_module_release(net);
    }
    eg_context_free(ctx);
}

static void shapes(void **state)
{
    (void)state;
    const space_row rows[] = {{EG_SHAPE(1, 28, 28), 0, 0, 0},
                              {EG_SHAPE(3, 32, 32), 0, 0, 73306 + 6 * (243040 + 28000)},
                              {EG_SHAPE(3, 9, 13), 0, 0, 0},
                              {EG_SHAPE(1, 8, 31), 4, 1, 0}};
    check_space_shapes("nasbench201", rows, sizeof rows / sizeof *rows);
}

static void paths_equal_networks(void **state)
{
    (void)state;
    check_space("nasbench201",
                &(eg_space_options){.struct_size = sizeof(eg_space_options),
                                    .input = EG_SHAPE(3, 9, 8),
                                    .classes = 3,
                                    .channels = 4,
                                    .layers = 1,
                                    .drop_path = 0.1},
                100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cell_is_that_of_the_zoo),
        cmocka_unit_test(cells_change_channels_and_sizes),
        cmocka_unit_test(batch_norms_are_as_asked),
        cmocka_unit_test(the_benchmarks_networks),
        cmocka_unit_test(networks_of_one_cell_a_stage),
        cmocka_unit_test(applied_architectures_have_the_same_parameters),
        cmocka_unit_test(shapes),
        cmocka_unit_test(paths_equal_networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
