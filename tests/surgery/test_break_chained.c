/*
 * Methods planned on top of one another before anything is committed: each works on what the one before has planned,
 * and what is made from something that is only planned is trained like what that was made from.
 */
#include "surgery_support.h"

#include "engraft/methods.h"
#include "engraft/surgery_report.h"

static void train_step(eg_module *m, eg_optimizer *o, eg_shape input)
{
    eg_tape *tape = eg_tape_begin(ctx, EG_RECORD);
    eg_tensor *y = eg_call(m, eg_ones(ctx, input));
    assert_ok(eg_backward(eg_mean(eg_mul(y, y))));
    eg_tape_end(tape);
    assert_ok(eg_optimizer_step(o));
    eg_optimizer_zero_grad(o);
}

static eg_status is_in(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    if (kind == EG_SLOT_PARAMETER && times_in(payload, t) != (size_t)t->requires_grad)
        fail_msg("'%s' is %strained", path, t->requires_grad ? "" : "not ");
    return EG_OK;
}

/* Widened, then factorized: the factors' moments come from those of the layer, by way of the wide one. */
static void what_is_derived_twice_is_trained(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 6, 8), eg_relu(ctx), eg_linear(ctx, 8, 3)));
    eg_optimizer *o = eg_adam(m);
    train_step(m, o, EG_SHAPE(2, 6));
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o), .inputs = EG_SHAPES(EG_SHAPE(2, 6)));
    assert_ok(eg_surgery_apply(s, eg_widen(ctx, .ratio = 1), NULL));
    assert_ok(eg_surgery_apply(s, eg_factorize(ctx, .rank = 1, .min_channels = 1), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_factorized_class)), 2);
    assert_ok(eg_module_walk_tensors(m, is_in, o));
    for (size_t i = 0; i < o->n_params; i++) {
        assert_int_equal(o->params[i].step, 1);
        assert_non_null(o->params[i].states[0]);
        assert_true(eg_shape_equal(o->params[i].states[0]->shape, o->params[i].tensor->shape));
    }
    train_step(m, o, EG_SHAPE(2, 6));
    assert_ok(eg_surgery_undo(s));
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

/* All layers are new, so no neighbour of the new head is in the optimizer itself. */
static void a_new_head_has_planned_neighbours(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 4, .no_bias = true), eg_relu(ctx), eg_identity(ctx),
                                                 eg_linear(ctx, 4, 2, .no_bias = true)));
    eg_optimizer *o = eg_sgd(m, .lr = 0.1);
    eg_surgery *s = eg_surgery_new(m, .root = &m, .optimizers = EG_OPTIMIZERS(o), .inputs = EG_SHAPES(EG_SHAPE(2, 4)));
    assert_ok(eg_surgery_apply(s, eg_widen(ctx, .ratio = 1), NULL));
    assert_ok(eg_surgery_apply(s, eg_new_head(ctx, .classes = 5), NULL));
    assert_ok(eg_surgery_apply(s, eg_drop_layers(ctx, .first = 2), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_tensor_size(eg_module_tensor(m, "2.weight"), 0), 5);
    assert_ok(eg_module_walk_tensors(m, is_in, o));
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

/* What the Sequential holds as planned, not what it held before. */
static void layers_are_those_that_are_planned(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 4), eg_relu(ctx), eg_identity(ctx)));
    eg_surgery *s = eg_surgery_new(m, .root = &m);
    assert_ok(eg_surgery_apply(s, eg_activation_swap(ctx), NULL));
    assert_ok(eg_surgery_apply(s, eg_duplicate_layers(ctx, .first = 1), NULL));
    assert_ok(eg_surgery_apply(s, eg_drop_layers(ctx, .first = 3), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_silu_class)), 2);
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_relu_class)), 0);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* The output layer of an attention that loses heads is the planned one. */
static void resized_modules_hold_what_is_planned(void **state)
{
    (void)state;
    eg_module *m =
        eg_sequential(ctx, EG_MODULES(eg_multihead_attention(ctx, 12, 4, .batch_first = true), eg_linear(ctx, 12, 3)));
    eg_surgery *s = eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(2, 5, 12)));
    assert_ok(eg_surgery_put(s, eg_module_find(m, "0.out_proj"), eg_linear(ctx, 12, 12, .no_bias = true), NULL));
    assert_ok(eg_surgery_apply(s, eg_prune_heads(ctx, .ratio = 0.5), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_true(((eg_linear *)eg_module_find(m, "0.out_proj"))->no_bias);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* Frozen by the plan, so the layer that both become is frozen too. */
static void flags_are_those_that_are_planned(void **state)
{
    (void)state;
    eg_module *both =
        eg_residual_block(ctx, EG_NAMED({"body", eg_linear(ctx, 4, 3)}, {"shortcut", eg_linear(ctx, 4, 3)}));
    eg_module *m = eg_sequential(ctx, EG_MODULES(both, eg_linear(ctx, 3, 2)));
    eg_optimizer *o = eg_sgd(m, .lr = 0.1);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o), .inputs = EG_SHAPES(EG_SHAPE(2, 4)));
    assert_ok(eg_surgery_apply(s, eg_layer_freezing(ctx), "0.**"));
    assert_ok(eg_surgery_apply(s, eg_fuse_parallel_linear(ctx), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_false(eg_module_tensor(m, "0.body.linear.weight")->requires_grad);
    assert_int_equal(o->n_params, 2);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

static eg_module *make_tied(void)
{
    eg_linear *a = EG_CAST(eg_linear(ctx, 4, 4), eg_linear), *b = EG_CAST(eg_linear(ctx, 4, 4), eg_linear);
    eg_tensor_release(b->weight);
    b->weight = eg_tensor_keep(a->weight);
    return eg_sequential(ctx, EG_MODULES(&a->base, eg_relu(ctx), &b->base));
}

/* A parameter that two layers have is frozen once. */
static void tied_layers_get_adapters(void **state)
{
    (void)state;
    eg_module *m = make_tied();
    eg_optimizer *o = eg_sgd(m, .lr = 0.1);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o));
    assert_ok(eg_surgery_apply(s, eg_low_rank(ctx, .rank = 1), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(o->n_params, 4);
    assert_ok(eg_module_walk_tensors(m, is_in, o));
    assert_ok(eg_surgery_undo(s));
    assert_int_equal(o->n_params, 3);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

/* At paths too, what another layer needs is trained on; and all layers can be thawed when none is trained. */
static void freezing_heeds_ties_and_thaws(void **state)
{
    (void)state;
    eg_module *m = make_tied();
    eg_optimizer *o = eg_sgd(m, .lr = 0.1);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o));
    assert_ok(eg_surgery_apply(s, eg_layer_freezing(ctx), "0"));
    assert_ok(eg_surgery_commit(s));
    assert_true(eg_module_tensor(m, "2.weight")->requires_grad);
    assert_false(eg_module_tensor(m, "0.bias")->requires_grad);
    assert_ok(eg_surgery_apply(s, eg_layer_freezing(ctx), "**"));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(o->n_params, 0);
    assert_ok(eg_surgery_apply(s, eg_layer_freezing(ctx, .unfreeze = true), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(o->n_params, 3);
    assert_ok(eg_module_walk_tensors(m, is_in, o));
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

/* What was frozen, resized and thawed in one plan is trained. */
static void thawed_after_resizing(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 8), eg_relu(ctx), eg_linear(ctx, 8, 2)));
    eg_optimizer *o = eg_sgd(m, .lr = 0.1);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o), .inputs = EG_SHAPES(EG_SHAPE(2, 4)));
    assert_ok(eg_surgery_apply(s, eg_layer_freezing(ctx), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_ok(eg_surgery_apply(s, eg_prune_channels(ctx, .ratio = 0.5), NULL));
    assert_ok(eg_surgery_apply(s, eg_layer_freezing(ctx, .unfreeze = true), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_ok(eg_module_walk_tensors(m, is_in, o));
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

/* Thawed first, then made into others. */
static void what_comes_from_thawed_layers_is_trained(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 4, 8), eg_relu(ctx), eg_linear(ctx, 8, 2)));
    eg_optimizer *o = eg_sgd(m, .lr = 0.1);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o));
    assert_ok(eg_surgery_apply(s, eg_layer_freezing(ctx), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_ok(eg_surgery_apply(s, eg_layer_freezing(ctx, .unfreeze = true), NULL));
    assert_ok(eg_surgery_apply(s, eg_factorize(ctx, .rank = 1, .min_channels = 1), "0"));
    assert_ok(eg_surgery_commit(s));
    assert_ok(eg_module_walk_tensors(m, is_in, o));
    assert_ok(eg_surgery_undo(s));
    eg_surgery_drop(s);
    assert_ok(eg_surgery_apply(s, eg_layer_freezing(ctx, .unfreeze = true), NULL));
    assert_ok(eg_surgery_replace(
        s, EG_POLICIES({.cls = &eg_linear_class, .replace = same_linear, .at = "0", .without = EG_CARRY_WEIGHTS}),
        false));
    assert_ok(eg_surgery_commit(s));
    assert_ok(eg_module_walk_tensors(m, is_in, o));
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(what_is_derived_twice_is_trained),
        SURGERY_TEST(a_new_head_has_planned_neighbours),
        SURGERY_TEST(layers_are_those_that_are_planned),
        SURGERY_TEST(resized_modules_hold_what_is_planned),
        SURGERY_TEST(flags_are_those_that_are_planned),
        SURGERY_TEST(tied_layers_get_adapters),
        SURGERY_TEST(freezing_heeds_ties_and_thaws),
        SURGERY_TEST(thawed_after_resizing),
        SURGERY_TEST(what_comes_from_thawed_layers_is_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
