/*
 * Models from JSON. Files may come from anybody: whatever they say, they are refused, or give a model whose walks end.
 *
 * A module is made from a prototype, as a program makes it; then the children that the file names take the places of
 * those that its class has made.
 */
#include "nn/json.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
    eg_context *ctx;
    eg__map ids;         /* "id" -> module */
    eg__ptr_map read;    /* all modules that the file describes: each is held until the end */
    eg__ptr_map extents; /* of those with an id, and what is below them */
    eg__buf path;        /* "model.modules[3]" */
    size_t depth;        /* of the place that is read */
    size_t n_before;     /* modules that were made before this file was read */
} reader;

/* ---- paths ---- */

/* Goes into a member, or into a place of a list; leave(r, mark) goes back. */
static eg_status enter(reader *r, const char *name)
{
    eg__buf_printf(&r->path, ".%s", name);
    return r->path.failed ? EG_ENOMEM : EG_OK;
}

static eg_status enter_item(reader *r, size_t i)
{
    eg__buf_printf(&r->path, "[%zu]", i);
    return r->path.failed ? EG_ENOMEM : EG_OK;
}

static void leave(reader *r, size_t mark)
{
    if (r->path.failed)
        return;
    r->path.len = mark;
    r->path.data[mark] = '\0';
}

/* For messages, which have no room for long ones: these lose their beginning. */
static const char *path_of(const reader *r)
{
    enum { ROOM = 160 };
    const char *path = r->path.data;
    if (r->path.len > ROOM)
        path = strchr(path + r->path.len - ROOM, '.');
    return path != NULL ? path : r->path.data;
}

#define FAIL(r, status, ...) fail_at_path(r, status, eg__format(__VA_ARGS__))

static eg_status fail_at_path(const reader *r, eg_status status, char *text)
{
    if (text == NULL)
        return EG_ENOMEM;
    eg_fail(status, "%s: %s", path_of(r), text);
    eg_free(text);
    return status;
}

/* ---- how much there is: a model that stands in several places counts in each ---- */

enum { DEPTH_UNIT = 1 << 24 }; /* an extent is depth * unit + modules, as a pointer */
_Static_assert(EG__JSON_MAX_MODULES < DEPTH_UNIT - 1 && EG__JSON_MAX_DEPTH < 127, "an extent fits 31 bits");

typedef struct extent {
    size_t depth, modules; /* each ends at one more than is allowed */
} extent;

static eg_status measure(reader *r, eg_module *m, extent *out)
{
    void **known = eg__ptr_map_find(&r->extents, m);
    if (known != NULL) {
        size_t packed = (size_t)(uintptr_t)*known;
        *out = (extent){packed / DEPTH_UNIT, packed % DEPTH_UNIT};
        return EG_OK;
    }
    *out = (extent){0, 1};
    for (size_t i = 0; i < m->n_slots; i++) {
        bool counts = m->slots[i].kind == EG_SLOT_CHILD && eg__open_slot(m, i) == NULL;
        eg_module *child = counts ? *eg__slot_child(&m->slots[i]) : NULL;
        extent below = {0, 0};
        if (child != NULL)
            EG_TRY(measure(r, child, &below));
        out->depth = EG_MAX(out->depth, below.depth);
        out->modules = EG_MIN(out->modules + below.modules, (size_t)EG__JSON_MAX_MODULES + 1);
    }
    out->depth = EG_MIN(out->depth + 1, (size_t)EG__JSON_MAX_DEPTH + 1);
    return eg__ptr_map_put(&r->extents, m, (void *)(uintptr_t)(out->depth * DEPTH_UNIT + out->modules));
}

static eg_status check_extent(reader *r, eg_module *m)
{
    extent e;
    EG_TRY(measure(r, m, &e));
    if (e.depth + r->depth - 1 > EG__JSON_MAX_DEPTH)
        return FAIL(r, EG_EFORMAT, "modules nest deeper than %d", EG__JSON_MAX_DEPTH);
    if (e.modules > EG__JSON_MAX_MODULES)
        return FAIL(r, EG_EFORMAT, "has more than %d modules, counted wherever they stand", EG__JSON_MAX_MODULES);
    return EG_OK;
}

/* Also those that a class has made, whether they stay or not: modules take memory that the context does not count. */
static eg_status check_made(reader *r)
{
    const eg__nn_state *state = eg__nn_state_of(r->ctx);
    if (state == NULL)
        return EG_ENOMEM;
    if (state->n_made - r->n_before > EG__JSON_MAX_MODULES)
        return FAIL(r, EG_EFORMAT, "the file makes more than %d modules", EG__JSON_MAX_MODULES);
    return EG_OK;
}

/* ---- prototypes ---- */

static eg_module *read_module(reader *r, const json_t *json);

static void *member(void *instance, size_t offset)
{
    return (char *)instance + offset;
}

/* A member that may be null: an empty place, which a module holds until its parent is made. */
static eg_module *read_candidate(reader *r, const json_t *json)
{
    return json_is_null(json) ? eg_identity(r->ctx) : read_module(r, json);
}

static eg_status read_modules(reader *r, void *prototype, const eg_field *field, const json_t *list)
{
    size_t n = json_array_size(list), mark = r->path.len;
    if (!json_is_array(list) || n > EG__JSON_MAX_LIST)
        return FAIL(r, EG_EFORMAT, "expected a list of up to %d modules", EG__JSON_MAX_LIST);
    eg_module **modules = eg__calloc(n + 1, sizeof(*modules));
    if (modules == NULL)
        return EG_ENOMEM;
    memcpy(member(prototype, field->offset), &modules, sizeof(modules));
    memcpy(member(prototype, field->count_offset), &n, sizeof(n));
    for (size_t i = 0; i < n; i++) {
        EG_TRY(enter_item(r, i));
        modules[i] = read_candidate(r, json_array_get(list, i));
        if (modules[i] == NULL)
            return eg_error_last()->code;
        leave(r, mark);
    }
    return EG_OK;
}

static eg_status read_named(reader *r, void *prototype, const eg_field *field, const json_t *object)
{
    size_t n = json_object_size(object), mark = r->path.len, i = 0;
    if (!json_is_object(object) || n > EG__JSON_MAX_LIST)
        return FAIL(r, EG_EFORMAT, "expected an object of up to %d modules and their names", EG__JSON_MAX_LIST);
    eg_named_module *named = eg__calloc(n + 1, sizeof(*named));
    if (named == NULL)
        return EG_ENOMEM;
    memcpy(member(prototype, field->offset), &named, sizeof(named));
    memcpy(member(prototype, field->count_offset), &n, sizeof(n));
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        EG_TRY(enter(r, name));
        named[i] = (eg_named_module){name, read_candidate(r, value)};
        if (named[i++].module == NULL)
            return eg_error_last()->code;
        leave(r, mark);
    }
    return EG_OK;
}

static eg_status read_field(reader *r, void *prototype, const eg_field *field, const json_t *value)
{
    size_t mark = r->path.len;
    EG_TRY(enter(r, field->name));
    if (field->type == EG_FIELD_MODULES)
        EG_TRY(read_modules(r, prototype, field, value));
    else if (field->type == EG_FIELD_NAMED)
        EG_TRY(read_named(r, prototype, field, value));
    else
        EG_TRY(eg__field_from_json(prototype, field, value, path_of(r)));
    leave(r, mark);
    return EG_OK;
}

/* Frees a prototype's lists; their modules too, unless a module that was to be made of it has taken them. */
static void free_prototype(const eg_class *cls, void *prototype, bool taken)
{
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(cls, i)) != NULL; i++) {
        if (field->type != EG_FIELD_MODULES && field->type != EG_FIELD_NAMED && field->type != EG_FIELD_TEXTS)
            continue;
        void *list;
        size_t n = 0;
        memcpy(&list, member(prototype, field->offset), sizeof(list));
        if (list != NULL && field->type != EG_FIELD_TEXTS && !taken)
            memcpy(&n, member(prototype, field->count_offset), sizeof(n));
        for (size_t k = 0; k < n; k++)
            eg_module_release(field->type == EG_FIELD_NAMED ? ((eg_named_module *)list)[k].module
                                                            : ((eg_module **)list)[k]);
        free(list);
    }
    free(prototype);
}

/* ---- members ---- */

enum { MAX_FIELDS = 64 };
static const char *const other_members[] = {"class", "id", "children"};

static const eg_field *find_field(const eg_class *cls, const char *name)
{
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(cls, i)) != NULL; i++) {
        if (strcmp(field->name, name) == 0)
            return field;
    }
    return NULL;
}

static eg_status unknown_member(reader *r, const eg_class *cls, const char *name)
{
    const char *names[MAX_FIELDS];
    size_t n = 0;
    for (; n < EG_COUNT(other_members); n++)
        names[n] = other_members[n];
    const eg_field *field;
    for (size_t i = 0; n < MAX_FIELDS && (field = eg__field_at(cls, i)) != NULL; i++)
        names[n++] = field->name;
    char near[200];
    eg_closest_name(name, names, n, near, sizeof(near));
    return FAIL(r, EG_EFORMAT, "%s has no field '%s'%s%s%s", cls->name, name, *near == '\0' ? "" : " (did you mean ",
                near, *near == '\0' ? "" : "?)");
}

static bool is_other(const char *name)
{
    for (size_t i = 0; i < EG_COUNT(other_members); i++) {
        if (strcmp(other_members[i], name) == 0)
            return true;
    }
    return false;
}

/* In the order of the class's table, so that what refers to each other has an order that texts cannot change. */
static eg_status read_members(reader *r, const eg_class *cls, void *prototype, const json_t *json)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, name, value)
    {
        if (!is_other(name) && find_field(cls, name) == NULL)
            return unknown_member(r, cls, name);
    }
    const eg_field *field;
    for (size_t i = 0; (field = eg__field_at(cls, i)) != NULL; i++) {
        if ((value = json_object_get(json, field->name)) != NULL)
            EG_TRY(read_field(r, prototype, field, value));
    }
    return EG_OK;
}

/* ---- children that take the places of those that were built ---- */

/* The last part of the path, and in *parent the module of m that the rest leads to. */
static const char *last_part(reader *r, eg_module *m, const char *path, eg_module **parent)
{
    const char *dot;
    for (; (dot = strchr(path, '.')) != NULL; path = dot + 1) {
        char *name = eg__format("%.*s", (int)(dot - path), path);
        m = name != NULL ? eg_module_find(m, name) : NULL;
        free(name);
        if (m == NULL)
            return NULL;
        if (eg__ptr_map_find(&r->read, m) != NULL) {
            eg_fail(EG_EFORMAT, "'%.*s' is in the file itself: say it there", (int)(dot - path), path);
            return NULL;
        }
    }
    *parent = m;
    return path;
}

static eg_status read_child(reader *r, eg_module *m, const char *path, const json_t *value)
{
    eg_module *parent = NULL;
    const char *name = last_part(r, m, path, &parent);
    if (name == NULL || eg__module_has_child(parent, name) != EG_OK)
        return eg__fail_prefix(eg_error_last()->code, "%s", path_of(r));
    if (eg__open_field(parent, name) != NULL)
        return FAIL(r, EG_EFORMAT, "'%s' is a number: say it as the field", name);
    eg_module *child = json_is_null(value) ? NULL : read_module(r, value);
    if (child == NULL && !json_is_null(value))
        return eg_error_last()->code;
    return eg__module_place(parent, name, child);
}

static eg_status read_children(reader *r, eg_module *m, const json_t *children)
{
    size_t mark = r->path.len;
    EG_TRY(enter(r, "children"));
    if (!json_is_object(children) || json_object_size(children) > EG__JSON_MAX_LIST)
        return FAIL(r, EG_EFORMAT, "expected an object of up to %d modules and their paths", EG__JSON_MAX_LIST);
    const char *path;
    json_t *value;
    size_t inside = r->path.len;
    json_object_foreach((json_t *)(uintptr_t)children, path, value)
    {
        EG_TRY(enter(r, path));
        EG_TRY(read_child(r, m, path, value));
        leave(r, inside);
    }
    leave(r, mark);
    return EG_OK;
}

/* Empties the places of a list that are null in the file. */
static eg_status empty_places(eg_module *m, const json_t *json)
{
    size_t i;
    const char *name;
    json_t *value;
    json_array_foreach(json_object_get(json, "modules"), i, value)
    {
        char number[24];
        snprintf(number, sizeof(number), "%zu", i);
        EG_TRY(json_is_null(value) ? eg__module_place(m, number, NULL) : EG_OK);
    }
    json_object_foreach(json_object_get(json, "named"), name, value)
    {
        EG_TRY(json_is_null(value) ? eg__module_place(m, name, NULL) : EG_OK);
    }
    return EG_OK;
}

/* ---- one module ---- */

static eg_status keep_id(reader *r, eg_module *m, const json_t *id)
{
    const char *name = json_string_value(id);
    if (id == NULL)
        return EG_OK;
    if (name == NULL || *name == '\0')
        return FAIL(r, EG_EFORMAT, "'id' is no text");
    if (eg__map_get(&r->ids, name) != NULL)
        return FAIL(r, EG_EFORMAT, "id '%s' is taken", name);
    EG_TRY(check_extent(r, m));
    return eg__map_put(&r->ids, name, m);
}

static eg_status complete(reader *r, eg_module *m, const json_t *json)
{
    const json_t *children = json_object_get(json, "children");
    bool list = json_object_get(json, "modules") != NULL || json_object_get(json, "named") != NULL;
    if (list)
        EG_TRY(empty_places(m, json));
    if (children != NULL && list)
        return FAIL(r, EG_EFORMAT, "has 'children' beside a list: say them in the list");
    if (children != NULL)
        EG_TRY(read_children(r, m, children));
    EG_TRY(eg__ptr_map_put(&r->read, m, NULL));
    eg_module_retain(m);
    return keep_id(r, m, json_object_get(json, "id"));
}

static eg_module *make(reader *r, const eg_class *cls, const json_t *json)
{
    eg_module *prototype = eg__calloc(1, cls->instance_size), *m = NULL;
    if (prototype == NULL)
        return NULL;
    prototype->ctx = r->ctx;
    bool filled = read_members(r, cls, prototype, json) == EG_OK;
    if (filled) {
        m = eg_module_new(cls, cls->instance_size, prototype);
        if (m == NULL)
            eg__fail_prefix(eg_error_last()->code, "%s", path_of(r));
    }
    free_prototype(cls, prototype, filled);
    if (m != NULL && (check_made(r) != EG_OK || complete(r, m, json) != EG_OK)) {
        eg_module_release(m);
        return NULL;
    }
    return m;
}

static eg_module *find_ref(reader *r, const json_t *json)
{
    const char *id = json_string_value(json_object_get(json, "ref"));
    eg_module *m = id != NULL ? eg__map_get(&r->ids, id) : NULL;
    if (id == NULL || json_object_size(json) != 1)
        FAIL(r, EG_EFORMAT, "'ref' is a text, and alone");
    else if (m == NULL)
        FAIL(r, EG_EFORMAT, "no module before this one has the id '%s'", id);
    else if (check_extent(r, m) == EG_OK)
        return eg_module_retain(m);
    return NULL;
}

static const eg_class *find_class(reader *r, const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "class"));
    const eg_class *cls = NULL;
    if (!json_is_object(json))
        FAIL(r, EG_EFORMAT, "expected a module, an object with a 'class'");
    else if (name == NULL)
        FAIL(r, EG_EFORMAT, "names no 'class'");
    else if ((cls = eg_context_find_class(r->ctx, name)) == NULL)
        eg__fail_prefix(eg_error_last()->code, "%s", path_of(r));
    return cls;
}

/* A reference to the module. */
static eg_module *read_module(reader *r, const json_t *json)
{
    if (r->depth == EG__JSON_MAX_DEPTH) {
        FAIL(r, EG_EFORMAT, "modules nest deeper than %d", EG__JSON_MAX_DEPTH);
        return NULL;
    }
    r->depth++;
    eg_module *m = NULL;
    if (json_object_get(json, "ref") != NULL) {
        m = find_ref(r, json);
    } else {
        const eg_class *cls = find_class(r, json);
        m = cls != NULL ? make(r, cls, json) : NULL;
    }
    r->depth--;
    return m;
}

static void free_reader(reader *r)
{
    for (size_t i = 0; i < r->read.size; i++)
        eg_module_release((eg_module *)(uintptr_t)r->read.entries[i].key);
    eg__ptr_map_free(&r->read);
    eg__ptr_map_free(&r->extents);
    eg__map_free(&r->ids);
    eg__buf_free(&r->path);
}

/* `cls`: NULL = the value says. */
static eg_module *read_root(eg_context *ctx, const eg_class *cls, const json_t *json, const char *root)
{
    reader r = {.ctx = ctx};
    const eg__nn_state *state = eg__nn_state_of(ctx);
    size_t handles = state != NULL ? state->n_open_values : 0;
    r.n_before = state != NULL ? state->n_made : 0;
    eg__buf_printf(&r.path, "%s", root);
    eg_module *m = r.path.failed || state == NULL ? NULL : cls != NULL ? make(&r, cls, json) : read_module(&r, json);
    r.depth = 1;
    if (m != NULL && check_extent(&r, m) != EG_OK) {
        eg_module_release(m);
        m = NULL;
    }
    eg__open_forget(ctx, handles);
    free_reader(&r);
    return m;
}

eg_module *eg__module_from_json(eg_context *ctx, const json_t *json, const char *root)
{
    return read_root(ctx, NULL, json, root);
}

eg_module *eg__module_of_class_from_json(eg_context *ctx, const eg_class *cls, const json_t *json, const char *root)
{
    return read_root(ctx, cls, json, root);
}

static eg_module *from_text(eg_context *ctx, const char *text, size_t size)
{
    json_t *json = eg__json_parse(text, size, "model");
    eg_module *m = json != NULL ? eg__module_from_json(ctx, json, "model") : NULL;
    json_decref(json);
    return m;
}

eg_module *eg_module_from_json(eg_context *ctx, const char *json)
{
    if (ctx == NULL || json == NULL)
        return eg__null(__func__, ctx == NULL ? "context" : "text");
    return from_text(ctx, json, strlen(json));
}

eg_module *eg_module_load_json(eg_context *ctx, const char *path)
{
    if (ctx == NULL || path == NULL)
        return eg__null(__func__, ctx == NULL ? "context" : "path");
    char *text;
    size_t size;
    if (eg__file_read(path, EG__JSON_MAX_FILE, &text, &size) != EG_OK)
        return NULL;
    eg_module *m = from_text(ctx, text, size);
    eg_free(text);
    if (m == NULL)
        eg__fail_prefix(eg_error_last()->code, "'%s'", path);
    return m;
}
