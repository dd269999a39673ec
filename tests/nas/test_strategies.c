/*
 * What all strategies have in common, and the random one.
 */
#include "nas/toy.h"

static void strategies_have_names(void **state)
{
    (void)state;
    size_t n = 0;
    for (const eg_strategy_class *const *s = eg_strategies(); *s != NULL; s++, n++) {
        assert_ptr_equal(eg_strategy_find((*s)->name), *s);
        assert_true(strlen((*s)->help) > 10 && strlen((*s)->source) > 5);
    }
    assert_int_equal(n, 3);
    assert_refused(eg_strategy_find("dart"), EG_ENOENT, "there is no strategy 'dart', did you mean 'darts'?");
    assert_refused(eg_strategy_find("reinforcement"), EG_ENOENT, "there is no strategy 'reinforcement'");
    assert_refused(eg_strategy_find(NULL), EG_EINVAL, "name");
}

static eg_arch *random_arch(eg_module *net, uint64_t seed)
{
    eg_strategy_options options = {.struct_size = sizeof options, .seed = seed};
    eg_strategy *strategy = eg_strategy_new(eg_strategy_find("random"), net, NULL, NULL, &options);
    assert_made(strategy);
    assert_true(strategy->cls->no_training);
    eg_arch *arch = strategy->cls->choose(strategy);
    assert_made(arch);
    eg_strategy_free(strategy);
    return arch;
}

static void random_is_uniform_by_seed(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_module *net = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k");
    int counts[3] = {0};
    for (uint64_t seed = 0; seed < 900; seed++) {
        eg_arch *arch = random_arch(net, seed);
        char *value = eg_arch_value(arch, "k");
        assert_int_equal(strlen(value), 3);
        counts[value[1] - 'a']++;
        eg_free(value);
        eg_arch_free(arch);
    }
    for (int i = 0; i < 3; i++)
        assert_in_range(counts[i], 250, 350); /* 300, deviation 14 */
    eg_arch *one = random_arch(net, 5), *same = random_arch(net, 5);
    assert_true(eg_arch_equal(one, same));
    eg_arch_free(one);
    eg_arch_free(same);
    eg_module_release(net);
    eg_context_free(ctx);
}

/* Its architecture is complete: it can be applied to a fresh model. */
static void random_is_applied(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_module *net = eg_new(pick, ctx, false), *fresh = eg_new(pick, ctx, false);
    for (uint64_t seed = 0; seed < 8; seed++) {
        eg_arch *arch = random_arch(net, seed);
        eg_module *copy = eg_module_clone(fresh);
        assert_ok(eg_apply_arch(copy, arch));
        assert_true(run_on_one(copy) > 1);
        eg_module_release(copy);
        eg_arch_free(arch);
    }
    assert_null(eg_mutable_mutator(net));
    eg_module_release(net);
    eg_module_release(fresh);
    eg_context_free(ctx);
}

static void starting_is_refused(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_module *net = eg_new(pick, ctx, false);
    eg_optimizer *optimizer = eg_sgd(net, .lr = 0.1);
    eg_mutator *mutator = eg_random_mutator_new(net);
    for (const eg_strategy_class *const *s = eg_strategies(); *s != NULL; s++) {
        assert_refused(eg_strategy_new(*s, net, optimizer, NULL, NULL), EG_EINVAL, "has a RandomMutator already");
        assert_refused(eg_strategy_new(*s, NULL, optimizer, NULL, NULL), EG_EINVAL, "model");
    }
    eg_mutator_detach(mutator);
    eg_strategy_options options = {.struct_size = sizeof options, .arch_lr = -1};
    assert_refused(eg_strategy_new(eg_strategy_find("darts"), net, optimizer, NULL, &options), EG_EINVAL,
                   "arch_lr is -1");
    options = (eg_strategy_options){.struct_size = sizeof options, .warmup = 2};
    assert_refused(eg_strategy_new(eg_strategy_find("darts"), net, optimizer, NULL, &options), EG_EINVAL,
                   "warmup is 2, expected 0 to 1");
    eg_module *plain = make_gain(ctx, 1);
    for (const eg_strategy_class *const *s = eg_strategies(); *s != NULL; s++) {
        assert_refused(eg_strategy_new(*s, plain, optimizer, NULL, NULL), EG_EINVAL, "the model has no open choice");
        assert_null(eg_mutable_mutator(plain));
    }
    eg_module *inputs = eg_input_choice(ctx, .n_candidates = 2, .n_chosen = EG_N(1), .key = "in");
    assert_refused(eg_strategy_new(eg_strategy_find("darts"), inputs, optimizer, NULL, NULL), EG_EINVAL,
                   "no layer choice");
    assert_null(eg_mutable_mutator(inputs));
    eg_module_release(inputs);
    eg_strategy *strategy = eg_strategy_new(eg_strategy_find("darts"), net, optimizer, NULL, NULL);
    assert_made(strategy);
    eg_step_result result;
    assert_fails(strategy->cls->train_step(strategy, NULL, NULL, &result), EG_EINVAL, "no batch");
    assert_true(eg_tensor_requires_grad(eg_module_tensor(net, "left.a.weight"))); /* also after a failure */
    eg_strategy_free(strategy);
    eg_module_release(plain);
    eg_optimizer_free(optimizer);
    eg_module_release(net);
    eg_context_free(ctx);
}

static void options_are_copied(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.threads = 1);
    eg_module *net = eg_new(pick, ctx, false);
    eg_optimizer *optimizer = eg_sgd(net, .lr = 0.1);
    char choice[] = "random";
    eg_strategy_options options = {.struct_size = sizeof options, .choice = choice};
    eg_strategy *strategy = eg_strategy_new(eg_strategy_find("spos"), net, optimizer, NULL, &options);
    assert_made(strategy);
    choice[0] = '?';
    assert_string_equal(strategy->options.choice, "random");
    eg_strategy_free(strategy);
    eg_optimizer_free(optimizer);
    eg_module_release(net);
    eg_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategies_have_names), cmocka_unit_test(random_is_uniform_by_seed),
        cmocka_unit_test(random_is_applied),     cmocka_unit_test(starting_is_refused),
        cmocka_unit_test(options_are_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
