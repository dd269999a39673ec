/*
 * nas/choice_edit.c - candidates of a layer choice by name and range, exchanged and removed; inputs of an input choice
 * by name.
 */
#include "nas/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- layer choices ---- */

static eg_status check_layer_choice(const eg_module *choice)
{
    if (!eg_is_a(choice, &eg_layer_choice_class)) {
        eg__null("eg_layer_choice", "no layer choice was given");
        return eg_error_last()->code;
    }
    return EG_OK;
}

/* Fails with the names that are nearest. `names` has room for all of the choice. */
static eg_status fail_no_candidate(const eg_module *choice, const char *name, const char **names)
{
    size_t n = eg_layer_choice_size(choice);
    char near[200];
    for (size_t i = 0; i < n; i++)
        names[i] = eg_layer_choice_name(choice, i);
    eg_closest_name(name, names, n, near, sizeof(near));
    return eg_fail(EG_ENOENT, "layer choice '%s' has no candidate '%s'%s%s%s", eg_mutable_key(choice), name,
                   *near != '\0' ? " (did you mean " : "", near, *near != '\0' ? "?)" : "");
}

eg_status eg_layer_choice_index(const eg_module *choice, const char *name, size_t *index)
{
    EG_TRY(check_layer_choice(choice));
    EG_CHECK(name != NULL && index != NULL, EG_EINVAL, "no name or place for the index was given");
    size_t n = eg_layer_choice_size(choice);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(eg_layer_choice_name(choice, i), name) == 0) {
            *index = i;
            return EG_OK;
        }
    }
    const char **names = eg__calloc(n + 1, sizeof(*names));
    eg_status status = names != NULL ? fail_no_candidate(choice, name, names) : EG_ENOMEM;
    free(names);
    return status;
}

eg_status eg_layer_choice_set(eg_module *choice, size_t i, eg_module *candidate)
{
    const char *name = check_layer_choice(choice) == EG_OK ? eg_layer_choice_name(choice, i) : NULL;
    if (name != NULL)
        return eg_module_set_child(choice, name, candidate);
    eg_module_release(candidate);
    return eg_error_last()->code;
}

static eg_status check_range(const eg_module *choice, size_t begin, size_t end)
{
    EG_TRY(check_layer_choice(choice));
    size_t n = eg_layer_choice_size(choice);
    EG_CHECK(begin <= end && end <= n, EG_EINVAL,
             "layer choice '%s' has %zu candidates: %zu to %zu is no range of them", eg_mutable_key(choice), n, begin,
             end);
    return EG_OK;
}

eg_status eg_layer_choice_slice(const eg_module *choice, size_t begin, size_t end, eg_module **out)
{
    EG_TRY(check_range(choice, begin, end));
    EG_CHECK(out != NULL || begin == end, EG_EINVAL, "no place for the candidates was given");
    for (size_t i = begin; i < end; i++)
        out[i - begin] = eg_layer_choice_at(choice, i);
    return EG_OK;
}

eg_status eg_layer_choice_remove(eg_module *choice, size_t begin, size_t end)
{
    EG_TRY(check_range(choice, begin, end));
    const char *key = eg_mutable_key(choice);
    const eg_mutator *mutator = eg_mutable_mutator(choice);
    EG_CHECK(mutator == NULL, EG_EINVAL,
             "layer choice '%s': its %s counts on its %zu candidates: detach it before some are removed", key,
             mutator->cls->name, eg_layer_choice_size(choice));
    EG_CHECK(((eg_layer_choice *)choice)->fixed == NULL, EG_EINVAL,
             "layer choice '%s' follows %s, which may count candidates: none can be removed", key,
             ((eg_layer_choice *)choice)->fixed);
    EG_CHECK(end - begin < eg_layer_choice_size(choice), EG_EINVAL,
             "layer choice '%s' would have no candidates left, expected at least one", key);
    for (size_t n = end - begin; n > 0; n--)
        EG_TRY(eg_module_remove_child(choice, eg_layer_choice_name(choice, begin)));
    return EG_OK;
}

/* ---- input choices ---- */

/* The given input that a source asks for: the first of its name that no source before has taken. n when there is none.
 */
static size_t find_input(const char *source, const char *const *names, size_t n, const bool *taken)
{
    size_t i = 0;
    while (i < n && (taken[i] || names[i] == NULL || strcmp(names[i], source) != 0))
        i++;
    return i;
}

/* Puts the inputs into the order of the sources. */
static eg_status sort_inputs(const eg_module *choice, const char *const *names, eg_tensor *const *in, size_t n,
                             bool *taken, eg_tensor **out)
{
    const char *key = eg_mutable_key(choice);
    for (size_t i = 0; i < eg_input_choice_size(choice); i++) {
        const char *source = eg_input_choice_source(choice, i);
        size_t k = find_input(source, names, n, taken);
        EG_CHECK(k < n, EG_EINVAL, "input choice '%s': input %zu, from '%s', is not given", key, i, source);
        taken[k] = true;
        out[i] = in[k];
    }
    for (size_t k = 0; k < n; k++)
        EG_CHECK(taken[k], EG_EINVAL, "input choice '%s' was given '%s', which is none of its sources or one too many",
                 key, names[k] != NULL ? names[k] : "NULL");
    return EG_OK;
}

eg_tensor *eg_input_choice_call(eg_module *choice, const char *const *names, eg_tensor *const *in, size_t n)
{
    if (!eg_is_a(choice, &eg_input_choice_class))
        return eg__null(__func__, "no input choice was given");
    if (names == NULL || in == NULL)
        return eg__null(__func__, names == NULL ? "list of names" : "list of inputs");
    size_t size = eg_input_choice_size(choice);
    bool *taken = eg__calloc(n + 1, sizeof(*taken));
    eg_tensor **sorted = eg__calloc(size + 1, sizeof(eg_tensor *)), *out = NULL;
    if (taken != NULL && sorted != NULL && sort_inputs(choice, names, in, n, taken, sorted) == EG_OK)
        out = eg_module_call(choice, sorted, size);
    free(taken);
    free(sorted);
    return out;
}
