/*
 * nas/export.c - what a mutator has decided, as an architecture or as JSON, and back.
 */
#include "nas/internal.h"

#include <stdlib.h>
#include <string.h>

static eg_status check_no_more(const eg_mutator *mutator, const eg_decisions *decisions)
{
    for (size_t i = 0; i < eg__decisions_size(decisions); i++) {
        const char *key = eg__decisions_key(decisions, i);
        const eg_module *choice = eg__mutator_find(mutator, key);
        EG_CHECK(choice != NULL && eg__is_choice(choice), EG_EINVAL, "there is a decision for '%s', which is no choice of the model",
                 key);
    }
    return EG_OK;
}

static eg_status export_choices(const eg_mutator *mutator, const eg_decisions *decisions, eg_arch *arch)
{
    for (size_t i = 0; i < mutator->n_mutables; i++) {
        const eg_module *choice = mutator->mutables[i];
        if (!eg__is_choice(choice))
            continue;
        const char *key = eg_mutable_key(choice);
        const eg_decision *decision = eg_decisions_get(decisions, key);
        EG_CHECK(decision != NULL, EG_EINVAL, "there is no decision for '%s'", key);
        EG_TRY(eg__arch_put(arch, key, eg__decision_json(choice, decision)));
    }
    return EG_OK;
}

eg_arch *eg_mutator_export_decisions(eg_mutator *mutator, const eg_decisions *decisions)
{
    if (mutator == NULL || decisions == NULL)
        return eg__null(__func__, mutator == NULL ? "mutator" : "decisions");
    eg_arch *arch = eg_arch_new();
    if (arch == NULL)
        return NULL;
    if (check_no_more(mutator, decisions) == EG_OK && export_choices(mutator, decisions, arch) == EG_OK)
        return arch;
    eg_arch_free(arch);
    return NULL;
}

eg_arch *eg_mutator_export(eg_mutator *mutator)
{
    if (mutator == NULL)
        return eg__null(__func__, "mutator");
    eg_decisions *decisions = eg_decisions_new();
    eg_arch *arch = NULL;
    if (decisions != NULL && EG__MUTATOR_FN(mutator, sample_final)(mutator, decisions) == EG_OK)
        arch = eg_mutator_export_decisions(mutator, decisions);
    eg_decisions_free(decisions);
    return arch;
}

eg_status eg_mutator_set_arch(eg_mutator *mutator, const eg_arch *arch)
{
    EG_CHECK(mutator != NULL && arch != NULL, EG_EINVAL, "no mutator or architecture was given");
    eg_decisions *decisions = eg_decisions_new();
    if (decisions == NULL)
        return EG_ENOMEM;
    eg_status status = eg__decisions_from_arch(mutator->mutables, mutator->n_mutables, arch, true, decisions);
    if (status == EG_OK)
        eg__mutator_follow(mutator, decisions);
    else
        eg_decisions_free(decisions);
    return status;
}

/* ---- JSON that is only looked at ---- */

/* The text of `json` (taken over), which may be NULL for want of memory. */
static char *text_of(json_t *json, eg_status status)
{
    if (json == NULL && status == EG_OK)
        status = eg_fail(EG_ENOMEM, "out of memory");
    char *text = status == EG_OK ? eg__json_text(json) : NULL;
    json_decref(json);
    return text;
}

static eg_status put(json_t *object, const char *key, json_t *value)
{
    EG_CHECK(json_object_set_new(object, key, value) == 0, EG_EINVAL, "cannot write '%s' as JSON: no valid UTF-8, a number that is "
             "not finite, or out of memory", key);
    return EG_OK;
}

/* A list of booleans or of weights. */
static json_t *raw_json(const eg_decision *decision)
{
    double *weights = eg__calloc(decision->n + 1, sizeof(*weights));
    json_t *list = weights != NULL && eg__decision_read(decision, weights) == EG_OK ? json_array() : NULL;
    for (size_t i = 0; i < decision->n && list != NULL; i++) {
        json_t *item = decision->is_bool ? json_boolean(weights[i] != 0) : json_real(weights[i]);
        if (json_array_append_new(list, item) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    free(weights);
    return list;
}

char *eg_mutator_status(eg_mutator *mutator)
{
    if (mutator == NULL)
        return eg__null(__func__, "mutator");
    json_t *object = json_object();
    eg_status status = EG_OK;
    for (size_t i = 0; i < eg__decisions_size(mutator->current) && status == EG_OK; i++) {
        const char *key = eg__decisions_key(mutator->current, i);
        status = put(object, key, raw_json(eg_decisions_get(mutator->current, key)));
    }
    return text_of(object, status);
}

static json_t *names_json(const eg_module *choice)
{
    json_t *list = json_array();
    for (size_t i = 0; i < eg__choice_size(choice) && list != NULL; i++) {
        if (json_array_append_new(list, json_string(eg__choice_name(choice, i))) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *choice_json(const eg_module *choice)
{
    if (eg_is_a(choice, &eg_layer_choice_class))
        return json_pack("{s:s, s:o}", "_type", "layer_choice", "_value", names_json(choice));
    int64_t n_chosen = eg_input_choice_n_chosen(choice);
    json_t *number = n_chosen >= 0 ? json_integer(n_chosen) : json_null();
    return json_pack("{s:s, s:{s:o, s:o}}", "_type", "input_choice", "_value", "candidates", names_json(choice), "n_chosen", number);
}

char *eg_search_space_text(eg_module *model)
{
    if (model == NULL)
        return eg__null(__func__, "model");
    eg__mutables mutables;
    if (eg__mutables_find(model, true, &mutables) != EG_OK)
        return NULL;
    json_t *object = json_object();
    eg_status status = EG_OK;
    for (size_t i = 0; i < mutables.n_unique && status == EG_OK; i++) {
        if (eg__is_choice(mutables.unique[i]))
            status = put(object, eg_mutable_key(mutables.unique[i]), choice_json(mutables.unique[i]));
    }
    eg__mutables_free(&mutables, model);
    return text_of(object, status);
}
