/*
 * optim/state.c - optimizers in checkpoints.
 *
 * "<parameter>.step" (int64) and the tensors of the kind for each parameter updated at least once; "lr" and
 * "initial_lr" (float64, one number a group).
 */
#include "optim/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const rate_names[] = {"lr", "initial_lr"};

static double *rate_of(eg__group *group, size_t which)
{
    return which == 0 ? &group->lr : &group->initial_lr;
}

static eg_status put(eg_state *state, const char *prefix, const char *param, const char *name, eg_tensor *t)
{
    char *full = eg__format("%s%s%s%s", prefix, param, *param ? "." : "", name);
    if (!full || !t) {
        eg_free(full);
        return EG_ENOMEM;
    }
    eg_status status = eg_state_put(state, full, t);
    eg_free(full);
    return status;
}

static eg_status put_param(const eg_optimizer *o, const eg__param *param, const char *prefix, eg_state *state)
{
    eg_tensor *step = eg__tensor_new(o->ctx, EG_I64, EG_SCALAR, EG_LAYOUT_ROW_MAJOR);
    if (step)
        *eg__i64(step) = param->step;
    eg_status status = put(state, prefix, param->name, "step", step);
    eg_tensor_release(step);
    for (size_t s = 0; s < o->n_states && status == EG_OK; s++)
        status = put(state, prefix, param->name, o->kind->states[s], param->states[s]);
    return status;
}

eg_status eg_optimizer_state(eg_optimizer *optimizer, const char *prefix, eg_state *state)
{
    if (!optimizer || !state) {
        eg__null(__func__, optimizer ? "state" : "optimizer");
        return eg_error_last()->code;
    }
    eg_optimizer *o = optimizer;
    prefix = prefix ? prefix : "";
    for (size_t i = 0; i < o->n_params; i++)
        if (o->params[i].step > 0)
            EG_TRY(put_param(o, &o->params[i], prefix, state));
    for (size_t k = 0; k < EG_COUNT(rate_names); k++) {
        eg_tensor *rates = eg__tensor_new(o->ctx, EG_F64, EG_SHAPE((int64_t)o->n_groups), EG_LAYOUT_ROW_MAJOR);
        for (size_t g = 0; rates && g < o->n_groups; g++)
            eg__f64(rates)[g] = *rate_of(&o->groups[g], k);
        eg_status status = put(state, prefix, "", rate_names[k], rates);
        eg_tensor_release(rates);
        EG_TRY(status);
    }
    return EG_OK;
}

/* ---- loading: everything is read into `loaded` first, so that a failure changes nothing ---- */

typedef struct loaded {
    eg__param *params; /* step and states only */
    eg__group *groups; /* rates only */
} loaded;

static void loaded_free(const eg_optimizer *o, loaded *l)
{
    for (size_t i = 0; l->params && i < o->n_params; i++)
        for (size_t s = 0; s < o->n_states; s++)
            eg_tensor_release(l->params[i].states[s]);
    free(l->params);
    free(l->groups);
}

/* *t is NULL when there is no such tensor. */
static eg_status get(const eg_state *state, const char *prefix, const char *param, const char *name, eg_dtype dtype,
                     eg_shape shape, eg_tensor **t)
{
    char *full = eg__format("%s%s%s%s", prefix, param, *param ? "." : "", name);
    if (!full)
        return EG_ENOMEM;
    *t = eg_state_get(state, full);
    eg_status status = EG_OK;
    char got[EG_SHAPE_TEXT_SIZE], expected[EG_SHAPE_TEXT_SIZE];
    if (*t && (!(*t)->storage || (*t)->dtype != dtype))
        status = eg_fail(EG_EDTYPE, "'%s' is %s, expected %s", full, eg_dtype_name((*t)->dtype), eg_dtype_name(dtype));
    else if (*t && !eg_shape_equal((*t)->shape, shape))
        status =
            eg_fail(EG_ESHAPE, "'%s' has shape %s, expected %s", full, eg_shape_format((*t)->shape, got, sizeof got),
                    eg_shape_format(shape, expected, sizeof expected));
    eg_free(full);
    return status;
}

static eg_status load_param(const eg_optimizer *o, const eg__param *param, const char *prefix, const eg_state *state,
                            eg__param *to)
{
    eg_tensor *t;
    EG_TRY(get(state, prefix, param->name, "step", EG_I64, EG_SCALAR, &t));
    to->step = t ? *eg__i64(t) : 0;
    EG_CHECK(!t || to->step > 0, EG_EFORMAT, "'%s%s.step' is %lld, expected at least 1", prefix, param->name,
             (long long)to->step);
    for (size_t s = 0; s < o->n_states; s++) {
        EG_TRY(get(state, prefix, param->name, o->kind->states[s], param->tensor->dtype, param->tensor->shape, &t));
        EG_CHECK(!t == (to->step == 0), EG_ENOENT, "the state has no '%s%s.%s'", prefix, param->name,
                 t ? "step" : o->kind->states[s]);
        if (!t)
            continue;
        to->states[s] = eg__tensor_new_like(param->tensor);
        if (!to->states[s])
            return EG_ENOMEM;
        EG_TRY(eg_tensor_assign(to->states[s], t));
    }
    return EG_OK;
}

static eg_status load_rates(const eg_optimizer *o, const char *prefix, const eg_state *state, eg__group *groups)
{
    for (size_t k = 0; k < EG_COUNT(rate_names); k++) {
        eg_tensor *rates;
        EG_TRY(get(state, prefix, "", rate_names[k], EG_F64, EG_SHAPE((int64_t)o->n_groups), &rates));
        EG_CHECK(rates, EG_ENOENT, "the state has no '%s%s'", prefix, rate_names[k]);
        for (size_t g = 0; g < o->n_groups; g++) {
            double rate = eg__f64(rates)[g * (size_t)rates->strides[0]];
            EG_CHECK(isfinite(rate) && (k > 0 || rate >= 0), EG_EFORMAT, "'%s%s' holds %g", prefix, rate_names[k],
                     rate);
            *rate_of(&groups[g], k) = rate;
        }
    }
    return EG_OK;
}

/* `params` are the names of our parameters. */
static eg_status check_name(const eg_optimizer *o, const eg__map *params, const char *name, size_t prefix)
{
    const char *own = name + prefix, *dot = strrchr(own, '.');
    for (size_t k = 0; k < EG_COUNT(rate_names); k++)
        if (strcmp(own, rate_names[k]) == 0)
            return EG_OK;
    bool known = dot && strcmp(dot + 1, "step") == 0;
    for (size_t s = 0; dot && s < o->n_states; s++)
        known = known || strcmp(dot + 1, o->kind->states[s]) == 0;
    if (known) {
        char *param = eg__format("%.*s", (int)(dot - own), own);
        if (!param)
            return EG_ENOMEM;
        known = eg__map_find(params, param) != NULL;
        eg_free(param);
    }
    EG_CHECK(known, EG_ENOENT, "the %s optimizer has nothing that '%s' could be for", o->kind->name, name);
    return EG_OK;
}

/* State of parameters that we do not have means that the checkpoint is of another model. */
static eg_status check_names(const eg_optimizer *o, const char *prefix, const eg_state *state)
{
    size_t length = strlen(prefix);
    eg__map params = {0};
    eg_status status = EG_OK;
    for (size_t i = 0; length > 0 && i < o->n_params && status == EG_OK; i++)
        status = eg__map_put(&params, o->params[i].name, NULL);
    for (size_t i = 0; length > 0 && i < eg_state_size(state) && status == EG_OK; i++) {
        const char *name;
        eg_state_at(state, i, &name);
        if (strncmp(name, prefix, length) == 0)
            status = check_name(o, &params, name, length);
    }
    eg__map_free(&params);
    return status;
}

static eg_status load(const eg_optimizer *o, const char *prefix, const eg_state *state, loaded *l)
{
    EG_TRY(check_names(o, prefix, state));
    l->params = eg__calloc(o->n_params + 1, sizeof *l->params);
    l->groups = eg__calloc(o->n_groups + 1, sizeof *l->groups);
    if (!l->params || !l->groups)
        return EG_ENOMEM;
    EG_TRY(load_rates(o, prefix, state, l->groups));
    for (size_t i = 0; i < o->n_params; i++)
        EG_TRY(load_param(o, &o->params[i], prefix, state, &l->params[i]));
    return EG_OK;
}

eg_status eg_optimizer_load_state(eg_optimizer *optimizer, const char *prefix, const eg_state *state)
{
    if (!optimizer || !state) {
        eg__null(__func__, optimizer ? "state" : "optimizer");
        return eg_error_last()->code;
    }
    loaded l = {0};
    eg_status status = load(optimizer, prefix ? prefix : "", state, &l);
    for (size_t g = 0; status == EG_OK && g < optimizer->n_groups; g++)
        for (size_t k = 0; k < EG_COUNT(rate_names); k++)
            *rate_of(&optimizer->groups[g], k) = *rate_of(&l.groups[g], k);
    for (size_t i = 0; status == EG_OK && i < optimizer->n_params; i++) {
        eg__param *param = &optimizer->params[i], *from = &l.params[i];
        param->step = from->step;
        for (size_t s = 0; s < optimizer->n_states; s++) { /* what was there before is freed with `l` */
            eg_tensor *before = param->states[s];
            param->states[s] = from->states[s];
            from->states[s] = before;
        }
    }
    loaded_free(optimizer, &l);
    return status;
}
