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
    {"[1e308, 0.0, 0.0]", 0, "weight 0 of 'k' is 1e+308, outside of float32"},
    {"[0.0, 0.0, -3.5e38]", 0, "weight 2 of 'k' is -3.5e+38, outside of float32"},
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
            assert_null(eg_mutable_mutator(net));
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
    assert_fails(eg_fixed_architecture(net, arch, &loose), EG_EINVAL, "missing keys in the architecture: 'merge'");
    assert_ok(eg_arch_set(arch, "merge", "[0]"));
    assert_fails(eg_apply_arch(net, arch), EG_EINVAL, "unexpected keys in the architecture: 'merg'");
    for (int i = 0; i < 9; i++) {
        char key[24];
        snprintf(key, sizeof key, "other%d", i);
        assert_ok(eg_arch_set(arch, key, "0"));
    }
    assert_fails(eg_apply_arch(net, arch), EG_EINVAL, "'merg', 'other0', 'other1' and 7 more");
    assert_ok(eg_fixed_architecture(net, arch, &loose));
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
    assert_ok(eg_fixed_architecture(net, arch, NULL));
    assert_ptr_equal(p->left, chosen); /* the field that forward reads */
    assert_ptr_equal(((gain *)p->left)->weight, weight);
    assert_ptr_equal(eg_module_find(net, "left"), chosen);
    assert_made(eg_module_tensor(net, "left.weight"));
    assert_true(eg_is_a(p->right, &eg_layer_choice_class)); /* two of them: it stays, without the third */
    assert_null(eg_layer_choice_at(p->right, 1));
    assert_non_null(eg_layer_choice_at(p->right, 2));
    assert_int_equal(eg_module_n_parameters(net), 3);
    assert_close(run_on_one(net), 11, 0);
    /* what stays needs no mutator, and says what it follows */
    assert_null(eg_mutable_mutator(net));
    assert_string_equal(((eg_input_choice *)p->merge)->fixed, "[\"left\", \"\"]");
    char *text = eg_module_text(net);
    assert_non_null(strstr(text, "key='merge', fixed='[\"left\", \"\"]')"));
    eg_free(text);
    eg_arch_free(arch);
    eg_mutator *mutator = eg_random_mutator_new(net); /* the sources of `merge` are gone, its decision is not */
    assert_made(mutator);
    eg_mutator_detach(mutator);
    /* and can be decided anew */
    arch = parse_arch("{\"right\": 2, \"merge\": [\"right\", \"\"]}");
    assert_ok(eg_apply_arch(net, arch));
    assert_close(run_on_one(net), 101, 0);
    assert_int_equal(eg_module_n_parameters(net), 2);
    eg_tensor_release(weight);
    eg_arch_free(arch);
    eg_module_release(net);
}

static void read_output(eg_module *m, eg_tensor *x, float *out, size_t n)
{
    eg_tape *tape = eg_tape_begin(m->ctx, EG_NO_GRAD);
    eg_tensor *y = eg_call(m, x);
    assert_made(y);
    assert_ok(eg_tensor_read(y, out, n));
    eg_tape_end(tape);
}

static void a_mutator_decides_while_it_is_attached(void **state)
{
    eg_context *ctx = *state;
    eg_module *net =
        eg_sequential(ctx, EG_MODULES(eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k", .fixed = "[\"a\", 2]")));
    eg_arch *arch = parse_arch("{\"k\": \"b\"}");
    assert_close(run_on_one(net), 101, 0); /* fixed from the start */
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_ok(eg_mutator_set_arch(mutator, arch));
    assert_close(run_on_one(net), 10, 0);
    assert_fails(eg_apply_arch(net, arch), EG_EINVAL, "the model has a RandomMutator: let go of it with");
    eg_module *copy = eg_module_clone(net); /* follows no mutator, so what is fixed */
    assert_null(eg_mutable_mutator(copy));
    assert_close(run_on_one(copy), 101, 0);
    eg_module_release(copy);
    eg_mutator_detach(mutator);
    assert_close(run_on_one(net), 101, 0);
    assert_ok(eg_apply_arch(net, arch));
    assert_close(run_on_one(net), 10, 0);
    eg_arch_free(arch);
    eg_module_release(net);
}

static void fixed_values_are_checked(void **state)
{
    eg_context *ctx = *state;
    assert_refused(eg_input_choice(ctx, .n_candidates = 2, .key = "in", .fixed = "[2]"), EG_EINVAL,
                   "'in' is 2, expected");
    assert_refused(eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k", .fixed = "b"), EG_EFORMAT, "'k' line 1");
    eg_module *in = eg_input_choice(ctx, .n_candidates = 2, .key = "in", .fixed = "[0.5, 0.25]");
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    assert_tensor(eg_call(in, eg_ones(ctx, EG_SHAPE(1)), eg_full(ctx, EG_SHAPE(1), 4)), 0, 1.5);
    eg_tape_end(tape);
    eg_module_release(in);
}

/* Copies and parts of a fixed model give what it gives, to the bit, and outlive it. */
enum { CELL = 2 * 4 * 4 * 4 };

static void copies_and_parts_run(void **state)
{
    eg_context *ctx = *state;
    eg_space_options options = {
        .struct_size = sizeof options, .input = EG_SHAPE(1, 8, 8), .classes = 3, .channels = 4, .layers = 2};
    eg_module *net = eg_space_build(ctx, "cells", &options);
    eg_arch *arch = parse_arch("{\"cell0_op1\": \"skip\", \"cell0_op2\": [\"conv3x3\", \"sep3x3\"],"
                               " \"cell0_shortcut\": 0, \"cell1_op1\": [0.5, 0.0, 0.25, 0.0, 0.0],"
                               " \"cell1_op2\": 1, \"cell1_shortcut\": []}");
    assert_ok(eg_apply_arch(net, arch));
    eg_arch_free(arch);
    eg_module_train(net, false);
    eg_tensor *x = eg_tensor_keep(eg_randn(ctx, EG_SHAPE(2, 1, 8, 8)));
    eg_tensor *between = eg_tensor_keep(eg_randn(ctx, EG_SHAPE(2, 4, 4, 4)));
    eg_module *copy = eg_module_clone(net), *cell = eg_module_clone(eg_module_find(net, "1"));
    assert_made(copy);
    assert_made(cell);
    float whole[3][6], inner[2][CELL];
    read_output(net, x, whole[0], 6);
    read_output(eg_module_find(net, "1"), between, inner[0], CELL);
    eg_module *taken = eg_module_retain(eg_module_find(net, "1"));
    eg_module_release(net);
    read_output(copy, x, whole[1], 6);
    read_output(taken, between, inner[1], CELL);
    assert_memory_equal(whole[0], whole[1], sizeof whole[0]);
    assert_memory_equal(inner[0], inner[1], sizeof inner[0]);
    eg_module *second = eg_module_clone(copy);
    eg_module_release(second);
    read_output(copy, x, whole[2], 6);
    assert_memory_equal(whole[0], whole[2], sizeof whole[0]);
    read_output(cell, between, inner[1], CELL);
    eg_module_release(cell);
    eg_module_release(taken);
    eg_module_release(copy);
    eg_tensor_release(x);
    eg_tensor_release(between);
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
    assert_ok(eg_fixed_architecture(net, arch, NULL));
    assert_true(eg_is_a(eg_module_child_at(net, 0, NULL), &gain_class));
    eg_module *stays = eg_module_child_at(net, 1, NULL); /* its mask is still asked for */
    assert_true(eg_is_a(stays, &eg_layer_choice_class));
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
    assert_ok(eg_fixed_architecture(net, arch, NULL));
    assert_made(eg_module_tensor(net, "0.0.weight"));
    assert_close(run_on_one(net), 100, 0);
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_int_equal(mutator->n_mutables, 1); /* the scope */
    assert_int_equal(mutator->tree->children[0]->n_children, 0);
    eg_mutator_detach(mutator);
    eg_arch_free(arch);
    eg_module_release(net);
}

static void the_root_can_be_a_choice(void **state)
{
    eg_context *ctx = *state;
    eg_arch *arch = parse_arch("{\"k\": \"c\"}");
    eg_module *net = eg_layer_choice(ctx, GAINS_ABC(ctx), .key = "k");
    eg_fixed_options options = {.struct_size = sizeof options, .root = &net};
    assert_ok(eg_fixed_architecture(net, arch, &options));
    assert_true(eg_is_a(net, &gain_class));
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
        assert_ok(eg_fixed_architecture(net, arch, &options));
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
        TEST(a_mutator_decides_while_it_is_attached),
        TEST(fixed_values_are_checked),
        TEST(copies_and_parts_run),
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
