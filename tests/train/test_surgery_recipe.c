/* Checkpoints of models that a surgery has changed: the recipe is in them, and makes the model again. */
#include "train_support.h"

#include "engraft/surgery_report.h"

static eg_module *widen(void *payload, eg_module *m, size_t index)
{
    (void)payload;
    (void)index;
    return eg_sequential(m->ctx, EG_MODULES(eg_module_retain(m), eg_gelu(m->ctx)));
}

/* The toy model with every convolution or linear layer wrapped; its recipe. */
static char *operate(eg_module *model)
{
    eg_surgery *s = eg_surgery_new(model);
    assert_ok(eg_surgery_replace(s, EG_POLICIES({.cls = &eg_linear_class, .replace = widen}), false));
    assert_true(eg_surgery_size(s) > 0);
    assert_ok(eg_surgery_commit(s));
    char *recipe = eg_surgery_recipe(s);
    assert_made(recipe);
    eg_surgery_free(s);
    return recipe;
}

static eg_trainer *make_trainer(eg_context *ctx, eg_module *model, eg_dataset *data, const char *run, bool resume)
{
    return eg_trainer_new(ctx, model, data, .epochs = 1, .batch_size = 16, .run = run, .resume = resume);
}

/* 4.21 of the reference's cases: whoever loads a checkpoint without the surgery is told, and can do it from there. */
static void test_recipe_in_checkpoints(void **state)
{
    (void)state;
    char *run = temporary_make(), path[TEMPORARY_PATH_SIZE], plain[TEMPORARY_PATH_SIZE];
    temporary_path(run, "checkpoint/last.safetensors", path);
    temporary_path(run, "plain.safetensors", plain);
    eg_context *ctx = eg_context_new(.seed = 7, .threads = 1);
    eg_dataset *data = toy_data(ctx, 48, 1);
    eg_module *model = toy_model(ctx), *again = toy_model(ctx);
    char *recipe = operate(model);
    eg_trainer *trainer = make_trainer(ctx, model, data, run, false);
    assert_made(trainer);
    assert_ok(eg_trainer_set_recipe(trainer, recipe));
    assert_ok(eg_trainer_train(trainer));
    eg_trainer_free(trainer);

    char *found = eg_checkpoint_recipe(ctx, path);
    assert_made(found);
    assert_string_equal(found, recipe);
    assert_refused(make_trainer(ctx, again, data, run, true), EG_ENOENT, "missing from the state");
    assert_ok(eg_module_apply_recipe(again, NULL, found));
    trainer = make_trainer(ctx, again, data, run, true);
    assert_made(trainer);
    eg_model_diff *d = eg_model_diff_new(model, again);
    assert_int_equal(eg_model_diff_size(d), 0);
    eg_model_diff_free(d);
    /* it goes on into the checkpoints of whoever goes on */
    assert_ok(eg_trainer_checkpoint(trainer, path));
    eg_free(found);
    found = eg_checkpoint_recipe(ctx, path);
    assert_string_equal(found, recipe);
    eg_free(found);
    assert_ok(eg_trainer_set_recipe(trainer, NULL));
    assert_ok(eg_trainer_checkpoint(trainer, path));
    assert_null(eg_checkpoint_recipe(ctx, path));
    assert_int_equal(eg_error_last()->code, EG_OK);
    assert_ok(eg_module_save(again, plain));
    assert_null(eg_checkpoint_recipe(ctx, plain));
    assert_int_equal(eg_error_last()->code, EG_OK);
    assert_refused(eg_checkpoint_recipe(ctx, "/nonexistent"), EG_ENOENT, "/nonexistent");
    assert_refused(eg_checkpoint_recipe(NULL, path), EG_EINVAL, "context");
    assert_fails(eg_trainer_set_recipe(NULL, recipe), EG_EINVAL, "trainer");
    assert_fails(eg_trainer_set_recipe(trainer, "\xff"), EG_EINVAL, "UTF-8");
    eg_trainer_free(trainer);
    eg_free(recipe);
    eg_module_release(again);
    eg_module_release(model);
    eg_dataset_release(data);
    eg_context_free(ctx);
    temporary_remove(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recipe_in_checkpoints)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
