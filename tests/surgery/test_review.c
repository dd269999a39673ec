/*
 * What a review of the surgery layer has found: each test failed before.
 */
#include "surgery_support.h"

#include "engraft/methods.h"
#include "engraft/surgery_report.h"

static eg_module *three_linears(void)
{
    return eg_sequential(
        ctx, EG_MODULES(eg_linear(ctx, 4, 6), eg_relu(ctx), eg_linear(ctx, 6, 6), eg_relu(ctx), eg_linear(ctx, 6, 2)));
}

/* One update, so that there are states. */
static void step(eg_module *m, eg_optimizer *o)
{
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *loss = eg_mean(eg_call(m, eg_ones(ctx, EG_SHAPE(2, 4))));
    assert_ok(eg_backward(loss));
    assert_ok(eg_optimizer_step(o));
    eg_optimizer_zero_grad(o);
    eg_tape_end(tape);
}

static eg_status is_in_once(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    if (kind == EG_SLOT_PARAMETER && times_in(payload, t) != 1)
        fail_msg("'%s' is in the optimizer %zu times", path, times_in(payload, t));
    return EG_OK;
}

/* What was made from something that was made in the same plan takes its place, with its states. */
static void derivations_chain_in_one_plan(void **state)
{
    (void)state;
    eg_module *m = three_linears();
    eg_optimizer *o = eg_adam(m);
    step(m, o);
    size_t n = o->n_params;
    eg_surgery *s = eg_surgery_new(m, .root = &m, .optimizers = EG_OPTIMIZERS(o), .inputs = EG_SHAPES(EG_SHAPE(2, 4)));
    assert_ok(eg_surgery_apply(s, eg_widen(ctx), "0"));
    assert_ok(eg_surgery_apply(s, eg_widen(ctx), "0"));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(o->n_params, n);
    assert_ok(eg_module_walk_tensors(m, is_in_once, o));
    for (size_t i = 0; i < n; i++) {
        assert_non_null(o->params[i].states[0]);
        assert_true(eg_shape_equal(o->params[i].states[0]->shape, o->params[i].tensor->shape));
        assert_int_equal(o->params[i].step, 1);
    }
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

/* What was derived while it was frozen joins an optimizer when it is trained. */
static void thawing_what_was_derived(void **state)
{
    (void)state;
    eg_module *m = three_linears();
    eg_module_set_requires_grad(*eg__slot_child(&m->slots[0]), false);
    eg_optimizer *o = eg_adam(m);
    eg_surgery *s = eg_surgery_new(m, .root = &m, .optimizers = EG_OPTIMIZERS(o), .inputs = EG_SHAPES(EG_SHAPE(2, 4)));
    assert_ok(eg_surgery_apply(s, eg_widen(ctx), "0"));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(times_in(o, eg_module_tensor(m, "0.weight")), 0);
    assert_ok(eg_surgery_set_trained(s, eg_module_tensor(m, "0.weight"), true));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(times_in(o, eg_module_tensor(m, "0.weight")), 1);
    assert_int_equal(times_in(o, eg_module_tensor(m, "0.bias")), 0);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

/* A step between check and commit is not forgotten. */
static void training_after_a_check_counts(void **state)
{
    (void)state;
    eg_module *m = three_linears();
    eg_optimizer *o = eg_adam(m);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o));
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_relu_class, .replace = to_gelu}), false));
    assert_ok(eg_surgery_check(s));
    step(m, o);
    uint64_t params = o->n_params;
    eg_tensor *moment = eg_tensor_keep(o->params[0].states[0]);
    assert_non_null(moment);
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(o->n_params, params);
    assert_int_equal(o->params[0].step, 1);
    assert_ptr_equal(o->params[0].states[0], moment);
    eg_tensor_release(moment);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

/* Two layers of one weight: `to` has that of `from`. */
static void tie(eg_module *to, eg_module *from)
{
    eg_tensor_release(EG_CAST(to, eg_linear)->weight);
    EG_CAST(to, eg_linear)->weight = eg_tensor_keep(EG_CAST(from, eg_linear)->weight);
}

/* What a layer at the paths shares with one elsewhere is trained on, as without paths. */
static void freezing_at_paths_spares_what_others_need(void **state)
{
    (void)state;
    eg_module *a = eg_linear(ctx, 4, 4), *b = eg_linear(ctx, 4, 4);
    tie(b, a);
    eg_module *m = eg_sequential(ctx, EG_MODULES(a, eg_relu(ctx), b));
    eg_surgery *s = eg_surgery_new(m);
    assert_ok(eg_surgery_apply(s, eg_layer_freezing(ctx), "0"));
    assert_ok(eg_surgery_commit(s));
    assert_false(EG_CAST(a, eg_linear)->bias->requires_grad);
    assert_true(EG_CAST(b, eg_linear)->weight->requires_grad);
    assert_true(EG_CAST(b, eg_linear)->bias->requires_grad);
    eg_surgery_free(s);
    s = eg_surgery_new(m);
    assert_ok(eg_surgery_apply(s, eg_layer_freezing(ctx), "*")); /* both: nobody else needs it */
    assert_ok(eg_surgery_commit(s));
    assert_false(EG_CAST(b, eg_linear)->weight->requires_grad);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* A recipe that is refused leaves the surgery without its inputs. */
static void refused_recipes_leave_no_inputs(void **state)
{
    (void)state;
    static const char recipe[] =
        "{\"format\": \"engraft surgery\", \"version\": 1, \"inputs\": [[1, 3]], \"before\": \"%s\","
        " \"after\": \"0000000000000000\", \"steps\": [{\"method\": \"activation_swap\"}]}";
    eg_module *m = three_linears();
    eg_surgery *s = eg_surgery_new(m);
    char *own = eg_surgery_recipe(s), text[512];
    assert_non_null(own);
    const char *before = strstr(own, "\"before\": \"");
    assert_non_null(before);
    char structure[17] = {0};
    memcpy(structure, before + strlen("\"before\": \""), 16);
    snprintf(text, sizeof(text), recipe, structure);
    assert_fails(eg_surgery_replay(s, text, false), EG_EINVAL, "has made a model of structure");
    assert_int_equal(s->n_inputs, 0);
    assert_int_equal(eg_surgery_size(s), 0);
    assert_ok(eg_surgery_check(s)); /* on inputs of 3 features it would fail */
    eg_free(own);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* A method that fails leaves no notes, and says its name also where it is limited to a class. */
static void failing_methods_say_their_name(void **state)
{
    (void)state;
    eg_module *m = three_linears();
    eg_surgery *s = eg_surgery_new(m);
    assert_fails(eg_surgery_apply_to(s, eg_fold_batch_norm(ctx), &eg_linear_class, NULL), EG_EUNSUPPORTED,
                 "fold_batch_norm");
    assert_fails(eg_surgery_apply_to(s, eg_ghost_norm(ctx), &eg_linear_class, ".."), EG_EINVAL, "ghost_batch_norm: ");
    assert_null(eg_surgery_note_at(s, 0));
    eg_surgery_free(s);
    eg_module_release(m);
}

/* A recipe of a method for one class makes the weights again that the method makes. */
static void recipes_keep_methods_for_classes(void **state)
{
    (void)state;
    eg_module *m = three_linears(), *again = eg_module_clone(m);
    eg_surgery *s = eg_surgery_new(m), *t = eg_surgery_new(again);
    assert_ok(eg_surgery_apply_to(s, eg_factorize(ctx, .rank = 1, .min_channels = 1), &eg_linear_class, "2, 4"));
    assert_ok(eg_surgery_commit(s));
    char *recipe = eg_surgery_recipe(s);
    assert_non_null(recipe);
    assert_non_null(strstr(recipe, "\"class\": \"Linear\""));
    assert_ok(eg_surgery_replay(t, recipe, false));
    assert_ok(eg_surgery_commit(t));
    eg_guard_report report;
    assert_ok(eg_compare_outputs(m, again, EG_SHAPES(EG_SHAPE(3, 4)), &report,
                                 &(eg_guard_options){.struct_size = sizeof(eg_guard_options), .tolerance = -1}));
    assert_int_equal(report.n_different, 0);
    eg_free(recipe);
    eg_surgery_free(s);
    eg_surgery_free(t);
    eg_module_release(m);
    eg_module_release(again);
}

/* Scores by chance go on in the surgery's stream, so that a recipe chooses the same units again. */
static void random_scores_are_done_again(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 16), eg_relu(ctx), eg_linear(ctx, 16, 16),
                                                 eg_relu(ctx), eg_linear(ctx, 16, 2)));
    eg_module *again = eg_module_clone(m);
    eg_surgery *s = eg_surgery_new(m, .root = &m, .inputs = EG_SHAPES(EG_SHAPE(1, 4)));
    eg_surgery *t = eg_surgery_new(again, .root = &again, .inputs = EG_SHAPES(EG_SHAPE(1, 4)));
    assert_ok(eg_surgery_apply(s, eg_prune_channels(ctx, .ratio = 0.5, .score = EG_IMPORTANCE_RANDOM), "0"));
    assert_ok(eg_surgery_apply(s, eg_prune_channels(ctx, .ratio = 0.5, .score = EG_IMPORTANCE_RANDOM), "2"));
    assert_ok(eg_surgery_commit(s));
    char *recipe = eg_surgery_recipe(s);
    assert_non_null(recipe);
    assert_ok(eg_surgery_replay(t, recipe, false));
    assert_ok(eg_surgery_commit(t));
    eg_guard_report report;
    assert_ok(eg_compare_outputs(m, again, EG_SHAPES(EG_SHAPE(3, 4)), &report,
                                 &(eg_guard_options){.struct_size = sizeof(eg_guard_options), .tolerance = -1}));
    assert_int_equal(report.n_different, 0);
    eg_free(recipe);
    eg_surgery_free(s);
    eg_surgery_free(t);
    eg_module_release(m);
    eg_module_release(again);
}

static eg_tensor *count_run(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)m;
    (void)t;
    (void)failed;
    ++*(size_t *)payload;
    return NULL;
}

/* A module that is planned again after it was dropped has each hook once. */
static void hooks_are_carried_once(void **state)
{
    (void)state;
    eg_module *m = three_linears(), *relu = *eg__slot_child(&m->slots[1]), *fresh = eg_gelu(ctx);
    size_t runs = 0;
    assert_ok(eg_module_add_hook(relu, count_run, &runs, NULL));
    eg_surgery *s = eg_surgery_new(m);
    for (int i = 0; i < 2; i++) {
        eg_surgery_drop(s);
        assert_ok(eg_surgery_put(s, relu, eg_module_retain(fresh), "again"));
    }
    assert_ok(eg_surgery_commit(s));
    assert_made(eg_call(m, eg_ones(ctx, EG_SHAPE(1, 4))));
    assert_int_equal(runs, 1);
    eg_surgery_free(s);
    eg_module_release(fresh);
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(derivations_chain_in_one_plan),    SURGERY_TEST(thawing_what_was_derived),
        SURGERY_TEST(training_after_a_check_counts),    SURGERY_TEST(freezing_at_paths_spares_what_others_need),
        SURGERY_TEST(refused_recipes_leave_no_inputs),  SURGERY_TEST(failing_methods_say_their_name),
        SURGERY_TEST(recipes_keep_methods_for_classes), SURGERY_TEST(random_scores_are_done_again),
        SURGERY_TEST(hooks_are_carried_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
