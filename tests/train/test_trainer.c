/* Trainers: learning, validation, checkpoints that make no difference, failures. */
#include "train_support.h"

typedef struct plan {
    int64_t epochs;
    const char *run;
    bool resume;
    int64_t cancel_epoch, cancel_batch; /* stops after this batch; batch -1 = never */
    double checkpoint_seconds;
    int workers;
    double lr;
} plan;

static eg_status cancel_on_batch_end(eg_callback *self, int64_t epoch, int64_t batch)
{
    const plan *p = self->payload;
    if (p->cancel_batch >= 0 && epoch == p->cancel_epoch && batch == p->cancel_batch)
        eg_context_cancel(eg_trainer_model(self->trainer)->ctx);
    return EG_OK;
}

static const eg_callback_class cancel_class = {
    .struct_size = sizeof(eg_callback_class), .name = "cancel", .on_batch_end = cancel_on_batch_end};

/* Trains the toy model from scratch or a checkpoint; writes the weights to `weights` when it gets to the end. */
static eg_status train(const plan *p, const char *weights)
{
    eg_context *ctx = eg_context_new(.seed = 7, .threads = 1);
    eg_dataset *data = toy_data(ctx, 47, 1), *held_out = toy_data(ctx, 20, 2);
    eg_module *model = toy_model(ctx);
    const eg_transform flip = eg_random_flip(0.5);
    eg_callback *cancel = eg_callback_new(&cancel_class, (void *)(uintptr_t)p);
    eg_trainer *trainer = eg_trainer_new(ctx, model, data, .validation = held_out, .epochs = p->epochs, .batch_size = 8,
                                         .workers = p->workers, .transforms = &flip, .n_transforms = 1,
                                         .callbacks = &cancel, .n_callbacks = 1, .seed = 3, .run = p->run,
                                         .resume = p->resume, .checkpoint_seconds = p->checkpoint_seconds, .lr = p->lr);
    eg_status status = trainer ? eg_trainer_train(trainer) : eg_error_last()->code;
    if (status == EG_OK)
        status = eg_module_save(model, weights);
    eg_trainer_free(trainer);
    eg_module_release(model);
    eg_dataset_release(data);
    eg_dataset_release(held_out);
    eg_context_free(ctx);
    return status;
}

static const plan whole = {.epochs = 4, .cancel_batch = -1};

static void test_learns(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 7);
    eg_dataset *data = toy_data(ctx, 96, 1), *held_out = toy_data(ctx, 60, 2);
    eg_module *model = toy_model(ctx);
    double before = eg_evaluate(model, held_out, 16);
    assert_in_range((uintmax_t)(before * 1000), 0, 750);
    eg_trainer *trainer = eg_trainer_new(ctx, model, data, .validation = held_out, .epochs = 6, .batch_size = 16);
    assert_made(trainer);
    assert_ok(eg_trainer_train(trainer));
    const eg_meter *acc1 = eg_meter_group_get(eg_trainer_meters(trainer), "acc1");
    assert_made(acc1);
    double after = acc1->avg;
    assert_true(after > 0.9);
    assert_int_equal(acc1->count, 60);
    assert_close(eg_evaluate(model, held_out, 7), after, 1e-12);
    assert_false(model->training);
    assert_ok(eg_trainer_validate(trainer));
    assert_close(eg_meter_group_get(eg_trainer_meters(trainer), "acc1")->avg, after, 1e-12);
    eg_trainer_free(trainer);
    eg_module_release(model);
    eg_dataset_release(data);
    eg_dataset_release(held_out);
    eg_context_free(ctx);
}

/* The default schedule: up over the first twentieth, then down to 0. */
static void test_default_schedule(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 7);
    eg_dataset *data = toy_data(ctx, 40, 1);
    eg_module *model = toy_model(ctx);
    eg_trainer *trainer = eg_trainer_new(ctx, model, data, .epochs = 8, .batch_size = 8, .lr = 0.1);
    assert_made(trainer);
    assert_true(eg_optimizer_lr(eg_trainer_optimizer(trainer), 0) < 0.1);
    assert_ok(eg_trainer_train(trainer));
    assert_close(eg_optimizer_lr(eg_trainer_optimizer(trainer), 0), 0, 1e-12);
    assert_int_equal(eg_meter_group_get(eg_trainer_meters(trainer), "loss")->count, 40);
    eg_trainer_free(trainer);
    eg_module_release(model);
    eg_dataset_release(data);
    eg_context_free(ctx);
}

static void test_resume_everywhere(void **state)
{
    (void)state;
    char *directory = temporary_make(), expected[TEMPORARY_PATH_SIZE], got[TEMPORARY_PATH_SIZE],
         run[TEMPORARY_PATH_SIZE], name[32];
    temporary_path(directory, "expected", expected);
    temporary_path(directory, "got", got);
    assert_ok(train(&whole, expected));
    /* 47 samples in batches of 8: 5 batches an epoch */
    const int64_t stops[][2] = {{0, 0}, {0, 3}, {1, 4}, {2, 0}, {3, 2}, {3, 4}};
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        snprintf(name, sizeof name, "run%zu", i);
        plan p = {.epochs = 4,
                  .run = temporary_path(directory, name, run),
                  .cancel_epoch = stops[i][0],
                  .cancel_batch = stops[i][1]};
        assert_fails(train(&p, got), EG_ECANCELED, "canceled");
        p.cancel_batch = -1;
        p.resume = true;
        p.workers = i % 2 == 0 ? 0 : 2;
        assert_ok(train(&p, got));
        assert_same_file(expected, got);
        remove(got);
        assert_ok(train(&p, got)); /* once more: it is done, and stays as it was */
        assert_same_file(expected, got);
    }
    temporary_remove(directory);
}

static void test_checkpoints_make_no_difference(void **state)
{
    (void)state;
    char *directory = temporary_make(), expected[TEMPORARY_PATH_SIZE], got[TEMPORARY_PATH_SIZE],
         run[TEMPORARY_PATH_SIZE];
    assert_ok(train(&whole, temporary_path(directory, "expected", expected)));
    plan p = {
        .epochs = 4, .cancel_batch = -1, .run = temporary_path(directory, "run", run), .checkpoint_seconds = 1e-9};
    assert_ok(train(&p, temporary_path(directory, "got", got)));
    assert_same_file(expected, got);
    temporary_remove(directory);
}

static void test_resume_refuses(void **state)
{
    (void)state;
    char *directory = temporary_make(), weights[TEMPORARY_PATH_SIZE], run[TEMPORARY_PATH_SIZE],
         file[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "weights", weights);
    plan p = {.epochs = 2, .cancel_batch = -1, .run = temporary_path(directory, "run", run), .resume = true};
    assert_ok(train(&p, weights)); /* nothing to resume: a start */
    p.epochs = 3;
    assert_fails(train(&p, weights), EG_EINVAL, "epochs 2, not 3");
    p.epochs = 2;
    write_text(temporary_path(run, "checkpoint/last.safetensors", file), "not a checkpoint at all");
    assert_fails(train(&p, weights), EG_EFORMAT, "last.safetensors");
    eg_context *ctx = eg_context_new(.seed = 7);
    eg_module *model = toy_model(ctx);
    assert_ok(eg_module_save(model, file));
    assert_fails(train(&p, weights), EG_EFORMAT, "no checkpoint");
    eg_module_release(model);
    eg_context_free(ctx);
    temporary_remove(directory);
}

static void test_run_directory_refused(void **state)
{
    (void)state;
    char *directory = temporary_make(), weights[TEMPORARY_PATH_SIZE], file[TEMPORARY_PATH_SIZE];
    write_text(temporary_path(directory, "file", file), "x");
    plan p = {.epochs = 1, .cancel_batch = -1, .run = file};
    assert_fails(train(&p, temporary_path(directory, "weights", weights)), EG_EIO, "/file'");
    temporary_remove(directory);
}

static void test_loss_not_finite(void **state)
{
    (void)state;
    plan p = {.epochs = 3, .cancel_batch = -1, .lr = 1e30};
    assert_fails(train(&p, "/nonexistent/weights"), EG_EINVAL, "in epoch 1 of 3, step");
}

/* ---- the options of one's own ---- */

static eg_tensor *half_loss(void *payload, eg_tensor *output, eg_tensor *target)
{
    ++*(int *)payload;
    return eg_affine(eg_f_cross_entropy(output, target), 0.5, 0.0);
}

static eg_status count_samples(void *payload, const eg_tensor *output, const eg_tensor *target, eg_meter_group *meters)
{
    (void)payload, (void)target;
    return eg_meter_group_update(meters, "seen", 1, (uint64_t)eg_tensor_size(output, 0));
}

typedef struct watcher {
    size_t train, validate, last_done, last_total;
} watcher;

static void watch(void *payload, const eg_progress *progress)
{
    watcher *w = payload;
    bool training = strcmp(progress->phase, "train") == 0;
    *(training ? &w->train : &w->validate) += 1;
    assert_int_equal(progress->epochs, 2);
    assert_true(progress->done >= 1 && progress->done <= progress->total);
    assert_non_null(progress->meters);
    w->last_done = progress->done;
    w->last_total = progress->total;
}

static void test_own_loss_metrics_progress(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 7);
    eg_dataset *data = toy_data(ctx, 24, 1), *held_out = toy_data(ctx, 9, 2);
    eg_module *model = toy_model(ctx);
    int calls = 0;
    watcher w = {0};
    eg_trainer *trainer = eg_trainer_new(ctx, model, data, .validation = held_out, .epochs = 2, .batch_size = 8,
                                         .loss = half_loss, .metrics = count_samples, .payload = &calls,
                                         .progress = watch, .progress_payload = &w, .grad_clip = 1);
    assert_made(trainer);
    assert_ok(eg_trainer_train(trainer));
    assert_int_equal(calls, 2 * (3 + 2));
    assert_int_equal(w.train, 6);
    assert_int_equal(w.validate, 4);
    assert_int_equal(w.last_done, w.last_total);
    assert_int_equal(eg_meter_group_get(eg_trainer_meters(trainer), "seen")->count, 9);
    eg_trainer_free(trainer);
    eg_module_release(model);
    eg_dataset_release(data);
    eg_dataset_release(held_out);
    eg_context_free(ctx);
}

static void test_options_refused(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 7);
    eg_dataset *data = toy_data(ctx, 24, 1);
    eg_module *model = toy_model(ctx);
    assert_refused(eg_trainer_new(ctx, model, NULL, .epochs = 1), EG_EINVAL, "training set");
    assert_refused(eg_trainer_new(ctx, model, data), EG_EINVAL, "epochs is 0");
    assert_refused(eg_trainer_new(ctx, model, data, .epochs = 1, .workers = -1), EG_EINVAL, "workers");
    assert_refused(eg_trainer_new(ctx, model, data, .epochs = 1, .label_smoothing = 1.5), EG_EINVAL, "label_smoothing");
    assert_refused(eg_trainer_new(ctx, model, data, .epochs = 1, .grad_clip = -1), EG_EINVAL, "grad_clip");
    assert_refused(eg_trainer_new(ctx, model, data, .epochs = 1, .lr = 0.1, .optimizer = eg_sgd(model, .lr = 0.1)),
                   EG_EINVAL, "lr");
    assert_refused(eg_trainer_new_with(&(eg_trainer_options){.ctx = ctx, .model = model, .train = data, .epochs = 1}),
                   EG_EINVAL, "struct_size");
    assert_refused(eg_trainer_new_with(NULL), EG_EINVAL, "options");
    eg_trainer *trainer = eg_trainer_new(ctx, model, data, .epochs = 1);
    assert_made(trainer);
    assert_fails(eg_trainer_validate(trainer), EG_EINVAL, "no validation set");
    assert_fails(eg_trainer_export(trainer, "/tmp/x"), EG_EINVAL, "no mutator");
    eg_trainer_free(trainer);
    eg_trainer_free(NULL);
    assert_true(isnan(eg_evaluate(NULL, data, 8)));
    eg_error_clear();
    eg_module_release(model);
    eg_dataset_release(data);
    eg_context_free(ctx);
}

/* What is measured in evaluation mode comes back in the modes that it had: a frozen part stays frozen. */
static void test_modes_are_put_back(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 7);
    eg_dataset *data = toy_data(ctx, 12, 1);
    eg_module *model = toy_model(ctx);
    eg_module_train(eg_module_find(model, "1"), false);
    double accuracy = eg_evaluate(model, data, 5);
    assert_true(accuracy >= 0 && accuracy <= 1);
    assert_true(model->training);
    assert_true(eg_module_find(model, "3")->training);
    assert_false(eg_module_find(model, "1")->training);
    eg_module_train(model, false);
    eg_module_train(eg_module_find(model, "3"), true);
    eg_trainer *trainer = eg_trainer_new(ctx, model, data, .validation = data, .epochs = 1);
    assert_made(trainer);
    assert_ok(eg_trainer_validate(trainer));
    assert_true(eg_module_find(model, "3")->training);
    assert_false(model->training);
    assert_false(eg_module_find(model, "1")->training);
    eg_trainer_free(trainer);
    eg_module_release(model);
    eg_dataset_release(data);
    eg_context_free(ctx);
}

/* ---- log lines, as the reference writes them ---- */

static void keep_first_line(void *payload, eg_log_level level, const char *text)
{
    (void)level;
    char *line = payload;
    if (!*line)
        snprintf(line, 200, "%s", text);
}

static void test_log_lines(void **state)
{
    (void)state;
    char line[200] = "";
    eg_context *ctx = eg_context_new(.seed = 7, .log = keep_first_line, .log_payload = line);
    eg_dataset *data = toy_data(ctx, 24, 1);
    eg_module *model = toy_model(ctx);
    eg_trainer *trainer = eg_trainer_new(ctx, model, data, .epochs = 2, .batch_size = 8, .log_frequency = 2);
    assert_ok(eg_trainer_train(trainer));
    double acc1, acc1_avg, loss, loss_avg;
    assert_int_equal(
        sscanf(line, "Epoch [1/2] Step [1/3]  acc1 %lf (%lf)  loss %lf (%lf)", &acc1, &acc1_avg, &loss, &loss_avg), 4);
    assert_close(loss, loss_avg, 0);
    eg_trainer_free(trainer);
    eg_module_release(model);
    eg_dataset_release(data);
    eg_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_default_schedule),
        cmocka_unit_test(test_resume_everywhere),
        cmocka_unit_test(test_checkpoints_make_no_difference),
        cmocka_unit_test(test_resume_refuses),
        cmocka_unit_test(test_run_directory_refused),
        cmocka_unit_test(test_loss_not_finite),
        cmocka_unit_test(test_own_loss_metrics_progress),
        cmocka_unit_test(test_options_refused),
        cmocka_unit_test(test_modes_are_put_back),
        cmocka_unit_test(test_log_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
