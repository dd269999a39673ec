/*
 * Value choices: open fields, what runs with which part of the parameters, and what an architecture makes of them.
 */
#include "nas/everything.h"

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

/* ---- fields ---- */

static void fields_take_handles(void **state)
{
    eg_context *ctx = *state;
    int64_t width = eg_value_choice(ctx, EG_VALUES(4, 16, 8), .key = "width");
    int64_t p = eg_value_choice(ctx, EG_VALUES(0.5, 0.1), .key = "p");
    eg_module *net =
        eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, width, eg_value_choice(ctx, EG_VALUES(3, 5)), .padding = 1),
                                      eg_batch_norm2d(ctx, width, .eps = (double)p, .momentum = EG_F64((double)p))));
    assert_made(net);
    const eg_conv2d *conv = EG_CAST(eg_module_child_at(net, 0, NULL), eg_conv2d);
    assert_true(conv->out_channels == 16 && conv->kernel_size == 5);
    assert_true(eg_shape_equal(eg_tensor_shape(conv->weight), EG_SHAPE(16, 3, 5, 5)));
    assert_int_equal(eg_module_n_parameters(net), 16 * 75 + 3 * 16);
    eg_module *copy = eg_module_clone(net);
    char *text = eg_module_text(net), *again = eg_module_text(copy);
    assert_string_equal(text, "Sequential(\n"
                              "  (0): Conv2d(\n"
                              "    3, 16, kernel_size=(5, 5), stride=(1, 1), padding=(1, 1)\n"
                              "    (out_channels): ValueChoice([4, 16, 8], key='width')\n"
                              "    (kernel_size): ValueChoice([3, 5], key='ValueChoice1')\n"
                              "  )\n"
                              "  (1): BatchNorm2d(\n"
                              "    16, eps=0.5, momentum=0.5, affine=True, track_running_stats=True\n"
                              "    (num_features): ValueChoice([4, 16, 8], key='width')\n"
                              "    (eps): ValueChoice([0.5, 0.1], key='p')\n"
                              "    (momentum): ValueChoice([0.5, 0.1], key='p')\n"
                              "  )\n"
                              ")");
    assert_string_equal(text, again);
    assert_ptr_not_equal(eg_module_find(copy, "0.out_channels"), eg_module_find(net, "0.out_channels"));
    assert_ptr_equal(eg_module_find(copy, "0.out_channels"), eg_module_find(copy, "1.num_features"));
    eg_state *names = eg_state_new();
    assert_ok(eg_module_state(net, NULL, names));
    assert_int_equal(eg_state_size(names), 7);
    eg_state_free(names);
    eg_free(text);
    eg_free(again);
    eg_mutator *mutator = attach(net);
    assert_int_equal(mutator->n_mutables, 3);
    assert_string_equal(eg_mutable_name(mutator->mutables[0]), "0.out_channels");
    eg_mutator_detach(mutator);
    eg_module_release(copy);
    eg_module_release(net);
}

static void bad_values_are_refused(void **state)
{
    eg_context *ctx = *state;
#define REFUSED(message, ...)                                                                                          \
    assert_refused(eg_conv2d(ctx, 3, eg_value_choice(ctx, __VA_ARGS__), 3), EG_EINVAL, message)
    REFUSED("value choice 'w': 4 is there twice", EG_VALUES(4, 8, 4), .key = "w");
    REFUSED("value choice 'w': value 1 is not a finite number", EG_VALUES(4, (double)NAN), .key = "w");
    REFUSED("value choice 'w': 0 values, expected 1 to 1024", .key = "w");
    REFUSED("the key is empty", EG_VALUES(4), .key = "");
    REFUSED("Conv2d: 'out_channels' is 0, expected 1 to", EG_VALUES(4, 0), .key = "w");
    REFUSED("Conv2d: 'out_channels' is 4.5, expected a whole number", EG_VALUES(4, 4.5), .key = "w");
    REFUSED("'w' is 5, expected 4 or 8", EG_VALUES(4, 8), .key = "w", .fixed = "5");
    int64_t k = eg_value_choice(ctx, EG_VALUES(3, 5), .key = "k");
    assert_refused(eg_conv2d(ctx, 3, 4, EG_HW(k, 3)), EG_EINVAL,
                   "'kernel_size' has a size out of range: a value choice");
    assert_refused(eg_layer_norm(ctx, EG_SHAPE(2, k)), EG_EINVAL,
                   "stands for a whole field, not for a part of EG_SHAPE()");
    assert_refused(eg_batch_norm2d(ctx, 4, .eps = (double)eg_value_choice(ctx, EG_VALUES(0, 0.5))), EG_EINVAL,
                   "'eps' cannot be 0, which stands for its default");
    REFUSED("value choice 'w': value 1 is 1e+300, expected less than 2^52", EG_VALUES(8, 1e300), .key = "w");
    REFUSED("value choice 'w': value 0 is -4.5036e+15, expected less than 2^52", EG_VALUES(-4503599627370496.0),
            .key = "w");
#undef REFUSED
    /* one key for two sizes */
    eg_module *net = eg_conv2d(ctx, eg_value_choice(ctx, EG_VALUES(1, 2), .key = "k"),
                               eg_value_choice(ctx, EG_VALUES(1, 2, 3), .key = "k"), 1);
    assert_refused(eg_random_mutator_new(net), EG_EINVAL, "key 'k' has 2 candidates at 'in_channels' and 3 at");
    eg_module_release(net);
    net = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 1, eg_value_choice(ctx, EG_VALUES(1, 2, 3), .key = "k"), 1),
                                        eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k")));
    assert_refused(eg_random_mutator_new(net), EG_EINVAL, "key 'k' is that of a ValueChoice");
    assert_refused(eg_darts_mutator_new(eg_module_child_at(net, 0, NULL)), EG_EINVAL, "'k' is a value choice");
    eg_module_release(net);
}

/* What arithmetic makes of a handle is none of the others. */
static void arithmetic_makes_no_handle(void **state)
{
    eg_context *ctx = *state;
    int64_t handles[64];
    for (int i = 0; i < 64; i++)
        handles[i] = eg_value_choice(ctx, EG_VALUES(4, 8));
    for (int i = 0; i < 64; i++) {
        int64_t h = handles[i], other = handles[(i + 7) % 64];
        const int64_t made[] = {h + 1,     h - 1, h + 2,           h + 16, 2 * h, h / 2, 3 * h,
                                4 * h,     h / 4, (h + other) / 2, -h,     6 * h, h + h, h + (other - h) / 2,
                                h + other, h ^ 64};
        for (size_t k = 0; k < sizeof(made) / sizeof(*made); k++)
            assert_refused(
                eg_linear(ctx, made[k], 3), EG_EINVAL,
                "Linear: 'in_features' is no live value choice: numbers made from one by arithmetic are none; "
                "give a second eg_value_choice() with the same key");
        assert_refused(eg_dropout(ctx, 0.5 * (double)h), EG_EINVAL, "'p' is no live value choice");
        eg_module *fine = eg_linear(ctx, h, other);
        assert_made(fine);
        eg_module_release(fine);
    }
}

static void looking_at_one(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_linear(ctx, 2, eg_value_choice(ctx, EG_VALUES(3, 1), .key = "w"));
    const eg_module *choice = eg_module_find(net, "out_features");
    assert_int_equal(eg_value_choice_size(choice), 2);
    assert_close(eg_value_choice_at(choice, 1), 1, 0);
    assert_int_equal(eg_value_choice_size(net), 0);
    assert_true(isnan(eg_value_choice_at(choice, 2)));
    assert_recorded(EG_EINVAL, "value choice 'w' has no value 2, expected 0 to 1");
    assert_true(isnan(eg_value_choice_at(net, 0)));
    assert_recorded(EG_EINVAL, "no value choice");
    eg_module_release(net);
}

/* ---- who decides ---- */

static void somebody_has_to_decide(void **state)
{
    eg_context *ctx = *state;
    eg_module *net =
        eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 2, eg_value_choice(ctx, EG_VALUES(3, 1), .key = "w"))));
    assert_refused(run(net, EG_SHAPE(1, 2)), EG_EINVAL, "value choice 'w' has no mutator");
    eg_mutator *mutator = attach(net);
    assert_refused(run(net, EG_SHAPE(1, 2)), EG_EINVAL,
                   "value choice 'w': mutator 'RandomMutator' has no decision for it");
    decide(mutator, "{\"w\": 1}");
    assert_int_equal(eg_tensor_size(run(net, EG_SHAPE(1, 2)), 1), 1);
    decide(mutator, "{\"w\": 3.0}");
    assert_int_equal(eg_tensor_size(run(net, EG_SHAPE(1, 2)), 1), 3);
    assert_ok(eg_decisions_set_mask(mutator->current, "w", (const bool[]){true, true}, 2));
    assert_refused(run(net, EG_SHAPE(1, 2)), EG_EINVAL, "value choice 'w': the decision has 2 values, expected one");
    assert_refused(eg_mutator_export_decisions(mutator, mutator->current), EG_EINVAL, "has 2 values, expected one");
    assert_ok(eg_decisions_set_mask(mutator->current, "w", (const bool[]){true}, 1));
    assert_refused(run(net, EG_SHAPE(1, 2)), EG_EINVAL, "the decision has 1 entries, expected 2");
    assert_ok(eg_decisions_set_tensor(mutator->current, "w", eg_ones(ctx, EG_SHAPE(2))));
    assert_refused(run(net, EG_SHAPE(1, 2)), EG_EINVAL, "decided by a tensor");
    eg_mutator_detach(mutator);
    eg_module_release(net);
    net = eg_linear(ctx, 2, eg_value_choice(ctx, EG_VALUES(3, 1), .key = "w", .fixed = "1"));
    assert_int_equal(eg_tensor_size(run(net, EG_SHAPE(1, 2)), 1), 1);
    eg_module_release(net);
}

/* ---- the same numbers in the supernet and in the fixed network ---- */

static void compare_once(eg_context *ctx, eg_module *net, eg_mutator *mutator)
{
    eg_arch *arch = eg_mutator_export_decisions(mutator, mutator->current);
    assert_made(arch);
    char *text = eg_arch_text(arch);
    eg_arch *again = eg_arch_parse(text);
    assert_true(eg_arch_equal(arch, again));
    assert_ok(eg_mutator_set_arch(mutator, again));
    eg_module *fixed = eg_module_clone(net);
    assert_ok(eg_apply_arch(fixed, again));
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_tensor *x = eg_randn(ctx, EG_SHAPE(2, 3, 8, 8));
    for (int training = 0; training < 2; training++) {
        eg_module_train(net, training);
        eg_module_train(fixed, training);
        eg_rng before = *eg_context_rng(ctx);
        eg_tensor *y = eg_call(net, x);
        *eg_context_rng(ctx) = before; /* of the dropout */
        compare(y, eg_call(fixed, x));
    }
    eg_tape_end(tape);
    eg_arch *none = eg_arch_new(); /* nothing is open */
    assert_ok(eg_apply_arch(fixed, none));
    eg_arch_free(none);
    eg_module_release(fixed);
    eg_arch_free(arch);
    eg_arch_free(again);
    eg_free(text);
}

static void fixed_networks_give_the_same(const char *backend)
{
    eg_context *ctx = eg_context_new(.seed = 8, .threads = 2, .backend = backend);
    eg_module *net = make_everything(ctx);
    assert_made(net);
    eg_mutator *mutator = attach(net);
    for (int i = 0; i < 100; i++) {
        assert_ok(eg_mutator_reset(mutator));
        compare_once(ctx, net, mutator);
    }
    eg_mutator_detach(mutator);
    eg_module_release(net);
    eg_context_free(ctx);
}

static void fixed_networks_give_the_same_fast(void **state)
{
    (void)state;
    fixed_networks_give_the_same("dnnl");
}

static void fixed_networks_give_the_same_ref(void **state)
{
    (void)state;
    fixed_networks_give_the_same("ref");
}

/* ---- searches ---- */

static eg_status judge_width(void *payload, double *accuracy)
{
    const eg_strategy *strategy = *(eg_strategy *const *)payload;
    *accuracy = eg_decisions_get(strategy->mutator->current, "width")->weights[2]; /* 8 */
    return EG_OK;
}

static void spos_trains_and_chooses(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = make_everything(ctx);
    assert_refused(eg_darts_mutator_new(net), EG_EINVAL, "'width' is a value choice, whose values cannot be mixed");
    eg_optimizer *optimizer = eg_sgd(net, .lr = 0.01);
    eg_strategy *strategy = NULL;
    eg_strategy_host host = {.payload = &strategy, .evaluate = judge_width};
    eg_strategy_options options = {.struct_size = sizeof options, .evaluations = 30, .population = 8};
    strategy = eg_strategy_new(eg_strategy_find("spos"), net, optimizer, &host, &options);
    assert_made(strategy);
    for (int i = 0; i < 5; i++) {
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        const int64_t labels[] = {0, 1, 2, 3};
        eg_batch batch = {.x = eg_randn(ctx, EG_SHAPE(4, 3, 8, 8)), .y = eg_from_labels(ctx, 4, labels), .size = 4};
        eg_step_result result;
        assert_ok(strategy->cls->train_step(strategy, &batch, NULL, &result));
        eg_tape_end(tape);
    }
    eg_arch *arch = strategy->cls->choose(strategy);
    assert_made(arch);
    char *width = eg_arch_value(arch, "width");
    assert_string_equal(width, "8");
    eg_free(width);
    eg_arch_free(arch);
    eg_strategy_free(strategy);
    eg_optimizer_free(optimizer);
    eg_module_release(net);
}

static void decisions_survive_a_checkpoint(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = make_everything(ctx);
    eg_mutator *mutator = attach(net);
    for (int i = 0; i < 20; i++) {
        assert_ok(eg_mutator_reset(mutator));
        eg_arch *before = eg_mutator_export_decisions(mutator, mutator->current);
        eg_state *saved = eg_state_new();
        assert_ok(eg_mutator_state(mutator, NULL, saved));
        assert_ok(eg_mutator_reset(mutator));
        assert_ok(eg_mutator_load_state(mutator, NULL, saved));
        eg_arch *after = eg_mutator_export_decisions(mutator, mutator->current);
        assert_true(eg_arch_equal(before, after));
        eg_arch_free(before);
        eg_arch_free(after);
        eg_state_free(saved);
    }
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void the_space_lists_values(void **state)
{
    eg_module *net = eg_linear(*state, 2, eg_value_choice(*state, EG_VALUES(16, 0x1p40, 24), .key = "w"));
    assert_null(net);
    eg_error_clear();
    net = eg_dropout(*state, (double)eg_value_choice(*state, EG_VALUES(0.25, 0, 1), .key = "p"));
    char *text = eg_search_space_text(net);
    assert_string_equal(text, "{\n  \"p\": {\n    \"_type\": \"value_choice\",\n    \"_value\": [\n      0.25,\n      "
                              "0,\n      1\n    ]\n  }\n}\n");
    eg_free(text);
    eg_module_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fields_take_handles, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_values_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(arithmetic_makes_no_handle, setup, teardown),
        cmocka_unit_test_setup_teardown(looking_at_one, setup, teardown),
        cmocka_unit_test_setup_teardown(somebody_has_to_decide, setup, teardown),
        cmocka_unit_test(fixed_networks_give_the_same_fast),
        cmocka_unit_test(fixed_networks_give_the_same_ref),
        cmocka_unit_test_setup_teardown(spos_trains_and_chooses, setup, teardown),
        cmocka_unit_test_setup_teardown(decisions_survive_a_checkpoint, setup, teardown),
        cmocka_unit_test_setup_teardown(the_space_lists_values, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
