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
    if (!(options->momentum >= 0 && options->momentum < INFINITY && isfinite(options->dampening))) {
        eg_fail(EG_EINVAL, "sgd: momentum %g and dampening %g, expected momentum of at least 0", options->momentum,
                options->dampening);
        return NULL;
    }
    if (options->nesterov && (options->momentum <= 0 || options->dampening != 0)) {
        eg_fail(EG_EINVAL, "sgd: nesterov needs momentum above 0 and no dampening");
        return NULL;
    }
    sgd *self = (sgd *)eg__optimizer_new(&sgd_kind, sizeof *self, options->momentum > 0 ? 1 : 0, options->model,
                                         options->ctx, options->lr, options->weight_decay);
    if (!self)
        return NULL;
    self->momentum = options->momentum;
    self->dampening = options->dampening;
    self->nesterov = options->nesterov;
    return &self->base;
}
