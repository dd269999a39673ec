/*
 * Recipes: replaying is applying, twice is once, and texts that are wrong.
 */
#include "support.h"

#include "engraft/layers.h"
#include "engraft/surgery_report.h"

#include <jansson.h>

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 1, .threads = 1, .backend = "ref");
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    size_t left = eg_context_get_stats(ctx).bytes_in_use;
    eg_context_free(ctx);
    return left != 0;
}

static eg_module *small_net(void)
{
    return eg_sequential(
        ctx, EG_NAMED({"conv", eg_conv2d(ctx, 3, 8, 3, .padding = 1)}, {"relu", eg_relu(ctx)},
                      {"body", eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 8, 8, 1), eg_batch_norm2d(ctx, 8)))},
                      {"pool", eg_global_avg_pool2d(ctx)}, {"head", eg_linear(ctx, 8, 10)}));
}

/* ---- policies ---- */

static eg_module *to_gelu(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_gelu(m->ctx);
}

static eg_module *wrap(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_sequential(m->ctx, EG_NAMED({"conv", eg_module_retain(m)}, {"norm", eg_batch_norm2d(m->ctx, 8)}));
}

static eg_module *flat(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_module_retain(eg_module_find(m, "0"));
}

static eg_module *same_shape(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_linear(m->ctx, 8, 10);
}

/* Plans all of the kinds there are. */
static void plan(eg_surgery *s, eg_module *net)
{
    assert_ok(eg_surgery_replace(s,
                                 EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu, .name = "gelu"},
                                             {.at = "conv", .replace = wrap}, {.at = "body", .replace = flat},
                                             {.cls = &eg_linear_class, .replace = same_shape}),
                                 false));
    assert_ok(eg_surgery_set_trained(s, eg_module_tensor(net, "conv.weight"), false));
    assert_ok(eg_surgery_put_tensor(s, eg_module_find(net, "body.0"), "bias", eg_none));
    eg_module *norm = eg_identity(ctx);
    /* of what the surgery has made itself */
    eg_module *made = eg_surgery_at(s, 0)->fresh;
    assert_string_equal(made->cls->name, "Sequential");
    assert_ok(eg_surgery_put(s, eg_module_find(made, "norm"), norm, "off again"));
}

static void check_same(eg_module *a, eg_module *b)
{
    eg_model_diff *d = eg_model_diff_new(a, b);
    char *text = eg_model_diff_text(d);
    assert_string_equal(text, "no difference\n");
    eg_free(text);
    eg_model_diff_free(d);
}

static void replaying_is_applying(void **state)
{
    (void)state;
    eg_module *net = small_net(), *copy = eg_module_clone(net), *untouched = eg_module_clone(net);
    eg_tensor *weight = eg_module_tensor(copy, "conv.weight"), *head = eg_module_tensor(copy, "head.weight");
    eg_surgery *s = eg_surgery_new(net), *t = eg_surgery_new(copy);
    plan(s, net);
    char *recipe = eg_surgery_recipe(s);
    assert_made(recipe);
    check_same(net, untouched); /* writing has put all back */
    assert_ok(eg_surgery_commit(s));
    char *again = eg_surgery_recipe(s);
    assert_string_equal(recipe, again); /* of what is committed: the same */
    check_same(copy, untouched);
    assert_ok(eg_surgery_replay(t, recipe, false));
    check_same(copy, untouched); /* it is planned only */
    assert_ok(eg_surgery_commit(t));
    check_same(net, copy);
    assert_ptr_equal(eg_module_tensor(copy, "conv.conv.weight"), weight); /* the very tensors */
    assert_ptr_equal(eg_module_tensor(copy, "head.weight"), head);
    assert_false(eg_tensor_requires_grad(weight));
    /* a recipe of the replay is the recipe */
    char *third = eg_surgery_recipe(t);
    assert_string_equal(recipe, third);
    assert_ok(eg_surgery_undo(t));
    check_same(copy, untouched);
    eg_free(recipe);
    eg_free(again);
    eg_free(third);
    eg_surgery_free(s);
    eg_surgery_free(t);
    eg_module_release(net);
    eg_module_release(copy);
    eg_module_release(untouched);
}

static void twice_is_once(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_surgery *s = eg_surgery_new(net);
    plan(s, net);
    char *recipe = eg_surgery_recipe(s);
    assert_ok(eg_surgery_replay(s, recipe, false)); /* on what is planned */
    size_t n = eg_surgery_size(s), notes = 0;
    assert_ok(eg_surgery_commit(s));
    assert_ok(eg_surgery_replay(s, recipe, true));
    assert_int_equal(eg_surgery_size(s), n);
    while (eg_surgery_note_at(s, notes) != NULL)
        notes++;
    assert_int_equal(notes, 2);
    assert_string_equal(eg_surgery_note_at(s, 1), "the model is as the recipe makes it: nothing is to be done");
    assert_ok(eg_module_apply_recipe(net, NULL, recipe));
    eg_free(recipe);
    eg_surgery_free(s);
    eg_module_release(net);
}

static void what_a_recipe_looks_like(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_surgery *s = eg_surgery_new(net);
    plan(s, net);
    char *text = eg_surgery_recipe(s);
    assert_made(text);
    const char *steps = strstr(text, "\"steps\"");
    assert_non_null(steps);
    const char *expected =
        "\"steps\": [\n"
        "    {\n"
        "      \"replace\": \"conv\", \"why\": \"Module at conv\",\n"
        "      \"module\": {\n"
        "        \"class\": \"Sequential\",\n"
        "        \"named\": {\n"
        "          \"conv\": {\"class\": \"Conv2d\", \"in_channels\": 3, \"out_channels\": 8, \"kernel_size\": 3, "
        "\"padding\": 1},\n"
        "          \"norm\": {\"class\": \"BatchNorm2d\", \"num_features\": 8}\n"
        "        }\n"
        "      },\n"
        "      \"modules\": {\"conv\": \"conv\"}\n"
        "    },\n"
        "    {\"replace\": \"relu\", \"why\": \"gelu\", \"module\": {\"class\": \"GELU\"}},\n"
        "    {\"replace\": \"body\", \"why\": \"Module at body\", \"modules\": {\"\": \"body.0\"}},\n"
        "    {\n"
        "      \"replace\": \"head\", \"why\": \"Linear\",\n"
        "      \"module\": {\"class\": \"Linear\", \"in_features\": 8, \"out_features\": 10},\n"
        "      \"tensors\": {\"weight\": \"head.weight\", \"bias\": \"head.bias\"}\n"
        "    },\n"
        "    {\"train\": \"conv.conv.weight\", \"trained\": false},\n"
        "    {\"tensor\": \"body.bias\", \"is\": null},\n"
        "    {\"replace\": \"conv.norm\", \"why\": \"off again\", \"module\": {\"class\": \"Identity\"}}\n"
        "  ]\n"
        "}\n";
    if (strcmp(steps, expected) != 0) {
        fprintf(stderr, "got:\n%s\n", text);
        fail();
    }
    eg_free(text);
    eg_surgery_free(s);
    eg_module_release(net);
}

/* Several modules shared, and the root replaced. */
static void shared_modules_and_the_root(void **state)
{
    (void)state;
    eg_module *relu = eg_relu(ctx), *fc = eg_linear(ctx, 4, 4);
    eg_module *net = eg_sequential(ctx, EG_MODULES(fc, relu, eg_module_retain(fc), eg_module_retain(relu)));
    eg_module *copy = eg_module_clone(net);
    eg_surgery *s = eg_surgery_new(net, .root = &net), *t = eg_surgery_new(copy, .root = &copy);
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu}), false));
    assert_ok(
        eg_surgery_put(s, net, eg_sequential(ctx, EG_MODULES(eg_module_retain(net), eg_module_retain(fc))), NULL));
    char *recipe = eg_surgery_recipe(s);
    assert_made(recipe);
    assert_ok(eg_surgery_replay(t, recipe, false));
    assert_ok(eg_surgery_commit(s));
    assert_ok(eg_surgery_commit(t));
    check_same(net, copy);
    assert_ptr_equal(eg_module_find(copy, "1"), eg_module_find(copy, "0.2"));
    assert_ptr_equal(eg_module_find(copy, "0.1"), eg_module_find(copy, "0.3"));
    eg_free(recipe);
    eg_surgery_free(s);
    eg_surgery_free(t);
    eg_module_release(net);
    eg_module_release(copy);
}

static void other_models_are_refused_unless_asked(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_module *other = eg_sequential(ctx, EG_NAMED({"relu", eg_relu(ctx)}));
    eg_surgery *s = eg_surgery_new(net), *t = eg_surgery_new(other);
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu}), false));
    char *recipe = eg_surgery_recipe(s);
    assert_fails(eg_surgery_replay(t, recipe, false), EG_EINVAL, "the recipe is for a model of structure");
    assert_int_equal(eg_surgery_size(t), 0);
    assert_ok(eg_surgery_replay(t, recipe, true));
    assert_int_equal(eg_surgery_size(t), 1);
    assert_non_null(strstr(eg_surgery_note_at(t, 0), "on its own it makes"));
    eg_free(recipe);
    eg_surgery_free(s);
    eg_surgery_free(t);
    eg_module_release(other);
    eg_module_release(net);
}

static void files(void **state)
{
    (void)state;
    char *directory = temporary_make(), path[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "recipe.json", path);
    eg_module *net = small_net(), *copy = eg_module_clone(net);
    eg_surgery *s = eg_surgery_new(net), *t = eg_surgery_new(copy);
    plan(s, net);
    assert_ok(eg_surgery_save_recipe(s, path));
    assert_ok(eg_surgery_load_recipe(t, path, false));
    assert_ok(eg_surgery_commit(s));
    assert_ok(eg_surgery_commit(t));
    check_same(net, copy);
    assert_fails(eg_surgery_load_recipe(t, "/nonexistent/recipe.json", false), EG_ENOENT, "/nonexistent");
    eg_surgery_free(s);
    eg_surgery_free(t);
    eg_module_release(net);
    eg_module_release(copy);
    temporary_remove(directory);
}

/* ---- wrong texts ---- */

#define RECIPE(steps) "{\"format\": \"engraft surgery\", \"version\": 1, \"steps\": " steps "}"
#define GELU "\"module\": {\"class\": \"GELU\"}"
#define PAIR                                                                                                           \
    "\"module\": {\"class\": \"Sequential\", \"modules\": [{\"class\": \"ReLU\"}, {\"class\": \"Linear\", "            \
    "\"in_features\": 8, \"out_features\": 10}]}"

static void wrong_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        eg_status status;
        const char *part;
    } rows[] = {
        {"", EG_EFORMAT, "recipe"},
        {"[]", EG_EFORMAT, "no recipe"},
        {"{\"format\": \"engraft surgery\", \"version\": 2, \"steps\": []}", EG_EFORMAT, "version 2, not 1"},
        {"{\"format\": \"engraft surgery\", \"version\": 1}", EG_EFORMAT, "'steps'"},
        {RECIPE("{}"), EG_EFORMAT, "'steps'"},
        {RECIPE("[1]"), EG_EFORMAT, "steps[0] is no object"},
        {RECIPE("[{}]"), EG_EFORMAT, "steps[0] says nothing to be done"},
        {RECIPE("[{\"replace\": 1}]"), EG_EFORMAT, "steps[0]: 'replace' is no text"},
        {RECIPE("[{\"replace\": \"relu\"}]"), EG_EFORMAT, "steps[0]: expected either a 'module'"},
        {RECIPE("[{\"replace\": \"relus\", " GELU "}]"), EG_ENOENT, "steps[0]: "},
        {RECIPE("[{\"replace\": \"relu\", " GELU ", \"by\": 1}]"), EG_EFORMAT, "there is no 'by'"},
        {RECIPE("[{\"replace\": \"relu\", " GELU ", \"modules\": []}]"), EG_EFORMAT, "'modules' is no object"},
        {RECIPE("[{\"replace\": \"relu\", " GELU ", \"tensors\": {\"a\": 1}}]"), EG_EFORMAT, "'a' of 'tensors'"},
        {RECIPE("[{\"replace\": \"relu\", " GELU ", \"tensors\": {\"a\": \"conv.weight\"}}]"), EG_ENOENT,
         "the new module has no 'a'"},
        {RECIPE("[{\"replace\": \"relu\", " PAIR ", \"tensors\": {\"1.weight\": \"conv.weight\"}}]"), EG_ESHAPE,
         "'conv.weight' has shape (8, 3, 3, 3), '1.weight' in the new module (10, 8)"},
        {RECIPE("[{\"replace\": \"relu\", " PAIR ", \"modules\": {\"1.weight\": \"conv\"}}]"), EG_EINVAL, "no module"},
        {RECIPE("[{\"replace\": \"relu\", " PAIR ", \"modules\": {\"0\": \"conv\"}, \"tensors\": {\"0.weight\": "
                "\"conv.weight\"}}]"),
         EG_EINVAL, "'0.weight' is in a module of the model"},
        {RECIPE("[{\"replace\": \"relu\", " PAIR ", \"modules\": {\"\": \"conv\"}}]"), EG_EFORMAT, "expected either"},
        {RECIPE("[{\"replace\": \"relu\", \"modules\": {\"\": \"conv\", \"a\": \"pool\"}}]"), EG_EFORMAT,
         "nothing can be put into a module of the model"},
        {RECIPE("[{\"replace\": \"relu\", " PAIR ", \"modules\": {\"0\": \"\"}}]"), EG_EINVAL, "contains itself"},
        {RECIPE("[{\"replace\": \"body.0\", \"modules\": {\"\": \"body\"}}]"), EG_EINVAL, "contains itself"},
        {RECIPE("[{\"replace\": \"relu\", \"module\": {\"class\": \"Nothing\"}}]"), EG_ENOENT, "steps[0].module"},
        {RECIPE("[{\"replace\": \"\", " GELU "}]"), EG_EINVAL, "the model itself"},
        {RECIPE("[{\"replace\": \"relu\", " GELU ", \"places\": {}}]"), EG_EFORMAT, "'places' is no list"},
        {RECIPE("[{\"replace\": \"relu\", " GELU ", \"places\": [1]}]"), EG_EFORMAT, "no text"},
        {RECIPE("[{\"replace\": \"relu\", " GELU ", \"places\": [\"a.relu\"]}]"), EG_ENOENT, "steps[0]"},
        {RECIPE("[{\"train\": \"conv.weight\"}]"), EG_EFORMAT, "'trained' is not"},
        {RECIPE("[{\"train\": \"conv.weights\", \"trained\": true}]"), EG_ENOENT, "steps[0]"},
        {RECIPE("[{\"tensor\": \"conv.bias\", \"is\": 3}]"), EG_EFORMAT, "neither a name nor null"},
        {RECIPE("[{\"tensor\": \"conv.gain\", \"is\": null}]"), EG_ENOENT, "gain"},
        {RECIPE("[{\"tensor\": \"conv.bias\", \"is\": \"conv.gain\"}]"), EG_ENOENT, "gain"},
        {RECIPE("[{\"method\": \"no such method\"}]"), EG_ENOENT, "no such method"},
    };
    eg_module *net = small_net();
    eg_surgery *s = eg_surgery_new(net);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(eg_surgery_replay(s, rows[i].text, true), rows[i].status);
        assert_recorded(rows[i].status, rows[i].part);
        assert_int_equal(eg_surgery_size(s), 0);
    }
    assert_ok(eg_surgery_commit(s));
    eg_module *same = small_net();
    check_same(net, same);
    assert_fails(eg_surgery_replay(
                     s, "{\"format\": \"engraft surgery\", \"version\": 1, \"before\": \"0\", \"steps\": []}", false),
                 EG_EINVAL, "is for a model of structure 0");
    assert_fails(eg_surgery_replay(
                     s, "{\"format\": \"engraft surgery\", \"version\": 1, \"after\": \"0\", \"steps\": []}", false),
                 EG_EINVAL, "has made a model of structure");
    assert_ok(eg_surgery_replay(s, RECIPE("[{\"replace\": \"relu\", " GELU "}]"), false)); /* for any model */
    assert_int_equal(eg_surgery_size(s), 1);
    eg_surgery_drop(s);
    assert_fails(eg_surgery_replay(NULL, "", false), EG_EINVAL, "NULL");
    assert_refused(eg_surgery_recipe(NULL), EG_EINVAL, "NULL");
    eg_module_release(same);
    eg_surgery_free(s);
    eg_module_release(net);
}

/* Numbers that a recipe has no place for. */
static void what_cannot_be_said(void **state)
{
    (void)state;
    eg_module *net = small_net();
    eg_surgery *s = eg_surgery_new(net);
    eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
    assert_ok(eg_surgery_put_tensor(s, eg_module_find(net, "conv"), "bias", eg_ones(ctx, EG_SHAPE(8))));
    assert_refused(eg_surgery_recipe(s), EG_EUNSUPPORTED, "'conv.bias' was given a tensor by itself");
    eg_surgery_drop(s);
    assert_ok(eg_surgery_put_tensor(s, eg_module_find(net, "conv"), "bias", eg_module_tensor(net, "body.0.bias")));
    char *recipe = eg_surgery_recipe(s);
    assert_non_null(strstr(recipe, "{\"tensor\": \"conv.bias\", \"is\": \"body.0.bias\"}"));
    eg_free(recipe);
    eg_surgery_drop(s);
    /* what is gone in the end needs no word */
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_linear_class, .replace = same_shape}), false));
    assert_ok(eg_surgery_put_tensor(s, eg_module_find(net, "head"), "bias", eg_ones(ctx, EG_SHAPE(10))));
    recipe = eg_surgery_recipe(s);
    assert_made(recipe);
    assert_null(strstr(recipe, "{\"tensor\""));
    eg_free(recipe);
    eg_tape_end(tape);
    eg_surgery_free(s);
    eg_module_release(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(replaying_is_applying, setup, teardown),
        cmocka_unit_test_setup_teardown(twice_is_once, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_recipe_looks_like, setup, teardown),
        cmocka_unit_test_setup_teardown(shared_modules_and_the_root, setup, teardown),
        cmocka_unit_test_setup_teardown(other_models_are_refused_unless_asked, setup, teardown),
        cmocka_unit_test_setup_teardown(files, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_texts, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_said, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
