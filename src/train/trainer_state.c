/*
 * Checkpoints of trainers.
 */
#include "train/internal.h"

/* ---------------------------------------------------------------------------------------------- what must be shared */

eg_status eg__trainer_settings(eg_trainer *t)
{
    const eg_trainer_options *o = &t->options;
    t->settings =
        json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:s, s:f, s:f, s:f, s:f, s:i, s:s, s:s}", "kind", "training",
                  "epochs", (json_int_t)o->epochs, "batch_size", (json_int_t)o->batch_size, "samples",
                  (json_int_t)eg_dataset_size(o->train), "seed", eg__json_u64(o->seed), "transforms",
                  eg__transforms_json(o->transforms, o->n_transforms), "optimizer", o->optimizer ? "given" : "default",
                  "lr", o->lr, "weight_decay", o->weight_decay.value, "label_smoothing", o->label_smoothing,
                  "grad_clip", o->grad_clip, "threads", eg_context_threads(o->ctx), "backend",
                  eg__context_backend(o->ctx), "precision", eg_dtype_name(eg_context_precision(o->ctx)));
    return t->settings ? EG_OK : eg_fail(EG_ENOMEM, "no memory for the settings of a trainer");
}

/* Those of now: the model may have got a mutator, or another one. */
static json_t *settings_of(const eg_trainer *t)
{
    const eg_mutator *mutator = eg_mutable_mutator(t->options.model);
    json_t *settings = json_copy(t->settings);
    const char *own = t->options.cls && t->cls->name ? t->cls->name : "built-in";
    if (settings &&
        (json_object_set_new(settings, "mutator", json_string(mutator ? mutator->cls->name : "none")) != 0 ||
         json_object_set_new(settings, "trainer", json_string(own)) != 0)) {
        json_decref(settings);
        settings = NULL;
    }
    return settings;
}

/* ---------------------------------------------------------------------------------------------- parts */

static json_t *schedules_json(const eg_trainer *t)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < t->n_callbacks; i++) {
        const eg_scheduler *scheduler = eg__callback_scheduler(t->callbacks[i]);
        if (scheduler && json_array_append_new(list, json_integer((json_int_t)eg_scheduler_position(scheduler))) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static eg_status set_schedules(eg_trainer *t, const json_t *list)
{
    size_t next = 0;
    for (size_t i = 0; i < t->n_callbacks; i++) {
        eg_scheduler *scheduler = eg__callback_scheduler(t->callbacks[i]);
        if (!scheduler)
            continue;
        const json_t *position = json_array_get(list, next++);
        EG_CHECK(json_is_integer(position), EG_EFORMAT, "a schedule's position is missing");
        EG_TRY(eg_scheduler_set_position(scheduler, json_integer_value(position)));
    }
    EG_CHECK(next == json_array_size(list), EG_EINVAL, "it has %zu schedules, the trainer %zu", json_array_size(list),
             next);
    return EG_OK;
}

static eg_status save_parts(void *owner, eg_state *state, json_t *scalars)
{
    eg_trainer *t = owner;
    eg_mutator *mutator = eg_mutable_mutator(t->options.model);
    EG_TRY(eg_module_state(t->options.model, "model.", state));
    EG_TRY(eg_optimizer_state(t->optimizer, "optimizer.", state));
    EG_TRY(mutator ? eg_mutator_state(mutator, "mutator.", state) : EG_OK);
    EG_TRY(t->cls->save ? t->cls->save(t, "trainer.", state) : EG_OK);
    EG_CHECK(json_object_set_new(scalars, "schedules", schedules_json(t)) == 0, EG_ENOMEM,
             "no memory for a checkpoint");
    EG_CHECK(!t->recipe || json_object_set_new(scalars, "surgery", json_string(t->recipe)) == 0, EG_ENOMEM,
             "no memory for a checkpoint");
    return EG_OK;
}

eg_status eg_trainer_set_recipe(eg_trainer *t, const char *recipe)
{
    EG_CHECK(t, EG_EINVAL, "trainer is NULL");
    EG_CHECK(!recipe || eg__is_utf8(recipe), EG_EINVAL, "a recipe that is no UTF-8");
    char *copy = eg__strdup(recipe);
    if (recipe && !copy)
        return EG_ENOMEM;
    eg_free(t->recipe);
    t->recipe = copy;
    return EG_OK;
}

static eg_status load_parts(void *owner, const eg_state *state, const json_t *scalars)
{
    eg_trainer *t = owner;
    eg_mutator *mutator = eg_mutable_mutator(t->options.model);
    EG_TRY(eg_module_load_state(t->options.model, "model.", state, true));
    EG_TRY(mutator ? eg_mutator_load_state(mutator, "mutator.", state) : EG_OK);
    EG_TRY(t->cls->load ? t->cls->load(t, "trainer.", state) : EG_OK);
    /* schedules before the optimizer: setting a position computes learning rates anew, the optimizer's are the exact
     * ones */
    EG_TRY(set_schedules(t, json_object_get(scalars, "schedules")));
    EG_TRY(eg_trainer_set_recipe(t, json_string_value(json_object_get(scalars, "surgery"))));
    return eg_optimizer_load_state(t->optimizer, "optimizer.", state);
}

static eg__parts parts_of(eg_trainer *t)
{
    return (eg__parts){.owner = t, .save = save_parts, .load = load_parts};
}

/* ---------------------------------------------------------------------------------------------- writing */

static eg_status add_meters(json_t *scalars, const char *name, const eg_meter_group *meters)
{
    EG_CHECK(json_object_set_new(scalars, name, eg__meters_json(meters)) == 0, EG_ENOMEM, "no memory for a checkpoint");
    return EG_OK;
}

static eg_status fill(eg_trainer *t, eg_state *state, json_t *scalars)
{
    EG_TRY(save_parts(t, state, scalars));
    EG_TRY(add_meters(scalars, "meters", t->meters));
    return add_meters(scalars, "validation_meters", t->validation_meters);
}

static eg_status write_checkpoint(eg_trainer *t, const char *path, eg_state *state)
{
    const eg__moment moment = {
        .position = t->position, .rng = *eg_context_rng(t->options.ctx), .seconds = eg__clock_read(&t->clock)};
    json_t *scalars = eg__checkpoint_scalars(&moment, settings_of(t));
    eg_status status = scalars ? fill(t, state, scalars) : EG_ENOMEM;
    if (status == EG_OK)
        return eg__checkpoint_write(path, state, scalars);
    json_decref(scalars);
    return status;
}

eg_status eg_trainer_checkpoint(eg_trainer *t, const char *path)
{
    EG_CHECK(t && path, EG_EINVAL, "trainer or path is NULL");
    eg_tape *scope = eg_tape_begin(t->options.ctx, EG_NO_GRAD);
    eg_state *state = scope ? eg_state_new() : NULL;
    eg_status status = state ? write_checkpoint(t, path, state) : EG_ENOMEM;
    eg_state_free(state);
    eg_tape_end(scope);
    return status;
}

eg_status eg__trainer_save(eg_trainer *t)
{
    if (!t->checkpoint_path)
        return EG_OK;
    EG_TRY(eg_trainer_checkpoint(t, t->checkpoint_path));
    t->saved_at = eg__now();
    return EG_OK;
}

/* ---------------------------------------------------------------------------------------------- restoring */

/* Positions count steps of any number of trainings, so only what no training comes to is refused. */
static eg_status check_schedules(const json_t *list)
{
    const json_int_t most = (json_int_t)1 << 53;
    size_t i;
    json_t *position;
    json_array_foreach((json_t *)(uintptr_t)list, i, position)
    {
        json_int_t value = json_integer_value(position);
        EG_CHECK(json_is_integer(position), EG_EFORMAT, "number %zu of 'schedules' is no whole number", i);
        EG_CHECK(value >= 0 && value <= most, EG_EFORMAT,
                 "number %zu of 'schedules' is %" JSON_INTEGER_FORMAT ", expected 0 to %" JSON_INTEGER_FORMAT, i, value,
                 most);
    }
    return EG_OK;
}

/* Everything that can be wrong is found out before the trainer itself changes. */
static eg_status restore_with(eg_trainer *t, const eg_state *state, const json_t *scalars, eg_meter_group *meters,
                              eg_meter_group *validation_meters)
{
    eg__moment moment;
    const eg__parts parts = parts_of(t);
    EG_TRY(eg__checkpoint_moment(scalars, t->options.epochs, &moment));
    EG_CHECK(moment.position.batch <= eg_loader_size(t->train), EG_EFORMAT, "'batch' is %zu in an epoch of %zu",
             moment.position.batch, eg_loader_size(t->train));
    EG_TRY(check_schedules(json_object_get(scalars, "schedules")));
    EG_TRY(eg__meters_restore(meters, json_object_get(scalars, "meters")));
    EG_TRY(eg__meters_restore(validation_meters, json_object_get(scalars, "validation_meters")));
    EG_TRY(eg__parts_load(&parts, state, scalars));
    eg__meters_swap(t->meters, meters);
    eg__meters_swap(t->validation_meters, validation_meters);
    *eg_context_rng(t->options.ctx) = moment.rng;
    t->position = moment.position;
    t->clock = (eg__clock){.before = moment.seconds};
    t->finished = false;
    return EG_OK;
}

static eg_status restore_from(void *owner, const eg_state *state, const json_t *scalars)
{
    eg_trainer *t = owner;
    eg_meter_group *meters = eg_meter_group_new(), *validation_meters = meters ? eg_meter_group_new() : NULL;
    eg_status status = validation_meters ? restore_with(t, state, scalars, meters, validation_meters) : EG_ENOMEM;
    eg_meter_group_free(meters);
    eg_meter_group_free(validation_meters);
    return status;
}

eg_status eg_trainer_restore(eg_trainer *t, const char *path)
{
    EG_CHECK(t && path, EG_EINVAL, "trainer or path is NULL");
    return eg__checkpoint_restore(t->options.ctx, path, settings_of(t), restore_from, t);
}
