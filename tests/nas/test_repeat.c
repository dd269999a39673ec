/*
 * Repeats: how many of their modules run, constant or open, and what lies in those that do not.
 */
#include "nas/toy.h"

static int setup(void **state)
{
    *state = eg_context_new(.seed = 6, .threads = 1);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

static void a_constant_depth(void **state)
{
    eg_context *ctx = *state;
    static const double expected[] = {30, 2, 6, 30}; /* 0 stands for all */
    for (int64_t depth = 0; depth <= 3; depth++) {
        eg_module *net =
            eg_repeat(ctx, EG_MODULES(make_gain(ctx, 2), make_gain(ctx, 3), make_gain(ctx, 5)), .depth = depth);
        assert_made(net);
        assert_close(run_on_one(net), expected[depth], 0);
        eg_module *copy = eg_module_clone(net);
        assert_close(run_on_one(copy), expected[depth], 0);
        eg_module_release(copy);
        eg_module_release(net);
    }
    eg_module *net = eg_repeat(ctx, EG_MODULES(make_gain(ctx, 2), make_gain(ctx, 3)), .depth = 1);
    char *text = eg_module_text(net);
    assert_string_equal(text, "Repeat(\n  depth=1\n  (0): gain(factor=2.0)\n  (1): gain(factor=3.0)\n)");
    eg_free(text);
    eg_module_release(net);
    assert_refused(eg_repeat(ctx, EG_MODULES(make_gain(ctx, 2)), .depth = 2), EG_EINVAL,
                   "'depth' is 2, but there are 1 modules");
    assert_refused(eg_repeat(ctx, EG_MODULES(make_gain(ctx, 2)), .depth = -2), EG_EINVAL, "'depth' is -2");
    assert_refused(eg_repeat(ctx, EG_MODULES(make_gain(ctx, 2)), .depth = eg_value_choice(ctx, EG_VALUES(1, 2))),
                   EG_EINVAL, "'depth' is 2, but there are 1 modules");
    assert_refused(eg_repeat(ctx, EG_MODULES(make_gain(ctx, 2)), .depth = eg_value_choice(ctx, EG_VALUES(1, -1))),
                   EG_EINVAL, "'depth' is -1, expected at least 0 where it is decided");
}

/* Filled in a loop: the names are those of EG_MODULES(), also beside the child that opens the depth. */
static void modules_are_appended(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_repeat(ctx, .depth = eg_value_choice(ctx, EG_VALUES(0, 2, 3), .key = "depth"));
    assert_made(net);
    assert_ok(eg_append(net, make_gain(ctx, 2)));
    assert_ok(eg_append(net, make_gain(ctx, 3)));
    eg_mutator *mutator = eg_mutator_attach(&eg_mutator_base_class, 0, NULL, net);
    static const double expected[] = {1, 6};
    for (size_t i = 0; i < 2; i++) {
        assert_ok(eg_decisions_choose(mutator->current, mutator->mutables[0], i));
        assert_close(run_on_one(net), expected[i], 0);
    }
    assert_ok(eg_decisions_choose(mutator->current, mutator->mutables[0], 2));
    assert_refused(eg_call(net, eg_ones(ctx, EG_SHAPE(1))), EG_EINVAL, "'depth' is 3, but there are 2 modules");
    assert_ok(eg_append(net, make_gain(ctx, 5)));
    assert_close(run_on_one(net), 30, 0);
    assert_non_null(eg_module_find(net, "0"));
    assert_non_null(eg_module_find(net, "2"));
    eg_mutator_detach(mutator);
    eg_module_release(net);
    net = eg_repeat(ctx);
    assert_ok(eg_append(net, make_gain(ctx, 2)));
    assert_close(run_on_one(net), 2, 0);
    eg_module_release(net);
}

/* A norm and its ReLU are run as one, unless the depth parts them. */
static void the_depth_parts_what_is_fused(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_repeat(ctx, EG_MODULES(eg_batch_norm2d(ctx, 1), eg_relu(ctx)), .depth = 1);
    eg_module_train(net, false);
    eg_tensor *y = eg_call(net, eg_full(ctx, EG_SHAPE(1, 1, 1, 1), -1));
    assert_true(eg_tensor_item(y) < 0);
    eg_module_release(net);
}

/* Block 1 is a choice; so is what lies in block 2. */
static eg_module *make_net(eg_context *ctx)
{
    eg_module *in_third = eg_sequential(ctx, EG_MODULES(eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "third")));
    return eg_sequential(
        ctx,
        EG_MODULES(make_gain(ctx, 7), eg_repeat(ctx,
                                                EG_NAMED({"one", make_gain(ctx, 2)},
                                                         {"two", eg_layer_choice(ctx, GAINS_012(ctx), .key = "second")},
                                                         {"three", in_third}),
                                                .depth = eg_value_choice(ctx, EG_VALUES(0, 1, 2, 3), .key = "depth"))));
}

typedef struct depth_case {
    const char *arch;
    double value;
    const char *printed, *error;
} depth_case;

static const depth_case cases[] = {
    {"{\"depth\": 0}", 7, "(1): Repeat()", NULL},
    {"{\"depth\": 1}", 14, "(one): gain(factor=2.0)\n  )", NULL},
    {"{\"depth\": 2, \"second\": 1}", 140, "(two): gain(factor=10.0)\n  )", NULL},
    {"{\"depth\": 3, \"second\": 1, \"third\": \"c\"}", 14000, "(0): gain(factor=100.0)", NULL},
    {"{\"depth\": 2}", 0, NULL, "missing keys in the architecture: 'second'"},
    {"{\"depth\": 2, \"second\": 1, \"third\": 0}", 0, NULL,
     "'third' lies in block 2, which runs when 'depth' is more than 2"},
    {"{\"depth\": 4}", 0, NULL, "'depth' is 4, expected 0, 1, 2 or 3"},
    {"{\"depth\": [1]}", 0, NULL, "'depth' is [1], expected 0, 1, 2 or 3"},
    {"{\"depth\": true}", 0, NULL, "'depth' is true, expected 0, 1, 2 or 3"},
};

static void an_open_depth(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const depth_case *c = &cases[i];
        eg_module *net = make_net(*state);
        eg_arch *arch = parse_arch(c->arch);
        eg_mutator *mutator = eg_random_mutator_new(net);
        assert_made(mutator);
        if (c->error) {
            assert_fails(eg_mutator_set_arch(mutator, arch), EG_EINVAL, c->error);
            eg_mutator_detach(mutator);
            assert_fails(eg_apply_arch(net, arch), EG_EINVAL, c->error);
        } else {
            assert_ok(eg_mutator_set_arch(mutator, arch));
            assert_close(run_on_one(net), c->value, 0);
            eg_arch *again = eg_mutator_export_decisions(mutator, mutator->current);
            assert_true(eg_arch_equal(arch, again));
            eg_arch_free(again);
            eg_mutator_detach(mutator);
            assert_ok(eg_apply_arch(net, arch));
            assert_close(run_on_one(net), c->value, 0);
            char *text = eg_module_text(net);
            assert_non_null(strstr(text, c->printed));
            assert_null(strstr(text, "Choice"));
            assert_null(strstr(text, "depth"));
            eg_free(text);
        }
        eg_arch_free(arch);
        eg_module_release(net);
    }
}

static void samples_decide_what_runs(void **state)
{
    eg_module *net = make_net(*state);
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    size_t depths[4] = {0};
    for (int i = 0; i < 100; i++) {
        assert_ok(eg_mutator_reset(mutator));
        const eg_decision *depth = eg_decisions_get(mutator->current, "depth");
        size_t d = 0;
        while (depth->weights[d] == 0)
            d++;
        depths[d]++;
        assert_int_equal(eg_decisions_get(mutator->current, "second") != NULL, d >= 2);
        assert_int_equal(eg_decisions_get(mutator->current, "third") != NULL, d == 3);
        assert_true(run_on_one(net) >= 7);
    }
    assert_true(depths[0] > 5 && depths[1] > 5 && depths[2] > 5 && depths[3] > 5);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* What a constant depth leaves out never counts. */
static void choices_behind_a_constant_depth(void **state)
{
    eg_context *ctx = *state;
    eg_module *net =
        eg_repeat(ctx, EG_MODULES(make_gain(ctx, 2), eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "never")), .depth = 1);
    eg_arch *arch = parse_arch("{}");
    assert_ok(eg_apply_arch(net, arch));
    assert_ok(eg_arch_set(arch, "never", "0"));
    assert_fails(eg_apply_arch(net, arch), EG_EINVAL, "'never' lies where nothing runs");
    eg_arch_free(arch);
    eg_module_release(net);
}

/* Two repeats with one depth, one of them inside a candidate. */
static void a_depth_that_is_shared(void **state)
{
    eg_context *ctx = *state;
    int64_t depth = eg_value_choice(ctx, EG_VALUES(1, 2), .key = "depth");
    eg_module *lost = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "lost");
    eg_module *inside = eg_repeat(ctx, EG_MODULES(make_gain(ctx, 2), lost), .depth = depth);
    eg_module *net = eg_sequential(
        ctx, EG_MODULES(eg_layer_choice(ctx, EG_CHOICES({"in", inside}, {"out", make_gain(ctx, 3)}), .key = "outer"),
                        eg_repeat(ctx, EG_MODULES(make_gain(ctx, 5), make_gain(ctx, 7)), .depth = depth)));
    eg_arch *arch = parse_arch("{\"outer\": \"out\", \"depth\": 2}");
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    assert_ok(eg_mutator_set_arch(mutator, arch));
    assert_close(run_on_one(net), 105, 0);
    eg_mutator_detach(mutator);
    assert_ok(eg_apply_arch(net, arch));
    assert_close(run_on_one(net), 105, 0);
    eg_arch_free(arch);
    eg_module_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_constant_depth, setup, teardown),
        cmocka_unit_test_setup_teardown(modules_are_appended, setup, teardown),
        cmocka_unit_test_setup_teardown(the_depth_parts_what_is_fused, setup, teardown),
        cmocka_unit_test_setup_teardown(an_open_depth, setup, teardown),
        cmocka_unit_test_setup_teardown(samples_decide_what_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(choices_behind_a_constant_depth, setup, teardown),
        cmocka_unit_test_setup_teardown(a_depth_that_is_shared, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
