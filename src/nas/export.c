/*
 * nas/export.c - what a mutator has decided, as an architecture or as JSON, and back.
 */
#include "nas/internal.h"

#include <math.h>
#include <stdlib.h>

static eg_status check_no_more(const eg_mutator *mutator, const eg_decisions *decisions)
{
    for (size_t i = 0; i < eg__decisions_size(decisions); i++) {
        const char *key = eg__decisions_key(decisions, i);
        const eg_module *choice = eg__mutator_find(mutator, key);
        EG_CHECK(choice != NULL && eg__is_choice(choice), EG_EINVAL,
                 "there is a decision for '%s', which is no choice of the model", key);
    }
    return EG_OK;
}

static eg_status put_active(const eg_mutator *mutator, const eg_decisions *decisions, const bool *active, eg_arch *arch)
{
    for (size_t i = 0; i < mutator->n_mutables; i++) {
        const eg_module *choice = mutator->mutables[i];
        if (!active[i])
            continue;
        const char *key = eg_mutable_key(choice);
        const eg_decision *decision = eg_decisions_get(decisions, key);
        EG_CHECK(decision != NULL, EG_EINVAL, "there is no decision for '%s'", key);
        EG_TRY(eg__arch_put(arch, key, eg__decision_json(choice, decision)));
    }
    return EG_OK;
}

static eg_status export_choices(const eg_mutator *mutator, const eg_decisions *decisions, eg_arch *arch)
{
    bool *active = eg__calloc(mutator->n_mutables + 1, sizeof(*active));
    eg_status status = active != NULL ? eg__gates_active(mutator->gates, decisions, active) : EG_ENOMEM;
    if (status == EG_OK)
        status = put_active(mutator, decisions, active, arch);
    free(active);
    return status;
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
    if (decisions != NULL && eg__mutator_sample(mutator, EG__MUTATOR_FN(mutator, sample_final), decisions) == EG_OK)
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
    eg_status status =
        eg__decisions_from_arch(mutator->mutables, mutator->n_mutables, mutator->gates, arch, true, decisions);
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

/* `value` is taken over; NULL: its failure is kept. */
static eg_status put(json_t *object, const char *key, json_t *value)
{
    if (value == NULL)
        return eg_error_last()->code;
    if (!eg__is_utf8(key)) {
        json_decref(value);
        return eg_fail(EG_EINVAL, "cannot write '%s' as JSON: it is no valid UTF-8", key);
    }
    EG_CHECK(json_object_set_new(object, key, value) == 0, EG_ENOMEM, "out of memory: cannot write '%s' as JSON", key);
    return EG_OK;
}

/* Adds to a list; false with the failure recorded. */
static bool append(json_t *list, json_t *item)
{
    if (json_array_append_new(list, item) == 0)
        return true;
    eg_fail(EG_ENOMEM, "out of memory");
    return false;
}

static bool append_weight(json_t *list, const eg_decision *decision, double weight)
{
    if (isfinite(weight))
        return append(list, decision->is_bool ? json_boolean(weight != 0) : json_real(weight));
    eg_fail(EG_EINVAL, "a weight is not finite");
    return false;
}

/* A list of booleans or of weights. */
static json_t *raw_json(const eg_decision *decision)
{
    double *weights = eg__calloc(decision->n + 1, sizeof(*weights));
    bool read = weights != NULL && eg__decision_read(decision, weights) == EG_OK;
    json_t *list = read ? json_array() : NULL;
    if (read && list == NULL)
        eg_fail(EG_ENOMEM, "out of memory");
    for (size_t i = 0; i < decision->n && list != NULL; i++) {
        if (!append_weight(list, decision, weights[i])) {
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
        if (json_array_append_new(list, eg__candidate_json(choice, i)) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *choice_json(const eg_module *choice)
{
    eg__kind kind = eg__kind_of(choice);
    for (size_t i = 0; kind != EG__VALUES && i < eg__choice_size(choice); i++) {
        const char *name = eg__choice_name(choice, i);
        if (!eg__is_utf8(name)) {
            eg_fail(EG_EINVAL, "cannot write '%s' as JSON: it is no valid UTF-8", name);
            return NULL;
        }
    }
    int64_t n_chosen = kind == EG__INPUTS ? eg_input_choice_n_chosen(choice) : -1;
    json_t *names = names_json(choice), *number = n_chosen >= 0 ? json_integer(n_chosen) : json_null();
    json_t *json = kind != EG__INPUTS ? json_pack("{s:s, s:O}", "_type",
                                                  kind == EG__LAYERS ? "layer_choice" : "value_choice", "_value", names)
                                      : json_pack("{s:s, s:{s:O, s:O}}", "_type", "input_choice", "_value",
                                                  "candidates", names, "n_chosen", number);
    json_decref(names);
    json_decref(number);
    if (json == NULL)
        eg_fail(EG_ENOMEM, "out of memory");
    return json;
}

/* A choice, with the condition under which it counts. */
static eg_status put_choice(json_t *object, const eg__mutables *mutables, size_t i)
{
    const eg_module *choice = mutables->unique[i];
    json_t *json = choice_json(choice), *when = NULL;
    EG_TRY(put(object, eg_mutable_key(choice), json));
    EG_TRY(eg__gates_when(mutables->gates, i, &when));
    EG_CHECK(when == NULL || json_object_set_new(json, "_when", when) == 0, EG_ENOMEM, "out of memory");
    return EG_OK;
}

char *eg_search_space_text(eg_module *model)
{
    if (model == NULL)
        return eg__null(__func__, "model");
    eg__mutables mutables;
    if (eg__mutables_find(model, &mutables) != EG_OK)
        return NULL;
    json_t *object = json_object();
    eg_status status = EG_OK;
    for (size_t i = 0; i < mutables.n_unique && status == EG_OK; i++) {
        if (eg__is_choice(mutables.unique[i]))
            status = put_choice(object, &mutables, i);
    }
    eg__mutables_free(&mutables, model);
    return text_of(object, status);
}
