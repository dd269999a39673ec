/*
 * Architectures applied: what each form of a value means, what is replaced, what is refused, what is left.
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

/* ---- values ---- */

typedef struct value_case {
    const char *value;
    double sum; /* of 1, 10, 100 for p, q, r; -1: nothing chosen; 0: refused */
    const char *error;
} value_case;

static const value_case value_cases[] = {
    {"\"q\"", 10, NULL},
    {"1", 10, NULL},
    {"1.0", 10, NULL},
    {"[\"q\"]", 10, NULL},
    {"[1]", 10, NULL},
    {"[\"p\", 2]", 101, NULL},
    {"[0, 1]", 11, NULL},
    {"[0, 2]", 101, NULL},
    {"[true, false, true]", 101, NULL},
    {"[false, false, false]", -1, NULL},
    {"[0.0, 1.0, 0.0]", 10, NULL},
    {"[0.5, 0.0, 0.25]", 25.5, NULL},
    {"[0.5, 0, 0.25]", 25.5, NULL},
    {"[1.0, 0, 2]", 111, NULL},
    {"[0.0, 2.0, 0.0]", 20, NULL},
    {"[]", -1, NULL},
    {"null", -1, NULL},
    {"[0, 1, 0]", 0, "'k' is [0, 1, 0], expected each candidate once"},
    {"[\"p\", 0]", 0, "'k' is [\"p\", 0], expected each candidate once"},
    {"7", 0, "'k' is 7, expected a name, an index 0 to 2, a list of them, or 3 weights"},
    {"-1", 0, "'k' is -1, expected"},
    {"[3]", 0, "'k' is 3, expected"},
    {"0.5", 0, "'k' is 0.5, expected"},
    {"[0.5, 0.5]", 0, "'k' is 0.5, expected"},
    {"\"zz\"", 0, "'k' is \"zz\", expected 'p', 'q' or 'r'"},
    {"true", 0, "'k' is true, expected"},
    {"[true, true]", 0, "'k' is true, expected"},
};

#define GAINS_PQR(ctx) EG_CHOICES({"p", make_gain((ctx), 1)}, {"q", make_gain((ctx), 10)}, {"r", make_gain((ctx), 100)})

static void values(void **state)
{
    eg_context *ctx = *state;
    for (size_t i = 0; i < sizeof value_cases / sizeof *value_cases; i++) {
        const value_case *c = &value_cases[i];
        eg_module *net = eg_sequential(ctx, EG_MODULES(eg_layer_choice(ctx, GAINS_PQR(ctx), .key = "k")));
        eg_arch *arch = eg_arch_new();
        assert_ok(eg_arch_set(arch, "k", c->value));
        if (c->error != NULL) {
            assert_fails(eg_apply_arch(net, arch), EG_EINVAL, c->error);
            assert_int_equal(eg_layer_choice_size(eg_module_child_at(net, 0, NULL)), 3);
            assert_non_null(eg_layer_choice_at(eg_module_child_at(net, 0, NULL), 0));
            assert_null(eg_module_mutator(net));
        } else {
            assert_ok(eg_apply_arch(net, arch));
            assert_close(run_on_one(net), c->sum, 1e-5);
        }
        eg_arch_free(arch);
        eg_module_release(net);
    }
}

static void numbered_candidates_have_names_too(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_sequential(ctx, EG_MODULES(eg_layer_choice(ctx, GAINS_012(ctx), .key = "k")));
    eg_arch *arch = parse_arch("{\"k\": \"1\"}");
    assert_ok(eg_apply_arch(net, arch));
    assert_close(run_on_one(net), 10, 0);
    eg_arch_free(arch);
    eg_module_release(net);
}

/* ---- keys ---- */

static void keys_are_checked(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(pick, ctx, false);
    eg_arch *arch = parse_arch("{\"left\": 0, \"right\": 1, \"merg\": [0]}");
    assert_fails(eg_apply_arch(net, arch), EG_EINVAL,
                 "unexpected keys in the architecture: 'merg' (did you mean 'merge'?); missing keys in the "
                 "architecture: 'merge'");
    eg_fixed_options loose = {.struct_size = sizeof loose, .not_strict = true};
    assert_refused(eg_fixed_architecture(net, arch, &loose), EG_EINVAL, "missing keys in the architecture: 'merge'");
    assert_ok(eg_arch_set(arch, "merge", "[0]"));
    assert_fails(eg_apply_arch(net, arch), EG_EINVAL, "unexpected keys in the architecture: 'merg'");
    assert_made(eg_fixed_architecture(net, arch, &loose));
    assert_close(run_on_one(net), 1, 0);
    eg_arch_free(arch);
    eg_module_release(net);
}

/* ---- replacing ---- */

static void choices_give_way(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_new(pick, ctx, false);
    pick *p = (pick *)net;
    eg_module *chosen = eg_layer_choice_at(p->left, 1);
    eg_tensor *weight = eg_tensor_keep(((gain *)chosen)->weight);
    eg_arch *arch = parse_arch("{\"left\": \"b\", \"right\": [0, 2], \"merge\": [\"left\", \"\"]}");
    eg_mutator *mutator = eg_fixed_architecture(net, arch, NULL);
    assert_made(mutator);
    assert_ptr_equal(p->left, chosen); /* the field that forward reads */
    assert_ptr_equal(((gain *)p->left)->weight, weight);
    assert_ptr_equal(eg_module_find(net, "left"), chosen);
    assert_made(eg_module_tensor(net, "left.weight"));
    assert_true(eg_is_a(p->right, &eg_layer_choice_class)); /* two of them: it stays, without the third */
    assert_null(eg_layer_choice_at(p->right, 1));
    assert_non_null(eg_layer_choice_at(p->right, 2));
    assert_int_equal(eg_module_n_parameters(net), 3);
    assert_close(run_on_one(net), 11, 0);
    /* the mutator has what is open, and only that */
    assert_int_equal(mutator->n_mutables, 2);
    assert_string_equal(eg_mutable_key(mutator->mutables[0]), "right");
    assert_string_equal(eg_mutable_name(p->merge), "merge");
    eg_arch *open = eg_mutator_export(mutator);
    char *text = eg_arch_text(open);
    assert_string_equal(text,
                        "{\n  \"merge\": [\n    \"left\",\n    \"\"\n  ],\n  \"right\": [\n    0,\n    2\n  ]\n}\n");
    eg_free(text);
    eg_arch_free(open);
    assert_fails(eg_apply_arch(net, arch), EG_EINVAL, "has a FixedMutator already");
    eg_mutator_detach(mutator);
    assert_null(eg_module_mutator(net));
    /* what is open can be decided anew, also in a copy */
    eg_module *copy = eg_module_clone(net);
    eg_arch_free(arch);
    arch = parse_arch("{\"right\": 2, \"merge\": [\"right\", \"\"]}");
    assert_ok(eg_apply_arch(copy, arch));
    assert_close(run_on_one(copy), 101, 0);
    assert_int_equal(eg_module_n_parameters(copy), 2);
    eg_module_release(copy);
    eg_tensor_release(weight);
    eg_arch_free(arch);
    eg_module_release(net);
}

static void a_shared_choice_is_replaced_everywhere(void **state)
{
    eg_context *ctx = *state;
    eg_module *shared = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k");
    eg_module *inner = eg_sequential(ctx, EG_MODULES(eg_module_retain(shared)));
    eg_module *net = eg_sequential(ctx, EG_MODULES(shared, eg_module_retain(shared), inner));
    eg_arch *arch = parse_arch("{\"k\": \"b\"}");
    assert_ok(eg_apply_arch(net, arch));
    assert_close(run_on_one(net), 1000, 0);
    assert_int_equal(eg_module_n_parameters(net), 1);
    assert_true(eg_is_a(eg_module_child_at(inner, 0, NULL), &gain_class));
    assert_ptr_equal(eg_module_child_at(net, 1, NULL), eg_module_child_at(inner, 0, NULL));
    eg_arch_free(arch);
    eg_module_release(net);
}

static void one_key_in_many_places(void **state)
{
    eg_context *ctx = *state;
    eg_module *net =
        eg_sequential(ctx, EG_MODULES(eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k"),
                                      eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k", .return_mask = true)));
    eg_arch *arch = parse_arch("{\"k\": \"b\"}");
    eg_mutator *mutator = eg_fixed_architecture(net, arch, NULL);
    assert_made(mutator);
    assert_true(eg_is_a(eg_module_child_at(net, 0, NULL), &gain_class));
    eg_module *stays = eg_module_child_at(net, 1, NULL); /* its mask is still asked for */
    assert_true(eg_is_a(stays, &eg_layer_choice_class));
    assert_int_equal(mutator->n_mutables, 1);
    assert_ptr_equal(mutator->mutables[0], stays);
    eg_tensor *y = eg_call(net, eg_ones(ctx, EG_SHAPE(1, 1)));
    assert_made(y);
    assert_tensor(eg_tuple_get(y, 0), 0, 100);
    eg_arch_free(arch);
    eg_module_release(net);
}

static void choices_inside_scopes(void **state)
{
    eg_context *ctx = *state;
    eg_module *net = eg_sequential(
        ctx, EG_MODULES(eg_new(part, ctx, "s", EG_MODULES(eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k")))));
    eg_arch *arch = parse_arch("{\"k\": \"c\"}");
    eg_mutator *mutator = eg_fixed_architecture(net, arch, NULL);
    assert_made(mutator);
    assert_made(eg_module_tensor(net, "0.0.weight"));
    assert_close(run_on_one(net), 100, 0);
    assert_int_equal(mutator->n_mutables, 1); /* the scope */
    assert_int_equal(mutator->tree->children[0]->n_children, 0);
    eg_arch_free(arch);
    eg_module_release(net);
}

static void the_root_can_be_a_choice(void **state)
{
    eg_context *ctx = *state;
    eg_arch *arch = parse_arch("{\"k\": \"c\"}");
    eg_module *net = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k");
    eg_fixed_options options = {.struct_size = sizeof options, .root = &net};
    eg_mutator *mutator = eg_fixed_architecture(net, arch, &options);
    assert_made(mutator);
    assert_true(eg_is_a(net, &gain_class));
    assert_ptr_equal(eg_module_mutator(net), mutator);
    assert_int_equal(mutator->n_mutables, 0);
    assert_close(run_on_one(net), 100, 0);
    eg_module_release(net);
    /* nobody takes the new root: the choice stays, with one candidate */
    net = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k");
    assert_ok(eg_apply_arch(net, arch));
    assert_int_equal(eg_module_n_parameters(net), 1);
    assert_close(run_on_one(net), 100, 0);
    eg_module_release(net);
    eg_arch_free(arch);
}

static void replacements_are_logged(void **state)
{
    (void)state;
    log_record record = {0};
    eg_context *ctx = eg_context_new(.threads = 1, .log = record_log, .log_payload = &record);
    eg_arch *arch = parse_arch("{\"k\": \"b\"}");
    for (int quiet = 0; quiet < 2; quiet++) {
        eg_module *net = eg_sequential(ctx, EG_NAMED({"stem", eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k")}));
        eg_fixed_options options = {.struct_size = sizeof options, .quiet = quiet == 1};
        assert_made(eg_fixed_architecture(net, arch, &options));
        assert_int_equal(record.lines, 1);
        assert_string_equal(record.last, "replacing 'stem' (key 'k') with its candidate 'b'");
        eg_module_release(net);
    }
    eg_arch_free(arch);
    eg_context_free(ctx);
}

static void files_are_applied(void **state)
{
    eg_context *ctx = *state;
    char *directory = temporary_make(), path[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "arch.json", path);
    eg_module *net = eg_new(pick, ctx, false);
    assert_fails(eg_apply_fixed_architecture(net, path), EG_ENOENT, "arch.json");
    eg_arch *arch = parse_arch("{\"left\": \"b\", \"right\": 0, \"merge\": 2}");
    assert_ok(eg_arch_save(arch, path));
    assert_ok(eg_apply_fixed_architecture(net, path));
    assert_close(run_on_one(net), 1, 0);
    eg_arch_free(arch);
    eg_module_release(net);
    temporary_remove(directory);
}

static void a_candidate_under_two_names_stays(void **state)
{
    eg_context *ctx = *state;
    eg_module *same = make_gain(ctx, 3);
    eg_module *net = eg_sequential(
        ctx, EG_MODULES(eg_layer_choice(
                 ctx, EG_CHOICES({"a", same}, {"b", eg_module_retain(same)}, {"c", make_gain(ctx, 5)}), .key = "k")));
    eg_arch *arch = parse_arch("{\"k\": [\"a\", \"c\"]}");
    assert_ok(eg_apply_arch(net, arch));
    assert_close(run_on_one(net), 8, 0);
    eg_arch_free(arch);
    eg_module_release(net);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(values),
        TEST(numbered_candidates_have_names_too),
        TEST(keys_are_checked),
        TEST(choices_give_way),
        TEST(a_shared_choice_is_replaced_everywhere),
        TEST(one_key_in_many_places),
        TEST(choices_inside_scopes),
        TEST(the_root_can_be_a_choice),
        TEST(replacements_are_logged),
        TEST(files_are_applied),
        TEST(a_candidate_under_two_names_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
