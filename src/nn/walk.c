/*
 * Walks over the tree of modules, and what is done with one.
 */
#include "nn/internal.h"

#include <stdlib.h>

/* The path of a part, "layers" + "0"; `path` is put back by cutting it at its old length. */
static eg_status enter(eg__buf *path, const char *name)
{
    eg__buf_printf(path, path->len == 0 ? "%s" : ".%s", name);
    return path->failed ? EG_ENOMEM : EG_OK;
}

static const char *text_of(const eg__buf *path)
{
    return path->len == 0 ? "" : path->data;
}

static void leave(eg__buf *path, size_t len)
{
    path->len = len;
    if (path->data != NULL)
        path->data[len] = '\0';
}

typedef struct walk {
    eg__ptr_map seen;
    eg__buf path;
    eg_visit_fn visit;
    void *payload;
} walk;

static eg_status walk_module(walk *w, eg_module *m)
{
    bool added;
    EG_TRY(eg__ptr_map_add(&w->seen, m, &added));
    if (!added)
        return EG_OK;
    eg_module_retain(m);
    eg_status status = w->visit(w->payload, text_of(&w->path), m);
    size_t len = w->path.len;
    /* The visitor may change the slots of m, or let go of m: they are looked at anew each time, and m is held. */
    for (size_t i = 0; status == EG_OK && i < m->n_slots; i++) {
        if (m->slots[i].kind != EG_SLOT_CHILD || *eg__slot_child(&m->slots[i]) == NULL)
            continue;
        status = enter(&w->path, m->slots[i].name);
        if (status == EG_OK)
            status = walk_module(w, *eg__slot_child(&m->slots[i]));
        leave(&w->path, len);
    }
    eg_module_release(m);
    return status;
}

eg_status eg_module_walk(eg_module *m, eg_visit_fn visit, void *payload)
{
    EG_CHECK(m != NULL && visit != NULL, EG_EINVAL, "module or function is NULL");
    walk w = {.visit = visit, .payload = payload};
    eg_status status = walk_module(&w, m);
    eg__ptr_map_free(&w.seen);
    eg__buf_free(&w.path);
    return status;
}

/* ---- tensors ---- */

typedef struct tensor_walk {
    eg__buf path;
    eg_visit_tensor_fn visit;
    void *payload;
} tensor_walk;

static eg_status walk_slots(tensor_walk *w, eg_module *m, eg_slot_kind kind);

/* Here too the visitor may change the tree: what is visited is held, and no slot is used after it. */
static eg_status walk_tensors(tensor_walk *w, eg_module *m)
{
    eg_module_retain(m);
    eg_status status = walk_slots(w, m, EG_SLOT_PARAMETER);
    if (status == EG_OK)
        status = walk_slots(w, m, EG_SLOT_BUFFER);
    if (status == EG_OK)
        status = walk_slots(w, m, EG_SLOT_CHILD);
    eg_module_release(m);
    return status;
}

static eg_status walk_slot(tensor_walk *w, eg_slot *slot)
{
    if (slot->kind == EG_SLOT_CHILD) {
        eg_module *child = *eg__slot_child(slot);
        return child == NULL ? EG_OK : walk_tensors(w, child);
    }
    eg_tensor *t = *eg__slot_tensor(slot);
    if (t == NULL || eg_is_none(t))
        return EG_OK;
    eg_tensor_keep(t);
    eg_status status = w->visit(w->payload, text_of(&w->path), slot->kind, t);
    eg_tensor_release(t);
    return status;
}

static eg_status walk_slots(tensor_walk *w, eg_module *m, eg_slot_kind kind)
{
    size_t len = w->path.len;
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->slots[i].kind != kind)
            continue;
        EG_TRY(enter(&w->path, m->slots[i].name));
        EG_TRY(walk_slot(w, &m->slots[i]));
        leave(&w->path, len);
    }
    return EG_OK;
}

eg_status eg_module_walk_tensors(eg_module *m, eg_visit_tensor_fn visit, void *payload)
{
    EG_CHECK(m != NULL && visit != NULL, EG_EINVAL, "module or function is NULL");
    tensor_walk w = {.visit = visit, .payload = payload};
    eg_status status = walk_tensors(&w, m);
    eg__buf_free(&w.path);
    return status;
}

/* ---- walks without anything to fail ----
 * Modes are set along every path: a module in several slots is set as often, to the same. */

void eg_module_train(eg_module *m, bool training)
{
    if (m == NULL)
        return;
    m->training = training;
    for (size_t i = 0; i < m->n_slots; i++) {
        if (m->slots[i].kind == EG_SLOT_CHILD)
            eg_module_train(*eg__slot_child(&m->slots[i]), training);
    }
}

static void each_parameter(eg_module *m, void (*function)(eg_tensor *t, bool flag), bool flag)
{
    for (size_t i = 0; m != NULL && i < m->n_slots; i++) {
        eg_slot *slot = &m->slots[i];
        if (slot->kind == EG_SLOT_CHILD)
            each_parameter(*eg__slot_child(slot), function, flag);
        else if (slot->kind == EG_SLOT_PARAMETER && !eg_is_none(*eg__slot_tensor(slot)))
            function(*eg__slot_tensor(slot), flag);
    }
}

static void set_requires_grad(eg_tensor *t, bool requires_grad)
{
    eg_tensor_set_requires_grad(t, requires_grad);
}

static void zero_grad(eg_tensor *t, bool unused)
{
    (void)unused;
    eg_tensor_zero_grad(t);
}

void eg_module_set_requires_grad(eg_module *m, bool requires_grad)
{
    each_parameter(m, set_requires_grad, requires_grad);
}

void eg_module_zero_grad(eg_module *m)
{
    each_parameter(m, zero_grad, false);
}

/* ---- number of parameters ---- */

typedef struct count {
    eg__ptr_map seen;
    int64_t n;
} count;

static eg_status count_tensor(void *payload, const char *path, eg_slot_kind kind, eg_tensor *t)
{
    count *c = payload;
    (void)path;
    bool added = false;
    if (kind == EG_SLOT_PARAMETER)
        EG_TRY(eg__ptr_map_add(&c->seen, t, &added));
    if (added)
        c->n += eg_tensor_numel(t);
    return EG_OK;
}

int64_t eg_module_n_parameters(eg_module *m)
{
    count c = {0};
    eg_status status = eg_module_walk_tensors(m, count_tensor, &c);
    eg__ptr_map_free(&c.seen);
    return status == EG_OK ? c.n : -1;
}
