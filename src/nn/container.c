/*
 * Sequential and ModuleList.
 */
#include "nn/internal.h"

static bool fuses(const eg_module *norm, const eg_module *relu)
{
    return norm->cls == &eg_batch_norm2d_class && relu->cls == &eg_relu_class && norm->n_hooks == 0 &&
           relu->n_hooks == 0;
}

/* The child in the first filled slot from *i on, which moves behind it; NULL at the end. */
static eg_module *next_child(const eg_module *m, size_t *i)
{
    while (*i < m->n_slots) {
        eg_slot *slot = &m->slots[(*i)++];
        if (slot->kind == EG_SLOT_CHILD && *eg__slot_child(slot) != NULL)
            return *eg__slot_child(slot);
    }
    return NULL;
}

/* A batch norm followed by ReLU is one operation, unless somebody looks between them. */
static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    const eg__autograd *autograd = eg__autograd_of(self->ctx);
    if (autograd == NULL)
        return NULL;
    eg_tensor *x = in[0];
    eg_module *child;
    for (size_t i = 0; x != NULL && (child = next_child(self, &i)) != NULL;) {
        size_t after = i;
        const eg_module *next = autograd->sink == NULL ? next_child(self, &after) : NULL;
        bool fused = next != NULL && fuses(child, next);
        eg_tensor *y = eg__module_call_with(
            child, fused ? eg__batch_norm2d_forward_relu : eg__class_forward(child->cls), (eg_tensor *const[]){x}, 1);
        if (fused)
            i = after;
        /* Without a tape nobody needs the value between two children any more. */
        if (x != in[0] && x != y && !eg_is_recording(self->ctx))
            eg__scope_drop(x);
        x = y;
    }
    return x;
}

EG_NAMED_CLASS(eg_sequential, "Sequential", .forward = forward,
               .fields = EG_FIELDS(EG_MODULES_FIELD(eg_sequential), EG_NAMED_FIELD(eg_sequential)));

EG_NAMED_CLASS(eg_module_list, "ModuleList",
               .fields = EG_FIELDS(EG_MODULES_FIELD(eg_sequential), EG_NAMED_FIELD(eg_sequential)));

eg_status eg_append(eg_module *container, eg_module *child)
{
    if (!eg_is_a(container, &eg_sequential_class) && !eg_is_a(container, &eg_module_list_class)) {
        if (container == NULL)
            eg__null(__func__, "container");
        else
            eg_fail(EG_EINVAL, "module is a %s, expected a Sequential or ModuleList", container->cls->name);
        eg_module_release(child);
        return eg_error_last()->code;
    }
    char name[24];
    size_t number = eg_module_n_children(container);
    int length;
    do {
        length = snprintf(name, sizeof(name), "%zu", number++);
    } while (eg__slot_find(container, name, (size_t)length) != NULL);
    return eg_module_add_child(container, name, NULL, child);
}
