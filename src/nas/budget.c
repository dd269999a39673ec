/*
 * nas/budget.c - limits of what a network may take, as constraints of a search.
 */
#include "nas/internal.h"

#include <inttypes.h>

/* Of a batch of one. */
static eg_status find_cost(const eg_strategy *self, eg_mutator *mutator, const eg_decisions *decisions,
                           eg_network_cost *cost)
{
    eg_shape input = eg__batch_shape(self->options.input, 1);
    eg_status status = eg_mutator_cost_of(mutator, decisions, &input, 1, cost);
    eg_free(cost->path);
    return status;
}

static eg_status has_few_parameters(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    const eg_strategy *self = payload;
    eg_network_cost cost;
    EG_TRY(find_cost(self, mutator, decisions, &cost));
    *holds = cost.parameters <= self->options.max_parameters;
    return EG_OK;
}

static eg_status has_few_macs(void *payload, eg_mutator *mutator, const eg_decisions *decisions, bool *holds)
{
    const eg_strategy *self = payload;
    eg_network_cost cost;
    EG_TRY(find_cost(self, mutator, decisions, &cost));
    *holds = cost.macs <= (uint64_t)self->options.max_macs;
    return EG_OK;
}

static eg_status add(eg_strategy *self, const char *what, int64_t limit, eg_constraint_fn holds)
{
    if (limit == 0)
        return EG_OK;
    char *name = eg__format("at most %" PRId64 " %s", limit, what);
    eg_status status = name != NULL ? eg_mutator_add_constraint(self->mutator, name, holds, self) : EG_ENOMEM;
    eg_free(name);
    return status;
}

eg_status eg__budget_check(const eg_strategy_options *o)
{
    EG_CHECK(o->max_parameters >= 0, EG_EINVAL, "max_parameters is %" PRId64 ", expected 0 (no limit) or more",
             o->max_parameters);
    EG_CHECK(o->max_macs >= 0, EG_EINVAL, "max_macs is %" PRId64 ", expected 0 (no limit) or more", o->max_macs);
    bool limited = o->max_parameters > 0 || o->max_macs > 0;
    EG_CHECK(!limited || (o->input.ndim >= 1 && o->input.ndim < EG_MAX_DIMS), EG_EINVAL,
             "max_parameters and max_macs need 'input', the shape of a sample");
    return EG_OK;
}

eg_status eg__budget_add(eg_strategy *self)
{
    EG_TRY(add(self, "parameters", self->options.max_parameters, has_few_parameters));
    return add(self, "multiplications (MACs)", self->options.max_macs, has_few_macs);
}
