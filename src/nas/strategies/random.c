/*
 * nas/strategies/random.c - an architecture drawn uniformly, with nothing trained: the control that every other
 * strategy has to beat (Li and Talwalkar, Random search and reproducibility for neural architecture search, UAI 2019).
 */
#include "nas/internal.h"

static eg_status start(eg_strategy *self)
{
    self->mutator = eg_random_mutator_new(self->model);
    return self->mutator != NULL ? EG_OK : eg_error_last()->code;
}

static eg_arch *choose(eg_strategy *self)
{
    /* one candidate, of which nothing has to be known: no evaluation */
    return eg__evolve(self, &(eg__evolution_options){.evaluations = 1, .seed = self->options.seed});
}

const eg_strategy_class eg__random_strategy_class = {.struct_size = sizeof(eg_strategy_class),
                                                     .name = "random",
                                                     .help = "an architecture drawn uniformly; nothing is trained",
                                                     .source = "Li and Talwalkar, UAI 2019",
                                                     .instance_size = sizeof(eg_strategy),
                                                     .no_training = true,
                                                     .start = start,
                                                     .choose = choose};
