/*
 * Mutators of one's own: what their samples are held to.
 */
#include "nas/toy.h"

static int setup(void **state)
{
    *state = eg_context_new(.seed = 5, .threads = 1);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

typedef enum sample_mode { COMPLETE, WITHOUT_ACT, SHORT, NO_VALUE, TWO_VALUES, TENSOR } sample_mode;

typedef struct biased {
    eg_mutator base;
    sample_mode mode; /* what the next sample is like */
    size_t draws;
} biased;

static eg_status sample_act(biased *b, const eg_module *act, eg_decisions *out)
{
    static const bool mask[3] = {false, true, true}, none[3] = {false};
    switch (b->mode) {
    case WITHOUT_ACT:
        return EG_OK;
    case SHORT:
        return eg_decisions_set_mask(out, "act", mask, 2);
    case NO_VALUE:
        return eg_decisions_set_mask(out, "act", none, 3);
    case TWO_VALUES:
        return eg_decisions_set_mask(out, "act", mask, 3);
    case TENSOR:
        return eg_decisions_set_tensor(out, "act", eg_ones(b->base.ctx, EG_SHAPE(3)));
    default:
        return eg_decisions_choose(out, act, b->draws % 3);
    }
}

static eg_status biased_sample(eg_mutator *self, eg_decisions *out)
{
    biased *b = (biased *)self;
    b->draws++;
    for (size_t i = 0; i < self->n_mutables; i++) {
        const eg_module *m = self->mutables[i];
        if (strcmp(eg_mutable_key(m), "act") == 0)
            EG_TRY(sample_act(b, m, out));
        else if (eg_mutable_n_candidates(m) > 0)
            EG_TRY(eg_decisions_choose(out, m, b->draws % eg_mutable_n_candidates(m)));
    }
    return EG_OK;
}

static const eg_mutator_class biased_class = {.struct_size = sizeof(eg_mutator_class),
                                              .name = "Biased",
                                              .instance_size = sizeof(biased),
                                              .sample_search = biased_sample};
/* One that has its samples from there. */
static const eg_mutator_class heir_class = {
    .struct_size = sizeof(eg_mutator_class), .name = "Heir", .super = &biased_class, .instance_size = sizeof(biased)};

static eg_module *make_values(eg_context *ctx)
{
    int64_t width = eg_value_choice(ctx, EG_VALUES(2, 4, 8), .key = "act");
    return eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 2, width), eg_linear(ctx, width, 1)));
}

static void incomplete_samples_are_refused(void **state)
{
    eg_module *net = make_values(*state);
    biased *b = (biased *)eg_mutator_attach(&heir_class, 0, NULL, net);
    assert_made(b);
    assert_refused(eg_call(net, eg_ones(*state, EG_SHAPE(1, 2))), EG_EINVAL,
                   "value choice 'act': mutator 'Heir' has no decision for it (forgot eg_mutator_reset?)");
    assert_ok(eg_mutator_reset(&b->base));
    const eg_decisions *before = b->base.current;
    static const char *const messages[] = {
        [WITHOUT_ACT] = "sample_search of 'Biased' left out 'act'",
        [SHORT] = "sample_search of 'Biased': the decision for 'act' has 2 entries, expected 3",
        [NO_VALUE] = "sample_search of 'Biased': the decision for 'act' has 0 values, expected one",
        [TWO_VALUES] = "sample_search of 'Biased': the decision for 'act' has 2 values, expected one",
        [TENSOR] = "sample_search of 'Biased': 'act' is decided by a tensor, expected one value"};
    for (sample_mode mode = WITHOUT_ACT; mode <= TENSOR; mode++) {
        b->mode = mode;
        assert_fails(eg_mutator_reset(&b->base), EG_EINVAL, messages[mode]);
        assert_ptr_equal(b->base.current, before);
    }
    b->mode = COMPLETE;
    assert_ok(eg_mutator_reset(&b->base));
    eg_mutator_detach(&b->base);
    eg_module_release(net);
}

/* What lies in a candidate that is not chosen may be left out, and is dropped where it is decided. */
static void what_does_not_count_may_be_left_out(void **state)
{
    eg_context *ctx = *state;
    eg_module *act = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "act");
    eg_module *net = eg_layer_choice(ctx, EG_CHOICES({"x", make_gain(ctx, 2)}, {"y", act}), .key = "outer");
    biased *b = (biased *)eg_mutator_attach(&biased_class, 0, NULL, net);
    assert_made(b);
    assert_ok(eg_mutator_reset(&b->base)); /* "y" */
    assert_non_null(eg_decisions_get(b->base.current, "act"));
    assert_ok(eg_mutator_reset(&b->base));
    assert_null(eg_decisions_get(b->base.current, "act"));
    b->mode = WITHOUT_ACT;
    assert_fails(eg_mutator_reset(&b->base), EG_EINVAL, "sample_search of 'Biased' left out 'act'");
    assert_ok(eg_mutator_reset(&b->base));
    eg_arch *arch = eg_mutator_export_decisions(&b->base, b->base.current);
    assert_made(arch);
    /* of decisions that were set there is nothing to be forgotten */
    eg_decisions_free(b->base.current);
    b->base.current = eg_decisions_new();
    assert_ok(eg_decisions_choose(b->base.current, net, 1));
    assert_refused(eg_call(net, eg_ones(ctx, EG_SHAPE(1))), EG_EINVAL,
                   "layer choice 'act': mutator 'Biased' has no decision for it");
    assert_null(strstr(eg_error_last()->message, "forgot"));
    eg_arch_free(arch);
    eg_mutator_detach(&b->base);
    eg_module_release(net);
}

static void choosing_one(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(part, ctx, "scope", EG_MODULES(eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "op")));
    eg_module *op = eg_module_child_at(net, 0, NULL);
    eg_module *inputs = eg_input_choice(ctx, .n_candidates = 5);
    assert_int_equal(eg_mutable_n_candidates(op), 3);
    assert_int_equal(eg_mutable_n_candidates(inputs), 5);
    assert_int_equal(eg_mutable_n_candidates(net), 0);
    assert_int_equal(eg_mutable_n_candidates(NULL), 0);
    eg_decisions *decisions = eg_decisions_new();
    assert_ok(eg_decisions_choose(decisions, op, 2));
    const eg_decision *d = eg_decisions_get(decisions, "op");
    assert_true(d->n == 3 && d->is_bool && d->weights[0] == 0 && d->weights[1] == 0 && d->weights[2] == 1);
    assert_fails(eg_decisions_choose(decisions, op, 3), EG_EINVAL, "'op' has no candidate 3, expected 0 to 2");
    assert_fails(eg_decisions_choose(decisions, net, 0), EG_EINVAL, "no decisions or choice was given");
    assert_fails(eg_decisions_choose(NULL, op, 0), EG_EINVAL, "no decisions or choice was given");
    eg_decisions_free(decisions);
    eg_module_release(inputs);
    eg_module_release(net);
}

/* ---- constraints ---- */

static eg_status is_last(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    (void)mutator;
    const eg_decision *d = eg_decisions_get(decisions, "act");
    *holds = d->weights[d->n - 1] == *(const double *)payload;
    return EG_OK;
}

static void samples_satisfy_constraints(void **state)
{
    eg_module *net = make_values(*state);
    biased *b = (biased *)eg_mutator_attach(&biased_class, 0, NULL, net);
    assert_made(b);
    double wanted = 1;
    assert_ok(eg_mutator_add_constraint(&b->base, "last", is_last, &wanted));
    for (int i = 1; i < 5; i++) {
        assert_ok(eg_mutator_reset(&b->base));
        assert_true(eg_decisions_get(b->base.current, "act")->weights[2] == 1);
        assert_int_equal(b->draws, 3 * i - 1);
    }
    bool holds = false;
    assert_ok(eg_mutator_satisfies(&b->base, b->base.current, &holds));
    assert_true(holds);
    wanted = 0.5;
    assert_ok(eg_mutator_satisfies(&b->base, b->base.current, &holds));
    assert_false(holds);
    assert_fails(eg_mutator_reset(&b->base), EG_EINVAL,
                 "none of 10000 draws satisfied the constraints: 'last' failed in 10000 of them");
    assert_fails(eg_mutator_satisfies(NULL, b->base.current, &holds), EG_EINVAL, "no mutator, decisions or place");
    assert_fails(eg_mutator_satisfies(&b->base, NULL, &holds), EG_EINVAL, "no mutator, decisions or place");
    assert_fails(eg_mutator_satisfies(&b->base, b->base.current, NULL), EG_EINVAL, "no mutator, decisions or place");
    eg_mutator_detach(&b->base);
    eg_module_release(net);
}

/* A mixture is no architecture: nobody is asked. */
static void mixtures_are_not_asked(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "act")));
    eg_mutator *darts = eg_darts_mutator_new(net);
    assert_made(darts);
    double wanted = 0.5;
    assert_ok(eg_mutator_add_constraint(darts, "last", is_last, &wanted));
    assert_ok(eg_mutator_reset(darts));
    bool holds = false;
    assert_ok(eg_mutator_satisfies(darts, darts->current, &holds));
    assert_true(holds);
    assert_refused(eg_mutator_export(darts), EG_EINVAL, "'last' failed in 1000 of them");
    eg_mutator_detach(darts);
    eg_module_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(incomplete_samples_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(what_does_not_count_may_be_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(choosing_one, setup, teardown),
        cmocka_unit_test_setup_teardown(samples_satisfy_constraints, setup, teardown),
        cmocka_unit_test_setup_teardown(mixtures_are_not_asked, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
