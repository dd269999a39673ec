/*
 * Decisions that nobody draws (every candidate, the first, those of a trial), and candidates that were emptied.
 */
#include "nas/toy.h"

#include <jansson.h>

static int setup(void **state)
{
    *state = eg_context_new(.seed = 8, .threads = 1);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

/* A width of 16, 24 or 8, and a choice inside another's second candidate. */
static eg_module *make_net(eg_context *ctx)
{
    int64_t width = eg_value_choice(ctx, EG_VALUES(16, 24, 8), .key = "w");
    eg_module *inner = eg_sequential(ctx, EG_MODULES(eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "inner")));
    return eg_sequential(
        ctx, EG_MODULES(eg_linear(ctx, 1, width), eg_linear(ctx, width, 1),
                        eg_layer_choice(ctx, EG_CHOICES({"none", eg_identity(ctx)}, {"some", inner}), .key = "outer")));
}

static void check_arch(eg_mutator *mutator, const char *expected)
{
    eg_arch *arch = eg_mutator_export(mutator), *wanted = parse_arch(expected);
    assert_made(arch);
    assert_true(eg_arch_equal(arch, wanted));
    eg_arch_free(arch);
    eg_arch_free(wanted);
}

/* ---- classic mode ---- */

static void the_first_of_what_counts(void **state)
{
    eg_module *net = make_net(*state);
    eg_mutator *mutator = eg_classic_mutator_new(net);
    assert_made(mutator);
    assert_null(eg_decisions_get(mutator->current, "inner"));
    check_arch(mutator, "{\"w\": 16, \"outer\": \"none\"}");
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

#define TRIAL(w, outer, more) "{\"parameter_id\": 1, \"parameters\": {\"w\": {" w "}, \"outer\": {" outer "}" more "}}"
#define NONE "\"_value\": \"none\", \"_idx\": 0"
#define SOME "\"_value\": \"some\", \"_idx\": 1"
#define INNER ", \"inner\": {\"_value\": \"c\", \"_idx\": 2}"

static void values_of_a_trial(void **state)
{
    eg_module *net = make_net(*state);
    eg_mutator *mutator = eg_classic_mutator_new(net);
    assert_made(mutator);
    assert_ok(eg_classic_mutator_set(mutator, TRIAL("\"_value\": 24, \"_idx\": 1", SOME, INNER)));
    check_arch(mutator, "{\"w\": 24, \"outer\": \"some\", \"inner\": \"c\"}");
    assert_ok(eg_classic_mutator_set(mutator, TRIAL("\"_value\": 8.0, \"_idx\": 2", NONE, "")));
    check_arch(mutator, "{\"w\": 8, \"outer\": \"none\"}");
    static const struct {
        const char *text, *error;
    } bad[] = {
        {TRIAL("\"_value\": 16, \"_idx\": 1", NONE, ""), "'w' has _value 16 at _idx 1, where its candidate is 24"},
        {TRIAL("\"_value\": \"24\", \"_idx\": 1", NONE, ""), "'w' has _value \"24\" at _idx 1"},
        {TRIAL("\"_value\": 16, \"_idx\": 3", NONE, ""), "an _idx of 'w' is not among 0 to 2"},
        {TRIAL("\"_value\": [16], \"_idx\": [0]", NONE, ""), "'w' is a list, expected one candidate"},
        /* as in architectures */
        {TRIAL("\"_value\": 16, \"_idx\": 0", NONE, INNER),
         "'inner' lies in candidate 'some' of 'outer', which is not"},
        {TRIAL("\"_value\": 16, \"_idx\": 0", SOME, ""), "missing keys in the architecture: 'inner'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(eg_classic_mutator_set(mutator, bad[i].text), EG_EINVAL, bad[i].error);
    check_arch(mutator, "{\"w\": 8, \"outer\": \"none\"}");
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- everything ---- */

static void all_candidates_and_the_largest_value(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_sequential(ctx, EG_MODULES(make_net(ctx), eg_new(pick, ctx, false)));
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    assert_ok(eg_mutator_choose_all(mutator));
    char *text = eg_mutator_status(mutator);
    json_t *json = json_loads(text, 0, NULL), *expected = json_loads("{\"w\": [false, true, false], "
                                                                     "\"outer\": [true, true], "
                                                                     "\"inner\": [true, true, true], "
                                                                     "\"left\": [true, true, true], "
                                                                     "\"right\": [true, true, true], "
                                                                     "\"merge\": [true, true, true]}",
                                                                     0, NULL);
    assert_true(json_equal(json, expected));
    json_decref(json), json_decref(expected), eg_free(text);
    assert_fails(eg_mutator_choose_all(NULL), EG_EINVAL, "no mutator");
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static bool has_node(const eg_graph *graph, const char *name)
{
    char *text = eg_graph_text(graph), quoted[200];
    assert_made(text);
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    bool found = strstr(text, quoted) != NULL;
    eg_free(text);
    return found;
}

/* Before anything is decided, and whatever is. */
static void the_graph_is_that_of_the_largest(void **state)
{
    eg_module *net = make_net(*state);
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    eg_graph *graph = eg_mutator_graph(mutator, &EG_SHAPE(2, 1), 1);
    assert_made(graph);
    char *text = eg_graph_text(graph);
    assert_non_null(strstr(text, "\"size\": \"24\""));
    eg_free(text);
    assert_true(has_node(graph, "Sequential/LayerChoice[2]/Sequential[some]/LayerChoice[0]/gain[c]/mul"));
    eg_graph_free(graph);
    assert_null(eg_decisions_get(mutator->current, "w"));
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static eg_module *elsewhere; /* held by the test */

typedef struct caller {
    eg_module base;
} caller;

static eg_tensor *caller_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)self, (void)n_in;
    return eg_call(elsewhere, in[0]);
}

static EG_CLASS(caller, .forward = caller_forward);

static void modules_that_nobody_holds(void **state)
{
    eg_context *ctx = *state;
    elsewhere = eg_sequential(ctx, EG_MODULES(make_gain(ctx, 2)));
    eg_module *net =
        eg_sequential(ctx, EG_MODULES(eg_new(caller, ctx), eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k")));
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    eg_error_clear();
    eg_graph *graph = eg_mutator_graph(mutator, &EG_SHAPE(2, 1), 1);
    assert_made(graph);
    assert_int_equal(eg_error_first()->code, EG_OK);
    assert_true(has_node(graph, "Sequential/caller[0]/Sequential/0/mul"));
    eg_graph_free(graph);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    eg_module_release(elsewhere);
}

/* In the place of the second candidate, which had a choice inside: that leads nowhere, or to another module. */
static void mutables_that_were_replaced(void **state)
{
    eg_context *ctx = *state;
    for (int same_names = 0; same_names < 2; same_names++) {
        eg_module *net = make_net(ctx);
        eg_mutator *mutator = eg_random_mutator_new(net);
        assert_made(mutator);
        eg_module *fresh = same_names ? eg_sequential(ctx, EG_MODULES(make_gain(ctx, 3))) : make_gain(ctx, 3);
        assert_ok(eg_layer_choice_set(eg_module_find(net, "2"), 1, fresh));
        eg_graph *graph = eg_mutator_graph(mutator, &EG_SHAPE(2, 1), 1);
        assert_made(graph);
        char *text = eg_graph_text(graph);
        json_t *json = json_loads(text, 0, NULL);
        assert_null(json_object_get(json_object_get(json, "mutable"), "inner"));
        assert_int_equal(json_array_size(json_object_get(json_object_get(json, "mutable"), "outer")), 1);
        json_decref(json), eg_free(text);
        eg_graph_free(graph);
        eg_mutator_detach(mutator);
        eg_module_release(net);
    }
}

/* ---- emptied candidates ---- */

static eg_module *make_emptied(eg_context *ctx, int reduction)
{
    eg_module *net = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k", .reduction = reduction);
    assert_ok(eg_module_empty_child(net, "a"));
    return net;
}

static void samplers_draw_what_is_there(void **state)
{
    eg_module *net = make_emptied(*state, EG_CHOICE_SUM);
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    int drawn[2] = {0};
    for (int i = 0; i < 40; i++) {
        assert_ok(eg_mutator_reset(mutator));
        double y = run_on_one(net);
        assert_true(y == 10 || y == 100);
        drawn[y == 100]++;
    }
    assert_true(drawn[0] > 0 && drawn[1] > 0);
    assert_ok(eg_mutator_choose_all(mutator));
    assert_close(run_on_one(net), 110, 0);
    eg_mutator_detach(mutator);
    mutator = eg_classic_mutator_new(net);
    assert_close(run_on_one(net), 10, 0);
    eg_mutator_detach(mutator);
    mutator = eg_random_mutator_new(net);
    assert_ok(eg_module_empty_child(net, "b"));
    assert_ok(eg_module_empty_child(net, "c"));
    assert_fails(eg_mutator_reset(mutator), EG_EINVAL, "'k' has no candidates left: all were emptied");
    assert_fails(eg_mutator_choose_all(mutator), EG_EINVAL, "'k' has no candidates left");
    eg_mutator_detach(mutator);
    assert_refused(eg_classic_mutator_new(net), EG_EINVAL, "'k' has no candidates left");
    mutator = eg_darts_mutator_new(net);
    assert_refused(eg_mutator_export(mutator), EG_EINVAL, "'k' has no candidates left");
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void darts_goes_without(void **state)
{
    eg_context *ctx = *state;
    static const int reductions[] = {EG_CHOICE_SUM, EG_CHOICE_MEAN};
    for (int i = 0; i < 2; i++) {
        eg_module *net = make_emptied(ctx, reductions[i]);
        eg_mutator *mutator = eg_darts_mutator_new(net);
        assert_made(mutator);
        assert_ok(eg_tensor_write(eg_darts_mutator_alpha(mutator, "k"), (float[]){9, 0, 0, 9}, 4));
        assert_ok(eg_mutator_reset(mutator));
        double weight = 1 / (2 + 2 * exp(9.0)); /* the weights are learned for all that there were */
        assert_close(run_on_one(net), 110 * weight / (i + 1), 1e-5);
        check_arch(mutator, "{\"k\": \"b\"}");
        eg_mutator_detach(mutator);
        eg_module_release(net);
    }
}

static eg_status is_last(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    (void)payload, (void)mutator;
    const eg_decision *k = eg_decisions_get(decisions, "k");
    assert_true(k->weights[0] == 0);
    *holds = k->weights[2] != 0;
    return EG_OK;
}

/* Also where it draws. */
static void darts_draws_what_is_there(void **state)
{
    eg_module *net = make_emptied(*state, EG_CHOICE_SUM);
    eg_mutator *mutator = eg_darts_mutator_new(net);
    assert_ok(eg_tensor_write(eg_darts_mutator_alpha(mutator, "k"), (float[]){9, 2, 0, 3}, 4));
    assert_ok(eg_mutator_add_constraint(mutator, "last", is_last, NULL));
    check_arch(mutator, "{\"k\": \"c\"}");
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void spaces_with_emptied_candidates(void **state)
{
    static const char text[] =
        "{\"format\": \"engraft-space/1\", \"input\": [4], \"classes\": 3, \"model\": {\"class\": \"LayerChoice\", "
        "\"reduction\": \"%s\", \"key\": \"op\", \"named\": {\"none\": null, \"some\": {\"class\": \"Linear\", "
        "\"in_features\": 4, \"out_features\": 3}}}}";
    static const char *const reductions[] = {"sum", "concat"};
    for (int i = 0; i < 2; i++) {
        char file[400];
        snprintf(file, sizeof file, text, reductions[i]);
        eg_module *net = eg_space_from_json(*state, file, NULL);
        assert_made(net);
        assert_int_equal(eg_layer_choice_size(net), 2);
        assert_null(eg_layer_choice_at(net, 0));
        eg_module_release(net);
    }
}

/* ---- architectures ---- */

static void keys_of_an_architecture(void **state)
{
    (void)state;
    eg_arch *arch = parse_arch("{\"a\": null, \"b\": 1}");
    eg_error_clear();
    assert_true(eg_arch_has(arch, "a"));
    assert_true(eg_arch_has(arch, "b"));
    assert_false(eg_arch_has(arch, "c"));
    assert_false(eg_arch_has(arch, NULL));
    assert_false(eg_arch_has(NULL, "a"));
    assert_int_equal(eg_error_first()->code, EG_OK);
    eg_arch_free(arch);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_first_of_what_counts),
        TEST(values_of_a_trial),
        TEST(all_candidates_and_the_largest_value),
        TEST(the_graph_is_that_of_the_largest),
        TEST(modules_that_nobody_holds),
        TEST(mutables_that_were_replaced),
        TEST(samplers_draw_what_is_there),
        TEST(darts_goes_without),
        TEST(darts_draws_what_is_there),
        TEST(spaces_with_emptied_candidates),
        TEST(keys_of_an_architecture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
