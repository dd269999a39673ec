/*
 * nas/choice.c - what all kinds of choices have in common: candidates, and who decides.
 *
 * A mutator decides while one is attached. Without, a choice follows its own field `fixed`, so a network that an
 * architecture was applied to needs nothing beside itself, as a whole, as a copy, and in parts.
 */
#include "nas/internal.h"

#include <stdlib.h>
#include <string.h>

static bool is_layer(const eg_module *m)
{
    return eg_is_a(m, &eg_layer_choice_class);
}

eg__kind eg__kind_of(const eg_module *m)
{
    if (is_layer(m))
        return EG__LAYERS;
    if (eg_is_a(m, &eg_input_choice_class))
        return EG__INPUTS;
    return eg_is_a(m, &eg_value_choice_class) ? EG__VALUES : EG__NO_CHOICE;
}

const char *eg__kind_word(const eg_module *choice)
{
    static const char *const words[] = {"", "layer", "input", "value"};
    return words[eg__kind_of(choice)];
}

bool eg__is_choice(const eg_module *m)
{
    return eg__kind_of(m) != EG__NO_CHOICE;
}

size_t eg__choice_size(const eg_module *choice)
{
    switch (eg__kind_of(choice)) {
    case EG__LAYERS:
        return eg_layer_choice_size(choice);
    case EG__INPUTS:
        return eg_input_choice_size(choice);
    default:
        return eg_value_choice_size(choice);
    }
}

size_t eg_mutable_n_candidates(const eg_module *m)
{
    return eg__choice_size(m);
}

const char *eg__choice_name(const eg_module *choice, size_t i)
{
    switch (eg__kind_of(choice)) {
    case EG__LAYERS:
        return eg_layer_choice_name(choice, i);
    case EG__INPUTS:
        return eg_input_choice_source(choice, i);
    default:
        return NULL;
    }
}

static bool returns_mask(const eg_module *choice)
{
    return is_layer(choice) ? ((const eg_layer_choice *)choice)->return_mask
                            : ((const eg_input_choice *)choice)->return_mask;
}

/* ---- a choice's own decision ---- */

static const char **fixed_text(eg_module *choice)
{
    switch (eg__kind_of(choice)) {
    case EG__LAYERS:
        return &((eg_layer_choice *)choice)->fixed;
    case EG__INPUTS:
        return &((eg_input_choice *)choice)->fixed;
    default:
        return &((eg_value_choice *)choice)->fixed;
    }
}

/* The text, read once. */
static eg_decisions **fixed_decisions(eg_module *choice)
{
    switch (eg__kind_of(choice)) {
    case EG__LAYERS:
        return &((eg_layer_choice *)choice)->decisions;
    case EG__INPUTS:
        return &((eg_input_choice *)choice)->decisions;
    default:
        return &((eg_value_choice *)choice)->decisions;
    }
}

static eg_decisions *read_fixed(const eg_module *choice, const char *text)
{
    json_t *value = eg__json_parse(text, strlen(text), eg_mutable_key(choice));
    if (value == NULL)
        return NULL;
    eg_decisions *decisions = eg_decisions_new();
    if (decisions != NULL && eg__decision_parse(choice, value, decisions) != EG_OK) {
        eg_decisions_free(decisions);
        decisions = NULL;
    }
    json_decref(value);
    return decisions;
}

eg_status eg__choice_take_fixed(eg_module *choice)
{
    const char *text = *fixed_text(choice);
    *fixed_decisions(choice) = text != NULL ? read_fixed(choice, text) : NULL;
    return text == NULL || *fixed_decisions(choice) != NULL ? EG_OK : eg_error_last()->code;
}

void eg__choice_forget(eg_module *choice)
{
    eg_decisions_free(*fixed_decisions(choice));
    *fixed_decisions(choice) = NULL;
}

void eg__choice_fix(eg_module *choice, char *value)
{
    eg__choice_forget(choice);
    free((char *)(uintptr_t)*fixed_text(choice));
    *fixed_text(choice) = value;
}

static const eg_decision *fixed_decision(eg_module *choice)
{
    const char *key = eg_mutable_key(choice), *text = *fixed_text(choice);
    if (text == NULL) {
        eg_fail(EG_EINVAL, "%s choice '%s' has no mutator: attach one to the model first, or apply an architecture",
                eg__kind_word(choice), key);
        return NULL;
    }
    if (*fixed_decisions(choice) == NULL)
        *fixed_decisions(choice) = read_fixed(choice, text);
    return eg_decisions_get(*fixed_decisions(choice), key);
}

const eg_decision *eg__choice_decision(eg_module *choice)
{
    eg_mutator *mutator = eg_mutable_mutator(choice);
    if (mutator == NULL)
        return fixed_decision(choice);
    const char *key = eg_mutable_key(choice);
    const eg_decision *decision = eg_decisions_get(mutator->current, key);
    if (decision == NULL)
        eg_fail(EG_EINVAL, "%s choice '%s': mutator '%s' has no decision for it%s", eg__kind_word(choice), key,
                mutator->cls->name, eg__decisions_size(mutator->current) == 0 ? " (forgot eg_mutator_reset?)" : "");
    return decision;
}

/* ---- forward ---- */

static eg_tensor *ask(eg_mutator *mutator, eg_module *choice, eg_tensor *const *in, size_t n_in, eg_tensor **mask)
{
    return is_layer(choice) ? EG__MUTATOR_FN(mutator, on_forward_layer_choice)(mutator, choice, in, n_in, mask)
                            : EG__MUTATOR_FN(mutator, on_forward_input_choice)(mutator, choice, in, n_in, mask);
}

eg_tensor *eg__choice_forward(eg_module *choice, eg_tensor *const *in, size_t n_in)
{
    eg_tensor *mask = NULL, **wanted = returns_mask(choice) ? &mask : NULL, *out = NULL;
    eg_mutator *mutator = eg_mutable_mutator(choice);
    if (mutator != NULL) {
        out = ask(mutator, choice, in, n_in, wanted);
    } else {
        const eg_decision *decision = fixed_decision(choice);
        out = decision != NULL ? eg__decision_follow(decision, choice, in, n_in, wanted) : NULL;
    }
    if (out == NULL || wanted == NULL)
        return out;
    return eg_tuple(choice->ctx, (eg_tensor *const[]){out, mask}, 2);
}
