/*
 * Random mutators: uniform, as many inputs as asked for, repeatable.
 */
#include "nas/toy.h"

enum { DRAWS = 3000 };

static int setup(void **state)
{
    *state = eg_context_new(.seed = 11, .threads = 1);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

/* Pearson's statistic against equal shares. */
static double chi_squared(const int *counts, int n)
{
    double expected = (double)DRAWS / n, sum = 0;
    for (int i = 0; i < n; i++)
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    return sum;
}

static int mask_of(const eg_mutator *mutator, const char *key)
{
    const eg_decision *d = eg_decisions_get(mutator->current, key);
    assert_non_null(d);
    assert_true(d->is_bool);
    int mask = 0;
    for (size_t i = 0; i < d->n; i++)
        mask |= d->weights[i] != 0 ? 1 << i : 0;
    return mask;
}

static void choices_are_uniform(void **state)
{
    eg_module *net = eg_new(pick, *state, false);
    eg_mutator *mutator = eg_random_mutator_new(net);
    int layers[3] = {0}, pairs[3] = {0}, both[9] = {0};
    for (int i = 0; i < DRAWS; i++) {
        assert_ok(eg_mutator_reset(mutator));
        int left = mask_of(mutator, "left"), right = mask_of(mutator, "right"), merge = mask_of(mutator, "merge");
        assert_true(left == 1 || left == 2 || left == 4);
        assert_true(merge == 3 || merge == 5 || merge == 6);
        layers[left / 2]++;
        pairs[merge / 2 - 1]++;
        both[left / 2 * 3 + right / 2]++;
    }
    assert_true(chi_squared(layers, 3) < 13.8); /* probability 0.001 */
    assert_true(chi_squared(pairs, 3) < 13.8);
    assert_true(chi_squared(both, 9) < 26.1);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void any_number_is_a_coin_for_each(void **state)
{
    eg_module *net = eg_new(pick, *state, true);
    eg_mutator *mutator = eg_random_mutator_new(net);
    int counts[8] = {0};
    for (int i = 0; i < DRAWS; i++) {
        assert_ok(eg_mutator_reset(mutator));
        counts[mask_of(mutator, "merge")]++;
    }
    assert_true(chi_squared(counts, 8) < 24.3);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void none_and_all(void **state)
{
    eg_context *ctx = *state;
    static const double numbers[] = {0, 3};
    for (int i = 0; i < 2; i++) {
        eg_module *m = eg_input_choice(ctx, .n_candidates = 3, .n_chosen = EG_N(numbers[i]), .key = "k");
        eg_mutator *mutator = eg_random_mutator_new(m);
        for (int k = 0; k < 20; k++) {
            assert_ok(eg_mutator_reset(mutator));
            assert_int_equal(mask_of(mutator, "k"), i == 0 ? 0 : 7);
        }
        eg_mutator_detach(mutator);
        eg_module_release(m);
    }
}

static void the_stream_decides(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(pick, ctx, true);
    eg_mutator *mutator = eg_random_mutator_new(net);
    eg_rng start = *eg_context_rng(ctx);
    eg_arch *first = eg_mutator_export(mutator), *second = eg_mutator_export(mutator);
    eg_arch *third = eg_mutator_export(mutator);
    *eg_context_rng(ctx) = start;
    eg_arch *again = eg_mutator_export(mutator);
    assert_true(eg_arch_equal(first, again));
    assert_false(eg_arch_equal(first, second) && eg_arch_equal(second, third)); /* an export is a new sample */
    eg_arch_free(first);
    eg_arch_free(second);
    eg_arch_free(third);
    eg_arch_free(again);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(choices_are_uniform),
        TEST(any_number_is_a_coin_for_each),
        TEST(none_and_all),
        TEST(the_stream_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
