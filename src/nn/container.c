/*
 * Sequential and ModuleList.
 */
#include "nn/internal.h"

/* What runs a batch norm together with the ReLU or ReLU6 behind it; NULL where they are something else, or somebody
 * looks between them. */
static eg__forward_fn fused(const eg_module *norm, const eg_module *relu)
{
    if (norm->cls != &eg_batch_norm2d_class || ((const eg_batch_norm2d *)norm)->relu || norm->n_hooks > 0 ||
        relu->n_hooks > 0)
        return NULL;
    return relu->cls == &eg_relu_class    ? eg__batch_norm2d_forward_relu
           : relu->cls == &eg_relu6_class ? eg__batch_norm2d_forward_relu6
                                          : NULL;
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

/* Runs the children up to `end`, which is NULL for all. */
static eg_tensor *run_until(eg_module *self, eg_tensor *in, const eg_module *end)
{
    const eg__autograd *autograd = eg__autograd_of(self->ctx);
    if (autograd == NULL)
        return NULL;
    eg_tensor *x = in;
    eg_module *child;
    for (size_t i = 0; x != NULL && (child = next_child(self, &i)) != end;) {
        size_t after = i;
        const eg_module *next = autograd->sink == NULL ? next_child(self, &after) : NULL;
        eg__forward_fn both = next != NULL && next != end ? fused(child, next) : NULL;
        eg_tensor *y = eg__module_call_with(child, both != NULL ? both : eg__class_forward(child->cls),
                                            (eg_tensor *const[]){x}, 1);
        if (both != NULL)
            i = after;
        /* Without a tape nobody needs the value between two children any more. */
        if (x != in && x != y && !eg_is_recording(self->ctx))
            eg__scope_drop(x);
        x = y;
    }
    return x;
}

static eg_tensor *forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return run_until(self, in[0], NULL);
}

static eg_module *last_child(const eg_module *m)
{
    eg_module *last = NULL, *child;
    for (size_t i = 0; (child = next_child(m, &i)) != NULL;)
        last = child;
    return last;
}

eg_batch_norm2d *eg__last_norm(eg_module *m)
{
    const eg__autograd *autograd = eg__autograd_of(m->ctx);
    if (m->cls != &eg_sequential_class || m->n_hooks > 0 || !eg_is_recording(m->ctx) || autograd->sink != NULL)
        return NULL;
    eg_module *last = last_child(m);
    bool plain = last != NULL && last->cls == &eg_batch_norm2d_class && last->n_hooks == 0 && last->training;
    eg_batch_norm2d *norm = plain ? (eg_batch_norm2d *)last : NULL;
    return norm != NULL && !norm->relu ? norm : NULL;
}

static eg_tensor *forward_before_norm(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    return run_until(self, in[0], last_child(self));
}

eg_tensor *eg__call_before_norm(eg_module *m, eg_tensor *const *in, size_t n_in)
{
    return eg__module_call_with(m, forward_before_norm, in, n_in);
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
