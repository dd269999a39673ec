/*
 * Models as JSON: the class and the fields of each module, and what its fields alone do not make.
 *
 * A class whose build makes children is built anew, in a context of its own that takes no memory for tensors, and its
 * children are compared: only those that differ are written, under the shortest paths that say so.
 */
#include "nn/json.h"

#include <stdlib.h>
#include <string.h>

typedef struct writer {
    eg_context *scratch; /* made when it is first needed */
    eg__ptr_map shared;  /* modules in several slots -> their number, NULL before they are written */
    size_t n_shared;     /* numbers given */
    bool expand;
} writer;

static eg_status no_memory(void)
{
    return eg_fail(EG_ENOMEM, "out of memory: a module as JSON");
}

/* Takes over `value`, which may be NULL after a failure. */
static eg_status put(json_t *object, const char *key, json_t *value)
{
    if (value == NULL)
        return eg_error_last()->code;
    return json_object_set_new(object, key, value) == 0 ? EG_OK : no_memory();
}

/* What decides an open field is written as that field. */
static eg_slot *next_slot(const eg_module *m, size_t *i)
{
    while (*i < m->n_slots) {
        eg_slot *slot = &m->slots[(*i)++];
        if (slot->kind == EG_SLOT_CHILD && eg__open_slot(m, *i - 1) == NULL)
            return slot;
    }
    return NULL;
}

static bool has_children(const eg_module *m)
{
    return next_slot(m, &(size_t){0}) != NULL;
}

/* Finds the modules that stand in several slots of m and what is below it. */
static eg_status find_shared(eg__ptr_map *seen, eg__ptr_map *shared, eg_module *m, size_t depth)
{
    bool added;
    EG_CHECK(depth <= EG__JSON_MAX_DEPTH, EG_EUNSUPPORTED, "modules nest deeper than %d", EG__JSON_MAX_DEPTH);
    EG_TRY(eg__ptr_map_add(seen, m, &added));
    if (!added)
        return eg__ptr_map_put(shared, m, NULL);
    eg_slot *slot;
    for (size_t i = 0; (slot = next_slot(m, &i)) != NULL;) {
        if (*eg__slot_child(slot) != NULL)
            EG_TRY(find_shared(seen, shared, *eg__slot_child(slot), depth + 1));
    }
    return EG_OK;
}

static eg_status fill_shared(eg__ptr_map *shared, eg_module *m)
{
    eg__ptr_map seen = {0};
    eg_status status = find_shared(&seen, shared, m, 1);
    eg__ptr_map_free(&seen);
    return status;
}

/* ---- children in lists ---- */

static bool has_field(const eg_class *cls, eg_field_type type)
{
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(cls, i)) != NULL; i++) {
        if (field->type == type)
            return true;
    }
    return false;
}

/* Whether the children have the names that a plain list gives them. */
static bool is_numbered(const eg_module *m)
{
    eg_slot *slot;
    size_t n = 0;
    for (size_t i = 0; (slot = next_slot(m, &i)) != NULL; n++) {
        char number[24];
        snprintf(number, sizeof(number), "%zu", n);
        if (strcmp(slot->name, number) != 0)
            return false;
    }
    return true;
}

static json_t *module_json(writer *w, eg_module *m);

static json_t *slot_json(writer *w, eg_slot *slot)
{
    return *eg__slot_child(slot) != NULL ? module_json(w, *eg__slot_child(slot)) : json_null();
}

static eg_status write_list(writer *w, eg_module *m, json_t *object)
{
    bool numbered = is_numbered(m) && has_field(m->cls, EG_FIELD_MODULES);
    EG_CHECK(numbered || has_field(m->cls, EG_FIELD_NAMED), EG_EUNSUPPORTED,
             "%s: its children have names, which its list cannot give them", m->cls->name);
    if (!has_children(m))
        return EG_OK;
    json_t *list = numbered ? json_array() : json_object();
    if (list == NULL)
        return no_memory();
    EG_TRY(put(object, numbered ? "modules" : "named", list));
    eg_slot *slot;
    for (size_t i = 0; (slot = next_slot(m, &i)) != NULL;) {
        json_t *child = slot_json(w, slot);
        if (!numbered)
            EG_TRY(put(list, slot->name, child));
        else if (child == NULL || json_array_append_new(list, child) != 0)
            return child == NULL ? eg_error_last()->code : no_memory();
    }
    return EG_OK;
}

/* ---- children that build makes ---- */

/* Two modules and what is below them: equal, but for the numbers in their tensors. */
static bool same_slots(const eg_module *a, const eg_module *b)
{
    eg_slot *s, *t;
    size_t i = 0, k = 0;
    do {
        s = next_slot(a, &i);
        t = next_slot(b, &k);
    } while (s != NULL && t != NULL && strcmp(s->name, t->name) == 0);
    return s == NULL && t == NULL;
}

/* What is compared: a part of the model, and of the module that was built anew. */
typedef struct pair {
    eg_module *was, *made;
    const eg__ptr_map *was_shared, *made_shared;
} pair;

/* Whether the two themselves are equal; their children may differ. Those that stand in several places differ always:
 * then all the places are written. */
static bool alike(const pair *p)
{
    if (p->was == NULL || p->made == NULL)
        return p->was == p->made;
    return p->was->cls == p->made->cls && eg__fields_equal(p->was, p->made) && same_slots(p->was, p->made) &&
           p->was->n_reparams == 0 && eg__ptr_map_find(p->was_shared, p->was) == NULL &&
           eg__ptr_map_find(p->made_shared, p->made) == NULL;
}

static eg_status write_different(writer *w, const pair *p, eg__buf *path, json_t *children)
{
    eg_slot *was, *made;
    size_t mark = path->len;
    for (size_t i = 0, k = 0; (was = next_slot(p->was, &i)) != NULL && (made = next_slot(p->made, &k)) != NULL;) {
        eg__buf_printf(path, mark == 0 ? "%s" : ".%s", was->name);
        if (path->failed)
            return no_memory();
        pair next = {*eg__slot_child(was), *eg__slot_child(made), p->was_shared, p->made_shared};
        if (!alike(&next))
            EG_TRY(put(children, path->data, slot_json(w, was)));
        else if (next.was != NULL)
            EG_TRY(write_different(w, &next, path, children));
        path->len = mark;
        path->data[mark] = '\0';
    }
    return EG_OK;
}

static eg_status open_scratch(writer *w)
{
    if (w->scratch != NULL)
        return EG_OK;
    w->scratch = eg_context_new(.threads = 1, .backend = "ref");
    if (w->scratch == NULL)
        return EG_ENOMEM;
    return eg__dry_begin(w->scratch);
}

static void close_scratch(writer *w)
{
    if (w->scratch != NULL && eg__is_dry(w->scratch))
        eg__dry_end(w->scratch);
    eg_context_free(w->scratch);
}

static eg_module *build_anew(writer *w, const eg_module *m)
{
    if (open_scratch(w) != EG_OK)
        return NULL;
    eg_module *prototype = eg__calloc(1, m->cls->instance_size);
    if (prototype == NULL)
        return NULL;
    eg__fields_lend(prototype, m);
    prototype->ctx = w->scratch;
    eg_module *made = NULL;
    if (eg__open_lend(prototype, m) == EG_OK)
        made = eg_module_new(m->cls, m->cls->instance_size, prototype);
    free(prototype);
    return made;
}

static eg_status compare_with(writer *w, eg_module *m, eg_module *made, json_t *children)
{
    eg__ptr_map shared = {0};
    eg__buf path = {0};
    eg_status status = fill_shared(&shared, made);
    if (status == EG_OK && !same_slots(m, made))
        status = eg_fail(EG_EUNSUPPORTED, "%s: has other children than its class makes of its fields", m->cls->name);
    if (status == EG_OK)
        status = write_different(w, &(pair){m, made, &w->shared, &shared}, &path, children);
    eg__buf_free(&path);
    eg__ptr_map_free(&shared);
    return status;
}

static eg_status write_children(writer *w, eg_module *m, json_t *children)
{
    if (w->expand) {
        eg_slot *slot;
        for (size_t i = 0; (slot = next_slot(m, &i)) != NULL;)
            EG_TRY(put(children, slot->name, slot_json(w, slot)));
        return EG_OK;
    }
    eg_module *made = build_anew(w, m);
    eg_status status = made != NULL ? compare_with(w, m, made, children) : eg_error_last()->code;
    eg_module_release(made);
    return status;
}

static eg_status write_built(writer *w, eg_module *m, json_t *object)
{
    if (!has_children(m))
        return EG_OK;
    json_t *children = json_object();
    if (children == NULL)
        return no_memory();
    EG_TRY(put(object, "children", children));
    EG_TRY(write_children(w, m, children));
    if (json_object_size(children) == 0)
        json_object_del(object, "children");
    return EG_OK;
}

/* ---- one module ---- */

static json_t *id_json(size_t number)
{
    char id[32];
    snprintf(id, sizeof(id), "shared%zu", number);
    json_t *text = json_string(id);
    if (text == NULL)
        no_memory();
    return text;
}

/* The number of a module in several places, given when it is first written; 0 for others. */
static size_t number_of(writer *w, const eg_module *m, bool *written)
{
    void **known = eg__ptr_map_find(&w->shared, m);
    *written = known != NULL && *known != NULL;
    if (known != NULL && !*written)
        *known = (void *)(uintptr_t)++w->n_shared;
    return known != NULL ? (size_t)(uintptr_t)*known : 0;
}

static eg_status write_module(writer *w, eg_module *m, json_t *object)
{
    bool written;
    size_t number = number_of(w, m, &written);
    if (written)
        return put(object, "ref", id_json(number));
    EG_CHECK(m->n_reparams == 0, EG_EUNSUPPORTED,
             "%s: has a normalized parameter, which JSON cannot say: take the normalization out first", m->cls->name);
    EG_CHECK(eg__is_utf8(m->cls->name), EG_EINVAL, "the name of a class is no UTF-8");
    json_t *name = json_string(m->cls->name);
    if (name == NULL)
        return no_memory();
    EG_TRY(put(object, "class", name));
    if (number > 0)
        EG_TRY(put(object, "id", id_json(number)));
    EG_TRY(eg__fields_to_json(m, object));
    bool list = has_field(m->cls, EG_FIELD_MODULES) || has_field(m->cls, EG_FIELD_NAMED);
    return list ? write_list(w, m, object) : write_built(w, m, object);
}

static json_t *module_json(writer *w, eg_module *m)
{
    json_t *object = json_object();
    if (object == NULL) {
        no_memory();
        return NULL;
    }
    if (write_module(w, m, object) == EG_OK)
        return object;
    json_decref(object);
    return NULL;
}

json_t *eg__module_to_json(eg_module *m, bool expand)
{
    writer w = {.expand = expand};
    json_t *json = fill_shared(&w.shared, m) == EG_OK ? module_json(&w, m) : NULL;
    close_scratch(&w);
    eg__ptr_map_free(&w.shared);
    return json;
}

static char *text_of(eg_module *m, bool expand)
{
    json_t *json = eg__module_to_json(m, expand);
    char *text = json != NULL ? eg__json_layout(json) : NULL;
    json_decref(json);
    return text;
}

char *eg_module_json(eg_module *m)
{
    return m != NULL ? text_of(m, false) : eg__null(__func__, "module");
}

char *eg_module_json_expanded(eg_module *m)
{
    return m != NULL ? text_of(m, true) : eg__null(__func__, "module");
}

eg_status eg_module_save_json(eg_module *m, const char *path)
{
    EG_CHECK(m != NULL && path != NULL, EG_EINVAL, "module or path is NULL");
    char *text = eg_module_json(m);
    if (text == NULL)
        return eg_error_last()->code;
    eg_status status = eg__file_write(path, text, strlen(text));
    eg_free(text);
    return status;
}
