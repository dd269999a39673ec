/*
 * Constraints: what samplers, evolution and DARTS may choose.
 */
#include "nas/everything.h"

static int setup(void **state)
{
    *state = eg_context_new(.seed = 9, .threads = 1);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

/* Four choices of three: 3^4 architectures. */
static eg_module *make_chain(eg_context *ctx)
{
    eg_module *net = eg_sequential(ctx);
    static const char *const keys[] = {"k0", "k1", "k2", "k3"};
    for (int i = 0; i < 4; i++)
        assert_ok(eg_append(net, eg_layer_choice(ctx, GAINS_ABC(ctx), .key = keys[i])));
    return net;
}

/* How many of the decisions are the last candidate. */
static size_t count_last(eg_mutator *mutator, const eg_decisions *decisions)
{
    size_t n = 0;
    for (size_t i = 0; i < mutator->n_mutables; i++) {
        const eg_decision *d = eg_decisions_get(decisions, eg_mutable_key(mutator->mutables[i]));
        n += d && d->weights[d->n - 1] != 0;
    }
    return n;
}

typedef struct limit {
    size_t n, calls;
} limit;

static eg_status has_n_last(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    limit *l = payload;
    l->calls++;
    *holds = count_last(mutator, decisions) == l->n;
    return EG_OK;
}

static eg_status never(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    (void)payload, (void)mutator, (void)decisions;
    *holds = false;
    return EG_OK;
}

static void samples_satisfy_them(void **state)
{
    eg_module *net = make_chain(*state);
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    limit three = {.n = 3};
    assert_ok(eg_mutator_add_constraint(mutator, "three", has_n_last, &three));
    for (int i = 0; i < 50; i++) {
        assert_ok(eg_mutator_reset(mutator));
        assert_int_equal(count_last(mutator, mutator->current), 3);
        eg_arch *arch = eg_mutator_export(mutator);
        assert_made(arch);
        eg_arch_free(arch);
    }
    assert_true(three.calls > 100);
    /* who sets one is not asked */
    eg_arch *arch = parse_arch("{\"k0\": 0, \"k1\": 0, \"k2\": 0, \"k3\": 0}");
    size_t calls = three.calls;
    assert_ok(eg_mutator_set_arch(mutator, arch));
    assert_int_equal(three.calls, calls);
    eg_arch_free(arch);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void what_nothing_satisfies(void **state)
{
    eg_module *net = make_chain(*state);
    eg_mutator *mutator = eg_random_mutator_new(net);
    limit four = {.n = 4}, five = {.n = 5};
    assert_ok(eg_mutator_reset(mutator));
    const eg_decisions *before = mutator->current;
    assert_ok(eg_mutator_add_constraint(mutator, "four", has_n_last, &four));
    assert_ok(eg_mutator_add_constraint(mutator, "five", has_n_last, &five));
    assert_fails(eg_mutator_reset(mutator), EG_EINVAL,
                 "none of 10000 draws satisfied the constraints: 'four' failed in");
    assert_ptr_equal(mutator->current, before);
    assert_int_equal(four.calls, 10000);
    assert_true(five.calls > 0);
    assert_fails(eg_mutator_add_constraint(mutator, NULL, never, NULL), EG_EINVAL, "no mutator, name or function");
    assert_fails(eg_mutator_add_constraint(mutator, "x", NULL, NULL), EG_EINVAL, "no mutator, name or function");
    assert_fails(eg_mutator_add_constraint(NULL, "x", never, NULL), EG_EINVAL, "no mutator, name or function");
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* Lets `n` calls pass, none of which holds. */
static eg_status fails_after(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    (void)mutator, (void)decisions;
    size_t *n = payload;
    assert_false(*holds);
    EG_CHECK(*n > 0, EG_EIO, "no meter to measure it with");
    --*n;
    return EG_OK;
}

static void a_failure_ends_the_sampling(void **state)
{
    eg_module *net = make_chain(*state);
    for (size_t darts = 0; darts < 2; darts++) {
        eg_mutator *mutator = darts ? eg_darts_mutator_new(net) : eg_random_mutator_new(net);
        size_t left = 3;
        assert_ok(eg_mutator_add_constraint(mutator, "measured", fails_after, &left));
        assert_refused(eg_mutator_export(mutator), EG_EIO, "no meter to measure it with");
        assert_int_equal(left, 0);
        eg_mutator_detach(mutator);
    }
    eg_module_release(net);
}

/* Without constraints, numbers are drawn as before there were any. */
static void a_constraint_that_holds_draws_no_more(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = make_chain(ctx);
    eg_arch *archs[2];
    for (int i = 0; i < 2; i++) {
        *eg_context_rng(ctx) = eg_rng_make(3, "here", 0);
        eg_mutator *mutator = eg_random_mutator_new(net);
        limit any = {.n = 99};
        if (i == 1) {
            assert_ok(eg_mutator_reset(mutator));
            any.n = count_last(mutator, mutator->current);
            *eg_context_rng(ctx) = eg_rng_make(3, "here", 0);
            assert_ok(eg_mutator_add_constraint(mutator, "any", has_n_last, &any));
        }
        assert_ok(eg_mutator_reset(mutator));
        archs[i] = eg_mutator_export_decisions(mutator, mutator->current);
        assert_int_equal(any.calls, i);
        eg_mutator_detach(mutator);
    }
    assert_true(eg_arch_equal(archs[0], archs[1]));
    eg_arch_free(archs[0]);
    eg_arch_free(archs[1]);
    eg_module_release(net);
}

/* ---- strategies ---- */

typedef struct judge {
    eg_strategy *strategy;
    size_t n;
} judge;

static eg_status like_last(void *payload, double *accuracy)
{
    judge *j = payload;
    size_t n = count_last(j->strategy->mutator, j->strategy->mutator->current);
    assert_true(n == 2);
    *accuracy = 0.25 * (double)n;
    j->n++;
    return EG_OK;
}

static eg_strategy *start(eg_module *net, eg_optimizer *optimizer, const char *name, judge *j, const eg_constraint *c)
{
    eg_strategy_host host = {.payload = j, .evaluate = like_last};
    static eg_strategy_host kept;
    kept = host;
    eg_strategy_options options = {
        .struct_size = sizeof options, .evaluations = 60, .population = 6, .constraints = c, .n_constraints = 1};
    return j->strategy = eg_strategy_new(eg_strategy_find(name), net, optimizer, &kept, &options);
}

/* Of 81 architectures 24 have two: all are found, no other is evaluated. */
static void evolution_stays_inside(void **state)
{
    eg_module *net = make_chain(*state);
    eg_optimizer *optimizer = eg_sgd(net, .lr = 0.1);
    limit two = {.n = 2};
    const eg_constraint constraint = {"two", has_n_last, &two};
    judge j = {0};
    assert_made(start(net, optimizer, "spos", &j, &constraint));
    eg_arch *arch = j.strategy->cls->choose(j.strategy);
    assert_made(arch);
    assert_int_equal(j.n, 24);
    eg_arch_free(arch);
    eg_strategy_free(j.strategy);
    const eg_constraint impossible = {"impossible", never, NULL};
    assert_made(start(net, optimizer, "spos", &j, &impossible));
    assert_refused(j.strategy->cls->choose(j.strategy), EG_EINVAL, "'impossible' failed in 10000 of them");
    eg_strategy_free(j.strategy);
    assert_made(start(net, NULL, "random", &j, &constraint));
    arch = j.strategy->cls->choose(j.strategy);
    assert_made(arch);
    assert_int_equal(count_last(j.strategy->mutator, j.strategy->mutator->current), 2);
    eg_arch_free(arch);
    eg_strategy_free(j.strategy);
    eg_optimizer_free(optimizer);
    eg_strategy_options bad = {.struct_size = sizeof bad, .n_constraints = 1};
    assert_refused(eg_strategy_new(eg_strategy_find("random"), net, NULL, NULL, &bad), EG_EINVAL, "but no list");
    eg_module_release(net);
}

/* Allows one with two, and its repetition while it is judged. */
static eg_status first_with_two(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    size_t *found = payload;
    *holds = *found < 2 && count_last(mutator, decisions) == 2;
    *found += *holds ? 1 : 0;
    return EG_OK;
}

/* Found once, and then not again: the search ends with it. */
static void evolution_ends_when_nothing_more_is_allowed(void **state)
{
    eg_module *net = make_chain(*state);
    eg_optimizer *optimizer = eg_sgd(net, .lr = 0.1);
    size_t draws = 0;
    const eg_constraint constraint = {"the first two", first_with_two, &draws};
    judge j = {0};
    assert_made(start(net, optimizer, "spos", &j, &constraint));
    eg_arch *arch = j.strategy->cls->choose(j.strategy);
    assert_made(arch);
    assert_int_equal(j.n, 1);
    assert_int_equal(count_last(j.strategy->mutator, j.strategy->mutator->current), 2);
    eg_arch_free(arch);
    eg_strategy_free(j.strategy);
    eg_optimizer_free(optimizer);
    eg_module_release(net);
}

static void darts_takes_the_most_probable(void **state)
{
    eg_module *net = make_chain(*state);
    eg_mutator *mutator = eg_darts_mutator_new(net);
    assert_made(mutator);
    static const float alphas[4][4] = {{2, 0, 1, 0}, {2, 0, 1.9F, 0}, {2, 0, 0, 0}, {0, 0, 2, 5}};
    static const char *const keys[] = {"k0", "k1", "k2", "k3"};
    for (int i = 0; i < 4; i++)
        assert_ok(eg_tensor_write(eg_darts_mutator_alpha(mutator, keys[i]), alphas[i], 4));
    limit l = {.n = 1};
    assert_ok(eg_mutator_add_constraint(mutator, "some", has_n_last, &l));
    eg_arch *arch = eg_mutator_export(mutator),
            *strongest = parse_arch("{\"k0\": \"a\", \"k1\": \"a\", \"k2\": \"a\", \"k3\": \"c\"}");
    assert_true(eg_arch_equal(arch, strongest));
    assert_int_equal(l.calls, 1);
    eg_arch_free(arch);
    l.n = 2; /* the cheapest change */
    arch = eg_mutator_export(mutator);
    assert_made(arch);
    assert_ok(eg_arch_set(strongest, "k1", "\"c\""));
    assert_true(eg_arch_equal(arch, strongest));
    assert_int_equal(l.calls, 1002);
    eg_arch_free(arch);
    eg_arch_free(strongest);
    l.n = 5;
    assert_refused(eg_mutator_export(mutator), EG_EINVAL,
                   "none of 1000 draws satisfied the constraints: 'some' failed");
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- with what the network takes ---- */

typedef struct budget {
    int64_t parameters;
    eg_shape input;
} budget;

static eg_status fits(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    const budget *b = payload;
    eg_network_cost cost;
    EG_TRY(eg_mutator_cost_of(mutator, decisions, &b->input, 1, &cost));
    eg_free(cost.path);
    *holds = cost.parameters <= b->parameters;
    return EG_OK;
}

static void a_budget(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = make_everything(ctx);
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    budget b = {.parameters = 600, .input = EG_SHAPE(1, 3, 8, 8)};
    assert_ok(eg_mutator_add_constraint(mutator, "small", fits, &b));
    for (int i = 0; i < 20; i++) {
        assert_ok(eg_mutator_reset(mutator));
        eg_arch *arch = eg_mutator_export_decisions(mutator, mutator->current);
        eg_module *fixed = eg_module_clone(net);
        assert_ok(eg_apply_arch(fixed, arch));
        assert_true(eg_module_n_parameters(fixed) <= 600);
        eg_module_release(fixed);
        eg_arch_free(arch);
    }
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(samples_satisfy_them, setup, teardown),
        cmocka_unit_test_setup_teardown(what_nothing_satisfies, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failure_ends_the_sampling, setup, teardown),
        cmocka_unit_test_setup_teardown(a_constraint_that_holds_draws_no_more, setup, teardown),
        cmocka_unit_test_setup_teardown(evolution_stays_inside, setup, teardown),
        cmocka_unit_test_setup_teardown(evolution_ends_when_nothing_more_is_allowed, setup, teardown),
        cmocka_unit_test_setup_teardown(darts_takes_the_most_probable, setup, teardown),
        cmocka_unit_test_setup_teardown(a_budget, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
