/*
 * Choices in and beside each other, with each allocation failing once: values, repeats, constraints, costs.
 */
#include "alloc_table.h"

#include "nas/toy.h"

static void nothing(void *world)
{
    (void)world;
}

/* Its values belong to the context, so the model is made here. */
static eg_module *make_open(eg_context *ctx)
{
    int64_t width = eg_value_choice(ctx, EG_VALUES(2, 3), .key = "width");
    eg_module *inner =
        eg_layer_choice(ctx, EG_CHOICES({"p", eg_linear(ctx, width, width)}, {"q", eg_relu(ctx)}), .key = "inner");
    eg_module *outer = eg_layer_choice(ctx, EG_CHOICES({"a", inner}, {"b", eg_tanh(ctx)}), .key = "outer");
    return eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 2, width),
                                         eg_repeat(ctx, EG_MODULES(outer, eg_linear(ctx, width, width)),
                                                   .depth = eg_value_choice(ctx, EG_VALUES(1, 2), .key = "depth"))));
}

static eg_status is_narrow(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    (void)payload, (void)mutator;
    *holds = eg_decisions_get(decisions, "width")->weights[0] != 0;
    return EG_OK;
}

static eg_status use_open(eg_module *net, eg_mutator *mutator)
{
    EG_TRY(eg_mutator_choose_all(mutator));
    EG_TRY(eg_mutator_add_constraint(mutator, "narrow", is_narrow, NULL));
    EG_TRY(eg_mutator_reset(mutator));
    eg_arch *arch = eg_arch_parse("{\"width\": 2, \"depth\": 2, \"outer\": \"a\", \"inner\": \"p\"}");
    eg_status status = arch ? eg_mutator_set_arch(mutator, arch) : eg_error_last()->code;
    eg_network_cost cost = {0};
    if (status == EG_OK)
        status = eg_mutator_cost_of_arch(mutator, arch, &EG_SHAPE(1, 2), 1, &cost);
    eg_free(cost.path);
    if (status == EG_OK)
        status = alloc_made(eg_call(net, eg_ones(net->ctx, EG_SHAPE(1, 2))));
    eg_arch_free(arch);
    return status;
}

static eg_status open_choices(void *payload)
{
    eg_module *net = make_open(((alloc_world *)payload)->ctx);
    eg_mutator *mutator = net ? eg_random_mutator_new(net) : NULL;
    eg_status status = mutator ? use_open(net, mutator) : eg_error_last()->code;
    eg_mutator_detach(mutator);
    eg_module_release(net);
    return status;
}

/* A failure leaves the model as it was. */
static eg_status open_fixed(void *payload)
{
    eg_module *net = make_open(((alloc_world *)payload)->ctx);
    eg_arch *arch = net ? eg_arch_parse("{\"width\": 2, \"depth\": 1, \"outer\": \"a\", \"inner\": \"p\"}") : NULL;
    eg_status status = arch ? eg_apply_arch(net, arch) : eg_error_last()->code;
    long countdown = alloc_countdown;
    alloc_countdown = -1;
    if (arch) {
        assert_int_equal(eg_module_n_parameters(net), status == EG_OK ? 6 + 6 : 9 + 12 + 12);
        assert_int_equal(net->refs, 1);
    }
    alloc_countdown = countdown;
    eg_arch_free(arch);
    eg_module_release(net);
    return status;
}

/* Of parts of open fields, and with choices inside others. */
static eg_status open_backward(void *payload)
{
    eg_context *ctx = ((alloc_world *)payload)->ctx;
    eg_module *net = eg_linear(ctx, 2, eg_value_choice(ctx, EG_VALUES(2, 3), .key = "w", .fixed = "2"));
    eg_tape *tape = net ? eg_tape_begin(ctx, EG_RECORD) : NULL;
    eg_tensor *y = tape ? eg_call(net, eg_ones(ctx, EG_SHAPE(1, 2))) : NULL;
    eg_status status = y ? eg_backward(eg_sum(y)) : eg_error_last()->code;
    eg_tape_end(tape);
    eg_module_release(net);
    return status;
}

static const alloc_row rows[] = {
    {"eg_mutator_choose_all eg_mutator_cost_of_arch eg_mutator_add_constraint", open_choices, true},
    {"eg_fixed_architecture (open fields)", open_fixed, true},
    {"eg_backward (open fields)", open_backward, true},
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const alloc_table table = {.backend = "ref",
                                  .world_size = sizeof(alloc_world),
                                  .setup = nothing,
                                  .teardown = nothing,
                                  .check = nothing,
                                  .rows = rows,
                                  .n_rows = N_ROWS,
                                  .dense = 150};

int main(void)
{
    if (!alloc_prepare())
        return 1;
    static alloc_target targets[N_ROWS];
    struct CMUnitTest tests[N_ROWS];
    alloc_make_tests(&table, tests, targets);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
