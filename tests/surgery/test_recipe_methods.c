/*
 * Recipes of the built-in methods: each is said by its options and done again on a fresh model, all of them one after
 * the other as well.
 */
#include "support.h"

#include "engraft/layers.h"
#include "engraft/methods.h"
#include "engraft/surgery_report.h"

static eg_context *ctx;

static int setup(void **state)
{
    (void)state;
    eg_error_clear();
    ctx = eg_context_new(.seed = 3, .threads = 1, .backend = "ref");
    return ctx == NULL;
}

static int teardown(void **state)
{
    (void)state;
    size_t left = eg_context_get_stats(ctx).bytes_in_use;
    eg_context_free(ctx);
    return left != 0;
}

static eg_module *make_model(void)
{
    eg_module *block = eg_residual_block(
        ctx, EG_NAMED({"body", eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 16, 16, 3, .padding = 1, .no_bias = true),
                                                             eg_batch_norm2d(ctx, 16), eg_relu(ctx)))}));
    return eg_sequential(
        ctx, EG_NAMED({"conv", eg_conv2d(ctx, 3, 16, 3, .padding = 1)}, {"norm", eg_batch_norm2d(ctx, 16)},
                      {"relu", eg_relu(ctx)}, {"pool", eg_max_pool2d(ctx, 2)}, {"block", block},
                      {"down", eg_conv2d(ctx, 16, 24, 3, .stride = 2)},
                      {"tail", eg_sequential(ctx, EG_MODULES(eg_identity(ctx), eg_relu(ctx), eg_relu(ctx)))},
                      {"mean", eg_global_avg_pool2d(ctx)}, {"head", eg_linear(ctx, 24, 20)}));
}

/* Options of each method that change something in the model above; `at` where they need a place. */
static eg_module *make_options(const eg_method *method, const char **at)
{
    *at = NULL;
    if (method == &eg_squeeze_excite_method)
        return eg_squeeze_excite(ctx, .min_channels = 8, .latent_channels = 0.5);
    if (method == &eg_ghost_norm_method)
        return eg_ghost_norm(ctx, .ghost_batch_size = 2);
    if (method == &eg_factorize_method)
        return eg_factorize(ctx, .rank = 2, .min_channels = 1);
    if (method == &eg_low_rank_method)
        return eg_low_rank(ctx, .rank = 2);
    if (method == &eg_new_head_method)
        return eg_new_head(ctx, .classes = 7);
    if (method == &eg_activation_swap_method)
        return eg_activation_swap(ctx, .to = "GELU");
    if (method == &eg_drop_layers_method || method == &eg_duplicate_layers_method)
        *at = "tail";
    if (method == &eg_drop_layers_method)
        return eg_drop_layers(ctx, .first = 1);
    if (method == &eg_duplicate_layers_method)
        return eg_duplicate_layers(ctx, .first = 1);
    return eg_module_new(&method->options, sizeof(eg_module), &(eg_module){.ctx = ctx});
}

static void check_same(eg_module *a, eg_module *b, const char *method)
{
    eg_model_diff *d = eg_model_diff_new(a, b);
    assert_made(d);
    char *text = eg_model_diff_text(d);
    if (strcmp(text, "no difference\n") != 0) {
        fprintf(stderr, "%s", text);
        fail_msg("%s: the replay is another", method);
    }
    eg_free(text);
    eg_model_diff_free(d);
}

static eg_surgery *surgery_of(eg_module *m)
{
    eg_surgery *s = eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(4, 3, 12, 12)));
    assert_made(s);
    return s;
}

/* Replays on a copy, which is told nothing but the recipe. */
static void check_replay(eg_surgery *s, eg_module *net, eg_module *copy, const char *name)
{
    char *recipe = eg_surgery_recipe(s);
    assert_made(recipe);
    assert_ok(eg_surgery_commit(s));
    eg_surgery *t = eg_surgery_new(copy);
    if (eg_surgery_replay(t, recipe, false) != EG_OK)
        fail_msg("%s: %s\n%s", name, eg_error_last()->message, recipe);
    assert_ok(eg_surgery_commit(t));
    check_same(net, copy, name);
    char *again = eg_surgery_recipe(t);
    assert_string_equal(recipe, again);
    assert_ok(eg_module_apply_recipe(copy, NULL, recipe)); /* once more: nothing */
    check_same(net, copy, name);
    eg_free(recipe);
    eg_free(again);
    eg_surgery_free(t);
}

static void each_method(void **state)
{
    (void)state;
    const eg_method *method;
    for (size_t i = 0; (method = eg_method_at(i)) != NULL; i++) {
        const char *at, *name = method->options.name;
        eg_module *net = make_model(), *options = make_options(method, &at);
        eg_surgery *s = surgery_of(net);
        if (options == NULL || eg_surgery_apply(s, options, at) != EG_OK)
            fail_msg("%s: %s", name, eg_error_last()->message);
        eg_module *copy = eg_module_clone(net);
        check_replay(s, net, copy, name);
        eg_surgery_free(s);
        eg_module_release(net);
        eg_module_release(copy);
    }
}

static void one_after_the_other(void **state)
{
    (void)state;
    static const eg_method *const methods[] = {&eg_fold_batch_norm_method, &eg_identity_elimination_method,
                                               &eg_activation_swap_method, &eg_blur_pool_method,
                                               &eg_squeeze_excite_method,  &eg_factorize_method,
                                               &eg_layer_freezing_method,  &eg_new_head_method};
    eg_module *net = make_model(), *copy = eg_module_clone(net);
    eg_surgery *s = surgery_of(net);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        const char *at;
        eg_module *options = make_options(methods[i], &at);
        assert_ok(eg_surgery_apply(s, options, at));
        if (i % 3 == 0)
            assert_ok(eg_surgery_commit(s));
    }
    char *recipe = eg_surgery_recipe(s);
    assert_made(recipe);
    assert_non_null(strstr(recipe, "{\"method\": \"activation_swap\", \"to\": \"GELU\"}"));
    assert_non_null(strstr(recipe, "\"inputs\": [[4, 3, 12, 12]]"));
    eg_free(recipe);
    check_replay(s, net, copy, "all");
    eg_surgery_free(s);
    eg_module_release(net);
    eg_module_release(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_method, setup, teardown),
        cmocka_unit_test_setup_teardown(one_after_the_other, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
