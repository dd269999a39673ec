/*
 * Trainers: construction and access. The loop is in loop.c, checkpoints are in trainer_state.c.
 */
#include "train/internal.h"

#include <inttypes.h>
#include <math.h>

#define DEFAULT_BATCH 64
#define DEFAULT_LR 0.1
#define DEFAULT_WEIGHT_DECAY 5e-4

/* What a trainer is that has nothing of its own. */
static const eg_trainer_class built_in = {.struct_size = sizeof(eg_trainer_class), .name = "trainer"};

/* ---------------------------------------------------------------------------------------------- construction */

static eg_status check_options(const eg_trainer_options *o)
{
    EG_CHECK(o->ctx && o->model && o->train, EG_EINVAL, "a trainer needs a context, a model and a training set");
    EG_CHECK(o->epochs >= 1, EG_EINVAL, "epochs is %" PRId64 ", expected at least 1", o->epochs);
    EG_CHECK(o->workers >= 0, EG_EINVAL, "workers is %d, expected at least 0", o->workers);
    EG_CHECK(o->grad_clip >= 0 && isfinite(o->grad_clip), EG_EINVAL, "grad_clip is %g, expected at least 0",
             o->grad_clip);
    EG_CHECK(o->label_smoothing >= 0 && o->label_smoothing < 1, EG_EINVAL,
             "label_smoothing is %g, expected 0 or more, below 1", o->label_smoothing);
    EG_CHECK(o->memory == EG_MEMORY_NORMAL || o->memory == EG_MEMORY_LOW, EG_EINVAL,
             "memory is %d, which is no eg_memory", (int)o->memory);
    EG_CHECK(!o->loss || o->label_smoothing == 0, EG_EINVAL, "label_smoothing belongs to the default loss");
    EG_CHECK(!o->optimizer || (o->lr == 0 && !o->weight_decay.set), EG_EINVAL,
             "lr and weight_decay belong to the default optimizer");
    EG_CHECK(!o->cls || o->cls->struct_size >= sizeof(eg_trainer_class), EG_EINVAL,
             "trainer class '%s': its struct_size is missing or too small", o->cls->name ? o->cls->name : "?");
    for (size_t i = 0; i < o->n_callbacks; i++)
        EG_CHECK(o->callbacks[i], eg_error_last()->code ? eg_error_last()->code : EG_EINVAL,
                 "callback %zu is NULL (%s)", i, eg_error_last()->message);
    return EG_OK;
}

static eg_status make_loaders(eg_trainer *t)
{
    eg_trainer_options *o = &t->options;
    size_t samples = eg_dataset_size(o->train);
    /* a short last batch makes noisy gradients and statistics; shuffling gives its samples another epoch */
    t->train = eg_loader_new(o->train, EG_MAX(EG_MIN(o->batch_size, samples), 1), .shuffle = true, .drop_last = true,
                             .workers = o->workers, .seed = o->seed, .transforms = o->transforms,
                             .n_transforms = o->n_transforms);
    if (!t->train)
        return eg_error_last()->code;
    EG_CHECK(eg_loader_size(t->train) > 0, EG_EINVAL, "the training set is empty");
    if (!o->validation)
        return EG_OK;
    t->validation = eg_loader_new(o->validation, o->batch_size, .workers = o->workers);
    return t->validation ? EG_OK : eg_error_last()->code;
}

static eg_callback *default_schedule(eg_trainer *t)
{
    int64_t total = t->options.epochs * (int64_t)eg_loader_size(t->train), warmup = total / 20;
    eg_scheduler *cosine = eg_cosine_lr(t->optimizer, EG_MAX(total - warmup, 1), 0.0);
    if (cosine && warmup > 0)
        cosine = eg_linear_warmup_lr(t->optimizer, warmup, 0.1, cosine);
    return cosine ? eg_lr_scheduler_callback(cosine, EG_PER_BATCH) : NULL;
}

/* The optimizer where none was given, and its schedule as one callback more. */
static eg_status make_optimizer(eg_trainer *t)
{
    if (t->optimizer)
        return EG_OK;
    eg_trainer_options *o = &t->options;
    o->lr = o->lr != 0 ? o->lr : DEFAULT_LR;
    o->weight_decay = o->weight_decay.set ? o->weight_decay : EG_F64(DEFAULT_WEIGHT_DECAY);
    t->optimizer = eg_sgd(o->model, .ctx = o->ctx, .lr = o->lr, .momentum = 0.9, .nesterov = true,
                          .weight_decay = o->weight_decay.value);
    eg_callback *schedule = t->optimizer ? default_schedule(t) : NULL;
    if (!schedule)
        return eg_error_last()->code;
    t->callbacks[t->n_callbacks++] = schedule;
    return EG_OK;
}

static eg_status make_run(eg_trainer *t, const char *run)
{
    if (!run)
        return EG_OK;
    t->run = eg__strdup(run);
    t->checkpoint_path = t->run ? eg__checkpoint_path(run) : NULL;
    if (!t->checkpoint_path)
        return eg_error_last()->code;
    if (!t->options.resume || !eg__file_exists(t->checkpoint_path))
        return EG_OK;
    EG_TRY(eg_trainer_restore(t, t->checkpoint_path));
    return eg__event(
        t->run, "resume",
        json_pack("{s:I, s:I}", "epoch", (json_int_t)t->position.epoch, "batch", (json_int_t)t->position.batch));
}

static eg_status build(eg_trainer *t)
{
    const char *run = t->options.run;
    t->options.run = NULL;
    EG_TRY(check_options(&t->options));
    t->options.batch_size = t->options.batch_size > 0 ? t->options.batch_size : DEFAULT_BATCH;
    t->meters = eg_meter_group_new();
    t->validation_meters = t->meters ? eg_meter_group_new() : NULL;
    if (!t->validation_meters)
        return EG_ENOMEM;
    EG_TRY(make_loaders(t));
    EG_TRY(make_optimizer(t));
    EG_TRY(eg__trainer_settle_memory(t));
    EG_TRY(eg__trainer_settings(t));
    t->options.transforms = NULL; /* the loader has its own */
    for (size_t i = 0; i < t->n_callbacks; i++) {
        eg_callback *callback = t->callbacks[i];
        callback->trainer = t;
        if (callback->cls->build)
            EG_TRY(eg__fail_silent(callback->cls->build(callback, t), "build", callback->cls->name));
    }
    EG_TRY(make_run(t, run));
    t->saved_at = eg__now();
    return EG_OK;
}

/* What a trainer takes over it frees also when it cannot be made. */
static void free_given(const eg_trainer_options *o)
{
    for (size_t i = 0; i < o->n_callbacks; i++)
        eg_callback_free(o->callbacks[i]);
    eg_optimizer_free(o->optimizer);
}

eg_trainer *eg_trainer_new_with(const eg_trainer_options *options)
{
    if (!options)
        return eg__null("eg_trainer_new", "options");
    eg_trainer_options own;
    if (eg__options_copy(&own, sizeof own, options) != EG_OK)
        return NULL;
    eg_trainer *t = eg__calloc(1, sizeof *t);
    eg_callback **callbacks = t ? eg__calloc(own.n_callbacks + 1, sizeof *callbacks) : NULL;
    if (!callbacks) {
        free_given(&own);
        eg_free(t);
        return NULL;
    }
    t->options = own;
    t->cls = own.cls ? own.cls : &built_in;
    t->callbacks = callbacks;
    for (size_t i = 0; i < own.n_callbacks; i++)
        callbacks[t->n_callbacks++] = own.callbacks[i];
    t->options.callbacks = callbacks;
    t->optimizer = own.optimizer;
    if (own.model)
        eg_module_retain(own.model);
    if (own.train)
        eg_dataset_retain(own.train);
    if (own.validation)
        eg_dataset_retain(own.validation);
    if (build(t) == EG_OK)
        return t;
    eg_trainer_free(t);
    return NULL;
}

void eg_trainer_free(eg_trainer *t)
{
    if (!t)
        return;
    eg_loader_free(t->train);
    eg_loader_free(t->validation);
    for (size_t i = 0; i < t->n_callbacks; i++)
        eg_callback_free(t->callbacks[i]); /* before the optimizer that schedules point to */
    eg_free(t->callbacks);
    eg_optimizer_free(t->optimizer);
    eg_meter_group_free(t->meters);
    eg_meter_group_free(t->validation_meters);
    json_decref(t->settings);
    eg_module_release(t->options.model);
    eg_dataset_release(t->options.train);
    eg_dataset_release(t->options.validation);
    eg__visual_free(&t->visual);
    eg_free(t->run);
    eg_free(t->checkpoint_path);
    eg_free(t->recipe);
    eg_free(t);
}

const eg_meter_group *eg_trainer_meters(const eg_trainer *t)
{
    if (!t)
        return NULL;
    return eg__trainer_validates(t) || eg_meter_group_size(t->validation_meters) > 0 ? t->validation_meters : t->meters;
}

double eg_trainer_seconds(const eg_trainer *t)
{
    return t ? eg__clock_read(&t->clock) : 0;
}

eg_module *eg_trainer_model(const eg_trainer *t)
{
    return t ? t->options.model : NULL;
}

eg_optimizer *eg_trainer_optimizer(const eg_trainer *t)
{
    return t ? t->optimizer : NULL;
}

void *eg_trainer_payload(const eg_trainer *t)
{
    return t ? t->options.payload : NULL;
}

eg_loader *eg_trainer_loader(const eg_trainer *t, bool validation)
{
    return !t ? NULL : validation ? t->validation : t->train;
}

eg_meter_group *eg_trainer_epoch_meters(eg_trainer *t, bool validation)
{
    return !t ? NULL : validation ? t->validation_meters : t->meters;
}

eg_status eg_trainer_enable_visualization(eg_trainer *t, const char *directory)
{
    EG_CHECK(t, EG_EINVAL, "trainer is NULL");
    return eg__visual_start(&t->visual, eg_mutable_mutator(t->options.model), eg_dataset_shape(t->options.train),
                            t->run, directory);
}

const char *eg_trainer_log_directory(const eg_trainer *t)
{
    return t ? t->visual.directory : NULL;
}

eg_status eg_trainer_export(eg_trainer *t, const char *path)
{
    EG_CHECK(t && path, EG_EINVAL, "trainer or path is NULL");
    eg_mutator *mutator = eg_mutable_mutator(t->options.model);
    EG_CHECK(mutator, EG_EINVAL, "the model has no mutator, so there is no architecture to write to '%s'", path);
    eg_arch *arch = eg_mutator_export(mutator);
    eg_status status = arch ? eg_arch_save(arch, path) : eg_error_last()->code;
    eg_arch_free(arch);
    return status;
}
