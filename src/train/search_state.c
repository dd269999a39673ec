/*
 * Checkpoints of searches.
 */
#include "train/search.h"

static json_t *settings_of(const eg_search *s)
{
    const eg_search_options *o = &s->options;
    const eg_strategy_options *own = &o->strategy_options;
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:I, s:I, s:s}", "kind", "search", "strategy", s->cls->name,
                     "epochs", (json_int_t)o->epochs, "batch_size", (json_int_t)o->batch_size, "samples",
                     (json_int_t)eg_dataset_size(o->train), "seed", eg__json_u64(o->seed), "evaluations",
                     (json_int_t)own->evaluations, "population", (json_int_t)own->population, "choice",
                     own->choice ? own->choice : "");
}

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

static eg_status write_checkpoint(eg_search *s, eg_state *state)
{
    EG_TRY(eg_module_state(s->options.model, "model.", state));
    EG_TRY(eg_optimizer_state(s->optimizer, "optimizer.", state));
    if (s->cls->save)
        EG_TRY(s->cls->save(s->strategy, "strategy.", state));
    const eg_rng *rng = s->choosing ? &s->rng_before_choice : eg_context_rng(s->options.ctx);
    json_t *scalars = eg__checkpoint_scalars(rng, s->position, settings_of(s));
    if (scalars &&
        (json_object_set_new(scalars, "schedule", json_integer((json_int_t)eg_scheduler_position(s->scheduler))) != 0 ||
         json_object_set_new(scalars, "meters", eg__meters_json(s->meters)) != 0 || add_choice(s, scalars) != EG_OK)) {
        json_decref(scalars);
        scalars = NULL;
    }
    return eg__checkpoint_write(s->checkpoint_path, state, scalars);
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

static eg_status restore_choice(eg_search *s, const json_t *scalars)
{
    const json_t *known = json_object_get(scalars, "candidates"), *arch = json_object_get(scalars, "arch");
    size_t n = json_array_size(known);
    EG_TRY(eg__grow(&s->known, &s->known_capacity, n, sizeof *s->known));
    for (size_t i = 0; i < n; i++)
        EG_TRY(eg__json_read_double(json_array_get(known, i), "candidates", &s->known[i]));
    s->n_known = n;
    if (!arch)
        return EG_OK;
    EG_CHECK(json_is_string(arch), EG_EFORMAT, "'arch' is no text");
    s->arch = eg_arch_parse(json_string_value(arch));
    return s->arch ? EG_OK : eg_error_last()->code;
}

static eg_status restore_from(eg_search *s, const eg_state *state, const json_t *scalars)
{
    int64_t schedule = 0;
    EG_TRY(eg__json_get_i64(scalars, "schedule", &schedule));
    EG_TRY(eg_module_load_state(s->options.model, "model.", state, true));
    /* the schedule before the optimizer: setting a position computes learning rates anew, the optimizer's are the exact
     * ones */
    EG_TRY(eg_scheduler_set_position(s->scheduler, schedule));
    EG_TRY(eg_optimizer_load_state(s->optimizer, "optimizer.", state));
    if (s->cls->load)
        EG_TRY(s->cls->load(s->strategy, "strategy.", state));
    EG_TRY(eg__meters_restore(s->meters, json_object_get(scalars, "meters")));
    EG_TRY(restore_choice(s, scalars));
    return eg__checkpoint_restore(s->options.ctx, scalars, &s->position);
}

eg_status eg__search_restore(eg_search *s, const char *path)
{
    eg_tape *scope = eg_tape_begin(s->options.ctx, EG_NO_GRAD);
    eg_state *state = NULL;
    json_t *scalars = NULL;
    eg_status status = scope ? eg__checkpoint_read(s->options.ctx, path, settings_of(s), &state, &scalars) : EG_ENOMEM;
    if (status == EG_OK) {
        status = restore_from(s, state, scalars);
        if (status != EG_OK)
            status = eg__fail_prefix(status, "checkpoint '%s'", path);
    }
    eg_state_free(state);
    json_decref(scalars);
    eg_tape_end(scope);
    return status;
}
