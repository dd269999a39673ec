/*
 * Whole steps of training and of searching, and every function of train.h that hands something over: each allocation
 * fails once. A run that a failure ended goes on from what it left in its directory.
 */
#include "alloc_table.h"

#include "train/train_support.h"

enum { N_SAMPLES = 9, BATCH = 3 };

typedef struct world {
    alloc_world base;
    eg_module *model, *net; /* net: a supernet without a mutator */
    eg_dataset *data;
    eg_meter_group *meters;
    char *directory, run[TEMPORARY_PATH_SIZE], file[TEMPORARY_PATH_SIZE];
    char *text, *net_text;
} world;

static void setup(void *payload)
{
    world *w = payload;
    w->model = toy_model(w->base.ctx);
    w->net = toy_supernet(w->base.ctx);
    w->data = toy_data(w->base.ctx, N_SAMPLES, 1);
    w->meters = eg_meter_group_new();
    assert_ok(eg_meter_group_update(w->meters, "loss", 0.5, 2));
    w->directory = temporary_make();
    temporary_path(w->directory, "run", w->run);
    temporary_path(w->directory, "file", w->file);
    w->text = eg_module_text(w->model);
    w->net_text = eg_module_text(w->net);
    assert_true(w->text && w->net_text);
}

static void teardown(void *payload)
{
    world *w = payload;
    eg_module_release(w->model);
    eg_module_release(w->net);
    eg_dataset_release(w->data);
    eg_meter_group_free(w->meters);
    temporary_remove(w->directory);
    eg_free(w->text);
    eg_free(w->net_text);
}

static void check_module(eg_module *m, const char *expected)
{
    char *text = eg_module_text(m);
    assert_made(text);
    assert_string_equal(text, expected);
    eg_free(text);
    assert_int_equal(m->refs, 1);
    assert_true(m->training);
    assert_null(eg_mutable_mutator(m));
}

static void check(void *payload)
{
    world *w = payload;
    check_module(w->model, w->text);
    check_module(w->net, w->net_text);
    assert_int_equal(eg_dataset_size(w->data), N_SAMPLES);
    assert_int_equal(eg_meter_group_size(w->meters), 1);
    assert_false(eg_is_recording(w->base.ctx));
    assert_false(eg_context_canceled(w->base.ctx));
}

#define MAKES(row, type, make, release)                                                                                \
    static eg_status row(void *payload)                                                                                \
    {                                                                                                                  \
        world *w = payload;                                                                                            \
        (void)w;                                                                                                       \
        type *made = make;                                                                                             \
        eg_status status = alloc_made(made);                                                                           \
        release(made);                                                                                                 \
        return status;                                                                                                 \
    }

/* ---- one step ---- */

static eg_status forward_and_backward(eg_module *m, eg_optimizer *optimizer, const eg_batch *batch)
{
    eg_tape *tape = eg_tape_begin(m->ctx, EG_RECORD);
    EG_TRY(alloc_made(tape));
    eg_optimizer_zero_grad(optimizer);
    eg_status status = eg_backward(eg_f_cross_entropy(eg_call(m, batch->x), batch->y));
    if (status == EG_OK)
        status = eg_optimizer_clip_grad_norm(optimizer, 5, NULL);
    eg_tape_end(tape);
    return status == EG_OK ? eg_optimizer_step(optimizer) : status;
}

static eg_status step_with(world *w, eg_optimizer *optimizer, eg_loader *loader)
{
    EG_TRY(alloc_made(optimizer));
    EG_TRY(alloc_made(loader));
    eg_batch batch;
    EG_TRY(eg_loader_next(loader, &batch));
    return forward_and_backward(w->model, optimizer, &batch);
}

static eg_status step(void *payload)
{
    world *w = payload;
    eg_optimizer *optimizer = eg_sgd(w->model, .lr = 0.01, .momentum = 0.9);
    eg_loader *loader = optimizer ? eg_loader_new(w->data, BATCH) : NULL;
    eg_status status = step_with(w, optimizer, loader);
    eg_loader_free(loader);
    eg_optimizer_free(optimizer);
    return status;
}

static eg_status supernet_step(eg_strategy *strategy, eg_loader *loader)
{
    EG_TRY(alloc_made(strategy));
    EG_TRY(alloc_made(loader));
    eg_batch train, valid;
    EG_TRY(eg_loader_next(loader, &train));
    EG_TRY(eg_loader_next(loader, &valid));
    eg_step_result result;
    return strategy->cls->train_step(strategy, &train, &valid, &result);
}

static eg_status with_strategy(world *w, const char *name)
{
    eg_strategy_options options = {.struct_size = sizeof options};
    eg_optimizer *optimizer = eg_sgd(w->net, .lr = 0.01, .momentum = 0.9);
    eg_strategy *strategy =
        optimizer ? eg_strategy_new(eg_strategy_find(name), w->net, optimizer, NULL, &options) : NULL;
    eg_loader *loader = strategy ? eg_loader_new(w->data, BATCH) : NULL;
    eg_status status = supernet_step(strategy, loader);
    eg_loader_free(loader);
    eg_strategy_free(strategy);
    eg_optimizer_free(optimizer);
    return status;
}

static eg_status darts_step(void *payload)
{
    return with_strategy(payload, "darts");
}

static eg_status spos_step(void *payload)
{
    return with_strategy(payload, "spos");
}

/* ---- meters ---- */

MAKES(meter_text, char, eg_meter_group_text(w->meters), eg_free)
MAKES(meter_summary, char, eg_meter_group_summary(w->meters), eg_free)

static eg_status meters(void *payload)
{
    (void)payload;
    eg_meter_group *group = eg_meter_group_new();
    eg_status status = alloc_made(group);
    for (int i = 0; i < 20 && status == EG_OK; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        status = eg_meter_group_update(group, name, 1, 1);
    }
    eg_meter_group_free(group);
    return status;
}

/* ---- callbacks ---- */

static const eg_callback_class idle_class = {.struct_size = sizeof(eg_callback_class), .name = "idle"};

MAKES(callback, eg_callback, eg_callback_new(&idle_class, NULL), eg_callback_free)
MAKES(architecture_checkpoint, eg_callback, eg_architecture_checkpoint(w->run), eg_callback_free)
MAKES(model_checkpoint, eg_callback, eg_model_checkpoint(w->run), eg_callback_free)

static eg_status scheduler_callback(void *payload)
{
    world *w = payload;
    eg_optimizer *optimizer = eg_sgd(w->model, .lr = 0.1);
    eg_scheduler *scheduler = optimizer ? eg_cosine_lr(optimizer, 10, 0) : NULL;
    eg_callback *made = scheduler ? eg_lr_scheduler_callback(scheduler, EG_PER_EPOCH) : NULL;
    eg_status status = alloc_made(made);
    eg_callback_free(made);
    eg_optimizer_free(optimizer);
    return status;
}

/* ---- trainers: of a clone ---- */

static eg_status with_trainer(world *w, eg_status (*use)(world *w, eg_trainer *trainer), const char *run,
                              bool callbacks)
{
    eg_module *m = eg_module_clone(w->model);
    EG_TRY(alloc_made(m));
    eg_callback *list[] = {callbacks ? eg_model_checkpoint(w->directory) : NULL,
                           callbacks ? eg_callback_new(&idle_class, NULL) : NULL};
    const eg_transform flip = eg_random_flip(0.5);
    eg_trainer *trainer =
        eg_trainer_new(w->base.ctx, m, w->data, .validation = w->data, .epochs = 1, .batch_size = BATCH,
                       .transforms = &flip, .n_transforms = 1, .callbacks = list, .n_callbacks = callbacks ? 2 : 0,
                       .log_frequency = 1, .run = run, .resume = true, .checkpoint_seconds = 1e-9);
    eg_status status = alloc_made(trainer);
    if (status == EG_OK && use)
        status = use(w, trainer);
    eg_trainer_free(trainer);
    eg_module_release(m);
    return status;
}

static eg_status trainer_new(void *payload)
{
    return with_trainer(payload, NULL, NULL, true);
}

static eg_status train(world *w, eg_trainer *trainer)
{
    (void)w;
    return eg_trainer_train(trainer);
}

static eg_status trainer_train(void *payload)
{
    return with_trainer(payload, train, NULL, true);
}

static eg_status trainer_run(void *payload)
{
    return with_trainer(payload, train, ((world *)payload)->run, false);
}

static eg_status validate(world *w, eg_trainer *trainer)
{
    (void)w;
    return eg_trainer_validate(trainer);
}

static eg_status trainer_validate(void *payload)
{
    return with_trainer(payload, validate, NULL, false);
}

static eg_status checkpoint(world *w, eg_trainer *trainer)
{
    EG_TRY(eg_trainer_set_recipe(trainer, "{\"format\": \"engraft surgery\"}"));
    EG_TRY(eg_trainer_checkpoint(trainer, w->file));
    char *recipe = eg_checkpoint_recipe(w->base.ctx, w->file);
    eg_free(recipe);
    if (recipe == NULL)
        return eg_error_last()->code;
    return eg_trainer_restore(trainer, w->file);
}

static eg_status trainer_checkpoint(void *payload)
{
    return with_trainer(payload, checkpoint, NULL, false);
}

static eg_status export_arch(void *payload)
{
    world *w = payload;
    eg_mutator *mutator = eg_random_mutator_new(w->net);
    eg_trainer *trainer = mutator ? eg_trainer_new(w->base.ctx, w->net, w->data, .epochs = 1) : NULL;
    eg_status status = alloc_made(trainer);
    if (status == EG_OK)
        status = eg_trainer_export(trainer, w->file);
    eg_trainer_free(trainer);
    eg_mutator_detach(mutator);
    return status;
}

static eg_status evaluate(void *payload)
{
    world *w = payload;
    return isnan(eg_evaluate(w->model, w->data, BATCH)) ? eg_error_last()->code : EG_OK;
}

/* ---- searches: of a clone ---- */

static eg_status use_search(world *w, eg_search *search)
{
    EG_TRY(eg_search_run(search));
    EG_TRY(alloc_made(eg_search_arch(search)));
    return eg_search_export(search, w->file);
}

static eg_status with_search(world *w, const char *strategy, eg_status (*use)(world *w, eg_search *search),
                             const char *run)
{
    eg_module *net = eg_module_clone(w->net);
    EG_TRY(alloc_made(net));
    eg_search *search = eg_search_new(w->base.ctx, net, w->data, .strategy = strategy, .epochs = 1, .batch_size = BATCH,
                                      .strategy_options = {.evaluations = 3, .population = 2}, .run = run,
                                      .resume = true, .checkpoint_seconds = 1e-9);
    eg_status status = alloc_made(search);
    if (status == EG_OK && use)
        status = use(w, search);
    eg_search_free(search);
    eg_module_release(net);
    return status;
}

static eg_status search_new(void *payload)
{
    return with_search(payload, "darts", NULL, NULL);
}

static eg_status search_darts(void *payload)
{
    return with_search(payload, "darts", use_search, ((world *)payload)->run);
}

static eg_status search_spos(void *payload)
{
    return with_search(payload, "spos", use_search, ((world *)payload)->run);
}

static eg_status show_search(world *w, eg_search *search)
{
    EG_TRY(eg_search_enable_visualization(search, w->run));
    return eg_search_run(search);
}

static eg_status search_shown(void *payload)
{
    return with_search(payload, "spos", show_search, NULL);
}

static eg_status search_random(void *payload)
{
    return with_search(payload, "random", use_search, ((world *)payload)->run);
}

static eg_status predict(world *w, eg_search *search)
{
    (void)w;
    eg_memory_estimate estimate;
    EG_TRY(eg_search_memory(search, EG_MEMORY_NORMAL, &estimate));
    return eg_search_memory(search, EG_MEMORY_LOW, &estimate);
}

static eg_status search_memory(void *payload)
{
    return with_search(payload, "darts", predict, NULL);
}

/* ---- run directories ---- */

static eg_status run_directory(void *payload)
{
    world *w = payload;
    EG_TRY(eg_run_create(w->run, "{\"command\": \"search\", \"epochs\": 3}", true));
    EG_TRY(eg_run_event(w->run, "start", NULL));
    EG_TRY(eg_run_event(w->run, "epoch", "{\"loss\": 0.5}"));
    char *text = eg_run_load(w->run);
    eg_status status = alloc_made(text);
    eg_free(text);
    return status;
}

/* ---- the tables ---- */

static const alloc_row steps[] = {
    {"a training step", step, false},
    {"a supernet step (darts)", darts_step, false},
    {"a supernet step (spos)", spos_step, false},
    {"eg_search_memory", search_memory, false}, /* last: `ref` would compute */
};

static const alloc_row rows[] = {
    {"eg_meter_group_new eg_meter_group_update", meters, false},
    {"eg_meter_group_text", meter_text, false},
    {"eg_meter_group_summary", meter_summary, false},
    {"eg_callback_new", callback, false},
    {"eg_architecture_checkpoint", architecture_checkpoint, false},
    {"eg_model_checkpoint", model_checkpoint, false},
    {"eg_lr_scheduler_callback", scheduler_callback, false},
    {"eg_trainer_new_with", trainer_new, false},
    {"eg_trainer_train", trainer_train, false},
    {"eg_trainer_train (run)", trainer_run, true},
    {"eg_trainer_validate", trainer_validate, false},
    {"eg_trainer_checkpoint eg_trainer_restore eg_checkpoint_recipe", trainer_checkpoint, true},
    {"eg_trainer_export", export_arch, false},
    {"eg_evaluate", evaluate, false},
    {"eg_search_new_with", search_new, false},
    {"eg_search_run (darts)", search_darts, true},
    {"eg_search_run (spos)", search_spos, true},
    {"eg_search_run (random)", search_random, true},
    {"eg_search_enable_visualization", search_shown, true},
    {"eg_run_create eg_run_load eg_run_event", run_directory, true},
};

enum { N_STEPS = sizeof steps / sizeof steps[0], N_REF = N_STEPS - 1, N_ROWS = sizeof rows / sizeof rows[0] };

#define TABLE(backend_, rows_, n, dense_)                                                                              \
    {                                                                                                                  \
        .backend = backend_, .world_size = sizeof(world), .setup = setup, .teardown = teardown, .check = check,        \
        .rows = rows_, .n_rows = n, .dense = dense_                                                                    \
    }

static const alloc_table ref_steps = TABLE("ref", steps, N_REF, 150), dnnl_steps = TABLE("dnnl", steps, N_STEPS, 100),
                         table = TABLE("ref", rows, N_ROWS, 30);

static void test_complete(void **unused)
{
    (void)unused;
    alloc_check_complete(&table, "train.h",
                         "eg_trainer_model eg_trainer_optimizer eg_trainer_payload eg_trainer_loader "
                         "eg_trainer_epoch_meters eg_trainer_log_directory eg_search_log_directory");
}

int main(void)
{
    if (!alloc_prepare())
        return 1;
    static alloc_target targets[N_REF + N_STEPS + N_ROWS];
    struct CMUnitTest tests[N_REF + N_STEPS + N_ROWS + 1] = {[N_REF + N_STEPS + N_ROWS] =
                                                                 cmocka_unit_test(test_complete)};
    alloc_make_tests(&ref_steps, tests, targets);
    alloc_make_tests(&dnnl_steps, tests + N_REF, targets + N_REF);
    alloc_make_tests(&table, tests + N_REF + N_STEPS, targets + N_REF + N_STEPS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
