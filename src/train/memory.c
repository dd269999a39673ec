/*
 * How much memory training steps will take: they are done with nothing behind the addresses (base/dry.c), and all is
 * put back.
 */
#include "nas/internal.h"
#include "optim/internal.h"
#include "train/internal.h"

/* What samples paths has another one each time: steps are run until QUIET of them in a row have taken no more memory,
 * STEPS at most. Others end when two have taken the same. */
enum { STEPS = 96, QUIET = 24 };

/* ---------------------------------------------------------------------------------------------- sizes */

static size_t bytes_of(const eg_tensor *t)
{
    return (size_t)eg_shape_numel(t->shape) * eg_dtype_size(t->dtype);
}

static eg_status count_tensor(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)path;
    eg_memory_estimate *estimate = payload;
    if (!t || eg_is_none(t))
        return EG_OK;
    estimate->parameters += bytes_of(t);
    if (kind == EG_SLOT_PARAMETER && eg_tensor_requires_grad(t))
        estimate->gradients += bytes_of(t);
    return EG_OK;
}

static void count_optimizer(const eg_optimizer *o, eg_memory_estimate *estimate)
{
    for (size_t i = 0; i < o->n_params; i++)
        if (eg_tensor_requires_grad(o->params[i].tensor))
            estimate->optimizer += o->n_states * bytes_of(o->params[i].tensor);
}

/* ---------------------------------------------------------------------------------------------- dry steps */

/* What the first real step makes and keeps. */
static eg_status take_optimizer_state(const eg_optimizer *o)
{
    eg_status status = EG_OK;
    bool before = eg__pool_lasting(o->ctx, true);
    for (size_t i = 0; i < o->n_params; i++)
        for (size_t s = 0; s < o->n_states && eg_tensor_requires_grad(o->params[i].tensor); s++)
            if (!o->params[i].states[s] && !eg__pool_take(o->ctx, bytes_of(o->params[i].tensor)))
                status = EG_ENOMEM;
    eg__pool_lasting(o->ctx, before);
    return status;
}

static eg_batch make_batch(const eg__steps *steps)
{
    eg_shape sample = eg_dataset_shape(steps->data), shape = {.ndim = sample.ndim + 1};
    shape.dims[0] = (int64_t)steps->batch_size;
    for (int d = 0; d < sample.ndim; d++)
        shape.dims[d + 1] = sample.dims[d];
    return (eg_batch){.x = eg_empty(steps->ctx, EG_F32, shape, EG_LAYOUT_DEFAULT),
                      .y = eg_empty(steps->ctx, EG_I64, EG_SHAPE(shape.dims[0]), EG_LAYOUT_DEFAULT),
                      .size = steps->batch_size};
}

static eg_status run_step(const eg__steps *steps)
{
    eg_tape *scope = eg_tape_begin(steps->ctx, EG_NO_GRAD);
    if (!scope)
        return EG_ENOMEM;
    eg_batch train = make_batch(steps), valid = steps->two_batches ? make_batch(steps) : train;
    bool made = train.x && train.y && valid.x && valid.y;
    eg_status status = made ? steps->step(steps->owner, &train, &valid) : eg_error_last()->code;
    eg_tape_end(scope);
    return status;
}

/* Whether the last step followed a path, and the next may follow another. */
static bool samples(const eg_mutator *mutator)
{
    for (size_t i = 0; mutator && i < mutator->n_mutables; i++) {
        const eg_decision *decision = eg_decisions_get(mutator->current, eg_mutable_key(mutator->mutables[i]));
        if (decision && !decision->tensor)
            return true;
    }
    return false;
}

static eg_status run_steps(const eg__steps *steps)
{
    size_t taken = 0, most = 0;
    EG_TRY(take_optimizer_state(steps->optimizer));
    for (int i = 0, quiet = 0; i < STEPS && quiet < QUIET; i++) {
        EG_TRY(run_step(steps));
        eg__dry_result now = eg__dry_end_step(steps->ctx);
        bool settled = now.taken == taken && !samples(eg_mutable_mutator(steps->model));
        quiet = now.reserved > most ? 0 : settled ? QUIET : quiet + 1;
        most = now.reserved;
        taken = now.taken;
    }
    return EG_OK;
}

/* Between the beginning and the end of the dry time: everything that was made in it is gone afterwards. */
static eg_status run_dry(const eg__steps *steps)
{
    eg_status status = eg__repeat(steps->ctx, 1);
    if (status == EG_OK) {
        eg_rng rng = *eg_context_rng(steps->ctx);
        status = run_steps(steps);
        *eg_context_rng(steps->ctx) = rng;
        eg__repeat(steps->ctx, -1);
    }
    eg_module_zero_grad(steps->model);
    eg__dnnl_forget_packs(steps->ctx);
    return status;
}

static eg_status predict(const eg__steps *steps, size_t *reserved)
{
    eg_mutator *mutator = eg_mutable_mutator(steps->model);
    eg_decisions *decisions = mutator ? mutator->current : NULL, *own = mutator ? eg_decisions_new() : NULL;
    if (mutator && !own)
        return EG_ENOMEM;
    if (own)
        mutator->current = own;        /* the steps decide, what they follow must not stay */
    eg__dnnl_forget_packs(steps->ctx); /* as it will be afterwards */
    eg_status status = eg__dry_begin(steps->ctx);
    if (status == EG_OK) {
        status = run_dry(steps);
        if (mutator)
            eg__mutator_follow(mutator, decisions);
        *reserved = eg__dry_end(steps->ctx).reserved;
    } else if (mutator) {
        eg__mutator_follow(mutator, decisions);
    }
    return status;
}

eg_status eg__memory_predict(const eg__steps *steps, eg_memory memory, eg_memory_estimate *estimate)
{
    eg_mutator *mutator = eg_mutable_mutator(steps->model);
    bool recompute = mutator && mutator->recompute;
    *estimate = (eg_memory_estimate){0};
    EG_TRY(eg__module_walk_tensors_once(steps->model, count_tensor, estimate));
    count_optimizer(steps->optimizer, estimate);
    eg__modes modes;
    eg_status status = eg__modes_save(&modes, steps->model);
    eg_mutator_set_recompute(mutator, memory == EG_MEMORY_LOW);
    if (status == EG_OK) {
        eg_module_train(steps->model, true);
        status = predict(steps, &estimate->total);
    }
    eg_mutator_set_recompute(mutator, recompute);
    eg__modes_restore(&modes);
    size_t known = estimate->parameters + estimate->gradients + estimate->optimizer;
    estimate->activations = estimate->total > known ? estimate->total - known : 0;
    return status;
}

/* ---------------------------------------------------------------------------------------------- limits */

enum { TEXT_SIZE = 32 };

static const char *size_text(size_t bytes, char text[TEXT_SIZE])
{
    double megabytes = (double)bytes / (1 << 20);
    if (bytes < 1024)
        snprintf(text, TEXT_SIZE, "%zu bytes", bytes);
    else if (bytes < (1 << 20))
        snprintf(text, TEXT_SIZE, "%.1f KiB", (double)bytes / 1024);
    else if (megabytes < 1024)
        snprintf(text, TEXT_SIZE, "%.*f MiB", megabytes < 10, megabytes);
    else
        snprintf(text, TEXT_SIZE, "%.2f GiB", megabytes / 1024);
    return text;
}

/* The largest batch that fits, within a few percent; 0 where a single sample does not. */
static eg_status largest_batch(const eg__steps *steps, eg_memory memory, size_t max_memory, size_t *batch)
{
    eg__steps smaller = *steps;
    size_t fits = 0, too_large = steps->batch_size;
    while (too_large - fits > 1 + too_large / 32) {
        eg_memory_estimate estimate;
        smaller.batch_size = fits + (too_large - fits) / 2;
        /* a step that cannot be made of so few samples does not fit */
        eg_status status = eg__memory_predict(&smaller, memory, &estimate);
        if (status == EG_ENOMEM)
            return status;
        *(status == EG_OK && estimate.total <= max_memory ? &fits : &too_large) = smaller.batch_size;
    }
    *batch = fits;
    return EG_OK;
}

static eg_status refuse(const eg__steps *steps, size_t max_memory, size_t normal, size_t low, eg_memory best)
{
    size_t batch = 0;
    char needed[TEXT_SIZE], recomputed[TEXT_SIZE], allowed[TEXT_SIZE], advice[96];
    eg__error_mark mark;
    eg__error_save(&mark);
    EG_TRY(largest_batch(steps, best, max_memory, &batch));
    eg__error_restore(&mark);
    if (batch > 0)
        snprintf(advice, sizeof advice, "a batch of %zu samples would fit", batch);
    else
        snprintf(advice, sizeof advice, "no batch would fit, only a smaller network");
    size_text(normal, needed);
    size_text(low, recomputed);
    size_text(max_memory, allowed);
    return low < normal ? eg_fail(EG_ENOMEM,
                                  "a training step of %zu samples takes %s, with mixed edges recomputed %s, and %s are "
                                  "allowed: %s",
                                  steps->batch_size, needed, recomputed, allowed, advice)
                        : eg_fail(EG_ENOMEM, "a training step of %zu samples takes %s, and %s are allowed: %s",
                                  steps->batch_size, needed, allowed, advice);
}

eg_status eg__memory_fit(const eg__steps *steps, size_t max_memory, eg_memory *memory)
{
    eg_memory_estimate normal, low;
    EG_TRY(eg__memory_predict(steps, *memory, &normal));
    if (normal.total <= max_memory)
        return EG_OK;
    low = normal;
    if (*memory == EG_MEMORY_NORMAL)
        EG_TRY(eg__memory_predict(steps, EG_MEMORY_LOW, &low));
    if (low.total > max_memory)
        return refuse(steps, max_memory, normal.total, low.total, low.total < normal.total ? EG_MEMORY_LOW : *memory);
    char a[TEXT_SIZE], b[TEXT_SIZE], c[TEXT_SIZE];
    eg_log(steps->ctx, EG_LOG_WARNING,
           "a training step takes %s, more than %s: mixed edges are recomputed, it takes %s",
           size_text(normal.total, a), size_text(max_memory, b), size_text(low.total, c));
    *memory = EG_MEMORY_LOW;
    return EG_OK;
}
