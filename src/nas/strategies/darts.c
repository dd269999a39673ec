/*
 * nas/strategies/darts.c - weights and architecture by gradients, in turn: first-order DARTS.
 *
 * Liu, Simonyan, Yang: DARTS: differentiable architecture search, ICLR 2019. A step moves the architecture's weights
 * down the validation loss, then the network's weights down the training loss. During the warmup only the latter, so
 * that layers with weights are not judged by what they give before they have learned anything.
 */
#include "nas/internal.h"

#include <stdlib.h>

static const double ARCH_LR = 3e-4, ARCH_WEIGHT_DECAY = 1e-3, ARCH_BETA1 = 0.5, ARCH_BETA2 = 0.999;

typedef struct darts_strategy {
    eg_strategy base;
    eg_optimizer *arch_optimizer; /* of the alphas */
    eg_tensor **weights;          /* the model's parameters that are trained; kept */
    size_t n_weights, capacity;
} darts_strategy;

static eg_status collect_weight(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    (void)path;
    darts_strategy *darts = payload;
    if (kind != EG_SLOT_PARAMETER || t == NULL || eg_is_none(t) || !eg_tensor_requires_grad(t))
        return EG_OK;
    EG_TRY(eg__grow(&darts->weights, &darts->capacity, darts->n_weights + 1, sizeof(eg_tensor *)));
    darts->weights[darts->n_weights++] = eg_tensor_keep(t);
    return EG_OK;
}

static eg_status add_alphas(darts_strategy *darts)
{
    const eg_darts_mutator *mutator = (const eg_darts_mutator *)darts->base.mutator;
    for (size_t i = 0; i < darts->base.mutator->n_mutables; i++) {
        const eg_module *choice = darts->base.mutator->mutables[i];
        if (!eg_is_a(choice, &eg_layer_choice_class))
            continue;
        const char *key = eg_mutable_key(choice);
        eg_tensor *alpha = eg_darts_mutator_alpha(darts->base.mutator, key);
        EG_TRY(eg_optimizer_add(darts->arch_optimizer, key, &alpha, 1, NULL));
    }
    EG_CHECK(mutator->n_choices > 0, EG_EINVAL, "darts: the model has no layer choice to learn");
    return EG_OK;
}

static eg_status start(eg_strategy *self)
{
    darts_strategy *darts = (darts_strategy *)self;
    const eg_strategy_options *o = &self->options;
    self->mutator = eg_darts_mutator_new(self->model);
    if (self->mutator == NULL)
        return eg_error_last()->code;
    darts->arch_optimizer =
        eg_adam(NULL, .ctx = self->ctx, .lr = o->arch_lr > 0 ? o->arch_lr : ARCH_LR, .beta1 = EG_F64(ARCH_BETA1),
                .beta2 = EG_F64(ARCH_BETA2),
                .weight_decay = EG_F64(o->arch_weight_decay > 0 ? o->arch_weight_decay : ARCH_WEIGHT_DECAY));
    if (darts->arch_optimizer == NULL)
        return eg_error_last()->code;
    EG_TRY(add_alphas(darts));
    return eg__module_walk_tensors_once(self->model, collect_weight, darts);
}

static void finalize(eg_strategy *self)
{
    darts_strategy *darts = (darts_strategy *)self;
    for (size_t i = 0; i < darts->n_weights; i++)
        eg_tensor_release(darts->weights[i]);
    free(darts->weights);
    eg_optimizer_free(darts->arch_optimizer);
}

/* Which of the two sets of numbers the next backward is for; nothing is computed for the other. */
static eg_status differentiate(darts_strategy *darts, bool weights)
{
    for (size_t i = 0; i < darts->n_weights; i++)
        EG_TRY(eg_tensor_set_requires_grad(darts->weights[i], weights));
    const eg_mutator *mutator = darts->base.mutator;
    for (size_t i = 0; i < mutator->n_mutables; i++) {
        if (eg_is_a(mutator->mutables[i], &eg_layer_choice_class))
            EG_TRY(eg_tensor_set_requires_grad(
                eg_darts_mutator_alpha(darts->base.mutator, eg_mutable_key(mutator->mutables[i])), !weights));
    }
    return EG_OK;
}

static eg_status arch_step(darts_strategy *darts, const eg_batch *valid)
{
    eg_step_result ignored;
    EG_TRY(differentiate(darts, false));
    eg_status status = eg__strategy_backward(&darts->base, valid, "lr or arch_lr", &ignored);
    if (status == EG_OK)
        status = eg_optimizer_step(darts->arch_optimizer);
    eg_optimizer_zero_grad(darts->arch_optimizer);
    return status;
}

static eg_status train_step(eg_strategy *self, const eg_batch *train, const eg_batch *valid, eg_step_result *result)
{
    darts_strategy *darts = (darts_strategy *)self;
    bool arch_moves = self->trained >= self->options.warmup;
    eg_status status = arch_moves ? arch_step(darts, valid) : EG_OK;
    eg_status back = differentiate(darts, true); /* also after a failure: the model is the user's */
    EG_TRY(status);
    EG_TRY(back);
    EG_TRY(eg__strategy_backward(self, train, arch_moves ? "lr or arch_lr" : "lr", result));
    return eg__strategy_update(self);
}

static eg_arch *choose(eg_strategy *self)
{
    eg_arch *arch = eg_mutator_export(self->mutator);
    if (arch != NULL && eg_mutator_set_arch(self->mutator, arch) == EG_OK)
        return arch;
    eg_arch_free(arch);
    return NULL;
}

/* ---- state ---- */

static char *optimizer_prefix(const char *prefix)
{
    return eg__format("%sarch_optimizer.", prefix);
}

static eg_status save(eg_strategy *self, const char *prefix, eg_state *state)
{
    char *optimizer = optimizer_prefix(prefix);
    if (optimizer == NULL)
        return EG_ENOMEM;
    eg_status status = EG__MUTATOR_FN(self->mutator, save)(self->mutator, prefix, state);
    if (status == EG_OK)
        status = eg_optimizer_state(((darts_strategy *)self)->arch_optimizer, optimizer, state);
    eg_free(optimizer);
    return status;
}

static eg_status load(eg_strategy *self, const char *prefix, const eg_state *state)
{
    darts_strategy *darts = (darts_strategy *)self;
    char *optimizer = optimizer_prefix(prefix);
    if (optimizer == NULL)
        return EG_ENOMEM;
    eg_status status = EG__MUTATOR_FN(self->mutator, load)(self->mutator, prefix, state);
    if (status == EG_OK)
        status = eg_optimizer_load_state(darts->arch_optimizer, optimizer, state);
    eg_free(optimizer);
    return status;
}

const eg_strategy_class eg__darts_strategy_class = {
    .struct_size = sizeof(eg_strategy_class),
    .name = "darts",
    .help = "all candidates at once, weighted; the weights learned by gradients",
    .source = "Liu, Simonyan and Yang, ICLR 2019 (first order)",
    .instance_size = sizeof(darts_strategy),
    .needs_validation_batches = true,
    .start = start,
    .train_step = train_step,
    .choose = choose,
    .save = save,
    .load = load,
    .finalize = finalize};
