/*
 * NAS-Bench-101: the benchmark's names and parameters, and that open cells compute what fixed ones do.
 */
#include "nas/zoo.h"

#include <stdlib.h>

enum { VERTICES = 7, DRAWN = 100 };

/* The first cell of the benchmark's table, by its documentation. */
#define KNOWN                                                                                                          \
    "{\"op1\": \"conv3x3-bn-relu\", \"op2\": \"maxpool3x3\", \"op3\": \"conv3x3-bn-relu\", "                           \
    "\"op4\": \"conv3x3-bn-relu\", \"op5\": \"conv1x1-bn-relu\", \"input1\": [0], \"input2\": [1], \"input3\": [2], "  \
    "\"input4\": [0], \"input5\": [0, 3, 4], \"input6\": [2, 5]}"
/* Its vertices in another order: 4 comes first. */
#define KNOWN_REORDERED                                                                                                \
    "{\"op1\": 0, \"op2\": 0, \"op3\": 2, \"op4\": 0, \"op5\": 1, \"input1\": 0, \"input2\": 0, \"input3\": 2, "       \
    "\"input4\": 3, \"input5\": [0, 4, 1], \"input6\": [5, 3]}"
/* The example of the benchmark's readme, after Inception. */
#define INCEPTION                                                                                                      \
    "{\"op1\": 1, \"op2\": 0, \"op3\": 0, \"op4\": 0, \"op5\": 2, \"input1\": 0, \"input2\": 0, \"input3\": 0, "       \
    "\"input4\": 3, \"input5\": 0, \"input6\": [1, 2, 4, 5]}"

static void assert_hash(const char *arch_text, const char *expected)
{
    eg_arch *arch = parse_arch(arch_text);
    char *hash = eg_nasbench101_hash(arch);
    assert_made(hash);
    assert_string_equal(hash, expected);
    assert_ok(eg_nasbench101_check(arch));
    eg_free(hash);
    eg_arch_free(arch);
}

static void cells_have_the_names_of_the_benchmark(void **state)
{
    (void)state;
    assert_hash(KNOWN, "00005c142e6f48ac74fdcf73e3439874");
    assert_hash(KNOWN_REORDERED, "00005c142e6f48ac74fdcf73e3439874");
    assert_hash("{\"op1\": \"conv3x3-bn-relu\", \"input1\": [0], \"input2\": [1]}", "b49ac8c578b4561d79ac7087988f1c61");
    assert_hash(INCEPTION, "28cfc7874f6d200472e1a9dcd8650aa0");
    assert_hash("{\"input1\": 0}", "043721b9c7fe8c5fad811d47d83132ec");
}

static void what_is_on_no_path_does_not_count(void **state)
{
    (void)state;
    /* the single convolution, behind a vertex that nothing leads to and one that leads nowhere */
    assert_hash("{\"op1\": 2, \"op2\": 0, \"op3\": 1, \"input1\": [], \"input2\": [0, 1], \"input3\": [0, 2], "
                "\"input4\": 2}",
                "b49ac8c578b4561d79ac7087988f1c61");
    /* ten edges, of which nine are left */
    assert_hash("{\"op1\": 0, \"op2\": 2, \"op3\": 0, \"op4\": 0, \"op5\": 1, \"input1\": 0, \"input2\": 1, "
                "\"input3\": 2, \"input4\": 0, \"input5\": [0, 3, 4], \"input6\": [2, 5]}",
                "00005c142e6f48ac74fdcf73e3439874");
}

static void refuse(const char *arch_text, const char *why)
{
    eg_arch *arch = parse_arch(arch_text);
    assert_refused(eg_nasbench101_hash(arch), EG_EINVAL, why);
    assert_int_equal(eg_nasbench101_check(arch), EG_EINVAL);
    eg_arch_free(arch);
}

static void what_is_not_in_the_benchmark_is_refused(void **state)
{
    (void)state;
    refuse("{\"op1\": 0, \"input1\": [], \"input2\": 1}", "no path leads from the input to the output");
    refuse("{\"op1\": 0, \"input1\": 0, \"input2\": null}", "no path");
    refuse("{\"op1\": 0, \"op2\": 0, \"op3\": 0, \"input1\": 0, \"input2\": [0, 1], \"input3\": [0, 1, 2], "
           "\"input4\": [0, 1, 2, 3]}",
           "10 edges, expected at most 9");
    refuse("{\"op1\": \"conv3x3\", \"input1\": 0, \"input2\": 1}", "'op1' is none of conv3x3-bn-relu, conv1x1-bn-relu");
    refuse("{\"op1\": 3, \"input1\": 0, \"input2\": 1}", "'op1' is none of");
    refuse("{\"op1\": 0, \"input1\": 1, \"input2\": 1}", "'input1' is no vertex before 1");
    refuse("{\"op1\": 0, \"input1\": 0, \"input2\": [0, \"1\"]}", "'input2' is no vertex before 2");
    refuse("{\"op1\": 0, \"input1\": 0, \"input3\": 0}", "'input2' is missing");
    refuse("{\"op1\": 0, \"input1\": 0}", "2 keys, expected op1 to op5");
    refuse("{}", "0 keys");
    assert_int_equal(eg_nasbench101_check(NULL), EG_EINVAL);
    assert_null(eg_nasbench101_hash(NULL));
    eg_context *ctx = eg_context_new(.threads = 1);
    assert_refused(eg_nasbench101_cell(ctx, 4, 4, "{\"input1\": []}"), EG_EINVAL, "no path");
    assert_refused(eg_nasbench101_cell(ctx, 4, 4, "{\"input1\": "), EG_EFORMAT, "line 1");
    assert_refused(eg_nasbench101(ctx, .fixed = "{\"op1\": 0}"), EG_EINVAL, "'input1' is missing");
    eg_context_free(ctx);
}

static void networks_have_the_benchmarks_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        int64_t parameters;
    } rows[] = {{KNOWN, 8555530}, {KNOWN_REORDERED, 8555530}, {INCEPTION, 2694282}, {"{\"input1\": 0}", 882570}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        eg_context *ctx = eg_context_new(.threads = 1);
        eg_module *net = eg_nasbench101(ctx, .fixed = rows[i].arch);
        assert_made(net);
        assert_int_equal(eg_module_n_parameters(net), rows[i].parameters);
        eg_trace *trace = eg_trace_new(net, &EG_SHAPE(1, 3, 32, 32), 1);
        assert_made(trace);
        assert_int_equal(eg_trace_params(trace), rows[i].parameters);
        assert_true(eg_shape_equal(eg_trace_output(trace, 0), EG_SHAPE(1, 10)));
        eg_trace_free(trace);
        eg_module *clone = eg_module_clone(net);
        assert_int_equal(eg_module_n_parameters(clone), rows[i].parameters);
        eg_module_release(clone);
        eg_module_release(net);
        eg_context_free(ctx);
    }
}

/* ---- open cells and fixed ones ---- */

/* The first numbers of `from`, along each dimension, into `to`. */
static void copy_first(eg_tensor *from, eg_tensor *to)
{
    if (eg_tensor_dtype(to) != EG_F32)
        return;
    eg_shape shape = eg_tensor_shape(to);
    for (int i = 0; i < shape.ndim; i++)
        from = eg_slice(from, i, 0, shape.dims[i], 1);
    size_t n = (size_t)eg_tensor_numel(to);
    float *values = calloc(n, sizeof *values);
    assert_non_null(values);
    assert_ok(eg_tensor_read(from, values, n));
    assert_ok(eg_tensor_write(to, values, n));
    free(values);
}

/* A fixed network with the numbers of the open one, to which the architecture was applied. */
static eg_module *fixed_network(eg_module *open, const eg_arch *arch, int64_t channels, int64_t cells)
{
    char *text = eg_arch_text(arch);
    eg_module *net = eg_nasbench101(open->ctx, 1, 3, channels, cells, .fixed = text);
    assert_made(net);
    eg_free(text);
    eg_state *tensors = eg_state_new();
    assert_ok(eg_module_state(net, NULL, tensors));
    eg_tape *tape = eg_tape_begin(open->ctx, EG_NO_GRAD);
    for (size_t i = 0; i < eg_state_size(tensors); i++) {
        const char *name;
        eg_tensor *to = eg_state_at(tensors, i, &name);
        eg_tensor *from = eg_module_tensor(open, name);
        assert_made(from);
        copy_first(from, to);
    }
    eg_tape_end(tape);
    eg_state_free(tensors);
    return net;
}

static uint64_t macs_of(eg_module *net)
{
    eg_trace *trace = eg_trace_new(net, &EG_SHAPE(1, 1, 8, 8), 1);
    assert_made(trace);
    uint64_t macs = eg_trace_macs(trace);
    eg_trace_free(trace);
    return macs;
}

/* Wide enough for five vertices, and not. */
static void open_cells_compute_what_fixed_ones_do(void **state)
{
    (void)state;
    int checked = 0;
    for (uint64_t seed = 0; seed < DRAWN; seed++) {
        eg_context *ctx = eg_context_new(.seed = seed, .threads = 1);
        int64_t channels = seed % 2 == 0 ? 11 : 3;
        eg_module *open = eg_nasbench101(ctx, 1, 3, channels, 1);
        assert_made(open);
        eg_tensor *x = eg_tensor_keep(eg_randn(ctx, EG_SHAPE(ZOO_BATCH, 1, 8, 8)));
        eg_mutator *mutator = eg_random_mutator_new(open);
        zoo_randomize_statistics(open, mutator, x);
        eg_arch *arch = eg_mutator_export(mutator);
        assert_made(arch);
        eg_mutator_detach(mutator);
        if (eg_nasbench101_check(arch) == EG_OK) {
            assert_ok(eg_apply_arch(open, arch));
            eg_module *fixed = fixed_network(open, arch, channels, 1);
            float wide[ZOO_BATCH * 3], exact[ZOO_BATCH * 3];
            zoo_logits(open, x, wide, ZOO_BATCH * 3);
            zoo_logits(fixed, x, exact, ZOO_BATCH * 3);
            for (size_t i = 0; i < ZOO_BATCH * 3; i++)
                assert_close(wide[i], exact[i], 1e-4);
            assert_int_equal(macs_of(open), macs_of(fixed));
            assert_true(eg_module_n_parameters(fixed) <= eg_module_n_parameters(open));
            zoo_train(fixed, x, 3);
            eg_module_release(fixed);
            checked++;
        }
        eg_arch_free(arch);
        eg_tensor_release(x);
        eg_module_release(open);
        eg_context_free(ctx);
    }
    assert_true(checked > DRAWN / 10);
}

/* Runs an open cell under an architecture. */
static void run_cell(eg_module *cell, const char *arch_text, eg_tensor *x, float *out, size_t n)
{
    eg_mutator *mutator = eg_random_mutator_new(cell);
    eg_arch *arch = parse_arch(arch_text);
    assert_ok(eg_mutator_set_arch(mutator, arch));
    eg_arch_free(arch);
    zoo_logits(cell, x, out, n);
    eg_mutator_detach(mutator);
}

#define CHAIN(op, last)                                                                                                \
    "{\"op1\": " op ", \"op2\": 0, \"op3\": 0, \"op4\": 0, \"op5\": 0, \"input1\": [0], \"input2\": [], "              \
    "\"input3\": [], \"input4\": [], \"input5\": [1], \"input6\": " last "}"

static void decisions_may_be_weights(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_module *cell = eg_nasbench101_cell(ctx, 3, 5);
    assert_made(cell);
    eg_tensor *x = eg_tensor_keep(eg_randn(ctx, EG_SHAPE(1, 3, 4, 4)));
    float one[80], weighted[80];
    run_cell(cell, CHAIN("0", "5"), x, one, 80);
    run_cell(cell, CHAIN("0", "[0.0, 0.0, 0.0, 0.0, 0.0, 0.5]"), x, weighted, 80);
    double most = 0;
    for (size_t i = 0; i < 80; i++) {
        assert_close(weighted[i], 0.5 * one[i], 1e-6);
        most = fmax(most, one[i]);
    }
    assert_true(most > 0);
    /* the input is added to what there is without it */
    float input[80], both[80];
    run_cell(cell, CHAIN("0", "0"), x, input, 80);
    run_cell(cell, CHAIN("0", "[0.25, 0.0, 0.0, 0.0, 0.0, 0.5]"), x, both, 80);
    for (size_t i = 0; i < 80; i++)
        assert_close(both[i], 0.5 * one[i] + 0.25 * input[i], 1e-6);
    eg_tensor_release(x);
    eg_module_release(cell);
    eg_context_free(ctx);
}

static void without_a_path_there_are_zeros(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_module *cell = eg_nasbench101_cell(ctx, 3, 5);
    eg_tensor *x = eg_tensor_keep(eg_randn(ctx, EG_SHAPE(1, 3, 4, 4)));
    float out[80], zeros[80] = {0};
    run_cell(cell, CHAIN("0", "[]"), x, out, 80);
    assert_memory_equal(out, zeros, sizeof out);
    run_cell(cell, CHAIN("0", "[2, 3]"), x, out, 80);
    assert_memory_equal(out, zeros, sizeof out);
    eg_tensor_release(x);
    eg_module_release(cell);
    eg_context_free(ctx);
}

/* Three vertices share five channels: 2, 2 and 1. The widest convolution has statistics of five. */
static void narrow_vertices_train_their_share(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_module *cell = eg_nasbench101_cell(ctx, 3, 5);
    eg_mutator *mutator = eg_random_mutator_new(cell);
    eg_arch *arch =
        parse_arch("{\"op1\": 0, \"op2\": 1, \"op3\": 0, \"op4\": 0, \"op5\": 0, \"input1\": 0, \"input2\": 0, "
                   "\"input3\": 0, \"input4\": [], \"input5\": [], \"input6\": [1, 2, 3]}");
    assert_ok(eg_mutator_set_arch(mutator, arch));
    eg_arch_free(arch);
    eg_module_train(cell, true);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *y = eg_call(cell, eg_randn(ctx, EG_SHAPE(4, 3, 6, 6)));
    assert_made(y);
    assert_true(eg_shape_equal(eg_tensor_shape(y), EG_SHAPE(4, 5, 6, 6)));
    assert_ok(eg_backward(eg_sum(eg_mul(y, y))));
    static const struct {
        const char *path;
        int width;
    } rows[] = {{"op1.conv3x3-bn-relu", 2}, {"op2.conv1x1-bn-relu", 2}, {"op3.conv3x3-bn-relu", 1}, {"projection3", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[80];
        float mean[5], gradient[5];
        snprintf(path, sizeof path, "%s.norm.running_mean", rows[i].path);
        assert_ok(eg_tensor_read(eg_module_tensor(cell, path), mean, 5));
        snprintf(path, sizeof path, "%s.norm.bias", rows[i].path);
        assert_ok(eg_tensor_read(eg_tensor_grad(eg_module_tensor(cell, path)), gradient, 5));
        for (int c = 0; c < 5; c++) {
            assert_int_equal(mean[c] != 0, c < rows[i].width);
            assert_int_equal(gradient[c] != 0, c < rows[i].width);
        }
    }
    eg_tape_end(tape);
    eg_mutator_detach(mutator);
    eg_module_release(cell);
    eg_context_free(ctx);
}

/* Where all of a layer is needed anything may stand in its place, but a part can be taken of what was made only. */
static void replaced_layers_are_named(void **state)
{
    (void)state;
    static const char *const roles[] = {"conv", "norm"}, *const expected[] = {"expected a Conv2d",
                                                                              "expected a BatchNorm2d"};
    for (int i = 0; i < 2; i++) {
        eg_context *ctx = eg_context_new(.seed = 2, .threads = 1);
        eg_module *cell = eg_nasbench101_cell(ctx, 5, 5);
        eg_arch *arch = parse_arch("{\"op1\": 0, \"op2\": 0, \"op3\": 2, \"op4\": 0, \"op5\": 1, \"input1\": 0, "
                                   "\"input2\": 0, \"input3\": 0, \"input4\": 0, \"input5\": 0, "
                                   "\"input6\": [1, 2]}");
        eg_mutator *mutator = eg_random_mutator_new(cell);
        assert_ok(eg_mutator_set_arch(mutator, arch));
        eg_module *projection = eg_module_find(cell, "projection1");
        for (int empty = 0; empty < 2; empty++) {
            if (empty)
                assert_ok(eg_module_empty_child(projection, roles[i]));
            else
                assert_ok(eg_module_set_child(projection, roles[i], eg_identity(ctx)));
            eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
            assert_refused(eg_call(cell, eg_ones(ctx, EG_SHAPE(1, 5, 4, 4))), EG_EINVAL, expected[i]);
            eg_tape_end(tape);
        }
        eg_mutator_detach(mutator);
        eg_arch_free(arch);
        eg_module_release(cell);
        eg_context_free(ctx);
    }
}

static void shapes(void **state)
{
    (void)state;
    const space_row rows[] = {{EG_SHAPE(1, 28, 28), 0, 0, 0},
                              {EG_SHAPE(3, 33, 20), 4, 1, 0},
                              {EG_SHAPE(1, 8, 9), 2, 3, 0},
                              {EG_SHAPE(3, 32, 32), 16, 2, 0}};
    check_space_shapes("nasbench101", rows, sizeof rows / sizeof *rows);
}

static void paths_equal_networks(void **state)
{
    (void)state;
    check_space("nasbench101",
                &(eg_space_options){.struct_size = sizeof(eg_space_options),
                                    .input = EG_SHAPE(1, 8, 9),
                                    .classes = 3,
                                    .channels = 6,
                                    .layers = 1,
                                    .drop_path = 0.1},
                DRAWN);
    check_space(
        "nasbench101",
        &(eg_space_options){
            .struct_size = sizeof(eg_space_options), .input = EG_SHAPE(3, 32, 32), .classes = 10, .channels = 8},
        3);
}

/* Also those that a search starts with: the space's constraint is among the options of its strategy. */
static void samples_are_in_the_benchmark(void **state)
{
    (void)state;
    enum { SAMPLES = 200 };
    const eg_constraint *constraint = eg_space_find("nasbench101")->constraint;
    eg_context *ctx = eg_context_new(.threads = 1, .seed = 7);
    eg_module *cell = eg_nasbench101_cell(ctx, 2, 2);
    eg_mutator *mutator = eg_random_mutator_new(cell);
    assert_non_null(constraint);
    int outside = 0;
    for (int constrained = 0; constrained < 2; constrained++) {
        for (int i = 0; i < SAMPLES; i++) {
            eg_arch *arch = eg_mutator_export(mutator);
            assert_made(arch);
            if (constrained)
                assert_ok(eg_nasbench101_check(arch));
            else
                outside += eg_nasbench101_check(arch) != EG_OK;
            eg_arch_free(arch);
            eg_error_clear();
        }
        assert_ok(eg_mutator_add_constraint(mutator, constraint->name, constraint->holds, constraint->payload));
    }
    assert_true(outside > 0 && outside < SAMPLES);
    eg_mutator_detach(mutator);
    eg_module_release(cell);
    eg_context_free(ctx);
    for (size_t i = 0; eg_spaces()[i] != NULL; i++)
        assert_int_equal(eg_spaces()[i]->constraint != NULL, strcmp(eg_spaces()[i]->name, "nasbench101") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_have_the_names_of_the_benchmark),
        cmocka_unit_test(what_is_on_no_path_does_not_count),
        cmocka_unit_test(what_is_not_in_the_benchmark_is_refused),
        cmocka_unit_test(networks_have_the_benchmarks_parameters),
        cmocka_unit_test(open_cells_compute_what_fixed_ones_do),
        cmocka_unit_test(decisions_may_be_weights),
        cmocka_unit_test(without_a_path_there_are_zeros),
        cmocka_unit_test(narrow_vertices_train_their_share),
        cmocka_unit_test(samples_are_in_the_benchmark),
        cmocka_unit_test(replaced_layers_are_named),
        cmocka_unit_test(shapes),
        cmocka_unit_test(paths_equal_networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
