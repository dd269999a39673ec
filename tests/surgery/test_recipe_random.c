/*
 * Replaying is applying, on random models with modules that stand in several places.
 */
#include "support.h"

#include "engraft/layers.h"
#include "engraft/surgery_report.h"

enum { MODELS = 1000, POOL = 64 };

static eg_context *ctx;

/* A generator of models: what it has made may be used again. */
typedef struct maker {
    eg_rng rng;
    eg_module *pool[POOL];
    size_t n;
} maker;

static size_t draw(maker *m, size_t n)
{
    return (size_t)eg_rng_below(&m->rng, n);
}

static eg_module *make(maker *m, int depth)
{
    size_t kind = draw(m, 10);
    eg_module *made = NULL;
    if (m->n > 0 && kind < 2)
        return eg_module_retain(m->pool[draw(m, m->n)]);
    if (depth == 0 || kind < 4)
        made = kind % 2 ? eg_relu(ctx) : eg_linear(ctx, 3, 3);
    else
        made = eg_sequential(ctx, EG_MODULES(make(m, depth - 1)));
    assert_made(made);
    for (size_t i = 1, n = draw(m, 4); eg_is_a(made, &eg_sequential_class) && i <= n; i++) {
        char name[24];
        snprintf(name, sizeof name, "%zu", i);
        assert_ok(eg_module_add_child(made, name, NULL, make(m, depth - 1)));
    }
    if (m->n < POOL)
        m->pool[m->n++] = made;
    return made;
}

/* ---- policies, which answer by chance ---- */

static eg_module *for_leaf(void *payload, eg_module *m, size_t index)
{
    (void)index;
    switch (draw(payload, 5)) {
    case 0:
        return eg_gelu(m->ctx);
    case 1:
        return eg_sequential(m->ctx, EG_MODULES(eg_module_retain(m), eg_tanh(m->ctx)));
    case 2:
        return eg_sequential(m->ctx, EG_MODULES(eg_module_retain(m), eg_module_retain(m)));
    case 3:
        return eg_is_a(m, &eg_linear_class) ? eg_linear(m->ctx, 3, 3) : NULL;
    default:
        return NULL;
    }
}

static eg_module *for_list(void *payload, eg_module *m, size_t index)
{
    (void)index;
    size_t n = eg_module_n_children(m);
    switch (draw(payload, 6)) {
    case 0:
        return eg_module_retain(eg_module_child_at(m, draw(payload, n), NULL));
    case 1:
        return eg_sequential(m->ctx, EG_MODULES(eg_module_retain(eg_module_child_at(m, n - 1, NULL)),
                                                eg_module_retain(eg_module_child_at(m, 0, NULL))));
    case 2:
        return eg_sequential(m->ctx, EG_MODULES(eg_relu(m->ctx), eg_module_retain(m)));
    default:
        return NULL;
    }
}

static void check_same(eg_module *a, eg_module *b, uint64_t seed)
{
    eg_model_diff *d = eg_model_diff_new(a, b);
    assert_made(d);
    char *text = eg_model_diff_text(d);
    if (strcmp(text, "no difference\n") != 0) {
        fprintf(stderr, "%s", text);
        fail_msg("model %llu: the replay is another", (unsigned long long)seed);
    }
    eg_free(text);
    eg_model_diff_free(d);
}

/* Some steps, of one kind of module each. */
static void plan(eg_surgery *s, maker *m)
{
    for (size_t i = 0, n = 1 + draw(m, 3); i < n; i++) {
        bool lists = draw(m, 2) == 1;
        eg_policy policies[] = {{.cls = lists ? &eg_sequential_class : &eg_relu_class,
                                 .replace = lists ? for_list : for_leaf,
                                 .payload = m},
                                {.cls = &eg_linear_class, .replace = for_leaf, .payload = m}};
        assert_ok(eg_surgery_replace(s, (eg_policies){policies, 2}, draw(m, 4) == 0));
    }
}

static void replay_one(uint64_t seed)
{
    maker m = {.rng = eg_rng_make(seed, "recipes", 0)};
    eg_module *net = eg_sequential(ctx, EG_MODULES(make(&m, 3), make(&m, 3))), *copy = eg_module_clone(net),
              *untouched = eg_module_clone(net);
    eg_surgery *s = eg_surgery_new(net, .root = &net), *t = eg_surgery_new(copy, .root = &copy);
    plan(s, &m);
    char *recipe = eg_surgery_recipe(s);
    assert_made(recipe);
    check_same(net, untouched, seed);
    assert_ok(eg_surgery_commit(s));
    if (eg_surgery_replay(t, recipe, false) != EG_OK)
        fail_msg("model %llu: %s\n%s", (unsigned long long)seed, eg_error_last()->message, recipe);
    assert_ok(eg_surgery_commit(t));
    check_same(net, copy, seed);
    eg_free(recipe);
    if (eg_surgery_size(t) > 0)
        assert_ok(eg_surgery_undo(t));
    check_same(copy, untouched, seed);
    eg_surgery_free(s);
    eg_surgery_free(t);
    eg_module_release(net);
    eg_module_release(copy);
    eg_module_release(untouched);
}

static void random_models(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < MODELS; seed++) {
        ctx = eg_context_new(.seed = seed + 1, .threads = 1, .backend = "ref");
        assert_made(ctx);
        replay_one(seed);
        assert_int_equal(eg_context_get_stats(ctx).bytes_in_use, 0);
        eg_context_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
