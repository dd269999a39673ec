/*
 * nas/decision.c - decisions by key.
 */
#include "nas/internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct eg_decisions {
    eg__map map; /* key -> eg_decision */
};

static void free_decision(eg_decision *decision)
{
    if (decision == NULL)
        return;
    eg_tensor_release(decision->tensor);
    free(decision->weights);
    free(decision);
}

eg_decisions *eg_decisions_new(void)
{
    return eg__calloc(1, sizeof(eg_decisions));
}

void eg_decisions_free(eg_decisions *decisions)
{
    if (decisions == NULL)
        return;
    for (size_t i = 0; i < decisions->map.n; i++)
        free_decision(decisions->map.entries[i].value);
    eg__map_free(&decisions->map);
    free(decisions);
}

/* Makes a decision of n zeros. */
static eg_decision *new_decision(size_t n)
{
    eg_decision *decision = eg__calloc(1, sizeof(*decision));
    if (decision == NULL)
        return NULL;
    decision->n = n;
    decision->weights = eg__calloc(n + 1, sizeof(*decision->weights));
    if (decision->weights == NULL) {
        free(decision);
        return NULL;
    }
    return decision;
}

/* Takes `decision` over in the place of the key's old one. NULL: the failure that left it so. */
static eg_status put(eg_decisions *decisions, const char *key, eg_decision *decision)
{
    if (decision == NULL)
        return EG_ENOMEM;
    eg_decision *old = eg__map_get(&decisions->map, key);
    eg_status status = eg__map_put(&decisions->map, key, decision);
    free_decision(status == EG_OK ? old : decision);
    return status;
}

eg_status eg_decisions_set_mask(eg_decisions *decisions, const char *key, const bool *mask, size_t n)
{
    EG_CHECK(decisions != NULL && key != NULL && mask != NULL, EG_EINVAL, "no decisions, key or mask was given");
    eg_decision *decision = new_decision(n);
    for (size_t i = 0; decision != NULL && i < n; i++)
        decision->weights[i] = mask[i] ? 1 : 0;
    if (decision != NULL)
        decision->is_bool = true;
    return put(decisions, key, decision);
}

eg_status eg_decisions_set_weights(eg_decisions *decisions, const char *key, const double *weights, size_t n)
{
    EG_CHECK(decisions != NULL && key != NULL && weights != NULL, EG_EINVAL, "no decisions, key or weights were given");
    for (size_t i = 0; i < n; i++)
        EG_CHECK(isfinite(weights[i]), EG_EINVAL, "weight %zu of '%s' is not a finite number", i, key);
    for (size_t i = 0; i < n; i++)
        EG_CHECK(fabs(weights[i]) <= (double)FLT_MAX, EG_EINVAL, "weight %zu of '%s' is %g, outside of float32", i, key,
                 weights[i]);
    eg_decision *decision = new_decision(n);
    if (decision != NULL && n > 0)
        memcpy(decision->weights, weights, n * sizeof(*weights));
    return put(decisions, key, decision);
}

eg_status eg_decisions_set_tensor(eg_decisions *decisions, const char *key, eg_tensor *weights)
{
    EG_CHECK(decisions != NULL && key != NULL, EG_EINVAL, "no decisions or key was given");
    if (weights == NULL) {
        eg__null(__func__, "weights");
        return eg_error_last()->code;
    }
    EG_CHECK(eg_tensor_ndim(weights) == 1, EG_ESHAPE, "weights of '%s' have %d dimensions, expected 1", key,
             eg_tensor_ndim(weights));
    eg_decision *decision = new_decision((size_t)eg_tensor_numel(weights));
    if (decision != NULL)
        decision->tensor = eg_tensor_keep(weights);
    return put(decisions, key, decision);
}

const eg_decision *eg_decisions_get(const eg_decisions *decisions, const char *key)
{
    return decisions != NULL && key != NULL ? eg__map_get(&decisions->map, key) : NULL;
}

void eg__decisions_swap(eg_decisions *a, eg_decisions *b)
{
    eg_decisions other = *a;
    *a = *b;
    *b = other;
}

size_t eg__decisions_size(const eg_decisions *decisions)
{
    return decisions->map.n;
}

const char *eg__decisions_key(const eg_decisions *decisions, size_t i)
{
    return decisions->map.entries[i].key;
}

eg_status eg__decisions_copy_one(eg_decisions *dst, const char *key, const eg_decision *decision)
{
    eg_decision *copy = new_decision(decision->n);
    if (copy != NULL) {
        copy->is_bool = decision->is_bool;
        copy->tensor = decision->tensor != NULL ? eg_tensor_keep(decision->tensor) : NULL;
        memcpy(copy->weights, decision->weights, decision->n * sizeof(*copy->weights));
    }
    return put(dst, key, copy);
}

eg_status eg__decisions_copy(eg_decisions *dst, const eg_decisions *src)
{
    for (size_t i = 0; src != NULL && i < src->map.n; i++)
        EG_TRY(eg__decisions_copy_one(dst, src->map.entries[i].key, src->map.entries[i].value));
    return EG_OK;
}

eg_status eg__decision_read(const eg_decision *decision, double *out)
{
    if (decision->tensor == NULL) {
        memcpy(out, decision->weights, decision->n * sizeof(*out));
        return EG_OK;
    }
    float *values = eg__calloc(decision->n + 1, sizeof(*values));
    if (values == NULL)
        return EG_ENOMEM;
    eg_status status = eg_tensor_read(decision->tensor, values, decision->n);
    for (size_t i = 0; status == EG_OK && i < decision->n; i++)
        out[i] = values[i];
    free(values);
    return status;
}

eg_status eg_decisions_choose(eg_decisions *decisions, const eg_module *choice, size_t i)
{
    size_t n = eg_mutable_n_candidates(choice);
    EG_CHECK(decisions != NULL && n > 0, EG_EINVAL, "no decisions or choice was given");
    EG_CHECK(i < n, EG_EINVAL, "'%s' has no candidate %zu, expected 0 to %zu", eg_mutable_key(choice), i, n - 1);
    eg_decision *decision = new_decision(n);
    if (decision != NULL) {
        decision->is_bool = true;
        decision->weights[i] = 1;
    }
    return put(decisions, eg_mutable_key(choice), decision);
}

/* ---- what a class has sampled ---- */

static eg_status check_one(const char *sampler, const eg_module *choice, const eg_decision *decision)
{
    const char *key = eg_mutable_key(choice);
    size_t n = eg__choice_size(choice), chosen = 0;
    EG_CHECK(decision != NULL, EG_EINVAL, "sample_search of '%s' left out '%s'", sampler, key);
    EG_CHECK(decision->n == n, EG_EINVAL, "sample_search of '%s': the decision for '%s' has %zu entries, expected %zu",
             sampler, key, decision->n, n);
    if (eg__kind_of(choice) != EG__VALUES)
        return EG_OK;
    EG_CHECK(decision->tensor == NULL, EG_EINVAL,
             "sample_search of '%s': '%s' is decided by a tensor, expected one value", sampler, key);
    for (size_t i = 0; i < n; i++)
        chosen += decision->weights[i] != 0;
    EG_CHECK(chosen == 1, EG_EINVAL, "sample_search of '%s': the decision for '%s' has %zu values, expected one",
             sampler, key, chosen);
    return EG_OK;
}

eg_status eg__decisions_check(const eg_mutator *mutator, const eg_decisions *decisions)
{
    const char *sampler = eg__mutator_class_with(mutator->cls, offsetof(eg_mutator_class, sample_search))->name;
    bool *active = eg__calloc(mutator->n_mutables + 1, sizeof(*active));
    eg_status status = active != NULL ? eg__gates_active(mutator->gates, decisions, active) : EG_ENOMEM;
    for (size_t i = 0; i < mutator->n_mutables && status == EG_OK; i++) {
        const eg_module *choice = mutator->mutables[i];
        if (active[i])
            status = check_one(sampler, choice, eg_decisions_get(decisions, eg_mutable_key(choice)));
    }
    free(active);
    return status;
}

/* ---- layer choices that nobody looks at ---- */

/* Whether some input choice names `key` as a source, and whether one of them has chosen it. */
static void find_uses(const eg_mutator *mutator, const eg_decisions *decisions, const char *key, bool *named,
                      bool *chosen)
{
    *named = *chosen = false;
    for (size_t m = 0; m < mutator->n_mutables; m++) {
        const eg_module *choice = mutator->mutables[m];
        const eg_decision *decision = eg_decisions_get(decisions, eg_mutable_key(choice));
        for (size_t i = 0; decision != NULL && i < eg_input_choice_size(choice); i++) {
            if (strcmp(eg_input_choice_source(choice, i), key) != 0)
                continue;
            *named = true;
            *chosen = *chosen || decision->tensor != NULL || decision->weights[i] != 0;
        }
    }
}

static void turn_off_unused(const eg_mutator *mutator, eg_decisions *decisions)
{
    for (size_t i = 0; i < decisions->map.n; i++) {
        eg_decision *decision = decisions->map.entries[i].value;
        const char *key = decisions->map.entries[i].key;
        bool named, chosen;
        find_uses(mutator, decisions, key, &named, &chosen);
        if (!named || chosen || decision->tensor != NULL ||
            !eg_is_a(eg__mutator_find(mutator, key), &eg_layer_choice_class))
            continue;
        for (size_t k = 0; k < decision->n; k++)
            decision->weights[k] = 0;
    }
}

eg_status eg__decisions_drop_unused(const eg_mutator *mutator, eg_decisions *decisions)
{
    EG_TRY(eg__decisions_drop_inactive(mutator, decisions)); /* which choose nothing */
    turn_off_unused(mutator, decisions);
    return eg__decisions_drop_inactive(mutator, decisions);
}

/* ---- choices that do not count ---- */

/* Keeps the decisions for which keep[] holds. */
static eg_status filter(eg_decisions *decisions, const bool *keep)
{
    eg__map kept = {0}, *all = &decisions->map;
    eg_status status = EG_OK;
    for (size_t i = 0; i < all->n && status == EG_OK; i++) {
        if (keep[i])
            status = eg__map_put(&kept, all->entries[i].key, all->entries[i].value);
    }
    if (status != EG_OK) {
        eg__map_free(&kept);
        return status;
    }
    for (size_t i = 0; i < all->n; i++) {
        if (!keep[i])
            free_decision(all->entries[i].value);
    }
    eg__map_free(all);
    *all = kept;
    return EG_OK;
}

eg_status eg__decisions_drop_inactive(const eg_mutator *mutator, eg_decisions *decisions)
{
    if (eg__gates_flat(mutator->gates))
        return EG_OK;
    bool *active = eg__calloc(mutator->n_mutables + 1, sizeof(*active));
    bool *keep = eg__calloc(decisions->map.n + 1, sizeof(*keep));
    eg_status status = active != NULL && keep != NULL ? eg__gates_active(mutator->gates, decisions, active) : EG_ENOMEM;
    for (size_t i = 0; status == EG_OK && i < decisions->map.n; i++) {
        keep[i] = true;
        for (size_t k = 0; k < mutator->n_mutables; k++) {
            if (strcmp(eg_mutable_key(mutator->mutables[k]), decisions->map.entries[i].key) == 0)
                keep[i] = active[k];
        }
    }
    if (status == EG_OK)
        status = filter(decisions, keep);
    free(active);
    free(keep);
    return status;
}
