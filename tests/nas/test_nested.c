/*
 * Choices inside candidates of others: what counts, what is written and read, what an architecture makes of them.
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

/* outer: a = 2 * inner (1, 10, 100), b = 1000, c = deep: another choice, of inner 2 and a constant. */
static eg_module *make_net(eg_context *ctx)
{
    eg_module *inner = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "inner");
    eg_module *lower = eg_layer_choice(ctx, GAINS_012(ctx), .key = "lower");
    eg_module *deep = eg_layer_choice(ctx, EG_CHOICES({"x", lower}, {"y", make_gain(ctx, 7)}), .key = "deep");
    eg_module *outer = eg_layer_choice(ctx,
                                       EG_CHOICES({"a", eg_sequential(ctx, EG_MODULES(make_gain(ctx, 2), inner))},
                                                  {"b", make_gain(ctx, 1000)}, {"c", deep}),
                                       .key = "outer");
    return eg_sequential(ctx, EG_MODULES(outer, make_gain(ctx, 3)));
}

static eg_mutator *attach(eg_module *net)
{
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    return mutator;
}

/* ---- the tree ---- */

static void choices_are_children_of_choices(void **state)
{
    eg_module *net = make_net(*state);
    eg_mutator *mutator = attach(net);
    assert_int_equal(mutator->n_mutables, 4);
    assert_int_equal(mutator->tree->n_children, 1);
    const eg_mutable_node *outer = mutator->tree->children[0];
    assert_string_equal(eg_mutable_key(outer->module), "outer");
    assert_int_equal(outer->n_children, 2);
    assert_string_equal(eg_mutable_key(outer->children[0]->module), "inner");
    assert_string_equal(eg_mutable_key(outer->children[1]->module), "deep");
    assert_string_equal(eg_mutable_name(outer->children[1]->children[0]->module), "0.c.x");
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- samples ---- */

static bool has(const eg_arch *arch, const char *key)
{
    for (size_t i = 0; i < eg_arch_size(arch); i++) {
        if (strcmp(eg_arch_key(arch, i), key) == 0)
            return true;
    }
    return false;
}

static void only_what_counts_is_decided(void **state)
{
    eg_module *net = make_net(*state);
    eg_mutator *mutator = attach(net);
    size_t seen[4] = {0};
    for (int i = 0; i < 200; i++) {
        assert_ok(eg_mutator_reset(mutator));
        const eg_decision *outer = eg_decisions_get(mutator->current, "outer");
        const eg_decision *deep = eg_decisions_get(mutator->current, "deep");
        assert_non_null(outer);
        bool lower = deep && deep->weights[0] != 0;
        assert_int_equal(eg_decisions_get(mutator->current, "inner") != NULL, outer->weights[0] != 0);
        assert_int_equal(deep != NULL, outer->weights[2] != 0);
        assert_int_equal(eg_decisions_get(mutator->current, "lower") != NULL, lower);
        eg_arch *arch = eg_mutator_export_decisions(mutator, mutator->current);
        assert_made(arch);
        assert_true(has(arch, "inner") == (outer->weights[0] != 0) && has(arch, "lower") == lower);
        seen[outer->weights[0] != 0 ? 0 : outer->weights[1] != 0 ? 1 : lower ? 2 : 3]++;
        double expected = run_on_one(net);
        assert_true(expected > 0);
        assert_ok(eg_mutator_set_arch(mutator, arch));
        assert_close(run_on_one(net), expected, 0);
        eg_arch_free(arch);
    }
    for (int i = 0; i < 4; i++)
        assert_true(seen[i] > 10);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- architectures ---- */

typedef struct arch_case {
    const char *text;
    double value; /* 0: refused */
    const char *error;
    double loose; /* the same with not_strict */
} arch_case;

static const arch_case arch_cases[] = {
    {"{\"outer\": \"a\", \"inner\": \"b\"}", 60, NULL, 60},
    {"{\"outer\": \"b\"}", 3000, NULL, 3000},
    {"{\"outer\": \"c\", \"deep\": \"y\"}", 21, NULL, 21},
    {"{\"outer\": \"c\", \"deep\": \"x\", \"lower\": 2}", 300, NULL, 300},
    {"{\"outer\": [\"a\", \"b\"], \"inner\": \"a\"}", 3006, NULL, 3006},
    {"{\"outer\": []}", -1, NULL, -1},
    {"{\"outer\": \"a\"}", 0, "missing keys in the architecture: 'inner'", 0},
    {"{\"outer\": \"c\", \"deep\": \"x\"}", 0, "missing keys in the architecture: 'lower'", 0},
    {"{\"outer\": \"b\", \"inner\": \"b\"}", 0, "'inner' lies in candidate 'a' of 'outer', which is not chosen", 3000},
    {"{\"outer\": \"b\", \"lower\": 9}", 0, "'lower' lies in candidate 'x' of 'deep', which is not chosen", 3000},
    {"{\"outer\": \"b\", \"other\": 1}", 0, "unexpected keys in the architecture: 'other'", 3000},
    {"{\"outer\": \"a\", \"inner\": \"zz\"}", 0, "'inner' is \"zz\", expected 'a', 'b' or 'c'", 0},
};

static void check_applied(eg_context *ctx, const arch_case *c, bool loose)
{
    eg_module *net = make_net(ctx);
    eg_arch *arch = parse_arch(c->text);
    char *before = eg_module_text(net);
    eg_fixed_options options = {.struct_size = sizeof options, .not_strict = loose};
    eg_status status = eg_fixed_architecture(net, arch, &options);
    double value = loose ? c->loose : c->value;
    if (value == 0) {
        assert_int_equal(status, EG_EINVAL);
        assert_recorded(EG_EINVAL, c->error);
        char *after = eg_module_text(net);
        assert_string_equal(before, after);
        eg_free(after);
    } else {
        assert_ok(status);
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        if (value > 0)
            assert_close(run_on_one(net), value, 0);
        eg_tape_end(tape);
        eg_mutator *mutator = attach(net); /* nothing is open but what stays */
        assert_true(mutator->n_mutables <= 1);
        eg_mutator_detach(mutator);
    }
    eg_free(before);
    eg_arch_free(arch);
    eg_module_release(net);
}

static void architectures_are_read(void **state)
{
    for (size_t i = 0; i < sizeof arch_cases / sizeof *arch_cases; i++) {
        check_applied(*state, &arch_cases[i], false);
        check_applied(*state, &arch_cases[i], true);
    }
}

static void what_is_dropped_stays_as_it_was(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = make_net(ctx), *a = eg_module_retain(eg_module_find(net, "0.a"));
    eg_arch *arch = parse_arch("{\"outer\": \"c\", \"deep\": \"x\", \"lower\": 1}");
    assert_ok(eg_apply_arch(net, arch));
    assert_int_equal(eg_module_n_parameters(net), 2);
    assert_close(run_on_one(net), 30, 0);
    assert_int_equal(a->refs, 1);
    assert_int_equal(eg_layer_choice_size(eg_module_find(a, "1")), 3);
    assert_non_null(eg_layer_choice_at(eg_module_find(a, "1"), 0));
    eg_module_release(a);
    eg_arch_free(arch);
    eg_module_release(net);
}

static void the_root_gives_way_to_the_innermost(void **state)
{
    eg_context *ctx = *state;
    eg_module *inner = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "inner");
    eg_module *root = eg_layer_choice(ctx, EG_CHOICES({"p", inner}, {"q", make_gain(ctx, 5)}), .key = "root");
    eg_arch *arch = parse_arch("{\"root\": \"p\", \"inner\": \"c\"}");
    assert_ok(
        eg_fixed_architecture(root, arch, &(eg_fixed_options){.struct_size = sizeof(eg_fixed_options), .root = &root}));
    assert_true(root->cls == &gain_class);
    assert_close(run_on_one(root), 100, 0);
    eg_arch_free(arch);
    eg_module_release(root);
}

/* A key that is decided elsewhere does not reach into what was not chosen. */
static void a_key_counts_where_its_choice_runs(void **state)
{
    eg_context *ctx = *state;
    eg_module *lost = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k");
    eg_module *kept = eg_module_retain(lost);
    eg_module *net = eg_sequential(
        ctx, EG_MODULES(eg_layer_choice(ctx, EG_CHOICES({"in", lost}, {"out", make_gain(ctx, 2)}), .key = "outer"),
                        eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k")));
    eg_arch *arch = parse_arch("{\"outer\": \"out\", \"k\": \"b\"}");
    assert_ok(eg_apply_arch(net, arch));
    assert_close(run_on_one(net), 20, 0);
    assert_null(((eg_layer_choice *)kept)->fixed);
    assert_int_equal(eg_layer_choice_size(kept), 3);
    eg_module_release(kept);
    eg_arch_free(arch);
    eg_module_release(net);
}

/* ---- shared modules, and the text of the space ---- */

static eg_module *make_shared(eg_context *ctx)
{
    eg_module *inner = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "inner");
    eg_module *first = eg_layer_choice(ctx, EG_CHOICES({"p", inner}, {"q", make_gain(ctx, 2)}), .key = "first");
    eg_module *second = eg_layer_choice(
        ctx, EG_CHOICES({"r", make_gain(ctx, 3)}, {"s", eg_module_retain(inner)}, {"t", eg_module_retain(inner)}),
        .key = "second");
    return eg_sequential(ctx, EG_MODULES(first, second));
}

static void a_shared_choice_counts_in_either_place(void **state)
{
    eg_module *net = make_shared(*state);
    eg_mutator *mutator = attach(net);
    static const char *const good[] = {"{\"first\": \"p\", \"second\": \"r\", \"inner\": 1}",
                                       "{\"first\": \"q\", \"second\": \"t\", \"inner\": 1}",
                                       "{\"first\": \"q\", \"second\": \"r\"}"};
    static const double expected[] = {30, 20, 6};
    for (int i = 0; i < 3; i++) {
        eg_arch *arch = parse_arch(good[i]);
        assert_ok(eg_mutator_set_arch(mutator, arch));
        assert_close(run_on_one(net), expected[i], 0);
        eg_arch_free(arch);
    }
    eg_arch *arch = parse_arch("{\"first\": \"q\", \"second\": \"r\", \"inner\": 0}");
    assert_fails(eg_mutator_set_arch(mutator, arch), EG_EINVAL, "'inner' lies in candidate 'p' of 'first'");
    eg_arch_free(arch);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static char *without_space(char *text)
{
    char *to = text;
    for (const char *c = text; *c; c++) {
        if (*c != ' ' && *c != '\n')
            *to++ = *c;
    }
    *to = '\0';
    return text;
}

static void the_space_says_when(void **state)
{
    eg_module *net = make_net(*state);
    char *text = without_space(eg_search_space_text(net));
    assert_non_null(strstr(text, "\"inner\":{\"_type\":\"layer_choice\",\"_value\":[\"a\",\"b\",\"c\"],"
                                 "\"_when\":{\"is\":[\"a\"],\"key\":\"outer\"}}"));
    assert_non_null(strstr(text, "\"_when\":{\"is\":[\"x\"],\"key\":\"deep\"}"));
    assert_non_null(strstr(text, "\"outer\":{\"_type\":\"layer_choice\",\"_value\":[\"a\",\"b\",\"c\"]}"));
    eg_free(text);
    eg_module_release(net);
    net = make_shared(*state);
    text = without_space(eg_search_space_text(net));
    assert_non_null(
        strstr(text, "\"_when\":[{\"is\":[\"p\"],\"key\":\"first\"},{\"is\":[\"s\",\"t\"],\"key\":\"second\"}]"));
    eg_free(text);
    eg_module_release(net);
}

/* ---- DARTS ---- */

static void set_alpha(eg_mutator *mutator, const char *key, const float *values)
{
    eg_tensor *alpha = eg_darts_mutator_alpha(mutator, key);
    assert_made(alpha);
    assert_ok(eg_tensor_write(alpha, values, (size_t)eg_tensor_numel(alpha)));
}

static void darts_drops_what_lies_in_the_weaker(void **state)
{
    eg_module *net = make_net(*state);
    eg_mutator *mutator = eg_darts_mutator_new(net);
    assert_made(mutator);
    set_alpha(mutator, "outer", (const float[]){1, 0, 0, 0});
    set_alpha(mutator, "inner", (const float[]){0, 0, 3, 0});
    eg_arch *arch = eg_mutator_export(mutator), *expected = parse_arch("{\"outer\": \"a\", \"inner\": \"c\"}");
    assert_made(arch);
    assert_true(eg_arch_equal(arch, expected));
    eg_arch_free(arch);
    eg_arch_free(expected);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* The gradients of all alphas after one step, 15 numbers. */
static void darts_gradients(eg_context *ctx, eg_mutator *mutator, bool recompute, float *out)
{
    static const char *const keys[] = {"outer", "inner", "deep", "lower"};
    eg_mutator_set_recompute(mutator, recompute);
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    assert_ok(eg_mutator_reset(mutator));
    eg_tensor *y = eg_call(mutator->model, eg_ones(ctx, EG_SHAPE(1)));
    assert_made(y);
    assert_ok(eg_backward(eg_sum(y)));
    for (int i = 0; i < 4; i++) {
        eg_tensor *alpha = eg_darts_mutator_alpha(mutator, keys[i]), *grad = eg_tensor_grad(alpha);
        size_t n = (size_t)eg_tensor_numel(alpha);
        assert_non_null(grad);
        assert_ok(eg_tensor_read(grad, out, n));
        out += n;
        eg_tensor_zero_grad(alpha);
    }
    eg_tape_end(tape);
}

static void darts_learns_of_both(void **state)
{
    eg_module *net = make_net(*state);
    eg_mutator *mutator = eg_darts_mutator_new(net);
    assert_made(mutator);
    float plain[15], again[15];
    darts_gradients(*state, mutator, false, plain);
    darts_gradients(*state, mutator, true, again);
    assert_memory_equal(plain, again, sizeof plain);
    assert_true(plain[1] > 0);                 /* 1000 is above the mean */
    assert_true(plain[6] > 0 && plain[4] < 0); /* of inner's 1, 10, 100 */
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- evolution ---- */

typedef struct judge {
    eg_strategy *strategy;
    size_t n;
} judge;

static eg_status count(void *payload, double *accuracy)
{
    judge *j = payload;
    eg_arch *arch = eg_mutator_export_decisions(j->strategy->mutator, j->strategy->mutator->current);
    assert_made(arch);
    *accuracy = has(arch, "lower") ? 1 : 0;
    eg_arch_free(arch);
    j->n++;
    return EG_OK;
}

/* outer a: 3, b: 1, c: 3 + 1. */
static void evolution_sees_each_meaning_once(void **state)
{
    eg_module *net = make_net(*state);
    eg_optimizer *optimizer = eg_sgd(net, .lr = 0.1);
    judge j = {0};
    eg_strategy_host host = {.payload = &j, .evaluate = count};
    eg_strategy_options options = {.struct_size = sizeof options, .evaluations = 50, .population = 4};
    j.strategy = eg_strategy_new(eg_strategy_find("spos"), net, optimizer, &host, &options);
    assert_made(j.strategy);
    eg_arch *arch = j.strategy->cls->choose(j.strategy);
    assert_made(arch);
    assert_int_equal(j.n, 8);
    assert_true(has(arch, "lower"));
    eg_arch_free(arch);
    eg_strategy_free(j.strategy);
    eg_optimizer_free(optimizer);
    eg_module_release(net);
}

/* ---- checkpoints ---- */

static void decisions_survive_a_checkpoint(void **state)
{
    eg_module *net = make_net(*state);
    eg_mutator *mutator = attach(net);
    eg_arch *arch = parse_arch("{\"outer\": \"c\", \"deep\": \"x\", \"lower\": 1}");
    assert_ok(eg_mutator_set_arch(mutator, arch));
    eg_state *saved = eg_state_new();
    assert_ok(eg_mutator_state(mutator, "m.", saved));
    assert_int_equal(eg_state_size(saved), 3);
    eg_arch *other = parse_arch("{\"outer\": \"b\"}");
    assert_ok(eg_mutator_set_arch(mutator, other));
    assert_ok(eg_mutator_load_state(mutator, "m.", saved));
    eg_arch_free(other);
    other = eg_mutator_export_decisions(mutator, mutator->current);
    assert_true(eg_arch_equal(arch, other));
    eg_arch_free(arch);
    eg_arch_free(other);
    eg_state_free(saved);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(choices_are_children_of_choices, setup, teardown),
        cmocka_unit_test_setup_teardown(only_what_counts_is_decided, setup, teardown),
        cmocka_unit_test_setup_teardown(architectures_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_dropped_stays_as_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(the_root_gives_way_to_the_innermost, setup, teardown),
        cmocka_unit_test_setup_teardown(a_key_counts_where_its_choice_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(a_shared_choice_counts_in_either_place, setup, teardown),
        cmocka_unit_test_setup_teardown(the_space_says_when, setup, teardown),
        cmocka_unit_test_setup_teardown(darts_drops_what_lies_in_the_weaker, setup, teardown),
        cmocka_unit_test_setup_teardown(darts_learns_of_both, setup, teardown),
        cmocka_unit_test_setup_teardown(evolution_sees_each_meaning_once, setup, teardown),
        cmocka_unit_test_setup_teardown(decisions_survive_a_checkpoint, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
