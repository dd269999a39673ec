/*
 * Mutators: the tree, what a forward pass does under a decision, scopes, exports.
 */
#include "nas/toy.h"

static int setup(void **state)
{
    *state = eg_context_new(.seed = 1, .threads = 2);
    return *state == NULL;
}

static int teardown(void **state)
{
    eg_context_free(*state);
    return 0;
}

static eg_mutator *attach(eg_module *model)
{
    return eg_mutator_attach(&eg_mutator_base_class, 0, NULL, model);
}

/* ---- the tree ---- */

static eg_status append_key(void *payload, eg_module *m)
{
    char *text = payload;
    size_t n = strlen(text);
    snprintf(text + n, 400 - n, "%s%s", n > 0 ? "," : "", eg_mutable_key(m));
    return EG_OK;
}

static void assert_order(const eg_mutator *mutator, eg_traverse_order order, bool deduplicate, const char *expected)
{
    char text[400] = "";
    assert_ok(eg_mutable_node_traverse(mutator->tree, order, deduplicate, NULL, append_key, text));
    assert_string_equal(text, expected);
}

static eg_module *make_choice(eg_context *ctx, const char *key)
{
    return eg_layer_choice(ctx, GAINS_ABC(ctx), .key = key);
}

static eg_module *make_outer(eg_context *ctx)
{
    eg_module *inner[2] = {eg_new(part, ctx, "o1_c1", EG_MODULES(make_choice(ctx, "o1op"))),
                           eg_new(part, ctx, "o1_c2", EG_MODULES(make_choice(ctx, "o12op")))};
    return eg_new(part, ctx, "o1", EG_MODULES(inner[0], inner[1]));
}

static void traversal_orders(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_sequential(ctx, EG_MODULES(make_outer(ctx), make_outer(ctx), make_choice(ctx, "tail")));
    eg_mutator *mutator = attach(net);
    assert_made(mutator);
    assert_order(mutator, EG_PRE_ORDER, true, "o1,o1_c1,o1op,o1_c2,o12op,tail");
    assert_order(mutator, EG_POST_ORDER, true, "o1op,o1_c1,o12op,o1_c2,o1,tail");
    assert_order(mutator, EG_PRE_ORDER, false, "o1,o1_c1,o1op,o1_c2,o12op,o1,o1_c1,o1op,o1_c2,o12op,tail");
    assert_int_equal(mutator->tree->n_children, 3);
    assert_null(mutator->tree->module);
    assert_string_equal(eg_mutable_key(mutator->tree->children[1]->module), "o1");
    assert_int_equal(mutator->n_mutables, 6);
    assert_string_equal(eg_mutable_name(mutator->mutables[2]), "0.0.0");
    assert_ptr_equal(eg_mutable_mutator(mutator->mutables[2]), mutator);
    assert_fails(eg_mutable_node_traverse(mutator->tree, (eg_traverse_order)7, true, NULL, append_key, NULL), EG_EINVAL,
                 "order is 7");
    eg_module_release(net);
    eg_mutator_detach(mutator);
}

static void a_shared_module_is_one_node(void **state)
{
    eg_context *ctx = *state;
    eg_module *shared = make_choice(ctx, "k");
    eg_module *net = eg_sequential(ctx, EG_MODULES(shared, eg_module_retain(shared)));
    eg_mutator *mutator = attach(net);
    assert_int_equal(mutator->tree->n_children, 1);
    assert_string_equal(eg_mutable_name(shared), "0");
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void attaching_is_refused(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(pick, ctx, false);
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    assert_refused(eg_darts_mutator_new(net), EG_EINVAL,
                   "has a RandomMutator already: detach it before attaching a DartsMutator");
    assert_ptr_equal(eg_mutable_mutator(net), mutator);
    eg_mutator_detach(mutator);
    assert_null(eg_mutable_mutator(net));
    mutator = eg_darts_mutator_new(net);
    assert_made(mutator);
    eg_module *around = eg_sequential(ctx, EG_MODULES(eg_module_retain(net)));
    assert_refused(attach(around), EG_EINVAL, "has a DartsMutator already at 0.left");
    eg_module_release(around);
    eg_mutator_detach(mutator);
    eg_module_release(net);

    net = eg_input_choice(ctx, eg_value_choice(ctx, EG_VALUES(1, 2)), .key = "outer");
    assert_refused(attach(net), EG_EINVAL, "the InputChoice 'outer' has an open field");
    assert_null(net->extension);
    eg_module_release(net);
}

static void sources_must_come_before(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_sequential(
        ctx, EG_MODULES(eg_input_choice(ctx, .choose_from = EG_KEYS("later"), .key = "ic"), make_choice(ctx, "later")));
    assert_refused(attach(net), EG_EINVAL, "'ic' chooses from 'later'");
    eg_module_release(net);
    /* its own key counts as one that has appeared, and so does that of the scope around it */
    net = eg_new(part, ctx, "s", EG_MODULES(eg_input_choice(ctx, .choose_from = EG_KEYS("ic", "s"), .key = "ic")));
    eg_mutator *mutator = attach(net);
    assert_made(mutator);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void one_key_has_one_size(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_sequential(
        ctx, EG_MODULES(make_choice(ctx, "k"), eg_layer_choice(ctx, EG_MODULES(make_gain(ctx, 1)), .key = "k")));
    assert_refused(attach(net), EG_EINVAL, "key 'k' has 3 candidates at '0' and 1 at '1'");
    eg_module_release(net);
    net = eg_sequential(ctx, EG_MODULES(make_choice(ctx, "k"), eg_input_choice(ctx, .n_candidates = 3, .key = "k")));
    assert_refused(attach(net), EG_EINVAL, "that of a LayerChoice at '0' and of a InputChoice at '1'");
    eg_module_release(net);
}

static void a_model_outlives_and_is_outlived(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(pick, ctx, false);
    eg_mutator *mutator = eg_random_mutator_new(net);
    eg_module *copy = eg_module_clone(net);
    assert_made(copy);
    assert_null(eg_mutable_mutator(copy));
    eg_mutator *other = eg_random_mutator_new(copy);
    assert_made(other);
    eg_module_release(net); /* the mutator holds it */
    assert_ok(eg_mutator_reset(mutator));
    assert_true(run_on_one(mutator->model) > 0);
    eg_mutator_detach(mutator);
    eg_mutator_detach(other);
    eg_module_release(copy);
    eg_mutator_detach(NULL);
}

/* ---- masks and reductions ---- */

typedef enum mask_kind { BOOLS, WEIGHTS, TENSOR } mask_kind;

static void decide(eg_mutator *mutator, mask_kind kind, const double *w, size_t n)
{
    const char *key = eg_mutable_key(mutator->mutables[0]);
    bool mask[3];
    float values[3];
    for (size_t i = 0; i < n; i++) {
        mask[i] = w[i] != 0;
        values[i] = (float)w[i];
    }
    if (kind == BOOLS)
        assert_ok(eg_decisions_set_mask(mutator->current, key, mask, n));
    else if (kind == WEIGHTS)
        assert_ok(eg_decisions_set_weights(mutator->current, key, w, n));
    else
        assert_ok(
            eg_decisions_set_tensor(mutator->current, key, eg_from_data(mutator->ctx, EG_SHAPE((int64_t)n), values)));
}

typedef struct reduction_case {
    mask_kind kind;
    double weights[3];
    int reduction;
    size_t n; /* numbers; 0 = eg_none */
    float expected[6];
} reduction_case;

/* x = (1, 1); candidates give 1, 10 and 100 times it. */
static const reduction_case reduction_cases[] = {
    {BOOLS, {1, 0, 1}, EG_CHOICE_SUM, 2, {101, 101}},
    {BOOLS, {1, 0, 1}, EG_CHOICE_MEAN, 2, {50.5F, 50.5F}},
    {BOOLS, {1, 0, 1}, EG_CHOICE_CONCAT, 4, {1, 1, 100, 100}},
    {BOOLS, {0, 1, 0}, EG_CHOICE_CONCAT, 2, {10, 10}},
    {BOOLS, {0, 0, 0}, EG_CHOICE_SUM, 0, {0}},
    {BOOLS, {0, 0, 0}, EG_CHOICE_MEAN, 0, {0}},
    {BOOLS, {0, 0, 0}, EG_CHOICE_CONCAT, 0, {0}},
    {WEIGHTS, {.5, 0, .25}, EG_CHOICE_SUM, 2, {25.5F, 25.5F}},
    {WEIGHTS, {.5, 0, .25}, EG_CHOICE_MEAN, 2, {12.75F, 12.75F}},
    {WEIGHTS, {.5, 0, .25}, EG_CHOICE_CONCAT, 4, {.5F, .5F, 25, 25}},
    {WEIGHTS, {0, 2, 0}, EG_CHOICE_MEAN, 2, {20, 20}},
    {TENSOR, {.5, 0, .25}, EG_CHOICE_SUM, 2, {25.5F, 25.5F}},
    {TENSOR, {.5, 0, .25}, EG_CHOICE_MEAN, 2, {8.5F, 8.5F}},
    {TENSOR, {.5, 0, .25}, EG_CHOICE_CONCAT, 6, {.5F, .5F, 0, 0, 25, 25}},
};

static void reductions(void **state)
{
    eg_context *ctx = *state;
    eg_tensor *x = eg_ones(ctx, EG_SHAPE(1, 2));
    for (size_t i = 0; i < sizeof reduction_cases / sizeof *reduction_cases; i++) {
        const reduction_case *c = &reduction_cases[i];
        eg_tensor *inputs[3] = {x, eg_affine(x, 10, 0), eg_affine(x, 100, 0)};
        eg_module *choices[2] = {eg_layer_choice(ctx, GAINS_ABC(ctx), .reduction = c->reduction),
                                 eg_input_choice(ctx, .n_candidates = 3, .reduction = c->reduction)};
        for (int k = 0; k < 2; k++) {
            eg_mutator *mutator = attach(choices[k]);
            assert_made(mutator);
            assert_string_equal(eg_mutable_name(choices[k]), "");
            decide(mutator, c->kind, c->weights, 3);
            eg_tensor *y = k == 0 ? eg_call(choices[k], x) : eg_module_call(choices[k], inputs, 3);
            assert_made(y);
            assert_int_equal(eg_is_none(y), c->n == 0);
            if (c->n > 0)
                assert_numbers(y, c->expected, c->n, 1e-5);
            eg_mutator_detach(mutator);
            eg_module_release(choices[k]);
        }
    }
}

static void no_reduction_gives_a_tuple(void **state)
{
    eg_context *ctx = *state;
    eg_module *m = eg_layer_choice(ctx, GAINS_ABC(ctx), .reduction = EG_CHOICE_NONE, .return_mask = false);
    eg_mutator *mutator = attach(m);
    eg_tensor *x = eg_ones(ctx, EG_SHAPE(1, 1));
    decide(mutator, BOOLS, (const double[]){1, 0, 1}, 3);
    eg_tensor *y = eg_call(m, x);
    assert_int_equal(eg_tuple_size(y), 2);
    assert_tensor(eg_tuple_get(y, 1), 0, 100);
    decide(mutator, BOOLS, (const double[]){0, 0, 0}, 3);
    y = eg_call(m, x);
    assert_made(y);
    assert_true(eg_tensor_is_tuple(y));
    assert_int_equal(eg_tuple_size(y), 0);
    eg_mutator_detach(mutator);
    eg_module_release(m);
}

static void masks_are_returned(void **state)
{
    eg_context *ctx = *state;
    eg_module *m = eg_layer_choice(ctx, GAINS_ABC(ctx), .return_mask = true);
    eg_mutator *mutator = attach(m);
    eg_tensor *x = eg_ones(ctx, EG_SHAPE(1, 1));
    static const mask_kind kinds[] = {BOOLS, WEIGHTS, TENSOR};
    for (size_t i = 0; i < 3; i++) {
        decide(mutator, kinds[i], (const double[]){0, 1, 0}, 3);
        eg_tensor *y = eg_call(m, x);
        assert_made(y);
        assert_tensor(eg_tuple_get(y, 0), 0, 10);
        assert_tensor(eg_tuple_get(y, 1), 0, 0, 1, 0);
    }
    decide(mutator, BOOLS, (const double[]){0, 0, 0}, 3);
    eg_tensor *y = eg_call(m, x);
    assert_made(y);
    assert_true(eg_is_none(eg_tuple_get(y, 0)));
    eg_mutator_detach(mutator);
    eg_module_release(m);
}

static void forward_is_refused(void **state)
{
    eg_context *ctx = *state;
    eg_module *m = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k");
    eg_mutator *mutator = attach(m);
    eg_tensor *x = eg_ones(ctx, EG_SHAPE(1, 1));
    assert_refused(eg_call(m, x), EG_EINVAL, "no decision for it");
    decide(mutator, BOOLS, (const double[]){1, 0}, 2);
    assert_refused(eg_call(m, x), EG_EINVAL, "the decision has 2 entries, expected 3");
    decide(mutator, BOOLS, (const double[]){1, 1, 0}, 3);
    assert_ok(eg_module_empty_child(m, "b"));
    assert_refused(eg_call(m, x), EG_EINVAL, "candidate 'b' is chosen, but was removed");
    assert_fails(eg_decisions_set_weights(mutator->current, "k", (const double[]){NAN}, 1), EG_EINVAL,
                 "not a finite number");
    eg_mutator_detach(mutator);
    eg_module_release(m);
    m = eg_input_choice(ctx, .n_candidates = 2, .key = "k");
    mutator = attach(m);
    assert_refused(eg_call(m, x), EG_EINVAL, "was given 1 inputs, expected 2");
    eg_mutator_detach(mutator);
    eg_module_release(m);
}

/* ---- scopes ---- */

typedef struct tracer {
    eg_mutator base;
    char *text;
} tracer;

static eg_status note(eg_mutator *self, char sign, eg_module *scope)
{
    char *text = ((tracer *)self)->text;
    size_t n = strlen(text);
    snprintf(text + n, 200 - n, "%c%s ", sign, eg_mutable_key(scope));
    return EG_OK;
}

static eg_status note_enter(eg_mutator *self, eg_module *scope)
{
    return note(self, '+', scope);
}

static eg_status note_exit(eg_mutator *self, eg_module *scope)
{
    return note(self, '-', scope);
}

static const eg_mutator_class tracer_class = {.struct_size = sizeof(eg_mutator_class),
                                              .name = "Tracer",
                                              .super = &eg_random_mutator_class,
                                              .instance_size = sizeof(tracer),
                                              .enter_mutable_scope = note_enter,
                                              .exit_mutable_scope = note_exit};

static void scopes_are_entered_and_left(void **state)
{
    eg_context *ctx = *state;
    char text[200] = "";
    eg_module *net = make_outer(ctx);
    eg_mutator *mutator = eg_mutator_attach(&tracer_class, sizeof(tracer), &(tracer){.text = text}, net);
    assert_made(mutator);
    assert_ok(eg_mutator_reset(mutator));
    assert_true(run_on_one(net) > 0);
    assert_string_equal(text, "+o1 +o1_c1 -o1_c1 +o1_c2 -o1_c2 -o1 ");
    /* also when what is inside fails */
    text[0] = '\0';
    eg_decisions_free(mutator->current);
    mutator->current = eg_decisions_new();
    assert_refused(eg_call(net, eg_ones(ctx, EG_SHAPE(1, 1))), EG_EINVAL, "no decision");
    assert_string_equal(text, "+o1 +o1_c1 -o1_c1 -o1 ");
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

/* ---- exports ---- */

typedef struct export_case {
    int choice; /* 0: numbered layers, 1: named, 2: digits as names, 3: named inputs, 4: inputs with one name twice */
    mask_kind kind;
    double weights[3];
    const char *expected;
} export_case;

static const export_case export_cases[] = {
    {0, BOOLS, {1, 0, 1}, "[0, 2]"},
    {0, WEIGHTS, {1, 0, 0}, "0"},
    {0, BOOLS, {0, 0, 0}, "[]"},
    {0, WEIGHTS, {.5, 0, .25}, "[0.5, 0.0, 0.25]"},
    {1, BOOLS, {0, 1, 0}, "\"b\""},
    {1, BOOLS, {1, 1, 0}, "[\"a\", \"b\"]"},
    {1, TENSOR, {0, 0, 1}, "\"c\""},
    {1, TENSOR, {.5, 0, .25}, "[0.5, 0.0, 0.25]"},
    {1, WEIGHTS, {2, 0, 0}, "[2.0, 0.0, 0.0]"},
    {2, BOOLS, {0, 1, 0}, "1"},
    {3, BOOLS, {1, 0, 1}, "[\"k\", \"\"]"},
    {3, BOOLS, {0, 0, 1}, "\"\""},
    {4, BOOLS, {1, 0, 1}, "[0, 2]"},
};

static void exports(void **state)
{
    eg_context *ctx = *state;
    for (size_t i = 0; i < sizeof export_cases / sizeof *export_cases; i++) {
        const export_case *c = &export_cases[i];
        eg_module *m = c->choice == 0   ? eg_layer_choice(ctx, GAINS_012(ctx), .key = "k")
                       : c->choice == 1 ? eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k")
                       : c->choice == 2 ? eg_layer_choice(ctx,
                                                          EG_CHOICES({"3", make_gain(ctx, 1)}, {"5", make_gain(ctx, 1)},
                                                                     {"7", make_gain(ctx, 1)}),
                                                          .key = "k")
                       : c->choice == 3 ? eg_input_choice(ctx, .choose_from = EG_KEYS("k", "l", ""), .key = "k")
                                        : eg_input_choice(ctx, .n_candidates = 3, .key = "k");
        eg_module *net = c->choice == 3
                             ? eg_sequential(ctx, EG_MODULES(eg_new(part, ctx, "l", EG_MODULES(make_gain(ctx, 1))), m))
                             : m;
        eg_mutator *mutator = attach(net);
        assert_made(mutator);
        eg_mutator view = *mutator;
        eg_module *only[1] = {m};
        view.mutables = only;
        decide(&view, c->kind, c->weights, 3);
        eg_arch *arch = eg_mutator_export(mutator);
        assert_made(arch);
        char *value = eg_arch_value(arch, "k");
        assert_string_equal(value, c->expected);
        eg_free(value);
        /* what was exported means the same when it is read */
        char *before = eg_mutator_status(mutator);
        assert_ok(eg_mutator_set_arch(mutator, arch));
        eg_arch *again = eg_mutator_export(mutator);
        assert_true(eg_arch_equal(arch, again));
        eg_free(before);
        eg_arch_free(arch);
        eg_arch_free(again);
        eg_mutator_detach(mutator);
        eg_module_release(net);
    }
}

static void exports_are_refused(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(pick, ctx, false);
    eg_mutator *mutator = attach(net);
    assert_refused(eg_mutator_export(mutator), EG_EINVAL, "no decision for 'left'");
    eg_decisions *d = eg_decisions_new();
    assert_ok(eg_decisions_set_mask(d, "left", (const bool[]){true, false}, 2));
    assert_refused(eg_mutator_export_decisions(mutator, d), EG_EINVAL, "'left' has 2 entries, expected 3");
    assert_ok(eg_decisions_set_mask(d, "other", (const bool[]){true, false}, 2));
    assert_refused(eg_mutator_export_decisions(mutator, d), EG_EINVAL, "'other', which is no choice");
    eg_decisions_free(d);
    eg_mutator_detach(mutator);
    eg_module_release(net);
}

static void status_shows_decisions(void **state)
{
    eg_context *ctx = *state;
    eg_module *m = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k");
    eg_mutator *mutator = attach(m);
    char *text = eg_mutator_status(mutator);
    assert_string_equal(text, "{}\n");
    eg_free(text);
    decide(mutator, BOOLS, (const double[]){1, 0, 1}, 3);
    text = eg_mutator_status(mutator);
    assert_string_equal(text, "{\n  \"k\": [\n    true,\n    false,\n    true\n  ]\n}\n");
    eg_free(text);
    decide(mutator, TENSOR, (const double[]){.5, 0, .25}, 3);
    text = eg_mutator_status(mutator);
    assert_string_equal(text, "{\n  \"k\": [\n    0.5,\n    0.0,\n    0.25\n  ]\n}\n");
    eg_free(text);
    eg_mutator_detach(mutator);
    eg_module_release(m);
}

static void architectures_are_kept(void **state)
{
    (void)state;
    char *directory = temporary_make(), path[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "arch.json", path);
    eg_arch *arch = parse_arch("{\"b\": [], \"a\": \"x\", \"c\": [0.1, 2.0]}");
    assert_int_equal(eg_arch_size(arch), 3);
    assert_string_equal(eg_arch_key(arch, 0), "a");
    assert_string_equal(eg_arch_key(arch, 2), "c");
    assert_refused(eg_arch_key(arch, 3), EG_EINVAL, "no key number 3");
    assert_refused(eg_arch_value(arch, "d"), EG_ENOENT, "'d'");
    assert_ok(eg_arch_save(arch, path));
    eg_arch *loaded = eg_arch_load(path);
    assert_true(eg_arch_equal(arch, loaded));
    char *text = eg_arch_text(loaded);
    assert_string_equal(text, "{\n  \"a\": \"x\",\n  \"b\": [],\n  \"c\": [\n    0.1,\n    2.0\n  ]\n}\n");
    eg_free(text);
    assert_ok(eg_arch_set(loaded, "aa", "3"));
    assert_string_equal(eg_arch_key(loaded, 1), "aa");
    assert_false(eg_arch_equal(arch, loaded));
    eg_arch *copy = eg_arch_copy(loaded);
    assert_true(eg_arch_equal(copy, loaded));
    assert_fails(eg_arch_set(loaded, "aa", "{}"), EG_EFORMAT, "'aa'");
    assert_fails(eg_arch_set(loaded, "aa", "["), EG_EFORMAT, "'aa'");
    assert_refused(eg_arch_parse("[1]"), EG_EFORMAT, "expected a JSON object");
    assert_refused(eg_arch_parse("{\"a\": [[1]]}"), EG_EFORMAT, "value of 'a'");
    assert_refused(eg_arch_parse("{\"a\": 1, \"a\": 2}"), EG_EFORMAT, "duplicate");
    assert_refused(eg_arch_load("/nowhere/arch.json"), EG_ENOENT, "/nowhere/arch.json");
    eg_arch_free(arch);
    eg_arch_free(loaded);
    eg_arch_free(copy);
    temporary_remove(directory);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(traversal_orders),
        TEST(a_shared_module_is_one_node),
        TEST(attaching_is_refused),
        TEST(sources_must_come_before),
        TEST(one_key_has_one_size),
        TEST(a_model_outlives_and_is_outlived),
        TEST(reductions),
        TEST(no_reduction_gives_a_tuple),
        TEST(masks_are_returned),
        TEST(forward_is_refused),
        TEST(scopes_are_entered_and_left),
        TEST(exports),
        TEST(exports_are_refused),
        TEST(status_shows_decisions),
        TEST(architectures_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
