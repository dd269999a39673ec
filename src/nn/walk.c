/*
 * Walks over the graph of modules, and what is done with one. None is recursive: a chain of modules may be longer than
 * the C stack.
 */
#include "nn/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- walks that call a visitor ---- */

/* A module on the way from the root to where the walk is. */
typedef struct step {
    eg_module *module; /* held */
    size_t next_slot;
    size_t path_len; /* of its path */
} step;

typedef struct walk {
    bool each_path;   /* else each module once, under its first path */
    eg__ptr_map seen; /* not with each_path */
    eg__buf path;
    step *steps;
    size_t n, capacity;
    eg_status (*arrive)(struct walk *w, eg_module *m);
    eg_visit_fn visit; /* one of the two */
    eg_visit_tensor_fn visit_tensor;
    void *payload;
} walk;

/* The path of a part, "layers" + "0"; leave() puts the path back. */
static eg_status enter(eg__buf *path, const char *name)
{
    if (path->len > 0)
        eg__buf_append(path, ".", 1);
    eg__buf_append(path, name, strlen(name));
    return path->failed ? EG_ENOMEM : EG_OK;
}

static void leave(eg__buf *path, size_t len)
{
    path->len = len;
    if (path->data != NULL)
        path->data[len] = '\0';
}

static const char *text_of(const eg__buf *path)
{
    return path->len == 0 ? "" : path->data;
}

static eg_status begin_step(walk *w, eg_module *m)
{
    bool added = true;
    if (!w->each_path)
        EG_TRY(eg__ptr_map_add(&w->seen, m, &added));
    if (!added)
        return EG_OK;
    EG_TRY(eg__grow(&w->steps, &w->capacity, w->n + 1, sizeof(*w->steps)));
    w->steps[w->n++] = (step){.module = eg_module_retain(m), .path_len = w->path.len};
    return w->arrive(w, m);
}

/* The visitor may change the slots of modules, or let go of them: slots are looked at anew each time, and the modules on
 * the way are held. */
static eg_status next_step(walk *w)
{
    step *last = &w->steps[w->n - 1];
    leave(&w->path, last->path_len);
    if (last->next_slot >= last->module->n_slots) {
        w->n--;
        eg_module_release(last->module);
        return EG_OK;
    }
    eg_slot *slot = &last->module->slots[last->next_slot++];
    if (slot->kind != EG_SLOT_CHILD || *eg__slot_child(slot) == NULL)
        return EG_OK;
    EG_TRY(enter(&w->path, slot->name));
    return begin_step(w, *eg__slot_child(slot));
}

static eg_status run(walk *w, eg_module *m)
{
    eg_status status = begin_step(w, m);
    while (status == EG_OK && w->n > 0)
        status = next_step(w);
    while (w->n > 0)
        eg_module_release(w->steps[--w->n].module);
    free(w->steps);
    eg__ptr_map_free(&w->seen);
    eg__buf_free(&w->path);
    return status;
}

static eg_status visit_module(walk *w, eg_module *m)
{
    return w->visit(w->payload, text_of(&w->path), m);
}

eg_status eg_module_walk(eg_module *m, eg_visit_fn visit, void *payload)
{
    EG_CHECK(m != NULL && visit != NULL, EG_EINVAL, "module or function is NULL");
    return run(&(walk){.arrive = visit_module, .visit = visit, .payload = payload}, m);
}

/* Here too no slot is used after the visitor. */
static eg_status visit_slot(walk *w, eg_slot *slot)
{
    eg_tensor *t = *eg__slot_tensor(slot);
    if (t == NULL || eg_is_none(t))
        return EG_OK;
    EG_TRY(enter(&w->path, slot->name));
    eg_tensor_keep(t);
    eg_status status = w->visit_tensor(w->payload, text_of(&w->path), slot->kind, t);
    eg_tensor_release(t);
    return status;
}

static eg_status visit_tensors(walk *w, eg_module *m)
{
    static const eg_slot_kind kinds[] = {EG_SLOT_PARAMETER, EG_SLOT_BUFFER};
    size_t len = w->path.len;
    for (size_t k = 0; k < EG_COUNT(kinds); k++) {
        for (size_t i = 0; i < m->n_slots; i++) {
            if (m->slots[i].kind == kinds[k])
                EG_TRY(visit_slot(w, &m->slots[i]));
            leave(&w->path, len);
        }
    }
    return EG_OK;
}

eg_status eg_module_walk_tensors(eg_module *m, eg_visit_tensor_fn visit, void *payload)
{
    EG_CHECK(m != NULL && visit != NULL, EG_EINVAL, "module or function is NULL");
    return run(&(walk){.each_path = true, .arrive = visit_tensors, .visit_tensor = visit, .payload = payload}, m);
}

eg_status eg__module_walk_tensors_once(eg_module *m, eg_visit_tensor_fn visit, void *payload)
{
    EG_CHECK(m != NULL && visit != NULL, EG_EINVAL, "module or function is NULL");
    return run(&(walk){.arrive = visit_tensors, .visit_tensor = visit, .payload = payload}, m);
}

/* ---- walks without anything to fail ----
 * The modules are linked by a member of their own, in a ring of m and all below it, each once. No code of others runs
 * meanwhile. */

static void link_all(eg_module *m)
{
    eg_module *last = m, *at = m;
    m->link = m;
    do {
        for (size_t i = 0; i < at->n_slots; i++) {
            eg_module *child = at->slots[i].kind == EG_SLOT_CHILD ? *eg__slot_child(&at->slots[i]) : NULL;
            if (child == NULL || child->link != NULL)
                continue;
            child->link = m;
            last->link = child;
            last = child;
        }
        at = at->link;
    } while (at != m);
}

/* Takes a module out of the ring that begins with it, and returns the next; NULL after the last. */
static eg_module *unlink_next(eg_module *m)
{
    eg_module *next = m->link;
    m->link = NULL;
    return next->link == NULL ? NULL : next;
}

void eg__module_each(eg_module *m, void (*function)(void *payload, eg_module *m), void *payload)
{
    link_all(m);
    for (eg_module *next; m != NULL; m = next) {
        next = unlink_next(m);
        function(payload, m);
    }
}

bool eg__module_contains(eg_module *m, const eg_module *other)
{
    link_all(m);
    bool contains = other->link != NULL;
    while (m != NULL)
        m = unlink_next(m);
    return contains;
}

static void train(void *training, eg_module *m)
{
    m->training = *(bool *)training;
}

void eg_module_train(eg_module *m, bool training)
{
    if (m != NULL)
        eg__module_each(m, train, &training);
}

static bool is_parameter(eg_slot *slot)
{
    return slot->kind == EG_SLOT_PARAMETER && *eg__slot_tensor(slot) != NULL && !eg_is_none(*eg__slot_tensor(slot));
}

static void set_requires_grad(void *requires_grad, eg_module *m)
{
    for (size_t i = 0; i < m->n_slots; i++) {
        if (is_parameter(&m->slots[i]))
            eg_tensor_set_requires_grad(*eg__slot_tensor(&m->slots[i]), *(bool *)requires_grad);
    }
}

void eg_module_set_requires_grad(eg_module *m, bool requires_grad)
{
    if (m != NULL)
        eg__module_each(m, set_requires_grad, &requires_grad);
}

static void zero_grad(void *unused, eg_module *m)
{
    (void)unused;
    for (size_t i = 0; i < m->n_slots; i++) {
        if (is_parameter(&m->slots[i]))
            eg_tensor_zero_grad(*eg__slot_tensor(&m->slots[i]));
    }
}

void eg_module_zero_grad(eg_module *m)
{
    if (m != NULL)
        eg__module_each(m, zero_grad, NULL);
}

/* ---- number of parameters ---- */

typedef struct count {
    eg__ptr_map seen;
    int64_t n;
    eg_status status;
} count;

static void count_parameters(void *payload, eg_module *m)
{
    count *c = payload;
    for (size_t i = 0; c->status == EG_OK && i < m->n_slots; i++) {
        bool added = false;
        if (is_parameter(&m->slots[i]))
            c->status = eg__ptr_map_add(&c->seen, *eg__slot_tensor(&m->slots[i]), &added);
        if (added)
            c->n += eg_tensor_numel(*eg__slot_tensor(&m->slots[i]));
    }
}

int64_t eg_module_n_parameters(eg_module *m)
{
    count c = {0};
    if (m == NULL)
        c.status = eg_fail(EG_EINVAL, "module is NULL");
    else
        eg__module_each(m, count_parameters, &c);
    eg__ptr_map_free(&c.seen);
    return c.status == EG_OK ? c.n : -1;
}
