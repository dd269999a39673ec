/*
 * nas/cost.c - what the network takes that decisions stand for: a trace of the model under them.
 */
#include "nas/internal.h"

/* Each path once, in the order of its first operation. */
static char *path_of(const eg_trace *trace)
{
    eg__map seen = {0};
    eg__buf text = {0};
    eg__buf_printf(&text, "%s", "");
    for (size_t i = 0; i < eg_trace_size(trace) && !text.failed; i++) {
        const char *path = eg_trace_at(trace, i)->path;
        if (eg__map_find(&seen, path) != NULL)
            continue;
        text.failed = text.failed || eg__map_put(&seen, path, NULL) != EG_OK;
        eg__buf_printf(&text, "%s\n", path);
    }
    eg__map_free(&seen);
    return eg__buf_take(&text);
}

static eg_status find_cost(eg_module *model, const eg_shape *inputs, size_t n_inputs, eg_network_cost *out)
{
    eg_trace *trace = eg_trace_new(model, inputs, n_inputs);
    if (trace == NULL)
        return eg_error_last()->code;
    *out =
        (eg_network_cost){.parameters = eg_trace_params(trace), .macs = eg_trace_macs(trace), .path = path_of(trace)};
    eg_trace_free(trace);
    if (out->path != NULL)
        return EG_OK;
    *out = (eg_network_cost){0};
    return eg_error_last()->code;
}

eg_status eg_mutator_cost_of(eg_mutator *mutator, const eg_decisions *decisions, const eg_shape *inputs,
                             size_t n_inputs, eg_network_cost *out)
{
    EG_CHECK(out != NULL, EG_EINVAL, "no place for the result was given");
    *out = (eg_network_cost){0};
    EG_CHECK(mutator != NULL && decisions != NULL && (inputs != NULL || n_inputs == 0), EG_EINVAL,
             "no mutator, decisions or shapes were given");
    eg_decisions *current = mutator->current;
    mutator->current = (eg_decisions *)(uintptr_t)decisions; /* which running does not change */
    eg_status status = find_cost(mutator->model, inputs, n_inputs, out);
    mutator->current = current;
    return status;
}

eg_status eg_mutator_cost(eg_mutator *mutator, const eg_shape *inputs, size_t n_inputs, eg_network_cost *out)
{
    return eg_mutator_cost_of(mutator, mutator != NULL ? mutator->current : NULL, inputs, n_inputs, out);
}

eg_status eg_mutator_cost_of_arch(eg_mutator *mutator, const eg_arch *arch, const eg_shape *inputs, size_t n_inputs,
                                  eg_network_cost *out)
{
    EG_CHECK(out != NULL, EG_EINVAL, "no place for the result was given");
    *out = (eg_network_cost){0};
    EG_CHECK(mutator != NULL && arch != NULL, EG_EINVAL, "no mutator or architecture was given");
    eg_decisions *decisions = eg_decisions_new();
    if (decisions == NULL)
        return EG_ENOMEM;
    eg_status status =
        eg__decisions_from_arch(mutator->mutables, mutator->n_mutables, mutator->gates, arch, true, decisions);
    if (status == EG_OK)
        status = eg_mutator_cost_of(mutator, decisions, inputs, n_inputs, out);
    eg_decisions_free(decisions);
    return status;
}
