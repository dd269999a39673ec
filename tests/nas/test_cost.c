/*
 * Costs: those of decisions are those of the network that they stand for.
 */
#include "nas/everything.h"

static int setup(void **state)
{
    *state = eg_context_new(.seed = 10, .threads = 1);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

static void costs_are_those_of_the_fixed_network(void **state)
{
    eg_context *ctx = *state;
    const eg_shape input = EG_SHAPE(2, 3, 8, 8);
    eg_module *net = make_everything(ctx);
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    for (int i = 0; i < 50; i++) {
        assert_ok(eg_mutator_reset(mutator));
        eg_network_cost now, of_arch;
        assert_ok(eg_mutator_cost(mutator, &input, 1, &now));
        eg_arch *arch = eg_mutator_export_decisions(mutator, mutator->current);
        eg_module *fixed = eg_module_clone(net);
        assert_ok(eg_apply_arch(fixed, arch));
        eg_trace *trace = eg_trace_new(fixed, &input, 1);
        assert_made(trace);
        assert_int_equal(now.parameters, eg_trace_params(trace));
        assert_int_equal(now.parameters, eg_module_n_parameters(fixed));
        assert_int_equal(now.macs, eg_trace_macs(trace));
        eg_trace_free(trace);
        /* asked of the architecture while others are in force */
        assert_ok(eg_mutator_reset(mutator));
        const eg_decisions *current = mutator->current;
        assert_ok(eg_mutator_cost_of_arch(mutator, arch, &input, 1, &of_arch));
        assert_ptr_equal(mutator->current, current);
        assert_int_equal(of_arch.parameters, now.parameters);
        assert_int_equal(of_arch.macs, now.macs);
        assert_string_equal(of_arch.path, now.path);
        eg_free(now.path);
        eg_free(of_arch.path);
        eg_module_release(fixed);
        eg_arch_free(arch);
    }
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void the_path_is_what_runs(void **state)
{
    eg_context *ctx = *state;
    eg_module *choice = eg_layer_choice(ctx, EG_CHOICES({"a", eg_linear(ctx, 4, 4)}, {"b", eg_relu(ctx)}), .key = "op");
    eg_module *net = eg_sequential(
        ctx, EG_MODULES(eg_linear(ctx, 3, eg_value_choice(ctx, EG_VALUES(4, 8), .key = "w", .fixed = "4")), choice));
    eg_mutator *mutator = eg_random_mutator_new(net);
    eg_arch *arch = parse_arch("{\"op\": \"a\", \"w\": 4}");
    eg_network_cost cost;
    const eg_shape input = EG_SHAPE(5, 3);
    assert_ok(eg_mutator_cost_of_arch(mutator, arch, &input, 1, &cost));
    assert_string_equal(cost.path, "0\n1.a\n");
    assert_int_equal(cost.parameters, 3 * 4 + 4 + 4 * 4 + 4);
    assert_int_equal(cost.macs, 5 * (3 * 4 + 4 * 4));
    eg_free(cost.path);
    assert_ok(eg_arch_set(arch, "op", "\"b\""));
    assert_ok(eg_mutator_cost_of_arch(mutator, arch, &input, 1, &cost));
    assert_string_equal(cost.path, "0\n1.b\n");
    eg_free(cost.path);
    /* a run of another size is not what was asked for */
    assert_ok(eg_arch_set(arch, "op", "\"a\""));
    assert_ok(eg_arch_set(arch, "w", "8"));
    assert_fails(eg_mutator_cost_of_arch(mutator, arch, &input, 1, &cost), EG_ESHAPE, "linear '1.a'");
    assert_null(cost.path);
    assert_true(cost.parameters == 0 && cost.macs == 0);
    assert_fails(eg_mutator_cost(mutator, &input, 1, &cost), EG_EINVAL, "has no decision for it");
    assert_fails(eg_mutator_cost(NULL, &input, 1, &cost), EG_EINVAL, "no mutator, decisions or shapes");
    assert_fails(eg_mutator_cost(mutator, NULL, 1, &cost), EG_EINVAL, "no mutator, decisions or shapes");
    assert_fails(eg_mutator_cost(mutator, &input, 1, NULL), EG_EINVAL, "no place");
    assert_fails(eg_mutator_cost_of_arch(mutator, NULL, &input, 1, &cost), EG_EINVAL, "no mutator or architecture");
    eg_arch_free(arch);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* A module that runs twice counts once. */
static void parts_that_run_again_count_once(void **state)
{
    eg_context *ctx = *state;
    int64_t width = eg_value_choice(ctx, EG_VALUES(2, 4), .key = "w");
    eg_module *layer = eg_linear(ctx, width, width);
    eg_module *net = eg_sequential(ctx, EG_MODULES(layer, eg_module_retain(layer)));
    eg_mutator *mutator = eg_random_mutator_new(net);
    eg_arch *arch = parse_arch("{\"w\": 2}");
    eg_network_cost cost;
    assert_ok(eg_mutator_cost_of_arch(mutator, arch, &EG_SHAPE(1, 2), 1, &cost));
    assert_int_equal(cost.parameters, 6);
    assert_int_equal(cost.macs, 8);
    eg_free(cost.path);
    eg_arch_free(arch);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* Whether a part or the whole of a shared parameter comes first, it counts when it is used first. */
static void shared_parameters_count_once(void **state)
{
    eg_context *ctx = *state;
    for (int whole_first = 0; whole_first < 2; whole_first++) {
        int64_t width = eg_value_choice(ctx, EG_VALUES(2, 3), .key = "w");
        eg_module *all = eg_linear(ctx, 3, 3, .no_bias = true);
        eg_module *piece =
            whole_first ? eg_linear(ctx, 3, width, .no_bias = true) : eg_linear(ctx, width, 3, .no_bias = true);
        eg_linear *a = EG_CAST(all, eg_linear), *b = EG_CAST(piece, eg_linear);
        eg_tensor_release(b->weight);
        b->weight = eg_tensor_keep(a->weight);
        eg_module *net = eg_sequential(ctx, EG_MODULES(whole_first ? all : piece, whole_first ? piece : all));
        eg_mutator *mutator = eg_random_mutator_new(net);
        eg_arch *arch = parse_arch("{\"w\": 2}");
        eg_network_cost cost;
        assert_ok(eg_mutator_cost_of_arch(mutator, arch, &EG_SHAPE(1, whole_first ? 3 : 2), 1, &cost));
        assert_int_equal(cost.parameters, whole_first ? 9 : 6);
        eg_free(cost.path);
        eg_arch_free(arch);
        eg_mutator_detach(mutator);
        eg_module_release(net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(costs_are_those_of_the_fixed_network, setup, teardown),
        cmocka_unit_test_setup_teardown(the_path_is_what_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(shared_parameters_count_once, setup, teardown),
        cmocka_unit_test_setup_teardown(parts_that_run_again_count_once, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
