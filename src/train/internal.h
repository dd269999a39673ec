/*
 * train/internal.h - what the files of the train layer share: trainers, checkpoints, evaluation.
 */
#ifndef EG_TRAIN_INTERNAL_H
#define EG_TRAIN_INTERNAL_H

#include "base/internal.h"
#include "engraft/io.h"
#include "engraft/train.h"
#include "nn/internal.h"

/* ---- numbers in JSON, exact and independent of the locale: bit patterns and u64 as text ---- */

json_t *eg__json_double(double value);
json_t *eg__json_u64(uint64_t value);
/** Member `key` of an object as written by the functions above. EFORMAT naming the key. */
eg_status eg__json_get_double(const json_t *object, const char *key, double *value);
/** The same for a value itself, which `key` names in the failure. */
eg_status eg__json_read_double(const json_t *json, const char *key, double *value);
eg_status eg__json_get_u64(const json_t *object, const char *key, uint64_t *value);
eg_status eg__json_get_i64(const json_t *object, const char *key, int64_t *value);

/* ---- meters ---- */

json_t *eg__meters_json(const eg_meter_group *group); /* all there is of them, for checkpoints. NULL on failure */
eg_status eg__meters_restore(eg_meter_group *group, const json_t *list);
void eg__meters_swap(eg_meter_group *a, eg_meter_group *b);
json_t *eg__meters_averages(const eg_meter_group *group); /* {"loss": 0.5, ..} for events. NULL on failure */

/* ---- time spent, over all sessions of a run ---- */

typedef struct eg__clock {
    double before, started; /* seconds of what is over; when what runs was started */
    bool running;
} eg__clock;

static inline double eg__clock_read(const eg__clock *clock)
{
    return clock->before + (clock->running ? eg__now() - clock->started : 0);
}
static inline void eg__clock_start(eg__clock *clock)
{
    *clock = (eg__clock){.before = clock->before, .started = eg__now(), .running = true};
}
static inline void eg__clock_stop(eg__clock *clock)
{
    *clock = (eg__clock){.before = eg__clock_read(clock)};
}

/* ---- checkpoints: one file of tensors, with all other numbers as JSON in its metadata ---- */

typedef struct eg__position {
    int64_t epoch; /* the next batch to be run, */
    size_t batch;  /* or the number of batches when only the end of the epoch is to come */
} eg__position;

/** What is common to trainings and searches: where they are, the context's random numbers, and the time spent. */
typedef struct eg__moment {
    eg__position position;
    eg_rng rng;
    double seconds;
} eg__moment;

/** Makes the scalars of a checkpoint: a moment, and `settings` (taken over): what a run that goes on must have in
 * common with the one that wrote it. */
json_t *eg__checkpoint_scalars(const eg__moment *moment, json_t *settings);
/** The moment in scalars, of a run of that many epochs. EFORMAT naming the member that cannot be. */
eg_status eg__checkpoint_moment(const json_t *scalars, int64_t epochs, eg__moment *moment);
/** Amounts of transforms, for settings: all of them that can be compared. */
json_t *eg__transforms_json(const eg_transform *transforms, size_t n);
/** Writes atomically; takes over `scalars`, also on failure. */
eg_status eg__checkpoint_write(const char *path, const eg_state *state, json_t *scalars);
/** Takes over what a checkpoint holds; the tensors live until it returns. */
typedef eg_status (*eg__restore_fn)(void *owner, const eg_state *state, const json_t *scalars);
/** Reads a file and hands it to `restore`. EFORMAT when it is no checkpoint; EINVAL when its settings differ from
 *  `settings` (taken over), naming the first difference; a failure of `restore`, naming the path. */
eg_status eg__checkpoint_restore(eg_context *ctx, const char *path, json_t *settings, eg__restore_fn restore,
                                 void *owner);
/** What a training or a search changes as it goes: tensors, and places in schedules. */
typedef struct eg__parts {
    void *owner;
    eg_status (*save)(void *owner, eg_state *state, json_t *scalars);
    eg_status (*load)(void *owner, const eg_state *state, const json_t *scalars);
} eg__parts;
/** Loads them; after a failure they are what they were before. Makes tensors in the current scope. */
eg_status eg__parts_load(const eg__parts *parts, const eg_state *state, const json_t *scalars);
/** "<run>/checkpoint/last.safetensors", with its folder made. NULL on failure. */
char *eg__checkpoint_path(const char *run);

/** Seconds between checkpoints within an epoch where the options say nothing. */
#define EG__CHECKPOINT_SECONDS 20.0

/* ---- memory ---- */

/** Steps of `batch_size` samples, to be predicted. */
typedef struct eg__steps {
    eg_context *ctx;
    eg_module *model;
    const eg_optimizer *optimizer;
    const eg_dataset *data;
    size_t batch_size;
    bool two_batches; /* a step takes one of the second half as well */
    void *owner;
    eg_status (*step)(void *owner, const eg_batch *train, const eg_batch *valid);
} eg__steps;
eg_status eg__memory_predict(const eg__steps *steps, eg_memory memory, eg_memory_estimate *estimate);
/** Sets *memory to low where only that fits, with a warning. ENOMEM where nothing does. */
eg_status eg__memory_fit(const eg__steps *steps, size_t max_memory, eg_memory *memory);

/* ---- run directories ---- */

/** An event whose fields are JSON (taken over; NULL = a failure kept). Does nothing when run is NULL. */
eg_status eg__event(const char *run, const char *event, json_t *fields);
/** Appends a line to a file; one that was cut short is ended before. EIO. */
eg_status eg__append_line(const char *path, const char *line);

/* ---- what a search looks like ---- */

/** Where it is shown. All-zero: nowhere. */
typedef struct eg__visual {
    char *directory, *log;
} eg__visual;
/** Writes the graph of the mutator's model, for samples of that shape, into `directory`; NULL = the run, or one that is
 *  named by the time. A failure leaves *v as it was. */
eg_status eg__visual_start(eg__visual *v, eg_mutator *mutator, eg_shape sample, const char *run, const char *directory);
/** Appends the decisions of now to the log; does nothing when nothing is shown. */
eg_status eg__visual_step(const eg__visual *v, eg_mutator *mutator);
void eg__visual_free(eg__visual *v);

/* ---- trainers ---- */

struct eg_trainer {
    eg_trainer_options options; /* as given, with defaults filled in; the pointers below are ours */
    const eg_trainer_class *cls;
    eg_loader *train, *validation;
    eg_optimizer *optimizer;
    eg_callback **callbacks;
    size_t n_callbacks;
    eg_meter_group *meters, *validation_meters;
    eg__position position;
    size_t
        batch; /* the one under way, or the last, for messages: a class of one's own may count where position stays */
    eg__clock clock;
    json_t *settings;            /* that a checkpoint must share */
    bool finished;               /* the next eg_trainer_train() starts from epoch 0 */
    char *run, *checkpoint_path; /* NULL = none */
    char *recipe;                /* of the surgery that the model comes from; NULL = none */
    double saved_at;
    eg__visual visual;
};

/** The schedule of a callback made by eg_lr_scheduler_callback(); NULL for others. Lent. */
eg_scheduler *eg__callback_scheduler(const eg_callback *callback);

/** Fills in `settings`. */
eg_status eg__trainer_settings(eg_trainer *trainer);
/** What the options say of memory, before the settings are taken. */
eg_status eg__trainer_settle_memory(eg_trainer *trainer);
/** Whether epochs end with a validation. */
bool eg__trainer_validates(const eg_trainer *trainer);
/** Writes the checkpoint of its run; does nothing without a run. */
eg_status eg__trainer_save(eg_trainer *trainer);

/* ---- evaluation ---- */

/** Runs a model over a loader's epoch 0 in evaluation mode, calling `each` with every output. The modules' modes are
 * put back. ECANCELED after eg_context_cancel(). */
typedef eg_status (*eg__output_fn)(void *payload, size_t batch, eg_tensor *output, const eg_batch *data);
eg_status eg__run_over(eg_module *model, eg_loader *loader, eg__output_fn each, void *payload);

/** Share of samples that a model gets right. */
eg_status eg__accuracy_over(eg_module *model, eg_loader *loader, double *accuracy);

/** Batch-norm statistics of a model, kept while others are put in their place. */
typedef struct eg__norm_stats eg__norm_stats;
/** NULL on failure. */
eg__norm_stats *eg__norm_stats_save(eg_module *model);
/** Puts everything back and frees. NULL is allowed. */
eg_status eg__norm_stats_restore(eg__norm_stats *stats);
/** Replaces running means and variances by the plain average over a loader's epoch 0. Draws no random numbers. */
eg_status eg__norm_stats_recompute(eg__norm_stats *stats, eg_module *model, eg_loader *loader);

#endif
