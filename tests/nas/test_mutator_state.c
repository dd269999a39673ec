/* Mutators in checkpoints, and sampling that leaves nothing behind. */
#include "nas/toy.h"

static int setup(void **state)
{
    *state = eg_context_new(.seed = 3, .threads = 1);
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

static eg_state *saved_state(eg_mutator *mutator)
{
    eg_state *saved = eg_state_new();
    assert_made(saved);
    assert_ok(eg_mutator_state(mutator, "m.", saved));
    return saved;
}

static void decisions_come_back(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(pick, ctx, false), *other = eg_new(pick, ctx, false);
    eg_mutator *from = eg_random_mutator_new(net), *to = eg_random_mutator_new(other);
    assert_ok(eg_mutator_reset(from));
    assert_ok(eg_decisions_set_weights(from->current, "right", (const double[]){0.1, 0, 0.9}, 3));
    eg_state *saved = saved_state(from);
    assert_int_equal(eg_state_size(saved), 3);
    assert_ok(eg_mutator_load_state(to, "m.", saved));
    char *a = eg_mutator_status(from), *b = eg_mutator_status(to);
    assert_string_equal(a, b);
    eg_free(a);
    eg_free(b);
    assert_close(run_on_one(net), run_on_one(other), 0);

    /* nothing decided yet is a state too */
    eg_state *none = eg_state_new();
    assert_ok(eg_mutator_load_state(to, "m.", none));
    assert_null(eg_decisions_get(to->current, "left"));
    eg_state_free(none);
    eg_state_free(saved);
    eg_mutator_detach(from);
    eg_mutator_detach(to);
    eg_module_release(net);
    eg_module_release(other);
}

static void alphas_come_back(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(pick, ctx, false), *other = eg_new(pick, ctx, false);
    eg_mutator *from = eg_darts_mutator_new(net), *to = eg_darts_mutator_new(other);
    eg_state *saved = saved_state(from);
    assert_made(eg_state_get(saved, "m.alpha.left"));
    assert_ok(eg_mutator_load_state(to, "m.", saved));
    float a[4], b[4];
    assert_ok(eg_tensor_read(eg_darts_mutator_alpha(from, "right"), a, 4));
    assert_ok(eg_tensor_read(eg_darts_mutator_alpha(to, "right"), b, 4));
    assert_memory_equal(a, b, sizeof a);
    eg_state_free(saved);
    eg_mutator_detach(from);
    eg_mutator_detach(to);
    eg_module_release(net);
    eg_module_release(other);
}

/* Each state is wrong in one tensor, and nothing of it is taken. */
static void wrong_states_change_nothing(void **state)
{
    eg_context *ctx = *state;
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    eg_module *net = eg_new(pick, ctx, false), *other = eg_new(pick, ctx, false);
    eg_mutator *from = eg_darts_mutator_new(net), *to = eg_darts_mutator_new(other);
    float before[4], after[4];
    assert_ok(eg_tensor_read(eg_darts_mutator_alpha(to, "left"), before, 4));
    const struct {
        const char *name;
        eg_tensor *tensor;
        eg_status status;
        const char *part;
    } cases[] = {
        {"m.alpha.right", eg_ones(ctx, EG_SHAPE(3)), EG_ESHAPE, "'m.alpha.right' has shape (3), expected (4)"},
        {"m.alpha.right", eg_from_labels(ctx, 4, (const int64_t[4]){0}), EG_EDTYPE, "m.alpha.right"},
        {"m.current.left", eg_ones(ctx, EG_SHAPE(3)), EG_EDTYPE, "m.current.left"},
        {"m.current.left", eg_from_labels(ctx, 2, (const int64_t[2]){0}), EG_ESHAPE, "the choice has 3 candidates"},
        {"m.current.middle", eg_ones(ctx, EG_SHAPE(3)), EG_ENOENT, "no choice 'middle'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        eg_state *saved = saved_state(from);
        assert_ok(eg_state_put(saved, cases[i].name, cases[i].tensor));
        assert_fails(eg_mutator_load_state(to, "m.", saved), cases[i].status, cases[i].part);
        eg_state_free(saved);
    }
    eg_state *empty = eg_state_new();
    assert_fails(eg_mutator_load_state(to, "m.", empty), EG_ENOENT, "lacks 'm.alpha.left'");
    assert_fails(eg_mutator_load_state(NULL, "m.", empty), EG_EINVAL, "no mutator");
    assert_fails(eg_mutator_state(to, NULL, NULL), EG_EINVAL, "state");
    eg_state_free(empty);
    assert_ok(eg_tensor_read(eg_darts_mutator_alpha(to, "left"), after, 4));
    assert_memory_equal(before, after, sizeof before);
    eg_mutator_detach(from);
    eg_mutator_detach(to);
    eg_module_release(net);
    eg_module_release(other);
    eg_tape_end(tape);
}

/* Outside of any tape: only the decisions stay, whatever was computed for them. */
static void sampling_leaves_nothing_behind(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(pick, ctx, false);
    eg_mutator *mutator = eg_darts_mutator_new(net);
    size_t bytes = 0;
    for (int i = 0; i < 10; i++) {
        assert_ok(eg_mutator_reset(mutator));
        eg_arch *arch = eg_mutator_export(mutator);
        assert_made(arch);
        eg_arch_free(arch);
        size_t now = eg_context_get_stats(ctx).bytes_in_use;
        if (i > 0)
            assert_int_equal(now, bytes);
        bytes = now;
    }
    eg_mutator_detach(mutator);
    eg_module_release(net);
    assert_int_equal(eg_context_get_stats(ctx).bytes_in_use, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(decisions_come_back),
        TEST(alphas_come_back),
        TEST(wrong_states_change_nothing),
        TEST(sampling_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
