/*
 * One-shot searches: a supernet is trained on one half of the data as a strategy says, which then chooses an
 * architecture by the other half.
 */
#include "train/search.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define DEFAULT_BATCH 64
#define DEFAULT_LR 0.025
#define FINAL_LR 0.001
#define CALIBRATION_SAMPLES 1000
#define EVALUATION_SAMPLES 2000

static void tell(const eg_search *s, const char *phase, size_t done, size_t total, const eg_meter_group *meters)
{
    const eg_search_options *o = &s->options;
    if (o->progress)
        o->progress(o->progress_payload, &(eg_progress){.phase = phase,
                                                        .epoch = s->choosing ? o->epochs : s->position.epoch,
                                                        .epochs = o->epochs,
                                                        .done = done,
                                                        .total = total,
                                                        .meters = meters});
}

/* ---------------------------------------------------------------------------------------------- what strategies ask */

/* Leaves the model as it was, and draws no random numbers: a candidate's accuracy depends on nothing that was asked
 * before. */
static eg_status measure(eg_search *s, double *accuracy)
{
    eg_module *model = s->options.model;
    eg__norm_stats *stats = eg__norm_stats_save(model);
    if (!stats)
        return eg_error_last()->code;
    eg_status status = eg__norm_stats_recompute(stats, model, s->calibration);
    if (status == EG_OK)
        status = eg__accuracy_over(model, s->evaluation, accuracy);
    eg_status restored = eg__norm_stats_restore(stats);
    return status != EG_OK ? status : restored;
}

/* In a scope of its own: a choice measures any number of candidates. */
static eg_status measure_candidate(eg_search *s, double *accuracy)
{
    eg_tape *scope = eg_tape_begin(s->options.ctx, EG_NO_GRAD);
    eg_status status = scope ? measure(s, accuracy) : EG_ENOMEM;
    eg_tape_end(scope);
    return status;
}

/* With what it was: the decisions in force. */
static eg_status report_candidate(const eg_search *s, size_t index, double accuracy)
{
    eg_mutator *mutator = s->strategy->mutator;
    if (!s->run)
        return EG_OK;
    eg_arch *arch = eg_mutator_export_decisions(mutator, mutator->current);
    char *text = arch ? eg_arch_text(arch) : NULL;
    eg_status status = text ? EG_OK : eg_error_last()->code;
    if (text)
        status = eg__event(s->run, "candidate",
                           json_pack("{s:I, s:f, s:o}", "index", (json_int_t)index, "accuracy", accuracy, "arch",
                                     eg__json_parse(text, strlen(text), "an architecture")));
    eg_free(text);
    eg_arch_free(arch);
    return status;
}

static eg_status host_evaluate(void *payload, double *accuracy)
{
    eg_search *s = payload;
    size_t question = s->n_asked++;
    if (question < s->n_known) {
        *accuracy = s->known[question];
        return EG_OK;
    }
    EG_TRY(measure_candidate(s, accuracy));
    EG_TRY(eg__grow(&s->known, &s->known_capacity, s->n_known + 1, sizeof *s->known));
    s->known[s->n_known++] = *accuracy;
    EG_TRY(report_candidate(s, question, *accuracy));
    return eg__search_save_when_due(s);
}

static eg_status host_progress(void *payload, const char *what, size_t done, size_t total)
{
    eg_search *s = payload;
    tell(s, what ? what : "candidates", done, total, NULL);
    EG_CHECK(!eg_context_canceled(s->options.ctx), EG_ECANCELED, "the search was canceled");
    return EG_OK;
}

/* ---------------------------------------------------------------------------------------------- construction */

static eg_status check_options(const eg_search *s)
{
    const eg_search_options *o = &s->options;
    EG_CHECK(o->ctx && o->model && o->train, EG_EINVAL, "a search needs a context, a model and a training set");
    EG_CHECK(s->cls->no_training ? o->epochs >= 0 : o->epochs >= 1, EG_EINVAL,
             "epochs is %" PRId64 ", expected at least %d", o->epochs, s->cls->no_training ? 0 : 1);
    EG_CHECK(o->workers >= 0, EG_EINVAL, "workers is %d, expected at least 0", o->workers);
    EG_CHECK(o->lr >= 0 && isfinite(o->lr), EG_EINVAL, "lr is %g, expected a number above 0", o->lr);
    EG_CHECK(o->memory == EG_MEMORY_NORMAL || o->memory == EG_MEMORY_LOW, EG_EINVAL,
             "memory is %d, which is no eg_memory", (int)o->memory);
    EG_CHECK(eg_dataset_size(o->train) >= 2, EG_EINVAL, "the training set has %zu samples, too few to be halved",
             eg_dataset_size(o->train));
    return EG_OK;
}

static eg_loader *training_loader(const eg_search *s, eg_dataset *half, uint64_t seed)
{
    const eg_search_options *o = &s->options;
    size_t batch = EG_MIN(o->batch_size, eg_dataset_size(half));
    return eg_loader_new(half, EG_MAX(batch, 1), .shuffle = true, .drop_last = true, .workers = o->workers,
                         .seed = seed, .transforms = o->transforms, .n_transforms = o->n_transforms);
}

/* Batches of a fixed sample, in the same order every time. `whole`: full batches only, as in training; the statistics
 * of what is left over may have no variance (a single sample whose maps are of one pixel). */
static eg_loader *sample_loader(const eg_search *s, eg_dataset *half, size_t n, bool whole)
{
    eg_dataset *sample = eg_dataset_sample(half, n, s->options.seed);
    size_t batch = EG_MIN(s->options.batch_size, eg_dataset_size(sample));
    eg_loader *loader = sample ? eg_loader_new(sample, EG_MAX(batch, 1), .drop_last = whole) : NULL;
    eg_dataset_release(sample);
    return loader;
}

static eg_status make_loaders(eg_search *s)
{
    uint64_t seed = s->options.seed;
    EG_TRY(eg_dataset_divide(s->options.train, 0.5, seed, &s->weights_half, &s->choices_half));
    s->train = training_loader(s, s->weights_half, seed);
    if (s->cls->needs_validation_batches)
        s->valid = training_loader(s, s->choices_half, seed + 1);
    s->calibration = sample_loader(s, s->weights_half, CALIBRATION_SAMPLES, true);
    s->evaluation = sample_loader(s, s->choices_half, EVALUATION_SAMPLES, false);
    if (!s->train || (s->cls->needs_validation_batches && !s->valid) || !s->calibration || !s->evaluation)
        return eg_error_last()->code;
    return EG_OK;
}

static eg_status make_strategy(eg_search *s)
{
    eg_search_options *o = &s->options;
    o->lr = o->lr > 0 ? o->lr : DEFAULT_LR;
    s->optimizer = eg_sgd(o->model, .ctx = o->ctx, .lr = o->lr, .momentum = 0.9, .weight_decay = 3e-4);
    if (!s->optimizer)
        return eg_error_last()->code;
    int64_t steps = o->epochs * (int64_t)eg_loader_size(s->train);
    s->scheduler = eg_cosine_lr(s->optimizer, EG_MAX(steps, 1), FINAL_LR);
    if (!s->scheduler)
        return eg_error_last()->code;
    s->host = (eg_strategy_host){.payload = s, .evaluate = host_evaluate, .progress = host_progress};
    o->strategy_options.struct_size = sizeof o->strategy_options;
    if (o->strategy_options.seed == 0)
        o->strategy_options.seed = o->seed;
    if (o->strategy_options.input.ndim == 0)
        o->strategy_options.input = eg_dataset_shape(o->train);
    s->strategy = eg_strategy_new(s->cls, o->model, s->optimizer, &s->host, &o->strategy_options);
    if (!s->strategy)
        return eg_error_last()->code;
    o->strategy_options = s->strategy->options; /* its copies of what the caller lent */
    return EG_OK;
}

/* ---------------------------------------------------------------------------------------------- memory */

static eg_status step_once(void *owner, const eg_batch *train, const eg_batch *valid)
{
    eg_search *s = owner;
    eg_step_result ignored;
    double trained = s->strategy->trained;
    s->strategy->trained = 1; /* past a warmup */
    eg_status status = s->cls->train_step(s->strategy, train, valid, &ignored);
    s->strategy->trained = trained;
    return status;
}

static eg__steps steps_of(eg_search *s)
{
    const eg_search_options *o = &s->options;
    return (eg__steps){.ctx = o->ctx,
                       .model = o->model,
                       .optimizer = s->optimizer,
                       .data = o->train,
                       .batch_size = EG_MAX(EG_MIN(o->batch_size, eg_dataset_size(s->weights_half)), 1),
                       .two_batches = s->cls->needs_validation_batches,
                       .owner = s,
                       .step = step_once};
}

eg_status eg_search_memory(eg_search *s, eg_memory memory, eg_memory_estimate *estimate)
{
    EG_CHECK(s && estimate, EG_EINVAL, "search or estimate is NULL");
    EG_CHECK(!s->cls->no_training, EG_EINVAL, "strategy '%s' trains nothing", s->cls->name);
    eg__steps steps = steps_of(s);
    return eg__memory_predict(&steps, memory, estimate);
}

/* Before the settings are taken: what goes on must compute in the same way. */
static eg_status settle_memory(eg_search *s)
{
    eg__steps steps = steps_of(s);
    if (s->options.max_memory > 0 && !s->cls->no_training)
        EG_TRY(eg__memory_fit(&steps, s->options.max_memory, &s->options.memory));
    eg_mutator_set_recompute(s->strategy->mutator, s->options.memory == EG_MEMORY_LOW);
    return EG_OK;
}

static eg_status make_run(eg_search *s, const char *run)
{
    if (!run)
        return EG_OK;
    s->run = eg__strdup(run);
    s->checkpoint_path = s->run ? eg__checkpoint_path(run) : NULL;
    if (!s->checkpoint_path)
        return eg_error_last()->code;
    if (!s->options.resume || !eg__file_exists(s->checkpoint_path))
        return EG_OK;
    EG_TRY(eg__search_restore(s, s->checkpoint_path));
    return eg__event(
        s->run, "resume",
        json_pack("{s:I, s:I}", "epoch", (json_int_t)s->position.epoch, "batch", (json_int_t)s->position.batch));
}

static eg_status build(eg_search *s)
{
    const char *run = s->options.run;
    s->options.run = NULL;
    s->options.strategy = NULL;
    EG_TRY(check_options(s));
    s->options.batch_size = s->options.batch_size > 0 ? s->options.batch_size : DEFAULT_BATCH;
    s->meters = eg_meter_group_new();
    if (!s->meters)
        return EG_ENOMEM;
    EG_TRY(make_loaders(s));
    EG_TRY(make_strategy(s));
    EG_TRY(settle_memory(s));
    EG_TRY(eg__search_settings(s));
    s->options.transforms = NULL; /* the loaders have their own */
    s->saved_at = eg__now();
    return make_run(s, run);
}

eg_search *eg_search_new_with(const eg_search_options *options)
{
    if (!options)
        return eg__null("eg_search_new", "options");
    eg_search_options own;
    if (eg__options_copy(&own, sizeof own, options) != EG_OK)
        return NULL;
    const eg_strategy_class *cls = eg_strategy_find(own.strategy ? own.strategy : "darts");
    eg_search *s = cls ? eg__calloc(1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    s->options = own;
    s->cls = cls;
    if (own.model)
        eg_module_retain(own.model);
    if (own.train)
        eg_dataset_retain(own.train);
    if (build(s) == EG_OK)
        return s;
    eg_search_free(s);
    return NULL;
}

void eg_search_free(eg_search *s)
{
    if (!s)
        return;
    eg_strategy_free(s->strategy);
    eg_scheduler_free(s->scheduler);
    eg_optimizer_free(s->optimizer);
    eg_loader_free(s->train);
    eg_loader_free(s->valid);
    eg_loader_free(s->calibration);
    eg_loader_free(s->evaluation);
    eg_dataset_release(s->weights_half);
    eg_dataset_release(s->choices_half);
    eg_meter_group_free(s->meters);
    eg_arch_free(s->arch);
    json_decref(s->settings);
    eg_module_release(s->options.model);
    eg_dataset_release(s->options.train);
    eg_free(s->known);
    eg__visual_free(&s->visual);
    eg_free(s->run);
    eg_free(s->checkpoint_path);
    eg_free(s);
}

eg_status eg_search_enable_visualization(eg_search *s, const char *directory)
{
    EG_CHECK(s, EG_EINVAL, "search is NULL");
    return eg__visual_start(&s->visual, s->strategy->mutator, eg_dataset_shape(s->options.train), s->run, directory);
}

const char *eg_search_log_directory(const eg_search *s)
{
    return s ? s->visual.directory : NULL;
}

/* ---------------------------------------------------------------------------------------------- training */

/* Step `batch` of epoch `epoch` takes one batch of the second half, which is gone through again and again on its own
 * account. */
static eg_status next_valid(eg_search *s, bool first, eg_batch *valid)
{
    *valid = (eg_batch){0};
    if (!s->valid)
        return EG_OK;
    size_t size = eg_loader_size(s->valid);
    uint64_t step = (uint64_t)s->position.epoch * eg_loader_size(s->train) + s->position.batch;
    if (first || step % size == 0)
        EG_TRY(eg_loader_start(s->valid, step / size, (size_t)(step % size)));
    return eg_loader_next(s->valid, valid);
}

static eg_status run_step(eg_search *s, bool first)
{
    eg_batch train, valid;
    eg_step_result result = {0};
    EG_TRY(eg_loader_next(s->train, &train));
    EG_ASSERT(train.size > 0);
    EG_TRY(next_valid(s, first, &valid));
    size_t size = eg_loader_size(s->train);
    double epochs_done = (double)s->position.epoch + (double)s->position.batch / (double)size;
    s->strategy->trained = epochs_done / (double)s->options.epochs;
    eg_status status = s->cls->train_step(s->strategy, &train, s->valid ? &valid : NULL, &result);
    if (status != EG_OK)
        return eg__fail_prefix(status, "epoch %" PRId64 " of %" PRId64 ", step %zu of %zu", s->position.epoch + 1,
                               s->options.epochs, s->position.batch + 1, size);
    EG_TRY(eg__visual_step(&s->visual, s->strategy->mutator));
    EG_TRY(eg_meter_group_update(s->meters, "acc1", result.accuracy, train.size));
    EG_TRY(eg_meter_group_update(s->meters, "loss", result.loss, train.size));
    return eg_scheduler_step(s->scheduler);
}

static eg_status stop(eg_search *s)
{
    EG_TRY(eg__search_save(s));
    EG_TRY(eg__event(
        s->run, "cancel",
        json_pack("{s:I, s:I}", "epoch", (json_int_t)s->position.epoch, "batch", (json_int_t)s->position.batch)));
    return eg_fail(EG_ECANCELED, "the search was canceled");
}

static eg_status run_epoch(eg_search *s)
{
    size_t total = eg_loader_size(s->train);
    if (s->position.batch == 0)
        eg_meter_group_reset(s->meters);
    eg_module_train(s->options.model, true);
    EG_TRY(eg_loader_start(s->train, (uint64_t)s->position.epoch, s->position.batch));
    for (bool first = true; s->position.batch < total; first = false) {
        if (eg_context_canceled(s->options.ctx))
            return stop(s);
        eg_tape *scope = eg_tape_begin(s->options.ctx, EG_NO_GRAD);
        eg_status status = scope ? run_step(s, first) : EG_ENOMEM;
        eg_tape_end(scope);
        EG_TRY(status);
        s->position.batch++;
        tell(s, "train", s->position.batch, total, s->meters);
        if (s->position.batch < total)
            EG_TRY(eg__search_save_when_due(s));
    }
    EG_TRY(eg__event(
        s->run, "epoch",
        json_pack("{s:I, s:o}", "epoch", (json_int_t)s->position.epoch, "train", eg__meters_averages(s->meters))));
    s->position = (eg__position){.epoch = s->position.epoch + 1};
    return eg__search_save(s);
}

/* ---------------------------------------------------------------------------------------------- choosing */

/* Checkpoints on the way are those of its start, with the accuracies known so far: what goes on asks the same questions
 * again. */
static eg_status choose(eg_search *s)
{
    eg_module_train(s->options.model, false);
    s->rng_before_choice = *eg_context_rng(s->options.ctx);
    s->choosing = true;
    s->n_asked = 0;
    eg_tape *scope = eg_tape_begin(s->options.ctx, EG_NO_GRAD);
    s->arch = scope ? s->cls->choose(s->strategy) : NULL;
    eg_status status = s->arch ? EG_OK : eg_error_last()->code;
    eg_tape_end(scope);
    if (status == EG_ECANCELED)
        status = stop(s);
    if (status != EG_OK)
        *eg_context_rng(s->options.ctx) = s->rng_before_choice;
    s->choosing = false;
    return status;
}

static eg_status write_arch(eg_search *s)
{
    if (!s->run)
        return EG_OK;
    char *path = eg__format("%s/arch.json", s->run);
    eg_status status = path ? eg_arch_save(s->arch, path) : EG_ENOMEM;
    eg_free(path);
    return status;
}

static eg_status run(eg_search *s)
{
    s->started = true;
    if (s->arch)
        return write_arch(s); /* done before, here or in the run that goes on */
    while (!s->cls->no_training && s->position.epoch < s->options.epochs)
        EG_TRY(run_epoch(s));
    EG_TRY(choose(s));
    EG_TRY(write_arch(s));
    EG_TRY(eg__search_save(s));
    return eg__event(s->run, "done", json_pack("{s:f}", "seconds", eg__clock_read(&s->clock)));
}

eg_status eg_search_run(eg_search *s)
{
    EG_CHECK(s, EG_EINVAL, "search is NULL");
    eg__clock_start(&s->clock);
    eg_status status = run(s);
    eg__clock_stop(&s->clock);
    return status;
}

double eg_search_seconds(const eg_search *s)
{
    return s ? eg__clock_read(&s->clock) : 0;
}

double eg_search_accuracy(const eg_search *s)
{
    double best = NAN;
    for (size_t i = 0; s && s->arch && i < s->n_known; i++)
        best = isnan(best) || s->known[i] > best ? s->known[i] : best;
    return best;
}

const eg_arch *eg_search_arch(const eg_search *s)
{
    if (s && !s->arch)
        eg_fail(EG_EINVAL, s->started ? "the search has not succeeded" : "the search has not been run");
    return s ? s->arch : eg__null(__func__, "search");
}

eg_status eg_search_export(eg_search *s, const char *path)
{
    EG_CHECK(s && path, EG_EINVAL, "search or path is NULL");
    const eg_arch *arch = eg_search_arch(s);
    return arch ? eg_arch_save(arch, path) : eg_error_last()->code;
}
