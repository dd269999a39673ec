/*
 * Every function of surgery_report.h, with each of its allocations failing once: the surgery and the model are as
 * before.
 */
#include "alloc_table.h"

#include "engraft/layers.h"
#include "engraft/surgery_report.h"

typedef struct world {
    alloc_world base;
    eg_module *net, *other;
    eg_surgery *s; /* with a commit and a plan */
    char *recipe, *text, *directory, path[TEMPORARY_PATH_SIZE];
    eg_cost cost;
    eg_cost_change change;
    eg_guard_report report;
    eg_model_diff *diff;
} world;

static eg_module *make_net(eg_context *ctx)
{
    eg_module *relu = eg_relu(ctx);
    return eg_sequential(ctx,
                         EG_NAMED({"conv", eg_conv2d(ctx, 2, 4, 3, .padding = 1)}, {"norm", eg_batch_norm2d(ctx, 4)},
                                  {"relu", relu}, {"same", eg_module_retain(relu)}, {"pool", eg_global_avg_pool2d(ctx)},
                                  {"head", eg_linear(ctx, 4, 3)}));
}

static eg_module *wrap(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    eg_module *norm = eg_batch_norm2d(m->ctx, 4);
    return norm != NULL ? eg_sequential(m->ctx, EG_NAMED({"conv", eg_module_retain(m)}, {"norm", norm})) : NULL;
}

static eg_module *new_head(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_linear(m->ctx, 4, 3);
}

static void setup(void *payload)
{
    world *w = payload;
    w->net = make_net(w->base.ctx);
    w->other = make_net(w->base.ctx);
    assert_true(w->net && w->other);
    w->s = eg_surgery_new(w->net, .inputs = EG_SHAPES(EG_SHAPE(1, 2, 4, 4)));
    assert_made(w->s);
    assert_ok(eg_surgery_replace(w->s, EG_POLICIES({.cls = &eg_conv2d_class, .replace = wrap}), false));
    assert_ok(eg_surgery_commit(w->s));
    assert_ok(eg_surgery_replace(w->s, EG_POLICIES({.cls = &eg_linear_class, .replace = new_head}), false));
    assert_ok(eg_surgery_set_trained(w->s, eg_module_tensor(w->net, "norm.weight"), false));
    assert_ok(eg_surgery_put_tensor(w->s, eg_surgery_at(w->s, 1)->fresh, "bias", eg_none));
    w->recipe = eg_surgery_recipe(w->s);
    w->text = eg_module_text(w->net);
    w->diff = eg_surgery_diff(w->s);
    w->directory = temporary_make();
    temporary_path(w->directory, "recipe.json", w->path);
    assert_true(w->recipe && w->text && w->diff);
    assert_ok(eg_surgery_cost(w->s, &w->change, .repeats = 3, .warmup = 1));
    assert_ok(eg_model_cost(w->net, EG_SHAPES(EG_SHAPE(1, 2, 4, 4)), &w->cost, .repeats = -1));
    assert_ok(eg_surgery_guard(w->s, &w->report, .promise = EG_PROMISE_TRAINED));
}

static void teardown(void *payload)
{
    world *w = payload;
    eg_cost_free(&w->cost);
    eg_cost_change_free(&w->change);
    eg_model_diff_free(w->diff);
    eg_free(w->recipe);
    eg_free(w->text);
    eg_surgery_free(w->s);
    eg_module_release(w->net);
    eg_module_release(w->other);
    temporary_remove(w->directory);
}

static void check(void *payload)
{
    world *w = payload;
    char *text = eg_module_text(w->net);
    assert_string_equal(text, w->text);
    eg_free(text);
    assert_int_equal(eg_surgery_size(w->s), 2);
    assert_true(eg_surgery_at(w->s, 0)->committed && !eg_surgery_at(w->s, 1)->committed);
    assert_true(w->net->training);
    assert_true(eg_tensor_requires_grad(eg_module_tensor(w->net, "norm.weight")));
    assert_int_equal(eg_count_module_instances(w->other, EG_CLASSES(&eg_conv2d_class)), 1);
}

#define MAKES(row, type, make, release)                                                                                \
    static eg_status row(void *payload)                                                                                \
    {                                                                                                                  \
        world *w = payload;                                                                                            \
        type *made = make;                                                                                             \
        eg_status status = alloc_made(made);                                                                           \
        release(made);                                                                                                 \
        return status;                                                                                                 \
    }

MAKES(model_diff, eg_model_diff, eg_model_diff_new(w->net, w->other), eg_model_diff_free)
MAKES(surgery_diff, eg_model_diff, eg_surgery_diff(w->s), eg_model_diff_free)
MAKES(diff_text, char, eg_model_diff_text(w->diff), eg_free)
MAKES(diff_json, char, eg_model_diff_json(w->diff), eg_free)
MAKES(surgery_text, char, eg_surgery_text(w->s), eg_free)
MAKES(surgery_json, char, eg_surgery_json(w->s), eg_free)
MAKES(cost_text, char, eg_cost_text(&w->cost), eg_free)
MAKES(cost_json, char, eg_cost_json(&w->cost), eg_free)
MAKES(change_text, char, eg_cost_change_text(&w->change), eg_free)
MAKES(change_json, char, eg_cost_change_json(&w->change), eg_free)
MAKES(guard_text, char, eg_guard_text(&w->report), eg_free)
MAKES(guard_json, char, eg_guard_json(&w->report), eg_free)
MAKES(recipe, char, eg_surgery_recipe(w->s), eg_free)

static eg_status rename_keys(void *payload)
{
    world *w = payload;
    eg_state *in = eg_state_new(), *out = eg_state_new();
    eg_status status = in && out ? eg_module_state(w->other, "model.", in) : EG_ENOMEM;
    if (status == EG_OK)
        status = eg_model_diff_rename(w->diff, in, "model.", false, out);
    eg_state_free(in);
    eg_state_free(out);
    return status;
}

static eg_status cost(void *payload)
{
    world *w = payload;
    eg_cost out;
    eg_status status = eg_model_cost(w->net, EG_SHAPES(EG_SHAPE(1, 2, 4, 4)), &out, .repeats = 1, .warmup = -1);
    eg_cost_free(&out);
    return status;
}

static eg_status cost_change(void *payload)
{
    world *w = payload;
    eg_cost_change out;
    eg_status status = eg_surgery_cost(w->s, &out, .repeats = 1, .warmup = -1);
    eg_cost_change_free(&out);
    return status;
}

static eg_status guard(void *payload)
{
    world *w = payload;
    return eg_surgery_guard(w->s, NULL, .promise = EG_PROMISE_TRAINED);
}

static eg_status replay(void *payload)
{
    world *w = payload;
    eg_surgery *s = eg_surgery_new(w->other);
    eg_status status = s ? eg_surgery_replay(s, w->recipe, false) : EG_ENOMEM;
    eg_surgery_free(s);
    return status;
}

static eg_status recipe_file(void *payload)
{
    world *w = payload;
    eg_status status = eg_surgery_save_recipe(w->s, w->path);
    eg_surgery *s = status == EG_OK ? eg_surgery_new(w->other) : NULL;
    if (status == EG_OK)
        status = s ? eg_surgery_load_recipe(s, w->path, false) : EG_ENOMEM;
    eg_surgery_free(s);
    return status;
}

static const alloc_row rows[] = {
    {"eg_model_diff_new", model_diff, false},
    {"eg_surgery_diff", surgery_diff, false},
    {"eg_model_diff_text", diff_text, false},
    {"eg_model_diff_json", diff_json, false},
    {"eg_model_diff_rename", rename_keys, false},
    {"eg_surgery_text", surgery_text, false},
    {"eg_surgery_json", surgery_json, false},
    {"eg_model_cost_with", cost, false},
    {"eg_surgery_cost_with", cost_change, false},
    {"eg_cost_text", cost_text, false},
    {"eg_cost_json", cost_json, false},
    {"eg_cost_change_text", change_text, false},
    {"eg_cost_change_json", change_json, false},
    {"eg_surgery_guard_with", guard, false},
    {"eg_guard_text", guard_text, false},
    {"eg_guard_json", guard_json, false},
    {"eg_surgery_recipe", recipe, false},
    {"eg_surgery_replay", replay, true},
    {"eg_surgery_save_recipe eg_surgery_load_recipe", recipe_file, true},
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

static const alloc_table table = {.backend = "ref",
                                  .world_size = sizeof(world),
                                  .setup = setup,
                                  .teardown = teardown,
                                  .check = check,
                                  .rows = rows,
                                  .n_rows = N_ROWS,
                                  .dense = 150};

static void test_complete(void **unused)
{
    (void)unused;
    alloc_check_complete(&table, "surgery_report.h", "");
}

int main(void)
{
    if (!alloc_prepare())
        return 1;
    static alloc_target targets[N_ROWS];
    struct CMUnitTest tests[N_ROWS + 1] = {[N_ROWS] = cmocka_unit_test(test_complete)};
    alloc_make_tests(&table, tests, targets);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
