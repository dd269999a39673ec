/*
 * nas/mutator_state.c - mutators in checkpoints: what their class has learned, and the decisions in force.
 *
 * "current.<key>" is a mask (int64) or weights (float64). Decisions that are tensors came from a tape that is gone.
 */
#include "nas/internal.h"

#include <stdlib.h>
#include <string.h>

static const char DECISION[] = "current.";

static char *decision_name(const char *prefix, const char *key)
{
    return eg__format("%s%s%s", prefix, DECISION, key);
}

/* ---- saving ---- */

static eg_status save_decision(const eg_mutator *mutator, const char *prefix, const char *key, eg_state *state)
{
    const eg_decision *decision = eg_decisions_get(mutator->current, key);
    if (decision == NULL || decision->tensor != NULL)
        return EG_OK;
    eg_tensor *t = eg__tensor_new(mutator->ctx, decision->is_bool ? EG_I64 : EG_F64, EG_SHAPE((int64_t)decision->n),
                                  EG_LAYOUT_ROW_MAJOR);
    for (size_t i = 0; t != NULL && i < decision->n; i++) {
        if (decision->is_bool)
            eg__i64(t)[i] = decision->weights[i] != 0;
        else
            eg__f64(t)[i] = decision->weights[i];
    }
    char *name = decision_name(prefix, key);
    eg_status status = t != NULL && name != NULL ? eg_state_put(state, name, t) : EG_ENOMEM;
    eg_free(name);
    eg_tensor_release(t);
    return status;
}

eg_status eg_mutator_state(eg_mutator *mutator, const char *prefix, eg_state *state)
{
    EG_CHECK(mutator != NULL && state != NULL, EG_EINVAL, "no mutator or state was given");
    prefix = prefix != NULL ? prefix : "";
    EG_TRY(EG__MUTATOR_FN(mutator, save)(mutator, prefix, state));
    for (size_t i = 0; i < mutator->n_mutables; i++)
        EG_TRY(save_decision(mutator, prefix, eg_mutable_key(mutator->mutables[i]), state));
    return EG_OK;
}

/* ---- loading ---- */

static eg_status read_mask(const eg_tensor *t, const char *key, size_t n, eg_decisions *out)
{
    bool *mask = eg__calloc(n, sizeof(*mask));
    if (mask == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < n; i++)
        mask[i] = eg__i64(t)[(int64_t)i * t->strides[0]] != 0;
    eg_status status = eg_decisions_set_mask(out, key, mask, n);
    free(mask);
    return status;
}

static eg_status read_weights(const eg_tensor *t, const char *key, size_t n, eg_decisions *out)
{
    double *weights = eg__calloc(n, sizeof(*weights));
    if (weights == NULL)
        return EG_ENOMEM;
    for (size_t i = 0; i < n; i++)
        weights[i] = eg__f64(t)[(int64_t)i * t->strides[0]];
    eg_status status = eg_decisions_set_weights(out, key, weights, n);
    free(weights);
    return status;
}

static eg_status load_decision(const eg_module *choice, const char *name, const eg_tensor *t, eg_decisions *out)
{
    size_t n = eg__choice_size(choice);
    char text[EG_SHAPE_TEXT_SIZE];
    EG_CHECK(eg_shape_equal(t->shape, EG_SHAPE((int64_t)n)), EG_ESHAPE,
             "'%s' has shape %s, the choice has %zu candidates", name, eg_shape_format(t->shape, text, sizeof(text)),
             n);
    EG_CHECK(t->storage != NULL && (t->dtype == EG_I64 || t->dtype == EG_F64), EG_EDTYPE,
             "'%s' is %s, expected int64 (a mask) or float64 (weights)", name, eg_dtype_name(t->dtype));
    return t->dtype == EG_I64 ? read_mask(t, eg_mutable_key(choice), n, out)
                              : read_weights(t, eg_mutable_key(choice), n, out);
}

/* Every decision of the state, which must be of a choice that the model has. */
static eg_status load_decisions(const eg_mutator *mutator, const char *prefix, const eg_state *state, eg_decisions *out)
{
    char *start = decision_name(prefix, "");
    if (start == NULL)
        return EG_ENOMEM;
    eg_status status = EG_OK;
    for (size_t i = 0; i < eg_state_size(state) && status == EG_OK; i++) {
        const char *name, *key;
        const eg_tensor *t = eg_state_at(state, i, &name);
        if (strncmp(name, start, strlen(start)) != 0)
            continue;
        key = name + strlen(start);
        const eg_module *choice = eg__mutator_find(mutator, key);
        if (choice != NULL && eg__is_choice(choice))
            status = load_decision(choice, name, t, out);
        else
            status = eg_fail(EG_ENOENT, "the model has no choice '%s'", key);
    }
    eg_free(start);
    return status;
}

eg_status eg_mutator_load_state(eg_mutator *mutator, const char *prefix, const eg_state *state)
{
    EG_CHECK(mutator != NULL && state != NULL, EG_EINVAL, "no mutator or state was given");
    prefix = prefix != NULL ? prefix : "";
    eg_decisions *decisions = eg_decisions_new();
    eg_status status = decisions != NULL ? load_decisions(mutator, prefix, state, decisions) : EG_ENOMEM;
    if (status == EG_OK)
        status = EG__MUTATOR_FN(mutator, load)(mutator, prefix, state);
    if (status == EG_OK)
        eg__mutator_follow(mutator, decisions);
    else
        eg_decisions_free(decisions);
    return status;
}
