/*
 * Deep copies.
 */
#include "nn/internal.h"

#include <string.h>

/* Originals -> copies, so that what is shared inside the model is shared likewise inside the copy. */
typedef struct memo {
    eg__ptr_map modules, tensors;
} memo;

/* The same place in the copy's struct; NULL (the slot keeps the pointer) for a field outside of the struct. */
static void *same_place(eg_module *dst, const eg_module *src, const void *field)
{
    uintptr_t start = (uintptr_t)src, place = (uintptr_t)field;
    if (place < start || place >= start + src->cls->instance_size)
        return NULL;
    return (char *)dst + (place - start);
}

/* A reference to the copy of t. */
static eg_tensor *copy_tensor(memo *seen, eg_tensor *t)
{
    if (t == NULL || eg_is_none(t))
        return t;
    void **known = eg__ptr_map_find(&seen->tensors, t);
    if (known != NULL)
        return eg_tensor_keep(*known);
    eg_tensor *copy = eg_tensor_keep(eg_tensor_copy(t));
    if (copy == NULL)
        return NULL;
    if (eg_tensor_set_requires_grad(copy, eg_tensor_requires_grad(t)) != EG_OK ||
        eg__ptr_map_put(&seen->tensors, t, copy) != EG_OK) {
        eg_tensor_release(copy);
        return NULL;
    }
    return copy;
}

static eg_module *copy_module(memo *seen, eg_module *src);

static eg_status copy_slot(memo *seen, eg_module *dst, const eg_module *src, eg_slot *slot)
{
    if (slot->kind == EG_SLOT_CHILD) {
        eg_slot *made = eg__slot_add_child(dst, slot->name, same_place(dst, src, slot->field.child));
        if (made == NULL)
            return eg_error_last()->code;
        eg_module *child = *eg__slot_child(slot);
        if (child == NULL)
            return EG_OK;
        eg_module *copy = copy_module(seen, child);
        if (copy == NULL)
            return eg_error_last()->code;
        *eg__slot_child(made) = copy;
        if (copy->name == NULL)
            copy->name = eg__strdup(slot->name);
        return copy->name == NULL ? EG_ENOMEM : EG_OK;
    }
    eg_slot *made = eg__slot_add_tensor(dst, slot->name, slot->kind, same_place(dst, src, slot->field.tensor));
    if (made == NULL)
        return eg_error_last()->code;
    eg_tensor *t = *eg__slot_tensor(slot);
    *eg__slot_tensor(made) = copy_tensor(seen, t);
    return t != NULL && *eg__slot_tensor(made) == NULL ? eg_error_last()->code : EG_OK;
}

static eg_status copy_contents(memo *seen, eg_module *dst, eg_module *src)
{
    EG_TRY(eg__fields_copy(dst, src));
    for (size_t i = 0; i < src->n_slots; i++)
        EG_TRY(copy_slot(seen, dst, src, &src->slots[i]));
    EG_TRY(eg__reparams_copy(dst, src));
    if (src->open != NULL)
        EG_TRY(eg__open_make(dst));
    for (const eg_class *c = src->cls; c != NULL; c = c->super) {
        if (c->copy != NULL)
            return c->copy(dst, src);
    }
    return EG_OK;
}

/* A reference to the copy of src. */
static eg_module *copy_module(memo *seen, eg_module *src)
{
    void **known = eg__ptr_map_find(&seen->modules, src);
    if (known != NULL)
        return eg_module_retain(*known);
    eg_module *dst = eg__calloc(1, src->cls->instance_size);
    if (dst == NULL)
        return NULL;
    *dst = (eg_module){.cls = src->cls, .refs = 1, .training = src->training, .ctx = src->ctx};
    if (copy_contents(seen, dst, src) != EG_OK || eg__ptr_map_put(&seen->modules, src, dst) != EG_OK) {
        eg_module_release(dst);
        return NULL;
    }
    return dst;
}

eg_module *eg_module_clone(eg_module *m)
{
    if (m == NULL)
        return eg__null(__func__, "module");
    size_t mark = eg__scope_enter(m->ctx);
    if (mark == SIZE_MAX)
        return NULL;
    memo seen = {0};
    eg_module *copy = copy_module(&seen, m);
    eg__scope_leave(m->ctx, mark, NULL);
    eg__ptr_map_free(&seen.modules);
    eg__ptr_map_free(&seen.tensors);
    return copy;
}
