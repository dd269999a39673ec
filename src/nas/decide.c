/*
 * nas/decide.c - decisions that nobody draws or learns, and which candidates there are.
 */
#include "nas/internal.h"

#include <stdlib.h>

bool eg__candidate_there(const eg_module *choice, size_t i)
{
    return eg__kind_of(choice) != EG__LAYERS || eg_layer_choice_at(choice, i) != NULL;
}

eg_status eg__candidates_left(const eg_module *choice, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < eg__choice_size(choice); i++)
        *n += eg__candidate_there(choice, i) ? 1 : 0;
    EG_CHECK(*n > 0 || eg__kind_of(choice) != EG__LAYERS, EG_EINVAL,
             "layer choice '%s' has no candidates left: all were emptied", eg_mutable_key(choice));
    return EG_OK;
}

/* The largest value, or the smallest or the first. */
static size_t value_of_extent(const eg_module *choice, eg__extent extent)
{
    size_t best = 0;
    for (size_t i = 1; i < eg_value_choice_size(choice) && extent != EG__FIRST; i++) {
        double more = eg_value_choice_at(choice, i) - eg_value_choice_at(choice, best);
        if (extent == EG__JOINED_SMALLEST ? more < 0 : more > 0)
            best = i;
    }
    return best;
}

static bool joins_anything(const eg_module *layers)
{
    int reduction = ((const eg_layer_choice *)layers)->reduction;
    return reduction == EG_CHOICE_SUM || reduction == EG_CHOICE_MEAN;
}

/* How many of the `left` candidates of a choice of layers or inputs. */
static size_t wanted(const eg_module *choice, eg__extent extent, size_t left)
{
    if (extent == EG__EVERY)
        return left;
    if (eg__kind_of(choice) == EG__LAYERS)
        return extent != EG__FIRST && joins_anything(choice) ? left : 1;
    int64_t n_chosen = eg_input_choice_n_chosen(choice);
    return n_chosen < 0 ? left : (size_t)n_chosen;
}

/* The first `number` of those that there are. */
static void mark(const eg_module *choice, size_t number, bool *mask)
{
    for (size_t i = 0; number > 0; i++) {
        mask[i] = eg__candidate_there(choice, i);
        number -= mask[i] ? 1 : 0;
    }
}

eg_status eg__decide(const eg_module *choice, eg__extent extent, eg_decisions *out)
{
    size_t n = eg__choice_size(choice), left;
    EG_TRY(eg__candidates_left(choice, &left));
    bool *mask = eg__calloc(n + 1, sizeof(*mask));
    if (mask == NULL)
        return EG_ENOMEM;
    if (eg__kind_of(choice) == EG__VALUES)
        mask[value_of_extent(choice, extent)] = true;
    else
        mark(choice, wanted(choice, extent, left), mask);
    eg_status status = eg_decisions_set_mask(out, eg_mutable_key(choice), mask, n);
    free(mask);
    return status;
}

eg_status eg__decide_each(const eg_mutator *mutator, eg__extent extent, eg_decisions *out)
{
    for (size_t i = 0; i < mutator->n_mutables; i++) {
        if (eg__is_choice(mutator->mutables[i]))
            EG_TRY(eg__decide(mutator->mutables[i], extent, out));
    }
    return EG_OK;
}

eg_status eg_mutator_choose_all(eg_mutator *mutator)
{
    EG_CHECK(mutator != NULL, EG_EINVAL, "no mutator was given");
    eg_decisions *all = eg_decisions_new();
    eg_status status = all != NULL ? eg__decide_each(mutator, EG__EVERY, all) : EG_ENOMEM;
    if (status == EG_OK)
        eg__mutator_follow(mutator, all);
    else
        eg_decisions_free(all);
    return status;
}
