/*
 * nas/constraint.c - what samplers may choose.
 */
#include "nas/internal.h"

#include <stdlib.h>

struct eg_constraints {
    struct item {
        char *name;
        eg_constraint_fn holds;
        void *payload;
        size_t failures;
    } * items;
    size_t n, capacity;
};

eg_status eg_mutator_add_constraint(eg_mutator *mutator, const char *name, eg_constraint_fn holds, void *payload)
{
    EG_CHECK(mutator != NULL && name != NULL && holds != NULL, EG_EINVAL, "no mutator, name or function was given");
    if (mutator->constraints == NULL)
        mutator->constraints = eg__calloc(1, sizeof(*mutator->constraints));
    eg_constraints *c = mutator->constraints;
    if (c == NULL)
        return EG_ENOMEM;
    EG_TRY(eg__grow(&c->items, &c->capacity, c->n + 1, sizeof(*c->items)));
    char *copy = eg__strdup(name);
    if (copy == NULL)
        return EG_ENOMEM;
    c->items[c->n++] = (struct item){.name = copy, .holds = holds, .payload = payload};
    return EG_OK;
}

void eg__constraints_free(eg_constraints *constraints)
{
    if (constraints == NULL)
        return;
    for (size_t i = 0; i < constraints->n; i++)
        free(constraints->items[i].name);
    free(constraints->items);
    free(constraints);
}

/* Does what a constraint's function does. A failure without a message gets one. */
static eg_status ask(const struct item *item, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    *holds = false;
    return eg__fail_silent(item->holds(item->payload, mutator, decisions, holds), "constraint function", item->name);
}

eg_status eg__constraints_hold(eg_mutator *mutator, const eg_decisions *decisions, bool *hold)
{
    eg_constraints *c = mutator->constraints;
    *hold = true;
    for (size_t i = 0; c != NULL && i < c->n && *hold; i++) {
        EG_TRY(ask(&c->items[i], mutator, decisions, hold));
        c->items[i].failures += *hold ? 0 : 1;
    }
    return EG_OK;
}

eg_status eg_mutator_satisfies(eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    EG_CHECK(mutator != NULL && decisions != NULL && holds != NULL, EG_EINVAL,
             "no mutator, decisions or place for the answer was given");
    *holds = true;
    for (size_t i = 0; i < eg__decisions_size(decisions); i++) {
        if (eg_decisions_get(decisions, eg__decisions_key(decisions, i))->tensor != NULL)
            return EG_OK; /* a mixture of all candidates, not yet an architecture */
    }
    return eg__constraints_hold(mutator, decisions, holds);
}

void eg__constraints_count_anew(eg_mutator *mutator)
{
    for (size_t i = 0; mutator->constraints != NULL && i < mutator->constraints->n; i++)
        mutator->constraints->items[i].failures = 0;
}

eg_status eg__constraints_fail(const eg_mutator *mutator, size_t draws)
{
    const struct item *worst = mutator->constraints->items;
    for (size_t i = 1; i < mutator->constraints->n; i++) {
        if (mutator->constraints->items[i].failures > worst->failures)
            worst = &mutator->constraints->items[i];
    }
    return eg_fail(EG_EINVAL, "none of %zu draws satisfied the constraints: '%s' failed in %zu of them", draws,
                   worst->name, worst->failures);
}
