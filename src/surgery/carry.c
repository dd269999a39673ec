/*
 * What a new module takes over from the one whose place it takes.
 *
 * Tensors of the same name and shape are taken over as they are, not copied: their gradients, the modules that share
 * them and the optimizers' states need no further thought. The old module keeps them too, for undo.
 */
#include "surgery/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- the modules that are new ---- */

static eg_status add_new(eg__new_modules *list, eg_module *m, const char *parent, const char *name)
{
    EG_TRY(eg__grow(&list->items, &list->capacity, list->n + 1, sizeof(*list->items)));
    size_t at = list->paths.len;
    eg__buf_printf(&list->paths, "%s%s%s", parent, *parent == '\0' ? "" : ".", name);
    eg__buf_append(&list->paths, "", 1);
    list->items[list->n++] = (struct eg__new_module){m, at};
    return list->paths.failed ? EG_ENOMEM : EG_OK;
}

/* Only what something else holds too can be known already. */
static eg_status is_known(eg__model_graph *graph, eg__new_modules *list, const eg_module *m, bool *known)
{
    *known = false;
    for (size_t i = 0; i < list->n && m->refs > 1 && !*known; i++)
        *known = list->items[i].module == m;
    uint32_t vertex = EG__NO_VERTEX;
    if (m->refs > 1 && !*known)
        EG_TRY(eg__model_graph_find(graph, m, &vertex));
    *known = *known || vertex != EG__NO_VERTEX;
    list->holds_model = list->holds_model || vertex != EG__NO_VERTEX;
    return EG_OK;
}

eg_status eg__new_modules_find(eg__model_graph *graph, eg_module *fresh, eg__new_modules *out)
{
    *out = (eg__new_modules){0};
    uint32_t vertex = EG__NO_VERTEX;
    if (fresh->refs > 1)
        EG_TRY(eg__model_graph_find(graph, fresh, &vertex));
    out->holds_model = vertex != EG__NO_VERTEX;
    if (!out->holds_model)
        EG_TRY(add_new(out, fresh, "", ""));
    for (size_t i = 0; i < out->n; i++) {
        const eg_module *m = out->items[i].module;
        for (size_t k = 0; k < m->n_slots; k++) {
            eg_module *child = m->slots[k].kind == EG_SLOT_CHILD ? *eg__slot_child(&m->slots[k]) : NULL;
            bool known = true;
            if (child != NULL)
                EG_TRY(is_known(graph, out, child, &known));
            if (known)
                continue;
            char *parent = eg__strdup(out->paths.data + out->items[i].path);
            eg_status status = parent != NULL ? add_new(out, child, parent, m->slots[k].name) : EG_ENOMEM;
            free(parent);
            EG_TRY(status);
        }
    }
    return EG_OK;
}

void eg__new_modules_free(eg__new_modules *modules)
{
    free(modules->items);
    eg__buf_free(&modules->paths);
}

/* ---- what they take over ---- */

eg_module *eg__module_below(eg_module *m, const char *path)
{
    while (m != NULL && *path != '\0') {
        const char *dot = strchr(path, '.');
        size_t len = dot != NULL ? (size_t)(dot - path) : strlen(path);
        eg_slot *slot = eg__slot_find(m, path, len);
        m = slot != NULL && slot->kind == EG_SLOT_CHILD ? *eg__slot_child(slot) : NULL;
        path += len + (dot != NULL);
    }
    return m;
}

eg_module *eg__share_tensors(eg_module *to, const eg_module *from)
{
    for (size_t i = 0; to != NULL && i < to->n_slots; i++) {
        eg_slot *slot = &to->slots[i], *source = eg__slot_find(from, slot->name, strlen(slot->name));
        if (slot->kind == EG_SLOT_CHILD || source == NULL || source->kind != slot->kind)
            continue;
        eg_tensor_release(*eg__slot_tensor(slot));
        *eg__slot_tensor(slot) = eg_tensor_keep(*eg__slot_tensor(source));
    }
    return to;
}

/* Whether nothing in it is trained, though there is something that could be. */
static eg_status check_frozen(eg_module *m, bool *frozen)
{
    eg__model_graph below = {0};
    size_t n = 0;
    *frozen = true;
    eg_status status = eg__model_graph_build(&below, m);
    for (size_t i = 0; i < below.n_vertices && status == EG_OK; i++) {
        const eg_module *at = below.vertices[i].module;
        for (size_t k = 0; k < at->n_slots; k++) {
            eg_tensor *t = at->slots[k].kind == EG_SLOT_PARAMETER ? *eg__slot_tensor(&at->slots[k]) : NULL;
            if (t == NULL || eg_is_none(t))
                continue;
            n++;
            *frozen = *frozen && !t->requires_grad;
        }
    }
    eg__model_graph_free(&below);
    *frozen = *frozen && n > 0;
    return status;
}

static bool is_number(const eg_tensor *t)
{
    return t != NULL && !eg_is_none(t);
}

static void carry_tensor(const eg__replacement *r, eg_slot *slot, const eg_module *from, bool frozen)
{
    eg_tensor **to = eg__slot_tensor(slot);
    const eg_slot *source = from != NULL ? eg__slot_find(from, slot->name, strlen(slot->name)) : NULL;
    eg_tensor *had = source != NULL && source->kind == slot->kind ? *eg__slot_tensor((eg_slot *)source) : NULL;
    if (!is_number(*to) || *to == had)
        return;
    bool parameter = slot->kind == EG_SLOT_PARAMETER;
    bool same = is_number(had) && eg_shape_equal(had->shape, (*to)->shape);
    if (same && !(r->without & (parameter ? EG_CARRY_WEIGHTS : EG_CARRY_BUFFERS))) {
        eg_tensor_release(*to);
        *to = eg_tensor_keep(had);
        return;
    }
    if (parameter && !(r->without & EG_CARRY_REQUIRES_GRAD) && (*to)->refs == 1)
        (*to)->requires_grad = is_number(had) ? had->requires_grad : !frozen;
}

static bool has_hook(const eg_module *m, uint64_t id)
{
    bool has = false;
    for (size_t i = 0; i < m->n_hooks && !has; i++)
        has = m->hooks[i].id == id;
    return has;
}

/* A new module that was planned before, and dropped, has them already. */
static eg_status carry_hooks(const eg_module *old, eg_module *fresh)
{
    EG_TRY(eg__grow(&fresh->hooks, &fresh->hooks_capacity, fresh->n_hooks + old->n_hooks, sizeof(*fresh->hooks)));
    for (size_t i = 0; i < old->n_hooks; i++) {
        if (!has_hook(fresh, old->hooks[i].id))
            fresh->hooks[fresh->n_hooks++] = old->hooks[i];
    }
    return EG_OK;
}

static bool has_parameters(const eg_module *m)
{
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->slots[i].kind == EG_SLOT_PARAMETER)
            return true;
    }
    return false;
}

static eg_status carry_all(const eg__replacement *r, const eg__new_modules *list)
{
    eg_module *old = r->old;
    bool any = false, frozen = false;
    for (size_t i = 0; i < list->n && !any; i++)
        any = has_parameters(list->items[i].module);
    if (any)
        EG_TRY(check_frozen(r->old, &frozen));
    for (size_t i = 0; i < list->n; i++) {
        eg_module *m = list->items[i].module;
        const eg_module *from = eg__module_below(old, list->paths.data + list->items[i].path);
        if (!(r->without & EG_CARRY_TRAINING))
            m->training = old->training;
        for (size_t k = 0; k < m->n_slots; k++) {
            if (m->slots[k].kind != EG_SLOT_CHILD)
                carry_tensor(r, &m->slots[k], from, frozen);
        }
    }
    return EG_OK;
}

/* Whether the new module holds the old one, which then goes on running its hooks. */
static eg_status does_wrap(const eg__replacement *r, bool *wraps)
{
    *wraps = false;
    if (r->old->n_hooks == 0)
        return EG_OK;
    eg__model_graph below = {0};
    uint32_t vertex = EG__NO_VERTEX;
    eg_status status = eg__model_graph_build(&below, r->fresh);
    if (status == EG_OK)
        status = eg__model_graph_find(&below, r->old, &vertex);
    eg__model_graph_free(&below);
    *wraps = vertex != EG__NO_VERTEX;
    return status;
}

eg_status eg__surgery_carry(eg_surgery *s, eg__model_graph *graph, const eg__replacement *r)
{
    eg_module *old = r->old, *fresh = r->fresh;
    if (old == fresh)
        return EG_OK;
    if (fresh->n_slots == 0 && old->n_hooks == 0 && fresh->refs == 1) { /* nothing but a flag */
        fresh->training = r->without & EG_CARRY_TRAINING ? fresh->training : old->training;
        return EG_OK;
    }
    eg__new_modules list;
    bool wraps = false;
    eg_status status = eg__new_modules_find(graph, fresh, &list);
    s->has_wrapped = s->has_wrapped || list.holds_model;
    if (status == EG_OK)
        status = carry_all(r, &list);
    if (status == EG_OK)
        status = does_wrap(r, &wraps);
    if (status == EG_OK && !wraps && old->n_hooks > 0 && list.n > 0 && !(r->without & EG_CARRY_HOOKS))
        status = carry_hooks(old, fresh);
    eg__new_modules_free(&list);
    return status;
}
