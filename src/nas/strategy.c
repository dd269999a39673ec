/*
 * nas/strategy.c - what strategies share: their life, and a training step of the shared weights.
 */
#include "nas/internal.h"

#include <math.h>
#include <stdlib.h>

static const double GRAD_CLIP = 5; /* of Liu et al. */

static eg_status fill_options(eg_strategy_options *own, const eg_strategy_options *given)
{
    EG_TRY(eg__options_copy(own, sizeof(*own), given));
    EG_CHECK(own->evaluations >= 0, EG_EINVAL, "evaluations is %lld, expected 0 (the strategy's own) or more",
             (long long)own->evaluations);
    EG_CHECK(own->population >= 0, EG_EINVAL, "population is %lld, expected 0 (20) or more",
             (long long)own->population);
    EG_CHECK(own->arch_lr >= 0 && isfinite(own->arch_lr), EG_EINVAL, "arch_lr is %g, expected 0 (3e-4) or more",
             own->arch_lr);
    EG_CHECK(own->arch_weight_decay >= 0 && isfinite(own->arch_weight_decay), EG_EINVAL,
             "arch_weight_decay is %g, expected 0 (1e-3) or more", own->arch_weight_decay);
    EG_CHECK(own->warmup >= 0 && own->warmup <= 1, EG_EINVAL, "warmup is %g, expected 0 to 1", own->warmup);
    EG_CHECK(own->constraints != NULL || own->n_constraints == 0, EG_EINVAL, "there are constraints, but no list");
    EG_TRY(eg__budget_check(own));
    EG_CHECK(!isnan(own->grad_clip), EG_EINVAL, "grad_clip is not a number");
    if (own->grad_clip == 0)
        own->grad_clip = GRAD_CLIP;
    return EG_OK;
}

/* A search without anything to decide would end in an empty architecture. */
static eg_status check_choices(eg_module *model)
{
    eg__mutables mutables;
    EG_TRY(eg__mutables_find(model, &mutables));
    bool found = false;
    for (size_t i = 0; i < mutables.n_unique && !found; i++)
        found = eg__is_choice(mutables.unique[i]);
    eg__mutables_free(&mutables, model);
    EG_CHECK(found, EG_EINVAL, "the model has no open choice");
    return EG_OK;
}

/* The mutator has copies then, the list is the caller's. */
static eg_status add_constraints(eg_strategy *self)
{
    eg_strategy_options *o = &self->options;
    for (size_t i = 0; i < o->n_constraints; i++) {
        const eg_constraint *c = &o->constraints[i];
        EG_TRY(eg_mutator_add_constraint(self->mutator, c->name, c->holds, c->payload));
    }
    o->constraints = NULL;
    o->n_constraints = 0;
    return eg__budget_add(self);
}

eg_strategy *eg_strategy_new(const eg_strategy_class *cls, eg_module *model, eg_optimizer *optimizer,
                             const eg_strategy_host *host, const eg_strategy_options *options)
{
    if (cls == NULL || model == NULL)
        return eg__null(__func__, cls == NULL ? "class" : "model");
    if (cls->struct_size < sizeof(*cls) || cls->instance_size < sizeof(eg_strategy)) {
        eg_fail(EG_EINVAL, "strategy class '%s': struct_size or instance_size is too small", cls->name);
        return NULL;
    }
    if (optimizer == NULL && !cls->no_training)
        return eg__null(__func__, "optimizer");
    eg_strategy_options own;
    if (fill_options(&own, options) != EG_OK || check_choices(model) != EG_OK)
        return NULL;
    eg_strategy *strategy = eg__calloc(1, cls->instance_size);
    if (strategy == NULL)
        return NULL;
    *strategy = (eg_strategy){.cls = cls,
                              .ctx = model->ctx,
                              .model = eg_module_retain(model),
                              .optimizer = optimizer,
                              .host = host,
                              .options = own};
    strategy->options.choice = eg__strdup(own.choice);
    if ((strategy->options.choice != NULL || own.choice == NULL) && cls->start(strategy) == EG_OK &&
        add_constraints(strategy) == EG_OK)
        return strategy;
    eg_strategy_free(strategy);
    return NULL;
}

void eg_strategy_free(eg_strategy *strategy)
{
    if (strategy == NULL)
        return;
    if (strategy->cls->finalize != NULL)
        strategy->cls->finalize(strategy);
    eg_mutator_detach(strategy->mutator);
    free((char *)(uintptr_t)strategy->options.choice);
    eg_module_release(strategy->model);
    free(strategy);
}

/* ---- steps ---- */

static eg_status backward(eg_strategy *self, const eg_batch *batch, const char *rates, eg_step_result *result)
{
    EG_TRY(eg_mutator_reset(self->mutator));
    eg_tensor *logits = eg_call(self->model, batch->x);
    eg_tensor *loss = eg_f_cross_entropy(logits, batch->y);
    if (loss == NULL)
        return eg_error_last()->code;
    *result = (eg_step_result){.loss = eg_tensor_item(loss), .accuracy = eg_accuracy(logits, batch->y)};
    /* the sign of what is no number says nothing */
    EG_CHECK(isfinite(result->loss), EG_EINVAL, "the loss is %g: a lower learning rate may help (%s)",
             isnan(result->loss) ? (double)NAN : (double)result->loss, rates);
    return eg_backward(loss);
}

eg_status eg__strategy_backward(eg_strategy *self, const eg_batch *batch, const char *rates, eg_step_result *result)
{
    EG_CHECK(batch != NULL && batch->x != NULL && batch->y != NULL, EG_EINVAL, "%s: no batch was given",
             self->cls->name);
    eg_tape *tape = eg_tape_begin(self->ctx, EG_RECORD);
    if (tape == NULL)
        return EG_ENOMEM;
    eg_status status = backward(self, batch, rates, result);
    eg_tape_end(tape);
    return status;
}

eg_status eg__strategy_update(eg_strategy *self)
{
    eg_status status = EG_OK;
    if (self->options.grad_clip > 0)
        status = eg_optimizer_clip_grad_norm(self->optimizer, self->options.grad_clip, NULL);
    if (status == EG_OK)
        status = eg_optimizer_step(self->optimizer);
    eg_optimizer_zero_grad(self->optimizer);
    return status;
}
