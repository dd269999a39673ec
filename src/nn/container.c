/*
 * Sequential, Repeat and ModuleList.
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

/* The child in the first filled slot from *i on, which moves behind it; NULL at slot `end`. */
static eg_module *next_child(const eg_module *m, size_t *i, size_t end)
{
    while (*i < EG_MIN(m->n_slots, end)) {
        eg_slot *slot = &m->slots[(*i)++];
        if (slot->kind == EG_SLOT_CHILD && *eg__slot_child(slot) != NULL && eg__open_slot(m, *i - 1) == NULL)
            return *eg__slot_child(slot);
    }
    return NULL;
}

/* Runs the children in the slots before `end`. */
static eg_tensor *run_until(eg_module *self, eg_tensor *in, size_t end)
{
    const eg__autograd *autograd = eg__autograd_of(self->ctx);
    if (autograd == NULL)
        return NULL;
    eg_tensor *x = in;
    eg_module *child;
    for (size_t i = 0; x != NULL && (child = next_child(self, &i, end)) != NULL;) {
        size_t after = i;
        const eg_module *next = autograd->sink == NULL ? next_child(self, &after, end) : NULL;
        eg__forward_fn both = next != NULL ? fused(child, next) : NULL;
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
    return run_until(self, in[0], self->n_slots);
}

/* The slot of the last child; m->n_slots when there is none. */
static size_t last_child(const eg_module *m)
{
    size_t last = m->n_slots;
    for (size_t i = 0; next_child(m, &i, m->n_slots) != NULL;)
        last = i - 1;
    return last;
}

eg_batch_norm2d *eg__last_norm(eg_module *m)
{
    const eg__autograd *autograd = eg__autograd_of(m->ctx);
    if (m->cls != &eg_sequential_class || m->n_hooks > 0 || !eg_is_recording(m->ctx) || autograd->sink != NULL)
        return NULL;
    size_t at = last_child(m);
    eg_module *last = at < m->n_slots ? *eg__slot_child(&m->slots[at]) : NULL;
    bool plain = last != NULL && last->cls == &eg_batch_norm2d_class && last->n_hooks == 0 && last->training &&
                 last->open == NULL;
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

/* ---- the first of several ---- */

size_t eg__repeat_size(const eg_module *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_slots; i++)
        n += m->slots[i].kind == EG_SLOT_CHILD && eg__open_slot(m, i) == NULL;
    return n;
}

eg_module *eg__repeat_block(const eg_module *m, size_t i)
{
    return eg__child_at(m, i);
}

void eg__repeat_cut(eg_module *m)
{
    eg_repeat *repeat = (eg_repeat *)m;
    size_t slot;
    while (repeat->depth >= 0 && (slot = eg__child_slot(m, (size_t)repeat->depth)) < m->n_slots)
        eg__slot_remove(m, &m->slots[slot]);
    repeat->depth = -1;
}

static eg_status check_depth(const eg_module *m)
{
    size_t n = eg__repeat_size(m);
    long long depth = (long long)((const eg_repeat *)m)->depth;
    EG_CHECK(depth <= (long long)n, EG_EINVAL, "Repeat: 'depth' is %lld, but there are %zu modules", depth, n);
    return EG_OK;
}

/* -1, all of them, is for constants: what is decided counts blocks. */
static eg_status check_open_depth(const eg_module *depth)
{
    const eg__open_class *open = depth != NULL ? eg__open_class_of(depth) : NULL;
    for (size_t i = 0; open != NULL && i < open->size(depth); i++)
        EG_CHECK(open->value(depth, i) >= 0, EG_EINVAL,
                 "Repeat: 'depth' is %g, expected at least 0 where it is decided", open->value(depth, i));
    return EG_OK;
}

/* One without modules is to be filled by eg_append(). */
static eg_status repeat_build(eg_module *self)
{
    EG_TRY(eg__repeat_size(self) > 0 ? check_depth(self) : EG_OK);
    return check_open_depth(eg__open_field(self, "depth"));
}

static eg_tensor *repeat_forward(eg_module *self, eg_tensor *const *in, size_t n_in)
{
    (void)n_in;
    int64_t depth = ((const eg_repeat *)self)->depth;
    if (check_depth(self) != EG_OK)
        return NULL;
    return run_until(self, in[0], depth < 0 ? self->n_slots : eg__child_slot(self, (size_t)depth));
}

EG_NAMED_CLASS(eg_repeat, "Repeat", .build = repeat_build, .forward = repeat_forward,
               .fields = EG_FIELDS(EG_MODULES_FIELD(eg_repeat), EG_NAMED_FIELD(eg_repeat),
                                   EG_INT(eg_repeat, depth, EG_AT_LEAST(-1), .def = -1,
                                          .help = "how many of the modules run, -1 = all")));

/* ---- held for others ---- */

EG_NAMED_CLASS(eg_module_list, "ModuleList",
               .fields = EG_FIELDS(EG_MODULES_FIELD(eg_sequential), EG_NAMED_FIELD(eg_sequential)));

eg_status eg_append(eg_module *container, eg_module *child)
{
    if (!eg_is_a(container, &eg_sequential_class) && !eg_is_a(container, &eg_repeat_class) &&
        !eg_is_a(container, &eg_module_list_class)) {
        if (container == NULL)
            eg__null(__func__, "container");
        else
            eg_fail(EG_EINVAL, "module is a %s, expected a Sequential, Repeat or ModuleList", container->cls->name);
        eg_module_release(child);
        return eg_error_last()->code;
    }
    char name[24];
    size_t number = eg__repeat_size(container); /* what opens a field is not counted */
    int length;
    do {
        length = snprintf(name, sizeof(name), "%zu", number++);
    } while (eg__slot_find(container, name, (size_t)length) != NULL);
    return eg_module_add_child(container, name, NULL, child);
}
