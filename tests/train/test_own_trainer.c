/* Trainers of one's own: what they may leave out, what the loop does for them, checkpoints of what they learn. */
#include "train_support.h"

enum { SAMPLES = 24, BATCH = 6, EPOCHS = 2 };

/* ---- by steps: a factor of its own goes into checkpoints ---- */

typedef struct counter {
    int steps, epochs;
    double kept; /* in checkpoints */
} counter;

static eg_status count_step(eg_trainer *self, const eg_batch *batch)
{
    counter *c = eg_trainer_payload(self);
    c->steps++;
    c->kept += (double)batch->size;
    return eg_trainer_step(self, batch);
}

static eg_status save(eg_trainer *self, const char *prefix, eg_state *state)
{
    counter *c = eg_trainer_payload(self);
    char name[40];
    snprintf(name, sizeof name, "%skept", prefix);
    return eg_state_put(state, name, eg_full(eg_trainer_model(self)->ctx, EG_SHAPE(1), c->kept));
}

static eg_status load(eg_trainer *self, const char *prefix, const eg_state *state)
{
    counter *c = eg_trainer_payload(self);
    char name[40];
    snprintf(name, sizeof name, "%skept", prefix);
    const eg_tensor *kept = eg_state_get(state, name);
    EG_CHECK(kept != NULL, EG_ENOENT, "'%s' is missing", name);
    c->kept = eg_tensor_item(kept);
    return EG_OK;
}

static const eg_trainer_class counting = {
    .struct_size = sizeof(eg_trainer_class), .name = "counting", .train_step = count_step, .save = save, .load = load};

typedef struct works {
    eg_context *ctx;
    eg_dataset *data;
    eg_module *model;
    eg_trainer *trainer;
} works;

static works make(const eg_trainer_class *cls, counter *c)
{
    works w = {.ctx = eg_context_new(.seed = 3, .threads = 1)};
    w.data = toy_data(w.ctx, SAMPLES, 1);
    w.model = toy_model(w.ctx);
    w.trainer = eg_trainer_new(w.ctx, w.model, w.data, .validation = w.data, .epochs = EPOCHS, .batch_size = BATCH,
                               .cls = cls, .payload = c, .seed = 5);
    assert_made(w.trainer);
    return w;
}

static void end(works *w)
{
    eg_trainer_free(w->trainer);
    eg_module_release(w->model);
    eg_dataset_release(w->data);
    eg_context_free(w->ctx);
}

static void read_weights(const works *w, float *out)
{
    assert_ok(eg_tensor_read(eg_module_tensor(w->model, "4.bias"), out, TOY_CLASSES));
}

static void test_steps_are_those_built_in(void **state)
{
    (void)state;
    float plain[TOY_CLASSES], own[TOY_CLASSES];
    works w = make(NULL, NULL);
    assert_ok(eg_trainer_train(w.trainer));
    read_weights(&w, plain);
    end(&w);
    counter c = {0};
    w = make(&counting, &c);
    eg_memory_estimate estimate;
    assert_ok(eg_trainer_memory(w.trainer, EG_MEMORY_NORMAL, &estimate));
    assert_true(c.steps > 0 && estimate.total > 0);
    assert_int_equal(eg_meter_group_size(eg_trainer_epoch_meters(w.trainer, false)), 0); /* nobody was told */
    c = (counter){0};
    assert_ok(eg_trainer_train(w.trainer));
    read_weights(&w, own);
    assert_memory_equal(plain, own, sizeof own);
    assert_int_equal(c.steps, EPOCHS * SAMPLES / BATCH);
    assert_made(eg_meter_group_get(eg_trainer_meters(w.trainer), "acc1"));
    end(&w);
}

static void test_checkpoints_hold_what_it_learns(void **state)
{
    (void)state;
    char *directory = temporary_make(), path[TEMPORARY_PATH_SIZE];
    temporary_path(directory, "checkpoint", path);
    counter c = {0}, d = {0};
    works w = make(&counting, &c);
    assert_ok(eg_trainer_train(w.trainer));
    assert_ok(eg_trainer_checkpoint(w.trainer, path));
    end(&w);
    w = make(&counting, &d);
    assert_ok(eg_trainer_restore(w.trainer, path));
    assert_close(d.kept, EPOCHS * SAMPLES, 0);
    end(&w);
    w = make(NULL, NULL);
    assert_fails(eg_trainer_restore(w.trainer, path), EG_EINVAL, "trainer");
    end(&w);
    temporary_remove(directory);
}

/* ---- functions that fail and do not say why ---- */

static eg_status silent_step(eg_trainer *self, const eg_batch *batch)
{
    (void)self, (void)batch;
    return EG_EUNSUPPORTED;
}

static eg_status silent_validation(eg_trainer *self, int64_t epoch)
{
    (void)self, (void)epoch;
    return EG_EDTYPE;
}

static eg_tensor *silent_loss(void *payload, eg_tensor *output, eg_tensor *target)
{
    (void)payload, (void)output, (void)target;
    return NULL;
}

static eg_status silent_metrics(void *payload, const eg_tensor *output, const eg_tensor *target, eg_meter_group *meters)
{
    (void)payload, (void)output, (void)target, (void)meters;
    return EG_EIO;
}

static eg_status silent_begin(eg_callback *self, int64_t epoch)
{
    (void)self, (void)epoch;
    return EG_ESHAPE;
}

static const eg_callback_class silent_callback = {
    .struct_size = sizeof(eg_callback_class), .name = "mute", .on_epoch_begin = silent_begin};

static void test_silent_failures_are_named(void **state)
{
    (void)state;
    static const eg_trainer_class step = {
        .struct_size = sizeof(eg_trainer_class), .name = "mine", .train_step = silent_step};
    static const eg_trainer_class validation = {
        .struct_size = sizeof(eg_trainer_class), .name = "mine", .validate_one_epoch = silent_validation};
    const struct {
        const eg_trainer_class *cls;
        bool loss, metrics, callback;
        eg_status status;
        const char *message;
    } rows[] = {{&step, false, false, false, EG_EUNSUPPORTED, "train_step of 'mine' failed without a message"},
                {&validation, false, false, false, EG_EDTYPE, "validate_one_epoch of 'mine' failed without a message"},
                {NULL, true, false, false, EG_EINVAL, "loss of 'trainer' gave NULL without a message"},
                {NULL, false, true, false, EG_EIO, "metrics of 'trainer' failed without a message"},
                {NULL, false, false, true, EG_ESHAPE, "callback 'mute': "}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        eg_context *ctx = eg_context_new(.seed = 3, .threads = 1);
        eg_dataset *data = toy_data(ctx, SAMPLES, 1);
        eg_module *model = toy_model(ctx);
        eg_callback *callback = rows[i].callback ? eg_callback_new(&silent_callback, NULL) : NULL;
        eg_trainer *trainer = eg_trainer_new(ctx, model, data, .epochs = 1, .batch_size = BATCH, .cls = rows[i].cls,
                                             .loss = rows[i].loss ? silent_loss : NULL,
                                             .metrics = rows[i].metrics ? silent_metrics : NULL, .callbacks = &callback,
                                             .n_callbacks = callback ? 1 : 0);
        assert_made(trainer);
        assert_fails(eg_trainer_train(trainer), rows[i].status, rows[i].message);
        eg_trainer_free(trainer);
        eg_module_release(model);
        eg_dataset_release(data);
        eg_context_free(ctx);
    }
}

/* ---- by epochs: loops of its own ---- */

static int batches_begun, batches_ended;

static eg_status on_batch_begin(eg_callback *self, int64_t epoch, int64_t batch)
{
    (void)self, (void)epoch, (void)batch;
    batches_begun++;
    return EG_OK;
}

static eg_status on_batch_end(eg_callback *self, int64_t epoch, int64_t batch)
{
    (void)epoch, (void)batch;
    batches_ended++;
    if (self->payload && batches_ended == 5)
        eg_context_cancel(eg_trainer_model(self->trainer)->ctx);
    return EG_OK;
}

static const eg_callback_class batches = {.struct_size = sizeof(eg_callback_class),
                                          .name = "batches",
                                          .on_batch_begin = on_batch_begin,
                                          .on_batch_end = on_batch_end};

static eg_status one_batch(eg_trainer *self, size_t i)
{
    eg_batch batch;
    EG_TRY(eg_trainer_batch_begin(self, i));
    EG_TRY(eg_loader_next(eg_trainer_loader(self, false), &batch));
    EG_TRY(eg_trainer_step(self, &batch));
    return eg_trainer_batch_end(self, i);
}

static eg_status loop(eg_trainer *self, int64_t epoch)
{
    eg_loader *loader = eg_trainer_loader(self, false);
    ((counter *)eg_trainer_payload(self))->epochs++;
    EG_TRY(eg_loader_start(loader, (uint64_t)epoch, 0));
    eg_status status = EG_OK;
    for (size_t i = 0; i < eg_loader_size(loader) && status == EG_OK; i++) {
        eg_tape *scope = eg_tape_begin(eg_trainer_model(self)->ctx, EG_NO_GRAD);
        status = one_batch(self, i);
        eg_tape_end(scope);
    }
    return status;
}

static eg_status judge(eg_trainer *self, int64_t epoch)
{
    return eg_meter_group_update(eg_trainer_epoch_meters(self, true), "score", (double)epoch + 10, 1);
}

static const eg_trainer_class looping = {
    .struct_size = sizeof(eg_trainer_class), .name = "looping", .train_one_epoch = loop, .validate_one_epoch = judge};

static works make_looping(counter *c, void *cancels)
{
    works w = {.ctx = eg_context_new(.seed = 3, .threads = 1)};
    w.data = toy_data(w.ctx, SAMPLES, 1);
    w.model = toy_model(w.ctx);
    w.trainer =
        eg_trainer_new(w.ctx, w.model, w.data, .epochs = EPOCHS, .batch_size = BATCH, .cls = &looping, .payload = c,
                       .seed = 5, .callbacks = (eg_callback *[]){eg_callback_new(&batches, cancels)}, .n_callbacks = 1);
    assert_made(w.trainer);
    batches_begun = batches_ended = 0;
    return w;
}

static void test_loops(void **state)
{
    (void)state;
    float plain[TOY_CLASSES], own[TOY_CLASSES];
    works w = make(NULL, NULL);
    assert_ok(eg_trainer_train(w.trainer));
    read_weights(&w, plain);
    end(&w);
    counter c = {0};
    w = make_looping(&c, NULL);
    assert_null(eg_trainer_loader(w.trainer, true));
    assert_ok(eg_trainer_train(w.trainer));
    assert_int_equal(c.epochs, EPOCHS);
    assert_int_equal(batches_begun, EPOCHS * SAMPLES / BATCH);
    assert_int_equal(batches_ended, EPOCHS * SAMPLES / BATCH);
    assert_close(eg_meter_group_get(eg_trainer_meters(w.trainer), "score")->avg, EPOCHS - 1 + 10, 0);
    read_weights(&w, own);
    assert_memory_equal(plain, own, sizeof own); /* the same loop, so the same numbers */
    assert_ok(eg_trainer_validate(w.trainer));
    assert_close(eg_meter_group_get(eg_trainer_meters(w.trainer), "score")->avg, 9, 0);
    end(&w);
}

static void test_cancel(void **state)
{
    (void)state;
    counter c = {0};
    works w = make_looping(&c, &c);
    assert_fails(eg_trainer_train(w.trainer), EG_ECANCELED, "canceled in epoch 2 of 2");
    assert_int_equal(batches_ended, 5);
    eg_context_resume(w.ctx);
    assert_ok(eg_trainer_train(w.trainer)); /* the second epoch anew */
    assert_int_equal(c.epochs, 3);
    assert_int_equal(batches_ended, 9);
    end(&w);
}

static void test_refusals(void **state)
{
    (void)state;
    eg_context *ctx = eg_context_new(.seed = 3);
    eg_dataset *data = toy_data(ctx, SAMPLES, 1);
    eg_module *model = toy_model(ctx);
    assert_refused(eg_trainer_new(ctx, model, data, .epochs = 1, .cls = &(eg_trainer_class){.name = "raw"}), EG_EINVAL,
                   "'raw'");
    eg_trainer *trainer = eg_trainer_new(ctx, model, data, .epochs = 1);
    assert_fails(eg_trainer_step(trainer, NULL), EG_EINVAL, "batch");
    assert_fails(eg_trainer_step(trainer, &(eg_batch){.size = 0}), EG_EINVAL, "the epoch has ended");
    assert_fails(eg_trainer_batch_begin(NULL, 0), EG_EINVAL, "trainer");
    assert_null(eg_trainer_payload(NULL));
    assert_null(eg_trainer_log_directory(trainer));
    eg_trainer_free(trainer);
    eg_module_release(model);
    eg_dataset_release(data);
    eg_context_free(ctx);
}

/* ---- what they are told ---- */

static eg_status clip(eg_trainer *self, const eg_batch *batch)
{
    double norm = -1;
    EG_TRY(eg_optimizer_clip_grad_norm(eg_trainer_optimizer(self), 1, &norm));
    assert_close(norm, 0, 0); /* no gradients before the step */
    return eg_trainer_step(self, batch);
}

static void test_norms_are_always_told(void **state)
{
    (void)state;
    static const eg_trainer_class clipping = {
        .struct_size = sizeof(eg_trainer_class), .name = "clipping", .train_step = clip};
    works w = make(&clipping, NULL);
    eg_memory_estimate estimate;
    assert_ok(eg_trainer_memory(w.trainer, EG_MEMORY_NORMAL, &estimate));
    end(&w);
}

/* The weights are no numbers after the second step. */
static eg_status spoil(eg_trainer *self, int64_t epoch)
{
    eg_loader *loader = eg_trainer_loader(self, false);
    eg_context *ctx = eg_trainer_model(self)->ctx;
    EG_TRY(eg_loader_start(loader, (uint64_t)epoch, 0));
    for (size_t b = 0; b < eg_loader_size(loader); b++) {
        EG_TRY(eg_trainer_batch_begin(self, b));
        eg_tape *tape = eg_tape_begin(ctx, EG_NO_GRAD);
        eg_batch batch;
        eg_status status = eg_loader_next(loader, &batch);
        if (status == EG_OK)
            status = eg_trainer_step(self, &batch);
        eg_tape_end(tape);
        EG_TRY(status);
        if (b == 1) {
            eg_tensor *bias = eg_module_tensor(eg_trainer_model(self), "4.bias");
            *(float *)eg_tensor_data(bias) = NAN;
            eg_tensor_touch(bias);
        }
        EG_TRY(eg_trainer_batch_end(self, b));
    }
    return EG_OK;
}

static void test_failures_name_the_step(void **state)
{
    (void)state;
    static const eg_trainer_class spoiling = {
        .struct_size = sizeof(eg_trainer_class), .name = "spoiling", .train_one_epoch = spoil};
    works w = make(&spoiling, NULL);
    assert_fails(eg_trainer_train(w.trainer), EG_EINVAL, "the loss is nan in epoch 1 of 2, step 3 of 4");
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_are_those_built_in),
        cmocka_unit_test(test_checkpoints_hold_what_it_learns),
        cmocka_unit_test(test_silent_failures_are_named),
        cmocka_unit_test(test_loops),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_norms_are_always_told),
        cmocka_unit_test(test_failures_name_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
