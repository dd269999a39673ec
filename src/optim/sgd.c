/*
 * optim/sgd.c - stochastic gradient descent with momentum.
 */
#include "optim/internal.h"

#include <math.h>

typedef struct sgd {
    eg_optimizer base;
    double momentum, dampening;
    bool nesterov;
} sgd;

static eg_status sgd_update(const eg_optimizer *optimizer, const eg__update *u)
{
    const sgd *self = (const sgd *)optimizer;
    eg__sgd scalars = {.lr = u->lr,
                       .momentum = self->momentum,
                       .dampening = self->dampening,
                       .weight_decay = u->weight_decay,
                       .nesterov = self->nesterov,
                       .first = u->step == 1};
    return u->kernels->sgd(&scalars, u->n, u->params, u->grads, u->states[0]);
}

static const eg__optimizer_kind sgd_kind = {.name = "sgd", .states = {"momentum_buffer"}, .update = sgd_update};

eg_optimizer *eg_sgd_with(const eg_sgd_options *options)
{
    if (!options)
        return eg__null(__func__, "options");
    eg_sgd_options own;
    if (eg__options_copy(&own, sizeof own, options) != EG_OK)
        return NULL;
    if (!(own.momentum >= 0 && own.momentum < INFINITY && isfinite(own.dampening))) {
        eg_fail(EG_EINVAL, "sgd: momentum %g and dampening %g, expected momentum of at least 0", own.momentum,
                own.dampening);
        return NULL;
    }
    if (own.nesterov && (own.momentum <= 0 || own.dampening != 0)) {
        eg_fail(EG_EINVAL, "sgd: nesterov needs momentum above 0 and no dampening");
        return NULL;
    }
    sgd *self = (sgd *)eg__optimizer_new(&sgd_kind, sizeof *self, own.momentum > 0 ? 1 : 0, own.model, own.ctx, own.lr,
                                         own.weight_decay);
    if (!self)
        return NULL;
    self->momentum = own.momentum;
    self->dampening = own.dampening;
    self->nesterov = own.nesterov;
    return &self->base;
}
