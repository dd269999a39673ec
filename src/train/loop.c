/*
 * The training loop of trainers: epochs, batches, validation.
 */
#include "train/internal.h"

#include <inttypes.h>
#include <math.h>

/* Calls one function of each callback, in their order. */
#define EACH_CALLBACK(t, function, ...)                                                                                \
    do {                                                                                                               \
        for (size_t i_ = 0; i_ < (t)->n_callbacks; i_++) {                                                             \
            eg_callback *callback_ = (t)->callbacks[i_];                                                               \
            if (!callback_->cls->function)                                                                             \
                continue;                                                                                              \
            eg_status status_ = callback_->cls->function(__VA_ARGS__);                                                 \
            if (status_ != EG_OK)                                                                                      \
                return eg__fail_prefix(status_, "callback '%s'", callback_->cls->name ? callback_->cls->name : "?");   \
        }                                                                                                              \
    } while (0)

/* What a function of the program's returns, in its name where it says nothing. */
#define OWN(t, function, status) eg__fail_silent(status, #function, (t)->cls->name)

static void tell(const eg_trainer *t, const char *phase, int64_t epoch, size_t done, size_t total,
                 const eg_meter_group *meters)
{
    const eg_trainer_options *o = &t->options;
    if (o->progress)
        o->progress(
            o->progress_payload,
            &(eg_progress){
                .phase = phase, .epoch = epoch, .epochs = o->epochs, .done = done, .total = total, .meters = meters});
}

static eg_tensor *loss_of(const eg_trainer *t, eg_tensor *output, eg_tensor *target)
{
    const eg_trainer_options *o = &t->options;
    if (o->loss) {
        eg_tensor *loss = o->loss(o->payload, output, target);
        if (!loss && eg_error_last()->code == EG_OK)
            eg_fail(EG_EINVAL, "loss of '%s' gave NULL without a message", t->cls->name ? t->cls->name : "?");
        return loss;
    }
    return eg_f_cross_entropy(output, target, .label_smoothing = o->label_smoothing);
}

/* Counts a batch in the meters: the metrics, then the loss, as the reference prints them. */
static eg_status measure(const eg_trainer *t, const eg_tensor *output, const eg_batch *data, double loss,
                         eg_meter_group *meters)
{
    const eg_trainer_options *o = &t->options;
    if (o->metrics) {
        EG_TRY(OWN(t, metrics, o->metrics(o->payload, output, data->y, meters)));
    } else {
        double accuracy = eg_accuracy(output, data->y);
        if (isnan(accuracy))
            return eg_error_last()->code;
        EG_TRY(eg_meter_group_update(meters, "acc1", accuracy, data->size));
    }
    return eg_meter_group_update(meters, "loss", loss, data->size);
}

/* ---------------------------------------------------------------------------------------------- a step */

/* Forward and backward of a batch, inside a recording scope. */
static eg_status learn(eg_trainer *t, const eg_batch *data)
{
    eg_tensor *output = eg_call(t->options.model, data->x);
    eg_tensor *loss = loss_of(t, output, data->y);
    if (!loss)
        return eg_error_last()->code;
    double value = eg_tensor_item(loss);
    EG_CHECK(isfinite(value), EG_EINVAL,
             "the loss is %g in epoch %" PRId64 " of %" PRId64 ", step %zu of %zu: a lower learning rate may help",
             isnan(value) ? (double)NAN : value, /* whose sign says nothing */
             t->position.epoch + 1, t->options.epochs, t->batch + 1, eg_loader_size(t->train));
    EG_TRY(measure(t, output, data, value, t->meters));
    return eg_backward(loss);
}

/* The same of the next batch, which belongs to that scope. */
static eg_status learn_next(eg_trainer *t, const eg_batch *unused)
{
    (void)unused;
    eg_batch data;
    EG_TRY(eg_loader_next(t->train, &data));
    EG_ASSERT(data.size > 0);
    return learn(t, &data);
}

static eg_status step_by(eg_trainer *t, eg_status (*differentiate)(eg_trainer *t, const eg_batch *data),
                         const eg_batch *data)
{
    eg_tape *tape = eg_tape_begin(t->options.ctx, EG_RECORD);
    eg_status status = tape ? differentiate(t, data) : EG_ENOMEM;
    eg_tape_end(tape);
    if (status == EG_OK && t->options.grad_clip > 0)
        status = eg_optimizer_clip_grad_norm(t->optimizer, t->options.grad_clip, NULL);
    if (status == EG_OK)
        status = eg_optimizer_step(t->optimizer);
    eg_optimizer_zero_grad(t->optimizer);
    return status;
}

eg_status eg_trainer_step(eg_trainer *t, const eg_batch *batch)
{
    EG_CHECK(t && batch, EG_EINVAL, "trainer or batch is NULL");
    EG_CHECK(batch->size > 0, EG_EINVAL, "the batch is empty: the epoch has ended");
    return step_by(t, learn, batch);
}

/* The step of a class of one's own, in a scope that the batch belongs to. */
static eg_status own_step(eg_trainer *t)
{
    eg_batch data;
    eg_tape *scope = eg_tape_begin(t->options.ctx, EG_NO_GRAD);
    eg_status status = scope ? eg_loader_next(t->train, &data) : EG_ENOMEM;
    if (status == EG_OK)
        status = OWN(t, train_step, t->cls->train_step(t, &data));
    eg_tape_end(scope);
    return status;
}

/* A step to be predicted, which nobody is told of. */
static eg_status own_step_once(eg_trainer *t, const eg_batch *data)
{
    eg_meter_group *meters = t->meters;
    t->meters = eg_meter_group_new();
    eg_status status = t->meters ? OWN(t, train_step, t->cls->train_step(t, data)) : EG_ENOMEM;
    eg_meter_group_free(t->meters);
    t->meters = meters;
    return status;
}

static eg_status step_once(void *owner, const eg_batch *train, const eg_batch *valid)
{
    (void)valid;
    eg_trainer *t = owner;
    if (t->cls->train_step)
        return own_step_once(t, train);
    eg_tape *tape = eg_tape_begin(t->options.ctx, EG_RECORD);
    eg_tensor *loss = tape ? loss_of(t, eg_call(t->options.model, train->x), train->y) : NULL;
    eg_status status = loss ? eg_backward(loss) : eg_error_last()->code;
    eg_tape_end(tape);
    eg_optimizer_zero_grad(t->optimizer);
    return status;
}

static eg__steps steps_of(eg_trainer *t)
{
    const eg_trainer_options *o = &t->options;
    return (eg__steps){.ctx = o->ctx,
                       .model = o->model,
                       .optimizer = t->optimizer,
                       .data = o->train,
                       .batch_size = EG_MAX(EG_MIN(o->batch_size, eg_dataset_size(o->train)), 1),
                       .owner = t,
                       .step = step_once};
}

eg_status eg_trainer_memory(eg_trainer *t, eg_memory memory, eg_memory_estimate *estimate)
{
    EG_CHECK(t && estimate, EG_EINVAL, "trainer or estimate is NULL");
    eg__steps steps = steps_of(t);
    return eg__memory_predict(&steps, memory, estimate);
}

eg_status eg__trainer_settle_memory(eg_trainer *t)
{
    eg__steps steps = steps_of(t);
    if (t->options.max_memory > 0)
        EG_TRY(eg__memory_fit(&steps, t->options.max_memory, &t->options.memory));
    eg_mutator *mutator = eg_mutable_mutator(t->options.model);
    if (mutator && t->options.memory == EG_MEMORY_LOW)
        eg_mutator_set_recompute(mutator, true);
    return EG_OK;
}

static eg_status log_step(const eg_trainer *t, size_t batch)
{
    const eg_trainer_options *o = &t->options;
    if (o->log_frequency <= 0 || (int64_t)batch % o->log_frequency != 0)
        return EG_OK;
    char *text = eg_meter_group_text(t->meters);
    if (!text)
        return EG_ENOMEM;
    eg_log(o->ctx, EG_LOG_INFO, "Epoch [%" PRId64 "/%" PRId64 "] Step [%zu/%zu]  %s", t->position.epoch + 1, o->epochs,
           batch + 1, eg_loader_size(t->train), text);
    eg_free(text);
    return EG_OK;
}

static eg_status begin_batch(eg_trainer *t, size_t batch)
{
    t->batch = batch;
    EACH_CALLBACK(t, on_batch_begin, callback_, t->position.epoch, (int64_t)batch);
    return EG_OK;
}

static eg_status end_batch(eg_trainer *t, size_t batch)
{
    EG_TRY(log_step(t, batch));
    EG_TRY(eg__visual_step(&t->visual, eg_mutable_mutator(t->options.model)));
    EACH_CALLBACK(t, on_batch_end, callback_, t->position.epoch, (int64_t)batch);
    return EG_OK;
}

static eg_status run_batch(eg_trainer *t)
{
    EG_TRY(begin_batch(t, t->position.batch));
    EG_TRY(t->cls->train_step ? own_step(t) : step_by(t, learn_next, NULL));
    return end_batch(t, t->position.batch);
}

eg_status eg_trainer_batch_begin(eg_trainer *t, size_t batch)
{
    EG_CHECK(t, EG_EINVAL, "trainer is NULL");
    EG_CHECK(!eg_context_canceled(t->options.ctx), EG_ECANCELED,
             "training was canceled in epoch %" PRId64 " of %" PRId64, t->position.epoch + 1, t->options.epochs);
    return begin_batch(t, batch);
}

eg_status eg_trainer_batch_end(eg_trainer *t, size_t batch)
{
    EG_CHECK(t, EG_EINVAL, "trainer is NULL");
    EG_TRY(end_batch(t, batch));
    tell(t, "train", t->position.epoch, batch + 1, EG_MAX(eg_loader_size(t->train), batch + 1), t->meters);
    return EG_OK;
}

/* ---------------------------------------------------------------------------------------------- validation */

typedef struct validation {
    eg_trainer *trainer;
    int64_t epoch;
} validation;

static eg_status validate_batch(void *payload, size_t batch, eg_tensor *output, const eg_batch *data)
{
    const validation *v = payload;
    eg_trainer *t = v->trainer;
    eg_tensor *loss = loss_of(t, output, data->y);
    if (!loss)
        return eg_error_last()->code;
    EG_TRY(measure(t, output, data, eg_tensor_item(loss), t->validation_meters));
    tell(t, "validate", v->epoch, batch + 1, eg_loader_size(t->validation), t->validation_meters);
    return EG_OK;
}

static eg_status validate_epoch(eg_trainer *t, int64_t epoch)
{
    eg_meter_group_reset(t->validation_meters);
    if (t->cls->validate_one_epoch)
        return OWN(t, validate_one_epoch, t->cls->validate_one_epoch(t, epoch));
    return eg__run_over(t->options.model, t->validation, validate_batch, &(validation){.trainer = t, .epoch = epoch});
}

eg_status eg_trainer_validate(eg_trainer *t)
{
    EG_CHECK(t, EG_EINVAL, "trainer is NULL");
    EG_CHECK(t->validation || t->cls->validate_one_epoch, EG_EINVAL, "the trainer has no validation set");
    return validate_epoch(t, -1);
}

/* ---------------------------------------------------------------------------------------------- an epoch */

/* The checkpoint comes first: what is asked to stop has everything saved. */
static eg_status stop(eg_trainer *t)
{
    EG_TRY(eg__trainer_save(t));
    EG_TRY(eg__event(
        t->run, "cancel",
        json_pack("{s:I, s:I}", "epoch", (json_int_t)t->position.epoch, "batch", (json_int_t)t->position.batch)));
    return eg_fail(EG_ECANCELED, "training was canceled in epoch %" PRId64 " of %" PRId64, t->position.epoch + 1,
                   t->options.epochs);
}

static eg_status save_when_due(eg_trainer *t)
{
    double seconds = t->options.checkpoint_seconds != 0 ? t->options.checkpoint_seconds : EG__CHECKPOINT_SECONDS;
    return seconds > 0 && eg__now() - t->saved_at >= seconds ? eg__trainer_save(t) : EG_OK;
}

static eg_status run_batches(eg_trainer *t)
{
    size_t total = eg_loader_size(t->train);
    if (t->position.batch < total)
        EG_TRY(eg_loader_start(t->train, (uint64_t)t->position.epoch, t->position.batch));
    while (t->position.batch < total) {
        if (eg_context_canceled(t->options.ctx))
            return stop(t);
        EG_TRY(run_batch(t));
        t->position.batch++;
        tell(t, "train", t->position.epoch, t->position.batch, total, t->meters);
        EG_TRY(save_when_due(t));
    }
    return EG_OK;
}

/* An epoch of a class of one's own, which begins anew after it was ended by a failure or canceled. */
static eg_status own_epoch(eg_trainer *t)
{
    size_t total = eg_loader_size(t->train);
    if (t->position.batch < total)
        EG_TRY(OWN(t, train_one_epoch, t->cls->train_one_epoch(t, t->position.epoch)));
    t->position.batch = total;
    return EG_OK;
}

bool eg__trainer_validates(const eg_trainer *t)
{
    return !t->options.no_validation && (t->validation || t->cls->validate_one_epoch);
}

static eg_status log_epoch(eg_trainer *t)
{
    bool validates = eg__trainer_validates(t);
    char *train = eg_meter_group_summary(t->meters),
         *valid = validates && train ? eg_meter_group_summary(t->validation_meters) : NULL;
    bool made = train && (valid || !validates);
    if (made)
        eg_log(t->options.ctx, EG_LOG_INFO, "Epoch [%" PRId64 "/%" PRId64 "]  %s%s%s", t->position.epoch + 1,
               t->options.epochs, train, valid ? "  validation: " : "", valid ? valid : "");
    eg_free(train);
    eg_free(valid);
    return made ? EG_OK : EG_ENOMEM;
}

static eg_status report_epoch(eg_trainer *t)
{
    EG_TRY(log_epoch(t));
    if (!t->run)
        return EG_OK;
    bool validates = eg__trainer_validates(t);
    json_t *train = eg__meters_averages(t->meters),
           *valid = validates && train ? eg__meters_averages(t->validation_meters) : NULL;
    bool made = train && (valid || !validates);
    json_t *fields = made ? json_pack("{s:I, s:O, s:O*}", "epoch", (json_int_t)t->position.epoch, "train", train,
                                      "validation", valid)
                          : NULL;
    json_decref(train);
    json_decref(valid);
    return eg__event(t->run, "epoch", fields);
}

static eg_status run_epoch(eg_trainer *t)
{
    int64_t epoch = t->position.epoch;
    if (t->position.batch == 0)
        eg_meter_group_reset(t->meters);
    EACH_CALLBACK(t, on_epoch_begin, callback_, epoch);
    eg_module_train(t->options.model, true);
    EG_TRY(t->cls->train_one_epoch ? own_epoch(t) : run_batches(t));
    if (eg__trainer_validates(t)) {
        eg_status status = validate_epoch(t, epoch);
        if (status == EG_ECANCELED)
            return stop(t);
        EG_TRY(status);
    }
    EG_TRY(report_epoch(t));
    EACH_CALLBACK(t, on_epoch_end, callback_, epoch);
    t->position = (eg__position){.epoch = epoch + 1};
    return eg__trainer_save(t);
}

static eg_status train(eg_trainer *t)
{
    if (t->position.epoch < t->options.epochs) {
        EACH_CALLBACK(t, on_train_begin, callback_);
        while (t->position.epoch < t->options.epochs)
            EG_TRY(run_epoch(t));
        EACH_CALLBACK(t, on_train_end, callback_);
        EG_TRY(eg__event(t->run, "done", json_pack("{s:f}", "seconds", eg__clock_read(&t->clock))));
    }
    t->finished = true;
    eg_module_train(t->options.model, false);
    return EG_OK;
}

eg_status eg_trainer_train(eg_trainer *t)
{
    EG_CHECK(t, EG_EINVAL, "trainer is NULL");
    if (t->finished) {
        t->position = (eg__position){0};
        t->clock = (eg__clock){0};
    }
    t->finished = false;
    eg__clock_start(&t->clock);
    eg_status status = train(t);
    eg__clock_stop(&t->clock);
    return status;
}
