/*
 * nas/random.c - uniform decisions.
 */
#include "nas/internal.h"

#include <stdlib.h>

/* The index of candidate number k of those that are there. */
static size_t candidate_left(const eg_module *choice, uint64_t k)
{
    size_t i = 0;
    while (!eg__candidate_there(choice, i) || k-- > 0)
        i++;
    return i;
}

eg_status eg__sample_choice(const eg_module *choice, eg_rng *rng, eg_decisions *out)
{
    size_t n = eg__choice_size(choice), left;
    EG_TRY(eg__candidates_left(choice, &left));
    bool one = eg__kind_of(choice) != EG__INPUTS;
    int64_t n_chosen = one ? 1 : eg_input_choice_n_chosen(choice);
    bool *mask = eg__calloc(n + 1, sizeof(*mask));
    int64_t *order = eg__calloc(n + 1, sizeof(*order));
    eg_status status = mask != NULL && order != NULL ? EG_OK : EG_ENOMEM;
    for (size_t i = 0; status == EG_OK && i < n; i++) {
        order[i] = (int64_t)i;
        mask[i] = n_chosen < 0 && eg_rng_below(rng, 2) == 1;
    }
    if (status == EG_OK && one)
        mask[candidate_left(choice, eg_rng_below(rng, left))] = true;
    if (status == EG_OK && !one && n_chosen >= 0) {
        eg_rng_shuffle(rng, order, n);
        for (int64_t i = 0; i < n_chosen; i++)
            mask[order[i]] = true;
    }
    if (status == EG_OK)
        status = eg_decisions_set_mask(out, eg_mutable_key(choice), mask, n);
    free(mask);
    free(order);
    return status;
}

eg_status eg__sample_genes(const eg_mutator *mutator, eg_rng *rng, eg_decisions *out)
{
    for (size_t i = 0; i < mutator->n_mutables; i++) {
        if (eg__is_choice(mutator->mutables[i]))
            EG_TRY(eg__sample_choice(mutator->mutables[i], rng, out));
    }
    return EG_OK;
}

eg_status eg__sample_uniform(eg_mutator *mutator, eg_rng *rng, eg__express_fn express, eg_decisions *out)
{
    eg__constraints_count_anew(mutator);
    for (size_t i = 0; i < EG__MAX_DRAWS; i++) {
        EG_TRY(eg__sample_genes(mutator, rng, out)); /* in the place of those from before */
        EG_TRY(express(mutator, out));
        bool hold;
        EG_TRY(eg__constraints_hold(mutator, out, &hold));
        if (hold)
            return EG_OK;
    }
    return eg__constraints_fail(mutator, EG__MAX_DRAWS);
}

static eg_status sample_search(eg_mutator *self, eg_decisions *out)
{
    return eg__sample_genes(self, eg_context_rng(self->ctx), out);
}

static eg_status sample_final(eg_mutator *self, eg_decisions *out)
{
    return eg__sample_uniform(self, eg_context_rng(self->ctx), eg__decisions_drop_inactive, out);
}

const eg_mutator_class eg_random_mutator_class = {.struct_size = sizeof(eg_mutator_class),
                                                  .name = "RandomMutator",
                                                  .instance_size = sizeof(eg_random_mutator),
                                                  .sample_search = sample_search,
                                                  .sample_final = sample_final};

eg_mutator *eg_random_mutator_new(eg_module *model)
{
    return eg_mutator_attach(&eg_random_mutator_class, 0, NULL, model);
}
