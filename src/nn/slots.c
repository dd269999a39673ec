/*
 * Slots: the named children, parameters and buffers of a module.
 */
#include "nn/internal.h"

#include <stdlib.h>
#include <string.h>

/* Names are compared where their hashes are equal: a list of thousands of layers is searched for each that is added. */
static uint32_t hash_name(const char *name, size_t len)
{
    return (uint32_t)eg__hash(name, len, 0);
}

eg_slot *eg__slot_find(const eg_module *m, const char *name, size_t len)
{
    uint32_t hash = hash_name(name, len);
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->slots[i].hash == hash && strncmp(m->slots[i].name, name, len) == 0 && m->slots[i].name[len] == '\0')
            return &m->slots[i];
    }
    return NULL;
}

static eg_slot *find_child(const eg_module *m, const char *name, size_t len)
{
    eg_slot *slot = eg__slot_find(m, name, len);
    return slot != NULL && slot->kind == EG_SLOT_CHILD ? slot : NULL;
}

/* ---- adding ---- */

/* The module knows its first failure, so that a build function may check once, at its end. */
static eg_status remember(eg_module *m, eg_status status)
{
    if (m->status == EG_OK)
        m->status = status;
    return status;
}

static eg_slot *add(eg_module *m, const char *name, eg_slot_kind kind)
{
    if (name == NULL || *name == '\0' || strchr(name, '.') != NULL) {
        eg_fail(EG_EINVAL, "%s: '%s' is no name for a slot, expected one without '.'", m->cls->name,
                name == NULL ? "" : name);
        return NULL;
    }
    if (eg__slot_find(m, name, strlen(name)) != NULL) {
        eg_fail(EG_EINVAL, "%s: name '%s' is taken", m->cls->name, name);
        return NULL;
    }
    if (eg__grow(&m->slots, &m->slots_capacity, m->n_slots + 1, sizeof(*m->slots)) != EG_OK)
        return NULL;
    char *copy = eg__strdup(name);
    if (copy == NULL)
        return NULL;
    eg_slot *slot = &m->slots[m->n_slots++];
    memset(slot, 0, sizeof(*slot));
    slot->name = copy;
    slot->hash = hash_name(name, strlen(name));
    slot->kind = kind;
    return slot;
}

eg_slot *eg__slot_add_child(eg_module *m, const char *name, eg_module **field)
{
    eg_slot *slot = add(m, name, EG_SLOT_CHILD);
    if (slot != NULL) {
        slot->field.child = field;
        *eg__slot_child(slot) = NULL;
    }
    return slot;
}

eg_slot *eg__slot_add_tensor(eg_module *m, const char *name, eg_slot_kind kind, eg_tensor **field)
{
    eg_slot *slot = add(m, name, kind);
    if (slot != NULL) {
        slot->field.tensor = field;
        *eg__slot_tensor(slot) = NULL;
    }
    return slot;
}

/* A value that is NULL: its cause is prefixed with the slot's name, once. */
static eg_status missing(eg_module *m, const char *what, const char *name)
{
    eg_status cause = eg_error_last()->code;
    if (m->status != EG_OK)
        return m->status;
    if (cause == EG_OK)
        return remember(m, eg_fail(EG_EINVAL, "%s: %s '%s' is NULL", m->cls->name, what, name));
    return remember(m, eg__fail_prefix(cause, "%s: %s '%s' could not be made", m->cls->name, what, name));
}

/* A module inside itself would never be freed, and calling it would never end. A module that no slot has held yet can
 * be inside nothing. */
static eg_status check_no_cycle(eg_module *m, eg_module *child)
{
    bool found = m == child || (m->name != NULL && eg__module_contains(child, m));
    EG_CHECK(!found, EG_EINVAL, "%s: a module cannot contain itself", m->cls->name);
    return EG_OK;
}

static eg_status name_child(eg_module *child, const char *name)
{
    if (child->name == NULL)
        child->name = eg__strdup(name);
    return child->name == NULL ? EG_ENOMEM : EG_OK;
}

static eg_status put_new_child(eg_module *m, const char *name, eg_module **field, eg_module *child)
{
    EG_TRY(check_no_cycle(m, child));
    eg_slot *slot = eg__slot_add_child(m, name, field);
    if (slot == NULL)
        return eg_error_last()->code;
    EG_TRY(name_child(child, name));
    *eg__slot_child(slot) = eg_module_retain(child);
    return EG_OK;
}

eg_status eg_module_add_child(eg_module *m, const char *name, eg_module **field, eg_module *child)
{
    if (m == NULL) {
        eg_module_release(child);
        return eg_fail(EG_EINVAL, "module is NULL");
    }
    if (child == NULL)
        return missing(m, "child", name == NULL ? "" : name);
    eg_status status = put_new_child(m, name, field, child);
    if (status != EG_OK)
        remember(m, status);
    eg_module_release(child); /* it may be m itself, or the last to hold m */
    return status;
}

static eg_status add_tensor(eg_module *m, const char *name, eg_slot_kind kind, eg_tensor **field, eg_tensor *t)
{
    EG_CHECK(m != NULL, EG_EINVAL, "module is NULL");
    if (t == NULL)
        return missing(m, kind == EG_SLOT_PARAMETER ? "parameter" : "buffer", name == NULL ? "" : name);
    if (kind == EG_SLOT_PARAMETER && !eg_is_none(t)) {
        eg_status status = eg_tensor_set_requires_grad(t, true);
        if (status != EG_OK)
            return remember(m, eg__fail_prefix(status, "%s: parameter '%s'", m->cls->name, name == NULL ? "" : name));
    }
    eg_slot *slot = eg__slot_add_tensor(m, name, kind, field);
    if (slot == NULL)
        return remember(m, eg_error_last()->code);
    *eg__slot_tensor(slot) = eg_tensor_keep(t);
    return EG_OK;
}

eg_status eg_module_add_parameter(eg_module *m, const char *name, eg_tensor **field, eg_tensor *t)
{
    return add_tensor(m, name, EG_SLOT_PARAMETER, field, t);
}

eg_status eg_module_add_buffer(eg_module *m, const char *name, eg_tensor **field, eg_tensor *t)
{
    return add_tensor(m, name, EG_SLOT_BUFFER, field, t);
}

eg_status eg_module_status(const eg_module *m)
{
    return m == NULL ? EG_EINVAL : m->status;
}

static void empty_slot(eg_slot *slot)
{
    if (slot->kind == EG_SLOT_CHILD) {
        eg_module *child = *eg__slot_child(slot);
        *eg__slot_child(slot) = NULL;
        eg_module_release(child);
    } else {
        eg_tensor *t = *eg__slot_tensor(slot);
        *eg__slot_tensor(slot) = NULL;
        eg_tensor_release(t);
    }
}

void eg__slot_remove(eg_module *m, eg_slot *slot)
{
    eg_slot taken = *slot;
    memmove(slot, slot + 1, (m->n_slots - (size_t)(slot - m->slots) - 1) * sizeof(*slot));
    m->n_slots--;
    empty_slot(&taken);
    free(taken.name);
}

void eg__slots_free(eg_module *m, eg_module **dead)
{
    for (size_t i = m->n_slots; i-- > 0;) { /* so that the first child comes first in the list */
        eg_slot *slot = &m->slots[i];
        eg_module *child = slot->kind == EG_SLOT_CHILD ? *eg__slot_child(slot) : NULL;
        if (child != NULL && --child->refs == 0) {
            child->link = *dead;
            *dead = child;
        }
        if (child != NULL)
            *eg__slot_child(slot) = NULL;
        empty_slot(slot);
        free(slot->name);
    }
    free(m->slots);
    m->slots = NULL;
    m->n_slots = m->slots_capacity = 0;
}

/* ---- looking ---- */

size_t eg_module_n_children(const eg_module *m)
{
    size_t n = 0;
    for (size_t i = 0; m != NULL && i < m->n_slots; i++)
        n += m->slots[i].kind == EG_SLOT_CHILD;
    return n;
}

eg_module *eg_module_child_at(const eg_module *m, size_t i, const char **name)
{
    if (m == NULL)
        return eg__null(__func__, "module");
    for (size_t k = 0, child = 0; k < m->n_slots; k++) {
        if (m->slots[k].kind != EG_SLOT_CHILD || child++ != i)
            continue;
        if (name != NULL)
            *name = m->slots[k].name;
        return *eg__slot_child(&m->slots[k]);
    }
    eg_fail(EG_EINVAL, "%s has no child number %zu, it has %zu", m->cls->name, i, eg_module_n_children(m));
    return NULL;
}

/* Fails with the names of `m` that are nearest to the one looked for. `before` characters of `path` lead to m. */
static eg_status fail_no_slot(const eg_module *m, bool children, const char *path, size_t before, size_t len)
{
    const char *what = children ? "child" : "parameter or buffer", *name = path + before;
    char near[200] = "";
    const char **names = eg__calloc(m->n_slots + 1, sizeof(*names));
    if (names == NULL)
        return EG_ENOMEM;
    size_t n = 0;
    for (size_t i = 0; i < m->n_slots; i++) {
        if ((m->slots[i].kind == EG_SLOT_CHILD) == children)
            names[n++] = m->slots[i].name;
    }
    char *wanted = eg__format("%.*s", (int)len, name);
    if (wanted != NULL)
        eg_closest_name(wanted, names, n, near, sizeof(near));
    free(wanted);
    free(names);
    int lead = before == 0 ? 0 : (int)before - 1;
    return eg_fail(EG_ENOENT, "%s%s%.*s%s has no %s '%.*s'%s%s%s", m->cls->name, lead == 0 ? "" : " '", lead, path,
                   lead == 0 ? "" : "'", what, (int)len, name, *near == '\0' ? "" : " (did you mean ", near,
                   *near == '\0' ? "" : "?)");
}

/* The module that the first `len` characters of the path lead to. */
static eg_module *resolve(eg_module *m, const char *path, size_t len)
{
    size_t start = 0;
    for (bool more = len > 0; more;) {
        const char *dot = memchr(path + start, '.', len - start);
        more = dot != NULL;
        size_t part = dot == NULL ? len - start : (size_t)(dot - path) - start;
        eg_slot *slot = find_child(m, path + start, part);
        if (slot == NULL) {
            fail_no_slot(m, true, path, start, part);
            return NULL;
        }
        m = *eg__slot_child(slot);
        start += part + 1;
        if (m == NULL) {
            eg_fail(EG_ENOENT, "child '%.*s' is empty", (int)(start - 1), path);
            return NULL;
        }
    }
    return m;
}

eg_module *eg_module_find(eg_module *m, const char *path)
{
    if (m == NULL || path == NULL)
        return eg__null(__func__, m == NULL ? "module" : "path");
    return resolve(m, path, strlen(path));
}

eg_tensor *eg_module_tensor(eg_module *m, const char *path)
{
    if (m == NULL || path == NULL)
        return eg__null(__func__, m == NULL ? "module" : "path");
    const char *dot = strrchr(path, '.');
    size_t before = dot == NULL ? 0 : (size_t)(dot - path) + 1, len = strlen(path + before);
    eg_module *owner = resolve(m, path, dot == NULL ? 0 : before - 1);
    if (owner == NULL)
        return NULL;
    eg_slot *slot = eg__slot_find(owner, path + before, len);
    eg_tensor *t = slot == NULL || slot->kind == EG_SLOT_CHILD ? NULL : *eg__slot_tensor(slot);
    if (t == NULL) {
        fail_no_slot(owner, false, path, before, len);
        return NULL;
    }
    return t;
}

/* ---- changing ---- */

static eg_status check_replacement(eg_module *m, const char *name, eg_module *child)
{
    EG_CHECK(m != NULL && name != NULL, EG_EINVAL, "module or name is NULL");
    if (find_child(m, name, strlen(name)) == NULL)
        return fail_no_slot(m, true, name, 0, strlen(name));
    if (child == NULL)
        return EG_OK;
    EG_TRY(check_no_cycle(m, child));
    return name_child(child, name);
}

/* Takes `child` over; NULL empties. */
static eg_status replace_child(eg_module *m, const char *name, eg_module *child)
{
    eg_status status = check_replacement(m, name, child);
    if (status == EG_OK) {
        eg_slot *named = find_child(m, name, strlen(name));
        eg_module *old = eg_module_retain(*eg__slot_child(named));
        for (size_t i = 0; i < m->n_slots; i++) {
            eg_slot *slot = &m->slots[i];
            bool same = slot->kind == EG_SLOT_CHILD && old != NULL && *eg__slot_child(slot) == old;
            if (slot != named && !same)
                continue;
            empty_slot(slot);
            *eg__slot_child(slot) = eg_module_retain(child);
        }
        eg_module_release(old);
    }
    eg_module_release(child);
    return status;
}

eg_status eg__module_has_child(const eg_module *m, const char *name)
{
    return find_child(m, name, strlen(name)) != NULL ? EG_OK : fail_no_slot(m, true, name, 0, strlen(name));
}

eg_status eg__module_place(eg_module *m, const char *name, eg_module *child)
{
    eg_status status = eg__module_has_child(m, name);
    if (status == EG_OK && child != NULL)
        status = name_child(child, name);
    if (status == EG_OK) {
        eg_slot *slot = find_child(m, name, strlen(name));
        empty_slot(slot);
        *eg__slot_child(slot) = eg_module_retain(child);
    }
    eg_module_release(child);
    return status;
}

eg_status eg_module_set_child(eg_module *m, const char *name, eg_module *child)
{
    if (!child) {
        eg__null(__func__, "child");
        return eg_error_last()->code;
    }
    return replace_child(m, name, child);
}

eg_status eg_module_empty_child(eg_module *m, const char *name)
{
    return replace_child(m, name, NULL);
}

eg_status eg_module_remove_child(eg_module *m, const char *name)
{
    EG_TRY(check_replacement(m, name, NULL));
    eg__slot_remove(m, find_child(m, name, strlen(name)));
    return EG_OK;
}
