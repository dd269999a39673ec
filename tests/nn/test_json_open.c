/* Open fields as JSON: there and back, in lists, in candidates, in blocks, through composites; and what is refused. */
#include "support.h"

#include "engraft/nas.h"

#include <jansson.h>

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 1, .backend = "ref", .max_memory = (size_t)1 << 26);
    return ctx == NULL || eg_nas_register(ctx) != EG_OK;
}

static int teardown(void **state)
{
    (void)state;
    size_t left = eg_context_get_stats(ctx).bytes_in_use;
    eg_context_free(ctx);
    return left != 0;
}

static eg_module *from(const char *text)
{
    char json[4096];
    size_t n = strlen(text);
    assert_true(n < sizeof json);
    for (size_t i = 0; i <= n; i++)
        json[i] = text[i] == '\'' ? '"' : text[i];
    return eg_module_from_json(ctx, json);
}

/* To JSON, short and expanded, and back: the same text, tree and choices. Returns the short text. */
static char *there_and_back(eg_module *m)
{
    char *json[2] = {eg_module_json(m), eg_module_json_expanded(m)};
    char *tree = eg_module_text(m), *choices = eg_search_space_text(m);
    for (int i = 0; i < 2; i++) {
        assert_made(json[i]);
        eg_module *again = eg_module_from_json(ctx, json[i]);
        assert_made(again);
        char *json2 = eg_module_json(again), *tree2 = eg_module_text(again), *choices2 = eg_search_space_text(again);
        assert_true(json2 && tree2 && choices2);
        assert_string_equal(json2, json[0]);
        assert_string_equal(tree2, tree);
        assert_string_equal(choices2, choices);
        eg_free(json2), eg_free(tree2), eg_free(choices2);
        eg_module_release(again);
    }
    eg_free(tree), eg_free(choices), eg_free(json[1]);
    return json[0];
}

/* One decision for several fields: the same values, and others. */
static void test_keys(void **state)
{
    (void)state;
    int64_t width = eg_value_choice(ctx, EG_VALUES(16, 24, 32), .key = "width");
    int64_t kernel = eg_value_choice(ctx, EG_VALUES(3, 5), .key = "kernel");
    int64_t padding = eg_value_choice(ctx, EG_VALUES(1, 2), .key = "kernel");
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 3, width, kernel, .padding = padding),
                                                 eg_batch_norm2d(ctx, width), eg_conv2d(ctx, width, 4, 1)));
    char *json = there_and_back(m);
    json_t *parsed = json_loads(json, 0, NULL), *modules = json_object_get(parsed, "modules");
    const json_t *norm = json_object_get(json_array_get(modules, 1), "num_features");
    assert_string_equal(json_string_value(json_object_get(norm, "key")), "width");
    assert_int_equal(json_array_size(json_object_get(norm, "value_choice")), 3);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(norm, "value_choice"), 2)), 32);
    json_decref(parsed);

    /* what is read is decided like what was written: the same network for the same architecture */
    eg_module *again = eg_module_from_json(ctx, json);
    eg_arch *arch = eg_arch_parse("{\"width\": 24, \"kernel\": 5}");
    assert_ok(eg_apply_arch(m, arch));
    assert_ok(eg_apply_arch(again, arch));
    char *text = eg_module_text(m), *text2 = eg_module_text(again);
    assert_string_equal(text, text2);
    assert_non_null(strstr(text2, "Conv2d(3, 24, kernel_size=(5, 5), stride=(1, 1), padding=(2, 2))"));
    eg_free(text), eg_free(text2), eg_free(json);
    eg_arch_free(arch);
    eg_module_release(again);
    eg_module_release(m);
}

static void test_nested(void **state)
{
    (void)state;
    int64_t width = eg_value_choice(ctx, EG_VALUES(4, 8), .key = "width");
    int64_t depth = eg_value_choice(ctx, EG_VALUES(0, 1, 2), .key = "depth");
    eg_module *inner = eg_layer_choice(
        ctx,
        EG_CHOICES({"relu", eg_relu(ctx)},
                   {"wide", eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, width), eg_linear(ctx, width, 4)))}),
        .key = "inner");
    eg_module *blocks = eg_repeat(ctx, EG_MODULES(inner, eg_linear(ctx, 4, 4)), .depth = depth);
    eg_module *m = eg_layer_choice(
        ctx,
        EG_CHOICES({"blocks", blocks}, {"none", eg_dropout(ctx, (double)eg_value_choice(ctx, EG_VALUES(0.1, 0.5)))}),
        .key = "outer");
    assert_made(m);
    char *json = there_and_back(m);
    eg_free(json);
    eg_module_release(m);
}

/* ---- a composite, which hands its open field on ---- */

typedef struct block {
    eg_module base;
    int64_t width;
    eg_module *up, *down;
} block;

static eg_status block_build(eg_module *self)
{
    block *b = (block *)self;
    int64_t width = EG_OPEN(b, width);
    EG_SLOT(b, up, eg_linear(self->ctx, 3, width));
    EG_SLOT(b, down, eg_sequential(self->ctx, EG_MODULES(eg_relu(self->ctx), eg_linear(self->ctx, width, 3))));
    return eg_module_status(self);
}

static EG_NAMED_CLASS(block, "OpenBlock", .build = block_build,
                      .fields = EG_FIELDS(EG_INT(block, width, EG_AT_LEAST(1), .help = "units")));

static size_t children_of(const char *json)
{
    json_t *parsed = json_loads(json, 0, NULL);
    size_t n = json_object_size(json_object_get(parsed, "children"));
    json_decref(parsed);
    return n;
}

static void test_composite(void **state)
{
    (void)state;
    assert_ok(eg_context_register_class(ctx, &block_class));
    int64_t width = eg_value_choice(ctx, EG_VALUES(8, 16), .key = "width");
    eg_module *m = eg_new(block, ctx, width);
    char *json = there_and_back(m);
    assert_int_equal(children_of(json), 0); /* the children are as the class makes them */
    eg_free(json);
    /* another decision in a child is a difference: of key, of values, of being open */
    const int64_t others[] = {eg_value_choice(ctx, EG_VALUES(8, 16), .key = "other"),
                              eg_value_choice(ctx, EG_VALUES(4, 16), .key = "width"),
                              eg_value_choice(ctx, EG_VALUES(8, 16), .key = "width", .fixed = "8"), 16};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_ok(eg_module_set_child(m, "up", eg_linear(ctx, 3, others[i])));
        json = eg_module_json(m);
        assert_made(json);
        assert_int_equal(children_of(json), 1);
        eg_free(json);
    }
    eg_module_release(m);
}

/* A key of its own for each choice without one, and written with it. */
static void test_automatic_keys(void **state)
{
    (void)state;
    eg_module *m = from("{'class': 'Conv2d', 'in_channels': 3, 'out_channels': {'value_choice': [4, 8]},"
                        " 'kernel_size': {'value_choice': [1, 3]}}");
    assert_made(m);
    char *choices = eg_search_space_text(m);
    assert_non_null(strstr(choices, "ValueChoice1"));
    assert_non_null(strstr(choices, "ValueChoice2"));
    eg_free(choices);
    eg_free(there_and_back(m));
    eg_module_release(m);
}

#define LINEAR(field) "{'class': 'Linear', 'in_features': 3, 'out_features': " field "}"

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        eg_status status;
        const char *part;
    } cases[] = {
        {LINEAR("{}"), EG_EFORMAT, "model.out_features: is an object, expected a number, or a choice of numbers"},
        {LINEAR("{'value_choice': 3}"), EG_EFORMAT, "expected a number, or a choice"},
        {LINEAR("{'value_choice': [3], 'k': 'x'}"), EG_EFORMAT, "expected a number, or a choice"},
        {LINEAR("{'value_choice': ['3']}"), EG_EFORMAT, "model.out_features: value 0 of the choice is no number"},
        {LINEAR("{'value_choice': [3], 'key': 3}"), EG_EFORMAT, "model.out_features: 'key' is no text"},
        {LINEAR("{'value_choice': [3], 'fixed': 3}"), EG_EFORMAT, "model.out_features: 'fixed' is no text"},
        {LINEAR("{'value_choice': [], 'key': 'a'}"), EG_EINVAL, "model.out_features: value choice 'a': 0 values"},
        {LINEAR("{'value_choice': [3, 3], 'key': 'a'}"), EG_EINVAL, "3 is there twice"},
        {LINEAR("{'value_choice': [3], 'key': ''}"), EG_EINVAL, "model.out_features: ValueChoice: the key is empty"},
        {LINEAR("{'value_choice': [3], 'fixed': '4'}"), EG_EINVAL, "model.out_features: "},
        {LINEAR("{'value_choice': [3, 4.5]}"), EG_EINVAL, "model: Linear: 'out_features' is 4.5, expected a whole"},
        {LINEAR("{'value_choice': [3, 0]}"), EG_EINVAL, "model: Linear: 'out_features' is 0, expected"},
        {LINEAR("{'value_choice': [3, 1e300]}"), EG_EINVAL, "value 1 is 1e+300, expected less than 2^52"},
        {"{'class': 'Linear', 'in_features': 3, 'out_features': 4, 'no_bias': {'value_choice': [0, 1]}}", EG_EFORMAT,
         "model.no_bias: is an object, expected true or false"},
        {"{'class': 'Linear', 'in_features': 3, 'out_features': {'value_choice': [3]},"
         " 'children': {'out_features': {'class': 'ReLU'}}}",
         EG_EFORMAT, "model.children.out_features: 'out_features' is a number: say it as the field"},
        {"{'class': 'Linear', 'in_features': 3, 'out_features': {'value_choice': [3]},"
         " 'children': {'out_features': null}}",
         EG_EFORMAT, "'out_features' is a number"},
        {"{'class': 'ValueChoice', 'key': 'a'}", EG_ENOENT, "there is no class 'ValueChoice'"},
        {"{'class': 'Repeat', 'modules': [{'class': 'ReLU'}], 'depth': {'value_choice': [1, 2]}}", EG_EINVAL,
         "Repeat: 'depth' is 2, but there are 1 modules"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        eg_module *m = from(cases[i].json);
        const eg_error *error = eg_error_last();
        if (m != NULL || error->code != cases[i].status || !strstr(error->message, cases[i].part))
            fail_msg("%s: \"%s\" (%s), expected \"%s\"", cases[i].json, error->message, eg_status_name(error->code),
                     cases[i].part);
        eg_error_clear();
    }
    eg_context *plain = eg_context_new(.threads = 1);
    assert_refused(eg_module_from_json(plain, "{\"class\": \"Dropout\", \"p\": {\"value_choice\": [0.5]}}"), EG_EFORMAT,
                   "model.p: is open, which this context cannot read: see eg_nas_register()");
    eg_context_free(plain);
    eg_module *m = eg_dropout(ctx, (double)eg_value_choice(ctx, EG_VALUES(0.5), .key = "\xff"));
    assert_made(m);
    assert_refused(eg_module_json(m), EG_EINVAL, "'key' is no UTF-8");
    eg_module_release(m);
}

/* Keys of scopes are not optional in a file either. */
static void test_scopes_without_keys(void **state)
{
    (void)state;
    static const char *const texts[] = {"{'class': 'ENASNode', 'index': 1, 'channels': 4}",
                                        "{'class': 'ENASMacroLayer', 'index': 1, 'filters': 4}",
                                        "{'class': 'TextLayer', 'index': 1, 'channels': 4}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_refused(from(texts[i]), EG_EINVAL, "has no key");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_keys),           TEST(test_nested),  TEST(test_composite),
        TEST(test_automatic_keys), TEST(test_refused), TEST(test_scopes_without_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
