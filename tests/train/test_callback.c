/* Callbacks: their order, what stops a training, schedules and files. */
#include "train_support.h"

/* ---- a callback that writes down what it is told ---- */

typedef struct journal {
    char text[4096];
    const char *tag;
    int64_t fail_at; /* epoch whose end fails; -1 = none */
    bool finalized;
} journal;

static void note(eg_callback *self, const char *what, int64_t epoch, int64_t batch)
{
    journal *shared = self->payload;
    size_t len = strlen(shared->text);
    if (batch >= 0)
        snprintf(shared->text + len, sizeof shared->text - len, "%s%d.%d ", what, (int)epoch, (int)batch);
    else if (epoch >= 0)
        snprintf(shared->text + len, sizeof shared->text - len, "%s%d ", what, (int)epoch);
    else
        snprintf(shared->text + len, sizeof shared->text - len, "%s ", what);
}

static eg_status on_build(eg_callback *self, eg_trainer *trainer)
{
    assert_ptr_equal(self->trainer, trainer);
    note(self, "build", -1, -1);
    return EG_OK;
}
static eg_status on_train_begin(eg_callback *self)
{
    note(self, "train", -1, -1);
    return EG_OK;
}
static eg_status on_epoch_begin(eg_callback *self, int64_t epoch)
{
    note(self, "e", epoch, -1);
    return EG_OK;
}
static eg_status on_batch_begin(eg_callback *self, int64_t epoch, int64_t batch)
{
    note(self, "b", epoch, batch);
    return EG_OK;
}
static eg_status on_batch_end(eg_callback *self, int64_t epoch, int64_t batch)
{
    note(self, "/b", epoch, batch);
    return EG_OK;
}
static eg_status on_epoch_end(eg_callback *self, int64_t epoch)
{
    note(self, "/e", epoch, -1);
    const journal *j = self->payload;
    return epoch == j->fail_at ? eg_fail(EG_EINVAL, "epoch %d is unlucky", (int)epoch) : EG_OK;
}
static eg_status on_train_end(eg_callback *self)
{
    note(self, "/train", -1, -1);
    return EG_OK;
}
static void on_finalize(eg_callback *self)
{
    ((journal *)self->payload)->finalized = true;
}

static const eg_callback_class journal_class = {.struct_size = sizeof(eg_callback_class),
                                                .name = "journal",
                                                .build = on_build,
                                                .on_train_begin = on_train_begin,
                                                .on_epoch_begin = on_epoch_begin,
                                                .on_batch_begin = on_batch_begin,
                                                .on_batch_end = on_batch_end,
                                                .on_epoch_end = on_epoch_end,
                                                .on_train_end = on_train_end,
                                                .finalize = on_finalize};

static eg_trainer *trainer_with(eg_context *ctx, eg_callback *const *callbacks, size_t n, int64_t epochs)
{
    eg_dataset *data = toy_data(ctx, 12, 1);
    eg_module *model = toy_model(ctx);
    eg_trainer *trainer =
        eg_trainer_new(ctx, model, data, .epochs = epochs, .batch_size = 6, .callbacks = callbacks, .n_callbacks = n);
    eg_module_release(model);
    eg_dataset_release(data);
    return trainer;
}

static void test_order(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 1);
    journal j = {.fail_at = -1};
    eg_callback *first = eg_callback_new(&journal_class, &j);
    assert_made(first);
    eg_trainer *trainer = trainer_with(ctx, (eg_callback *[]){first}, 1, 2);
    assert_made(trainer);
    assert_ok(eg_trainer_train(trainer));
    assert_string_equal(j.text, "build train e0 b0.0 /b0.0 b0.1 /b0.1 /e0 e1 b1.0 /b1.0 b1.1 /b1.1 /e1 /train ");
    j.text[0] = '\0';
    assert_ok(eg_trainer_train(trainer)); /* again from epoch 0 */
    assert_string_equal(j.text, "train e0 b0.0 /b0.0 b0.1 /b0.1 /e0 e1 b1.0 /b1.0 b1.1 /b1.1 /e1 /train ");
    assert_false(j.finalized);
    eg_trainer_free(trainer);
    assert_true(j.finalized);
    eg_context_free(ctx);
}

static void test_list_order(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 1);
    journal j = {.fail_at = -1};
    eg_callback *both[] = {eg_callback_new(&journal_class, &j), eg_callback_new(&journal_class, &j)};
    eg_trainer *trainer = trainer_with(ctx, both, 2, 1);
    assert_made(trainer);
    assert_string_equal(j.text, "build build ");
    assert_ok(eg_trainer_train(trainer));
    assert_non_null(strstr(j.text, "train train e0 e0 b0.0 b0.0 /b0.0 /b0.0 "));
    eg_trainer_free(trainer);
    eg_context_free(ctx);
}

static void test_failure_stops(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 1);
    journal j = {.fail_at = 1};
    eg_trainer *trainer = trainer_with(ctx, (eg_callback *[]){eg_callback_new(&journal_class, &j)}, 1, 5);
    assert_made(trainer);
    assert_fails(eg_trainer_train(trainer), EG_EINVAL, "callback 'journal': epoch 1 is unlucky");
    assert_null(strstr(j.text, "e2"));
    assert_null(strstr(j.text, "/train"));
    eg_trainer_free(trainer);
    eg_context_free(ctx);
}

/* What a trainer takes over it frees, also when it is not made. */
static void test_ownership(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 1);
    journal j = {.fail_at = -1};
    assert_refused(trainer_with(ctx, (eg_callback *[]){eg_callback_new(&journal_class, &j)}, 1, 0), EG_EINVAL,
                   "epochs is 0");
    assert_true(j.finalized);
    assert_refused(eg_callback_new(&(eg_callback_class){.name = "raw"}, NULL), EG_EINVAL, "'raw'");
    eg_callback_free(NULL);
    eg_context_free(ctx);
}

/* ---- built-in callbacks ---- */

static eg_trainer *scheduled_trainer(eg_context *ctx, eg_schedule_unit unit)
{
    eg_dataset *data = toy_data(ctx, 12, 1);
    eg_module *model = toy_model(ctx);
    eg_optimizer *sgd = eg_sgd(model, .lr = 1.0 / 64);
    eg_callback *schedule = eg_lr_scheduler_callback(eg_step_lr(sgd, 1, 0.5), unit);
    assert_made(schedule);
    eg_trainer *trainer = eg_trainer_new(ctx, model, data, .epochs = 3, .batch_size = 6, .optimizer = sgd,
                                         .callbacks = (eg_callback *[]){schedule}, .n_callbacks = 1);
    assert_made(trainer);
    eg_module_release(model);
    eg_dataset_release(data);
    return trainer;
}

static void test_schedules(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 1);
    eg_trainer *trainer = scheduled_trainer(ctx, EG_PER_EPOCH);
    assert_ok(eg_trainer_train(trainer));
    assert_close(eg_optimizer_lr(eg_trainer_optimizer(trainer), 0), 1.0 / 64 / 8, 1e-12);
    eg_trainer_free(trainer);
    trainer = scheduled_trainer(ctx, EG_PER_BATCH);
    assert_ok(eg_trainer_train(trainer));
    assert_close(eg_optimizer_lr(eg_trainer_optimizer(trainer), 0), 1.0 / 64 / 64, 1e-12);
    eg_trainer_free(trainer);
    eg_context_free(ctx);
}

static void test_model_checkpoint(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 1);
    char *directory = temporary_make(), nested[TEMPORARY_PATH_SIZE], file[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "a/b", nested);
    eg_trainer *trainer = trainer_with(ctx, (eg_callback *[]){eg_model_checkpoint(nested)}, 1, 2);
    assert_made(trainer);
    assert_ok(eg_trainer_train(trainer));
    assert_int_equal(directory_count(nested), 2);
    eg_module *copy = toy_model(ctx);
    assert_ok(eg_module_load(copy, temporary_path(nested, "epoch_1.safetensors", file)));
    eg_tensor *a = eg_module_tensor(copy, "4.bias"), *b = eg_module_tensor(eg_trainer_model(trainer), "4.bias");
    float x[TOY_CLASSES], y[TOY_CLASSES];
    assert_ok(eg_tensor_read(a, x, TOY_CLASSES));
    assert_ok(eg_tensor_read(b, y, TOY_CLASSES));
    assert_memory_equal(x, y, sizeof x);
    eg_module_release(copy);
    eg_trainer_free(trainer);
    temporary_remove(directory);
    eg_context_free(ctx);
}

static void test_architecture_checkpoint(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 1);
    char *directory = temporary_make(), file[TEMPORARY_PATH_SIZE];
    eg_trainer *plain = trainer_with(ctx, (eg_callback *[]){eg_architecture_checkpoint(directory)}, 1, 1);
    assert_made(plain);
    assert_fails(eg_trainer_train(plain), EG_EINVAL, "no mutator");
    eg_trainer_free(plain);

    eg_module *net = toy_supernet(ctx);
    eg_mutator *mutator = eg_random_mutator_new(net);
    assert_made(mutator);
    assert_ok(eg_mutator_reset(mutator));
    eg_dataset *data = toy_data(ctx, 12, 1);
    eg_trainer *trainer =
        eg_trainer_new(ctx, net, data, .epochs = 2, .batch_size = 6,
                       .callbacks = (eg_callback *[]){eg_architecture_checkpoint(directory)}, .n_callbacks = 1);
    assert_made(trainer);
    assert_ok(eg_trainer_train(trainer));
    eg_arch *arch = eg_arch_load(temporary_path(directory, "epoch_1.json", file));
    assert_made(arch);
    assert_int_equal(eg_arch_size(arch), 2);
    eg_arch_free(arch);
    eg_trainer_free(trainer);
    eg_dataset_release(data);
    eg_mutator_detach(mutator);
    eg_module_release(net);
    temporary_remove(directory);
    eg_context_free(ctx);
}

static void test_directory_refused(void **state)
{
    (void)state;
    char *directory = temporary_make(), file[TEMPORARY_PATH_SIZE], inside[TEMPORARY_PATH_SIZE];
    write_text(temporary_path(directory, "file", file), "x");
    assert_null(eg_model_checkpoint(temporary_path(file, "inside", inside)));
    assert_recorded(EG_EIO, "/file'");
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_list_order),
        cmocka_unit_test(test_failure_stops),
        cmocka_unit_test(test_ownership),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_model_checkpoint),
        cmocka_unit_test(test_architecture_checkpoint),
        cmocka_unit_test(test_directory_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
