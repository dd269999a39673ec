/*
 * Recipes: a surgery as JSON. Methods are said by their options; what a policy in C has put in is said by itself, with
 * what of it the model had before.
 *
 * The plan is gone through from its beginning, with the model as it was at each step, so that all paths are those of
 * that moment.
 */
#include "surgery/recipe.h"

#include <stdlib.h>
#include <string.h>

typedef struct writer {
    eg_surgery *s;
    json_t *steps;
    size_t at, replacement, step; /* edits that are in place; the next of each */
    eg__ptr_map known;            /* modules and tensors that the model has, or had */
    eg__ptr_map several;          /* modules that may stand in several places */
    eg__inventory now;            /* of the model with `now_at` edits, made when it is needed */
    size_t now_at;
} writer;

/* ---- what the model has at this step ---- */

static eg_status know(writer *w, const eg__inventory *v)
{
    for (size_t i = 0; i < v->n; i++) {
        EG_TRY(eg__ptr_map_put(&w->known, v->items[i].module, NULL));
        if (v->items[i].same_as != NULL)
            EG_TRY(eg__ptr_map_put(&w->several, v->items[i].module, NULL));
    }
    for (size_t i = 0; i < v->n_tensors; i++)
        EG_TRY(eg__ptr_map_put(&w->known, v->tensors[i].tensor, NULL));
    return EG_OK;
}

static eg_status take_now(writer *w)
{
    if (w->now_at == w->at)
        return EG_OK;
    eg__inventory_free(&w->now);
    w->now_at = SIZE_MAX;
    EG_TRY(eg__inventory_take(&w->now, w->s->root));
    w->now_at = w->at;
    return EG_OK;
}

/* ---- a module that was put in ---- */

/* The old and the new module of a step. */
typedef struct exchanged {
    writer *w;
    const eg__replacement *r;
    const char *path; /* of the old one */
    eg__inventory old, fresh;
} exchanged;

/* "a.b" below `path`. */
static json_t *joined(const char *path, const char *below)
{
    char *text = eg__format("%s%s%s", path, *path == '\0' || *below == '\0' ? "" : ".", below);
    json_t *json = text != NULL ? eg__json_text_of(text) : NULL;
    eg_free(text);
    return json;
}

/* Where the model has a module of the new one, or NULL; *failed where that cannot be said. */
static json_t *place_of_module(exchanged *x, const eg_module *m, eg_status *status)
{
    const eg__item *item = eg__inventory_of(&x->old, m);
    if (item != NULL)
        return joined(x->path, item->path);
    if (eg__ptr_map_find(&x->w->known, m) == NULL || (*status = take_now(x->w)) != EG_OK)
        return NULL;
    item = eg__inventory_of(&x->w->now, m);
    return item != NULL ? eg__json_text_of(item->path) : NULL;
}

static json_t *place_of_tensor(exchanged *x, const eg_tensor *t, eg_status *status)
{
    const eg__tensor_item *item = eg__inventory_tensor(&x->old, t);
    if (item != NULL)
        return joined(x->path, item->key);
    if (eg__ptr_map_find(&x->w->known, t) == NULL || (*status = take_now(x->w)) != EG_OK)
        return NULL;
    item = eg__inventory_tensor(&x->w->now, t);
    return item != NULL ? eg__json_text_of(item->key) : NULL;
}

static bool is_below(const eg__inventory *v, const eg__item *item, const bool *marks)
{
    bool below = false;
    for (size_t p = item->parent; p != SIZE_MAX && !below; p = v->items[p].parent)
        below = marks[p];
    return below;
}

/* The modules of the new one that are the model's own, the highest ones. */
static eg_status write_modules(exchanged *x, json_t *map, bool *marks)
{
    for (size_t i = 0; i < x->fresh.n; i++) {
        const eg__item *item = &x->fresh.items[i];
        if (is_below(&x->fresh, item, marks))
            continue;
        eg_status status = EG_OK;
        json_t *place = place_of_module(x, item->module, &status);
        EG_TRY(status);
        marks[i] = place != NULL;
        if (place == NULL)
            continue;
        EG_TRY(eg__json_put(map, item->path, place));
        EG_TRY(eg__ptr_map_put(&x->w->several, item->module, NULL));
    }
    return EG_OK;
}

/* Whether a tensor is in one of those. */
static bool is_in_marked(const exchanged *x, const char *key, const bool *marks)
{
    for (size_t i = 0; i < x->fresh.n; i++) {
        if (!marks[i])
            continue;
        const char *path = x->fresh.items[i].path;
        size_t len = strlen(path);
        if (len == 0 || (strncmp(key, path, len) == 0 && key[len] == '.'))
            return true;
    }
    return false;
}

static eg_status write_tensors(exchanged *x, json_t *map, const bool *marks)
{
    for (size_t i = 0; i < x->fresh.n_tensors; i++) {
        const eg__tensor_item *item = &x->fresh.tensors[i];
        if (is_in_marked(x, item->key, marks))
            continue;
        eg_status status = EG_OK;
        json_t *place = place_of_tensor(x, item->tensor, &status);
        EG_TRY(status);
        if (place != NULL)
            EG_TRY(eg__json_put(map, item->key, place));
    }
    return EG_OK;
}

/* A map that is empty is not written. */
static eg_status put_map(json_t *step, const char *name, json_t *map)
{
    return json_object_size(map) > 0 ? eg__json_put(step, name, json_incref(map)) : EG_OK;
}

static eg_status write_maps(exchanged *x, json_t *step, json_t *modules, json_t *tensors, bool *marks)
{
    if (modules == NULL || tensors == NULL || marks == NULL)
        return eg_fail(EG_ENOMEM, "out of memory: a recipe");
    EG_TRY(write_modules(x, modules, marks));
    EG_TRY(write_tensors(x, tensors, marks));
    if (!marks[0]) {
        json_t *json = eg__module_to_json(x->r->fresh, false);
        if (json == NULL)
            return eg__fail_prefix(eg_error_last()->code, "what stands at '%s' cannot be said in a recipe", x->path);
        EG_TRY(eg__json_put(step, "module", json));
    }
    EG_TRY(put_map(step, "modules", modules));
    return put_map(step, "tensors", tensors);
}

static eg_status write_exchanged(exchanged *x, json_t *step)
{
    EG_TRY(eg__inventory_take(&x->old, x->r->old));
    EG_TRY(eg__inventory_take(&x->fresh, x->r->fresh));
    json_t *modules = json_object(), *tensors = json_object();
    bool *marks = eg__calloc(x->fresh.n, sizeof(*marks));
    eg_status status = write_maps(x, step, modules, tensors, marks);
    json_decref(modules);
    json_decref(tensors);
    free(marks);
    return status == EG_OK ? know(x->w, &x->fresh) : status;
}

/* The path that the plan was made with may have gone with another replacement. */
static eg_status path_now(writer *w, size_t i, const char **path)
{
    const eg_replaced *r = eg_surgery_at(w->s, i);
    if (r == NULL)
        return EG_ENOMEM;
    eg__error_mark mark;
    eg__error_save(&mark);
    *path = r->path;
    if (eg_module_find(w->s->root, r->path) == r->old)
        return EG_OK;
    eg__error_restore(&mark);
    EG_TRY(take_now(w));
    const eg__item *item = eg__inventory_of(&w->now, r->old);
    EG_CHECK(item != NULL, EG_EINTERNAL, "replacement %zu is of a module that was not in the model", i);
    *path = item->path;
    return EG_OK;
}

/* ---- the places of a module: policies that are asked together know of none in what they make ---- */

/* The path of what an edit changes; NULL with EG_OK where that is not in the model. */
static json_t *place_of_edit(writer *w, const eg__edit *edit)
{
    if (edit->kind == EG__EDIT_PLACE)
        return edit->owner == &w->s->root ? json_string("") : json_null();
    const eg_module *owner = edit->owner;
    const eg__item *item = eg__inventory_of(&w->now, owner);
    return item != NULL ? joined(item->path, owner->slots[edit->slot].name) : json_null();
}

static eg_status count_places(writer *w, const eg_module *m, size_t *n)
{
    eg__model_graph graph = {0};
    uint32_t vertex = 0;
    eg_status status = eg__model_graph_build(&graph, w->s->root);
    if (status == EG_OK)
        status = eg__model_graph_find(&graph, m, &vertex);
    *n = status == EG_OK && vertex != EG__NO_VERTEX ? graph.vertices[vertex].n_places + (vertex == 0) : 0;
    eg__model_graph_free(&graph);
    return status;
}

/* Writes which places of the old module are changed, unless these are all. */
static eg_status write_places(writer *w, const eg__replacement *r, size_t end, json_t *step)
{
    size_t n;
    if (eg__ptr_map_find(&w->several, r->old) == NULL)
        return EG_OK;
    EG_TRY(eg__ptr_map_put(&w->several, r->fresh, NULL));
    json_t *list = json_array();
    eg_status status = take_now(w);
    for (size_t i = w->at; i < end && status == EG_OK; i++) {
        json_t *place = place_of_edit(w, &w->s->edits[i]);
        if (json_is_null(place))
            continue;
        list = eg__json_append(list, place);
    }
    if (status == EG_OK)
        status = count_places(w, r->old, &n);
    if (status == EG_OK && list == NULL)
        status = eg_fail(EG_ENOMEM, "out of memory: a recipe");
    if (status == EG_OK && json_array_size(list) != n)
        status = eg__json_put(step, "places", json_incref(list));
    json_decref(list);
    return status;
}

static eg_status write_replacement(writer *w, size_t end, json_t *step)
{
    const eg__replacement *r = &w->s->replacements[w->replacement];
    exchanged x = {.w = w, .r = r};
    EG_TRY(path_now(w, w->replacement, &x.path));
    EG_TRY(eg__json_put(step, "replace", eg__json_text_of(x.path)));
    if (r->policy > 0)
        EG_TRY(eg__json_put(step, "why", eg__json_text_of(w->s->names[r->policy - 1])));
    EG_TRY(write_places(w, r, end, step));
    eg_status status = write_exchanged(&x, step);
    eg__inventory_free(&x.old);
    eg__inventory_free(&x.fresh);
    return status;
}

/* ---- other steps ---- */

/* Options that are called as a step's own members are (the `method` of stochastic_depth) go into an object. */
static eg_status put_options(json_t *step, json_t *options)
{
    static const char *const taken[] = {"method", "at", "class", "options"};
    json_t *apart = json_object();
    eg_status status = apart != NULL ? EG_OK : eg_fail(EG_ENOMEM, "out of memory: a recipe");
    for (size_t i = 0; i < EG_COUNT(taken) && status == EG_OK; i++) {
        json_t *value = json_object_get(options, taken[i]);
        if (value != NULL)
            status = eg__json_put(apart, taken[i], json_incref(value));
        json_object_del(options, taken[i]);
    }
    if (status == EG_OK && json_object_update(step, options) != 0)
        status = eg_fail(EG_ENOMEM, "out of memory: a recipe");
    if (status == EG_OK && json_object_size(apart) > 0)
        status = eg__json_put(step, "options", json_incref(apart));
    json_decref(apart);
    return status;
}

static eg_status write_method(const eg__step *from, json_t *step)
{
    EG_TRY(eg__json_put(step, "method", eg__json_text_of(from->options->cls->name)));
    if (from->cls != NULL)
        EG_TRY(eg__json_put(step, "class", eg__json_text_of(from->cls->name)));
    if (from->at != NULL)
        EG_TRY(eg__json_put(step, "at", eg__json_text_of(from->at)));
    json_t *options = eg__module_to_json(from->options, false);
    if (options == NULL)
        return eg_error_last()->code;
    json_object_del(options, "class");
    eg_status status = put_options(step, options);
    json_decref(options);
    return status;
}

/* What is changed in something that is no longer in the model is no step. */
static eg_status forget_step(writer *w)
{
    json_array_remove(w->steps, json_array_size(w->steps) - 1);
    return EG_OK;
}

static eg_status write_trained(writer *w, const eg__edit *edit, json_t *step)
{
    EG_TRY(take_now(w));
    const eg__tensor_item *item = eg__inventory_tensor(&w->now, edit->owner);
    if (item == NULL)
        return forget_step(w);
    EG_TRY(eg__json_put(step, "train", eg__json_text_of(item->key)));
    return eg__json_put(step, "trained", json_boolean(!((eg_tensor *)edit->owner)->requires_grad));
}

static eg_status write_tensor(writer *w, const eg__edit *edit, json_t *step)
{
    EG_TRY(take_now(w));
    const eg_module *owner = edit->owner;
    const char *name = owner->slots[edit->slot].name;
    const eg__item *item = eg__inventory_of(&w->now, owner);
    const eg__tensor_item *source = eg__inventory_tensor(&w->now, edit->other);
    if (item == NULL)
        return forget_step(w);
    EG_CHECK(eg_is_none(edit->other) || source != NULL, EG_EUNSUPPORTED,
             "'%s%s%s' was given a tensor by itself: a recipe has no numbers, only methods make them again", item->path,
             *item->path == '\0' ? "" : ".", name);
    EG_TRY(eg__json_put(step, "tensor", joined(item->path, name)));
    return eg__json_put(step, "is", source != NULL ? eg__json_text_of(source->key) : json_null());
}

/* ---- all steps ---- */

static json_t *next_step(writer *w)
{
    json_t *step = json_object();
    if (step == NULL || json_array_append_new(w->steps, step) != 0) {
        eg_fail(EG_ENOMEM, "out of memory: a recipe");
        return NULL;
    }
    return step;
}

/* Whether an edit, which is not in place, is one of a replacement: those of one follow one another. */
static bool is_of(const eg__edit *edit, const eg__replacement *r)
{
    return (edit->kind == EG__EDIT_CHILD || edit->kind == EG__EDIT_PLACE) && edit->here == r->old &&
           edit->other == r->fresh;
}

/* Writes what the next edits do; *end is past them. */
static eg_status write_next(writer *w, size_t *end)
{
    eg_surgery *s = w->s;
    const eg__step *method = w->step < s->n_steps ? &s->steps[w->step] : NULL;
    const eg__edit *edit = &s->edits[w->at];
    *end = w->at + 1;
    json_t *step = next_step(w);
    if (step == NULL)
        return EG_ENOMEM;
    if (method != NULL && method->first_edit == w->at) {
        *end = w->at + method->n_edits;
        w->replacement = method->end_replacement;
        w->step++;
        return write_method(method, step);
    }
    if (edit->kind == EG__EDIT_TRAINED)
        return write_trained(w, edit, step);
    if (edit->kind == EG__EDIT_TENSOR)
        return write_tensor(w, edit, step);
    while (w->replacement < s->n_replacements && !is_of(edit, &s->replacements[w->replacement]))
        w->replacement++;
    EG_CHECK(w->replacement < s->n_replacements, EG_EINTERNAL, "an edit is of no replacement");
    while (*end < s->n_edits && is_of(&s->edits[*end], &s->replacements[w->replacement]))
        ++*end;
    EG_TRY(write_replacement(w, *end, step));
    w->replacement++;
    return EG_OK;
}

static eg_status put_structure(writer *w, json_t *recipe, const char *name)
{
    char text[EG__STRUCTURE_SIZE];
    w->now_at = SIZE_MAX;
    EG_TRY(take_now(w));
    EG_TRY(eg__structure_text(&w->now, text));
    return eg__json_put(recipe, name, json_string(text));
}

/* Methods that trace the model need them. */
static eg_status put_inputs(const eg_surgery *s, json_t *recipe)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_inputs; i++)
        list = eg__json_append(list, eg__shape_json(&s->inputs[i]));
    if (s->n_inputs > 0 || list == NULL)
        return eg__json_put(recipe, "inputs", list);
    json_decref(list);
    return EG_OK;
}

static eg_status write_recipe(writer *w, json_t *recipe)
{
    EG_TRY(eg__json_put(recipe, "format", json_string(EG__RECIPE_FORMAT)));
    EG_TRY(eg__json_put(recipe, "version", json_integer(EG__RECIPE_VERSION)));
    EG_TRY(put_inputs(w->s, recipe));
    EG_TRY(eg__surgery_seek(w->s, &w->at, 0));
    EG_TRY(put_structure(w, recipe, "before"));
    EG_TRY(know(w, &w->now));
    EG_TRY(eg__json_put(recipe, "after", json_null())); /* here, for people */
    EG_TRY(eg__json_put(recipe, "steps", json_incref(w->steps)));
    while (w->at < w->s->n_edits) {
        size_t end, begin = w->at, methods = w->step;
        EG_TRY(write_next(w, &end));
        EG_TRY(eg__surgery_seek(w->s, &w->at, end));
        bool flag = w->step == methods && w->s->edits[begin].kind == EG__EDIT_TRAINED;
        if (flag && w->now_at == begin)
            w->now_at = end; /* all is where it was */
        if (w->step == methods)
            continue;
        EG_TRY(take_now(w)); /* with all that the method has made */
        EG_TRY(know(w, &w->now));
    }
    EG_CHECK(json_array_size(w->steps) <= EG__RECIPE_MAX_STEPS, EG_EUNSUPPORTED, "a recipe of more than %d steps",
             EG__RECIPE_MAX_STEPS);
    return put_structure(w, recipe, "after");
}

char *eg_surgery_recipe(eg_surgery *s)
{
    if (s == NULL)
        return eg__null(__func__, "surgery");
    writer w = {.s = s, .steps = json_array(), .at = eg__committed_edits(s), .now_at = SIZE_MAX};
    json_t *recipe = json_object();
    eg_status status =
        w.steps != NULL && recipe != NULL ? write_recipe(&w, recipe) : eg_fail(EG_ENOMEM, "out of memory: a recipe");
    eg__error_mark mark;
    eg__error_save(&mark);
    eg__surgery_seek(s, &w.at, eg__committed_edits(s)); /* where it came from */
    eg__error_restore(&mark);
    eg__inventory_free(&w.now);
    eg__ptr_map_free(&w.known);
    eg__ptr_map_free(&w.several);
    json_decref(w.steps);
    return eg__json_finish(recipe, status);
}

eg_status eg_surgery_save_recipe(eg_surgery *s, const char *path)
{
    EG_CHECK(s != NULL && path != NULL, EG_EINVAL, "surgery or path is NULL");
    char *text = eg_surgery_recipe(s);
    if (text == NULL)
        return eg_error_last()->code;
    eg_status status = eg__file_write(path, text, strlen(text));
    eg_free(text);
    return status;
}
