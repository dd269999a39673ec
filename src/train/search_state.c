/*
 * Checkpoints of searches.
 */
#include "train/search.h"

#include <inttypes.h>

/* ---------------------------------------------------------------------------------------------- what must be shared */

eg_status eg__search_settings(eg_search *s)
{
    const eg_search_options *o = &s->options;
    const eg_strategy_options *own = &s->strategy->options;
    s->settings = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:f, s:o, s:I, s:I, s:s, s:f, s:f, s:f, s:f, s:i, s:s, s:s, s:s, s:I, "
        "s:I}",
        "kind", "search", "strategy", s->cls->name, "epochs", (json_int_t)o->epochs, "batch_size",
        (json_int_t)o->batch_size, "samples", (json_int_t)eg_dataset_size(o->train), "seed", eg__json_u64(o->seed),
        "strategy_seed", eg__json_u64(own->seed), "lr", o->lr, "transforms",
        eg__transforms_json(o->transforms, o->n_transforms), "evaluations", (json_int_t)own->evaluations, "population",
        (json_int_t)own->population, "choice", own->choice ? own->choice : "", "arch_lr", own->arch_lr,
        "arch_weight_decay", own->arch_weight_decay, "warmup", own->warmup, "grad_clip", own->grad_clip, "threads",
        eg_context_threads(o->ctx), "backend", eg__context_backend(o->ctx), "precision",
        eg_dtype_name(eg_context_precision(o->ctx)), "memory", o->memory == EG_MEMORY_LOW ? "low" : "normal",
        "max_parameters", (json_int_t)own->max_parameters, "max_macs", (json_int_t)own->max_macs);
    return s->settings ? EG_OK : eg_fail(EG_ENOMEM, "no memory for the settings of a search");
}

/* ---------------------------------------------------------------------------------------------- parts */

static eg_status save_parts(void *owner, eg_state *state, json_t *scalars)
{
    eg_search *s = owner;
    EG_TRY(eg_module_state(s->options.model, "model.", state));
    EG_TRY(eg_optimizer_state(s->optimizer, "optimizer.", state));
    EG_TRY(s->cls->save ? s->cls->save(s->strategy, "strategy.", state) : EG_OK);
    EG_CHECK(json_object_set_new(scalars, "schedule", json_integer((json_int_t)eg_scheduler_position(s->scheduler))) ==
                 0,
             EG_ENOMEM, "no memory for a checkpoint");
    return EG_OK;
}

static eg_status load_parts(void *owner, const eg_state *state, const json_t *scalars)
{
    eg_search *s = owner;
    int64_t schedule = 0;
    EG_TRY(eg__json_get_i64(scalars, "schedule", &schedule));
    EG_TRY(eg_module_load_state(s->options.model, "model.", state, true));
    EG_TRY(s->cls->load ? s->cls->load(s->strategy, "strategy.", state) : EG_OK);
    /* the schedule before the optimizer: setting a position computes learning rates anew, the optimizer's are the exact
     * ones */
    EG_TRY(eg_scheduler_set_position(s->scheduler, schedule));
    return eg_optimizer_load_state(s->optimizer, "optimizer.", state);
}

/* ---------------------------------------------------------------------------------------------- writing */

/* What has been found out in the choice so far. */
static eg_status add_choice(const eg_search *s, json_t *scalars)
{
    json_t *known = json_array();
    for (size_t i = 0; known && i < s->n_known; i++) {
        if (json_array_append_new(known, eg__json_double(s->known[i])) != 0) {
            json_decref(known);
            known = NULL;
        }
    }
    EG_CHECK(json_object_set_new(scalars, "candidates", known) == 0, EG_ENOMEM, "no memory for a checkpoint");
    if (!s->arch)
        return EG_OK;
    char *text = eg_arch_text(s->arch);
    int failed = text ? json_object_set_new(scalars, "arch", json_string(text)) : -1;
    eg_free(text);
    EG_CHECK(failed == 0, EG_ENOMEM, "no memory for a checkpoint");
    return EG_OK;
}

static eg_status fill(eg_search *s, eg_state *state, json_t *scalars)
{
    EG_TRY(save_parts(s, state, scalars));
    EG_CHECK(json_object_set_new(scalars, "meters", eg__meters_json(s->meters)) == 0, EG_ENOMEM,
             "no memory for a checkpoint");
    return add_choice(s, scalars);
}

static eg_status write_checkpoint(eg_search *s, eg_state *state)
{
    const eg__moment moment = {.position = s->position,
                               .rng = s->choosing ? s->rng_before_choice : *eg_context_rng(s->options.ctx),
                               .seconds = eg__clock_read(&s->clock)};
    json_t *scalars = eg__checkpoint_scalars(&moment, json_incref(s->settings));
    eg_status status = scalars ? fill(s, state, scalars) : EG_ENOMEM;
    if (status == EG_OK)
        return eg__checkpoint_write(s->checkpoint_path, state, scalars);
    json_decref(scalars);
    return status;
}

eg_status eg__search_save(eg_search *s)
{
    if (!s->checkpoint_path)
        return EG_OK;
    eg_tape *scope = eg_tape_begin(s->options.ctx, EG_NO_GRAD);
    eg_state *state = scope ? eg_state_new() : NULL;
    eg_status status = state ? write_checkpoint(s, state) : EG_ENOMEM;
    eg_state_free(state);
    eg_tape_end(scope);
    s->saved_at = eg__now();
    return status;
}

eg_status eg__search_save_when_due(eg_search *s)
{
    double seconds = s->options.checkpoint_seconds != 0 ? s->options.checkpoint_seconds : EG__CHECKPOINT_SECONDS;
    return seconds > 0 && eg__now() - s->saved_at >= seconds ? eg__search_save(s) : EG_OK;
}

/* ---------------------------------------------------------------------------------------------- restoring */

/* Everything but the parts, read before any of them changes. */
typedef struct restored {
    eg__moment moment;
    eg_meter_group *meters;
    double *known;
    size_t n_known, known_capacity;
    eg_arch *arch; /* NULL = not chosen yet */
} restored;

static eg_status read_choice(const json_t *scalars, restored *r)
{
    const json_t *known = json_object_get(scalars, "candidates"), *arch = json_object_get(scalars, "arch");
    size_t n = json_array_size(known);
    EG_TRY(eg__grow(&r->known, &r->known_capacity, n, sizeof *r->known));
    for (size_t i = 0; i < n; i++)
        EG_TRY(eg__json_read_double(json_array_get(known, i), "candidates", &r->known[i]));
    r->n_known = n;
    if (!arch)
        return EG_OK;
    EG_CHECK(json_is_string(arch), EG_EFORMAT, "'arch' is no text");
    r->arch = eg_arch_parse(json_string_value(arch));
    return r->arch ? EG_OK : eg_error_last()->code;
}

/* It takes one step a batch. */
static eg_status check_schedule(const json_t *scalars, const eg__position *position, size_t total)
{
    int64_t schedule = 0, steps = position->epoch * (int64_t)total + (int64_t)position->batch;
    EG_TRY(eg__json_get_i64(scalars, "schedule", &schedule));
    EG_CHECK(schedule == steps, EG_EFORMAT, "'schedule' is %" PRId64 ", expected %" PRId64, schedule, steps);
    return EG_OK;
}

static eg_status read_scalars(const eg_search *s, const json_t *scalars, restored *r)
{
    size_t total = eg_loader_size(s->train);
    r->meters = eg_meter_group_new();
    if (!r->meters)
        return EG_ENOMEM;
    EG_TRY(eg__checkpoint_moment(scalars, s->options.epochs, &r->moment));
    EG_CHECK(r->moment.position.batch < total, EG_EFORMAT, "'batch' is %zu in an epoch of %zu",
             r->moment.position.batch, total);
    EG_TRY(check_schedule(scalars, &r->moment.position, total));
    EG_TRY(eg__meters_restore(r->meters, json_object_get(scalars, "meters")));
    return read_choice(scalars, r);
}

/* What the search had before is left in `r`. */
static void take(eg_search *s, restored *r)
{
    double *known = s->known;
    eg_arch *arch = s->arch;
    eg__meters_swap(s->meters, r->meters);
    s->known = r->known;
    s->n_known = r->n_known;
    s->known_capacity = r->known_capacity;
    s->arch = r->arch;
    s->position = r->moment.position;
    s->clock = (eg__clock){.before = r->moment.seconds};
    *eg_context_rng(s->options.ctx) = r->moment.rng;
    r->known = known;
    r->arch = arch;
}

static eg_status restore_from(void *owner, const eg_state *state, const json_t *scalars)
{
    eg_search *s = owner;
    restored r = {0};
    const eg__parts parts = {.owner = s, .save = save_parts, .load = load_parts};
    eg_status status = read_scalars(s, scalars, &r);
    if (status == EG_OK)
        status = eg__parts_load(&parts, state, scalars);
    if (status == EG_OK)
        take(s, &r);
    eg_meter_group_free(r.meters);
    eg_arch_free(r.arch);
    eg_free(r.known);
    return status;
}

eg_status eg__search_restore(eg_search *s, const char *path)
{
    return eg__checkpoint_restore(s->options.ctx, path, json_incref(s->settings), restore_from, s);
}
