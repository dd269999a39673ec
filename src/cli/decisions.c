/*
 * Decisions in the words of people; files and --json keep the form of architectures.
 */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

json_t *mutables_of(eg_module *model)
{
    char *text = eg_search_space_text(model);
    json_t *space = text ? json_loads(text, 0, NULL) : NULL, *list = json_array();
    const char *key;
    json_t *entry;
    json_object_foreach(space, key, entry)
    {
        json_t *value = json_object_get(entry, "_value");
        json_t *item = json_pack("{s:s, s:O, s:O}", "key", key, "type", json_object_get(entry, "_type"), "candidates",
                                 json_is_object(value) ? json_object_get(value, "candidates") : value);
        if (json_is_object(value))
            json_object_set(item, "n_chosen", json_object_get(value, "n_chosen"));
        json_array_append_new(list, item);
    }
    eg_free(text);
    if (!space) {
        json_decref(list);
        list = NULL;
    }
    json_decref(space);
    return list;
}

static const json_t *find_mutable(const json_t *mutables, const char *key)
{
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)(uintptr_t)mutables, i, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "key")), key) == 0)
            return item;
    }
    return NULL;
}

/* Whether a choice only says if its one input, which has no name, is taken. */
static bool is_yes_or_no(const json_t *mutable)
{
    const json_t *candidates = json_object_get(mutable, "candidates"), *only = json_array_get(candidates, 0);
    return json_is_string(json_object_get(mutable, "type")) &&
           strcmp(json_string_value(json_object_get(mutable, "type")), "input_choice") == 0 &&
           json_array_size(candidates) == 1 && json_is_string(only) && !*json_string_value(only);
}

char *candidates_text(const json_t *mutable)
{
    return is_yes_or_no(mutable) ? strdup("yes or no")
                                 : json_dumps(json_object_get(mutable, "candidates"), JSON_ENCODE_ANY);
}

char *decision_text(const json_t *mutables, const char *key, const json_t *value)
{
    bool none = json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0);
    if (!value)
        return strdup("-");
    if (is_yes_or_no(find_mutable(mutables, key)) && (none || json_is_string(value)))
        return strdup(none ? "no" : "yes");
    if (none)
        return strdup("none");
    return json_is_string(value) && *json_string_value(value)
               ? strdup(json_string_value(value))
               : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(4));
}
