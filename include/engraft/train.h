/** @file
 * engraft/train.h - training loops: trainers, callbacks, meters, searches, run directories.
 */
#ifndef ENGRAFT_TRAIN_H
#define ENGRAFT_TRAIN_H

#include "nas.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------- meters */

/** A number that is watched: its last value, sum and average, each value counted with its weight. */
typedef struct eg_meter {
    double val, avg, sum;
    uint64_t count;
} eg_meter;
/** Counts `value` with weight n. NULL: nothing. */
EG_API void eg_meter_update(eg_meter *meter, double value, uint64_t n);

/** Meters by name, made at their first update, in that order. */
typedef struct eg_meter_group eg_meter_group;
/** An empty group; NULL on ENOMEM. */
EG_API eg_meter_group *eg_meter_group_new(void);
/** Frees it with its meters. NULL is allowed. */
EG_API void eg_meter_group_free(eg_meter_group *group);
/** Counts `value` with weight n (the batch size). */
EG_API eg_status eg_meter_group_update(eg_meter_group *group, const char *name, double value, uint64_t n);
/** Lent until a reset. NULL and ENOENT when absent. */
EG_API const eg_meter *eg_meter_group_get(const eg_meter_group *group, const char *name);
/** How many meters there are. */
EG_API size_t eg_meter_group_size(const eg_meter_group *group);
/** Meter i and (unless NULL) its name, both lent until a reset. NULL and EINVAL when out of range. */
EG_API const eg_meter *eg_meter_group_at(const eg_meter_group *group, size_t i, const char **name);
/** Forgets all meters. */
EG_API void eg_meter_group_reset(eg_meter_group *group);
/** "acc1 0.250000 (0.375000)  loss 1.000000 (1.500000)": last values and averages; for eg_free(). */
EG_API char *eg_meter_group_text(const eg_meter_group *group);
/** "acc1: 0.375000  loss: 1.500000": averages; for eg_free(). */
EG_API char *eg_meter_group_summary(const eg_meter_group *group);

/* ---------------------------------------------------------------------------------------------- callbacks */

typedef struct eg_trainer eg_trainer;
typedef struct eg_callback eg_callback;

/** What happens at moments of a training. Each function may be NULL; a failure stops the training, and its message gets
 *  the callback's name. Epochs count from 0.
 *
 *  Checkpoints hold nothing of callbacks, except where built-in schedules are. A training that goes on from a
 * checkpoint inside an epoch begins with on_train_begin and on_epoch_begin of that epoch, and what came after the
 * checkpoint (the batches, and on_epoch_end when the process ended before the checkpoint of its epoch) is done a second
 * time. So a callback goes by the epoch and batch it is given and by eg_context_rng(); what else it has learned (an
 * optimizer of a mutator's weights, say) it writes itself and reads again in `build`. */
typedef struct eg_callback_class {
    size_t struct_size; /**< sizeof(eg_callback_class) */
    const char *name;
    eg_status (*build)(eg_callback *self, eg_trainer *trainer); /**< before a checkpoint is read */
    eg_status (*on_train_begin)(eg_callback *self);
    eg_status (*on_epoch_begin)(eg_callback *self, int64_t epoch);
    eg_status (*on_batch_begin)(eg_callback *self, int64_t epoch, int64_t batch);
    eg_status (*on_batch_end)(eg_callback *self, int64_t epoch, int64_t batch);
    eg_status (*on_epoch_end)(eg_callback *self, int64_t epoch);
    eg_status (*on_train_end)(eg_callback *self);
    void (*finalize)(eg_callback *self); /**< when it is freed, built or not */
} eg_callback_class;
/** The head of every callback struct. */
struct eg_callback {
    const eg_callback_class *cls;
    eg_trainer *trainer; /**< set before build; NULL until then */
    void *payload;       /**< the user's */
};
/** A callback of one's own: cls's functions with `payload` (lent). NULL on failure: EINVAL (no class, or one without a
 *  struct_size). */
EG_API eg_callback *eg_callback_new(const eg_callback_class *cls, void *payload);
/** Frees one that no trainer has taken over. */
EG_API void eg_callback_free(eg_callback *callback);
/** How often a schedule takes a step. */
typedef enum eg_schedule_unit { EG_PER_EPOCH, EG_PER_BATCH } eg_schedule_unit;
/** Steps a schedule (taken over, also on failure) at the end of each epoch or batch. NULL: EINVAL for another unit. */
EG_API eg_callback *eg_lr_scheduler_callback(eg_scheduler *scheduler, eg_schedule_unit unit);
/** Writes DIR/epoch_<n>.json, the architecture as eg_trainer_export() does, at the end of each epoch. The directory is
 *  made now: NULL and EIO or ENOENT when it cannot be. */
EG_API eg_callback *eg_architecture_checkpoint(const char *directory);
/** Writes DIR/epoch_<n>.safetensors, the model's state, at the end of each epoch. The same holds. */
EG_API eg_callback *eg_model_checkpoint(const char *directory);

/* ---------------------------------------------------------------------------------------------- memory */

/** What a step keeps for its backward. */
typedef enum eg_memory {
    EG_MEMORY_NORMAL,
    EG_MEMORY_LOW /**< nothing of mixed edges, which are run again: see eg_mutator_set_recompute() */
} eg_memory;

/** Bytes of tensor buffers at the peak of training steps. */
typedef struct eg_memory_estimate {
    size_t parameters;  /**< with buffers, such as running statistics */
    size_t gradients;   /**< of the parameters */
    size_t optimizer;   /**< its state */
    size_t activations; /**< all the rest: what forward keeps, workspaces, the batch, and what else the context holds */
    size_t total;       /**< what eg_context_stats will call bytes_reserved */
} eg_memory_estimate;

/* ---------------------------------------------------------------------------------------------- trainer */

/** Loss of a batch: a scalar on the tape; NULL on failure. */
typedef eg_tensor *(*eg_loss_fn)(void *payload, eg_tensor *output, eg_tensor *target);
/** Adds its numbers to the meters, e.g. "acc1". */
typedef eg_status (*eg_metrics_fn)(void *payload, const eg_tensor *output, const eg_tensor *target,
                                   eg_meter_group *meters);

/** Tells of progress: called after each batch (or candidate), so a function that prints does well to let most calls
 *  pass. The last call of a phase has done == total; where a search space turns out to have fewer candidates than were
 *  asked for, that call has the smaller total. */
typedef struct eg_progress {
    const char *phase; /**< "train", "validate", or what the choice of a search goes through: "candidates" */
    int64_t epoch;     /**< from 0; -1 in eg_trainer_validate(), which is of none; `epochs` in the choice of a search,
                            which comes after all of them */
    int64_t epochs;
    size_t done, total;
    const eg_meter_group *meters; /**< NULL or the epoch's so far */
} eg_progress;
/** All it is given is lent for the call. */
typedef void (*eg_progress_fn)(void *payload, const eg_progress *progress);

/** How a trainer trains, for trainers of one's own; all around it (epochs, callbacks, validation, checkpoints, events,
 *  export) stays. Functions left NULL are the built-in ones. */
typedef struct eg_trainer_class {
    size_t struct_size;
    const char *name;
    /** One step on a batch, in a scope where nothing is recorded: moves the weights and counts in
     *  eg_trainer_epoch_meters(). Of what it does checkpoints and resumed trainings know as of the built-in one,
     *  eg_trainer_step(). Also called by eg_trainer_memory(). */
    eg_status (*train_step)(eg_trainer *self, const eg_batch *batch);
    /** A whole epoch, in place of the loop over batches; the model is in training mode. It starts loaders and opens
     *  scopes itself, and calls eg_trainer_batch_begin() and eg_trainer_batch_end() around each batch. Checkpoints are
     *  written at its end only, and one that failed is begun anew. */
    eg_status (*train_one_epoch)(eg_trainer *self, int64_t epoch);
    /** A validation, in place of the pass over the validation set: counts in eg_trainer_epoch_meters(). It sets and
     * puts back modes itself. Epoch -1 in eg_trainer_validate(). */
    eg_status (*validate_one_epoch)(eg_trainer *self, int64_t epoch);
    /** What it has learned beside the model, the optimizer and the mutator: tensors into / from `state` under names
     * that begin with `prefix`. May be NULL. After a failure of `load` the state from before is loaded. */
    eg_status (*save)(eg_trainer *self, const char *prefix, eg_state *state);
    eg_status (*load)(eg_trainer *self, const char *prefix, const eg_state *state);
} eg_trainer_class;

/** What eg_trainer_new() takes by name. Texts and transforms are copied. */
typedef struct eg_trainer_options {
    size_t struct_size;
    eg_context *ctx;
    eg_module *model;        /**< retained */
    eg_dataset *train;       /**< retained */
    eg_dataset *validation;  /**< retained; NULL = none */
    int64_t epochs;          /**< at least 1 */
    size_t batch_size;       /**< 0 = 64 */
    int workers;             /**< of the loader */
    eg_loss_fn loss;         /**< NULL = cross entropy */
    eg_metrics_fn metrics;   /**< NULL = acc1 */
    void *payload;           /**< of loss, metrics and class */
    double label_smoothing;  /**< of the default loss: 0 or more, below 1 */
    eg_optimizer *optimizer; /**< taken over; NULL = SGD, momentum 0.9, nesterov, warm-up over the first 5 % of all
                                batches, then cosine to 0 */
    double lr;               /**< of that default optimizer: 0 = 0.1 */
    eg_opt_f64 weight_decay; /**< of it: unset = 5e-4 */
    double grad_clip;        /**< max norm; 0 = none */
    const eg_transform *transforms; /**< of training samples */
    size_t n_transforms;
    int64_t log_frequency;         /**< batches between log lines; 0 = none */
    eg_callback *const *callbacks; /**< taken over; the list itself is copied */
    size_t n_callbacks;
    uint64_t seed;           /**< of shuffling and augmentation */
    eg_progress_fn progress; /**< NULL = none */
    void *progress_payload;
    const char *run;           /**< run directory for checkpoints and events.jsonl, made; NULL = none */
    bool resume;               /**< go on from the checkpoint in `run` where there is one */
    double checkpoint_seconds; /**< at least so long between checkpoints within an epoch; 0 = 20, negative = at ends of
                                  epochs only */
    eg_memory memory;          /**< low: for a model with a mutator that decides by tensors of weights */
    size_t max_memory;         /**< bytes; 0 = no limit. As of searches */
    const eg_trainer_class *cls; /**< static; NULL = the built-in trainer */
    bool no_validation;          /**< validate by eg_trainer_validate() only, not after each epoch */
} eg_trainer_options;
/** eg_trainer_new(ctx, net, train_set, .validation = test_set, .epochs = 10). NULL on failure, with all freed that was
 *  to be taken over: EINVAL (an option out of range, or a checkpoint made with another one; both are named), EFORMAT
 * and EIO (the checkpoint), a callback's failure. */
#define eg_trainer_new(...)                                                                                            \
    eg_trainer_new_with(&(eg_trainer_options){.struct_size = sizeof(eg_trainer_options), .ctx = __VA_ARGS__})
/** The same from a struct. Without its struct_size: EINVAL, and nothing is taken over. */
EG_API eg_trainer *eg_trainer_new_with(const eg_trainer_options *options);
/** Frees it with its optimizer and callbacks. */
EG_API void eg_trainer_free(eg_trainer *trainer);
/** Trains all epochs, with validation after each where there is a validation set; the model is in evaluation mode
 * after. Called again after that, it starts from epoch 0 with the weights as they are. ECANCELED after
 * eg_context_cancel(), with the checkpoint written: after eg_context_resume() the next call goes on. EINVAL for a loss
 * that is not finite, before the weights are touched (running statistics of batch norms are not among them). A later
 * call after another failure goes on at the batch that failed. */
EG_API eg_status eg_trainer_train(eg_trainer *trainer);
/** One pass over the validation set (EINVAL: none) in evaluation mode; averages in eg_trainer_meters(). Each module's
 *  mode is put back. */
EG_API eg_status eg_trainer_validate(eg_trainer *trainer);
/** The built-in step on a batch: forward, loss, backward, clipping, a step of the optimizer; counts metrics and loss in
 *  the epoch's meters. EINVAL for an empty batch and for a loss that is not finite. */
EG_API eg_status eg_trainer_step(eg_trainer *trainer, const eg_batch *batch);
/** Around each batch of a train_one_epoch(): callbacks, log lines, progress and visualization. ECANCELED from the first
 *  after eg_context_cancel(), which the epoch returns. */
EG_API eg_status eg_trainer_batch_begin(eg_trainer *trainer, size_t batch);
/** The same at its end. */
EG_API eg_status eg_trainer_batch_end(eg_trainer *trainer, size_t batch);
/** `payload` of the options. */
EG_API void *eg_trainer_payload(const eg_trainer *trainer);
/** The loader of the training set, or of the validation set (NULL: none). Lent. */
EG_API eg_loader *eg_trainer_loader(const eg_trainer *trainer, bool validation);
/** The meters of the epoch, or of its validation, to be counted in. Lent. */
EG_API eg_meter_group *eg_trainer_epoch_meters(eg_trainer *trainer, bool validation);
/** Writes the graph of the supernet (graph.json and an event file of TensorBoard's) into a directory, and from now on
 *  the decisions of the model's mutator (eg_mutator_status() in one line) at the end of each batch to its file `log`.
 *  `directory` is made; NULL = the run directory, or logs/<time>. EINVAL when the model has no mutator; EIO; as
 *  eg_mutator_graph(). */
EG_API eg_status eg_trainer_enable_visualization(eg_trainer *trainer, const char *directory);
/** That directory; NULL when there is none. Lent. */
EG_API const char *eg_trainer_log_directory(const eg_trainer *trainer);
/** Averages of the last validation ("loss", "acc1", ..), or training epoch when there was none. Lent. */
EG_API const eg_meter_group *eg_trainer_meters(const eg_trainer *trainer);
/** Predicts the peak of a training step by doing some with neither memory nor arithmetic: hooks, losses and modules of
 *  one's own are called, on tensors full of zeros, and nothing is changed by it. Kernels of the backend "ref" do
 * compute, and take the memory. ENOMEM, and what a step fails with. */
EG_API eg_status eg_trainer_memory(eg_trainer *trainer, eg_memory memory, eg_memory_estimate *estimate);
/** Seconds that eg_trainer_train() took so far, those before the checkpoint that it went on from included. */
EG_API double eg_trainer_seconds(const eg_trainer *trainer);
/** Lent. */
EG_API eg_module *eg_trainer_model(const eg_trainer *trainer);
/** Lent. */
EG_API eg_optimizer *eg_trainer_optimizer(const eg_trainer *trainer);
/** Writes the architecture of the model's mutator (eg_mutator_export) to a file. EINVAL when it has none; EIO. */
EG_API eg_status eg_trainer_export(eg_trainer *trainer, const char *path);
/** Writes what is needed to go on bit for bit: weights, optimizer, schedules, the model's mutator, random numbers,
 * meters and place. Not in it: callbacks of one's own (see eg_callback_class), and whatever a loss or metric keeps.
 * EIO. */
EG_API eg_status eg_trainer_checkpoint(eg_trainer *trainer, const char *path);
/** The recipe of the surgeries that made the model what it is (eg_surgery_recipe(), copied; NULL = none): from now on
 *  checkpoints have it with them, also those of trainers that go on from one. So the model can be made again:
 *
 *      char *recipe = eg_checkpoint_recipe(ctx, "run/checkpoint/last.safetensors");
 *      if (recipe != NULL)
 *          eg_module_apply_recipe(net, NULL, recipe);
 *      eg_trainer *t = eg_trainer_new(ctx, net, train_set, .epochs = 10, .run = "run", .resume = true);
 */
EG_API eg_status eg_trainer_set_recipe(eg_trainer *trainer, const char *recipe);
/** The recipe in a checkpoint, or in another safetensors file whose metadata have it as "surgery"; for eg_free(). NULL
 *  (no failure) when there is none; NULL on failure: as eg_safetensors_load(). */
EG_API char *eg_checkpoint_recipe(eg_context *ctx, const char *path);
/** Goes on from there: the next eg_trainer_train() does. EINVAL, naming the option and both values, when the checkpoint
 *  was made with another number of epochs, samples or threads, batch size, seed, transforms, backend, grad_clip,
 *  label_smoothing, kind of mutator, or learning rate and weight decay of the default optimizer (one that was given is
 *  the caller's to repeat); ENOENT, EIO, EFORMAT; what eg_module_load_state(), eg_optimizer_load_state() and
 *  eg_mutator_load_state() fail with. After a failure the trainer and its model are as they were (unless memory runs
 * out while they are put back). */
EG_API eg_status eg_trainer_restore(eg_trainer *trainer, const char *path);

/** Accuracy (0 .. 1) of a model on a data set in evaluation mode, in batches of batch_size (0 = 64); each module's mode
 *  is put back. NaN on failure: EINVAL (an empty set), ECANCELED, what the model fails with. */
EG_API double eg_evaluate(eg_module *model, eg_dataset *dataset, size_t batch_size);

/* ---------------------------------------------------------------------------------------------- search */

/** A one-shot search: a supernet is trained on one half of the data, then an architecture is chosen by the other. */
typedef struct eg_search eg_search;
/** What eg_search_new() takes by name. Texts and transforms are copied. */
typedef struct eg_search_options {
    size_t struct_size;
    eg_context *ctx;
    eg_module *model;     /**< with mutables and no mutator; retained */
    eg_dataset *train;    /**< halved with the seed: one half trains weights, the other validates choices; retained */
    const char *strategy; /**< NULL = "darts" */
    int64_t epochs;       /**< of the supernet; at least 1 unless the strategy trains nothing */
    size_t batch_size;    /**< 0 = 64 */
    int workers;          /**< of the loaders */
    eg_strategy_options strategy_options; /**< its struct_size may be left out; seed 0 = the search's */
    double lr; /**< of the weights; 0 = 0.025: SGD, momentum 0.9, weight decay 3e-4, cosine to 0.001 over the
                  batches */
    const eg_transform *transforms; /**< of samples to train with */
    size_t n_transforms;
    uint64_t seed;
    eg_progress_fn progress; /**< NULL = none */
    void *progress_payload;
    const char *run;           /**< run directory: checkpoints, events.jsonl, arch.json, made; NULL = none */
    bool resume;               /**< go on from the checkpoint in `run` where there is one */
    double checkpoint_seconds; /**< as of trainers */
    eg_memory memory;
    size_t max_memory; /**< bytes that a training step may take as eg_search_memory() says; 0 = no limit. Where it takes
                          more, `memory` becomes low, with a warning; where that does not help: ENOMEM */
} eg_search_options;
/** eg_search_new(ctx, net, train_set, .strategy = "spos", .epochs = 5). The strategy's mutator is attached to the model
 *  until eg_search_free(). NULL on failure: EINVAL (an option out of range, or a checkpoint made with another one; both
 *  are named), ENOENT (no such strategy), EFORMAT and EIO (the checkpoint); the model is as it was, unless a checkpoint
 *  that fits was loaded before. */
#define eg_search_new(...)                                                                                             \
    eg_search_new_with(&(eg_search_options){.struct_size = sizeof(eg_search_options), .ctx = __VA_ARGS__})
/** The same from a struct. EINVAL without its struct_size. */
EG_API eg_search *eg_search_new_with(const eg_search_options *options);
/** Frees it and detaches the mutator; the model keeps its shared weights. */
EG_API void eg_search_free(eg_search *search);
/** Trains, chooses, and writes arch.json into the run directory. A search that is done only writes it again. ECANCELED
 *  after eg_context_cancel(), with the checkpoint written: after eg_context_resume() the next call goes on. EINVAL,
 *  naming epoch and step, for a loss that is not finite, before the weights are touched. */
EG_API eg_status eg_search_run(eg_search *search);
/** The architecture found; NULL and EINVAL before eg_search_run() has succeeded (the message says whether it was run).
 * Lent. */
EG_API const eg_arch *eg_search_arch(const eg_search *search);
/** The best accuracy (0 .. 1) that was measured for the choice, on up to 2000 samples of the half that is held out and
 *  with the shared weights: that of the architecture found. NaN where the strategy measures none (darts, random),
 * before eg_search_run() has succeeded, and for NULL. */
EG_API double eg_search_accuracy(const eg_search *search);
/** Predicts the peak of the training steps of the strategy as eg_trainer_memory() does; of a strategy that samples,
 * over the first of its paths, up to 96, as a long search meets them. EINVAL for one that trains nothing. */
EG_API eg_status eg_search_memory(eg_search *search, eg_memory memory, eg_memory_estimate *estimate);
/** As eg_trainer_enable_visualization(), for each step of the search. */
EG_API eg_status eg_search_enable_visualization(eg_search *search, const char *directory);
/** That directory; NULL when there is none. Lent. */
EG_API const char *eg_search_log_directory(const eg_search *search);
/** Seconds that eg_search_run() took so far, those before the checkpoint that it went on from included. */
EG_API double eg_search_seconds(const eg_search *search);
/** Writes the architecture found to a file. EINVAL before there is one; EIO. */
EG_API eg_status eg_search_export(eg_search *search, const char *path);

/* ---------------------------------------------------------------------------------------------- run directories */

/** Makes a run directory (run.json, events.jsonl, checkpoint/last.safetensors, and what the run made) and writes
 *  run.json. `options_json`: an object. EINVAL when the directory holds a run already and `resume` is not set; with
 *  `resume` EINVAL when its run.json is of other options, naming the first difference. EIO; EFORMAT for a text or file
 *  that is no JSON. */
EG_API eg_status eg_run_create(const char *directory, const char *options_json, bool resume);
/** Text of run.json, for eg_free(). NULL: ENOENT (no run), EIO, EFORMAT. */
EG_API char *eg_run_load(const char *directory);
/** Appends one line {"time": .., "event": name, ..members of fields_json} to events.jsonl. `fields_json`: an object;
 * NULL = none. EINVAL, EFORMAT, ENOENT (no such directory), EIO. */
EG_API eg_status eg_run_event(const char *directory, const char *event, const char *fields_json);

#ifdef __cplusplus
}
#endif
#endif
