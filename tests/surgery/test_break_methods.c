/*
 * Methods where they have no business: layers that other methods have changed, classes that are not theirs, steps that
 * were counted between check and commit, two surgeries on one optimizer; and recipes of what depends on numbers.
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

/* States and steps that came between are not lost. */
static void steps_between_check_and_commit_count(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 3, 3), eg_relu(ctx), eg_linear(ctx, 3, 2)));
    eg_optimizer *o = eg_adam(m);
    eg_surgery *s = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o));
    assert_ok(eg_surgery_apply(s, eg_activation_swap(ctx), NULL));
    assert_ok(eg_surgery_check(s));
    train_step(m, o, EG_SHAPE(2, 3));
    uint64_t before = fingerprint(m, o);
    assert_ok(eg_surgery_commit(s));
    for (size_t i = 0; i < o->n_params; i++) {
        assert_int_equal(o->params[i].step, 1);
        assert_non_null(o->params[i].states[0]);
    }
    assert_ok(eg_surgery_undo(s));
    assert_true(fingerprint(m, o) == before);
    eg_surgery_free(s);
    eg_optimizer_free(o);
    eg_module_release(m);
}

/* The lists of an optimizer are exchanged in the order in which they were made. */
static void two_surgeries_undo_in_order(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 3, 4), eg_relu(ctx), eg_linear(ctx, 4, 2)));
    eg_optimizer *o = eg_adam(m);
    train_step(m, o, EG_SHAPE(2, 3));
    uint64_t before = fingerprint(m, o);
    eg_surgery *a = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o)),
               *b = eg_surgery_new(m, .optimizers = EG_OPTIMIZERS(o));
    assert_ok(eg_surgery_put(a, eg_module_find(m, "0"), eg_linear(ctx, 3, 4), NULL));
    assert_ok(eg_surgery_check(a));
    assert_ok(eg_surgery_put(b, eg_module_find(m, "2"), eg_linear(ctx, 4, 2), NULL));
    assert_ok(eg_surgery_commit(b));
    assert_ok(eg_surgery_commit(a)); /* which has been checked with the list before */
    assert_int_equal(times_in(o, eg_module_tensor(m, "0.weight")), 1);
    assert_int_equal(times_in(o, eg_module_tensor(m, "2.weight")), 1);
    assert_fails(eg_surgery_undo(b), EG_EINVAL, "another surgery has changed an optimizer since");
    assert_ok(eg_surgery_undo(a));
    assert_ok(eg_surgery_undo(b));
    assert_true(fingerprint(m, o) == before);
    eg_surgery_free(a);
    eg_surgery_free(b);
    eg_optimizer_free(o);
    eg_module_release(m);
}

static eg_tensor *double_it(void *payload, eg_module *m, eg_tensor *t, bool *failed)
{
    (void)payload;
    (void)m;
    (void)failed;
    return eg_affine(t, 2, 0);
}

/* A sum of weights is not what these compute. */
static void adapters_that_cannot_be_merged_stay(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        eg_module *m = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 4, 4, 3, .stride = 2, .padding = 1)));
        eg_surgery *s = eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(1, 4, 6, 6)));
        assert_ok(eg_surgery_apply(s, eg_low_rank(ctx, .rank = 2), NULL));
        assert_ok(eg_surgery_commit(s));
        assert_ok(eg_init_constant(eg_module_tensor(m, "0.lora_B.weight"), 0.5));
        if (kind == 0)
            assert_ok(eg_surgery_apply(s, eg_weight_standardization(ctx), "0.base_layer"));
        else if (kind == 1)
            assert_ok(eg_surgery_apply(s, eg_blur_pool(ctx, .min_channels = 1), NULL));
        else
            assert_ok(eg_module_add_hook(eg_module_find(m, "0.base_layer"), double_it, NULL, NULL));
        assert_ok(eg_surgery_commit(s));
        assert_ok(eg_surgery_apply(s, eg_merge_adapter(ctx), NULL));
        assert_false(eg_surgery_has_plan(s));
        size_t n = 0;
        while (eg_surgery_note_at(s, n) != NULL && strstr(eg_surgery_note_at(s, n), "leaves adapter 0") == NULL)
            n++;
        assert_non_null(eg_surgery_note_at(s, n)); /* what a method says of a module is not lost */
        eg_surgery_free(s);
        eg_module_release(m);
    }
}

/* Ghost batches need a norm. */
static void norms_in_ghost_batches_are_not_folded(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 1, 2, 3), eg_batch_norm2d(ctx, 2)));
    eg_surgery *s = eg_surgery_new(m, .inputs = EG_SHAPES(EG_SHAPE(2, 1, 5, 5)));
    assert_ok(eg_surgery_apply(s, eg_ghost_norm(ctx, .ghost_batch_size = 1), NULL));
    assert_ok(eg_surgery_apply(s, eg_fold_batch_norm(ctx), NULL));
    assert_ok(eg_surgery_commit(s));
    assert_int_equal(eg_count_module_instances(m, EG_CLASSES(&eg_batch_norm2d_class)), 1);
    eg_surgery_free(s);
    eg_module_release(m);
}

/* Classes that a method knows nothing of are left alone, whatever struct they have. */
static void methods_leave_strangers(void **state)
{
    (void)state;
    static const char *const calls[] = {"squeeze_excite(min_channels=1)", "ghost_batch_norm", "unwrap",
                                        "merge_adapter"};
    eg_module *inner = eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 2, 2), eg_relu(ctx), eg_linear(ctx, 2, 2)));
    eg_module *m = eg_sequential(ctx, EG_MODULES(inner, eg_relu(ctx)));
    eg_surgery *s = eg_surgery_new(m, .root = &m);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        assert_ok(eg_surgery_apply_to(s, eg_method_from_text(ctx, calls[i]), &eg_sequential_class, NULL));
        assert_ok(eg_surgery_apply_to(s, eg_method_from_text(ctx, calls[i]), &eg_relu_class, NULL));
        assert_false(eg_surgery_has_plan(s));
    }
    eg_surgery_free(s);
    eg_module_release(m);
}

/* A Sequential that has more than layers keeps it. */
static void sequences_with_tensors_stay(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_identity(ctx), eg_relu(ctx)));
    assert_ok(eg_module_add_buffer(m, "mean", NULL, eg_ones(ctx, EG_SHAPE(3))));
    eg_surgery *s = eg_surgery_new(m, .root = &m);
    assert_ok(eg_surgery_apply(s, eg_identity_elimination(ctx), NULL));
    assert_false(eg_surgery_has_plan(s));
    eg_surgery_free(s);
    eg_module_release(m);
}

/* Sizes that no integer holds. */
static void huge_options_are_no_numbers_of_channels(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_conv2d(ctx, 2, 2, 3)));
    eg_surgery *s = eg_surgery_new(m);
    assert_ok(eg_surgery_apply(s, eg_factorize(ctx, .rank = 1e300, .min_channels = 1), NULL));
    assert_false(eg_surgery_has_plan(s));
    assert_fails(eg_surgery_apply(s, eg_squeeze_excite(ctx, .latent_channels = 1e300, .min_channels = 1), NULL),
                 EG_EINVAL, "latent_channels");
    eg_surgery_free(s);
    eg_module_release(m);
}

static eg_module *make_net(void)
{
    eg_module *block = eg_residual_block(ctx, EG_NAMED({"body", eg_linear(ctx, 8, 8)}));
    return eg_sequential(ctx, EG_MODULES(eg_linear(ctx, 8, 8), block));
}

/* A recipe is for models with other numbers too, and knows options that are called as its own members. */
static void recipes_know_no_numbers(void **state)
{
    (void)state;
    eg_module *m = make_net(), *other = make_net();
    eg_surgery *s = eg_surgery_new(m, .root = &m);
    assert_ok(eg_surgery_apply(s, eg_stochastic_depth(ctx, .method = EG_BY_SAMPLE), NULL));
    assert_ok(eg_surgery_apply(s, eg_factorize(ctx, .rank = 2, .min_channels = 1), "0"));
    char *recipe = eg_surgery_recipe(s);
    assert_made(recipe);
    assert_ok(eg_module_apply_recipe(other, &other, recipe));
    assert_true(((eg_stochastic_residual *)eg_module_find(other, "1"))->by_sample);
    assert_int_equal(eg_count_module_instances(other, EG_CLASSES(&eg_factorized_class)), 1);
    assert_fails(
        eg_module_apply_recipe(other, &other,
                               "{\"format\": \"engraft surgery\", \"version\": 1, \"before\": \"\", \"steps\": "
                               "[{\"method\": \"unwrap\", \"options\": 1}]}"),
        EG_EINVAL, "structure");
    eg_free(recipe);
    eg_surgery_free(s);
    eg_surgery *odd = eg_surgery_new(m);
    assert_fails(eg_surgery_replay(odd,
                                   "{\"format\": \"engraft surgery\", \"version\": 1, \"steps\": [{\"method\": "
                                   "\"unwrap\", \"options\": 1}]}",
                                   true),
                 EG_EFORMAT, "'options' is no object");
    eg_surgery_free(odd);
    eg_module_release(m);
    eg_module_release(other);
}

static eg_status roll_back(void *payload, eg_module *root)
{
    (void)root;
    return eg_surgery_rollback(payload, 0);
}

/* What is in place must not be forgotten. */
static void a_look_is_no_time_to_roll_back(void **state)
{
    (void)state;
    eg_module *m = eg_sequential(ctx, EG_MODULES(eg_relu(ctx)));
    uint64_t before = fingerprint(m, NULL);
    eg_surgery *s = eg_surgery_new(m);
    assert_int_equal(eg_surgery_savepoint(s), 0);
    assert_ok(eg_surgery_apply(s, eg_activation_swap(ctx), NULL));
    assert_fails(eg_surgery_look(s, roll_back, s), EG_EINVAL, "while it is being looked at");
    assert_true(fingerprint(m, NULL) == before);
    assert_ok(eg_surgery_rollback(s, 0));
    assert_false(eg_surgery_has_plan(s));
    eg_surgery_free(s);
    eg_module_release(m);
}

/* As nn.h says. */
static void absent_tensors_are_none(void **state)
{
    (void)state;
    eg_module *m = eg_linear(ctx, 2, 2, .no_bias = true);
    assert_true(eg_is_none(eg_module_tensor(m, "bias")));
    assert_refused(eg_module_tensor(m, "bais"), EG_ENOENT, "bais");
    eg_module_release(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SURGERY_TEST(steps_between_check_and_commit_count),
        SURGERY_TEST(two_surgeries_undo_in_order),
        SURGERY_TEST(adapters_that_cannot_be_merged_stay),
        SURGERY_TEST(norms_in_ghost_batches_are_not_folded),
        SURGERY_TEST(methods_leave_strangers),
        SURGERY_TEST(sequences_with_tensors_stay),
        SURGERY_TEST(huge_options_are_no_numbers_of_channels),
        SURGERY_TEST(recipes_know_no_numbers),
        SURGERY_TEST(a_look_is_no_time_to_roll_back),
        SURGERY_TEST(absent_tensors_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
