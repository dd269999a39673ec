/*
 * nas/strategies/spos.c - one uniform path a step, then a search among paths with the shared weights.
 *
 * Guo et al.: Single path one-shot neural architecture search with uniform sampling, ECCV 2020.
 */
#include "nas/internal.h"

#include <string.h>

enum { POPULATION = 20, EVALUATIONS_PER_MEMBER = 3 };
static const double MUTATION = 0.1;

/* A path: a layer that no input choice has chosen is not run. */
static eg_status sample_path(eg_mutator *self, eg_decisions *out)
{
    EG_TRY(eg__sample_genes(self, eg_context_rng(self->ctx), out));
    return eg__decisions_drop_unused(self, out);
}

static eg_status sample_final(eg_mutator *self, eg_decisions *out)
{
    return eg__sample_uniform(self, eg_context_rng(self->ctx), eg__decisions_drop_unused, out);
}

static const eg_mutator_class path_mutator_class = {.struct_size = sizeof(eg_mutator_class),
                                                    .name = "PathMutator",
                                                    .super = &eg_random_mutator_class,
                                                    .instance_size = sizeof(eg_random_mutator),
                                                    .sample_search = sample_path,
                                                    .sample_final = sample_final};

static eg_status start(eg_strategy *self)
{
    const char *choice = self->options.choice;
    EG_CHECK(choice == NULL || strcmp(choice, "evolution") == 0 || strcmp(choice, "random") == 0, EG_EINVAL,
             "spos: choice is '%s', expected 'evolution' or 'random'", choice);
    self->mutator = eg_mutator_attach(&path_mutator_class, 0, NULL, self->model);
    return self->mutator != NULL ? EG_OK : eg_error_last()->code;
}

static eg_status train_step(eg_strategy *self, const eg_batch *train, const eg_batch *valid, eg_step_result *result)
{
    (void)valid;
    EG_TRY(eg__strategy_backward(self, train, "lr", result));
    return eg__strategy_update(self);
}

static eg_arch *choose(eg_strategy *self)
{
    const eg_strategy_options *o = &self->options;
    if (self->host == NULL || self->host->evaluate == NULL)
        return eg__null(__func__, "the host's evaluate function");
    bool evolution = o->choice == NULL || strcmp(o->choice, "evolution") == 0;
    size_t population = o->population > 0 ? (size_t)o->population : POPULATION;
    return eg__evolve(self,
                      &(eg__evolution_options){.evaluations = o->evaluations > 0 ? (size_t)o->evaluations
                                                                                 : population * EVALUATIONS_PER_MEMBER,
                                               .population = population,
                                               .parents = evolution ? EG_MAX(population / 4, (size_t)1) : 0,
                                               .mutation = MUTATION,
                                               .seed = o->seed});
}

const eg_strategy_class eg__spos_strategy_class = {.struct_size = sizeof(eg_strategy_class),
                                                   .name = "spos",
                                                   .help = "one random path a step; then the best path by evolution",
                                                   .source = "Guo et al., ECCV 2020",
                                                   .instance_size = sizeof(eg_strategy),
                                                   .start = start,
                                                   .train_step = train_step,
                                                   .choose = choose};
