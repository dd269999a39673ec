/*
 * Callbacks, and the three built-in ones.
 */
#include "train/internal.h"

#include <inttypes.h>

eg_callback *eg_callback_new(const eg_callback_class *cls, void *payload)
{
    if (!cls)
        return eg__null(__func__, "class");
    if (cls->struct_size == 0) {
        eg_fail(EG_EINVAL, "callback class '%s' has no struct_size", cls->name ? cls->name : "?");
        return NULL;
    }
    eg_callback *callback = eg__calloc(1, sizeof *callback);
    if (callback)
        *callback = (eg_callback){.cls = cls, .payload = payload};
    return callback;
}

void eg_callback_free(eg_callback *callback)
{
    if (!callback)
        return;
    if (callback->cls->finalize)
        callback->cls->finalize(callback);
    eg_free(callback);
}

/* ---------------------------------------------------------------------------------------------- schedules */

typedef struct lr_callback {
    eg_callback base;
    eg_scheduler *scheduler;
    eg_schedule_unit unit;
} lr_callback;

static eg_status lr_on_batch_end(eg_callback *self, int64_t epoch, int64_t batch)
{
    (void)epoch, (void)batch;
    lr_callback *lr = (lr_callback *)self;
    return lr->unit == EG_PER_BATCH ? eg_scheduler_step(lr->scheduler) : EG_OK;
}

static eg_status lr_on_epoch_end(eg_callback *self, int64_t epoch)
{
    (void)epoch;
    lr_callback *lr = (lr_callback *)self;
    return lr->unit == EG_PER_EPOCH ? eg_scheduler_step(lr->scheduler) : EG_OK;
}

static void lr_finalize(eg_callback *self)
{
    eg_scheduler_free(((lr_callback *)self)->scheduler);
}

static const eg_callback_class lr_callback_class = {
    .struct_size = sizeof(eg_callback_class),
    .name = "lr_scheduler",
    .on_batch_end = lr_on_batch_end,
    .on_epoch_end = lr_on_epoch_end,
    .finalize = lr_finalize,
};

eg_callback *eg_lr_scheduler_callback(eg_scheduler *scheduler, eg_schedule_unit unit)
{
    if (!scheduler)
        return eg__null(__func__, "scheduler");
    lr_callback *lr = NULL;
    if (unit != EG_PER_EPOCH && unit != EG_PER_BATCH)
        eg_fail(EG_EINVAL, "schedule unit %d is neither EG_PER_EPOCH nor EG_PER_BATCH", (int)unit);
    else
        lr = eg__calloc(1, sizeof *lr);
    if (!lr) {
        eg_scheduler_free(scheduler);
        return NULL;
    }
    *lr = (lr_callback){.base.cls = &lr_callback_class, .scheduler = scheduler, .unit = unit};
    return &lr->base;
}

eg_scheduler *eg__callback_scheduler(const eg_callback *callback)
{
    return callback->cls == &lr_callback_class ? ((const lr_callback *)callback)->scheduler : NULL;
}

/* ---------------------------------------------------------------------------------------------- files at epoch ends */

typedef struct file_callback {
    eg_callback base;
    char *directory;
} file_callback;

static void file_finalize(eg_callback *self)
{
    eg_free(((file_callback *)self)->directory);
}

static eg_callback *file_callback_new(const eg_callback_class *cls, const char *directory)
{
    if (!directory)
        return eg__null(cls->name, "directory");
    if (eg__make_directory(directory) != EG_OK)
        return NULL;
    file_callback *file = eg__calloc(1, sizeof *file);
    if (!file)
        return NULL;
    file->base.cls = cls;
    file->directory = eg__strdup(directory);
    if (!file->directory) {
        eg_free(file);
        return NULL;
    }
    return &file->base;
}

static eg_status architecture_on_epoch_end(eg_callback *self, int64_t epoch)
{
    char *path = eg__format("%s/epoch_%" PRId64 ".json", ((file_callback *)self)->directory, epoch);
    eg_status status = path ? eg_trainer_export(self->trainer, path) : EG_ENOMEM;
    eg_free(path);
    return status;
}

static eg_status model_on_epoch_end(eg_callback *self, int64_t epoch)
{
    char *path = eg__format("%s/epoch_%" PRId64 ".safetensors", ((file_callback *)self)->directory, epoch);
    eg_status status = path ? eg_module_save(eg_trainer_model(self->trainer), path) : EG_ENOMEM;
    eg_free(path);
    return status;
}

static const eg_callback_class architecture_checkpoint_class = {
    .struct_size = sizeof(eg_callback_class),
    .name = "architecture_checkpoint",
    .on_epoch_end = architecture_on_epoch_end,
    .finalize = file_finalize,
};

static const eg_callback_class model_checkpoint_class = {
    .struct_size = sizeof(eg_callback_class),
    .name = "model_checkpoint",
    .on_epoch_end = model_on_epoch_end,
    .finalize = file_finalize,
};

eg_callback *eg_architecture_checkpoint(const char *directory)
{
    return file_callback_new(&architecture_checkpoint_class, directory);
}

eg_callback *eg_model_checkpoint(const char *directory)
{
    return file_callback_new(&model_checkpoint_class, directory);
}
