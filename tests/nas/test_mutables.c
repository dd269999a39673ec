/*
 * Layer choices, input choices, scopes: keys, candidates, what they refuse.
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

static void only_automatic_keys_take_a_number(void **state)
{
    eg_context *ctx = *state;
    eg_module *m[4] = {eg_layer_choice(ctx, GAINS_012(ctx)), eg_input_choice(ctx, .n_candidates = 2),
                       eg_layer_choice(ctx, GAINS_012(ctx), .key = "kk"), eg_layer_choice(ctx, GAINS_012(ctx))};
    const char *keys[4] = {"LayerChoice1", "InputChoice2", "kk", "LayerChoice3"};
    for (int i = 0; i < 4; i++) {
        assert_made(m[i]);
        assert_string_equal(eg_mutable_key(m[i]), keys[i]);
        assert_string_equal(eg_mutable_name(m[i]), keys[i]);
        assert_null(eg_mutable_mutator(m[i]));
        eg_module_release(m[i]);
    }
    eg_context_reset_keys(ctx);
    eg_module *again = eg_layer_choice(ctx, GAINS_012(ctx));
    assert_string_equal(eg_mutable_key(again), "LayerChoice1");
    eg_module_release(again);
}

typedef struct sub_choice {
    eg_layer_choice base;
} sub_choice;

static void a_subclass_gives_its_name_to_keys(void **state)
{
    eg_context *ctx = *state;
    static const eg_class cls = {.struct_size = sizeof(eg_class),
                                 .name = "Sub",
                                 .super = &eg_layer_choice_class,
                                 .instance_size = sizeof(sub_choice)};
    eg_module *m = eg_module_new(&cls, sizeof(sub_choice), &(sub_choice){.base = {.base.ctx = ctx, GAINS_012(ctx)}});
    assert_made(m);
    assert_string_equal(eg_mutable_key(m), "Sub1");
    assert_int_equal(eg_layer_choice_size(m), 3);
    eg_module_release(m);
}

static void a_layer_choice_lists_its_candidates(void **state)
{
    eg_context *ctx = *state;
    eg_module *m = eg_layer_choice(ctx, GAINS_ABC(ctx));
    assert_int_equal(eg_layer_choice_size(m), 3);
    assert_string_equal(eg_layer_choice_name(m, 2), "c");
    assert_ok(eg_module_set_child(m, "b", make_gain(ctx, 7)));
    assert_close(((gain *)eg_layer_choice_at(m, 1))->factor, 7, 0);
    assert_ok(eg_module_remove_child(m, "b"));
    assert_int_equal(eg_layer_choice_size(m), 2);
    assert_string_equal(eg_layer_choice_name(m, 1), "c");
    assert_ok(eg_module_empty_child(m, "c"));
    assert_null(eg_layer_choice_at(m, 1));
    assert_refused(eg_layer_choice_at(m, 2), EG_EINVAL, "candidate 2, expected 0 to 1");
    assert_refused(eg_layer_choice_name(NULL, 0), EG_EINVAL, "layer choice");
    eg_module_release(m);
}

static void numbered_candidates_keep_their_names(void **state)
{
    eg_context *ctx = *state;
    eg_module *m = eg_layer_choice(ctx, GAINS_012(ctx));
    assert_ok(eg_module_remove_child(m, "1"));
    assert_string_equal(eg_layer_choice_name(m, 0), "0");
    assert_string_equal(eg_layer_choice_name(m, 1), "2");
    eg_module_release(m);
}

static void an_input_choice_knows_its_sources(void **state)
{
    eg_context *ctx = *state;
    eg_module *m = eg_input_choice(ctx, .choose_from = EG_KEYS("x", EG_NO_KEY), .n_chosen = EG_N(1));
    assert_int_equal(eg_input_choice_size(m), 2);
    assert_string_equal(eg_input_choice_source(m, 0), "x");
    assert_string_equal(eg_input_choice_source(m, 1), "");
    assert_int_equal(eg_input_choice_n_chosen(m), 1);
    assert_refused(eg_input_choice_source(m, 2), EG_EINVAL, "expected 0 to 1");
    eg_module *copy = eg_module_clone(m);
    eg_module_release(m);
    assert_made(copy);
    assert_string_equal(eg_input_choice_source(copy, 0), "x");
    assert_string_equal(eg_mutable_key(copy), "InputChoice1");
    eg_module_release(copy);
    m = eg_input_choice(ctx, .n_candidates = 3);
    assert_string_equal(eg_input_choice_source(m, 2), EG_NO_KEY);
    assert_int_equal(eg_input_choice_n_chosen(m), -1);
    eg_module_release(m);
}

static void bad_choices_are_refused(void **state)
{
    eg_context *ctx = *state;
    assert_refused(eg_layer_choice(ctx), EG_EINVAL, "no candidates");
    assert_refused(eg_layer_choice(ctx, GAINS_ABC(ctx), .key = ""), EG_EINVAL, "key is empty");
    assert_refused(eg_layer_choice(ctx, GAINS_ABC(ctx), .reduction = 9), EG_EINVAL, "reduction");
    assert_refused(eg_input_choice(ctx), EG_EINVAL, "neither n_candidates nor choose_from");
    assert_refused(eg_input_choice(ctx, .n_candidates = -1), EG_EINVAL, "n_candidates");
    assert_refused(eg_input_choice(ctx, .n_candidates = 3, .choose_from = EG_KEYS("", "")), EG_EINVAL,
                   "choose_from names 2");
    assert_refused(eg_input_choice(ctx, .choose_from = (const char *const[]){NULL}), EG_EINVAL, "empty");
    assert_refused(eg_input_choice(ctx, .n_candidates = 2, .n_chosen = EG_N(3)), EG_EINVAL,
                   "n_chosen is 3, expected 0 to 2");
    assert_refused(eg_input_choice(ctx, .n_candidates = 2, .n_chosen = EG_N(0.5)), EG_EINVAL, "n_chosen is 0.5");
    assert_refused(eg_new(part, ctx, .key = NULL, EG_MODULES(make_gain(ctx, 1))), EG_EINVAL, "no key");
    eg_module *plain = make_gain(ctx, 1);
    assert_refused(eg_mutable_key(plain), EG_EINVAL, "expected a mutable");
    eg_module_release(plain);
}

static void a_choice_without_a_mutator_says_so(void **state)
{
    eg_context *ctx = *state;
    eg_module *layer = eg_layer_choice(ctx, GAINS_ABC(ctx)), *input = eg_input_choice(ctx, .n_candidates = 1);
    eg_tensor *x = eg_ones(ctx, EG_SHAPE(1, 1));
    assert_refused(eg_call(layer, x), EG_EINVAL, "layer choice 'LayerChoice1' has no mutator");
    assert_refused(eg_call(input, x), EG_EINVAL, "input choice 'InputChoice2' has no mutator");
    eg_module_release(layer);
    eg_module_release(input);
    eg_module *scope = eg_new(part, ctx, "s", EG_MODULES(make_gain(ctx, 3)));
    assert_close(run_on_one(scope), 3, 0);
    eg_module_release(scope);
}

static void a_search_space_is_described(void **state)
{
    eg_context *ctx = *state;
    eg_module *m = eg_new(pick, ctx, .any = true);
    char *text = eg_search_space_text(m);
    assert_made(text);
    assert_string_equal(text, "{\n  \"left\": {\n    \"_type\": \"layer_choice\",\n    \"_value\": [\n      \"a\",\n   "
                              "   \"b\",\n      \"c\"\n    ]\n  },\n"
                              "  \"merge\": {\n    \"_type\": \"input_choice\",\n    \"_value\": {\n      "
                              "\"candidates\": [\n        \"left\",\n        \"right\",\n"
                              "        \"\"\n      ],\n      \"n_chosen\": null\n    }\n  },\n  \"right\": {\n    "
                              "\"_type\": \"layer_choice\",\n    \"_value\": [\n"
                              "      \"0\",\n      \"1\",\n      \"2\"\n    ]\n  }\n}\n");
    eg_free(text);
    eg_module_release(m);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(only_automatic_keys_take_a_number),   TEST(a_subclass_gives_its_name_to_keys),
        TEST(a_layer_choice_lists_its_candidates), TEST(numbered_candidates_keep_their_names),
        TEST(an_input_choice_knows_its_sources),   TEST(bad_choices_are_refused),
        TEST(a_choice_without_a_mutator_says_so),  TEST(a_search_space_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
