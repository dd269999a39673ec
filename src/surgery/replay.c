/*
 * Recipes read, and whether they are for a model and do to it what they say.
 */
#include "surgery/recipe.h"

#include <stdlib.h>
#include <string.h>

typedef struct recipe {
    json_t *json; /* owned */
    const char *before, *after;
    const json_t *steps;
    eg_shape *no_inputs; /* what the surgery had, while it has the recipe's; NULL = it has its own */
} recipe;

static eg_status read_recipe(const char *text, size_t size, recipe *out)
{
    out->json = eg__json_parse(text, size, "recipe");
    if (out->json == NULL)
        return eg_error_last()->code;
    const char *format = json_string_value(json_object_get(out->json, "format"));
    const json_t *version = json_object_get(out->json, "version");
    EG_CHECK(format != NULL && strcmp(format, EG__RECIPE_FORMAT) == 0, EG_EFORMAT,
             "this is no recipe: 'format' is not '%s'", EG__RECIPE_FORMAT);
    EG_CHECK(json_integer_value(version) == EG__RECIPE_VERSION, EG_EFORMAT, "a recipe of version %lld, not %d",
             (long long)json_integer_value(version), EG__RECIPE_VERSION);
    out->before = json_string_value(json_object_get(out->json, "before"));
    out->after = json_string_value(json_object_get(out->json, "after"));
    out->steps = json_object_get(out->json, "steps");
    EG_CHECK(json_is_array(out->steps) && json_array_size(out->steps) <= EG__RECIPE_MAX_STEPS, EG_EFORMAT,
             "a recipe has 'steps', a list of up to %d", EG__RECIPE_MAX_STEPS);
    return EG_OK;
}

static eg_status structure_of(void *payload, eg_module *root)
{
    eg__inventory v;
    eg_status status = eg__inventory_take(&v, root);
    if (status == EG_OK)
        status = eg__structure_text(&v, payload);
    eg__inventory_free(&v);
    return status;
}

/* Whether a recipe says another structure. Those that people write say none. */
static bool is_other(const char *said, const char *structure)
{
    return said != NULL && strcmp(said, structure) != 0;
}

static eg_status read_shape(const json_t *list, eg_shape *shape)
{
    *shape = (eg_shape){.ndim = (int)json_array_size(list)};
    EG_CHECK(json_is_array(list) && json_array_size(list) <= EG_MAX_DIMS, EG_EFORMAT,
             "'inputs' is no list of shapes of up to %d dimensions", EG_MAX_DIMS);
    for (int d = 0; d < shape->ndim; d++) {
        const json_t *size = json_array_get(list, (size_t)d);
        EG_CHECK(json_is_integer(size) && json_integer_value(size) > 0, EG_EFORMAT, "a size in 'inputs' is none");
        shape->dims[d] = json_integer_value(size);
    }
    return EG_OK;
}

static eg_status read_inputs(const json_t *list, eg_shape **inputs, size_t *n)
{
    enum { MOST = 64 };
    *n = json_array_size(list);
    EG_CHECK(json_is_array(list) && *n <= MOST, EG_EFORMAT, "'inputs' is no list of up to %d shapes", MOST);
    *inputs = eg__calloc(*n + 1, sizeof(**inputs));
    eg_status status = *inputs != NULL ? EG_OK : EG_ENOMEM;
    for (size_t i = 0; i < *n && status == EG_OK; i++)
        status = read_shape(json_array_get(list, i), &(*inputs)[i]);
    if (status != EG_OK)
        free(*inputs);
    return status;
}

/* The shapes that the recipe was made with, for a surgery that has none. */
static eg_status take_inputs(eg_surgery *s, recipe *r)
{
    const json_t *list = json_object_get(r->json, "inputs");
    eg_shape *inputs;
    size_t n;
    if (s->n_inputs > 0 || list == NULL)
        return EG_OK;
    EG_TRY(read_inputs(list, &inputs, &n));
    r->no_inputs = s->inputs;
    s->inputs = inputs;
    s->n_inputs = n;
    return EG_OK;
}

static void give_inputs_back(eg_surgery *s, recipe *r)
{
    if (r->no_inputs == NULL)
        return;
    free(s->inputs);
    s->inputs = r->no_inputs;
    s->n_inputs = 0;
    r->no_inputs = NULL;
}

static eg_status replay(eg_surgery *s, recipe *r, bool any_model)
{
    char structure[EG__STRUCTURE_SIZE];
    EG_TRY(eg_surgery_look(s, structure_of, structure));
    bool freezes = r->before != NULL && !is_other(r->after, r->before); /* which no structure shows */
    if (r->after != NULL && !is_other(r->after, structure) && !freezes)
        return eg_surgery_note(s, "the model is as the recipe makes it: nothing is to be done");
    EG_CHECK(any_model || !is_other(r->before, structure), EG_EINVAL,
             "the recipe is for a model of structure %s, this one is %s", r->before, structure);
    EG_TRY(take_inputs(s, r));
    EG_TRY(eg__replay_steps(s, r->steps));
    EG_TRY(eg_surgery_look(s, structure_of, structure));
    if (!is_other(r->after, structure))
        return EG_OK;
    EG_CHECK(any_model, EG_EINVAL, "the recipe has made a model of structure %s, not %s", structure, r->after);
    return eg_surgery_note(s, "the recipe has made a model of structure %s, on its own it makes %s", structure,
                           r->after);
}

static eg_status replay_text(eg_surgery *s, const char *text, size_t size, bool any_model)
{
    recipe r = {0};
    size_t edits = s->n_edits, replacements = s->n_replacements, derivations = s->n_derivations, notes = s->n_notes;
    eg_status status = read_recipe(text, size, &r);
    if (status == EG_OK)
        status = replay(s, &r, any_model);
    if (status != EG_OK) {
        eg__surgery_cut(s, edits, replacements, derivations);
        eg__notes_cut(s, notes);
        give_inputs_back(s, &r);
    }
    free(r.no_inputs);
    json_decref(r.json);
    return status;
}

eg_status eg_surgery_replay(eg_surgery *s, const char *json, bool any_model)
{
    EG_CHECK(s != NULL && json != NULL, EG_EINVAL, "surgery or recipe is NULL");
    return replay_text(s, json, strlen(json), any_model);
}

eg_status eg_surgery_load_recipe(eg_surgery *s, const char *path, bool any_model)
{
    char *text;
    size_t size;
    EG_CHECK(s != NULL && path != NULL, EG_EINVAL, "surgery or path is NULL");
    EG_TRY(eg__file_read(path, EG__JSON_MAX_FILE, &text, &size));
    eg_status status = replay_text(s, text, size, any_model);
    eg_free(text);
    return status == EG_OK ? EG_OK : eg__fail_prefix(status, "'%s'", path);
}

eg_status eg_module_apply_recipe(eg_module *model, eg_module **root, const char *json)
{
    eg_surgery *s = eg_surgery_new(model, .root = root);
    if (s == NULL)
        return eg_error_last()->code;
    eg_status status = eg_surgery_replay(s, json, false);
    if (status == EG_OK)
        status = eg_surgery_commit(s);
    eg_surgery_free(s);
    return status;
}
