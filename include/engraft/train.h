/*
 * engraft/train.h - training loops: trainers, callbacks, meters, searches, run directories.
 */
#ifndef ENGRAFT_TRAIN_H
#define ENGRAFT_TRAIN_H

#include "nas.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------- meters */

typedef struct eg_meter {
    double val, avg, sum;
    uint64_t count;
} eg_meter;
EG_API void eg_meter_update(eg_meter *meter, double value, uint64_t n);

/** Meters by name, made at their first update, in that order. */
typedef struct eg_meter_group eg_meter_group;
EG_API eg_meter_group *eg_meter_group_new(void);
EG_API void eg_meter_group_free(eg_meter_group *group);
/** Counts `value` with weight n (the batch size). */
EG_API eg_status eg_meter_group_update(eg_meter_group *group, const char *name, double value, uint64_t n);
EG_API const eg_meter *eg_meter_group_get(const eg_meter_group *group, const char *name); /* NULL and ENOENT when absent. Lent until a reset */
EG_API size_t eg_meter_group_size(const eg_meter_group *group);
EG_API const eg_meter *eg_meter_group_at(const eg_meter_group *group, size_t i, const char **name);
EG_API void eg_meter_group_reset(eg_meter_group *group);
/** "acc1 0.250000 (0.375000)  loss 1.000000 (1.500000)": last values and averages; for eg_free(). */
EG_API char *eg_meter_group_text(const eg_meter_group *group);
/** "acc1: 0.375000  loss: 1.500000": averages; for eg_free(). */
EG_API char *eg_meter_group_summary(const eg_meter_group *group);

/* ---------------------------------------------------------------------------------------------- callbacks */

typedef struct eg_trainer eg_trainer;
typedef struct eg_callback eg_callback;

/** What happens at moments of a training. Each function may be NULL; a failure stops the training. Epochs count from 0. A training that goes on
 *  from a checkpoint inside an epoch begins with on_train_begin and on_epoch_begin of that epoch. */
typedef struct eg_callback_class {
    size_t struct_size;
    const char *name;
    eg_status (*build)(eg_callback *self, eg_trainer *trainer);
    eg_status (*on_train_begin)(eg_callback *self);
    eg_status (*on_epoch_begin)(eg_callback *self, int64_t epoch);
    eg_status (*on_batch_begin)(eg_callback *self, int64_t epoch, int64_t batch);
    eg_status (*on_batch_end)(eg_callback *self, int64_t epoch, int64_t batch);
    eg_status (*on_epoch_end)(eg_callback *self, int64_t epoch);
    eg_status (*on_train_end)(eg_callback *self);
    void (*finalize)(eg_callback *self);
} eg_callback_class;
/** The head of every callback struct. */
struct eg_callback {
    const eg_callback_class *cls;
    eg_trainer *trainer; /* set by build */
    void *payload;       /* the user's */
};
/** A callback of one's own: cls's functions with `payload`. */
EG_API eg_callback *eg_callback_new(const eg_callback_class *cls, void *payload);
EG_API void eg_callback_free(eg_callback *callback);
typedef enum eg_schedule_unit { EG_PER_EPOCH, EG_PER_BATCH } eg_schedule_unit;
/** Steps a schedule (taken over) at the end of each epoch or batch. */
EG_API eg_callback *eg_lr_scheduler_callback(eg_scheduler *scheduler, eg_schedule_unit unit);
/** Writes DIR/epoch_<n>.json, the architecture as the trainer exports it, at the end of each epoch. The directory is made. */
EG_API eg_callback *eg_architecture_checkpoint(const char *directory);
/** Writes DIR/epoch_<n>.safetensors, the model's state, at the end of each epoch. */
EG_API eg_callback *eg_model_checkpoint(const char *directory);

/* ---------------------------------------------------------------------------------------------- trainer */

/** Loss of a batch: a scalar on the tape. */
typedef eg_tensor *(*eg_loss_fn)(void *payload, eg_tensor *output, eg_tensor *target);
/** Adds its numbers to the meters, e.g. "acc1". */
typedef eg_status (*eg_metrics_fn)(void *payload, const eg_tensor *output, const eg_tensor *target, eg_meter_group *meters);

/** Tells of progress: called after each batch (or candidate), so a function that prints does well to let most calls pass. */
typedef struct eg_progress {
    const char *phase; /* "train", "validate", or what a search's strategy is about, "choose" */
    int64_t epoch, epochs;
    size_t done, total;
    const eg_meter_group *meters; /* NULL or the epoch's so far */
} eg_progress;
typedef void (*eg_progress_fn)(void *payload, const eg_progress *progress);

typedef struct eg_trainer_options {
    eg_context *ctx;
    eg_module *model;          /* retained */
    eg_dataset *train;         /* retained */
    eg_dataset *validation;    /* NULL = none */
    int64_t epochs;            /* at least 1 */
    size_t batch_size;         /* 0 = 64 */
    int workers;               /* of the loader */
    eg_loss_fn loss;           /* NULL = cross entropy */
    eg_metrics_fn metrics;     /* NULL = acc1 */
    void *payload;             /* of loss and metrics */
    double label_smoothing;    /* of the default loss */
    eg_optimizer *optimizer;   /* taken over; NULL = SGD, momentum 0.9, nesterov, warm-up over the first 5 % of all batches, then cosine to 0 */
    double lr;                 /* of that default optimizer: 0 = 0.1 */
    eg_opt_f64 weight_decay;   /* of it: unset = 5e-4 */
    double grad_clip;          /* max norm; 0 = none */
    const eg_transform *transforms; /* of training samples */
    size_t n_transforms;
    int64_t log_frequency;     /* batches between log lines; 0 = none */
    eg_callback *const *callbacks; /* taken over */
    size_t n_callbacks;
    uint64_t seed;             /* of shuffling and augmentation */
    eg_progress_fn progress;   /* NULL = none */
    void *progress_payload;
    const char *run;           /* run directory for checkpoints; NULL = none */
    bool resume;               /* go on from the checkpoint in `run` where there is one */
    double checkpoint_seconds; /* at least so long between checkpoints within an epoch; 0 = 20, negative = at ends of epochs only */
} eg_trainer_options;
/** eg_trainer_new(ctx, net, train_set, .validation = test_set, .epochs = 10). NULL on failure. */
#define eg_trainer_new(...) eg_trainer_new_with(&(eg_trainer_options){.ctx = __VA_ARGS__})
EG_API eg_trainer *eg_trainer_new_with(const eg_trainer_options *options);
EG_API void eg_trainer_free(eg_trainer *trainer);
/** Trains all epochs, with validation after each where there is a validation set. ECANCELED after eg_context_cancel(), with the checkpoint written. */
EG_API eg_status eg_trainer_train(eg_trainer *trainer);
/** One pass over the validation set in evaluation mode; averages in eg_trainer_meters(). */
EG_API eg_status eg_trainer_validate(eg_trainer *trainer);
/** Averages of the last validation ("loss", "acc1", ..), or training epoch when there was none. Lent. */
EG_API const eg_meter_group *eg_trainer_meters(const eg_trainer *trainer);
EG_API eg_module *eg_trainer_model(const eg_trainer *trainer);
EG_API eg_optimizer *eg_trainer_optimizer(const eg_trainer *trainer);
/** Writes the architecture of the model's mutator (eg_mutator_export) to a file. EINVAL when it has none. */
EG_API eg_status eg_trainer_export(eg_trainer *trainer, const char *path);
/** Writes everything needed to go on bit for bit. */
EG_API eg_status eg_trainer_checkpoint(eg_trainer *trainer, const char *path);
EG_API eg_status eg_trainer_restore(eg_trainer *trainer, const char *path);

/** Accuracy (0 .. 1) of a model on a data set in evaluation mode; NaN on failure. */
EG_API double eg_evaluate(eg_module *model, eg_dataset *dataset, size_t batch_size);

/* ---------------------------------------------------------------------------------------------- search */

typedef struct eg_search eg_search;
typedef struct eg_search_options {
    eg_context *ctx;
    eg_module *model;       /* with mutables; retained */
    eg_dataset *train;      /* halved with the seed: one half trains weights, the other validates choices */
    const char *strategy;   /* NULL = "darts" */
    int64_t epochs;         /* of the supernet; at least 1 unless the strategy trains nothing */
    size_t batch_size;      /* 0 = 64 */
    int workers;
    eg_strategy_options strategy_options;
    double lr;              /* of the weights; 0 = 0.025: SGD, momentum 0.9, weight decay 3e-4, cosine to 0.001 over the batches */
    const eg_transform *transforms;
    size_t n_transforms;
    uint64_t seed;
    eg_progress_fn progress;
    void *progress_payload;
    const char *run;        /* run directory: checkpoints, events.jsonl, arch.json; NULL = none */
    bool resume;
    double checkpoint_seconds; /* as of trainers */
} eg_search_options;
/** eg_search_new(ctx, net, train_set, .strategy = "spos", .epochs = 5). */
#define eg_search_new(...) eg_search_new_with(&(eg_search_options){.ctx = __VA_ARGS__})
EG_API eg_search *eg_search_new_with(const eg_search_options *options);
EG_API void eg_search_free(eg_search *search);
EG_API eg_status eg_search_run(eg_search *search);
/** The architecture found; NULL and EINVAL before eg_search_run() has succeeded. Lent. */
EG_API const eg_arch *eg_search_arch(const eg_search *search);
EG_API eg_status eg_search_export(eg_search *search, const char *path);

/* ---------------------------------------------------------------------------------------------- run directories */

/** A run directory holds run.json (command, version, options), events.jsonl (append-only), checkpoint/last.safetensors and what the run made
 *  (arch.json, model.safetensors). */
/** Makes the directory and writes run.json; EINVAL when it holds a run already and `resume` is not set; with resume EINVAL when its run.json is of another
 *  command line (naming the first difference). `options_json`: an object. */
EG_API eg_status eg_run_create(const char *directory, const char *options_json, bool resume);
/** Text of run.json, for eg_free(). NULL: ENOENT, EFORMAT. */
EG_API char *eg_run_load(const char *directory);
/** Appends one line {"time": .., "event": name, ..members of fields_json}. */
EG_API eg_status eg_run_event(const char *directory, const char *event, const char *fields_json);

#ifdef __cplusplus
}
#endif
#endif
