/*
 * The steps of recipes done again. They may come from anybody: whatever they say, they are refused, or plan a surgery
 * like any other.
 */
#include "surgery/recipe.h"

#include <stdlib.h>
#include <string.h>

/* The step that is read. */
typedef struct reader {
    eg_surgery *s;
    const json_t *step;
    char where[32];           /* "steps[3]" */
    const eg__inventory *own; /* of the new module, before anything of the model is put into it */
} reader;

/* ---- members ---- */

static eg_status text_at(const reader *r, const char *name, const char **text)
{
    const json_t *member = json_object_get(r->step, name);
    *text = json_string_value(member);
    EG_CHECK(member == NULL || *text != NULL, EG_EFORMAT, "%s: '%s' is no text", r->where, name);
    return EG_OK;
}

static eg_status map_at(const reader *r, const char *name, const json_t **map)
{
    const char *key;
    json_t *value;
    *map = json_object_get(r->step, name);
    EG_CHECK(*map == NULL || json_is_object(*map), EG_EFORMAT, "%s: '%s' is no object", r->where, name);
    json_object_foreach((json_t *)(uintptr_t)*map, key, value)
    {
        EG_CHECK(json_is_string(value), EG_EFORMAT, "%s: '%s' of '%s' is no text", r->where, key, name);
    }
    return EG_OK;
}

static eg_status check_members(const reader *r, const char *const *names)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)r->step, key, value)
    {
        size_t i = 0;
        while (names[i] != NULL && strcmp(names[i], key) != 0)
            i++;
        EG_CHECK(names[i] != NULL, EG_EFORMAT, "%s: there is no '%s' in such a step", r->where, key);
    }
    return EG_OK;
}

/* ---- the model as it is planned ---- */

typedef struct finding {
    const char *path;
    eg_module *module;
    eg_tensor *tensor;
} finding;

static eg_status find_module(void *payload, eg_module *root)
{
    finding *f = payload;
    f->module = eg_module_find(root, f->path);
    return f->module != NULL ? EG_OK : eg_error_last()->code;
}

static eg_status find_tensor(void *payload, eg_module *root)
{
    finding *f = payload;
    f->tensor = eg_module_tensor(root, f->path);
    return f->tensor != NULL ? EG_OK : eg_error_last()->code;
}

static eg_status module_of(const reader *r, const char *path, eg_module **m)
{
    finding f = {.path = path};
    EG_TRY(eg_surgery_look(r->s, find_module, &f));
    *m = f.module;
    return EG_OK;
}

static eg_status tensor_of(const reader *r, const char *path, eg_tensor **t)
{
    finding f = {.path = path};
    EG_TRY(eg_surgery_look(r->s, find_tensor, &f));
    *t = f.tensor;
    return EG_OK;
}

/* The slot of the new module that a path names, and its holder: none of a module of the model that is in it already. */
static eg_status slot_of(const reader *r, eg_module *fresh, const char *path, eg_module **holder, eg_slot **slot)
{
    const char *dot = strrchr(path, '.');
    const char *name = dot != NULL ? dot + 1 : path;
    char *parent = eg__format("%.*s", dot != NULL ? (int)(dot - path) : 0, path);
    if (parent == NULL)
        return EG_ENOMEM;
    *holder = eg_module_find(fresh, parent);
    eg_free(parent);
    if (*holder == NULL)
        return eg_error_last()->code;
    *slot = eg__slot_find(*holder, name, strlen(name));
    EG_CHECK(*slot != NULL, EG_ENOENT, "the new module has no '%s'", path);
    EG_CHECK(eg__inventory_of(r->own, *holder) != NULL, EG_EINVAL, "'%s' is in a module of the model, not a new one",
             path);
    return EG_OK;
}

/* ---- replacements ---- */

/* Puts a module of the model into the new one. */
static eg_status place_module(const reader *r, eg_module *fresh, const char *path, const char *from)
{
    eg_module *m, *holder;
    eg_slot *slot;
    EG_TRY(module_of(r, from, &m));
    EG_TRY(slot_of(r, fresh, path, &holder, &slot));
    EG_CHECK(slot->kind == EG_SLOT_CHILD, EG_EINVAL, "'%s' is no module", path);
    return eg__module_place(holder, slot->name, eg_module_retain(m));
}

static eg_status place_tensor(const reader *r, eg_module *fresh, const char *path, const char *from)
{
    eg_tensor *t;
    eg_module *holder;
    eg_slot *slot;
    char was[EG_SHAPE_TEXT_SIZE], is[EG_SHAPE_TEXT_SIZE];
    EG_TRY(tensor_of(r, from, &t));
    EG_TRY(slot_of(r, fresh, path, &holder, &slot));
    EG_CHECK(slot->kind != EG_SLOT_CHILD, EG_EINVAL, "'%s' is no tensor", path);
    eg_tensor **place = eg__slot_tensor(slot);
    eg_shape shape = eg_tensor_shape(*place);
    EG_CHECK(!eg_is_none(t) && !eg_is_none(*place), EG_EINVAL, "'%s' or '%s' is absent", from, path);
    EG_CHECK(eg_shape_equal(t->shape, shape) && t->dtype == (*place)->dtype, EG_ESHAPE,
             "'%s' has shape %s, '%s' in the new module %s", from, eg_shape_format(t->shape, was, sizeof(was)), path,
             eg_shape_format(shape, is, sizeof(is)));
    eg_tensor_keep(t);
    eg_tensor_release(*place);
    *place = t;
    return EG_OK;
}

typedef eg_status (*place_fn)(const reader *r, eg_module *fresh, const char *path, const char *from);

static eg_status place_all(const reader *r, eg_module *fresh, const json_t *map, place_fn place)
{
    const char *path;
    json_t *from;
    json_object_foreach((json_t *)(uintptr_t)map, path, from)
    {
        eg_status status = place(r, fresh, path, json_string_value(from));
        if (status != EG_OK)
            return eg__fail_prefix(status, "%s", r->where);
    }
    return EG_OK;
}

/* The module of a step before anything of the model is put into it: made, or one of the model's. */
static eg_status make_fresh(const reader *r, const json_t *modules, eg_module **fresh)
{
    const json_t *json = json_object_get(r->step, "module"), *own = json_object_get(modules, "");
    EG_CHECK((json != NULL) != (own != NULL), EG_EFORMAT, "%s: expected either a 'module' or one of the model's",
             r->where);
    if (own != NULL) {
        EG_TRY(module_of(r, json_string_value(own), fresh));
        eg_module_retain(*fresh);
        return EG_OK;
    }
    char *root = eg__format("%s.module", r->where);
    *fresh = root != NULL ? eg__module_from_json(r->s->ctx, json, root) : NULL;
    eg_free(root);
    return *fresh != NULL ? EG_OK : eg_error_last()->code;
}

static eg_status place_both(reader *r, eg_module *fresh, const json_t *modules, const json_t *tensors)
{
    eg__inventory own;
    eg_status status = eg__inventory_take(&own, fresh);
    r->own = &own;
    if (status == EG_OK)
        status = place_all(r, fresh, modules, place_module);
    if (status == EG_OK)
        status = place_all(r, fresh, tensors, place_tensor);
    eg__inventory_free(&own);
    return status;
}

/* ---- some places of a module only ---- */

/* Whether an edit is of the slot that a path names, in the model before it. */
static eg_status is_place(const reader *r, const eg__edit *edit, const char *path, bool *is)
{
    const char *dot = strrchr(path, '.');
    *is = edit->kind == EG__EDIT_PLACE && *path == '\0';
    if (edit->kind != EG__EDIT_CHILD || *path == '\0')
        return EG_OK;
    const eg_module *owner = edit->owner;
    if (strcmp(owner->slots[edit->slot].name, dot != NULL ? dot + 1 : path) != 0)
        return EG_OK;
    char *parent = eg__format("%.*s", dot != NULL ? (int)(dot - path) : 0, path);
    if (parent == NULL)
        return EG_ENOMEM;
    eg_module *holder = eg_module_find(r->s->root, parent);
    eg_free(parent);
    *is = holder == owner;
    return holder != NULL ? EG_OK : eg_error_last()->code;
}

static eg_status is_listed(const reader *r, const eg__edit *edit, const json_t *places, bool *listed)
{
    *listed = false;
    for (size_t i = 0; i < json_array_size(places) && !*listed; i++) {
        const char *path = json_string_value(json_array_get(places, i));
        EG_CHECK(path != NULL, EG_EFORMAT, "%s: 'places' has something that is no text", r->where);
        EG_TRY(is_place(r, edit, path, listed));
    }
    return EG_OK;
}

/* Moves those of the edits from `first` on that are not of these places to the end, and forgets them. The model is as
 * it was before them. */
static eg_status keep_places(const reader *r, const json_t *places, size_t first)
{
    eg_surgery *s = r->s;
    size_t kept = first;
    for (size_t i = first; i < s->n_edits; i++) {
        bool listed;
        EG_TRY(is_listed(r, &s->edits[i], places, &listed));
        eg__edit edit = s->edits[i];
        s->edits[i] = s->edits[kept];
        s->edits[kept] = edit;
        kept += listed;
    }
    eg__surgery_cut(s, kept, s->n_replacements, s->n_derivations);
    return EG_OK;
}

static eg_status put_in_places(const reader *r, eg_module *old, eg_module *fresh, const char *why)
{
    eg_surgery *s = r->s;
    const json_t *places = json_object_get(r->step, "places");
    size_t first = s->n_edits;
    eg_status status =
        places == NULL || json_is_array(places) ? EG_OK : eg_fail(EG_EFORMAT, "%s: 'places' is no list", r->where);
    if (status == EG_OK)
        status = eg__surgery_enter(s); /* what is planned from here on is not in place */
    if (status != EG_OK) {
        eg_module_release(fresh);
        return status;
    }
    status = eg_surgery_put(s, old, fresh, why);
    if (status == EG_OK && places != NULL)
        status = keep_places(r, places, first);
    eg__surgery_leave(s);
    return status;
}

static eg_status replay_replacement(reader *r, const char *path)
{
    static const char *const names[] = {"replace", "why", "places", "module", "modules", "tensors", NULL};
    const char *why;
    const json_t *modules, *tensors;
    eg_module *old, *fresh = NULL;
    EG_TRY(check_members(r, names));
    EG_TRY(text_at(r, "why", &why));
    EG_TRY(map_at(r, "modules", &modules));
    EG_TRY(map_at(r, "tensors", &tensors));
    EG_TRY(module_of(r, path, &old));
    EG_TRY(make_fresh(r, modules, &fresh));
    bool made = json_object_get(r->step, "module") != NULL;
    eg_status status = EG_OK;
    if (made)
        status = place_both(r, fresh, modules, tensors);
    else if (json_object_size(modules) + json_object_size(tensors) > 1)
        status = eg_fail(EG_EFORMAT, "%s: nothing can be put into a module of the model", r->where);
    if (status != EG_OK) {
        eg_module_release(fresh);
        return status;
    }
    return put_in_places(r, old, fresh, why);
}

/* ---- other steps ---- */

/* The options of a method: the members of the step, and those in "options". NULL on failure. */
static json_t *read_options(const reader *r)
{
    static const char *const own[] = {"method", "at", "class", "options"};
    json_t *apart = json_object_get(r->step, "options"), *options = NULL;
    if (apart != NULL && !json_is_object(apart)) {
        eg_fail(EG_EFORMAT, "%s: 'options' is no object", r->where);
        return NULL;
    }
    options = json_copy((json_t *)(uintptr_t)r->step);
    for (size_t i = 0; i < EG_COUNT(own); i++)
        json_object_del(options, own[i]);
    if (options != NULL && (apart == NULL || json_object_update(options, apart) == 0))
        return options;
    json_decref(options);
    eg_fail(EG_ENOMEM, "out of memory: a recipe");
    return NULL;
}

static eg_status replay_method(reader *r, const char *name)
{
    const char *at, *limit;
    const eg_method *method = eg_method_find(name);
    if (method == NULL)
        return eg_error_last()->code;
    EG_TRY(text_at(r, "at", &at));
    EG_TRY(text_at(r, "class", &limit));
    const eg_class *cls = limit != NULL ? eg_context_find_class(r->s->ctx, limit) : NULL;
    if (limit != NULL && cls == NULL)
        return eg_error_last()->code;
    json_t *options = read_options(r);
    if (options == NULL)
        return eg_error_last()->code;
    eg_module *made = eg__module_of_class_from_json(r->s->ctx, &method->options, options, r->where);
    json_decref(options);
    if (made == NULL)
        return eg_error_last()->code;
    return cls != NULL ? eg_surgery_apply_to(r->s, made, cls, at) : eg_surgery_apply(r->s, made, at);
}

static eg_status replay_trained(reader *r, const char *path)
{
    static const char *const names[] = {"train", "trained", NULL};
    const json_t *trained = json_object_get(r->step, "trained");
    eg_tensor *t;
    EG_TRY(check_members(r, names));
    EG_CHECK(json_is_boolean(trained), EG_EFORMAT, "%s: 'trained' is not true or false", r->where);
    EG_TRY(tensor_of(r, path, &t));
    return eg_surgery_set_trained(r->s, t, json_is_true(trained));
}

static eg_status replay_tensor(reader *r, const char *path)
{
    static const char *const names[] = {"tensor", "is", NULL};
    const json_t *is = json_object_get(r->step, "is");
    eg_tensor *t = eg_none;
    const char *dot = strrchr(path, '.');
    eg_module *holder;
    EG_TRY(check_members(r, names));
    EG_CHECK(json_is_null(is) || json_is_string(is), EG_EFORMAT, "%s: 'is' is neither a name nor null", r->where);
    if (json_is_string(is))
        EG_TRY(tensor_of(r, json_string_value(is), &t));
    char *parent = eg__format("%.*s", dot != NULL ? (int)(dot - path) : 0, path);
    eg_status status = parent != NULL ? module_of(r, parent, &holder) : EG_ENOMEM;
    eg_free(parent);
    return status == EG_OK ? eg_surgery_put_tensor(r->s, holder, dot != NULL ? dot + 1 : path, t) : status;
}

static eg_status replay_step(reader *r)
{
    static const struct {
        const char *name;
        eg_status (*replay)(reader *r, const char *text);
    } kinds[] = {{"method", replay_method},
                 {"replace", replay_replacement},
                 {"train", replay_trained},
                 {"tensor", replay_tensor}};
    EG_CHECK(json_is_object(r->step), EG_EFORMAT, "%s is no object", r->where);
    for (size_t i = 0; i < EG_COUNT(kinds); i++) {
        const char *text;
        EG_TRY(text_at(r, kinds[i].name, &text));
        if (text == NULL)
            continue;
        eg_status status = kinds[i].replay(r, text);
        return status == EG_OK || strncmp(eg_error_last()->message, r->where, strlen(r->where)) == 0
                   ? status
                   : eg__fail_prefix(status, "%s", r->where);
    }
    return eg_fail(EG_EFORMAT, "%s says nothing to be done: no 'method', 'replace', 'train' or 'tensor'", r->where);
}

/* A small text can make much: models of all steps together are as large as one that is read from a file. */
static eg_status replay_all(eg_surgery *s, const json_t *steps)
{
    const eg__nn_state *state = eg__nn_state_of(s->ctx);
    if (state == NULL)
        return EG_ENOMEM;
    size_t made = state->n_made;
    for (size_t i = 0; i < json_array_size(steps); i++) {
        reader r = {.s = s, .step = json_array_get(steps, i)};
        snprintf(r.where, sizeof(r.where), "steps[%zu]", i);
        EG_TRY(replay_step(&r));
        EG_CHECK(state->n_made - made <= EG__JSON_MAX_MODULES, EG_EFORMAT, "the recipe makes more than %d modules",
                 EG__JSON_MAX_MODULES);
    }
    return EG_OK;
}

eg_status eg__replay_steps(eg_surgery *s, const json_t *steps)
{
    eg__apart apart;
    EG_TRY(eg__apart_begin(s, &apart));
    eg_status status = replay_all(s, steps);
    eg__apart_end(s, &apart);
    return status;
}
