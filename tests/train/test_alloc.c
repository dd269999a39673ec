/*
 * Training and searching when memory runs out: each allocation fails in turn, and nothing breaks, leaks or goes unsaid.
 */
#include "alloc_table.h"
#include "train_support.h"

typedef struct world {
    alloc_world base;
    eg_module *model, *supernet;
    eg_dataset *data;
    char *directory;
    char path[TEMPORARY_PATH_SIZE];
} world;

static void setup(void *payload)
{
    world *w = payload;
    w->model = eg_sequential(
        w->base.ctx, EG_MODULES(eg_flatten(w->base.ctx), eg_linear(w->base.ctx, TOY_SIDE * TOY_SIDE, TOY_CLASSES)));
    w->supernet = eg_sequential(
        w->base.ctx, EG_MODULES(eg_layer_choice(w->base.ctx,
                                                EG_CHOICES({"norm", eg_batch_norm2d(w->base.ctx, 1)},
                                                           {"skip", eg_identity(w->base.ctx)}),
                                                .key = "first"),
                                eg_flatten(w->base.ctx), eg_linear(w->base.ctx, TOY_SIDE * TOY_SIDE, TOY_CLASSES)));
    assert_made(w->model);
    assert_made(w->supernet);
    w->data = toy_data(w->base.ctx, 8, 1);
    w->directory = temporary_make();
    temporary_path(w->directory, "file", w->path);
}

static void teardown(void *payload)
{
    world *w = payload;
    eg_dataset_release(w->data);
    eg_module_release(w->model);
    eg_module_release(w->supernet);
    temporary_remove(w->directory);
}

static void check(void *payload)
{
    world *w = payload;
    assert_int_equal(w->model->refs, 1);
    assert_int_equal(w->supernet->refs, 1);
    assert_null(eg_module_mutator(w->supernet));
}

static eg_status meters(void *payload)
{
    (void)payload;
    eg_meter_group *group = eg_meter_group_new();
    eg_status status = alloc_made(group);
    if (status == EG_OK)
        status = eg_meter_group_update(group, "loss", 1, 1);
    char *text = status == EG_OK ? eg_meter_group_text(group) : NULL,
         *summary = text ? eg_meter_group_summary(group) : NULL;
    if (status == EG_OK)
        status = alloc_made(summary);
    eg_free(text);
    eg_free(summary);
    eg_meter_group_free(group);
    return status;
}

/* One epoch with all built-in callbacks, a checkpoint and going on from it. */
static eg_status training(void *payload)
{
    world *w = payload;
    eg_callback *save = eg_model_checkpoint(w->directory);
    if (!save)
        return eg_error_last()->code;
    eg_trainer *trainer = eg_trainer_new(w->base.ctx, w->model, w->data, .validation = w->data, .epochs = 1,
                                         .batch_size = 4, .run = w->directory, .callbacks = &save, .n_callbacks = 1);
    eg_status status = trainer ? eg_trainer_train(trainer) : eg_error_last()->code;
    if (status == EG_OK)
        status = eg_trainer_checkpoint(trainer, w->path);
    if (status == EG_OK)
        status = eg_trainer_restore(trainer, w->path);
    eg_trainer_free(trainer);
    return status;
}

static eg_status searching(void *payload)
{
    world *w = payload;
    eg_search *search =
        eg_search_new(w->base.ctx, w->supernet, w->data, .strategy = "spos", .epochs = 1, .batch_size = 4,
                      .run = w->directory, .strategy_options = {.evaluations = 2, .population = 2});
    eg_status status = search ? eg_search_run(search) : eg_error_last()->code;
    eg_search_free(search);
    if (status == EG_OK) {
        search =
            eg_search_new(w->base.ctx, w->supernet, w->data, .strategy = "spos", .epochs = 1, .batch_size = 4,
                          .run = w->directory, .strategy_options = {.evaluations = 2, .population = 2}, .resume = true);
        status = search ? eg_search_run(search) : eg_error_last()->code;
        eg_search_free(search);
    }
    return status;
}

static eg_status evaluating(void *payload)
{
    world *w = payload;
    return isnan(eg_evaluate(w->model, w->data, 4)) ? eg_error_last()->code : EG_OK;
}

static eg_status running(void *payload)
{
    world *w = payload;
    EG_TRY(eg_run_create(w->directory, "{\"seed\": 1}", true));
    EG_TRY(eg_run_event(w->directory, "epoch", "{\"loss\": 1}"));
    char *text = eg_run_load(w->directory);
    eg_free(text);
    return alloc_made(text);
}

static const alloc_row rows[] = {
    {"eg_meter_group_new eg_meter_group_text eg_meter_group_summary", meters},
    {"eg_trainer_new_with eg_model_checkpoint eg_lr_scheduler_callback", training},
    {"eg_search_new_with", searching},
    {"eg_evaluate", evaluating},
    {"eg_run_create eg_run_load", running},
};

static const alloc_table table = {"ref", sizeof(world), setup, teardown, check, rows, sizeof rows / sizeof rows[0]};

int main(void)
{
    struct CMUnitTest tests[sizeof rows / sizeof rows[0]];
    alloc_target targets[sizeof rows / sizeof rows[0]];
    if (!alloc_prepare())
        return 1;
    alloc_make_tests(&table, tests, targets);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
