/*
 * optim/adam.c - Adam, and AdamW with its decoupled weight decay.
 */
#include "optim/internal.h"

#include <math.h>

typedef struct adam {
    eg_optimizer base;
    double beta1, beta2, eps;
} adam;

static eg_status update(const eg_optimizer *optimizer, const eg__update *u, bool decoupled)
{
    const adam *self = (const adam *)optimizer;
    eg__adam scalars = {.lr = u->lr,
                        .beta1 = self->beta1,
                        .beta2 = self->beta2,
                        .eps = self->eps,
                        .weight_decay = u->weight_decay,
                        .decoupled = decoupled,
                        .step = u->step};
    return u->kernels->adam(&scalars, u->n, u->params, u->grads, u->states[0], u->states[1]);
}

static eg_status adam_update(const eg_optimizer *optimizer, const eg__update *u)
{
    return update(optimizer, u, false);
}

static eg_status adamw_update(const eg_optimizer *optimizer, const eg__update *u)
{
    return update(optimizer, u, true);
}

static const eg__optimizer_kind adam_kind = {
    .name = "adam", .states = {"exp_avg", "exp_avg_sq"}, .update = adam_update};
static const eg__optimizer_kind adamw_kind = {
    .name = "adamw", .states = {"exp_avg", "exp_avg_sq"}, .update = adamw_update};

static eg_optimizer *make(const eg__optimizer_kind *kind, const eg_adam_options *options, double weight_decay)
{
    if (!options)
        return eg__null(kind->name, "options");
    eg_adam_options own;
    if (eg__options_copy(&own, sizeof own, options) != EG_OK)
        return NULL;
    double beta1 = own.beta1.set ? own.beta1.value : 0.9, beta2 = own.beta2.set ? own.beta2.value : 0.999;
    double eps = own.eps == 0 ? 1e-8 : own.eps;
    if (!(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1 && eps > 0)) {
        eg_fail(EG_EINVAL, "%s: beta1 %g, beta2 %g, eps %g, expected 0 <= beta < 1 and eps above 0", kind->name, beta1,
                beta2, eps);
        return NULL;
    }
    adam *self = (adam *)eg__optimizer_new(kind, sizeof *self, 2, own.model, own.ctx, own.lr == 0 ? 1e-3 : own.lr,
                                           own.weight_decay.set ? own.weight_decay.value : weight_decay);
    if (!self)
        return NULL;
    self->beta1 = beta1;
    self->beta2 = beta2;
    self->eps = eps;
    return &self->base;
}

eg_optimizer *eg_adam_with(const eg_adam_options *options)
{
    return make(&adam_kind, options, 0);
}

eg_optimizer *eg_adamw_with(const eg_adam_options *options)
{
    return make(&adamw_kind, options, 0.01);
}
