/*
 * optim/optimizer.c - parameter groups, and what all optimizers do alike.
 */
#include "nn/internal.h"
#include "optim/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static eg_status check_rate(const char *what, double value, bool zero_allowed)
{
    EG_CHECK(isfinite(value) && (value > 0 || (zero_allowed && value >= 0)), EG_EINVAL,
             "%s is %g, expected a number %s 0", what, value, zero_allowed ? "of at least" : "above");
    return EG_OK;
}

static double rate_now(const eg_optimizer *optimizer, double initial_lr)
{
    return EG_MAX(0, optimizer->rate.slope * initial_lr + optimizer->rate.offset);
}

eg_optimizer *eg__optimizer_new(const eg__optimizer_kind *kind, size_t size, size_t n_states, eg_module *model,
                                eg_context *ctx, double lr, double weight_decay)
{
    if (!model && !ctx)
        return eg__null(kind->name, "model (and no context is given)");
    if (check_rate("learning rate", lr, false) != EG_OK || check_rate("weight decay", weight_decay, true) != EG_OK) {
        eg__fail_prefix(EG_EINVAL, "%s", kind->name);
        return NULL;
    }
    eg_optimizer *optimizer = eg__calloc(1, size);
    if (!optimizer)
        return NULL;
    optimizer->kind = kind;
    optimizer->ctx = model ? model->ctx : ctx;
    optimizer->n_states = n_states;
    optimizer->defaults = (eg__group){.initial_lr = lr, .lr = lr, .weight_decay = weight_decay};
    optimizer->rate = (eg__rate){.slope = 1};
    if (model && eg_optimizer_add_module(optimizer, "", model, NULL) != EG_OK) {
        eg_optimizer_free(optimizer);
        return NULL;
    }
    return optimizer;
}

static void remove_last_param(eg_optimizer *optimizer)
{
    eg__param *param = &optimizer->params[--optimizer->n_params];
    for (size_t s = 0; s < EG__MAX_STATES; s++)
        eg_tensor_release(param->states[s]);
    eg_tensor_release(param->tensor);
    eg_free(param->name);
}

void eg_optimizer_free(eg_optimizer *optimizer)
{
    if (!optimizer)
        return;
    while (optimizer->n_params > 0)
        remove_last_param(optimizer);
    free(optimizer->params);
    free(optimizer->groups);
    free(optimizer->gathered);
    free(optimizer->pending);
    free(optimizer->chosen);
    free(optimizer);
}

/* ---- groups ---- */

/* A group that is being added: which parameters there are is looked up, not searched for. */
typedef struct adding {
    eg_optimizer *optimizer;
    size_t n_before;
    eg__ptr_map tensors; /* -> number + 1 */
    eg__map names;
} adding;

/* The number of a parameter; SIZE_MAX when there is none. */
static size_t find_tensor(const adding *a, const eg_tensor *t)
{
    void **known = eg__ptr_map_find(&a->tensors, t);
    return known != NULL ? (size_t)(uintptr_t)*known - 1 : SIZE_MAX;
}

static eg_status note_param(adding *a, size_t i)
{
    const eg__param *param = &a->optimizer->params[i];
    EG_TRY(eg__ptr_map_put(&a->tensors, param->tensor, (void *)(uintptr_t)(i + 1)));
    return eg__map_put(&a->names, param->name, NULL);
}

static eg_status check_param(const adding *a, const char *name, const eg_tensor *t)
{
    size_t at = find_tensor(a, t);
    EG_CHECK(at == SIZE_MAX, EG_EINVAL, "parameter '%s' is in the optimizer already, as '%s'", name,
             a->optimizer->params[at].name);
    EG_CHECK(eg__map_find(&a->names, name) == NULL, EG_EINVAL, "the optimizer has another parameter '%s' already",
             name);
    EG_CHECK(t->kind == EG__DENSE && t->storage && (t->dtype == EG_F32 || t->dtype == EG_F64) && eg__is_dense(t),
             EG_EINVAL, "parameter '%s' is not a tensor of numbers of its own (float32 or float64)", name);
    return EG_OK;
}

static eg_status add_param(adding *a, const char *prefix, const char *name, eg_tensor *t)
{
    eg_optimizer *o = a->optimizer;
    if (!t) {
        eg__null(__func__, "parameter");
        return eg_error_last()->code;
    }
    char *full = eg__format("%s%s", prefix, name);
    if (!full)
        return EG_ENOMEM;
    eg_status status = check_param(a, full, t);
    if (status == EG_OK)
        status = eg__grow(&o->params, &o->params_capacity, o->n_params + 1, sizeof *o->params);
    if (status != EG_OK) {
        eg_free(full);
        return status;
    }
    o->params[o->n_params++] = (eg__param){.name = full, .tensor = eg_tensor_keep(t), .group = o->n_groups};
    return note_param(a, o->n_params - 1);
}

/* Makes room for a group, whose parameters are added next; then finish_group(), also after a failure. */
static eg_status begin_group(adding *a, eg_optimizer *optimizer, const eg_group_options *options)
{
    *a = (adding){.optimizer = optimizer, .n_before = optimizer->n_params};
    eg_group_options given = {0};
    if (options)
        memcpy(&given, options, options->struct_size ? EG_MIN(options->struct_size, sizeof given) : sizeof given);
    eg__group group = optimizer->defaults;
    if (given.lr.set)
        group.initial_lr = given.lr.value;
    if (given.weight_decay.set)
        group.weight_decay = given.weight_decay.value;
    EG_TRY(check_rate("learning rate", group.initial_lr, true));
    EG_TRY(check_rate("weight decay", group.weight_decay, true));
    group.lr = rate_now(optimizer, group.initial_lr);
    EG_TRY(
        eg__grow(&optimizer->groups, &optimizer->groups_capacity, optimizer->n_groups + 1, sizeof *optimizer->groups));
    optimizer->groups[optimizer->n_groups] = group;
    for (size_t i = 0; i < optimizer->n_params; i++)
        EG_TRY(note_param(a, i));
    return EG_OK;
}

static eg_status finish_group(adding *a, eg_status status)
{
    if (status == EG_OK)
        a->optimizer->n_groups++;
    while (status != EG_OK && a->optimizer->n_params > a->n_before)
        remove_last_param(a->optimizer);
    eg__ptr_map_free(&a->tensors);
    eg__map_free(&a->names);
    return status;
}

eg_status eg_optimizer_add(eg_optimizer *optimizer, const char *name, eg_tensor *const *params, size_t n,
                           const eg_group_options *options)
{
    if (!optimizer || !name || (!params && n > 0)) {
        eg__null(__func__, !optimizer ? "optimizer" : name ? "list of parameters" : "name");
        return eg_error_last()->code;
    }
    adding a;
    eg_status status = begin_group(&a, optimizer, options);
    for (size_t i = 0; i < n && status == EG_OK; i++) {
        char number[32];
        snprintf(number, sizeof number, ".%zu", i);
        status = add_param(&a, name, number, params[i]);
    }
    return finish_group(&a, status);
}

typedef struct add_module_walk {
    adding adding;
    const char *prefix;
} add_module_walk;

static eg_status add_visited(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    add_module_walk *walk = payload;
    if (kind != EG_SLOT_PARAMETER || eg_is_none(t))
        return EG_OK;
    size_t at = find_tensor(&walk->adding, t);
    if (at >= walk->adding.n_before && at != SIZE_MAX) /* shared by two slots of this module */
        return EG_OK;
    return add_param(&walk->adding, walk->prefix, path, t);
}

eg_status eg_optimizer_add_module(eg_optimizer *optimizer, const char *prefix, eg_module *m,
                                  const eg_group_options *options)
{
    if (!optimizer || !m) {
        eg__null(__func__, optimizer ? "module" : "optimizer");
        return eg_error_last()->code;
    }
    add_module_walk walk = {.prefix = prefix ? prefix : ""};
    eg_status status = begin_group(&walk.adding, optimizer, options);
    if (status == EG_OK)
        status = eg__module_walk_tensors_once(m, add_visited, &walk);
    return finish_group(&walk.adding, status);
}

/* ---- updates ---- */

/* NULL on failure. */
static eg_tensor *new_state(const eg_tensor *param)
{
    bool before = eg__pool_lasting(param->ctx, true);
    eg_tensor *state = eg__tensor_new_like(param);
    eg__pool_lasting(param->ctx, before);
    if (state && eg__kernels(param->ctx, state->dtype)->fill(state, 0) == EG_OK)
        return state;
    eg_tensor_release(state);
    return NULL;
}

/* Tensors with a gradient get their states, so that what follows needs no memory. */
static eg_status prepare(eg_optimizer *o)
{
    EG_TRY(eg__grow(&o->gathered, &o->gathered_capacity, (2 + EG__MAX_STATES) * o->n_params + 1, sizeof *o->gathered));
    EG_TRY(eg__grow(&o->pending, &o->pending_capacity, o->n_params + 1, sizeof *o->pending));
    EG_TRY(eg__grow(&o->chosen, &o->chosen_capacity, o->n_params + 1, sizeof *o->chosen));
    for (size_t i = 0; i < o->n_params; i++) {
        eg__param *param = &o->params[i];
        o->pending[i] = param->tensor->grad != NULL;
        if (!o->pending[i])
            continue;
        EG_CHECK(eg__same_strides(param->tensor, param->tensor->grad), EG_EINTERNAL,
                 "'%s': the gradient has another memory order", param->name);
        for (size_t s = 0; s < o->n_states; s++) {
            if (!param->states[s])
                param->states[s] = new_state(param->tensor);
            if (!param->states[s])
                return eg_error_last()->code;
        }
    }
    return EG_OK;
}

/* Updates parameter `first` and all later ones that can be updated with it. */
static eg_status update_like(eg_optimizer *o, size_t first)
{
    const eg__param *model = &o->params[first];
    const eg__group *group = &o->groups[model->group];
    eg__update u = {.kernels = eg__kernels(o->ctx, model->tensor->dtype),
                    .lr = group->lr,
                    .weight_decay = group->weight_decay,
                    .step = model->step + 1,
                    .params = o->gathered,
                    .grads = o->gathered + o->n_params};
    for (size_t s = 0; s < EG__MAX_STATES; s++)
        u.states[s] = o->gathered + (2 + s) * o->n_params;
    for (size_t i = first; i < o->n_params; i++) {
        const eg__param *param = &o->params[i];
        if (!o->pending[i] || param->group != model->group || param->step != model->step ||
            param->tensor->dtype != model->tensor->dtype)
            continue;
        u.params[u.n] = param->tensor;
        u.grads[u.n] = param->tensor->grad;
        for (size_t s = 0; s < EG__MAX_STATES; s++)
            u.states[s][u.n] = param->states[s];
        o->chosen[u.n++] = i;
        o->pending[i] = false;
    }
    EG_TRY(o->kind->update(o, &u));
    for (size_t k = 0; k < u.n; k++) {
        o->params[o->chosen[k]].step = u.step;
        eg_tensor_touch(u.params[k]);
    }
    return EG_OK;
}

eg_status eg_optimizer_step(eg_optimizer *optimizer)
{
    if (!optimizer) {
        eg__null(__func__, "optimizer");
        return eg_error_last()->code;
    }
    if (eg__is_dry(optimizer->ctx))
        return EG_OK;
    EG_TRY(prepare(optimizer));
    for (size_t i = 0; i < optimizer->n_params; i++)
        if (optimizer->pending[i])
            EG_TRY(update_like(optimizer, i));
    return EG_OK;
}

void eg_optimizer_zero_grad(eg_optimizer *optimizer)
{
    for (size_t i = 0; optimizer && i < optimizer->n_params; i++)
        eg_tensor_zero_grad(optimizer->params[i].tensor);
}

/* The gradients of one type, gathered; returns how many there are. */
static size_t gather_grads(eg_optimizer *o, eg_dtype dtype)
{
    size_t n = 0;
    for (size_t i = 0; i < o->n_params; i++)
        if (o->params[i].tensor->grad && o->params[i].tensor->dtype == dtype)
            o->gathered[n++] = o->params[i].tensor->grad;
    return n;
}

eg_status eg_optimizer_clip_grad_norm(eg_optimizer *optimizer, double max_norm, double *norm)
{
    if (!optimizer) {
        eg__null(__func__, "optimizer");
        return eg_error_last()->code;
    }
    EG_CHECK(max_norm > 0, EG_EINVAL, "clip: largest norm %g, expected above 0", max_norm);
    if (norm)
        *norm = 0;
    if (eg__is_dry(optimizer->ctx))
        return EG_OK;
    EG_TRY(eg__grow(&optimizer->gathered, &optimizer->gathered_capacity, optimizer->n_params + 1,
                    sizeof *optimizer->gathered));
    static const eg_dtype dtypes[] = {EG_F32, EG_F64};
    double total = 0;
    for (size_t d = 0; d < EG_COUNT(dtypes); d++) {
        double sum = 0;
        size_t n = gather_grads(optimizer, dtypes[d]);
        if (n > 0)
            EG_TRY(eg__kernels(optimizer->ctx, dtypes[d])->norm2(n, optimizer->gathered, &sum));
        total += sum;
    }
    total = sqrt(total);
    if (norm)
        *norm = total;
    EG_CHECK(isfinite(total), EG_EINVAL, "clip: the norm of the gradients is %g", total);
    double factor = max_norm / (total + 1e-6); /* as in PyTorch */
    if (factor >= 1)
        return EG_OK;
    for (size_t d = 0; d < EG_COUNT(dtypes); d++) {
        size_t n = gather_grads(optimizer, dtypes[d]);
        if (n > 0)
            EG_TRY(eg__kernels(optimizer->ctx, dtypes[d])->scale(n, optimizer->gathered, factor));
    }
    return EG_OK;
}

/* ---- learning rates ---- */

size_t eg_optimizer_n_groups(const eg_optimizer *optimizer)
{
    return optimizer ? optimizer->n_groups : 0;
}

double eg_optimizer_lr(const eg_optimizer *optimizer, size_t group)
{
    if (!optimizer) {
        eg__null(__func__, "optimizer");
        return NAN;
    }
    if (group >= optimizer->n_groups) {
        eg_fail(EG_EINVAL, "group %zu: the optimizer has %zu", group, optimizer->n_groups);
        return NAN;
    }
    return optimizer->groups[group].lr;
}

eg_status eg_optimizer_set_lr(eg_optimizer *optimizer, size_t group, double lr)
{
    if (!optimizer) {
        eg__null(__func__, "optimizer");
        return eg_error_last()->code;
    }
    EG_CHECK(group < optimizer->n_groups, EG_EINVAL, "group %zu: the optimizer has %zu", group, optimizer->n_groups);
    EG_TRY(check_rate("learning rate", lr, true));
    eg__group *g = &optimizer->groups[group];
    g->lr = lr;
    if (optimizer->rate.slope > 0) /* else nothing of the initial lr is left at this position */
        g->initial_lr = (lr - optimizer->rate.offset) / optimizer->rate.slope;
    return EG_OK;
}

void eg__optimizer_apply_rate(eg_optimizer *optimizer, eg__rate rate)
{
    optimizer->rate = rate;
    for (size_t i = 0; i < optimizer->n_groups; i++) {
        eg__group *group = &optimizer->groups[i];
        group->lr = rate_now(optimizer, group->initial_lr);
    }
}
