/*
 * Deep copies.
 */
#include "nn/internal.h"

#include <stdlib.h>

/* A module whose copy is under way: a step of the way from the root, in the place of recursion. */
typedef struct step {
    eg_module *src, *dst; /* dst is held by the copy of the module before it */
    size_t next_slot;
} step;

typedef struct cloning {
    eg__ptr_map modules, tensors; /* originals -> copies: what is shared inside the model is so inside the copy */
    step *steps;
    size_t n, capacity;
} cloning;

/* The same place in the copy's struct; NULL (the slot keeps the pointer) for a field outside of the struct. */
static void *same_place(eg_module *dst, const eg_module *src, const void *field)
{
    uintptr_t start = (uintptr_t)src, place = (uintptr_t)field;
    if (place < start || place >= start + src->cls->instance_size)
        return NULL;
    return (char *)dst + (place - start);
}

/* A reference to the copy of t. */
static eg_tensor *copy_tensor(cloning *c, eg_tensor *t)
{
    if (t == NULL || eg_is_none(t))
        return t;
    void **known = eg__ptr_map_find(&c->tensors, t);
    if (known != NULL)
        return eg_tensor_keep(*known);
    eg_tensor *copy = eg_tensor_keep(eg_tensor_copy(t));
    if (copy == NULL)
        return NULL;
    if (eg_tensor_set_requires_grad(copy, eg_tensor_requires_grad(t)) != EG_OK ||
        eg__ptr_map_put(&c->tensors, t, copy) != EG_OK) {
        eg_tensor_release(copy);
        return NULL;
    }
    return copy;
}

/* A reference to the copy of src, which is empty at first: a step fills it. */
static eg_module *begin_copy(cloning *c, eg_module *src)
{
    void **known = eg__ptr_map_find(&c->modules, src);
    if (known != NULL)
        return eg_module_retain(*known);
    eg_module *dst = NULL;
    if (eg__grow(&c->steps, &c->capacity, c->n + 1, sizeof(*c->steps)) == EG_OK)
        dst = eg__calloc(1, src->cls->instance_size);
    if (dst == NULL)
        return NULL;
    *dst = (eg_module){.cls = src->cls, .refs = 1, .training = src->training, .ctx = src->ctx};
    if (eg__fields_copy(dst, src) != EG_OK || eg__ptr_map_put(&c->modules, src, dst) != EG_OK) {
        eg_module_release(dst);
        return NULL;
    }
    c->steps[c->n++] = (step){.src = src, .dst = dst};
    return dst;
}

static eg_status copy_child(cloning *c, eg_module *dst, const eg_module *src, eg_slot *slot)
{
    eg_slot *made = eg__slot_add_child(dst, slot->name, same_place(dst, src, slot->field.child));
    if (made == NULL)
        return eg_error_last()->code;
    eg_module *child = *eg__slot_child(slot);
    if (child == NULL)
        return EG_OK;
    eg_module *copy = begin_copy(c, child);
    if (copy == NULL)
        return eg_error_last()->code;
    *eg__slot_child(made) = copy;
    if (copy->name == NULL)
        copy->name = eg__strdup(slot->name);
    return copy->name == NULL ? EG_ENOMEM : EG_OK;
}

static eg_status copy_tensor_slot(cloning *c, eg_module *dst, const eg_module *src, eg_slot *slot)
{
    eg_slot *made = eg__slot_add_tensor(dst, slot->name, slot->kind, same_place(dst, src, slot->field.tensor));
    if (made == NULL)
        return eg_error_last()->code;
    eg_tensor *t = *eg__slot_tensor(slot);
    *eg__slot_tensor(made) = copy_tensor(c, t);
    return t != NULL && *eg__slot_tensor(made) == NULL ? eg_error_last()->code : EG_OK;
}

/* What is copied when all slots are there, filled. */
static eg_status finish_copy(eg_module *dst, eg_module *src)
{
    EG_TRY(eg__reparams_copy(dst, src));
    if (src->open != NULL)
        EG_TRY(eg__open_make(dst));
    for (const eg_class *c = src->cls; c != NULL; c = c->super) {
        if (c->copy != NULL)
            return c->copy(dst, src);
    }
    return EG_OK;
}

/* Children are finished before the next slot of their parent. */
static eg_status next_step(cloning *c)
{
    step *last = &c->steps[c->n - 1];
    eg_module *src = last->src, *dst = last->dst;
    if (last->next_slot == src->n_slots) {
        c->n--;
        return finish_copy(dst, src);
    }
    eg_slot *slot = &src->slots[last->next_slot++];
    return slot->kind == EG_SLOT_CHILD ? copy_child(c, dst, src, slot) : copy_tensor_slot(c, dst, src, slot);
}

static eg_module *copy_all(cloning *c, eg_module *m)
{
    eg_module *copy = begin_copy(c, m);
    eg_status status = copy != NULL ? EG_OK : EG_ENOMEM;
    while (status == EG_OK && c->n > 0)
        status = next_step(c);
    if (status == EG_OK)
        return copy;
    eg_module_release(copy);
    return NULL;
}

eg_module *eg_module_clone(eg_module *m)
{
    if (m == NULL)
        return eg__null(__func__, "module");
    size_t mark = eg__scope_enter(m->ctx);
    if (mark == SIZE_MAX)
        return NULL;
    cloning c = {0};
    eg_module *copy = copy_all(&c, m);
    eg__scope_leave(m->ctx, mark, NULL);
    eg__ptr_map_free(&c.modules);
    eg__ptr_map_free(&c.tensors);
    free(c.steps);
    return copy;
}
